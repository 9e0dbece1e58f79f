package storetest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/elido-app/webhook/store"
)

var publishCases = []Case{
	{
		"publish/matching",
		"An event selects the active endpoints of its workspace that are of kind siem or have one of its Matches in their Events.",
		check(publishMatching),
	},
	{
		"publish/endpoint",
		"With EndpointID set an event selects that endpoint alone, if it is active, whatever it subscribes to.",
		check(publishToEndpoint),
	},
	{
		"publish/to nobody",
		"An event that selects nobody is no error, has a receipt, and leaves nothing behind.",
		check(publishToNobody),
	},
	{
		"publish/receipts",
		"Receipts come one for each event, in their order, and name the event and its deliveries.",
		check(publishReceipts),
	},
	{
		"publish/delivery",
		"Publish stores deliveries that are pending and due at Now, with what the event says.",
		check(publishDelivery),
	},
	{
		"publish/order of ids",
		"The order of delivery ids is the order in which publishes completed and, within one, of Events; " +
			"no id comes back after its delivery was pruned or purged.",
		check(publishOrder),
	},
	{
		"publish/atomic",
		"Publish stores all of its events and deliveries or nothing.",
		check(publishAtomic),
	},
	{
		"publish/seen whole",
		"Nobody sees a part of a publish: what reads meanwhile sees all of its deliveries or none.",
		check(publishSeenWhole),
	},
	{
		"publish/budget",
		"A delivery has Budget attempts, or DegradedBudget (unless zero) if its endpoint is degraded at Now; " +
			"it is fixed when published.",
		check(publishBudget),
	},
	{
		"publish/queued",
		"Queued says that deliveries were stored which are due and not leased.",
		check(publishQueued),
	},
	{
		"publish/batch",
		"A batch of 1,000 events is stored whole.",
		check(publishBatch),
	},
}

func publishMatching(t *trial) {
	endpoint := func(workspace int64, kind store.Kind, active bool, events ...string) int64 {
		e := draft(workspace)
		e.Kind, e.Active, e.Events = kind, active, events
		return t.create(e).ID
	}
	exact := endpoint(home, store.KindEvent, true, "link.deleted", "link.created")
	prefix := endpoint(home, store.KindDiscord, true, "link.*")
	both := endpoint(home, store.KindEvent, true, "link.*", "link.created", "link.created")
	siem := endpoint(home, store.KindSIEM, true)
	theirs := endpoint(abroad, store.KindEvent, true, "link.created")
	endpoint(home, store.KindEvent, true)                     // subscribes to nothing
	endpoint(home, store.KindEvent, true, "link.updated")     // another type
	endpoint(home, store.KindEvent, true, "link")             // no entry that matches
	endpoint(home, store.KindEvent, true, "LINK.CREATED")     // nor is this
	endpoint(home, store.KindEvent, true, "link.created.x")   // nor this
	endpoint(home, store.KindEvent, true, "%", "_", "link.%") // patterns mean nothing
	endpoint(home, store.KindEvent, false, "link.created")    // paused
	endpoint(home, store.KindSIEM, false)                     // paused
	gone := draft(home)
	gone = t.create(gone)
	t.remove(gone, at(0))

	selected := func(ev store.NewEvent) []int64 {
		var to []int64
		for _, id := range t.deliver(at(0), ev) {
			d, err := t.st.Delivery(t.ctx, ev.WorkspaceID, id)
			t.must(err, "Delivery")
			to = append(to, d.EndpointID)
		}
		slices.Sort(to)
		return to
	}
	t.same(selected(t.event(home)), []int64{exact, prefix, both, siem}, "endpoints of link.created")
	t.same(selected(t.event(abroad)), []int64{theirs}, "endpoints of the other workspace")
	audit := t.event(home)
	audit.Type, audit.Matches = "audit.event", []string{"audit.event", "audit.*"}
	t.same(selected(audit), []int64{siem}, "endpoints of audit.event")
	bare := t.event(home)
	bare.Matches = nil
	t.same(selected(bare), []int64{siem}, "endpoints of an event without Matches")
}

func publishToEndpoint(t *trial) {
	t.endpoint()
	e := draft(home)
	e.Events = []string{"domain.verified"}
	e = t.create(e)
	siem := draft(home)
	siem.Kind = store.KindSIEM
	t.create(siem)

	ev := t.event(home)
	ev.EndpointID = e.ID
	sent := t.deliver(at(0), ev)
	t.same(len(sent), 1, "number of deliveries")
	t.same(t.delivery(sent[0]).EndpointID, e.ID, "the endpoint")

	e = t.pause(e, true)
	ev = t.event(home)
	ev.EndpointID = e.ID
	t.same(len(t.deliver(at(0), ev)), 0, "deliveries to the endpoint while paused")
	ev = t.event(home)
	ev.EndpointID = e.ID + 1000
	t.same(len(t.deliver(at(0), ev)), 0, "deliveries to an unknown endpoint")
}

