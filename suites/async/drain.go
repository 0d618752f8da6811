package async

import (
	"fmt"

	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// leased makes leases short, so that what a killed or suspended processor held comes back within the scenario. Contracts without leases do
// not know these fields.
func leased(a *script, d doc) doc {
	if a.Profile.Durable {
		return d.With(doc{"claim_lease_ttl_seconds": 2, "claim_reclaim_interval_ms": 300})
	}
	return d
}

// drainScenarios are those of AP-DRAIN.
var drainScenarios = []s.Scenario{
	play("drain", "requests in flight end with their results, and nothing new is sent", func(a *script) {
		a.Hold()
		a.Serve(s.Setup(s.Transport(s.Queue("q")), "--concurrency", "2"))
		a.Submit("in", "q", s.Messages("m", 52)...)
		a.Held("two", 2, 0)
		a.Signal("term", "TERM")
		a.Quiet("grace", 200*msec)
		a.Quiet("draining", sec)
		a.Answer()
		a.Release("freed", 0)
		a.Ended("ended", 10*sec)
		a.Results("done", 2, 0)
		a.Look("left", s.Places("q")...)
		a.Check("AP-DRAIN-01", "async-arrivals", want{Min: 2, Max: 2, To: "ended"}, "up", "in", "two")
		a.Check("AP-DRAIN-01", "async-exits", want{Names: []string{"ended"}}, "up", "two")
		a.Check("AP-DRAIN-01", "async-conserved", want{To: "left"}, "up", "two", "ended", "done")
		a.Check("AP-DRAIN-01", "async-keys", want{Keys: keys("left", 50, 50, s.Places("q")...)}, "up", "two", "ended")
		a.Check("AP-DRAIN-03", "async-arrivals", want{From: "grace", To: "ended"}, "up", "in", "two", "ended")
	}),
	play("drain-timeout", "what does not end within the drain timeout is cancelled and comes back", func(a *script) {
		a.Hold()
		set := s.Setup(leased(a, s.Transport(s.Queue("q"))), "--concurrency", "2", "--drain-timeout", "2s")
		a.Serve(set)
		a.Submit("in", "q", s.Messages("m", 5)...)
		a.Held("two", 2, 0)
		a.Signal("term", "TERM")
		a.Ended("ended", 10*sec)
		a.Look("left", s.Places("q")...)
		a.Quiet("closed", 300*msec)
		a.Answer()
		a.Start("up-again", set)
		a.Results("done", 5, 20*sec)
		a.Check("AP-DRAIN-02", "async-timing", want{Event: "exit", Anchor: "term", Earliest: 1500 * msec, Latest: 4 * sec}, "up", "two")
		a.Check("AP-DRAIN-02", "async-conserved", want{To: "left"}, "up", "two", "ended")
		a.Check("AP-DRAIN-02", "async-timing", want{IDs: []string{"m0", "m1"}, Event: "attempt-end", Shape: "dropped", Anchor: "term", Latest: 4 * sec}, "up", "two", "ended", "closed")
		a.Check("AP-CLI-10", "async-timing", want{Event: "exit", Anchor: "term", Earliest: 1500 * msec, Latest: 4 * sec}, "up", "two")
		a.Check("AP-DRAIN-10", "async-results", want{Status: 200}, "up", "two", "ended", "up-again")
	}),
	play("drain-answers", "answers that come in while it is told to end are not lost", func(a *script) {
		a.Hold()
		set := s.Setup(leased(a, s.Transport(s.Queue("q")).With(doc{"batch_size": 60})), "--concurrency", "60", "--drain-timeout", "5s")
		a.Serve(set)
		a.Submit("in", "q", s.Messages("m", 50)...)
		a.Held("fifty", 50, 0)
		a.Answer()
		a.Release("freed", 0)
		a.Signal("term", "TERM")
		a.Ended("ended", 10*sec)
		a.Start("up-again", set)
		a.Results("done", 50, 20*sec)
		a.Quiet("watched", sec)
		a.Check("AP-DRAIN-07", "async-conserved", want{}, "up", "fifty", "ended", "up-again", "watched")
	}),
	play("drain-parked", "parked workers do not hold a shutdown up", func(a *script) {
		a.Set("opened", "gate", "1")
		a.Serve(s.WithPools(leased(a, s.Transport(s.Queue("q"))), []doc{{"id": "default", "workers": 3, "gate_type": "wait-on-refuse",
			"gate_params": doc{"gate": doc{"gate_type": "redis", "gate_params": doc{"address": "$BROKER", "budget_key": "gate"}}}}}, "--drain-timeout", "4s"))
		a.Submit("open-in", "q", s.Message("first"))
		a.Results("served", 1, 0, "first")
		a.Set("closed", "gate", "0")
		a.Submit("in", "q", s.Messages("m", 3)...)
		a.Size("parked", "", 0, "q")
		a.Signal("term", "TERM")
		a.Ended("ended", 10*sec)
		a.Look("left", s.Places("q")...)
		a.Check("AP-DRAIN-08", "async-timing", want{Event: "exit", Anchor: "term", Latest: 5 * sec}, "up", "served", "parked")
		a.Check("AP-DRAIN-08", "async-conserved", want{To: "left"}, "up", "parked", "ended")
	}),
	play("drain-idle", "an idle processor ends at once", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Quiet("idle", 5*sec)
		a.Signal("term", "TERM")
		a.Ended("ended", 10*sec)
		a.Check("AP-DRAIN-09", "async-timing", want{Event: "exit", Anchor: "term", Latest: 2 * sec}, "up", "idle")
		a.Check("AP-DRAIN-09", "async-exits", want{Names: []string{"ended"}}, "up", "idle")
	}),
	faults("drain-rounds", "fifty shutdowns under load", "AP-DRAIN-04", "TERM", 50, 20),
	faults("killed", "thirty kills under load", "AP-DRAIN-05", "KILL", 30, 24),
	play("suspended", "a processor that was suspended beyond its lease publishes no second result", func(a *script) {
		a.Hold()
		a.Listen(s.ResultList)
		set := s.Setup(leased(a, s.Transport(s.Queue("q"))), "--concurrency", "4")
		a.Start("up", set)
		a.Submit("in", "q", s.Messages("m", 4)...)
		a.Held("held", 4, 0)
		a.Signal("stop", "STOP")
		a.Answer() // what is held stays held; the other one is answered
		a.StartOther("other", "p2", set)
		a.Results("done", 4, 20*sec)
		a.Release("freed", 0) // the suspended one has its answers in the socket
		a.Signal("cont", "CONT")
		a.Size("over", "", 0, s.Places("q")...)
		a.Quiet("watched", 2*sec)
		a.Check("AP-DRAIN-06", "async-conserved", want{}, "up", "held", "other", "done", "over", "watched")
		a.Check("AP-DRAIN-06", "async-arrivals", want{Min: 2, Max: more, Each: true}, "up", "held", "other", "done")
	}),
}

