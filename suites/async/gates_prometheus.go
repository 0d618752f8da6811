package async

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// promGateScenarios are those of AP-GATE whose gates ask a Prometheus.
var promGateScenarios = []s.Scenario{
	play("saturation-threshold", "the saturation gate is closed from its threshold on", func(a *script) {
		gate := func(name, threshold string) doc { return saturationGate(name, name, doc{"threshold": threshold}) }
		queues := []string{"s79", "s80", "s100", "t49", "t50"}
		fill(a, "in", 100, queues...)
		a.Series("set", saturation("s79", "", 0.79)+saturation("s80", "", 0.80)+saturation("s100", "", 1)+saturation("t49", "", 0.49)+saturation("t50", "", 0.50))
		a.Serve(asking(polled(gate("s79", ""), gate("s80", ""), gate("s100", ""), gate("t49", "0.5"), gate("t50", "0.5")).With(doc{"batch_size": 1000})))
		asked(a, "read", 3, queues...)
		a.Quiet("watched", 1500*msec)
		left(a, queues...)
		seen := watched{to: "watched", setup: marks("in", "set", "up"), read: marks("read")}
		seen.opens(a, "AP-GATE-11", "s79", "t49")
		seen.shuts(a, "AP-GATE-11", "s80", "s100", "t50")
		for _, q := range queues {
			a.Check("AP-GATE-11", "async-queries", want{Contains: []string{"flow_control_pool_saturation", fmt.Sprintf("%q", q)}}, "up", "read")
		}
	}),
	play("saturation-margin", "an open saturation gate lets the margin below its threshold pass", func(a *script) {
		fill(a, "in", 150, "s45", "idle")
		a.Series("set", saturation("s45", "", 0.45)+saturation("idle", "", 0))
		a.Serve(asking(polled(saturationGate("s45", "s45", nil), saturationGate("idle", "idle", nil))))
		asked(a, "read", 2, "s45", "idle")
		a.Quiet("watched", watch)
		a.Scrape("scraped")
		left(a, "s45", "idle")
		watched{from: "up", to: "watched", setup: marks("in", "set", "up"), read: marks("read")}.takes(a, "AP-GATE-12", map[string]int{"s45": 3, "idle": 8})
		a.Check("AP-GATE-12", "async-values", want{Values: []value{gauge("scraped", "dispatch_budget", "s45", 0.345, 0.355), gauge("scraped", "dispatch_budget", "idle", 0.795, 0.805)}},
			"in", "up", "read")
	}),
	play("saturation-scope", "pool and namespace say whose saturation counts", func(a *script) {
		gate := func(name, pool, namespace string) doc {
			return saturationGate(name, pool, doc{"namespace": namespace})
		}
		queues := []string{"one-a", "one-b", "two-a", "two-b"}
		fill(a, "in", 150, queues...)
		a.Series("set", saturation("one", "a", 1)+saturation("one", "b", 0)+saturation("two", "a", 0)+saturation("two", "b", 1))
		a.Serve(asking(polled(gate("one-a", "one", "a"), gate("one-b", "one", "b"), gate("two-a", "two", "a"), gate("two-b", "two", "b"))))
		asked(a, "read", 4, "one", "two")
		a.Quiet("watched", 1500*msec)
		left(a, queues...)
		seen := watched{to: "watched", setup: marks("in", "set", "up"), read: marks("read")}
		seen.opens(a, "AP-GATE-13", "one-b", "two-a")
		seen.shuts(a, "AP-GATE-13", "one-a", "two-b")
		for _, pool := range []string{"one", "two"} {
			for _, namespace := range []string{"a", "b"} {
				a.Check("AP-GATE-13", "async-queries", want{Contains: []string{fmt.Sprintf("inference_pool=%q", pool), fmt.Sprintf("namespace=%q", namespace)}}, "up", "read")
			}
		}
	}),
	play("saturation-fallback", "without a value the saturation gate takes its fallback, which is a saturation", func(a *script) {
		fill(a, "in", 300, "open", "shut")
		a.Series("empty", "unrelated 1\n")
		a.Serve(asking(polled(saturationGate("open", "p-open", nil), saturationGate("shut", "p-shut", doc{"fallback": "1.0"}))))
		asked(a, "empty-read", 2, "p-open", "p-shut")
		a.Quiet("empty-watched", watch)
		a.Do(step{Op: sut.AsyncSeries, Mark: "failing", Text: "unrelated 1\n", Mode: "error500"})
		asked(a, "failing-read", 2, "p-open", "p-shut")
		a.Quiet("failing-begun", 300*msec)
		a.Quiet("failing-watched", watch)
		left(a, "open", "shut")
		watched{from: "up", to: "empty-watched", setup: marks("in", "empty", "up"), read: marks("empty-read")}.takes(a, "AP-GATE-14", map[string]int{"open": 10, "shut": 0})
		watched{from: "failing-begun", to: "failing-watched", setup: marks("in", "failing", "up"), read: marks("failing-read")}.takes(a, "AP-GATE-14", map[string]int{"open": 10, "shut": 0})
	}),
	play("saturation-without-flow-control", "without flow control in the picker there is no saturation to read", func(a *script) {
		base := readyPods("p", "", 2) + perPod("p", "", 10, 20) + "inference_pool_average_queue_size{name=\"p\"} 15\n"
		fill(a, "in", 40, "q")
		a.Series("off", base)
		a.Serve(asking(polled(saturationGate("q", "p", nil))))
		asked(a, "off-read", 2, "p")
		a.Quiet("off-begun", 500*msec)
		a.Scrape("without")
		a.Series("on", base+saturation("p", "", 0.3))
		asked(a, "on-read", 2, "p")
		a.Quiet("on-begun", 500*msec)
		a.Scrape("with")
		a.Check("AP-GATE-15", "async-values", want{Values: []value{gauge("without", "gate_metric_source_available", "q", 0, 0), gauge("with", "gate_metric_source_available", "q", 1, 1)}},
			"in", "up", "off-read", "on-read")
		a.Check("AP-GATE-15", "async-arrivals", want{To: "off-begun", Min: 1, Max: more}, "in", "up", "off-read")
	}),
	play("query-verbatim", "an expression of one's own is asked as it is, and its value is the budget", func(a *script) {
		const documented = `1 - (sum(rate(http_requests_total{job="inference"}[5m])) / 100)`
		fill(a, "in", 150, "documented", "high", "low")
		// From two samples, the first of which is 0, the rate over five minutes is once and a half their difference: 13000 × 1.5 / 300 s = 65/s.
		fixed := "scripted_budget{which=\"high\"} 1.7\nscripted_budget{which=\"low\"} -0.2\n"
		a.Series("begun", fixed+"http_requests_total 0\n")
		a.Quiet("apart", 300*msec)
		a.Series("set", fixed+"http_requests_total 13000\n")
		a.Serve(asking(polled(queryGate("documented", documented, nil), queryGate("high", `max( scripted_budget{which="high"} )`, nil), queryGate("low", `scripted_budget{which="low"}`, nil))))
		asked(a, "read", 2, "http_requests_total", "high", "low")
		a.Quiet("watched", watch)
		left(a, "documented", "high", "low")
		watched{from: "up", to: "watched", setup: marks("in", "set", "up"), read: marks("read")}.takes(a, "AP-GATE-27", map[string]int{"documented": 3, "high": 10, "low": 0})
		a.Check("AP-GATE-27", "async-queries", want{Equal: documented}, "up", "read")
		a.Check("AP-GATE-27", "async-queries", want{Equal: `max( scripted_budget{which="high"} )`}, "up", "read")
	}),
	play("query-fallback", "a query that fails or finds nothing gives the fallback", func(a *script) {
		queues := []string{"plain", "half", "empty"}
		fill(a, "in", 250, queues...)
		a.Series("set", "scripted_budget 1\n")
		a.Serve(asking(polled(queryGate("plain", "scripted_budget", doc{"pool": "shown"}), queryGate("half", "0.4 * scripted_budget", doc{"fallback": "0.5"}), queryGate("empty", "nowhere", nil))))
		asked(a, "read", 2, "scripted_budget", "nowhere")
		a.Quiet("watched", 1200*msec)
		a.Scrape("scraped")
		a.Do(step{Op: sut.AsyncSeries, Mark: "failing", Text: "scripted_budget 1\n", Mode: "error500"})
		asked(a, "failing-read", 2, "scripted_budget", "nowhere")
		a.Quiet("failing-begun", 300*msec)
		a.Quiet("failing-watched", watch)
		left(a, queues...)
		seen := watched{to: "watched", setup: marks("in", "set", "up"), read: marks("read")}
		seen.opens(a, "AP-GATE-28", "plain", "half")
		seen.shuts(a, "AP-GATE-28", "empty")
		watched{from: "failing-begun", to: "failing-watched", setup: marks("in", "failing", "up"), read: marks("failing-read")}.takes(a, "AP-GATE-28", map[string]int{"plain": 0, "half": 5, "empty": 0})
		a.Check("AP-GATE-28", "async-queries", want{Equal: "scripted_budget"}, "up", "read")
		shown := gauge("scraped", "gate_metric_value", "plain", 1, 1)
		shown.Labels["inference_pool"] = "shown"
		a.Check("AP-GATE-28", "async-values", want{Values: []value{shown}}, "up", "read")
	}),
	play("composite-pair", "saturation and quota together: each of them can hold back", func(a *script) {
		a.Series("full", saturation("inference_pool_1", "", 1))
		a.Serve(asking(s.Transport(composite("q", inner("prometheus-saturation", doc{"pool": "inference_pool_1"}), inner("redis-quota", doc{"address": "$BROKER", "limit": "3", "gating_mode": "blocking"})))))
		a.Submit("in", "q", s.Messages("m", 6, s.User("u"))...)
		asked(a, "full-read", 3, "inference_pool_1")
		a.Quiet("full-watched", sec)
		a.Series("room", saturation("inference_pool_1", "", 0.1))
		a.Results("three", 3, 0)
		a.ScrapeUntil("refusing", decided("q", "quota_exhausted", 3))
		a.Quiet("watched", sec)
		a.Size("backlog", "least", 3, s.Places("q")...)
		a.Check("AP-GATE-37", "async-arrivals", want{To: "full-watched"}, "full", "up", "in", "full-read")
		a.Check("AP-GATE-37", "async-arrivals", want{Min: 3, Max: 3, To: "backlog"}, "up", "in", "full-read", "room")
		a.Check("AP-GATE-37", "async-arrivals", want{From: "refusing", To: "watched"}, "up", "in", "full-read", "room", "refusing", "backlog")
	}),
	play("prometheus-params", "gates on a Prometheus, and pairs of gates, without what they need", func(a *script) {
		with := func(name, typ string, params doc) sut.AsyncTrial {
			return s.Case(name, asking(s.Transport(s.Gated("q", typ, params))))
		}
		pair := "[" + inner("prometheus-saturation", doc{"pool": "inference_pool_1"}) + "," + inner("redis-quota", doc{"address": "$BROKER", "limit": "100"}) + "]"
		a.Try("tried",
			with("saturation", "prometheus-saturation", doc{"pool": "p"}), with("saturation-of-nobody", "prometheus-saturation", doc{"threshold": "0.8"}),
			with("budget", "prometheus-budget", doc{"pool": "p"}), with("budget-of-nobody", "prometheus-budget", doc{"max_concurrency": "100"}),
			with("query", "prometheus-query", doc{"query": "up"}), with("no-query", "prometheus-query", doc{"fallback": "0.0"}),
			with("pair", "composite", doc{"gates": pair}), with("no-gates", "composite", doc{}),
			with("bad-json", "composite", doc{"gates": pair[:len(pair)-1]}), with("one-gate", "composite", doc{"gates": inner("redis-quota", doc{"address": "$BROKER", "limit": "100"})}))
		a.Check("AP-GATE-13", "async-starts", want{Valid: []string{"saturation"}, Cases: map[string]string{"saturation-of-nobody": ""}}, "tried")
		a.Check("AP-GATE-24", "async-starts", want{Valid: []string{"budget"}, Cases: map[string]string{"budget-of-nobody": ""}}, "tried")
		a.Check("AP-GATE-28", "async-starts", want{Valid: []string{"query"}, Cases: map[string]string{"no-query": ""}}, "tried")
		a.Check("AP-GATE-37", "async-starts", want{Valid: []string{"pair"}, Cases: map[string]string{"no-gates": "", "bad-json": "", "one-gate": ""}}, "tried")
	}),
	play("gates-recover", "gates on metrics and keys close and open again without a restart", playRecovery),
}

