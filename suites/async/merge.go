package async

import (
	"fmt"
	"strings"

	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// Headers with an InferenceObjective: the documented one, which decides where both are there (FC-CLS-05), and the one of older builds.
const (
	objective      = "x-llm-d-inference-objective"
	objectiveOlder = "x-gateway-inference-objective"
)

// mergeScenarios are those of AP-MERGE.
var mergeScenarios = []s.Scenario{
	play("merged-per-pool", "each pool has lanes of its own", func(a *script) {
		pool := func(q doc, id string) doc { return q.With(doc{"worker_pool_id": id}) }
		for _, q := range []string{"a-low", "a-high", "b-low", "b-high"} {
			a.Submit("in-"+q, q, s.Messages(q+"-", 8, s.User("t"))...)
		}
		a.Hold()
		set := s.WithPools(s.Transport(pool(reserved(tier("a-high", "interactive")), "a"), pool(s.Queue("a-low"), "a"), pool(reserved(tier("b-high", "interactive")), "b"),
			pool(s.Queue("b-low"), "b"), pool(s.Queue("c-low"), "c")).With(doc{"batch_size": 100}),
			[]doc{{"id": "a", "workers": 1}, {"id": "b", "workers": 1}, {"id": "c", "workers": 1}})
		a.Serve(s.WithPolicy(set, "tier-priority", doc{"priority_header": priority}))
		a.Size("pulled", "", 0, "a-low", "a-high", "b-low", "b-high")
		a.Held("busy", 2, 500*msec, "a-*", "b-*")
		a.Submit("idle-in", "c-low", s.Message("c-low"))
		a.Arrive("idle-served", 1, "c-low")
		a.Do(step{Op: sut.AsyncStep1, Mark: "b-steps", IDs: []string{"b-*"}, Count: 15})
		a.Do(step{Op: sut.AsyncStep1, Mark: "a-steps", IDs: []string{"a-*"}, Count: 15})
		a.Release("all", 0)
		a.Results("done", 33, 0)
		engaged := []string{"up", "pulled", "busy"}
		a.Check("AP-MERGE-01", "async-timing", want{IDs: []string{"c-low"}, Event: "arrival", Anchor: "idle-in", Earliest: -sec, Latest: 2 * sec}, engaged...)
		a.Check("AP-MERGE-01", "async-attempts", want{Attempts: []attempt{{ID: "c-low", Name: priority, Value: "5"}}}, append(engaged, "idle-served")...)
		a.Check("AP-MERGE-01", "async-order", want{Groups: groups("b-high*", "b-low*"), Skip: 3, Min: 13, To: "b-steps"}, append(engaged, "b-steps")...)
		a.Check("AP-MERGE-01", "async-order", want{Groups: groups("a-high*", "a-low*"), Skip: 3, Min: 13, To: "a-steps"}, append(engaged, "b-steps", "a-steps")...)
	}),
	play("random-robin", "by default all queues of a pool have equal shares", func(a *script) {
		// More than either may have of the first 400 is there from the beginning: both are backlogged throughout.
		a.Submit("x-in", "x", s.Messages("x", 300)...)
		a.Submit("y-in", "y", s.Messages("y", 300)...)
		a.Size("waiting", "", 600, "x", "y")
		a.Answer(sut.AsyncReply{Delay: 5 * msec})
		a.Serve(s.Setup(s.Transport(s.Queue("x"), s.Queue("y")).With(doc{"batch_size": 600}), "--concurrency", "2"))
		a.Results("done", 600, 30*sec)
		a.Check("AP-MERGE-02", "async-share", want{Groups: groups("x*", "y*"), Min: 400, Low: 0.1}, "waiting", "up")
		a.Check("AP-MERGE-02", "async-results", want{Status: 200}, "waiting", "up")
	}),
	play("tenant-stamped", "both policies stamp the tenant, over whatever the caller says", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("robin"))))
		a.StartOther("up2", "p2", tiered(4, doc{}, s.Queue("tiers")))
		long := strings.Repeat("u", 257)
		own := s.Head("X-LLM-D-Inference-Fairness-ID", "mine")
		for _, q := range []string{"robin", "tiers"} {
			a.Submit(q+"-in", q, s.Message(q+"-plain", s.User("t1")), s.Message(q+"-forged", s.User("t1"), s.Head("X-LLM-D-Inference-Fairness-ID", "forged")),
				s.Message(q+"-absent", own), s.Message(q+"-nobody"), s.Message(q+"-empty", s.User(""), own), s.Message(q+"-longest", s.User(long[:256]), own),
				s.Message(q+"-too-long", s.User(long), own), s.Message(q+"-break", s.User("a\nb"), own))
		}
		a.Results("done", 16, 0)
		stamped := func(id, value string) []attempt {
			return []attempt{{ID: "robin-" + id, Name: fairness, Value: value}, {ID: "tiers-" + id, Name: fairness, Value: value}}
		}
		a.Check("AP-MERGE-03", "async-attempts", want{Attempts: stamped("plain", "t1")}, "up", "up2", "done")
		a.Check("AP-MERGE-04", "async-attempts", want{Attempts: stamped("forged", "t1")}, "up", "up2", "done")
		var cases []attempt
		for _, id := range []string{"absent", "empty", "too-long", "break"} {
			cases = append(cases, stamped(id, "mine")...)
		}
		cases = append(cases, stamped("longest", long[:256])...)
		cases = append(cases, attempt{ID: "robin-nobody", Name: fairness, Absent: true}, attempt{ID: "tiers-nobody", Name: fairness, Absent: true})
		a.Check("AP-MERGE-05", "async-attempts", want{Attempts: cases}, "up", "up2", "done")
		a.Check("AP-MERGE-05", "async-results", want{Status: 200}, "up", "up2")
	}),
	play("stamp-renamed", "the stamp has another name, comes from another attribute, or is left out", func(a *script) {
		policy := func(queue, kind string, params doc) *sut.AsyncSetup {
			return s.WithPolicy(s.Setup(s.Transport(s.Queue(queue))), kind, params)
		}
		a.Serve(policy("renamed", "random-robin", doc{"fairness_header": "x-tenant"}))
		a.StartOther("up2", "p2", policy("off", "tier-priority", doc{"fairness_header": ""}))
		a.StartOther("up3", "p3", policy("team", "random-robin", doc{"fairness_attribute": "team"}))
		for _, q := range []string{"renamed", "off", "team"} {
			a.Submit(q+"-in", q, s.Message(q, s.User("t1"), s.Meta("team", "red")))
		}
		a.Results("done", 3, 0)
		a.Check("AP-MERGE-06", "async-attempts", want{Attempts: []attempt{{ID: "renamed", Name: "x-tenant", Value: "t1"}, {ID: "renamed", Name: fairness, Absent: true},
			{ID: "off", Name: fairness, Absent: true}, {ID: "team", Name: fairness, Value: "red"}}}, "up", "up2", "up3", "done")
	}),
	play("lane-headers", "the lane's number and objective, under the names that are asked for", laneHeaders),
	play("merge-policies", "which policies start", func(a *script) {
		with := func(text string) *sut.AsyncSetup {
			set := s.Files(s.Setup(s.Transport(s.Queue("q"))), "policy", text)
			set.Flags = []string{"--request-merge-policy-config-file", "$FILE_policy"}
			return set
		}
		tiers := func(name string) *sut.AsyncSetup {
			return s.WithPolicy(s.Setup(s.Transport(s.Queue("q"))), "tier-priority", doc{name: "no good"})
		}
		a.Try("tried",
			s.Case("sample", with(samplePolicy)),
			s.Case("robin", with(`{"type":"random-robin"}`)),
			s.Case("named", with(`{"type":"tier-priority","parameters":{"fairness_header":"x-a","priority_header":"x-b","objective_header":"x-c"}}`)),
			s.Case("fairness-name", tiers("fairness_header")),
			s.Case("fairness-name-of-robin", s.WithPolicy(s.Setup(s.Transport(s.Queue("q"))), "random-robin", doc{"fairness_header": "no good"})),
			s.Case("priority-name", tiers("priority_header")),
			s.Case("objective-name", tiers("objective_header")),
			s.Case("unknown-type", with(`{"type":"deadline-first"}`)),
			s.Case("unknown-field", with(`{"type":"random-robin","weights":{}}`)))
		a.Check("AP-MERGE-07", "async-starts", want{Valid: []string{"named"}, Cases: map[string]string{"fairness-name": "", "fairness-name-of-robin": "", "priority-name": "", "objective-name": ""}}, "tried")
		a.Check("AP-MERGE-11", "async-starts", want{Valid: []string{"sample", "robin"}, Cases: map[string]string{"unknown-type": "", "unknown-field": ""}}, "tried")
	}),
	play("blocked-neighbour", "queues behind closed gates do not slow another one of their pool", func(a *script) {
		// Eight workers of a second each: what the machine loses besides is little of that.
		a.Answer(sut.AsyncReply{IDs: []string{"solo*", "beside*"}, Delay: sec})
		a.Set("closed", "dispatch-gate-budget", "0")
		a.Serve(s.Setup(s.Transport(s.Gated("shut", "redis", doc{"address": "$BROKER"}), s.Gated("spent", "redis-quota", doc{"address": "$BROKER", "limit": "1", "window": "10m", "gating_mode": "blocking"}),
			s.Queue("free")), "--concurrency", "8"))
		a.Submit("spend", "spent", s.Message("first", s.User("t")))
		a.Results("spent", 1, 0)
		a.Submit("solo-in", "free", s.Messages("solo", 32)...)
		a.Results("solo-done", 32, 20*sec, "solo*")
		a.Submit("shut-in", "shut", s.Messages("shut", 30)...)
		a.Submit("spent-in", "spent", s.Messages("over", 30, s.User("t"))...)
		a.Submit("beside-in", "free", s.Messages("beside", 32)...)
		a.Results("beside-done", 32, 20*sec, "beside*")
		a.Size("backlog", "least", 30, "shut")
		a.Check("AP-MERGE-12", "async-ratio", want{Groups: groups("solo*", "beside*"), Min: 32, Low: 0.95}, "closed", "up", "spent", "solo-done", "beside-done", "backlog")
		a.Check("AP-MERGE-12", "async-arrivals", want{IDs: []string{"shut*", "over*"}, To: "beside-done"}, "closed", "up", "spent", "backlog")
	}),
}

