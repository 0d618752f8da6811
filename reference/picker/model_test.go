package picker

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/flowcontrol"
)

// model is the picker written for a reader: no index, no list, no cache. Whatever it wants to know it searches for among all
// requests, endpoints and bands. It shares nothing with the picker but the vocabulary and the protocol of the random draws.
type model struct {
	cfg       Config
	now       time.Duration
	reqs      []*modelRequest // live, by arrival
	eps       []*modelEndpoint
	gone      map[EndpointID]*modelEndpoint
	bands     []*modelBand
	down      bool
	regime    time.Duration
	arrivals  int
	starts    int
	turns     int
	rng       *rand.Rand
	victims   []uint64 // told to stop and not ended
	decided   time.Duration
	cool      time.Duration
	confirmed int64
	timedOut  int64
	demand    *modelBand // that the victims were stopped for
	took      []time.Duration
	tick      int // of the soft-reflective ceilings
	held      bool
	again     time.Duration
	served    []modelService
	prompts   map[EndpointID][]uint64 // newest first
	reports   []Report                // of other replicas, all that ever came and were no late news
}

// modelService is what one request has consumed.
type modelService struct {
	band   *modelBand
	flow   string
	at     time.Duration
	tokens float64
}

type modelRequest struct {
	Request
	id       uint64
	seq      int
	entered  time.Duration
	band     *modelBand
	ep       *modelEndpoint
	started  time.Duration
	startSeq int
	evicted  bool
	prefill  *modelEndpoint
	chunk    bool // the response has begun
}

type modelEndpoint struct {
	Endpoint
	load    Load
	sampled bool
	scraped bool // ever
}

type modelBand struct {
	flowcontrol.BandConfig
	static, wanted bool
	idleSince      time.Duration
	flows          map[string]*modelFlow
	quiet          map[string]time.Duration // when a flow last became idle, collected or not
	paid           int
	ceiling        float64 // soft-reflective
}

type modelFlow struct {
	turn      int // when the flow last joined the end of the round
	idleSince time.Duration
}

func newModel(cfg Config) *model {
	m := &model{cfg: cfg, gone: map[EndpointID]*modelEndpoint{}, prompts: map[EndpointID][]uint64{}, rng: rand.New(rand.NewPCG(cfg.Scheduling.Seed, 0))}
	for _, b := range cfg.Flow.Bands {
		m.provision(b, true)
	}
	if m.band(0) == nil {
		b := cfg.Flow.DefaultBand
		b.Priority = 0
		m.provision(b, true)
	}
	return m
}

func (m *model) provision(c flowcontrol.BandConfig, static bool) *modelBand {
	b := &modelBand{BandConfig: c, static: static, ceiling: 1, flows: map[string]*modelFlow{}, quiet: map[string]time.Duration{}}
	m.bands = append(m.bands, b)
	slices.SortFunc(m.bands, func(a, b *modelBand) int {
		if a.Priority > b.Priority {
			return -1
		}
		return 1
	})
	return b
}

func (m *model) band(p int) *modelBand {
	for _, b := range m.bands {
		if b.Priority == p {
			return b
		}
	}
	return nil
}

func (m *model) find(id uint64) *modelRequest {
	for _, r := range m.reqs {
		if r.id == id {
			return r
		}
	}
	return nil
}

// where gives the live requests for which keep holds.
func (m *model) where(keep func(*modelRequest) bool) []*modelRequest {
	var rs []*modelRequest
	for _, r := range m.reqs {
		if keep(r) {
			rs = append(rs, r)
		}
	}
	return rs
}

func queuedIn(b *modelBand) func(*modelRequest) bool {
	return func(r *modelRequest) bool { return r.ep == nil && (b == nil || r.band == b) }
}

func (m *model) on(e *modelEndpoint) int {
	return len(m.where(func(r *modelRequest) bool { return r.ep == e })) + len(m.filling(e))
}

func (m *model) filling(e *modelEndpoint) []*modelRequest {
	return m.where(func(r *modelRequest) bool { return r.prefill == e && !r.chunk })
}

