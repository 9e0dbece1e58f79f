package postgresstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
)

func TestMigrate(t *testing.T) {
	pool := openPool(t, serverURL(t))
	o := Options{Schema: newSchemaName(t, testServer)}
	st, err := o.New(t.Context(), pool)
	require.ErrorIs(t, err, ErrMigrate)
	require.Nil(t, st)

	require.NoError(t, o.Migrate(t.Context(), pool))
	require.NoError(t, o.Migrate(t.Context(), pool))
	st, err = o.New(t.Context(), pool)
	require.NoError(t, err)
	createEndpoint(t, st)
	require.Equal(t, []int64{1}, mustPublish(t, st, "evt_1"))
	require.NoError(t, o.Migrate(t.Context(), pool), "with something in it")
	require.Equal(t, []string{"evt_1"}, listed(t, st))
	require.NoError(t, st.Close())
	require.NoError(t, pool.Ping(t.Context()), "the host's pool after Close")
	require.ErrorIs(t, st.Close(), store.ErrClosed)

	require.ErrorIs(t, Migrate(t.Context(), nil), errNil)
	_, err = New(t.Context(), nil)
	require.ErrorIs(t, err, errNil)
}

// Without a name the schema is that of the connection, and stays it.
func TestTheDefaultSchema(t *testing.T) {
	name := newSchemaName(t, serverURL(t))
	require.NoError(t, execute(testServer, `CREATE SCHEMA "`+name+`"`))
	url := with(testServer, "search_path="+name)
	require.NoError(t, Migrate(t.Context(), openPool(t, url)))
	st, err := Open(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = st.Close() }()
	require.Equal(t, name, st.schema.name)
	createEndpoint(t, st)
	mustPublish(t, st, "evt_1")

	other := openPool(t, testServer) // with another search_path
	tx, err := other.Begin(t.Context())
	require.NoError(t, err)
	mustPublish(t, st.Tx(tx), "evt_2")
	require.NoError(t, tx.Commit(t.Context()))
	require.Len(t, listed(t, st), 2)

	_, err = Open(t.Context(), with(testServer, "search_path=nothing_here"))
	require.ErrorIs(t, err, ErrSchema)
	_, err = Options{Schema: "it's"}.Open(t.Context(), testServer)
	require.ErrorIs(t, err, ErrSchema)
}

