//go:build cgo

package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/elido-app/webhook/store"
)

// everyEvent is the subscription entry of endpoints that receive every event.
const everyEvent = ""

// endpointColumns are what readEndpoint reads.
const endpointColumns = `id, workspace_id, kind, url, events, active, pause_reason, description, config, headers,
	max_in_flight, rate_limit, created_at, updated_at, imported, rotations, previous_until,
	failures, failed_at, degraded_until, revision`

var (
	selectEndpoint = &query{sql: `SELECT ` + endpointColumns + ` FROM webhook_endpoints
		WHERE id = ? AND workspace_id = ? AND deleted_at IS NULL`}
	selectEndpoints = &query{sql: `SELECT ` + endpointColumns + ` FROM webhook_endpoints
		WHERE workspace_id = ? AND id > ? AND deleted_at IS NULL ORDER BY id LIMIT ?`}
	selectUsedID = &query{sql: `SELECT 1 FROM webhook_endpoints WHERE id = ?`}
	selectLastID = &query{sql: `SELECT ifnull(max(id), 0) FROM webhook_endpoints`}

	insertEndpoint = &query{sql: `INSERT INTO webhook_endpoints (` + endpointColumns + `,
		current_key, current_secret, previous_key, previous_secret, credentials_key, credentials)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`}
	updateEndpoint = &query{sql: `UPDATE webhook_endpoints SET url = ?, events = ?, active = ?, pause_reason = ?,
		description = ?, config = ?, headers = ?, max_in_flight = ?, rate_limit = ?, updated_at = ?,
		failures = ?, failed_at = ?, degraded_until = ?, revision = ? WHERE id = ?`}
	updateCredentials = &query{sql: `UPDATE webhook_endpoints SET credentials_key = ?, credentials = ? WHERE id = ?`}

	insertSubscription = &query{sql: `INSERT OR IGNORE INTO webhook_subscriptions (workspace_id, entry, endpoint_id)
		VALUES (?, ?, ?)`}
	deleteSubscription = &query{sql: `DELETE FROM webhook_subscriptions WHERE workspace_id = ? AND entry = ? AND endpoint_id = ?`}
)

var errLastID = errors.New("the highest possible endpoint id is in use")

// sealed reads a secret from its two columns.
func sealed(key, data driver.Value) store.Sealed {
	return store.Sealed{KeyID: text(key), Data: store.NewSecret(string(blob(data)))}
}

// secret returns a secret as it is stored.
func secret(s store.Sealed) driver.Value {
	if s.IsZero() {
		return nil
	}
	return []byte(s.Data.Reveal())
}

// entries returns an endpoint's subscription as it is matched.
func entries(e *store.Endpoint) []string {
	if e.Kind == store.KindSIEM {
		return []string{everyEvent}
	}
	list := slices.Clone(e.Events)
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(s string) bool { return s == everyEvent })
}

func readEndpoint(r row) (e store.Endpoint, err error) {
	e = store.Endpoint{
		ID: integer(r[0]), WorkspaceID: integer(r[1]), Kind: store.Kind(text(r[2])), URL: text(r[3]),
		Active: flag(r[5]), PauseReason: text(r[6]), Description: text(r[7]),
		MaxInFlight: int(integer(r[10])), RateLimit: real(r[11]), CreatedAt: instant(r[12]), UpdatedAt: instant(r[13]),
		Imported: flag(r[14]), Rotations: int(integer(r[15])), PreviousUntil: instant(r[16]),
		Health: store.Health{
			Failures: int(integer(r[17])), FailedAt: instant(r[18]), DegradedUntil: instant(r[19]),
		},
		Revision: integer(r[20]),
	}
	if e.Events, err = parse[[]string](r[4]); err != nil {
		return e, err
	}
	if e.Config, err = parse[map[string]string](r[8]); err != nil {
		return e, err
	}
	e.Headers, err = parse[map[string]string](r[9])
	return e, err
}

// CreateEndpoint implements store.Store.
func (s *Store) CreateEndpoint(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
	p.Endpoint = copyEndpoint(p.Endpoint)
	var created store.Endpoint
	err := s.write(ctx, "create endpoint", 1, func(tx *transaction) (err error) {
		created, err = tx.createEndpoint(p)
		return err
	})
	if err != nil {
		return store.Endpoint{}, err
	}
	return created, nil
}

func copyEndpoint(e store.Endpoint) store.Endpoint {
	e.Events = slices.Clone(e.Events)
	e.Config = maps.Clone(e.Config)
	e.Headers = maps.Clone(e.Headers)
	return e
}

