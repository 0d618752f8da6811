// Package scheduling chooses the endpoint for a dispatched request.
//
//	members ---> subset, labels ---> stage ---> headroom ---> scorers ---> best total ---> fewest in flight ---> seeded draw
//	             | nothing                      | nothing: fail open, or
//	             v                              v
//	       RejectedNoEndpoints            RejectedCapacity
//
// The filters narrow the pool, the weighted scorers rank what is left. Candidates go through in the order of their ids and the only
// randomness is the scheduler's own generator, so that equal histories choose equal endpoints. Where prefill and decode have endpoints
// of their own, a request gets one of each: first the one that decodes, then, by the same filters and scorers, the one that prefills.
package scheduling

import (
	"math/rand/v2"
	"time"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/flowcontrol"
)

// Scheduler is one profile with its generator and its scratch space.
type Scheduler struct {
	cfg        Config
	filter     bool
	failOpen   bool
	stages     bool
	prefixes   prefixes
	rng        *rand.Rand
	candidates []*flowcontrol.Member
	prefills   []*flowcontrol.Member
	totals     []float64
	ties       []int
}

// Placement is where a request goes.
type Placement struct {
	Member    *flowcontrol.Member      // where it runs; nil if it cannot be placed
	Prefill   *flowcontrol.Member      // where its cache is filled first; nil if on Member itself
	Fallbacks []flowcontrol.EndpointID // instead of Member, best first
}

// New makes a scheduler. Flow control's configuration says whether and how the headroom filter acts (FC-HEAD-08, FC-HEAD-09) and
// whether roles matter.
func New(cfg Config, flow flowcontrol.Config) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Scheduler{
		cfg: cfg, filter: flow.Detector.Filter, failOpen: flow.Detector.FilterFailOpen, stages: flow.Stages,
		rng: rand.New(rand.NewPCG(cfg.Seed, 0)),
	}
	for _, sc := range cfg.Scorers {
		if sc.Kind == PrefixCache && sc.Weight > 0 && cfg.Prefix.LRUCapacity > 0 {
			s.prefixes.cfg = cfg.Prefix
		}
	}
	return s, nil
}

// PrefixBlocks is how many blocks of a request's prefix Pick looks at.
func (s *Scheduler) PrefixBlocks() int { return s.prefixes.cfg.MaxBlocks }

// Forget says that an endpoint has left the pool.
func (s *Scheduler) Forget(id flowcontrol.EndpointID) { s.prefixes.forget(id) }

// Pick places a request. If it cannot the outcome says why: RejectedNoEndpoints if the pool, the subset or the label filters leave
// nothing (FC-REF-12), RejectedCapacity if the headroom filter does (FC-REF-13).
func (s *Scheduler) Pick(now time.Duration, r *flowcontrol.Request, pool *flowcontrol.Pool) (Placement, wire.Outcome) {
	s.candidates = append(s.candidates[:0], pool.Members()...)
	if s.cfg.SubsetFilter && r.HasSubset {
		s.candidates = restrict(s.candidates, r.Subset)
	}
	if len(s.cfg.Labels) > 0 {
		s.candidates = labelled(s.candidates, s.cfg.Labels)
	}
	if len(s.candidates) == 0 {
		return Placement{}, wire.RejectedNoEndpoints
	}
	if s.stages {
		s.decoders()
	}
	if !s.rank(now, r, pool) {
		return Placement{}, wire.RejectedCapacity
	}
	p := Placement{Member: s.take()}
	for n := 1; n < s.cfg.MaxEndpoints && len(s.candidates) > 0; n++ {
		p.Fallbacks = append(p.Fallbacks, s.take().ID)
	}
	if s.splits(p.Member) {
		s.candidates = append(s.candidates[:0], s.prefills...)
		if !s.rank(now, r, pool) {
			return Placement{}, wire.RejectedCapacity
		}
		p.Prefill = s.take()
		s.prefixes.record(p.Prefill.ID, r.Prefix)
	}
	s.prefixes.record(p.Member.ID, r.Prefix)
	return p, wire.Dispatched
}

// rank filters the candidates by headroom and scores them; false if none is left.
func (s *Scheduler) rank(now time.Duration, r *flowcontrol.Request, pool *flowcontrol.Pool) bool {
	if s.filter {
		s.candidates = s.headroom(now, pool)
	}
	s.score(r)
	return len(s.candidates) > 0
}

// take removes the best candidate: highest total, then fewest in flight, then by the generator, which is asked only if a tie is
// left. The second key spreads requests over equal endpoints also where no metrics are known.
func (s *Scheduler) take() *flowcontrol.Member {
	s.ties = append(s.ties[:0], 0)
	for i := 1; i < len(s.candidates); i++ {
		best := s.ties[0]
		a, b := s.candidates[i], s.candidates[best]
		switch {
		case s.totals[i] < s.totals[best] || s.totals[i] == s.totals[best] && a.InFlight() > b.InFlight():
		case s.totals[i] == s.totals[best] && a.InFlight() == b.InFlight():
			s.ties = append(s.ties, i)
		default:
			s.ties = append(s.ties[:0], i)
		}
	}
	i := s.ties[0]
	if len(s.ties) > 1 {
		i = s.ties[s.rng.IntN(len(s.ties))]
	}
	m := s.candidates[i]
	s.candidates = append(s.candidates[:i], s.candidates[i+1:]...)
	s.totals = append(s.totals[:i], s.totals[i+1:]...)
	return m
}
