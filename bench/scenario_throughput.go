package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Throughput: events are published in batches while they are delivered. What
// counts is the time from the first publish to the last arrival and the last
// record, whichever is later.

// contender is one row of the table.
type contender struct {
	label       string
	system      string
	endpoints   int
	maxInFlight int
	single      bool // publishes of one event each, from 64 goroutines
	deliveries  int  // in a round
	quick       int  // the same with -quick
}

const bareLabel = "bare loop"

var contenders = []contender{
	{label: bareLabel, system: "bare", endpoints: 10, deliveries: 100_000, quick: 15_000},
	{label: "memory, 10 endpoints", system: "memory", endpoints: 10, deliveries: 200_000, quick: 25_000},
	{label: "memory, 1 endpoint", system: "memory", endpoints: 1, maxInFlight: 64, deliveries: 100_000, quick: 20_000},
	{label: "SQLite, 10 endpoints", system: "sqlite", endpoints: 10, deliveries: 200_000, quick: 25_000},
	{label: "SQLite, 1 endpoint", system: "sqlite", endpoints: 1, maxInFlight: 64, deliveries: 100_000, quick: 20_000},
	{label: "SQLite, single publishes", system: "sqlite", endpoints: 10, single: true, deliveries: 60_000, quick: 10_000},
	// "Postgres, 10 endpoints" and "Postgres, 1 endpoint" belong here, see system.go.
	{label: "River, Postgres", system: "river-postgres", endpoints: 10, deliveries: 50_000, quick: 5_000},
	{label: "River, SQLite", system: "river-sqlite", endpoints: 10, deliveries: 10_000, quick: 2_000},
	{label: "goqite, SQLite", system: "goqite", endpoints: 10, deliveries: 8_000, quick: 1_000},
	{label: "asynq, Redis", system: "asynq", endpoints: 10, deliveries: 20_000, quick: 3_000},
}

// batchEvents is how many events are published at a time.
const batchEvents = 100

type throughputSpec struct {
	setup
	Receiver   addresses `json:"receiver"`
	Single     bool      `json:"single,omitempty"`
	Deliveries int       `json:"deliveries"`
	Profile    string    `json:"profile,omitempty"`  // a directory
	Profiles   []string  `json:"profiles,omitempty"` // which
}

type throughputResult struct {
	Deliveries int           `json:"deliveries"`
	Elapsed    time.Duration `json:"elapsed"`
	CPU        time.Duration `json:"cpu"`      // of the contender
	Receiver   time.Duration `json:"receiver"` // CPU of the receiver
	Database   time.Duration `json:"database"` // CPU of its server
	Peak       int64         `json:"peak"`     // resident, bytes
	Twice      int64         `json:"twice"`    // arrivals beyond the deliveries
}

func (r throughputResult) rate() float64 { return float64(r.Deliveries) / r.Elapsed.Seconds() }

func throughputChild(ctx context.Context, spec throughputSpec) (throughputResult, error) {
	run := systemRun
	switch {
	case spec.Name == "bare":
		run = bareRun
	case spec.Single:
		run = singleRun
	}
	return run(ctx, spec)
}

// measurement is what was before something that is measured.
type measurement struct {
	recv     addresses
	before   Arrivals
	cpu      time.Duration
	database func() time.Duration
	db       time.Duration
	start    time.Time
	end      func() error
}

func begin(ctx context.Context, spec throughputSpec, n int, database func() time.Duration) (*measurement, error) {
	m := &measurement{recv: spec.Receiver, database: database}
	runtime.GC() // of what preparing left behind
	var err error
	if m.before, err = m.recv.reset(ctx, n); err != nil {
		return nil, err
	}
	if m.end, err = startProfiles(spec.Profile, spec.Profiles); err != nil {
		return nil, err
	}
	m.db = database()
	m.cpu = cpu()
	m.start = time.Now()
	return m, nil
}

