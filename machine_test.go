package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
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
			t.Logf("%+v", total)
		})
	}
}

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
	steps, events, deliveries, requests, delivered, failed      int
	retries, crashes, stops, faults, outages, pauses, rotations int
}

func (s *machineStats) add(o machineStats) {
	s.steps += o.steps
	s.events += o.events
	s.deliveries += o.deliveries
	s.requests += o.requests
	s.delivered += o.delivered
	s.failed += o.failed
	s.retries += o.retries
	s.crashes += o.crashes
	s.stops += o.stops
	s.faults += o.faults
	s.outages += o.outages
	s.pauses += o.pauses
	s.rotations += o.rotations
}

// machine is one sequence: the world, and what is known about it.
type machine struct {
	*rapid.T // for the test's own goroutine alone

	connect func() (store.Store, error)
	config  webhook.Config
	start   time.Time
	log     store.Store         // without faults
	reader  *webhook.Dispatcher // on it, for looking
	parties [2]*party
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
	calm       bool // no crash and no trouble with the store

	mu       sync.Mutex // for what requests look at; nothing is drawn under it
	seq      int64
	byURL    map[string]*endpointModel
	requests map[int64][]*machineRequest // by delivery
	open     []*machineRequest
	retried  map[int64]int64 // by delivery: seq at the last manual retry
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
	if r.Message != "webhook: the store failed; trying again" { // these are injected
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
		m.parties[i] = m.newParty(string(rune('A' + i)))
	}
	m.create(m.parties[0])
	m.create(m.parties[0])
	m.run(m.parties[0])
	if !m.oneIn(3, "only one") {
		m.run(m.parties[1])
	}
	m.calm = m.oneIn(4, "calm")
}

