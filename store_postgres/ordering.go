package postgresstore

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
)

// The states of a delivery. Those below stateDelivered are pending.
const (
	stateReady     = 0
	stateLeased    = 1
	stateBlocked   = 2 // behind its ordering key
	stateArrived   = 3 // with an ordering key, not put into its order yet
	stateDelivered = 4
	stateFailed    = 5
)

// Of the pending deliveries of one ordering key of one endpoint, one is the head,
// ready or leased, and all others are blocked. The head is the one with the lowest
// id, but a lease is never taken away for that.
//
// Two locks guard a key. Publishing with it: held to the end by whoever
// publishes, so that ids are in the order of commits. And its turn: held by whoever
// decides which delivery is the head. A transaction of the host's may hold the
// first for long, and so never takes the second, which recording needs: what it
// publishes arrives, and the next claim puts it into the order.

const (
	publishSlots = 1 << 14
	turnSlots    = 1 << 12

	lockSlots     = `SELECT slot FROM webhook_locks WHERE slot = ANY($1::integer[]) ORDER BY slot FOR UPDATE`
	lockFreeSlots = lockSlots + ` SKIP LOCKED`
	// lockTurns takes the turns of deliveries, before these are locked themselves.
	lockTurns = `SELECT slot FROM webhook_locks WHERE slot = ANY(ARRAY(
			SELECT d.turn FROM webhook_deliveries d WHERE d.id = ANY($1::bigint[]) AND d.turn IS NOT NULL))
		ORDER BY slot FOR UPDATE`

	// lockHeads makes sure that a head that is ready is not being leased.
	lockHeads = `SELECT d.id FROM webhook_deliveries d WHERE d.id = ANY(ARRAY(
			SELECT h.id FROM unnest($1::bigint[], $2::bytea[]) AS k(endpoint_id, ordering_key) CROSS JOIN LATERAL (
				SELECT d.id FROM webhook_deliveries d
				WHERE d.endpoint_id = k.endpoint_id AND d.ordering_key = k.ordering_key
				AND d.ordering_key IS NOT NULL AND d.state < 4 AND d.state = 0 LIMIT 10) h))
		ORDER BY d.id FOR UPDATE`

	// settleKeys makes the right delivery of each key its head. That state < 4 is
	// said even where it follows from the rest is for the index, which has it as
	// its condition.
	settleKeys = `WITH k AS MATERIALIZED (
			SELECT * FROM unnest($1::bigint[], $2::bytea[]) AS k(endpoint_id, ordering_key)
		), head AS MATERIALIZED (
			SELECT k.endpoint_id, k.ordering_key, l.id AS leased, least(r.id, b.id, a.id) AS first
			FROM k
			LEFT JOIN LATERAL (SELECT d.id FROM webhook_deliveries d
				WHERE d.endpoint_id = k.endpoint_id AND d.ordering_key = k.ordering_key
				AND d.ordering_key IS NOT NULL AND d.state < 4 AND d.state = 1 ORDER BY d.id LIMIT 1) l ON true
			LEFT JOIN LATERAL (SELECT d.id FROM webhook_deliveries d
				WHERE d.endpoint_id = k.endpoint_id AND d.ordering_key = k.ordering_key
				AND d.ordering_key IS NOT NULL AND d.state < 4 AND d.state = 0 ORDER BY d.id LIMIT 1) r ON true
			LEFT JOIN LATERAL (SELECT d.id FROM webhook_deliveries d
				WHERE d.endpoint_id = k.endpoint_id AND d.ordering_key = k.ordering_key
				AND d.ordering_key IS NOT NULL AND d.state < 4 AND d.state = 2 ORDER BY d.id LIMIT 1) b ON true
			LEFT JOIN LATERAL (SELECT d.id FROM webhook_deliveries d
				WHERE d.endpoint_id = k.endpoint_id AND d.ordering_key = k.ordering_key
				AND d.ordering_key IS NOT NULL AND d.state < 4 AND d.state = 3 ORDER BY d.id LIMIT 1) a ON true
		), move AS MATERIALIZED (
			SELECT d.id, d.state AS was, CASE WHEN h.leased IS NULL AND d.id = h.first THEN 0 ELSE 2 END AS becomes
			FROM head h CROSS JOIN LATERAL (
				SELECT d.id, d.state FROM webhook_deliveries d
				WHERE d.endpoint_id = h.endpoint_id AND d.ordering_key = h.ordering_key
				AND d.ordering_key IS NOT NULL AND d.state < 4 AND d.state = 0
				UNION ALL
				SELECT d.id, d.state FROM webhook_deliveries d
				WHERE d.endpoint_id = h.endpoint_id AND d.ordering_key = h.ordering_key
				AND d.ordering_key IS NOT NULL AND d.state < 4 AND d.state = 3
				UNION ALL
				SELECT d.id, d.state FROM webhook_deliveries d WHERE d.id = h.first AND d.state = 2) d
		)
		UPDATE webhook_deliveries d SET state = m.becomes
		FROM move m
		WHERE d.id = ANY(ARRAY(SELECT id FROM move WHERE was <> becomes)) AND d.id = m.id AND d.state = m.was
		RETURNING d.id, d.endpoint_id, d.due_at, d.state`
)

