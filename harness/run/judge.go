package run

import (
	"fmt"
	"slices"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/verdict"
)

// Probe is the requirement whose failure leaves everything behind a closed gate unproven.
const Probe = "INV-01"

// Judge gives the verdicts of a bundle, from its evidence and the checks that its manifest fixed beforehand, and from nothing else.
func Judge(b *evidence.Bundle) []verdict.Verdict {
	var out []verdict.Verdict
	for i, s := range b.Manifest.Scenarios {
		out = append(out, observed(b.Manifest, s, judgeScenario(s, b.Runs[i]))...)
	}
	for _, e := range b.Manifest.RunChecks {
		spec, err := checks.FromEntry(e)
		switch {
		case err != nil:
			out = append(out, broken(e, checks.Whole, err.Error()))
		case !b.Manifest.Complete:
			out = append(out, verdict.Verdict{Requirement: e.Requirement, Scenario: checks.Whole, Check: e.Check, Kind: verdict.Inconclusive,
				Figure: "interrupted", Why: "the run was interrupted; a check over the whole run needs all of it"})
		default:
			v, ok := unjoined(b.Manifest, spec)
			if !ok {
				v = observedWhole(b.Manifest, spec, checks.JudgeWhole(spec, b.Runs))
			}
			out = append(out, v)
		}
	}
	for _, x := range b.Manifest.Excluded {
		out = append(out, verdict.Verdict{Requirement: x.Requirement, Scenario: checks.Whole, Check: "profile", Kind: verdict.NotApplicable,
			Figure: "not judged", Why: x.Why})
	}
	return known(b.Manifest, dependent(b.Manifest, out))
}

// known takes a requirement out of the count that failed as the profile knows of its own build. All its verdicts go with it: a part of
// a faulty requirement that passed must not make a pass of the whole. They stay in the report, with what was seen.
func known(m evidence.Manifest, vs []verdict.Verdict) []verdict.Verdict {
	faulty := map[string]bool{}
	for _, v := range vs {
		if v.Kind == verdict.Fail && slices.Contains(m.ExpectedFail, v.Requirement) {
			faulty[v.Requirement] = true
		}
	}
	for i, v := range vs {
		if faulty[v.Requirement] {
			vs[i].Kind = verdict.NotApplicable
			vs[i].Figure = "known fault: " + v.Figure
			vs[i].Why = fmt.Sprintf("a known fault of this contract's build (this part: %s): %s", v.Kind, v.Why)
		}
	}
	return vs
}

func judgeScenario(s evidence.ScenarioEntry, r evidence.Run) []verdict.Verdict {
	var out []verdict.Verdict
	for _, e := range s.Checks {
		switch spec, err := checks.FromEntry(e); {
		case err != nil:
			out = append(out, broken(e, s.Name, err.Error()))
		case s.Error != "":
			out = append(out, broken(e, s.Name, s.Error))
		case s.NotPlayed != "":
			out = append(out, verdict.Verdict{Requirement: e.Requirement, Scenario: s.Name, Check: e.Check, Kind: verdict.Inconclusive,
				Figure: "not played", Why: s.NotPlayed})
		case s.NotApplicable != "":
			out = append(out, verdict.Verdict{Requirement: e.Requirement, Scenario: s.Name, Check: e.Check, Kind: verdict.NotApplicable,
				Figure: "not applicable", Why: s.NotApplicable})
		default:
			out = append(out, checks.Judge(spec, r))
		}
	}
	return out
}

func broken(e evidence.CheckEntry, scenario, why string) verdict.Verdict {
	return verdict.Verdict{Requirement: e.Requirement, Scenario: scenario, Check: e.Check, Kind: verdict.Error, Figure: "error", Why: why}
}

// dependent takes back the passes of gated scenarios where the activation probe did not pass: a gate that was not shown to close at
// the configured limit proves nothing about what happens behind it (INV-01).
func dependent(m evidence.Manifest, vs []verdict.Verdict) []verdict.Verdict {
	vs = shown(m, vs)
	why := probeFailure(vs)
	if why == "" {
		return vs
	}
	var gated []string
	for _, s := range m.Scenarios {
		if s.Gated {
			gated = append(gated, s.Name)
		}
	}
	for i, v := range vs {
		if v.Kind == verdict.Pass && v.Requirement != Probe && slices.Contains(gated, v.Scenario) {
			vs[i].Kind, vs[i].Why = verdict.Inconclusive, "the activation probe "+why
		}
	}
	return vs
}

// shown takes back the passes of requirements about the restraint of a mechanism that was not shown to exist.
func shown(m evidence.Manifest, vs []verdict.Verdict) []verdict.Verdict {
	for _, s := range m.ShownBy {
		how := "was not part of this run"
		passed := false
		for _, v := range vs {
			if v.Requirement != s.By || v.Kind == verdict.NotApplicable {
				continue
			}
			if passed = v.Kind == verdict.Pass; !passed {
				how = "ended as " + v.Kind.String() + ": " + v.Figure
				break
			}
		}
		if passed {
			continue
		}
		for i, v := range vs {
			if v.Requirement == s.Requirement && v.Kind == verdict.Pass {
				vs[i].Kind = verdict.Inconclusive
				vs[i].Why = fmt.Sprintf("%s, which shows that there is anything to hold back, %s", s.By, how)
			}
		}
	}
	return vs
}

// probeFailure words why the activation probe does not carry the others; "" if it passed or was not part of the run.
func probeFailure(vs []verdict.Verdict) string {
	for _, v := range vs {
		if v.Requirement == Probe && v.Kind != verdict.Pass && v.Kind != verdict.NotApplicable {
			return "(" + Probe + ") ended as " + v.Kind.String() + ": " + v.Figure
		}
	}
	return ""
}

// Requirements lists the rows that a manifest's checks and exclusions are about, in the order of all.
func Requirements(m evidence.Manifest, all []verdict.Requirement) []verdict.Requirement {
	ids := map[string]bool{}
	for _, s := range m.Scenarios {
		for _, c := range s.Checks {
			ids[c.Requirement] = true
		}
	}
	for _, c := range m.RunChecks {
		ids[c.Requirement] = true
	}
	for _, x := range m.Excluded {
		ids[x.Requirement] = true
	}
	var out []verdict.Requirement
	for _, r := range all {
		if ids[r.ID] {
			out = append(out, r)
			delete(ids, r.ID)
		}
	}
	var unknown []string
	for id := range ids {
		unknown = append(unknown, id)
	}
	slices.Sort(unknown)
	for _, id := range unknown {
		out = append(out, verdict.Requirement{ID: id, Level: "core", Title: "(not in this version's catalogue)"})
	}
	return out
}
