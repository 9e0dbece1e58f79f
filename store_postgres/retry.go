package postgresstore

import (
	"context"
	"time"

	"github.com/elido-app/webhook/store"
)

const (
	// updateRearmed re-queues deliveries that have ended, oldest lock first. Those
	// with an ordering key are blocked until settled.
	updateRearmed = `WITH held AS MATERIALIZED (
			SELECT d.id FROM webhook_deliveries d WHERE d.id = ANY($1::bigint[]) AND d.state >= $4 AND d.state <= 5
			ORDER BY d.id FOR UPDATE
		)
		UPDATE webhook_deliveries d SET state = CASE WHEN d.turn IS NULL THEN 0 ELSE 2 END,
			due_at = $2, budget = $3, attempts = 0, interruptions = 0, completed_at = NULL
		WHERE d.id = ANY(ARRAY(SELECT id FROM held)) AND d.state >= $4
		RETURNING d.id, d.endpoint_id, d.ordering_key`

	selectFailed = `SELECT id FROM webhook_deliveries
		WHERE endpoint_id = $1 AND state = 5 AND completed_at >= $2 AND completed_at <= $3
		ORDER BY completed_at, id LIMIT $4`
)

// Retry implements store.Store.
func (s *Store) Retry(ctx context.Context, p store.RetryParams) (d store.Delivery, err error) {
	err = s.write(ctx, "retry", func(tx *transaction) error {
		d, err = tx.delivery(p.WorkspaceID, p.DeliveryID)
		if err != nil {
			return err
		}
		if d.Status == store.StatusPending {
			return store.ErrPending
		}
		n, err := tx.rearm([]int64{p.DeliveryID}, p.Now, p.Budget, stateDelivered)
		if err != nil {
			return err
		}
		if d, err = tx.delivery(p.WorkspaceID, p.DeliveryID); err != nil {
			return err
		}
		if n == 0 {
			return store.ErrPending // somebody else was quicker
		}
		return nil
	})
	if err != nil {
		return store.Delivery{}, err
	}
	s.notify()
	return d, nil
}

// rearm re-queues those deliveries that have ended, in the given state or above,
// and returns how many they were.
func (tx *transaction) rearm(ids []int64, now time.Time, budget int, state int) (n int, err error) {
	var (
		id, endpointID int64
		key            []byte
		ready          = firsts{}
		keys           = map[endpointKey]struct{}{}
	)
	tx.queue(lockTurns, ids)
	tx.queue(updateRearmed, ids, now.UnixMilli(), int64(budget), state).Query(each(func() error {
		n++
		if key == nil {
			ready.add(endpointID, now.UnixMilli())
		} else {
			keys[endpointKey{endpointID, string(key)}] = struct{}{}
		}
		return nil
	}, &id, &endpointID, &key))
	if err := tx.send(); err != nil {
		return 0, err
	}
	tx.announce(ready)
	s, err := tx.settle(keys)
	if err != nil {
		return 0, err
	}
	tx.refreshLanes(s.gaveWay())
	return n, tx.send()
}

// Recover implements store.Store.
func (s *Store) Recover(ctx context.Context, p store.RecoverParams) (n int, err error) {
	err = s.write(ctx, "recover", func(tx *transaction) error {
		n = 0
		if _, err := tx.oneEndpoint(selectEndpoint, p.WorkspaceID, p.EndpointID); err != nil {
			return err
		}
		var (
			id  int64
			ids []int64
		)
		tx.queue(selectFailed, p.EndpointID, p.Since.UnixMilli(), p.Now.UnixMilli(), max(p.Limit, 0)).
			Query(each(func() error {
				ids = append(ids, id)
				return nil
			}, &id))
		if err := tx.send(); err != nil || len(ids) == 0 {
			return err
		}
		n, err = tx.rearm(ids, p.Now, p.Budget, stateFailed)
		return err
	})
	if err != nil {
		return 0, err
	}
	if n > 0 {
		s.notify()
	}
	return n, nil
}
