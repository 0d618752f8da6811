package catalog

import (
	"fmt"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
)

// chained are the features of scenarios with an Async Processor in front of the router.
var chained = []sut.Feature{sut.Hold, sut.Objectives, sut.BatchProcessor}

// retryLimit is how long the processor's first retry may take: four seconds of backoff, a whole second of its scores, and the way there.
const retryLimit = 8 * time.Second

// batchOf configures a processor with one queue whose requests have the objective of a priority.
func batchOf(b *scenario.Builder, priority int) {
	b.Config.Batch = &sut.Batch{Queues: []sut.BatchQueue{{Name: "batch", Objective: scenario.Objective(priority)}}, Workers: 32, Size: 32}
}

func messages(prefix string, n int, opts ...scenario.MessageOption) []sut.AsyncMessage {
	return scenario.Messages(prefix, n, opts...)
}

func enqueue(b *scenario.Builder, mark, queue string, ms ...sut.AsyncMessage) {
	b.Step(sut.Step{Op: sut.OpEnqueue, Mark: mark, Mode: queue, Messages: ms})
}

func waiting(b *scenario.Builder, mark string, n int) {
	b.Step(sut.Step{Op: sut.OpWaiting, Mark: mark, Count: n})
}

func tried(b *scenario.Builder, mark string, n, status int, limit time.Duration, ids ...string) {
	b.Step(sut.Step{Op: sut.OpTried, Mark: mark, Count: n, Mode: fmt.Sprint(status), Limit: limit, IDs: ids})
}

// finish lets everything go until n results are there.
func finish(b *scenario.Builder, n int, limit time.Duration) {
	b.Step(sut.Step{Op: sut.OpHold, Count: 0})
	b.Drain()
	b.Step(sut.Step{Op: sut.OpBatch, Mark: "results", Count: n, Mode: "release", Limit: limit})
}

func await(b *scenario.Builder, mark string, n int, limit time.Duration, ids ...string) {
	b.Step(sut.Step{Op: sut.OpBatch, Mark: mark, Count: n, Limit: limit, IDs: ids})
}

func arrivals(b *scenario.Builder, mark string, ids ...string) {
	b.Step(sut.Step{Op: sut.OpArrivals, Mark: mark, IDs: ids, Limit: retryLimit})
}

// judge adds a check about the processor's side.
func judge(b *scenario.Builder, requirement, check string, a checks.Async, engaged ...string) {
	b.Check(requirement, check, checks.Spec{Async: &a, Engaged: engaged})
}

// ok wants one result with status 200 for each of some ids.
func ok(b *scenario.Builder, requirement string, ids []string, engaged ...string) {
	judge(b, requirement, "async-results", checks.Async{IDs: ids, Status: 200}, engaged...)
}

