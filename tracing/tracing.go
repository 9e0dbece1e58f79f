// Package tracing makes an OpenTelemetry span of each attempt that a Dispatcher
// makes, linked to the span in which its event was published.
//
//	config := webhook.Config{}
//	tracing.Configure(&config, otel.GetTracerProvider())
//	d, err := webhook.New(st, config)
//
// A span is one attempt, as it was recorded: it starts when the attempt was
// signed and ends when the answer's headers, or the error, came. It is the root of
// a trace of its own, since attempts can be days after the publish and after
// restarts; the link, which the store keeps, leads back to the publisher. A
// sampler that goes by the parent decides about each attempt anew. One that keeps
// attempts of kept publishes goes by the link: the example of [New] has it.
//
// Spans are named "webhook attempt", are of kind client, and have these
// attributes:
//
//	webhook.event.type      webhook.event.id       webhook.workspace.id
//	webhook.delivery.id     webhook.endpoint.id    webhook.endpoint.kind
//	webhook.attempt.number  webhook.attempt.outcome ("delivered", "retry", "failed")
//	http.request.method     http.response.status_code (if there was an answer)
//
// An attempt that failed has the status error, with the error that the delivery
// log shows, cut to 256 bytes, and the attribute error.type: the HTTP status, or
// "_OTHER" without an answer. No span holds a URL, a header, a secret, a payload or
// an answer, but that the error of a chat or of Sentry ends in the reason they gave,
// with credentials taken out.
//
// Receivers learn of the trace only if Config.SendTrace is set: then each request
// has the publisher's traceparent header.
package tracing

import (
	"context"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/elido-app/webhook"
)

// Configure sets config.Trace to [Trace], unless it is set already, and adds an
// observer of [New] to config.Observer.
func Configure(config *webhook.Config, provider trace.TracerProvider) {
	if config.Trace == nil {
		config.Trace = Trace
	}
	config.Observer = webhook.Observers(config.Observer, New(provider))
}

// New returns an observer that makes a span of each attempt. It is safe for
// concurrent use. A nil provider makes none.
func New(provider trace.TracerProvider) webhook.Observer {
	if provider == nil {
		return nil
	}
	return observer{provider.Tracer("github.com/elido-app/webhook/tracing")}
}

var traceContext propagation.TraceContext

const traceparent = "traceparent"

// Trace returns the traceparent (W3C Trace Context) of the span in ctx, and
// nothing without one. It is meant for Config.Trace.
func Trace(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	traceContext.Inject(ctx, carrier)
	return carrier[traceparent]
}

type observer struct{ tracer trace.Tracer }

// Observe implements [webhook.Observer].
func (o observer) Observe(ctx context.Context, n webhook.Notice) {
	a, ok := n.(webhook.AttemptFinished)
	if !ok {
		return
	}
	options := []trace.SpanStartOption{
		trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(a.StartedAt),
		trace.WithAttributes(attributes(&a)...),
	}
	if publisher := spanContext(a.Trace); publisher.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: publisher}))
	}
	_, span := o.tracer.Start(ctx, "webhook attempt", options...)
	if a.Status != webhook.StatusDelivered {
		span.SetStatus(codes.Error, description(a.Error))
	}
	span.End(trace.WithTimestamp(a.StartedAt.Add(a.Latency)))
}

// spanContext reads a traceparent.
func spanContext(s string) trace.SpanContext {
	ctx := traceContext.Extract(context.Background(), propagation.MapCarrier{traceparent: s})
	return trace.SpanContextFromContext(ctx)
}

func attributes(a *webhook.AttemptFinished) []attribute.KeyValue {
	list := []attribute.KeyValue{
		attribute.String("webhook.event.type", a.EventType),
		attribute.String("webhook.event.id", a.EventID),
		attribute.Int64("webhook.workspace.id", a.WorkspaceID),
		attribute.Int64("webhook.delivery.id", a.DeliveryID),
		attribute.Int64("webhook.endpoint.id", a.EndpointID),
		attribute.String("webhook.endpoint.kind", string(a.Kind)),
		attribute.Int("webhook.attempt.number", a.Number),
		attribute.String("webhook.attempt.outcome", outcome(a.Status)),
		attribute.String("http.request.method", "POST"),
	}
	errorType := "_OTHER" // of the semantic conventions: there is no name for it
	if a.HTTPStatus != 0 {
		list = append(list, attribute.Int("http.response.status_code", a.HTTPStatus))
		errorType = strconv.Itoa(a.HTTPStatus)
	}
	if a.Status != webhook.StatusDelivered {
		list = append(list, attribute.String("error.type", errorType))
	}
	return list
}

func outcome(s webhook.Status) string {
	switch s {
	case webhook.StatusDelivered:
		return "delivered"
	case webhook.StatusPending:
		return "retry"
	}
	return "failed"
}

const descriptionMost = 256 // bytes

// description is an error as a span may have it: short, and valid UTF-8.
func description(s string) string {
	if len(s) > descriptionMost {
		s = s[:descriptionMost]
	}
	return strings.ToValidUTF8(s, "")
}
