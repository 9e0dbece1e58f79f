package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// What happens while the store's answer to a claim is on its way must not be
// forgotten when it arrives.
func TestAWakeDuringAClaimIsNotLost(t *testing.T) {
	for name, act := range map[string]func(w, other *world, e webhook.Endpoint){
		"wake": func(w, other *world, _ webhook.Endpoint) {
			other.publish(webhook.Event{Type: "link.deleted"})
			w.Wake()
		},
		"resume": func(w, _ *world, e webhook.Endpoint) {
			_, err := w.ResumeEndpoint(w.Context(), workspace, e.ID)
			require.NoError(w, err)
		},
		"publish": func(w, _ *world, _ webhook.Endpoint) { w.publish(webhook.Event{Type: "domain.verified"}) },
	} {
		t.Run(name, func(t *testing.T) {
			faultyBubble(t, webhook.Config{Poll: time.Hour}, func(w *world, f *faulty) {
				other := newWorld(w.T, f.Store, webhook.Config{}) // publishes only
				want := 1
				e, _ := w.endpoint(webhook.EndpointParams{Events: []string{"link.deleted"}})
				if name == "publish" { // to more than one publish may hand off
					for i := range 40 {
						w.endpoint(webhook.EndpointParams{Events: []string{"domain.*"}, URL: fmt.Sprintf("https://d%d.example/", i)})
					}
					want = 40
				}
				if name == "resume" {
					other.publish(webhook.Event{Type: "link.deleted"})
					_, err := w.PauseEndpoint(w.Context(), workspace, e.ID)
					require.NoError(w, err)
				}
				w.run()
				w.settle()
				f.set(nil, once("claim", func() error { act(w, other, e); return nil }))
				w.Wake() // a claim
				w.settle()
				require.Len(w, w.net.all(), want)
			})
		})
	}
}

func TestBodiesLargerThanWhatMayBeHeldStillGoOut(t *testing.T) {
	config := webhook.Config{MaxHeldBytes: 1 << 20, MaxBody: 8 << 20, Logger: quiet()}
	bubble(t, config, func(w *world) {
		other := newWorld(w.T, w.store, config)
		w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		for range 5 {
			other.publish(webhook.Event{Data: json.RawMessage(`{"x":"` + strings.Repeat("x", 3<<20) + `"}`)})
			other.publish(webhook.Event{})
		}
		w.sleep(time.Minute)
		require.Len(w, w.net.all(), 10)
	})
}

// sizing notes the most payload bytes that one call gave.
type sizing struct {
	store.Store
	most atomic.Int64
}

func (s *sizing) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	r, err := s.Store.Claim(ctx, p)
	var n int64
	for _, l := range r.Leases {
		n += int64(len(l.Payload))
	}
	s.most.Store(max(s.most.Load(), n))
	return r, err
}

func TestTheFirstClaimExpectsTheLargestBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &sizing{Store: memorystore.New(memorystore.Options{})}
		w := newWorld(t, st, webhook.Config{MaxHeldBytes: 1 << 20, Logger: quiet()})
		defer func() { w.stop() }()
		for i := range 100 {
			w.endpoint(webhook.EndpointParams{WorkspaceID: int64(i + 1), URL: fmt.Sprintf("https://e%d.example/", i)})
			w.publish(webhook.Event{WorkspaceID: int64(i + 1), Data: json.RawMessage(`{"x":"` + strings.Repeat("x", 200<<10) + `"}`)})
		}
		w.run()
		w.sleep(time.Minute)
		require.Len(t, w.net.all(), 100)
		require.LessOrEqual(t, st.most.Load(), int64(2<<20))
	})
}

func TestALeaseThatComesAfterTheFenceGoesBack(t *testing.T) {
	faultyBubble(t, webhook.Config{Workers: 1, SlowRequests: 1}, func(w *world, f *faulty) {
		w.net.set(func(r *http.Request, n int) (*http.Response, error) {
			if r.URL.Host == "example.com" {
				return status(200), nil
			}
			return silent(r, n)
		})
		for i := range 15 { // so that what waits, waits for minutes
			w.endpoint(webhook.EndpointParams{WorkspaceID: 1, URL: fmt.Sprintf("https://hang%d.example/", i)})
		}
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		w.publish(webhook.Event{WorkspaceID: 1})
		w.settle()
		gate := make(chan struct{})
		f.set(nil, once("publish", func() error { <-gate; return nil }))
		go w.publish(webhook.Event{})
		w.settle()
		_, err := w.PauseEndpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		close(gate)
		w.sleep(10 * time.Minute)
		for _, h := range w.net.all() {
			require.NotContains(w, h.url, "https://example.com/")
		}
	})
}

