//go:build cgo

package sqlitestore

import (
	"context"
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

var (
	selectRunOut = &query{sql: `SELECT id, endpoint_id, ordering_key, interruptions, lease_until FROM webhook_deliveries
		WHERE state = 1 AND lease_until <= ? ORDER BY lease_until LIMIT ?`}
	updateRunOut = &query{sql: `UPDATE webhook_deliveries
		SET state = 0, lease_until = NULL, interruptions = ?, due_at = ? WHERE id = ?`}
	selectLanes = &query{sql: `SELECT next_due, endpoint_id FROM webhook_lanes
		WHERE (next_due, endpoint_id) > (?, ?) ORDER BY next_due, endpoint_id LIMIT ?`}
	selectClaim = &query{sql: `SELECT d.id, d.due_at, d.ordering_key, d.created_at, d.attempts, d.budget, d.total_attempts,
		d.interruptions, e.id, e.type, e.payload, e.trace
		FROM webhook_deliveries d JOIN webhook_events e ON e.seq = d.event_seq
		WHERE d.endpoint_id = ? AND d.state = 0 AND d.due_at <= ?
		ORDER BY d.due_at, d.id LIMIT ?`}
	updateLeased = &query{sql: `UPDATE webhook_deliveries SET state = 1, token = ?, lease_until = ?
		WHERE id IN (SELECT value FROM json_each(?))`}
	selectNextDue = &query{sql: `SELECT due_at FROM webhook_deliveries
		WHERE endpoint_id = ? AND state = 0 ORDER BY due_at, id LIMIT 1 OFFSET ?`}
	selectLeaseEnds = &query{sql: `SELECT lease_until, endpoint_id FROM webhook_deliveries
		WHERE state = 1 AND lease_until >= ? ORDER BY lease_until LIMIT ?`}
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

// claim leases due deliveries.
func (tx *transaction) claim(p store.ClaimParams) (store.ClaimResult, error) {
	now := p.Now.UnixMilli()
	var result store.ClaimResult
	if err := tx.retake(now); err != nil {
		return result, err
	}
	if err := tx.refreshLanes(); err != nil {
		return result, err
	}
	a := newAllotment(p.LeaseParams)
	// Read before this claim adds leases of its own, which are not left.
	ends, err := tx.leaseEnds()
	if err != nil {
		return result, err
	}
	next := earliest{}
	after := lane{math.MinInt64, 0}
	for more := true; more; {
		lanes, err := tx.lanesAfter(after)
		if err != nil {
			return result, err
		}
		more = len(lanes) == lanePage
		for _, l := range lanes {
			after = l
			if a.barred(l.endpointID) {
				continue
			}
			e, err := tx.endpoint(l.endpointID)
			if err != nil {
				return result, err
			}
			if e == nil || a.left(e) <= 0 {
				continue
			}
			if l.nextDue > now || a.full() {
				// This is the earliest left: lanes come in order of due time.
				next.add(l.nextDue)
				more = false
				break
			}
			if err := tx.claimLane(e, now, a, &result, &next); err != nil {
				return result, err
			}
		}
	}
	if err := tx.lease(a, result.Leases); err != nil {
		return result, err
	}
	if err := tx.addLeaseEnd(ends, a, &next); err != nil {
		return result, err
	}
	result.NextDue = next.instant()
	return result, nil
}

// lease writes the leases down that a claim gives.
func (tx *transaction) lease(a *allotment, leases []store.Lease) error {
	if len(leases) == 0 {
		return nil
	}
	var ids idList
	for i := range leases {
		ids = ids.add(leases[i].DeliveryID)
	}
	return tx.run(updateLeased, nil, a.token, a.until, ids.value())
}

// claimLane takes what is due in one endpoint's lane, as far as there is room,
// and adds when the rest is due.
func (tx *transaction) claimLane(e *endpoint, now int64, a *allotment, result *store.ClaimResult, next *earliest) error {
	room := min(a.left(e), a.room.Limit-a.given)
	from := len(result.Leases)
	err := tx.run(selectClaim, func(r row) {
		result.Leases = append(result.Leases, store.Lease{
			DeliveryID: integer(r[0]), WorkspaceID: e.workspaceID, Token: a.token, Until: at(a.until),
			EventID: text(r[8]), EventType: text(r[9]), OrderingKey: text(r[2]), Payload: blob(r[10]), Trace: text(r[11]),
			CreatedAt: instant(r[3]), DueAt: instant(r[1]),
			Attempts: int(integer(r[4])), Budget: int(integer(r[5])), TotalAttempts: int(integer(r[6])),
			Interruptions: int(integer(r[7])), Target: e.target,
		})
	}, e.id, now, int64(room))
	if err != nil {
		return err
	}
	taken := len(result.Leases) - from
	if taken > 0 {
		a.given += taken
		a.byEndpoint[e.id] += taken
		tx.ready(e.id)
	}
	if a.left(e) <= 0 {
		return nil
	}
	return tx.run(selectNextDue, func(r row) { next.add(integer(r[0])) }, e.id, int64(taken))
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

// addLeaseEnd adds the first of ends that counts, or, if none does and there may
// be more, the last as a bound.
func (tx *transaction) addLeaseEnd(ends []lane, a *allotment, next *earliest) error {
	for _, end := range ends {
		if a.barred(end.endpointID) {
			continue
		}
		e, err := tx.endpoint(end.endpointID)
		if err != nil {
			return err
		}
		if e != nil && e.active && a.left(e) > 0 {
			next.add(end.nextDue)
			return nil
		}
	}
	if len(ends) == leasesSeen {
		next.add(ends[leasesSeen-1].nextDue)
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
