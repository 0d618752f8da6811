package catalog

import (
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
)

//go:embed cancels.yaml
var cancels []byte

// late withholds the last byte of the body.
func late(d time.Duration) scenario.Option { return func(r *sut.Request) { r.BodyDelay = d } }

var queueScenarios = []scenario.Scenario{
	{
		Name: "cls-agent-identity", Title: "Header, then agent identity, then the default flow", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.AgentIdentity = true
			b.Bands("round-robin", "fcfs", 0)
			session := scenario.Header("session-id", "s")
			b.Plug()
			b.Queue(b.Req("s1", scenario.Anonymous(), session), b.Req("s2", scenario.Anonymous(), session), b.Req("n1", scenario.Anonymous()),
				b.Req("e1", scenario.Tenant("e"), session))
			b.Complete()
			b.Steps(4)
			b.Order("FC-CLS-14", []string{"s1", "n1", "e1"}, []string{"s2"})
			b.FullCapacity()
		},
	},
	{
		Name: "fair-comeback", Title: "A flow that comes back gets one turn per round, no credit and no penalty", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 0)
			b.Plug()
			b.Queue(run(b, "a", 10)...)
			b.Queue(b.Req("b1"))
			b.Complete()
			b.Steps(4)
			b.Queue(b.Req("b2"), b.Req("b3"), b.Req("b4"))
			b.Quiet("back", 300*time.Millisecond)
			b.Step(sut.Step{Op: sut.OpStep, Mark: "rest", Count: 10})
			b.Check("FC-FAIR-04", "order", checks.Spec{Mark: scenario.Queued, Waiting: append(ids(run(b, "a", 10)), "b1"),
				Groups: [][]string{{"a1", "b1"}, {"a2"}, {"a3"}, {"a4", "b2"}, {"a5", "b3"}, {"a6", "b4"}, {"a7"}, {"a8"}, {"a9"}, {"a10"}}})
			b.FullCapacity()
		},
	},
	{
		Name: "ord-body-decides", Title: "Arrival is the end of the body, not its beginning", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "fcfs", 0)
			b.Plug()
			b.Step(sut.Step{Op: sut.OpSend, Mark: "slow", Requests: []sut.Request{b.Req("x", scenario.Tenant("a"), late(400*time.Millisecond))}})
			b.Queue(b.Req("y", scenario.Tenant("a")))
			b.Quiet(scenario.Queued, 800*time.Millisecond)
			b.Steps(2)
			b.Order("FC-ORD-03", scenario.One("y", "x")...)
			b.FullCapacity()
		},
	},
	{
		Name: "can-half-body", Title: "A request abandoned inside its body leaves no trace", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(2, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 2}}
			b.Plug()
			half := b.Send("halves", run(b, "h", 20, late(time.Minute))...)
			b.Quiet(scenario.Queued, 200*time.Millisecond)
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: half})
			b.Endings("gone", half...)
			// The queue of two must be free for two.
			w := b.Queue(b.Req("w1"), b.Req("w2"))
			b.Quiet("still-free", 300*time.Millisecond)
			b.Check("FC-CAN-08", "unseen", checks.Spec{IDs: half})
			b.Check("FC-CAN-08", "waiting", checks.Spec{IDs: w, Mark: "still-free", Count: 2})
			b.FullCapacity()
		},
	},
	{
		Name: "can-storm", Title: "Cancellations at any instant leave no residue", Needs: []sut.Feature{sut.Hold, sut.Metrics}, Alone: true,
		Write: func(b *scenario.Builder) {
			b.Cap(4, 1)
			b.Config.Hold = false
			b.Config.Preset = "h100-llama3.1-8b"
			p := loadPlan(b, "cancels.yaml", cancels)
			b.Step(sut.Step{Op: sut.OpLoad, Mark: "load", Plan: &p})
			b.Step(sut.Step{Op: sut.OpHold, Mark: "holding", Count: 1})
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "filled", Requests: run(b, "fresh", 4)})
			w := b.Queue(b.Req("over1"))
			b.Quiet("full", 300*time.Millisecond)
			b.Check("FC-CAN-10", "in-flight", checks.Spec{Mark: "full", Count: 4, Waiting: w, Engaged: []string{"load"}})
			b.Do(sut.OpSample, "one-waits")
			b.Drain()
			b.Quiet("settled", 250*time.Millisecond)
			b.Do(sut.OpSample, "zero")
			b.Check("FC-CAN-10", "series", checks.Spec{Mark: "one-waits", Zero: "zero", Waiting: w, Names: b.Profile.Metrics.QueueSize,
				Series: []checks.Series{{Labels: map[string]string{"fairness_id": "over"}, Value: 1}}})
		},
	},
	capacityIsNotGPU(1), capacityIsNotGPU(10), capacityIsNotGPU(100),
	{
		Name: "cap-zero-is-default", Title: "A band limit of 0 means the default, not zero", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, ZeroRequests: true}}
			b.Plug()
			w := b.Queue(run(b, "a", 3)...)
			b.Complete()
			b.Check("FC-CAP-14", "waiting", checks.Spec{IDs: w, Mark: scenario.Queued, Count: 1})
			b.FullCapacity()
		},
	},
	{
		Name: "cap-default-requests", Title: "The default request limit of a band", Needs: held, Alone: true, Slow: true,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			w := ids(run(b, "a", 5000))
			b.Step(sut.Step{Op: sut.OpSend, Mark: "flood", Requests: run(b, "a", 5000), Spacing: time.Millisecond})
			b.Quiet(scenario.Queued, time.Second)
			b.Step(sut.Step{Op: sut.OpSend, Mark: "over", Requests: []sut.Request{b.Req("over1")}})
			b.Quiet("after", time.Second)
			if b.Profile.Name == "llm-d-router-0.9" {
				b.Check("FC-CAP-08", "waiting", checks.Spec{IDs: append(w, "over1"), Mark: "after", Count: 1})
			} else {
				a := b.Profile.Refusals.Capacity
				b.Check("FC-CAP-08", "waiting", checks.Spec{IDs: w, Mark: "after", Count: 1})
				b.Check("FC-CAP-08", "refused", checks.Spec{IDs: []string{"over1"}, Count: 1, Status: a.Status, Reason: a.Reason})
			}
			b.Step(sut.Step{Op: sut.OpDrain, Mark: "drained", Limit: 2 * time.Minute})
		},
	},
	{
		Name: "ttl-default", Title: "The default wait limit", Needs: held, Slow: true,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.TTL = 0
			b.Plug()
			w := b.Queue(b.Req("a1"))
			b.Quiet("seventy", 70*time.Second)
			if b.Profile.Name == "llm-d-router-0.9" {
				b.Check("FC-TTL-02", "waiting", checks.Spec{IDs: w, Mark: "seventy", Count: 1})
			} else {
				b.Check("FC-TTL-02", "refused", checks.Spec{IDs: w, Mode: "any", Count: 1, Min: time.Minute - clockGrain,
					Max: time.Minute + b.Profile.Tolerances.TTLLate + b.Profile.Tolerances.Slack})
			}
			b.FullCapacity()
		},
	},
	{
		Name: "ttl-frees-queue", Title: "Expired requests leave the queue", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 3}}
			b.Config.TTL = waitLimit(b)
			b.Plug()
			w := b.Send("waiters", run(b, "a", 3)...)
			b.Endings("expired", w...)
			b.Quiet("cleanup", 1500*time.Millisecond)
			again := b.Send("again", run(b, "b", 3)...)
			b.Quiet("held-again", 100*time.Millisecond)
			b.Check("FC-TTL-06", "refused", checks.Spec{IDs: w, Mode: "any", Count: 1, Min: b.Config.TTL - clockGrain})
			b.Check("FC-TTL-06", "waiting", checks.Spec{IDs: again, Mark: "held-again", Count: 1})
			b.FullCapacity()
		},
	},
	{
		Name: "ttl-two-budgets", Title: "An empty pool has a wait limit of its own", Needs: []sut.Feature{sut.Hold, sut.ScaleToZero},
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.TTL, b.Config.NoEndpointTTL = time.Second, 6*time.Second
			b.Plug()
			full := b.Send("contended", b.Req("full1"))
			b.Endings("expired", full...)
			b.Drain()
			b.Step(sut.Step{Op: sut.OpRemove, Mark: "emptied", Endpoint: "a"})
			b.Quiet("emptied-known", 500*time.Millisecond)
			none := b.Send("empty", b.Req("none1"))
			b.Endings("expired", none...)
			late := b.Profile.Tolerances.TTLLate + b.Profile.Tolerances.Slack
			t, e := b.Profile.Refusals.TTL, b.Profile.Refusals.TTLEmptyPool
			b.Check("FC-TTL-07", "refused", checks.Spec{IDs: full, Count: 1, Status: t.Status, Reason: t.Reason, Min: time.Second - clockGrain, Max: time.Second + late})
			b.Check("FC-TTL-07", "refused", checks.Spec{IDs: none, Status: e.Status, Reason: e.Reason, Min: 6*time.Second - clockGrain, Max: 6*time.Second + late})
		},
	},
	{
		Name: "ttl-restarts", Title: "A change between empty and contended pool restarts the budget", Needs: []sut.Feature{sut.ScaleToZero},
		Write: func(b *scenario.Builder) {
			b.Util(5, 0.8, 1)
			b.Config.Endpoints[0].Out = true
			b.Config.TTL, b.Config.NoEndpointTTL = time.Second, 10*time.Second
			b.Step(sut.Step{Op: sut.OpScript, Mark: "saturated", Endpoint: "a", Count: -1, Values: &sut.LoadValues{Waiting: 50}})
			w := b.Send("sent", b.Req("a1"))
			b.Quiet("empty", 3*time.Second)
			b.Step(sut.Step{Op: sut.OpAdd, Mark: "joined", Endpoint: "a"})
			b.Endings("expired", w...)
			t := b.Profile.Refusals.TTL
			b.Check("FC-TTL-08", "refused", checks.Spec{IDs: w, After: "joined", Status: t.Status, Reason: t.Reason, Min: time.Second - clockGrain - 50*time.Millisecond,
				Max: time.Second + b.Profile.Tolerances.TTLLate + b.Profile.Tolerances.Slack})
		},
	},
	{
		Name: "ref-cancel-counted", Title: "A client that left the queue is counted as that", Needs: []sut.Feature{sut.Hold, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			w := b.Queue(b.Req("x", scenario.Tenant("a")), b.Req("y", scenario.Tenant("a")))
			b.Complete()
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: w[:1]})
			b.Endings("gone", w[:1]...)
			b.Quiet("cleanup", 1500*time.Millisecond)
			b.Do(sut.OpSample, "counted")
			b.Steps(1)
			b.Drain()
			names := []string{}
			for _, n := range b.Profile.Metrics.QueueDuration {
				names = append(names, n+"_count")
			}
			b.Check("FC-REF-06", "series", checks.Spec{Mark: "counted", Mode: "each", Names: names, Waiting: w[1:],
				Series: []checks.Series{{Labels: map[string]string{"outcome": "EvictedContextCancelled", "fairness_id": "a"}, Value: 1}}})
			b.Check("FC-REF-06", "never-served", checks.Spec{IDs: w[:1], Then: w[1:], Mark: scenario.Queued})
			b.FullCapacity()
		},
	},
	{
		Name: "ref-no-candidate", Title: "A subset that matches nothing is refused 503", Needs: []sut.Feature{sut.Subset},
		Write: func(b *scenario.Builder) {
			b.Cap(2, 1)
			b.Config.Hold = false
			r := b.Send("aimed", b.Req("nowhere", scenario.Header(wire.HeaderSubset, "192.0.2.1:1")), b.Req("anywhere"))
			b.Endings("ended", r...)
			reason := ""
			if slices.Contains(b.Profile.Reasons, wire.ReasonNoEndpoints) {
				reason = wire.ReasonNoEndpoints
			}
			b.Check("FC-REF-12", "refused", checks.Spec{IDs: r[:1], Status: 503, Reason: reason})
			b.Completed("FC-REF-12", r[1:]...)
		},
	},
	{
		Name: "shut-drain-window", Title: "In the drain window new requests are refused, not hung", Needs: restartable,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			b.Do(sut.OpShutdown, "shutdown")
			b.Quiet("one-second", time.Second)
			late := b.Send("late", b.Req("late1"))
			b.Endings("answered", late...)
			b.Drain()
			a := b.Profile.Refusals.Shutdown
			b.Check("FC-SHUT-04", "refused", checks.Spec{IDs: late, Count: 1, Status: a.Status, Reason: a.Reason, Max: time.Second + b.Profile.Tolerances.Slack})
		},
	},
	{
		Name: "gc-lease", Title: "A waiting request keeps its flow alive over two collection periods", Needs: held, Slow: true,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.TTL, b.Config.NoTTL = 0, true
			b.Plug()
			w := b.Queue(b.Req("g1"))
			b.Quiet("eleven-minutes", 11*time.Minute)
			b.Steps(1)
			b.Drain()
			b.Check("FC-GC-02", "waiting", checks.Spec{IDs: w, Mark: "eleven-minutes", Count: 1})
			b.Completed("FC-GC-02", w...)
			b.FullCapacity()
		},
	},
	{
		Name: "gc-idle-flow", Title: "The series of an idle flow go, and come back with it", Needs: []sut.Feature{sut.Hold, sut.Metrics}, Slow: true,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			w := b.Queue(b.Req("g1"))
			b.Do(sut.OpSample, "before")
			b.Drain()
			b.Quiet("idle", 630*time.Second)
			b.Do(sut.OpSample, "gone")
			b.PlugN(1)
			again := b.Queue(b.Req("g2"))
			b.Complete()
			b.Do(sut.OpSample, "after")
			b.Steps(1)
			b.Drain()
			one := []checks.Series{{Labels: map[string]string{"fairness_id": "g", "priority": "0"}, Value: 1}}
			b.Check("FC-GC-03", "series", checks.Spec{Mark: "before", Waiting: w, Names: b.Profile.Metrics.QueueSize, Series: one})
			b.Check("FC-GC-03", "gone", checks.Spec{Mark: "gone", Before: "before", Names: b.Profile.Metrics.QueueSize, Series: one})
			b.Check("FC-GC-05", "gone", checks.Spec{Mark: "gone", Before: "before", Names: b.Profile.Metrics.QueueSize, Series: one})
			b.Check("FC-GC-05", "series", checks.Spec{Mark: "after", Waiting: again, Names: b.Profile.Metrics.QueueSize, Series: one})
			b.Completed("FC-GC-05", again...)
		},
	},
	{
		Name: "gc-many-tenants", Title: "Label values from request content are bounded", Needs: []sut.Feature{sut.Metrics}, Alone: true,
		Write: func(b *scenario.Builder) {
			if b.Profile.Name != "llm-d-router-2026-09" {
				return // the older contracts have no cap
			}
			b.Cap(50, 1)
			b.Config.Hold = false
			var reqs []sut.Request
			for i := range 3000 {
				reqs = append(reqs, b.Req(fmt.Sprintf("r%d", i+1), scenario.Tenant(fmt.Sprintf("tenant-%04d", i+1)),
					scenario.Body(fmt.Sprintf(`{"model":"model-%04d","prompt":"x","max_tokens":1}`, i+1))))
			}
			b.Step(sut.Step{Op: sut.OpSend, Mark: "sent", Requests: reqs, Spacing: 2 * time.Millisecond})
			b.Step(sut.Step{Op: sut.OpEndings, Mark: "served", IDs: ids(reqs), Limit: time.Minute})
			b.Do(sut.OpSample, "sampled")
			spec := checks.Spec{Mark: "sampled", Mode: "fairness_id", Count: 1001, Needed: 3000, Names: b.Profile.Metrics.QueueSize, Engaged: []string{"served"}}
			b.Check("FC-GC-07", "label-values", spec)
			b.Check("FC-MET-13", "label-values", spec)
			spec.Mode = "model_name"
			b.Check("FC-MET-13", "label-values", spec)
		},
	},
}

// capacityIsNotGPU fills the queue limit and shows that it does not change what runs.
func capacityIsNotGPU(limit int64) scenario.Scenario {
	return scenario.Scenario{Name: fmt.Sprintf("cap-not-gpu-%d", limit), Title: "A queue limit does not change what runs", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(3, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: limit}}
			b.Plug()
			reqs := run(b, "a", int(limit))
			b.Step(sut.Step{Op: sut.OpSend, Mark: "filled", Requests: reqs, Spacing: 5 * time.Millisecond})
			b.Quiet("settled", 300*time.Millisecond)
			over := sendOver(b, b.Req("over1"))
			b.Quiet("full", 100*time.Millisecond)
			a := b.Profile.Refusals.Capacity
			b.Check("FC-CAP-13", "refused", checks.Spec{IDs: over, Waiting: ids(reqs), Count: 3, Status: a.Status, Reason: a.Reason})
			b.Check("FC-CAP-13", "in-flight", checks.Spec{Mark: "full", Count: 3, Waiting: ids(reqs)})
			b.FullCapacity()
		}}
}
