package storetest

import (
	"time"

	"github.com/elido-app/webhook/store"
)

var recordCases = []Case{
	{
		"record/delivered",
		"A delivered outcome ends the delivery: status, counts, last result and CompletedAt, and one attempt row.",
		check(recordDelivered),
	},
	{
		"record/failed",
		"A failed outcome ends the delivery as failed.",
		check(recordFailed),
	},
	{
		"record/pending",
		"A pending outcome makes the delivery due again at NextAttemptAt, and counts the attempt.",
		check(recordPending),
	},
	{
		"record/attempts",
		"Each outcome writes one attempt row with all its fields; Number counts from 1.",
		check(recordAttempts),
	},
	{
		"record/message",
		"Message becomes the delivery's; where the body sent was the payload it has none.",
		check(recordMessage),
	},
	{
		"record/stale",
		"An outcome whose token lost the lease is in Stale and nothing of it is written; the others take effect.",
		check(recordStale),
	},
	{
		"record/late",
		"A lease that ran out still holds as long as nobody took the delivery since.",
		check(recordLate),
	},
	{
		"record/twice",
		"An outcome takes effect once: the lease is gone after it.",
		check(recordTwice),
	},
	{
		"record/concurrent",
		"Of many outcomes under one lease recorded at once, one takes effect.",
		check(recordConcurrent),
	},
	{
		"record/claim",
		"With Claim set Record then claims, as Claim would.",
		check(recordClaim),
	},
	{
		"record/queued",
		"Queued says that deliveries of active endpoints became due which are not leased; what is due later, or was before, does not count.",
		check(recordQueued),
	},
}

// result is an outcome with everything set.
func result(l store.Lease, status store.Status) store.Outcome {
	o := outcome(l, status, 503)
	o.Attempt = store.Attempt{
		DeliveryID: 1 << 50, Number: 99, // the store's to set
		StartedAt: at(10 * time.Second), Latency: 1234567 * time.Microsecond, Status: 503, Error: []byte("HTTP 503"),
		Headers:  map[string]string{"Content-Type": "application/json", "X-Empty": ""},
		Response: []byte("try later"), ResponseCut: true,
	}
	return o
}

func recordDelivered(t *trial) {
	t.recordEnds(store.StatusDelivered)
}

func recordFailed(t *trial) {
	t.recordEnds(store.StatusFailed)
}

func (t *trial) recordEnds(status store.Status) {
	e := t.endpoint()
	id := t.send(e, 1, at(0))[0]
	want := t.delivery(id)
	t.record(at(11*time.Second), result(t.one(t.claim(at(0))), status))

	want.Status, want.Attempts, want.TotalAttempts = status, 1, 1
	want.LastStatus, want.LastLatency, want.LastError = 503, 1234567*time.Microsecond, []byte("HTTP 503")
	want.CompletedAt, want.NextAttemptAt = at(11*time.Second), time.Time{}
	t.same(t.delivery(id), want, "the delivery")
	t.same(ids(t.claim(at(1000*time.Hour))), []int64(nil), "claimed after the end")
	t.same(t.probe(0).NextDue, time.Time{}, "NextDue after the end")
}

func recordPending(t *trial) {
	e := t.endpoint()
	id := t.send(e, 1, at(0))[0]
	want := t.delivery(id)
	o := result(t.one(t.claim(at(0))), store.StatusPending)
	o.NextAttemptAt = at(5 * time.Minute)
	t.record(at(11*time.Second), o)
	want.Attempts, want.TotalAttempts = 1, 1
	want.LastStatus, want.LastLatency, want.LastError = 503, 1234567*time.Microsecond, []byte("HTTP 503")
	want.NextAttemptAt = at(5 * time.Minute)
	t.same(t.delivery(id), want, "the delivery")

	l := t.one(t.claim(at(5 * time.Minute)))
	t.same([]int{l.Attempts, l.TotalAttempts, l.Budget}, []int{1, 1, 3}, "counts of the next lease")
	o = delivered(l)
	o.Attempt.Latency = 0
	t.record(at(6*time.Minute), o)
	want.Status, want.Attempts, want.TotalAttempts = store.StatusDelivered, 2, 2
	want.LastStatus, want.LastLatency, want.LastError = 200, 0, nil
	want.CompletedAt, want.NextAttemptAt = at(6*time.Minute), time.Time{}
	t.same(t.delivery(id), want, "the delivery after a success")
}

