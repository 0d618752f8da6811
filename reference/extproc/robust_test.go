package extproc

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/picker"
)

// TestRequestTrailers: trailers end a body that has no last message of its own; a client of the known router would wait for ever.
func TestRequestTrailers(t *testing.T) {
	a := newStub()
	p := start(t, a, Config{})
	p.send(reqHeaders(false, ":path", "/v1/completions"))
	p.send(reqBody(completion, false))
	p.send(reqTrailers)
	if p.recv().GetRequestHeaders() == nil {
		t.Error("headers are answered first")
	}
	if b := p.recv().GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse(); string(b.GetBody()) != completion || b.GetEndOfStream() {
		t.Errorf("the trailers end the body, not %v", b)
	}
	if p.recv().GetRequestTrailers() == nil {
		t.Error("trailers are answered")
	}
	p.send(reqTrailers) // a second time, they are ignored
	p.send(respHeaders(true, ":status", "204"))
	p.recv()
	if err := p.end(); err != nil {
		t.Error(err)
	}
	a.check(t, 1)
}

// TestAfterTheEnd plays messages behind an end: the stream fails, and what was placed is finished once (ACCT-8).
func TestAfterTheEnd(t *testing.T) {
	for why, late := range map[string]*extprocv3.ProcessingRequest{
		"a second end of the request": reqBody("", true), "more request body": reqBody("x", false), "request headers": reqHeaders(false),
		"a second end of the response": respBody("", true), "more response body": respBody("x", false), "response headers": respHeaders(false),
	} {
		a := newStub()
		p := start(t, a, Config{})
		p.send(reqHeaders(false))
		p.send(reqBody(completion, true))
		p.send(respHeaders(false, ":status", "200"))
		p.send(respBody("x", true))
		p.send(late)
		if err := <-p.result; status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", why, err)
		}
		a.check(t, 1)
	}
	a := newStub()
	p := start(t, a, Config{})
	p.send(reqHeaders(false))
	p.send(reqBody(completion, true))
	p.send(respHeaders(false, ":status", "200"))
	p.send(respTrailers)
	p.send(respTrailers)
	if err := p.end(); err != nil {
		t.Error("trailers twice do no harm:", err)
	}
	a.check(t, 1)
}

// TestEndlessBody sends a body that never ends: it is refused at the limit, and what comes later is dropped, not kept.
func TestEndlessBody(t *testing.T) {
	a := newStub()
	p := start(t, a, Config{BodyLimit: 1000})
	p.send(reqHeaders(false))
	piece := strings.Repeat("x", 100)
	for range 500 {
		p.send(reqBody(piece, false))
	}
	if code := p.recv().GetImmediateResponse().GetStatus().GetCode(); code != 413 {
		t.Error(code)
	}
	if err := p.end(); err != nil {
		t.Error(err)
	}
	a.check(t, 0)
}

func TestDeadlineIsNoWaitLimit(t *testing.T) {
	a := newStub()
	a.block = true
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	s := newMemStream(ctx)
	server := NewServer(a, Config{})
	result := make(chan error, 1)
	go func() { result <- server.Process(s) }()
	s.in <- reqHeaders(false)
	s.in <- reqBody(completion, true)
	if err := <-result; status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	server.Wait()
	a.check(t, 0)
}

func TestRequestID(t *testing.T) {
	find := func(m *extprocv3.ProcessingResponse) string {
		for _, o := range m.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
			if o.GetHeader().GetKey() == wire.HeaderRequestID {
				return string(o.GetHeader().GetRawValue())
			}
		}
		return ""
	}
	seen := map[string]bool{}
	for _, given := range []string{"mine", "", ""} {
		p := start(t, newStub(), Config{})
		h := []string{":path", "/v1/completions"}
		if given != "" {
			h = append(h, wire.HeaderRequestID, given)
		}
		p.send(reqHeaders(false, h...))
		p.send(reqBody(completion, true))
		id := find(p.recv())
		if given != "" && id != given || id == "" || seen[id] {
			t.Errorf("%q became %q", given, id)
		}
		seen[id] = true
		p.end()
	}
}

// TestReport follows the report of a stream whose clock the test holds.
func TestReport(t *testing.T) { synctest.Test(t, testReport) }

func testReport(t *testing.T) {
	c := &handClock{}
	var reports []Report
	var gaps []time.Duration
	a := newStub()
	p := start(t, a, Config{Clock: c, OnReport: func(r Report) { reports = append(reports, r) },
		Gaps: func(Report) func(time.Duration) { return func(d time.Duration) { gaps = append(gaps, d) } }})
	step := func(at time.Duration, m *extprocv3.ProcessingRequest, answers int) {
		c.set(at)
		p.send(m)
		for range answers {
			p.recv()
		}
		synctest.Wait() // whatever is done after an answer is done at its time
	}
	step(1, reqHeaders(false, ":path", "/v1/completions", wire.HeaderObjective, "high", wire.HeaderFairnessID, "f"), 0)
	step(2, reqBody(completion, true), 2)
	step(3, respHeaders(false, ":status", "200", "content-type", streamType), 1)
	step(10, respBody("data: {\"model\":\"m\"}\n\n", false), 1)
	step(15, respBody("data: {\"mod", false), 1)
	step(20, respBody("el\":\"m\"}\n\ndata: {}\n\n", false), 1)
	step(35, respBody("data: {\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":3}}\n\n", false), 1)
	step(40, respBody("data: [DONE]\n\n", true), 1)
	if err := p.end(); err != nil {
		t.Error(err)
	}
	if len(reports) != 1 {
		t.Fatal(reports)
	}
	r := reports[0]
	want := Report{Identity: r.Identity, Model: "m", Target: "m", Priority: 100, Streaming: true, Status: 200, Complete: true, RequestBytes: int64(len(completion)),
		ResponseBytes: r.ResponseBytes, Usage: Usage{Prompt: 2, Completion: 3, Known: true}, Events: 4, Received: 1, Answered: 2, FirstByte: 10, LastByte: 40, Ended: 40}
	if r != want || r.Identity.FairnessID != "f" || r.ResponseBytes < 50 {
		t.Errorf("%+v\n%+v", r, want)
	}
	if !slices.Equal(gaps, []time.Duration{10, 15}) {
		t.Errorf("gaps between chunks that completed an event: %v", gaps)
	}
	if a.usage != (picker.Usage{Prompt: 2, Completion: 3}) {
		t.Error(a.usage)
	}
}

// handClock is a clock that the test sets.
type handClock struct {
	mu  sync.Mutex
	now time.Duration
}

func (c *handClock) set(at time.Duration) { c.mu.Lock(); c.now = at; c.mu.Unlock() }

func (c *handClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) Timer(time.Duration) *time.Timer { panic("no timers in here") }
