package metrics_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/metrics"
)

var threeAttempts = webhook.RetryPolicy{Delays: []time.Duration{0, 0}}

// Each attempt that the delivery log has is counted, and no other.
func TestEveryAttemptCounts(t *testing.T) {
	w := newWorld(t, webhook.Config{Retry: threeAttempts})
	w.endpoint(42, webhook.KindEvent, "/200")
	w.endpoint(42, webhook.KindEvent, "/404")
	w.endpoint(42, webhook.KindEvent, "/302")
	w.endpoint(42, webhook.KindSIEM, "/503")
	w.endpoint(42, webhook.KindSIEM, "/0")
	w.endpoint(42, webhook.KindSIEM, "/604")
	w.publish(42, "link.created")      // to all six
	w.publish(42, "workspace.updated") // to those of kind siem
	w.deliver(1 + 2*3 + 2*3*3)

	s := w.scrape()
	require.Equal(t, scrape{
		`webhook_attempts_total{kind="event",outcome="delivered"}`: 1,
		`webhook_attempts_total{kind="event",outcome="retry"}`:     2 * 2,
		`webhook_attempts_total{kind="event",outcome="failed"}`:    2,
		`webhook_attempts_total{kind="siem",outcome="retry"}`:      3 * 2 * 2,
		`webhook_attempts_total{kind="siem",outcome="failed"}`:     3 * 2,
	}, s.nonzero("webhook_attempts_"))
	require.Equal(t, scrape{
		`webhook_answers_total{answer="2xx",kind="event"}`:  1,
		`webhook_answers_total{answer="4xx",kind="event"}`:  3,
		`webhook_answers_total{answer="3xx",kind="event"}`:  3,
		`webhook_answers_total{answer="5xx",kind="siem"}`:   3 * 2,
		`webhook_answers_total{answer="none",kind="siem"}`:  3 * 2,
		`webhook_answers_total{answer="other",kind="siem"}`: 3 * 2,
	}, s.nonzero("webhook_answers_"))
	require.Equal(t, scrape{
		`webhook_deliveries_failed_total{kind="event"}`:   2,
		`webhook_deliveries_failed_total{kind="siem"}`:    3 * 2,
		`webhook_deliveries_published_total`:              6 + 3,
		`webhook_events_published_total{result="stored"}`: 2,
	}, merge(s.nonzero("webhook_deliveries_"), s.nonzero("webhook_events_")))

	// The histogram has as many, and has taken as long as the log says.
	logged, took := 0, time.Duration(0)
	page, err := w.Deliveries(t.Context(), webhook.DeliveryQuery{WorkspaceID: 42})
	require.NoError(t, err)
	for _, d := range page.Deliveries {
		attempts, err := w.Attempts(t.Context(), 42, d.ID)
		require.NoError(t, err)
		for _, a := range attempts {
			logged, took = logged+1, took+a.Latency
		}
	}
	var count, sum, counted float64
	for name, value := range s {
		switch {
		case strings.HasPrefix(name, "webhook_attempt_duration_seconds_count"):
			count += value
			require.Equal(t, s[strings.Replace(name, "webhook_attempt_duration_seconds_count", "webhook_attempts_total", 1)], value, name)
		case strings.HasPrefix(name, "webhook_attempt_duration_seconds_sum"):
			sum += value
		case strings.HasPrefix(name, "webhook_attempts_total"):
			counted += value
		}
	}
	require.EqualValues(t, logged, count)
	require.EqualValues(t, logged, counted)
	require.InDelta(t, took.Seconds(), sum, 1e-4)
}

func merge(all ...scrape) scrape {
	one := scrape{}
	for _, s := range all {
		for name, value := range s {
			one[name] = value
		}
	}
	return one
}

