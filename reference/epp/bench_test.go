package epp

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/extproc"
)

// parallelStreams is how many exchanges are open at a time.
const parallelStreams = 64

// BenchmarkExtProc measures one whole exchange through the picker on loopback: a new ext_proc stream, request headers and a 200-byte
// body, classification, parsing, queue, dispatch, answers, response headers, three SSE chunks with usage, the end, and all metrics, at
// 64 streams in parallel over 8 connections. The pool has room for all of them, so that nothing waits; the tenants take turns.
//
// ns/op is wall time over finished exchanges. cpu-us/op is the CPU time of the process, user and system, client included. base-us/op is
// the same against a server that answers the same messages with canned answers, without picker or metrics, so that picker-us/op, their
// difference, is what the picker adds to gRPC: it is an estimate, since both share the cores and the garbage collector. allocs/op is
// that of client and server together.
func BenchmarkExtProc(b *testing.B) {
	for _, tenants := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprint("tenants=", tenants), func(b *testing.B) {
			s := serve(b, capacity(b, 4*parallelStreams))
			base := canned(b)
			drive(b, base, tenants, 2000) // warm up, and fill the books of the tenants
			drive(b, s.GRPCAddr(), tenants, max(2000, tenants))
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu(b)
			drive(b, s.GRPCAddr(), tenants, b.N)
			whole := cpu(b) - before
			b.StopTimer()
			before = cpu(b)
			drive(b, base, tenants, b.N)
			floor := cpu(b) - before
			per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(b.N) }
			b.ReportMetric(per(whole), "cpu-us/op")
			b.ReportMetric(per(floor), "base-us/op")
			b.ReportMetric(per(whole-floor), "picker-us/op")
		})
	}
}

// cpu is the CPU time that this process has used.
func cpu(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const benchBody = `{"model":"m","prompt":"Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua. Ut enim ad minim veniam","max_tokens":64,"stream":true}`

var benchChunks = []string{
	"data: {\"id\":\"x\",\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"Hello\"}]}\n\n",
	"data: {\"id\":\"x\",\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\" world\"}]}\n\n",
	"data: {\"id\":\"x\",\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":40,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
}

// drive runs n exchanges against a server, parallelStreams at a time.
func drive(b *testing.B, addr string, tenants, n int) {
	b.Helper()
	const connections = 8
	var conns []*grpc.ClientConn
	for range connections {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for w := range parallelStreams {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				x := open(b, b.Context(), conns[w%connections])
				x.request(benchBody, ":authority", "llm.example", "content-type", "application/json", "user-agent", "bench", "accept", "*/*",
					wire.HeaderRequestID, "r", wire.HeaderFairnessID, fmt.Sprint("tenant-", i%int64(tenants)))
				if ok, code, _ := x.placed(); !ok {
					b.Errorf("refused with %d", code)
				}
				x.respond("200", "text/event-stream", benchChunks...)
			}
		})
	}
	wg.Wait()
}

// canned is a server that gives the answers of a picker without being one.
func canned(b *testing.B) string {
	s := grpc.NewServer()
	extprocv3.RegisterExternalProcessorServer(s, cannedServer{})
	ln := listenLoopback(b)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(ln) })
	b.Cleanup(func() { s.Stop(); wg.Wait() })
	return ln.Addr().String()
}

type cannedServer struct {
	extprocv3.UnimplementedExternalProcessorServer
}

func (cannedServer) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	var received *extprocv3.HttpHeaders
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		switch r := m.GetRequest().(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			received = r.RequestHeaders
			continue
		case *extprocv3.ProcessingRequest_RequestBody:
			_ = stream.Send(extproc.RequestHeadersResponse("10.0.0.1:80", len(benchBody), received.GetHeaders(), nil))
			_ = stream.Send(extproc.RequestBodyResponses(r.RequestBody.GetBody(), true)[0])
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			_ = stream.Send(extproc.ResponseHeadersResponse(r.ResponseHeaders.GetHeaders(), false))
		case *extprocv3.ProcessingRequest_ResponseBody:
			_ = stream.Send(extproc.ResponseBodyResponses(r.ResponseBody.GetBody(), r.ResponseBody.GetEndOfStream())[0])
		}
	}
}
