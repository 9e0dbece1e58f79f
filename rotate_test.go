package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/verify"
)

// elido signs as the documentation says, with nothing of ours.
func elido(secret webhook.Secret, h hit) string {
	mac := hmac.New(sha256.New, []byte(secret.Reveal()))
	mac.Write([]byte(h.header.Get("X-Webhook-Timestamp") + "." + h.body))
	return "v1=" + hex.EncodeToString(mac.Sum(nil))
}

// lastHit publishes and returns the one request that followed.
func (w *world) lastHit() hit {
	w.Helper()
	w.net.reset()
	w.publish(webhook.Event{})
	w.settle()
	hits := w.net.all()
	require.Len(w, hits, 1)
	return hits[0]
}

const overlap = 7 * 24 * time.Hour

func TestSignaturesMatchTheKnownGoodOnes(t *testing.T) {
	raw, err := os.ReadFile("testdata/signature-vectors.json")
	require.NoError(t, err)
	var vectors []struct {
		Name, Secret, Timestamp string
		DeliveryID              string `json:"delivery_id"`
		Body                    []byte `json:"body_base64"`
		Elido                   string `json:"elido_signature"`
		Timed                   string `json:"stripe_style_signature"`
		Standard                string `json:"standard_webhooks_signature"`
	}
	require.NoError(t, json.Unmarshal(raw, &vectors))
	require.NotEmpty(t, vectors)
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			var unix, id int64
			fmt.Sscan(v.Timestamp, &unix)
			fmt.Sscan(v.DeliveryID, &id)
			m := webhook.Message{DeliveryID: id, EventID: "evt_1", Attempt: 2, Time: time.Unix(unix, 999e6), Body: v.Body}
			h := http.Header{}
			for _, scheme := range []webhook.Scheme{webhook.ElidoV1, webhook.ElidoTimed, webhook.StandardWebhooks} {
				sign, err := scheme.Prepare(webhook.NewSecret(v.Secret), webhook.Secret{})
				require.NoError(t, err)
				sign(h, m)
			}
			require.Equal(t, v.Elido, h.Get("X-Elido-Signature"))
			require.Equal(t, v.Elido, h.Get("X-Webhook-Signature"))
			require.Equal(t, v.Timestamp, h.Get("X-Webhook-Timestamp"))
			require.Equal(t, v.Timed, h.Get("Elido-Signature"))
			require.Equal(t, "evt_1", h.Get("Elido-Webhook-Id"))
			require.Equal(t, "2", h.Get("Elido-Delivery-Attempt"))
			require.Equal(t, v.Standard, h.Get("webhook-signature"))
			require.Equal(t, v.DeliveryID, h.Get("webhook-id"))
		})
	}
}

func TestGeneratedSecretIs32BytesInBase64(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		_, secret := w.endpoint(webhook.EndpointParams{})
		rest, ok := strings.CutPrefix(secret.Reveal(), "whsec_")
		require.True(w, ok)
		raw, err := base64.StdEncoding.DecodeString(rest)
		require.NoError(w, err)
		require.Len(w, raw, 32)
		_, other := w.endpoint(webhook.EndpointParams{})
		require.NotEqual(w, secret.Reveal(), other.Reveal())
	})
}

func TestOldSecretSignsUntilExactlySevenDaysAfterRotation(t *testing.T) {
	bubble(t, webhook.Config{Poll: time.Minute}, func(w *world) {
		e, old := w.endpoint(webhook.EndpointParams{})
		w.run()
		h := w.lastHit()
		require.Equal(w, elido(old, h), h.header.Get("X-Elido-Signature"))
		require.NotContains(w, h.header, "X-Elido-Signature-Previous")

		rotated, secret, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{})
		require.NoError(w, err)
		require.Equal(w, 1, rotated.Rotations)
		require.Equal(w, time.Now().Add(overlap).UnixMilli(), rotated.PreviousUntil.UnixMilli())
		for _, wait := range []time.Duration{0, overlap - time.Millisecond} {
			time.Sleep(wait)
			h = w.lastHit()
			require.Equal(w, elido(secret, h), h.header.Get("X-Elido-Signature"))
			require.Equal(w, elido(secret, h), h.header.Get("X-Webhook-Signature"))
			require.Equal(w, elido(old, h), h.header.Get("X-Elido-Signature-Previous"))
			// A receiver that still has the old secret accepts it.
			v, err := verify.New(old.Reveal())
			require.NoError(w, err)
			require.NoError(w, v.Verify(h.header, []byte(h.body)))
		}
		time.Sleep(time.Millisecond)
		h = w.lastHit()
		require.Equal(w, elido(secret, h), h.header.Get("X-Elido-Signature"))
		require.NotContains(w, h.header, "X-Elido-Signature-Previous")
		w.settle()
		e, err = w.Endpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		require.True(w, e.PreviousUntil.IsZero(), "the old secret is erased when its time is over")
	})
}

