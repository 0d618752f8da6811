package checks_test

import (
	"slices"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
)

// nth changes one attempt of a message.
func (h *hist) nth(id string, n int, f func(*evidence.Attempt)) *hist {
	return h.each(attempts(id, func(a *evidence.Attempt) {
		if a.Nth == n {
			f(a)
		}
	}))
}

func answered(status int, reason string) func(*evidence.Attempt) {
	return func(a *evidence.Attempt) { a.Status, a.Reason = status, reason }
}

func unanswered(a *evidence.Attempt) {
	a.End, a.Ending, a.Status, a.Reason = evidence.Never, evidence.Inside, 0, ""
}

func brokenOff(a *evidence.Attempt) { a.Ending = evidence.BrokenOff }

// triedAgain are two batch messages of which the first is evicted, tried again and served.
func triedAgain() *hist {
	return history().step("up", 0, 5).submit(10, "b0", "b1").step("in", 6, 20).arrive("b0", 100, 500).arrive("b1", 110, 900).nth("b0", 1, answered(429, wire.ReasonEvicted)).
		step("evicted", 20, 510).arrive("b0", 4600, 4700).result(901, "b1", 200).result(4701, "b0", 200).step("results", 510, 4710)
}

// none are two messages of which neither is ever served.
func none() *hist {
	return triedAgain().nth("b0", 2, answered(429, wire.ReasonEvicted)).nth("b1", 1, answered(503, ""))
}

var (
	evictedOnce = checks.Async{Status: 429, Codes: []string{wire.ReasonEvicted}, Min: 1, Max: 1}
	neverServed = checks.Async{Status: 200}
	cutOnce     = checks.Async{IDs: []string{"b1"}, Status: 200, Shape: evidence.BrokenOff, Min: 1, Max: 1}
)

