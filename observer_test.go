package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
)

func emptyStore(t *testing.T) store.Store {
	t.Helper()
	return memorystore.New(memorystore.Options{})
}

func TestASlowObserverHoldsUpNoDelivery(t *testing.T) {
	config := webhook.Config{Observer: webhook.ObserverFunc(func(ctx context.Context, n webhook.Notice) {
		if _, published := n.(webhook.EventPublished); !published {
			<-ctx.Done()
		}
	})}
	bubble(t, config, func(w *world) {
		w.endpoint(webhook.EndpointParams{})
		w.run()
		for range 100 {
			w.publish(webhook.Event{})
		}
		w.settle()
		require.Len(w, w.net.all(), 100)
		start := time.Now()
		w.stop()
		require.Equal(w, time.Second, time.Since(start), "the end waits for the observer, but not for ever")
		require.Contains(w, w.log.String(), "the observer does not return")
	})
}

func TestAnObserverFarBehindMissesNoticesAndTheLogSaysSo(t *testing.T) {
	var block chan struct{}
	var seen int
	config := webhook.Config{Observer: webhook.ObserverFunc(func(_ context.Context, n webhook.Notice) {
		if _, ok := n.(webhook.AttemptFinished); ok {
			<-block
			seen++
		}
	})}
	bubble(t, config, func(w *world) {
		block = make(chan struct{}) // of this bubble
		w.endpoint(webhook.EndpointParams{MaxInFlight: 64})
		w.run()
		const n = 12_000
		events := make([]webhook.Event, 1000)
		for i := range events {
			events[i] = webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: json.RawMessage(`{}`)}
		}
		for range n / len(events) {
			_, err := w.PublishMany(w.Context(), events)
			require.NoError(w, err)
		}
		w.settle()
		require.Len(w, w.net.all(), n)
		close(block)
		w.settle()
		require.Less(w, seen, n)
		require.GreaterOrEqual(w, seen, 10_000)
		require.Contains(w, w.log.String(), "missed notices")
	})
}

func TestAPanickingObserverIsContained(t *testing.T) {
	config := webhook.Config{Observer: webhook.ObserverFunc(func(context.Context, webhook.Notice) { panic("observer") })}
	bubble(t, config, func(w *world) {
		w.endpoint(webhook.EndpointParams{})
		w.run()
		for range 3 {
			w.publish(webhook.Event{})
		}
		w.settle()
		require.Len(w, w.net.all(), 3)
		require.Equal(w, 6, strings.Count(w.log.String(), "the observer panicked"))
	})
}

func TestObserversAreAllTold(t *testing.T) {
	var order []string
	named := func(name string) webhook.Observer {
		return webhook.ObserverFunc(func(context.Context, webhook.Notice) { order = append(order, name) })
	}
	panics := webhook.ObserverFunc(func(context.Context, webhook.Notice) { panic("observer") })
	config := webhook.Config{Observer: webhook.Observers(named("first"), nil, panics, named("second"), panics)}
	bubble(t, config, func(w *world) {
		w.endpoint(webhook.EndpointParams{})
		w.run()
		w.publish(webhook.Event{})
		w.settle()
		require.Equal(w, []string{"first", "second", "first", "second"}, order, "of the event and of the attempt")
		require.Equal(w, 2, strings.Count(w.log.String(), "the observer panicked"))
		require.Len(w, w.net.all(), 1)
	})

	require.Nil(t, webhook.Observers())
	require.Nil(t, webhook.Observers(nil, nil), "so that nobody is told, and nothing is kept for it")
	n := &noticed{}
	require.Same(t, n, webhook.Observers(nil, n))
}

// RunOnce tells on the caller's goroutine, before it returns.
func TestRunOnceTellsTheObserver(t *testing.T) {
	n := &noticed{}
	bubble(t, webhook.Config{Observer: n}, func(w *world) {
		w.endpoint(webhook.EndpointParams{})
		r := w.publish(webhook.Event{})
		w.publish(webhook.Event{})
		done, err := w.RunOnce(w.Context())
		require.NoError(w, err)
		require.Equal(w, 2, done)
		list := all[webhook.AttemptFinished](n)
		require.Len(w, list, 2)
		require.Equal(w, r.DeliveryIDs[0], list[0].DeliveryID)
		require.Equal(w, r.EventID, list[0].EventID)
		require.Equal(w, webhook.KindEvent, list[0].Kind)
		require.Equal(w, webhook.StatusDelivered, list[0].Status)
		require.Empty(w, list[0].Error)
	})
}

