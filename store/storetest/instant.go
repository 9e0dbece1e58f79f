package storetest

import (
	"time"

	"github.com/elido-app/webhook/store"
)

var instantCases = []Case{
	{
		"instants/kept",
		"Instants are kept as UTC in whole milliseconds and returned so, and durations in whole microseconds; what is finer is cut.",
		check(instantsKept),
	},
	{
		"instants/kept by changes",
		"The instants of updates, rotations, renewals, releases, retries and health are kept as those of new endpoints and deliveries.",
		check(instantsKeptByChanges),
	},
	{
		"instants/compared",
		"An instant that is only compared counts as the millisecond it lies in, whatever its zone.",
		check(instantsCompared),
	},
}

const finest = time.Millisecond - 1

// fine is an instant in another zone, as far into a millisecond as can be, and
// whole what is to be kept of it.
func fine(d time.Duration) time.Time {
	return at(d + 7*time.Millisecond + finest).In(time.FixedZone("east", 5*3600+1800))
}

func whole(d time.Duration) time.Time { return at(d + 7*time.Millisecond) }

// kept ends the case unless an instant is what is to be kept of fine(d).
func (t *trial) kept(got time.Time, d time.Duration, what string) {
	if got.Location() != time.UTC {
		t.failf("%s is %s, want it in UTC", what, got.Format(time.RFC3339Nano))
	}
	if !got.Equal(whole(d)) {
		t.failf("%s is %v, was given as %v: want it cut to the millisecond, %v", what, got, fine(d).UTC(), whole(d))
	}
}

func instantsKept(t *trial) {
	e := draft(home)
	e.CreatedAt, e.UpdatedAt, e.PreviousUntil = fine(1*time.Second), fine(2*time.Second), fine(overlap)
	e.Health = store.Health{Failures: 1, FailedAt: fine(3 * time.Second), DegradedUntil: fine(time.Hour)}
	e, err := t.st.CreateEndpoint(t.ctx, store.CreateEndpointParams{
		Endpoint: e,
		Seal: func(int64) (store.Secrets, error) {
			return store.Secrets{Current: sealed("b"), Previous: sealed("a"), PreviousUntil: fine(overlap)}, nil
		},
	})
	t.must(err, "CreateEndpoint")
	for name, e := range map[string]store.Endpoint{"created": e, "read": t.read(e)} {
		t.kept(e.CreatedAt, 1*time.Second, "CreatedAt as "+name)
		t.kept(e.UpdatedAt, 2*time.Second, "UpdatedAt as "+name)
		t.kept(e.PreviousUntil, overlap, "PreviousUntil as "+name)
		t.kept(e.Health.FailedAt, 3*time.Second, "FailedAt as "+name)
		t.kept(e.Health.DegradedUntil, time.Hour, "DegradedUntil as "+name)
	}
	t.kept(t.secretsOf(e).Secrets.PreviousUntil, overlap, "PreviousUntil of Secrets")

	id := t.send(e, 1, fine(0))[0]
	d := t.delivery(id)
	t.kept(d.CreatedAt, 0, "CreatedAt of a delivery")
	t.kept(d.NextAttemptAt, 0, "NextAttemptAt of a delivery")
	t.same(d.CompletedAt.IsZero(), true, "CompletedAt of a pending delivery is zero")
	listed, err := t.st.Deliveries(t.ctx, store.DeliveryFilter{WorkspaceID: home})
	t.must(err, "Deliveries")
	t.same(len(listed), 1, "number of deliveries")
	t.kept(listed[0].CreatedAt, 0, "CreatedAt of a listed delivery")
	t.kept(listed[0].NextAttemptAt, 0, "NextAttemptAt of a listed delivery")

	l := t.one(t.claim(fine(0)))
	t.kept(l.Until, leaseTime, "Until of a lease")
	t.kept(l.CreatedAt, 0, "CreatedAt of a lease")
	t.kept(l.DueAt, 0, "DueAt of a lease")
	t.kept(l.Target.Secrets.PreviousUntil, overlap, "PreviousUntil of a Target")

	o := again(l, fine(time.Minute))
	o.Attempt.StartedAt, o.Attempt.Latency = fine(time.Second), 1_234_567_999*time.Nanosecond
	t.record(fine(2*time.Second), o)
	d = t.delivery(id)
	t.kept(d.NextAttemptAt, time.Minute, "NextAttemptAt after a failed attempt")
	a := t.lastAttempt(id, 1)
	t.kept(a.StartedAt, time.Second, "StartedAt of an attempt")
	t.same(a.Latency, 1_234_567*time.Microsecond, "Latency of an attempt that took 1.234567999s")
	t.same(d.LastLatency, 1_234_567*time.Microsecond, "LastLatency after that attempt")
	t.kept(t.probe(0).NextDue, time.Minute, "Probe's NextDue")
	t.kept(t.claimWith(fine(0), t.lease(fine(0))).NextDue, time.Minute, "Claim's NextDue")

	t.record(fine(time.Hour), delivered(t.one(t.claim(fine(time.Minute)))))
	d = t.delivery(id)
	t.kept(d.CompletedAt, time.Hour, "CompletedAt")
	t.same(d.NextAttemptAt.IsZero(), true, "NextAttemptAt of a delivered one is zero")
	t.kept(t.maintain(store.MaintainParams{Now: fine(0)}).NextEnd, overlap, "NextEnd")

	lease := t.lease(fine(2 * time.Hour))
	r := t.publishWith(store.PublishParams{Events: t.eventsTo(e, "", 1), Now: fine(2 * time.Hour), Handoff: &lease})
	l = t.one(r.Leases)
	t.kept(l.Until, 2*time.Hour+leaseTime, "Until of what is handed off")
	t.kept(l.CreatedAt, 2*time.Hour, "CreatedAt of what is handed off")
	t.kept(l.DueAt, 2*time.Hour, "DueAt of what is handed off")
}

