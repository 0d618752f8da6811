package catalog

import (
	"fmt"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// heldback are the needs of the scenarios that place load endpoint by endpoint under priority holdback.
var heldback = []sut.Feature{sut.Hold, sut.Objectives, sut.Holdback, sut.Subset}

var ceilingScenarios = []scenario.Scenario{
	{
		Name: "ceil-static", Title: "A static threshold of one half stops dispatch at half of capacity", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(10, 1)
			b.Ceiling(0.5)
			plug := b.Plug()
			w := b.Queue(b.Req("w1"), b.Req("w2"))
			b.Quiet("plateau", 300*time.Millisecond)
			b.Check("FC-CEIL-01", "in-flight", checks.Spec{Mark: "plateau", Count: 5, Waiting: w})
			b.Step(sut.Step{Op: sut.OpRelease, Mark: "freed", IDs: plug[:1]})
			b.Step(sut.Step{Op: sut.OpArrivals, Mark: "opened", IDs: w[:1]})
			b.Quiet("again", 300*time.Millisecond)
			b.Check("FC-CEIL-01", "arrives", checks.Spec{IDs: w[:1], After: "freed", Within: time.Second, Waiting: w[1:]})
			b.Check("FC-CEIL-01", "in-flight", checks.Spec{Mark: "again", Count: 5, Waiting: w[1:]})
			b.FullCapacity()
		},
	},
	{
		Name: "ceil-default", Title: "Without a policy full nominal capacity is used", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(10, 1)
			b.Plug()
			w := b.Queue(b.Req("w1"))
			b.Quiet("full", 300*time.Millisecond)
			b.Check("FC-CEIL-02", "in-flight", checks.Spec{Mark: "full", Count: 10, Waiting: w})
			b.FullCapacity()
		},
	},
	staticForAll("ceil-static-low", 0, 100),
	staticForAll("ceil-static-high", 100, 0),
	headroomCase("head-below", 10, 7, func(b *scenario.Builder) {
		low := b.Queue(b.Req("low1"))
		b.Quiet("low-waits", 500*time.Millisecond)
		at := map[string]int{"a": 10, "b": 7}
		b.Check("FC-HEAD-01", "waiting", checks.Spec{IDs: low, Mark: "low-waits", Count: 17, Counts: at})
		// Below its threshold a still takes what no hint sends elsewhere; b is reached by hint.
		aimless(b, "FC-HEAD-01", "a", "low-waits", 17, at)
		b.PlugN(1, scenario.At(100), scenario.To("b"))
		b.Check("FC-HEAD-01", "served-by", checks.Spec{Endpoint: map[string]string{"plug18": "b"}, Mark: "low-waits", Count: 17, Counts: at})
	}),
	headroomCase("head-at", 11, 6, func(b *scenario.Builder) {
		low := b.Queue(b.Req("low1"))
		b.Quiet("low-waits", 500*time.Millisecond)
		at := map[string]int{"a": 11, "b": 6}
		b.Check("FC-HEAD-02", "waiting", checks.Spec{IDs: low, Mark: "low-waits", Count: 17, Counts: at})
		aimless(b, "FC-HEAD-02", "b", "low-waits", 17, at)
	}),
	headroomCase("head-low-ceiling", 8, 8, func(b *scenario.Builder) {
		low := b.Queue(b.Req("low1"))
		b.Quiet("low-waits", 500*time.Millisecond)
		b.Check("FC-HEAD-03", "waiting", checks.Spec{IDs: low, Mark: "low-waits", Count: 16, Counts: map[string]int{"a": 8, "b": 8}})
		b.Step(sut.Step{Op: sut.OpRelease, Mark: "freed", Endpoint: "a"})
		b.Step(sut.Step{Op: sut.OpArrivals, Mark: "opened", IDs: low})
		b.Check("FC-HEAD-03", "arrives", checks.Spec{IDs: low, After: "freed", Within: time.Second})
	}),
	headroomCapacity("head-capacity-one", 4, 1),
	headroomCapacity("head-capacity-two", 4, 2),
	{
		Name: "head-default", Title: "An endpoint at its limit receives nothing while another qualifies, whatever the scorer says",
		Needs: []sut.Feature{sut.Hold, sut.Subset},
		Write: func(b *scenario.Builder) {
			if !b.Profile.Config.ConcurrencyDetector {
				return // neither row applies; without a check the scenario is not played
			}
			b.Cap(3, 2)
			b.Config.Scorer = "queue-scorer"
			setLoad(b, 1, load{waiting: 50})
			setLoad(b, 0, load{})
			b.PlugN(3, scenario.To("a"))
			b.Quiet("a-full", 100*time.Millisecond)
			for _, id := range []string{"FC-HEAD-04", "FC-HEAD-09"} {
				aimless(b, id, "b", "a-full", 3, map[string]int{"a": 3, "b": 0})
			}
			b.FullCapacity()
		},
	},
}