// result waits for the last arrival. Recorded is when the last was recorded.
func (m *measurement) result(ctx context.Context, n int, recorded func() (time.Time, error)) (throughputResult, error) {
	r := throughputResult{Deliveries: n}
	arrived, err := m.recv.wait(ctx)
	if err != nil {
		return r, err
	}
	last := arrived.Last
	at, err := recorded()
	if err != nil {
		return r, err
	}
	if at.After(last) {
		last = at
	}
	r.Elapsed = last.Sub(m.start.Round(0)) // without its monotonic reading, as last has none of this process
	r.CPU = cpu() - m.cpu
	r.Database = m.database() - m.db
	if err := m.end(); err != nil {
		return r, err
	}
	time.Sleep(20 * time.Millisecond) // for what should not come
	if err := m.recv.check(ctx); err != nil {
		return r, err
	}
	now, err := m.recv.now(ctx)
	r.Receiver = now.CPU - m.before.CPU
	r.Twice = now.Count - int64(n)
	_, r.Peak = rss()
	return r, err
}

func noDatabase() time.Duration { return 0 }

func bareRun(ctx context.Context, spec throughputSpec) (throughputResult, error) {
	p := newPoster(spec.URLs, bareWorkers)
	defer p.close()
	if err := bare(p, 1000); err != nil {
		return throughputResult{}, err
	}
	m, err := begin(ctx, spec, spec.Deliveries, noDatabase)
	if err != nil {
		return throughputResult{}, err
	}
	if err := bare(p, spec.Deliveries); err != nil {
		return throughputResult{}, err
	}
	return m.result(ctx, spec.Deliveries, func() (time.Time, error) { return time.Time{}, nil })
}

func systemRun(ctx context.Context, spec throughputSpec) (r throughputResult, err error) {
	sys, err := open(ctx, spec.setup)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close()) }()
	each := len(spec.URLs)

	// Connections are made and caches filled before the clock starts: the bare
	// loop has the same.
	warm := 1000 / each
	if _, err := spec.Receiver.reset(ctx, warm*each); err != nil {
		return r, err
	}
	if err := sys.publish(ctx, newBatch(warm)); err != nil {
		return r, err
	}
	if _, err := spec.Receiver.wait(ctx); err != nil {
		return r, err
	}
	if _, err := sys.recorded(ctx, warm*each); err != nil {
		return r, err
	}

	events := spec.Deliveries / each
	n := events * each
	m, err := begin(ctx, spec, n, sys.databaseCPU)
	if err != nil {
		return r, err
	}
	for left := events; left > 0; left -= batchEvents {
		if err := sys.publish(ctx, newBatch(min(left, batchEvents))); err != nil {
			return r, err
		}
	}
	return m.result(ctx, n, func() (time.Time, error) { return sys.recorded(ctx, (warm+events)*each) })
}

// singleRun has 64 goroutines publish one event after the other, each to one of
// the endpoints, which are in workspaces of their own.
func singleRun(ctx context.Context, spec throughputSpec) (r throughputResult, err error) {
	urls := spec.URLs
	spec.URLs = nil
	sys, err := open(ctx, spec.setup)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close()) }()
	o := sys.(*ours)
	for i, u := range urls {
		if err := o.addEndpoints(ctx, int64(workspace+i), []string{u}, 0); err != nil {
			return r, err
		}
	}
	const warm = 1000
	if _, err := spec.Receiver.reset(ctx, warm); err != nil {
		return r, err
	}
	if err := publishSingly(ctx, o, len(urls), warm); err != nil {
		return r, err
	}
	if _, err := spec.Receiver.wait(ctx); err != nil {
		return r, err
	}
	if _, err := o.recorded(ctx, warm); err != nil {
		return r, err
	}
	m, err := begin(ctx, spec, spec.Deliveries, noDatabase)
	if err != nil {
		return r, err
	}
	if err := publishSingly(ctx, o, len(urls), spec.Deliveries); err != nil {
		return r, err
	}
	return m.result(ctx, spec.Deliveries, func() (time.Time, error) { return o.recorded(ctx, warm+spec.Deliveries) })
}

