// Package cluster is the part of the catalogue that only a deployment can show: pods that come and go, rolling updates, what a network and a
// Prometheus of a cluster add. Its rows have ids of their own (K8S-*), since the guides say nothing of them but that they must work.
package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/verdict"
)

// Rows are the requirements.
func Rows() []verdict.Requirement {
	var out []verdict.Requirement
	for _, r := range [][2]string{
		{"K8S-01", "A pool that is scaled to zero keeps its requests waiting, and serves them once a model server is ready."},
		{"K8S-02", "A rolling update of the model servers loses no request."},
		{"K8S-03", "A rolling update of the picker loses no request but by the refusals of a shutdown."},
		{"K8S-04", "A rolling update of the gateway loses no request."},
		{"K8S-05", "Model servers that are killed, all at once, take at most what they had with them; the rest waits for their successors."},
		{"K8S-06", "A picker that is killed is replaced; whoever was not open while it was gone is served, and nobody is left without an answer."},
		{"K8S-07", "A gateway that is killed is replaced under the same Service; whoever was not open while it was gone is served, and nobody is left without an answer."},
		{"K8S-08", "A second picker of a pool comes and goes without disturbing anybody, and Prometheus finds both."},
		{"K8S-09", "Objectives that are made, changed and deleted while requests come take effect, and disturb none of them."},
		{"K8S-10", "A network that cuts the picker off the metrics of the model servers disturbs no request where nothing depends on them."},
		{"K8S-11", "Prometheus finds and scrapes every part."},
		{"K8S-12", "The processor's gate follows what Prometheus says of the pool: it holds batch work back at saturation, and lets it go afterwards."},
		{"K8S-13", "A processor that is killed with a backlog loses and doubles no result, and what it had is done by its successor."},
		{"K8S-14", "A broker and a Prometheus that are killed are found again by those who use them."},
	} {
		out = append(out, verdict.Requirement{ID: r[0], Level: scenario.Core, Title: r[1]})
	}
	return out
}

// Compile writes the scenarios down.
func Compile(p profile.Profile, seed uint64) []scenario.Compiled {
	var out []scenario.Compiled
	for _, s := range scenarios() {
		s.Needs = append(s.Needs, sut.Deployed)
		c := scenario.Compile(s, p, seed)
		c.Level = scenario.Core
		out = append(out, c)
	}
	return out
}

// places is how many requests the deployed picker lets run at once: two model servers of 8 (manifests/base).
const places = 16

// spacing is between two requests of a load, settleLimit how long a part may take to be there again.
const (
	spacing     = 50 * time.Millisecond
	unhurried   = 75 * time.Millisecond // over a rolling update, which takes some twenty seconds
	settleLimit = 2 * time.Minute
)

func scenarios() []scenario.Scenario { return slices.Concat(pods, batch) }

