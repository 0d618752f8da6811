package picker

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/scheduling"
)

func (m *model) fresh(e *modelEndpoint) bool {
	return e.sampled && e.load.HasWaiting && e.load.HasKV && m.now-e.load.At <= m.cfg.Flow.Detector.Staleness
}

// saturation of the endpoints of some roles; n is their number, known that of those whose load is known.
func (m *model) saturation(projected bool, in ...Role) (s float64, n, known int) {
	d := m.cfg.Flow.Detector
	var sum, hybrid float64
	var running int
	var tokens int64
	for _, e := range m.eps {
		if !slices.Contains(in, e.Role) {
			continue
		}
		n++
		requests, work := m.elsewhere(e)
		requests, work = requests+m.on(e), work+m.tokensOn(e)
		running += requests
		tokens += work
		if d.Kind == flowcontrol.Concurrency {
			known++
			hybrid += math.Max(float64(requests)/float64(d.MaxConcurrency), float64(work)/float64(d.MaxTokens))
			continue
		}
		if !m.fresh(e) {
			sum++
			continue
		}
		known++
		w := e.load.Waiting
		if projected {
			w += float64(len(m.where(func(r *modelRequest) bool {
				return r.started >= e.load.At && (r.ep == e || r.prefill == e && !r.chunk)
			})))
			w += float64(len(m.where(func(r *modelRequest) bool {
				return r.started >= e.load.At && r.ep == e && r.prefill == e && !r.chunk
			})))
		}
		sum += math.Max(w/float64(d.QueueDepth), e.load.KV/d.KVUtil)
	}
	switch {
	case n == 0:
		return 1, 0, 0
	case d.Kind == flowcontrol.Utilization:
		return sum / float64(n), n, known
	case d.Mode == flowcontrol.Requests:
		return float64(running) / float64(n*d.MaxConcurrency), n, known
	case d.Mode == flowcontrol.Tokens:
		return float64(tokens) / float64(int64(n)*d.MaxTokens), n, known
	}
	return hybrid / float64(n), n, known
}

// pressure is what the gate compares; informed is whether anything is known of what governs it.
func (m *model) pressure(projected bool) (s float64, informed bool) {
	if m.cfg.Flow.Stages {
		p, np, kp := m.saturation(projected, RolePrefill, RoleBoth)
		d, nd, kd := m.saturation(projected, RoleDecode, RoleBoth)
		switch {
		case np > 0 && nd > 0:
			return math.Max(p, d), p >= d && kp > 0 || d >= p && kd > 0
		case np > 0:
			return p, kp > 0
		case nd > 0:
			return d, kd > 0
		}
	}
	s, _, known := m.saturation(projected, RoleDecode, RolePrefill, RoleBoth, RoleNone)
	return s, known > 0
}

// reflect counts one cycle and sets the soft-reflective ceilings.
func (m *model) reflect(s float64) {
	n := len(m.bands)
	open := s < 1
	if n > 1 && s >= 0.5 && s < 1 {
		m.tick++
		open = m.tick%max(1, int(math.Round(s/(1-s+1e-9)))) == 0
	}
	for i, b := range m.bands {
		b.ceiling = 1
		if i > 0 && !open && s >= 1-float64(i)*s/float64(n-1) {
			b.ceiling = 0
		}
	}
}

func (m *model) ceiling(i int) float64 {
	c, n := m.cfg.Flow.Ceiling, len(m.bands)
	switch {
	case c.Kind == flowcontrol.Static:
		return c.Threshold
	case c.Kind == flowcontrol.SoftReflective:
		return m.bands[i].ceiling
	case n == 1 || i == 0:
		return c.Max
	case i == n-1:
		return c.Min
	case c.ByValue:
		low, high := m.bands[n-1].Priority, m.bands[0].Priority
		return c.Min + float64(m.bands[i].Priority-low)/float64(high-low)*(c.Max-c.Min)
	}
	return c.Max - float64(i)*(c.Max-c.Min)/float64(n-1)
}

