package postgresstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/elido-app/webhook/store"
)

// endpointColumns are what endpointRow is read from.
const endpointColumns = `id, workspace_id, kind, url, events, active, pause_reason, description, config, headers,
	max_in_flight, rate_limit, created_at, updated_at, imported, rotations, previous_until,
	failures, failed_at, degraded_until, revision`

const (
	selectEndpoint = `SELECT ` + endpointColumns + ` FROM webhook_endpoints
		WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL`
	selectEndpoints = `SELECT ` + endpointColumns + ` FROM webhook_endpoints
		WHERE workspace_id = $1 AND id > $2 AND deleted_at IS NULL ORDER BY id LIMIT $3`

	// Who changes endpoints takes the endpoint's row first, then the counter's.
	lockEndpoint = selectEndpoint + ` FOR UPDATE`
	nextRevision = `UPDATE webhook_counter SET revision = revision + 1 WHERE id = 1 RETURNING revision`

	selectLastID   = `SELECT coalesce(max(id), 0), coalesce(bool_or(id = $1), FALSE) FROM webhook_endpoints WHERE id = $1 OR id = (SELECT max(id) FROM webhook_endpoints)`
	insertEndpoint = `INSERT INTO webhook_endpoints (` + endpointColumns + `,
		current_key, current_secret, previous_key, previous_secret, credentials_key, credentials)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
			$22, $23, $24, $25, $26, $27)`
	updateEndpoint = `UPDATE webhook_endpoints SET url = $2, events = $3, active = $4, pause_reason = $5,
		description = $6, config = $7, headers = $8, max_in_flight = $9, rate_limit = $10, updated_at = $11,
		failures = $12, failed_at = $13, degraded_until = $14, revision = $15 WHERE id = $1`
	updateCredentials = `UPDATE webhook_endpoints SET credentials_key = $2, credentials = $3 WHERE id = $1` //nolint:gosec // a statement
	updateRotated     = `UPDATE webhook_endpoints SET
		previous_key = CASE WHEN $2::bigint IS NULL THEN '' ELSE current_key END,
		previous_secret = CASE WHEN $2::bigint IS NULL THEN NULL ELSE current_secret END,
		previous_until = $2::bigint, current_key = $3, current_secret = $4,
		rotations = rotations + 1, updated_at = $5, revision = $6 WHERE id = $1`
	updateDeleted = `UPDATE webhook_endpoints SET deleted_at = $2, revision = $3, active = FALSE, url = '', events = NULL,
		pause_reason = '', description = '', config = NULL, headers = NULL,
		current_key = '', current_secret = NULL, previous_key = '', previous_secret = NULL, previous_until = NULL,
		credentials_key = '', credentials = NULL WHERE id = $1`

	insertSubscriptions = `INSERT INTO webhook_subscriptions (workspace_id, entry, endpoint_id)
		SELECT $1, entry, $2 FROM unnest($3::bytea[]) AS entry`
	deleteSubscriptions = `DELETE FROM webhook_subscriptions
		WHERE workspace_id = $1 AND endpoint_id = $2 AND entry = ANY($3::bytea[])`
)

var errLastID = errors.New("postgresstore: the highest possible endpoint id is in use")

// sealed reads a secret from its two columns.
func sealed(key string, data []byte) store.Sealed {
	return store.Sealed{KeyID: key, Data: store.NewSecret(string(data))}
}

// secret returns a secret as it is stored.
func secret(s store.Sealed) []byte {
	if s.IsZero() {
		return nil
	}
	return []byte(s.Data.Reveal())
}

// entries returns an endpoint's subscription as it is matched.
func entries(e *store.Endpoint) [][]byte {
	if e.Kind == store.KindSIEM {
		return [][]byte{[]byte(everyEvent)}
	}
	list := slices.Clone(e.Events)
	slices.Sort(list)
	var out [][]byte
	for _, s := range slices.Compact(list) {
		if s != everyEvent {
			out = append(out, []byte(s))
		}
	}
	return out
}

// endpointRow is what endpointColumns are read into.
type endpointRow struct {
	e                                                            store.Endpoint
	events, config, headers                                      []byte
	createdAt, updatedAt, previousUntil, failedAt, degradedUntil *int64
}

func (r *endpointRow) places() []any {
	e := &r.e
	return []any{
		&e.ID, &e.WorkspaceID, &e.Kind, &e.URL, &r.events, &e.Active, &e.PauseReason, &e.Description, &r.config, &r.headers,
		&e.MaxInFlight, &e.RateLimit, &r.createdAt, &r.updatedAt, &e.Imported, &e.Rotations, &r.previousUntil,
		&e.Health.Failures, &r.failedAt, &r.degradedUntil, &e.Revision,
	}
}

