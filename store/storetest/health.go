package storetest

import (
	"time"

	"github.com/elido-app/webhook/store"
)

var healthCases = []Case{
	{
		"health/counting",
		"Health goes by HealthPolicy: failures in a row are counted, parallel ones once, and a success resets them.",
		check(healthCounts),
	},
	{
		"health/order",
		"Health counts outcomes in the order in which they are recorded.",
		check(healthInOrder),
	},
	{
		"health/no policy",
		"Without a policy, and by outcomes that mean nothing for it, health is left alone.",
		check(healthLeftAlone),
	},
	{
		"health/degraded",
		"Reaching DegradeAfter and coming back from it are reported, once each, with the endpoint and its Revision.",
		check(healthDegrades),
	},
	{
		"health/paused",
		"Where the change says Paused the endpoint becomes inactive with PauseReason, has a new revision, and nothing of it is claimed.",
		check(healthPauses),
	},
	{
		"health/revision",
		"A change of health alone leaves Revision as it is.",
		check(healthKeepsRevision),
	},
}

var policy = store.HealthPolicy{
	DegradeAfter: 3, DegradeFor: 24 * time.Hour, PauseAfter: 5, PauseReason: "5 failures in a row",
}

// attempt sends one delivery to an endpoint and records one attempt of it.
func (t *trial) attempt(e store.Endpoint, effect store.HealthEffect, now time.Time) store.RecordResult {
	t.send(e, 1, now)
	leases := t.claimOf(e, now)
	o := failed(leases[len(leases)-1])
	o.Health = effect
	return t.recordWith(store.RecordParams{Now: now, Outcomes: []store.Outcome{o}, Health: &policy})
}

func healthCounts(t *trial) {
	e := t.endpoint()
	t.attempt(e, store.HealthFailure, at(time.Minute))
	t.same(t.read(e).Health, store.Health{Failures: 1, FailedAt: at(time.Minute)}, "Health after a failure")
	t.attempt(e, store.HealthFailure, at(2*time.Minute))
	t.same(t.read(e).Health, store.Health{Failures: 2, FailedAt: at(2 * time.Minute)}, "Health after two failures")

	// Three attempts started before the last failure was recorded.
	t.send(e, 3, at(2*time.Minute))
	var outcomes []store.Outcome
	for _, l := range t.claimOf(e, at(2*time.Minute)) {
		o := failed(l)
		o.Health, o.Attempt.StartedAt = store.HealthFailure, at(2*time.Minute)
		outcomes = append(outcomes, o)
	}
	r := t.recordWith(store.RecordParams{Now: at(3 * time.Minute), Outcomes: outcomes, Health: &policy})
	t.same(len(r.Changes), 0, "changes by failures of the same outage")
	t.same(t.read(e).Health.Failures, 2, "Failures after failures of the same outage")

	r = t.attempt(e, store.HealthSuccess, at(4*time.Minute))
	t.same(len(r.Changes), 0, "changes by a success below the threshold")
	t.same(t.read(e).Health, store.Health{}, "Health after a success")
}

func healthInOrder(t *trial) {
	a, b := t.endpoint(), t.endpoint()
	t.send(a, 2, at(0))
	t.send(b, 2, at(0))
	effects := map[int64][]store.HealthEffect{
		a.ID: {store.HealthFailure, store.HealthSuccess},
		b.ID: {store.HealthSuccess, store.HealthFailure},
	}
	var outcomes []store.Outcome
	for _, l := range t.claim(at(0)) {
		o := failed(l)
		o.Health, effects[o.EndpointID] = effects[o.EndpointID][0], effects[o.EndpointID][1:]
		outcomes = append(outcomes, o)
	}
	t.recordWith(store.RecordParams{Now: at(time.Minute), Outcomes: outcomes, Health: &policy})
	t.same(t.read(a).Health, store.Health{}, "Health after failure, success")
	t.same(t.read(b).Health, store.Health{Failures: 1, FailedAt: at(time.Minute)}, "Health after success, failure")
}

func healthLeftAlone(t *trial) {
	e := t.endpoint()
	t.attempt(e, store.HealthFailure, at(0))
	before := t.read(e)
	t.attempt(e, store.HealthNone, at(time.Minute))
	t.same(t.read(e), before, "the endpoint after an outcome without effect")
	for i, effect := range []store.HealthEffect{store.HealthFailure, store.HealthSuccess} {
		now := at(time.Duration(i+2) * time.Minute)
		t.send(e, 1, now)
		o := failed(t.one(t.claimOf(e, now)))
		o.Health = effect
		r := t.record(now, o)
		t.same(len(r.Changes), 0, "changes without a policy")
		t.same(t.read(e), before, "the endpoint after an outcome without a policy")
	}
}

