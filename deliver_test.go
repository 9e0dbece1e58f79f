package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	memorystore "github.com/elido-app/webhook/store_memory"
	"github.com/elido-app/webhook/verify"
)

func TestDeliversSignedRequestAndLogsIt(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		e, secret := w.endpoint(webhook.EndpointParams{Headers: map[string]string{"X-Tenant": "acme", "Authorization": "Bearer abc"}})
		w.run()
		happened := time.Date(2026, 9, 21, 11, 14, 2, 999e6, time.FixedZone("", 2*3600))
		w.publish(webhook.Event{Time: happened, Data: json.RawMessage(`{"id":91834}`)})
		w.settle()

		hits := w.net.all()
		require.Len(w, hits, 1)
		h := hits[0]
		require.Equal(w, `{"type":"link.created","workspace_id":42,"data":{"id":91834},"timestamp":"2026-09-21T09:14:02Z"}`, h.body)
		signature := h.header.Get("X-Elido-Signature")
		require.Regexp(w, `^v1=[0-9a-f]{64}$`, signature)
		want := http.Header{
			"X-Elido-Signature":   {signature},
			"X-Webhook-Signature": {signature},
			"X-Webhook-Timestamp": {strconv.FormatInt(h.at.Unix(), 10)},
			"X-Webhook-Event":     {"link.created"},
			"X-Webhook-Delivery":  {strconv.FormatInt(h.delivery, 10)},
			"Content-Type":        {"application/json"},
			"User-Agent":          {"Elido-Webhooks/1.0"},
			"X-Tenant":            {"acme"},
			"Authorization":       {"Bearer abc"},
		}
		require.Equal(w, want, h.header)
		v, err := verify.New(secret.Reveal())
		require.NoError(w, err)
		require.NoError(w, v.Verify(h.header, []byte(h.body)))

		d := w.delivery(h.delivery)
		require.Equal(w, webhook.StatusDelivered, d.Status)
		require.Equal(w, e.ID, d.EndpointID)
		require.Equal(w, 200, d.LastStatus)
		require.Equal(w, 1, d.Attempts)
		require.Equal(w, 3, d.Budget)
		require.Equal(w, h.body, string(d.Payload))
		require.True(w, d.NextAttemptAt.IsZero())
		require.Equal(w, h.at.UnixMilli(), d.CompletedAt.UnixMilli())
		list := w.attempts(d.ID)
		require.Len(w, list, 1)
		require.Equal(w, map[string]string{
			"X-Webhook-Timestamp": want.Get("X-Webhook-Timestamp"), "X-Webhook-Event": "link.created",
			"X-Webhook-Delivery": want.Get("X-Webhook-Delivery"), "Content-Type": "application/json",
			"User-Agent": "Elido-Webhooks/1.0", "X-Tenant": "acme", "Authorization": "[redacted]",
		}, list[0].Headers)
	})
}

func TestScheduleIsNowThenFiveThenFifteenMinutes(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		w.net.answer = always(500)
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		start := time.Now()
		id := w.publish(webhook.Event{}).DeliveryIDs[0]
		w.sleep(24 * time.Hour)
		var at []time.Duration
		for _, h := range w.net.all() {
			require.Equal(w, id, h.delivery)
			at = append(at, h.at.Sub(start))
		}
		require.Equal(w, []time.Duration{0, 5 * time.Minute, 20 * time.Minute}, at)
		d := w.delivery(id)
		require.Equal(w, webhook.StatusFailed, d.Status)
		require.Equal(w, 3, d.Attempts)
		require.Equal(w, "HTTP 500 Internal Server Error", string(d.LastError))
		e, err := w.Endpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		require.True(w, e.Active, "the endpoint stays active")
		w.net.set(nil)
		w.publish(webhook.Event{})
		w.settle()
		require.Len(w, w.net.all(), 4, "new events go on")
	})
}

func TestEveryAttemptIsSignedAfresh(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		w.net.answer = always(400)
		_, secret := w.endpoint(webhook.EndpointParams{})
		w.run()
		w.publish(webhook.Event{})
		w.sleep(time.Hour)
		hits := w.net.all()
		require.Len(w, hits, 3)
		for _, h := range hits {
			require.Equal(w, strconv.FormatInt(h.at.Unix(), 10), h.header.Get("X-Webhook-Timestamp"))
			require.Equal(w, elido(secret, h), h.header.Get("X-Elido-Signature"))
			require.Equal(w, hits[0].body, h.body)
		}
	})
}

