package storetest

import (
	"slices"
	"time"

	"github.com/elido-app/webhook/store"
)

var orderCases = []Case{
	{
		"order/one after the other",
		"Of the deliveries of one ordering key to one endpoint only the first is due; the next becomes due when it is " +
			"delivered or failed.",
		check(orderStrict),
	},
	{
		"order/own due time",
		"A delivery whose turn has come is due at its own due time, not before.",
		check(orderOwnTime),
	},
	{
		"order/retry of the first",
		"A delivery that waits for its next attempt still blocks those behind it.",
		check(orderBackoff),
	},
	{
		"order/others",
		"Other keys, deliveries without a key and other endpoints are not held up.",
		check(orderOthers),
	},
	{
		"order/lease of the first",
		"A lease of the first that ran out or was released gives the first again, not the next.",
		check(orderLease),
	},
	{
		"order/late outcome",
		"A late outcome of the first that nobody took makes the next one due.",
		check(orderLate),
	},
	{
		"order/retry before a ready one",
		"A manual retry goes before the later pending ones of its key: one that is due but not leased waits again.",
		check(orderRetryReady),
	},
	{
		"order/retry before a waiting one",
		"A manual retry goes before a later one of its key that waits for its next attempt.",
		check(orderRetryBackoff),
	},
	{
		"order/retry behind a leased one",
		"With a later one of its key leased, that one goes first; if it comes back pending it waits as well.",
		check(orderRetryLeased),
	},
	{
		"order/retry behind an earlier one",
		"A manual retry waits for earlier pending ones of its key.",
		check(orderRetryBehind),
	},
	{
		"order/recover",
		"Recovered deliveries of one key go one after the other in the order of their ids.",
		check(orderRecover),
	},
	{
		"order/paused",
		"A key keeps its order over a pause of the endpoint.",
		check(orderPaused),
	},
}

// turns claims at an instant and settles one lease after the other until
// nothing is due, and returns the deliveries in that order.
func (t *trial) turns(now time.Time) []int64 {
	var order []int64
	for range plenty {
		leases := t.claim(now)
		if len(leases) == 0 {
			break
		}
		l := t.one(leases)
		order = append(order, l.DeliveryID)
		t.record(now, delivered(l))
	}
	return order
}

func orderStrict(t *trial) {
	e := t.endpoint()
	sent := t.sendKeyed(e, "a", 2, at(0))
	sent = append(sent, t.sendKeyed(e, "a", 1, at(time.Second))...)
	sent = append(sent, t.sendKeyed(e, "a", 1, at(-time.Hour))...) // a clock that went back changes nothing
	now := at(time.Minute)

	l := t.one(t.claim(now))
	t.same(l.DeliveryID, sent[0], "the first")
	t.same(ids(t.claim(now)), []int64(nil), "claimed while the first is leased")
	t.record(now, delivered(l))
	l = t.one(t.claim(now))
	t.same(l.DeliveryID, sent[1], "the second, after the first was delivered")
	t.record(now, failed(l))
	t.same(t.turns(now), sent[2:], "the rest, after the second failed")

	// The key is free again.
	t.same(t.turns(at(time.Hour)), []int64(nil), "claimed when all is settled")
	next := t.sendKeyed(e, "a", 1, at(time.Hour))
	t.same(t.turns(at(time.Hour)), next, "the next of the key")
}

func orderOwnTime(t *trial) {
	e := t.endpoint()
	sent := append(t.sendKeyed(e, "a", 1, at(0)), t.sendKeyed(e, "a", 1, at(time.Hour))...)
	t.record(at(0), delivered(t.one(t.claim(at(0)))))
	r := t.claimWith(at(time.Hour-time.Millisecond), t.lease(at(time.Minute)))
	t.same(ids(r.Leases), []int64(nil), "claimed before the second's own due time")
	t.same(r.NextDue, at(time.Hour), "NextDue before the second's own due time")
	t.same(t.turns(at(time.Hour)), sent[1:], "the order at the second's own due time")
}

