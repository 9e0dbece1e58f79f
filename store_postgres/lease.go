package postgresstore

import (
	"context"
	"time"

	"github.com/elido-app/webhook/store"
)

const (
	// lockHeld locks the deliveries that tokens still hold, in order of their ids.
	lockHeld = `SELECT d.id, d.token, d.endpoint_id, d.state, d.ordering_key
		FROM webhook_deliveries d JOIN webhook_endpoints e ON e.id = d.endpoint_id AND e.deleted_at IS NULL
		WHERE d.id = ANY($1::bigint[]) AND d.token IS NOT NULL ORDER BY d.id FOR UPDATE OF d`
	updateRenewed  = `UPDATE webhook_deliveries SET state = 1, lease_until = $2 WHERE id = ANY($1::bigint[])`
	updateReleased = `UPDATE webhook_deliveries d SET state = u.state, due_at = coalesce(u.due_at, d.due_at),
			last_error = coalesce(u.error, d.last_error), interruptions = d.interruptions + u.interrupted,
			token = NULL, lease_until = NULL
		FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::bytea[], $5::bigint[])
			AS u(id, state, due_at, error, interrupted)
		WHERE d.id = ANY($1::bigint[]) AND d.id = u.id
		RETURNING d.endpoint_id, d.due_at, d.state`
)

// heldLease is a delivery that a token still holds. Its lease may have run out;
// then it is ready, or blocked behind a manual retry, and not leased.
type heldLease struct {
	endpointID int64
	state      int16
	key        []byte
}

// hold locks deliveries, and the turns of their ordering keys, and returns those
// that the tokens hold.
func (tx *transaction) hold(refs []store.LeaseRef) (map[store.LeaseRef]heldLease, error) {
	held := map[store.LeaseRef]heldLease{}
	if len(refs) == 0 {
		return held, nil
	}
	asked := make(map[store.LeaseRef]bool, len(refs))
	ids := make([]int64, len(refs))
	for i, ref := range refs {
		ids[i], asked[ref] = ref.DeliveryID, true
	}
	ids = distinct(ids)
	var (
		ref store.LeaseRef
		l   heldLease
	)
	tx.queue(lockTurns, ids)
	tx.queue(lockHeld, ids).Query(each(func() error {
		if asked[ref] {
			held[ref] = l
		}
		return nil
	}, &ref.DeliveryID, &ref.Token, &l.endpointID, &l.state, &l.key))
	err := tx.send()
	return held, err
}

// Renew implements store.Store.
func (s *Store) Renew(ctx context.Context, leases []store.LeaseRef, until time.Time) (lost []int64, err error) {
	err = s.write(ctx, "renew", func(tx *transaction) error {
		lost = nil
		held, err := tx.hold(leases)
		if err != nil {
			return err
		}
		var ids, moved []int64
		for _, ref := range leases {
			l, ok := held[ref]
			if !ok || l.state == stateBlocked {
				lost = append(lost, ref.DeliveryID)
				continue
			}
			ids = append(ids, ref.DeliveryID)
			if l.state == stateReady {
				moved = append(moved, l.endpointID)
			}
		}
		if len(ids) > 0 {
			tx.queue(updateRenewed, ids, until.UnixMilli())
			tx.refreshLanes(distinct(moved))
		}
		return tx.send()
	})
	if err != nil {
		return nil, err
	}
	return lost, nil
}

// Release implements store.Store.
func (s *Store) Release(ctx context.Context, releases []store.Release) error {
	err := s.write(ctx, "release", func(tx *transaction) error { return tx.release(releases) })
	if err == nil {
		s.notify() // others may have room
	}
	return err
}

func (tx *transaction) release(releases []store.Release) error {
	refs := make([]store.LeaseRef, len(releases))
	for i := range releases {
		refs[i] = releases[i].LeaseRef
	}
	held, err := tx.hold(refs)
	if err != nil || len(held) == 0 {
		return err
	}
	var (
		ids, interrupted []int64
		states           []int16
		dues             []*int64
		errs             [][]byte
		moved            []int64
		keys             = map[endpointKey]struct{}{}
	)
	for i := range releases {
		r := &releases[i]
		l, ok := held[r.LeaseRef]
		if !ok {
			continue
		}
		delete(held, r.LeaseRef) // given back once
		counted := int64(0)
		if r.Interrupted {
			counted = 1
		}
		switch l.state {
		case stateLeased:
			l.state = stateReady
		case stateReady:
			moved = append(moved, l.endpointID)
		}
		if l.key != nil {
			keys[endpointKey{l.endpointID, string(l.key)}] = struct{}{}
		}
		ids, states, dues = append(ids, r.DeliveryID), append(states, l.state), append(dues, moment(r.DueAt))
		errs, interrupted = append(errs, r.Error), append(interrupted, counted)
	}
	var (
		endpointID, dueAt int64
		state             int16
		ready             = firsts{}
	)
	tx.queue(updateReleased, ids, states, dues, errs, interrupted).Query(each(func() error {
		if state == stateReady {
			ready.add(endpointID, dueAt)
		}
		return nil
	}, &endpointID, &dueAt, &state))
	if err := tx.send(); err != nil {
		return err
	}
	tx.announce(ready)
	s, err := tx.settle(keys)
	if err != nil {
		return err
	}
	tx.refreshLanes(distinct(append(moved, s.gaveWay()...)))
	return tx.send()
}
