//go:build cgo

package sqlitestore

import (
	"context"
	"database/sql/driver"

	"github.com/elido-app/webhook/store"
)

var (
	selectAllHeld = &query{sql: `SELECT d.id, d.state, d.token, d.endpoint_id, d.ordering_key, d.total_attempts
		FROM json_each(?) j CROSS JOIN webhook_deliveries d ON d.id = j.value`}
	updateRecorded = &query{sql: `UPDATE webhook_deliveries SET state = ?, due_at = ifnull(?, due_at), completed_at = ?,
		last_error = ?, message = ?, attempts = attempts + 1, total_attempts = total_attempts + 1, interruptions = 0,
		token = NULL, lease_until = NULL WHERE id = ?`}
	updateDelivered = &query{sql: `UPDATE webhook_deliveries SET state = 3, completed_at = ?, last_error = NULL, message = NULL,
		attempts = attempts + 1, total_attempts = total_attempts + 1, interruptions = 0, token = NULL, lease_until = NULL
		WHERE id IN (SELECT value FROM json_each(?))`}
	insertAttempts = newBulk(`INSERT INTO webhook_attempts
		(delivery_id, number, started_at, latency, status, error, headers, response, response_cut)`, 9)
	updateHealth = &query{sql: `UPDATE webhook_endpoints SET failures = ?, failed_at = ?, degraded_until = ? WHERE id = ?`}
	updatePaused = &query{sql: `UPDATE webhook_endpoints SET active = 0, pause_reason = ?, updated_at = ?, revision = ? WHERE id = ?`}
)

// Record implements store.Store.
func (s *Store) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	weight := 2*len(p.Outcomes) + 1
	if p.Claim != nil {
		weight += max(p.Claim.Room.Limit, 0)
	}
	var result store.RecordResult
	err := s.write(ctx, "record", weight, func(tx *transaction) (err error) {
		result, err = tx.record(p)
		return err
	})
	if err != nil {
		return store.RecordResult{}, err
	}
	return result, nil
}

func (tx *transaction) record(p store.RecordParams) (store.RecordResult, error) {
	rec := recording{tx: tx, now: p.Now.UnixMilli(), attempts: inserter{tx: tx, bulk: insertAttempts}}
	if err := rec.outcomes(p.Outcomes, p.Health); err != nil {
		return rec.result, err
	}
	if p.Claim != nil {
		claimed, err := tx.claim(*p.Claim)
		if err != nil {
			return rec.result, err
		}
		rec.result.Claim = claimed
		for i := range claimed.Leases {
			delete(rec.due, claimed.Leases[i].DeliveryID)
		}
	}
	var err error
	rec.result.Queued, err = rec.queued()
	return rec.result, err
}

// recording is one batch of outcomes as it is being written.
type recording struct {
	tx     *transaction
	now    int64
	result store.RecordResult

	held      map[int64]heldLease // of the deliveries, what a token holds
	delivered idList              // those to be marked so
	attempts  inserter
	due       map[int64]int64 // deliveries that became due, with their endpoints
}

// outcomes writes outcomes.
func (rec *recording) outcomes(outcomes []store.Outcome, policy *store.HealthPolicy) error {
	if err := rec.find(outcomes); err != nil {
		return err
	}
	for i := range outcomes {
		o := &outcomes[i]
		e, err := rec.tx.endpoint(o.EndpointID)
		if err != nil {
			return err
		}
		l, held := rec.held[o.DeliveryID]
		if e == nil || !held || l.token != o.Token || l.endpointID != o.EndpointID {
			rec.result.Stale = append(rec.result.Stale, o.DeliveryID)
			continue
		}
		delete(rec.held, o.DeliveryID) // another outcome of it would be stale
		if err := rec.outcome(o, &l); err != nil {
			return err
		}
		if policy == nil || o.Health == store.HealthNone {
			continue
		}
		if err := rec.health(e, policy, o); err != nil {
			return err
		}
	}
	if len(rec.delivered) > 0 {
		if err := rec.tx.run(updateDelivered, nil, rec.now, rec.delivered.value()); err != nil {
			return err
		}
	}
	return rec.attempts.flush()
}

