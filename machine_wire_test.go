package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

// A party is one process: a Dispatcher with its own connection to the store and
// its own way to the receivers. Between it and either sits the machine, which
// watches, and breaks things.
type party struct {
	*webhook.Dispatcher
	m     *machine
	name  string
	born  time.Time
	inner store.Store

	cancel context.CancelFunc
	ended  chan error    // what Run returned; nil unless it runs
	ran    time.Time     // when it was started
	death  chan struct{} // closed when the process crashes

	// Guarded by machine.mu.
	dead     bool
	deaths   []time.Time // crashes, and when Run or RunOnce gave up with an error
	stopping bool
	plan     []mishap // of the next store calls, one each
	outage   outage
	troubles []span
}

func (p *party) running() bool { return p.ended != nil }

// A mishap is what happens to one store call.
type mishap struct {
	lose  bool          // it takes effect, and its answer is lost
	fail  bool          // it fails and has no effect
	wait  time.Duration // before it
	delay time.Duration // after it
}

// An outage is a time in which no store call gets through: each fails at once or
// hangs until the end.
type outage struct {
	until time.Time
	hangs bool
}

type span struct{ from, to time.Time }

var (
	errFailed = errors.New("injected: the store refuses")
	errLost   = fmt.Errorf("injected: %w", store.ErrOutcomeUnknown)
	errDead   = errors.New("injected: the process is dead")
)

// trouble notes that store calls of the party are not to be relied on.
func (p *party) trouble(from, to time.Time) { p.troubles = append(p.troubles, span{from, to}) }

// troubled reports whether there was trouble between two instants.
func (p *party) troubled(from, to time.Time) bool {
	for _, s := range p.troubles {
		if !s.to.Before(from) && !s.from.After(to) {
			return true
		}
	}
	return false
}

const (
	storePatience  = 10 * time.Second // how long the dispatcher waits for one store call
	longestBackoff = 5 * time.Second
	leaseTime      = 30 * time.Second
	leaseAtStart   = 15 * time.Second // what a lease lasts, at least, when a request starts
)

// catchesUp returns when the party has written at the latest what came to be
// known at an instant: store calls that failed are tried again.
func (p *party) catchesUp(at time.Time) time.Time {
	for _, s := range p.troubles { // in order of their beginning
		if !s.from.After(at) && !s.to.Add(longestBackoff).Before(at) {
			at = s.to.Add(longestBackoff)
		}
	}
	return at
}

// forgives reports whether a request may be in no log: it was cut, its process
// did not live to write it down, or could not as long as the lease lasted, or
// has not yet.
func (q *machineRequest) forgives() bool {
	p := q.by
	by := p.catchesUp(q.done)
	return q.open || q.cut || !time.Now().After(by) && by.After(q.done) || by.After(q.at.Add(leaseAtStart)) ||
		slices.ContainsFunc(p.deaths, func(t time.Time) bool { return !t.Before(q.at) && !t.After(by) })
}

// knows returns when the party must know of a change that another one made: one
// poll later, or one after the store is back.
func (p *party) knows(changed time.Time) time.Time {
	by := changed.Add(p.m.config.Poll)
	for _, s := range p.troubles { // in order of their beginning
		if !s.from.After(by) && !s.to.Add(storePatience).Before(changed) {
			if back := s.to.Add(longestBackoff + storePatience + p.m.config.Poll); back.After(by) {
				by = back
			}
		}
	}
	return by
}

// before lets faults happen to a store call that begins.
func (p *party) before(ctx context.Context) (mishap, error) {
	p.m.mu.Lock()
	now := time.Now()
	var f mishap
	switch {
	case p.dead:
		p.m.mu.Unlock()
		return f, errDead
	case now.Before(p.outage.until):
		f.fail = true
		if p.outage.hangs {
			f = mishap{wait: p.outage.until.Sub(now)}
		}
	case len(p.plan) > 0:
		f, p.plan = p.plan[0], p.plan[1:]
		if f != (mishap{}) {
			p.trouble(now, now.Add(f.wait+f.delay))
			p.m.stats.faults++
		}
	}
	p.m.mu.Unlock()
	if err := p.wait(ctx, f.wait); err != nil {
		return f, err
	}
	if f.fail {
		return f, errFailed
	}
	return f, nil
}

