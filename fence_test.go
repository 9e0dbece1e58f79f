package webhook_test

import (
	"context"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// gate is a resolver that answers once it is opened.
type gate struct {
	asked chan struct{}
	open  chan struct{}
}

func (g *gate) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	select {
	case g.asked <- struct{}{}:
	default:
	}
	select {
	case <-g.open:
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestNothingOldGoesOutAfterTheCallReturned holds a request at its name lookup
// while the endpoint is paused, rotated, deleted or moved: what was signed before
// must not go out any more, however long the dial takes.
func TestNothingOldGoesOutAfterTheCallReturned(t *testing.T) {
	for name, change := range map[string]func(w *world, e webhook.Endpoint) *webhook.Secret{
		"pause": func(w *world, e webhook.Endpoint) *webhook.Secret {
			_, err := w.PauseEndpoint(w.Context(), workspace, e.ID)
			require.NoError(w, err)
			return nil
		},
		"delete": func(w *world, e webhook.Endpoint) *webhook.Secret {
			require.NoError(w, w.DeleteEndpoint(w.Context(), workspace, e.ID))
			return nil
		},
		"rotate": func(w *world, e webhook.Endpoint) *webhook.Secret {
			_, secret, err := w.RotateSecret(w.Context(), workspace, e.ID, webhook.RotateOptions{NoOverlap: true})
			require.NoError(w, err)
			return &secret
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var hits []hit
			server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				hits = append(hits, hit{header: r.Header, body: string(body)})
			}))
			defer server.Close()
			roots := x509.NewCertPool()
			roots.AddCert(server.Certificate())
			g := &gate{asked: make(chan struct{}, 1), open: make(chan struct{})}
			w := newWorld(t, memorystore.New(memorystore.Options{}), webhook.Config{
				Logger: quiet(),
				Egress: webhook.Egress{AllowLoopback: true, RootCAs: roots, Resolver: g},
			})
			u, err := url.Parse(server.URL)
			require.NoError(t, err)
			e, _ := w.endpoint(webhook.EndpointParams{URL: "https://example.com:" + u.Port() + "/"})
			w.run()
			defer func() { w.stop() }()
			id := w.publish(webhook.Event{}).DeliveryIDs[0]
			<-g.asked
			secret := change(w, e)
			close(g.open)
			if secret == nil {
				time.Sleep(300 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				require.Empty(t, hits)
				return
			}
			require.Eventually(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(hits) > 0
			}, 10*time.Second, 5*time.Millisecond)
			require.Eventually(t, func() bool { return w.delivery(id).Status == webhook.StatusDelivered }, 10*time.Second, 5*time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, hits, 1)
			require.Equal(t, elido(*secret, hits[0]), hits[0].header.Get("X-Elido-Signature"))
			require.Equal(t, 1, w.delivery(id).TotalAttempts, "what was cut is not counted")
		})
	}
}
