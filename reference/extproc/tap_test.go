package extproc

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

const (
	jsonType   = "application/json"
	streamType = "text/event-stream; charset=utf-8"
)

// through passes a body in the given pieces and checks that what is held back stays short.
func through(t *testing.T, k kind, mediaType, incoming, target string, pieces ...string) (string, Usage) {
	t.Helper()
	p := newTap(k, incoming, target)
	p.headers(Headers{"content-type": mediaType}, 200)
	var out bytes.Buffer
	sent := 0
	for i, c := range pieces {
		out.Write(p.pass([]byte(c), i == len(pieces)-1))
		sent += len(c)
		if held := len(p.scan.held); held > 6*len(target)+2+len(c) {
			t.Errorf("%d bytes held back", held)
		}
	}
	return out.String(), p.scan.usage
}

// golden are responses as model servers send them. B is the internal name, A the one the client asked for.
var golden = []struct {
	why       string
	kind      kind
	mediaType string
	in, out   string // out "": nothing changes
	usage     Usage
}{
	{"a completion", openAI, jsonType,
		`{"id":"x","model":"B","choices":[{"text":"hi","model":"B"}],"usage":{"prompt_tokens":7,"completion_tokens":17,"total_tokens":24,"prompt_tokens_details":{"cached_tokens":4}}}`,
		`{"id":"x","model":"A","choices":[{"text":"hi","model":"B"}],"usage":{"prompt_tokens":7,"completion_tokens":17,"total_tokens":24,"prompt_tokens_details":{"cached_tokens":4}}}`,
		Usage{7, 17, 4, true}},
	{"an event stream", openAI, streamType,
		"data: {\"model\":\"B\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"model\": \"B\",\"usage\":null}\n\ndata: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":17},\"model\":\"B\"}\n\ndata: [DONE]\n\n",
		"data: {\"model\":\"A\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"model\": \"A\",\"usage\":null}\n\ndata: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":17},\"model\":\"A\"}\n\ndata: [DONE]\n\n",
		Usage{3, 17, 0, true}},
	{"carriage returns, comments, no space, other fields", openAI, streamType,
		": ping\r\nevent: x\r\ndata:{\"model\":\"B\"}\r\n\r\nid: 1\rdata:{\"model\":\"B\"}\r\rdata: {\"model\":\r\ndata: \"B\",\"usage\":{\"completion_tokens\":5\r\ndata: }}\r\n\r\n",
		": ping\r\nevent: x\r\ndata:{\"model\":\"A\"}\r\n\r\nid: 1\rdata:{\"model\":\"A\"}\r\rdata: {\"model\":\r\ndata: \"A\",\"usage\":{\"completion_tokens\":5\r\ndata: }}\r\n\r\n",
		Usage{0, 5, 0, true}},
	{"running totals", openAI, streamType,
		"data: {\"usage\":{\"completion_tokens\":1}}\n\ndata: {\"usage\":{\"completion_tokens\":2}}\n\n", "", Usage{0, 2, 0, true}},
	{"generated text that looks like members", openAI, jsonType,
		`{"choices":[{"text":"\"model\":\"B\", {\"model\":\"B\"}, \\\"model\\\":\\\"B\\\" \\"}],"usage2":{"completion_tokens":9}}`, "", Usage{}},
	{"the name as a value of other members, and as a key", openAI, jsonType, `{"object":"B","B":"model","x":["model","B"],"root":{"model":"B"}}`, "", Usage{}},
	{"other names, longer and shorter ones", openAI, jsonType, `{"model":"BB","model":"","model":"b","model":"BBBBBBBBBBBBBBBBBBBBBBBBBBBBBB","model":null,"model":["B"],"model":{"model":"B"}}`, "", Usage{}},
	{"escapes in key and name", openAI, jsonType, `{"mod\u0065l" : "\u0042"}`, `{"mod\u0065l" : "A"}`, Usage{}},
	{"an escaped quote in a key", openAI, jsonType, `{"a\"model":"B","model\"":"B"}`, "", Usage{}},
	{"usage of wrong types", openAI, jsonType, `{"usage":{"prompt_tokens":"7","completion_tokens":-1,"prompt_tokens_details":[{"cached_tokens":3}]},"model":"B"}`, `{"usage":{"prompt_tokens":"7","completion_tokens":-1,"prompt_tokens_details":[{"cached_tokens":3}]},"model":"A"}`, Usage{}},
	{"usage is a list, a fraction, a flood of digits", openAI, jsonType, `{"usage":[1],"usage":{"prompt_tokens":1.5,"completion_tokens":123456789012345678901234567890}}`, "", Usage{}},
	{"anthropic: the name is in the message", anthropic, streamType,
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"B\",\"content\":[{\"model\":\"B\"}],\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":5,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"usage\":{\"output_tokens\":15}}\n\n",
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"A\",\"content\":[{\"model\":\"B\"}],\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":5,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"usage\":{\"output_tokens\":15}}\n\n",
		Usage{25, 15, 5, true}},
	{"responses: the name is in the response", responses, streamType,
		"data: {\"type\":\"response.completed\",\"response\":{\"model\":\"B\",\"usage\":{\"input_tokens\":2,\"input_tokens_details\":{\"cached_tokens\":1},\"output_tokens\":3}},\"message\":{\"model\":\"B\"}}\n\n",
		"data: {\"type\":\"response.completed\",\"response\":{\"model\":\"A\",\"usage\":{\"input_tokens\":2,\"input_tokens_details\":{\"cached_tokens\":1},\"output_tokens\":3}},\"message\":{\"model\":\"B\"}}\n\n",
		Usage{2, 3, 1, true}},
	{"plain text", openAI, "text/plain", `{"model":"B","usage":{"completion_tokens":9}}`, "", Usage{}},
	{"text that claims to be JSON", openAI, jsonType, `boom "model":"B" {"model":"B"}`, "", Usage{}},
	{"HTML that claims to be JSON", openAI, jsonType, `<html>"model":"B"`, "", Usage{}},
	{"a list", openAI, jsonType, `[{"model":"B"}]`, "", Usage{}},
	{"cut within the name", openAI, jsonType, `{"model":"B`, "", Usage{}},
	{"cut within a key", openAI, jsonType, `{"mod`, "", Usage{}},
	{"closed too often", openAI, jsonType, `{"model":"B"}}}{"model":"B"}`, `{"model":"A"}}}{"model":"B"}`, Usage{}},
	{"an event cut within a name, then another", openAI, streamType, "data: {\"model\":\"B\n\ndata: {\"model\":\"B\"}\n\n", "data: {\"model\":\"B\n\ndata: {\"model\":\"A\"}\n\n", Usage{}},
	{"lines documents", openAI, "application/x-ndjson", "{\"model\":\"B\"}\n{\"model\":\"B\",\"usage\":{\"completion_tokens\":4}}\n", "{\"model\":\"A\"}\n{\"model\":\"A\",\"usage\":{\"completion_tokens\":4}}\n", Usage{0, 4, 0, true}},
	{"deep nesting", openAI, jsonType, `{"a":` + strings.Repeat(`{"model":[`, 500) + `"B"` + strings.Repeat(`]}`, 500) + `,"model":"B"}`, `{"a":` + strings.Repeat(`{"model":[`, 500) + `"B"` + strings.Repeat(`]}`, 500) + `,"model":"A"}`, Usage{}},
	{"the name is not the target", openAI, jsonType, `{"model":"C"}`, "", Usage{}},
	{"nothing", openAI, jsonType, ``, "", Usage{}},
}

