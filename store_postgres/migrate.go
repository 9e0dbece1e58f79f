package postgresstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration is one step of the schema. Steps are never changed once released.
//
// A step is one transaction, unless its file's name ends in .online.sql: that
// is a single CREATE INDEX CONCURRENTLY, which keeps nobody from writing
// meanwhile and cannot run in a transaction.
type migration struct {
	version int
	name    string
	sql     string
	online  bool
}

// tables are all that migrations make, sequences included.
var tables = []string{
	"webhook_attempts", "webhook_counter", "webhook_deliveries", "webhook_delivery_ids", "webhook_endpoints",
	"webhook_events", "webhook_idempotency", "webhook_lanes", "webhook_locks", "webhook_subscriptions",
}

// migrations returns the steps in order. Their files are named 0001_name.sql.
func migrations(files fs.FS) ([]migration, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var list []migration
	for i, file := range names {
		number, name, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".sql"), "_")
		if version, err := strconv.Atoi(number); err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %s is not number %d", file, i+1)
		}
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, err
		}
		name, online := strings.CutSuffix(name, ".online")
		list = append(list, migration{i + 1, name, string(text), online})
	}
	return list, nil
}

// Migrate makes the tables, or brings them up to date, in the schema that is the
// default. See [Options.Migrate].
func Migrate(ctx context.Context, pool *pgxpool.Pool) error { return Options{}.Migrate(ctx, pool) }

// Migrate makes the tables in o.Schema, which it creates if there is none, or
// brings them up to date. It needs the right to do so, which Open and New do
// not. Calling it again changes nothing, and any number of processes may do so at
// once: one does the work, the others wait for it.
//
// Tables that are not a beginning of what it knows are [ErrSchema], and left as
// they are. A step that fails is rolled back, and those before it stay.
func (o Options) Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if pool == nil {
		return fmt.Errorf("postgresstore: migrate: %w", errNil)
	}
	known, err := migrations(migrationFiles)
	if err == nil {
		err = o.migrate(ctx, pool, known)
	}
	if err != nil {
		return fmt.Errorf("postgresstore: migrate: %w", err)
	}
	return nil
}

func (o Options) migrate(ctx context.Context, pool *pgxpool.Pool, known []migration) error {
	in, err := o.examine(ctx, pool)
	if err != nil {
		return err
	}
	for {
		var next progress
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
			next, err = in.step(ctx, pool, tx, known)
			return err
		})
		switch {
		case err != nil:
			return classify(err)
		case next == done:
			return in.startAt(ctx, pool, o.FirstDeliveryID)
		case next == busy:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(lockPause):
			}
		}
	}
}

// lockPause is how long somebody else's migration is given before the next look.
const lockPause = 50 * time.Millisecond

// progress is what came of trying to do a step.
type progress int

const (
	busy  progress = iota // somebody else is at it
	moved                 // one step is done
	done                  // there is none left
)

// step does the next step. tx holds the lock that keeps others from migrating. It
// is tried for in a transaction that ends at once, and not waited for: an index
// cannot be made online while somebody waits with a transaction open.
func (in schema) step(ctx context.Context, pool *pgxpool.Pool, tx pgx.Tx, known []migration) (progress, error) {
	locked := false
	if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, in.lock()).Scan(&locked); err != nil || !locked {
		return busy, err
	}
	version, err := in.version(ctx, tx, known)
	if err != nil || version == len(known) {
		return done, err
	}
	m := known[version]
	if m.online {
		// In the simple protocol, it ends what the last statement still holds on
		// to, which would make the index wait for us.
		if _, err = tx.Exec(ctx, `SELECT 1`, pgx.QueryExecModeSimpleProtocol); err == nil {
			err = in.runOnline(ctx, pool, m)
		}
	} else {
		err = in.run(ctx, tx, m)
	}
	if err != nil {
		return done, fmt.Errorf("step %d, %s: %w", m.version, m.name, err)
	}
	_, err = tx.Exec(ctx, in.qualify(`INSERT INTO webhook_migrations (version, name) VALUES ($1, $2)`), m.version, m.name)
	return moved, err
}

// lock names the advisory lock of migrations in this schema.
func (in schema) lock() int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("webhook_migrations " + in.name))
	return int64(h.Sum64())
}

