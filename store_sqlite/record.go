//go:build cgo

package sqlitestore

import (
	"bytes"
	"context"
	"database/sql/driver"
	"maps"
	"slices"

	"github.com/elido-app/webhook/store"
)

// A SELECT followed by an UPDATE takes half the time of an UPDATE with a
// RETURNING clause, for which SQLite makes a temporary table.
var (
	updateRecorded = &query{`UPDATE webhook_deliveries SET state = ?, due_at = ifnull(?, due_at), completed_at = ?,
		last_status = ?, last_latency = ?, last_error = ?, message = ?,
		attempts = attempts + 1, total_attempts = total_attempts + 1, interruptions = 0, token = NULL, lease_until = NULL
		WHERE id = ?`}
	insertAttempt = &query{`INSERT INTO webhook_attempts
		(delivery_id, number, started_at, latency, status, error, headers, response, response_cut)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`}
	updateHealth = &query{`UPDATE webhook_endpoints SET failures = ?, failed_at = ?, degraded_until = ? WHERE id = ?`}
	updatePaused = &query{`UPDATE webhook_endpoints SET active = 0, pause_reason = ?, updated_at = ?, revision = ? WHERE id = ?`}
)

// Record implements store.Store.
func (s *Store) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	if ctx.Done() != nil {
		p = copyRecord(p)
	}
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

// copyRecord copies what the caller may change once its call gave up.
func copyRecord(p store.RecordParams) store.RecordParams {
	p.Outcomes = slices.Clone(p.Outcomes)
	for i := range p.Outcomes {
		o := &p.Outcomes[i]
		o.Message = bytes.Clone(o.Message)
		o.Attempt.Error = bytes.Clone(o.Attempt.Error)
		o.Attempt.Response = bytes.Clone(o.Attempt.Response)
		o.Attempt.Headers = maps.Clone(o.Attempt.Headers)
	}
	if p.Health != nil {
		h := *p.Health
		p.Health = &h
	}
	if p.Claim != nil {
		c := *p.Claim
		c.Room = copyRoom(c.Room)
		p.Claim = &c
	}
	return p
}

func (tx *transaction) record(p store.RecordParams) (store.RecordResult, error) {
	rec := recording{tx: tx, now: p.Now.UnixMilli()}
	for i := range p.Outcomes {
		o := &p.Outcomes[i]
		e, err := tx.endpoint(o.EndpointID)
		if err != nil {
			return rec.result, err
		}
		held := false
		if e != nil {
			if held, err = rec.outcome(o); err != nil {
				return rec.result, err
			}
		}
		if !held {
			rec.result.Stale = append(rec.result.Stale, o.DeliveryID)
			continue
		}
		if p.Health == nil || o.Health == store.HealthNone {
			continue
		}
		if err := rec.health(e, p.Health, o); err != nil {
			return rec.result, err
		}
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
	due    map[int64]int64 // deliveries that became due, with their endpoints
	result store.RecordResult
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

// outcome writes one outcome and its attempt, if the token still holds the
// lease.
func (rec *recording) outcome(o *store.Outcome) (held bool, err error) {
	tx := rec.tx
	state, due, completed := stateReady, moment(o.NextAttemptAt), driver.Value(nil)
	switch o.Status {
	case store.StatusDelivered:
		state, due, completed = stateDelivered, nil, rec.now
	case store.StatusFailed:
		state, due, completed = stateFailed, nil, rec.now
	case store.StatusPending:
	}
	l, err := tx.held(o.DeliveryID, o.Token)
	if err != nil || l == nil || l.endpointID != o.EndpointID {
		return false, err
	}
	if state == stateReady && l.state == stateBlocked {
		state = stateBlocked // it gave way, and another of its key may be leased
	}
	a := &o.Attempt
	err = tx.run(updateRecorded, nil, int64(state), due, completed, int64(a.Status), a.Latency.Microseconds(),
		a.Error, o.Message, o.DeliveryID)
	if err != nil {
		return false, err
	}
	if l.state != stateLeased {
		tx.ready(o.EndpointID)
	}
	err = tx.run(insertAttempt, nil, o.DeliveryID, l.totalAttempts+1, moment(a.StartedAt), a.Latency.Microseconds(),
		int64(a.Status), a.Error, document(a.Headers), a.Response, number(a.ResponseCut))
	if err != nil {
		return false, err
	}
	if state == stateReady {
		tx.ready(o.EndpointID)
		if l.key == nil {
			rec.became(o.DeliveryID, o.EndpointID, o.NextAttemptAt.UnixMilli())
		}
	}
	if l.key == nil {
		return true, nil
	}
	return true, rec.settle(o, l.key, state)
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
