//go:build cgo

package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/elido-app/webhook/store"
)

// deliveryColumns are what readDelivery reads.
const deliveryColumns = `d.id, e.workspace_id, d.endpoint_id, e.id, e.type, d.ordering_key, d.state,
	d.attempts, d.budget, d.total_attempts, d.interruptions, a.status, a.latency, d.last_error,
	d.created_at, d.completed_at, d.due_at, e.payload, d.message`

// lastAttempt joins what deliveryColumns take from the last attempt.
const lastAttempt = ` LEFT JOIN webhook_attempts a ON a.delivery_id = d.id AND a.number = d.total_attempts`

// selectDelivery finds a delivery of a workspace whose endpoint is not deleted.
var selectDelivery = &query{sql: `SELECT ` + deliveryColumns + `
	FROM webhook_deliveries d JOIN webhook_events e ON e.seq = d.event_seq` + lastAttempt + `
	WHERE d.id = ? AND e.workspace_id = ?
	AND EXISTS (SELECT 1 FROM webhook_endpoints p WHERE p.id = d.endpoint_id AND p.deleted_at IS NULL)`}

func readDelivery(r row) store.Delivery {
	d := store.Delivery{
		ID: integer(r[0]), WorkspaceID: integer(r[1]), EndpointID: integer(r[2]), EventID: text(r[3]),
		EventType: text(r[4]), OrderingKey: text(r[5]), Status: status(integer(r[6])),
		Attempts: int(integer(r[7])), Budget: int(integer(r[8])), TotalAttempts: int(integer(r[9])),
		Interruptions: int(integer(r[10])), LastStatus: int(integer(r[11])),
		LastLatency: time.Duration(integer(r[12])) * time.Microsecond, LastError: blob(r[13]),
		CreatedAt: instant(r[14]), CompletedAt: instant(r[15]), Payload: blob(r[17]), Message: blob(r[18]),
	}
	if d.Status == store.StatusPending {
		d.NextAttemptAt = instant(r[16])
	}
	return d
}

func status(state int64) store.Status {
	switch state {
	case stateDelivered:
		return store.StatusDelivered
	case stateFailed:
		return store.StatusFailed
	}
	return store.StatusPending
}

// Delivery implements store.Store.
func (s *Store) Delivery(ctx context.Context, workspaceID, id int64) (store.Delivery, error) {
	var (
		d     store.Delivery
		found bool
	)
	err := s.read(ctx, "delivery", selectDelivery.sql, func() { found = false }, func(r row) {
		d, found = readDelivery(r), true
	}, id, workspaceID)
	if err == nil && !found {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.Delivery{}, err
	}
	return d, nil
}

// attemptRow is a row of webhook_attempts.
type attemptRow struct {
	DeliveryID  int64   `db:"delivery_id"`
	Number      int     `db:"number"`
	StartedAt   *int64  `db:"started_at"`
	Latency     int64   `db:"latency"`
	Status      int     `db:"status"`
	Error       []byte  `db:"error"`
	Headers     *string `db:"headers"`
	Response    []byte  `db:"response"`
	ResponseCut bool    `db:"response_cut"`
}

func (r attemptRow) attempt() (store.Attempt, error) {
	a := store.Attempt{
		DeliveryID: r.DeliveryID, Number: r.Number, Latency: time.Duration(r.Latency) * time.Microsecond,
		Status: r.Status, Error: r.Error, Response: r.Response, ResponseCut: r.ResponseCut,
	}
	if r.StartedAt != nil {
		a.StartedAt = at(*r.StartedAt)
	}
	if r.Headers == nil {
		return a, nil
	}
	var err error
	a.Headers, err = parse[map[string]string](*r.Headers)
	return a, err
}

// selectAttempts gives a row without a number where a delivery has no attempts,
// to tell it from one that does not exist.
const selectAttempts = `SELECT a.delivery_id, a.number, a.started_at, a.latency, a.status, a.error, a.headers,
	a.response, a.response_cut
	FROM webhook_deliveries d
	JOIN webhook_endpoints p ON p.id = d.endpoint_id AND p.workspace_id = ? AND p.deleted_at IS NULL
	JOIN webhook_attempts a ON a.delivery_id = d.id
	WHERE d.id = ? ORDER BY a.number`

const selectExists = `SELECT 1 FROM webhook_deliveries d
	JOIN webhook_endpoints p ON p.id = d.endpoint_id AND p.workspace_id = ? AND p.deleted_at IS NULL
	WHERE d.id = ?`

// Attempts implements store.Store.
func (s *Store) Attempts(ctx context.Context, workspaceID, deliveryID int64) ([]store.Attempt, error) {
	var rows []attemptRow
	err := s.reading(ctx, "attempts", func(db *sqlx.DB) error {
		rows = nil
		if err := db.SelectContext(ctx, &rows, selectAttempts, workspaceID, deliveryID); err != nil || len(rows) > 0 {
			return err
		}
		var one int
		return db.GetContext(ctx, &one, selectExists, workspaceID, deliveryID)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, store.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	list := make([]store.Attempt, len(rows))
	for i, r := range rows {
		if list[i], err = r.attempt(); err != nil {
			return nil, fmt.Errorf("sqlitestore: attempts: %w: %w", ErrCorrupt, err)
		}
	}
	return list, nil
}