// work is the tokens that a request accounts where it runs.
func (m *model) work(r *modelRequest) int64 {
	d := m.cfg.Flow.Detector
	switch {
	case !d.EstimateOutput && r.chunk:
		return 0
	case !d.EstimateOutput:
		return r.Tokens
	}
	output := int64(math.Round(float64(r.Tokens) * d.OutputRatio))
	for _, limit := range []int64{r.MaxOutput, d.MaxEstimatedOutput} {
		if limit > 0 && output > limit {
			output = limit
		}
	}
	return r.Tokens + output
}

func (m *model) tokensOn(e *modelEndpoint) (n int64) {
	for _, r := range m.where(func(r *modelRequest) bool { return r.ep == e }) {
		n += m.work(r)
	}
	for _, r := range m.filling(e) {
		n += r.Tokens
	}
	return n
}

func (m *model) expiry(r *modelRequest) (time.Duration, bool) {
	budget := m.cfg.Flow.TTL
	if len(m.eps) == 0 {
		budget = m.cfg.Flow.NoEndpointTTL
	}
	if r.TTL > 0 && (budget == 0 || r.TTL < budget) {
		budget = r.TTL
	}
	return max(r.entered, m.regime) + budget, budget > 0
}

// forget removes a live request and notes what became idle by it.
func (m *model) forget(r *modelRequest) {
	m.reqs = slices.DeleteFunc(m.reqs, func(o *modelRequest) bool { return o == r })
	if !slices.ContainsFunc(m.reqs, func(o *modelRequest) bool { return o.band == r.band && o.FairnessID == r.FairnessID }) {
		r.band.flows[r.FairnessID].idleSince = m.now
		r.band.quiet[r.FairnessID] = m.now
	}
	m.clamp()
	if !slices.ContainsFunc(m.reqs, func(o *modelRequest) bool { return o.band == r.band }) {
		r.band.idleSince = m.now
	}
}

// clamp: whoever leaves takes what was paid for it along, unless others wait for whom it can be.
func (m *model) clamp() {
	for _, b := range m.bands {
		b.paid = min(b.paid, len(m.where(queuedIn(b))))
	}
}

func (m *model) reject(r *modelRequest, o wire.Outcome) Out {
	m.forget(r)
	return Out{Kind: Reject, ID: r.id, Outcome: o, Band: r.band.Priority, Waited: m.now - r.entered}
}

func (m *model) emptyOr(empty, other wire.Outcome) wire.Outcome {
	if m.cfg.Flow.EmptyPoolOutcomes && len(m.eps) == 0 {
		return empty
	}
	return other
}

func (m *model) Step(now time.Duration, ev Event) (out []Out) {
	m.now = max(m.now, now)
	due := m.where(func(r *modelRequest) bool { at, ok := m.expiry(r); return r.ep == nil && ok && at <= m.now })
	slices.SortStableFunc(due, func(a, b *modelRequest) int {
		x, _ := m.expiry(a)
		y, _ := m.expiry(b)
		return int(x - y)
	})
	for _, r := range due {
		out = append(out, m.reject(r, m.emptyOr(wire.EvictedNoEndpoints, wire.EvictedTTL)))
	}
	if len(m.victims) > 0 && m.decided+10*time.Second <= m.now {
		m.timedOut += int64(len(m.victims))
		m.demand.paid = max(0, m.demand.paid-len(m.victims))
		m.victims = nil
		m.cool = m.now + m.grace()
	}
	m.collect()
	out = m.apply(ev, out)
	for {
		var more bool
		if out, more = m.pass(out); !more {
			return out
		}
	}
}

