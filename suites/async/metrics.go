package async

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/checks"
	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// standard are the labels that series of queues carry (AP-MET-01).
var standard = []string{"queue_id", "queue_name", "pool_name"}

// metricScenarios are those of AP-MET.
var metricScenarios = []s.Scenario{
	play("metric-families", "names and labels of what is counted", func(a *script) {
		a.Answer(s.Statuses([]string{"busy"}, 503, 200), s.Statuses([]string{"shed"}, 429, 200), s.Statuses([]string{"bad"}, 400))
		a.Serve(s.Setup(s.Transport(s.Queue("q").With(doc{"id": "the-id"}), s.Queue("r")), "--metrics-backlog-poll-interval", "200ms"))
		a.Submit("in", "q", s.Message("ok"), s.Message("busy"), s.Message("shed"), s.Message("bad"), s.Message("late", s.Due(-10*sec)))
		a.Submit("r-in", "r", s.Message("r0"))
		a.Results("done", 6, 15*sec)
		a.Scrape("end")
		families := []string{"async_request_total", "async_request_retries_total", "async_successful_requests_total", "async_failed_requests_total", "async_shedded_requests_total",
			"async_exceeded_deadline_requests_total", "async_inference_latency_time_millis", "async_queue_residence_time_millis", "async_queue_depth", "async_inflight_requests",
			"async_broker_backlog", "async_dispatch_budget"}
		a.Check("AP-MET-01", "async-labels", want{To: "end", Names: families, Labels: standard}, "up", "done")
		a.Check("AP-MET-01", "async-labels", want{To: "end", Names: []string{"async_tokens_total"}, Labels: append([]string{"direction"}, standard...)}, "up", "done")
		a.Check("AP-MET-01", "async-values", want{Values: []value{{Mark: "end", Name: "async_request_total", Labels: triple("the-id", "q"), Min: 4, Max: 5},
			{Mark: "end", Name: "async_request_total", Labels: triple("r", "r"), Min: 1, Max: 1}}}, "up", "done")
	}),
	play("counted-attempts", "first attempts, retries, successes and failures", func(a *script) {
		a.Answer(s.Statuses([]string{"four*"}, 503, 503, 503, 200), s.Statuses([]string{"bad"}, 400), s.Statuses([]string{"shed"}, 429, 429, 200), s.Statuses([]string{"busy"}, 503, 200))
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("fours", "q", s.Messages("four", 3)...)
		a.Results("fours-done", 3, 40*sec, "four*")
		a.Scrape("fours-end")
		a.Submit("others", "q", s.Message("bad"), s.Message("shed"), s.Message("busy"), s.Message("ok1"), s.Message("ok2"), s.Message("ok3"))
		a.Results("others-done", 6, 20*sec, "bad", "shed", "busy", "ok*")
		a.Scrape("end")
		a.Check("AP-MET-02", "async-values", want{Values: []value{{Mark: "fours-end", Name: "async_request_total", Min: 3, Max: 3}}}, "up", "fours-done")
		a.Check("AP-MET-02", "async-arrivals", want{IDs: []string{"four*"}, Min: 12, Max: 12}, "up", "fours-done")
		a.Check("AP-MET-08", "async-values", want{Values: []value{{Mark: "fours-end", Name: "async_request_retries_total", Min: 9, Max: 9}}}, "up", "fours-done")
		a.Check("AP-MET-03", "async-values", want{Values: []value{{Mark: "fours-end", Name: "async_successful_requests_total", Min: 3, Max: 3},
			{Mark: "end", Since: "fours-end", Name: "async_successful_requests_total", Min: 5, Max: 5}}}, "up", "fours-done", "others-done")
		a.Check("AP-MET-05", "async-values", want{Values: []value{{Mark: "end", Name: "async_failed_requests_total", Min: 1, Max: 1}}}, "up", "others-done")
		a.Check("AP-MET-06", "async-values", want{Values: []value{{Mark: "end", Name: "async_shedded_requests_total", Min: 2, Max: 2}}}, "up", "others-done")
	}),
	play("counted-tokens", "tokens of answers that say their usage", func(a *script) {
		a.Answer(sut.AsyncReply{IDs: []string{"none"}, Body: `{"choices":[]}`}, sut.AsyncReply{IDs: []string{"stream"}, Headers: map[string]string{"Content-Type": "text/event-stream"},
			Body: "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: [DONE]\n\n"}, sut.AsyncReply{IDs: []string{"bad"}, Body: `{"usage":"many"}`})
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", s.Message("usage"), s.Message("none"), s.Message("stream"), s.Message("bad"))
		a.Results("done", 4, 0)
		a.Scrape("end")
		a.Check("AP-MET-04", "async-values", want{Values: []value{{Mark: "end", Name: "async_tokens_total", Labels: map[string]string{"direction": "input"}, Min: 7, Max: 7},
			{Mark: "end", Name: "async_tokens_total", Labels: map[string]string{"direction": "output"}, Min: 11, Max: 11}}}, "up", "done")
		a.Check("AP-MET-04", "async-results", want{Status: 200}, "up", "in")
	}),
	play("counted-deadlines", "requests that missed their deadline", func(a *script) {
		a.Answer(s.Statuses([]string{"retry"}, 503))
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", s.Message("late", s.Due(-10*sec)), s.Message("retry", s.Due(4*sec)))
		a.Results("done", 2, 15*sec)
		a.Scrape("end")
		a.Check("AP-MET-07", "async-values", want{Values: []value{{Mark: "end", Name: "async_exceeded_deadline_requests_total", Min: 2, Max: 2}}}, "up", "done")
	}),
	play("measured-latency", "the time of attempts without that of queues", func(a *script) {
		a.Answer(sut.AsyncReply{Delay: 200 * msec})
		a.Submit("in", "q", s.Messages("m", 12)...)
		a.Serve(s.Setup(s.Transport(s.Queue("q")).With(doc{"batch_size": 50}), "--concurrency", "1"))
		a.Results("done", 12, 15*sec)
		a.Scrape("end")
		a.Check("AP-MET-10", "async-values", want{Values: []value{{Mark: "end", Name: "async_inference_latency_time_millis_count", Min: 12, Max: 12},
			{Mark: "end", Name: "async_inference_latency_time_millis_sum", Min: 12 * 200, Max: 12 * 290}}}, "up", "done")
		a.Check("AP-MET-10", "async-timing", want{IDs: []string{"m*"}, Event: "result", Anchor: "in", Latest: 20 * sec}, "up", "done")
	}),
	play("measured-residence", "the time from the pull to a worker", func(a *script) {
		a.Answer(sut.AsyncReply{Delay: sec})
		a.Submit("in", "q", s.Messages("m", 5)...)
		a.Serve(s.WithPolicy(s.Setup(s.Transport(s.Queue("q")), "--concurrency", "1"), "tier-priority", doc{}))
		a.Size("pulled", "most", 2, "q")
		a.Results("done", 5, 15*sec)
		a.Scrape("end")
		a.Check("AP-MET-11", "async-residence", want{To: "end", Min: 5, Low: 0.2}, "up", "done")
	}),
	play("proximity", "how near the deadlines of waiting messages are", func(a *script) {
		a.Set("closed", "dispatch-gate-budget", "0")
		a.Serve(s.Setup(s.Transport(s.Gated("q", "redis", doc{"address": "$BROKER"})), "--metrics-backlog-poll-interval", "500ms"))
		a.Submit("in", "q", s.Message("three", s.Due(3*sec)), s.Message("forty", s.Due(40*sec)), s.Message("more", s.Due(400*sec)))
		bucket := func(le string) map[string]string { return map[string]string{"le": le, "queue_name": "q"} }
		a.ScrapeUntil("first", sut.AsyncValue{Name: "async_deadline_proximity_millis_count", Labels: map[string]string{"queue_name": "q"}, Min: 3, Max: 3})
		a.Quiet("passed", 5*sec)
		a.ScrapeUntil("second", sut.AsyncValue{Name: "async_deadline_proximity_millis_bucket", Labels: bucket("0"), Min: 1, Max: 3})
		v := func(mark, le string, n float64) value {
			return value{Mark: mark, Name: "async_deadline_proximity_millis_bucket", Labels: bucket(le), Min: n, Max: n}
		}
		a.Check("AP-MET-12", "async-values", want{Values: []value{v("first", "0", 0), v("first", "5000", 1), v("first", "60000", 2), v("first", "600000", 3),
			v("second", "0", 1), v("second", "5000", 1), v("second", "60000", 2)}}, "closed", "up", "in", "first", "passed")
	}),
	play("gauges", "what waits, what runs, what the broker has, how many workers there are", func(a *script) {
		a.Hold("m*")
		a.Set("closed", "dispatch-gate-budget", "0")
		a.Set("share", "share", "0.35")
		a.Serve(s.WithPools(s.Transport(s.Queue("q"), s.Gated("shut", "redis", doc{"address": "$BROKER"}), s.Gated("part", "redis", doc{"address": "$BROKER", "budget_key": "share"}).With(doc{"worker_pool_id": "two"})),
			[]doc{{"id": "default", "workers": 2}, {"id": "two", "workers": 4}}, "--metrics-backlog-poll-interval", "200ms"))
		a.Submit("in", "q", s.Messages("m", 5)...)
		a.Submit("shut-in", "shut", s.Messages("s", 25)...)
		a.Held("two", 2, 0)
		a.ScrapeUntil("held", sut.AsyncValue{Name: "async_broker_backlog", Labels: map[string]string{"queue_name": "shut"}, Min: 25, Max: 25})
		a.Quiet("polled", 500*msec)
		a.Scrape("now")
		a.Look("then", "q", "shut")
		a.Answer()
		a.Release("freed", 0)
		a.Results("done", 5, 0, "m*")
		a.ScrapeUntil("end", sut.AsyncValue{Name: "async_inflight_requests", Labels: map[string]string{"queue_name": "q"}, Min: 0, Max: 0})
		q := map[string]string{"queue_name": "q"}
		// How many a processor pulls beyond its workers is its own affair (here 0 to 3, with what the broker keeps they are five).
		a.Check("AP-MET-13", "async-values", want{Values: []value{{Mark: "now", Name: "async_inflight_requests", Labels: q, Min: 2, Max: 2}, {Mark: "now", Name: "async_queue_depth", Labels: q, Min: 0, Max: 3},
			{Mark: "end", Name: "async_inflight_requests", Labels: q}, {Mark: "end", Name: "async_queue_depth", Labels: q}}}, "up", "two", "done")
		a.Check("AP-MET-13", "async-depth", want{To: "now", From: "then", Min: 3}, "up", "two")
		a.Check("AP-MET-14", "async-values", want{Values: []value{{Mark: "held", Name: "async_broker_backlog", Labels: map[string]string{"queue_name": "shut"}, Min: 25, Max: 25}}}, "up", "shut-in")
		a.Check("AP-MET-14", "async-keys", want{Keys: keys("then", 25, 25, "shut")}, "up", "shut-in")
		a.Check("AP-MET-15", "async-values", want{Values: []value{{Mark: "now", Name: "async_pool_worker_limit", Labels: map[string]string{"pool_name": "default"}, Min: 2, Max: 2},
			{Mark: "now", Name: "async_pool_worker_limit", Labels: map[string]string{"pool_name": "two"}, Min: 4, Max: 4}}}, "up")
		a.Check("AP-MET-15", "async-labels", want{To: "now", Names: []string{"async_pool_worker_limit"}, Labels: []string{"pool_name"}}, "up")
		a.Check("AP-MET-16", "async-values", want{Values: []value{{Mark: "now", Name: "async_dispatch_budget", Labels: map[string]string{"queue_name": "part"}, Min: 0.35, Max: 0.35},
			{Mark: "now", Name: "async_dispatch_budget", Labels: map[string]string{"queue_name": "shut"}}}}, "up", "polled")
	}),
	play("gate-decisions", "what prevented dispatch, by reason", gateDecisions),
	play("gate-gauges", "what a metric gate compared, and with what", func(a *script) {
		a.Series("source", saturationPage(0.45))
		a.Serve(s.WithPools(s.Transport(s.Gated("q", "prometheus-saturation", doc{"pool": "the-pool"}).With(doc{"id": "the-id"}), s.Queue("other").With(doc{"worker_pool_id": "gated"})),
			[]doc{{"id": "default", "workers": 4}, {"id": "gated", "workers": 2, "gate_type": "prometheus-saturation", "gate_params": doc{"pool": "the-pool"}}}, "--prometheus-url", "$PROM", "--prometheus-cache-ttl", "0s"))
		a.Submit("in", "q", s.Messages("m", 2)...)
		a.Submit("other-in", "other", s.Message("o"))
		a.Results("done", 3, 0)
		l := triple("the-id", "q")
		l["inference_pool"] = "the-pool"
		a.ScrapeUntil("there", sut.AsyncValue{Name: "async_gate_metric_source_available", Labels: triple("the-id", "q"), Min: 1, Max: 1})
		a.Series("gone", "unrelated 1\n")
		a.Do(step{Op: sut.AsyncScrape, Mark: "missing", Limit: 3 * sec, Until: &sut.AsyncValue{Name: "async_gate_metric_source_available", Labels: triple("the-id", "q"), Min: 0, Max: 0}})
		near := func(mark, name string, want float64, l map[string]string) value {
			return value{Mark: mark, Name: name, Labels: l, Min: want - 1e-9, Max: want + 1e-9}
		}
		pool := map[string]string{"queue_id": "", "queue_name": "", "pool_name": "gated", "inference_pool": "the-pool"}
		a.Check("AP-MET-19", "async-values", want{Values: []value{near("there", "async_gate_metric_value", 0.55, l), near("there", "async_gate_metric_threshold", 0.2, l),
			near("there", "async_dispatch_budget", 0.35, triple("the-id", "q"))}}, "source", "up", "there")
		a.Check("AP-MET-20", "async-values", want{Values: []value{near("there", "async_gate_metric_source_available", 1, l), near("missing", "async_gate_metric_source_available", 0, l)}}, "source", "up", "there")
		a.Check("AP-MET-21", "async-values", want{Values: []value{near("there", "async_gate_metric_value", 0.55, l), {Mark: "there", Name: "async_request_total", Labels: triple("the-id", "q"), Min: 2, Max: 2},
			{Mark: "there", Name: "async_gate_decisions_total", Labels: triple("the-id", "q"), Max: 1e9}}}, "up", "there", "done")
		a.Check("AP-MET-22", "async-values", want{Values: []value{near("there", "async_gate_metric_value", 0.55, pool),
			{Mark: "there", Name: "async_gate_decisions_total", Labels: map[string]string{"queue_id": "", "queue_name": "", "pool_name": "gated"}, Max: 1e9}}}, "up", "there", "done")
	}),
	play("guide-queries", "the guide's queries have values", func(a *script) {
		a.Answer(s.Statuses([]string{"busy*"}, 503, 200), s.Statuses([]string{"shed*"}, 429, 200))
		a.Series("source", saturationPage(0.2))
		a.Set("closed", "dispatch-gate-budget", "0")
		a.Do(step{Op: sut.AsyncWatch, Mark: "watch"})
		a.Serve(s.Setup(s.Transport(s.Gated("q", "prometheus-saturation", doc{"pool": "the-pool"}), s.Gated("shut", "redis", doc{"address": "$BROKER"})),
			"--prometheus-url", "$PROM", "--prometheus-cache-ttl", "0s"))
		for i := range 3 { // rates need counters that grow while they are watched
			n := string(rune('a' + i))
			a.Submit("in-"+n, "q", append(append(s.Messages("ok-"+n, 3), s.Messages("busy-"+n, 2)...), s.Messages("shed-"+n, 2)...)...)
			a.Results("done-"+n, 7*(i+1), 15*sec, "ok*", "busy*", "shed*")
		}
		a.Submit("shut-in", "shut", s.Message("shut"))
		a.Do(step{Op: sut.AsyncAsk, Mark: "asked", Keys: guideQueries})
		var all []checks.KeyWant
		for name := range guideQueries {
			all = append(all, checks.KeyWant{Mark: "asked", Keys: []string{":promql " + name}, Min: 1, Max: more})
		}
		slices.SortFunc(all, func(x, y checks.KeyWant) int { return strings.Compare(x.Keys[0], y.Keys[0]) })
		a.Check("AP-MET-23", "async-keys", want{Keys: all}, "source", "up", "done-c", "shut-in")
	}),
	play("latency-by-publish-time", "how long a message took, on the transport that knows when it was published", func(a *script) {
		topics(a, "t")
		a.Start("up", on("gcp-pubsub", topicDoc(topic("t")).JSON()))
		submitTo(a, "pubsub", "in", "t", s.Messages("m", 4)...)
		a.Results("done", 4, 20*sec)
		a.ScrapeUntil("end", sut.AsyncValue{Name: "async_message_latency_time_millis_count", Min: 4, Max: 1e12})
		a.StartOther("other-up", "redis", s.Setup(s.Transport(s.Queue("q"))))
		a.Listen(s.ResultList)
		a.Submit("other-in", "q", s.Messages("r", 2)...)
		a.Results("other-done", 2, 0, "r*")
		a.Do(step{Op: sut.AsyncScrape, Mark: "other-end", Who: "redis", Until: &sut.AsyncValue{Name: "async_successful_requests_total", Min: 2, Max: 1e12}})
		a.Check("AP-MET-09", "async-values", want{Values: []value{{Mark: "end", Name: "async_message_latency_time_millis_count", Min: 4, Max: 4}}}, "up", "done")
		a.Check("AP-MET-09", "async-values", want{Values: []value{{Mark: "other-end", Who: "redis", Name: "async_successful_requests_total", Min: 2, Max: 2},
			{Mark: "other-end", Who: "redis", Name: "async_message_latency_time_millis_count", Absent: true}}}, "other-up", "other-done")
	}),
	play("accounts", "what is counted as a request is counted as an outcome", func(a *script) {
		a.Answer(s.Statuses([]string{"bad"}, 400), s.Statuses([]string{"busy"}, 503, 200), s.Statuses([]string{"never"}, 503))
		a.Set("closed", "gate", "0")
		inner := doc{"saturation_gate": "redis", "saturation_gate_params": doc{"address": "$BROKER", "budget_key": "gate"}.JSON()}
		a.Serve(s.WithPools(s.Transport(s.Queue("q"), s.Gated("over", "redis-quota", doc{"address": "$BROKER", "mode": "concurrency", "limit": "1", "gating_mode": "classifying"}).With(
			doc{"worker_pool_id": "gated", "labels": doc{"tier": "interactive"}}), s.Gated("shut", "redis", doc{"address": "$BROKER", "budget_key": "gate"})),
			[]doc{{"id": "default", "workers": 8}, {"id": "gated", "workers": 4, "gate_type": "tier-priority-admission", "gate_params": inner}}))
		a.Submit("in", "q", s.Messages("ok", 5)...)
		a.Submit("more", "q", s.Message("bad"), s.Message("busy"), s.Message("never", s.Due(4*sec)), s.Message("late", s.Due(-5*sec)))
		a.Submit("withdrawn", "shut", s.Message("cancelled"))
		a.Do(step{Op: sut.AsyncCancel, Mark: "cancel", IDs: []string{"cancelled"}})
		a.Set("opened", "gate", "1")
		a.Results("done", 10, 20*sec)
		a.Set("closed-again", "gate", "0")
		// The first one takes the tenant's only slot and waits as reserved; the second is over the quota, interactive, and dropped.
		a.Submit("two", "over", s.Messages("twin", 2, s.User("u"))...)
		a.Results("dropped", 1, 0, "twin*")
		a.Set("open-at-last", "gate", "1")
		a.Results("both", 2, 0, "twin*")
		a.ScrapeUntil("end", sut.AsyncValue{Name: "async_inflight_requests", Min: 0, Max: 0})
		a.Check("AP-MET-24", "async-accounts", want{To: "end"}, "up", "done", "dropped", "both")
	}),
}

