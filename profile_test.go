package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/verify"
)

// noticed is an observer that remembers.
type noticed struct {
	mu   sync.Mutex
	list []webhook.Notice
}

func (n *noticed) Observe(_ context.Context, notice webhook.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, notice)
}

func all[T webhook.Notice](n *noticed) []T {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []T
	for _, notice := range n.list {
		if one, ok := notice.(T); ok {
			list = append(list, one)
		}
	}
	return list
}

func changes(n *noticed) []webhook.EndpointChange {
	var list []webhook.EndpointChange
	for _, c := range all[webhook.EndpointChanged](n) {
		list = append(list, c.Change)
	}
	return list
}

func extended() (webhook.Config, *noticed) {
	config, n := webhook.ExtendedProfile(), &noticed{}
	config.Observer = n
	return config, n
}

func TestExtendedProfileAttemptsSevenTimes(t *testing.T) {
	config, n := extended()
	config.Health = webhook.HealthPolicy{}
	bubble(t, config, func(w *world) {
		w.net.answer = always(503)
		e, secret := w.endpoint(webhook.EndpointParams{})
		w.run()
		start := time.Now()
		r := w.publish(webhook.Event{Data: json.RawMessage(`{"link":{"id":91834}}`)})
		w.sleep(72 * time.Hour)

		var at []time.Duration
		v, err := verify.New(secret.Reveal())
		require.NoError(w, err)
		for i, h := range w.net.all() {
			at = append(at, h.at.Sub(start))
			require.Empty(w, h.header.Get("X-Elido-Signature"))
			require.True(w, strings.HasPrefix(h.header.Get("Elido-Signature"), fmt.Sprintf("t=%d,v1=", h.at.Unix())))
			require.Equal(w, r.EventID, h.header.Get("Elido-Webhook-Id"))
			require.Equal(w, fmt.Sprint(i+1), h.header.Get("Elido-Delivery-Attempt"))
			require.Equal(w, "link.created", h.header.Get("X-Webhook-Event"))
			var body struct{ ID, WorkspaceID string }
			require.NoError(w, json.Unmarshal([]byte(strings.ReplaceAll(h.body, "workspace_id", "WorkspaceID")), &body))
			require.Equal(w, r.EventID, body.ID)
			require.Equal(w, "ws_42", body.WorkspaceID)
			if i == 6 { // verify goes by this bubble's clock
				require.Error(w, v.Verify(h.header, []byte(h.body)), "the last attempt is hours old")
			}
		}
		sum := func(delays ...time.Duration) (d time.Duration) {
			for _, one := range delays {
				d += one
			}
			return d
		}
		s, m, h := time.Second, time.Minute, time.Hour
		require.Equal(w, []time.Duration{
			0, s, sum(s, 30*s), sum(s, 30*s, 5*m), sum(s, 30*s, 5*m, h), sum(s, 30*s, 5*m, h, 6*h), sum(s, 30*s, 5*m, h, 6*h, 24*h),
		}, at)
		require.Equal(w, webhook.StatusFailed, w.delivery(r.DeliveryIDs[0]).Status)

		attempts := all[webhook.AttemptFinished](n)
		require.Len(w, attempts, 7)
		for i, a := range attempts {
			require.Equal(w, i+1, a.Number)
			require.Equal(w, i+1, a.Attempts)
			require.Equal(w, 7, a.Budget)
			require.Equal(w, 503, a.HTTPStatus)
			require.Equal(w, i < 6, a.Status == webhook.StatusPending)
			require.Equal(w, i < 6, !a.NextAttemptAt.IsZero())
		}
		failed := all[webhook.DeliveryFailed](n)
		require.Len(w, failed, 1)
		require.Equal(w, attempts[6], failed[0].AttemptFinished)
		require.Equal(w, e.ID, failed[0].EndpointID)
		require.Equal(w, []webhook.EventPublished{{
			WorkspaceID: workspace, EventID: r.EventID, EventType: "link.created", DeliveryIDs: r.DeliveryIDs,
		}}, all[webhook.EventPublished](n))
	})
}

