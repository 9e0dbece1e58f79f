package webhook_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/elido-app/webhook"
)

// A version is one state of an endpoint, from one change to the next.
type version struct {
	active, deleted   bool
	url, tenant       string // tenant: an extra header
	events            []string
	current, previous webhook.Secret
	previousUntil     time.Time // by the store's instants
	bound             int       // open requests per process

	made     time.Time // when the call began
	by       *party    // who made the change and knows that it succeeded
	returned time.Time // when the call returned; zero while it is under way
	settled  bool      // everybody has come to rest since
}

type endpointModel struct {
	id        int64 // zero while it is being created
	workspace int64
	siem      bool
	rotations int
	versions  []*version
	behaviour behaviour
}

func (e *endpointModel) latest() *version { return e.versions[len(e.versions)-1] }

func (e *endpointModel) live() bool { return !e.latest().deleted }

// wants reports whether an event of a type selects the endpoint.
func (e *endpointModel) wants(workspace int64, kind string) bool {
	v := e.latest()
	if e.workspace != workspace || !v.active || v.deleted {
		return false
	}
	prefix, _, _ := strings.Cut(kind, ".")
	return e.siem || slices.Contains(v.events, kind) || slices.Contains(v.events, prefix+".*")
}

// possible returns the versions a request that a party starts at an instant may
// belong to: none that the party must know to be over.
func (e *endpointModel) possible(p *party, at time.Time) []*version {
	for i := len(e.versions) - 1; i > 0; i-- {
		v := e.versions[i]
		if v.returned.IsZero() {
			continue
		}
		own := v.by == p || p.born.After(v.returned)
		if own && (v.settled || at.After(v.returned)) || at.After(p.knows(v.returned)) {
			return e.versions[i:]
		}
	}
	return e.versions
}

// bound is how many requests of a party may be open at an instant. A request
// that is still open began under one of the versions of its time.
func (e *endpointModel) bound(p *party, at time.Time) int {
	most := 0
	for _, v := range e.possible(p, at.Add(-machineTimeLimit-2*time.Second)) {
		most = max(most, v.bound)
	}
	return most
}

// agrees returns why a request belongs to no version it may belong to.
func (e *endpointModel) agrees(q *machineRequest, r *http.Request, body string) (problem string) {
	if got, want := r.Header.Get("X-Webhook-Timestamp"), fmt.Sprint(q.at.Unix()); got != want {
		return fmt.Sprintf("signed at %s, sent at %s", got, want)
	}
	for _, v := range e.possible(q.by, q.at) {
		// Its overlap ends by the clock as it was when the lease came, or later.
		for _, offset := range q.by.clock.offsets(v.made) {
			if problem = v.agrees(q, r, body, offset); problem == "" {
				return ""
			}
		}
	}
	return problem
}

func (v *version) agrees(q *machineRequest, r *http.Request, body string, offset time.Duration) string {
	mac := func(s webhook.Secret) string {
		if s.IsZero() || body == "" {
			return ""
		}
		h := hmac.New(sha256.New, []byte(s.Reveal()))
		h.Write([]byte(r.Header.Get("X-Webhook-Timestamp") + "." + body))
		return "v1=" + hex.EncodeToString(h.Sum(nil))
	}
	previous := ""
	if q.at.Add(offset).Truncate(time.Millisecond).Before(v.previousUntil) {
		previous = mac(v.previous)
	}
	switch {
	case v.deleted:
		return "it is deleted"
	case !v.active:
		return "it is paused"
	case r.URL.String() != v.url:
		return "the URL is " + r.URL.String() + ", not " + v.url
	case r.Header.Get("X-Tenant") != v.tenant:
		return "the extra headers are another version's"
	case r.Header.Get("X-Elido-Signature") != mac(v.current):
		return "the signature is not the current secret's"
	case r.Header.Get("X-Elido-Signature-Previous") == "" && !q.by.m.furthestWall().Before(v.previousUntil):
		// A host whose clock was ahead may have ended the overlap for all.
	case r.Header.Get("X-Elido-Signature-Previous") != previous:
		return fmt.Sprintf("the previous signature is %q, not %q", r.Header.Get("X-Elido-Signature-Previous"), previous)
	}
	return ""
}