func publishToNobody(t *trial) {
	t.create(draft(abroad))
	ev := t.event(home)
	r := t.publish(at(0), ev)
	t.same(r, store.PublishResult{Receipts: []store.Receipt{{EventID: ev.ID}}}, "what Publish returned")
	t.same(t.list(store.DeliveryFilter{}), []int64(nil), "deliveries")
	t.same(t.list(store.DeliveryFilter{EventID: ev.ID}), []int64(nil), "deliveries of the event")
	t.same(t.probe(0).NextDue, time.Time{}, "NextDue")
}

func publishReceipts(t *trial) {
	a, b := t.endpoint(), t.endpoint()
	nobody := t.event(nowhere)
	first, last := t.event(home), t.event(home)
	r := t.publish(at(0), first, nobody, last)
	seen := map[int64]bool{}
	for i, ev := range []store.NewEvent{first, nobody, last} {
		receipt := r.Receipts[i]
		t.same(receipt.EventID, ev.ID, "EventID of receipt %d", i)
		t.same(receipt.Repeat, false, "Repeat of receipt %d", i)
		if ev.WorkspaceID == nowhere {
			t.same(len(receipt.DeliveryIDs), 0, "deliveries of receipt %d", i)
			continue
		}
		var to []int64
		for _, id := range receipt.DeliveryIDs {
			if id <= 0 || seen[id] {
				t.failf("delivery id %d is not positive, or there twice", id)
			}
			seen[id] = true
			d := t.delivery(id)
			t.same(d.EventID, ev.ID, "EventID of delivery %d", id)
			to = append(to, d.EndpointID)
		}
		slices.Sort(to)
		t.same(to, []int64{a.ID, b.ID}, "endpoints of receipt %d", i)
	}
}

func publishDelivery(t *trial) {
	e := t.endpoint()
	ev := t.event(home)
	ev.OrderingKey = "link 7"
	ev.OccurredAt = at(-time.Hour)
	ev.Budget = 7
	id := t.deliverOne(at(time.Minute), ev)
	want := store.Delivery{
		ID: id, WorkspaceID: home, EndpointID: e.ID, EventID: ev.ID, EventType: "link.created", OrderingKey: "link 7",
		Status: store.StatusPending, Budget: 7,
		CreatedAt: at(time.Minute), NextAttemptAt: at(time.Minute), Payload: ev.Payload,
	}
	t.same(t.delivery(id), want, "the delivery")
	list, err := t.st.Deliveries(t.ctx, store.DeliveryFilter{WorkspaceID: home, Limit: 10})
	t.must(err, "Deliveries")
	t.same(list, []store.Delivery{want}, "the list")
	t.same(len(t.attempts(id)), 0, "attempts")
}

func publishOrder(t *trial) {
	e := t.endpoint()
	last := int64(0)
	grow := func(sent []int64) {
		for _, id := range sent {
			if id <= last {
				t.failf("delivery %d was published after %d, want a higher id", id, last)
			}
			last = id
		}
	}
	grow(t.send(e, 5, at(time.Hour)))
	grow(t.send(e, 5, at(0))) // a clock that went back changes nothing
	t.record(at(time.Hour), delivered(t.exactly(10, t.claim(at(time.Hour)))[9]))
	grow(t.finish(e, 1, store.StatusFailed, at(time.Hour)))
	t.maintain(store.MaintainParams{Now: at(3 * time.Hour), PruneBefore: at(3 * time.Hour)})
	grow(t.send(e, 1, at(3*time.Hour)))
	t.remove(e, at(3*time.Hour))
	t.maintain(store.MaintainParams{Now: at(3 * time.Hour)})
	grow(t.send(t.endpoint(), 1, at(4*time.Hour)))
}

func publishAtomic(t *trial) {
	t.endpoint()
	used := t.event(home)
	used.IdempotencyKey, used.Digest = "k", [32]byte{1}
	known := deliveryIDs(t.publish(at(0), used).Receipts)

	clash := t.event(home)
	clash.IdempotencyKey, clash.Digest = "k", [32]byte{2}
	fresh := t.event(home)
	fresh.IdempotencyKey = "fresh"
	lease := t.lease(at(0))
	_, err := t.st.Publish(t.ctx, store.PublishParams{
		Events: []store.NewEvent{fresh, t.event(home), clash, t.event(home)}, Now: at(0), Handoff: &lease,
	})
	t.refused(err, store.ErrIdempotencyConflict, "Publish")
	t.same(t.list(store.DeliveryFilter{}), known, "deliveries after a refused batch")
	t.same(t.repeats(at(0), fresh), false, "Repeat of a key from the refused batch")
}

