package postgresstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// oldestServer is the first version with all that the statements use.
const oldestServer = 130000

// Open opens the database that a connection string or URL names, as
// pgxpool.ParseConfig reads it, so that it may also say how many connections
// there are, for example. [Migrate] must have made the tables.
//
// A database that cannot be used is refused with an error that wraps one of this
// package's, and is left as it is. ctx bounds the opening alone.
func (o Options) Open(ctx context.Context, url string) (*Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("postgresstore: open: %w", err) // pgx leaves the password out
	}
	if o.TransactionPooling && config.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		config.ConnConfig.StatementCacheCapacity = 0
		config.ConnConfig.DescriptionCacheCapacity = 0
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("postgresstore: open: %w", err)
	}
	st, err := o.open(ctx, pool)
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("postgresstore: open: %w", err)
	}
	st.owned = true
	return st, nil
}

// New keeps a store in a database the host opened, which stays the host's to
// close, after the store. [Migrate] must have made the tables.
//
// A database that cannot be used is refused with an error that wraps one of this
// package's, and is left as it is. ctx bounds the opening alone.
func (o Options) New(ctx context.Context, pool *pgxpool.Pool) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("postgresstore: %w", errNil)
	}
	st, err := o.open(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("postgresstore: %w", err)
	}
	return st, nil
}

func (o Options) open(ctx context.Context, pool *pgxpool.Pool) (*Store, error) {
	known, err := migrations(migrationFiles)
	if err != nil {
		return nil, err
	}
	in, err := o.examine(ctx, pool)
	if err != nil {
		return nil, err
	}
	version, err := in.version(ctx, pool, known)
	if err != nil {
		return nil, err
	}
	if version < len(known) {
		return nil, fmt.Errorf("%w; schema %q is at version %d of %d", ErrMigrate, in.name, version, len(known))
	}
	st := &Store{pool: pool, pooled: o.TransactionPooling, silent: o.NoNotify, schema: in}
	st.publishing = make(chan struct{}, max(1, pool.Config().MaxConns-2))
	st.life, st.end = context.WithCancel(context.Background())
	return st, nil
}

// examine makes sure that the server can be used, and finds the schema.
func (o Options) examine(ctx context.Context, pool *pgxpool.Pool) (schema, error) {
	var (
		version            int
		encoding, readOnly string
		standby            bool
		current            *string
	)
	err := pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::integer, current_setting('server_encoding'),
		pg_is_in_recovery(), current_setting('transaction_read_only'), current_schema()::text`).
		Scan(&version, &encoding, &standby, &readOnly, &current)
	if err != nil {
		return schema{}, classify(err)
	}
	if version < oldestServer || encoding != "UTF8" {
		return schema{}, fmt.Errorf("%w; this is version %d with encoding %s", ErrServer, version/10000, encoding)
	}
	if standby || readOnly == "on" {
		return schema{}, ErrReadOnly
	}
	name := o.Schema
	if name == "" && current != nil {
		name = *current
	}
	if name == "" {
		return schema{}, fmt.Errorf("%w: no schema of the search_path exists, and Options.Schema names none", ErrSchema)
	}
	// It also stands in string literals.
	if strings.ContainsAny(name, "'\\\x00") || len(name) > 63 {
		return schema{}, fmt.Errorf("%w: the schema's name must be at most 63 bytes without quotes and backslashes", ErrSchema)
	}
	in := newSchema(name)
	in.create = o.Schema != ""
	return in, nil
}
