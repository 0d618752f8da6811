package catalog

import (
	"fmt"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// at sends the request to one of several pickers.
func at(picker int) scenario.Option { return func(r *sut.Request) { r.Picker = picker } }

// multiScenarios have two pickers in front of one pool. Each has its own queues and its own count of what it has dispatched; what the
// model servers publish both of them read.
var multiScenarios = []scenario.Scenario{
	{
		Name: "multi-local-queues", Title: "Fairness is local to a picker: each rotates over its own tenants", Needs: held,
		Write: func(b *scenario.Builder) {
			if !b.Profile.Config.ConcurrencyDetector {
				return // by readings alone the pickers share one place, and take turns by chance
			}
			b.Cap(1, 1)
			b.Config.Pickers = 2
			b.Bands("round-robin", "fcfs", 0)
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: []sut.Request{b.Req("plug1"), b.Req("plug2", at(1))}})
			b.Queue(b.Req("a1"), b.Req("a2"), b.Req("b1"), b.Req("c1", at(1)), b.Req("c2", at(1)), b.Req("b2", at(1)))
			b.Complete()
			b.Steps(6)
			b.Drain()
			b.Order("FC-MULTI-01", scenario.One("a1", "b1", "a2")...)
			b.Order("FC-MULTI-01", scenario.One("c1", "b2", "c2")...) // in byte order b would be first: the order is that of each picker's own arrivals
		},
	},
	{
		Name: "multi-local-counts", Title: "Without synchronization two pickers with a limit of two admit four", Needs: held,
		Write: func(b *scenario.Builder) {
			if !b.Profile.Config.ConcurrencyDetector {
				return
			}
			b.Cap(2, 1)
			b.Config.Pickers = 2
			var plugs []sut.Request
			for i := range 4 {
				plugs = append(plugs, b.Req(fmt.Sprintf("plug%d", i+1), at(i/2)))
			}
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: plugs})
			w := b.Queue(b.Req("w1"), b.Req("w2", at(1)))
			b.Quiet("full", 300*time.Millisecond)
			b.Check("FC-MULTI-02", "in-flight", checks.Spec{Mark: "full", Count: 4, Waiting: w})
			b.Drain()
		},
	},
	sharedCount, silentReplica,
	replicas("multi-one-server", 1, 1), replicas("multi-two-servers", 2, 1), replicas("multi-two-pickers", 1, 2),
	{
		Name: "multi-guarantees", Title: "Order and refusals hold at each of two pickers", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			if !b.Profile.Config.ConcurrencyDetector {
				b.Config.Detector.QueueDepth = 2 // one place for the plug of each, by the readings that both have
			}
			b.Config.Pickers = 2
			b.Config.Bands = []sut.Band{{Priority: 100}, {Priority: 0, MaxRequests: 3}}
			b.Objective(scenario.Objective(100), 100)
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: []sut.Request{b.Req("plug1"), b.Req("plug2", at(1))}})
			var low, high, over []string
			for i := range 2 {
				p := string(rune('p' + i))
				low = append(low, b.Queue(run(b, p+"-low", 3, at(i))...)...)
				high = append(high, b.Queue(run(b, p+"-high", 2, at(i), scenario.At(100))...)...)
			}
			for i := range 2 {
				over = append(over, sendOver(b, b.Req(fmt.Sprintf("over%d", i+1), at(i)))...)
			}
			b.Complete()
			b.Steps(10)
			b.Drain()
			for i := range 2 {
				b.Order("FC-MULTI-05", high[2*i:2*i+2], low[3*i:3*i+3])
			}
			a := b.Profile.Refusals.Capacity
			b.Check("FC-MULTI-05", "refused", checks.Spec{IDs: over, Waiting: low, Count: 2, Status: a.Status, Reason: a.Reason, Max: atOnce + 2*b.Profile.Tolerances.Slack})
		},
	},
}

// sharing scenarios need pickers that tell each other what they have in flight; untilTold is longer than that takes.
var sharing = []sut.Feature{sut.Hold, sut.LoadSync}

const untilTold = 300 * time.Millisecond

