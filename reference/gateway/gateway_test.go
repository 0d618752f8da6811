package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/picker"
)

func TestNormal(t *testing.T) {
	r := newRig(t, 1, "")
	got := r.send(t.Context(), "a", wire.HeaderObjective, "high", wire.HeaderFairnessID, "tenant", "X-Client", "1")
	c := <-r.backends[0].seen
	if string(c.body) != completion || c.r.URL.Path != "/v1/completions" || c.r.Header.Get("X-Client") != "1" || c.r.Header.Get(wire.HeaderID) != "a" {
		t.Errorf("%s %v", c.body, c.r.Header)
	}
	if c.r.ContentLength != int64(len(completion)) || c.r.Header.Get(wire.HeaderRequestID) == "" || c.r.Host != r.front.Listener.Addr().String() {
		t.Errorf("length %d, host %s, %v", c.r.ContentLength, c.r.Host, c.r.Header)
	}
	if len(c.r.Header.Values(wire.HeaderFairnessID)) != 0 || len(c.r.Header.Values(wire.HeaderObjective)) != 0 || c.r.Header.Get(wire.HeaderDestination) != r.backends[0].addr() {
		t.Errorf("control headers are the picker's and go no further: %v", c.r.Header)
	}
	c.answer("done")
	resp, body, err := full(t, got)
	if err != nil || resp.StatusCode != 200 || body != "done" || resp.Header.Get("x-went-into-resp-headers") != "true" {
		t.Error(resp, body, err)
	}
	x := <-r.observed
	if x.HeaderDestination != r.backends[0].addr() || x.MetadataDestination != x.HeaderDestination || x.Served != x.HeaderDestination || x.Status != 200 || x.ID != "a" || x.Decision < 0 || x.Err != nil {
		t.Errorf("%+v", x)
	}
	if d := r.decision("a"); d.Priority != 100 || d.Flow != "tenant" || d.Outcome != wire.Dispatched {
		t.Errorf("%+v", d)
	}
}

