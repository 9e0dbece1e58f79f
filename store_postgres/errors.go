package postgresstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// The errors that say why a database cannot be used. A database that is refused
// is left as it was found.
var (
	// ErrMigrate: the schema has no webhook_ tables yet, or those of an older
	// version: call Migrate.
	ErrMigrate = errors.New("the webhook_ tables are missing or of an older version: call Migrate")

	// ErrSchema: the schema has webhook_ tables of a newer version of this
	// package, or some that are not its own.
	ErrSchema = errors.New("the webhook_ tables are not of a schema this version knows")

	// ErrServer: the server is too old, or the database's encoding is not UTF8.
	ErrServer = errors.New("PostgreSQL 13 or later is needed, with a database whose encoding is UTF8")

	// ErrReadOnly: the server, or this session, does not take writes.
	ErrReadOnly = errors.New("the database cannot be written: it is a standby, or read-only")

	// ErrCorrupt: a row holds what this package never writes.
	ErrCorrupt = errors.New("a row of the webhook_ tables is damaged")

	errNil = errors.New("no pool or transaction was given")
)

// fault is an error of the database, or of the way there. It is told apart from
// a refusal, which is the call's own.
type fault struct {
	kind error // one of the errors above, or nil
	err  error
}

func (f *fault) Error() string {
	if f.kind == nil {
		return f.err.Error()
	}
	return fmt.Sprintf("%v: %v", f.kind, f.err)
}

func (f *fault) Unwrap() []error {
	if f.kind == nil {
		return []error{f.err}
	}
	return []error{f.kind, f.err}
}

// The SQLSTATE codes that mean something to this package. Nothing is recognised
// by its text, which may be in any language.
const (
	codeUniqueViolation    = "23505"
	codeReadOnly           = "25006"
	codeIdleInTransaction  = "25P03"
	codeNoStatement        = "26000"
	codeSerialization      = "40001"
	codeDeadlock           = "40P01"
	codeUndefinedTable     = "42P01"
	codeTooManyConnections = "53300"
	codeLockNotAvailable   = "55P03"
	codeAdminShutdown      = "57P01"
	codeCrashShutdown      = "57P02"
	codeCannotConnectNow   = "57P03"
	codeIdleSession        = "57P05"
	codeFeatureUnsupported = "0A000" // also: a cached plan whose result type changed
)

// code returns an error's SQLSTATE, empty for one that is not the server's.
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// classify marks an error as the database's, and gives it its kind by its code.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault](err); ok {
		return err
	}
	f := &fault{err: err}
	switch code(err) {
	case codeReadOnly:
		f.kind = ErrReadOnly
	case codeUndefinedTable:
		f.kind = ErrMigrate
	}
	return f
}

// passing reports whether the same transaction may succeed when it is tried
// again: it lost against another one, or its connection, before the commit.
func passing(err error) bool {
	switch c := code(err); c {
	case codeSerialization, codeDeadlock, codeLockNotAvailable,
		codeAdminShutdown, codeCrashShutdown, codeCannotConnectNow, codeIdleSession, codeIdleInTransaction,
		codeTooManyConnections, codeNoStatement, codeFeatureUnsupported:
		return true
	case "":
		// Not the server's: the connection could not be made, or broke.
		_, own := errors.AsType[*fault](err)
		return own && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrCorrupt)
	default:
		return c[:2] == "08"
	}
}

// describe adds the call's name to errors of the database. All others are
// returned as they are.
func describe(what string, err error) error {
	if _, own := errors.AsType[*fault](err); !own {
		return err
	}
	return fmt.Errorf("postgresstore: %s: %w", what, err)
}
