package server

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/sim-vllm/presets"
)

const (
	plainBody  = `{"prompt":"x","max_tokens":8}`
	streamBody = `{"prompt":"x","max_tokens":8,"stream":true}`
)

func holding(c *Config) { c.Hold = true }

func TestHeldRequestsAnswerInTheOrderOfRelease(t *testing.T) {
	f := start(t, holding)
	a := f.later(t.Context(), "a", "/v1/completions", plainBody)
	f.awaitHeld("a")
	b := f.later(t.Context(), "b", "/v1/completions", streamBody)
	f.awaitHeld("a", "b")
	c := f.later(t.Context(), "c", "/v1/completions", plainBody)
	f.awaitHeld("a", "b", "c")
	if f.InFlight() != 3 || f.record("a").Ending != evidence.Running || f.record("a").FirstToken != evidence.Never {
		t.Errorf("while held: %+v", f.Log())
	}
	if f.Release("nobody") {
		t.Error("released nobody")
	}
	if !f.Release("b") {
		t.Error("b was not held")
	}
	if got := <-b; got.status != 200 || !strings.Contains(got.body, "[DONE]") {
		t.Errorf("b got %+v", got)
	}
	select {
	case got := <-a:
		t.Errorf("a answered before its release: %+v", got)
	default:
	}
	if f.Release("b") {
		t.Error("b released twice")
	}
	if n := f.ReleaseAll(); n != 2 {
		t.Errorf("released %d, want 2", n)
	}
	if (<-a).status != 200 || (<-c).status != 200 {
		t.Error("a or c was not answered")
	}
	for _, r := range f.Log() {
		if !r.Held || r.Ending != evidence.Finished || r.Tokens != 8 || r.Arrival > r.Released || r.Released > r.FirstToken || r.FirstToken > r.End {
			t.Errorf("record %+v", r)
		}
	}
	if f.record("b").Released > f.record("a").Released || f.InFlight() != 0 {
		t.Error("order of release is not in the log")
	}
}

func TestPassHoldAndHoldOff(t *testing.T) {
	f := start(t, holding)
	if got := f.post("pass", "/v1/completions", plainBody, wire.HeaderPassHold, "1"); got.status != 200 || f.record("pass").Held {
		t.Errorf("got %+v", got)
	}
	held := f.later(t.Context(), "held", "/v1/completions", plainBody)
	f.awaitHeld("held")
	f.SetHold(false)
	if got := f.post("free", "/v1/completions", plainBody); got.status != 200 || f.record("free").Held {
		t.Errorf("got %+v", got)
	}
	f.awaitHeld("held") // turning holding off releases nobody
	f.ReleaseAll()
	<-held
}

func TestOneIDTwiceIsTwoRecords(t *testing.T) {
	f := start(t, holding)
	a := f.later(t.Context(), "a", "/v1/completions", plainBody)
	f.awaitHeld("a")
	b := f.later(t.Context(), "a", "/v1/completions", plainBody)
	f.awaitHeld("a", "a")
	f.Release("a")
	<-a
	f.awaitHeld("a")
	f.Release("a")
	<-b
	if log := f.Log(); len(log) != 2 || log[0].Released > log[1].Released {
		t.Errorf("log %+v", log)
	}
}

