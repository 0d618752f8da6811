package checks_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
)

// handled are two messages that arrive once each and end, and some time afterwards.
func handled() *hist {
	return history().step("up", 0, 5).submit(10, "m0", "m1").step("in", 6, 20).arrive("m0", 100, 150).arrive("m1", 110, 160).
		result(151, "m0", 200).result(161, "m1", 200).step("done", 20, 170).step("watched", 170, 1000)
}

var (
	onceEach = checks.Async{Min: 1, Max: 1, Each: true, To: "watched"}
	noneAway = checks.Async{From: "done", To: "watched"}
)

// shut is a gate that is closed until 500.
func shut() *hist {
	return history().step("closed", 0, 1).step("up", 1, 5).submit(10, "m0", "m1").step("in", 6, 20).step("open", 20, 500).arrive("m0", 600, 650).arrive("m1", 600, 650)
}

var arrivalTrials = []trial{
	{"async-arrivals", "passing", "each of two arrives once", asked(onceEach), handled(), pass},
	{"async-arrivals", "passing", "two arrive in all", asked(checks.Async{Min: 2, Max: 2}), handled(), pass},
	{"async-arrivals", "passing", "at least one", asked(checks.Async{IDs: []string{"m0"}, Min: 1, Max: -1}), handled(), pass},
	{"async-arrivals", "passing", "none after they were done", asked(noneAway), handled(), pass},
	{"async-arrivals", "passing", "of each none while the gate is closed", asked(checks.Async{To: "open", Each: true}), shut(), pass},
	{"async-arrivals", "passing", "a retry is no first attempt", askedWith(onceEach, func(a *checks.Async) { a.First = true }), handled().arrive("m0", 300, 310), pass},
	{"async-arrivals", "passing", "none at the other upstream", asked(checks.Async{Upstream: "b"}), handled(), pass},
	{"async-arrivals", "passing", "of a prefix", asked(checks.Async{IDs: []string{"m*"}, Min: 2, Max: 2}), handled().submit(10, "n").arrive("n", 90, 95), pass},
	{"async-arrivals", "failing", "one arrives twice", asked(onceEach), handled().arrive("m0", 300, 310), fail},
	{"async-arrivals", "failing", "one does not arrive", asked(onceEach), handled().forget(isAttempt("m1")), fail},
	{"async-arrivals", "failing", "one arrives twice and the other not at all", asked(onceEach), handled().forget(isAttempt("m1")).arrive("m0", 300, 310), fail},
	{"async-arrivals", "failing", "nothing arrives at all", asked(onceEach), handled().forget(isWork), fail},
	{"async-arrivals", "failing", "three in all", asked(checks.Async{Min: 2, Max: 2}), handled().arrive("m0", 300, 310), fail},
	{"async-arrivals", "failing", "one in all", asked(checks.Async{Min: 2, Max: -1}), handled().forget(isAttempt("m1")), fail},
	{"async-arrivals", "failing", "one after they were done", asked(noneAway), handled().arrive("m0", 1000, 1010), fail},
	{"async-arrivals", "failing", "one while the gate is closed", asked(checks.Async{To: "open"}), shut().arrive("m0", 499, 510), fail},
	{"async-arrivals", "failing", "one at the other upstream", asked(checks.Async{Upstream: "b"}), handled().each(attempts("m1", func(a *evidence.Attempt) { a.Upstream = "b" })), fail},
	{"async-arrivals", "degenerate", "none arrives because nothing works", asked(noneAway), handled().forget(isWork), inconclusive},
	{"async-arrivals", "degenerate", "of each none, because nothing works", asked(checks.Async{To: "open", Each: true}), shut().forget(isWork), inconclusive},
	{"async-arrivals", "degenerate", "nothing was submitted", asked(onceEach), handled().forget(isMessage("m0")).forget(isMessage("m1")), inconclusive},
	{"async-arrivals", "degenerate", "it was submitted when nobody watched any more", asked(checks.Async{To: "open"}), shut().forget(isMessage("m0")).forget(isMessage("m1")).submit(510, "m0", "m1"), inconclusive},
	{"async-arrivals", "degenerate", "one of the ids was not submitted", asked(checks.Async{IDs: []string{"m0", "lost"}, To: "watched", Min: 1, Max: 1}), handled(), inconclusive},
	{"async-arrivals", "degenerate", "none of a prefix was submitted", asked(checks.Async{IDs: []string{"lost*"}, To: "watched"}), handled(), inconclusive},
	{"async-arrivals", "degenerate", "any number would do", asked(checks.Async{Max: -1}), handled(), inconclusive},
	{"async-arrivals", "degenerate", "the window's begin was not reached", asked(noneAway), handled().without("done"), inconclusive},
	{"async-arrivals", "degenerate", "the window's end was not reached", asked(noneAway), handled().without("watched"), inconclusive},
	{"async-arrivals", "degenerate", "the window's end missed its barrier", asked(noneAway), handled().broken("watched"), inconclusive},
	{"async-arrivals", "degenerate", "the window's begin missed its barrier", asked(noneAway), handled().broken("done"), inconclusive},
	{"async-arrivals", "degenerate", "the window ends before it begins", asked(checks.Async{From: "watched", To: "done"}), handled(), inconclusive},
	{"async-arrivals", "degenerate", "the window has no length", asked(checks.Async{From: "done", To: "done"}), handled(), inconclusive},
	{"async-arrivals", "degenerate", "nothing was done after the window began", asked(checks.Async{From: "watched"}), handled(), inconclusive},
	{"async-arrivals", "degenerate", "one arrived at no instant", asked(noneAway), handled().observe(0, evidence.Observation{}).each(func(o *evidence.Observation) {
		if o.At == 0 {
			o.At = evidence.Never
		}
	}), inconclusive},
	{"async-arrivals", "degenerate", "one ended before it arrived", asked(onceEach), handled().each(attempts("m0", func(a *evidence.Attempt) { a.End = at(90) })), inconclusive},
}

