// Package scheduling chooses the endpoint for a dispatched request.
//
//	members ---> subset ---> headroom ---> scorers ---> best total ---> fewest in flight ---> seeded draw
//	             | nothing    | nothing: fail open, or
//	             v            v
//	       RejectedNoEndpoints  RejectedCapacity
//
// The filters narrow the pool, the weighted scorers rank what is left. Candidates go through in the order of their ids and the only
// randomness is the scheduler's own generator, so that equal histories choose equal endpoints.
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
	rng        *rand.Rand
	candidates []*flowcontrol.Member
	totals     []float64
	ties       []int
}

// New makes a scheduler. The detector says whether and how the headroom filter acts (FC-HEAD-08, FC-HEAD-09).
func New(cfg Config, det flowcontrol.DetectorConfig) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Scheduler{
		cfg: cfg, filter: det.Filter, failOpen: det.FilterFailOpen,
		rng: rand.New(rand.NewPCG(cfg.Seed, 0)),
	}, nil
}

// Pick is the endpoint for a request and further ones, best first. Without one the outcome says why: RejectedNoEndpoints if the
// pool or the subset is empty (FC-REF-12), RejectedCapacity if the headroom filter left nothing (FC-REF-13).
func (s *Scheduler) Pick(
	now time.Duration, r *flowcontrol.Request, pool *flowcontrol.Pool,
) (*flowcontrol.Member, []flowcontrol.EndpointID, wire.Outcome) {
	s.candidates = append(s.candidates[:0], pool.Members()...)
	if s.cfg.SubsetFilter && r.HasSubset {
		s.candidates = restrict(s.candidates, r.Subset)
	}
	if len(s.candidates) == 0 {
		return nil, nil, wire.RejectedNoEndpoints
	}
	if s.filter {
		s.candidates = s.headroom(now, pool)
	}
	if len(s.candidates) == 0 {
		return nil, nil, wire.RejectedCapacity
	}
	s.score()
	best := s.take()
	var fallbacks []flowcontrol.EndpointID
	for n := 1; n < s.cfg.MaxEndpoints && len(s.candidates) > 0; n++ {
		fallbacks = append(fallbacks, s.take().ID)
	}
	return best, fallbacks, wire.Dispatched
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