// TestGolden cuts every response at every byte, at every pair of bytes (for short ones), and into single bytes (FC-MET-16, BODY-12,
// MET-6): names and usage come out the same, and without a rewrite so do the bytes.
func TestGolden(t *testing.T) {
	for _, names := range [][2]string{{"A", "B"}, {`org/a "quoted" <model> é`, "base-model_7b"}} {
		for _, g := range golden {
			in := strings.ReplaceAll(g.in, `"B`, `"`+names[1])
			if g.out == "" {
				g.out = g.in
			}
			if names[1] != "B" && strings.Contains(g.in, `u0042`) {
				continue
			}
			want := strings.ReplaceAll(g.out, `"B`, `"`+names[1])
			want = strings.ReplaceAll(want, `"A"`, string(quoted(names[0])))
			check := func(how string, pieces ...string) {
				t.Helper()
				if out, u := through(t, g.kind, g.mediaType, names[0], names[1], pieces...); out != want || u != g.usage {
					t.Errorf("%s, %s:\n got %s %+v\nwant %s %+v", g.why, how, out, u, want, g.usage)
				}
				if out, u := through(t, g.kind, g.mediaType, names[1], names[1], pieces...); out != in || u != g.usage {
					t.Errorf("%s, %s, without a rewrite: %s %+v", g.why, how, out, u)
				}
			}
			check("in one piece", in)
			for i := range in {
				check(fmt.Sprintf("cut at %d", i), in[:i], in[i:])
				check(fmt.Sprintf("ended by an empty piece, cut at %d", i), in[:i], in[i:], "")
				if len(in) < 150 {
					for j := i; j < len(in); j += 3 {
						check(fmt.Sprintf("cut at %d and %d", i, j), in[:i], in[i:j], in[j:])
					}
				}
			}
			if in != "" {
				check("in single bytes", strings.Split(in, "")...)
			}
		}
	}
}