// What is in order for one delivery stays so, whatever the load.
func TestNoticesComeInOrder(t *testing.T) {
	n := &noticed{}
	bubble(t, webhook.Config{Observer: n, Retry: webhook.RetryPolicy{Delays: []time.Duration{time.Second, time.Second}}}, func(w *world) {
		w.net.answer = always(500)
		w.endpoint(webhook.EndpointParams{MaxInFlight: 8})
		w.run()
		for range 200 {
			w.publish(webhook.Event{})
		}
		w.sleep(time.Minute)
		next := map[int64]int{}
		for _, notice := range n.list {
			switch v := notice.(type) {
			case webhook.AttemptFinished:
				next[v.DeliveryID]++
				require.Equal(w, next[v.DeliveryID], v.Number)
			case webhook.DeliveryFailed:
				require.Equal(w, 3, next[v.DeliveryID])
			}
		}
		require.Len(w, next, 200)
		require.Len(w, all[webhook.DeliveryFailed](n), 200)
	})
}

type traceKey struct{}

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestTraceGoesWithTheEvent(t *testing.T) {
	trace := func(ctx context.Context) string { s, _ := ctx.Value(traceKey{}).(string); return s }
	for _, send := range []bool{false, true} {
		n := &noticed{}
		bubble(t, webhook.Config{Observer: n, Trace: trace, SendTrace: send}, func(w *world) {
			w.endpoint(webhook.EndpointParams{})
			w.net.answer = func(_ *http.Request, n int) (*http.Response, error) {
				if n == 1 {
					return nil, errors.New("down")
				}
				return status(200), nil
			}
			w.run()
			publish := func(ctx context.Context) {
				_, err := w.Publish(ctx, webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: json.RawMessage(`{}`)})
				require.NoError(w, err)
			}
			publish(context.WithValue(w.Context(), traceKey{}, traceparent))
			publish(context.WithValue(w.Context(), traceKey{}, "evil\r\nX-A: b"))
			publish(w.Context())
			w.sleep(time.Hour)
			require.Len(w, w.net.all(), 6)
			traced := 0
			for _, h := range w.net.all() {
				if h.header.Get("Traceparent") != "" {
					require.Equal(w, traceparent, h.header.Get("Traceparent"))
					traced++
				}
			}
			require.Equal(w, map[bool]int{true: 2}[send], traced, "both attempts, days later too, if the host asks")
			traced = 0
			for _, a := range all[webhook.AttemptFinished](n) {
				if a.Trace != "" {
					require.Equal(w, traceparent, a.Trace)
					traced++
				}
			}
			require.Equal(w, 2, traced)
		})
	}
}

func TestBacklog(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		e, _ := w.endpoint(webhook.EndpointParams{})
		b, err := w.Backlog(w.Context())
		require.NoError(w, err)
		require.Zero(w, b)
		since := time.Now()
		for range 7 {
			w.publish(webhook.Event{})
		}
		w.sleep(time.Minute)
		b, err = w.Backlog(w.Context())
		require.NoError(w, err)
		require.Equal(w, 7, b.Due)
		require.Equal(w, since.UnixMilli(), b.OldestDue.UnixMilli())
		_, err = w.PauseEndpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		b, err = w.Backlog(w.Context())
		require.NoError(w, err)
		require.Zero(w, b, "a paused endpoint's wait is no backlog")
	})
}

func TestRateLimitSpacesRequests(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		e, _ := w.endpoint(webhook.EndpointParams{RateLimit: 2})
		w.endpoint(webhook.EndpointParams{URL: "https://free.example.com"})
		w.run()
		start := time.Now()
		for range 21 {
			w.publish(webhook.Event{})
		}
		w.settle()
		limited := func() (at []time.Duration) {
			for _, h := range w.net.all() {
				if h.url == e.URL {
					at = append(at, h.at.Sub(start))
				}
			}
			return at
		}
		require.Len(w, limited(), 1, "no burst at the start")
		require.Len(w, w.net.all(), 22, "the other endpoint does not wait")
		w.sleep(10 * time.Second)
		at := limited()
		require.Len(w, at, 21)
		for i, d := range at {
			require.InDelta(w, float64(i)*0.5, d.Seconds(), 0.01)
		}
		for _, d := range deliveries(w) {
			require.Equal(w, 1, d.Attempts)
			require.Zero(w, d.Interruptions)
		}
		// Idle for long, and still no burst.
		w.sleep(time.Hour)
		w.net.reset()
		start = time.Now()
		for range 5 {
			w.publish(webhook.Event{})
		}
		w.settle()
		require.Len(w, limited(), 1)

		// A new limit holds from the next request on; none frees what waits.
		none := 0.0
		_, err := w.UpdateEndpoint(w.Context(), workspace, e.ID, webhook.EndpointUpdate{RateLimit: &none})
		require.NoError(w, err)
		w.sleep(3 * time.Second)
		require.Len(w, limited(), 5)
	})
}

