package catalog

import (
	_ "embed"
	"fmt"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

//go:embed thresholds.yaml
var thresholds []byte

//go:embed heavytail.yaml
var heavytail []byte

// thresholdPlaces is the batch size B of the model servers whose waiting threshold is varied.
const thresholdPlaces = 8

// settingScenarios vary one setting under one load.
var settingScenarios = []scenario.Scenario{
	cost("bench-cost-requests", "Counted in requests, long prompts press harder than short ones", "", func(s *checks.Bench) { s.AtLeast = 4 }),
	cost("bench-cost-tokens", "Counted in tokens, long and short prompts press alike", "tokens", func(s *checks.Bench) { s.AtMost = 2 }),
	{
		Name: "bench-scale", Title: "Heavy-tailed traffic on eight replicas: the higher band stays near its unloaded wait", Needs: []sut.Feature{sut.Objectives}, Paced: true, Slow: true,
		Write: func(b *scenario.Builder) {
			engines(b, "round-robin")
			for i := len(b.Config.Endpoints); i < 8; i++ {
				b.Config.Endpoints = append(b.Config.Endpoints, sut.Endpoint{Name: scenario.EndpointName(i)})
			}
			p := loadPlan(b, "heavytail.yaml", heavytail)
			b.Step(sut.Step{Op: sut.OpLoad, Mark: "load", Plan: &p})
			s := contendedSpec()
			s.Bench.To, s.Needed, s.Margin = 7800*time.Millisecond, 100, 0.1
			b.Check("BEN-29", "overload", s)
		},
	},
	threshold(1), threshold(5), threshold(thresholdPlaces), threshold(2 * thresholdPlaces),
}

// cost sends short and long prompts at one rate, behind a limit in requests or in tokens.
func cost(name, title, mode string, bound func(*checks.Bench)) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Paced: true, Write: func(b *scenario.Builder) {
		if !b.Profile.Config.ConcurrencyDetector {
			return
		}
		const short, long = 2000, 16000
		engines(b, "")
		b.Config.MaxSeqs = 0
		b.Config.Detector = sut.Detector{Kind: "concurrency", Mode: mode, MaxConcurrency: 4, MaxTokens: 2 * long}
		in := checks.Bench{Loads: []string{"short", "long"}}
		bound(&in)
		costLoad(b, "short", short, 5*time.Second)
		costLoad(b, "long", long, 700*time.Millisecond)
		b.Check("BEN-18", "token-pressure", checks.Spec{Engaged: in.Loads, Needed: 30, Bench: &in})
	}}
}

func costLoad(b *scenario.Builder, mark string, tokens int, d time.Duration) {
	p := loadPlan(b, mark, fmt.Appendf(nil, "name: %[1]s\nduration: %[2]s\ntenants:\n- name: %[1]s\n  arrival: {process: constant, rate: 70}\n  promptTokens: {fixed: %[3]d}\n  outputTokens: {fixed: 4}\n  stream: true\n", mark, d, tokens))
	b.Step(sut.Step{Op: sut.OpLoad, Mark: mark, Plan: &p})
}

// threshold is one waiting threshold under the load of thresholds.yaml.
func threshold(n int) scenario.Scenario {
	return scenario.Scenario{Name: fmt.Sprintf("bench-threshold-%d", n), Title: fmt.Sprintf("A waiting threshold of %d before model servers that run %d at once", n, thresholdPlaces),
		Needs: []sut.Feature{sut.Objectives}, Paced: true, Write: func(b *scenario.Builder) {
			engines(b, "")
			b.Config.MaxSeqs = thresholdPlaces
			b.Config.Detector = sut.Detector{Kind: "utilization", QueueDepth: n, KVUtil: 0.8, Staleness: 2 * time.Second}
			p := loadPlan(b, "thresholds.yaml", thresholds)
			b.Step(sut.Step{Op: sut.OpLoad, Mark: "load", Plan: &p})
			b.Check("BEN-23", "demanded", thresholdSpec())
		}}
}

func thresholdSpec() checks.Spec {
	s := contendedSpec()
	s.Bench.From, s.Bench.To, s.Bench.Places, s.Needed = 1500*time.Millisecond, 5800*time.Millisecond, thresholdPlaces, 80
	return s
}

// settingRunChecks compare the settings.
func settingRunChecks(profile.Profile) []checks.Spec {
	s := thresholdSpec()
	s.Requirement, s.Check, s.Engaged, s.Margin = "BEN-23", "threshold-ends", nil, 0.03
	s.Bench.Runs = map[string]string{}
	for _, n := range []int{1, 5, thresholdPlaces, 2 * thresholdPlaces} {
		s.Bench.Runs[fmt.Sprintf("%02d", n)] = fmt.Sprintf("bench-threshold-%d", n)
	}
	return []checks.Spec{s}
}
