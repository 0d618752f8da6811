package extproc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/wire"
)

func TestRewriter(t *testing.T) {
	w, err := NewRewriter([]Rewrite{
		{Name: "all", Targets: []Target{{Model: "base"}}},
		{Name: "late", Targets: []Target{{Model: "never"}}},
		{Name: "split", Match: "chat", Targets: []Target{{"v1", 3}, {"v2", 1}, {"v3", 0}}},
		{Name: "even", Match: "even", Targets: []Target{{"x", 0}, {"y", 0}}},
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	rows := []struct{ why, model, header, target, rule string }{
		{"the generic rule takes what no exact one does", "foo", "", "base", "all"},
		{"it comes before the header", "foo", "h", "base", "all"},
		{"and serves a request without a model", "", "", "base", "all"},
	}
	for _, r := range rows {
		if target, rule := w.Target(r.model, r.header); target != r.target || rule != r.rule {
			t.Errorf("%s: %s by %s", r.why, target, rule)
		}
	}
	count := map[string]int{}
	for range 4000 {
		target, _ := w.Target("chat", "")
		count[target]++
		target, _ = w.Target("even", "")
		count[target]++
	}
	if count["v3"] != 0 || count["v1"] < 2800 || count["v1"] > 3200 || count["x"] < 1800 || count["x"] > 2200 {
		t.Error(count)
	}
	var none *Rewriter
	if target, rule := none.Target("m", "h"); target != "h" || rule != "header" {
		t.Error(target, rule)
	}
	if target, rule := none.Target("m", ""); target != "m" || rule != "" {
		t.Error(target, rule)
	}
	if models := w.Models(); !slices.Contains(models, "chat") || !slices.Contains(models, "v2") || !slices.Contains(models, "base") {
		t.Error(models)
	}
	if w.Set([]Rewrite{{Targets: nil}}) == nil {
		t.Error("a rule without targets is refused")
	}
	if target, _ := w.Target("foo", ""); target != "base" {
		t.Error("wrong rules leave those that are there:", target)
	}
	if err := w.Set(nil); err != nil {
		t.Error(err)
	}
	if target, _ := w.Target("foo", ""); target != "foo" {
		t.Error("the rules are gone:", target)
	}
	if _, err := NewRewriter([]Rewrite{{}, {Targets: []Target{{Model: ""}}}}, 0); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("all errors at once: %v", err)
	}
}

func TestSeededDraws(t *testing.T) {
	draws := func(seed uint64) string {
		w, _ := NewRewriter([]Rewrite{{Targets: []Target{{"a", 1}, {"b", 1}}}}, seed)
		var b strings.Builder
		for range 64 {
			target, _ := w.Target("m", "")
			b.WriteString(target)
		}
		return b.String()
	}
	if draws(1) != draws(1) || draws(1) == draws(2) {
		t.Error("the draws follow from the seed")
	}
}

func TestWithModel(t *testing.T) {
	rows := []struct{ why, in, out string }{
		{"only the value changes", ` { "a" : {"model":"m"}, "model" : "m" , "prompt":"\"model\":\"m\"" } `, ` { "a" : {"model":"m"}, "model" : "T" , "prompt":"\"model\":\"m\"" } `},
		{"numbers and escapes keep their spelling", `{"prompt":"\u00e9<&>","n":1.0e2,"model":"m"}`, `{"prompt":"\u00e9<&>","n":1.0e2,"model":"T"}`},
		{"every one of repeated members", `{"model":"m","prompt":"x","model":"n"}`, `{"model":"T","prompt":"x","model":"T"}`},
		{"an escaped key", `{"\u006dodel":"m","prompt":"x"}`, `{"\u006dodel":"T","prompt":"x"}`},
		{"a value of another type", `{"prompt":"x","model":{"a":[1]}}`, `{"prompt":"x","model":"T"}`},
		{"none there", ` {"prompt":"x"}`, ` {"model":"T","prompt":"x"}`},
	}
	for _, r := range rows {
		b, refusal := parse("/v1/completions", []byte(r.in))
		if refusal != nil {
			t.Fatal(r.why, refusal)
		}
		if out := string(withModel([]byte(r.in), b.models, "T")); out != r.out {
			t.Errorf("%s: %s", r.why, out)
		}
	}
}

// TestRewriteOnTheWire follows one rewritten request through its stream.
func TestRewriteOnTheWire(t *testing.T) {
	w, _ := NewRewriter([]Rewrite{{Name: "r", Match: "m", Targets: []Target{{Model: "internal"}}}}, 0)
	var rules []string
	a := newStub()
	p := start(t, a, Config{Rewriter: w, OnRewrite: func(rule, model, target string) { rules = append(rules, rule+":"+model+":"+target) }})
	p.send(reqHeaders(false, ":path", "/v1/completions", "accept-encoding", "gzip", wire.HeaderModelRewrite, "ignored"))
	p.send(reqBody(completion, true))
	h := p.recv().GetRequestHeaders().GetResponse().GetHeaderMutation()
	want := strings.Replace(completion, `"m"`, `"internal"`, 1)
	for _, o := range h.GetSetHeaders() {
		if o.GetHeader().GetKey() == "Content-Length" && string(o.GetHeader().GetRawValue()) != fmt.Sprint(len(want)) {
			t.Errorf("length %s of %d", o.GetHeader().GetRawValue(), len(want))
		}
		if o.GetHeader().GetKey() == "accept-encoding" {
			t.Error("a compressed answer could not be mapped back")
		}
	}
	if !slices.Equal(h.GetRemoveHeaders(), []string{wire.HeaderModelRewrite, "accept-encoding"}) {
		t.Error(h.GetRemoveHeaders())
	}
	if b := p.recv().GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse(); string(b.GetBody()) != want {
		t.Errorf("%s", b.GetBody())
	}
	p.send(respHeaders(false, ":status", "200", "content-type", jsonType, "content-length", "20"))
	if r := p.recv().GetResponseHeaders().GetResponse().GetHeaderMutation().GetRemoveHeaders(); !slices.Equal(r, []string{"content-length"}) {
		t.Error(r)
	}
	var got strings.Builder
	for _, c := range []string{`{"model":"inter`, `nal","usage":{"completion_to`, `kens":3}}`} {
		p.send(respBody(c, false))
		got.Write(p.recv().GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody())
	}
	p.send(respTrailers) // trailers end the body
	if p.recv().GetResponseTrailers() == nil {
		t.Error("trailers are answered")
	}
	if got.String() != `{"model":"m","usage":{"completion_tokens":3}}` {
		t.Error(got.String())
	}
	if err := p.end(); err != nil {
		t.Error(err)
	}
	a.check(t, 1)
	if a.seen[0].Model != "internal" || a.incoming[0] != "m" || a.usage.Completion != 3 || len(rules) != 1 || rules[0] != "r:m:internal" || a.seen[0].Bytes != int64(len(completion)) {
		t.Errorf("%+v %v %v %v", a.seen, a.incoming, a.usage, rules)
	}
}
