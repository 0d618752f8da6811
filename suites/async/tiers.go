package async

import (
	"fmt"

	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// priority is the header in which these scenarios ask for the lane's number.
const priority = "x-gateway-priority"

// tierScenarios are those of AP-TIER.
var tierScenarios = []s.Scenario{
	play("six-lanes", "six lanes in strict order", func(a *script) {
		for i, q := range laneQueues {
			a.Submit("in-"+q, q, s.Messages(fmt.Sprintf("l%d-", i), 20, s.User("t"))...)
		}
		a.Size("waiting", "", 120, laneQueues...)
		a.Hold()
		a.Serve(tiered(1, doc{"priority_header": priority}, sixLanes()...))
		a.Size("pulled", "", 0, laneQueues...)
		a.Held("first", 1, 500*msec)
		a.Do(step{Op: sut.AsyncStep1, Mark: "others", Count: 119})
		a.Release("last", 0)
		a.Results("done", 120, 0)
		for _, id := range []string{"AP-TIER-01", throughput} {
			a.Check(id, "async-order", want{Groups: groups("l0-*", "l1-*", "l2-*", "l3-*", "l4-*", "l5-*"), Skip: 7, Min: 113, To: "others"}, "waiting", "up", "pulled", "first", "others")
		}
		var lanes []attempt
		for i := range laneQueues {
			lanes = append(lanes, each(numbered(fmt.Sprintf("l%d-", i), 20), priority, fmt.Sprint(i))...)
		}
		a.Check("AP-TIER-01", "async-attempts", want{Attempts: lanes}, "waiting", "up", "pulled", "others")
		a.Check("AP-TIER-01", "async-results", want{Status: 200}, "waiting", "up", "pulled", "others")
	}),
	pairOfLanes("reserved-first", "reserved goes before overflow, of one tier", reserved(tier("high", "interactive")), tier("low", "interactive")),
	pairOfLanes("reserved-batch-first", "a reserved batch goes before an interactive overflow", reserved(tier("high", "batch")), tier("low", "interactive")),
	pairOfLanes("async-first", "in one class async goes before batch", reserved(tier("high", "async")), reserved(tier("low", "batch"))),
	play("lane-defaults", "a missing or unknown tier is batch, a missing classification overflow", func(a *script) {
		a.Serve(tiered(4, doc{"priority_header": priority}, s.Queue("plain"), tier("gold", "gold"), reserved(s.Queue("reserved")), reserved(tier("platinum", "platinum"))))
		for _, q := range []string{"plain", "gold", "reserved", "platinum"} {
			a.Submit("in-"+q, q, s.Message(q, s.User("t")))
		}
		a.Results("done", 4, 0)
		a.Check("AP-TIER-03", "async-attempts", want{Attempts: []attempt{{ID: "plain", Name: priority, Value: "5"}, {ID: "gold", Name: priority, Value: "5"},
			{ID: "reserved", Name: priority, Value: "2"}, {ID: "platinum", Name: priority, Value: "2"}}}, "up", "done")
	}),
	play("lane-turns", "inside a lane the queues take turns", func(a *script) {
		a.Submit("x-in", "x", s.Messages("x", 12)...)
		a.Submit("y-in", "y", s.Messages("y", 12)...)
		a.Hold()
		a.Serve(tiered(1, doc{}, tier("x", "interactive"), tier("y", "interactive")))
		a.Size("pulled", "", 0, "x", "y")
		a.Held("first", 1, 500*msec)
		a.Do(step{Op: sut.AsyncStep1, Mark: "others", Count: 23})
		a.Release("last", 0)
		a.Results("done", 24, 0)
		a.Check("AP-TIER-04", "async-order", want{Groups: groups("x*", "y*"), Alternate: true, Skip: 3, Min: 21, To: "others"}, "up", "pulled", "first", "others")
	}),
	play("lanes-are-strict", "a lower lane waits as long as a higher one has work", func(a *script) {
		a.Submit("low-in", "low", s.Messages("low", 10)...)
		a.Submit("high-in", "high", s.Messages("high", 10, s.User("t"))...)
		a.Hold()
		a.Serve(tiered(1, doc{}, reserved(tier("high", "interactive")), s.Queue("low")))
		a.Size("pulled", "", 0, "high", "low")
		a.Held("first", 1, 500*msec)
		// Each round adds as many as it lets go, and what was there at the beginning keeps the lane filled meanwhile.
		engaged := []string{"up", "pulled", "first"}
		for k := range 6 {
			round := fmt.Sprintf("round%d", k)
			a.Submit("more-"+round, "high", s.Messages(fmt.Sprintf("high-%d-", k), 5, s.User("t"))...)
			a.Size("in-"+round, "", 0, "high")
			a.Do(step{Op: sut.AsyncStep1, Mark: round, Count: 5})
			engaged = append(engaged, "in-"+round, round)
		}
		a.Check("AP-TIER-05", "async-arrivals", want{IDs: []string{"low*"}, Max: 3, To: "round5"}, engaged...)
		a.Check("AP-TIER-05", "async-arrivals", want{IDs: []string{"high*"}, Min: 28, Max: 31, To: "round5"}, engaged...)
	}),
	play("tier-label", "another label is the tier, for the policy and for the admission gate", func(a *script) {
		a.Set("open", "gate", "1")
		quick, slow := s.Queue("quick").With(doc{"labels": doc{"sla": "interactive", "tier": "batch"}}), s.Queue("slow").With(doc{"labels": doc{"sla": "batch", "tier": "interactive"}})
		a.Serve(s.WithPolicy(s.WithPools(s.Transport(quota(quick, "1"), quota(slow, "1")), admission("redis", gateKey, doc{"tier_label": "sla"})),
			"tier-priority", doc{"tier_label": "sla", "priority_header": priority}))
		a.Submit("quick-in", "quick", s.Message("quick-within", s.User("t")))
		a.Submit("slow-in", "slow", s.Message("slow-within", s.User("t")))
		a.Results("within", 2, 0)
		a.Submit("lane-in", "quick", s.Message("quick-over", s.User("t")))
		a.Results("over", 1, 0, "quick-over")
		a.Set("closed", "gate", "0")
		a.Submit("quick-shed", "quick", s.Message("quick-shed", s.User("t")))
		a.Submit("slow-back", "slow", s.Message("slow-back", s.User("t")))
		a.Results("shed", 1, 0, "quick-shed")
		a.ScrapeUntil("refused", poolRefusals(1))
		a.Set("open-again", "gate", "1")
		a.Results("served", 1, 0, "slow-back")
		a.Check("AP-TIER-06", "async-attempts", want{Attempts: []attempt{{ID: "quick-within", Name: priority, Value: "0"}, {ID: "slow-within", Name: priority, Value: "2"},
			{ID: "quick-over", Name: priority, Value: "3"}, {ID: "slow-back", Name: priority, Value: "5"}}}, "up", "within", "over", "served")
		a.Check("AP-TIER-06", "async-results", want{IDs: []string{"quick-shed"}, Shape: "dropped"}, "up", "within", "over", "closed")
		a.Check("AP-TIER-06", "async-arrivals", want{IDs: []string{"quick-shed", "slow-back"}, To: "open-again"}, "up", "over", "closed", "shed", "refused")
		a.Check("AP-TIER-06", "async-results", want{IDs: []string{"slow-back"}, Status: 200}, "up", "over", "closed", "refused", "open-again")
	}),
	play("shed-interactive", "on a saturated pool interactive overflow is dropped at once", func(a *script) {
		a.Set("open", "gate", "1")
		a.Serve(s.WithPools(s.Transport(quota(tier("q", "interactive"), "1")), admission("redis", gateKey, nil)))
		a.Submit("first-in", "q", s.Message("first", s.User("t")))
		a.Results("quota-used", 1, 0)
		a.Set("closed", "gate", "0")
		a.Submit("in", "q", s.Messages("m", 3, s.User("t"))...)
		a.Results("dropped", 3, 0, "m*")
		a.Quiet("watched", sec)
		a.Check("AP-TIER-07", "async-results", want{IDs: []string{"m*"}, Shape: "dropped"}, "up", "quota-used", "closed", "in")
		a.Check("AP-TIER-07", "async-timing", want{IDs: []string{"m*"}, Event: "result", Anchor: "in", Earliest: -sec, Latest: sec}, "up", "quota-used", "closed", "dropped")
		a.Check("AP-TIER-07", "async-arrivals", want{IDs: []string{"m*"}, To: "watched"}, "up", "quota-used", "closed", "dropped", "watched")
		a.Check("AP-RES-06", "async-results", want{IDs: []string{"m*"}, Shape: "dropped"}, "up", "quota-used", "closed", "in")
	}),
	play("park-reserved", "on a saturated pool reserved messages are parked", func(a *script) {
		a.Set("closed", "gate", "0")
		a.Serve(s.WithPools(s.Transport(reserved(tier("q", "batch"))), admission("redis", gateKey, nil)))
		a.Submit("in", "q", s.Messages("m", 3, s.User("t"))...)
		a.Size("taken", "", 0, "q")
		a.Quiet("watched", sec)
		a.Look("while-closed", "q", s.RetrySet)
		a.Set("open", "gate", "1")
		a.Results("done", 3, 0)
		a.Check("AP-TIER-08", "async-arrivals", want{To: "open"}, "closed", "up", "in", "taken", "watched")
		a.Check("AP-TIER-08", "async-keys", want{Keys: keys("while-closed", 0, 0, "q", s.RetrySet)}, "closed", "up", "taken", "watched")
		// Where processes share a machine some of the second may be lost to others.
		a.Check("AP-TIER-08", "async-timing", want{Event: "arrival", Anchor: "open", Latest: 1300 * msec}, "closed", "up", "taken", "watched")
		a.Check("AP-TIER-08", "async-results", want{Status: 200}, "closed", "up", "taken", "open")
	}),
	play("refuse-overflow", "on a saturated pool other overflow, and what is not classified, goes back to its queue", func(a *script) {
		a.Set("open", "gate", "1")
		a.Serve(s.WithPools(s.Transport(quota(tier("async", "async"), "1"), quota(tier("batch", "batch"), "1"), tier("plain", "interactive")), admission("redis", gateKey, nil)))
		a.Submit("async-first", "async", s.Message("first-async", s.User("t")))
		a.Submit("batch-first", "batch", s.Message("first-batch", s.User("t")))
		a.Results("quotas-used", 2, 0)
		a.Set("closed", "gate", "0")
		for _, q := range []string{"async", "batch", "plain"} {
			a.Submit(q+"-in", q, s.Message(q, s.User("t")))
		}
		a.ScrapeUntil("refused", poolRefusals(3))
		a.Quiet("watched", sec)
		places := []string{"async", "batch", "plain", s.RetrySet, "async:claimed", "batch:claimed", "plain:claimed"}
		a.Size("back", "", 3, places...)
		a.Set("open-again", "gate", "1")
		a.Results("done", 5, 0)
		over := []string{"async", "batch", "plain"}
		a.Check("AP-TIER-09", "async-arrivals", want{IDs: over, To: "open-again"}, "up", "quotas-used", "closed", "refused", "watched")
		a.Check("AP-TIER-09", "async-keys", want{Keys: keys("back", 3, 3, places...)}, "up", "quotas-used", "closed", "refused")
		a.Check("AP-TIER-09", "async-timing", want{IDs: over, Event: "result", Anchor: "open-again", Latest: 10 * sec}, "up", "quotas-used", "closed", "refused")
		a.Check("AP-TIER-09", "async-results", want{IDs: over, Status: 200}, "up", "quotas-used", "closed", "refused", "open-again")
	}),
	play("unsaturated", "on an unsaturated pool everything goes on", func(a *script) {
		a.Set("open", "gate", "1")
		var queues []doc
		for _, t := range []string{"interactive", "async", "batch"} {
			queues = append(queues, quota(tier(t, t), "1"))
		}
		a.Serve(s.WithPolicy(s.WithPools(s.Transport(queues...), admission("redis", gateKey, nil)), "tier-priority", doc{"priority_header": priority}))
		var lanes []attempt
		for i, q := range []string{"interactive", "async", "batch"} {
			a.Submit("within-"+q, q, s.Message(q+"-within", s.User("t")))
			a.Results("used-"+q, 1, 0, q+"-within")
			a.Submit("over-"+q, q, s.Message(q+"-over", s.User("t")))
			lanes = append(lanes, attempt{ID: q + "-within", Name: priority, Value: fmt.Sprint(i)}, attempt{ID: q + "-over", Name: priority, Value: fmt.Sprint(3 + i)})
		}
		a.Results("done", 6, 0)
		a.Check("AP-TIER-10", "async-results", want{Status: 200}, "open", "up")
		a.Check("AP-TIER-10", "async-attempts", want{Attempts: lanes}, "open", "up", "done")
	}),
	play("saturated-by-query", "the pool is saturated when the inner gate refuses, whatever gate that is", func(a *script) {
		a.Series("closed", "budget 0\n")
		a.Serve(s.WithPools(s.Transport(s.Queue("q")), admission("prometheus-query", `{"query":"budget"}`, nil), "--prometheus-url", "$PROM", "--prometheus-cache-ttl", "0s"))
		a.Submit("in", "q", s.Messages("m", 3)...)
		a.ScrapeUntil("refused", poolRefusals(3))
		a.Series("open", "budget 1\n")
		a.Results("done", 3, 0)
		a.Submit("free-in", "q", s.Messages("free", 3)...)
		a.Results("free-done", 3, 0, "free*")
		a.Check("AP-TIER-11", "async-arrivals", want{IDs: []string{"m*"}, To: "open"}, "closed", "up", "in", "refused", "open")
		a.Check("AP-TIER-11", "async-results", want{Status: 200}, "closed", "up", "refused", "open")
	}),
	play("admission-parameters", "what tier-priority-admission needs", func(a *script) {
		with := func(params doc) *sut.AsyncSetup {
			return s.WithPools(s.Transport(s.Queue("q")), []doc{{"id": "default", "workers": 2, "gate_type": "tier-priority-admission", "gate_params": params}})
		}
		a.Try("tried",
			s.Case("valid", with(doc{"saturation_gate": "redis", "saturation_gate_params": gateKey})),
			s.Case("without-parameters", with(doc{"saturation_gate": "constant"})),
			s.Case("no-gate", with(doc{"saturation_gate_params": gateKey})),
			s.Case("bad-json", with(doc{"saturation_gate": "redis", "saturation_gate_params": `{"address":`})))
		a.Check("AP-TIER-11", "async-starts", want{Valid: []string{"valid", "without-parameters"}, Cases: map[string]string{"no-gate": "", "bad-json": ""}}, "tried")
	}),
}

// gateKey are the parameters of a redis gate on the key "gate", as JSON text.
const gateKey = `{"address":"$BROKER","budget_key":"gate"}`

// laneQueues are queues of the six lanes, the first lane first.
var laneQueues = []string{"lane0", "lane1", "lane2", "lane3", "lane4", "lane5"}

// sixLanes gives their entries.
func sixLanes() []doc {
	var out []doc
	for i, q := range laneQueues {
		entry := tier(q, []string{"interactive", "async", "batch"}[i%3])
		if i < 3 {
			entry = reserved(entry)
		}
		out = append(out, entry)
	}
	return out
}

// tier is a queue of a tier.
func tier(name, tier string) doc { return s.Queue(name).With(doc{"labels": doc{"tier": tier}}) }

// reserved puts a queue behind a quota that is never used up: everything of it is reserved.
func reserved(q doc) doc { return quota(q, "100000") }

// quota puts a queue behind a quota of its own that only classifies.
func quota(q doc, limit string) doc {
	return q.With(doc{"gate_type": "redis-quota", "gate_params": doc{"address": "$BROKER", "limit": limit, "window": "10m", "gating_mode": "classifying", "prefix": fmt.Sprint(q["queue_name"], ":")}})
}

// tiered is a processor under tier-priority with so many workers, whose polls take everything.
func tiered(workers int, params doc, queues ...doc) *sut.AsyncSetup {
	return s.WithPolicy(s.Setup(s.Transport(queues...).With(doc{"batch_size": 100}), "--concurrency", fmt.Sprint(workers)), "tier-priority", params)
}

// admission is a pool of four workers behind tier-priority-admission over an inner gate, whose parameters are JSON text.
func admission(inner, params string, more doc) []doc {
	return []doc{{"id": "default", "workers": 4, "gate_type": "tier-priority-admission",
		"gate_params": doc{"saturation_gate": inner, "saturation_gate_params": params}.With(more)}}
}

// poolRefusals wants so many decisions of the default pool's gate that sent something back.
func poolRefusals(n float64) sut.AsyncValue {
	return sut.AsyncValue{Name: "async_gate_decisions_total", Labels: map[string]string{"queue_name": "", "pool_name": "default", "reason": "gate_closed"}, Min: n, Max: 1e12}
}

// groups makes one group of each pattern.
func groups(patterns ...string) [][]string {
	var out [][]string
	for _, p := range patterns {
		out = append(out, []string{p})
	}
	return out
}

// pairOfLanes has ten messages for each of two lanes and one worker.
func pairOfLanes(name, title string, high, low doc) s.Scenario {
	return play(name, title, func(a *script) {
		a.Submit("low-in", "low", s.Messages("low", 10, s.User("t"))...)
		a.Submit("high-in", "high", s.Messages("high", 10, s.User("t"))...)
		a.Size("waiting", "", 20, "high", "low")
		a.Hold()
		a.Serve(tiered(1, doc{}, high, low))
		// Five polls have passed when the first one is let go: what is not pulled then is waiting.
		a.Held("first", 1, 600*msec)
		a.Do(step{Op: sut.AsyncStep1, Mark: "others", Count: 19})
		a.Release("last", 0)
		a.Results("done", 20, 0)
		a.Check("AP-TIER-02", "async-order", want{Groups: groups("high*", "low*"), Skip: 3, Min: 17, To: "others"}, "waiting", "up", "first", "others")
	})
}