func TestNetworkErrorTimeLimitAndRedirectAreFailures(t *testing.T) {
	for name, answer := range map[string]func(*http.Request, int) (*http.Response, error){
		"error": func(*http.Request, int) (*http.Response, error) {
			return nil, errors.New("https://user:pw@host/path broke")
		},
		"silent":   silent,
		"redirect": always(307, "Location", "https://elsewhere.example/"),
		"panic":    func(*http.Request, int) (*http.Response, error) { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, webhook.Config{}, func(w *world) {
				w.net.answer = answer
				w.endpoint(webhook.EndpointParams{})
				w.run()
				start := time.Now()
				id := w.publish(webhook.Event{}).DeliveryIDs[0]
				w.sleep(11 * time.Second)
				d := w.delivery(id)
				require.Equal(w, webhook.StatusPending, d.Status)
				if name == "panic" { // not the receiver's doing: nothing counted
					require.Equal(w, 0, d.Attempts)
					require.NotEmpty(w, d.LastError)
					return
				}
				require.Equal(w, 1, d.Attempts)
				require.NotContains(w, string(d.LastError), "pw")
				require.NotContains(w, string(d.LastError), "host")
				if name == "silent" {
					a := w.attempts(id)[0]
					require.InDelta(w, 10, a.Latency.Seconds(), 0.05)
					require.InDelta(w, 310, d.NextAttemptAt.Sub(start).Seconds(), 0.1)
				}
			})
		})
	}
}

func TestRetryAfterPostponesButNeverBringsForward(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"100":                           5 * time.Minute, // sooner than the schedule
		"600":                           10 * time.Minute,
		"86400":                         24 * time.Hour,
		"86401":                         24 * time.Hour,
		"99999999999999999999":          24 * time.Hour,
		"Wed, 01 Jan 9999 00:00:00 GMT": 24 * time.Hour,
		"Sat, 01 Jan 2000 00:30:00 GMT": 30 * time.Minute, // the bubble's time is 2000-01-01
		"Sun, 02 Jan 2000 00:00:00 GMT": 24 * time.Hour,
		"Sun, 02 Jan 2000 00:00:01 GMT": 24 * time.Hour,
		"Fri, 31 Dec 1999 00:30:00 GMT": 5 * time.Minute,
		"-5":                            5 * time.Minute,
		"1e308":                         5 * time.Minute,
		"NaN":                           5 * time.Minute,
		"600.5":                         5 * time.Minute,
		"":                              5 * time.Minute,
	} {
		t.Run(value, func(t *testing.T) {
			bubble(t, webhook.Config{}, func(w *world) {
				w.net.answer = always(429, "Retry-After", value)
				w.endpoint(webhook.EndpointParams{})
				w.run()
				start := time.Now()
				id := w.publish(webhook.Event{}).DeliveryIDs[0]
				w.settle()
				require.Equal(w, want, w.delivery(id).NextAttemptAt.Sub(start))
			})
		})
	}
}

func TestJitterOnlyAdds(t *testing.T) {
	bubble(t, webhook.Config{Retry: webhook.RetryPolicy{Delays: []time.Duration{time.Minute}, Jitter: 1}}, func(w *world) {
		w.net.answer = always(429, "Retry-After", "100")
		w.endpoint(webhook.EndpointParams{})
		w.run()
		later := 0
		for range 50 {
			start := time.Now()
			id := w.publish(webhook.Event{}).DeliveryIDs[0]
			w.settle()
			wait := w.delivery(id).NextAttemptAt.Sub(start)
			require.GreaterOrEqual(w, wait, 100*time.Second)
			require.LessOrEqual(w, wait, 201*time.Second)
			if wait > 101*time.Second {
				later++
			}
		}
		require.Greater(w, later, 25)
	})
}

func TestOwnScheduleAndSingleAttempt(t *testing.T) {
	bubble(t, webhook.Config{Retry: webhook.RetryPolicy{Delays: []time.Duration{}}}, func(w *world) {
		w.net.answer = always(503)
		w.endpoint(webhook.EndpointParams{})
		w.run()
		id := w.publish(webhook.Event{}).DeliveryIDs[0]
		w.settle()
		require.Equal(w, webhook.StatusFailed, w.delivery(id).Status)
	})
	bubble(t, webhook.Config{Retry: webhook.RetryPolicy{Delays: []time.Duration{time.Second, 0, time.Hour}}}, func(w *world) {
		w.net.answer = always(503)
		w.endpoint(webhook.EndpointParams{})
		w.run()
		start := time.Now()
		w.publish(webhook.Event{})
		w.sleep(3 * time.Hour)
		var at []time.Duration
		for _, h := range w.net.all() {
			at = append(at, h.at.Sub(start))
		}
		require.Equal(w, []time.Duration{0, time.Second, time.Second, time.Second + time.Hour}, at)
	})
}