func TestMigrateInParallel(t *testing.T) {
	pool := openPool(t, serverURL(t))
	o := Options{Schema: newSchemaName(t, testServer), FirstDeliveryID: 1000}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := o.Migrate(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	st, err := o.New(t.Context(), pool)
	require.NoError(t, err)
	createEndpoint(t, st)
	require.Equal(t, []int64{1000}, mustPublish(t, st, "evt_1"))
}

func TestFirstDeliveryID(t *testing.T) {
	st := openNew(t)
	createEndpoint(t, st)
	last := mustPublish(t, st, "evt_1")[0]
	for i, first := range []int64{0, last, last + 500, 1 << 60, 5} {
		o := Options{Schema: st.schema.name, FirstDeliveryID: first}
		require.NoError(t, o.Migrate(t.Context(), st.pool))
		want := max(first, last+1)
		last = mustPublish(t, st, fmt.Sprint("evt_at_", i))[0]
		require.Equal(t, want, last, "after starting at %d", first)
	}
}

// A schema that is not ours, or newer than we know, is refused and left alone.
func TestOpenRefuses(t *testing.T) {
	ours := func(schema string) []string {
		o := Options{Schema: schema}
		require.NoError(t, o.Migrate(t.Context(), openPool(t, testServer)))
		return nil
	}
	table := func(name, columns string) func(string) []string {
		return func(schema string) []string {
			return []string{`CREATE SCHEMA "` + schema + `"`, `CREATE TABLE "` + schema + `".` + name + ` (` + columns + `)`}
		}
	}
	then := func(statement string) func(string) []string {
		return func(schema string) []string {
			ours(schema)
			return []string{strings.ReplaceAll(statement, "webhook_", `"`+schema+`".webhook_`)}
		}
	}
	for name, prepare := range map[string]func(schema string) []string{
		"a newer version":        then(`INSERT INTO webhook_migrations VALUES (99, 'future')`),
		"another first step":     then(`UPDATE webhook_migrations SET name = 'other' WHERE version = 1`),
		"a table missing":        then(`DROP TABLE webhook_lanes`),
		"a table of ours":        table("webhook_events", "id TEXT"),
		"a foreign ledger":       table("webhook_migrations", "id TEXT"),
		"a ledger of other type": table("webhook_migrations", "version TEXT, name TEXT"),
	} {
		t.Run(name, func(t *testing.T) {
			schema := newSchemaName(t, serverURL(t))
			require.NoError(t, execute(testServer, prepare(schema)...))
			before := contents(t, schema)
			_, err := Options{Schema: schema}.Open(t.Context(), testServer)
			if name != "a ledger of other type" { // empty, it is at version 0
				require.ErrorIs(t, err, ErrSchema)
			}
			require.Error(t, err)
			require.Error(t, Options{Schema: schema}.Migrate(t.Context(), openPool(t, testServer)))
			require.Equal(t, before, contents(t, schema))
		})
	}
	t.Run("a host's own tables", func(t *testing.T) {
		schema := newSchemaName(t, serverURL(t))
		require.NoError(t, execute(testServer, table("webhook_inbox", "id TEXT")(schema)...))
		require.NoError(t, Options{Schema: schema}.Migrate(t.Context(), openPool(t, testServer)))
	})
	t.Run("a read-only session", func(t *testing.T) {
		schema := newSchemaName(t, serverURL(t))
		ours(schema)
		_, err := Options{Schema: schema}.Open(t.Context(), with(testServer, "default_transaction_read_only=on"))
		require.ErrorIs(t, err, ErrReadOnly)
	})
	t.Run("another encoding", func(t *testing.T) {
		name := strings.TrimSuffix(newSchemaName(t, serverURL(t)), "_") + "_latin"
		require.NoError(t, execute(testServer, `CREATE DATABASE `+name+` ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`))
		t.Cleanup(func() { _ = execute(testServer, `DROP DATABASE `+name) })
		config, err := pgx.ParseConfig(testServer)
		require.NoError(t, err)
		_, err = Open(t.Context(), fmt.Sprintf("host=%s port=%d user=%s password='%s' dbname=%s sslmode=disable",
			config.Host, config.Port, config.User, config.Password, name))
		require.ErrorIs(t, err, ErrServer)
	})
	t.Run("no URL", func(t *testing.T) {
		_, err := Open(t.Context(), "postgres://user:hunter2@[bad/")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
	})
}

// contents lists the tables and columns of a schema, and its ledger.
func contents(t testing.TB, schema string) (list []string) {
	t.Helper()
	pool := openPool(t, testServer)
	rows, err := pool.Query(t.Context(), `SELECT table_name || '.' || column_name || ' ' || data_type
		FROM information_schema.columns WHERE table_schema = $1 ORDER BY 1`, schema)
	require.NoError(t, err)
	list, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	rows, err = pool.Query(t.Context(), `SELECT t::text FROM "`+schema+`".webhook_migrations t ORDER BY 1`)
	if err != nil {
		return list
	}
	ledger, _ := pgx.CollectRows(rows, pgx.RowTo[string])
	return append(list, ledger...)
}

// later are migrations after the present ones.
func later(t testing.TB, steps map[string]string) []migration {
	t.Helper()
	files := fstest.MapFS{}
	names, err := migrations(migrationFiles)
	require.NoError(t, err)
	for _, m := range names {
		files[fmt.Sprintf("migrations/%04d_%s.sql", m.version, m.name)] = &fstest.MapFile{Data: []byte(m.sql)}
	}
	for name, sql := range steps {
		files["migrations/"+name] = &fstest.MapFile{Data: []byte(sql)}
	}
	list, err := migrations(files)
	require.NoError(t, err)
	return list
}

const onlineIndex = `CREATE INDEX CONCURRENTLY webhook_deliveries_extra ON webhook_deliveries (budget)`

// An index of a later version is made while others write, also when several
// processes begin at once, and again if an earlier try was cut short.
func TestAnOnlineStep(t *testing.T) {
	pool := openPool(t, serverURL(t))
	o := Options{Schema: newSchemaName(t, testServer)}
	require.NoError(t, o.Migrate(t.Context(), pool))
	st, err := o.New(t.Context(), pool)
	require.NoError(t, err)
	createEndpoint(t, st)
	known := later(t, map[string]string{
		"0002_extra.online.sql": onlineIndex,
		"0003_column.sql":       `ALTER TABLE webhook_events ADD COLUMN note TEXT`,
	})
	valid := func() (ok bool) {
		err := pool.QueryRow(t.Context(), `SELECT i.indisvalid FROM pg_index i WHERE i.indexrelid = to_regclass($1)`,
			`"`+o.Schema+`".webhook_deliveries_extra`).Scan(&ok)
		require.NoError(t, err)
		return ok
	}

	// A transaction that is older keeps the index from being finished; what wants
	// to write goes on, and the try that is given up leaves an invalid index.
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	mustPublish(t, st.Tx(tx), "evt_1")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	require.Error(t, o.migrate(ctx, pool, known))
	mustPublish(t, st, "evt_2")
	require.NoError(t, tx.Commit(t.Context()))
	require.False(t, valid(), "the index that was not finished")

	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := o.migrate(t.Context(), pool, known); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.True(t, valid())
	in, err := o.examine(t.Context(), pool)
	require.NoError(t, err)
	version, err := in.version(t.Context(), pool, known)
	require.NoError(t, err)
	require.Equal(t, 3, version)

	// The version before now knows it is too old.
	_, err = o.New(t.Context(), pool)
	require.ErrorIs(t, err, ErrSchema)
}

// A step that fails leaves nothing of itself, and those before it.
func TestAStepThatFails(t *testing.T) {
	pool := openPool(t, serverURL(t))
	o := Options{Schema: newSchemaName(t, testServer)}
	known := later(t, map[string]string{
		"0002_good.sql": `ALTER TABLE webhook_events ADD COLUMN good TEXT`,
		"0003_bad.sql":  `ALTER TABLE webhook_events ADD COLUMN bad TEXT; SELECT 1/0`,
	})
	err := o.migrate(t.Context(), pool, known)
	require.ErrorContains(t, err, "step 3, bad")
	list := strings.Join(contents(t, o.Schema), "\n")
	require.Contains(t, list, "webhook_events.good")
	require.NotContains(t, list, "webhook_events.bad")
	known[2].sql = `ALTER TABLE webhook_events ADD COLUMN bad TEXT`
	require.NoError(t, o.migrate(t.Context(), pool, known))
	require.Contains(t, strings.Join(contents(t, o.Schema), "\n"), "webhook_events.bad")
}
