package webhook_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/elido-app/webhook"
)

func (m *machine) doBehave() {
	e := m.anyEndpoint()
	b := behaviour{
		kind: draw(m, "behaviour", append([]string{"", "", "", "", "", "broken", "broken", "broken", "busy", "busy", "gone", "panics"},
			slices.Sorted(maps.Keys(connections))...)...),
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
	fresh := m.newParty(i, p.name[:1]+fmt.Sprint(len(m.graves)))
	m.mu.Lock()
	m.parties[i] = fresh
	m.mu.Unlock()
	if m.oneIn(2, "restart") {
		m.run(fresh)
	}
	m.rush()
}

// doFaults lets store calls of a party fail: the next ones, whatever they are, or
// the next ones of one method.
func (m *machine) doFaults() {
	m.bad()
	p := m.anyParty()
	plan := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) mishap {
		f := mishap{fault: rapid.SampledFrom(append(storeFaults, "")).Draw(t, "fault")}
		if f.fault == waits || f.fault == delays {
			f.time = rapid.SampledFrom([]time.Duration{time.Millisecond, 2 * time.Second, 9 * time.Second, 25 * time.Second}).Draw(t, "time")
		}
		return f
	}), 1, 6).Draw(m.T, "plan")
	call := ""
	if !m.oneIn(3, "unaimed") {
		call = pick(m, "call", storeCalls)
	}
	m.mu.Lock()
	m.tracef("%s: faults %+v of %q", p.name, plan, call)
	if call == "" {
		p.plan = plan
	} else {
		p.aimed[call] = plan
	}
	m.mu.Unlock()
	if provoke := map[string]func(){
		"Publish": m.doPublish, "CreateEndpoint": m.doCreate, "UpdateEndpoint": m.doPause, "RotateSecret": m.doRotate,
		"DeleteEndpoint": m.doDelete, "Retry": m.doRetry, "Recover": m.doRecover, "Maintain": m.doMaintain,
		"Endpoint": m.doRead, "Endpoints": m.doRead, "Deliveries": m.doRead, "Delivery": m.doRead, "Attempts": m.doRead,
	}[call]; provoke != nil {
		m.chosen = p
		defer func() { m.chosen = nil }()
		provoke()
	}
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
	until := p.clock.when(e.latest().previousUntil)
	if d := time.Until(until); d <= time.Millisecond || d > 2000*m.config.Poll {
		m.Skip("too far")
	}
	time.Sleep(time.Until(until) + draw(m, "off by", 0, -time.Millisecond, -time.Microsecond))
	m.test(p, e)
	time.Sleep(time.Until(time.Now().Truncate(time.Millisecond).Add(time.Millisecond))) // clocks are set between milliseconds
}

func (m *machine) doMaintain() {
	p := m.anyParty()
	m.settle()
	now := time.Now()
	err := contained(func() error { return p.Maintain(context.Background()) })
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
		if age := m.config.Retention.MaxAge; age > 0 && p.clock.wall(now).Sub(d.latest.CompletedAt) > age+time.Millisecond {
			m.failf("delivery %d, completed at %v, outlasted Maintain", d.id, d.latest.CompletedAt)
		}
	}
	for id, n := range kept {
		if most := m.config.Retention.MaxPerEndpoint; most > 0 && n > most {
			m.failf("endpoint %d has %d finished deliveries after Maintain", id, n)
		}
	}
}

// doClock sets the clock of one host, or of all.
func (m *machine) doClock() {
	if m.steady {
		m.Skip("not in a steady sequence")
	}
	by := draw(m, "by", time.Hour, -time.Hour, 5*time.Minute, -5*time.Minute, 40*time.Second, -40*time.Second,
		20*time.Second, -20*time.Second, 2*time.Second, -2*time.Second, 300*time.Millisecond, -300*time.Millisecond)
	hosts := draw(m, "hosts", []int{0, 1}, []int{0, 1}, []int{1})
	if !m.agreeing() && m.oneIn(2, "set right") {
		hosts, by = []int{1}, m.disagreement()
	}
	m.setClocks(by, hosts...)
	m.rush()
}

func (m *machine) setClocks(by time.Duration, hosts ...int) {
	// At an instant at which nothing else happens.
	time.Sleep(time.Until(time.Now().Truncate(time.Millisecond).Add(3 * time.Millisecond / 2)))
	m.settle()
	m.furthest = m.furthestWall()
	for _, host := range hosts {
		var running *webhook.Dispatcher
		if p := m.parties[host]; p.running() {
			running = p.Dispatcher
		}
		m.clocks[host].step(by, running)
		m.notef("the clock of %c is set by %v", 'A'+host, by)
	}
	if by > 0 {
		m.stats.forward++
	} else {
		m.stats.back++
	}
	time.Sleep(time.Until(time.Now().Truncate(time.Millisecond).Add(time.Millisecond)))
}

// agreeing reports whether all clocks show the same.
func (m *machine) agreeing() bool { return m.disagreement() == 0 }

// disagreement is how far B's clock is behind A's.
func (m *machine) disagreement() time.Duration {
	now := time.Now()
	return m.clocks[0].offset(now) - m.clocks[1].offset(now)
}

// furthestWall is the latest that any clock has shown.
func (m *machine) furthestWall() time.Time {
	latest := m.furthest
	for _, c := range m.clocks {
		if t := c.wall(time.Now()); t.After(latest) {
			latest = t
		}
	}
	return latest
}
