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

// refreshLanes brings the lanes of the endpoints whose ready deliveries changed
// up to date. It writes only where the first due time is another.
func (tx *transaction) refreshLanes() error {
	for id := range tx.lanes {
		if err := tx.refreshLane(id); err != nil {
			return err
		}
	}
	clear(tx.lanes)
	return nil
}

func (tx *transaction) refreshLane(endpointID int64) error {
	e, err := tx.endpoint(endpointID)
	if err != nil {
		return err
	}
	var want, have int64
	ready, laned := false, false
	if e != nil && e.active {
		err = tx.run(selectFirstDue, func(r row) { want, ready = integer(r[0]), true }, endpointID)
		if err != nil {
			return err
		}
	}
	if err = tx.run(selectLane, func(r row) { have, laned = integer(r[0]), true }, endpointID); err != nil {
		return err
	}
	switch {
	case ready && (!laned || want != have):
		return tx.run(upsertLane, nil, endpointID, want)
	case !ready && laned:
		return tx.run(deleteLane, nil, endpointID)
	}
	return nil
}
