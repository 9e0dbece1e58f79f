package webhook_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

// The environment of a child process: what it is to do, and on which file.
const (
	childFile   = "WEBHOOK_TEST_CHILD_FILE"
	childEvents = "WEBHOOK_TEST_CHILD_EVENTS"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childFile); path != "" {
		if err := child(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func crashConfig() webhook.Config {
	return webhook.Config{
		Egress:  webhook.Egress{AllowLoopback: true},
		Retry:   webhook.RetryPolicy{Delays: []time.Duration{20 * time.Millisecond, 40 * time.Millisecond}},
		Timeout: 500 * time.Millisecond,
		Lease:   8 * time.Second,
		Poll:    100 * time.Millisecond,
		Logger:  quiet(),
	}
}

// child publishes and delivers until somebody kills it, or all is done. It
// prints the delivery ids of each publish once that is confirmed.
func child(path string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	st, err := sqlitestore.Open(ctx, path)
	if err != nil {
		return err
	}
	defer st.Close()
	d, err := webhook.New(st, crashConfig())
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	events, err := strconv.Atoi(os.Getenv(childEvents))
	if err != nil {
		return err
	}
	for i := range events {
		r, err := d.Publish(ctx, webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: map[string]int{"id": i}})
		if err != nil {
			return err
		}
		for _, id := range r.DeliveryIDs {
			fmt.Println(id)
		}
	}
	for {
		page, err := d.Deliveries(ctx, webhook.DeliveryQuery{WorkspaceID: workspace, Status: webhook.StatusPending, Limit: 1})
		if err != nil {
			return err
		}
		if len(page.Deliveries) == 0 {
			cancel()
			return <-done
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestKilledInMidDeliveryLosesNothing kills a dispatcher's process again and
// again while it publishes and delivers, and starts another on the same file.
// The receivers live in this process.
func TestKilledInMidDeliveryLosesNothing(t *testing.T) {
	var mu sync.Mutex
	hits := map[string]int{}     // requests by delivery
	accepted := map[string]int{} // of them, answered with 200
	total := 0
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Webhook-Delivery")
		mu.Lock()
		total++
		hits[id]++
		fail := total%7 == 0 && hits[id] == 1
		if !fail {
			accepted[id]++
		}
		mu.Unlock()
		time.Sleep(2 * time.Millisecond)
		if fail {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer receiver.Close()

	path := filepath.Join(t.TempDir(), "webhooks.db")
	st, err := sqlitestore.Open(t.Context(), path)
	require.NoError(t, err)
	defer st.Close()
	d, err := webhook.New(st, crashConfig())
	require.NoError(t, err)
	for i := range 3 {
		_, _, err := d.CreateEndpoint(t.Context(), webhook.EndpointParams{
			WorkspaceID: workspace, URL: fmt.Sprintf("%s/%d", receiver.URL, i), Events: []string{"link.*"}})
		require.NoError(t, err)
	}

	var confirmed []string
	kills := 0
	for _, after := range []int{40, 150, 333, -1} { // requests until the kill
		events := 100
		if after < 0 {
			events = 5 // the last one only finishes
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childFile+"="+path, childEvents+"="+strconv.Itoa(events))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		mu.Lock()
		target := total + after
		mu.Unlock()
		require.NoError(t, cmd.Start())
		printed := make(chan []string)
		go func() {
			var ids []string
			for lines := bufio.NewScanner(out); lines.Scan(); {
				ids = append(ids, lines.Text())
			}
			printed <- ids
		}()
		finished := make(chan struct{})
		if after >= 0 {
			go func() {
				defer close(finished)
				for {
					mu.Lock()
					reached := total >= target
					mu.Unlock()
					if reached {
						kills++
						_ = cmd.Process.Kill() // SIGKILL
						return
					}
					time.Sleep(time.Millisecond)
				}
			}()
		} else {
			close(finished)
		}
		ids := <-printed
		<-finished
		err = cmd.Wait()
		if after < 0 {
			require.NoError(t, err)
		}
		confirmed = append(confirmed, ids...)
	}
	require.Equal(t, 3, kills)
	require.NotEmpty(t, confirmed)

	interrupted := 0
	for _, id := range confirmed {
		n, err := strconv.ParseInt(id, 10, 64)
		require.NoError(t, err)
		v, err := d.Delivery(t.Context(), workspace, n)
		require.NoError(t, err, "delivery %s was confirmed", id)
		attempts, err := d.Attempts(t.Context(), workspace, n)
		require.NoError(t, err)
		require.Equal(t, webhook.StatusDelivered, v.Status, "delivery %s", id)
		require.Positive(t, accepted[id], "delivery %s reached nobody", id)
		require.Len(t, attempts, v.TotalAttempts)
		require.LessOrEqual(t, len(attempts), hits[id], "an attempt is logged that nobody got")
		interrupted += hits[id] - len(attempts)
		var envelope struct{ Data json.RawMessage }
		require.NoError(t, json.Unmarshal(v.Payload, &envelope))
	}
	t.Logf("%d deliveries confirmed, %d requests, %d of them without a recorded outcome after %d kills", len(confirmed), total, interrupted, kills)
	// What was under way at a kill, and nothing else, may have come twice.
	require.LessOrEqual(t, interrupted, kills*(3*8+500), "more repeats than can have been under way")
}
