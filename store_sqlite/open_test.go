package sqlitestore_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

// raw opens a file without the store.
func raw(t testing.TB, path, options string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path+options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// database makes a database file with some statements and closes it.
func database(t testing.TB, statements ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "host.db")
	db := raw(t, path, "")
	for _, s := range statements {
		_, err := db.Exec(s)
		require.NoError(t, err, s)
	}
	require.NoError(t, db.Close())
	return path
}

func event(id string) store.NewEvent {
	return store.NewEvent{
		ID: id, WorkspaceID: 1, Type: "link.created", Matches: []string{"link.created", "link.*"},
		Payload: []byte(`{"type":"link.created"}`), Budget: 3,
	}
}

func publish(ctx context.Context, p store.Publisher, ids ...string) ([]store.Receipt, error) {
	params := store.PublishParams{Now: time.UnixMilli(1000)}
	for _, id := range ids {
		params.Events = append(params.Events, event(id))
	}
	r, err := p.Publish(ctx, params)
	return r.Receipts, err
}

func mustPublish(t testing.TB, p store.Publisher, ids ...string) []int64 {
	t.Helper()
	receipts, err := publish(t.Context(), p, ids...)
	require.NoError(t, err)
	var deliveries []int64
	for _, r := range receipts {
		deliveries = append(deliveries, r.DeliveryIDs...)
	}
	return deliveries
}

func TestOpenCreatesAFileOfItsOwnersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "webhook.db")
	st, err := sqlitestore.Open(t.Context(), path)
	require.NoError(t, err)
	createEndpoint(t, st)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "mode of webhook.db%s", suffix)
	}
	require.NoError(t, st.Close())
}

func TestOpenTakesPathsAsTheyAre(t *testing.T) {
	for _, name := range []string{"a b.db", "what?mode=memory.db", "50%41.db", "frag#ment.db", "ü&=.db", "file:x.db"} {
		path := filepath.Join(t.TempDir(), name)
		st, err := sqlitestore.Open(t.Context(), path)
		require.NoError(t, err, name)
		e := createEndpoint(t, st)
		require.NoError(t, st.Close())
		require.FileExists(t, path)

		st, err = sqlitestore.Open(t.Context(), path)
		require.NoError(t, err, name)
		got, err := st.Endpoint(t.Context(), 1, e.ID)
		require.NoError(t, err, name)
		require.Equal(t, e, got, name)
		require.NoError(t, st.Close())
	}
}

func TestOpenFollowsASymbolicLink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link.db")
	require.NoError(t, os.Symlink(filepath.Join(dir, "webhook.db"), link))
	st, err := sqlitestore.Open(t.Context(), link)
	require.NoError(t, err)
	createEndpoint(t, st)
	mustPublish(t, st, "evt_1")
	require.NoError(t, st.Close())
	require.FileExists(t, filepath.Join(dir, "webhook.db"))
}

func TestOpenRefuses(t *testing.T) {
	newer := func(t *testing.T) string {
		path := filepath.Join(t.TempDir(), "webhook.db")
		st, err := sqlitestore.Open(t.Context(), path)
		require.NoError(t, err)
		require.NoError(t, st.Close())
		db := raw(t, path, "")
		_, err = db.Exec(`INSERT INTO webhook_migrations (version, name) VALUES (999, 'later')`)
		require.NoError(t, err)
		require.NoError(t, db.Close())
		return path
	}
	contents := func(data string) func(*testing.T) string {
		return func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "file")
			require.NoError(t, os.WriteFile(path, []byte(data), 0o644))
			return path
		}
	}
	schema := func(statements ...string) func(*testing.T) string {
		return func(t *testing.T) string { return database(t, statements...) }
	}
	for _, test := range []struct {
		name string
		path func(*testing.T) string
		want error
	}{
		{"a text file", contents("hello, world\n"), sqlitestore.ErrNotDatabase},
		{"a large text file", contents(strings.Repeat("hello, world\n", 10_000)), sqlitestore.ErrNotDatabase},
		{"a directory", func(t *testing.T) string { return t.TempDir() }, sqlitestore.ErrNotDatabase},
		{"a truncated file", truncated, sqlitestore.ErrCorrupt},
		{"a damaged schema", damaged, sqlitestore.ErrCorrupt},
		{"a newer schema", newer, sqlitestore.ErrSchema},
		{"another migration's name", schema(
			`CREATE TABLE webhook_migrations (version INTEGER PRIMARY KEY, name TEXT)`,
			`INSERT INTO webhook_migrations VALUES (1, 'other')`), sqlitestore.ErrSchema},
		{"migrations of another form", schema(`CREATE TABLE webhook_migrations (id TEXT)`), sqlitestore.ErrSchema},
		{"tables without migrations", schema(`CREATE TABLE webhook_endpoints (id INTEGER)`), sqlitestore.ErrSchema},
		{"migrations without tables", schema(
			`CREATE TABLE webhook_migrations (version INTEGER PRIMARY KEY, name TEXT)`,
			`INSERT INTO webhook_migrations VALUES (1, 'tables')`), sqlitestore.ErrSchema},
		{"the same in WAL mode", schema(`PRAGMA journal_mode = WAL`, `CREATE TABLE webhook_events (x)`), sqlitestore.ErrSchema},
		{"memory", func(*testing.T) string { return ":memory:" }, sqlitestore.ErrMemory},
		{"no path", func(*testing.T) string { return "" }, sqlitestore.ErrMemory},
		{"no directory", func(t *testing.T) string { return filepath.Join(t.TempDir(), "none", "x.db") }, os.ErrNotExist},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := test.path(t)
			before := fingerprint(path)
			st, err := sqlitestore.Open(t.Context(), path)
			require.ErrorIs(t, err, test.want)
			require.Nil(t, st)
			require.Equal(t, before, fingerprint(path), "the file was changed")
		})
	}
}

