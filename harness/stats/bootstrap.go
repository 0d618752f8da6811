package stats

import (
	"math/rand/v2"
)

// Resampling fixes a bootstrap before the run: two calls with the same values give the same digits.
type Resampling struct {
	Seed   uint64
	Rounds int     // resamples; 2000 keeps the Monte Carlo error of a 95 % bound small beside the interval, more cost time only
	Level  float64 // two-sided confidence level of the percentile interval, in (0,1)
	// Block is the length of the blocks that are drawn whole. Neighbouring slots of a queueing system are alike (one long request
	// delays the next ones), and drawing them one by one makes the interval too narrow. It must exceed the distance over which the
	// slots depend on each other; 1 means that they are independent.
	Block int
}

func (r Resampling) valid(n int) bool {
	return n > 0 && r.Rounds > 0 && r.Level > 0 && r.Level < 1 && r.Block >= 1 && r.Block <= n
}

// generator is a stream of its own for each bootstrap; the second word keeps it apart from other users of the run's seed.
func (r Resampling) generator() *rand.Rand {
	return rand.New(rand.NewPCG(r.Seed, 0x626f6f7473747261))
}

// percentile is the interval between the two outer quantiles of the resampled figures.
func (r Resampling) percentile(figures []float64) Interval {
	s := NewSample(figures)
	tail := (1 - r.Level) / 2
	return Interval{s.NearestRank(tail), s.NearestRank(1 - tail)}
}

// Bootstrap is the percentile bootstrap of any figure of independent samples; Block is ignored. figure must not keep its argument.
func Bootstrap(xs []float64, figure func([]float64) float64, r Resampling) Interval {
	r.Block = 1
	if !r.valid(len(xs)) {
		return nowhere()
	}
	g, draw := r.generator(), make([]float64, len(xs))
	figures := make([]float64, r.Rounds)
	for i := range figures {
		for j := range draw {
			draw[j] = xs[g.IntN(len(xs))]
		}
		figures[i] = figure(draw)
	}
	return r.percentile(figures)
}

// BlockBootstrapMean is the moving-block bootstrap interval of the mean of a series in time order.
func BlockBootstrapMean(xs []float64, r Resampling) Interval {
	ones := make([]float64, len(xs))
	for i := range ones {
		ones[i] = 1
	}
	return BlockBootstrapShare(xs, ones, r)
}

// BlockBootstrapShare is the moving-block bootstrap interval of Σpart/Σwhole, where part[i] is what one tenant got in slot i and
// whole[i] what all got in it. Slots are in time order, of equal length, and resampled in pairs. Resamples in which nothing was
// served are left out; NaN if that is all of them.
func BlockBootstrapShare(part, whole []float64, r Resampling) Interval {
	n := len(whole)
	if len(part) != n || !r.valid(n) {
		return nowhere()
	}
	// Prefix sums make a block two subtractions, whatever its length.
	p, w := prefix(part), prefix(whole)
	g := r.generator()
	figures := make([]float64, 0, r.Rounds)
	for range r.Rounds {
		var ps, ws float64
		for left := n; left > 0; left -= r.Block {
			length := min(r.Block, left) // the last block is cut so that every resample has n slots
			at := g.IntN(n - r.Block + 1)
			ps += p[at+length] - p[at]
			ws += w[at+length] - w[at]
		}
		if ws > 0 {
			figures = append(figures, ps/ws)
		}
	}
	return r.percentile(figures)
}

func prefix(xs []float64) []float64 {
	out := make([]float64, len(xs)+1)
	for i, x := range xs {
		out[i+1] = out[i] + x
	}
	return out
}

// BlockBootstrap is the moving-block bootstrap interval of any figure of a series in time order. figure must not keep its argument.
func BlockBootstrap(xs []float64, figure func([]float64) float64, r Resampling) Interval {
	n := len(xs)
	if !r.valid(n) {
		return nowhere()
	}
	g, draw := r.generator(), make([]float64, n)
	figures := make([]float64, r.Rounds)
	for i := range figures {
		for at := 0; at < n; at += r.Block {
			from := g.IntN(n - r.Block + 1)
			copy(draw[at:], xs[from:from+min(r.Block, n-at)])
		}
		figures[i] = figure(draw)
	}
	return r.percentile(figures)
}