func (tx *transaction) createEndpoint(p store.CreateEndpointParams) (store.Endpoint, error) {
	e := p.Endpoint
	if err := tx.assignID(&e); err != nil {
		return store.Endpoint{}, err
	}
	secrets, err := seal(p, e.ID)
	if err != nil {
		return store.Endpoint{}, err
	}
	e.Revision = tx.revise()
	err = tx.run(insertEndpoint, nil,
		e.ID, e.WorkspaceID, string(e.Kind), e.URL, document(e.Events), number(e.Active), e.PauseReason, e.Description,
		document(e.Config), document(e.Headers), int64(e.MaxInFlight), e.RateLimit, moment(e.CreatedAt),
		moment(e.UpdatedAt), number(e.Imported), int64(e.Rotations), moment(secrets.PreviousUntil),
		int64(e.Health.Failures), moment(e.Health.FailedAt), moment(e.Health.DegradedUntil), e.Revision,
		secrets.Current.KeyID, secret(secrets.Current), secrets.Previous.KeyID, secret(secrets.Previous),
		secrets.Credentials.KeyID, secret(secrets.Credentials))
	if err != nil {
		return store.Endpoint{}, err
	}
	for _, entry := range entries(&e) {
		if err := tx.run(insertSubscription, nil, e.WorkspaceID, entry, e.ID); err != nil {
			return store.Endpoint{}, err
		}
	}
	tx.endpoints.forget()
	return tx.mustRead(e.WorkspaceID, e.ID)
}

// assignID chooses an id, or makes sure that the one asked for was never used.
func (tx *transaction) assignID(e *store.Endpoint) error {
	if e.ID != 0 {
		used, err := tx.has(selectUsedID, e.ID)
		if err == nil && used {
			err = store.ErrConflict
		}
		return err
	}
	var last int64
	if err := tx.run(selectLastID, func(r row) { last = integer(r[0]) }); err != nil {
		return err
	}
	if last == math.MaxInt64 {
		return errLastID
	}
	e.ID = max(last, 0) + 1
	return nil
}

// seal calls p.Seal. Its error is returned as it is, and a panic as an error.
func seal(p store.CreateEndpointParams, id int64) (secrets store.Secrets, err error) {
	if p.Seal == nil {
		return store.Secrets{}, nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("sqlitestore: create endpoint: Seal panicked: %v", r)
		}
	}()
	return p.Seal(id)
}

// read returns one endpoint, or ErrNotFound.
func (tx *transaction) read(workspaceID, id int64) (store.Endpoint, error) {
	var (
		e         store.Endpoint
		malformed error
		found     bool
	)
	err := tx.run(selectEndpoint, func(r row) {
		e, malformed = readEndpoint(r)
		found = true
	}, id, workspaceID)
	switch {
	case err != nil:
		return e, err
	case malformed != nil:
		return e, tx.corrupt(malformed)
	case !found:
		return e, store.ErrNotFound
	}
	return e, nil
}

// mustRead returns an endpoint that was just written.
func (tx *transaction) mustRead(workspaceID, id int64) (store.Endpoint, error) {
	e, err := tx.read(workspaceID, id)
	if errors.Is(err, store.ErrNotFound) {
		err = tx.corrupt(err)
	}
	return e, err
}

// UpdateEndpoint implements store.Store.
func (s *Store) UpdateEndpoint(ctx context.Context, e store.Endpoint, credentials *store.Sealed) (store.Endpoint, error) {
	e = copyEndpoint(e)
	if credentials != nil {
		c := *credentials
		credentials = &c
	}
	var updated store.Endpoint
	err := s.write(ctx, "update endpoint", 1, func(tx *transaction) (err error) {
		updated, err = tx.updateEndpoint(e, credentials)
		return err
	})
	if err != nil {
		return store.Endpoint{}, err
	}
	return updated, nil
}

func (tx *transaction) updateEndpoint(e store.Endpoint, credentials *store.Sealed) (store.Endpoint, error) {
	old, err := tx.read(e.WorkspaceID, e.ID)
	if err != nil {
		return store.Endpoint{}, err
	}
	if old.Revision != e.Revision {
		return store.Endpoint{}, store.ErrConflict
	}
	health := old.Health
	if e.Active && !old.Active {
		health = store.Health{}
	}
	err = tx.run(updateEndpoint, nil, e.URL, document(e.Events), number(e.Active), e.PauseReason,
		e.Description, document(e.Config), document(e.Headers), int64(e.MaxInFlight), e.RateLimit, moment(e.UpdatedAt),
		int64(health.Failures), moment(health.FailedAt), moment(health.DegradedUntil), tx.revise(), e.ID)
	if err != nil {
		return store.Endpoint{}, err
	}
	if credentials != nil {
		err := tx.run(updateCredentials, nil, credentials.KeyID, secret(*credentials), e.ID)
		if err != nil {
			return store.Endpoint{}, err
		}
	}
	e.Kind = old.Kind
	if err := tx.resubscribe(&old, &e); err != nil {
		return store.Endpoint{}, err
	}
	tx.endpoints.forget()
	if e.Active != old.Active {
		tx.ready(e.ID)
	}
	return tx.mustRead(e.WorkspaceID, e.ID)
}

