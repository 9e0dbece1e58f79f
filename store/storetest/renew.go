package storetest

import (
	"slices"
	"time"

	"github.com/elido-app/webhook/store"
)

var renewCases = []Case{
	{
		"renew/until",
		"Renew makes leases last until the given instant.",
		check(renewLasts),
	},
	{
		"renew/ran out",
		"Renew makes leases last also if they ran out, as long as nobody took the delivery since.",
		check(renewRanOut),
	},
	{
		"renew/another of its key",
		"A lease that ran out is lost if another delivery of its ordering key was leased since: never are two of a key leased at once.",
		check(renewBehindAnother),
	},
	{
		"renew/lost",
		"Leases that the token no longer holds are returned as lost, and not changed.",
		check(renewLost),
	},
	{
		"release/back",
		"Release gives leases back: the delivery is pending, unleased and due as before, and no attempt is counted.",
		check(releaseBack),
	},
	{
		"release/due",
		"With DueAt set a released delivery is due again then; Error, unless nil, becomes its last error; " +
			"Interrupted counts one interruption.",
		check(releaseFields),
	},
	{
		"release/ran out",
		"A lease that ran out can be given back as long as nobody took the delivery since.",
		check(releaseRanOut),
	},
	{
		"release/lost",
		"Release skips leases that the token no longer holds.",
		check(releaseLost),
	},
}

func renewLasts(t *trial) {
	e := t.endpoint()
	sent := t.send(e, 2, at(0))
	leases := t.exactly(2, t.claim(at(0)))
	t.same(t.renew(at(time.Hour), leases[0]), []int64(nil), "lost leases")
	t.same(ids(t.claim(at(time.Minute))), sent[1:], "claimed after the lease that was not renewed ran out")
	t.same(ids(t.claimOf(e, at(time.Hour-time.Millisecond))), sent[1:], "claimed just before the renewed lease ends")
	t.same(ids(t.claim(at(time.Hour))), sent[:1], "claimed when the renewed lease ends")

	// It may also be cut short, and goes on to fence what is recorded.
	t.send(e, 1, at(2*time.Hour))
	leases = t.exactly(3, t.claim(at(2*time.Hour)))
	last := leases[len(leases)-1]
	t.same(t.renew(at(2*time.Hour+time.Second), last), []int64(nil), "lost leases")
	t.same(t.one(t.claim(at(2*time.Hour+time.Second))).DeliveryID, last.DeliveryID, "claimed after the lease was cut short")
	t.same(t.probe(0).NextDue, at(2*time.Hour+leaseTime), "NextDue")
}

func renewRanOut(t *trial) {
	e := t.endpoint()
	sent := append(t.send(e, 1, at(0)), t.sendKeyed(e, "a", 2, at(0))...)
	leases := t.exactly(2, t.claim(at(0)))
	now := leases[0].Until.Add(time.Minute)
	t.same(t.renew(now.Add(time.Minute), leases[0]), []int64(nil), "lost leases that ran out unnoticed")
	none := t.lease(now)
	none.Room.Limit = 0
	t.claimWith(now, none)
	t.same(t.renew(now.Add(time.Minute), leases[1]), []int64(nil), "lost leases that a claim without room saw run out")

	t.same(ids(t.claim(now.Add(time.Minute-time.Millisecond))), []int64(nil), "claimed just before the renewed leases end")
	t.record(now, delivered(leases[0]), delivered(leases[1]))
	t.same(t.turns(now), sent[2:], "what is left")
}

func renewBehindAnother(t *trial) {
	e := t.endpoint()
	sent := t.spent(e, 2)
	l := t.one(t.claim(at(0)))
	t.same(l.DeliveryID, sent[1], "the second is leased")
	t.retry(sent[0], l.Until)
	first := t.one(t.claim(l.Until))
	t.same(first.DeliveryID, sent[0], "claimed after the first was retried and the second's lease ran out")
	t.same(t.renew(l.Until.Add(time.Hour), l), sent[1:], "lost leases, while another of the key is leased")
	t.record(l.Until, delivered(first))
	t.same(t.turns(l.Until), sent[1:], "the order after that")
}

func renewLost(t *trial) {
	e := t.endpoint()
	t.send(e, 4, at(0))
	lease := t.lease(at(0))
	leases := t.exactly(4, t.claimWith(at(0), lease).Leases)
	t.record(at(0), delivered(leases[0]), again(leases[1], at(2*time.Second)))
	t.must(t.st.Release(t.ctx, []store.Release{{LeaseRef: leases[2].Ref(), DueAt: at(2 * time.Second)}}), "Release")
	taken := t.exactly(2, t.claim(at(2*time.Second)))

	before := []store.Delivery{t.delivery(leases[0].DeliveryID), t.delivery(leases[1].DeliveryID)}
	refs := []store.LeaseRef{{DeliveryID: 1 << 50, Token: lease.Token}}
	for _, l := range leases {
		refs = append(refs, l.Ref())
	}
	lost, err := t.st.Renew(t.ctx, refs, at(time.Hour))
	t.must(err, "Renew")
	slices.Sort(lost)
	want := []int64{leases[0].DeliveryID, leases[1].DeliveryID, leases[2].DeliveryID, 1 << 50}
	slices.Sort(want)
	t.same(lost, want, "lost leases")
	t.same(t.delivery(leases[0].DeliveryID), before[0], "a delivered one after Renew")
	t.same(t.delivery(leases[1].DeliveryID), before[1], "one taken by another after Renew")
	t.same(len(t.claim(taken[0].Until)), 2, "claimed when the others' leases end")
	t.same(ids(t.claim(at(time.Hour-time.Millisecond))), ids(taken), "claimed just before the renewed lease ends")
}

