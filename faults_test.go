package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// faulty is a store with faults put in before and after its calls.
type faulty struct {
	store.Store
	mu            sync.Mutex
	before, after func(ctx context.Context, call string) error
	calls         map[string]int
}

func (f *faulty) set(before, after func(ctx context.Context, call string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

func (f *faulty) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

// around makes a call with its faults.
func around[T any](f *faulty, ctx context.Context, name string, call func() (T, error)) (T, error) {
	f.mu.Lock()
	before, after := f.before, f.after
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[name]++
	f.mu.Unlock()
	var none T
	if before != nil {
		if err := before(ctx, name); err != nil {
			return none, err
		}
	}
	r, err := call()
	if err == nil && after != nil {
		err = after(ctx, name)
	}
	if err != nil {
		return none, err
	}
	return r, nil
}

func (f *faulty) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	return around(f, ctx, "publish", func() (store.PublishResult, error) { return f.Store.Publish(ctx, p) })
}

func (f *faulty) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	return around(f, ctx, "claim", func() (store.ClaimResult, error) { return f.Store.Claim(ctx, p) })
}

func (f *faulty) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	return around(f, ctx, "record", func() (store.RecordResult, error) { return f.Store.Record(ctx, p) })
}

func (f *faulty) Renew(ctx context.Context, l []store.LeaseRef, until time.Time) ([]int64, error) {
	return around(f, ctx, "renew", func() ([]int64, error) { return f.Store.Renew(ctx, l, until) })
}

func (f *faulty) Release(ctx context.Context, r []store.Release) error {
	_, err := around(f, ctx, "release", func() (struct{}, error) { return struct{}{}, f.Store.Release(ctx, r) })
	return err
}

func (f *faulty) Probe(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
	return around(f, ctx, "probe", func() (store.ProbeResult, error) { return f.Store.Probe(ctx, p) })
}

func (f *faulty) Maintain(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
	return around(f, ctx, "maintain", func() (store.MaintainResult, error) { return f.Store.Maintain(ctx, p) })
}

// faultyBubble runs a test in a bubble with a Dispatcher on a faulty store.
func faultyBubble(t *testing.T, config webhook.Config, test func(w *world, f *faulty)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memorystore.New(memorystore.Options{})}
		w := newWorld(t, f, config)
		defer func() { w.stop() }()
		test(w, f)
	})
}

