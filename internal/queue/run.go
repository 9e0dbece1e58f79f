package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elido-app/webhook/store"
)

const (
	storeTime   = 10 * time.Second // for one store call
	mostRecord  = 500              // outcomes in one store call
	mostClaim   = 500              // leases in one store call
	renewEvery  = 5 * time.Second
	backoffBase = 50 * time.Millisecond
	backoffMost = 5 * time.Second
)

// coordinator is the state of one Run.
type coordinator struct {
	*Queue
	ctx      context.Context // of store calls: outlives the cancellation of Run
	revision int64           // of the last probe
	pollAt   time.Time
	renewAt  time.Time
	down     int // store calls that failed in a row
	downTill time.Time
	stuck    bool // an attempt ignores being cut
}

// Run drives the queue until ctx is cancelled. It returns nil after a clean
// stop. Only the first probe of the store can make it fail, or a store that was
// closed; other errors are logged, and tried again.
func (q *Queue) Run(ctx context.Context) error {
	q.mu.Lock()
	if q.state != stateIdle {
		q.mu.Unlock()
		return ErrRunning
	}
	q.state = stateRunning
	q.mu.Unlock()

	c := &coordinator{Queue: q, ctx: context.WithoutCancel(ctx)}
	done := make(chan struct{})
	q.group.Add(1)
	go q.watcher(done)
	defer func() {
		close(done)
		if !c.stuck {
			q.group.Wait()
		}
		q.mu.Lock()
		q.state = stateIdle
		q.mu.Unlock()
	}()

	if err := c.probe(time.Now()); err != nil {
		q.mu.Lock()
		q.state = stateStopping
		q.work.Broadcast()
		q.mu.Unlock()
		_ = c.stop() // what a publish handed off meanwhile
		return fmt.Errorf("the store does not answer: %w", err)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return c.stop()
		case <-q.signal:
		case <-timer.C:
		}
		if err := c.pass(); err != nil {
			_ = c.stop()
			return err
		}
		timer.Reset(time.Until(c.wakeAt()))
	}
}

// pass does everything that is to be done now. It returns an error only if there
// is no use in going on.
func (c *coordinator) pass() error {
	now := time.Now()
	if now.Before(c.downTill) {
		return nil
	}
	err := c.settle(now)
	if err == nil && !now.Before(c.renewAt) {
		err = c.renew(now)
	}
	if err == nil && !now.Before(c.pollAt) {
		err = c.probe(now)
	}
	if err == nil {
		err = c.tidy(now)
	}
	switch {
	case errors.Is(err, store.ErrClosed):
		return err
	case err != nil:
		c.down++
		c.downTill = time.Now().Add(min(backoffBase<<min(c.down-1, 10), backoffMost))
		c.cfg.Logger.Error("webhook: the store failed; trying again", "error", err, "in_a_row", c.down, "again_in", time.Until(c.downTill).Round(time.Millisecond))
	case c.down > 0:
		c.cfg.Logger.Info("webhook: the store is back", "failures", c.down)
		c.down = 0
	}
	return nil
}

// wakeAt is when there is something to do next if nobody signals.
func (c *coordinator) wakeAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down > 0 {
		return c.downTill
	}
	at := c.pollAt
	if c.held > 0 {
		at = earlier(at, c.renewAt)
	}
	at = earlier(at, c.tidyAt)
	if c.capacity() > 0 {
		at = earlier(at, c.nextDue)
	}
	return at
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// settle records what came of attempts and claims more, until nothing is left.
func (c *coordinator) settle(now time.Time) error {
	for {
		c.mu.Lock()
		t := c.takeTodo()
		claim := c.wantClaim(now)
		c.mu.Unlock()
		// What is done is taken out of t, so that an error puts back the rest.
		err := c.giveBackNow(&t)
		if err == nil {
			err = c.renewAside(now, &t)
		}
		if err == nil && (len(t.outcomes) > 0 || claim != nil) {
			err = c.record(now, &t, claim)
		} else if err == nil {
			return nil
		}
		if err != nil {
			c.putBack(t)
			return err
		}
		now = time.Now()
	}
}