func TestLatencyIsInItsBucket(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := metrics.New(reg, metrics.Options{})
	require.NoError(t, err)
	for _, d := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 300 * time.Millisecond, 9 * time.Second, 10 * time.Second, 10*time.Second + 1} {
		m.Observe(t.Context(), webhook.AttemptFinished{Kind: webhook.KindEvent, Status: webhook.StatusDelivered, HTTPStatus: 200, Latency: d})
	}
	s := scrapeOf(t, reg)
	for le, want := range map[string]float64{"0.005": 2, "0.25": 2, "0.5": 3, "7.5": 3, "10": 5, "+Inf": 6} {
		require.Equal(t, want, s[`webhook_attempt_duration_seconds_bucket{kind="event",le="`+le+`",outcome="delivered"}`], le)
	}

	reg = prometheus.NewRegistry()
	m, err = metrics.New(reg, metrics.Options{Buckets: []float64{1, 60}})
	require.NoError(t, err)
	m.Observe(t.Context(), webhook.AttemptFinished{Kind: webhook.KindEvent, Status: webhook.StatusFailed, Latency: time.Minute})
	s = scrapeOf(t, reg)
	require.EqualValues(t, 1, s[`webhook_attempt_duration_seconds_bucket{kind="event",le="60",outcome="failed"}`])
	require.NotContains(t, s, `webhook_attempt_duration_seconds_bucket{kind="event",le="10",outcome="failed"}`)
}

// However many customers there are and whatever they do, the series are the same,
// and none names one of them.
func TestSeriesDoNotGrow(t *testing.T) {
	w := newWorld(t, webhook.Config{Retry: webhook.RetryPolicy{Delays: []time.Duration{}}, Health: webhook.HealthPolicy{DegradeAfter: 2}})
	w.metrics.Watch(w.Dispatcher)
	types := []string{"link.created", "link.updated", "link.deleted"}
	life := func(workspace int64) {
		for _, path := range []string{"/200", "/500"} {
			w.endpoint(workspace, webhook.KindEvent, path+"?secret-path")
		}
		for _, eventType := range types {
			w.publish(workspace, eventType)
			w.deliver(2)
		}
	}
	life(70001)
	names := func() (list []string) {
		for name := range w.scrape() {
			list = append(list, name)
		}
		return list
	}
	before := names()
	for workspace := int64(70002); workspace < 70030; workspace++ {
		life(workspace)
	}
	after := names()
	require.ElementsMatch(t, before, after)
	label := regexp.MustCompile(`(\w+)="([^"]*)"`)
	allowed := map[string]string{
		"kind":    "^(event|siem|discord|telegram|sentry|other)$",
		"outcome": "^(delivered|retry|failed|other)$",
		"answer":  "^([2345]xx|other|none)$",
		"result":  "^(stored|repeat)$",
		"change":  "^(degraded|paused|recovered|other)$",
		"le":      `^([0-9.]+|\+Inf)$`,
	}
	for _, name := range after {
		require.NotContains(t, name, "7000")
		for _, l := range label.FindAllStringSubmatch(name, -1) {
			require.Contains(t, allowed, l[1], name)
			require.Regexp(t, allowed[l[1]], l[2], name)
		}
	}
}

// What later versions may tell is counted as something else, or not at all.
func TestUnknownValuesAreOther(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := metrics.New(reg, metrics.Options{})
	require.NoError(t, err)
	empty := scrapeOf(t, reg)
	for _, kind := range []webhook.Kind{"", "carrier-pigeon", `"} 1`} {
		for _, status := range []int{-204, -1, 1, 99, 101, 600, 1 << 40} {
			n := webhook.AttemptFinished{Kind: kind, Status: "lost", HTTPStatus: status}
			m.Observe(t.Context(), n)
			m.Observe(t.Context(), webhook.DeliveryFailed{AttemptFinished: n})
		}
	}
	m.Observe(t.Context(), webhook.EndpointChanged{Change: "moved"})
	m.Observe(t.Context(), nil)
	s := scrapeOf(t, reg)
	require.Equal(t, scrape{
		`webhook_attempts_total{kind="other",outcome="other"}`:                 21,
		`webhook_attempt_duration_seconds_count{kind="other",outcome="other"}`: 21,
		`webhook_answers_total{answer="other",kind="other"}`:                   21,
		`webhook_deliveries_failed_total{kind="other"}`:                        21,
		`webhook_endpoint_changes_total{change="other"}`:                       1,
	}, s.nonzero(""))
	for name := range empty {
		require.Contains(t, s, name)
	}
}

