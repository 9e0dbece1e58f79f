package dashboard

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// world is a Dispatcher, a receiver, and the pages in a server of their own, in
// front of which somebody sits.
type world struct {
	t        *testing.T
	store    *memorystore.Store
	d        *webhook.Dispatcher
	receiver *httptest.Server
	answer   atomic.Pointer[http.HandlerFunc] // of the receiver; nil: 200
	server   *httptest.Server
	client   *http.Client
	may      func(permission string) error // nil: everything
	language string
	log      *safeBuffer
}

// safeBuffer is a buffer that goroutines share.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newWorld(t *testing.T, change ...func(*webhook.Config, *Config)) *world {
	t.Helper()
	w := &world{t: t, store: memorystore.New(memorystore.Options{}), log: new(safeBuffer)}
	w.receiver = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if answer := w.answer.Load(); answer != nil {
			(*answer)(rw, r)
		}
	}))
	t.Cleanup(w.receiver.Close)
	config := webhook.Config{
		Egress: webhook.Egress{AllowLoopback: true}, Logger: slog.New(slog.NewTextHandler(w.log, nil)),
		Retry: webhook.RetryPolicy{Delays: []time.Duration{time.Hour, time.Hour}},
	}
	pages := Config{
		Prefix: "/hooks", Logger: config.Logger, SignIn: "/sign-in",
		Authorize: func(_ *http.Request, workspaceID int64, permission string) error {
			if w.may != nil {
				return w.may(permission)
			}
			if workspaceID > 43 {
				return http.ErrNoCookie
			}
			return nil
		},
	}
	for _, c := range change {
		c(&config, &pages)
	}
	var err error
	w.d, err = webhook.New(w.store, config)
	require.NoError(t, err)
	handler, err := New(w.d, pages)
	require.NoError(t, err)
	w.server = httptest.NewServer(handler)
	t.Cleanup(w.server.Close)
	w.client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return w
}

const top = "/hooks/workspaces/42/endpoints"

// answered is what came back.
type answered struct {
	*http.Response
	text string
}

func (w *world) do(r *http.Request) answered {
	w.t.Helper()
	if w.language != "" {
		r.Header.Set("Accept-Language", w.language)
	}
	response, err := w.client.Do(r)
	require.NoError(w.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	return answered{response, string(body)}
}

// get opens a page.
func (w *world) get(path string) answered {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.server.URL+path, nil)
	require.NoError(w.t, err)
	return w.do(r)
}

// post sends a form, as a browser would from a page of the same origin.
func (w *world) post(path string, fields ...string) answered {
	w.t.Helper()
	return w.do(w.form(path, fields...))
}

func (w *world) form(path string, fields ...string) *http.Request {
	w.t.Helper()
	values := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		values.Add(fields[i], fields[i+1])
	}
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.server.URL+path, strings.NewReader(values.Encode()))
	require.NoError(w.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return r
}

// follow goes where an answer leads.
func (w *world) follow(a answered) answered {
	w.t.Helper()
	require.Equal(w.t, http.StatusSeeOther, a.StatusCode, a.text)
	return w.get(a.Header.Get("Location"))
}

// endpoint adds an endpoint that sends to the receiver.
func (w *world) endpoint(change ...func(*webhook.EndpointParams)) (webhook.Endpoint, webhook.Secret) {
	w.t.Helper()
	p := webhook.EndpointParams{WorkspaceID: 42, URL: w.receiver.URL, Events: []string{"link.*"}}
	for _, c := range change {
		c(&p)
	}
	e, secret, err := w.d.CreateEndpoint(w.t.Context(), p)
	require.NoError(w.t, err)
	return e, secret
}

// publish publishes an event and makes the attempts that are due.
func (w *world) publish(data any) (deliveryIDs []int64) {
	w.t.Helper()
	r, err := w.d.Publish(w.t.Context(), webhook.Event{Type: "link.created", WorkspaceID: 42, Data: data})
	require.NoError(w.t, err)
	w.deliver()
	return r.DeliveryIDs
}

func (w *world) deliver() {
	w.t.Helper()
	_, err := w.d.RunOnce(w.t.Context())
	require.NoError(w.t, err)
}

// answers says how the receiver answers.
func (w *world) answers(f http.HandlerFunc) { w.answer.Store(&f) }

func (w *world) endpoints() []webhook.Endpoint {
	w.t.Helper()
	list, err := w.d.Endpoints(w.t.Context(), 42, 0, 0)
	require.NoError(w.t, err)
	return list
}

func pathOf(e webhook.Endpoint, rest string) string {
	return top + "/" + strconv.FormatInt(e.ID, 10) + rest
}

func deliveryPath(e webhook.Endpoint, id int64, rest string) string {
	return pathOf(e, "/deliveries/"+strconv.FormatInt(id, 10)+rest)
}

// hidden returns the value of a hidden field.
func (a answered) hidden(t *testing.T, name string) string {
	t.Helper()
	m := regexp.MustCompile(`<input type="hidden" name="` + name + `" value="([^"]*)">`).FindStringSubmatch(a.text)
	require.NotNil(t, m, "no hidden field %s in\n%s", name, a.text)
	return m[1]
}

// fieldError returns what a page says beside a field, by the id of the error.
func (a answered) fieldError(id string) string {
	m := regexp.MustCompile(`class="error" id="` + id + `">([^<]*)<`).FindStringSubmatch(a.text)
	if m == nil {
		return ""
	}
	return m[1]
}

var secretForm = regexp.MustCompile(`whsec_[A-Za-z0-9+/=]{20,}`)

// secret returns the secret that a page shows, once it is unescaped.
func (a answered) secret() string {
	return secretForm.FindString(strings.NewReplacer("&#43;", "+", "&#61;", "=").Replace(a.text))
}

// quietWorld is a world without servers, for bubbles with a clock of their own.
type quietWorld struct {
	t      *testing.T
	d      *webhook.Dispatcher
	h      *handler
	status int // that the receiver answers, after 100 ms
}

func newQuietWorld(t *testing.T) *quietWorld {
	t.Helper()
	w := &quietWorld{t: t, status: http.StatusOK}
	config := webhook.Config{Logger: slog.New(slog.DiscardHandler), Retry: webhook.RetryPolicy{Delays: []time.Duration{}}}
	config.Egress.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(100 * time.Millisecond)
		return &http.Response{StatusCode: w.status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
	var err error
	w.d, err = webhook.New(memorystore.New(memorystore.Options{}), config)
	require.NoError(t, err)
	w.h = &handler{d: w.d, config: Config{Prefix: "/hooks"}}
	return w
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (w *quietWorld) endpointAt(u string) webhook.Endpoint {
	w.t.Helper()
	e, _, err := w.d.CreateEndpoint(w.t.Context(), webhook.EndpointParams{WorkspaceID: 42, URL: u, Events: []string{"link.*"}})
	require.NoError(w.t, err)
	return e
}

// visit is a request that somebody who may do everything sent.
func (w *quietWorld) visit(path string) *visit {
	v := w.h.visit(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
	v.workspace, v.mayEdit = 42, true
	return v
}
