package memorystore

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/elido-app/webhook/store"
)

// TestOrdered compares the set with a sorted slice.
func TestOrdered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := ordered[int]{compare: cmp.Compare[int]}
		var model []int
		for range rapid.IntRange(0, 3).Draw(t, "growth") { // enough for several blocks
			for range 700 {
				v := len(model) * 3
				set.insert(v)
				model = append(model, v)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				v := rapid.IntRange(-10, 7000).Draw(t, "v")
				at, found := slices.BinarySearch(model, v)
				if !found {
					set.insert(v)
					model = slices.Insert(model, at, v)
				}
			},
			"remove": func(t *rapid.T) {
				v := rapid.IntRange(-10, 7000).Draw(t, "v")
				set.remove(v)
				if at, found := slices.BinarySearch(model, v); found {
					model = slices.Delete(model, at, at+1)
				}
			},
			"remove many": func(t *rapid.T) {
				n := min(len(model), rapid.IntRange(0, 600).Draw(t, "n"))
				for _, v := range model[:n] {
					set.remove(v)
				}
				model = slices.Delete(model, 0, n)
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(model), set.len())
				require.True(t, slices.Equal(model, slices.Collect(set.all())))
				if len(model) > 0 {
					require.Equal(t, model[0], set.first())
				}
				v := rapid.IntRange(-10, 7000).Draw(t, "v")
				at, _ := slices.BinarySearch(model, v)
				require.True(t, slices.Equal(model[at:], slices.Collect(set.from(v))))
				below := slices.Clone(model[:at])
				slices.Reverse(below)
				require.True(t, slices.Equal(below, slices.Collect(set.below(v))))
			},
		})
	})
}

// TestHeap compares the heap with a sorted slice.
func TestHeap(t *testing.T) {
	type member struct{ value, index int }
	h := heap[*member]{
		less:  func(a, b *member) bool { return a.value < b.value },
		index: func(m *member) *int { return &m.index },
	}
	dice := rand.New(rand.NewPCG(1, 2))
	var model []*member
	for range 5000 {
		switch n := dice.IntN(4); {
		case n < 2 || len(model) == 0:
			m := &member{value: dice.IntN(1000)}
			h.push(m)
			model = append(model, m)
		case n == 2:
			m := model[dice.IntN(len(model))]
			m.value = dice.IntN(1000)
			h.push(m)
		default:
			i := dice.IntN(len(model))
			h.remove(model[i])
			h.remove(model[i]) // does nothing
			model = slices.Delete(model, i, i+1)
		}
		require.Equal(t, len(model), h.len())
		if len(model) > 0 {
			least := slices.MinFunc(model, func(a, b *member) int { return a.value - b.value })
			require.Equal(t, least.value, h.first().value)
		}
	}
}

func TestInstantsLoseNothing(t *testing.T) {
	require.Equal(t, store.Health{}, store.Health{FailedAt: instant(millis(time.Time{}))})
	require.Equal(t, int64(unset), millis(time.Time{}))
	require.Equal(t, time.UnixMilli(0).UTC(), instant(millis(time.Unix(0, 0))))
}

