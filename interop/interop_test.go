package interop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	memorystore "github.com/elido-app/webhook/store_memory"
	"github.com/elido-app/webhook/verify"
)

// dispatchers are set up in each way that a vendor's library can verify. Verified
// says which can.
var dispatchers = []struct {
	name     string
	config   func() webhook.Config
	verified []string
}{
	{"Elido-Signature", schemes(webhook.ElidoTimed), []string{"stripe"}},
	{"Standard Webhooks", schemes(webhook.StandardWebhooks), []string{"standardwebhooks"}},
	{"all schemes at once", schemes(webhook.ElidoV1, webhook.ElidoTimed, webhook.StandardWebhooks), []string{"stripe", "standardwebhooks"}},
	{"the extended profile", webhook.ExtendedProfile, []string{"stripe"}},
}

func schemes(list ...webhook.Scheme) func() webhook.Config {
	return func() webhook.Config { return webhook.Config{Signer: webhook.Signer{Schemes: list}} }
}

// What is sent is verified with exactly the secrets that are in use, and not with
// a byte more.
func TestVendorsLibrariesVerifyDeliveries(t *testing.T) {
	for language, start := range receivers {
		t.Run(language, func(t *testing.T) {
			r := start(t)
			for _, d := range dispatchers {
				t.Run(d.name, func(t *testing.T) {
					s := newSender(t, &receiver{t, r.url}, d.verified, d.config(), webhook.Secret{})
					first := s.deliver(0)

					s.rotate(webhook.RotateOptions{})
					s.deliver(0, 1)
					s.rotate(webhook.RotateOptions{}) // within the overlap
					s.deliver(1, 2)
					s.again(first, 1, 2) // signed afresh

					s.rotate(webhook.RotateOptions{NoOverlap: true})
					s.deliver(3)

					// An overlap that ends by itself, and a secret brought along.
					config := d.config()
					config.Signer.Overlap = time.Millisecond
					s = newSender(t, s.receiver, d.verified, config, webhook.NewSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
					s.deliver(0)
					e := s.rotate(webhook.RotateOptions{})
					for !time.Now().After(e.PreviousUntil) {
						time.Sleep(time.Millisecond)
					}
					s.deliver(1)
				})
			}
		})
	}
}

// What vendors' libraries sign, package verify takes.
func TestVerifyTakesWhatVendorsLibrariesSign(t *testing.T) {
	const secret, stranger = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	for language, start := range receivers {
		t.Run(language, func(t *testing.T) {
			r := start(t)
			v, err := verify.New(secret)
			require.NoError(t, err)
			body := fmt.Sprintf(`{"type":"link.created","data":%s}`, data)
			for _, library := range []string{"stripe", "standardwebhooks"} {
				h := r.sign(library, secret, body)
				require.NoError(t, v.Verify(h, []byte(body)), library)
				require.ErrorIs(t, v.Verify(h, []byte(body+" ")), verify.ErrSignature, library)
				require.ErrorIs(t, v.Verify(r.sign(library, stranger, body), []byte(body)), verify.ErrSignature, library)
			}
		})
	}
}

const workspace = 42

// data is an event's, with characters that not everybody writes in one way. It has
// an object, as all of Stripe's have: without one stripe-go verifies the signature
// all the same (ValidatePayload), but makes no event of it (ConstructEvent).
const data = `{"object":{"id":12345678901234567890,"price":49.50,"title":"Frühling 春 🌱 <&> \u00e9\/"}}`

// sender is a Dispatcher that delivers to one receiver.
type sender struct {
	*receiver
	*webhook.Dispatcher
	verified []string
	endpoint int64
	secrets  []string // the newest last
	finished chan webhook.AttemptFinished
}

func newSender(t *testing.T, r *receiver, verified []string, config webhook.Config, secret webhook.Secret) *sender {
	t.Helper()
	s := &sender{receiver: r, verified: verified, finished: make(chan webhook.AttemptFinished, 100)}
	config.Egress.AllowLoopback = true
	config.Logger = slog.New(slog.DiscardHandler)
	config.Observer = webhook.ObserverFunc(func(_ context.Context, n webhook.Notice) {
		if a, ok := n.(webhook.AttemptFinished); ok {
			s.finished <- a
		}
	})
	var err error
	s.Dispatcher, err = webhook.New(memorystore.New(memorystore.Options{}), config)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	e, secret, err := s.CreateEndpoint(t.Context(), webhook.EndpointParams{
		WorkspaceID: workspace, URL: r.url + "/hooks", Events: []string{"link.*"}, Secret: secret,
	})
	require.NoError(t, err)
	s.endpoint, s.secrets = e.ID, []string{secret.Reveal()}
	return s
}

func (s *sender) rotate(o webhook.RotateOptions) webhook.Endpoint {
	s.Helper()
	e, secret, err := s.RotateSecret(s.Context(), workspace, s.endpoint, o)
	require.NoError(s, err)
	s.secrets = append(s.secrets, secret.Reveal())
	return e
}

// deliver publishes an event, and checks that the receiver's libraries accept it
// with the secrets of the given numbers alone.
func (s *sender) deliver(valid ...int) (delivery int64) {
	s.Helper()
	s.trustAll()
	r, err := s.Publish(s.Context(), webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: json.RawMessage(data)})
	require.NoError(s, err)
	s.check(r.DeliveryIDs[0], valid)
	return r.DeliveryIDs[0]
}

// again retries a delivery by hand, and checks that attempt.
func (s *sender) again(delivery int64, valid ...int) {
	s.Helper()
	s.trustAll()
	_, err := s.Retry(s.Context(), workspace, delivery)
	require.NoError(s, err)
	s.check(delivery, valid)
}

const stranger = "another endpoint's"

func (s *sender) trustAll() {
	s.Helper()
	all := map[string]string{stranger: "whsec_" + strings.Repeat("c3RyYW5nZXIu", 3)}
	for i, secret := range s.secrets {
		all[number(i)] = secret
	}
	s.trust(all)
}

func number(i int) string { return fmt.Sprintf("secret %d", i) }

func (s *sender) check(delivery int64, valid []int) {
	s.Helper()
	select {
	case a := <-s.finished:
		require.Equal(s, delivery, a.DeliveryID)
		require.Equal(s, webhook.StatusDelivered, a.Status, a.Error)
	case <-time.After(time.Minute):
		require.Fail(s, "nothing was delivered")
	}
	attempts, err := s.Attempts(s.Context(), workspace, delivery)
	require.NoError(s, err)
	var got verdicts
	require.NoError(s, json.Unmarshal(attempts[len(attempts)-1].Response, &got))
	require.Len(s, got, len(s.verified))
	for _, library := range s.verified {
		accepted := map[string]string{}
		for which, verdict := range got[library] {
			if !strings.HasPrefix(verdict, "refused: ") {
				accepted[which] = verdict
			}
		}
		want := map[string]string{}
		for _, i := range valid {
			want[number(i)] = "link.created"
		}
		require.Equal(s, want, accepted, "%s: %v", library, got[library])
		require.Len(s, got[library], 2*(len(s.secrets)+1), "each secret was tried, and each once with another body")
	}
}
