package postgresstore

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/elido-app/webhook/store"
)

// maintainBatch bounds the rows one transaction of Maintain removes, so that its
// locks are short.
const maintainBatch = 250

// purgeFor is how long after an endpoint was deleted its rows are looked for: a
// transaction of the host's may be open for long, and publish to an endpoint that
// was there when it looked.
const purgeFor = 24 * 60 * 60 * 1000 // ms

// What there is to do is found by reading, so that with nothing to do nothing
// is written and no lock is taken. What somebody else is just removing is passed
// over.
const (
	selectEnded = `SELECT id FROM webhook_endpoints
		WHERE previous_until IS NOT NULL AND previous_until <= $1 ORDER BY previous_until LIMIT $2`
	selectNextEnd = `SELECT min(previous_until) FROM webhook_endpoints WHERE previous_until IS NOT NULL`
	selectPurged  = `SELECT d.id FROM (
			SELECT id FROM webhook_endpoints WHERE deleted_at IS NOT NULL AND NOT purged ORDER BY id) p
		CROSS JOIN LATERAL (SELECT d.id FROM webhook_deliveries d WHERE d.endpoint_id = p.id LIMIT $1) d LIMIT $1`
	selectOld = `SELECT id FROM webhook_deliveries WHERE completed_at IS NOT NULL AND completed_at < $1
		ORDER BY completed_at LIMIT $2`
	selectEmptied = `SELECT p.id FROM webhook_endpoints p WHERE p.deleted_at < $1 AND p.deleted_at IS NOT NULL AND NOT p.purged
		ORDER BY p.id LIMIT $2`

	// selectLong finds the next endpoint whose log has more rows than are kept.
	selectLong = `SELECT p.id FROM webhook_endpoints p CROSS JOIN LATERAL (
			SELECT 1 FROM webhook_deliveries d WHERE d.endpoint_id = p.id
			ORDER BY d.created_at, d.id OFFSET $2 LIMIT 1) l
		WHERE p.id > $1 AND p.deleted_at IS NULL ORDER BY p.id LIMIT 1`
	// selectCut finds the oldest delivery that is kept.
	selectCut = `SELECT created_at, id FROM webhook_deliveries
		WHERE endpoint_id = $1 AND state >= 4 ORDER BY created_at DESC, id DESC OFFSET $2 LIMIT 1`
	selectSurplus = `SELECT id FROM webhook_deliveries
		WHERE endpoint_id = $1 AND (created_at, id) < ($2::bigint, $3::bigint) AND state >= 4
		ORDER BY created_at, id LIMIT $4`

	lockEnded = `SELECT id FROM webhook_endpoints WHERE id = ANY($1::bigint[]) AND previous_until <= $2
		ORDER BY id FOR UPDATE SKIP LOCKED`
	updateErased = `UPDATE webhook_endpoints SET previous_key = '', previous_secret = NULL, previous_until = NULL,
		revision = $2 WHERE id = ANY($1::bigint[])`
	updatePurged = `UPDATE webhook_endpoints p SET purged = TRUE WHERE p.id = ANY($1::bigint[])
		AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.endpoint_id = p.id)`

	lockRemoved = `SELECT id, event_seq FROM webhook_deliveries WHERE id = ANY($1::bigint[]) AND state >= $2
		ORDER BY id FOR UPDATE SKIP LOCKED`
	// lockEvents has those wait for each other who remove the last deliveries of
	// one event.
	lockEvents       = `SELECT seq FROM webhook_events WHERE seq = ANY($1::bigint[]) ORDER BY seq FOR UPDATE`
	deleteAttempts   = `DELETE FROM webhook_attempts WHERE delivery_id = ANY($1::bigint[])`
	deleteDeliveries = `DELETE FROM webhook_deliveries WHERE id = ANY($1::bigint[])`
	deleteEvents     = `DELETE FROM webhook_events e WHERE e.seq = ANY($1::bigint[])
		AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.id = ANY(e.deliveries))`

	selectOldKeys = `SELECT 1 FROM (SELECT FROM webhook_idempotency WHERE created_at < $1 ORDER BY created_at LIMIT $2) k`
	// The rows are locked, so that they stay where they are.
	deleteKeys = `DELETE FROM webhook_idempotency WHERE ctid = ANY(ARRAY(
		SELECT ctid FROM webhook_idempotency WHERE created_at < $1 ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))`
)