// samplePolicy is the guide's.
const samplePolicy = `{
  "type": "tier-priority",
  "parameters": {
    "priority_header": "x-gateway-priority",
    "lane_objectives": {
      "reserved-interactive": "premium-latency",
      "overflow-batch": "best-effort"
    }
  }
}`

// laneHeaders plays the sample, and a policy with names of its own.
func laneHeaders(a *script) {
	var queues []doc
	for _, q := range sixLanes() {
		queues = append(queues, q.With(doc{"inference_objective": "queue-goal"}))
	}
	set := s.Files(s.Setup(s.Transport(queues...)), "policy", samplePolicy)
	set.Flags = []string{"--request-merge-policy-config-file", "$FILE_policy"}
	a.Serve(set)
	named := tier("named", "interactive").With(doc{"inference_objective": "queue-goal"})
	a.StartOther("up2", "p2", tiered(4, doc{"priority_header": "x-lane", "objective_header": "x-goal", "lane_objectives": doc{"overflow-interactive": "lane-goal"}}, named))
	a.StartOther("up3", "p3", tiered(4, doc{}, tier("unnamed", "async")))
	for i, q := range laneQueues {
		a.Submit("in-"+q, q, s.Message(fmt.Sprint("l", i), s.User("t"), s.Head("X-Gateway-Priority", "9")))
	}
	a.Submit("in-named", "named", s.Message("named", s.Head("X-Lane", "9")))
	a.Submit("in-unnamed", "unnamed", s.Message("unnamed"))
	a.Results("done", 8, 0)
	a.Check("AP-MERGE-08", "async-attempts", want{Attempts: []attempt{{ID: "l0", Name: priority, Value: "0"}, {ID: "l1", Name: priority, Value: "1"}, {ID: "l2", Name: priority, Value: "2"},
		{ID: "l3", Name: priority, Value: "3"}, {ID: "l4", Name: priority, Value: "4"}, {ID: "l5", Name: priority, Value: "5"},
		{ID: "named", Name: "x-lane", Value: "3"}, {ID: "named", Name: priority, Absent: true}}}, "up", "up2", "done")
	if name := a.Profile.PriorityHeader; name != "" {
		a.Check("AP-MERGE-08", "async-attempts", want{Attempts: []attempt{{ID: "unnamed", Name: name, Value: "4"}}}, "up3", "done")
	}
	// A queue's objective is under one of two names; where both are there, the documented one counts (FC-CLS-05).
	goals := []attempt{{ID: "l0", Name: objective, Value: "premium-latency"}, {ID: "l5", Name: objective, Value: "best-effort"}}
	for _, id := range []string{"l1", "l2", "l3", "l4"} {
		goals = append(goals, attempt{ID: id, Name: objective, Or: []string{objectiveOlder}, Value: "queue-goal"})
	}
	a.Check("AP-MERGE-09", "async-attempts", want{Attempts: goals}, "up", "done")
	a.Check("AP-MERGE-10", "async-attempts", want{Attempts: []attempt{goals[0], {ID: "named", Name: "x-goal", Value: "lane-goal"}}}, "up", "up2", "done")
}
