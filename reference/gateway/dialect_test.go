package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/extproc"
)

type process = extprocv3.ExternalProcessor_ProcessServer

// stubPicker is an ext_proc server that does what the test says.
type stubPicker struct {
	extprocv3.UnimplementedExternalProcessorServer
	handle func(process) error
}

func (s *stubPicker) Process(stream process) error { return s.handle(stream) }

// stubRig is a rig before a stub; the backend's address is known to the handler.
func stubRig(t *testing.T, cfg Config, handle func(s process, backend string) error) *rig {
	t.Helper()
	r := &rig{t: t, observed: make(chan Exchange, 64), backends: []*backend{newBackend(t)}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	extprocv3.RegisterExternalProcessorServer(srv, &stubPicker{handle: func(s process) error { return handle(s, r.backends[0].addr()) }})
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) })
	t.Cleanup(func() { srv.Stop(); wg.Wait() })
	cfg.ExtProcAddr = ln.Addr().String()
	r.frontend(cfg)
	return r
}

func headersAnswer(set ...string) *extprocv3.ProcessingResponse {
	m := &extprocv3.HeaderMutation{}
	for i := 0; i < len(set); i += 2 {
		m.SetHeaders = append(m.SetHeaders, &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: set[i], RawValue: []byte(set[i+1])}})
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
		Response: &extprocv3.CommonResponse{HeaderMutation: m},
	}}}
}

// lwepp answers headers at once and leaves every body message as it is.
func lwepp(s process, destination func(string) *extprocv3.ProcessingResponse, backend string, each func(*extprocv3.ProcessingRequest)) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return nil
		}
		each(m)
		var a *extprocv3.ProcessingResponse
		switch m.GetRequest().(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			a = destination(backend)
		case *extprocv3.ProcessingRequest_RequestBody:
			a = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{}}}
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			a = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}}
		case *extprocv3.ProcessingRequest_ResponseBody:
			a = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{}}}
		}
		if err := s.Send(a); err != nil {
			return err
		}
	}
}

func TestPassThroughDialect(t *testing.T) {
	r := stubRig(t, Config{ChunkBytes: 1000}, func(s process, backend string) error {
		return lwepp(s, func(b string) *extprocv3.ProcessingResponse { return headersAnswer(wire.HeaderDestination, b) }, backend, func(*extprocv3.ProcessingRequest) {})
	})
	body := strings.Repeat("0123456789", 10000)
	got := r.start(r.request(t.Context(), http.MethodPost, "/any", body))
	c := <-r.backends[0].seen
	if string(c.body) != body {
		t.Error("the request body changed")
	}
	c.write("first")
	res := <-got
	if res.err != nil {
		t.Fatal(res.err)
	}
	defer res.resp.Body.Close()
	buf := make([]byte, 5)
	if _, err := io.ReadFull(res.resp.Body, buf); err != nil || string(buf) != "first" {
		t.Fatal(string(buf), err)
	}
	c.answer(body)
	if rest, err := io.ReadAll(res.resp.Body); err != nil || string(rest) != body {
		t.Error(len(rest), err)
	}
}

// TestRecordedOrder holds the messages of one exchange as Envoy sends them in the configuration of the specification.
func TestRecordedOrder(t *testing.T) {
	var mu sync.Mutex
	var order []string
	r := stubRig(t, Config{}, func(s process, backend string) error {
		return lwepp(s, func(b string) *extprocv3.ProcessingResponse { return headersAnswer(wire.HeaderDestination, b) }, backend, func(m *extprocv3.ProcessingRequest) {
			mu.Lock()
			defer mu.Unlock()
			switch x := m.GetRequest().(type) {
			case *extprocv3.ProcessingRequest_RequestHeaders:
				var names []string
				for _, h := range x.RequestHeaders.GetHeaders().GetHeaders() {
					if h.GetValue() != "" {
						t.Error("values go into raw_value")
					}
					if strings.HasPrefix(h.GetKey(), ":") {
						names = append(names, h.GetKey()+"="+string(h.GetRawValue()))
					}
				}
				order = append(order, strings.Join(names[:2], " "))
			case *extprocv3.ProcessingRequest_RequestBody:
				order = append(order, "body "+map[bool]string{true: "eos"}[x.RequestBody.GetEndOfStream()])
			case *extprocv3.ProcessingRequest_ResponseHeaders:
				h := extproc.ReadHeaders(x.ResponseHeaders.GetHeaders())
				served := m.GetMetadataContext().GetFilterMetadata()[wire.MetadataLB].GetFields()[wire.HeaderDestinationServed].GetStringValue()
				order = append(order, ":status="+h[":status"]+" served="+map[bool]string{true: "yes"}[served == backend])
			case *extprocv3.ProcessingRequest_ResponseBody:
				if x.ResponseBody.GetEndOfStream() {
					order = append(order, "response eos")
				}
			}
		})
	})
	got := r.send(t.Context(), "a")
	(<-r.backends[0].seen).answer("ok")
	if _, body, err := full(t, got); body != "ok" || err != nil {
		t.Fatal(body, err)
	}
	mu.Lock()
	defer mu.Unlock()
	seen := strings.Join(order, "; ")
	seen = strings.ReplaceAll(seen, "body ; ", "") // the client's write may come in several chunks
	if want := ":method=POST :path=/v1/completions; body eos; :status=200 served=yes; response eos"; seen != want {
		t.Errorf("%s, want %s", seen, want)
	}
}

