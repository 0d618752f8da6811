package stats

import (
	"math"

	"github.com/llm-weir/weir/harness/verdict"
)

// MinBlocks is the number of blocks below which a block bootstrap is not believed: with a handful of blocks the resamples are
// nearly the series itself, the interval collapses, and a lucky half minute would pass.
const MinBlocks = 10

// Equivalence is the outcome of ShareEquivalence.
type Equivalence struct {
	Kind     verdict.Kind // Pass: proven inside the margin; Fail: proven outside; Inconclusive: neither
	Estimate float64      // Σpart/Σwhole
	Interval Interval
	Slots    int
	// NeedMore estimates how many further slots like these would decide, from the interval shrinking with the square root of their
	// number; 0 if decided, -1 if no number can be named (the estimate lies on the margin's edge, or nothing was served).
	NeedMore int
}

// ShareEquivalence tests whether a tenant's share equals its entitlement within ±margin: two one-sided tests, each at
// (1-Level)/2, read off the block bootstrap interval. Proof is needed either way: an interval that crosses an edge of the margin
// is inconclusive, so few samples can neither pass nor fail. Slots are as in BlockBootstrapShare.
func ShareEquivalence(part, whole []float64, entitled, margin float64, r Resampling) Equivalence {
	e := Equivalence{Kind: verdict.Inconclusive, Slots: len(whole), Estimate: math.NaN(), Interval: nowhere(), NeedMore: -1}
	if len(part) != len(whole) || !r.valid(len(whole)) || !(margin > 0) || math.IsNaN(entitled) {
		return e
	}
	ps, ws := prefix(part), prefix(whole)
	if ws[len(whole)] <= 0 {
		return e
	}
	e.Estimate = ps[len(part)] / ws[len(whole)]
	e.Interval = BlockBootstrapShare(part, whole, r)
	if short := MinBlocks*r.Block - len(whole); short > 0 {
		e.NeedMore = short
		return e
	}
	lo, hi := entitled-margin, entitled+margin
	switch {
	case e.Interval.Lo >= lo && e.Interval.Hi <= hi:
		e.Kind, e.NeedMore = verdict.Pass, 0
	case e.Interval.Lo > hi || e.Interval.Hi < lo:
		e.Kind, e.NeedMore = verdict.Fail, 0
	default:
		e.NeedMore = needMore(e, entitled, margin)
	}
	return e
}

// needMore scales the arm of the interval that crosses the nearest edge down to the distance between estimate and edge.
func needMore(e Equivalence, entitled, margin float64) int {
	room := math.Abs(math.Abs(e.Estimate-entitled) - margin)
	arm := max(e.Interval.Hi-e.Estimate, e.Estimate-e.Interval.Lo)
	if !(room > 0) || !(arm > 0) {
		return -1
	}
	ratio := arm / room
	total := ceilCount(float64(e.Slots) * ratio * ratio)
	if total == math.MaxInt32 {
		return -1
	}
	return max(1, total-e.Slots)
}
