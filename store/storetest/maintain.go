package storetest

import (
	"fmt"
	"time"

	"github.com/elido-app/webhook/store"
)

var maintainCases = []Case{
	{
		"maintain/overlap",
		"Maintain erases a previous secret when its overlap has ended, not a millisecond before, which raises Revision; " +
			"NextEnd is the end of the next.",
		check(maintainErases),
	},
	{
		"maintain/age",
		"PruneBefore removes delivered and failed deliveries completed before it, with their attempts.",
		check(maintainPrunesByAge),
	},
	{
		"maintain/count",
		"KeepPerEndpoint removes the oldest delivered and failed deliveries (in the log's order) beyond this many of one endpoint.",
		check(maintainPrunesByCount),
	},
	{
		"maintain/pending",
		"A pending delivery of a live endpoint is never removed.",
		check(maintainKeepsPending),
	},
	{
		"maintain/deleted endpoints",
		"Maintain removes the rows of deleted endpoints, in batches of about Limit.",
		check(maintainPurges),
	},
	{
		"maintain/shared events",
		"What is left of an event keeps its payload when other deliveries of the event are removed.",
		check(maintainKeepsShared),
	},
	{
		"maintain/keys",
		"ForgetKeysBefore forgets idempotency keys first used before it.",
		check(maintainForgetsKeys),
	},
	{
		"maintain/more",
		"At most about Limit rows go in a call; More says that Limit stood in the way.",
		check(maintainMore),
	},
	{
		"maintain/nothing",
		"With nothing to do, or with zero instants and counts, Maintain does nothing.",
		check(maintainNothing),
	},
}

func maintainErases(t *trial) {
	e, later := t.endpoint(), t.endpoint()
	e = t.rotate(rotation(e, sealed("second"), at(0)))
	t.rotate(rotation(later, sealed("second"), at(time.Hour)))
	end := at(overlap)

	r := t.maintain(store.MaintainParams{Now: end.Add(-time.Millisecond)})
	t.same(r, store.MaintainResult{NextEnd: end}, "result just before the overlap ends")
	t.same(t.target(e, at(0)).Secrets.Previous, sealed("whsec_%d", e.ID), "the previous secret just before the overlap ends")
	t.same(t.read(e), e, "the endpoint just before the overlap ends")

	since := t.probe(0).Revision
	r = t.maintain(store.MaintainParams{Now: end})
	t.same(r, store.MaintainResult{Erased: 1, NextEnd: end.Add(time.Hour)}, "result when the overlap ends")
	got := t.read(e)
	if got.Revision <= e.Revision {
		t.failf("Revision went from %d to %d when the previous secret was erased, want it to grow", e.Revision, got.Revision)
	}
	want := e
	want.PreviousUntil, want.Revision = time.Time{}, got.Revision
	t.same(got, want, "the endpoint after the overlap")
	t.same(t.probe(since).Changed, []store.EndpointChange{{EndpointID: e.ID, Revision: got.Revision}}, "what Probe says changed")
	target := t.target(e, at(0))
	t.same(target.Secrets, store.Secrets{Current: sealed("second")}, "the secrets after the overlap")
	t.same(target.Revision, got.Revision, "the Target's Revision after the overlap")
	t.same(t.secretsOf(e).Secrets, store.Secrets{Current: sealed("second")}, "the entry of Secrets after the overlap")
	t.same(t.target(later, at(0)).Secrets.Previous, sealed("whsec_%d", later.ID), "the other endpoint's previous secret")

	r = t.maintain(store.MaintainParams{Now: end.Add(24 * time.Hour)})
	t.same(r, store.MaintainResult{Erased: 1}, "result when the last overlap has ended")
	t.same(t.maintain(store.MaintainParams{Now: end.Add(24 * time.Hour)}), store.MaintainResult{}, "result afterwards")

	// Rotating goes on as usual.
	t.rotate(rotation(t.read(e), sealed("third"), end))
	t.same(t.target(e, end).Secrets.Previous, sealed("second"), "the previous secret after the next rotation")
}

func maintainPrunesByAge(t *trial) {
	e, paused := t.endpoint(), t.endpoint()
	var done []int64
	for i, status := range []store.Status{store.StatusDelivered, store.StatusFailed, store.StatusDelivered, store.StatusFailed} {
		done = append(done, t.send(e, 1, at(-time.Hour))...)
		now := at(time.Duration(i) * time.Minute) // what counts is when they completed
		t.record(now, outcome(t.one(t.claim(now)), status, 418))
	}
	other := t.finish(paused, 1, store.StatusDelivered, at(0))
	t.pause(paused, true)

	r := t.maintain(store.MaintainParams{Now: at(time.Hour), PruneBefore: at(2 * time.Minute)})
	t.same(r, store.MaintainResult{Pruned: 3}, "result")
	t.same(t.list(store.DeliveryFilter{}), []int64{done[3], done[2]}, "deliveries left")
	for _, id := range append(other, done[:2]...) {
		_, err := t.st.Delivery(t.ctx, home, id)
		t.refused(err, store.ErrNotFound, "Delivery")
		_, err = t.st.Attempts(t.ctx, home, id)
		t.refused(err, store.ErrNotFound, "Attempts")
		_, err = t.st.Retry(t.ctx, store.RetryParams{WorkspaceID: home, DeliveryID: id, Now: at(0), Budget: 1})
		t.refused(err, store.ErrNotFound, "Retry")
	}
	t.same(len(t.attempts(done[2])), 1, "attempt rows of what is left")
	t.same(string(t.delivery(done[3]).Payload) != "", true, "what is left has its payload")
}

