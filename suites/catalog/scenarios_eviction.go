package catalog

import (
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
)

var evicting = []sut.Feature{sut.Hold, sut.Objectives, sut.Eviction}

// evictionLimit is how soon blocked demand must have displaced its victim (FC-EVI-01).
const evictionLimit = 3 * time.Second

var evictionScenarios = []scenario.Scenario{
	evictionFor("evi-demand", "Blocked demand stops running negative-priority work and takes its place", 100, "FC-EVI-01", "FC-EVI-05", "FC-EVI-07"),
	evictionFor("evi-demand-at-zero", "Demand at priority 0 displaces negative work", 0, "FC-EVI-17"),
	evictionFor("evi-demand-negative", "Demand of negative priority displaces what is strictly below it", -5, "FC-EVI-03"),
	{
		Name: "evi-not-equal", Title: "Demand that is not above the running work displaces nothing", Needs: evicting,
		Write: func(b *scenario.Builder) {
			evictionPool(b, 2, true)
			running := b.PlugN(2, scenario.At(-10))
			demand := b.Queue(b.Req("same", scenario.At(-10)), b.Req("below", scenario.At(-20)))
			b.Quiet("blocked", 5*time.Second)
			b.Drain()
			b.Check("FC-EVI-03", "undisturbed", checks.Spec{IDs: running, Waiting: demand, Mark: "blocked"})
			b.FullCapacity()
		},
	},
	{
		Name: "evi-mid-stream", Title: "A stream that is evicted breaks off", Needs: evicting,
		Write: func(b *scenario.Builder) {
			evictionPool(b, 2, true)
			batch := b.PlugN(2, scenario.At(-10), scenario.StreamHeldAfter(5))
			b.Quiet("streaming", time.Second)
			demand := displace(b, "hi", 100)
			b.Drain()
			evictedBy(b, "FC-EVI-06", demand, 1, checks.Spec{IDs: batch, Streamed: batch})
			b.FullCapacity()
		},
	},
	{
		Name: "evi-victims", Title: "The lowest priority goes first, and among equals the newest", Needs: evicting,
		Write: func(b *scenario.Builder) {
			evictionPool(b, 4, true)
			batch := b.PlugN(3, scenario.At(-10))
			higher := b.PlugN(1, scenario.At(-5)) // the newest of all
			first := displace(b, "hi1", 100)
			second := displace(b, "hi2", 100)
			b.Drain()
			evictedBy(b, "FC-EVI-08", first, 1, checks.Spec{IDs: batch[2:]})
			evictedBy(b, "FC-EVI-08", second, 1, checks.Spec{IDs: batch[1:2]})
			evictedBy(b, "FC-EVI-08", first, 2, checks.Spec{IDs: append(higher, batch...), Max: 2 * evictionLimit})
			b.FullCapacity()
		},
	},
	{
		Name: "evi-sizing", Title: "As many are evicted as are demanded", Needs: evicting,
		Write: func(b *scenario.Builder) {
			evictionPool(b, 8, true)
			batch := b.PlugN(8, scenario.At(-10))
			demand := b.Send("demand", b.Req("hi1", scenario.At(100)), b.Req("hi2", scenario.At(100)), b.Req("hi3", scenario.At(100)))
			b.Step(sut.Step{Op: sut.OpArrivals, Mark: "taken", IDs: demand, Limit: 2 * evictionLimit})
			b.Quiet("settled", time.Second)
			b.Drain()
			evictedBy(b, "FC-EVI-09", demand, 3, checks.Spec{IDs: batch, Slack: 1, Max: 2 * evictionLimit})
			b.FullCapacity()
		},
	},
	{
		Name: "evi-metric-lag", Title: "A freed place that the metrics do not show yet is not demanded again", Needs: append(evicting, sut.Metrics),
		Write: func(b *scenario.Builder) {
			b.Util(4, 0.8, 1)
			b.Config.Hold, b.Config.HeldAsWaiting = true, true
			b.Config.Eviction = true
			b.Bands("", "", 100, -10)
			batch := b.PlugN(4, scenario.At(-10))
			b.Quiet("closed", time.Second)
			demand := b.Send("demand", b.Req("hi", scenario.At(100)))
			b.Step(sut.Step{Op: sut.OpArrivals, Mark: "taken", IDs: demand, Limit: 2 * evictionLimit})
			b.Quiet("settled", 4*time.Second)
			b.Drain()
			evictedBy(b, "FC-EVI-09", demand, 1, checks.Spec{IDs: batch, Slack: 1, Max: 2 * evictionLimit})
		},
	},
	{
		Name: "evi-counted", Title: "Evictions are counted, by demand and by how they ended", Needs: append(evicting, sut.Metrics),
		Write: func(b *scenario.Builder) {
			evictionPool(b, 2, true)
			b.PlugN(2, scenario.At(-10))
			displace(b, "hi", 100)
			b.Do(sut.OpSample, "counted")
			for _, m := range []struct{ name, label, value string }{
				{"revocations_issued_total", "priority", "100"}, {"revocations_total", "outcome", "confirmed"},
			} {
				b.Check("FC-MET-09", "series", checks.Spec{Mark: "counted", Mode: "each", Names: []string{wire.PrefixFlowControl + m.name}, Engaged: []string{"taken-hi"},
					Series: []checks.Series{{Labels: map[string]string{m.label: m.value}, Value: 1}}})
			}
			b.FullCapacity()
		},
	},
	{
		Name: "evi-spare", Title: "Demand that finds room stops nothing", Needs: evicting,
		Write: func(b *scenario.Builder) {
			evictionPool(b, 4, true)
			running := b.PlugN(2, scenario.At(-10))
			demand := b.PlugN(2, scenario.At(100))
			w := b.Queue(b.Req("low", scenario.At(-10)))
			b.Quiet("together", 2*time.Second)
			b.Drain()
			b.Check("FC-EVI-10", "undisturbed", checks.Spec{IDs: append(running, demand...), Waiting: w, Mark: "together"})
			b.FullCapacity()
		},
	},
	{
		Name: "evi-queued", Title: "What is queued is never evicted", Needs: evicting,
		Write: func(b *scenario.Builder) {
			evictionPool(b, 2, true)
			batch := b.PlugN(2, scenario.At(-10))
			queued := b.Queue(b.Req("q1", scenario.At(-10)), b.Req("q2", scenario.At(-10)))
			demand := displace(b, "hi", 100)
			b.Drain()
			evictedBy(b, "FC-EVI-11", demand, 1, checks.Spec{IDs: batch})
			b.Completed("FC-EVI-11", queued...)
			b.FullCapacity()
		},
	},
	{
		Name: "evi-session", Title: "An evicted call leaves the other calls of its session alone", Needs: evicting,
		Write: func(b *scenario.Builder) {
			evictionPool(b, 3, true)
			calls := b.PlugN(3, scenario.At(-10), scenario.Tenant("task"))
			demand := displace(b, "hi", 100)
			b.Drain()
			evictedBy(b, "FC-EVI-18", demand, 1, checks.Spec{IDs: calls})
			b.FullCapacity()
		},
	},
	{
		Name: "evi-order", Title: "With eviction enabled ordinary dispatch is in the ordinary order", Needs: evicting,
		Write: func(b *scenario.Builder) {
			evictionPool(b, 1, true)
			b.Plug(scenario.At(100))
			low := b.Queue(run(b, "low", 2)...)
			high := b.Queue(run(b, "high", 2, scenario.At(100))...)
			b.Complete()
			b.Steps(4)
			b.Drain()
			b.Order("FC-EVI-15", append(scenario.One(high...), scenario.One(low...)...)...)
			b.FullCapacity()
		},
	},
	{
		Name: "evi-no-retry", Title: "The router does not retry what it evicted", Needs: evicting,
		Write: func(b *scenario.Builder) {
			evictionPool(b, 2, true)
			batch := b.PlugN(2, scenario.At(-10))
			demand := displace(b, "hi", 100)
			b.Drain()
			b.Quiet("calm", 5*time.Second)
			evictedBy(b, "FC-EVI-12", demand, 1, checks.Spec{IDs: batch})
			b.Check("FC-EVI-12", "once", checks.Spec{IDs: batch[1:], Mark: "calm", Count: 2, Min: 4 * time.Second})
			b.FullCapacity()
		},
	},
	{
		Name: "evi-retry", Title: "A retry of the client's is a request like any other", Needs: evicting,
		Write: func(b *scenario.Builder) {
			evictionPool(b, 1, true)
			same := scenario.Header(wire.HeaderRequestID, "the-victim")
			victim := b.PlugN(1, scenario.At(-10), scenario.Tenant("task"), same)
			demand := displace(b, "hi", 100)
			w := b.Queue(b.Req("other1", scenario.At(-10), scenario.Tenant("task")), b.Req("again1", scenario.At(-10), scenario.Tenant("task"), same))
			b.Complete()
			b.Steps(2)
			b.Drain()
			evictedBy(b, "FC-EVI-13", demand, 1, checks.Spec{IDs: victim})
			b.Order("FC-EVI-13", scenario.One(w...)...)
			b.Completed("FC-EVI-13", w...)
			b.FullCapacity()
		},
	},
	noEviction("evi-not-at-zero", "FC-EVI-02", "Work at priority 0 is never stopped", evicting, true, 0),
	noEviction("evi-off", "FC-EVI-04", "Without the setting nothing is stopped", banded, false, -10),
}

