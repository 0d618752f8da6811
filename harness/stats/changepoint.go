package stats

import (
	"math"
	"math/rand/v2"
)

// Change is the most likely single shift of the mean of a series.
type Change struct {
	Index         int     // first element of the new regime; 0 if there is none
	Before, After float64 // means on both sides
	Confidence    float64 // share of random reorderings whose cumulative sum strays less far; near 1: a shift, not noise
}

// ChangePoint finds the shift by the cumulative sum of deviations from the overall mean: it strays farthest from zero where the
// mean changes. Confidence comes from `rounds` reorderings with a fixed seed; it takes the elements for independent, so that a
// strongly autocorrelated series looks more certain than it is. Fewer than 4 elements, or a constant series, have no shift.
func ChangePoint(xs []float64, seed uint64, rounds int) Change {
	mean := Mean(xs)
	index, reach := excursion(xs, mean)
	if len(xs) < 4 || rounds <= 0 || !(reach > roundingNoise(xs)) {
		return Change{Before: mean, After: mean}
	}
	g := rand.New(rand.NewPCG(seed, 0x637573756d)) // second word: a stream apart from the bootstrap's
	shuffled, calmer := append([]float64(nil), xs...), 0
	for range rounds {
		g.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if _, r := excursion(shuffled, mean); r < reach {
			calmer++
		}
	}
	return Change{Index: index, Before: Mean(xs[:index]), After: Mean(xs[index:]), Confidence: float64(calmer) / float64(rounds)}
}

// excursion is where the cumulative sum strays farthest, as the index after it, and how far.
func excursion(xs []float64, mean float64) (index int, reach float64) {
	var sum float64
	for i, x := range xs[:max(len(xs)-1, 0)] { // after the last element the sum is zero by construction
		sum += x - mean
		if a := math.Abs(sum); a > reach {
			index, reach = i+1, a
		}
	}
	return index, reach
}

// roundingNoise is an excursion that rounding alone can make; without it a constant 0.1 would have a shift.
func roundingNoise(xs []float64) float64 {
	var top float64
	for _, x := range xs {
		top = max(top, math.Abs(x))
	}
	return top * float64(len(xs)) * 1e-12
}
