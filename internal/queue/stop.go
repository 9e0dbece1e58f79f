package queue

import (
	"errors"
	"fmt"
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
		l.more = false
	}
	for _, it := range c.todo.aside {
		c.giveBack(it, store.Release{LeaseRef: it.lease.Ref()})
	}
	c.todo.aside = nil
	c.mu.Unlock()

	err := c.flush()
	if !c.landed(c.cfg.Grace) {
		c.mu.Lock()
		c.cfg.Logger.Warn("webhook: cutting attempts that outlast the grace period", "count", len(c.flights))
		for _, f := range c.flights {
			f.cancel(errStopped)
		}
		c.mu.Unlock()
		if !c.landed(cutTime) {
			c.stuck = true
			err = errors.New("attempts did not end when they were cut")
		}
	}
	if e := c.flush(); e != nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("stopped, but not cleanly; leases run out by themselves: %w", err)
	}
	return nil
}

// landed waits until no attempt is under way, recording as they end.
func (c *coordinator) landed(most time.Duration) bool {
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		n := len(c.flights)
		c.mu.Unlock()
		if n == 0 {
			return true
		}
		select {
		case <-c.signal:
			_ = c.flush() // tried again at the end
		case <-deadline.C:
			return false
		}
	}
}

// flush records and gives back all there is.
func (c *coordinator) flush() error {
	for {
		c.mu.Lock()
		t := c.takeTodo()
		c.mu.Unlock()
		if len(t.outcomes) == 0 && len(t.releases) == 0 {
			return nil
		}
		err := c.giveBackNow(&t)
		if err == nil && len(t.outcomes) > 0 {
			err = c.record(time.Now(), &t, nil)
		}
		if err != nil {
			c.putBack(t)
			return err
		}
	}
}
