// Package metrics counts what a Dispatcher does, for Prometheus.
//
//	m, err := metrics.New(prometheus.DefaultRegisterer, metrics.Options{})
//	d, err := webhook.New(st, webhook.Config{Observer: m})
//	m.Watch(d) // for the backlog
//
// The metrics:
//
//	webhook_attempts_total{kind,outcome}                      every recorded attempt
//	webhook_attempt_duration_seconds{kind,outcome}            the same as a histogram: to the answer's headers, or to the error
//	webhook_answers_total{kind,answer}                        the same by answer: 2xx, 3xx, 4xx, 5xx, other, none
//	webhook_deliveries_failed_total{kind}                     deliveries that failed for good
//	webhook_events_published_total{result}                    events: stored, repeat (of an idempotency key)
//	webhook_deliveries_published_total                        deliveries of the events stored
//	webhook_endpoint_changes_total{change}                    degraded, paused, recovered
//	webhook_backlog_due_deliveries                            gauge: what waits to be attempted
//	webhook_backlog_oldest_due_age_seconds                    gauge: how long the first of it has waited
//	webhook_backlog_errors_total                              the store failed to tell the backlog
//
// An outcome is delivered, retry (failed, and there will be another attempt) or
// failed (for good). A kind is that of the endpoint, or other. No label holds a
// URL, a workspace, an endpoint or an event type: the number of series does not
// grow with customers or with what they do.
//
// Counters are of this process: sum them over processes. The gauges are of the
// store: every process that shares it tells the same, so take the maximum. What
// PublishTx published counts at once, also if its transaction is rolled back.
//
// grafana-dashboard.json and alerts.yml beside this file use these metrics.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/elido-app/webhook"
)

// Options are settings of [New]. The zero value is the documented default.
type Options struct {
	// Buckets are the upper bounds of the latency histogram, in seconds, in
	// increasing order. Defaults to 5 ms to 10 s, the default time limit; with a
	// longer Config.Timeout add to them. What ran into the limit took a little
	// longer than that.
	Buckets []float64
}

// defaultBuckets spread over what a healthy receiver takes, and reach to the
// default time limit.
var defaultBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 7.5, 10}

// Metrics is a [webhook.Observer] that counts. It is safe for concurrent use, and
// may be shared by several Dispatchers.
type Metrics struct {
	attempts            *prometheus.CounterVec
	latency             *prometheus.HistogramVec
	answers             *prometheus.CounterVec
	failed              *prometheus.CounterVec
	events              *prometheus.CounterVec
	deliveriesPublished prometheus.Counter
	changes             *prometheus.CounterVec
	backlog             *backlog
}

// New registers the metrics with reg: all of them, or none and an error, for
// instance because they are registered there already. Dispatchers that should be
// told apart have a Metrics each, on registerers made with
// [prometheus.WrapRegistererWith].
func New(reg prometheus.Registerer, o Options) (*Metrics, error) {
	if reg == nil {
		return nil, errors.New("webhook/metrics: a registerer is required")
	}
	if o.Buckets == nil {
		o.Buckets = defaultBuckets
	}
	for i, b := range o.Buckets {
		if !(b > 0) || i > 0 && b <= o.Buckets[i-1] {
			return nil, fmt.Errorf("webhook/metrics: Options.Buckets[%d] must be positive and more than the one before", i)
		}
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		attempts: counters("webhook_attempts_total",
			"Recorded attempts, by kind of endpoint and outcome.", "kind", "outcome"),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "webhook_attempt_duration_seconds",
			Help:    "How long attempts took to the answer's headers, or to the error.",
			Buckets: slices.Clone(o.Buckets),
		}, []string{"kind", "outcome"}),
		answers: counters("webhook_answers_total",
			"Recorded attempts, by kind of endpoint and class of the answer's status.", "kind", "answer"),
		failed: counters("webhook_deliveries_failed_total",
			"Deliveries that failed for good, by kind of endpoint.", "kind"),
		events: counters("webhook_events_published_total",
			"Published events; a repeat of an idempotency key stored nothing.", "result"),
		deliveriesPublished: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "webhook_deliveries_published_total",
			Help: "Deliveries of published events.",
		}),
		changes: counters("webhook_endpoint_changes_total",
			"Changes of endpoints' health.", "change"),
		backlog: newBacklog(),
	}
	m.begin()
	if err := reg.Register(collector{m}); err != nil {
		return nil, fmt.Errorf("webhook/metrics: %w", err)
	}
	return m, nil
}

// Watch makes the gauges tell the backlog of d; without it there are none. What
// was watched before is not any more.
//
// They are read when they are scraped, at most once a second however many scrape
// and at a cost that does not depend on how much is waiting. The depth is counted
// no further than 10,000, which so means "or more". While the store fails, or
// takes longer than two seconds, the gauges are absent, webhook_backlog_errors_total
// counts it, and the rest of the scrape is as ever.
func (m *Metrics) Watch(d *webhook.Dispatcher) { m.backlog.watch(d) }

// Observe implements [webhook.Observer].
func (m *Metrics) Observe(_ context.Context, n webhook.Notice) {
	switch n := n.(type) {
	case webhook.AttemptFinished:
		kind, outcome := kindLabel(n.Kind), outcomeLabel(n.Status)
		m.attempts.WithLabelValues(kind, outcome).Inc()
		m.latency.WithLabelValues(kind, outcome).Observe(n.Latency.Seconds())
		m.answers.WithLabelValues(kind, answerLabel(n.HTTPStatus)).Inc()
	case webhook.DeliveryFailed:
		m.failed.WithLabelValues(kindLabel(n.Kind)).Inc()
	case webhook.EventPublished:
		if n.Repeat { // its receipt names the first one's deliveries
			m.events.WithLabelValues("repeat").Inc()
			return
		}
		m.events.WithLabelValues("stored").Inc()
		m.deliveriesPublished.Add(float64(len(n.DeliveryIDs)))
	case webhook.EndpointChanged:
		m.changes.WithLabelValues(changeLabel(n.Change)).Inc()
	}
}

// begin makes the counters that alerts go by exist from the start: a rate does
// not see the step from nothing to 1.
func (m *Metrics) begin() {
	for _, kind := range kinds {
		for _, outcome := range outcomes {
			m.attempts.WithLabelValues(kind, outcome)
		}
		m.failed.WithLabelValues(kind)
	}
	for _, change := range changes {
		m.changes.WithLabelValues(change)
	}
	m.events.WithLabelValues("stored")
	m.events.WithLabelValues("repeat")
}

// collector is what is registered: all of the metrics as one, so that a registry
// takes all or none.
type collector struct{ m *Metrics }

func (c collector) parts() []prometheus.Collector {
	m := c.m
	return []prometheus.Collector{m.attempts, m.latency, m.answers, m.failed, m.events, m.deliveriesPublished, m.changes, m.backlog}
}

// Describe implements [prometheus.Collector].
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, p := range c.parts() {
		p.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c.parts() {
		p.Collect(ch)
	}
}