// recovering are the queues of playRecovery, one for each kind of gate that reads something.
var recovering = []string{"redis", "saturation", "budget", "query", "scrape"}

// playRecovery opens, closes and opens each kind of gate, first by what its source says, then by the source's failure.
func playRecovery(a *script) {
	const poll = 200 * msec
	set := func(mark string, open bool) {
		v := map[bool][]float64{true: {0.15, 0.65, 80, 0.15, 0.85}, false: {0, 0.9, 99, 0, 1}}[open] // open: one message of a batch of ten
		a.Do(step{Op: sut.AsyncSet, Mark: mark + "-key", Who: "2", Keys: map[string]string{dispatchKey: fmt.Sprint(v[0])}})
		a.Series(mark+"-series", saturation("sp", "", v[1])+readyPods("bp", "", 1)+perPod("bp", "", v[2])+fmt.Sprintf("scripted_budget %g\n", v[3]))
		a.Page(mark, fmt.Sprintf("scripted_saturation %g\n", v[4]))
	}
	see := func(mark string) {
		asked(a, mark, 2, "sp", "bp", "scripted_budget")
		reads(a, mark, 2, ":fetches")
	}
	fill(a, "in", 150, recovering...)
	set("one", true)
	a.Serve(asking(s.Transport(s.Gated("redis", "redis", doc{"address": "$BROKER2"}), saturationGate("saturation", "sp", doc{"fallback": "1.0"}), budgetGate("budget", "bp", nil),
		queryGate("query", "scripted_budget", nil), s.Gated("scrape", "endpoint-scrape", doc{"url": "$PAGE", "metric": "scripted_saturation"})).
		With(doc{"poll_interval_ms": int(poll / msec)})))
	see("one-read")
	a.Quiet("one-watched", sec)
	set("two", false)
	see("two-read")
	a.Quiet("two-begun", 2*poll+300*msec)
	a.Quiet("two-watched", sec)
	set("three", true)
	a.Quiet("three-watched", 2*poll+400*msec)
	a.Do(step{Op: sut.AsyncBroker, Mark: "four-broker", Who: "2", Mode: "down"})
	a.Do(step{Op: sut.AsyncSeries, Mark: "four-series", Text: "unrelated 1\n", Mode: "error500"})
	a.Page("four", "")
	see("four-read")
	a.Quiet("four-begun", 2*poll+300*msec)
	a.Quiet("four-watched", sec)
	a.Do(step{Op: sut.AsyncBroker, Mark: "five-broker", Who: "2", Mode: "up"})
	set("five", true)
	a.Quiet("five-watched", watch) // a client may pause before it connects again
	left(a, recovering...)
	setup, req := marks("in", "up"), "AP-GATE-41"
	watched{to: "one-watched", setup: setup, read: marks("one-read")}.opens(a, req, recovering...)
	watched{from: "two-begun", to: "two-watched", setup: setup, read: marks("two-read")}.shuts(a, req, recovering...)
	watched{from: "three", to: "three-watched", setup: setup, read: marks("two-read")}.opens(a, req, recovering...)
	watched{from: "four-begun", to: "four-watched", setup: setup, read: marks("four-read")}.shuts(a, req, recovering...)
	watched{from: "five", to: "five-watched", setup: setup, read: marks("four-read")}.opens(a, req, recovering...)
}