func (p *party) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	case <-p.death:
		return errDead
	}
}

// changing makes a store call that changes something.
func changing[T any](ctx context.Context, p *party, call func() (T, error)) (T, error) {
	var none T
	f, err := p.before(ctx)
	if err != nil {
		return none, err
	}
	v, err := call()
	if err != nil {
		return none, err
	}
	if err := p.wait(ctx, f.delay); err != nil || f.lose {
		return none, errLost
	}
	return v, nil
}

// looking makes a store call that changes nothing.
func looking[T any](ctx context.Context, p *party, call func() (T, error)) (T, error) {
	var none T
	f, err := p.before(ctx)
	if err != nil {
		return none, err
	}
	v, err := call()
	if err != nil {
		return none, err
	}
	if err := p.wait(ctx, f.delay); err != nil || f.lose {
		return none, errFailed
	}
	return v, nil
}

// A brittle is the store as a party sees it.
type brittle struct{ p *party }

var _ store.Store = brittle{}

func (s brittle) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	return changing(ctx, s.p, func() (store.PublishResult, error) { return s.p.inner.Publish(ctx, p) })
}

func (s brittle) CreateEndpoint(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
	return changing(ctx, s.p, func() (store.Endpoint, error) { return s.p.inner.CreateEndpoint(ctx, p) })
}

func (s brittle) Endpoint(ctx context.Context, workspaceID, id int64) (store.Endpoint, error) {
	return looking(ctx, s.p, func() (store.Endpoint, error) { return s.p.inner.Endpoint(ctx, workspaceID, id) })
}

func (s brittle) Endpoints(ctx context.Context, f store.EndpointFilter) ([]store.Endpoint, error) {
	return looking(ctx, s.p, func() ([]store.Endpoint, error) { return s.p.inner.Endpoints(ctx, f) })
}

func (s brittle) UpdateEndpoint(ctx context.Context, e store.Endpoint, credentials *store.Sealed) (store.Endpoint, error) {
	return changing(ctx, s.p, func() (store.Endpoint, error) { return s.p.inner.UpdateEndpoint(ctx, e, credentials) })
}

func (s brittle) RotateSecret(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
	return changing(ctx, s.p, func() (store.Endpoint, error) { return s.p.inner.RotateSecret(ctx, p) })
}

func (s brittle) Secrets(ctx context.Context, f store.SecretsFilter) ([]store.EndpointSecrets, error) {
	return looking(ctx, s.p, func() ([]store.EndpointSecrets, error) { return s.p.inner.Secrets(ctx, f) })
}

func (s brittle) Reseal(ctx context.Context, secrets []store.EndpointSecrets) ([]int64, error) {
	return changing(ctx, s.p, func() ([]int64, error) { return s.p.inner.Reseal(ctx, secrets) })
}

func (s brittle) DeleteEndpoint(ctx context.Context, workspaceID, id int64, at time.Time) error {
	_, err := changing(ctx, s.p, func() (struct{}, error) {
		return struct{}{}, s.p.inner.DeleteEndpoint(ctx, workspaceID, id, at)
	})
	return err
}

func (s brittle) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	return changing(ctx, s.p, func() (store.ClaimResult, error) { return s.p.inner.Claim(ctx, p) })
}

func (s brittle) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	return changing(ctx, s.p, func() (store.RecordResult, error) { return s.p.inner.Record(ctx, p) })
}

func (s brittle) Renew(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
	return changing(ctx, s.p, func() ([]int64, error) { return s.p.inner.Renew(ctx, leases, until) })
}

func (s brittle) Release(ctx context.Context, releases []store.Release) error {
	_, err := changing(ctx, s.p, func() (struct{}, error) { return struct{}{}, s.p.inner.Release(ctx, releases) })
	return err
}

