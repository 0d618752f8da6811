package extproc

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/llm-weir/weir/harness/wire"
)

// Body is what the picker reads from a request's body.
type Body struct {
	Model        string
	PromptTokens int64  // ceil(bytes/4) of the prompt text, or the number of token ids
	MaxOutput    int64  // the client's own limit of output tokens; 0: none
	Stream       bool   // the client asked for an event stream
	Known        bool   // a parser claims the path; otherwise the body is opaque
	Parser       string // name of the router's parser for the path

	salt   string   // cache_salt: prompts with different salts share no prefix
	prompt [][]byte // the prompt's pieces in order, parts of the body where possible; token ids as four bytes each
	models []span   // values of the top-level "model"
	kind   kind
}

// kind tells the dialects apart whose answers carry the model's name one level down.
type kind uint8

const (
	openAI    kind = iota // everything at the top level
	anthropic             // message_start carries a "message"
	responses             // events of /v1/responses carry a "response"
)

// claim is one path suffix and the field without which the body is refused.
type claim struct {
	suffix, what, field string
	parser              string
	kind                kind
}

// The names of the router's default parsers.
const (
	parserOpenAI    = "openai-parser"
	parserAnthropic = "anthropic-parser"
	parserVLLM      = "vllmhttp-parser"
	parserOpaque    = "passthrough-parser"
)

// claims are the suffixes of the router's default parsers; the longest match wins (spec/endpoint-picker.md §1.7).
var claims = []claim{
	{"chat/completions", "chat completions", "messages", parserOpenAI, openAI}, {"completions", "completions", "prompt", parserOpenAI, openAI},
	{"chat/completions/render", "chat completions", "messages", parserOpenAI, openAI}, {"completions/render", "completions", "prompt", parserOpenAI, openAI},
	{"embeddings", "embeddings", "input", parserOpenAI, openAI}, {"responses", "responses", "input", parserOpenAI, responses},
	{"conversations", "conversations", "items", parserOpenAI, openAI}, {"images/generations", "images generations", "prompt", parserOpenAI, openAI},
	{"messages", "messages", "messages", parserAnthropic, anthropic}, {"messages/count_tokens", "messages", "messages", parserAnthropic, anthropic},
	{"inference/v1/generate", "generate", "token_ids", parserVLLM, openAI},
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
	b, refusal := parse(path, body)
	if refusal == nil && b.Known && b.Model == "" {
		return Body{}, noModel()
	}
	return b, refusal
}

func noModel() *wire.Refusal { return badRequest("model not found in request body") }

// parse is ParseBody for a request whose model may still come from a rewrite.
func parse(path string, body []byte) (Body, *wire.Refusal) {
	c, ok := claimOf(path)
	if !ok {
		return Body{Parser: parserOpaque}, nil
	}
	if !json.Valid(body) || !isObject(body) {
		var doc map[string]json.RawMessage
		err := json.Unmarshal(body, &doc)
		if err == nil { // a lone null is valid and no object
			return Body{}, badRequest("invalid " + c.what + " request: must have " + c.field + " field")
		}
		return Body{}, badRequest("error unmarshaling request bodyMap: " + err.Error())
	}
	b := Body{Known: true, Parser: c.parser, kind: c.kind}
	f := fieldsOf(body, c.field)
	b.models = f.models
	if !hasContent(f.content, c.field) {
		text := "invalid " + c.what + " request: must have " + c.field + " field"
		if c.field == "messages" {
			text = "invalid " + c.what + " request: must have valid messages field"
		}
		return Body{}, badRequest(text)
	}
	// Fields of another type are the model server's business, except for the model's name.
	b.Model, b.salt = text(f.model), text(f.salt)
	b.Stream = string(f.stream) == "true"
	b.MaxOutput = limit(f.limits[:])
	b.PromptTokens, b.prompt = measure(f.content)
	return b, nil
}

// fields are the members of a request that the picker reads, raw; of repeated ones the last, as parsers have it.
type fields struct {
	content, model, salt, stream []byte
	limits                       [3][]byte // from the most to the least specific
	models                       []span
}

func fieldsOf(body []byte, content string) fields {
	var f fields
	members(body, func(key []byte, at span) {
		raw := body[at.from:at.to]
		switch string(key) {
		case "model":
			f.model, f.models = raw, append(f.models, at)
		case "stream":
			f.stream = raw
		case "cache_salt":
			f.salt = raw
		case "max_completion_tokens":
			f.limits[0] = raw
		case "max_output_tokens":
			f.limits[1] = raw
		case "max_tokens":
			f.limits[2] = raw
		}
		if string(key) == content {
			f.content = raw
		}
	})
	return f
}

func isObject(body []byte) bool {
	body = bytes.TrimLeft(body, " \t\r\n")
	return len(body) > 0 && body[0] == '{'
}

// text is the value of a JSON string; "" of anything else.
func text(raw []byte) string { return string(unquoted(raw)) }

// limit is the first positive integer.
func limit(raws [][]byte) int64 {
	for _, raw := range raws {
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

func badRequest(text string) *wire.Refusal {
	return &wire.Refusal{Status: http.StatusBadRequest, Body: "inference error: BadRequest - " + text}
}

// UnknownPath is the refusal of a path without a parser, for routers that have no catch-all.
func UnknownPath(path string) *wire.Refusal {
	return badRequest("no parser registered matching path suffix for: " + path)
}
