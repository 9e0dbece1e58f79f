package webhook_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

// A hostClock is the wall clock of one host: the time of the bubble and how far
// off that it is, which a step changes. Timers, as everywhere, do not notice
// steps. Every instant that the host's processes read from a store, or write
// into it, goes through their clock.
type hostClock struct {
	mu     sync.Mutex
	steps  []clockStep    // in order of time
	leases []*store.Lease // handed out; their end is an instant of this clock
}

type clockStep struct {
	at     time.Time
	offset time.Duration // from then on
}

// offset is how far off the clock was at an instant.
func (c *hostClock) offset(at time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range slices.Backward(c.steps) {
		if !at.Before(s.at) {
			return s.offset
		}
	}
	return 0
}

// offsets are those the clock has had since an instant.
func (c *hostClock) offsets(since time.Time) []time.Duration {
	offsets := []time.Duration{c.offset(since)}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.steps {
		if s.at.After(since) {
			offsets = append(offsets, s.offset)
		}
	}
	return offsets
}

// stepped is when the clock was last set.
func (c *hostClock) stepped() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.steps); n > 0 {
		return c.steps[n-1].at
	}
	return time.Time{}
}

// step sets the clock forward, or back. Nothing may be moving. Of the host's
// process, if it runs, it needs the Dispatcher.
func (c *hostClock) step(by time.Duration, running *webhook.Dispatcher) {
	synctest.Wait()
	now := time.Now()
	offset := c.offset(now) + by
	c.mu.Lock()
	c.steps = append(c.steps, clockStep{now, offset})
	for _, l := range c.leases { // what is held in memory is read by the new clock
		l.Until = l.Until.Add(-by)
	}
	c.mu.Unlock()
	if running != nil {
		// A second Run fails, but takes the queue's lock before: who takes it from
		// now on reads the new ends, and the race detector knows.
		if err := running.Run(context.Background()); !errors.Is(err, webhook.ErrRunning) {
			panic(err)
		}
	}
}

// showed is what the clock showed at an instant: what somebody read off it then.
func (c *hostClock) showed(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(c.offset(at))
}

// wall is an instant by the clock as it is now: what somebody reckons from it.
func (c *hostClock) wall(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(c.offset(time.Now()))
}

// when undoes wall.
func (c *hostClock) when(wall time.Time) time.Time {
	if wall.IsZero() {
		return wall
	}
	return wall.Add(-c.offset(time.Now()))
}

// A timed is a store as a process sees it on a host with a clock of its own.
type timed struct {
	store.Store
	clock *hostClock
}

var _ store.Store = timed{}

func (s timed) lease(p store.LeaseParams) store.LeaseParams {
	p.Until = s.clock.wall(p.Until)
	return p
}

func (s timed) leased(list []store.Lease) {
	for i := range list {
		l := &list[i]
		l.Until, l.CreatedAt, l.DueAt = s.clock.when(l.Until), s.clock.when(l.CreatedAt), s.clock.when(l.DueAt)
		target := *l.Target
		target.Secrets.PreviousUntil = s.clock.when(target.Secrets.PreviousUntil)
		l.Target = &target
	}
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	for i := range list {
		s.clock.leases = append(s.clock.leases, &list[i])
	}
}

func (s timed) endpoint(e store.Endpoint, err error) (store.Endpoint, error) {
	return shiftEndpoint(e, s.clock.when), err
}

func shiftEndpoint(e store.Endpoint, by func(time.Time) time.Time) store.Endpoint {
	for _, t := range []*time.Time{&e.CreatedAt, &e.UpdatedAt, &e.PreviousUntil, &e.Health.FailedAt, &e.Health.DegradedUntil} {
		*t = by(*t)
	}
	return e
}

func (s timed) delivery(d store.Delivery, err error) (store.Delivery, error) {
	for _, t := range []*time.Time{&d.CreatedAt, &d.CompletedAt, &d.NextAttemptAt} {
		*t = s.clock.when(*t)
	}
	return d, err
}

func (s timed) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	p.Now = s.clock.wall(p.Now)
	if p.Handoff != nil {
		handoff := s.lease(*p.Handoff)
		p.Handoff = &handoff
	}
	r, err := s.Store.Publish(ctx, p)
	s.leased(r.Leases)
	return r, err
}

func (s timed) CreateEndpoint(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
	seal := p.Seal
	p.Endpoint = shiftEndpoint(p.Endpoint, s.clock.wall)
	p.Seal = func(id int64) (store.Secrets, error) {
		secrets, err := seal(id)
		secrets.PreviousUntil = s.clock.wall(secrets.PreviousUntil)
		return secrets, err
	}
	return s.endpoint(s.Store.CreateEndpoint(ctx, p))
}

func (s timed) Endpoint(ctx context.Context, workspaceID, id int64) (store.Endpoint, error) {
	return s.endpoint(s.Store.Endpoint(ctx, workspaceID, id))
}

