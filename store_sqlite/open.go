//go:build cgo

package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/mattn/go-sqlite3"

	"github.com/elido-app/webhook/store"
)

// oldestLibrary is SQLite 3.51.3, the first without a bug that could damage a
// database when its write-ahead log was reset.
const oldestLibrary = 3051003

func checkLibrary(version string, number int) error {
	if number < oldestLibrary {
		return fmt.Errorf("%w; this is %s", ErrLibrary, version)
	}
	return nil
}

// A setting is a PRAGMA, the value it is given, and what it then reads.
type setting struct {
	name, value string
	reads       int64
}

// The busy timeouts are short as SQLite waits without regard to a context; the
// store tries again on its own.
var (
	writerSettings = []setting{
		{"busy_timeout", "5", 5},
		{"synchronous", "FULL", 2},
		{"foreign_keys", "ON", 1},
		{"secure_delete", "FAST", 2}, // erased secrets do not linger in a page
		{"cache_size", "-16384", -16384},
		{"journal_size_limit", "67108864", 67108864},
		{"wal_autocheckpoint", "4000", 4000}, // pages, which are 16 MiB: most are changed again before that
	}
	readerSettings = []setting{
		{"busy_timeout", "5", 5},
		{"synchronous", "FULL", 2},
		{"foreign_keys", "ON", 1},
		{"query_only", "ON", 1},
	}
)

// maxReaders bounds the connections that read.
const maxReaders = 4

// apply changes settings and reads them back, as SQLite ignores what it does
// not understand.
func apply(c *sqlite3.SQLiteConn, settings []setting) error {
	for _, s := range settings {
		if _, err := pragma(c, "PRAGMA "+s.name+" = "+s.value); err != nil {
			return err
		}
		got, err := pragma(c, "PRAGMA "+s.name)
		if err != nil {
			return err
		}
		if got != driver.Value(s.reads) {
			return fmt.Errorf("%w: %s is %v, not %s", ErrPragma, s.name, got, s.value)
		}
	}
	return nil
}

// file is the database file as it was when it was opened.
type file struct {
	path string // without symbolic links
	info fs.FileInfo
}

func openedFile(path string) (file, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return file{}, err
	}
	info, err := os.Stat(path)
	return file{path, info}, err
}

// unmoved returns ErrMoved if the file is not where it was, or, while a
// connection to it is open, has no write-ahead log any more.
func (f file) unmoved(connected bool) error {
	info, err := os.Stat(f.path)
	if err == nil && !os.SameFile(info, f.info) {
		err = fs.ErrNotExist
	}
	if err == nil && connected {
		_, err = os.Stat(f.path + "-wal")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &fault{ErrMoved, err}
	}
	return nil
}

// source is how a file is named to the driver. path is absolute. A connection is
// used by one goroutine at a time, so SQLite need not lock it for every call.
func source(path, mode string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a volume of Windows
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: "mode=" + mode + "&_mutex=no"}
	return u.String()
}

// dial opens a connection of the store's own.
func dial(dsn string) (*sqlite3.SQLiteConn, error) {
	conn, err := (&sqlite3.SQLiteDriver{}).Open(dsn)
	if err != nil {
		return nil, classify(err)
	}
	c, ok := conn.(*sqlite3.SQLiteConn)
	if !ok {
		return nil, fmt.Errorf("%w; the driver opened a %T", ErrLibrary, conn)
	}
	return c, nil
}

