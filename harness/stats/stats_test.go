package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/llm-weir/weir/harness/verdict"
)

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > tolerance {
		t.Errorf("%s = %v, want %v ± %v", what, got, want, tolerance)
	}
}

func TestQuantilesKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		what            string
		xs              []float64
		p, rank, linear float64
	}{
		{"the textbook's five values, p = 0.3 is the second", []float64{15, 20, 35, 40, 50}, 0.30, 20, 23},
		{"the median of five is the third", []float64{50, 15, 40, 20, 35}, 0.50, 35, 35},
		{"the median of an even number: the lower one by rank, halfway by interpolation", []float64{1, 2, 3, 4}, 0.5, 2, 2.5},
		{"p = 1 is the largest", []float64{3, 1, 2}, 1, 3, 3},
		{"p = 0 is the smallest", []float64{3, 1, 2}, 0, 1, 1},
		{"one value is every quantile", []float64{7}, 0.99, 7, 7},
		{"a missing measurement is left out", []float64{math.NaN(), 4, 8}, 1, 8, 8},
		{"nothing has no quantile", nil, 0.5, math.NaN(), math.NaN()},
		{"p beyond 1 is no quantile", []float64{1, 2}, 1.5, math.NaN(), math.NaN()},
	} {
		s := NewSample(c.xs)
		near(t, c.what+": nearest rank", s.NearestRank(c.p), c.rank, 0)
		near(t, c.what+": linear", s.Linear(c.p), c.linear, 1e-12)
	}
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for i := 1; i <= 100; i++ { // every percentile of 1..100 is itself, also where p*n rounds up
		near(t, "percentile of 1..100", NewSample(hundred).NearestRank(float64(i)/100), float64(i), 0)
	}
}

func TestQuantileProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 60).Draw(t, "xs")
		p, q := rapid.Float64Range(0, 1).Draw(t, "p"), rapid.Float64Range(0, 1).Draw(t, "q")
		if p > q {
			p, q = q, p
		}
		s := NewSample(xs)
		if s.NearestRank(p) > s.NearestRank(q) || s.Linear(p) > s.Linear(q)+1e-9 {
			t.Fatalf("quantiles fall between %v and %v", p, q)
		}
		if v := s.Linear(p); v < s.Min() || v > s.Max() {
			t.Fatalf("%v is outside the sample", v)
		}
		below := 0
		for _, x := range xs {
			if x <= s.NearestRank(p) {
				below++
			}
		}
		if float64(below) < p*float64(len(xs))-1e-6 {
			t.Fatalf("only %d of %d are at most the %v-quantile", below, len(xs), p)
		}
	})
}

func TestJain(t *testing.T) {
	near(t, "equal parts", Jain([]float64{5, 5, 5}), 1, 1e-12)
	near(t, "one of four gets all", Jain([]float64{0, 8, 0, 0}), 0.25, 1e-12)
	near(t, "1,2,3", Jain([]float64{1, 2, 3}), 36.0/42, 1e-12)
	near(t, "bytes near the end of the range", Jain([]float64{1e300, 1e300}), 1, 1e-12)
	for what, xs := range map[string][]float64{"nobody": nil, "nothing served": {0, 0}, "negative": {1, -1}} {
		near(t, what, Jain(xs), math.NaN(), 0)
	}
	rapid.Check(t, func(t *rapid.T) {
		xs := rapid.SliceOfN(rapid.Float64Range(0.001, 1e6), 1, 30).Draw(t, "xs")
		j, k := Jain(xs), rapid.Float64Range(0.01, 100).Draw(t, "k")
		if j < 1/float64(len(xs))-1e-9 || j > 1+1e-9 {
			t.Fatalf("index %v is outside [1/n, 1]", j)
		}
		scaled := make([]float64, len(xs))
		for i := range xs {
			scaled[i] = xs[i] * k
		}
		if math.Abs(Jain(scaled)-j) > 1e-9 {
			t.Fatalf("the index depends on the unit")
		}
	})
}

func TestIntervalsKnownAnswers(t *testing.T) {
	// R: binom.test(7, 20), prop.test without continuity correction.
	cp := ClopperPearson(7, 20, 0.95)
	near(t, "Clopper-Pearson 7/20 low", cp.Lo, 0.15391, 1e-5)
	near(t, "Clopper-Pearson 7/20 high", cp.Hi, 0.59219, 1e-5)
	w := Wilson(7, 20, 0.95)
	near(t, "Wilson 7/20 low", w.Lo, 0.18119, 1e-5)
	near(t, "Wilson 7/20 high", w.Hi, 0.56715, 1e-5)
	// No failure in n trials: 1-(alpha/2)^(1/n).
	zero := ClopperPearson(0, 10, 0.95)
	near(t, "0/10 low", zero.Lo, 0, 0)
	near(t, "0/10 high", zero.Hi, 1-math.Pow(0.025, 0.1), 1e-9)
	near(t, "10/10 low", ClopperPearson(10, 10, 0.95).Lo, math.Pow(0.025, 0.1), 1e-9)
	near(t, "no trials", ClopperPearson(0, 0, 0.95).Lo, math.NaN(), 0)
	near(t, "more successes than trials", Wilson(3, 2, 0.95).Lo, math.NaN(), 0)
}

func TestIntervalProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 500).Draw(t, "n")
		k := rapid.IntRange(0, n).Draw(t, "k")
		level := rapid.SampledFrom([]float64{0.8, 0.9, 0.95, 0.99}).Draw(t, "level")
		p := float64(k) / float64(n)
		for name, i := range map[string]Interval{"exact": ClopperPearson(k, n, level), "wilson": Wilson(k, n, level)} {
			if !(i.Lo >= 0 && i.Hi <= 1) || !i.Contains(p) {
				t.Fatalf("%s interval %v of %d/%d", name, i, k, n)
			}
		}
		a, b := ClopperPearson(k, n, level), ClopperPearson(n-k, n, level)
		if math.Abs(a.Lo-(1-b.Hi)) > 1e-9 {
			t.Fatalf("successes and failures do not mirror: %v %v", a, b)
		}
		if wide := ClopperPearson(k, n, 0.999); wide.Width() < a.Width() {
			t.Fatalf("a higher level gave a narrower interval")
		}
	})
}

func TestSampleSizes(t *testing.T) {
	for _, c := range []struct {
		what      string
		got, want int
	}{
		{"±5 % at 95 %, nothing known: the pollster's 385", ProportionSampleSize(0.5, 0.05, 0.95), 385},
		{"±3 %: 1068", ProportionSampleSize(0.5, 0.03, 0.95), 1068},
		{"a certain outcome needs one look", ProportionSampleSize(0, 0.05, 0.95), 1},
		{"a zero margin makes no sense", ProportionSampleSize(0.5, 0, 0.95), 0},
		{"p99 at 95 %: 299 samples", TailSampleSize(0.99, 0.95), 299},
		{"median at 50 %: one sample", TailSampleSize(0.5, 0.5), 1},
		{"p = 1 has no tail", TailSampleSize(1, 0.95), 0},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %d, want %d", c.what, c.got, c.want)
		}
	}
}

var fixed = Resampling{Seed: 7, Rounds: 2000, Level: 0.95, Block: 1}

func TestBootstrapAgreesWithTheNormalInterval(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	xs := make([]float64, 400)
	for i := range xs {
		xs[i] = 10 + 2*g.NormFloat64()
	}
	want := 1.96 * 2 / math.Sqrt(400)
	for name, i := range map[string]Interval{"any figure": Bootstrap(xs, Mean, fixed), "block mean": BlockBootstrapMean(xs, fixed)} {
		near(t, name+": half width", i.Width()/2, want, 0.03)
		if !i.Contains(Mean(xs)) {
			t.Errorf("%s: %v does not hold the mean", name, i)
		}
	}
	if Bootstrap(xs, Mean, fixed) != Bootstrap(xs, Mean, fixed) {
		t.Error("one seed gave two intervals")
	}
	other := fixed
	other.Seed = 8
	if Bootstrap(xs, Mean, fixed) == Bootstrap(xs, Mean, other) {
		t.Error("the seed is not used")
	}
	near(t, "nothing", Bootstrap(nil, Mean, fixed).Lo, math.NaN(), 0)
}

func TestBlocksWidenTheIntervalOfADependentSeries(t *testing.T) {
	g := rand.New(rand.NewPCG(3, 4))
	xs, x := make([]float64, 1000), 0.0
	for i := range xs { // autoregressive with 0.9: the variance of the mean is about 19 times that of independent values
		x = 0.9*x + g.NormFloat64()
		xs[i] = x
	}
	blocks := fixed
	blocks.Block = 50
	if narrow, wide := BlockBootstrapMean(xs, fixed).Width(), BlockBootstrapMean(xs, blocks).Width(); wide < 2.5*narrow {
		t.Errorf("blocks of 50: width %v, single slots: %v", wide, narrow)
	}
}

func TestBlockBootstrapOfAnyFigure(t *testing.T) {
	g := rand.New(rand.NewPCG(5, 6))
	xs := make([]float64, 400)
	for i := range xs {
		xs[i] = g.NormFloat64()
	}
	blocks := fixed
	blocks.Block = 7 // does not divide their number: the last block is cut
	median := func(xs []float64) float64 {
		if len(xs) != 400 {
			t.Fatalf("a resample has %d values", len(xs))
		}
		return NewSample(xs).NearestRank(0.5)
	}
	if i := BlockBootstrap(xs, median, blocks); !i.Contains(0) || i.Width() > 0.4 || i.Width() <= 0 {
		t.Errorf("median: %v", i)
	}
	if i, j := BlockBootstrap(xs, Mean, blocks), BlockBootstrapMean(xs, blocks); math.Abs(i.Lo-j.Lo) > 1e-9 || math.Abs(i.Hi-j.Hi) > 1e-9 {
		t.Errorf("of the mean: %v, and by prefix sums %v", i, j)
	}
	if i := BlockBootstrap(nil, Mean, blocks); !math.IsNaN(i.Lo) || !math.IsNaN(i.Hi) {
		t.Errorf("of nothing: %v", i)
	}
}

