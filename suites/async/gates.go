package async

import (
	"fmt"
	"maps"
	"slices"

	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// dispatchKey is the key of a redis gate that names none.
const dispatchKey = "dispatch-gate-budget"

// gateScenarios are those of AP-GATE that need no metrics: gates on keys of the broker, gates with slots, combinations, parameters.
var gateScenarios = []s.Scenario{
	play("gate-open", "without a gate, or with a constant one, a poll takes a whole batch", func(a *script) {
		fill(a, "waiting", 120, "none", "constant")
		a.Serve(roomy(polled(s.Queue("none"), s.Queue("constant").With(doc{"gate_type": "constant"}))))
		a.Quiet("watched", watch)
		left(a, "none", "constant")
		watched{from: "up", to: "watched", setup: marks("waiting", "up")}.takes(a, "AP-GATE-01", map[string]int{"none": 10, "constant": 10})
	}),
	play("gate-refuse", "what a queue gate refuses goes back to the broker, and is sent once the gate opens", func(a *script) {
		a.Hold()
		a.Serve(s.Setup(s.Transport(s.Gated("q", "local-max-concurrency", doc{"limit": "1"}))))
		a.Submit("in", "q", s.Messages("m", 3)...)
		a.Held("taken", 1, sec)
		a.Size("refused", "least", 2, s.Places("q")...)
		a.Answer()
		a.Release("freed", 0)
		a.Results("done", 3, 0)
		a.Check("AP-GATE-03", "async-peak", want{Min: 1, Max: 1, To: "refused"}, "up", "in", "taken", "refused")
		a.Check("AP-GATE-03", "async-results", want{Status: 200}, "up", "in", "taken")
	}),
	play("gate-frees-worker", "a queue that is refused all the time does not occupy the one worker", func(a *script) {
		a.Answer(sut.AsyncReply{IDs: []string{"y-*"}, Delay: 100 * msec})
		a.Serve(s.Setup(s.Transport(quotaOf("x", doc{"limit": "1", "window": "60s"}), s.Queue("y")), "--concurrency", "1"))
		a.Submit("x-in", "x", s.Messages("x-", 5, s.User("u"))...)
		a.Results("first", 1, 0, "x-*")
		a.ScrapeUntil("refusing", decided("x", "quota_exhausted", 3))
		a.Submit("y-in", "y", s.Messages("y-", 20)...)
		a.Results("done", 20, 0, "y-*")
		a.Size("backlog", "least", 4, s.Places("x")...)
		a.Check("AP-GATE-04", "async-rate", want{IDs: []string{"y-*"}, Min: 20, Low: 8, High: 10.5}, "up", "x-in", "first", "refusing", "backlog")
		a.Check("AP-GATE-04", "async-results", want{IDs: []string{"y-*"}, Status: 200}, "up", "x-in", "first", "refusing")
		a.Check("AP-GATE-04", "async-arrivals", want{IDs: []string{"x-*"}, Min: 1, Max: 1, To: "backlog"}, "up", "x-in", "refusing", "backlog")
	}),
	play("redis-budget", "the number under a key is the budget, when it changes too", func(a *script) {
		fill(a, "in", 250, "q")
		a.Set("shut", dispatchKey, "0")
		a.Serve(roomy(polled(s.Gated("q", "redis", doc{"address": "$BROKER"}))))
		a.Quiet("shut-watched", sec)
		a.Set("half", dispatchKey, "0.5")
		a.Quiet("half-begun", 600*msec)
		a.Quiet("half-watched", watch)
		a.Set("open", dispatchKey, "1")
		a.Quiet("open-begun", 600*msec)
		a.Quiet("open-watched", watch)
		a.Set("shut-again", dispatchKey, "0")
		a.Quiet("two-polls", 1100*msec)
		a.Quiet("over", sec)
		left(a, "q")
		setup := marks("in", "shut", "up")
		watched{to: "shut-watched", setup: setup}.takes(a, "AP-GATE-05", map[string]int{"q": 0})
		watched{from: "half-begun", to: "half-watched", setup: setup}.takes(a, "AP-GATE-05", map[string]int{"q": 5})
		watched{from: "open-begun", to: "open-watched", setup: setup}.takes(a, "AP-GATE-05", map[string]int{"q": 10})
		watched{from: "two-polls", to: "over", setup: setup}.takes(a, "AP-GATE-05", map[string]int{"q": 0})
	}),
	play("redis-keys", "the default key and a key of one's own rule each its queue", func(a *script) {
		a.Do(step{Op: sut.AsyncSet, Mark: "one", Keys: map[string]string{dispatchKey: "1", "own": "0"}})
		a.Serve(s.Setup(s.Transport(s.Gated("d", "redis", doc{"address": "$BROKER"}), redisGate("o", "own"))))
		a.Submit("d-in", "d", s.Messages("d1-", 5)...)
		a.Submit("o-in", "o", s.Messages("o1-", 5)...)
		a.Results("one-done", 5, 0, "d1-*")
		a.Quiet("one-watched", sec)
		a.Set("none", dispatchKey, "0")
		a.Quiet("none-begun", 600*msec)
		a.Set("other", "own", "1")
		a.Submit("d-again", "d", s.Messages("d2-", 5)...)
		a.Results("other-done", 5, 0, "o1-*")
		a.Quiet("other-watched", sec)
		a.Check("AP-GATE-06", "async-results", want{IDs: []string{"d1-*", "o1-*"}, Status: 200}, "one", "up", "other")
		a.Check("AP-GATE-06", "async-arrivals", want{IDs: []string{"o1-*"}, To: "none-begun"}, "one", "up", "o-in", "one-done", "one-watched")
		a.Check("AP-GATE-06", "async-arrivals", want{IDs: []string{"d2-*"}, To: "other-watched"}, "up", "none-begun", "d-again", "other-done")
	}),
	play("redis-connections", "queues whose gates have one address share its connections", func(a *script) {
		var queues []doc
		for i := range manyQueues {
			queues = append(queues, s.Gated(fmt.Sprintf("q%d", i), "redis", doc{"address": "$BROKER2"}))
		}
		a.Do(step{Op: sut.AsyncSet, Mark: "shut", Who: "2", Keys: map[string]string{dispatchKey: "0"}})
		a.Serve(s.Setup(s.Transport(queues...).With(doc{"poll_interval_ms": 1000})))
		a.Submit("in", "q7", s.Messages("m", 2)...)
		a.Quiet("polled", 2500*msec)
		a.Do(step{Op: sut.AsyncSize, Mark: "connected", Who: "2", Mode: "least", Count: 1, Names: []string{":connections"}})
		a.Do(step{Op: sut.AsyncLook, Mark: "counted", Who: "2", Names: []string{":connections"}})
		a.Do(step{Op: sut.AsyncSet, Mark: "open", Who: "2", Keys: map[string]string{dispatchKey: "1"}})
		a.Results("done", 2, 0)
		// Each of as many gates with connections of their own has one at least.
		a.Check("AP-GATE-06", "async-keys", want{Keys: keys("counted", 1, manyQueues-1, ":connections")}, "shut", "up", "in", "polled", "connected", "done")
		a.Check("AP-GATE-06", "async-arrivals", want{To: "counted"}, "shut", "up", "in", "polled", "connected")
	}),
	play("redis-unreadable", "a redis gate is open without a key that can be read, and closed without a server", func(a *script) {
		fill(a, "in", 250, "missing", "text", "number")
		gate := func(name string) doc { return s.Gated(name, "redis", doc{"address": "$BROKER2", "budget_key": name}) }
		a.Do(step{Op: sut.AsyncSet, Mark: "set", Who: "2", Keys: map[string]string{"text": "wide open", "number": "0"}})
		a.Serve(roomy(polled(gate("missing"), gate("text"), gate("number"))))
		a.Quiet("watched", 1200*msec)
		a.Do(step{Op: sut.AsyncSet, Mark: "deleted", Who: "2", Keys: map[string]string{"number": ""}})
		a.Quiet("deleted-watched", 1200*msec)
		a.Do(step{Op: sut.AsyncBroker, Mark: "down", Who: "2", Mode: "down"})
		a.Quiet("down-begun", 1200*msec)
		a.Quiet("down-watched", 1200*msec)
		left(a, "missing", "text", "number")
		setup := marks("in", "set", "up")
		watched{to: "watched", setup: setup}.opens(a, "AP-GATE-07", "missing", "text")
		watched{to: "watched", setup: setup}.shuts(a, "AP-GATE-07", "number")
		watched{from: "deleted", to: "deleted-watched", setup: setup}.opens(a, "AP-GATE-07", "number")
		watched{from: "down-begun", to: "down-watched", setup: append(setup, "down")}.shuts(a, "AP-GATE-07", "missing", "text", "number")
	}),
	play("two-levels", "a message must pass the gate of its queue and that of its pool", func(a *script) {
		a.Do(step{Op: sut.AsyncSet, Mark: "pool-shut", Keys: map[string]string{"queue-key": "1", "pool-key": "0"}})
		a.Serve(s.WithPools(s.Transport(redisGate("q", "queue-key")),
			[]doc{{"id": "default", "workers": 4, "gate_type": "redis", "gate_params": doc{"address": "$BROKER", "budget_key": "pool-key"}}}))
		a.Submit("in", "q", s.Messages("m", 5)...)
		a.Quiet("pool-shut-watched", sec)
		a.Size("pool-shut-backlog", "least", 5, s.Places("q")...)
		a.Set("both-shut", "queue-key", "0")
		a.Quiet("both-shut-watched", 700*msec)
		a.Set("queue-shut", "pool-key", "1")
		a.Quiet("queue-shut-watched", sec)
		a.Size("queue-shut-backlog", "least", 5, s.Places("q")...)
		a.Set("open", "queue-key", "1")
		a.Results("done", 5, 0)
		a.Check("AP-GATE-08", "async-arrivals", want{To: "pool-shut-backlog"}, "pool-shut", "up", "in")
		a.Check("AP-GATE-08", "async-arrivals", want{From: "pool-shut-backlog", To: "queue-shut-backlog"}, "pool-shut", "up", "in", "queue-shut")
		a.Check("AP-GATE-08", "async-results", want{Status: 200}, "pool-shut", "up", "in", "queue-shut-watched", "open")
	}),
	play("budget-share", "a poll takes the whole part of the batch times the budget, which is between 0 and 1", func(a *script) {
		takes := map[string]int{"b005": 0, "b01": 1, "b035": 3, "b17": 10, "minus1": 0}
		var queues []doc
		for _, q := range slices.Sorted(maps.Keys(takes)) {
			queues = append(queues, redisGate(q, q+"-key"))
		}
		a.Do(step{Op: sut.AsyncSet, Mark: "set", Keys: map[string]string{"b005-key": "0.05", "b01-key": "0.1", "b035-key": "0.35", "b17-key": "1.7", "minus1-key": "-1"}})
		fill(a, "in", 150, slices.Sorted(maps.Keys(takes))...)
		a.Serve(roomy(polled(queues...)))
		a.Quiet("watched", watch)
		left(a, slices.Sorted(maps.Keys(takes))...)
		watched{from: "up", to: "watched", setup: marks("set", "in", "up")}.takes(a, "AP-GATE-10", takes)
	}),
	play("verdicts", "continue, refuse, wait and drop", playVerdicts),
	play("unknown-gate", "an unknown gate is an open one", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Gated("q", "nonsense", doc{"limit": "0"}))))
		a.Submit("in", "q", s.Messages("m", 12)...)
		a.Results("done", 12, 0)
		a.Check("AP-GATE-02", "async-results", want{Status: 200}, "in")
		a.Check("AP-GATE-02", "async-stays", want{Names: []string{"up"}}, "in")
	}),
	play("gate-error", "a gate that fails puts a message back, or ends it with an error where a worker has it", func(a *script) {
		a.Do(step{Op: sut.AsyncSet, Mark: "broken", Mode: "list", Keys: map[string]string{"quota:userid:u": "x", "pool:userid:u": "x"}})
		gate := doc{"address": "$BROKER", "limit": "5", "mode": "concurrency", "window": "60s", "gating_mode": "blocking"}
		a.Serve(s.WithPools(s.Transport(s.Gated("q", "redis-quota", gate), s.Queue("p").With(doc{"worker_pool_id": "gated"})),
			[]doc{{"id": "default", "workers": 2}, {"id": "gated", "workers": 2, "gate_type": "redis-quota", "gate_params": gate.With(doc{"prefix": "pool:"})}}))
		a.Submit("q-in", "q", s.Message("q-0", s.User("u")))
		a.Submit("p-in", "p", s.Message("p-0", s.User("u")))
		a.ScrapeUntil("q-counted", decided("q", "error", 1))
		a.ScrapeUntil("p-counted", sut.AsyncValue{Name: "async_gate_decisions_total", Labels: map[string]string{"queue_name": "", "pool_name": "gated", "reason": "error"}, Min: 1, Max: 1e12})
		a.Results("failed", 1, 0, "p-0")
		a.Quiet("watched", sec)
		a.Size("kept", "least", 1, s.Places("q")...)
		a.Set("healed", "quota:userid:u", "")
		a.Results("done", 1, 0, "q-0")
		a.Check("AP-GATE-39", "async-arrivals", want{To: "kept"}, "broken", "up", "q-in", "q-counted", "watched")
		a.Check("AP-GATE-39", "async-results", want{IDs: []string{"q-0"}, Status: 200}, "broken", "up", "q-in", "q-counted")
		a.Check("AP-GATE-39", "async-results", want{IDs: []string{"p-0"}, Codes: []string{"GATE_ERROR"}, Shape: "error"}, "broken", "up", "p-in", "p-counted")
	}),
	play("gate-params", "gates without a parameter that they need", func(a *script) {
		gated := func(name, typ string, params doc) sut.AsyncTrial {
			return s.Case(name, s.Setup(s.Transport(s.Gated("q", typ, params))))
		}
		waits := func(name string, params doc) sut.AsyncTrial {
			return s.Case(name, s.WithPools(s.Transport(s.Queue("q")), []doc{{"id": "default", "workers": 2, "gate_type": "wait-on-refuse", "gate_params": params}}))
		}
		a.Try("tried",
			gated("redis", "redis", doc{"address": "$BROKER"}), gated("redis-nowhere", "redis", doc{"budget_key": "own"}),
			gated("limit", "local-max-concurrency", doc{"limit": "2"}), gated("limit-none", "local-max-concurrency", doc{"gating_mode": "classifying"}),
			gated("limit-0", "local-max-concurrency", doc{"limit": "0"}), gated("limit-minus-1", "local-max-concurrency", doc{"limit": "-1"}),
			waits("wait", doc{"gate": inner("redis", doc{"address": "$BROKER"})}), waits("wait-for-nothing", doc{}))
		a.Check("AP-GATE-06", "async-starts", want{Valid: []string{"redis"}, Cases: map[string]string{"redis-nowhere": ""}}, "tried")
		a.Check("AP-GATE-33", "async-starts", want{Valid: []string{"limit"}, Cases: map[string]string{"limit-none": "", "limit-0": "", "limit-minus-1": ""}}, "tried")
		a.Check("AP-GATE-38", "async-starts", want{Valid: []string{"wait"}, Cases: map[string]string{"wait-for-nothing": ""}}, "tried")
	}),
}