func publishSeenWhole(t *trial) {
	const batch, rounds = 40, 8
	e := t.endpoint()
	var batches [rounds][]store.NewEvent
	for i := range batches {
		batches[i] = t.eventsTo(e, "", batch)
	}
	var done atomic.Bool
	for _, err := range together(3, func(i int) error {
		if i == 0 {
			defer done.Store(true)
			for _, events := range batches {
				if _, err := t.st.Publish(t.ctx, store.PublishParams{Events: events, Now: at(0)}); err != nil {
					return fmt.Errorf("Publish returned an error: %w", err)
				}
			}
			return nil
		}
		for !done.Load() {
			list, err := t.st.Deliveries(t.ctx, store.DeliveryFilter{WorkspaceID: home})
			if err != nil {
				return fmt.Errorf("Deliveries beside Publish returned an error: %w", err)
			}
			if len(list)%batch != 0 {
				return fmt.Errorf("beside publishes of %d events each Deliveries saw %d deliveries, want a multiple", batch, len(list))
			}
		}
		return nil
	}) {
		if err != nil {
			t.failf("%w", err)
		}
	}
	t.same(len(t.list(store.DeliveryFilter{})), batch*rounds, "number of deliveries afterwards")
}

func publishBudget(t *trial) {
	healthy := t.endpoint()
	sick := draft(home)
	sick.Health = store.Health{Failures: 3, FailedAt: at(0), DegradedUntil: at(time.Hour)}
	sick = t.create(sick)

	budget := func(e store.Endpoint, degraded int, now time.Time) int {
		ev := t.eventsTo(e, "", 1)[0]
		ev.Budget, ev.DegradedBudget = 7, degraded
		return t.delivery(t.deliverOne(now, ev)).Budget
	}
	t.same(budget(healthy, 3, at(0)), 7, "Budget at a healthy endpoint")
	t.same(budget(sick, 3, at(0)), 3, "Budget at a degraded endpoint")
	t.same(budget(sick, 3, at(time.Hour-time.Millisecond)), 3, "Budget just before DegradedUntil")
	t.same(budget(sick, 3, at(time.Hour)), 7, "Budget at DegradedUntil")
	t.same(budget(sick, 0, at(0)), 7, "Budget at a degraded endpoint without DegradedBudget")

	// What was published before keeps its budget.
	ev := t.eventsTo(healthy, "", 1)[0]
	ev.Budget, ev.DegradedBudget = 7, 3
	id := t.deliverOne(at(time.Minute), ev)
	o := again(t.one(t.claimOf(healthy, at(0))), at(time.Hour))
	o.Health = store.HealthFailure
	t.recordWith(store.RecordParams{
		Now: at(time.Minute), Outcomes: []store.Outcome{o},
		Health: &store.HealthPolicy{DegradeAfter: 1, DegradeFor: time.Hour},
	})
	t.same(t.delivery(id).Budget, 7, "Budget of what was published before")
	t.same(budget(healthy, 3, at(time.Minute)), 3, "Budget of what is published after")
}

func publishQueued(t *trial) {
	e := t.endpoint()
	t.same(t.publish(at(0), t.event(home)).Queued, true, "Queued without a handoff")
	t.same(t.publish(at(0), t.event(nowhere)).Queued, false, "Queued with no delivery")

	keyed := t.event(home)
	keyed.IdempotencyKey = "k"
	t.same(t.publish(at(0), keyed).Queued, true, "Queued the first time")
	t.same(t.publish(at(0), keyed).Queued, false, "Queued for a repeat")

	t.sendKeyed(e, "a", 1, at(0))
	t.same(t.publish(at(0), t.eventsTo(e, "a", 1)...).Queued, false, "Queued with only a blocked delivery")
	t.same(t.publish(at(0), t.eventsTo(e, "b", 2)...).Queued, true, "Queued with a due and a blocked delivery")
}

func publishBatch(t *trial) {
	t.endpoint()
	events := make([]store.NewEvent, 1000)
	for i := range events {
		events[i] = t.event(home)
		events[i].Payload = fmt.Appendf(nil, "payload %d", i)
	}
	sent := deliveryIDs(t.publish(at(0), events...).Receipts)
	t.same(len(sent), 1000, "number of deliveries")
	lease := t.lease(at(0))
	lease.Room = store.Room{Limit: 2000, PerEndpoint: 2000}
	leases := t.claimWith(at(0), lease).Leases
	t.same(ids(leases), sent, "what is claimed of a large batch")
	for i, l := range leases {
		t.same(l.Payload, events[i].Payload, "payload of delivery %d", l.DeliveryID)
	}
}