func evictionPool(b *scenario.Builder, capacity int, on bool) {
	b.Cap(capacity, 1)
	b.Bands("", "", 100, 0, -5, -10, -20)
	b.Config.Eviction = on
}

// displace sends demand and waits until it has taken a place.
func displace(b *scenario.Builder, id string, priority int) []string {
	demand := b.Send("demand-"+id, b.Req(id, scenario.At(priority)))
	b.Step(sut.Step{Op: sut.OpArrivals, Mark: "taken-" + id, IDs: demand, Limit: evictionLimit})
	b.Quiet("settled-"+id, 300*time.Millisecond)
	return demand
}

// evictedBy expects that demand stopped n of s.IDs as the profile says.
func evictedBy(b *scenario.Builder, id string, demand []string, n int, s checks.Spec) {
	a := b.Profile.Refusals.Evicted
	s.Then, s.Count, s.Status, s.Reason = demand, n, a.Status, a.Reason
	if s.Max == 0 {
		s.Max = evictionLimit
	}
	b.Check(id, "evicted", s)
}

// evictionFor holds two requests at -10 in flight and lets demand of a priority displace one of them.
func evictionFor(name, title string, priority int, requirements ...string) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Needs: evicting, Write: func(b *scenario.Builder) {
		evictionPool(b, 2, true)
		batch := b.PlugN(2, scenario.At(-10))
		demand := displace(b, "hi", priority)
		b.Drain()
		for _, id := range requirements {
			s := checks.Spec{IDs: batch}
			if id == "FC-EVI-07" {
				s.Within = 2 * time.Second
			}
			evictedBy(b, id, demand, 1, s)
		}
		b.FullCapacity()
	}}
}

// noEviction holds two requests of a priority in flight, sends demand at 100 and expects that nothing is stopped for 5 s.
func noEviction(name, id, title string, needs []sut.Feature, on bool, priority int) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Needs: needs, Write: func(b *scenario.Builder) {
		evictionPool(b, 2, on)
		running := b.PlugN(2, scenario.At(priority))
		demand := b.Send("demand", b.Req("hi", scenario.At(100)))
		b.Quiet("blocked", 5*time.Second)
		b.Drain()
		b.Check(id, "undisturbed", checks.Spec{IDs: running, Waiting: demand, Mark: "blocked"})
		b.FullCapacity()
	}}
}
