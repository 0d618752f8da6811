package checks_test

import (
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
)

// rollout has two requests before a rollout, two open while it goes on, and two after it.
func rollout() *hist {
	h := history().step("begun", 1000, 1010).step("settled", 1010, 3000)
	for id, sent := range map[string]int{"r1": 0, "r2": 100, "r3": 1500, "r4": 2000, "r5": 3100, "r6": 3200} {
		h.client(id, sent, sent+200, evidence.Completed, 200, "")
	}
	h.r.Sort()
	return h
}

func ends(outcome string, status int) func(*evidence.Client) {
	return func(c *evidence.Client) { c.Outcome, c.Status = outcome, status }
}

func lostAt(sent int) func(*evidence.Client) {
	return func(c *evidence.Client) {
		ends(evidence.TransportError, 0)(c)
		c.Sent = int64(sent) * int64(time.Millisecond)
	}
}

var (
	rolloutIDs  = []string{"r1", "r2", "r3", "r4", "r5", "r6"}
	smoothSpec  = checks.Spec{After: "begun", Mark: "settled", IDs: rolloutIDs, Needed: 2}
	refusesSpec = checks.Spec{After: "begun", Mark: "settled", IDs: rolloutIDs, Needed: 2, Statuses: []int{503}}
	lossySpec   = checks.Spec{After: "begun", Mark: "settled", IDs: rolloutIDs, Needed: 2, Mode: "lossy"}
	oneLostSpec = checks.Spec{After: "begun", Mark: "settled", IDs: rolloutIDs, Needed: 2, Mode: "lossy", Count: 1}
	watchedSpec = checks.Spec{After: "begun", Mark: "settled", IDs: rolloutIDs, Needed: 2, Max: 1200 * time.Millisecond}
	toldSpec    = checks.Spec{States: map[string]string{"one": "1", "two": "2"}}
	plannedSpec = checks.Spec{Count: 6, States: map[string]string{"worker-0": "abc", "worker-1": "abc"}}
)

func told() *hist {
	return history().step("one", 0, 1).step("two", 1, 2).detail("one", "1").detail("two", "2")
}

func sharedPlan() *hist {
	return rollout().step("worker-0", 0, 4000).step("worker-1", 0, 4000).detail("worker-0", "abc").detail("worker-1", "abc")
}

