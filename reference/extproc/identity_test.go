package extproc

import (
	"slices"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/wire"
)

// TestAgentIdentity is FC-CLS-14: explicit header, then agent identity, then the default.
func TestAgentIdentity(t *testing.T) {
	on := NewClassifier(ClassifierOptions{SessionHeaders: []string{"X-Mine", "x-claude-code-session-id", "x-session-affinity", "session-id", "session_id"}})
	rows := []struct {
		why  string
		h    Headers
		want string
	}{
		{"an explicit id wins", Headers{wire.HeaderFairnessID: "e", "session-id": "s"}, "e"},
		{"its alias as well", Headers{wire.HeaderFairnessIDAlias: "e", "session-id": "s"}, "e"},
		{"an empty one gives way to the session", Headers{wire.HeaderFairnessID: "", wire.HeaderFairnessIDAlias: "a", "session-id": "s"}, "s"},
		{"a client that calls itself default-flow is believed", Headers{wire.HeaderFairnessID: wire.DefaultFlow, "session-id": "s"}, wire.DefaultFlow},
		{"additional headers first", Headers{"x-mine": "m", "x-claude-code-session-id": "c"}, "m"},
		{"then in this order", Headers{"session_id": "4", "session-id": "3", "x-session-affinity": "2", "x-claude-code-session-id": "1"}, "1"},
		{"down to the last", Headers{"session_id": "4"}, "4"},
		{"blanks are no session", Headers{"session-id": " ", "session_id": "4"}, "4"},
		{"nothing", Headers{}, wire.DefaultFlow},
	}
	for _, r := range rows {
		if got := on(r.h).FairnessID; got != r.want {
			t.Errorf("%s: %s", r.why, got)
		}
	}
	if got := NewClassifier(ClassifierOptions{})(Headers{"session-id": "s"}).FairnessID; got != wire.DefaultFlow {
		t.Error("switched off:", got)
	}
}

func TestControlHeaders(t *testing.T) {
	m := headerMap("X-LLM-D-Inference-Objective", "o", wire.HeaderFairnessIDAlias, "f", wire.HeaderFairnessIDAlias, "g", wire.HeaderDestination, "d",
		wire.HeaderRequestID, "r", "content-length", "3", "authorization", "x", wire.HeaderTTFT, "1")
	if got := controlHeaders(m); !slices.Equal(got, []string{wire.HeaderObjective, wire.HeaderFairnessIDAlias, wire.HeaderTTFT}) {
		t.Error(got)
	}
	a := newStub()
	p := start(t, a, Config{KeepControlHeaders: true})
	p.send(reqHeaders(true, wire.HeaderObjective, "o"))
	if r := p.recv().GetRequestHeaders().GetResponse().GetHeaderMutation().GetRemoveHeaders(); len(r) != 0 {
		t.Error("as the known router does:", r)
	}
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

func TestMaxOutput(t *testing.T) {
	rows := []struct {
		body string
		want int64
	}{
		{`{"model":"m","prompt":"x","max_tokens":5}`, 5},
		{`{"model":"m","prompt":"x","max_tokens":5,"max_completion_tokens":7}`, 7},
		{`{"model":"m","prompt":"x","max_completion_tokens":null,"max_tokens":5}`, 5},
		{`{"model":"m","prompt":"x","max_output_tokens":9}`, 9},
		{`{"model":"m","prompt":"x","max_tokens":-5}`, 0},
		{`{"model":"m","prompt":"x","max_tokens":"5"}`, 0},
		{`{"model":"m","prompt":"x","max_tokens":99999999999999999999}`, 0},
		{`{"model":"m","prompt":"x"}`, 0},
	}
	for _, r := range rows {
		if b, refusal := ParseBody("/v1/completions", []byte(r.body)); refusal != nil || b.MaxOutput != r.want {
			t.Errorf("%s: %d %v", r.body, b.MaxOutput, refusal)
		}
	}
}

func TestPrefix(t *testing.T) {
	c := PrefixConfig{BlockBytes: 4, MaxBlocks: 3}
	of := func(path, body, model string) []uint64 {
		t.Helper()
		b, refusal := ParseBody(path, []byte(body))
		if refusal != nil {
			t.Fatal(refusal)
		}
		return b.Prefix(model, c)
	}
	text := func(prompt, more string) []uint64 {
		return of("/v1/completions", `{"model":"m","prompt":"`+prompt+`"`+more+`}`, "m")
	}
	base := text("aaaabbbbcc", "")
	shared := func(x []uint64) int {
		n := 0
		for n < min(len(x), len(base)) && x[n] == base[n] {
			n++
		}
		return n
	}
	rows := []struct {
		why    string
		chain  []uint64
		blocks int
		shared int
	}{
		{"whole blocks only", base, 2, 2},
		{"a longer prompt goes on", text("aaaabbbbccccdddd", ""), 3, 2},
		{"the chain ends at the limit", text(strings.Repeat("a", 400), ""), 3, 1},
		{"an early difference changes all that follows", text("xaaabbbb", ""), 2, 0},
		{"a late one leaves the begin", text("aaaabbbx", ""), 2, 1},
		{"another salt shares nothing", text("aaaabbbb", `,"cache_salt":"s"`), 2, 0},
		{"another model shares nothing", of("/v1/completions", `{"model":"m","prompt":"aaaabbbb"}`, "n"), 2, 0},
		{"a list of prompts is one text", of("/v1/completions", `{"model":"m","prompt":["aa","aabb","bb"]}`, "m"), 2, 2},
		{"a short prompt has no block", text("aaa", ""), 0, 0},
		{"a chat counts role and content", of("/v1/chat/completions", `{"model":"m","messages":[{"role":"aaaa","content":[{"type":"text","text":"bbbb"}]}]}`, "m"), 2, 2},
		{"a token id is four bytes", of("/v1/completions", `{"model":"m","prompt":[1633771873,1650614882,7]}`, "m"), 3, 2},
		{"nested lists of ids too", of("/v1/completions", `{"model":"m","prompt":[[1633771873],[1650614882]]}`, "m"), 2, 2},
		{"a tokenized request", of("/inference/v1/generate", `{"model":"m","token_ids":[1633771873,1650614882]}`, "m"), 2, 2},
	}
	for _, r := range rows {
		if len(r.chain) != r.blocks || shared(r.chain) != r.shared {
			t.Errorf("%s: %d blocks, %d shared", r.why, len(r.chain), shared(r.chain))
		}
	}
	if base[1] != 0xcd052486f5e42610 {
		t.Errorf("the chain is the same in every process, got %#x", base[1])
	}
	b, _ := ParseBody("/v1/completions", []byte(`{"model":"m","prompt":"`+strings.Repeat("x", 200)+`"}`))
	if b.Prefix("m", PrefixConfig{}) != nil || len(b.Prefix("m", DefaultPrefix)) != 3 {
		t.Error("no blocks wanted, none made; 64 bytes a block by default")
	}
}
