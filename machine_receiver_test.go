package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

// A behaviour is how a receiver answers.
type behaviour struct {
	kind       string
	latency    time.Duration
	retryAfter string // of kind "busy"; "date" stands for half an hour from now
}

// A machineRequest is one that reached a receiver.
type machineRequest struct {
	seq      int64
	by       *party
	to       *endpointModel
	lease    *tenure // under which it was made
	delivery int64
	key      string

	at       time.Time
	answered time.Time // status and headers; or the error
	done     time.Time // the body as well; or the crash
	open     bool
	cut      bool // ended by the process, perhaps before its time limit
	panicked bool // within the process
	status   int
	postpone func(end time.Time) time.Duration // what Retry-After asks for

	recorded bool // an attempt row matches it
}

// RoundTrip is a party's way to the receivers.
func (p *party) RoundTrip(r *http.Request) (*http.Response, error) {
	m := p.m
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	sight := m.look(r)

	m.mu.Lock()
	if p.dead {
		m.mu.Unlock()
		<-r.Context().Done() // a dead process sends nothing
		return nil, r.Context().Err()
	}
	m.seq++
	q := &machineRequest{seq: m.seq, by: p, to: sight.to, delivery: sight.delivery.ID, key: sight.delivery.OrderingKey, at: time.Now(), open: true}
	m.inspect(q, r, string(body), sight)
	m.requests[q.delivery] = append(m.requests[q.delivery], q)
	m.open = append(m.open, q)
	b := behaviour{}
	if q.to != nil {
		b = q.to.behaviour
	}
	if b.kind != "refused" {
		m.stats.requests++ // that reached somebody
	}
	if b.kind != "" {
		m.stats.faults["receiver "+b.kind]++
	}
	m.mu.Unlock()

	defer func() {
		if q.panicked {
			m.mu.Lock()
			defer m.mu.Unlock()
			q.answered = time.Now()
			m.close(q, 0, false)
			q.cut = true
		}
	}()
	answer, err := p.answer(r, body, b, q)
	m.mu.Lock()
	defer m.mu.Unlock()
	q.answered = time.Now()
	if err != nil {
		m.close(q, 0, r.Context().Err() != nil)
		return nil, err
	}
	q.status = answer.StatusCode
	answer.Body = &watchedBody{ReadCloser: answer.Body, m: m, q: q}
	return answer, nil
}

// answer does what the receiver does.
func (p *party) answer(r *http.Request, body []byte, b behaviour, q *machineRequest) (*http.Response, error) {
	ctx := r.Context()
	if b.latency > 0 {
		timer := time.NewTimer(b.latency)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-p.death:
			return nil, errDead
		}
	}
	if connection, ok := connections[b.kind]; ok {
		return connection.carry(r, body)
	}
	switch b.kind {
	case "broken":
		return status(500), nil
	case "gone":
		return status(404), nil
	case "busy":
		now := time.Now()
		if b.retryAfter == "date" {
			date := now.Add(30 * time.Minute).UTC().Truncate(time.Second)
			q.postpone = date.Sub
			return status(429, "Retry-After", date.Format(http.TimeFormat)), nil
		}
		seconds, _ := strconv.Atoi(b.retryAfter)
		q.postpone = func(time.Time) time.Duration { return min(time.Duration(seconds)*time.Second, 24*time.Hour) }
		return status(429, "Retry-After", b.retryAfter), nil
	case "panics":
		p.m.mu.Lock()
		q.panicked = true
		p.m.mu.Unlock()
		panic("injected")
	default:
		return status(204), nil
	}
}

// watchedBody ends its request when it is closed.
type watchedBody struct {
	io.ReadCloser
	m *machine
	q *machineRequest
}

func (b *watchedBody) Close() error {
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	b.m.close(b.q, b.q.status, false)
	return b.ReadCloser.Close()
}

// close ends a request, which the sender may have given up.
func (m *machine) close(q *machineRequest, code int, givenUp bool) {
	if !q.open {
		return // it ended with its process
	}
	q.open, q.done, q.status = false, time.Now(), code
	// By its time limit, or else the process crashes or stops.
	q.cut = givenUp && (q.by.stopping || q.by.dead || q.done.Sub(q.at) < machineTimeLimit)
	for i, o := range m.open {
		if o == q {
			m.open = append(m.open[:i], m.open[i+1:]...)
			break
		}
	}
	m.tracef("%s: answer %d for delivery %d", q.by.name, code, q.delivery)
}

const machineTimeLimit = 10 * time.Second

// sight is what the store says about a delivery as its request arrives.
type sight struct {
	to       *endpointModel
	delivery webhook.Delivery
	found    bool
	earlier  []int64 // pending ones of its key
}

