package memorystore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/elido-app/webhook/store"
)

// endpoint is an endpoint with its queue and its log. A deleted one keeps its
// rows until Maintain took them, and then its id and revision for ever.
type endpoint struct {
	record  store.Endpoint
	secrets store.Secrets
	target  *store.Target // made when first needed after a change
	deleted bool

	ready  heap[*delivery] // by due time and id
	leased heap[*delivery] // by the lease's end
	queues map[string]*keyQueue

	log      ordered[*delivery] // in the log's order
	finished ordered[*delivery] // the delivered and failed of them
	failed   ordered[*delivery] // the failed of them, by completion

	next         int64 // when a claim could give something, while in Store.due
	dueIndex     int
	overlapIndex int

	// Scratch space of Publish.
	taken    int  // leases handed off
	selected bool // is in Store.selected
}

func dueIndex(e *endpoint) *int { return &e.dueIndex }

func overlapIndex(e *endpoint) *int { return &e.overlapIndex }

func earlierDue(a, b *endpoint) bool {
	return a.next < b.next || a.next == b.next && a.record.ID < b.record.ID
}

func earlierEnd(a, b *endpoint) bool {
	return a.record.PreviousUntil.Before(b.record.PreviousUntil)
}

func byRevision(a, b *endpoint) int { return cmp.Compare(a.record.Revision, b.record.Revision) }

func byEndpointID(a, b *endpoint) int { return cmp.Compare(a.record.ID, b.record.ID) }

func newEndpoint() *endpoint {
	return &endpoint{
		ready:    heap[*delivery]{less: earlierReady, index: deliveryIndex},
		leased:   heap[*delivery]{less: earlierUntil, index: deliveryIndex},
		queues:   map[string]*keyQueue{},
		log:      ordered[*delivery]{compare: byCreation},
		finished: ordered[*delivery]{compare: byCreation},
		failed:   ordered[*delivery]{compare: byCompletion},
	}
}

// copyEndpoint returns what the caller and the store do not share.
func copyEndpoint(e store.Endpoint) store.Endpoint {
	e.Events = slices.Clone(e.Events)
	e.Config = maps.Clone(e.Config)
	e.Headers = maps.Clone(e.Headers)
	return e
}

// aim returns what requests to the endpoint need.
func (e *endpoint) aim() *store.Target {
	if e.target == nil {
		e.target = &store.Target{
			EndpointID:  e.record.ID,
			WorkspaceID: e.record.WorkspaceID,
			Kind:        e.record.Kind,
			URL:         e.record.URL,
			Config:      maps.Clone(e.record.Config),
			Headers:     maps.Clone(e.record.Headers),
			MaxInFlight: e.record.MaxInFlight,
			RateLimit:   e.record.RateLimit,
			Secrets:     e.secrets,
			Revision:    e.record.Revision,
		}
	}
	return e.target
}

// changed gives an endpoint its next revision and puts it where its new state
// belongs.
func (s *Store) changed(e *endpoint) {
	s.changes.remove(e)
	s.revision++
	e.record.Revision = s.revision
	s.changes.insert(e)

	e.target = nil
	s.workspaces[e.record.WorkspaceID].subscribers = nil
	s.schedule(e)
	if e.record.PreviousUntil.IsZero() {
		s.overlaps.remove(e)
	} else {
		s.overlaps.push(e)
	}
}

// schedule says when a claim could next give something of an endpoint.
func (s *Store) schedule(e *endpoint) {
	if !e.record.Active || e.deleted || e.ready.len()+e.leased.len() == 0 {
		s.due.remove(e)
		return
	}
	var next int64
	switch {
	case e.leased.len() == 0:
		next = e.ready.first().due
	case e.ready.len() == 0:
		next = e.leased.first().until
	default:
		next = min(e.ready.first().due, e.leased.first().until)
	}
	if e.dueIndex == 0 || e.next != next {
		e.next = next
		s.due.push(e)
	}
}

// find returns a live endpoint of a workspace, or nil.
func (s *Store) find(workspaceID, id int64) *endpoint {
	e := s.endpoints[id]
	if e == nil || e.deleted || e.record.WorkspaceID != workspaceID {
		return nil
	}
	return e
}

// CreateEndpoint implements store.Store.
func (s *Store) CreateEndpoint(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
	if err := s.begin(ctx); err != nil {
		return store.Endpoint{}, err
	}
	defer s.mu.Unlock()

	id := p.Endpoint.ID
	if id == 0 {
		id = s.lastEndpoint + 1
	} else if s.endpoints[id] != nil {
		return store.Endpoint{}, store.ErrConflict
	}
	secrets, err := p.Seal(id)
	if err != nil {
		return store.Endpoint{}, err
	}

	e := newEndpoint()
	e.record = copyEndpoint(p.Endpoint)
	e.record.ID = id
	e.record.Revision = 0
	for _, t := range []*time.Time{
		&e.record.CreatedAt, &e.record.UpdatedAt, &e.record.PreviousUntil,
		&e.record.Health.FailedAt, &e.record.Health.DegradedUntil, &secrets.PreviousUntil,
	} {
		*t = whole(*t)
	}
	e.secrets = secrets
	s.lastEndpoint = max(s.lastEndpoint, id)
	s.endpoints[id] = e
	s.live.insert(e)
	s.workspace(e.record.WorkspaceID).endpoints.insert(e)
	s.changed(e)
	return copyEndpoint(e.record), nil
}