func orderBackoff(t *trial) {
	e := t.endpoint()
	sent := t.sendKeyed(e, "a", 2, at(0))
	t.record(at(0), again(t.one(t.claim(at(0))), at(5*time.Minute)))
	sent = append(sent, t.sendKeyed(e, "a", 1, at(time.Minute))...)
	r := t.claimWith(at(time.Minute), t.lease(at(time.Minute)))
	t.same(ids(r.Leases), []int64(nil), "claimed while the first waits")
	t.same(r.NextDue, at(5*time.Minute), "NextDue while the first waits")
	t.same(t.turns(at(5*time.Minute)), sent, "the order afterwards")
}

func orderOthers(t *trial) {
	e, other := t.endpoint(), t.endpoint()
	a := t.sendKeyed(e, "a", 2, at(0))
	b := t.sendKeyed(e, "b", 2, at(0))
	upper := t.sendKeyed(e, "A", 1, at(0))
	free := t.send(e, 2, at(0))
	theirs := t.sendKeyed(other, "a", 2, at(0))
	got := ids(t.claim(at(0)))
	slices.Sort(got)
	t.same(got, []int64{a[0], b[0], upper[0], free[0], free[1], theirs[0]}, "claimed at once")
}

func orderLease(t *trial) {
	e := t.endpoint()
	sent := t.sendKeyed(e, "a", 3, at(0))
	l := t.one(t.claim(at(0)))
	l = t.one(t.claim(l.Until))
	t.same(l.DeliveryID, sent[0], "claimed after the lease ran out")
	t.must(t.st.Release(t.ctx, []store.Release{{LeaseRef: l.Ref(), DueAt: at(time.Hour)}}), "Release")
	t.same(ids(t.claim(at(time.Minute))), []int64(nil), "claimed while the released one waits")
	t.same(t.turns(at(time.Hour)), sent, "the order afterwards")
}

func orderLate(t *trial) {
	e := t.endpoint()
	sent := t.sendKeyed(e, "a", 2, at(0))
	l := t.one(t.claim(at(0)))
	none := t.lease(at(time.Hour))
	none.Room.Limit = 0
	t.claimWith(at(time.Hour), none)
	t.record(at(time.Hour), delivered(l))
	t.same(t.turns(at(time.Hour)), sent[1:], "the order afterwards")

	// A late outcome of one that had to give way frees nothing.
	sent = t.spent(e, 3)
	l = t.one(t.claim(at(0)))
	t.retry(sent[0], l.Until)
	t.record(l.Until, delivered(l))
	t.same(t.turns(l.Until), []int64{sent[0], sent[2]}, "the order after a late outcome of one that gave way")

	// Nor does one after which it is to be attempted again.
	sent = t.spent(e, 2)
	l = t.one(t.claim(at(0)))
	t.retry(sent[0], l.Until)
	first := t.one(t.claim(l.Until))
	t.same(first.DeliveryID, sent[0], "claimed after the retry")
	t.record(l.Until, again(l, l.Until))
	t.same(ids(t.claim(l.Until)), []int64(nil), "claimed while the first is leased, after a late failure of one that gave way")
	t.record(l.Until, delivered(first))
	t.same(t.turns(l.Until), sent[1:], "the order after that")
}

// spent sends n deliveries of one key, of which the first has failed.
func (t *trial) spent(e store.Endpoint, n int) []int64 {
	sent := t.sendKeyed(e, "a", n, at(0))
	t.record(at(0), failed(t.one(t.claim(at(0)))))
	return sent
}

