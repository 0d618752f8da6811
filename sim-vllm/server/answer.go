package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
)

// oddAnswers are what model servers and what stands in front of them have been seen to answer with status 200: their content type and
// the pieces in which the body is sent, each flushed.
var oddAnswers = map[string]struct {
	kind   string
	pieces []string
}{
	"text":            {"text/plain", []string{"upstream busy, try later\n"}},
	"html":            {"text/html", []string{"<html><body><h1>It works!</h1></body></html>\n"}},
	"nothing":         {"application/json", nil},
	"null":            {"application/json", []string{"null"}},
	"array":           {"application/json", []string{"[1, 2, 3]"}},
	"truncated":       {"application/json", []string{`{"id":"x","choices":[{"text":"half`}},
	"usage-text":      {"application/json", []string{`{"id":"x","choices":[],"usage":{"prompt_tokens":"six","completion_tokens":[]}}`}},
	"usage-negative":  {"application/json", []string{`{"id":"x","choices":[],"usage":{"prompt_tokens":-5,"completion_tokens":-9007199254740993}}`}},
	"usage-huge":      {"application/json", []string{`{"id":"x","choices":[],"usage":{"prompt_tokens":1e400,"completion_tokens":99999999999999999999}}`}},
	"not-utf8":        {"application/json", []string{"{\"id\":\"\xff\xfe\",\"choices\":[]}"}},
	"deep":            {"application/json", []string{strings.Repeat("[", 20000) + strings.Repeat("]", 20000)}},
	"sse-split":       {"text/event-stream", slices.Collect(bytewise("data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"total_tokens\":10,\"completion_tokens\":7}}\n\ndata: [DONE]\n\n"))},
	"sse-no-end":      {"text/event-stream", []string{"data: {\"choices\":[{\"text\":\"a\"}]}\n\n", "data: {\"cho"}},
	"sse-crlf":        {"text/event-stream", []string{": comment\r\n\r\n", "event: x\r\ndata: {\"choices\":[]}\r\n\r\n", "data: [DONE]\r\n\r\n"}},
	"sse-not-json":    {"text/event-stream", []string{"data: {{{\n\n", "data: \n\n", "data: [DONE]\n\n", "data: after the end\n\n"}},
	"sse-error-event": {"text/event-stream", []string{"data: {\"error\":{\"message\":\"engine died\"}}\n\n", "data: [DONE]\n\n"}},
}

// brokenAnswers break off: the connection is reset behind the pieces, or before anything was sent.
var brokenAnswers = map[string]struct {
	kind   string
	pieces []string
}{
	"reset":     {},
	"sse-reset": {"text/event-stream", []string{"data: {\"choices\":[{\"text\":\"a\"}]}\n\n"}},
}

func bytewise(s string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for i := range len(s) {
			if !yield(s[i : i+1]) {
				return
			}
		}
	}
}

// Answers lists the names of the odd answers (wire.HeaderAnswer).
func Answers() []string {
	out := make([]string, 0, len(oddAnswers))
	for name := range oddAnswers {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Answer is the body and the content type of an odd answer; false for a name that is not known.
func Answer(name string) (body []byte, contentType string, known bool) {
	a, ok := oddAnswers[name]
	return []byte(strings.Join(a.pieces, "")), a.kind, ok
}

// Breaks tells whether the answer of a name breaks off, and whether something is sent before it does.
func Breaks(name string) (breaks, begun bool) {
	a, ok := brokenAnswers[name]
	return ok, len(a.pieces) > 0
}

// serveBroken begins an answer and resets the connection. net/http expects the panic.
func (s *Server) serveBroken(w http.ResponseWriter, c *call, name string) {
	a := brokenAnswers[name]
	if len(a.pieces) > 0 {
		w.Header().Set("Content-Type", a.kind)
		now := int64(s.clk.Now())
		s.note(c, func(rec *evidence.Backend) { rec.FirstToken = now })
		_, _ = w.Write([]byte(strings.Join(a.pieces, "")))
		_ = http.NewResponseController(w).Flush()
	}
	s.end(c, evidence.Failed, nil)
	panic(http.ErrAbortHandler)
}

// serveOdd gives an answer by name.
func (s *Server) serveOdd(w http.ResponseWriter, c *call, name string) {
	a := oddAnswers[name]
	body, kind, _ := Answer(name)
	now := int64(s.clk.Now())
	s.note(c, func(rec *evidence.Backend) { rec.FirstToken, rec.AnswerSHA256 = now, hash(body) })
	// Ended before the last byte can be seen: whoever reads it may ask for the record.
	s.end(c, evidence.Finished, nil)
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	for _, p := range a.pieces {
		if _, err := w.Write([]byte(p)); err != nil {
			s.brokeOff(c)
			return
		}
		if err := rc.Flush(); err != nil {
			s.brokeOff(c)
			return
		}
	}
}
