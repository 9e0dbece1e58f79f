package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/elido-app/webhook"
)

// change makes a call that gives an endpoint a new version.
func (m *machine) change(p *party, e *endpointModel, what string, next version, call func() error) (applied bool) {
	next.made, next.by, next.returned, next.settled = time.Now(), nil, time.Time{}, false
	m.mu.Lock()
	m.tracef("%s: %s endpoint %d", p.name, what, e.id)
	existed := e.live()
	e.versions = append(e.versions, &next)
	m.mu.Unlock()
	err := contained(call)
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
	v := version{made: time.Now(), active: true, current: m.newSecret(), bound: draw(m, "bound", 0, 1, 2, 5)}
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
	var created webhook.Endpoint
	err := contained(func() (err error) {
		created, _, err = p.CreateEndpoint(context.Background(), params)
		return err
	})
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
	next.previous, next.previousUntil = before.current, p.clock.showed(time.Now()).Truncate(time.Millisecond).Add(length)
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
		err := contained(func() error {
			_, _, err := p.RotateSecret(context.Background(), e.workspace, e.id, o)
			return err
		})
		m.notef("%s: rotate endpoint %d having seen %d: %v", p.name, e.id, seen, err)
		if _, known := verdict(err); !known && !errors.Is(err, webhook.ErrConflict) && (e.live() || !errors.Is(err, webhook.ErrNotFound)) {
			m.failf("rotating endpoint %d (%d rotations) having seen %d: %v", e.id, e.rotations, seen, err)
		}
		return
	}
	applied := m.change(p, e, "rotate", next, func() error {
		_, _, err := p.RotateSecret(context.Background(), e.workspace, e.id, o)
		return err
	})
	if !applied || !e.live() {
		return
	}
	e.rotations++
	m.stats.rotations++
	got, err := m.reader.Endpoint(context.Background(), e.workspace, e.id)
	if err != nil {
		m.failf("reading endpoint %d: %v", e.id, err)
	}
	// A store call before may have taken time.
	if got.Rotations != e.rotations || got.PreviousUntil.IsZero() != o.NoOverlap || got.PreviousUntil.Before(next.previousUntil) ||
		got.PreviousUntil.After(p.clock.showed(time.Now()).Add(length)) {
		m.failf("rotated %+v, expected %d rotations and an overlap until %v", got, e.rotations, next.previousUntil)
	}
	m.mu.Lock()
	e.latest().previousUntil = got.PreviousUntil
	m.mu.Unlock()
	m.rush()
}

func (m *machine) doDelete() {
	if m.chosen == nil && !m.oneIn(3, "really") {
		m.Skip("keeping endpoints")
	}
	p, e := m.anyParty(), m.anyEndpoint()
	next := *e.latest()
	next.deleted = true
	m.change(p, e, "delete", next, func() error { return p.DeleteEndpoint(context.Background(), e.workspace, e.id) })
	m.rush()
}