// slots draws which of two tenants is served in each slot.
func slots(n int, share float64, seed uint64) (part, whole []float64) {
	g := rand.New(rand.NewPCG(seed, 0))
	part, whole = make([]float64, n), make([]float64, n)
	for i := range part {
		whole[i] = 1
		if g.Float64() < share {
			part[i] = 1
		}
	}
	return part, whole
}

func TestShareEquivalence(t *testing.T) {
	for _, c := range []struct {
		what        string
		n           int
		true        float64
		want        verdict.Kind
		decided     bool
		cannotNames bool
	}{
		{"many slots at the entitlement pass", 4000, 0.5, verdict.Pass, true, false},
		{"many slots far off fail", 4000, 0.7, verdict.Fail, true, false},
		{"few slots decide nothing", 60, 0.5, verdict.Inconclusive, false, false},
		{"fewer than ten blocks decide nothing, however alike", 50, 1, verdict.Inconclusive, false, false},
		{"no slot", 0, 0.5, verdict.Inconclusive, false, true},
	} {
		part, whole := slots(c.n, c.true, 11)
		r := fixed
		r.Block = 6
		e := ShareEquivalence(part, whole, 0.5, 0.05, r)
		if e.Kind != c.want || (e.NeedMore == 0) != c.decided || (e.NeedMore == -1) != c.cannotNames {
			t.Errorf("%s: %+v", c.what, e)
		}
	}
	if e := ShareEquivalence(make([]float64, 100), make([]float64, 100), 0.5, 0.05, fixed); e.Kind != verdict.Inconclusive {
		t.Errorf("nothing was served: %+v", e)
	}
}

// TestNeedMoreIsAboutRight adds what was asked for and expects a decision in most worlds.
func TestNeedMoreIsAboutRight(t *testing.T) {
	decided, asked := 0, 0
	for seed := uint64(1); seed <= 30; seed++ {
		part, whole := slots(150, 0.5, seed)
		e := ShareEquivalence(part, whole, 0.5, 0.1, fixed)
		if e.Kind != verdict.Inconclusive || e.NeedMore <= 0 || e.NeedMore > 20000 {
			continue
		}
		asked++
		part, whole = slots(150+2*e.NeedMore, 0.5, seed)
		if ShareEquivalence(part, whole, 0.5, 0.1, fixed).Kind == verdict.Pass {
			decided++
		}
	}
	if asked == 0 || decided*10 < asked*7 {
		t.Errorf("%d of %d runs were decided with twice the slots asked for", decided, asked)
	}
}

// TestEquivalenceRarelyPassesAWrongShare counts false passes at the edge of the margin: at most (1-Level)/2 of them are allowed.
func TestEquivalenceRarelyPassesAWrongShare(t *testing.T) {
	passes := 0
	r := Resampling{Seed: 1, Rounds: 400, Level: 0.95, Block: 1}
	for seed := uint64(0); seed < 200; seed++ {
		part, whole := slots(1500, 0.55, seed)
		if ShareEquivalence(part, whole, 0.5, 0.05, r).Kind == verdict.Pass {
			passes++
		}
	}
	if hi := ClopperPearson(passes, 200, 0.95).Lo; hi > 0.025 {
		t.Errorf("%d of 200 runs on the edge passed", passes)
	}
}

func TestChangePoint(t *testing.T) {
	g := rand.New(rand.NewPCG(5, 6))
	xs := make([]float64, 200)
	for i := range xs {
		xs[i] = g.NormFloat64()
		if i >= 120 {
			xs[i] += 3
		}
	}
	c := ChangePoint(xs, 1, 1000)
	if c.Index < 117 || c.Index > 123 || c.Confidence < 0.99 {
		t.Errorf("a shift at 120 was found as %+v", c)
	}
	near(t, "before", c.Before, 0, 0.4)
	near(t, "after", c.After, 3, 0.4)
	flat := make([]float64, 50)
	for i := range flat {
		flat[i] = 0.1
	}
	if c := ChangePoint(flat, 1, 100); c.Index != 0 || c.Confidence != 0 {
		t.Errorf("a constant series has a shift: %+v", c)
	}
	if c := ChangePoint([]float64{1, 9}, 1, 100); c.Index != 0 {
		t.Errorf("two values have a shift: %+v", c)
	}
}
