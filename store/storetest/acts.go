package storetest

import (
	"fmt"
	"time"

	"github.com/elido-app/webhook/store"
)

// What the stories are made of: calls that must succeed.

// Endpoints.

// draft is an active endpoint that subscribes to "link.created".
func draft(workspaceID int64) store.Endpoint {
	return store.Endpoint{
		WorkspaceID: workspaceID,
		Kind:        store.KindEvent,
		URL:         "https://example.com/hook",
		Events:      []string{"link.created"},
		Active:      true,
		CreatedAt:   at(0),
		UpdatedAt:   at(0),
	}
}

func sealed(format string, args ...any) store.Sealed {
	return store.Sealed{KeyID: "k1", Data: store.NewSecret(fmt.Sprintf(format, args...))}
}

func seal(id int64) (store.Secrets, error) {
	return store.Secrets{Current: sealed("whsec_%d", id)}, nil
}

func (t *trial) create(e store.Endpoint) store.Endpoint {
	e, err := t.st.CreateEndpoint(t.ctx, store.CreateEndpointParams{Endpoint: e, Seal: seal})
	t.must(err, "CreateEndpoint")
	return e
}

// endpoint creates a draft in the home workspace.
func (t *trial) endpoint() store.Endpoint { return t.create(draft(home)) }

// read returns an endpoint as it is now.
func (t *trial) read(e store.Endpoint) store.Endpoint {
	e, err := t.st.Endpoint(t.ctx, e.WorkspaceID, e.ID)
	t.must(err, "Endpoint")
	return e
}

func (t *trial) update(e store.Endpoint) store.Endpoint {
	e, err := t.st.UpdateEndpoint(t.ctx, e, nil)
	t.must(err, "UpdateEndpoint")
	return e
}

// pause pauses or resumes an endpoint, whatever its revision.
func (t *trial) pause(e store.Endpoint, paused bool) store.Endpoint {
	e = t.read(e)
	e.Active = !paused
	return t.update(e)
}

func (t *trial) remove(e store.Endpoint, now time.Time) {
	t.must(t.st.DeleteEndpoint(t.ctx, e.WorkspaceID, e.ID, now), "DeleteEndpoint")
}

// target returns what a request to the endpoint would need at an instant. It
// sends a delivery of its own for that.
func (t *trial) target(e store.Endpoint, now time.Time) *store.Target {
	t.send(e, 1, now)
	lease := t.one(t.claimOf(e, now))
	t.record(now, delivered(lease))
	if lease.Target == nil {
		t.failf("the lease has no Target")
	}
	return lease.Target
}

// Events.

// event is one of type "link.created", without any keys.
func (t *trial) event(workspaceID int64) store.NewEvent {
	n := t.next()
	return store.NewEvent{
		ID:          fmt.Sprintf("evt_%08d", n),
		WorkspaceID: workspaceID,
		Type:        "link.created",
		Matches:     []string{"link.created", "link.*"},
		OccurredAt:  begin,
		Payload:     fmt.Appendf(nil, `{"n":%d}`, n),
		Budget:      3,
	}
}

func (t *trial) publish(now time.Time, events ...store.NewEvent) store.PublishResult {
	return t.publishWith(store.PublishParams{Events: events, Now: now})
}

func (t *trial) publishWith(p store.PublishParams) store.PublishResult {
	r, err := t.st.Publish(t.ctx, p)
	t.must(err, "Publish")
	t.receipts(p, r)
	return r
}

// receipts ends the case unless there is one for each event, in their order, and
// what was handed off is in them.
func (t *trial) receipts(p store.PublishParams, r store.PublishResult) {
	if len(r.Receipts) != len(p.Events) {
		t.failf("Publish of %d events gave %d receipts, want one for each", len(p.Events), len(r.Receipts))
	}
	stored := map[int64]bool{}
	for i, receipt := range r.Receipts {
		if receipt.Repeat {
			continue
		}
		if receipt.EventID != p.Events[i].ID {
			t.failf("the receipt of event %d of %d names event %q, want %q", i+1, len(p.Events), receipt.EventID, p.Events[i].ID)
		}
		for _, id := range receipt.DeliveryIDs {
			if id <= 0 || stored[id] {
				t.failf("the receipts of one Publish name delivery %d, which is not positive, or there twice", id)
			}
			stored[id] = true
		}
	}
	if p.Handoff == nil && len(r.Leases) > 0 {
		t.failf("Publish without Handoff gave leases of deliveries %v", ids(r.Leases))
	}
	for _, l := range r.Leases {
		if !stored[l.DeliveryID] {
			t.failf("Publish handed off delivery %d, which is in no receipt", l.DeliveryID)
		}
	}
}

