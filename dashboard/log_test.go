package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

// hostile is what a receiver and a publisher may send.
const hostile = `</pre><script>alert("x")</script><img src=x onerror=alert(1)>{{.}}` + "\x00\x1b[2J\u202egpj\xff"

// TestWhatOthersSentIsText: as text, and as nothing else, wherever it shows.
func TestWhatOthersSentIsText(t *testing.T) {
	w := newWorld(t)
	e, _ := w.endpoint(func(p *webhook.EndpointParams) {
		p.Description, p.URL = "</title><script>alert(2)</script>\u202e", w.receiver.URL+"/?q=<"[:4]+"'%22onload=alert(3)"
	})
	w.answers(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		rw.WriteHeader(http.StatusBadGateway)
		fmt.Fprint(rw, hostile)
	})
	ids := w.publish(map[string]any{"title": "</pre><script>alert(4)</script>\u202e", "<b>": "&amp;"})
	for _, path := range w.pages(e, ids[0]) {
		a := w.get(path)
		for _, bad := range []string{"<script>alert", "<img", "onerror=alert(1)>", "\x00", "\x1b", "\u202e", "\xff"} {
			require.NotContains(t, a.text, bad, path)
		}
	}
	a := w.get(deliveryPath(e, ids[0], ""))
	require.Contains(t, a.text, `&lt;/pre&gt;&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;{{.}}\u{0}\u{1B}[2J\u{202E}gpj`)
	require.Contains(t, a.text, `&lt;/pre&gt;&lt;script&gt;alert(4)&lt;/script&gt;\u{202E}`)
	require.Contains(t, a.text, `502 Bad Gateway`)
	require.NotContains(t, a.text, "X-Elido-Signature")
	require.Contains(t, a.text, "<b>X-Webhook-Delivery:</b>")
}

// TestOneDelivery: each attempt with its answer, and a retry that is one.
func TestOneDelivery(t *testing.T) {
	w := newWorld(t)
	e, _ := w.endpoint()
	w.answers(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(rw, "come back later")
	})
	id := w.publish(map[string]any{"id": 91834, "price": jsonNumber("49.50")})[0]
	a := w.get(deliveryPath(e, id, ""))
	require.Contains(t, a.text, "1 of 3")
	require.Contains(t, a.text, "in 1 hour")
	require.Contains(t, a.text, "come back later")
	require.Contains(t, a.text, `<span class="jn">49.50</span>`)
	require.Contains(t, a.text, `data-live="3"`)
	require.Contains(t, a.text, "there is nothing to retry")

	again := w.post(deliveryPath(e, id, "/retry"))
	require.Equal(t, http.StatusConflict, again.StatusCode)
	require.Contains(t, again.text, "pending already")
	require.Contains(t, again.text, `data-page="`+deliveryPath(e, id, "")+`"`)

	// It fails for good: there is no more to come.
	require.NoError(t, finish(t, w, id, webhook.StatusFailed))
	a = w.get(deliveryPath(e, id, ""))
	require.NotContains(t, a.text, "data-live=")
	require.NotContains(t, a.text, "disabled")

	w.answers(func(http.ResponseWriter, *http.Request) {})
	a = w.follow(w.post(deliveryPath(e, id, "/retry")))
	require.Contains(t, a.text, "The delivery was queued again.")
	require.Contains(t, a.text, "0 of 3")
	w.deliver()
	a = w.get(deliveryPath(e, id, ""))
	require.Contains(t, a.text, "Delivered")
	require.Contains(t, a.text, "1 of 3")
	first, newest := strings.Index(a.text, "Attempt 1"), strings.Index(a.text, "Attempt 3")
	require.True(t, newest >= 0 && first > newest, "the newest attempt comes first")
	require.Equal(t, 1, strings.Count(a.text, `<details class="card attempt" id="attempt-3" open>`))

	// Pruned meanwhile.
	_, err := w.store.Maintain(t.Context(), store.MaintainParams{Now: time.Now(), PruneBefore: time.Now().Add(time.Hour), Limit: 100})
	require.NoError(t, err)
	gone := w.post(deliveryPath(e, id, "/retry"))
	require.Equal(t, http.StatusNotFound, gone.StatusCode)
	require.Contains(t, gone.text, "It has left the log")
}

