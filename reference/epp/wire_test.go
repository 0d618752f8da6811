package epp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/extproc"
	"github.com/llm-weir/weir/reference/picker"
)

const completion = `{"model":"m","prompt":"12345678"}`

// capacity are options of a picker with n slots on one endpoint.
func capacity(tb testing.TB, n int) Options {
	c, _ := epconfig.ContractNamed("")
	cfg, err := epconfig.Load("test.yaml", fmt.Appendf(nil, "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\n"+
		"plugins: [{type: concurrency-detector, parameters: {maxConcurrency: %d}}]\n"+
		"flowControl: {saturationDetector: {pluginRef: concurrency-detector}}\n", n), c)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := picker.New(cfg.Picker)
	if err != nil {
		tb.Fatal(err)
	}
	return Options{
		Wiring: DefaultWiring(p, c), Config: cfg, PoolName: "pool", GRPCAddr: "127.0.0.1:0", HealthAddr: "127.0.0.1:0", MetricsAddr: "127.0.0.1:0",
		ScrapeInterval: -1, Logger: slog.New(slog.DiscardHandler), Endpoints: []picker.Endpoint{{Name: "a", Address: "10.0.0.1:80"}},
	}
}

func serve(tb testing.TB, o Options) *Server {
	tb.Helper()
	s, err := Serve(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func dial(tb testing.TB, addr string, c credentials.TransportCredentials) *grpc.ClientConn {
	tb.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(c))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	return conn
}

// stream is the data plane's end of one exchange.
type stream struct {
	tb testing.TB
	extprocv3.ExternalProcessor_ProcessClient
}

func open(tb testing.TB, ctx context.Context, conn *grpc.ClientConn) stream {
	tb.Helper()
	s, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	return stream{tb, s}
}

func headers(pairs ...string) *extprocv3.HttpHeaders {
	h := &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{}}
	for i := 0; i < len(pairs); i += 2 {
		h.Headers.Headers = append(h.Headers.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return h
}

func (s stream) request(body string, pairs ...string) {
	pairs = append([]string{":method", "POST", ":path", "/v1/completions"}, pairs...)
	_ = s.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: headers(pairs...)}})
	_ = s.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: true}}})
}

// placed receives the two answers to a request; false with the status of a refusal.
func (s stream) placed() (bool, int, string) {
	s.tb.Helper()
	m, err := s.Recv()
	if err != nil {
		s.tb.Error(err)
		return false, 0, ""
	}
	if im := m.GetImmediateResponse(); im != nil {
		reason := ""
		for _, h := range im.GetHeaders().GetSetHeaders() {
			reason = string(h.GetHeader().GetRawValue())
		}
		return false, int(im.GetStatus().GetCode()), reason
	}
	_, _ = s.Recv()
	return true, 200, ""
}

// respond plays a whole response and ends the stream; the picker has taken note of all of it afterwards.
func (s stream) respond(code, contentType string, chunks ...string) {
	s.tb.Helper()
	_ = s.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: headers(":status", code, "content-type", contentType)}})
	for i, c := range chunks {
		_ = s.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte(c), EndOfStream: i == len(chunks)-1}}})
	}
	s.finish()
}

func (s stream) finish() {
	s.tb.Helper()
	_ = s.CloseSend()
	for {
		if _, err := s.Recv(); err != nil {
			if !errors.Is(err, io.EOF) {
				s.tb.Error(err)
			}
			return
		}
	}
}

// queued waits until n requests wait.
func queued(t *testing.T, s *Server, n float64) {
	t.Helper()
	until(t, func() bool {
		return max(0, value(t, s.Metrics(), wire.PrefixFlowControl+wire.MetricQueueSize, nil)) == n
	})
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !ok() {
		if !clock.Sleep(ctx, time.Millisecond) {
			t.Fatal("not seen")
		}
	}
}

