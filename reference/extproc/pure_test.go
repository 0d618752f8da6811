package extproc

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/llm-weir/weir/harness/wire"
)

func headerMap(pairs ...string) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return m
}

func TestReadHeaders(t *testing.T) {
	m := headerMap("X-A", "1", "x-a", "2", "X-Request-Id", "first", "x-request-id", "second")
	m.Headers = append(m.Headers, &corev3.HeaderValue{Key: "v", Value: "plain"}, &corev3.HeaderValue{Key: "w", Value: "plain", RawValue: []byte("raw")})
	h := ReadHeaders(m)
	want := Headers{"x-a": "2", "x-request-id": "first", "v": "plain", "w": "raw"}
	for k, v := range want {
		if h[k] != v {
			t.Errorf("%s = %q, want %q", k, h[k], v)
		}
	}
	if len(h) != len(want) {
		t.Error(h)
	}
}

func TestClassify(t *testing.T) {
	rows := []struct {
		why  string
		h    Headers
		want Identity
	}{
		{"nothing said: the default flow", Headers{}, Identity{FairnessID: wire.DefaultFlow}},
		{"the alias counts without a canonical header", Headers{wire.HeaderFairnessIDAlias: "a", wire.HeaderObjectiveAlias: "o"}, Identity{FairnessID: "a", Objective: "o"}},
		{"the canonical header wins", Headers{wire.HeaderFairnessID: "c", wire.HeaderFairnessIDAlias: "a", wire.HeaderObjective: "p", wire.HeaderObjectiveAlias: "o"}, Identity{FairnessID: "c", Objective: "p"}},
		{"it wins by presence, empty as well", Headers{wire.HeaderFairnessID: "", wire.HeaderFairnessIDAlias: "a", wire.HeaderObjective: "", wire.HeaderObjectiveAlias: "o"}, Identity{FairnessID: wire.DefaultFlow}},
		{"a target in milliseconds, trimmed", Headers{wire.HeaderTTFT: " 250 "}, Identity{FairnessID: wire.DefaultFlow, TTFT: 250 * time.Millisecond, HasTTFT: true}},
		{"zero is a target", Headers{wire.HeaderTTFT: "0"}, Identity{FairnessID: wire.DefaultFlow, HasTTFT: true}},
		{"an empty canonical target suppresses the alias", Headers{wire.HeaderTTFT: "", wire.HeaderTTFTAlias: "5"}, Identity{FairnessID: wire.DefaultFlow}},
		{"a negative target is none", Headers{wire.HeaderTTFT: "-1"}, Identity{FairnessID: wire.DefaultFlow}},
		{"junk is none", Headers{wire.HeaderTTFT: "1e3"}, Identity{FairnessID: wire.DefaultFlow}},
		{"a fraction is none", Headers{wire.HeaderTTFT: "1.5"}, Identity{FairnessID: wire.DefaultFlow}},
		{"int64 milliseconds that no duration holds are none", Headers{wire.HeaderTTFT: "9223372036854775807"}, Identity{FairnessID: wire.DefaultFlow}},
		{"beyond int64 is none", Headers{wire.HeaderTTFT: "92233720368547758070"}, Identity{FairnessID: wire.DefaultFlow}},
		{"plausible but wrong names are ignored", Headers{"x-gateway-fairness-id": "a", "x-gateway-priority": "9"}, Identity{FairnessID: wire.DefaultFlow}},
		{"a rewrite is carried, by the same rules", Headers{wire.HeaderModelRewrite: "b", wire.HeaderModelRewriteAlias: "c"}, Identity{FairnessID: wire.DefaultFlow, Rewrite: "b"}},
		{"ids are carried", Headers{wire.HeaderRequestID: "r", wire.HeaderID: "l"}, Identity{FairnessID: wire.DefaultFlow, RequestID: "r", Label: "l"}},
	}
	for _, r := range rows {
		if got := Classify(r.h); got != r.want {
			t.Errorf("%s: %+v, want %+v", r.why, got, r.want)
		}
	}
}

