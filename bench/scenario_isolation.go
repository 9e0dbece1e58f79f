package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// Isolation: 20 healthy endpoints, alone, and beside 101 that never answer: 100
// with 1,000 deliveries queued each and one with 100,000. On SQLite.
//
// Measured when all that hang are under way: how fast the healthy ones get a
// burst of events, then how soon each of a slow, steady stream. Both go on for
// longer than the time limit of 10 s, after which what hangs is tried anew.

const (
	healthyWorkspace = 1
	hangingWorkspace = 2 // with 100 endpoints
	hugeWorkspace    = 3 // with one
	healthyEndpoints = 20
	hangingEndpoints = 100
)

type isolationSpec struct {
	Dir      string        `json:"dir"`
	Receiver addresses     `json:"receiver"`
	Hanging  int           `json:"hanging"` // deliveries queued for each; zero: nothing hangs
	Huge     int           `json:"huge"`    // deliveries queued for the one
	Burst    time.Duration `json:"burst"`   // at least
	Stream   time.Duration `json:"stream"`
}

type isolationResult struct {
	Cold     time.Duration   `json:"cold"` // from the start to the first arrivals at all healthy endpoints
	Rate     float64         `json:"rate"` // healthy deliveries a second, in the burst
	Arrived  int             `json:"arrived"`
	Delays   []time.Duration `json:"delays"` // in the stream
	Hung     int64           `json:"hung"`   // requests that were never answered
	TimedOut int64           `json:"timed_out"`
	Peak     int64           `json:"peak"` // resident, bytes
}

func isolationChild(ctx context.Context, spec isolationSpec) (r isolationResult, err error) {
	st, err := openStore(ctx, "sqlite", spec.Dir)
	if err != nil {
		return r, err
	}
	o, err := newDispatcher(st)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, o.closeNow()) }()
	if err := o.addEndpoints(ctx, healthyWorkspace, spec.Receiver.urls("t", healthyEndpoints), 0); err != nil {
		return r, err
	}
	if spec.Hanging > 0 {
		if err := o.addEndpoints(ctx, hangingWorkspace, spec.Receiver.urls("hang", hangingEndpoints), 0); err != nil {
			return r, err
		}
		if err := o.addEndpoints(ctx, hugeWorkspace, spec.Receiver.urls("hang/huge", 1), 0); err != nil {
			return r, err
		}
		if err := o.fill(ctx, hangingWorkspace, spec.Hanging); err != nil {
			return r, err
		}
		if err := o.fill(ctx, hugeWorkspace, spec.Huge); err != nil {
			return r, err
		}
	}

	// Cold: everything is queued before the dispatcher starts.
	if err := o.publishTo(ctx, healthyWorkspace, newBatch(1)); err != nil {
		return r, err
	}
	if _, err := spec.Receiver.reset(ctx, healthyEndpoints); err != nil {
		return r, err
	}
	began := time.Now()
	o.run(ctx)
	arrived, err := spec.Receiver.wait(ctx)
	if err != nil {
		return r, err
	}
	r.Cold = arrived.Last.Sub(began.Round(0))
	if spec.Hanging > 0 {
		_, err := pollDone(ctx, 10*time.Millisecond, func() (bool, error) {
			now, err := spec.Receiver.now(ctx)
			return now.Hung > hangingEndpoints, err
		})
		if err != nil {
			return r, fmt.Errorf("what hangs did not get under way: %w", err)
		}
	}
	runtime.GC()

	// The burst: whole batches, one when the one before is through, until the
	// time is over.
	const batches, events = 5, 200
	began = time.Now()
	for elapsed := time.Duration(0); elapsed < spec.Burst; {
		if _, err := spec.Receiver.reset(ctx, batches*events*healthyEndpoints); err != nil {
			return r, err
		}
		for range batches {
			if err := o.publishTo(ctx, healthyWorkspace, newBatch(events)); err != nil {
				return r, err
			}
		}
		arrived, err := spec.Receiver.wait(ctx)
		if err != nil {
			return r, err
		}
		elapsed = arrived.Last.Sub(began.Round(0))
		r.Arrived += batches * events * healthyEndpoints
		r.Rate = float64(r.Arrived) / elapsed.Seconds()
	}

	// The stream: one event every 10 ms, 2,000 deliveries a second.
	time.Sleep(100 * time.Millisecond)
	ticks := int(spec.Stream / (10 * time.Millisecond))
	if _, err := spec.Receiver.reset(ctx, ticks*healthyEndpoints); err != nil {
		return r, err
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for range ticks {
		<-ticker.C
		if err := o.publishTo(ctx, healthyWorkspace, newBatch(1)); err != nil {
			return r, err
		}
	}
	if _, err := spec.Receiver.wait(ctx); err != nil {
		return r, err
	}
	if r.Delays, err = spec.Receiver.delays(ctx); err != nil {
		return r, err
	}
	now, err := spec.Receiver.now(ctx)
	r.Hung = now.Hung
	r.TimedOut = o.store.failed.Load()
	_, r.Peak = rss()
	return r, err
}

