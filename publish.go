package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/elido-app/webhook/store"
)

// MaxEvents is how many events one PublishMany takes.
const MaxEvents = 1000

// Publish stores an event and one delivery for each endpoint that wants it, all
// or nothing, and returns what was stored. Once it returned nil the event is as
// durable as the store. A running Dispatcher of this process makes the first
// attempts at once.
//
// Bad input is an [*InvalidError]; the other errors to branch on are
// [ErrIdempotencyConflict] and [ErrOutcomeUnknown]. Nobody wanting the event is
// not an error.
func (d *Dispatcher) Publish(ctx context.Context, event Event) (Receipt, error) {
	receipts, err := d.publish(ctx, nil, []Event{event})
	if err != nil {
		return Receipt{}, ofEvent(err)
	}
	return receipts[0], nil
}

// PublishMany publishes up to MaxEvents events, all or none, and returns their
// receipts in the same order. An error about one of them names it, as
// "events[2].type" or as a [store.EventError].
func (d *Dispatcher) PublishMany(ctx context.Context, events []Event) ([]Receipt, error) {
	receipts, err := d.publish(ctx, nil, events)
	return receipts, err
}

// PublishTx publishes within a transaction of the host's, which tx stands for
// (a store's Tx method returns it): the event exists once the host commits and
// never did if it rolls back. Call Wake after the commit.
func (d *Dispatcher) PublishTx(ctx context.Context, tx store.Publisher, event Event) (Receipt, error) {
	if tx == nil {
		return Receipt{}, &InvalidError{Field: "tx", Rule: "is required"}
	}
	receipts, err := d.publish(ctx, tx, []Event{event})
	if err != nil {
		return Receipt{}, ofEvent(err)
	}
	return receipts[0], nil
}

// ofEvent takes the place of the event in a batch out of an error, where there
// was only one.
func ofEvent(err error) error {
	if e, ok := errors.AsType[*eventFieldError](err); ok {
		return e.err
	}
	if e, ok := errors.AsType[*store.EventError](err); ok {
		return fmt.Errorf("webhook: publish: %w", e.Err)
	}
	return err
}

// eventFieldError is an InvalidError about one event of a batch.
type eventFieldError struct {
	index int
	err   *InvalidError
}

func (e *eventFieldError) Error() string { return e.in().Error() }

// As gives the InvalidError with the event's place in its field.
func (e *eventFieldError) As(target any) bool {
	if t, ok := target.(**InvalidError); ok {
		*t = e.in()
		return true
	}
	return false
}

func (e *eventFieldError) Unwrap() error { return e.err.cause }

func (e *eventFieldError) in() *InvalidError {
	in := *e.err
	in.Field = fmt.Sprintf("events[%d].%s", e.index, in.Field)
	return &in
}

func (d *Dispatcher) publish(ctx context.Context, tx store.Publisher, events []Event) ([]Receipt, error) {
	if len(events) == 0 {
		return nil, nil
	}
	if len(events) > MaxEvents {
		return nil, &InvalidError{Field: "events", Rule: fmt.Sprintf("are %d, over the limit of %d", len(events), MaxEvents)}
	}
	now := time.Now()
	trace := d.trace(ctx)
	stored := make([]store.NewEvent, len(events))
	total := 0
	for i := range events {
		id, e := newEventID(now), events[i]
		p, err := d.config.Catalog.prepare(e, d.config.Envelope, id, now)
		if err == nil {
			err = d.checkBody(len(p.payload))
		}
		if err == nil {
			err = d.defaultKey(&e, p.data)
		}
		if err != nil {
			if invalid, ok := errors.AsType[*InvalidError](err); ok {
				err = &eventFieldError{index: i, err: invalid}
			}
			return nil, err
		}
		if total += len(p.payload); total > d.config.MaxBatch {
			return nil, &InvalidError{Field: "events", Rule: fmt.Sprintf("have bodies of more than %d bytes together", d.config.MaxBatch)}
		}
		stored[i] = d.newEvent(id, e, p)
		stored[i].Trace = trace
	}
	if err := ask(d, d.config.AllowPublish, "AllowPublish", ctx, events); err != nil {
		return nil, err
	}
	return d.put(ctx, tx, stored, now)
}

