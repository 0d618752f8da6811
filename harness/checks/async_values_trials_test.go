package checks_test

import (
	"math"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
)

// metered are two pages of p: a counter with two series that grows by three, and a gauge.
func metered() *hist {
	return history().step("before", 0, 10).step("after", 100, 110).metric("before", "n_total", 1, labels{"queue": "x"}).metric("before", "n_total", 2, labels{"queue": "y"}).metric("before", "depth", 4, nil).
		metric("after", "n_total", 3, labels{"queue": "x"}).metric("after", "n_total", 3, labels{"queue": "y"}).metric("after", "depth", 0, nil)
}

func value(v checks.ValueWant) checks.Spec { return asked(checks.Async{Values: []checks.ValueWant{v}}) }

var (
	grownByThree = checks.ValueWant{Mark: "after", Since: "before", Name: "n_total", Min: 3, Max: 3}
	fourDeep     = checks.ValueWant{Mark: "before", Name: "depth", Min: 4, Max: 4}
	noOther      = checks.ValueWant{Mark: "after", Name: "other", Absent: true}
)

func unnumbered(sm *evidence.Sample) { sm.Value = math.MaxFloat64 }

var valueListTrials = []trial{
	{"async-values", "passing", "it has grown by three", value(grownByThree), metered(), pass},
	{"async-values", "passing", "the sum of its series", value(checks.ValueWant{Mark: "after", Name: "n_total", Min: 6, Max: 6}), metered(), pass},
	{"async-values", "passing", "one of its series", value(checks.ValueWant{Mark: "after", Name: "n_total", Labels: labels{"queue": "x"}, Min: 3, Max: 3}), metered(), pass},
	{"async-values", "passing", "a gauge, and what is not there", asked(checks.Async{Values: []checks.ValueWant{fourDeep, noOther}}), metered(), pass},
	{"async-values", "passing", "a counter that was not needed did not grow", value(checks.ValueWant{Mark: "after", Since: "before", Name: "other"}), metered(), pass},
	{"async-values", "passing", "of another processor", value(checks.ValueWant{Mark: "after", Who: "p2", Name: "n_total", Min: 9, Max: 9}), metered().metric("after", "n_total", 9, nil).s(func(sm *evidence.Sample) {
		if sm.Value == 9 {
			sm.Source = "p2"
		}
	}), pass},
	{"async-values", "failing", "it has grown by less", value(grownByThree), metered().s(reads("llm_d_async_n_total", 2)), fail},
	{"async-values", "failing", "too much", value(checks.ValueWant{Mark: "after", Name: "n_total", Max: 5}), metered(), fail},
	{"async-values", "failing", "too little", value(checks.ValueWant{Mark: "after", Name: "depth", Min: 1, Max: 9}), metered(), fail},
	{"async-values", "failing", "it is not there", value(checks.ValueWant{Mark: "after", Name: "other", Max: 9}), metered(), fail},
	{"async-values", "failing", "it was to grow and is not there", value(checks.ValueWant{Mark: "after", Since: "before", Name: "other", Min: 1, Max: 9}), metered(), fail},
	{"async-values", "failing", "it has gone", value(checks.ValueWant{Mark: "after", Since: "before", Name: "depth", Max: 9}), metered().drop(func(sm evidence.Sample) bool { return sm.Mark == "after" && sm.Name == "llm_d_async_depth" }), fail},
	{"async-values", "failing", "a label that no series has", value(checks.ValueWant{Mark: "after", Name: "n_total", Labels: labels{"pool": ""}, Max: 9}), metered(), fail},
	{"async-values", "failing", "it is there and must not be", value(checks.ValueWant{Mark: "after", Name: "depth", Absent: true}), metered(), fail},
	{"async-values", "failing", "the second value is wrong", asked(checks.Async{Values: []checks.ValueWant{noOther, {Mark: "after", Name: "depth", Min: 1, Max: 1}}}), metered(), fail},
	{"async-values", "degenerate", "it is no number", value(fourDeep), metered().s(func(sm *evidence.Sample) { sm.Value = math.NaN() }), fail},
	{"async-values", "degenerate", "it is no number that can be written down", value(checks.ValueWant{Mark: "before", Name: "depth", Max: math.MaxFloat64}), metered().s(unnumbered), fail},
	{"async-values", "degenerate", "it stays what is no number", value(checks.ValueWant{Mark: "after", Since: "before", Name: "depth"}), metered().s(unnumbered), fail},
	{"async-values", "degenerate", "the page was not read", value(noOther), metered().drop(marked("after")), inconclusive},
	{"async-values", "degenerate", "the earlier page was not read", value(checks.ValueWant{Mark: "after", Since: "before", Name: "n_total", Min: 6, Max: 6}), metered().drop(marked("before")), inconclusive},
	{"async-values", "degenerate", "only the page of another processor was read", value(checks.ValueWant{Mark: "after", Name: "n_total", Absent: true}), metered().s(elsewhere), inconclusive},
	{"async-values", "degenerate", "the page did not show what the step waited for", value(grownByThree), metered().broken("after"), inconclusive},
	{"async-values", "degenerate", "the earlier step missed its barrier", value(grownByThree), metered().broken("before"), inconclusive},
	{"async-values", "degenerate", "nothing is looked for", asked(checks.Async{}), metered(), inconclusive},
}