// aimless sends 20 high requests one at a time, each released before the next, and expects all of them at one endpoint while the loads
// at step mark stand.
func aimless(b *scenario.Builder, requirement, endpoint, mark string, inFlight int, loads map[string]int) {
	want := map[string]string{}
	priority := 0
	if _, banded := b.Config.Objectives[scenario.Objective(100)]; banded {
		priority = 100
	}
	for i := range 20 {
		r := b.Req(fmt.Sprintf("%s-%d", strings.ToLower(requirement), i+1), scenario.Tenant("aimless"))
		if priority != 0 {
			r = b.Req(r.ID, scenario.Tenant("aimless"), scenario.At(priority))
		}
		want[r.ID] = endpoint
		b.Step(sut.Step{Op: sut.OpPlug, Mark: "aimless", Requests: []sut.Request{r}})
		b.Step(sut.Step{Op: sut.OpRelease, Mark: "released", IDs: []string{r.ID}})
		b.Endings("ended", r.ID)
	}
	b.Check(requirement, "served-by", checks.Spec{Endpoint: want, Mark: mark, Count: inFlight, Counts: loads})
}

// staticForAll fills half of capacity at one priority and lets another wait at the same ceiling.
func staticForAll(name string, fill, wait int) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: "The static ceiling is the same for every priority", Needs: banded, Write: func(b *scenario.Builder) {
		b.Cap(10, 1)
		b.Bands("", "", 100, 0)
		b.Ceiling(0.5)
		b.Plug(scenario.At(fill))
		w := b.Queue(b.Req("w1", scenario.At(wait)))
		b.Quiet("plateau", 300*time.Millisecond)
		b.Check("FC-CEIL-03", "in-flight", checks.Spec{Mark: "plateau", Count: 5, Waiting: w})
		b.FullCapacity()
	}}
}

// headroomCase is the guide's example on a scale of 1:10: two endpoints with limit 10, headroom 0.1, ceilings 1.0 and 0.8.
func headroomCase(name string, onA, onB int, then func(*scenario.Builder)) scenario.Scenario {
	return scenario.Scenario{Name: name, Needs: heldback,
		Title: fmt.Sprintf("The guide's two endpoints at %d and %d of 10, headroom 0.1, ceilings 1.0 and 0.8", onA, onB),
		Write: func(b *scenario.Builder) {
			b.Cap(10, 2)
			b.Config.Detector.Headroom = 0.1
			b.Bands("", "", 100, 0)
			b.Holdback(0.8, 1.0)
			// The scorer prefers a throughout: only the filter can send a request to b.
			b.Config.Scorer = "queue-scorer"
			setLoad(b, 1, load{waiting: 50})
			setLoad(b, 0, load{})
			b.PlugN(onA, scenario.At(100), scenario.To("a"))
			b.PlugN(onB, scenario.At(100), scenario.To("b"))
			then(b)
			b.SetCapacity(16)
			b.FullCapacity()
		}}
}

func headroomCapacity(name string, k, n int) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: fmt.Sprintf("Headroom adds no capacity: %d×%d requests run, one more waits", k, n), Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(k, n)
			b.Config.Detector.Headroom = 0.25
			b.Plug()
			w := b.Queue(b.Req("w1"))
			b.Quiet("full", 300*time.Millisecond)
			b.Check("FC-HEAD-05", "in-flight", checks.Spec{Mark: "full", Count: k * n, Waiting: w})
			b.FullCapacity()
		}}
}
