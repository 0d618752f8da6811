package openai

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"strconv"
	"strings"
)

// BytesPerToken is how many bytes of prompt count as one token, as pickers estimate it.
const BytesPerToken = 4

// Body describes a request body.
type Body struct {
	Path         string // a path that ends in /chat/completions makes a chat body, any other a completion body
	Model        string
	PromptTokens int
	MaxTokens    int
	Stream       bool // also asks for the usage chunk
	// Size pads the body to exactly that many bytes with blanks before the last brace, which changes neither prompt nor meaning.
	// A body that is larger already has its prompt cut; the JSON around the prompt is never cut. 0: as long as it gets.
	Size int
	// Seed makes the prompt's words differ from their first block on, so that prefix caches see unrelated prompts.
	Seed string
}

// BuildBody is the body of a request with the prompt of seed "".
func BuildBody(path, model string, promptTokens, maxTokens int, stream bool, size int) []byte {
	return Body{Path: path, Model: model, PromptTokens: promptTokens, MaxTokens: maxTokens, Stream: stream, Size: size}.Build()
}

// Build encodes the body.
func (b Body) Build() []byte {
	head, tail := b.frame()
	prompt := b.prompt()
	const brace = 1
	pad := b.Size - (len(head) + len(prompt) + len(tail) + brace)
	if b.Size > 0 && pad < 0 {
		prompt = prompt[:max(0, len(prompt)+pad)]
	}
	var out bytes.Buffer
	out.Grow(len(head) + len(prompt) + len(tail) + max(0, pad) + brace)
	out.WriteString(head)
	out.WriteString(prompt)
	out.WriteString(tail)
	for range pad {
		out.WriteByte(' ')
	}
	out.WriteByte('}')
	return out.Bytes()
}

// frame is the JSON before and after the prompt, without the last brace.
func (b Body) frame() (head, tail string) {
	model, err := json.Marshal(b.Model)
	if err != nil {
		panic(err) // a string always encodes
	}
	head = `{"model":` + string(model) + `,"prompt":"`
	tail = `"`
	if strings.HasSuffix(b.Path, "/chat/completions") {
		head = `{"model":` + string(model) + `,"messages":[{"role":"user","content":"`
		tail = `"}]`
	}
	tail += `,"max_tokens":` + strconv.Itoa(b.MaxTokens)
	if b.Stream {
		tail += `,"stream":true,"stream_options":{"include_usage":true}`
	}
	return head, tail
}

// prompt writes one word of three letters and a blank per token. The letters come from a generator seeded by Seed; it needs no
// quality, only to differ early.
func (b Body) prompt() string {
	h := fnv.New64a()
	h.Write([]byte(b.Seed))
	x := h.Sum64() | 1
	out := make([]byte, 0, BytesPerToken*max(0, b.PromptTokens))
	for range b.PromptTokens {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out = append(out, 'a'+byte(x>>20%26), 'a'+byte(x>>32%26), 'a'+byte(x>>44%26), ' ')
	}
	return string(out)
}
