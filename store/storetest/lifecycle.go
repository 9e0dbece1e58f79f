package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/elido-app/webhook/store"
)

var lifecycleCases = []Case{
	{
		"lifecycle/canceled",
		"A call whose context is canceled returns an error and stores nothing.",
		check(lifecycleCanceled),
	},
	{
		"lifecycle/concurrent",
		"All methods are safe for concurrent use.",
		check(lifecycleConcurrent),
	},
	{
		"lifecycle/closed",
		"Calls after Close, another Close included, return ErrClosed.",
		check(lifecycleClosed),
	},
}

// everyCall calls each method in a way that would succeed.
func (t *trial) everyCall(e store.Endpoint, done, leased store.Lease) map[string]func(context.Context) error {
	lease, fresh := t.lease(at(time.Hour)), t.keyedEvent(home, "new", 1)
	return map[string]func(context.Context) error{
		"Publish": func(ctx context.Context) error {
			_, err := t.st.Publish(ctx, store.PublishParams{Events: []store.NewEvent{fresh}, Now: at(time.Hour)})
			return err
		},
		"CreateEndpoint": func(ctx context.Context) error {
			_, err := t.st.CreateEndpoint(ctx, store.CreateEndpointParams{Endpoint: draft(home), Seal: seal})
			return err
		},
		"Endpoint": func(ctx context.Context) error {
			_, err := t.st.Endpoint(ctx, home, e.ID)
			return err
		},
		"Endpoints": func(ctx context.Context) error {
			_, err := t.st.Endpoints(ctx, store.EndpointFilter{WorkspaceID: home})
			return err
		},
		"UpdateEndpoint": func(ctx context.Context) error {
			_, err := t.st.UpdateEndpoint(ctx, e, nil)
			return err
		},
		"RotateSecret": func(ctx context.Context) error {
			_, err := t.st.RotateSecret(ctx, rotation(e, sealed("x"), at(time.Hour)))
			return err
		},
		"Secrets": func(ctx context.Context) error {
			_, err := t.st.Secrets(ctx, store.SecretsFilter{})
			return err
		},
		"Reseal": func(ctx context.Context) error {
			_, err := t.st.Reseal(ctx, []store.EndpointSecrets{{WorkspaceID: home, EndpointID: e.ID, Revision: e.Revision}})
			return err
		},
		"DeleteEndpoint": func(ctx context.Context) error {
			return t.st.DeleteEndpoint(ctx, home, e.ID, at(time.Hour))
		},
		"Claim": func(ctx context.Context) error {
			_, err := t.st.Claim(ctx, store.ClaimParams{Now: at(time.Hour), LeaseParams: lease})
			return err
		},
		"Record": func(ctx context.Context) error {
			_, err := t.st.Record(ctx, store.RecordParams{Now: at(time.Hour), Outcomes: []store.Outcome{delivered(leased)}})
			return err
		},
		"Renew": func(ctx context.Context) error {
			_, err := t.st.Renew(ctx, []store.LeaseRef{leased.Ref()}, at(time.Hour))
			return err
		},
		"Release": func(ctx context.Context) error {
			return t.st.Release(ctx, []store.Release{{LeaseRef: leased.Ref(), DueAt: at(time.Hour)}})
		},
		"Probe": func(ctx context.Context) error {
			_, err := t.st.Probe(ctx, store.ProbeParams{})
			return err
		},
		"Deliveries": func(ctx context.Context) error {
			_, err := t.st.Deliveries(ctx, store.DeliveryFilter{WorkspaceID: home})
			return err
		},
		"Delivery": func(ctx context.Context) error {
			_, err := t.st.Delivery(ctx, home, done.DeliveryID)
			return err
		},
		"Attempts": func(ctx context.Context) error {
			_, err := t.st.Attempts(ctx, home, done.DeliveryID)
			return err
		},
		"Retry": func(ctx context.Context) error {
			_, err := t.st.Retry(ctx, store.RetryParams{WorkspaceID: home, DeliveryID: done.DeliveryID, Now: at(time.Hour), Budget: 3})
			return err
		},
		"Recover": func(ctx context.Context) error {
			_, err := t.st.Recover(ctx, store.RecoverParams{
				WorkspaceID: home, EndpointID: e.ID, Since: at(-time.Hour), Now: at(time.Hour), Budget: 3, Limit: 10,
			})
			return err
		},
		"Maintain": func(ctx context.Context) error {
			_, err := t.st.Maintain(ctx, store.MaintainParams{Now: at(time.Hour), PruneBefore: at(time.Hour), Limit: 10})
			return err
		},
	}
}

// settled is an endpoint with one failed and one leased delivery.
func (t *trial) settled() (e store.Endpoint, done, leased store.Lease) {
	e = t.endpoint()
	t.send(e, 2, at(0))
	leases := t.exactly(2, t.claimOf(e, at(0)))
	t.record(at(0), failed(leases[0]))
	return e, leases[0], leases[1]
}

func lifecycleCanceled(t *trial) {
	e, done, leased := t.settled()
	type state struct {
		Endpoints  []store.Endpoint
		Secrets    []store.EndpointSecrets
		Deliveries []store.Delivery
		Probe      store.ProbeResult
	}
	now := func() state {
		endpoints, err := t.st.Endpoints(t.ctx, store.EndpointFilter{WorkspaceID: home})
		t.must(err, "Endpoints")
		deliveries, err := t.st.Deliveries(t.ctx, store.DeliveryFilter{WorkspaceID: home})
		t.must(err, "Deliveries")
		return state{endpoints, t.secrets(0, 0), deliveries, t.probe(0)}
	}
	before := now()
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	for name, call := range t.everyCall(e, done, leased) {
		err := call(ctx)
		if err == nil || errors.Is(err, store.ErrOutcomeUnknown) {
			t.failf("%s with a canceled context returned error %v, want one, and not store.ErrOutcomeUnknown: nothing was done", name, err)
		}
		t.same(now(), before, "what is stored after %s with a canceled context", name)
	}
	t.same(t.repeats(at(0), t.keyedEvent(home, "new", 2)), false, "Repeat of a key whose publish was canceled")
	t.record(at(0), delivered(leased))
}

func lifecycleConcurrent(t *trial) {
	const rounds = 6
	var calls []func(context.Context) error
	var names []string
	for range rounds {
		for name, call := range t.everyCall(t.settled()) {
			names, calls = append(names, name), append(calls, call)
		}
	}
	for i, err := range together(len(calls), func(i int) error { return calls[i](t.ctx) }) {
		if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrPending) {
			t.failf("%s, called beside all other methods, returned error %q", names[i], err)
		}
	}
	for _, d := range t.list(store.DeliveryFilter{}) {
		t.delivery(d)
	}
	t.claim(at(2 * time.Hour))
}

func lifecycleClosed(t *trial) {
	e, done, leased := t.settled()
	t.must(t.st.Close(), "Close")
	for name, call := range t.everyCall(e, done, leased) {
		t.refused(call(t.ctx), store.ErrClosed, "%s after Close", name)
	}
	t.refused(t.st.Close(), store.ErrClosed, "the second Close")
}