func (d *Dispatcher) newEvent(id string, e Event, p prepared) store.NewEvent {
	return store.NewEvent{
		ID:             id,
		WorkspaceID:    e.WorkspaceID,
		Type:           e.Type,
		Matches:        p.matches,
		OccurredAt:     p.occurredAt,
		OrderingKey:    e.OrderingKey,
		Payload:        p.payload,
		IdempotencyKey: e.IdempotencyKey,
		Digest:         p.digest,
		Budget:         d.config.Retry.budget(),
		DegradedBudget: d.config.Health.degradedBudget(d.config.Retry.budget()),
	}
}

// defaultKey sets the ordering key of an event that has none.
func (d *Dispatcher) defaultKey(e *Event, data []byte) (err error) {
	if d.config.OrderingKey == nil || e.OrderingKey != "" {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = &InvalidError{Field: "ordering_key", Rule: "Config.OrderingKey panicked", cause: panicError{p}}
		}
	}()
	e.OrderingKey = d.config.OrderingKey(e.Type, bytes.Clone(data))
	return checkKey("ordering_key", e.OrderingKey)
}

// trace returns what names the publisher's trace; empty without one.
func (d *Dispatcher) trace(ctx context.Context) (trace string) {
	if d.config.Trace == nil {
		return ""
	}
	defer func() {
		if p := recover(); p != nil {
			trace = ""
			d.config.Logger.Error("webhook: Config.Trace panicked", "panic", fmt.Sprint(p))
		}
	}()
	if trace = d.config.Trace(ctx); !isTraceparent(trace) {
		return ""
	}
	return trace
}

// isTraceparent reports whether s is a version 00 traceparent: four fields of
// lower-case hexadecimal digits (W3C Trace Context, section 3.2.2).
func isTraceparent(s string) bool {
	const form = "00-................................-................-.."
	if len(s) != len(form) {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case form[i] != '.':
			if c != form[i] {
				return false
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return false
		}
	}
	return true
}

func (d *Dispatcher) checkBody(size int) error {
	if size > d.config.MaxBody {
		return &InvalidError{Field: "data", Rule: fmt.Sprintf("makes a body of %d bytes, over the limit of %d", size, d.config.MaxBody)}
	}
	return nil
}

// put stores events, in the host's transaction if there is one.
func (d *Dispatcher) put(ctx context.Context, tx store.Publisher, events []store.NewEvent, now time.Time) ([]Receipt, error) {
	p := store.PublishParams{Events: events, Now: now}
	if tx != nil {
		// Nothing to hand off: the host may still roll back.
		r, err := tx.Publish(ctx, p)
		if err == nil {
			d.published(ctx, events, r.Receipts, true)
		}
		return r.Receipts, publishError(err)
	}
	size := 0
	for i := range events {
		size += len(events[i].Payload)
	}
	reserved := d.queue.Reserve(events, size/len(events))
	if reserved != nil {
		p.Handoff = &reserved.Lease
	}
	var r store.PublishResult
	defer func() { d.queue.Offer(reserved, r.Leases, r.Queued) }() // also if the store panics
	r, err := d.store.Publish(ctx, p)
	if errors.Is(err, ErrOutcomeUnknown) {
		r = store.PublishResult{Queued: true} // or leased, to nobody: look when that ends
	}
	if err == nil {
		d.published(ctx, events, r.Receipts, false)
	}
	return r.Receipts, publishError(err)
}

func publishError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("webhook: publish: %w", err)
}

// ask calls a function of the host's and contains a panic in it.
func ask[T any](d *Dispatcher, f func(context.Context, T) error, name string, ctx context.Context, v T) (err error) {
	if f == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			// Not the value: it may hold what the function was asked about.
			d.config.Logger.Error("webhook: panic in Config."+name, "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			err = &askError{name, panicError{p}}
		}
	}()
	return f(ctx, v)
}

// askError reports a panic in a function of the host's.
type askError struct {
	name  string
	cause panicError
}

func (e *askError) Error() string { return "webhook: Config." + e.name + " panicked" }

// Unwrap returns the panic, which is left out of the text.
func (e *askError) Unwrap() error { return e.cause }