// asking starts a processor with a Prometheus whose answers it does not keep.
func asking(d doc) *sut.AsyncSetup {
	return roomy(d, "--prometheus-url", "$PROM", "--prometheus-cache-ttl", "0s")
}

// asked waits until n queries with each of some texts have come since the Prometheus got its page.
func asked(a *script, mark string, n int, texts ...string) {
	for _, t := range texts {
		reads(a, mark, n, ":queries "+t)
	}
}

// reads waits until gates have read so often.
func reads(a *script, mark string, n int, what string) {
	a.Do(step{Op: sut.AsyncSize, Mark: mark, Mode: "least", Count: n, Names: []string{what}, Limit: 4 * sec})
}

// gauge wants a value of a queue's gauge.
func gauge(mark, name, queue string, low, high float64) value {
	return value{Mark: mark, Name: "async_" + name, Labels: map[string]string{"queue_name": queue}, Min: low, Max: high}
}

// given are parameters without those that are empty.
func given(params doc) doc {
	out := doc{}
	for k, v := range params {
		if v != "" {
			out[k] = v
		}
	}
	return out
}

// Queues behind gates that ask a Prometheus.
func saturationGate(name, pool string, params doc) doc {
	return s.Gated(name, "prometheus-saturation", doc{"pool": pool}.With(given(params)))
}