// ranked are a first message that was pulled at once, two of a high group and two of a low one behind it.
func ranked(arrivals ...string) *hist {
	h := history().submit(10, "plug").submit(20, "hi0", "lo0", "hi1", "lo1").step("in", 0, 30).arriveAll(100, 100, arrivals...)
	return h.step("done", 30, 900).step("watched", 900, 2000)
}

var (
	orderAsked  = checks.Async{Order: words("plug hi0 hi1 lo0 lo1")}
	groupsAsked = checks.Async{Groups: [][]string{{"hi*"}, {"lo*"}}, Min: 2}
	turnsAsked  = checks.Async{Groups: [][]string{{"hi*"}, {"lo*"}}, Alternate: true}
	threeQueues = checks.Async{Groups: [][]string{{"x*"}, {"y*"}, {"z*"}}, Alternate: true}
)

func inTurns(order string) *hist {
	h := history().submit(10, slices.Sorted(slices.Values(words(order)))...).step("in", 0, 30)
	return h.arriveAll(100, 50, words(order)...).step("done", 30, 900)
}

var orderTrials = []trial{
	{"async-order", "passing", "as expected", asked(orderAsked), ranked(orderAsked.Order...), pass},
	{"async-order", "passing", "a second attempt has no place in it", asked(orderAsked), ranked(orderAsked.Order...).arrive("plug", 350, 360), pass},
	{"async-order", "passing", "many", asked(checks.Async{Order: ids("m", 10)}), flowing(50), pass},
	{"async-order", "passing", "the low ones after the high ones", asked(groupsAsked), ranked(words("plug hi1 hi0 lo1 lo0")...), pass},
	{"async-order", "passing", "the first one was pulled before there was a choice", askedWith(groupsAsked, func(a *checks.Async) { a.Skip = 1 }), ranked(words("plug lo0 hi0 hi1 lo1")...), pass},
	{"async-order", "passing", "a high one that came later", asked(groupsAsked), ranked(words("plug hi0 hi1 lo0 lo1")...).submit(800, "hi2"), pass},
	{"async-order", "passing", "in turns", asked(turnsAsked), ranked(words("plug lo0 hi0 lo1 hi1")...), pass},
	{"async-order", "passing", "twice in turn where the other queue has none left", asked(turnsAsked), ranked(words("plug lo0 hi0 lo1 hi1")...).submit(20, "hi2").arrive("hi2", 600, 610), pass},
	{"async-order", "passing", "three in turns", asked(threeQueues), inTurns("x0 z0 y0 x1 z1 y1"), pass},
	{"async-order", "failing", "two are exchanged", asked(orderAsked), ranked(words("plug hi1 hi0 lo0 lo1")...), fail},
	{"async-order", "failing", "a low one before the last high one", asked(groupsAsked), ranked(words("plug hi0 lo0 hi1 lo1")...), fail},
	{"async-order", "failing", "all the wrong way round", asked(groupsAsked), ranked(words("plug lo0 lo1 hi0 hi1")...), fail},
	{"async-order", "failing", "more than the first one is out of order", askedWith(groupsAsked, func(a *checks.Async) { a.Skip = 1 }), ranked(words("plug lo0 hi0 lo1 hi1")...), fail},
	{"async-order", "failing", "two of one queue in turn", asked(turnsAsked), ranked(words("plug hi0 hi1 lo0 lo1")...), fail},
	{"async-order", "failing", "one of three queues has no turn", asked(threeQueues), inTurns("x0 y0 x1 y1 z0 z1"), fail},
	{"async-order", "degenerate", "the last of the order did not arrive", asked(orderAsked), ranked(words("plug hi0 hi1")...), inconclusive},
	{"async-order", "degenerate", "a high one waits for ever", asked(groupsAsked), ranked(words("plug hi0 lo0 lo1")...), inconclusive},
	{"async-order", "degenerate", "a high one arrives when the window is over", askedWith(groupsAsked, func(a *checks.Async) { a.To = "done" }), ranked(words("plug hi0 lo0 lo1")...).arrive("hi1", 950, 960), inconclusive},
	{"async-order", "degenerate", "the other queue had some, which never arrived", asked(turnsAsked), ranked(words("plug lo0 hi0 hi1")...), inconclusive},
	{"async-order", "degenerate", "only one group arrived", asked(groupsAsked), ranked(words("plug hi0 hi1")...), inconclusive},
	{"async-order", "degenerate", "only one queue took turns", asked(turnsAsked), ranked(words("plug hi0 hi1")...).forget(isMessage("lo1")), inconclusive},
	{"async-order", "degenerate", "nothing arrived", asked(groupsAsked), ranked(), inconclusive},
	{"async-order", "degenerate", "fewer than are needed", askedWith(groupsAsked, func(a *checks.Async) { a.Min = 5 }), ranked(words("plug hi0 hi1 lo0 lo1")...), inconclusive},
	{"async-order", "degenerate", "all of them say nothing", askedWith(orderAsked, func(a *checks.Async) { a.Skip = 4 }), ranked(orderAsked.Order...), inconclusive},
	{"async-order", "degenerate", "one was not submitted", asked(orderAsked), ranked(orderAsked.Order...).forget(isMessage("hi1")), inconclusive},
	{"async-order", "degenerate", "the window was not reached", askedWith(orderAsked, func(a *checks.Async) { a.To = "later" }), ranked(orderAsked.Order...), inconclusive},
	{"async-order", "degenerate", "an order of one", asked(checks.Async{Order: []string{"plug"}}), ranked(orderAsked.Order...), inconclusive},
	{"async-order", "degenerate", "no order", asked(checks.Async{}), ranked(orderAsked.Order...), inconclusive},
}