// saturationPage has the saturation of a pool under the names of both generations.
func saturationPage(v float64) string {
	return fmt.Sprintf("inference_extension_flow_control_pool_saturation{inference_pool=\"the-pool\"} %g\nllm_d_epp_flow_control_pool_saturation{inference_pool=\"the-pool\"} %g\n", v, v)
}

// guideQueries are the documented ones. That of the utilization has an aggregation on one side and every label of a scraped series on the
// other, so that nothing matches on any Prometheus: it is asked with the pool as the only label to match.
var guideQueries = map[string]string{
	"success ratio": "rate(llm_d_async_async_successful_requests_total[5m]) / rate(llm_d_async_async_request_total[5m])",
	"shed rate":     "rate(llm_d_async_async_shedded_requests_total[5m])",
	"retry ratio":   "rate(llm_d_async_async_request_retries_total[5m]) / rate(llm_d_async_async_request_total[5m])",
	"latency":       "histogram_quantile(0.95, sum by (queue_name, le) (rate(llm_d_async_async_inference_latency_time_millis_bucket[5m])))",
	"residence":     "histogram_quantile(0.95, sum by (queue_name, le) (rate(llm_d_async_async_queue_residence_time_millis_bucket[5m])))",
	"utilization":   "sum by (pool_name) (llm_d_async_async_inflight_requests) / on (pool_name) llm_d_async_async_pool_worker_limit",
	"budget":        "llm_d_async_async_dispatch_budget",
	"value":         "llm_d_async_async_gate_metric_value",
	"threshold":     "llm_d_async_async_gate_metric_threshold",
	"headroom":      "llm_d_async_async_gate_metric_value - on(queue_id, queue_name, pool_name) llm_d_async_async_gate_metric_threshold",
	"throttling":    `sum by (pool_name) (rate(llm_d_async_async_gate_decisions_total{reason="gate_closed"}[5m]))`,
}

