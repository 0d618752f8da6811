package async

import (
	"fmt"
	"time"

	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// retryScenarios are those of AP-RETRY and AP-DL.
var retryScenarios = []s.Scenario{
	play("retry-server-error", "a 503 is tried again, a 429 likewise, and both end in one success", func(a *script) {
		a.Answer(s.Statuses([]string{"busy"}, 503, 200), s.Statuses([]string{"shed"}, 429, 200))
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", s.Message("busy"), s.Message("shed"))
		a.Results("done", 2, 15*sec)
		a.Scrape("end")
		a.Check("AP-RETRY-01", "async-arrivals", want{IDs: []string{"busy"}, Min: 2, Max: 2}, "up", "in")
		a.Check("AP-RETRY-01", "async-results", want{IDs: []string{"busy"}, Status: 200}, "up", "in")
		a.Check("AP-RETRY-02", "async-arrivals", want{IDs: []string{"shed"}, Min: 2, Max: 2}, "up", "in")
		a.Check("AP-RETRY-02", "async-results", want{IDs: []string{"shed"}, Status: 200}, "up", "in")
		a.Check("AP-RETRY-02", "async-values", want{Values: []value{{Mark: "end", Name: "async_shedded_requests_total", Min: 1, Max: 1}}}, "up", "done")
	}),
	play("no-retry-client-error", "client errors are final", func(a *script) {
		a.Answer(s.Statuses([]string{"c400"}, 400), s.Statuses([]string{"c404"}, 404), s.Statuses([]string{"c408"}, 408), s.Statuses([]string{"c422"}, 422))
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", s.Message("c400"), s.Message("c404"), s.Message("c408"), s.Message("c422"))
		a.Results("done", 4, 0)
		a.Quiet("watched", 10*sec)
		a.Check("AP-RETRY-03", "async-arrivals", want{Min: 1, Max: 1, Each: true, To: "watched"}, "up", "in", "watched")
		for _, status := range []int{400, 404, 408, 422} {
			a.Check("AP-RETRY-03", "async-results", want{IDs: []string{fmt.Sprintf("c%d", status)}, Status: status, Shape: "http"}, "up", "in")
		}
	}),
	play("backoff", "the gaps between attempts grow, inside their bounds, until the deadline", func(a *script) {
		a.Answer(s.Statuses(nil, 503))
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", s.Messages("m", 5, s.Due(40*sec))...)
		a.Results("done", 5, 50*sec)
		// The score of a waiting retry counts from a whole second, and two polls of 100 ms come on top.
		a.Check("AP-RETRY-04", "async-gaps", want{Min: 3, Max: 10, Shape: "backoff", Gap: 1300 * msec}, "up", "in")
	}),
	play("retries-end", "retries end with the deadline, in one result", func(a *script) {
		a.Answer(s.Statuses(nil, 503))
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", s.Message("m", s.Due(12*sec)))
		a.Results("done", 1, 20*sec)
		a.Quiet("watched", 3*sec)
		a.Check("AP-RETRY-07", "async-arrivals", want{Min: 2, Max: more, To: "done"}, "up", "in", "watched")
		a.Check("AP-RETRY-07", "async-arrivals", want{From: "done", To: "watched"}, "up", "in", "watched")
		a.Check("AP-RETRY-07", "async-results", want{Status: 503, Codes: []string{"DEADLINE_EXCEEDED", ""}}, "up", "in")
		a.Check("AP-RETRY-07", "async-timing", want{Event: "result", Anchor: "deadline", Earliest: -sec, Latest: 2 * sec}, "up", "in")
	}),
	play("retry-after", "Retry-After lengthens the delay", func(a *script) {
		a.Answer(sut.AsyncReply{IDs: []string{"nine"}, Statuses: []int{429, 200}, Headers: map[string]string{"Retry-After": "9"}},
			sut.AsyncReply{IDs: []string{"nine5"}, Statuses: []int{503, 200}, Headers: map[string]string{"Retry-After": "9"}})
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", s.Message("nine", s.Due(30*sec)), s.Message("nine5", s.Due(30*sec)))
		a.Results("done", 2, 25*sec)
		a.Check("AP-RETRY-06", "async-gaps", want{Min: 2, Bounds: []time.Duration{9*sec - 10*msec, 9*sec*5/4 + 2300*msec}}, "up", "in")
	}),
	alone(play("no-lockstep", "simultaneous failures are spread", func(a *script) {
		a.Answer(s.Statuses(nil, 503, 200))
		a.Serve(s.Setup(s.Transport(s.Queue("q")).With(doc{"batch_size": 1000, "poll_interval_ms": 20}), "--concurrency", "200"))
		a.Submit("in", "q", s.Messages("m", 1000)...)
		a.Results("done", 1000, 40*sec)
		a.Check("AP-RETRY-05", "async-spread", want{Clusters: 1000, Min: 50, Gap: 20 * msec}, "up", "in")
	})),
	play("retry-keeps-everything", "a retry is the same request", func(a *script) {
		a.Answer(s.Statuses(nil, 503, 200))
		a.Serve(s.Setup(s.Transport(s.Queue("x").With(doc{"request_path_url": "/v1/chat/completions"}), s.Queue("y").With(doc{"igw_base_url": "$UPSTREAM_b"}))))
		a.Submit("x-in", "x", s.Message("x", s.Head("x-one", "1"), s.Head("x-two", "two"), s.User("t1")))
		a.Submit("y-in", "y", s.Message("y", s.Head("x-one", "9"), s.User("t2")))
		a.Results("done", 2, 15*sec)
		a.Check("AP-RETRY-08", "async-arrivals", want{Min: 2, Max: 2, Each: true}, "up", "x-in", "y-in")
		a.Check("AP-RETRY-08", "async-attempts", want{Attempts: []attempt{
			{ID: "x", Name: ":upstream", Value: "a"}, {ID: "x", Name: ":path", Value: "/v1/chat/completions"}, {ID: "x", Name: "x-one", Value: "1"}, {ID: "x", Name: "x-two", Value: "two"},
			{ID: "x", Name: fairness, Value: "t1"}, {ID: "x", Name: ":json", Value: `{"model":"m","prompt":"p","weir_id":"x"}`}, {ID: "x", Nth: 2, Name: ":method", Value: "POST"},
			{ID: "y", Name: ":upstream", Value: "b"}, {ID: "y", Name: ":path", Value: "/v1/completions"}, {ID: "y", Name: "x-one", Value: "9"}, {ID: "y", Name: fairness, Value: "t2"}, {ID: "y", Nth: 2, Name: ":upstream", Value: "b"}}},
			"up", "done")
		a.Check("AP-WIRE-06", "async-attempts", want{Attempts: []attempt{{ID: "x", Nth: 1, Name: "x-one", Value: "1"}, {ID: "x", Nth: 1, Name: "x-two", Value: "two"},
			{ID: "x", Nth: 2, Name: "x-one", Value: "1"}, {ID: "x", Nth: 2, Name: "x-two", Value: "two"}}}, "up", "done")
	}),
	play("transport-failure", "an upstream that does not listen, and returns", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("twin", "q", s.Message("twin"))
		a.Results("served", 1, 0, "twin")
		a.Do(step{Op: sut.AsyncUpstream, Mark: "closed", Upstream: "a", Mode: "down"})
		a.Submit("in", "q", s.Message("m", s.Due(30*sec)))
		a.Size("taken", "", 0, "q")
		a.Quiet("refused", 3*sec)
		a.Do(step{Op: sut.AsyncUpstream, Mark: "opened", Upstream: "a", Mode: "up"})
		a.Results("done", 1, 35*sec, "m")
		a.Check("AP-RETRY-09", "async-results", want{IDs: []string{"m"}, Status: 200, Codes: []string{"INFERENCE_ERROR", "DEADLINE_EXCEEDED", ""}}, "up", "served", "taken")
	}),
	play("inference-error", "an upstream that never listens", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("q").With(doc{"igw_base_url": "http://$NOBODY"}), s.Queue("good"))))
		a.Submit("twin", "good", s.Message("twin"))
		a.Results("served", 1, 0, "twin")
		a.Submit("in", "q", s.Message("m", s.Due(5*sec)))
		a.Results("done", 1, 12*sec, "m")
		a.Check("AP-RES-07", "async-results", want{IDs: []string{"m"}, Codes: []string{"INFERENCE_ERROR", "DEADLINE_EXCEEDED"}, Shape: "error"}, "up", "served")
	}),
	play("retry-restart", "a waiting retry survives a restart", func(a *script) {
		a.Answer(s.Statuses(nil, 503, 200))
		set := s.Setup(s.Transport(s.Queue("q")))
		a.Serve(set)
		a.Submit("in", "q", s.Message("m"))
		a.Size("waiting", "", 1, s.RetrySet)
		a.Signal("term", "TERM")
		a.Ended("ended", 0)
		a.Look("down", s.RetrySet)
		a.Start("up-again", set)
		a.Results("done", 1, 15*sec)
		a.Check("AP-RETRY-10", "async-keys", want{Keys: keys("down", 1, 1, s.RetrySet)}, "up", "waiting", "ended")
		a.Check("AP-RETRY-10", "async-results", want{Status: 200}, "up", "waiting", "ended", "up-again")
		a.Check("AP-RETRY-10", "async-arrivals", want{Min: 2, Max: 2}, "up", "waiting", "ended", "up-again")
	}),
	play("gate-is-no-failure", "a closed gate costs no retry and no attempt", func(a *script) {
		a.Set("closed", "dispatch-gate-budget", "0")
		a.Serve(s.Setup(s.Transport(s.Gated("q", "redis", doc{"address": "$BROKER"}))))
		a.Scrape("before")
		a.Submit("in", "q", s.Messages("m", 3)...)
		a.Quiet("shut", 3*sec)
		a.Scrape("while-shut")
		a.Set("open", "dispatch-gate-budget", "1")
		a.Results("done", 3, 0)
		a.Scrape("end")
		a.Check("AP-RETRY-12", "async-arrivals", want{To: "open"}, "closed", "up", "in", "shut")
		a.Check("AP-RETRY-12", "async-arrivals", want{Min: 1, Max: 1, Each: true}, "up", "in", "open", "done")
		a.Check("AP-RETRY-12", "async-values", want{Values: []value{{Mark: "while-shut", Name: "async_gate_decisions_total", Labels: map[string]string{"reason": "gate_closed"}, Min: 1, Max: 1e9},
			{Mark: "end", Since: "before", Name: "async_request_retries_total", Max: 0}}}, "up", "shut", "done")
	}),
	play("bad-deadlines", "what has no positive integer deadline is never sent", func(a *script) {
		bad := func(id, late string) sut.AsyncMessage { return sut.AsyncMessage{ID: id, Late: late} }
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", bad("none", "none"), bad("zero", "0"), bad("negative", "-5"), bad("text", `"9999999999"`), bad("float", "9999999999.5"), s.Message("good"))
		a.Results("served", 1, 0, "good")
		a.Quiet("watched", 2*sec)
		a.Check("AP-DL-01", "async-arrivals", want{IDs: []string{"none", "zero", "negative", "text", "float"}, To: "watched"}, "up", "in", "served", "watched")
		a.Check("AP-DL-01", "async-results", want{IDs: []string{"good"}, Status: 200}, "up", "in")
	}),
	play("expired", "a message past its deadline is not sent", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", s.Message("late", s.Due(-10*sec)), s.Message("good"))
		a.Results("done", 2, 0)
		a.Quiet("watched", sec)
		a.Check("AP-DL-02", "async-arrivals", want{IDs: []string{"late"}, To: "watched"}, "up", "in", "watched")
		a.Check("AP-DL-02", "async-results", want{IDs: []string{"late"}, Codes: []string{"DEADLINE_EXCEEDED"}}, "up", "in")
		a.Check("AP-DL-02", "async-timing", want{IDs: []string{"late"}, Event: "result", Anchor: "in", Earliest: -sec, Latest: sec}, "up", "in")
		a.Check("AP-RES-04", "async-results", want{IDs: []string{"late"}, Codes: []string{"DEADLINE_EXCEEDED"}, Shape: "error"}, "up", "in")
	}),
	play("expired-waiting", "a deadline that passes at a closed gate", func(a *script) {
		a.Set("closed", "dispatch-gate-budget", "0")
		a.Serve(s.Setup(s.Transport(s.Gated("q", "redis", doc{"address": "$BROKER"}))))
		a.Submit("in", "q", s.Message("m", s.Due(2*sec)))
		a.Quiet("shut", 4*sec)
		a.Set("open", "dispatch-gate-budget", "1")
		a.Results("done", 1, 5*sec)
		a.Quiet("watched", sec)
		a.Check("AP-DL-03", "async-arrivals", want{To: "watched"}, "closed", "up", "shut", "watched")
		a.Check("AP-DL-03", "async-results", want{Codes: []string{"DEADLINE_EXCEEDED"}}, "closed", "up", "shut")
		a.Check("AP-DL-03", "async-timing", want{Event: "result", Anchor: "open", Earliest: -6 * sec, Latest: sec}, "closed", "up", "shut")
	}),
	play("deadline-in-flight", "a deadline that passes during the call ends it", func(a *script) {
		a.Hold()
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", s.Message("m", s.Due(2*sec)))
		a.Held("held", 1, 0)
		a.Results("done", 1, 0)
		a.Quiet("watched", 500*msec)
		a.Check("AP-DL-04", "async-timing", want{Event: "attempt-end", Shape: "dropped", Anchor: "deadline", Earliest: -sec, Latest: sec}, "up", "held", "watched")
		a.Check("AP-DL-04", "async-results", want{Codes: []string{"DEADLINE_EXCEEDED"}}, "up", "held")
	}),
	play("far-deadlines", "deadlines in the far future", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", sut.AsyncMessage{ID: "far", Late: "23472348233323"}, sut.AsyncMessage{ID: "nines", Late: "9999999999"})
		a.Results("done", 2, 0)
		a.Check("AP-DL-05", "async-results", want{Status: 200}, "up", "in")
	}),
	play("created", "created has no influence", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		example := func(id, created string) sut.AsyncMessage {
			return sut.AsyncMessage{ID: id, Created: created, Deadline: 1130 * sec}
		}
		a.Submit("in", "q", example("absent", "null"), example("past", "1"), example("future", "9999999999"))
		a.Results("done", 3, 0)
		a.Check("AP-DL-06", "async-results", want{Status: 200}, "up", "in")
		a.Check("AP-DL-06", "async-arrivals", want{Min: 1, Max: 1, Each: true}, "up", "in")
	}),
}