// manyQueues are more than one client of a broker keeps connections for, on machines of up to sixteen processors.
const manyQueues = 200

// playVerdicts has each verdict in a pool of its own.
func playVerdicts(a *script) {
	pool := func(q doc, id string) doc { return q.With(doc{"worker_pool_id": id}) }
	quota := func(name string) doc {
		return quotaOf(name, doc{"limit": "1", "window": "60s", "gating_mode": "classifying"}).With(doc{"labels": doc{"tier": "interactive"}})
	}
	a.Do(step{Op: sut.AsyncSet, Mark: "shut", Keys: map[string]string{"w-key": "0", "d-key": "0"}})
	a.Hold("r-*")
	a.Serve(s.WithPools(s.Transport(pool(s.Queue("c").With(doc{"gate_type": "constant"}), "open"), pool(s.Gated("r", "local-max-concurrency", doc{"limit": "1"}), "open"),
		pool(s.Queue("w"), "waits"), pool(quota("e"), "open"), pool(quota("d"), "drops")),
		[]doc{{"id": "open", "workers": 4}, {"id": "waits", "workers": 3, "gate_type": "wait-on-refuse", "gate_params": doc{"gate": inner("redis", doc{"address": "$BROKER", "budget_key": "w-key"})}},
			{"id": "drops", "workers": 2, "gate_type": "tier-priority-admission", "gate_params": doc{"saturation_gate": "redis", "saturation_gate_params": `{"address":"$BROKER","budget_key":"d-key"}`}}}))
	a.Submit("e-in", "e", s.Message("e-0", s.User("u"))) // uses the quota up
	a.Results("exhausted", 1, 0, "e-*")
	a.Submit("c-in", "c", s.Messages("c-", 3)...)
	a.Submit("r-in", "r", s.Messages("r-", 3)...)
	a.Submit("w-in", "w", s.Messages("w-", 2)...)
	a.Submit("d-in", "d", s.Messages("d-", 2, s.User("u"))...)
	a.Results("continued", 3, 0, "c-*")
	a.Results("dropped", 2, 0, "d-*")
	a.Held("taken", 1, 0, "r-*")
	a.Size("parked", "", 0, "w")
	a.Quiet("watched", sec)
	a.Size("refused", "least", 2, s.Places("r")...)
	a.Set("open", "w-key", "1")
	a.Answer()
	a.Release("freed", 0)
	a.Results("done", 5, 0, "r-*", "w-*")
	engaged := []string{"shut", "up", "exhausted", "c-in", "r-in", "w-in", "d-in"}
	a.Check("AP-GATE-09", "async-results", want{IDs: []string{"c-*"}, Status: 200}, engaged...)
	a.Check("AP-GATE-09", "async-results", want{IDs: []string{"d-*"}, Shape: "dropped"}, engaged...)
	a.Check("AP-GATE-09", "async-arrivals", want{IDs: []string{"d-*"}, To: "watched"}, append(engaged, "dropped")...)
	a.Check("AP-GATE-09", "async-peak", want{IDs: []string{"r-*"}, Min: 1, Max: 1, To: "refused"}, append(engaged, "taken", "refused")...)
	a.Check("AP-GATE-09", "async-arrivals", want{IDs: []string{"w-*"}, To: "watched"}, append(engaged, "parked")...)
	a.Check("AP-GATE-09", "async-results", want{IDs: []string{"r-*", "w-*"}, Status: 200}, append(engaged, "taken", "parked")...)
}

