package catalog

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/loadgen/plan"
)

//go:embed contended.yaml
var contended []byte

//go:embed unhurried.yaml
var unhurried []byte

// benchPlaces is the number of requests that a model server of the benchmarks runs at once. The limit is two more, so that the next one is
// there when a place is left: what flow control costs is then no artefact of the way between two processes.
const (
	benchEvery  = 230 * time.Millisecond // between two readings of the pages
	benchPlaces = 2
	benchLimit  = benchPlaces + 2
	benchBatch  = 20 // requests of the batch band that may wait
	benchDepth  = 3  // waiting at each model server, where that is the limit
)

// benchScenarios play loads; what two of them make of one plan is judged over the whole run (benchRunChecks).
var benchScenarios = []scenario.Scenario{
	contend("bench-solo", "The quiet tenant and realtime alone, with room to spare", "round-robin", func(b *scenario.Builder, p *plan.Plan) {
		p.Requests = slices.DeleteFunc(p.Requests, func(r plan.Request) bool { return r.Tenant == "noisy" })
		spec := contendedSpec()
		spec.Needed = 100
		for _, id := range []string{"BEN-09", "BEN-24", "BEN-30"} {
			b.Check(id, "calm", spec)
		}
	}),
	contend("bench-off", "A noisy tenant without flow control", "", func(b *scenario.Builder, _ *plan.Plan) {
		b.Config.GateOff = true
		busy(b, "BEN-09", "BEN-12", "BEN-19", "BEN-30")
	}),
	contend("bench-strict", "A noisy tenant under global strict: first come, first served", "global-strict", func(b *scenario.Builder, _ *plan.Plan) {
		busy(b, "BEN-09", "BEN-17", "BEN-30")
	}),
	contend("bench-turns", "A noisy tenant when tenants take turns", "round-robin", func(b *scenario.Builder, _ *plan.Plan) {
		busy(b, "BEN-09", "BEN-12", "BEN-17", "BEN-19", "BEN-24", "BEN-30")
		spec := contendedSpec()
		spec.Needed, spec.Margin = 59, 0.15
		spec.Bench.From = 1500 * time.Millisecond // growth shows best from its beginning
		b.Check("BEN-11", "overload", spec)
		honest := contendedSpec()
		honest.Needed, honest.Margin = 200, 0.02
		b.Check("BEN-27", "honest-load", honest)
		if b.Profile.Config.ConcurrencyDetector {
			verifications(b)
		}
	}),
	{
		Name: "bench-unhurried", Title: "The three verifications where saturation is read from the model servers", Needs: []sut.Feature{sut.Objectives, sut.Metrics}, Paced: true,
		Write: func(b *scenario.Builder) {
			if b.Profile.Config.ConcurrencyDetector {
				return // bench-turns shows it: what the router counts itself is true at once
			}
			engines(b, "round-robin")
			b.Config.Detector.QueueDepth = 2
			p := loadPlan(b, "unhurried.yaml", unhurried)
			b.Step(sut.Step{Op: sut.OpLoad, Mark: "load", Plan: &p, Every: benchEvery})
			verifications(b)
		},
	},
}

// kneeScenarios sweep a load over what can be served.
var kneeScenarios = []scenario.Scenario{
	{
		Name: "bench-knee", Title: "A sweep of loads finds where latency rises and throughput flattens", Needs: []sut.Feature{sut.Restart}, Paced: true,
		Write: func(b *scenario.Builder) {
			engines(b, "round-robin")
			var marks []string
			for i, rate := range []float64{32, 44, 56, 66, 84, 98, 112, 128} {
				doc := fmt.Sprintf("name: point-%d\nduration: 2s\ntenants:\n- name: point%d\n  arrival: {process: constant, rate: %v}\n  promptTokens: {fixed: 64}\n  outputTokens: {fixed: 7}\n", i+1, i+1, rate)
				mark := fmt.Sprintf("point-%d", i+1)
				p := loadPlan(b, mark, []byte(doc))
				b.Step(sut.Step{Op: sut.OpLoad, Mark: mark, Plan: &p})
				marks = append(marks, mark)
			}
			in := checks.Bench{Loads: marks, Places: benchPlaces}
			b.Check("BEN-06", "knee", checks.Spec{Engaged: marks, Needed: 40, Margin: 0.1, Bench: &in,
				Mode: fmt.Sprintf("simulated %s, %d servers of %d places, limit %d each", b.Config.Preset, len(b.Config.Endpoints), benchPlaces, limit(b))})
			kept := checks.Spec{Engaged: marks, Count: limit(b), Bench: &in}
			if !b.Profile.Config.ConcurrencyDetector {
				kept.Slack = limit(b) // what is dispatched between two readings of the model servers' pages
			}
			b.Check("BEN-07", "settings-kept", kept)
		},
	},
}