func (m *model) pass(out []Out) ([]Out, bool) {
	m.held = false
	if len(m.where(queuedIn(nil))) == 0 {
		return out, false
	}
	s, _ := m.pressure(true)
	soft := m.cfg.Flow.Ceiling.Kind == flowcontrol.SoftReflective
	if soft {
		m.reflect(s)
	}
	for i, b := range m.bands {
		if s >= m.ceiling(i) {
			m.held, m.again = soft && s < 1, m.now+time.Millisecond
			return m.reclaim(i, s, out), false
		}
		waiting := m.where(queuedIn(b))
		if len(waiting) == 0 {
			continue
		}
		if b.Fairness == flowcontrol.RoundRobin {
			next := slices.MinFunc(waiting, func(x, y *modelRequest) int {
				return b.flows[x.FairnessID].turn - b.flows[y.FairnessID].turn
			}).FairnessID
			waiting = slices.DeleteFunc(waiting, func(r *modelRequest) bool { return r.FairnessID != next })
			m.turns++
			b.flows[next].turn = m.turns
		}
		r := m.first(waiting)
		if b.Fairness == flowcontrol.ProgramAware {
			r = m.leastServed(b, waiting)
		}
		for _, paying := range m.bands[i:] {
			if paying.paid > 0 {
				paying.paid--
				break
			}
		}
		out = append(out, m.place(r))
		m.clamp()
		return out, true
	}
	return out, false
}

// first by ordering.
func (m *model) first(waiting []*modelRequest) *modelRequest {
	return slices.MinFunc(waiting, func(x, y *modelRequest) int {
		if a, b := m.rank(x), m.rank(y); a != b {
			if a < b {
				return -1
			}
			return 1
		}
		return x.seq - y.seq
	})
}

// leastServed is the formula of least attained service over the heads of the flows.
func (m *model) leastServed(b *modelBand, waiting []*modelRequest) *modelRequest {
	var heads []*modelRequest
	for _, r := range waiting {
		own := slices.DeleteFunc(slices.Clone(waiting), func(o *modelRequest) bool { return o.FairnessID != r.FairnessID })
		if m.first(own) == r {
			heads = append(heads, r)
		}
	}
	norm := func(value func(*modelRequest) float64) func(*modelRequest) float64 {
		low, high := math.Inf(1), math.Inf(-1)
		for _, r := range heads {
			low, high = math.Min(low, value(r)), math.Max(high, value(r))
		}
		return func(r *modelRequest) float64 {
			if high-low <= 1e-6*high {
				return 0.5
			}
			return (value(r) - low) / (high - low)
		}
	}
	p := m.cfg.Flow.ProgramAware
	service := norm(func(r *modelRequest) float64 { return m.service(b, r.FairnessID) })
	wait := norm(func(r *modelRequest) float64 { return float64(m.now - r.entered) })
	score := func(r *modelRequest) float64 { return p.WeightService*(1-service(r)) + p.WeightHeadWait*wait(r) }
	best := heads[0]
	for _, r := range heads {
		if score(r) > score(best) {
			best = r
		}
	}
	ties := slices.DeleteFunc(heads, func(r *modelRequest) bool {
		return score(r) < score(best)-1e-8*(p.WeightService+p.WeightHeadWait)
	})
	return slices.MinFunc(ties, func(x, y *modelRequest) int { return x.seq - y.seq })
}

func (m *model) rank(r *modelRequest) time.Duration {
	switch r.band.Ordering {
	case flowcontrol.EDF:
		ttl := m.cfg.Flow.TTL
		if r.TTL > 0 && (ttl == 0 || r.TTL < ttl) {
			ttl = r.TTL
		}
		if ttl > 0 {
			return r.entered + ttl
		}
	case flowcontrol.SLODeadline:
		if r.HasTTFT && r.TTFT >= 0 {
			return r.Received + r.TTFT
		}
	case flowcontrol.FCFS:
		return 0
	}
	return math.MaxInt64
}

