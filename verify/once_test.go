package verify_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/verify"
)

// eachSeen runs a test with every Seen there is.
func eachSeen(t *testing.T, test func(t *testing.T, seen verify.Seen)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, &verify.Memory{}) })
	})
	for name, style := range map[string]verify.Placeholder{"sqlite ?": verify.Question, "sqlite $1": verify.Dollar} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen, err := verify.NewSQL(openSQLite(t), style, "")
				require.NoError(t, err)
				require.NoError(t, seen.Create(t.Context()))
				test(t, seen)
			})
		})
	}
}

func TestSeen(t *testing.T) {
	eachSeen(t, func(t *testing.T, seen verify.Seen) {
		ctx := t.Context()
		hold := func(key, holder string, d time.Duration) string {
			t.Helper()
			got, err := seen.Hold(ctx, key, holder, d)
			require.NoError(t, err)
			return got
		}
		require.Equal(t, "a", hold("k", "a", time.Minute), "a free key")
		require.Equal(t, "a", hold("k", "b", time.Minute), "somebody else has it")
		require.Equal(t, "b", hold("other", "b", time.Minute), "keys do not touch each other")
		require.NoError(t, seen.Free(ctx, "k", "b"))
		require.Equal(t, "a", hold("k", "b", time.Minute), "not b's to free")
		require.NoError(t, seen.Free(ctx, "k", "a"))
		require.NoError(t, seen.Free(ctx, "k", "a"))
		require.Equal(t, "b", hold("k", "b", time.Minute))

		time.Sleep(time.Minute - time.Millisecond)
		require.Equal(t, "b", hold("k", "a", time.Minute), "until the end")
		time.Sleep(time.Millisecond)
		require.Equal(t, "a", hold("k", "a", time.Minute), "free at its end")

		time.Sleep(50 * time.Second)
		require.Equal(t, "a", hold("k", "a", time.Minute), "its own again")
		time.Sleep(50 * time.Second)
		require.Equal(t, "a", hold("k", "b", time.Minute), "which made it longer")

		require.NoError(t, seen.Set(ctx, "k", "c", time.Hour))
		require.Equal(t, "c", hold("k", "a", time.Minute), "Set asks nobody")
		time.Sleep(time.Hour)
		require.NoError(t, seen.Set(ctx, "k", "d", time.Hour))
		require.Equal(t, "d", hold("k", "a", time.Minute))
	})
}

// receiver is a server with a duplicate filter.
type receiver struct {
	handler http.Handler
	calls   atomic.Int32
	next    func(ev verify.Event) error

	mu   sync.Mutex
	last error
}

func newReceiver(t *testing.T, once verify.Once, secrets ...string) *receiver {
	t.Helper()
	r := &receiver{next: func(verify.Event) error { return nil }}
	v := newVerifier(t, secrets...)
	v.OnError = func(_ *http.Request, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.last = err
	}
	r.handler = v.Handler(once.Handler(func(_ context.Context, ev verify.Event) error {
		r.calls.Add(1)
		return r.next(ev)
	}))
	return r
}

func (r *receiver) post(h http.Header, body string) int {
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, post(h, strings.NewReader(body)))
	return w.Code
}

func TestOnce(t *testing.T) {
	eachSeen(t, func(t *testing.T, seen verify.Seen) {
		r := newReceiver(t, verify.Once{Seen: seen}, secret)
		send := func(id string) int {
			time.Sleep(time.Second) // so each attempt has a signature of its own
			return r.post(with(signV1(secret, stamp(0), body), "X-Webhook-Delivery", id), body)
		}
		r.next = func(verify.Event) error { return errors.New("down") }
		require.Equal(t, 500, send("1"))
		require.Equal(t, 500, send("1"), "a failed one is not remembered")
		r.next = func(verify.Event) error { panic(http.ErrAbortHandler) }
		require.Panics(t, func() { send("1") })
		r.next = func(verify.Event) error { return nil }
		require.Equal(t, 200, send("1"), "nor one that panicked")
		require.EqualValues(t, 4, r.calls.Load())

		require.Equal(t, 200, send("1"), "a duplicate is acknowledged")
		require.EqualValues(t, 4, r.calls.Load(), "and not handled")
		require.Equal(t, 200, send("2"))
		require.EqualValues(t, 5, r.calls.Load())

		time.Sleep(14*24*time.Hour - 10*time.Second)
		require.Equal(t, 200, send("1"), "a manual retry much later")
		require.EqualValues(t, 5, r.calls.Load())
		time.Sleep(10 * time.Second)
		require.Equal(t, 200, send("1"))
		require.EqualValues(t, 6, r.calls.Load(), "forgotten after 14 days")
	})
}