// pods are scenarios of the router and its model servers.
var pods = []scenario.Scenario{
	{Name: "k8s-scale-from-zero", Title: "No model server, then two", Write: func(b *scenario.Builder) {
		deploy(b, "none", sut.DeployScale, "model-server", 0)
		ids := load(b, "waiting", "w", 20)
		b.Quiet("quiet", 2*time.Second)
		deploy(b, "again", sut.DeployScale, "model-server", 2)
		ids = append(ids, load(b, "after", "a", 20)...)
		endings(b, ids)
		b.Check("K8S-01", "recovers", checks.Spec{Engaged: []string{"none", "again"}, After: "quiet", Mark: "again", IDs: ids, Needed: 20})
	}},
	replaced("k8s-rollout-model-servers", "K8S-02", "model-server", checks.Spec{}),
	replaced("k8s-rollout-picker", "K8S-03", "picker", checks.Spec{Statuses: []int{503}}),
	replaced("k8s-rollout-gateway", "K8S-04", "gateway", checks.Spec{}),
	killed("k8s-kill-model-server", "K8S-05", "model-server", places),
	killed("k8s-kill-picker", "K8S-06", "picker", 0),
	killed("k8s-kill-gateway", "K8S-07", "gateway", 0),
	{Name: "k8s-two-pickers", Title: "A second picker comes and goes", Write: func(b *scenario.Builder) {
		before := load(b, "before", "b", 20)
		deploy(b, "two", sut.DeployScale, "picker", 2)
		ids := load(b, "beside", "m", 60)
		ask(b, "seen", `count(up{job="picker"} == 1)`, "2")
		deploy(b, "one", sut.DeployScale, "picker", 1)
		deploy(b, "settled", sut.DeploySettle, "picker", 0)
		ids = append(append(before, ids...), load(b, "after", "a", 20)...)
		endings(b, ids)
		b.Check("K8S-08", "recovers", checks.Spec{Engaged: []string{"two", "one"}, After: "two", Mark: "settled", IDs: ids, Needed: 20, Statuses: []int{503}})
		b.Check("K8S-08", "tells", checks.Spec{States: map[string]string{"seen": "2"}})
	}},
	{Name: "k8s-objectives", Title: "Objectives come, change and go", Write: func(b *scenario.Builder) {
		object := func(mark string, priority int) {
			b.Step(sut.Step{Op: sut.OpDeploy, Mark: mark, Mode: sut.DeployObject, Endpoint: "express", Count: priority})
		}
		named := []scenario.Option{scenario.Named("express")}
		ids := load(b, "unknown", "u", 20, named...)
		object("made", 50)
		ids = append(ids, load(b, "known", "k", 40, named...)...)
		ask(b, "at50", dispatchedAt(50), "1")
		object("changed", -5)
		ids = append(ids, load(b, "lower", "l", 40, named...)...)
		ask(b, "at-5", dispatchedAt(-5), "1")
		object("deleted", sut.DeployGone)
		ids = append(ids, load(b, "after", "a", 40, named...)...)
		endings(b, ids)
		b.Check("K8S-09", "recovers", checks.Spec{Engaged: []string{"made", "changed", "deleted"}, After: "made", Mark: "lower", IDs: ids, Needed: 40})
		b.Check("K8S-09", "tells", checks.Spec{States: map[string]string{"at50": "1", "at-5": "1"}})
	}},
	{Name: "k8s-cut-metrics", Title: "Nobody reaches the metrics of the model servers", Write: func(b *scenario.Builder) {
		before := load(b, "before", "b", 20)
		deploy(b, "cut", sut.DeployCut, "model-server", 0)
		ids := append(before, load(b, "beside", "m", 60)...)
		deploy(b, "mended", sut.DeployMend, "model-server", 0)
		ids = append(ids, load(b, "after", "a", 60)...)
		endings(b, ids)
		b.Check("K8S-10", "recovers", checks.Spec{Engaged: []string{"cut", "mended"}, After: "cut", Mark: "mended", IDs: ids, Needed: 40})
	}},
}