func TestDisconnectWhileHeld(t *testing.T) {
	f := start(t, holding)
	for _, row := range []struct{ id, body, after string }{
		{"plain", plainBody, ""}, {"stream", streamBody, ""}, {"mid-stream", streamBody, "3"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := f.later(ctx, row.id, "/v1/completions", row.body, wire.HeaderHoldAfter, row.after)
		f.awaitHeld(row.id)
		if row.after != "" {
			f.await("tokens of "+row.id, func() bool { return f.record(row.id).Tokens == 3 })
		}
		cancel()
		<-done
		f.await("abort of "+row.id, func() bool { return f.record(row.id).Ending == evidence.Aborted })
		if len(f.Held()) != 0 || f.InFlight() != 0 || f.Release(row.id) {
			t.Errorf("%s is still held", row.id)
		}
		if r := f.record(row.id); r.Released != evidence.Never || r.End < r.Arrival {
			t.Errorf("record %+v", r)
		}
	}
	if page := f.get("/metrics").body; !strings.Contains(page, `finished_reason="abort"} 3.0`) {
		t.Error("the metrics page does not count 3 aborts")
	}
}

func TestHoldAfterSendsTokensFirst(t *testing.T) {
	f := start(t, holding)
	resp, err := f.open(t.Context(), "r", "/v1/chat/completions", `{"messages":[{"content":"x"}],"max_tokens":5,"stream":true}`, wire.HeaderHoldAfter, "2")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		return "EOF"
	}
	for i, part := range []string{`"role":"assistant"`, " the", " water"} {
		if got := next(); !strings.Contains(got, part) {
			t.Errorf("frame %d is %s, want %s", i, got, part)
		}
	}
	f.awaitHeld("r")
	r := f.record("r")
	if r.Ending != evidence.Running || r.FirstToken == evidence.Never || r.Tokens != 2 {
		t.Errorf("while held: %+v", r)
	}
	f.Release("r")
	for i, part := range []string{" runs", " over", `"finish_reason":"length"`, "[DONE]", "EOF"} {
		if got := next(); !strings.Contains(got, part) {
			t.Errorf("frame %d after the release is %s, want %s", i, got, part)
		}
	}
	if r := f.record("r"); r.Ending != evidence.Finished || r.Tokens != 5 || r.FirstToken > r.Released {
		t.Errorf("record %+v", r)
	}
}

// The engine is slow here, so that both clients leave while it works for them.
func TestDisconnectInTheEngine(t *testing.T) {
	f := start(t, func(c *Config) {
		engine, err := presets.Get("h100-llama3.1-8b")
		if err != nil {
			t.Fatal(err)
		}
		c.Engine = engine
	})
	ctx, cancel := context.WithCancel(t.Context())
	body := `{"prompt":"x","max_tokens":100000,"stream":%t}`
	plain := f.later(ctx, "plain", "/v1/completions", fmt.Sprintf(body, false))
	stream := f.later(ctx, "stream", "/v1/completions", fmt.Sprintf(body, true))
	f.await("first token", func() bool { return len(f.Log()) == 2 && f.record("stream").FirstToken != evidence.Never })
	cancel()
	<-plain
	<-stream
	f.await("both aborted", func() bool {
		return f.record("plain").Ending == evidence.Aborted && f.record("stream").Ending == evidence.Aborted
	})
	// The engine drops them at its next boundary and then serves others.
	if got := f.post("next", "/v1/completions", `{"prompt":"x","max_tokens":1}`); got.status != 200 {
		t.Errorf("got %+v", got)
	}
	if s := f.Stats(); s.FinishedAbort != 2 || s.Running != 0 || s.KVUsage != 0 {
		t.Errorf("engine %+v", s)
	}
	if f.record("stream").Tokens == 0 || f.InFlight() != 0 {
		t.Errorf("log %+v", f.Log())
	}
}

func TestCloseBreaksOffWhatIsInside(t *testing.T) {
	f := start(t, holding)
	quiet := f.later(t.Context(), "quiet", "/v1/completions", plainBody)
	f.awaitHeld("quiet")
	begun := f.later(t.Context(), "begun", "/v1/completions", streamBody, wire.HeaderHoldAfter, "1")
	f.await("token", func() bool { return len(f.Log()) == 2 && f.record("begun").Tokens == 1 })
	f.Server.Close()
	if got := <-quiet; got.status != 503 {
		t.Errorf("quiet got %+v", got)
	}
	if got := <-begun; got.status != 0 {
		t.Errorf("begun got %+v, want a reset", got)
	}
	for _, r := range f.Log() {
		if r.Ending != evidence.Failed {
			t.Errorf("record %+v", r)
		}
	}
}
