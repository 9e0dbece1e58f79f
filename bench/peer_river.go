package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"

	_ "github.com/mattn/go-sqlite3"
)

// River (github.com/riverqueue/river): one job for each delivery, its worker
// signs and POSTs. The job's row, which it keeps, is the record. See README.md
// for the settings and why they are its best.
type riverSystem[Tx any] struct {
	client  *river.Client[Tx]
	poster  *poster
	pending func(ctx context.Context) (bool, error)
	cpu     func() time.Duration
	end     func() error
}

// riverArgs has the body as a string: as JSON in JSON, Postgres would print it
// anew, and the bytes that arrive would not be those published.
type riverArgs struct {
	Endpoint int    `json:"e"`
	Body     string `json:"b"`
}

func (riverArgs) Kind() string { return "deliver" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	poster *poster
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	return w.poster.post(job.Args.Endpoint, []byte(job.Args.Body), strconv.FormatInt(job.ID, 10))
}

// riverWorkers is how many jobs run at once on Postgres. A fetch takes no more
// than there are free workers, and there is a pause between fetches, so River is
// fastest with more workers than requests make sense.
const riverWorkers = 500

// riverWorkersSQLite is the same on SQLite, where each job costs so much that
// more only cost memory.
const riverWorkersSQLite = 100

func openRiver[Tx any](ctx context.Context, s setup, driver riverdriver.Driver[Tx], schema string, atOnce int) (*riverSystem[Tx], error) {
	logger := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: logger, Schema: schema})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	r := &riverSystem[Tx]{poster: newPoster(s.URLs, atOnce)}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{poster: r.poster})
	cooldown, poll := 2*time.Millisecond, 20*time.Millisecond // defaults: 100 ms and 1 s
	if s.Soonest {
		cooldown, poll = time.Millisecond, 5*time.Millisecond
	}
	r.client, err = river.NewClient(driver, &river.Config{
		Schema:            schema,
		Logger:            logger,
		Workers:           workers,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: atOnce}},
		FetchCooldown:     cooldown,
		FetchPollInterval: poll,
		JobTimeout:        -1, // no timer for each job
		MaxAttempts:       3,
	})
	if err != nil {
		return nil, err
	}
	return r, r.client.Start(ctx)
}

func openRiverSQLite(ctx context.Context, s setup) (system, error) {
	// The same durability as ours. One connection, as the driver's documentation
	// says: with more, its own parts lock each other out.
	path := filepath.Join(s.Dir, "river.db")
	db, err := sql.Open("sqlite3", "file:"+path+"?_journal_mode=WAL&_synchronous=FULL&_busy_timeout=10000&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	look, err := sql.Open("sqlite3", "file:"+path+"?_busy_timeout=10000&_query_only=true") // not to disturb it by looking
	if err != nil {
		return nil, err
	}
	r, err := openRiver(ctx, s, riverdriver.Driver[*sql.Tx](riversqlite.New(db)), "", riverWorkersSQLite)
	if err != nil {
		return nil, err
	}
	r.pending = func(ctx context.Context) (pending bool, err error) {
		err = look.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM river_job WHERE state <> 'completed')`).Scan(&pending)
		return pending, err
	}
	r.cpu = func() time.Duration { return 0 }
	r.end = func() error {
		_ = look.Close()
		return db.Close()
	}
	return r, nil
}

func openRiverPostgres(ctx context.Context, s setup) (system, error) {
	config, err := pgxpool.ParseConfig(s.Postgres)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		return nil, skipped("no PostgreSQL at -postgres: %s", first)
	}
	schema := pgx.Identifier{fmt.Sprintf("webhook_bench_%d_%d", os.Getpid(), time.Now().UnixNano())}
	if _, err := pool.Exec(ctx, "CREATE SCHEMA "+schema.Sanitize()); err != nil {
		return nil, err
	}
	drop := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := pool.Exec(ctx, "DROP SCHEMA "+schema.Sanitize()+" CASCADE")
		pool.Close()
		return err
	}
	r, err := openRiver(ctx, s, riverdriver.Driver[pgx.Tx](riverpgxv5.New(pool)), schema[0], riverWorkers)
	if err != nil {
		_ = drop()
		return nil, err
	}
	query := `SELECT EXISTS (SELECT 1 FROM ` + schema.Sanitize() + `.river_job WHERE state <> 'completed')`
	r.pending = func(ctx context.Context) (pending bool, err error) {
		err = pool.QueryRow(ctx, query).Scan(&pending)
		return pending, err
	}
	r.cpu = func() time.Duration { return cpuOf("postgres") }
	r.end = drop
	return r, nil
}

func (r *riverSystem[Tx]) publish(ctx context.Context, batch []json.RawMessage) error {
	params := make([]river.InsertManyParams, 0, len(batch)*len(r.poster.urls))
	for _, data := range batch {
		body, err := envelope(data)
		if err != nil {
			return err
		}
		for e := range r.poster.urls {
			params = append(params, river.InsertManyParams{Args: riverArgs{e, string(body)}})
		}
	}
	_, err := r.client.InsertManyFast(ctx, params)
	return err
}

// recorded relies on nothing being published meanwhile.
func (r *riverSystem[Tx]) recorded(ctx context.Context, _ int) (time.Time, error) {
	return pollDone(ctx, 2*time.Millisecond, func() (bool, error) {
		pending, err := r.pending(ctx)
		return !pending, err
	})
}

func (r *riverSystem[Tx]) databaseCPU() time.Duration { return r.cpu() }

func (r *riverSystem[Tx]) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := r.client.StopAndCancel(ctx)
	r.poster.close()
	if e := r.end(); err == nil {
		err = e
	}
	return err
}
