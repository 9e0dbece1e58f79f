package storetest

import (
	"slices"
	"time"

	"github.com/elido-app/webhook/store"
)

var probeCases = []Case{
	{
		"probe/next due",
		"Probe's NextDue is the earliest due time of what is not blocked, or end of a lease, at an active endpoint; zero if there is none.",
		check(probeNextDue),
	},
	{
		"probe/changes",
		"Changed are the endpoints that were paused, edited, rotated or deleted after Since, with their revisions.",
		check(probeChanges),
	},
	{
		"probe/since zero",
		"With Since zero a probe tells of no changes; Revision is positive, also in an empty store.",
		check(probeSinceZero),
	},
	{
		"probe/count",
		"Probe counts, no further than it was asked to, what is due at active endpoints and not leased.",
		check(probeCount),
	},
}

func probeCount(t *trial) {
	e, other := t.endpoint(), t.endpoint()
	now := at(time.Minute)
	due := func(count, want int, when string) {
		r, err := t.st.Probe(t.ctx, store.ProbeParams{Count: count, Now: now})
		t.must(err, "Probe")
		t.same(r.Due, want, "Due, counting to %d, %s", count, when)
	}
	due(100, 0, "of an empty queue")
	t.send(e, 7, at(0))
	t.send(other, 5, at(0))
	t.sendKeyed(e, "a", 3, at(0)) // two wait for the first
	t.send(e, 2, now.Add(time.Second))
	due(0, 0, "with twelve and a key")
	due(100, 13, "with twelve and a key")
	due(4, 4, "with twelve and a key")
	t.pause(other, true)
	due(100, 8, "with five of an endpoint that is paused")
	lease := t.lease(now)
	lease.Room.Limit = 3
	t.claimWith(now, lease)
	due(100, 5, "with three leased")
	t.remove(e, now)
	due(100, 0, "with the endpoint deleted")
}

func probeNextDue(t *trial) {
	next := func(want time.Time, when string) {
		t.same(t.probe(0).NextDue, want, "NextDue %s", when)
	}
	e, other := t.endpoint(), t.endpoint()
	next(time.Time{}, "of an empty queue")
	t.sendKeyed(e, "a", 2, at(time.Second))
	next(at(time.Second), "with a due delivery")
	l := t.one(t.claim(at(time.Minute)))
	next(l.Until, "with a lease, and one blocked behind it")
	t.record(at(time.Minute), again(l, at(time.Hour)))
	next(at(time.Hour), "with a retry, and one blocked behind it")

	t.send(other, 1, at(30*time.Minute))
	next(at(30*time.Minute), "with a later delivery of another endpoint")
	t.pause(other, true)
	next(at(time.Hour), "with that endpoint paused")
	t.pause(other, false)
	next(at(30*time.Minute), "with that endpoint resumed")
	t.remove(other, at(0))
	next(at(time.Hour), "with that endpoint deleted")

	now := at(2 * time.Hour)
	t.record(now, delivered(t.one(t.claim(now))))
	t.record(now, failed(t.one(t.claim(now))))
	next(time.Time{}, "when all has ended")
}

func probeChanges(t *trial) {
	paused, edited, rotated, deleted := t.endpoint(), t.endpoint(), t.endpoint(), t.create(draft(abroad))
	t.endpoint() // is left alone
	since := t.probe(0).Revision
	none := t.probe(since)
	t.same(len(none.Changed), 0, "number of changes when nothing changed")
	t.same(none.Revision, since, "Revision when nothing changed")

	paused = t.pause(paused, true)
	edited = t.update(edited)
	edited = t.update(edited)
	rotated = t.rotate(rotation(rotated, sealed("x"), at(0)))
	t.remove(deleted, at(0))
	changed := func(since int64) map[int64]int64 {
		r := t.probe(since)
		got := map[int64]int64{}
		for _, c := range r.Changed {
			if c.Revision <= since || c.Revision > r.Revision {
				t.failf("Probe since %d tells of revision %d, and says it goes up to %d", since, c.Revision, r.Revision)
			}
			got[c.EndpointID] = c.Revision
		}
		t.same(len(r.Changed), len(got), "number of changes, each endpoint once")
		return got
	}
	got := changed(since)
	for _, e := range []store.Endpoint{paused, edited, rotated} {
		t.same(got[e.ID], e.Revision, "revision of endpoint %d", e.ID)
	}
	if got[deleted.ID] <= deleted.Revision {
		t.failf("the deleted endpoint's revision is %d, was %d", got[deleted.ID], deleted.Revision)
	}
	t.same(len(got), 4, "number of endpoints that changed")

	t.same(slices.Contains(keys(changed(edited.Revision)), edited.ID), false, "an endpoint that did not change after its revision is told of")
	t.same(len(changed(edited.Revision)), 2, "changes after the third")
	t.same(len(changed(t.probe(0).Revision)), 0, "changes after the last")

	// Another dispatcher that saw less still learns all of it, purged or not.
	t.maintain(store.MaintainParams{Now: at(time.Second)})
	t.same(changed(since)[deleted.ID], got[deleted.ID], "revision of the deleted endpoint after its rows are gone")
}

func keys(m map[int64]int64) []int64 {
	var keys []int64
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

func probeSinceZero(t *trial) {
	r := t.probe(0)
	t.same(len(r.Changed), 0, "number of changes in an empty store")
	if r.Revision <= 0 {
		t.failf("Revision of an empty store is %d, want positive", r.Revision)
	}
	e := t.update(t.endpoint())
	first := t.probe(0)
	t.same(len(first.Changed), 0, "number of changes with Since zero")
	if first.Revision < e.Revision {
		t.failf("Probe's Revision is %d, an endpoint has %d", first.Revision, e.Revision)
	}
	t.same(t.probe(r.Revision).Changed, []store.EndpointChange{{EndpointID: e.ID, Revision: e.Revision}}, "changes since the store was empty")
}
