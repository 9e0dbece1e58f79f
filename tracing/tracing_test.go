package tracing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
	"github.com/elido-app/webhook/tracing"
)

const workspace = 42

// traced is a Dispatcher whose spans are kept in memory.
type traced struct {
	*testing.T
	*webhook.Dispatcher
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer // the host's own
}

func newTraced(t *testing.T, st store.Store, config webhook.Config) *traced {
	t.Helper()
	x := &traced{T: t, spans: tracetest.NewInMemoryExporter()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(x.spans))
	x.tracer = provider.Tracer("host")
	tracing.Configure(&config, provider)
	config.Logger = slog.New(slog.DiscardHandler)
	var err error
	x.Dispatcher, err = webhook.New(st, config)
	require.NoError(t, err)
	return x
}

func (x *traced) endpoint(url string) webhook.Endpoint {
	x.Helper()
	e, _, err := x.CreateEndpoint(x.Context(), webhook.EndpointParams{WorkspaceID: workspace, URL: url, Events: []string{"link.*"}})
	require.NoError(x, err)
	return e
}

// publish publishes an event in a span of the host's, and returns that.
func (x *traced) publish() (webhook.Receipt, trace.SpanContext) {
	x.Helper()
	ctx, span := x.tracer.Start(x.Context(), "POST /links")
	defer span.End()
	r, err := x.Publish(ctx, webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: map[string]any{"id": 91834}})
	require.NoError(x, err)
	return r, span.SpanContext()
}

// attempts returns the spans of attempts, in the order in which they ended.
func (x *traced) attempts() (list tracetest.SpanStubs) {
	for _, s := range x.spans.GetSpans() {
		if s.InstrumentationScope.Name == "github.com/elido-app/webhook/tracing" {
			list = append(list, s)
		}
	}
	return list
}

// requireLink checks that spans are roots of traces of their own, each linked to
// the publisher's.
func requireLink(t *testing.T, publisher trace.SpanContext, spans ...tracetest.SpanStub) {
	t.Helper()
	traces := map[trace.TraceID]bool{publisher.TraceID(): true}
	for _, s := range spans {
		require.False(t, s.Parent.IsValid())
		require.False(t, traces[s.SpanContext.TraceID()], "a trace of its own")
		traces[s.SpanContext.TraceID()] = true
		require.Len(t, s.Links, 1)
		to := s.Links[0].SpanContext
		require.Equal(t, publisher.TraceID(), to.TraceID())
		require.Equal(t, publisher.SpanID(), to.SpanID())
		require.Equal(t, publisher.TraceFlags(), to.TraceFlags())
		require.True(t, to.IsRemote())
	}
}

func attributes(s tracetest.SpanStub) map[string]any {
	all := map[string]any{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAttemptsLinkToThePublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		x := newTraced(t, memorystore.New(memorystore.Options{}), webhook.Config{
			Egress: webhook.Egress{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				requests++
				time.Sleep(70 * time.Millisecond) // unlike a clock's
				switch requests {
				case 1:
					<-r.Context().Done()
					return nil, r.Context().Err()
				case 2:
					return &http.Response{StatusCode: http.StatusBadGateway, Body: http.NoBody, ProtoMajor: 1, ProtoMinor: 1}, nil
				}
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, ProtoMajor: 1, ProtoMinor: 1}, nil
			})},
		})
		e := x.endpoint("https://example.com/hooks")
		started, span := x.tracer.Start(t.Context(), "main") // no attempt's parent
		defer span.End()
		ctx, cancel := context.WithCancel(started)
		done := make(chan error, 1)
		go func() { done <- x.Dispatcher.Run(ctx) }()
		r, publisher := x.publish()
		time.Sleep(24 * time.Hour) // the retries come in their time
		cancel()
		require.NoError(t, <-done)

		spans := x.attempts()
		require.Len(t, spans, 3)
		requireLink(t, publisher, spans...)
		log, err := x.Attempts(t.Context(), workspace, r.DeliveryIDs[0])
		require.NoError(t, err)
		for i, s := range spans {
			require.Equal(t, "webhook attempt", s.Name)
			require.Equal(t, trace.SpanKindClient, s.SpanKind)
			require.Equal(t, log[i].StartedAt, s.StartTime.UTC())
			require.Equal(t, log[i].Latency, s.EndTime.Sub(s.StartTime))
			want := map[string]any{
				"webhook.event.type":      "link.created",
				"webhook.event.id":        r.EventID,
				"webhook.workspace.id":    int64(workspace),
				"webhook.delivery.id":     r.DeliveryIDs[0],
				"webhook.endpoint.id":     e.ID,
				"webhook.endpoint.kind":   "event",
				"webhook.attempt.number":  int64(i + 1),
				"webhook.attempt.outcome": []string{"retry", "retry", "delivered"}[i],
				"http.request.method":     "POST",
			}
			switch i {
			case 0:
				want["error.type"] = "_OTHER"
			case 1:
				want["error.type"] = "502"
				want["http.response.status_code"] = int64(502)
			case 2:
				want["http.response.status_code"] = int64(200)
			}
			require.Equal(t, want, attributes(s))
		}
		require.Equal(t, 10*time.Second, spans[0].EndTime.Sub(spans[0].StartTime))
		require.Equal(t, 5*time.Minute, spans[1].StartTime.Sub(spans[0].EndTime))
		require.Equal(t, 15*time.Minute, spans[2].StartTime.Sub(spans[1].EndTime))
		require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "no answer within the time limit"}, spans[0].Status)
		require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "HTTP 502 Bad Gateway"}, spans[1].Status)
		require.Equal(t, sdktrace.Status{}, spans[2].Status)
	})
}

