// Package arrival says when requests arrive: arrival processes as pure functions of a seeded generator.
//
//	seed, name --Stream--> generator --Process.Schedule(duration)--> Schedule (sorted offsets) --Pace--> driver
//
// A process is one of a closed list. All of them keep the mean rate and differ in burstiness, the coefficient of variation (CV)
// of the gaps: constant has 0, Poisson 1, gamma whatever is asked.
package arrival

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Kind names an arrival process.
type Kind string

// The open-loop processes.
const (
	Constant Kind = "constant" // one arrival every 1/rate, the first at 0
	Poisson  Kind = "poisson"  // exponential gaps, the first arrival after one gap
	Gamma    Kind = "gamma"    // gamma gaps with the given CV, the first arrival after one gap
)

// Bounds of a process. Beyond them the schedule is limited by the clock's resolution (rate) or by float64 (CV), not by the process.
const (
	MaxRate = 1e6 // arrivals per second
	MaxCV   = 100 // gamma shape 1e-4
)

// Process is an open-loop arrival process.
type Process struct {
	Kind Kind
	Rate float64 // mean arrivals per second
	CV   float64 // standard deviation of the gaps over their mean; read by Gamma only
}

// ErrLimit tells that a schedule would hold more arrivals than the caller allows.
var ErrLimit = errors.New("too many arrivals")

// Validate names the first thing wrong with the process.
func (p Process) Validate() error {
	switch p.Kind {
	case Constant, Poisson:
	case Gamma:
		if !(p.CV > 0 && p.CV <= MaxCV) {
			return fmt.Errorf("arrival cv %v: want a number above 0 and at most %v", p.CV, float64(MaxCV))
		}
	default:
		return fmt.Errorf("arrival process %q: want %s, %s or %s", p.Kind, Constant, Poisson, Gamma)
	}
	if !(p.Rate > 0 && p.Rate <= MaxRate) {
		return fmt.Errorf("arrival rate %v/s: want a number above 0 and at most %v", p.Rate, float64(MaxRate))
	}
	return nil
}

// Gap draws one inter-arrival gap of a valid process, in seconds.
func (p Process) Gap(r *rand.Rand) float64 {
	switch p.Kind {
	case Poisson:
		return r.ExpFloat64() / p.Rate
	case Gamma:
		shape := 1 / (p.CV * p.CV)
		return drawGamma(r, shape) / (shape * p.Rate)
	}
	return 1 / p.Rate
}

// Schedule lists the arrivals in [0, d). More than limit of them are ErrLimit, so that a mistyped rate costs a message and not
// the memory of the machine.
func (p Process) Schedule(r *rand.Rand, d time.Duration, limit int) (Schedule, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	var s Schedule
	// The sum is kept in seconds and rounded once per arrival: rounding each gap would let a constant 3/s drift.
	at := 0.0
	if p.Kind != Constant {
		at = p.Gap(r)
	}
	for {
		offset := time.Duration(math.Round(at * float64(time.Second)))
		if at >= d.Seconds() || offset >= d {
			return s, nil
		}
		if len(s) == limit {
			return nil, fmt.Errorf("%w: more than %d in %v at %v/s", ErrLimit, limit, d, p.Rate)
		}
		s = append(s, offset)
		if p.Kind == Constant {
			at = float64(len(s)) / p.Rate
		} else {
			at += p.Gap(r)
		}
	}
}

// drawGamma draws from the gamma distribution with the given shape and scale 1, by Marsaglia and Tsang's squeeze (ACM TOMS 26,
// 2000). Shapes below 1 are drawn at shape+1 and brought down with a uniform power, as the same paper gives.
func drawGamma(r *rand.Rand, shape float64) float64 {
	boost := 1.0
	if shape < 1 {
		boost = math.Pow(1-r.Float64(), 1/shape) // 1-U is never 0
		shape++
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-r.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v * boost
		}
	}
}