var chainScenarios = []scenario.Scenario{
	{
		Name: "e2e-eviction", Title: "A batch request is evicted for realtime demand, tried again, and ends in one result", Needs: append(chained, sut.Eviction),
		Write: func(b *scenario.Builder) {
			evictionPool(b, 2, true)
			batchOf(b, -10)
			enqueue(b, "batch", "batch", messages("batch", 2)...)
			arrivals(b, "running", "batch0", "batch1")
			demand := displace(b, "hi", 100)
			tried(b, "evicted", 1, 429, retryLimit)
			finish(b, 2, 2*retryLimit)
			judge(b, "E2E-01", "async-answers", checks.Async{Status: 429, Codes: []string{wire.ReasonEvicted}, Min: 1, Max: 1}, "running")
			ok(b, "E2E-01", []string{"batch*"}, "running", "evicted")
			judge(b, "E2E-01", "async-arrivals", checks.Async{Min: 3, Max: 3}, "running", "evicted")
			b.Check("E2E-01", "completed", checks.Spec{IDs: demand, Engaged: []string{"running"}})
		},
	},
	{
		Name: "e2e-evicted-again", Title: "A request that is evicted three times ends in one result", Needs: append(chained, sut.Eviction), Slow: true,
		Write: func(b *scenario.Builder) {
			evictionPool(b, 1, true)
			batchOf(b, -10)
			enqueue(b, "batch", "batch", scenario.Message("batch", scenario.Due(5*time.Minute)))
			arrivals(b, "running", "batch")
			for i := range 3 {
				hi := fmt.Sprintf("hi%d", i+1)
				displace(b, hi, 100)
				tried(b, fmt.Sprintf("evicted%d", i+1), i+1, 429, 10*time.Second, "batch")
				b.Step(sut.Step{Op: sut.OpRelease, IDs: []string{hi}})
				b.Step(sut.Step{Op: sut.OpHeldThere, Mark: fmt.Sprintf("running%d", i+1), IDs: []string{"batch"}, Limit: 40 * time.Second})
			}
			finish(b, 1, 20*time.Second)
			judge(b, "E2E-02", "async-answers", checks.Async{Status: 429, Codes: []string{wire.ReasonEvicted}, Min: 3, Max: 3}, "running")
			ok(b, "E2E-02", []string{"batch"}, "running", "evicted3")
		},
	},
	{
		Name: "e2e-evicted-late", Title: "A request that is evicted and finds no place before its deadline ends in one deadline error", Needs: append(chained, sut.Eviction),
		Write: func(b *scenario.Builder) {
			evictionPool(b, 1, true)
			batchOf(b, -10)
			enqueue(b, "batch", "batch", scenario.Message("batch", scenario.Due(9*time.Second)))
			arrivals(b, "running", "batch")
			displace(b, "hi", 100)
			tried(b, "evicted", 1, 429, retryLimit, "batch")
			await(b, "given-up", 1, 15*time.Second, "batch")
			b.Quiet("watched", time.Second)
			b.Drain()
			judge(b, "E2E-02", "async-results", checks.Async{IDs: []string{"batch"}, Codes: []string{"DEADLINE_EXCEEDED", ""}}, "running", "evicted", "watched")
			judge(b, "E2E-02", "async-answers", checks.Async{Status: 200}, "running", "evicted")
		},
	},
	{
		Name: "e2e-evicted-midway", Title: "A victim whose answer had begun gives no half result", Needs: append(chained, sut.Eviction),
		Write: func(b *scenario.Builder) {
			evictionPool(b, 1, true)
			batchOf(b, -10)
			enqueue(b, "batch", "batch", scenario.Message("batch", scenario.Head(wire.HeaderHoldAfter, "3"),
				scenario.Payload(`{"model":"m","prompt":"p","max_tokens":8,"stream":true}`)))
			arrivals(b, "running", "batch")
			b.Quiet("begun", 500*time.Millisecond)
			displace(b, "hi", 100)
			b.Step(sut.Step{Op: sut.OpTried, Mark: "cut", Count: 1, Limit: retryLimit, IDs: []string{"batch"}})
			finish(b, 1, 2*retryLimit)
			judge(b, "E2E-03", "async-results", checks.Async{IDs: []string{"batch"}, Status: 200, Contains: []string{"[DONE]"}}, "running", "cut")
			judge(b, "E2E-03", "async-arrivals", checks.Async{Min: 2, Max: 2}, "running", "cut")
			judge(b, "E2E-03", "async-answers", checks.Async{IDs: []string{"batch"}, Status: 200, Shape: "cut", Min: 1, Max: 1}, "running", "cut")
		},
	},
	{
		Name: "e2e-objective", Title: "The objective of a queue is its priority in the router", Needs: chained,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, 0, -10)
			batchOf(b, -10)
			b.Plug(scenario.At(100))
			enqueue(b, "batch", "batch", scenario.Message("batch"))
			waiting(b, "batch-waits", 1)
			// A queue whose objective is lost has priority 0, and came before the one that has it.
			b.Queue(b.Req("hi", scenario.At(100)), b.Req("zero", scenario.At(0)))
			b.Step(sut.Step{Op: sut.OpStep, Mark: "step", Count: 3})
			finish(b, 1, retryLimit)
			judge(b, "E2E-04", "async-served", checks.Async{Shape: "order", Order: []string{"hi", "zero", "batch"}}, "plugged", "batch-waits", "queueing")
			ok(b, "E2E-04", []string{"batch"}, "batch-waits")
		},
	},
	{
		Name: "e2e-tenants", Title: "The stamp of the tenant makes tenants take turns in the router", Needs: chained,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("round-robin", "", 0)
			batchOf(b, 0)
			b.Plug(scenario.At(0))
			enqueue(b, "many", "batch", messages("a", 20, scenario.User("a"))...)
			waiting(b, "many-wait", 20)
			enqueue(b, "few", "batch", messages("b", 3, scenario.User("b"))...)
			waiting(b, "all-wait", 23)
			b.Quiet("released", time.Millisecond)
			b.Step(sut.Step{Op: sut.OpStep, Mark: "step", Count: 8})
			finish(b, 23, 2*retryLimit)
			judge(b, "E2E-05", "async-served", checks.Async{Shape: "first", IDs: []string{"b*"}, From: "released", Max: 6}, "plugged", "many-wait", "all-wait")
			ok(b, "E2E-05", []string{"a*", "b*"}, "all-wait")
		},
	},
	{
		Name: "e2e-capacity", Title: "What the router refuses for capacity is tried again until it is served", Needs: chained,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, -10)
			b.Config.Bands[1].MaxRequests = 1
			batchOf(b, -10)
			b.Plug(scenario.At(100))
			enqueue(b, "batch", "batch", messages("batch", 10)...)
			tried(b, "refused", 9, 429, retryLimit)
			finish(b, 10, 2*retryLimit)
			judge(b, "E2E-06", "async-answers", checks.Async{Status: b.Profile.Refusals.Capacity.Status, Min: 9, Max: -1}, "plugged", "batch")
			ok(b, "E2E-06", []string{"batch*"}, "plugged", "refused")
		},
	},
	{
		Name: "e2e-ttl", Title: "What the router refuses after its wait limit is tried again", Needs: chained,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, -10)
			b.Config.TTL = time.Second
			batchOf(b, -10)
			b.Plug(scenario.At(100))
			enqueue(b, "batch", "batch", scenario.Message("batch"))
			b.Step(sut.Step{Op: sut.OpTried, Mark: "refused", Count: 1, Limit: retryLimit}) // with whatever status: that is FC-REF-03
			finish(b, 1, 2*retryLimit)
			if reason := b.Profile.Refusals.TTL.Reason; reason != "" {
				judge(b, "E2E-07", "async-answers", checks.Async{Codes: []string{reason}, Min: 1, Max: -1}, "plugged", "batch")
			}
			ok(b, "E2E-07", []string{"batch"}, "plugged", "refused")
			judge(b, "E2E-07", "async-arrivals", checks.Async{Min: 2, Max: -1}, "plugged", "refused")
		},
	},
	{
		Name: "e2e-restart", Title: "What the router refuses as it shuts down is served after its return, once", Needs: append(chained, sut.Restart),
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, -10)
			batchOf(b, -10)
			b.Plug(scenario.At(100))
			enqueue(b, "batch", "batch", messages("batch", 20)...)
			waiting(b, "all-wait", 20)
			b.Step(sut.Step{Op: sut.OpShutdown, Mark: "shutdown"})
			b.Step(sut.Step{Op: sut.OpTried, Mark: "refused", Count: 1, Limit: retryLimit}) // nothing else can end: the place is held
			b.Step(sut.Step{Op: sut.OpHold, Count: 0})
			b.Drain()
			b.Step(sut.Step{Op: sut.OpDown, Mark: "down", Limit: 20 * time.Second})
			b.Step(sut.Step{Op: sut.OpRestart, Mark: "restarted"})
			await(b, "results", 20, 40*time.Second)
			if status := b.Profile.Refusals.Shutdown.Status; status != 0 {
				judge(b, "E2E-08", "async-answers", checks.Async{Status: status, Min: 1, Max: -1}, "plugged", "all-wait", "down")
			}
			ok(b, "E2E-08", []string{"batch*"}, "plugged", "all-wait", "refused", "restarted")
		},
	},
	{
		Name: "e2e-empty-pool", Title: "An empty pool delays batch work and loses none", Needs: append(chained, sut.ScaleToZero),
		Write: func(b *scenario.Builder) {
			b.Cap(4, 1)
			b.Config.Hold = false
			b.Config.Endpoints[0].Out = true
			b.Config.TTL = time.Second
			if slices.Contains(b.Profile.Reasons, wire.ReasonNoEndpoints) { // the contract has a wait limit of its own for empty pools
				b.Config.NoEndpointTTL = time.Second
			}
			b.Bands("", "", 0)
			batchOf(b, 0)
			enqueue(b, "batch", "batch", messages("batch", 5)...)
			b.Step(sut.Step{Op: sut.OpTried, Mark: "refused", Count: 5, Limit: retryLimit})
			b.Quiet("empty", 2*time.Second)
			b.Step(sut.Step{Op: sut.OpAdd, Mark: "added", Endpoint: scenario.EndpointName(0)})
			await(b, "results", 5, 25*time.Second)
			ok(b, "E2E-09", []string{"batch*"}, "batch", "refused", "added")
			judge(b, "E2E-09", "async-answers", checks.Async{Status: 200, Min: 5, Max: 5}, "refused", "added")
		},
	},
	{
		Name: "e2e-deadline", Title: "A deadline that passes in the router or at a model server ends the request there", Needs: chained,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, -10)
			batchOf(b, -10)
			enqueue(b, "first", "batch", scenario.Message("running", scenario.Due(6*time.Second)))
			arrivals(b, "runs", "running")
			enqueue(b, "second", "batch", scenario.Message("queued", scenario.Due(3*time.Second)))
			waiting(b, "waits", 1)
			b.Quiet("both", 100*time.Millisecond)
			await(b, "given-up", 2, 10*time.Second)
			waiting(b, "left", 0)
			b.Quiet("watched", time.Second)
			b.Drain()
			judge(b, "E2E-12", "async-results", checks.Async{Codes: []string{"DEADLINE_EXCEEDED"}}, "runs", "waits")
			judge(b, "E2E-12", "async-served", checks.Async{Shape: "aborted", IDs: []string{"running"}}, "runs", "given-up")
			judge(b, "E2E-12", "async-served", checks.Async{Shape: "never", IDs: []string{"queued"}}, "runs", "waits", "given-up", "watched")
		},
	},
	laned("e2e-lanes", "The number of a lane changes no priority in the router", false),
	laned("e2e-lane-objectives", "The objective of a lane does", true),
	{
		Name: "e2e-faults", Title: "Restarts of the router and failing model servers lose no batch work and double none", Needs: append(chained, sut.Restart),
		Write: func(b *scenario.Builder) {
			b.Cap(8, 2)
			b.Config.Hold = false
			b.Bands("", "", 0)
			batchOf(b, 0)
			b.Config.Batch.Size = 4
			enqueue(b, "batch", "batch", messages("batch", 500, scenario.Due(5*time.Minute))...)
			for i := range 2 {
				tried(b, fmt.Sprintf("under-way%d", i), 50*(i+1), 200, 20*time.Second)
				b.Step(sut.Step{Op: sut.OpShutdown, Mark: fmt.Sprintf("shutdown%d", i)})
				b.Step(sut.Step{Op: sut.OpDown, Mark: fmt.Sprintf("down%d", i), Limit: 20 * time.Second})
				b.Step(sut.Step{Op: sut.OpRestart, Mark: fmt.Sprintf("restarted%d", i)})
			}
			tried(b, "under-way", 150, 200, 20*time.Second)
			b.Step(sut.Step{Op: sut.OpFail, Mark: "fail", Count: 503})
			tried(b, "failed", 3, 503, 20*time.Second)
			b.Step(sut.Step{Op: sut.OpFail, Mark: "heal"})
			await(b, "results", 500, 60*time.Second)
			b.Quiet("watched", time.Second)
			ok(b, "E2E-15", []string{"batch*"}, "restarted0", "restarted1", "failed", "watched")
		},
	},
	gated("e2e-saturation", "The router's saturation stops batch work while realtime has the pool, and lets it on afterwards", "E2E-10", func(b *scenario.Builder) []string {
		b.Cap(10, 1)
		b.Bands("", "", 100, -10)
		b.Config.Batch.Queues[0].Gate, b.Config.Batch.Queues[0].Params = "prometheus-saturation", map[string]any{"pool": "$POOL"}
		b.PlugN(9, scenario.At(100))
		return []string{"plugged"}
	}),
	gated("e2e-budget", "The router's queue size stops batch work at the computed point", "E2E-11", func(b *scenario.Builder) []string {
		b.Cap(1, 1)
		b.Bands("", "", 100, -10)
		b.Config.Batch.Queues[0].Gate = "prometheus-budget"
		b.Config.Batch.Queues[0].Params = map[string]any{"pool": "$POOL", "max_concurrency": 4}
		b.Plug(scenario.At(100))
		b.Queue(b.Req("w1", scenario.At(100)), b.Req("w2", scenario.At(100)), b.Req("w3", scenario.At(100)), b.Req("w4", scenario.At(100)))
		return []string{"plugged", "queueing"}
	}),
	gated("e2e-budget-off", "Without flow control the queues of the model servers do", "E2E-11", func(b *scenario.Builder) []string {
		b.Util(100, 0.9, 1)
		b.Config.GateOff = true
		b.Config.Batch.Queues[0].Gate = "prometheus-budget"
		b.Config.Batch.Queues[0].Params = map[string]any{"pool": "$POOL", "max_concurrency": 20}
		b.Step(sut.Step{Op: sut.OpScript, Mark: "full", Endpoint: "a", Values: &sut.LoadValues{Waiting: 19}})
		return []string{"full"}
	}),
}

