package storetest

import (
	"time"

	"github.com/elido-app/webhook/store"
)

var handoffCases = []Case{
	{
		"handoff/lease",
		"With Handoff new deliveries are leased to the caller at once, as a claim would, and nobody else gets them.",
		check(handoffLease),
	},
	{
		"handoff/room",
		"Handoff leases up to its Room, of each endpoint the first; Queued tells of the rest.",
		check(handoffRoom),
	},
	{
		"handoff/older work",
		"A delivery behind other due work of its endpoint is not handed off; work that is leased or due later does not count.",
		check(handoffOlderWork),
	},
	{
		"handoff/blocked",
		"A blocked delivery is not handed off.",
		check(handoffBlocked),
	},
	{
		"handoff/repeat",
		"A repeat hands nothing off.",
		check(handoffRepeat),
	},
}

func (t *trial) handoff(now time.Time, room store.Room, events ...store.NewEvent) store.PublishResult {
	lease := t.lease(now)
	lease.Room = room
	return t.publishWith(store.PublishParams{Events: events, Now: now, Handoff: &lease})
}

func handoffLease(t *trial) {
	e := draft(home)
	e.Config, e.Headers, e.MaxInFlight, e.RateLimit = map[string]string{"a": "b"}, map[string]string{"X-A": "c"}, 5, 2.5
	e = t.create(e)
	ev := t.event(home)
	ev.OrderingKey, ev.Trace = "a", "of the publisher"
	lease := t.lease(at(time.Second))
	r := t.publishWith(store.PublishParams{Events: []store.NewEvent{ev}, Now: at(time.Second), Handoff: &lease})
	got := t.one(r.Leases)
	t.same(r.Receipts[0].DeliveryIDs, []int64{got.DeliveryID}, "deliveries of the receipt")
	t.same(r.Queued, false, "Queued")
	want := store.Lease{
		DeliveryID: got.DeliveryID, WorkspaceID: home, Token: lease.Token, Until: lease.Until,
		EventID: ev.ID, EventType: ev.Type, OrderingKey: "a", Trace: ev.Trace, Payload: ev.Payload,
		CreatedAt: at(time.Second), DueAt: at(time.Second), Budget: 3, Target: got.Target,
	}
	t.same(got, want, "the lease")
	if got.Target == nil {
		t.failf("the lease has no Target")
	}
	t.same(*got.Target, store.Target{
		EndpointID: e.ID, WorkspaceID: home, Kind: e.Kind, URL: e.URL, Config: e.Config, Headers: e.Headers,
		MaxInFlight: 5, RateLimit: 2.5, Secrets: store.Secrets{Current: sealed("whsec_%d", e.ID)}, Revision: e.Revision,
	}, "its Target")

	t.same(ids(t.claim(lease.Until.Add(-time.Millisecond))), []int64(nil), "claimed while handed off")
	t.record(at(2*time.Second), delivered(got))
	t.same(t.delivery(got.DeliveryID).Status, store.StatusDelivered, "Status")
}

func handoffRoom(t *trial) {
	a, b := t.endpoint(), draft(home)
	b.MaxInFlight = 2
	b = t.create(b)
	for _, c := range []struct {
		name string
		room store.Room
		a, b int
	}{
		{"for everything", store.Room{Limit: plenty, PerEndpoint: plenty}, 4, 2},
		{"of no limit", store.Room{PerEndpoint: plenty}, 0, 0},
		{"for one an endpoint", store.Room{Limit: plenty, PerEndpoint: 1}, 1, 1},
		{"for none", store.Room{Limit: plenty}, 0, 0},
		{"of named endpoints", store.Room{Limit: plenty, PerEndpoint: plenty, Endpoints: map[int64]int{a.ID: 0, b.ID: 3}}, 0, 3},
	} {
		events := append(t.eventsTo(a, "", 4), t.eventsTo(b, "", 4)...)
		r := t.handoff(at(0), c.room, events...)
		sent := deliveryIDs(r.Receipts)
		want := append(append([]int64(nil), sent[:c.a]...), sent[4:4+c.b]...)
		t.same(ids(r.Leases), want, "handed off with room %s", c.name)
		t.same(r.Queued, true, "Queued with room %s", c.name)
		t.settle(append(r.Leases, t.claim(at(0))...))
	}

	r := t.handoff(at(0), store.Room{Limit: 3, PerEndpoint: plenty}, append(t.eventsTo(a, "", 2), t.eventsTo(b, "", 2)...)...)
	t.same(len(r.Leases), 3, "handed off with a limit of 3")
	t.same(r.Queued, true, "Queued with a limit of 3")
	t.settle(append(r.Leases, t.claim(at(0))...))
	r = t.handoff(at(0), store.Room{Limit: 4, PerEndpoint: 2}, append(t.eventsTo(a, "", 2), t.eventsTo(b, "", 2)...)...)
	t.same(len(r.Leases), 4, "handed off with room for all")
	t.same(r.Queued, false, "Queued with room for all")
}

