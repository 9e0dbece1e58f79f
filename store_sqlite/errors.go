//go:build cgo

package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/mattn/go-sqlite3"
)

// The errors that say why a database cannot be used, or stopped being usable.
// A database that is refused is left as it was found.
var (
	// ErrLibrary: the SQLite library linked into the program is too old, or the
	// database was not opened by mattn/go-sqlite3.
	ErrLibrary = errors.New("SQLite 3.51.3 or later is needed, through mattn/go-sqlite3")

	// ErrNotDatabase: the file is not an SQLite database.
	ErrNotDatabase = errors.New("the file is not an SQLite database")

	// ErrCorrupt: SQLite found the file damaged.
	ErrCorrupt = errors.New("the database file is damaged")

	// ErrReadOnly: the file, or the directory that also has to hold its
	// write-ahead log, cannot be written.
	ErrReadOnly = errors.New("the database cannot be written")

	// ErrSchema: the database has webhook_ tables of a newer version of this
	// package, or some that are not its own.
	ErrSchema = errors.New("the webhook_ tables are not of a schema this version knows")

	// ErrMaxOpenConns: the database is limited to one connection, but the store
	// keeps one for writing, so nothing would be left to read with.
	ErrMaxOpenConns = errors.New("SetMaxOpenConns(1): the store keeps one connection to write with, " +
		"so the database must allow at least two")

	// ErrMemory: the database lives in memory, where each connection has one of
	// its own or none can use a write-ahead log.
	ErrMemory = errors.New("the database has no file: give it one, or use a store that is made for memory")

	// ErrJournalMode: the database is not in WAL mode.
	ErrJournalMode = errors.New("the journal mode is not WAL: run PRAGMA journal_mode=WAL, " +
		`or open with "?_journal_mode=WAL"`)

	// ErrPragma: a setting did not take effect.
	ErrPragma = errors.New("SQLite did not take a setting")

	// ErrMoved: the database file was deleted or replaced while it was open, so
	// what would be written now would vanish.
	ErrMoved = errors.New("the database file was deleted or replaced while it was open")

	// ErrBusy: somebody else held the write lock for too long. Where the
	// store is bound to a transaction of the host's, that transaction was begun
	// deferred, and another write came between: begin it immediate, with
	// "_txlock=immediate" in the data source name, and it waits its turn. Where it
	// is not, that somebody may be a transaction of the host's which is waiting
	// for this very call: publish in it through Tx.
	ErrBusy = errors.New("another connection holds the database's write lock (if that is a transaction " +
		"of your own, publish in it with PublishTx, and begin it with _txlock=immediate)")

	errNil = errors.New("no database or transaction was given")
)

// fault is an error of the database. It is told apart from a refusal, which
// leaves the transaction as it was.
type fault struct {
	kind error // one of the errors above, or nil
	err  error
}

func (f *fault) Error() string {
	if f.kind == nil {
		return fmt.Sprintf("sqlite: %v", f.err)
	}
	return fmt.Sprintf("%v: sqlite: %v", f.kind, f.err)
}

func (f *fault) Unwrap() []error {
	if f.kind == nil {
		return []error{f.err}
	}
	return []error{f.kind, f.err}
}

// classify gives an error of the driver its kind, by its code.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var known *fault
	if errors.As(err, &known) {
		return err
	}
	f := &fault{err: err}
	switch code(err) {
	case sqlite3.ErrBusy, sqlite3.ErrLocked:
		f.kind = ErrBusy
	case sqlite3.ErrNotADB:
		f.kind = ErrNotDatabase
	case sqlite3.ErrCorrupt:
		f.kind = ErrCorrupt
	case sqlite3.ErrReadonly, sqlite3.ErrPerm:
		f.kind = ErrReadOnly
	case sqlite3.ErrCantOpen:
		if denied(err) {
			f.kind = ErrReadOnly
		}
	}
	return f
}

// denied reports whether the operating system refused to let a file be opened
// for writing.
func denied(err error) bool {
	var e sqlite3.Error
	if errors.As(err, &e) {
		err = e.SystemErrno
	}
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, errReadOnlyFS)
}

// code returns SQLite's result code, zero for an error that is not SQLite's.
func code(err error) sqlite3.ErrNo {
	var e sqlite3.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// harmless reports whether a connection is as good as before after a fault.
func harmless(err error) bool {
	switch code(err) {
	case sqlite3.ErrBusy, sqlite3.ErrLocked, sqlite3.ErrFull, sqlite3.ErrConstraint, sqlite3.ErrTooBig,
		sqlite3.ErrInterrupt, sqlite3.ErrMismatch, sqlite3.ErrRange:
		return true
	}
	return false
}
