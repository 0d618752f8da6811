package async

import (
	"slices"

	"github.com/llm-weir/weir/harness/checks"
	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// quotaScenarios are those of AP-QUOTA.
var quotaScenarios = []s.Scenario{
	play("quota-rate", "so many of one user in any window, and the others later", func(a *script) {
		a.Serve(s.Setup(s.Transport(quotaOf("q", doc{"limit": "2", "window": "2s"}))))
		a.Submit("in", "q", s.Messages("m", 8, s.User("u"))...)
		a.Arrive("two", 2)
		a.Quiet("first-window", sec)
		a.Results("done", 8, 15*sec)
		// Between an admission and its arrival lies what the machine takes for it.
		a.Check("AP-QUOTA-01", "async-window", want{Min: 8, Max: 2, Gap: 1600 * msec}, "up", "in")
		a.Check("AP-QUOTA-01", "async-results", want{Status: 200}, "up", "in")
		a.Check("AP-QUOTA-06", "async-arrivals", want{Min: 2, Max: 2, To: "first-window"}, "up", "in")
		a.Check("AP-QUOTA-06", "async-results", want{Status: 200}, "up", "in")
	}),
	play("quota-sliding", "the window slides: what came late in one counts in the next", func(a *script) {
		a.Serve(s.Setup(s.Transport(quotaOf("q", doc{"limit": "2", "window": "2s"}))))
		a.Submit("first", "q", s.Message("first", s.User("u")))
		a.Arrive("one", 1)
		a.Quiet("late", 1500*msec) // a window that began with the first one would end half a second after the second
		a.Submit("in", "q", s.Messages("m", 5, s.User("u"))...)
		a.Results("done", 6, 15*sec)
		a.Check("AP-QUOTA-01", "async-window", want{Min: 6, Max: 2, Gap: 1600 * msec}, "up", "first", "one", "in")
	}),
	play("quota-attributes", "each value of the attribute has a quota of its own", func(a *script) {
		team := func(name string) doc {
			return quotaOf(name, doc{"limit": "2", "window": "60s", "attribute": "team", "prefix": "team:"})
		}
		queues := []string{"u", "v", "red", "blue"}
		a.Serve(s.Setup(s.Transport(quotaOf("u", doc{"limit": "2", "window": "60s"}), quotaOf("v", doc{"limit": "2", "window": "60s"}), team("red"), team("blue"))))
		a.Submit("in", "u", s.Messages("u-", 5, s.User("u"))...)
		a.Submit("in", "v", s.Messages("v-", 5, s.User("v"))...)
		for _, q := range queues[2:] {
			for _, id := range numbered(q+"-", 5) { // each of another user
				a.Submit("in", q, s.Message(id, s.Meta("team", q), s.User(id)))
			}
		}
		a.Arrive("eight", 8)
		a.Quiet("watched", 1500*msec)
		for _, q := range queues {
			a.Size(backlog(q), "least", 3, s.Places(q)...)
			a.Check("AP-QUOTA-02", "async-arrivals", want{IDs: filled(q), Min: 2, Max: 2, To: backlog(q)}, "up", "in")
		}
	}),
	play("quota-concurrency", "so many of one user are in flight", func(a *script) {
		a.Hold()
		a.Serve(s.Setup(s.Transport(quotaOf("q", doc{"limit": "2", "mode": "concurrency"}))))
		a.Submit("in", "q", s.Messages("m", 6, s.User("u"))...)
		a.Held("two", 2, sec)
		a.Release("one", 1)
		a.Arrive("third", 3)
		a.Quiet("watched", 500*msec)
		a.Answer()
		a.Release("all", 0)
		a.Results("done", 6, 0)
		a.Check("AP-QUOTA-03", "async-peak", want{Min: 2, Max: 2, To: "watched"}, "up", "in")
		a.Check("AP-QUOTA-03", "async-arrivals", want{From: "two", To: "watched", Min: 1, Max: 1}, "up", "in", "two", "one")
	}),
	play("quota-slots-return", "a slot is free again after success, error and retry", func(a *script) {
		reply := func(ids string, statuses ...int) sut.AsyncReply {
			return sut.AsyncReply{IDs: []string{ids}, Statuses: statuses, Delay: 150 * msec}
		}
		a.Answer(reply("ok*", 200), reply("bad*", 400), reply("again*", 503, 200))
		a.Serve(s.Setup(s.Transport(quotaOf("q", doc{"limit": "3", "mode": "concurrency", "window": "60s"})), "--concurrency", "10"))
		a.Submit("in", "q", s.Messages("ok", 8, s.User("u"))...)
		a.Submit("in", "q", s.Messages("bad", 6, s.User("u"))...)
		a.Submit("in", "q", s.Messages("again", 6, s.User("u"))...)
		a.Results("done", 20, 25*sec)
		a.Size("over", "", 0, s.Places("q")...)
		a.Quiet("settled", 700*msec)
		a.Look("end", "quota:userid:u")
		a.Check("AP-QUOTA-04", "async-keys", want{Keys: zero("end", "quota:userid:u")}, "up", "in", "done", "over", "settled")
		a.Check("AP-QUOTA-04", "async-peak", want{Min: 2, Max: 3, To: "done"}, "up", "in", "done")
		a.Check("AP-QUOTA-04", "async-results", want{IDs: []string{"ok*", "again*"}, Status: 200}, "up", "in")
		a.Check("AP-QUOTA-04", "async-results", want{IDs: []string{"bad*"}, Status: 400}, "up", "in")
		a.Check("AP-QUOTA-04", "async-arrivals", want{IDs: []string{"again*"}, Min: 2, Max: 2, Each: true, To: "done"}, "up", "in", "done")
	}),
	play("quota-keys", "where a quota is kept", func(a *script) {
		a.Serve(s.Setup(s.Transport(quotaOf("d", doc{"limit": "5"}), quotaOf("o", doc{"limit": "5", "prefix": "own:"}))))
		a.Submit("d-in", "d", s.Message("d-0", s.User("u")))
		a.Submit("o-in", "o", s.Message("o-0", s.User("v")))
		a.Results("done", 2, 0)
		a.Look("looked", "quota:userid:u", "quota:userid:v", "own:userid:u", "own:userid:v")
		a.Check("AP-QUOTA-05", "async-keys", want{Keys: slices.Concat(keys("looked", 1, more, "quota:userid:u"), keys("looked", 1, more, "own:userid:v"), keys("looked", 0, 0, "quota:userid:v", "own:userid:u"))},
			"up", "d-in", "o-in", "done")
	}),
	play("quota-params", "quotas without what they need", func(a *script) {
		with := func(name string, params doc) sut.AsyncTrial {
			return s.Case(name, s.Setup(s.Transport(quotaOf("q", params))))
		}
		a.Try("tried", with("valid", doc{"limit": "2", "window": "10s"}), with("short", doc{"limit": "2"}), with("no-limit", doc{"window": "10s"}), with("limit-0", doc{"limit": "0"}),
			with("limit-minus-1", doc{"limit": "-1"}), with("nowhere", doc{"limit": "2", "address": nil}), with("no-duration", doc{"limit": "2", "window": "a while"}))
		a.Check("AP-QUOTA-05", "async-starts", want{Valid: []string{"valid", "short"}, Cases: map[string]string{"no-limit": "", "limit-0": "", "limit-minus-1": "", "nowhere": "", "no-duration": ""}}, "tried")
	}),
	play("quota-classifies", "a quota that classifies holds nothing back and tells reserved from overflow", func(a *script) {
		a.Serve(tiered(4, doc{"priority_header": priority}, quotaOf("q", doc{"limit": "2", "window": "60s", "gating_mode": "classifying"}).With(doc{"labels": doc{"tier": "async"}})))
		for i, id := range numbered("m", 4) { // one after the other: the first two are within the quota
			a.Submit("in", "q", s.Message(id, s.User("u")))
			a.Results("done", i+1, 3*sec)
		}
		a.Check("AP-QUOTA-07", "async-attempts", want{Attempts: append(each([]string{"m0", "m1"}, priority, "1"), each([]string{"m2", "m3"}, priority, "4")...)}, "up", "in", "done")
		a.Check("AP-QUOTA-07", "async-results", want{Status: 200}, "up", "in")
	}),
	play("quota-without-attribute", "what has no value of the attribute is not limited", func(a *script) {
		params := doc{"limit": "1", "mode": "concurrency", "window": "60s"}
		async := doc{"labels": doc{"tier": "async"}}
		a.Hold("u*")
		a.Serve(tiered(20, doc{"priority_header": priority}, quotaOf("exhausted", params), quotaOf("blocks", params).With(async), quotaOf("tags", params.With(doc{"gating_mode": "classifying"})).With(async)))
		a.Submit("u-in", "exhausted", s.Message("u0", s.User("u")))
		a.Held("taken", 1, 0, "u0")
		a.Submit("u-more", "blocks", s.Message("u1", s.User("u"), s.Due(55*sec)))
		a.ScrapeUntil("refusing", decided("blocks", "quota_exhausted", 2))
		a.Submit("in", "blocks", s.Messages("b-", 5, s.Due(30*sec))...)
		a.Submit("in", "tags", s.Messages("t-", 5, s.Due(30*sec))...)
		a.Results("done", 10, 0, "b-*", "t-*")
		engaged := []string{"up", "taken", "u-more", "refusing", "in"}
		a.Check("AP-QUOTA-08", "async-timing", want{IDs: []string{"b-*", "t-*"}, Event: "arrival", Anchor: "refusing", Latest: 2 * sec}, engaged...)
		a.Check("AP-QUOTA-08", "async-attempts", want{Attempts: append(each(numbered("b-", 5), priority, "4"), each(numbered("t-", 5), priority, "4")...)}, append(engaged, "done")...)
		a.Check("AP-QUOTA-08", "async-arrivals", want{IDs: []string{"u1"}, To: "done"}, append(engaged, "done")...)
	}),
	play("quota-replicas", "a quota holds over queues and over processors", func(a *script) {
		params := doc{"limit": "3", "mode": "concurrency", "window": "60s"}
		a.Hold()
		a.Serve(s.Setup(s.Transport(quotaOf("x", params))))
		a.StartOther("other", "p2", s.Setup(s.Transport(quotaOf("y", params).With(doc{"igw_base_url": "$UPSTREAM_b"})).With(doc{"retry_queue_name": "retry2"})))
		a.Submit("x-in", "x", s.Messages("x-", 2, s.User("u"))...)
		a.Held("two", 2, 0, "x-*")
		a.Submit("y-in", "y", s.Messages("y-", 6, s.User("u"))...)
		a.Held("y-one", 1, 0, "y-*")
		a.Submit("x-more", "x", s.Messages("x-more", 4, s.User("u"))...)
		a.Held("three", 3, sec)
		a.Do(step{Op: sut.AsyncStep1, Mark: "steps", Count: 5})
		a.Answer()
		a.Release("all", 0)
		a.Results("done", 12, 15*sec)
		a.Check("AP-QUOTA-09", "async-peak", want{Min: 3, Max: 3}, "up", "other", "two", "y-one", "x-more")
		a.Check("AP-QUOTA-09", "async-results", want{Status: 200}, "up", "other", "two", "y-one", "x-more")
	}),
	play("quota-long-requests", "a slot does not expire while a request lasts longer than the window", func(a *script) {
		a.Hold()
		a.Serve(s.Setup(s.Transport(quotaOf("q", doc{"limit": "2", "mode": "concurrency", "window": "2s"}))))
		a.Submit("in", "q", s.Messages("m", 6, s.User("u"))...)
		a.Held("two", 2, 0)
		a.Quiet("lasting", 8*sec)
		a.Answer()
		a.Release("all", 0)
		a.Results("done", 6, 0)
		a.Check("AP-QUOTA-10", "async-peak", want{Min: 2, Max: 2, To: "lasting"}, "up", "in", "lasting")
		a.Check("AP-QUOTA-10", "async-results", want{Status: 200}, "up", "in", "two", "lasting")
	}),
	play("quota-head-of-line", "an exhausted user does not hold up the others of a queue", func(a *script) {
		a.Hold("u*")
		a.Serve(s.Setup(s.Transport(quotaOf("q", doc{"limit": "1", "mode": "concurrency", "window": "60s"}))))
		a.Submit("u-in", "q", s.Message("u-first", s.User("u"), s.Due(30*sec)))
		a.Held("taken", 1, 0, "u-first")
		a.Submit("u-more", "q", s.Messages("u-", 25, s.User("u"), s.Due(40*sec))...)
		a.ScrapeUntil("refusing", decided("q", "quota_exhausted", 10))
		a.Submit("v-in", "q", s.Messages("v-", 1, s.User("v"), s.Due(50*sec))...)
		a.Results("done", 1, 0, "v-*")
		a.Check("AP-QUOTA-11", "async-timing", want{IDs: filled("v"), Event: "result", Anchor: "v-in", Earliest: -sec, Latest: 2 * sec}, "up", "taken", "u-more", "refusing", "v-in")
		a.Check("AP-QUOTA-11", "async-peak", want{IDs: []string{"u*"}, Min: 1, Max: 1, To: "done"}, "up", "taken", "u-more")
	}),
	play("quota-one-id", "messages with one id do not give each other's slots back", func(a *script) {
		var quota, local []sut.AsyncMessage
		for range 8 {
			quota = append(quota, s.Message("same", s.User("u")))
			local = append(local, s.Message("other"))
		}
		a.Hold()
		a.Serve(s.Setup(s.Transport(quotaOf("q", doc{"limit": "2", "mode": "concurrency", "window": "60s"}), s.Gated("l", "local-max-concurrency", doc{"limit": "2"})), "--concurrency", "20"))
		a.Submit("in", "q", quota...)
		a.Submit("in", "l", local...)
		a.Held("two", 2, 0, "same")
		a.Held("local-two", 2, sec, "other")
		a.Do(step{Op: sut.AsyncStep1, Mark: "steps", Count: 2, IDs: []string{"same"}})
		a.Do(step{Op: sut.AsyncStep1, Mark: "local-steps", Count: 2, IDs: []string{"other"}})
		a.Quiet("watched", 500*msec)
		a.Check("AP-QUOTA-12", "async-peak", want{IDs: []string{"same"}, Min: 2, Max: 2, To: "watched"}, "up", "in")
		a.Check("AP-QUOTA-12", "async-peak", want{IDs: []string{"other"}, Min: 2, Max: 2, To: "watched"}, "up", "in")
	}),
	play("quota-tenant", "the user that is counted is the user that the gateway is told", func(a *script) {
		a.Serve(s.Setup(s.Transport(quotaOf("q", doc{"limit": "5"}))))
		a.Submit("in", "q", s.Message("m", s.User("u"), s.Head(fairness, "w")))
		a.Results("done", 1, 0)
		a.Look("looked", "quota:userid:u", "quota:userid:w")
		a.Check("AP-QUOTA-13", "async-keys", want{Keys: slices.Concat(keys("looked", 1, more, "quota:userid:u"), keys("looked", 0, 0, "quota:userid:w"))}, "up", "in", "done")
		a.Check("AP-QUOTA-13", "async-attempts", want{Attempts: []attempt{{ID: "m", Name: fairness, Value: "u"}}}, "up", "in", "done")
	}),
}

// quotaOf is a queue behind a quota, which blocks unless the parameters say otherwise.
func quotaOf(name string, params doc) doc {
	return s.Gated(name, "redis-quota", doc{"address": "$BROKER", "gating_mode": "blocking"}.With(params))
}

// zero wants keys to be absent, or to be the number 0.
func zero(mark string, names ...string) []checks.KeyWant {
	var out []checks.KeyWant
	for _, n := range names {
		out = append(out, checks.KeyWant{Mark: mark, Keys: []string{n}, Max: 1, Value: "0"})
	}
	return out
}
