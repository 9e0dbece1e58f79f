package postgresstore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
)

// createEndpoint stores an active endpoint of workspace 1 that wants link.created.
func createEndpoint(t testing.TB, st store.Store) store.Endpoint {
	t.Helper()
	e, err := st.CreateEndpoint(t.Context(), store.CreateEndpointParams{Endpoint: store.Endpoint{
		WorkspaceID: 1, Kind: store.KindEvent, URL: "https://example.com/", Events: []string{"link.created"}, Active: true,
	}})
	require.NoError(t, err)
	return e
}

func event(id string) store.NewEvent {
	return store.NewEvent{
		ID: id, WorkspaceID: 1, Type: "link.created", Matches: []string{"link.created", "link.*"},
		OccurredAt: time.UnixMilli(1000), Payload: []byte(`{"id":1}`), Budget: 3,
	}
}

func publish(ctx context.Context, p store.Publisher, ids ...string) (store.PublishResult, error) {
	params := store.PublishParams{Now: time.UnixMilli(1000)}
	for _, id := range ids {
		params.Events = append(params.Events, event(id))
	}
	return p.Publish(ctx, params)
}

// mustPublish publishes events and returns the ids of their deliveries.
func mustPublish(t testing.TB, p store.Publisher, ids ...string) (deliveries []int64) {
	t.Helper()
	r, err := publish(t.Context(), p, ids...)
	require.NoError(t, err)
	for _, receipt := range r.Receipts {
		deliveries = append(deliveries, receipt.DeliveryIDs...)
	}
	return deliveries
}

// room is room for n leases, until a minute after now.
func room(token int64, now time.Time, n int) store.ClaimParams {
	return store.ClaimParams{Now: now, LeaseParams: store.LeaseParams{
		Token: token, Until: now.Add(time.Minute), Room: store.Room{Limit: n, PerEndpoint: n},
	}}
}

func listed(t testing.TB, st store.Store) (ids []string) {
	t.Helper()
	list, err := st.Deliveries(t.Context(), store.DeliveryFilter{WorkspaceID: 1})
	require.NoError(t, err)
	for _, d := range list {
		ids = append(ids, d.EventID)
	}
	return ids
}
