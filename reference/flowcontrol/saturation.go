package flowcontrol

import "time"

// Pressure is the saturation per stage. A stage without endpoints, and every stage if stages are off, has Has* false.
type Pressure struct {
	Effective  float64 // what the gate compares with the ceiling, without projected load
	Prefill    float64
	Decode     float64
	HasPrefill bool
	HasDecode  bool
	Stale      int // endpoints whose metrics were missing or stale at the last evaluation
}

// Pressure is the saturation by the detector's plain formula.
func (p *Pool) Pressure(now time.Duration) Pressure {
	pr, _, _ := p.measure(now, false)
	return pr
}

// saturation is what the gate compares with the ceilings: the plain formula plus, for the utilization detector, the work that was
// dispatched after the endpoints' last samples began. Without that projection every pass between two scrapes would see the same
// idle pool and the whole backlog would leave at once.
func (p *Pool) saturation(now time.Duration) float64 {
	if !p.valid || p.timed && now >= p.until {
		var pr Pressure
		pr, p.until, p.timed = p.measure(now, true)
		p.gate, p.valid = pr.Effective, true
	}
	return p.gate
}

// share is the load of some endpoints: a sum and what it is divided by.
type share struct {
	sum float64
	n   int
}

func (s *share) add(v float64, n int) {
	s.sum += v
	s.n += n
}

func (s share) mean() float64 {
	if s.n == 0 {
		return 1 // nothing can take work
	}
	return s.sum / float64(s.n)
}

// measure evaluates the detector. until is the first instant at which a fresh sample turns stale; timed is false if there is none.
//
//	concurrency  in flight / (endpoints x limit)                               (FC-SAT-12)
//	utilization  mean over endpoints of max(waiting/threshold, KV/threshold)   (FC-SAT-04); not clamped, stale counts 1.0
//
// With stages, prefill and decode endpoints are measured apart, endpoints of both roles count in both, and the higher stage governs
// (FC-PD-01, FC-PD-04, FC-PD-05). If no stage has an endpoint the whole pool is measured.
func (p *Pool) measure(now time.Duration, projected bool) (pr Pressure, until time.Duration, timed bool) {
	var all share
	var by [roles]share
	var stage [2]share // prefill, decode
	if p.det.Kind == Concurrency {
		for r := range roles {
			by[r] = share{float64(p.flight[r]), p.count[r] * p.det.MaxConcurrency}
		}
		for r, s := range by {
			tell(&all, &stage, Role(r), s)
		}
	} else {
		for _, m := range p.members {
			v, fresh := p.score(now, m, projected)
			if !fresh {
				pr.Stale++
			} else if t := p.staleAt(m); !timed || t < until {
				until, timed = t, true
			}
			tell(&all, &stage, m.Role, share{v, 1})
		}
	}
	if !p.stages || stage[0].n+stage[1].n == 0 {
		pr.Effective = all.mean()
		return pr, until, timed
	}
	if stage[0].n > 0 {
		pr.Prefill, pr.HasPrefill = stage[0].mean(), true
	}
	if stage[1].n > 0 {
		pr.Decode, pr.HasDecode = stage[1].mean(), true
	}
	pr.Effective = max(pr.Prefill, pr.Decode)
	return pr, until, timed
}

// tell adds the load of endpoints of one role to the pool and to the stages they serve.
func tell(all *share, stage *[2]share, r Role, s share) {
	all.add(s.sum, s.n)
	if r == RolePrefill || r == RoleBoth {
		stage[0].add(s.sum, s.n)
	}
	if r == RoleDecode || r == RoleBoth {
		stage[1].add(s.sum, s.n)
	}
}

// score is an endpoint's utilization and whether it comes from a fresh and complete sample; without one it is exactly 1.0.
func (p *Pool) score(now time.Duration, m *Member, projected bool) (float64, bool) {
	if !p.fresh(now, m) {
		return 1, false
	}
	waiting := m.Load.Waiting
	if projected {
		waiting += float64(m.extra)
	}
	return max(waiting/float64(p.det.QueueDepth), m.Load.KV/p.det.KVUtil), true
}

func (p *Pool) fresh(now time.Duration, m *Member) bool {
	return m.Sampled && m.Load.HasWaiting && m.Load.HasKV && now < p.staleAt(m)
}

// staleAt is the first instant at which the sample is older than the limit.
func (p *Pool) staleAt(m *Member) time.Duration { return later(later(m.Load.At, p.det.Staleness), 1) }
