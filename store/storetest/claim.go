package storetest

import (
	"slices"
	"sync"
	"time"

	"github.com/elido-app/webhook/store"
)

var claimCases = []Case{
	{
		"claim/lease",
		"A lease carries what an attempt needs.",
		check(claimLease),
	},
	{
		"claim/due",
		"Claim leases what is due at or before Now, and nothing that is due later.",
		check(claimDue),
	},
	{
		"claim/order within an endpoint",
		"Within an endpoint deliveries come in order of due time, then of id.",
		check(claimOrderWithin),
	},
	{
		"claim/order between endpoints",
		"Between endpoints, the one with the earliest due delivery comes first.",
		check(claimOrderBetween),
	},
	{
		"claim/room",
		"Room bounds how many leases are given, in all and of each endpoint.",
		check(claimRoom),
	},
	{
		"claim/paused",
		"Deliveries of a paused endpoint are not claimed; they wait, without using up attempts, until it is resumed.",
		check(claimPaused),
	},
	{
		"claim/exclusive",
		"No delivery is under two leases at any instant, however many callers claim at once.",
		check(claimExclusive),
	},
}

func claimLease(t *trial) {
	e := draft(home)
	e.Kind, e.Config, e.Headers = store.KindDiscord, map[string]string{"a": "b"}, map[string]string{"X-A": "c"}
	e.MaxInFlight, e.RateLimit = 5, 2.5
	e.Imported, e.PreviousUntil = true, at(24*time.Hour) // as fullSecrets says
	e, err := t.st.CreateEndpoint(t.ctx, store.CreateEndpointParams{Endpoint: e, Seal: fullSecrets})
	t.must(err, "CreateEndpoint")
	ev := t.event(home)
	ev.OrderingKey, ev.Trace, ev.Budget = "a", "of the publisher", 7
	id := t.deliverOne(at(0), ev)

	lease := t.lease(at(time.Minute))
	got := t.one(t.claimWith(at(time.Minute), lease).Leases)
	want := store.Lease{
		DeliveryID: id, WorkspaceID: home, Token: lease.Token, Until: lease.Until,
		EventID: ev.ID, EventType: ev.Type, OrderingKey: "a", Trace: ev.Trace, Payload: ev.Payload,
		CreatedAt: at(0), DueAt: at(0), Budget: 7, Target: got.Target,
	}
	t.same(got, want, "the lease")
	if got.Target == nil {
		t.failf("the lease has no Target")
	}
	secrets, _ := fullSecrets(e.ID)
	t.same(*got.Target, store.Target{
		EndpointID: e.ID, WorkspaceID: home, Kind: e.Kind, URL: e.URL, Config: e.Config, Headers: e.Headers,
		MaxInFlight: 5, RateLimit: 2.5, Secrets: secrets, Revision: e.Revision,
	}, "its Target")
	t.same(t.delivery(id).Status, store.StatusPending, "Status while it is attempted")

	t.record(at(2*time.Minute), again(got, at(time.Hour)))
	lease = t.lease(at(time.Hour))
	got = t.one(t.claimWith(at(time.Hour), lease).Leases)
	want.Token, want.Until, want.DueAt = lease.Token, lease.Until, at(time.Hour)
	want.Attempts, want.TotalAttempts, want.Target = 1, 1, got.Target
	t.same(got, want, "the lease of the second attempt")
}

func claimDue(t *trial) {
	e := t.endpoint()
	id := t.send(e, 1, at(time.Minute))
	t.same(ids(t.claim(at(time.Minute-time.Millisecond))), []int64(nil), "claimed before it is due")
	lease := t.one(t.claim(at(time.Minute)))
	t.same(lease.DeliveryID, id[0], "claimed when due")
	t.record(at(time.Minute), again(lease, at(time.Hour)))
	t.same(ids(t.claim(at(time.Hour-time.Millisecond))), []int64(nil), "claimed before the next attempt")
	t.same(ids(t.claim(at(2*time.Hour))), id, "claimed after the next attempt was due")
}

func claimOrderWithin(t *trial) {
	e := t.endpoint()
	sent := t.send(e, 6, at(0))
	due := []int{3, 1, 2, 1, 3, 1}
	for i, l := range t.claim(at(0)) {
		t.record(at(0), again(l, at(time.Duration(due[i])*time.Minute)))
	}
	sent = append(sent, t.send(e, 1, at(2*time.Minute))...)
	want := []int64{sent[1], sent[3], sent[5], sent[2], sent[6], sent[0], sent[4]}
	lease := t.lease(at(time.Hour))
	lease.Room.PerEndpoint = 4
	t.same(ids(t.claimWith(at(time.Hour), lease).Leases), want[:4], "the first four")
	t.same(ids(t.claim(at(time.Hour))), want[4:], "the rest")
}

func claimOrderBetween(t *trial) {
	a, b, c := t.endpoint(), t.endpoint(), t.endpoint()
	first := []int64{
		t.send(b, 3, at(0))[0],
		t.send(a, 3, at(time.Second))[0],
		t.send(c, 3, at(2*time.Second))[0],
	}
	t.send(b, 2, at(3*time.Second))
	for i, id := range first {
		lease := t.lease(at(time.Minute))
		lease.Room.Limit = 1
		lease.Room.Endpoints = map[int64]int{}
		for _, e := range []store.Endpoint{b, a, c}[:i] {
			lease.Room.Endpoints[e.ID] = 0
		}
		l := t.one(t.claimWith(at(time.Minute), lease).Leases)
		t.same(l.DeliveryID, id, "the first delivery when %d endpoints have no room", i)
		t.release(l)
	}

	var order []int64
	for _, l := range t.claim(at(time.Minute)) {
		if !slices.Contains(order, l.Target.EndpointID) {
			order = append(order, l.Target.EndpointID)
		}
	}
	t.same(order, []int64{b.ID, a.ID, c.ID}, "the order in which endpoints come")
}