// laned: two messages wait in the router, the one of the lower lane first; without objectives they leave as they came.
func laned(name, title string, objectives bool) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Needs: chained, Write: func(b *scenario.Builder) {
		b.Cap(1, 1)
		b.Bands("", "", 100, 0)
		params := scenario.Doc{"priority_header": "x-gateway-priority"}
		order := []string{"low", "high"}
		if objectives {
			params["lane_objectives"] = scenario.Doc{"overflow-interactive": scenario.Objective(100), "overflow-batch": scenario.Objective(0)}
			order = []string{"high", "low"}
		}
		b.Config.Batch = &sut.Batch{Workers: 8, Size: 8, Policy: scenario.Policy("tier-priority", params), Queues: []sut.BatchQueue{
			{Name: "lower", Labels: map[string]string{"tier": "batch"}}, {Name: "higher", Labels: map[string]string{"tier": "interactive"}}}}
		b.Plug(scenario.At(100))
		enqueue(b, "low", "lower", scenario.Message("low"))
		waiting(b, "low-waits", 1)
		enqueue(b, "high", "higher", scenario.Message("high"))
		waiting(b, "both-wait", 2)
		b.Step(sut.Step{Op: sut.OpStep, Mark: "step", Count: 2})
		finish(b, 2, retryLimit)
		judge(b, "E2E-14", "async-served", checks.Async{Shape: "order", Order: order}, "plugged", "low-waits", "both-wait")
		judge(b, "E2E-14", "async-attempts", checks.Async{Attempts: []checks.AttemptWant{{ID: "low", Name: "x-gateway-priority", Value: "5"}, {ID: "high", Name: "x-gateway-priority", Value: "3"}}}, "both-wait")
	}}
}

