package memorystore

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/elido-app/webhook/store"
)

// keyUse is the first use of an idempotency key.
type keyUse struct {
	workspace *workspace
	key       string
	digest    [32]byte
	receipt   store.Receipt
	usedAt    int64
	serial    int64 // tells uses at one instant apart
}

func byFirstUse(a, b *keyUse) int {
	return cmp.Or(cmp.Compare(a.usedAt, b.usedAt), cmp.Compare(a.serial, b.serial))
}

// Publish implements store.Publisher.
func (s *Store) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	if err := s.begin(ctx); err != nil {
		return store.PublishResult{}, err
	}
	defer s.mu.Unlock()

	if err := s.checkKeys(p.Events); err != nil {
		return store.PublishResult{}, err
	}
	now := millis(p.Now)
	r := store.PublishResult{Receipts: make([]store.Receipt, len(p.Events))}
	s.fresh = s.fresh[:0]
	for i := range p.Events {
		r.Receipts[i] = s.publish(&p.Events[i], now)
	}
	if p.Handoff != nil {
		r.Leases = s.handOff(p.Handoff, now)
	}
	for _, d := range s.fresh {
		r.Queued = r.Queued || d.place == ready
		s.schedule(d.endpoint)
	}
	clear(s.fresh)
	return r, nil
}

// checkKeys returns an error if an idempotency key was used for other content,
// before or within events.
func (s *Store) checkKeys(events []store.NewEvent) error {
	type name struct {
		workspace int64
		key       string
	}
	var within map[name]*store.NewEvent
	for i := range events {
		ev := &events[i]
		if ev.IdempotencyKey == "" {
			continue
		}
		if w := s.workspaces[ev.WorkspaceID]; w != nil {
			if used := w.keys[ev.IdempotencyKey]; used != nil {
				if used.digest != ev.Digest {
					return &store.EventError{Index: i, Err: store.ErrIdempotencyConflict}
				}
				continue
			}
		}
		if len(events) == 1 {
			break
		}
		n := name{ev.WorkspaceID, ev.IdempotencyKey}
		if first := within[n]; first == nil {
			if within == nil {
				within = map[name]*store.NewEvent{}
			}
			within[n] = ev
		} else if first.Digest != ev.Digest {
			return &store.EventError{Index: i, Err: store.ErrIdempotencyConflict}
		}
	}
	return nil
}

// publish stores one event with its deliveries, which it adds to s.fresh.
func (s *Store) publish(ev *store.NewEvent, now int64) store.Receipt {
	w := s.workspaces[ev.WorkspaceID]
	if ev.IdempotencyKey != "" {
		w = s.workspace(ev.WorkspaceID)
		if used := w.keys[ev.IdempotencyKey]; used != nil {
			repeat := used.receipt
			repeat.DeliveryIDs = slices.Clone(repeat.DeliveryIDs)
			repeat.Repeat = true
			return repeat
		}
	}
	first := len(s.fresh)
	if w != nil {
		s.store(w, ev, now)
	}
	receipt := store.Receipt{EventID: ev.ID, DeliveryIDs: make([]int64, 0, len(s.fresh)-first)}
	for _, d := range s.fresh[first:] {
		receipt.DeliveryIDs = append(receipt.DeliveryIDs, d.id)
	}
	if ev.IdempotencyKey != "" {
		s.remember(w, ev, receipt, now)
	}
	return receipt
}

// remember notes the first use of an idempotency key.
func (s *Store) remember(w *workspace, ev *store.NewEvent, receipt store.Receipt, now int64) {
	s.lastUse++
	use := &keyUse{
		workspace: w, key: ev.IdempotencyKey, digest: ev.Digest, receipt: receipt, usedAt: now, serial: s.lastUse,
	}
	use.receipt.DeliveryIDs = slices.Clone(receipt.DeliveryIDs)
	if w.keys == nil {
		w.keys = map[string]*keyUse{}
	}
	w.keys[ev.IdempotencyKey] = use
	s.keys.insert(use)
}

// store stores the deliveries of one event.
func (s *Store) store(w *workspace, ev *store.NewEvent, now int64) {
	var one [1]*endpoint
	to := one[:0]
	if ev.EndpointID == 0 {
		to = s.subscribers(w, ev.Matches)
	} else if e := s.find(ev.WorkspaceID, ev.EndpointID); e != nil && e.record.Active {
		to = append(to, e)
	}
	if len(to) == 0 {
		return
	}
	shared := &event{id: ev.ID, kind: ev.Type, key: ev.OrderingKey, trace: ev.Trace, payload: bytes.Clone(ev.Payload)}
	at := instant(now)
	for _, e := range to {
		s.lastDelivery++
		d := &delivery{
			id: s.lastDelivery, endpoint: e, event: shared, status: store.StatusPending, budget: ev.Budget,
			created: now, due: now, completed: unset,
		}
		if ev.DegradedBudget != 0 && e.record.Health.Degraded(at) {
			d.budget = ev.DegradedBudget
		}
		s.deliveries[d.id] = d
		s.byEvent[shared.id] = append(s.byEvent[shared.id], d)
		w.log.insert(d)
		e.log.insert(d)
		e.enqueue(d)
		s.fresh = append(s.fresh, d)
	}
}

// subscription is what an endpoint can be found by: one entry of its Events,
// or that it wants everything.
type subscription struct {
	name       string
	everything bool
}

// subscribers returns the active endpoints that an event with these matches
// selects, in order of id. The slice is valid until the next call.
func (s *Store) subscribers(w *workspace, matches []string) []*endpoint {
	if w.subscribers == nil {
		w.subscribers = map[subscription][]*endpoint{}
		for e := range w.endpoints.all() {
			w.subscribe(e)
		}
	}
	s.selected = s.selected[:0]
	s.selectAll(w.subscribers[subscription{everything: true}])
	for _, m := range matches {
		s.selectAll(w.subscribers[subscription{name: m}])
	}
	for _, e := range s.selected {
		e.selected = false
	}
	slices.SortFunc(s.selected, byEndpointID)
	return s.selected
}

func (w *workspace) subscribe(e *endpoint) {
	switch {
	case !e.record.Active:
	case e.record.Kind == store.KindSIEM:
		all := subscription{everything: true}
		w.subscribers[all] = append(w.subscribers[all], e)
	default:
		for _, name := range e.record.Events {
			one := subscription{name: name}
			w.subscribers[one] = append(w.subscribers[one], e)
		}
	}
}

// selectAll adds endpoints to s.selected, each once.
func (s *Store) selectAll(endpoints []*endpoint) {
	for _, e := range endpoints {
		if !e.selected {
			e.selected = true
			s.selected = append(s.selected, e)
		}
	}
}

// handOff leases fresh deliveries that are next at their endpoint.
func (s *Store) handOff(p *store.LeaseParams, now int64) []store.Lease {
	for _, d := range s.fresh {
		d.endpoint.taken = 0
		d.endpoint.lapse(now)
	}
	until := millis(p.Until)
	var leases []store.Lease
	for _, d := range s.fresh {
		if len(leases) >= p.Room.Limit {
			break
		}
		e := d.endpoint
		if d.place != ready || e.ready.first() != d || e.taken >= p.Room.For(e.record.ID, e.record.MaxInFlight) {
			continue
		}
		e.taken++
		leases = e.lease(leases, d, p.Token, until)
	}
	return leases
}
