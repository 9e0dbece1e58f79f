package queue

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/elido-app/webhook/store"
)

// How many leases one publish may take, for each event and in all. The rest is
// claimed. What is reserved is kept from others, so it is not more than most
// publishes need.
const (
	mostFanout  = 16
	mostHandoff = 512
)

// A Reservation is room kept for the leases of a publish.
type Reservation struct {
	Lease store.LeaseParams
	bytes int
}

// Reserve returns what a publish in this process may hand off to the queue, or
// nil if the queue does not run or is full. size is about the payload bytes of
// one of the events. What it returned must go to Offer.
func (q *Queue) Reserve(events []store.NewEvent, size int) *Reservation {
	q.mu.Lock()
	defer q.unlock()
	limit := min(mostHandoff, mostFanout*len(events), q.capacity(max(size, 1)))
	if q.state != stateRunning || q.skewed || limit <= 0 {
		return nil
	}
	r := &Reservation{
		Lease: store.LeaseParams{Token: newToken(), Until: time.Now().Add(q.cfg.Lease), Room: store.Room{
			Limit:       limit,
			PerEndpoint: newLaneDepth,
			Endpoints:   q.roomsFor(events),
		}},
		bytes: limit * size,
	}
	q.held += limit
	q.bytes += r.bytes
	return r
}

// Offer ends a reservation and takes the leases of the publish into the lanes.
// Queued is what the publish said of deliveries left in the store.
func (q *Queue) Offer(reserved *Reservation, leases []store.Lease, queued bool) {
	q.mu.Lock()
	if reserved != nil {
		q.held -= reserved.Lease.Room.Limit
		q.bytes -= reserved.bytes
	}
	if q.state != stateRunning && len(leases) > 0 {
		q.unlock()
		q.release(leases) // stopped meanwhile
		return
	}
	q.accept(leases)
	if queued {
		q.due(time.Now())
		q.poke()
	}
	q.unlock()
}

// release gives back leases that came too late.
func (q *Queue) release(leases []store.Lease) {
	releases := make([]store.Release, len(leases))
	for i := range leases {
		releases[i].LeaseRef = leases[i].Ref()
	}
	err := q.call(context.Background(), func(ctx context.Context) error { return q.cfg.Store.Release(ctx, releases) })
	if err != nil {
		q.cfg.Logger.Warn("webhook: leases could not be given back; they run out by themselves", "count", len(leases), "error", err)
	}
}

// accept puts leases into their lanes.
func (q *Queue) accept(leases []store.Lease) {
	now := time.Now()
	items := make([]item, len(leases))
	for i := range leases {
		l, it := &leases[i], &items[i]
		lane := q.lane(l.Target)
		*it = item{lease: l, lane: lane, bytes: len(l.Payload)}
		lane.held++
		q.held++
		q.bytes += it.bytes
		q.average = max(len(l.Payload), q.average-q.average/16)
		if l.Interruptions > 0 {
			q.supersede(l.DeliveryID, lane)
		}
		if !now.Before(l.Until) || q.skewed || q.fenced(l) {
			// The call took longer than the lease, and what kept it from starting
			// may have been forgotten; or the clock was found to be off, or the
			// endpoint changed meanwhile.
			q.giveBack(it, store.Release{LeaseRef: l.Ref()})
			continue
		}
		lane.push(it)
		q.ready.push(lane)
		q.staff()
	}
}

// supersede marks as lost what waits for a delivery under an older lease of ours.
// That ran out, since the clock was set forward or the store was away, and we
// claimed it again. Nothing else would tell: its end may come to lie ahead once
// more, and the store names what is lost by delivery.
func (q *Queue) supersede(deliveryID int64, l *lane) {
	for _, it := range slices.Concat(l.waiting[l.head:], q.todo.aside) {
		it.lost = it.lost || it.lease.DeliveryID == deliveryID
	}
}

// drop takes items out of the books.
func (q *Queue) drop(items ...*item) {
	for _, it := range items {
		it.lane.held--
		q.held--
		q.bytes -= it.bytes
	}
}

// capacity is how many more leases with payloads of a size may be held.
func (q *Queue) capacity(size int) int {
	fit := (q.cfg.HeldBytes - q.bytes) / size
	if q.bytes == 0 {
		fit = max(fit, 1) // however large, one at a time
	}
	return min(q.most()-q.held, fit)
}

// most is how many leases may be held, whatever their size.
func (q *Queue) most() int { return 8 * (q.cfg.Workers + q.cfg.Slow) }

// newLaneDepth is the depth of a lane that has not been heard of.
const newLaneDepth = 2

// rooms adds those of lanes that were in use lately.
func rooms(rooms map[int64]int, lanes map[int64]*lane) map[int64]int {
	for id, l := range lanes {
		if l.held > 0 || l.more || l.idleSince.IsZero() && l.room() != newLaneDepth {
			rooms[id] = l.room()
		}
	}
	return rooms
}

// roomsFor has the rooms of the workspaces that events are of. However many lanes
// there are, a publish looks at those that it can fill.
func (q *Queue) roomsFor(events []store.NewEvent) map[int64]int {
	m := make(map[int64]int)
	var seen map[int64]bool
	for i := range events {
		id := events[i].WorkspaceID
		if i > 0 && (id == events[i-1].WorkspaceID || seen[id]) {
			continue
		}
		rooms(m, q.workspaces[id])
		if len(events) > 1 {
			if seen == nil {
				seen = make(map[int64]bool)
			}
			seen[id] = true
		}
	}
	return m
}

// Fence makes sure that no request for an older revision of an endpoint begins
// after it returns: what waits in the lane goes back to the store, and so does
// what is being signed or dialled. What is about to begin, Fence waits for.
func (q *Queue) Fence(endpointID, revision int64) {
	q.mu.Lock()
	going := q.fence(endpointID, revision)
	q.unlock()
	if len(going) == 0 {
		return
	}
	patience := time.NewTimer(beginTime)
	defer patience.Stop()
	for _, begun := range going {
		select {
		case <-begun:
		case <-patience.C:
			return
		}
	}
}

// beginTime is how long a Fence waits for requests that are about to begin. It
// takes no longer than one write to a connection that nothing else is written to.
const beginTime = time.Second

// fence is Fence but for the waiting. It returns what to wait for.
func (q *Queue) fence(endpointID, revision int64) (going []<-chan struct{}) {
	known := q.fences[endpointID].revision >= revision
	if !known {
		q.fences[endpointID] = fence{revision: revision, until: time.Now().Add(2 * q.cfg.Lease)}
	}
	for _, f := range q.flights {
		if begun := f.fenceFor(endpointID, revision); begun != nil {
			going = append(going, begun)
		}
	}
	for f := range q.alone {
		if begun := f.fenceFor(endpointID, revision); begun != nil {
			going = append(going, begun)
		}
	}
	if known {
		return going
	}
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
	return going
}

func newToken() int64 { return rand.Int64N(1<<63-2) + 1 }

// Tidy makes a running queue do its housekeeping at an instant, or earlier.
func (q *Queue) Tidy(at time.Time) {
	if at.IsZero() {
		return
	}
	q.mu.Lock()
	q.tidyAt = earlier(q.tidyAt, at)
	q.unlock()
	q.poke()
}
