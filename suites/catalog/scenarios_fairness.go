package catalog

import (
	"fmt"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

var fairnessScenarios = []scenario.Scenario{
	{
		Name: "fair-round-robin", Title: "One turn per flow and round; drained flows leave the rotation", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 0)
			b.Plug()
			b.Queue(run(b, "a", 4)...)
			b.Queue(run(b, "b", 2)...)
			b.Queue(run(b, "c", 1)...)
			b.Complete()
			b.Steps(7)
			b.Order("FC-FAIR-01", []string{"a1", "b1", "c1"}, []string{"a2", "b2"}, []string{"a3"}, []string{"a4"})
			b.FullCapacity()
		},
	},
	{
		Name: "fair-backlog", Title: "Turns do not depend on the size of a backlog", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 0)
			b.Plug()
			b.Queue(run(b, "a", 20)...)
			b.Queue(run(b, "b", 2)...)
			b.Complete()
			b.Steps(22)
			groups := [][]string{{"a1", "b1"}, {"a2", "b2"}}
			for i := 3; i <= 20; i++ {
				groups = append(groups, []string{fmt.Sprintf("a%d", i)})
			}
			b.Order("FC-FAIR-02", groups...)
			b.FullCapacity()
		},
	},
	{
		Name: "fair-per-band", Title: "Rotation is kept per band", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 10, 0)
			b.Plug()
			t := func(id, t string, opts ...scenario.Option) sut.Request {
				return b.Req(id, append(opts, scenario.Tenant(t))...)
			}
			b.Queue(t("la1", "a"), t("la2", "a"), t("lb1", "b"), t("lb2", "b"))
			b.Queue(t("ha1", "a", scenario.At(10)), t("ha2", "a", scenario.At(10)), t("hb1", "b", scenario.At(10)), t("hb2", "b", scenario.At(10)))
			b.Complete()
			b.Steps(8)
			b.Order("FC-FAIR-03", []string{"ha1", "hb1"}, []string{"ha2", "hb2"}, []string{"la1", "lb1"}, []string{"la2", "lb2"})
			b.FullCapacity()
		},
	},
	{
		Name: "fair-cursor-per-band", Title: "A turn taken in one band uses up no turn in another", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 10, 0)
			b.Plug()
			t := func(id, t string, opts ...scenario.Option) sut.Request {
				return b.Req(id, append(opts, scenario.Tenant(t))...)
			}
			b.Queue(t("la1", "a"), t("la2", "a"), t("lb1", "b"), t("lb2", "b"))
			b.Complete()
			// One low turn, then b's turn in the high band, then the low band goes on where it was: with its other flow, whichever that is.
			b.Steps(1)
			b.Queue(t("hb1", "b", scenario.At(10)))
			b.Quiet("interleaved", 300*time.Millisecond)
			b.Step(sut.Step{Op: sut.OpStep, Mark: "rest", Count: 4})
			b.Check("FC-FAIR-03", "order", checks.Spec{Mark: scenario.Queued, Groups: [][]string{{"la1", "lb1"}, {"la2", "lb2"}}})
			b.FullCapacity()
		},
	},
	{
		Name: "gc-new-tenants", Title: "A tenant needs no registration", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 0)
			b.Plug()
			var reqs []sut.Request
			for i := range 20 {
				reqs = append(reqs, b.Req(fmt.Sprintf("r%d", i+1), scenario.Tenant(fmt.Sprintf("new-tenant-%02d", i+1))))
			}
			w := b.Queue(reqs...)
			b.Complete()
			b.Steps(20)
			b.Drain()
			b.Check("FC-GC-01", "waiting", checks.Spec{IDs: w, Mark: scenario.Queued, Count: 1})
			b.Completed("FC-GC-01", w...)
			b.FullCapacity()
		},
	},
	{
		Name: "fair-long-prompts", Title: "Round robin equalises turns, not tokens", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 0)
			b.Plug()
			var reqs []sut.Request
			for i := 1; i <= 4; i++ {
				reqs = append(reqs, b.Req(fmt.Sprintf("a%d", i), scenario.Prompt(8000)))
			}
			b.Queue(reqs...)
			b.Queue(run(b, "b", 4, scenario.Prompt(10))...)
			b.Complete()
			b.Steps(8)
			b.Order("FC-FAIR-05", []string{"a1", "b1"}, []string{"a2", "b2"}, []string{"a3", "b3"}, []string{"a4", "b4"})
			b.FullCapacity()
		},
	},
	{
		Name: "fair-global-strict", Title: "Global strict serves the earliest request of the band whatever its tenant", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("global-strict", "fcfs", 0)
			b.Plug()
			ids := b.Queue(b.Req("a1"), b.Req("b1"), b.Req("a2"), b.Req("c1"))
			b.Complete()
			b.Steps(4)
			b.Order("FC-FAIR-06", scenario.One(ids...)...)
			b.FullCapacity()
		},
	},
	{
		Name: "fair-default", Title: "A band that names no fairness policy is global strict", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			ids := b.Queue(append(run(b, "a", 4), run(b, "b", 1)...)...)
			b.Complete()
			b.Steps(5)
			b.Order("FC-FAIR-07", scenario.One(ids...)...)
			b.FullCapacity()
		},
	},
	{
		Name: "fair-no-isolation", Title: "Under global strict a flood delays its neighbour by its whole backlog", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("global-strict", "fcfs", 0)
			b.Plug()
			ids := b.Queue(append(run(b, "a", 20), run(b, "b", 1)...)...)
			b.Complete()
			b.Steps(21)
			b.Order("FC-FAIR-08", scenario.One(ids...)...)
			b.FullCapacity()
		},
	},
	{
		Name: "fair-strict-deadline", Title: "Global strict with deadlines serves the earliest deadline over all flows", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("global-strict", "slo-deadline", 0)
			b.Plug()
			b.Queue(b.Req("a40", slo(40000), scenario.Tenant("a")), b.Req("b10", slo(10000)), b.Req("a20", slo(20000), scenario.Tenant("a")), b.Req("c30", slo(30000)))
			b.Complete()
			b.Steps(4)
			b.Order("FC-FAIR-09", scenario.One("b10", "a20", "c30", "a40")...)
			b.FullCapacity()
		},
	},
	{
		Name: "fair-policy-per-band", Title: "Each band has its own fairness policy", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 10)
			b.Bands("global-strict", "fcfs", 0)
			b.Plug()
			low := b.Queue(b.Req("la1", scenario.Tenant("a")), b.Req("la2", scenario.Tenant("a")), b.Req("la3", scenario.Tenant("a")), b.Req("lb1", scenario.Tenant("b")))
			hi := func(id, t string) sut.Request { return b.Req(id, scenario.Tenant(t), scenario.At(10)) }
			b.Queue(hi("ha1", "a"), hi("ha2", "a"), hi("ha3", "a"), hi("hb1", "b"))
			b.Complete()
			b.Steps(8)
			b.Order("FC-FAIR-10", append([][]string{{"ha1", "hb1"}, {"ha2"}, {"ha3"}}, scenario.One(low...)...)...)
			b.FullCapacity()
		},
	},
	{
		Name: "fair-every-round", Title: "With eight backlogged flows each is served in every round", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 0)
			b.Plug()
			var reqs []sut.Request
			groups := make([][]string, 8)
			for f := range 8 {
				name := string(rune('a' + f))
				for n := range f + 1 {
					id := fmt.Sprintf("%s%d", name, n+1)
					reqs = append(reqs, b.Req(id))
					groups[n] = append(groups[n], id)
				}
			}
			b.Queue(reqs...)
			b.Complete()
			b.Steps(len(reqs))
			b.Order("FC-FAIR-13", groups...)
			b.FullCapacity()
		},
	},
}

// run makes n requests of one flow: a1 a2 a3 ...
func run(b *scenario.Builder, flow string, n int, opts ...scenario.Option) []sut.Request {
	var out []sut.Request
	for i := range n {
		out = append(out, b.Req(fmt.Sprintf("%s%d", flow, i+1), slices.Clone(opts)...))
	}
	return out
}
