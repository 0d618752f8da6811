package catalog

import (
	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

var kubeNeeds = []sut.Feature{sut.Hold, sut.Objectives, sut.KubeAPI}

func priority(n int) *int { return &n }

// kubeScenarios are about InferenceObjectives as objects of a Kubernetes API.
var kubeScenarios = []scenario.Scenario{
	{
		Name: "kube-no-priority", Title: "An objective without a priority counts as 0", Needs: kubeNeeds,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, -10)
			b.Config.Objects = []sut.Objective{{Name: "unset"}}
			b.Plug()
			b.Queue(b.Req("m1", scenario.At(-10)), b.Req("u1", scenario.Named("unset")), b.Req("z1"), b.Req("h1", scenario.At(100)))
			b.Complete()
			b.Steps(4)
			b.Order("FC-CLS-09", []string{"h1"}, []string{"u1", "z1"}, []string{"m1"})
			b.FullCapacity()
		},
	},
	{
		Name: "kube-foreign", Title: "Objectives of another pool or namespace are as if unknown", Needs: kubeNeeds,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 50)
			b.Config.Objects = []sut.Objective{{Name: "other-pool", Priority: priority(100), Pool: "another"},
				{Name: "other-namespace", Priority: priority(100), Namespace: "elsewhere"}, {Name: "right", Priority: priority(100)}}
			b.Plug()
			b.Queue(b.Req("a1", scenario.Named("other-pool")), b.Req("b1", scenario.Named("other-namespace")), b.Req("mid1", scenario.At(50)), b.Req("c1", scenario.Named("right")))
			b.Complete()
			b.Steps(4)
			b.Order("FC-CLS-10", []string{"c1"}, []string{"mid1"}, []string{"a1", "b1"})
			b.FullCapacity()
		},
	},
	{
		Name: "kube-one-name", Title: "An objective that moves to another pool is gone from this one", Needs: kubeNeeds,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 50)
			b.Config.Objects = []sut.Objective{{Name: "high", Priority: priority(100)}}
			b.Plug()
			b.Queue(b.Req("mid1", scenario.At(50)), b.Req("before1", scenario.Named("high")))
			b.Step(sut.Step{Op: sut.OpObjective, Mark: "moved", Objectives: b.Config.Objectives, Objects: []sut.Objective{{Name: "high", Priority: priority(100), Pool: "another"}}})
			b.Queue(b.Req("after1", scenario.Named("high")))
			b.Complete()
			b.Steps(3)
			b.Order("FC-CLS-12", scenario.One("before1", "mid1", "after1")...)
			b.FullCapacity()
		},
	},
	{
		Name: "kube-objective", Title: "An objective is declared by name, namespace, priority and pool reference", Needs: kubeNeeds,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.Kube = true
			b.Plug()
			b.Queue(b.Req("z1"))
			b.Step(sut.Step{Op: sut.OpObjective, Mark: "declared", Objects: []sut.Objective{{Name: "high-priority", Priority: priority(100)}}})
			w := b.Queue(b.Req("h1", scenario.Named("high-priority")))
			b.Complete()
			b.Steps(2)
			b.Order("FC-CFG-18", scenario.One("h1", "z1")...)
			b.Check("FC-CFG-18", "waiting", checks.Spec{IDs: append(w, "z1"), Mark: scenario.Queued, Count: 1})
			b.FullCapacity()
		},
	},
}
