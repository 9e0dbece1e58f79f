package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// at are the times of requests for a delivery, from a start on.
func (w *world) at(id int64, start time.Time) (at []time.Duration) {
	for _, h := range w.net.all() {
		if h.delivery == id {
			at = append(at, h.at.Sub(start))
		}
	}
	return at
}

// The envelope is the same for every endpoint and attempt, and tells the
// millisecond.
func TestExtendedEnvelopeIsTheSameEverywhere(t *testing.T) {
	config, _ := extended()
	bubble(t, config, func(w *world) {
		w.net.answer = func(_ *http.Request, n int) (*http.Response, error) {
			if n < 3 {
				return status(503), nil
			}
			return status(200), nil
		}
		w.endpoint(webhook.EndpointParams{})
		w.endpoint(webhook.EndpointParams{URL: "https://b.example.com"})
		w.run()
		r := w.publish(webhook.Event{Time: time.Date(2026, 9, 21, 9, 14, 2, 481_999_999, time.UTC), Data: json.RawMessage(`{"b":49.50,"a":1}`)})
		w.sleep(time.Hour)
		require.Len(w, w.net.all(), 6)
		for _, h := range w.net.all() {
			require.Equal(w, `{"id":"`+r.EventID+`","type":"link.created","created_at":"2026-09-21T09:14:02.481Z","data":{"b":49.50,"a":1},"workspace_id":"ws_42"}`, h.body)
			require.True(w, strings.HasPrefix(r.EventID, "evt_"))
		}
		other := w.publish(webhook.Event{})
		require.NotEqual(w, r.EventID, other.EventID)
	})
}

// The header counts attempts on through manual retries, each of which has all
// seven again; so does a replay.
func TestReplayHasAFreshBudgetAndCountsOn(t *testing.T) {
	config, _ := extended()
	config.Health = webhook.HealthPolicy{}
	bubble(t, config, func(w *world) {
		w.net.answer = always(503)
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		r := w.publish(webhook.Event{})
		id := r.DeliveryIDs[0]
		_, err := w.Replay(w.Context(), workspace, e.ID, r.EventID)
		require.ErrorIs(w, err, webhook.ErrPending)
		w.sleep(32 * time.Hour)
		require.Equal(w, webhook.StatusFailed, w.delivery(id).Status)

		replayed := time.Now()
		d, err := w.Replay(w.Context(), workspace, e.ID, r.EventID)
		require.NoError(w, err)
		require.Equal(w, id, d.ID)
		w.sleep(32 * time.Hour)
		require.Len(w, w.net.all(), 14)
		for i, h := range w.net.all() {
			require.Equal(w, fmt.Sprint(i+1), h.header.Get("Elido-Delivery-Attempt"))
			require.Equal(w, r.EventID, h.header.Get("Elido-Webhook-Id"))
			require.True(w, strings.HasPrefix(h.header.Get("Elido-Signature"), fmt.Sprintf("t=%d,v1=", h.at.Unix())), "signed afresh")
		}
		require.Equal(w, time.Second, w.net.all()[8].at.Sub(replayed), "and the same schedule")
		require.Equal(w, webhook.StatusFailed, w.delivery(id).Status)
		require.Equal(w, 7, w.delivery(id).Attempts)
	})
}

// What is published of one link goes out one after the other, through the whole
// schedule; another link waits for nothing.
func TestLinksGoInOrder(t *testing.T) {
	config, _ := extended()
	config.Health = webhook.HealthPolicy{}
	bubble(t, config, func(w *world) {
		var down int64
		w.net.answer = func(r *http.Request, _ int) (*http.Response, error) {
			if r.Header.Get("X-Webhook-Delivery") == fmt.Sprint(down) {
				return status(503), nil
			}
			return status(200), nil
		}
		w.endpoint(webhook.EndpointParams{Events: []string{"link.*", "click"}})
		start := time.Now()
		publish := func(eventType, data string) int64 {
			return w.publish(webhook.Event{Type: eventType, Data: json.RawMessage(data)}).DeliveryIDs[0]
		}
		first := publish("link.created", `{"link":{"id":7}}`)
		second := publish("click", `{"link_id":7}`)
		third := publish("link.updated", `{"link":{"id":7}}`)
		other := publish("click", `{"link_id":8}`)
		none := publish("link.created", `{"id":7}`)
		down = first
		w.run()
		w.sleep(8 * time.Hour)
		require.Len(w, w.at(first, start), 6)
		require.Empty(w, w.at(second, start), "until the one before is delivered or failed")
		require.Equal(w, []time.Duration{0}, w.at(other, start))
		require.Equal(w, []time.Duration{0}, w.at(none, start))
		w.sleep(25 * time.Hour)
		require.Equal(w, webhook.StatusFailed, w.delivery(first).Status)
		end := w.at(first, start)[6]
		require.Equal(w, []time.Duration{end}, w.at(second, start))
		require.Equal(w, []time.Duration{end}, w.at(third, start))
	})
}