// run does a step in tx.
func (in schema) run(ctx context.Context, tx pgx.Tx, m migration) error {
	if m.version == 1 {
		if in.create {
			if _, err := tx.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS `+strings.TrimSuffix(in.prefix, ".")); err != nil {
				return err
			}
		}
		const make = `CREATE TABLE IF NOT EXISTS webhook_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL)`
		if _, err := tx.Exec(ctx, in.qualify(make)); err != nil {
			return err
		}
	}
	// What is created has no schema of its own in the file. LOCAL: to the end of
	// the transaction.
	if _, err := tx.Exec(ctx, `SET LOCAL search_path = `+strings.TrimSuffix(in.prefix, ".")+`, pg_temp`); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, m.sql)
	return err
}

// runOnline makes an index on a connection of its own. One that an earlier try
// left behind unfinished is dropped first.
func (in schema) runOnline(ctx context.Context, pool *pgxpool.Pool, m migration) error {
	words := strings.Fields(m.sql)
	at := slices.Index(words, "CONCURRENTLY")
	if at < 0 || at+1 >= len(words) {
		return errors.New("it is no CREATE INDEX CONCURRENTLY")
	}
	index := words[at+1]
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	const find = `SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`
	var valid bool
	switch err := conn.QueryRow(ctx, find, in.name, index).Scan(&valid); {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return err
	case valid:
		return nil
	default:
		if _, err := conn.Exec(ctx, `DROP INDEX CONCURRENTLY `+in.prefix+index); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, in.qualify(m.sql))
	return err
}

// version returns how many steps the schema has had. It changes nothing. A
// schema that is not a beginning of ours is ErrSchema.
func (in schema) version(ctx context.Context, db querier, known []migration) (int, error) {
	rows, err := db.Query(ctx, `SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relkind NOT IN ('i', 'I', 'c') AND c.relname = ANY($2::text[])`,
		in.name, append([]string{"webhook_migrations"}, tables...))
	if err != nil {
		return 0, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return 0, err
	}
	slices.Sort(found)
	n := len(found)
	found = slices.DeleteFunc(found, func(name string) bool { return name == "webhook_migrations" })
	if len(found) == n {
		if n > 0 {
			return 0, fmt.Errorf("%w: there is %s but no webhook_migrations", ErrSchema, found[0])
		}
		return 0, nil
	}
	rows, err = db.Query(ctx, in.qualify(`SELECT version, name FROM webhook_migrations ORDER BY version`))
	if err != nil {
		return 0, foreign(err)
	}
	applied, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m migration, err error) {
		return m, row.Scan(&m.version, &m.name)
	})
	if err != nil {
		return 0, foreign(err)
	}
	for i, m := range applied {
		if i >= len(known) {
			return 0, fmt.Errorf("%w: it is at version %d, and the newest known is %d", ErrSchema, m.version, len(known))
		}
		if m.version != known[i].version || m.name != known[i].name {
			return 0, fmt.Errorf("%w: migration %d is %q, not %q", ErrSchema, m.version, m.name, known[i].name)
		}
	}
	if len(applied) == len(known) && len(found) != len(tables) {
		return 0, fmt.Errorf("%w: of the %d tables there are %d", ErrSchema, len(tables), len(found))
	}
	return len(applied), nil
}

// foreign is what reading webhook_migrations failed with: where its columns are
// others, or of other types, it is not ours.
func foreign(err error) error {
	if c := code(err); c != "" && c[:2] != "42" {
		return err
	}
	return fmt.Errorf("%w: webhook_migrations: %w", ErrSchema, err)
}

// startAt makes delivery ids start at first, or later. No id is given out
// meanwhile: ALTER SEQUENCE takes the lock that nextval needs.
func (in schema) startAt(ctx context.Context, pool *pgxpool.Pool, first int64) error {
	var last int64
	if first <= 1 {
		return nil
	}
	read := in.qualify(`SELECT last_value FROM webhook_delivery_ids`)
	if err := pool.QueryRow(ctx, read).Scan(&last); err != nil || last >= first-1 {
		return classify(err)
	}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, in.qualify(`ALTER SEQUENCE webhook_delivery_ids INCREMENT BY 1`)); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, read).Scan(&last); err != nil || last >= first-1 {
			return err
		}
		_, err := tx.Exec(ctx, in.qualify(`SELECT setval('webhook_delivery_ids', $1)`), first-1)
		return err
	})
	return classify(err)
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}
