//go:build cgo

package sqlitestore

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/elido-app/webhook/store"
)

var (
	updateRetried = &query{sql: `UPDATE webhook_deliveries SET state = ?, due_at = ?, budget = ?, attempts = 0,
		interruptions = 0, completed_at = NULL WHERE id = ?`}
	selectFailed = &query{sql: `SELECT id, ordering_key FROM webhook_deliveries
		WHERE endpoint_id = ? AND state = 4 AND completed_at >= ? AND completed_at <= ?
		ORDER BY completed_at, id LIMIT ?`}
)

// Retry implements store.Store.
func (s *Store) Retry(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
	var d store.Delivery
	err := s.write(ctx, "retry", 1, func(tx *transaction) (err error) {
		d, err = tx.delivery(p.WorkspaceID, p.DeliveryID)
		if err != nil {
			return err
		}
		if d.Status == store.StatusPending {
			return store.ErrPending
		}
		if err := tx.rearm(d.EndpointID, d.ID, orNull(d.OrderingKey), p.Now, p.Budget); err != nil {
			return err
		}
		d, err = tx.delivery(p.WorkspaceID, p.DeliveryID)
		return err
	})
	if err != nil {
		return store.Delivery{}, err
	}
	return d, nil
}

// delivery returns one delivery, or ErrNotFound.
func (tx *transaction) delivery(workspaceID, id int64) (store.Delivery, error) {
	var (
		d     store.Delivery
		found bool
	)
	err := tx.run(selectDelivery, func(r row) { d, found = readDelivery(r), true }, id, workspaceID)
	if err == nil && !found {
		err = store.ErrNotFound
	}
	return d, err
}

// rearm re-queues a delivery that has ended.
func (tx *transaction) rearm(endpointID, id int64, key driver.Value, now time.Time, budget int) error {
	state := stateReady
	if key != nil {
		state = stateBlocked // until settled
	}
	if err := tx.run(updateRetried, nil, int64(state), now.UnixMilli(), int64(budget), id); err != nil {
		return err
	}
	if key == nil {
		tx.ready(endpointID)
		return nil
	}
	_, err := tx.settle(endpointID, key)
	return err
}

// Recover implements store.Store.
func (s *Store) Recover(ctx context.Context, p store.RecoverParams) (int, error) {
	type failed struct {
		id  int64
		key driver.Value
	}
	var list []failed
	err := s.write(ctx, "recover", max(p.Limit, 1), func(tx *transaction) error {
		list = nil
		e, err := tx.endpoint(p.EndpointID)
		if err != nil {
			return err
		}
		if e == nil || e.workspaceID != p.WorkspaceID {
			return store.ErrNotFound
		}
		err = tx.run(selectFailed, func(r row) { list = append(list, failed{integer(r[0]), r[1]}) },
			p.EndpointID, p.Since.UnixMilli(), p.Now.UnixMilli(), int64(max(p.Limit, 0)))
		if err != nil {
			return err
		}
		for _, f := range list {
			if err := tx.rearm(p.EndpointID, f.id, f.key, p.Now, p.Budget); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return len(list), nil
}
