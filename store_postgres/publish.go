package postgresstore

import (
	"bytes"
	"context"
	"slices"

	"github.com/elido-app/webhook/store"
)

const (
	selectIDs = `SELECT nextval('webhook_delivery_ids') FROM generate_series(1, $1::bigint)`

	// selectBehind tells at which endpoints new deliveries come after other due
	// work, leases that ran out included.
	selectBehind = `SELECT w.endpoint_id FROM unnest($1::bigint[]) AS w(endpoint_id) CROSS JOIN LATERAL (
			(SELECT 1 FROM webhook_deliveries d WHERE d.endpoint_id = w.endpoint_id AND d.state = 0 AND d.due_at <= $2 LIMIT 1)
			UNION ALL
			(SELECT 1 FROM webhook_deliveries d WHERE d.state = 1 AND d.lease_until <= $2 AND d.endpoint_id = w.endpoint_id LIMIT 1)
			LIMIT 1) b`
	// selectPending tells which ordering keys have pending deliveries.
	selectPending = `SELECT k.n FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS k(endpoint_id, ordering_key, n)
		CROSS JOIN LATERAL (SELECT 1 FROM webhook_deliveries d
			WHERE d.endpoint_id = k.endpoint_id AND d.ordering_key = k.ordering_key
			AND d.ordering_key IS NOT NULL AND d.state < 4 LIMIT 1) p`
	selectDegraded = `SELECT id FROM webhook_endpoints WHERE id = ANY($1::bigint[]) AND degraded_until > $2`

	insertEvents = `INSERT INTO webhook_events (seq, id, workspace_id, type, occurred_at, deliveries, payload, trace)
		SELECT seq, id, workspace_id, type, occurred_at, deliveries::bigint[], payload, trace
		FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::text[], $7::bytea[], $8::bytea[])
			AS e(seq, id, workspace_id, type, occurred_at, deliveries, payload, trace)`
	insertDeliveries = `INSERT INTO webhook_deliveries
			(id, endpoint_id, event_seq, state, budget, ordering_key, turn, due_at, created_at, token, lease_until)
		SELECT id, endpoint_id, event_seq, state, budget, ordering_key, turn, $8, $8,
			CASE WHEN state = 1 THEN $9::bigint END, CASE WHEN state = 1 THEN $10::bigint END
		FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bigint[], $6::bytea[], $7::integer[])
			AS d(id, endpoint_id, event_seq, state, budget, ordering_key, turn)`
)

// Publish implements store.Publisher.
func (s *Store) Publish(ctx context.Context, p store.PublishParams) (result store.PublishResult, err error) {
	if len(p.Events) == 0 {
		return store.PublishResult{}, ctx.Err()
	}
	select {
	case s.publishing <- struct{}{}:
		defer func() { <-s.publishing }()
	case <-ctx.Done():
		return store.PublishResult{}, ctx.Err()
	}
	err = s.write(ctx, "publish", func(tx *transaction) (err error) {
		result, err = tx.publish(p)
		return err
	})
	if err != nil {
		return store.PublishResult{}, err
	}
	if result.Queued && p.Handoff == nil {
		s.notify() // with a handoff, the caller's own dispatcher knows
	}
	return result, nil
}

// publication is one publish as it is being stored.
type publication struct {
	tx        *transaction
	now       int64
	allotment *allotment // nil without a handoff
	receipts  []store.Receipt
	events    []*store.NewEvent // to be stored, without repeats
	places    []int             // of these in receipts
	selected  [][]*endpoint     // their endpoints
	ids       []int64           // for their deliveries
	behind    map[int64]bool    // endpoints with due work that comes first
	degraded  map[int64]bool
	pending   map[endpointKey]bool // ordering keys with deliveries that come first
	ready     firsts               // what is to be claimed
	queued    bool
	leases    []store.Lease
}

