package sqlitestore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
	"github.com/elido-app/webhook/store/storetest"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

// host opens a database as a host would, with a table of its own.
func host(t testing.TB, options string) *sql.DB {
	t.Helper()
	db := raw(t, filepath.Join(t.TempDir(), "host.db"), "?_journal_mode=WAL"+options)
	_, err := db.Exec(`CREATE TABLE links (id INTEGER PRIMARY KEY, slug TEXT);
		CREATE TABLE webhook_inbox (id TEXT); INSERT INTO links (slug) VALUES ('a')`)
	require.NoError(t, err)
	return db
}

func newIn(t testing.TB, db *sql.DB) *sqlitestore.Store {
	t.Helper()
	st, err := sqlitestore.New(t.Context(), db)
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func TestContractInAHostsDatabase(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		t.Parallel()
		return newIn(t, host(t, "&_txlock=immediate"))
	})
}

func TestNewRefuses(t *testing.T) {
	single := host(t, "")
	single.SetMaxOpenConns(1)
	for _, test := range []struct {
		name string
		db   *sql.DB
		want error
	}{
		{"one connection", single, sqlitestore.ErrMaxOpenConns},
		{"memory", memory(t, ":memory:"), sqlitestore.ErrMemory},
		{"named memory", memory(t, "file:x?mode=memory"), sqlitestore.ErrMemory},
		{"rollback journal", raw(t, database(t, `CREATE TABLE links (id)`), ""), sqlitestore.ErrJournalMode},
		{"foreign tables", raw(t, database(t, `PRAGMA journal_mode = WAL`, `CREATE TABLE webhook_lanes (x)`), ""), sqlitestore.ErrSchema},
		{"another driver", sql.OpenDB(otherConnector{}), sqlitestore.ErrLibrary},
	} {
		t.Run(test.name, func(t *testing.T) {
			st, err := sqlitestore.New(t.Context(), test.db)
			require.ErrorIs(t, err, test.want)
			require.Nil(t, st)
			require.Zero(t, test.db.Stats().InUse, "connections still taken")
		})
	}
}