func maintainPrunesByCount(t *trial) {
	e, few, other := t.endpoint(), t.endpoint(), t.endpoint()
	old := t.send(e, 1, at(0))[0] // pending, and the oldest
	t.record(at(0), again(t.one(t.claim(at(0))), at(1000*time.Hour)))
	var done []int64
	for i := range 5 {
		status := []store.Status{store.StatusDelivered, store.StatusFailed}[i%2]
		done = append(done, t.finish(e, 1, status, at(time.Duration(5-i)*time.Minute))...) // the last is the oldest
	}
	waiting := t.send(e, 3, at(time.Hour))
	kept := t.finish(few, 2, store.StatusDelivered, at(0))
	t.finish(other, 4, store.StatusFailed, at(0))

	r := t.maintain(store.MaintainParams{Now: at(time.Hour), KeepPerEndpoint: 2})
	t.same(r, store.MaintainResult{Pruned: 5}, "result")
	t.same(t.list(store.DeliveryFilter{EndpointID: e.ID}),
		[]int64{waiting[2], waiting[1], waiting[0], done[0], done[1], old}, "deliveries left")
	t.same(len(t.list(store.DeliveryFilter{EndpointID: few.ID})), len(kept), "deliveries left of an endpoint with as many")
	t.same(len(t.list(store.DeliveryFilter{EndpointID: other.ID})), 2, "deliveries left of another endpoint")
}

func maintainKeepsPending(t *trial) {
	e := t.endpoint()
	sent := t.send(e, 4, at(0))
	sent = append(sent, t.sendKeyed(e, "a", 2, at(0))...)
	leases := t.exactly(5, t.claim(at(0)))
	t.record(at(0), again(leases[0], at(time.Hour)), failed(leases[1]))
	t.must(t.st.Release(t.ctx, []store.Release{{LeaseRef: leases[2].Ref(), DueAt: at(time.Hour)}}), "Release")
	t.retry(leases[1].DeliveryID, at(time.Hour))

	r := t.maintain(store.MaintainParams{Now: at(1000 * time.Hour), PruneBefore: at(1000 * time.Hour), KeepPerEndpoint: 1})
	t.same(r, store.MaintainResult{}, "result")
	t.same(len(t.list(store.DeliveryFilter{})), len(sent), "number of deliveries left")
	for _, id := range sent {
		t.same(t.delivery(id).Status, store.StatusPending, "Status")
	}
	t.pause(e, true)
	t.maintain(store.MaintainParams{Now: at(1000 * time.Hour), PruneBefore: at(1000 * time.Hour), KeepPerEndpoint: 1})
	t.same(len(t.list(store.DeliveryFilter{})), len(sent), "number of deliveries left at a paused endpoint")
}

func maintainPurges(t *trial) {
	e, kept := t.endpoint(), t.endpoint()
	t.finish(e, 6, store.StatusDelivered, at(0))
	t.send(e, 6, at(0))
	t.claim(at(0))
	t.sendKeyed(e, "a", 8, at(0))
	left := t.finish(kept, 3, store.StatusDelivered, at(0))
	t.remove(e, at(time.Minute))

	purged, calls := 0, 0
	for more := true; more; calls++ {
		r := t.maintain(store.MaintainParams{Now: at(time.Minute), Limit: 5})
		if r.Purged > 10 {
			t.failf("Maintain purged %d deliveries with a limit of 5", r.Purged)
		}
		t.same([]int{r.Erased, r.Pruned, r.Keys}, []int{0, 0, 0}, "what else Maintain did")
		purged += r.Purged
		more = r.More
		if calls > 100 {
			t.failf("Maintain says More for ever")
		}
	}
	t.same(purged, 20, "deliveries purged")
	if calls < 2 {
		t.failf("20 deliveries went in one call with a limit of 5")
	}
	t.same(t.list(store.DeliveryFilter{}), []int64{left[2], left[1], left[0]}, "deliveries of the other endpoint")
	t.same(t.maintain(store.MaintainParams{Now: at(time.Hour)}), store.MaintainResult{}, "result afterwards")
}

