package async

import (
	"maps"

	"github.com/llm-weir/weir/harness/checks"
	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

type span = checks.SpanWant

// traced exports the spans of a processor to the scenario's collector, soon after they end.
func traced(set *sut.AsyncSetup, more map[string]string) *sut.AsyncSetup {
	set.Env = map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "$OTLP", "OTEL_EXPORTER_OTLP_INSECURE": "true", "OTEL_BSP_SCHEDULE_DELAY": "100"}
	maps.Copy(set.Env, more)
	return set
}

// requestID is the attribute that names a request.
func requestID(id string) map[string]string { return map[string]string{"request.id": id} }

// The trace that the guide's example names.
const (
	sampleTrace  = "a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d6"
	sampleParent = "00-" + sampleTrace + "-1234567890abcdef-01"
)

// tracingScenarios are those of AP-OTEL. Processors are ended first, which sends what they have left.
var tracingScenarios = []s.Scenario{
	play("tracing", "tracing is on where an endpoint is named, and off elsewhere", func(a *script) {
		// Where exporters go that nobody told where: a collector there would see what must not be sent.
		a.Size("listening", "", 1, ":collector")
		a.Serve(s.Setup(s.Transport(s.Queue("x"))))
		a.StartOther("up2", "p2", traced(s.Setup(s.Transport(s.Queue("y"))), nil))
		a.Submit("off-in", "x", s.Message("off"))
		a.Submit("on-in", "y", s.Message("on"))
		a.Results("done", 2, 0)
		end(a, "off-ended", "p")
		end(a, "on-ended", "p2")
		a.Check("AP-OTEL-01", "async-spans", want{Spans: []span{{Attrs: requestID("on"), Min: 1, Max: more}}}, "up2", "done", "on-ended")
		a.Check("AP-OTEL-01", "async-spans", want{Spans: []span{{Attrs: requestID("off")}}}, "listening", "up", "up2", "done", "off-ended", "on-ended")
	}),
	play("spans", "the spans of a request, of its attempt, and of its return to the queue", func(a *script) {
		a.Hold("held")
		a.Serve(traced(s.Setup(s.Transport(s.Queue("q")), "--drain-timeout", "500ms"), nil))
		a.Submit("in", "q", s.Message("m"), s.Message("held"))
		a.Results("done", 1, 0, "m")
		a.Held("held", 1, 0, "held")
		end(a, "ended", "p")
		a.Check("AP-OTEL-02", "async-spans", want{Spans: []span{{Name: "process-request", Attrs: requestID("m"), Min: 1, Max: 1}, {Name: "process-request", Attrs: requestID("held"), Min: 1, Max: more},
			{Name: "http-request", Parent: "process-request", Min: 2, Max: 2}, {Name: "re-enqueue", Linked: true, Min: 1, Max: more}}}, "up", "done", "held", "ended")
	}),
	play("span-attributes", "what a span says about its request", func(a *script) {
		a.Answer(s.Statuses([]string{"shed"}, 429, 200), s.Statuses([]string{"busy"}, 503, 200))
		a.Serve(traced(s.Setup(s.Transport(s.Queue("q").With(doc{"id": "own"}))), nil))
		a.Submit("in", "q", s.Message("shed"), s.Message("busy"))
		a.Results("done", 2, 20*sec)
		end(a, "ended", "p")
		attrs := func(id, retry, category string) map[string]string {
			out := map[string]string{"request.id": id, "queue.id": "own", "queue.name": "q", "retry.count": retry}
			if category != "" {
				out["error.category"] = category
			}
			return out
		}
		shed := func(more map[string]string) map[string]string {
			out := requestID("shed")
			maps.Copy(out, more)
			return out
		}
		a.Check("AP-OTEL-03", "async-spans", want{Spans: []span{
			{Name: "process-request", Attrs: attrs("shed", "0", "RATE_LIMIT"), Min: 1, Max: 1}, {Name: "process-request", Attrs: attrs("shed", "1", ""), Min: 1, Max: 1},
			{Name: "process-request", Attrs: shed(map[string]string{"error.category": "RATE_LIMIT"}), Min: 1, Max: 1}, // the second one had no failure
			{Name: "process-request", Attrs: attrs("busy", "0", "SERVER_ERROR"), Min: 1, Max: 1}, {Name: "process-request", Attrs: attrs("busy", "1", ""), Min: 1, Max: 1}}},
			"up", "done", "ended")
		a.Check("AP-OTEL-03", "async-arrivals", want{Min: 2, Max: 2, Each: true}, "up", "done", "ended")
	}),
	play("trace-context", "a producer's trace goes on through the processor to the upstream", func(a *script) {
		a.Serve(traced(s.Setup(s.Transport(s.Queue("q"))), nil))
		a.Submit("in", "q", s.Message("req-123", s.Meta("traceparent", sampleParent), s.Meta("tracestate", "vendor=value")), s.Message("own"))
		a.Results("done", 2, 0)
		end(a, "ended", "p")
		a.Check("AP-OTEL-04", "async-spans", want{Spans: []span{{Name: "process-request", Attrs: requestID("req-123"), Trace: sampleTrace, Min: 1, Max: 1},
			{Name: "http-request", Trace: sampleTrace, Min: 1, Max: 1}, {Name: "process-request", Attrs: requestID("own"), Min: 1, Max: 1}, {Trace: sampleTrace, Attrs: requestID("own")}}}, "up", "done", "ended")
		a.Check("AP-OTEL-05", "async-attempts", want{Attempts: []attempt{{ID: "req-123", Name: "traceparent", Value: "00-" + sampleTrace + "-", Some: true}}}, "up", "done")
	}),
	play("tracing-variables", "the variables of OpenTelemetry", func(a *script) {
		setups := []*sut.AsyncSetup{
			traced(s.Setup(s.Transport(s.Queue("default"))), nil),
			traced(s.Setup(s.Transport(s.Queue("named"))), map[string]string{"OTEL_SERVICE_NAME": "other-name"}),
			traced(s.Setup(s.Transport(s.Queue("never"))), map[string]string{"OTEL_TRACES_SAMPLER": "always_off"}),
			traced(s.Setup(s.Transport(s.Queue("none"))), map[string]string{"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.0"}),
			traced(s.Setup(s.Transport(s.Queue("all"))), map[string]string{"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1.0"}),
		}
		names := []string{"default", "named", "never", "none", "all"}
		whos := []string{"p", "p2", "p3", "p4", "p5"}
		a.Listen(s.ResultList)
		engaged := []string{"done"}
		for i, set := range setups {
			a.StartOther("up-"+names[i], whos[i], set)
			a.Submit("in-"+names[i], names[i], s.Message(names[i]))
			engaged = append(engaged, "up-"+names[i], "ended-"+names[i])
		}
		a.Results("done", 5, 0)
		for i, who := range whos {
			end(a, "ended-"+names[i], who)
		}
		a.Check("AP-OTEL-06", "async-spans", want{Spans: []span{{Name: "process-request", Attrs: requestID("default"), Service: "llm-d-async", Min: 1, Max: 1},
			{Name: "process-request", Attrs: requestID("named"), Service: "other-name", Min: 1, Max: 1}, {Name: "process-request", Attrs: requestID("all"), Min: 1, Max: 1}, {Attrs: requestID("never")}, {Attrs: requestID("none")}}},
			engaged...)
	}),
	play("redis-spans", "spans of the broker's commands where the document says so", func(a *script) {
		commands := func(name string, on any) *sut.AsyncSetup {
			return traced(s.Setup(s.Transport(s.Queue(name)).With(doc{"enable_tracing": on})), map[string]string{"OTEL_SERVICE_NAME": name})
		}
		a.Serve(commands("silent", nil))
		a.StartOther("up2", "p2", commands("off", false))
		a.StartOther("up3", "p3", commands("on", true))
		for _, name := range []string{"silent", "off", "on"} {
			a.Submit(name+"-in", name, s.Message(name))
		}
		a.Results("done", 3, 0)
		end(a, "silent-ended", "p")
		end(a, "off-ended", "p2")
		end(a, "on-ended", "p3")
		redis := map[string]string{"db.system": "redis"}
		a.Check("AP-OTEL-07", "async-spans", want{Spans: []span{{Service: "on", Attrs: redis, Min: 3, Max: more}, {Service: "silent", Attrs: redis}, {Service: "off", Attrs: redis},
			{Service: "silent", Name: "process-request", Min: 1, Max: 1}, {Service: "off", Name: "process-request", Min: 1, Max: 1}}}, "up", "up2", "up3", "done", "silent-ended", "off-ended", "on-ended")
	}),
}
