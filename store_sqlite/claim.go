//go:build cgo

package sqlitestore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/elido-app/webhook/store"
)

// allotment is the room a call has for leases, as it is used up.
type allotment struct {
	token, until int64
	room         store.Room
	given        int
	byEndpoint   map[int64]int
}

func newAllotment(p store.LeaseParams) *allotment {
	return &allotment{token: p.Token, until: p.Until.UnixMilli(), room: p.Room, byEndpoint: map[int64]int{}}
}

// left returns how many leases an endpoint may still have, whatever the limit.
func (a *allotment) left(e *endpoint) int {
	return a.room.For(e.id, e.target.MaxInFlight) - a.byEndpoint[e.id]
}

// full reports whether the limit is reached.
func (a *allotment) full() bool { return a.given >= a.room.Limit }

// take uses up the room for one lease, if there is any.
func (a *allotment) take(e *endpoint) bool {
	if a.full() || a.left(e) <= 0 {
		return false
	}
	a.given++
	a.byEndpoint[e.id]++
	return true
}

// barred reports whether an endpoint is known to have no room without looking
// at it.
func (a *allotment) barred(endpointID int64) bool {
	n, ok := a.room.Endpoints[endpointID]
	return ok && n <= a.byEndpoint[endpointID]
}

// maxRetaken bounds how many leases that ran out one claim turns into due work.
const maxRetaken = 1000

// lanePage is how many lanes are read at a time.
const lanePage = 64

// leasesSeen is how many leases a claim looks at to find one that ends at an
// endpoint with room.
const leasesSeen = 16

// Limits are expressions: SQLite prepares a statement anew each time a bare
// parameter of its LIMIT or OFFSET is bound, to plan for the value.
var (
	selectRunOut = &query{sql: `SELECT id, endpoint_id, ordering_key, interruptions, lease_until FROM webhook_deliveries
		WHERE state = 1 AND lease_until <= ? ORDER BY lease_until LIMIT ? + 0`}
	updateRunOut = &query{sql: `UPDATE webhook_deliveries
		SET state = 0, lease_until = NULL, interruptions = ?, due_at = ? WHERE id = ?`}
	selectLanes = &query{sql: `SELECT next_due, endpoint_id FROM webhook_lanes
		WHERE (next_due, endpoint_id) > (?, ?) ORDER BY next_due, endpoint_id LIMIT ? + 0`}
	selectClaim = &query{sql: `SELECT id, due_at, ordering_key, created_at, attempts, budget, total_attempts, interruptions, event_seq
		FROM webhook_deliveries WHERE endpoint_id = ? AND state = 0 AND due_at <= ? ORDER BY due_at, id LIMIT ? + 0`}
	selectClaimed = &query{sql: `SELECT e.seq, e.id, e.type, e.payload, e.trace
		FROM json_each(?) j CROSS JOIN webhook_events e ON e.seq = j.value`}
	updateLeased = &query{sql: `UPDATE webhook_deliveries SET state = 1, token = ?, lease_until = ?
		WHERE id IN (SELECT value FROM json_each(?))`}
	selectNextDue = &query{sql: `SELECT due_at FROM webhook_deliveries
		WHERE endpoint_id = ? AND state = 0 ORDER BY due_at, id LIMIT 1 OFFSET ? + 0`}
	selectLeaseEnds = &query{sql: `SELECT lease_until, endpoint_id FROM webhook_deliveries
		WHERE state = 1 AND lease_until >= ? ORDER BY lease_until LIMIT ? + 0`}
)

// Claim implements store.Store.
func (s *Store) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	var result store.ClaimResult
	err := s.write(ctx, "claim", max(p.Room.Limit, 1), func(tx *transaction) (err error) {
		result, err = tx.claim(p)
		return err
	})
	if err != nil {
		return store.ClaimResult{}, err
	}
	return result, nil
}

