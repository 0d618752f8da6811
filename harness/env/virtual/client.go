package virtual

import (
	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/loadgen/openai"
	"github.com/llm-weir/weir/loadgen/plan"
)

// client is one request as its sender sees it.
type client struct {
	rec          evidence.Client
	req          sut.Request
	body         []byte
	headers      map[string]string
	ended        bool
	promptTokens int // 0: derived from the body
	outputTokens int // 0: the request's limit
	call         *call
	onEnd        func()
	batch        bool // it is an attempt of the batch processor, which keeps its own records
}

func loadBody(r plan.Request) []byte {
	return openai.Body{Path: r.Path, Model: env.Model, PromptTokens: r.PromptTokens, MaxTokens: r.MaxTokens, Stream: r.Stream, Seed: r.ID}.Build()
}

// Send implements sut.Stage.
func (st *stage) Send(r sut.Request) { st.send(r, env.Body(r)) }

func (st *stage) send(r sut.Request, body []byte) *client {
	c := &client{rec: env.Sent(st.scenario, r, body), req: r, body: body}
	c.headers = env.Headers(st.scenario, r, st.address)
	c.rec.Intended, c.rec.Sent = int64(st.now), int64(st.now)
	st.clients[r.ID] = c
	st.order = append(st.order, c)
	st.open++
	c.call = &call{st: st, client: c}
	st.after(hop+r.BodyDelay, c.call.start)
	return c
}

func (st *stage) address(name string) string {
	if sv := st.server(name); sv != nil {
		return sv.address
	}
	return ""
}

// Cancel implements sut.Stage.
func (st *stage) Cancel(id string) { st.cancel(id, false) }

// Abandon implements sut.Stage.
func (st *stage) Abandon(id string) { st.cancel(id, true) }

func (st *stage) cancel(id string, abandoned bool) {
	c := st.clients[id]
	if c == nil || c.ended {
		return
	}
	outcome := evidence.ClientCancelled
	if abandoned {
		outcome = evidence.Unfinished
	}
	c.end(st, outcome)
	st.after(hop, c.call.clientLeft)
}

// end gives the request its one ending; later news is ignored.
func (c *client) end(st *stage, outcome string) {
	if c.ended {
		return
	}
	c.ended = true
	if !c.batch {
		st.open--
	}
	c.rec.Outcome, c.rec.End = outcome, int64(st.now)
	if c.onEnd != nil {
		st.after(0, c.onEnd)
	}
}

// refused is a complete non-2xx response.
func (c *client) refused(st *stage, r wire.Refusal) {
	if c.ended {
		return
	}
	c.rec.Headers = int64(st.now)
	c.rec.Status, c.rec.Reason, c.rec.Text = r.Status, r.Reason, r.Body
	c.rec.ResponseBytes = int64(len(r.Body))
	c.end(st, evidence.Refused)
}

// token is one token event of a stream, or the whole answer of a request that does not stream.
func (c *client) token(st *stage, endpoint string, tokens int) {
	if c.ended {
		return
	}
	if st.sys.opts.Tamper.Plane.LoseToken && c.rec.FirstToken == evidence.Never {
		tokens--
	}
	now := int64(st.now)
	if c.rec.Headers == evidence.Never {
		c.rec.Headers, c.rec.Status, c.rec.Endpoint = now, 200, endpoint
	}
	if c.rec.FirstToken == evidence.Never {
		c.rec.FirstToken = now
	}
	c.rec.LastToken = now
	c.rec.Tokens += tokens
	if c.req.Stream {
		c.rec.Events += tokens
		for range tokens {
			c.rec.TokenTimes = append(c.rec.TokenTimes, now)
		}
	}
}

// flush hands every record over. What still runs at a model server is recorded as running.
func (st *stage) flush() {
	if st.batch != nil {
		st.batch.Flush()
	}
	for _, c := range st.order {
		st.out.Client(c.rec)
	}
	for _, sv := range st.servers {
		for _, v := range sv.visits {
			st.out.Backend(v.rec)
		}
	}
}
