package postgresstore

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/elido-app/webhook/store"
)

const (
	// insertKeys takes idempotency keys. It waits for others that are taking the
	// same, and leaves those alone that are taken.
	insertKeys = `INSERT INTO webhook_idempotency (workspace_id, key, digest, event_id, created_at)
		SELECT workspace_id, key, digest, event_id, $5
		FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::text[]) AS k(workspace_id, key, digest, event_id)
		ON CONFLICT DO NOTHING RETURNING workspace_id, key`
	selectKeys = `SELECT k.n, i.digest, i.event_id, i.deliveries
		FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS k(workspace_id, key, n)
		JOIN webhook_idempotency i ON i.workspace_id = k.workspace_id AND i.key = k.key`
	updateKeys = `UPDATE webhook_idempotency i SET deliveries = k.deliveries::bigint[]
		FROM unnest($1::bigint[], $2::bytea[], $3::text[]) AS k(workspace_id, key, deliveries)
		WHERE i.workspace_id = k.workspace_id AND i.key = k.key`
)

// eventKey is an idempotency key within its workspace.
type eventKey struct {
	workspaceID int64
	key         string
}

// takenKey is an idempotency key as it is stored.
type takenKey struct {
	index      int  // of the event
	mine       bool // it was free
	digest     []byte
	eventID    string
	deliveries []int64
}

// takeKeys takes the idempotency keys of events. Who has them is known after the
// next round trip.
func (pub *publication) takeKeys(events []store.NewEvent) (taken *[]takenKey, repeats map[int]int) {
	first := map[eventKey]int{} // where a key of this batch is first used
	var order []int
	for i := range events {
		ev := &events[i]
		if ev.IdempotencyKey == "" {
			continue
		}
		key := eventKey{ev.WorkspaceID, ev.IdempotencyKey}
		j, ok := first[key]
		if !ok {
			first[key] = i
			order = append(order, i)
			continue
		}
		if repeats == nil {
			repeats = map[int]int{}
		}
		repeats[i] = j
	}
	if len(order) == 0 {
		return nil, nil
	}
	// In the order of the keys, so that nobody waits in a circle.
	slices.SortFunc(order, func(i, j int) int {
		a, b := &events[i], &events[j]
		return cmp.Or(cmp.Compare(a.WorkspaceID, b.WorkspaceID), cmp.Compare(a.IdempotencyKey, b.IdempotencyKey))
	})
	var (
		workspaces    []int64
		keys, digests [][]byte
		ids           []string
	)
	for _, i := range order {
		ev := &events[i]
		workspaces, keys = append(workspaces, ev.WorkspaceID), append(keys, []byte(ev.IdempotencyKey))
		digests, ids = append(digests, ev.Digest[:]), append(ids, ev.ID)
	}
	var (
		workspaceID, n int64
		key            []byte
		k              takenKey
		mine           = map[eventKey]bool{}
	)
	taken = new([]takenKey)
	pub.tx.queue(insertKeys, workspaces, keys, digests, ids, pub.now).Query(each(func() error {
		mine[eventKey{workspaceID, string(key)}] = true
		return nil
	}, &workspaceID, &key))
	pub.tx.queue(selectKeys, workspaces, keys).Query(each(func() error {
		k.index = order[n-1]
		k.mine = mine[eventKey{workspaces[n-1], string(keys[n-1])}]
		*taken = append(*taken, k)
		return nil
	}, &n, &k.digest, &k.eventID, &k.deliveries))
	return taken, repeats
}

// compare finds out which events repeat earlier ones, and whether one conflicts.
func (pub *publication) compare(events []store.NewEvent, taken *[]takenKey) error {
	if taken == nil {
		return nil
	}
	digests := map[eventKey][]byte{}
	for _, k := range *taken {
		ev := &events[k.index]
		digests[eventKey{ev.WorkspaceID, ev.IdempotencyKey}] = k.digest
		if !k.mine {
			pub.receipts[k.index] = store.Receipt{EventID: k.eventID, DeliveryIDs: k.deliveries, Repeat: true}
		}
	}
	for i := range events {
		ev := &events[i]
		if ev.IdempotencyKey != "" && !bytes.Equal(digests[eventKey{ev.WorkspaceID, ev.IdempotencyKey}], ev.Digest[:]) {
			return &store.EventError{Index: i, Err: store.ErrIdempotencyConflict}
		}
	}
	return nil
}
