package checks_test

import (
	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
)

// traffic is one request of each ending: served at once, served after waiting, refused twice, cancelled, failed upstream.
func traffic() *hist {
	return history().served("ok1", 0, 1, 10).served("ok2", 0, 500, 600).refused("r1", 0, 5, 429, "full").refused("r2", 0, 900, 503, "late").
		left("x1", 0, 100).refused("u1", 0, 10, 404, "").backend("u1", "a", 1, 9, evidence.Failed)
}

// cutShort adds a request that runs when the router is shut down, and is cut.
func cutShort() *hist {
	return traffic().client("z1", 900, 2001, evidence.TransportError, 0, "").backend("z1", "a", 901, 2000, evidence.Aborted).step("shutdown", 2000, 2000)
}

var (
	conserve = checks.Spec{Needed: 6, Kinds: 3}
	internal = checks.Spec{Needed: 3, Statuses: []int{429, 503}}
	dispatch = checks.Spec{Needed: 3}
	declared = checks.Spec{Needed: 2, Reasons: []string{"full", "late"}}
	clean    = checks.Spec{Needed: 2}
	unseen   = checks.Spec{Needed: 2, Reason: "evicted"}
)

// unnamed is the check under a contract that documents reasons, but none for the refusals of one scenario.
func unnamed(scenario string) checks.Spec {
	return checks.Spec{Needed: 3, Statuses: []int{429, 503}, Reasons: []string{"full", "late"}, Unnamed: []string{scenario}}
}

func cutting(scenario string) checks.Spec {
	return checks.Spec{Needed: 3, Statuses: []int{429, 503}, Cut: []string{scenario}}
}