func budgetGate(name, pool string, params doc) doc {
	return s.Gated(name, "prometheus-budget", doc{"pool": pool}.With(given(params)))
}

func queryGate(name, query string, params doc) doc {
	return s.Gated(name, "prometheus-query", doc{"query": query}.With(given(params)))
}

// metric writes one sample under each of some names: those of both generations of pickers, so that processors of both are judged alike.
func metric(v float64, labels map[string]string, names ...string) string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if labels[k] != "" {
			pairs = append(pairs, fmt.Sprintf("%s=%q", k, labels[k]))
		}
	}
	out := ""
	for _, name := range names {
		out += fmt.Sprintf("%s{%s} %g\n", name, strings.Join(pairs, ","), v)
	}
	return out
}

// saturation is the saturation of a pool.
func saturation(pool, namespace string, v float64) string {
	return metric(v, map[string]string{"inference_pool": pool, "namespace": namespace}, "inference_extension_flow_control_pool_saturation", "llm_d_epp_flow_control_pool_saturation")
}

// queueSize is what a pool's flow control has queued: of two flows.
func queueSize(pool, namespace string, v float64) string {
	out := ""
	for i, flow := range []string{"one", "two"} {
		share := []float64{0.25, 0.75}[i]
		out += metric(v*share, map[string]string{"inference_pool": pool, "namespace": namespace, "fairness_id": flow, "priority": "0"},
			"inference_extension_flow_control_queue_size", "llm_d_epp_flow_control_queue_size")
	}
	return out
}

// readyPods is the size of a pool.
func readyPods(pool, namespace string, n float64) string {
	return metric(n, map[string]string{"name": pool, "namespace": namespace}, "inference_pool_ready_pods", "llm_d_epp_ready_endpoints")
}

// perPod is what waits at each pod of a pool.
func perPod(pool, namespace string, depths ...float64) string {
	out := ""
	for i, v := range depths {
		out += metric(v, map[string]string{"name": pool, "namespace": namespace, "model_server_pod": fmt.Sprintf("pod-%d", i)},
			"inference_pool_per_pod_queue_size", "llm_d_epp_per_endpoint_queue_size")
	}
	return out
}

// running is what the engines of a pool have running: two of them.
func running(pool, namespace string, v float64) string {
	out := ""
	for _, pod := range []string{"pod-0", "pod-1"} {
		out += metric(v/2, map[string]string{"inference_pool": pool, "namespace": namespace, "pod": pod}, "vllm:num_requests_running")
	}
	return out
}