type deliveryModel struct {
	id        int64
	to        *endpointModel
	eventID   string // empty if it is not known
	kind      string
	key       string
	payload   string
	created   time.Time // by the clock of who did it
	retriedAt time.Time // the same

	asked   *party // who published or retried it last, if it was told so
	askedAt time.Time

	base   int // attempts before the current budget
	rows   []webhook.Attempt
	last   *machineRequest // of the last row
	latest webhook.Delivery
	gone   bool  // with its endpoint, or pruned
	round  int64 // in which it was last seen in the log
}

var machineDelays = []time.Duration{5 * time.Minute, 15 * time.Minute}

const machineBudget = 3

// observe waits until nothing moves and holds the log against the model.
func (m *machine) observe() {
	m.settle()
	m.round++
	for w := range int64(machineWorkspaces) {
		m.observeWorkspace(w + 1)
	}
	for _, e := range m.endpoints {
		m.observeEndpoint(e)
	}
	for _, id := range m.order {
		d := m.deliveries[id]
		if d.round == m.round || d.gone {
			continue
		}
		if d.to.live() && !m.prunable(d) {
			m.failf("delivery %d is lost: it is not in the log, was last %s with %d attempts", id, d.latest.Status, d.latest.Attempts)
		}
		d.gone = true
	}
	m.mu.Lock()
	m.checkIdle()
	m.mu.Unlock()
	m.check()
}

// observeEndpoint holds an endpoint against its last version.
func (m *machine) observeEndpoint(e *endpointModel) {
	v := e.latest()
	got, err := m.reader.Endpoint(context.Background(), e.workspace, e.id)
	switch {
	case v.deleted:
		if !errors.Is(err, webhook.ErrNotFound) {
			m.failf("endpoint %d is deleted: %v", e.id, err)
		}
	case err != nil:
		m.failf("endpoint %d: %v", e.id, err)
	case got.Active != v.active || got.URL != v.url || got.Headers["X-Tenant"] != v.tenant || got.Rotations != e.rotations ||
		!e.siem && !slices.Equal(got.Events, v.events) || got.MaxInFlight != v.bound && (got.MaxInFlight != 0 || v.bound != m.config.MaxInFlight):
		m.failf("endpoint %d is %+v, not %+v after %d rotations", e.id, got, v, e.rotations)
	case !got.PreviousUntil.Equal(v.previousUntil) && (!got.PreviousUntil.IsZero() || m.furthestWall().Before(v.previousUntil)):
		m.failf("endpoint %d has an overlap until %v, not %v", e.id, got.PreviousUntil, v.previousUntil)
	}
}

// listed reads the log of a workspace, page by page.
func (m *machine) listed(workspace int64) (list []webhook.Delivery) {
	q := webhook.DeliveryQuery{WorkspaceID: workspace}
	for {
		page, err := m.reader.Deliveries(context.Background(), q)
		if err != nil {
			m.failf("reading the log: %v", err)
			return list
		}
		list = append(list, page.Deliveries...)
		if q.Cursor = page.Next; q.Cursor == "" {
			return list
		}
	}
}

func (m *machine) observeWorkspace(workspace int64) {
	list := m.listed(workspace)
	for i := range list {
		v := &list[i]
		if i > 0 {
			if b := list[i-1]; b.CreatedAt.Before(v.CreatedAt) || b.CreatedAt.Equal(v.CreatedAt) && b.ID <= v.ID {
				m.failf("the log of workspace %d is out of order at delivery %d", workspace, v.ID)
			}
		}
		d := m.deliveries[v.ID]
		switch {
		case d == nil:
			m.failf("delivery %d of event %s is in the log, but nobody published it", v.ID, v.EventID)
			continue
		case d.gone:
			m.failf("delivery %d came back after it was gone", v.ID)
		case d.to.workspace != workspace || v.WorkspaceID != workspace:
			m.failf("delivery %d of workspace %d is in the log of %d", v.ID, d.to.workspace, workspace)
		}
		d.round = m.round
		m.compare(d, v)
	}
}