func TestPath(t *testing.T) {
	rows := []struct {
		h    Headers
		want string
	}{
		{Headers{":path": "/v1/completions?x=1", "x-original-path": "/o"}, "/v1/completions"},
		{Headers{"x-original-path": "/o", "x-forwarded-path": "/f"}, "/o"},
		{Headers{"x-forwarded-path": "/f"}, "/f"},
		{Headers{}, "/v1/completions"},
	}
	for _, r := range rows {
		if got := r.h.Path(); got != r.want {
			t.Errorf("%v: %s", r.h, got)
		}
	}
}

func TestParseBody(t *testing.T) {
	rows := []struct{ why, path, body, refusal string }{
		{"a chat", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, ""},
		{"a completion", "/v1/completions", `{"model":"m","prompt":"hi"}`, ""},
		{"the suffix has no boundary", "/xcompletions", `{"model":"m","prompt":"hi"}`, ""},
		{"chat wins over completions", "/chat/completions", `{"model":"m","prompt":"hi"}`, "invalid chat completions request: must have valid messages field"},
		{"empty body", "/v1/completions", ``, "error unmarshaling request bodyMap: unexpected end of JSON input"},
		{"no JSON", "/v1/completions", `{`, "error unmarshaling request bodyMap: "},
		{"no object", "/v1/completions", `[]`, "error unmarshaling request bodyMap: "},
		{"no prompt", "/v1/completions", `{"model":"m"}`, "invalid completions request: must have prompt field"},
		{"null prompt", "/v1/completions", `{"model":"m","prompt":null}`, "invalid completions request: must have prompt field"},
		{"no messages", "/v1/chat/completions", `{"model":"m","messages":[]}`, "must have valid messages field"},
		{"messages are objects", "/v1/chat/completions", `{"model":"m","messages":"hi"}`, "must have valid messages field"},
		{"no input", "/v1/embeddings", `{"model":"m"}`, "invalid embeddings request: must have input field"},
		{"no items", "/v1/conversations", `{"model":"m"}`, "invalid conversations request: must have items field"},
		{"a lone null", "/v1/completions", `null`, "must have prompt field"},
		{"bytes behind the document", "/v1/completions", `{"model":"m","prompt":"x"} x`, "error unmarshaling request bodyMap: "},
		{"embeddings", "/v1/embeddings", `{"model":"m","input":["a"]}`, ""},
		{"responses", "/v1/responses", `{"model":"m","input":"a"}`, ""},
		{"conversations", "/v1/conversations", `{"model":"m","items":[]}`, ""},
		{"anthropic messages", "/v1/messages", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, ""},
		{"an escaped key is that key", "/v1/completions", `{"mod\u0065l":"m","prompt":"x"}`, ""},
		{"of repeated members the last counts", "/v1/completions", `{"model":"x","prompt":"x","model":"m"}`, ""},
		{"no model", "/v1/completions", `{"prompt":"x"}`, "model not found in request body"},
		{"model of another type", "/v1/completions", `{"prompt":"x","model":3}`, "model not found in request body"},
		{"unknown paths are opaque", "/v1/whatever", `{`, ""},
		{"and may be empty", "/", ``, ""},
	}
	for _, r := range rows {
		b, refusal := ParseBody(r.path, []byte(r.body))
		switch {
		case r.refusal == "" && refusal != nil:
			t.Errorf("%s: refused: %s", r.why, refusal.Body)
		case r.refusal != "" && (refusal == nil || refusal.Status != 400 || refusal.Reason != "" || !strings.Contains(refusal.Body, r.refusal) || !strings.HasPrefix(refusal.Body, "inference error: BadRequest - ")):
			t.Errorf("%s: %+v", r.why, refusal)
		case refusal == nil && b.Known && b.Model != "m":
			t.Errorf("%s: %+v", r.why, b)
		}
	}
}

