package stats

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Interval is a closed interval; both ends are NaN where there is nothing to say.
type Interval struct{ Lo, Hi float64 }

// Width is Hi - Lo.
func (i Interval) Width() float64 { return i.Hi - i.Lo }

// Contains tells whether x lies in the interval.
func (i Interval) Contains(x float64) bool { return i.Lo <= x && x <= i.Hi }

func nowhere() Interval { return Interval{math.NaN(), math.NaN()} }

func validProportion(k, n int, level float64) bool {
	return n > 0 && k >= 0 && k <= n && level > 0 && level < 1
}

// normalQuantile is the two-sided z of a confidence level: 1.96 for 0.95.
func normalQuantile(level float64) float64 {
	return distuv.UnitNormal.Quantile(0.5 + level/2)
}

// Wilson is the score interval of a proportion with k of n successes. It is close to its level on average, also for small n,
// and never leaves [0,1]; where coverage must be guaranteed use ClopperPearson.
func Wilson(k, n int, level float64) Interval {
	if !validProportion(k, n, level) {
		return nowhere()
	}
	z, nf := normalQuantile(level), float64(n)
	p, z2 := float64(k)/nf, z*z
	centre := (p + z2/(2*nf)) / (1 + z2/nf)
	half := z / (1 + z2/nf) * math.Sqrt(p*(1-p)/nf+z2/(4*nf*nf))
	i := Interval{max(0, centre-half), min(1, centre+half)}
	// At the edges the formula gives the edge only up to rounding.
	if k == 0 {
		i.Lo = 0
	}
	if k == n {
		i.Hi = 1
	}
	return i
}

// ClopperPearson is the exact interval of a proportion with k of n successes: coverage is at least the level for every true
// proportion, at the price of width.
func ClopperPearson(k, n int, level float64) Interval {
	if !validProportion(k, n, level) {
		return nowhere()
	}
	alpha := 1 - level
	i := Interval{0, 1}
	if k > 0 {
		i.Lo = distuv.Beta{Alpha: float64(k), Beta: float64(n - k + 1)}.Quantile(alpha / 2)
	}
	if k < n {
		i.Hi = distuv.Beta{Alpha: float64(k + 1), Beta: float64(n - k)}.Quantile(1 - alpha/2)
	}
	return i
}

// ProportionSampleSize is the number of independent trials after which the interval of a proportion near p is no wider than
// ±half at the given level: ceil(z²·p(1-p)/half²). With p = 0.5 it holds for every proportion. 0 if the question makes no sense.
func ProportionSampleSize(p, half, level float64) int {
	if !(p >= 0 && p <= 1 && half > 0 && level > 0 && level < 1) {
		return 0
	}
	z := normalQuantile(level)
	return max(1, ceilCount(z*z*p*(1-p)/(half*half)))
}

// TailSampleSize is the smallest number of samples of which, at the given level, at least one lies above the p-quantile:
// 1 - p^n >= level. With fewer the p-quantile of the samples says nothing about the tail, and a report must leave it out.
func TailSampleSize(p, level float64) int {
	if !(p > 0 && p < 1 && level > 0 && level < 1) {
		return 0
	}
	return max(1, ceilCount(math.Log(1-level)/math.Log(p)))
}

// ceilCount rounds up, forgiving the last digits of a quotient that stands for an integer, and saturates instead of overflowing.
func ceilCount(x float64) int {
	if !(x < math.MaxInt32) {
		return math.MaxInt32
	}
	return int(math.Ceil(x - 1e-9))
}
