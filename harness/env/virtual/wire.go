package virtual

import (
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/extproc"
	"github.com/llm-weir/weir/reference/picker"
	simserver "github.com/llm-weir/weir/sim-vllm/server"
)

// This file is what the data plane would do on the wire between itself and the router.

// routerHeaders are the request's headers as the router reads them: whatever form they have, names in any case, the last value of a
// repeated one.
func (c *call) routerHeaders() extproc.Headers {
	plane := c.st.sys.opts.Tamper.Plane
	form := c.client.headers[wire.HeaderForm]
	h := extproc.Headers{}
	if plane.RawOnly && strings.Contains(form, wire.FormValue) || plane.CaseSensitive && strings.Contains(form, wire.FormUpper) {
		return h
	}
	for k, v := range c.client.headers {
		h[k] = v
	}
	if name, value, ok := strings.Cut(c.client.headers[wire.HeaderRepeat], "="); ok && !plane.FirstWins {
		h[strings.ToLower(name)] = value
	}
	return h
}

// streamed arms what the request asks of its ext_proc stream.
func (c *call) streamed() {
	plane := c.st.sys.opts.Tamper.Plane
	if plane.HalfCloseCancels && c.halfClosed() {
		c.st.after(hop, func() { c.lost(500, "the stream was closed") })
	}
	if d, err := time.ParseDuration(c.client.headers[wire.HeaderDeadline]); err == nil && d > 0 && !plane.IgnoreDeadline {
		c.st.after(d, func() { c.lost(504, "the deadline of the stream is over") })
	}
	if plane.Early {
		c.exchange("", 0)
	}
}

func (c *call) halfClosed() bool { return c.client.headers[wire.HeaderHalfClose] != "" }

// lost ends a waiting request with its stream.
func (c *call) lost(status int, text string) {
	if c.dispatched || c.gone || c.client.ended {
		return
	}
	c.gone = true
	c.router.step(picker.Event{Kind: picker.Cancel, ID: c.id})
	c.client.refused(c.st, wire.Refusal{Status: status, Body: text})
}

// pass is a request without a body: it takes the next endpoint and does not wait.
func (c *call) pass() {
	r := c.router
	c.submitted = true
	if len(r.pool) == 0 {
		c.exchange("", hop)
		refusal := r.wiring.Refuse(wire.RejectedNoEndpoints)
		c.st.after(hop, func() { c.client.refused(c.st, refusal) })
		return
	}
	sv := r.st.serverByID(r.pool[0].ID)
	c.exchange(sv.spec.Name, hop)
	c.st.after(hop, func() { c.visit = sv.arrive(c) })
}

// exchanged records the router's answer to the request, once; endpoint is "" for a refusal.
func (c *call) exchanged(endpoint string) {
	if !c.st.sys.opts.Tamper.Plane.Early {
		c.exchange(endpoint, hop)
	}
}

func (c *call) exchange(endpoint string, after time.Duration) {
	x := evidence.Exchange{ID: c.client.rec.ID, RequestID: c.client.headers[wire.HeaderRequestID], First: int64(c.st.now + after),
		HeaderDestination: endpoint, MetadataDestination: endpoint}
	if f := c.st.sys.opts.Tamper.Plane.Metadata; f != nil {
		x.MetadataDestination = f(endpoint)
	}
	c.st.out.Exchange(x)
}

// answer gives an answer by name, as the simulator does.
func (v *visit) answer(name string) {
	if v.over {
		return
	}
	if breaks, begun := simserver.Breaks(name); breaks {
		v.breakOff(begun)
		return
	}
	body, _, known := simserver.Answer(name)
	if !known {
		v.fail(400)
		return
	}
	st, c := v.sv.st, v.call.client
	v.rec.FirstToken = int64(st.now)
	v.rec.AnswerSHA256 = env.Hash(body)
	v.finish()
	if f := st.sys.opts.Tamper.Plane.Answer; f != nil {
		body = f(body)
	}
	st.after(hop, v.call.finish)
	st.after(hop, func() {
		c.token(st, v.sv.spec.Name, 0)
		c.rec.ResponseBytes, c.rec.AnswerSHA256 = int64(len(body)), env.Hash(body)
		c.end(st, evidence.Completed)
	})
}

// breakOff resets the connection to the data plane, which answers 503 if it has not passed anything on.
func (v *visit) breakOff(begun bool) {
	st, c := v.sv.st, v.call.client
	v.over = true
	v.rec.Ending, v.rec.End = evidence.Failed, int64(st.now)
	v.status = 503
	st.after(hop, v.call.finish)
	if !begun {
		st.after(hop, func() { c.refused(st, wire.Refusal{Status: 503, Body: "the model server closed the connection"}) })
		return
	}
	v.rec.FirstToken = int64(st.now)
	st.after(hop, func() {
		c.token(st, v.sv.spec.Name, 0)
		c.end(st, evidence.KilledMidStream)
	})
}

// report tells the router's metrics how a request was answered, as its exchange would.
func (c *call) report() {
	v := c.visit
	if c.reported || c.router == nil || v == nil || c.halfClosed() {
		return
	}
	c.reported = true
	st := c.st
	rep := extproc.Report{Identity: c.identity, Model: c.request.Model, Target: c.request.Model, Priority: c.request.Priority, Streaming: v.rec.Stream,
		Complete: v.rec.Ending != evidence.Aborted && v.rec.Ending != evidence.Running, RequestBytes: int64(len(c.client.body)), Received: c.request.Received,
		Answered: time.Duration(v.rec.Arrival), Ended: st.now, Status: 200}
	if v.rec.FirstToken != evidence.Never {
		rep.FirstByte, rep.LastByte, rep.ResponseBytes = time.Duration(v.rec.FirstToken), st.now, int64(max(1, 4*v.rec.Tokens))
	}
	if v.rec.Ending == evidence.Failed {
		rep.Status = v.status
	}
	if name := c.client.headers[wire.HeaderAnswer]; name != "" {
		body, kind, _ := simserver.Answer(name)
		rep.ResponseBytes = int64(len(body))
		rep.Usage, rep.Streaming = extproc.UsageOf(kind, body), strings.HasPrefix(kind, "text/event-stream")
	} else if !v.rec.Stream && v.rec.Ending == evidence.Finished {
		rep.Usage = extproc.Usage{Known: true, Prompt: int64(v.rec.PromptTokens), Completion: int64(v.rec.Tokens)}
	}
	c.router.metrics.Answered(rep)
}

// page is the part of a model server's metrics page that scenarios read.
func (sv *server) page() []*dto.MetricFamily {
	l := sv.load()
	if sv.st.sys.opts.Tamper.Plane.BlindEngine {
		l.Waiting = 0
	}
	preempted := 0
	for _, v := range sv.visits {
		preempted += v.rec.Preemptions
	}
	gauge := func(name string, v float64) *dto.MetricFamily {
		return &dto.MetricFamily{Name: &name, Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &v}}}}
	}
	name, count := wire.VLLMPreemptions, float64(preempted)
	return []*dto.MetricFamily{gauge(wire.VLLMWaiting, l.Waiting), gauge(wire.VLLMRunning, l.Running), gauge(wire.VLLMKVUsage, l.KV),
		{Name: &name, Type: dto.MetricType_COUNTER.Enum(), Metric: []*dto.Metric{{Counter: &dto.Counter{Value: &count}}}}}
}
