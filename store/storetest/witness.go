package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elido-app/webhook/store"
)

// A failure tells of the first calls, which set the scene, and of the last.
const firstKept, lastKept = 5, 25

// witness notes the calls that a case makes, so that a failure can tell what led
// to it.
type witness struct {
	store.Store
	mu    sync.Mutex
	calls int
	notes []*note
}

// note is one call and, once it returned, its result.
type note struct {
	number       int
	call, result string
}

// begin notes a call, and returns what notes its result.
func (w *witness) begin(format string, args ...any) func(err error, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	n := &note{number: w.calls, call: fmt.Sprintf(format, args...), result: "did not return"}
	if len(w.notes) == firstKept+lastKept {
		w.notes = slices.Delete(w.notes, firstKept, firstKept+1)
	}
	w.notes = append(w.notes, n)
	return func(err error, format string, args ...any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		n.result = fmt.Sprintf(format, args...)
		if err != nil {
			n.result = fmt.Sprintf("error: %v", err)
		}
	}
}

// report tells of the last calls.
func (w *witness) report() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "calls that led there (instants count from the case's beginning, %s):", begin.Format(time.RFC3339))
	for i, n := range w.notes {
		if left := w.calls - len(w.notes); i == firstKept && left > 0 {
			fmt.Fprintf(&b, "\n      … and %d more", left)
		}
		fmt.Fprintf(&b, "\n%5d %s: %s", n.number, n.call, n.result)
	}
	return b.String()
}

// clock shows an instant as the cases count time.
func clock(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := t.Sub(begin)
	if d < 0 {
		return d.String()
	}
	return "+" + d.String()
}

// few shows a list, shortened if it is long.
func few[T any](list []T, show func(T) string) string {
	const most = 10
	shown := make([]string, 0, most)
	for _, v := range list[:min(len(list), most)] {
		shown = append(shown, show(v))
	}
	s := "[" + strings.Join(shown, ", ") + "]"
	if len(list) > most {
		s += fmt.Sprintf(" and %d more", len(list)-most)
	}
	return s
}

func number(id int64) string { return strconv.FormatInt(id, 10) }

func describeRoom(r store.Room) string {
	s := fmt.Sprintf("limit %d, %d an endpoint", r.Limit, r.PerEndpoint)
	if len(r.Endpoints) > 0 {
		s += ", of endpoint " + few(slices.Sorted(maps.Keys(r.Endpoints)), func(id int64) string {
			return fmt.Sprintf("%d: %d", id, r.Endpoints[id])
		})
	}
	return s
}

func describeLease(l store.LeaseParams) string {
	return fmt.Sprintf("token %d until %s, %s", l.Token, clock(l.Until), describeRoom(l.Room))
}

func describeClaimed(r store.ClaimResult) string {
	return fmt.Sprintf("leases of %s, next due %s", few(ids(r.Leases), number), clock(r.NextDue))
}

func describeEndpoint(e store.Endpoint) string {
	state := "active"
	if !e.Active {
		state = "paused"
	}
	return fmt.Sprintf("endpoint %d of workspace %d (%s, revision %d)", e.ID, e.WorkspaceID, state, e.Revision)
}

func describeEvent(ev store.NewEvent) string {
	s := ev.ID
	if ev.WorkspaceID != home {
		s += fmt.Sprintf(" of workspace %d", ev.WorkspaceID)
	}
	if ev.EndpointID != 0 {
		s += fmt.Sprintf(" to endpoint %d", ev.EndpointID)
	}
	if ev.OrderingKey != "" {
		s += fmt.Sprintf(" ordered by %q", ev.OrderingKey)
	}
	if ev.IdempotencyKey != "" {
		s += fmt.Sprintf(" idempotent by %q", ev.IdempotencyKey)
	}
	return s
}

func describeOutcome(o store.Outcome) string {
	s := fmt.Sprintf("%d %s under token %d", o.DeliveryID, o.Status, o.Token)
	if o.Status == store.StatusPending {
		s += " again at " + clock(o.NextAttemptAt)
	}
	switch o.Health {
	case store.HealthSuccess:
		s += ", healthy"
	case store.HealthFailure:
		s += ", unhealthy"
	case store.HealthNone:
	}
	return s
}

func describeDelivery(d store.Delivery) string {
	return fmt.Sprintf("%s, %d of %d attempts, next at %s", d.Status, d.Attempts, d.Budget, clock(d.NextAttemptAt))
}

