package checks_test

import (
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
)

// full is a queue of one behind one slot, and a request over the limit, which is refused at once.
func full() *hist {
	return history().served("plug1", 0, 1, 1000).served("a1", 50, 1001, 1100).refused("over", 200, 210, 429, "rejected-saturated")
}

var overSpec = checks.Spec{IDs: []string{"over"}, Waiting: []string{"a1"}, Count: 1, Status: 429, Reason: "rejected-saturated", Max: 250 * time.Millisecond}

func over(f func(*checks.Spec)) checks.Spec { s := overSpec; f(&s); return s }

// expired is a queued request that the wait limit of one second refuses.
func expired() *hist {
	return history().served("plug1", 0, 1, 3000).refused("t1", 100, 1120, 503, "rejected-ttl-expired").step("before", 200, 900)
}

var ttlSpec = checks.Spec{IDs: []string{"t1"}, Mode: "any", Mark: "before", Count: 1, Min: time.Second, Max: 1200 * time.Millisecond}

// shutting is a queue that a shutdown answers.
func shutting() *hist {
	return history().served("plug1", 0, 1, 3000).refused("q1", 100, 1100, 503, "rejected-shutting-down").step("shutdown", 1000, 1000)
}

var shutSpec = checks.Spec{IDs: []string{"q1"}, After: "shutdown", Count: 1, Status: 503, Max: 500 * time.Millisecond}

// causes are two kinds of refusal, the second twice.
func causes() *hist {
	return history().refused("over", 0, 1, 429, "full").refused("t1", 0, 1000, 503, "late").refused("t2", 0, 1000, 503, "late")
}

var causeSpec = checks.Spec{Groups: [][]string{{"over"}, {"t1", "t2"}}, Reasons: []string{"full", "late"}}

// gone is a request whose client leaves while it runs.
func gone() *hist { return history().left("x", 0, 500).backend("x", "a", 1, 510, evidence.Aborted) }

var goneSpec = checks.Spec{IDs: []string{"x"}, Within: time.Second}

// calm are two that run on while one with a higher claim waits.
func calm() *hist {
	return history().served("r1", 0, 1, 6000).served("r2", 0, 2, 6000).served("hi", 100, 6001, 6100).step("blocked", 100, 5100)
}

// unnamedSpec is overSpec where the refusal must not name a reason.
var unnamedSpec = func() checks.Spec { s := overSpec; s.Mode, s.Reason = "unnamed", ""; return s }()

var besideSpec = checks.Spec{IDs: []string{"r1", "r2"}, Mark: "blocked"}

var calmSpec = checks.Spec{IDs: []string{"r1", "r2"}, Waiting: []string{"hi"}, Mark: "blocked"}

// displaced are two in flight, of which r2 is stopped for hi.
func displaced() *hist {
	return history().served("r1", 0, 1, 6000).client("r2", 0, 300, evidence.Refused, 429, "evicted").backend("r2", "a", 2, 300, evidence.Aborted).
		served("hi", 100, 310, 6100)
}

var displacedSpec = checks.Spec{IDs: []string{"r1", "r2"}, Then: []string{"hi"}, Count: 1, Status: 429, Reason: "evicted", Max: time.Second}

// cut is displaced with a victim whose stream has begun.
func cut() *hist {
	return displaced().c("r2", func(c *evidence.Client) {
		c.Outcome, c.Status, c.Reason, c.FirstToken, c.Events = evidence.KilledMidStream, 200, "", at(20), 5
	})
}

var cutSpec = displacing(func(s *checks.Spec) { s.Streamed = []string{"r2"} })

func displacing(f func(*checks.Spec)) checks.Spec { s := displacedSpec; f(&s); return s }

// upstream is a model server's own 404.
func upstream() *hist {
	return history().refused("u1", 0, 10, 404, "").backend("u1", "a", 1, 9, evidence.Failed)
}

var upstreamSpec = checks.Spec{IDs: []string{"u1"}, Status: 404}

// race is a wait limit that strikes one of two while capacity is freed for the other.
func race() *hist {
	return history().served("a1", 0, 900, 1000).refused("a2", 0, 1010, 503, "late").served("long", 0, 1, 6000)
}

var raceSpec = checks.Spec{IDs: []string{"a1", "a2"}, Min: time.Second}

var staySpec = checks.Spec{IDs: []string{"long"}, Min: 5 * time.Second}