// triple are the standard labels of a queue of the default pool.
func triple(id, name string) map[string]string {
	return map[string]string{"queue_id": id, "queue_name": name, "pool_name": "default"}
}

func gateDecisions(a *script) {
	a.Set("closed", "dispatch-gate-budget", "0")
	a.Serve(s.Setup(s.Transport(s.Gated("shut", "redis", doc{"address": "$BROKER"}), s.Gated("empty", "redis", doc{"address": "$BROKER"}),
		s.Gated("over", "redis-quota", doc{"address": "$BROKER", "mode": "concurrency", "limit": "1", "gating_mode": "blocking"}),
		s.Gated("broken", "redis-quota", doc{"address": "$BROKER", "limit": "1", "prefix": "wrong:"}))))
	a.Scrape("start")
	a.Hold("o*")
	a.Do(step{Op: sut.AsyncSet, Mark: "wrong", Mode: "list", Keys: map[string]string{"wrong:userid:u": "x"}})
	a.Submit("shut-in", "shut", s.Messages("s", 3)...)
	a.Submit("over-in", "over", s.Messages("o", 3, s.User("u"))...)
	a.Submit("broken-in", "broken", s.Message("b", s.User("u")))
	reason := func(queue, reason string) map[string]string {
		return map[string]string{"queue_name": queue, "reason": reason}
	}
	a.ScrapeUntil("ten", sut.AsyncValue{Name: "async_gate_decisions_total", Labels: reason("shut", "gate_closed"), Min: 10, Max: 1e9})
	a.ScrapeUntil("quota", sut.AsyncValue{Name: "async_gate_decisions_total", Labels: reason("over", "quota_exhausted"), Min: 1, Max: 1e9})
	a.ScrapeUntil("error", sut.AsyncValue{Name: "async_gate_decisions_total", Labels: reason("broken", "error"), Min: 1, Max: 1e9})
	a.Quiet("polled", 2*sec)
	a.Scrape("later")
	var zero, still []value
	for _, q := range []string{"shut", "empty", "over", "broken"} {
		for _, r := range []string{"gate_closed", "quota_exhausted", "dropped", "error"} {
			zero = append(zero, value{Mark: "start", Name: "async_gate_decisions_total", Labels: reason(q, r)})
		}
	}
	for _, w := range [][2]string{{"shut", "quota_exhausted"}, {"shut", "dropped"}, {"shut", "error"}, {"over", "gate_closed"}, {"over", "error"}, {"broken", "gate_closed"}, {"broken", "quota_exhausted"}} {
		still = append(still, value{Mark: "later", Name: "async_gate_decisions_total", Labels: reason(w[0], w[1])})
	}
	a.Check("AP-MET-17", "async-values", want{Values: zero}, "up")
	a.Check("AP-MET-17", "async-values", want{Values: append(still, value{Mark: "later", Name: "async_gate_decisions_total", Labels: reason("over", "quota_exhausted"), Min: 1, Max: 1e9},
		value{Mark: "later", Name: "async_gate_decisions_total", Labels: reason("broken", "error"), Min: 1, Max: 1e9})}, "up", "ten", "quota", "error")
	// Twenty polls in two seconds, whatever waits; one more or less at either end, and polls that a busy machine makes late.
	a.Check("AP-MET-18", "async-values", want{Values: []value{{Mark: "later", Since: "error", Name: "async_gate_decisions_total", Labels: reason("shut", "gate_closed"), Min: 14, Max: 30},
		{Mark: "later", Name: "async_gate_decisions_total", Labels: reason("empty", "gate_closed")}}}, "up", "ten", "polled")
}
