package catalog

import (
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// objectives makes these the objectives that exist, as priorities by their usual names and others by name.
func objectives(b *scenario.Builder, mark string, others map[string]int, priorities ...int) {
	m := map[string]int{}
	for name, p := range others {
		m[name] = p
	}
	for _, p := range priorities {
		m[scenario.Objective(p)] = p
	}
	b.Step(sut.Step{Op: sut.OpObjective, Mark: mark, Objectives: m})
}

// objectScenarios are about InferenceObjectives that come, change and go, and about priorities without an entry.
var objectScenarios = []scenario.Scenario{
	{
		Name: "pri-new-objective", Title: "The priority of a new objective is effective without a restart", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			b.Queue(b.Req("low1"))
			objectives(b, "created", nil, 55)
			b.Queue(b.Req("high1", scenario.At(55)))
			b.Complete()
			b.Steps(2)
			b.Order("FC-PRI-08", scenario.One("high1", "low1")...)
			b.FullCapacity()
		},
	},
	{
		Name: "pri-changed-objective", Title: "A changed objective classifies what comes after, and moves nothing that waits", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 50)
			b.Objective("moving", 0)
			b.Plug()
			b.Queue(b.Req("a1", scenario.Named("moving")))
			objectives(b, "changed", map[string]int{"moving": 100}, 50)
			b.Queue(b.Req("b1", scenario.Named("moving")), b.Req("m1", scenario.At(50)))
			b.Complete()
			b.Steps(3)
			b.Order("FC-PRI-09", scenario.One("b1", "m1", "a1")...)
			b.FullCapacity()
		},
	},
	{
		Name: "pri-no-entry", Title: "A priority without an entry has the defaults, not its neighbour's settings", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.Bands = []sut.Band{{Priority: 10, MaxRequests: 2, Fairness: "round-robin"}}
			b.Objective(scenario.Objective(11), 11)
			b.Plug()
			w := b.Queue(b.Req("a1", scenario.At(11)), b.Req("a2", scenario.At(11)), b.Req("a3", scenario.At(11)), b.Req("b1", scenario.At(11)), b.Req("b2", scenario.At(11)))
			b.Complete()
			b.Steps(5)
			b.Check("FC-PRI-10", "waiting", checks.Spec{IDs: w, Mark: scenario.Queued, Count: 1})
			b.Order("FC-PRI-10", scenario.One("a1", "a2", "a3", "b1", "b2")...) // one line over all flows: the default policy
			b.FullCapacity()
		},
	},
	{
		Name: "pri-templates", Title: "Negative priorities without an entry take the template of negative bands", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.DefaultBand, b.Config.NegativeBand = &sut.Band{MaxRequests: 100}, &sut.Band{MaxRequests: 2}
			b.Objective(scenario.Objective(-1), -1)
			b.Objective(scenario.Objective(7), 7)
			b.Plug()
			two := b.Queue(run(b, "n", 2, scenario.At(-1))...)
			over := sendOver(b, run(b, "over", 3, scenario.At(-1))...)
			five := b.Queue(run(b, "p", 5, scenario.At(7))...)
			b.Complete()
			capacityRefusal(b, "FC-PRI-11", over, two)
			b.Check("FC-PRI-11", "waiting", checks.Spec{IDs: append(two, five...), Mark: scenario.Queued, Count: 1})
			b.FullCapacity()
		},
	},
	{
		Name: "cls-not-yet-known", Title: "Before its objective exists a request is handled in band 0, afterwards in its own", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			early := b.Queue(b.Req("zero1"), b.Req("early1", scenario.At(77)))
			objectives(b, "created", nil, 77)
			late := b.Queue(b.Req("late1", scenario.At(77)), b.Req("late2", scenario.At(77)))
			b.Complete()
			b.Steps(4)
			b.Drain()
			b.Order("FC-CLS-20", late, early)
			b.Completed("FC-CLS-20", append(early, late...)...)
			b.FullCapacity()
		},
	},
	{
		Name: "gc-objective-band", Title: "The band of an objective outlives eleven idle minutes", Needs: []sut.Feature{sut.Hold, sut.Objectives, sut.Metrics}, Slow: true,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Objective(scenario.Objective(42), 42)
			first := b.Send("first", b.Req("first1", scenario.At(42), scenario.PassHold))
			b.Endings("first-ended", first...)
			b.Quiet("idle", 11*time.Minute)
			b.Plug()
			w := b.Queue(b.Req("zero1"), b.Req("own1", scenario.At(42)))
			b.Complete()
			b.Do(sut.OpSample, "labelled")
			b.Steps(2)
			b.Order("FC-GC-04", scenario.One("own1", "zero1")...)
			b.Check("FC-GC-04", "series", checks.Spec{Mark: "labelled", Waiting: w, Names: b.Profile.Metrics.QueueSize, Series: []checks.Series{
				{Labels: map[string]string{"fairness_id": "own", "priority": "42"}, Value: 1}, {Labels: map[string]string{"fairness_id": "zero", "priority": "0"}, Value: 1}}})
			b.FullCapacity()
		},
	},
	{
		Name: "cfg-alpha-opt-in", Title: "Plugins of alpha stability need an explicit opt-in", Needs: []sut.Feature{sut.Restart, sut.Holdback},
		Write: func(b *scenario.Builder) {
			b.Util(5, 0.8, 1)
			b.Holdback(0.5, 1)
			doc, err := sut.Render(b.Config, b.Profile.Config)
			if err != nil {
				panic(err) // a document of the suite itself
			}
			s := checks.Spec{Valid: "opted-in", Cases: map[string]string{"names-the-flag": "allow-experimental-plugins", "names-the-plugin": "priority-holdback-policy"}, Max: 10 * time.Second}
			b.Step(sut.Step{Op: sut.OpTryStart, Mark: s.Valid, Raw: doc})
			for _, c := range sortedKeys(s.Cases) {
				b.Step(sut.Step{Op: sut.OpTryStart, Mark: c, Raw: doc, Mode: "stable"})
			}
			b.Check("FC-CFG-14", "startup", s)
		},
	},
	combined("cfg-combined-a", "round-robin", "fcfs", 3, [][]string{{"a1"}, {"b1"}, {"a2"}}),
	combined("cfg-combined-b", "global-strict", "fcfs", 3, [][]string{{"a1"}, {"a2"}, {"b1"}}),
	combined("cfg-combined-c", "global-strict", "edf", 4, [][]string{{"a1"}, {"a2"}, {"b1"}}),
}

