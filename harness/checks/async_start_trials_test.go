package checks_test

import (
	"slices"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
)

// compared are ten messages that arrive alone and ten that arrive beside others.
func compared(alone, beside int) *hist {
	return history().submit(10, slices.Concat(ids("x", 10), ids("y", 10))...).step("in", 0, 20).arriveAll(100, alone, ids("x", 10)...).arriveAll(5000, beside, ids("y", 10)...).step("done", 20, 9000)
}

var ratioAsked = checks.Async{Groups: [][]string{{"x*"}, {"y*"}}, Min: 10, Low: 0.95}

var ratioTrials = []trial{
	{"async-ratio", "passing", "as fast as alone", asked(ratioAsked), compared(50, 50), pass},
	{"async-ratio", "passing", "faster than alone", asked(ratioAsked), compared(50, 40), pass},
	{"async-ratio", "failing", "slower than alone", asked(ratioAsked), compared(50, 60), fail},
	{"async-ratio", "degenerate", "too few", asked(ratioAsked), compared(50, 50).forget(isAttempt("y3")), inconclusive},
	{"async-ratio", "degenerate", "all alone at one instant", asked(ratioAsked), compared(0, 50), inconclusive},
	{"async-ratio", "degenerate", "all beside others at one instant", asked(ratioAsked), compared(50, 0), inconclusive},
	{"async-ratio", "degenerate", "one group was not submitted", askedWith(ratioAsked, func(a *checks.Async) { a.Groups = [][]string{{"x*"}, {"z*"}} }), compared(50, 50), inconclusive},
	{"async-ratio", "degenerate", "the window was not reached", askedWith(ratioAsked, func(a *checks.Async) { a.To = "later" }), compared(50, 50), inconclusive},
	{"async-ratio", "degenerate", "any ratio would do", askedWith(ratioAsked, func(a *checks.Async) { a.Low = 0 }), compared(50, 60), inconclusive},
	{"async-ratio", "degenerate", "one arrival has no rate", askedWith(ratioAsked, func(a *checks.Async) { a.Min = 1 }), compared(50, 50), inconclusive},
	{"async-ratio", "degenerate", "three groups", askedWith(ratioAsked, func(a *checks.Async) { a.Groups = [][]string{{"x*"}, {"y*"}, {"m*"}} }), compared(50, 50), inconclusive},
}

func printing(pairs ...string) checks.Spec {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return asked(checks.Async{Texts: m})
}

var printTrials = []trial{
	{"async-printed", "passing", "one ended with an error instead", printing("no-id", "deprecated"), matrix(), pass},
	{"async-printed", "passing", "one that runs says something", printing("warned", "deprecated"), matrix().process("warned", true, -1, "DEPRECATED: --redis.url"), pass},
	{"async-printed", "failing", "one says something else", printing("warned", "ignored"), matrix().process("warned", true, -1, "DEPRECATED: --redis.url"), fail},
	{"async-printed", "failing", "one that runs says nothing", printing("valid", "deprecated"), matrix(), fail},
	{"async-printed", "failing", "one says it and ends as if all were well", printing("odd", "deprecated"), matrix().process("odd", false, 0, "deprecated"), fail},
	{"async-printed", "failing", "one says it and neither starts nor ends", printing("odd", "deprecated"), matrix().process("odd", false, -1, "deprecated"), fail},
	{"async-printed", "failing", "one of two is silent", printing("valid", "deprecated", "warned", "deprecated"), matrix().process("warned", true, -1, "deprecated"), fail},
	{"async-printed", "degenerate", "one was not tried", printing("other", "id"), matrix(), inconclusive},
	{"async-printed", "degenerate", "any text would do", printing("no-id", ""), matrix(), inconclusive},
	{"async-printed", "degenerate", "nothing is looked for", asked(checks.Async{}), matrix(), inconclusive},
}

// begun is a start that came up, or stands as its step says.
func begun(detail string) *hist {
	h := handled().op("up", "start")
	if detail != "" {
		h.broken("up").detail("up", detail)
	}
	return h
}

const (
	refusedAtStart = `the processor is "ended", not "ready": exit status 1` + "\nno address"
	leftAtStart    = `the processor is "ended", not "ready": exit status 0` + "\n"
	notReady       = `the processor is "alive", not "ready": `
)

// questions are asked of a processor that is well, of one without its broker and of one that has gone.
func questions() *hist {
	h := history().step("fine", 0, 10).step("broken", 10, 20).step("gone", 20, 30).op("fine", "get").op("broken", "get").op("gone", "get")
	return h.detail("fine", "200 ok").detail("broken", "503 broker").detail("gone", "no answer: connection refused")
}

var upAsked = checks.Async{Names: []string{"up"}, Status: 200}