func TestPromptTokens(t *testing.T) {
	rows := []struct {
		path, body string
		tokens     int64
		stream     bool
	}{
		{"/v1/completions", `{"model":"m","prompt":"12345","stream":true}`, 2, true},
		{"/v1/completions", `{"model":"m","prompt":["1234","5678"]}`, 2, false},
		{"/v1/completions", `{"model":"m","prompt":[1,2,3]}`, 3, false},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"1234"},{"role":"user","content":[{"type":"text","text":"12345678"}]}]}`, 5, false},
		{"/v1/completions", `{"model":"m","prompt":"","stream":"yes"}`, 0, false},
	}
	for _, r := range rows {
		b, refusal := ParseBody(r.path, []byte(r.body))
		if refusal != nil || b.PromptTokens != r.tokens || b.Stream != r.stream {
			t.Errorf("%s: %+v %v", r.body, b, refusal)
		}
	}
}

func TestRequestHeadersResponse(t *testing.T) {
	m := RequestHeadersResponse(Destination([]string{"1.2.3.4:80", "[::1]:81"}), 7, headerMap(":method", "POST", "a", "1", wire.HeaderObjective, "o",
		"content-length", "99", "A", "2", wire.HeaderDestination, "evil", "b", "3"), []string{wire.HeaderObjective})
	c := m.GetRequestHeaders().GetResponse()
	var got []string
	for _, o := range c.GetHeaderMutation().GetSetHeaders() {
		if o.GetHeader().GetValue() != "" || o.GetAppend() != nil || o.GetAppendAction() != 0 {
			t.Errorf("values go into raw_value with no append action: %v", o)
		}
		got = append(got, o.GetHeader().GetKey()+"="+string(o.GetHeader().GetRawValue()))
	}
	want := "x-gateway-destination-endpoint=1.2.3.4:80,[::1]:81 Content-Length=7 a=2 b=3"
	if strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
	if r := c.GetHeaderMutation().GetRemoveHeaders(); !c.GetClearRouteCache() || c.GetStatus() != extprocv3.CommonResponse_CONTINUE || len(r) != 1 || r[0] != wire.HeaderObjective {
		t.Error(c)
	}
	if d := m.GetDynamicMetadata().GetFields()[wire.MetadataLB].GetStructValue().GetFields()[wire.HeaderDestination].GetStringValue(); d != "1.2.3.4:80,[::1]:81" {
		t.Errorf("metadata names %q", d)
	}
	if n := len(RequestHeadersResponse("x", 0, nil, nil).GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()); n != 1 {
		t.Errorf("without a body and an echo there is the destination only, got %d headers", n)
	}
}

func TestChunks(t *testing.T) {
	for _, size := range []int{0, 1, wire.BodyByteLimit, wire.BodyByteLimit + 1, 3*wire.BodyByteLimit + 5, 1 << 20} {
		body := bytes.Repeat([]byte("abcdefg"), size/7+1)[:size]
		ms := RequestBodyResponses(body, true)
		var got []byte
		for i, m := range ms {
			s := m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
			if len(s.GetBody()) > wire.BodyByteLimit || s.GetEndOfStream() != (i == len(ms)-1) {
				t.Errorf("size %d: chunk %d of %d bytes, end %v", size, i, len(s.GetBody()), s.GetEndOfStream())
			}
			got = append(got, s.GetBody()...)
		}
		if !bytes.Equal(got, body) || len(ms) == 0 {
			t.Errorf("size %d: the body changed", size)
		}
	}
	if ms := ResponseBodyResponses(nil, false); len(ms) != 1 {
		t.Error("an empty chunk is answered too")
	}
}

func TestResponseHeadersResponse(t *testing.T) {
	m := ResponseHeadersResponse(headerMap(":status", "200", "content-type", "text/plain", "set-cookie", "a", "set-cookie", "b", wire.HeaderDroppedReason, "x"), false)
	var got []string
	for _, o := range m.GetResponseHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		got = append(got, o.GetHeader().GetKey()+"="+string(o.GetHeader().GetRawValue()))
	}
	if strings.Join(got, " ") != "x-went-into-resp-headers=true content-type=text/plain" {
		t.Error(got)
	}
}

func TestImmediate(t *testing.T) {
	im := Immediate(wire.Refuse(wire.RejectedCapacity, 429)).GetImmediateResponse()
	set := im.GetHeaders().GetSetHeaders()
	if im.GetStatus().GetCode() != 429 || len(set) != 1 || string(set[0].GetHeader().GetRawValue()) != wire.ReasonSaturated || im.GetDetails() != "" || im.GetGrpcStatus() != nil {
		t.Error(im)
	}
	if Immediate(wire.Refusal{Status: 400, Body: "x"}).GetImmediateResponse().GetHeaders() != nil {
		t.Error("no reason, no header")
	}
}

func TestSubset(t *testing.T) {
	meta := func(v *structpb.Value) *corev3.Metadata {
		return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{wire.MetadataSubset: {Fields: map[string]*structpb.Value{wire.KeySubset: v}}}}
	}
	list := structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue("1.2.3.4:5"), structpb.NewNumberValue(3)}})
	if got, ok := Subset(meta(list)); !ok || len(got) != 1 || got[0] != "1.2.3.4:5" {
		t.Error(got, ok)
	}
	if got, ok := Subset(meta(structpb.NewListValue(&structpb.ListValue{}))); !ok || len(got) != 0 {
		t.Error("an empty list is a hint:", got, ok)
	}
	for _, m := range []*corev3.Metadata{nil, {}, meta(structpb.NewStringValue("x"))} {
		if _, ok := Subset(m); ok {
			t.Error("no list, no hint")
		}
	}
}

// decoded is what measure finds, by way of a decoder that builds the whole document.
func decoded(t *testing.T, body []byte, field string) (tokens int64, prompt string) {
	var doc map[string]any
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Skip("a number that no float holds") // the body is valid
	}
	var text, ids int64
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			text += int64(len(v))
			prompt += v
		case float64:
			ids++
			prompt += string(packed([]uint32{uint32(int64(v))}))
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			for _, key := range []string{"role", "content", "text"} {
				walk(v[key])
			}
		}
	}
	walk(doc[field])
	return (text+3)/4 + ids, prompt
}

func FuzzParseBody(f *testing.F) {
	f.Add("/v1/chat/completions", []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
	f.Add("/v1/completions", []byte(`{"model":"m","prompt":[[1],[2]]}`))
	f.Add("/v1/completions", []byte(`{"model":"m","prompt": [ 1 , 4294967295 ]}`))
	f.Add("/v1/completions", []byte(`{"model":"m","prompt":[1,-2,3.5e1,"a",null,true,{"text":"b","content":["c"],"text":"d"}]}`))
	f.Add("/v1/messages", []byte("{\"model\":\"m\",\"messages\":[ {\"content\":[{\"type\":\"text\",\"text\":\"\\u00e9\\n\"}],\"role\":\"\xff\"} , {} ]}"))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		b, refusal := ParseBody(path, body)
		if refusal != nil && refusal.Status != 400 {
			t.Error(refusal)
		}
		if b.PromptTokens < 0 || b.MaxOutput < 0 || (refusal == nil && b.Known && b.Model == "") {
			t.Errorf("%+v", b)
		}
		if n := len(b.Prefix("m", PrefixConfig{BlockBytes: 4, MaxBlocks: 3})); n > 3 {
			t.Errorf("%d blocks", n)
		}
		if !b.Known {
			return
		}
		if c, _ := claimOf(path); refusal == nil {
			tokens, prompt := decoded(t, body, c.field)
			if tokens != b.PromptTokens || prompt != string(bytes.Join(b.prompt, nil)) {
				t.Errorf("%s: %d tokens of %q, want %d of %q", body, b.PromptTokens, b.prompt, tokens, prompt)
			}
		}
		// A replaced model is the only difference that a parser sees.
		out := withModel(body, b.models, "other")
		var was, is map[string]json.RawMessage
		if json.Unmarshal(body, &was) != nil || json.Unmarshal(out, &is) != nil || text(is["model"]) != "other" || len(was) != len(is) {
			t.Fatalf("%s became %s", body, out)
		}
		for k, v := range was {
			if k != "model" && !bytes.Equal(v, is[k]) {
				t.Errorf("%q: %s became %s", k, v, is[k])
			}
		}
	})
}
