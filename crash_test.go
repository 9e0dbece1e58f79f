package webhook_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/internal/crashtest"
	"github.com/elido-app/webhook/store"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

var (
	kills    = flag.Int("kills", 5, "how many processes TestTorture kills")
	thorough = flag.Bool("kill-everywhere", false, "TestCrashes kills at every step, not only at some")
)

func TestMain(m *testing.M) {
	crashtest.Main(sqliteFile, sqliteHost)
	os.Exit(m.Run())
}

func TestCrashes(t *testing.T) {
	if *thorough {
		crashtest.Thorough()
	}
	for _, db := range []crashtest.Database{sqliteFile, sqliteHost} {
		t.Run(db.Name, func(t *testing.T) { crashtest.Run(t, db) })
	}
}

// TestTorture kills at random; make torture does so at length.
func TestTorture(t *testing.T) {
	for _, db := range []crashtest.Database{sqliteFile, sqliteHost} {
		t.Run(db.Name, func(t *testing.T) { crashtest.Torture(t, db, *kills) })
	}
}

// sqliteFile is a file of the store's own.
var sqliteFile = crashtest.Database{
	Name:   "file",
	Create: func(t *testing.T) string { return filepath.Join(t.TempDir(), "webhooks.db") },
	Open: func(ctx context.Context, path string, _ func(string)) (*crashtest.Handle, error) {
		st, err := sqlitestore.Open(ctx, path)
		if err != nil {
			return nil, err
		}
		return &crashtest.Handle{Store: st, Close: st.Close}, nil
	},
}

// sqliteHost is a database that the host opened, with a table of its own, and
// with SQLite's hooks: these are called by the statement that is running.
var sqliteHost = crashtest.Database{
	Name: "host",
	Create: func(t *testing.T) string {
		path := filepath.Join(t.TempDir(), "host.db")
		db := hostOpen(path, func(string) {})
		_, err := db.Exec(`CREATE TABLE orders (note TEXT PRIMARY KEY)`)
		require.NoError(t, err)
		require.NoError(t, db.Close())
		return path
	},
	Opening: []string{"statement", "row", "commit"},
	Writing: []string{"row", "commit"},
	Open: func(ctx context.Context, path string, reached func(string)) (*crashtest.Handle, error) {
		db := hostOpen(path, reached)
		st, err := sqlitestore.New(ctx, db)
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return &crashtest.Handle{
			Store: st,
			Close: func() error { return errors.Join(st.Close(), db.Close()) },
			InTx: func(ctx context.Context, note string, publish func(store.Publisher) error) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				if _, err = tx.Exec(`INSERT INTO orders (note) VALUES (?)`, note); err == nil {
					err = publish(st.Tx(tx))
				}
				if err != nil {
					return errors.Join(err, tx.Rollback())
				}
				return tx.Commit()
			},
			Notes: func(ctx context.Context) (notes []string, err error) {
				rows, err := db.QueryContext(ctx, `SELECT note FROM orders`)
				if err != nil {
					return nil, err
				}
				defer rows.Close()
				for rows.Next() {
					var note string
					if err := rows.Scan(&note); err != nil {
						return nil, err
					}
					notes = append(notes, note)
				}
				return notes, rows.Err()
			},
		}, nil
	},
}

func hostOpen(path string, reached func(string)) *sql.DB {
	return sql.OpenDB(hooked{"file:" + path + "?_journal_mode=WAL&_txlock=immediate&_busy_timeout=10000&_synchronous=FULL", reached})
}

// hooked makes connections that tell when a statement is prepared, a row is
// written, and a commit begins.
type hooked struct {
	dsn     string
	reached func(string)
}

func (h hooked) Driver() driver.Driver {
	return &sqlite3.SQLiteDriver{ConnectHook: func(c *sqlite3.SQLiteConn) error {
		c.RegisterUpdateHook(func(int, string, string, int64) { h.reached("row") })
		c.RegisterCommitHook(func() int { h.reached("commit"); return 0 })
		c.RegisterAuthorizer(func(int, string, string, string) int { h.reached("statement"); return sqlite3.SQLITE_OK })
		return nil
	}}
}

func (h hooked) Connect(context.Context) (driver.Conn, error) { return h.Driver().Open(h.dsn) }
