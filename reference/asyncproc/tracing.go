package asyncproc

import (
	"context"
	"fmt"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/llm-weir/weir/reference/async"
)

// serviceName is the name of the service unless OTEL_SERVICE_NAME says otherwise (AP-OTEL-06).
const serviceName = "llm-d-async"

// The names of the spans (AP-OTEL-02).
const (
	spanRequest   = "process-request"
	spanHTTP      = "http-request"
	spanReenqueue = "re-enqueue"
)

// propagator carries W3C trace context and baggage in a message's metadata and in HTTP headers.
var propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// NewTracing makes a provider that exports over OTLP gRPC as the OTEL_* variables say. end sends what is left.
func NewTracing(ctx context.Context) (p trace.TracerProvider, end func(context.Context) error, err error) {
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("tracing: %w", err)
	}
	// Later options win: the environment's name over ours.
	r, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", serviceName)), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, nil, fmt.Errorf("tracing: %w", err)
	}
	sdk := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(r)) // the sampler is the environment's
	return sdk, sdk.Shutdown, nil
}

// tracer makes the spans of requests.
type tracer struct {
	trace.Tracer
	on bool
}

func newTracer(p trace.TracerProvider) tracer {
	on := p != nil
	if !on {
		p = noop.NewTracerProvider()
	}
	return tracer{p.Tracer("github.com/llm-weir/weir/reference/asyncproc"), on}
}

// begin starts the span of a delivery, under the producer's trace if its metadata names one (AP-OTEL-03, AP-OTEL-04).
func (t tracer) begin(c *carried) {
	if c.span != nil {
		return
	}
	parent := propagator.Extract(context.Background(), propagation.MapCarrier(c.envelope.Request.Metadata))
	c.trace, c.span = t.Start(parent, spanRequest, trace.WithAttributes(attribute.String("request.id", c.envelope.Request.ID),
		attribute.String("queue.id", c.queue.cfg.ID), attribute.String("queue.name", c.queue.cfg.Name),
		attribute.Int("retry.count", c.envelope.Internal.RetryCount)))
}

// end finishes the span of a delivery with what became of it.
func (t tracer) end(c *carried, o *async.Out) {
	t.begin(c) // what ends before a worker takes it has a span too
	switch o.Kind {
	case async.Retry:
		c.span.SetAttributes(attribute.String("error.category", c.failed))
		c.span.SetStatus(codes.Error, "to be retried")
	case async.Finish:
		if r := &o.Result; !r.Successful() {
			c.span.SetAttributes(attribute.String("error.category", categoryOf(r)))
			c.span.SetStatus(codes.Error, r.ErrorMessage)
		}
	case async.Release:
		if o.Reason == async.Drained {
			_, again := t.Start(context.WithoutCancel(c.trace), spanReenqueue, trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(c.trace)),
				trace.WithAttributes(attribute.String("request.id", c.envelope.Request.ID)))
			again.End()
		}
	}
	c.span.End()
}

// attempt starts the span of one HTTP attempt and gives the headers that carry its context; without tracing there are none (AP-OTEL-05).
// done ends it.
func (t tracer) attempt(c *carried) (headers http.Header, done func(async.Answer)) {
	ctx, span := t.Start(c.trace, spanHTTP, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.String("url.full", c.target)))
	headers = http.Header{}
	if t.on {
		propagator.Inject(ctx, propagation.HeaderCarrier(headers))
	}
	return headers, func(a async.Answer) {
		if a.Status > 0 {
			span.SetAttributes(attribute.Int("http.response.status_code", a.Status))
		}
		if category(a) != "" {
			span.SetStatus(codes.Error, a.Error)
		}
		span.End()
	}
}

// category is why an attempt failed, in the guide's words; "" if it did not.
func category(a async.Answer) string {
	switch {
	case a.Failure == async.Truncated || a.Failure == async.NoFailure && a.Status >= 500 && a.Status < 600:
		return "SERVER_ERROR"
	case a.Failure == async.NoFailure && a.Status == http.StatusTooManyRequests:
		return "RATE_LIMIT"
	case a.Failure == async.NoFailure && a.Status < 400 && a.Status > 0:
		return ""
	case a.Failure == async.NoFailure && a.Status < 500:
		return "INVALID_REQUEST"
	}
	return "UNKNOWN"
}

func categoryOf(r *async.Result) string {
	if r.StatusCode > 0 {
		return category(async.Answer{Status: r.StatusCode})
	}
	return string(r.ErrorCode)
}
