package unittest

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// receivers answers in place of the network.
type receivers func(*http.Request) (*http.Response, error)

func (f receivers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// newWebhooks returns a Dispatcher on a new memory store, with one endpoint that
// wants everything.
func newWebhooks(t *testing.T, answer receivers) *webhook.Dispatcher {
	d, err := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{
		Egress: webhook.Egress{Transport: answer},
	})
	require.NoError(t, err)
	_, _, err = d.CreateEndpoint(t.Context(), webhook.EndpointParams{
		WorkspaceID: 42, Kind: webhook.KindSIEM, URL: "https://customer.example/hooks",
	})
	require.NoError(t, err)
	return d
}

// The most common test: was the right event published? The log says it; nothing
// has to be delivered.
func TestDeletePublishes(t *testing.T) {
	d := newWebhooks(t, nil)
	links := &Links{Webhooks: d}
	require.NoError(t, links.Delete(t.Context(), 42, 7, "secret"))

	page, err := d.Deliveries(t.Context(), webhook.DeliveryQuery{WorkspaceID: 42})
	require.NoError(t, err)
	require.Len(t, page.Deliveries, 1)
	require.Equal(t, "link.deleted", page.Deliveries[0].EventType)
	require.Contains(t, string(page.Deliveries[0].Payload), `"data":{"id":7}`)
}

// RunOnce delivers on the test's own goroutine.
func TestDeleteIsDelivered(t *testing.T) {
	var got *http.Request
	d := newWebhooks(t, func(r *http.Request) (*http.Response, error) {
		got = r
		return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
	})
	links := &Links{Webhooks: d}
	require.NoError(t, links.Delete(t.Context(), 42, 7, "secret"))

	n, err := d.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, "link.deleted", got.Header.Get("X-Webhook-Event"))
}

// In a synctest bubble the twenty minutes of a retry schedule take no time.
func TestOutageIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newWebhooks(t, func(*http.Request) (*http.Response, error) { return nil, errors.New("down") })
		links := &Links{Webhooks: d}
		require.NoError(t, links.Delete(t.Context(), 42, 7, "secret"))
		for range 3 {
			_, err := d.RunOnce(t.Context())
			require.NoError(t, err)
			time.Sleep(15 * time.Minute)
		}
		page, err := d.Deliveries(t.Context(), webhook.DeliveryQuery{WorkspaceID: 42, Status: webhook.StatusFailed})
		require.NoError(t, err)
		require.Len(t, page.Deliveries, 1)
		require.Equal(t, 3, page.Deliveries[0].Attempts)
	})
}
