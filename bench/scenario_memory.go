package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Memory: what a dispatcher has resident that works on a long SQLite queue with
// 64 lanes busy. One process fills the file, another delivers from it and is
// looked at.

const memoryEndpoints = 64

type memorySpec struct {
	Dir      string        `json:"dir"`
	Receiver addresses     `json:"receiver"`
	Queued   int           `json:"queued"`
	For      time.Duration `json:"for"`
}

type memoryResult struct {
	Before    int64 `json:"before"` // resident bytes, before the dispatcher runs
	Mean      int64 `json:"mean"`
	Peak      int64 `json:"peak"`
	Delivered int64 `json:"delivered"`

	Stop      time.Duration `json:"stop"`      // from asking it to stop to its having stopped
	Afterward int64         `json:"afterward"` // delivered meanwhile
}

func fillChild(ctx context.Context, spec memorySpec) (r struct{}, err error) {
	st, err := openStore(ctx, "sqlite", spec.Dir)
	if err != nil {
		return r, err
	}
	o, err := newDispatcher(st)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, o.closeNow()) }()
	if err := o.addEndpoints(ctx, workspace, spec.Receiver.urls("e", memoryEndpoints), 0); err != nil {
		return r, err
	}
	for n := spec.Queued / memoryEndpoints; n > 0; n -= batchEvents {
		if err := o.publishTo(ctx, workspace, newBatch(min(n, batchEvents))); err != nil {
			return r, err
		}
	}
	return r, nil
}

func memoryChild(ctx context.Context, spec memorySpec) (r memoryResult, err error) {
	st, err := openStore(ctx, "sqlite", spec.Dir)
	if err != nil {
		return r, err
	}
	o, err := newDispatcher(st)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, o.store.Close()) }()
	r.Before, _ = rss()
	o.run(ctx)
	var total, samples int64
	for began := time.Now(); time.Since(began) < spec.For; samples++ {
		time.Sleep(50 * time.Millisecond)
		now, _ := rss()
		total += now
	}
	r.Mean = total / samples
	_, r.Peak = rss()
	r.Delivered = o.store.delivered.Load()
	if f := o.store.failed.Load(); f > 0 {
		return r, fmt.Errorf("%d attempts failed", f)
	}
	// Looked at in passing: a stop in the middle of a long queue.
	stop := time.Now()
	if err := o.end(); err != nil {
		return r, err
	}
	r.Stop = time.Since(stop)
	r.Afterward = o.store.delivered.Load() - r.Delivered
	if r.Delivered >= int64(spec.Queued/memoryEndpoints*memoryEndpoints) {
		return r, errors.New("the queue was empty before the end")
	}
	return r, nil
}

func (b *bench) memory(ctx context.Context) error {
	spec := memorySpec{Queued: 1_000_000, For: 10 * time.Second}
	if b.quick {
		spec.Queued, spec.For = 200_000, 1500*time.Millisecond
	}
	b.title("Memory", "%d queued in SQLite for %d endpoints, delivering for %v", spec.Queued, memoryEndpoints, spec.For)
	recv, err := startReceiver(ctx)
	if err != nil {
		return err
	}
	defer recv.stop()
	dir, remove, err := b.tempDir()
	if err != nil {
		return err
	}
	defer remove()
	spec.Dir, spec.Receiver = dir, recv.addresses
	b.progress("filling")
	if _, err := spawn[struct{}](ctx, b.limit(2*time.Minute), "fill", spec); err != nil {
		return err
	}
	b.progress("delivering")
	r, err := spawn[memoryResult](ctx, b.limit(time.Minute), "memory", spec)
	if err != nil {
		return err
	}
	t := b.table("", "MiB before", "MiB, mean", "MiB, peak", "delivered meanwhile", "stopped after ms", "delivered until then")
	t.row("SQLite", mib(r.Before), mib(r.Mean), mib(r.Peak), r.Delivered, fmt.Sprintf("%.1f", ms(r.Stop)), r.Afterward)
	t.print()
	if r.Peak > 0 {
		b.goal("memory-rss-mib", float64(r.Peak)/(1<<20), "<=", 100)
	} else {
		b.note("no /proc here, so resident memory is not known")
	}
	return nil
}