// Nobody can read an erased secret through the store, but a heap dump can.
func TestDeletedEndpointsKeepNoSecret(t *testing.T) {
	s := New(Options{})
	ctx := t.Context()
	now := time.Now()
	sealed := func(text string) store.Sealed { return store.Sealed{Data: store.NewSecret(text)} }
	e, err := s.CreateEndpoint(ctx, store.CreateEndpointParams{
		Endpoint: store.Endpoint{WorkspaceID: 1, Kind: store.KindSIEM, Active: true},
		Seal: func(int64) (store.Secrets, error) {
			return store.Secrets{Current: sealed("first"), Credentials: sealed("token")}, nil
		},
	})
	require.NoError(t, err)
	_, err = s.RotateSecret(ctx, store.RotateParams{WorkspaceID: 1, EndpointID: e.ID, Secret: sealed("second"), PreviousUntil: now.Add(time.Hour), At: now})
	require.NoError(t, err)
	_, err = s.Publish(ctx, store.PublishParams{Events: []store.NewEvent{{ID: "evt_1", WorkspaceID: 1, Budget: 1}}, Now: now})
	require.NoError(t, err)
	_, err = s.Claim(ctx, store.ClaimParams{Now: now, LeaseParams: store.LeaseParams{Token: 1, Until: now.Add(time.Minute), Room: store.Room{Limit: 1, PerEndpoint: 1}}})
	require.NoError(t, err)
	require.NotNil(t, s.endpoints[e.ID].target)

	require.NoError(t, s.DeleteEndpoint(ctx, 1, e.ID, now))
	kept := s.endpoints[e.ID]
	for name, secret := range map[string]store.Sealed{
		"current": kept.secrets.Current, "previous": kept.secrets.Previous, "credentials": kept.secrets.Credentials,
	} {
		require.True(t, secret.IsZero(), "the %s secret is kept", name)
	}
	require.Nil(t, kept.target, "what requests needed is kept, secrets and all")
}

// TestNothingIsLeft: once everything was pruned, purged and forgotten, the
// store holds nothing but what makes ids taken.
func TestNothingIsLeft(t *testing.T) {
	s := New(Options{})
	ctx := t.Context()
	now := time.Now()
	var endpoints []store.Endpoint
	for range 3 {
		e, err := s.CreateEndpoint(ctx, store.CreateEndpointParams{
			Endpoint: store.Endpoint{WorkspaceID: 1, Kind: store.KindSIEM, Active: true},
			Seal:     func(int64) (store.Secrets, error) { return store.Secrets{}, nil },
		})
		require.NoError(t, err)
		endpoints = append(endpoints, e)
	}
	var events []store.NewEvent
	for i := range 2000 {
		events = append(events, store.NewEvent{
			ID: "evt_" + string(rune('a'+i%700)), WorkspaceID: 1, OrderingKey: string(rune('a' + i%5)), IdempotencyKey: string(rune(i + 1000)), Budget: 1,
		})
	}
	_, err := s.Publish(ctx, store.PublishParams{Events: events, Now: now})
	require.NoError(t, err)
	for token := int64(1); ; token++ {
		r, err := s.Claim(ctx, store.ClaimParams{Now: now, LeaseParams: store.LeaseParams{
			Token: token, Until: now.Add(time.Minute),
			Room: store.Room{Limit: 100, PerEndpoint: 100, Endpoints: map[int64]int{endpoints[2].ID: 0}},
		}})
		require.NoError(t, err)
		if len(r.Leases) == 0 {
			break
		}
		var outcomes []store.Outcome
		for _, l := range r.Leases {
			outcomes = append(outcomes, store.Outcome{DeliveryID: l.DeliveryID, Token: token, Status: store.StatusFailed})
		}
		_, err = s.Record(ctx, store.RecordParams{Now: now, Outcomes: outcomes})
		require.NoError(t, err)
	}
	for _, e := range endpoints[1:] {
		require.NoError(t, s.DeleteEndpoint(ctx, 1, e.ID, now))
	}
	for more := true; more; {
		r, err := s.Maintain(ctx, store.MaintainParams{
			Now: now, PruneBefore: now.Add(time.Second), ForgetKeysBefore: now.Add(time.Second), Limit: 333,
		})
		require.NoError(t, err)
		more = r.More
	}

	require.Empty(t, s.deliveries)
	require.Empty(t, s.byEvent)
	require.Empty(t, s.gone)
	require.Zero(t, s.finished.len()+s.keys.len()+s.due.len()+s.overlaps.len())
	require.Empty(t, s.workspaces[1].keys)
	require.Zero(t, s.workspaces[1].log.len())
	for _, e := range s.endpoints {
		require.Zero(t, e.log.len()+e.finished.len()+e.failed.len()+e.ready.len()+e.leased.len()+len(e.queues))
	}
	require.Len(t, s.endpoints, 3)
	require.Equal(t, 1, s.workspaces[1].endpoints.len())
}
