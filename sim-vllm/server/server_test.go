package server

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
)

func TestCompletionAsJSON(t *testing.T) {
	f := start(t, nil)
	got := f.post("r1", "/v1/completions", `{"model":"m","prompt":"12345678","max_tokens":3}`, wire.HeaderScenario, "sc",
		wire.HeaderFairnessID, "t1", wire.HeaderObjective, "o1")
	c := decode[chunk](t, got.body)
	if got.status != 200 || got.header.Get(wire.HeaderServedBy) != "ep-1" || c.Object != "text_completion" || c.Model != "m" ||
		c.Choices[0].Text != " the water runs" || *c.Choices[0].FinishReason != "length" || c.Usage.Prompt != 2 || c.Usage.Completion != 3 {
		t.Errorf("got %+v", got)
	}
	r := f.record("r1")
	if r.Ending != evidence.Finished || r.Scenario != "sc" || r.Endpoint != "ep-1" || r.Tokens != 3 || r.PromptTokens != 2 || r.Held ||
		r.Stream || r.Released != evidence.Never || r.Bytes != 48 || f.InFlight() != 0 {
		t.Errorf("record %+v", r)
	}
	if r.Arrival > r.FirstToken || r.FirstToken > r.End || r.Arrival < 0 {
		t.Errorf("instants out of order: %+v", r)
	}
	if want := []string{wire.HeaderFairnessID, wire.HeaderObjective}; !reflect.DeepEqual(r.ControlHeaders, want) {
		t.Errorf("control headers %v, want %v", r.ControlHeaders, want)
	}
}

func TestChatAsJSONStopsAtTheTrueLength(t *testing.T) {
	f := start(t, nil)
	got := f.post("r1", "/v1/chat/completions",
		`{"messages":[{"role":"system","content":"1234"},{"role":"user","content":[{"type":"text","text":"56789"}]}],"max_tokens":50}`,
		wire.HeaderOutputTokens, "2")
	c := decode[chunk](t, got.body)
	if c.Object != "chat.completion" || c.Model != defaultModel || c.Choices[0].Message.Role != "assistant" ||
		c.Choices[0].Message.Content != " the water" || *c.Choices[0].FinishReason != "stop" || c.Usage.Prompt != 3 || c.Usage.Total != 5 {
		t.Errorf("got %+v", got)
	}
}

func TestStreams(t *testing.T) {
	f := start(t, nil)
	for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
		got := f.post("r"+path, path, `{"prompt":[1,2,3],"messages":[{"content":"abc"}],"max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}`)
		all := frames(t, got.body)
		if !strings.HasPrefix(got.header.Get("Content-Type"), "text/event-stream") || all[len(all)-1] != "[DONE]" {
			t.Fatalf("%s: %+v", path, got)
		}
		all = all[:len(all)-1]
		text, finished := "", 0
		if path == "/v1/chat/completions" {
			first := decode[chunk](t, all[0]).Choices[0].Delta
			if first.Role != "assistant" || first.Content == nil || *first.Content != "" {
				t.Errorf("first chat chunk is %s", all[0])
			}
			all = all[1:]
		}
		if len(all) != 6 {
			t.Fatalf("%s: %d frames, want 5 tokens and the usage: %q", path, len(all), all)
		}
		for _, data := range all[:5] {
			c := decode[chunk](t, data)
			text += c.Choices[0].Text
			if d := c.Choices[0].Delta.Content; d != nil {
				text += *d
			}
			if c.Choices[0].FinishReason != nil {
				finished++
			}
		}
		last := decode[chunk](t, all[5])
		if text != " the water runs over a" || finished != 1 || len(last.Choices) != 0 || last.Usage.Completion != 5 || last.Usage.Total < 6 {
			t.Errorf("%s: text %q, %d finish reasons, usage %+v", path, text, finished, last)
		}
		if r := f.record("r" + path); !r.Stream || r.Tokens != 5 || r.Ending != evidence.Finished {
			t.Errorf("record %+v", r)
		}
	}
}

