package postgresstore

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

// A child of a test is this program with these set: it runs a Dispatcher on the
// store until its standard input ends.
const (
	childURL    = "WEBHOOK_TEST_CHILD_URL"
	childSchema = "WEBHOOK_TEST_CHILD_SCHEMA"
)

func runChild() error {
	st, err := Options{Schema: os.Getenv(childSchema)}.Open(context.Background(), os.Getenv(childURL))
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	d, err := webhook.New(st, webhook.Config{
		Timeout: 5 * time.Second, Poll: 50 * time.Millisecond, Lease: 15 * time.Second, Workers: 8,
		Egress: webhook.Egress{AllowLoopback: true, Transport: signing{&http.Transport{}}},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return d.Run(ctx)
}

// signing says which process a request is from.
type signing struct{ http.RoundTripper }

func (s signing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Process", fmt.Sprint(os.Getpid()))
	return s.RoundTripper.RoundTrip(r)
}

func startChild(t testing.TB, schema string) (kill, stop func()) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childURL+"="+serverURL(t), childSchema+"="+schema)
	cmd.Stderr = io.Discard
	input, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return func() {
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
		}, func() {
			require.NoError(t, input.Close())
			require.NoError(t, cmd.Wait(), "Run in another process")
		}
}

// Two processes share the work, each delivery is sent by one of them; and when one
// is killed, the other takes over what it held.
func TestTwoProcessesShareTheWork(t *testing.T) {
	st := openNew(t)
	r := newReceiver(t, func(http.ResponseWriter, *http.Request) { time.Sleep(time.Millisecond) })
	d, err := webhook.New(st, webhook.Config{Egress: webhook.Egress{AllowLoopback: true}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for i := range 12 {
		endpointTo(t, d, fmt.Sprint(r.URL, "/", i))
	}
	sent := 0
	publish := func(n int) {
		for range n {
			events := make([]webhook.Event, 5)
			for i := range events {
				sent++
				events[i] = webhook.Event{
					Type: "link.created", WorkspaceID: 1, Data: map[string]int{"id": sent}, OrderingKey: []string{"", fmt.Sprint(sent % 50)}[sent%2],
				}
			}
			_, err := d.PublishMany(t.Context(), events)
			require.NoError(t, err)
		}
	}
	arrived := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { got, _ := r.counts(); return got == 12*n }, 3*time.Minute, 20*time.Millisecond)
	}
	kill, _ := startChild(t, st.schema.name)
	_, stop := startChild(t, st.schema.name)
	shared := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.from) == 2
	}
	for !shared() { // both have begun
		publish(4)
		require.Less(t, sent, 5000, "one process does all the work")
		time.Sleep(50 * time.Millisecond)
	}
	publish(20)
	arrived(sent)
	_, most := r.counts()
	require.Equal(t, 1, most, "requests for one delivery")
	r.mu.Lock()
	require.Len(t, r.from, 2, "processes that sent")
	r.mu.Unlock()

	publish(20)
	kill()
	publish(10)
	arrived(sent)
	stop()
	list, err := st.Deliveries(t.Context(), store.DeliveryFilter{WorkspaceID: 1})
	require.NoError(t, err)
	require.Len(t, list, 12*sent)
	for _, delivery := range list {
		require.Equal(t, webhook.StatusDelivered, delivery.Status)
	}
}
