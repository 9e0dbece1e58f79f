package httpapi_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
)

// page is a page of the log.
type page struct {
	Deliveries []struct {
		ID     int64  `json:"id"`
		Status string `json:"status"`
	} `json:"deliveries"`
	Next string `json:"next"`
}

func (w *world) ids(target string) (ids []int64, next string) {
	w.Helper()
	var p page
	w.call("GET", target, nil).is(200).into(&p)
	for _, v := range p.Deliveries {
		ids = append(ids, v.ID)
	}
	return ids, p.Next
}

func TestTheLogIsFilteredAndPaged(t *testing.T) {
	w := newWorld(t, options{dispatcher: webhook.Config{Retry: webhook.RetryPolicy{Delays: []time.Duration{}}}})
	e := w.endpoint(workspace)
	other, _, err := w.CreateEndpoint(t.Context(), webhook.EndpointParams{WorkspaceID: workspace, URL: "https://other.example/", Events: []string{"domain.verified"}})
	require.NoError(t, err)
	log := path(e.ID, "/deliveries")
	require.JSONEq(t, `{"deliveries":[]}`, w.call("GET", log, nil).is(200).raw)

	var all []int64 // the newest first
	for i := range 7 {
		w.receiver.answer(200, "")
		if i >= 5 {
			w.receiver.answer(500, "down")
		}
		_, id := w.publish(workspace, fmt.Sprintf(`{"id":%d}`, i))
		w.deliver()
		all = append([]int64{id}, all...)
	}
	_, id := w.publish(workspace, `{"id":7}`)
	all = append([]int64{id}, all...)

	ids, next := w.ids(log)
	require.Equal(t, all, ids)
	require.Empty(t, next)
	ids, next = w.ids(log + "?limit=3")
	require.Equal(t, all[:3], ids)
	ids, next = w.ids(log + "?limit=3&cursor=" + next)
	require.Equal(t, all[3:6], ids)
	ids, next = w.ids(log + "?limit=3&cursor=" + next)
	require.Equal(t, all[6:], ids)
	require.Empty(t, next)
	ids, _ = w.ids(log + "?limit=3&offset=4")
	require.Equal(t, all[4:7], ids)
	ids, _ = w.ids(log + "?offset=9007199254740991")
	require.Empty(t, ids)

	for status, want := range map[string][]int64{"pending": all[:1], "failed": all[1:3], "delivered": all[3:]} {
		ids, _ = w.ids(log + query("status", status))
		require.Equal(t, want, ids, status)
	}
	ids, _ = w.ids(log + query("type", "link.created"))
	require.Equal(t, all, ids)
	ids, _ = w.ids(log + query("type", "link.deleted"))
	require.Empty(t, ids)

	v, err := w.Delivery(t.Context(), workspace, all[0])
	require.NoError(t, err)
	at := v.CreatedAt
	ids, _ = w.ids(log + query("since", "1970-01-01T00:00:00Z", "until", "9999-12-31T23:59:59.999999999Z"))
	require.Equal(t, all, ids)
	ids, _ = w.ids(log + query("since", at.Add(time.Millisecond).Format(time.RFC3339Nano)))
	require.Empty(t, ids)
	ids, _ = w.ids(log + query("since", at.In(time.FixedZone("", 7*3600)).Format(time.RFC3339Nano)))
	require.Contains(t, ids, all[0], "an instant is the same in every time zone")
	ids, _ = w.ids(log + query("until", at.Add(-time.Hour).Format(time.RFC3339Nano)))
	require.Empty(t, ids)
	ids, _ = w.ids(path(other.ID, "/deliveries"))
	require.Empty(t, ids, "each endpoint has a log of its own")
}

