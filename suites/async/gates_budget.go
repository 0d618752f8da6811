package async

import (
	"maps"
	"slices"

	s "github.com/llm-weir/weir/harness/scenario"
)

// budgetGateScenarios are those of AP-GATE about prometheus-budget. Unless they say otherwise a pod takes 100 requests and the baseline is
// 0.05, so that a free share D gives D - 0.05.
var budgetGateScenarios = []s.Scenario{
	play("budget-cascade", "of three sources the first one that has a sample counts", func(a *script) {
		// Free shares of 0.8, 0.5 and 0.3: seven, four, two of ten; the fallback is six.
		queues := []string{"first", "second", "third", "none"}
		page := func(first, second, third string) string {
			all := readyPods("first", "", 2) + readyPods("second", "", 2) + readyPods("third", "", 2) + readyPods("none", "", 2)
			all += queueSize(first, "", 40)
			for _, pool := range []string{first, second} {
				all += perPod(pool, "", 40, 60)
			}
			for _, pool := range []string{first, second, third} {
				all += running(pool, "", 140)
			}
			return all
		}
		var entries []doc
		for _, q := range queues {
			entries = append(entries, budgetGate(q, q, doc{"fallback": "0.65"}))
		}
		fill(a, "in", 240, queues...)
		a.Series("one", page("first", "second", "third"))
		a.Serve(asking(polled(entries...)))
		asked(a, "one-read", 2, queues...)
		a.Quiet("one-watched", watch)
		a.Series("two", page("none", "first", "second"))
		asked(a, "two-read", 2, queues...)
		a.Quiet("two-begun", 300*msec)
		a.Quiet("two-watched", watch)
		left(a, queues...)
		watched{from: "up", to: "one-watched", setup: marks("in", "one", "up"), read: marks("one-read")}.takes(a, "AP-GATE-16", map[string]int{"first": 7, "second": 4, "third": 2, "none": 6})
		watched{from: "two-begun", to: "two-watched", setup: marks("in", "two", "up"), read: marks("two-read")}.takes(a, "AP-GATE-16", map[string]int{"first": 4, "second": 2, "third": 6, "none": 7})
	}),
	play("budget-sources", "what each source says, and what the baseline takes off", func(a *script) {
		entries := []doc{budgetGate("queued", "queued", nil), budgetGate("waiting", "waiting", nil), budgetGate("many", "many", nil), budgetGate("running", "running", nil),
			budgetGate("unlabelled", "unlabelled", doc{"fallback": "0.25"}), budgetGate("d20", "d20", doc{"baseline": "0.2"}), budgetGate("d50", "d50", doc{"baseline": "0.2"})}
		takes := map[string]int{"queued": 4, "waiting": 4, "many": 4, "running": 4, "unlabelled": 2, "d20": 0, "d50": 3}
		queues := slices.Sorted(maps.Keys(takes))
		fill(a, "in", 100, queues...)
		a.Series("set", queueSize("queued", "", 100)+readyPods("queued", "", 2)+
			perPod("waiting", "", 20, 80)+readyPods("waiting", "", 2)+perPod("many", "", 20, 80)+readyPods("many", "", 40)+
			running("running", "", 100)+readyPods("running", "", 2)+
			running("", "", 100)+readyPods("unlabelled", "", 2)+
			perPod("d20", "", 80, 80)+perPod("d50", "", 50, 50))
		a.Serve(asking(polled(entries...)))
		asked(a, "read", 2, queues...)
		a.Quiet("watched", watch)
		left(a, queues...)
		for _, r := range []struct {
			requirement string
			own         []string
		}{{"AP-GATE-17", []string{"queued"}}, {"AP-GATE-18", []string{"waiting", "many"}}, {"AP-GATE-19", []string{"running", "unlabelled"}}, {"AP-GATE-20", []string{"d20", "d50"}}} {
			some := map[string]int{}
			for _, q := range r.own {
				some[q] = takes[q]
			}
			watched{from: "up", to: "watched", setup: marks("in", "set", "up"), read: marks("read")}.takes(a, r.requirement, some)
		}
	}),
	play("budget-closing-point", "the gate closes at the load per pod that the settings say", func(a *script) {
		queues := []string{"l94", "l95", "l96", "m18", "m19"}
		gate := func(name, perPod string) doc { return budgetGate(name, name, doc{"max_concurrency": perPod}) }
		fill(a, "in", 50, queues...)
		a.Series("set", perPod("l94", "", 94)+perPod("l95", "", 95)+perPod("l96", "", 96)+perPod("m18", "", 18)+perPod("m19", "", 19))
		a.Serve(asking(polled(gate("l94", ""), gate("l95", ""), gate("l96", ""), gate("m18", "20"), gate("m19", "20")).With(doc{"batch_size": 1000})))
		asked(a, "read", 3, queues...)
		a.Quiet("watched", 1200*msec)
		seen := watched{to: "watched", setup: marks("in", "set", "up"), read: marks("read")}
		seen.opens(a, "AP-GATE-21", "l94", "m18")
		seen.shuts(a, "AP-GATE-21", "l95", "l96", "m19")
	}),
	play("budget-fallback", "without any source the budget is the fallback", func(a *script) {
		fill(a, "in", 100, "shut", "half")
		a.Series("set", "unrelated 1\n")
		a.Serve(asking(polled(budgetGate("shut", "p-shut", nil), budgetGate("half", "p-half", doc{"fallback": "0.5"}))))
		asked(a, "read", 2, "p-shut", "p-half")
		a.Quiet("watched", watch)
		left(a, "shut", "half")
		watched{from: "up", to: "watched", setup: marks("in", "set", "up"), read: marks("read")}.takes(a, "AP-GATE-22", map[string]int{"shut": 0, "half": 5})
	}),
	play("budget-scaled-to-zero", "a pool that has lost its pods is not taken for an idle one", func(a *script) {
		queues := []string{"shut", "some"}
		frozen, pods := "", ""
		for _, pool := range []string{"p-shut", "p-some"} {
			frozen += readyPods(pool, "", 2) + metric(10, map[string]string{"name": pool}, "inference_pool_average_queue_size", "llm_d_epp_average_queue_size")
			pods += perPod(pool, "", 10, 10)
		}
		fill(a, "in", 250, queues...)
		a.Series("set", frozen+pods)
		a.Serve(asking(polled(budgetGate("shut", "p-shut", nil), budgetGate("some", "p-some", doc{"fallback": "0.25"}))))
		asked(a, "read", 2, "p-shut", "p-some")
		a.Quiet("watched", watch)
		a.Series("gone", frozen)
		asked(a, "gone-read", 2, "p-shut", "p-some")
		a.Quiet("gone-begun", 300*msec)
		a.Quiet("gone-watched", watch)
		left(a, queues...)
		watched{from: "up", to: "watched", setup: marks("in", "set", "up"), read: marks("read")}.takes(a, "AP-GATE-23", map[string]int{"shut": 8, "some": 8})
		watched{from: "gone-begun", to: "gone-watched", setup: marks("in", "gone", "up"), read: marks("gone-read")}.takes(a, "AP-GATE-23", map[string]int{"shut": 0, "some": 2})
	}),
	play("budget-scope", "pool and namespace scope each selector of each source", func(a *script) {
		queues := []string{"p0", "p1", "p2"}
		var entries []doc
		for _, q := range queues {
			entries = append(entries, budgetGate(q, q, doc{"namespace": "own"}))
		}
		foreign := queueSize("p0", "other", 0) + readyPods("p0", "other", 50) + perPod("p1", "other", 0, 0) + readyPods("p2", "other", 50) + running("p2", "other", 0) +
			queueSize("p9", "own", 1000) + readyPods("p9", "own", 1) + perPod("p9", "own", 99) + running("p9", "own", 1000)
		fill(a, "in", 100, queues...)
		a.Series("set", foreign+queueSize("p0", "own", 100)+readyPods("p0", "own", 2)+perPod("p1", "own", 20, 80)+running("p2", "own", 100)+readyPods("p2", "own", 2))
		a.Serve(asking(polled(entries...)))
		asked(a, "read", 2, queues...)
		a.Quiet("watched", watch)
		left(a, queues...)
		watched{from: "up", to: "watched", setup: marks("in", "set", "up"), read: marks("read")}.takes(a, "AP-GATE-24", map[string]int{"p0": 4, "p1": 4, "p2": 4})
		for _, texts := range [][]string{{`inference_pool="p0"`, `name="p0"`, `namespace="own"`}, {`name="p1"`, `namespace="own"`}, {`inference_pool="p2"`, `name="p2"`, `namespace="own"`}} {
			a.Check("AP-GATE-24", "async-queries", want{Contains: texts}, "up", "read")
		}
	}),
}
