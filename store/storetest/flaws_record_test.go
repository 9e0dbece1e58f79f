package storetest_test

import (
	"context"
	"slices"
	"time"

	"github.com/elido-app/webhook/store"
)

// recording is a store that changes what is recorded, and what that leads to.
func recording(before func(p *store.RecordParams), after func(p store.RecordParams, r *store.RecordResult)) func(b *broken, good store.Store) {
	return func(b *broken, good store.Store) {
		b.record = func(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
			p.Outcomes = slices.Clone(p.Outcomes)
			if before != nil {
				before(&p)
			}
			r, err := good.Record(ctx, p)
			if after != nil {
				after(p, &r)
			}
			return r, err
		}
	}
}

var recordFlaws = []flaw{
	{"a record that does not look at the token", func(b *broken, good store.Store) {
		s := watch(b)
		b.record = func(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			p.Outcomes = slices.Clone(p.Outcomes)
			for i := range p.Outcomes {
				o := &p.Outcomes[i]
				o.Token = s.last(store.LeaseRef{DeliveryID: o.DeliveryID, Token: o.Token}).Token
			}
			return good.Record(ctx, p)
		}
	}, []string{"record/stale"}},

	{"a record that hides what was stale", recording(nil, func(_ store.RecordParams, r *store.RecordResult) { r.Stale = nil }),
		[]string{"record/stale", "record/twice", "record/concurrent", "delete/stale", "release/back"}},

	{"a lease that holds no more once it ran out", func(b *broken, good store.Store) {
		s := watch(b)
		b.record = func(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
			b.mu.Lock()
			var late []int64
			p.Outcomes = slices.DeleteFunc(slices.Clone(p.Outcomes), func(o store.Outcome) bool {
				until, ok := s.until[store.LeaseRef{DeliveryID: o.DeliveryID, Token: o.Token}]
				if ok && !until.After(p.Now) {
					late = append(late, o.DeliveryID)
				}
				return ok && !until.After(p.Now)
			})
			b.mu.Unlock()
			r, err := good.Record(ctx, p)
			r.Stale = append(r.Stale, late...)
			return r, err
		}
	}, []string{"record/late", "order/late outcome"}},

	{"a claim that ends the leases it finds run out, and takes none of them", func(b *broken, good store.Store) {
		s := watch(b)
		claim := b.claim
		b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
			b.mu.Lock()
			var back []store.Release
			for ref, until := range s.until {
				if !until.After(p.Now) {
					back = append(back, store.Release{LeaseRef: ref, Interrupted: true})
					delete(s.until, ref)
				}
			}
			b.mu.Unlock()
			if err := good.Release(ctx, back); err != nil {
				return store.ClaimResult{}, err
			}
			return claim(ctx, p)
		}
	}, []string{"record/late", "renew/ran out", "release/ran out"}},

	{"a delivery that shows no end", func(b *broken, good store.Store) {
		b.delivery = func(ctx context.Context, workspaceID, id int64) (store.Delivery, error) {
			d, err := good.Delivery(ctx, workspaceID, id)
			d.CompletedAt = time.Time{}
			return d, err
		}
	}, []string{"record/delivered", "record/failed"}},

	{"a failure that is attempted again at once", recording(func(p *store.RecordParams) {
		for i := range p.Outcomes {
			p.Outcomes[i].NextAttemptAt = p.Now
		}
	}, nil), []string{"record/pending", "claim/due"}},

	{"a log without the last attempt", func(b *broken, good store.Store) {
		b.attempts = func(ctx context.Context, workspaceID, id int64) ([]store.Attempt, error) {
			rows, err := good.Attempts(ctx, workspaceID, id)
			return rows[:max(0, len(rows)-1)], err
		}
	}, []string{"record/attempts", "record/stale", "record/concurrent"}},

	{"attempts in order of when they began", func(b *broken, good store.Store) {
		b.attempts = func(ctx context.Context, workspaceID, id int64) ([]store.Attempt, error) {
			rows, err := good.Attempts(ctx, workspaceID, id)
			slices.SortStableFunc(rows, func(a, b store.Attempt) int { return a.StartedAt.Compare(b.StartedAt) })
			return rows, err
		}
	}, []string{"attempts/order"}},

	{"a message that stays", func(b *broken, good store.Store) {
		messages := map[int64][]byte{}
		b.record = func(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			p.Outcomes = slices.Clone(p.Outcomes)
			for i := range p.Outcomes {
				o := &p.Outcomes[i]
				if o.Message == nil {
					o.Message = messages[o.DeliveryID]
				}
				messages[o.DeliveryID] = o.Message
			}
			return good.Record(ctx, p)
		}
	}, []string{"record/message"}},

	{"a record that claims nothing", recording(func(p *store.RecordParams) { p.Claim = nil }, nil), []string{"record/claim"}},

	{"a record that never says it queued", recording(nil, func(_ store.RecordParams, r *store.RecordResult) { r.Queued = false }),
		[]string{"record/queued"}},

	{"a record that says it queued whatever is to be attempted again", recording(nil, func(p store.RecordParams, r *store.RecordResult) {
		for _, o := range p.Outcomes {
			r.Queued = r.Queued || o.Status == store.StatusPending
		}
	}), []string{"record/queued"}},

	{"a record that does not count health", recording(func(p *store.RecordParams) { p.Health = nil }, nil),
		[]string{"health/counting", "health/order", "health/degraded", "health/paused", "publish/budget"}},

	{"health that counts a batch from its end", recording(func(p *store.RecordParams) { slices.Reverse(p.Outcomes) }, nil),
		[]string{"health/order"}},

	{"health that has a policy of its own", recording(func(p *store.RecordParams) {
		if p.Health == nil {
			p.Health = &store.HealthPolicy{DegradeAfter: 100}
		}
	}, nil), []string{"health/no policy"}},

	{"health of which nothing is reported", recording(nil, func(_ store.RecordParams, r *store.RecordResult) { r.Changes = nil }),
		[]string{"health/degraded", "health/paused"}},

	{"health that makes a new revision", func(b *broken, good store.Store) {
		b.record = func(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
			r, err := good.Record(ctx, p)
			for _, o := range p.Outcomes {
				if e, found := good.Endpoint(ctx, 42, o.EndpointID); found == nil && o.Health != store.HealthNone {
					_, err = good.UpdateEndpoint(ctx, e, nil)
				}
			}
			return r, err
		}
	}, []string{"health/revision"}},

	{"a renewal that changes nothing", func(b *broken, _ store.Store) {
		b.renew = func(context.Context, []store.LeaseRef, time.Time) ([]int64, error) { return nil, nil }
	}, []string{"renew/until", "renew/lost"}},

	{"a renewal that loses nothing", func(b *broken, good store.Store) {
		b.renew = func(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
			_, err := good.Renew(ctx, leases, until)
			return nil, err
		}
	}, []string{"renew/lost", "release/back", "delete/stale"}},

	{"a stale lease that is renewed, for whoever has the delivery", func(b *broken, good store.Store) {
		s := watch(b)
		b.renew = func(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			leases = slices.Clone(leases)
			for i := range leases {
				leases[i] = s.last(leases[i])
			}
			return good.Renew(ctx, leases, until)
		}
	}, []string{"renew/lost"}},

	{"a renewal that looks at the token alone", func(b *broken, good store.Store) {
		s := watch(b)
		b.renew = func(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			lost, err := good.Renew(ctx, leases, until)
			return slices.DeleteFunc(lost, func(id int64) bool {
				d, err := good.Delivery(ctx, 42, id)
				return err == nil && d.Status == store.StatusPending && slices.Contains(leases, s.last(store.LeaseRef{DeliveryID: id}))
			}), err
		}
	}, []string{"renew/another of its key"}},

	{"a release that always counts an interruption", func(b *broken, good store.Store) {
		b.release = func(ctx context.Context, releases []store.Release) error {
			releases = slices.Clone(releases)
			for i := range releases {
				releases[i].Interrupted = true
			}
			return good.Release(ctx, releases)
		}
	}, []string{"release/back", "release/due"}},

	{"a release that does not say when it is due", func(b *broken, good store.Store) {
		b.release = func(ctx context.Context, releases []store.Release) error {
			releases = slices.Clone(releases)
			for i := range releases {
				releases[i].DueAt = time.Time{}
			}
			return good.Release(ctx, releases)
		}
	}, []string{"release/due", "release/ran out", "order/lease of the first"}},

	{"a release that does not look at the token", func(b *broken, good store.Store) {
		s := watch(b)
		b.release = func(ctx context.Context, releases []store.Release) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			releases = slices.Clone(releases)
			for i := range releases {
				releases[i].LeaseRef = s.last(releases[i].LeaseRef)
			}
			return good.Release(ctx, releases)
		}
	}, []string{"release/lost"}},
}
