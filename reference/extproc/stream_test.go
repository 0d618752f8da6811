package extproc

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/picker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memStream is a stream in memory: the test plays the data plane.
type memStream struct {
	grpc.ServerStream
	ctx context.Context
	in  chan *extprocv3.ProcessingRequest
	out chan *extprocv3.ProcessingResponse
}

func newMemStream(ctx context.Context) *memStream {
	return &memStream{ctx: ctx, in: make(chan *extprocv3.ProcessingRequest), out: make(chan *extprocv3.ProcessingResponse, 4096)}
}

func (s *memStream) Context() context.Context { return s.ctx }

func (s *memStream) Recv() (*extprocv3.ProcessingRequest, error) {
	select {
	case m, ok := <-s.in:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-s.ctx.Done():
		return nil, status.FromContextError(s.ctx.Err()).Err()
	}
}

func (s *memStream) Send(m *extprocv3.ProcessingResponse) error {
	select {
	case s.out <- m:
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// stub is an Admission that decides as told and counts what it owes.
type stub struct {
	mu       sync.Mutex
	outcome  wire.Outcome
	empty    bool
	block    bool // wait for the context
	waiting  chan struct{}
	evicted  chan struct{}
	seen     []picker.Request
	incoming []string
	usage    picker.Usage
	started  int
	finished map[uint64]int
	placed   uint64
}

func newStub() *stub {
	return &stub{outcome: wire.Dispatched, evicted: make(chan struct{}), waiting: make(chan struct{}, 16), finished: map[uint64]int{}}
}

func (s *stub) Submit(ctx context.Context, sub Submission) (Placement, wire.Outcome) {
	s.waiting <- struct{}{}
	if s.block {
		<-ctx.Done()
		return Placement{}, wire.EvictedContextCancelled
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.incoming = append(s.seen, sub.Request), append(s.incoming, sub.Incoming)
	if s.outcome != wire.Dispatched {
		return Placement{}, s.outcome
	}
	s.placed++
	return Placement{ID: s.placed, Endpoint: picker.Endpoint{Address: "10.0.0.1:80"}, Fallbacks: []picker.Endpoint{{Address: "10.0.0.2:80"}}, Evicted: s.evicted}, wire.Dispatched
}

func (s *stub) FirstChunk(uint64) { s.mu.Lock(); s.started++; s.mu.Unlock() }
func (s *stub) FinishWith(id uint64, u picker.Usage) {
	s.mu.Lock()
	s.finished[id]++
	s.usage = u
	s.mu.Unlock()
}
func (s *stub) Priority(o string) int {
	if o == "high" {
		return 100
	}
	return 0
}
func (s *stub) Any() (picker.Endpoint, bool) {
	return picker.Endpoint{Address: "10.0.0.9:80"}, !s.empty
}

func (s *stub) check(t *testing.T, finished int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for id, c := range s.finished {
		n++
		if c != 1 {
			t.Errorf("request %d finished %d times", id, c)
		}
	}
	if n != finished || uint64(n) != s.placed {
		t.Errorf("%d placed, %d finished, want %d", s.placed, n, finished)
	}
}

// play runs one exchange of a server over a stream and returns the handler's result.
type play struct {
	t      *testing.T
	s      *memStream
	server *Server
	cancel context.CancelFunc
	result chan error
}

func start(t *testing.T, a Admission, cfg Config) *play {
	ctx, cancel := context.WithCancel(context.Background())
	p := &play{t: t, s: newMemStream(ctx), server: NewServer(a, cfg), cancel: cancel, result: make(chan error, 1)}
	go func() { p.result <- p.server.Process(p.s) }()
	t.Cleanup(func() { cancel(); p.server.Wait() })
	return p
}

func (p *play) send(m *extprocv3.ProcessingRequest) { p.s.in <- m }

func (p *play) recv() *extprocv3.ProcessingResponse {
	p.t.Helper()
	select {
	case m := <-p.s.out:
		return m
	case err := <-p.result:
		p.t.Fatalf("the handler returned %v instead of an answer", err)
		return nil
	}
}

func (p *play) end() error { close(p.s.in); err := <-p.result; return err }

func reqHeaders(eos bool, pairs ...string) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headerMap(pairs...), EndOfStream: eos}}}
}

func reqBody(s string, eos bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(s), EndOfStream: eos}}}
}

func respHeaders(eos bool, pairs ...string) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap(pairs...), EndOfStream: eos}}}
}

func respBody(s string, eos bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte(s), EndOfStream: eos}}}
}

var (
	reqTrailers  = &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}}
	respTrailers = &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}}
)

const completion = `{"model":"m","prompt":"12345678"}`

