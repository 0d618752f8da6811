package catalog

import (
	_ "embed"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/loadgen/plan"
	"github.com/llm-weir/weir/loadgen/workload"
)

//go:embed saturated.yaml
var saturated []byte

//go:embed rates.yaml
var rates []byte

var loadScenarios = []scenario.Scenario{
	{
		Name: "load-saturated", Title: "Saturated multi-tenant load: served shares, refusals, cancellations, nothing lost",
		Needs: []sut.Feature{sut.Objectives, sut.Hold}, Alone: true,
		Write: func(b *scenario.Builder) {
			saturate(b, "round-robin")
			p := loadPlan(b, "saturated.yaml", saturated)
			b.Step(sut.Step{Op: sut.OpLoad, Mark: "load", Plan: &p})
			b.Check("BEN-10", "share", checks.Spec{Shares: map[string]float64{"silver": 0.5, "bronze": 0.5}, Margin: 0.03, Needed: 400, Mark: "load",
				Engaged: []string{"load"}})
			fourFigures(b)
			if b.Profile.Config.ConcurrencyDetector {
				// Cancellations, refusals and expiries under load must not have leaked a slot.
				b.Step(sut.Step{Op: sut.OpHold, Mark: "holding", Count: 1})
				b.SetCapacity(4)
				b.FullCapacity()
			}
		},
	},
	{
		Name: "load-global-strict", Title: "Under global strict the served share follows the sending rate",
		Needs: []sut.Feature{sut.Objectives}, Paced: true,
		Write: func(b *scenario.Builder) {
			saturate(b, "global-strict")
			b.Config.TTL = time.Minute
			p := loadPlan(b, "rates.yaml", rates)
			b.Step(sut.Step{Op: sut.OpLoad, Mark: "load", Plan: &p})
			b.Check("BEN-10", "share", checks.Spec{Shares: map[string]float64{"silver": 0.75, "bronze": 0.25}, Margin: 0.05, Needed: 400, Mark: "load",
				Engaged: []string{"load"}})
		},
	},
}

// saturate configures two servers with two requests each, three bands, and a small batch queue.
func saturate(b *scenario.Builder, fairness string) {
	b.Config.Endpoints = []sut.Endpoint{{Name: "a"}, {Name: "b"}}
	b.Config.Preset = "h100-llama3.1-8b"
	b.Config.TTL = 2 * time.Second
	if b.Profile.Config.ConcurrencyDetector {
		b.Config.Detector = sut.Detector{Kind: "concurrency", MaxConcurrency: 2}
	} else {
		// Engines with two places each, so that a waiting depth of one means that they are full.
		b.Config.MaxSeqs = 2
		b.Config.Detector = sut.Detector{Kind: "utilization", QueueDepth: 1, KVUtil: 0.8, Staleness: 2 * time.Second}
	}
	b.Config.Bands = []sut.Band{
		{Priority: 100, Fairness: fairness, Ordering: "fcfs"},
		{Priority: 0, Fairness: fairness, Ordering: "fcfs"},
		{Priority: -10, Fairness: fairness, Ordering: "fcfs", MaxRequests: 5},
	}
	for _, p := range []int{100, 0, -10} {
		b.Objective(scenario.Objective(p), p)
	}
}

// loadPlan compiles an embedded workload; it is part of the suite, so a mistake in it is a programming error.
func loadPlan(b *scenario.Builder, name string, doc []byte) plan.Plan {
	spec, err := workload.Parse("suites/catalog/"+name, doc)
	if err != nil {
		panic(err)
	}
	p, err := plan.Compile(spec, b.Seed)
	if err != nil {
		panic(fmt.Errorf("suites/catalog/%s: %w", name, err))
	}
	return p
}

