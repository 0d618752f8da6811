package run_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/verdict"
)

// A check that is said to need no model server must come to the same without anything that one has recorded, or say that it needs more.
func TestOutsideOnlyNeedsNoModelServer(t *testing.T) {
	b := goodBundle(t, profile.Default)
	tried := map[string]int{}
	blind := make([]evidence.Run, len(b.Runs))
	for i, s := range b.Manifest.Scenarios {
		blind[i] = clone(b.Runs[i])
		blind[i].Backends = nil
		for _, e := range s.Checks {
			spec, err := checks.FromEntry(e)
			if err != nil {
				t.Fatal(err)
			}
			if !checks.OutsideOnly(spec) || s.Error != "" || s.NotApplicable != "" {
				continue
			}
			with, without := checks.Judge(spec, b.Runs[i]), checks.Judge(spec, blind[i])
			if without.Kind != verdict.Inconclusive && !reflect.DeepEqual(with, without) {
				t.Errorf("%s %s: %s with the log of the model servers, %s without", s.Name, e.Check, with.Kind, without.Kind)
			}
			tried[e.Check]++
		}
	}
	for _, e := range b.Manifest.RunChecks {
		spec, err := checks.FromEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		with, without := checks.JudgeWhole(spec, b.Runs), checks.JudgeWhole(spec, blind)
		if checks.OutsideOnly(spec) && without.Kind != verdict.Inconclusive && without.Kind != with.Kind {
			t.Errorf("whole run %s: %s with the log of the model servers, %s without", e.Check, with.Kind, without.Kind)
		}
	}
	for _, name := range []string{"startup", "series", "state", "ends"} {
		if tried[name] == 0 {
			t.Errorf("no %s was tried", name)
		}
	}
}

// Without a log of the model servers nothing passes that needs one, and with clocks that cannot be compared nothing is decided by them.
func TestWhatCannotBeSeenIsNotClaimed(t *testing.T) {
	for _, c := range []struct {
		says string
		edit func(*evidence.Bundle)
		why  string
	}{
		{"no log", func(b *evidence.Bundle) { b.Manifest.NoBackendLog = true }, "nobody recorded"},
		{"clocks far apart", func(b *evidence.Bundle) {
			for i := range b.Manifest.Scenarios {
				b.Manifest.Scenarios[i].Blurred = "80 ms apart"
			}
		}, "80 ms apart"},
	} {
		good := goodBundle(t, profile.Default)
		b := evidence.InMemory(good.Manifest, good.Runs)
		b.Manifest.Scenarios = append([]evidence.ScenarioEntry(nil), good.Manifest.Scenarios...)
		c.edit(b)
		outside := map[string]int{} // how many checks of this name need no model server
		for _, sc := range b.Manifest.Scenarios {
			for _, e := range sc.Checks {
				if spec, err := checks.FromEntry(e); err == nil && checks.OutsideOnly(spec) {
					outside[e.Requirement+" "+sc.Name+" "+e.Check]++
				}
			}
		}
		for _, e := range b.Manifest.RunChecks {
			if spec, err := checks.FromEntry(e); err == nil && checks.OutsideOnly(spec) {
				outside[e.Requirement+" "+checks.Whole+" "+e.Check]++
			}
		}
		taken := 0
		for _, v := range run.Judge(b) {
			if v.Kind == verdict.Pass && (v.Scenario != checks.Whole || c.says == "no log") {
				key := v.Requirement + " " + v.Scenario + " " + v.Check
				if outside[key]--; outside[key] < 0 {
					t.Errorf("%s: %s %s %s passes", c.says, v.Scenario, v.Requirement, v.Check)
				}
			}
			if strings.Contains(v.Why, c.why) {
				taken++
			}
		}
		if taken < 100 {
			t.Errorf("%s: only %d verdicts were taken back", c.says, taken)
		}
	}
}

