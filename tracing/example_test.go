package tracing_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/elido-app/webhook"
	memorystore "github.com/elido-app/webhook/store_memory"
	"github.com/elido-app/webhook/tracing"
)

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return b
}

func Example() {
	ctx := context.Background()
	exporter := tracetest.NewInMemoryExporter() // in production: one that exports
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	config := webhook.Config{
		Egress: webhook.Egress{AllowLoopback: true}, // the receiver is on this machine
		Logger: slog.New(slog.DiscardHandler),
	}
	tracing.Configure(&config, provider)
	d, err := webhook.New(memorystore.New(memorystore.Options{}), config)
	if err != nil {
		log.Fatal(err)
	}
	if _, _, err := d.CreateEndpoint(ctx, webhook.EndpointParams{WorkspaceID: 42, URL: receiver.URL, Events: []string{"link.*"}}); err != nil {
		log.Fatal(err)
	}

	spanCtx, span := provider.Tracer("shop").Start(ctx, "POST /links")
	if _, err := d.Publish(spanCtx, webhook.Event{Type: "link.created", WorkspaceID: 42, Data: map[string]any{"id": 91834}}); err != nil {
		log.Fatal(err)
	}
	span.End()
	if _, err := d.RunOnce(ctx); err != nil { // later, in another process perhaps
		log.Fatal(err)
	}
	receiver.Close()

	for _, s := range exporter.GetSpans() {
		fmt.Println(s.Name)
		for _, l := range s.Links {
			fmt.Println("  linked to the publish:", l.SpanContext.SpanID() == span.SpanContext().SpanID())
		}
	}
	// Output:
	// POST /links
	// webhook attempt
	//   linked to the publish: true
}

// byLink keeps a span that is linked to a kept one, and otherwise leaves the
// decision to another sampler.
type byLink struct{ sdktrace.Sampler }

func (s byLink) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	for _, l := range p.Links {
		if l.SpanContext.IsSampled() {
			return sdktrace.AlwaysSample().ShouldSample(p)
		}
	}
	return s.Sampler.ShouldSample(p)
}

// Where a part of all traces is kept, attempts whose publish is kept should be
// kept too: the link says so.
func ExampleNew() {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter),
		sdktrace.WithSampler(byLink{sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0))})) // 0: nothing else
	observer := tracing.New(provider)

	kept := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
	dropped := kept.WithTraceFlags(0)
	for _, publisher := range []trace.SpanContext{kept, dropped} {
		observer.Observe(context.Background(), webhook.AttemptFinished{
			Trace: tracing.Trace(trace.ContextWithSpanContext(context.Background(), publisher)),
		})
	}
	fmt.Println(len(exporter.GetSpans()), "span")
	// Output: 1 span
}
