package metrics_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
)

const (
	due    = "webhook_backlog_due_deliveries"
	age    = "webhook_backlog_oldest_due_age_seconds"
	failed = "webhook_backlog_errors_total"
)

// probed is a store that can be made to fail where the backlog is read.
type probed struct {
	store.Store
	probes atomic.Int64
	fault  atomic.Pointer[func(context.Context) error]
}

func newProbed() *probed { return &probed{Store: memorystore.New(memorystore.Options{})} }

func (p *probed) Probe(ctx context.Context, params store.ProbeParams) (store.ProbeResult, error) {
	p.probes.Add(1)
	if fault := p.fault.Load(); fault != nil {
		if err := (*fault)(ctx); err != nil {
			return store.ProbeResult{}, err
		}
	}
	return p.Store.Probe(ctx, params)
}

// backlogWorld has 3 deliveries waiting, of which the first is a minute old.
func backlogWorld(t *testing.T) (*probed, *prometheus.Registry) {
	st, reg := newProbed(), prometheus.NewRegistry()
	d, m := dispatcher(t, reg, st, webhook.Config{})
	m.Watch(d)
	_, _, err := d.CreateEndpoint(t.Context(), webhook.EndpointParams{WorkspaceID: 42, URL: "https://example.com", Events: []string{"link.*"}})
	require.NoError(t, err)
	for range 3 {
		_, err = d.Publish(t.Context(), webhook.Event{Type: "link.created", WorkspaceID: 42, Data: map[string]any{}})
		require.NoError(t, err)
	}
	time.Sleep(time.Minute)
	return st, reg
}

func TestBacklogIsToldAtScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		d, m := dispatcher(t, reg, memorystore.New(memorystore.Options{}), webhook.Config{})
		s := scrapeOf(t, reg)
		require.NotContains(t, s, due, "nothing is watched")
		require.NotContains(t, s, age)
		require.Zero(t, s[failed])

		m.Watch(d)
		s = scrapeOf(t, reg)
		require.Contains(t, s, due)
		require.Zero(t, s[due])
		require.Zero(t, s[age])

		_, _, err := d.CreateEndpoint(t.Context(), webhook.EndpointParams{WorkspaceID: 42, URL: "https://example.com", Events: []string{"link.*"}})
		require.NoError(t, err)
		batch := make([]webhook.Event, 1000)
		for i := range batch {
			batch[i] = webhook.Event{Type: "link.created", WorkspaceID: 42, Data: map[string]any{}}
		}
		_, err = d.PublishMany(t.Context(), batch[:7])
		require.NoError(t, err)
		time.Sleep(90 * time.Second)
		s = scrapeOf(t, reg)
		require.EqualValues(t, 7, s[due])
		require.EqualValues(t, 90, s[age])

		// It is counted no further than its bound.
		for range 10 {
			_, err = d.PublishMany(t.Context(), batch)
			require.NoError(t, err)
		}
		time.Sleep(time.Second)
		s = scrapeOf(t, reg)
		require.EqualValues(t, 10_000, s[due])
		require.EqualValues(t, 91, s[age])
	})
}

func TestManyScrapersReadTheStoreOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, reg := backlogWorld(t)
		slow := func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }
		st.fault.Store(&slow)
		scrapeAll := func() {
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() { require.EqualValues(t, 3, scrapeOf(t, reg)[due]) })
			}
			all.Wait()
		}
		scrapeAll()
		scrapeAll()
		require.EqualValues(t, 1, st.probes.Load())
		time.Sleep(400 * time.Millisecond)
		require.InDelta(t, 60.5, scrapeOf(t, reg)[age], 0.001, "the age goes on all the same")
		require.EqualValues(t, 1, st.probes.Load())
		time.Sleep(600 * time.Millisecond)
		scrapeAll()
		require.EqualValues(t, 2, st.probes.Load())
	})
}

// A store that fails takes the gauges with it, and nothing else.
func TestAFailingStoreTakesOnlyTheGauges(t *testing.T) {
	release := make(chan struct{}) // made in each bubble
	for name, fault := range map[string]func(ctx context.Context) error{
		"error":           func(context.Context) error { return errors.New("the store is down") },
		"panic":           func(context.Context) error { panic("store") },
		"too slow":        func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"deaf to its end": func(context.Context) error { <-release; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release = make(chan struct{})
				st, reg := backlogWorld(t)
				require.EqualValues(t, 3, scrapeOf(t, reg)[due])
				time.Sleep(time.Second)
				st.fault.Store(&fault)
				start := time.Now()
				for range 2 { // the second one within the same second, or the same wait
					s := scrapeOf(t, reg)
					require.NotContains(t, s, due)
					require.NotContains(t, s, age)
					require.EqualValues(t, 1, s[failed])
					require.Contains(t, s, "webhook_deliveries_published_total")
				}
				require.LessOrEqual(t, time.Since(start), 6*time.Second)
				require.EqualValues(t, 2, st.probes.Load())

				st.fault.Store(nil)
				close(release)
				time.Sleep(time.Second)
				s := scrapeOf(t, reg)
				require.EqualValues(t, 3, s[due])
				require.EqualValues(t, 1, s[failed])
			})
		})
	}
}

// A host that makes its Dispatcher anew watches the new one.
func TestWatchReplaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		first, m := dispatcher(t, reg, memorystore.New(memorystore.Options{}), webhook.Config{})
		m.Watch(first)
		require.Zero(t, scrapeOf(t, reg)[due])
		second, err := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{Observer: m})
		require.NoError(t, err)
		_, _, err = second.CreateEndpoint(t.Context(), webhook.EndpointParams{WorkspaceID: 42, URL: "https://example.com", Events: []string{"link.*"}})
		require.NoError(t, err)
		_, err = second.Publish(t.Context(), webhook.Event{Type: "link.created", WorkspaceID: 42, Data: map[string]any{}})
		require.NoError(t, err)
		m.Watch(second)
		require.EqualValues(t, 1, scrapeOf(t, reg)[due], "at once: what was read before is of the first")
	})
}