func (s timed) Endpoints(ctx context.Context, f store.EndpointFilter) ([]store.Endpoint, error) {
	list, err := s.Store.Endpoints(ctx, f)
	for i := range list {
		list[i] = shiftEndpoint(list[i], s.clock.when)
	}
	return list, err
}

func (s timed) UpdateEndpoint(ctx context.Context, e store.Endpoint, credentials *store.Sealed) (store.Endpoint, error) {
	return s.endpoint(s.Store.UpdateEndpoint(ctx, shiftEndpoint(e, s.clock.wall), credentials))
}

func (s timed) RotateSecret(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
	p.PreviousUntil, p.At = s.clock.wall(p.PreviousUntil), s.clock.wall(p.At)
	return s.endpoint(s.Store.RotateSecret(ctx, p))
}

func (s timed) DeleteEndpoint(ctx context.Context, workspaceID, id int64, at time.Time) error {
	return s.Store.DeleteEndpoint(ctx, workspaceID, id, s.clock.wall(at))
}

func (s timed) claim(p store.ClaimParams) store.ClaimParams {
	p.Now, p.LeaseParams = s.clock.showed(p.Now), s.lease(p.LeaseParams)
	return p
}

func (s timed) claimed(r *store.ClaimResult) {
	s.leased(r.Leases)
	r.NextDue = s.clock.when(r.NextDue)
}

func (s timed) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	r, err := s.Store.Claim(ctx, s.claim(p))
	s.claimed(&r)
	return r, err
}

func (s timed) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	p.Now = s.clock.showed(p.Now)
	p.Outcomes = slices.Clone(p.Outcomes)
	for i := range p.Outcomes {
		o := &p.Outcomes[i]
		if !o.NextAttemptAt.IsZero() { // reckoned when the answer was there
			o.NextAttemptAt = o.NextAttemptAt.Add(s.clock.offset(o.Attempt.StartedAt.Add(o.Attempt.Latency)))
		}
		o.Attempt.StartedAt = s.clock.showed(o.Attempt.StartedAt)
	}
	if p.Claim != nil {
		claim := s.claim(*p.Claim)
		p.Claim = &claim
	}
	r, err := s.Store.Record(ctx, p)
	s.claimed(&r.Claim)
	for i := range r.Changes {
		h := &r.Changes[i].Health
		h.FailedAt, h.DegradedUntil = s.clock.when(h.FailedAt), s.clock.when(h.DegradedUntil)
	}
	return r, err
}

func (s timed) Renew(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
	end := s.clock.wall(until)
	lost, err := s.Store.Renew(ctx, leases, end)
	if err == nil && !s.clock.wall(until).Equal(end) {
		// The caller is about to take until for an instant of the clock as it is
		// now, which nobody can take back.
		return nil, errStepped
	}
	return lost, err
}

var errStepped = errors.New("the clock was set while leases were renewed")

func (s timed) Release(ctx context.Context, releases []store.Release) error {
	releases = slices.Clone(releases)
	for i := range releases {
		releases[i].DueAt = s.clock.wall(releases[i].DueAt)
	}
	return s.Store.Release(ctx, releases)
}

func (s timed) Probe(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
	r, err := s.Store.Probe(ctx, p)
	r.NextDue = s.clock.when(r.NextDue)
	return r, err
}

func (s timed) Deliveries(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
	f.Since, f.Until, f.Before.CreatedAt = s.clock.wall(f.Since), s.clock.wall(f.Until), s.clock.wall(f.Before.CreatedAt)
	list, err := s.Store.Deliveries(ctx, f)
	for i := range list {
		list[i], _ = s.delivery(list[i], nil)
	}
	return list, err
}

func (s timed) Delivery(ctx context.Context, workspaceID, id int64) (store.Delivery, error) {
	return s.delivery(s.Store.Delivery(ctx, workspaceID, id))
}

func (s timed) Attempts(ctx context.Context, workspaceID, deliveryID int64) ([]store.Attempt, error) {
	list, err := s.Store.Attempts(ctx, workspaceID, deliveryID)
	for i := range list {
		list[i].StartedAt = s.clock.when(list[i].StartedAt)
	}
	return list, err
}

func (s timed) Retry(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
	p.Now = s.clock.wall(p.Now)
	return s.delivery(s.Store.Retry(ctx, p))
}

func (s timed) Recover(ctx context.Context, p store.RecoverParams) (int, error) {
	p.Since, p.Now = s.clock.wall(p.Since), s.clock.showed(p.Now)
	return s.Store.Recover(ctx, p)
}

func (s timed) Maintain(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
	p.Now, p.PruneBefore, p.ForgetKeysBefore = s.clock.wall(p.Now), s.clock.wall(p.PruneBefore), s.clock.wall(p.ForgetKeysBefore)
	r, err := s.Store.Maintain(ctx, p)
	r.NextEnd = s.clock.when(r.NextEnd)
	return r, err
}