// The end of an overlap does not wait for the housekeeping that erases the secret.
func TestAnOverlapEndsOnTimeWithoutHousekeeping(t *testing.T) {
	faultyBubble(t, webhook.Config{Poll: time.Minute}, func(w *world, f *faulty) {
		f.set(func(_ context.Context, call string) error {
			if call == "maintain" {
				return errors.New("the disk is full")
			}
			return nil
		}, nil)
		e, old := w.endpoint(webhook.EndpointParams{})
		_, _, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{})
		require.NoError(w, err)
		w.run()
		time.Sleep(overlap - time.Millisecond)
		h := w.lastHit()
		require.Equal(w, elido(old, h), h.header.Get("X-Elido-Signature-Previous"))
		time.Sleep(time.Millisecond)
		require.NotContains(w, w.lastHit().header, "X-Elido-Signature-Previous")
	})
}

func TestSecondRotationInsideAnOverlapDropsTheOldest(t *testing.T) {
	bubble(t, webhook.Config{Poll: time.Minute}, func(w *world) {
		e, first := w.endpoint(webhook.EndpointParams{})
		w.run()
		_, second, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{})
		require.NoError(w, err)
		w.sleep(3 * 24 * time.Hour)
		e, third, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{})
		require.NoError(w, err)
		require.Equal(w, time.Now().Add(overlap).UnixMilli(), e.PreviousUntil.UnixMilli(), "an overlap of its own")
		h := w.lastHit()
		require.Equal(w, elido(third, h), h.header.Get("X-Elido-Signature"))
		require.Equal(w, elido(second, h), h.header.Get("X-Elido-Signature-Previous"))
		require.NotContains(w, fmt.Sprint(h.header), elido(first, h))
		w.sleep(overlap - time.Second)
		require.Contains(w, w.lastHit().header, "X-Elido-Signature-Previous")
	})
}

func TestRotationThatSawAnOlderCountChangesNothing(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		seen := e.Rotations
		_, second, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{Seen: &seen})
		require.NoError(w, err)
		_, _, err = w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{Seen: &seen})
		require.ErrorIs(w, err, webhook.ErrConflict)
		h := w.lastHit()
		require.Equal(w, elido(second, h), h.header.Get("X-Elido-Signature"))

		// Two clicks at once: one wins.
		seen = 1
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, _, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{Seen: &seen})
				errs <- err
			}()
		}
		if err := errors.Join(<-errs, <-errs); true {
			require.ErrorIs(w, err, webhook.ErrConflict)
		}
		e, err = w.Endpoint(w.Context(), workspace, e.ID)
		require.NoError(w, err)
		require.Equal(w, 2, e.Rotations)
	})
}

func TestLeakedSecretDiesAtOnce(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		e, _ := w.endpoint(webhook.EndpointParams{})
		w.run()
		_, _, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{})
		require.NoError(w, err)
		own := webhook.NewSecret("a-secret-of-my-own-that-is-long")
		_, got, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{NoOverlap: true, Secret: own})
		require.NoError(w, err)
		require.True(w, got.Equal(own))
		h := w.lastHit()
		require.Equal(w, elido(own, h), h.header.Get("X-Elido-Signature"))
		require.NotContains(w, h.header, "X-Elido-Signature-Previous")
	})
}

func TestImportedEndpointOfBeforeTheCutOffHasNoFirstOverlap(t *testing.T) {
	cutOff := time.Date(2026, 9, 22, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name      string
		created   time.Time
		rotations int
		overlaps  bool
	}{
		{"before, never rotated", cutOff.Add(-time.Millisecond), 0, false},
		{"before, rotated once there", cutOff.Add(-time.Hour), 1, true},
		{"at the cut-off", cutOff, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, webhook.Config{}, func(w *world) {
				original := webhook.NewSecret("whsec_the-original-of-another-system")
				e, err := w.ImportEndpoint(w.Context(), webhook.ImportParams{
					EndpointParams: webhook.EndpointParams{WorkspaceID: workspace, URL: "https://example.com/", Events: []string{"link.*"}, Secret: original},
					ID:             7001, CreatedAt: c.created, Rotations: c.rotations,
				})
				require.NoError(w, err)
				require.Equal(w, int64(7001), e.ID)
				w.run()
				h := w.lastHit()
				require.Equal(w, elido(original, h), h.header.Get("X-Elido-Signature"))
				_, second, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{})
				require.NoError(w, err)
				h = w.lastHit()
				require.Equal(w, elido(second, h), h.header.Get("X-Elido-Signature"))
				if c.overlaps {
					require.Equal(w, elido(original, h), h.header.Get("X-Elido-Signature-Previous"))
				} else {
					require.NotContains(w, h.header, "X-Elido-Signature-Previous")
				}
				_, _, err = w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{})
				require.NoError(w, err)
				h = w.lastHit()
				require.Equal(w, elido(second, h), h.header.Get("X-Elido-Signature-Previous"), "from the second on it has one")
			})
		})
	}
	t.Run("created here", func(t *testing.T) { // the bubble's time is long before the cut-off
		bubble(t, webhook.Config{}, func(w *world) {
			e, _ := w.endpoint(webhook.EndpointParams{})
			e, _, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{})
			require.NoError(w, err)
			require.False(w, e.PreviousUntil.IsZero())
		})
	})
}

