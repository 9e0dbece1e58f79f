package queue

import (
	"context"
	"errors"
	"time"

	"github.com/elido-app/webhook/store"
)

// settle records one batch of what came of attempts, and claims more. It reports
// whether there is more of either.
func (c *coordinator) settle(now time.Time) (more bool, err error) {
	c.mu.Lock()
	t := c.takeTodo()
	var claim *store.ClaimParams
	if len(c.todo.outcomes) == 0 { // or the claim might retake what they are about
		claim = c.wantClaim(now)
	}
	if claim != nil {
		c.nextDue = time.Time{} // whoever wakes us from now on means the next claim
	}
	c.unlock()
	// What is done is taken out of t; an error puts back the rest.
	err = c.giveBackNow(&t)
	if err == nil {
		err = c.renewAside(&t)
	}
	switch {
	case err == nil && (len(t.outcomes) > 0 || claim != nil):
		err = c.record(now, &t, claim)
	case len(t.outcomes) > 0: // what was sent must be known, whatever else fails
		err = errors.Join(err, c.record(now, &t, nil))
	}
	c.mu.Lock()
	defer c.unlock()
	if err != nil {
		c.putBack(t)
		if claim != nil {
			c.due(now)
		}
		return false, err
	}
	return !c.todo.empty() || c.claimWanted(time.Now()), nil
}

// takeTodo takes a batch.
func (q *Queue) takeTodo() todo {
	t := q.todo
	q.todo = todo{outcomes: q.recycled.outcomes, finished: q.recycled.finished}
	q.recycled = todo{}
	if n := mostRecord; len(t.outcomes) > n {
		q.todo.outcomes, q.todo.finished = t.outcomes[n:], t.finished[n:]
		t.outcomes, t.finished = t.outcomes[:n:n], t.finished[:n:n]
	}
	return t
}

// reuse keeps the lists of what was recorded for the next.
func (q *Queue) reuse(t *todo) {
	if cap(t.outcomes) > 2*mostRecord {
		return // the beginning of a list that took a whole outage
	}
	clear(t.outcomes)
	clear(t.finished)
	q.mu.Lock()
	q.recycled = todo{outcomes: t.outcomes[:0], finished: t.finished[:0]}
	q.unlock()
}

// putBack undoes takeTodo after a store error.
func (q *Queue) putBack(t todo) {
	q.todo.outcomes = append(t.outcomes, q.todo.outcomes...)
	q.todo.finished = append(t.finished, q.todo.finished...)
	q.todo.releases = append(t.releases, q.todo.releases...)
	q.todo.returned = append(t.returned, q.todo.returned...)
	q.todo.aside = append(t.aside, q.todo.aside...)
}

// claimWanted reports whether the store may have something that there is room
// for.
func (q *Queue) claimWanted(now time.Time) bool {
	if q.state != stateRunning || q.skewed || q.capacity(max(q.average, 1)) <= 0 {
		return false
	}
	if !q.nextDue.IsZero() && !now.Before(q.nextDue) {
		return true
	}
	for l := range q.hungry {
		// Half empty is soon enough, and halves the number of claims.
		if room := l.room(); room > 0 && 2*room >= l.depth() {
			return true
		}
	}
	return false
}

// wantClaim returns what to claim now, or nil.
func (q *Queue) wantClaim(now time.Time) *store.ClaimParams {
	if !q.claimWanted(now) {
		return nil
	}
	return &store.ClaimParams{Now: now, LeaseParams: store.LeaseParams{
		Token: newToken(), Until: now.Add(q.cfg.Lease),
		Room: store.Room{
			Limit:       min(mostClaim, q.capacity(max(q.average, 1))),
			PerEndpoint: newLaneDepth,
			Endpoints:   rooms(make(map[int64]int), q.lanes),
		},
	}}
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
	c.unlock()
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
	c.unlock()
	if len(t.outcomes) > 0 {
		c.cfg.Recorded(t.outcomes, func(i int) *store.Lease { return t.finished[i].lease }, result)
		c.reuse(t)
	}
	t.outcomes, t.finished = nil, nil
	return nil
}

// claimed takes claimed leases into the lanes and notes what is left.
func (q *Queue) claimed(p *store.ClaimParams, r *store.ClaimResult) {
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
	// A lane that was given all it had room for may have left some; so may one
	// that had no room to begin with.
	for l := range q.hungry {
		if _, listed := p.Room.Endpoints[l.endpointID]; !listed && got[l.endpointID] == 0 {
			q.setMore(l, false)
		}
	}
	for id, room := range p.Room.Endpoints {
		if l := q.lanes[id]; l != nil {
			q.setMore(l, got[id] >= room)
		}
	}
	for id, n := range got {
		if _, listed := p.Room.Endpoints[id]; !listed {
			l := q.lanes[id]
			q.setMore(l, n >= min(newLaneDepth, l.bound))
		}
	}
}