// What a receiver sent is text in JSON, whatever bytes it is, and none of them is
// lost.
func TestWhatAReceiverSentIsShown(t *testing.T) {
	w := newWorld(t, options{dispatcher: webhook.Config{Retry: webhook.RetryPolicy{Delays: []time.Duration{}}}})
	e := w.endpoint(workspace)
	var everything []byte
	for i := range 256 {
		everything = append(everything, byte(i))
	}
	for _, body := range []string{
		"", "plain", `</script><script>alert(1)</script>`, "\"quoted\" \\ \u2028 \U0001F517", "\xff\xfe", "cut in the middle of \xe2\x82", "\x00\x01\x1f\x7f", string(everything),
	} {
		w.receiver.answer(500, body)
		_, id := w.publish(workspace, `{"id":12345678901234567890,"price":49.50,"title":"<i>\u00e9"}`)
		w.deliver()
		r := w.call("GET", path(e.ID, "/deliveries/", id), nil).is(200)
		require.NotContains(t, r.raw, "<")
		require.Contains(t, r.raw, `"price":49.50`, "a number stays as it was written")
		require.Contains(t, r.raw, `12345678901234567890`)
		var one struct {
			Attempts []struct {
				Number   int               `json:"number"`
				Status   int               `json:"status"`
				Headers  map[string]string `json:"headers"`
				Response string            `json:"response"`
				Exact    string            `json:"response_base64"`
			} `json:"attempts"`
		}
		r.into(&one)
		require.Len(t, one.Attempts, 1)
		a := one.Attempts[0]
		require.Equal(t, 500, a.Status)
		require.Equal(t, "application/json", a.Headers["Content-Type"])
		require.NotContains(t, r.raw, "v1=", "signatures are left out")
		shown := []byte(a.Response)
		if a.Exact != "" {
			var err error
			shown, err = base64.StdEncoding.DecodeString(a.Exact)
			require.NoError(t, err)
		}
		require.Equal(t, body, string(shown))
	}
}

func TestRetrying(t *testing.T) {
	w := newWorld(t, options{})
	e := w.endpoint(workspace)
	eventID, id := w.publish(workspace, `{"id":1}`)
	one := path(e.ID, "/deliveries/", id)
	require.JSONEq(t, `[]`, toJSON(t, w.call("GET", one, nil).is(200).at("attempts")))
	w.call("POST", one+"/retry", nil).problem(409, "delivery-pending")
	replay := path(e.ID, "/events/", eventID, "/replay")
	w.call("POST", replay, nil).problem(409, "delivery-pending")

	w.deliver()
	r := w.call("POST", one+"/retry", nil).is(202)
	require.Equal(t, json.Number(fmt.Sprint(id)), r.at("delivery", "id"))
	require.Equal(t, "pending", r.at("delivery", "status"))
	w.deliver()

	// Many clicks are one retry.
	var mu sync.Mutex
	got := map[int]int{}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			r := w.call("POST", one+"/retry", "{}")
			mu.Lock()
			defer mu.Unlock()
			got[r.status]++
		})
	}
	wg.Wait()
	require.Equal(t, map[int]int{202: 1, 409: 19}, got)
	w.deliver()

	w.call("POST", replay, nil).is(202)
	w.deliver()
	r = w.call("GET", one, nil).is(200)
	require.Equal(t, json.Number("4"), r.at("delivery", "total_attempts"))
	require.Len(t, r.at("attempts"), 4)
	require.Equal(t, "delivered", r.at("delivery", "status"))

	for _, name := range []string{"evt_none", "1", "%00", "%ff", "..%2f..", "evt_%F0%9F%94%97", "%27%20OR%201=1"} {
		w.call("POST", path(e.ID, "/events/", name, "/replay"), nil).problem(404, "not-found")
	}
	w.call("POST", one+"/retry", `{"force":true}`).problem(422, "invalid", "force")
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

func TestRecovering(t *testing.T) {
	w := newWorld(t, options{dispatcher: webhook.Config{Retry: webhook.RetryPolicy{Delays: []time.Duration{}}}})
	e := w.endpoint(workspace)
	w.receiver.answer(503, "")
	began := time.Now()
	for range 3 {
		w.publish(workspace, `{}`)
		w.deliver()
	}
	recover := path(e.ID, "/recover")
	r := w.call("POST", recover, object{"since": time.Now().Add(time.Hour)}).is(202)
	require.JSONEq(t, `{"requeued":0}`, r.raw)
	r = w.call("POST", recover, object{"since": began}).is(202)
	require.JSONEq(t, `{"requeued":3}`, r.raw)
	r = w.call("POST", recover, object{"since": began}).is(202)
	require.JSONEq(t, `{"requeued":0}`, r.raw, "what was re-queued has not failed")

	for _, since := range []any{nil, 0, math.MaxInt64, "", "yesterday", "2026-11-30", "2026-11-30 09:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59-01:00", "2026-02-30T00:00:00Z", []string{}, true} {
		w.call("POST", recover, object{"since": since}).problem(422, "invalid", "since")
	}
	w.call("POST", recover, `{}`).problem(422, "invalid", "since")
	w.call("POST", recover, nil).problem(400, "malformed")
}
