package postgresstore

import (
	"context"
	"maps"
	"slices"

	"github.com/elido-app/webhook/store"
)

const (
	// recordOutcomes writes the outcomes whose tokens still hold, with their
	// attempts. All rows are locked in order of their ids first, so that two calls
	// about the same ones do not wait for each other in a circle.
	recordOutcomes = `WITH o AS (
			SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bigint[], $6::integer[],
				$7::bigint[], $8::bytea[], $9::bytea[], $10::bigint[], $11::bytea[], $12::bytea[], $13::boolean[])
				AS o(id, token, endpoint_id, state, due_at, status, latency, error, message, started_at, headers, response, cut)
		), held AS MATERIALIZED (
			SELECT d.id, d.state FROM webhook_deliveries d WHERE d.id = ANY($1::bigint[]) ORDER BY d.id FOR UPDATE
		), done AS (
			UPDATE webhook_deliveries d SET state = o.state, due_at = coalesce(o.due_at, d.due_at),
				completed_at = CASE WHEN o.state >= 4 THEN $14::bigint END,
				last_status = o.status, last_latency = o.latency, last_error = o.error, message = o.message,
				attempts = d.attempts + 1, total_attempts = d.total_attempts + 1, interruptions = 0,
				token = NULL, lease_until = NULL
			FROM o JOIN held h ON h.id = o.id
			WHERE d.id = ANY($1::bigint[]) AND d.id = o.id AND d.token = o.token AND d.endpoint_id = o.endpoint_id
			AND EXISTS (SELECT 1 FROM webhook_endpoints e WHERE e.id = d.endpoint_id AND e.deleted_at IS NULL)
			RETURNING d.id, h.state AS was, d.ordering_key, d.total_attempts, o.token,
				o.started_at, o.latency, o.status, o.error, o.headers, o.response, o.cut
		), logged AS (
			INSERT INTO webhook_attempts
				(delivery_id, number, started_at, latency, status, error, headers, response, response_cut)
			SELECT id, total_attempts, started_at, latency, status, error, headers, response, cut FROM done
		)
		SELECT id, token, was, ordering_key FROM done`

	selectHealth = `SELECT id, workspace_id, revision, failures, failed_at, degraded_until FROM webhook_endpoints
		WHERE id = ANY($1::bigint[]) AND deleted_at IS NULL`
	lockHealth   = selectHealth + ` ORDER BY id FOR NO KEY UPDATE`
	updateHealth = `UPDATE webhook_endpoints SET failures = $2, failed_at = $3, degraded_until = $4 WHERE id = $1`
	updatePaused = `UPDATE webhook_endpoints SET active = FALSE, pause_reason = $2, updated_at = $3, revision = $4
		WHERE id = $1`
)

// Record implements store.Store.
func (s *Store) Record(ctx context.Context, p store.RecordParams) (result store.RecordResult, err error) {
	err = s.write(ctx, "record", func(tx *transaction) (err error) {
		rec := recording{tx: tx, p: &p, now: p.Now.UnixMilli(), due: map[int64]int64{}, ready: firsts{}}
		err = rec.run()
		result = rec.result
		return err
	})
	if err != nil {
		return store.RecordResult{}, err
	}
	return result, nil
}

// recording is one batch of outcomes as it is being written.
type recording struct {
	tx     *transaction
	p      *store.RecordParams
	now    int64
	held   []*store.Outcome // those that took effect, in their order
	due    map[int64]int64  // deliveries that became due, with their endpoints
	ready  firsts           // what became ready
	moved  []int64          // endpoints whose first ready delivery may be due later
	result store.RecordResult
}

func (rec *recording) run() error {
	keys, err := rec.outcomes()
	if err != nil {
		return err
	}
	tx := rec.tx
	s, err := tx.settle(keys)
	if err != nil {
		return err
	}
	for id := range s.demoted {
		delete(rec.due, id)
	}
	for _, next := range s.ready {
		rec.became(next.id, next.endpointID, next.dueAt)
	}
	tx.announce(rec.ready)
	tx.refreshLanes(distinct(slices.Concat(rec.moved, s.gaveWay())))
	if rec.p.Health != nil {
		if err := rec.health(rec.p.Health); err != nil {
			return err
		}
	}
	if rec.p.Claim != nil {
		claimed, err := tx.claim(*rec.p.Claim)
		if err != nil {
			return err
		}
		rec.result.Claim = claimed
		for i := range claimed.Leases {
			delete(rec.due, claimed.Leases[i].DeliveryID)
		}
	}
	return rec.queued()
}

// became notes that a delivery of an endpoint is ready, and when it is due.
func (rec *recording) became(id, endpointID, dueAt int64) {
	if dueAt <= rec.now {
		rec.due[id] = endpointID
	}
}

// queued finds out whether any of what became due can be claimed.
func (rec *recording) queued() error {
	if len(rec.due) == 0 {
		return nil
	}
	var revision int64
	rec.tx.queue(selectRevision).Query(each(func() error { return nil }, &revision))
	if err := rec.tx.send(); err != nil {
		return err
	}
	endpoints, err := rec.tx.endpoints(revision, distinct(slices.Collect(maps.Values(rec.due))))
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		rec.result.Queued = rec.result.Queued || e.active
	}
	return nil
}

// outcomes writes all outcomes whose tokens hold, and returns the ordering keys
// they were of.
func (rec *recording) outcomes() (map[endpointKey]struct{}, error) {
	keys := map[endpointKey]struct{}{}
	first := map[store.LeaseRef]*store.Outcome{} // an outcome takes effect once
	var rows outcomeRows
	for i := range rec.p.Outcomes {
		o := &rec.p.Outcomes[i]
		ref := store.LeaseRef{DeliveryID: o.DeliveryID, Token: o.Token}
		if _, ok := first[ref]; !ok {
			first[ref] = o
			rows.add(o)
		}
	}
	if len(rows.ids) == 0 {
		return keys, nil
	}
	var (
		id, token int64
		was       int16
		key       []byte
	)
	took := map[*store.Outcome]bool{}
	rec.tx.queue(lockTurns, rows.ids)
	rec.tx.queue(recordOutcomes, rows.args(rec.now)...).Query(each(func() error {
		o := first[store.LeaseRef{DeliveryID: id, Token: token}]
		took[o] = true
		if key != nil {
			keys[endpointKey{o.EndpointID, string(key)}] = struct{}{}
		}
		if was == stateReady {
			rec.moved = append(rec.moved, o.EndpointID)
		}
		if state(o.Status) == stateReady {
			due := o.NextAttemptAt.UnixMilli()
			rec.ready.add(o.EndpointID, due)
			rec.became(id, o.EndpointID, due)
		}
		return nil
	}, &id, &token, &was, &key))
	if err := rec.tx.send(); err != nil {
		return nil, err
	}
	for i := range rec.p.Outcomes {
		o := &rec.p.Outcomes[i]
		if took[o] {
			rec.held = append(rec.held, o)
		} else {
			rec.result.Stale = append(rec.result.Stale, o.DeliveryID)
		}
	}
	return keys, nil
}

// state returns how a delivery is stored that an outcome gives a status.
func state(s store.Status) int16 {
	switch s {
	case store.StatusDelivered:
		return stateDelivered
	case store.StatusFailed:
		return stateFailed
	}
	return stateReady
}
