package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/elido-app/webhook/store"
)

const (
	storeTime   = 10 * time.Second // for one store call
	mostRecord  = 500              // outcomes in one store call
	mostClaim   = 500              // leases in one store call
	renewEvery  = 5 * time.Second
	forgetEvery = 2 * time.Second
	blindAfter  = time.Second // more than a poll interval without a probe
	backoffBase = 50 * time.Millisecond
	backoffMost = 5 * time.Second
	lastWords   = 40 * time.Millisecond // for the last store calls, after the grace period
)

// coordinator is the state of one Run.
type coordinator struct {
	*Queue
	// ctx is that of store calls: it outlives the cancellation of Run by the
	// grace period, and by what it takes to write down the end.
	ctx      context.Context
	revision int64 // of the last probe
	pollAt   time.Time
	clockAt  time.Time // zero: the store has no clock
	renewAt  time.Time
	forgetAt time.Time
	// What fails is tried again on its own: housekeeping that cannot be done
	// holds up no delivery, and a full disk does not keep us from reading.
	recording, probing, tidying, checking backoff
	stuck                                 bool // an attempt ignores being cut

	// early ends before ctx does, so that a call which hangs when Run is to stop
	// leaves time to try once more.
	early    context.Context
	endEarly context.CancelFunc
	// calls is the context of the store calls begun since callsAt.
	calls    context.Context
	endCalls context.CancelFunc
	callsAt  time.Time
}

// backoff puts off what failed.
type backoff struct {
	failures int // in a row
	till     time.Time
}

// try does something with the store, unless that failed a moment ago. It returns
// an error only if there is no use in going on.
func (c *coordinator) try(b *backoff, what string, f func() error) error {
	if time.Now().Before(b.till) {
		return nil
	}
	err := f()
	switch {
	case errors.Is(err, store.ErrClosed):
		return err
	case err != nil:
		b.failures++
		wait := min(backoffBase<<min(b.failures-1, 10), backoffMost)
		b.till = time.Now().Add(wait)
		if c.early.Err() == nil { // or it was cut short, and stop tries again
			c.cfg.Logger.Error("webhook: the store failed; trying again", "at", what, "error", err, "in_a_row", b.failures, "again_in", wait)
		}
	case b.failures > 0:
		c.cfg.Logger.Info("webhook: the store is back", "at", what, "failures", b.failures)
		*b = backoff{}
	}
	return nil
}

// Run drives the queue until ctx is cancelled. It returns nil after a clean
// stop. Only the first probe of the store can make it fail, or a store that was
// closed; other errors are logged, and tried again.
func (q *Queue) Run(ctx context.Context) error {
	q.mu.Lock()
	if q.state != stateIdle {
		q.unlock()
		return ErrRunning
	}
	q.state = stateRunning
	q.unlock()

	c := &coordinator{Queue: q}
	var end context.CancelFunc
	c.ctx, end = context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer c.end()
	c.early, c.endEarly = context.WithCancel(c.ctx)
	defer c.endEarly()
	defer context.AfterFunc(ctx, func() {
		after(q.cfg.Grace-q.cfg.lastPart(), c.endEarly)
		after(q.cfg.Grace+lastWords, end)
	})()
	done := make(chan struct{})
	q.group.Add(1)
	go q.watcher(done)
	watched, unwatch := context.WithCancel(ctx)
	defer func() {
		close(done)
		unwatch()
		q.mu.Lock()
		q.state = stateStopping // also if this is a panic
		q.work.Broadcast()
		q.unlock()
		if !c.stuck {
			q.group.Wait()
		}
		q.mu.Lock()
		q.state = stateIdle
		q.unlock()
	}()
	return c.run(ctx, watched)
}

func (c *coordinator) run(ctx, watched context.Context) error {
	if err := c.begin(time.Now()); err != nil {
		stopped := c.stop() // what a publish handed off meanwhile
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return stopped // before it began
		}
		return err
	}
	if w, ok := c.cfg.Store.(store.Watcher); ok {
		c.group.Go(func() { c.watchStore(watched, w) })
	}
	timer := time.NewTimer(c.cfg.Poll)
	defer timer.Stop()
	for ctx.Err() == nil {
		more, err := c.pass()
		if err != nil {
			_ = c.stop()
			return err
		}
		if more {
			continue
		}
		wait := c.idle()
		if wait <= 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-c.signal:
		case <-timer.C:
		}
	}
	return c.stop()
}

// begin makes sure that there is a store, and that this host's clock is fit to
// give leases by.
func (c *coordinator) begin(now time.Time) error {
	if err := c.probe(now); err != nil {
		return fmt.Errorf("the store does not answer: %w", err)
	}
	if _, ok := c.cfg.Store.(store.Clock); !ok {
		return nil
	}
	c.clockAt = now.Add(clockEvery)
	return c.checkClock(c.ctx)
}