func (r *endpointRow) endpoint() (e store.Endpoint, err error) {
	e = r.e
	e.CreatedAt, e.UpdatedAt, e.PreviousUntil = instant(r.createdAt), instant(r.updatedAt), instant(r.previousUntil)
	e.Health.FailedAt, e.Health.DegradedUntil = instant(r.failedAt), instant(r.degradedUntil)
	if e.Events, err = parse[[]string](r.events); err != nil {
		return e, err
	}
	if e.Config, err = parse[map[string]string](r.config); err != nil {
		return e, err
	}
	e.Headers, err = parse[map[string]string](r.headers)
	return e, err
}

// listEndpoints runs a statement that gives endpoints.
func (tx *transaction) listEndpoints(statement string, args ...any) (list []store.Endpoint, err error) {
	var r endpointRow
	tx.queue(statement, args...).Query(each(func() error {
		e, err := r.endpoint()
		list = append(list, e)
		return err
	}, r.places()...))
	err = tx.send()
	return list, err
}

// oneEndpoint runs a statement that gives one endpoint; otherwise it returns
// ErrNotFound.
func (tx *transaction) oneEndpoint(statement string, workspaceID, id int64) (store.Endpoint, error) {
	list, err := tx.listEndpoints(statement, id, workspaceID)
	if err != nil {
		return store.Endpoint{}, err
	}
	if len(list) == 0 {
		return store.Endpoint{}, store.ErrNotFound
	}
	return list[0], nil
}

// revise returns the next revision. Nobody else gets one before the transaction
// ends. What it reads about endpoints from then on is not yet true for others.
func (tx *transaction) revise() (revision int64, err error) {
	tx.private = true
	tx.queue(nextRevision).Query(each(func() error { return nil }, &revision))
	if err = tx.send(); err == nil && revision == 0 {
		err = &fault{ErrCorrupt, errNoCounter}
	}
	return revision, err
}

