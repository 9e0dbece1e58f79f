package metrics

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/elido-app/webhook"
)

const (
	backlogFresh = time.Second     // how long what was read is good for
	backlogLimit = 2 * time.Second // the store's time to answer
	backlogWait  = 3 * time.Second // a scrape's, where a store does not keep that
)

// backlog is the gauges that are read from the store when they are scraped.
type backlog struct {
	due, age *prometheus.Desc
	errors   prometheus.Counter

	mu         sync.Mutex
	dispatcher *webhook.Dispatcher
	latest     *reading // nil: none yet
}

// reading is one answer of the store, or the waiting for it.
type reading struct {
	missed sync.Once     // counts that it failed
	done   chan struct{} // closed when the rest is set
	at     time.Time
	webhook.Backlog
	err error
}

func newBacklog() *backlog {
	return &backlog{
		due: prometheus.NewDesc("webhook_backlog_due_deliveries",
			"Deliveries that are due now and wait to be attempted, counted no further than 10000; the same in every process that shares the store.", nil, nil),
		age: prometheus.NewDesc("webhook_backlog_oldest_due_age_seconds",
			"For how long the first of the due deliveries has been due; 0 without any.", nil, nil),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "webhook_backlog_errors_total",
			Help: "How often the store did not tell the backlog; the gauges are absent meanwhile.",
		}),
	}
}

func (b *backlog) watch(d *webhook.Dispatcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dispatcher, b.latest = d, nil
}

// Describe implements [prometheus.Collector].
func (b *backlog) Describe(ch chan<- *prometheus.Desc) {
	ch <- b.due
	ch <- b.age
	b.errors.Describe(ch)
}

// Collect implements [prometheus.Collector].
func (b *backlog) Collect(ch chan<- prometheus.Metric) {
	if r := b.read(); r != nil {
		age := time.Duration(0)
		if !r.OldestDue.IsZero() {
			age = max(0, time.Since(r.OldestDue))
		}
		ch <- prometheus.MustNewConstMetric(b.due, prometheus.GaugeValue, float64(r.Due))
		ch <- prometheus.MustNewConstMetric(b.age, prometheus.GaugeValue, age.Seconds())
	}
	b.errors.Collect(ch)
}

// read returns what the store says, or nil if it does not.
func (b *backlog) read() *reading {
	b.mu.Lock()
	if b.dispatcher == nil {
		b.mu.Unlock()
		return nil
	}
	r := b.latest
	if r == nil || r.stale() {
		r = &reading{done: make(chan struct{})}
		b.latest = r
		// A goroutine of its own, so that a store that ignores its context holds
		// up no scrape. Nobody is asked again before having answered.
		go b.ask(r, b.dispatcher)
	}
	b.mu.Unlock()
	wait := time.NewTimer(backlogWait)
	defer wait.Stop()
	select {
	case <-r.done:
		if r.err == nil {
			return r
		}
	case <-wait.C:
	}
	r.missed.Do(b.errors.Inc)
	return nil
}

// stale reports whether it is time to ask again: never while the answer is
// awaited.
func (r *reading) stale() bool {
	select {
	case <-r.done:
		return time.Since(r.at) >= backlogFresh
	default:
		return false
	}
}

// ask reads the store. A failure stands for as long as a success does.
func (b *backlog) ask(r *reading, d *webhook.Dispatcher) {
	ctx, cancel := context.WithTimeout(context.Background(), backlogLimit)
	defer cancel()
	defer close(r.done)
	defer func() {
		if p := recover(); p != nil { // it would end the process: nobody else is on this goroutine
			r.err = fmt.Errorf("panic: %v", p)
		}
		r.at = time.Now()
	}()
	r.Backlog, r.err = d.Backlog(ctx)
}
