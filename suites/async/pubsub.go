package async

import (
	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// pubsubScenarios are those of AP-TRN about Pub/Sub, and what holds on every transport.
var pubsubScenarios = []s.Scenario{
	play("pubsub", "requests from subscriptions, results to a topic, gates by topic", func(a *script) {
		gate := func(name, kind string, params doc) doc {
			return topic(name).With(doc{"gate_type": kind, "gate_params": params})
		}
		topics(a, "open", "shut")
		a.Set("closed", "gate", "0")
		a.Start("up", on("gcp-pubsub", topicDoc(gate("open", "constant", doc{}), gate("shut", "redis", doc{"address": "$BROKER", "budget_key": "gate"})).JSON()))
		submitTo(a, "pubsub", "open-in", "open", s.Messages("open", 5)...)
		submitTo(a, "pubsub", "shut-in", "shut", s.Messages("shut", 5)...)
		a.Results("done", 5, 0, "open*")
		a.Quiet("watched", 2*sec)
		a.Set("opened", "gate", "1")
		a.Results("all", 5, 25*sec, "shut*") // a topic's budget is read every ten seconds
		a.Check("AP-TRN-08", "async-results", want{IDs: []string{"open*"}, Status: 200, List: "results"}, "closed", "up", "open-in")
		a.Check("AP-TRN-08", "async-arrivals", want{IDs: []string{"open*"}, Min: 1, Max: 1, Each: true}, "closed", "up", "open-in", "done")
		a.Check("AP-TRN-08", "async-arrivals", want{IDs: []string{"shut*"}, To: "watched"}, "closed", "up", "shut-in", "done", "watched", "all")
	}),
	play("pubsub-redelivery", "redeliveries are new requests unless there is a dead-letter policy", func(a *script) {
		a.Do(step{Op: sut.AsyncTopics, Queue: "counted", Mode: "dead-letter"})
		topics(a, "anew")
		a.Answer(s.Statuses(nil, 503, 503, 200))
		a.Start("up", on("gcp-pubsub", topicDoc(topic("counted"), topic("anew")).JSON()))
		submitTo(a, "pubsub", "counted-in", "counted", s.Message("counted"))
		submitTo(a, "pubsub", "anew-in", "anew", s.Message("anew"))
		a.Results("done", 2, 20*sec)
		a.Scrape("end")
		requests := func(queue string, n float64) value {
			return value{Mark: "end", Name: "async_request_total", Labels: map[string]string{"queue_name": queue}, Min: n, Max: n}
		}
		a.Check("AP-TRN-09", "async-arrivals", want{Min: 3, Max: 3, Each: true}, "up", "counted-in", "anew-in", "done")
		a.Check("AP-TRN-09", "async-values", want{Values: []value{requests("counted", 1), requests("anew", 3)}}, "up", "done")
	}),
	alike("sorted-set", "", func() *sut.AsyncSetup { return s.Setup(s.Transport(s.Queue("q")), "--concurrency", "4") }),
	alike("channels", "channel", func() *sut.AsyncSetup {
		return on("redis-pubsub", channelDoc(s.Queue("q")).JSON(), "--concurrency", "4")
	}),
	alike("pubsub", "pubsub", func() *sut.AsyncSetup { return on("gcp-pubsub", topicDoc(topic("q")).JSON(), "--concurrency", "4") }),
}

// alike is what must be the same on every transport: server errors are retried, client errors are final, every message has one result, a
// pool holds one request for each worker, and the tenant is stamped.
func alike(name, mode string, set func() *sut.AsyncSetup) s.Scenario {
	return play("alike-"+name, "retries, results, pools and stamps on "+name, func(a *script) {
		switch mode {
		case "pubsub":
			topics(a, "q")
		case "channel":
			a.Do(step{Op: sut.AsyncListen, List: "results", Mode: "channel"})
		default:
			a.Listen(s.ResultList)
		}
		a.Answer(s.Statuses([]string{"busy"}, 503, 200), s.Statuses([]string{"bad"}, 404), sut.AsyncReply{IDs: []string{"p*"}, Hold: true})
		a.Start("up", set())
		if mode == "channel" {
			a.Size("subscribed", "least", 2, ":subscribers")
		}
		submitTo(a, mode, "in", "q", append(s.Messages("m", 6, s.User("t1")), s.Message("busy"), s.Message("bad"))...)
		a.Results("first", 7, 0, "m*", "bad")
		a.Arrive("failed", 1, "busy")
		submitTo(a, mode, "pool-in", "q", s.Messages("p", 10)...)
		a.Held("four", 4, sec, "p*")
		a.Release("one", 1, "p*")
		a.Arrive("fifth", 5, "p*")
		a.Held("still", 4, 500*msec, "p*")
		a.Answer()
		a.Release("all", 0)
		a.Results("done", 18, 45*sec) // a retry of channels may be late by half a minute
		a.Quiet("watched", 5*sec)
		engaged := []string{"up", "in", "first", "failed", "four", "one"}
		for _, c := range []struct {
			check string
			p     want
		}{
			{"async-arrivals", want{IDs: []string{"busy"}, Min: 2, Max: 2}},
			{"async-arrivals", want{IDs: []string{"bad"}, Min: 1, Max: 1, To: "watched"}},
			{"async-results", want{IDs: []string{"bad"}, Status: 404, Shape: "http"}},
			{"async-results", want{IDs: []string{"m*", "p*", "busy"}, Status: 200, Shape: "http"}},
			{"async-peak", want{IDs: []string{"p*"}, Min: 4, Max: 4, To: "still"}},
			{"async-arrivals", want{IDs: []string{"p*"}, From: "one", To: "still", Min: 1, Max: 1}},
			{"async-attempts", want{Attempts: each(numbered("m", 6), fairness, "t1")}},
		} {
			a.Check("AP-TRN-11", c.check, c.p, engaged...)
		}
	})
}