func memory(t *testing.T, dsn string) *sql.DB {
	db, err := sql.Open("sqlite3", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// otherConnector is a driver that is not SQLite's.
type otherConnector struct{}

type otherConn struct{ driver.Conn }

func (otherConnector) Connect(context.Context) (driver.Conn, error) { return otherConn{}, nil }
func (otherConnector) Driver() driver.Driver                        { return nil }
func (otherConn) Close() error                                      { return nil }

func TestNewLeavesTheDatabaseToItsHost(t *testing.T) {
	db := host(t, "&_synchronous=OFF&_busy_timeout=1234&_foreign_keys=0")
	st := newIn(t, db)
	require.Equal(t, 1, db.Stats().InUse, "connections taken")
	createEndpoint(t, st)
	mustPublish(t, st, "evt_1")
	require.NoError(t, st.Close())
	require.Zero(t, db.Stats().InUse, "connections taken after Close")

	for name, want := range map[string]int{"synchronous": 0, "busy_timeout": 1234, "foreign_keys": 0, "query_only": 0} {
		for range 3 {
			var got int
			require.NoError(t, db.QueryRow("PRAGMA "+name).Scan(&got))
			require.Equal(t, want, got, name)
		}
	}
	var slug string
	require.NoError(t, db.QueryRow(`SELECT slug FROM links`).Scan(&slug))
	require.Equal(t, "a", slug)

	_, err := st.Endpoints(t.Context(), store.EndpointFilter{WorkspaceID: 1})
	require.ErrorIs(t, err, store.ErrClosed)
	again := newIn(t, db)
	list, err := again.Endpoints(t.Context(), store.EndpointFilter{WorkspaceID: 1})
	require.NoError(t, err)
	require.Len(t, list, 1)
}

func TestTx(t *testing.T) {
	db := host(t, "&_txlock=immediate")
	st := newIn(t, db)
	createEndpoint(t, st)

	begin := func() *sql.Tx {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.Exec(`INSERT INTO links (slug) VALUES ('b')`)
		require.NoError(t, err)
		return tx
	}
	count := func() int {
		list, err := st.Deliveries(t.Context(), store.DeliveryFilter{WorkspaceID: 1})
		require.NoError(t, err)
		var links int
		require.NoError(t, db.QueryRow(`SELECT count(*) - 1 FROM links`).Scan(&links))
		require.Len(t, list, links, "deliveries and links")
		return links
	}

	tx := begin()
	gone := mustPublish(t, st.Tx(tx), "evt_1")
	require.Equal(t, 0, count(), "seen before the commit")
	require.NoError(t, tx.Rollback())
	require.Equal(t, 0, count(), "left by a rollback")

	tx = begin()
	r, err := st.Tx(tx).Publish(t.Context(), store.PublishParams{
		Now: time.UnixMilli(1000), Events: []store.NewEvent{event("evt_1")},
		Handoff: &store.LeaseParams{Token: 1, Until: time.UnixMilli(9000), Room: store.Room{Limit: 9, PerEndpoint: 9}},
	})
	require.NoError(t, err)
	require.Empty(t, r.Leases, "leases of what is not committed")
	require.True(t, r.Queued)
	require.Equal(t, gone, r.Receipts[0].DeliveryIDs, "nobody saw the id that was rolled back")
	require.Equal(t, 0, count(), "seen before the commit")
	require.NoError(t, tx.Commit())
	require.Equal(t, 1, count(), "seen after the commit")
	require.Greater(t, mustPublish(t, st, "evt_2")[0], gone[0])

	claimed, err := st.Claim(t.Context(), store.ClaimParams{Now: time.UnixMilli(1000), LeaseParams: store.LeaseParams{
		Token: 2, Until: time.UnixMilli(9000), Room: store.Room{Limit: 9, PerEndpoint: 9},
	}})
	require.NoError(t, err)
	require.Len(t, claimed.Leases, 2)
	require.Equal(t, "evt_1", claimed.Leases[0].EventID)
}

func TestTxKeepsTheRestOfTheTransaction(t *testing.T) {
	db := host(t, "&_txlock=immediate")
	st := newIn(t, db)
	createEndpoint(t, st)
	mustPublish(t, st, "evt_1")

	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec(`INSERT INTO links (slug) VALUES ('b')`)
	require.NoError(t, err)
	_, err = publish(t.Context(), st.Tx(tx), "evt_2", "evt_1") // the second has an id that is taken
	require.Error(t, err)
	mustPublish(t, st.Tx(tx), "evt_3")
	require.NoError(t, tx.Commit())

	var links int
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM links`).Scan(&links))
	require.Equal(t, 2, links)
	list, err := st.Deliveries(t.Context(), store.DeliveryFilter{WorkspaceID: 1})
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []string{"evt_3", "evt_1"}, []string{list[0].EventID, list[1].EventID})
}

func TestTxSaysWhenItShouldBeImmediate(t *testing.T) {
	db := host(t, "&_busy_timeout=20")
	st := newIn(t, db)
	createEndpoint(t, st)

	// Deferred, and somebody else wrote since it first read.
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var slug string
	require.NoError(t, tx.QueryRow(`SELECT slug FROM links`).Scan(&slug))
	mustPublish(t, st, "evt_1")
	_, err = publish(t.Context(), st.Tx(tx), "evt_2")
	require.ErrorIs(t, err, sqlitestore.ErrBusy)
	require.NoError(t, tx.Rollback())

	// Deferred, and somebody else holds the lock.
	other, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = other.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
	require.NoError(t, err)
	tx, err = db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = publish(t.Context(), st.Tx(tx), "evt_2")
	require.ErrorIs(t, err, sqlitestore.ErrBusy)
	require.NoError(t, tx.Rollback())
	_, err = other.ExecContext(t.Context(), `ROLLBACK`)
	require.NoError(t, err)

	// Deferred, but alone.
	tx, err = db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	mustPublish(t, st.Tx(tx), "evt_2")
	require.NoError(t, tx.Commit())
}

func TestTxAfterTheEnd(t *testing.T) {
	db := host(t, "")
	st := newIn(t, db)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = publish(ended, st.Tx(tx), "evt_1")
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, st.Close())
	_, err = publish(t.Context(), st.Tx(tx), "evt_1")
	require.ErrorIs(t, err, store.ErrClosed)
	require.NoError(t, tx.Commit())
}
