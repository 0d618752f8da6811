package virtual

import (
	"fmt"
	"net/http"
	"sort"
	"strconv"
	"time"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/picker"
	"github.com/llm-weir/weir/sim-vllm/engine"
	"github.com/llm-weir/weir/sim-vllm/presets"
)

// server is one model server: it holds, answers at once, or runs the engine model.
type server struct {
	st       *stage
	id       picker.EndpointID
	spec     sut.Endpoint
	address  string
	hold     bool
	asWait   bool
	inPool   bool
	scripted *sut.LoadValues
	scrapes  int64
	fault    string // of the metrics page
	failure  int    // status of every answer, 0: none
	visits   []*visit
	engine   *engine.Engine
	running  map[uint64]*visit
	nextID   uint64
	outs     []engine.Out
}

// visit is one request at a model server.
type visit struct {
	sv     *server
	call   *call
	rec    evidence.Backend
	order  int
	held   bool
	over   bool
	id     uint64 // in the engine
	sent   int    // tokens
	status int    // of its own error answer
	wrote  time.Duration
}

func newServer(st *stage, i int, spec sut.Endpoint, cfg sut.Configuration) (*server, error) {
	sv := &server{st: st, id: picker.EndpointID(i), spec: spec, address: fmt.Sprintf("127.0.1.%d:8000", i+1), hold: cfg.Hold,
		asWait: cfg.HeldAsWaiting, running: map[uint64]*visit{}}
	if cfg.Preset != "" {
		ec, err := presets.Get(cfg.Preset)
		if err != nil {
			return nil, err
		}
		if cfg.MaxSeqs > 0 {
			ec.MaxNumSeqs = cfg.MaxSeqs
		}
		if sv.engine, err = engine.New(ec); err != nil {
			return nil, fmt.Errorf("engine of %s: %w", spec.Name, err)
		}
	}
	return sv, nil
}

func (st *stage) serverByID(id picker.EndpointID) *server {
	return st.servers[min(max(0, int(id)), len(st.servers)-1)]
}

// load is what a scrape reads.
func (sv *server) load() picker.Load {
	switch sv.fault {
	case "hang", "error500":
		return picker.Load{}
	case "drop", "untyped":
		return picker.Load{OK: true}
	}
	l := picker.Load{OK: true, HasWaiting: true, HasKV: true}
	if sv.scripted != nil {
		l.Waiting, l.Running, l.KV = sv.scripted.Waiting, sv.scripted.Running, sv.scripted.KV
		return l
	}
	held := 0.0
	for _, v := range sv.visits {
		if v.held && !v.over {
			held++
		}
	}
	if sv.asWait {
		l.Waiting = held
	} else {
		l.Running = held
	}
	if sv.engine != nil {
		s := sv.engine.Stats()
		l.Waiting += float64(s.Waiting)
		l.Running += float64(s.Running)
		l.KV = s.KVUsage
	}
	return l
}

func (sv *server) arrive(c *call) *visit {
	st := sv.st
	v := &visit{sv: sv, call: c, order: len(st.arrived)}
	cl := c.client
	body, bodyHash := cl.body, cl.rec.BodySHA256
	if f := st.sys.opts.Tamper.Plane.Forward; f != nil {
		body = f(body)
		bodyHash = env.Hash(body)
	}
	v.rec = evidence.Backend{Scenario: st.scenario, ID: cl.rec.ID, Endpoint: sv.spec.Name, Arrival: int64(st.now), Released: evidence.Never,
		FirstToken: evidence.Never, End: evidence.Never, Ending: evidence.Running, Stream: cl.req.Stream, PromptTokens: int(c.request.Tokens),
		Bytes: int64(len(body)), BodySHA256: bodyHash, JSONSHA256: wire.JSONHash(body), ControlHeaders: controlHeaders(cl.headers), RequestID: cl.headers[wire.HeaderRequestID]}
	if st.sys.opts.Tamper.Plane.NewRequestID && v.rec.RequestID != "" {
		v.rec.RequestID = "another"
	}
	sv.visits = append(sv.visits, v)
	st.arrived = append(st.arrived, cl.rec.ID)
	switch {
	case cl.req.Method == http.MethodGet:
		st.after(answerTime, func() { v.produce(v.tokens()) })
	case cl.headers[wire.HeaderAnswer] != "":
		st.after(answerTime, func() { v.answer(cl.headers[wire.HeaderAnswer]) })
	case sv.failure != 0:
		st.after(answerTime, func() { v.fail(sv.failure) })
	case sv.hold && !cl.req.PassHold:
		v.held, v.rec.Held = true, true
		if n := min(cl.req.HoldAfter, max(0, v.tokens()-1)); n > 0 {
			st.after(answerTime, func() { v.produce(n) })
		}
	case sv.engine != nil:
		sv.nextID++
		v.id = sv.nextID
		sv.running[v.id] = v
		prompt := cl.promptTokens
		if prompt == 0 {
			prompt = int(c.request.Tokens)
		}
		sv.step(engine.Event{Kind: engine.Admit, ID: v.id, PromptTokens: prompt, OutputTokens: cl.outputTokens, MaxTokens: v.tokens()})
	default:
		st.after(answerTime, func() { v.produce(v.tokens()) })
	}
	return v
}

