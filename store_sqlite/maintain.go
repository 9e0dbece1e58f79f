//go:build cgo

package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"math"

	"github.com/jmoiron/sqlx"

	"github.com/elido-app/webhook/store"
)

// maintainBatch bounds the rows one transaction of Maintain removes, so that
// claims are not kept waiting.
const maintainBatch = 250

// What there is to do is found by reading, so that with nothing to do nothing
// is written and no lock is taken.
const (
	selectEnded = `SELECT id FROM webhook_endpoints
		WHERE previous_until IS NOT NULL AND previous_until <= ? ORDER BY previous_until LIMIT ?`
	selectNextEnd = `SELECT min(previous_until) FROM webhook_endpoints WHERE previous_until IS NOT NULL`
	selectDeleted = `SELECT id FROM webhook_endpoints WHERE deleted_at IS NOT NULL AND purged = 0 ORDER BY id LIMIT 1`
	selectRows    = `SELECT id FROM webhook_deliveries WHERE endpoint_id = ? ORDER BY created_at, id LIMIT ?`
	selectOld     = `SELECT id FROM webhook_deliveries WHERE completed_at IS NOT NULL AND completed_at < ?
		ORDER BY completed_at LIMIT ?`
	selectOldKeys = `SELECT workspace_id, key FROM webhook_idempotency WHERE created_at < ? ORDER BY created_at LIMIT ?`

	// selectLong finds the next endpoint whose log has more rows than are kept.
	selectLong = `SELECT p.id FROM webhook_endpoints p WHERE p.id > ? AND p.deleted_at IS NULL
		AND EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.endpoint_id = p.id LIMIT 1 OFFSET ?)
		ORDER BY p.id LIMIT 1`
	// selectCut finds the oldest delivery that is kept.
	selectCut = `SELECT created_at, id FROM webhook_deliveries
		WHERE endpoint_id = ? AND state >= 3 ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET ?`
	selectSurplus = `SELECT id FROM webhook_deliveries
		WHERE endpoint_id = ? AND (created_at, id) < (?, ?) AND state >= 3 ORDER BY created_at, id LIMIT ?`
)

var (
	updateErased = &query{sql: `UPDATE webhook_endpoints SET previous_key = '', previous_secret = NULL, previous_until = NULL,
		revision = ? WHERE id = ? AND previous_until <= ? RETURNING 1`}
	updatePurged    = &query{sql: `UPDATE webhook_endpoints SET purged = 1 WHERE id = ?`}
	selectRemovable = &query{sql: `SELECT d.event_seq, e.remaining FROM webhook_deliveries d
		JOIN webhook_events e ON e.seq = d.event_seq WHERE d.id = ? AND d.state >= ?`}
	deleteDelivery  = &query{sql: `DELETE FROM webhook_deliveries WHERE id = ?`}
	deleteAttempts  = &query{sql: `DELETE FROM webhook_attempts WHERE delivery_id = ?`}
	updateRemaining = &query{sql: `UPDATE webhook_events SET remaining = remaining - 1 WHERE seq = ?`}
	deleteEvent     = &query{sql: `DELETE FROM webhook_events WHERE seq = ?`}
	deleteKey       = &query{sql: `DELETE FROM webhook_idempotency WHERE workspace_id = ? AND key = ? AND created_at < ?
		RETURNING 1`}
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
// it found, until there are none or the limit is reached.
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
		m.left -= len(ids)
		if len(ids) < n {
			return nil
		}
	}
}

func (m *maintenance) find(ctx context.Context, statement string, args ...any) (ids []int64, err error) {
	err = m.s.reading(ctx, "maintain", func(db *sqlx.DB) error {
		ids = nil
		return db.SelectContext(ctx, &ids, statement, args...)
	})
	return ids, err
}

func (m *maintenance) write(ctx context.Context, n int, work func(*transaction) error) error {
	return m.s.write(ctx, "maintain", 4*n, work)
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
		err = m.write(ctx, len(ids), func(tx *transaction) error {
			erased = 0
			for _, id := range ids {
				changed, err := tx.changed(updateErased, tx.revise(), id, now)
				if err != nil {
					return err
				}
				if changed {
					erased++
				}
			}
			tx.endpoints.forget()
			return nil
		})
		return erased, err
	})
}

