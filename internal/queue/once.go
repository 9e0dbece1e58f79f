package queue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/elido-app/webhook/store"
)

// RunOnce attempts everything that is due when it is called, one after the
// other on the caller's goroutine, and returns how many attempts it recorded.
// It may run beside Run, here and in other processes.
func (q *Queue) RunOnce(ctx context.Context) (int, error) {
	if err := q.checkClock(ctx); err != nil {
		return 0, err
	}
	start := time.Now().Round(0) // by the wall clock, as what is due
	defer func() {
		q.mu.Lock()
		q.forget(time.Now())
		q.unlock()
	}()
	attempts := 0
	var outcomes []store.Outcome
	var last *store.Lease
	for {
		leases, err := q.recordOnce(ctx, outcomes, last, start)
		if err != nil {
			return attempts, err
		}
		attempts += len(outcomes)
		outcomes = nil
		if len(leases) == 0 {
			return attempts, ctx.Err()
		}
		last = &leases[0]
		outcome, release := q.sendOnce(ctx, last)
		if release == nil {
			outcomes = []store.Outcome{outcome}
			continue
		}
		err = q.call(context.WithoutCancel(ctx), func(ctx context.Context) error {
			return q.cfg.Store.Release(ctx, []store.Release{*release})
		})
		if err != nil {
			return attempts, err
		}
	}
}

// recordOnce records what there is, whatever becomes of ctx, and claims one
// delivery that was due at start.
func (q *Queue) recordOnce(ctx context.Context, outcomes []store.Outcome, last *store.Lease, start time.Time) (leases []store.Lease, err error) {
	var claim *store.ClaimParams
	if ctx.Err() == nil {
		q.mu.Lock()
		// If the clock was set back, what fails now is due before start.
		claim = &store.ClaimParams{Now: earlier(start, time.Now()), LeaseParams: store.LeaseParams{
			Token: newToken(), Until: time.Now().Add(q.cfg.Lease),
			Room: store.Room{Limit: 1, PerEndpoint: 1, Endpoints: map[int64]int{}},
		}}
		for id, l := range q.lanes { // what Run has open counts as well
			claim.Room.Endpoints[id] = min(1, max(0, l.bound-l.running))
			if l.paced() {
				claim.Room.Endpoints[id] = 0
			}
		}
		q.unlock()
	}
	if len(outcomes) == 0 {
		if claim == nil {
			return nil, nil
		}
		err = q.call(ctx, func(ctx context.Context) error {
			r, err := q.cfg.Store.Claim(ctx, *claim)
			leases = r.Leases
			return err
		})
		return leases, err
	}
	record := func(ctx context.Context) error {
		r, err := q.cfg.Store.Record(ctx, store.RecordParams{Now: time.Now(), Outcomes: outcomes, Health: q.cfg.Health, Claim: claim})
		if err == nil {
			leases = r.Claim.Leases
			q.cfg.Recorded(outcomes, func(int) *store.Lease { return last }, r)
		}
		return err
	}
	// What was sent should be known, so a store that fails gets another chance.
	for i := range onceTries {
		if err = q.call(context.WithoutCancel(ctx), record); err == nil || errors.Is(err, store.ErrClosed) {
			break
		}
		time.Sleep(backoffBase << i)
	}
	return leases, err
}

// onceTries is how often RunOnce tries to record an outcome.
const onceTries = 4

// sendOnce makes one attempt outside the lanes, with timers of its own.
func (q *Queue) sendOnce(ctx context.Context, lease *store.Lease) (store.Outcome, *store.Release) {
	q.mu.Lock()
	l := q.lane(lease.Target)
	if q.fenced(lease) || q.expiring(lease) || l.running >= l.bound || l.paced() {
		q.unlock()
		return store.Outcome{}, &store.Release{LeaseRef: lease.Ref()}
	}
	f := &Flight{Lease: lease, q: q, item: &item{lease: lease, lane: l}, prep: &preparation{}}
	f.ctx, f.end = context.WithCancelCause(ctx)
	q.alone[f] = struct{}{}
	q.start(l)
	q.unlock()
	f.timer = time.AfterFunc(q.cfg.Timeout, func() { f.end(errTimeLimit) })
	result := q.sendAlone(f)
	if result.Interrupted || result.Unready != nil {
		q.mu.Lock()
		defer q.unlock()
		back := q.returned(f, &result)
		return store.Outcome{}, &back
	}
	result.Outcome.DeliveryID, result.Outcome.EndpointID, result.Outcome.Token = lease.DeliveryID, l.endpointID, lease.Token
	return result.Outcome, nil
}

func (q *Queue) sendAlone(f *Flight) Result {
	defer func() {
		f.timer.Stop()
		q.mu.Lock()
		delete(q.alone, f)
		f.item.lane.running--
		q.ready.push(f.item.lane)
		q.staff()
		q.unlock()
	}()
	return q.send(f)
}

// returned says how a lease goes back that came to no outcome.
func (q *Queue) returned(f *Flight, r *Result) store.Release {
	back := store.Release{LeaseRef: f.Lease.Ref()}
	if r.Unready != nil {
		q.log(slog.LevelError, "webhook: delivery cannot be attempted; it waits", "delivery_id", f.Lease.DeliveryID,
			"endpoint_id", f.Lease.Target.EndpointID, "error", r.Unready)
		back.DueAt = time.Now().Add(max(time.Minute, store.RetakeDelay(f.Lease.Interruptions+1)))
		back.Error = []byte(r.Unready.Error())
		back.Interrupted = true
	}
	return back
}
