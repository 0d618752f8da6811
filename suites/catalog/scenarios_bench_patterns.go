package catalog

import (
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

//go:embed heldback.yaml
var heldbackLoad []byte

// benchTarget is the first-token target of the urgent tenant.
const benchTarget = time.Second

// patternScenarios are the configuration patterns of the guide that have no other benchmark.
var patternScenarios = []scenario.Scenario{
	sloLimit(48, "fcfs"), sloLimit(48, "slo-deadline"), sloLimit(160, "fcfs"), sloLimit(160, "slo-deadline"),
	holdbackAt(30), holdbackAt(60), holdbackAt(100),
	{
		Name: "bench-eviction", Title: "Realtime displaces running batch, whose owner sends it again until it is done", Needs: []sut.Feature{sut.Objectives, sut.Eviction}, Paced: true, Slow: true,
		Write: func(b *scenario.Builder) {
			if !b.Profile.Config.ConcurrencyDetector {
				return
			}
			engines(b, "")
			b.Config.MaxSeqs = 0
			b.Config.Eviction = true
			b.Config.Bands = append(b.Config.Bands, sut.Band{Priority: -10, Ordering: "fcfs"})
			b.Objective(scenario.Objective(-10), -10)
			batch := run(b, "batch", 150, scenario.At(-10), func(r *sut.Request) { r.MaxTokens = 100 })
			b.Step(sut.Step{Op: sut.OpSend, Mark: "batch", Requests: batch, Spacing: 2 * time.Millisecond})
			demand := run(b, "realtime", 100, scenario.At(100), func(r *sut.Request) { r.MaxTokens, r.Stream = 7, true })
			b.Step(sut.Step{Op: sut.OpSend, Mark: "sent", Requests: demand, Spacing: 150 * time.Millisecond})
			b.Step(sut.Step{Op: sut.OpRetry, Mark: "retried", IDs: ids(batch), Spacing: 10 * time.Millisecond, Limit: time.Minute})
			b.Step(sut.Step{Op: sut.OpEndings, Mark: "ended", IDs: ids(demand), Limit: 20 * time.Second})
			s := checks.Spec{Engaged: []string{"batch", "sent", "retried", "ended"}, Needed: 50, Max: evictionLimit,
				Bench: &checks.Bench{High: scenario.Objective(100), Low: scenario.Objective(-10)}}
			b.Check("BEN-14", "eviction-recovery", s)
			b.Check("BEN-30", "eviction-recovery", s)
		},
	},
}

// sloLimit lets so many requests into one model server, in an order of arrival or of deadlines.
func sloLimit(limit int, ordering string) scenario.Scenario {
	return scenario.Scenario{Name: fmt.Sprintf("bench-slo-%d-%s", limit, ordering), Title: fmt.Sprintf("First tokens in time under a limit of %d, ordered by %s", limit, ordering),
		Needs: []sut.Feature{sut.Objectives}, Paced: true, Slow: true, Write: func(b *scenario.Builder) {
			if !b.Profile.Config.ConcurrencyDetector {
				return
			}
			b.Config.Endpoints, b.Config.Preset, b.Config.TTL = []sut.Endpoint{{Name: "a"}}, "h100-llama3.1-8b", time.Minute
			b.Config.Detector = sut.Detector{Kind: "concurrency", MaxConcurrency: limit}
			b.Bands("global-strict", ordering, 0)
			var all []sut.Request
			for i := range 800 {
				name, target := "patient", 20*time.Second
				if i%5 == 0 {
					name, target = "urgent", benchTarget
				}
				all = append(all, b.Req(fmt.Sprintf("%s%d", name, i+1), scenario.At(0), slo(int(target/time.Millisecond)), func(r *sut.Request) { r.MaxTokens = 100 }))
			}
			b.Step(sut.Step{Op: sut.OpSend, Mark: "load", Requests: all, Spacing: 6 * time.Millisecond})
			b.Step(sut.Step{Op: sut.OpEndings, Mark: "ended", IDs: ids(all), Limit: time.Minute})
			b.Check("BEN-15", "demanded", sloSpec())
			b.Check("BEN-30", "demanded", sloSpec())
		}}
}

func sloSpec() checks.Spec {
	s := contendedSpec()
	s.Needed, s.Within = 60, benchTarget
	s.Bench.From, s.Bench.To, s.Bench.Places, s.Bench.Quiet = 1500*time.Millisecond, 4700*time.Millisecond, 48, "urgent"
	return s
}

// holdbackAt spreads the ceilings from 1.0 down to so many hundredths.
func holdbackAt(percent int) scenario.Scenario {
	return scenario.Scenario{Name: fmt.Sprintf("bench-holdback-%d", percent), Title: fmt.Sprintf("Batch is held back at %d %% of the pool", percent),
		Needs: []sut.Feature{sut.Objectives, sut.Holdback}, Paced: true, Write: func(b *scenario.Builder) {
			b.Config.Endpoints, b.Config.Preset, b.Config.TTL = []sut.Endpoint{{Name: "a"}}, "h100-llama3.1-8b", time.Minute
			b.Config.MaxSeqs = heldbackPlaces
			b.Config.Detector = sut.Detector{Kind: "concurrency", MaxConcurrency: heldbackPlaces}
			b.Bands("global-strict", "fcfs", 100, -10)
			if percent < 100 {
				b.Holdback(float64(percent)/100, 1)
			}
			p := loadPlan(b, "heldback.yaml", heldbackLoad)
			b.Step(sut.Step{Op: sut.OpLoad, Mark: "load", Plan: &p})
			b.Check("BEN-13", "demanded", heldbackSpec())
			b.Check("BEN-30", "demanded", heldbackSpec())
		}}
}

const heldbackPlaces = 10

func heldbackSpec() checks.Spec {
	s := contendedSpec()
	s.Needed = 60
	s.Bench.To, s.Bench.Places, s.Bench.Low = 7800*time.Millisecond, heldbackPlaces, scenario.Objective(-10)
	return s
}

// patternRunChecks compare the settings of the patterns, and list the six patterns with an effect and a cost each (BEN-30).
func patternRunChecks(p profile.Profile) []checks.Spec {
	slos := sloSpec()
	slos.Engaged, slos.Check, slos.Requirement = nil, "slo-tradeoff", "BEN-15"
	slos.Bench.Runs = map[string]string{"low/fcfs": "bench-slo-48-fcfs", "low/slo": "bench-slo-48-slo-deadline", "high/fcfs": "bench-slo-160-fcfs", "high/slo": "bench-slo-160-slo-deadline"}
	held := heldbackSpec()
	held.Engaged, held.Check, held.Requirement = nil, "holdback-curve", "BEN-13"
	held.Bench.Runs = map[string]string{"030": "bench-holdback-30", "060": "bench-holdback-60", "100": "bench-holdback-100"}
	var out []checks.Spec
	for _, s := range benchRunChecks(p) {
		if s.Check == "isolation" || s.Check == "baseline" {
			out = append(out, s) // turns for each tenant; the minimum of machinery
		}
	}
	if p.Config.ConcurrencyDetector {
		out = append(out, slos)
	}
	if slices.Contains(p.Features, string(sut.Holdback)) {
		out = append(out, held)
	}
	patterns := slices.Clone(out)
	for i := range patterns {
		patterns[i].Requirement = "BEN-30"
	}
	return append(out[2:], patterns...)
}