// pass does a bounded piece of what is to be done now, and reports whether there
// is more. It returns an error only if there is no use in going on.
func (c *coordinator) pass() (more bool, err error) {
	now := time.Now()
	err = c.try(&c.recording, "recording", func() (err error) {
		if more, err = c.settle(now); err == nil && !now.Before(c.renewAt) {
			err = c.renew(now)
		}
		return err
	})
	if err == nil && !now.Before(c.pollAt) {
		err = c.try(&c.probing, "polling", func() error { return c.probe(now) })
	}
	if err == nil && !c.clockAt.IsZero() && !now.Before(c.clockAt) {
		err = c.try(&c.checking, "reading its clock", func() error { return c.mindClock(now) })
	}
	if err == nil {
		err = c.try(&c.tidying, "housekeeping", func() error { return c.tidy(now) })
	}
	if !now.Before(c.forgetAt) {
		c.forgetAt = now.Add(forgetEvery)
		c.mu.Lock()
		c.forget(now)
		c.unlock()
	}
	return more, err
}

// idle is how long there is nothing to do unless somebody signals. Each instant
// is compared with the present, never with another: if the wall clock was set,
// what comes from the store and what was reckoned here before do not compare.
func (c *coordinator) idle() time.Duration {
	c.mu.Lock()
	defer c.unlock()
	now := time.Now()
	wait := later(c.pollAt, c.probing.till).Sub(now)
	until := func(at time.Time) {
		if !at.IsZero() {
			wait = min(wait, at.Sub(now))
		}
	}
	until(later(c.tidyAt, c.tidying.till))
	if !c.clockAt.IsZero() {
		until(later(c.clockAt, c.checking.till))
	}
	if c.recording.failures > 0 {
		until(c.recording.till)
		return wait
	}
	if c.held > 0 {
		until(c.renewAt)
	}
	if !c.skewed && c.capacity(max(c.average, 1)) > 0 {
		until(c.nextDue)
	}
	return wait
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// call runs one store call, bounded in time. A panic in the store is its error.
func (q *Queue) call(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	return q.contain(func() error { return f(ctx) })
}

// contain makes a panic of the store its error.
func (q *Queue) contain(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			q.cfg.Logger.Error("webhook: panic in the store", "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			err = errors.New("the store panicked; see the log")
		}
	}()
	return f()
}

// call runs one store call, like Queue.call. Calls within a second share one
// context, as a busy coordinator makes thousands.
func (c *coordinator) call(f func(ctx context.Context) error) error {
	if now := time.Now(); c.calls == nil || c.calls.Err() != nil || now.Sub(c.callsAt) > time.Second {
		c.end()
		parent := c.early
		if parent.Err() != nil {
			parent = c.ctx
		}
		c.calls, c.endCalls = context.WithTimeout(parent, storeTime)
		c.callsAt = now
	}
	return c.contain(func() error { return f(c.calls) })
}

func (c *coordinator) end() {
	if c.endCalls != nil {
		c.endCalls()
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
	defer c.unlock()
	for _, change := range r.Changed {
		c.fence(change.EndpointID, change.Revision)
	}
	c.due(r.NextDue)
	c.probedAt = now
	c.staff()
	return nil
}

// renew extends the leases of what waits in lanes.
func (c *coordinator) renew(now time.Time) error {
	c.renewAt = now.Add(renewEvery)
	var items []*item
	c.mu.Lock()
	for _, l := range c.lanes {
		for _, it := range l.waiting[l.head:] {
			if !it.lost && it.lease.Until.Sub(now) < c.cfg.Timeout+StartMargin+2*renewEvery {
				items = append(items, it)
			}
		}
	}
	c.unlock()
	if len(items) == 0 {
		return nil
	}
	return c.extend(items)
}

// renewAside renews what could not start for lack of lease, and puts it back
// into its lane, or leaves it to its next owner.
func (c *coordinator) renewAside(t *todo) error {
	items := t.aside
	if len(items) == 0 {
		return nil
	}
	if err := c.extend(items); err != nil {
		return err
	}
	t.aside = nil
	c.mu.Lock()
	defer c.unlock()
	for _, it := range items {
		switch {
		case it.lost:
			c.drop(it)
		case c.state != stateRunning || c.skewed || c.fenced(it.lease):
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
func (c *coordinator) extend(items []*item) error {
	until := time.Now().Add(c.cfg.Lease).Round(0) // by the wall clock, as others see it
	refs := make([]store.LeaseRef, 0, len(items))
	c.mu.Lock()
	for _, it := range items {
		if !it.lost {
			refs = append(refs, it.lease.Ref())
		}
	}
	c.unlock()
	if len(refs) == 0 {
		return nil
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
		if it.lost = it.lost || gone[it.lease.DeliveryID]; !it.lost {
			it.lease.Until = until
		}
	}
	c.unlock()
	return nil
}

// tidy lets the dispatcher do its housekeeping.
func (c *coordinator) tidy(now time.Time) error {
	c.mu.Lock()
	at := c.tidyAt
	c.tidyAt = now.Add(time.Hour) // Tidy may bring it forward while we are at it
	c.unlock()
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
	c.unlock()
	return err
}