// A registry has all of it or nothing, and errors instead of panics.
func TestRegistering(t *testing.T) {
	one, two := prometheus.NewRegistry(), prometheus.NewRegistry()
	first, err := metrics.New(one, metrics.Options{})
	require.NoError(t, err)
	_, err = metrics.New(one, metrics.Options{})
	var already prometheus.AlreadyRegisteredError
	require.ErrorAs(t, err, &already)
	second, err := metrics.New(two, metrics.Options{})
	require.NoError(t, err)
	first.Observe(t.Context(), webhook.EndpointChanged{Change: webhook.EndpointPaused})
	second.Observe(t.Context(), webhook.EndpointChanged{Change: webhook.EndpointDegraded})
	require.Equal(t, scrape{`webhook_endpoint_changes_total{change="paused"}`: 1}, scrapeOf(t, one).nonzero(""))
	require.Equal(t, scrape{`webhook_endpoint_changes_total{change="degraded"}`: 1}, scrapeOf(t, two).nonzero(""))

	// Something else has one of the names: nothing is left behind.
	taken := prometheus.NewRegistry()
	theirs := prometheus.NewCounter(prometheus.CounterOpts{Name: "webhook_backlog_errors_total", Help: "Theirs."})
	require.NoError(t, taken.Register(theirs))
	_, err = metrics.New(taken, metrics.Options{})
	require.Error(t, err)
	require.Len(t, scrapeOf(t, taken), 1)

	// Two on one registry, told apart.
	shared := prometheus.NewRegistry()
	for _, name := range []string{"eu", "us"} {
		m, err := metrics.New(prometheus.WrapRegistererWith(prometheus.Labels{"region": name}, shared), metrics.Options{})
		require.NoError(t, err)
		m.Observe(t.Context(), webhook.EndpointChanged{Change: webhook.EndpointPaused})
	}
	require.Equal(t, scrape{
		`webhook_endpoint_changes_total{change="paused",region="eu"}`: 1,
		`webhook_endpoint_changes_total{change="paused",region="us"}`: 1,
	}, scrapeOf(t, shared).nonzero(""))

	_, err = metrics.New(nil, metrics.Options{})
	require.ErrorContains(t, err, "registerer")
	zero := 0.0
	for _, bad := range [][]float64{{0}, {-1, 1}, {1, 1}, {2, 1}, {zero / zero}} {
		_, err = metrics.New(prometheus.NewRegistry(), metrics.Options{Buckets: bad})
		require.ErrorContains(t, err, "Options.Buckets[")
	}
}

