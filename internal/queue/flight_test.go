package queue_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/internal/queue"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// senderFunc makes attempts, with nothing to prepare.
type senderFunc func(f *queue.Flight) queue.Result

func (senderFunc) Prepare(*store.Target) (any, error)         { return nil, nil }
func (s senderFunc) Send(f *queue.Flight, _ any) queue.Result { return s(f) }

var delivered = queue.Result{Outcome: store.Outcome{Status: store.StatusDelivered, Attempt: store.Attempt{Status: 200}}}

// flying runs a test while a queue attempts one delivery, by send.
func flying(t *testing.T, send senderFunc, test func(t *testing.T, st store.Store, q *queue.Queue, e store.Endpoint, delivery int64)) {
	synctest.Test(t, func(t *testing.T) {
		st := memorystore.New(memorystore.Options{})
		q := queue.New(queue.Config{
			Store: st, Sender: send, Logger: slog.New(slog.DiscardHandler),
			Workers: 4, Slow: 4, PerEndpoint: 4, MaxBody: 1000, HeldBytes: 1 << 20,
			Poll: 2 * time.Second, Timeout: 10 * time.Second, BodyTime: time.Second, Lease: 30 * time.Second, Grace: time.Second,
			Recorded: func([]store.Outcome, func(int) *store.Lease, store.RecordResult) {},
			Maintain: func(_ context.Context, now time.Time) (time.Time, error) { return now.Add(time.Hour), nil },
		})
		e, err := st.CreateEndpoint(t.Context(), store.CreateEndpointParams{
			Endpoint: store.Endpoint{WorkspaceID: 1, Kind: store.KindEvent, Active: true, Events: []string{"a"}},
			Seal:     func(int64) (store.Secrets, error) { return store.Secrets{}, nil },
		})
		require.NoError(t, err)
		r, err := st.Publish(t.Context(), store.PublishParams{Now: time.Now(), Events: []store.NewEvent{
			{ID: "evt_1", WorkspaceID: 1, Type: "a", Matches: []string{"a"}, Budget: 3}}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- q.Run(ctx) }()
		synctest.Wait()
		test(t, st, q, e, r.Receipts[0].DeliveryIDs[0])
		cancel()
		require.NoError(t, <-ended)
	})
}

// change gives the endpoint a new revision.
func change(t *testing.T, st store.Store, e store.Endpoint) store.Endpoint {
	e, err := st.UpdateEndpoint(t.Context(), e, nil)
	require.NoError(t, err)
	return e
}

// A request may have to take a second connection, because nothing went out on the
// first, and its endpoint may have changed in between.
func TestARequestThatIsNotLetOutIsNotCounted(t *testing.T) {
	var first, second, stopped bool
	send := func(f *queue.Flight) queue.Result {
		first = f.Sending()
		time.Sleep(time.Second)
		second, stopped = f.Sending(), f.Stopped()
		return queue.Result{Interrupted: stopped, Outcome: store.Outcome{Status: store.StatusFailed}}
	}
	flying(t, send, func(t *testing.T, st store.Store, q *queue.Queue, e store.Endpoint, delivery int64) {
		e.Active = false // so that there is but one attempt
		e = change(t, st, e)
		go q.Fence(e.ID, e.Revision)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		require.True(t, first)
		require.False(t, second)
		require.True(t, stopped)
		d, err := st.Delivery(t.Context(), 1, delivery)
		require.NoError(t, err)
		require.Equal(t, store.StatusPending, d.Status)
		require.Zero(t, d.Attempts)
	})
}

func TestAFenceWaitsForARequestThatIsAboutToBegin(t *testing.T) {
	for name, test := range map[string]struct {
		send senderFunc
		want time.Duration // that the Fence takes
	}{
		"being signed": {func(*queue.Flight) queue.Result {
			time.Sleep(500 * time.Millisecond)
			return delivered
		}, 0},
		"about to begin": {func(f *queue.Flight) queue.Result {
			f.Sending()
			time.Sleep(500 * time.Millisecond)
			f.Began()
			time.Sleep(5 * time.Second)
			return delivered
		}, 400 * time.Millisecond},
		"begun": {func(f *queue.Flight) queue.Result {
			f.Sending()
			f.Began()
			time.Sleep(5 * time.Second)
			return delivered
		}, 0},
		"come to nothing": {func(f *queue.Flight) queue.Result {
			f.Sending()
			time.Sleep(500 * time.Millisecond)
			return delivered
		}, 400 * time.Millisecond},
		"never begins": {func(f *queue.Flight) queue.Result {
			f.Sending()
			time.Sleep(5 * time.Second)
			return delivered
		}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			flying(t, test.send, func(t *testing.T, st store.Store, q *queue.Queue, e store.Endpoint, _ int64) {
				time.Sleep(100 * time.Millisecond)
				e = change(t, st, e)
				begin := time.Now()
				both := make(chan time.Duration)
				for range 2 { // also the one that finds it fenced already
					go func() {
						q.Fence(e.ID, e.Revision)
						both <- time.Since(begin)
					}()
				}
				require.Equal(t, test.want, <-both)
				require.Equal(t, test.want, <-both)
				time.Sleep(10 * time.Second)
			})
		})
	}
}