func TestManualRetryIsTheSameDeliveryWithAFreshBudget(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		w.net.answer = always(500)
		w.endpoint(webhook.EndpointParams{})
		w.run()
		id := w.publish(webhook.Event{}).DeliveryIDs[0]
		w.settle()
		_, err := w.Retry(w.Context(), workspace, id)
		require.ErrorIs(w, err, webhook.ErrPending)
		_, err = w.Retry(w.Context(), workspace+1, id)
		require.ErrorIs(w, err, webhook.ErrNotFound)
		w.sleep(time.Hour)
		require.Equal(w, webhook.StatusFailed, w.delivery(id).Status)

		d, err := w.Retry(w.Context(), workspace, id)
		require.NoError(w, err)
		require.Equal(w, webhook.StatusPending, d.Status)
		require.Equal(w, 0, d.Attempts)
		w.settle()
		d = w.delivery(id)
		require.Equal(w, 1, d.Attempts)
		require.Equal(w, 4, d.TotalAttempts)
		w.net.set(nil)
		w.sleep(5 * time.Minute)
		d = w.delivery(id)
		require.Equal(w, webhook.StatusDelivered, d.Status)
		list := w.attempts(id)
		require.Len(w, list, 5)
		for i, a := range list {
			require.Equal(w, i+1, a.Number)
		}
		_, err = w.Retry(w.Context(), workspace, id) // a delivered one may be sent again
		require.NoError(w, err)
		w.settle()
		require.Len(w, w.net.all(), 6)
	})
}

func TestFiftyRetriesMakeOneRequest(t *testing.T) {
	bubble(t, webhook.Config{Retry: webhook.RetryPolicy{Delays: []time.Duration{}}}, func(w *world) {
		w.net.answer = always(500)
		w.endpoint(webhook.EndpointParams{})
		w.run()
		id := w.publish(webhook.Event{}).DeliveryIDs[0]
		w.settle()
		w.net.reset()
		w.net.set(silent)
		errs := make(chan error, 50)
		for range 50 {
			go func() {
				_, err := w.Retry(context.Background(), workspace, id)
				errs <- err
			}()
		}
		ok := 0
		for range 50 {
			if err := <-errs; err == nil {
				ok++
			} else {
				require.ErrorIs(w, err, webhook.ErrPending)
			}
		}
		w.settle()
		require.Equal(w, 1, ok)
		require.Len(w, w.net.all(), 1)
	})
}

func TestPausedEndpointKeepsItsQueueAndUsesNoAttempts(t *testing.T) {
	bubble(t, webhook.Config{Poll: time.Minute}, func(w *world) {
		w.net.answer = always(500)
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		id := w.publish(webhook.Event{}).DeliveryIDs[0]
		w.settle()
		_, err := w.PauseEndpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		require.Empty(w, w.publish(webhook.Event{}).DeliveryIDs, "a paused endpoint gets no new deliveries")
		w.sleep(30 * 24 * time.Hour)
		require.Len(w, w.net.all(), 1)
		require.Equal(w, 1, w.delivery(id).Attempts)
		_, err = w.SendTest(w.Context(), workspace, e.ID)
		require.ErrorIs(w, err, webhook.ErrPaused)

		w.net.set(nil)
		_, err = w.ResumeEndpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		w.settle()
		require.Equal(w, webhook.StatusDelivered, w.delivery(id).Status)
	})
}

func TestPauseStopsWhatWaitsInTheLane(t *testing.T) {
	bubble(t, webhook.Config{MaxInFlight: 1}, func(w *world) {
		w.net.answer = func(*http.Request, int) (*http.Response, error) {
			time.Sleep(time.Second)
			return status(200), nil
		}
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		for range 20 {
			w.publish(webhook.Event{})
		}
		w.sleep(2500 * time.Millisecond)
		_, err := w.PauseEndpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		before := len(w.net.all())
		w.sleep(time.Hour)
		require.Len(w, w.net.all(), before)
		_, err = w.ResumeEndpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		w.sleep(time.Minute)
		require.Len(w, w.net.all(), 20)
		require.Equal(w, 1, w.net.most["https://example.com/hooks"])
	})
}

