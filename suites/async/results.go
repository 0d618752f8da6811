package async

import (
	"time"

	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// resultScenarios are those of AP-RES that no other family shows.
var resultScenarios = []s.Scenario{
	play("one-result-each", "two hundred messages of many endings, and one result of each", func(a *script) {
		a.Answer(s.Statuses([]string{"bad*"}, 400), s.Statuses([]string{"gone*"}, 404), s.Statuses([]string{"busy*"}, 503, 200))
		a.Submit("in", "q", s.Messages("ok", 120)...)
		a.Submit("bad-in", "q", s.Messages("bad", 20)...)
		a.Submit("gone-in", "q", s.Messages("gone", 10)...)
		a.Submit("busy-in", "q", s.Messages("busy", 10)...)
		a.Submit("late-in", "q", s.Messages("late", 10, s.Due(-10*sec))...)
		a.Submit("inline-in", "q", s.Messages("inline", 10, s.Meta("provider", "whisper"), s.Payload(inlineMedia))...)
		a.Submit("withdrawn-in", "q", s.Messages("withdrawn", 20)...)
		a.Do(step{Op: sut.AsyncCancel, Mark: "withdrawn", IDs: numbered("withdrawn", 20)})
		a.Size("waiting", "", 200, "q")
		a.Serve(transformed(s.Setup(s.Transport(s.Queue("q")).With(doc{"batch_size": 50})), sampleTransforms))
		a.Results("done", 200, 30*sec)
		a.Quiet("watched", sec)
		a.Check("AP-RES-01", "async-results", want{}, "waiting", "up", "watched")
		a.Check("AP-RES-09", "async-fields", want{Min: 4, Names: a.Profile.ResultFields}, "waiting", "up", "done", "watched")
	}),
	play("http-answers", "final answers carry their status and body, errors included", func(a *script) {
		fine, bad, none := "{\"text\":\"gr\u00fc\u00dfe \u6f22 \\u00e9 <>&\"}\n\n", `{"error":{"message":"no such model","code":400}}`, ""
		for range 64 {
			none += "no JSON; "
		}
		a.Answer(sut.AsyncReply{IDs: []string{"fine"}, Body: fine}, sut.AsyncReply{IDs: []string{"text"}, Body: none, Headers: map[string]string{"Content-Type": "text/plain"}},
			sut.AsyncReply{IDs: []string{"bad"}, Statuses: []int{400}, Body: bad}, sut.AsyncReply{IDs: []string{"gone"}, Statuses: []int{404}, Body: none})
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", s.Message("fine"), s.Message("text"), s.Message("bad"), s.Message("gone"))
		a.Results("done", 4, 0)
		a.Check("AP-RES-02", "async-results", want{IDs: []string{"fine", "text"}, Status: 200, Shape: "http", Texts: map[string]string{"fine": fine, "text": none}}, "up", "in")
		a.Check("AP-RES-03", "async-results", want{IDs: []string{"bad"}, Status: 400, Shape: "http", Texts: map[string]string{"bad": bad}}, "up", "in")
		a.Check("AP-RES-03", "async-results", want{IDs: []string{"gone"}, Status: 404, Shape: "http", Texts: map[string]string{"gone": none}}, "up", "in")
	}),
	play("withdrawn", "what its producer withdrew before it was sent is not sent", func(a *script) {
		a.Submit("in", "q", s.Messages("kept", 50)...)
		a.Submit("more-in", "q", s.Messages("withdrawn", 50)...)
		a.Do(step{Op: sut.AsyncCancel, Mark: "withdrawn", IDs: numbered("withdrawn", 50)})
		a.Size("queued", "", 100, "q")
		a.Serve(s.Setup(s.Transport(s.Queue("q")).With(doc{"batch_size": 50})))
		a.Results("done", 100, 20*sec)
		a.Quiet("watched", sec)
		a.Check("AP-RES-05", "async-arrivals", want{Min: 50, Max: 50, To: "watched"}, "withdrawn", "queued", "up", "done", "watched")
		a.Check("AP-RES-05", "async-arrivals", want{IDs: []string{"withdrawn*"}, To: "watched"}, "withdrawn", "queued", "up", "done", "watched")
		a.Check("AP-RES-05", "async-results", want{IDs: []string{"withdrawn*"}, Codes: []string{"CANCELLED"}, Shape: "error"}, "withdrawn", "queued", "up")
		a.Check("AP-RES-05", "async-results", want{IDs: []string{"kept*"}, Status: 200}, "withdrawn", "queued", "up")
	}),
	play("pool-gate-error", "a pool gate that fails ends the message with an error", func(a *script) {
		a.Do(step{Op: sut.AsyncSet, Mark: "broken", Mode: "list", Keys: map[string]string{"quota:userid:t": "no quota"}})
		a.Serve(s.WithPools(s.Transport(s.Queue("q")), []doc{{"id": "default", "workers": 2, "gate_type": "redis-quota", "gate_params": doc{"address": "$BROKER", "limit": "5"}}}))
		a.Submit("twin", "q", s.Message("twin", s.User("other")))
		a.Results("served", 1, 0, "twin")
		a.Submit("in", "q", s.Messages("m", 3, s.User("t"))...)
		a.Results("done", 3, 0, "m*")
		a.Quiet("watched", 500*msec)
		a.Check("AP-RES-06", "async-results", want{IDs: []string{"m*"}, Codes: []string{"GATE_ERROR"}, Shape: "error"}, "broken", "up", "served", "in")
		a.Check("AP-RES-06", "async-arrivals", want{IDs: []string{"m*"}, To: "watched"}, "broken", "up", "served", "done", "watched")
	}),
	play("broker-pauses", "results that meet a broker that does not answer are not lost", func(a *script) {
		a.Hold()
		a.Serve(s.Setup(s.Transport(s.Queue("q")).With(doc{"batch_size": 50}), "--concurrency", "64"))
		// Every answer is given inside a pause, which so covers the writes of its result.
		engaged := []string{"up"}
		for _, p := range []struct {
			name string
			long time.Duration
		}{{"short", 200 * msec}, {"long", 5 * sec}} {
			ids := p.name + "*"
			a.Submit(p.name+"-in", "q", s.Messages(p.name, 50)...)
			a.Held(p.name+"-held", 50, 0, ids)
			a.Broker(p.name+"-paused", "pause")
			a.Release(p.name+"-answered", 50, ids)
			a.Quiet(p.name+"-pause", p.long)
			a.Broker(p.name+"-resumed", "resume")
			a.Results(p.name+"-done", 50, 20*sec, ids)
			engaged = append(engaged, p.name+"-held", p.name+"-paused", p.name+"-answered", p.name+"-resumed")
		}
		a.Quiet("watched", sec)
		a.Check("AP-RES-10", "async-results", want{Status: 200}, append(engaged, "watched")...)
	}),
}
