//go:build cgo

package sqlitestore

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/elido-app/webhook/store"
)

// selectProbe sees everything as of one moment, being one statement.
const selectProbe = `SELECT revision,
	(SELECT min(next_due) FROM webhook_lanes) AS next_due,
	(SELECT d.lease_until FROM webhook_deliveries d CROSS JOIN webhook_endpoints p ON p.id = d.endpoint_id AND p.active
		WHERE d.state = 1 ORDER BY d.lease_until LIMIT 1) AS lease_end,
	(SELECT json_group_array(json_array(id, revision)) FROM
		(SELECT id, revision FROM webhook_endpoints WHERE revision > ?1 AND ?1 <> 0 ORDER BY revision)) AS changed,
	(SELECT count(*) FROM (SELECT 1 FROM webhook_lanes l CROSS JOIN webhook_deliveries d
		ON d.endpoint_id = l.endpoint_id AND d.state = 0 AND d.due_at <= ?2 LIMIT ?3)) AS due
	FROM webhook_counter WHERE id = 1`

// Probe implements store.Store.
func (s *Store) Probe(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
	var seen struct {
		Revision int64  `db:"revision"`
		NextDue  *int64 `db:"next_due"`
		LeaseEnd *int64 `db:"lease_end"`
		Changed  string `db:"changed"`
		Due      int    `db:"due"`
	}
	err := s.reading(ctx, "probe", func(db *sqlx.DB) error {
		return db.GetContext(ctx, &seen, selectProbe, p.Since, p.Now.UnixMilli(), max(p.Count, 0))
	})
	if err != nil {
		return store.ProbeResult{}, err
	}
	next := earliest{}
	for _, ms := range []*int64{seen.NextDue, seen.LeaseEnd} {
		if ms != nil {
			next.add(*ms)
		}
	}
	result := store.ProbeResult{NextDue: next.instant(), Revision: seen.Revision, Due: seen.Due}
	var changed [][2]int64
	if err := json.Unmarshal([]byte(seen.Changed), &changed); err != nil {
		return store.ProbeResult{}, fmt.Errorf("sqlitestore: probe: %w: %w", ErrCorrupt, err)
	}
	for _, c := range changed {
		result.Changed = append(result.Changed, store.EndpointChange{EndpointID: c[0], Revision: c[1]})
	}
	return result, nil
}
