package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/httpapi"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
)

const (
	workspace = 42
	webhooks  = "/v1/workspaces/42/webhooks"
	problem   = "https://github.com/elido-app/webhook/blob/main/docs/api.md#"
)

// exchanges is where every request and its answer is written, for other programs
// to compare with the OpenAPI document; interop does.
var exchanges = flag.String("exchanges", "", "append every request and its answer to this file, as lines of JSON")

// receiver stands in for all receivers.
type receiver struct {
	mu     sync.Mutex
	status int
	body   []byte
}

func (r *receiver) RoundTrip(*http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &http.Response{StatusCode: r.status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(r.body)), ContentLength: int64(len(r.body)), ProtoMajor: 1, ProtoMinor: 1}, nil
}

func (r *receiver) answer(status int, body string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.body = status, []byte(body)
}

// logged is what was logged.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// world is an API over HTTP, in front of a Dispatcher on a memory store.
type world struct {
	*testing.T
	*webhook.Dispatcher
	receiver *receiver
	log      *logged
	url      string
}

// options are what a test wants to be otherwise.
type options struct {
	api        httpapi.Config
	dispatcher webhook.Config
	store      store.Store
}

// allow lets everybody in.
func allow(*http.Request, int64, string) error { return nil }

func newWorld(t *testing.T, o options) *world {
	t.Helper()
	w := &world{T: t, receiver: &receiver{status: 200}, log: &logged{}}
	logger := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if o.store == nil {
		o.store = memorystore.New(memorystore.Options{})
	}
	o.dispatcher.Logger, o.api.Logger = logger, logger
	if o.dispatcher.Egress.Transport == nil {
		o.dispatcher.Egress.Transport = w.receiver
	}
	if o.api.Authorize == nil {
		o.api.Authorize = allow
	}
	var err error
	w.Dispatcher, err = webhook.New(o.store, o.dispatcher)
	require.NoError(t, err)
	handler, err := httpapi.New(w.Dispatcher, o.api)
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// reply is an answer of the API's.
type reply struct {
	*testing.T
	status int
	header http.Header
	raw    string
}

// exchange is one request and its answer.
type exchange struct {
	Method   string
	Target   string
	Header   http.Header
	Body     []byte
	Status   int
	Answered http.Header
	Answer   []byte
}

// call sends a request exactly as given: the target is not tidied. A body that is
// no string is marshalled. Pairs of header names and values may follow.
func (w *world) call(method, target string, body any, header ...string) reply {
	w.Helper()
	var text []byte
	switch b := body.(type) {
	case nil:
	case string:
		text = []byte(b)
	default:
		var err error
		text, err = json.Marshal(b)
		require.NoError(w, err)
	}
	req, err := http.NewRequestWithContext(w.Context(), method, w.url, bytes.NewReader(text))
	require.NoError(w, err)
	req.URL.Opaque, req.URL.RawQuery, _ = strings.Cut(target, "?")
	if len(text) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req) // no redirect is followed
	require.NoError(w, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(w, err)
	record(w.T, exchange{method, target, req.Header, text, resp.StatusCode, resp.Header, raw})

	r := reply{w.T, resp.StatusCode, resp.Header, string(raw)}
	what := fmt.Sprintf("%s %.200s: %d %s", method, target, r.status, r.raw)
	require.Equal(w, "no-store", r.header.Get("Cache-Control"), what)
	require.Equal(w, "nosniff", r.header.Get("X-Content-Type-Options"), what)
	switch {
	case r.status >= 400:
		require.Equal(w, "application/problem+json", r.header.Get("Content-Type"), what)
	case r.status != http.StatusNoContent && !strings.HasSuffix(target, ".yaml"):
		require.Equal(w, "application/json", r.header.Get("Content-Type"), what)
	}
	if method != http.MethodHead && strings.Contains(r.header.Get("Content-Type"), "json") {
		require.True(w, json.Valid(raw), what)
	}
	return r
}

var recording sync.Mutex

func record(t *testing.T, e exchange) {
	if *exchanges == "" {
		return
	}
	recording.Lock()
	defer recording.Unlock()
	f, err := os.OpenFile(*exchanges, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	require.NoError(t, json.NewEncoder(f).Encode(e))
	require.NoError(t, f.Close())
}

// is wants a status.
func (r reply) is(status int) reply {
	r.Helper()
	require.Equal(r, status, r.status, r.raw)
	return r
}

// problem wants a problem of a type, about these fields.
func (r reply) problem(status int, name string, fields ...string) reply {
	r.Helper()
	r.is(status)
	var p httpapi.Problem
	r.into(&p)
	require.Equal(r, problem+name, p.Type, r.raw)
	require.Equal(r, status, p.Status, r.raw)
	require.NotEmpty(r, p.Title, r.raw)
	require.NotEmpty(r, p.Detail, r.raw)
	var got []string
	for _, e := range p.Errors {
		require.NotEmpty(r, e.Detail, r.raw)
		got = append(got, e.Field)
	}
	require.Equal(r, fields, got, r.raw)
	return r
}

func (r reply) into(v any) {
	r.Helper()
	require.NoError(r, json.Unmarshal([]byte(r.raw), v), r.raw)
}

// at returns what is at a path of member names, an object's or the body's.
func (r reply) at(path ...string) any {
	r.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(r.raw))
	d.UseNumber()
	require.NoError(r, d.Decode(&v), r.raw)
	for _, name := range path {
		object, ok := v.(map[string]any)
		require.True(r, ok, r.raw)
		v = object[name]
	}
	return v
}

type object = map[string]any

// endpoint adds an endpoint, by the Dispatcher.
func (w *world) endpoint(workspaceID int64) webhook.Endpoint {
	w.Helper()
	e, _, err := w.CreateEndpoint(w.Context(), webhook.EndpointParams{
		WorkspaceID: workspaceID, URL: "https://customer.example/hooks", Events: []string{"link.*"},
	})
	require.NoError(w, err)
	return e
}

// publish publishes an event, and returns its delivery to the only endpoint.
func (w *world) publish(workspaceID int64, data string) (eventID string, deliveryID int64) {
	w.Helper()
	r, err := w.Publish(w.Context(), webhook.Event{Type: "link.created", WorkspaceID: workspaceID, Data: json.RawMessage(data)})
	require.NoError(w, err)
	require.Len(w, r.DeliveryIDs, 1)
	return r.EventID, r.DeliveryIDs[0]
}

// deliver makes the attempts that are due.
func (w *world) deliver() {
	w.Helper()
	_, err := w.RunOnce(context.WithoutCancel(w.Context()))
	require.NoError(w, err)
}

func path(endpointID int64, rest ...any) string {
	return fmt.Sprintf("%s/%d", webhooks, endpointID) + fmt.Sprint(rest...)
}

func query(pairs ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return "?" + v.Encode()
}