func TestDeleteEndsQueueAndLog(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		w.net.answer = silent
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		var last int64
		for range 20 {
			last = w.publish(webhook.Event{}).DeliveryIDs[0]
		}
		w.settle()
		before := len(w.net.all())
		require.NoError(w, w.DeleteEndpoint(w.Context(), workspace, e.ID))
		_, err := w.Delivery(w.Context(), workspace, last)
		require.ErrorIs(w, err, webhook.ErrNotFound)
		_, err = w.Endpoint(w.Context(), workspace, e.ID)
		require.ErrorIs(w, err, webhook.ErrNotFound)
		require.ErrorIs(w, w.DeleteEndpoint(w.Context(), workspace, e.ID), webhook.ErrNotFound)
		w.sleep(time.Hour)
		require.Len(w, w.net.all(), before)
	})
}

func TestOrderingKeyGoesOneAfterTheOther(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		w.net.answer = func(r *http.Request, n int) (*http.Response, error) {
			time.Sleep(time.Second)
			if n == 1 && r.Header.Get("X-Webhook-Event") == "link.updated" {
				return status(500), nil
			}
			return status(200), nil
		}
		w.endpoint(webhook.EndpointParams{})
		w.run()
		a := w.publish(webhook.Event{OrderingKey: "7"}).DeliveryIDs[0]
		b := w.publish(webhook.Event{OrderingKey: "7", Type: "link.updated"}).DeliveryIDs[0]
		c := w.publish(webhook.Event{OrderingKey: "7", Type: "link.deleted"}).DeliveryIDs[0]
		other := w.publish(webhook.Event{OrderingKey: "8"}).DeliveryIDs[0]
		w.sleep(time.Hour)
		var order []int64
		for _, h := range w.net.all() {
			if h.delivery != other {
				order = append(order, h.delivery)
			}
		}
		require.Equal(w, []int64{a, b, b, c}, order)
		require.Equal(w, 2, w.net.most["https://example.com/hooks"], "other keys are not held up")
	})
}

func TestStopLetsRunningAttemptsFinishAndCutsTheRest(t *testing.T) {
	for name, took := range map[string]time.Duration{"finish": 3 * time.Second, "cut": 9 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, webhook.Config{Grace: 5 * time.Second}, func(w *world) {
				w.net.answer = func(r *http.Request, _ int) (*http.Response, error) {
					select {
					case <-time.After(took):
						return status(200), nil
					case <-r.Context().Done():
						return nil, r.Context().Err()
					}
				}
				w.endpoint(webhook.EndpointParams{})
				w.run()
				first := w.publish(webhook.Event{}).DeliveryIDs[0]
				var rest []int64
				for range 10 { // wait in the lane: it starts with one at a time
					rest = append(rest, w.publish(webhook.Event{}).DeliveryIDs[0])
				}
				w.settle()
				start := time.Now()
				w.stop()
				require.LessOrEqual(w, time.Since(start), 5*time.Second+100*time.Millisecond)
				d := w.delivery(first)
				if name == "finish" {
					require.Equal(w, webhook.StatusDelivered, d.Status)
				} else {
					require.Equal(w, webhook.StatusPending, d.Status)
					require.Equal(w, 0, d.Attempts)
					require.Empty(w, w.attempts(first))
				}
				require.Len(w, w.net.all(), 1)

				w.net.set(nil)
				w.run() // what was given back is there at once
				w.settle()
				for _, id := range append(rest, first) {
					d := w.delivery(id)
					require.Equal(w, webhook.StatusDelivered, d.Status)
					require.Equal(w, 1, d.Attempts)
					require.Equal(w, 0, d.Interruptions)
				}
			})
		})
	}
}

func TestRunOnceAttemptsWhatIsDue(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		w.net.answer = always(500)
		w.endpoint(webhook.EndpointParams{})
		for range 3 {
			w.publish(webhook.Event{OrderingKey: "k"})
		}
		for range 2 {
			w.publish(webhook.Event{})
		}
		n, err := w.RunOnce(w.Context())
		require.NoError(w, err)
		require.Equal(w, 3, n, "the head of the key and the two without")
		n, err = w.RunOnce(w.Context())
		require.NoError(w, err)
		require.Equal(w, 0, n)
		w.net.set(nil)
		w.sleep(5 * time.Minute)
		n, err = w.RunOnce(w.Context())
		require.NoError(w, err)
		require.Equal(w, 5, n, "each delivered head makes way for the next of its key")
	})
}

