package memorystore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
	"github.com/elido-app/webhook/store/storetest"
	memorystore "github.com/elido-app/webhook/store_memory"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memorystore.New(memorystore.Options{}) })
}

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(*testing.B) store.Store { return memorystore.New(memorystore.Options{}) })
}

// endpoint creates an endpoint that wants everything.
func endpoint(t testing.TB, st store.Store) store.Endpoint {
	e, err := st.CreateEndpoint(t.Context(), store.CreateEndpointParams{
		Endpoint: store.Endpoint{WorkspaceID: 1, Kind: store.KindSIEM, Active: true},
		Seal:     func(int64) (store.Secrets, error) { return store.Secrets{}, nil },
	})
	require.NoError(t, err)
	return e
}

func publish(t testing.TB, st store.Store, now time.Time, n int) store.PublishResult {
	events := make([]store.NewEvent, n)
	for i := range events {
		events[i] = store.NewEvent{ID: fmt.Sprint("evt_", i), WorkspaceID: 1, Type: "a.b", Payload: []byte("{}"), Budget: 3}
	}
	r, err := st.Publish(t.Context(), store.PublishParams{Events: events, Now: now})
	require.NoError(t, err)
	return r
}

func TestFirstDeliveryID(t *testing.T) {
	st := memorystore.New(memorystore.Options{FirstDeliveryID: 500})
	endpoint(t, st)
	require.Equal(t, []int64{500}, publish(t, st, time.Now(), 1).Receipts[0].DeliveryIDs)
	require.Equal(t, []int64{501}, publish(t, st, time.Now(), 1).Receipts[0].DeliveryIDs)
}

func TestDefaultFirstDeliveryID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memorystore.New(memorystore.Options{})
		started := time.Now()
		time.Sleep(time.Hour)
		endpoint(t, st)
		require.Equal(t, []int64{started.UnixMilli() * 1000}, publish(t, st, time.Now(), 1).Receipts[0].DeliveryIDs)
	})
}

// TestDeterministic: a store does the same for the same calls, so that what
// journals them can make them again.
func TestDeterministic(t *testing.T) {
	const endpoints = 20
	now := time.Date(2026, 9, 21, 9, 14, 2, 0, time.UTC)
	left := func() (ids []int64) {
		st := memorystore.New(memorystore.Options{FirstDeliveryID: 1})
		for range endpoints {
			endpoint(t, st)
		}
		publish(t, st, now, 2)
		lease := store.LeaseParams{Token: 1, Until: now.Add(time.Minute), Room: store.Room{Limit: 2 * endpoints, PerEndpoint: 2}}
		claimed, err := st.Claim(t.Context(), store.ClaimParams{Now: now, LeaseParams: lease})
		require.NoError(t, err)
		outcomes := make([]store.Outcome, len(claimed.Leases))
		for i, l := range claimed.Leases {
			outcomes[i] = store.Outcome{DeliveryID: l.DeliveryID, Token: 1, Status: store.StatusDelivered}
		}
		_, err = st.Record(t.Context(), store.RecordParams{Now: now, Outcomes: outcomes})
		require.NoError(t, err)
		r, err := st.Maintain(t.Context(), store.MaintainParams{Now: now, KeepPerEndpoint: 1, Limit: endpoints / 2})
		require.NoError(t, err)
		require.Equal(t, endpoints/2, r.Pruned)
		found, err := st.Deliveries(t.Context(), store.DeliveryFilter{WorkspaceID: 1})
		require.NoError(t, err)
		for _, d := range found {
			ids = append(ids, d.ID)
		}
		return ids
	}
	require.Equal(t, left(), left())
}

// TestInBubble: a week of retries passes in no time, since the store neither
// sleeps nor starts anything.
func TestInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memorystore.New(memorystore.Options{FirstDeliveryID: 1})
		endpoint(t, st)
		publish(t, st, time.Now(), 1)
		for attempt := range 8 {
			p := store.ClaimParams{Now: time.Now(), LeaseParams: store.LeaseParams{
				Token: int64(attempt + 1), Until: time.Now().Add(time.Minute), Room: store.Room{Limit: 1, PerEndpoint: 1},
			}}
			r, err := st.Claim(t.Context(), p)
			require.NoError(t, err)
			require.Len(t, r.Leases, 1)
			due := time.Now().Add(24 * time.Hour)
			_, err = st.Record(t.Context(), store.RecordParams{Now: time.Now(), Outcomes: []store.Outcome{{
				DeliveryID: 1, Token: p.Token, Status: store.StatusPending, NextAttemptAt: due,
			}}})
			require.NoError(t, err)
			next, err := st.Probe(t.Context(), store.ProbeParams{})
			require.NoError(t, err)
			time.Sleep(time.Until(next.NextDue))
		}
		rows, err := st.Attempts(t.Context(), 1, 1)
		require.NoError(t, err)
		require.Len(t, rows, 8)
		require.NoError(t, st.Close())
	})
}

// BenchmarkClaimBesideBacklog claims and records one delivery while other
// endpoints hold a million that cannot go: paused, out of room, or due later.
func BenchmarkClaimBesideBacklog(b *testing.B) {
	for _, backlog := range []int{0, 1_000_000} {
		b.Run(fmt.Sprint(backlog), func(b *testing.B) {
			st := memorystore.New(memorystore.Options{})
			now := time.Now()
			full, paused, later := endpoint(b, st), endpoint(b, st), endpoint(b, st)
			for range backlog / 3000 {
				publish(b, st, now, 1000)
			}
			paused.Active = false
			_, err := st.UpdateEndpoint(b.Context(), paused, nil)
			require.NoError(b, err)
			room := store.Room{Limit: 1, PerEndpoint: 1, Endpoints: map[int64]int{full.ID: 0, later.ID: 0}}
			idle := endpoint(b, st)
			ctx := context.Background()
			token := int64(0)
			for b.Loop() {
				token++
				_, err := st.Publish(ctx, store.PublishParams{Now: now, Events: []store.NewEvent{{
					ID: "evt_x", WorkspaceID: 1, Type: "a.b", EndpointID: idle.ID, Budget: 1,
				}}})
				require.NoError(b, err)
				r, err := st.Claim(ctx, store.ClaimParams{Now: now, LeaseParams: store.LeaseParams{
					Token: token, Until: now.Add(time.Minute), Room: room,
				}})
				require.NoError(b, err)
				_, err = st.Record(ctx, store.RecordParams{Now: now, Outcomes: []store.Outcome{{
					DeliveryID: r.Leases[0].DeliveryID, Token: token, Status: store.StatusDelivered,
				}}})
				require.NoError(b, err)
			}
		})
	}
}
