//go:build cgo

package sqlitestore

import (
	"database/sql/driver"
	"strings"
)

// transaction is what an operation works in: statements, the counters, what is
// known about endpoints, and what has to be brought up to date before the end.
type transaction struct {
	runner
	endpoints *endpointCache

	counter counter
	stored  counter // as it stands in the database

	// What publishes of one transaction insert goes together.
	events, deliveries inserter

	// lanes has the endpoints whose first due time was asked for, or may have
	// changed.
	lanes map[int64]laneState
	// taken is what a claim puts together its deliveries in.
	taken []taken
	// retaken is the latest instant at which leases that ran out were retaken.
	retaken int64

	// fault is the first error of the database. After it no statement runs any
	// more: SQLite may have rolled back by itself, and what came next would
	// commit on its own.
	fault error
	// writes counts the statements that change something.
	writes int
}

// counter is the row of webhook_counter.
type counter struct {
	epoch, revision, delivery, event int64
}

var (
	selectCounter = &query{sql: `SELECT epoch, revision, delivery, event FROM webhook_counter WHERE id = 1`, apart: true}
	// lockCounter takes the write lock, too.
	lockCounter = &query{sql: `UPDATE webhook_counter SET epoch = epoch WHERE id = 1
		RETURNING epoch, revision, delivery, event`}
	updateCounter = &query{sql: `UPDATE webhook_counter SET epoch = ?, revision = ?, delivery = ?, event = ? WHERE id = 1`, apart: true}
)

func newTransaction() *transaction {
	tx := &transaction{endpoints: newEndpointCache(), lanes: map[int64]laneState{}}
	tx.events = inserter{tx: tx, bulk: insertEvents}
	tx.deliveries = inserter{tx: tx, bulk: insertDeliveries}
	return tx
}

// begin reads the counters with the statement given, after which tx can be
// used.
func (tx *transaction) begin(q *query) error {
	clear(tx.lanes)
	tx.events.args, tx.deliveries.args = tx.events.args[:0], tx.deliveries.args[:0]
	tx.retaken, tx.fault, tx.writes = 0, nil, 0
	found := false
	err := tx.run(q, func(r row) {
		tx.counter = counter{integer(r[0]), integer(r[1]), integer(r[2]), integer(r[3])}
		found = true
	})
	if err != nil {
		return err
	}
	if !found {
		return tx.corrupt(errNoCounter)
	}
	tx.stored = tx.counter
	tx.endpoints.validFor(tx.counter.epoch)
	return nil
}

// finish writes what operations left to the end.
func (tx *transaction) finish() error {
	if err := tx.flush(); err != nil {
		return err
	}
	if err := tx.refreshLanes(); err != nil {
		return err
	}
	if tx.counter == tx.stored {
		return nil
	}
	c := tx.counter
	if err := tx.run(updateCounter, nil, c.epoch, c.revision, c.delivery, c.event); err != nil {
		return err
	}
	tx.stored = c
	tx.endpoints.epoch = c.epoch
	return nil
}

// run implements runner.
func (tx *transaction) run(q *query, each func(row), args ...driver.Value) error {
	if !q.apart {
		if err := tx.flush(); err != nil {
			return err
		}
	}
	if tx.fault != nil {
		return tx.fault
	}
	if !strings.HasPrefix(q.sql, "SELECT") {
		tx.writes++
	}
	if err := tx.runner.run(q, each, args...); err != nil {
		tx.fault = classify(err)
		return tx.fault
	}
	return nil
}

// flush inserts the events and deliveries that are still to be.
func (tx *transaction) flush() error {
	if err := tx.events.flush(); err != nil {
		return err
	}
	return tx.deliveries.flush()
}

// corrupt ends the transaction because of a row that cannot be read.
func (tx *transaction) corrupt(err error) error {
	tx.fault = &fault{kind: ErrCorrupt, err: err}
	return tx.fault
}

// has reports whether a SELECT gives a row.
func (tx *transaction) has(q *query, args ...driver.Value) (bool, error) {
	found := false
	err := tx.run(q, func(row) { found = true }, args...)
	return found, err
}

// changed reports whether a statement with a RETURNING clause changed a row.
func (tx *transaction) changed(q *query, args ...driver.Value) (bool, error) {
	return tx.has(q, args...)
}

// revise returns the next revision, which tells other processes' caches that
// an endpoint changed, too.
func (tx *transaction) revise() int64 {
	tx.counter.revision++
	tx.counter.epoch++
	return tx.counter.revision
}
