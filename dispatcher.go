package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/elido-app/webhook/internal/egress"
	"github.com/elido-app/webhook/internal/queue"
	"github.com/elido-app/webhook/store"
)

// Dispatcher publishes events and delivers them. Make one with New. All its
// methods are safe for concurrent use. A process that only publishes never calls
// Run; any number of processes may share a store that allows it.
type Dispatcher struct {
	store  store.Store
	config Config
	keys   keyring
	client *egress.Client
	queue  *queue.Queue

	notices   notices
	warnClear sync.Once
	active    activity
}

// New returns a Dispatcher on a store. It starts no goroutine and does not call
// the store, which stays the caller's to close, after Run has returned. An error
// is an [*InvalidError] that names the field of Config.
func New(st store.Store, config Config) (*Dispatcher, error) {
	if st == nil {
		return nil, &InvalidError{Field: "store", Rule: "is required"}
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	config.Logger = slog.New(guard{config.Logger.Handler()})
	d := &Dispatcher{store: st, config: config}
	d.notices = notices{observer: config.Observer, log: config.Logger, signal: make(chan struct{}, 1)}
	if d.keys, err = config.Keys.open(); err != nil {
		return nil, err
	}
	if d.client, err = egress.New(config.Egress.options(config.Workers)); err != nil {
		return nil, &InvalidError{Field: "Egress", Rule: err.Error()}
	}
	d.queue = queue.New(queue.Config{
		Store:       st,
		Sender:      &sender{d},
		Logger:      config.Logger,
		Health:      config.Health.policy(),
		Workers:     config.Workers,
		Slow:        config.SlowRequests,
		PerEndpoint: config.MaxInFlight,
		MaxBody:     config.MaxBody,
		HeldBytes:   config.MaxHeldBytes,
		Poll:        config.Poll,
		Timeout:     config.Timeout,
		BodyTime:    bodyTime,
		Lease:       config.Lease,
		Grace:       max(config.Grace, 0),
		Recorded:    d.recorded,
		Maintain:    d.maintain,
	})
	return d, nil
}

// Run delivers until ctx is cancelled: then it starts nothing new, lets running
// requests finish within Config.Grace, cuts the rest, gives back to the queue
// what could not finish, and returns nil. It owns every goroutine of the
// Dispatcher; none is left when it returns.
//
// It fails if the store does not answer at the start, with [ErrClock] if this
// host's clock is off then, with [ErrClosed] if the store is closed under it, and
// with [ErrRunning] if it runs already. Other store errors are logged and tried
// again. A clock that is found to be off later is logged, and nothing is claimed
// until it is right again.
func (d *Dispatcher) Run(ctx context.Context) error {
	defer d.active.enter(d.client.Close)()
	d.warnClear.Do(func() {
		if d.keys.aeads == nil {
			d.config.Logger.Warn("webhook: secrets are stored in the clear; set Config.Keys to encrypt them")
		}
	})
	d.config.Logger.Info("webhook: dispatcher started", "workers", d.config.Workers)
	end := d.notices.run(ctx)
	err := d.queue.Run(ctx)
	end()
	switch {
	case errors.Is(err, queue.ErrRunning):
		return ErrRunning
	case err != nil:
		return fmt.Errorf("webhook: %w", err)
	}
	d.config.Logger.Info("webhook: dispatcher stopped")
	return nil
}

// RunOnce makes the attempts that are due now, one after the other on the
// caller's goroutine, and returns how many. It is for tests and for cron: a
// service calls Run. When ctx is cancelled it gives back what is under way and
// returns ctx's error.
func (d *Dispatcher) RunOnce(ctx context.Context) (int, error) {
	defer d.active.enter(d.client.Close)()
	n, err := d.queue.RunOnce(ctx)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("webhook: %w", err)
	}
	return n, err
}

// Wake makes a running Dispatcher look into the store now. Call it after a
// transaction with PublishTx has been committed; without it the next poll finds
// the events.
func (d *Dispatcher) Wake() { d.queue.Wake() }

// Catalog returns a copy of the event types the Dispatcher knows.
func (d *Dispatcher) Catalog() *Catalog { return d.config.Catalog.clone() }

// maintainRows bounds one piece of housekeeping.
const maintainRows = 500

// maintainEvery is how often there is housekeeping when none is due.
const maintainEvery = 10 * time.Minute

// keysKept is how long idempotency keys are remembered.
const keysKept = 24 * time.Hour