func instantsKeptByChanges(t *trial) {
	e := t.endpoint()
	e.UpdatedAt = fine(time.Second)
	e = t.update(e)
	t.kept(e.UpdatedAt, time.Second, "UpdatedAt that UpdateEndpoint returned")
	t.kept(t.read(e).UpdatedAt, time.Second, "UpdatedAt after UpdateEndpoint")

	p := rotation(e, sealed("second"), fine(0))
	e = t.rotate(p)
	for name, e := range map[string]store.Endpoint{"returned": e, "read": t.read(e)} {
		t.kept(e.UpdatedAt, 0, "UpdatedAt of a rotation as "+name)
		t.kept(e.PreviousUntil, overlap, "PreviousUntil of a rotation as "+name)
	}
	t.kept(t.target(e, at(0)).Secrets.PreviousUntil, overlap, "PreviousUntil of a Target after a rotation")

	id := t.send(e, 1, at(0))[0]
	l := t.one(t.claim(at(0)))
	t.same(t.renew(fine(time.Hour), l), []int64(nil), "lost leases")
	t.kept(t.probe(0).NextDue, time.Hour, "the end of a renewed lease")
	t.must(t.st.Release(t.ctx, []store.Release{{LeaseRef: l.Ref(), DueAt: fine(time.Minute)}}), "Release")
	t.kept(t.delivery(id).NextAttemptAt, time.Minute, "NextAttemptAt after Release with DueAt")

	l = t.one(t.claim(fine(time.Minute)))
	t.kept(l.DueAt, time.Minute, "DueAt of the lease after that")
	o := failed(l)
	o.Health, o.Attempt.StartedAt = store.HealthFailure, at(time.Minute)
	r := t.recordWith(store.RecordParams{
		Now: fine(2 * time.Minute), Outcomes: []store.Outcome{o},
		Health: &store.HealthPolicy{DegradeAfter: 1, DegradeFor: time.Hour + finest},
	})
	t.same(len(r.Changes), 1, "number of changes of health")
	for name, h := range map[string]store.Health{"reported": r.Changes[0].Health, "read": t.read(e).Health} {
		t.kept(h.FailedAt, 2*time.Minute, "FailedAt as "+name)
		t.kept(h.DegradedUntil, time.Hour+2*time.Minute, "DegradedUntil, by a policy of 1h and 999999ns, as "+name)
	}

	d := t.retry(id, fine(2*time.Hour))
	t.kept(d.NextAttemptAt, 2*time.Hour, "NextAttemptAt that Retry returned")
	t.kept(t.delivery(id).NextAttemptAt, 2*time.Hour, "NextAttemptAt after Retry")
	t.record(at(3*time.Hour), failed(t.one(t.claim(at(3*time.Hour)))))
	t.same(t.recover(e, at(3*time.Hour), fine(4*time.Hour), plenty), 1, "how many were recovered")
	t.kept(t.delivery(id).NextAttemptAt, 4*time.Hour, "NextAttemptAt after Recover")
}

