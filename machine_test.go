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
// that the log, and every request that reached a receiver, are what was
// promised. Each sequence has a bubble with a time of its own, and ends in good
// weather, in which everything that was confirmed must come to its end.
//
// For a long run: -run TestMachine -rapid.checks=5000 -rapid.steps=100.
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
						t.Errorf("%s: never in %d sequences", what, n)
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

func (m *machine) begin() {
	m.start = time.Now()
	m.deliveries = map[int64]*deliveryModel{}
	m.keys = map[string]*firstUse{}
	m.byURL = map[string]*endpointModel{}
	m.requests = map[int64][]*machineRequest{}
	m.retried = map[int64]int64{}
	m.leases = map[int64]*tenure{}
	m.tenures = map[store.LeaseRef]*tenure{}
	m.stats.faults = counts{}
	m.turn = make(chan struct{}, 1)
	m.config = webhook.Config{
		Poll:         draw(m, "poll", 2*time.Second, 20*time.Second, 2*time.Minute),
		Grace:        draw(m, "grace", 15*time.Second, 3*time.Second, -1),
		Workers:      draw(m, "workers", 64, 4, 1),
		SlowRequests: draw(m, "slow", 1024, 1),
		MaxInFlight:  draw(m, "max in flight", 3, 8, 1),
		Signer:       webhook.Signer{Overlap: draw(m, "overlap", 0, time.Hour, 90*time.Second)},
		Retention:    draw(m, "retention", webhook.Retention{}, webhook.Retention{}, webhook.Retention{MaxAge: 2 * time.Hour}, webhook.Retention{MaxPerEndpoint: 3}),
		Logger:       slog.New(alarm{slog.DiscardHandler, m}),
	}
	st, err := m.connect()
	if err != nil {
		m.Fatalf("opening the store: %v", err)
	}
	m.log = st
	if m.reader, err = webhook.New(st, m.config); err != nil {
		m.Fatalf("%v", err)
	}
	for i := range m.parties {
		m.clocks[i] = &hostClock{}
		m.parties[i] = m.newParty(i, string(rune('A'+i)))
	}
	m.create(m.parties[0])
	m.create(m.parties[0])
	m.run(m.parties[0])
	if !m.oneIn(3, "only one") {
		m.run(m.parties[1])
	}
	m.calm = m.oneIn(4, "calm")
	m.steady = m.oneIn(2, "steady")
}

// newParty starts a process on a host.
func (m *machine) newParty(host int, name string) *party {
	p := &party{m: m, name: name, clock: m.clocks[host], born: time.Now(), death: make(chan struct{}),
		aimed: map[string][]mishap{}, holds: map[int64]*tenure{}}
	st, err := m.connect()
	if err != nil {
		m.Fatalf("opening the store: %v", err)
	}
	p.inner = ledger{st, p}
	config := m.config
	config.Egress.Transport = p
	if p.Dispatcher, err = webhook.New(timed{brittle{p}, p.clock}, config); err != nil {
		m.Fatalf("%v", err)
	}
	return p
}

// run starts a party's Run.
func (m *machine) run(p *party) {
	m.notef("%s: run", p.name)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	p.cancel, p.ended, p.ran = cancel, ended, time.Now()
	go func() { ended <- p.Run(ctx) }()
}

// halt stops a party gracefully.
func (m *machine) halt(p *party) {
	m.notef("%s: stop", p.name)
	m.mu.Lock()
	p.stopping = true
	m.mu.Unlock()
	from := time.Now()
	p.cancel()
	err := <-p.ended
	p.ended = nil
	took := time.Since(from)
	m.mu.Lock()
	defer m.mu.Unlock()
	p.stopping = false
	if err != nil {
		p.deaths = append(p.deaths, time.Now())
	}
	m.stats.stops++
	m.tracef("%s: stopped after %v: %v", p.name, took, err)
	if p.troubled(from.Add(-longestBackoff-storePatience), time.Now()) {
		// What failed is tried again when something else ends, or at the end.
		p.trouble(from, time.Now())
		return
	}
	if err != nil {
		m.failLocked("%s: Run returned %v", p.name, err)
	}
	if most := max(m.config.Grace, 0) + 100*time.Millisecond; took > most {
		m.failLocked("%s: stopping took %v", p.name, took)
	}
}

