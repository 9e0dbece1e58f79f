package storetest_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/elido-app/webhook/store"
)

var endpointFlaws = []flaw{
	{"a create that drops a field", func(b *broken, good store.Store) {
		b.create = func(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
			p.Endpoint.PauseReason = ""
			return good.CreateEndpoint(ctx, p)
		}
	}, []string{"create/fields"}},

	{"a create that seals before it knows the id", func(b *broken, good store.Store) {
		b.create = func(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
			seal := p.Seal
			p.Seal = func(int64) (store.Secrets, error) { return seal(0) }
			return good.CreateEndpoint(ctx, p)
		}
	}, []string{"create/seal", "create/import"}},

	{"a create that stores an endpoint whose Seal failed", func(b *broken, good store.Store) {
		b.create = func(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
			var failed error
			seal := p.Seal
			p.Seal = func(id int64) (s store.Secrets, err error) {
				s, failed = seal(id)
				return s, nil
			}
			e, err := good.CreateEndpoint(ctx, p)
			return e, errors.Join(err, failed)
		}
	}, []string{"create/seal error"}},

	{"ids that are used again after a delete", func(b *broken, good store.Store) {
		var free []int64
		b.remove = func(ctx context.Context, workspaceID, id int64, at time.Time) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			free = append(free, id)
			return good.DeleteEndpoint(ctx, workspaceID, id, at)
		}
		b.create = func(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if i := slices.Index(free, p.Endpoint.ID); i >= 0 { // an import
				p.Endpoint.ID = 0
			}
			e, err := good.CreateEndpoint(ctx, p)
			if err == nil && len(free) > 0 {
				e.ID = free[0]
			}
			return e, err
		}
	}, []string{"create/ids", "create/import of a taken id"}},

	{"an import that gets whatever id is free", func(b *broken, good store.Store) {
		b.create = func(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
			p.Endpoint.ID = 0
			return good.CreateEndpoint(ctx, p)
		}
	}, []string{"create/import", "create/import of a taken id"}},

	{"revisions that each endpoint counts for itself", func(b *broken, good store.Store) {
		b.create = func(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
			e, err := good.CreateEndpoint(ctx, p)
			e.Revision = 1
			return e, err
		}
	}, []string{"create/revision"}},

	{"an endpoint that is read under any workspace", func(b *broken, good store.Store) {
		b.endpoint = func(ctx context.Context, workspaceID, id int64) (store.Endpoint, error) {
			return everywhere(workspaceID, func(w int64) (store.Endpoint, error) { return good.Endpoint(ctx, w, id) })
		}
	}, []string{"endpoint/not found", "isolation"}},

	{"a list of endpoints in order of their changes", func(b *broken, good store.Store) {
		b.endpoints = func(ctx context.Context, f store.EndpointFilter) ([]store.Endpoint, error) {
			list, err := good.Endpoints(ctx, store.EndpointFilter{WorkspaceID: f.WorkspaceID, After: f.After})
			slices.SortFunc(list, func(a, b store.Endpoint) int { return int(a.Revision - b.Revision) })
			if f.Limit > 0 {
				list = list[:min(len(list), f.Limit)]
			}
			return list, err
		}
	}, []string{"endpoints/paging"}},

	{"an empty list that is an error", func(b *broken, good store.Store) {
		b.endpoints = func(ctx context.Context, f store.EndpointFilter) ([]store.Endpoint, error) {
			list, err := good.Endpoints(ctx, f)
			if len(list) == 0 && err == nil {
				err = store.ErrNotFound
			}
			return list, err
		}
		b.deliveries = func(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
			list, err := good.Deliveries(ctx, f)
			if len(list) == 0 && err == nil {
				err = store.ErrNotFound
			}
			return list, err
		}
	}, []string{"endpoints/none", "deliveries/none"}},

	{"an update that takes what is empty for what is not given", func(b *broken, good store.Store) {
		b.update = func(ctx context.Context, e store.Endpoint, c *store.Sealed) (store.Endpoint, error) {
			if old, err := good.Endpoint(ctx, e.WorkspaceID, e.ID); err == nil && e.Description == "" {
				e.Description = old.Description
			}
			return good.UpdateEndpoint(ctx, e, c)
		}
	}, []string{"update/fields"}},

	{"an update without a check of the revision", func(b *broken, good store.Store) {
		b.update = func(ctx context.Context, e store.Endpoint, c *store.Sealed) (store.Endpoint, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if now, err := good.Endpoint(ctx, e.WorkspaceID, e.ID); err == nil {
				e.Revision = now.Revision
			}
			return good.UpdateEndpoint(ctx, e, c)
		}
	}, []string{"update/conflict", "update/concurrent"}},

	{"an update without credentials that erases them", func(b *broken, good store.Store) {
		b.update = func(ctx context.Context, e store.Endpoint, c *store.Sealed) (store.Endpoint, error) {
			if c == nil {
				c = &store.Sealed{}
			}
			return good.UpdateEndpoint(ctx, e, c)
		}
	}, []string{"update/credentials"}},

	{"a resume that keeps the failures", func(b *broken, good store.Store) {
		b.update = func(ctx context.Context, e store.Endpoint, c *store.Sealed) (store.Endpoint, error) {
			old, err := good.Endpoint(ctx, e.WorkspaceID, e.ID)
			if err != nil {
				return old, err
			}
			e, err = good.UpdateEndpoint(ctx, e, c)
			e.Health = old.Health
			return e, err
		}
	}, []string{"update/resume"}},

	{"an update or rotation that finds nothing and says so with another error", func(b *broken, good store.Store) {
		b.update = func(ctx context.Context, e store.Endpoint, c *store.Sealed) (store.Endpoint, error) {
			e, err := good.UpdateEndpoint(ctx, e, c)
			if errors.Is(err, store.ErrNotFound) {
				err = store.ErrConflict
			}
			return e, err
		}
		b.rotate = func(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
			e, err := good.RotateSecret(ctx, p)
			if errors.Is(err, store.ErrNotFound) {
				err = store.ErrConflict
			}
			return e, err
		}
	}, []string{"update/not found", "rotate/not found"}},

	{"targets that are remembered for ever", func(b *broken, good store.Store) {
		targets := map[int64]*store.Target{}
		b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			r, err := good.Claim(ctx, p)
			for i := range r.Leases {
				l := &r.Leases[i]
				if targets[l.Target.EndpointID] == nil {
					targets[l.Target.EndpointID] = l.Target
				}
				l.Target = targets[l.Target.EndpointID]
			}
			return r, err
		}
	}, []string{"update/target", "rotate/overlap", "reseal/replaces"}},

	{"an update that leaves the subscription", func(b *broken, good store.Store) {
		b.update = func(ctx context.Context, e store.Endpoint, c *store.Sealed) (store.Endpoint, error) {
			events := e.Events
			if old, err := good.Endpoint(ctx, e.WorkspaceID, e.ID); err == nil {
				e.Events = old.Events
			}
			e, err := good.UpdateEndpoint(ctx, e, c)
			e.Events = events
			return e, err
		}
	}, []string{"update/subscription"}},

	{"a delete that hides the endpoint and nothing of it", func(b *broken, good store.Store) {
		hidden := map[int64]bool{}
		b.remove = func(ctx context.Context, workspaceID, id int64, _ time.Time) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			_, err := good.Endpoint(ctx, workspaceID, id)
			hidden[id] = err == nil
			return err
		}
		b.endpoint = func(ctx context.Context, workspaceID, id int64) (store.Endpoint, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if hidden[id] {
				return store.Endpoint{}, store.ErrNotFound
			}
			return good.Endpoint(ctx, workspaceID, id)
		}
		b.endpoints = func(ctx context.Context, f store.EndpointFilter) ([]store.Endpoint, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			list, err := good.Endpoints(ctx, f)
			return slices.DeleteFunc(list, func(e store.Endpoint) bool { return hidden[e.ID] }), err
		}
	}, []string{"delete/not found", "delete/not claimed", "delete/stale", "delete/secrets", "publish/matching"}},

	{"a delete that can be repeated", func(b *broken, good store.Store) {
		b.remove = func(ctx context.Context, workspaceID, id int64, at time.Time) error {
			err := good.DeleteEndpoint(ctx, workspaceID, id, at)
			if errors.Is(err, store.ErrNotFound) {
				err = nil
			}
			return err
		}
	}, []string{"delete/again"}},
}