// perRound is how many messages are added before each round: more than a processor handles until it is hit.
const perRound = 80

// faults is a scenario of many rounds: under load a processor gets a signal after a drawn number of results, and is started again; in the
// end each message has one result.
func faults(name, title, requirement, signal string, rounds, each int) s.Scenario {
	return play(name, title, func(a *script) {
		a.Answer(sut.AsyncReply{Delay: 30 * msec})
		set := s.Setup(leased(a, s.Transport(s.Queue("q")).With(doc{"poll_interval_ms": 20, "batch_size": 32})), "--concurrency", "16", "--drain-timeout", "5s")
		a.Serve(set)
		a.Submit("in", "q", s.Messages("m", 200, s.Due(10*60*sec))...)
		marks := []string{"up", "in"}
		for i := range rounds {
			a.Submit(fmt.Sprintf("in-%d", i), "q", s.Messages(fmt.Sprintf("m%d-", i), perRound, s.Due(10*60*sec))...)
			a.Do(step{Op: sut.AsyncLoad, Mark: fmt.Sprintf("round-%d", i), Signal: signal, Count: each, Limit: 20 * sec})
		}
		a.Results("done", 200+rounds*perRound, 60*sec)
		a.Quiet("watched", sec)
		a.Check(requirement, "async-conserved", want{}, append(marks, "watched")...)
		a.Check(requirement, "async-rounds", want{Names: []string{"round-"}, Min: rounds * 3 / 4}, marks...)
	})
}