// compare holds one delivery against what happened to it.
func (m *machine) compare(d *deliveryModel, v *webhook.Delivery) {
	if d.eventID == "" {
		d.eventID = v.EventID
	}
	if v.EndpointID != d.to.id || v.EventID != d.eventID || v.EventType != d.kind || v.OrderingKey != d.key ||
		string(v.Payload) != d.payload || !v.CreatedAt.Equal(d.created) || v.Budget != machineBudget || v.Message != nil {
		m.failf("delivery %d changed: %+v", d.id, v)
	}
	if v.TotalAttempts != len(d.rows) || v.Status != d.latest.Status {
		m.readAttempts(d, v)
	}
	d.latest = *v

	m.mu.Lock()
	defer m.mu.Unlock()
	rows := d.rows[min(d.base, len(d.rows)):]
	want := webhook.StatusPending
	for i, a := range rows {
		switch {
		case want != webhook.StatusPending:
			m.failLocked("delivery %d has attempt %d after it was %s", d.id, a.Number, want)
		case a.Status >= 200 && a.Status <= 299:
			want = webhook.StatusDelivered
		case i+1 == machineBudget:
			want = webhook.StatusFailed
		}
	}
	if v.Status != want || v.Attempts != len(rows) || v.TotalAttempts != len(d.rows) {
		m.failLocked("delivery %d is %s with %d of %d attempts; by its rows it is %s with %d of %d",
			d.id, v.Status, v.Attempts, v.TotalAttempts, want, len(rows), len(d.rows))
	}
	if v.CompletedAt.IsZero() != (want == webhook.StatusPending) || v.NextAttemptAt.IsZero() == (want == webhook.StatusPending) {
		m.failLocked("delivery %d is %s, completed at %v, next attempt at %v", d.id, want, v.CompletedAt, v.NextAttemptAt)
	}
	panicked := v.Interruptions > 0 && slices.ContainsFunc(m.requests[d.id], func(q *machineRequest) bool { return q.panicked })
	if n := len(d.rows); n > 0 && (v.LastStatus != d.rows[n-1].Status || v.LastLatency != d.rows[n-1].Latency ||
		!bytes.Equal(v.LastError, d.rows[n-1].Error) && !panicked) {
		m.failLocked("delivery %d: its last result is not its last attempt's", d.id)
	}
	if want == webhook.StatusPending {
		m.checkDue(d, v, len(rows))
	}
	if v.Interruptions > 0 && m.calm && m.steady && !panicked {
		m.failLocked("delivery %d: %d leases ran out, but nothing happened", d.id, v.Interruptions)
	}
	for _, q := range m.requests[d.id] {
		if q.recorded || q.forgives() {
			continue
		}
		m.failLocked("delivery %d: the request of %s at %s, answered %d, is in no log", d.id, q.by.name, m.clock(q.at), q.status)
	}
}

// checkDue checks when a pending delivery is due, its budget having so many
// attempts used.
func (m *machine) checkDue(d *deliveryModel, v *webhook.Delivery, used int) {
	due := d.created
	switch {
	case used > 0:
		if d.last == nil {
			return
		}
		wait := machineDelays[used-1]
		if d.last.postpone != nil {
			wait = max(wait, d.last.postpone(d.last.done))
		}
		offset := d.last.by.clock.offset(d.last.answered)
		due = d.last.done.Add(offset + wait + time.Millisecond - 1).Truncate(time.Millisecond)
	case !d.retriedAt.IsZero():
		due = d.retriedAt.Truncate(time.Millisecond)
	}
	// An interruption puts it off to the end of the lease or beyond, which is
	// earlier only if a clock went back.
	if v.NextAttemptAt.Before(due) && (v.Interruptions == 0 || m.stats.back == 0) || v.Interruptions == 0 && v.NextAttemptAt.After(due) {
		m.failLocked("delivery %d is due at %s after %d attempts and %d interruptions, not at %s",
			d.id, m.clock(v.NextAttemptAt), used, v.Interruptions, m.clock(due))
	}
}