type jsonNumber string

func (n jsonNumber) MarshalJSON() ([]byte, error) { return []byte(n), nil }

// finish writes the end of a delivery into the store, as if its attempts had come
// to that.
func finish(t *testing.T, w *world, id int64, status webhook.Status) error {
	t.Helper()
	now := time.Now().Add(2 * time.Hour)
	claimed, err := w.store.Claim(t.Context(), store.ClaimParams{Now: now, LeaseParams: store.LeaseParams{Token: 1, Until: now.Add(time.Minute), Room: store.Room{Limit: 10, PerEndpoint: 10}}})
	require.NoError(t, err)
	for _, l := range claimed.Leases {
		if l.DeliveryID == id {
			_, err := w.store.Record(t.Context(), store.RecordParams{Now: now, Outcomes: []store.Outcome{{
				DeliveryID: id, EndpointID: l.Target.EndpointID, Token: 1, Status: status, Attempt: store.Attempt{StartedAt: now, Error: []byte("connection refused")},
			}}})
			return err
		}
	}
	return store.ErrNotFound
}

// TestChannelsShowTheirMessage: what was sent, beside what was published.
func TestChannelsShowTheirMessage(t *testing.T) {
	w := newWorld(t)
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNoContent) })
	d, err := webhook.New(w.store, webhook.Config{Egress: webhook.Egress{AllowLoopback: true}, Channels: webhook.Channels{DiscordBase: w.receiver.URL}})
	require.NoError(t, err)
	e, _, err := d.CreateEndpoint(t.Context(), webhook.EndpointParams{WorkspaceID: 42, Kind: "discord", URL: w.receiver.URL + "/api/webhooks/1/abcdefghijk", Events: []string{"link.*"}})
	require.NoError(t, err)
	r, err := d.Publish(t.Context(), webhook.Event{Type: "link.created", WorkspaceID: 42, Data: map[string]any{"slug": "spring-sale"}})
	require.NoError(t, err)
	_, err = d.RunOnce(t.Context())
	require.NoError(t, err)
	a := w.get(deliveryPath(e, r.DeliveryIDs[0], ""))
	require.Contains(t, a.text, "Message as sent")
	require.Contains(t, a.text, "spring-sale was created")
	require.NotContains(t, a.text, "abcdefghijk")
}

