package storetest_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
	"github.com/elido-app/webhook/store/storetest"
	memorystore "github.com/elido-app/webhook/store_memory"
)

func TestCasesSayWhatTheyAreAbout(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range storetest.Cases() {
		require.NotEmpty(t, c.Name)
		require.False(t, seen[c.Name], "two cases are named %q", c.Name)
		seen[c.Name] = true
		require.True(t, len(c.Promise) > 20 && c.Promise[len(c.Promise)-1] == '.', "the promise of %s is no sentence: %q", c.Name, c.Promise)
	}
}

// broken is a good store with one method that breaks a promise.
type broken struct {
	store.Store
	publish func(context.Context, store.PublishParams) (store.PublishResult, error)
	claim   func(context.Context, store.ClaimParams) (store.ClaimResult, error)
	record  func(context.Context, store.RecordParams) (store.RecordResult, error)
	update  func(context.Context, store.Endpoint, *store.Sealed) (store.Endpoint, error)
	rotate  func(context.Context, store.RotateParams) (store.Endpoint, error)
	list    func(context.Context, store.DeliveryFilter) ([]store.Delivery, error)
	retry   func(context.Context, store.RetryParams) (store.Delivery, error)
	create  func(context.Context, store.CreateEndpointParams) (store.Endpoint, error)
	remove  func(ctx context.Context, workspaceID, id int64, at time.Time) error
	rows    func(ctx context.Context, workspaceID, id int64) ([]store.Attempt, error)
	renew   func(context.Context, []store.LeaseRef, time.Time) ([]int64, error)
}

func (b *broken) CreateEndpoint(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
	if b.create != nil {
		return b.create(ctx, p)
	}
	return b.Store.CreateEndpoint(ctx, p)
}

func (b *broken) DeleteEndpoint(ctx context.Context, workspaceID, id int64, at time.Time) error {
	if b.remove != nil {
		return b.remove(ctx, workspaceID, id, at)
	}
	return b.Store.DeleteEndpoint(ctx, workspaceID, id, at)
}

func (b *broken) Attempts(ctx context.Context, workspaceID, id int64) ([]store.Attempt, error) {
	if b.rows != nil {
		return b.rows(ctx, workspaceID, id)
	}
	return b.Store.Attempts(ctx, workspaceID, id)
}

func (b *broken) Renew(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
	if b.renew != nil {
		return b.renew(ctx, leases, until)
	}
	return b.Store.Renew(ctx, leases, until)
}

func (b *broken) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	if b.publish != nil {
		return b.publish(ctx, p)
	}
	return b.Store.Publish(ctx, p)
}

func (b *broken) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	if b.claim != nil {
		return b.claim(ctx, p)
	}
	return b.Store.Claim(ctx, p)
}

func (b *broken) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	if b.record != nil {
		return b.record(ctx, p)
	}
	return b.Store.Record(ctx, p)
}

func (b *broken) UpdateEndpoint(ctx context.Context, e store.Endpoint, c *store.Sealed) (store.Endpoint, error) {
	if b.update != nil {
		return b.update(ctx, e, c)
	}
	return b.Store.UpdateEndpoint(ctx, e, c)
}

func (b *broken) RotateSecret(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
	if b.rotate != nil {
		return b.rotate(ctx, p)
	}
	return b.Store.RotateSecret(ctx, p)
}

func (b *broken) Deliveries(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
	if b.list != nil {
		return b.list(ctx, f)
	}
	return b.Store.Deliveries(ctx, f)
}

func (b *broken) Retry(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
	if b.retry != nil {
		return b.retry(ctx, p)
	}
	return b.Store.Retry(ctx, p)
}