// gated is a scenario behind a gate, judged by an order that a fake system shows or not.
func gated(name, requirement string) scenario.Compiled {
	c := compiled(name)
	c.Config.Hold = true
	c.Checks = []checks.Spec{{Check: "completed", Requirement: requirement, IDs: []string{"a1"}}}
	return c
}

func TestProbeFirst(t *testing.T) {
	for _, c := range []struct {
		says   string
		probed bool // the probe is shown to pass
		played string
		kind   verdict.Kind
	}{
		{"the gate closes: everything is played", true, "probe other gated", verdict.Pass},
		{"it does not: nothing behind it is played", false, "probe other", verdict.Inconclusive},
	} {
		var played []string
		o := options(func() sut.System {
			return &system{play: func(_ context.Context, out evidence.Sink) error {
				if len(played) > 0 || c.probed {
					serve(out)
				}
				played = append(played, []string{"probe", "other", "gated"}[len(played)])
				return nil
			}}
		}, compiled("other"), gated("gated", "FC-A"), gated("probe", run.Probe))
		if c.probed {
			// In catalogue order, once the probe is over.
			o.Scenarios[0], o.Scenarios[1] = compiled("other"), gated("gated", "FC-A")
		}
		o.ProbeFirst, o.Parallel = true, 1
		b, _ := sealed(t, context.Background(), o)
		if got := strings.Join(played, " "); got != c.played {
			t.Errorf("%s: played %s", c.says, got)
		}
		for _, v := range run.Judge(b) {
			if v.Scenario == "gated" && v.Kind != c.kind {
				t.Errorf("%s: %s is %s: %s", c.says, v.Scenario, v.Kind, v.Why)
			}
		}
	}
}

// clocked has clocks of its own and cannot do what its script wants.
type clocked struct{ system }

func (*clocked) SkewBound() (time.Duration, string) { return 7 * time.Millisecond, "far" }

func TestSkewAndLateRefusals(t *testing.T) {
	o := options(func() sut.System {
		return &clocked{system{play: func(context.Context, evidence.Sink) error { return nil }}}
	}, compiled("one"))
	b, _ := sealed(t, context.Background(), o)
	if e := b.Manifest.Scenarios[0]; e.SkewBoundNs != 7e6 || e.Blurred != "far" || b.Manifest.SkewBoundNs != 7e6 {
		t.Errorf("the bound is lost: %+v", e)
	}
	o = options(func() sut.System {
		return &system{play: func(context.Context, evidence.Sink) error { return &sut.UnsupportedError{Feature: "x", Why: "no way"} }}
	}, compiled("one"))
	b, _ = sealed(t, context.Background(), o)
	if e := b.Manifest.Scenarios[0]; e.Error != "" || !strings.Contains(e.NotApplicable, "no way") {
		t.Errorf("what a system finds out only when it sees the script: %+v", e)
	}
}

// kept can leave its stack up.
type kept struct {
	system
	keep func([]string, error)
}

func (k *kept) Keep(f func([]string, error)) { k.keep = f }

func TestKeepIsForFailures(t *testing.T) {
	for _, c := range []struct {
		says string
		good bool
		want int
	}{{"a pass", true, 0}, {"a failure", false, 1}} {
		asked := 0
		o := options(func() sut.System {
			k := &kept{}
			k.play = func(_ context.Context, out evidence.Sink) error {
				if c.good {
					serve(out)
				} else {
					out.Client(evidence.Client{ID: "a1", Sent: 1, End: 2, Outcome: evidence.Refused, Status: 500})
				}
				k.keep([]string{"gateway x"}, nil)
				return nil
			}
			return k
		}, gated("one", "FC-A"))
		o.Keep = func(_ context.Context, k run.Kept) {
			asked++
			if k.Scenario != "one" || len(k.Failed) != 1 || k.About[0] != "gateway x" {
				t.Errorf("%+v", k)
			}
		}
		sealed(t, context.Background(), o)
		if asked != c.want {
			t.Errorf("%s: asked %d times", c.says, asked)
		}
	}
}