var answerTrials = []trial{
	{"async-answers", "passing", "one eviction", asked(evictedOnce), triedAgain(), pass},
	{"async-answers", "passing", "two were served", asked(checks.Async{Status: 200, Min: 2, Max: 2}), triedAgain(), pass},
	{"async-answers", "passing", "at least one refusal, whatever its reason", asked(checks.Async{Status: 429, Min: 1, Max: -1}), triedAgain(), pass},
	{"async-answers", "passing", "one of two reasons", askedWith(evictedOnce, func(a *checks.Async) { a.Codes = []string{"full", wire.ReasonEvicted} }), triedAgain(), pass},
	{"async-answers", "passing", "nothing was served", asked(neverServed), none(), pass},
	{"async-answers", "passing", "of a prefix", askedWith(evictedOnce, func(a *checks.Async) { a.IDs = []string{"b*"} }), triedAgain().submit(10, "c").arrive("c", 200, 300).nth("c", 1, answered(429, wire.ReasonEvicted)), pass},
	{"async-answers", "passing", "an answer that broke off", asked(cutOnce), triedAgain().nth("b1", 1, brokenOff), pass},
	{"async-answers", "passing", "one eviction and no results", asked(evictedOnce), triedAgain().forget(func(o evidence.Observation) bool { return o.Result != nil }), pass},
	{"async-answers", "passing", "enough were served, and one is still inside", asked(checks.Async{Status: 200, Min: 1, Max: -1}), triedAgain().nth("b0", 2, unanswered), pass},
	{"async-answers", "failing", "evicted twice", asked(evictedOnce), triedAgain().nth("b1", 1, answered(429, wire.ReasonEvicted)), fail},
	{"async-answers", "failing", "not evicted", asked(evictedOnce), triedAgain().nth("b0", 1, answered(200, "")), fail},
	{"async-answers", "failing", "refused for another reason", asked(evictedOnce), triedAgain().nth("b0", 1, answered(429, "full")), fail},
	{"async-answers", "failing", "refused without a reason", asked(evictedOnce), triedAgain().nth("b0", 1, answered(429, "")), fail},
	{"async-answers", "failing", "the reason with another status", asked(evictedOnce), triedAgain().nth("b0", 1, answered(503, wire.ReasonEvicted)), fail},
	{"async-answers", "failing", "one was served although none must be", asked(neverServed), triedAgain(), fail},
	{"async-answers", "failing", "one was served although none must be, and another is still inside", asked(neverServed), triedAgain().nth("b0", 2, unanswered), fail},
	{"async-answers", "failing", "a whole answer in the place of one that broke off", asked(cutOnce), triedAgain(), fail},
	{"async-answers", "failing", "another's answer broke off", asked(cutOnce), triedAgain().nth("b0", 2, brokenOff), fail},
	{"async-answers", "failing", "too few, and one is still inside", asked(checks.Async{Status: 200, Min: 2, Max: -1}), triedAgain().nth("b0", 2, unanswered), fail},
	{"async-answers", "degenerate", "none was served, but one is still inside", asked(neverServed), none().nth("b1", 1, unanswered), inconclusive},
	{"async-answers", "degenerate", "evicted once, and one is still inside", asked(evictedOnce), triedAgain().nth("b0", 2, unanswered), inconclusive},
	{"async-answers", "degenerate", "no attempt was made", asked(neverServed), triedAgain().forget(isWork), inconclusive},
	{"async-answers", "degenerate", "no attempt for the ids was made", askedWith(neverServed, func(a *checks.Async) { a.IDs = []string{"b1"} }), triedAgain().forget(isAttempt("b1")), inconclusive},
	{"async-answers", "degenerate", "nothing was submitted", asked(evictedOnce), triedAgain().forget(isMessage("b0")).forget(isMessage("b1")), inconclusive},
	{"async-answers", "degenerate", "one of the ids was not submitted", askedWith(evictedOnce, func(a *checks.Async) { a.IDs = []string{"b*", "c"} }), triedAgain(), inconclusive},
	{"async-answers", "degenerate", "any number would do", askedWith(evictedOnce, func(a *checks.Async) { a.Min, a.Max = 0, -1 }), triedAgain(), inconclusive},
	{"async-answers", "passing", "whatever the status, by its reason", askedWith(evictedOnce, func(a *checks.Async) { a.Status = 0 }), triedAgain(), pass},
	{"async-answers", "degenerate", "no answer ends so", askedWith(neverServed, func(a *checks.Async) { a.Shape = "http" }), triedAgain(), inconclusive},
	{"async-answers", "degenerate", "what is inside has no answer", askedWith(neverServed, func(a *checks.Async) { a.Shape = evidence.Inside }), triedAgain(), inconclusive},
	{"async-answers", "degenerate", "one ended before it arrived", asked(evictedOnce), triedAgain().nth("b0", 1, func(a *evidence.Attempt) { a.End = at(50) }), inconclusive},
}

// chosen are a batch message that was tried first, and two requests of clients that came after it. A plug has the one place until 1000; they
// are let in as one names them.
func chosen(order ...string) *hist {
	h := history().served("plug", 0, 1, 1000).submit(10, "batch").step("up", 10, 20).step("released", 300, 1000)
	sent := map[string]int{"batch": 100, "zero": 150, "hi": 200}
	h.arrive("batch", sent["batch"], -1)
	for i, id := range order {
		begin, end := 1001+100*i, 1100+100*i
		if id != "batch" {
			h.served(id, sent[id], begin, end)
			continue
		}
		h.backend(id, "a", begin, end, evidence.Finished).nth(id, 1, func(a *evidence.Attempt) { a.End, a.Ending, a.Status = at(end+1), evidence.Answered, 200 })
	}
	return h.step("step", 1000, 1300)
}

var batchLast = checks.Async{Shape: "order", Order: words("hi zero batch")}

