package storetest

import (
	"math/rand/v2"
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
		"With a later one of its key leased, that one goes first; never are two of a key leased or ready at once.",
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
	{
		"order/concurrent publishes",
		"Of many publishes at once with one key the deliveries go one after the other in the order of their ids.",
		check(orderConcurrentPublishes),
	},
	{
		"order/concurrent retries",
		"Of many manual retries at once of one key the deliveries go one after the other in the order of their ids.",
		check(orderConcurrentRetries),
	},
	{
		"order/publish beside record",
		"A delivery published while the earlier one of its key is being recorded becomes due.",
		check(orderPublishBesideRecord),
	},
	{
		"order/at random",
		"Whatever happens, at most one delivery of a key is leased, and it is the earliest pending one.",
		check(orderRandom),
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
	t.must(t.st.Release(t.ctx, []store.Release{{LeaseRef: l.Ref()}}), "Release")
	t.retry(sent[0], at(time.Minute))
	t.same(t.turns(at(time.Minute)), sent, "the order after the second retry")

	// A lease that ran out is none.
	sent = t.spent(e, 2)
	l = t.one(t.claim(at(0)))
	t.retry(sent[0], l.Until)
	first := t.one(t.claim(l.Until))
	t.same(first.DeliveryID, sent[0], "claimed after a retry beside a lease that ran out")
	lost, err := t.st.Renew(t.ctx, []store.LeaseRef{l.Ref()}, l.Until.Add(time.Hour))
	t.must(err, "Renew")
	t.same(lost, sent[1:], "lost leases, while another of the key is leased")
	t.record(l.Until, delivered(first))
	t.same(t.turns(l.Until), sent[1:], "the order after that")
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

	// If the leased one comes back, both still go, one at a time.
	sent = t.spent(e, 2)
	l = t.one(t.claim(at(0)))
	t.retry(sent[0], at(time.Second))
	t.record(at(time.Second), again(l, at(time.Minute)))
	order := append(t.turns(at(time.Second)), t.turns(at(time.Minute))...)
	slices.Sort(order)
	t.same(order, sent, "what was claimed after the leased one came back")
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

func orderConcurrentPublishes(t *trial) {
	e := t.endpoint()
	events := t.eventsTo(e, "a", 20)
	for _, err := range together(len(events), func(i int) error {
		_, err := t.st.Publish(t.ctx, store.PublishParams{Events: events[i : i+1], Now: at(0)})
		return err
	}) {
		t.must(err, "Publish")
	}
	want := t.list(store.DeliveryFilter{})
	slices.Reverse(want)
	t.same(len(want), len(events), "number of deliveries")
	t.same(t.turns(at(0)), want, "the order")
}

func orderConcurrentRetries(t *trial) {
	e := t.endpoint()
	sent := t.sendKeyed(e, "a", 10, at(0))
	for range sent {
		t.record(at(0), failed(t.one(t.claim(at(0)))))
	}
	for _, err := range together(len(sent), func(i int) error {
		_, err := t.st.Retry(t.ctx, store.RetryParams{WorkspaceID: home, DeliveryID: sent[i], Now: at(0), Budget: 3})
		return err
	}) {
		t.must(err, "Retry")
	}
	t.same(t.turns(at(0)), sent, "the order")
}

func orderPublishBesideRecord(t *trial) {
	e := t.endpoint()
	t.sendKeyed(e, "a", 1, at(0))
	for range 20 {
		o := delivered(t.one(t.claim(at(0))))
		events := t.eventsTo(e, "a", 1)
		for _, err := range together(2, func(i int) error {
			if i == 0 {
				_, err := t.st.Publish(t.ctx, store.PublishParams{Events: events, Now: at(0)})
				return err
			}
			_, err := t.st.Record(t.ctx, store.RecordParams{Now: at(0), Outcomes: []store.Outcome{o}})
			return err
		}) {
			t.must(err, "Publish beside Record")
		}
	}
}

func orderRandom(t *trial) {
	const steps = 150
	e := t.endpoint()
	dice := rand.New(rand.NewPCG(1, 2))
	type item struct {
		key    string
		id     int64
		status store.Status
	}
	var all []*item
	leased := map[string]store.Lease{}
	find := func(id int64) *item {
		i := slices.IndexFunc(all, func(d *item) bool { return d.id == id })
		if i < 0 {
			t.failf("claimed delivery %d, which was not sent", id)
		}
		return all[i]
	}
	now := at(0)
	claim := func() {
		lease := t.lease(now)
		lease.Until = now.Add(time.Hour * plenty)
		for _, l := range t.claimWith(now, lease).Leases {
			d := find(l.DeliveryID)
			if other, ok := leased[d.key]; ok {
				t.failf("claimed delivery %d of key %s while %d is leased", d.id, d.key, other.DeliveryID)
			}
			for _, o := range all {
				if o.key == d.key && o.id < d.id && o.status == store.StatusPending {
					t.failf("claimed delivery %d of key %s while the earlier %d is pending", d.id, d.key, o.id)
				}
			}
			leased[d.key] = l
		}
	}
	settle := func(key string, o store.Outcome) {
		t.record(now, o)
		find(o.DeliveryID).status = o.Status
		delete(leased, key)
	}
	for range steps {
		now = now.Add(time.Minute)
		key := string(rune('a' + dice.IntN(3)))
		l, isLeased := leased[key]
		switch dice.IntN(6) {
		case 0, 1:
			for _, id := range t.sendKeyed(e, key, 1+dice.IntN(2), now) {
				all = append(all, &item{key, id, store.StatusPending})
			}
		case 2:
			claim()
		case 3:
			if isLeased {
				settle(key, []store.Outcome{delivered(l), failed(l), again(l, now.Add(2*time.Minute))}[dice.IntN(3)])
			}
		case 4:
			if isLeased {
				t.must(t.st.Release(t.ctx, []store.Release{{LeaseRef: l.Ref()}}), "Release")
				delete(leased, key)
			}
		case 5:
			for _, d := range all {
				if !isLeased && d.key == key && d.status != store.StatusPending && dice.IntN(3) == 0 {
					t.retry(d.id, now)
					d.status = store.StatusPending
				}
			}
		}
	}
	for range 2 * len(all) {
		now = now.Add(time.Hour)
		claim()
		if len(leased) == 0 {
			break
		}
		for key, l := range leased {
			settle(key, delivered(l))
		}
	}
	for _, d := range all {
		t.same(t.delivery(d.id).Status != store.StatusPending, true, "delivery %d ended", d.id)
	}
}
