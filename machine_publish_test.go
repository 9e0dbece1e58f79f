package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/elido-app/webhook"
)

// firstUse is the first use of an idempotency key.
type firstUse struct {
	content string
	at      time.Time // by the publisher's clock
	eventID string    // empty if it is not known
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
func (m *machine) foresee(p *party, events []*plannedEvent) (conflict bool) {
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
			within[e.key] = &firstUse{content: e.content, at: p.clock.showed(time.Now())}
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
		if m.furthestWall().Sub(use.at) > 23*time.Hour { // it may be forgotten soon
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
	conflict := m.foresee(p, events)
	now := time.Now()
	var receipts []webhook.Receipt
	err := contained(func() (err error) {
		receipts, err = call(plain)
		return err
	})
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
			m.adopt(p, e, receipts[i], now, said)
		}
		m.stats.events += len(events)
	}
	if applied && !said {
		m.publishAgain(p, events, call)
	}
}

// publishAgain does what a publisher does that was not told what became of its
// events, where they have idempotency keys: nothing more may be stored.
func (m *machine) publishAgain(p *party, events []*plannedEvent, call func([]webhook.Event) ([]webhook.Receipt, error)) {
	var again []*plannedEvent
	for _, e := range events {
		if e.key == "" {
			return
		}
		next := &plannedEvent{Event: e.Event, key: e.key}
		m.fill(next, string(e.Data.(json.RawMessage)))
		again = append(again, next)
	}
	m.publish(p, again, call)
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
func (m *machine) adopt(p *party, e *plannedEvent, r webhook.Receipt, now time.Time, said bool) {
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
		d := &deliveryModel{id: id, to: to[i], eventID: r.EventID, kind: e.Type, key: e.OrderingKey, payload: e.payload, created: p.clock.showed(now).Truncate(time.Millisecond)}
		to = slices.Delete(to, i, i+1)
		if n := len(m.order); n > 0 && m.order[n-1] >= id {
			m.failf("delivery id %d after %d", id, m.order[n-1])
			return
		}
		d.latest.Status = webhook.StatusPending
		if d.askedAt = time.Now(); said {
			d.asked = p
		}
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
	var r webhook.Receipt
	err := contained(func() (err error) {
		r, err = p.SendTest(context.Background(), e.workspace, e.id)
		return err
	})
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
			if d, err := m.reader.Delivery(context.Background(), e.workspace, r.DeliveryIDs[0]); err == nil && p.clock.when(d.CreatedAt).After(now) {
				now = p.clock.when(d.CreatedAt)
			}
		}
		event.payload = fmt.Sprintf(`{"type":"test","workspace_id":%d,"data":{"message":"Test event from Elido"},"timestamp":"%s"}`,
			e.workspace, now.UTC().Format("2006-01-02T15:04:05Z"))
		m.adopt(p, event, r, now, said)
	}
}
