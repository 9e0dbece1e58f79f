package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/elido-app/webhook/store"
)

// ErrClock is wrapped by the error of a Run whose host's clock is off.
var ErrClock = errors.New("this host's clock and the store's differ by more than leases allow")

const (
	clockEvery   = 30 * time.Second // between two checks
	clockLook    = 3                // looks at the clock in one check
	leasePerSkew = 20               // a lease is this many times the offset that is allowed
)

// tolerance is how far this host's clock may be off. Twice that, for two hosts
// off in different directions, fits into StartMargin at the default lease.
func (q *Queue) tolerance() time.Duration { return q.cfg.Lease / leasePerSkew }

// offset measures how far the store's clock is ahead of this host's. Of several
// looks the quickest counts: half of its time is how wrong it may be.
func (q *Queue) offset(ctx context.Context, clock store.Clock) (offset, doubt time.Duration, err error) {
	for i := range clockLook {
		var now time.Time
		begun := time.Now()
		err := q.call(ctx, func(ctx context.Context) (err error) {
			now, err = clock.Now(ctx)
			return err
		})
		if err != nil {
			return 0, 0, err
		}
		half := time.Since(begun) / 2
		if i == 0 || half < doubt {
			// Round drops the monotonic reading: wall clocks are compared.
			offset, doubt = now.Sub(begun.Add(half).Round(0)), half
		}
	}
	return offset, doubt, nil
}

// checkClock returns an error that wraps ErrClock if this host's clock is
// certainly off by more than leases allow. A store without a clock is trusted.
func (q *Queue) checkClock(ctx context.Context) error {
	clock, ok := q.cfg.Store.(store.Clock)
	if !ok {
		return nil
	}
	offset, doubt, err := q.offset(ctx, clock)
	if err != nil {
		return err
	}
	if offset.Abs()-doubt <= q.tolerance() {
		return nil
	}
	side := "behind"
	if offset < 0 {
		side = "ahead of"
	}
	return fmt.Errorf("%w: it is %v %s the store's, and %v are allowed", ErrClock, offset.Abs().Round(time.Millisecond), side, q.tolerance())
}

// mindClock checks the clock when that is due. While it is off, nothing is
// claimed or handed off, and what waits in lanes goes back: leases that are given
// or renewed by a wrong clock would not keep others away.
func (c *coordinator) mindClock(now time.Time) error {
	err := c.checkClock(c.ctx)
	off := errors.Is(err, ErrClock)
	if err != nil && !off {
		return err
	}
	c.clockAt = now.Add(clockEvery)
	if off {
		c.clockAt = now.Add(min(clockEvery, c.cfg.Poll))
	}
	c.mu.Lock()
	defer c.unlock()
	switch was := c.skewed; {
	case off && !was:
		c.skewed = true
		for _, l := range c.lanes {
			for _, it := range l.drain() {
				c.giveBack(it, store.Release{LeaseRef: it.lease.Ref()})
			}
			c.setMore(l, false)
		}
		c.log(slog.LevelError, "webhook: nothing is claimed any more", "error", err)
	case !off && was:
		c.skewed = false
		c.due(now)
		c.log(slog.LevelInfo, "webhook: this host's clock is right again; claiming goes on")
	}
	return nil
}
