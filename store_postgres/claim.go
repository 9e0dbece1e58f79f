package postgresstore

import (
	"cmp"
	"context"
	"math"
	"slices"
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

// remaining returns how many leases the limit still allows.
func (a *allotment) remaining() int { return a.room.Limit - a.given }

// take uses up the room for one lease, if there is any.
func (a *allotment) take(e *endpoint) bool {
	if a.full() || a.left(e) <= 0 {
		return false
	}
	a.given++
	a.byEndpoint[e.id]++
	return true
}

const (
	// lanePage is how many lanes are read at a time.
	lanePage = 256
	// leasesSeen is how many leases a claim looks at to find one that ends at an
	// endpoint with room.
	leasesSeen = 16
	// surplusLanes is how many lanes of one endpoint are too many.
	surplusLanes = 8
)

const (
	selectRevision  = `SELECT revision FROM webhook_counter WHERE id = 1`
	selectLeaseEnds = `SELECT lease_until, endpoint_id FROM webhook_deliveries
		WHERE state = 1 ORDER BY lease_until LIMIT $1`
	selectLanes = `SELECT id, endpoint_id, next_due FROM webhook_lanes
		WHERE (next_due, endpoint_id, id) > ($1::bigint, $2::bigint, $3::bigint)
		ORDER BY next_due, endpoint_id, id LIMIT $4`

	// claimDue leases what is due, endpoint after endpoint, as far as there is
	// room. What somebody else is just leasing it passes over. The rows are chosen
	// once, in the materialized part, and the array of their ids leaves the planner
	// nothing but to look each up: joined, or in an IN with a LIMIT, the choice may
	// be made again for every row, and more be leased than wanted.
	claimDue = `WITH due AS MATERIALIZED (
			SELECT d.id FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])
				WITH ORDINALITY AS w(endpoint_id, room, since, place)
			CROSS JOIN LATERAL (
				SELECT d.id FROM webhook_deliveries d
				WHERE d.endpoint_id = w.endpoint_id AND d.state = 0 AND d.due_at >= w.since AND d.due_at <= $4
				ORDER BY d.due_at, d.id LIMIT w.room FOR UPDATE SKIP LOCKED) d
			LIMIT $5
		), taken AS (
			UPDATE webhook_deliveries d SET state = 1, token = $6, lease_until = $7
			WHERE d.id = ANY(ARRAY(SELECT id FROM due))
			RETURNING d.id, d.endpoint_id, d.event_seq, d.due_at, d.ordering_key, d.created_at, d.attempts, d.budget,
				d.total_attempts, d.interruptions
		)
		SELECT t.id, t.endpoint_id, t.due_at, t.ordering_key, t.created_at, t.attempts, t.budget, t.total_attempts,
			t.interruptions, e.id, e.type, e.payload, e.trace
		FROM taken t JOIN webhook_events e ON e.seq = t.event_seq`
)

// Claim implements store.Store.
func (s *Store) Claim(ctx context.Context, p store.ClaimParams) (result store.ClaimResult, err error) {
	err = s.write(ctx, "claim", func(tx *transaction) (err error) {
		result, err = tx.claim(p)
		return err
	})
	if err != nil {
		return store.ClaimResult{}, err
	}
	return result, nil
}

// view is what a claim sees before it takes anything.
type view struct {
	revision int64
	unsettled
	ends  []lane // the leases that end first
	lanes []lane // the first page
}

// look reads what a claim needs to know, in one round trip.
func (tx *transaction) look(now int64) (view, error) {
	v := view{unsettled: tx.lookUnsettled(now)}
	tx.queue(selectRevision).Query(each(func() error { return nil }, &v.revision))
	var end lane
	tx.queue(selectLeaseEnds, leasesSeen).Query(each(func() error {
		v.ends = append(v.ends, end)
		return nil
	}, &end.nextDue, &end.endpointID))
	page := tx.lanesAfter(lane{nextDue: math.MinInt64})
	if err := tx.send(); err != nil {
		return v, err
	}
	if v.revision == 0 {
		return v, &fault{ErrCorrupt, errNoCounter}
	}
	v.lanes = *page
	return v, nil
}

func (tx *transaction) lanesAfter(l lane) *[]lane {
	page := new([]lane)
	var next lane
	tx.queue(selectLanes, l.nextDue, l.endpointID, l.id, lanePage).Query(each(func() error {
		*page = append(*page, next)
		return nil
	}, &next.id, &next.endpointID, &next.nextDue))
	return page
}

// claim leases due deliveries.
func (tx *transaction) claim(p store.ClaimParams) (store.ClaimResult, error) {
	now := p.Now.UnixMilli()
	v, err := tx.look(now)
	if err != nil {
		return store.ClaimResult{}, err
	}
	c := claiming{tx: tx, now: now, allotment: newAllotment(p.LeaseParams)}
	if v.some() {
		if err := tx.settleAll(now, v.unsettled); err != nil {
			return c.result, err
		}
		skipped := v.unsettled
		if v, err = tx.look(now); err != nil {
			return c.result, err
		}
		if v.some() && v.sameAs(skipped) {
			c.next.add(now) // somebody else is at it
		}
	}
	for page := v.lanes; ; {
		if err := c.page(v.revision, page); err != nil {
			return c.result, err
		}
		if c.done || len(page) < lanePage {
			break
		}
		next := tx.lanesAfter(page[len(page)-1])
		if err := tx.send(); err != nil {
			return c.result, err
		}
		page = *next
	}
	c.clean()
	if err := c.leaseEnds(v); err != nil {
		return c.result, err
	}
	c.result.NextDue = c.next.instant()
	return c.result, tx.send()
}

// claiming is one claim as it goes through the lanes.
type claiming struct {
	tx        *transaction
	now       int64
	allotment *allotment
	result    store.ClaimResult
	next      earliest
	done      bool // what comes after is not due, or there is no room for it
	paused    []int64
	seen      map[int64]int // lanes of each endpoint that were passed
}

// page goes through a page of lanes, in order of due time.
func (c *claiming) page(revision int64, lanes []lane) error {
	var ids []int64
	for _, l := range lanes {
		ids = append(ids, l.endpointID)
	}
	endpoints, err := c.tx.endpoints(revision, distinct(ids))
	if err != nil {
		return err
	}
	if c.seen == nil {
		c.seen = map[int64]int{}
	}
	var visits []visit
	room := 0
	for _, l := range lanes {
		c.seen[l.endpointID]++
		if c.seen[l.endpointID] > 1 {
			continue
		}
		e := endpoints[l.endpointID]
		if e == nil || !e.active {
			c.paused = append(c.paused, l.endpointID)
			continue
		}
		if c.allotment.left(e) <= 0 {
			continue
		}
		if l.nextDue > c.now || c.allotment.full() {
			// This is the earliest left: lanes come in order of due time.
			c.next.add(l.nextDue)
			c.done = true
			break
		}
		visits = append(visits, visit{e, c.allotment.left(e), l.nextDue})
		// Not all have as much due as they have room for.
		if room += c.allotment.left(e); room >= 4*c.allotment.remaining() {
			if err := c.take(visits); err != nil {
				return err
			}
			visits, room = nil, 0
		}
	}
	if len(visits) == 0 {
		return nil
	}
	return c.take(visits)
}

// visit is an endpoint where something may be due, from an instant on.
type visit struct {
	endpoint *endpoint
	room     int
	since    int64
}

// take leases what is due at endpoints, and brings their lanes up to date.
func (c *claiming) take(visits []visit) error {
	a := c.allotment
	byID := make(map[int64]*endpoint, len(visits))
	var ids, room, since []int64
	for _, v := range visits {
		byID[v.endpoint.id] = v.endpoint
		ids, room, since = append(ids, v.endpoint.id), append(room, int64(v.room)), append(since, v.since)
	}
	from := len(c.result.Leases)
	var (
		id, endpointID, dueAt, createdAt       int64
		attempts, budget, total, interruptions int
		key, payload, trace                    []byte
		eventID, eventType                     string
	)
	c.tx.queue(claimDue, ids, room, since, c.now, a.remaining(), a.token, a.until).Query(each(func() error {
		e := byID[endpointID]
		c.result.Leases = append(c.result.Leases, store.Lease{
			DeliveryID: id, WorkspaceID: e.workspaceID, Token: a.token, Until: at(a.until),
			EventID: eventID, EventType: eventType, OrderingKey: string(key), Trace: string(trace), Payload: payload,
			CreatedAt: at(createdAt), DueAt: at(dueAt),
			Attempts: attempts, Budget: budget, TotalAttempts: total, Interruptions: interruptions, Target: e.target,
		})
		return nil
	}, &id, &endpointID, &dueAt, &key, &createdAt, &attempts, &budget, &total, &interruptions, &eventID, &eventType, &payload, &trace))
	first := c.tx.refreshLanes(ids)
	if err := c.tx.send(); err != nil {
		return err
	}
	leases := c.result.Leases[from:]
	for i := range leases {
		a.take(byID[leases[i].Target.EndpointID])
	}
	inOrder(leases)
	for id, due := range first {
		if a.left(byID[id]) > 0 {
			c.next.add(due)
		}
	}
	return nil
}

// inOrder sorts leases: the endpoint with the earliest due delivery comes first.
func inOrder(leases []store.Lease) {
	slices.SortFunc(leases, func(a, b store.Lease) int {
		return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.DeliveryID, b.DeliveryID))
	})
	type place struct {
		due time.Time
		id  int64
	}
	first := map[int64]place{}
	for i := range leases {
		id := leases[i].Target.EndpointID
		if _, ok := first[id]; !ok {
			first[id] = place{leases[i].DueAt, id}
		}
	}
	slices.SortStableFunc(leases, func(a, b store.Lease) int {
		x, y := first[a.Target.EndpointID], first[b.Target.EndpointID]
		return cmp.Or(x.due.Compare(y.due), cmp.Compare(x.id, y.id))
	})
}

// clean deletes lanes that only cost the next claims time.
func (c *claiming) clean() {
	if len(c.paused) > 0 {
		c.tx.queue(deletePaused, c.paused)
	}
	var surplus []int64
	for id, n := range c.seen {
		if n > surplusLanes {
			surplus = append(surplus, id)
		}
	}
	if len(surplus) > 0 {
		c.tx.queue(deleteSurplus, surplus)
	}
}

// leaseEnds adds the first end of a lease that counts, or, if none does and there
// may be more, the last one seen as a bound.
func (c *claiming) leaseEnds(v view) error {
	var ids []int64
	for _, end := range v.ends {
		ids = append(ids, end.endpointID)
	}
	endpoints, err := c.tx.endpoints(v.revision, distinct(ids))
	if err != nil {
		return err
	}
	for _, end := range v.ends {
		e := endpoints[end.endpointID]
		if e != nil && e.active && c.allotment.left(e) > 0 {
			c.next.add(end.nextDue)
			return nil
		}
	}
	if len(v.ends) == leasesSeen {
		c.next.add(v.ends[leasesSeen-1].nextDue)
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
