package storetest

import (
	"time"

	"github.com/elido-app/webhook/store"
)

var deleteCases = []Case{
	{
		"delete/not found",
		"A deleted endpoint, its deliveries and attempts are not found.",
		check(deleteHides),
	},
	{
		"delete/not claimed",
		"Nothing of a deleted endpoint is claimed, and it gets nothing published.",
		check(deleteEndsQueue),
	},
	{
		"delete/stale",
		"What is recorded for a deleted endpoint is stale.",
		check(deleteStale),
	},
	{
		"delete/secrets",
		"Deleting erases an endpoint's secrets at once: none is read, and no overlap is left to end.",
		check(deleteSecrets),
	},
	{
		"delete/again",
		"A second delete returns ErrNotFound, and so does one under another workspace, which deletes nothing.",
		check(deleteAgain),
	},
}

var isolationCases = []Case{
	{
		"isolation",
		"What belongs to another workspace is not found, whatever the method, and not changed.",
		check(isolated),
	},
}

func deleteHides(t *trial) {
	e, kept := t.endpoint(), t.endpoint()
	done := t.finish(e, 1, store.StatusDelivered, at(0))[0]
	bad := t.finish(e, 1, store.StatusFailed, at(0))[0]
	waiting := t.send(e, 1, at(0))[0]
	other := t.finish(kept, 1, store.StatusFailed, at(0))[0]
	event := t.delivery(done).EventID
	t.remove(e, at(1))

	hidden := func() {
		_, err := t.st.Endpoint(t.ctx, home, e.ID)
		t.refused(err, store.ErrNotFound, "Endpoint")
		list, err := t.st.Endpoints(t.ctx, store.EndpointFilter{WorkspaceID: home})
		t.must(err, "Endpoints")
		t.same(list, []store.Endpoint{kept}, "the endpoints left")
		for _, id := range []int64{done, bad, waiting} {
			_, err := t.st.Delivery(t.ctx, home, id)
			t.refused(err, store.ErrNotFound, "Delivery")
			_, err = t.st.Attempts(t.ctx, home, id)
			t.refused(err, store.ErrNotFound, "Attempts")
			_, err = t.st.Retry(t.ctx, store.RetryParams{WorkspaceID: home, DeliveryID: id, Now: at(2), Budget: 3})
			t.refused(err, store.ErrNotFound, "Retry")
		}
		_, err = t.st.Recover(t.ctx, store.RecoverParams{
			WorkspaceID: home, EndpointID: e.ID, Since: at(-time.Hour), Now: at(time.Hour), Budget: 3, Limit: 10,
		})
		t.refused(err, store.ErrNotFound, "Recover")
		t.same(t.list(store.DeliveryFilter{EndpointID: e.ID}), []int64(nil), "deliveries of the endpoint")
		t.same(t.list(store.DeliveryFilter{EventID: event}), []int64(nil), "deliveries of its event")
		t.same(t.list(store.DeliveryFilter{}), []int64{other}, "deliveries of the workspace")
	}
	hidden()
	t.maintain(store.MaintainParams{Now: at(2)})
	hidden()
}

func deleteEndsQueue(t *trial) {
	e := t.endpoint()
	t.send(e, 3, at(0))
	t.sendKeyed(e, "a", 3, at(0))
	t.remove(e, at(1))

	r := t.claimWith(at(time.Hour), t.lease(at(time.Hour)))
	t.same(ids(r.Leases), []int64(nil), "leases after the delete")
	t.same(r.NextDue, time.Time{}, "Claim's NextDue after the delete")
	t.same(t.probe(0).NextDue, time.Time{}, "Probe's NextDue after the delete")

	targeted := t.event(home)
	targeted.EndpointID = e.ID
	for _, receipt := range t.publish(at(2), t.event(home), targeted).Receipts {
		t.same(len(receipt.DeliveryIDs), 0, "deliveries published to the deleted endpoint")
	}
}

func deleteStale(t *trial) {
	e, kept := t.endpoint(), t.endpoint()
	t.send(e, 1, at(0))
	t.send(kept, 1, at(0))
	leases := t.claim(at(0))
	t.same(len(leases), 2, "number of leases")
	gone, live := leases[0], leases[1]
	if gone.Target.EndpointID != e.ID {
		gone, live = live, gone
	}
	t.remove(e, at(1))

	lost, err := t.st.Renew(t.ctx, []store.LeaseRef{gone.Ref(), live.Ref()}, at(time.Minute))
	t.must(err, "Renew")
	t.same(lost, []int64{gone.DeliveryID}, "leases that Renew called lost")
	t.release(gone)

	o := failed(gone)
	o.Health = store.HealthFailure
	r := t.recordWith(store.RecordParams{
		Now:      at(time.Second),
		Outcomes: []store.Outcome{o, delivered(live)},
		Health:   &store.HealthPolicy{DegradeAfter: 1, DegradeFor: time.Hour, PauseAfter: 1},
	})
	t.same(r.Stale, []int64{gone.DeliveryID}, "stale outcomes")
	t.same(len(r.Changes), 0, "changes of a deleted endpoint's health")
	t.same(t.delivery(live.DeliveryID).Status, store.StatusDelivered, "the outcome beside it")
}

