//go:build cgo

package sqlitestore

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

// laneChange is what is known of an endpoint whose ready deliveries changed.
type laneChange struct {
	// known says that first is of all of them; added, that deliveries only came,
	// and first is of these. Else the database has to be asked.
	known, added bool
	first        firstDue
}

// ready says that the ready deliveries of an endpoint have changed.
func (tx *transaction) ready(endpointID int64) {
	tx.lanes[endpointID] = laneChange{}
	delete(tx.behind, endpointID)
}

// readyFrom is ready where the first that is left is known.
func (tx *transaction) readyFrom(endpointID int64, first firstDue) {
	tx.ready(endpointID)
	tx.lanes[endpointID] = laneChange{known: true, first: first}
}

// readyToo says that an endpoint has one more ready delivery.
func (tx *transaction) readyToo(endpointID, dueAt int64) {
	c, changed := tx.lanes[endpointID]
	switch {
	case !changed:
		c = laneChange{added: true, first: firstDue{dueAt, true}}
	case !c.first.some || dueAt < c.first.at:
		c.first = firstDue{dueAt, true}
	}
	tx.lanes[endpointID] = c
}

// refreshLanes brings the lanes of the endpoints whose ready deliveries changed
// up to date. It writes only where the first due time is another.
func (tx *transaction) refreshLanes() error {
	for id, c := range tx.lanes {
		if err := tx.refreshLane(id, c); err != nil {
			return err
		}
	}
	clear(tx.lanes)
	return nil
}

func (tx *transaction) refreshLane(endpointID int64, c laneChange) error {
	e, err := tx.endpoint(endpointID)
	if err != nil {
		return err
	}
	var have firstDue
	err = tx.run(selectLane, func(r row) { have = firstDue{integer(r[0]), true} }, endpointID)
	if err != nil {
		return err
	}
	want := c.first
	switch {
	case e == nil || !e.active:
		want = firstDue{}
	case c.known:
	case c.added:
		if have.some && have.at < want.at {
			want = have
		}
	default:
		want = firstDue{}
		err = tx.run(selectFirstDue, func(r row) { want = firstDue{integer(r[0]), true} }, endpointID)
		if err != nil {
			return err
		}
	}
	switch {
	case want == have:
		return nil
	case want.some:
		return tx.run(upsertLane, nil, endpointID, want.at)
	}
	return tx.run(deleteLane, nil, endpointID)
}