func TestAFailureForGoodIsCalledSo(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	x := newTraced(t, memorystore.New(memorystore.Options{}), webhook.Config{
		Egress: webhook.Egress{AllowLoopback: true},
		Retry:  webhook.RetryPolicy{Delays: []time.Duration{}},
	})
	x.endpoint(server.URL)
	x.publish()
	_, err := x.RunOnce(t.Context())
	require.NoError(t, err)
	spans := x.attempts()
	require.Len(t, spans, 1, "the attempt, and none for the notice that the delivery failed")
	require.Equal(t, "failed", attributes(spans[0])["webhook.attempt.outcome"])
	require.Equal(t, "HTTP 404 Not Found", spans[0].Status.Description)
}

// The link is in the store: another process, later, makes the attempt.
func TestTheLinkOutlivesTheProcess(t *testing.T) {
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "webhooks.db")
	config := webhook.Config{Egress: webhook.Egress{AllowLoopback: true}, SendTrace: true}

	st, err := sqlitestore.Open(t.Context(), path)
	require.NoError(t, err)
	before := newTraced(t, st, config)
	before.endpoint(server.URL)
	_, publisher := before.publish()
	require.NoError(t, st.Close())
	require.Empty(t, before.attempts())

	st, err = sqlitestore.Open(t.Context(), path)
	require.NoError(t, err)
	defer st.Close()
	after := newTraced(t, st, config)
	n, err := after.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Len(t, after.attempts(), 1)
	requireLink(t, publisher, after.attempts()...)
	require.Equal(t, "00-"+publisher.TraceID().String()+"-"+publisher.SpanID().String()+"-01", got.Get("Traceparent"))
}

func TestReceiversGetTheTraceOnlyIfAsked(t *testing.T) {
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer server.Close()
	x := newTraced(t, memorystore.New(memorystore.Options{}), webhook.Config{Egress: webhook.Egress{AllowLoopback: true}})
	x.endpoint(server.URL)
	_, publisher := x.publish()
	_, err := x.RunOnce(t.Context())
	require.NoError(t, err)
	requireLink(t, publisher, x.attempts()...)
	require.NotEmpty(t, got)
	for name, values := range got {
		require.NotContains(t, strings.Join(values, " "), publisher.TraceID().String(), name)
	}
}

// Published outside of any span, an attempt has a span all the same.
func TestWithoutAPublisherThereIsNoLink(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	x := newTraced(t, memorystore.New(memorystore.Options{}), webhook.Config{Egress: webhook.Egress{AllowLoopback: true}})
	x.endpoint(server.URL)
	_, err := x.Publish(t.Context(), webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: map[string]any{}})
	require.NoError(t, err)
	ctx, span := x.tracer.Start(t.Context(), "cron") // not the publisher
	_, err = x.RunOnce(ctx)
	span.End()
	require.NoError(t, err)
	require.Len(t, x.attempts(), 1)
	require.Empty(t, x.attempts()[0].Links)
	require.False(t, x.attempts()[0].Parent.IsValid())
}

// nowhere knows no host, and says so with its name.
type nowhere struct{}

