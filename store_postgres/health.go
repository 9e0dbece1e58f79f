package postgresstore

import (
	"github.com/elido-app/webhook/store"
)

// sickness is an endpoint's health while outcomes are counted.
type sickness struct {
	workspaceID, revision int64
	was, now              store.Health
}

// health counts what outcomes mean for the health of their endpoints, in their
// order, and writes what changes. Endpoints that are well and answer are looked
// at, but neither locked nor written.
func (rec *recording) health(policy *store.HealthPolicy) error {
	var ids []int64
	for _, o := range rec.held {
		if o.Health != store.HealthNone {
			ids = append(ids, o.EndpointID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	ids = distinct(ids)
	seen, err := rec.sick(selectHealth, ids)
	if err != nil {
		return err
	}
	rec.count(seen, policy, nil)
	ids = ids[:0]
	for id, e := range seen {
		if e.now != e.was {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	// Once more, now that nobody else can count.
	if seen, err = rec.sick(lockHealth, distinct(ids)); err != nil {
		return err
	}
	var paused []int64
	rec.count(seen, policy, func(change store.HealthChange) {
		if change.Paused {
			paused = append(paused, change.EndpointID)
		}
		rec.result.Changes = append(rec.result.Changes, change)
	})
	for id, e := range seen {
		if e.now != e.was {
			rec.tx.queue(updateHealth, id, int64(e.now.Failures), moment(e.now.FailedAt), moment(e.now.DegradedUntil))
		}
	}
	return rec.pause(paused, policy.PauseReason)
}

// sick reads the health of endpoints.
func (rec *recording) sick(statement string, ids []int64) (map[int64]*sickness, error) {
	found := map[int64]*sickness{}
	var (
		id                      int64
		e                       sickness
		failedAt, degradedUntil *int64
	)
	rec.tx.queue(statement, ids).Query(each(func() error {
		e.was.FailedAt, e.was.DegradedUntil = instant(failedAt), instant(degradedUntil)
		e.now = e.was
		found[id] = &sickness{e.workspaceID, e.revision, e.was, e.now}
		return nil
	}, &id, &e.workspaceID, &e.revision, &e.was.Failures, &failedAt, &degradedUntil))
	err := rec.tx.send()
	return found, err
}

// count goes through the outcomes, and calls report, unless nil, for each change
// that is worth it.
func (rec *recording) count(seen map[int64]*sickness, policy *store.HealthPolicy, report func(store.HealthChange)) {
	for _, o := range rec.held {
		e := seen[o.EndpointID]
		if e == nil || o.Health == store.HealthNone {
			continue
		}
		var change store.HealthChange
		e.now, change = e.now.Next(*policy, o.Health, whole(o.Attempt.StartedAt), at(rec.now))
		if report == nil || !change.Degraded && !change.Paused && !change.Recovered {
			continue
		}
		change.EndpointID, change.WorkspaceID, change.Revision = o.EndpointID, e.workspaceID, e.revision
		report(change)
	}
}

// pause pauses endpoints that failed too often.
func (rec *recording) pause(ids []int64, reason string) error {
	for _, id := range ids {
		revision, err := rec.tx.revise()
		if err != nil {
			return err
		}
		rec.tx.queue(updatePaused, id, reason, rec.now, revision)
		rec.tx.queue(deleteLanes, []int64{id})
		paused := false
		for i := range rec.result.Changes {
			c := &rec.result.Changes[i]
			if paused = paused || c.EndpointID == id && c.Paused; paused && c.EndpointID == id {
				c.Revision = revision
			}
		}
	}
	return rec.tx.send()
}