var deployTrials = []trial{
	{"recovers", "passing", "all complete", smoothSpec, rollout(), pass},
	{"recovers", "passing", "two were refused as they may be", refusesSpec, rollout().c("r3", ends(evidence.Refused, 503)).c("r4", ends(evidence.Refused, 503)), pass},
	{"recovers", "passing", "two were lost while it was gone", lossySpec, rollout().c("r3", ends(evidence.TransportError, 0)).c("r4", ends(evidence.KilledMidStream, 200)), pass},
	{"recovers", "passing", "one was lost that they had", oneLostSpec, rollout().c("r3", lostAt(1005)), pass},
	{"recovers", "passing", "somebody was sent shortly before it settled", watchedSpec, rollout(), pass},
	{"recovers", "failing", "one was refused with another status", refusesSpec, rollout().c("r3", ends(evidence.Refused, 500)), fail},
	{"recovers", "failing", "one was refused, and none may be", smoothSpec, rollout().c("r3", ends(evidence.Refused, 503)), fail},
	{"recovers", "failing", "one was lost, and none may be", refusesSpec, rollout().c("r3", ends(evidence.TransportError, 0)), fail},
	{"recovers", "failing", "one was lost before", lossySpec, rollout().c("r1", ends(evidence.TransportError, 0)), fail},
	{"recovers", "failing", "one was lost afterwards", lossySpec, rollout().c("r6", ends(evidence.TransportError, 0)), fail},
	{"recovers", "failing", "one was refused afterwards", refusesSpec, rollout().c("r5", ends(evidence.Refused, 503)), fail},
	{"recovers", "failing", "one has no ending", lossySpec, rollout().c("r3", func(c *evidence.Client) { c.Outcome, c.End = evidence.Unfinished, evidence.Never }), fail},
	{"recovers", "failing", "more were lost than may be", oneLostSpec, rollout().c("r3", lostAt(1005)).c("r4", lostAt(1005)), fail},
	{"recovers", "failing", "it did not come back", smoothSpec, rollout().detail("settled", evidence.NotBack+"it is not ready"), fail},
	{"recovers", "degenerate", "it was not there before", checks.Spec{Engaged: []string{"steady"}, After: "begun", Mark: "settled", IDs: rolloutIDs, Needed: 2},
		rollout().step("steady", 900, 990).detail("steady", evidence.NotBack+"it is not ready"), inconclusive},
	{"recovers", "failing", "one was lost that came when it was gone", oneLostSpec, rollout().c("r3", ends(evidence.TransportError, 0)), fail},
	{"recovers", "degenerate", "nobody was sent for long before it settled", watchedSpec, rollout().c("r4", func(c *evidence.Client) { c.Sent = 1600 * int64(time.Millisecond) }), inconclusive},
	{"recovers", "empty", "nothing happened", smoothSpec, history(), inconclusive},
	{"recovers", "degenerate", "nobody was sent afterwards", checks.Spec{After: "begun", Mark: "settled", IDs: rolloutIDs[:4], Needed: 2}, rollout(), inconclusive},
	{"recovers", "degenerate", "nobody was open in between", checks.Spec{After: "begun", Mark: "settled", IDs: []string{"r1", "r2", "r5", "r6"}, Needed: 2}, rollout(), inconclusive},
	{"recovers", "degenerate", "it did not settle", smoothSpec, rollout().broken("settled"), inconclusive},
	{"recovers", "degenerate", "it could not be begun", smoothSpec, rollout().broken("begun"), inconclusive},
	{"recovers", "degenerate", "one was not sent", smoothSpec, rollout().unsent("r6"), inconclusive},
	{"recovers", "degenerate", "no request is named", checks.Spec{After: "begun", Mark: "settled", Needed: 2}, rollout(), inconclusive},
	{"recovers", "degenerate", "any number would do", checks.Spec{After: "begun", Mark: "settled", IDs: rolloutIDs}, rollout(), inconclusive},

	{"tells", "passing", "both as expected", toldSpec, told(), pass},
	{"tells", "failing", "one says otherwise", toldSpec, told().detail("two", "1"), fail},
	{"tells", "failing", "what one waited for did not come back", checks.Spec{Names: []string{"two"}, States: map[string]string{"one": "1"}}, told().detail("two", evidence.NotBack+"it is not ready"), fail},
	{"tells", "degenerate", "what one waited for was not there before", checks.Spec{Engaged: []string{"two"}, States: map[string]string{"one": "1"}},
		told().detail("two", evidence.NotBack+"it is not ready"), inconclusive},
	{"tells", "empty", "nobody was asked", toldSpec, history(), inconclusive},
	{"tells", "degenerate", "nothing is expected", checks.Spec{}, told(), inconclusive},
	{"tells", "degenerate", "one could not be asked", toldSpec, told().broken("two"), inconclusive},
	{"tells", "degenerate", "one said nothing", toldSpec, told().detail("two", ""), inconclusive},
	{"tells", "degenerate", "one was not asked", toldSpec, told().without("two"), inconclusive},

	{"planned", "passing", "each once, all of one plan", plannedSpec, sharedPlan(), pass},
	{"planned", "failing", "a worker had another plan", plannedSpec, sharedPlan().detail("worker-1", "abd"), fail},
	{"planned", "failing", "one was sent twice", plannedSpec, sharedPlan().client("r6", 3200, 3400, evidence.Completed, 200, ""), fail},
	{"planned", "failing", "one that was not planned", plannedSpec, sharedPlan().client("r7", 3200, 3400, evidence.Completed, 200, ""), fail},
	{"planned", "empty", "nothing happened", plannedSpec, history(), inconclusive},
	{"planned", "degenerate", "one is missing", plannedSpec, sharedPlan().unsent("r6"), inconclusive},
	{"planned", "degenerate", "one was not sent", plannedSpec, sharedPlan().c("r6", sentNever), inconclusive},
	{"planned", "degenerate", "one was broken off", plannedSpec, sharedPlan().c("r6", ends(evidence.Unfinished, 0)), inconclusive},
	{"planned", "degenerate", "a worker is missing", plannedSpec, sharedPlan().without("worker-1"), inconclusive},
	{"planned", "degenerate", "a worker fell behind", plannedSpec, sharedPlan().broken("worker-1"), inconclusive},
	{"planned", "degenerate", "nothing was planned", checks.Spec{States: plannedSpec.States}, sharedPlan(), inconclusive},
	{"planned", "degenerate", "nobody shared", checks.Spec{Count: 6}, sharedPlan(), inconclusive},
}
