package interop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

const workspace = 42

// All receivers are told the same and have to say the same.
func TestReceivers(t *testing.T) {
	for _, r := range receivers {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			newSender(t, r).wholeLife()
		})
	}
}

// sender is a Dispatcher on SQLite with one endpoint, and the receiver there.
type sender struct {
	*testing.T
	*webhook.Dispatcher
	kind     receiver
	env      []string // of the receiver, but for its secret
	running  *process
	endpoint int64
	secret   string
	link     int // the id of the last link that an event was about
}

func newSender(t *testing.T, kind receiver) *sender {
	st, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "webhooks.db"))
	require.NoError(t, err)
	t.Cleanup(func() { st.Close() })
	d, err := webhook.New(st, webhook.Config{
		Egress: webhook.Egress{AllowLoopback: true},
		Retry:  webhook.RetryPolicy{Delays: []time.Duration{20 * time.Millisecond, 20 * time.Millisecond}},
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	s := &sender{T: t, Dispatcher: d, kind: kind}
	s.env = []string{"WEBHOOK_DB=" + filepath.Join(t.TempDir(), "receiver.db")}

	// Nobody listens there; where the receiver listens is known once it runs.
	e, secret, err := d.CreateEndpoint(t.Context(), webhook.EndpointParams{
		WorkspaceID: workspace, URL: "http://127.0.0.1:1/webhooks", Events: []string{"link.*"},
	})
	require.NoError(t, err)
	s.endpoint, s.secret = e.ID, secret.Reveal()
	return s
}

// restart starts the receiver, again if it runs, and points the endpoint there.
func (s *sender) restart(secrets string, env ...string) {
	s.Helper()
	if s.running != nil {
		s.running.stop()
	}
	s.running = s.kind.start(s.T, append(append(env, s.env...), "WEBHOOK_SECRET="+secrets)...)
	_, err := s.UpdateEndpoint(s.Context(), workspace, s.endpoint, webhook.EndpointUpdate{URL: &s.running.url})
	require.NoError(s, err)
}

// publish publishes an event with a title and waits for the end of its delivery.
func (s *sender) publish(workspaceID int64, title string) webhook.Delivery {
	s.Helper()
	// As a publisher may have it: spaces, a number no double holds, characters
	// that JSON encoders like to escape, and some that they need not have.
	s.link++
	data := fmt.Sprintf(`{ "id" : 1234567890123456%03d,"price":49.50, "empty":"", "escaped":"\u00e9\/", "title":%s}`, s.link, quote(title))
	receipt, err := s.Publish(s.Context(), webhook.Event{Type: "link.created", WorkspaceID: workspaceID, Data: json.RawMessage(data)})
	require.NoError(s, err)
	require.Len(s, receipt.DeliveryIDs, 1)
	return s.settled(workspaceID, receipt.DeliveryIDs[0])
}

func (s *sender) settled(workspaceID, id int64) webhook.Delivery {
	s.Helper()
	var v webhook.Delivery
	require.Eventually(s, func() bool {
		var err error
		v, err = s.Delivery(s.Context(), workspaceID, id)
		require.NoError(s, err)
		return v.Status != webhook.StatusPending
	}, 10*time.Second, 5*time.Millisecond, "the delivery is still pending")
	return v
}

// again retries a delivery by hand.
func (s *sender) again(id int64) {
	s.Helper()
	_, err := s.Retry(s.Context(), workspace, id)
	require.NoError(s, err)
	require.Equal(s, webhook.StatusDelivered, s.settled(workspace, id).Status)
}

// answers returns the status of each attempt.
func (s *sender) answers(workspaceID, id int64) []int {
	s.Helper()
	attempts, err := s.Attempts(s.Context(), workspaceID, id)
	require.NoError(s, err)
	var codes []int
	for _, a := range attempts {
		codes = append(codes, a.Status)
	}
	return codes
}

// reports waits for the receiver's next line, which has to be about a delivery.
func (s *sender) reports(id int64, duplicate bool) line {
	s.Helper()
	l := s.running.next()
	require.Equal(s, strconv.FormatInt(id, 10), l.Delivery)
	require.Equal(s, duplicate, l.Duplicate, "duplicate")
	require.Equal(s, "link.created", l.Type)
	return l
}

func (s *sender) wholeLife() {
	const title = `Frühling 春 🌱 <b>"1" & '2'</b> \ / ` + "\u2028\x7f"
	s.restart(s.secret, "FAIL_FIRST=1")

	// Work that failed is not remembered as done: the second attempt does it.
	v := s.publish(workspace, title)
	require.Equal(s, webhook.StatusDelivered, v.Status)
	require.Equal(s, []int{500, 200}, s.answers(workspace, v.ID))
	require.Equal(s, title, s.reports(v.ID, false).Data.Title)

	// Nothing in the way.
	v = s.publish(workspace, title)
	require.Equal(s, []int{200}, s.answers(workspace, v.ID))
	require.Equal(s, title, s.reports(v.ID, false).Data.Title)
	require.Contains(s, string(v.Payload), `{ "id" : 1234567890123456002,"price":49.50, "empty":"", "escaped":"\u00e9\/",`)

	// A retry by hand has the same id: acknowledged, and not worked on again.
	s.again(v.ID)
	require.Equal(s, []int{200, 200}, s.answers(workspace, v.ID))
	s.reports(v.ID, true)

	// Another endpoint, whose secret the receiver does not know.
	_, _, err := s.CreateEndpoint(s.Context(), webhook.EndpointParams{
		WorkspaceID: workspace + 1, URL: s.running.url, Events: []string{"link.*"},
	})
	require.NoError(s, err)
	refused := s.publish(workspace+1, title)
	require.Equal(s, webhook.StatusFailed, refused.Status)
	require.Equal(s, []int{401, 401, 401}, s.answers(workspace+1, refused.ID))

	// The secret is replaced while the receiver has the old one alone, which
	// by now signs X-Elido-Signature-Previous.
	_, replaced, err := s.RotateSecret(s.Context(), workspace, s.endpoint, webhook.RotateOptions{})
	require.NoError(s, err)
	last := s.publish(workspace, "signed twice")
	require.Equal(s, []int{200}, s.answers(workspace, last.ID))
	s.reports(last.ID, false)

	s.forge(s.secret)

	// It is started anew with the new secret, beside one that signs nothing.
	s.secret = replaced.Reveal()
	s.restart("whsec_of-another-endpoint-of-ours " + s.secret)
	v = s.publish(workspace, "signed with the new one")
	require.Equal(s, []int{200}, s.answers(workspace, v.ID))
	s.reports(v.ID, false)
	s.again(last.ID)
	s.reports(last.ID, s.kind.durable) // whether it has outlived the process

	s.running.stop()
	require.Empty(s, s.running.rest(), "nothing was handled that should not have been")
}

// quote returns s as a JSON string without any escapes that it could do without.
func quote(s string) string {
	b := []byte{'"'}
	for _, r := range s {
		if r == '"' || r == '\\' {
			b = append(b, '\\')
		}
		b = append(b, string(r)...)
	}
	return string(append(b, '"'))
}
