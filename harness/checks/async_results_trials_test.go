package checks_test

import (
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
)

var (
	allFine  = checks.Async{Status: 200, List: "results", Texts: map[string]string{"m0": "fine"}, Shape: "http"}
	tooLate  = checks.Async{IDs: []string{"late"}, Codes: []string{"DEADLINE_EXCEEDED"}, Shape: "error"}
	shedding = checks.Async{IDs: []string{"shed"}, Shape: "dropped"}
)

// late is a message that ends without having been sent, beside the ones that were handled.
func late() *hist { return handled().submit(10, "late").failure(60, "late", "DEADLINE_EXCEEDED") }

// shed is a message that a gate drops with an answer of its own.
func shed(payload string) *hist {
	return handled().submit(10, "shed").final(60, evidence.FinalResult{ID: "shed", Payload: payload, Raw: "{}"})
}

var answeredOrLate = checks.Async{Codes: []string{"DEADLINE_EXCEEDED", ""}, Status: 200}

var containing = checks.Async{Contains: []string{"one", "done"}}

// sentenced lets both results have a payload.
func sentenced(payload string) *hist {
	return handled().each(func(o *evidence.Observation) {
		if o.Result != nil {
			o.Result.Payload = payload
		}
	})
}

func lateIs(f func(*evidence.FinalResult)) *hist { return late().each(results("late", f)) }

func fineIs(f func(*evidence.FinalResult)) *hist { return handled().each(results("m0", f)) }

var resultTrials = []trial{
	{"async-results", "passing", "each has one", asked(allFine), handled(), pass},
	{"async-results", "passing", "an error in its form", asked(tooLate), late(), pass},
	{"async-results", "passing", "one of several codes, of which one is none", asked(answeredOrLate), late(), pass},
	{"async-results", "failing", "neither a code nor a status, where either is asked for", asked(answeredOrLate), lateIs(func(v *evidence.FinalResult) { v.Code, v.Message = "", "" }), fail},
	{"async-results", "failing", "another status, where one or an error is asked for", asked(answeredOrLate), fineIs(func(v *evidence.FinalResult) { v.Status = 503 }), fail},
	{"async-results", "failing", "an error without a message, where either is asked for", asked(answeredOrLate), lateIs(func(v *evidence.FinalResult) { v.Message = "" }), fail},
	{"async-results", "passing", "dropped with 429 in its payload", asked(shedding), shed(`{"code":429}`), pass},
	{"async-results", "passing", "dropped with status 429", asked(shedding), shed(`{}`).each(results("shed", func(v *evidence.FinalResult) { v.Status = 429 })), pass},
	{"async-results", "passing", "with all that each must contain", asked(containing), sentenced("one, two, done"), pass},
	{"async-results", "passing", "with what an error must contain", askedWith(tooLate, func(a *checks.Async) { a.Contains = []string{`"error"`} }), late(), pass},
	{"async-results", "failing", "without one of two texts", asked(containing), sentenced("one, two"), fail},
	{"async-results", "failing", "with the texts in other letters", asked(containing), sentenced("One, Done"), fail},
	{"async-results", "failing", "with nothing in it", asked(containing), sentenced(""), fail},
	{"async-results", "failing", "the first contains it, the second does not", asked(containing), sentenced("one, done").each(results("m1", func(v *evidence.FinalResult) { v.Payload = "one" })), fail},
	{"async-results", "failing", "what it must contain is there, but not in its payload", asked(containing), sentenced("fine").each(results("m0", func(v *evidence.FinalResult) { v.Raw, v.Message = "one, done", "one, done" })), fail},
	{"async-results", "failing", "one has none", asked(allFine), handled().forget(isResult("m1")), fail},
	{"async-results", "failing", "one has two", asked(allFine), handled().result(500, "m0", 200), fail},
	{"async-results", "failing", "one has two that differ", asked(checks.Async{}), handled().failure(500, "m0", "DEADLINE_EXCEEDED"), fail},
	{"async-results", "failing", "another status", asked(allFine), fineIs(func(v *evidence.FinalResult) { v.Status = 503 }), fail},
	{"async-results", "failing", "in another list", asked(allFine), fineIs(func(v *evidence.FinalResult) { v.List = "elsewhere" }), fail},
	{"async-results", "failing", "another text", asked(allFine), fineIs(func(v *evidence.FinalResult) { v.Payload = "fin" }), fail},
	{"async-results", "failing", "of nobody", asked(allFine), handled().result(500, "stranger", 200), fail},
	{"async-results", "failing", "without an id", asked(allFine), handled().result(500, "", 200), fail},
	{"async-results", "failing", "another code", asked(tooLate), lateIs(func(v *evidence.FinalResult) { v.Code = "CANCELLED" }), fail},
	{"async-results", "failing", "no code", asked(tooLate), lateIs(func(v *evidence.FinalResult) { v.Code = "" }), fail},
	{"async-results", "failing", "an answer that says an error too", asked(allFine), fineIs(func(v *evidence.FinalResult) { v.Code = "INFERENCE_ERROR" }), fail},
	{"async-results", "failing", "an answer with an error's text", asked(allFine), fineIs(func(v *evidence.FinalResult) { v.Message = "why" }), fail},
	{"async-results", "failing", "an answer without a status", asked(checks.Async{Shape: "http"}), fineIs(func(v *evidence.FinalResult) { v.Status = 0 }), fail},
	{"async-results", "failing", "an error with a status", asked(tooLate), lateIs(func(v *evidence.FinalResult) { v.Status = 504 }), fail},
	{"async-results", "failing", "an error of a kind that is not documented", asked(checks.Async{IDs: []string{"late"}, Shape: "error"}), lateIs(func(v *evidence.FinalResult) { v.Code = "TOO_LATE" }), fail},
	{"async-results", "failing", "an error without a text", asked(tooLate), lateIs(func(v *evidence.FinalResult) { v.Message = "" }), fail},
	{"async-results", "failing", "an error whose payload is no JSON", asked(tooLate), lateIs(func(v *evidence.FinalResult) { v.Payload = "too late" }), fail},
	{"async-results", "failing", "an error whose payload names none", asked(tooLate), lateIs(func(v *evidence.FinalResult) { v.Payload = `{"message":"late"}` }), fail},
	{"async-results", "failing", "an error whose payload names null", asked(tooLate), lateIs(func(v *evidence.FinalResult) { v.Payload = `{"error":null}` }), fail},
	{"async-results", "failing", "dropped with another code", asked(shedding), shed(`{"code":503}`), fail},
	{"async-results", "failing", "dropped without JSON", asked(shedding), shed(`dropped`), fail},
	{"async-results", "failing", "no results at all", asked(allFine), handled().forget(isWork), fail},
	{"async-results", "degenerate", "nothing was submitted", asked(allFine), handled().forget(isMessage("m0")).forget(isMessage("m1")), inconclusive},
	{"async-results", "degenerate", "one of the ids was not submitted", asked(tooLate), handled(), inconclusive},
	{"async-results", "degenerate", "the text of one that was not submitted", askedWith(allFine, func(a *checks.Async) { a.Texts = map[string]string{"m3": "fine"} }), handled(), inconclusive},
	{"async-results", "degenerate", "an id of two messages", asked(allFine), handled().submit(15, "m0"), inconclusive},
	{"async-results", "degenerate", "a form that nobody knows", askedWith(allFine, func(a *checks.Async) { a.Shape = "round" }), handled(), inconclusive},
}