func publishSingly(ctx context.Context, o *ours, workspaces, n int) error {
	var (
		next atomic.Int64
		wg   sync.WaitGroup
	)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for range 64 {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := next.Add(1)
				if i > int64(n) {
					return
				}
				if err := o.publishTo(ctx, workspace+i%int64(workspaces), []json.RawMessage{newData()}); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// startProfiles starts profiles of some kinds, which the func it returns writes.
func startProfiles(dir string, kinds []string) (end func() error, err error) {
	if slices.Contains(kinds, "block") {
		runtime.SetBlockProfileRate(1000) // one sample for each µs of waiting
	}
	if slices.Contains(kinds, "mutex") {
		runtime.SetMutexProfileFraction(10)
	}
	var cpuFile *os.File
	if slices.Contains(kinds, "cpu") {
		if cpuFile, err = os.Create(filepath.Join(dir, "cpu.pprof")); err != nil { //nolint:gosec // the directory is the user's
			return nil, err
		}
		if err := pprof.StartCPUProfile(cpuFile); err != nil {
			return nil, err
		}
	}
	return func() error {
		var errs []error
		for _, kind := range kinds {
			if kind == "cpu" {
				pprof.StopCPUProfile()
				errs = append(errs, cpuFile.Close())
				continue
			}
			f, err := os.Create(filepath.Join(dir, kind+".pprof")) //nolint:gosec // the directory is the user's
			if err != nil {
				return err
			}
			errs = append(errs, pprof.Lookup(kind).WriteTo(f, 0), f.Close())
		}
		return errors.Join(errs...)
	}, nil
}

// The parent's side.

func (b *bench) throughput(ctx context.Context) error {
	var chosen []contender
	for _, c := range contenders {
		if b.quick {
			c.deliveries = c.quick
		}
		if b.only == nil || c.label == bareLabel || slices.Contains(b.only, c.system) {
			chosen = append(chosen, c)
		}
	}
	b.title("Throughput", "%d rounds; events are published %d at a time while they are delivered", b.rounds, batchEvents)

	rounds := make([]map[string]throughputResult, 0, b.rounds)
	gone := map[string]bool{}
	began := time.Now()
	for i := range b.rounds {
		if b.quick && i > 0 && time.Since(began)*time.Duration(i+1)/time.Duration(i) > quickThroughput {
			b.note("stopped after %d rounds, as another would take this part beyond %v", i, quickThroughput)
			break
		}
		round := map[string]throughputResult{}
		// Everybody gets to run early and late, right after each of the others'
		// neighbours; the bare loop runs first and last and counts with its mean.
		order := slices.Concat(chosen[1:], chosen[1:])[i%max(len(chosen)-1, 1):][:len(chosen)-1]
		for _, c := range slices.Concat(chosen[:1], order, chosen[:1]) {
			if gone[c.label] {
				continue
			}
			b.progress("round %d: %s", i+1, c.label)
			r, err := b.runThroughput(ctx, c, "", nil)
			var s *skip
			switch {
			case errors.As(err, &s):
				gone[c.label] = true
				b.note("%s skipped: %s", c.label, s.why)
				continue
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				gone[c.label] = true
				b.fail("%s: %v", c.label, err)
				continue
			}
			if first, ok := round[c.label]; ok { // the bare loop again
				r.Deliveries += first.Deliveries
				r.Elapsed += first.Elapsed
				r.CPU += first.CPU
				r.Receiver += first.Receiver
				r.Peak = max(r.Peak, first.Peak)
			}
			round[c.label] = r
		}
		rounds = append(rounds, round)
	}
	b.throughputTable(chosen, rounds)
	of := func(name, label, beside string, goal float64) {
		var ratios []float64
		for _, round := range rounds {
			r, ok1 := round[label]
			x, ok2 := round[beside]
			if ok1 && ok2 {
				ratios = append(ratios, r.rate()/x.rate())
			}
		}
		if len(ratios) > 0 {
			b.goal(name, median(ratios), ">=", goal)
		}
	}
	of("memory-10-endpoints-of-bare", "memory, 10 endpoints", bareLabel, 1)
	of("memory-1-endpoint-of-bare", "memory, 1 endpoint", bareLabel, 1)
	of("sqlite-10-endpoints-of-bare", "SQLite, 10 endpoints", bareLabel, 0.85)
	of("sqlite-1-endpoint-of-bare", "SQLite, 1 endpoint", bareLabel, 0.85)
	of("sqlite-single-publishes-of-bare", "SQLite, single publishes", bareLabel, 0.60)
	of("sqlite-vs-river-sqlite", "SQLite, 10 endpoints", "River, SQLite", 10)
	of("sqlite-vs-goqite", "SQLite, 10 endpoints", "goqite, SQLite", 15)
	of("postgres-of-bare", "Postgres, 10 endpoints", bareLabel, 0.70)
	of("postgres-vs-river-postgres", "Postgres, 10 endpoints", "River, Postgres", 2.5)
	of("postgres-vs-asynq", "Postgres, 10 endpoints", "asynq, Redis", 4)

	if b.profile == "" {
		return nil
	}
	// Profiling costs, so it has runs of its own, and block and mutex profiles
	// another than CPU.
	i := slices.IndexFunc(contenders, func(c contender) bool { return c.label == "SQLite, 10 endpoints" })
	for _, kinds := range [][]string{{"cpu", "allocs"}, {"block", "mutex"}} {
		b.progress("profiling %v", kinds)
		c := contenders[i]
		if b.quick {
			c.deliveries = c.quick
		}
		if _, err := b.runThroughput(ctx, c, b.profile, kinds); err != nil {
			return fmt.Errorf("profiling: %w", err)
		}
	}
	b.note("profiles of %s are in %s", contenders[i].label, b.profile)
	return nil
}

// quickThroughput is how long this scenario may take with -quick.
const quickThroughput = 15 * time.Second

func (b *bench) runThroughput(ctx context.Context, c contender, profile string, kinds []string) (throughputResult, error) {
	recv, err := startReceiver(ctx)
	if err != nil {
		return throughputResult{}, err
	}
	defer recv.stop()
	dir, remove, err := b.tempDir()
	if err != nil {
		return throughputResult{}, err
	}
	defer remove()
	return spawn[throughputResult](ctx, b.limit(2*time.Minute), "throughput", throughputSpec{
		setup: setup{
			Name: c.system, Dir: dir, URLs: recv.urls("e", c.endpoints), MaxInFlight: c.maxInFlight,
			Postgres: b.postgres, Redis: b.redis,
		},
		Receiver: recv.addresses, Single: c.single, Deliveries: c.deliveries, Profile: profile, Profiles: kinds,
	})
}

func (b *bench) throughputTable(chosen []contender, rounds []map[string]throughputResult) {
	t := b.table("", "deliveries", "per second, median", "min to max", "of bare", "CPU µs each: own", "receiver", "database", "peak MiB", "twice")
	for _, c := range chosen {
		var rates, ofBare, own, receiver, database []float64
		var peak, twice int64
		n := 0
		for _, round := range rounds {
			r, ok := round[c.label]
			if !ok {
				continue
			}
			n = r.Deliveries
			each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(r.Deliveries) }
			rates = append(rates, r.rate())
			own, receiver, database = append(own, each(r.CPU)), append(receiver, each(r.Receiver)), append(database, each(r.Database))
			peak, twice = max(peak, r.Peak), twice+r.Twice
			if x, ok := round[bareLabel]; ok {
				ofBare = append(ofBare, r.rate()/x.rate())
			}
		}
		if len(rates) == 0 {
			continue
		}
		db := "-"
		if m := median(database); m > 0 {
			db = fmt.Sprintf("%.0f", m)
		}
		t.row(c.label, n, fmt.Sprintf("%.0f", median(rates)), fmt.Sprintf("%.0f to %.0f", slices.Min(rates), slices.Max(rates)),
			fmt.Sprintf("%.2f", median(ofBare)), fmt.Sprintf("%.1f", median(own)), fmt.Sprintf("%.1f", median(receiver)), db, mib(peak), twice)
	}
	t.print()
}
