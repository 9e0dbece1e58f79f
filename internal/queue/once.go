package queue

import (
	"context"
	"time"

	"github.com/elido-app/webhook/store"
)

// RunOnce attempts everything that is due when it is called, one after the
// other on the caller's goroutine, and returns how many attempts it recorded.
// It may run beside Run, here and in other processes.
func (q *Queue) RunOnce(ctx context.Context) (int, error) {
	start := time.Now()
	defer func() {
		q.mu.Lock()
		q.forget(time.Now())
		q.mu.Unlock()
	}()
	calls := context.WithoutCancel(ctx)
	attempts := 0
	var outcomes []store.Outcome
	for {
		claim := &store.ClaimParams{Now: start, LeaseParams: store.LeaseParams{
			Token: newToken(), Until: time.Now().Add(q.cfg.Lease), Room: store.Room{Limit: 1, PerEndpoint: 1},
		}}
		if ctx.Err() != nil {
			claim = nil
		}
		leases, err := q.recordOnce(calls, outcomes, claim)
		if err != nil {
			return attempts, err
		}
		attempts += len(outcomes)
		outcomes = nil
		if len(leases) == 0 {
			return attempts, ctx.Err()
		}
		outcome, release := q.sendOnce(ctx, &leases[0])
		if release == nil {
			outcomes = []store.Outcome{outcome}
		} else if err := q.cfg.Store.Release(calls, []store.Release{*release}); err != nil {
			return attempts, err
		}
	}
}

// recordOnce records what there is and claims, as far as asked.
func (q *Queue) recordOnce(ctx context.Context, outcomes []store.Outcome, claim *store.ClaimParams) ([]store.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	if len(outcomes) == 0 {
		if claim == nil {
			return nil, nil
		}
		r, err := q.cfg.Store.Claim(ctx, *claim)
		return r.Leases, err
	}
	r, err := q.cfg.Store.Record(ctx, store.RecordParams{Now: time.Now(), Outcomes: outcomes, Health: q.cfg.Health, Claim: claim})
	if err == nil {
		q.cfg.Recorded(outcomes, r)
	}
	return r.Claim.Leases, err
}

// sendOnce makes one attempt outside the lanes, with timers of its own.
func (q *Queue) sendOnce(ctx context.Context, lease *store.Lease) (store.Outcome, *store.Release) {
	q.mu.Lock()
	l := q.lane(lease.Target)
	if f, ok := q.fences[l.endpointID]; ok && lease.Target.Revision < f.revision {
		q.mu.Unlock()
		return store.Outcome{}, &store.Release{LeaseRef: lease.Ref()}
	}
	l.starting.enter()
	q.mu.Unlock()

	f := &Flight{Lease: lease, q: q, item: &item{lease: lease, lane: l}, prep: &preparation{}}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.timer = time.AfterFunc(q.cfg.Timeout, func() { f.cancel(errTimeLimit) })
	defer f.timer.Stop()
	result := q.send(f)
	if result.Interrupted || result.Unready != nil {
		return store.Outcome{}, q.returned(f, &result)
	}
	result.Outcome.DeliveryID, result.Outcome.EndpointID, result.Outcome.Token = lease.DeliveryID, l.endpointID, lease.Token
	return result.Outcome, nil
}

// returned says how a lease goes back that came to no outcome.
func (q *Queue) returned(f *Flight, r *Result) *store.Release {
	back := &store.Release{LeaseRef: f.Lease.Ref()}
	if r.Unready != nil {
		q.cfg.Logger.Error("webhook: delivery cannot be attempted; it waits", "delivery_id", f.Lease.DeliveryID,
			"endpoint_id", f.Lease.Target.EndpointID, "error", r.Unready)
		back.DueAt = time.Now().Add(max(time.Minute, store.RetakeDelay(f.Lease.Interruptions+1)))
		back.Error = []byte(r.Unready.Error())
		back.Interrupted = true
	}
	return back
}
