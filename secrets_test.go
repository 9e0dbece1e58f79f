package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/internal/canary"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

func TestNothingPrintsASecret(t *testing.T) {
	bubble(t, webhook.Config{}, func(w *world) {
		e, secret := w.endpoint(webhook.EndpointParams{})
		w.run()
		w.lastHit()
		_, second, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{})
		require.NoError(w, err)
		h := w.lastHit()
		asJSON, err := json.Marshal(map[string]any{"s": secret, "d": w.delivery(h.delivery), "a": w.attempts(h.delivery)})
		require.NoError(w, err)
		text := []byte(w.log.String() + string(asJSON))
		for _, s := range []webhook.Secret{secret, second} {
			require.Empty(w, canary.New("secret", s.Reveal()).In(text))
		}
		require.NotContains(w, string(text), h.header.Get("X-Elido-Signature"))
	})
}

// Whatever of ours holds a secret can be printed.
func TestNoStructOfOursPrintsItsSecrets(t *testing.T) {
	const raw = `whsec_c4nary+T0k3n/"<&>\'=of32bytes`
	secret := webhook.NewSecret(raw)
	c := canary.New("secret", raw)
	key := canary.New("key", "k3y-"+raw[:28])
	keys := webhook.Keyring{Current: "k1", Keys: map[string]webhook.Secret{"k1": webhook.NewSecret("k3y-" + raw[:28])}}
	params := webhook.EndpointParams{WorkspaceID: workspace, URL: "https://example.com/", Events: []string{"link.*"}, Secret: secret}
	scheme := hostScheme(func(webhook.Secret) (webhook.SignFunc, error) { return nil, errors.New(secret.String()) })
	config := webhook.Config{Keys: keys, Logger: quiet(), Signer: webhook.Signer{Schemes: []webhook.Scheme{scheme, webhook.ElidoV1}},
		Egress: webhook.Egress{Transport: &network{}}}
	d, err := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{Keys: keys, Logger: quiet(), Egress: config.Egress})
	require.NoError(t, err)
	e, _, err := d.CreateEndpoint(t.Context(), params)
	require.NoError(t, err)
	_, err = d.RunOnce(t.Context())
	require.NoError(t, err)
	sign, err := webhook.ElidoV1.Prepare(secret, secret)
	require.NoError(t, err)
	sealed := d.SealCredentials(secret, workspace, 1)
	for name, v := range map[string]any{
		"EndpointParams": params,
		"ImportParams":   webhook.ImportParams{EndpointParams: params, Previous: secret},
		"RotateOptions":  webhook.RotateOptions{Secret: secret},
		"Config":         config,
		"Keyring":        keys,
		"Signer":         config.Signer,
		"SignFunc":       sign,
		"Dispatcher":     d,
		"Endpoint":       e,
		"Message":        webhook.Message{EventID: "evt_1"},
		"Sealed":         sealed,
		"Lease":          store.Lease{Target: &store.Target{Secrets: store.Secrets{Current: store.Sealed{Data: secret}}}},
		"InvalidError":   &webhook.InvalidError{Field: "secret", Rule: fmt.Sprint(secret)},
	} {
		for _, v := range []any{v, &v, []any{v}, map[string]any{"a": v}, struct{ v any }{v}} {
			var b bytes.Buffer
			for _, f := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%U", "%c", "%t", "%e", "%+q", "%#x", "% x"} {
				fmt.Fprintf(&b, f, v)
			}
			for _, h := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
				slog.New(h).Info("", "v", v)
			}
			_ = json.NewEncoder(&b).Encode(v)
			require.Empty(t, c.In(b.Bytes()), name)
			require.Empty(t, key.In(b.Bytes()), name)
		}
	}
	require.Empty(t, c.In([]byte(sealed.Data.Reveal())), "what is sealed is encrypted")
}

