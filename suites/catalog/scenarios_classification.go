package catalog

import (
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
)

var classificationScenarios = []scenario.Scenario{
	objectiveOrder("cls-objective", "FC-CLS-01", "The objective header selects the priority", wire.HeaderObjective),
	fairnessTurns("cls-fairness", "FC-CLS-02", "The fairness header names the flow", wire.HeaderFairnessID),
	objectiveOrder("cls-objective-alias", "FC-CLS-03", "The older objective header has the same effect", wire.HeaderObjectiveAlias),
	fairnessTurns("cls-fairness-alias", "FC-CLS-04", "The older fairness header has the same effect", wire.HeaderFairnessIDAlias),
	{
		Name: "cls-no-fairness", Title: "Without a fairness header requests share one flow", Needs: held,
		Write: func(b *scenario.Builder) {
			// The counterpart of cls-fairness: with the header left out on all four, arrival order.
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 0)
			b.Plug()
			ids := b.Queue(b.Req("a1", scenario.Anonymous()), b.Req("a2", scenario.Anonymous()), b.Req("a3", scenario.Anonymous()), b.Req("b1", scenario.Anonymous()))
			b.Complete()
			b.Steps(len(ids))
			b.Order("FC-CLS-02", scenario.One(ids...)...)
			b.FullCapacity()
		},
	},
	{
		Name: "cls-default-flow", Title: "Requests without a fairness id are one flow among others", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 0)
			b.Plug()
			b.Queue(b.Req("n1", scenario.Anonymous()), b.Req("n2", scenario.Anonymous()), b.Req("z1"))
			b.Complete()
			b.Steps(3)
			b.Order("FC-CLS-13", []string{"n1", "z1"}, []string{"n2"})
			b.FullCapacity()
		},
	},
	{
		Name: "cls-both-objectives", Title: "With both objective headers present the canonical one decides", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, 50, 0)
			b.Plug()
			b.Queue(b.Req("x", scenario.Header(wire.HeaderObjective, "p0"), scenario.Header(wire.HeaderObjectiveAlias, "p100")),
				b.Req("y", scenario.At(50)))
			b.Complete()
			b.Steps(2)
			b.Order("FC-CLS-05", scenario.One("y", "x")...)
			b.FullCapacity()
		},
	},
	{
		Name: "cls-both-objectives-high", Title: "A low alias does not pull a high canonical objective down", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, 50, 0)
			b.Plug()
			b.Queue(b.Req("y", scenario.At(50)),
				b.Req("x", scenario.Header(wire.HeaderObjective, "p100"), scenario.Header(wire.HeaderObjectiveAlias, "p0")))
			b.Complete()
			b.Steps(2)
			b.Order("FC-CLS-05", scenario.One("x", "y")...)
			b.FullCapacity()
		},
	},
	{
		Name: "cls-both-fairness", Title: "With both fairness headers present the canonical one decides", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 0)
			both := func(canonical, alias string) []scenario.Option {
				return []scenario.Option{scenario.Anonymous(), scenario.Header(wire.HeaderFairnessID, canonical), scenario.Header(wire.HeaderFairnessIDAlias, alias)}
			}
			b.Plug()
			// By the canonical name a1 a2 a3 are one flow and b1 another; by the alias a1 and b1 are, and by both together each is one of its own.
			b.Queue(b.Req("a1", both("a", "same")...), b.Req("a2", both("a", "two")...), b.Req("a3", both("a", "three")...), b.Req("b1", both("b", "same")...))
			b.Complete()
			b.Steps(4)
			b.Order("FC-CLS-05", []string{"a1", "b1"}, []string{"a2"}, []string{"a3"})
			b.FullCapacity()
		},
	},
	{
		Name: "cls-empty-canonical", Title: "An empty canonical header suppresses a filled alias", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, 50, 0)
			b.Plug()
			b.Queue(b.Req("x", scenario.Header(wire.HeaderObjective, ""), scenario.Header(wire.HeaderObjectiveAlias, "p100")), b.Req("y", scenario.At(50)))
			b.Complete()
			b.Steps(2)
			b.Order("FC-CLS-06", scenario.One("y", "x")...)
			b.FullCapacity()
		},
	},
	defaultPriority("cls-no-objective", "FC-CLS-07", "Without an objective the priority is 0"),
	defaultPriority("cls-unknown-objective", "FC-CLS-08", "An unknown objective counts as none", scenario.Named("no-such-objective")),
	{
		Name: "cls-shared-band", Title: "Two objectives of one priority share a band", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100)
			b.Objective("model-a-high", 100)
			b.Objective("model-b-high", 100)
			b.Plug()
			a, z := scenario.Named("model-a-high"), scenario.Named("model-b-high")
			// Neither precedence nor turns between the two objectives give this order.
			ids := b.Queue(b.Req("b1", z), b.Req("a1", a), b.Req("a2", a), b.Req("b2", z))
			b.Complete()
			b.Steps(4)
			b.Order("FC-CLS-11", scenario.One(ids...)...)
			b.FullCapacity()
		},
	},
	{
		Name: "cls-shared-rotation", Title: "Tenants of two objectives of one priority take turns with each other", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 100)
			b.Objective("model-a-high", 100)
			b.Objective("model-b-high", 100)
			b.Plug()
			a, z := scenario.Named("model-a-high"), scenario.Named("model-b-high")
			b.Queue(b.Req("s1", a), b.Req("s2", z), b.Req("s3", a), b.Req("t1", z), b.Req("t2", a))
			b.Complete()
			b.Steps(5)
			b.Order("FC-CLS-11", []string{"s1", "t1"}, []string{"s2", "t2"}, []string{"s3"})
			b.FullCapacity()
		},
	},
	{
		Name: "cls-flow-key", Title: "One tenant at two priorities has two queues", Needs: []sut.Feature{sut.Hold, sut.Objectives, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 100, 0)
			b.Plug()
			t := scenario.Tenant("t")
			hi := b.Queue(b.Req("h1", t, scenario.At(100)), b.Req("h2", t, scenario.At(100)), b.Req("h3", t, scenario.At(100)))
			lo := b.Queue(b.Req("l1", t), b.Req("l2", t))
			b.Complete()
			b.Do(sut.OpSample, "sampled")
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: hi})
			b.Endings("gone", hi...)
			b.Quiet("untouched", 300*time.Millisecond)
			b.Steps(2)
			b.Drain()
			b.Check("FC-CLS-15", "series", checks.Spec{Mark: "sampled", Waiting: slices.Concat(hi, lo), Names: b.Profile.Metrics.QueueSize, Series: []checks.Series{
				{Labels: map[string]string{"fairness_id": "t", "priority": "100"}, Value: 3},
				{Labels: map[string]string{"fairness_id": "t", "priority": "0"}, Value: 2}}})
			b.Check("FC-CLS-15", "waiting", checks.Spec{IDs: lo, Mark: "untouched", Count: 1})
			b.Check("FC-CLS-15", "never-served", checks.Spec{IDs: hi, Then: lo, Mark: scenario.Queued})
			b.Completed("FC-CLS-15", lo...)
			b.FullCapacity()
		},
	},
	{
		Name: "cls-look-alikes", Title: "Look-alike header names have no effect", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, 0)
			b.Plug()
			b.Queue(b.Req("x"), b.Req("y", scenario.Header("x-gateway-priority", "100"), scenario.Header("x-gateway-fairness-id", "vip")))
			b.Complete()
			b.Steps(2)
			b.Order("FC-CLS-19", scenario.One("x", "y")...)
			b.FullCapacity()
		},
	},
	{
		Name: "cls-look-alike-flows", Title: "A look-alike of the fairness header makes no flow", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 0)
			b.Plug()
			reqs := run(b, "a", 3, scenario.Anonymous())
			b.Queue(append(reqs, b.Req("vip1", scenario.Anonymous(), scenario.Header("x-gateway-fairness-id", "vip")))...)
			b.Complete()
			b.Steps(4)
			b.Order("FC-CLS-19", scenario.One("a1", "a2", "a3", "vip1")...)
			b.FullCapacity()
		},
	},
}

