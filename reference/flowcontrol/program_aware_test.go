package flowcontrol

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestUnit: what a token counts doubles with every half-life, exactly, and follows 2^x in between; epochs take over without a step.
func TestUnit(t *testing.T) {
	half := 7 * time.Second
	a := attained{cfg: ProgramAwareConfig{HalfLife: half}}
	for i := range 3 * epochHalfLives {
		for _, part := range []float64{0, 0.1, 0.5, 0.999} {
			at := time.Duration(i)*half + time.Duration(part*float64(half))
			epoch, unit := a.unit(at)
			want := math.Exp2(float64(at)/float64(half) - float64(epoch*epochHalfLives))
			if epoch != int64(i/epochHalfLives) || math.Abs(unit/want-1) > 1e-12 || part == 0 && unit != want {
				t.Fatalf("%v: epoch %d, unit %v, want %v", at, epoch, unit, want)
			}
		}
	}
	a.cfg.HalfLife = 0
	if epoch, unit := a.unit(time.Hour); epoch != 0 || unit != 1 {
		t.Errorf("without a half-life: epoch %d, unit %v", epoch, unit)
	}
}

// TestAttainedAgainstDecay: whatever is served whenever, the shares of the flows are those of services that are decayed one by one,
// also over many epochs, while flows wait and after they were idle (FC-FAIR-11).
func TestAttainedAgainstDecay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		half := time.Second
		b := &band{cfg: BandConfig{Fairness: ProgramAware}, byID: map[string]*flow{}}
		b.attained.cfg = ProgramAwareConfig{WeightService: 1, HalfLife: half}
		flows, naive := make([]*flow, 4), make([]float64, 4)
		for i := range flows {
			flows[i] = b.hold(string(rune('a'+i)), 0)
		}
		now := time.Duration(0)
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			step := time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond
			if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
				step *= 300
			}
			now += step
			for i := range naive {
				naive[i] *= math.Exp2(-float64(step) / float64(half))
			}
			i := rapid.IntRange(0, 3).Draw(t, "flow")
			if f := flows[i]; rapid.Bool().Draw(t, "turn") {
				if f.place > 0 {
					b.drop(f.queue.head(FCFS), true)
				} else {
					b.add(&Entry{flow: f, entered: now})
				}
				continue
			}
			tokens := rapid.Int64Range(1, 1000).Draw(t, "tokens")
			naive[i] += float64(tokens)
			b.serve(now, flows[i], Usage{Prompt: tokens % 2, Completion: tokens / 2})
		}
		b.serve(now, flows[0], Usage{Prompt: 100})
		naive[0] += 100
		for i, f := range flows {
			f.rescale(b.epoch)
			_, unit := b.unit(now)
			if got, want := f.service/unit, naive[i]; math.Abs(got-want) > 1e-9*want+1e-100 {
				t.Fatalf("flow %d: %v, want %v", i, got, want)
			}
			if f.place > 0 && (b.contenders[f.place-1].flow != f || b.contenders[f.place-1].service != f.service) {
				t.Fatalf("flow %d: the table says %+v", i, b.contenders[f.place-1])
			}
		}
	})
}

// TestUsageNonsense: what a response says it used cannot make a flow richer.
func TestUsageNonsense(t *testing.T) {
	b := &band{cfg: BandConfig{Fairness: ProgramAware}, byID: map[string]*flow{}}
	f := b.hold("a", 0)
	b.serve(0, f, Usage{Prompt: -5, Completion: math.MinInt64})
	if f.service != 0 {
		t.Errorf("negative usage: %v", f.service)
	}
	b.serve(0, f, Usage{Prompt: math.MaxInt64, Completion: math.MaxInt64})
	if f.service < 0 || math.IsInf(f.service, 0) {
		t.Errorf("absurd usage: %v", f.service)
	}
}