// slowly makes every request take a while.
func slowly(d time.Duration) func(*http.Request, int) (*http.Response, error) {
	return func(r *http.Request, _ int) (*http.Response, error) {
		select {
		case <-time.After(d):
			return status(200), nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// once returns a fault that happens to the first call of a name.
func once(name string, fault func() error) func(context.Context, string) error {
	var mu sync.Mutex
	done := false
	return func(_ context.Context, call string) error {
		mu.Lock()
		first := call == name && !done
		done = done || first
		mu.Unlock()
		if first {
			return fault()
		}
		return nil
	}
}

func TestOutcomesSurviveAnOutageOfTheStore(t *testing.T) {
	faultyBubble(t, webhook.Config{MaxInFlight: 4}, func(w *world, f *faulty) {
		w.net.set(slowly(8 * time.Second))
		w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		var ids []int64
		for range 6 {
			ids = append(ids, w.publish(webhook.Event{}).DeliveryIDs[0])
		}
		w.sleep(2500 * time.Millisecond)
		f.set(func(context.Context, string) error { return errors.New("down") }, nil)
		w.sleep(40 * time.Second)
		f.set(nil, nil)
		w.sleep(time.Hour)
		for range 30 {
			ids = append(ids, w.publish(webhook.Event{}).DeliveryIDs[0])
		}
		w.sleep(time.Hour)
		for _, id := range ids {
			require.Equal(w, webhook.StatusDelivered, w.delivery(id).Status)
		}
		require.Len(w, w.net.all(), len(ids), "one request each")
		require.Equal(w, 4, w.net.most["https://example.com/hooks"], "the lane has all its room again")
		require.Contains(w, w.log.String(), "the store is back")
	})
}

func TestAPanickingStoreIsAFailingStore(t *testing.T) {
	for _, call := range []string{"claim", "record", "probe", "release", "renew", "maintain"} {
		t.Run(call, func(t *testing.T) {
			faultyBubble(t, webhook.Config{}, func(w *world, f *faulty) {
				w.endpoint(webhook.EndpointParams{})
				w.run()
				w.settle()
				f.set(once(call, func() error { panic("boom") }), nil)
				var ids []int64
				for range 20 {
					ids = append(ids, w.publish(webhook.Event{}).DeliveryIDs[0])
				}
				w.sleep(time.Minute)
				for _, id := range ids {
					require.Equal(w, webhook.StatusDelivered, w.delivery(id).Status)
				}
			})
		})
	}
}

func TestAPanickingPublishKeepsNoRoom(t *testing.T) {
	faultyBubble(t, webhook.Config{}, func(w *world, f *faulty) {
		w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		f.set(func(_ context.Context, call string) error {
			if call == "publish" {
				panic("boom")
			}
			return nil
		}, nil)
		for range 1000 {
			require.Panics(w, func() { w.publish(webhook.Event{}) })
		}
		f.set(nil, nil)
		w.publish(webhook.Event{})
		w.settle()
		require.Len(w, w.net.all(), 1)
	})
}

func TestABusyDispatcherStillStopsAndPolls(t *testing.T) {
	faultyBubble(t, webhook.Config{Grace: time.Second}, func(w *world, f *faulty) {
		w.net.set(slowly(time.Millisecond))
		for i := range 100 {
			w.endpoint(webhook.EndpointParams{URL: fmt.Sprintf("https://e%d.example/", i)})
		}
		w.run()
		w.settle()
		f.set(func(_ context.Context, call string) error {
			if call == "record" {
				time.Sleep(100 * time.Millisecond) // a busy disk
			}
			return nil
		}, nil)
		for range 200 {
			w.publish(webhook.Event{})
		}
		before := f.count("probe")
		w.sleep(10 * time.Second)
		require.GreaterOrEqual(w, f.count("probe")-before, 4, "the poll interval is 2 s")
		start := time.Now()
		w.stop()
		require.LessOrEqual(w, time.Since(start), time.Second+100*time.Millisecond)
	})
}

func TestStopKeepsItsGraceOnASlowStore(t *testing.T) {
	for _, call := range []string{"claim", "record", "release", "probe", "maintain"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{Store: memorystore.New(memorystore.Options{})}
				w := newWorld(t, f, webhook.Config{Grace: time.Second, MaxInFlight: 2})
				w.net.set(slowly(300 * time.Millisecond))
				w.endpoint(webhook.EndpointParams{})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- w.Dispatcher.Run(ctx) }()
				w.settle()
				f.set(func(ctx context.Context, c string) error {
					if c != call {
						return nil
					}
					select {
					case <-time.After(9 * time.Second):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}, nil)
				for range 10 {
					w.publish(webhook.Event{})
				}
				time.Sleep(2500 * time.Millisecond)
				start := time.Now()
				cancel()
				<-done // an error is all right: what could not be written is said
				require.LessOrEqual(t, time.Since(start), time.Second+100*time.Millisecond)
			})
		})
	}
}

func TestALatePublishStartsNothingForAnEndpointPausedMeanwhile(t *testing.T) {
	faultyBubble(t, webhook.Config{}, func(w *world, f *faulty) {
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		f.set(nil, once("publish", func() error { time.Sleep(2 * time.Minute); return nil }))
		go w.publish(webhook.Event{})
		w.sleep(time.Second)
		_, err := w.PauseEndpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		w.sleep(time.Hour)
		require.Empty(w, w.net.all())
	})
}

func TestALateLeaseDoesNotRaiseMaxInFlightAgain(t *testing.T) {
	faultyBubble(t, webhook.Config{}, func(w *world, f *faulty) {
		w.net.set(slowly(100 * time.Millisecond))
		e, _ := w.endpoint(webhook.EndpointParams{MaxInFlight: 8})
		w.run()
		w.settle()
		f.set(nil, once("publish", func() error { time.Sleep(5 * time.Second); return nil }))
		go w.publish(webhook.Event{}) // leased under the old settings
		w.sleep(time.Second)
		one := 1
		_, err := w.UpdateEndpoint(w.Context(), workspace, e.ID, webhook.EndpointUpdate{MaxInFlight: &one})
		require.NoError(w, err)
		for range 8 {
			w.publish(webhook.Event{})
			w.sleep(490 * time.Millisecond)
		}
		for range 8 {
			w.publish(webhook.Event{})
		}
		w.sleep(time.Minute)
		require.Equal(w, 1, w.net.most["https://example.com/hooks"])
		require.Len(w, w.net.all(), 17)
	})
}

func TestRunOnceStartsNothingOnALeaseThatMayRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memorystore.New(memorystore.Options{})}
		a := newWorld(t, f, webhook.Config{})
		b := newWorld(t, f.Store, webhook.Config{Egress: webhook.Egress{Transport: a.net}})
		defer func() { b.stop() }()
		a.net.set(slowly(9 * time.Second))
		a.endpoint(webhook.EndpointParams{})
		a.publish(webhook.Event{})
		f.set(nil, once("claim", func() error { time.Sleep(25 * time.Second); return nil }))
		done := make(chan struct{})
		go func() { defer close(done); _, _ = a.RunOnce(t.Context()) }()
		a.sleep(time.Second)
		b.run()
		a.sleep(2 * time.Minute)
		<-done
		require.Len(t, a.net.all(), 1, "requests for one delivery")
	})
}