func describeFilter(f store.DeliveryFilter) string {
	s := fmt.Sprintf("of workspace %d", f.WorkspaceID)
	for _, part := range []struct {
		set  bool
		text string
	}{
		{f.EndpointID != 0, fmt.Sprintf("endpoint %d", f.EndpointID)},
		{f.EventID != "", fmt.Sprintf("event %q", f.EventID)},
		{f.Status != "", "status " + string(f.Status)},
		{f.EventType != "", fmt.Sprintf("type %q", f.EventType)},
		{!f.Since.IsZero(), "since " + clock(f.Since)},
		{!f.Until.IsZero(), "until " + clock(f.Until)},
		{f.Before.DeliveryID != 0, fmt.Sprintf("before delivery %d of %s", f.Before.DeliveryID, clock(f.Before.CreatedAt))},
		{f.Limit != 0, fmt.Sprintf("limit %d", f.Limit)},
		{f.Offset != 0, fmt.Sprintf("offset %d", f.Offset)},
	} {
		if part.set {
			s += ", " + part.text
		}
	}
	return s
}

func (w *witness) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	handoff := ""
	if p.Handoff != nil {
		handoff = "; handoff: " + describeLease(*p.Handoff)
	}
	end := w.begin("Publish at %s of %s%s", clock(p.Now), few(p.Events, describeEvent), handoff)
	r, err := w.Store.Publish(ctx, p)
	end(err, "deliveries %s, leases of %s, queued %v", few(deliveryIDs(r.Receipts), number), few(ids(r.Leases), number), r.Queued)
	return r, err
}

func (w *witness) CreateEndpoint(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
	end := w.begin("CreateEndpoint %d in workspace %d", p.Endpoint.ID, p.Endpoint.WorkspaceID)
	e, err := w.Store.CreateEndpoint(ctx, p)
	end(err, "%s", describeEndpoint(e))
	return e, err
}

func (w *witness) Endpoint(ctx context.Context, workspaceID, id int64) (store.Endpoint, error) {
	end := w.begin("Endpoint %d of workspace %d", id, workspaceID)
	e, err := w.Store.Endpoint(ctx, workspaceID, id)
	end(err, "%s", describeEndpoint(e))
	return e, err
}

func (w *witness) Endpoints(ctx context.Context, f store.EndpointFilter) ([]store.Endpoint, error) {
	end := w.begin("Endpoints of workspace %d after %d, limit %d", f.WorkspaceID, f.After, f.Limit)
	list, err := w.Store.Endpoints(ctx, f)
	end(err, "%s", few(list, describeEndpoint))
	return list, err
}

func (w *witness) UpdateEndpoint(ctx context.Context, e store.Endpoint, credentials *store.Sealed) (store.Endpoint, error) {
	end := w.begin("UpdateEndpoint to %s, with credentials: %v", describeEndpoint(e), credentials != nil)
	e, err := w.Store.UpdateEndpoint(ctx, e, credentials)
	end(err, "%s", describeEndpoint(e))
	return e, err
}

func (w *witness) RotateSecret(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
	end := w.begin("RotateSecret of endpoint %d of workspace %d at %s, having seen %d, overlap until %s",
		p.EndpointID, p.WorkspaceID, clock(p.At), p.Seen, clock(p.PreviousUntil))
	e, err := w.Store.RotateSecret(ctx, p)
	end(err, "%s, rotations %d", describeEndpoint(e), e.Rotations)
	return e, err
}

func describeSecrets(s store.EndpointSecrets) string {
	return fmt.Sprintf("endpoint %d of workspace %d (revision %d)", s.EndpointID, s.WorkspaceID, s.Revision)
}

func (w *witness) Secrets(ctx context.Context, f store.SecretsFilter) ([]store.EndpointSecrets, error) {
	end := w.begin("Secrets after %d, limit %d", f.After, f.Limit)
	list, err := w.Store.Secrets(ctx, f)
	end(err, "%s", few(list, describeSecrets))
	return list, err
}

func (w *witness) Reseal(ctx context.Context, secrets []store.EndpointSecrets) ([]int64, error) {
	end := w.begin("Reseal of %s", few(secrets, describeSecrets))
	stale, err := w.Store.Reseal(ctx, secrets)
	end(err, "stale %s", few(stale, number))
	return stale, err
}

func (w *witness) DeleteEndpoint(ctx context.Context, workspaceID, id int64, at time.Time) error {
	end := w.begin("DeleteEndpoint %d of workspace %d at %s", id, workspaceID, clock(at))
	err := w.Store.DeleteEndpoint(ctx, workspaceID, id, at)
	end(err, "done")
	return err
}