// A delivery's budget is fixed when it is published: 3 attempts within the 24
// hours, to the millisecond, and 7 before and after them.
func TestDegradedForADay(t *testing.T) {
	config, n := extended()
	bubble(t, config, func(w *world) {
		w.net.answer = always(500)
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		start := time.Now()
		publish := func() int64 { return w.publish(webhook.Event{}).DeliveryIDs[0] }
		before := publish() // fails at 0 s, 1 s, 31 s
		w.sleep(31*time.Second - time.Millisecond)
		also := publish() // at once
		require.Empty(w, all[webhook.EndpointChanged](n))
		w.sleep(0)
		require.Equal(w, []webhook.EndpointChange{webhook.EndpointDegraded}, changes(n))
		since := time.Now()
		during := publish()
		w.sleep(time.Until(since.Add(24*time.Hour - time.Millisecond)))
		last := publish()
		w.sleep(time.Millisecond)
		after := publish()
		w.sleep(32 * time.Hour)
		s := time.Second
		offset := since.Sub(start)
		require.Len(w, w.at(before, start), 7)
		require.Len(w, w.at(also, start), 7, "what was published a moment before keeps its budget")
		require.Equal(w, []time.Duration{offset, offset + s, offset + 31*s}, w.at(during, start))
		require.Len(w, w.at(last, start), 3)
		require.Len(w, w.at(after, start), 7, "the end is excluded")
		for id, budget := range map[int64]int{before: 7, also: 7, during: 3, last: 3, after: 7} {
			require.Equal(w, budget, w.delivery(id).Budget)
			require.Equal(w, webhook.StatusFailed, w.delivery(id).Status)
		}
		got, err := w.Endpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		require.True(w, got.Active)
		require.Len(w, changes(n), 1)

		w.net.set(nil)
		_, err = w.Retry(w.Context(), workspace, during)
		require.NoError(w, err)
		w.settle()
		require.Equal(w, 7, w.delivery(during).Budget, "a manual retry has all of them")
		require.Equal(w, []webhook.EndpointChange{webhook.EndpointDegraded, webhook.EndpointRecovered}, changes(n))
		require.Equal(w, 7, w.delivery(publish()).Budget)
	})
}

// A failure counts only if its attempt started after the counted one before it was
// recorded, however late it is recorded itself.
func TestAFailureCountsIfItStartedAfterTheLastWasRecorded(t *testing.T) {
	config, _ := extended()
	config.Retry = webhook.RetryPolicy{Delays: []time.Duration{}}
	config.OrderingKey = nil
	bubble(t, config, func(w *world) {
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		failures := func() int {
			got, err := w.Endpoint(w.Context(), workspace, e.ID)
			require.NoError(w, err)
			return got.Health.Failures
		}
		for range 20 { // the lane learns that the endpoint is quick
			w.publish(webhook.Event{})
		}
		w.settle()
		takes := map[string]time.Duration{"link.created": 9 * time.Second, "link.updated": 3 * time.Second, "link.expired": 2 * time.Second}
		w.net.set(func(r *http.Request, _ int) (*http.Response, error) {
			time.Sleep(takes[r.Header.Get("X-Webhook-Event")])
			return status(500), nil
		})
		for eventType := range takes {
			w.publish(webhook.Event{Type: eventType})
		}
		w.sleep(2*time.Second - time.Millisecond)
		require.Zero(w, failures())
		w.sleep(time.Millisecond)
		require.Equal(w, 1, failures(), "the first that is recorded")
		w.publish(webhook.Event{Type: "link.deleted"})
		w.settle()
		require.Equal(w, 1, failures(), "in the same millisecond is not after it")
		w.sleep(time.Second)
		require.Equal(w, 1, failures(), "recorded at 3 s, started before")
		w.publish(webhook.Event{Type: "link.deleted"})
		w.settle()
		require.Equal(w, 2, failures(), "started after it")
		w.sleep(7 * time.Second)
		require.Equal(w, 2, failures(), "recorded last, but started first of all")
		require.Len(w, w.net.all(), 25)
	})
}

