package processor

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"sync"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/grpc"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/evidence"
)

// sink is a trace collector that notes every span it gets.
type sink struct {
	collector.UnimplementedTraceServiceServer
	clock clock.Clock
	note  func(evidence.Observation)
	addr  string
	srv   *grpc.Server
	tasks sync.WaitGroup
}

func newSink(c clock.Clock, note func(evidence.Observation), addr string) (*sink, error) {
	s := &sink{clock: c, note: note, srv: grpc.NewServer()}
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("trace collector: %w", err)
	}
	s.addr = ln.Addr().String()
	collector.RegisterTraceServiceServer(s.srv, s)
	s.tasks.Go(func() { _ = s.srv.Serve(ln) })
	return s, nil
}

// Export implements the collector's service.
func (s *sink) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	at := int64(s.clock.Now())
	for _, rs := range r.GetResourceSpans() {
		service := attributes(rs.GetResource().GetAttributes())["service.name"]
		for _, ss := range rs.GetScopeSpans() {
			for _, x := range ss.GetSpans() {
				span := &evidence.Span{Trace: hex.EncodeToString(x.GetTraceId()), ID: hex.EncodeToString(x.GetSpanId()), Parent: hex.EncodeToString(x.GetParentSpanId()),
					Name: x.GetName(), Service: service, Attributes: attributes(x.GetAttributes())}
				for _, l := range x.GetLinks() {
					span.Links = append(span.Links, hex.EncodeToString(l.GetTraceId()))
				}
				s.note(evidence.Observation{At: at, Span: span})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func attributes(kvs []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range kvs {
		switch v := kv.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[kv.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			out[kv.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		case *common.AnyValue_BoolValue:
			out[kv.GetKey()] = strconv.FormatBool(v.BoolValue)
		case *common.AnyValue_DoubleValue:
			out[kv.GetKey()] = strconv.FormatFloat(v.DoubleValue, 'g', -1, 64)
		}
	}
	return out
}

func (s *sink) close() {
	s.srv.Stop()
	s.tasks.Wait()
}
