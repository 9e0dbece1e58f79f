//go:build cgo

package sqlitestore

import (
	"context"
	"strings"

	"github.com/elido-app/webhook/store"
)

// Deliveries implements store.Store.
func (s *Store) Deliveries(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
	statement, args := listing(f)
	var list []store.Delivery
	err := s.read(ctx, "deliveries", statement, func() { list = nil }, func(r row) {
		list = append(list, readDelivery(r))
	}, args...)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// listing returns the statement for a filter. It chooses the page by what the
// indexes hold before it reads payloads, and takes no more from the log of any
// one endpoint than the page can use.
func listing(f store.DeliveryFilter) (string, []any) {
	where, args := conditions(f)
	if f.EventID != "" {
		args = append([]any{f.EventID, f.WorkspaceID}, args...)
		if f.EndpointID != 0 {
			where += ` AND +d.endpoint_id = ?` // with a plus, so that it is not looked up by this
			args = append(args, f.EndpointID)
		}
		return `SELECT ` + deliveryColumns + `
			FROM webhook_events e
			CROSS JOIN webhook_deliveries d ON d.id >= e.first_delivery AND d.id < e.first_delivery + e.deliveries
			CROSS JOIN webhook_endpoints p ON p.id = d.endpoint_id AND p.deleted_at IS NULL` + lastAttempt + `
			WHERE e.id = ? AND e.workspace_id = ?` + where + newestFirst + ` LIMIT ? OFFSET ?`,
			append(args, limit(f.Limit), int64(f.Offset))
	}
	endpoints := `p.workspace_id = ? AND p.deleted_at IS NULL`
	of := []any{f.WorkspaceID}
	if f.EndpointID != 0 {
		endpoints += ` AND p.id = ?`
		of = append(of, f.EndpointID)
	}
	deepest := limit(f.Limit)
	if deepest > 0 {
		deepest += int64(f.Offset)
	}
	args = append(append(args, deepest), of...)
	args = append(args, limit(f.Limit), int64(f.Offset))
	return `WITH page AS MATERIALIZED (
			SELECT l.id FROM webhook_endpoints p
			CROSS JOIN webhook_deliveries l ON l.id IN (
				SELECT d.id FROM webhook_deliveries d WHERE d.endpoint_id = p.id` + where + newestFirst + ` LIMIT ?)
			WHERE ` + endpoints + `
			ORDER BY l.created_at DESC, l.id DESC LIMIT ? OFFSET ?)
		SELECT ` + deliveryColumns + `
		FROM page CROSS JOIN webhook_deliveries d ON d.id = page.id
		JOIN webhook_events e ON e.seq = d.event_seq` + lastAttempt + newestFirst, args
}

const newestFirst = ` ORDER BY d.created_at DESC, d.id DESC`

// conditions returns what a filter asks of a delivery d, its endpoint and event
// left out.
func conditions(f store.DeliveryFilter) (string, []any) {
	var where strings.Builder
	var args []any
	switch f.Status {
	case store.StatusPending:
		where.WriteString(` AND d.state < 3`)
	case store.StatusDelivered:
		where.WriteString(` AND d.state = 3`)
	case store.StatusFailed:
		where.WriteString(` AND d.state = 4`)
	case "":
	default:
		where.WriteString(` AND FALSE`)
	}
	if f.EventType != "" {
		where.WriteString(` AND (SELECT t.type FROM webhook_events t WHERE t.seq = d.event_seq) = ?`)
		args = append(args, f.EventType)
	}
	if !f.Since.IsZero() {
		where.WriteString(` AND d.created_at >= ?`)
		args = append(args, f.Since.UnixMilli())
	}
	if !f.Until.IsZero() {
		where.WriteString(` AND d.created_at < ?`)
		args = append(args, f.Until.UnixMilli())
	}
	if f.Before.DeliveryID != 0 {
		where.WriteString(` AND (d.created_at, d.id) < (?, ?)`)
		args = append(args, f.Before.CreatedAt.UnixMilli(), f.Before.DeliveryID)
	}
	return where.String(), args
}
