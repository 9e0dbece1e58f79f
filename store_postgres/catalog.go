package postgresstore

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/elido-app/webhook/store"
)

// endpoint is what publishing, claiming and recording need to know about one.
type endpoint struct {
	id, workspaceID int64
	active          bool
	target          *store.Target // nobody changes it
}

// catalog is what is known about endpoints as of one revision. Every transaction
// that uses it has read the revision itself, so it cannot be out of date.
type catalog struct {
	revision int64

	mu      sync.RWMutex
	byID    map[int64]*endpoint // nil: there is none
	matches map[selection][]*endpoint
}

// selection is what selects an event's endpoints.
type selection struct {
	workspaceID int64
	entries     string // joined by NUL
}

// everyEvent is the subscription entry of endpoints that receive every event.
const everyEvent = ""

func selects(ev *store.NewEvent) selection {
	return selection{ev.WorkspaceID, strings.Join(ev.Matches, "\x00")}
}

func (s selection) list() []string {
	list := []string{everyEvent}
	if s.entries != "" {
		list = append(list, strings.Split(s.entries, "\x00")...)
	}
	return list
}

// maxCached bounds the memory that is taken.
const maxCached = 4096

// catalogOf returns the catalog of a revision.
func (tx *transaction) catalogOf(revision int64) *catalog {
	for {
		known := tx.store.known.Load()
		if known != nil && known.revision == revision && !known.full() && !tx.private {
			return known
		}
		fresh := &catalog{
			revision: revision, byID: map[int64]*endpoint{}, matches: map[selection][]*endpoint{},
		}
		if tx.private || known != nil && known.revision > revision {
			return fresh // others know better
		}
		if tx.store.known.CompareAndSwap(known, fresh) {
			return fresh
		}
	}
}

func (c *catalog) full() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.byID) > maxCached || len(c.matches) > maxCached
}

// matching returns the active endpoints that an event goes to, in order of id.
func (c *catalog) matching(ev *store.NewEvent) (list []*endpoint, known bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if ev.EndpointID == 0 {
		list, known = c.matches[selects(ev)]
		return list, known
	}
	e, known := c.byID[ev.EndpointID]
	if e == nil || !e.active || e.workspaceID != ev.WorkspaceID {
		return nil, known
	}
	return []*endpoint{e}, known
}

const (
	targetColumns = `e.id, e.workspace_id, e.kind, e.url, e.config, e.headers, e.max_in_flight, e.rate_limit,
		e.current_key, e.current_secret, e.previous_key, e.previous_secret, e.previous_until,
		e.credentials_key, e.credentials, e.revision, e.active`
	selectTargets = `SELECT c.revision, ` + targetColumns + ` FROM webhook_counter c
		LEFT JOIN webhook_endpoints e ON e.id = ANY($1::bigint[]) AND e.deleted_at IS NULL`
	selectMatching = `SELECT c.revision, m.n, ` + targetColumns + ` FROM webhook_counter c
		LEFT JOIN (SELECT DISTINCT q.n, s.endpoint_id
			FROM unnest($1::integer[], $2::bigint[], $3::bytea[]) AS q(n, workspace_id, entry)
			JOIN webhook_subscriptions s ON s.workspace_id = q.workspace_id AND s.entry = q.entry) m ON true
		LEFT JOIN webhook_endpoints e ON e.id = m.endpoint_id AND e.deleted_at IS NULL`
)

var errNoCounter = errors.New("webhook_counter has no row")

// targetRow is what targetColumns are read into. A row of the counter alone has
// NULLs.
type targetRow struct {
	id, workspaceID, maxInFlight, previousUntil, revision *int64
	kind, url, currentKey, previousKey, credentialsKey    *string
	config, headers, current, previous, credentials       []byte
	rateLimit                                             *float64
	active                                                *bool
}

func (r *targetRow) places() []any {
	return []any{
		&r.id, &r.workspaceID, &r.kind, &r.url, &r.config, &r.headers, &r.maxInFlight, &r.rateLimit,
		&r.currentKey, &r.current, &r.previousKey, &r.previous, &r.previousUntil,
		&r.credentialsKey, &r.credentials, &r.revision, &r.active,
	}
}

func (r *targetRow) endpoint() (*endpoint, error) {
	config, err := parse[map[string]string](r.config)
	if err != nil {
		return nil, err
	}
	headers, err := parse[map[string]string](r.headers)
	if err != nil {
		return nil, err
	}
	t := &store.Target{
		EndpointID: *r.id, WorkspaceID: *r.workspaceID, Kind: store.Kind(*r.kind), URL: *r.url,
		Config: config, Headers: headers, MaxInFlight: int(*r.maxInFlight), RateLimit: *r.rateLimit,
		Secrets: store.Secrets{
			Current: sealed(*r.currentKey, r.current), Previous: sealed(*r.previousKey, r.previous),
			PreviousUntil: instant(r.previousUntil), Credentials: sealed(*r.credentialsKey, r.credentials),
		},
		Revision: *r.revision,
	}
	return &endpoint{id: t.EndpointID, workspaceID: t.WorkspaceID, active: *r.active, target: t}, nil
}

