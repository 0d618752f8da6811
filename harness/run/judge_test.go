package run_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/verdict"
)

func entry(requirement, check string, s checks.Spec) evidence.CheckEntry {
	s.Requirement, s.Check = requirement, check
	return s.Entry()
}

// done is a scenario in which request a1 completes, judged as completed.
func done(name, requirement string) (evidence.ScenarioEntry, evidence.Run) {
	return evidence.ScenarioEntry{Name: name, Gated: true, Checks: []evidence.CheckEntry{entry(requirement, "completed", checks.Spec{IDs: []string{"a1"}})}},
		evidence.Run{Scenario: name,
			Clients:  []evidence.Client{{ID: "a1", Sent: 1, End: 9, Outcome: evidence.Completed, Status: 200}},
			Backends: []evidence.Backend{{ID: "a1", Endpoint: "a", Arrival: 2, End: 8, Ending: evidence.Finished}}}
}

// bundle has the probe, a gated and an ungated scenario, and one check over the whole run; all of it passes. The scenarios come in any
// order, because the probe must count wherever it stands.
func bundle() *evidence.Bundle {
	b := &evidence.Bundle{Manifest: evidence.Manifest{Complete: true,
		RunChecks: []evidence.CheckEntry{entry("INV-07", "one-dispatch", checks.Spec{Needed: 3})},
		Excluded:  []evidence.Exclusion{{Requirement: "FC-CLS-05", Why: "recorded only"}}}}
	for name, requirement := range map[string]string{"activation": run.Probe, "gated": "FC-SAT-01", "free": "FC-PROTO-05"} {
		s, r := done(name, requirement)
		s.Gated = name != "free"
		b.Manifest.Scenarios = append(b.Manifest.Scenarios, s)
		b.Runs = append(b.Runs, r)
	}
	return b
}

func scenarioOf(b *evidence.Bundle, name string) (*evidence.ScenarioEntry, *evidence.Run) {
	for i := range b.Manifest.Scenarios {
		if b.Manifest.Scenarios[i].Name == name {
			return &b.Manifest.Scenarios[i], &b.Runs[i]
		}
	}
	return nil, nil
}

