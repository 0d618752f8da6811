package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/llm-weir/weir/harness/wire"
)

// endpoint is one of the two inference paths.
type endpoint uint8

const (
	completions endpoint = iota
	chat
)

// request is what the simulator needs of a body.
type request struct {
	endpoint     endpoint
	model        string // as answered
	prompt       int    // tokens
	maxTokens    int    // client's limit, 0: none
	output       int    // true length in tokens, 0: runs to the limit
	stream       bool
	includeUsage bool
	holdAfter    int // tokens before the hold
}

// apiError is a refusal in vLLM's words.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

func badRequest(format string, args ...any) *apiError {
	return &apiError{Message: fmt.Sprintf(format, args...), Type: "BadRequestError", Code: http.StatusBadRequest}
}

// errorFor is the body for a status that was asked for by name or number only.
func errorFor(status int, message string) *apiError {
	kind := "InternalServerError"
	switch status {
	case http.StatusBadRequest:
		kind = "BadRequestError"
	case http.StatusUnauthorized:
		kind = "AuthenticationError"
	case http.StatusNotFound:
		kind = "NotFoundError"
	case http.StatusRequestEntityTooLarge:
		kind = "RequestEntityTooLargeError"
	case http.StatusTooManyRequests:
		kind = "RateLimitError"
	case http.StatusServiceUnavailable:
		kind = "ServiceUnavailableError"
	}
	return &apiError{Message: message, Type: kind, Code: status}
}

// start is the first 300 bytes of the answer, which is what a client keeps of it.
func (e *apiError) start() string {
	b := encodeJSON(map[string]any{"error": e})
	return string(b[:min(len(b), 300)])
}

func (e *apiError) write(w http.ResponseWriter) {
	writeJSON(w, e.Code, map[string]any{"error": e})
}

func encodeJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // only values made here are encoded
	}
	return b.Bytes()
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b := encodeJSON(v)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // a peer that left is seen by its context
}

// body is the part of the OpenAI schema that is read; other fields are dropped, as vLLM does.
type body struct {
	Model               *string         `json:"model"`
	Prompt              json.RawMessage `json:"prompt"`
	Messages            []chatMessage   `json:"messages"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	N                   *int            `json:"n"`
	Stream              bool            `json:"stream"`
	IgnoreEOS           bool            `json:"ignore_eos"`
	StreamOptions       *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type chatMessage struct {
	Content json.RawMessage `json:"content"`
}

// parse reads a body; what it found before a fault is returned with the fault, because the record wants it.
func (s *Server) parse(at endpoint, raw []byte, h http.Header) (request, *apiError) {
	q := request{endpoint: at, model: s.model}
	var b body
	if err := json.Unmarshal(raw, &b); err != nil {
		return q, badRequest("Invalid JSON body: %v", err)
	}
	q.stream = b.Stream
	q.includeUsage = b.StreamOptions != nil && b.StreamOptions.IncludeUsage
	if b.Model != nil && *b.Model != "" {
		if s.cfg.Model != "" && *b.Model != s.cfg.Model {
			return q, errorFor(http.StatusNotFound, fmt.Sprintf("The model `%s` does not exist.", *b.Model))
		}
		q.model = *b.Model
	}
	if b.N != nil && *b.N != 1 {
		return q, badRequest("n is %d; the simulator answers n=1 only", *b.N)
	}
	var fault *apiError
	if at == chat {
		q.prompt, fault = countMessages(b.Messages)
	} else {
		q.prompt, fault = countPrompt(b.Prompt)
	}
	if fault != nil {
		return q, fault
	}
	limit := b.MaxTokens
	if at == chat && b.MaxCompletionTokens != nil {
		limit = b.MaxCompletionTokens
	}
	switch {
	case limit != nil && *limit < 1:
		return q, badRequest("max_tokens must be at least 1, got %d.", *limit)
	case limit != nil:
		q.maxTokens = *limit
	case at == completions:
		q.maxTokens = 16
	default:
		q.output = defaultOutputTokens
	}
	if fault := s.checkLength(&q); fault != nil {
		return q, fault
	}
	return q, q.readHeaders(h, b.IgnoreEOS)
}

func (s *Server) checkLength(q *request) *apiError {
	most := s.cfg.Engine.MaxModelLen
	if q.prompt >= most || q.maxTokens > most-q.prompt {
		return badRequest("This model's maximum context length is %d tokens. However, your request has %d input tokens and asks for "+
			"%d output tokens. Please reduce the length of the input or of the output.", most, q.prompt, max(1, q.maxTokens))
	}
	if q.maxTokens == 0 {
		q.maxTokens = most - q.prompt
	}
	return nil
}

// readHeaders takes the harness's instructions. ignore_eos runs to the limit whatever the true length is.
func (q *request) readHeaders(h http.Header, ignoreEOS bool) *apiError {
	for _, f := range []struct {
		name  string
		least int
		field *int
	}{{wire.HeaderOutputTokens, 1, &q.output}, {wire.HeaderHoldAfter, 0, &q.holdAfter}} {
		text := h.Get(f.name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < f.least {
			return badRequest("header %s is %q, must be a number of tokens, at least %d", f.name, text, f.least)
		}
		*f.field = n
	}
	if ignoreEOS {
		q.output = 0
	}
	return nil
}

// tokens is the output length that will be reached, and the reason for which it ends there.
func (q *request) tokens() (int, int32) {
	if q.output > 0 && q.output < q.maxTokens {
		return q.output, stopped
	}
	return q.maxTokens, reachedLength
}

// textTokens counts by the simulator's fixed rule: four bytes are a token.
func textTokens(bytes int) int { return max(1, (bytes+3)/4) }

// countPrompt takes a string, a list of token ids, or a list of exactly one of those.
func countPrompt(raw json.RawMessage) (int, *apiError) {
	if len(raw) == 0 || string(raw) == "null" {
		return 0, badRequest("Either prompt or prompt_embeds must be provided and non-empty.")
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return textTokens(len(text)), nil
	}
	var ids []int64
	if json.Unmarshal(raw, &ids) == nil && len(ids) > 0 {
		return len(ids), nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		switch len(list) {
		case 0:
			return 0, badRequest("Either prompt or prompt_embeds must be provided and non-empty.")
		case 1:
			return countPrompt(list[0])
		}
		return 0, badRequest("%d prompts in one request; the simulator answers one", len(list))
	}
	return 0, badRequest("prompt is neither a string nor a list of token ids")
}

// countMessages sums the text of all messages; a content is a string or a list of parts.
func countMessages(messages []chatMessage) (int, *apiError) {
	if len(messages) == 0 {
		return 0, badRequest("messages is missing or empty")
	}
	total := 0
	for i, m := range messages {
		var text string
		if len(m.Content) == 0 || json.Unmarshal(m.Content, &text) == nil {
			total += len(text)
			continue
		}
		var parts []struct {
			Text string `json:"text"`
		}
		if err := json.Unmarshal(m.Content, &parts); err != nil {
			return 0, badRequest("messages[%d].content is neither a string nor a list of parts", i)
		}
		for _, p := range parts {
			total += len(p.Text)
		}
	}
	return textTokens(total), nil
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