func TestOnceForget(t *testing.T) {
	eachSeen(t, func(t *testing.T, seen verify.Seen) {
		once := verify.Once{Seen: seen}
		r := newReceiver(t, once, secret)
		r.next = func(ev verify.Event) error { return once.Forget(t.Context(), ev.DeliveryID) }
		require.NoError(t, once.Forget(t.Context(), "55120"), "unknown")
		require.Equal(t, 200, r.post(signV1(secret, stamp(0), body), body))
		require.Equal(t, 200, r.post(signV1(secret, stamp(1), body), body))
		require.EqualValues(t, 1, r.calls.Load(), "what is in progress is not forgotten")
		require.NoError(t, once.Forget(t.Context(), "55120"))
		require.Equal(t, 200, r.post(signV1(secret, stamp(2), body), body))
		require.EqualValues(t, 2, r.calls.Load())
	})
}

func TestOnceWithoutAnID(t *testing.T) {
	r := newReceiver(t, verify.Once{Seen: &verify.Memory{}}, secret)
	h := without(signV1(secret, stamp(0), body), "X-Webhook-Delivery")
	require.Equal(t, 400, r.post(h, body))
	require.ErrorIs(t, r.last, verify.ErrMissingHeader)
	require.Zero(t, r.calls.Load())
	_, err := verify.Once{Seen: &verify.Memory{}}.First(t.Context(), verify.Event{})
	require.ErrorIs(t, err, verify.ErrMissingHeader)
}

func TestOnceNeedsASeen(t *testing.T) {
	require.Panics(t, func() {
		verify.Once{}.Handler(func(context.Context, verify.Event) error { return nil })
	})
	require.Panics(t, func() { verify.Once{Seen: &verify.Memory{}}.Handler(nil) })
}

func TestOnceReplays(t *testing.T) {
	eachSeen(t, func(t *testing.T, seen verify.Seen) {
		r := newReceiver(t, verify.Once{Seen: seen}, secret, other)
		ts := stamp(0)
		sent := with(signV1(secret, ts, body), "X-Elido-Signature-Previous", elido(other, ts, body))
		require.Equal(t, 200, r.post(sent, body))

		for name, h := range map[string]http.Header{
			"a fresh id":                 with(sent, "X-Webhook-Delivery", "666"),
			"the current signature only": without(with(sent, "X-Webhook-Delivery", "667"), "X-Elido-Signature-Previous"),
			"the previous signature only": without(with(sent, "X-Webhook-Delivery", "668"),
				"X-Elido-Signature", "X-Webhook-Signature"),
			"moved to the other header": headers("X-Elido-Signature", elido(other, ts, body), "X-Webhook-Timestamp", ts, "webhook-id", "669"),
			"moved to the other scheme": headers("Elido-Signature", "t="+ts+","+elido(secret, ts, body), "X-Webhook-Delivery", "670"),
		} {
			require.Equal(t, 409, r.post(h, body), name)
			require.ErrorIs(t, r.last, verify.ErrReplayed, name)
			require.Equal(t, 409, r.post(h, body), "%s, again", name)
		}
		require.Equal(t, 200, r.post(sent, body), "under its own id it is a duplicate")
		require.EqualValues(t, 1, r.calls.Load())

		// The same content published twice within a second: refused once, and
		// not lost, since the repetition is signed afresh.
		twin := func() int {
			return r.post(with(signV1(secret, stamp(0), body), "X-Webhook-Delivery", "55121"), body)
		}
		require.Equal(t, 409, twin())
		time.Sleep(5 * time.Minute)
		require.Equal(t, 200, twin())
		require.EqualValues(t, 2, r.calls.Load())

		// Another endpoint's delivery of the same event in the same second.
		ts = stamp(1)
		require.Equal(t, 200, r.post(with(signV1(secret, ts, body), "X-Webhook-Delivery", "55122"), body))
		require.Equal(t, 200, r.post(with(signV1(other, ts, body), "X-Webhook-Delivery", "55123"), body))
		require.EqualValues(t, 4, r.calls.Load())
	})
}