func (m *machine) newParty(name string) *party {
	p := &party{m: m, name: name, born: time.Now(), death: make(chan struct{})}
	var err error
	if p.inner, err = m.connect(); err != nil {
		m.Fatalf("opening the store: %v", err)
	}
	config := m.config
	config.Egress.Transport = p
	if p.Dispatcher, err = webhook.New(brittle{p}, config); err != nil {
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
		p.plan = nil
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
	// Leases of the dead run out, and everybody looks once.
	time.Sleep(time.Minute + m.config.Poll)
	for round := 0; ; round++ {
		m.observe()
		waiting := m.waiting()
		if len(waiting) == 0 {
			break
		}
		now := time.Now()
		var next time.Time
		for _, d := range waiting {
			if !m.head(d) {
				continue
			}
			due := d.latest.NextAttemptAt
			if now.Sub(due) > 2*time.Minute+m.config.Poll || round > 1000 {
				m.failf("delivery %d is stuck: due since %v, round %d", d.id, now.Sub(due), round)
			}
			if next.IsZero() || due.Before(next) {
				next = due
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
		{"maintain", 1, m.doMaintain},
		{"look", 1, m.doLook},
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

func (m *machine) anyParty() *party { return pick(m, "party", m.parties[:]) }

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

// verdict says what a call that returned err did, as far as faults explain it.
func verdict(err error) (applied, known bool) {
	switch {
	case err == nil:
		return true, true
	case errors.Is(err, store.ErrOutcomeUnknown):
		return true, false // only answers get lost here
	default:
		return false, errors.Is(err, errFailed)
	}
}

// change makes a call that gives an endpoint a new version.
func (m *machine) change(p *party, e *endpointModel, what string, next version, call func() error) (applied bool) {
	next.by, next.returned, next.settled = nil, time.Time{}, false
	m.mu.Lock()
	m.tracef("%s: %s endpoint %d", p.name, what, e.id)
	existed := e.live()
	e.versions = append(e.versions, &next)
	m.mu.Unlock()
	err := call()
	applied, known := verdict(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !applied {
		e.versions = e.versions[:len(e.versions)-1]
		if !known && (existed || !errors.Is(err, webhook.ErrNotFound)) {
			m.failLocked("%s: %s endpoint %d: %v", p.name, what, e.id, err)
		}
		m.tracef("%s: %s endpoint %d failed: %v", p.name, what, e.id, err)
		return false
	}
	if !existed {
		m.failLocked("%s: %s endpoint %d, which is deleted: %v", p.name, what, e.id, err)
	}
	next.returned = time.Now()
	if known {
		next.by = p
	}
	return true
}

func (m *machine) newSecret() webhook.Secret {
	m.secrets++
	return webhook.NewSecret(fmt.Sprintf("whsec_%024d", m.secrets))
}

func (m *machine) newURL(e *endpointModel, host string) string {
	m.urls++
	url := fmt.Sprintf("https://%s/%d", host, m.urls)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byURL[url] = e
	return url
}

func (m *machine) doCreate() {
	live := 0
	for _, e := range m.endpoints {
		if e.live() {
			live++
		}
	}
	if live >= 5 {
		m.Skip("enough endpoints")
	}
	m.create(m.anyParty())
	m.rush()
}

func (m *machine) create(p *party) {
	e := &endpointModel{workspace: draw(m, "workspace", int64(1), 1, 2), siem: m.oneIn(4, "siem")}
	v := version{active: true, current: m.newSecret(), bound: draw(m, "bound", 0, 1, 2, 5)}
	v.url = m.newURL(e, fmt.Sprintf("e%d.example", len(m.endpoints)))
	params := webhook.EndpointParams{WorkspaceID: e.workspace, URL: v.url, Secret: v.current, MaxInFlight: v.bound, Kind: webhook.KindSIEM}
	if !e.siem {
		v.events = draw(m, "subscription", []string{"link.*"}, []string{"link.*"}, []string{"link.*", "audit.event"}, []string{"link.updated", "member.removed"})
		params.Kind, params.Events = webhook.KindEvent, v.events
	}
	if m.oneIn(2, "tenant") {
		v.tenant = "acme"
		params.Headers = map[string]string{"X-Tenant": v.tenant}
	}
	if v.bound == 0 {
		v.bound = m.config.MaxInFlight
	}
	e.versions = []*version{&v}
	created, _, err := p.CreateEndpoint(context.Background(), params)
	m.notef("%s: create endpoint %d (%s): %v", p.name, created.ID, v.url, err)
	applied, known := verdict(err)
	switch {
	case !applied && known:
		return
	case !applied:
		m.failf("create: %v", err)
		return
	case !known:
		list, err := m.reader.Endpoints(context.Background(), e.workspace, 0, 0)
		if err != nil || len(list) == 0 {
			m.failf("an endpoint whose creation was not confirmed is not there: %v", err)
			return
		}
		created = list[len(list)-1]
	}
	if created.URL != v.url || created.WorkspaceID != e.workspace || !created.Active || created.Rotations != 0 {
		m.failf("created %+v", created)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.endpoints {
		if o.id >= created.ID {
			m.failLocked("endpoint id %d after %d", created.ID, o.id)
		}
	}
	e.id, v.returned = created.ID, time.Now()
	m.endpoints = append(m.endpoints, e)
}

func (m *machine) doPause() {
	e := m.anyEndpoint()
	// A paused endpoint is resumed more often than the other way round.
	m.setActive(m.anyParty(), e, !e.latest().active || m.oneIn(5, "resume"))
	m.rush()
}

func (m *machine) setActive(p *party, e *endpointModel, active bool) {
	next := *e.latest()
	what, call := "pause", p.PauseEndpoint
	if active {
		what, call = "resume", p.ResumeEndpoint
	} else {
		m.stats.pauses++
	}
	next.active = active
	m.change(p, e, what, next, func() error {
		got, err := call(context.Background(), e.workspace, e.id)
		if err == nil && got.Active != active {
			m.failf("%s: %+v", what, got)
		}
		return err
	})
}

func (m *machine) doUpdate() {
	p, e := m.anyParty(), m.anyEndpoint()
	next := *e.latest()
	var u webhook.EndpointUpdate
	switch draw(m, "update", "path", "host", "bound", "events") {
	case "path":
		host, _, _ := strings.Cut(strings.TrimPrefix(next.url, "https://"), "/")
		next.url = m.newURL(e, host)
		u.URL = &next.url
	case "host":
		next.url = m.newURL(e, fmt.Sprintf("e%d-%d.example", e.id, m.urls))
		next.tenant = "" // belonged to the old host
		u.URL = &next.url
	case "bound":
		next.bound = draw(m, "bound", 1, 2, 5)
		u.MaxInFlight = &next.bound
	case "events":
		if e.siem {
			m.Skip("has no subscription")
		}
		next.events = []string{draw(m, "entry", "link.created", "link.*", "audit.event")}
		u.Events = next.events
	}
	m.change(p, e, "update", next, func() error {
		_, err := p.UpdateEndpoint(context.Background(), e.workspace, e.id, u)
		return err
	})
	m.rush()
}

func (m *machine) doRotate() {
	p, e := m.anyParty(), m.anyEndpoint()
	before := *e.latest()
	next := before
	next.current = m.newSecret()
	o := webhook.RotateOptions{Secret: next.current}
	length := m.config.Signer.Overlap
	if length == 0 {
		length = 7 * 24 * time.Hour
	}
	next.previous, next.previousUntil = before.current, time.Now().Truncate(time.Millisecond).Add(length)
	if o.NoOverlap = m.oneIn(4, "no overlap"); o.NoOverlap {
		next.previous, next.previousUntil = webhook.Secret{}, time.Time{}
	}
	seen := e.rotations
	switch draw(m, "seen", "not said", "right", "wrong") {
	case "right":
		o.Seen = &seen
	case "wrong":
		seen += draw(m, "off by", -1, 1)
		o.Seen = &seen
		_, _, err := p.RotateSecret(context.Background(), e.workspace, e.id, o)
		m.notef("%s: rotate endpoint %d having seen %d: %v", p.name, e.id, seen, err)
		if _, known := verdict(err); !known && !errors.Is(err, webhook.ErrConflict) && (e.live() || !errors.Is(err, webhook.ErrNotFound)) {
			m.failf("rotating endpoint %d (%d rotations) having seen %d: %v", e.id, e.rotations, seen, err)
		}
		return
	}
	var got webhook.Endpoint
	applied := m.change(p, e, "rotate", next, func() (err error) {
		got, _, err = p.RotateSecret(context.Background(), e.workspace, e.id, o)
		return err
	})
	if !applied || !e.live() {
		return
	}
	e.rotations++
	m.stats.rotations++
	if got.ID == 0 { // the answer was lost
		var err error
		if got, err = m.reader.Endpoint(context.Background(), e.workspace, e.id); err != nil {
			m.failf("reading endpoint %d: %v", e.id, err)
		}
	}
	// A store call before may have taken time.
	if got.Rotations != e.rotations || got.PreviousUntil.IsZero() != o.NoOverlap || got.PreviousUntil.Before(next.previousUntil) ||
		got.PreviousUntil.After(time.Now().Add(length)) {
		m.failf("rotated %+v, expected %d rotations and an overlap until %v", got, e.rotations, next.previousUntil)
	}
	m.mu.Lock()
	e.latest().previousUntil = got.PreviousUntil
	m.mu.Unlock()
	m.rush()
}

func (m *machine) doDelete() {
	if !m.oneIn(3, "really") {
		m.Skip("keeping endpoints")
	}
	p, e := m.anyParty(), m.anyEndpoint()
	next := *e.latest()
	next.deleted = true
	m.change(p, e, "delete", next, func() error { return p.DeleteEndpoint(context.Background(), e.workspace, e.id) })
	m.rush()
}

func (m *machine) doBehave() {
	e := m.anyEndpoint()
	b := behaviour{
		kind:    draw(m, "behaviour", "", "", "", "broken", "broken", "busy", "silent", "reset", "trickle", "gone"),
		latency: draw(m, "latency", 0, 0, 20*time.Millisecond, 400*time.Millisecond, 3*time.Second),
	}
	if b.kind == "busy" {
		b.retryAfter = draw(m, "retry after", "60", "600", "3600", "date", "-5", "soon")
		if m.config.Poll > 10*time.Second && m.oneIn(3, "long") {
			b.retryAfter = "90000"
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tracef("endpoint %d behaves %+v", e.id, b)
	e.behaviour = b
}

func (m *machine) doSleep() {
	var steps []time.Duration
	for _, d := range []time.Duration{
		time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second, 11 * time.Second, 17 * time.Second, 31 * time.Second,
		45 * time.Second, 2 * time.Minute, 5 * time.Minute, 16 * time.Minute, time.Hour, 5 * time.Hour, 25 * time.Hour,
	} {
		if d <= 2000*m.config.Poll {
			steps = append(steps, d)
		}
	}
	time.Sleep(draw(m, "time", steps...))
}

func (m *machine) doStart() {
	p := m.anyParty()
	if p.running() {
		m.Skip("runs already")
	}
	m.run(p)
	m.rush()
}

func (m *machine) doStop() {
	p := m.anyParty()
	m.settle() // it may have ended by itself
	if !p.running() {
		m.Skip("does not run")
	}
	m.halt(p)
	m.rush()
}

func (m *machine) doRunOnce() {
	p := m.anyParty()
	if p.running() {
		m.Skip("runs")
	}
	from := time.Now()
	n, err := p.RunOnce(context.Background())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tracef("%s: run once: %d, %v", p.name, n, err)
	if err == nil {
		return
	}
	p.deaths = append(p.deaths, time.Now()) // it gives up, and what came of its last attempt with it
	if !p.troubled(from, time.Now()) {
		m.failLocked("%s: RunOnce: %v", p.name, err)
	}
}

func (m *machine) doCrash() {
	m.bad()
	i := rapid.IntRange(0, 1).Draw(m.T, "party")
	p := m.parties[i]
	if !p.running() {
		m.Skip("does not run")
	}
	m.kill(p)
	m.mu.Lock()
	m.stats.crashes++
	m.mu.Unlock()
	m.parties[i] = nil
	fresh := m.newParty(p.name[:1] + fmt.Sprint(len(m.graves)))
	m.mu.Lock()
	m.parties[i] = fresh
	m.mu.Unlock()
	if m.oneIn(2, "restart") {
		m.run(fresh)
	}
	m.rush()
}

func (m *machine) doFaults() {
	m.bad()
	p := m.anyParty()
	plan := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) mishap {
		switch rapid.IntRange(0, 5).Draw(t, "fault") {
		case 1, 2:
			return mishap{fail: true}
		case 3:
			return mishap{lose: true}
		case 4:
			return mishap{wait: rapid.SampledFrom([]time.Duration{time.Millisecond, 2 * time.Second, 9 * time.Second, 25 * time.Second}).Draw(t, "wait")}
		case 5:
			return mishap{delay: rapid.SampledFrom([]time.Duration{time.Millisecond, 2 * time.Second, 9 * time.Second, 25 * time.Second}).Draw(t, "delay")}
		}
		return mishap{}
	}), 1, 6).Draw(m.T, "plan")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tracef("%s: faults %+v", p.name, plan)
	p.plan = plan
}

func (m *machine) doOutage() {
	m.bad()
	p := m.anyParty()
	d := draw(m, "length", time.Second, 8*time.Second, 20*time.Second, 45*time.Second, 3*time.Minute)
	hangs := m.oneIn(3, "hangs")
	m.cutOff(p, d, hangs)
}

// cutOff keeps a party from the store for a while.
func (m *machine) cutOff(p *party, d time.Duration, hangs bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if now.Before(p.outage.until) {
		return
	}
	p.outage = outage{until: now.Add(d), hangs: hangs}
	p.trouble(now, p.outage.until)
	m.stats.outages++
	m.tracef("%s: no store for %v", p.name, d)
}

// bad skips what does not happen in calm sequences.
func (m *machine) bad() {
	if m.calm {
		m.Skip("not in a calm sequence")
	}
}

// doTakeover makes it likely that a party loses its store while it delivers, and
// finds it again about when another has taken over.
func (m *machine) doTakeover() {
	m.bad()
	e := m.anyEndpoint()
	if v := e.latest(); !v.active || v.deleted {
		m.Skip("not to this one")
	}
	p := m.anyParty()
	m.settle()
	for _, o := range m.parties {
		if !o.running() {
			m.run(o)
		}
	}
	m.backlog(p, e, draw(m, "latency", 8*time.Second, 3*time.Second, 400*time.Millisecond))
	time.Sleep(draw(m, "before", 0, 200*time.Millisecond, time.Second))
	m.cutOff(p, draw(m, "length", 30*time.Second, 33*time.Second, 36*time.Second, 20*time.Second), m.oneIn(4, "hangs"))
	time.Sleep(draw(m, "time", 31*time.Second, 36*time.Second, 45*time.Second))
}

// backlog sends an endpoint more than it can take at once.
func (m *machine) backlog(p *party, e *endpointModel, latency time.Duration) {
	b := behaviour{kind: draw(m, "behaviour", "", "broken"), latency: latency}
	n := rapid.IntRange(1, 5).Draw(m.T, "backlog")
	m.mu.Lock()
	e.behaviour = b
	m.tracef("endpoint %d behaves %+v", e.id, b)
	m.mu.Unlock()
	for range n {
		m.test(p, e)
	}
}

func (m *machine) doBacklog() {
	m.backlog(m.anyParty(), m.anyEndpoint(), draw(m, "latency", 3*time.Second, 8*time.Second, 20*time.Millisecond))
	m.rush()
}

// doEdge sends something when an overlap ends.
func (m *machine) doEdge() {
	p, e := m.anyParty(), m.anyEndpoint()
	until := e.latest().previousUntil
	if d := time.Until(until); d <= time.Millisecond || d > 2000*m.config.Poll {
		m.Skip("too far")
	}
	time.Sleep(time.Until(until) + draw(m, "off by", 0, -time.Millisecond, -time.Microsecond))
	m.test(p, e)
}

func (m *machine) doMaintain() {
	p := m.anyParty()
	m.settle()
	now := time.Now()
	err := p.Maintain(context.Background())
	m.notef("%s: maintain: %v", p.name, err)
	applied, known := verdict(err)
	if !applied && !known {
		m.failf("maintain: %v", err)
	}
	if !applied || !known || time.Now().After(now) {
		return
	}
	m.observe()
	kept := map[int64]int{}
	for _, d := range m.deliveries {
		if d.gone || d.latest.Status == webhook.StatusPending {
			continue
		}
		kept[d.to.id]++
		if age := m.config.Retention.MaxAge; age > 0 && time.Since(d.latest.CompletedAt) > age+time.Millisecond {
			m.failf("delivery %d, %v old, outlasted Maintain", d.id, time.Since(d.latest.CompletedAt))
		}
	}
	for id, n := range kept {
		if most := m.config.Retention.MaxPerEndpoint; most > 0 && n > most {
			m.failf("endpoint %d has %d finished deliveries after Maintain", id, n)
		}
	}
}

// doLook compares filtered lists with the model.
func (m *machine) doLook() {
	m.observe()
	e := m.anyEndpoint()
	q := webhook.DeliveryQuery{WorkspaceID: e.workspace, Limit: 100,
		EndpointID: draw(m, "endpoint", 0, e.id),
		Status:     draw(m, "status", "", webhook.StatusPending, webhook.StatusDelivered, webhook.StatusFailed),
		EventType:  draw(m, "type", "", "link.created", "test"),
	}
	var want []int64
	for _, id := range slices.Backward(m.order) {
		d := m.deliveries[id]
		if d.gone || d.to.workspace != q.WorkspaceID || q.EndpointID != 0 && d.to.id != q.EndpointID ||
			q.Status != "" && d.latest.Status != q.Status || q.EventType != "" && d.kind != q.EventType {
			continue
		}
		if len(want) < q.Limit {
			want = append(want, id)
		}
	}
	page, err := m.reader.Deliveries(context.Background(), q)
	if err != nil {
		m.failf("deliveries: %v", err)
	}
	var got []int64
	for _, d := range page.Deliveries {
		got = append(got, d.ID)
	}
	if !slices.Equal(got, want) {
		m.failf("%+v lists %v, not %v", q, got, want)
	}
	if len(want) > 0 {
		id, other := want[0], machineWorkspaces+1-e.workspace
		if _, err := m.reader.Delivery(context.Background(), other, id); !errors.Is(err, webhook.ErrNotFound) {
			m.failf("delivery %d of workspace %d, asked for in %d: %v", id, e.workspace, other, err)
		}
		if _, err := m.reader.Retry(context.Background(), other, id); !errors.Is(err, webhook.ErrNotFound) {
			m.failf("delivery %d of workspace %d, retried in %d: %v", id, e.workspace, other, err)
		}
	}
}

func (m *machine) doRetry() {
	if len(m.order) == 0 {
		m.Skip("nothing to retry")
	}
	m.observe() // so that its state is known
	// Pending ones are tried as well, but less often.
	var list []int64
	for _, id := range m.order {
		d := m.deliveries[id]
		if d.gone || d.latest.Status == webhook.StatusPending {
			continue
		}
		list = append(list, id)
	}
	if len(list) == 0 || m.oneIn(4, "any") {
		list = m.order
	}
	m.retry(m.anyParty(), m.deliveries[draw(m, "delivery", list...)])
	m.rush()
}

// retry retries a delivery whose state is known.
func (m *machine) retry(p *party, d *deliveryModel) {
	now, except := m.rearm(d)
	v, err := p.Retry(context.Background(), d.to.workspace, d.id)
	m.notef("%s: retry delivery %d: %v", p.name, d.id, err)
	applied, known := verdict(err)
	slow := time.Now().After(now) // so that it may have been in another state by then
	switch {
	case !applied && known:
	case d.gone || !d.to.live():
		if !errors.Is(err, webhook.ErrNotFound) {
			m.failf("retry of delivery %d, which is gone: %v", d.id, err)
		}
	case d.latest.Status == webhook.StatusPending && !slow:
		if !errors.Is(err, webhook.ErrPending) {
			m.failf("retry of pending delivery %d: %v", d.id, err)
		}
	case applied:
		m.stats.retries++
		m.rebase(d, now, slow)
		if known && (v.ID != d.id || v.Status != webhook.StatusPending || v.Attempts != 0 || v.TotalAttempts != d.base || !v.CompletedAt.IsZero()) {
			m.failf("retried %+v", v)
		}
	case slow && errors.Is(err, webhook.ErrPending), errors.Is(err, webhook.ErrNotFound) && m.prunable(d):
	default:
		m.failf("retry of delivery %d, which is %s: %v", d.id, d.latest.Status, err)
	}
	if !applied {
		except()
	}
}

// doOvertake retries a delivery while a later one of its key is under way.
func (m *machine) doOvertake() {
	m.observe()
	var list []*deliveryModel
	for _, id := range m.order {
		d := m.deliveries[id]
		if d.key != "" && !d.gone && d.to.wants(d.to.workspace, d.kind) && d.latest.Status != webhook.StatusPending {
			list = append(list, d)
		}
	}
	if len(list) == 0 {
		m.Skip("nothing to overtake")
	}
	p, d := m.anyParty(), pick(m, "delivery", list)
	b := behaviour{kind: draw(m, "behaviour", "", "broken"), latency: draw(m, "latency", 3*time.Second, 8*time.Second)}
	m.mu.Lock()
	d.to.behaviour = b
	m.tracef("endpoint %d behaves %+v", d.to.id, b)
	m.mu.Unlock()
	for range rapid.IntRange(1, 2).Draw(m.T, "later ones") {
		m.events++
		e := &plannedEvent{Event: webhook.Event{WorkspaceID: d.to.workspace, Type: d.kind, OrderingKey: d.key}}
		m.fill(e, fmt.Sprintf(`{"id":%d}`, m.events))
		m.publishOne(p, e)
	}
	time.Sleep(draw(m, "time", 0, 100*time.Millisecond, 4*time.Second))
	m.observe()
	if !d.gone {
		m.retry(m.anyParty(), d)
	}
	m.rush()
}

// rearm notes that deliveries are about to be retried. What it returns takes that
// back for those that were not.
func (m *machine) rearm(list ...*deliveryModel) (now time.Time, except func(retried ...*deliveryModel)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := maps.Clone(m.retried)
	for _, d := range list {
		m.seq++
		m.retried[d.id] = m.seq
	}
	return time.Now(), func(retried ...*deliveryModel) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, d := range list {
			if !slices.Contains(retried, d) {
				m.retried[d.id] = before[d.id]
			}
		}
	}
}

// rebase notes that a delivery has a fresh budget since an instant, or may have.
func (m *machine) rebase(d *deliveryModel, now time.Time, maybe bool) bool {
	base := d.latest.TotalAttempts
	if maybe {
		v, err := m.reader.Delivery(context.Background(), d.to.workspace, d.id)
		if err != nil {
			return false
		}
		base = v.TotalAttempts - v.Attempts
	}
	if base <= d.base {
		return false
	}
	d.base, d.retriedAt = base, now
	return true
}

func (m *machine) doRecover() {
	p, e := m.anyParty(), m.anyEndpoint()
	since := time.Now().Add(-draw(m, "since", time.Minute, time.Hour, 100*time.Hour)).Truncate(time.Millisecond)
	m.observe()
	var failed, all []*deliveryModel
	for _, id := range m.order {
		d := m.deliveries[id]
		if d.to == e {
			all = append(all, d)
		}
		if !d.gone && d.to == e && d.latest.Status == webhook.StatusFailed && !d.latest.CompletedAt.Before(since) {
			failed = append(failed, d)
		}
	}
	now, except := m.rearm(all...)
	n, err := p.Recover(context.Background(), e.workspace, e.id, since)
	m.notef("%s: recover endpoint %d: %d, %v", p.name, e.id, n, err)
	applied, known := verdict(err)
	slow := time.Now().After(now)
	switch {
	case !applied && known:
	case !e.live():
		if !errors.Is(err, webhook.ErrNotFound) {
			m.failf("recovering deleted endpoint %d: %v", e.id, err)
		}
	case !applied:
		m.failf("recovering endpoint %d: %v", e.id, err)
	case slow:
		failed = nil
		for _, d := range all {
			if m.rebase(d, now, true) {
				failed = append(failed, d)
			}
		}
	default:
		if known && n != len(failed) {
			m.failf("recovered %d deliveries of endpoint %d, expected %d", n, e.id, len(failed))
		}
		for _, d := range failed {
			m.rebase(d, now, false)
		}
		m.stats.retries += len(failed)
	}
	if !applied {
		failed = nil
	}
	except(failed...)
	m.rush()
}

// firstUse is the first use of an idempotency key.
type firstUse struct {
	content string
	at      time.Time
	eventID string // empty if it is not known
	ids     []int64
}

// plannedEvent is an event and what is to become of it.
type plannedEvent struct {
	webhook.Event
	key     string // of Machine.keys; empty without an idempotency key
	content string
	first   *firstUse // it repeats this one
	to      []*endpointModel
	payload string
}

func (m *machine) newEvent() *plannedEvent {
	m.events++
	e := &plannedEvent{Event: webhook.Event{
		WorkspaceID: draw(m, "workspace", int64(1), 1, 2),
		Type:        draw(m, "type", "link.created", "link.updated", "link.deleted", "audit.event", "member.removed"),
		OrderingKey: draw(m, "ordering key", "", "a", "a", "b"),
	}}
	data := fmt.Sprintf(`{"id":%d, "price":49.50}`, m.events)
	if m.oneIn(4, "time") {
		e.Time = m.start.Add(-time.Hour)
	}
	if n := rapid.IntRange(0, 8).Draw(m.T, "idempotency"); n >= 6 {
		e.IdempotencyKey = fmt.Sprintf("key %d of %d", n, m.generation)
		e.key = fmt.Sprint(e.WorkspaceID, e.IdempotencyKey)
		data = fmt.Sprintf(`{"content":%d}`, draw(m, "content", 1, 1, 1, 2))
		e.Type, e.OrderingKey, e.Time = "link.created", draw(m, "key of content", "", "", "", "a"), time.Time{}
	}
	m.fill(e, data)
	return e
}

func (m *machine) fill(e *plannedEvent, data string) {
	e.Data = json.RawMessage(data)
	e.content = e.OrderingKey + data
	e.payload = fmt.Sprintf(`{"type":"%s","workspace_id":%d,"data":%s,"timestamp":"`, e.Type, e.WorkspaceID, data)
}

// foresee works out what publishing events now must lead to.
func (m *machine) foresee(events []*plannedEvent) (conflict bool) {
	within := map[string]*firstUse{}
	for _, e := range events {
		at := e.Time
		if at.IsZero() {
			at = time.Now()
		}
		e.payload += at.UTC().Format("2006-01-02T15:04:05Z") + `"}`
		if e.key != "" {
			e.first = m.keys[e.key]
			if e.first == nil {
				e.first = within[e.key]
			}
			if e.first != nil {
				conflict = conflict || e.first.content != e.content
				continue
			}
			within[e.key] = &firstUse{content: e.content, at: time.Now()}
		}
		for _, o := range m.endpoints {
			if o.wants(e.WorkspaceID, e.Type) {
				e.to = append(e.to, o)
			}
		}
	}
	for key, use := range within {
		if !conflict {
			m.keys[key] = use
		}
	}
	return conflict
}

func (m *machine) doPublish() {
	m.publishOne(m.anyParty(), m.newEvent())
	m.rush()
}

func (m *machine) publishOne(p *party, e *plannedEvent) {
	m.publish(p, []*plannedEvent{e}, func(events []webhook.Event) ([]webhook.Receipt, error) {
		r, err := p.Publish(context.Background(), events[0])
		if err != nil {
			return nil, err
		}
		return []webhook.Receipt{r}, nil
	})
}

func (m *machine) doPublishMany() {
	p := m.anyParty()
	var events []*plannedEvent
	for range rapid.IntRange(2, 10).Draw(m.T, "events") {
		events = append(events, m.newEvent())
	}
	m.publish(p, events, func(events []webhook.Event) ([]webhook.Receipt, error) {
		return p.PublishMany(context.Background(), events)
	})
	m.rush()
}

func (m *machine) publish(p *party, events []*plannedEvent, call func([]webhook.Event) ([]webhook.Receipt, error)) {
	for _, use := range m.keys {
		if time.Since(use.at) > 23*time.Hour { // it may be forgotten soon
			m.generation++
			m.keys = map[string]*firstUse{}
			m.notef("idempotency keys are a day old: new ones from here on")
			m.Skip("with the old keys")
		}
	}
	var plain []webhook.Event
	for _, e := range events {
		plain = append(plain, e.Event)
	}
	known := maps.Clone(m.keys)
	conflict := m.foresee(events)
	now := time.Now()
	receipts, err := call(plain)
	m.notef("%s: publish %d events: %+v, %v", p.name, len(events), receipts, err)
	applied, said := verdict(err)
	switch {
	case conflict && (errors.Is(err, webhook.ErrIdempotencyConflict) || errors.Is(err, errFailed)):
	case conflict:
		m.failf("publishing other content under an idempotency key: %v", err)
	case !applied && said:
		m.keys = known
	case !applied:
		m.failf("publish: %v", err)
	case said && len(receipts) != len(events):
		m.failf("%d receipts for %d events", len(receipts), len(events))
	default:
		if !said {
			receipts = m.reconstruct(events)
		}
		for i, e := range events {
			m.adopt(e, receipts[i], now, said)
		}
		m.stats.events += len(events)
	}
}

// reconstruct makes the receipts that got lost, from the log.
func (m *machine) reconstruct(events []*plannedEvent) []webhook.Receipt {
	last := int64(0)
	if n := len(m.order); n > 0 {
		last = m.order[n-1]
	}
	var fresh []int64
	for w := range int64(machineWorkspaces) {
		for _, d := range m.listed(w + 1) {
			if d.ID > last {
				fresh = append(fresh, d.ID)
			}
		}
	}
	slices.Sort(fresh)
	receipts := make([]webhook.Receipt, len(events))
	for i, e := range events {
		if e.first != nil {
			receipts[i] = webhook.Receipt{Repeat: true}
			continue
		}
		n := min(len(e.to), len(fresh))
		receipts[i].DeliveryIDs, fresh = fresh[:n], fresh[n:]
	}
	return receipts
}

// adopt takes in what publishing an event stored.
func (m *machine) adopt(e *plannedEvent, r webhook.Receipt, now time.Time, said bool) {
	if e.first != nil {
		if said && (!r.Repeat || e.first.eventID != "" && r.EventID != e.first.eventID || !slices.Equal(r.DeliveryIDs, e.first.ids) && len(r.DeliveryIDs)+len(e.first.ids) > 0) {
			m.failf("the repeat of %+v got %+v", e.first, r)
		}
		return
	}
	if e.key != "" {
		use := m.keys[e.key]
		use.eventID, use.ids = r.EventID, r.DeliveryIDs
	}
	if r.Repeat || len(r.DeliveryIDs) != len(e.to) {
		m.failf("event of type %s in workspace %d got receipt %+v, expected %d deliveries", e.Type, e.WorkspaceID, r, len(e.to))
		return
	}
	to := slices.Clone(e.to)
	for _, id := range r.DeliveryIDs {
		v, err := m.reader.Delivery(context.Background(), e.WorkspaceID, id)
		if err != nil {
			m.failf("delivery %d was confirmed: %v", id, err)
			return
		}
		i := slices.IndexFunc(to, func(o *endpointModel) bool { return o.id == v.EndpointID })
		if i < 0 {
			m.failf("delivery %d is for endpoint %d", id, v.EndpointID)
			return
		}
		d := &deliveryModel{id: id, to: to[i], eventID: r.EventID, kind: e.Type, key: e.OrderingKey, payload: e.payload, created: now.Truncate(time.Millisecond)}
		to = slices.Delete(to, i, i+1)
		if n := len(m.order); n > 0 && m.order[n-1] >= id {
			m.failf("delivery id %d after %d", id, m.order[n-1])
			return
		}
		d.latest.Status = webhook.StatusPending
		m.deliveries[id] = d
		m.order = append(m.order, id)
		m.stats.deliveries++
	}
}

func (m *machine) doTest() {
	m.test(m.anyParty(), m.anyEndpoint())
	m.rush()
}

func (m *machine) test(p *party, e *endpointModel) {
	now := time.Now()
	r, err := p.SendTest(context.Background(), e.workspace, e.id)
	m.notef("%s: test send to endpoint %d: %+v, %v", p.name, e.id, r, err)
	applied, said := verdict(err)
	v := e.latest()
	switch {
	case !applied && said:
	case v.deleted && errors.Is(err, webhook.ErrNotFound), !v.active && errors.Is(err, webhook.ErrPaused):
	case v.deleted || !v.active || !applied:
		m.failf("test send to endpoint %d (%+v): %v", e.id, v, err)
	default:
		event := &plannedEvent{Event: webhook.Event{Type: webhook.TestEvent, WorkspaceID: e.workspace}, to: []*endpointModel{e}}
		if !said {
			r = m.reconstruct([]*plannedEvent{event})[0]
		}
		if len(r.DeliveryIDs) == 1 { // a store call before may have taken time
			if d, err := m.reader.Delivery(context.Background(), e.workspace, r.DeliveryIDs[0]); err == nil && !d.CreatedAt.Before(now.Truncate(time.Millisecond)) {
				now = d.CreatedAt
			}
		}
		event.payload = fmt.Sprintf(`{"type":"test","workspace_id":%d,"data":{"message":"Test event from Elido"},"timestamp":"%s"}`,
			e.workspace, now.UTC().Format("2006-01-02T15:04:05Z"))
		m.adopt(event, r, now, said)
	}
}

var _ http.RoundTripper = (*party)(nil)
