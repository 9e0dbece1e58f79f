package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// hit is one request that reached the receiver.
type hit struct {
	at       time.Time
	url      string
	header   http.Header
	body     string
	delivery int64
}

// network stands in for all receivers: it notes every request and answers by
// its answer function, 200 without one.
type network struct {
	mu     sync.Mutex
	hits   []hit
	open   map[string]int // requests open now, by URL
	most   map[string]int // the most at once
	answer func(r *http.Request, n int) (*http.Response, error)
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	url := r.URL.String()
	n.mu.Lock()
	id, _ := strconv.ParseInt(r.Header.Get("X-Webhook-Delivery"), 10, 64)
	n.hits = append(n.hits, hit{time.Now(), url, r.Header.Clone(), string(body), id})
	count := 0
	for _, h := range n.hits {
		if h.delivery == id {
			count++
		}
	}
	if n.open == nil {
		n.open, n.most = map[string]int{}, map[string]int{}
	}
	n.open[url]++
	n.most[url] = max(n.most[url], n.open[url])
	answer := n.answer
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		n.open[url]--
		n.mu.Unlock()
	}()
	if answer == nil {
		return status(200), nil
	}
	return answer(r, count)
}

func (n *network) all() []hit {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.hits)
}

func (n *network) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hits = nil
}

func (n *network) set(answer func(r *http.Request, n int) (*http.Response, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = answer
}

// status is an answer with a status and "header: value" pairs.
func status(code int, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(bytes.NewReader(nil)), ProtoMajor: 1, ProtoMinor: 1}
}

func always(code int, header ...string) func(*http.Request, int) (*http.Response, error) {
	return func(*http.Request, int) (*http.Response, error) { return status(code, header...), nil }
}

// silent never answers.
func silent(r *http.Request, _ int) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// world is a Dispatcher on a memory store in a bubble of its own time.
type world struct {
	*testing.T
	*webhook.Dispatcher
	store store.Store
	net   *network
	log   *logged
	stop  func() // stops Run and waits for it
}

const workspace = 42

// bubble runs a test in a bubble with a Dispatcher that is not running yet.
func bubble(t *testing.T, config webhook.Config, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memorystore.New(memorystore.Options{}), config)
		defer func() { w.stop() }() // also when a require ended the test
		test(w)
	})
}

func newWorld(t *testing.T, st store.Store, config webhook.Config) *world {
	w := &world{T: t, store: st, net: &network{}, log: &logged{}, stop: func() {}}
	if config.Egress.Transport == nil && config.Egress.Resolver == nil {
		config.Egress.Transport = w.net
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	d, err := webhook.New(st, config)
	require.NoError(t, err)
	w.Dispatcher = d
	return w
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// logged is what was logged, to be read at any time.
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

// run starts Run.
func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Dispatcher.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(w, <-done)
	})
}

// settle waits until everybody waits for time to pass.
func (w *world) settle() { synctest.Wait() }

// sleep lets time pass.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) endpoint(p webhook.EndpointParams) (webhook.Endpoint, webhook.Secret) {
	w.Helper()
	if p.WorkspaceID == 0 {
		p.WorkspaceID = workspace
	}
	if p.URL == "" {
		p.URL = "https://example.com/hooks"
	}
	if p.Events == nil && p.Kind != webhook.KindSIEM {
		p.Events = []string{"link.*"}
	}
	e, secret, err := w.CreateEndpoint(w.Context(), p)
	require.NoError(w, err)
	return e, secret
}

func (w *world) publish(e webhook.Event) webhook.Receipt {
	w.Helper()
	if e.Type == "" {
		e.Type = "link.created"
	}
	if e.WorkspaceID == 0 {
		e.WorkspaceID = workspace
	}
	if e.Data == nil {
		e.Data = json.RawMessage(`{"id":91834}`)
	}
	r, err := w.Publish(w.Context(), e)
	require.NoError(w, err)
	return r
}

func (w *world) delivery(id int64) webhook.Delivery {
	w.Helper()
	v, err := w.Delivery(w.Context(), workspace, id)
	require.NoError(w, err)
	return v
}

func (w *world) attempts(id int64) []webhook.Attempt {
	w.Helper()
	list, err := w.Attempts(w.Context(), workspace, id)
	require.NoError(w, err)
	return list
}
