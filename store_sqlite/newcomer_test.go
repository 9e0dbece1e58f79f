package sqlitestore_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

func TestOpenTakesARelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("sub", 0o700))
	for _, path := range []string{"webhooks.db", "./other.db", "sub/w.db", "a file with spaces & percent%20.db"} {
		st, err := sqlitestore.Open(t.Context(), path)
		require.NoError(t, err)
		_, err = st.Endpoints(t.Context(), store.EndpointFilter{WorkspaceID: 1})
		require.NoError(t, err)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Positive(t, info.Size(), "the tables are in the file that was named")
		require.NoError(t, st.Close())
	}
}

func TestOpenWithAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := sqlitestore.Open(ctx, filepath.Join(t.TempDir(), "w.db"))
	require.ErrorIs(t, err, ctx.Err())
}

func TestNewRefusesADatabaseThatCannotBeWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.db")
	st, err := sqlitestore.Open(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, st.Close())
	keep, err := sql.Open("sqlite3", "file:"+path) // somebody has it open, so that its -wal exists
	require.NoError(t, err)
	defer keep.Close()
	require.NoError(t, keep.Ping())
	for _, option := range []string{"mode=ro", "_query_only=1"} {
		db, err := sql.Open("sqlite3", "file:"+path+"?_journal_mode=WAL&"+option)
		require.NoError(t, err)
		_, err = sqlitestore.New(t.Context(), db)
		require.ErrorIs(t, err, sqlitestore.ErrReadOnly, option)
		require.NoError(t, db.Close())
	}
}

func TestNilIsAnErrorNotAPanic(t *testing.T) {
	_, err := sqlitestore.New(t.Context(), nil)
	require.Error(t, err)
	st, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "w.db"))
	require.NoError(t, err)
	defer st.Close()
	_, err = st.Tx(nil).Publish(t.Context(), store.PublishParams{})
	require.Error(t, err)
}

func TestTransactionOfAnotherDatabaseIsToldSo(t *testing.T) {
	dir := t.TempDir()
	st, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "w.db"))
	require.NoError(t, err)
	defer st.Close()
	other, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "other.db"))
	require.NoError(t, err)
	defer other.Close()
	tx, err := other.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = st.Tx(tx).Publish(t.Context(), store.PublishParams{Events: []store.NewEvent{{ID: "evt_1", WorkspaceID: 1}}})
	require.ErrorIs(t, err, sqlitestore.ErrSchema)
}
