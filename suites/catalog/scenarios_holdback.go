package catalog

import (
	"fmt"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

var holding = []sut.Feature{sut.Hold, sut.Objectives, sut.Holdback}

var holdbackScenarios = []scenario.Scenario{
	{
		Name: "ceil-holdback", Title: "Under holdback the low band stops at half of capacity, the high band at full", Needs: holding,
		Write: func(b *scenario.Builder) {
			heldBack(b, 10, "", 100, 0)
			plateaus(b, "FC-CEIL-04", plateau{0, 5}, plateau{100, 10})
			b.SetCapacity(5)
			b.FullCapacity()
		},
	},
	{
		Name: "ceil-holdback-three", Title: "Three bands stop at 1.0, 0.75 and 0.50", Needs: holding,
		Write: func(b *scenario.Builder) {
			heldBack(b, 20, "", 100, 50, 0)
			plateaus(b, "FC-CEIL-05", plateau{0, 10}, plateau{50, 15}, plateau{100, 20})
			b.SetCapacity(10)
			b.FullCapacity()
		},
	},
	{
		Name: "ceil-holdback-value", Title: "By value, 100, 10 and 0 stop at 1.0, 0.55 and 0.50", Needs: holding,
		Write: func(b *scenario.Builder) {
			heldBack(b, 20, "value", 100, 10, 0)
			plateaus(b, "FC-CEIL-06", plateau{0, 10}, plateau{10, 11}, plateau{100, 20})
			b.SetCapacity(10)
			b.FullCapacity()
		},
	},
	{
		Name: "ceil-holdback-idle-band", Title: "Band 0 is ranked although no objective names it", Needs: holding,
		Write: func(b *scenario.Builder) {
			heldBack(b, 20, "", 100, -10)
			plateaus(b, "FC-CEIL-10", plateau{-10, 10}, plateau{0, 15}, plateau{100, 20})
			b.SetCapacity(15)
			b.FullCapacity()
		},
	},
	{
		Name: "ceil-holdback-total", Title: "Work of any priority counts against a ceiling", Needs: holding,
		Write: func(b *scenario.Builder) {
			heldBack(b, 10, "", 100, 0)
			high := b.PlugN(6, scenario.At(100))
			low := b.Queue(b.Req("low1"))
			b.Quiet("held-back", 500*time.Millisecond)
			b.Check("FC-CEIL-07", "in-flight", checks.Spec{Mark: "held-back", Count: 6, Waiting: low})
			b.Step(sut.Step{Op: sut.OpRelease, Mark: "freed", IDs: high[:2]})
			b.Step(sut.Step{Op: sut.OpArrivals, Mark: "taken", IDs: low, Limit: 2 * time.Second})
			b.Check("FC-CEIL-07", "arrives", checks.Spec{IDs: low, After: "freed", Within: time.Second})
			b.SetCapacity(5)
			b.FullCapacity()
		},
	},
	{
		Name: "ceil-holdback-idle", Title: "A band that is held back leaves capacity idle, and a higher band takes it", Needs: holding,
		Write: func(b *scenario.Builder) {
			heldBack(b, 10, "", 100, 0)
			b.PlugN(5)
			low := b.Queue(run(b, "low", 25)...)
			b.Quiet("idle", 5*time.Second)
			b.Check("FC-CEIL-08", "in-flight", checks.Spec{Mark: "idle", Count: 5, Waiting: low})
			high := b.Send("high", b.Req("high1", scenario.At(100)))
			b.Step(sut.Step{Op: sut.OpArrivals, Mark: "taken", IDs: high, Limit: 2 * time.Second})
			b.Check("FC-CEIL-09", "arrives", checks.Spec{IDs: high, Within: 500*time.Millisecond + b.Profile.Tolerances.Slack, Waiting: low})
			b.SetCapacity(5)
			b.FullCapacity()
		},
	},
	{
		Name: "ceil-holdback-utilization", Title: "Holdback also works on the model servers' metrics", Needs: []sut.Feature{sut.Objectives, sut.Holdback},
		Write: func(b *scenario.Builder) {
			b.Util(5, 0.8, 1)
			b.Bands("", "", 100, 0)
			b.Holdback(0.5, 1.0)
			setLoad(b, 0, load{waiting: 3})
			b.Step(sut.Step{Op: sut.OpProbe, Mark: "low1", Requests: []sut.Request{b.Req("low1")}})
			b.Step(sut.Step{Op: sut.OpProbe, Mark: "high1", Requests: []sut.Request{b.Req("high1", scenario.At(100))}})
			b.Check("FC-CEIL-15", "gate", gateSpec(b, []string{"high1"}, []string{"low1"}))
		},
	},
}

func heldBack(b *scenario.Builder, capacity int, domain string, priorities ...int) {
	b.Cap(capacity, 1)
	b.Bands("", "", priorities...)
	b.Holdback(0.5, 1.0)
	b.Config.Ceiling.Domain = domain
}

// plateau is how many requests are in flight when the band of a priority stops.
type plateau struct{ priority, inFlight int }

// plateaus fills up band by band, from the lowest: each stops at its plateau although one more of it waits.
func plateaus(b *scenario.Builder, id string, ps ...plateau) {
	var waiting []string
	filled := 0
	for i, p := range ps {
		b.PlugN(p.inFlight-filled, scenario.At(p.priority))
		filled = p.inFlight
		waiting = append(waiting, b.Queue(b.Req(fmt.Sprintf("more%d", i+1), scenario.At(p.priority)))...)
		mark := fmt.Sprintf("plateau%d", i+1)
		b.Quiet(mark, 500*time.Millisecond)
		b.Check(id, "in-flight", checks.Spec{Mark: mark, Count: filled, Waiting: append([]string(nil), waiting...)})
	}
}