var beginTrials = []trial{
	{"async-stays", "passing", "it came up", asked(upAsked), begun(""), pass},
	{"async-stays", "passing", "it runs and is not ready", asked(upAsked), begun(notReady), pass},
	{"async-stays", "failing", "it ended", asked(upAsked), begun(refusedAtStart), fail},
	{"async-stays", "failing", "it ended as if all were well", asked(upAsked), begun(leftAtStart), fail},
	{"async-stays", "degenerate", "nothing is known of how it stood", asked(upAsked), begun("").broken("up").detail("up", ""), inconclusive},
	{"async-stays", "degenerate", "it was not started", asked(upAsked), begun("").without("up"), inconclusive},
	{"async-stays", "degenerate", "the step started nothing", asked(upAsked), begun("").op("up", "quiet"), inconclusive},
	{"async-stays", "degenerate", "no start", asked(checks.Async{}), begun(""), inconclusive},

	{"async-unready", "passing", "one says no and one nothing", asked(checks.Async{Names: words("broken gone")}), questions(), pass},
	{"async-unready", "failing", "one says yes", asked(checks.Async{Names: words("gone fine")}), questions(), fail},
	{"async-unready", "failing", "one says yes without a word", asked(checks.Async{Names: words("fine")}), questions().detail("fine", "204 "), fail},
	{"async-unready", "degenerate", "nobody asked", asked(checks.Async{Names: words("later")}), questions(), inconclusive},
	{"async-unready", "degenerate", "the step asked nothing", asked(checks.Async{Names: words("gone")}), questions().op("gone", "quiet"), inconclusive},
	{"async-unready", "degenerate", "what was said is not known", asked(checks.Async{Names: words("gone")}), questions().detail("gone", ""), inconclusive},
	{"async-unready", "degenerate", "no question", asked(checks.Async{}), questions(), inconclusive},

	{"async-refused-or-served", "passing", "it serves", asked(upAsked), begun(""), pass},
	{"async-refused-or-served", "passing", "it refuses", asked(upAsked), begun(refusedAtStart), pass},
	{"async-refused-or-served", "failing", "it came up and serves with another status", asked(upAsked), begun("").each(results("m0", func(v *evidence.FinalResult) { v.Status = 400 })), fail},
	{"async-refused-or-served", "failing", "it came up and serves one of two", asked(upAsked), begun("").forget(isResult("m0")), fail},
	{"async-refused-or-served", "failing", "it ended as if all were well", asked(upAsked), begun(leftAtStart), fail},
	{"async-refused-or-served", "failing", "it runs, and is not ready", asked(upAsked), begun(notReady), fail},
	{"async-refused-or-served", "degenerate", "it was not started", asked(upAsked), begun("").without("up"), inconclusive},
	{"async-refused-or-served", "degenerate", "it came up and got nothing", asked(upAsked), begun("").forget(isMessage("m0")).forget(isMessage("m1")), inconclusive},
	{"async-refused-or-served", "degenerate", "no start", asked(checks.Async{Status: 200}), begun(""), inconclusive},
}

// growing is a fact that reads 100 at first and more ten seconds later.
func growing(later int64) *hist {
	return history().step("first", 0, 10).step("watched", 10, 9000).step("last", 9000, 10_010).key("first", ":cpu", 100).key("last", ":cpu", later).key("first", ":accepted", 5).key("last", ":accepted", 5)
}

var growthAsked = checks.Async{From: "first", To: "last", Names: []string{":cpu"}, Low: 0, High: 200}

var growthTrials = []trial{
	{"async-growth", "passing", "a tenth of a second each second", asked(growthAsked), growing(1100), pass},
	{"async-growth", "passing", "one grows and one does not", askedWith(growthAsked, func(a *checks.Async) { a.Names = []string{":cpu", ":accepted"} }), growing(1100), pass},
	{"async-growth", "failing", "too fast", asked(growthAsked), growing(2200), fail},
	{"async-growth", "failing", "it shrinks", asked(growthAsked), growing(50), fail},
	{"async-growth", "failing", "too slow", askedWith(growthAsked, func(a *checks.Async) { a.Low = 101 }), growing(1100), fail},
	{"async-growth", "failing", "the second of two", askedWith(growthAsked, func(a *checks.Async) { a.Names = []string{":accepted", ":cpu"} }), growing(2200), fail},
	{"async-growth", "degenerate", "it cannot be known", asked(growthAsked), growing(1100).each(keyed(":cpu", unread)), inconclusive},
	{"async-growth", "degenerate", "nobody looked first", askedWith(growthAsked, func(a *checks.Async) { a.From = "watched" }), growing(1100), inconclusive},
	{"async-growth", "degenerate", "nobody looked last", askedWith(growthAsked, func(a *checks.Async) { a.To = "watched" }), growing(1100), inconclusive},
	{"async-growth", "degenerate", "no time passed", askedWith(growthAsked, func(a *checks.Async) { a.To = "first" }), growing(1100), inconclusive},
	{"async-growth", "degenerate", "no first look", askedWith(growthAsked, func(a *checks.Async) { a.From = "" }), growing(1100), inconclusive},
	{"async-growth", "degenerate", "no bounds", askedWith(growthAsked, func(a *checks.Async) { a.High = 0 }), growing(1100), inconclusive},
	{"async-growth", "degenerate", "no names", askedWith(growthAsked, func(a *checks.Async) { a.Names = nil }), growing(1100), inconclusive},
	{"async-growth", "degenerate", "the last look missed its barrier", asked(growthAsked), growing(1100).broken("last"), inconclusive},
}

var asyncStartTrials = slices.Concat(ratioTrials, printTrials, beginTrials, growthTrials)
