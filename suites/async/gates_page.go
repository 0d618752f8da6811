package async

import (
	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// waitingMetric is the one of the guide's example.
const waitingMetric = "vllm:num_requests_waiting"

// pageGateScenarios are those of AP-GATE whose gates read a page; no Prometheus runs.
var pageGateScenarios = []s.Scenario{
	play("scrape-direct", "a saturation on a page leaves the rest as the budget", func(a *script) {
		fill(a, "in", 100, "whole", "based")
		a.Page("set", "# TYPE pool_saturation gauge\npool_saturation 0.65\n")
		a.Serve(roomy(polled(scrapeGate("whole", "pool_saturation", nil), scrapeGate("based", "pool_saturation", doc{"baseline": "0.2"}))))
		fetched(a, "read", 3, "whole", "based")
		a.Quiet("watched", watch)
		left(a, "whole", "based")
		watched{from: "up", to: "watched", setup: marks("in", "set", "up"), read: marks("read")}.takes(a, "AP-GATE-29", map[string]int{"whole": 3, "based": 1})
	}),
	play("scrape-counts", "a number on a page, divided by what a pod takes, is the saturation", func(a *script) {
		queues := []string{"one", "two", "five"}
		fill(a, "in", 250, queues...)
		gate := func(name, metric string) doc {
			return scrapeGate(name, metric, doc{"max_count_per_pod": "5", "fallback": "1.0"})
		}
		a.Page("set", "# TYPE "+waitingMetric+" gauge\n"+waitingMetric+"{model_name=\"m\"} 2\nwaiting_one 1\nwaiting_five 5\n")
		a.Serve(roomy(polled(gate("one", "waiting_one"), gate("two", waitingMetric), gate("five", "waiting_five"))))
		fetched(a, "read", 2, queues...)
		a.Quiet("watched", watch)
		a.Page("gone", "")
		fetched(a, "gone-read", 2, queues...)
		a.Quiet("gone-begun", 300*msec)
		a.Quiet("gone-watched", watch)
		left(a, queues...)
		watched{from: "up", to: "watched", setup: marks("in", "set", "up"), read: marks("read")}.takes(a, "AP-GATE-30", map[string]int{"one": 8, "two": 6, "five": 0})
		watched{from: "gone-begun", to: "gone-watched", setup: marks("in", "gone", "up"), read: marks("gone-read")}.takes(a, "AP-GATE-30", map[string]int{"two": 10})
	}),
	play("scrape-labels", "labels choose the sample, and what is not found gives the fallback", func(a *script) {
		queues := []string{"free", "full", "both", "missing"}
		fill(a, "in", 200, queues...)
		a.Page("set", "load{zone=\"a\",kind=\"x\"} 0\nload{zone=\"a\",kind=\"y\"} 0\nload{zone=\"b\",kind=\"x\"} 1\nload{zone=\"b\",kind=\"y\"} 0.55\n")
		a.Serve(roomy(polled(scrapeGate("free", "load", doc{"labels": `{"zone":"a"}`}), scrapeGate("full", "load", doc{"labels": `{"kind":"x","zone":"b"}`}),
			scrapeGate("both", "load", doc{"labels": `{"zone":"b","kind":"y"}`}), scrapeGate("missing", "nowhere", nil))))
		fetched(a, "read", 2, queues...)
		a.Quiet("watched", watch)
		a.Page("gone", "")
		fetched(a, "gone-read", 2, queues...)
		a.Quiet("gone-begun", 700*msec)
		a.Quiet("gone-watched", sec)
		left(a, queues...)
		watched{from: "up", to: "watched", setup: marks("in", "set", "up"), read: marks("read")}.takes(a, "AP-GATE-31", map[string]int{"free": 10, "full": 0, "both": 4, "missing": 0})
		watched{from: "gone-begun", to: "gone-watched", setup: marks("in", "gone", "up"), read: marks("gone-read")}.shuts(a, "AP-GATE-31", queues...)
	}),
	play("scrape-pods", "the capacity follows the number of pods that are ready", func(a *script) {
		queues := []string{"one", "two", "missing"}
		gate := func(name string) doc {
			return scrapeGate(name, waitingMetric, doc{"max_count_per_pod": "5", "fallback": "0.35", "pods_url": "$PAGE?pods=" + name, "pods_metric": "inference_pool_ready_pods", "pods_labels": `{"name":"` + name + `"}`})
		}
		fill(a, "in", 150, queues...)
		a.Page("set", waitingMetric+" 5\n"+readyPods("one", "", 1)+readyPods("two", "", 2))
		a.Serve(roomy(polled(gate("one"), gate("two"), gate("missing"))))
		fetched(a, "read", 2, queues...)
		for _, q := range queues {
			reads(a, "pods-read", 2, ":fetches pods="+q)
		}
		a.Quiet("watched", watch)
		// The other way round: the number is read again.
		a.Page("moved", waitingMetric+" 5\n"+readyPods("one", "", 2)+readyPods("two", "", 1))
		fetched(a, "moved-read", 2, queues...)
		a.Quiet("moved-begun", 300*msec)
		a.Quiet("moved-watched", watch)
		left(a, queues...)
		watched{from: "up", to: "watched", setup: marks("in", "set", "up"), read: marks("read", "pods-read")}.takes(a, "AP-GATE-32", map[string]int{"one": 0, "two": 5, "missing": 3})
		watched{from: "moved-begun", to: "moved-watched", setup: marks("in", "moved", "up"), read: marks("moved-read", "pods-read")}.takes(a, "AP-GATE-32", map[string]int{"one": 5, "two": 0})
	}),
	play("scrape-params", "gates on a page without what they need", func(a *script) {
		with := func(name string, params doc) sut.AsyncTrial {
			return s.Case(name, s.Setup(s.Transport(s.Gated("q", "endpoint-scrape", params))))
		}
		a.Try("tried", with("valid", doc{"url": "$PAGE", "metric": waitingMetric}), with("no-url", doc{"metric": waitingMetric}), with("no-metric", doc{"url": "$PAGE"}))
		a.Check("AP-GATE-31", "async-starts", want{Valid: []string{"valid"}, Cases: map[string]string{"no-url": "", "no-metric": ""}}, "tried")
	}),
}

// scrapeGate is a queue behind a gate on a metric of the page. The queue's name is in the address, so that it can be told whose gate has read.
func scrapeGate(name, metric string, params doc) doc {
	return s.Gated(name, "endpoint-scrape", doc{"url": "$PAGE?of=" + name, "metric": metric}.With(params))
}

// fetched waits until the gates of some queues have each read the page n times since it was set.
func fetched(a *script, mark string, n int, queues ...string) {
	for _, q := range queues {
		reads(a, mark, n, ":fetches of="+q)
	}
}