func TestRunOnceBesideRunKeepsMaxInFlight(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		w.net.set(slowly(time.Second))
		w.endpoint(webhook.EndpointParams{MaxInFlight: 1})
		for range 20 {
			w.publish(webhook.Event{})
		}
		w.run()
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() { _, _ = w.RunOnce(w.Context()) })
		}
		group.Wait()
		w.sleep(time.Minute)
		require.Equal(w, 1, w.net.most["https://example.com/hooks"])
		require.Len(w, w.net.all(), 20)
	})
}

func TestAnEndpointSavedUnderOtherRulesCanBePaused(t *testing.T) {
	st := memorystore.New(memorystore.Options{})
	catalog := webhook.DefaultCatalog()
	require.NoError(t, catalog.Add(webhook.EventType{Name: "mine.happened"}))
	before := newWorld(t, st, webhook.Config{Catalog: catalog, Egress: webhook.Egress{AllowLoopback: true}})
	after := newWorld(t, st, webhook.Config{})
	local, _ := before.endpoint(webhook.EndpointParams{URL: "http://localhost/"})
	own, _ := before.endpoint(webhook.EndpointParams{Events: []string{"mine.happened"}})
	for _, e := range []webhook.Endpoint{local, own} {
		_, err := after.PauseEndpoint(t.Context(), workspace, e.ID)
		require.NoError(t, err)
	}
	// What cannot be requested under the rules in force is final at once.
	_, err := before.ResumeEndpoint(t.Context(), workspace, local.ID)
	require.NoError(t, err)
	id := before.publish(webhook.Event{}).DeliveryIDs[0]
	_, err = after.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, webhook.StatusFailed, after.delivery(id).Status)
	require.Contains(t, string(after.delivery(id).LastError), "AllowLoopback")
}

// hostScheme is a scheme of the host's own.
type hostScheme func(current webhook.Secret) (webhook.SignFunc, error)

func (s hostScheme) Prepare(current, _ webhook.Secret) (webhook.SignFunc, error) { return s(current) }

func TestAPanickingSchemeDoesNotLogTheSecret(t *testing.T) {
	panicking := hostScheme(func(s webhook.Secret) (webhook.SignFunc, error) {
		return func(http.Header, webhook.Message) { panic("cannot sign with " + s.Reveal()) }, nil
	})
	bubble(t, webhook.Config{Signer: webhook.Signer{Schemes: []webhook.Scheme{panicking}}}, func(w *world) {
		_, secret := w.endpoint(webhook.EndpointParams{})
		id := w.publish(webhook.Event{}).DeliveryIDs[0]
		_, err := w.RunOnce(w.Context())
		require.NoError(w, err)
		require.Contains(w, w.log.String(), "panic in an attempt")
		require.NotContains(w, w.log.String()+string(w.delivery(id).LastError), secret.Reveal()[6:])
	})
}

func TestASchemeThatPanicsOverASecretDoesNotShowIt(t *testing.T) {
	const own = "whsec_a-secret-that-no-scheme-likes"
	panicking := hostScheme(func(s webhook.Secret) (webhook.SignFunc, error) { panic("cannot prepare " + s.Reveal()) })
	bubble(t, webhook.Config{Signer: webhook.Signer{Schemes: []webhook.Scheme{panicking}}}, func(w *world) {
		_, _, err := w.CreateEndpoint(w.Context(), webhook.EndpointParams{
			WorkspaceID: workspace, URL: "https://example.com/", Events: []string{"link.*"}, Secret: webhook.NewSecret(own),
		})
		invalid(w, err, "secret")
		require.Contains(w, err.Error(), "panicked")
		require.NotContains(w, err.Error()+w.log.String(), own[6:])
	})
}

func TestRotateReturnsWhileTheEndpointIsBusySigning(t *testing.T) {
	slow := hostScheme(func(webhook.Secret) (webhook.SignFunc, error) {
		return func(http.Header, webhook.Message) { time.Sleep(50 * time.Millisecond) }, nil // asks a key service
	})
	bubble(t, webhook.Config{MaxInFlight: 64, Signer: webhook.Signer{Schemes: []webhook.Scheme{slow}}}, func(w *world) {
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				w.publish(webhook.Event{})
				time.Sleep(time.Millisecond)
			}
		}()
		w.sleep(time.Second)
		start := time.Now()
		_, _, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{})
		require.NoError(w, err)
		require.Zero(w, time.Since(start))
		cancel()
		w.sleep(time.Minute)
	})
}