// takeTodo takes a batch.
func (q *Queue) takeTodo() todo {
	t := q.todo
	q.todo = todo{}
	if n := mostRecord; len(t.outcomes) > n {
		q.todo.outcomes, q.todo.finished = t.outcomes[n:], t.finished[n:]
		t.outcomes, t.finished = t.outcomes[:n:n], t.finished[:n:n]
	}
	return t
}

// putBack undoes takeTodo after a store error.
func (q *Queue) putBack(t todo) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.todo.outcomes = append(t.outcomes, q.todo.outcomes...)
	q.todo.finished = append(t.finished, q.todo.finished...)
	q.todo.releases = append(t.releases, q.todo.releases...)
	q.todo.returned = append(t.returned, q.todo.returned...)
	q.todo.aside = append(t.aside, q.todo.aside...)
}

// wantClaim returns what to claim now, or nil.
func (q *Queue) wantClaim(now time.Time) *store.ClaimParams {
	if q.state != stateRunning {
		return nil
	}
	limit := min(mostClaim, q.capacity())
	if limit <= 0 {
		return nil
	}
	want := !q.nextDue.IsZero() && !now.Before(q.nextDue)
	if !want {
		for _, l := range q.lanes {
			// Half empty is soon enough, and halves the number of claims.
			if l.more && 2*l.room() >= l.depth() {
				want = true
				break
			}
		}
	}
	if !want {
		return nil
	}
	return &store.ClaimParams{Now: now, LeaseParams: store.LeaseParams{
		Token: newToken(), Until: now.Add(q.cfg.Lease),
		Room: store.Room{Limit: limit, PerEndpoint: q.cfg.PerEndpoint, Endpoints: q.rooms()},
	}}
}

// call runs one store call, bounded in time.
func (c *coordinator) call(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(c.ctx, storeTime)
	defer cancel()
	return f(ctx)
}

// giveBackNow gives leases back.
func (c *coordinator) giveBackNow(t *todo) error {
	if len(t.releases) == 0 {
		return nil
	}
	err := c.call(func(ctx context.Context) error { return c.cfg.Store.Release(ctx, t.releases) })
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.drop(t.returned...)
	c.due(time.Now())
	c.mu.Unlock()
	t.releases, t.returned = nil, nil
	return nil
}

