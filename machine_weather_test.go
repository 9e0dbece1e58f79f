package webhook_test

import (
	"context"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/elido-app/webhook"
)

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
