package storetest

import (
	"time"

	"github.com/elido-app/webhook/store"
)

var retryCases = []Case{
	{
		"retry/fresh budget",
		"Retry re-queues a delivered or failed delivery under its own id: pending, due at Now, Attempts zero, CompletedAt zero; " +
			"attempts are numbered on.",
		check(retryRequeues),
	},
	{
		"retry/pending",
		"Retry of a pending delivery, leased or not, returns ErrPending and changes nothing.",
		check(retryPending),
	},
	{
		"retry/concurrent",
		"Of many callers at once one succeeds.",
		check(retryConcurrent),
	},
	{
		"retry/not found",
		"Retry returns ErrNotFound for a delivery that is unknown or of another workspace.",
		check(retryNotFound),
	},
	{
		"retry/paused",
		"A delivery retried at a paused endpoint waits until it is resumed.",
		check(retryPaused),
	},
}

var recoverCases = []Case{
	{
		"recover/range",
		"Recover re-queues, as Retry would, the deliveries of one endpoint that failed at or after Since and not after Now.",
		check(recoverRange),
	},
	{
		"recover/batches",
		"Recover takes up to Limit, oldest first, and returns how many.",
		check(recoverBatches),
	},
	{
		"recover/not found",
		"Recover of an endpoint that is not found is ErrNotFound.",
		check(recoverNotFound),
	},
}

func retryRequeues(t *trial) {
	e := t.endpoint()
	for _, status := range []store.Status{store.StatusDelivered, store.StatusFailed} {
		id := t.finish(e, 1, status, at(0))[0]
		want := t.delivery(id)
		got, err := t.st.Retry(t.ctx, store.RetryParams{WorkspaceID: home, DeliveryID: id, Now: at(time.Hour), Budget: 5})
		t.must(err, "Retry")
		want.Status, want.Attempts, want.Budget = store.StatusPending, 0, 5
		want.CompletedAt, want.NextAttemptAt = time.Time{}, at(time.Hour)
		want.LastStatus, want.LastLatency, want.LastError = got.LastStatus, got.LastLatency, got.LastError
		t.same(got, want, "what Retry returned")
		t.same(t.delivery(id), got, "the delivery")
		t.same(len(t.attempts(id)), 1, "attempt rows")
		t.same(t.probe(0).NextDue, at(time.Hour), "NextDue")

		t.same(ids(t.claim(at(time.Hour-time.Millisecond))), []int64(nil), "claimed before Now")
		l := t.one(t.claim(at(time.Hour)))
		t.same(l.DeliveryID, id, "the delivery claimed")
		t.same([]int{l.Attempts, l.Budget, l.TotalAttempts, l.Interruptions}, []int{0, 5, 1, 0}, "counts of the lease")
		t.record(at(time.Hour), failed(l))
		d := t.delivery(id)
		t.same([]int{d.Attempts, d.TotalAttempts}, []int{1, 2}, "counts after the next attempt")
		t.same(t.lastAttempt(id, 2).Number, 2, "Number of the next attempt")
	}
}

func retryPending(t *trial) {
	e := t.endpoint()
	id := t.send(e, 1, at(0))[0]
	refused := func(when string) {
		before := t.delivery(id)
		_, err := t.st.Retry(t.ctx, store.RetryParams{WorkspaceID: home, DeliveryID: id, Now: at(time.Hour), Budget: 9})
		t.refused(err, store.ErrPending, "Retry of a delivery that is %s", when)
		t.same(t.delivery(id), before, "the delivery that is %s", when)
	}
	refused("due")
	l := t.one(t.claim(at(0)))
	refused("leased")
	t.record(at(0), again(l, at(time.Minute)))
	refused("to be attempted again")
	t.record(at(time.Minute), failed(t.one(t.claim(at(time.Minute)))))
	t.retry(id, at(time.Hour))
	refused("retried already")
}

func retryConcurrent(t *trial) {
	e := t.endpoint()
	id := t.finish(e, 1, store.StatusFailed, at(0))[0]
	t.oneWinner(together(50, func(int) error {
		_, err := t.st.Retry(t.ctx, store.RetryParams{WorkspaceID: home, DeliveryID: id, Now: at(time.Minute), Budget: 3})
		return err
	}), store.ErrPending, "Retry")
	t.same(t.one(t.claim(at(time.Minute))).DeliveryID, id, "the delivery claimed")
}

func retryNotFound(t *trial) {
	e := t.endpoint()
	id := t.finish(e, 1, store.StatusFailed, at(0))[0]
	before := t.delivery(id)
	for _, c := range []struct{ workspace, id int64 }{{home, id + 1000}, {abroad, id}, {home, 0}} {
		_, err := t.st.Retry(t.ctx, store.RetryParams{WorkspaceID: c.workspace, DeliveryID: c.id, Now: at(0), Budget: 3})
		t.refused(err, store.ErrNotFound, "Retry")
	}
	t.same(t.delivery(id), before, "the delivery")
}