// Maintain implements store.Store. It works in several short transactions; when
// one fails after others succeeded, it returns what these did, with More set.
func (s *Store) Maintain(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
	m := maintenance{s: s, p: p, left: p.Limit}
	if p.Limit <= 0 {
		m.left = math.MaxInt
	}
	for _, part := range []func(context.Context) error{m.erase, m.purge, m.pruneOld, m.pruneSurplus, m.forget, m.nextEnd} {
		if err := part(ctx); err != nil {
			if !m.done() {
				return store.MaintainResult{}, err
			}
			m.result.More = true
			return m.result, nil
		}
	}
	return m.result, nil
}

// maintenance is one call of Maintain.
type maintenance struct {
	s      *Store
	p      store.MaintainParams
	left   int
	result store.MaintainResult
}

func (m *maintenance) done() bool {
	r := m.result
	return r.Erased+r.Pruned+r.Purged+r.Keys > 0
}

// batches calls find for ids, at most as many as asked for, and remove for what
// it found, until there are none, somebody else is at them, or the limit is
// reached.
func (m *maintenance) batches(count *int, find func(n int) ([]int64, error), remove func(ids []int64) (int, error)) error {
	for {
		n := min(m.left, maintainBatch)
		ids, err := find(max(n, 1))
		if err != nil || len(ids) == 0 {
			return err
		}
		if n <= 0 {
			m.result.More = true
			return nil
		}
		removed, err := remove(ids)
		if err != nil {
			return err
		}
		*count += removed
		m.left -= removed
		if len(ids) < n || removed == 0 {
			return nil
		}
	}
}

// find runs a statement that gives ids.
func (m *maintenance) find(ctx context.Context, statement string, args ...any) (ids []int64, err error) {
	err = m.s.read(ctx, "maintain", func(tx *transaction) error {
		ids = nil
		var id int64
		tx.queue(statement, args...).Query(each(func() error {
			ids = append(ids, id)
			return nil
		}, &id))
		return tx.send()
	})
	return ids, err
}

// erase removes previous secrets whose overlap has ended.
func (m *maintenance) erase(ctx context.Context) error {
	if m.p.Now.IsZero() {
		return nil
	}
	now := m.p.Now.UnixMilli()
	return m.batches(&m.result.Erased, func(n int) ([]int64, error) {
		return m.find(ctx, selectEnded, now, n)
	}, func(ids []int64) (erased int, err error) {
		err = m.s.write(ctx, "maintain", func(tx *transaction) error {
			var id int64
			var locked []int64
			tx.queue(lockEnded, ids, now).Query(each(func() error {
				locked = append(locked, id)
				return nil
			}, &id))
			if err := tx.send(); err != nil {
				return err
			}
			// Each its own revision, as each changes by itself.
			for _, id := range locked {
				revision, err := tx.revise()
				if err != nil {
					return err
				}
				tx.queue(updateErased, []int64{id}, revision)
			}
			erased = len(locked)
			return nil
		})
		return erased, err
	})
}

// purge removes what deleted endpoints left behind.
func (m *maintenance) purge(ctx context.Context) error {
	err := m.batches(&m.result.Purged, func(n int) ([]int64, error) {
		return m.find(ctx, selectPurged, n)
	}, func(ids []int64) (int, error) {
		return m.remove(ctx, ids, stateReady)
	})
	if err != nil || m.result.More || m.p.Now.IsZero() {
		return err
	}
	ids, err := m.find(ctx, selectEmptied, m.p.Now.UnixMilli()-purgeFor, maintainBatch)
	if err != nil || len(ids) == 0 {
		return err
	}
	return m.s.write(ctx, "maintain", func(tx *transaction) error {
		tx.queue(updatePurged, ids)
		return nil
	})
}