func fingerprint(path string) [32]byte {
	data, _ := os.ReadFile(path)
	return sha256.Sum256(data)
}

// truncated is a database of which the end is missing.
func truncated(t *testing.T) string {
	path := database(t, `CREATE TABLE host (x)`, `INSERT INTO host VALUES (zeroblob(100000))`)
	require.NoError(t, os.Truncate(path, 8192))
	return path
}

// damaged is a database whose list of tables makes no sense.
func damaged(t *testing.T) string {
	path := database(t, `CREATE TABLE host (x)`)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte(strings.Repeat("\xee", 1000)), 100)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return path
}

// An event that left an unfinished log beside a foreign file is not ours to
// clear away.
func TestOpenLeavesTheLogOfAForeignFile(t *testing.T) {
	path := database(t, `PRAGMA journal_mode = WAL`, `CREATE TABLE webhook_events (x)`)
	db := raw(t, path, "")
	_, err := db.Exec(`INSERT INTO webhook_events VALUES (1)`)
	require.NoError(t, err)
	copied := filepath.Join(t.TempDir(), "copy.db")
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(copied+suffix, data, 0o600))
	}
	before, log := fingerprint(copied), fingerprint(copied+"-wal")
	_, err = sqlitestore.Open(t.Context(), copied)
	require.ErrorIs(t, err, sqlitestore.ErrSchema)
	require.Equal(t, before, fingerprint(copied), "the file was changed")
	require.Equal(t, log, fingerprint(copied+"-wal"), "its log was changed")
}

func TestOpenIsBoundByItsContext(t *testing.T) {
	path := database(t, `PRAGMA journal_mode = WAL`)
	conn, err := raw(t, path, "").Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = sqlitestore.Open(ctx, path)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, sqlitestore.ErrBusy)
	require.Less(t, time.Since(began), time.Second)

	_, err = conn.ExecContext(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
	st, err := sqlitestore.Open(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, st.Close())
}

func TestOpenTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "webhook.db")
	var group sync.WaitGroup
	stores := make([]*sqlitestore.Store, 8)
	errs := make([]error, len(stores))
	for i := range stores {
		group.Go(func() { stores[i], errs[i] = sqlitestore.Open(t.Context(), path) })
	}
	group.Wait()
	for i, err := range errs {
		require.NoError(t, err)
		createEndpoint(t, stores[i])
	}
	for _, st := range stores {
		list, err := st.Endpoints(t.Context(), store.EndpointFilter{WorkspaceID: 1})
		require.NoError(t, err)
		require.Len(t, list, len(stores))
		require.NoError(t, st.Close())
	}
}

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "webhook.db")
	var want []int64
	for _, id := range []string{"evt_1", "evt_2", "evt_3"} {
		st, err := sqlitestore.Open(t.Context(), path)
		require.NoError(t, err)
		if id == "evt_1" {
			createEndpoint(t, st)
		}
		want = append(mustPublish(t, st, id), want...)
		list, err := st.Deliveries(t.Context(), store.DeliveryFilter{WorkspaceID: 1})
		require.NoError(t, err)
		var got []int64
		for _, d := range list {
			got = append(got, d.ID)
		}
		require.Equal(t, want, got)
		require.NoError(t, st.Close())
		require.NoFileExists(t, path+"-wal", "the last to close leaves one file")
	}
}

func TestDeliveryIDsAreNeverUsedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "webhook.db")
	open := func(first int64) *sqlitestore.Store {
		st, err := sqlitestore.Options{FirstDeliveryID: first}.Open(t.Context(), path)
		require.NoError(t, err)
		return st
	}
	st := open(5000)
	e := createEndpoint(t, st)
	require.Equal(t, []int64{5000, 5001}, mustPublish(t, st, "evt_1", "evt_2"))

	// The newest rows go; their ids do not come back, nor do those of a store
	// that is told to begin lower.
	require.NoError(t, st.DeleteEndpoint(t.Context(), 1, e.ID, time.UnixMilli(2000)))
	r, err := st.Maintain(t.Context(), store.MaintainParams{Now: time.UnixMilli(3000)})
	require.NoError(t, err)
	require.Equal(t, 2, r.Purged)
	require.NoError(t, st.Close())

	st = open(1)
	require.Greater(t, createEndpoint(t, st).ID, e.ID)
	require.Equal(t, []int64{5002}, mustPublish(t, st, "evt_3"))
	require.NoError(t, st.Close())
	st = open(6000)
	require.Equal(t, []int64{6000}, mustPublish(t, st, "evt_4"))
	require.NoError(t, st.Close())
}

func TestAFileDeletedUnderneathIsNoticed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be deleted")
	}
	for _, test := range []struct {
		name string
		harm func(path string) error
	}{
		{"deleted", os.Remove},
		{"renamed", func(path string) error { return os.Rename(path, path+".old") }},
		{"replaced", func(path string) error {
			if err := os.WriteFile(path+".new", nil, 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}},
		{"log deleted", func(path string) error { return os.Remove(path + "-wal") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "webhook.db")
			st, err := sqlitestore.Open(t.Context(), path)
			require.NoError(t, err)
			createEndpoint(t, st)
			mustPublish(t, st, "evt_1")
			require.NoError(t, test.harm(path))
			for range 2 {
				_, err = publish(t.Context(), st, "evt_2")
				require.ErrorIs(t, err, sqlitestore.ErrMoved)
			}
			require.NoError(t, st.Close())
		})
	}
}