func TestRunTwiceIsRefused(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		w.run()
		w.settle()
		require.ErrorIs(w, w.Dispatcher.Run(w.Context()), webhook.ErrRunning)
	})
}

func TestRunEndsWhenTheStoreIsClosedUnderIt(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		done := make(chan error, 1)
		go func() { done <- w.Dispatcher.Run(w.Context()) }()
		w.settle()
		require.NoError(w, w.store.Close())
		w.sleep(time.Minute)
		require.ErrorIs(w, <-done, webhook.ErrClosed)
	})
}

func TestSIEMGetsEverythingAndTestSendGoesToOne(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		siem, _ := w.endpoint(webhook.EndpointParams{Kind: webhook.KindSIEM, URL: "https://siem.example/"})
		links, _ := w.endpoint(webhook.EndpointParams{Events: []string{"link.created"}})
		w.endpoint(webhook.EndpointParams{WorkspaceID: 43, Kind: webhook.KindSIEM, URL: "https://other.example/"})
		w.run()
		require.Len(w, w.publish(webhook.Event{Type: "audit.event"}).DeliveryIDs, 1)
		require.Len(w, w.publish(webhook.Event{Type: "link.created"}).DeliveryIDs, 2)
		r, err := w.SendTest(w.Context(), workspace, links.ID)
		require.NoError(w, err)
		require.Len(w, r.DeliveryIDs, 1)
		w.settle()
		hits := w.net.all()
		require.Len(w, hits, 4)
		d := w.delivery(r.DeliveryIDs[0])
		require.Equal(w, "test", d.EventType)
		require.Contains(w, string(d.Payload), `"data":{"message":"Test event from Elido"}`)
		for _, h := range hits {
			require.NotContains(w, h.url, "other")
		}
		page, err := w.Deliveries(w.Context(), webhook.DeliveryQuery{WorkspaceID: workspace, EndpointID: siem.ID})
		require.NoError(w, err)
		require.Len(w, page.Deliveries, 2)
	})
}

func TestRecoverRequeuesWhatFailedSince(t *testing.T) {
	bubble(t, webhook.Config{Retry: webhook.RetryPolicy{Delays: []time.Duration{}}}, func(w *world) {
		w.net.answer = always(500)
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		old := w.publish(webhook.Event{}).DeliveryIDs[0]
		w.sleep(time.Hour)
		since := time.Now()
		var ids []int64
		for range 3 {
			ids = append(ids, w.publish(webhook.Event{}).DeliveryIDs[0])
			w.settle()
		}
		w.net.set(nil)
		n, err := w.Recover(w.Context(), workspace, e.ID, since)
		require.NoError(w, err)
		require.Equal(w, 3, n)
		w.settle()
		for _, id := range ids {
			require.Equal(w, webhook.StatusDelivered, w.delivery(id).Status)
		}
		require.Equal(w, webhook.StatusFailed, w.delivery(old).Status)
		_, err = w.Recover(w.Context(), workspace+1, e.ID, since)
		require.ErrorIs(w, err, webhook.ErrNotFound)
	})
}

func TestAnotherProcessTakesOverAndTheLateResultIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memorystore.New(memorystore.Options{})
		a := newWorld(t, st, webhook.Config{Poll: time.Hour}) // so that it is not a that takes it over
		b := newWorld(t, st, webhook.Config{})
		defer func() { a.stop(); b.stop() }()
		// a's request outlasts its lease: a transport that ignores its context.
		a.net.answer = func(*http.Request, int) (*http.Response, error) {
			time.Sleep(40 * time.Second)
			return status(500), nil
		}
		a.endpoint(webhook.EndpointParams{})
		a.run()
		a.settle()
		id := a.publish(webhook.Event{}).DeliveryIDs[0]
		a.settle()
		b.run()
		a.sleep(35 * time.Second)
		d := a.delivery(id)
		require.Equal(t, webhook.StatusDelivered, d.Status)
		require.Len(t, b.net.all(), 1)
		a.sleep(time.Minute)
		require.Equal(t, d, a.delivery(id))
		require.Len(t, a.attempts(id), 1)
		require.Contains(t, a.log.String(), "result dropped")
	})
}