func TestDestinationFromMetadataAndFallback(t *testing.T) {
	r := stubRig(t, Config{}, func(s process, backend string) error {
		return lwepp(s, func(b string) *extprocv3.ProcessingResponse {
			a := headersAnswer()
			a.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{wire.MetadataLB: structpb.NewStructValue(&structpb.Struct{
				Fields: map[string]*structpb.Value{wire.HeaderDestination: structpb.NewStringValue("127.0.0.1:1, " + b)},
			})}}
			return a
		}, backend, func(*extprocv3.ProcessingRequest) {})
	})
	got := r.send(t.Context(), "a")
	(<-r.backends[0].seen).answer("ok")
	if _, body, err := full(t, got); body != "ok" || err != nil {
		t.Fatal(body, err)
	}
	if x := <-r.observed; x.HeaderDestination != "" || !strings.HasPrefix(x.MetadataDestination, "127.0.0.1:1") || x.Served != r.backends[0].addr() {
		t.Errorf("%+v", x)
	}
}

// TestBadPickers has one row per way in which a picker can misbehave before the response.
func TestBadPickers(t *testing.T) {
	drain := func(s process) error {
		for {
			if _, err := s.Recv(); err != nil {
				return nil
			}
		}
	}
	body := func(r *extprocv3.CommonResponse) *extprocv3.ProcessingResponse {
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{Response: r}}}
	}
	eos := body(&extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{
		StreamedResponse: &extprocv3.StreamedBodyResponse{EndOfStream: true}}}})
	rows := []struct {
		why    string
		handle func(s process, b string) error
		status int
	}{
		{"closes at once", func(process, string) error { return nil }, 500},
		{"fails at once", func(process, string) error { return errors.New("boom") }, 500},
		{"closes after reading", func(s process, _ string) error { _, _ = s.Recv(); return nil }, 500},
		{"an empty message", func(s process, _ string) error { _ = s.Send(&extprocv3.ProcessingResponse{}); return drain(s) }, 500},
		{"answers what nobody asked", func(s process, _ string) error {
			_ = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}})
			return drain(s)
		}, 500},
		{"names no destination", func(s process, _ string) error { _ = s.Send(headersAnswer()); _ = s.Send(eos); return drain(s) }, 503},
		{"names nonsense", func(s process, _ string) error {
			_ = s.Send(headersAnswer(wire.HeaderDestination, "no where:xx:"))
			_ = s.Send(eos)
			return drain(s)
		}, 503},
		{"never answers", func(s process, _ string) error { return drain(s) }, 504},
		{"a response without a status", func(s process, _ string) error {
			_ = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{Body: []byte("x")}}})
			return drain(s)
		}, 200},
	}
	for _, row := range rows {
		t.Run(row.why, func(t *testing.T) {
			cfg := Config{}
			if row.status == 504 {
				cfg.MessageTimeout = 20 * time.Millisecond
			}
			r := stubRig(t, cfg, row.handle)
			resp, text, err := full(t, r.send(t.Context(), "a"))
			if err != nil || resp.StatusCode != row.status {
				t.Error(resp, text, err)
			}
		})
	}
}

func TestFailOpen(t *testing.T) {
	for why, handle := range map[string]func(process, string) error{
		"the picker fails":   func(process, string) error { return errors.New("boom") },
		"the picker is mute": func(s process, _ string) error { <-s.Context().Done(); return nil },
	} {
		t.Run(why, func(t *testing.T) {
			b := newBackend(t)
			r := stubRig(t, Config{FailOpen: true, FailOpenTo: b.addr(), MessageTimeout: 50 * time.Millisecond}, handle)
			got := r.send(t.Context(), "a")
			c := <-b.seen
			if string(c.body) != completion {
				t.Errorf("%s", c.body)
			}
			c.answer("open")
			if resp, body, err := full(t, got); err != nil || resp.StatusCode != 200 || body != "open" {
				t.Error(resp, body, err)
			}
			if x := <-r.observed; x.Err == nil {
				t.Error("the observer hears of the failure")
			}
		})
	}
}

func TestPickerUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, observed: make(chan Exchange, 4)}
	r.frontend(Config{ExtProcAddr: ln.Addr().String()})
	ln.Close()
	resp, body, err := full(t, r.send(t.Context(), "a"))
	if err != nil || resp.StatusCode != 500 || !strings.Contains(body, "ext_proc stream failed") {
		t.Error(resp, body, err)
	}
}