func recordAttempts(t *trial) {
	e := t.endpoint()
	id := t.send(e, 1, at(0))[0]
	t.send(e, 1, at(0)) // whose attempts must not mix with the others

	leases := t.exactly(2, t.claim(at(0)))
	first := result(leases[0], store.StatusPending)
	first.NextAttemptAt = at(time.Minute)
	t.record(at(11*time.Second), first, delivered(leases[1]))
	second := delivered(t.one(t.claim(at(time.Minute))))
	second.Attempt = store.Attempt{StartedAt: at(time.Minute), Status: 204}
	t.record(at(time.Minute), second)

	want := []store.Attempt{first.Attempt, second.Attempt}
	for i := range want {
		want[i].DeliveryID, want[i].Number = id, i+1
	}
	t.same(t.attempts(id), want, "the attempts")
}

func recordMessage(t *trial) {
	e := t.endpoint()
	id := t.send(e, 1, at(0))[0]
	t.same(t.delivery(id).Message, []byte(nil), "Message before any attempt")
	o := again(t.one(t.claim(at(0))), at(time.Minute))
	o.Message = []byte(`{"embeds":[1]}`)
	t.record(at(0), o)
	t.same(t.delivery(id).Message, o.Message, "Message after the first attempt")
	o = delivered(t.one(t.claim(at(time.Minute))))
	o.Message = []byte(`{"embeds":[2]}`)
	t.record(at(time.Minute), o)
	t.same(t.delivery(id).Message, o.Message, "Message after the second attempt")

	t.retry(id, at(time.Hour))
	t.record(at(time.Hour), delivered(t.one(t.claim(at(time.Hour)))))
	t.same(t.delivery(id).Message, []byte(nil), "Message after an attempt without one")
}

func recordStale(t *trial) {
	e := t.endpoint()
	sent := t.send(e, 2, at(0))
	old := t.exactly(2, t.claim(at(0)))
	t.release(old[0])
	taken := t.one(t.claim(at(time.Second)))
	t.same(taken.DeliveryID, sent[0], "the delivery taken by another")

	stale := result(old[0], store.StatusFailed)
	stale.Message = []byte("message")
	wrong := delivered(old[1])
	wrong.Token += 1000
	unknown := delivered(old[1])
	unknown.DeliveryID += 1000
	for _, o := range []store.Outcome{stale, wrong, unknown} {
		before := t.delivery(sent[0])
		o.Health = store.HealthFailure
		r := t.recordWith(store.RecordParams{
			Now: at(2 * time.Second), Outcomes: []store.Outcome{o},
			Health: &store.HealthPolicy{DegradeAfter: 1, DegradeFor: time.Hour},
		})
		t.same(r.Stale, []int64{o.DeliveryID}, "Stale")
		t.same(len(r.Changes), 0, "health changes of a stale outcome")
		t.same(t.delivery(sent[0]), before, "the delivery after a stale outcome")
		t.same(len(t.attempts(sent[0])), 0, "attempt rows after a stale outcome")
		t.same(t.read(e).Health, store.Health{}, "Health after a stale outcome")
	}

	r := t.recordWith(store.RecordParams{
		Now: at(3 * time.Second), Outcomes: []store.Outcome{stale, delivered(old[1]), delivered(taken), stale},
	})
	t.same(r.Stale, []int64{sent[0], sent[0]}, "Stale of a mixed batch")
	for _, id := range sent {
		t.same(t.delivery(id).Status, store.StatusDelivered, "Status of delivery %d", id)
		t.same(len(t.attempts(id)), 1, "attempt rows of delivery %d", id)
	}

	// A success is never overwritten.
	t.recordWith(store.RecordParams{Now: at(4 * time.Second), Outcomes: []store.Outcome{stale}})
	t.same(t.delivery(sent[0]).Status, store.StatusDelivered, "Status after another stale failure")
}