// Who moves an endpoint to another host must not be able to send there what was
// meant for the old one.
func TestAMovedEndpointLosesHeadersAndCredentials(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return memorystore.New(memorystore.Options{}) },
		"sqlite": func(t *testing.T) store.Store {
			st, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "webhooks.db"))
			require.NoError(t, err)
			t.Cleanup(func() { st.Close() })
			return st
		},
	} {
		for _, c := range []struct {
			from, to string
			moved    bool
		}{
			{"https://a.example/x", "https://a.example/y?z", false},
			{"https://a.example/x", "https://a.example:443/x", false},
			{"https://a.example/x", "HTTPS://A.Example/x", false},
			{"https://a.example/x", "https://b.example/x", true},
			{"https://a.example/x", "https://a.example.b.example/x", true},
			{"https://a.example/x", "https://www.a.example/x", true},
			{"https://a.example/x", "https://a.example:8443/x", true},
			{"https://a.example:8443/x", "https://a.example/x", true},
			{"https://localhost/x", "http://localhost/x", true},
			{"http://localhost:443/x", "https://localhost:443/x", true},
			{"https://localhost/x", "https://127.0.0.1/x", true},
			{"https://[2606:4700:4700::1111]/x", "https://[2606:4700:4700::1111]:443/y", false},
			{"https://[2606:4700:4700::1111]/x", "https://[2606:4700:4700::1112]/x", true},
		} {
			t.Run(name+"/"+c.from+" "+c.to, func(t *testing.T) {
				st := open(t)
				w := newWorld(t, st, webhook.Config{Egress: webhook.Egress{AllowLoopback: true}})
				secret := store.Sealed{Data: webhook.NewSecret("whsec_the-secret-of-the-endpoint")}
				credentials := store.Sealed{Data: webhook.NewSecret("the-credentials-of-the-channel")}
				e, err := st.CreateEndpoint(t.Context(), store.CreateEndpointParams{
					Endpoint: store.Endpoint{WorkspaceID: workspace, Kind: store.KindEvent, URL: c.from, Events: []string{"link.*"}, Active: true,
						Headers: map[string]string{"Authorization": "of the old host"}, CreatedAt: time.Now(), UpdatedAt: time.Now()},
					Seal: func(int64) (store.Secrets, error) {
						return store.Secrets{Current: secret, Credentials: credentials}, nil
					},
				})
				require.NoError(t, err)
				description := "something else"
				_, err = w.UpdateEndpoint(t.Context(), workspace, e.ID, webhook.EndpointUpdate{Description: &description})
				require.NoError(t, err)
				_, err = w.UpdateEndpoint(t.Context(), workspace, e.ID, webhook.EndpointUpdate{URL: &c.to})
				require.NoError(t, err)

				w.publish(webhook.Event{})
				now := time.Now().Add(time.Second)
				claim, err := st.Claim(t.Context(), store.ClaimParams{Now: now, LeaseParams: store.LeaseParams{
					Token: 1, Until: now.Add(time.Minute), Room: store.Room{Limit: 1, PerEndpoint: 1},
				}})
				require.NoError(t, err)
				require.Len(t, claim.Leases, 1)
				target := claim.Leases[0].Target
				require.True(t, target.Secrets.Current.Equal(secret), "the signing secret stays")
				if c.moved {
					require.Empty(t, target.Headers)
					require.True(t, target.Secrets.Credentials.IsZero())
				} else {
					require.Equal(t, "of the old host", target.Headers["Authorization"])
					require.True(t, target.Secrets.Credentials.Equal(credentials))
				}
			})
		}
	}
	// Headers that come with the new URL are for the new host.
	w := newWorld(t, memorystore.New(memorystore.Options{}), webhook.Config{})
	e, _ := w.endpoint(webhook.EndpointParams{Headers: map[string]string{"Authorization": "old"}})
	to := "https://b.example/"
	e, err := w.UpdateEndpoint(t.Context(), workspace, e.ID, webhook.EndpointUpdate{URL: &to, Headers: map[string]string{"X-New": "new"}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"X-New": "new"}, e.Headers)
}