// consolidationScenarios are batch and interactive work on one pool.
var consolidationScenarios = []scenario.Scenario{
	{
		Name: "bench-consolidation", Title: "A band limit bounds the batch queue; what it refuses, its owner retries to the end", Needs: []sut.Feature{sut.Objectives}, Paced: true,
		Write: func(b *scenario.Builder) {
			engines(b, "round-robin")
			b.Config.Bands = append(b.Config.Bands, sut.Band{Priority: -10, Ordering: "fcfs", MaxRequests: benchBatch})
			b.Objective(scenario.Objective(-10), -10)
			short := func(r *sut.Request) { r.MaxTokens = 7 }
			batch := run(b, "batch", 300, scenario.At(-10), short)
			var all []sut.Request
			for i, r := range batch { // an interactive one for every four of batch
				if i%4 == 0 {
					all = append(all, b.Req(fmt.Sprintf("interactive%d", i/4+1), scenario.At(100), short))
				}
				all = append(all, r)
			}
			b.Step(sut.Step{Op: sut.OpSend, Mark: "sent", Requests: all, Spacing: 7 * time.Millisecond})
			b.Step(sut.Step{Op: sut.OpRetry, Mark: "retried", IDs: ids(batch), Spacing: 20 * time.Millisecond, Limit: 40 * time.Second})
			b.Step(sut.Step{Op: sut.OpEndings, Mark: "ended", IDs: ids(all), Limit: 20 * time.Second})
			a := b.Profile.Refusals.Capacity
			s := checks.Spec{Engaged: []string{"sent", "retried", "ended"}, Count: benchBatch, Needed: 30, Status: a.Status, Reason: a.Reason,
				Bench: &checks.Bench{High: scenario.Objective(100), Low: scenario.Objective(-10)}}
			b.Check("BEN-16", "consolidation", s)
			b.Check("BEN-30", "consolidation", s)
		},
	},
}

// fourFigures reports on the tenants and bands of the saturated load.
func fourFigures(b *scenario.Builder) {
	s := checks.Spec{Mark: "load", Engaged: []string{"load"}, Min: 10 * time.Second, Count: 4, Needed: 25}
	if !b.Profile.Config.ConcurrencyDetector {
		s.Count = 2 // a waiting threshold of one, read every now and then, leaves places empty
	}
	for _, x := range [][2]string{{"gold", "p100"}, {"silver", "p0"}, {"bronze", "p0"}, {"batch", "m10"}} {
		s.Series = append(s.Series, checks.Series{Labels: map[string]string{"tenant": x[0], "objective": x[1]}})
	}
	b.Check("BEN-01", "four-figures", s)
	b.Check("BEN-24", "four-figures", s) // the highest level of concurrency
}

// limit is the number of requests that the settings in force let into each model server.
func limit(b *scenario.Builder) int {
	if d := b.Config.Detector; d.Kind == "concurrency" {
		return d.MaxConcurrency
	}
	return benchPlaces + b.Config.Detector.QueueDepth
}

// contend is one configuration under the contended load.
func contend(name, title, fairness string, more func(*scenario.Builder, *plan.Plan)) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Needs: []sut.Feature{sut.Objectives}, Paced: true, Write: func(b *scenario.Builder) {
		engines(b, fairness)
		p := loadPlan(b, "contended.yaml", contended)
		more(b, &p)
		b.Step(sut.Step{Op: sut.OpLoad, Mark: "load", Plan: &p, Every: benchEvery})
	}}
}

