package postgresstore

import (
	"context"

	"github.com/elido-app/webhook/store"
)

// selectProbe sees everything as of one moment, being one statement.
const selectProbe = `SELECT c.revision,
	(SELECT l.next_due FROM webhook_lanes l JOIN webhook_endpoints p ON p.id = l.endpoint_id AND p.active
		ORDER BY l.next_due LIMIT 1),
	(SELECT d.lease_until FROM webhook_deliveries d JOIN webhook_endpoints p ON p.id = d.endpoint_id AND p.active
		WHERE d.state = 1 ORDER BY d.lease_until LIMIT 1),
	(SELECT min(d.due_at) FROM webhook_deliveries d JOIN webhook_endpoints p ON p.id = d.endpoint_id AND p.active
		WHERE d.state = 3),
	ARRAY(SELECT e.id FROM webhook_endpoints e WHERE e.revision > $1 AND $1 <> 0 ORDER BY e.revision, e.id),
	ARRAY(SELECT e.revision FROM webhook_endpoints e WHERE e.revision > $1 AND $1 <> 0 ORDER BY e.revision, e.id),
	(SELECT count(*) FROM (SELECT 1 FROM webhook_endpoints p
		CROSS JOIN LATERAL (SELECT 1 FROM webhook_deliveries d WHERE d.endpoint_id = p.id AND d.state = 0 AND d.due_at <= $2 LIMIT $3) d
		WHERE p.id = ANY(ARRAY(SELECT l.endpoint_id FROM webhook_lanes l WHERE l.next_due <= $2)) AND p.active LIMIT $3) n)
	FROM webhook_counter c WHERE c.id = 1`

// Probe implements store.Store.
func (s *Store) Probe(ctx context.Context, p store.ProbeParams) (result store.ProbeResult, err error) {
	err = s.read(ctx, "probe", func(tx *transaction) error {
		var (
			revision               int64
			lane, leaseEnd, arrive *int64
			ids, revisions         []int64
			due                    int
		)
		result = store.ProbeResult{}
		tx.queue(selectProbe, p.Since, p.Now.UnixMilli(), max(p.Count, 0)).Query(each(func() error { return nil },
			&revision, &lane, &leaseEnd, &arrive, &ids, &revisions, &due))
		if err := tx.send(); err != nil {
			return err
		}
		if revision == 0 {
			return &fault{ErrCorrupt, errNoCounter}
		}
		next := earliest{}
		for _, ms := range []*int64{lane, leaseEnd, arrive} {
			if ms != nil {
				next.add(*ms)
			}
		}
		result.NextDue, result.Revision, result.Due = next.instant(), revision, due
		for i, id := range ids {
			result.Changed = append(result.Changed, store.EndpointChange{EndpointID: id, Revision: revisions[i]})
		}
		return nil
	})
	if err != nil {
		return store.ProbeResult{}, err
	}
	return result, nil
}
