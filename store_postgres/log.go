package postgresstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/elido-app/webhook/store"
)

// Deliveries implements store.Store.
func (s *Store) Deliveries(ctx context.Context, f store.DeliveryFilter) (list []store.Delivery, err error) {
	statement, args := listing(f)
	err = s.read(ctx, "deliveries", func(tx *transaction) (err error) {
		list, err = tx.deliveries(statement, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

const newestFirst = ` ORDER BY d.created_at DESC, d.id DESC`

// listing returns the statement for a filter. It chooses the page by what the
// indexes hold before it reads payloads, and takes no more from the log of any
// one endpoint than the page can use.
func listing(f store.DeliveryFilter) (string, []any) {
	var q conditions
	q.filter(f)
	if f.EventID != "" {
		if f.EndpointID != 0 {
			q.and(`d.endpoint_id = %s`, f.EndpointID)
		}
		return `SELECT ` + deliveryColumns + `
			FROM webhook_events e
			CROSS JOIN LATERAL (SELECT * FROM webhook_deliveries d WHERE d.id = ANY(e.deliveries)` + q.where.String() + `) d
			JOIN webhook_endpoints p ON p.id = d.endpoint_id AND p.deleted_at IS NULL
			WHERE e.id = ` + q.arg(f.EventID) + ` AND e.workspace_id = ` + q.arg(f.WorkspaceID) + newestFirst +
			` LIMIT ` + q.arg(bound(f.Limit)) + ` OFFSET ` + q.arg(max(f.Offset, 0)), q.args
	}
	deepest := bound(f.Limit)
	if deepest != nil {
		*deepest += int64(max(f.Offset, 0))
	}
	endpoints := `p.deleted_at IS NULL AND p.workspace_id = ` + q.arg(f.WorkspaceID)
	if f.EndpointID != 0 {
		endpoints += ` AND p.id = ` + q.arg(f.EndpointID)
	}
	return `WITH page AS MATERIALIZED (
			SELECT d.id, d.created_at FROM webhook_endpoints p
			CROSS JOIN LATERAL (
				SELECT d.id, d.created_at FROM webhook_deliveries d
				WHERE d.endpoint_id = p.id` + q.where.String() + newestFirst + ` LIMIT ` + q.arg(deepest) + `) d
			WHERE ` + endpoints + newestFirst + ` LIMIT ` + q.arg(bound(f.Limit)) + ` OFFSET ` + q.arg(max(f.Offset, 0)) + `)
		SELECT ` + deliveryColumns + `
		FROM webhook_deliveries d JOIN webhook_events e ON e.seq = d.event_seq
		WHERE d.id = ANY(ARRAY(SELECT id FROM page))` + newestFirst, q.args
}

// conditions are parts of a WHERE clause with their arguments.
type conditions struct {
	where strings.Builder
	args  []any
}

// arg adds an argument and returns its place.
func (q *conditions) arg(v any) string {
	q.args = append(q.args, v)
	if _, ok := v.(string); ok {
		return fmt.Sprintf("$%d::text", len(q.args))
	}
	return fmt.Sprintf("$%d::bigint", len(q.args))
}

// and adds a condition, whose verbs stand for the arguments.
func (q *conditions) and(format string, values ...any) {
	places := make([]any, len(values))
	for i, v := range values {
		places[i] = q.arg(v)
	}
	fmt.Fprintf(&q.where, ` AND `+format, places...)
}

// filter adds what a filter asks of a delivery d, its endpoint and event left out.
func (q *conditions) filter(f store.DeliveryFilter) {
	switch f.Status {
	case store.StatusPending:
		q.and(`d.state < 4`)
	case store.StatusDelivered:
		q.and(`d.state = 4`)
	case store.StatusFailed:
		q.and(`d.state = 5`)
	case "":
	default:
		q.and(`FALSE`)
	}
	if f.EventType != "" {
		q.and(`(SELECT t.type FROM webhook_events t WHERE t.seq = d.event_seq) = %s`, f.EventType)
	}
	if !f.Since.IsZero() {
		q.and(`d.created_at >= %s`, f.Since.UnixMilli())
	}
	if !f.Until.IsZero() {
		q.and(`d.created_at < %s`, f.Until.UnixMilli())
	}
	if f.Before.DeliveryID != 0 {
		q.and(`(d.created_at, d.id) < (%s, %s)`, f.Before.CreatedAt.UnixMilli(), f.Before.DeliveryID)
	}
}