// readAttempts takes in new attempt rows and finds the request of each.
func (m *machine) readAttempts(d *deliveryModel, v *webhook.Delivery) {
	rows, err := m.reader.Attempts(context.Background(), v.WorkspaceID, v.ID)
	if err != nil {
		m.failf("reading the attempts of delivery %d: %v", d.id, err)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(rows) < len(d.rows) {
		m.failLocked("delivery %d had %d attempts and has %d", d.id, len(d.rows), len(rows))
		return
	}
	for i, a := range rows {
		if a.Number != i+1 || a.DeliveryID != d.id {
			m.failLocked("delivery %d: attempt %d has number %d", d.id, i+1, a.Number)
		}
		if i < len(d.rows) {
			if b := d.rows[i]; !a.StartedAt.Equal(b.StartedAt) || a.Status != b.Status || a.Latency != b.Latency || !bytes.Equal(a.Error, b.Error) {
				m.failLocked("delivery %d: attempt %d changed", d.id, a.Number)
			}
			continue
		}
		d.last = nil
		for _, q := range m.requests[d.id] {
			if q.madeRow(a) && (d.last == nil || !d.last.lease.lost.IsZero()) {
				d.last = q // of two alike, it is the one whose lease nobody took
			}
		}
		if d.last != nil {
			d.last.recorded = true
		}
		if d.last == nil {
			m.failLocked("delivery %d: attempt %d (%s, status %d, %v) is of no request", d.id, a.Number, m.clock(a.StartedAt), a.Status, a.Latency)
		} else if i > d.base && m.stats.forward+m.stats.back == 0 {
			// Its predecessor in the budget failed; the schedule lies between.
			before := rows[i-1]
			if gap := a.StartedAt.Sub(before.StartedAt); gap < machineDelays[min(i-d.base, len(machineDelays))-1] {
				m.failLocked("delivery %d: attempt %d came %v after the one before", d.id, a.Number, gap)
			}
		}
	}
	d.rows = rows
}

// madeRow reports whether an attempt row may be a request's, and is of no other.
func (q *machineRequest) madeRow(a webhook.Attempt) bool {
	if q.cut && q.done.Sub(q.at) < machineTimeLimit { // interrupted, which is no failure
		return false
	}
	return !q.recorded && !q.open && q.status == a.Status && q.by.clock.showed(q.at).Truncate(time.Millisecond).Equal(a.StartedAt) &&
		q.answered.Sub(q.at).Truncate(time.Microsecond) == a.Latency
}

// prunable reports whether a delivery that is not in the log may have been
// pruned. It may have ended since it was last seen.
func (m *machine) prunable(d *deliveryModel) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	ended, failures := false, 0
	var last time.Time
	for _, q := range m.requests[d.id] {
		if q.open && !q.outlived(time.Now()) {
			return false
		}
		if q.seq > m.retried[d.id] {
			ended = ended || q.status >= 200 && q.status <= 299
			failures++
		}
		// By the clock as it was when that was recorded, at the earliest.
		last = q.done.Add(slices.Min(q.by.clock.offsets(q.done)))
	}
	if at := d.latest.CompletedAt; !at.IsZero() && at.Before(last) {
		last = at
	}
	if !ended && failures < machineBudget {
		return false
	}
	r := m.config.Retention
	if r.MaxAge > 0 && m.furthestWall().Sub(last) >= r.MaxAge {
		return true
	}
	newer := 0
	for _, id := range m.order {
		o := m.deliveries[id]
		if o.to == d.to && (o.created.After(d.created) || o.created.Equal(d.created) && o.id > d.id) {
			newer++
		}
	}
	return r.MaxPerEndpoint > 0 && newer >= r.MaxPerEndpoint
}

// head reports whether a pending delivery waits for no other of its key.
func (m *machine) head(d *deliveryModel) bool {
	if d.key == "" {
		return true
	}
	for _, id := range m.order {
		o := m.deliveries[id]
		if o.id < d.id && o.to == d.to && o.key == d.key && !o.gone && o.latest.Status == webhook.StatusPending {
			return false
		}
	}
	return true
}

// waiting returns the pending deliveries of endpoints that are not paused.
func (m *machine) waiting() (list []*deliveryModel) {
	for _, id := range m.order {
		d := m.deliveries[id]
		if v := d.to.latest(); !d.gone && !v.deleted && v.active && d.latest.Status == webhook.StatusPending {
			list = append(list, d)
		}
	}
	return list
}
