package memorystore

import (
	"bytes"
	"cmp"
	"time"

	"github.com/elido-app/webhook/store"
)

// event is what the deliveries of one event share.
type event struct {
	id      string
	kind    string
	key     string // ordering key
	trace   string
	payload []byte // is not changed
}

// delivery is one event for one endpoint. While it is pending it is in one of
// three heaps, as its place says.
type delivery struct {
	id       int64
	endpoint *endpoint
	event    *event
	queue    *keyQueue // nil without an ordering key
	status   store.Status

	attempts, budget, total, interruptions int

	lastStatus  int
	lastLatency time.Duration
	lastError   []byte
	message     []byte
	rows        []store.Attempt

	created, completed, due int64

	token int64 // of the last lease, as long as nothing ended it; or zero
	until int64 // of the lease
	place place
	index int // in the heap
}

type place uint8

const (
	nowhere place = iota // not pending
	ready                // in endpoint.ready: due now or later
	leased               // in endpoint.leased
	blocked              // in keyQueue.blocked
)

// keyQueue is the pending deliveries of one ordering key to one endpoint. Its
// head is ready or leased, all others are blocked. The head is the earliest
// one, except while a later one is leased.
type keyQueue struct {
	head    *delivery
	blocked heap[*delivery] // by id
}

func deliveryIndex(d *delivery) *int { return &d.index }

func earlierReady(a, b *delivery) bool { return a.due < b.due || a.due == b.due && a.id < b.id }

func earlierUntil(a, b *delivery) bool { return a.until < b.until }

func earlierID(a, b *delivery) bool { return a.id < b.id }

func byCreation(a, b *delivery) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.id, b.id))
}

func byCompletion(a, b *delivery) int {
	return cmp.Or(cmp.Compare(a.completed, b.completed), cmp.Compare(a.id, b.id))
}

// enqueue puts a pending delivery that is in no heap where it belongs. It
// returns the one that became ready by that, if any: d, or one of its key.
func (e *endpoint) enqueue(d *delivery) *delivery {
	if d.event.key != "" {
		if d = e.inTurn(d); d == nil {
			return nil
		}
	}
	d.place = ready
	e.ready.push(d)
	return d
}

// inTurn makes d wait behind its ordering key, if it has to. It returns the
// delivery that is to be ready now, if any: d, or the one whose turn it is
// instead.
func (e *endpoint) inTurn(d *delivery) *delivery {
	q := d.queue
	if q == nil {
		if q = e.queues[d.event.key]; q == nil {
			q = &keyQueue{blocked: heap[*delivery]{less: earlierID, index: deliveryIndex}}
			e.queues[d.event.key] = q
		}
		d.queue = q
	}
	head := q.head
	switch {
	case head != nil && (head.id < d.id || head.place == leased):
		q.block(d)
		return nil
	case head != nil:
		e.ready.remove(head)
		q.block(head)
	case q.blocked.len() > 0 && q.blocked.first().id < d.id:
		q.block(d)
		d = q.blocked.first()
		q.blocked.remove(d)
	}
	q.head = d
	return d
}

func (q *keyQueue) block(d *delivery) {
	d.place = blocked
	q.blocked.push(d)
}

// dequeue takes a pending delivery out of its heap. As the head of an ordering
// key it leaves the key without one.
func (e *endpoint) dequeue(d *delivery) {
	switch d.place {
	case ready:
		e.ready.remove(d)
	case leased:
		e.leased.remove(d)
	case blocked:
		d.queue.blocked.remove(d)
	}
	d.place = nowhere
	if d.queue != nil && d.queue.head == d {
		d.queue.head = nil
	}
}

// promote makes the next of an ordering key ready after d, which is no longer
// pending, and returns it; nil if there is none.
func (e *endpoint) promote(d *delivery) *delivery {
	q := d.queue
	if q == nil {
		return nil
	}
	d.queue = nil
	if q.head != nil {
		return nil
	}
	if q.blocked.len() == 0 {
		delete(e.queues, d.event.key)
		return nil
	}
	next := q.blocked.first()
	q.blocked.remove(next)
	q.head = next
	next.place = ready
	e.ready.push(next)
	return next
}

// lapse makes the deliveries due again whose leases ran out. They keep their
// token: until somebody takes them, an outcome still counts.
func (e *endpoint) lapse(now int64) (lapsed bool) {
	for e.leased.len() > 0 && e.leased.first().until <= now {
		d := e.leased.first()
		e.dequeue(d)
		d.interruptions++
		d.due = d.until + store.RetakeDelay(d.interruptions).Milliseconds()
		e.enqueue(d)
		lapsed = true
	}
	return lapsed
}

// renew puts a ready or leased delivery under a lease.
func (e *endpoint) renew(d *delivery, until int64) {
	if d.place == ready {
		e.ready.remove(d)
		d.place = leased
	}
	d.until = until
	e.leased.push(d)
}

// lease gives a ready delivery to a caller, after the leases given already.
func (e *endpoint) lease(given []store.Lease, d *delivery, token, until int64) []store.Lease {
	d.token = token
	e.renew(d, until)
	// Deliveries of one event mostly follow each other: they share one copy.
	var payload []byte
	if n := len(given); n > 0 && given[n-1].EventID == d.event.id {
		payload = given[n-1].Payload
	} else {
		payload = bytes.Clone(d.event.payload)
	}
	return append(given, store.Lease{
		DeliveryID:    d.id,
		WorkspaceID:   e.record.WorkspaceID,
		Token:         token,
		Until:         instant(until),
		EventID:       d.event.id,
		EventType:     d.event.kind,
		OrderingKey:   d.event.key,
		Trace:         d.event.trace,
		Payload:       payload,
		CreatedAt:     instant(d.created),
		DueAt:         instant(d.due),
		Attempts:      d.attempts,
		Budget:        d.budget,
		TotalAttempts: d.total,
		Interruptions: d.interruptions,
		Target:        e.aim(),
	})
}