func maintainKeepsShared(t *trial) {
	e, slow, gone := t.endpoint(), t.endpoint(), t.endpoint()
	ev := t.event(home)
	t.same(len(t.deliver(at(0), ev)), 3, "number of deliveries")
	t.record(at(0), delivered(t.one(t.claimOf(e, at(0)))))
	t.remove(gone, at(0))
	r := t.maintain(store.MaintainParams{Now: at(time.Hour), PruneBefore: at(time.Hour)})
	t.same(r, store.MaintainResult{Pruned: 1, Purged: 1}, "result")
	l := t.one(t.claim(at(time.Hour)))
	t.same(l.Target.EndpointID, slow.ID, "the endpoint of what is left")
	t.same(l.Payload, ev.Payload, "Payload of the lease")
	t.same(t.delivery(l.DeliveryID).Payload, ev.Payload, "Payload of the delivery")
	t.same(t.list(store.DeliveryFilter{EventID: ev.ID}), []int64{l.DeliveryID}, "deliveries of the event")
}

func maintainForgetsKeys(t *trial) {
	t.endpoint()
	t.publish(at(0), t.keyedEvent(home, "k", 1), t.keyedEvent(abroad, "k", 1))
	t.publish(at(time.Minute), t.keyedEvent(home, "l", 1))
	t.publish(at(time.Hour), t.keyedEvent(home, "k", 1)) // a repeat does not make a key younger

	r := t.maintain(store.MaintainParams{Now: at(time.Hour), ForgetKeysBefore: at(0)})
	t.same(r, store.MaintainResult{}, "result at the first use")
	t.same(t.repeats(at(0), t.keyedEvent(home, "k", 1)), true, "Repeat of a key first used then")
	r = t.maintain(store.MaintainParams{Now: at(time.Hour), ForgetKeysBefore: at(time.Millisecond)})
	t.same(r, store.MaintainResult{Keys: 2}, "result just after the first use")
	receipts := t.publish(at(time.Hour), t.keyedEvent(home, "k", 2), t.keyedEvent(home, "l", 1)).Receipts
	t.same(receipts[0].Repeat, false, "Repeat of a forgotten key")
	t.same(receipts[1].Repeat, true, "Repeat of a younger key")
	t.same(len(t.list(store.DeliveryFilter{})), 3, "number of deliveries")
}

func maintainMore(t *trial) {
	e := t.endpoint()
	t.finish(e, 20, store.StatusDelivered, at(0))
	p := store.MaintainParams{Now: at(time.Hour), PruneBefore: at(time.Hour), Limit: 6}
	pruned, calls := 0, 0
	for more := true; more; calls++ {
		r := t.maintain(p)
		if r.Pruned > 12 {
			t.failf("Maintain pruned %d deliveries with a limit of 6", r.Pruned)
		}
		pruned += r.Pruned
		more = r.More
		if calls > 100 {
			t.failf("Maintain says More for ever")
		}
	}
	t.same(pruned, 20, "deliveries pruned")
	if calls < 2 {
		t.failf("20 deliveries went in one call with a limit of 6")
	}
	t.same(t.list(store.DeliveryFilter{}), []int64(nil), "deliveries left")

	// So it is with secrets and with keys.
	var keyed []store.NewEvent
	for i := range 5 {
		e := t.endpoint()
		t.rotate(rotation(e, sealed("second"), at(0)))
		keyed = append(keyed, t.keyedEvent(nowhere, fmt.Sprint(i), 1))
	}
	t.publish(at(0), keyed...)
	p = store.MaintainParams{Now: at(2 * overlap), ForgetKeysBefore: at(time.Hour), Limit: 2}
	erased, forgotten, calls := 0, 0, 0
	for more := true; more; calls++ {
		r := t.maintain(p)
		if r.Erased+r.Keys > 4 {
			t.failf("Maintain erased %d secrets and forgot %d keys with a limit of 2", r.Erased, r.Keys)
		}
		erased, forgotten, more = erased+r.Erased, forgotten+r.Keys, r.More
		if calls > 100 {
			t.failf("Maintain says More for ever")
		}
	}
	t.same([]int{erased, forgotten}, []int{5, 5}, "secrets erased and keys forgotten")
}

func maintainNothing(t *trial) {
	t.same(t.maintain(store.MaintainParams{Now: at(0), PruneBefore: at(0), KeepPerEndpoint: 1, ForgetKeysBefore: at(0)}),
		store.MaintainResult{}, "result in an empty store")
	e := t.endpoint()
	e = t.rotate(rotation(e, sealed("second"), at(0)))
	t.publish(at(0), t.keyedEvent(home, "k", 1))
	t.record(at(0), delivered(t.one(t.claim(at(0)))))
	before := t.list(store.DeliveryFilter{})
	revision := t.probe(0).Revision

	r := t.maintain(store.MaintainParams{})
	t.same(r, store.MaintainResult{NextEnd: at(overlap)}, "result with zero instants and counts")
	r = t.maintain(store.MaintainParams{Now: at(1), PruneBefore: at(0), KeepPerEndpoint: 1, ForgetKeysBefore: at(0)})
	t.same(r, store.MaintainResult{NextEnd: at(overlap)}, "result with nothing to do")
	t.same(t.list(store.DeliveryFilter{}), before, "deliveries")
	t.same(t.read(e), e, "the endpoint")
	t.same(t.probe(0).Revision, revision, "Revision")
	t.same(t.repeats(at(0), t.keyedEvent(home, "k", 1)), true, "Repeat")
}
