package storetest

import (
	"errors"
	"time"

	"github.com/elido-app/webhook/store"
)

var idempotencyCases = []Case{
	{
		"idempotency/repeat",
		"An event whose idempotency key the workspace used before stores nothing: its receipt is the first one's, with Repeat set.",
		check(idempotencyRepeat),
	},
	{
		"idempotency/in one batch",
		"A key used earlier in Events is used before, too.",
		check(idempotencyInBatch),
	},
	{
		"idempotency/conflict",
		"If the digests differ Publish returns an *EventError with ErrIdempotencyConflict and the event's index, and stores nothing.",
		check(idempotencyConflict),
	},
	{
		"idempotency/nobody",
		"A key is remembered when the event selected nobody.",
		check(idempotencyNobody),
	},
	{
		"idempotency/workspaces",
		"Idempotency keys are the workspace's own.",
		check(idempotencyWorkspaces),
	},
	{
		"idempotency/remembered",
		"Keys are remembered until Maintain forgets them, whatever becomes of the event.",
		check(idempotencyRemembered),
	},
	{
		"idempotency/concurrent",
		"Many publishes at once with one key store one event.",
		check(idempotencyConcurrent),
	},
}

func (t *trial) keyedEvent(workspaceID int64, key string, digest byte) store.NewEvent {
	ev := t.event(workspaceID)
	ev.IdempotencyKey, ev.Digest = key, [32]byte{0: digest, 31: digest}
	return ev
}

func idempotencyRepeat(t *trial) {
	t.endpoint()
	first := t.publish(at(0), t.keyedEvent(home, "order-1", 1)).Receipts[0]
	t.same(first.Repeat, false, "Repeat of the first")
	second := t.publish(at(time.Minute), t.event(home), t.keyedEvent(home, "order-1", 1)).Receipts
	want := first
	want.Repeat = true
	t.same(second[1], want, "the repeat's receipt")
	t.same(len(t.list(store.DeliveryFilter{})), 2, "number of deliveries")

	t.endpoint() // would be selected now
	t.same(t.publish(at(time.Minute), t.keyedEvent(home, "order-1", 1)).Receipts[0], want, "the second repeat's receipt")
	t.same(t.repeats(at(0), t.keyedEvent(home, "ORDER-1", 2)), false, "Repeat of a key in other case")
	t.same(t.repeats(at(0), t.keyedEvent(home, "order-1 ", 2)), false, "Repeat of a key with a space")
}

func idempotencyInBatch(t *trial) {
	t.endpoint()
	r := t.publish(at(0), t.keyedEvent(home, "k", 1), t.event(home), t.keyedEvent(home, "k", 1), t.keyedEvent(home, "l", 1))
	want := r.Receipts[0]
	want.Repeat = true
	t.same(r.Receipts[2], want, "the receipt of the repeat")
	t.same(r.Receipts[0].Repeat, false, "Repeat of the first")
	t.same(r.Receipts[3].Repeat, false, "Repeat of another key")
	t.same(len(t.list(store.DeliveryFilter{})), 3, "number of deliveries")
}

func idempotencyConflict(t *trial) {
	t.endpoint()
	kept := deliveryIDs(t.publish(at(0), t.keyedEvent(home, "k", 1)).Receipts)
	for _, c := range []struct {
		name   string
		index  int
		events []store.NewEvent
	}{
		{"alone", 0, []store.NewEvent{t.keyedEvent(home, "k", 2)}},
		{"behind others", 2, []store.NewEvent{t.event(home), t.keyedEvent(home, "k", 1), t.keyedEvent(home, "k", 2)}},
		{"within one batch", 3, []store.NewEvent{
			t.event(home), t.keyedEvent(home, "new", 1), t.keyedEvent(home, "new", 1), t.keyedEvent(home, "new", 2),
		}},
	} {
		_, err := t.st.Publish(t.ctx, store.PublishParams{Events: c.events, Now: at(0)})
		t.refused(err, store.ErrIdempotencyConflict, "Publish %s", c.name)
		var refused *store.EventError
		if !errors.As(err, &refused) {
			t.failf("Publish %s returned %T, want an *EventError", c.name, err)
		}
		t.same(refused.Index, c.index, "Index of the conflict %s", c.name)
		t.same(t.list(store.DeliveryFilter{}), kept, "deliveries after the conflict %s", c.name)
	}
	t.same(t.repeats(at(0), t.keyedEvent(home, "new", 2)), false, "Repeat of a key from a refused batch")
}

func idempotencyNobody(t *trial) {
	ev := t.keyedEvent(home, "k", 1)
	t.publish(at(0), ev)
	t.endpoint()
	r := t.publish(at(0), t.keyedEvent(home, "k", 1)).Receipts[0]
	t.same(r, store.Receipt{EventID: ev.ID, Repeat: true}, "the repeat's receipt")
	_, err := t.st.Publish(t.ctx, store.PublishParams{Events: []store.NewEvent{t.keyedEvent(home, "k", 2)}, Now: at(0)})
	t.refused(err, store.ErrIdempotencyConflict, "Publish of other content")
}

func idempotencyWorkspaces(t *trial) {
	t.endpoint()
	t.create(draft(abroad))
	t.publish(at(0), t.keyedEvent(home, "k", 1))
	r := t.publish(at(0), t.keyedEvent(abroad, "k", 2), t.keyedEvent(home, "k", 1)).Receipts
	t.same(r[0].Repeat, false, "Repeat in the other workspace")
	t.same(len(r[0].DeliveryIDs), 1, "deliveries in the other workspace")
	t.same(r[1].Repeat, true, "Repeat in the same workspace")
}

func idempotencyRemembered(t *trial) {
	e := t.endpoint()
	first := t.publish(at(0), t.keyedEvent(home, "k", 1)).Receipts[0]
	first.Repeat = true
	repeated := func(when string) {
		t.same(t.publish(at(time.Hour), t.keyedEvent(home, "k", 1)).Receipts[0], first, "the receipt %s", when)
	}
	t.record(at(0), delivered(t.one(t.claim(at(0)))))
	repeated("after delivery")
	t.maintain(store.MaintainParams{Now: at(time.Hour), PruneBefore: at(time.Hour)})
	repeated("after pruning")
	t.remove(e, at(time.Hour))
	repeated("after the endpoint was deleted")
	t.maintain(store.MaintainParams{Now: at(time.Hour)})
	repeated("after its rows are gone")
}

func idempotencyConcurrent(t *trial) {
	t.endpoint()
	const callers = 50
	events := make([]store.NewEvent, callers)
	for i := range events {
		events[i] = t.keyedEvent(home, "k", 1)
	}
	receipts := make([]store.Receipt, callers)
	for _, err := range together(callers, func(i int) error {
		r, err := t.st.Publish(t.ctx, store.PublishParams{Events: events[i : i+1], Now: at(0)})
		if err == nil && len(r.Receipts) == 1 {
			receipts[i] = r.Receipts[0]
		}
		return err
	}) {
		t.must(err, "Publish")
	}
	stored := t.list(store.DeliveryFilter{})
	t.same(len(stored), 1, "number of deliveries")
	first := 0
	for _, r := range receipts {
		if !r.Repeat {
			first++
		}
		t.same(r.DeliveryIDs, stored, "deliveries of a receipt")
		t.same(r.EventID, receipts[0].EventID, "event of a receipt")
	}
	t.same(first, 1, "receipts without Repeat")
}
