// Package postgresstore keeps a Dispatcher's endpoints, queue and delivery log in
// PostgreSQL: in a database of its own, or in the host's, where its tables are
// those whose names begin with webhook_. Any number of processes may share them.
//
// The tables are made, and brought up to date, by [Migrate]; Open and New only
// look whether they are there:
//
//	pool, err := pgxpool.New(ctx, "postgres://app@db/elido")
//	err = postgresstore.Migrate(ctx, pool)
//	st, err := postgresstore.New(ctx, pool)
//
// An event can be published in the host's own transaction, so that it exists if
// the change it tells of does: see [Store.Tx].
//
// What a call stored is as durable as a commit of the database. Calls that lose
// against another transaction, or lose their connection before the commit, are
// tried again for a few seconds. One whose commit began and was not answered
// returns store.ErrOutcomeUnknown.
//
// The store reads no clock and never asks the database for the time: instants are
// the callers', so hosts that share a database need clocks that agree. A Dispatcher
// checks its own against the database's, see [Store.Now].
//
// A transaction that stays open for long anywhere in the database keeps
// PostgreSQL from removing dead rows, and a queue makes many: claims get slower
// until it ends.
//
// The import path ends in store_postgres, so that the package is imported by name:
//
//	import postgresstore "github.com/elido-app/webhook/store_postgres"
package postgresstore

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/elido-app/webhook/store"
)

// Store is a store.Store. Open and New make one; the zero Store is of no use.
type Store struct {
	pool     *pgxpool.Pool
	owned    bool // the pool is the store's to close
	pooled   bool // connections go through a proxy
	silent   bool // without notifications
	schema   schema
	known    atomic.Pointer[catalog]
	notifier notifier
	closed   atomic.Bool
	// publishing bounds the publishes at once, as they may have to wait for a
	// transaction of the host's: the scheduler still gets a connection.
	publishing chan struct{}
	life       context.Context //nolint:containedctx // ends with Close
	end        context.CancelFunc
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Clock   = (*Store)(nil)
)

// Options are what a store can be told. The zero value is the default.
type Options struct {
	// Schema is the database schema that holds the tables. Defaults to the
	// current schema of the first connection, which is public unless the
	// connection string or the role says otherwise. Migrate creates one that is
	// named here.
	Schema string

	// FirstDeliveryID is the least id a new delivery gets. It has an effect
	// where it is above all ids given out so far. Defaults to 1.
	FirstDeliveryID int64

	// TransactionPooling is for connections that go through a proxy such as
	// PgBouncer in transaction pooling mode, where every transaction may run on
	// another connection of the server. Open then prepares no statements, unless
	// the connection string names a default_query_exec_mode, and there is no
	// LISTEN, so that what other processes publish waits for the poll. A pool for
	// New must have been configured with pgx.QueryExecModeExec or
	// pgx.QueryExecModeSimpleProtocol.
	TransactionPooling bool

	// NoNotify turns NOTIFY and LISTEN off, by which processes otherwise tell each
	// other of work at once; without them the poll finds it. A transaction of the
	// host's that publishes also notifies, and PostgreSQL lets those commit one at
	// a time only: turn it off if there are thousands a second.
	NoNotify bool
}

// Open opens the database that a connection string or URL names, with default
// Options. See [Options.Open].
func Open(ctx context.Context, url string) (*Store, error) { return Options{}.Open(ctx, url) }

// New keeps a store in a database the host opened, with default Options. See
// [Options.New].
func New(ctx context.Context, pool *pgxpool.Pool) (*Store, error) { return Options{}.New(ctx, pool) }

// Close ends what the store started, and the pool, if Open made it, once the calls
// under way have returned. A pool that was given to New stays open.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return store.ErrClosed
	}
	s.notifier.stop()
	s.end()
	if s.owned {
		s.pool.Close()
	}
	return nil
}

// checkOpen returns ErrClosed after Close.
func (s *Store) checkOpen() error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return nil
}
