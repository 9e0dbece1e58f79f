package memorystore

import (
	"bytes"
	"context"
	"maps"
	"time"

	"github.com/elido-app/webhook/store"
)

// Claim implements store.Store.
func (s *Store) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	if err := s.begin(ctx); err != nil {
		return store.ClaimResult{}, err
	}
	defer s.mu.Unlock()
	return s.claim(&p), nil
}

func (s *Store) claim(p *store.ClaimParams) store.ClaimResult {
	now, until := millis(p.Now), millis(p.Until)
	var r store.ClaimResult
	if n := min(p.Room.Limit, s.due.len()); n > 0 {
		r.Leases = make([]store.Lease, 0, n)
	}
	s.aside = s.aside[:0]
	for s.due.len() > 0 {
		e := s.due.first()
		room := p.Room.For(e.record.ID, e.record.MaxInFlight)
		if room <= 0 {
			s.setAside(e)
			continue
		}
		if e.lapse(now) {
			s.schedule(e)
			continue
		}
		if e.next > now || len(r.Leases) >= p.Room.Limit {
			r.NextDue = instant(e.next)
			break
		}
		for room > 0 && len(r.Leases) < p.Room.Limit && e.ready.len() > 0 && e.ready.first().due <= now {
			r.Leases = e.lease(r.Leases, e.ready.first(), p.Token, until)
			room--
		}
		if room == 0 {
			s.setAside(e)
		} else {
			s.schedule(e)
		}
	}
	for _, e := range s.aside {
		s.schedule(e)
	}
	clear(s.aside)
	return r
}

// setAside takes an endpoint whose room is taken out of a claim's way.
func (s *Store) setAside(e *endpoint) {
	s.due.remove(e)
	s.aside = append(s.aside, e)
}

// Record implements store.Store.
func (s *Store) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	if err := s.begin(ctx); err != nil {
		return store.RecordResult{}, err
	}
	defer s.mu.Unlock()

	now := millis(p.Now)
	var r store.RecordResult
	s.fresh = s.fresh[:0]
	for i := range p.Outcomes {
		o := &p.Outcomes[i]
		d := s.held(o.DeliveryID, o.Token)
		if d == nil {
			r.Stale = append(r.Stale, o.DeliveryID)
			continue
		}
		s.record(d, o, now)
		if p.Health != nil {
			if change := s.examine(d.endpoint, p.Health, o, p.Now); change != nil {
				r.Changes = append(r.Changes, *change)
			}
		}
		s.schedule(d.endpoint)
	}
	if p.Claim != nil {
		r.Claim = s.claim(p.Claim)
	}
	for _, d := range s.fresh {
		r.Queued = r.Queued || d.place == ready && d.due <= now && d.endpoint.record.Active
	}
	clear(s.fresh)
	return r, nil
}

// held returns the delivery whose last lease has this token, as long as nobody
// ended it; or nil.
func (s *Store) held(id, token int64) *delivery {
	d := s.deliveries[id]
	if d == nil || d.token != token || d.token == 0 || d.endpoint.deleted {
		return nil
	}
	return d
}

// record writes one outcome. What it makes ready it adds to s.fresh.
func (s *Store) record(d *delivery, o *store.Outcome, now int64) {
	e := d.endpoint
	d.total++
	d.attempts++
	d.interruptions = 0
	d.token = 0
	d.message = bytes.Clone(o.Message)

	row := o.Attempt
	row.DeliveryID, row.Number = d.id, d.total
	row.StartedAt = whole(row.StartedAt)
	row.Latency = row.Latency.Truncate(time.Microsecond)
	d.rows = append(d.rows, copyAttempt(row))
	d.lastStatus, d.lastLatency = row.Status, row.Latency
	d.lastError = d.rows[len(d.rows)-1].Error // is not changed

	e.dequeue(d)
	d.status = o.Status
	if d.status == store.StatusPending {
		d.due = millis(o.NextAttemptAt)
		if next := e.enqueue(d); next != nil {
			s.fresh = append(s.fresh, next)
		}
		return
	}
	s.finish(d, now)
	if next := e.promote(d); next != nil {
		s.fresh = append(s.fresh, next)
	}
}

// copyAttempt returns what the caller and the store do not share.
func copyAttempt(a store.Attempt) store.Attempt {
	a.Error = bytes.Clone(a.Error)
	a.Headers = maps.Clone(a.Headers)
	a.Response = bytes.Clone(a.Response)
	return a
}

// examine changes an endpoint's health by one outcome, and returns what there
// is to report; or nil.
func (s *Store) examine(e *endpoint, policy *store.HealthPolicy, o *store.Outcome, now time.Time) *store.HealthChange {
	health, change := e.record.Health.Next(*policy, o.Health, o.Attempt.StartedAt, now)
	e.record.Health, change.Health = health, health
	if change.Paused {
		e.record.Active = false
		e.record.PauseReason = policy.PauseReason
		e.record.UpdatedAt = whole(now)
		s.changed(e)
	}
	if !change.Degraded && !change.Paused && !change.Recovered {
		return nil
	}
	change.EndpointID, change.WorkspaceID, change.Revision = e.record.ID, e.record.WorkspaceID, e.record.Revision
	return &change
}

// Renew implements store.Store.
func (s *Store) Renew(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()

	var lost []int64
	for _, ref := range leases {
		d := s.held(ref.DeliveryID, ref.Token)
		// One that ran out may have had to give way to an earlier one of its key.
		if d == nil || d.place == blocked {
			lost = append(lost, ref.DeliveryID)
			continue
		}
		e := d.endpoint
		e.renew(d, millis(until))
		s.schedule(e)
	}
	return lost, nil
}

// Release implements store.Store.
func (s *Store) Release(ctx context.Context, releases []store.Release) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()

	for i := range releases {
		r := &releases[i]
		d := s.held(r.DeliveryID, r.Token)
		if d == nil {
			continue
		}
		d.token = 0
		if r.Error != nil {
			d.lastError = bytes.Clone(r.Error)
		}
		if r.Interrupted {
			d.interruptions++
		}
		d.endpoint.dequeue(d)
		if !r.DueAt.IsZero() {
			d.due = millis(r.DueAt)
		}
		d.endpoint.enqueue(d)
		s.schedule(d.endpoint)
	}
	return nil
}
