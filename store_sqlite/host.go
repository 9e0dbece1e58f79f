//go:build cgo

package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/mattn/go-sqlite3"

	"github.com/elido-app/webhook/store"
)

// Tx binds publishing to a transaction of the host's on the same database: what
// is published can be seen once tx commits, and is gone if it rolls back. After
// the commit, wake the Dispatcher, or its poll finds the deliveries.
//
// tx should be immediate ("_txlock=immediate" in the data source name). In a
// deferred one Publish returns ErrBusy where somebody else wrote since tx
// first read, or holds the write lock for longer than the busy timeout of the
// host's connection; tx should then be rolled back. Publish takes the write
// lock, which keeps the store and all others waiting until tx ends.
//
// Publish gives no leases, as what they stand for is not committed: Handoff is
// left out. A context that ends while Publish runs does not interrupt it, as
// SQLite would roll all of tx back.
func (s *Store) Tx(tx *sql.Tx) store.Publisher { return &hostPublisher{s, tx} }

type hostPublisher struct {
	s  *Store
	tx *sql.Tx
}

var (
	savepoint        = &query{sql: `SAVEPOINT webhook_publish`}
	releasing        = &query{sql: `RELEASE webhook_publish`}
	undoing          = &query{sql: `ROLLBACK TO webhook_publish`}
	_                = store.Publisher(&hostPublisher{})
	_         runner = hostTx{}
)

// Publish implements store.Publisher.
func (h *hostPublisher) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	if err := ctx.Err(); err != nil {
		return store.PublishResult{}, err
	}
	if err := h.s.checkOpen(); err != nil {
		return store.PublishResult{}, err
	}
	if h.tx == nil {
		return store.PublishResult{}, fmt.Errorf("sqlitestore: publish: %w", errNil)
	}
	p.Handoff = nil
	run := hostTx{context.WithoutCancel(ctx), h.tx}
	if err := run.run(savepoint, nil); err != nil {
		return store.PublishResult{}, describe("publish", classify(err))
	}
	tx := newTransaction()
	tx.runner = run
	result, err := publishIn(tx, p)
	if err != nil {
		// Where SQLite rolled back all by itself the savepoint is gone, too.
		if undone := run.run(undoing, nil); undone == nil {
			_ = run.run(releasing, nil)
		}
		return store.PublishResult{}, describe("publish", err)
	}
	if err := run.run(releasing, nil); err != nil {
		return store.PublishResult{}, describe("publish", classify(err))
	}
	return result, nil
}

func publishIn(tx *transaction, p store.PublishParams) (store.PublishResult, error) {
	err := tx.begin(lockCounter)
	if code(err) == sqlite3.ErrError { // the statement does not fit the database
		return store.PublishResult{}, fmt.Errorf("%w; is the transaction one of another database than the store's? %w", ErrSchema, err)
	}
	if err != nil {
		return store.PublishResult{}, err
	}
	result, err := tx.publish(p)
	if err == nil {
		err = tx.finish()
	}
	return result, err
}

// hostTx runs statements in a transaction of the host's.
type hostTx struct {
	ctx context.Context //nolint:containedctx // it lives as long as one call
	tx  *sql.Tx
}

// run implements runner.
func (h hostTx) run(q *query, each func(row), args ...driver.Value) (err error) {
	list := make([]any, len(args))
	for i, v := range args {
		list[i] = v
	}
	rows, err := h.tx.QueryContext(h.ctx, q.sql, list...)
	if err != nil {
		return err
	}
	defer func() {
		if closed := rows.Close(); err == nil {
			err = closed
		}
	}()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values, into := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		r := make(row, len(values))
		for i, v := range values {
			r[i] = v
		}
		if each != nil {
			each(r)
		}
	}
	return rows.Err()
}
