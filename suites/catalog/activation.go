package catalog

import (
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// Activation writes the activation probe (INV-01) for the configuration of another scenario, for a router that has no other. It wants a
// scenario that ends with the full-capacity probe: only there the number of requests that may run at once is known; false otherwise.
func Activation(like scenario.Compiled, p profile.Profile) (scenario.Compiled, bool) {
	i := slices.IndexFunc(like.Checks, func(c checks.Spec) bool { return c.Requirement == "INV-04" && c.Check == "in-flight" && c.Count > 0 })
	if i < 0 || !like.Config.Hold {
		return scenario.Compiled{}, false
	}
	probe := scenario.Scenario{Name: "activation", Title: "The gate closes at the configured limit, and opens again", Needs: like.Needs,
		Write: func(b *scenario.Builder) {
			b.Config = like.Config
			b.SetCapacity(like.Checks[i].Count)
			plug := b.Plug()
			over := b.Queue(b.Req("w1"))
			b.Quiet("gate", 300*time.Millisecond)
			b.Check("INV-01", "in-flight", checks.Spec{Mark: "gate", Count: b.Capacity(), Waiting: over})
			b.Step(sut.Step{Op: sut.OpRelease, Mark: "freed", IDs: plug[:1]})
			b.Step(sut.Step{Op: sut.OpArrivals, Mark: "opened", IDs: over})
			b.Check("INV-02", "arrives", checks.Spec{IDs: over, After: "freed", Within: time.Second})
			b.FullCapacity()
		}}
	c := scenario.Compile(probe, p, 1)
	c.Level = scenario.Core
	return c, true
}
