//go:build cgo

package sqlitestore

import (
	"bytes"
	"context"
	"slices"

	"github.com/elido-app/webhook/store"
)

var (
	selectKey = &query{sql: `SELECT digest, event_id, deliveries FROM webhook_idempotency WHERE workspace_id = ? AND key = ?`, apart: true}
	insertKey = &query{sql: `INSERT INTO webhook_idempotency (workspace_id, key, digest, event_id, deliveries, created_at)
		VALUES (?, ?, ?, ?, ?, ?)`, apart: true}
	insertEvents = newBulk(`INSERT INTO webhook_events
		(seq, id, workspace_id, type, occurred_at, first_delivery, deliveries, remaining, payload, trace)`, 10)
	insertDeliveries = newBulk(`INSERT INTO webhook_deliveries
		(id, endpoint_id, event_seq, state, due_at, token, lease_until, ordering_key, budget, created_at)`, 10)
)

// Publish implements store.Publisher.
func (s *Store) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	var result store.PublishResult
	err := s.write(ctx, "publish", 2*len(p.Events), func(tx *transaction) (err error) {
		result, err = tx.publish(p)
		return err
	})
	if err != nil {
		return store.PublishResult{}, err
	}
	return result, nil
}

func (tx *transaction) publish(p store.PublishParams) (store.PublishResult, error) {
	receipts, err := tx.repeats(p.Events)
	if err != nil {
		return store.PublishResult{}, err
	}
	if p.Handoff != nil {
		if err := tx.retake(p.Now.UnixMilli()); err != nil {
			return store.PublishResult{}, err
		}
	}
	pub := publication{tx: tx, now: p.Now.UnixMilli(), result: store.PublishResult{Receipts: receipts}}
	if p.Handoff != nil {
		pub.allotment = newAllotment(*p.Handoff)
	}
	first := map[eventKey]int{} // where a key of this batch was first used
	for i := range p.Events {
		ev := &p.Events[i]
		if receipts[i].Repeat {
			continue
		}
		key := eventKey{ev.WorkspaceID, ev.IdempotencyKey}
		if j, ok := first[key]; ok && ev.IdempotencyKey != "" {
			receipts[i] = store.Receipt{
				EventID: receipts[j].EventID, DeliveryIDs: slices.Clone(receipts[j].DeliveryIDs), Repeat: true,
			}
			continue
		}
		ids, err := pub.store(ev)
		if err != nil {
			return store.PublishResult{}, err
		}
		receipts[i] = store.Receipt{EventID: ev.ID, DeliveryIDs: ids}
		if ev.IdempotencyKey == "" {
			continue
		}
		first[key] = i
		err = tx.run(insertKey, nil, ev.WorkspaceID, ev.IdempotencyKey, ev.Digest[:], ev.ID, document(ids), pub.now)
		if err != nil {
			return store.PublishResult{}, err
		}
	}
	return pub.result, nil
}

// eventKey is an idempotency key within its workspace.
type eventKey struct {
	workspaceID int64
	key         string
}

// repeats returns one receipt for each event, filled in where the event's key
// was used in an earlier publish. It finds all conflicts before anything is
// written.
func (tx *transaction) repeats(events []store.NewEvent) ([]store.Receipt, error) {
	receipts := make([]store.Receipt, len(events))
	var digests map[eventKey]*[32]byte
	for i := range events {
		ev := &events[i]
		if ev.IdempotencyKey == "" {
			continue
		}
		key := eventKey{ev.WorkspaceID, ev.IdempotencyKey}
		if d, ok := digests[key]; ok && *d != ev.Digest {
			return nil, &store.EventError{Index: i, Err: store.ErrIdempotencyConflict}
		}
		if digests == nil {
			digests = map[eventKey]*[32]byte{}
		}
		digests[key] = &ev.Digest
		var (
			found, same bool
			malformed   error
		)
		err := tx.run(selectKey, func(r row) {
			found, same = true, bytes.Equal(blob(r[0]), ev.Digest[:])
			receipts[i] = store.Receipt{EventID: text(r[1]), Repeat: true}
			receipts[i].DeliveryIDs, malformed = parse[[]int64](r[2])
		}, ev.WorkspaceID, ev.IdempotencyKey)
		if err != nil {
			return nil, err
		}
		if malformed != nil {
			return nil, tx.corrupt(malformed)
		}
		if found && !same {
			return nil, &store.EventError{Index: i, Err: store.ErrIdempotencyConflict}
		}
	}
	return receipts, nil
}

// publication is one publish as it is being stored.
type publication struct {
	tx        *transaction
	now       int64
	allotment *allotment // nil without a handoff
	result    store.PublishResult
}

// store stores one event with its deliveries, and returns their ids.
func (p *publication) store(ev *store.NewEvent) ([]int64, error) {
	tx := p.tx
	endpoints, err := tx.selected(ev)
	if err != nil || len(endpoints) == 0 {
		return nil, err
	}
	tx.counter.event++
	seq, first, n := tx.counter.event, tx.counter.delivery+1, int64(len(endpoints))
	tx.counter.delivery += n
	err = tx.events.add(seq, ev.ID, ev.WorkspaceID, ev.Type, moment(ev.OccurredAt), first, n, n, ev.Payload, orNull(ev.Trace))
	if err != nil {
		return nil, err
	}
	ids := make([]int64, len(endpoints))
	for i, e := range endpoints {
		ids[i] = first + int64(i)
		if err := p.deliver(ev, seq, ids[i], e); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// deliver stores one delivery of an event, leased where the handoff allows it.
func (p *publication) deliver(ev *store.NewEvent, seq, id int64, e *endpoint) error {
	tx := p.tx
	budget := ev.Budget
	if ev.DegradedBudget != 0 && e.health.Degraded(at(p.now)) {
		budget = ev.DegradedBudget
	}
	state, key := stateReady, orNull(ev.OrderingKey)
	if key != nil {
		held, err := tx.has(selectPendingOfKey, e.id, key)
		if err != nil {
			return err
		}
		if held {
			state = stateBlocked
		}
	}
	var token, until any
	if state == stateReady && p.allotment != nil {
		first, err := tx.firstReady(e.id)
		if err != nil {
			return err
		}
		// What is due comes first.
		if behind := first.some && first.at <= p.now; !behind && p.allotment.take(e) {
			state, token, until = stateLeased, p.allotment.token, p.allotment.until
			var payload []byte // one copy for all leases of the event
			if n := len(p.result.Leases); n > 0 && p.result.Leases[n-1].EventID == ev.ID {
				payload = p.result.Leases[n-1].Payload
			} else {
				payload = bytes.Clone(ev.Payload)
			}
			p.result.Leases = append(p.result.Leases, store.Lease{
				DeliveryID: id, WorkspaceID: ev.WorkspaceID, Token: p.allotment.token, Until: at(p.allotment.until),
				EventID: ev.ID, EventType: ev.Type, OrderingKey: ev.OrderingKey, Trace: ev.Trace, Payload: payload,
				CreatedAt: at(p.now), DueAt: at(p.now), Budget: budget, Target: e.target,
			})
		}
	}
	if state == stateReady {
		p.result.Queued = true
		if err := tx.readyToo(e.id, p.now); err != nil {
			return err
		}
	}
	return tx.deliveries.add(id, e.id, seq, int64(state), p.now, token, until, key, int64(budget), p.now)
}