// TestSSE releases the chunks one by one: the next is written only after the client has the one before.
func TestSSE(t *testing.T) {
	r := newRig(t, 1, "")
	got := r.send(t.Context(), "a")
	c := <-r.backends[0].seen
	c.do <- func(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/event-stream") }
	c.write("data: 0\n\n")
	res := <-got
	if res.err != nil {
		t.Fatal(res.err)
	}
	defer res.resp.Body.Close()
	buf := make([]byte, 9)
	for i := range 20 {
		if i > 0 {
			c.write(fmt.Sprintf("data: %d\n\n", i%10))
		}
		if _, err := io.ReadFull(res.resp.Body, buf); err != nil || string(buf) != fmt.Sprintf("data: %d\n\n", i%10) {
			t.Fatal(string(buf), err)
		}
	}
	close(c.do)
	if rest, err := io.ReadAll(res.resp.Body); err != nil || len(rest) != 0 {
		t.Error(rest, err)
	}
}

func TestRefusals(t *testing.T) {
	r := newRig(t, 1, "priorityBands: [{priority: 0, maxRequests: 1}]")
	first := r.send(t.Context(), "first")
	c := <-r.backends[0].seen
	second := r.send(t.Context(), "second")
	r.queued(1)
	resp, body, err := full(t, r.send(t.Context(), "third"))
	if err != nil || resp.StatusCode != 429 || resp.Header.Get(wire.HeaderDroppedReason) != wire.ReasonSaturated || body != wire.Refuse(wire.RejectedCapacity, 429).Body {
		t.Error(resp, body, err)
	}
	resp, body, err = full(t, r.start(r.request(t.Context(), http.MethodPost, "/v1/completions", `{"prompt":1}`)))
	if err != nil || resp.StatusCode != 400 || resp.Header.Get(wire.HeaderDroppedReason) != "" || !strings.Contains(body, "model not found") {
		t.Error(resp, body, err)
	}
	c.answer("1")
	if _, body, err := full(t, first); body != "1" || err != nil {
		t.Error(body, err)
	}
	(<-r.backends[0].seen).answer("2")
	if _, body, err := full(t, second); body != "2" || err != nil {
		t.Error(body, err)
	}
}

func TestTTLAndEmptyPool(t *testing.T) {
	r := newRig(t, 1, "defaultRequestTTL: 30ms, noEndpointRequestTTL: 30ms")
	first := r.send(t.Context(), "first")
	c := <-r.backends[0].seen
	resp, _, err := full(t, r.send(t.Context(), "late"))
	if err != nil || resp.StatusCode != 429 || resp.Header.Get(wire.HeaderDroppedReason) != wire.ReasonTTLExpired {
		t.Error(resp, err)
	}
	c.answer("1")
	full(t, first)
	r.picker.SetEndpoints(nil)
	resp, _, err = full(t, r.send(t.Context(), "nowhere"))
	if err != nil || resp.StatusCode != 503 || resp.Header.Get(wire.HeaderDroppedReason) != wire.ReasonNoEndpoints {
		t.Error(resp, err)
	}
	resp, _, err = full(t, r.start(r.request(t.Context(), http.MethodGet, "/v1/models", "")))
	if err != nil || resp.StatusCode != 503 || resp.Header.Get(wire.HeaderDroppedReason) != wire.ReasonNoEndpoints {
		t.Error(resp, err)
	}
}

func TestCancelWhileQueued(t *testing.T) {
	r := newRig(t, 1, "")
	first := r.send(t.Context(), "first")
	c := <-r.backends[0].seen
	ctx, cancel := context.WithCancel(t.Context())
	second := r.send(ctx, "second")
	r.queued(1)
	cancel()
	if res := <-second; res.err == nil {
		t.Error(res.resp)
	}
	if d := r.decision("second"); d.Outcome != wire.EvictedContextCancelled {
		t.Errorf("%+v", d)
	}
	c.answer("1")
	full(t, first)
}

func TestCancelInFlight(t *testing.T) {
	for _, stage := range []string{"before headers", "within the body"} {
		t.Run(stage, func(t *testing.T) {
			r := newRig(t, 1, "")
			ctx, cancel := context.WithCancel(t.Context())
			got := r.send(ctx, "first")
			c := <-r.backends[0].seen
			if stage == "within the body" {
				c.write("x")
				res := <-got
				if res.err != nil {
					t.Fatal(res.err)
				}
				defer res.resp.Body.Close()
			}
			cancel()
			<-c.gone // the backend sees it
			next := r.send(t.Context(), "next")
			(<-r.backends[0].seen).answer("2") // and the slot is free
			if _, body, err := full(t, next); body != "2" || err != nil {
				t.Error(body, err)
			}
		})
	}
}

func TestEviction(t *testing.T) {
	for _, stage := range []string{"before headers", "within the body"} {
		t.Run(stage, func(t *testing.T) {
			r := newRig(t, 1, "enableEviction: true")
			victim := r.send(t.Context(), "victim", wire.HeaderObjective, "shed")
			c := <-r.backends[0].seen
			var body io.ReadCloser
			if stage == "within the body" {
				c.write("x")
				res := <-victim
				if res.err != nil {
					t.Fatal(res.err)
				}
				body = res.resp.Body
				defer body.Close()
			}
			demand := r.send(t.Context(), "demand", wire.HeaderObjective, "high")
			if body != nil {
				if b, err := io.ReadAll(body); err == nil {
					t.Errorf("a broken stream must not look complete: %q", b)
				}
			} else if resp, b, err := full(t, victim); err != nil || resp.StatusCode != 429 || resp.Header.Get(wire.HeaderDroppedReason) != wire.ReasonEvicted || b != wire.Evicted().Body {
				t.Error(resp, b, err)
			}
			<-c.gone
			(<-r.backends[0].seen).answer("2")
			if _, b, err := full(t, demand); b != "2" || err != nil {
				t.Error(b, err)
			}
			x := <-r.observed
			if !x.Immediate || x.Reason != wire.ReasonEvicted || x.Broken != (stage == "within the body") {
				t.Errorf("%+v", x)
			}
		})
	}
}

func TestShutdownEmptiesTheQueueAndDrains(t *testing.T) {
	r := newRig(t, 1, "")
	first := r.send(t.Context(), "first")
	c := <-r.backends[0].seen
	second := r.send(t.Context(), "second")
	r.queued(1)
	down := make(chan error, 1)
	go func() { down <- r.picker.Shutdown(t.Context()) }()
	for _, got := range []chan result{second, r.send(t.Context(), "third")} {
		resp, _, err := full(t, got)
		if err != nil || resp.StatusCode != 503 || resp.Header.Get(wire.HeaderDroppedReason) != wire.ReasonShuttingDown {
			t.Error(resp, err)
		}
	}
	c.answer("1")
	if resp, body, err := full(t, first); err != nil || resp.StatusCode != 200 || body != "1" {
		t.Error(resp, body, err)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

func TestGET(t *testing.T) {
	r := newRig(t, 1, "")
	got := r.start(r.request(t.Context(), http.MethodGet, "/v1/models?x=%2f", ""))
	c := <-r.backends[0].seen
	if c.r.RequestURI != "/v1/models?x=%2f" || c.r.ContentLength != 0 || c.r.Header.Get("Content-Length") != "" {
		t.Error(c.r.RequestURI, c.r.ContentLength)
	}
	c.answer("[]")
	if resp, body, err := full(t, got); err != nil || resp.StatusCode != 200 || body != "[]" {
		t.Error(resp, body, err)
	}
	resp, body, err := full(t, r.start(r.request(t.Context(), http.MethodPost, "/v1/completions", "")))
	if err != nil || resp.StatusCode != 400 || !strings.Contains(body, "unexpected end of JSON input") {
		t.Errorf("an empty POST reaches the parser: %v %s %v", resp, body, err)
	}
}

// TestBodies sends bodies around the chunk limit both ways; they have to arrive byte for byte.
func TestBodies(t *testing.T) {
	r := newRig(t, 1, "")
	for _, size := range []int{30, wire.BodyByteLimit, wire.BodyByteLimit + 1, 2 * wire.BodyByteLimit, 1 << 20} {
		prompt, _ := json.Marshal(strings.Repeat("<é&", size/4))
		body := `{ "model":"m",  "prompt":` + string(prompt) + `}`
		for _, chunked := range []bool{false, true} {
			req := r.request(t.Context(), http.MethodPost, "/v1/completions", body)
			if chunked {
				req.ContentLength = -1
			}
			got := r.start(req)
			c := <-r.backends[0].seen
			if string(c.body) != body {
				t.Errorf("size %d: the request body changed", size)
			}
			c.answer(body)
			if _, echoed, err := full(t, got); err != nil || echoed != body {
				t.Errorf("size %d: the response body changed: %v", size, err)
			}
		}
	}
}

func TestSubset(t *testing.T) {
	r := newRig(t, 2, "")
	// Both backends share an IP, so that only an address outside the pool restricts.
	resp, _, err := full(t, r.send(t.Context(), "none", wire.HeaderSubset, "10.9.9.9:1"))
	if err != nil || resp.StatusCode != 503 || resp.Header.Get(wire.HeaderDroppedReason) != wire.ReasonNoEndpoints {
		t.Error(resp, err)
	}
	got := r.send(t.Context(), "some", wire.HeaderSubset, r.backends[0].addr())
	var c *call
	select {
	case c = <-r.backends[0].seen:
	case c = <-r.backends[1].seen:
	}
	if c.r.Header.Get(wire.HeaderSubset) != "" {
		t.Error("the instruction to the gateway is not forwarded")
	}
	c.answer("1")
	full(t, got)
}

func TestUpstreamFailures(t *testing.T) {
	t.Run("nobody listens", func(t *testing.T) {
		r := newRig(t, 1, "")
		r.picker.SetEndpoints([]picker.Endpoint{{Name: "dead", Address: "127.0.0.1:1"}})
		resp, _, err := full(t, r.send(t.Context(), "a"))
		if err != nil || resp.StatusCode != 503 || resp.Header.Get(wire.HeaderDroppedReason) != "" {
			t.Error(resp, err)
		}
		r.picker.SetEndpoints([]picker.Endpoint{{Name: "alive", Address: r.backends[0].addr()}})
		got := r.send(t.Context(), "b")
		(<-r.backends[0].seen).answer("1")
		if _, body, err := full(t, got); body != "1" || err != nil {
			t.Error(body, err)
		}
	})
	t.Run("reset within the body", func(t *testing.T) {
		r := newRig(t, 1, "")
		got := r.send(t.Context(), "a")
		c := <-r.backends[0].seen
		c.write("x")
		res := <-got
		if res.err != nil {
			t.Fatal(res.err)
		}
		defer res.resp.Body.Close()
		c.do <- func(w http.ResponseWriter) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				conn.Close()
			}
		}
		if b, err := io.ReadAll(res.resp.Body); err == nil {
			t.Errorf("a broken stream must not look complete: %q", b)
		}
		close(c.do)
	})
	t.Run("reset before the headers", func(t *testing.T) {
		r := newRig(t, 1, "")
		got := r.send(t.Context(), "a")
		c := <-r.backends[0].seen
		c.do <- func(w http.ResponseWriter) {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				conn.Close()
			}
		}
		close(c.do)
		if resp, _, err := full(t, got); err != nil || resp.StatusCode != 503 {
			t.Error(resp, err)
		}
	})
	t.Run("an error status passes", func(t *testing.T) {
		r := newRig(t, 1, "")
		got := r.send(t.Context(), "a")
		c := <-r.backends[0].seen
		c.do <- func(w http.ResponseWriter) { w.WriteHeader(http.StatusTeapot) }
		close(c.do)
		if resp, _, err := full(t, got); err != nil || resp.StatusCode != http.StatusTeapot {
			t.Error(resp, err)
		}
	})
}