func deleteSecrets(t *trial) {
	e := t.endpoint()
	t.rotate(rotation(e, sealed("second"), at(0)))
	t.remove(e, at(1))
	t.same(len(t.secrets(0, 0)), 0, "number of entries of Secrets after the only endpoint was deleted")
	r := t.maintain(store.MaintainParams{Now: at(1)})
	t.same(r.NextEnd, time.Time{}, "NextEnd after the only endpoint was deleted")
	t.same(t.maintain(store.MaintainParams{Now: at(2 * overlap)}).Erased, 0, "secrets erased after the delete")
}

func deleteAgain(t *trial) {
	e := t.endpoint()
	t.refused(t.st.DeleteEndpoint(t.ctx, abroad, e.ID, at(0)), store.ErrNotFound, "DeleteEndpoint under another workspace")
	t.same(t.read(e), e, "the endpoint after a delete under another workspace")
	t.refused(t.st.DeleteEndpoint(t.ctx, home, e.ID+1000, at(0)), store.ErrNotFound, "DeleteEndpoint of an unknown id")
	t.remove(e, at(0))
	t.refused(t.st.DeleteEndpoint(t.ctx, home, e.ID, at(1)), store.ErrNotFound, "the second DeleteEndpoint")
	t.maintain(store.MaintainParams{Now: at(1)})
	t.refused(t.st.DeleteEndpoint(t.ctx, home, e.ID, at(1)), store.ErrNotFound, "DeleteEndpoint after the rows are gone")
}

func isolated(t *trial) {
	e := t.endpoint()
	theirs := t.create(draft(abroad))
	id := t.finish(e, 1, store.StatusFailed, at(0))[0]
	before, rows := t.delivery(id), t.attempts(id)

	_, err := t.st.Endpoint(t.ctx, abroad, e.ID)
	t.refused(err, store.ErrNotFound, "Endpoint")
	foreign := e
	foreign.WorkspaceID = abroad
	_, err = t.st.UpdateEndpoint(t.ctx, foreign, nil)
	t.refused(err, store.ErrNotFound, "UpdateEndpoint")
	_, err = t.st.RotateSecret(t.ctx, rotation(foreign, sealed("x"), at(1)))
	t.refused(err, store.ErrNotFound, "RotateSecret")
	t.refused(t.st.DeleteEndpoint(t.ctx, abroad, e.ID, at(1)), store.ErrNotFound, "DeleteEndpoint")
	entry := resealed(t.secretsOf(e))
	entry.WorkspaceID = abroad
	t.same(t.reseal(entry), []int64{e.ID}, "stale entries of a Reseal under another workspace")
	_, err = t.st.Delivery(t.ctx, abroad, id)
	t.refused(err, store.ErrNotFound, "Delivery")
	_, err = t.st.Attempts(t.ctx, abroad, id)
	t.refused(err, store.ErrNotFound, "Attempts")
	_, err = t.st.Retry(t.ctx, store.RetryParams{WorkspaceID: abroad, DeliveryID: id, Now: at(1), Budget: 3})
	t.refused(err, store.ErrNotFound, "Retry")
	_, err = t.st.Recover(t.ctx, store.RecoverParams{
		WorkspaceID: abroad, EndpointID: e.ID, Since: at(-time.Hour), Now: at(time.Hour), Budget: 3, Limit: 10,
	})
	t.refused(err, store.ErrNotFound, "Recover")

	list, err := t.st.Endpoints(t.ctx, store.EndpointFilter{WorkspaceID: abroad})
	t.must(err, "Endpoints")
	t.same(list, []store.Endpoint{theirs}, "Endpoints of the other workspace")
	for _, f := range []store.DeliveryFilter{
		{WorkspaceID: abroad},
		{WorkspaceID: abroad, EndpointID: e.ID},
		{WorkspaceID: abroad, EventID: before.EventID},
		{WorkspaceID: abroad, EndpointID: e.ID, EventID: before.EventID},
	} {
		t.same(t.list(f), []int64(nil), "deliveries %s", describeFilter(f))
	}
	ev := t.event(abroad)
	ev.EndpointID = e.ID
	t.same(len(t.deliver(at(1), ev)), 0, "deliveries to an endpoint of another workspace")

	t.same(t.read(e), e, "the endpoint afterwards")
	t.same(t.delivery(id), before, "the delivery afterwards")
	t.same(t.attempts(id), rows, "the attempts afterwards")
}