// TestBrokenStoresAreCaught: a suite that passes everything proves nothing.
func TestBrokenStoresAreCaught(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(b *broken, st store.Store)
		caught string // by this case, at least
	}{
		"a publish that forgets ordering keys": {func(b *broken, st store.Store) {
			b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
				p.Events = slices.Clone(p.Events)
				for i := range p.Events {
					p.Events[i].OrderingKey = ""
				}
				return st.Publish(ctx, p)
			}
		}, "order/one after the other"},
		"a publish that forgets idempotency keys": {func(b *broken, st store.Store) {
			b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
				p.Events = slices.Clone(p.Events)
				for i := range p.Events {
					p.Events[i].IdempotencyKey = ""
				}
				return st.Publish(ctx, p)
			}
		}, "idempotency/concurrent"},
		"a publish that is not atomic": {func(b *broken, st store.Store) {
			b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
				var all store.PublishResult
				for i := range p.Events {
					r, err := st.Publish(ctx, store.PublishParams{Events: p.Events[i : i+1], Now: p.Now, Handoff: p.Handoff})
					if err != nil {
						return all, err
					}
					all.Receipts, all.Leases = append(all.Receipts, r.Receipts...), append(all.Leases, r.Leases...)
					all.Queued = all.Queued || r.Queued
				}
				return all, nil
			}
		}, "publish/atomic"},
		"a claim that takes what is due a moment later": {func(b *broken, st store.Store) {
			b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
				p.Now = p.Now.Add(time.Millisecond)
				return st.Claim(ctx, p)
			}
		}, "claim/due"},
		"a claim without a bound": {func(b *broken, st store.Store) {
			b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
				p.Room.Endpoints = nil
				return st.Claim(ctx, p)
			}
		}, "claim/room"},
		"a claim that loses what it took when it returns": {func(b *broken, st store.Store) {
			b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
				r, err := st.Claim(ctx, p)
				r.Leases = r.Leases[:min(len(r.Leases), 3)]
				return r, err
			}
		}, "claim/exclusive"},
		"a record that never counts health": {func(b *broken, st store.Store) {
			b.record = func(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
				p.Health = nil
				return st.Record(ctx, p)
			}
		}, "health/counting"},
		"a record that hides what was stale": {func(b *broken, st store.Store) {
			b.record = func(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
				r, err := st.Record(ctx, p)
				r.Stale = nil
				return r, err
			}
		}, "record/stale"},
		"an update without a check": {func(b *broken, st store.Store) {
			b.update = func(ctx context.Context, e store.Endpoint, c *store.Sealed) (store.Endpoint, error) {
				if now, err := st.Endpoint(ctx, e.WorkspaceID, e.ID); err == nil {
					e.Revision = now.Revision
				}
				return st.UpdateEndpoint(ctx, e, c)
			}
		}, "update/conflict"},
		"a rotation that forgets its overlap": {func(b *broken, st store.Store) {
			b.rotate = func(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
				p.PreviousUntil = time.Time{}
				return st.RotateSecret(ctx, p)
			}
		}, "rotate/overlap"},
		"a list that ignores the workspace's endpoint": {func(b *broken, st store.Store) {
			b.list = func(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
				f.EndpointID = 0
				return st.Deliveries(ctx, f)
			}
		}, "deliveries/filters"},
		"a retry that sees no fault in pending": {func(b *broken, st store.Store) {
			b.retry = func(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
				d, err := st.Retry(ctx, p)
				if err != nil {
					return st.Delivery(ctx, p.WorkspaceID, p.DeliveryID)
				}
				return d, nil
			}
		}, "retry/concurrent"},
		"a record that does not look at the token": {func(b *broken, st store.Store) {
			var mu sync.Mutex
			last := map[int64]int64{} // by delivery
			b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
				mu.Lock()
				defer mu.Unlock()
				r, err := st.Claim(ctx, p)
				for _, l := range r.Leases {
					last[l.DeliveryID] = l.Token
				}
				return r, err
			}
			b.record = func(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
				mu.Lock()
				defer mu.Unlock()
				p.Outcomes = slices.Clone(p.Outcomes)
				for i := range p.Outcomes {
					if token := last[p.Outcomes[i].DeliveryID]; token != 0 {
						p.Outcomes[i].Token = token
					}
				}
				return st.Record(ctx, p)
			}
		}, "record/stale"},
		"a create that uses ids again": {func(b *broken, st store.Store) {
			var mu sync.Mutex
			var free []int64
			b.remove = func(ctx context.Context, workspaceID, id int64, at time.Time) error {
				mu.Lock()
				defer mu.Unlock()
				free = append(free, id)
				return st.DeleteEndpoint(ctx, workspaceID, id, at)
			}
			b.create = func(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
				mu.Lock()
				defer mu.Unlock()
				e, err := st.CreateEndpoint(ctx, p)
				if err == nil && len(free) > 0 {
					e.ID = free[0]
				}
				return e, err
			}
		}, "create/ids"},
		"a list that shares its bytes": {func(b *broken, st store.Store) {
			var mu sync.Mutex
			payloads := map[int64][]byte{}
			b.list = func(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
				mu.Lock()
				defer mu.Unlock()
				list, err := st.Deliveries(ctx, f)
				for i := range list {
					if payloads[list[i].ID] == nil {
						payloads[list[i].ID] = list[i].Payload
					}
					list[i].Payload = payloads[list[i].ID]
				}
				return list, err
			}
		}, "values/copied out"},
		"a list in the wrong order where times are equal": {func(b *broken, st store.Store) {
			b.list = func(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
				list, err := st.Deliveries(ctx, f)
				slices.SortStableFunc(list, func(a, b store.Delivery) int {
					if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
						return c
					}
					return int(a.ID - b.ID)
				})
				return list, err
			}
		}, "deliveries/order"},
		"a list in a time zone": {func(b *broken, st store.Store) {
			b.list = func(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
				list, err := st.Deliveries(ctx, f)
				for i := range list {
					list[i].CreatedAt = list[i].CreatedAt.In(time.FixedZone("", 3600))
				}
				return list, err
			}
		}, "values/instants"},
		"a pause that is only shown": {func(b *broken, st store.Store) {
			b.update = func(ctx context.Context, e store.Endpoint, c *store.Sealed) (store.Endpoint, error) {
				active := e.Active
				e.Active = true
				e, err := st.UpdateEndpoint(ctx, e, c)
				e.Active = active
				return e, err
			}
		}, "claim/paused"},
		"a log without the last attempt": {func(b *broken, st store.Store) {
			b.rows = func(ctx context.Context, workspaceID, id int64) ([]store.Attempt, error) {
				rows, err := st.Attempts(ctx, workspaceID, id)
				return rows[:max(0, len(rows)-1)], err
			}
		}, "record/attempts"},
		"a renewal that loses nothing": {func(b *broken, st store.Store) {
			b.renew = func(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
				_, err := st.Renew(ctx, leases, until)
				return nil, err
			}
		}, "renew/lost"},
		"a store that panics": {func(b *broken, _ store.Store) {
			b.claim = func(context.Context, store.ClaimParams) (store.ClaimResult, error) { panic("boom") }
		}, "claim/lease"},
	} {
		t.Run(name, func(t *testing.T) {
			var caught []string
			for _, promise := range storetest.Cases() {
				good := memorystore.New(memorystore.Options{})
				bad := &broken{Store: good}
				c.breaks(bad, good)
				if promise.Check(t.Context(), bad) != nil {
					caught = append(caught, promise.Name)
				}
			}
			require.Contains(t, caught, c.caught)
		})
	}
}
