package webhook_test

import (
	"context"
	"slices"
	"time"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

// A party is one process: a Dispatcher with its own connection to the store and
// its own way to the receivers. Between it and either sits the machine, which
// watches, and breaks things.
type party struct {
	*webhook.Dispatcher
	m     *machine
	name  string
	clock *hostClock
	born  time.Time
	inner store.Store

	cancel context.CancelFunc
	ended  chan error    // what Run returned; nil unless it runs
	ran    time.Time     // when it was started
	death  chan struct{} // closed when the process crashes

	// Guarded by machine.mu.
	dead     bool
	deaths   []time.Time // crashes, and when Run or RunOnce gave up with an error
	stopping bool
	plan     []mishap            // of the next store calls, one each
	aimed    map[string][]mishap // of the next calls of one method
	outage   outage
	troubles []span
	holds    map[int64]*tenure // the last lease of each delivery that it got
}

func (p *party) running() bool { return p.ended != nil }

// An outage is a time in which no store call gets through: each fails at once or
// hangs until the end.
type outage struct {
	until time.Time
	hangs bool
}

type span struct{ from, to time.Time }

// trouble notes that store calls of the party are not to be relied on.
func (p *party) trouble(from, to time.Time) { p.troubles = append(p.troubles, span{from, to}) }

// troubled reports whether there was trouble between two instants.
func (p *party) troubled(from, to time.Time) bool {
	for _, s := range p.troubles {
		if !s.to.Before(from) && !s.from.After(to) {
			return true
		}
	}
	return false
}

const (
	storePatience  = 10 * time.Second // how long the dispatcher waits for one store call
	longestBackoff = 5 * time.Second
	startMargin    = 5 * time.Second // what a lease lasts, at least, beyond the time limit when a request starts
)

// catchesUp returns when the party has written at the latest what came to be
// known at an instant: store calls that failed are tried again.
func (p *party) catchesUp(at time.Time) time.Time {
	for more := true; more; {
		more = false
		for _, s := range p.troubles {
			if till := s.to.Add(longestBackoff); !s.from.After(at) && till.After(at) {
				at, more = till, true
			}
		}
	}
	return at
}

// forgives reports whether a request may be in no log: it was cut, its process
// did not live to write it down, or somebody else got the delivery before it
// could, or it has not yet.
func (q *machineRequest) forgives() bool {
	p := q.by
	by := p.catchesUp(q.done)
	return q.open || q.cut || !time.Now().After(by) && by.After(q.done) || q.outlived(by) ||
		slices.ContainsFunc(p.deaths, func(t time.Time) bool { return !t.Before(q.at) && !t.After(by) })
}

// outlived reports whether its delivery was given to somebody else by an instant.
func (q *machineRequest) outlived(by time.Time) bool {
	return q.lease != nil && !q.lease.lost.IsZero() && !q.lease.lost.After(by)
}

// knows returns when the party must know of a change that another one made: one
// poll later, or one after the store is back.
func (p *party) knows(changed time.Time) time.Time {
	by := changed.Add(p.m.config.Poll)
	for _, s := range p.troubles { // in order of their beginning
		if !s.from.After(by) && !s.to.Add(storePatience).Before(changed) {
			if back := s.to.Add(longestBackoff + storePatience + p.m.config.Poll); back.After(by) {
				by = back
			}
		}
	}
	return by
}
