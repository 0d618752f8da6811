package flowcontrol

import "time"

// Eligible is the detector as a scheduling filter: whether the endpoint is strictly below its limit raised by the headroom
// (FC-HEAD-06, FC-HEAD-07). Headroom changes this boundary only, never the pool's saturation (FC-HEAD-05). The request being
// placed is not counted, what other replicas reported is.
//
//	concurrency  requests in flight, tokens in flight, or both (hybrid) < int(limit x (1+headroom)) (FC-HEAD-12)
//	utilization  fresh, waiting < threshold x (1+headroom) and KV < threshold x (1+headroom)
func (p *Pool) Eligible(now time.Duration, m *Member) bool {
	if p.det.Kind == Concurrency {
		return (p.det.Mode == Tokens || m.requests() < p.limit) && (p.det.Mode == Requests || m.work() < p.budget)
	}
	h := 1 + p.det.Headroom
	return p.fresh(now, m) && m.Load.Waiting < float64(p.det.QueueDepth)*h && m.Load.KV < p.det.KVUtil*h
}
