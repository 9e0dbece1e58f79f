package queue

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/elido-app/webhook/store"
)

// mostHandoff is how many leases one publish may take. The rest is claimed.
const mostHandoff = 512

// Reserve returns what a publish in this process may hand off to the queue, or
// nil if the queue does not run or is full. What it returned must go to Offer.
func (q *Queue) Reserve() *store.LeaseParams {
	q.mu.Lock()
	defer q.mu.Unlock()
	limit := min(mostHandoff, q.capacity())
	if q.state != stateRunning || limit <= 0 {
		return nil
	}
	q.held += limit
	now := time.Now()
	return &store.LeaseParams{Token: newToken(), Until: now.Add(q.cfg.Lease), Room: store.Room{
		Limit:       limit,
		PerEndpoint: q.cfg.PerEndpoint,
		Endpoints:   q.rooms(),
	}}
}

// Offer takes the leases of a publish into the lanes. Queued is what the publish
// said of deliveries left in the store.
func (q *Queue) Offer(reserved *store.LeaseParams, leases []store.Lease, queued bool) {
	if reserved == nil {
		if queued {
			q.Wake()
		}
		return
	}
	q.mu.Lock()
	q.held -= reserved.Room.Limit
	if q.state != stateRunning && len(leases) > 0 {
		q.mu.Unlock()
		q.release(leases) // stopped meanwhile
		return
	}
	q.accept(leases)
	if queued {
		q.due(time.Now())
		q.poke()
	}
	q.mu.Unlock()
}

// release gives back leases that came too late.
func (q *Queue) release(leases []store.Lease) {
	releases := make([]store.Release, len(leases))
	for i := range leases {
		releases[i].LeaseRef = leases[i].Ref()
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	if err := q.cfg.Store.Release(ctx, releases); err != nil {
		q.cfg.Logger.Warn("webhook: leases could not be given back; they run out by themselves", "count", len(leases), "error", err)
	}
}

// accept puts leases into their lanes.
func (q *Queue) accept(leases []store.Lease) {
	now := time.Now()
	for i := range leases {
		l := &leases[i]
		lane := q.lane(l.Target)
		it := &item{lease: l, lane: lane}
		lane.held++
		q.held++
		q.bytes += len(l.Payload)
		q.average += (len(l.Payload) - q.average) / 16
		if !now.Before(l.Until) {
			// The call took longer than the lease. Much may have changed since,
			// and what kept it from starting may have been forgotten.
			q.giveBack(it, store.Release{LeaseRef: l.Ref()})
			continue
		}
		lane.push(it)
		if l.Interruptions >= 5 {
			q.cfg.Logger.Warn("webhook: delivery was interrupted often; does its payload kill the process?",
				"delivery_id", l.DeliveryID, "endpoint_id", lane.endpointID, "interruptions", l.Interruptions)
		}
		q.ready.push(lane)
		q.staff()
	}
}

// drop takes items out of the books.
func (q *Queue) drop(items ...*item) {
	for _, it := range items {
		it.lane.held--
		q.held--
		q.bytes -= len(it.lease.Payload)
	}
}

// capacity is how many more leases may be held.
func (q *Queue) capacity() int {
	most := 4 * (q.cfg.Workers + q.cfg.Slow)
	bytes := (q.cfg.HeldBytes - q.bytes) / max(q.average, 1)
	return min(most-q.held, bytes)
}

// rooms lists the lanes that have something in them.
func (q *Queue) rooms() map[int64]int {
	rooms := make(map[int64]int)
	for id, l := range q.lanes {
		if l.held > 0 || l.fast {
			rooms[id] = l.room()
		}
	}
	return rooms
}

// Fence makes sure that nothing leased for an older revision of an endpoint
// starts after it returns: what waits in the lane goes back to the store.
func (q *Queue) Fence(endpointID, revision int64) {
	q.mu.Lock()
	q.fence(endpointID, revision)
	l := q.lanes[endpointID]
	q.mu.Unlock()
	if l != nil {
		l.starting.wait()
	}
}

func (q *Queue) fence(endpointID, revision int64) {
	if f, ok := q.fences[endpointID]; ok && f.revision >= revision {
		return
	}
	q.fences[endpointID] = fence{revision: revision, until: time.Now().Add(2 * q.cfg.Lease)}
	if l := q.lanes[endpointID]; l != nil {
		for _, it := range l.drain() {
			if it.lease.Target.Revision < revision {
				q.giveBack(it, store.Release{LeaseRef: it.lease.Ref()})
			} else {
				l.push(it)
			}
		}
		q.ready.push(l)
	}
	q.due(time.Now())
	q.poke()
}

func newToken() int64 { return rand.Int64N(1<<63-2) + 1 }

// Tidy makes a running queue do its housekeeping at an instant, or earlier.
func (q *Queue) Tidy(at time.Time) {
	if at.IsZero() {
		return
	}
	q.mu.Lock()
	q.tidyAt = earlier(q.tidyAt, at)
	q.mu.Unlock()
	q.poke()
}