// crammed are three messages for two places: m2 waits until m0 has left. Where it is overfull m2 does not wait.
func crammed() *hist  { return thirdAt(200) }
func overfull() *hist { return thirdAt(120) }

func thirdAt(ms int) *hist {
	return history().submit(10, "m0", "m1", "m2").step("in", 0, 20).arrive("m0", 100, 200).arrive("m1", 110, 300).arrive("m2", ms, 300).step("two", 20, 150).step("done", 150, 400)
}

var (
	twoAtOnce = checks.Async{Min: 2, Max: 2}
	atMostTwo = checks.Async{Max: 2}
)

var peakTrials = []trial{
	{"async-peak", "passing", "two places for three", asked(twoAtOnce), crammed(), pass},
	{"async-peak", "passing", "never more than two", asked(atMostTwo), crammed(), pass},
	{"async-peak", "passing", "what is inside when the window begins", askedWith(twoAtOnce, func(a *checks.Async) { a.From, a.To = "two", "done" }), crammed(), pass},
	{"async-peak", "passing", "one id that was submitted three times is three requests", asked(checks.Async{IDs: []string{"x"}, Min: 2, Max: 2}), history().submit(10, "x", "x", "x").step("in", 0, 20).
		arrive("x", 100, 200).arrive("x", 100, 200).arrive("x", 200, 300), pass},
	{"async-peak", "passing", "at least two", asked(checks.Async{Min: 2, Max: -1}), crammed(), pass},
	{"async-peak", "passing", "none are left in the end", askedWith(checks.Async{}, func(a *checks.Async) { a.From = "done" }), crammed().step("later", 400, 500), pass},
	{"async-peak", "failing", "three at once", asked(twoAtOnce), overfull(), fail},
	{"async-peak", "failing", "never more than one", asked(twoAtOnce), crammed().each(attempts("m1", func(a *evidence.Attempt) { a.End = at(111) })).each(attempts("m0", func(a *evidence.Attempt) { a.End = at(105) })), fail},
	{"async-peak", "failing", "one never leaves", asked(atMostTwo), crammed().each(attempts("m0", func(a *evidence.Attempt) { a.End, a.Ending = evidence.Never, evidence.Inside })), fail},
	{"async-peak", "failing", "three before the window ends", askedWith(twoAtOnce, func(a *checks.Async) { a.To = "two" }), overfull(), fail},
	{"async-peak", "failing", "three although only two were submitted", asked(atMostTwo), overfull().forget(isMessage("m2")), fail},
	{"async-peak", "degenerate", "no more wanted in than may", asked(twoAtOnce), crammed().forget(isMessage("m2")).forget(isAttempt("m2")), inconclusive},
	{"async-peak", "degenerate", "the third was submitted later", askedWith(twoAtOnce, func(a *checks.Async) { a.To = "two" }), crammed().forget(isMessage("m2")).submit(180, "m2"), inconclusive},
	{"async-peak", "degenerate", "nothing arrived", asked(atMostTwo), crammed().forget(isWork), inconclusive},
	{"async-peak", "degenerate", "nothing is inside any more", askedWith(atMostTwo, func(a *checks.Async) { a.From = "done" }), crammed().step("later", 400, 500), inconclusive},
	{"async-peak", "degenerate", "any number would do", asked(checks.Async{Max: -1}), crammed(), inconclusive},
	{"async-peak", "degenerate", "the window was not reached", askedWith(twoAtOnce, func(a *checks.Async) { a.To = "later" }), crammed(), inconclusive},
	{"async-peak", "degenerate", "the window's end missed its barrier", askedWith(twoAtOnce, func(a *checks.Async) { a.To = "done" }), crammed().broken("done"), inconclusive},
}

