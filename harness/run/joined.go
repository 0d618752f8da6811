package run

import (
	"slices"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/verdict"
)

// unjoined gives the verdict of a check over the whole run that joins scenarios of which one was ruled out, or is in error: what is missing
// is then known, and nothing is inconclusive about it. False if all were played, or none is joined by name.
func unjoined(m evidence.Manifest, s checks.Spec) (verdict.Verdict, bool) {
	if s.Bench == nil {
		return verdict.Verdict{}, false
	}
	var joined []string
	for _, name := range s.Bench.Runs {
		joined = append(joined, name)
	}
	v := verdict.Verdict{Requirement: s.Requirement, Scenario: checks.Whole, Check: s.Check, Kind: verdict.NotApplicable, Figure: "not applicable"}
	found := false
	for _, e := range m.Scenarios {
		switch {
		case !slices.Contains(joined, e.Name):
		case e.Error != "":
			v.Kind, v.Figure, v.Why = verdict.Error, "error", e.Name+": "+e.Error
			return v, true
		case e.NotApplicable != "" && !found:
			v.Why, found = e.Name+": "+e.NotApplicable, true
		}
	}
	return v, found
}
