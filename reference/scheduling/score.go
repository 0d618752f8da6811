package scheduling

import "github.com/llm-weir/weir/reference/flowcontrol"

// score sets the weighted total of every candidate for a request. A scorer gives 0..1; an endpoint whose value is unknown gets 0 from it.
func (s *Scheduler) score(r *flowcontrol.Request) {
	s.totals = s.totals[:0]
	for range s.candidates {
		s.totals = append(s.totals, 0)
	}
	for _, sc := range s.cfg.Scorers {
		if sc.Weight == 0 {
			continue
		}
		low, high := s.span(sc.Kind, r)
		for i, m := range s.candidates {
			if v, ok := s.value(sc.Kind, m, r); ok {
				// Converted so that no compiler fuses product and sum: totals are equal on all machines.
				s.totals[i] += float64(sc.Weight * points(sc.Kind, v, low, high))
			}
		}
	}
}

// span is the range of a scorer's values over the candidates for which they are known; only the min-max scorers ask for it.
func (s *Scheduler) span(k ScorerKind, r *flowcontrol.Request) (low, high float64) {
	if !relative(k) {
		return 0, 0
	}
	first := true
	for _, m := range s.candidates {
		v, ok := s.value(k, m, r)
		if !ok {
			continue
		}
		if first {
			low, high, first = v, v, false
		}
		low, high = min(low, v), max(high, v)
	}
	return low, high
}

// value is what a scorer looks at. Missing families are unknown, never zero.
func (s *Scheduler) value(k ScorerKind, m *flowcontrol.Member, r *flowcontrol.Request) (float64, bool) {
	switch k {
	case Queue:
		return m.Load.Waiting, m.Sampled && m.Load.HasWaiting
	case KVUtilization:
		return m.Load.KV, m.Sampled && m.Load.HasKV
	case RunningRequests:
		return m.Load.Running, m.Sampled
	case ActiveRequests:
		return float64(m.InFlight()), true
	case PrefixCache:
		return s.prefixes.share(m.ID, r.Prefix), true
	case LoRAAffinity:
		return affinity(&m.Load, r.Model), m.Sampled
	}
	return 0, false
}

// points turns a value into 0..1, higher is better.
func points(k ScorerKind, v, low, high float64) float64 {
	switch {
	case k == PrefixCache || k == LoRAAffinity:
		return v
	case k == KVUtilization:
		return min(max(1-v, 0), 1)
	case high <= low:
		return 1
	}
	return min(max((high-v)/(high-low), 0), 1)
}

// relative tells whether a scorer compares the candidates with each other.
func relative(k ScorerKind) bool { return k == Queue || k == RunningRequests || k == ActiveRequests }