func orderRetryReady(t *trial) {
	e := t.endpoint()
	sent := t.spent(e, 3)
	t.retry(sent[0], at(time.Minute))
	t.same(t.turns(at(time.Minute)), sent, "the order after the retry")

	// And when the later one was ready a second time, after a lease.
	sent = t.spent(e, 2)
	l := t.one(t.claim(at(0)))
	t.release(l)
	t.retry(sent[0], at(time.Minute))
	t.same(t.turns(at(time.Minute)), sent, "the order after the second retry")

	// A lease that ran out is none.
	sent = t.spent(e, 2)
	l = t.one(t.claim(at(0)))
	t.retry(sent[0], l.Until)
	t.same(t.turns(l.Until), sent, "the order after a retry beside a lease that ran out")
}

func orderRetryBackoff(t *trial) {
	e := t.endpoint()
	sent := t.spent(e, 3)
	t.record(at(0), again(t.one(t.claim(at(0))), at(time.Hour)))
	t.retry(sent[0], at(time.Minute))
	t.same(t.turns(at(time.Minute)), sent[:1], "the order before the next attempt is due")
	t.same(t.turns(at(time.Hour)), sent[1:], "the order when it is due")
}

func orderRetryLeased(t *trial) {
	e := t.endpoint()
	sent := t.spent(e, 3)
	l := t.one(t.claim(at(0)))
	t.same(l.DeliveryID, sent[1], "the second is leased")
	d := t.retry(sent[0], at(time.Second))
	t.same(d.Status, store.StatusPending, "Status after the retry")
	t.same(ids(t.claim(at(time.Second))), []int64(nil), "claimed while a later one is leased")
	t.record(at(time.Second), delivered(l))
	t.same(t.turns(at(time.Second)), []int64{sent[0], sent[2]}, "the order after the leased one was delivered")

	// If the leased one comes back it waits for the retried one, however it came.
	for _, back := range []struct {
		name string
		give func(l store.Lease)
	}{
		{"failed, to be attempted again later", func(l store.Lease) { t.record(at(time.Second), again(l, at(time.Minute))) }},
		{"failed, to be attempted again at once", func(l store.Lease) { t.record(at(time.Second), again(l, at(time.Second))) }},
		{"was released", func(l store.Lease) { t.release(l) }},
	} {
		sent = t.spent(e, 2)
		l = t.one(t.claim(at(0)))
		t.same(l.DeliveryID, sent[1], "the second is leased")
		t.retry(sent[0], at(time.Second))
		back.give(l)
		first := t.one(t.claim(at(time.Minute)))
		t.same(first.DeliveryID, sent[0], "claimed after a later one, leased before the retry, %s", back.name)
		t.record(at(time.Minute), delivered(first))
		t.same(t.turns(at(time.Minute)), sent[1:], "the order after that, where the later one %s", back.name)
	}
}

func orderRetryBehind(t *trial) {
	e := t.endpoint()
	sent := t.sendKeyed(e, "a", 3, at(0))
	for range 3 {
		t.record(at(0), failed(t.one(t.claim(at(0)))))
	}
	t.retry(sent[1], at(1*time.Second))
	t.retry(sent[2], at(2*time.Second))
	t.retry(sent[0], at(3*time.Second))
	t.same(t.turns(at(time.Minute)), sent, "the order after three retries")
}

func orderRecover(t *trial) {
	e := t.endpoint()
	sent := t.sendKeyed(e, "a", 4, at(0))
	for range 3 {
		t.record(at(0), failed(t.one(t.claim(at(0)))))
	}
	t.same(t.recover(e, at(0), at(time.Minute), 2), 2, "how many were recovered")
	t.same(t.recover(e, at(0), at(time.Minute), 2), 1, "how many were left to recover")
	t.same(t.turns(at(time.Minute)), sent, "the order afterwards")
}

func orderPaused(t *trial) {
	e := t.endpoint()
	sent := t.sendKeyed(e, "a", 3, at(0))
	l := t.one(t.claim(at(0)))
	t.pause(e, true)
	t.record(at(0), delivered(l))
	t.same(ids(t.claim(at(0))), []int64(nil), "claimed while paused")
	t.pause(e, false)
	t.same(t.turns(at(0)), sent[1:], "the order after the pause")
}