func TestGoexitInATransportIsContained(t *testing.T) {
	bubble(t, webhook.Config{Grace: time.Second}, func(w *world) {
		w.net.set(func(*http.Request, int) (*http.Response, error) { runtime.Goexit(); return nil, nil })
		w.endpoint(webhook.EndpointParams{MaxInFlight: 1})
		w.run()
		w.settle()
		first := w.publish(webhook.Event{}).DeliveryIDs[0]
		w.sleep(30 * time.Second)
		w.net.set(nil)
		second := w.publish(webhook.Event{}).DeliveryIDs[0]
		w.sleep(time.Hour)
		require.Equal(w, webhook.StatusDelivered, w.delivery(first).Status)
		require.Equal(w, webhook.StatusDelivered, w.delivery(second).Status)
	})
}

// handlerFunc is a log handler of the host's.
type handlerFunc func(slog.Record)

func (f handlerFunc) Enabled(context.Context, slog.Level) bool      { return true }
func (f handlerFunc) Handle(_ context.Context, r slog.Record) error { f(r); return nil }
func (f handlerFunc) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f handlerFunc) WithGroup(string) slog.Handler                 { return f }

func TestALogHandlerMayPanicAndMayCallTheDispatcher(t *testing.T) {
	var w *world
	handler := handlerFunc(func(r slog.Record) {
		if w != nil {
			w.Wake()
		}
		panic("boom")
	})
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, memorystore.New(memorystore.Options{}), webhook.Config{Logger: slog.New(handler)})
		defer func() { w.stop() }()
		w.endpoint(webhook.EndpointParams{})
		w.run()
		w.settle()
		w.net.set(func(_ *http.Request, n int) (*http.Response, error) {
			if n == 1 {
				panic("boom") // logged by a worker
			}
			return status(200), nil
		})
		id := w.publish(webhook.Event{}).DeliveryIDs[0]
		w.sleep(time.Hour)
		require.Equal(t, webhook.StatusDelivered, w.delivery(id).Status)
	})
}

func TestImportIsBounded(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		base := webhook.ImportParams{EndpointParams: webhook.EndpointParams{WorkspaceID: workspace, URL: "https://example.com/",
			Events: []string{"link.*"}, Secret: webhook.NewSecret("a-secret-of-another-system")}, CreatedAt: time.Now()}
		for field, change := range map[string]func(p *webhook.ImportParams){
			"id":         func(p *webhook.ImportParams) { p.ID = 1<<63 - 1 },
			"created_at": func(p *webhook.ImportParams) { p.CreatedAt = time.Time{} },
			"rotations":  func(p *webhook.ImportParams) { p.Rotations = 1<<63 - 1 },
			"previous":   func(p *webhook.ImportParams) { p.PreviousUntil = time.Now() },
			"secret":     func(p *webhook.ImportParams) { p.Secret = webhook.Secret{} },
			"previous_until": func(p *webhook.ImportParams) {
				p.Previous, p.PreviousUntil = webhook.NewSecret("the-previous-secret-over-there"), time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)
			},
		} {
			p := base
			change(&p)
			_, err := w.ImportEndpoint(w.Context(), p)
			invalid(w, err, field)
		}
	})
}

func TestHangingEndpointsHarmOnlyThemselves(t *testing.T) {
	for _, c := range []struct {
		name                  string
		hanging, queued, body int
	}{
		{"many large bodies", 100, 50, 100 << 10},
		{"the largest bodies", 40, 50, 255 << 10},
		{"very many endpoints", 600, 20, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, webhook.Config{Logger: quiet()}, func(w *world) {
				w.net.set(func(r *http.Request, n int) (*http.Response, error) {
					if strings.HasPrefix(r.URL.Host, "hang") {
						return silent(r, n)
					}
					return status(200), nil
				})
				for i := range c.hanging {
					w.endpoint(webhook.EndpointParams{WorkspaceID: 1, URL: fmt.Sprintf("https://hang%d.example/", i)})
				}
				for i := range 20 {
					w.endpoint(webhook.EndpointParams{WorkspaceID: 2, URL: fmt.Sprintf("https://ok%d.example/", i)})
				}
				w.run()
				w.settle()
				body := json.RawMessage(`{"x":"` + strings.Repeat("a", c.body) + `"}`)
				for range c.queued {
					w.publish(webhook.Event{WorkspaceID: 1, Data: body})
				}
				published := map[int64]time.Time{}
				for range 300 { // past several time limits
					for _, id := range w.publish(webhook.Event{WorkspaceID: 2}).DeliveryIDs {
						published[id] = time.Now()
					}
					time.Sleep(100 * time.Millisecond)
				}
				w.sleep(time.Second)
				var slowest time.Duration
				for _, h := range w.net.all() {
					if at, ok := published[h.delivery]; ok {
						slowest = max(slowest, h.at.Sub(at))
						delete(published, h.delivery)
					}
				}
				require.Empty(w, published, "healthy deliveries that did not arrive")
				require.Less(w, slowest, time.Second)
			})
		})
	}
}
