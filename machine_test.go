package webhook_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

// machineStores are the stores the machine runs on: how many sequences there are
// by default, and what makes an empty store and returns how a process opens it.
var machineStores = map[string]struct {
	checks int
	create func(dir string) func() (store.Store, error)
}{
	"memory": {100, func(string) func() (store.Store, error) {
		st := memorystore.New(memorystore.Options{FirstDeliveryID: 1})
		return func() (store.Store, error) { return shared{st}, nil }
	}},
	"sqlite": {10, func(dir string) func() (store.Store, error) {
		path := filepath.Join(dir, "webhooks.db")
		return func() (store.Store, error) { return sqlitestore.Open(context.Background(), path) }
	}},
}

// shared is a store that outlives those who close it.
type shared struct{ store.Store }

func (shared) Close() error { return nil }

// TestMachine drives two Dispatchers on one store through random sequences of
// everything a host, a receiver and bad luck can do, and checks after each step
// that the log, every lease and every request are what was promised. Each sequence
// has a bubble with a time of its own, and ends in good weather, in which
// everything that was confirmed must come to its end.
//
// Between a Dispatcher and the store are, from the top, the clock of its host
// (timed), what goes wrong (brittle), and a record of who has which delivery
// (ledger). Between it and the receivers is the party itself.
//
// For a long run: -run TestMachine -rapid.checks=5000 -rapid.steps=100, with -v for
// what it did.
func TestMachine(t *testing.T) {
	for name, on := range machineStores {
		t.Run(name, func(t *testing.T) {
			fewChecks(t, on.checks)
			var total machineStats
			var first sync.Once
			rapid.Check(t, func(rt *rapid.T) {
				m := &machine{T: rt, connect: on.create(scratch(t, rt))}
				var failure any
				synctest.Test(t, func(*testing.T) {
					// rapid fails by a panic, which has to come out of the bubble.
					defer func() {
						failure = recover()
						if _, ok := failure.(runtime.Error); ok {
							m.Logf("%s", debug.Stack())
						}
						m.shutdown()
					}()
					m.begin()
					m.Repeat(m.actions())
					m.end()
				})
				if failure != nil {
					if len(m.problems) > 0 { // not only a step that could not be drawn
						first.Do(func() { m.keepTrace(t) })
					}
					panicAgain(failure)
				}
				total.add(m.stats)
			})
			faults := total.faults
			total.faults = nil
			t.Logf("%+v, faults:%v", total, faults)
			if n, _ := strconv.Atoi(flag.Lookup("rapid.checks").Value.String()); n >= longRun {
				for _, what := range everyFault() {
					if faults[what] == 0 {
						t.Errorf("%q never happened in %d sequences", what, n)
					}
				}
			}
		})
	}
}

// longRun is how many sequences are enough for everything to happen.
const longRun = 5000

// keepTrace writes down what led to a failure, which rapid cannot do if races
// make the same steps take another course the next time.
func (m *machine) keepTrace(t *testing.T) {
	f, err := os.CreateTemp("", "machine-*.trace")
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	fmt.Fprintf(f, "%+v\n%s\n", m.config, strings.Join(m.trace, "\n"))
	t.Logf("what led to the first failure is in %s", f.Name())
}

// panicAgain panics with what a sequence panicked with. rapid tells failures apart by
// where they happen, so a step that could not be drawn must not look like one.
func panicAgain(failure any) {
	if fmt.Sprintf("%T", failure) == "rapid.invalidData" {
		panic(failure)
	}
	if _, ok := failure.(runtime.Error); ok {
		panic(failure)
	}
	panic(failure)
}

var checksGiven = sync.OnceValue(func() bool {
	given := os.Getenv("RAPID_CHECKS") != ""
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	return given
})

// fewChecks is how many sequences there are, unless somebody asked for a number.
func fewChecks(t *testing.T, n int) {
	if checksGiven() {
		return
	}
	f := flag.Lookup("rapid.checks")
	before := f.Value.String()
	t.Cleanup(func() { _ = f.Value.Set(before) })
	_ = f.Value.Set(fmt.Sprint(n))
}

