package storetest_test

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/elido-app/webhook/store"
)

// eachEvent changes the events of a publish.
func eachEvent(p store.PublishParams, change func(i int, ev *store.NewEvent)) store.PublishParams {
	p.Events = slices.Clone(p.Events)
	for i := range p.Events {
		change(i, &p.Events[i])
	}
	return p
}

// forgetful is a store that publishes events without something they have.
func forgetful(forget func(i int, ev *store.NewEvent)) func(b *broken, good store.Store) {
	return func(b *broken, good store.Store) {
		b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
			return good.Publish(ctx, eachEvent(p, forget))
		}
	}
}

// published is a store that changes what publishing returned.
func published(change func(ctx context.Context, good store.Store, p store.PublishParams, r *store.PublishResult) error) func(b *broken, good store.Store) {
	return func(b *broken, good store.Store) {
		b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
			r, err := good.Publish(ctx, p)
			if err == nil {
				err = change(ctx, good, p, &r)
			}
			return r, err
		}
	}
}

// oneByOne publishes events each on its own, with something after the first.
func oneByOne(ctx context.Context, good store.Store, p store.PublishParams, between func()) (store.PublishResult, error) {
	var all store.PublishResult
	for i := range p.Events {
		r, err := good.Publish(ctx, store.PublishParams{Events: p.Events[i : i+1], Now: p.Now, Handoff: p.Handoff})
		if err != nil {
			return all, err
		}
		all.Receipts, all.Leases = append(all.Receipts, r.Receipts...), append(all.Leases, r.Leases...)
		all.Queued = all.Queued || r.Queued
		if i == 0 {
			between()
		}
	}
	return all, nil
}