// find looks up what tokens hold the deliveries.
func (rec *recording) find(outcomes []store.Outcome) error {
	if len(outcomes) == 0 {
		return nil
	}
	var ids idList
	for i := range outcomes {
		ids = ids.add(outcomes[i].DeliveryID)
	}
	rec.held = make(map[int64]heldLease, len(outcomes))
	return rec.tx.run(selectAllHeld, func(r row) {
		token, leased := r[2].(int64)
		if state := integer(r[1]); leased && state < stateDelivered {
			rec.held[integer(r[0])] = heldLease{
				state: state, token: token, endpointID: integer(r[3]), key: r[4], totalAttempts: integer(r[5]),
			}
		}
	}, ids.value())
}

// became notes that a delivery of an endpoint is ready, and when it is due.
func (rec *recording) became(id, endpointID, dueAt int64) {
	if dueAt > rec.now {
		return
	}
	if rec.due == nil {
		rec.due = map[int64]int64{}
	}
	rec.due[id] = endpointID
}

// queued reports whether any of what became due can be claimed.
func (rec *recording) queued() (bool, error) {
	for _, id := range rec.due {
		e, err := rec.tx.endpoint(id)
		if err != nil || e != nil && e.active {
			return err == nil, err
		}
	}
	return false, nil
}

// outcome writes one outcome and its attempt, or leaves that to the end.
func (rec *recording) outcome(o *store.Outcome, l *heldLease) error {
	tx, a := rec.tx, &o.Attempt
	err := rec.attempts.add(o.DeliveryID, l.totalAttempts+1, moment(a.StartedAt), a.Latency.Microseconds(),
		int64(a.Status), a.Error, headerDocument(a.Headers), a.Response, number(a.ResponseCut))
	if err != nil {
		return err
	}
	state, due, completed := stateReady, moment(o.NextAttemptAt), driver.Value(nil)
	switch o.Status {
	case store.StatusDelivered:
		state, due, completed = stateDelivered, nil, rec.now
	case store.StatusFailed:
		state, due, completed = stateFailed, nil, rec.now
	case store.StatusPending:
	}
	if state == stateReady && l.state == stateBlocked {
		state = stateBlocked // it gave way, and another of its key may be leased
	}
	if l.state != stateLeased || state == stateReady {
		tx.ready(o.EndpointID)
	}
	if state == stateDelivered && l.key == nil && a.Error == nil && o.Message == nil {
		rec.delivered = rec.delivered.add(o.DeliveryID)
		return nil
	}
	err = tx.run(updateRecorded, nil, int64(state), due, completed, a.Error, o.Message, o.DeliveryID)
	switch {
	case err != nil:
		return err
	case l.key != nil:
		return rec.settle(o, l.key, state)
	case state == stateReady:
		rec.became(o.DeliveryID, o.EndpointID, o.NextAttemptAt.UnixMilli())
	}
	return nil
}

// settle hands an ordering key on, after an outcome of its head.
func (rec *recording) settle(o *store.Outcome, key driver.Value, state int) error {
	next, err := rec.tx.settle(o.EndpointID, key)
	switch {
	case err != nil:
		return err
	case next != nil:
		rec.became(next.id, o.EndpointID, next.dueAt)
	case state == stateReady:
		rec.became(o.DeliveryID, o.EndpointID, o.NextAttemptAt.UnixMilli())
	}
	return nil
}

// health writes an endpoint's health if an outcome changes it.
func (rec *recording) health(e *endpoint, policy *store.HealthPolicy, o *store.Outcome) error {
	tx := rec.tx
	health, change := e.health.Next(*policy, o.Health, whole(o.Attempt.StartedAt), at(rec.now))
	if health != e.health {
		err := tx.run(updateHealth, nil, int64(health.Failures), moment(health.FailedAt), moment(health.DegradedUntil), e.id)
		if err != nil {
			return err
		}
		e.health = health
		tx.counter.epoch++
	}
	change.EndpointID, change.WorkspaceID, change.Revision = e.id, e.workspaceID, e.target.Revision
	if change.Paused {
		change.Revision = tx.revise()
		if err := tx.run(updatePaused, nil, policy.PauseReason, rec.now, change.Revision, e.id); err != nil {
			return err
		}
		tx.endpoints.forget()
		tx.ready(e.id)
	}
	if change.Degraded || change.Paused || change.Recovered {
		rec.result.Changes = append(rec.result.Changes, change)
	}
	return nil
}
