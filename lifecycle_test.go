package webhook_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

// TestThePayloadThatKillsIsNamedBeforeItIsSent: a line that is written when the
// process is dead is not.
func TestThePayloadThatKillsIsNamedBeforeItIsSent(t *testing.T) {
	for name, deliver := range map[string]func(w *world){
		"run":      func(w *world) { w.run(); w.sleep(10 * time.Second) },
		"run once": func(w *world) { _, err := w.RunOnce(w.Context()); require.NoError(w, err) },
	} {
		t.Run(name, func(t *testing.T) {
			var named atomic.Bool
			slow := handlerFunc(func(r slog.Record) {
				if strings.Contains(r.Message, "interrupted often") {
					time.Sleep(time.Second)
					named.Store(true)
				}
			})
			bubble(t, webhook.Config{Logger: slog.New(slow)}, func(w *world) {
				w.endpoint(webhook.EndpointParams{})
				id := w.publish(webhook.Event{}).DeliveryIDs[0]
				for range 5 { // processes that took it and died
					r, err := w.store.Claim(w.Context(), store.ClaimParams{Now: time.Now(), LeaseParams: store.LeaseParams{
						Token: 1, Until: time.Now().Add(time.Minute), Room: store.Room{Limit: 1, PerEndpoint: 1}}})
					require.NoError(w, err)
					require.Len(w, r.Leases, 1)
					time.Sleep(time.Minute)
				}
				w.sleep(store.RetakeDelay(5))
				w.net.set(func(*http.Request, int) (*http.Response, error) {
					require.True(w, named.Load(), "the line is in the log when the request goes out")
					return status(200), nil
				})
				deliver(w)
				require.Equal(w, webhook.StatusDelivered, w.delivery(id).Status)
			})
		})
	}
}

