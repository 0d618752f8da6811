package async

import (
	"fmt"
	"slices"
	"strings"

	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// The transport documents of the guide, with addresses of the scenario in the place of its own.
const (
	channelSample = `{
  "url": "redis://$BROKER/0",
  "retry_queue_name": "retry-sortedset",
  "result_queue_name": "result-queue",
  "enable_tracing": false,
  "queues": [ { "queue_name": "request-queue", "igw_base_url": "$UPSTREAM_a" } ]
}`
	sortedSetSample = `{
  "url": "redis://$BROKER/0",
  "result_queue_name": "result-list",
  "retry_queue_name": "retry-sortedset",
  "poll_interval_ms": 1000,
  "batch_size": 10,
  "enable_tracing": false,
  "queues": [ { "queue_name": "request-sortedset", "igw_base_url": "$UPSTREAM_a", "gate_type": "redis", "gate_params": { "address": "$BROKER" } } ]
}`
	pubsubSample = `{
  "project_id": "weir",
  "result_topic_id": "results",
  "batch_size": 10,
  "topics": [ { "subscriber_id": "requests-sub", "igw_base_url": "$UPSTREAM_a", "gate_type": "constant", "gate_params": {} } ]
}`
	entrySample = `{
   "queue_name": "batch_queue",
   "igw_base_url": "$UPSTREAM_a",
   "request_path_url": "/v1/completions",
   "inference_objective": "batch-task",
   "worker_pool_id": "qwen-pool",
   "gate_type": "prometheus-saturation",
   "gate_params": { "pool": "inference_pool_1", "threshold": "0.8" },
   "labels": { "tier": "batch", "team": "billing" }
}`
)

// objectives are the names under which a queue's objective may be sent (K13).
var objectives = []string{"x-llm-d-inference-objective", "x-gateway-inference-objective"}

// queueObjective wants a queue's objective at the upstream, under either name.
func queueObjective(id, value string) attempt {
	return attempt{ID: id, Name: objectives[0], Or: objectives[1:], Value: value}
}

// on is a processor on another transport, with its document.
func on(transport, document string, flags ...string) *sut.AsyncSetup {
	set := &sut.AsyncSetup{Transport: transport, Config: document, Flags: flags}
	if transport == "gcp-pubsub" {
		set.Env = pubsubEnv
	}
	return set
}

// pubsubEnv leads to the Pub/Sub server of the scenario.
var pubsubEnv = map[string]string{"PUBSUB_EMULATOR_HOST": "$PUBSUB"}

// topicDoc is a document of gcp-pubsub: entries are those of queues, with the subscriber's name.
func topicDoc(topics ...doc) doc {
	return doc{"project_id": "weir", "result_topic_id": "results", "topics": topics}
}

// topic is an entry of topics.
func topic(name string) doc { return doc{"subscriber_id": name, "igw_base_url": "$UPSTREAM_a"} }

// topics creates topics and takes results from the topic results.
func topics(a *script, names ...string) {
	for _, n := range append(names, "results") {
		a.Do(step{Op: sut.AsyncTopics, Queue: n})
	}
	a.Do(step{Op: sut.AsyncListen, List: "results", Mode: "pubsub"})
}

// submitTo puts messages into a queue of a transport: mode "", "channel", "pubsub".
func submitTo(a *script, mode, mark, queue string, ms ...sut.AsyncMessage) {
	a.Do(step{Op: sut.AsyncSubmit, Mark: mark, Queue: queue, Mode: mode, Messages: ms})
}

// labelled is a message whose envelope carries a label.
func labelled(id, key, value string) sut.AsyncMessage {
	m := s.Message(id)
	m.Labels = map[string]string{key: value}
	return m
}

// budgetShown waits until a queue's gate has the budget 0.
func budgetShown(a *script, mark, queue string) {
	a.ScrapeUntil(mark, sut.AsyncValue{Name: "async_dispatch_budget", Labels: map[string]string{"queue_name": queue}})
}

// configScenarios are those of AP-CFG.
var configScenarios = []s.Scenario{
	play("sample-channel", "the documented document of the channel transport", func(a *script) {
		a.Do(step{Op: sut.AsyncListen, List: "result-queue", Mode: "channel"})
		a.Start("up", on("redis-pubsub", channelSample))
		a.Size("subscribed", "least", 2, ":subscribers")
		submitTo(a, "channel", "in", "request-queue", s.Message("m"))
		a.Results("done", 1, 0)
		a.Check("AP-CFG-01", "async-results", want{Status: 200, List: "result-queue"}, "up", "in")
	}),
	play("sample-sorted-set", "the documented document of the sorted-set transport", func(a *script) {
		a.Listen("result-list")
		a.Start("up", on("", sortedSetSample))
		a.Submit("in", "request-sortedset", s.Message("m"))
		a.Results("done", 1, 0)
		a.Check("AP-CFG-02", "async-results", want{Status: 200, List: "result-list"}, "up", "in")
		a.Check("AP-CFG-02", "async-attempts", want{Attempts: []attempt{{ID: "m", Name: ":path", Value: "/v1/completions"}}}, "up", "in")
	}),
	play("sample-pubsub", "the documented document of the Pub/Sub transport", func(a *script) {
		topics(a, "requests-sub")
		a.Start("up", on("gcp-pubsub", pubsubSample))
		submitTo(a, "pubsub", "in", "requests-sub", s.Message("m"))
		a.Results("done", 1, 0)
		without := func(line string) string { return strings.Replace(pubsubSample, line, "", 1) }
		a.Try("tried",
			s.Case("whole", on("gcp-pubsub", pubsubSample)),
			s.Case("no-project", on("gcp-pubsub", without(`"project_id": "weir",`))),
			s.Case("no-result-topic", on("gcp-pubsub", without(`"result_topic_id": "results",`))))
		a.Check("AP-CFG-03", "async-results", want{Status: 200, List: "results"}, "up", "in")
		a.Check("AP-CFG-03", "async-starts", want{Valid: []string{"whole"}, Cases: map[string]string{"no-project": "", "no-result-topic": ""}}, "tried")
	}),
	play("url", "the document's address wins over the environment's, which fills an empty one", func(a *script) {
		env := func(d doc) *sut.AsyncSetup {
			set := s.Setup(d)
			set.Env = map[string]string{"REDIS_URL": "redis://$BROKER2"}
			return set
		}
		a.Listen(s.ResultList)
		a.Do(step{Op: sut.AsyncListen, Who: "2", List: s.ResultList})
		a.Start("up", env(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", s.Message("field"))
		a.Results("field-done", 1, 0, "field")
		a.Do(step{Op: sut.AsyncLook, Who: "2", Mark: "unused", Names: []string{":accepted"}})
		a.StartOther("up2", "p2", env(s.Transport(s.Queue("q")).With(doc{"url": nil})))
		a.Do(step{Op: sut.AsyncSubmit, Who: "2", Mark: "in2", Queue: "q", Messages: s.Messages("env", 1)})
		a.Results("env-done", 1, 0, "env0")
		secure := s.Setup(s.Transport(s.Queue("secure")).With(doc{"url": "rediss://$TLSBROKER", "retry_queue_name": "secure-retry"}))
		secure.Env = map[string]string{"SSL_CERT_FILE": "$CA"} // the broker's authority is in nobody's list
		a.StartOther("up3", "p3", secure)
		a.Submit("in3", "secure", s.Message("secure"))
		a.Results("secure-done", 1, 5*sec, "secure")
		a.Try("tried", s.Case("url", s.Setup(s.Transport(s.Queue("other")))), s.Case("none", s.Setup(s.Transport(s.Queue("other")).With(doc{"url": nil}))))
		a.Check("AP-CFG-04", "async-results", want{IDs: []string{"field"}, Status: 200}, "up", "in")
		a.Check("AP-CFG-04", "async-keys", want{Keys: keys("unused", 0, 0, ":accepted")}, "up", "field-done", "env-done")
		a.Check("AP-CFG-04", "async-results", want{IDs: []string{"env0"}, Status: 200}, "up2", "in2")
		a.Check("AP-CFG-04", "async-starts", want{Valid: []string{"url"}, Cases: map[string]string{"none": ""}}, "tried")
		a.Check("AP-CFG-04", "async-stays", want{Names: []string{"up3"}}, "field-done")
		a.Check("AP-CFG-04", "async-results", want{IDs: []string{"secure"}, Status: 200}, "up3", "in3")
	}),
	play("default-names", "the names that a document of the sorted set leaves out", func(a *script) {
		a.Answer(s.Statuses([]string{"again"}, 503, 200))
		a.Listen("result-list")
		a.Start("up", s.Setup(s.Transport(s.Queue("q")).With(doc{"retry_queue_name": nil, "result_queue_name": nil})))
		a.Submit("in", "q", s.Message("again"), s.Message("fine"))
		a.Results("done", 1, 0, "fine")
		a.Arrive("failed", 1, "again")
		a.Size("waiting", "", 1, "retry-sortedset")
		a.Look("retrying", "retry-sortedset")
		a.Check("AP-CFG-05", "async-results", want{IDs: []string{"fine"}, Status: 200, List: "result-list"}, "up", "in")
		a.Check("AP-CFG-05", "async-keys", want{Keys: keys("retrying", 1, 1, "retry-sortedset")}, "up", "failed")
	}),
	play("default-channel-names", "the names that a document of the channels leaves out", func(a *script) {
		a.Answer(s.Statuses([]string{"again"}, 503, 200))
		a.Do(step{Op: sut.AsyncListen, List: "result-queue", Mode: "channel"})
		a.Start("up", on("redis-pubsub", channelDoc(s.Queue("c")).With(doc{"retry_queue_name": nil, "result_queue_name": nil}).JSON()))
		a.Size("subscribed", "least", 2, ":subscribers")
		submitTo(a, "channel", "in", "c", s.Message("again"), s.Message("fine"))
		a.Results("done", 1, 0, "fine")
		a.Arrive("failed", 1, "again")
		a.Size("waiting", "", 1, "retry-sortedset")
		a.Look("retrying", "retry-sortedset")
		a.Check("AP-CFG-05", "async-results", want{IDs: []string{"fine"}, Status: 200, List: "result-queue"}, "up", "subscribed", "in")
		a.Check("AP-CFG-05", "async-keys", want{Keys: keys("retrying", 1, 1, "retry-sortedset")}, "up", "failed")
	}),
	play("default-pull", "ten messages a second where the document does not say", func(a *script) {
		a.Submit("in", "q", s.Messages("m", 35)...)
		a.Size("waiting", "", 35, "q")
		a.Serve(s.Setup(s.Transport(s.Queue("q")).With(doc{"poll_interval_ms": nil, "batch_size": nil})))
		a.Results("done", 35, 15*sec)
		a.Check("AP-CFG-06", "async-polls", want{Min: 10, Clusters: 2, Gap: 500 * msec}, "waiting", "up", "done")
		a.Check("AP-CFG-06", "async-rate", want{Min: 35, Low: 9, High: 12.5}, "waiting", "up", "done")
		// The older contract takes a negative batch, and nothing is said about what it does with it.
		if a.Profile.Durable {
			a.Try("tried", s.Case("valid", s.Setup(s.Transport(s.Queue("other")))), s.Case("negative", s.Setup(s.Transport(s.Queue("other")).With(doc{"batch_size": -1}))))
			a.Check("AP-CFG-06", "async-starts", want{Valid: []string{"valid"}, Cases: map[string]string{"negative": ""}}, "tried")
		}
	}),
	play("pull", "five messages every 100 ms", func(a *script) {
		a.Submit("in", "q", s.Messages("m", 200)...)
		a.Size("waiting", "", 200, "q")
		a.Serve(s.Setup(s.Transport(s.Queue("q")).With(doc{"batch_size": 5})))
		a.Results("done", 200, 20*sec)
		a.Check("AP-CFG-06", "async-rate", want{Min: 200, Low: 32, High: 54}, "waiting", "up", "done")
	}),
	play("required", "what each document must have", func(a *script) {
		topics(a, "t")
		a.Try("tried",
			s.Case("whole", s.Setup(s.Transport(s.Queue("q")))),
			s.Case("no-queues", s.Setup(s.Transport().With(doc{"queues": nil}))),
			s.Case("empty-queues", s.Setup(s.Transport().With(doc{"queues": []doc{}}))),
			s.Case("no-name", s.Setup(s.Transport(s.Queue("q").With(doc{"queue_name": nil})))),
			s.Case("no-base-url", s.Setup(s.Transport(s.Queue("q").With(doc{"igw_base_url": nil})))),
			s.Case("whole-topics", on("gcp-pubsub", topicDoc(topic("t")).JSON())),
			s.Case("no-topics", on("gcp-pubsub", topicDoc().With(doc{"topics": []doc{}}).JSON())),
			s.Case("no-subscriber", on("gcp-pubsub", topicDoc(topic("t").With(doc{"subscriber_id": nil})).JSON())),
			s.Case("no-topic-base-url", on("gcp-pubsub", topicDoc(topic("t").With(doc{"igw_base_url": nil})).JSON())))
		a.Check("AP-CFG-07", "async-starts", want{Valid: []string{"whole", "whole-topics"}, Cases: map[string]string{"no-queues": "queue", "empty-queues": "queue", "no-name": "queue_name",
			"no-base-url": "igw_base_url", "no-topics": "topic", "no-subscriber": "subscriber_id", "no-topic-base-url": "igw_base_url"}}, "tried")
	}),
	play("path-and-objective", "the path and the objective of a queue", func(a *script) {
		chat := doc{"request_path_url": "/v1/chat/completions"}
		a.Serve(s.Setup(s.Transport(s.Queue("plain"), s.Queue("chat").With(chat).With(doc{"inference_objective": "premium"}), s.Queue("empty").With(doc{"inference_objective": ""}),
			s.Queue("slash").With(doc{"igw_base_url": "$UPSTREAM_a/"}), s.Queue("below").With(chat).With(doc{"igw_base_url": "$UPSTREAM_a/gateway"}))))
		for _, q := range []string{"plain", "chat", "empty", "slash", "below"} {
			a.Submit("in-"+q, q, s.Message(q))
		}
		a.Results("done", 5, 0)
		a.Check("AP-CFG-08", "async-attempts", want{Attempts: []attempt{{ID: "plain", Name: ":path", Value: "/v1/completions"}, {ID: "chat", Name: ":path", Value: "/v1/chat/completions"},
			{ID: "slash", Name: ":path", Value: "/v1/completions"}, {ID: "below", Name: ":path", Value: "/gateway/v1/chat/completions"}}}, "up", "done")
		none := func(id string) attempt {
			return attempt{ID: id, Name: objectives[0], Or: objectives[1:], Absent: true}
		}
		a.Check("AP-CFG-09", "async-attempts", want{Attempts: []attempt{queueObjective("chat", "premium"), none("plain"), none("empty")}}, "up", "done")
	}),
	play("pool-of-a-queue", "a queue goes to the pool that it names, or to the default one", func(a *script) {
		small := s.Queue("small").With(doc{"worker_pool_id": "small"})
		pools := []doc{{"id": "default", "workers": 2}, {"id": "small", "workers": 1}}
		a.Hold()
		a.Serve(s.WithPools(s.Transport(small, s.Queue("plain")), pools))
		a.Submit("small-in", "small", s.Messages("small", 4)...)
		a.Submit("plain-in", "plain", s.Messages("plain", 4)...)
		a.Held("one", 1, 0, "small*")
		a.Held("two", 2, sec, "plain*")
		a.Answer()
		a.Release("all", 0)
		a.Results("done", 8, 0)
		a.Try("tried", s.Case("known", s.WithPools(s.Transport(small), pools)), s.Case("unknown", s.WithPools(s.Transport(s.Queue("q").With(doc{"worker_pool_id": "other"})), pools)))
		a.Check("AP-CFG-10", "async-peak", want{IDs: []string{"small*"}, Min: 1, Max: 1}, "up", "small-in", "one", "two")
		a.Check("AP-CFG-10", "async-peak", want{IDs: []string{"plain*"}, Min: 2, Max: 2}, "up", "plain-in", "one", "two")
		a.Check("AP-CFG-10", "async-results", want{Status: 200}, "up", "one", "two", "all")
		a.Check("AP-CFG-10", "async-starts", want{Valid: []string{"known"}, Cases: map[string]string{"unknown": ""}}, "tried")
	}),
	play("labels", "a queue's labels are those of its messages, whatever these say", func(a *script) {
		a.Serve(s.WithPolicy(s.Setup(s.Transport(s.Queue("quick").With(doc{"labels": doc{"tier": "interactive"}}), s.Queue("plain"))), "tier-priority", doc{"priority_header": priority}))
		a.Submit("quick-in", "quick", s.Message("own"), labelled("other", "tier", "batch"))
		a.Submit("plain-in", "plain", s.Message("none"))
		a.Results("done", 3, 0)
		a.Check("AP-CFG-11", "async-attempts", want{Attempts: []attempt{{ID: "none", Name: priority, Value: "5"}, {ID: "own", Name: priority, Value: "3"}, {ID: "other", Name: priority, Value: "3"}}}, "up", "done")
	}),
	play("gate-of-a-queue", "a gate holds its own queue only", func(a *script) {
		a.Set("closed", "shut", "0")
		a.Submit("shut-in", "shut-queue", s.Messages("shut", 5)...)
		a.Submit("open-in", "open-queue", s.Messages("open", 5)...)
		a.Size("waiting", "", 10, "shut-queue", "open-queue")
		a.Serve(s.Setup(s.Transport(s.Gated("shut-queue", "redis", doc{"address": "$BROKER", "budget_key": "shut"}), s.Gated("open-queue", "constant", doc{}))))
		a.Results("done", 5, 0, "open*")
		a.Quiet("watched", sec)
		a.Set("opened", "shut", "1")
		a.Results("all", 5, 0, "shut*")
		a.Check("AP-CFG-12", "async-results", want{IDs: []string{"open*"}, Status: 200}, "closed", "waiting", "up")
		a.Check("AP-CFG-12", "async-arrivals", want{IDs: []string{"shut*"}, To: "watched"}, "closed", "waiting", "up", "done", "watched", "all")
	}),
	play("id-of-a-queue", "the id of a queue, which is its name by default", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("x").With(doc{"id": "own"}), s.Queue("y"))))
		a.Submit("x-in", "x", s.Message("x"))
		a.Submit("y-in", "y", s.Message("y"))
		a.Results("done", 2, 0)
		a.Scrape("end")
		pair := func(x, y doc) *sut.AsyncSetup {
			return s.Setup(s.Transport(s.Queue("t1").With(x), s.Queue("t2").With(y)))
		}
		a.Try("tried", s.Case("distinct", pair(doc{"id": "one"}, doc{"id": "two"})), s.Case("same-ids", pair(doc{"id": "one"}, doc{"id": "one"})),
			s.Case("same-names", pair(doc{"id": "one"}, doc{"id": "two", "queue_name": "t1"})))
		a.Check("AP-CFG-13", "async-values", want{Values: []value{{Mark: "end", Name: "async_request_total", Labels: map[string]string{"queue_id": "own", "queue_name": "x"}, Min: 1, Max: 1},
			{Mark: "end", Name: "async_request_total", Labels: map[string]string{"queue_id": "y", "queue_name": "y"}, Min: 1, Max: 1}}}, "up", "done")
		a.Check("AP-CFG-13", "async-starts", want{Valid: []string{"distinct"}, Cases: map[string]string{"same-ids": "", "same-names": ""}}, "tried")
	}),
	play("result-list-of-a-queue", "the results of a queue go to its own list", func(a *script) {
		a.Listen("own-results")
		a.Serve(s.Setup(s.Transport(s.Queue("x").With(doc{"result_queue_name": "own-results"}), s.Queue("y"))))
		a.Submit("x-in", "x", s.Message("x-good"), s.Message("x-late", s.Due(-10*sec)))
		a.Submit("y-in", "y", s.Message("y-good"), s.Message("y-late", s.Due(-10*sec)))
		a.Results("done", 4, 0)
		a.Check("AP-CFG-14", "async-results", want{IDs: []string{"x-good", "y-good"}, Status: 200}, "up", "x-in", "y-in")
		a.Check("AP-CFG-14", "async-results", want{IDs: []string{"x*"}, List: "own-results"}, "up", "x-in", "y-in")
		a.Check("AP-CFG-14", "async-results", want{IDs: []string{"y*"}, List: s.ResultList}, "up", "x-in", "y-in")
	}),
	play("result-ttl", "results expire where the queue says so", func(a *script) {
		a.Start("up", s.Setup(s.Transport(s.Queue("x").With(doc{"result_queue_name": "short", "result_ttl_seconds": 3}), s.Queue("y").With(doc{"result_ttl_seconds": 0}))))
		a.Submit("x-in", "x", s.Message("x1"))
		a.Submit("y-in", "y", s.Message("y1"))
		a.Size("pushed", "", 2, "short", s.ResultList)
		a.Look("first", "short", s.ResultList)
		a.Quiet("aged", 1500*msec)
		a.Submit("x-in2", "x", s.Message("x2"))
		a.Size("pushed-again", "", 2, "short")
		a.Look("second", "short")
		a.Size("expired", "", 0, "short")
		a.Look("last", "short", s.ResultList)
		// Half of the first expiry is over when the second push comes: what is left of it is less than what a new one has.
		short := keys("first", 1, 1, "short")
		short[0].TTLMin, short[0].TTLMax = sec, 3*sec
		again := keys("second", 2, 2, "short")
		again[0].TTLMin, again[0].TTLMax = 1800*msec, 3*sec
		plain := append(keys("first", 1, 1, s.ResultList), keys("last", 1, 1, s.ResultList)...)
		plain[0].NoTTL, plain[1].NoTTL = true, true
		a.Check("AP-CFG-15", "async-keys", want{Keys: short}, "up", "pushed")
		a.Check("AP-CFG-15", "async-keys", want{Keys: again}, "up", "pushed", "aged", "pushed-again")
		a.Check("AP-CFG-15", "async-keys", want{Keys: keys("last", 0, 0, "short")}, "up", "pushed-again")
		a.Check("AP-CFG-15", "async-keys", want{Keys: plain}, "up", "pushed", "pushed-again", "expired")
	}),
	play("sample-entry", "the documented entry of queues, field by field", func(a *script) {
		a.Hold("m*")
		a.Series("open", guidePage(0.2, 0, 0))
		document := fmt.Sprintf(`{"url":"redis://$BROKER","retry_queue_name":"retry","result_queue_name":"results","poll_interval_ms":100,"queues":[%s]}`, entrySample)
		set := s.Files(on("", document, "--pool-config-file", "$FILE_pools", "--prometheus-url", "$PROM", "--prometheus-cache-ttl", "0s"), "pools", s.Pools(doc{"id": "qwen-pool", "workers": 1}))
		a.Serve(s.WithPolicy(set, "tier-priority", doc{"priority_header": priority}))
		a.Submit("in", "batch_queue", labelled("m0", "tier", "interactive"), s.Message("m1"), s.Message("m2"))
		a.Held("one", 1, sec)
		a.Answer()
		a.Release("free", 0)
		a.Results("done", 3, 0)
		a.Series("closed", guidePage(0.9, 0, 0))
		budgetShown(a, "shut", "batch_queue")
		a.Submit("late-in", "batch_queue", s.Messages("late", 2)...)
		a.Quiet("watched", sec)
		a.Scrape("end")
		a.Check("AP-CFG-16", "async-attempts", want{Attempts: []attempt{queueObjective("m0", "batch-task"), {ID: "m0", Name: ":path", Value: "/v1/completions"}, {ID: "m0", Name: priority, Value: "5"}}}, "up", "one", "done")
		a.Check("AP-CFG-16", "async-peak", want{IDs: []string{"m*"}, Min: 1, Max: 1, To: "one"}, "up", "in", "one")
		a.Check("AP-CFG-16", "async-results", want{IDs: []string{"m*"}, Status: 200}, "open", "up", "one")
		a.Check("AP-CFG-16", "async-arrivals", want{IDs: []string{"late*"}, To: "watched"}, "up", "done", "closed", "shut", "late-in", "watched")
		a.Check("AP-CFG-16", "async-queries", want{Contains: []string{`"inference_pool_1"`}}, "up", "done")
		a.Check("AP-CFG-16", "async-values", want{Values: []value{{Mark: "end", Name: "async_request_total", Labels: map[string]string{"queue_name": "batch_queue", "pool_name": "qwen-pool"}, Min: 3, Max: 3}}}, "up", "done", "watched")
	}),
	play("sample-gates", "the documented array of seven queues with their gates", sevenQueues),
	play("unusable", "documents that cannot be used", func(a *script) {
		gate := func(kind string, params doc) *sut.AsyncSetup { return s.Setup(s.Transport(s.Gated("q", kind, params))) }
		a.Try("tried",
			s.Case("valid", s.Setup(s.Transport(s.Gated("q", "local-max-concurrency", doc{"limit": "2"})))),
			s.Case("unknown-fields", s.Setup(s.Transport(s.Queue("q").With(doc{"no_such_field": 1})).With(doc{"nor_this_one": "x"}))),
			s.Case("no-json", on("", `{"url":"redis://$BROKER","queues":[{"queue_name":"q",`)),
			s.Case("unknown-transport", on("kafka", s.Transport(s.Queue("q")).JSON())),
			s.Case("redis-gate-without-address", gate("redis", doc{})),
			s.Case("limit-of-zero", gate("local-max-concurrency", doc{"limit": "0"})),
			s.Case("composite-of-no-json", gate("composite", doc{"gates": "[{"})))
		a.Check("AP-CFG-18", "async-starts", want{Valid: []string{"valid", "unknown-fields"},
			Cases: map[string]string{"no-json": "", "unknown-transport": "", "redis-gate-without-address": "", "limit-of-zero": "", "composite-of-no-json": ""}}, "tried")
	}),
}

