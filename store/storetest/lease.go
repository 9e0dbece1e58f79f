package storetest

import (
	"fmt"
	"time"

	"github.com/elido-app/webhook/store"
)

var leaseCases = []Case{
	{
		"lease/runs out",
		"A lease that ran out (Until at or before Now) is no lease: its delivery counts one interruption more and is due again.",
		check(leaseRunsOut),
	},
	{
		"lease/retake delay",
		"After a lease ran out the delivery is due again RetakeDelay of the count of interruptions after the lease's end.",
		check(leaseRetakeDelay),
	},
	{
		"lease/interruptions",
		"A recorded attempt sets the interruptions back to zero; an interruption uses up no attempt.",
		check(leaseInterruptions),
	},
}

func leaseRunsOut(t *trial) {
	e := t.endpoint()
	id := t.send(e, 1, at(0))[0]
	lease := t.lease(at(0))
	lease.Until = at(10 * time.Second)
	old := t.one(t.claimWith(at(0), lease).Leases)
	t.same(old.Interruptions, 0, "Interruptions of the first lease")
	t.same(ids(t.claim(at(10*time.Second-time.Millisecond))), []int64(nil), "claimed just before the lease ends")
	taken := t.one(t.claim(at(10 * time.Second)))
	t.same(taken.DeliveryID, id, "claimed when the lease ends")
	t.same(taken.Interruptions, 1, "Interruptions of the second lease")
	t.same([]int{taken.Attempts, taken.TotalAttempts}, []int{0, 0}, "attempts after an interruption")
	d := t.delivery(id)
	t.same(d.Interruptions, 1, "Interruptions of the delivery")
	t.same(d.Status, store.StatusPending, "Status of the delivery")
	t.same(len(t.attempts(id)), 0, "attempt rows")
}

func leaseRetakeDelay(t *trial) {
	e := t.endpoint()
	t.send(e, 1, at(0))
	now := at(0)
	lease := t.one(t.claim(now))
	for count := 1; count <= 7; count++ {
		now = lease.Until
		if delay := store.RetakeDelay(count); delay > 0 {
			r := t.claimWith(now, t.lease(now))
			t.same(ids(r.Leases), []int64(nil), "claimed at once after interruption %d", count)
			if !r.NextDue.After(now) || r.NextDue.After(now.Add(delay)) {
				t.failf("NextDue after interruption %d is %s, want after %s and by %s", count, clock(r.NextDue), clock(now), clock(now.Add(delay)))
			}
			now = now.Add(delay)
			t.same(ids(t.claim(now.Add(-time.Millisecond))), []int64(nil), "claimed just before the delay after interruption %d ends", count)
		}
		lease = t.one(t.claim(now))
		t.same(lease.Interruptions, count, "Interruptions of the lease")
	}

	// The delay counts from the lease's end, whenever somebody notices.
	now = lease.Until.Add(store.RetakeDelay(8))
	t.same(ids(t.claim(now.Add(-time.Millisecond))), []int64(nil), "claimed, for the first time since interruption 8, just before the delay ends")
	lease = t.one(t.claim(now))
	t.same(lease.Interruptions, 8, "Interruptions of the lease after that")
	t.same(lease.DueAt, now, "DueAt of the lease after that")
}

func leaseInterruptions(t *trial) {
	e := t.endpoint()
	id := t.send(e, 1, at(0))[0]
	now := at(0)
	for range 4 {
		now = t.one(t.claim(now)).Until
	}
	lease := t.one(t.claim(now))
	t.same(lease.Interruptions, 4, "Interruptions of the lease")
	t.record(now, again(lease, now.Add(time.Minute)))
	d := t.delivery(id)
	t.same([]int{d.Attempts, d.TotalAttempts, d.Interruptions}, []int{1, 1, 0}, "counts after a recorded attempt")

	now = now.Add(time.Minute)
	lease = t.one(t.claim(now))
	t.same(lease.Interruptions, 0, "Interruptions of the next lease")
	lease = t.one(t.claim(lease.Until))
	t.same([]int{lease.Attempts, lease.TotalAttempts, lease.Interruptions}, []int{1, 1, 1}, "counts of the lease after that")
}

var nextDueCases = []Case{
	{
		"next due/later",
		"Claim's NextDue is the earliest due time or end of lease among what was left, and zero if nothing is left.",
		check(nextDueLater),
	},
	{
		"next due/limit",
		"NextDue is at or before Now if only Limit stood in the way.",
		check(nextDueLimit),
	},
	{
		"next due/room",
		"NextDue does not count endpoints whose room was taken, nor paused ones.",
		check(nextDueRoom),
	},
	{
		"next due/bound",
		"NextDue is a lower bound: who claims only then gets every delivery as soon as it is due, and each lease's end is noticed.",
		check(nextDueBound),
	},
	{
		"next due/paused",
		"A paused endpoint gives a claim no reason to come again, whatever is due, leased or run out there.",
		check(nextDuePaused),
	},
}

