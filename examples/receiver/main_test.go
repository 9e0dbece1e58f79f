package main

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	memorystore "github.com/elido-app/webhook/store_memory"
	"github.com/elido-app/webhook/verify"
)

func TestReceiverGetsEachDeliveryOnce(t *testing.T) {
	ctx := context.Background()
	d, err := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{Egress: webhook.Egress{AllowLoopback: true}})
	require.NoError(t, err)
	secret := webhook.NewSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	got := make(chan verify.Event, 10)
	handler, err := newHandler(func(e verify.Event) { got <- e }, secret.Reveal())
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	defer server.Close()
	_, _, err = d.CreateEndpoint(ctx, webhook.EndpointParams{WorkspaceID: 42, URL: server.URL, Events: []string{"link.*"}, Secret: secret})
	require.NoError(t, err)

	receipt, err := d.Publish(ctx, webhook.Event{Type: "link.created", WorkspaceID: 42, Data: map[string]any{"id": 1}})
	require.NoError(t, err)
	_, err = d.RunOnce(ctx)
	require.NoError(t, err)
	require.JSONEq(t, `{"id":1}`, string((<-got).Data))

	_, err = d.Retry(ctx, 42, receipt.DeliveryIDs[0]) // the same delivery again
	require.NoError(t, err)
	_, err = d.RunOnce(ctx)
	require.NoError(t, err)
	delivery, err := d.Delivery(ctx, 42, receipt.DeliveryIDs[0])
	require.NoError(t, err)
	require.Equal(t, webhook.StatusDelivered, delivery.Status)
	require.Equal(t, 2, delivery.TotalAttempts)
	require.Empty(t, got, "acknowledged, and not handed on a second time")
}
