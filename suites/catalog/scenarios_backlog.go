package catalog

import (
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

var backlogScenarios = []scenario.Scenario{
	{
		Name: "pri-starves", Title: "Behind a backlog of higher priority a lower band ends by its wait limit, not silently", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, 0)
			b.Config.TTL = waitLimit(b)
			b.Plug(scenario.At(100))
			low := b.Queue(b.Req("low1"), b.Req("low2"))
			// A higher request is always waiting: each release is followed by a new one. Were none waiting, a low one would be served.
			const period = 200 * time.Millisecond
			rounds := int((b.Config.TTL+b.Profile.Tolerances.TTLLate+b.Profile.Tolerances.Slack)/period) + 1
			b.Queue(run(b, "high", 2, scenario.At(100))...)
			for _, r := range run(b, "more", rounds, scenario.At(100)) {
				b.Step(sut.Step{Op: sut.OpStep, Mark: "step", Count: 1, Quiet: period})
				b.Send(r.ID, r)
			}
			b.Quiet("starved", 100*time.Millisecond)
			b.Drain()
			a := b.Profile.Refusals.TTL
			b.Check("FC-PRI-07", "refused", checks.Spec{IDs: low, Status: a.Status, Reason: a.Reason, Min: b.Config.TTL - clockGrain, Max: b.Config.TTL + b.Profile.Tolerances.TTLLate + b.Profile.Tolerances.Slack}) // between two turns nothing may be in flight
			b.FullCapacity()
		},
	},
	{
		Name: "cap-bands-add-up", Title: "Without a global limit the bands' own limits add up, and a large one does not bind", Needs: banded,
		Write: func(b *scenario.Builder) { threeBands(b, 0) },
	},
	{
		Name: "cap-large-global", Title: "A global limit that is larger than what is queued does not bind", Needs: banded,
		Write: func(b *scenario.Builder) { threeBands(b, 10<<30) },
	},
	{
		Name: "fair-least-served", Title: "Program-aware fairness prefers the flow that has received less", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, Fairness: "program-aware"}}
			long := func(r *sut.Request) { r.MaxTokens = 2000 }
			for _, r := range run(b, "served", 3, scenario.Tenant("a"), scenario.PassHold, long) {
				b.Send(r.ID, r)
				b.Endings(r.ID+"-ended", r.ID)
			}
			b.Plug(scenario.Tenant("plug"))
			a := b.Queue(run(b, "a", 3, scenario.Tenant("a"))...)
			c := b.Queue(run(b, "b", 3, scenario.Tenant("b"))...)
			b.Complete()
			b.Steps(1)
			b.Drain()
			b.Check("FC-FAIR-11", "order", checks.Spec{Groups: [][]string{c[:1], a}, Mark: scenario.Queued})
			b.FullCapacity()
		},
	},
	withGate("cfg-gate-on", "With the feature gate one request runs and two wait", false),
	withGate("cfg-gate-off", "Without the feature gate nothing is queued", true),
	{
		Name: "ref-gate-off", Title: "Without the feature gate only negative priorities are refused, at saturation", Needs: []sut.Feature{sut.Objectives},
		Write: func(b *scenario.Builder) {
			b.Util(5, 0.8, 1)
			b.Config.GateOff = true
			b.Objective(scenario.Objective(-1), -1)
			setLoad(b, 0, load{waiting: 4})
			b.Completed("FC-REF-14", sendOver(b, b.Req("below1", scenario.At(-1)))...)
			setLoad(b, 0, load{waiting: 5})
			over := sendOver(b, b.Req("shed1", scenario.At(-1)))
			passed := sendOver(b, b.Req("passed1"))
			b.Check("FC-REF-14", "refused", checks.Spec{IDs: over, Mode: "unnamed", Status: 429, Max: atOnce + b.Profile.Tolerances.Slack})
			b.Completed("FC-REF-14", passed...)
		},
	},
	{
		Name: "sat-one-hot", Title: "A hot endpoint gets nothing new while another qualifies",
		Write: func(b *scenario.Builder) {
			// The scorer prefers a throughout, and the pool's mean stays below 1: only the endpoint's own reading can send a request to b.
			b.Util(5, 0.8, 2)
			b.Config.Scorer = "kv-cache-utilization-scorer"
			if b.Profile.Config.Detector == "inline" {
				b.Config.Scorer = "queue-scorer" // this contract has no filter; its default scorer keeps requests away from the hot one
				setLoad(b, 1, load{waiting: 3})
				setLoad(b, 0, load{})
				answered(b, "FC-SAT-25", "cool", "a", 2)
				setLoad(b, 1, load{})
				setLoad(b, 0, load{waiting: 9})
				answered(b, "FC-SAT-25", "hot", "b", 20)
				return
			}
			setLoad(b, 1, load{kv: 0.05})
			setLoad(b, 0, load{})
			answered(b, "FC-SAT-25", "cool", "a", 5)
			setLoad(b, 0, load{waiting: 9})
			answered(b, "FC-SAT-25", "hot", "b", 20)
		},
	},
}

// withGate sends three requests to a pool for one, with and without the feature gate.
func withGate(name, title string, off bool) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Needs: []sut.Feature{sut.Hold, sut.Restart}, Write: func(b *scenario.Builder) {
		b.Cap(1, 1)
		b.Config.GateOff = off
		if off {
			all := b.PlugN(3)
			b.Quiet("three", 500*time.Millisecond)
			b.Check("FC-CFG-02", "together", checks.Spec{Mark: "three", IDs: all})
			b.Drain()
			return
		}
		b.Plug()
		w := b.Queue(b.Req("w1"), b.Req("w2"))
		b.Quiet("one", 500*time.Millisecond)
		b.Check("FC-CFG-02", "in-flight", checks.Spec{Mark: "one", Count: 1, Waiting: w})
		b.FullCapacity()
	}}
}

// threeBands queues two requests in each of three bands that take two, under a global limit of bytes (0: none).
func threeBands(b *scenario.Builder, bytes int64) {
	b.Cap(1, 1)
	b.Config.MaxBytes = bytes
	for _, p := range []int{100, 0, -10} {
		b.Config.Bands = append(b.Config.Bands, sut.Band{Priority: p, MaxRequests: 2})
		b.Objective(scenario.Objective(p), p)
	}
	b.Plug()
	var w []string
	for _, p := range []int{100, 0, -10} {
		name := scenario.Objective(p)
		w = append(w, b.Queue(b.Req(name+"-1", scenario.At(p)), b.Req(name+"-2", scenario.At(p)))...)
	}
	b.Quiet("six", 300*time.Millisecond)
	b.Check("FC-CAP-07", "in-flight", checks.Spec{Mark: "six", Count: 1, Waiting: w})
	over := sendOver(b, b.Req("over1", scenario.At(100)))
	capacityRefusal(b, "FC-CAP-07", over, w)
	b.FullCapacity()
}