func TestFailingEndpointIsDegradedThenPaused(t *testing.T) {
	config, n := extended()
	bubble(t, config, func(w *world) {
		w.net.answer = always(500)
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		budget := func(r webhook.Receipt) int { return w.delivery(r.DeliveryIDs[0]).Budget }
		publish := func(i int) webhook.Receipt {
			return w.publish(webhook.Event{Data: json.RawMessage(fmt.Sprintf(`{"link_id":%d}`, i))})
		}

		require.Equal(w, 7, budget(publish(1))) // fails at 0 s, 1 s, 31 s
		w.sleep(2 * time.Second)
		require.Empty(w, changes(n))
		w.sleep(30 * time.Second)
		require.Equal(w, []webhook.EndpointChange{webhook.EndpointDegraded}, changes(n))
		degraded := all[webhook.EndpointChanged](n)[0]
		require.Equal(w, 24*time.Hour, degraded.Health.DegradedUntil.Sub(degraded.Health.FailedAt))
		require.Equal(w, 3, budget(publish(2)), "published to a degraded endpoint")
		w.sleep(24*time.Hour + time.Minute)
		require.Equal(w, 7, budget(publish(3)), "24 hours later")
		require.Len(w, changes(n), 1, "told once")

		for i := range 60 {
			publish(100 + i)
			w.sleep(time.Minute)
		}
		require.Equal(w, []webhook.EndpointChange{webhook.EndpointDegraded, webhook.EndpointPaused}, changes(n))
		paused := all[webhook.EndpointChanged](n)[1]
		require.Equal(w, "paused after 50 failed attempts in a row", paused.Reason)
		require.Equal(w, 50, paused.Health.Failures)
		got, err := w.Endpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		require.False(w, got.Active)
		require.Equal(w, paused.Reason, got.PauseReason)
		require.Contains(w, w.log.String(), "webhook: endpoint paused")

		before := len(w.net.all())
		w.sleep(100 * time.Hour)
		require.Len(w, w.net.all(), before, "a paused endpoint is left alone")

		w.net.set(nil)
		_, err = w.ResumeEndpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		w.sleep(time.Hour)
		got, err = w.Endpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		require.Zero(w, got.Health, "resuming begins anew")
		require.Empty(w, got.PauseReason)
		require.Greater(w, len(w.net.all()), before, "what was queued goes out")
		require.Len(w, changes(n), 2, "resumed by hand, so not recovered")
	})
}

func TestAnySuccessResetsTheCount(t *testing.T) {
	config, n := extended()
	bubble(t, config, func(w *world) {
		w.net.answer = always(500)
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		w.publish(webhook.Event{Data: json.RawMessage(`{"link_id":1}`)})
		w.sleep(2 * time.Second) // two failures
		w.net.set(nil)
		w.publish(webhook.Event{Data: json.RawMessage(`{"link_id":2}`)})
		w.sleep(time.Second)
		got, err := w.Endpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		require.Zero(w, got.Health)
		w.net.set(always(500))
		w.publish(webhook.Event{Data: json.RawMessage(`{"link_id":3}`)})
		w.sleep(40 * time.Second) // three failures, and one of the first delivery's
		require.Equal(w, []webhook.EndpointChange{webhook.EndpointDegraded}, changes(n))
		w.net.set(nil)
		w.sleep(time.Hour)
		require.Equal(w, []webhook.EndpointChange{webhook.EndpointDegraded, webhook.EndpointRecovered}, changes(n))
	})
}

// Eight attempts into one outage are one failure.
func TestParallelFailuresCountOnce(t *testing.T) {
	config, n := extended()
	config.OrderingKey = nil
	bubble(t, config, func(w *world) {
		w.net.answer = nil
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		for range 20 { // the lane learns that the endpoint is quick
			w.publish(webhook.Event{})
		}
		w.settle()
		w.net.set(silent)
		for range 8 {
			w.publish(webhook.Event{})
		}
		w.sleep(10*time.Second + 500*time.Millisecond)
		got, err := w.Endpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		require.Equal(w, 8, w.net.most["https://example.com/hooks"])
		require.Equal(w, 1, got.Health.Failures)
		require.Empty(w, changes(n))
	})
}