// retried is a message with attempts 3, 6 and 12 seconds after each other.
func retried(starts ...int) *hist {
	h := history().submit(10, "m").step("in", 0, 20)
	for _, s := range starts {
		h.arrive("m", s, s+5)
	}
	return h.step("done", 20, 40_000)
}

// dueIn moves the deadline of its message to so many seconds after the epoch.
func dueIn(s int, h *hist) *hist {
	return h.each(messages("m", func(m *evidence.Message) { m.Deadline = at(1000 * s) }))
}

func doubling() *hist { return retried(100, 3100, 9100, 21_100) }

var (
	boundsAsked = checks.Async{Min: 3, Max: 5, Bounds: []time.Duration{2 * time.Second, 4 * time.Second, 4 * time.Second, 8 * time.Second, 8 * time.Second, 16 * time.Second}}
	backoff     = checks.Async{Min: 3, Shape: "backoff", Gap: 300 * time.Millisecond}
)

var gapTrials = []trial{
	{"async-gaps", "passing", "they double", asked(boundsAsked), doubling(), pass},
	{"async-gaps", "passing", "they double, as the backoff says", asked(backoff), doubling(), pass},
	{"async-gaps", "passing", "the last is cut by the deadline", asked(backoff), doubling().each(messages("m", func(m *evidence.Message) { m.Deadline = at(36_000) })).arrive("m", 32_000, 32_005), pass},
	{"async-gaps", "passing", "a backoff stops growing at a minute", asked(backoff), dueIn(250, retried(100, 3100, 9100, 21_100, 45_100, 104_900, 164_700)), pass},
	{"async-gaps", "passing", "a backoff of gaps at both of their ends", asked(backoff), retried(100, 2100, 9100, 17_000), pass},
	{"async-gaps", "passing", "the last pair repeats", askedWith(boundsAsked, func(a *checks.Async) { a.Bounds = a.Bounds[:2] }), retried(0, 2000, 5000, 8000), pass},
	{"async-gaps", "failing", "the first is too short", asked(boundsAsked), retried(100, 1100, 7100), fail},
	{"async-gaps", "failing", "the second is too long", asked(boundsAsked), retried(100, 3100, 12_100), fail},
	{"async-gaps", "failing", "they do not grow", asked(backoff), retried(100, 3000, 6000, 9000), fail},
	{"async-gaps", "failing", "longer than the time left", asked(backoff), doubling().each(messages("m", func(m *evidence.Message) { m.Deadline = at(25_000) })).arrive("m", 30_000, 30_005), fail},
	{"async-gaps", "failing", "a backoff grows beyond a minute", asked(backoff), dueIn(250, retried(100, 3100, 9100, 21_100, 45_100, 109_100)), fail},
	{"async-gaps", "failing", "a backoff begins too soon", asked(backoff), retried(100, 1700, 7000, 18_000), fail},
	{"async-gaps", "failing", "a backoff is too long at once, and too short to judge", asked(backoff), retried(100, 4500), fail},
	{"async-gaps", "failing", "after its deadline", asked(backoff), dueIn(10, retried(100, 3100, 9100, 10_000, 10_500)), fail},
	{"async-gaps", "failing", "too many", askedWith(boundsAsked, func(a *checks.Async) { a.Max = 3 }), doubling(), fail},
	{"async-gaps", "failing", "one of two has a wrong gap, the other too few", asked(boundsAsked), retried(100, 1100, 7100).submit(10, "a").arrive("a", 50, 55), fail},
	{"async-gaps", "degenerate", "too few attempts", asked(boundsAsked), retried(100, 3100), inconclusive},
	{"async-gaps", "degenerate", "a single attempt has no gap", askedWith(boundsAsked, func(a *checks.Async) { a.Min = 0 }), retried(100), inconclusive},
	{"async-gaps", "degenerate", "one of two did not arrive", asked(boundsAsked), doubling().submit(10, "n"), inconclusive},
	{"async-gaps", "degenerate", "nothing was submitted", asked(boundsAsked), doubling().forget(isMessage("m")), inconclusive},
	{"async-gaps", "degenerate", "it was submitted twice", asked(boundsAsked), doubling().submit(20, "m"), inconclusive},
	{"async-gaps", "degenerate", "no bounds", askedWith(boundsAsked, func(a *checks.Async) { a.Bounds = nil }), doubling(), inconclusive},
	{"async-gaps", "degenerate", "half a pair of bounds", askedWith(boundsAsked, func(a *checks.Async) { a.Bounds = a.Bounds[:3] }), doubling(), inconclusive},
	{"async-gaps", "degenerate", "too few attempts for a backoff", asked(backoff), retried(100, 3100), inconclusive},
	{"async-gaps", "degenerate", "a backoff of another kind has no bounds", askedWith(backoff, func(a *checks.Async) { a.Shape = "linear" }), doubling(), inconclusive},
	{"async-gaps", "degenerate", "a backoff of two messages, of which one has a single attempt", asked(backoff), doubling().submit(10, "n").arrive("n", 100, 105), inconclusive},
	{"async-gaps", "degenerate", "a backoff without a deadline", asked(backoff), doubling().each(messages("m", func(m *evidence.Message) { m.Deadline = evidence.Never })), inconclusive},
}

