//go:build cgo

// Package sqlitestore keeps a Dispatcher's endpoints, queue and delivery log in
// an SQLite file: its own, or one the host already has, where its tables are
// those whose names begin with webhook_.
//
// What a call stored is durable when the call returns: SQLite runs with
// synchronous=FULL. Calls that write at the same time share one commit, and so
// one sync of the disk. Any number of processes may use one file.
//
// The import path ends in store_sqlite, so that the package is imported by name:
//
//	import sqlitestore "github.com/elido-app/webhook/store_sqlite"
package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/elido-app/webhook/store"
)

// Store is a store.Store. Open and New make one; the zero Store is of no use.
type Store struct {
	writer  writer
	readers *sqlx.DB
	owned   bool // readers are the store's to close
}

var _ store.Store = (*Store)(nil)

// Options are what a store can be told. The zero value is the default.
type Options struct {
	// FirstDeliveryID is the least id a new delivery gets. It has an effect
	// where it is above all ids given out so far. Defaults to 1.
	FirstDeliveryID int64
}

// Open opens the database file at path with default Options. See
// [Options.Open].
func Open(ctx context.Context, path string) (*Store, error) {
	return Options{}.Open(ctx, path)
}

// New keeps a store in a database the host opened, with default Options. See
// [Options.New].
func New(ctx context.Context, db *sql.DB) (*Store, error) {
	return Options{}.New(ctx, db)
}

// Open opens the database file at path, which it creates, readable by its owner
// alone, if there is none. Its directory must exist. It puts the file into WAL
// mode and brings the webhook_ tables up to date.
//
// A file that cannot be used is refused with an error that wraps one of this
// package's, and is left as it is. ctx bounds the opening alone.
func (o Options) Open(ctx context.Context, path string) (*Store, error) {
	st, err := o.open(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: open %s: %w", path, err)
	}
	return st, nil
}

// New keeps a store in a database the host opened with mattn/go-sqlite3. It
// brings the webhook_ tables up to date and takes one connection out of db, to
// write with, until Close; it reads through db. Settings it changes on its own
// connection only.
//
// The database must be a file, be in WAL mode and allow more than one
// connection; otherwise it is refused with an error that wraps one of this
// package's. ctx bounds the opening alone.
//
// A transaction of the host's that writes to the same file keeps the store
// waiting, so it should be short, and immediate. One that calls the store itself,
// but for [Store.Tx], waits for itself: the store's writes need the lock it
// holds, and reads need one more connection than it has.
func (o Options) New(ctx context.Context, db *sql.DB) (*Store, error) {
	st, err := o.adopt(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: %w", err)
	}
	return st, nil
}

// Close ends what is under way, and gives back the connections. What waits to
// be written returns store.ErrClosed. A database that was given to New stays
// open.
func (s *Store) Close() error {
	if !s.writer.close() {
		return store.ErrClosed
	}
	if s.owned {
		return s.readers.Close()
	}
	return nil
}

// write runs work on the writer.
func (s *Store) write(ctx context.Context, what string, weight int, work func(*transaction) error) error {
	return describe(what, s.writer.do(ctx, weight, work))
}

// describe adds the call's name to errors of the database. All others are
// returned as they are.
func describe(what string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(*fault); ok { //nolint:errorlint // only what is not wrapped yet
		return fmt.Errorf("sqlitestore: %s: %w", what, err)
	}
	return err
}
