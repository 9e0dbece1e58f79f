package memorystore

import (
	"context"

	"github.com/elido-app/webhook/store"
)

// Secrets implements store.Store.
func (s *Store) Secrets(ctx context.Context, f store.SecretsFilter) ([]store.EndpointSecrets, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()

	var found []store.EndpointSecrets
	after := &endpoint{record: store.Endpoint{ID: f.After}}
	for e := range s.live.from(after) {
		if e.record.ID == f.After {
			continue
		}
		found = append(found, store.EndpointSecrets{
			WorkspaceID: e.record.WorkspaceID, EndpointID: e.record.ID, Revision: e.record.Revision, Secrets: e.secrets,
		})
		if len(found) == f.Limit {
			break
		}
	}
	return found, nil
}

// Reseal implements store.Store.
func (s *Store) Reseal(ctx context.Context, secrets []store.EndpointSecrets) ([]int64, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()

	var stale []int64
	for i := range secrets {
		r := &secrets[i]
		e := s.find(r.WorkspaceID, r.EndpointID)
		if e == nil || e.record.Revision != r.Revision {
			stale = append(stale, r.EndpointID)
			continue
		}
		e.secrets.Current, e.secrets.Previous, e.secrets.Credentials = r.Secrets.Current, r.Secrets.Previous, r.Secrets.Credentials
		s.changed(e)
	}
	return stale, nil
}
