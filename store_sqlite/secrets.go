//go:build cgo

package sqlitestore

import (
	"context"

	"github.com/elido-app/webhook/store"
)

var (
	selectSecrets = &query{sql: `SELECT workspace_id, id, revision, current_key, current_secret,
		previous_key, previous_secret, previous_until, credentials_key, credentials
		FROM webhook_endpoints WHERE id > ? AND deleted_at IS NULL ORDER BY id LIMIT ?`}
	selectUnchanged = &query{sql: `SELECT 1 FROM webhook_endpoints
		WHERE id = ? AND workspace_id = ? AND revision = ? AND deleted_at IS NULL`}
	updateSecrets = &query{sql: `UPDATE webhook_endpoints SET current_key = ?, current_secret = ?,
		previous_key = ?, previous_secret = ?, credentials_key = ?, credentials = ?, revision = ? WHERE id = ?`}
)

// Secrets implements store.Store.
func (s *Store) Secrets(ctx context.Context, f store.SecretsFilter) ([]store.EndpointSecrets, error) {
	var list []store.EndpointSecrets
	err := s.read(ctx, "secrets", selectSecrets.sql, func() { list = nil }, func(r row) {
		list = append(list, store.EndpointSecrets{
			WorkspaceID: integer(r[0]), EndpointID: integer(r[1]), Revision: integer(r[2]),
			Secrets: store.Secrets{
				Current:       sealed(r[3], r[4]),
				Previous:      sealed(r[5], r[6]),
				PreviousUntil: instant(r[7]),
				Credentials:   sealed(r[8], r[9]),
			},
		})
	}, f.After, limit(f.Limit))
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Reseal implements store.Store.
func (s *Store) Reseal(ctx context.Context, secrets []store.EndpointSecrets) ([]int64, error) {
	var stale []int64
	err := s.write(ctx, "reseal", len(secrets), func(tx *transaction) error {
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
		return nil
	})
	if err != nil {
		return nil, err
	}
	return stale, nil
}

// reseal replaces the secret material of one endpoint, unless it changed since.
func (tx *transaction) reseal(r *store.EndpointSecrets) (resealed bool, err error) {
	same, err := tx.has(selectUnchanged, r.EndpointID, r.WorkspaceID, r.Revision)
	if err != nil || !same {
		return false, err
	}
	tx.endpoints.forget()
	s := &r.Secrets
	return true, tx.run(updateSecrets, nil, s.Current.KeyID, secret(s.Current), s.Previous.KeyID, secret(s.Previous),
		s.Credentials.KeyID, secret(s.Credentials), tx.revise(), r.EndpointID)
}