func nextDueLater(t *trial) {
	e, other := t.endpoint(), t.endpoint()
	t.same(t.claimWith(at(0), t.lease(at(0))).NextDue, time.Time{}, "NextDue of an empty store")

	t.send(e, 2, at(0))
	leases := t.claim(at(0))
	t.record(at(0), again(leases[0], at(20*time.Minute)), again(leases[1], at(10*time.Minute)))
	t.same(t.claimWith(at(time.Minute), t.lease(at(time.Minute))).NextDue, at(10*time.Minute), "NextDue before two retries")

	t.send(other, 1, at(0))
	lease := t.one(t.claim(at(time.Minute)))
	t.same(t.claimWith(at(time.Minute), t.lease(at(time.Minute))).NextDue, lease.Until, "NextDue before a lease's end")
	t.record(at(2*time.Minute), delivered(lease))
	t.same(t.claimWith(at(2*time.Minute), t.lease(at(2*time.Minute))).NextDue, at(10*time.Minute), "NextDue after the lease was settled")

	now := at(10 * time.Minute)
	r := t.claimWith(now, t.lease(now))
	t.record(now, delivered(t.one(r.Leases)))
	t.same(r.NextDue.IsZero() || !r.NextDue.Before(now.Add(leaseTime)), true, "NextDue comes after the new lease's end")
	now = at(20 * time.Minute)
	t.record(now, delivered(t.one(t.claim(now))))
	t.same(t.claimWith(now, t.lease(now)).NextDue, time.Time{}, "NextDue when all is delivered")
}

func nextDueLimit(t *trial) {
	e, other := t.endpoint(), t.endpoint()
	t.send(e, 3, at(0))
	t.send(other, 1, at(0))
	now := at(time.Minute)
	for _, limit := range []int{0, 1, 2} { // leaves 4, 3, 1
		lease := t.lease(now)
		lease.Room.Limit = limit
		r := t.claimWith(now, lease)
		t.same(len(r.Leases), limit, "number of leases")
		if r.NextDue.IsZero() || r.NextDue.After(now) {
			t.failf("NextDue with work left by a limit of %d is %s, want at or before %s", limit, clock(r.NextDue), clock(now))
		}
	}
}

// idle ends the case if NextDue asks for another claim at once.
func (t *trial) idle(nextDue, now time.Time, format string, args ...any) {
	if !nextDue.IsZero() && !nextDue.After(now) {
		t.failf("NextDue %s is %s, want later than %s or zero", fmt.Sprintf(format, args...), clock(nextDue), clock(now))
	}
}

func nextDueRoom(t *trial) {
	full, e := t.endpoint(), t.endpoint()
	t.send(full, 5, at(0))
	now := at(time.Minute)
	for _, room := range []store.Room{
		{Limit: plenty, PerEndpoint: 2},
		{Limit: plenty, PerEndpoint: plenty, Endpoints: map[int64]int{full.ID: 0}},
		{Limit: 1, PerEndpoint: 1}, // the limit is reached, but it is not alone in the way
	} {
		lease := t.lease(now)
		lease.Room = room
		t.idle(t.claimWith(now, lease).NextDue, now, "with room %s", describeRoom(room))
	}

	// Others are still counted.
	t.send(e, 1, now)
	t.record(now, again(t.one(t.claimOf(e, now)), at(time.Hour)))
	lease := t.lease(now)
	lease.Room.Endpoints = map[int64]int{full.ID: 0}
	next := t.claimWith(now, lease).NextDue
	t.idle(next, now, "with a retry beside an endpoint without room")
	t.same(next.IsZero() || next.After(at(time.Hour)), false, "NextDue comes after a retry beside an endpoint without room")
}

func nextDueBound(t *trial) {
	a, b := t.endpoint(), t.endpoint()
	sent := append(t.send(a, 20, at(0)), t.send(b, 20, at(0))...)
	due := map[int64]time.Time{}
	var outcomes []store.Outcome
	for i, l := range t.exactly(len(sent), t.claim(at(0))) {
		due[l.DeliveryID] = at(time.Duration(i*i%37+1) * time.Minute)
		outcomes = append(outcomes, again(l, due[l.DeliveryID]))
	}
	t.record(at(0), outcomes...)

	now := at(0)
	for claims := 0; len(due) > 0; claims++ {
		if claims > 10*len(sent) {
			t.failf("after %d claims, each at the NextDue of the one before, %d deliveries are left", claims, len(due))
		}
		lease := t.lease(now)
		lease.Room.Limit = 7
		r := t.claimWith(now, lease)
		for i, l := range r.Leases {
			if want := due[l.DeliveryID]; !now.Equal(want) {
				t.failf("claiming at each NextDue gave delivery %d at %s; it was due at %s", l.DeliveryID, clock(now), clock(want))
			}
			// Every third process dies with its lease.
			if i%3 == 2 {
				due[l.DeliveryID] = l.Until
				continue
			}
			delete(due, l.DeliveryID)
			t.record(now, delivered(l))
		}
		next := r.NextDue
		if len(due) == 0 {
			break
		}
		// Whether the leases of this very call count is the store's choice.
		for _, l := range r.Leases {
			if next.IsZero() || l.Until.Before(next) {
				next = l.Until
			}
		}
		if next.IsZero() {
			t.failf("NextDue at %s is zero, with %d deliveries left", clock(now), len(due))
		}
		if next.After(now) {
			now = next
		}
	}
}

func nextDuePaused(t *trial) {
	e := t.endpoint()
	t.send(e, 2, at(0))
	lease := t.lease(at(0))
	lease.Room.Limit = 1
	l := t.one(t.claimWith(at(0), lease).Leases)
	t.pause(e, true)
	t.idle(t.claimWith(at(0), t.lease(at(0))).NextDue, at(0), "with due work at a paused endpoint")
	r := t.claimWith(l.Until, t.lease(l.Until))
	t.same(ids(r.Leases), []int64(nil), "claimed at a paused endpoint")
	t.same(r.NextDue, time.Time{}, "NextDue with a run out lease at a paused endpoint")
	t.same(t.probe(0).NextDue, time.Time{}, "Probe's NextDue with a run out lease at a paused endpoint")
}
