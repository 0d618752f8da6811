package extproc

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/llm-weir/weir/harness/wire"
)

// Body is what the picker reads from a request's body.
type Body struct {
	Model        string
	PromptTokens int64 // ceil(bytes/4) of the prompt text, or the number of token ids
	Stream       bool
	Head         []byte // start of the prompt, at most headBytes
	Known        bool   // a parser claims the path; otherwise the body is opaque
}

// headBytes bounds what is kept of a prompt for prefix scorers.
const headBytes = 1024

// claim is one path suffix and the field without which the body is refused.
type claim struct{ suffix, kind, field string }

// claims are the suffixes of the router's default parsers; the longest match wins (spec/endpoint-picker.md §1.7).
var claims = []claim{
	{"chat/completions", "chat completions", "messages"}, {"completions", "completions", "prompt"},
	{"chat/completions/render", "chat completions", "messages"}, {"completions/render", "completions", "prompt"},
	{"embeddings", "embeddings", "input"}, {"responses", "responses", "input"}, {"conversations", "conversations", "items"},
	{"images/generations", "images generations", "prompt"}, {"messages", "messages", "messages"},
	{"messages/count_tokens", "messages", "messages"}, {"inference/v1/generate", "generate", "token_ids"},
}

func claimOf(path string) (claim, bool) {
	var best claim
	for _, c := range claims {
		if strings.HasSuffix(path, c.suffix) && len(c.suffix) > len(best.suffix) {
			best = c
		}
	}
	return best, best.suffix != ""
}

// ParseBody reads the body of a request to path. A refusal is a 400 with the router's text and comes before anything is queued;
// a path that no parser claims is opaque and always accepted.
func ParseBody(path string, body []byte) (Body, *wire.Refusal) {
	c, ok := claimOf(path)
	if !ok {
		return Body{}, nil
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(body, &doc); err != nil {
		return Body{}, badRequest("error unmarshaling request bodyMap: " + err.Error())
	}
	if !hasContent(doc[c.field], c.field) {
		text := "invalid " + c.kind + " request: must have " + c.field + " field"
		if c.field == "messages" {
			text = "invalid " + c.kind + " request: must have valid messages field"
		}
		return Body{}, badRequest(text)
	}
	b := Body{Known: true}
	if json.Unmarshal(doc["model"], &b.Model) != nil || b.Model == "" {
		return Body{}, badRequest("model not found in request body")
	}
	_ = json.Unmarshal(doc["stream"], &b.Stream) // a stream flag of another type is the model server's business
	b.PromptTokens, b.Head = measure(doc[c.field])
	return b, nil
}

func badRequest(text string) *wire.Refusal {
	return &wire.Refusal{Status: http.StatusBadRequest, Body: "inference error: BadRequest - " + text}
}

// UnknownPath is the refusal of a path without a parser, for routers that have no catch-all.
func UnknownPath(path string) *wire.Refusal {
	return badRequest("no parser registered matching path suffix for: " + path)
}

// hasContent tells whether the required field is there. Messages must be a non-empty list of objects.
func hasContent(raw json.RawMessage, field string) bool {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return false
	}
	if field != "messages" {
		return true
	}
	var list []map[string]json.RawMessage
	return json.Unmarshal(raw, &list) == nil && len(list) > 0
}

// measure estimates the tokens of a prompt: four bytes of text each, token ids one each.
func measure(raw json.RawMessage) (tokens int64, head []byte) {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return 0, nil
	}
	var m meter
	m.add(v)
	return (m.bytes+3)/4 + m.ids, m.head
}

type meter struct {
	bytes, ids int64
	head       []byte
}

func (m *meter) text(s string) {
	m.bytes += int64(len(s))
	m.head = append(m.head, s[:min(len(s), headBytes-len(m.head))]...)
}

func (m *meter) add(v any) {
	switch v := v.(type) {
	case string:
		m.text(v)
	case float64:
		m.ids++
	case []any:
		for _, x := range v {
			m.add(x)
		}
	case map[string]any:
		for _, key := range []string{"role", "content", "text"} {
			m.add(v[key])
		}
	}
}