// slot returns one of n by a hash of an id and a key.
func slot(id int64, key string, n uint64) int32 {
	h := fnv.New64a()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(id))
	_, _ = h.Write(b[:])
	_, _ = h.Write([]byte(key))
	return int32(h.Sum64() % n)
}

// publishSlot is what is locked to publish with an ordering key.
func publishSlot(workspaceID int64, key string) int32 { return slot(workspaceID, key, publishSlots) }

// turnSlot is what is locked to decide whose turn it is.
func turnSlot(endpointID int64, key string) int32 {
	return publishSlots + slot(endpointID, key, turnSlots)
}

// orderingKey returns a key as it is stored, NULL for none.
func orderingKey(key string) []byte {
	if key == "" {
		return nil
	}
	return []byte(key)
}

// endpointKey is an ordering key of one endpoint.
type endpointKey struct {
	endpointID int64
	key        string
}

// settling is what came of putting deliveries into the order of their keys.
type settling struct {
	ready   []promoted      // the new heads
	demoted map[int64]int64 // those that gave way, with their endpoints
}

// promoted is a delivery that became the head of its key.
type promoted struct{ id, endpointID, dueAt int64 }

// settle makes the right delivery of each ordering key its head, after one of them
// became pending, was given back or ended. The turns of the keys must be held. It
// makes a round trip, and has the lanes brought up to date in the next.
func (tx *transaction) settle(keys map[endpointKey]struct{}) (settling, error) {
	s := settling{demoted: map[int64]int64{}}
	if len(keys) == 0 {
		return s, nil
	}
	endpoints, names := make([]int64, 0, len(keys)), make([][]byte, 0, len(keys))
	for k := range keys {
		endpoints, names = append(endpoints, k.endpointID), append(names, []byte(k.key))
	}
	var (
		p     promoted
		state int16
	)
	tx.queue(lockHeads, endpoints, names)
	tx.queue(settleKeys, endpoints, names).Query(each(func() error {
		if state == stateReady {
			s.ready = append(s.ready, p)
		} else {
			s.demoted[p.id] = p.endpointID
		}
		return nil
	}, &p.id, &p.endpointID, &p.dueAt, &state))
	if err := tx.send(); err != nil {
		return s, err
	}
	ready := firsts{}
	for _, p := range s.ready {
		ready.add(p.endpointID, p.dueAt)
	}
	tx.announce(ready)
	return s, nil
}

// distinct sorts a list and drops what is there twice.
func distinct[T ~int32 | ~int64](list []T) []T {
	slices.Sort(list)
	return slices.Compact(list)
}
