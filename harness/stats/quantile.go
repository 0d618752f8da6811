// Package stats turns raw samples into figures that can be defended: exact quantiles, shares, intervals, sample sizes, shifts.
//
//	samples --sort--> Sample --p--> quantile
//	part, whole per slot --moving blocks, fixed seed--> Interval --entitled ± margin--> pass | fail | inconclusive (+ how many more)
//	k of n --Beta quantiles--> Interval
//
// Everything is a pure function of its arguments; what is random takes a seed, so that a bundle judged twice gives the same
// digits. A figure that the samples cannot carry is NaN, never a guess.
package stats

import (
	"math"
	"slices"
)

// Sample is a set of raw measurements in rising order. The zero value is an empty sample, whose figures are all NaN.
type Sample struct{ sorted []float64 }

// NewSample copies and sorts xs. NaN values are dropped: they are measurements that did not come.
func NewSample(xs []float64) Sample {
	s := make([]float64, 0, len(xs))
	for _, x := range xs {
		if !math.IsNaN(x) {
			s = append(s, x)
		}
	}
	slices.Sort(s)
	return Sample{sorted: s}
}

// Min is the smallest measurement.
func (s Sample) Min() float64 { return s.NearestRank(0) }

// Max is the largest measurement.
func (s Sample) Max() float64 { return s.NearestRank(1) }

// NearestRank is the smallest measurement x such that at least the share p of all measurements is <= x: element ceil(p*n),
// counted from 1 (p = 0 gives the smallest). The result was really measured; p outside [0,1] gives NaN.
func (s Sample) NearestRank(p float64) float64 {
	n := len(s.sorted)
	if n == 0 || !(p >= 0 && p <= 1) {
		return math.NaN()
	}
	// The product of a decimal p and n may land a rounding error above the integer it stands for (0.07*100 = 7.000000000000001),
	// which would shift the rank by one; no p that anybody asks for is that close to a rank boundary by intent.
	rank := int(math.Ceil(p*float64(n) - 1e-9))
	return s.sorted[min(max(rank, 1), n)-1]
}

// Linear interpolates between the two neighbours of position p*(n-1), counted from 0 (the definition of R's type 7, NumPy and
// most spreadsheets). Use it to compare with tools that do; verdicts use NearestRank.
func (s Sample) Linear(p float64) float64 {
	n := len(s.sorted)
	if n == 0 || !(p >= 0 && p <= 1) {
		return math.NaN()
	}
	at := p * float64(n-1)
	lo := int(math.Floor(at))
	if lo >= n-1 {
		return s.sorted[n-1]
	}
	a, b := s.sorted[lo], s.sorted[lo+1]
	if a == b {
		return a // also keeps two equal infinities from becoming NaN
	}
	frac := at - float64(lo)
	return a*(1-frac) + b*frac
}

// Mean is the arithmetic mean; NaN of nothing.
func Mean(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	var sum float64
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}

// Jain is Jain's fairness index of non-negative allotments: (Σx)² / (n·Σx²). It is 1 if all are equal and k/n if k of n get
// equal parts and the rest nothing. NaN if there is no allotment, all are zero, or one is negative.
func Jain(xs []float64) float64 {
	// Scaling by the largest keeps the squares of byte counts within range; the index does not depend on the unit.
	var top float64
	for _, x := range xs {
		if x < 0 || math.IsNaN(x) || math.IsInf(x, 0) {
			return math.NaN()
		}
		top = max(top, x)
	}
	if top == 0 {
		return math.NaN()
	}
	var sum, squares float64
	for _, x := range xs {
		x /= top
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(xs)) * squares)
}
