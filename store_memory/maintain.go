package memorystore

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/elido-app/webhook/store"
)

// Maintain implements store.Store.
func (s *Store) Maintain(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
	if err := s.begin(ctx); err != nil {
		return store.MaintainResult{}, err
	}
	defer s.mu.Unlock()

	left := p.Limit
	if left <= 0 {
		left = math.MaxInt
	}
	var r store.MaintainResult
	r.Erased = s.eraseSecrets(p.Now, &left)
	r.Purged = s.purge(&left)
	r.Pruned = s.pruneByAge(p.PruneBefore, &left) + s.pruneByCount(p.KeepPerEndpoint, &left)
	r.Keys = s.forgetKeys(p.ForgetKeysBefore, &left)
	r.More = left < 0
	if s.overlaps.len() > 0 {
		r.NextEnd = s.overlaps.first().record.PreviousUntil
	}
	return r, nil
}

// take takes one row of what is left of a limit. It returns false, and leaves
// a mark below zero, if there is none.
func take(left *int) bool {
	if *left <= 0 {
		*left = -1
		return false
	}
	*left--
	return true
}

// eraseSecrets erases previous secrets whose overlap has ended.
func (s *Store) eraseSecrets(now time.Time, left *int) (n int) {
	if now.IsZero() {
		return 0
	}
	now = whole(now)
	for s.overlaps.len() > 0 && !s.overlaps.first().record.PreviousUntil.After(now) && take(left) {
		e := s.overlaps.first()
		e.secrets.Previous, e.secrets.PreviousUntil = store.Sealed{}, time.Time{}
		e.record.PreviousUntil = time.Time{}
		s.changed(e)
		n++
	}
	return n
}

// purge removes the rows of deleted endpoints.
func (s *Store) purge(left *int) (n int) {
	for len(s.gone) > 0 {
		e := s.gone[0]
		for e.log.len() > 0 {
			if !take(left) {
				return n
			}
			s.drop(e.log.first())
			n++
		}
		s.bury(e)
		s.gone = slices.Delete(s.gone, 0, 1)
	}
	return n
}

// pruneByAge removes deliveries that were completed before an instant.
func (s *Store) pruneByAge(before time.Time, left *int) (n int) {
	limit := millis(before)
	for s.finished.len() > 0 && s.finished.first().completed < limit && take(left) {
		s.drop(s.finished.first())
		n++
	}
	return n
}

// pruneByCount removes the oldest completed deliveries of each endpoint that
// has more than keep of them, in the order of revisions: the same calls lead to
// the same store.
func (s *Store) pruneByCount(keep int, left *int) (n int) {
	if keep <= 0 {
		return 0
	}
	for e := range s.changes.all() {
		for e.finished.len() > keep && !e.deleted && take(left) {
			s.drop(e.finished.first())
			n++
		}
	}
	return n
}

// forgetKeys forgets idempotency keys first used before an instant.
func (s *Store) forgetKeys(before time.Time, left *int) (n int) {
	limit := millis(before)
	for s.keys.len() > 0 && s.keys.first().usedAt < limit && take(left) {
		use := s.keys.first()
		s.keys.remove(use)
		delete(use.workspace.keys, use.key)
		n++
	}
	return n
}

// drop removes a delivery that is not in any queue.
func (s *Store) drop(d *delivery) {
	e := d.endpoint
	if d.status != store.StatusPending {
		s.unfinish(d)
	}
	e.log.remove(d)
	s.workspaces[e.record.WorkspaceID].log.remove(d)
	delete(s.deliveries, d.id)
	of := s.byEvent[d.event.id]
	if len(of) == 1 {
		delete(s.byEvent, d.event.id)
		return
	}
	i := slices.Index(of, d)
	s.byEvent[d.event.id] = slices.Delete(of, i, i+1)
}