// TestStopLosesNothing stops a process while it is in the middle of something,
// and lets another one go on. The stop takes no longer than its grace period and a
// tenth of a second, whatever hangs. Everything is delivered and no attempt is
// used up. What was answered is not sent again, unless that could not be written
// down.
func TestStopLosesNothing(t *testing.T) {
	const published, grace = 5, time.Second
	for name, test := range map[string]struct {
		hangs     string // a call to the store
		applied   bool   // it hangs when it has taken effect
		answer    func(*http.Request, int) (*http.Response, error)
		dialling  bool
		meanwhile func(w *world)
		wait      time.Duration // before the stop
		takes     time.Duration // the stop, if that is known; -1: no time
		unwritten bool          // answers cannot be written down
	}{
		"doing nothing":                      {takes: -1},
		"claiming":                           {hangs: "claim", meanwhile: func(w *world) { w.Wake() }},
		"claiming, and it was granted":       {hangs: "claim", applied: true, meanwhile: func(w *world) { w.Wake() }},
		"handing over a publish":             {hangs: "publish", applied: true, takes: -1},
		"dialling":                           {dialling: true, takes: 750 * time.Millisecond},
		"waiting":                            {answer: silent, takes: 750 * time.Millisecond},
		"waiting, and there is an answer":    {answer: slowly(700 * time.Millisecond), takes: 600 * time.Millisecond},
		"waiting, and there is one just now": {answer: slowly(850 * time.Millisecond), takes: 750 * time.Millisecond},
		"recording":                          {hangs: "record", unwritten: true},
		"recording, and it was written":      {hangs: "record", applied: true, unwritten: true}, // what is answered meanwhile
		"giving back":                        {hangs: "release", answer: silent},
		"renewing":                           {hangs: "renew", answer: silent, wait: 11 * time.Second},
		"polling":                            {hangs: "probe", wait: 2500 * time.Millisecond},
		"keeping house": {hangs: "maintain", meanwhile: func(w *world) {
			e, _ := w.endpoint(webhook.EndpointParams{WorkspaceID: 1})
			require.NoError(w, w.DeleteEndpoint(w.Context(), 1, e.ID))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{Store: memorystore.New(memorystore.Options{})}
				config := webhook.Config{Grace: grace, Timeout: 12 * time.Second}
				if test.dialling {
					config.Egress.Resolver = &gate{asked: make(chan struct{}, 1)}
				}
				a := newWorld(t, f, config)
				var answered atomic.Int64
				a.net.set(func(r *http.Request, n int) (*http.Response, error) {
					answer := test.answer
					if answer == nil {
						answer = always(200)
					}
					response, err := answer(r, n)
					if err == nil {
						answered.Add(1)
					}
					return response, err
				})
				e, _ := a.endpoint(webhook.EndpointParams{MaxInFlight: 2})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- a.Dispatcher.Run(ctx) }()
				a.settle()
				calls := f.count(test.hangs)
				hang := func(ctx context.Context, call string) error {
					if call != test.hangs {
						return nil
					}
					select {
					case <-ctx.Done():
					case <-time.After(time.Minute): // the host's own calls have no end
					}
					return ctx.Err()
				}
				if test.applied {
					f.set(nil, hang)
				} else {
					f.set(hang, nil)
				}
				var publishers sync.WaitGroup
				for range published {
					publishers.Go(func() { a.publish(webhook.Event{}) })
				}
				a.settle()
				if test.meanwhile != nil {
					test.meanwhile(a)
				}
				a.sleep(max(test.wait, 100*time.Millisecond))

				begin := time.Now()
				cancel()
				err := <-done
				took := time.Since(begin)
				require.LessOrEqual(t, took, grace+100*time.Millisecond)
				if test.takes != 0 {
					require.NoError(t, err)
					require.Equal(t, max(test.takes, 0), took)
				}
				publishers.Wait()
				f.set(nil, nil)
				require.True(t, test.hangs == "" || f.count(test.hangs) > calls, "that was not called")
				written := 0
				for _, d := range a.firstPage(e) {
					written += d.TotalAttempts
				}
				if !test.unwritten {
					require.EqualValues(t, answered.Load(), written, "attempts recorded of those answered")
				}

				b := newWorld(t, f, webhook.Config{})
				defer func() { b.stop() }()
				b.run()
				b.sleep(10 * time.Minute)
				deliveries := b.firstPage(e)
				require.Len(t, deliveries, published)
				for _, d := range deliveries {
					require.Equal(t, webhook.StatusDelivered, d.Status)
					require.Equal(t, 1, d.Attempts)
					require.Len(t, b.attempts(d.ID), 1)
				}
				require.Len(t, b.net.all(), published-written, "what was written down is not sent again, the rest is once")
			})
		})
	}
}

// firstPage is the first page of an endpoint's log.
func (w *world) firstPage(e webhook.Endpoint) []webhook.Delivery {
	w.Helper()
	page, err := w.Deliveries(w.Context(), webhook.DeliveryQuery{WorkspaceID: workspace, EndpointID: e.ID, Limit: 10})
	require.NoError(w, err)
	return page.Deliveries
}

// leasing counts the leases that are out.
type leasing struct {
	store.Store
	mu   sync.Mutex
	out  map[int64]bool
	most int
}

func (l *leasing) given(leases []store.Lease) {
	for i := range leases {
		l.out[leases[i].DeliveryID] = true
	}
	l.most = max(l.most, len(l.out))
}

func (l *leasing) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.Store.Claim(ctx, p)
	l.given(r.Leases)
	return r, err
}

func (l *leasing) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.Store.Record(ctx, p)
	for i := range p.Outcomes {
		delete(l.out, p.Outcomes[i].DeliveryID)
	}
	l.given(r.Claim.Leases)
	return r, err
}

func (l *leasing) Release(ctx context.Context, releases []store.Release) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range releases {
		delete(l.out, releases[i].DeliveryID)
	}
	return l.Store.Release(ctx, releases)
}

