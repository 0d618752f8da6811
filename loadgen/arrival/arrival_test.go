package arrival

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
	"pgregory.net/rapid"
)

var _ vegeta.Pacer = Schedule(nil)

func TestGapsHaveTheMeanAndCVOfTheirProcess(t *testing.T) {
	const draws = 200_000
	for _, row := range []struct {
		why    string
		p      Process
		wantCV float64
	}{
		{"constant gaps do not vary", Process{Kind: Constant, Rate: 20}, 0},
		{"exponential gaps have CV 1", Process{Kind: Poisson, Rate: 20}, 1},
		{"gamma with CV 1 is exponential", Process{Kind: Gamma, Rate: 20, CV: 1}, 1},
		{"gamma below 1 is smoother than Poisson", Process{Kind: Gamma, Rate: 3, CV: 0.5}, 0.5},
		{"gamma above 1 is burstier (shape below 1)", Process{Kind: Gamma, Rate: 500, CV: 2.5}, 2.5},
	} {
		t.Run(row.why, func(t *testing.T) {
			r := Stream(7, "test/"+row.why)
			sum, sq := 0.0, 0.0
			for range draws {
				g := row.p.Gap(r)
				if g < 0 || math.IsNaN(g) || math.IsInf(g, 0) {
					t.Fatalf("gap %v", g)
				}
				sum += g
				sq += g * g
			}
			mean := sum / draws
			cv := math.Sqrt(max(0, sq/draws-mean*mean)) / mean
			// Four standard errors of the mean; the CV converges slower and gets 3 %.
			if tol := 4*row.wantCV/math.Sqrt(draws) + 1e-9; math.Abs(mean*row.p.Rate-1) > tol {
				t.Errorf("mean gap %v s, want %v within %.2f %%", mean, 1/row.p.Rate, 100*tol)
			}
			if math.Abs(cv-row.wantCV) > 0.03*row.wantCV+1e-3 {
				t.Errorf("cv %v, want %v", cv, row.wantCV)
			}
		})
	}
}