func TestJudge(t *testing.T) {
	const p, f, e, i, na = verdict.Pass, verdict.Fail, verdict.Error, verdict.Inconclusive, verdict.NotApplicable
	type wants map[string]verdict.Kind
	for _, c := range []struct {
		says  string
		do    func(*evidence.Bundle)
		want  wants
		whyOf string
		why   string
	}{
		{"what shows a mechanism passed", func(b *evidence.Bundle) {
			b.Manifest.ShownBy = []evidence.Shown{{Requirement: "FC-SAT-01", By: "FC-PROTO-05"}}
		}, wants{"FC-SAT-01": p, "FC-PROTO-05": p}, "FC-CLS-05", "recorded only"},
		{"what shows a mechanism failed", func(b *evidence.Bundle) {
			b.Manifest.ShownBy = []evidence.Shown{{Requirement: "FC-SAT-01", By: "FC-PROTO-05"}}
			_, r := scenarioOf(b, "free")
			r.Clients[0].Status = 500
		}, wants{"FC-SAT-01": i, "FC-PROTO-05": f}, "FC-SAT-01", "FC-PROTO-05, which shows"},
		{"what shows a mechanism was not played", func(b *evidence.Bundle) {
			b.Manifest.ShownBy = []evidence.Shown{{Requirement: "FC-SAT-01", By: "FC-EVI-01"}}
		}, wants{"FC-SAT-01": i, "FC-PROTO-05": p}, "FC-SAT-01", "was not part of this run"},
		{"everything as it should be", func(*evidence.Bundle) {}, wants{run.Probe: p, "FC-SAT-01": p, "FC-PROTO-05": p, "INV-07": p, "FC-CLS-05": na}, "FC-CLS-05", "recorded only"},
		{"a scenario that broke is an error, whatever its records say", func(b *evidence.Bundle) {
			s, _ := scenarioOf(b, "gated")
			s.Error = "configure: no such port"
		}, wants{"FC-SAT-01": e, "FC-PROTO-05": p}, "FC-SAT-01", "no such port"},
		{"a scenario that does not apply", func(b *evidence.Bundle) {
			s, r := scenarioOf(b, "gated")
			s.NotApplicable, *r = "the system does not declare hold", evidence.Run{}
		}, wants{"FC-SAT-01": na}, "FC-SAT-01", "declare hold"},
		{"broken and not applicable at once is broken", func(b *evidence.Bundle) {
			s, _ := scenarioOf(b, "gated")
			s.NotApplicable, s.Error = "n/a", "close: hung"
		}, wants{"FC-SAT-01": e}, "FC-SAT-01", "hung"},
		{"a scenario without records shows nothing", func(b *evidence.Bundle) {
			_, r := scenarioOf(b, "gated")
			*r = evidence.Run{}
		}, wants{"FC-SAT-01": i, "INV-07": i}, "FC-SAT-01", "not engaged"},
		{"an interrupted run judges nothing over the whole of it", func(b *evidence.Bundle) { b.Manifest.Complete = false },
			wants{"INV-07": i, "FC-SAT-01": p}, "INV-07", "interrupted"},
		{"parameters that cannot be read are an error", func(b *evidence.Bundle) {
			s, _ := scenarioOf(b, "gated")
			s.Checks[0].Params = json.RawMessage(`{"noSuchParameter":1}`)
			b.Manifest.RunChecks[0].Params = json.RawMessage(`[]`)
		}, wants{"FC-SAT-01": e, "INV-07": e}, "FC-SAT-01", "noSuchParameter"},
		{"a check that the library does not have is an error", func(b *evidence.Bundle) {
			s, _ := scenarioOf(b, "gated")
			s.Checks[0].Check = "wishing"
		}, wants{"FC-SAT-01": e}, "FC-SAT-01", "wishing"},
		{"a failed probe takes back what passed behind a gate, and nothing else", func(b *evidence.Bundle) {
			_, r := scenarioOf(b, "activation")
			r.Clients[0].Status = 500
		}, wants{run.Probe: f, "FC-SAT-01": i, "FC-PROTO-05": p, "INV-07": p}, "FC-SAT-01", "activation probe (INV-01) ended as fail"},
		{"a probe that shows nothing does so too", func(b *evidence.Bundle) {
			_, r := scenarioOf(b, "activation")
			r.Clients = nil
		}, wants{run.Probe: i, "FC-SAT-01": i, "FC-PROTO-05": p}, "FC-SAT-01", "inconclusive"},
		{"a probe that broke does so too", func(b *evidence.Bundle) {
			s, _ := scenarioOf(b, "activation")
			s.Error = "x"
		}, wants{run.Probe: e, "FC-SAT-01": i}, "FC-SAT-01", "ended as error"},
		{"a failed probe softens no failure", func(b *evidence.Bundle) {
			_, r := scenarioOf(b, "activation")
			r.Clients[0].Status = 500
			_, r = scenarioOf(b, "gated")
			r.Clients[0].Status = 500
		}, wants{run.Probe: f, "FC-SAT-01": f}, "FC-SAT-01", "expected a1 to complete"},
	} {
		t.Run(c.says, func(t *testing.T) {
			b := bundle()
			c.do(b)
			got := map[string]verdict.Verdict{}
			for _, v := range run.Judge(b) {
				if _, twice := got[v.Requirement]; twice {
					t.Errorf("two verdicts of %s", v.Requirement)
				}
				got[v.Requirement] = v
			}
			if len(got) != 5 {
				t.Errorf("%d verdicts: a requirement was lost", len(got))
			}
			for id, want := range c.want {
				if got[id].Kind != want {
					t.Errorf("%s: %v, want %v (%s)", id, got[id].Kind, want, got[id].Why)
				}
			}
			if !strings.Contains(got[c.whyOf].Why, c.why) {
				t.Errorf("%s: %q does not say %q", c.whyOf, got[c.whyOf].Why, c.why)
			}
		})
	}
}

func TestRequirementsOfABundle(t *testing.T) {
	b := bundle()
	all := []verdict.Requirement{{ID: "FC-PROTO-05", Level: "core"}, {ID: "FC-CLS-05", Level: "core"}, {ID: run.Probe, Level: "core"}, {ID: "FC-GONE-01", Level: "core"}}
	var ids []string
	for _, r := range run.Requirements(b.Manifest, all) {
		ids = append(ids, r.ID)
		if (r.ID == "FC-SAT-01" || r.ID == "INV-07") && (r.Level != "core" || !strings.Contains(r.Title, "not in this version")) {
			t.Errorf("a row that this version does not know counts as core: %+v", r)
		}
	}
	if got, want := strings.Join(ids, " "), "FC-PROTO-05 FC-CLS-05 INV-01 FC-SAT-01 INV-07"; got != want {
		t.Errorf("rows %s, want %s: the catalogue's order, then what it does not know", got, want)
	}
}