// guidePage is what the guide's gates read of pool inference_pool_1: its saturation, the messages that wait in it, under the names of both
// generations, and a counter of requests.
func guidePage(saturation, waiting, requests float64) string {
	var b strings.Builder
	for _, name := range []string{"inference_extension_flow_control_pool_saturation", "llm_d_epp_flow_control_pool_saturation"} {
		fmt.Fprintf(&b, "%s{inference_pool=\"inference_pool_1\"} %g\n", name, saturation)
	}
	for _, name := range []string{"inference_extension_flow_control_queue_size", "llm_d_epp_flow_control_queue_size"} {
		fmt.Fprintf(&b, "%s{inference_pool=\"inference_pool_1\"} %g\n", name, waiting)
	}
	for _, name := range []string{"inference_pool_ready_pods", "llm_d_epp_ready_endpoints"} {
		fmt.Fprintf(&b, "%s{name=\"inference_pool_1\"} 1\n", name)
	}
	for _, name := range []string{"inference_pool_per_pod_queue_size", "llm_d_epp_per_endpoint_queue_size"} {
		fmt.Fprintf(&b, "%s{name=\"inference_pool_1\"} %g\n", name, waiting)
	}
	fmt.Fprintf(&b, "http_requests_total %g\n", requests)
	return b.String()
}

