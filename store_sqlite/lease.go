//go:build cgo

package sqlitestore

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/elido-app/webhook/store"
)

var (
	selectHeld = &query{sql: `SELECT state, token, endpoint_id, ordering_key, total_attempts
		FROM webhook_deliveries WHERE id = ?`}
	updateRenewed  = &query{sql: `UPDATE webhook_deliveries SET state = 1, lease_until = ? WHERE id = ?`}
	updateReleased = &query{sql: `UPDATE webhook_deliveries SET state = ?, due_at = ifnull(?, due_at),
		last_error = ifnull(?, last_error), interruptions = interruptions + ?, token = NULL, lease_until = NULL
		WHERE id = ?`}
)

// heldLease is a delivery that a token still holds. Its lease may have run out;
// then it is ready, or blocked behind a manual retry, and not leased.
type heldLease struct {
	state, token, endpointID, totalAttempts int64
	key                                     driver.Value
}

// held returns the delivery if the token holds it, otherwise nil.
func (tx *transaction) held(id, token int64) (l *heldLease, err error) {
	err = tx.run(selectHeld, func(r row) {
		if integer(r[0]) < stateDelivered && r[1] == driver.Value(token) {
			l = &heldLease{state: integer(r[0]), token: token, endpointID: integer(r[2]), key: r[3], totalAttempts: integer(r[4])}
		}
	}, id)
	return l, err
}

// Renew implements store.Store.
func (s *Store) Renew(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
	var lost []int64
	err := s.write(ctx, "renew", len(leases), func(tx *transaction) error {
		lost = nil
		for _, l := range leases {
			held, err := tx.renew(l, until.UnixMilli())
			if err != nil {
				return err
			}
			if !held {
				lost = append(lost, l.DeliveryID)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return lost, nil
}

func (tx *transaction) renew(ref store.LeaseRef, until int64) (renewed bool, err error) {
	l, err := tx.held(ref.DeliveryID, ref.Token)
	if err != nil || l == nil || l.state == stateBlocked {
		return false, err
	}
	if l.state == stateReady {
		e, err := tx.endpoint(l.endpointID)
		if err != nil || e == nil {
			return false, err
		}
		tx.ready(l.endpointID)
	}
	return true, tx.run(updateRenewed, nil, until, ref.DeliveryID)
}

// Release implements store.Store.
func (s *Store) Release(ctx context.Context, releases []store.Release) error {
	return s.write(ctx, "release", len(releases), func(tx *transaction) error {
		for i := range releases {
			if err := tx.release(&releases[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (tx *transaction) release(r *store.Release) error {
	l, err := tx.held(r.DeliveryID, r.Token)
	if err != nil || l == nil {
		return err
	}
	state := l.state
	if state == stateLeased {
		state = stateReady
	}
	err = tx.run(updateReleased, nil, state, moment(r.DueAt), r.Error, number(r.Interrupted), r.DeliveryID)
	if err != nil {
		return err
	}
	tx.ready(l.endpointID)
	if l.key != nil {
		_, err = tx.settle(l.endpointID, l.key)
	}
	return err
}
