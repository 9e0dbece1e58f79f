package storetest_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/elido-app/webhook/store"
)

// claiming is a store that changes what is asked of a claim, and what it gives.
func claiming(before func(p *store.ClaimParams), after func(p store.ClaimParams, r *store.ClaimResult)) func(b *broken, good store.Store) {
	return func(b *broken, good store.Store) {
		b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
			asked := p
			if before != nil {
				before(&p)
			}
			r, err := good.Claim(ctx, p)
			if after != nil {
				after(asked, &r)
			}
			return r, err
		}
	}
}

// window is a claim that takes the first so many of all that is due, whatever the
// room, and then leaves out what it must not give.
func window(size int, b *broken, good store.Store, barred func(l store.Lease) bool) {
	b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
		wide := p
		wide.Room = store.Room{Limit: size, PerEndpoint: size}
		r, err := good.Claim(ctx, wide)
		if err != nil {
			return r, err
		}
		given := map[int64]int{}
		var keep []store.Lease
		var back []store.Release
		for _, l := range r.Leases {
			id := l.Target.EndpointID
			if len(keep) < p.Room.Limit && given[id] < p.Room.For(id, l.Target.MaxInFlight) && !barred(l) {
				given[id]++
				keep = append(keep, l)
			} else {
				back = append(back, store.Release{LeaseRef: l.Ref()})
			}
		}
		return store.ClaimResult{Leases: keep, NextDue: r.NextDue}, good.Release(ctx, back)
	}
}

// pausedAside keeps the paused endpoints active in the good store, and says which
// they are.
func pausedAside(b *broken, good store.Store) (isPaused func(id int64) bool) {
	paused := map[int64]bool{}
	b.update = func(ctx context.Context, e store.Endpoint, c *store.Sealed) (store.Endpoint, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		active := e.Active
		e.Active = true
		e, err := good.UpdateEndpoint(ctx, e, c)
		e.Active = active
		paused[e.ID] = !active
		return e, err
	}
	return func(id int64) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return paused[id]
	}
}

// scan looks at deliveries and does nothing with them.
func scan(ctx context.Context, good store.Store, f store.DeliveryFilter) error {
	f.WorkspaceID, f.EventType = 42, "of no delivery"
	_, err := good.Deliveries(ctx, f)
	return err
}