func (m *model) place(r *modelRequest) Out {
	var es []*modelEndpoint
	for _, e := range m.eps {
		if (!m.cfg.Scheduling.SubsetFilter || !r.HasSubset || slices.Contains(r.Subset, e.Address)) && m.labelled(e) {
			es = append(es, e)
		}
	}
	if len(es) == 0 {
		return m.reject(r, wire.RejectedNoEndpoints)
	}
	var prefills []*modelEndpoint
	if m.cfg.Flow.Stages {
		role := func(keep ...Role) []*modelEndpoint {
			return slices.DeleteFunc(slices.Clone(es), func(e *modelEndpoint) bool { return !slices.Contains(keep, e.Role) })
		}
		prefills = role(RolePrefill)
		if d := role(RoleDecode, RoleBoth); len(d) > 0 {
			es = d
		}
	}
	picked := m.choose(r, es, max(1, m.cfg.Scheduling.MaxEndpoints))
	if len(picked) == 0 {
		return m.reject(r, wire.RejectedCapacity)
	}
	o := Out{Kind: Dispatch, ID: r.id, Outcome: wire.Dispatched, Endpoint: picked[0].ID, Band: r.band.Priority, Waited: m.now - r.entered}
	for _, e := range picked[1:] {
		o.Fallbacks = append(o.Fallbacks, e.ID)
	}
	var prefill *modelEndpoint
	if picked[0].Role == RoleDecode && len(prefills) > 0 {
		first := m.choose(r, prefills, 1)
		if len(first) == 0 {
			return m.reject(r, wire.RejectedCapacity)
		}
		prefill = first[0]
		o.Prefill, o.Split = prefill.ID, true
		m.sent(prefill, r)
	}
	m.sent(picked[0], r)
	m.starts++
	r.ep, r.prefill, r.started, r.startSeq = picked[0], prefill, m.now, m.starts
	return o
}

func (m *model) labelled(e *modelEndpoint) bool {
	for _, f := range m.cfg.Scheduling.Labels {
		ok := f.Missing && !strings.Contains(","+e.Labels, ","+f.Key+"=")
		for _, v := range f.Values {
			ok = ok || slices.Contains(strings.Split(e.Labels, ","), f.Key+"="+v)
		}
		if !ok {
			return false
		}
	}
	return true
}

// choose filters by headroom and draws up to n, best first.
func (m *model) choose(r *modelRequest, es []*modelEndpoint, n int) (picked []*modelEndpoint) {
	if d := m.cfg.Flow.Detector; d.Filter {
		kept := slices.DeleteFunc(slices.Clone(es), func(e *modelEndpoint) bool {
			h := 1 + d.Headroom
			if d.Kind == flowcontrol.Concurrency {
				requests, work := m.elsewhere(e)
				return d.Mode != flowcontrol.Tokens && requests+m.on(e) >= int(float64(d.MaxConcurrency)*h) ||
					d.Mode != flowcontrol.Requests && work+m.tokensOn(e) >= int64(float64(d.MaxTokens)*h)
			}
			return !m.fresh(e) || e.load.Waiting >= float64(d.QueueDepth)*h || e.load.KV >= d.KVUtil*h
		})
		if len(kept) > 0 || !d.FilterFailOpen {
			es = kept
		}
	}
	totals := map[*modelEndpoint]float64{}
	for _, s := range m.cfg.Scheduling.Scorers {
		for e, points := range m.points(s.Kind, es, r) {
			totals[e] += s.Weight * points
		}
	}
	for len(es) > 0 && len(picked) < n {
		var e *modelEndpoint
		e, es = m.best(es, totals)
		picked = append(picked, e)
	}
	return picked
}

// points of one scorer; an endpoint whose value is unknown gets none.
func (m *model) points(k scheduling.ScorerKind, es []*modelEndpoint, r *modelRequest) map[*modelEndpoint]float64 {
	t := map[*modelEndpoint]float64{}
	low, high := math.Inf(1), math.Inf(-1)
	less := map[*modelEndpoint]float64{} // of which less is better
	for _, e := range es {
		switch l := e.load; {
		case k == scheduling.ActiveRequests:
			less[e] = float64(m.on(e))
		case k == scheduling.PrefixCache:
			if blocks := r.Prefix[:min(len(r.Prefix), m.cfg.Scheduling.Prefix.MaxBlocks)]; len(blocks) > 0 {
				n := 0.0
				for n < float64(len(blocks)) && slices.Contains(m.prompts[e.ID], blocks[int(n)]) {
					n++
				}
				t[e] = n / float64(len(blocks))
			}
		case !e.sampled:
		case k == scheduling.LoRAAffinity:
			switch {
			case slices.Contains(l.Adapters, r.Model):
				t[e] = 1
			case len(l.Adapters)+len(l.WaitingAdapters) < l.MaxAdapters:
				t[e] = 0.8
			case slices.Contains(l.WaitingAdapters, r.Model):
				t[e] = 0.6
			}
		case k == scheduling.Queue && l.HasWaiting:
			less[e] = l.Waiting
		case k == scheduling.RunningRequests:
			less[e] = l.Running
		case k == scheduling.KVUtilization && l.HasKV:
			t[e] = 1 - l.KV
		}
	}
	for _, v := range less {
		low, high = math.Min(low, v), math.Max(high, v)
	}
	for e, v := range less {
		if t[e] = 1; high > low {
			t[e] = (high - v) / (high - low)
		}
	}
	return t
}