func (w *witness) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	end := w.begin("Claim at %s under %s", clock(p.Now), describeLease(p.LeaseParams))
	r, err := w.Store.Claim(ctx, p)
	end(err, "%s", describeClaimed(r))
	return r, err
}

func (w *witness) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	claim := ""
	if p.Claim != nil {
		claim = "; claim under " + describeLease(p.Claim.LeaseParams)
	}
	end := w.begin("Record at %s of %s%s", clock(p.Now), few(p.Outcomes, describeOutcome), claim)
	r, err := w.Store.Record(ctx, p)
	if p.Claim != nil {
		claim = "; " + describeClaimed(r.Claim)
	}
	end(err, "stale %s, %d changes of health, queued %v%s", few(r.Stale, number), len(r.Changes), r.Queued, claim)
	return r, err
}

func describeRef(r store.LeaseRef) string {
	return fmt.Sprintf("%d under token %d", r.DeliveryID, r.Token)
}

func (w *witness) Renew(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
	end := w.begin("Renew of %s until %s", few(leases, describeRef), clock(until))
	lost, err := w.Store.Renew(ctx, leases, until)
	end(err, "lost %s", few(lost, number))
	return lost, err
}

func (w *witness) Release(ctx context.Context, releases []store.Release) error {
	end := w.begin("Release of %s", few(releases, func(r store.Release) string {
		s := describeRef(r.LeaseRef)
		if !r.DueAt.IsZero() {
			s += " due at " + clock(r.DueAt)
		}
		if r.Interrupted {
			s += ", interrupted"
		}
		return s
	}))
	err := w.Store.Release(ctx, releases)
	end(err, "done")
	return err
}

func (w *witness) Probe(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
	end := w.begin("Probe since %d", p.Since)
	r, err := w.Store.Probe(ctx, p)
	end(err, "next due %s, changed %s, revision %d", clock(r.NextDue), few(r.Changed, func(c store.EndpointChange) string { return fmt.Sprintf("%d to %d", c.EndpointID, c.Revision) }), r.Revision)
	return r, err
}

func (w *witness) Deliveries(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
	end := w.begin("Deliveries %s", describeFilter(f))
	list, err := w.Store.Deliveries(ctx, f)
	end(err, "%s", few(list, func(d store.Delivery) string { return number(d.ID) }))
	return list, err
}

func (w *witness) Delivery(ctx context.Context, workspaceID, id int64) (store.Delivery, error) {
	end := w.begin("Delivery %d of workspace %d", id, workspaceID)
	d, err := w.Store.Delivery(ctx, workspaceID, id)
	end(err, "%s", describeDelivery(d))
	return d, err
}

func (w *witness) Attempts(ctx context.Context, workspaceID, deliveryID int64) ([]store.Attempt, error) {
	end := w.begin("Attempts of delivery %d of workspace %d", deliveryID, workspaceID)
	rows, err := w.Store.Attempts(ctx, workspaceID, deliveryID)
	end(err, "%d rows", len(rows))
	return rows, err
}

func (w *witness) Retry(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
	end := w.begin("Retry of delivery %d of workspace %d at %s", p.DeliveryID, p.WorkspaceID, clock(p.Now))
	d, err := w.Store.Retry(ctx, p)
	end(err, "%s", describeDelivery(d))
	return d, err
}

func (w *witness) Recover(ctx context.Context, p store.RecoverParams) (int, error) {
	end := w.begin("Recover of endpoint %d of workspace %d at %s, since %s, limit %d",
		p.EndpointID, p.WorkspaceID, clock(p.Now), clock(p.Since), p.Limit)
	n, err := w.Store.Recover(ctx, p)
	end(err, "%d deliveries", n)
	return n, err
}

func (w *witness) Maintain(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
	end := w.begin("Maintain at %s, prune before %s, keep %d, forget keys before %s, limit %d",
		clock(p.Now), clock(p.PruneBefore), p.KeepPerEndpoint, clock(p.ForgetKeysBefore), p.Limit)
	r, err := w.Store.Maintain(ctx, p)
	end(err, "erased %d, pruned %d, purged %d, keys %d, more %v, next end %s",
		r.Erased, r.Pruned, r.Purged, r.Keys, r.More, clock(r.NextEnd))
	return r, err
}

func (w *witness) Close() error {
	end := w.begin("Close")
	err := w.Store.Close()
	end(err, "done")
	return err
}