func (o Options) open(ctx context.Context, path string) (*Store, error) {
	version, number, _ := sqlite3.Version()
	if err := checkLibrary(version, number); err != nil {
		return nil, err
	}
	if path == "" || path == ":memory:" {
		return nil, ErrMemory
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	path, err := filepath.Abs(path) // a URI cannot name a relative one
	if err != nil {
		return nil, err
	}
	if err := inspect(ctx, path); err != nil {
		return nil, err
	}
	f, err := openedFile(path)
	if err != nil {
		return nil, err
	}
	dsn := source(f.path, "rw")
	connect := func() (*connection, error) {
		c, err := dial(dsn)
		if err != nil {
			return nil, err
		}
		if err := apply(c, writerSettings); err != nil {
			_ = c.Close()
			return nil, err
		}
		return newConnection(c, func() { _ = c.Close() }), nil
	}
	conn, err := connect()
	if err != nil {
		return nil, err
	}
	if err := o.prepare(ctx, conn.conn, true); err != nil {
		conn.close()
		return nil, err
	}
	readers := sqlx.NewDb(sql.OpenDB(connector{dsn}), "sqlite3")
	readers.SetMaxOpenConns(maxReaders)
	readers.SetMaxIdleConns(maxReaders)
	st := &Store{readers: readers, owned: true}
	st.writer.connect, st.writer.file = connect, f
	st.writer.start(conn)
	return st, nil
}

// inspect creates the file if there is none. One that exists it reads without
// the means to change it, and returns why it cannot be used.
func inspect(ctx context.Context, path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%w: it is no regular file", ErrNotDatabase)
	}
	// SQLite gives the files it makes beside this one the same rights.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the path is the host's
	if denied(err) {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil || info.Size() == 0 {
		return err
	}
	return untilFree(ctx, func() error {
		c, err := dial(source(path, "ro"))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_, err = schemaVersion(c)
		return err
	})
}

// prepare makes the database ready for use: WAL mode, tables, first id.
func (o Options) prepare(ctx context.Context, c *sqlite3.SQLiteConn, own bool) error {
	return untilFree(ctx, func() error {
		statement := "PRAGMA journal_mode"
		if own {
			statement = "PRAGMA journal_mode = WAL"
		}
		mode, err := pragma(c, statement)
		if err != nil {
			return err
		}
		if text(mode) != "wal" {
			return fmt.Errorf("%w; it is %v", ErrJournalMode, mode)
		}
		if err := migrate(c, o.FirstDeliveryID); err != nil {
			return err
		}
		return checkWritable(c)
	})
}

// checkWritable returns ErrReadOnly if the connection cannot write, which would
// otherwise show only when something is to be stored.
func checkWritable(c *sqlite3.SQLiteConn) error {
	if err := execute(c, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := execute(c, "UPDATE main.webhook_counter SET epoch = epoch WHERE id = 1")
	if c.AutoCommit() {
		return err
	}
	return errors.Join(err, execute(c, "ROLLBACK"))
}

// untilFree calls f again for as long as somebody holds a lock it needs.
func untilFree(ctx context.Context, f func() error) error {
	pause := time.Millisecond
	for waited := time.Duration(0); ; waited += pause {
		err := f()
		if !errors.Is(err, ErrBusy) || waited > patience {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// connector makes the connections that read.
type connector struct{ dsn string }

func (c connector) Connect(context.Context) (driver.Conn, error) {
	conn, err := dial(c.dsn)
	if err != nil {
		return nil, err
	}
	if err := apply(conn, readerSettings); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func (c connector) Driver() driver.Driver { return &sqlite3.SQLiteDriver{} }

// adopt makes a store of a database the host opened.
func (o Options) adopt(ctx context.Context, db *sql.DB) (*Store, error) {
	version, number, _ := sqlite3.Version()
	if err := checkLibrary(version, number); err != nil {
		return nil, err
	}
	if db == nil {
		return nil, errNil
	}
	if db.Stats().MaxOpenConnections == 1 {
		return nil, ErrMaxOpenConns
	}
	conn, err := borrow(ctx, db)
	if err != nil {
		return nil, err
	}
	f, err := o.examine(ctx, conn.conn)
	if err != nil {
		conn.close()
		return nil, err
	}
	connect := func() (*connection, error) {
		bounded, cancel := context.WithTimeout(forever, patience)
		defer cancel()
		conn, err := borrow(bounded, db)
		if err != nil {
			return nil, err
		}
		if err := apply(conn.conn, writerSettings); err != nil {
			conn.close()
			return nil, err
		}
		return conn, nil
	}
	st := &Store{readers: sqlx.NewDb(db, "sqlite3")}
	st.writer.connect, st.writer.file = connect, f
	st.writer.start(conn)
	return st, nil
}

// examine makes sure that a host's database can be used, and prepares it.
func (o Options) examine(ctx context.Context, c *sqlite3.SQLiteConn) (file, error) {
	path := c.GetFilename("main")
	if path == "" {
		return file{}, ErrMemory
	}
	f, err := openedFile(path)
	if err != nil {
		return file{}, err
	}
	err = untilFree(ctx, func() error {
		_, err := schemaVersion(c)
		return err
	})
	if err != nil {
		return file{}, err
	}
	if err := apply(c, writerSettings); err != nil {
		return file{}, err
	}
	return f, o.prepare(ctx, c, false)
}

// borrow takes a connection out of a database of the host's. Giving it back
// closes it, as its settings are not the host's.
func borrow(ctx context.Context, db *sql.DB) (*connection, error) {
	held, err := db.Conn(ctx)
	if err != nil {
		return nil, classify(err)
	}
	release := func() {
		_ = held.Raw(func(any) error { return driver.ErrBadConn })
		_ = held.Close()
	}
	var conn *connection
	err = held.Raw(func(c any) error {
		own, ok := c.(*sqlite3.SQLiteConn)
		if !ok {
			return fmt.Errorf("%w; the database's driver gave a %T", ErrLibrary, c)
		}
		conn = newConnection(own, release)
		return nil
	})
	if err != nil {
		_ = held.Close()
		return nil, err
	}
	return conn, nil
}

// isClosed reports whether Close was called.
func (s *Store) isClosed() bool {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	return s.writer.closed
}

// checkOpen returns ErrClosed after Close.
func (s *Store) checkOpen() error {
	if s.isClosed() {
		return store.ErrClosed
	}
	return nil
}
