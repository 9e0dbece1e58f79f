package postgresstore

// A lane is a row of webhook_lanes: it says of an endpoint that a delivery may be
// due there from an instant on. The promise is that every ready delivery has a
// lane of its endpoint that is due no later than itself, so that a claim finds
// endpoints with something due without looking at any delivery, and those that
// have nothing due, or are paused, cost it nothing.
//
// Nobody waits for anybody over lanes, as publishes may be in transactions of the
// host's that stay open for long. That is why an endpoint may have several. Three
// rules keep the promise:
//
// Who makes a delivery ready inserts a lane, or relies on one that is there and due
// early enough, and holds it with a lock that keeps others from deleting it.
//
// Who deletes a lane looks at the ready deliveries in a later statement, and
// inserts a lane for the first of them. Whoever relied on the deleted lane has
// committed by then, and is seen.
//
// A lane never changes.

const (
	// announceLanes makes sure of lanes for endpoints with what is due there
	// first. In a transaction that sees the database as of its beginning, to lock
	// a row that somebody deleted since would be an error, so there it relies on
	// no other's.
	announceLanes = `WITH w AS (
			SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS w(endpoint_id, due_at)
		), held AS MATERIALIZED (
			SELECT w.endpoint_id FROM w CROSS JOIN LATERAL (
				SELECT 1 FROM webhook_lanes l WHERE l.endpoint_id = w.endpoint_id AND l.next_due <= w.due_at
				LIMIT 1 FOR KEY SHARE SKIP LOCKED) l
			WHERE current_setting('transaction_isolation') = 'read committed'
		)
		INSERT INTO webhook_lanes (endpoint_id, next_due)
		SELECT w.endpoint_id, w.due_at FROM w WHERE w.endpoint_id NOT IN (SELECT endpoint_id FROM held)`

	// deleteLanes deletes the lanes of endpoints, but those that are relied on.
	deleteLanes = `DELETE FROM webhook_lanes WHERE id = ANY(ARRAY(
		SELECT id FROM webhook_lanes WHERE endpoint_id = ANY($1::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED))`

	// insertFirst inserts a lane for the first ready delivery of each endpoint.
	insertFirst = `INSERT INTO webhook_lanes (endpoint_id, next_due)
		SELECT w.endpoint_id, f.due_at FROM unnest($1::bigint[]) AS w(endpoint_id) CROSS JOIN LATERAL (
			SELECT d.due_at FROM webhook_deliveries d WHERE d.endpoint_id = w.endpoint_id AND d.state = 0
			ORDER BY d.due_at, d.id LIMIT 1) f
		RETURNING endpoint_id, next_due`

	// deletePaused deletes lanes of endpoints that are not active. They were left
	// by what came back, or was published, around the pause. The lock on the
	// endpoint makes a resume wait, which then looks at the ready deliveries.
	deletePaused = `WITH paused AS MATERIALIZED (
			SELECT e.id FROM webhook_endpoints e WHERE e.id = ANY($1::bigint[]) AND NOT e.active
			ORDER BY e.id FOR SHARE SKIP LOCKED
		)
		DELETE FROM webhook_lanes WHERE id = ANY(ARRAY(
			SELECT l.id FROM webhook_lanes l WHERE l.endpoint_id = ANY(ARRAY(SELECT id FROM paused))
			ORDER BY l.id FOR UPDATE SKIP LOCKED))`

	// deleteSurplus leaves the earliest of the lanes that it can lock of each
	// endpoint. It stands for the others, and the lock keeps it.
	deleteSurplus = `WITH mine AS MATERIALIZED (
			SELECT l.id, l.endpoint_id, l.next_due FROM webhook_lanes l WHERE l.endpoint_id = ANY($1::bigint[])
			ORDER BY l.id LIMIT 5000 FOR UPDATE SKIP LOCKED
		), kept AS MATERIALIZED (
			SELECT DISTINCT ON (endpoint_id) id FROM mine ORDER BY endpoint_id, next_due, id
		)
		DELETE FROM webhook_lanes WHERE id = ANY(ARRAY(SELECT id FROM mine EXCEPT SELECT id FROM kept))`
)

// lane is where a claim looks.
type lane struct{ id, endpointID, nextDue int64 }

// firsts collects what is due first at each of some endpoints.
type firsts map[int64]int64

func (f firsts) add(endpointID, dueAt int64) {
	if first, ok := f[endpointID]; !ok || dueAt < first {
		f[endpointID] = dueAt
	}
}

// announce makes sure of lanes for what became ready.
func (tx *transaction) announce(ready firsts) {
	if len(ready) == 0 {
		return
	}
	endpoints, dues := make([]int64, 0, len(ready)), make([]int64, 0, len(ready))
	for id, due := range ready {
		endpoints, dues = append(endpoints, id), append(dues, due)
	}
	tx.queue(announceLanes, endpoints, dues)
}

// refreshLanes brings the lanes of endpoints up to date whose first ready
// delivery may be due later than before. It returns what is due first there,
// once it was sent.
func (tx *transaction) refreshLanes(endpoints []int64) firsts {
	if len(endpoints) == 0 {
		return nil
	}
	first := firsts{}
	var id, due int64
	tx.queue(deleteLanes, endpoints)
	tx.queue(insertFirst, endpoints).Query(each(func() error {
		first.add(id, due)
		return nil
	}, &id, &due))
	return first
}
