package async

import (
	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// slotGateScenarios are those of AP-GATE about gates with slots, and about combinations of gates.
var slotGateScenarios = []s.Scenario{
	play("local-limit", "so many of a queue, or of a pool, are in flight", func(a *script) {
		a.Hold()
		a.Serve(s.WithPools(s.Transport(s.Gated("q", "local-max-concurrency", doc{"limit": "2"}), s.Queue("p").With(doc{"worker_pool_id": "gated"})),
			[]doc{{"id": "default", "workers": 8}, {"id": "gated", "workers": 8, "gate_type": "local-max-concurrency", "gate_params": doc{"limit": "3"}}}))
		fill(a, "in", 8, "q", "p")
		a.Held("two", 2, 0, "q-*")
		a.Held("three", 3, sec, "p-*")
		// One that ends makes room for one.
		a.Release("q-one", 1, "q-*")
		a.Release("p-one", 1, "p-*")
		a.Arrive("q-next", 3, "q-*")
		a.Arrive("p-next", 4, "p-*")
		a.Held("still", 3, 500*msec, "p-*")
		a.Answer()
		a.Release("freed", 0)
		a.Results("done", 16, 0)
		a.Check("AP-GATE-33", "async-peak", want{IDs: filled("q"), Min: 2, Max: 2, To: "still"}, "up", "in", "q-next")
		a.Check("AP-GATE-33", "async-peak", want{IDs: filled("p"), Min: 3, Max: 3, To: "still"}, "up", "in", "p-next")
		a.Check("AP-GATE-33", "async-results", want{Status: 200}, "up", "in", "two", "three")
	}),
	play("local-modes", "what is over a limit goes back to the broker, or in blocking mode waits for a slot", func(a *script) {
		a.Hold()
		// The polls are so rare that of two windows of 700 ms at least one has none: what arrives in both waited for its slot and not for a poll.
		a.Serve(s.Setup(s.Transport(s.Gated("c", "local-max-concurrency", doc{"limit": "1"}), s.Gated("b", "local-max-concurrency", doc{"limit": "1", "gating_mode": "blocking"})).
			With(doc{"poll_interval_ms": 2000})))
		fill(a, "in", 3, "c", "b")
		a.Held("c-one", 1, 0, "c-*")
		a.Held("b-one", 1, 700*msec, "b-*")
		a.Look("refused", s.Places("c")...)
		a.Release("b-first", 1, "b-*")
		a.Quiet("b-second", 700*msec)
		a.Release("b-second-freed", 1, "b-*")
		a.Quiet("b-third", 700*msec)
		a.Answer()
		a.Release("freed", 0)
		a.Results("done", 6, 0)
		engaged := marks("up", "in", "c-one", "b-one")
		// The one that was sent may still have its claim there.
		a.Check("AP-GATE-34", "async-keys", want{Keys: keys("refused", 2, 3, s.Places("c")...)}, engaged...)
		a.Check("AP-GATE-34", "async-peak", want{IDs: filled("c"), Min: 1, Max: 1, To: "b-third"}, engaged...)
		a.Check("AP-GATE-34", "async-peak", want{IDs: filled("b"), Min: 1, Max: 1, To: "b-third"}, engaged...)
		a.Check("AP-GATE-34", "async-arrivals", want{IDs: filled("b"), From: "refused", To: "b-second", Min: 1, Max: 1}, append(engaged, "b-first")...)
		a.Check("AP-GATE-34", "async-arrivals", want{IDs: filled("b"), From: "b-second", To: "b-third", Min: 1, Max: 1}, append(engaged, "b-first", "b-second-freed")...)
		a.Check("AP-GATE-34", "async-results", want{Status: 200}, engaged...)
	}),
	play("composite-budget", "the least of the inner budgets counts", func(a *script) {
		a.Do(step{Op: sut.AsyncSet, Mark: "set", Keys: map[string]string{"k8": "0.8", "k3": "0.3", "k0": "0"}})
		both := func(name, one, other string) doc {
			return composite(name, inner("redis", doc{"address": "$BROKER", "budget_key": one}), inner("redis", doc{"address": "$BROKER", "budget_key": other}))
		}
		fill(a, "in", 150, "falling", "rising", "shut", "wide")
		a.Serve(roomy(polled(both("falling", "k8", "k3"), both("rising", "k3", "k8"), both("shut", "k8", "k0"), both("wide", "k8", "k8"))))
		a.Quiet("watched", watch)
		left(a, "falling", "rising", "shut", "wide")
		watched{from: "up", to: "watched", setup: marks("set", "in", "up")}.takes(a, "AP-GATE-35", map[string]int{"falling": 3, "rising": 3, "shut": 0, "wide": 8})
	}),
	play("composite-all-or-nothing", "what a composite gate cannot have in full it does not keep in part", func(a *script) {
		quota := func(prefix, limit string) doc {
			return doc{"address": "$BROKER", "prefix": prefix, "mode": "concurrency", "limit": limit, "window": "60s", "gating_mode": "blocking"}
		}
		a.Hold()
		a.Serve(roomy(s.Transport(composite("pair", inner("redis-quota", quota("a:", "5")), inner("redis-quota", quota("b:", "1"))), s.Gated("single", "redis-quota", quota("a:", "5")))))
		a.Submit("pair-in", "pair", s.Messages("pair-", 3, s.User("u"))...)
		a.Held("pair-held", 1, 0, "pair-*")
		// Each of these refusals is a slot of the first quota that was taken for nothing.
		a.ScrapeUntil("exhausted", decided("pair", "quota_exhausted", 8))
		a.Submit("single-in", "single", s.Messages("single-", 8, s.User("u"))...)
		a.Held("five", 5, sec)
		a.Answer()
		a.Release("freed", 0)
		a.Results("done", 11, 15*sec)
		a.Size("over", "", 0, s.Places("pair")...)
		a.Quiet("settled", 500*msec)
		a.Look("end", "a:userid:u", "b:userid:u")
		engaged := marks("up", "pair-in", "pair-held", "exhausted")
		a.Check("AP-GATE-36", "async-peak", want{IDs: filled("pair"), Min: 1, Max: 1, To: "five"}, "up", "pair-in", "pair-held")
		a.Check("AP-GATE-36", "async-peak", want{Min: 5, Max: 5, To: "five"}, append(engaged, "single-in")...)
		a.Check("AP-GATE-36", "async-keys", want{Keys: zero("end", "a:userid:u", "b:userid:u")}, append(engaged, "done", "over")...)
	}),
	play("slot-after-deadline", "a request that misses its deadline in flight gives its slot back", func(a *script) {
		a.Hold("first")
		a.Serve(s.Setup(s.Transport(s.Gated("q", "local-max-concurrency", doc{"limit": "1"}))))
		a.Submit("in", "q", s.Message("first", s.Due(4*sec)))
		a.Held("taken", 1, 0, "first")
		a.Submit("more", "q", s.Message("second"))
		a.ScrapeUntil("refusing", decided("q", "gate_closed", 2))
		a.Results("missed", 1, 10*sec, "first")
		a.Results("done", 1, 0, "second")
		a.Check("AP-GATE-40", "async-timing", want{IDs: []string{"second"}, Event: "arrival", Anchor: "missed", Earliest: -sec, Latest: 2 * sec}, "up", "taken", "more", "refusing", "missed")
	}),
	play("slot-given-back", "a message that is tried again keeps no slot meanwhile", func(a *script) {
		a.Answer(sut.AsyncReply{IDs: []string{"first"}, Statuses: []int{503}, Hold: true})
		a.Serve(s.Setup(s.Transport(s.Gated("q", "local-max-concurrency", doc{"limit": "1"}))))
		a.Submit("in", "q", s.Message("first", s.Due(20*sec)))
		a.Held("taken", 1, 0, "first")
		a.Submit("more", "q", s.Message("second"))
		a.ScrapeUntil("refusing", decided("q", "gate_closed", 2))
		a.Answer(s.Statuses([]string{"first"}, 503))
		a.Release("retried", 1, "first")
		a.Size("waiting", "", 1, s.RetrySet)
		a.Results("done", 1, 0, "second")
		a.Check("AP-GATE-40", "async-timing", want{IDs: []string{"second"}, Event: "arrival", Anchor: "refusing", Latest: 2 * sec}, "up", "taken", "more", "refusing", "retried", "waiting")
		a.Check("AP-GATE-40", "async-arrivals", want{IDs: []string{"second"}, To: "refusing"}, "up", "taken", "more", "refusing")
	}),
}

// inner is a gate inside another one, as JSON text.
func inner(typ string, params doc) string {
	return doc{"gate_type": typ, "gate_params": params}.JSON()
}

// composite is a queue behind two gates.
func composite(name, one, other string) doc {
	return s.Gated(name, "composite", doc{"gates": "[" + one + "," + other + "]"})
}