func TestInfoPaths(t *testing.T) {
	f := start(t, func(c *Config) { c.Model = "llama" })
	for path, part := range map[string]string{"/health": "", "/ping": "", "/version": `"version"`, "/v1/models": `"id":"llama"`,
		"/admin/state": `"inFlight":0`} {
		if got := f.get(path); got.status != 200 || !strings.Contains(got.body, part) || got.header.Get(wire.HeaderServedBy) != "ep-1" {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

func TestRefusalsInVLLMsWords(t *testing.T) {
	f := start(t, func(c *Config) { c.Model, c.MaxModelLen, c.Hold = "llama", 100, true })
	long := strings.Repeat("x", 401)
	for _, row := range []struct {
		why, path, body string
		header          []string
		status          int
		kind, part      string
	}{
		{"no JSON", "/v1/completions", `{`, nil, 400, "BadRequestError", "Invalid JSON"},
		{"no prompt", "/v1/completions", `{}`, nil, 400, "BadRequestError", "prompt"},
		{"null prompt", "/v1/completions", `{"prompt":null}`, nil, 400, "BadRequestError", "prompt"},
		{"two prompts", "/v1/completions", `{"prompt":["a","b"]}`, nil, 400, "BadRequestError", "2 prompts"},
		{"no messages", "/v1/chat/completions", `{"prompt":"x"}`, nil, 400, "BadRequestError", "messages"},
		{"prompt too long", "/v1/completions", `{"prompt":"` + long + `"}`, nil, 400, "BadRequestError", "maximum context length"},
		{"too long, streaming", "/v1/completions", `{"stream":true,"prompt":"` + long + `"}`, nil, 400, "BadRequestError", "maximum context length"},
		{"output too long", "/v1/completions", `{"prompt":"x","max_tokens":100}`, nil, 400, "BadRequestError", "maximum context length"},
		{"no output", "/v1/completions", `{"prompt":"x","max_tokens":0}`, nil, 400, "BadRequestError", "max_tokens"},
		{"wrong type", "/v1/completions", `{"prompt":"x","max_tokens":"many"}`, nil, 400, "BadRequestError", "max_tokens"},
		{"unknown model", "/v1/completions", `{"model":"gpt","prompt":"x"}`, nil, 404, "NotFoundError", "`gpt` does not exist"},
		{"bad instruction", "/v1/completions", `{"prompt":"x"}`, []string{wire.HeaderHoldAfter, "-1"}, 400, "BadRequestError", wire.HeaderHoldAfter},
	} {
		got := f.post(row.why, row.path, row.body, row.header...)
		e := decode[struct{ Error apiError }](t, got.body).Error
		if got.status != row.status || e.Code != row.status || e.Type != row.kind || !strings.Contains(e.Message, row.part) ||
			!strings.Contains(got.body, `"param":null`) {
			t.Errorf("%s: %+v", row.why, got)
		}
		if r := f.record(row.why); r.Ending != evidence.Failed || r.Held || r.End < r.Arrival {
			t.Errorf("%s: record %+v", row.why, r)
		}
	}
	if f.InFlight() != 0 {
		t.Errorf("%d in flight", f.InFlight())
	}
}

func TestHashes(t *testing.T) {
	f := start(t, nil)
	hashes := map[string]evidence.Backend{}
	for id, body := range map[string]string{
		"plain":  `{"a<":1.50,"prompt":"x"}`,
		"spaced": ` { "prompt" : "x", "a<" : 1.50 } `,
		"spelt":  `{"a<":15e-1,"prompt":"\u0078"}`,
		"text":   `{"a<":"1.50","prompt":"x"}`,
		"other":  `{"a<":1.51,"prompt":"x"}`,
		"none":   `{"prompt":"x"} trailing`,
	} {
		f.post(id, "/v1/completions", body)
		hashes[id] = f.record(id)
		if got := hashes[id]; got.BodySHA256 != hash([]byte(body)) || got.JSONSHA256 != wire.JSONHash([]byte(body)) {
			t.Errorf("%s: the hashes are not those of what was sent: %+v", id, got)
		}
	}
	plain := hashes["plain"]
	for _, id := range []string{"spaced", "spelt"} {
		if got := hashes[id]; got.JSONSHA256 != plain.JSONSHA256 || got.BodySHA256 == plain.BodySHA256 {
			t.Errorf("spacing, order and spelling must change the body hash only: %+v %+v", plain, got)
		}
	}
	for _, id := range []string{"text", "other"} {
		if hashes[id].JSONSHA256 == plain.JSONSHA256 {
			t.Errorf("%s is another value than plain", id)
		}
	}
	if plain.JSONSHA256 == "" || hashes["none"].JSONSHA256 != "" {
		t.Error("a value has a hash, and what is no JSON has none")
	}
}

func TestFail(t *testing.T) {
	f := start(t, func(c *Config) { c.Hold = true })
	if err := f.Fail(200); err == nil {
		t.Error("200 is no failure")
	}
	if err := f.Fail(503); err != nil {
		t.Fatal(err)
	}
	got := f.post("r1", "/v1/completions", `{"prompt":"x"}`)
	if got.status != 503 || !strings.Contains(got.body, `"type":"ServiceUnavailableError"`) || f.record("r1").Ending != evidence.Failed {
		t.Errorf("got %+v", got)
	}
	if f.get("/health").status != http.StatusOK {
		t.Error("health fails with inference")
	}
	if err := f.Fail(0); err != nil {
		t.Fatal(err)
	}
	if got := f.post("r2", "/v1/completions", `{"prompt":"x"}`, wire.HeaderPassHold, "1"); got.status != 200 {
		t.Errorf("got %+v", got)
	}
}

func TestNewReportsEveryFault(t *testing.T) {
	if _, err := New(Config{Name: "x"}); err == nil || !strings.Contains(err.Error(), `model server "x"`) ||
		!strings.Contains(err.Error(), "MaxNumSeqs") || !strings.Contains(err.Error(), "BlockSize") {
		t.Errorf("got %v", err)
	}
}