var secretFlaws = []flaw{
	{"a rotation that forgets its overlap", func(b *broken, good store.Store) {
		b.rotate = func(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
			p.PreviousUntil = time.Time{}
			return good.RotateSecret(ctx, p)
		}
	}, []string{"rotate/overlap", "rotate/twice"}},

	{"a rotation that keeps the oldest secret as the previous", func(b *broken, good store.Store) {
		b.rotate = func(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
			before, err := good.Secrets(ctx, store.SecretsFilter{After: p.EndpointID - 1, Limit: 1})
			if err != nil {
				return store.Endpoint{}, err
			}
			e, err := good.RotateSecret(ctx, p)
			if err != nil || len(before) == 0 || before[0].Secrets.Previous.IsZero() {
				return e, err
			}
			after := before[0]
			after.Revision, after.Secrets.Current = e.Revision, p.Secret
			if _, err := good.Reseal(ctx, []store.EndpointSecrets{after}); err != nil {
				return e, err
			}
			return good.Endpoint(ctx, p.WorkspaceID, p.EndpointID)
		}
	}, []string{"rotate/twice"}},

	{"a rotation that always has an overlap", func(b *broken, good store.Store) {
		b.rotate = func(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
			if p.PreviousUntil.IsZero() {
				p.PreviousUntil = p.At.Add(time.Hour)
			}
			return good.RotateSecret(ctx, p)
		}
	}, []string{"rotate/no overlap"}},

	{"a rotation that does not look at what was seen", func(b *broken, good store.Store) {
		b.rotate = func(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if e, err := good.Endpoint(ctx, p.WorkspaceID, p.EndpointID); err == nil {
				p.Seen = e.Rotations
			}
			return good.RotateSecret(ctx, p)
		}
	}, []string{"rotate/seen", "rotate/concurrent"}},

	{"a list of secrets without those of paused endpoints", func(b *broken, good store.Store) {
		b.secrets = func(ctx context.Context, f store.SecretsFilter) ([]store.EndpointSecrets, error) {
			list, err := good.Secrets(ctx, f)
			return slices.DeleteFunc(list, func(s store.EndpointSecrets) bool {
				e, err := good.Endpoint(ctx, s.WorkspaceID, s.EndpointID)
				return err == nil && !e.Active
			}), err
		}
	}, []string{"secrets/listed"}},

	{"a reseal that keeps the secrets it is not about", func(b *broken, good store.Store) {
		b.reseal = func(ctx context.Context, list []store.EndpointSecrets) ([]int64, error) {
			list = slices.Clone(list)
			for i := range list {
				old, err := good.Secrets(ctx, store.SecretsFilter{After: list[i].EndpointID - 1, Limit: 1})
				if err != nil || len(old) == 0 {
					return nil, err
				}
				list[i].Secrets.Previous, list[i].Secrets.Credentials = old[0].Secrets.Previous, old[0].Secrets.Credentials
			}
			return good.Reseal(ctx, list)
		}
	}, []string{"reseal/replaces"}},

	{"a reseal that does not look at the revision", func(b *broken, good store.Store) {
		var rotations atomic.Int64
		b.rotate = func(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
			defer rotations.Add(1)
			return good.RotateSecret(ctx, p)
		}
		b.reseal = func(ctx context.Context, list []store.EndpointSecrets) ([]int64, error) {
			list = slices.Clone(list)
			before := rotations.Load()
			await(func() bool { return rotations.Load() > before })
			for i := range list {
				if e, err := good.Endpoint(ctx, list[i].WorkspaceID, list[i].EndpointID); err == nil {
					list[i].Revision = e.Revision
				}
			}
			return good.Reseal(ctx, list)
		}
	}, []string{"reseal/stale", "reseal/beside rotation"}},
}