// TestCancelWithAMutePicker sends more than the flow-control windows hold to a picker that reads nothing: the client's cancel must
// get through although the upload to the picker is stuck.
func TestCancelWithAMutePicker(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	r := stubRig(t, Config{}, func(s process, _ string) error {
		close(started)
		<-s.Context().Done()
		close(ended)
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	got := r.start(r.request(ctx, http.MethodPost, "/v1/completions", strings.Repeat("x", 8<<20)))
	<-started
	cancel()
	if res := <-got; res.err == nil {
		t.Error(res.resp)
	}
	<-ended // the picker's stream is cancelled
}

// TestPickerLeavesWithinTheResponse holds what happens to the client when the picker's stream ends in each part of the response.
func TestPickerLeavesWithinTheResponse(t *testing.T) {
	rows := []struct {
		why     string
		answers int // response messages answered before the end
		err     error
		broken  bool
		status  int
	}{
		{"an orderly end after the request: the response is not processed", 0, nil, false, 200},
		{"a failure after the request", 0, errors.New("boom"), false, 500},
		{"an end after the headers: what was not answered passes", 1, nil, false, 200},
		{"a failure after the headers", 1, errors.New("boom"), true, 200},
		{"an end after a streamed chunk loses the rest", 2, nil, true, 200},
	}
	for _, row := range rows {
		t.Run(row.why, func(t *testing.T) {
			sent := make(chan struct{})
			r := stubRig(t, Config{}, func(s process, backend string) error {
				var body []byte
				for answered := 0; ; {
					m, err := s.Recv()
					if err != nil {
						return nil
					}
					switch x := m.GetRequest().(type) {
					case *extprocv3.ProcessingRequest_RequestBody:
						body = append(body, x.RequestBody.GetBody()...)
						if !x.RequestBody.GetEndOfStream() {
							continue
						}
						_ = s.Send(extproc.RequestHeadersResponse(backend, len(body), nil, nil))
						for _, a := range extproc.RequestBodyResponses(body, true) {
							_ = s.Send(a)
						}
						if row.answers == 0 {
							return row.err
						}
					case *extprocv3.ProcessingRequest_ResponseHeaders:
						_ = s.Send(extproc.ResponseHeadersResponse(nil, false))
						if answered++; answered == row.answers {
							if row.err != nil {
								<-sent // the client has its headers
							}
							return row.err
						}
					case *extprocv3.ProcessingRequest_ResponseBody:
						for _, a := range extproc.ResponseBodyResponses(x.ResponseBody.GetBody(), false) {
							_ = s.Send(a)
						}
						if answered++; answered == row.answers {
							return row.err
						}
					}
				}
			})
			got := r.send(t.Context(), "a")
			if row.status == 500 {
				if resp, _, err := full(t, got); err != nil || resp.StatusCode != 500 {
					t.Error(resp, err)
				}
				return
			}
			c := <-r.backends[0].seen
			c.write("one")
			res := <-got
			if res.err != nil {
				t.Fatal(res.err)
			}
			defer res.resp.Body.Close()
			close(sent)
			if row.broken {
				if b, err := io.ReadAll(res.resp.Body); err == nil {
					t.Errorf("%q must not look complete", b)
				}
				return
			}
			c.answer("two")
			if b, err := io.ReadAll(res.resp.Body); err != nil || string(b) != "onetwo" {
				t.Errorf("%q %v", b, err)
			}
		})
	}
}

// TestMutations holds which header changes of a picker are followed.
func TestMutations(t *testing.T) {
	r := stubRig(t, Config{}, func(s process, backend string) error {
		return lwepp(s, func(b string) *extprocv3.ProcessingResponse {
			a := headersAnswer(wire.HeaderDestination, b, ":path", "/evil", "Content-Length", "1", "host", "evil", "connection", "close", "x-set", "new", "x-bad", "a\r\nb: c")
			m := a.GetRequestHeaders().GetResponse().GetHeaderMutation()
			m.RemoveHeaders = []string{"x-remove", ":method"}
			m.SetHeaders = append(m.SetHeaders, &corev3.HeaderValueOption{
				Header: &corev3.HeaderValue{Key: "x-client", Value: "absent only"}, AppendAction: corev3.HeaderValueOption_ADD_IF_ABSENT,
			})
			return a
		}, backend, func(*extprocv3.ProcessingRequest) {})
	})
	got := r.send(t.Context(), "a", "X-Set", "old", "X-Remove", "1", "X-Client", "1", "Connection", "x-hop", "X-Hop", "1")
	c := <-r.backends[0].seen
	h := c.r.Header
	if c.r.URL.Path != "/v1/completions" || c.r.Method != http.MethodPost || string(c.body) != completion || c.r.Host == "evil" {
		t.Error(c.r.Method, c.r.URL, c.r.Host)
	}
	if h.Get("X-Set") != "new" || h.Get("X-Remove") != "" || h.Get("X-Client") != "1" || h.Get("X-Bad") != "" || h.Get("B") != "" || h.Get("X-Hop") != "" {
		t.Error(h)
	}
	c.answer("ok")
	full(t, got)
}
