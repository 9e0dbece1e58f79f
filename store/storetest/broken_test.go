package storetest_test

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/elido-app/webhook/store"
)

// broken is a good store with methods that can be replaced by bad ones.
type broken struct {
	good store.Store
	mu   sync.Mutex // for what bad methods remember

	publish    func(context.Context, store.PublishParams) (store.PublishResult, error)
	create     func(context.Context, store.CreateEndpointParams) (store.Endpoint, error)
	endpoint   func(ctx context.Context, workspaceID, id int64) (store.Endpoint, error)
	endpoints  func(context.Context, store.EndpointFilter) ([]store.Endpoint, error)
	update     func(context.Context, store.Endpoint, *store.Sealed) (store.Endpoint, error)
	rotate     func(context.Context, store.RotateParams) (store.Endpoint, error)
	secrets    func(context.Context, store.SecretsFilter) ([]store.EndpointSecrets, error)
	reseal     func(context.Context, []store.EndpointSecrets) ([]int64, error)
	remove     func(ctx context.Context, workspaceID, id int64, at time.Time) error
	claim      func(context.Context, store.ClaimParams) (store.ClaimResult, error)
	record     func(context.Context, store.RecordParams) (store.RecordResult, error)
	renew      func(context.Context, []store.LeaseRef, time.Time) ([]int64, error)
	release    func(context.Context, []store.Release) error
	probe      func(context.Context, store.ProbeParams) (store.ProbeResult, error)
	deliveries func(context.Context, store.DeliveryFilter) ([]store.Delivery, error)
	delivery   func(ctx context.Context, workspaceID, id int64) (store.Delivery, error)
	attempts   func(ctx context.Context, workspaceID, deliveryID int64) ([]store.Attempt, error)
	retry      func(context.Context, store.RetryParams) (store.Delivery, error)
	recover    func(context.Context, store.RecoverParams) (int, error)
	maintain   func(context.Context, store.MaintainParams) (store.MaintainResult, error)
	end        func() error
}

// unbroken returns a store that is good so far.
func unbroken(good store.Store) *broken {
	return &broken{
		good: good, publish: good.Publish, create: good.CreateEndpoint, endpoint: good.Endpoint, endpoints: good.Endpoints,
		update: good.UpdateEndpoint, rotate: good.RotateSecret, secrets: good.Secrets, reseal: good.Reseal,
		remove: good.DeleteEndpoint, claim: good.Claim, record: good.Record, renew: good.Renew, release: good.Release,
		probe: good.Probe, deliveries: good.Deliveries, delivery: good.Delivery, attempts: good.Attempts,
		retry: good.Retry, recover: good.Recover, maintain: good.Maintain, end: good.Close,
	}
}

func (b *broken) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	return b.publish(ctx, p)
}

func (b *broken) CreateEndpoint(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
	return b.create(ctx, p)
}

func (b *broken) Endpoint(ctx context.Context, workspaceID, id int64) (store.Endpoint, error) {
	return b.endpoint(ctx, workspaceID, id)
}

func (b *broken) Endpoints(ctx context.Context, f store.EndpointFilter) ([]store.Endpoint, error) {
	return b.endpoints(ctx, f)
}

func (b *broken) UpdateEndpoint(ctx context.Context, e store.Endpoint, c *store.Sealed) (store.Endpoint, error) {
	return b.update(ctx, e, c)
}

func (b *broken) RotateSecret(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
	return b.rotate(ctx, p)
}

func (b *broken) Secrets(ctx context.Context, f store.SecretsFilter) ([]store.EndpointSecrets, error) {
	return b.secrets(ctx, f)
}

func (b *broken) Reseal(ctx context.Context, list []store.EndpointSecrets) ([]int64, error) {
	return b.reseal(ctx, list)
}

func (b *broken) DeleteEndpoint(ctx context.Context, workspaceID, id int64, at time.Time) error {
	return b.remove(ctx, workspaceID, id, at)
}

func (b *broken) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	return b.claim(ctx, p)
}

func (b *broken) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	return b.record(ctx, p)
}

func (b *broken) Renew(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
	return b.renew(ctx, leases, until)
}

func (b *broken) Release(ctx context.Context, releases []store.Release) error {
	return b.release(ctx, releases)
}

func (b *broken) Probe(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
	return b.probe(ctx, p)
}

func (b *broken) Deliveries(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
	return b.deliveries(ctx, f)
}

func (b *broken) Delivery(ctx context.Context, workspaceID, id int64) (store.Delivery, error) {
	return b.delivery(ctx, workspaceID, id)
}

func (b *broken) Attempts(ctx context.Context, workspaceID, id int64) ([]store.Attempt, error) {
	return b.attempts(ctx, workspaceID, id)
}

func (b *broken) Retry(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
	return b.retry(ctx, p)
}

func (b *broken) Recover(ctx context.Context, p store.RecoverParams) (int, error) {
	return b.recover(ctx, p)
}

func (b *broken) Maintain(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
	return b.maintain(ctx, p)
}

func (b *broken) Close() error { return b.end() }

// await lets others go first, until something happened or nothing does.
func await(happened func() bool) {
	for range 20_000 {
		if happened() {
			return
		}
		runtime.Gosched()
	}
}

// seen notes the leases that are given.
type seen struct {
	until map[store.LeaseRef]time.Time
	token map[int64]int64 // the last one, by delivery
}

// watch makes b note what it leases.
func watch(b *broken) *seen {
	s := &seen{map[store.LeaseRef]time.Time{}, map[int64]int64{}}
	note := func(leases []store.Lease) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i := range leases {
			s.until[leases[i].Ref()] = leases[i].Until
			s.token[leases[i].DeliveryID] = leases[i].Token
		}
	}
	claim, publish := b.claim, b.publish
	b.claim = func(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
		r, err := claim(ctx, p)
		note(r.Leases)
		return r, err
	}
	b.publish = func(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
		r, err := publish(ctx, p)
		note(r.Leases)
		return r, err
	}
	return s
}

// last returns a reference with the last token of its delivery.
func (s *seen) last(r store.LeaseRef) store.LeaseRef {
	if token := s.token[r.DeliveryID]; token != 0 {
		r.Token = token
	}
	return r
}

// everywhere looks for a thing in all workspaces that cases use.
func everywhere[T any](workspaceID int64, find func(workspaceID int64) (T, error)) (T, error) {
	found, err := find(workspaceID)
	for _, other := range []int64{42, 43} {
		if err != nil {
			found, err = find(other)
		}
	}
	return found, err
}