// maintain does one piece of housekeeping and says when the next is due.
func (d *Dispatcher) maintain(ctx context.Context, now time.Time) (time.Time, error) {
	p := store.MaintainParams{
		Now:              now,
		KeepPerEndpoint:  d.config.Retention.MaxPerEndpoint,
		ForgetKeysBefore: now.Add(-keysKept),
		Limit:            maintainRows,
	}
	if age := d.config.Retention.MaxAge; age > 0 {
		p.PruneBefore = now.Add(-age)
	}
	r, err := d.store.Maintain(ctx, p)
	if err != nil {
		return now, err
	}
	if r.Erased+r.Pruned+r.Purged+r.Keys > 0 {
		d.config.Logger.Debug("webhook: housekeeping", "erased_secrets", r.Erased,
			"pruned", r.Pruned, "purged", r.Purged, "forgotten_keys", r.Keys)
	}
	next := now.Add(maintainEvery)
	switch {
	case r.More:
		next = now
	case !r.NextEnd.IsZero() && r.NextEnd.Before(next):
		next = r.NextEnd
	}
	return next, nil
}

// Maintain does all housekeeping that is due: it erases old secrets after their
// overlap, prunes the log by Config.Retention, removes the rows of deleted
// endpoints and forgets old idempotency keys. Run does the same by itself, in
// small pieces.
func (d *Dispatcher) Maintain(ctx context.Context) error {
	for now := time.Now(); ; {
		next, err := d.maintain(ctx, now)
		if err != nil {
			return fmt.Errorf("webhook: maintain: %w", err)
		}
		if next.After(now) {
			return nil
		}
	}
}

// recorded writes the log lines of what became of attempts, and tells the
// observer.
func (d *Dispatcher) recorded(outcomes []store.Outcome, lease func(i int) *store.Lease, r store.RecordResult) {
	log := d.config.Logger
	ctx := context.Background()
	var list []Notice
	stale := make(map[int64]bool, len(r.Stale))
	for _, id := range r.Stale {
		stale[id] = true
		log.Warn("webhook: result dropped: the delivery was taken over, retried or deleted meanwhile", "delivery_id", id)
	}
	for i := range outcomes {
		o := &outcomes[i]
		if d.config.Observer != nil && !stale[o.DeliveryID] {
			list = finished(list, o, lease(i))
		}
		level, text := slog.LevelDebug, "webhook: delivered"
		switch o.Status {
		case StatusPending:
			level, text = slog.LevelInfo, "webhook: attempt failed, will retry"
		case StatusFailed:
			level, text = slog.LevelWarn, "webhook: delivery failed for good"
		}
		if stale[o.DeliveryID] || !log.Enabled(ctx, level) {
			continue
		}
		attrs := []slog.Attr{
			slog.Int64("delivery_id", o.DeliveryID),
			slog.Int64("endpoint_id", o.EndpointID),
			slog.Int("status", o.Attempt.Status),
			slog.Duration("latency", o.Attempt.Latency),
		}
		switch {
		case len(o.Attempt.Error) == 0:
		case o.Attempt.Status != 0: // the reason that a chat's server gave is for the delivery log
			attrs = append(attrs, slog.String("error", statusText(o.Attempt.Status)))
		default:
			attrs = append(attrs, slog.String("error", string(o.Attempt.Error)))
		}
		if o.Status == StatusPending {
			attrs = append(attrs, slog.Time("next_attempt_at", o.NextAttemptAt))
		}
		log.LogAttrs(ctx, level, text, attrs...)
	}
	for _, c := range r.Changes {
		list = d.changed(list, c)
	}
	if d.config.Observer != nil && len(list) > 0 {
		d.notices.add(list)
	}
}

// guard contains panics of the host's log handler.
type guard struct{ slog.Handler }

func (g guard) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	defer func() { _ = recover() }() // there is nowhere left to report it
	return g.Handler.Enabled(ctx, level)
}

func (g guard) Handle(ctx context.Context, r slog.Record) error {
	defer func() { _ = recover() }()
	return g.Handler.Handle(ctx, r)
}

// activity counts Run and RunOnce calls under way; the last one out turns off
// the lights.
type activity struct {
	mu sync.Mutex
	n  int
}

func (a *activity) enter(last func()) (leave func()) {
	a.mu.Lock()
	a.n++
	a.mu.Unlock()
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.n--; a.n == 0 {
			last()
		}
	}
}
