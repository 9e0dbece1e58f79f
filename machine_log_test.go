package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/elido-app/webhook"
)

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
		want = append(want, id)
	}
	slices.SortStableFunc(want, func(a, b int64) int { return m.deliveries[b].created.Compare(m.deliveries[a].created) })
	want = want[:min(len(want), q.Limit)]
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
	var v webhook.Delivery
	err := contained(func() (err error) {
		v, err = p.Retry(context.Background(), d.to.workspace, d.id)
		return err
	})
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
		m.rebase(p, d, now, slow)
		if known {
			d.asked = p
		}
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
func (m *machine) rebase(p *party, d *deliveryModel, now time.Time, maybe bool) bool {
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
	d.base, d.retriedAt = base, p.clock.showed(now)
	d.asked, d.askedAt = nil, time.Now()
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
		if completed := d.latest.CompletedAt; !d.gone && d.to == e && d.latest.Status == webhook.StatusFailed &&
			!completed.Before(p.clock.wall(since)) && !completed.After(p.clock.wall(time.Now())) {
			failed = append(failed, d)
		}
	}
	now, except := m.rearm(all...)
	var n int
	err := contained(func() (err error) {
		n, err = p.Recover(context.Background(), e.workspace, e.id, since)
		return err
	})
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
			if m.rebase(p, d, now, true) {
				failed = append(failed, d)
			}
		}
	default:
		if known && n != len(failed) {
			m.failf("recovered %d deliveries of endpoint %d, expected %d", n, e.id, len(failed))
		}
		for _, d := range failed {
			m.rebase(p, d, now, false)
		}
		m.stats.retries += len(failed)
	}
	if !applied {
		failed = nil
	}
	except(failed...)
	m.rush()
}

// doRead has a party read what there is to read, and compares it with what
// somebody else finds.
func (m *machine) doRead() {
	m.settle()
	p, e, ctx := m.anyParty(), m.anyEndpoint(), context.Background()
	other, err := webhook.New(timed{m.log, p.clock}, m.config)
	if err != nil {
		m.failf("%v", err)
		return
	}
	var id int64
	if len(m.order) > 0 {
		id = pick(m, "delivery", m.order)
	}
	for i, read := range []func(d *webhook.Dispatcher) (any, error){
		func(d *webhook.Dispatcher) (any, error) { return d.Endpoint(ctx, e.workspace, e.id) },
		func(d *webhook.Dispatcher) (any, error) { return d.Endpoints(ctx, e.workspace, 0, 0) },
		func(d *webhook.Dispatcher) (any, error) { return d.Delivery(ctx, e.workspace, id) },
		func(d *webhook.Dispatcher) (any, error) { return d.Attempts(ctx, e.workspace, id) },
		func(d *webhook.Dispatcher) (any, error) {
			return d.Deliveries(ctx, webhook.DeliveryQuery{WorkspaceID: e.workspace})
		},
	} {
		from := time.Now()
		var got any
		err := contained(func() (err error) {
			got, err = read(p.Dispatcher)
			return err
		})
		if errors.Is(err, errFailed) || time.Now().After(from) {
			continue
		}
		want, wantErr := read(other)
		if errors.Is(err, webhook.ErrNotFound) != errors.Is(wantErr, webhook.ErrNotFound) || (err == nil) != (wantErr == nil) ||
			err == nil && !reflect.DeepEqual(got, want) {
			m.failf("%s: reading %d: %+v, %v; expected %+v, %v", p.name, i, got, err, want, wantErr)
		}
	}
}
