package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elido-app/webhook/store"
)

// errTimeLimit is the cause with which an attempt's context ends in RunOnce when
// the answer's headers, or its body, took too long.
var errTimeLimit = fmt.Errorf("time limit: %w", context.DeadlineExceeded)

// A Flight is one attempt under way.
type Flight struct {
	Lease *store.Lease

	q     *Queue
	item  *item
	prep  *preparation
	index int // in Queue.flights

	own flightContext
	// In RunOnce it has the caller's context, and its time limit is a timer.
	ctx   context.Context
	end   context.CancelCauseFunc
	timer *time.Timer

	started  time.Duration // since the queue's epoch
	deadline atomic.Int64  // time.Duration since the queue's epoch
	slow     bool
	gate     gate
}

// A gate is where the request of an attempt goes out, or is kept from it because
// its endpoint changed.
type gate struct {
	mu      sync.Mutex
	fenced  bool          // nothing goes out any more
	passed  bool          // a request was let out
	refused bool          // one was not
	going   bool          // one was let out, and has not begun yet
	begun   chan struct{} // closed when it has; made for who waits for it
}

// Context ends with the attempt's time limit, or when the queue cuts it.
func (f *Flight) Context() context.Context {
	if f.ctx != nil {
		return f.ctx
	}
	return &f.own
}

// cancel ends the context because we cut the attempt, or are done with it.
func (f *Flight) cancel() {
	if f.end != nil {
		f.end(nil)
		return
	}
	f.own.end(context.Canceled)
}

// Sending asks whether the request may go out, and says that it does. Once a
// Fence has returned, a request of an older revision may not. It may be asked
// again if the request has to take another way.
func (f *Flight) Sending() bool {
	g := &f.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fenced {
		g.refused = true
		return false
	}
	g.passed, g.going = true, true
	return true
}

// Began says that the request, which was let out, is on its way: a Fence that
// comes between has waited for it.
func (f *Flight) Began() {
	g := &f.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	g.going = false
	if g.begun != nil {
		close(g.begun)
		g.begun = nil
	}
}

// fenceFor keeps the request from going out, if it has not yet, where it is for
// an older revision of an endpoint. One that is about to begin cannot be held
// back: what is returned then, and not nil, is closed when it has.
func (f *Flight) fenceFor(endpointID, revision int64) (begun <-chan struct{}) {
	if f.Lease.Target.EndpointID != endpointID || f.Lease.Target.Revision >= revision {
		return nil
	}
	g := &f.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced = true
	if !g.passed {
		f.cancel()
	}
	if g.going && g.begun == nil {
		g.begun = make(chan struct{})
	}
	return g.begun
}

// Answered says that status and headers are there: from now on the body has
// its own, shorter time limit.
func (f *Flight) Answered() {
	if f.timer != nil {
		f.timer.Reset(f.q.cfg.BodyTime)
		return
	}
	f.deadline.Store(int64(time.Since(f.q.epoch) + f.q.cfg.BodyTime))
}

// TimedOut reports whether the attempt ended by its time limit.
func (f *Flight) TimedOut() bool {
	if f.ctx != nil {
		return errors.Is(context.Cause(f.ctx), errTimeLimit)
	}
	return errors.Is(f.own.Err(), context.DeadlineExceeded)
}

// Stopped reports whether the attempt was cut by us, or not let out.
func (f *Flight) Stopped() bool {
	f.gate.mu.Lock()
	refused := f.gate.refused
	f.gate.mu.Unlock()
	return refused || f.Context().Err() != nil && !f.TimedOut()
}

// interruptedOften is from how many interruptions on a delivery is suspected, and
// waits before it is taken again (store.RetakeDelay).
const interruptedOften = 5

// worker takes from the lanes until the queue stops or it is not needed.
func (q *Queue) worker() {
	defer q.group.Done()
	var f *Flight
	var result Result
	defer func() {
		if f != nil { // the host's code ended this goroutine
			q.mu.Lock()
			q.workers--
			q.land(f, &Result{Unready: errors.New("the attempt ended its goroutine")})
			q.unlock()
		}
	}()
	for {
		if f = q.next(f, &result); f == nil {
			return
		}
		result = q.send(f)
	}
}

// send makes the attempt. A panic in it is contained.
func (q *Queue) send(f *Flight) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			// Not the value: a scheme that panics may have put a secret into it.
			q.cfg.Logger.Error("webhook: panic in an attempt", "delivery_id", f.Lease.DeliveryID,
				"panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			result = Result{Unready: errors.New("the attempt panicked; see the log")}
		}
		f.Began() // or never will
		f.cancel()
	}()
	if l := f.Lease; l.Interruptions >= interruptedOften {
		// Here, as there may be nobody left to write it a moment later.
		q.cfg.Logger.Warn("webhook: delivery was interrupted often; does its payload kill the process?",
			"delivery_id", l.DeliveryID, "endpoint_id", l.Target.EndpointID, "interruptions", l.Interruptions)
	}
	prepared, err := f.prep.get(q.cfg.Sender, f.Lease.Target)
	if err != nil {
		return Result{Unready: err}
	}
	return q.cfg.Sender.Send(f, prepared)
}

// next hands in what became of an attempt and waits for another to make.
func (q *Queue) next(f *Flight, result *Result) *Flight {
	q.mu.Lock()
	defer q.unlock()
	if f != nil {
		q.land(f, result)
	}
	for q.state == stateRunning {
		if f := q.take(); f != nil {
			q.staff()
			return f
		}
		if q.waiting >= q.cfg.Workers {
			break
		}
		if len(q.lines) > 0 {
			q.unlock()
			q.mu.Lock()
			continue
		}
		q.waiting++
		q.work.Wait()
		q.waiting--
	}
	q.workers--
	return nil
}