// pruneOld removes deliveries that ended long ago.
func (m *maintenance) pruneOld(ctx context.Context) error {
	if m.p.PruneBefore.IsZero() {
		return nil
	}
	return m.batches(&m.result.Pruned, func(n int) ([]int64, error) {
		return m.find(ctx, selectOld, m.p.PruneBefore.UnixMilli(), n)
	}, func(ids []int64) (int, error) {
		return m.remove(ctx, ids, stateDelivered)
	})
}

// pruneSurplus removes the oldest deliveries of endpoints that have more than
// are kept.
func (m *maintenance) pruneSurplus(ctx context.Context) error {
	keep := m.p.KeepPerEndpoint
	if keep <= 0 {
		return nil
	}
	for after := int64(math.MinInt64); ; {
		endpoint, err := m.find(ctx, selectLong, after, keep)
		if err != nil || len(endpoint) == 0 {
			return err
		}
		after = endpoint[0]
		if err := m.pruneEndpoint(ctx, after, keep); err != nil || m.result.More {
			return err
		}
	}
}

func (m *maintenance) pruneEndpoint(ctx context.Context, id int64, keep int) error {
	var createdAt, cut int64
	found := false
	err := m.s.read(ctx, "maintain", func(tx *transaction) error {
		tx.queue(selectCut, id, keep-1).Query(each(func() error {
			found = true
			return nil
		}, &createdAt, &cut))
		return tx.send()
	})
	if err != nil || !found { // not found: the log is long because of what is pending
		return err
	}
	return m.batches(&m.result.Pruned, func(n int) ([]int64, error) {
		return m.find(ctx, selectSurplus, id, createdAt, cut, n)
	}, func(ids []int64) (int, error) {
		return m.remove(ctx, ids, stateDelivered)
	})
}

// remove removes deliveries that are at least in a state, with all that belongs
// to them, and returns how many there were.
func (m *maintenance) remove(ctx context.Context, ids []int64, state int) (removed int, err error) {
	err = m.s.write(ctx, "maintain", func(tx *transaction) error {
		var id, seq int64
		var gone, events []int64
		tx.queue(lockRemoved, ids, state).Query(each(func() error {
			gone, events = append(gone, id), append(events, seq)
			return nil
		}, &id, &seq))
		if err := tx.send(); err != nil {
			return err
		}
		removed = len(gone)
		if removed == 0 {
			return nil
		}
		events = distinct(events)
		tx.queue(lockEvents, events)
		tx.queue(deleteAttempts, gone)
		tx.queue(deleteDeliveries, gone)
		tx.queue(deleteEvents, events)
		return tx.send()
	})
	return removed, err
}

// forget removes old idempotency keys.
func (m *maintenance) forget(ctx context.Context) error {
	if m.p.ForgetKeysBefore.IsZero() {
		return nil
	}
	before := m.p.ForgetKeysBefore.UnixMilli()
	return m.batches(&m.result.Keys, func(n int) ([]int64, error) {
		return m.find(ctx, selectOldKeys, before, n)
	}, func(ids []int64) (removed int, err error) {
		err = m.s.write(ctx, "maintain", func(tx *transaction) error {
			tx.queue(deleteKeys, before, len(ids)).Exec(func(tag pgconn.CommandTag) error {
				removed = int(tag.RowsAffected())
				return nil
			})
			return tx.send()
		})
		return removed, err
	})
}

// nextEnd looks up the end of the overlap that ends next.
func (m *maintenance) nextEnd(ctx context.Context) error {
	return m.s.read(ctx, "maintain", func(tx *transaction) error {
		var end *int64
		tx.queue(selectNextEnd).Query(each(func() error { return nil }, &end))
		err := tx.send()
		m.result.NextEnd = instant(end)
		return err
	})
}
