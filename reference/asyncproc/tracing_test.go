package asyncproc

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/llm-weir/weir/reference/async"
)

// TestSpans: one span for each delivery under the producer's trace, with a child for the attempt whose context goes to the gateway; what a
// drain gives back has a linked span; without tracing nothing is added to requests (AP-OTEL-01 to -05).
func TestSpans(t *testing.T) {
	const parent = "00-a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d6-1234567890abcdef-01"
	traced := func(q *async.Request) { q.Metadata = map[string]string{"traceparent": parent} }
	bubble(t, func(t *testing.T, r *rig) {
		exporter := tracetest.NewInMemoryExporter()
		r.spans = sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
		r.answer(func(_ context.Context, a arrival) (int, http.Header, string, error) {
			if a.n == 1 {
				return 429, nil, "", nil
			}
			return 200, nil, "ok", nil
		})
		s := r.serve(fmt.Sprintf(base, queueEntry(`,"id":"q-id"`)))
		r.submit("q", "a", time.Minute, traced)
		r.pass(10 * time.Second)
		var got []string
		for _, span := range exporter.GetSpans() {
			text := span.Name
			for _, a := range span.Attributes {
				if a.Key != "url.full" {
					text += fmt.Sprintf(" %s=%s", a.Key, a.Value.Emit())
				}
			}
			if id := span.SpanContext.TraceID().String(); id != parent[3:35] {
				t.Errorf("%s has trace %s", span.Name, id)
			}
			got = append(got, text)
		}
		want(t, "spans", strings.Join(got, "\n"), "http-request http.response.status_code=429\n"+
			"process-request request.id=a queue.id=q-id queue.name=q retry.count=0 error.category=RATE_LIMIT\n"+
			"http-request http.response.status_code=200\nprocess-request request.id=a queue.id=q-id queue.name=q retry.count=1")
		for _, a := range r.seen() {
			if h := a.header.Get("traceparent"); !strings.HasPrefix(h, parent[:35]) || h == parent {
				t.Errorf("traceparent %q", h)
			}
		}
		exporter.Reset()
		r.hold()
		r.submit("q", "b", time.Minute)
		r.pass(time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		linked := 0
		for _, span := range exporter.GetSpans() {
			if span.Name == spanReenqueue && len(span.Links) == 1 {
				linked++
			}
		}
		want(t, "linked spans", linked, 1)
		r.spans = nil
		r.answer(nil)
		s = r.serve(fmt.Sprintf(base, queueEntry("")))
		defer s.Close()
		r.submit("q", "c", time.Minute, traced)
		r.pass(time.Second)
		want(t, "header without tracing", r.seen()[len(r.seen())-1].header.Get("traceparent"), "")
	})
}

// sink is an OTLP collector.
type sink struct {
	collector.UnimplementedTraceServiceServer
	got chan *collector.ExportTraceServiceRequest
}

func (s sink) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.got <- r
	return &collector.ExportTraceServiceResponse{}, nil
}

// TestExport: spans reach a collector over OTLP gRPC, under the service's default name or the environment's (AP-OTEL-01, AP-OTEL-06).
func TestExport(t *testing.T) {
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	s := sink{got: make(chan *collector.ExportTraceServiceRequest, 9)}
	collector.RegisterTraceServiceServer(server, s)
	go server.Serve(ln)
	defer server.Stop()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+ln.Addr().String())
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, name := range []string{"", "mine"} {
		t.Setenv("OTEL_SERVICE_NAME", name)
		p, end, err := NewTracing(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, span := p.Tracer("t").Start(ctx, "x")
		span.End()
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
		r := (<-s.got).ResourceSpans[0]
		service := ""
		for _, a := range r.Resource.Attributes {
			if attribute.Key(a.Key) == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		want(t, "service name", service, map[string]string{"": serviceName, "mine": "mine"}[name])
		want(t, "span", r.ScopeSpans[0].Spans[0].Name, "x")
	}
}
