package postgresstore

import (
	"slices"

	"github.com/elido-app/webhook/store"
)

// maxSettled bounds how many leases that ran out, and how many deliveries that
// arrived, one claim deals with.
const maxSettled = 1000

const (
	selectRunOut = `SELECT id, turn FROM webhook_deliveries
		WHERE state = 1 AND lease_until <= $1 ORDER BY lease_until LIMIT $2`
	selectArrived = `SELECT id, turn, endpoint_id, ordering_key FROM webhook_deliveries
		WHERE state = 3 ORDER BY id LIMIT $1`

	lockRunOut = `SELECT id, endpoint_id, ordering_key, interruptions, lease_until FROM webhook_deliveries
		WHERE id = ANY($1::bigint[]) AND state = 1 AND lease_until <= $2 ORDER BY id FOR UPDATE SKIP LOCKED`
	updateRunOut = `UPDATE webhook_deliveries d
		SET state = 0, lease_until = NULL, interruptions = u.interruptions, due_at = u.due_at
		FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS u(id, interruptions, due_at)
		WHERE d.id = ANY($1::bigint[]) AND d.id = u.id`
)

// unsettled is what a claim has to deal with before it can take anything.
type unsettled struct {
	runOut  *[]waiting // under leases that ran out
	arrived *[]waiting // in transactions of the host's
}

// waiting is one such delivery.
type waiting struct {
	id   int64
	turn *int32
	key  endpointKey // of what arrived
}

func (tx *transaction) lookUnsettled(now int64) unsettled {
	u := unsettled{new([]waiting), new([]waiting)}
	var (
		w          waiting
		endpointID int64
		key        []byte
	)
	tx.queue(selectRunOut, now, maxSettled).Query(each(func() error {
		*u.runOut = append(*u.runOut, w)
		return nil
	}, &w.id, &w.turn))
	tx.queue(selectArrived, maxSettled).Query(each(func() error {
		*u.arrived = append(*u.arrived, waiting{w.id, w.turn, endpointKey{endpointID, string(key)}})
		return nil
	}, &w.id, &w.turn, &endpointID, &key))
	return u
}

// some reports whether there is anything.
func (u unsettled) some() bool { return len(*u.runOut)+len(*u.arrived) > 0 }

// sameAs reports whether nothing came of dealing with o.
func (u unsettled) sameAs(o unsettled) bool {
	same := func(a, b []waiting) bool {
		return slices.EqualFunc(a, b, func(x, y waiting) bool { return x.id == y.id })
	}
	return same(*u.runOut, *o.runOut) && same(*u.arrived, *o.arrived)
}

// settleAll retakes what is under a lease that ran out, and puts into their order
// the deliveries that arrived. It passes over ordering keys that somebody else is
// busy with.
//
// Retaking does not take the token away: until somebody else takes the delivery,
// its outcome counts.
func (tx *transaction) settleAll(now int64, u unsettled) error {
	held, err := tx.holdTurns(slices.Concat(*u.runOut, *u.arrived))
	if err != nil {
		return err
	}
	keys := map[endpointKey]struct{}{}
	if err := tx.retake(now, *u.runOut, held, keys); err != nil {
		return err
	}
	for _, w := range *u.arrived {
		if w.turn == nil || held[*w.turn] {
			keys[w.key] = struct{}{}
		}
	}
	s, err := tx.settle(keys)
	if err != nil {
		return err
	}
	tx.refreshLanes(s.gaveWay())
	return nil
}

// gaveWay returns the endpoints at which a ready delivery is blocked again.
func (s settling) gaveWay() []int64 {
	var ids []int64
	for _, id := range s.demoted {
		ids = append(ids, id)
	}
	return distinct(ids)
}

// holdTurns takes the turns of deliveries, as far as they are free.
func (tx *transaction) holdTurns(list []waiting) (held map[int32]bool, err error) {
	var slots []int32
	for _, w := range list {
		if w.turn != nil {
			slots = append(slots, *w.turn)
		}
	}
	held = map[int32]bool{}
	if len(slots) == 0 {
		return held, nil
	}
	var n int32
	tx.queue(lockFreeSlots, distinct(slots)).Query(each(func() error {
		held[n] = true
		return nil
	}, &n))
	err = tx.send()
	return held, err
}

func (tx *transaction) retake(now int64, list []waiting, held map[int32]bool, keys map[endpointKey]struct{}) error {
	var ids []int64
	for _, w := range list {
		if w.turn == nil || held[*w.turn] {
			ids = append(ids, w.id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var (
		id, endpointID, interruptions, until int64
		key                                  []byte
		taken, counts, dues                  []int64
		ready                                = firsts{}
	)
	tx.queue(lockRunOut, ids, now).Query(each(func() error {
		interruptions++
		due := until + store.RetakeDelay(int(interruptions)).Milliseconds()
		taken, counts, dues = append(taken, id), append(counts, interruptions), append(dues, due)
		ready.add(endpointID, due)
		if key != nil {
			keys[endpointKey{endpointID, string(key)}] = struct{}{}
		}
		return nil
	}, &id, &endpointID, &key, &interruptions, &until))
	if err := tx.send(); err != nil || len(taken) == 0 {
		return err
	}
	tx.queue(updateRunOut, taken, counts, dues)
	tx.announce(ready)
	return nil
}