// CreateEndpoint implements store.Store.
func (s *Store) CreateEndpoint(ctx context.Context, p store.CreateEndpointParams) (created store.Endpoint, err error) {
	p.Endpoint = copyEndpoint(p.Endpoint)
	err = s.write(ctx, "create endpoint", func(tx *transaction) (err error) {
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
	// The revision first: it keeps others from taking the same id.
	revision, err := tx.revise()
	if err != nil {
		return store.Endpoint{}, err
	}
	if err := tx.assignID(&e); err != nil {
		return store.Endpoint{}, err
	}
	secrets, err := seal(p, e.ID)
	if err != nil {
		return store.Endpoint{}, err
	}
	tx.queue(insertEndpoint,
		e.ID, e.WorkspaceID, string(e.Kind), e.URL, document(e.Events), e.Active, e.PauseReason, e.Description,
		document(e.Config), document(e.Headers), int64(e.MaxInFlight), e.RateLimit, moment(e.CreatedAt),
		moment(e.UpdatedAt), e.Imported, int64(e.Rotations), moment(secrets.PreviousUntil),
		int64(e.Health.Failures), moment(e.Health.FailedAt), moment(e.Health.DegradedUntil), revision,
		secrets.Current.KeyID, secret(secrets.Current), secrets.Previous.KeyID, secret(secrets.Previous),
		secrets.Credentials.KeyID, secret(secrets.Credentials))
	tx.queue(insertSubscriptions, e.WorkspaceID, e.ID, entries(&e))
	return tx.mustRead(e.WorkspaceID, e.ID)
}

// assignID chooses an id, or makes sure that the one asked for was never used.
func (tx *transaction) assignID(e *store.Endpoint) error {
	var (
		last int64
		used bool
	)
	tx.queue(selectLastID, e.ID).Query(each(func() error { return nil }, &last, &used))
	if err := tx.send(); err != nil {
		return err
	}
	switch {
	case used:
		return store.ErrConflict
	case e.ID != 0:
		return nil
	case last == math.MaxInt64:
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
			err = fmt.Errorf("postgresstore: create endpoint: Seal panicked: %v", r)
		}
	}()
	return p.Seal(id)
}

// mustRead returns an endpoint that was just written.
func (tx *transaction) mustRead(workspaceID, id int64) (store.Endpoint, error) {
	e, err := tx.oneEndpoint(selectEndpoint, workspaceID, id)
	if errors.Is(err, store.ErrNotFound) {
		err = &fault{ErrCorrupt, err}
	}
	return e, err
}

// UpdateEndpoint implements store.Store.
func (s *Store) UpdateEndpoint(ctx context.Context, e store.Endpoint, credentials *store.Sealed) (updated store.Endpoint, err error) {
	err = s.write(ctx, "update endpoint", func(tx *transaction) (err error) {
		updated, err = tx.updateEndpoint(e, credentials)
		return err
	})
	if err != nil {
		return store.Endpoint{}, err
	}
	if updated.Active {
		s.notify() // it may have been resumed
	}
	return updated, nil
}

func (tx *transaction) updateEndpoint(e store.Endpoint, credentials *store.Sealed) (store.Endpoint, error) {
	old, err := tx.oneEndpoint(lockEndpoint, e.WorkspaceID, e.ID)
	if err != nil {
		return store.Endpoint{}, err
	}
	if old.Revision != e.Revision {
		return store.Endpoint{}, store.ErrConflict
	}
	revision, err := tx.revise()
	if err != nil {
		return store.Endpoint{}, err
	}
	health := old.Health
	if e.Active && !old.Active {
		health = store.Health{}
	}
	tx.queue(updateEndpoint, e.ID, e.URL, document(e.Events), e.Active, e.PauseReason,
		e.Description, document(e.Config), document(e.Headers), int64(e.MaxInFlight), e.RateLimit, moment(e.UpdatedAt),
		int64(health.Failures), moment(health.FailedAt), moment(health.DegradedUntil), revision)
	if credentials != nil {
		tx.queue(updateCredentials, e.ID, credentials.KeyID, secret(*credentials))
	}
	e.Kind = old.Kind
	tx.queue(deleteSubscriptions, e.WorkspaceID, e.ID, without(entries(&old), entries(&e)))
	tx.queue(insertSubscriptions, e.WorkspaceID, e.ID, without(entries(&e), entries(&old)))
	switch {
	case e.Active && !old.Active:
		tx.refreshLanes([]int64{e.ID})
	case old.Active && !e.Active:
		tx.queue(deleteLanes, []int64{e.ID})
	}
	return tx.mustRead(e.WorkspaceID, e.ID)
}

// without returns the entries of a list that are not in another.
func without(list, other [][]byte) [][]byte {
	out := [][]byte{}
	for _, entry := range list {
		if !slices.ContainsFunc(other, func(o []byte) bool { return string(o) == string(entry) }) {
			out = append(out, entry)
		}
	}
	return out
}

// RotateSecret implements store.Store.
func (s *Store) RotateSecret(ctx context.Context, p store.RotateParams) (rotated store.Endpoint, err error) {
	err = s.write(ctx, "rotate secret", func(tx *transaction) error {
		old, err := tx.oneEndpoint(lockEndpoint, p.WorkspaceID, p.EndpointID)
		if err != nil {
			return err
		}
		if old.Rotations != p.Seen {
			return store.ErrConflict
		}
		revision, err := tx.revise()
		if err != nil {
			return err
		}
		tx.queue(updateRotated, p.EndpointID, moment(p.PreviousUntil), p.Secret.KeyID, secret(p.Secret), moment(p.At), revision)
		rotated, err = tx.mustRead(p.WorkspaceID, p.EndpointID)
		return err
	})
	if err != nil {
		return store.Endpoint{}, err
	}
	return rotated, nil
}

// DeleteEndpoint implements store.Store. Leases of the endpoint need not be
// revoked: whatever is recorded asks whether it still exists.
func (s *Store) DeleteEndpoint(ctx context.Context, workspaceID, id int64, deletedAt time.Time) error {
	return s.write(ctx, "delete endpoint", func(tx *transaction) error {
		e, err := tx.oneEndpoint(lockEndpoint, workspaceID, id)
		if err != nil {
			return err
		}
		revision, err := tx.revise()
		if err != nil {
			return err
		}
		tx.queue(updateDeleted, id, deletedAt.UnixMilli(), revision)
		tx.queue(deleteSubscriptions, workspaceID, id, entries(&e))
		tx.queue(deleteLanes, []int64{id})
		return tx.send()
	})
}

// Endpoint implements store.Store.
func (s *Store) Endpoint(ctx context.Context, workspaceID, id int64) (e store.Endpoint, err error) {
	err = s.read(ctx, "endpoint", func(tx *transaction) (err error) {
		e, err = tx.oneEndpoint(selectEndpoint, workspaceID, id)
		return err
	})
	if err != nil {
		return store.Endpoint{}, err
	}
	return e, nil
}

// Endpoints implements store.Store.
func (s *Store) Endpoints(ctx context.Context, f store.EndpointFilter) (list []store.Endpoint, err error) {
	err = s.read(ctx, "endpoints", func(tx *transaction) (err error) {
		list, err = tx.listEndpoints(selectEndpoints, f.WorkspaceID, f.After, bound(f.Limit))
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}
