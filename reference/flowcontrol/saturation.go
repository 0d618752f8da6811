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

// reading is one evaluation of the detector.
type reading struct {
	Pressure
	until    time.Duration // the first instant at which a fresh sample turns stale
	timed    bool          // there is such an instant
	informed bool          // at least one endpoint that counts for Effective is known; else it is saturated for want of knowledge only
}

// Pressure is the saturation by the detector's plain formula.
func (p *Pool) Pressure(now time.Duration) Pressure { return p.measure(now, false).Pressure }

// saturation is what the gate compares with the ceilings: the plain formula plus, for the utilization detector, the work that was
// dispatched after the endpoints' last samples began. Without that projection every pass between two scrapes would see the same
// idle pool and the whole backlog would leave at once.
func (p *Pool) saturation(now time.Duration) float64 {
	if !p.valid || p.gate.timed && now >= p.gate.until {
		p.gate, p.valid = p.measure(now, true), true
	}
	return p.gate.Effective
}

// share is the load of some endpoints: a sum and what it is divided by.
type share struct {
	sum, n float64
	known  int // endpoints whose load is known
}

func (s *share) add(o share) {
	s.sum += o.sum
	s.n += o.n
	s.known += o.known
}

func (s share) mean() float64 {
	if s.n == 0 {
		return 1 // nothing can take work
	}
	return s.sum / s.n
}

// measure evaluates the detector.
//
//	concurrency  requests  in flight / (endpoints x limit)                               (FC-SAT-12)
//	             tokens    accounted tokens / (endpoints x token limit)                  (FC-SAT-14)
//	             hybrid    mean over endpoints of the larger of both ratios              (FC-SAT-16)
//	utilization  mean over endpoints of max(waiting/threshold, KV/threshold)             (FC-SAT-04); not clamped, stale counts 1.0
//
// What other replicas reported is in flight like the picker's own (FC-MULTI-03).
//
// With stages, prefill and decode endpoints are measured apart, endpoints of both roles count in both, and the higher stage governs
// (FC-PD-01, FC-PD-04, FC-PD-05). If no stage has an endpoint the whole pool is measured.
func (p *Pool) measure(now time.Duration, projected bool) (r reading) {
	var l shares
	switch {
	case p.det.Kind == Utilization:
		for _, m := range p.members {
			v, fresh := p.score(now, m, projected)
			one := share{v, 1, 1}
			if !fresh {
				one.known = 0
				r.Stale++
			} else if t := p.staleAt(m); !r.timed || t < r.until {
				r.until, r.timed = t, true
			}
			l.add(m.Role, one)
		}
	case p.det.Mode == Hybrid:
		for _, m := range p.members {
			v := max(float64(m.requests())/float64(p.det.MaxConcurrency), float64(m.work())/float64(p.det.MaxTokens))
			l.add(m.Role, share{v, 1, 1})
		}
	default:
		for i := range roles {
			n := float64(p.count[i])
			s := share{float64(p.flight[i]), n * float64(p.det.MaxConcurrency), p.count[i]}
			if p.det.Mode == Tokens {
				s.sum, s.n = float64(p.tokens[i]), n*float64(p.det.MaxTokens)
			}
			l.add(i, s)
		}
	}
	p.combine(&r, &l)
	return r
}

// shares are the loads of the pool and of the stages.
type shares struct{ all, prefill, decode share }

// add adds the load of endpoints of one role to the pool and to the stages they serve.
func (l *shares) add(r Role, s share) {
	l.all.add(s)
	if r == RolePrefill || r == RoleBoth {
		l.prefill.add(s)
	}
	if r == RoleDecode || r == RoleBoth {
		l.decode.add(s)
	}
}

// combine tells the pressure of the stages and which one governs.
func (p *Pool) combine(r *reading, l *shares) {
	prefill, decode := l.prefill, l.decode
	if !p.stages || prefill.n+decode.n == 0 {
		r.Effective, r.informed = l.all.mean(), l.all.known > 0
		return
	}
	if prefill.n > 0 {
		r.Prefill, r.HasPrefill = prefill.mean(), true
	}
	if decode.n > 0 {
		r.Decode, r.HasDecode = decode.mean(), true
	}
	r.Effective = max(r.Prefill, r.Decode)
	r.informed = r.HasPrefill && prefill.known > 0 && r.Prefill == r.Effective ||
		r.HasDecode && decode.known > 0 && r.Decode == r.Effective
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
