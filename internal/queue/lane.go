package queue

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/elido-app/webhook/store"
)

// A lane holds what is leased for one endpoint, and knows how many requests
// the endpoint can take at once: one to begin with, more with each answer, no
// more than are open while one of them goes unanswered, and one again after a
// time limit passed.
type lane struct {
	workspaceID, endpointID int64

	bound      int     // most attempts at once, as of
	revision   int64   // this revision of the endpoint
	limit      int     // attempts at once now, 1 to bound
	hung       bool    // an attempt timed out and none succeeded since
	proven     bool    // it has answered
	fast       bool    // the last answer came within SlowAfter
	waiting    []*item // in due order; head is the index of the first
	head       int
	running    int  // attempts
	slow       int  // of them, unanswered for long
	held       int  // leases: waiting, running, or not recorded yet
	more       bool // the store has more that is due than the lane had room for
	queued     bool // it is in the ring
	idleSince  time.Time
	prepared   *preparation
	pace       *rate.Limiter // nil without a rate limit
	pacedUntil time.Time     // nothing starts before
	pacer      *time.Timer   // for then
}

// An item is one lease in a lane.
type item struct {
	lease *store.Lease
	lane  *lane
	lost  bool // the lease is somebody else's by now
	bytes int  // what it counts for in Queue.bytes
}

// depth is how many leases the lane may hold. It follows what the lane can run:
// an endpoint that does not answer must not fill the memory that others need,
// one that is quick gets as much as passes while the store commits, twice.
func (l *lane) depth() int {
	depth := 2 * l.limit
	switch {
	case l.hung || l.slow > 0:
		depth = l.limit
	case l.fast:
		depth = 16 * l.limit
	}
	if l.pace == nil {
		return depth
	}
	// No more than start within a few seconds, or leases would have to be renewed.
	if time.Until(l.pacedUntil) > paceAhead {
		return 0
	}
	return min(depth, max(1, int(float64(l.pace.Limit())*paceAhead.Seconds())))
}

// paceAhead is for how long a lane with a rate limit may be ahead of it.
const paceAhead = 2 * time.Second

func (l *lane) room() int { return max(0, l.depth()-l.held) }

func (l *lane) startable() bool {
	return l.head < len(l.waiting) && l.running < l.limit && !l.paced()
}

// paced reports whether the rate limit keeps the lane from starting something.
func (l *lane) paced() bool { return l.pace != nil && time.Now().Before(l.pacedUntil) }

// limitRate sets the lane's rate limit, in requests a second; zero means none.
// A burst of one spaces requests evenly.
func (l *lane) limitRate(limit float64) {
	switch {
	case limit <= 0:
		l.pace, l.pacedUntil = nil, time.Time{}
	case l.pace == nil:
		l.pace = rate.NewLimiter(rate.Limit(limit), 1)
	case float64(l.pace.Limit()) != limit:
		l.pace.SetLimit(rate.Limit(limit))
		l.pacedUntil = time.Now().Add(l.wait())
	}
}

// wait is how long until the next request may start.
func (l *lane) wait() time.Duration {
	now := time.Now()
	r := l.pace.ReserveN(now, 1)
	defer r.CancelAt(now)
	return r.DelayFrom(now)
}

// start counts a request that starts now.
func (q *Queue) start(l *lane) {
	l.running++
	if l.pace == nil {
		return
	}
	l.pace.ReserveN(time.Now(), 1)
	wait := l.wait()
	l.pacedUntil = time.Now().Add(wait)
	if wait > paceAhead {
		for _, it := range l.drain() {
			q.giveBack(it, store.Release{LeaseRef: it.lease.Ref()})
			q.setMore(l, true)
		}
	}
	if l.pacer != nil {
		l.pacer.Stop()
	}
	l.pacer = time.AfterFunc(wait, func() {
		q.mu.Lock()
		q.ready.push(l)
		q.staff()
		if l.more {
			q.poke()
		}
		q.unlock()
	})
}

func (l *lane) push(it *item) {
	if l.head > 64 && 2*l.head > len(l.waiting) {
		l.waiting = append(l.waiting[:0], l.waiting[l.head:]...)
		l.head = 0
	}
	l.waiting = append(l.waiting, it)
}

func (l *lane) pop() *item {
	it := l.waiting[l.head]
	l.waiting[l.head] = nil
	l.head++
	if l.head == len(l.waiting) {
		l.waiting, l.head = l.waiting[:0], 0
	}
	return it
}

// drain empties the lane of what waits.
func (l *lane) drain() []*item {
	rest := append([]*item(nil), l.waiting[l.head:]...)
	clear(l.waiting)
	l.waiting, l.head = l.waiting[:0], 0
	return rest
}

