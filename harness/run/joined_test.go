package run_test

import (
	"testing"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/verdict"
)

// A comparison with a scenario that does not apply does not apply either; one with a scenario that broke is an error.
func TestComparisonsWithoutOneSide(t *testing.T) {
	spec := checks.Spec{Requirement: "BEN-12", Check: "same-capacity", Bench: &checks.Bench{Runs: map[string]string{"on": "A", "off": "B"}}}
	for _, c := range []struct {
		says string
		a, b evidence.ScenarioEntry
		want verdict.Kind
	}{
		{"both were played", evidence.ScenarioEntry{}, evidence.ScenarioEntry{}, verdict.Inconclusive},
		{"one does not apply", evidence.ScenarioEntry{}, evidence.ScenarioEntry{NotApplicable: "no such feature"}, verdict.NotApplicable},
		{"one broke", evidence.ScenarioEntry{Error: "it broke"}, evidence.ScenarioEntry{NotApplicable: "no such feature"}, verdict.Error},
		{"another broke", evidence.ScenarioEntry{}, evidence.ScenarioEntry{Name: "C", Error: "it broke"}, verdict.Inconclusive},
	} {
		c.a.Name = "A"
		if c.b.Name == "" {
			c.b.Name = "B"
		}
		m := evidence.Manifest{Complete: true, Scenarios: []evidence.ScenarioEntry{c.a, c.b}, RunChecks: []evidence.CheckEntry{spec.Entry()}}
		vs := run.Judge(evidence.InMemory(m, []evidence.Run{{Scenario: c.a.Name}, {Scenario: c.b.Name}}))
		if len(vs) != 1 || vs[0].Kind != c.want || vs[0].Scenario != checks.Whole || vs[0].Figure == "" || vs[0].Why == "" {
			t.Errorf("%s: %+v", c.says, vs)
		}
	}
}
