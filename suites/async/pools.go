package async

import (
	"fmt"

	"github.com/llm-weir/weir/harness/checks"
	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// poolScenarios are those of AP-POOL.
var poolScenarios = []s.Scenario{
	play("pool-of-four", "a pool holds one request for each worker", func(a *script) {
		a.Hold()
		a.Serve(s.WithPools(s.Transport(s.Queue("q")), []doc{{"id": "default", "workers": 4}}))
		a.Submit("in", "q", s.Messages("m", 20)...)
		a.Held("four", 4, 2*sec)
		a.Release("one", 1)
		a.Arrive("fifth", 5)
		a.Held("still", 4, 500*msec)
		a.Answer()
		a.Release("all", 0)
		a.Results("done", 20, 0)
		a.Check("AP-POOL-01", "async-peak", want{Min: 4, Max: 4, To: "still"}, "up", "in", "four", "fifth")
		a.Check("AP-POOL-01", "async-arrivals", want{From: "one", To: "still", Min: 1, Max: 1}, "up", "four", "one")
	}),
	play("little", "four workers of 200 ms serve twenty a second", func(a *script) {
		a.Answer(sut.AsyncReply{Delay: 200 * msec})
		a.Serve(s.WithPools(s.Transport(s.Queue("q")), []doc{{"id": "default", "workers": 4}}))
		a.Submit("in", "q", s.Messages("m", 100)...)
		a.Results("done", 100, 20*sec)
		a.Check("AP-POOL-02", "async-rate", want{Min: 100, Low: 16, High: 22}, "up", "in")
		a.Check("AP-POOL-02", "async-peak", want{Min: 4, Max: 4}, "up", "in")
	}),
	littlesLaw(1),
	littlesLaw(16),
	littlesLaw(64),
	play("shared-pool", "two queues share the workers of a pool", func(a *script) {
		a.Hold()
		a.Serve(s.WithPools(s.Transport(s.Queue("x"), s.Queue("y")), []doc{{"id": "default", "workers": 4}}))
		a.Submit("x-in", "x", s.Messages("x", 10)...)
		a.Submit("y-in", "y", s.Messages("y", 10)...)
		a.Held("four", 4, sec)
		a.Answer(sut.AsyncReply{})
		a.Release("released", 0)
		a.Results("done", 20, 20*sec)
		a.Check("AP-POOL-03", "async-peak", want{Min: 4, Max: 4, To: "four"}, "up", "x-in", "y-in", "four")
		a.Check("AP-POOL-03", "async-results", want{IDs: []string{"x*", "y*"}, Status: 200}, "up", "x-in", "y-in", "released")
	}),
	play("pools-apart", "a blocked pool does not slow another one", func(a *script) {
		a.Answer(sut.AsyncReply{IDs: []string{"p*"}, Hold: true}, sut.AsyncReply{Delay: 100 * msec})
		a.Serve(s.WithPools(s.Transport(s.Queue("p").With(doc{"worker_pool_id": "p"}), s.Queue("q").With(doc{"worker_pool_id": "q"})),
			[]doc{{"id": "p", "workers": 1}, {"id": "q", "workers": 2}}))
		a.Submit("p-in", "p", s.Messages("p", 50)...)
		a.Held("blocked", 1, 0, "p*")
		a.Submit("q-in", "q", s.Messages("q", 50)...)
		a.Results("q-done", 50, 20*sec, "q*")
		a.Held("still", 1, 0, "p*")
		for _, id := range []string{"AP-POOL-04", throughput} {
			a.Check(id, "async-rate", want{IDs: []string{"q*"}, Min: 50, Low: 17, High: 22}, "up", "blocked", "still")
			a.Check(id, "async-results", want{IDs: []string{"q*"}, Status: 200}, "up", "blocked", "still")
		}
	}),
	play("pool-file", "the pool file: an array of pools with unique ids and workers", func(a *script) {
		with := func(pools string) *sut.AsyncSetup {
			return s.Files(s.Setup(s.Transport(s.Queue("q")), "--pool-config-file", "$FILE_pools"), "pools", pools)
		}
		a.Try("tried",
			s.Case("valid", with(`[{"id":"default","workers":2},{"id":"other","workers":1}]`)),
			s.Case("no-id", with(`[{"id":"default","workers":2},{"workers":1}]`)),
			s.Case("no-workers", with(`[{"id":"default"}]`)),
			s.Case("zero-workers", with(`[{"id":"default","workers":0}]`)),
			s.Case("negative-workers", with(`[{"id":"default","workers":-1}]`)),
			s.Case("duplicate-id", with(`[{"id":"default","workers":2},{"id":"default","workers":1}]`)),
			s.Case("object", with(`{"id":"default","workers":2}`)))
		a.Check("AP-POOL-05", "async-starts", want{Valid: []string{"valid"},
			Cases: map[string]string{"no-id": "", "no-workers": "", "zero-workers": "", "negative-workers": "", "duplicate-id": "", "object": ""}}, "tried")
	}),
	play("pool-gate", "a pool gate of two lets two of four workers send, over all queues of the pool", func(a *script) {
		a.Hold()
		a.Serve(s.WithPools(s.Transport(s.Queue("x"), s.Queue("y")), []doc{{"id": "default", "workers": 4, "gate_type": "local-max-concurrency", "gate_params": doc{"limit": "2"}}}))
		a.Submit("x-in", "x", s.Messages("x", 5)...)
		a.Submit("y-in", "y", s.Messages("y", 5)...)
		a.Held("two", 2, sec)
		a.Release("one", 1)
		a.Arrive("third", 3)
		a.Held("still", 2, 500*msec)
		a.Answer()
		a.Release("all", 0)
		a.Results("done", 10, 20*sec)
		a.Check("AP-POOL-06", "async-peak", want{Min: 2, Max: 2, To: "still"}, "up", "x-in", "y-in", "two", "third")
		a.Check("AP-POOL-06", "async-results", want{Status: 200}, "up", "two", "all")
		a.Check("AP-POOL-09", "async-peak", want{Min: 2, Max: 2, To: "still"}, "up", "x-in", "y-in", "two", "third")
	}),
	play("pool-wait", "a pool gate that waits parks the workers in memory", func(a *script) {
		a.Set("closed", "gate", "0")
		a.Serve(s.WithPools(s.Transport(s.Queue("q")), []doc{{"id": "default", "workers": 3, "gate_type": "wait-on-refuse",
			"gate_params": doc{"gate": doc{"gate_type": "redis", "gate_params": doc{"address": "$BROKER", "budget_key": "gate"}}}}}))
		a.Submit("in", "q", s.Messages("m", 3)...)
		a.Size("parked", "", 0, "q")
		a.Quiet("watched", sec)
		a.Look("while-parked", "q", s.RetrySet)
		a.Set("open", "gate", "1")
		a.Results("done", 3, 5*sec)
		for _, id := range []string{"AP-POOL-07", "AP-GATE-38"} {
			a.Check(id, "async-arrivals", want{To: "open"}, "closed", "up", "in", "parked", "watched")
			a.Check(id, "async-keys", want{Keys: keys("while-parked", 0, 0, "q", s.RetrySet)}, "up", "parked")
			a.Check(id, "async-timing", want{Event: "arrival", Anchor: "open", Latest: 2 * sec}, "up", "parked", "open")
			a.Check(id, "async-results", want{Status: 200}, "up", "parked", "open")
		}
	}),
	play("pool-refuse", "a pool gate that refuses gives messages back at once", func(a *script) {
		a.Set("closed", "gate", "0")
		a.Serve(s.WithPools(s.Transport(s.Queue("q")), []doc{{"id": "default", "workers": 3, "gate_type": "redis", "gate_params": doc{"address": "$BROKER", "budget_key": "gate"}}}))
		a.Submit("in", "q", s.Messages("m", 5)...)
		a.ScrapeUntil("refused", sut.AsyncValue{Name: "async_gate_decisions_total", Labels: map[string]string{"reason": "gate_closed"}, Min: 5, Max: 1e12})
		a.Quiet("watched", sec)
		a.Look("while-closed", s.Places("q")...)
		a.Set("open", "gate", "1")
		a.Results("done", 5, 0)
		a.Check("AP-POOL-08", "async-arrivals", want{To: "open"}, "closed", "up", "in", "refused")
		a.Check("AP-POOL-08", "async-conserved", want{To: "while-closed"}, "up", "refused")
		a.Check("AP-POOL-08", "async-results", want{Status: 200}, "up", "refused", "open")
	}),
	play("parked-too-long", "a message whose deadline passes while it is parked", func(a *script) {
		a.Set("closed", "gate", "0")
		a.Serve(s.WithPools(s.Transport(s.Queue("q")), []doc{{"id": "default", "workers": 3, "gate_type": "wait-on-refuse",
			"gate_params": doc{"gate": doc{"gate_type": "redis", "gate_params": doc{"address": "$BROKER", "budget_key": "gate"}}}}}))
		a.Submit("in", "q", s.Messages("m", 2, s.Due(3*sec))...)
		a.Size("parked", "", 0, "q")
		a.Results("done", 2, 8*sec)
		a.Set("open", "gate", "1")
		a.Quiet("watched", sec)
		a.Check("AP-POOL-10", "async-arrivals", want{To: "watched"}, "closed", "up", "parked", "watched")
		a.Check("AP-POOL-10", "async-results", want{Codes: []string{"DEADLINE_EXCEEDED"}, Shape: "error"}, "closed", "up", "parked")
		a.Check("AP-POOL-10", "async-timing", want{Event: "result", Anchor: "deadline", Earliest: -msec, Latest: 2 * sec}, "closed", "up", "parked")
	}),
}

// keys wants so many elements of some keys together, at a mark.
func keys(mark string, low, high int64, names ...string) []checks.KeyWant {
	return []checks.KeyWant{{Mark: mark, Keys: names, Min: low, Max: high}}
}

// throughput is the benchmark of pools and lanes: Little's law, isolation, shares.
const throughput = "BEN-21"

// littlesLaw has a pool of so many workers at an upstream of 200 ms, for 16 rounds of all of them. As many arrivals have one gap less, so that
// a pool which keeps the law shows up to 16/15 of workers ÷ latency.
func littlesLaw(workers int) s.Scenario {
	const latency, rounds = 200 * msec, 16
	n := workers * rounds
	expected := float64(workers) / latency.Seconds()
	return alone(play(fmt.Sprintf("little-%d", workers), fmt.Sprintf("workers of %s and the rate they serve: %d", latency, workers), func(a *script) {
		a.Answer(sut.AsyncReply{Delay: latency})
		// What is waiting was there before the processor, and its polls bring more than its workers can send.
		a.Submit("in", "q", s.Messages("m", n)...)
		a.Serve(s.WithPools(s.Transport(s.Queue("q")).With(doc{"poll_interval_ms": 20, "batch_size": 200}), []doc{{"id": "default", "workers": workers}}))
		a.Results("done", n, 20*sec)
		for _, id := range []string{"AP-POOL-02", throughput} {
			a.Check(id, "async-rate", want{Min: n, Low: 0.75 * expected, High: 1.1 * expected}, "in", "up", "done")
			a.Check(id, "async-results", want{Status: 200}, "in", "up", "done")
		}
		a.Check("AP-POOL-02", "async-peak", want{Min: workers, Max: workers}, "in", "up", "done")
	}))
}