func releaseBack(t *trial) {
	e := t.endpoint()
	id := t.send(e, 1, at(0))[0]
	before := t.delivery(id)
	l := t.one(t.claim(at(time.Second)))
	t.release(l)
	t.same(t.delivery(id), before, "the delivery")
	t.same(len(t.attempts(id)), 0, "attempt rows")
	t.same(t.probe(0).NextDue, at(0), "NextDue")

	// The token holds nothing any more.
	t.same(t.renew(at(time.Hour), l), []int64{id}, "lost leases after Release")
	r := t.recordWith(store.RecordParams{Now: at(time.Second), Outcomes: []store.Outcome{delivered(l)}})
	t.same(r.Stale, []int64{id}, "Stale after Release")
	t.must(t.st.Release(t.ctx, []store.Release{{LeaseRef: l.Ref(), Interrupted: true}}), "the second Release")
	t.same(t.delivery(id), before, "the delivery after the second Release")
	again := t.one(t.claim(at(time.Second)))
	again.Token, again.Until, again.Target = l.Token, l.Until, l.Target
	t.same(again, l, "the next lease")
}

func releaseFields(t *trial) {
	e := t.endpoint()
	id := t.send(e, 1, at(0))[0]
	want := t.delivery(id)
	release := func(now time.Time, r store.Release) {
		r.LeaseRef = new(t.one(t.claim(now))).Ref()
		t.must(t.st.Release(t.ctx, []store.Release{r}), "Release")
	}
	release(at(0), store.Release{DueAt: at(time.Minute), Error: []byte("cannot decrypt"), Interrupted: true})
	want.NextAttemptAt, want.LastError, want.Interruptions = at(time.Minute), []byte("cannot decrypt"), 1
	t.same(t.delivery(id), want, "the delivery")
	t.same(ids(t.claim(at(time.Minute-time.Millisecond))), []int64(nil), "claimed before DueAt")

	release(at(time.Minute), store.Release{Interrupted: true})
	want.Interruptions = 2
	t.same(t.delivery(id), want, "the delivery after the second interruption")
	release(at(time.Minute), store.Release{})
	t.same(t.delivery(id), want, "the delivery after a release without anything")
	release(at(time.Minute), store.Release{Error: []byte{}})
	want.LastError = nil
	t.same(t.delivery(id), want, "the delivery after a release with an empty Error")
	l := t.one(t.claim(at(time.Minute)))
	t.same([]int{l.Interruptions, l.Attempts, l.TotalAttempts}, []int{2, 0, 0}, "counts of the next lease")
	t.same(len(t.attempts(id)), 0, "attempt rows")
}

func releaseRanOut(t *trial) {
	e := t.endpoint()
	sent := t.send(e, 2, at(0))
	leases := t.exactly(2, t.claim(at(0)))
	now := leases[0].Until
	back := func(l store.Lease, due time.Time) {
		t.must(t.st.Release(t.ctx, []store.Release{{LeaseRef: l.Ref(), DueAt: due, Error: []byte("late")}}), "Release")
	}
	back(leases[0], now.Add(time.Hour))
	none := t.lease(now)
	none.Room.Limit = 0
	t.claimWith(now, none)
	back(leases[1], now.Add(time.Hour))
	for _, id := range sent {
		t.same(string(t.delivery(id).LastError), "late", "LastError of delivery %d", id)
	}
	t.same(ids(t.claim(now.Add(time.Hour-time.Millisecond))), []int64(nil), "claimed before DueAt")
	t.same(ids(t.claim(now.Add(time.Hour))), sent, "claimed at DueAt")
}

func releaseLost(t *trial) {
	e := t.endpoint()
	sent := t.send(e, 3, at(0))
	leases := t.exactly(3, t.claim(at(0)))
	t.record(at(0), delivered(leases[0]))
	t.release(leases[1])
	taken := t.one(t.claim(at(0)))
	before := []store.Delivery{t.delivery(sent[0]), t.delivery(sent[1])}

	releases := []store.Release{{LeaseRef: store.LeaseRef{DeliveryID: 1 << 50, Token: leases[0].Token}}}
	for _, l := range leases {
		releases = append(releases, store.Release{
			LeaseRef: l.Ref(), DueAt: at(time.Hour), Error: []byte("stale"), Interrupted: true,
		})
	}
	t.must(t.st.Release(t.ctx, releases), "Release")
	t.same(t.delivery(sent[0]), before[0], "a delivered one")
	t.same(t.delivery(sent[1]), before[1], "one taken by another")
	t.same(t.delivery(sent[2]).NextAttemptAt, at(time.Hour), "NextAttemptAt of the one that was held")
	t.record(at(0), delivered(taken))
}