// resubscribe changes the rows that an endpoint is matched by.
func (tx *transaction) resubscribe(old, e *store.Endpoint) error {
	before, after := entries(old), entries(e)
	for _, entry := range before {
		if !slices.Contains(after, entry) {
			if err := tx.run(deleteSubscription, nil, e.WorkspaceID, entry, e.ID); err != nil {
				return err
			}
		}
	}
	for _, entry := range after {
		if !slices.Contains(before, entry) {
			if err := tx.run(insertSubscription, nil, e.WorkspaceID, entry, e.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

var (
	updateRotated = &query{sql: `UPDATE webhook_endpoints SET
		previous_key = CASE WHEN ?1 IS NULL THEN '' ELSE current_key END,
		previous_secret = CASE WHEN ?1 IS NULL THEN NULL ELSE current_secret END,
		previous_until = ?1, current_key = ?2, current_secret = ?3,
		rotations = rotations + 1, updated_at = ?4, revision = ?5 WHERE id = ?6`}
	updateDeleted = &query{sql: `UPDATE webhook_endpoints SET deleted_at = ?, revision = ?, active = 0, url = '', events = NULL,
		pause_reason = '', description = '', config = NULL, headers = NULL,
		current_key = '', current_secret = NULL, previous_key = '', previous_secret = NULL, previous_until = NULL,
		credentials_key = '', credentials = NULL WHERE id = ?`}
	// What is recorded for a deleted endpoint is stale. There are only as many
	// leases as requests under way, so looking through all of them is cheap.
	updateRevoked = &query{sql: `UPDATE webhook_deliveries SET state = 2, token = NULL, lease_until = NULL
		WHERE state = 1 AND lease_until >= ? AND endpoint_id = ?`}
)

// RotateSecret implements store.Store.
func (s *Store) RotateSecret(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
	var rotated store.Endpoint
	err := s.write(ctx, "rotate secret", 1, func(tx *transaction) error {
		old, err := tx.read(p.WorkspaceID, p.EndpointID)
		if err != nil {
			return err
		}
		if old.Rotations != p.Seen {
			return store.ErrConflict
		}
		err = tx.run(updateRotated, nil, moment(p.PreviousUntil), p.Secret.KeyID, secret(p.Secret), moment(p.At),
			tx.revise(), p.EndpointID)
		if err != nil {
			return err
		}
		tx.endpoints.forget()
		rotated, err = tx.mustRead(p.WorkspaceID, p.EndpointID)
		return err
	})
	if err != nil {
		return store.Endpoint{}, err
	}
	return rotated, nil
}

// DeleteEndpoint implements store.Store.
func (s *Store) DeleteEndpoint(ctx context.Context, workspaceID, id int64, deletedAt time.Time) error {
	return s.write(ctx, "delete endpoint", 1, func(tx *transaction) error {
		e, err := tx.read(workspaceID, id)
		if err != nil {
			return err
		}
		if err := tx.run(updateDeleted, nil, deletedAt.UnixMilli(), tx.revise(), id); err != nil {
			return err
		}
		for _, entry := range entries(&e) {
			if err := tx.run(deleteSubscription, nil, workspaceID, entry, id); err != nil {
				return err
			}
		}
		if err := tx.run(updateRevoked, nil, int64(math.MinInt64), id); err != nil {
			return err
		}
		tx.endpoints.forget()
		tx.ready(id)
		return nil
	})
}

// Endpoint implements store.Store.
func (s *Store) Endpoint(ctx context.Context, workspaceID, id int64) (store.Endpoint, error) {
	list, err := s.readEndpoints(ctx, selectEndpoint, id, workspaceID)
	if err == nil && len(list) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.Endpoint{}, err
	}
	return list[0], nil
}

// Endpoints implements store.Store.
func (s *Store) Endpoints(ctx context.Context, f store.EndpointFilter) ([]store.Endpoint, error) {
	return s.readEndpoints(ctx, selectEndpoints, f.WorkspaceID, f.After, limit(f.Limit))
}

func (s *Store) readEndpoints(ctx context.Context, q *query, args ...any) ([]store.Endpoint, error) {
	var list []store.Endpoint
	var malformed error
	err := s.read(ctx, "endpoints", q.sql, func() { list = nil }, func(r row) {
		e, err := readEndpoint(r)
		malformed = errors.Join(malformed, err)
		list = append(list, e)
	}, args...)
	if err == nil && malformed != nil {
		err = fmt.Errorf("sqlitestore: endpoints: %w: %w", ErrCorrupt, malformed)
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}