func TestHalfCloseIsNoCancellation(t *testing.T) {
	s := serve(t, capacity(t, 1))
	conn := dial(t, s.GRPCAddr(), insecure.NewCredentials())
	first := open(t, t.Context(), conn)
	first.request(completion)
	first.placed()
	second := open(t, t.Context(), conn)
	second.request(completion)
	_ = second.CloseSend()
	queued(t, s, 1)
	first.finish()
	if ok, code, _ := second.placed(); !ok {
		t.Errorf("a half-closed stream still gets its place, not %d", code)
	}
	second.finish()
}

// TestDeadline: the deadline of a stream ends the wait as a client that left does, never as the wait limit.
func TestDeadline(t *testing.T) {
	s := serve(t, capacity(t, 1))
	conn := dial(t, s.GRPCAddr(), insecure.NewCredentials())
	first := open(t, t.Context(), conn)
	first.request(completion)
	first.placed()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	second := open(t, ctx, conn)
	second.request(completion)
	if _, err := second.Recv(); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	outcome := func(o wire.Outcome) float64 {
		return value(t, s.Metrics(), wire.PrefixFlowControl+wire.MetricRequestsTotal, map[string]string{"outcome": o.String()})
	}
	until(t, func() bool { return outcome(wire.EvictedContextCancelled) == 1 })
	if outcome(wire.EvictedTTL) != -1 {
		t.Error("counted as the wait limit")
	}
	first.finish()
}

// TestOneIDManyRequests is ACCT-14: overlapping requests that share an x-request-id are separate requests.
func TestOneIDManyRequests(t *testing.T) {
	s := serve(t, capacity(t, 3))
	conn := dial(t, s.GRPCAddr(), insecure.NewCredentials())
	for range 3 { // what leaks would fill the pool by the second round
		var open3 []stream
		for range 3 {
			x := open(t, t.Context(), conn)
			x.request(completion, wire.HeaderRequestID, "same")
			if ok, code, _ := x.placed(); !ok {
				t.Fatal(code)
			}
			open3 = append(open3, x)
		}
		for _, x := range open3 {
			x.finish()
		}
	}
	s.Driver().SetEndpoints(s.Driver().Endpoints()) // a round trip
	if n := s.Driver().machine.(*picker.Picker).InFlight(0); n != 0 {
		t.Errorf("%d in flight", n)
	}
	for _, name := range []string{"request_running", "inflight_requests", "inflight_tokens"} {
		if v := value(t, s.Metrics(), prefixEPP+name, nil); v != 0 {
			t.Errorf("%s %v", name, v)
		}
	}
}