func retryPaused(t *trial) {
	e := t.endpoint()
	id := t.finish(e, 1, store.StatusFailed, at(0))[0]
	t.pause(e, true)
	t.retry(id, at(time.Minute))
	t.same(ids(t.claim(at(time.Hour))), []int64(nil), "claimed while paused")
	t.pause(e, false)
	t.same(t.one(t.claim(at(time.Hour))).DeliveryID, id, "claimed after the endpoint was resumed")
}

func (t *trial) recover(e store.Endpoint, since, now time.Time, limit int) int {
	n, err := t.st.Recover(t.ctx, store.RecoverParams{
		WorkspaceID: e.WorkspaceID, EndpointID: e.ID, Since: since, Now: now, Budget: 4, Limit: limit,
	})
	t.must(err, "Recover")
	return n
}

func recoverRange(t *trial) {
	e, other := t.endpoint(), t.endpoint()
	minute := func(n int) time.Time { return at(time.Duration(n) * time.Minute) }
	var failures []int64
	for i := range 5 {
		// Published long before: what counts is when they failed.
		failures = append(failures, t.send(e, 1, at(-time.Hour))[0])
		t.record(minute(i), failed(t.one(t.claim(minute(i)))))
	}
	t.finish(e, 1, store.StatusDelivered, minute(2))
	t.finish(other, 1, store.StatusFailed, minute(2))

	before := t.delivery(failures[2])
	ms := time.Millisecond
	t.same(t.recover(e, minute(1).Add(ms), minute(2).Add(-ms), plenty), 0, "how many were recovered between two failures")
	t.same(t.recover(e, minute(3).Add(ms), minute(1).Add(-ms), plenty), 0, "how many were recovered with Since after Now")
	t.same(t.recover(e, minute(1), minute(3), plenty), 3, "how many were recovered")
	for i, id := range failures {
		want := store.StatusFailed
		if i >= 1 && i < 4 {
			want = store.StatusPending
		}
		t.same(t.delivery(id).Status, want, "Status of the failure at minute %d", i)
	}
	want := before
	want.Status, want.Attempts, want.Budget = store.StatusPending, 0, 4
	want.CompletedAt, want.NextAttemptAt = time.Time{}, minute(3)
	got := t.delivery(before.ID)
	want.LastStatus, want.LastLatency, want.LastError = got.LastStatus, got.LastLatency, got.LastError
	t.same(got, want, "a recovered delivery")
	t.same(t.recover(e, minute(1), minute(3), plenty), 0, "how many were recovered a second time")
	leases := t.claim(minute(10))
	t.same(ids(leases), failures[1:4], "claimed afterwards")

	// Of what failed once, only what failed last counts.
	t.retry(failures[0], minute(10))
	t.same(t.recover(e, minute(0), minute(3), plenty), 0, "how many were recovered beside a manual retry")
	for _, l := range append(leases, t.claim(minute(10))...) {
		t.record(minute(11), delivered(l))
	}
	t.same(t.recover(e, minute(0), minute(60), plenty), 1, "how many were recovered after all but one were delivered")
}

func recoverBatches(t *trial) {
	e := t.endpoint()
	var sent []int64
	for i := range 5 {
		sent = append(sent, t.finish(e, 1, store.StatusFailed, at(time.Duration(i)*time.Minute))...)
	}
	now := at(time.Hour)
	for i, want := range []int{2, 2, 1, 0} {
		t.same(t.recover(e, at(0), now, 2), want, "how many were recovered by call %d", i)
		for j, id := range sent {
			status := store.StatusFailed
			if j < 2*(i+1) {
				status = store.StatusPending
			}
			t.same(t.delivery(id).Status, status, "Status of failure %d after call %d", j, i)
		}
	}

	// What fails again later is not recovered a second time.
	later := now.Add(time.Millisecond)
	for _, l := range t.claim(now) {
		t.record(later, failed(l))
	}
	t.same(t.recover(e, at(0), now, plenty), 0, "how many that failed after Now were recovered")
}

func recoverNotFound(t *trial) {
	e := t.endpoint()
	id := t.finish(e, 1, store.StatusFailed, at(0))[0]
	for _, c := range []struct{ workspace, endpoint int64 }{{home, e.ID + 1000}, {abroad, e.ID}} {
		_, err := t.st.Recover(t.ctx, store.RecoverParams{
			WorkspaceID: c.workspace, EndpointID: c.endpoint, Since: at(-time.Hour), Now: at(time.Hour), Budget: 3, Limit: 10,
		})
		t.refused(err, store.ErrNotFound, "Recover")
	}
	t.same(t.delivery(id).Status, store.StatusFailed, "Status")
}