func TestDispatchAndStream(t *testing.T) {
	a := newStub()
	p := start(t, a, Config{})
	p.send(reqHeaders(false, ":path", "/v1/completions", wire.HeaderObjective, "high", wire.HeaderFairnessID, "tenant"))
	p.send(reqBody(completion[:5], false))
	p.send(reqBody(completion[5:], true))
	if d := p.recv().GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()[0].GetHeader().GetRawValue(); string(d) != "10.0.0.1:80,10.0.0.2:80" {
		t.Errorf("destination %s", d)
	}
	if b := p.recv().GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse(); string(b.GetBody()) != completion || !b.GetEndOfStream() {
		t.Error(b)
	}
	p.send(respHeaders(false, ":status", "200", "content-type", "text/event-stream; charset=utf-8"))
	if p.recv().GetResponseHeaders() == nil {
		t.Error("response headers are answered")
	}
	for _, c := range []string{"a", "b"} {
		p.send(respBody(c, false))
		if b := p.recv().GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse(); string(b.GetBody()) != c || b.GetEndOfStream() {
			t.Error(b)
		}
	}
	p.send(respBody("", true))
	if b := p.recv().GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse(); !b.GetEndOfStream() {
		t.Error(b)
	}
	a.check(t, 1) // finished before the last answer left
	if err := p.end(); err != nil {
		t.Error(err)
	}
	a.check(t, 1)
	r := a.seen[0]
	if r.FairnessID != "tenant" || r.Priority != 100 || r.Bytes != int64(len(completion)) || r.Tokens != 2 || r.Model != "m" || a.started != 1 {
		t.Errorf("%+v, %d first chunks", r, a.started)
	}
}

func TestRefusals(t *testing.T) {
	rows := []struct {
		why    string
		cfg    Config
		stub   func(*stub)
		msgs   []*extprocv3.ProcessingRequest
		status int
		reason string
	}{
		{"queue at capacity", Config{}, func(s *stub) { s.outcome = wire.RejectedCapacity }, []*extprocv3.ProcessingRequest{reqHeaders(false, ":path", "/v1/completions"), reqBody(completion, true)}, 429, wire.ReasonSaturated},
		{"the contract decides the status", Config{Refuse: func(o wire.Outcome) wire.Refusal { return wire.Refuse(o, 503) }}, func(s *stub) { s.outcome = wire.EvictedTTL }, []*extprocv3.ProcessingRequest{reqHeaders(false), reqBody(completion, true)}, 503, wire.ReasonTTLExpired},
		{"validation", Config{}, func(*stub) {}, []*extprocv3.ProcessingRequest{reqHeaders(false, ":path", "/v1/completions"), reqBody("{", true)}, 400, ""},
		{"unknown path where none is passed on", Config{RejectUnknownPaths: true}, func(*stub) {}, []*extprocv3.ProcessingRequest{reqHeaders(false, ":path", "/x"), reqBody("{", true)}, 400, ""},
		{"too large", Config{BodyLimit: 10}, func(*stub) {}, []*extprocv3.ProcessingRequest{reqHeaders(false), reqBody("12345678", false), reqBody("901", false)}, 413, ""},
		{"more headers than the limit", Config{HeaderLimit: 100}, func(*stub) {}, []*extprocv3.ProcessingRequest{reqHeaders(false, "x", strings.Repeat("y", 100))}, 431, ""},
		{"no body, no endpoint", Config{}, func(s *stub) { s.empty = true }, []*extprocv3.ProcessingRequest{reqHeaders(true, ":method", "GET")}, 503, wire.ReasonNoEndpoints},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			a := newStub()
			r.stub(a)
			p := start(t, a, r.cfg)
			for _, m := range r.msgs {
				p.send(m)
			}
			im := p.recv().GetImmediateResponse()
			var reason string
			for _, o := range im.GetHeaders().GetSetHeaders() {
				reason = string(o.GetHeader().GetRawValue())
			}
			if int(im.GetStatus().GetCode()) != r.status || reason != r.reason {
				t.Errorf("%v", im)
			}
			select {
			case err := <-p.result:
				t.Errorf("the stream stays open until the peer closes it, but it ended with %v", err)
			default:
			}
			p.send(respHeaders(true)) // whatever comes is read and dropped
			if err := p.end(); err != nil {
				t.Error(err)
			}
			a.check(t, 0)
		})
	}
}

