package verify_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/verify"
)

func openSQLite(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(t.TempDir(), "receiver.db")+
		"?_journal_mode=WAL&_busy_timeout=10000&_txlock=immediate&_synchronous=OFF")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestNewSQLRefuses(t *testing.T) {
	db := openSQLite(t)
	_, err := verify.NewSQL(nil, verify.Question, "")
	require.ErrorContains(t, err, "no database")
	for _, style := range []verify.Placeholder{0, ':', '@'} {
		_, err := verify.NewSQL(db, style, "")
		require.ErrorContains(t, err, "placeholder")
	}
	for _, table := range []string{
		"1st", "a b", "a;drop table users", "a.b", `a"b`, "a-b", "é", "@", "?", strings.Repeat("a", 56), "a\n",
	} {
		_, err := verify.NewSQL(db, verify.Question, table)
		require.ErrorContains(t, err, "table name", table)
		require.NotContains(t, err.Error(), table)
	}
}

func TestSQLSchema(t *testing.T) {
	db := openSQLite(t)
	seen, err := verify.NewSQL(db, verify.Dollar, "hooks_seen")
	require.NoError(t, err)
	require.NoError(t, seen.Create(t.Context()))
	require.NoError(t, seen.Create(t.Context()), "it may be there")
	require.Len(t, seen.Schema(), 2)
	var names string
	require.NoError(t, db.QueryRow(`SELECT group_concat(name, ' ') FROM (SELECT name FROM sqlite_master
		WHERE name NOT LIKE 'sqlite_%' ORDER BY name)`).Scan(&names))
	require.Equal(t, "hooks_seen hooks_seen_expires", names)

	missing, err := verify.NewSQL(db, verify.Question, "not_made")
	require.NoError(t, err)
	_, err = missing.Hold(t.Context(), "k", "a", time.Minute)
	require.ErrorContains(t, err, "verify: ")
	require.Error(t, missing.Set(t.Context(), "k", "a", time.Minute))
	require.Error(t, missing.Free(t.Context(), "k", "a"))
	_, err = missing.Prune(t.Context())
	require.Error(t, err)
}

func TestSQLPrune(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openSQLite(t)
		seen, err := verify.NewSQL(db, verify.Question, "")
		require.NoError(t, err)
		require.NoError(t, seen.Create(t.Context()))
		tx, err := db.Begin()
		require.NoError(t, err)
		for i := range 2500 {
			require.NoError(t, seen.In(tx).Set(t.Context(), stamp(int64(i)), "x", time.Minute))
		}
		require.NoError(t, seen.In(tx).Set(t.Context(), "young", "x", time.Hour))
		require.NoError(t, tx.Commit())
		n, err := seen.Prune(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		time.Sleep(time.Minute)
		n, err = seen.Prune(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2500, n)
		holder, err := seen.Hold(t.Context(), "young", "y", time.Hour)
		require.NoError(t, err)
		require.Equal(t, "x", holder)
	})
}

// The receiver's own transaction: the work and the memory of it are there
// together or not at all.
func TestOnceFirstInATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openSQLite(t)
		seen, err := verify.NewSQL(db, verify.Question, "")
		require.NoError(t, err)
		require.NoError(t, seen.Create(t.Context()))
		_, err = db.Exec(`CREATE TABLE links (id INTEGER)`)
		require.NoError(t, err)
		rows := func() (n int) {
			require.NoError(t, db.QueryRow(`SELECT count(*) FROM links`).Scan(&n))
			return n
		}
		var fail error
		v := newVerifier(t, secret)
		handle := func(ctx context.Context, ev verify.Event) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			first, err := verify.Once{Seen: seen.In(tx)}.First(ctx, ev)
			if err != nil || !first {
				return err
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO links VALUES (1)`); err != nil {
				return err
			}
			if fail != nil {
				return fail
			}
			return tx.Commit()
		}
		send := func(h map[string][]string) error {
			ev, err := v.Event(h, []byte(body))
			require.NoError(t, err)
			return handle(t.Context(), ev)
		}
		fail = errors.New("down")
		require.ErrorIs(t, send(signV1(secret, stamp(0), body)), fail)
		require.Zero(t, rows())
		fail = nil
		sent := signV1(secret, stamp(0), body)
		require.NoError(t, send(sent), "rolled back, so it was never seen")
		require.Equal(t, 1, rows())
		require.NoError(t, send(signV1(secret, stamp(1), body)))
		require.Equal(t, 1, rows())
		require.ErrorIs(t, send(with(sent, "X-Webhook-Delivery", "666")), verify.ErrReplayed)
		require.Equal(t, 1, rows())

		// 50 at once: one of them does the work.
		errs := make(chan error, 50)
		for i := range cap(errs) {
			h := with(signV1(secret, stamp(int64(i+2)), body), "X-Webhook-Delivery", "55121")
			go func() { errs <- send(h) }()
		}
		for range cap(errs) {
			require.NoError(t, <-errs)
		}
		require.Equal(t, 2, rows())
		time.Sleep(14 * 24 * time.Hour)
		require.NoError(t, send(signV1(secret, stamp(0), body)))
		require.Equal(t, 3, rows(), "forgotten after 14 days")
	})
}
