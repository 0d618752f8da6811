// Package catalog is the one ordered list of scenarios and the requirement list, as literals.
//
// The requirement rows are the catalogue's own (spec/requirements.md); the scenarios below cite them by id. Nothing in here plays or
// judges anything.
package catalog

import (
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/verdict"
	"github.com/llm-weir/weir/suites/async"
)

// Requirement is one row of the requirement catalogue.
type Requirement struct {
	ID     string
	Level  string
	First  bool // starred: part of the first certification run
	Text   string
	Source string
}

// Requirements lists all rows, picker first.
func Requirements() []Requirement {
	return slices.Concat(classificationRequirements, saturationRequirements, outcomesRequirements, surfaceRequirements,
		intakeRequirements, deliveryRequirements)
}

// ShownBy lists the requirements about restraint with the one that shows that there is something to restrain. A router that never does a
// thing keeps every rule about not doing it.
func ShownBy() []evidence.Shown {
	var out []evidence.Shown
	for _, pair := range [][2]string{
		{"FC-EVI-02", "FC-EVI-01"}, {"FC-EVI-03", "FC-EVI-01"}, {"FC-EVI-10", "FC-EVI-01"}, {"FC-EVI-11", "FC-EVI-01"}, {"FC-EVI-15", "FC-EVI-01"},
		{"FC-CAP-14", "FC-CAP-01"}, // a limit of 0 as the default means something where limits are kept
		{"FC-TTL-03", "FC-TTL-01"}, {"FC-TTL-04", "FC-TTL-01"}, {"FC-CAP-09", "FC-CAP-01"},
		{"FC-HEAD-05", "FC-SAT-01"},
	} {
		out = append(out, evidence.Shown{Requirement: pair[0], By: pair[1]})
	}
	return out
}

// Find gives the row of an id.
func Find(id string) (Requirement, bool) {
	for _, r := range Requirements() {
		if r.ID == id {
			return r, true
		}
	}
	return Requirement{}, false
}

// Scenarios lists the conformance scenarios in the order in which they are played and reported. The activation probe is first: what
// depends on a gate that never closes shows nothing. The chain comes next, because its scenarios are the longest: nobody is left waiting for
// one of them in the end.
func Scenarios() []scenario.Scenario {
	return slices.Concat(activationScenarios, chainScenarios, classificationScenarios, priorityScenarios, fairnessScenarios, orderingScenarios,
		saturationScenarios, ceilingScenarios, holdbackScenarios, backlogScenarios, capacityScenarios, endingScenarios, evictionScenarios, surfaceScenarios, gateScenarios, queueScenarios,
		contractScenarios, wireScenarios, objectScenarios, pageScenarios, stageScenarios, matrixScenarios, multiScenarios, kubeScenarios, loadScenarios,
		benchScenarios, kneeScenarios, consolidationScenarios, settingScenarios, patternScenarios)
}

// asyncBenchmark is the one among the benchmarks that scenarios of Async Processors measure.
const asyncBenchmark = "BEN-21"

// Judged tells whether a row belongs to what a contract is about: routers, or Async Processors.
func Judged(p profile.Profile, id string) bool {
	if own := strings.HasPrefix(id, "AP-") || id == asyncBenchmark; own || p.Processor != nil {
		return own && p.Processor != nil
	}
	return strings.HasPrefix(id, "FC-") || strings.HasPrefix(id, "INV-") || strings.HasPrefix(id, "BEN-") || strings.HasPrefix(id, "E2E-")
}

// Compile writes every scenario of what the contract is about down for a profile and a seed. Scenarios of which the profile judges nothing are included with no checks.
func Compile(p profile.Profile, seed uint64) []scenario.Compiled {
	var out []scenario.Compiled
	scenarios := Scenarios()
	if p.Processor != nil {
		scenarios = async.Scenarios()
	}
	for _, s := range scenarios {
		c := scenario.Compile(s, p, seed)
		c.Level = level(c)
		out = append(out, c)
	}
	return out
}

var rank = []string{scenario.Informative, scenario.Experimental, scenario.Extended, scenario.Core}

// level of a scenario is the strictest among its requirements.
func level(c scenario.Compiled) string {
	best := 0
	for _, id := range c.Requirements() {
		if r, ok := Find(id); ok {
			best = max(best, slices.Index(rank, r.Level))
		}
	}
	return rank[best]
}

// Covered lists, in catalogue order, the rows that the compiled scenarios and the run-wide checks judge.
func Covered(cs []scenario.Compiled, p profile.Profile) []verdict.Requirement {
	ids := map[string]bool{}
	for _, c := range cs {
		for _, id := range c.Requirements() {
			ids[id] = true
		}
	}
	for _, c := range RunChecks(p) {
		ids[c.Requirement] = true
	}
	var out []verdict.Requirement
	for _, r := range Requirements() {
		if ids[r.ID] {
			out = append(out, verdict.Requirement{ID: r.ID, Level: r.Level, Title: r.Text})
		}
	}
	return out
}

// Later lists the requirements of comparisons that join a slow scenario: where those are not played, they are judged whole or not at all.
func Later(p profile.Profile, all []scenario.Compiled) map[string]bool {
	out := map[string]bool{}
	for _, c := range RunChecks(p) {
		if c.Bench == nil {
			continue
		}
		for _, name := range c.Bench.Runs {
			i := slices.IndexFunc(all, func(x scenario.Compiled) bool { return x.Name == name })
			out[c.Requirement] = out[c.Requirement] || i >= 0 && all[i].Slow
		}
	}
	return out
}