func TestTheLogFiltersAndPages(t *testing.T) {
	w := newWorld(t)
	e, _ := w.endpoint()
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) })
	w.publish(map[string]any{"id": 0})
	w.answers(func(http.ResponseWriter, *http.Request) {})
	for i := range 2*deliveriesPerPage + 5 {
		w.publish(map[string]any{"id": i})
	}
	_, err := w.d.SendTest(t.Context(), 42, e.ID)
	require.NoError(t, err)
	w.deliver()
	rows := func(a answered) int { return strings.Count(a.text, "data-key=") }
	log := pathOf(e, "/deliveries")

	// Through all pages, each delivery once.
	seen := map[string]bool{}
	next := log
	for pages := 1; ; pages++ {
		a := w.get(next)
		for _, m := range regexp.MustCompile(`data-key="(\d+)"`).FindAllStringSubmatch(a.text, -1) {
			require.False(t, seen[m[1]])
			seen[m[1]] = true
		}
		require.Equal(t, next == log, strings.Contains(a.text, "data-live="), "only the newest page changes")
		m := regexp.MustCompile(`href="([^"]+)">Older`).FindStringSubmatch(a.text)
		if m == nil {
			require.Equal(t, 3, pages)
			break
		}
		next = strings.ReplaceAll(m[1], "&amp;", "&")
	}
	require.Len(t, seen, 2*deliveriesPerPage+7)

	for query, want := range map[string]int{
		"status=pending": 1, "status=failed": 0, "status=delivered": 50, "type=test": 1, "type=link.deleted": 0, "type=link.created&status=pending": 1,
		"since=2020-01-01T00:00": 50, "until=2020-01-01T00:00": 0, "since=2020-01-01T00:00&until=2020-01-02T00:00": 0, "": 50, "unknown=1": 50,
	} {
		a := w.get(log + "?" + query)
		require.Equal(t, http.StatusOK, a.StatusCode, query)
		require.Equal(t, want, rows(a), query)
		if want == 0 {
			require.Contains(t, a.text, "matches the filters")
		}
	}
	// The next page keeps the filters.
	a := w.get(log + "?status=delivered&since=2020-01-01T00:00")
	m := regexp.MustCompile(`href="([^"]+)">Older`).FindStringSubmatch(a.text)
	older, err := url.Parse(strings.ReplaceAll(m[1], "&amp;", "&"))
	require.NoError(t, err)
	require.Equal(t, "delivered", older.Query().Get("status"))
	require.Equal(t, "2020-01-01T00:00", older.Query().Get("since"))

	for query, id := range map[string]string{
		"since=yesterday": "since-error", "until=<b>": "until-error", "status=<b>": "status-error", "since=1969-01-01T00:00": "since-error",
	} {
		a := w.get(log + "?" + query)
		require.Equal(t, http.StatusUnprocessableEntity, a.StatusCode, query)
		require.NotEmpty(t, a.fieldError(id), query)
		require.NotContains(t, a.text, "<b>\"")
	}
	a = w.get(log + "?cursor=<b>")
	require.Equal(t, http.StatusUnprocessableEntity, a.StatusCode)
	require.Contains(t, a.text, "This link to a page of the log is not valid.")
	for _, query := range []string{"type=%00", "type=" + strings.Repeat("x", 5000), "status=%ff", "since=%00", "cursor=" + strings.Repeat("A", 5000)} {
		a := w.get(log + "?" + query)
		require.Less(t, a.StatusCode, 500, query)
		require.Less(t, len(a.text), 200_000, query)
	}
}

func TestRecover(t *testing.T) {
	w := newWorld(t, func(c *webhook.Config, _ *Config) { c.Retry = webhook.RetryPolicy{Delays: []time.Duration{}} })
	e, _ := w.endpoint()
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) })
	for range 3 {
		w.publish(map[string]any{"id": 1})
	}
	form := w.get(pathOf(e, "/recover"))
	require.Contains(t, form.text, time.Now().UTC().Add(-24*time.Hour).Format("2006-01-02T"))
	for _, since := range []string{"", "soon", "<b>"} {
		a := w.post(pathOf(e, "/recover"), "since", since)
		require.Equal(t, http.StatusUnprocessableEntity, a.StatusCode)
		require.Contains(t, a.fieldError("since-error"), "Must be a date")
	}
	a := w.follow(w.post(pathOf(e, "/recover"), "since", "2020-01-01T00:00"))
	require.Contains(t, a.text, "3 deliveries were queued again.")
	a = w.follow(w.post(pathOf(e, "/recover"), "since", "2020-01-01T00:00"))
	require.Contains(t, a.text, "0 deliveries were queued again.", "a second click")
}

func TestStats(t *testing.T) {
	w := newWorld(t, func(c *webhook.Config, _ *Config) { c.Retry = webhook.RetryPolicy{Delays: []time.Duration{}} })
	e, _ := w.endpoint()
	a := w.get(pathOf(e, ""))
	require.Contains(t, a.text, "Delivered: 0, failed: 0, pending: 0. Success rate: –.")
	for range 3 {
		w.publish(map[string]any{"id": 1})
	}
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) })
	w.publish(map[string]any{"id": 2})
	for _, path := range []string{"", "?range=hour", "?range=week", "?range=<b>"} {
		a := w.get(pathOf(e, path))
		require.Contains(t, a.text, "Delivered: 3, failed: 1, pending: 0. Success rate: 75%.", path)
		require.Equal(t, 1, strings.Count(a.text, `aria-current="true"`))
		require.Equal(t, 2, strings.Count(a.text, "<svg role=\"img\""))
	}
	require.Equal(t, 1, strings.Count(w.get(pathOf(e, "")).text, `fill="url(#hatch)"`))
}