func (tx *transaction) publish(p store.PublishParams) (store.PublishResult, error) {
	pub := publication{
		tx: tx, now: p.Now.UnixMilli(), receipts: make([]store.Receipt, len(p.Events)),
		behind: map[int64]bool{}, degraded: map[int64]bool{}, pending: map[endpointKey]bool{}, ready: firsts{},
	}
	if p.Handoff != nil {
		pub.allotment = newAllotment(*p.Handoff)
	}
	repeats, err := pub.prepare(p.Events)
	if err != nil {
		return store.PublishResult{}, err
	}
	if err := pub.examine(); err != nil {
		return store.PublishResult{}, err
	}
	if err := pub.store(); err != nil {
		return store.PublishResult{}, err
	}
	for i, first := range repeats { // of events earlier in the batch
		r := pub.receipts[first]
		pub.receipts[i] = store.Receipt{EventID: r.EventID, DeliveryIDs: slices.Clone(r.DeliveryIDs), Repeat: true}
	}
	return store.PublishResult{Receipts: pub.receipts, Leases: pub.leases, Queued: pub.queued}, nil
}

// prepare takes the idempotency keys and the ordering keys, in this order, so that
// whoever has the one does not wait for somebody who waits for the other. It then
// knows which events are new, what they select and which ids their deliveries get.
// It returns which events repeat earlier ones of the batch.
func (pub *publication) prepare(events []store.NewEvent) (repeats map[int]int, err error) {
	tx := pub.tx
	keys, repeats := pub.takeKeys(events)
	var slots []int32
	for i := range events {
		if ev := &events[i]; ev.OrderingKey != "" {
			slots = append(slots, publishSlot(ev.WorkspaceID, ev.OrderingKey))
		}
	}
	if len(slots) > 0 {
		tx.queue(lockSlots, distinct(slots))
	}
	var revision int64
	tx.queue(selectRevision).Query(each(func() error { return nil }, &revision))
	if err := tx.send(); err != nil {
		return nil, err
	}
	if err := pub.compare(events, keys); err != nil {
		return nil, err
	}
	for i := range events {
		if _, again := repeats[i]; !again && !pub.receipts[i].Repeat {
			pub.events, pub.places = append(pub.events, &events[i]), append(pub.places, i)
		}
	}
	pub.selected, err = tx.match(revision, pub.events)
	return repeats, err
}

// examine gets ids for the deliveries, and finds out what they come after.
func (pub *publication) examine() error {
	tx := pub.tx
	n := 0
	var (
		all   []int64
		slots []int32
		keys  []endpointKey
	)
	degradable := false
	for i, ev := range pub.events {
		n += len(pub.selected[i])
		degradable = degradable || ev.DegradedBudget != 0
		for _, e := range pub.selected[i] {
			all = append(all, e.id)
			if ev.OrderingKey != "" && !tx.hosted {
				keys = append(keys, endpointKey{e.id, ev.OrderingKey})
				slots = append(slots, turnSlot(e.id, ev.OrderingKey))
			}
		}
	}
	if n == 0 {
		return nil
	}
	var id int64
	tx.queue(selectIDs, n).Query(each(func() error {
		pub.ids = append(pub.ids, id)
		return nil
	}, &id))
	if len(keys) > 0 {
		tx.queue(lockSlots, distinct(slots))
		pub.lookPending(keys)
	}
	all = distinct(all)
	var behind, degraded int64
	if pub.allotment != nil {
		tx.queue(selectBehind, all, pub.now).Query(each(func() error {
			pub.behind[behind] = true
			return nil
		}, &behind))
	}
	if degradable {
		tx.queue(selectDegraded, all, pub.now).Query(each(func() error {
			pub.degraded[degraded] = true
			return nil
		}, &degraded))
	}
	err := tx.send()
	slices.Sort(pub.ids)
	return err
}

