package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/elido-app/webhook/store"
)

// cutTime is how long attempts get to notice that they were cut.
const cutTime = 2 * time.Second

// stop ends a Run: nothing starts any more, what waits goes back, what runs has
// the grace period, then it is cut and goes back too.
func (c *coordinator) stop() error {
	c.mu.Lock()
	c.state = stateStopping
	c.work.Broadcast()
	for _, l := range c.lanes {
		for _, it := range l.drain() {
			c.giveBack(it, store.Release{LeaseRef: it.lease.Ref()})
		}
		c.setMore(l, false)
		if l.pacer != nil {
			l.pacer.Stop()
		}
	}
	for _, it := range c.todo.aside {
		c.giveBack(it, store.Release{LeaseRef: it.lease.Ref()})
	}
	c.todo.aside = nil
	c.unlock()

	// Where it was not the end of Run's context that brought us here.
	defer after(c.cfg.Grace-c.cfg.lastPart(), c.endEarly)()
	_ = c.flush() // what fails is tried again at the end
	var err error
	if !c.landed(c.early) {
		c.mu.Lock()
		c.log(slog.LevelWarn, "webhook: cutting attempts that outlast the grace period", "count", len(c.flights))
		for _, f := range c.flights {
			f.cancel()
		}
		c.unlock()
		cut, end := context.WithTimeout(context.Background(), cutTime)
		defer end()
		if !c.landed(cut) {
			c.stuck = true
			err = errors.New("attempts did not end when they were cut")
		}
	}
	if err = errors.Join(err, c.flush()); err != nil {
		return fmt.Errorf("stopped, but not cleanly; leases run out by themselves: %w", err)
	}
	return nil
}

// after calls f once d has passed, at once if that is nothing, unless stop is
// called before. Two timers of no duration at a time crash the race detector in
// a synctest bubble (Go 1.26).
func after(d time.Duration, f func()) (stop func()) {
	if d <= 0 {
		f()
		return func() {}
	}
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// lastPart is the part of the grace period that is for writing down how it ended.
func (c *Config) lastPart() time.Duration { return min(c.Grace/4, time.Second) }

// landed waits until no attempt is under way, recording as they end, or until
// a context is over.
func (c *coordinator) landed(over context.Context) bool {
	for {
		c.mu.Lock()
		n := len(c.flights)
		c.unlock()
		if n == 0 {
			return true
		}
		select {
		case <-c.signal:
			_ = c.flush() // tried again at the end
		case <-over.Done():
			return false
		}
	}
}

// flush records and gives back all there is. What was sent comes first: a lease
// that cannot be given back runs out by itself.
func (c *coordinator) flush() error {
	for {
		c.mu.Lock()
		t := c.takeTodo()
		c.unlock()
		if t.empty() {
			return nil
		}
		var err error
		if len(t.outcomes) > 0 {
			err = c.record(time.Now(), &t, nil)
		}
		if err = errors.Join(err, c.giveBackNow(&t)); err != nil {
			c.mu.Lock()
			c.putBack(t)
			c.unlock()
			return err
		}
	}
}