// scratch returns a directory for one sequence, in memory where there is one: it
// is not the disk that is tested.
func scratch(t *testing.T, rt *rapid.T) string {
	parent := "/dev/shm"
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		parent = ""
	}
	dir, err := os.MkdirTemp(parent, "machine")
	if err != nil {
		t.Fatal(err)
	}
	rt.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

type machineStats struct {
	steps, events, deliveries, requests, unlogged, delivered, failed int
	retries, crashes, stops, outages, pauses, rotations              int
	forward, back                                                    int // clock steps
	faults                                                           counts
}

// counts is how often things happened.
type counts map[string]int

func (c counts) String() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "\n\t%7d %s", c[what], what)
	}
	return b.String()
}

func (s *machineStats) add(o machineStats) {
	s.steps += o.steps
	s.events += o.events
	s.deliveries += o.deliveries
	s.requests += o.requests
	s.unlogged += o.unlogged
	s.delivered += o.delivered
	s.failed += o.failed
	s.retries += o.retries
	s.crashes += o.crashes
	s.stops += o.stops
	s.outages += o.outages
	s.pauses += o.pauses
	s.rotations += o.rotations
	s.forward += o.forward
	s.back += o.back
	if s.faults == nil {
		s.faults = counts{}
	}
	for what, n := range o.faults {
		s.faults[what] += n
	}
}

// machine is one sequence: the world, and what is known about it.
type machine struct {
	*rapid.T // for the test's own goroutine alone

	connect func() (store.Store, error)
	config  webhook.Config
	start   time.Time
	log     store.Store         // without faults
	reader  *webhook.Dispatcher // on it, for looking
	clocks  [2]*hostClock       // of the hosts
	parties [2]*party           // the process on each
	graves  []*party

	endpoints  []*endpointModel
	deliveries map[int64]*deliveryModel
	order      []int64 // ids of deliveries, upwards
	keys       map[string]*firstUse
	generation int // of idempotency keys
	events     int
	secrets    int
	urls       int
	round      int64
	rushed     bool
	chosen     *party    // not drawn
	calm       bool      // no crash and no trouble with the store
	steady     bool      // no clock is set
	furthest   time.Time // the latest that any clock has shown before it was set
	turn       chan struct{}

	mu       sync.Mutex // for what requests look at; nothing is drawn under it
	seq      int64
	byURL    map[string]*endpointModel
	requests map[int64][]*machineRequest // by delivery
	open     []*machineRequest
	retried  map[int64]int64   // by delivery: seq at the last manual retry
	leases   map[int64]*tenure // by delivery: the last
	tenures  map[store.LeaseRef]*tenure
	problems []string
	trace    []string
	stats    machineStats
}

const machineWorkspaces = 2

func (m *machine) clock(t time.Time) string { return t.Sub(m.start).String() }

func (m *machine) tracef(format string, args ...any) {
	m.trace = append(m.trace, m.clock(time.Now())+" "+fmt.Sprintf(format, args...))
}

func (m *machine) failLocked(format string, args ...any) {
	m.problems = append(m.problems, fmt.Sprintf(format, args...))
	m.tracef("PROBLEM: "+format, args...)
}

func (m *machine) failf(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failLocked(format, args...)
}

func (m *machine) notef(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tracef(format, args...)
}

// alarm notices log lines that must not occur.
type alarm struct {
	slog.Handler
	m *machine
}

func (a alarm) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

func (a alarm) Handle(_ context.Context, r slog.Record) error {
	switch r.Message {
	case "webhook: the store failed; trying again", "webhook: panic in the store",
		"webhook: panic in an attempt", "webhook: delivery cannot be attempted; it waits": // these are injected
	default:
		var text strings.Builder
		r.Attrs(func(attr slog.Attr) bool { fmt.Fprintf(&text, " %v", attr); return true })
		a.m.failf("logged: %s%s", r.Message, text.String())
	}
	return nil
}