// RunChecks are the checks over all scenarios of a run together (INV: "evaluated over every scenario of a run").
func RunChecks(p profile.Profile) []checks.Spec {
	if p.Processor != nil {
		return nil
	}
	statuses := []int{}
	for _, a := range []profile.Answer{p.Refusals.Capacity, p.Refusals.CapacityEmptyPool, p.Refusals.TTL, p.Refusals.TTLEmptyPool, p.Refusals.Shutdown, p.Refusals.Evicted} {
		if a.Status != 0 && !slices.Contains(statuses, a.Status) {
			statuses = append(statuses, a.Status)
		}
	}
	if !slices.Contains(statuses, 503) {
		statuses = append(statuses, 503)
	}
	sort.Ints(statuses)
	drain := ""
	if judged, _ := p.Applies("FC-SHUT-03"); !judged {
		drain = "no-drain"
	}
	unnamed := []string{"ref-gate-off"} // legacy admission names no reason (spec/endpoint-picker.md §5.4)
	unnamed = append(unnamed, unnamedReasons(p.Reasons)...)
	deadlined := []string{"ttl-stream-deadline"}
	all := []checks.Spec{
		{Check: "conservation", Requirement: "INV-03", Needed: 200, Kinds: 3},
		{Check: "no-internal-errors", Requirement: "INV-06", Needed: 20, Statuses: statuses, Reasons: p.Reasons,
			Malformed: []string{"proto-malformed", "hostile-beside-steady"}, Mode: drain, Unnamed: unnamed, Deadlined: deadlined, Cut: []string{"evi-mid-stream"}},
		{Check: "one-dispatch", Requirement: "INV-07", Needed: 200},
		{Check: "declared-reasons", Requirement: "FC-REF-08", Needed: 3, Reasons: p.Reasons},
		{Check: "clean-refusals", Requirement: "FC-REF-10", Needed: 20, Deadlined: deadlined},
		{Check: "refused-unseen", Requirement: "FC-REF-11", Needed: 20, Reason: p.Refusals.Evicted.Reason},
	}
	all = append(all, checks.Spec{Check: "work-conserving", Requirement: "INV-08", Needed: 20, Within: time.Second + p.Tolerances.Slack, Counts: conserving(p)})
	if len(p.Metrics.QueueDuration) > 0 {
		c := checks.Spec{Check: "counters", Requirement: "INV-14", Needed: 10}
		if len(p.Metrics.RequestsTotal) > 0 {
			c.Names = []string{p.Metrics.QueueDuration[0] + "_count", p.Metrics.RequestsTotal[0]}
		}
		all = append(all, c)
	}
	all = slices.Concat(all, benchRunChecks(p), settingRunChecks(p), patternRunChecks(p))
	var out []checks.Spec
	for _, s := range all {
		if judged, _ := p.Applies(s.Requirement); judged {
			out = append(out, s)
		}
	}
	return out
}

// conserving lists the scenarios in which any waiting request may take any free place, with the number of places: one limit for all
// bands, nothing but the clients' own doing that would keep a request from being eligible.
func conserving(p profile.Profile) map[string]int {
	out := map[string]int{}
	for _, s := range Scenarios() {
		c := scenario.Compile(s, p, 0)
		f := c.Config
		if c.Capacity <= 0 || !f.Hold || f.Ceiling.Kind != "" || f.Eviction || f.GateOff || f.Detector.Mode != "" || f.Detector.Headroom > 0 {
			continue
		}
		if f.Detector.Kind == "utilization" && !f.HeldAsWaiting || slices.ContainsFunc(f.Endpoints, func(e sut.Endpoint) bool { return e.Out || e.Role != "" }) {
			continue
		}
		if !slices.ContainsFunc(c.Script.Steps, unfree) {
			out[c.Name] = c.Capacity
		}
	}
	return out
}

// unfree tells whether a step may keep requests from being eligible although the router has room.
func unfree(s sut.Step) bool {
	switch s.Op {
	case sut.OpAdd, sut.OpRemove, sut.OpLabel, sut.OpFault, sut.OpScript, sut.OpShutdown, sut.OpRestart, sut.OpLoad, sut.OpHold, sut.OpCutOff:
		return true
	}
	return slices.ContainsFunc(s.Requests, func(r sut.Request) bool {
		return len(r.Subset) > 0 || r.BodyDelay > 0 || r.Extra[wire.HeaderSubset] != "" || r.Extra[wire.HeaderHalfClose] != ""
	})
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