// objectiveOrder queues a low request and then a high one, both named by header; the high one must go first.
func objectiveOrder(name, id, title, header string) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Needs: banded, Write: func(b *scenario.Builder) {
		b.Cap(1, 1)
		b.Bands("", "", 100, 50, 10, 0, -10)
		b.Plug()
		b.Queue(b.Req("low", scenario.Header(header, "p0")), b.Req("high", scenario.Header(header, "p100")))
		b.Complete()
		b.Steps(2)
		b.Order(id, scenario.One("high", "low")...)
		b.FullCapacity()
	}}
}

// fairnessTurns queues three requests of one flow and then one of another, named by header; the other must be among the first two.
func fairnessTurns(name, id, title, header string) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Needs: held, Write: func(b *scenario.Builder) {
		b.Cap(1, 1)
		b.Bands("round-robin", "fcfs", 0)
		flow := func(f string) []scenario.Option {
			return []scenario.Option{scenario.Anonymous(), scenario.Header(header, f)}
		}
		b.Plug(flow("plug")...)
		b.Queue(b.Req("a1", flow("a")...), b.Req("a2", flow("a")...), b.Req("a3", flow("a")...), b.Req("b1", flow("b")...))
		b.Complete()
		b.Steps(4)
		b.Order(id, []string{"a1", "b1"}, []string{"a2"}, []string{"a3"})
		b.FullCapacity()
	}}
}

// defaultPriority queues -10, then a request that must count as 0, then 10.
func defaultPriority(name, id, title string, opts ...scenario.Option) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Needs: banded, Write: func(b *scenario.Builder) {
		b.Cap(1, 1)
		b.Bands("", "", 10, 0, -10)
		if len(opts) > 0 {
			idle := b.Send("idle", b.Req("idle", append(slices.Clone(opts), scenario.PassHold)...))
			b.Endings("idle-served", idle...)
			b.Completed(id, idle...)
		}
		b.Plug()
		b.Queue(b.Req("x", scenario.At(-10)), b.Req("n", opts...), b.Req("h", scenario.At(10)))
		b.Complete()
		b.Steps(3)
		b.Order(id, scenario.One("h", "n", "x")...)
		b.FullCapacity()
	}}
}