// TestStatsOverTime runs through two days on a clock of its own.
func TestStatsOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newQuietWorld(t)
		e := w.endpointAt("https://example.com/")
		now := time.Now()
		at := func(before time.Duration, status int) {
			w.status = status
			time.Sleep(time.Until(now.Add(48*time.Hour - before)))
			_, err := w.d.Publish(t.Context(), webhook.Event{Type: "link.created", WorkspaceID: 42, Data: map[string]any{"id": 1}})
			require.NoError(t, err)
			_, err = w.d.RunOnce(t.Context())
			require.NoError(t, err)
		}
		at(30*time.Hour, 500)
		at(10*time.Hour, 200)
		at(10*time.Hour-time.Minute, 500)
		at(30*time.Minute, 200)
		time.Sleep(time.Until(now.Add(48 * time.Hour)))
		v := w.visit(pathOf(e, ""))
		s, err := v.stats(e.ID)
		require.NoError(t, err)
		require.Equal(t, []int{3, 2, 1, 0}, []int{s.Total, s.Delivered, s.Failed, s.Pending})
		require.Equal(t, "66.7%", s.Rate)
		require.Len(t, s.Columns, 48)
		full := map[int][2]int{}
		for i, c := range s.Columns {
			if !c.Empty {
				full[i] = [2]int{c.Good, c.Bad}
				require.Equal(t, c.X, i*columnWidth)
			}
		}
		require.Equal(t, map[int][2]int{27: {50, 50}, 46: {100, 0}}, full)
		require.Equal(t, "100 ms", s.Median)
		require.False(t, s.CutOff)

		v = w.visit(pathOf(e, "?range=hour"))
		s, err = v.stats(e.ID)
		require.NoError(t, err)
		require.Equal(t, 1, s.Total)
		v = w.visit(pathOf(e, "?range=week"))
		s, err = v.stats(e.ID)
		require.NoError(t, err)
		require.Equal(t, 4, s.Total)
	})
}

// TestStatsLookAtTheNewest: what a page costs does not grow with the log.
func TestStatsLookAtTheNewest(t *testing.T) {
	w := newWorld(t)
	e, _ := w.endpoint()
	events := make([]webhook.Event, statsMost+150)
	for i := range events {
		events[i] = webhook.Event{Type: "link.created", WorkspaceID: 42, Data: map[string]any{"id": i}}
	}
	_, err := w.d.PublishMany(t.Context(), events)
	require.NoError(t, err)
	require.Contains(t, w.get(pathOf(e, "")).text, "only the newest 500 are counted here")

	w = newWorld(t)
	e, _ = w.endpoint()
	large := strings.Repeat("x", 200<<10)
	for range 60 {
		_, err := w.d.Publish(t.Context(), webhook.Event{Type: "link.created", WorkspaceID: 42, Data: map[string]any{"title": large}})
		require.NoError(t, err)
	}
	require.Contains(t, w.get(pathOf(e, "")).text, "only the newest 50 are counted here", "nor with the payloads")
}

func TestQuantilesAndScales(t *testing.T) {
	list := make([]time.Duration, 100)
	for i := range list {
		list[i] = time.Duration(i + 1)
	}
	require.EqualValues(t, 50, quantile(list, 50))
	require.EqualValues(t, 95, quantile(list, 95))
	require.EqualValues(t, 1, quantile(list[:1], 95))
	require.EqualValues(t, 2, quantile(list[:3], 50))
	require.Zero(t, quantile(nil, 50))
	for d, want := range map[time.Duration]time.Duration{
		0: time.Millisecond, time.Millisecond: time.Millisecond, 1100 * time.Microsecond: 2 * time.Millisecond, 30 * time.Millisecond: 50 * time.Millisecond,
		501 * time.Millisecond: time.Second, 11 * time.Second: 20 * time.Second,
	} {
		require.Equal(t, want, scale(d))
	}
	require.Equal(t, 2, height(1, time.Second), "an answer is never nothing")
	require.Equal(t, 100, height(time.Second, time.Second))
}