func TestMoreOutcomesThanABatchSurviveAnOutageLongerThanTheLease(t *testing.T) {
	faultyBubble(t, webhook.Config{Logger: quiet()}, func(w *world, f *faulty) {
		w.net.set(slowly(5 * time.Millisecond))
		other := newWorld(w.T, f.Store, webhook.Config{})
		for i := range 20 {
			w.endpoint(webhook.EndpointParams{URL: fmt.Sprintf("https://e%d.example/", i)})
		}
		for range 100 {
			other.publish(webhook.Event{})
		}
		var down atomic.Bool
		f.set(func(_ context.Context, call string) error {
			time.Sleep(20 * time.Millisecond)
			if down.Load() {
				return errors.New("down")
			}
			return nil
		}, nil)
		w.run()
		for len(w.net.all()) < 800 {
			time.Sleep(time.Millisecond)
		}
		down.Store(true)
		w.sleep(45 * time.Second)
		down.Store(false)
		w.sleep(20 * time.Minute)
		require.Len(w, w.net.all(), 2000, "one request each")
	})
}

func TestAPauseElsewhereIsSeenWhileNothingCanBeWritten(t *testing.T) {
	faultyBubble(t, webhook.Config{MaxInFlight: 1}, func(w *world, f *faulty) {
		w.net.set(slowly(900 * time.Millisecond))
		other := newWorld(w.T, f.Store, webhook.Config{})
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		for range 2 {
			w.publish(webhook.Event{})
		}
		w.sleep(3 * time.Second) // the lane is quick to refill by now
		for range 60 {
			w.publish(webhook.Event{})
		}
		f.set(func(_ context.Context, call string) error {
			if call != "probe" {
				return errors.New("disk full")
			}
			return nil
		}, nil)
		w.sleep(time.Second)
		_, err := other.PauseEndpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		paused := time.Now()
		w.sleep(20 * time.Second)
		f.set(nil, nil)
		for _, h := range w.net.all() {
			require.LessOrEqual(w, h.at.Sub(paused), 2*time.Second, "the poll interval")
		}
	})
}

func TestNothingStartsWhileTheStoreCannotBeAsked(t *testing.T) {
	// An endpoint that is quick has 16 leases in its lane, enough for four seconds.
	faultyBubble(t, webhook.Config{MaxInFlight: 1, Poll: 500 * time.Millisecond}, func(w *world, f *faulty) {
		w.net.set(slowly(240 * time.Millisecond))
		w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		for range 60 {
			w.publish(webhook.Event{})
		}
		w.sleep(5 * time.Second)
		down := time.Now()
		f.set(func(context.Context, string) error { return errors.New("down") }, nil)
		w.sleep(20 * time.Second)
		after := 0
		for _, h := range w.net.all() {
			require.LessOrEqual(w, h.at.Sub(down), 1500*time.Millisecond, "the poll interval and a second")
			if h.at.After(down) {
				after++
			}
		}
		require.Positive(w, after, "a short outage holds up nobody")
		f.set(nil, nil)
		w.sleep(5 * time.Minute)
		require.Len(w, w.net.all(), 60)
	})
}

func TestHousekeepingThatFailsHoldsUpNoDelivery(t *testing.T) {
	faultyBubble(t, webhook.Config{Logger: quiet()}, func(w *world, f *faulty) {
		w.endpoint(webhook.EndpointParams{})
		f.set(func(_ context.Context, call string) error {
			if call == "maintain" {
				return errors.New("no")
			}
			return nil
		}, nil)
		w.run()
		w.settle()
		for range 2000 {
			w.publish(webhook.Event{})
		}
		w.settle()
		require.Len(w, w.net.all(), 2000)
		w.sleep(time.Minute)
		require.Less(w, f.count("maintain"), 30, "it backs off")
	})
}

func TestRunOnceRecordsWhatItSentThoughTheStoreFailsOnce(t *testing.T) {
	faultyBubble(t, webhook.Config{}, func(w *world, f *faulty) {
		w.endpoint(webhook.EndpointParams{})
		id := w.publish(webhook.Event{}).DeliveryIDs[0]
		f.set(once("record", func() error { return errors.New("down") }), nil)
		n, err := w.RunOnce(w.Context())
		require.NoError(w, err)
		require.Equal(w, 1, n)
		require.Equal(w, webhook.StatusDelivered, w.delivery(id).Status)
	})
}

func TestAStopThatSucceedsInTheEndIsClean(t *testing.T) {
	faultyBubble(t, webhook.Config{MaxInFlight: 1}, func(w *world, f *faulty) {
		w.net.set(slowly(time.Second))
		w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		for range 3 { // one runs, the others wait in the lane
			w.publish(webhook.Event{})
		}
		w.settle()
		f.set(once("release", func() error { return errors.New("busy") }), nil)
		w.stop() // requires that Run returns nil
		require.Equal(w, 1, f.count("record"))
		require.Len(w, w.net.all(), 1)
	})
}

func TestAPublishOfUnknownOutcomeIsLookedFor(t *testing.T) {
	faultyBubble(t, webhook.Config{Poll: time.Hour}, func(w *world, f *faulty) {
		w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		f.set(nil, once("publish", func() error { return store.ErrOutcomeUnknown }))
		_, err := w.Publish(w.Context(), webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: json.RawMessage(`{}`)})
		require.ErrorIs(w, err, webhook.ErrOutcomeUnknown)
		w.sleep(31 * time.Second) // the lease that nobody knows of
		require.Len(w, w.net.all(), 1)
	})
}