// look reads what there is to know about a request in the store. It must not
// hold the lock: parties wait for it within store calls.
func (m *machine) look(r *http.Request) sight {
	m.mu.Lock()
	s := sight{to: m.byURL[r.URL.String()]}
	m.mu.Unlock()
	s.delivery.ID, _ = strconv.ParseInt(r.Header.Get("X-Webhook-Delivery"), 10, 64)
	if s.to == nil {
		return s
	}
	ctx := context.Background()
	d, err := m.reader.Delivery(ctx, s.to.workspace, s.delivery.ID)
	if err != nil {
		return s
	}
	s.delivery, s.found = d, true
	if d.OrderingKey == "" {
		return s
	}
	pending, err := m.log.Deliveries(ctx, store.DeliveryFilter{WorkspaceID: d.WorkspaceID, EndpointID: d.EndpointID, Status: store.StatusPending})
	if err != nil {
		m.failf("reading the log: %v", err)
	}
	for _, e := range pending {
		if e.OrderingKey == d.OrderingKey && e.ID < d.ID {
			s.earlier = append(s.earlier, e.ID)
		}
	}
	return s
}

// inspect holds a request that arrives against everything that is promised.
func (m *machine) inspect(q *machineRequest, r *http.Request, body string, s sight) {
	m.tracef("%s: request for delivery %d to %s", q.by.name, q.delivery, r.URL)
	if q.to == nil {
		m.failLocked("%s: request to an unknown URL %s", q.by.name, r.URL)
		return
	}
	q.lease = q.by.holds[q.delivery]
	switch left := machineTimeLimit + startMargin; {
	case q.lease == nil:
		m.failLocked("%s: request for delivery %d without a lease", q.by.name, q.delivery)
		q.lease = &tenure{}
	case q.lease.used:
		m.failLocked("%s: a second request for delivery %d under one lease", q.by.name, q.delivery)
	case q.lease.until.Sub(q.by.clock.wall(q.at)) < left:
		m.failLocked("%s: request for delivery %d with only %v of its lease left", q.by.name, q.delivery, q.lease.until.Sub(q.by.clock.wall(q.at)))
	}
	q.lease.used = true
	// If a clock was set, a lease may run out sooner than its holder thinks, and
	// the delivery, or an earlier one of its key, goes to somebody else.
	stale := q.lease.ranOut()
	if stale && m.steady {
		m.failLocked("%s: request for delivery %d, whose lease ran out", q.by.name, q.delivery)
	}
	// Who is open beside it.
	beside := 0
	for _, o := range m.open {
		explained := stale || o.lease.ranOut() && !m.steady
		if o.delivery == q.delivery && !explained {
			m.failLocked("delivery %d: a second request while one is open (%s, %s)", q.delivery, o.by.name, q.by.name)
		} else if o.to == q.to && q.key != "" && o.key == q.key && !explained {
			m.failLocked("deliveries %d and %d of key %q are open at once", o.delivery, q.delivery, q.key)
		}
		if o.to == q.to && o.by == q.by {
			beside++
		}
	}
	if bound := q.to.bound(q.by, q.at); beside >= bound {
		m.failLocked("%s: %d requests open to endpoint %d, which allows %d", q.by.name, beside+1, q.to.id, bound)
	}
	if problem := q.to.agrees(q, r, body); problem != "" {
		m.failLocked("%s: request for delivery %d to endpoint %d: %s", q.by.name, q.delivery, q.to.id, problem)
	}
	if !s.found {
		if !q.to.latest().deleted && !stale {
			m.failLocked("request for delivery %d, which is not in the log of workspace %d", q.delivery, q.to.workspace)
		}
		return
	}
	d := s.delivery
	if d.EndpointID != q.to.id && q.to.id != 0 {
		m.failLocked("request for delivery %d of endpoint %d went to endpoint %d", d.ID, d.EndpointID, q.to.id)
	}
	if body != string(d.Payload) {
		m.failLocked("delivery %d: body %s is not the logged %s", d.ID, body, d.Payload)
	}
	if !strings.Contains(body, fmt.Sprintf(`"workspace_id":%d,`, q.to.workspace)) {
		m.failLocked("delivery %d: body %s went to workspace %d", d.ID, body, q.to.workspace)
	}
	if got := r.Header.Get("X-Webhook-Event"); got != d.EventType {
		m.failLocked("delivery %d: header names event %q, the log %q", d.ID, got, d.EventType)
	}
	if stale {
		return
	}
	switch {
	case d.Status != webhook.StatusPending:
		m.failLocked("%s: request for delivery %d, which is %s", q.by.name, d.ID, d.Status)
	case d.Attempts >= d.Budget:
		m.failLocked("%s: request for delivery %d, whose budget of %d is used up", q.by.name, d.ID, d.Budget)
	case d.NextAttemptAt.After(q.at) && m.steady:
		m.failLocked("%s: request for delivery %d, which is not due until %v later", q.by.name, d.ID, d.NextAttemptAt.Sub(q.at))
	}
	for _, e := range s.earlier {
		// Only a manual retry makes an earlier one wait again; what was leased
		// by then goes first, once.
		since := m.retried[e]
		retried := since > 0
		for _, o := range m.requests[d.ID] {
			retried = retried && (o.seq < since || q.lease.seq < since)
		}
		if !retried {
			m.failLocked("%s: request for delivery %d of key %q while %d is pending", q.by.name, d.ID, q.key, e)
		}
	}
}

var _ http.RoundTripper = (*party)(nil)
