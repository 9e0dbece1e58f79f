package storetest

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/elido-app/webhook/store"
)

var orderRaceCases = []Case{
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
				t.release(l)
				delete(leased, key)
			}
		case 5:
			for _, d := range all {
				if d.key == key && d.status != store.StatusPending && dice.IntN(3) == 0 {
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