// TestResumeKeepsWithinTheLane resumes an endpoint with a long queue: it gets no
// more requests at once than it may, and the process holds no more of the queue
// than it can send meanwhile.
func TestResumeKeepsWithinTheLane(t *testing.T) {
	for on, open := range map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return memorystore.New(memorystore.Options{}) },
		"sqlite": func(t *testing.T) store.Store {
			st, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "webhooks.db"))
			require.NoError(t, err)
			return st
		},
	} {
		t.Run(on, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const queued, bound = 10_000, 8
				l := &leasing{Store: open(t), out: map[int64]bool{}}
				defer func() { require.NoError(t, l.Close()) }()
				w := newWorld(t, l, webhook.Config{Logger: quiet()})
				w.net.set(slowly(10 * time.Millisecond))
				e, _ := w.endpoint(webhook.EndpointParams{})
				for range queued / 1000 {
					events := make([]webhook.Event, 1000)
					for i := range events {
						events[i] = webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: map[string]int{"id": i}}
					}
					_, err := w.PublishMany(w.Context(), events)
					require.NoError(w, err)
				}
				_, err := w.PauseEndpoint(w.Context(), workspace, e.ID)
				require.NoError(w, err)
				w.run()
				defer func() { w.stop() }()
				w.sleep(time.Hour)
				require.Empty(w, w.net.all())
				_, err = w.ResumeEndpoint(w.Context(), workspace, e.ID)
				require.NoError(w, err)
				w.sleep(queued / bound * 10 * time.Millisecond * 2)
				require.Len(w, w.net.all(), queued)
				require.Equal(w, bound, w.net.most["https://example.com/hooks"])
				require.LessOrEqual(w, l.most, 16*bound, "leases out")
			})
		})
	}
}

// TestRotationsBetweenAttempts rotates twice in an hour, while a delivery waits for
// its retry, and while it is being attempted. Each attempt is signed by the secrets
// of its time, the last of them after the end of an overlap that nobody got to
// clean up after.
func TestRotationsBetweenAttempts(t *testing.T) {
	faultyBubble(t, webhook.Config{Signer: webhook.Signer{Overlap: 10 * time.Minute}}, func(w *world, f *faulty) {
		e, first := w.endpoint(webhook.EndpointParams{})
		rotate := func() webhook.Secret {
			_, s, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{})
			require.NoError(w, err)
			return s
		}
		f.set(func(_ context.Context, call string) error {
			if call == "maintain" {
				return errors.New("no time for that")
			}
			return nil
		}, nil)
		w.net.set(func(r *http.Request, _ int) (*http.Response, error) {
			time.Sleep(time.Second)
			return status(500), r.Context().Err()
		})
		w.run()
		w.settle()
		id := w.publish(webhook.Event{}).DeliveryIDs[0]
		w.sleep(500 * time.Millisecond)
		second := rotate() // during the first attempt, which goes on
		w.sleep(5*time.Minute + 1*time.Second)
		third := rotate()  // during the second
		w.sleep(time.Hour) // the third is 15 minutes later

		hits := w.net.all()
		require.Len(w, hits, 3)
		require.Len(w, w.attempts(id), 3, "none was cut, or not counted")
		for i, want := range []struct {
			current  webhook.Secret
			previous *webhook.Secret
		}{{first, nil}, {second, &first}, {third, nil}} {
			require.Equal(w, elido(want.current, hits[i]), hits[i].header.Get("X-Elido-Signature"))
			if want.previous == nil {
				require.NotContains(w, hits[i].header, "X-Elido-Signature-Previous")
			} else {
				require.Equal(w, elido(*want.previous, hits[i]), hits[i].header.Get("X-Elido-Signature-Previous"))
			}
		}
		got, err := w.Endpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		require.False(w, got.PreviousUntil.IsZero(), "the store still has the secret whose time is over")
	})
}