// keptBy is m0, which has its result, and m1, which lies in the broker as a member.
func keptBy(member string) *hist {
	return handled().forget(isResult("m1")).step("left", 1000, 1001).key("left", "q", 1, member).key("left", "retry", 0)
}

const member = `{"request_kind":"plain","data":{"id":"m1","payload":{}}}`

var (
	conservedAtLast = checks.Async{}
	conservedThen   = checks.Async{To: "left"}
)

var conservedTrials = []trial{
	{"async-conserved", "passing", "each has its result", asked(conservedAtLast), handled(), pass},
	{"async-conserved", "passing", "one has its result and the other lies in the broker", asked(conservedThen), keptBy(member), pass},
	{"async-conserved", "passing", "what lay in the broker had its result later", asked(conservedThen), keptBy(member).result(2000, "m1", 200), pass},
	{"async-conserved", "failing", "one has neither", asked(conservedThen), keptBy(`{"data":{"id":"m2"}}`), fail},
	{"async-conserved", "failing", "one whose id is the begin of another's", asked(conservedThen), keptBy(`{"data":{"id":"m10"}}`), fail},
	{"async-conserved", "failing", "one has no result in the end", asked(conservedAtLast), keptBy(member), fail},
	{"async-conserved", "failing", "one has two", asked(conservedThen), keptBy(member).result(2000, "m0", 200), fail},
	{"async-conserved", "failing", "one has two, and the broker had more than was kept", asked(conservedThen), keptBy(member).each(keyed("q", func(k *evidence.BrokerKey) { k.Size = 2000 })).result(2000, "m0", 200), fail},
	{"async-conserved", "degenerate", "the broker had more than was kept of it", asked(conservedThen), keptBy(`{"data":{"id":"m2"}}`).each(keyed("q", func(k *evidence.BrokerKey) { k.Size = 2000 })), inconclusive},
	{"async-conserved", "degenerate", "all of it lies in the broker, because nothing works", asked(conservedThen), keptBy(member).forget(isWork).key("left", "r", 1, `{"data":{"id":"m0"}}`), inconclusive},
	{"async-conserved", "degenerate", "nobody looked into the broker", asked(conservedThen), keptBy(member).forget(func(o evidence.Observation) bool { return o.Key != nil }), inconclusive},
	{"async-conserved", "degenerate", "one key could not be read", asked(conservedThen), keptBy(member).each(keyed("retry", unread)), inconclusive},
	{"async-conserved", "degenerate", "nothing was submitted", asked(conservedThen), keptBy(member).forget(isMessage("m0")).forget(isMessage("m1")), inconclusive},
	{"async-conserved", "degenerate", "an id of two messages", asked(conservedAtLast), handled().submit(15, "m0"), inconclusive},
}