// fail is the model server's own error answer, which the router passes on.
func (v *visit) fail(status int) {
	if v.over {
		return
	}
	v.over = true
	st := v.sv.st
	const text = `{"error":{"message":"injected"}}`
	v.rec.Ending, v.rec.End, v.rec.Text = evidence.Failed, int64(st.now), text
	v.status = status
	if f := st.sys.opts.Tamper.Plane.Upstream; f != nil {
		status = f(status)
	}
	st.after(hop, v.call.finish)
	st.after(hop, func() {
		v.call.client.refused(st, wire.Refusal{Status: status, Body: text})
	})
}

func controlHeaders(h map[string]string) []string {
	var out []string
	for _, n := range wire.ControlHeaders {
		if _, ok := h[n]; ok {
			out = append(out, n)
		}
	}
	sort.Strings(out)
	return out
}

// tokens is the length of the answer.
func (v *visit) tokens() int {
	if n, err := strconv.Atoi(v.call.client.headers[wire.HeaderOutputTokens]); err == nil && n > 0 {
		return n
	}
	if n := v.call.client.req.MaxTokens; n > 0 {
		return n
	}
	return 4
}

func (sv *server) release(v *visit) {
	v.held = false
	v.rec.Released = int64(sv.st.now)
	sv.st.after(answerTime/2, func() { v.produce(v.tokens()) })
}

// produce brings the answer to n tokens; a stream sends them, anything else waits for the last. The last one ends the visit.
func (v *visit) produce(n int) {
	if v.over || n <= v.sent {
		return
	}
	st := v.sv.st
	fresh := n - v.sent
	v.sent = n
	v.rec.Tokens = n
	if v.call.client.req.Stream {
		if v.rec.Writes++; v.rec.Writes > 1 {
			v.rec.Pause = max(v.rec.Pause, int64(st.now-v.wrote))
		}
		v.wrote = st.now
	}
	if v.rec.FirstToken == evidence.Never {
		v.rec.FirstToken = int64(st.now)
		v.call.router.firstChunk(v.call)
	}
	c := v.call.client
	last := n >= v.tokens()
	if c.req.Stream {
		st.after(hop, func() { c.token(st, v.sv.spec.Name, fresh) })
	}
	if !last {
		return
	}
	v.finish()
	st.after(hop, v.call.finish)
	st.after(hop, func() {
		if !c.req.Stream {
			c.token(st, v.sv.spec.Name, n)
		}
		c.end(st, evidence.Completed)
	})
}

func (v *visit) finish() {
	v.over = true
	v.rec.Ending, v.rec.End = evidence.Finished, int64(v.sv.st.now)
}

// abort is the disconnect as the model server sees it.
func (v *visit) abort() {
	if v.over {
		return
	}
	v.over = true
	v.rec.Ending, v.rec.End = evidence.Aborted, int64(v.sv.st.now)
	if v.id != 0 {
		delete(v.sv.running, v.id)
		v.sv.step(engine.Event{Kind: engine.Abort, ID: v.id})
	}
}

// firstChunk tells the picker that the response has begun.
func (r *router) firstChunk(c *call) {
	r.st.after(hop, func() {
		if !c.finished {
			r.step(picker.Event{Kind: picker.FirstChunk, ID: c.id})
		}
	})
}

// step feeds the engine and carries its tokens out.
func (sv *server) step(ev engine.Event) {
	sv.outs = sv.engine.Step(sv.st.now, ev, sv.outs[:0])
	for _, o := range sv.outs {
		v := sv.running[o.ID]
		if v == nil {
			continue
		}
		switch o.Kind {
		case engine.FirstToken, engine.Token:
			v.produce(o.Tokens)
		case engine.Finished:
			v.produce(o.Tokens)
			delete(sv.running, o.ID)
		case engine.Preempted:
			v.rec.Preemptions++
		case engine.Refused:
			delete(sv.running, o.ID)
			v.over = true
			v.rec.Ending, v.rec.End = evidence.Failed, int64(sv.st.now)
			c := v.call
			sv.st.after(hop, func() {
				c.client.refused(sv.st, wire.Refusal{Status: 400, Body: "prompt does not fit the engine"})
				c.finish()
			})
		}
	}
	if at, ok := sv.engine.Deadline(); ok {
		sv.st.at(at, func() {
			if d, ok := sv.engine.Deadline(); ok && d <= sv.st.now {
				sv.step(engine.Event{Kind: engine.Tick})
			}
		})
	}
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
