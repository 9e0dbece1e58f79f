//go:build cgo

package sqlitestore

import "database/sql/driver"

var (
	selectFirstDue = &query{sql: `SELECT due_at FROM webhook_deliveries
		WHERE endpoint_id = ? AND state = 0 ORDER BY due_at, id LIMIT 1`}
	selectLane = &query{sql: `SELECT next_due FROM webhook_lanes WHERE endpoint_id = ?`, apart: true}
	upsertLane = &query{sql: `INSERT INTO webhook_lanes (endpoint_id, next_due) VALUES (?, ?)
		ON CONFLICT (endpoint_id) DO UPDATE SET next_due = excluded.next_due`, apart: true}
	deleteLane = &query{sql: `DELETE FROM webhook_lanes WHERE endpoint_id = ?`, apart: true}
)

// firstDue is when the first ready delivery of an endpoint is due, if it has any.
type firstDue struct {
	at   int64
	some bool
}

// laneState is what a transaction knows of one endpoint's lane. Between
// transactions the row of an active endpoint is right.
type laneState struct {
	known bool // first is right; else the ready deliveries have changed
	first firstDue
	read  bool // row is what the lane's row says
	row   firstDue
}

// ready says that the ready deliveries of an endpoint have changed.
func (tx *transaction) ready(endpointID int64) {
	s := tx.lanes[endpointID]
	s.known = false
	tx.lanes[endpointID] = s
}

// readyFrom is ready where the first that is left is known.
func (tx *transaction) readyFrom(endpointID int64, first firstDue) {
	s := tx.lanes[endpointID]
	s.known, s.first = true, first
	tx.lanes[endpointID] = s
}

// readyToo says that an active endpoint has one more ready delivery.
func (tx *transaction) readyToo(endpointID, dueAt int64) error {
	first, err := tx.firstReady(endpointID)
	if err == nil && (!first.some || dueAt < first.at) {
		tx.readyFrom(endpointID, firstDue{dueAt, true})
	}
	return err
}

// firstReady returns when the first ready delivery of an active endpoint is due.
func (tx *transaction) firstReady(endpointID int64) (firstDue, error) {
	s, touched := tx.lanes[endpointID]
	if s.known {
		return s.first, nil
	}
	if !touched {
		row, err := tx.laneRow(endpointID)
		if err == nil {
			tx.lanes[endpointID] = laneState{known: true, first: row, read: true, row: row}
		}
		return row, err
	}
	var first firstDue
	err := tx.run(selectFirstDue, func(r row) { first = firstDue{integer(r[0]), true} }, endpointID)
	if err == nil {
		tx.readyFrom(endpointID, first)
	}
	return first, err
}

func (tx *transaction) laneRow(endpointID int64) (row firstDue, err error) {
	err = tx.run(selectLane, func(r []driver.Value) { row = firstDue{integer(r[0]), true} }, endpointID)
	return row, err
}

// refreshLanes brings the lanes of the endpoints whose ready deliveries changed
// up to date. It writes only where the first due time is another.
func (tx *transaction) refreshLanes() error {
	for id, s := range tx.lanes {
		if s.known && s.read && s.first == s.row {
			continue
		}
		if err := tx.refreshLane(id); err != nil {
			return err
		}
	}
	return nil
}

func (tx *transaction) refreshLane(endpointID int64) error {
	e, err := tx.endpoint(endpointID)
	if err != nil {
		return err
	}
	var want firstDue
	if e != nil && e.active {
		if want, err = tx.firstReady(endpointID); err != nil {
			return err
		}
	}
	s := tx.lanes[endpointID]
	if !s.read {
		if s.row, err = tx.laneRow(endpointID); err != nil {
			return err
		}
	}
	switch {
	case want == s.row:
	case want.some:
		err = tx.run(upsertLane, nil, endpointID, want.at)
	default:
		err = tx.run(deleteLane, nil, endpointID)
	}
	if e != nil && e.active {
		tx.lanes[endpointID] = laneState{known: true, first: want, read: true, row: want}
	} else {
		delete(tx.lanes, endpointID)
	}
	return err
}
