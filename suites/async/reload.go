package async

import (
	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// watchInterval is how often the processors of these scenarios read their file again.
const watchInterval = 200 * msec

// reloadScenarios are those of AP-RELOAD.
var reloadScenarios = []s.Scenario{
	play("queue-added", "a queue that was added to the file is served, without a restart", func(a *script) {
		a.Submit("b-in", "b", s.Messages("b", 5)...)
		a.Serve(watching(s.Transport(s.Queue("a")), watchInterval.String()))
		a.Submit("a-in", "a", s.Messages("a", 3)...)
		a.Results("a-done", 3, 0, "a*")
		a.Size("b-waits", "", 5, "b")
		a.Scrape("before")
		rewrite(a, "added", s.Transport(s.Queue("a"), s.Queue("b")))
		a.Results("b-done", 5, 0, "b*")
		a.Submit("a-again", "a", s.Messages("a-again", 3)...)
		a.Results("done", 3, 0, "a-again*")
		a.Scrape("after")
		a.Check("AP-RELOAD-01", "async-arrivals", want{IDs: []string{"b*"}, To: "added"}, "up", "a-done", "b-waits")
		// Two intervals and two polls, and what the machine takes for them.
		a.Check("AP-RELOAD-01", "async-timing", want{IDs: []string{"b*"}, Event: "arrival", Anchor: "added", Latest: 2*watchInterval + 200*msec + 400*msec}, "up", "a-done", "b-waits")
		a.Check("AP-RELOAD-01", "async-results", want{Status: 200}, "up", "b-waits", "added")
		// A process that began anew would count from 0.
		a.Check("AP-RELOAD-01", "async-values", want{Values: []value{{Mark: "before", Name: "async_request_total", Labels: map[string]string{"queue_name": "a"}, Min: 3, Max: 3},
			{Mark: "after", Name: "async_request_total", Labels: map[string]string{"queue_name": "a"}, Min: 6, Max: 6}}}, "up", "a-done", "done")
	}),
	play("queue-removed", "a queue that was removed is left alone, and what runs of it ends", func(a *script) {
		pools := s.Pools(doc{"id": "one", "workers": 1}, doc{"id": "default", "workers": 1})
		one := s.Queue("a").With(doc{"worker_pool_id": "one"})
		a.Hold("a*")
		set := s.Files(watching(s.Transport(one, s.Queue("b")), watchInterval.String()), "pools", pools)
		set.Flags = append(set.Flags, "--pool-config-file", "$FILE_pools")
		a.Submit("in", "a", s.Messages("a", 20)...)
		a.Serve(set)
		a.Held("held", 1, 500*msec, "a*")
		a.Size("backlog", "least", 1, s.Places("a")...)
		a.Submit("c-in", "c", s.Message("c"))
		// The queue that comes in place of the other one shows that the file was read.
		rewrite(a, "removed", s.Transport(s.Queue("b"), s.Queue("c")))
		a.Results("reloaded", 1, 0, "c")
		a.Quiet("settled", 500*msec)
		a.Release("let-go", 1, "a*")
		a.Quiet("watched", 2*sec)
		a.Look("left", s.Places("a")...)
		engaged := []string{"up", "held", "backlog", "removed", "reloaded"}
		a.Check("AP-RELOAD-02", "async-arrivals", want{IDs: []string{"a*"}, Min: 1, Max: 1, To: "watched"}, append(engaged, "let-go", "watched")...)
		a.Check("AP-RELOAD-02", "async-conserved", want{IDs: []string{"a*"}, To: "left"}, append(engaged, "let-go", "watched")...)
		a.Check("AP-RELOAD-02", "async-keys", want{Keys: keys("left", 19, 19, s.Places("a")...)}, append(engaged, "let-go", "watched")...)
	}),
	play("no-queues", "an empty array drains every queue, and queues may come back", func(a *script) {
		full := s.Transport(s.Queue("a"), s.Queue("b"))
		a.Serve(watching(full, watchInterval.String()))
		a.Submit("first", "a", s.Message("first"))
		a.Results("served", 1, 0, "first")
		rewrite(a, "emptied", full.With(doc{"queues": []doc{}}))
		// Nothing that is documented shows that a file without queues was read; seven intervals are enough for it.
		a.Quiet("drained", 7*watchInterval)
		a.Submit("a-in", "a", s.Messages("a", 5)...)
		a.Submit("b-in", "b", s.Messages("b", 5)...)
		a.Quiet("watched", 1500*msec)
		a.Look("backlog", "a", "b")
		rewrite(a, "refilled", full)
		a.Results("done", 11, 0)
		a.Check("AP-RELOAD-03", "async-arrivals", want{IDs: []string{"a*", "b*"}, To: "refilled"}, "up", "served", "emptied", "drained", "watched")
		a.Check("AP-RELOAD-03", "async-keys", want{Keys: keys("backlog", 10, 10, "a", "b")}, "up", "served", "emptied", "drained", "watched")
		a.Check("AP-RELOAD-03", "async-results", want{Status: 200}, "up", "served", "watched", "refilled")
	}),
	play("only-queues", "a file that changes more than queues is rejected as a whole", func(a *script) {
		slow := s.Transport(s.Queue("a")).With(doc{"poll_interval_ms": 500, "batch_size": 5})
		both := doc{"queues": []doc{s.Queue("a"), s.Queue("b")}}
		a.Serve(watching(slow, watchInterval.String()))
		a.Submit("b-in", "b", s.Messages("b", 5)...)
		rewrite(a, "changed", slow.With(both).With(doc{"batch_size": 20}))
		a.Do(rejected("rejected"))
		a.Submit("a-in", "a", s.Messages("a", 30)...)
		a.Results("a-done", 30, 0, "a*")
		rewrite(a, "restored", slow.With(both))
		a.Results("done", 5, 0, "b*")
		a.Check("AP-RELOAD-04", "async-arrivals", want{IDs: []string{"b*"}, To: "restored"}, "up", "changed", "rejected", "a-done")
		a.Check("AP-RELOAD-04", "async-polls", want{IDs: []string{"a*"}, Min: 5, Clusters: 3, Gap: 200 * msec, From: "rejected", To: "a-done"}, "up", "changed", "rejected", "a-done")
		a.Check("AP-RELOAD-04", "async-results", want{Status: 200}, "up", "rejected", "restored")
	}),
	play("other-fields", "no other field may change either", func(a *script) {
		one := s.Transport(s.Queue("a"))
		both := one.With(doc{"queues": []doc{s.Queue("a"), s.Queue("b")}})
		a.Serve(watching(one, watchInterval.String()))
		a.Submit("b-in", "b", s.Messages("b", 5)...)
		engaged := []string{"up", "b-in"}
		for _, c := range []struct {
			name   string
			change doc
		}{{"url", doc{"url": "redis://$BROKER/1"}}, {"retry", doc{"retry_queue_name": "elsewhere"}}, {"result", doc{"result_queue_name": "elsewhere"}}, {"poll", doc{"poll_interval_ms": 90}},
			{"tracing", doc{"enable_tracing": true}}} {
			rewrite(a, c.name, both.With(c.change))
			a.Do(rejected(c.name + "-rejected"))
			a.Quiet(c.name+"-watched", 2*watchInterval)
			engaged = append(engaged, c.name+"-rejected", c.name+"-watched")
		}
		a.Submit("a-in", "a", s.Messages("a", 3)...)
		a.Results("a-done", 3, 0, "a*")
		rewrite(a, "restored", both)
		a.Results("done", 5, 0, "b*")
		a.Check("AP-RELOAD-04", "async-arrivals", want{IDs: []string{"b*"}, To: "restored"}, append(engaged, "a-done")...)
		a.Check("AP-RELOAD-04", "async-results", want{Status: 200, List: s.ResultList}, append(engaged, "a-done", "restored")...)
	}),
	play("reload-unsupported", "only the sorted set with a file can be read again", reloadUnsupported),
	play("reload-off", "without an interval nothing is read again", func(a *script) {
		a.Submit("b-in", "b", s.Messages("b", 3)...)
		a.Serve(watching(s.Transport(s.Queue("a")), ""))
		a.Submit("before-in", "a", s.Message("early"))
		a.Results("before-done", 1, 0, "early")
		rewrite(a, "changed", s.Transport(s.Queue("b")))
		a.Quiet("watched", 3*sec)
		a.Submit("a-in", "a", s.Message("after"))
		a.Results("after-done", 1, 0, "after")
		a.Check("AP-RELOAD-06", "async-arrivals", want{IDs: []string{"b*"}, To: "after-done"}, "up", "before-done", "changed", "watched")
		a.Check("AP-RELOAD-06", "async-results", want{IDs: []string{"early", "after"}, Status: 200}, "up", "changed", "watched")
	}),
	play("half-a-file", "a file that is no configuration leaves the former queues running", func(a *script) {
		one, two := s.Transport(s.Queue("a")), s.Transport(s.Queue("a"), s.Queue("b"))
		a.Serve(watching(one, watchInterval.String()))
		a.Submit("b-in", "b", s.Messages("b", 3)...)
		half := two.JSON()
		a.Do(step{Op: sut.AsyncFile, Mark: "halved", List: "transport", Text: half[:len(half)/2]})
		a.Do(rejected("read"))
		a.Quiet("half-watched", 3*watchInterval)
		a.Submit("a-in", "a", s.Messages("a", 3)...)
		a.Results("a-done", 3, 0, "a*")
		rewrite(a, "unfit", s.Transport(s.Queue("a"), s.Queue("b").With(doc{"worker_pool_id": "nowhere"})))
		a.Do(rejected("read-again"))
		a.Quiet("unfit-watched", 3*watchInterval)
		rewrite(a, "corrected", two)
		a.Results("b-done", 3, 0, "b*")
		a.Submit("a-again-in", "a", s.Messages("last", 3)...)
		a.Results("done", 3, 0, "last*")
		a.Check("AP-RELOAD-07", "async-arrivals", want{IDs: []string{"b*"}, To: "corrected"}, "up", "halved", "read", "half-watched", "a-done", "read-again", "unfit-watched")
		a.Check("AP-RELOAD-07", "async-timing", want{IDs: []string{"a*"}, Event: "result", Anchor: "a-in", Earliest: -sec, Latest: 3 * sec}, "up", "halved", "read", "half-watched")
		a.Check("AP-RELOAD-07", "async-results", want{Status: 200}, "up", "halved", "read", "corrected")
	}),
	play("reload-keeps-gates", "a queue that did not change keeps what its gate knows", func(a *script) {
		limited := s.Gated("a", "local-max-concurrency", doc{"limit": "2"})
		a.Hold("a*")
		a.Serve(watching(s.Transport(limited), watchInterval.String()))
		a.Submit("in", "a", s.Messages("a", 10)...)
		a.Submit("b-in", "b", s.Messages("b", 3)...)
		a.Held("two", 2, 500*msec, "a*")
		rewrite(a, "added", s.Transport(limited, s.Queue("b")))
		a.Results("reloaded", 3, 0, "b*")
		a.Held("still-two", 2, sec, "a*")
		a.Answer()
		a.Release("all", 0)
		a.Results("done", 10, 0, "a*")
		a.Check("AP-RELOAD-08", "async-peak", want{IDs: []string{"a*"}, Min: 2, Max: 2}, "up", "two", "added", "reloaded", "still-two")
		a.Check("AP-RELOAD-08", "async-results", want{IDs: []string{"a*"}, Status: 200}, "up", "two", "reloaded", "still-two", "all")
	}),
}

// watching is a processor with a document in a file that it reads again; "" is no interval.
func watching(d doc, interval string) *sut.AsyncSetup {
	set := s.Files(&sut.AsyncSetup{Flags: []string{"--transport-config-file", "$FILE_transport"}}, "transport", d.JSON())
	if interval != "" {
		set.Flags = append(set.Flags, "--transport-config-watch-interval", interval)
	}
	return set
}

// rewrite writes the document's file anew.
func rewrite(a *script, mark string, d doc) {
	a.Do(step{Op: sut.AsyncFile, Mark: mark, List: "transport", Text: d.JSON()})
}

// rejected waits until the processor says that it read the file and does not take it. Nobody has said with which words.
func rejected(mark string) step {
	return step{Op: sut.AsyncOutput, Mark: mark, Names: []string{"reload", "queue", "config", "transport"}, Limit: 3 * sec}
}

// reloadUnsupported has the interval where nothing can be read again. Whether that ends the start or is ignored is a matter of the
// contract; what can be reloaded is in any case.
func reloadUnsupported(a *script) {
	a.Submit("b-in", "b", s.Messages("b", 3)...)
	a.Serve(watching(s.Transport(s.Queue("a")), watchInterval.String()))
	rewrite(a, "added", s.Transport(s.Queue("a"), s.Queue("b")))
	a.Results("reloaded", 3, 0)
	a.Check("AP-RELOAD-05", "async-results", want{Status: 200}, "up", "added")
	interval := []string{"--transport-config-watch-interval", watchInterval.String()}
	inline := s.Setup(s.Transport(s.Queue("q")), interval...)
	inline.Inline = true
	channel := s.Setup(channelDoc(s.Queue("c")), interval...)
	channel.Transport = "redis-pubsub"
	older := &sut.AsyncSetup{Transport: "none", Flags: append([]string{"--message-queue-impl", "redis-sortedset", "--redis.url", "redis://$BROKER", "--redis.ss.igw-base-url", "$UPSTREAM_a"}, interval...)}
	a.Try("tried", s.Case("file", s.Setup(s.Transport(s.Queue("q")), interval...)), s.Case("inline", inline), s.Case("channels", channel), s.Case("older-flags", older))
	valid, refused := []string{"file"}, map[string]string{"inline": "", "channels": "", "older-flags": ""}
	if !a.Profile.Durable { // the interval may be ignored
		refused = nil
	}
	a.Check("AP-RELOAD-05", "async-starts", want{Valid: valid, Cases: refused}, "up", "reloaded", "tried")
}