// endpoints returns endpoints by their ids, without those that do not exist, as
// of the given revision or a later one.
func (tx *transaction) endpoints(revision int64, ids []int64) (map[int64]*endpoint, error) {
	c := tx.catalogOf(revision)
	found := make(map[int64]*endpoint, len(ids))
	var missing []int64
	c.mu.RLock()
	for _, id := range ids {
		if e, ok := c.byID[id]; !ok {
			missing = append(missing, id)
		} else if e != nil {
			found[id] = e
		}
	}
	c.mu.RUnlock()
	if len(missing) == 0 {
		return found, nil
	}
	seen, list, err := tx.targets(missing)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		found[e.id] = e
	}
	if seen == c.revision {
		c.mu.Lock()
		for _, id := range missing {
			c.byID[id] = found[id]
		}
		c.mu.Unlock()
	}
	return found, nil
}

func (tx *transaction) targets(ids []int64) (revision int64, list []*endpoint, err error) {
	var r targetRow
	tx.queue(selectTargets, ids).Query(each(func() error {
		if r.id == nil {
			return nil
		}
		e, err := r.endpoint()
		list = append(list, e)
		return err
	}, append([]any{&revision}, r.places()...)...))
	if err = tx.send(); err == nil && revision == 0 {
		err = &fault{ErrCorrupt, errNoCounter}
	}
	return revision, list, err
}

// match returns for each event the active endpoints it goes to, in order of id.
// It reads what is not known as of the given revision.
func (tx *transaction) match(revision int64, events []*store.NewEvent) ([][]*endpoint, error) {
	c := tx.catalogOf(revision)
	for {
		lists := make([][]*endpoint, len(events))
		var ids []int64
		var selections []selection
		for i, ev := range events {
			list, known := c.matching(ev)
			lists[i] = list
			switch {
			case known:
			case ev.EndpointID != 0:
				ids = append(ids, ev.EndpointID)
			default:
				selections = append(selections, selects(ev))
			}
		}
		if len(ids) == 0 && len(selections) == 0 {
			return lists, nil
		}
		seen, err := tx.learn(c, ids, selections)
		if err != nil {
			return nil, err
		}
		if seen != c.revision {
			c = tx.catalogOf(seen)
		}
	}
}

// learn adds endpoints and selections to a catalog, unless there is a newer
// revision by now, which it returns.
func (tx *transaction) learn(c *catalog, ids []int64, selections []selection) (int64, error) {
	if len(ids) > 0 {
		slices.Sort(ids)
		seen, list, err := tx.targets(slices.Compact(ids))
		if err != nil || seen != c.revision {
			return seen, err
		}
		c.mu.Lock()
		for _, id := range ids {
			c.byID[id] = nil
		}
		for _, e := range list {
			c.byID[e.id] = e
		}
		c.mu.Unlock()
	}
	if len(selections) == 0 {
		return c.revision, nil
	}
	slices.SortFunc(selections, func(a, b selection) int {
		return cmp.Or(cmp.Compare(a.workspaceID, b.workspaceID), cmp.Compare(a.entries, b.entries))
	})
	selections = slices.Compact(selections)
	seen, matches, err := tx.subscribed(selections)
	if err != nil || seen != c.revision {
		return seen, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range selections {
		c.matches[s] = matches[i]
	}
	return seen, nil
}

func (tx *transaction) subscribed(selections []selection) (revision int64, matches [][]*endpoint, err error) {
	var numbers []int32
	var workspaces []int64
	var entries [][]byte
	for i, s := range selections {
		for _, entry := range s.list() {
			numbers = append(numbers, int32(i))
			workspaces = append(workspaces, s.workspaceID)
			entries = append(entries, []byte(entry))
		}
	}
	matches = make([][]*endpoint, len(selections))
	byID := map[int64]*endpoint{}
	var (
		n *int32
		r targetRow
	)
	tx.queue(selectMatching, numbers, workspaces, entries).Query(each(func() error {
		if r.id == nil || !*r.active {
			return nil
		}
		e := byID[*r.id]
		if e == nil {
			var err error
			if e, err = r.endpoint(); err != nil {
				return err
			}
			byID[e.id] = e
		}
		matches[*n] = append(matches[*n], e)
		return nil
	}, append([]any{&revision, &n}, r.places()...)...))
	if err = tx.send(); err != nil {
		return 0, nil, err
	}
	if revision == 0 {
		return 0, nil, &fault{ErrCorrupt, errNoCounter}
	}
	for _, list := range matches {
		slices.SortFunc(list, func(a, b *endpoint) int { return cmp.Compare(a.id, b.id) })
	}
	return revision, matches, nil
}
