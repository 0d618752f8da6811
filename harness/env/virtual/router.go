package virtual

import (
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/extproc"
	"github.com/llm-weir/weir/reference/picker"
)

// router is the reference picker and its data plane on the agenda.
type router struct {
	st       *stage
	sys      *System
	wiring   epp.Wiring
	metrics  *epp.Metrics
	pool     []picker.Endpoint
	calls    map[uint64]*call
	nextID   uint64
	tickAt   time.Duration
	tickSet  bool
	outs     []picker.Out
	swept    time.Duration
	stopping bool
	sharing
}

func newRouter(st *stage, s *System, w epp.Wiring) *router {
	r := &router{st: st, sys: s, wiring: w, metrics: epp.NewMetrics("virtual", s.loaded), calls: map[uint64]*call{}}
	st.replicas++
	r.replica = st.replicas
	r.provision()
	if r.shares() {
		st.after(syncBeat, r.beat)
	}
	return r
}

// provision tells the picker of the priorities of all objectives.
func (r *router) provision() {
	var priorities []int
	for _, name := range sortedKeys(r.sys.cfg.Objectives) {
		priorities = append(priorities, r.sys.cfg.Objectives[name])
	}
	r.step(picker.Event{Kind: picker.SetPriorities, Priorities: priorities})
}

// relabel tells the picker of the role of a server in its pool.
func (r *router) relabel(sv *server) {
	for i, e := range r.pool {
		if e.ID == sv.id {
			r.pool[i].Role = epp.RoleOf(sv.spec.Role)
			r.metrics.Endpoints(r.pool)
			r.step(picker.Event{Kind: picker.SetEndpoint, Endpoint: r.pool[i]})
		}
	}
}

func (r *router) join(sv *server) {
	r.pool = append(r.pool, picker.Endpoint{ID: sv.id, Name: sv.spec.Name, Address: sv.address, Role: epp.RoleOf(sv.spec.Role)})
	r.metrics.Endpoints(r.pool)
	r.step(picker.Event{Kind: picker.SetEndpoint, Endpoint: r.pool[len(r.pool)-1]})
	r.scrape(sv)
}

func (r *router) leave(sv *server) {
	for i, e := range r.pool {
		if e.ID == sv.id {
			r.pool = append(r.pool[:i:i], r.pool[i+1:]...)
			r.metrics.Endpoints(r.pool)
			r.step(picker.Event{Kind: picker.RemoveEndpoint, Endpoint: e})
			return
		}
	}
}

// scrape polls a model server's metrics for as long as it is in the pool.
func (r *router) scrape(sv *server) {
	if !sv.inPool || !slices.Contains(r.st.routers(), r) {
		return
	}
	began := r.st.now
	l := sv.load()
	l.At = began
	if sv.fault != "hang" {
		sv.scrapes++
	}
	r.metrics.Sample(sv.id, l)
	r.step(picker.Event{Kind: picker.Sample, Endpoint: picker.Endpoint{ID: sv.id}, Load: l})
	r.st.after(scrapePeriod, func() { r.scrape(sv) })
}

func (r *router) shutdown() {
	r.stopping = true
	r.step(picker.Event{Kind: picker.Shutdown})
}

// step feeds the machine and carries its decisions out.
func (r *router) step(ev picker.Event) {
	outs := r.wiring.Machine.Step(r.st.now, ev, r.outs[:0])
	r.outs = nil
	for i := range outs {
		r.decide(&outs[i])
	}
	r.outs = outs[:0]
	r.metrics.CycleTook(0)
	r.metrics.Pressure(r.wiring.Machine.Pressure())
	if r.wiring.Evictions != nil {
		r.metrics.Evictions(r.wiring.Evictions())
	}
	if r.wiring.HasFlow != nil && r.st.now-r.swept >= time.Second {
		r.swept = r.st.now
		r.metrics.Sweep(r.st.now, r.wiring.HasFlow)
	}
	r.tell(false)
	at, ok := r.wiring.Machine.Deadline()
	if !ok || r.tickSet && r.tickAt <= at {
		return
	}
	r.tickAt, r.tickSet = at, true
	r.st.at(at, func() {
		if r.tickSet && r.st.now >= r.tickAt {
			r.tickSet = false
		}
		r.step(picker.Event{Kind: picker.Tick})
	})
}

func (r *router) decide(o *picker.Out) {
	c := r.calls[o.ID]
	if c == nil {
		return
	}
	q := &c.request
	endpoint := ""
	outcome := o.Outcome
	switch o.Kind {
	case picker.Dispatch:
		if c.dispatched {
			return
		}
		outcome = wire.Dispatched
		c.exchanged(r.st.serverByID(o.Endpoint).spec.Name)
		sv := r.st.serverByID(o.Endpoint)
		c.dispatched = true
		endpoint = sv.spec.Name
		r.st.after(hop, func() { c.forward(sv) })
	case picker.Reject:
		if c.dispatched {
			return
		}
		delete(r.calls, o.ID)
		c.exchanged("")
		refusal := r.wiring.Refuse(o.Outcome)
		r.metrics.Refused(epp.LabelsOf(q), refusal.Status)
		if r.sys.opts.Tamper.Plane.ForwardRefused {
			r.st.after(hop, func() { c.forward(r.st.servers[0]) })
		}
		r.st.after(hop, func() { c.client.refused(r.st, refusal) })
	case picker.Evict:
		if !c.dispatched || c.evicted {
			return
		}
		c.evicted = true
		r.st.after(hop, c.stop)
	}
	if o.Kind != picker.Evict {
		r.metrics.Decided(epp.LabelsOf(q), o.Band, q.Bytes, outcome, o.Waited)
	}
	r.st.out.Decision(evidence.Decision{At: int64(r.st.now), ID: c.client.rec.ID, Kind: kindName(o.Kind), Outcome: outcome.String(),
		Flow: q.FairnessID, Priority: q.Priority, Endpoint: endpoint, Waited: int64(o.Waited), Saturation: r.wiring.Machine.Pressure().Effective})
}