// mixed are results of four kinds.
func mixed() *hist {
	return late().submit(10, "bad", "gone").result(70, "bad", 400).failure(80, "gone", "CANCELLED")
}

func rawIs(raw string) *hist {
	return mixed().each(results("m0", func(v *evidence.FinalResult) { v.Raw = raw }))
}

var fourKinds = checks.Async{Min: 4}

var fieldTrials = []trial{
	{"async-fields", "passing", "four kinds with the documented fields", asked(fourKinds), mixed(), pass},
	{"async-fields", "passing", "and one that the contract allows", askedWith(fourKinds, func(a *checks.Async) { a.Names = []string{"request_token"} }), rawIs(`{"id":"m0","status_code":200,"payload":"fine","request_token":"t"}`), pass},
	{"async-fields", "failing", "one more field", asked(fourKinds), rawIs(`{"id":"m0","status_code":200,"payload":"fine","request_token":"t"}`), fail},
	{"async-fields", "failing", "a field in other letters", asked(fourKinds), rawIs(`{"ID":"m0"}`), fail},
	{"async-fields", "failing", "a status that is a text", asked(fourKinds), rawIs(`{"id":"m0","status_code":"200"}`), fail},
	{"async-fields", "failing", "a payload that is an object", asked(fourKinds), rawIs(`{"id":"m0","payload":{}}`), fail},
	{"async-fields", "failing", "no JSON", asked(fourKinds), rawIs(`fine`), fail},
	{"async-fields", "failing", "no object", asked(fourKinds), rawIs(`["m0"]`), fail},
	{"async-fields", "failing", "nothing", asked(fourKinds), rawIs(`null`), fail},
	{"async-fields", "degenerate", "three kinds", asked(fourKinds), mixed().forget(isResult("gone")), inconclusive},
	{"async-fields", "degenerate", "only one of the ids was judged", askedWith(fourKinds, func(a *checks.Async) { a.IDs = []string{"m0"} }), mixed(), inconclusive},
	{"async-fields", "degenerate", "no results", asked(checks.Async{}), mixed().forget(isWork), inconclusive},
}

// overdue is a message that is held until its deadline, at 2000; stopping is a process that is told to end at 2500 and ends at 4600.
func overdue() *hist {
	return history().step("up", 0, 5).submit(10, "m").step("in", 6, 20).arrive("m", 100, 2050).failure(2060, "m", "DEADLINE_EXCEEDED").each(messages("m", func(m *evidence.Message) { m.Deadline = at(2000) })).
		each(attempts("m", func(a *evidence.Attempt) { a.Ending, a.Status = evidence.Dropped, 0 })).step("done", 20, 2100)
}

func stopping() *hist {
	return overdue().step("term", 2499, 2500).step("ended", 2500, 4600).op("ended", "ended")
}

func timed(event, anchor string, earliest, latest int) checks.Async {
	return checks.Async{Event: event, Anchor: anchor, Earliest: time.Duration(earliest) * time.Millisecond, Latest: time.Duration(latest) * time.Millisecond}
}

