package webhook

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/elido-app/webhook/store"
)

const (
	deliveriesMost = 100
	recoverBatch   = 500
)

// DeliveryQuery selects deliveries of one workspace from the log. Zero fields do
// not filter.
type DeliveryQuery struct {
	WorkspaceID int64 // required
	EndpointID  int64
	EventID     string
	Status      Status
	EventType   string
	Since       time.Time // created at or after
	Until       time.Time // created before

	// Limit is 1 to 100 and defaults to 100.
	Limit int
	// Offset skips that many. For deep paging use Cursor, which costs the same
	// on every page and does not repeat or skip what is published meanwhile.
	Offset int
	// Cursor is DeliveryPage.Next of the page before.
	Cursor string
}

// DeliveryPage is one page of the log, newest first.
type DeliveryPage struct {
	Deliveries []Delivery `json:"deliveries"`
	// Next is the cursor of the next page; empty on the last one.
	Next string `json:"next,omitempty"`
}

// Deliveries reads the log, newest first.
func (d *Dispatcher) Deliveries(ctx context.Context, q DeliveryQuery) (DeliveryPage, error) {
	f := store.DeliveryFilter{
		WorkspaceID: q.WorkspaceID,
		EndpointID:  q.EndpointID,
		EventID:     q.EventID,
		Status:      q.Status,
		EventType:   q.EventType,
		Since:       q.Since,
		Until:       q.Until,
		Limit:       q.Limit,
		Offset:      q.Offset,
	}
	if f.Limit == 0 {
		f.Limit = deliveriesMost
	}
	switch {
	case f.WorkspaceID <= 0:
		return DeliveryPage{}, &InvalidError{Field: "workspace_id", Rule: "must be positive"}
	case f.Limit < 1 || f.Limit > deliveriesMost:
		return DeliveryPage{}, &InvalidError{Field: "limit", Rule: fmt.Sprintf("must be between 1 and %d", deliveriesMost)}
	case f.Offset < 0:
		return DeliveryPage{}, &InvalidError{Field: "offset", Rule: "must not be negative"}
	case f.Offset > 0 && q.Cursor != "":
		return DeliveryPage{}, &InvalidError{Field: "offset", Rule: "cannot be used together with a cursor"}
	case f.Status != "" && f.Status != StatusPending && f.Status != StatusDelivered && f.Status != StatusFailed:
		return DeliveryPage{}, &InvalidError{Field: "status", Rule: `must be "pending", "delivered" or "failed"`}
	case f.EventType != "" && !validName(f.EventType):
		return DeliveryPage{}, &InvalidError{Field: "event_type", Rule: quote(f.EventType) + notAName}
	case f.EventID != "" && !isEventID(f.EventID):
		return DeliveryPage{}, &InvalidError{Field: "event_id", Rule: "must be the id of an event: evt_ and lower-case letters and digits"}
	}
	var err error
	if f.Before, err = parseCursor(q.Cursor); err != nil {
		return DeliveryPage{}, err
	}
	limit := f.Limit
	f.Limit++ // one more tells whether there is a next page
	list, err := d.store.Deliveries(ctx, f)
	if err != nil {
		return DeliveryPage{}, fmt.Errorf("webhook: deliveries: %w", err)
	}
	page := DeliveryPage{Deliveries: list}
	if len(list) > limit {
		page.Deliveries = list[:limit]
		page.Next = cursor(list[limit-1])
	}
	return page, nil
}

// cursor names the place of a delivery in the log.
func cursor(d Delivery) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%d", d.CreatedAt.UnixMilli(), d.ID))
}