// batch are scenarios of the asynchronous half and of what both use.
var batch = []scenario.Scenario{
	{Name: "k8s-scraped", Title: "What Prometheus finds", Write: func(b *scenario.Builder) {
		want := map[string]string{"picker": "1", "vllm": "2", "processor": "1"}
		for _, job := range []string{"picker", "vllm", "processor"} {
			ask(b, job, fmt.Sprintf(`count(up{job=%q} == 1)`, job), want[job])
		}
		b.Check("K8S-11", "tells", checks.Spec{States: want})
	}},
	{Name: "k8s-gate", Title: "Batch work waits while the pool is full", Write: func(b *scenario.Builder) {
		full := load(b, "full", "f", 60, func(r *sut.Request) { r.MaxTokens = 2000 })
		ask(b, "saturated", `max(llm_d_epp_flow_control_pool_saturation) >= bool 1`, "1")
		ask(b, "closed", `max(llm_d_async_async_dispatch_budget{queue_name="batch"})`, "0")
		b.Step(sut.Step{Op: sut.OpDeploy, Mark: "enqueued", Mode: sut.DeployEnqueue, Endpoint: "processor", Count: 10, Raw: "gate"})
		b.Step(sut.Step{Op: sut.OpDeploy, Mark: "held", Mode: sut.DeployResults, Endpoint: "processor", Count: 1, Limit: 4 * time.Second})
		// A full pool answers nobody: what tells is that they wait in front of the gate, and not behind it.
		b.Step(sut.Step{Op: sut.OpDeploy, Mark: "queued", Mode: sut.DeployBacklog})
		ask(b, "passed", `sum(llm_d_async_async_inflight_requests{queue_name="batch"}) or vector(0)`, "0")
		ask(b, "still", `max(llm_d_epp_flow_control_pool_saturation) >= bool 1`, "1")
		b.Step(sut.Step{Op: sut.OpCancel, Mark: "emptied", IDs: full})
		b.Step(sut.Step{Op: sut.OpDeploy, Mark: "done", Mode: sut.DeployResults, Endpoint: "processor", Count: 10, Limit: 90 * time.Second})
		b.Check("K8S-12", "tells", checks.Spec{Engaged: []string{"enqueued"}, States: map[string]string{"saturated": "1", "closed": "0", "held": "0 results of 0 ids", "queued": "yes", "passed": "0", "still": "1", "done": "10 results of 10 ids"}})
	}},
	{Name: "k8s-kill-processor", Title: "A processor is killed with a backlog", Write: func(b *scenario.Builder) {
		deploy(b, "steady", sut.DeploySettle, "processor", 0)
		b.Step(sut.Step{Op: sut.OpDeploy, Mark: "enqueued", Mode: sut.DeployEnqueue, Endpoint: "processor", Count: 100, Raw: "kill"})
		// In the midst of it: some are done, some are taken, and some wait.
		b.Step(sut.Step{Op: sut.OpDeploy, Mark: "first", Mode: sut.DeployResults, Endpoint: "processor", Count: 20, Limit: time.Minute})
		deploy(b, "killed", sut.DeployKill, "processor", 0)
		b.Step(sut.Step{Op: sut.OpDeploy, Mark: "left", Mode: sut.DeployBacklog})
		deploy(b, "settled", sut.DeploySettle, "processor", 0)
		b.Step(sut.Step{Op: sut.OpDeploy, Mark: "done", Mode: sut.DeployResults, Endpoint: "processor", Count: 80, Limit: 90 * time.Second})
		b.Step(sut.Step{Op: sut.OpDeploy, Mark: "more", Mode: sut.DeployResults, Endpoint: "processor", Count: 1, Limit: 3 * time.Second})
		b.Step(sut.Step{Op: sut.OpDeploy, Mark: "all", Mode: sut.DeployResults, Endpoint: "processor"})
		b.Check("K8S-13", "tells", checks.Spec{Engaged: []string{"steady", "enqueued", "killed"}, Names: []string{"settled"}, States: map[string]string{"first": "20 results of 20 ids", "left": "yes", "done": "80 results of 80 ids", "more": "0 results of 0 ids", "all": "100 results of 100 ids"}})
	}},
	{Name: "k8s-kill-rest", Title: "Broker and Prometheus are killed", Write: func(b *scenario.Builder) {
		for _, part := range []string{"redis", "prometheus"} {
			deploy(b, part+"-killed", sut.DeployKill, part, 0)
			deploy(b, part+"-back", sut.DeploySettle, part, 0)
		}
		ask(b, "seen", `count(up{job="processor"} == 1)`, "1")
		// A gate that has lost its source lets everything through by default, so results do not show that it has found it again.
		ask(b, "read", `min(llm_d_async_async_gate_metric_source_available{queue_name="batch"})`, "1")
		b.Step(sut.Step{Op: sut.OpDeploy, Mark: "enqueued", Mode: sut.DeployEnqueue, Endpoint: "processor", Count: 20, Raw: "rest"})
		b.Step(sut.Step{Op: sut.OpDeploy, Mark: "done", Mode: sut.DeployResults, Endpoint: "processor", Count: 20, Limit: time.Minute})
		b.Check("K8S-14", "tells", checks.Spec{Engaged: []string{"redis-killed", "prometheus-killed", "enqueued"}, Names: []string{"redis-back", "prometheus-back"},
			States: map[string]string{"seen": "1", "read": "1", "done": "20 results of 20 ids"}})
	}},
}