func (m *model) apply(ev Event, out []Out) []Out {
	wasEmpty := len(m.eps) == 0
	switch r := m.find(ev.ID); ev.Kind {
	case Arrive:
		if r == nil {
			return m.arrive(ev, out)
		}
	case Cancel:
		if r != nil && r.ep == nil {
			out = append(out, m.reject(r, wire.EvictedContextCancelled))
		}
	case Finish:
		switch {
		case r == nil:
		case r.ep == nil:
			out = append(out, m.reject(r, wire.EvictedContextCancelled))
		default:
			m.served = append(m.served, modelService{r.band, r.FairnessID, m.now, float64(ev.Usage.Prompt + 2*ev.Usage.Completion)})
			m.forget(r)
			if i := slices.Index(m.victims, r.id); i >= 0 {
				m.victims = slices.Delete(m.victims, i, i+1)
				m.confirmed++
				m.took = append(m.took, m.now-m.decided)
				if len(m.victims) == 0 {
					m.cool = m.now + m.grace()
				}
			}
		}
	case FirstChunk:
		if r != nil && r.ep != nil {
			r.chunk = true
		}
	case SetEndpoint:
		m.setEndpoint(ev.Endpoint)
	case RemoveEndpoint:
		if e := m.endpoint(ev.Endpoint.ID); e != nil {
			e.sampled, e.load = false, Load{At: e.load.At}
			m.gone[e.ID] = e
			delete(m.prompts, e.ID)
			m.eps = slices.DeleteFunc(m.eps, func(o *modelEndpoint) bool { return o == e })
		}
	case Sample:
		if e := m.endpoint(ev.Endpoint.ID); e != nil && ev.Load.OK && (!e.scraped || ev.Load.At >= e.load.At) {
			e.load, e.sampled, e.scraped = ev.Load, true, true
		}
	case Foreign:
		m.report(ev.Report)
	case SetPriorities:
		m.setPriorities(ev.Priorities)
	case Shutdown:
		m.down = true
		for _, r := range m.where(queuedIn(nil)) {
			out = append(out, m.reject(r, wire.EvictedOther))
		}
	}
	if wasEmpty != (len(m.eps) == 0) {
		m.regime = m.now
	}
	return out
}

func (m *model) endpoint(id EndpointID) *modelEndpoint {
	for _, e := range m.eps {
		if e.ID == id {
			return e
		}
	}
	return nil
}

func (m *model) setEndpoint(ep Endpoint) {
	e := m.endpoint(ep.ID)
	if e == nil {
		if e = m.gone[ep.ID]; e == nil {
			e = &modelEndpoint{}
		}
		m.eps = append(m.eps, e)
	}
	e.Endpoint = ep
	slices.SortFunc(m.eps, func(a, b *modelEndpoint) int { return int(a.ID - b.ID) })
}

func (m *model) setPriorities(ps []int) {
	for _, b := range m.bands {
		wanted := slices.Contains(ps, b.Priority)
		if b.wanted && !wanted {
			b.idleSince = m.now
		}
		b.wanted = wanted
	}
	for _, p := range ps {
		if m.band(p) == nil {
			c := m.cfg.Flow.DefaultBand
			if p < 0 {
				c = m.cfg.Flow.DefaultNegativeBand
			}
			c.Priority = p
			m.provision(c, false).wanted = true
		}
	}
}

func (m *model) arrive(ev Event, out []Out) []Out {
	b := m.band(ev.Request.Priority)
	if b == nil {
		b = m.band(0)
	}
	no := func(o wire.Outcome) []Out {
		return append(out, Out{Kind: Reject, ID: ev.ID, Outcome: o, Band: b.Priority})
	}
	if m.down {
		return no(wire.RejectedOther)
	}
	for _, scope := range []struct {
		band            *modelBand
		requests, bytes int64
	}{{nil, m.cfg.Flow.MaxRequests, m.cfg.Flow.MaxBytes}, {b, b.MaxRequests, b.MaxBytes}} {
		n, sum := int64(1), ev.Request.Bytes
		for _, r := range m.where(queuedIn(scope.band)) {
			n++
			sum += r.Bytes
		}
		if scope.bytes > 0 && sum > scope.bytes || scope.requests > 0 && n > scope.requests {
			return no(m.emptyOr(wire.RejectedNoEndpoints, wire.RejectedCapacity))
		}
	}
	m.arrivals++
	r := &modelRequest{Request: ev.Request, id: ev.ID, seq: m.arrivals, entered: m.now, band: b}
	if at, ok := b.quiet[r.FairnessID]; ok && m.tooOld(at) && !m.leased(b, r.FairnessID) {
		m.unserve(b, r.FairnessID)
	}
	f := b.flows[r.FairnessID]
	if f == nil {
		f = &modelFlow{}
		b.flows[r.FairnessID] = f
	}
	if len(m.where(func(o *modelRequest) bool { return queuedIn(b)(o) && o.FairnessID == r.FairnessID })) == 0 {
		m.turns++
		f.turn = m.turns
	}
	m.reqs = append(m.reqs, r)
	return out
}