// Paused at the 50th failure in a row and not before, whatever the events; one
// success before it, and there are 50 more.
func TestPausedAtTheFiftieth(t *testing.T) {
	config, n := extended()
	config.Retry = webhook.RetryPolicy{Delays: []time.Duration{}}
	bubble(t, config, func(w *world) {
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		fail := func(times int) {
			w.net.set(always(500))
			for i := range times {
				w.publish(webhook.Event{Type: []string{"link.created", "link.updated"}[i%2]})
				w.sleep(time.Second)
			}
		}
		active := func() bool {
			got, err := w.Endpoint(w.Context(), workspace, e.ID)
			require.NoError(w, err)
			return got.Active
		}
		fail(49)
		require.True(w, active())
		w.net.set(nil)
		w.publish(webhook.Event{})
		w.sleep(time.Second)
		fail(49)
		require.True(w, active())
		require.Equal(w, []webhook.EndpointChange{webhook.EndpointDegraded, webhook.EndpointRecovered, webhook.EndpointDegraded}, changes(n))
		fail(1)
		require.False(w, active())
		require.Equal(w, webhook.EndpointPaused, changes(n)[3])
		require.Len(w, changes(n), 4)
		told := all[webhook.EndpointChanged](n)[3]
		require.Equal(w, int64(workspace), told.WorkspaceID)
		require.Equal(w, e.ID, told.EndpointID)
		require.Empty(w, w.publish(webhook.Event{}).DeliveryIDs)
	})
}

// Interruptions, refused addresses and settings say nothing of a receiver's
// health.
func TestWhatDoesNotCountTowardsHealth(t *testing.T) {
	config, n := extended()
	config.Health = webhook.HealthPolicy{DegradeAfter: 1, PauseAfter: 2}
	config.Grace = -1
	bubble(t, config, func(w *world) {
		w.net.answer = silent
		e, _ := w.endpoint(webhook.EndpointParams{})
		for range 3 {
			w.run()
			w.publish(webhook.Event{})
			w.settle()
			w.stop()
		}
		require.Len(w, w.net.all(), 3)
		got, err := w.Endpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		require.Zero(w, got.Health)
		require.Empty(w, changes(n))
	})

	config, n = extended()
	config.Health = webhook.HealthPolicy{DegradeAfter: 1, PauseAfter: 2}
	config.Egress = webhook.Egress{Resolver: loopbackResolver{}}
	config.Logger = quiet()
	d, err := webhook.New(memorystore.New(memorystore.Options{}), config)
	require.NoError(t, err)
	e, _, err := d.CreateEndpoint(t.Context(), webhook.EndpointParams{WorkspaceID: workspace, URL: "https://example.com", Events: []string{"link.*"}})
	require.NoError(t, err)
	for range 3 {
		r, err := d.Publish(t.Context(), webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: json.RawMessage(`{}`)})
		require.NoError(t, err)
		_, err = d.RunOnce(t.Context())
		require.NoError(t, err)
		got, err := d.Delivery(t.Context(), workspace, r.DeliveryIDs[0])
		require.NoError(t, err)
		require.Equal(t, "the address is not allowed", string(got.LastError))
		require.Equal(t, 1, got.Attempts)
	}
	got, err := d.Endpoint(t.Context(), workspace, e.ID)
	require.NoError(t, err)
	require.Zero(t, got.Health)
	require.True(t, got.Active)
	require.Empty(t, changes(n))
}

// What a channel fails at once is a final failure like any other: the host is told
// once, with the message's endpoint, and its log says so.
func TestAFinalAnswerIsNoticed(t *testing.T) {
	config, n := extended()
	bubble(t, config, func(w *world) {
		w.net.answer = always(404)
		e, _, err := w.CreateEndpoint(w.Context(), channelParams(webhook.KindDiscord))
		require.NoError(w, err)
		w.run()
		r := w.publish(webhook.Event{})
		w.sleep(32 * time.Hour)
		failed := all[webhook.DeliveryFailed](n)
		require.Len(w, failed, 1)
		require.Equal(w, r.DeliveryIDs[0], failed[0].DeliveryID)
		require.Equal(w, r.EventID, failed[0].EventID)
		require.Equal(w, e.ID, failed[0].EndpointID)
		require.Equal(w, webhook.KindDiscord, failed[0].Kind)
		require.Equal(w, 1, failed[0].Attempts)
		require.Equal(w, 7, failed[0].Budget)
		require.Equal(w, 404, failed[0].HTTPStatus)
		require.Len(w, all[webhook.AttemptFinished](n), 1)
		require.Contains(w, w.log.String(), "delivery failed")
	})
}
