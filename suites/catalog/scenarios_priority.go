package catalog

import (
	"fmt"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

var priorityScenarios = []scenario.Scenario{
	strictBands("pri-strict", "FC-PRI-01", "The highest band with queued work always goes first", []int{100, 0, -10}),
	strictBands("pri-sample-bands", "FC-PRI-03", "Negative priorities rank below 0, also for the bands 1 / 0 / -1", []int{1, 0, -1}, "round-robin", "fcfs"),
	{
		Name: "pri-late-high", Title: "A high request that arrives late takes the very next turn", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, 0)
			b.Plug()
			low := b.Queue(b.Req("a1"), b.Req("a2"), b.Req("a3"), b.Req("a4"), b.Req("a5"))
			b.Steps(1)
			b.Queue(b.Req("hi", scenario.At(100)))
			b.Complete()
			b.Step(sut.Step{Op: sut.OpStep, Mark: "late", Count: 5})
			b.Check("FC-PRI-02", "order", checks.Spec{Mark: scenario.Queued, Groups: scenario.One("hi", "a2", "a3", "a4", "a5"),
				Waiting: append([]string{"hi"}, low[1:]...)})
			b.FullCapacity()
		},
	},
	{
		Name: "pri-no-preemption", Title: "A dispatched request is not stopped for a higher one", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, 0, -10)
			plug := b.Plug(scenario.At(-10))
			hi := b.Queue(b.Req("hi", scenario.At(100)))
			b.Quiet("running", 2*time.Second)
			b.Steps(1)
			b.Drain()
			b.Check("FC-PRI-04", "undisturbed", checks.Spec{IDs: plug, Waiting: hi, Mark: "running"})
			b.Check("FC-PRI-04", "arrives", checks.Spec{IDs: hi, After: "step", Within: time.Second})
			b.FullCapacity()
		},
	},
	{
		Name: "pri-idle-bands", Title: "An idle band never delays a lower one", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(4, 1)
			b.Bands("", "", 100, 0, -10)
			ids := b.Send("sent", b.Req("a1", scenario.At(-10)), b.Req("a2", scenario.At(-10)), b.Req("a3", scenario.At(-10)), b.Req("a4", scenario.At(-10)))
			b.Step(sut.Step{Op: sut.OpArrivals, Mark: "arrived", IDs: ids})
			b.Check("FC-PRI-05", "arrives", checks.Spec{IDs: ids, Within: 500*time.Millisecond + b.Profile.Tolerances.Slack})
			b.FullCapacity()
		},
	},
	{
		Name: "pri-sheddable-queues", Title: "Negative priority waits its turn, it is not refused for saturation", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 0, -10)
			b.Plug()
			low := b.Queue(b.Req("low", scenario.At(-10)))
			b.Quiet("waiting", time.Second)
			b.Steps(1)
			b.Drain()
			b.Check("FC-PRI-06", "waiting", checks.Spec{IDs: low, Mark: "waiting", Count: 1})
			b.Check("FC-PRI-06", "completed", checks.Spec{IDs: low})
			b.FullCapacity()
		},
	},
	{
		Name: "pri-two-bands", Title: "In two bands one workload has precedence over the other", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 10, 0)
			b.Plug()
			low := b.Queue(run(b, "a", 6)...)
			high := b.Queue(run(b, "b", 6, scenario.At(10))...)
			b.Complete()
			b.Steps(12)
			b.Order("FC-PRI-12", append(scenario.One(high...), scenario.One(low...)...)...)
			b.FullCapacity()
		},
	},
	{
		Name: "pri-one-band", Title: "In one band two workloads share turns", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 0)
			b.Plug()
			x := b.Queue(run(b, "a", 6)...)
			y := b.Queue(run(b, "b", 6)...)
			b.Complete()
			b.Steps(12)
			var groups [][]string
			for i := range x {
				groups = append(groups, []string{x[i], y[i]})
			}
			b.Order("FC-PRI-12", groups...)
			b.FullCapacity()
		},
	},
	{
		Name: "cfg-platform-sample", Title: "The platform's sample: bands 1 / 0 / -1, round robin and FCFS, 1 GiB, 1 minute", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 1, 0, -1)
			b.Config.MaxBytes = 1 << 30
			b.Plug()
			var groups [][]string
			for _, p := range []int{-1, 0, 1} {
				n := scenario.Objective(p)
				q := func(id, t string) sut.Request { return b.Req(n+"-"+id, scenario.Tenant(t), scenario.At(p)) }
				w := b.Queue(q("a1", "a"), q("a2", "a"), q("b1", "b"))
				groups = append([][]string{{w[0], w[2]}, {w[1]}}, groups...)
			}
			b.Complete()
			b.Steps(9)
			b.Order("FC-CFG-17", groups...)
			b.FullCapacity()
		},
	},
	strictBands("pri-rr-fcfs", "FC-PRI-14", "Band order is fixed under round robin and FCFS", []int{100, 0, -10}, "round-robin", "fcfs"),
	strictBands("pri-rr-slo", "FC-PRI-14", "Band order is fixed under round robin and deadlines", []int{100, 0, -10}, "round-robin", "slo-deadline"),
	strictBands("pri-rr-edf", "FC-PRI-14", "Band order is fixed under round robin and EDF", []int{100, 0, -10}, "round-robin", "edf"),
	strictBands("pri-gs-fcfs", "FC-PRI-14", "Band order is fixed under global strict and FCFS", []int{100, 0, -10}, "global-strict", "fcfs"),
	strictBands("pri-gs-slo", "FC-PRI-14", "Band order is fixed under global strict and deadlines", []int{100, 0, -10}, "global-strict", "slo-deadline"),
	strictBands("pri-gs-edf", "FC-PRI-14", "Band order is fixed under global strict and EDF", []int{100, 0, -10}, "global-strict", "edf"),
	strictBands("pri-extremes", "FC-PRI-13", "Order holds at the extremes of the priority range", []int{2147483647, 1, 0, -1, -2147483648}),
}

// strictBands queues three requests per band (one for wide sets), lowest band first, and expects the highest band first.
func strictBands(name, id, title string, priorities []int, policies ...string) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Needs: banded, Write: func(b *scenario.Builder) {
		fairness, ordering := "", ""
		if len(policies) == 2 {
			fairness, ordering = policies[0], policies[1]
		}
		if fairness != "" && ordering != "fcfs" && b.Profile.Config.Detector == "inline" {
			return // the chapter documents FCFS only
		}
		b.Cap(1, 1)
		b.Bands(fairness, ordering, priorities...)
		b.Plug()
		each := 3
		if len(priorities) > 3 {
			each = 1
		}
		var groups [][]string
		for i := len(priorities) - 1; i >= 0; i-- {
			var reqs []sut.Request
			for n := range each {
				tenant := "a" // in every band; the others are in one each, and never come before bands
				if n > 0 {
					tenant = fmt.Sprintf("t%d-%d", i, n)
				}
				opts := []scenario.Option{scenario.At(priorities[i]), scenario.Tenant(tenant)}
				if ordering == "slo-deadline" {
					// The lower the band, the tighter the target: it must not help.
					opts = append(opts, slo(1000+30000*(len(priorities)-1-i)+n))
				}
				reqs = append(reqs, b.Req(fmt.Sprintf("%s-%d", scenario.Objective(priorities[i]), n+1), opts...))
			}
			groups = append([][]string{b.Queue(reqs...)}, groups...)
		}
		b.Complete()
		b.Steps(each * len(priorities))
		b.Order(id, groups...)
		b.FullCapacity()
	}}
}