func recordLate(t *trial) {
	e := t.endpoint()
	id := t.send(e, 1, at(0))[0]
	old := t.one(t.claim(at(0)))
	t.record(old.Until.Add(time.Hour), delivered(old))
	t.same(t.delivery(id).Status, store.StatusDelivered, "Status after a late outcome")

	// A claim that saw the lease run out but had no room did not take it.
	id = t.send(e, 1, at(0))[0]
	old = t.one(t.claim(at(0)))
	none := t.lease(old.Until)
	none.Room.Endpoints = map[int64]int{e.ID: 0}
	t.same(len(t.claimWith(old.Until, none).Leases), 0, "leases without room")
	none = t.lease(old.Until)
	none.Room.Limit = 0
	t.same(len(t.claimWith(old.Until, none).Leases), 0, "leases with no limit")
	t.record(old.Until.Add(time.Second), again(old, at(time.Hour)))
	d := t.delivery(id)
	t.same([]int{d.Attempts, d.TotalAttempts, d.Interruptions}, []int{1, 1, 0}, "counts after a late outcome")
	t.same(ids(t.claim(at(time.Hour-time.Millisecond))), []int64(nil), "claimed before the next attempt")

	// Nor did one that had to wait for RetakeDelay.
	now := at(time.Hour)
	var lease store.Lease
	for range 5 {
		lease = t.one(t.claim(now))
		now = lease.Until
	}
	t.same(len(t.claim(now)), 0, "leases at the fifth interruption")
	t.record(now, delivered(lease))
	t.same(t.delivery(id).Status, store.StatusDelivered, "Status after the late outcome of a fifth lease")
	t.same(ids(t.claim(now.Add(time.Hour))), []int64(nil), "claimed after the end")
}

func recordTwice(t *trial) {
	e := t.endpoint()
	id := t.send(e, 1, at(0))[0]
	l := t.one(t.claim(at(0)))
	r := t.recordWith(store.RecordParams{Now: at(0), Outcomes: []store.Outcome{again(l, at(time.Minute)), delivered(l)}})
	t.same(r.Stale, []int64{id}, "Stale of the second outcome")
	r = t.recordWith(store.RecordParams{Now: at(0), Outcomes: []store.Outcome{delivered(l)}})
	t.same(r.Stale, []int64{id}, "Stale of the third outcome")
	d := t.delivery(id)
	t.same(d.Status, store.StatusPending, "Status")
	t.same(d.Attempts, 1, "Attempts")
	t.same(len(t.attempts(id)), 1, "attempt rows")
}

func recordConcurrent(t *trial) {
	e := t.endpoint()
	id := t.send(e, 1, at(0))[0]
	l := t.one(t.claim(at(0)))
	const callers = 20
	stale := make([]int, callers)
	for _, err := range together(callers, func(i int) error {
		o := delivered(l)
		o.Attempt.StartedAt = at(0)
		r, err := t.st.Record(t.ctx, store.RecordParams{Now: at(0), Outcomes: []store.Outcome{o}})
		stale[i] = len(r.Stale)
		return err
	}) {
		t.must(err, "Record")
	}
	lost := 0
	for _, n := range stale {
		lost += n
	}
	t.same(lost, callers-1, "how many were stale")
	t.same(t.delivery(id).TotalAttempts, 1, "TotalAttempts")
	t.same(len(t.attempts(id)), 1, "attempt rows")
}

func recordClaim(t *trial) {
	e := t.endpoint()
	sent := t.send(e, 3, at(0))
	first := t.lease(at(0))
	first.Room.Limit = 2
	leases := t.exactly(2, t.claimWith(at(0), first).Leases)

	params := func(now time.Time, outcomes ...store.Outcome) store.RecordParams {
		return store.RecordParams{
			Now: now, Outcomes: outcomes,
			Claim: &store.ClaimParams{Now: now, LeaseParams: t.lease(now)},
		}
	}
	r := t.recordWith(params(at(time.Second), delivered(leases[0]), again(leases[1], at(time.Minute))))
	got := t.one(r.Claim.Leases)
	t.same(got.DeliveryID, sent[2], "claimed with the record")
	if got.Target == nil || got.Target.EndpointID != e.ID || got.Payload == nil {
		t.failf("the lease claimed with the record lacks its Target or Payload")
	}
	t.same(t.claimWith(at(2*time.Second), t.lease(at(2*time.Second))).NextDue, got.Until, "NextDue after it")

	// What the record made due is claimed with it, stale outcomes or not.
	r = t.recordWith(params(at(3*time.Second), again(got, at(3*time.Second)), delivered(leases[0])))
	t.same(r.Stale, []int64{sent[0]}, "Stale")
	t.same(ids(r.Claim.Leases), sent[2:], "claimed again at once")
	t.same(r.Claim.Leases[0].TotalAttempts, 1, "TotalAttempts of that lease")
	t.same(r.Queued, false, "Queued")

	r = t.recordWith(params(at(4*time.Second), delivered(r.Claim.Leases[0])))
	t.same(len(r.Claim.Leases), 0, "leases when nothing is due")
	t.same(r.Claim.NextDue, at(time.Minute), "NextDue of the claim in Record")

	r = t.recordWith(params(at(time.Minute)))
	t.same(ids(r.Claim.Leases), sent[1:2], "claimed without outcomes")
}

