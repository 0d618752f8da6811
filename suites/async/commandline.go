package async

import (
	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// whisper is a transform file, and whisperPayload a message that it turns into a form.
const (
	whisper        = `{"requestTransforms":[{"name":"whisper-multipart","type":"gcs_uri_multipart","parameters":{"providers":["whisper"]}}]}`
	whisperPayload = `{"model":"m","gcs_uri":"https://storage.example/object","weir_id":"`
)

// scrapeOf reads the metrics page of another processor.
func scrapeOf(a *script, mark, who string) {
	a.Do(step{Op: sut.AsyncScrape, Mark: mark, Who: who})
}

// flagScenarios are those of AP-CLI, but for the older flags.
var flagScenarios = []s.Scenario{
	play("concurrency", "the workers of a pool that does not say, and of none that is defined", func(a *script) {
		a.Hold()
		d := func(queue string) doc { return s.Transport(s.Queue(queue)).With(doc{"batch_size": 100}) }
		a.Serve(s.Setup(d("x")))
		a.StartOther("up2", "p2", s.Setup(d("y"), "--concurrency", "3"))
		a.Submit("x-in", "x", s.Messages("x", 80)...)
		a.Submit("y-in", "y", s.Messages("y", 10)...)
		a.Held("three", 3, 0, "y*")
		a.Held("default", 64, sec, "x*")
		a.Scrape("one")
		scrapeOf(a, "two", "p2")
		a.Answer()
		a.Release("all", 0)
		a.Results("done", 90, 0)
		a.Check("AP-CLI-01", "async-peak", want{IDs: []string{"x*"}, Min: 64, Max: 64}, "up", "x-in", "default")
		a.Check("AP-CLI-01", "async-peak", want{IDs: []string{"y*"}, Min: 3, Max: 3}, "up2", "y-in", "three", "default")
		a.Check("AP-CLI-01", "async-results", want{Status: 200}, "up", "up2", "default", "three", "all")
		pool := map[string]string{"pool_name": "default"}
		a.Check("AP-CLI-04", "async-values", want{Values: []value{{Mark: "one", Name: "async_pool_worker_limit", Labels: pool, Min: 64, Max: 64},
			{Mark: "two", Who: "p2", Name: "async_pool_worker_limit", Labels: pool, Min: 3, Max: 3}}}, "up", "up2", "default")
		a.Check("AP-CLI-04", "async-peak", want{IDs: []string{"y*"}, Min: 3, Max: 3}, "up2", "y-in", "three", "default")
	}),
	play("transports", "each transport by its name, and channels where none is named", func(a *script) {
		topics(a, "t")
		a.Listen(s.ResultList)
		a.Do(step{Op: sut.AsyncListen, List: "channel-results", Mode: "channel"})
		channel := func(name string) string {
			return channelDoc(s.Queue(name)).With(doc{"retry_queue_name": name + "-retry", "result_queue_name": "channel-results"}).JSON()
		}
		a.Start("default", on("none", channel("c0")))
		a.StartOther("channels", "p2", on("redis-pubsub", channel("c1")))
		a.StartOther("sorted-set", "p3", on("redis-sortedset", s.Transport(s.Queue("q")).JSON()))
		a.StartOther("pubsub", "p4", on("gcp-pubsub", topicDoc(topic("t")).JSON()))
		a.Size("subscribed", "least", 3, ":subscribers")
		submitTo(a, "channel", "in0", "c0", s.Message("m0"))
		submitTo(a, "channel", "in1", "c1", s.Message("m1"))
		a.Submit("in2", "q", s.Message("m2"))
		submitTo(a, "pubsub", "in3", "t", s.Message("m3"))
		a.Results("done", 4, 0)
		a.Try("tried", s.Case("known", on("redis-sortedset", s.Transport(s.Queue("other")).JSON())), s.Case("unknown", on("bogus", s.Transport(s.Queue("other")).JSON())))
		a.Check("AP-CLI-02", "async-results", want{IDs: []string{"m0"}, Status: 200, List: "channel-results"}, "default", "in0")
		a.Check("AP-CLI-02", "async-results", want{IDs: []string{"m1"}, Status: 200, List: "channel-results"}, "channels", "in1")
		a.Check("AP-CLI-02", "async-results", want{IDs: []string{"m2"}, Status: 200, List: s.ResultList}, "sorted-set", "in2")
		a.Check("AP-CLI-02", "async-results", want{IDs: []string{"m3"}, Status: 200, List: "results"}, "pubsub", "in3")
		a.Check("AP-CLI-02", "async-starts", want{Valid: []string{"known"}, Cases: map[string]string{"unknown": ""}}, "tried")
	}),
	play("document", "the document inline or in a file, one of them", func(a *script) {
		entry := func(name string) string {
			return s.Transport(s.Queue(name).With(doc{"request_path_url": "/v1/chat/completions", "inference_objective": "premium"})).JSON()
		}
		inline := on("", entry("inline"))
		inline.Inline = true
		a.Serve(on("", entry("file")))
		a.StartOther("up2", "p2", inline)
		a.Submit("file-in", "file", s.Message("file"))
		a.Submit("inline-in", "inline", s.Message("inline"))
		a.Results("done", 2, 0)
		both := s.Files(on("", entry("other"), "--transport-config-file", "$FILE_doc"), "doc", entry("other"))
		both.Inline = true
		only := on("", entry("other"))
		only.Inline = true
		a.Try("tried", s.Case("inline", only), s.Case("file", on("", entry("other"))), s.Case("none", on("", "")), s.Case("both", both))
		a.Check("AP-CLI-03", "async-results", want{Status: 200, List: s.ResultList}, "up", "up2", "file-in", "inline-in")
		var same []attempt
		for _, id := range []string{"file", "inline"} {
			same = append(same, queueObjective(id, "premium"), attempt{ID: id, Name: ":path", Value: "/v1/chat/completions"})
		}
		a.Check("AP-CLI-03", "async-attempts", want{Attempts: same}, "up", "up2", "done")
		a.Check("AP-CLI-03", "async-starts", want{Valid: []string{"inline", "file"}, Cases: map[string]string{"none": "", "both": ""}}, "tried")
	}),
	play("policy-flag", "the merge policy by the name of its flag and by the older one", func(a *script) {
		policy := s.Policy("tier-priority", doc{"priority_header": priority})
		a.Serve(s.WithPolicy(s.Setup(s.Transport(s.Queue("new"))), "tier-priority", doc{"priority_header": priority}))
		a.Listen("result-list")
		a.StartOther("older", "p2", s.Files(on("none", "", append(olderSet("old"), "--request-merge-policy-config", "$FILE_policy")...), "policy", policy))
		a.StartOther("without", "p3", s.Setup(s.Transport(s.Queue("none"))))
		a.Submit("new-in", "new", s.Message("new"))
		a.Submit("old-in", "old", s.Message("old"))
		a.Submit("none-in", "none", s.Message("none"))
		a.Results("done", 3, 0)
		a.Check("AP-CLI-05", "async-attempts", want{Attempts: []attempt{{ID: "new", Name: priority, Value: "5"}, {ID: "old", Name: priority, Value: "5"}, {ID: "none", Name: priority, Absent: true}}},
			"up", "older", "without", "done")
	}),
	play("transform-flag", "transforms by their file, and none without one", func(a *script) {
		sent := func(id, provider string) sut.AsyncMessage {
			return s.Message(id, s.Meta("provider", provider), s.Payload(whisperPayload+id+`"}`))
		}
		a.Serve(s.Files(s.Setup(s.Transport(s.Queue("x")), "--transform-config-file", "$FILE_transforms"), "transforms", whisper))
		a.StartOther("up2", "p2", s.Setup(s.Transport(s.Queue("y"))))
		a.StartOther("up3", "p3", s.Setup(s.Transport(s.Queue("z")), "--transform-config-file", ""))
		a.Submit("x-in", "x", sent("form", "whisper"), sent("other", "ocr"))
		a.Submit("y-in", "y", sent("plain", "whisper"))
		a.Submit("z-in", "z", sent("empty", "whisper"))
		a.Results("done", 4, 0)
		a.Check("AP-CLI-06", "async-attempts", want{Attempts: []attempt{{ID: "form", Name: ":form.url", Value: "https://storage.example/object"},
			{ID: "other", Name: ":json", Value: whisperPayload + `other"}`}, {ID: "plain", Name: ":json", Value: whisperPayload + `plain"}`}, {ID: "empty", Name: ":json", Value: whisperPayload + `empty"}`}}},
			"up", "up2", "up3", "done")
	}),
	play("no-prometheus", "gates that ask a Prometheus, without one", func(a *script) {
		a.Series("free", "free 1\n")
		gates := map[string]doc{"prometheus-query": {"query": "free", "fallback": "0.0"}, "prometheus-budget": {"pool": "p", "fallback": "0.0"},
			"prometheus-saturation": {"pool": "p", "fallback": "1.0"}}
		a.Serve(s.Setup(s.Transport(s.Gated("twin", "prometheus-query", gates["prometheus-query"])), "--prometheus-url", "$PROM"))
		a.Submit("twin-in", "twin", s.Message("twin"))
		a.Results("served", 1, 0, "twin")
		for i, kind := range []string{"prometheus-query", "prometheus-budget", "prometheus-saturation"} {
			who := []string{"p2", "p3", "p4"}[i]
			a.StartOther("start-"+kind, who, s.Setup(s.Transport(s.Gated(kind, kind, gates[kind]))))
			a.Submit("in-"+kind, kind, s.Messages(kind, 2)...)
		}
		a.Quiet("watched", 1500*msec)
		a.Check("AP-CLI-07", "async-arrivals", want{IDs: []string{"prometheus-*"}, To: "watched"}, "free", "up", "served", "watched")
	}),
	play("cached-queries", "an answer of the Prometheus is used again for the cache's time", func(a *script) {
		a.Series("closed", "budget 0\n")
		a.Serve(s.Setup(s.Transport(s.Gated("q", "prometheus-query", doc{"query": "budget"})), "--prometheus-url", "$PROM", "--prometheus-cache-ttl", "1s"))
		a.Submit("in", "q", s.Message("m"))
		// A closed gate with work behind it counts each poll: that many times it was evaluated.
		a.ScrapeUntil("evaluated", sut.AsyncValue{Name: "async_gate_decisions_total", Labels: map[string]string{"reason": "gate_closed", "queue_name": "q"}, Min: 20, Max: 1e9})
		a.Quiet("watched", 4*sec)
		a.Series("open", "budget 1\n")
		a.Results("done", 1, 0)
		a.Check("AP-CLI-08", "async-queries", want{From: "in", To: "watched", Equal: "budget", High: 1.2}, "up", "in", "evaluated", "watched")
		a.Check("AP-CLI-08", "async-arrivals", want{To: "watched"}, "closed", "up", "in", "evaluated", "done")
		// A second of age, a poll, and what a busy machine adds.
		a.Check("AP-CLI-08", "async-timing", want{Event: "arrival", Anchor: "open", Latest: 1600 * msec}, "closed", "up", "in", "evaluated")
	}),
	play("fresh-queries", "without a cache every poll asks", func(a *script) {
		a.Series("closed", "budget 0\n")
		a.Serve(s.Setup(s.Transport(s.Gated("q", "prometheus-query", doc{"query": "budget"})), "--prometheus-url", "$PROM", "--prometheus-cache-ttl", "0s"))
		a.Submit("in", "q", s.Message("m"))
		a.ScrapeUntil("evaluated", sut.AsyncValue{Name: "async_gate_decisions_total", Labels: map[string]string{"reason": "gate_closed", "queue_name": "q"}, Min: 20, Max: 1e9})
		a.Series("open", "budget 1\n")
		a.Results("done", 1, 0)
		a.Check("AP-CLI-08", "async-queries", want{From: "in", To: "evaluated", Equal: "budget", Low: 6, High: 100}, "up", "in", "evaluated")
		a.Check("AP-CLI-08", "async-timing", want{Event: "arrival", Anchor: "open", Latest: 600 * msec}, "closed", "up", "in", "evaluated")
	}),
	play("request-timeout", "an attempt that takes too long is given up", func(a *script) {
		a.Hold()
		a.Serve(s.Setup(s.Transport(s.Queue("q")), "--request-timeout", "1s"))
		a.Submit("in", "q", s.Message("m", s.Due(8*sec)))
		a.Held("held", 1, 0)
		a.Results("done", 1, 15*sec)
		a.Quiet("watched", 500*msec)
		a.Check("AP-CLI-09", "async-timing", want{Event: "attempt-end", Shape: "dropped", Anchor: "held", Earliest: 700 * msec, Latest: 1300 * msec}, "up", "in", "held")
		a.Check("AP-CLI-09", "async-results", want{Codes: []string{"DEADLINE_EXCEEDED"}, Shape: "error"}, "up", "in", "held")
	}),
	play("ports", "the ports of metrics and probes, their own and others", func(a *script) {
		const health, metrics = "http://127.0.0.1:8081/readyz", "http://127.0.0.1:9090/metrics"
		// Somebody else on this machine may have them; then nothing can be shown.
		a.Get("free-health", health, "no answer", sec)
		a.Get("free-metrics", metrics, "no answer", sec)
		a.Start("up", s.Setup(s.Transport(s.Queue("q"))))
		a.Get("other-health", "http://127.0.0.1:$HEALTH_PORT/readyz", "200", 0)
		a.Get("other-metrics", "http://127.0.0.1:$METRICS_PORT/metrics", "200", 0)
		a.Get("not-health", health, "", 0)
		a.Get("not-metrics", metrics, "", 0)
		own := s.Setup(s.Transport(s.Queue("r")))
		own.Without = []string{"--metrics-port", "--health-port"}
		a.Do(step{Op: sut.AsyncStart, Mark: "up2", Who: "p2", Setup: own, Mode: "none"})
		a.Get("own-health", health, "200", 0)
		a.Get("own-metrics", metrics, "200", 0)
		free := []string{"free-health", "free-metrics"}
		a.Check("AP-CLI-11", "async-details", want{Details: map[string]string{"other-health": "200", "other-metrics": "200", "not-health": "no answer", "not-metrics": "no answer"}}, append(free, "up")...)
		a.Check("AP-CLI-11", "async-details", want{Details: map[string]string{"own-health": "200", "own-metrics": "200"}}, free...)
	}),
	play("backlog-interval", "how often the broker's backlog is read", func(a *script) {
		held := func(name string) doc { return s.Gated(name, "redis", doc{"address": "$BROKER"}) }
		backlog := func(queue string) map[string]string { return map[string]string{"queue_name": queue} }
		a.Set("closed", "dispatch-gate-budget", "0")
		a.Start("up", s.Setup(s.Transport(held("x")), "--metrics-backlog-poll-interval", "1s"))
		a.StartOther("up2", "p2", s.Setup(s.Transport(held("y")), "--metrics-backlog-poll-interval", "0"))
		a.StartOther("up3", "p3", on("redis-pubsub", channelDoc(s.Queue("c")).JSON(), "--metrics-backlog-poll-interval", "1s"))
		scrapeOf(a, "before", "p2")
		a.Submit("x-in", "x", s.Messages("x", 3)...)
		a.Submit("y-in", "y", s.Messages("y", 3)...)
		a.Quiet("read", 1800*msec)
		a.Scrape("three")
		scrapeOf(a, "never", "p2")
		scrapeOf(a, "channel", "p3")
		a.Submit("x-more", "x", s.Messages("more", 2)...)
		a.Quiet("read-again", 1800*msec)
		a.Scrape("five")
		a.Look("waiting", "x", "y")
		engaged := []string{"closed", "up", "up2", "up3", "x-in", "y-in", "x-more"}
		a.Check("AP-CLI-12", "async-keys", want{Keys: append(keys("waiting", 5, 5, "x"), keys("waiting", 3, 3, "y")...)}, engaged...)
		a.Check("AP-CLI-12", "async-values", want{Values: []value{{Mark: "three", Name: "async_broker_backlog", Labels: backlog("x"), Min: 3, Max: 3},
			{Mark: "five", Name: "async_broker_backlog", Labels: backlog("x"), Min: 5, Max: 5}}}, engaged...)
		a.Check("AP-CLI-12", "async-values", want{Values: []value{{Mark: "never", Since: "before", Who: "p2", Name: "async_broker_backlog", Labels: backlog("y")},
			{Mark: "channel", Who: "p3", Name: "async_broker_backlog", Absent: true}}}, engaged...)
	}),
}