// TestUnfinishedUpload refuses a request whose body is still on its way: the answer must not wait for the rest.
func TestUnfinishedUpload(t *testing.T) {
	r := newRig(t, 1, "")
	r.frontend(Config{ExtProcAddr: r.picker.GRPCAddr(), BodyLimit: 100})
	addr := r.front.Listener.Addr().String()
	_, br := rawPost(t, addr, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"+strings.Repeat("x", 200))
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != 413 {
		t.Fatal(resp, err)
	}
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Error(err)
	}
	// A client that leaves within its upload is noticed as well.
	conn, _ := rawPost(t, addr, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Weir-Id: gone\r\nContent-Length: 1000\r\n\r\nxx")
	conn.Close()
	for x := range r.observed {
		if x.ID == "gone" {
			if x.Err == nil {
				t.Errorf("%+v", x)
			}
			break
		}
	}
}

// TestManyAtOnce floods one slot per backend: every request gets its own body back.
func TestManyAtOnce(t *testing.T) {
	r := newRig(t, 2, "")
	for _, b := range r.backends {
		go func() {
			for c := range b.seen {
				go c.answer(string(bytes.ToUpper(c.body)))
			}
		}()
		t.Cleanup(func() { close(b.seen) })
	}
	var got []chan result
	var want []string
	for i := range 100 {
		body := fmt.Sprintf(`{"model":"m","prompt":"number %d"}`, i)
		got = append(got, r.start(r.request(t.Context(), http.MethodPost, "/v1/completions", body)))
		want = append(want, strings.ToUpper(body))
	}
	for i, c := range got {
		if resp, body, err := full(t, c); err != nil || resp.StatusCode != 200 || body != want[i] {
			t.Error(i, resp, body, err)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	_, err := New(Config{FailOpen: true, ChunkBytes: -1})
	for _, want := range []string{"ExtProcAddr", "FailOpenTo", "ChunkBytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
}