// Endpoint implements store.Store.
func (s *Store) Endpoint(ctx context.Context, workspaceID, id int64) (store.Endpoint, error) {
	if err := s.begin(ctx); err != nil {
		return store.Endpoint{}, err
	}
	defer s.mu.Unlock()

	e := s.find(workspaceID, id)
	if e == nil {
		return store.Endpoint{}, store.ErrNotFound
	}
	return copyEndpoint(e.record), nil
}

// Endpoints implements store.Store.
func (s *Store) Endpoints(ctx context.Context, f store.EndpointFilter) ([]store.Endpoint, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()

	w := s.workspaces[f.WorkspaceID]
	if w == nil {
		return nil, nil
	}
	var found []store.Endpoint
	after := &endpoint{record: store.Endpoint{ID: f.After}}
	for e := range w.endpoints.from(after) {
		if e.record.ID == f.After {
			continue
		}
		found = append(found, copyEndpoint(e.record))
		if len(found) == f.Limit {
			break
		}
	}
	return found, nil
}

// UpdateEndpoint implements store.Store.
func (s *Store) UpdateEndpoint(ctx context.Context, change store.Endpoint, credentials *store.Sealed) (store.Endpoint, error) {
	if err := s.begin(ctx); err != nil {
		return store.Endpoint{}, err
	}
	defer s.mu.Unlock()

	e := s.find(change.WorkspaceID, change.ID)
	if e == nil {
		return store.Endpoint{}, store.ErrNotFound
	}
	if e.record.Revision != change.Revision {
		return store.Endpoint{}, store.ErrConflict
	}
	change = copyEndpoint(change)
	r := &e.record
	if change.Active && !r.Active {
		r.Health = store.Health{}
	}
	r.URL, r.Events, r.Config, r.Headers = change.URL, change.Events, change.Config, change.Headers
	r.Active, r.PauseReason, r.Description = change.Active, change.PauseReason, change.Description
	r.MaxInFlight, r.RateLimit = change.MaxInFlight, change.RateLimit
	r.UpdatedAt = whole(change.UpdatedAt)
	if credentials != nil {
		e.secrets.Credentials = *credentials
	}
	s.changed(e)
	return copyEndpoint(e.record), nil
}

// RotateSecret implements store.Store.
func (s *Store) RotateSecret(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
	if err := s.begin(ctx); err != nil {
		return store.Endpoint{}, err
	}
	defer s.mu.Unlock()

	e := s.find(p.WorkspaceID, p.EndpointID)
	if e == nil {
		return store.Endpoint{}, store.ErrNotFound
	}
	if e.record.Rotations != p.Seen {
		return store.Endpoint{}, store.ErrConflict
	}
	previous, until := store.Sealed{}, time.Time{}
	if !p.PreviousUntil.IsZero() {
		previous, until = e.secrets.Current, whole(p.PreviousUntil)
	}
	e.secrets.Current, e.secrets.Previous, e.secrets.PreviousUntil = p.Secret, previous, until
	e.record.PreviousUntil = until
	e.record.Rotations++
	e.record.UpdatedAt = whole(p.At)
	s.changed(e)
	return copyEndpoint(e.record), nil
}

// DeleteEndpoint implements store.Store.
func (s *Store) DeleteEndpoint(ctx context.Context, workspaceID, id int64, _ time.Time) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()

	e := s.find(workspaceID, id)
	if e == nil {
		return store.ErrNotFound
	}
	e.deleted = true
	e.secrets = store.Secrets{}
	e.record.PreviousUntil = time.Time{}
	s.live.remove(e)
	s.workspaces[workspaceID].endpoints.remove(e)
	s.changed(e)
	if e.log.len() > 0 {
		s.gone = append(s.gone, e)
	} else {
		s.bury(e)
	}
	return nil
}

// bury lets go of all of a deleted endpoint but what makes its id taken and
// its deletion known.
func (s *Store) bury(e *endpoint) {
	e.record = store.Endpoint{ID: e.record.ID, Revision: e.record.Revision}
	e.ready.items, e.leased.items, e.queues = nil, nil, nil
	e.log, e.finished, e.failed = ordered[*delivery]{}, ordered[*delivery]{}, ordered[*delivery]{}
}

// Probe implements store.Store.
func (s *Store) Probe(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
	if err := s.begin(ctx); err != nil {
		return store.ProbeResult{}, err
	}
	defer s.mu.Unlock()

	r := store.ProbeResult{Revision: s.revision, Due: s.countDue(p.Now, p.Count)}
	if s.due.len() > 0 {
		r.NextDue = instant(s.due.first().next)
	}
	if p.Since > 0 && p.Since < s.revision {
		after := &endpoint{record: store.Endpoint{Revision: p.Since + 1}}
		for e := range s.changes.from(after) {
			r.Changed = append(r.Changed, store.EndpointChange{EndpointID: e.record.ID, Revision: e.record.Revision})
		}
	}
	return r, nil
}

// countDue counts the due deliveries of active endpoints, up to a number.
func (s *Store) countDue(now time.Time, most int) int {
	n, at := 0, millis(now)
	s.due.each(func(e *endpoint) bool {
		if n >= most || e.next > at {
			return false
		}
		e.ready.each(func(d *delivery) bool {
			if n >= most || d.due > at {
				return false
			}
			n++
			return true
		})
		return true
	})
	return n
}