func (s brittle) Probe(ctx context.Context, p store.ProbeParams) (store.ProbeResult, error) {
	return looking(ctx, s.p, func() (store.ProbeResult, error) { return s.p.inner.Probe(ctx, p) })
}

func (s brittle) Deliveries(ctx context.Context, f store.DeliveryFilter) ([]store.Delivery, error) {
	return looking(ctx, s.p, func() ([]store.Delivery, error) { return s.p.inner.Deliveries(ctx, f) })
}

func (s brittle) Delivery(ctx context.Context, workspaceID, id int64) (store.Delivery, error) {
	return looking(ctx, s.p, func() (store.Delivery, error) { return s.p.inner.Delivery(ctx, workspaceID, id) })
}

func (s brittle) Attempts(ctx context.Context, workspaceID, deliveryID int64) ([]store.Attempt, error) {
	return looking(ctx, s.p, func() ([]store.Attempt, error) { return s.p.inner.Attempts(ctx, workspaceID, deliveryID) })
}

func (s brittle) Retry(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
	return changing(ctx, s.p, func() (store.Delivery, error) { return s.p.inner.Retry(ctx, p) })
}

func (s brittle) Recover(ctx context.Context, p store.RecoverParams) (int, error) {
	return changing(ctx, s.p, func() (int, error) { return s.p.inner.Recover(ctx, p) })
}

func (s brittle) Maintain(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
	return changing(ctx, s.p, func() (store.MaintainResult, error) { return s.p.inner.Maintain(ctx, p) })
}

func (s brittle) Close() error { return s.p.inner.Close() }

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
	delivery int64
	key      string

	at       time.Time
	answered time.Time // status and headers; or the error
	done     time.Time // the body as well; or the crash
	open     bool
	cut      bool // ended by the process, perhaps before its time limit
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
	m.stats.requests++
	b := behaviour{}
	if q.to != nil {
		b = q.to.behaviour
	}
	m.mu.Unlock()

	answer, err := p.answer(r.Context(), b, q)
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
func (p *party) answer(ctx context.Context, b behaviour, q *machineRequest) (*http.Response, error) {
	if b.kind == "silent" {
		b.latency = time.Hour
	}
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
	switch b.kind {
	case "reset":
		return nil, io.ErrUnexpectedEOF
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
	case "trickle":
		r := status(200)
		r.Body, r.ContentLength = endless{ctx}, -1
		return r, nil
	default:
		return status(204), nil
	}
}

// endless is a body that never ends.
type endless struct{ ctx context.Context }

func (e endless) Read([]byte) (int, error) {
	<-e.ctx.Done()
	return 0, e.ctx.Err()
}

func (endless) Close() error { return nil }

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
	// Who is open beside it.
	beside := 0
	for _, o := range m.open {
		if o.delivery == q.delivery {
			m.failLocked("delivery %d: a second request while one is open (%s, %s)", q.delivery, o.by.name, q.by.name)
		} else if o.to == q.to && q.key != "" && o.key == q.key {
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
		if !q.to.latest().deleted {
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
	switch {
	case d.Status != webhook.StatusPending:
		m.failLocked("%s: request for delivery %d, which is %s", q.by.name, d.ID, d.Status)
	case d.Attempts >= d.Budget:
		m.failLocked("%s: request for delivery %d, whose budget of %d is used up", q.by.name, d.ID, d.Budget)
	case d.NextAttemptAt.After(q.at):
		m.failLocked("%s: request for delivery %d, which is not due until %v later", q.by.name, d.ID, d.NextAttemptAt.Sub(q.at))
	}
	for _, e := range s.earlier {
		// Only a manual retry makes an earlier one wait again; what was leased
		// by then goes first, once.
		since := m.retried[e]
		retried := since > 0
		for _, o := range m.requests[d.ID] {
			retried = retried && o.seq < since
		}
		if !retried {
			m.failLocked("%s: request for delivery %d of key %q while %d is pending", q.by.name, d.ID, q.key, e)
		}
	}
}