// sharedPool is one place for each of two pickers that know of each other.
func sharedPool(b *scenario.Builder) {
	b.Cap(2, 1)
	b.Config.Pickers, b.Config.SyncLoad = 2, true
}

var sharedCount = scenario.Scenario{
	Name: "multi-shared-count", Title: "Where the pickers share their counts, two with a limit of two admit two", Needs: sharing,
	Write: func(b *scenario.Builder) {
		sharedPool(b)
		for i := range 2 {
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "filled", Requests: []sut.Request{b.Req(fmt.Sprintf("plug%d", i+1), at(i))}})
			b.Quiet("told", untilTold)
		}
		var w []string
		for i := range 4 {
			w = append(w, b.Send("above", b.Req(fmt.Sprintf("w%d", i+1), at(i%2)))...)
			b.Quiet("told", untilTold)
		}
		b.Quiet("full", time.Second)
		b.Check("FC-MULTI-03", "in-flight", checks.Spec{Mark: "full", Count: 2, Waiting: w})
		// The place is the first picker's own; the second must not take it as well.
		b.Step(sut.Step{Op: sut.OpRelease, Mark: "freed", IDs: []string{"plug1"}})
		b.Step(sut.Step{Op: sut.OpArrivals, Mark: "opened", IDs: w[:1]})
		b.Quiet("again", time.Second)
		b.Check("FC-MULTI-03", "in-flight", checks.Spec{Mark: "again", Count: 2, Waiting: w[1:]})
		b.Drain()
	},
}

var silentReplica = scenario.Scenario{
	Name: "multi-silent-replica", Title: "What a picker that has fallen silent had in flight is forgotten", Needs: sharing,
	Write: func(b *scenario.Builder) {
		sharedPool(b)
		plug := []sut.Request{b.Req("plug1", at(1)), b.Req("plug2", at(1))}
		b.Step(sut.Step{Op: sut.OpPlug, Mark: "filled", Requests: plug})
		b.Quiet("told", untilTold)
		w := b.Send("above", b.Req("w1"))
		b.Quiet("full", time.Second)
		b.Check("FC-MULTI-03", "in-flight", checks.Spec{Mark: "full", Count: 2, Waiting: w})
		b.Step(sut.Step{Op: sut.OpCutOff, Mark: "silent", Count: 1})
		b.Step(sut.Step{Op: sut.OpRelease, Mark: "freed", IDs: []string{"plug1", "plug2"}})
		b.Step(sut.Step{Op: sut.OpArrivals, Mark: "opened", IDs: w, Limit: silentLimit})
		b.Check("FC-MULTI-03", "arrives", checks.Spec{IDs: w, After: "freed", Within: silentLimit})
		b.Drain()
	},
}

// silentLimit is how long the load of a picker that has fallen silent may count at the others.
const silentLimit = 10 * time.Second

// replicas fills a pool by readings: the number of model servers decides what is admitted, that of pickers does not.
func replicas(name string, servers, pickers int) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: fmt.Sprintf("%d model servers behind %d pickers admit %d", servers, pickers, 3*servers), Needs: held,
		Write: func(b *scenario.Builder) {
			b.Util(3, 0.8, servers)
			b.Config.Hold, b.Config.HeldAsWaiting = true, true
			b.Config.Pickers = pickers
			n := 0
			next := func() sut.Request {
				n++
				return b.Req(fmt.Sprintf("r%d", n), at(n%pickers))
			}
			// Further apart than two readings, so that each picker knows of what the other has sent.
			const apart = 300 * time.Millisecond
			for range 3 * servers {
				b.Step(sut.Step{Op: sut.OpPlug, Mark: "filled", Requests: []sut.Request{next()}})
				b.Quiet("read", apart)
			}
			var w []string
			for range 2 * pickers {
				w = append(w, b.Send("above", next())...)
			}
			b.Quiet("full", time.Second)
			b.Check("FC-MULTI-04", "in-flight", checks.Spec{Mark: "full", Count: 3 * servers, Waiting: w})
			b.Drain()
		}}
}
