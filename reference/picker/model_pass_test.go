package picker

import (
	"math"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/flowcontrol"
)

func (m *model) fresh(e *modelEndpoint) bool {
	return e.sampled && e.load.HasWaiting && e.load.HasKV && m.now-e.load.At <= m.cfg.Flow.Detector.Staleness
}

// saturation of the endpoints of some roles; n is their number.
func (m *model) saturation(projected bool, in ...Role) (s float64, n int) {
	d := m.cfg.Flow.Detector
	var sum float64
	var running int
	for _, e := range m.eps {
		if !slices.Contains(in, e.Role) {
			continue
		}
		n++
		running += m.on(e)
		if !m.fresh(e) {
			sum++
			continue
		}
		w := e.load.Waiting
		if projected {
			w += float64(len(m.where(func(r *modelRequest) bool { return r.ep == e && r.started >= e.load.At })))
		}
		sum += math.Max(w/float64(d.QueueDepth), e.load.KV/d.KVUtil)
	}
	switch {
	case n == 0:
		return 1, 0
	case d.Kind == flowcontrol.Concurrency:
		return float64(running) / float64(n*d.MaxConcurrency), n
	}
	return sum / float64(n), n
}

func (m *model) pressure(projected bool) float64 {
	if m.cfg.Flow.Stages {
		p, np := m.saturation(projected, RolePrefill, RoleBoth)
		d, nd := m.saturation(projected, RoleDecode, RoleBoth)
		switch {
		case np > 0 && nd > 0:
			return math.Max(p, d)
		case np > 0:
			return p
		case nd > 0:
			return d
		}
	}
	s, _ := m.saturation(projected, RoleDecode, RolePrefill, RoleBoth, RoleNone)
	return s
}

func (m *model) ceiling(i int) float64 {
	c, n := m.cfg.Flow.Ceiling, len(m.bands)
	switch {
	case c.Kind == flowcontrol.Static:
		return c.Threshold
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
	if len(m.where(queuedIn(nil))) == 0 {
		return out, false
	}
	s := m.pressure(true)
	for i, b := range m.bands {
		if s >= m.ceiling(i) {
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
		r := slices.MinFunc(waiting, func(x, y *modelRequest) int {
			if a, b := m.rank(x), m.rank(y); a != b {
				if a < b {
					return -1
				}
				return 1
			}
			return x.seq - y.seq
		})
		return append(out, m.place(r)), true
	}
	return out, false
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
		if !m.cfg.Scheduling.SubsetFilter || !r.HasSubset || slices.Contains(r.Subset, e.Address) {
			es = append(es, e)
		}
	}
	if len(es) == 0 {
		return m.reject(r, wire.RejectedNoEndpoints)
	}
	if d := m.cfg.Flow.Detector; d.Filter {
		kept := slices.DeleteFunc(slices.Clone(es), func(e *modelEndpoint) bool {
			if d.Kind == flowcontrol.Concurrency {
				return m.on(e) >= int(float64(d.MaxConcurrency)*(1+d.Headroom))
			}
			return !m.fresh(e) || e.load.Waiting >= float64(d.QueueDepth)*(1+d.Headroom) || e.load.KV >= d.KVUtil*(1+d.Headroom)
		})
		if len(kept) > 0 || !d.FilterFailOpen {
			es = kept
		}
	}
	if len(es) == 0 {
		return m.reject(r, wire.RejectedCapacity)
	}
	var fallbacks []EndpointID
	totals := m.totals(es)
	best, es := m.best(es, totals)
	for n := 1; n < m.cfg.Scheduling.MaxEndpoints && len(es) > 0; n++ {
		var e *modelEndpoint
		e, es = m.best(es, totals)
		fallbacks = append(fallbacks, e.ID)
	}
	m.starts++
	r.ep, r.started, r.startSeq = best, m.now, m.starts
	return Out{Kind: Dispatch, ID: r.id, Outcome: wire.Dispatched, Endpoint: best.ID, Fallbacks: fallbacks,
		Band: r.band.Priority, Waited: m.now - r.entered}
}

// totals are those of the queue scorer, the only one the swarm configures.
func (m *model) totals(es []*modelEndpoint) map[*modelEndpoint]float64 {
	t := map[*modelEndpoint]float64{}
	if len(m.cfg.Scheduling.Scorers) == 0 {
		return t
	}
	known := slices.DeleteFunc(slices.Clone(es), func(e *modelEndpoint) bool { return !e.sampled || !e.load.HasWaiting })
	low, high := math.Inf(1), math.Inf(-1)
	for _, e := range known {
		low, high = math.Min(low, e.load.Waiting), math.Max(high, e.load.Waiting)
	}
	for _, e := range known {
		if t[e] = 1; high > low {
			t[e] = (high - e.load.Waiting) / (high - low)
		}
	}
	return t
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
	rs := m.where(func(r *modelRequest) bool { return r.ep != nil && r.Priority < 0 && !r.evicted })
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
	if len(rs) == 0 || len(m.victims) > 0 || m.now < m.cool {
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
		credit := s / float64(len(m.where(func(r *modelRequest) bool { return r.ep != nil })))
		n := min(2, waiting, max(1, int(math.Ceil((s-c)/credit))))
		for _, r := range rs {
			if len(m.victims) < n && r.Priority < b.Priority {
				r.evicted = true
				m.victims = append(m.victims, r.id)
				out = append(out, Out{Kind: Evict, ID: r.id, Outcome: wire.Dispatched, Endpoint: r.ep.ID, Band: r.band.Priority})
			}
		}
		m.decided = m.now
		return out
	}
	return out
}