func claimRoom(t *trial) {
	a, b := t.endpoint(), t.endpoint()
	bounded := draft(home)
	bounded.MaxInFlight = 3
	c := t.create(bounded)
	t.send(a, 8, at(0))
	t.send(b, 8, at(1*time.Second))
	t.send(c, 8, at(2*time.Second))

	for _, test := range []struct {
		name    string
		room    store.Room
		a, b, c int
	}{
		{"a limit of zero", store.Room{PerEndpoint: 5}, 0, 0, 0},
		{"a negative limit", store.Room{Limit: -1, PerEndpoint: 5}, 0, 0, 0},
		{"no room an endpoint", store.Room{Limit: plenty}, 0, 0, 0},
		{"two an endpoint", store.Room{Limit: plenty, PerEndpoint: 2}, 2, 2, 2},
		{"five an endpoint", store.Room{Limit: plenty, PerEndpoint: 5}, 5, 5, 3},
		{"named endpoints", store.Room{Limit: plenty, PerEndpoint: 2, Endpoints: map[int64]int{a.ID: 0, c.ID: 6}}, 0, 2, 6},
		{"no room at two endpoints", store.Room{Limit: plenty, PerEndpoint: 9, Endpoints: map[int64]int{a.ID: 0, b.ID: 0}}, 0, 0, 3},
	} {
		lease := t.lease(at(time.Minute))
		lease.Room = test.room
		leases := t.claimWith(at(time.Minute), lease).Leases
		got := map[int64]int{}
		for _, l := range leases {
			got[l.Target.EndpointID]++
		}
		t.same([]int{got[a.ID], got[b.ID], got[c.ID]}, []int{test.a, test.b, test.c},
			"leases with %s, of endpoint %d, of %d and of %d, which has MaxInFlight 3", test.name, a.ID, b.ID, c.ID)
		t.release(leases...)
	}

	for _, limit := range []int{1, 4, 6} {
		lease := t.lease(at(time.Minute))
		lease.Room = store.Room{Limit: limit, PerEndpoint: 2}
		t.same(len(t.claimWith(at(time.Minute), lease).Leases), limit, "number of leases with a limit of %d", limit)
	}
	// 11 are leased now. What was leased before does not lessen the room.
	lease := t.lease(at(time.Minute))
	lease.Room.PerEndpoint = 2
	t.same(len(t.claimWith(at(time.Minute), lease).Leases), 6, "leases of a call beside others' leases")
}

func claimPaused(t *trial) {
	e, other := t.endpoint(), t.endpoint()
	sent := t.send(e, 3, at(0))
	theirs := t.send(other, 1, at(time.Second))
	t.pause(e, true)
	l := t.one(t.claim(at(time.Minute)))
	t.same(l.DeliveryID, theirs[0], "claimed beside a paused endpoint")
	t.record(at(time.Minute), delivered(l))
	t.pause(e, false)
	leases := t.claim(at(time.Minute))
	t.same(ids(leases), sent, "claimed after the endpoint was resumed")
	for _, l := range leases {
		t.same([]int{l.Attempts, l.Budget, l.TotalAttempts, l.Interruptions}, []int{0, 3, 0, 0}, "counts of delivery %d", l.DeliveryID)
	}

	// A lease outlives a pause, and its outcome counts.
	t.pause(e, true)
	t.record(at(time.Minute), delivered(leases[0]), again(leases[1], at(2*time.Minute)))
	t.same(t.delivery(sent[0]).Status, store.StatusDelivered, "Status of what was attempted during the pause")
	t.same(ids(t.claim(at(time.Hour))), []int64(nil), "claimed while paused: a retry and a lease that ran out")
	t.pause(e, false)
	t.same(len(t.claim(at(time.Hour))), 2, "claimed after the second pause")
}

func claimExclusive(t *trial) {
	const deliveries, callers = 120, 8
	a, b := t.endpoint(), t.endpoint()
	sent := append(t.send(a, deliveries/2, at(0)), t.send(b, deliveries/2, at(0))...)

	var mu sync.Mutex
	var got []int64
	first := t.next()
	t.serial += callers * deliveries
	for _, err := range together(callers, func(i int) error {
		for n := range int64(deliveries) {
			r, err := t.st.Claim(t.ctx, store.ClaimParams{Now: at(0), LeaseParams: store.LeaseParams{
				Token: first + n*callers + int64(i), Until: at(time.Hour), Room: store.Room{Limit: 7, PerEndpoint: 4},
			}})
			if err != nil || len(r.Leases) == 0 {
				return err
			}
			mu.Lock()
			got = append(got, ids(r.Leases)...)
			mu.Unlock()
		}
		return nil
	}) {
		t.must(err, "Claim")
	}
	slices.Sort(got)
	t.same(got, sent, "what all callers claimed")
}