// settle ends leases, and whatever else is due after that.
func (t *trial) settle(leases []store.Lease) {
	for len(leases) > 0 {
		outcomes := make([]store.Outcome, len(leases))
		for i, l := range leases {
			outcomes[i] = delivered(l)
		}
		t.record(at(0), outcomes...)
		leases = t.claim(at(0))
	}
}

func handoffOlderWork(t *trial) {
	e, idle := t.endpoint(), t.endpoint()
	all := store.Room{Limit: plenty, PerEndpoint: plenty}
	old := t.send(e, 1, at(0))

	r := t.handoff(at(time.Second), all, t.event(home))
	t.same(t.one(r.Leases).Target.EndpointID, idle.ID, "the endpoint handed off to while one of two has older due work")
	t.same(r.Queued, true, "Queued with a delivery behind older work")

	// The same instant counts as older, by the order of ids.
	r = t.handoff(at(0), all, t.eventsTo(e, "", 1)...)
	t.same(len(r.Leases), 0, "handed off behind work due at the same instant")

	leases := t.exactly(3, t.claimOf(e, at(time.Second)))
	t.same(leases[0].DeliveryID, old[0], "the first of them")
	r = t.handoff(at(2*time.Second), all, t.eventsTo(e, "", 1)...)
	t.same(len(r.Leases), 1, "handed off while the older work is leased")

	var later []store.Outcome
	for _, l := range append(leases, r.Leases...) {
		later = append(later, again(l, at(time.Hour)))
	}
	t.record(at(3*time.Second), later...)
	r = t.handoff(at(time.Minute), all, t.eventsTo(e, "", 1)...)
	t.same(len(r.Leases), 1, "handed off while the older work is due later")
	r = t.handoff(at(time.Hour), all, t.eventsTo(e, "", 1)...)
	t.same(len(r.Leases), 0, "handed off when the older work is due")

	// A lease that ran out is due work again.
	third := t.endpoint()
	t.send(third, 1, at(0))
	l := t.one(t.claimOf(third, at(0)))
	r = t.handoff(l.Until, all, t.eventsTo(third, "", 1)...)
	t.same(len(r.Leases), 0, "handed off when the lease of older work ran out")
	t.same(len(t.claimOf(third, l.Until)), 2, "claimed after that")
}

func handoffBlocked(t *trial) {
	e := t.endpoint()
	all := store.Room{Limit: plenty, PerEndpoint: plenty}
	events := append(t.eventsTo(e, "a", 2), t.eventsTo(e, "b", 1)...)
	r := t.handoff(at(0), all, events...)
	sent := deliveryIDs(r.Receipts)
	t.same(ids(r.Leases), []int64{sent[0], sent[2]}, "handed off")
	t.same(r.Queued, false, "Queued with only a blocked one left")

	r = t.handoff(at(time.Second), all, t.eventsTo(e, "a", 1)...)
	t.same(len(r.Leases), 0, "handed off behind a leased delivery of the key")
	t.same(r.Queued, false, "Queued behind a leased delivery of the key")
}

func handoffRepeat(t *trial) {
	t.endpoint()
	all := store.Room{Limit: plenty, PerEndpoint: plenty}
	t.publish(at(0), t.keyedEvent(home, "k", 1))
	r := t.handoff(at(0), all, t.keyedEvent(home, "k", 1))
	t.same(len(r.Leases), 0, "handed off for a repeat")
	t.same(r.Receipts[0].Repeat, true, "Repeat")
}