// verifications are the three of the guide, on one saturated interval of at least ten seconds.
func verifications(b *scenario.Builder) {
	m := b.Profile.Metrics
	spec := contendedSpec()
	spec.Min, spec.Count, spec.Needed, spec.Names = 10*time.Second, benchPlaces*len(b.Config.Endpoints), 20, m.QueueSize
	spec.Bench.Saturation, spec.Bench.Boundary = m.PoolSaturation, 1
	gate := spec
	b.Check("BEN-03", "gate-engaged", gate)
	shown := spec
	for name, priority := range map[string]string{"realtime": "100", "quiet": "0", "noisy": "0"} {
		x := checks.Series{Labels: map[string]string{"fairness_id": name, "priority": priority}}
		if name == "noisy" {
			x.Value = 1 // the others wait now and then
		}
		shown.Series = append(shown.Series, x)
	}
	slices.SortFunc(shown.Series, func(a, b checks.Series) int { return cmp.Compare(a.Labels["fairness_id"], b.Labels["fairness_id"]) })
	b.Check("BEN-02", "shows-bands", shown)
	inside := spec
	inside.Margin = 0.2
	b.Check("BEN-04", "pressure", inside)
	together := spec
	together.Within = benchEvery
	b.Check("BEN-05", "same-interval", together)
}

// engines configures two model servers that run two requests each, behind a limit of four each, and two bands.
func engines(b *scenario.Builder, fairness string) {
	b.Config.Endpoints = []sut.Endpoint{{Name: "a"}, {Name: "b"}}
	b.Config.Preset = "h100-llama3.1-8b"
	b.Config.MaxSeqs = benchPlaces
	b.Config.TTL = time.Minute
	if b.Profile.Config.ConcurrencyDetector {
		b.Config.Detector = sut.Detector{Kind: "concurrency", MaxConcurrency: benchLimit}
	} else {
		// Deep enough for what a model server finishes between two readings of its page.
		b.Config.Detector = sut.Detector{Kind: "utilization", QueueDepth: benchDepth, KVUtil: 0.8, Staleness: 2 * time.Second}
	}
	for _, p := range []int{100, 0} {
		b.Config.Bands = append(b.Config.Bands, sut.Band{Priority: p, Fairness: fairness, Ordering: "fcfs"})
		b.Objective(scenario.Objective(p), p)
	}
}

// contendedSpec names what the checks of the contended loads look at. The first two and a half seconds fill the queues.
func contendedSpec() checks.Spec {
	return checks.Spec{Mark: "load", Engaged: []string{"load"}, Bench: &checks.Bench{From: 2500 * time.Millisecond, To: 9800 * time.Millisecond, Places: benchPlaces,
		High: scenario.Objective(100), Low: scenario.Objective(0), Quiet: "quiet", Noisy: "noisy"}}
}

func busy(b *scenario.Builder, ids ...string) {
	for _, id := range ids {
		b.Check(id, "busy", contendedSpec())
	}
}

// benchRunChecks join the scenarios that were offered one plan.
func benchRunChecks(p profile.Profile) []checks.Spec {
	joined := func(id, check string, runs map[string]string, change func(*checks.Spec)) checks.Spec {
		s := contendedSpec()
		s.Engaged = nil // the window asks for the steps of all runs
		s.Requirement, s.Check, s.Bench.Runs = id, check, runs
		change(&s)
		return s
	}
	ahead := benchLimit
	if !p.Config.ConcurrencyDetector {
		ahead = 2 * (benchPlaces + benchDepth) // twice the limit: what is dispatched between two readings of the model servers' pages
	}
	return []checks.Spec{
		joined("BEN-09", "isolation", map[string]string{"solo": "bench-solo", "off": "bench-off", "strict": "bench-strict", "turns": "bench-turns"},
			func(s *checks.Spec) { s.Needed = 60 }),
		joined("BEN-12", "same-capacity", map[string]string{"on": "bench-turns", "off": "bench-off"}, func(s *checks.Spec) { s.Margin = 0.05 }),
		joined("BEN-17", "baseline", map[string]string{"strict": "bench-strict", "turns": "bench-turns"}, func(s *checks.Spec) { s.Margin, s.Needed = 0.1, 150 }),
		joined("BEN-19", "inversion", map[string]string{"on": "bench-turns", "off": "bench-off"}, func(s *checks.Spec) { s.Count, s.Needed = ahead, 70 }),
		joined("BEN-24", "loads-vary", map[string]string{"low": "bench-solo", "growing": "bench-turns", "high": "load-saturated"},
			func(s *checks.Spec) { s.Names, s.Needed = p.Metrics.QueueSize, 12 }),
	}
}