var inOrderTrials = []trial{
	{"async-served", "passing", "batch comes last, though it was there first", asked(batchLast), chosen(batchLast.Order...), pass},
	{"async-served", "passing", "in the window", askedWith(batchLast, func(a *checks.Async) { a.From, a.To = "released", "step" }), chosen(batchLast.Order...), pass},
	{"async-served", "passing", "two of three", asked(checks.Async{Shape: "order", Order: words("hi batch")}), chosen(batchLast.Order...), pass},
	{"async-served", "passing", "a second arrival has no place in it", asked(batchLast), chosen(batchLast.Order...).backend("hi", "a", 1250, 1260, evidence.Finished), pass},
	{"async-served", "failing", "batch comes as one that has no objective", asked(batchLast), chosen(words("hi batch zero")...), fail},
	{"async-served", "failing", "batch comes first", asked(batchLast), chosen(words("batch hi zero")...), fail},
	{"async-served", "failing", "two of three are exchanged", asked(checks.Async{Shape: "order", Order: words("hi batch")}), chosen(words("batch hi zero")...), fail},
	{"async-served", "degenerate", "batch was tried only after the first had been let in", asked(batchLast), chosen(batchLast.Order...).each(func(o *evidence.Observation) {
		if o.Attempt != nil {
			o.At = at(1050)
		}
	}), inconclusive},
	{"async-served", "degenerate", "batch was there once, and had gone", asked(batchLast), chosen(batchLast.Order...).nth("batch", 1, func(a *evidence.Attempt) { a.End = at(400) }), inconclusive},
	{"async-served", "degenerate", "nobody tried batch", asked(batchLast), chosen(batchLast.Order...).forget(isWork), inconclusive},
	{"async-served", "degenerate", "no client sent one", asked(batchLast), chosen(batchLast.Order...).unsent("zero"), inconclusive},
	{"async-served", "degenerate", "one was sent only after the first had been let in", asked(batchLast), chosen(batchLast.Order...).c("zero", func(c *evidence.Client) { c.Sent = at(1050) }), inconclusive},
	{"async-served", "degenerate", "one was sent at no instant", asked(batchLast), chosen(batchLast.Order...).c("zero", sentNever), inconclusive},
	{"async-served", "degenerate", "the last did not come", asked(batchLast), chosen(words("hi zero")...), inconclusive},
	{"async-served", "degenerate", "the last came at no instant", asked(batchLast), chosen(batchLast.Order...).b("batch", arrivesNever), inconclusive},
	{"async-served", "degenerate", "two came at one instant", asked(batchLast), chosen(batchLast.Order...).b("batch", arrivesAt(1101)), inconclusive},
	{"async-served", "degenerate", "the last came when the window was over", askedWith(batchLast, func(a *checks.Async) { a.To = "step" }), chosen(batchLast.Order...).b("batch", arrivesAt(1301)), inconclusive},
	{"async-served", "degenerate", "the window was not reached", askedWith(batchLast, func(a *checks.Async) { a.From = "later" }), chosen(batchLast.Order...), inconclusive},
	{"async-served", "degenerate", "the window's begin missed its barrier", askedWith(batchLast, func(a *checks.Async) { a.From = "released" }), chosen(batchLast.Order...).broken("released"), inconclusive},
	{"async-served", "degenerate", "an order of one", asked(checks.Async{Shape: "order", Order: []string{"batch"}}), chosen(batchLast.Order...), inconclusive},
	{"async-served", "degenerate", "no order", asked(checks.Async{Shape: "order"}), chosen(batchLast.Order...), inconclusive},
	{"async-served", "degenerate", "no shape", asked(checks.Async{Order: batchLast.Order}), chosen(batchLast.Order...), inconclusive},
	{"async-served", "degenerate", "a shape that nobody knows", askedWith(batchLast, func(a *checks.Async) { a.Shape = "round" }), chosen(batchLast.Order...), inconclusive},
	{"async-served", "degenerate", "the model servers saw nothing", asked(batchLast), chosen(), inconclusive},
}

// twoTenants are six messages of a and two of b that wait until 200, and come then as one names them, one every ten milliseconds.
func twoTenants(order string) *hist {
	h := history().served("plug", 0, 1, 200).submit(10, ids("a", 6)...).submit(12, ids("b", 2)...).step("up", 10, 20)
	for i, id := range slices.Concat(ids("a", 6), ids("b", 2)) {
		h.arrive(id, 100+i, 5000)
	}
	h.step("released", 110, 150)
	for i, id := range words(order) {
		h.backend(id, "a", 201+10*i, 210+10*i, evidence.Finished)
	}
	return h.step("done", 150, 1000).step("later", 1000, 2000)
}

