package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/llm-weir/weir/harness/wire"
)

// words are the output: token i is words[i % len(words)]. None needs escaping in JSON.
var words = [...]string{" the", " water", " runs", " over", " a", " low", " wall", " and", " its", " level", " tells", " how",
	" much", " came", " down", "."}

// responder writes one response, as JSON or as SSE. Everything of a frame but the token is rendered once.
type responder struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	q       request
	created int64
	id      string
	before  string // of a frame, up to the token
	after   string // of a frame that is not the last
	begun   bool
	buf     []byte
}

func (s *Server) newResponder(w http.ResponseWriter, r *http.Request, q request) *responder {
	o := &responder{w: w, rc: http.NewResponseController(w), q: q, created: s.started.Add(s.clk.Now()).Unix()}
	o.id = r.Header.Get(wire.HeaderRequestID)
	if o.id == "" {
		o.id = fmt.Sprintf("%032x", s.seq.Add(1))
	}
	if q.endpoint == chat {
		o.id = "chatcmpl-" + o.id
	} else {
		o.id = "cmpl-" + o.id
	}
	if q.stream {
		if q.endpoint == chat {
			o.before = o.head("chat.completion.chunk") + `"choices":[{"index":0,"delta":{"content":"`
			o.after = `"},"logprobs":null,"finish_reason":null}]}` + "\n\n"
		} else {
			o.before = o.head("text_completion") + `"choices":[{"index":0,"text":"`
			o.after = `","logprobs":null,"finish_reason":null,"stop_reason":null}]}` + "\n\n"
		}
	}
	return o
}

// head is the start of every frame.
func (o *responder) head(object string) string {
	return "data: {" + `"id":` + quote(o.id) + `,"object":"` + object + `","created":` + strconv.FormatInt(o.created, 10) +
		`,"model":` + quote(o.q.model) + ","
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always has an encoding
	}
	return string(b)
}

// tokens renders the frames of tokens from..to-1 of a stream; flush sends them. Headers go out with the first frame, even if to is
// 0: a chat then begins with its role, a completion with nothing.
func (o *responder) tokens(from, to int) {
	o.begin()
	for i := from; i < to; i++ {
		o.buf = append(o.buf, o.before...)
		o.buf = append(o.buf, words[i%len(words)]...)
		o.buf = append(o.buf, o.after...)
	}
}

func (o *responder) begin() {
	if o.begun {
		return
	}
	o.begun = true
	h := o.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	o.w.WriteHeader(http.StatusOK)
	if o.q.endpoint == chat {
		o.buf = append(o.buf, o.head("chat.completion.chunk")...)
		o.buf = append(o.buf, `"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`+"\n\n"...)
	}
}

// flush sends what is rendered in one write.
func (o *responder) flush() error {
	if len(o.buf) > 0 {
		if _, err := o.w.Write(o.buf); err != nil {
			return fmt.Errorf("response: %w", err)
		}
		o.buf = o.buf[:0]
	}
	if err := o.rc.Flush(); err != nil {
		return fmt.Errorf("response: %w", err)
	}
	return nil
}

// last sends the rest of the response in one write: tokens from..total-1, the reason, usage, [DONE]; or the JSON document.
func (o *responder) last(from, total int, ending int32) error {
	reason := "length"
	if ending == stopped {
		reason = "stop"
	}
	usage := map[string]int{"prompt_tokens": o.q.prompt, "total_tokens": o.q.prompt + total, "completion_tokens": total}
	if !o.q.stream {
		return o.document(total, reason, usage)
	}
	o.tokens(from, total-1)
	o.buf = append(o.buf, o.before...)
	o.buf = append(o.buf, words[(total-1)%len(words)]...)
	o.buf = append(o.buf, strings.Replace(o.after, `"finish_reason":null`, `"finish_reason":"`+reason+`"`, 1)...)
	if o.q.includeUsage {
		object := "text_completion"
		if o.q.endpoint == chat {
			object = "chat.completion.chunk"
		}
		u, err := json.Marshal(usage)
		if err != nil {
			return fmt.Errorf("usage: %w", err)
		}
		o.buf = append(o.buf, o.head(object)...)
		o.buf = append(o.buf, `"choices":[],"usage":`...)
		o.buf = append(o.buf, u...)
		o.buf = append(o.buf, "}\n\n"...)
	}
	o.buf = append(o.buf, "data: [DONE]\n\n"...)
	return o.flush()
}

func (o *responder) document(total int, reason string, usage map[string]int) error {
	var text strings.Builder
	for i := range total {
		text.WriteString(words[i%len(words)])
	}
	object, choice := "text_completion", map[string]any{"index": 0, "logprobs": nil, "finish_reason": reason, "stop_reason": nil}
	if o.q.endpoint == chat {
		object = "chat.completion"
		choice["message"] = map[string]any{"role": "assistant", "content": text.String()}
	} else {
		choice["text"] = text.String()
	}
	writeJSON(o.w, http.StatusOK, map[string]any{"id": o.id, "object": object, "created": o.created, "model": o.q.model,
		"choices": []any{choice}, "usage": usage})
	if err := o.rc.Flush(); err != nil {
		return fmt.Errorf("response: %w", err)
	}
	return nil
}
