package catalog

import (
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// held are the needs of every scenario that counts requests at the model servers.
var held = []sut.Feature{sut.Hold}

// banded are the needs of scenarios that use objectives as well.
var banded = []sut.Feature{sut.Hold, sut.Objectives}

var activationScenarios = []scenario.Scenario{
	{
		Name: "activation", Title: "The gate closes at the configured limit, and opens again", Needs: held,
		Write: func(b *scenario.Builder) {
			// Three is unlike any default, so that a limit that was not applied is seen.
			b.Cap(3, 1)
			plug := b.Plug()
			over := b.Queue(b.Req("w1"))
			b.Quiet("gate", 300*time.Millisecond)
			b.Check("INV-01", "in-flight", checks.Spec{Mark: "gate", Count: 3, Waiting: over})
			b.Step(sut.Step{Op: sut.OpRelease, Mark: "freed", IDs: plug[:1]})
			b.Step(sut.Step{Op: sut.OpArrivals, Mark: "opened", IDs: over})
			b.Check("INV-02", "arrives", checks.Spec{IDs: over, After: "freed", Within: time.Second})
			b.FullCapacity()
		},
	},
}