func TestDefaultOrderingKey(t *testing.T) {
	for data, want := range map[string]string{
		`{"link_id":91834}`:                      "91834",
		`{"link_id":"lnk_1","link":{"id":2}}`:    "lnk_1",
		`{"link":{"id":9007199254740993}}`:       "9007199254740993",
		`{"link":{"id":"a"},"link_id":null}`:     "a",
		`{"link":[1],"link_id":{}}`:              "",
		`{"link":{}}`:                            "",
		`{"id":1}`:                               "",
		`{"link_id":true}`:                       "",
		`{"link_id":"` + longText(256) + `"}`:    "",
		`{"link_id":"a\u0000b","link":{"id":1}}`: "1",
		`{"lin\u006b_id":5}`:                     "5",
	} {
		require.Equal(t, want, webhook.LinkOrderingKey("click", json.RawMessage(data)), data)
	}
	config, _ := extended()
	bubble(t, config, func(w *world) {
		w.endpoint(webhook.EndpointParams{})
		given := w.publish(webhook.Event{OrderingKey: "mine", Data: json.RawMessage(`{"link_id":1}`)})
		derived := w.publish(webhook.Event{Data: json.RawMessage(`{"link_id":1}`)})
		none := w.publish(webhook.Event{Data: json.RawMessage(`{"a":1}`)})
		require.Equal(w, "mine", w.delivery(given.DeliveryIDs[0]).OrderingKey)
		require.Equal(w, "1", w.delivery(derived.DeliveryIDs[0]).OrderingKey)
		require.Empty(w, w.delivery(none.DeliveryIDs[0]).OrderingKey)

		events := []webhook.Event{{Type: "link.created", WorkspaceID: workspace, Data: json.RawMessage(`{"link_id":1}`)}}
		_, err := w.PublishMany(w.Context(), events)
		require.NoError(w, err)
		require.Empty(w, events[0].OrderingKey, "the caller's events are left alone")
	})
	for name, f := range map[string]func(string, json.RawMessage) string{
		"panics":   func(string, json.RawMessage) string { panic("host") },
		"too long": func(string, json.RawMessage) string { return longText(256) },
	} {
		bubble(t, webhook.Config{OrderingKey: f}, func(w *world) {
			_, err := w.Publish(w.Context(), webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: json.RawMessage(`{}`)})
			var invalid *webhook.InvalidError
			require.ErrorAs(w, err, &invalid, name)
			require.Equal(w, "ordering_key", invalid.Field)
		})
	}
}

func longText(n int) string { return strings.Repeat("k", n) }

func TestReplayByEvent(t *testing.T) {
	config, _ := extended()
	bubble(t, config, func(w *world) {
		a, _ := w.endpoint(webhook.EndpointParams{})
		b, _ := w.endpoint(webhook.EndpointParams{URL: "https://b.example.com"})
		c, _ := w.endpoint(webhook.EndpointParams{Events: []string{"click"}})
		w.run()
		r := w.publish(webhook.Event{})
		_, err := w.Replay(w.Context(), workspace, b.ID, r.EventID)
		if err != nil { // still under way
			require.ErrorIs(w, err, webhook.ErrPending)
		}
		w.settle()
		w.net.reset()
		d, err := w.Replay(w.Context(), workspace, b.ID, r.EventID)
		require.NoError(w, err)
		require.Equal(w, webhook.StatusPending, d.Status)
		w.settle()
		require.Len(w, w.net.all(), 1)
		require.Equal(w, "https://b.example.com", w.net.all()[0].url)
		require.Equal(w, d.ID, w.net.all()[0].delivery)
		require.Contains(w, r.DeliveryIDs, d.ID)
		for _, test := range []struct {
			workspace, endpoint int64
			event               string
		}{{workspace, c.ID, r.EventID}, {workspace, a.ID, "evt_none"}, {workspace, a.ID, "evt_\x00\xff"}, {workspace, a.ID, ""}, {workspace + 1, a.ID, r.EventID}} {
			_, err := w.Replay(w.Context(), test.workspace, test.endpoint, test.event)
			require.ErrorIs(w, err, webhook.ErrNotFound)
		}
	})
}

func TestTrafficCatalog(t *testing.T) {
	c := webhook.ExtendedProfile().Catalog
	require.Len(t, webhook.TrafficEvents(), 12)
	for _, name := range []string{
		"click", "bio.click", "qr.scan", "conversion", "bio.published", "daily.summary", "campaign.ended",
		"alert.threshold_exceeded", "quota.warning", "link.created", "link.updated", "link.deleted",
	} {
		e, ok := c.Lookup(name)
		require.True(t, ok, name)
		require.True(t, e.Subscribable())
		require.True(t, json.Valid(e.Sample))
	}
	e, _ := c.Lookup("link.created")
	require.Contains(t, string(e.Sample), "short_url", "the set added later gives the sample")
	require.Equal(t, []string{"password_hash"}, e.Secret, "and takes no secret away")
	later := new(webhook.Catalog)
	require.NoError(t, later.Add(webhook.TrafficEvents()...))
	require.NoError(t, later.Add(webhook.DefaultCatalog().Types()[0]))
	e, _ = later.Lookup("link.created")
	require.NotContains(t, string(e.Sample), "short_url")
}

func TestProfileSettingsAreChecked(t *testing.T) {
	for field, config := range map[string]webhook.Config{
		"Health.DegradeAfter":     {Health: webhook.HealthPolicy{DegradeAfter: -1}},
		"Health.PauseAfter":       {Health: webhook.HealthPolicy{PauseAfter: -1}},
		"Health.DegradeFor":       {Health: webhook.HealthPolicy{DegradeFor: 24}},
		"Health.DegradedAttempts": {Health: webhook.HealthPolicy{DegradedAttempts: 1000}},
	} {
		_, err := webhook.New(emptyStore(t), config)
		var invalid *webhook.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, field, invalid.Field)
	}
}