var wholeTrials = []trial{
	{"conservation", "passing", "every request has one ending on both sides", conserve, traffic(), pass},
	{"conservation", "failing", "two client records of one request", conserve, traffic().served("ok1", 0, 1, 10), fail},
	{"conservation", "failing", "a model server saw a request that nobody sent", conserve, traffic().unsent("ok1"), fail},
	{"conservation", "failing", "completed, but no model server finished it", conserve, traffic().unseen("ok1"), fail},
	{"conservation", "failing", "completed once, finished twice", conserve, traffic().backend("ok1", "b", 2, 9, evidence.Finished), fail},
	{"conservation", "failing", "refused, but a model server finished it", conserve, traffic().backend("r1", "a", 1, 4, evidence.Finished), fail},
	{"conservation", "failing", "a request never ended", conserve, traffic().client("z1", 0, 0, evidence.Unfinished, 0, ""), fail},
	{"conservation", "failing", "an ending nobody knows", conserve, traffic().client("z1", 0, 5, "", 200, ""), fail},
	{"conservation", "failing", "the client left, a model server still runs it", conserve, traffic().backend("x1", "a", 1, 0, evidence.Running), fail},
	{"conservation", "degenerate", "too few requests", checks.Spec{Needed: 7, Kinds: 3}, traffic(), inconclusive},
	{"conservation", "degenerate", "too few kinds of ending", checks.Spec{Needed: 6, Kinds: 4}, traffic(), inconclusive},
	{"conservation", "degenerate", "one request", conserve, history().served("ok1", 0, 1, 10), inconclusive},

	{"no-internal-errors", "passing", "refusals are declared, the upstream's answer is its own", internal, traffic(), pass},
	{"no-internal-errors", "failing", "a request hung", internal, traffic().client("z1", 0, 0, evidence.Unfinished, 0, ""), fail},
	{"no-internal-errors", "failing", "a connection was reset", internal, traffic().client("z1", 0, 5, evidence.TransportError, 0, ""), fail},
	{"no-internal-errors", "failing", "an undeclared answer", internal, traffic().refused("z1", 0, 5, 500, ""), fail},
	{"no-internal-errors", "failing", "a stream broke off that the model server finished", internal, traffic().client("z1", 0, 5, evidence.KilledMidStream, 200, "").backend("z1", "a", 1, 4, evidence.Finished), fail},
	{"no-internal-errors", "failing", "a stream broke off, and the model server saw its peer go", internal, traffic().client("z1", 0, 5, evidence.KilledMidStream, 200, "").backend("z1", "a", 1, 4, evidence.Aborted), fail},
	{"no-internal-errors", "failing", "a stream broke off that no model server knows", internal, traffic().client("z1", 0, 5, evidence.KilledMidStream, 200, ""), fail},
	{"no-internal-errors", "passing", "a stream that the model server itself failed", internal, traffic().client("z1", 0, 5, evidence.KilledMidStream, 200, "").backend("z1", "a", 1, 4, evidence.Failed), pass},
	{"no-internal-errors", "failing", "a refusal without a reason, where reasons are documented", checks.Spec{Needed: 3, Statuses: []int{429, 503}, Reasons: []string{"full", "late"}}, traffic().refused("z1", 0, 5, 429, ""), fail},
	{"no-internal-errors", "failing", "a 400 to a request that was well formed", internal, traffic().refused("z1", 0, 5, 400, ""), fail},
	{"no-internal-errors", "passing", "a 400 where malformed requests are sent", checks.Spec{Needed: 3, Statuses: []int{429, 503}, Malformed: []string{"hand-built"}}, traffic().refused("z1", 0, 5, 400, ""), pass},
	{"no-internal-errors", "failing", "a 400 where another scenario sends malformed requests", checks.Spec{Needed: 3, Statuses: []int{429, 503}, Malformed: []string{"other"}}, traffic().refused("z1", 0, 5, 400, ""), fail},
	{"no-internal-errors", "failing", "a 500 to a malformed request", checks.Spec{Needed: 3, Statuses: []int{429, 503}, Malformed: []string{"hand-built"}}, traffic().refused("z1", 0, 5, 500, ""), fail},
	{"no-internal-errors", "passing", "a refusal without a reason, where none is documented for its cause", unnamed("hand-built"), traffic().refused("z1", 0, 5, 429, ""), pass},
	{"no-internal-errors", "failing", "a refusal without a reason, and the exception is another scenario's", unnamed("other"), traffic().refused("z1", 0, 5, 429, ""), fail},
	{"no-internal-errors", "failing", "a 500 where refusals need no reason", unnamed("hand-built"), traffic().refused("z1", 0, 5, 500, ""), fail},
	{"no-internal-errors", "passing", "a stream that was evicted", cutting("hand-built"), traffic().client("z1", 0, 5, evidence.KilledMidStream, 200, "").backend("z1", "a", 1, 4, evidence.Aborted), pass},
	{"no-internal-errors", "failing", "a stream broke off, and another scenario lets streams be evicted", cutting("other"), traffic().client("z1", 0, 5, evidence.KilledMidStream, 200, "").backend("z1", "a", 1, 4, evidence.Aborted), fail},
	{"no-internal-errors", "failing", "a stream broke off that its model server finished, where streams are evicted", cutting("hand-built"), traffic().client("z1", 0, 5, evidence.KilledMidStream, 200, "").backend("z1", "a", 1, 4, evidence.Finished), fail},
	{"no-internal-errors", "passing", "cut by a shutdown without a drain window", checks.Spec{Needed: 3, Statuses: []int{429, 503}, Mode: "no-drain"}, cutShort(), pass},
	{"no-internal-errors", "failing", "cut by a shutdown that should have drained", internal, cutShort(), fail},
	{"no-internal-errors", "failing", "cut although its model server had finished before the shutdown", checks.Spec{Needed: 3, Statuses: []int{429, 503}, Mode: "no-drain"},
		cutShort().b("z1", func(b *evidence.Backend) { b.End = at(1000) }), fail},
	{"no-internal-errors", "degenerate", "nothing waited or was refused", internal, history().served("ok1", 0, 1, 10), inconclusive},
	{"no-internal-errors", "degenerate", "who has no arrival did not wait", checks.Spec{Needed: 1}, history().served("ok1", 0, 900, 910).b("ok1", arrivesNever), inconclusive},

	{"one-dispatch", "passing", "each id once", dispatch, traffic(), pass},
	{"one-dispatch", "failing", "one id twice", dispatch, traffic().backend("ok1", "b", 2, 9, evidence.Aborted), fail},
	{"one-dispatch", "degenerate", "too few arrivals", checks.Spec{Needed: 4}, traffic(), inconclusive},
	{"one-dispatch", "degenerate", "strangers are no arrivals of ours", dispatch, history().backend("z1", "a", 1, 2, evidence.Finished), inconclusive},

	{"declared-reasons", "passing", "only documented reasons", declared, traffic(), pass},
	{"declared-reasons", "failing", "an undocumented reason", declared, traffic().refused("z1", 0, 5, 429, "because"), fail},
	{"declared-reasons", "failing", "the profile documents none, one occurs", checks.Spec{Needed: 1}, traffic(), fail},
	{"declared-reasons", "degenerate", "too few refusals", checks.Spec{Needed: 3, Reasons: declared.Reasons}, traffic(), inconclusive},
	{"declared-reasons", "degenerate", "refusals without reasons", checks.Spec{Needed: 1, Reasons: declared.Reasons}, history().refused("r1", 0, 5, 429, ""), inconclusive},
	{"declared-reasons", "degenerate", "a model server's refusal is none of the router's", checks.Spec{Needed: 1, Reasons: declared.Reasons},
		history().refused("u1", 0, 5, 429, "full").backend("u1", "a", 1, 2, evidence.Failed), inconclusive},

	{"clean-refusals", "passing", "refusals are 429 and 503", clean, traffic(), pass},
	{"clean-refusals", "failing", "a refusal is a 500", clean, traffic().refused("z1", 0, 5, 500, ""), fail},
	{"clean-refusals", "failing", "a connection broke before any model server was reached", clean, traffic().client("z1", 0, 5, evidence.TransportError, 0, ""), fail},
	{"clean-refusals", "degenerate", "too few refusals", checks.Spec{Needed: 3}, traffic(), inconclusive},
	{"clean-refusals", "degenerate", "a malformed request's 400 is no refusal for load", checks.Spec{Needed: 1}, history().refused("m1", 0, 5, 400, ""), inconclusive},

	{"refused-unseen", "passing", "no refused request was seen", unseen, traffic(), pass},
	{"refused-unseen", "passing", "who was evicted in flight was seen, and says so", unseen, traffic().refused("e1", 0, 5, 429, "evicted").backend("e1", "a", 1, 4, evidence.Aborted), pass},
	{"refused-unseen", "failing", "a refused request was seen", unseen, traffic().backend("r1", "a", 1, 4, evidence.Aborted), fail},
	{"refused-unseen", "failing", "a refused request was seen at no instant", unseen, traffic().backend("r1", "a", 1, 4, evidence.Aborted).b("r1", arrivesNever), fail},
	{"refused-unseen", "degenerate", "too few refusals", checks.Spec{Needed: 3}, traffic(), inconclusive},
	{"refused-unseen", "degenerate", "no model server recorded anything", unseen, history().refused("r1", 0, 5, 429, "full").refused("r2", 0, 5, 429, "full"), inconclusive},
}