// sevenQueues are the guide's: what each gate reads is good at first, and bad then.
func sevenQueues(a *script) {
	gated := func(name, objective, pool, gate string, params doc) doc {
		return doc{"queue_name": name, "inference_objective": objective, "request_path_url": "/v1/completions", "igw_base_url": "$UPSTREAM_a/", "worker_pool_id": pool, "gate_type": gate, "gate_params": params}
	}
	queues := []doc{
		gated("critical_queue", "critical-task", "inference_pool_1", "constant", nil).With(doc{"gate_params": nil}),
		gated("batch_queue", "batch-task", "inference_pool_1", "prometheus-saturation", doc{"pool": "inference_pool_1", "threshold": "0.8"}),
		gated("batch_budget_queue", "batch-task", "inference_pool_1", "prometheus-budget", doc{"pool": "inference_pool_1", "max_concurrency": "100", "baseline": "0.05"}),
		gated("redis_gated_queue", "gated-task", "inference_pool_2", "redis", doc{"address": "$BROKER", "budget_key": "my-budget-key"}),
		gated("custom_metric_queue", "custom-task", "inference_pool_2", "prometheus-query",
			doc{"query": `1 - (sum(rate(http_requests_total{job="inference"}[5m])) / 100)`, "fallback": "0.0"}),
		gated("composite_gated_queue", "composite-task", "inference_pool_1", "composite",
			doc{"gates": `[{"gate_type":"prometheus-saturation","gate_params":{"pool":"inference_pool_1"}},{"gate_type":"redis-quota","gate_params":{"address":"$BROKER","limit":"100"}}]`}),
		gated("scrape_gated_queue", "batch-task", "", "endpoint-scrape", doc{"url": "$PAGE", "metric": "vllm:num_requests_waiting", "max_count_per_pod": "5", "fallback": "1.0"}).With(doc{"worker_pool_id": nil}),
	}
	engaged := []string{"up", "seeded", "good", "done"}
	shut := []string{}
	a.Series("seeded", guidePage(0.1, 0, 100)) // a rate needs two readings
	a.Series("good", guidePage(0.1, 0, 100))
	a.Page("scraped-good", "vllm:num_requests_waiting 0\n")
	a.Set("open", "my-budget-key", "1")
	a.Serve(s.WithPools(s.Transport(queues...), []doc{{"id": "inference_pool_1", "workers": 8}, {"id": "inference_pool_2", "workers": 8}, {"id": "default", "workers": 8}},
		"--prometheus-url", "$PROM", "--prometheus-cache-ttl", "0s"))
	for _, q := range queues {
		name := fmt.Sprint(q["queue_name"])
		a.Submit("in-"+name, name, s.Messages("early-"+name, 2, s.User("t"))...)
	}
	a.Results("done", 14, 0)
	a.Series("bad", guidePage(0.9, 100, 1e9))
	a.Page("scraped-bad", "vllm:num_requests_waiting 5\n")
	a.Set("closed", "my-budget-key", "0")
	for _, q := range queues[1:] {
		name := fmt.Sprint(q["queue_name"])
		budgetShown(a, "shut-"+name, name)
		engaged = append(engaged, "shut-"+name)
		a.Submit("late-in-"+name, name, s.Messages("late-"+name, 2, s.User("t"))...)
		shut = append(shut, "late-"+name+"*")
	}
	a.Submit("late-in", "critical_queue", s.Messages("late-critical", 2)...)
	a.Results("critical", 2, 0, "late-critical*")
	a.Quiet("watched", sec)
	a.Check("AP-CFG-17", "async-results", want{IDs: []string{"early*", "late-critical*"}, Status: 200}, "up", "good")
	a.Check("AP-CFG-17", "async-arrivals", want{IDs: shut, To: "watched"}, append(slices.Clone(engaged), "bad", "closed", "critical", "watched")...)
}