// retake makes due what is under a lease that ran out. It does not take the
// token away: until somebody else takes the delivery, its outcome counts.
func (tx *transaction) retake(now int64) error {
	if now <= tx.retaken {
		return nil
	}
	type runOut struct {
		id, endpointID, interruptions, until int64
		key                                  any
	}
	var list []runOut
	err := tx.run(selectRunOut, func(r row) {
		list = append(list, runOut{integer(r[0]), integer(r[1]), integer(r[3]) + 1, integer(r[4]), r[2]})
	}, now, int64(maxRetaken))
	if err != nil {
		return err
	}
	for _, l := range list {
		due := l.until + store.RetakeDelay(int(l.interruptions)).Milliseconds()
		if err := tx.run(updateRunOut, nil, l.interruptions, due, l.id); err != nil {
			return err
		}
		tx.ready(l.endpointID)
		if l.key != nil {
			if _, err := tx.settle(l.endpointID, l.key); err != nil {
				return err
			}
		}
	}
	if len(list) < maxRetaken {
		tx.retaken = now
	}
	return nil
}

// claiming is one claim as it goes through the lanes.
type claiming struct {
	tx        *transaction
	now       int64
	allotment *allotment
	taken     []taken
	next      earliest
}

// taken is a delivery that a claim takes.
type taken struct {
	id, dueAt, createdAt, event            int64
	attempts, budget, total, interruptions int
	key                                    string
	endpoint                               *endpoint
}

// claim leases due deliveries.
func (tx *transaction) claim(p store.ClaimParams) (store.ClaimResult, error) {
	c := claiming{tx: tx, now: p.Now.UnixMilli(), allotment: newAllotment(p.LeaseParams), taken: tx.taken[:0]}
	var result store.ClaimResult
	if err := tx.retake(c.now); err != nil {
		return result, err
	}
	if err := tx.refreshLanes(); err != nil {
		return result, err
	}
	// Read before this claim adds leases of its own, which are not left.
	ends, err := tx.leaseEnds()
	if err != nil {
		return result, err
	}
	err = c.lanes()
	tx.taken = c.taken // to be used again
	if err != nil {
		return result, err
	}
	if result.Leases, err = c.leases(); err != nil {
		return result, err
	}
	if err := c.leaseEnds(ends); err != nil {
		return result, err
	}
	result.NextDue = c.next.instant()
	return result, nil
}

// lanes goes through the lanes, in order of due time.
func (c *claiming) lanes() error {
	a := c.allotment
	after := lane{math.MinInt64, 0}
	for {
		lanes, err := c.tx.lanesAfter(after)
		if err != nil {
			return err
		}
		for _, l := range lanes {
			after = l
			if a.barred(l.endpointID) {
				continue
			}
			e, err := c.tx.endpoint(l.endpointID)
			if err != nil {
				return err
			}
			if e == nil || a.left(e) <= 0 {
				continue
			}
			if l.nextDue > c.now || a.full() {
				// This is the earliest left: lanes come in order of due time.
				c.next.add(l.nextDue)
				return nil
			}
			if err := c.lane(e); err != nil {
				return err
			}
		}
		if len(lanes) < lanePage {
			return nil
		}
	}
}

// lane takes what is due in one endpoint's lane, as far as there is room, and
// adds when the rest is due.
func (c *claiming) lane(e *endpoint) error {
	a, n := c.allotment, 0
	room := min(a.left(e), a.room.Limit-a.given)
	var left firstDue
	// One more than there is room for says when the rest is due.
	err := c.tx.run(selectClaim, func(r row) {
		if n == room {
			left = firstDue{integer(r[1]), true}
			return
		}
		n++
		c.taken = append(c.taken, taken{
			id: integer(r[0]), dueAt: integer(r[1]), key: text(r[2]), createdAt: integer(r[3]),
			attempts: int(integer(r[4])), budget: int(integer(r[5])), total: int(integer(r[6])), interruptions: int(integer(r[7])),
			event: integer(r[8]), endpoint: e,
		})
	}, e.id, c.now, int64(room)+1)
	if err == nil && !left.some {
		err = c.tx.run(selectNextDue, func(r row) { left = firstDue{integer(r[0]), true} }, e.id, int64(n))
	}
	if err != nil {
		return err
	}
	a.given += n
	a.byEndpoint[e.id] += n
	c.tx.readyFrom(e.id, left)
	if left.some && a.left(e) > 0 {
		c.next.add(left.at)
	}
	return nil
}