// watched is how much of the end of a rolling update may pass without anybody being sent.
const watched = 2 * time.Second

// replaced is a rolling update of a part while requests come.
func replaced(name, requirement, part string, allowed checks.Spec) scenario.Scenario {
	allowed.Needed, allowed.Max = 50, watched
	return disturbed(name, "A rolling update of "+part+" under load", requirement, sut.DeployRollout, part, 400, allowed)
}

// killed takes the pods of a part away while requests come: without a grace period, of which a node makes two seconds. lost is how many may be lost
// with them; 0: any number.
func killed(name, requirement, part string, lost int) scenario.Scenario {
	return disturbed(name, "The pods of "+part+" are killed under load", requirement, sut.DeployKill, part, 60, checks.Spec{Needed: 40, Mode: "lossy", Count: lost})
}

// disturbed does something to a part, with requests before it, n beside it, and more once the part has settled.
func disturbed(name, title, requirement, mode, part string, n int, allowed checks.Spec) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Write: func(b *scenario.Builder) {
		deploy(b, "steady", sut.DeploySettle, part, 0) // nobody is to be connected to a pod of an earlier version
		ids := load(b, "before", "b", 40)
		deploy(b, "begun", mode, part, 0)
		every := spacing
		if mode == sut.DeployRollout {
			every = unhurried
		}
		ids = append(ids, sent(b, "beside", "m", n, every)...)
		deploy(b, "settled", sut.DeploySettle, part, 0)
		ids = append(ids, load(b, "after", "a", 60)...)
		endings(b, ids)
		allowed.Engaged, allowed.After, allowed.Mark, allowed.IDs = []string{"steady"}, "begun", "settled", ids
		b.Check(requirement, "recovers", allowed)
	}}
}

func deploy(b *scenario.Builder, mark, mode, part string, count int) {
	b.Step(sut.Step{Op: sut.OpDeploy, Mark: mark, Mode: mode, Endpoint: part, Count: count, Limit: settleLimit})
}

// ask waits until Prometheus answers what is expected, and notes what it answers at last.
func ask(b *scenario.Builder, mark, query, want string) {
	b.Step(sut.Step{Op: sut.OpDeploy, Mark: mark, Mode: sut.DeployAsk, Endpoint: want, Raw: query, Limit: 30 * time.Second})
}

// dispatchedAt asks whether anybody was dispatched at a priority.
func dispatchedAt(priority int) string {
	return fmt.Sprintf(`max(llm_d_epp_flow_control_requests_total{outcome="Dispatched",priority="%d"}) > bool 0`, priority)
}

// load sends requests one after the other, half of them as streams.
func load(b *scenario.Builder, mark, prefix string, n int, opts ...scenario.Option) []string {
	return sent(b, mark, prefix, n, spacing, opts...)
}

func sent(b *scenario.Builder, mark, prefix string, n int, every time.Duration, opts ...scenario.Option) []string {
	var ids []string
	var reqs []sut.Request
	for i := range n {
		id := fmt.Sprintf("%s%d", prefix, i)
		own := append([]scenario.Option{func(r *sut.Request) { r.MaxTokens, r.Stream = 16, i%2 == 1 }}, opts...)
		reqs = append(reqs, b.Req(id, own...))
		ids = append(ids, id)
	}
	b.Step(sut.Step{Op: sut.OpSend, Mark: mark, Requests: reqs, Spacing: every})
	return ids
}

func endings(b *scenario.Builder, ids []string) {
	b.Step(sut.Step{Op: sut.OpEndings, Mark: "ended", IDs: ids, Limit: 90 * time.Second})
}