// deliver publishes one event and returns the ids of its deliveries.
func (t *trial) deliver(now time.Time, ev store.NewEvent) []int64 {
	return t.publish(now, ev).Receipts[0].DeliveryIDs
}

// deliverOne is deliver for an event that selects one endpoint.
func (t *trial) deliverOne(now time.Time, ev store.NewEvent) int64 {
	sent := t.deliver(now, ev)
	if len(sent) != 1 {
		t.failf("Publish of an event that selects one endpoint stored deliveries %s, want one", few(sent, number))
	}
	return sent[0]
}

// repeats reports whether an event is a repeat.
func (t *trial) repeats(now time.Time, ev store.NewEvent) bool {
	return t.publish(now, ev).Receipts[0].Repeat
}

// eventsTo are n events for one endpoint, with an ordering key unless it is empty.
func (t *trial) eventsTo(e store.Endpoint, key string, n int) []store.NewEvent {
	events := make([]store.NewEvent, n)
	for i := range events {
		events[i] = t.event(e.WorkspaceID)
		events[i].EndpointID = e.ID
		events[i].OrderingKey = key
	}
	return events
}

// send publishes n events to one endpoint and returns the delivery ids.
func (t *trial) send(e store.Endpoint, n int, now time.Time) []int64 {
	return t.sendKeyed(e, "", n, now)
}

func (t *trial) sendKeyed(e store.Endpoint, key string, n int, now time.Time) []int64 {
	var sent []int64
	for i, r := range t.publish(now, t.eventsTo(e, key, n)...).Receipts {
		if len(r.DeliveryIDs) != 1 {
			t.failf("event %d of %d to endpoint %d has deliveries %s, want one", i+1, n, e.ID, few(r.DeliveryIDs, number))
		}
		sent = append(sent, r.DeliveryIDs[0])
	}
	return sent
}

func deliveryIDs(receipts []store.Receipt) []int64 {
	var ids []int64
	for _, r := range receipts {
		ids = append(ids, r.DeliveryIDs...)
	}
	return ids
}

// Leases.

func (t *trial) lease(now time.Time) store.LeaseParams {
	return store.LeaseParams{
		Token: t.next(),
		Until: now.Add(leaseTime),
		Room:  store.Room{Limit: plenty, PerEndpoint: plenty},
	}
}

func (t *trial) claimWith(now time.Time, lease store.LeaseParams) store.ClaimResult {
	r, err := t.st.Claim(t.ctx, store.ClaimParams{Now: now, LeaseParams: lease})
	t.must(err, "Claim")
	return r
}

// claim claims all that is due.
func (t *trial) claim(now time.Time) []store.Lease {
	return t.claimWith(now, t.lease(now)).Leases
}

// claimOf claims all that is due at one endpoint.
func (t *trial) claimOf(e store.Endpoint, now time.Time) []store.Lease {
	lease := t.lease(now)
	lease.Room.PerEndpoint = 0
	lease.Room.Endpoints = map[int64]int{e.ID: plenty}
	return t.claimWith(now, lease).Leases
}

// exactly returns leases, of which there must be n.
func (t *trial) exactly(n int, leases []store.Lease) []store.Lease {
	if len(leases) != n {
		t.failf("got leases of deliveries %s, want exactly %d", few(ids(leases), number), n)
	}
	return leases
}

// one returns the only lease.
func (t *trial) one(leases []store.Lease) store.Lease {
	return t.exactly(1, leases)[0]
}

func (t *trial) renew(until time.Time, leases ...store.Lease) (lost []int64) {
	refs := make([]store.LeaseRef, len(leases))
	for i := range leases {
		refs[i] = leases[i].Ref()
	}
	lost, err := t.st.Renew(t.ctx, refs, until)
	t.must(err, "Renew")
	return lost
}

// release gives leases back as they were given.
func (t *trial) release(leases ...store.Lease) {
	releases := make([]store.Release, len(leases))
	for i := range leases {
		releases[i].LeaseRef = leases[i].Ref()
	}
	t.must(t.st.Release(t.ctx, releases), "Release")
}