// sent notes the blocks of a prompt, the first one as the newest.
func (m *model) sent(e *modelEndpoint, r *modelRequest) {
	c := m.cfg.Scheduling.Prefix
	blocks := r.Prefix[:min(len(r.Prefix), c.MaxBlocks, c.LRUCapacity)]
	known := m.prompts[e.ID]
	for _, h := range slices.Backward(blocks) {
		known = slices.DeleteFunc(known, func(o uint64) bool { return o == h })
		known = append([]uint64{h}, known...)
	}
	m.prompts[e.ID] = known[:min(len(known), c.LRUCapacity)]
}

// best draws among the candidates that no other beats.
func (m *model) best(es []*modelEndpoint, total map[*modelEndpoint]float64) (*modelEndpoint, []*modelEndpoint) {
	var ties []int
	for i, e := range es {
		beaten := slices.ContainsFunc(es, func(o *modelEndpoint) bool {
			return total[o] > total[e] || total[o] == total[e] && m.on(o) < m.on(e)
		})
		if !beaten {
			ties = append(ties, i)
		}
	}
	i := ties[0]
	if len(ties) > 1 {
		i = ties[m.rng.IntN(len(ties))]
	}
	return es[i], slices.Delete(slices.Clone(es), i, i+1)
}

func (m *model) grace() time.Duration {
	if m.cfg.Flow.Detector.Kind == flowcontrol.Concurrency {
		return 10 * time.Millisecond
	}
	return 2300 * time.Millisecond
}

func (m *model) stoppable() []*modelRequest {
	if !m.cfg.Flow.Eviction {
		return nil
	}
	d := m.cfg.Flow.Detector
	tokens := d.Kind == flowcontrol.Concurrency && d.Mode == flowcontrol.Tokens
	rs := m.where(func(r *modelRequest) bool {
		return r.ep != nil && r.Priority < 0 && !r.evicted && slices.Contains(m.eps, r.ep) && (!tokens || m.work(r) > 0)
	})
	slices.SortFunc(rs, func(a, b *modelRequest) int {
		if a.Priority != b.Priority {
			return a.Priority - b.Priority
		}
		return b.startSeq - a.startSeq
	})
	return rs
}

func (m *model) reclaim(gated int, s float64, out []Out) []Out {
	rs := m.stoppable()
	if _, informed := m.pressure(true); len(rs) == 0 || len(m.victims) > 0 || m.now < m.cool || !informed {
		return out
	}
	for j := gated; j < len(m.bands); j++ {
		b, c := m.bands[j], m.ceiling(j)
		if b.Priority <= rs[0].Priority {
			return out
		}
		waiting := len(m.where(queuedIn(b)))
		if c <= 0 || s < c || waiting == 0 {
			continue
		}
		credit := s / float64(len(m.where(func(r *modelRequest) bool { return r.ep != nil }))+m.abroad())
		if b.paid >= waiting {
			return out
		}
		n := min(2, waiting-b.paid, max(1, int(math.Ceil((s-c)/credit))))
		for _, r := range rs {
			if len(m.victims) < n && r.Priority < b.Priority {
				r.evicted = true
				b.paid++
				m.victims = append(m.victims, r.id)
				out = append(out, Out{Kind: Evict, ID: r.id, Outcome: wire.Dispatched, Endpoint: r.ep.ID, Band: r.band.Priority})
			}
		}
		m.decided, m.demand = m.now, b
		return out
	}
	return out
}