func begins(id string, ms int) func(*evidence.Observation) {
	return func(o *evidence.Observation) {
		if o.Attempt != nil && o.Attempt.ID == id {
			o.At = at(ms)
		}
	}
}

const takingTurns = "a0 b0 a1 b1 a2 a3 a4 a5"

var amongFour = checks.Async{Shape: "first", IDs: []string{"b*"}, From: "released", Max: 4}

var firstTrials = []trial{
	{"async-served", "passing", "both are among the first four", asked(amongFour), twoTenants(takingTurns), pass},
	{"async-served", "passing", "one of them is the fourth", asked(amongFour), twoTenants("a0 a1 b0 b1 a2 a3 a4 a5"), pass},
	{"async-served", "failing", "one of them is the fifth", asked(amongFour), twoTenants("a0 b0 a1 a2 b1 a3 a4 a5"), fail},
	{"async-served", "failing", "they come last", asked(amongFour), twoTenants("a0 a1 a2 a3 a4 a5 b0 b1"), fail},
	{"async-served", "failing", "one of them does not come", asked(amongFour), twoTenants("a0 b0 a1 a2 a3 a4 a5"), fail},
	{"async-served", "degenerate", "one of them came late", asked(amongFour), twoTenants("a0 b0 a1 a2 b1 a3 a4 a5").each(begins("b1", 230)), inconclusive},
	{"async-served", "degenerate", "no more waited than were to be first", asked(amongFour), twoTenants("a0 b0 a1 b1"), inconclusive},
	{"async-served", "degenerate", "the others came late", asked(amongFour), twoTenants(takingTurns).each(begins("a2", 160)).each(begins("a3", 160)).each(begins("a4", 160)).each(begins("a5", 160)), inconclusive},
	{"async-served", "degenerate", "two that came twice are not more", asked(amongFour), twoTenants("a0 b0 a0 a1 b1 a0 a1"), inconclusive},
	{"async-served", "degenerate", "the fourth and the fifth came at one instant", asked(amongFour), twoTenants(takingTurns).b("a2", arrivesAt(231)), inconclusive},
	{"async-served", "degenerate", "more than there is place for", askedWith(amongFour, func(a *checks.Async) { a.Max = 1 }), twoTenants(takingTurns), inconclusive},
	{"async-served", "degenerate", "no place", askedWith(amongFour, func(a *checks.Async) { a.Max = 0 }), twoTenants(takingTurns), inconclusive},
	{"async-served", "degenerate", "one of the ids was not submitted", askedWith(amongFour, func(a *checks.Async) { a.IDs = []string{"b*", "c*"} }), twoTenants(takingTurns), inconclusive},
	{"async-served", "degenerate", "nothing was tried", asked(amongFour), twoTenants(takingTurns).forget(isWork), inconclusive},
	{"async-served", "degenerate", "from the scenario's begin on, when nothing waited", askedWith(amongFour, func(a *checks.Async) { a.From = "" }), twoTenants(takingTurns), inconclusive},
	{"async-served", "degenerate", "nothing came in the window", askedWith(amongFour, func(a *checks.Async) { a.From = "done" }), twoTenants(takingTurns), inconclusive},
	{"async-served", "degenerate", "the window was not reached", asked(amongFour), twoTenants(takingTurns).without("released"), inconclusive},
}

// overrun are two messages whose deadlines pass: of one at its model server, of the other before it comes to any.
func overrun() *hist {
	h := history().submit(10, "running", "queued").step("up", 10, 20).arrive("running", 50, 2000).arrive("queued", 100, 2050).backend("running", "a", 51, 2001, evidence.Aborted)
	for _, id := range words("running queued") {
		h.nth(id, 1, func(a *evidence.Attempt) { a.Ending, a.Status = evidence.Dropped, 0 }).failure(2060, id, "DEADLINE_EXCEEDED")
	}
	return h.step("given-up", 20, 2100).step("watched", 2100, 3000)
}

func runningIs(f func(*evidence.Backend)) *hist { return overrun().b("running", f) }

var (
	neverCame = checks.Async{Shape: "never", IDs: []string{"queued"}}
	wasLeft   = checks.Async{Shape: "aborted", IDs: []string{"running"}}
)