// The value of a panic may hold what the function was asked about.
func TestPanickingCallbacksGiveNothingAway(t *testing.T) {
	const token = "c4nary-T0k3n-0f-a-panic"
	c := canary.New("token", token)
	w := newWorld(t, memorystore.New(memorystore.Options{}), webhook.Config{
		AllowEndpoint: func(_ context.Context, p webhook.EndpointParams) error {
			if p.Description == "panic" {
				panic(fmt.Sprintf("no: %s %s", p.URL, p.Secret.Reveal()))
			}
			return nil
		},
		AllowPublish: func(_ context.Context, events []webhook.Event) error { panic(fmt.Errorf("no: %s", events[0].Data)) },
	})
	w.endpoint(webhook.EndpointParams{})
	_, _, err := w.CreateEndpoint(t.Context(), webhook.EndpointParams{
		WorkspaceID: workspace, URL: "https://example.com/" + token, Events: []string{"link.*"}, Secret: webhook.NewSecret(token + token), Description: "panic",
	})
	require.EqualError(t, err, "webhook: Config.AllowEndpoint panicked")
	require.ErrorContains(t, errors.Unwrap(err), "no: https://example.com/", "but there it is, for who asks")
	_, err = w.Publish(t.Context(), webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: json.RawMessage(`{"id":"` + token + `"}`)})
	require.EqualError(t, err, "webhook: Config.AllowPublish panicked")
	require.Equal(t, 2, strings.Count(w.log.String(), "webhook: panic in Config.Allow"))
	require.Contains(t, w.log.String(), "secrets_test.go", "a stack to go by")
	require.Empty(t, c.In([]byte(w.log.String())))
	list, err := w.Endpoints(t.Context(), workspace, 0, 0)
	require.NoError(t, err)
	require.Len(t, list, 1)
}

// A scheme's error must not hold the secret. If it does all the same, it is not
// shown.
func TestASchemesErrorGivesNothingAway(t *testing.T) {
	wrong := false
	scheme := hostScheme(func(s webhook.Secret) (webhook.SignFunc, error) {
		if wrong {
			return nil, fmt.Errorf("%q is of no use", strings.TrimPrefix(s.Reveal(), "whsec_"))
		}
		return func(http.Header, webhook.Message) {}, nil
	})
	st := memorystore.New(memorystore.Options{})
	config := webhook.Config{Signer: webhook.Signer{Schemes: []webhook.Scheme{scheme}}}
	w := newWorld(t, st, config)
	e, secret := w.endpoint(webhook.EndpointParams{})
	id := w.publish(webhook.Event{}).DeliveryIDs[0]
	wrong = true
	_, err := w.RunOnce(t.Context())
	require.NoError(t, err)
	_, _, rotated := w.RotateSecret(t.Context(), workspace, e.ID, webhook.RotateOptions{Secret: secret})
	invalid(t, rotated, "secret")
	_, _, created := w.CreateEndpoint(t.Context(), webhook.EndpointParams{WorkspaceID: workspace, URL: "https://example.com/", Events: []string{"link.*"}, Secret: secret})
	invalid(t, created, "secret")
	text := fmt.Sprint(w.log, rotated, created, string(w.delivery(id).LastError))
	require.Empty(t, canary.New("secret", secret.Reveal()).In([]byte(text)))
	require.Contains(t, string(w.delivery(id).LastError), "the signature scheme refuses the secret")
}