// purge removes what deleted endpoints left behind.
func (m *maintenance) purge(ctx context.Context) error {
	for !m.result.More {
		ids, err := m.find(ctx, selectDeleted)
		if err != nil || len(ids) == 0 {
			return err
		}
		err = m.batches(&m.result.Purged, func(n int) ([]int64, error) {
			return m.find(ctx, selectRows, ids[0], n)
		}, func(rows []int64) (int, error) {
			return m.remove(ctx, rows, stateReady)
		})
		if err != nil || m.result.More {
			return err
		}
		err = m.write(ctx, 1, func(tx *transaction) error { return tx.run(updatePurged, nil, ids[0]) })
		if err != nil {
			return err
		}
	}
	return nil
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
	var cut struct {
		CreatedAt int64 `db:"created_at"`
		ID        int64 `db:"id"`
	}
	err := m.s.reading(ctx, "maintain", func(db *sqlx.DB) error {
		return db.GetContext(ctx, &cut, selectCut, id, keep-1)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil // the log is long because of what is pending
	}
	if err != nil {
		return err
	}
	return m.batches(&m.result.Pruned, func(n int) ([]int64, error) {
		return m.find(ctx, selectSurplus, id, cut.CreatedAt, cut.ID, n)
	}, func(ids []int64) (int, error) {
		return m.remove(ctx, ids, stateDelivered)
	})
}

// remove removes deliveries that are at least in a state, with all that belongs
// to them, and returns how many there were.
func (m *maintenance) remove(ctx context.Context, ids []int64, state int) (removed int, err error) {
	err = m.write(ctx, len(ids), func(tx *transaction) error {
		removed = 0
		for _, id := range ids {
			found, err := tx.remove(id, state)
			if err != nil {
				return err
			}
			if found {
				removed++
			}
		}
		return nil
	})
	return removed, err
}

func (tx *transaction) remove(id int64, state int) (found bool, err error) {
	var seq, remaining int64
	err = tx.run(selectRemovable, func(r row) {
		seq, remaining, found = integer(r[0]), integer(r[1])-1, true
	}, id, int64(state))
	if err != nil || !found {
		return false, err
	}
	if err := tx.run(deleteDelivery, nil, id); err != nil {
		return false, err
	}
	if err := tx.run(deleteAttempts, nil, id); err != nil {
		return false, err
	}
	if remaining > 0 {
		return true, tx.run(updateRemaining, nil, seq)
	}
	return true, tx.run(deleteEvent, nil, seq)
}

// forget removes old idempotency keys.
func (m *maintenance) forget(ctx context.Context) error {
	if m.p.ForgetKeysBefore.IsZero() {
		return nil
	}
	before := m.p.ForgetKeysBefore.UnixMilli()
	for {
		n := min(m.left, maintainBatch)
		var keys []struct {
			WorkspaceID int64  `db:"workspace_id"`
			Key         string `db:"key"`
		}
		err := m.s.reading(ctx, "maintain", func(db *sqlx.DB) error {
			keys = nil
			return db.SelectContext(ctx, &keys, selectOldKeys, before, max(n, 1))
		})
		if err != nil || len(keys) == 0 {
			return err
		}
		if n <= 0 {
			m.result.More = true
			return nil
		}
		removed := 0
		err = m.write(ctx, len(keys), func(tx *transaction) error {
			removed = 0
			for _, k := range keys {
				changed, err := tx.changed(deleteKey, k.WorkspaceID, k.Key, before)
				if err != nil {
					return err
				}
				if changed {
					removed++
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		m.result.Keys += removed
		m.left -= len(keys)
		if len(keys) < n {
			return nil
		}
	}
}

// nextEnd looks up the end of the overlap that ends next.
func (m *maintenance) nextEnd(ctx context.Context) error {
	return m.s.reading(ctx, "maintain", func(db *sqlx.DB) error {
		var end *int64
		if err := db.GetContext(ctx, &end, selectNextEnd); err != nil {
			return err
		}
		if end != nil {
			m.result.NextEnd = at(*end)
		}
		return nil
	})
}
