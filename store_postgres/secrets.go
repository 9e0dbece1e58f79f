package postgresstore

import (
	"context"
	"errors"

	"github.com/elido-app/webhook/store"
)

const (
	selectSecrets = `SELECT workspace_id, id, revision, current_key, current_secret,
		previous_key, previous_secret, previous_until, credentials_key, credentials
		FROM webhook_endpoints WHERE id > $1 AND deleted_at IS NULL ORDER BY id LIMIT $2`
	//nolint:gosec // a statement
	updateSecrets = `UPDATE webhook_endpoints SET current_key = $2, current_secret = $3,
		previous_key = $4, previous_secret = $5, credentials_key = $6, credentials = $7, revision = $8 WHERE id = $1`
)

// Secrets implements store.Store.
func (s *Store) Secrets(ctx context.Context, f store.SecretsFilter) (list []store.EndpointSecrets, err error) {
	err = s.read(ctx, "secrets", func(tx *transaction) error {
		list = nil
		var (
			workspaceID, id, revision            int64
			currentKey, previousKey, credentials string
			current, previous, credential        []byte
			until                                *int64
		)
		tx.queue(selectSecrets, f.After, bound(f.Limit)).Query(each(func() error {
			list = append(list, store.EndpointSecrets{
				WorkspaceID: workspaceID, EndpointID: id, Revision: revision,
				Secrets: store.Secrets{
					Current:       sealed(currentKey, current),
					Previous:      sealed(previousKey, previous),
					PreviousUntil: instant(until),
					Credentials:   sealed(credentials, credential),
				},
			})
			return nil
		}, &workspaceID, &id, &revision, &currentKey, &current, &previousKey, &previous, &until, &credentials, &credential))
		return tx.send()
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Reseal implements store.Store.
func (s *Store) Reseal(ctx context.Context, secrets []store.EndpointSecrets) (stale []int64, err error) {
	err = s.write(ctx, "reseal", func(tx *transaction) error {
		stale = nil
		for i := range secrets {
			resealed, err := tx.reseal(&secrets[i])
			if err != nil {
				return err
			}
			if !resealed {
				stale = append(stale, secrets[i].EndpointID)
			}
		}
		return tx.send()
	})
	if err != nil {
		return nil, err
	}
	return stale, nil
}

// reseal replaces the secret material of one endpoint, unless it changed since.
func (tx *transaction) reseal(r *store.EndpointSecrets) (resealed bool, err error) {
	e, err := tx.oneEndpoint(lockEndpoint, r.WorkspaceID, r.EndpointID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case e.Revision != r.Revision:
		return false, nil
	}
	revision, err := tx.revise()
	if err != nil {
		return false, err
	}
	s := &r.Secrets
	tx.queue(updateSecrets, r.EndpointID, s.Current.KeyID, secret(s.Current), s.Previous.KeyID, secret(s.Previous),
		s.Credentials.KeyID, secret(s.Credentials), revision)
	return true, nil
}
