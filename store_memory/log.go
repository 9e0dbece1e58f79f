package memorystore

import (
	"bytes"
	"context"
	"iter"
	"math"
	"slices"

	"github.com/elido-app/webhook/store"
)

// copy returns a delivery as the log shows it.
func (d *delivery) copy() store.Delivery {
	c := store.Delivery{
		ID:            d.id,
		WorkspaceID:   d.endpoint.record.WorkspaceID,
		EndpointID:    d.endpoint.record.ID,
		EventID:       d.event.id,
		EventType:     d.event.kind,
		OrderingKey:   d.event.key,
		Status:        d.status,
		Attempts:      d.attempts,
		Budget:        d.budget,
		TotalAttempts: d.total,
		Interruptions: d.interruptions,
		LastStatus:    d.lastStatus,
		LastLatency:   d.lastLatency,
		LastError:     bytes.Clone(d.lastError),
		CreatedAt:     instant(d.created),
		CompletedAt:   instant(d.completed),
		Payload:       bytes.Clone(d.event.payload),
		Message:       bytes.Clone(d.message),
	}
	if d.status == store.StatusPending {
		c.NextAttemptAt = instant(d.due)
	}
	return c
}

// finish enters a delivery that is no longer pending where such are kept.
func (s *Store) finish(d *delivery, now int64) {
	d.completed = now
	s.finished.insert(d)
	d.endpoint.finished.insert(d)
	if d.status == store.StatusFailed {
		d.endpoint.failed.insert(d)
	}
}

// unfinish undoes finish.
func (s *Store) unfinish(d *delivery) {
	s.finished.remove(d)
	d.endpoint.finished.remove(d)
	d.endpoint.failed.remove(d)
	d.completed = unset
}

// Deliveries implements store.Store.
func (s *Store) Deliveries(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()

	// The list ends above the first position, which is the lower of two.
	end := &delivery{created: math.MaxInt64}
	if !f.Until.IsZero() {
		end = &delivery{created: millis(f.Until)}
	}
	if f.Before.DeliveryID != 0 {
		before := &delivery{created: millis(f.Before.CreatedAt), id: f.Before.DeliveryID}
		if byCreation(before, end) < 0 {
			end = before
		}
	}
	since := millis(f.Since)
	skip := f.Offset
	var found []store.Delivery
	for d := range s.newest(f, end) {
		if d.created < since {
			break
		}
		if d.endpoint.deleted || f.Status != "" && d.status != f.Status || f.EventType != "" && d.event.kind != f.EventType {
			continue
		}
		if skip--; skip >= 0 {
			continue
		}
		found = append(found, d.copy())
		if len(found) == f.Limit {
			break
		}
	}
	return found, nil
}

// newest iterates downwards from end over a workspace's deliveries, or those
// of one endpoint or event in it.
func (s *Store) newest(f store.DeliveryFilter, end *delivery) iter.Seq[*delivery] {
	none := func(func(*delivery) bool) {}
	w := s.workspaces[f.WorkspaceID]
	if w == nil {
		return none
	}
	log := &w.log
	if f.EndpointID != 0 {
		e := s.find(f.WorkspaceID, f.EndpointID)
		if e == nil {
			return none
		}
		log = &e.log
	}
	if f.EventID == "" {
		return log.below(end)
	}
	var of []*delivery
	for _, d := range s.byEvent[f.EventID] {
		record := &d.endpoint.record
		if record.WorkspaceID == f.WorkspaceID && (f.EndpointID == 0 || record.ID == f.EndpointID) && byCreation(d, end) < 0 {
			of = append(of, d)
		}
	}
	slices.SortFunc(of, func(a, b *delivery) int { return byCreation(b, a) })
	return slices.Values(of)
}

// entry returns a delivery that is not gone from a workspace's log, or nil.
func (s *Store) entry(workspaceID, id int64) *delivery {
	d := s.deliveries[id]
	if d == nil || d.endpoint.deleted || d.endpoint.record.WorkspaceID != workspaceID {
		return nil
	}
	return d
}

// Delivery implements store.Store.
func (s *Store) Delivery(ctx context.Context, workspaceID, id int64) (store.Delivery, error) {
	if err := s.begin(ctx); err != nil {
		return store.Delivery{}, err
	}
	defer s.mu.Unlock()

	d := s.entry(workspaceID, id)
	if d == nil {
		return store.Delivery{}, store.ErrNotFound
	}
	return d.copy(), nil
}

// Attempts implements store.Store.
func (s *Store) Attempts(ctx context.Context, workspaceID, deliveryID int64) ([]store.Attempt, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()

	d := s.entry(workspaceID, deliveryID)
	if d == nil {
		return nil, store.ErrNotFound
	}
	rows := make([]store.Attempt, len(d.rows))
	for i, row := range d.rows {
		rows[i] = copyAttempt(row)
	}
	return rows, nil
}

// Retry implements store.Store.
func (s *Store) Retry(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
	if err := s.begin(ctx); err != nil {
		return store.Delivery{}, err
	}
	defer s.mu.Unlock()

	d := s.entry(p.WorkspaceID, p.DeliveryID)
	if d == nil {
		return store.Delivery{}, store.ErrNotFound
	}
	if d.status == store.StatusPending {
		return store.Delivery{}, store.ErrPending
	}
	s.requeue(d, p.Budget, millis(p.Now))
	return d.copy(), nil
}

// requeue makes a delivered or failed delivery pending with a fresh budget.
func (s *Store) requeue(d *delivery, budget int, now int64) {
	s.unfinish(d)
	d.status, d.attempts, d.interruptions, d.budget, d.due = store.StatusPending, 0, 0, budget, now
	d.endpoint.enqueue(d)
	s.schedule(d.endpoint)
}

// Recover implements store.Store.
func (s *Store) Recover(ctx context.Context, p store.RecoverParams) (int, error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()

	e := s.find(p.WorkspaceID, p.EndpointID)
	if e == nil {
		return 0, store.ErrNotFound
	}
	now := millis(p.Now)
	var batch []*delivery
	for d := range e.failed.from(&delivery{completed: millis(p.Since)}) {
		if d.completed > now {
			break
		}
		if batch = append(batch, d); len(batch) == p.Limit {
			break
		}
	}
	for _, d := range batch {
		s.requeue(d, p.Budget, now)
	}
	return len(batch), nil
}