// polled are polls every 100 ms that take so many messages each.
func polled(sizes ...int) *hist {
	h := history().step("open", 0, 20)
	for poll, size := range sizes {
		for i, id := range ids(fmt.Sprintf("m%d-", poll), size) {
			begin := 100*(poll+1) + i // a poll takes some time
			h.submit(10, id).arrive(id, begin, begin+10)
		}
	}
	return h.step("done", 20, 3000)
}

// metPolls has ten in every other cluster, spread over some milliseconds.
func metPolls(spread int) *hist {
	h := history().step("open", 0, 20)
	for poll := range 7 {
		for i, id := range ids(fmt.Sprintf("m%d-", poll), 5*(1+poll%2)) {
			begin := 120*(poll+1) + i*spread/9*(poll%2)
			h.submit(10, id).arrive(id, begin, begin+1)
		}
	}
	return h.step("done", 20, 3000)
}

var (
	fiveAPoll = checks.Async{From: "open", To: "done", Min: 5, Gap: 50 * time.Millisecond, Clusters: 3}
	noPoll    = checks.Async{From: "open", To: "done", Gap: 50 * time.Millisecond}
)

var pollTrials = []trial{
	{"async-polls", "passing", "five each, but for the first and the last", asked(fiveAPoll), polled(3, 5, 5, 5, 1), pass},
	{"async-polls", "passing", "one in five is two that met", asked(fiveAPoll), polled(5, 5, 5, 10, 5, 5, 5), pass},
	{"async-polls", "passing", "late ones met the next, and lie as far apart as two do", asked(fiveAPoll), metPolls(62), pass},
	{"async-polls", "failing", "twice as many at once, at every other poll", asked(fiveAPoll), metPolls(9), fail},
	{"async-polls", "passing", "none while it is closed", asked(checks.Async{From: "closed", To: "open"}), shut(), pass},
	{"async-polls", "failing", "four each", asked(fiveAPoll), polled(4, 4, 4, 4, 4), fail},
	{"async-polls", "failing", "ten each", asked(fiveAPoll), polled(10, 10, 10, 10, 10), fail},
	{"async-polls", "failing", "two of five are off", asked(fiveAPoll), polled(5, 5, 4, 5, 10, 5, 5), fail},
	{"async-polls", "failing", "nothing arrives", asked(fiveAPoll), polled(5, 5, 5, 5, 5).forget(isWork), fail},
	{"async-polls", "failing", "something arrives although it is closed", asked(noPoll), polled(1), fail},
	{"async-polls", "degenerate", "too few whole polls", asked(fiveAPoll), polled(5, 5, 5, 5), inconclusive},
	{"async-polls", "degenerate", "one poll may be all that there was", askedWith(fiveAPoll, func(a *checks.Async) { a.Clusters = 0 }), polled(5), inconclusive},
	{"async-polls", "degenerate", "two polls are a first and a last", askedWith(fiveAPoll, func(a *checks.Async) { a.Clusters = 2 }), polled(5, 5), inconclusive},
	{"async-polls", "degenerate", "a flood now and then", asked(fiveAPoll), polled(5, 5, 5, 26, 5, 5, 5), inconclusive},
	{"async-polls", "degenerate", "none arrives because nothing works", asked(checks.Async{From: "closed", To: "open"}), shut().forget(isWork), inconclusive},
	{"async-polls", "degenerate", "nothing was submitted", asked(fiveAPoll), history().step("open", 0, 20).step("done", 20, 3000).arrive("m", 100, 110), inconclusive},
	{"async-polls", "degenerate", "nothing separates the polls", askedWith(fiveAPoll, func(a *checks.Async) { a.Gap = 0 }), polled(5, 5, 5, 5, 5), inconclusive},
	{"async-polls", "degenerate", "the window was not reached", asked(fiveAPoll), polled(5, 5, 5, 5, 5).without("done"), inconclusive},
}