func healthDegrades(t *trial) {
	e := t.endpoint()
	now := at(0)
	fail := func() store.RecordResult {
		now = now.Add(time.Minute)
		return t.attempt(e, store.HealthFailure, now)
	}
	t.same(len(fail().Changes), 0, "changes after the first failure")
	t.same(len(fail().Changes), 0, "changes after the second failure")
	r := fail()
	sick := store.Health{Failures: 3, FailedAt: now, DegradedUntil: now.Add(24 * time.Hour)}
	t.same(r.Changes, []store.HealthChange{{EndpointID: e.ID, WorkspaceID: home, Degraded: true, Health: sick, Revision: e.Revision}}, "changes at the threshold")
	t.same(t.read(e).Health, sick, "Health at the threshold")
	t.same(len(fail().Changes), 0, "changes after the threshold")

	now = now.Add(time.Minute)
	r = t.attempt(e, store.HealthSuccess, now)
	t.same(r.Changes, []store.HealthChange{{EndpointID: e.ID, WorkspaceID: home, Recovered: true, Revision: e.Revision}}, "changes by the recovery")
	t.same(t.read(e).Health, store.Health{}, "Health after the recovery")
	now = now.Add(time.Minute)
	t.same(len(t.attempt(e, store.HealthSuccess, now).Changes), 0, "changes by another success")
}

func healthPauses(t *trial) {
	e, other := t.endpoint(), t.endpoint()
	since := t.probe(0).Revision
	var r store.RecordResult
	for n := range 5 {
		r = t.attempt(e, store.HealthFailure, at(time.Duration(n)*time.Minute))
	}
	got := t.read(e)
	sick := store.Health{Failures: 5, FailedAt: at(4 * time.Minute), DegradedUntil: at(2*time.Minute + 24*time.Hour)}
	t.same(r.Changes, []store.HealthChange{{EndpointID: e.ID, WorkspaceID: home, Paused: true, Health: sick, Revision: got.Revision}}, "changes")
	want := e
	want.Active, want.PauseReason, want.Health = false, "5 failures in a row", sick
	want.Revision, want.UpdatedAt = got.Revision, got.UpdatedAt
	t.same(got, want, "the paused endpoint")
	t.same(t.read(other), other, "another endpoint")
	if got.Revision <= e.Revision {
		t.failf("Revision went from %d to %d by the pause", e.Revision, got.Revision)
	}
	t.same(t.probe(since).Changed, []store.EndpointChange{{EndpointID: e.ID, Revision: got.Revision}}, "what Probe says changed")

	sent := t.event(home)
	sent.EndpointID = e.ID
	t.same(len(t.deliver(at(time.Hour), sent)), 0, "deliveries to the paused endpoint")

	// A pause ends what the same call would have claimed.
	t.send(other, 8, at(time.Hour))
	lease := t.lease(at(time.Hour))
	lease.Room.Limit = 2
	leases := t.claimWith(at(time.Hour), lease).Leases
	o := failed(leases[0])
	o.Health, o.Attempt.StartedAt = store.HealthFailure, at(time.Hour)
	r = t.recordWith(store.RecordParams{
		Now: at(time.Hour), Outcomes: []store.Outcome{o}, Health: &store.HealthPolicy{PauseAfter: 1, PauseReason: "one"},
		Claim: &store.ClaimParams{Now: at(time.Hour), LeaseParams: t.lease(at(time.Hour))},
	})
	t.same(ids(r.Claim.Leases), []int64(nil), "claimed of the endpoint paused in the same call")
	t.same(t.read(other).PauseReason, "one", "PauseReason")
}

func healthKeepsRevision(t *trial) {
	e := t.endpoint()
	since := t.probe(0).Revision
	for n := range 3 {
		t.attempt(e, store.HealthFailure, at(time.Duration(n)*time.Minute))
	}
	t.attempt(e, store.HealthSuccess, at(time.Hour))
	t.same(t.read(e).Revision, e.Revision, "Revision")
	t.same(len(t.probe(since).Changed), 0, "number of changes Probe saw")
	e.Description = "still current"
	t.update(e)
}