// combined sets limits, policies, wait limit and detector together; each keeps its own effect.
func combined(name, fairness, ordering string, limit int64, want [][]string) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: "Limits, policies, wait limit and detector together keep their own effects", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(2, 1)
			b.Config.TTL = 3 * waitLimit(b)
			b.Config.Bands = []sut.Band{{Priority: 100, Fairness: fairness, Ordering: ordering, MaxRequests: limit}, {Priority: 0, MaxRequests: 1}}
			b.Objective(scenario.Objective(100), 100)
			b.Plug()
			order := slices.Clone(want)
			high := b.Queue(b.Req("a1", scenario.At(100)), b.Req("a2", scenario.At(100)), b.Req("b1", scenario.At(100)))
			if limit > 3 {
				high = append(high, b.Queue(b.Req("c1", scenario.At(100)))...)
				order = append(order, []string{"c1"})
			}
			low := b.Queue(b.Req("low1"))
			over := sendOver(b, b.Req("over1", scenario.At(100)), b.Req("over2"))
			b.Complete()
			b.Steps(int(limit))
			b.Endings("expired", low...)
			all := append(high, low...)
			a, t := b.Profile.Refusals.Capacity, b.Profile.Refusals.TTL
			b.Check("FC-CFG-22", "refused", checks.Spec{IDs: over, Waiting: all, Count: 2, Status: a.Status, Reason: a.Reason})
			b.Check("FC-CFG-22", "in-flight", checks.Spec{Mark: scenario.Queued, Count: 2, Waiting: all})
			b.Order("FC-CFG-22", order...)
			b.Check("FC-CFG-22", "refused", checks.Spec{IDs: low, Count: 2, Status: t.Status, Reason: t.Reason, Min: b.Config.TTL - clockGrain,
				Max: b.Config.TTL + b.Profile.Tolerances.TTLLate + b.Profile.Tolerances.Slack})
			b.FullCapacity()
		}}
}