// flowing are ten arrivals, one every 50 ms.
func flowing(every int) *hist {
	return history().submit(10, ids("m", 10)...).step("in", 0, 20).arriveAll(100, every, ids("m", 10)...).step("done", 20, 3000)
}

var twentyASecond = checks.Async{Min: 10, Low: 18, High: 22}

var rateTrials = []trial{
	{"async-rate", "passing", "twenty a second", asked(twentyASecond), flowing(50), pass},
	{"async-rate", "failing", "ten a second", asked(twentyASecond), flowing(100), fail},
	{"async-rate", "failing", "forty a second", asked(twentyASecond), flowing(25), fail},
	{"async-rate", "degenerate", "too few", askedWith(twentyASecond, func(a *checks.Async) { a.Min = 11 }), flowing(50), inconclusive},
	{"async-rate", "degenerate", "one alone has no rate", asked(checks.Async{IDs: []string{"m0"}, High: 100}), flowing(50), inconclusive},
	{"async-rate", "degenerate", "all at one instant", asked(twentyASecond), flowing(0), inconclusive},
	{"async-rate", "degenerate", "the window was not reached", askedWith(twentyASecond, func(a *checks.Async) { a.From = "later" }), flowing(50), inconclusive},
}

// shared are so many arrivals of x and y in turns, and as many that wait.
func shared(x, y int) *hist {
	h := history().submit(10, ids("x", 20)...).submit(10, ids("y", 20)...).step("in", 0, 20)
	return h.arriveAll(100, 10, slices.Concat(ids("x", x), ids("y", y))...).step("done", 20, 3000)
}

