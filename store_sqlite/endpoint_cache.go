//go:build cgo

package sqlitestore

import (
	"strings"

	"github.com/elido-app/webhook/store"
)

// endpoint is what publishing, claiming and recording need to know about one.
type endpoint struct {
	id, workspaceID int64
	active          bool
	health          store.Health
	target          *store.Target // nobody changes it
}

// endpointCache keeps endpoints between transactions, for as long as nobody
// changed one: every change raises the counter's epoch, which each
// transaction reads anyway.
type endpointCache struct {
	epoch   int64
	byID    map[int64]*endpoint
	matches map[selection][]*endpoint
}

// selection is what selects an event's endpoints.
type selection struct {
	workspaceID int64
	entries     string
}

// maxCached bounds the memory a cache takes.
const maxCached = 4096

func newEndpointCache() *endpointCache {
	return &endpointCache{byID: map[int64]*endpoint{}, matches: map[selection][]*endpoint{}}
}

// forget drops everything.
func (c *endpointCache) forget() {
	clear(c.byID)
	clear(c.matches)
	c.epoch = 0
}

// validFor drops everything if the epoch is another.
func (c *endpointCache) validFor(epoch int64) {
	if c.epoch != epoch || len(c.byID) > maxCached || len(c.matches) > maxCached {
		c.forget()
		c.epoch = epoch
	}
}

var (
	selectTarget = &query{sql: `SELECT id, workspace_id, kind, url, config, headers, max_in_flight, rate_limit,
		current_key, current_secret, previous_key, previous_secret, previous_until, credentials_key, credentials,
		revision, active, failures, failed_at, degraded_until
		FROM webhook_endpoints WHERE id = ? AND deleted_at IS NULL`, apart: true}
	selectMatching = &query{sql: `SELECT DISTINCT endpoint_id FROM webhook_subscriptions
		WHERE workspace_id = ? AND entry IN (SELECT value FROM json_each(?)) ORDER BY endpoint_id`, apart: true}
)

// endpoint returns one endpoint, or nil if there is none.
func (tx *transaction) endpoint(id int64) (*endpoint, error) {
	if e, ok := tx.endpoints.byID[id]; ok {
		return e, nil
	}
	var (
		e         *endpoint
		malformed error
	)
	err := tx.run(selectTarget, func(r row) {
		e, malformed = readTarget(r)
	}, id)
	if err != nil {
		return nil, err
	}
	if malformed != nil {
		return nil, tx.corrupt(malformed)
	}
	tx.endpoints.byID[id] = e
	return e, nil
}

func readTarget(r row) (*endpoint, error) {
	config, err := parse[map[string]string](r[4])
	if err != nil {
		return nil, err
	}
	headers, err := parse[map[string]string](r[5])
	if err != nil {
		return nil, err
	}
	t := &store.Target{
		EndpointID:  integer(r[0]),
		WorkspaceID: integer(r[1]),
		Kind:        store.Kind(text(r[2])),
		URL:         text(r[3]),
		Config:      config,
		Headers:     headers,
		MaxInFlight: int(integer(r[6])),
		RateLimit:   real(r[7]),
		Secrets: store.Secrets{
			Current:       sealed(r[8], r[9]),
			Previous:      sealed(r[10], r[11]),
			PreviousUntil: instant(r[12]),
			Credentials:   sealed(r[13], r[14]),
		},
		Revision: integer(r[15]),
	}
	return &endpoint{
		id: t.EndpointID, workspaceID: t.WorkspaceID, active: flag(r[16]), target: t,
		health: store.Health{Failures: int(integer(r[17])), FailedAt: instant(r[18]), DegradedUntil: instant(r[19])},
	}, nil
}

// selected returns the active endpoints that an event goes to, in order of id.
func (tx *transaction) selected(ev *store.NewEvent) ([]*endpoint, error) {
	if ev.EndpointID != 0 {
		e, err := tx.endpoint(ev.EndpointID)
		if err != nil || e == nil || !e.active || e.workspaceID != ev.WorkspaceID {
			return nil, err
		}
		return []*endpoint{e}, nil
	}
	key := selection{ev.WorkspaceID, strings.Join(ev.Matches, "\x00")}
	if list, ok := tx.endpoints.matches[key]; ok {
		return list, nil
	}
	entries := make([]string, 0, len(ev.Matches)+1)
	entries = append(append(entries, everyEvent), ev.Matches...)
	var ids []int64
	err := tx.run(selectMatching, func(r row) { ids = append(ids, integer(r[0])) }, ev.WorkspaceID, document(entries))
	if err != nil {
		return nil, err
	}
	var list []*endpoint
	for _, id := range ids {
		e, err := tx.endpoint(id)
		if err != nil {
			return nil, err
		}
		if e != nil && e.active {
			list = append(list, e)
		}
	}
	tx.endpoints.matches[key] = list
	return list, nil
}