var claimFlaws = []flaw{
	{"a claim that panics", func(b *broken, _ store.Store) {
		b.claim = func(context.Context, store.ClaimParams) (store.ClaimResult, error) { panic("boom") }
	}, []string{"claim/lease"}},

	{"a claim that leaves a field of the lease empty", claiming(nil, func(_ store.ClaimParams, r *store.ClaimResult) {
		for i := range r.Leases {
			r.Leases[i].CreatedAt = time.Time{}
		}
	}), []string{"claim/lease"}},

	{"a claim that takes what is due a moment later", claiming(func(p *store.ClaimParams) { p.Now = p.Now.Add(time.Millisecond) }, nil),
		[]string{"claim/due", "lease/runs out", "instants/compared"}},

	{"a claim that goes by a clock of its own", claiming(func(p *store.ClaimParams) { p.Now = time.Now() }, nil),
		[]string{"claim/due", "lease/runs out"}},

	{"a claim in order of ids", claiming(nil, func(_ store.ClaimParams, r *store.ClaimResult) {
		slices.SortFunc(r.Leases, func(a, b store.Lease) int { return cmp.Compare(a.DeliveryID, b.DeliveryID) })
	}), []string{"claim/order within an endpoint"}},

	{"a claim that goes over the endpoints in order of their ids", claiming(nil, func(_ store.ClaimParams, r *store.ClaimResult) {
		slices.SortStableFunc(r.Leases, func(a, b store.Lease) int { return cmp.Compare(a.Target.EndpointID, b.Target.EndpointID) })
	}), []string{"claim/order between endpoints"}},

	{"a claim that ignores the bound of named endpoints", claiming(func(p *store.ClaimParams) { p.Room.Endpoints = nil }, nil),
		[]string{"claim/room", "next due/room"}},

	{"a claim that ignores the bound of the others", claiming(func(p *store.ClaimParams) { p.Room.PerEndpoint = 1000 }, nil),
		[]string{"claim/room"}},

	{"a claim that ignores the limit", claiming(func(p *store.ClaimParams) { p.Room.Limit = 1000 }, nil),
		[]string{"claim/room", "next due/limit"}},

	{"a claim of paused endpoints", func(b *broken, good store.Store) { pausedAside(b, good) },
		[]string{"claim/paused", "next due/paused", "order/paused", "retry/paused"}},

	{"a claim that loses what it took when it returns", claiming(nil, func(_ store.ClaimParams, r *store.ClaimResult) {
		r.Leases = r.Leases[:min(len(r.Leases), 3)]
	}), []string{"claim/exclusive"}},

	{"two claims that get the same", func(b *broken, good store.Store) {
		var last []store.Lease
		b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			r, err := good.Claim(ctx, p)
			if len(last) > 0 && last[0].Until.After(p.Now) && len(r.Leases) < p.Room.Limit {
				r.Leases = append(r.Leases, last[0])
			}
			last = slices.Clone(r.Leases)
			return r, err
		}
	}, []string{"claim/exclusive"}},

	{"a claim that looks at a window of what is due, and drops what has no room", func(b *broken, good store.Store) {
		window(1000, b, good, func(store.Lease) bool { return false })
	}, []string{"claim/behind backlogs"}},

	{"a claim that looks at a window of what is due, and drops what is paused", func(b *broken, good store.Store) {
		isPaused := pausedAside(b, good)
		window(5000, b, good, func(l store.Lease) bool { return isPaused(l.Target.EndpointID) })
	}, []string{"claim/behind backlogs"}},

	{"a claim that looks at the first endpoints alone", func(b *broken, good store.Store) {
		b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
			wide := p
			wide.Room = store.Room{Limit: 1000, PerEndpoint: 1}
			r, err := good.Claim(ctx, wide)
			if err != nil {
				return r, err
			}
			rooms := maps.Clone(p.Room.Endpoints)
			if rooms == nil {
				rooms = map[int64]int{}
			}
			var back []store.Release
			for i, l := range r.Leases {
				back = append(back, store.Release{LeaseRef: l.Ref()})
				if i >= 64 {
					rooms[l.Target.EndpointID] = 0
				}
			}
			if err := good.Release(ctx, back); err != nil {
				return store.ClaimResult{}, err
			}
			p.Room.Endpoints = rooms
			return good.Claim(ctx, p)
		}
	}, []string{"claim/behind backlogs"}},

	{"a claim that scans the backlog of an endpoint without room", func(b *broken, good store.Store) {
		b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
			for id := range p.Room.Endpoints {
				if err := scan(ctx, good, store.DeliveryFilter{EndpointID: id}); err != nil {
					return store.ClaimResult{}, err
				}
			}
			return good.Claim(ctx, p)
		}
	}, []string{"cost/claim"}},

	{"a claim that scans the backlog of a paused endpoint", func(b *broken, good store.Store) {
		var paused int64
		b.update = func(ctx context.Context, e store.Endpoint, c *store.Sealed) (store.Endpoint, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if !e.Active {
				paused = e.ID
			}
			return good.UpdateEndpoint(ctx, e, c)
		}
		b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
			if err := scan(ctx, good, store.DeliveryFilter{EndpointID: paused}); err != nil {
				return store.ClaimResult{}, err
			}
			return good.Claim(ctx, p)
		}
	}, []string{"cost/claim"}},

	{"a claim that scans what is due later", func(b *broken, good store.Store) {
		b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
			if err := scan(ctx, good, store.DeliveryFilter{Since: p.Now}); err != nil {
				return store.ClaimResult{}, err
			}
			return good.Claim(ctx, p)
		}
	}, []string{"cost/claim"}},

	{"leases that never run out", claiming(func(p *store.ClaimParams) { p.Until = p.Until.Add(1e6 * time.Hour) },
		func(p store.ClaimParams, r *store.ClaimResult) {
			for i := range r.Leases {
				r.Leases[i].Until = p.Until
			}
		}), []string{"lease/runs out", "lease/interruptions", "lease/retake delay", "next due/bound"}},

	{"a retake without a delay", func(b *broken, good store.Store) {
		s := watch(b)
		claim := b.claim
		b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
			b.mu.Lock()
			var back []store.Release
			for ref, until := range s.until {
				if !until.After(p.Now) {
					back = append(back, store.Release{LeaseRef: ref, DueAt: until, Interrupted: true})
					delete(s.until, ref)
				}
			}
			b.mu.Unlock()
			if err := good.Release(ctx, back); err != nil {
				return store.ClaimResult{}, err
			}
			return claim(ctx, p)
		}
	}, []string{"lease/retake delay"}},

	{"interruptions that use up attempts", claiming(nil, func(_ store.ClaimParams, r *store.ClaimResult) {
		for i := range r.Leases {
			r.Leases[i].Attempts += r.Leases[i].Interruptions
		}
	}), []string{"lease/runs out", "lease/interruptions"}},

	{"a claim that never knows what is due next", claiming(nil, func(_ store.ClaimParams, r *store.ClaimResult) { r.NextDue = time.Time{} }),
		[]string{"next due/later", "next due/limit", "next due/bound", "order/retry of the first"}},

	{"a claim that always wants to come again", claiming(nil, func(p store.ClaimParams, r *store.ClaimResult) { r.NextDue = p.Now }),
		[]string{"next due/later", "next due/room", "next due/paused", "claim/behind backlogs"}},

	{"a claim that comes again a minute too late", claiming(nil, func(_ store.ClaimParams, r *store.ClaimResult) {
		if !r.NextDue.IsZero() {
			r.NextDue = r.NextDue.Add(time.Minute)
		}
	}), []string{"next due/bound", "next due/later"}},

	{"a probe that never knows what is due next", func(b *broken, good store.Store) {
		b.probe = func(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
			r, err := good.Probe(ctx, p)
			r.NextDue = time.Time{}
			return r, err
		}
	}, []string{"probe/next due"}},

	{"a probe that knows no changes", func(b *broken, good store.Store) {
		b.probe = func(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
			r, err := good.Probe(ctx, p)
			r.Changed = nil
			return r, err
		}
	}, []string{"probe/changes", "health/paused", "maintain/overlap", "reseal/replaces"}},

	{"a probe that does not stop counting", func(b *broken, good store.Store) {
		b.probe = func(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
			p.Count = max(p.Count, 1<<20)
			return good.Probe(ctx, p)
		}
	}, []string{"probe/count"}},

	{"a probe that counts later than now", func(b *broken, good store.Store) {
		b.probe = func(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
			p.Now = p.Now.Add(time.Hour)
			return good.Probe(ctx, p)
		}
	}, []string{"probe/count"}},

	{"a first probe that tells of all endpoints", func(b *broken, good store.Store) {
		b.probe = func(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
			p.Since = max(p.Since, 1)
			return good.Probe(ctx, p)
		}
	}, []string{"probe/since zero"}},
}