// TestTapIsPrompt shows that a stream is not held up: behind each complete event nothing is owed.
func TestTapIsPrompt(t *testing.T) {
	p := newTap(openAI, "a", "b")
	p.headers(Headers{"content-type": streamType}, 0)
	for i := range 10 {
		event := fmt.Sprintf("data: {\"model\":\"b\",\"n\":%d}\n\n", i)
		if out := string(p.pass([]byte(event), false)); out != strings.Replace(event, `"b"`, `"a"`, 1) {
			t.Errorf("%q", out)
		}
	}
	if p.scan.complete != 10 {
		t.Errorf("%d events", p.scan.complete)
	}
	if out := string(p.pass([]byte(`data: {"model":"`), false)); out != `data: {"model":` {
		t.Errorf("only the beginning of a name is held back, got %q", out)
	}
}

// TestTapLeavesAlone lists answers that are never changed.
func TestTapLeavesAlone(t *testing.T) {
	const body = `{"model":"b"}`
	for why, c := range map[string]struct {
		h      Headers
		status int
		in     string
	}{
		"an error of the model server": {Headers{"content-type": jsonType}, 404, "a"},
		"a compressed body":            {Headers{"content-type": jsonType, "content-encoding": "gzip"}, 200, "a"},
		"no type at all":               {Headers{}, 200, "a"},
		"a request without a model":    {Headers{"content-type": jsonType}, 200, ""},
	} {
		p := newTap(openAI, c.in, "b")
		p.headers(c.h, c.status)
		if out := string(p.pass([]byte(body), true)); out != body {
			t.Errorf("%s: %s", why, out)
		}
	}
}

// FuzzTap cuts any bytes anywhere: the pieces give what the whole gives, a name that does not occur changes nothing, and without a
// rewrite every chunk comes back as it is.
func FuzzTap(f *testing.F) {
	for _, g := range golden {
		f.Add([]byte(g.in), uint16(len(g.in)/2), uint16(3), g.mediaType == streamType, uint8(g.kind))
	}
	f.Fuzz(func(t *testing.T, body []byte, i, j uint16, stream bool, k uint8) {
		mediaType := jsonType
		if stream {
			mediaType = streamType
		}
		in := string(body)
		a, b := min(int(i), len(in)), min(int(j), len(in))
		a, b = min(a, b), max(a, b)
		knd := kind(k % 3)
		whole, u := through(t, knd, mediaType, "A", "B", in)
		cut, v := through(t, knd, mediaType, "A", "B", in[:a], in[a:b], in[b:])
		if whole != cut || u != v {
			t.Fatalf("%q: whole %q %+v, cut %q %+v", in, whole, u, cut, v)
		}
		if out, _ := through(t, knd, mediaType, "A", "\x00no such name\x00", in[:a], in[a:]); out != in {
			t.Fatalf("%q became %q", in, out)
		}
		if out, _ := through(t, knd, mediaType, "B", "B", in[:a], in[a:]); out != in {
			t.Fatalf("%q became %q without a rewrite", in, out)
		}
	})
}