// labelled are a counter and a histogram with the labels of a queue.
func labelled() *hist {
	l := func(more ...string) labels {
		out := labels{"queue_id": "i", "pool_name": "p"}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	return history().step("end", 0, 10).metric("end", "n_total", 1, l()).metric("end", "h_bucket", 1, l("le", "5")).metric("end", "h_sum", 1, l()).metric("end", "h_count", 1, l())
}

var labelsAsked = checks.Async{To: "end", Names: []string{"n_total", "h"}, Labels: []string{"queue_id", "pool_name"}}

var labelTrials = []trial{
	{"async-labels", "passing", "both have the labels of a queue", asked(labelsAsked), labelled(), pass},
	{"async-labels", "failing", "one label is missing", askedWith(labelsAsked, func(a *checks.Async) { a.Labels = append(words("queue_name"), a.Labels...) }), labelled(), fail},
	{"async-labels", "failing", "one label too many", askedWith(labelsAsked, func(a *checks.Async) { a.Labels = a.Labels[:1] }), labelled(), fail},
	{"async-labels", "failing", "one of the series has none", asked(labelsAsked), labelled().metric("end", "h_count", 2, nil), fail},
	{"async-labels", "failing", "a family is missing", askedWith(labelsAsked, func(a *checks.Async) { a.Names = words("n_total other") }), labelled(), fail},
	{"async-labels", "degenerate", "the page was read at another step", asked(labelsAsked), labelled().s(func(sm *evidence.Sample) { sm.Mark = "begin" }), inconclusive},
	{"async-labels", "degenerate", "it is the page of another processor", asked(labelsAsked), labelled().s(elsewhere), inconclusive},
	{"async-labels", "degenerate", "the page did not show what the step waited for", asked(labelsAsked), labelled().broken("end"), inconclusive},
	{"async-labels", "degenerate", "no page was read", asked(labelsAsked), labelled().drop(marked("end")), inconclusive},
	{"async-labels", "degenerate", "no family", askedWith(labelsAsked, func(a *checks.Async) { a.Names = nil }), labelled(), inconclusive},
}

// stored is a broker with two sets of three together, a counter, a list that expires in three seconds, and a key that is not there.
func stored() *hist {
	h := history().step("then", 0, 10).key("then", "q", 2).key("then", "retry", 1).key("then", "none", 0).key("then", "quota", 1).key("then", "list", 2)
	return h.each(keyed("quota", func(k *evidence.BrokerKey) { k.Type, k.Value = "string", "2" })).each(keyed("list", func(k *evidence.BrokerKey) { k.Type, k.TTL = "list", int64(3*time.Second) }))
}

func keys(low, high int64, names ...string) checks.KeyWant {
	return checks.KeyWant{Mark: "then", Keys: names, Min: low, Max: high}
}

func keyAsked(w checks.KeyWant) checks.Spec { return asked(checks.Async{Keys: []checks.KeyWant{w}}) }

func expiring(low, high time.Duration, name string) checks.Spec {
	return keyAsked(checks.KeyWant{Mark: "then", Keys: []string{name}, Max: -1, TTLMin: low, TTLMax: high})
}

func lasting(name string) checks.Spec {
	return keyAsked(checks.KeyWant{Mark: "then", Keys: []string{name}, Max: -1, NoTTL: true})
}

func reading(name, text string) checks.Spec {
	return keyAsked(checks.KeyWant{Mark: "then", Keys: []string{name}, Max: -1, Value: text})
}

var keyTrials = []trial{
	{"async-keys", "passing", "three together", keyAsked(keys(3, 3, "q", "retry", "none")), stored(), pass},
	{"async-keys", "passing", "at least two", keyAsked(keys(2, -1, "q")), stored(), pass},
	{"async-keys", "passing", "none", keyAsked(keys(0, 0, "none")), stored(), pass},
	{"async-keys", "passing", "it expires in time", expiring(time.Second, 3*time.Second, "list"), stored(), pass},
	{"async-keys", "passing", "it expires late enough", expiring(time.Second, 0, "list"), stored(), pass},
	{"async-keys", "passing", "it never expires", lasting("q"), stored(), pass},
	{"async-keys", "passing", "a counter", reading("quota", "2"), stored(), pass},
	{"async-keys", "passing", "a counter that is not there is 0", reading("none", "0"), stored(), pass},
	{"async-keys", "passing", "the last look counts", keyAsked(keys(2, 2, "q")), history().step("then", 0, 10).key("then", "q", 5).key("then", "q", 2), pass},
	{"async-keys", "failing", "one more", keyAsked(keys(0, 2, "q", "retry")), stored(), fail},
	{"async-keys", "failing", "one less", keyAsked(keys(4, -1, "q", "retry")), stored(), fail},
	{"async-keys", "failing", "it expires too late", expiring(0, 2*time.Second, "list"), stored(), fail},
	{"async-keys", "failing", "it expires too early", expiring(4*time.Second, 5*time.Second, "list"), stored(), fail},
	{"async-keys", "failing", "it expires too early, and may at any time later", expiring(4*time.Second, 0, "list"), stored(), fail},
	{"async-keys", "failing", "it never expires and must", expiring(0, time.Hour, "q"), stored(), fail},
	{"async-keys", "failing", "it expires and must not", lasting("list"), stored(), fail},
	{"async-keys", "failing", "another count", reading("quota", "1"), stored(), fail},
	{"async-keys", "failing", "a counter that is not there is not 2", reading("none", "2"), stored(), fail},
	{"async-keys", "failing", "the second of two", asked(checks.Async{Keys: []checks.KeyWant{keys(2, 2, "q"), keys(2, 2, "retry")}}), stored(), fail},
	{"async-keys", "degenerate", "what is not there never expires, and does not stay either", lasting("none"), stored(), inconclusive},
	{"async-keys", "degenerate", "what is not there expires at no time", expiring(0, time.Hour, "none"), stored(), inconclusive},
	{"async-keys", "degenerate", "one of two was not looked at", keyAsked(keys(0, 2, "q", "claims")), stored(), inconclusive},
	{"async-keys", "degenerate", "one could not be read", keyAsked(keys(0, 1, "q", "retry")), stored().each(keyed("q", unread)), inconclusive},
	{"async-keys", "degenerate", "nobody looked then", keyAsked(checks.KeyWant{Mark: "later", Keys: []string{"none"}}), stored(), inconclusive},
	{"async-keys", "degenerate", "no key", keyAsked(keys(0, 0)), stored(), inconclusive},
	{"async-keys", "degenerate", "nothing is looked for", asked(checks.Async{}), stored(), inconclusive},
}

// settled are five messages of each way to end, with a page that counts four requests, of which one failed before it was sent.
func settled() *hist {
	h := handled().step("end", 1000, 1010).submit(10, "bad", "late", "shed", "gone").result(200, "bad", 400).failure(210, "late", "DEADLINE_EXCEEDED").failure(220, "gone", "CANCELLED").
		final(230, evidence.FinalResult{ID: "shed", Payload: `{"code":429}`})
	for name, v := range map[string]float64{"request": 6, "successful_requests": 2, "failed_requests": 1, "exceeded_deadline_requests": 1, "cancelled_requests": 1} {
		h.metric("end", "async_"+name+"_total", v, nil)
	}
	return h.metric("end", "async_gate_decisions_total", 1, labels{"reason": "dropped"}).metric("end", "async_gate_decisions_total", 50, labels{"reason": "gate_closed"}).
		metric("end", "async_inflight_requests", 0, nil).metric("end", "async_queue_depth", 0, nil)
}

var accountsAsked = checks.Async{To: "end"}

var accountTrials = []trial{
	{"async-accounts", "passing", "six requests and six outcomes", asked(accountsAsked), settled(), pass},
	{"async-accounts", "passing", "one is still inside", asked(accountsAsked), settled().s(reads("llm_d_async_async_request_total", 7)).s(reads("llm_d_async_async_inflight_requests", 1)), pass},
	{"async-accounts", "passing", "one ended before it was counted as a request", askedWith(accountsAsked, func(a *checks.Async) { a.Low = 1 }), settled().s(reads("llm_d_async_async_request_total", 5)), pass},
	{"async-accounts", "failing", "drops are not counted", asked(accountsAsked), settled().drop(func(sm evidence.Sample) bool { return sm.Labels["reason"] == "dropped" }), fail},
	{"async-accounts", "failing", "one outcome is counted twice", asked(accountsAsked), settled().s(reads("llm_d_async_async_failed_requests_total", 2)), fail},
	{"async-accounts", "failing", "one is inside for ever", asked(accountsAsked), settled().s(reads("llm_d_async_async_inflight_requests", 1)), fail},
	{"async-accounts", "degenerate", "no numbers", asked(accountsAsked), settled().s(unnumbered), fail},
	{"async-accounts", "degenerate", "nothing was dropped", asked(accountsAsked), settled().forget(isResult("shed")), inconclusive},
	{"async-accounts", "degenerate", "nothing was cancelled", asked(accountsAsked), settled().forget(isResult("gone")), inconclusive},
	{"async-accounts", "degenerate", "nothing was late", asked(accountsAsked), settled().forget(isResult("late")), inconclusive},
	{"async-accounts", "degenerate", "nothing failed", asked(accountsAsked), settled().forget(isResult("bad")), inconclusive},
	{"async-accounts", "degenerate", "nothing succeeded", asked(accountsAsked), settled().forget(isResult("m0")).forget(isResult("m1")), inconclusive},
	{"async-accounts", "degenerate", "too few of each", askedWith(accountsAsked, func(a *checks.Async) { a.Min = 2 }), settled(), inconclusive},
	{"async-accounts", "degenerate", "no request was counted", asked(accountsAsked), settled().s(reads("llm_d_async_async_request_total", 0)), inconclusive},
	{"async-accounts", "degenerate", "the page was not read", asked(accountsAsked), settled().drop(marked("end")), inconclusive},
	{"async-accounts", "degenerate", "the page did not show what the step waited for", asked(accountsAsked), settled().broken("end"), inconclusive},
}

const residence = "async_queue_residence_time_millis_"

// queuedUp are three messages that one worker handles one after the other, a second each: they reside for 0, 1 and 2 seconds.
func queuedUp(sum, count float64) *hist {
	return history().submit(10, ids("m", 3)...).step("in", 0, 20).arrive("m0", 100, 1100).arrive("m1", 1100, 2100).arrive("m2", 2100, 3100).step("end", 20, 3200).
		metric("end", residence+"sum", sum, nil).metric("end", residence+"count", count, nil)
}

var residenceAsked = checks.Async{To: "end", Min: 3, Low: 0.2}

var residenceTrials = []trial{
	{"async-residence", "passing", "as the upstream saw it", asked(residenceAsked), queuedUp(3000, 3), pass},
	{"async-residence", "passing", "the last one waited in the broker", asked(residenceAsked), queuedUp(1000, 3), pass},
	{"async-residence", "failing", "longer", asked(residenceAsked), queuedUp(3700, 3), fail},
	{"async-residence", "failing", "shorter", asked(residenceAsked), queuedUp(700, 3), fail},
	{"async-residence", "failing", "one message was not counted", asked(residenceAsked), queuedUp(3000, 2), fail},
	{"async-residence", "failing", "it is not there", asked(residenceAsked), queuedUp(3000, 3).drop(func(sm evidence.Sample) bool { return true }).metric("end", "other", 1, nil), fail},
	{"async-residence", "degenerate", "no number", asked(residenceAsked), queuedUp(math.NaN(), 3), fail},
	{"async-residence", "degenerate", "all were handled at once", asked(residenceAsked), queuedUp(0, 3).each(attempts("m1", func(a *evidence.Attempt) { a.End = at(2200) })), inconclusive},
	{"async-residence", "degenerate", "they hardly waited", asked(residenceAsked), history().submit(10, ids("m", 3)...).step("end", 0, 20).arriveAll(100, 2, ids("m", 3)...).
		metric("end", residence+"sum", 4, nil).metric("end", residence+"count", 3, nil), inconclusive},
	{"async-residence", "degenerate", "one never left", asked(residenceAsked), queuedUp(3000, 3).each(attempts("m0", func(a *evidence.Attempt) { a.End = evidence.Never })), inconclusive},
	{"async-residence", "degenerate", "one did not arrive", asked(residenceAsked), queuedUp(3000, 3).forget(isAttempt("m2")), inconclusive},
	{"async-residence", "degenerate", "the page was not read", asked(residenceAsked), queuedUp(3000, 3).drop(marked("end")), inconclusive},
	{"async-residence", "degenerate", "one message does not wait", askedWith(residenceAsked, func(a *checks.Async) { a.Min = 1 }), queuedUp(3000, 3), inconclusive},
}

// pulled are two messages that wait in the process and one in the broker.
func pulled() *hist {
	return history().step("then", 0, 10).step("now", 10, 20).key("then", "q", 1).metric("now", "async_queue_depth", 2, labels{"queue_name": "q"}).metric("now", "async_queue_depth", 7, labels{"queue_name": "r"})
}

var depthAsked = checks.Async{From: "then", To: "now", Min: 3}

var depthTrials = []trial{
	{"async-depth", "passing", "three together", asked(depthAsked), pulled(), pass},
	{"async-depth", "failing", "one less", asked(depthAsked), pulled().s(reads("llm_d_async_async_queue_depth", 1)), fail},
	{"async-depth", "failing", "one more", asked(depthAsked), pulled().s(reads("llm_d_async_async_queue_depth", 3)), fail},
	{"async-depth", "failing", "no depth", asked(depthAsked), pulled().drop(func(sm evidence.Sample) bool { return sm.Labels["queue_name"] == "q" }), fail},
	{"async-depth", "degenerate", "no number", asked(depthAsked), pulled().s(unnumbered), fail},
	{"async-depth", "degenerate", "the page was not read", asked(depthAsked), pulled().drop(marked("now")), inconclusive},
	{"async-depth", "degenerate", "the broker was not looked at", asked(depthAsked), pulled().forget(func(o evidence.Observation) bool { return o.Key != nil }), inconclusive},
	{"async-depth", "degenerate", "the broker could not be read", askedWith(depthAsked, func(a *checks.Async) { a.Min = 2 }), pulled().each(keyed("q", unread)), inconclusive},
	{"async-depth", "degenerate", "nothing waits", askedWith(depthAsked, func(a *checks.Async) { a.Min = 0 }), pulled(), inconclusive},
}

func endedWith(code int) *hist {
	return history().step("ended", 0, 10).process("ended", true, code, "bye")
}

var exitsAsked = checks.Async{Names: []string{"ended"}}

var exitTrials = []trial{
	{"async-exits", "passing", "it ended well", asked(exitsAsked), endedWith(0), pass},
	{"async-exits", "failing", "it ended badly", asked(exitsAsked), endedWith(2), fail},
	{"async-exits", "failing", "it still runs, or was killed", asked(exitsAsked), endedWith(-1), fail},
	{"async-exits", "degenerate", "nothing is known of it", askedWith(exitsAsked, func(a *checks.Async) { a.Names = []string{"other"} }), endedWith(0), inconclusive},
	{"async-exits", "degenerate", "nothing is looked for", asked(checks.Async{}), endedWith(0), inconclusive},
}

func rounds() *hist {
	return history().step("round-0", 0, 10).detail("round-0", "3 in flight").step("round-1", 10, 20).detail("round-1", "1 in flight").step("round-2", 20, 30).broken("round-2").detail("round-2", "0 in flight")
}

var roundsAsked = checks.Async{Names: []string{"round-"}, Min: 2}

var roundTrials = []trial{
	{"async-rounds", "passing", "two of three met work", asked(roundsAsked), rounds(), pass},
	{"async-rounds", "failing", "in one it did not end", asked(roundsAsked), rounds().detail("round-2", "2 in flight, and it did not end"), fail},
	{"async-rounds", "degenerate", "too few met work", askedWith(roundsAsked, func(a *checks.Async) { a.Min = 3 }), rounds(), inconclusive},
	{"async-rounds", "degenerate", "no rounds of that name", askedWith(roundsAsked, func(a *checks.Async) { a.Names = []string{"lap-"} }), rounds(), inconclusive},
	{"async-rounds", "degenerate", "steps of any name", askedWith(roundsAsked, func(a *checks.Async) { a.Names = []string{""} }), rounds(), inconclusive},
	{"async-rounds", "degenerate", "none is needed", askedWith(roundsAsked, func(a *checks.Async) { a.Min = 0 }), rounds(), inconclusive},
}

var asyncValueTrials = slices.Concat(valueListTrials, labelTrials, keyTrials, accountTrials, residenceTrials, depthTrials, exitTrials, roundTrials)
