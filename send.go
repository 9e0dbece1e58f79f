package webhook

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elido-app/webhook/internal/egress"
	"github.com/elido-app/webhook/internal/queue"
	"github.com/elido-app/webhook/internal/sig"
	"github.com/elido-app/webhook/store"
)

// sender makes the queue's attempts.
type sender struct{ *Dispatcher }

// route is what requests to one endpoint have in common.
type route struct {
	url     *url.URL
	refused string // why the URL can never be requested; empty if it can

	signs         []SignFunc
	previousUntil time.Time

	fixed  http.Header       // headers that never change
	logged map[string]string // the same as the log shows them

	private sync.Map // of a scheme's header names: whether the log leaves them out
}

var (
	contentType = []string{"application/json"}
	userAgent   = []string{"Elido-Webhooks/1.0"}
)

// Prepare implements queue.Sender.
func (s *sender) Prepare(t *store.Target) (any, error) {
	r := &route{previousUntil: t.Secrets.PreviousUntil, fixed: make(http.Header), logged: make(map[string]string)}
	if r.url, r.refused = s.parseURL(t.URL); r.url == nil {
		return r, nil
	}
	current, err := s.keys.unseal(t.Secrets.Current, sealSecret, t.WorkspaceID, t.EndpointID)
	if err != nil {
		return nil, err
	}
	previous, err := s.keys.unseal(t.Secrets.Previous, sealSecret, t.WorkspaceID, t.EndpointID)
	if err != nil {
		return nil, err
	}
	if r.signs, err = s.config.Signer.prepare(current, previous); err != nil {
		return nil, err
	}
	for name, value := range t.Headers {
		name = http.CanonicalHeaderKey(name)
		r.fixed[name] = []string{value}
		r.logged[name] = value
		if private(name) {
			r.logged[name] = "[redacted]"
		}
	}
	r.fixed["Content-Type"], r.logged["Content-Type"] = contentType, contentType[0]
	r.fixed["User-Agent"], r.logged["User-Agent"] = userAgent, userAgent[0]
	return r, nil
}

// parseURL returns the URL to request, or why no repeat can help: it was saved
// under other rules than are in force now.
func (s *sender) parseURL(raw string) (u *url.URL, refused string) {
	u, err := egress.ParseURL(raw, s.egressOptions())
	if err != nil {
		return nil, "the endpoint's URL is refused: " + err.Error()
	}
	return u, ""
}

// private reports whether a header's value is kept out of the log.
func private(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"signature", "auth", "token", "secret", "password", "key", "cookie"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// Send implements queue.Sender.
func (s *sender) Send(f *queue.Flight, prepared any) queue.Result {
	r := prepared.(*route)
	started := time.Now().UTC().Truncate(time.Millisecond)
	if r.refused != "" {
		return s.result(f, egress.Answer{Final: true}, store.Attempt{StartedAt: started, Error: []byte(r.refused)})
	}
	header, logged := r.headers(f.Lease, started)
	answer := s.client.Do(f.Context(), egress.Request{
		URL: r.url, Header: header, Body: f.Lease.Payload, Sending: f.Sending, Began: f.Began,
	}, f.Answered)
	if answer.Status == 0 && f.Stopped() {
		return queue.Result{Interrupted: true}
	}
	a := store.Attempt{StartedAt: started, Latency: answer.Latency, Status: answer.Status, Headers: logged}
	if !s.config.DropResponses {
		a.Response, a.ResponseCut = answer.Body, answer.Cut
	}
	switch {
	case answer.Err != nil:
		a.Error = []byte(answer.Err.Error())
	case !success(answer.Status):
		a.Error = []byte(statusText(answer.Status))
	}
	result := s.result(f, answer, a)
	result.TimedOut = answer.TimedOut
	return result
}

// headers makes the headers of one attempt, and what the log keeps of them.
func (r *route) headers(l *store.Lease, at time.Time) (http.Header, map[string]string) {
	h := make(http.Header, len(r.fixed)+8)
	for name, values := range r.fixed {
		h[name] = values
	}
	h[sig.HeaderEvent] = []string{l.EventType}
	h[sig.HeaderDelivery] = []string{strconv.FormatInt(l.DeliveryID, 10)}
	m := Message{
		DeliveryID: l.DeliveryID,
		EventID:    l.EventID,
		EventType:  l.EventType,
		Attempt:    l.TotalAttempts + 1,
		Time:       at,
		Body:       l.Payload,
		Overlap:    at.Before(r.previousUntil),
	}
	for _, sign := range r.signs {
		sign(h, m)
	}
	logged := make(map[string]string, len(h))
	for name, values := range h {
		if shown, fixed := r.logged[name]; fixed {
			logged[name] = shown
		} else if !r.hidden(name) && len(values) > 0 {
			logged[name] = values[0]
		}
	}
	return h, logged
}

// hidden is private, remembered: schemes set the same few names every time.
func (r *route) hidden(name string) bool {
	if known, ok := r.private.Load(name); ok {
		return known.(bool)
	}
	p := private(name)
	r.private.Store(name, p)
	return p
}

// result decides what becomes of the delivery.
func (s *sender) result(f *queue.Flight, answer egress.Answer, a store.Attempt) queue.Result {
	o := store.Outcome{Attempt: a, Status: StatusFailed, Health: store.HealthFailure}
	used := f.Lease.Attempts + 1
	switch {
	case success(answer.Status):
		o.Status, o.Health = StatusDelivered, store.HealthSuccess
	case answer.Final || used >= f.Lease.Budget:
	default:
		now := time.Now()
		o.Status = StatusPending
		o.NextAttemptAt = s.config.Retry.next(used, now, retryAfter(answer.Header, now))
	}
	if answer.Refused || answer.Final {
		o.Health = store.HealthNone
	}
	return queue.Result{Outcome: o}
}

func success(status int) bool { return status >= 200 && status <= 299 }

func statusText(status int) string {
	text := "HTTP " + strconv.Itoa(status)
	if name := http.StatusText(status); name != "" {
		text += " " + name
	}
	if status >= 300 && status <= 399 {
		text += " (redirects are not followed)"
	}
	return text
}