func TestWithoutBody(t *testing.T) {
	a := newStub()
	p := start(t, a, Config{})
	p.send(reqHeaders(true, ":method", "GET", "x", "y"))
	set := p.recv().GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()
	if len(set) != 1 || string(set[0].GetHeader().GetRawValue()) != "10.0.0.9:80" {
		t.Error(set)
	}
	p.send(respHeaders(true, ":status", "200"))
	p.recv()
	if err := p.end(); err != nil {
		t.Error(err)
	}
	a.check(t, 0)
}

func TestCancelWhileQueued(t *testing.T) {
	a := newStub()
	a.block = true
	p := start(t, a, Config{})
	p.send(reqHeaders(false))
	p.send(reqBody(completion, true))
	<-a.waiting
	p.cancel()
	if err := <-p.result; err != nil {
		t.Error(err)
	}
	a.check(t, 0)
}

func TestEviction(t *testing.T) {
	for _, after := range []string{"request", "headers", "chunk"} {
		t.Run(after, func(t *testing.T) {
			a := newStub()
			p := start(t, a, Config{})
			p.send(reqHeaders(false))
			p.send(reqBody(completion, true))
			p.recv()
			p.recv()
			if after != "request" {
				p.send(respHeaders(false, ":status", "200"))
				p.recv()
			}
			if after == "chunk" {
				p.send(respBody("x", false))
				p.recv()
			}
			close(a.evicted)
			im := p.recv().GetImmediateResponse()
			if im.GetStatus().GetCode() != 429 || string(im.GetBody()) != "request evicted by flow control" {
				t.Error(im)
			}
			if err := <-p.result; err != nil { // the handler returns by itself
				t.Error(err)
			}
			a.check(t, 1)
		})
	}
	t.Run("not after the end", func(t *testing.T) {
		a := newStub()
		p := start(t, a, Config{})
		p.send(reqHeaders(false))
		p.send(reqBody(completion, true))
		p.recv()
		p.recv()
		p.send(respHeaders(true, ":status", "200"))
		p.recv()
		close(a.evicted)
		if err := p.end(); err != nil {
			t.Error(err)
		}
		select {
		case m := <-p.s.out:
			t.Errorf("a finished response was answered with %v", m)
		default:
		}
		a.check(t, 1)
	})
}

func TestUnexpectedMessages(t *testing.T) {
	for why, msgs := range map[string][]*extprocv3.ProcessingRequest{
		"body first":          {reqBody("x", false)},
		"response first":      {respHeaders(false)},
		"headers twice":       {reqHeaders(false), reqHeaders(false)},
		"nothing in it":       {{}},
		"trailers first":      {reqTrailers},
		"request after reply": {reqHeaders(true), reqHeaders(true)},
	} {
		a := newStub()
		p := start(t, a, Config{})
		for _, m := range msgs {
			p.send(m)
		}
		if err := <-p.result; status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// FuzzSequence plays any order of messages and any end, and holds what must be true of all: the handler returns, and every placed
// request is finished exactly once.
func FuzzSequence(f *testing.F) {
	f.Add([]byte("hbBHRrE"))
	f.Add([]byte("gHrE"))
	f.Add([]byte("hBvC"))
	f.Add([]byte("hTBtHrrrE"))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 64 {
			return
		}
		a := newStub()
		a.waiting = make(chan struct{}, 64)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		s := newMemStream(ctx)
		server := NewServer(a, Config{BodyLimit: 100})
		result := make(chan error, 1)
		go func() { result <- server.Process(s) }()
		evicted := false
		send := func(m *extprocv3.ProcessingRequest) bool {
			select {
			case s.in <- m:
				return true
			case err := <-result:
				result <- err
				return false
			}
		}
	script:
		for i, op := range script {
			ok := true
			switch op {
			case 'h':
				ok = send(reqHeaders(false, ":path", "/v1/completions", "k", fmt.Sprint(i)))
			case 'g':
				ok = send(reqHeaders(true))
			case 'b':
				ok = send(reqBody("xx", false))
			case 'B':
				ok = send(reqBody(completion, true))
			case 'H':
				ok = send(respHeaders(false, ":status", "200"))
			case 'R':
				ok = send(respBody("x", true))
			case 'r':
				ok = send(respBody("x", false))
			case 't':
				ok = send(reqTrailers)
			case 'T':
				ok = send(respTrailers)
			case 'n':
				ok = send(&extprocv3.ProcessingRequest{})
			case 'v':
				if !evicted {
					close(a.evicted)
					evicted = true
				}
			case 'C':
				break script
			default:
				continue
			}
			if !ok {
				break
			}
		}
		if len(script) > 0 && script[len(script)-1] == 'C' {
			cancel()
		} else {
			close(s.in)
		}
		<-result
		cancel()
		server.Wait()
		a.check(t, int(a.placed))
	})
}