// Waiting for a rate limit takes no worker from others.
func TestARateLimitHoldsNoWorker(t *testing.T) {
	bubble(t, webhook.Config{Workers: 1, SlowRequests: 1}, func(w *world) {
		limited, _ := w.endpoint(webhook.EndpointParams{RateLimit: 0.1, Events: []string{"link.created"}})
		free, _ := w.endpoint(webhook.EndpointParams{URL: "https://free.example.com", Events: []string{"link.updated"}})
		w.run()
		for range 5 {
			w.publish(webhook.Event{})
		}
		for range 20 {
			w.publish(webhook.Event{Type: "link.updated"})
		}
		w.settle()
		count := func(e webhook.Endpoint) (n int) {
			for _, h := range w.net.all() {
				if h.url == e.URL {
					n++
				}
			}
			return n
		}
		require.Equal(w, 1, count(limited))
		require.Equal(w, 20, count(free))
		w.sleep(41 * time.Second)
		require.Equal(w, 5, count(limited))
	})
}

// A slow rate keeps no leases: what waits is the store's.
func TestASlowRateLimitHoldsNothing(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		e, _ := w.endpoint(webhook.EndpointParams{RateLimit: 1.0 / 3600})
		w.run()
		start := time.Now()
		for range 4 {
			w.publish(webhook.Event{})
		}
		w.sleep(30 * time.Minute)
		require.Len(w, w.net.all(), 1)
		leases, err := w.store.Claim(w.Context(), store.ClaimParams{Now: time.Now(), LeaseParams: store.LeaseParams{
			Token: 1, Until: time.Now().Add(time.Second), Room: store.Room{Limit: 10, PerEndpoint: 10},
		}})
		require.NoError(w, err)
		require.Len(w, leases.Leases, 3, "all that waits can be had by others")
		w.sleep(5 * time.Hour)
		require.Len(w, w.net.all(), 4)
		for i, h := range w.net.all() {
			require.InDelta(w, float64(i)*3600, h.at.Sub(start).Seconds(), 3)
		}
		n, err := w.RunOnce(w.Context())
		require.NoError(w, err)
		require.Zero(w, n)
		require.NotContains(w, w.log.String(), "level=ERROR")
		_ = e
	})
}

func TestRunOnceKeepsTheRateLimit(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		w.endpoint(webhook.EndpointParams{RateLimit: 1})
		for range 3 {
			w.publish(webhook.Event{})
		}
		for i := range 3 {
			n, err := w.RunOnce(w.Context())
			require.NoError(w, err)
			require.Equal(w, 1, n, "pass %d", i)
			n, err = w.RunOnce(w.Context())
			require.NoError(w, err)
			require.Zero(w, n, "no time has passed")
			time.Sleep(time.Second)
		}
	})
}

func TestBadRateLimits(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		for _, r := range []float64{-1, 1e-9, 1e9, nan()} {
			_, _, err := w.CreateEndpoint(w.Context(), webhook.EndpointParams{
				WorkspaceID: workspace, URL: "https://example.com", Events: []string{"link.*"}, RateLimit: r,
			})
			var invalid *webhook.InvalidError
			require.ErrorAs(w, err, &invalid)
			require.Equal(w, "rate_limit", invalid.Field)
		}
	})
}

func nan() float64 { zero := 0.0; return zero / zero }

func deliveries(w *world) []webhook.Delivery {
	page, err := w.Deliveries(w.Context(), webhook.DeliveryQuery{WorkspaceID: workspace})
	require.NoError(w, err)
	return page.Deliveries
}