var leftTrials = []trial{
	{"async-served", "passing", "one never came", asked(neverCame), overrun(), pass},
	{"async-served", "passing", "one never came, tried twice", asked(neverCame), overrun().arrive("queued", 2100, 2200), pass},
	{"async-served", "passing", "a client's request of a name like it is another's", askedWith(neverCame, func(a *checks.Async) { a.IDs = []string{"q*"} }), overrun().served("quick", 0, 1, 10), pass},
	{"async-served", "failing", "it came", asked(neverCame), overrun().backend("queued", "a", 2900, 2950, evidence.Finished), fail},
	{"async-served", "failing", "it came and was aborted", asked(neverCame), overrun().backend("queued", "a", 2049, 2051, evidence.Aborted), fail},
	{"async-served", "failing", "it came at no instant", asked(neverCame), overrun().backend("queued", "a", 2900, 2950, evidence.Finished).b("queued", arrivesNever), fail},
	{"async-served", "failing", "one of all came", asked(checks.Async{Shape: "never"}), overrun(), fail},
	{"async-served", "degenerate", "it was not tried", asked(neverCame), overrun().forget(isAttempt("queued")), inconclusive},
	{"async-served", "degenerate", "one of two was not tried", askedWith(neverCame, func(a *checks.Async) { a.IDs = []string{"queued", "n"} }), overrun().submit(10, "n"), inconclusive},
	{"async-served", "degenerate", "it is still on its way", asked(neverCame), overrun().nth("queued", 1, unanswered), inconclusive},
	{"async-served", "degenerate", "it was tried again, and is still on its way", asked(neverCame), overrun().arrive("queued", 2500, -1), inconclusive},
	{"async-served", "degenerate", "it was not submitted", asked(neverCame), overrun().forget(isMessage("queued")), inconclusive},
	{"async-served", "degenerate", "the model servers saw nothing at all", asked(neverCame), overrun().unseen("running"), inconclusive},

	{"async-served", "passing", "its peer went away", asked(wasLeft), overrun(), pass},
	{"async-served", "passing", "it was tried twice, and its peer went away twice", asked(wasLeft), overrun().backend("running", "b", 2500, 2600, evidence.Aborted), pass},
	{"async-served", "failing", "it was served", asked(wasLeft), runningIs(func(b *evidence.Backend) { b.Ending = evidence.Finished }), fail},
	{"async-served", "failing", "it still runs", asked(wasLeft), runningIs(func(b *evidence.Backend) { b.End, b.Ending = evidence.Never, evidence.Running }), fail},
	{"async-served", "failing", "it failed", asked(wasLeft), runningIs(func(b *evidence.Backend) { b.Ending = evidence.Failed }), fail},
	{"async-served", "failing", "it came again and was served", asked(wasLeft), overrun().backend("running", "b", 2500, 2600, evidence.Finished), fail},
	{"async-served", "degenerate", "one of two did not come", askedWith(wasLeft, func(a *checks.Async) { a.IDs = nil }), overrun(), inconclusive},
	{"async-served", "degenerate", "it did not come, but others did", asked(wasLeft), overrun().unseen("running").served("hi", 0, 1, 10), inconclusive},
	{"async-served", "degenerate", "it came at no instant", asked(wasLeft), runningIs(arrivesNever), inconclusive},
	{"async-served", "degenerate", "its peer went away at no instant", asked(wasLeft), runningIs(func(b *evidence.Backend) { b.End = evidence.Never }), inconclusive},
	{"async-served", "degenerate", "it came before the window began", askedWith(wasLeft, func(a *checks.Async) { a.From = "given-up" }), overrun(), inconclusive},
	{"async-served", "degenerate", "it was not submitted", asked(wasLeft), overrun().forget(isMessage("running")), inconclusive},
	{"async-served", "degenerate", "nothing was submitted", asked(checks.Async{Shape: "aborted"}), overrun().forget(isMessage("running")).forget(isMessage("queued")), inconclusive},
}

var asyncChainTrials = slices.Concat(answerTrials, inOrderTrials, firstTrials, leftTrials)