// watch is how long rows about budgets watch: six whole polls at least, even if one comes so late that it meets the next.
const watch = 3400 * msec

// polled is a document of rows about budgets: polls of ten every 400 ms, so that what one poll takes arrives together, and apart from what
// the next one takes.
func polled(queues ...doc) doc { return s.Transport(queues...).With(doc{"poll_interval_ms": 400}) }

// roomy starts a processor with more workers than the polls of these scenarios need.
func roomy(d doc, flags ...string) *sut.AsyncSetup {
	return s.Setup(d, append([]string{"--concurrency", "50"}, flags...)...)
}

// redisGate is a queue behind a budget under a key of the broker.
func redisGate(name, key string) doc {
	return s.Gated(name, "redis", doc{"address": "$BROKER", "budget_key": key})
}

// fill puts n messages into each of some queues; their ids begin with the name of the queue and a dash.
func fill(a *script, mark string, n int, queues ...string) {
	for _, q := range queues {
		a.Submit(mark, q, s.Messages(q+"-", n)...)
	}
}

// filled are the ids of a queue that was filled.
func filled(queue string) []string { return []string{queue + "-*"} }

// left looks whether each of some queues has a message left.
func left(a *script, queues ...string) {
	for _, q := range queues {
		a.Do(step{Op: sut.AsyncSize, Mark: backlog(q), Mode: "least", Count: 1, Names: []string{q}, Limit: sec})
	}
}

