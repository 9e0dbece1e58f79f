package crashtest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/elido-app/webhook/store"
)

// watched is the store as a child sees it. It writes down what is recorded, dies
// at the points it is told, and sets the clock: an instant on its way to the
// store is ahead of what the child meant, one on its way back is not.
type watched struct {
	store.Store
	fuse    *fuse
	journal *journal
	ahead   time.Duration
	first   sync.Once
	asked   chan struct{} // closed when the store was asked for work

	mu       sync.Mutex
	attempts map[int64]int // numbers of the attempts made last, by delivery
}

func (w *watched) later(t time.Time) time.Time { return shift(t, w.ahead) }

func (w *watched) sooner(t time.Time) time.Time { return shift(t, -w.ahead) }

func shift(t time.Time, by time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(by)
}

func (w *watched) attempting(delivery int64, attempt int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts[delivery] = attempt
}

func (w *watched) attempt(delivery int64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.attempts[delivery]
}

// given is told of leases, on their way to the child.
func (w *watched) given(leases []store.Lease) []store.Lease {
	targets := map[*store.Target]*store.Target{}
	for i := range leases {
		l := &leases[i]
		l.Until, l.CreatedAt, l.DueAt = w.sooner(l.Until), w.sooner(l.CreatedAt), w.sooner(l.DueAt)
		t := targets[l.Target]
		if t == nil {
			here := *l.Target
			here.Secrets.PreviousUntil = w.sooner(here.Secrets.PreviousUntil)
			t = &here
			targets[l.Target] = t
		}
		l.Target = t
	}
	if len(leases) > 0 {
		w.fuse.reached(pointClaimed)
	}
	return leases
}

func (w *watched) claiming(p *store.ClaimParams) *store.ClaimParams {
	if p == nil {
		return nil
	}
	there := *p
	there.Now, there.Until = w.later(p.Now), w.later(p.Until)
	return &there
}

func (w *watched) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	r, err := w.publish(ctx, w.Store, p)
	if err == nil {
		w.fuse.reached(pointPublished)
		r.Leases = w.given(r.Leases)
	}
	return r, err
}

// publish is Publish in a transaction of the host's, which is nobody's yet.
func (w *watched) publish(ctx context.Context, to store.Publisher, p store.PublishParams) (store.PublishResult, error) {
	p.Now = w.later(p.Now)
	if p.Handoff != nil {
		there := *p.Handoff
		there.Until = w.later(there.Until)
		p.Handoff = &there
	}
	return to.Publish(ctx, p)
}

func (w *watched) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	r, err := w.Store.Claim(ctx, *w.claiming(&p))
	r.Leases, r.NextDue = w.given(r.Leases), w.sooner(r.NextDue)
	return r, err
}

func (w *watched) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	w.fuse.reached(pointRecording)
	there := p
	there.Now, there.Claim = w.later(p.Now), w.claiming(p.Claim)
	there.Outcomes = slices.Clone(p.Outcomes)
	for i := range there.Outcomes {
		o := &there.Outcomes[i]
		o.NextAttemptAt, o.Attempt.StartedAt = w.later(o.NextAttemptAt), w.later(o.Attempt.StartedAt)
	}
	r, err := w.Store.Record(ctx, there)
	if err != nil {
		return r, err
	}
	w.fuse.reached(pointRecorded)
	for i := range p.Outcomes {
		o := &p.Outcomes[i]
		e := entry{Did: didRecord, Delivery: o.DeliveryID, Attempt: w.attempt(o.DeliveryID), Status: o.Attempt.Status}
		if slices.Contains(r.Stale, o.DeliveryID) {
			e.Did = didDrop
		}
		w.journal.write(e)
	}
	r.Claim.Leases, r.Claim.NextDue = w.given(r.Claim.Leases), w.sooner(r.Claim.NextDue)
	return r, nil
}

func (w *watched) Renew(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
	return w.Store.Renew(ctx, leases, w.later(until))
}

func (w *watched) Release(ctx context.Context, releases []store.Release) error {
	there := slices.Clone(releases)
	for i := range there {
		there[i].DueAt = w.later(there[i].DueAt)
	}
	return w.Store.Release(ctx, there)
}

func (w *watched) Probe(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
	r, err := w.Store.Probe(ctx, p)
	r.NextDue = w.sooner(r.NextDue)
	w.first.Do(func() { close(w.asked) })
	return r, err
}

func (w *watched) Retry(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
	p.Now = w.later(p.Now)
	return w.Store.Retry(ctx, p)
}

func (w *watched) RotateSecret(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
	p.At, p.PreviousUntil = w.later(p.At), w.later(p.PreviousUntil)
	return w.Store.RotateSecret(ctx, p)
}

func (w *watched) Maintain(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
	p.Now, p.PruneBefore, p.ForgetKeysBefore = w.later(p.Now), w.later(p.PruneBefore), w.later(p.ForgetKeysBefore)
	r, err := w.Store.Maintain(ctx, p)
	r.NextEnd = w.sooner(r.NextEnd)
	return r, err
}

// inTx is a publisher in a transaction of the host's.
type inTx struct {
	*watched
	tx store.Publisher
}

func (t inTx) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	return t.publish(ctx, t.tx, p)
}