// take starts the next attempt, if there is one and a free worker for it.
func (q *Queue) take() *Flight {
	if q.blind() {
		return nil
	}
	for len(q.flights)-q.slow < q.cfg.Workers {
		l := q.ready.pop()
		if l == nil {
			return nil
		}
		it := l.pop()
		ok := q.startable(it)
		if ok {
			q.start(l)
		}
		q.ready.push(l)
		if ok {
			return q.launch(it)
		}
	}
	return nil
}

// blind reports whether the store could not be asked for too long: another
// process may have paused an endpoint meanwhile, so nothing new starts.
func (q *Queue) blind() bool {
	return time.Since(q.probedAt) > q.cfg.Poll+blindAfter
}

// startable reports whether a lease may start a request now. If not it is given
// back, set aside for renewal or, if somebody else has it, dropped.
func (q *Queue) startable(it *item) bool {
	if it.lost {
		q.drop(it)
		return false
	}
	if q.fenced(it.lease) {
		q.giveBack(it, store.Release{LeaseRef: it.lease.Ref()})
		return false
	}
	if q.expiring(it.lease) {
		q.todo.aside = append(q.todo.aside, it)
		q.poke()
		return false
	}
	return true
}

// fenced reports whether a lease is of before its endpoint's last change.
func (q *Queue) fenced(l *store.Lease) bool {
	f, ok := q.fences[l.Target.EndpointID]
	return ok && l.Target.Revision < f.revision
}

// expiring reports whether a lease may not outlast an attempt.
func (q *Queue) expiring(l *store.Lease) bool {
	return time.Until(l.Until) < q.cfg.Timeout+StartMargin
}

func (q *Queue) launch(it *item) *Flight {
	l := it.lane
	if l.prepared == nil || l.prepared.revision != it.lease.Target.Revision {
		l.prepared = &preparation{revision: it.lease.Target.Revision}
	}
	f := &Flight{Lease: it.lease, q: q, item: it, prep: l.prepared, index: len(q.flights), started: time.Since(q.epoch)}
	f.deadline.Store(int64(f.started + q.cfg.Timeout))
	q.flights = append(q.flights, f)
	if l.hung {
		q.moveAside(f)
	}
	if len(q.flights) == 1 {
		select {
		case q.watch <- struct{}{}:
		default:
		}
	}
	return f
}

// moveAside moves an attempt to the slow pool, if that has room.
func (q *Queue) moveAside(f *Flight) {
	if f.slow || q.slow >= q.cfg.Slow {
		return
	}
	f.slow = true
	q.slow++
	q.bytes -= f.item.bytes // the slow pool has its own bound
	f.item.bytes = 0
	l := f.item.lane
	l.slow++
	l.limit = max(1, min(l.limit, l.running))
}

// land takes in the result of an attempt.
func (q *Queue) land(f *Flight, r *Result) {
	last := len(q.flights) - 1
	q.flights[f.index] = q.flights[last]
	q.flights[f.index].index = f.index
	q.flights[last] = nil
	q.flights = q.flights[:last]
	l := f.item.lane
	if f.slow {
		q.slow--
		l.slow--
	}
	l.running--
	switch {
	case r.Interrupted || r.Unready != nil:
		q.giveBack(f.item, q.returned(f, r))
	default:
		l.answered(r, r.Outcome.Attempt.Latency)
		r.Outcome.DeliveryID, r.Outcome.EndpointID, r.Outcome.Token = f.Lease.DeliveryID, l.endpointID, f.Lease.Token
		q.todo.outcomes = append(q.todo.outcomes, r.Outcome)
		q.todo.finished = append(q.todo.finished, f.item)
		q.poke()
	}
	q.ready.push(l)
	q.staff()
}

func (q *Queue) giveBack(it *item, r store.Release) {
	q.todo.releases = append(q.todo.releases, r)
	q.todo.returned = append(q.todo.returned, it)
	q.poke()
}

// staff wakes or starts one worker if there is work for another. That one does
// the same once it has taken its own.
func (q *Queue) staff() {
	ready := len(q.ready.lanes) > q.ready.head
	if q.state != stateRunning || !ready || q.blind() || len(q.flights)-q.slow >= q.cfg.Workers {
		return
	}
	if q.waiting > 0 {
		q.work.Signal()
	} else if q.spare() == 0 {
		q.workers++
		q.group.Add(1)
		go q.worker()
	}
}

// spare is how many workers are not in an attempt.
func (q *Queue) spare() int { return q.workers - len(q.flights) }

// watcher enforces time limits and moves slow attempts aside. One goroutine
// that looks at all attempts 40 times a second, and sleeps while there are
// none, costs less than a timer for each.
func (q *Queue) watcher(done <-chan struct{}) {
	defer q.group.Done()
	ticker := time.NewTicker(unprovenAfter)
	defer ticker.Stop()
	for {
		if !q.look() {
			ticker.Stop()
			select {
			case <-q.watch:
			case <-done:
				return
			}
			ticker.Reset(unprovenAfter)
		}
		select {
		case <-ticker.C:
		case <-done:
			return
		}
	}
}

// look goes over the running attempts and reports whether there are any.
func (q *Queue) look() bool {
	now := time.Since(q.epoch)
	q.mu.Lock()
	defer q.unlock()
	for _, f := range q.flights {
		if now >= time.Duration(f.deadline.Load()) {
			f.own.end(context.DeadlineExceeded)
		}
		after := SlowAfter
		if !f.item.lane.proven {
			after = unprovenAfter
		}
		if now-f.started >= after {
			q.moveAside(f)
		}
	}
	if q.slow > 0 {
		q.trim()
	}
	q.staff()
	return len(q.flights) > 0
}