// record writes outcomes and claims, in one store call.
func (c *coordinator) record(now time.Time, t *todo, claim *store.ClaimParams) error {
	var result store.RecordResult
	err := c.call(func(ctx context.Context) (err error) {
		if len(t.outcomes) == 0 {
			result.Claim, err = c.cfg.Store.Claim(ctx, *claim)
			return err
		}
		result, err = c.cfg.Store.Record(ctx, store.RecordParams{Now: now, Outcomes: t.outcomes, Health: c.cfg.Health, Claim: claim})
		return err
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	for i := range t.outcomes {
		if o := &t.outcomes[i]; o.Status == store.StatusPending {
			c.due(o.NextAttemptAt)
		}
	}
	c.drop(t.finished...)
	if claim != nil {
		c.claimed(claim, &result.Claim)
	}
	if result.Queued && claim == nil {
		c.due(now)
	}
	for _, h := range result.Changes {
		if h.Paused {
			c.fence(h.EndpointID, h.Revision)
		}
	}
	c.mu.Unlock()
	if len(t.outcomes) > 0 {
		c.cfg.Recorded(t.outcomes, result)
	}
	t.outcomes, t.finished = nil, nil
	return nil
}

// claimed takes claimed leases into the lanes and notes what is left.
func (q *Queue) claimed(p *store.ClaimParams, r *store.ClaimResult) {
	q.nextDue = time.Time{}
	if len(r.Leases) == 0 && !r.NextDue.After(p.Now) && !r.NextDue.IsZero() {
		// The store has something due that it does not give. Do not ask at once.
		r.NextDue = p.Now.Add(backoffBase)
	}
	q.due(r.NextDue)
	got := make(map[int64]int)
	for i := range r.Leases {
		got[r.Leases[i].Target.EndpointID]++
	}
	q.accept(r.Leases)
	for id, l := range q.lanes {
		// A lane that was given all it had room for may have left some; so may
		// one that had no room to begin with.
		if room, listed := p.Room.Endpoints[id]; listed {
			l.more = got[id] >= room
		} else {
			l.more = got[id] > 0 && got[id] >= l.bound
		}
	}
}

// probe looks what is due and what other processes changed.
func (c *coordinator) probe(now time.Time) error {
	var r store.ProbeResult
	err := c.call(func(ctx context.Context) (err error) {
		r, err = c.cfg.Store.Probe(ctx, store.ProbeParams{Since: c.revision})
		return err
	})
	if err != nil {
		return err
	}
	c.pollAt = now.Add(c.cfg.Poll)
	c.revision = r.Revision
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range r.Changed {
		c.fence(change.EndpointID, change.Revision)
	}
	c.due(r.NextDue)
	c.forget(now)
	return nil
}

// renew extends the leases of what waits in lanes.
func (c *coordinator) renew(now time.Time) error {
	c.renewAt = now.Add(renewEvery)
	var items []*item
	c.mu.Lock()
	for _, l := range c.lanes {
		for _, it := range l.waiting[l.head:] {
			if it.lease.Until.Sub(now) < c.cfg.Timeout+StartMargin+2*renewEvery {
				items = append(items, it)
			}
		}
	}
	c.mu.Unlock()
	if len(items) == 0 {
		return nil
	}
	return c.extend(now, items)
}

// renewAside renews what could not start for lack of lease, and puts it back
// into its lane, or leaves it to its next owner.
func (c *coordinator) renewAside(now time.Time, t *todo) error {
	items := t.aside
	if len(items) == 0 {
		return nil
	}
	if err := c.extend(now, items); err != nil {
		return err
	}
	t.aside = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, it := range items {
		switch {
		case it.lost:
			c.drop(it)
		case c.state != stateRunning:
			c.giveBack(it, store.Release{LeaseRef: it.lease.Ref()})
		default:
			it.lane.push(it)
			c.ready.push(it.lane)
			c.staff()
		}
	}
	return nil
}

// extend renews leases and marks the items whose lease is somebody else's by now.
func (c *coordinator) extend(now time.Time, items []*item) error {
	until := now.Add(c.cfg.Lease)
	refs := make([]store.LeaseRef, len(items))
	for i, it := range items {
		refs[i] = it.lease.Ref()
	}
	var lost []int64
	err := c.call(func(ctx context.Context) (err error) {
		lost, err = c.cfg.Store.Renew(ctx, refs, until)
		return err
	})
	if err != nil {
		return err
	}
	gone := make(map[int64]bool, len(lost))
	for _, id := range lost {
		gone[id] = true
	}
	c.mu.Lock()
	for _, it := range items {
		if it.lost = gone[it.lease.DeliveryID]; !it.lost {
			it.lease.Until = until
		}
	}
	c.mu.Unlock()
	return nil
}

// tidy lets the dispatcher do its housekeeping.
func (c *coordinator) tidy(now time.Time) error {
	c.mu.Lock()
	at := c.tidyAt
	c.tidyAt = now.Add(time.Hour) // Tidy may bring it forward while we are at it
	c.mu.Unlock()
	next := at
	var err error
	if !now.Before(at) {
		err = c.call(func(ctx context.Context) (err error) {
			next, err = c.cfg.Maintain(ctx, now)
			return err
		})
	}
	c.mu.Lock()
	c.tidyAt = earlier(next, c.tidyAt)
	c.mu.Unlock()
	return err
}