func TestImportedPreviousSecretSignsUntilItsEnd(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		previous := webhook.NewSecret("the-previous-secret-over-there")
		p := webhook.ImportParams{
			EndpointParams: webhook.EndpointParams{WorkspaceID: workspace, URL: "https://example.com/", Events: []string{"link.*"},
				Secret: webhook.NewSecret("the-current-secret-over-there")},
			ID: 5, CreatedAt: time.Now().Add(-time.Hour), Rotations: 1, Previous: previous, PreviousUntil: time.Now().Add(time.Minute),
		}
		_, err := w.ImportEndpoint(w.Context(), p)
		require.NoError(w, err)
		_, err = w.ImportEndpoint(w.Context(), p)
		require.ErrorIs(w, err, webhook.ErrConflict, "the id is taken")
		w.run()
		h := w.lastHit()
		require.Equal(w, elido(previous, h), h.header.Get("X-Elido-Signature-Previous"))
		w.sleep(time.Minute)
		require.NotContains(w, w.lastHit().header, "X-Elido-Signature-Previous")
	})
}

func TestSeveralSchemesSignOneRequestAlsoInAnOverlap(t *testing.T) {
	schemes := []webhook.Scheme{webhook.ElidoV1, webhook.ElidoTimed, webhook.StandardWebhooks}
	bubble(t, webhook.Config{Signer: webhook.Signer{Schemes: schemes}}, func(w *world) {
		e, old := w.endpoint(webhook.EndpointParams{})
		w.run()
		_, secret, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{})
		require.NoError(w, err)
		h := w.lastHit()
		require.Len(w, strings.Split(h.header.Get("Elido-Signature"), ","), 3)
		require.Len(w, strings.Fields(h.header.Get("webhook-signature")), 2)
		for _, s := range []webhook.Secret{old, secret} {
			for name := range map[string]string{"X-Elido": "", "Elido-": "", "Webhook-": ""} {
				header := h.header.Clone()
				for other := range header { // leave one scheme
					if strings.Contains(other, "Signature") && !strings.HasPrefix(other, name) {
						header.Del(other)
					}
				}
				v, err := verify.New(s.Reveal())
				require.NoError(w, err)
				require.NoError(w, v.Verify(header, []byte(h.body)), name)
			}
		}
		_, _, err = w.CreateEndpoint(w.Context(), webhook.EndpointParams{WorkspaceID: workspace, URL: "https://example.com/",
			Events: []string{"link.*"}, Secret: webhook.NewSecret("not base64, but long enough")})
		invalid(w, err, "secret")
	})
}

func TestSecretsAreEncryptedAndBoundToTheirEndpoint(t *testing.T) {
	keys := webhook.Keyring{Current: "k1", Keys: map[string]webhook.Secret{"k1": webhook.NewSecret(strings.Repeat("k", 32))}}
	bubble(t, webhook.Config{Keys: keys}, func(w *world) {
		e, old := w.endpoint(webhook.EndpointParams{})
		w.run()
		_, secret, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{})
		require.NoError(w, err)
		h := w.lastHit()
		require.Equal(w, elido(secret, h), h.header.Get("X-Elido-Signature"))
		require.Equal(w, elido(old, h), h.header.Get("X-Elido-Signature-Previous"))
		w.stop()

		// A process with another key can attempt nothing, and loses nothing.
		keys.Keys = map[string]webhook.Secret{"k1": webhook.NewSecret(strings.Repeat("x", 32))}
		other := newWorld(w.T, w.store, webhook.Config{Keys: keys})
		other.run()
		id := other.publish(webhook.Event{}).DeliveryIDs[0]
		other.sleep(time.Hour)
		require.Empty(w, other.net.all())
		d := other.delivery(id)
		require.Equal(w, webhook.StatusPending, d.Status)
		require.Equal(w, 0, d.Attempts)
		require.Contains(w, string(d.LastError), "does not decrypt")
		require.Positive(w, d.Interruptions)
		other.stop()
		w.net.reset()
		w.run()
		w.sleep(2 * time.Hour)
		require.Equal(w, webhook.StatusDelivered, w.delivery(id).Status)
	})
}