func (m *model) tooOld(idleSince time.Duration) bool {
	ttl := m.cfg.Flow.ProgramAware.IdleTTL
	return ttl > 0 && idleSince+ttl <= m.now
}

func (m *model) unserve(b *modelBand, flow string) {
	m.served = slices.DeleteFunc(m.served, func(s modelService) bool { return s.band == b && s.flow == flow })
}

// service that a flow has attained, faded.
func (m *model) service(b *modelBand, flow string) (sum float64) {
	for _, s := range m.served {
		if s.band == b && s.flow == flow {
			fade := 1.0
			if h := m.cfg.Flow.ProgramAware.HalfLife; h > 0 {
				fade = math.Exp2(-float64(m.now-s.at) / float64(h))
			}
			sum += s.tokens * fade
		}
	}
	return sum
}

// remembered are the collected flows of a band whose service is still known.
func (m *model) remembered(b *modelBand) (flows []string) {
	for flow := range b.quiet {
		if b.Fairness == flowcontrol.ProgramAware && b.flows[flow] == nil && m.service(b, flow) > 0 {
			flows = append(flows, flow)
		}
	}
	return flows
}

func (m *model) collect() {
	f := m.cfg.Flow
	m.bands = slices.DeleteFunc(m.bands, func(b *modelBand) bool {
		at, ok := m.bandIdleAt(b)
		return ok && at <= m.now
	})
	for _, b := range m.bands {
		for id, fl := range b.flows {
			if f.FlowIdle > 0 && !m.leased(b, id) && fl.idleSince+f.FlowIdle <= m.now {
				delete(b.flows, id)
			}
		}
		for _, flow := range m.remembered(b) {
			if m.tooOld(b.quiet[flow]) {
				m.unserve(b, flow)
			}
		}
	}
}

func (m *model) bandIdleAt(b *modelBand) (time.Duration, bool) {
	busy := slices.ContainsFunc(m.reqs, func(r *modelRequest) bool { return r.band == b })
	return b.idleSince + m.cfg.Flow.BandIdle, m.cfg.Flow.BandIdle > 0 && !b.static && !b.wanted && !busy
}

func (m *model) leased(b *modelBand, flow string) bool {
	return slices.ContainsFunc(m.reqs, func(r *modelRequest) bool { return r.band == b && r.FairnessID == flow })
}

func (m *model) Deadline() (at time.Duration, ok bool) {
	sooner := func(t time.Duration, due bool) {
		if due && (!ok || t < at) {
			at, ok = t, true
		}
	}
	queued := m.where(queuedIn(nil))
	for _, r := range queued {
		sooner(m.expiry(r))
	}
	for _, e := range m.eps {
		if m.fresh(e) && len(queued) > 0 && m.cfg.Flow.Detector.Kind == flowcontrol.Utilization {
			sooner(e.load.At+m.cfg.Flow.Detector.Staleness+1, true)
		}
	}
	for _, r := range m.reports {
		if m.counts(r) {
			sooner(r.At+m.cfg.Flow.Detector.ForeignLimit+1, true)
		}
	}
	sooner(m.again, m.held && len(queued) > 0)
	sooner(m.decided+10*time.Second, len(m.victims) > 0)
	sooner(m.cool, len(m.victims) == 0 && len(m.stoppable()) > 0 && len(queued) > 0 && m.cool > m.now)
	for _, b := range m.bands {
		sooner(m.bandIdleAt(b))
		for _, flow := range m.remembered(b) {
			sooner(b.quiet[flow]+m.cfg.Flow.ProgramAware.IdleTTL, m.cfg.Flow.ProgramAware.IdleTTL > 0)
		}
		for id, f := range b.flows {
			sooner(f.idleSince+m.cfg.Flow.FlowIdle, m.cfg.Flow.FlowIdle > 0 && !m.leased(b, id))
		}
	}
	return at, ok
}