var halfEach = checks.Async{Groups: [][]string{{"x*"}, {"y*"}}, Min: 20, Low: 0.1}

var shareTrials = []trial{
	{"async-share", "passing", "half each", asked(halfEach), shared(10, 10), pass},
	{"async-share", "passing", "within the margin", asked(halfEach), shared(12, 8), pass},
	{"async-share", "passing", "a retry is no arrival of its own", asked(halfEach), shared(10, 10).arrive("x0", 150, 155).arrive("x1", 155, 156), pass},
	{"async-share", "failing", "one has more", asked(halfEach), shared(13, 7), fail},
	{"async-share", "failing", "one has less", asked(halfEach), shared(7, 13), fail},
	{"async-share", "failing", "one has all and nothing left", asked(halfEach), shared(20, 0), fail},
	{"async-share", "degenerate", "all there was arrived", askedWith(halfEach, func(a *checks.Async) { a.Min = 40 }), shared(20, 20), inconclusive},
	{"async-share", "degenerate", "one had nothing left", askedWith(halfEach, func(a *checks.Async) { a.Min = 35 }), shared(20, 18), inconclusive},
	{"async-share", "degenerate", "too few", asked(halfEach), shared(9, 10), inconclusive},
	{"async-share", "degenerate", "nothing is needed", askedWith(halfEach, func(a *checks.Async) { a.Min = 0 }), shared(10, 10), inconclusive},
	{"async-share", "degenerate", "any share would do", askedWith(halfEach, func(a *checks.Async) { a.Low = 0.5 }), shared(10, 10), inconclusive},
	{"async-share", "degenerate", "one group alone", askedWith(halfEach, func(a *checks.Async) { a.Groups = a.Groups[:1] }), shared(20, 0), inconclusive},
	{"async-share", "degenerate", "one group submitted nothing", askedWith(halfEach, func(a *checks.Async) { a.Groups = [][]string{{"x*"}, {"z*"}} }), shared(20, 0), inconclusive},
	{"async-share", "degenerate", "the window was not reached", askedWith(halfEach, func(a *checks.Async) { a.To = "later" }), shared(10, 10), inconclusive},
}

// scattered are ten first attempts one every few milliseconds, and second ones so much later.
func scattered(every int, after func(i int) int) *hist {
	h := history().submit(0, ids("m", 10)...).step("in", 0, 20)
	for i, id := range ids("m", 10) {
		h.arrive(id, 100+every*i, 101+every*i).arrive(id, 100+every*i+after(i), 101+every*i+after(i))
	}
	return h.step("done", 20, 9000)
}

var tenBins = checks.Async{Min: 8, Clusters: 10, Gap: 20 * time.Millisecond}