func instantsCompared(t *trial) {
	e := t.endpoint()
	const ms = time.Millisecond

	// A lease ends, and a delivery is due, with the millisecond its end lies in.
	id := t.send(e, 1, fine(0))[0]
	t.same(ids(t.claim(whole(0).Add(-1))), []int64(nil), "claimed a nanosecond before the millisecond it is due in")
	lease := t.lease(whole(0))
	lease.Until = fine(time.Minute)
	t.one(t.claimWith(whole(0), lease).Leases)
	t.same(ids(t.claim(whole(time.Minute).Add(-1))), []int64(nil), "claimed a nanosecond before the millisecond the lease ends in")
	l := t.one(t.claim(whole(time.Minute)))
	t.renew(fine(2*time.Minute), l)
	t.same(ids(t.claim(whole(2*time.Minute).Add(-1))), []int64(nil), "claimed a nanosecond before the millisecond a renewed lease ends in")
	l = t.one(t.claim(whole(2 * time.Minute)))

	// What failed, or was published, in a millisecond did so in all of it.
	o := failed(l)
	o.Health, o.Attempt.StartedAt = store.HealthFailure, at(time.Second)
	policy := store.HealthPolicy{DegradeAfter: 2, DegradeFor: time.Hour}
	t.recordWith(store.RecordParams{Now: fine(time.Hour), Outcomes: []store.Outcome{o}, Health: &policy})
	t.same(t.recover(e, fine(time.Hour).Add(1), at(2*time.Hour), plenty), 0, "how many were recovered that failed in the millisecond before Since")
	t.same(t.recover(e, at(0), whole(time.Hour).Add(-1), plenty), 0, "how many were recovered that failed in the millisecond after Now")
	t.same(t.recover(e, fine(time.Hour), whole(time.Hour), plenty), 1, "how many were recovered that failed in the millisecond of Since and Now")
	o = failed(t.one(t.claim(fine(time.Hour))))
	o.Health, o.Attempt.StartedAt = store.HealthFailure, fine(time.Hour)
	t.recordWith(store.RecordParams{Now: fine(time.Hour + ms), Outcomes: []store.Outcome{o}, Health: &policy})
	t.same(t.read(e).Health.Failures, 1, "Failures after one whose attempt began in the millisecond of the failure before")

	for _, c := range []struct {
		name string
		f    store.DeliveryFilter
		want int
	}{
		{"Since in its millisecond", store.DeliveryFilter{Since: fine(0)}, 1},
		{"Since in the millisecond after", store.DeliveryFilter{Since: fine(0).Add(1)}, 0},
		{"Until in its millisecond", store.DeliveryFilter{Until: fine(0)}, 0},
		{"Until in the millisecond after", store.DeliveryFilter{Until: fine(ms)}, 1},
		{"a cursor at it", store.DeliveryFilter{Before: store.Position{CreatedAt: fine(0), DeliveryID: id}}, 0},
		{"a cursor after it", store.DeliveryFilter{Before: store.Position{CreatedAt: fine(0), DeliveryID: id + 1}}, 1},
	} {
		t.same(len(t.list(c.f)), c.want, "number of deliveries with %s", c.name)
	}

	// An overlap, and a time of degradation, ends with the millisecond it ends in.
	t.rotate(rotation(e, sealed("second"), fine(0)))
	end := whole(overlap)
	t.same(t.maintain(store.MaintainParams{Now: end.Add(-1)}).Erased, 0, "secrets erased a nanosecond before the millisecond their overlap ends in")
	t.same(t.maintain(store.MaintainParams{Now: end}).Erased, 1, "secrets erased in the millisecond their overlap ends in")
	sick := draft(home)
	sick.Health = store.Health{Failures: 3, FailedAt: at(0), DegradedUntil: fine(time.Hour)}
	sick = t.create(sick)
	for _, now := range []time.Time{whole(time.Hour).Add(-1), whole(time.Hour)} {
		ev := t.eventsTo(sick, "", 1)[0]
		ev.Budget, ev.DegradedBudget = 7, 3
		want := 7
		if now.Before(whole(time.Hour)) {
			want = 3
		}
		t.same(t.delivery(t.deliverOne(now, ev)).Budget, want, "Budget of what is published at %s to an endpoint degraded until %s",
			clock(now), clock(fine(time.Hour)))
	}

	// Housekeeping.
	t.publish(fine(0), t.keyedEvent(nowhere, "k", 1))
	done := whole(time.Hour + ms) // when the delivery completed
	r := t.maintain(store.MaintainParams{Now: at(0), PruneBefore: done.Add(finest), ForgetKeysBefore: fine(0)})
	t.same([]int{r.Pruned, r.Keys}, []int{0, 0}, "deliveries pruned, and keys forgotten, of the millisecond of the limits")
	r = t.maintain(store.MaintainParams{Now: at(0), PruneBefore: done.Add(ms), ForgetKeysBefore: fine(0).Add(1)})
	t.same([]int{r.Pruned, r.Keys}, []int{1, 1}, "deliveries pruned, and keys forgotten, of the millisecond before the limits")
}
