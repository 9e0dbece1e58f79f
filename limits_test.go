package webhook_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
)

// dribble is a body that has one byte more every 50 ms, for ever.
type dribble struct{ ctx context.Context }

func (b dribble) Read(p []byte) (int, error) {
	select {
	case <-time.After(50 * time.Millisecond):
		p[0] = 'x'
		return 1, nil
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

func (dribble) Close() error { return nil }

// TestATricklingBodyIsCutAfterOneSecond: the status decides, and the worker is
// free again.
func TestATricklingBodyIsCutAfterOneSecond(t *testing.T) {
	for name, deliver := range map[string]func(w *world) (stop func()){
		"Run": func(w *world) func() { w.run(); return func() { w.stop() } },
		"RunOnce": func(w *world) func() {
			ctx, cancel := context.WithCancel(w.Context())
			done := make(chan struct{})
			go func() { defer close(done); _, _ = w.RunOnce(ctx) }()
			return func() { cancel(); <-done }
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, webhook.Config{Workers: 1, SlowRequests: 1, MaxInFlight: 1, Grace: -1}, func(w *world) {
				w.net.answer = func(r *http.Request, _ int) (*http.Response, error) {
					time.Sleep(9 * time.Second)
					a := status(200)
					a.Body, a.ContentLength = io.NopCloser(dribble{r.Context()}), -1
					return a, nil
				}
				w.endpoint(webhook.EndpointParams{})
				id := w.publish(webhook.Event{}).DeliveryIDs[0]
				next := w.publish(webhook.Event{}).DeliveryIDs[0]
				start := time.Now()
				defer deliver(w)()
				w.sleep(30 * time.Second)

				d := w.delivery(id)
				require.Equal(w, webhook.StatusDelivered, d.Status)
				require.InDelta(w, 10, d.CompletedAt.Sub(start).Seconds(), 0.1, "9 s to the headers and 1 s of body")
				a := w.attempts(id)[0]
				require.True(w, a.ResponseCut)
				require.InDelta(w, 20, len(a.Response), 2)
				require.InDelta(w, 9, a.Latency.Seconds(), 0.1)
				require.Equal(w, webhook.StatusDelivered, w.delivery(next).Status)
			})
		})
	}
}

// TestMaxInFlightHolds: a lane widens with each quick answer, to its bound and no
// further, whether that is the Dispatcher's or the endpoint's own.
func TestMaxInFlightHolds(t *testing.T) {
	bubble(t, webhook.Config{MaxInFlight: 3}, func(w *world) {
		w.net.answer = slowly(100 * time.Millisecond)
		w.endpoint(webhook.EndpointParams{URL: "https://a.example/"})
		w.endpoint(webhook.EndpointParams{URL: "https://b.example/", MaxInFlight: 5})
		w.run()
		for range 200 {
			w.publish(webhook.Event{})
		}
		w.sleep(time.Minute)
		require.Len(w, w.net.all(), 400)
		require.Equal(w, map[string]int{"https://a.example/": 3, "https://b.example/": 5}, w.net.most)
	})
}

// TestDropResponses: what an answer says may be nobody's business.
func TestDropResponses(t *testing.T) {
	for _, drop := range []bool{false, true} {
		bubble(t, webhook.Config{DropResponses: drop}, func(w *world) {
			w.net.answer = func(*http.Request, int) (*http.Response, error) {
				a := status(500)
				a.Body, a.ContentLength = io.NopCloser(strings.NewReader("private")), -1
				return a, nil
			}
			w.endpoint(webhook.EndpointParams{})
			w.run()
			id := w.publish(webhook.Event{}).DeliveryIDs[0]
			w.settle()
			a := w.attempts(id)[0]
			require.Equal(w, "HTTP 500 Internal Server Error", string(a.Error))
			if drop {
				require.Empty(w, a.Response)
			} else {
				require.Equal(w, "private", string(a.Response))
			}
			require.NotContains(w, w.log.String(), "private")
		})
	}
}