func recordQueued(t *trial) {
	e := t.endpoint()
	t.sendKeyed(e, "a", 5, at(0))
	queued := func(want bool, when string, p store.RecordParams) store.RecordResult {
		r := t.recordWith(p)
		t.same(r.Stale, []int64(nil), "Stale when %s", when)
		t.same(r.Queued, want, "Queued when %s", when)
		return r
	}
	outcome := func(now time.Time, o store.Outcome) store.RecordParams {
		return store.RecordParams{Now: now, Outcomes: []store.Outcome{o}}
	}
	claiming := func(now time.Time, o store.Outcome, limit int) store.RecordParams {
		p := outcome(now, o)
		p.Claim = &store.ClaimParams{Now: now, LeaseParams: t.lease(now)}
		p.Claim.Room.Limit = limit
		return p
	}

	// What an ordering key held back.
	first := func() store.Lease { return t.one(t.claim(at(0))) }
	queued(true, "the next of the key became due", outcome(at(0), delivered(first())))
	queued(true, "the next of the key became due, and the claim had no room for it", claiming(at(0), failed(first()), 0))
	r := queued(false, "the next of the key was claimed with it", claiming(at(0), delivered(first()), plenty))
	queued(false, "one that blocks the next is to be attempted again later",
		outcome(at(0), again(t.one(r.Claim.Leases), at(time.Minute))))
	l := t.one(t.claim(at(time.Minute)))
	queued(true, "one that blocks the next is to be attempted again at once", outcome(at(time.Minute), again(l, at(time.Minute))))
	l = t.one(t.claim(at(time.Minute)))
	queued(true, "the last but one of the key ended", outcome(at(time.Minute), delivered(l)))
	queued(false, "the last of the key ended", outcome(at(time.Minute), delivered(t.one(t.claim(at(time.Minute))))))

	// What is to be attempted again.
	t.send(e, 2, at(time.Hour))
	leases := t.exactly(2, t.claim(at(time.Hour)))
	queued(false, "a delivery is due again a millisecond later",
		outcome(at(time.Hour), again(leases[0], at(time.Hour+time.Millisecond))))
	queued(true, "a delivery is due again at once", outcome(at(time.Hour), again(leases[1], at(time.Hour))))
	l = t.one(t.claim(at(time.Hour)))
	queued(false, "a delivery ended while another is due later", outcome(at(time.Hour), delivered(l)))
	l = t.one(t.claim(at(2 * time.Hour)))
	t.send(e, 1, at(2*time.Hour))
	queued(false, "a delivery ended while one was due before", outcome(at(2*time.Hour), delivered(l)))
	t.one(t.claim(at(2 * time.Hour)))

	// The next of a key that is due later only, and one at a paused endpoint.
	t.sendKeyed(e, "b", 1, at(2*time.Hour))
	t.sendKeyed(e, "b", 1, at(3*time.Hour))
	l = t.one(t.claim(at(2 * time.Hour)))
	queued(false, "the next of the key is due later", outcome(at(2*time.Hour), delivered(l)))
	t.sendKeyed(e, "c", 2, at(2*time.Hour))
	l = t.one(t.claim(at(2 * time.Hour)))
	t.pause(e, true)
	queued(false, "the next of the key became due at a paused endpoint", outcome(at(2*time.Hour), delivered(l)))
}