var publishFlaws = []flaw{
	{"a publish that commits before the end of a batch", func(b *broken, good store.Store) {
		b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
			return oneByOne(ctx, good, p, func() {})
		}
	}, []string{"publish/atomic", "idempotency/conflict"}},

	{"a publish that finds conflicts first, then commits before the end of a batch", func(b *broken, good store.Store) {
		var reads atomic.Int64
		b.deliveries = func(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
			defer reads.Add(1)
			return good.Deliveries(ctx, f)
		}
		b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
			if slices.ContainsFunc(p.Events, func(ev store.NewEvent) bool { return ev.IdempotencyKey != "" }) {
				return good.Publish(ctx, p)
			}
			return oneByOne(ctx, good, p, func() {
				before := reads.Load()
				await(func() bool { return reads.Load() > before+2 })
			})
		}
	}, []string{"publish/seen whole"}},

	{"a publish that loses idempotency keys", forgetful(func(_ int, ev *store.NewEvent) { ev.IdempotencyKey = "" }),
		[]string{"idempotency/repeat", "idempotency/in one batch", "idempotency/nobody", "idempotency/concurrent"}},

	{"a publish that does not compare content", forgetful(func(_ int, ev *store.NewEvent) { ev.Digest = [32]byte{} }),
		[]string{"idempotency/conflict", "publish/atomic"}},

	{"idempotency keys of all workspaces in one", func(b *broken, good store.Store) {
		first := map[string]int64{}
		b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return good.Publish(ctx, eachEvent(p, func(_ int, ev *store.NewEvent) {
				if first[ev.IdempotencyKey] == 0 {
					first[ev.IdempotencyKey] = ev.WorkspaceID
				} else if ev.IdempotencyKey != "" {
					ev.WorkspaceID = first[ev.IdempotencyKey]
				}
			}))
		}
	}, []string{"idempotency/workspaces"}},

	{"idempotency keys that are lost where nobody was selected", published(
		func(ctx context.Context, good store.Store, p store.PublishParams, r *store.PublishResult) error {
			for _, receipt := range r.Receipts {
				if len(receipt.DeliveryIDs) == 0 {
					_, err := good.Maintain(ctx, store.MaintainParams{ForgetKeysBefore: p.Now.Add(time.Second), Limit: 1000})
					return err
				}
			}
			return nil
		}), []string{"idempotency/nobody"}},

	{"idempotency keys that are lost with the log", func(b *broken, good store.Store) {
		b.maintain = func(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
			p.ForgetKeysBefore = p.PruneBefore
			return good.Maintain(ctx, p)
		}
	}, []string{"idempotency/remembered"}},

	{"a publish that knows no prefixes", forgetful(func(_ int, ev *store.NewEvent) { ev.Matches = ev.Matches[:min(1, len(ev.Matches))] }),
		[]string{"publish/matching"}},

	{"a publish that sends what is for one endpoint to all", forgetful(func(_ int, ev *store.NewEvent) { ev.EndpointID = 0 }),
		[]string{"publish/endpoint"}},

	{"a publish to an endpoint that does not look at its workspace", func(b *broken, good store.Store) {
		b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
			return good.Publish(ctx, eachEvent(p, func(_ int, ev *store.NewEvent) {
				if e, err := everywhere(ev.WorkspaceID, func(w int64) (store.Endpoint, error) {
					return good.Endpoint(ctx, w, ev.EndpointID)
				}); err == nil {
					ev.WorkspaceID = e.WorkspaceID
				}
			}))
		}
	}, []string{"isolation"}},

	{"a publish to nobody that is an error", published(
		func(_ context.Context, _ store.Store, _ store.PublishParams, r *store.PublishResult) error {
			for _, receipt := range r.Receipts {
				if len(receipt.DeliveryIDs) == 0 {
					return store.ErrNotFound
				}
			}
			return nil
		}), []string{"publish/to nobody"}},

	{"a publish that leaves out receipts", published(
		func(_ context.Context, _ store.Store, _ store.PublishParams, r *store.PublishResult) error {
			r.Receipts = slices.DeleteFunc(r.Receipts, func(receipt store.Receipt) bool { return len(receipt.DeliveryIDs) == 0 })
			return nil
		}), []string{"publish/receipts", "publish/to nobody"}},

	{"receipts that name deliveries of the event before", published(
		func(_ context.Context, _ store.Store, _ store.PublishParams, r *store.PublishResult) error {
			for i := len(r.Receipts) - 1; i > 0; i-- {
				r.Receipts[i].DeliveryIDs = r.Receipts[i-1].DeliveryIDs
			}
			return nil
		}), []string{"publish/receipts"}},

	{"a publish that drops the budget", forgetful(func(_ int, ev *store.NewEvent) { ev.Budget, ev.DegradedBudget = 3, 0 }),
		[]string{"publish/delivery", "publish/budget"}},

	{"a publish that stores a batch from its end", func(b *broken, good store.Store) {
		b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
			p.Events = slices.Clone(p.Events)
			slices.Reverse(p.Events)
			r, err := good.Publish(ctx, p)
			slices.Reverse(r.Receipts)
			return r, err
		}
	}, []string{"publish/order of ids", "publish/batch"}},

	{"a publish that stores one payload for a batch", func(b *broken, good store.Store) {
		b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
			first := p.Events[0].Payload
			return good.Publish(ctx, eachEvent(p, func(_ int, ev *store.NewEvent) { ev.Payload = first }))
		}
	}, []string{"publish/batch"}},

	{"a publish that never says it queued", published(
		func(_ context.Context, _ store.Store, _ store.PublishParams, r *store.PublishResult) error {
			r.Queued = false
			return nil
		}), []string{"publish/queued", "handoff/room"}},

	{"a publish that always says it queued", published(
		func(_ context.Context, _ store.Store, _ store.PublishParams, r *store.PublishResult) error {
			r.Queued = true
			return nil
		}), []string{"publish/queued", "handoff/blocked"}},

	{"a publish that hands nothing off", func(b *broken, good store.Store) {
		b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
			p.Handoff = nil
			return good.Publish(ctx, p)
		}
	}, []string{"handoff/lease", "handoff/room"}},

	{"a handoff without a bound", func(b *broken, good store.Store) {
		b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
			if p.Handoff != nil {
				all := *p.Handoff
				all.Room = store.Room{Limit: 1000, PerEndpoint: 1000}
				p.Handoff = &all
			}
			return good.Publish(ctx, p)
		}
	}, []string{"handoff/room"}},

	{"a handoff that overtakes older work", func(b *broken, good store.Store) {
		b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
			lease := p.Handoff
			p.Handoff = nil
			r, err := good.Publish(ctx, p)
			if err != nil || lease == nil {
				return r, err
			}
			claimed, err := good.Claim(ctx, store.ClaimParams{Now: p.Now, LeaseParams: *lease})
			var back []store.Release
			for _, l := range claimed.Leases {
				if slices.ContainsFunc(r.Receipts, func(r store.Receipt) bool { return slices.Contains(r.DeliveryIDs, l.DeliveryID) }) {
					r.Leases = append(r.Leases, l)
				} else {
					back = append(back, store.Release{LeaseRef: l.Ref()})
				}
			}
			if err == nil {
				err = good.Release(ctx, back)
			}
			return r, err
		}
	}, []string{"handoff/older work"}},

	{"a handoff of what was published before", published(
		func(ctx context.Context, good store.Store, p store.PublishParams, r *store.PublishResult) error {
			if p.Handoff == nil {
				return nil
			}
			claimed, err := good.Claim(ctx, store.ClaimParams{Now: p.Now, LeaseParams: *p.Handoff})
			r.Leases = append(r.Leases, claimed.Leases...)
			return err
		}), []string{"handoff/repeat", "handoff/older work"}},
}
