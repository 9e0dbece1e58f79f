package webhook_test

import (
	"context"
	"time"

	"github.com/elido-app/webhook/store"
)

// before lets faults happen to a store call that begins.
func (p *party) before(ctx context.Context) (mishap, error) {
	p.m.mu.Lock()
	now := time.Now()
	var f mishap
	switch {
	case p.dead:
		p.m.mu.Unlock()
		return f, errDead
	case now.Before(p.outage.until):
		f.fail = true
		if p.outage.hangs {
			f = mishap{wait: p.outage.until.Sub(now)}
		}
	case len(p.plan) > 0:
		f, p.plan = p.plan[0], p.plan[1:]
		if f != (mishap{}) {
			p.trouble(now, now.Add(f.wait+f.delay))
			p.m.stats.faults++
		}
	}
	p.m.mu.Unlock()
	if err := p.wait(ctx, f.wait); err != nil {
		return f, err
	}
	if f.fail {
		return f, errFailed
	}
	return f, nil
}

func (p *party) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	case <-p.death:
		return errDead
	}
}

// changing makes a store call that changes something.
func changing[T any](ctx context.Context, p *party, call func() (T, error)) (T, error) {
	var none T
	f, err := p.before(ctx)
	if err != nil {
		return none, err
	}
	v, err := call()
	if err != nil {
		return none, err
	}
	if err := p.wait(ctx, f.delay); err != nil || f.lose {
		return none, errLost
	}
	return v, nil
}

// looking makes a store call that changes nothing.
func looking[T any](ctx context.Context, p *party, call func() (T, error)) (T, error) {
	var none T
	f, err := p.before(ctx)
	if err != nil {
		return none, err
	}
	v, err := call()
	if err != nil {
		return none, err
	}
	if err := p.wait(ctx, f.delay); err != nil || f.lose {
		return none, errFailed
	}
	return v, nil
}

// A brittle is the store as a party sees it.
type brittle struct{ p *party }

var _ store.Store = brittle{}

func (s brittle) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	return changing(ctx, s.p, func() (store.PublishResult, error) { return s.p.inner.Publish(ctx, p) })
}

func (s brittle) CreateEndpoint(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
	return changing(ctx, s.p, func() (store.Endpoint, error) { return s.p.inner.CreateEndpoint(ctx, p) })
}

func (s brittle) Endpoint(ctx context.Context, workspaceID, id int64) (store.Endpoint, error) {
	return looking(ctx, s.p, func() (store.Endpoint, error) { return s.p.inner.Endpoint(ctx, workspaceID, id) })
}

func (s brittle) Endpoints(ctx context.Context, f store.EndpointFilter) ([]store.Endpoint, error) {
	return looking(ctx, s.p, func() ([]store.Endpoint, error) { return s.p.inner.Endpoints(ctx, f) })
}

func (s brittle) UpdateEndpoint(ctx context.Context, e store.Endpoint, credentials *store.Sealed) (store.Endpoint, error) {
	return changing(ctx, s.p, func() (store.Endpoint, error) { return s.p.inner.UpdateEndpoint(ctx, e, credentials) })
}

func (s brittle) RotateSecret(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
	return changing(ctx, s.p, func() (store.Endpoint, error) { return s.p.inner.RotateSecret(ctx, p) })
}

func (s brittle) DeleteEndpoint(ctx context.Context, workspaceID, id int64, at time.Time) error {
	_, err := changing(ctx, s.p, func() (struct{}, error) {
		return struct{}{}, s.p.inner.DeleteEndpoint(ctx, workspaceID, id, at)
	})
	return err
}

func (s brittle) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	return changing(ctx, s.p, func() (store.ClaimResult, error) { return s.p.inner.Claim(ctx, p) })
}

func (s brittle) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	return changing(ctx, s.p, func() (store.RecordResult, error) { return s.p.inner.Record(ctx, p) })
}

func (s brittle) Renew(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
	return changing(ctx, s.p, func() ([]int64, error) { return s.p.inner.Renew(ctx, leases, until) })
}

func (s brittle) Release(ctx context.Context, releases []store.Release) error {
	_, err := changing(ctx, s.p, func() (struct{}, error) { return struct{}{}, s.p.inner.Release(ctx, releases) })
	return err
}

func (s brittle) Probe(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
	return looking(ctx, s.p, func() (store.ProbeResult, error) { return s.p.inner.Probe(ctx, p) })
}

func (s brittle) Deliveries(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
	return looking(ctx, s.p, func() ([]store.Delivery, error) { return s.p.inner.Deliveries(ctx, f) })
}

func (s brittle) Delivery(ctx context.Context, workspaceID, id int64) (store.Delivery, error) {
	return looking(ctx, s.p, func() (store.Delivery, error) { return s.p.inner.Delivery(ctx, workspaceID, id) })
}

func (s brittle) Attempts(ctx context.Context, workspaceID, deliveryID int64) ([]store.Attempt, error) {
	return looking(ctx, s.p, func() ([]store.Attempt, error) { return s.p.inner.Attempts(ctx, workspaceID, deliveryID) })
}

func (s brittle) Retry(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
	return changing(ctx, s.p, func() (store.Delivery, error) { return s.p.inner.Retry(ctx, p) })
}

func (s brittle) Recover(ctx context.Context, p store.RecoverParams) (int, error) {
	return changing(ctx, s.p, func() (int, error) { return s.p.inner.Recover(ctx, p) })
}

func (s brittle) Maintain(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
	return changing(ctx, s.p, func() (store.MaintainResult, error) { return s.p.inner.Maintain(ctx, p) })
}

func (s brittle) Close() error { return s.p.inner.Close() }