func ids(leases []store.Lease) []int64 {
	var ids []int64
	for _, l := range leases {
		ids = append(ids, l.DeliveryID)
	}
	return ids
}

// Outcomes.

func outcome(l store.Lease, status store.Status, answer int) store.Outcome {
	o := store.Outcome{
		DeliveryID: l.DeliveryID,
		Token:      l.Token,
		Status:     status,
		Attempt:    store.Attempt{Latency: 120 * time.Millisecond, Status: answer},
	}
	if l.Target != nil {
		o.EndpointID = l.Target.EndpointID
	}
	return o
}

func delivered(l store.Lease) store.Outcome { return outcome(l, store.StatusDelivered, 200) }

func failed(l store.Lease) store.Outcome { return outcome(l, store.StatusFailed, 500) }

// again is a failed attempt to be repeated at an instant.
func again(l store.Lease, due time.Time) store.Outcome {
	o := outcome(l, store.StatusPending, 500)
	o.NextAttemptAt = due
	return o
}

// record writes outcomes, none of which may be stale. Attempts without a start
// start now.
func (t *trial) record(now time.Time, outcomes ...store.Outcome) store.RecordResult {
	r := t.recordWith(store.RecordParams{Now: now, Outcomes: outcomes})
	if len(r.Stale) != 0 {
		t.failf("Record called the outcomes of %v stale", r.Stale)
	}
	return r
}

func (t *trial) recordWith(p store.RecordParams) store.RecordResult {
	for i := range p.Outcomes {
		if p.Outcomes[i].Attempt.StartedAt.IsZero() {
			p.Outcomes[i].Attempt.StartedAt = p.Now
		}
	}
	r, err := t.st.Record(t.ctx, p)
	t.must(err, "Record")
	return r
}

// finish sends n deliveries to an endpoint, each of which ends at once.
func (t *trial) finish(e store.Endpoint, n int, status store.Status, now time.Time) []int64 {
	sent := t.send(e, n, now)
	leases := t.claimOf(e, now)
	t.same(ids(leases), sent, "leases of what was just sent to endpoint %d", e.ID)
	outcomes := make([]store.Outcome, n)
	for i, l := range leases {
		outcomes[i] = outcome(l, status, 418)
	}
	t.record(now, outcomes...)
	return sent
}

// The log.

func (t *trial) delivery(id int64) store.Delivery {
	d, err := t.st.Delivery(t.ctx, home, id)
	t.must(err, fmt.Sprintf("Delivery %d", id))
	return d
}

func (t *trial) attempts(id int64) []store.Attempt {
	rows, err := t.st.Attempts(t.ctx, home, id)
	t.must(err, fmt.Sprintf("Attempts of delivery %d", id))
	return rows
}

// lastAttempt returns the last attempt of a delivery, which must have n.
func (t *trial) lastAttempt(id int64, n int) store.Attempt {
	rows := t.attempts(id)
	if len(rows) != n {
		t.failf("delivery %d has %d attempt rows, want %d", id, len(rows), n)
	}
	return rows[n-1]
}

// list returns the ids of the deliveries a filter selects.
func (t *trial) list(f store.DeliveryFilter) []int64 {
	if f.WorkspaceID == 0 {
		f.WorkspaceID = home
	}
	found, err := t.st.Deliveries(t.ctx, f)
	t.must(err, "Deliveries")
	var ids []int64
	for _, d := range found {
		ids = append(ids, d.ID)
	}
	return ids
}

func (t *trial) retry(id int64, now time.Time) store.Delivery {
	d, err := t.st.Retry(t.ctx, store.RetryParams{WorkspaceID: home, DeliveryID: id, Now: now, Budget: 3})
	t.must(err, fmt.Sprintf("Retry of delivery %d", id))
	return d
}

func (t *trial) maintain(p store.MaintainParams) store.MaintainResult {
	if p.Limit == 0 {
		p.Limit = plenty
	}
	r, err := t.st.Maintain(t.ctx, p)
	t.must(err, "Maintain")
	return r
}

func (t *trial) probe(since int64) store.ProbeResult {
	r, err := t.st.Probe(t.ctx, store.ProbeParams{Since: since})
	t.must(err, "Probe")
	return r
}