func parseCursor(s string) (store.Position, error) {
	if s == "" {
		return store.Position{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	at, id, _ := strings.Cut(string(raw), ".")
	ms, err1 := strconv.ParseInt(at, 10, 64)
	n, err2 := strconv.ParseInt(id, 10, 64)
	if errors.Join(err, err1, err2) != nil || n <= 0 {
		return store.Position{}, &InvalidError{Field: "cursor", Rule: "must be what an earlier page gave as next"}
	}
	return store.Position{CreatedAt: time.UnixMilli(ms).UTC(), DeliveryID: n}, nil
}

// Delivery returns one delivery, or [ErrNotFound].
func (d *Dispatcher) Delivery(ctx context.Context, workspaceID, id int64) (Delivery, error) {
	v, err := d.store.Delivery(ctx, workspaceID, id)
	if err != nil {
		return Delivery{}, deliveryError(id, err)
	}
	return v, nil
}

// Attempts returns the attempts of one delivery, the first one first.
func (d *Dispatcher) Attempts(ctx context.Context, workspaceID, deliveryID int64) ([]Attempt, error) {
	list, err := d.store.Attempts(ctx, workspaceID, deliveryID)
	if err != nil {
		return nil, deliveryError(deliveryID, err)
	}
	return list, nil
}

// Retry re-queues a delivered or failed delivery: the same id, signed afresh,
// with a fresh budget. One that is still pending is [ErrPending], so that many
// clicks make one request.
func (d *Dispatcher) Retry(ctx context.Context, workspaceID, deliveryID int64) (Delivery, error) {
	v, err := d.store.Retry(ctx, store.RetryParams{
		WorkspaceID: workspaceID,
		DeliveryID:  deliveryID,
		Now:         time.Now(),
		Budget:      d.config.Retry.budget(),
	})
	if err != nil {
		return Delivery{}, deliveryError(deliveryID, err)
	}
	d.queue.Wake()
	d.config.Logger.Info("webhook: manual retry", "delivery_id", deliveryID, "endpoint_id", v.EndpointID)
	return v, nil
}

// Replay re-queues the delivery of an event to one endpoint, as Retry does.
// [ErrNotFound]: the endpoint was not sent the event, or its log has it no more.
func (d *Dispatcher) Replay(ctx context.Context, workspaceID, endpointID int64, eventID string) (Delivery, error) {
	var list []Delivery
	err := ErrNotFound
	if isEventID(eventID) {
		list, err = d.store.Deliveries(ctx, store.DeliveryFilter{WorkspaceID: workspaceID, EndpointID: endpointID, EventID: eventID, Limit: 1})
		if err == nil && len(list) == 0 {
			err = ErrNotFound
		}
	}
	if err != nil {
		return Delivery{}, fmt.Errorf("webhook: replay of event %.40q to endpoint %d: %w", eventID, endpointID, err)
	}
	return d.Retry(ctx, workspaceID, list[0].ID)
}

// Backlog is how much is waiting to be attempted.
type Backlog struct {
	// Due is how many deliveries are due now at active endpoints, not counting
	// those under way; it is counted no further than 10,000.
	Due int
	// OldestDue is since when the first of them is due; zero without any.
	OldestDue time.Time
}

const backlogMost = 10_000

// Backlog tells how much is waiting, at a cost that does not depend on it.
func (d *Dispatcher) Backlog(ctx context.Context) (Backlog, error) {
	now := time.Now()
	r, err := d.store.Probe(ctx, store.ProbeParams{Now: now, Count: backlogMost})
	if err != nil {
		return Backlog{}, fmt.Errorf("webhook: backlog: %w", err)
	}
	b := Backlog{Due: r.Due}
	if !r.NextDue.IsZero() && !r.NextDue.After(now) {
		b.OldestDue = r.NextDue
	}
	return b, nil
}

// Recover re-queues, after a long outage, every delivery of an endpoint that
// failed for good at or after an instant, in bounded batches, and returns how
// many. With an error it returns how many it re-queued before.
func (d *Dispatcher) Recover(ctx context.Context, workspaceID, endpointID int64, since time.Time) (int, error) {
	p := store.RecoverParams{
		WorkspaceID: workspaceID,
		EndpointID:  endpointID,
		Since:       since,
		Now:         time.Now(), // what fails again meanwhile is not taken twice
		Budget:      d.config.Retry.budget(),
		Limit:       recoverBatch,
	}
	total := 0
	for {
		n, err := d.store.Recover(ctx, p)
		if err != nil {
			return total, endpointError(endpointID, err)
		}
		total += n
		if n > 0 {
			d.queue.Wake()
		}
		if n < p.Limit {
			d.config.Logger.Info("webhook: failed deliveries re-queued", "endpoint_id", endpointID, "count", total)
			return total, nil
		}
	}
}

func deliveryError(id int64, err error) error {
	return fmt.Errorf("webhook: delivery %d: %w", id, err)
}