func (nowhere) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// Whatever an endpoint is and whatever it answers, spans have none of it.
func TestSpansHoldNoSecrets(t *testing.T) {
	const canary = "c4n4ry"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Answer", canary)
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	x := newTraced(t, memorystore.New(memorystore.Options{}), webhook.Config{
		Egress: webhook.Egress{AllowLoopback: true, Resolver: nowhere{}},
		Retry:  webhook.RetryPolicy{Delays: []time.Duration{0}},
	})
	for _, url := range []string{server.URL + "/" + canary + "?key=" + canary, "https://" + canary + ".invalid/" + canary, "http://127.0.0.1:1/" + canary} {
		_, _, err := x.CreateEndpoint(t.Context(), webhook.EndpointParams{
			WorkspaceID: workspace, URL: url, Events: []string{"link.*"}, Description: canary,
			Headers: map[string]string{"X-Api-Key": canary}, Secret: webhook.NewSecret("whsec_" + strings.Repeat(canary, 5)),
		})
		require.NoError(t, err)
	}
	ctx, span := x.tracer.Start(t.Context(), "POST /links")
	_, err := x.Publish(ctx, webhook.Event{
		Type: "link.created", WorkspaceID: workspace, OrderingKey: canary, IdempotencyKey: canary,
		Data: json.RawMessage(`{"title":"` + canary + `"}`),
	})
	span.End()
	require.NoError(t, err)
	for made := 0; made < 6; { // what a pass makes due is for one after it
		n, err := x.RunOnce(t.Context())
		require.NoError(t, err)
		made += n
	}
	require.Len(t, x.attempts(), 6)
	for _, s := range x.attempts() {
		text, err := json.Marshal(s)
		require.NoError(t, err)
		require.NotContains(t, string(text), canary)
		require.NotContains(t, string(text), "127.0.0.1")
		require.NotContains(t, string(text), "whsec_")
		for _, a := range s.Attributes {
			require.LessOrEqual(t, len(a.Value.String()), 128)
		}
	}
}

func TestTrace(t *testing.T) {
	provider := sdktrace.NewTracerProvider()
	ctx, span := provider.Tracer("host").Start(t.Context(), "span")
	require.Regexp(t, `^00-`+span.SpanContext().TraceID().String()+`-`+span.SpanContext().SpanID().String()+`-0[13]$`, tracing.Trace(ctx))

	dropping := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	ctx, span = dropping.Tracer("host").Start(t.Context(), "span")
	require.Regexp(t, `^00-`+span.SpanContext().TraceID().String()+`-`+span.SpanContext().SpanID().String()+`-0[02]$`, tracing.Trace(ctx))

	require.Empty(t, tracing.Trace(t.Context()))
}

// noticed remembers.
type noticed struct {
	mu   sync.Mutex
	list []webhook.Notice
}

func (n *noticed) Observe(_ context.Context, notice webhook.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, notice)
}

func TestConfigureAddsToWhatIsThere(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	const theirs = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	n := &noticed{}
	x := newTraced(t, memorystore.New(memorystore.Options{}), webhook.Config{
		Egress:   webhook.Egress{AllowLoopback: true},
		Observer: n,
		Trace:    func(context.Context) string { return theirs },
	})
	x.endpoint(server.URL)
	x.publish()
	_, err := x.RunOnce(t.Context())
	require.NoError(t, err)
	require.Len(t, n.list, 2, "the publish and the attempt")
	require.Len(t, x.attempts(), 1)
	require.Equal(t, theirs[3:35], x.attempts()[0].Links[0].SpanContext.TraceID().String())

	var config webhook.Config
	tracing.Configure(&config, nil)
	require.Nil(t, config.Observer)
	require.NotNil(t, config.Trace)
	require.Nil(t, tracing.New(nil))
}

// What is no traceparent makes no link, and no error text makes a span too large.
func TestOddNotices(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	o := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	for _, bad := range []string{"x", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"} {
		o.Observe(t.Context(), webhook.AttemptFinished{Status: webhook.StatusDelivered, Trace: bad})
	}
	o.Observe(t.Context(), webhook.AttemptFinished{Status: webhook.StatusFailed, Error: "a" + strings.Repeat("é", 1000) + "\xff"})
	o.Observe(t.Context(), webhook.EndpointChanged{})
	o.Observe(t.Context(), webhook.EventPublished{})
	o.Observe(t.Context(), nil)
	list := spans.GetSpans()
	require.Len(t, list, 4)
	for _, s := range list[:3] {
		require.Empty(t, s.Links)
	}
	description := list[3].Status.Description
	require.Equal(t, 255, len(description))
	require.True(t, utf8.ValidString(description))
}

// The documentation names every attribute.
func TestAttributesAreDocumented(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	o := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	o.Observe(t.Context(), webhook.AttemptFinished{Status: webhook.StatusFailed, HTTPStatus: 500})
	source := readFile(t, "tracing.go")
	comment, _, _ := bytes.Cut(source, []byte("\npackage tracing"))
	var names []attribute.Key
	for _, a := range spans.GetSpans()[0].Attributes {
		names = append(names, a.Key)
		require.Contains(t, string(comment), string(a.Key))
	}
	require.Len(t, names, 11)
}