// TestResponseSeries plays one streamed, one plain and one failed response.
func TestResponseSeries(t *testing.T) {
	o := capacity(t, 8)
	o.Rewrites = []extproc.Rewrite{{Name: "r", Match: "m", Targets: []extproc.Target{{Model: "base"}}}}
	o.StreamMetrics = true
	s := serve(t, o)
	conn := dial(t, s.GRPCAddr(), insecure.NewCredentials())
	play := func(code, contentType string, chunks ...string) {
		x := open(t, t.Context(), conn)
		x.request(completion, wire.HeaderFairnessID, "f")
		x.placed()
		x.respond(code, contentType, chunks...)
	}
	play("200", "text/event-stream", "data: {\"model\":\"base\"}\n\n", "data: {}\n\n", "data: {\"usage\":{\"prompt_tokens\":4,\"comple", "tion_tokens\":17,\"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\ndata: [DONE]\n\n")
	play("200", "application/json", `{"model":"base","usage":{"prompt_tokens":4,"completion_tokens":3}}`)
	play("500", "application/json", `{"error":{}}`)
	x := open(t, t.Context(), conn)
	x.request(`{`)
	x.placed()
	x.finish()
	s.Driver().SetEndpoints(s.Driver().Endpoints())
	m := s.Metrics()
	labels := map[string]string{"model_name": "m", "target_model_name": "base", "fairness_id": "f", "priority": "0"}
	for name, want := range map[string]float64{
		"request_total": 3, "request_duration_seconds": 3, "request_size_bytes": 3, "response_size_bytes": 3, "request_input_tokens": 2, "request_cached_tokens": 2,
		"request_output_tokens": 2, "request_ntpot_seconds": 2, "request_streaming_tpot_seconds": 1, "request_streaming_itl_seconds": 2, "request_running": 0,
	} {
		if got := value(t, m, prefixEPP+name, labels); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	for _, streaming := range []string{"true", "false"} {
		labels["streaming"] = streaming
		if got := value(t, m, prefixEPP+"request_ttft_seconds", labels); got != 1 {
			t.Errorf("ttft streaming=%s: %v", streaming, got)
		}
	}
	delete(labels, "streaming")
	labels["error_code"] = modelServerError
	if got := value(t, m, prefixEPP+"request_error_total", labels); got != 1 {
		t.Errorf("an error status of the model server counts, got %v", got)
	}
	twin := map[string]string{"model_name": "m", "target_model_name": "base"}
	for name, want := range map[string]float64{"request_total": 3, "request_duration_seconds": 3, "request_sizes": 3, "response_sizes": 3, "input_tokens": 2,
		"prompt_cached_tokens": 2, "output_tokens": 2, "normalized_time_per_output_token_seconds": 2, "request_error_total": 1} {
		if got := value(t, m, prefixObjective+name, twin); got != want {
			t.Errorf("older %s: %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]float64{
		"scheduler_attempts_total": 3, "scheduler_e2e_duration_seconds": 3, "request_processing_duration_seconds": 3, "response_processing_duration_seconds": 3,
		"model_rewrite_decisions_total": 3, "plugin_duration_seconds": 3, "extproc_streams_total": 4, "extproc_stream_duration_seconds": 4, "extproc_streams_inflight": 0,
	} {
		until(t, func() bool { return value(t, m, prefixEPP+name, nil) == want })
	}
}

// TestHostileLabels sends what no label value may be; the library would panic on the goroutine that owns the machine.
func TestHostileLabels(t *testing.T) {
	s := serve(t, capacity(t, 8))
	conn := dial(t, s.GRPCAddr(), insecure.NewCredentials())
	for _, id := range []string{"\xff\xfe", string(make([]byte, 100_000)), "a\nb\"\\"} {
		x := open(t, t.Context(), conn)
		x.request(completion, wire.HeaderFairnessID, id)
		if ok, code, _ := x.placed(); !ok {
			t.Errorf("%q: %d", id[:2], code)
		}
		x.respond("200", "application/json", "{}")
	}
	s.Driver().SetEndpoints(s.Driver().Endpoints())
	if got := value(t, s.Metrics(), prefixEPP+"request_total", map[string]string{"fairness_id": otherValue}); got != 2 {
		t.Error(got)
	}
}

// TestDrain is FC-SHUT-01, -03, -04, -05: the queue is refused at once, so is what comes, what runs may end, and neither idle streams
// nor one that never ends outlast the window.
func TestDrain(t *testing.T) {
	for _, endless := range []bool{false, true} {
		o := capacity(t, 1)
		o.HealthOnGRPC = true
		s := serve(t, o)
		conn := dial(t, s.GRPCAddr(), insecure.NewCredentials())
		for range 20 {
			open(t, t.Context(), conn)
		}
		running, waiting := open(t, t.Context(), conn), open(t, t.Context(), conn)
		running.request(completion)
		running.placed()
		waiting.request(completion)
		queued(t, s, 1)
		c := clock.NewReal()
		window := 30 * time.Second
		if endless {
			window = 200 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(context.Background(), window)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Shutdown(ctx); (err != nil) != endless {
				t.Error(err)
			}
		})
		if ok, code, reason := waiting.placed(); ok || code != 503 || reason != wire.ReasonShuttingDown {
			t.Error(code, reason)
		}
		for _, addr := range []string{s.GRPCAddr(), s.HealthAddr()} {
			if endless {
				break // the window may be over by now
			}
			r, err := healthv1.NewHealthClient(dial(t, addr, insecure.NewCredentials())).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "readiness"})
			if err != nil || r.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
				t.Error(r, err)
			}
		}
		if !endless {
			late := open(t, t.Context(), conn)
			late.request(completion)
			if ok, code, reason := late.placed(); ok || code != 503 || reason != wire.ReasonShuttingDown {
				t.Error(code, reason)
			}
			late.finish()
			running.respond("200", "application/json", "{}")
		}
		wg.Wait()
		cancel()
		if took := c.Now(); took > min(window, 5*time.Second)+2*time.Second {
			t.Errorf("ended after %v", took)
		}
	}
}

