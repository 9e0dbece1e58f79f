package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

// ours is this library, with its default settings.
type ours struct {
	*webhook.Dispatcher
	store *watchedStore
	end   func() error // ends Run
}

func openStore(ctx context.Context, name, dir string) (store.Store, error) {
	switch name {
	case "memory":
		return memorystore.New(memorystore.Options{}), nil
	case "sqlite": // synchronous=FULL: it has no other setting
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		return sqlitestore.Open(ctx, filepath.Join(dir, "webhook.db"))
	}
	return nil, fmt.Errorf("no such store: %q", name)
}

// newDispatcher returns a Dispatcher with the default settings on a watched store.
func newDispatcher(st store.Store) (*ours, error) {
	w := &watchedStore{Store: st}
	d, err := webhook.New(w, webhook.Config{
		Egress: webhook.Egress{AllowLoopback: true}, // the receiver is on this machine
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	return &ours{Dispatcher: d, store: w}, nil
}

// run starts the delivering.
func (o *ours) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	o.end = func() error {
		cancel()
		return <-ended
	}
}

// addEndpoints creates endpoints in one workspace.
func (o *ours) addEndpoints(ctx context.Context, workspaceID int64, urls []string, maxInFlight int) error {
	for _, u := range urls {
		_, _, err := o.CreateEndpoint(ctx, webhook.EndpointParams{
			WorkspaceID: workspaceID, URL: u, Events: []string{"link.*"}, MaxInFlight: maxInFlight,
			Secret: webhook.NewSecret(benchSecret),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func openOurs(ctx context.Context, s setup) (system, error) {
	st, err := openStore(ctx, s.Name, s.Dir)
	if err != nil {
		return nil, err
	}
	o, err := newDispatcher(st)
	if err != nil {
		return nil, err
	}
	if err := o.addEndpoints(ctx, workspace, s.URLs, s.MaxInFlight); err != nil {
		return nil, err
	}
	o.run(ctx)
	return o, nil
}

func (o *ours) publish(ctx context.Context, batch []json.RawMessage) error {
	return o.publishTo(ctx, workspace, batch)
}

func (o *ours) publishTo(ctx context.Context, workspaceID int64, batch []json.RawMessage) error {
	if len(batch) == 1 {
		_, err := o.Publish(ctx, webhook.Event{Type: eventType, WorkspaceID: workspaceID, Data: batch[0]})
		return err
	}
	events := make([]webhook.Event, len(batch))
	for i := range batch {
		events[i] = webhook.Event{Type: eventType, WorkspaceID: workspaceID, Data: batch[i]}
	}
	_, err := o.PublishMany(ctx, events)
	return err
}

// fill publishes n events in large batches.
func (o *ours) fill(ctx context.Context, workspaceID int64, n int) error {
	for ; n > 0; n -= webhook.MaxEvents {
		if err := o.publishTo(ctx, workspaceID, newBatch(min(n, webhook.MaxEvents))); err != nil {
			return err
		}
	}
	return nil
}

func (o *ours) recorded(ctx context.Context, n int) (time.Time, error) {
	_, err := pollDone(ctx, 200*time.Microsecond, func() (bool, error) {
		if f := o.store.failed.Load(); f > 0 {
			return false, fmt.Errorf("%d attempts failed", f)
		}
		return o.store.delivered.Load() >= int64(n), nil
	})
	return time.Unix(0, o.store.deliveredAt.Load()), err
}

func (o *ours) databaseCPU() time.Duration { return 0 } // SQLite runs in this process

func (o *ours) close() (err error) {
	if o.end != nil {
		err = o.end()
	}
	return errors.Join(err, o.store.Close())
}

// watchedStore counts what a Dispatcher asks of its store.
type watchedStore struct {
	store.Store
	delivered, failed atomic.Int64 // outcomes recorded
	deliveredAt       atomic.Int64 // when the last, in Unix nanoseconds
	reads, writes     atomic.Int64 // calls that read, and calls that take the write lock
}

func (w *watchedStore) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	w.writes.Add(1)
	return w.Store.Publish(ctx, p)
}

func (w *watchedStore) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	w.writes.Add(1)
	return w.Store.Claim(ctx, p)
}

func (w *watchedStore) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	w.writes.Add(1)
	r, err := w.Store.Record(ctx, p)
	if err != nil {
		return r, err
	}
	delivered := 0
	for i := range p.Outcomes {
		if p.Outcomes[i].Status == store.StatusDelivered {
			delivered++
		}
	}
	w.failed.Add(int64(len(p.Outcomes) - delivered))
	w.delivered.Add(int64(delivered - len(r.Stale)))
	w.deliveredAt.Store(time.Now().UnixNano())
	return r, nil
}

func (w *watchedStore) Renew(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
	w.writes.Add(1)
	return w.Store.Renew(ctx, leases, until)
}

func (w *watchedStore) Release(ctx context.Context, releases []store.Release) error {
	w.writes.Add(1)
	return w.Store.Release(ctx, releases)
}

func (w *watchedStore) Maintain(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
	w.writes.Add(1)
	return w.Store.Maintain(ctx, p)
}

func (w *watchedStore) Probe(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
	w.reads.Add(1)
	return w.Store.Probe(ctx, p)
}