func (pub *publication) lookPending(keys []endpointKey) {
	seen := map[endpointKey]bool{}
	var (
		endpoints []int64
		names     [][]byte
		order     []endpointKey
		n         int64
	)
	for _, k := range keys {
		if !seen[k] {
			seen[k] = true
			endpoints, names, order = append(endpoints, k.endpointID), append(names, []byte(k.key)), append(order, k)
		}
	}
	pub.tx.queue(selectPending, endpoints, names).Query(each(func() error {
		pub.pending[order[n-1]] = true
		return nil
	}, &n))
}

// store stores the events with their deliveries.
func (pub *publication) store() error {
	var events eventRows
	var deliveries deliveryRows
	var keys keyRows
	next := 0
	for i, ev := range pub.events {
		endpoints := pub.selected[i]
		ids := pub.ids[next : next+len(endpoints)]
		next += len(endpoints)
		pub.receipts[pub.places[i]] = store.Receipt{EventID: ev.ID, DeliveryIDs: slices.Clone(ids)}
		if len(ids) == 0 {
			continue
		}
		list := array(ids)
		events.add(ids[0], ev, list)
		if ev.IdempotencyKey != "" {
			keys.add(ev, list)
		}
		from := len(pub.leases)
		for j, e := range endpoints {
			budget := pub.budget(ev, e)
			state := pub.state(ev, e)
			if state == stateLeased {
				pub.lease(ev, e, ids[j], budget, from)
			}
			deliveries.add(ids[j], e.id, ids[0], state, budget, ev.OrderingKey)
		}
	}
	if len(events.seqs) == 0 {
		return nil
	}
	tx := pub.tx
	tx.queue(insertEvents, events.seqs, events.ids, events.workspaces, events.types, events.occurred, events.deliveries, events.payloads, events.traces)
	var token, until int64
	if pub.allotment != nil {
		token, until = pub.allotment.token, pub.allotment.until
	}
	tx.queue(insertDeliveries, deliveries.ids, deliveries.endpoints, deliveries.seqs, deliveries.states, deliveries.budgets,
		deliveries.keys, deliveries.turns, pub.now, token, until)
	if len(keys.keys) > 0 {
		tx.queue(updateKeys, keys.workspaces, keys.keys, keys.deliveries)
	}
	tx.announce(pub.ready)
	if pub.queued && tx.hosted && !tx.store.silent {
		tx.queue(notify, tx.store.schema.channel())
	}
	return tx.send()
}

func (pub *publication) budget(ev *store.NewEvent, e *endpoint) int {
	if ev.DegradedBudget != 0 && pub.degraded[e.id] {
		return ev.DegradedBudget
	}
	return ev.Budget
}

// state says how a delivery is stored, and uses up what that takes.
func (pub *publication) state(ev *store.NewEvent, e *endpoint) int16 {
	if ev.OrderingKey != "" {
		if pub.tx.hosted {
			pub.queued = true
			return stateArrived
		}
		key := endpointKey{e.id, ev.OrderingKey}
		if pub.pending[key] {
			return stateBlocked
		}
		pub.pending[key] = true
	}
	if pub.allotment != nil && !pub.behind[e.id] && pub.allotment.take(e) {
		return stateLeased
	}
	pub.behind[e.id] = true
	pub.queued = true
	pub.ready.add(e.id, pub.now)
	return stateReady
}

// lease hands a delivery off. Leases of one event, which begin at from, share one
// copy of its payload.
func (pub *publication) lease(ev *store.NewEvent, e *endpoint, id int64, budget, from int) {
	var payload []byte
	if len(pub.leases) > from {
		payload = pub.leases[from].Payload
	} else {
		payload = bytes.Clone(ev.Payload)
	}
	pub.leases = append(pub.leases, store.Lease{
		DeliveryID: id, WorkspaceID: ev.WorkspaceID, Token: pub.allotment.token, Until: at(pub.allotment.until),
		EventID: ev.ID, EventType: ev.Type, OrderingKey: ev.OrderingKey, Trace: ev.Trace, Payload: payload,
		CreatedAt: at(pub.now), DueAt: at(pub.now), Budget: budget, Target: e.target,
	})
}
