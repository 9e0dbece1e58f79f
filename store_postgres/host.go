package postgresstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/elido-app/webhook/store"
)

// Tx binds publishing to a transaction of the host's on the same database: what
// is published can be seen once tx commits, and is gone if it rolls back.
//
// An idempotency key and an ordering key are taken until tx ends: others that
// publish with the same wait for that. Nothing else does, however long tx stays
// open; but two transactions that take the same keys in different order may
// deadlock, as with any rows. A call of the same goroutine outside of tx with a
// key that tx has taken waits for itself.
//
// Publish runs in a savepoint, so that an error leaves tx as it was; only one that
// ended the connection does not. It is not tried again: at the isolation levels
// repeatable read and serializable the host has to be ready for that, as always.
// It gives no leases, as what they stand for is not committed: Handoff is left
// out.
func (s *Store) Tx(tx pgx.Tx) store.Publisher { return &hostPublisher{s, tx} }

type hostPublisher struct {
	s  *Store
	tx pgx.Tx
}

var _ store.Publisher = (*hostPublisher)(nil)

// Publish implements store.Publisher.
func (h *hostPublisher) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	if err := ctx.Err(); err != nil {
		return store.PublishResult{}, err
	}
	if err := h.s.checkOpen(); err != nil {
		return store.PublishResult{}, err
	}
	if h.tx == nil {
		return store.PublishResult{}, fmt.Errorf("postgresstore: publish: %w", errNil)
	}
	if len(p.Events) == 0 {
		return store.PublishResult{}, nil
	}
	p.Handoff = nil
	savepoint, err := h.tx.Begin(ctx)
	if err != nil {
		return store.PublishResult{}, describe("publish", classify(err))
	}
	tx := &transaction{store: h.s, ctx: ctx, conn: savepoint, batch: &pgx.Batch{}, hosted: true}
	var result store.PublishResult
	err = protect(func() (err error) {
		result, err = tx.publish(p)
		return err
	})
	if err == nil {
		err = tx.send()
	}
	if err == nil {
		err = classify(savepoint.Commit(ctx))
	} else if undone := savepoint.Rollback(context.WithoutCancel(ctx)); undone != nil && !errors.Is(undone, pgx.ErrTxClosed) {
		err = errors.Join(err, classify(undone))
	}
	if err != nil {
		return store.PublishResult{}, describe("publish", err)
	}
	return result, nil
}