var raceTrials = []trial{
	{"either", "passing", "one is served and one refused", raceSpec, race(), pass},
	{"either", "failing", "one is refused and served", raceSpec, race().backend("a2", "a", 1005, 1009, evidence.Aborted), fail},
	{"either", "failing", "one is refused too soon", raceSpec, race().c("a2", func(c *evidence.Client) { c.End = at(990) }), fail},
	{"either", "failing", "one is neither", raceSpec, race().c("a2", func(c *evidence.Client) { c.Outcome = evidence.TransportError }), fail},
	{"either", "failing", "one completes that no model server knows", raceSpec, race().unseen("a1"), fail},
	{"either", "degenerate", "all are served", checks.Spec{IDs: []string{"a1"}, Min: time.Second}, race(), inconclusive},
	{"either", "degenerate", "all are refused", checks.Spec{IDs: []string{"a2"}, Min: time.Second}, race(), inconclusive},
	{"either", "degenerate", "one was not sent", raceSpec, race().c("a1", sentNever), inconclusive},
	{"either", "degenerate", "a refusal at no instant", raceSpec, race().c("a2", endsNever), fail},
	{"either", "degenerate", "a record without an arrival", raceSpec, race().b("a1", arrivesNever), fail},
	{"either", "degenerate", "no wait is named", checks.Spec{IDs: raceSpec.IDs}, race(), inconclusive},

	{"stays", "passing", "it stays where it was dispatched", staySpec, race(), pass},
	{"stays", "failing", "it moves", staySpec, race().backend("long", "b", 3000, 6000, evidence.Finished), fail},
	{"stays", "failing", "it is aborted", staySpec, race().b("long", func(b *evidence.Backend) { b.Ending = evidence.Aborted }), fail},
	{"stays", "degenerate", "it was not dispatched", staySpec, race().unseen("long"), inconclusive},
	{"stays", "degenerate", "it ran too short to be moved", staySpec, race().b("long", func(b *evidence.Backend) { b.End = at(3000) }), inconclusive},
	{"stays", "degenerate", "it finished at no instant", staySpec, race().b("long", func(b *evidence.Backend) { b.End = evidence.Never }), inconclusive},
	{"stays", "degenerate", "a record without an arrival", staySpec, race().b("long", arrivesNever), inconclusive},
	{"stays", "degenerate", "a stranger that no client sent", staySpec, race().unsent("long"), inconclusive},
	{"stays", "degenerate", "no time is named", checks.Spec{IDs: staySpec.IDs}, race(), inconclusive},
}