// gated: a gate of the processor reads the router's metrics from a Prometheus. While the pool is full nothing is tried; afterwards all is.
func gated(name, title, requirement string, full func(b *scenario.Builder) []string) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Needs: append(chained, sut.Metrics), Write: func(b *scenario.Builder) {
		b.Config.Batch = &sut.Batch{Queues: []sut.BatchQueue{{Name: "batch", Objective: scenario.Objective(-10)}}, Workers: 8, Size: 10, Prometheus: true}
		engaged := full(b)
		b.Quiet("scraped", time.Second)
		enqueue(b, "batch", "batch", messages("batch", 5)...)
		b.Quiet("held-back", 5*time.Second)
		b.Quiet("freed", time.Millisecond)
		if b.Config.Hold {
			b.Step(sut.Step{Op: sut.OpHold, Count: 0})
			b.Drain()
		} else {
			b.Step(sut.Step{Op: sut.OpScript, Mark: "free", Endpoint: "a", Values: &sut.LoadValues{}})
		}
		await(b, "results", 5, retryLimit)
		judge(b, requirement, "async-arrivals", checks.Async{To: "held-back"}, append(engaged, "scraped", "batch", "held-back")...)
		judge(b, requirement, "async-timing", checks.Async{Event: "arrival", Anchor: "freed", Latest: 3 * time.Second}, append(engaged, "batch", "held-back")...)
		ok(b, requirement, []string{"batch*"}, append(engaged, "held-back")...)
	}}
}