// closeNow closes without waiting for what hangs: the process ends anyway.
func (o *ours) closeNow() error { return o.store.Close() }

func (b *bench) isolation(ctx context.Context) error {
	spec := isolationSpec{Hanging: 1000, Huge: 100_000, Burst: 12 * time.Second, Stream: 12 * time.Second}
	rounds := min(b.rounds, 3)
	if b.quick {
		spec = isolationSpec{Hanging: 100, Huge: 10_000, Burst: time.Second, Stream: time.Second}
		rounds = 1
	}
	b.title("Isolation", "20 healthy endpoints on SQLite, alone and beside 100 that hang with %d queued each and one with %d; %d rounds, burst and stream of %v",
		spec.Hanging, spec.Huge, rounds, spec.Stream)
	if b.quick {
		b.note("a run this short does not reach the time limit of 10 s, after which what hangs is tried anew")
	}
	var with, without []isolationResult
	for i := range rounds {
		for j := range 2 {
			s := spec
			list := &with
			if j == i%2 {
				s.Hanging, s.Huge = 0, 0
				list = &without
			}
			b.progress("round %d: %d queued for each that hangs", i+1, s.Hanging)
			r, err := b.runIsolation(ctx, s)
			if err != nil {
				return err
			}
			*list = append(*list, r)
		}
	}
	t := b.table("", "healthy per second", "p50 ms", "p99 ms", "max ms", "first at all after ms", "hung", "timed out", "peak MiB")
	var rates, tails []float64
	for i := range rounds {
		slices.Sort(with[i].Delays)
		slices.Sort(without[i].Delays)
		rates = append(rates, with[i].Rate/without[i].Rate)
		tails = append(tails, float64(quantile(with[i].Delays, 0.99))/float64(quantile(without[i].Delays, 0.99)))
	}
	for _, row := range []struct {
		label string
		list  []isolationResult
	}{{"alone", without}, {"beside what hangs", with}} {
		for _, r := range row.list {
			t.row(row.label, fmt.Sprintf("%.0f", r.Rate), fmt.Sprintf("%.2f", ms(quantile(r.Delays, 0.5))), fmt.Sprintf("%.2f", ms(quantile(r.Delays, 0.99))),
				fmt.Sprintf("%.2f", ms(r.Delays[len(r.Delays)-1])), fmt.Sprintf("%.1f", ms(r.Cold)), r.Hung, r.TimedOut, mib(r.Peak))
		}
	}
	t.print()
	b.goal("isolation-throughput", median(rates), ">=", 0.90)
	b.goal("isolation-p99", median(tails), "<=", 2)
	return nil
}

func (b *bench) runIsolation(ctx context.Context, spec isolationSpec) (isolationResult, error) {
	recv, err := startReceiver(ctx)
	if err != nil {
		return isolationResult{}, err
	}
	defer recv.stop()
	dir, remove, err := b.tempDir()
	if err != nil {
		return isolationResult{}, err
	}
	defer remove()
	spec.Dir, spec.Receiver = dir, recv.addresses
	return spawn[isolationResult](ctx, b.limit(90*time.Second), "isolation", spec)
}