// A receiver that repeats what it was sent does not bring it into the log.
func TestEchoesAreStoredWithoutWhatIsConfidential(t *testing.T) {
	secret := webhook.NewSecret("whsec_Zm9yIHRoZSBsb3ZlIG9mIGdvZCBkbyBub3QgbG9nIHRoaXM=")
	canaries := []*canary.Canary{
		canary.New("secret", secret.Reveal()), canary.New("path", "T0k3n-in-the-path"), canary.New("query", "t0k3n-in-the-Query"),
		canary.New("header", "t0k3n+/in-a-header=="), canary.New("password", "hunter2-hunter2"),
	}
	for name, echo := range map[string]func(head, body string) string{
		"raw": func(head, body string) string { return head + body },
		"JSON": func(head, body string) string {
			b, _ := json.Marshal(map[string]string{"head": head, "body": body})
			return string(b)
		},
		"Go":      func(head, body string) string { return fmt.Sprintf("%q", head) },
		"HTML":    func(head, _ string) string { return "<pre>" + html.EscapeString(head) + "</pre>" },
		"the key": func(string, string) string { return "signature mismatch; expected one made with " + secret.Reveal() },
		"the key without its prefix": func(string, string) string {
			return `{"key":"` + strings.TrimPrefix(secret.Reveal(), "whsec_") + `"}`
		},
		"cut": func(head, _ string) string { return strings.Repeat("x", 16<<10-len(head)/2) + head + head },
	} {
		t.Run(name, func(t *testing.T) {
			var head, answer string
			r := &socket{}
			r.serve(t, nil, func(c net.Conn) {
				raw := readRequest(c)
				head, _, _ = strings.Cut(raw, "\r\n\r\n")
				_, body, _ := strings.Cut(raw, "\r\n\r\n")
				answer = echo(head, body)
				fmt.Fprintf(c, "HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
			})
			w := outside(t, webhook.Config{Signer: webhook.Signer{Schemes: []webhook.Scheme{webhook.ElidoV1, webhook.ElidoTimed, webhook.StandardWebhooks}}})
			e, _ := w.endpoint(webhook.EndpointParams{
				URL: "http://" + r.host + "/hooks/T0k3n-in-the-path/in?key=t0k3n-in-the-Query&plain=word", Secret: secret,
				Headers: map[string]string{"Authorization": "Bearer t0k3n+/in-a-header==", "X-Api-Key": "hunter2-hunter2", "X-Tenant": "acme"},
			})
			_, _, err := w.RotateSecret(t.Context(), workspace, e.ID, webhook.RotateOptions{}) // so that there is a previous signature
			require.NoError(t, err)
			id := w.publish(webhook.Event{}).DeliveryIDs[0]
			_, err = w.RunOnce(t.Context())
			require.NoError(t, err)
			a := w.attempts(id)[0]
			require.NotEmpty(t, a.Response)
			require.NotEqual(t, answer, string(a.Response))
			require.Contains(t, string(a.Response), "[redacted]")
			for _, c := range canaries {
				require.Empty(t, c.In(a.Response), c)
				require.Empty(t, c.In([]byte(w.log.String())), c)
			}
			for line := range strings.SplitSeq(head, "\r\n") {
				header, value, _ := strings.Cut(line, ": ")
				if strings.Contains(header, "Signature") {
					for word := range strings.FieldsFuncSeq(value, func(r rune) bool { return strings.ContainsRune(" ,=", r) }) {
						require.False(t, len(word) > 20 && bytes.Contains(a.Response, []byte(word)), "%s: %s", header, word)
					}
				}
			}
			if name == "raw" { // the rest is there to be read
				for _, rest := range []string{"X-Tenant: acme", "X-Webhook-Timestamp: " + a.Headers["X-Webhook-Timestamp"], `"data":{"id":91834}`, "X-Elido-Signature: [redacted]"} {
					require.Contains(t, string(a.Response), rest)
				}
			}
			require.LessOrEqual(t, len(a.Response), 16<<10)
		})
	}
}

// readRequest reads one request as it came.
func readRequest(c net.Conn) string {
	var raw bytes.Buffer
	req, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, &raw)))
	if err == nil {
		_, _ = io.Copy(io.Discard, req.Body)
	}
	return raw.String()
}
