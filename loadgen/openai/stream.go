package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

var doneMark = []byte("[DONE]")

// stream reads a 2xx event stream, or whatever came in place of the one that was asked for. It is whole if it ends after [DONE],
// with no error event and nothing but JSON before.
func (e *exchange) stream(ctx context.Context, resp *http.Response) {
	var (
		parser sseParser
		now    time.Duration
		done   bool
		broken string // the first thing wrong
		tokens int
		usage  = -1
	)
	buf := make([]byte, 16<<10)
	onEvent := func(ev sseEvent) {
		e.rec.Events++
		if bytes.Equal(bytes.TrimSpace(ev.Data), doneMark) {
			done = true
			return
		}
		c := parseChunk(ev.Data)
		switch {
		case c.broken != "":
			broken = firstOf(broken, fmt.Sprintf("event %d: %s", e.rec.Events, c.broken))
		case ev.Name == "error":
			broken = firstOf(broken, fmt.Sprintf("event %d: error event: %s", e.rec.Events, ev.Data))
		case c.token:
			tokens++
			e.token(now)
		}
		if c.usage >= 0 {
			usage = c.usage
		}
	}
	for {
		n, err := resp.Body.Read(buf)
		// One instant per read: the events in it reached the client together, and parsing takes time of its own.
		now = e.s.Clock.Now()
		e.rec.ResponseBytes += int64(n)
		if perr := parser.Feed(buf[:n], onEvent); perr != nil && (err == nil || errors.Is(err, io.EOF)) {
			err = perr
		}
		e.rec.Tokens = tokens
		if usage >= 0 {
			e.rec.Tokens = usage
		}
		if err == nil {
			continue
		}
		switch {
		case !errors.Is(err, io.EOF):
			e.fail(ctx, evidence.KilledMidStream, errors.New(firstOf(broken, err.Error())))
		case broken != "":
			e.spoilt(broken)
		case !done:
			text := "stream ended without [DONE]"
			if !isEventStream(resp.Header) {
				text += fmt.Sprintf(" (content type %q)", resp.Header.Get("content-type"))
			}
			e.spoilt(text)
		default:
			e.end(evidence.Completed)
		}
		return
	}
}

func (e *exchange) token(now time.Duration) {
	if e.rec.FirstToken == evidence.Never {
		e.rec.FirstToken = int64(now)
	}
	e.rec.LastToken = int64(now)
	e.rec.TokenTimes = append(e.rec.TokenTimes, int64(now))
	e.progress(Progress{ID: e.r.ID, Kind: GotToken, At: now, Status: e.rec.Status})
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// chunk is what matters of one JSON object of a response.
type chunk struct {
	token  bool   // it carries generated text
	usage  int    // completion tokens; -1 if it does not say
	broken string // it is no JSON object, or it reports an error
}

// parseChunk reads a completion, a chat completion, or a chunk of either. The role-only chunk, the usage chunk and the last chunk
// without text carry no token.
func parseChunk(data []byte) chunk {
	var c struct {
		Object  string          `json:"object"`
		Error   json.RawMessage `json:"error"`
		Choices []struct {
			Text  string `json:"text"`
			Delta struct {
				Content          string            `json:"content"`
				Reasoning        string            `json:"reasoning"`
				ReasoningContent string            `json:"reasoning_content"`
				ToolCalls        []json.RawMessage `json:"tool_calls"`
			} `json:"delta"`
		} `json:"choices"`
		Usage *struct {
			CompletionTokens *int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return chunk{usage: -1, broken: "no OpenAI JSON: " + err.Error()}
	}
	out := chunk{usage: -1}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		out.broken = "error: " + string(c.Error)
	} else if c.Object == "error" {
		out.broken = "error: " + string(data)
	}
	for _, choice := range c.Choices {
		d := choice.Delta
		out.token = out.token || choice.Text+d.Content+d.Reasoning+d.ReasoningContent != "" || len(d.ToolCalls) > 0
	}
	if c.Usage != nil && c.Usage.CompletionTokens != nil {
		out.usage = *c.Usage.CompletionTokens
	}
	return out
}
