package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/elido-app/webhook/store"
)

// Observer is told what happens, for metrics, traces and messages to people.
//
// [EventPublished] comes on the goroutine that publishes, with its context, and
// keeps that waiting. All others come from Run, one after the other on a
// goroutine of their own, so a slow Observer holds up no delivery; one that is
// 10,000 notices behind misses what comes next, and the log says how many. From
// RunOnce they come on the caller's goroutine. A panic is logged. At the end of
// Run what is left is handed over, for a second at most.
type Observer interface {
	Observe(ctx context.Context, n Notice)
}

// ObserverFunc is a function as an [Observer].
type ObserverFunc func(ctx context.Context, n Notice)

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, n Notice) { f(ctx, n) }

// Observers returns an Observer that tells each of list, in this order, on one
// goroutine: a slow one delays the others. A panic in one is logged as ever, and
// the others are told all the same. Nil ones are left out; without any other the
// result is nil.
func Observers(list ...Observer) Observer {
	var all observers
	for _, o := range list {
		if o != nil {
			all = append(all, o)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

type observers []Observer

// Observe tells the first, then the others even if it panics.
func (o observers) Observe(ctx context.Context, n Notice) {
	if len(o) > 1 {
		defer o[1:].Observe(ctx, n)
	}
	o[0].Observe(ctx, n)
}

// Notice is what an [Observer] is told: an EventPublished, an AttemptFinished, a
// DeliveryFailed or an EndpointChanged. Later versions may add more, so leave
// alone what you do not know.
type Notice interface{ notice() }

// EventPublished tells that an event was stored.
type EventPublished struct {
	WorkspaceID int64
	EventID     string
	EventType   string
	DeliveryIDs []int64 // not to be changed
	Repeat      bool    // nothing new was stored
	InTx        bool    // the host's transaction may still roll it back
}

// AttemptFinished tells that the outcome of an attempt was recorded.
type AttemptFinished struct {
	WorkspaceID int64
	EndpointID  int64
	Kind        Kind
	DeliveryID  int64
	EventID     string
	EventType   string

	Number     int           // of the attempt, from 1, on through manual retries
	Attempts   int           // used up of Budget, with this one
	Budget     int           //
	StartedAt  time.Time     // UTC
	Latency    time.Duration // to the answer's headers, or to the error
	HTTPStatus int           // 0: no answer
	Error      string        // empty after a success

	// Status is what the delivery is now. While that is pending, NextAttemptAt
	// says when it is attempted again.
	Status        Status
	NextAttemptAt time.Time

	// Trace is what Config.Trace gave when the event was published.
	Trace string
}

// DeliveryFailed tells that a delivery failed for good, after the
// AttemptFinished of its last attempt: an internal notice of type
// "webhook.failed".
type DeliveryFailed struct{ AttemptFinished }

// EndpointChange is what became of an endpoint's health.
type EndpointChange string

// The changes of an endpoint's health. Each is told once.
const (
	EndpointDegraded  EndpointChange = "degraded"
	EndpointPaused    EndpointChange = "paused"
	EndpointRecovered EndpointChange = "recovered"
)

// EndpointChanged tells that an endpoint's health reached a threshold of
// Config.Health or came back from one. Its owner wants to know.
type EndpointChanged struct {
	WorkspaceID int64
	EndpointID  int64
	Change      EndpointChange
	Reason      string // of a pause, as Endpoint.PauseReason shows it
	Health      Health
}

func (EventPublished) notice()  {}
func (AttemptFinished) notice() {}
func (DeliveryFailed) notice()  {}
func (EndpointChanged) notice() {}

const (
	noticesMost  = 10_000      // waiting for the observer
	noticesDrain = time.Second // to hand over the rest
)

// notices brings notices to the observer.
type notices struct {
	observer Observer
	log      *slog.Logger

	mu      sync.Mutex
	running bool
	list    []Notice
	missed  int
	signal  chan struct{} // one slot
}

// tell hands a notice over on this goroutine.
func (n *notices) tell(ctx context.Context, notice Notice) {
	defer func() {
		if p := recover(); p != nil {
			n.log.Error("webhook: the observer panicked", "notice", fmt.Sprintf("%T", notice), "panic", fmt.Sprint(p))
		}
	}()
	n.observer.Observe(ctx, notice)
}

// add hands notices over, or leaves them to the goroutine that does.
func (n *notices) add(list []Notice) {
	n.mu.Lock()
	running := n.running
	if running {
		room := max(0, noticesMost-len(n.list))
		n.missed += max(0, len(list)-room)
		n.list = append(n.list, list[:min(room, len(list))]...)
	}
	n.mu.Unlock()
	if !running {
		for _, notice := range list {
			n.tell(context.Background(), notice)
		}
		return
	}
	select {
	case n.signal <- struct{}{}:
	default:
	}
}

// run starts the goroutine, and returns what ends it.
func (n *notices) run(ctx context.Context) (end func()) {
	if n.observer == nil {
		return func() {}
	}
	n.mu.Lock()
	n.running = true
	n.mu.Unlock()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			n.drain(ctx)
			select {
			case <-n.signal:
			case <-stop:
				n.drain(ctx)
				return
			}
		}
	}()
	return func() {
		n.mu.Lock()
		n.running = false
		n.mu.Unlock()
		close(stop)
		timer := time.AfterFunc(noticesDrain, cancel)
		defer timer.Stop()
		defer cancel()
		select {
		case <-done:
		case <-ctx.Done():
			n.log.Error("webhook: the observer does not return; it is left behind")
		}
	}
}

// drain hands over all there is.
func (n *notices) drain(ctx context.Context) {
	for {
		n.mu.Lock()
		list, missed := n.list, n.missed
		n.list, n.missed = nil, 0
		n.mu.Unlock()
		if missed > 0 {
			n.log.Warn("webhook: the observer is too slow and missed notices", "missed", missed)
		}
		if len(list) == 0 {
			return
		}
		for _, notice := range list {
			if ctx.Err() != nil {
				return
			}
			n.tell(ctx, notice)
		}
	}
}

// published tells of events that were stored.
func (d *Dispatcher) published(ctx context.Context, events []store.NewEvent, receipts []Receipt, inTx bool) {
	if d.config.Observer == nil {
		return
	}
	for i := range receipts {
		d.notices.tell(ctx, EventPublished{
			WorkspaceID: events[i].WorkspaceID, EventID: receipts[i].EventID, EventType: events[i].Type,
			DeliveryIDs: receipts[i].DeliveryIDs, Repeat: receipts[i].Repeat, InTx: inTx,
		})
	}
}

// finished makes the notices of an attempt.
func finished(list []Notice, o *store.Outcome, l *store.Lease) []Notice {
	n := AttemptFinished{
		WorkspaceID: l.WorkspaceID, EndpointID: o.EndpointID, Kind: l.Target.Kind,
		DeliveryID: o.DeliveryID, EventID: l.EventID, EventType: l.EventType,
		Number: l.TotalAttempts + 1, Attempts: l.Attempts + 1, Budget: l.Budget,
		StartedAt: o.Attempt.StartedAt, Latency: o.Attempt.Latency, HTTPStatus: o.Attempt.Status,
		Error: string(o.Attempt.Error), Status: o.Status, NextAttemptAt: o.NextAttemptAt, Trace: l.Trace,
	}
	list = append(list, n)
	if o.Status == StatusFailed {
		list = append(list, DeliveryFailed{n})
	}
	return list
}

// changed logs a change of an endpoint's health, and makes its notices.
func (d *Dispatcher) changed(list []Notice, c store.HealthChange) []Notice {
	tell := func(change EndpointChange, level slog.Level, reason string) {
		attrs := []any{"endpoint_id", c.EndpointID, "workspace_id", c.WorkspaceID, "failures", c.Health.Failures}
		if reason != "" {
			attrs = append(attrs, "reason", reason)
		}
		d.config.Logger.Log(context.Background(), level, "webhook: endpoint "+string(change), attrs...)
		list = append(list, EndpointChanged{
			WorkspaceID: c.WorkspaceID, EndpointID: c.EndpointID, Change: change, Reason: reason, Health: c.Health,
		})
	}
	if c.Degraded {
		tell(EndpointDegraded, slog.LevelWarn, "")
	}
	if c.Paused {
		tell(EndpointPaused, slog.LevelWarn, d.config.Health.pauseReason())
	}
	if c.Recovered {
		tell(EndpointRecovered, slog.LevelInfo, "")
	}
	return list
}