func kindName(k picker.OutKind) string {
	switch k {
	case picker.Dispatch:
		return "dispatch"
	case picker.Reject:
		return "reject"
	}
	return "evict"
}

func (r *router) families() ([]*dto.MetricFamily, error) {
	return epp.Through(r.metrics.Gatherer(), r.wiring.Families).Gather()
}

// call is one request inside the router: from the end of its body to the end of its stream.
type call struct {
	st         *stage
	client     *client
	id         uint64
	request    picker.Request
	submitted  bool
	dispatched bool
	finished   bool
	evicted    bool
	gone       bool // the client left
	router     *router
	identity   extproc.Identity
	reported   bool
	visit      *visit
}

// start is the end of the request's body at the picker.
func (c *call) start() {
	r := c.st.routerOf(c.client.req.Picker)
	c.router = r
	if c.gone {
		return
	}
	if c.client.req.Method == http.MethodGet && !r.sys.opts.Tamper.Plane.QueueBodyless {
		c.pass()
		return
	}
	path := extproc.Headers{":path": env.Path(c.client.req)}.Path()
	b, refusal := extproc.ParseBody(path, c.client.body)
	if r.sys.opts.Tamper.Plane.SkipValidation {
		refusal, b.Known = nil, true
	}
	if refusal == nil && !b.Known && !r.sys.loaded.Passthrough {
		refusal = extproc.UnknownPath(path)
	}
	id := r.wiring.Classify(c.routerHeaders())
	c.identity = id
	if refusal != nil {
		r.metrics.Refused(epp.Labels{Model: b.Model, Target: b.Model, FairnessID: id.FairnessID, Priority: r.sys.cfg.Objectives[id.Objective]}, refusal.Status)
		c.st.after(hop, func() { c.client.refused(c.st, *refusal) })
		return
	}
	r.nextID++
	c.id = r.nextID
	c.submitted = true
	c.request = picker.Request{FairnessID: id.FairnessID, Priority: r.sys.cfg.Objectives[id.Objective], Bytes: int64(len(c.client.body)),
		Received: c.st.now, TTFT: id.TTFT, HasTTFT: id.HasTTFT}
	b.Into(&c.request, b.Model, epp.Prefix(r.sys.loaded.Picker.Scheduling))
	if list, ok := c.client.headers[wire.HeaderSubset]; ok {
		c.request.HasSubset, c.request.Subset = true, strings.Split(list, ",")
	}
	r.calls[c.id] = c
	r.metrics.Enqueued(epp.LabelsOf(&c.request), c.request.Bytes)
	c.streamed()
	r.metrics.EnqueueTook(epp.LabelsOf(&c.request), 0)
	r.step(picker.Event{Kind: picker.Arrive, ID: c.id, Request: c.request})
}

// forward is the request's arrival at its model server.
func (c *call) forward(sv *server) {
	if c.finished {
		return
	}
	c.visit = sv.arrive(c)
	if c.halfClosed() {
		c.finish() // the router sees the end of its stream
	}
	if c.st.sys.opts.Tamper.Plane.Twice {
		sv.arrive(c)
	}
}

// finish is the end of the stream at the picker: the resources are free. It happens once, whatever ended the stream.
func (c *call) finish() {
	if c.finished || !c.submitted || !c.dispatched {
		return
	}
	c.finished = true
	r := c.router
	if r.sys.opts.Tamper.Plane.LeakSameID && r.sameIDOpen(c) {
		return
	}
	delete(r.calls, c.id)
	r.metrics.Finished(epp.LabelsOf(&c.request))
	c.report()
	ev := picker.Event{Kind: picker.Finish, ID: c.id}
	if v := c.visit; v != nil && v.rec.Ending == evidence.Finished { // an answer that ended as it should says what it used
		ev.Usage = picker.Usage{Prompt: int64(v.rec.PromptTokens), Completion: int64(v.rec.Tokens)}
	}
	r.step(ev)
}

// clientLeft is the disconnect as the data plane sees it.
func (c *call) clientLeft() {
	c.gone = true
	switch {
	case !c.submitted:
	case !c.dispatched:
		c.router.step(picker.Event{Kind: picker.Cancel, ID: c.id})
		if c.dispatched { // the machine had other plans; the stream is over all the same
			c.abort()
		}
	default:
		c.abort()
	}
}

func (c *call) abort() {
	c.finish()
	if c.st.sys.opts.Tamper.Plane.IgnoreDisconnect {
		return
	}
	c.st.after(hop, func() {
		if c.visit != nil {
			c.visit.abort()
		}
	})
}

// stop carries an eviction out: 429 before the response headers, a broken stream after them; the model server sees an abort.
func (c *call) stop() {
	if c.finished {
		return
	}
	switch {
	case c.client.rec.Headers == evidence.Never:
		c.client.refused(c.st, wire.Evicted())
	case c.st.sys.opts.Tamper.Plane.CompleteEvicted:
		c.client.end(c.st, evidence.Completed)
	default:
		c.client.rec.Reason = ""
		c.client.end(c.st, evidence.KilledMidStream)
	}
	c.abort()
}

// sameIDOpen tells whether another open request has the x-request-id of c.
func (r *router) sameIDOpen(c *call) bool {
	id := c.client.headers[wire.HeaderRequestID]
	for _, o := range r.calls {
		if id != "" && o != c && !o.finished && o.client.headers[wire.HeaderRequestID] == id {
			return true
		}
	}
	return false
}