// kill ends a party as a crash would.
func (m *machine) kill(p *party) {
	m.mu.Lock()
	m.tracef("%s: crash", p.name)
	now := time.Now()
	p.dead, p.deaths = true, append(p.deaths, now)
	close(p.death)
	p.trouble(now, now)
	for _, q := range slices.Clone(m.open) {
		if q.by == p {
			m.close(q, 0, true)
		}
	}
	m.mu.Unlock()
	if p.running() {
		p.cancel()
	}
	if err := p.inner.Close(); err != nil {
		m.failf("closing the store: %v", err)
	}
	m.graves = append(m.graves, p)
}

// shutdown ends everything, also after a failure.
func (m *machine) shutdown() {
	for _, p := range m.parties {
		if p != nil {
			m.kill(p)
		}
	}
	for _, p := range m.graves {
		if p.running() {
			<-p.ended
		}
	}
	if m.log != nil {
		_ = m.log.Close()
	}
}

// end lets good weather come and everything come to its end.
func (m *machine) end() {
	m.observe()
	var clear time.Time
	m.mu.Lock()
	m.tracef("good weather from here on")
	for _, p := range m.parties {
		p.plan, p.aimed = nil, map[string][]mishap{}
		if p.outage.until.After(clear) {
			clear = p.outage.until
		}
	}
	for _, e := range m.endpoints {
		e.behaviour = behaviour{}
	}
	m.mu.Unlock()
	// Calls under way when it came may still fail, also the first of a Run.
	time.Sleep(max(time.Until(clear), 0) + time.Minute)
	m.settle()
	// One process must be enough, whatever it has gone through.
	survivors := draw(m, "survivors", "A and B", "A", "B")
	for _, p := range m.parties {
		switch needed := strings.Contains(survivors, p.name[:1]); {
		case needed && !p.running():
			m.run(p)
		case !needed && p.running():
			m.halt(p)
		}
	}
	if len(m.endpoints) > 0 && m.oneIn(3, "one stays broken") {
		e := pick(m, "broken", m.endpoints)
		m.mu.Lock()
		e.behaviour.kind = "broken"
		m.mu.Unlock()
	}
	for _, e := range m.endpoints {
		if v := e.latest(); !v.deleted && !v.active && m.oneIn(2, "resume") {
			m.setActive(m.parties[0], e, true)
		}
	}
	if !m.agreeing() && !m.oneIn(3, "clocks go on disagreeing") {
		m.setClocks(m.disagreement(), 1)
	}
	// Everybody looks once.
	time.Sleep(time.Minute + m.config.Poll)
	for round := 0; ; round++ {
		m.observe()
		waiting := m.waiting()
		if len(waiting) == 0 {
			break
		}
		// Who is ahead of the others takes what is due by its own clock.
		var now, next time.Time
		for _, p := range m.parties {
			if t := p.clock.wall(time.Now()); p.running() && t.After(now) {
				now = t
			}
		}
		for _, d := range waiting {
			if !m.head(d) {
				continue
			}
			free := m.freeAt(d)
			if now.Sub(free) > 2*time.Minute+m.config.Poll || round > 1000 {
				m.failf("delivery %d is stuck: free since %v, round %d: %+v, %+v", d.id, now.Sub(free), round, d.latest, m.leases[d.id])
			}
			if next.IsZero() || free.Before(next) {
				next = free
			}
		}
		m.check()
		time.Sleep(max(next.Sub(now), 0) + m.config.Poll + 10*time.Second)
	}
	for _, p := range m.parties {
		if p.running() {
			m.halt(p)
		}
	}
	m.observe()
	m.mu.Lock()
	if len(m.open) > 0 {
		m.failLocked("%d requests are open after everybody stopped", len(m.open))
	}
	m.mu.Unlock()
	for _, d := range m.deliveries {
		for _, q := range m.requests[d.id] {
			if !q.recorded && !d.gone {
				m.stats.unlogged++
			}
		}
		switch {
		case d.gone:
		case d.latest.Status == webhook.StatusDelivered:
			m.stats.delivered++
		case d.latest.Status == webhook.StatusFailed:
			m.stats.failed++
		}
	}
	m.check()
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