var timingTrials = []trial{
	{"async-timing", "passing", "the result comes soon after the deadline", asked(timed("result", "deadline", 0, 100)), overdue(), pass},
	{"async-timing", "passing", "the call is ended at the deadline", askedWith(timed("attempt-end", "deadline", -100, 100), func(a *checks.Async) { a.Shape = evidence.Dropped }), overdue(), pass},
	{"async-timing", "passing", "it arrives soon after it was submitted", asked(timed("arrival", "in", 0, 100)), overdue(), pass},
	{"async-timing", "passing", "the second attempt comes after a second", askedWith(timed("arrival", "in", 900, 1100), func(a *checks.Async) { a.Min = 2 }), overdue().arrive("m", 1020, 1030), pass},
	{"async-timing", "passing", "the process ends two seconds after it was told", asked(timed("exit", "term", 2000, 2500)), stopping(), pass},
	{"async-timing", "passing", "it ends in time, whenever it was looked at", asked(timed("exit", "term", 0, 2500)), stopping().without("ended").step("ended", 4599, 4600).op("ended", "ended"), pass},
	{"async-timing", "failing", "the result comes too late", asked(timed("result", "deadline", 0, 50)), overdue(), fail},
	{"async-timing", "failing", "the result comes too early", asked(timed("result", "deadline", 70, 100)), overdue(), fail},
	{"async-timing", "failing", "no result comes", asked(timed("result", "deadline", 0, 100)), overdue().forget(isResult("m")), fail},
	{"async-timing", "failing", "one of two has none", asked(timed("result", "in", 0, 9000)), overdue().submit(15, "n"), fail},
	{"async-timing", "failing", "the call goes on", asked(timed("attempt-end", "deadline", -100, 100)), overdue().each(attempts("m", func(a *evidence.Attempt) { a.End, a.Ending = evidence.Never, evidence.Inside })), fail},
	{"async-timing", "failing", "the call ends in another way", askedWith(timed("attempt-end", "deadline", -100, 100), func(a *checks.Async) { a.Shape = evidence.Answered }), overdue(), fail},
	{"async-timing", "failing", "it does not arrive after it was let in", asked(timed("arrival", "done", 0, 9000)), overdue(), fail},
	{"async-timing", "failing", "it arrives too late", asked(timed("arrival", "in", 0, 50)), overdue(), fail},
	{"async-timing", "failing", "there is no second attempt", askedWith(timed("arrival", "in", 0, 9000), func(a *checks.Async) { a.Min = 2 }), overdue(), fail},
	{"async-timing", "failing", "the process ends too late", asked(timed("exit", "term", 0, 2000)), stopping(), fail},
	{"async-timing", "failing", "the process ends too early", asked(timed("exit", "term", 2200, 2500)), stopping(), fail},
	{"async-timing", "failing", "the process does not end", asked(timed("exit", "term", 0, 9000)), stopping().broken("ended"), fail},
	{"async-timing", "failing", "it ended before it was told", asked(timed("exit", "term", 0, 9000)), overdue().step("ended", 2200, 2300).op("ended", "ended").step("term", 2400, 2500), fail},
	{"async-timing", "degenerate", "nobody looked before it may end", asked(timed("exit", "term", 2000, 2500)), stopping().without("ended").step("ended", 4590, 4600).op("ended", "ended"), inconclusive},
	{"async-timing", "degenerate", "the anchor was not reached", asked(timed("result", "later", 0, 9000)), overdue(), inconclusive},
	{"async-timing", "degenerate", "the anchor missed its barrier", asked(timed("result", "in", 0, 9000)), overdue().broken("in"), inconclusive},
	{"async-timing", "degenerate", "no anchor", asked(timed("result", "", 0, 9000)), overdue().step("", 0, 1), inconclusive},
	{"async-timing", "degenerate", "no deadline that can be read", asked(timed("result", "deadline", 0, 9000)), overdue().each(messages("m", func(m *evidence.Message) { m.Deadline = evidence.Never })), inconclusive},
	{"async-timing", "degenerate", "an id of two messages", asked(timed("result", "deadline", 0, 100)), overdue().submit(20, "m"), inconclusive},
	{"async-timing", "degenerate", "nothing was submitted", asked(timed("result", "in", 0, 9000)), overdue().forget(isMessage("m")), inconclusive},
	{"async-timing", "degenerate", "one of the ids was not submitted", askedWith(timed("result", "in", 0, 9000), func(a *checks.Async) { a.IDs = []string{"m", "n"} }), overdue(), inconclusive},
	{"async-timing", "degenerate", "an event that nobody knows", asked(timed("birthday", "in", 0, 9000)), overdue(), inconclusive},
	{"async-timing", "degenerate", "a process has no deadline", asked(timed("exit", "deadline", 0, 9000)), stopping(), inconclusive},
}

var asyncResultTrials = slices.Concat(resultTrials, conservedTrials, fieldTrials, timingTrials)
