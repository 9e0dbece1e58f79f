package postgresstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/elido-app/webhook/store"
)

const (
	// patience is how long a call goes on trying what failed for a reason that
	// may pass, if its context does not end before.
	patience = 5 * time.Second
	// maxPause is the longest pause between two tries.
	maxPause = 250 * time.Millisecond
	// grace is how long a call whose context ended waits for the answer to a
	// commit, before it gives up without knowing.
	grace = 50 * time.Millisecond
	// cleanup is how long a rollback may take.
	cleanup = 2 * time.Second
)

// connection is what statements are sent through: a connection of the pool, or a
// transaction of the host's.
type connection interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// transaction collects statements, so that those which do not need each other's
// answers share one round trip. Each statement sees all that was committed when
// it began, which is what taking a lock first and looking then relies on.
type transaction struct {
	store *Store
	ctx   context.Context //nolint:containedctx // it lives as long as one call
	conn  connection
	batch *pgx.Batch
	// hosted: it is the host's, which may keep it open for long, and may see the
	// database as it was when it began.
	hosted  bool
	sent    bool
	private bool // it changed endpoints, so what it knows of them is its own
}

// queue adds a statement to the next round trip. Its rows are read when that is
// made: give the result a Query callback, which may be called again, in another
// transaction, if this one has to be repeated.
func (tx *transaction) queue(statement string, args ...any) *pgx.QueuedQuery {
	return tx.batch.Queue(tx.store.schema.qualify(statement), args...)
}

// send makes a round trip with what was queued.
func (tx *transaction) send() error {
	if tx.batch.Len() == 0 {
		return nil
	}
	batch := tx.batch
	tx.batch = &pgx.Batch{}
	tx.sent = true
	return classify(tx.conn.SendBatch(tx.ctx, batch).Close())
}

// each returns a callback that calls f for every row, after its columns were
// read into the given places.
func each(f func() error, into ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				return err
			}
			if err := f(); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// planByIndex keeps the planner to the indexes that the statements are made for, in
// their order. A plan is made once and kept; one made while the tables were small,
// or before they were analyzed, reads whole tables when they have grown.
const planByIndex = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
	set_config('enable_sort', 'off', true)`

// write runs work in a transaction and commits it. It runs it again if the
// transaction lost against another one or its connection, before the commit.
//
// Errors of work that are not the database's are refusals: they are returned as
// they are, and nothing is stored.
func (s *Store) write(ctx context.Context, what string, work func(*transaction) error) error {
	return s.retry(ctx, what, func() error {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return classify(err)
		}
		defer conn.Release()
		tx := &transaction{store: s, ctx: ctx, conn: conn, batch: &pgx.Batch{}}
		tx.batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
		tx.batch.Queue(planByIndex)
		err = protect(func() error { return work(tx) })
		if err == nil {
			err = tx.send()
		}
		if err != nil {
			tx.rollback(conn)
			return err
		}
		return commit(ctx, conn)
	})
}

// read runs work on a connection outside of any transaction. All it reads in one
// statement is as of one moment.
func (s *Store) read(ctx context.Context, what string, work func(*transaction) error) error {
	return s.retry(ctx, what, func() error {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return classify(err)
		}
		defer conn.Release()
		tx := &transaction{store: s, ctx: ctx, conn: conn, batch: &pgx.Batch{}}
		if err := work(tx); err != nil {
			return err
		}
		return tx.send()
	})
}

// retry calls try until it succeeds, or fails for a reason that will not pass.
func (s *Store) retry(ctx context.Context, what string, try func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.checkOpen(); err != nil {
		return err
	}
	pause, begun := 2*time.Millisecond, time.Now()
	var last error // which says more than that ctx ended meanwhile
	for {
		err := try()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrOutcomeUnknown):
			return describe(what, err)
		case s.closed.Load() && !isRefusal(err):
			return store.ErrClosed
		case ctx.Err() != nil && !isRefusal(err):
			return ended(ctx, what, last)
		case !passing(err) || time.Since(begun) > patience:
			return describe(what, err)
		}
		// A little more or less, so that those which met do not meet again.
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return ended(ctx, what, err)
		}
		last = err
		pause = min(2*pause, maxPause)
	}
}

// ended returns the error of a call whose context ended while it was trying again.
func ended(ctx context.Context, what string, last error) error {
	if last == nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w; before that: %w", ctx.Err(), describe(what, last))
}

// isRefusal reports whether an error is a call's own, and not the database's.
func isRefusal(err error) bool {
	_, own := errors.AsType[*fault](err)
	return !own
}

// protect turns a panic into an error.
func protect(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("postgresstore: panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// rollback ends a transaction that failed. A connection that cannot even do that
// is closed by the pool, which ends the transaction as well.
func (tx *transaction) rollback(conn *pgxpool.Conn) {
	if !tx.sent || conn.Conn().IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tx.ctx), cleanup)
	defer cancel()
	_, _ = conn.Exec(ctx, "ROLLBACK")
}

var errClosedConn = errors.New("the connection was closed")

// commit ends a transaction. Once it was sent it goes on, whatever becomes of
// ctx, and only the answer tells what came of it.
func commit(ctx context.Context, conn *pgxpool.Conn) error {
	if err := ctx.Err(); err != nil {
		_, _ = conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
		return err
	}
	if conn.Conn().IsClosed() {
		return &fault{nil, errClosedConn}
	}
	lasting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(grace, func() { cancel(ctx.Err()) })
	})()
	tag, err := conn.Exec(lasting, "COMMIT")
	if err == nil {
		if tag.String() != "COMMIT" {
			return &fault{nil, errors.New("the server rolled the transaction back")}
		}
		return nil
	}
	// An ERROR in answer to COMMIT is a transaction rolled back. What ends the
	// connection may have come after the commit. That it is safe to retry is not to
	// be believed: pgx also says so of a connection that broke during this call.
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.SeverityUnlocalized == "ERROR" {
		return classify(err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), store.ErrOutcomeUnknown)
	}
	return &fault{store.ErrOutcomeUnknown, err}
}