// The signature is remembered for as long as its timestamp is accepted, at
// both ends of the tolerance.
func TestOnceRemembersSignaturesLongEnough(t *testing.T) {
	eachSeen(t, func(t *testing.T, seen verify.Seen) {
		r := newReceiver(t, verify.Once{Seen: seen}, secret)
		sent := signV1(secret, stamp(300), body)
		require.Equal(t, 200, r.post(sent, body))
		time.Sleep(600 * time.Second)
		require.Equal(t, 409, r.post(with(sent, "X-Webhook-Delivery", "666"), body))
		time.Sleep(time.Second)
		require.Equal(t, 400, r.post(with(sent, "X-Webhook-Delivery", "666"), body), "stale by now")
		require.ErrorIs(t, r.last, verify.ErrStale)
	})
}

// A signature stays with its id when the handler failed. The same request may
// come again, as from a proxy that repeats it.
func TestOnceReplayOfAFailedOne(t *testing.T) {
	eachSeen(t, func(t *testing.T, seen verify.Seen) {
		r := newReceiver(t, verify.Once{Seen: seen}, secret)
		sent := signV1(secret, stamp(0), body)
		r.next = func(verify.Event) error { return errors.New("down") }
		require.Equal(t, 500, r.post(sent, body))
		r.next = func(verify.Event) error { return nil }
		require.Equal(t, 409, r.post(with(sent, "X-Webhook-Delivery", "666"), body))
		require.Equal(t, 200, r.post(sent, body))
		require.EqualValues(t, 2, r.calls.Load())
	})
}

func TestOnceAllowReplays(t *testing.T) {
	r := newReceiver(t, verify.Once{Seen: &verify.Memory{}, AllowReplays: true}, secret)
	sent := signV1(secret, stamp(0), body)
	require.Equal(t, 200, r.post(sent, body))
	require.Equal(t, 200, r.post(with(sent, "X-Webhook-Delivery", "666"), body))
	require.EqualValues(t, 2, r.calls.Load())
}

func TestOnceWhileInProgress(t *testing.T) {
	eachSeen(t, func(t *testing.T, seen verify.Seen) {
		r := newReceiver(t, verify.Once{Seen: seen}, secret)
		started, release := make(chan struct{}), make(chan error)
		r.next = func(verify.Event) error {
			started <- struct{}{}
			return <-release
		}
		first := make(chan int)
		go func() { first <- r.post(signV1(secret, stamp(0), body), body) }()
		<-started
		time.Sleep(30 * time.Second)
		for range 3 {
			require.Equal(t, 503, r.post(signV1(secret, stamp(0), body), body))
			require.ErrorIs(t, r.last, verify.ErrInProgress)
		}
		release <- nil
		require.Equal(t, 200, <-first)
		require.Equal(t, 200, r.post(signV1(secret, stamp(0), body), body))
		require.EqualValues(t, 1, r.calls.Load())
	})
}

// A process that died while handling a delivery does not block it for ever.
func TestOnceLeaseRunsOut(t *testing.T) {
	eachSeen(t, func(t *testing.T, seen verify.Seen) {
		_, err := seen.Hold(t.Context(), "delivery:55120", "a process that died", time.Minute)
		require.NoError(t, err)
		r := newReceiver(t, verify.Once{Seen: seen}, secret)
		require.Equal(t, 503, r.post(signV1(secret, stamp(0), body), body))
		time.Sleep(time.Minute)
		require.Equal(t, 200, r.post(signV1(secret, stamp(0), body), body))
	})
}

// One of many concurrent duplicates is handled; the others are told to come
// again, or that it is done.
func TestOnceConcurrently(t *testing.T) {
	eachSeen(t, func(t *testing.T, seen verify.Seen) {
		r := newReceiver(t, verify.Once{Seen: seen}, secret)
		var codes [64]int
		var wg sync.WaitGroup
		for i := range codes {
			wg.Go(func() { codes[i] = r.post(signV1(secret, stamp(int64(i)), body), body) })
		}
		wg.Wait()
		require.EqualValues(t, 1, r.calls.Load())
		for _, code := range codes {
			require.Contains(t, []int{200, 503}, code)
		}
		require.Equal(t, 200, r.post(signV1(secret, stamp(0), body), body))
		require.EqualValues(t, 1, r.calls.Load())
	})
}