// leases writes the leases down and reads what they are about. Many may be about
// one event, so these are read apart, each once.
func (c *claiming) leases() ([]store.Lease, error) {
	if len(c.taken) == 0 {
		return nil, nil
	}
	type event struct {
		id, kind, trace string
		payload         []byte
		found           bool
	}
	var ids, seqs idList
	events := make(map[int64]event)
	for i := range c.taken {
		t := &c.taken[i]
		ids = ids.add(t.id)
		if _, listed := events[t.event]; !listed {
			events[t.event] = event{}
			seqs = seqs.add(t.event)
		}
	}
	err := c.tx.run(selectClaimed, func(r row) {
		events[integer(r[0])] = event{text(r[1]), text(r[2]), text(r[4]), blob(r[3]), true}
	}, seqs.value())
	if err != nil {
		return nil, err
	}
	a := c.allotment
	leases := make([]store.Lease, len(c.taken))
	for i := range c.taken {
		t := &c.taken[i]
		e := events[t.event]
		if !e.found {
			return nil, c.tx.corrupt(fmt.Errorf("delivery %d has no event", t.id))
		}
		leases[i] = store.Lease{
			DeliveryID: t.id, WorkspaceID: t.endpoint.workspaceID, Token: a.token, Until: at(a.until),
			EventID: e.id, EventType: e.kind, OrderingKey: t.key, Trace: e.trace, Payload: e.payload,
			CreatedAt: at(t.createdAt), DueAt: at(t.dueAt),
			Attempts: t.attempts, Budget: t.budget, TotalAttempts: t.total, Interruptions: t.interruptions, Target: t.endpoint.target,
		}
	}
	return leases, c.tx.run(updateLeased, nil, a.token, a.until, ids.value())
}

// lane is an endpoint with ready deliveries, or with a lease.
type lane struct{ nextDue, endpointID int64 }

func (tx *transaction) lanesAfter(l lane) ([]lane, error) {
	var lanes []lane
	err := tx.run(selectLanes, func(r row) {
		lanes = append(lanes, lane{integer(r[0]), integer(r[1])})
	}, l.nextDue, l.endpointID, int64(lanePage))
	return lanes, err
}

// leaseEnds returns the ends of the leases that end first.
func (tx *transaction) leaseEnds() ([]lane, error) {
	var ends []lane
	err := tx.run(selectLeaseEnds, func(r row) {
		ends = append(ends, lane{integer(r[0]), integer(r[1])})
	}, int64(math.MinInt64), int64(leasesSeen))
	return ends, err
}

// leaseEnds adds the first of ends that counts, or, if none does and there may be
// more, the last as a bound.
func (c *claiming) leaseEnds(ends []lane) error {
	for _, end := range ends {
		if c.allotment.barred(end.endpointID) {
			continue
		}
		e, err := c.tx.endpoint(end.endpointID)
		if err != nil {
			return err
		}
		if e != nil && e.active && c.allotment.left(e) > 0 {
			c.next.add(end.nextDue)
			return nil
		}
	}
	if len(ends) == leasesSeen {
		c.next.add(ends[leasesSeen-1].nextDue)
	}
	return nil
}

// earliest is the earliest of some instants, if there are any.
type earliest struct {
	ms    int64
	known bool
}

func (e *earliest) add(ms int64) {
	if !e.known || ms < e.ms {
		e.ms, e.known = ms, true
	}
}

func (e *earliest) instant() time.Time {
	if !e.known {
		return time.Time{}
	}
	return at(e.ms)
}