func TestTLS(t *testing.T) {
	o := capacity(t, 8)
	o.Secure, o.HealthOnGRPC = true, true
	s := serve(t, o)
	health := func(c credentials.TransportCredentials) error {
		conn, err := grpc.NewClient(s.GRPCAddr(), grpc.WithTransportCredentials(c))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
		return err
	}
	if err := health(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})); err != nil {
		t.Error("self-signed, unverified:", err)
	}
	if health(credentials.NewTLS(&tls.Config{})) == nil || health(insecure.NewCredentials()) == nil {
		t.Error("neither verified nor plaintext")
	}

	dir := t.TempDir()
	trusted := func() credentials.TransportCredentials {
		made, err := selfSigned(clock.Wall())
		if err != nil {
			t.Fatal(err)
		}
		leaf, _ := x509.ParseCertificate(made.Certificate[0])
		key, _ := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
		for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: made.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: key}} {
			if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		pool := x509.NewCertPool()
		pool.AddCert(leaf)
		return credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "localhost"})
	}
	first := trusted()
	o = capacity(t, 8)
	o.Secure, o.CertPath, o.HealthOnGRPC, o.ReloadInterval = true, dir, true, time.Millisecond
	s = serve(t, o)
	if err := health(first); err != nil {
		t.Error(err)
	}
	second := trusted()
	until(t, func() bool { return health(second) == nil })
	if health(first) == nil {
		t.Error("the former certificate is still shown")
	}

	o = capacity(t, 8)
	o.Secure, o.CertPath = true, filepath.Join(dir, "none")
	if _, err := Serve(o); err == nil {
		t.Error("a missing certificate keeps the picker from starting")
	}
	o = capacity(t, 8)
	o.CertPath = dir
	if _, err := Serve(o); err == nil {
		t.Error("a certificate without TLS has no effect and says so")
	}
}

func TestMessageLimits(t *testing.T) {
	o := capacity(t, 8)
	o.MaxRecvBytes = 1000
	s := serve(t, o)
	x := open(t, t.Context(), dial(t, s.GRPCAddr(), insecure.NewCredentials()))
	x.request(`{"model":"m","prompt":"` + string(make([]byte, 2000)) + `"}`)
	if _, err := x.Recv(); status.Code(err) != codes.ResourceExhausted && status.Code(err) != codes.Unknown {
		t.Error(err)
	}
	o.MaxRecvBytes = math.MinInt
	if _, err := Serve(o); err == nil {
		t.Error("a negative limit is refused")
	}
}

// TestAgentIdentity is FC-CLS-14 from the document to the decision.
func TestAgentIdentity(t *testing.T) {
	o := capacity(t, 8)
	got := make(chan string, 1)
	o.Wiring = DefaultWiring(o.Wiring.Machine, o.Config.Contract, "session-id")
	o.OnDecision = func(d Decision) { got <- d.Flow }
	s := serve(t, o)
	x := open(t, t.Context(), dial(t, s.GRPCAddr(), insecure.NewCredentials()))
	x.request(completion, "Session-Id", "agent-7")
	x.placed()
	if f := <-got; f != "agent-7" {
		t.Error(f)
	}
	x.finish()
}