var spreadTrials = []trial{
	{"async-spread", "passing", "each after another time", asked(tenBins), scattered(1, func(i int) int { return 2000 + 150*i }), pass},
	{"async-spread", "failing", "all after the same time", asked(tenBins), scattered(1, func(int) int { return 2000 }), fail},
	{"async-spread", "failing", "all after the same time, and the first ones were spread themselves", asked(tenBins), scattered(100, func(int) int { return 2000 }), fail},
	{"async-spread", "failing", "all at the same instant, whenever they came first", asked(tenBins), scattered(100, func(i int) int { return 2000 - 100*i }), fail},
	{"async-spread", "degenerate", "sending takes as long as the spread", asked(tenBins), scattered(100, func(i int) int { return 2000 + 50*i }), inconclusive},
	{"async-spread", "degenerate", "too few second attempts", asked(tenBins), scattered(1, func(i int) int { return 2000 + 150*i }).forget(func(o evidence.Observation) bool {
		return o.Attempt != nil && o.Attempt.Nth == 2 && o.Attempt.ID == "m3"
	}), inconclusive},
	{"async-spread", "degenerate", "too few first attempts", asked(tenBins), scattered(1, func(i int) int { return 2000 + 150*i }).forget(isAttempt("m3")), inconclusive},
	{"async-spread", "degenerate", "second attempts without a first", asked(tenBins), scattered(1, func(i int) int { return 2000 + 150*i }).each(attempts("m3", func(a *evidence.Attempt) { a.Nth = 2 })), inconclusive},
	{"async-spread", "degenerate", "bins without a width", askedWith(tenBins, func(a *checks.Async) { a.Gap = 0 }), scattered(1, func(i int) int { return 2000 + 150*i }), inconclusive},
	{"async-spread", "degenerate", "one bin is no spread", askedWith(tenBins, func(a *checks.Async) { a.Min = 1 }), scattered(1, func(int) int { return 2000 }), inconclusive},
	{"async-spread", "degenerate", "fewer attempts than bins", askedWith(tenBins, func(a *checks.Async) { a.Clusters = 7 }), scattered(1, func(i int) int { return 2000 + 150*i }), inconclusive},
}

// arriving are arrivals at the instants given, of messages that were there from the beginning.
func arriving(instants ...int) *hist {
	h := history().submit(10, ids("m", len(instants))...).step("in", 0, 20)
	for i, begin := range instants {
		h.arrive(fmt.Sprint("m", i), begin, begin+5)
	}
	return h.step("done", 20, 9000)
}

var twoASecond = checks.Async{Min: 4, Max: 2, Gap: time.Second}

var windowTrials = []trial{
	{"async-window", "passing", "two a second", asked(twoASecond), arriving(100, 200, 1100, 1200, 2150), pass},
	{"async-window", "failing", "three within a second", asked(twoASecond), arriving(100, 200, 1090, 1200), fail},
	{"async-window", "failing", "three at the edge of two seconds", asked(twoASecond), arriving(100, 900, 1050, 1900), fail},
	{"async-window", "failing", "three within a second, and too few", asked(twoASecond), arriving(100, 200, 300), fail},
	{"async-window", "degenerate", "no span was full", askedWith(twoASecond, func(a *checks.Async) { a.Min = 0 }), arriving(100, 200), inconclusive},
	{"async-window", "degenerate", "too few", asked(twoASecond), arriving(100, 200, 1100), inconclusive},
	{"async-window", "degenerate", "no span", askedWith(twoASecond, func(a *checks.Async) { a.Gap = 0 }), arriving(100, 200, 300, 400), inconclusive},
	{"async-window", "degenerate", "no limit", askedWith(twoASecond, func(a *checks.Async) { a.Max = 0 }), arriving(100, 200, 300, 400), inconclusive},
	{"async-window", "degenerate", "nothing was submitted", askedWith(twoASecond, func(a *checks.Async) { a.IDs = []string{"n*"} }), arriving(100, 200, 1100, 1200), inconclusive},
	{"async-window", "degenerate", "the window was not reached", askedWith(twoASecond, func(a *checks.Async) { a.To = "later" }), arriving(100, 200, 1100, 1200), inconclusive},
}

var asyncFlowTrials = slices.Concat(arrivalTrials, orderTrials, peakTrials, gapTrials, pollTrials, rateTrials, shareTrials, spreadTrials, windowTrials)
