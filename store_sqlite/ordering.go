//go:build cgo

package sqlitestore

import "database/sql/driver"

// The states of a delivery.
const (
	stateReady     = 0
	stateLeased    = 1
	stateBlocked   = 2 // behind its ordering key
	stateDelivered = 3
	stateFailed    = 4
)

// Of the pending deliveries of one ordering key of one endpoint, one is the
// head, ready or leased, and all others are blocked. The head is the one with
// the lowest id, but a lease is never taken away for that.

// That state < 3 is said even where it follows from the rest is for SQLite, which
// uses a partial index only if its condition is there word for word.
var (
	selectPendingOfKey = &query{sql: `SELECT 1 FROM webhook_deliveries
		WHERE endpoint_id = ? AND ordering_key = ? AND ordering_key IS NOT NULL AND state < 3 LIMIT 1`}
	selectHead = &query{sql: `SELECT id, state FROM webhook_deliveries
		WHERE endpoint_id = ? AND ordering_key = ? AND ordering_key IS NOT NULL AND state < 3 AND state < 2
		ORDER BY state, id LIMIT 1`}
	selectFirstBlocked = &query{sql: `SELECT id, due_at FROM webhook_deliveries
		WHERE endpoint_id = ? AND ordering_key = ? AND ordering_key IS NOT NULL AND state < 3 AND state = 2
		ORDER BY id LIMIT 1`}
	updateState = &query{sql: `UPDATE webhook_deliveries SET state = ? WHERE id = ?`}
)

// promoted is a delivery that became the head of its key.
type promoted struct{ id, dueAt int64 }

// settle makes the right delivery of an ordering key its head, after one of
// them became pending, was given back or ended. It returns the delivery that
// is ready from now on, if it was not before.
func (tx *transaction) settle(endpointID int64, key driver.Value) (*promoted, error) {
	var (
		head, state int64
		headed      bool
		next        *promoted
	)
	err := tx.run(selectHead, func(r row) { head, state, headed = integer(r[0]), integer(r[1]), true }, endpointID, key)
	if err != nil {
		return nil, err
	}
	if headed && state == stateLeased {
		return nil, nil
	}
	err = tx.run(selectFirstBlocked, func(r row) { next = &promoted{integer(r[0]), integer(r[1])} }, endpointID, key)
	if err != nil {
		return nil, err
	}
	if next == nil || headed && head < next.id {
		return nil, nil
	}
	tx.ready(endpointID)
	if headed {
		if err := tx.run(updateState, nil, int64(stateBlocked), head); err != nil {
			return nil, err
		}
	}
	return next, tx.run(updateState, nil, int64(stateReady), next.id)
}
