package async

import (
	"slices"

	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// older starts a processor with older flags only.
func older(flags ...string) *sut.AsyncSetup { return &sut.AsyncSetup{Transport: "none", Flags: flags} }

// olderSet are the older flags of a sorted set with one queue, which is polled often.
func olderSet(queue string, more ...string) []string {
	return append([]string{"--message-queue-impl", "redis-sortedset", "--redis.url", "redis://$BROKER", "--redis.ss.igw-base-url", "$UPSTREAM_a", "--redis.ss.request-queue-name", queue,
		"--redis.ss.poll-interval-ms", "100"}, more...)
}

// olderTopic are the older flags of Pub/Sub with one topic.
func olderTopic(impl, name string, more ...string) *sut.AsyncSetup {
	set := older(append([]string{"--message-queue-impl", impl, "--pubsub.project-id", "weir", "--pubsub.result-topic-id", "results", "--pubsub.request-subscriber-id", name,
		"--pubsub.igw-base-url", "$UPSTREAM_a"}, more...)...)
	set.Env = pubsubEnv
	return set
}

// listed gives a processor a list of queues in a file of the name queues.
func listed(set *sut.AsyncSetup, queues ...doc) *sut.AsyncSetup {
	return s.Files(set, "queues", s.Pools(queues...))
}

// end tells a processor to end and waits until it has.
func end(a *script, mark, who string) {
	a.Do(step{Op: sut.AsyncSignal, Who: who, Signal: "TERM"})
	a.Do(step{Op: sut.AsyncEnded, Mark: mark, Who: who})
}

// olderFlagScenarios are those of AP-CLI about the flags that --transport and --transport-config replace.
var olderFlagScenarios = []s.Scenario{
	play("older-families", "each family of older flags works, with a warning", func(a *script) {
		topics(a, "t")
		a.Listen("result-list")
		a.Do(step{Op: sut.AsyncListen, List: "result-queue", Mode: "channel"})
		a.Start("channels", older("--redis.url", "redis://$BROKER", "--redis.igw-base-url", "$UPSTREAM_a", "--redis-tracing"))
		a.StartOther("sorted-set", "p2", s.Files(older(olderSet("q", "--request-merge-policy-config", "$FILE_policy")...), "policy", s.Policy("tier-priority", doc{"priority_header": priority})))
		a.StartOther("pubsub", "p3", olderTopic("gcp-pubsub", "t"))
		a.Size("subscribed", "least", 2, ":subscribers")
		submitTo(a, "channel", "in1", "request-queue", s.Message("m1"))
		a.Submit("in2", "q", s.Message("m2"))
		submitTo(a, "pubsub", "in3", "t", s.Message("m3"))
		a.Results("done", 3, 0)
		end(a, "channels-ended", "p")
		end(a, "sorted-set-ended", "p2")
		end(a, "pubsub-ended", "p3")
		a.Check("AP-CLI-14", "async-results", want{IDs: []string{"m1"}, Status: 200, List: "result-queue"}, "channels", "in1")
		a.Check("AP-CLI-14", "async-results", want{IDs: []string{"m2"}, Status: 200, List: "result-list"}, "sorted-set", "in2")
		a.Check("AP-CLI-14", "async-results", want{IDs: []string{"m3"}, Status: 200, List: "results"}, "pubsub", "in3")
		a.Check("AP-CLI-14", "async-attempts", want{Attempts: []attempt{{ID: "m2", Name: priority, Value: "5"}}}, "sorted-set", "in2")
		a.Check("AP-CLI-14", "async-printed", want{Texts: map[string]string{"channels-ended": "deprecat", "sorted-set-ended": "deprecat", "pubsub-ended": "deprecat"}}, "channels", "sorted-set", "pubsub")
	}),
	play("newer-wins", "the newer flags win where both kinds are given", func(a *script) {
		a.Listen("result-list")
		a.Do(step{Op: sut.AsyncListen, Who: "2", List: s.ResultList})
		both := s.Setup(s.Transport(s.Queue("q")).With(doc{"url": "redis://$BROKER2"}), olderSet("q")...)
		a.Start("up", both)
		a.Submit("in1", "q", s.Message("older"))
		a.Do(step{Op: sut.AsyncSubmit, Who: "2", Mark: "in2", Queue: "q", Messages: s.Messages("newer", 1)})
		a.Results("newer-done", 1, 0, "newer0")
		a.Quiet("watched", sec)
		a.Look("unused", ":accepted")
		a.StartOther("twin", "p2", older(olderSet("q")...))
		a.Results("older-done", 1, 0, "older")
		a.Check("AP-CLI-15", "async-results", want{IDs: []string{"newer0"}, Status: 200, List: s.ResultList}, "up", "in2")
		a.Check("AP-CLI-15", "async-arrivals", want{IDs: []string{"older"}, To: "unused"}, "up", "in1", "newer-done", "twin", "older-done")
		a.Check("AP-CLI-15", "async-keys", want{Keys: keys("unused", 0, 0, ":accepted")}, "up", "newer-done", "twin", "older-done")
	}),
	play("older-set-defaults", "what older flags of the sorted set leave out", func(a *script) {
		a.Listen("result-list")
		a.Submit("in", "request-sortedset", s.Messages("m", 35)...)
		a.Size("waiting", "", 35, "request-sortedset")
		set := older("--message-queue-impl", "redis-sortedset", "--redis.ss.igw-base-url", "$UPSTREAM_a")
		set.Env = map[string]string{"REDIS_URL": "redis://$BROKER"}
		a.Start("up", set)
		a.Results("done", 35, 15*sec)
		a.Check("AP-CLI-16", "async-results", want{Status: 200, List: "result-list"}, "waiting", "up")
		a.Check("AP-CLI-16", "async-polls", want{Min: 10, Clusters: 2, Gap: 500 * msec}, "waiting", "up", "done")
		a.Check("AP-CLI-16", "async-attempts", want{Attempts: []attempt{{ID: "m0", Name: ":path", Value: "/v1/completions"}, {ID: "m0", Name: objectives[0], Or: objectives[1:], Absent: true}}}, "waiting", "up", "done")
	}),
	play("older-set", "the older flags of the sorted set, one by one", func(a *script) {
		a.Listen("own-results")
		a.Listen("result-list")
		a.Set("closed", "own-gate", "0")
		a.Start("up", older(olderSet("own", "--redis.ss.batch-size", "5", "--redis.ss.result-queue-name", "own-results", "--redis.ss.request-path-url", "/v1/chat/completions",
			"--redis.ss.inference-objective", "premium", "--redis.ss.gate-type", "redis", "--redis.ss.gate-params", `{"address":"$BROKER","budget_key":"own-gate"}`)...))
		a.StartOther("file", "p2", listed(older("--message-queue-impl", "redis-sortedset", "--redis.url", "redis://$BROKER", "--redis.ss.queues-config-file", "$FILE_queues"),
			s.Queue("x"), s.Queue("y").With(doc{"igw_base_url": "$UPSTREAM_b", "request_path_url": "/v1/chat/completions"})))
		a.Submit("in", "own", s.Messages("m", 150)...)
		a.Submit("x-in", "x", s.Message("x"))
		a.Submit("y-in", "y", s.Message("y"))
		a.Results("file-done", 2, 0, "x", "y")
		a.Quiet("watched", sec)
		a.Set("open", "own-gate", "1")
		a.Results("done", 150, 15*sec, "m*")
		a.Check("AP-CLI-16", "async-arrivals", want{IDs: []string{"m*"}, To: "watched"}, "closed", "up", "in", "file-done", "watched", "done")
		a.Check("AP-CLI-16", "async-rate", want{IDs: []string{"m*"}, Min: 150, Low: 32, High: 54}, "up", "watched", "open", "done")
		a.Check("AP-CLI-16", "async-results", want{IDs: []string{"m*"}, Status: 200, List: "own-results"}, "up", "open")
		a.Check("AP-CLI-16", "async-attempts", want{Attempts: []attempt{queueObjective("m0", "premium"), {ID: "m0", Name: ":path", Value: "/v1/chat/completions"}}}, "up", "done")
		a.Check("AP-CLI-16", "async-results", want{IDs: []string{"x", "y"}, Status: 200, List: "result-list"}, "file", "x-in", "y-in")
		a.Check("AP-CLI-16", "async-attempts", want{Attempts: []attempt{{ID: "x", Name: ":path", Value: "/v1/completions"}, {ID: "x", Name: ":upstream", Value: "a"},
			{ID: "y", Name: ":path", Value: "/v1/chat/completions"}, {ID: "y", Name: ":upstream", Value: "b"}}}, "file", "file-done")
	}),
	play("older-channels", "the older flags of channels", func(a *script) {
		for _, name := range []string{"result-queue", "own-results"} {
			a.Do(step{Op: sut.AsyncListen, List: name, Mode: "channel"})
		}
		a.Answer(s.Statuses([]string{"plain-again", "own-again"}, 503, 200))
		a.Start("defaults", older("--redis.url", "redis://$BROKER", "--redis.igw-base-url", "$UPSTREAM_a"))
		a.StartOther("own", "p2", older("--message-queue-impl", "redis-pubsub", "--redis.url", "redis://$BROKER", "--redis.igw-base-url", "$UPSTREAM_a", "--redis.request-queue-name", "own",
			"--redis.retry-queue-name", "own-retry", "--redis.result-queue-name", "own-results", "--redis.request-path-url", "/v1/chat/completions", "--redis.inference-objective", "premium"))
		a.StartOther("file", "p3", listed(older("--message-queue-impl", "redis-pubsub", "--redis.url", "redis://$BROKER", "--redis.retry-queue-name", "file-retry",
			"--redis.queues-config-file", "$FILE_queues"), s.Queue("x"), s.Queue("y").With(doc{"igw_base_url": "$UPSTREAM_b"})))
		a.Size("subscribed", "least", 6, ":subscribers")
		submitTo(a, "channel", "plain-in", "request-queue", s.Message("plain"), s.Message("plain-again"))
		submitTo(a, "channel", "own-in", "own", s.Message("own"), s.Message("own-again"))
		submitTo(a, "channel", "x-in", "x", s.Message("x"))
		submitTo(a, "channel", "y-in", "y", s.Message("y"))
		a.Results("done", 4, 0, "plain", "own", "x", "y")
		a.Arrive("failed", 2, "plain-again", "own-again")
		a.Size("waiting", "", 2, "retry-sortedset", "own-retry")
		a.Look("retrying", "retry-sortedset", "own-retry")
		a.Check("AP-CLI-17", "async-results", want{IDs: []string{"plain"}, Status: 200, List: "result-queue"}, "defaults", "subscribed", "plain-in")
		a.Check("AP-CLI-17", "async-results", want{IDs: []string{"own"}, Status: 200, List: "own-results"}, "own", "subscribed", "own-in")
		a.Check("AP-CLI-17", "async-results", want{IDs: []string{"x", "y"}, Status: 200, List: "result-queue"}, "file", "subscribed", "x-in", "y-in")
		a.Check("AP-CLI-17", "async-keys", want{Keys: append(keys("retrying", 1, 1, "retry-sortedset"), keys("retrying", 1, 1, "own-retry")...)}, "defaults", "own", "failed")
		a.Check("AP-CLI-17", "async-attempts", want{Attempts: []attempt{{ID: "plain", Name: ":path", Value: "/v1/completions"}, {ID: "plain", Name: objectives[0], Or: objectives[1:], Absent: true},
			{ID: "own", Name: ":path", Value: "/v1/chat/completions"}, queueObjective("own", "premium"), {ID: "x", Name: ":upstream", Value: "a"}, {ID: "y", Name: ":upstream", Value: "b"}}}, "subscribed", "done")
	}),
	play("older-topics", "the older flags of Pub/Sub", func(a *script) {
		topics(a, "plain", "own", "x", "y")
		a.Set("closed", "gate", "0")
		a.Hold("plain*", "own*")
		a.Start("defaults", olderTopic("gcp-pubsub", "plain"))
		a.StartOther("own", "p2", olderTopic("gcp-pubsub", "own", "--pubsub.batch-size", "3", "--pubsub.request-path-url", "/v1/chat/completions", "--pubsub.inference-objective", "premium"))
		file := older("--message-queue-impl", "gcp-pubsub-gated", "--pubsub.project-id", "weir", "--pubsub.result-topic-id", "results", "--pubsub.topics-config-file", "$FILE_queues")
		file.Env = pubsubEnv
		a.StartOther("file", "p3", listed(file, topic("x"), topic("y").With(doc{"gate_type": "redis", "gate_params": doc{"address": "$BROKER", "budget_key": "gate"}})))
		submitTo(a, "pubsub", "plain-in", "plain", s.Messages("plain", 15)...)
		submitTo(a, "pubsub", "own-in", "own", s.Messages("own", 8)...)
		submitTo(a, "pubsub", "x-in", "x", s.Message("x"))
		submitTo(a, "pubsub", "y-in", "y", s.Message("y"))
		a.Held("three", 3, 0, "own*")
		a.Held("ten", 10, sec, "plain*")
		a.Answer()
		a.Release("all", 0)
		a.Results("done", 24, 20*sec, "plain*", "own*", "x")
		a.Quiet("watched", 500*msec)
		a.Check("AP-CLI-18", "async-peak", want{IDs: []string{"plain*"}, Min: 10, Max: 10}, "defaults", "plain-in", "ten")
		a.Check("AP-CLI-18", "async-peak", want{IDs: []string{"own*"}, Min: 3, Max: 3}, "own", "own-in", "three", "ten")
		a.Check("AP-CLI-18", "async-results", want{IDs: []string{"plain*"}, Status: 200, List: "results"}, "defaults", "plain-in", "all")
		a.Check("AP-CLI-18", "async-results", want{IDs: []string{"own*"}, Status: 200, List: "results"}, "own", "own-in", "all")
		a.Check("AP-CLI-18", "async-results", want{IDs: []string{"x"}, Status: 200, List: "results"}, "file", "x-in")
		a.Check("AP-CLI-18", "async-arrivals", want{IDs: []string{"y"}, To: "watched"}, "closed", "file", "x-in", "y-in", "done", "watched")
		a.Check("AP-CLI-18", "async-attempts", want{Attempts: []attempt{{ID: "plain0", Name: ":path", Value: "/v1/completions"}, {ID: "own0", Name: ":path", Value: "/v1/chat/completions"}, queueObjective("own0", "premium")}},
			"defaults", "own", "done")
	}),
	play("older-list", "a list of queues excludes the flags of a single one", listOrSingle),
}

// listOrSingle gives a list of queues and a single queue at once: the process refuses that, or uses the list alone and says so.
func listOrSingle(a *script) {
	set := []string{"--message-queue-impl", "redis-sortedset", "--redis.url", "redis://$BROKER", "--redis.ss.queues-config-file", "$FILE_queues"}
	channels := []string{"--message-queue-impl", "redis-pubsub", "--redis.url", "redis://$BROKER", "--redis.queues-config-file", "$FILE_queues"}
	pubsub := []string{"--message-queue-impl", "gcp-pubsub", "--pubsub.project-id", "weir", "--pubsub.result-topic-id", "results", "--pubsub.topics-config-file", "$FILE_queues"}
	with := func(entry doc, flags []string, more ...string) *sut.AsyncSetup {
		out := listed(older(append(slices.Clone(flags), more...)...), entry)
		out.Env = pubsubEnv
		return out
	}
	single := with(s.Queue("set-list"), set, "--redis.ss.request-queue-name", "set-single", "--redis.ss.igw-base-url", "$UPSTREAM_a")
	channel := with(s.Queue("channel-list"), channels, "--redis.request-queue-name", "channel-single", "--redis.igw-base-url", "$UPSTREAM_a")
	subscriber := with(topic("topic-list"), pubsub, "--pubsub.request-subscriber-id", "topic-single", "--pubsub.igw-base-url", "$UPSTREAM_a")
	gated := with(s.Queue("gated-list"), set, "--redis.ss.gate-type", "redis", "--redis.ss.gate-params", `{"address":"$BROKER","budget_key":"shut"}`)
	topics(a, "topic-list", "topic-single")
	a.Listen("result-list")
	a.Do(step{Op: sut.AsyncListen, List: "result-queue", Mode: "channel"})
	a.Set("closed", "shut", "0")
	a.Try("tried", s.Case("set", single), s.Case("channel", channel), s.Case("topic", subscriber), s.Case("twin", with(s.Queue("other"), set)))
	a.Start("twin", with(s.Queue("twin"), set))
	a.StartOther("set", "p2", single)
	a.StartOther("channel", "p3", channel)
	a.StartOther("topic", "p4", subscriber)
	a.StartOther("gated", "p5", gated)
	a.Do(step{Op: sut.AsyncSize, Mark: "subscribed", Mode: "least", Count: 2, Names: []string{":subscribers"}, Limit: 2 * sec}) // not where it was refused
	a.Submit("in", "twin", s.Message("twin"))
	a.Submit("set-in", "set-list", s.Message("set-list"))
	a.Submit("set-single-in", "set-single", s.Message("set-single"))
	submitTo(a, "channel", "channel-in", "channel-list", s.Message("channel-list"))
	submitTo(a, "channel", "channel-single-in", "channel-single", s.Message("channel-single"))
	submitTo(a, "pubsub", "topic-in", "topic-list", s.Message("topic-list"))
	submitTo(a, "pubsub", "topic-single-in", "topic-single", s.Message("topic-single"))
	a.Submit("gated-in", "gated-list", s.Message("gated-list"))
	a.Results("served", 1, 0, "twin")
	a.Results("rest", 4, 3*sec, "set-list", "channel-list", "topic-list", "gated-list") // none of them where all were refused
	a.Quiet("watched", sec)
	a.Check("AP-CLI-19", "async-starts", want{Valid: []string{"twin"}}, "tried")
	a.Check("AP-CLI-19", "async-printed", want{Texts: map[string]string{"set": "queues-config", "channel": "queues-config", "topic": "topics-config"}}, "tried")
	a.Check("AP-CLI-19", "async-arrivals", want{IDs: []string{"set-single", "channel-single", "topic-single"}, To: "watched"}, "twin", "served", "watched")
	for _, name := range []string{"set", "channel", "topic", "gated"} {
		a.Check("AP-CLI-19", "async-refused-or-served", want{Names: []string{name}, IDs: []string{name + "-list"}, Status: 200}, "closed", "twin", "served", name+"-in")
	}
}
