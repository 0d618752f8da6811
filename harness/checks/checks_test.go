package checks_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/verdict"
)

func judge(tr trial) verdict.Verdict {
	tr.spec.Check, tr.spec.Requirement = tr.check, "INV-00"
	if slices.Contains(checks.WholeNames(), tr.check) {
		return checks.JudgeWhole(tr.spec, append([]evidence.Run{tr.hist.r}, tr.hist.also...))
	}
	return checks.Judge(tr.spec, tr.hist.r)
}

// trials are the hand-written ones and, for each passing one, two that need no hand: the same check of an empty history, and the
// check without any parameter of the history that satisfies it.
func trials() []trial {
	written := slices.Concat(deployTrials, queueTrials, gateTrials, valueTrials, endingTrials, raceTrials, flowTrials, sampleTrials, outsideTrials, wholeTrials, wholeMoreTrials, benchTrials, benchMoreTrials,
		asyncFlowTrials, asyncResultTrials, asyncWireTrials, asyncValueTrials, asyncStartTrials, asyncChainTrials)
	out := slices.Clone(written)
	for _, tr := range written {
		if tr.kind != "passing" {
			continue
		}
		out = append(out,
			trial{tr.check, "empty", "no records for: " + tr.says, tr.spec, history(), inconclusive},
			trial{tr.check, "parameterless", "no parameters for: " + tr.says, checks.Spec{}, tr.hist, inconclusive})
	}
	return out
}

func TestChecks(t *testing.T) {
	for _, tr := range trials() {
		t.Run(tr.check+"/"+tr.kind+"/"+tr.says, func(t *testing.T) {
			v := judge(tr)
			if tr.kind == "parameterless" {
				if v.Kind == pass {
					t.Errorf("passed without parameters: %s", v.Figure)
				}
				return
			}
			if v.Kind != tr.want {
				t.Errorf("%v, want %v: %s (%s)", v.Kind, tr.want, v.Figure, v.Why)
			}
			if v.Figure == "" || v.Kind != pass && v.Why == "" {
				t.Errorf("a verdict must name its figure, and its reason unless it passes: %+v", v)
			}
			if v.Check != tr.check || v.Requirement != "INV-00" || v.Scenario == "" {
				t.Errorf("the verdict does not say of what it is: %+v", v)
			}
		})
	}
}

// A check that nobody has tried in all four ways is not known to fail.
func TestEveryCheckHasEveryKindOfTrial(t *testing.T) {
	have := map[string]int{}
	for _, tr := range trials() {
		have[tr.check+" "+tr.kind]++
		if !slices.Contains(checks.Names(), tr.check) && !slices.Contains(checks.WholeNames(), tr.check) {
			t.Errorf("trial of %q, which the library does not list", tr.check)
		}
	}
	for _, name := range slices.Concat(checks.Names(), checks.WholeNames()) {
		for _, kind := range []string{"passing", "failing", "empty", "degenerate"} {
			if have[name+" "+kind] == 0 {
				t.Errorf("check %s has no %s history", name, kind)
			}
		}
	}
}

// What would be learned from a record that is not there, of no request at all, must not depend on the check.
func TestNoCheckPassesOnNothing(t *testing.T) {
	for _, name := range checks.Names() {
		if v := checks.Judge(checks.Spec{Check: name}, evidence.Run{}); v.Kind == pass {
			t.Errorf("%s passes on nothing: %s", name, v.Figure)
		}
	}
	for _, name := range checks.WholeNames() {
		for _, runs := range [][]evidence.Run{nil, {{}}} {
			if v := checks.JudgeWhole(checks.Spec{Check: name}, runs); v.Kind == pass {
				t.Errorf("%s passes on nothing: %s", name, v.Figure)
			}
		}
	}
}

// Every passing history becomes inconclusive if a barrier that the check depends on was not reached or not even tried.
func TestEngagedStepsGateEveryCheck(t *testing.T) {
	for _, tr := range trials() {
		if tr.kind != "passing" || slices.Contains(checks.WholeNames(), tr.check) {
			continue
		}
		tr.spec.Engaged = []string{"never-played"}
		if v := judge(tr); v.Kind != inconclusive {
			t.Errorf("%s: %v although a step was not played", tr.check, v.Kind)
		}
	}
}

func TestUnknownCheckIsAnError(t *testing.T) {
	if v := checks.Judge(checks.Spec{Check: "no-such-check"}, evidence.Run{}); v.Kind != verdict.Error {
		t.Errorf("%v", v)
	}
	if v := checks.JudgeWhole(checks.Spec{Check: "order"}, nil); v.Kind != verdict.Error || v.Scenario != checks.Whole {
		t.Errorf("a check of one scenario over the whole run: %v", v)
	}
}

func TestEntries(t *testing.T) {
	for _, c := range []struct {
		says, params string
		ok           bool
	}{
		{"parameters as written", `{"ids":["a1"],"count":1}`, true},
		{"no parameters", `{}`, true},
		{"a parameter of a later version is a condition that would be skipped", `{"ids":["a1"],"atLeast":3}`, false},
		{"a parameter of the wrong type", `{"count":"one"}`, false},
		{"nothing at all", ``, false},
	} {
		_, err := checks.FromEntry(evidence.CheckEntry{Check: "waiting", Requirement: "FC-SAT-01", Params: json.RawMessage(c.params)})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.says, err)
		}
	}
}
