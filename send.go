package webhook

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elido-app/webhook/internal/channel"
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

	channel *channel.Channel // of kinds that get messages; nil for those that are signed

	signs         []SignFunc
	previousUntil time.Time
	sendsTrace    bool

	fixed  http.Header       // headers that never change
	logged map[string]string // the same as the log shows them

	confidences confidences // what the log shows of no answer
	private     sync.Map    // of a scheme's header names: whether the log leaves them out
}

var (
	contentType = []string{"application/json"}
	userAgent   = []string{"Elido-Webhooks/1.0"}
)

// Prepare implements queue.Sender.
func (s *sender) Prepare(t *store.Target) (any, error) {
	r := &route{previousUntil: t.Secrets.PreviousUntil, sendsTrace: s.config.SendTrace, fixed: make(http.Header), logged: make(map[string]string)}
	if !t.Kind.Signed() {
		return r, s.prepareChannel(r, t)
	}
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
		r.setHeader(http.CanonicalHeaderKey(name), []string{value})
	}
	r.confidences = r.confidences.addURL(r.url)
	for _, secret := range []Secret{current, previous} { // a receiver knows them, and may be careless
		r.confidences = r.confidences.add(secret.Reveal(), strings.TrimPrefix(secret.Reveal(), sig.SecretPrefix))
	}
	r.setHeader("Content-Type", contentType)
	r.setHeader("User-Agent", userAgent)
	return r, nil
}

// setHeader sets a header that all requests have.
func (r *route) setHeader(name string, value []string) {
	r.fixed[name] = value
	r.logged[name] = value[0]
	if private(name) {
		r.logged[name] = redacted
	}
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
		return s.result(f, egress.Answer{Final: true}, verdict{final: true}, store.Attempt{StartedAt: started, Error: []byte(r.refused)})
	}
	body, header, logged := r.request(f.Lease, started)
	answer := s.client.Do(f.Context(), egress.Request{
		URL: r.url, Header: header, Body: body, Sending: f.Sending, Began: f.Began,
	}, f.Answered)
	if answer.Status == 0 && f.Stopped() {
		return queue.Result{Interrupted: true}
	}
	v := r.judge(&answer)
	a := store.Attempt{StartedAt: started, Latency: answer.Latency, Status: answer.Status, Headers: logged}
	if !s.config.DropResponses {
		a.Response, a.ResponseCut = r.snippet(answer, header)
	}
	switch {
	case answer.Err != nil:
		a.Error = []byte(answer.Err.Error())
	case !v.delivered:
		a.Error = []byte(statusText(answer.Status) + v.reason)
	}
	result := s.result(f, answer, v, a)
	result.TimedOut = answer.TimedOut
	if r.channel != nil && !answer.Final && !answer.Refused {
		result.Outcome.Message = body
	}
	return result
}

// usualHeaders is how many headers an attempt has beside the fixed ones: its
// event and delivery, and up to four of a signature. With two fixed ones they fit into
// the smallest kind of map.
const usualHeaders = 6

// request makes the body and headers of one attempt, and what the log keeps of the
// headers.
func (r *route) request(l *store.Lease, at time.Time) ([]byte, http.Header, map[string]string) {
	if r.channel != nil {
		return r.message(l, at), r.fixed, maps.Clone(r.logged)
	}
	header, logged := r.headers(l, at)
	return l.Payload, header, logged
}

// headers makes the headers of one attempt, and what the log keeps of them.
func (r *route) headers(l *store.Lease, at time.Time) (http.Header, map[string]string) {
	h := make(http.Header, len(r.fixed)+usualHeaders)
	for name, values := range r.fixed {
		h[name] = values
	}
	values := [2]string{l.EventType, strconv.FormatInt(l.DeliveryID, 10)}
	h[sig.HeaderEvent], h[sig.HeaderDelivery] = values[0:1:1], values[1:2:2]
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
	if r.sendsTrace && l.Trace != "" {
		h["Traceparent"] = []string{l.Trace}
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

// snippet returns what is kept of an answer: not what it says of the request that
// nobody should read, the signature included, with which it could be repeated.
func (r *route) snippet(answer egress.Answer, sent http.Header) (response []byte, cut bool) {
	if len(answer.Body) < confidenceLeast {
		return answer.Body, answer.Cut
	}
	c := slices.Clip(r.confidences)
	for name, values := range sent {
		if r.hidden(name) {
			for _, value := range values {
				c = c.addHeader(value)
			}
		}
	}
	return c.cover(answer.Body, answer.Cut)
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

// A verdict is what an answer means for the delivery.
type verdict struct {
	delivered bool
	final     bool          // repeating cannot help
	wait      time.Duration // what the answer asks for beside Retry-After
	reason    string        // more than the status, to be put after it
}

// judge decides what an answer means.
func (r *route) judge(answer *egress.Answer) verdict {
	if r.channel != nil && answer.Err == nil {
		return r.judgeChannel(answer)
	}
	return verdict{delivered: success(answer.Status), final: answer.Final}
}

// result decides what becomes of the delivery.
func (s *sender) result(f *queue.Flight, answer egress.Answer, v verdict, a store.Attempt) queue.Result {
	o := store.Outcome{Attempt: a, Status: StatusFailed, Health: store.HealthFailure}
	used := f.Lease.Attempts + 1
	switch {
	case v.delivered:
		o.Status, o.Health = StatusDelivered, store.HealthSuccess
	case v.final || used >= f.Lease.Budget:
	default:
		now := time.Now()
		o.Status = StatusPending
		o.NextAttemptAt = s.config.Retry.next(used, now, max(retryAfter(answer.Header, now), v.wait))
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