func TestPoissonCountsAreDispersedAsTheirMean(t *testing.T) {
	s, err := Process{Kind: Poisson, Rate: 50}.Schedule(Stream(11, "dispersion"), 2000*time.Second, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	counts := make([]float64, 2000)
	for _, at := range s {
		counts[int(at/time.Second)]++
	}
	mean, variance := 0.0, 0.0
	for _, c := range counts {
		mean += c / float64(len(counts))
	}
	for _, c := range counts {
		variance += (c - mean) * (c - mean) / float64(len(counts)-1)
	}
	if d := variance / mean; d < 0.85 || d > 1.15 {
		t.Errorf("variance/mean of counts per second is %.3f, want 1", d)
	}
}

func TestConstantScheduleIsExactAndDoesNotDrift(t *testing.T) {
	s, err := Process{Kind: Constant, Rate: 3}.Schedule(Stream(1, "x"), 1000*time.Second, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if len(s) != 3000 || s[0] != 0 || s[2997] != 999*time.Second {
		t.Errorf("%d arrivals, first %v, 2998th %v; want 3000, 0s, 999s", len(s), s[0], s[2997])
	}
}

func TestScheduleRefuses(t *testing.T) {
	for _, row := range []struct {
		why string
		p   Process
	}{
		{"an unknown process", Process{Kind: "weibull", Rate: 1}},
		{"no rate", Process{Kind: Poisson}},
		{"a negative rate", Process{Kind: Constant, Rate: -1}},
		{"a rate that is no number", Process{Kind: Constant, Rate: math.NaN()}},
		{"an infinite rate", Process{Kind: Constant, Rate: math.Inf(1)}},
		{"gamma without CV", Process{Kind: Gamma, Rate: 1}},
		{"gamma with a CV that is no number", Process{Kind: Gamma, Rate: 1, CV: math.NaN()}},
	} {
		if _, err := row.p.Schedule(Stream(1, "x"), time.Second, 10); err == nil {
			t.Errorf("%s is accepted", row.why)
		}
	}
	if _, err := (Process{Kind: Poisson, Rate: 1e6}).Schedule(Stream(1, "x"), time.Hour, 10); !errors.Is(err, ErrLimit) {
		t.Errorf("over the limit: %v", err)
	}
}

func TestStreamsAreIndependentByName(t *testing.T) {
	first := func(seed uint64, name string) uint64 { return Stream(seed, name).Uint64() }
	if first(1, "a") != first(1, "a") {
		t.Error("one seed and name give two sequences")
	}
	seen := map[uint64]string{}
	for _, name := range []string{"", "a", "b", "a/b", "tenant/a/arrival", "tenant/a/prompt"} {
		for seed := range uint64(50) {
			v := first(seed, name)
			if other, dup := seen[v]; dup {
				t.Errorf("seed %d name %q starts like %s", seed, name, other)
			}
			seen[v] = name
		}
	}
	// The sequence is part of the plan's bytes: a change of the derivation must not go unnoticed.
	if got := first(42, "tenant/gold/arrival"); got != golden {
		t.Errorf("Stream(42, tenant/gold/arrival) starts with %d, want %d", got, uint64(golden))
	}
}

func TestAnyScheduleIsSortedBoundedAndReproducible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Process{
			Kind: rapid.SampledFrom([]Kind{Constant, Poisson, Gamma}).Draw(t, "kind"),
			Rate: rapid.Float64Range(0.01, 2000).Draw(t, "rate"),
			CV:   rapid.Float64Range(0.01, 20).Draw(t, "cv"),
		}
		seed := rapid.Uint64().Draw(t, "seed")
		d := time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "duration"))
		s, err := p.Schedule(Stream(seed, "s"), d, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSorted(s) {
			t.Fatal("not sorted")
		}
		if n := len(s); n > 0 && (s[0] < 0 || s[n-1] >= d) {
			t.Fatalf("arrivals from %v to %v outside [0, %v)", s[0], s[n-1], d)
		}
		again, _ := p.Schedule(Stream(seed, "s"), d, 1<<20)
		if !slices.Equal(s, again) {
			t.Fatal("one seed gives two schedules")
		}
		longer, _ := p.Schedule(Stream(seed, "s"), d+time.Second, 1<<20)
		if !slices.Equal(s, longer[:len(s)]) {
			t.Fatal("a longer run changes the start of the schedule")
		}
	})
}

func TestPacerFollowsTheSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gaps := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Second)), 0, 50).Draw(t, "gaps")
		var s Schedule
		at := time.Duration(0)
		for _, g := range gaps {
			at += time.Duration(g)
			s = append(s, at)
		}
		// A sender that is late by any amount still finds each arrival due at its own instant.
		now := time.Duration(0)
		for hits := uint64(0); ; hits++ {
			wait, stop := s.Pace(now, hits)
			if stop {
				if int(hits) != len(s) {
					t.Fatalf("stopped after %d of %d", hits, len(s))
				}
				return
			}
			if now+wait != max(now, s[hits]) {
				t.Fatalf("arrival %d at %v, want %v", hits, now+wait, max(now, s[hits]))
			}
			now += wait + time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "late"))
		}
	})
}

func TestRateCountsTheSecondAround(t *testing.T) {
	s := Schedule{0, 100 * time.Millisecond, 900 * time.Millisecond, 5 * time.Second}
	for _, row := range []struct {
		at   time.Duration
		want float64
	}{{0, 2}, {500 * time.Millisecond, 3}, {3 * time.Second, 0}, {5 * time.Second, 1}} {
		if got := s.Rate(row.at); got != row.want {
			t.Errorf("rate at %v is %v, want %v", row.at, got, row.want)
		}
	}
}

const golden = 11418480532002514925