// backlog is the mark of that.
func backlog(queue string) string { return "backlog-" + queue }

// marks is a list of them.
func marks(list ...string) []string { return list }

// watched is what is watched between two marks.
type watched struct {
	from, to string
	setup    []string // marks of steps without which nothing can be said
	read     []string // marks of barriers that show that the gates read what they are to read
}

// takes wants what each poll takes of each of some filled queues.
func (w watched) takes(a *script, requirement string, takes map[string]int) {
	for _, q := range slices.Sorted(maps.Keys(takes)) {
		if takes[q] == 0 {
			w.shuts(a, requirement, q)
			continue
		}
		a.Check(requirement, "async-polls", want{IDs: filled(q), From: w.from, To: w.to, Min: takes[q], Gap: 150 * msec, Clusters: 4}, slices.Concat(w.setup, w.read, marks(backlog(q)))...)
	}
}

// opens wants that something of each of some filled queues is sent.
func (w watched) opens(a *script, requirement string, queues ...string) {
	for _, q := range queues {
		a.Check(requirement, "async-arrivals", want{IDs: filled(q), From: w.from, To: w.to, Min: 1, Max: more}, slices.Concat(w.setup, w.read)...)
	}
}

// shuts wants that nothing is sent of each of some filled queues. Where that holds from the start all that was submitted waits, and what is
// sent is wrong whether a gate read anything or not; later on a queue must have something left.
func (w watched) shuts(a *script, requirement string, queues ...string) {
	for _, q := range queues {
		if w.from == "" || w.from == "up" {
			a.Check(requirement, "async-arrivals", want{IDs: filled(q), To: w.to}, w.setup...)
			continue
		}
		a.Check(requirement, "async-arrivals", want{IDs: filled(q), From: w.from, To: w.to}, slices.Concat(w.setup, w.read, marks(backlog(q)))...)
	}
}

// decided wants so many decisions of a queue's gate that sent something back.
func decided(queue, reason string, n float64) sut.AsyncValue {
	return sut.AsyncValue{Name: "async_gate_decisions_total", Labels: map[string]string{"queue_name": queue, "reason": reason}, Min: n, Max: 1e12}
}
