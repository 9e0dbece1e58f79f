package postgresstore

import (
	"context"
	"time"

	"github.com/elido-app/webhook/store"
)

// deliveryColumns are what deliveryRow is read from.
const deliveryColumns = `d.id, e.workspace_id, d.endpoint_id, e.id, e.type, d.ordering_key, d.state,
	d.attempts, d.budget, d.total_attempts, d.interruptions, d.last_status, d.last_latency, d.last_error,
	d.created_at, d.completed_at, d.due_at, e.payload, d.message`

const (
	// selectDelivery finds a delivery of a workspace whose endpoint is not deleted.
	selectDelivery = `SELECT ` + deliveryColumns + `
		FROM webhook_deliveries d JOIN webhook_events e ON e.seq = d.event_seq
		WHERE d.id = $1 AND e.workspace_id = $2
		AND EXISTS (SELECT 1 FROM webhook_endpoints p WHERE p.id = d.endpoint_id AND p.deleted_at IS NULL)`

	// selectAttempts gives a row without a number where a delivery has no attempts,
	// to tell it from one that does not exist.
	selectAttempts = `SELECT a.number, a.started_at, a.latency, a.status, a.error, a.headers, a.response, a.response_cut
		FROM webhook_deliveries d
		JOIN webhook_endpoints p ON p.id = d.endpoint_id AND p.workspace_id = $1 AND p.deleted_at IS NULL
		LEFT JOIN webhook_attempts a ON a.delivery_id = d.id
		WHERE d.id = $2 ORDER BY a.number`
)

// deliveryRow is what deliveryColumns are read into.
type deliveryRow struct {
	d                         store.Delivery
	state                     int16
	key                       []byte
	latency, createdAt, dueAt int64
	completedAt               *int64
}

func (r *deliveryRow) places() []any {
	d := &r.d
	return []any{
		&d.ID, &d.WorkspaceID, &d.EndpointID, &d.EventID, &d.EventType, &r.key, &r.state,
		&d.Attempts, &d.Budget, &d.TotalAttempts, &d.Interruptions, &d.LastStatus, &r.latency, &d.LastError,
		&r.createdAt, &r.completedAt, &r.dueAt, &d.Payload, &d.Message,
	}
}

func (r *deliveryRow) delivery() store.Delivery {
	d := r.d
	d.OrderingKey, d.Status = string(r.key), status(r.state)
	d.LastLatency = time.Duration(r.latency) * time.Microsecond
	d.CreatedAt, d.CompletedAt = at(r.createdAt), instant(r.completedAt)
	if d.Status == store.StatusPending {
		d.NextAttemptAt = at(r.dueAt)
	}
	return d
}

func status(state int16) store.Status {
	switch state {
	case stateDelivered:
		return store.StatusDelivered
	case stateFailed:
		return store.StatusFailed
	}
	return store.StatusPending
}

// deliveries runs a statement that gives deliveries.
func (tx *transaction) deliveries(statement string, args ...any) (list []store.Delivery, err error) {
	var r deliveryRow
	tx.queue(statement, args...).Query(each(func() error {
		list = append(list, r.delivery())
		return nil
	}, r.places()...))
	err = tx.send()
	return list, err
}

// delivery returns one delivery, or ErrNotFound.
func (tx *transaction) delivery(workspaceID, id int64) (store.Delivery, error) {
	list, err := tx.deliveries(selectDelivery, id, workspaceID)
	if err != nil {
		return store.Delivery{}, err
	}
	if len(list) == 0 {
		return store.Delivery{}, store.ErrNotFound
	}
	return list[0], nil
}

// Delivery implements store.Store.
func (s *Store) Delivery(ctx context.Context, workspaceID, id int64) (d store.Delivery, err error) {
	err = s.read(ctx, "delivery", func(tx *transaction) (err error) {
		d, err = tx.delivery(workspaceID, id)
		return err
	})
	if err != nil {
		return store.Delivery{}, err
	}
	return d, nil
}

// Attempts implements store.Store.
func (s *Store) Attempts(ctx context.Context, workspaceID, deliveryID int64) (list []store.Attempt, err error) {
	err = s.read(ctx, "attempts", func(tx *transaction) error {
		found := false
		list = []store.Attempt{}
		var (
			a                          store.Attempt
			number, startedAt, latency *int64
			code                       *int
			headers                    []byte
			cut                        *bool
		)
		tx.queue(selectAttempts, workspaceID, deliveryID).Query(each(func() (err error) {
			found = true
			if number == nil {
				return nil
			}
			a.DeliveryID, a.Number, a.StartedAt = deliveryID, int(*number), instant(startedAt)
			a.Latency, a.Status, a.ResponseCut = time.Duration(*latency)*time.Microsecond, *code, *cut
			a.Headers, err = parse[map[string]string](headers)
			list = append(list, a)
			return err
		}, &number, &startedAt, &latency, &code, &a.Error, &headers, &a.Response, &cut))
		if err := tx.send(); err != nil {
			return err
		}
		if !found {
			return store.ErrNotFound
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}
