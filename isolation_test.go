package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

// The healthy endpoints have the first workspace ids.
const (
	healthyEndpoints = 20
	hangingEndpoints = 100
)

// TestHangingEndpointsLeaveHealthyOnesAlone is exact, since it runs in its own
// time: a hundred endpoints that were fine until now all start to hang at once,
// each with 50 deliveries, beside twenty that go on answering in 5 ms.
func TestHangingEndpointsLeaveHealthyOnesAlone(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		var mu sync.Mutex
		hang := false
		w.net.answer = func(r *http.Request, n int) (*http.Response, error) {
			mu.Lock()
			h := hang
			mu.Unlock()
			if h && strings.HasPrefix(r.URL.Host, "hang") {
				return silent(r, n)
			}
			time.Sleep(5 * time.Millisecond)
			return status(200), nil
		}
		for i := 1; i <= healthyEndpoints+hangingEndpoints; i++ {
			name := "healthy"
			if i > healthyEndpoints {
				name = "hang"
			}
			w.endpoint(webhook.EndpointParams{WorkspaceID: int64(i), URL: fmt.Sprintf("https://%s-%d.example/", name, i)})
		}
		w.run()
		publishAll := func(rounds int) {
			for range rounds {
				for i := healthyEndpoints + hangingEndpoints; i >= 1; i-- {
					w.publish(webhook.Event{WorkspaceID: int64(i)})
				}
			}
		}
		publishAll(20) // every lane has proven itself
		w.sleep(time.Minute)
		require.Len(w, w.net.all(), 20*(healthyEndpoints+hangingEndpoints))
		w.net.reset()

		mu.Lock()
		hang = true
		mu.Unlock()
		start := time.Now()
		publishAll(50)
		w.sleep(9 * time.Second)
		var latest time.Duration
		healthy := 0
		for _, h := range w.net.all() {
			if strings.Contains(h.url, "healthy") {
				healthy++
				latest = max(latest, h.at.Sub(start))
			}
		}
		w.Logf("%d healthy deliveries, the last %v after the publish", healthy, latest)
		require.Equal(w, 50*healthyEndpoints, healthy)
		require.Less(w, latest, time.Second)
	})
}

// TestHangingEndpointsOnSQLite is the same with sockets and a file, asserted by
// order alone: every healthy delivery is through before the first time limit
// frees a hanging request.
func TestHangingEndpointsOnSQLite(t *testing.T) {
	var mu sync.Mutex
	arrived := map[string]time.Time{}
	release := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/hang") {
			select {
			case <-release:
			case <-r.Context().Done():
			}
			return
		}
		mu.Lock()
		arrived[r.Header.Get("X-Webhook-Delivery")] = time.Now()
		mu.Unlock()
	}))
	defer receiver.Close()
	defer close(release)

	st, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "webhooks.db"))
	require.NoError(t, err)
	defer st.Close()
	w := &world{T: t, net: &network{}, stop: func() {}}
	w.Dispatcher, err = webhook.New(st, webhook.Config{Egress: webhook.Egress{AllowLoopback: true}, Grace: 2 * time.Second, Logger: quiet()})
	require.NoError(t, err)
	for i := 1; i <= healthyEndpoints+hangingEndpoints; i++ {
		path := "/hang/"
		if i <= healthyEndpoints {
			path = "/healthy/"
		}
		w.endpoint(webhook.EndpointParams{WorkspaceID: int64(i), URL: fmt.Sprint(receiver.URL, path, i)})
	}
	w.run()
	defer w.stop()
	published := map[string]time.Time{}
	for range 10 {
		for first := healthyEndpoints + hangingEndpoints; first >= 1; first -= 40 {
			var events []webhook.Event
			for i := first; i > first-40; i-- {
				events = append(events, webhook.Event{Type: "link.created", WorkspaceID: int64(i), Data: json.RawMessage(`{"id":1}`)})
			}
			at := time.Now()
			receipts, err := w.PublishMany(t.Context(), events)
			require.NoError(t, err)
			for i, r := range receipts {
				if events[i].WorkspaceID <= healthyEndpoints {
					published[fmt.Sprint(r.DeliveryIDs[0])] = at
				}
			}
		}
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(arrived) == len(published)
	}, 9*time.Second, 5*time.Millisecond, "healthy deliveries waited for hanging ones")
	var latest time.Duration
	for id, at := range published {
		latest = max(latest, arrived[id].Sub(at))
	}
	t.Logf("%d healthy deliveries, the slowest %v after its publish", len(published), latest)
}