// answered adapts the limit to what an attempt came to.
func (l *lane) answered(r *Result, latency time.Duration) {
	switch {
	case r.TimedOut:
		l.limit, l.hung, l.fast = 1, true, false
	case l.hung && r.Outcome.Status != store.StatusDelivered:
	case r.Outcome.Attempt.Status == 0: // nobody answered: learn nothing
	default:
		l.hung, l.proven = false, true
		l.fast = latency < SlowAfter
		if l.fast {
			l.limit = min(l.bound, 2*l.limit)
		} else {
			l.limit = min(l.bound, l.limit+1)
		}
	}
}

// A preparation is what Sender.Prepare made of one revision of a target, once.
type preparation struct {
	revision int64
	once     sync.Once
	value    any
	err      error
}

func (p *preparation) get(s Sender, t *store.Target) (any, error) {
	p.once.Do(func() { p.value, p.err = s.Prepare(t) })
	return p.value, p.err
}

// ring is a queue of lanes. Each lane is in it at most once.
type ring struct {
	lanes []*lane
	head  int
}

func (r *ring) push(l *lane) {
	if l.queued || !l.startable() {
		return
	}
	l.queued = true
	if r.head > 64 && 2*r.head > len(r.lanes) {
		r.lanes = append(r.lanes[:0], r.lanes[r.head:]...)
		r.head = 0
	}
	r.lanes = append(r.lanes, l)
}

// pop returns the next lane that can start something, or nil.
func (r *ring) pop() *lane {
	for r.head < len(r.lanes) {
		l := r.lanes[r.head]
		r.lanes[r.head] = nil
		r.head++
		if r.head == len(r.lanes) {
			r.lanes, r.head = r.lanes[:0], 0
		}
		l.queued = false
		if l.startable() {
			return l
		}
	}
	return nil
}

// lane returns the lane of a target, new if need be.
func (q *Queue) lane(t *store.Target) *lane {
	l := q.lanes[t.EndpointID]
	if l == nil {
		l = &lane{workspaceID: t.WorkspaceID, endpointID: t.EndpointID, limit: 1}
		q.lanes[t.EndpointID] = l
		if q.workspaces[t.WorkspaceID] == nil {
			q.workspaces[t.WorkspaceID] = make(map[int64]*lane)
		}
		q.workspaces[t.WorkspaceID][t.EndpointID] = l
	}
	if t.Revision >= l.revision { // leases do not come in the order of changes
		l.revision = t.Revision
		l.bound = q.cfg.PerEndpoint
		if t.MaxInFlight > 0 {
			l.bound = t.MaxInFlight
		}
		l.limitRate(t.RateLimit)
		l.limit = min(l.limit, l.bound)
	}
	return l
}

// trim gives back what waits in lanes beyond what they can run, when others need
// the room.
func (q *Queue) trim() {
	most := q.most()
	if q.held < most/2 && q.bytes < q.cfg.HeldBytes/2 {
		return
	}
	for _, l := range q.lanes {
		for l.slow > 0 && len(l.waiting)-l.head > max(0, l.depth()-l.running) {
			last := len(l.waiting) - 1
			q.giveBack(l.waiting[last], store.Release{LeaseRef: l.waiting[last].lease.Ref()})
			l.waiting[last] = nil
			l.waiting = l.waiting[:last]
			q.setMore(l, true)
		}
	}
}

// setMore notes whether the store may have more that is due for a lane.
func (q *Queue) setMore(l *lane, more bool) {
	l.more = more
	if more {
		q.hungry[l] = struct{}{}
	} else {
		delete(q.hungry, l)
	}
}

// forget drops lanes that have had nothing to do for a while. Those are kept a
// moment since they remember how their receiver behaves.
func (q *Queue) forget(now time.Time) {
	for id, l := range q.lanes {
		switch {
		case l.held > 0 || l.more || l.paced():
			l.idleSince = time.Time{}
		case l.idleSince.IsZero():
			l.idleSince = now
		case now.Sub(l.idleSince) > time.Minute && (!l.hung || now.Sub(l.idleSince) > time.Hour):
			delete(q.lanes, id)
			of := q.workspaces[l.workspaceID]
			if delete(of, id); len(of) == 0 {
				delete(q.workspaces, l.workspaceID)
			}
		}
	}
	for id, f := range q.fences {
		// What waits to be renewed may be older than a fence.
		if now.After(f.until) && len(q.todo.aside) == 0 {
			delete(q.fences, id)
		}
	}
}
