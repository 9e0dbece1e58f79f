package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
)

// A fault is what may happen to a store call.
type fault string

// The faults there are. A call that changes nothing has no outcome to be unsure
// of, so what happens after it is all the same.
const (
	refuses      fault = "refuses"               // it fails and has no effect
	losesAnswer  fault = "loses the answer"      // it takes effect, and nobody knows
	failsAfter   fault = "fails after the fact"  // it takes effect, and says that it failed
	waits        fault = "waits"                 // it begins late
	delays       fault = "delays the answer"     // it returns late
	panicsBefore fault = "panics"                // it has no effect
	panicsAfter  fault = "panics after the fact" // it takes effect
)

var storeFaults = []fault{refuses, losesAnswer, failsAfter, waits, delays, panicsBefore, panicsAfter}

// storeCalls are the calls that a Dispatcher makes.
var storeCalls = []string{
	"Publish", "CreateEndpoint", "Endpoint", "Endpoints", "UpdateEndpoint", "RotateSecret", "DeleteEndpoint",
	"Claim", "Record", "Renew", "Release", "Probe", "Deliveries", "Delivery", "Attempts", "Retry", "Recover", "Maintain",
}

// everyFault lists all that may go wrong, as it is counted.
func everyFault() (list []string) {
	for _, call := range storeCalls {
		for _, f := range storeFaults {
			list = append(list, call+" "+string(f))
		}
	}
	for kind := range connections {
		list = append(list, "receiver "+kind)
	}
	return list
}

func TestTheMachineBreaksEveryStoreCall(t *testing.T) {
	var calls []string
	for m := range reflect.TypeFor[store.Store]().Methods() {
		switch m.Name {
		case "Close":
		case "Secrets", "Reseal": // Reencrypt's, which has tests of its own
		default:
			calls = append(calls, m.Name)
		}
	}
	require.ElementsMatch(t, calls, storeCalls)
}

// A mishap is a fault of one store call.
type mishap struct {
	fault
	time time.Duration // of those that take some
}

var (
	errFailed = errors.New("injected: the store refuses")
	errLost   = fmt.Errorf("injected: %w", store.ErrOutcomeUnknown)
	errAfter  = errors.New("injected: the store failed after the fact")
	errDead   = errors.New("injected: the process is dead")
)

// next says what happens to a store call that begins.
func (p *party) next(call string) (mishap, error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	now := time.Now()
	var f mishap
	switch aimed := p.aimed[call]; {
	case p.dead:
		return f, errDead
	case now.Before(p.outage.until):
		if p.outage.hangs {
			return mishap{waits, p.outage.until.Sub(now)}, nil
		}
		return mishap{fault: refuses}, nil
	case len(aimed) > 0:
		f, p.aimed[call] = aimed[0], aimed[1:]
	case len(p.plan) > 0:
		f, p.plan = p.plan[0], p.plan[1:]
	}
	if f.fault != "" {
		p.trouble(now, now.Add(f.time))
		p.m.stats.faults[call+" "+string(f.fault)]++
		p.m.tracef("%s: %s %s %v", p.name, call, f.fault, f.time)
	}
	return f, nil
}

// wait lets time pass, unless the call or the process ends before.
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
func changing[T any](ctx context.Context, p *party, call string, do func() (T, error)) (T, error) {
	return faultily(ctx, p, call, errLost, errAfter, do)
}

// looking makes a store call that changes nothing, so that it may always be said
// to have failed.
func looking[T any](ctx context.Context, p *party, call string, do func() (T, error)) (T, error) {
	return faultily(ctx, p, call, errFailed, errFailed, do)
}

// faultily makes a store call with what happens to it. An error is lost or after,
// and a panic is one of after, where the call has taken effect.
func faultily[T any](ctx context.Context, p *party, call string, lost, after error, do func() (T, error)) (T, error) {
	var none T
	f, err := p.next(call)
	if err != nil {
		return none, err
	}
	switch f.fault {
	case refuses:
		return none, errFailed
	case panicsBefore:
		panic(errFailed)
	case waits:
		err = p.wait(ctx, f.time)
	default:
		err = ctx.Err()
	}
	if err != nil {
		return none, err
	}
	v, err := do()
	if err != nil {
		return none, err
	}
	switch f.fault {
	case losesAnswer:
		return none, lost
	case failsAfter:
		return none, after
	case panicsAfter:
		panic(after)
	case delays:
		err = p.wait(ctx, f.time)
	default:
		err = p.wait(ctx, 0)
	}
	if err != nil {
		return none, lost
	}
	return v, nil
}

// contained makes a call of the Dispatcher's in which the store may panic, as a
// host would whose handlers are protected.
func contained(call func() error) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		injected, ok := p.(error)
		if !ok || !errors.Is(injected, errFailed) && !errors.Is(injected, errAfter) {
			panic(p)
		}
		err = injected
	}()
	return call()
}

