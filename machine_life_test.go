package webhook_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

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
