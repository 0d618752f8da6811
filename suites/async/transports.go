package async

import (
	"github.com/llm-weir/weir/harness/checks"
	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// transportScenarios are those of AP-TRN on the sorted set and on channels.
var transportScenarios = []s.Scenario{
	play("basic", "twenty messages in, twenty answers out", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", s.Messages("m", 20)...)
		a.Results("done", 20, 0)
		a.Check("AP-TRN-01", "async-arrivals", want{IDs: []string{"m*"}, Min: 1, Max: 1, Each: true}, "up", "in")
		a.Check("AP-TRN-01", "async-results", want{Status: 200, List: s.ResultList}, "up", "in")
	}),
	play("persist", "messages that were submitted while nothing ran", func(a *script) {
		a.Submit("in", "q", s.Messages("m", 5)...)
		a.Size("waiting", "", 5, "q")
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Results("done", 5, 0)
		a.Check("AP-TRN-02", "async-results", want{Status: 200}, "waiting", "up")
	}),
	play("earliest-deadline", "the earliest deadline goes first", func(a *script) {
		a.Submit("in", "q", s.Message("d50", s.Due(50*sec)), s.Message("d20", s.Due(20*sec)), s.Message("d40", s.Due(40*sec)), s.Message("d30", s.Due(30*sec)))
		a.Size("waiting", "", 4, "q")
		a.Hold()
		a.Serve(s.Setup(s.Transport(s.Queue("q")), "--concurrency", "1"))
		a.Held("first", 1, 0)
		a.Do(step{Op: sut.AsyncStep1, Mark: "others", Count: 3})
		a.Release("last", 0)
		a.Check("AP-TRN-03", "async-order", want{Order: []string{"d20", "d30", "d40", "d50"}, Min: 4}, "waiting", "up", "first")
	}),
	play("same-deadline", "equal deadlines leave in the order of submission", func(a *script) {
		a.Submit("in", "q", s.Messages("m", 20, s.Due(300*sec))...)
		a.Size("waiting", "", 20, "q")
		a.Serve(s.Setup(s.Transport(s.Queue("q")), "--concurrency", "1"))
		a.Results("done", 20, 0)
		a.Check("AP-TRN-04", "async-order", want{Order: numbered("m", 20), Min: 20}, "waiting", "up")
	}),
	play("channel", "requests and results on channels", func(a *script) {
		a.Do(step{Op: sut.AsyncListen, List: "results", Mode: "channel"})
		a.Answer(s.Statuses([]string{"again"}, 503, 200))
		set := s.Setup(channelDoc(s.Queue("c")))
		set.Transport = "redis-pubsub"
		a.Start("up", set)
		a.Size("subscribed", "least", 2, ":subscribers")
		a.Do(step{Op: sut.AsyncSubmit, Mark: "in", Queue: "c", Mode: "channel", Messages: append(s.Messages("m", 5), s.Message("again"))})
		a.Size("retrying", "", 1, s.RetrySet)
		a.Results("done", 6, 40*sec)
		a.Check("AP-TRN-05", "async-results", want{Status: 200}, "up", "subscribed", "in", "retrying")
		a.Check("AP-TRN-05", "async-arrivals", want{IDs: []string{"again"}, Min: 2, Max: 2}, "up", "subscribed")
	}),
	play("channel-ephemeral", "what is published while nobody listens is lost", func(a *script) {
		a.Do(step{Op: sut.AsyncListen, List: "results", Mode: "channel"})
		a.Do(step{Op: sut.AsyncSubmit, Mark: "lost", Queue: "c", Mode: "channel", Messages: s.Messages("early", 3)})
		set := s.Setup(channelDoc(s.Queue("c")))
		set.Transport = "redis-pubsub"
		a.Start("up", set)
		a.Size("subscribed", "least", 2, ":subscribers")
		a.Do(step{Op: sut.AsyncSubmit, Mark: "in", Queue: "c", Mode: "channel", Messages: s.Messages("late", 3)})
		a.Results("done", 3, 0, "late*")
		a.Quiet("watched", 5*sec)
		a.Check("AP-TRN-06", "async-arrivals", want{IDs: []string{"early*"}, To: "watched"}, "lost", "up", "subscribed", "done", "watched")
	}),
	play("channel-gate", "a gate on a channel is ignored", func(a *script) {
		a.Do(step{Op: sut.AsyncListen, List: "results", Mode: "channel"})
		a.Set("closed", "dispatch-gate-budget", "0")
		set := s.Setup(channelDoc(s.Gated("c", "redis", doc{"address": "$BROKER"})))
		set.Transport = "redis-pubsub"
		a.Start("up", set)
		a.Size("subscribed", "least", 2, ":subscribers")
		a.Do(step{Op: sut.AsyncSubmit, Mark: "in", Queue: "c", Mode: "channel", Messages: s.Messages("m", 3)})
		a.Results("done", 3, 0)
		a.Check("AP-TRN-07", "async-results", want{Status: 200}, "closed", "up", "subscribed", "in")
	}),
	play("two-queues", "two queues, each to its own upstream", func(a *script) {
		a.Hold("x*")
		a.Serve(s.WithPools(s.Transport(s.Queue("x").With(doc{"worker_pool_id": "one"}), s.Queue("y").With(doc{"igw_base_url": "$UPSTREAM_b", "worker_pool_id": "two"})),
			[]doc{{"id": "one", "workers": 2}, {"id": "two", "workers": 2}}))
		// Both workers of x are busy before anything of y is there: were they shared, y would wait.
		a.Submit("x-in", "x", s.Messages("x", 5)...)
		a.Held("x-held", 2, 0, "x*")
		a.Submit("y-in", "y", s.Messages("y", 5)...)
		a.Results("y-done", 5, 0, "y*")
		a.Release("x-free", 2, "x*")
		a.Answer()
		a.Release("x-rest", 0, "x*")
		a.Results("x-done", 5, 0, "x*")
		a.Check("AP-TRN-13", "async-attempts", want{Attempts: append(each(numbered("x", 5), ":upstream", "a"), each(numbered("y", 5), ":upstream", "b")...)}, "up", "x-held")
		a.Check("AP-TRN-13", "async-timing", want{IDs: []string{"y*"}, Event: "result", Anchor: "y-in", Latest: 10 * sec}, "up", "x-held")
		a.Check("AP-TRN-13", "async-results", want{Status: 200}, "up", "x-held", "y-done")
	}),
	play("replicas", "two processors share one queue", func(a *script) {
		a.Answer(sut.AsyncReply{Delay: 20 * msec})
		a.Listen(s.ResultList)
		set := s.Setup(s.Transport(s.Queue("q")), "--concurrency", "8")
		a.Start("up", set)
		a.StartOther("up2", "p2", set)
		a.Submit("in", "q", s.Messages("m", 500)...)
		a.Results("done", 500, 30*sec)
		a.Scrape("one")
		a.Do(step{Op: sut.AsyncScrape, Mark: "two", Who: "p2"})
		a.Check("AP-TRN-14", "async-arrivals", want{Min: 1, Max: 1, Each: true}, "up", "up2", "in", "done")
		a.Check("AP-TRN-14", "async-values", want{Values: []value{{Mark: "one", Name: "async_successful_requests_total", Min: 50, Max: 450},
			{Mark: "two", Who: "p2", Name: "async_successful_requests_total", Min: 50, Max: 450}}}, "up", "up2", "in", "done")
		a.Check("AP-TRN-14", "async-results", want{Status: 200}, "up", "up2", "in")
	}),
	play("broker-returns", "consumption goes on after cut connections and after an outage", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("before", "q", s.Messages("a", 3)...)
		a.Results("served", 3, 0, "a*")
		a.Broker("cut", "cut")
		a.Submit("after-cut", "q", s.Messages("b", 3)...)
		a.Results("served-again", 3, 15*sec, "b*")
		a.Broker("down", "down")
		a.Get("noticed", "http://127.0.0.1:$HEALTH_PORT/readyz", "503", 10*sec)
		a.Broker("up-again", "up")
		a.Submit("after-outage", "q", s.Messages("c", 3)...)
		a.Results("served-at-last", 3, 15*sec, "c*")
		a.Check("AP-TRN-15", "async-results", want{Status: 200}, "up", "served", "noticed")
		a.Check("AP-TRN-15", "async-timing", want{IDs: []string{"b*"}, Event: "result", Anchor: "after-cut", Latest: 15 * sec}, "up", "served")
		a.Check("AP-TRN-15", "async-timing", want{IDs: []string{"c*"}, Event: "result", Anchor: "after-outage", Latest: 15 * sec}, "up", "noticed")
	}),
}

// channelDoc is a document of redis-pubsub.
func channelDoc(queues ...s.Doc) s.Doc {
	return doc{"url": "redis://$BROKER", "retry_queue_name": s.RetrySet, "result_queue_name": "results", "queues": queues}
}

// each wants one value of each of some ids.
func each(ids []string, name, value string) []checks.AttemptWant {
	var out []checks.AttemptWant
	for _, id := range ids {
		out = append(out, checks.AttemptWant{ID: id, Name: name, Value: value})
	}
	return out
}
