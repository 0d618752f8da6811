package catalog

import (
	"net/http"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
)

// get makes it a request without a body.
func get(path string) scenario.Option {
	return func(r *sut.Request) { r.Method, r.Path = http.MethodGet, path }
}

// oddAnswers are the names of the simulator's odd answers.
var oddAnswers = []string{"text", "html", "nothing", "null", "array", "truncated", "usage-text", "usage-negative", "usage-huge", "not-utf8", "deep",
	"sse-split", "sse-no-end", "sse-crlf", "sse-not-json", "sse-error-event"}

// wireScenarios are about the exchange between data plane and router.
var wireScenarios = []scenario.Scenario{
	{
		Name: "proto-destination", Title: "Header and metadata name the one endpoint that serves the request",
		Write: func(b *scenario.Builder) {
			b.Util(5, 0.8, 3)
			reqs := run(b, "r", 50)
			b.Step(sut.Step{Op: sut.OpSend, Mark: "sent", Requests: reqs, Spacing: 5 * time.Millisecond})
			b.Endings("served", ids(reqs)...)
			b.Check("FC-PROTO-01", "destination", checks.Spec{IDs: ids(reqs), Needed: 50, Engaged: []string{"sent"}})
		},
	},
	{
		Name: "proto-silent", Title: "Nothing is said about a request while it waits", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			w := b.Queue(b.Req("w1"), b.Req("w2"))
			b.Quiet("waiting", 1200*time.Millisecond)
			b.Steps(2)
			b.Drain()
			b.Check("FC-PROTO-04", "silent", checks.Spec{IDs: w, Mark: "waiting", Min: time.Second})
			b.FullCapacity()
		},
	},
	{
		Name: "proto-forms", Title: "Header values count in either wire form", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, 0)
			b.Plug()
			b.Queue(b.Req("low1"))
			want := map[string]string{}
			for _, form := range []string{wire.FormValue, wire.FormRaw, wire.FormBoth} {
				want[form] = "request-" + form
				b.Queue(b.Req(form, scenario.Tenant("t"), scenario.At(100), scenario.Header(wire.HeaderForm, form), scenario.Header(wire.HeaderRequestID, want[form])))
			}
			b.Complete()
			b.Steps(4)
			b.Drain()
			b.Order("FC-PROTO-09", scenario.One(wire.FormValue, wire.FormRaw, wire.FormBoth, "low1")...)
			b.Check("FC-PROTO-09", "request-ids", checks.Spec{RequestIDs: want, Engaged: []string{"queueing"}})
			b.FullCapacity()
		},
	},
	{
		Name: "cls-header-names", Title: "Header names match in any case, and the last of two values counts", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, 0, -10)
			b.Plug()
			// twice1 comes first: were its values joined, or left out, it would be of priority 0 and go before plain1.
			b.Queue(b.Req("twice1", scenario.At(100), scenario.Header(wire.HeaderRepeat, b.Profile.Headers.Objective[0]+"="+scenario.Objective(-10))),
				b.Req("plain1"),
				b.Req("upper1", scenario.At(100), scenario.Header(wire.HeaderForm, wire.FormUpper)))
			b.Complete()
			b.Steps(3)
			b.Order("FC-CLS-18", scenario.One("upper1", "plain1", "twice1")...)
			b.FullCapacity()
		},
	},
	{
		Name: "proto-bodyless", Title: "A request without a body does not wait and takes no place in the queue", Needs: []sut.Feature{sut.Hold, sut.ScaleToZero},
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 1}}
			b.Plug()
			w := b.Queue(b.Req("w1"))
			b.Complete()
			asked := b.Send("asked", b.Req("get1", get("/v1/models")))
			b.Endings("asked-ended", asked...)
			over := sendOver(b, b.Req("over1"))
			b.Quiet("full", 100*time.Millisecond)
			b.Completed("FC-PROTO-10", asked...)
			b.Check("FC-PROTO-10", "waiting", checks.Spec{IDs: w, Mark: "full", Count: 1})
			capacityRefusal(b, "FC-PROTO-10", over, w)
			b.Drain()
			b.Step(sut.Step{Op: sut.OpRemove, Mark: "emptied", Endpoint: "a"})
			b.Quiet("emptied-known", 500*time.Millisecond)
			none := b.Send("nobody", b.Req("get2", get("/v1/models")))
			b.Endings("nobody-ended", none...)
			b.Check("FC-PROTO-10", "refused", checks.Spec{IDs: none, Status: 503})
		},
	},
	{
		Name: "proto-health", Title: "The health service says when the router serves and when it drains", Needs: restartable,
		Write: func(b *scenario.Builder) {
			if b.Profile.Name != "llm-d-router-2026-09" {
				return // the older contracts have no time in which a draining router still answers
			}
			b.Cap(1, 1)
			b.Plug()
			b.Do(sut.OpHealth, "serving")
			b.Do(sut.OpShutdown, "shutdown")
			late := b.Send("late", b.Req("late1")) // whoever refuses it knows of the shutdown
			b.Endings("late-ended", late...)
			b.Do(sut.OpHealth, "draining")
			b.Drain()
			b.Check("FC-PROTO-14", "state", checks.Spec{IDs: append(late, "plug1"), States: map[string]string{"serving": "SERVING", "draining": "NOT_SERVING"}})
		},
	},
	{
		Name: "proto-odd-answers", Title: "Odd answers of a model server pass unchanged and harm nobody",
		Write: func(b *scenario.Builder) {
			b.Util(5, 0.8, 1)
			var odd []string
			for _, name := range oddAnswers {
				r := b.Req(name, scenario.Tenant("odd"), scenario.Header(wire.HeaderAnswer, name))
				odd = append(odd, b.Send("sent", r)...)
				b.Endings("answered", name)
			}
			next := b.Send("next", b.Req("next1"))
			b.Endings("next-ended", next...)
			b.Check("FC-PROTO-16", "answers", checks.Spec{IDs: odd, Then: next, Engaged: []string{"answered"}})
		},
	},
	{
		Name: "can-half-close", Title: "A half-closed stream is no cancellation", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			w := b.Queue(b.Req("gone1"), b.Req("half1", scenario.Header(wire.HeaderHalfClose, "1")))
			b.Complete()
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: w[:1]})
			b.Endings("gone", w[:1]...)
			b.Steps(1)
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "next", Requests: []sut.Request{b.Req("next1")}}) // the stream of half1 is over, and its place free
			b.Drain()
			b.Check("FC-CAN-09", "never-served", checks.Spec{IDs: w[:1], Then: w[1:], Mark: scenario.Queued})
			b.Completed("FC-CAN-09", w[1], "next1")
			b.FullCapacity()
		},
	},
	{
		Name: "ttl-stream-deadline", Title: "A deadline of the stream shortens the wait", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 1}}
			b.Plug()
			w := b.Send("sent", b.Req("short1", scenario.Header(wire.HeaderDeadline, "500ms")))
			b.Endings("ended", w...)
			// The data plane ends a stream whose time is over by itself: what shows that the router has let go of it is the place that is free.
			b.Quiet("cleanup", 3*time.Second)
			next := b.Queue(b.Req("next1"))
			b.Complete()
			b.Check("FC-TTL-10", "waiting", checks.Spec{IDs: next, Mark: scenario.Queued, Count: 1})
			b.Check("FC-TTL-10", "refused", checks.Spec{IDs: w, Mode: "any", Count: 1, Min: 500*time.Millisecond - clockGrain, Max: 500*time.Millisecond + b.Profile.Tolerances.Slack})
			b.FullCapacity()
		},
	},
	{
		Name: "ttl-long-deadline", Title: "A deadline of the stream never extends the wait", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.TTL = time.Second
			b.Plug()
			w := b.Send("sent", b.Req("long1", scenario.Header(wire.HeaderDeadline, "60s")))
			b.Endings("ended", w...)
			a := b.Profile.Refusals.TTL
			b.Check("FC-TTL-10", "refused", checks.Spec{IDs: w, Count: 1, Status: a.Status, Reason: a.Reason, Min: time.Second - clockGrain,
				Max: time.Second + b.Profile.Tolerances.TTLLate + b.Profile.Tolerances.Slack})
			b.FullCapacity()
		},
	},
	{
		Name: "shut-retry", Title: "What a shutdown refused succeeds after the restart", Needs: restartable,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			w := b.Queue(b.Req("w1"))
			b.Complete()
			b.Do(sut.OpShutdown, "shutdown")
			b.Endings("refused", w...)
			b.Drain()
			b.Step(sut.Step{Op: sut.OpDown, Mark: "down", Limit: 35 * time.Second})
			b.Do(sut.OpRestart, "restarted")
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "again", Requests: []sut.Request{b.Req("again1", scenario.Tenant("w"))}})
			b.Drain()
			a := b.Profile.Refusals.Shutdown
			b.Check("FC-SHUT-02", "refused", checks.Spec{IDs: w, After: "shutdown", Status: a.Status, Reason: a.Reason})
			b.Check("FC-SHUT-02", "completed", checks.Spec{IDs: []string{"again1"}, Engaged: []string{"down", "restarted"}})
			b.FullCapacity()
		},
	},
	{
		Name: "shut-idle-streams", Title: "Idle streams do not keep the router from ending", Needs: restartable,
		Write: func(b *scenario.Builder) {
			b.Util(5, 0.8, 1)
			r := b.Send("sent", b.Req("r1"))
			b.Endings("served", r...)
			b.Step(sut.Step{Op: sut.OpStreams, Mark: "streams", Count: 20})
			b.Do(sut.OpShutdown, "shutdown")
			limit := drainWindow(b) + 2*time.Second
			b.Step(sut.Step{Op: sut.OpDown, Mark: "down", Limit: limit + b.Profile.Tolerances.Slack})
			b.Check("FC-SHUT-05", "ends", checks.Spec{Mark: "down", After: "shutdown", Max: limit + b.Profile.Tolerances.Slack, IDs: r, Engaged: []string{"streams"}})
		},
	},
}

// drainWindow is how long a router may serve on after it was told to end.
func drainWindow(b *scenario.Builder) time.Duration {
	if judged, _ := b.Profile.Applies("FC-SHUT-04"); !judged {
		return 0
	}
	return 30 * time.Second
}

func unnamedReasons(known []string) []string {
	if slices.Contains(known, wire.ReasonNoEndpoints) {
		return nil
	}
	// Router 0.9 names no reason where there is no endpoint to send to (spec/endpoint-picker.md §5.3).
	return []string{"ref-no-candidate", "head-all-excluded", "proto-bodyless"}
}