// verdict says what a call that returned err did, as far as faults explain it:
// whether it took effect, and whether its caller may know.
func verdict(err error) (applied, known bool) {
	switch {
	case err == nil:
		return true, true
	case errors.Is(err, store.ErrOutcomeUnknown), errors.Is(err, errAfter):
		return true, false
	default:
		return false, errors.Is(err, errFailed)
	}
}

// A brittle is the store as a party sees it.
type brittle struct{ p *party }

var _ store.Store = brittle{}

func (s brittle) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	r, err := changing(ctx, s.p, "Publish", func() (store.PublishResult, error) { return s.p.inner.Publish(ctx, p) })
	s.p.told(r.Leases)
	return r, err
}

func (s brittle) CreateEndpoint(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
	return changing(ctx, s.p, "CreateEndpoint", func() (store.Endpoint, error) { return s.p.inner.CreateEndpoint(ctx, p) })
}

func (s brittle) Endpoint(ctx context.Context, workspaceID, id int64) (store.Endpoint, error) {
	return looking(ctx, s.p, "Endpoint", func() (store.Endpoint, error) { return s.p.inner.Endpoint(ctx, workspaceID, id) })
}

func (s brittle) Endpoints(ctx context.Context, f store.EndpointFilter) ([]store.Endpoint, error) {
	return looking(ctx, s.p, "Endpoints", func() ([]store.Endpoint, error) { return s.p.inner.Endpoints(ctx, f) })
}

func (s brittle) UpdateEndpoint(ctx context.Context, e store.Endpoint, credentials *store.Sealed) (store.Endpoint, error) {
	return changing(ctx, s.p, "UpdateEndpoint", func() (store.Endpoint, error) { return s.p.inner.UpdateEndpoint(ctx, e, credentials) })
}

func (s brittle) RotateSecret(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
	return changing(ctx, s.p, "RotateSecret", func() (store.Endpoint, error) { return s.p.inner.RotateSecret(ctx, p) })
}

func (s brittle) Secrets(ctx context.Context, f store.SecretsFilter) ([]store.EndpointSecrets, error) {
	return looking(ctx, s.p, "Secrets", func() ([]store.EndpointSecrets, error) { return s.p.inner.Secrets(ctx, f) })
}

func (s brittle) Reseal(ctx context.Context, secrets []store.EndpointSecrets) ([]int64, error) {
	return changing(ctx, s.p, "Reseal", func() ([]int64, error) { return s.p.inner.Reseal(ctx, secrets) })
}

func (s brittle) DeleteEndpoint(ctx context.Context, workspaceID, id int64, at time.Time) error {
	_, err := changing(ctx, s.p, "DeleteEndpoint", func() (struct{}, error) {
		return struct{}{}, s.p.inner.DeleteEndpoint(ctx, workspaceID, id, at)
	})
	return err
}

func (s brittle) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	r, err := changing(ctx, s.p, "Claim", func() (store.ClaimResult, error) { return s.p.inner.Claim(ctx, p) })
	s.p.told(r.Leases)
	return r, err
}

func (s brittle) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	r, err := changing(ctx, s.p, "Record", func() (store.RecordResult, error) { return s.p.inner.Record(ctx, p) })
	s.p.told(r.Claim.Leases)
	return r, err
}

func (s brittle) Renew(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
	return changing(ctx, s.p, "Renew", func() ([]int64, error) { return s.p.inner.Renew(ctx, leases, until) })
}

func (s brittle) Release(ctx context.Context, releases []store.Release) error {
	_, err := changing(ctx, s.p, "Release", func() (struct{}, error) { return struct{}{}, s.p.inner.Release(ctx, releases) })
	return err
}

func (s brittle) Probe(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
	return looking(ctx, s.p, "Probe", func() (store.ProbeResult, error) { return s.p.inner.Probe(ctx, p) })
}

func (s brittle) Deliveries(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
	return looking(ctx, s.p, "Deliveries", func() ([]store.Delivery, error) { return s.p.inner.Deliveries(ctx, f) })
}

func (s brittle) Delivery(ctx context.Context, workspaceID, id int64) (store.Delivery, error) {
	return looking(ctx, s.p, "Delivery", func() (store.Delivery, error) { return s.p.inner.Delivery(ctx, workspaceID, id) })
}

func (s brittle) Attempts(ctx context.Context, workspaceID, deliveryID int64) ([]store.Attempt, error) {
	return looking(ctx, s.p, "Attempts", func() ([]store.Attempt, error) { return s.p.inner.Attempts(ctx, workspaceID, deliveryID) })
}

func (s brittle) Retry(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
	return changing(ctx, s.p, "Retry", func() (store.Delivery, error) { return s.p.inner.Retry(ctx, p) })
}

func (s brittle) Recover(ctx context.Context, p store.RecoverParams) (int, error) {
	return changing(ctx, s.p, "Recover", func() (int, error) { return s.p.inner.Recover(ctx, p) })
}

func (s brittle) Maintain(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
	return changing(ctx, s.p, "Maintain", func() (store.MaintainResult, error) { return s.p.inner.Maintain(ctx, p) })
}

func (s brittle) Close() error { return s.p.inner.Close() }