// check ends the sequence if something was wrong.
func (m *machine) check() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.problems) == 0 {
		return
	}
	m.Logf("%s", strings.Join(m.trace, "\n"))
	m.Fatalf("%s", m.problems[0])
}

func draw[T any](m *machine, label string, of ...T) T {
	return rapid.SampledFrom(of).Draw(m.T, label)
}

// pick is draw for what is long to print.
func pick[T any](m *machine, label string, of []T) T {
	return of[rapid.IntRange(0, len(of)-1).Draw(m.T, label)]
}

// oneIn is true once in n times, about.
func (m *machine) oneIn(n int, label string) bool {
	return rapid.IntRange(0, n-1).Draw(m.T, label) == n-1
}

// settle waits until nothing moves any more before time passes.
func (m *machine) settle() {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.endpoints {
		for _, v := range e.versions {
			v.settled = !v.returned.IsZero()
		}
	}
	m.checkDisowned()
	for _, p := range m.parties {
		if !p.running() {
			continue
		}
		select {
		case err := <-p.ended:
			p.ended, p.deaths = nil, append(p.deaths, time.Now())
			if !p.troubled(p.ran.Add(-storePatience), time.Now()) {
				m.failLocked("%s: Run returned %v", p.name, err)
			}
		default:
		}
	}
}

// actions are the steps of a sequence; those that come more than once come more
// often.
func (m *machine) actions() map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){}
	for _, a := range []struct {
		name  string
		times int
		do    func()
	}{
		{"publish", 7, m.doPublish},
		{"publish many", 5, m.doPublishMany},
		{"let time pass", 6, m.doSleep},
		{"change receiver", 3, m.doBehave},
		{"create", 1, m.doCreate},
		{"pause or resume", 2, m.doPause},
		{"update", 1, m.doUpdate},
		{"rotate", 2, m.doRotate},
		{"delete", 1, m.doDelete},
		{"test send", 1, m.doTest},
		{"retry", 2, m.doRetry},
		{"recover", 1, m.doRecover},
		{"start", 2, m.doStart},
		{"stop", 1, m.doStop},
		{"run once", 1, m.doRunOnce},
		{"crash", 2, m.doCrash},
		{"faults", 2, m.doFaults},
		{"outage", 2, m.doOutage},
		{"takeover", 2, m.doTakeover},
		{"backlog", 3, m.doBacklog},
		{"overtake", 2, m.doOvertake},
		{"edge", 1, m.doEdge},
		{"clock", 3, m.doClock},
		{"maintain", 1, m.doMaintain},
		{"look", 1, m.doLook},
		{"read", 1, m.doRead},
	} {
		for i := range a.times {
			actions[fmt.Sprint(a.name, strings.Repeat("'", i))] = func(rt *rapid.T) {
				m.T = rt
				m.stats.steps++
				a.do()
				m.check()
			}
		}
	}
	actions[""] = func(rt *rapid.T) {
		m.T = rt
		if m.rushed {
			m.rushed = false
			return
		}
		m.observe()
	}
	return actions
}

// rush lets the next step come, now and then, before this one's consequences.
func (m *machine) rush() { m.rushed = m.oneIn(3, "rush") }

func (m *machine) anyParty() *party {
	if m.chosen != nil {
		return m.chosen
	}
	return pick(m, "party", m.parties[:])
}

// anyEndpoint picks an endpoint, a deleted one now and then.
func (m *machine) anyEndpoint() *endpointModel {
	var live []*endpointModel
	for _, e := range m.endpoints {
		if e.live() {
			live = append(live, e)
		}
	}
	if len(live) == 0 || len(live) < len(m.endpoints) && m.oneIn(10, "deleted") {
		return pick(m, "endpoint", m.endpoints)
	}
	return pick(m, "live endpoint", live)
}