// The names and texts are as Prometheus' conventions want them.
func TestNamesFollowTheConventions(t *testing.T) {
	w := newWorld(t, webhook.Config{})
	w.metrics.Watch(w.Dispatcher)
	w.endpoint(42, webhook.KindEvent, "/200")
	w.publish(42, "link.created")
	w.deliver(1)
	problems, err := testutil.GatherAndLint(w.registry)
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestChangesOfHealthCount(t *testing.T) {
	w := newWorld(t, webhook.Config{
		Retry:  webhook.RetryPolicy{Delays: []time.Duration{}},
		Health: webhook.HealthPolicy{DegradeAfter: 2, PauseAfter: 4},
	})
	e := w.endpoint(42, webhook.KindEvent, "/500")
	attempt := func(n int) {
		for range n {
			// A failure counts if its attempt starts after the last one was
			// recorded, and instants are whole milliseconds.
			time.Sleep(2 * time.Millisecond)
			w.publish(42, "link.created")
			w.deliver(1)
		}
	}
	changes := func() scrape { return w.scrape().nonzero("webhook_endpoint_changes_total") }
	attempt(1)
	require.Empty(t, changes())
	attempt(2)
	require.Equal(t, scrape{`webhook_endpoint_changes_total{change="degraded"}`: 1}, changes())
	good := w.receiver.URL + "/200"
	bad := w.receiver.URL + "/500"
	_, err := w.UpdateEndpoint(t.Context(), 42, e.ID, webhook.EndpointUpdate{URL: &good})
	require.NoError(t, err)
	attempt(1)
	_, err = w.UpdateEndpoint(t.Context(), 42, e.ID, webhook.EndpointUpdate{URL: &bad})
	require.NoError(t, err)
	attempt(4)
	require.Equal(t, scrape{
		`webhook_endpoint_changes_total{change="degraded"}`:  2,
		`webhook_endpoint_changes_total{change="recovered"}`: 1,
		`webhook_endpoint_changes_total{change="paused"}`:    1,
	}, changes())
}

// A repeat of an idempotency key is no new event and has no new deliveries.
func TestRepeatsAreToldApart(t *testing.T) {
	w := newWorld(t, webhook.Config{})
	w.endpoint(42, webhook.KindEvent, "/200")
	w.endpoint(42, webhook.KindEvent, "/200")
	for range 3 {
		_, err := w.Publish(t.Context(), webhook.Event{Type: "link.created", WorkspaceID: 42, Data: map[string]any{}, IdempotencyKey: "k"})
		require.NoError(t, err)
	}
	w.publish(43, "link.created") // to nobody
	require.Equal(t, scrape{
		`webhook_events_published_total{result="stored"}`: 2,
		`webhook_events_published_total{result="repeat"}`: 2,
		`webhook_deliveries_published_total`:              2,
	}, merge(w.scrape().nonzero("webhook_events_"), w.scrape().nonzero("webhook_deliveries_published")))
}

// Counters exist before the first of them counts: rate and increase do not see a
// series come.
func TestCountersBeginAtZero(t *testing.T) {
	reg := prometheus.NewRegistry()
	_, err := metrics.New(reg, metrics.Options{})
	require.NoError(t, err)
	s := scrapeOf(t, reg)
	for _, name := range []string{
		`webhook_attempts_total{kind="event",outcome="delivered"}`,
		`webhook_attempts_total{kind="siem",outcome="failed"}`,
		`webhook_deliveries_failed_total{kind="event"}`,
		`webhook_endpoint_changes_total{change="paused"}`,
		`webhook_events_published_total{result="stored"}`,
		`webhook_deliveries_published_total`,
		`webhook_backlog_errors_total`,
	} {
		require.Contains(t, s, name)
		require.Zero(t, s[name])
	}
}

// Run tells its observers on a goroutine of its own; when it has returned, all is
// counted.
func TestRunCountsAllBeforeItReturns(t *testing.T) {
	delivered := make(chan struct{}, 1000)
	w := newWorld(t, webhook.Config{Observer: webhook.ObserverFunc(func(_ context.Context, n webhook.Notice) {
		if _, ok := n.(webhook.AttemptFinished); ok {
			delivered <- struct{}{}
		}
	})})
	for range 3 {
		w.endpoint(42, webhook.KindEvent, "/204")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Dispatcher.Run(ctx) }()
	for range 50 {
		w.publish(42, "link.created")
	}
	for range 150 {
		<-delivered
	}
	cancel()
	require.NoError(t, <-done)
	s := w.scrape()
	require.EqualValues(t, 150, s[`webhook_attempts_total{kind="event",outcome="delivered"}`])
	require.EqualValues(t, 150, s[`webhook_deliveries_published_total`])
	require.EqualValues(t, 50, s[`webhook_events_published_total{result="stored"}`])
}
