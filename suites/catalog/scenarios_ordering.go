package catalog

import (
	"fmt"
	"strconv"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
)

// slo attaches a time-to-first-token target in milliseconds.
func slo(ms int) scenario.Option { return scenario.Header(wire.HeaderTTFT, strconv.Itoa(ms)) }

var orderingScenarios = []scenario.Scenario{
	{
		Name: "ord-fcfs", Title: "FCFS serves one flow in the order of entry", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 0)
			b.Plug()
			ids := b.Queue(run(b, "a", 6)...)
			b.Complete()
			b.Steps(6)
			b.Order("FC-ORD-01", scenario.One(ids...)...)
			b.FullCapacity()
		},
	},
	{
		Name: "ord-default", Title: "A band that names no ordering is FCFS, deadlines or not", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			var reqs []sut.Request
			for i := range 6 {
				reqs = append(reqs, b.Req(fmt.Sprintf("a%d", i+1), slo(60000-i*9000)))
			}
			ids := b.Queue(reqs...)
			b.Complete()
			b.Steps(6)
			b.Order("FC-ORD-02", scenario.One(ids...)...)
			b.FullCapacity()
		},
	},
	{
		Name: "ord-edf", Title: "EDF under one common wait limit equals arrival order", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "edf", 0)
			b.Plug()
			ids := b.Queue(run(b, "a", 4)...)
			b.Complete()
			b.Steps(4)
			b.Order("FC-ORD-04", scenario.One(ids...)...)
			b.FullCapacity()
		},
	},
	sloOrder("ord-slo", "FC-ORD-06", "Four waiting requests leave in the order of their targets", wire.HeaderTTFT),
	sloOrder("ord-slo-alias", "FC-ORD-13", "The older name of the target header works", wire.HeaderTTFTAlias),
	sloSum("ord-slo-sum-early", 2000, "r1", "r2"),
	sloSum("ord-slo-sum-late", 4000, "r2", "r1"),
	{
		Name: "ord-slo-junk", Title: "Requests without a valid target go last, in arrival order", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "slo-deadline", 0)
			b.Plug()
			target := func(id, v string) sut.Request {
				return b.Req(id, scenario.Tenant("a"), scenario.Header(wire.HeaderTTFT, v))
			}
			b.Queue(b.Req("none", scenario.Tenant("a")), target("word", "abc"), target("negative", "-5"), target("valid", "60000"))
			b.Complete()
			b.Steps(4)
			b.Order("FC-ORD-08", scenario.One("valid", "none", "word", "negative")...)
			b.FullCapacity()
		},
	},
	{
		Name: "ord-slo-missed", Title: "A missed target orders, it neither drops nor refuses", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "slo-deadline", 0)
			b.Plug()
			late := b.Queue(b.Req("late", slo(200)))
			b.Quiet("past", time.Second)
			b.Steps(1)
			b.Drain()
			b.Check("FC-ORD-09", "waiting", checks.Spec{IDs: late, Mark: "past", Count: 1})
			b.Completed("FC-ORD-09", late...)
			b.FullCapacity()
		},
	},
	{
		Name: "ord-slo-inside-flow", Title: "A tighter deadline in one flow takes no turn from another", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "slo-deadline", 0)
			b.Plug()
			b.Queue(b.Req("a3", slo(30000)), b.Req("a1", slo(10000)), b.Req("a2", slo(20000)), b.Req("b1", slo(50000)))
			b.Complete()
			b.Steps(4)
			b.Order("FC-ORD-10", []string{"a1", "b1"}, []string{"a2"}, []string{"a3"})
			b.FullCapacity()
		},
	},
	{
		Name: "ord-one-per-release", Title: "One freed slot admits exactly one queued request", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			ids := b.Queue(run(b, "a", 5)...)
			b.Complete()
			b.Step(sut.Step{Op: sut.OpStep, Mark: "one", Count: 4, Quiet: 500 * time.Millisecond})
			b.Check("FC-ORD-11", "one-per-release", checks.Spec{Mark: "one", IDs: ids, Needed: 4})
			b.FullCapacity()
		},
	},
	{
		Name: "ord-tiers", Title: "Priority, then fairness, then ordering", Needs: banded,
		Write: func(b *scenario.Builder) {
			ordering := "slo-deadline"
			if b.Profile.Config.Detector == "inline" {
				ordering = "fcfs"
			}
			b.Cap(1, 1)
			b.Bands("round-robin", ordering, 100, 0)
			b.Plug()
			first, second := b.Req("a40", scenario.Tenant("a"), slo(40000)), b.Req("a10", scenario.Tenant("a"), slo(10000))
			groups := [][]string{{"c50"}, {"a10", "b30"}, {"a40"}}
			if ordering == "fcfs" {
				// In arrival order the first of a's requests goes first.
				groups = [][]string{{"c50"}, {"a40", "b30"}, {"a10"}}
			}
			b.Queue(first, second, b.Req("b30", scenario.Tenant("b"), slo(30000)), b.Req("c50", scenario.Tenant("c"), scenario.At(100), slo(50000)))
			b.Complete()
			b.Steps(4)
			b.Order("FC-ORD-12", groups...)
			b.FullCapacity()
		},
	},
	{
		Name: "ord-policy-per-band", Title: "Each band has its own ordering policy", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "slo-deadline", 10)
			b.Bands("round-robin", "fcfs", 0)
			b.Plug()
			low := b.Queue(b.Req("l30", scenario.Tenant("a"), slo(30000)), b.Req("l10", scenario.Tenant("a"), slo(10000)))
			hi := func(id string, ms int) sut.Request {
				return b.Req(id, scenario.Tenant("a"), scenario.At(10), slo(ms))
			}
			b.Queue(hi("h30", 30000), hi("h10", 10000))
			b.Complete()
			b.Steps(4)
			b.Order("FC-ORD-14", append(scenario.One("h10", "h30"), scenario.One(low...)...)...)
			b.FullCapacity()
		},
	},
}

func sloOrder(name, id, title, header string) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Needs: held, Write: func(b *scenario.Builder) {
		b.Cap(1, 1)
		b.Bands("round-robin", "slo-deadline", 0)
		b.Plug()
		target := func(id, v string) sut.Request { return b.Req(id, scenario.Tenant("a"), scenario.Header(header, v)) }
		b.Queue(target("t40", "40000"), target("t10", "10000"), target("t30", "30000"), target("t20", "20000"))
		b.Complete()
		b.Steps(4)
		b.Order(id, scenario.One("t10", "t20", "t30", "t40")...)
		b.FullCapacity()
	}}
}

// sloSum queues r1 with a target, and 1.5 s later r2 with 1 s: the sums decide, not the bare targets.
func sloSum(name string, first int, order ...string) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: "The deadline is receipt plus target, not the bare target", Needs: held, Write: func(b *scenario.Builder) {
		b.Cap(1, 1)
		b.Bands("round-robin", "slo-deadline", 0)
		b.Plug()
		b.Queue(b.Req("r1", scenario.Tenant("a"), slo(first)))
		b.Quiet("between", 1500*time.Millisecond)
		b.Queue(b.Req("r2", scenario.Tenant("a"), slo(1000)))
		b.Complete()
		b.Steps(2)
		b.Order("FC-ORD-07", scenario.One(order...)...)
		b.FullCapacity()
	}}
}