// A sender that hung up has ended the request's context. What was done is
// remembered all the same.
func TestOnceRemembersAfterTheSenderHungUp(t *testing.T) {
	eachSeen(t, func(t *testing.T, seen verify.Seen) {
		ev, err := newVerifier(t, secret).Event(signV1(secret, stamp(0), body), []byte(body))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		handle := verify.Once{Seen: seen}.Handler(func(context.Context, verify.Event) error {
			calls++
			cancel()
			return nil
		})
		require.NoError(t, handle(ctx, ev))
		require.NoError(t, handle(t.Context(), ev))
		require.Equal(t, 1, calls)
	})
}

// A signature that covers the delivery id needs no remembering, and a handled
// delivery no freeing.
func TestOnceAsksForNoMoreThanItNeeds(t *testing.T) {
	memory := &verify.Memory{}
	var frees int
	r := newReceiver(t, verify.Once{Seen: brokenSeen{Seen: memory, frees: &frees}}, secret)
	require.Equal(t, 200, r.post(signStandard(secret, stamp(0), body), body))
	require.Equal(t, 1, memory.Len())
	require.Equal(t, 200, r.post(with(signV1(secret, stamp(0), body), "X-Webhook-Delivery", "55121"), body))
	require.Equal(t, 3, memory.Len())
	require.Zero(t, frees)
}

// Receivers may change from Handler to First and back while deliveries come.
func TestOnceHandlerAndFirstTogether(t *testing.T) {
	eachSeen(t, func(t *testing.T, seen verify.Seen) {
		once := verify.Once{Seen: seen}
		event := func(id string) verify.Event { return verify.Event{DeliveryID: id} }
		calls := 0
		handle := once.Handler(func(ctx context.Context, ev verify.Event) error {
			calls++
			first, err := once.First(ctx, ev)
			require.ErrorIs(t, err, verify.ErrInProgress)
			require.False(t, first)
			return nil
		})
		require.NoError(t, handle(t.Context(), event("1")))
		first, err := once.First(t.Context(), event("1"))
		require.NoError(t, err)
		require.False(t, first)

		first, err = once.First(t.Context(), event("2"))
		require.NoError(t, err)
		require.True(t, first)
		require.NoError(t, handle(t.Context(), event("2")))
		require.Equal(t, 1, calls)
	})
}

// brokenSeen fails where it is told to, and counts.
type brokenSeen struct {
	verify.Seen
	hold, set error
	frees     *int
}

func (b brokenSeen) Free(ctx context.Context, key, holder string) error {
	if b.frees != nil {
		*b.frees++
	}
	return b.Seen.Free(ctx, key, holder)
}

func (b brokenSeen) Hold(ctx context.Context, key, holder string, d time.Duration) (string, error) {
	if b.hold != nil {
		return "", b.hold
	}
	return b.Seen.Hold(ctx, key, holder, d)
}

func (b brokenSeen) Set(ctx context.Context, key, holder string, d time.Duration) error {
	if b.set != nil {
		return b.set
	}
	return b.Seen.Set(ctx, key, holder, d)
}

func TestOnceWithABrokenSeen(t *testing.T) {
	down := errors.New("database is down")
	r := newReceiver(t, verify.Once{Seen: brokenSeen{Seen: &verify.Memory{}, hold: down}}, secret)
	require.Equal(t, 500, r.post(signV1(secret, stamp(0), body), body))
	require.ErrorIs(t, r.last, down)
	require.Zero(t, r.calls.Load(), "not handled unfiltered")

	r = newReceiver(t, verify.Once{Seen: brokenSeen{Seen: &verify.Memory{}, set: down}}, secret)
	require.Equal(t, 500, r.post(signV1(secret, stamp(0), body), body))
	require.ErrorIs(t, r.last, down)

	_, err := verify.Once{Seen: brokenSeen{Seen: &verify.Memory{}, hold: down}}.First(t.Context(), verify.Event{DeliveryID: "1"})
	require.ErrorIs(t, err, down)
}