var endingTrials = []trial{
	{"refused", "passing", "over the limit, at once", overSpec, full(), pass},
	{"refused", "passing", "by the wait limit, not before it is over", ttlSpec, expired(), pass},
	{"refused", "passing", "by a shutdown, counted from the shutdown", shutSpec, shutting(), pass},
	{"refused", "failing", "it completes", overSpec, full().unsent("over").served("over", 200, 201, 210), fail},
	{"refused", "failing", "a model server refused it, not the router", overSpec, full().backend("over", "a", 201, 209, evidence.Failed), fail},
	{"refused", "failing", "a model server knows it, at no instant", overSpec, full().backend("over", "a", 201, 209, evidence.Failed).b("over", arrivesNever), fail},
	{"refused", "failing", "another status", overSpec, full().c("over", func(c *evidence.Client) { c.Status = 503 }), fail},
	{"refused", "passing", "without a reason, where none belongs", unnamedSpec, full().c("over", func(c *evidence.Client) { c.Reason = "" }), pass},
	{"refused", "failing", "a reason where none belongs", unnamedSpec, full(), fail},
	{"refused", "failing", "another reason", overSpec, full().c("over", func(c *evidence.Client) { c.Reason = "" }), fail},
	{"refused", "failing", "too late", overSpec, full().c("over", func(c *evidence.Client) { c.End = at(500) }), fail},
	{"refused", "failing", "a transport error is no refusal", overSpec, full().c("over", func(c *evidence.Client) { c.Outcome, c.Status = evidence.TransportError, 0 }), fail},
	{"refused", "failing", "before the wait limit is over", ttlSpec, expired().c("t1", func(c *evidence.Client) { c.End = at(1000) }), fail},
	{"refused", "failing", "while it had to be waiting still", ttlSpec, expired().c("t1", func(c *evidence.Client) { c.End = at(400) }), fail},
	{"refused", "failing", "long after the shutdown", shutSpec, shutting().c("q1", func(c *evidence.Client) { c.End = at(1600) }), fail},
	{"refused", "degenerate", "the queue was not full", overSpec, full().b("a1", arrivesAt(100)), inconclusive},
	{"refused", "degenerate", "the waiting one was not sent", overSpec, full().unsent("a1"), inconclusive},
	{"refused", "degenerate", "nothing was in flight", overSpec, full().unseen("plug1"), inconclusive},
	{"refused", "degenerate", "the one in flight has no arrival", overSpec, full().b("plug1", arrivesNever), inconclusive},
	{"refused", "degenerate", "it was never sent", overSpec, full().c("over", sentNever), inconclusive},
	{"refused", "degenerate", "no instant of refusal", checks.Spec{IDs: []string{"over"}, Status: 429}, full().c("over", endsNever), inconclusive},
	{"refused", "degenerate", "refused before it was sent", checks.Spec{IDs: []string{"over"}, Status: 429}, full().c("over", func(c *evidence.Client) { c.End = at(100) }), inconclusive},
	{"refused", "degenerate", "the profile states no status", over(func(s *checks.Spec) { s.Status = 0 }), full(), unstated},
	{"refused", "degenerate", "no ids", over(func(s *checks.Spec) { s.IDs = nil }), full(), inconclusive},
	{"refused", "degenerate", "nobody watched it wait", ttlSpec, expired().without("before"), inconclusive},
	{"refused", "degenerate", "the watch took no time", ttlSpec, expired().without("before").step("before", 900, 900), inconclusive},
	{"refused", "degenerate", "no shutdown", shutSpec, shutting().without("shutdown"), inconclusive},
	{"refused", "degenerate", "answered before the shutdown", shutSpec, shutting().c("q1", func(c *evidence.Client) { c.End = at(900) }), inconclusive},

	{"reasons", "passing", "each cause has its name", causeSpec, causes(), pass},
	{"reasons", "failing", "no reason", causeSpec, causes().c("t2", func(c *evidence.Client) { c.Reason = "" }), fail},
	{"reasons", "failing", "an undocumented reason", causeSpec, causes().c("t2", func(c *evidence.Client) { c.Reason = "because" }), fail},
	{"reasons", "failing", "two causes with one name", causeSpec, causes().c("over", func(c *evidence.Client) { c.Reason = "late" }), fail},
	{"reasons", "failing", "the second of a group carries the other group's name", causeSpec, causes().c("t2", func(c *evidence.Client) { c.Reason = "full" }), fail},
	{"reasons", "degenerate", "one was not refused", causeSpec, causes().c("t1", func(c *evidence.Client) { c.Outcome = evidence.ClientCancelled }), inconclusive},
	{"reasons", "degenerate", "one was refused by a model server", causeSpec, causes().backend("t1", "a", 1, 2, evidence.Failed), inconclusive},
	{"reasons", "degenerate", "one kind of refusal", checks.Spec{Groups: [][]string{{"over"}}, Reasons: causeSpec.Reasons}, causes(), inconclusive},
	{"reasons", "degenerate", "an empty group", checks.Spec{Groups: [][]string{{}, {"t1"}}, Reasons: causeSpec.Reasons}, causes(), inconclusive},
	{"reasons", "degenerate", "no groups", checks.Spec{Reasons: causeSpec.Reasons}, causes(), inconclusive},

	{"aborted", "passing", "aborted soon after its client left", goneSpec, gone(), pass},
	{"aborted", "failing", "the model server finished it", goneSpec, gone().b("x", func(b *evidence.Backend) { b.Ending = evidence.Finished }), fail},
	{"aborted", "failing", "the model server still runs it", goneSpec, gone().b("x", func(b *evidence.Backend) { b.Ending, b.End = evidence.Running, evidence.Never }), fail},
	{"aborted", "failing", "aborted too late", goneSpec, gone().b("x", func(b *evidence.Backend) { b.End = at(1501) }), fail},
	{"aborted", "degenerate", "aborted long before its client left", goneSpec, gone().b("x", func(b *evidence.Backend) { b.End = at(300) }), inconclusive},
	{"aborted", "degenerate", "aborted at no instant", goneSpec, gone().b("x", func(b *evidence.Backend) { b.End = evidence.Never }), inconclusive},
	{"aborted", "degenerate", "it was not at a model server yet", goneSpec, gone().b("x", arrivesAt(505)), inconclusive},
	{"aborted", "degenerate", "a record without an arrival", goneSpec, gone().b("x", arrivesNever), inconclusive},
	{"aborted", "degenerate", "it was never at a model server", goneSpec, gone().unseen("x"), inconclusive},
	{"aborted", "degenerate", "its client did not leave", goneSpec, gone().c("x", func(c *evidence.Client) { c.Outcome = evidence.Completed }), inconclusive},
	{"aborted", "degenerate", "no ids", checks.Spec{Within: time.Second}, gone(), inconclusive},

	{"aborted", "passing", "a stream that had begun", checks.Spec{IDs: []string{"x"}, Streamed: []string{"x"}, Within: time.Second}, gone().c("x", func(c *evidence.Client) { c.FirstToken = at(10) }), pass},
	{"aborted", "degenerate", "a stream that had not begun", checks.Spec{IDs: []string{"x"}, Streamed: []string{"x"}, Within: time.Second}, gone(), inconclusive},

	{"together", "passing", "both run at once", besideSpec, calm(), pass},
	{"together", "failing", "one still waits", besideSpec, calm().unseen("r2"), fail},
	{"together", "failing", "one arrives afterwards", besideSpec, calm().b("r2", arrivesAt(5101)), fail},
	{"together", "failing", "one has already ended", besideSpec, calm().b("r2", func(b *evidence.Backend) { b.End = at(5100) }), fail},
	{"together", "degenerate", "one has no arrival", besideSpec, calm().b("r2", arrivesNever), fail},
	{"together", "degenerate", "one was not sent", besideSpec, calm().c("r2", sentNever), inconclusive},
	{"together", "degenerate", "one is not together", checks.Spec{IDs: []string{"r1"}, Mark: "blocked"}, calm(), inconclusive},
	{"together", "degenerate", "nobody watched", checks.Spec{IDs: []string{"r1", "r2"}, Mark: "other"}, calm(), inconclusive},
	{"undisturbed", "passing", "they run on while demand waits", calmSpec, calm(), pass},
	{"undisturbed", "failing", "one is stopped while demand waits", calmSpec, calm().b("r2", func(b *evidence.Backend) { b.End, b.Ending = at(2000), evidence.Aborted }), fail},
	{"undisturbed", "failing", "one is aborted afterwards", calmSpec, calm().b("r2", func(b *evidence.Backend) { b.Ending = evidence.Aborted }), fail},
	{"undisturbed", "failing", "one does not complete at its client", calmSpec, calm().c("r2", func(c *evidence.Client) { c.Outcome = evidence.KilledMidStream }), fail},
	{"undisturbed", "failing", "the demand is let in beside them", calmSpec, calm().b("hi", arrivesAt(3000)), fail},
	{"undisturbed", "degenerate", "one was not in flight", calmSpec, calm().b("r2", arrivesAt(200)), inconclusive},
	{"undisturbed", "degenerate", "one has no arrival", calmSpec, calm().b("r2", arrivesNever), inconclusive},
	{"undisturbed", "degenerate", "no demand", checks.Spec{IDs: calmSpec.IDs, Mark: "blocked"}, calm(), inconclusive},
	{"undisturbed", "degenerate", "nothing in flight", checks.Spec{Waiting: calmSpec.Waiting, Mark: "blocked"}, calm(), inconclusive},
	{"undisturbed", "degenerate", "the demand was not sent", calmSpec, calm().c("hi", sentNever), inconclusive},
	{"undisturbed", "degenerate", "nobody watched", calmSpec, calm().without("blocked"), inconclusive},

	{"evicted", "passing", "one is stopped and the demand takes its place", displacedSpec, displaced(), pass},
	{"evicted", "failing", "nobody is stopped", displacedSpec, displaced().unsent("r2").unseen("r2").served("r2", 0, 2, 6000), fail},
	{"evicted", "failing", "both are stopped", displacedSpec, displaced().c("r1", func(c *evidence.Client) {
		c.Outcome, c.Status, c.Reason, c.End = evidence.Refused, 429, "evicted", at(300)
	}).
		b("r1", func(b *evidence.Backend) { b.Ending, b.End = evidence.Aborted, at(300) }), fail},
	{"evicted", "failing", "another status", displacedSpec, displaced().c("r2", func(c *evidence.Client) { c.Status = 503 }), fail},
	{"evicted", "failing", "another reason", displacedSpec, displaced().c("r2", func(c *evidence.Client) { c.Reason = "" }), fail},
	{"evicted", "failing", "the model server was not told", displacedSpec, displaced().b("r2", func(b *evidence.Backend) { b.Ending = evidence.Finished }), fail},
	{"evicted", "failing", "it is stopped too late", displacedSpec, displaced().c("r2", func(c *evidence.Client) { c.End = at(1101) }), fail},
	{"evicted", "failing", "the demand is not served", displacedSpec, displaced().unseen("hi"), fail},
	{"evicted", "failing", "the demand is served late", displacedSpec, displaced().b("hi", arrivesAt(1101)), fail},
	{"evicted", "degenerate", "the demand has no arrival", displacedSpec, displaced().b("hi", arrivesNever), fail},
	{"evicted", "degenerate", "it had ended before the demand came", displacedSpec, displaced().b("r2", func(b *evidence.Backend) { b.End = at(50) }), inconclusive},
	{"evicted", "degenerate", "its client saw the end before the demand came", displacedSpec, displaced().c("r2", func(c *evidence.Client) { c.End = at(50) }), fail},
	{"evicted", "degenerate", "it has no arrival", displacedSpec, displaced().b("r2", arrivesNever), inconclusive},
	{"evicted", "degenerate", "no demand was sent", displacedSpec, displaced().c("hi", sentNever), inconclusive},
	{"evicted", "degenerate", "no victims are expected", displacing(func(s *checks.Spec) { s.Count = 0 }), displaced(), inconclusive},
	{"evicted", "degenerate", "no demand is named", displacing(func(s *checks.Spec) { s.Then = nil }), displaced(), inconclusive},
	{"evicted", "passing", "one more than needed, which is allowed", displacing(func(s *checks.Spec) { s.Slack = 1 }), displaced().c("r1", func(c *evidence.Client) {
		c.Outcome, c.Status, c.Reason, c.End = evidence.Refused, 429, "evicted", at(300)
	}).b("r1", func(b *evidence.Backend) { b.Ending, b.End = evidence.Aborted, at(300) }), pass},
	{"evicted", "failing", "nobody is stopped, although one more is allowed", displacing(func(s *checks.Spec) { s.Slack = 1 }),
		displaced().unsent("r2").unseen("r2").served("r2", 0, 2, 6000), fail},
	{"evicted", "passing", "a stream breaks off", cutSpec, cut(), pass},
	{"evicted", "failing", "a cut stream looks complete", cutSpec, cut().c("r2", func(c *evidence.Client) { c.Outcome = evidence.Completed }), fail},
	{"evicted", "failing", "a stream ends with a status of its own", cutSpec, cut().c("r2", func(c *evidence.Client) { c.Outcome = evidence.Refused }), fail},
	{"evicted", "degenerate", "the stream had not begun", cutSpec, cut().c("r2", func(c *evidence.Client) { c.FirstToken = evidence.Never }), inconclusive},
	{"evicted", "degenerate", "the stream began after the demand", cutSpec, cut().c("r2", func(c *evidence.Client) { c.FirstToken = at(101) }), inconclusive},
	{"evicted", "passing", "the model server stops in time", displacing(func(s *checks.Spec) { s.Within = time.Second }), displaced(), pass},
	{"evicted", "failing", "the model server stops late", displacing(func(s *checks.Spec) { s.Within = time.Second }),
		displaced().b("r2", func(b *evidence.Backend) { b.End = at(1301) }), fail},
	{"evicted", "degenerate", "the model server stops at no instant", displacing(func(s *checks.Spec) { s.Within = time.Second }),
		displaced().b("r2", func(b *evidence.Backend) { b.End = evidence.Never }), fail},
	{"evicted", "degenerate", "the profile states no status", displacing(func(s *checks.Spec) { s.Status, s.Reason = 0, "" }), displaced().unsent("r2"), unstated},

	{"upstream-error", "passing", "the model server's 404 is passed on", upstreamSpec, upstream(), pass},
	{"upstream-error", "failing", "another text", upstreamSpec, upstream().c("u1", func(c *evidence.Client) { c.Text = "sorry" }), fail},
	{"upstream-error", "failing", "another status", upstreamSpec, upstream().c("u1", func(c *evidence.Client) { c.Status = 502 }), fail},
	{"upstream-error", "failing", "the router adds a reason of its own", upstreamSpec, upstream().c("u1", func(c *evidence.Client) { c.Reason = "rejected-saturated" }), fail},
	{"upstream-error", "failing", "the client saw a success", upstreamSpec, upstream().c("u1", func(c *evidence.Client) { c.Outcome, c.Status = evidence.Completed, 200 }), fail},
	{"upstream-error", "degenerate", "the model server did not fail it", upstreamSpec, upstream().b("u1", func(b *evidence.Backend) { b.Ending = evidence.Finished }), inconclusive},
	{"upstream-error", "degenerate", "the router refused it itself", upstreamSpec, upstream().unseen("u1"), inconclusive},
	{"upstream-error", "degenerate", "a record without an arrival", upstreamSpec, upstream().b("u1", arrivesNever), inconclusive},
	{"upstream-error", "degenerate", "no client record", upstreamSpec, upstream().unsent("u1"), inconclusive},
	{"upstream-error", "degenerate", "no ids", checks.Spec{Status: 404}, upstream(), inconclusive},
}
