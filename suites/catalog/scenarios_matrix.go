package catalog

import (
	"fmt"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
)

var matrixNeeds = []sut.Feature{sut.Hold, sut.Metrics}

// matrixScenarios are the cells of the matrices: how requests end abnormally, how a metrics page fails, what hostile clients send.
var matrixScenarios = []scenario.Scenario{
	abnormal("matrix-client-reset", "client reset", func(b *scenario.Builder, ids cellIDs) {
		b.Step(sut.Step{Op: sut.OpCancel, Mark: "abnormal", IDs: ids.all()})
	}),
	abnormal("matrix-model-server-error", "status of a model server", func(b *scenario.Builder, ids cellIDs) {
		b.Step(sut.Step{Op: sut.OpFail, Mark: "failing", Count: 500})
		b.Step(sut.Step{Op: sut.OpRelease, Mark: "abnormal", IDs: []string{ids.dispatched, ids.streaming}})
		b.Endings("first-two", ids.dispatched, ids.streaming)
		b.Endings("failed", ids.queued) // it is dispatched in their place, and fails there
		b.Step(sut.Step{Op: sut.OpFail, Mark: "well-again"})
	}),
	abnormal("matrix-endpoint-flap", "endpoint flap", func(b *scenario.Builder, _ cellIDs) {
		b.Step(sut.Step{Op: sut.OpRemove, Mark: "abnormal", Endpoint: "a"})
		b.Quiet("away", 200*time.Millisecond)
		b.Step(sut.Step{Op: sut.OpAdd, Mark: "back", Endpoint: "a"})
		b.Quiet("back-known", 200*time.Millisecond)
	}),
	answering("matrix-reset", "reset"), answering("matrix-stream-reset", "sse-reset"), answering("matrix-stream-error", "sse-error-event"),
	answering("matrix-split-chunks", "sse-split"), answering("matrix-truncated", "truncated"), answering("matrix-stream-without-end", "sse-no-end"),
	{
		Name: "matrix-same-id", Title: "Requests that share a request id in every phase leave no residue", Needs: matrixNeeds,
		Write: func(b *scenario.Builder) {
			b.Cap(2, 1)
			same := scenario.Header(wire.HeaderRequestID, "the-same")
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "dispatched", Requests: []sut.Request{b.Req("d1", same)}})
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "streaming", Requests: []sut.Request{b.Req("s1", same, scenario.StreamHeldAfter(2))}})
			w := b.Queue(b.Req("q1", same), b.Req("q2", same))
			b.Complete()
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "abnormal", IDs: []string{"s1", "q2"}})
			b.Endings("gone", "s1", "q2")
			residue(b, "d1", w[0])
		},
	},
	{
		Name: "matrix-termination", Title: "A termination in every phase leaves no residue behind a restart", Needs: []sut.Feature{sut.Hold, sut.Metrics, sut.Restart},
		Write: func(b *scenario.Builder) {
			if judged, _ := b.Profile.Applies("FC-SHUT-01"); !judged {
				return
			}
			b.Cap(2, 1)
			ids := phases(b)
			b.Do(sut.OpShutdown, "shutdown")
			b.Endings("refused", ids.queued)
			b.Drain()
			b.Step(sut.Step{Op: sut.OpDown, Mark: "down", Limit: 35 * time.Second})
			b.Do(sut.OpRestart, "restarted")
			residue(b)
		},
	},
	stalePage("matrix-page-500", "error500"), stalePage("matrix-page-hangs", "hang"), stalePage("matrix-page-incomplete", "drop"),
	{
		Name: "matrix-no-endpoints", Title: "Without an endpoint requests wait, and the first one to come serves them", Needs: []sut.Feature{sut.ScaleToZero},
		Write: func(b *scenario.Builder) {
			b.Util(5, 0.8, 1)
			probe(b, "before1")
			b.Step(sut.Step{Op: sut.OpRemove, Mark: "abnormal", Endpoint: "a"})
			b.Quiet("known", 1500*time.Millisecond)
			probe(b, "none1")
			b.Step(sut.Step{Op: sut.OpAdd, Mark: "back", Endpoint: "a"})
			setLoad(b, 0, load{})
			probe(b, "after1")
			b.Check("INV-11", "gate", gateSpec(b, []string{"before1", "after1"}, []string{"none1"}))
		},
	},
	{
		Name: "hostile-beside-steady", Title: "Hostile requests do not harm those beside them", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(4, 1)
			big := strings.Repeat("x", 8<<10)
			n := 0
			steady := func(b *scenario.Builder) string {
				n++
				r := b.Req(fmt.Sprintf("steady%d", n), scenario.PassHold)
				b.Send("steady", r)
				b.Endings("steady-ended", r.ID)
				return r.ID
			}
			var good []string
			good = append(good, steady(b))
			for i, hostile := range [][]scenario.Option{
				{scenario.Tenant(big)},
				{scenario.Header(b.Profile.Headers.Objective[0], big)},
				{scenario.Header(wire.HeaderDestination, "192.0.2.1:9"), scenario.Header(wire.HeaderDestinationServed, "192.0.2.1:9")},
				{scenario.Header(wire.KeySubset, "192.0.2.1:9")},
				{scenario.Header(wire.HeaderDroppedReason, wire.ReasonSaturated)},
				{scenario.Header(wire.HeaderTTFT, "-99999999999999999999")},
				{scenario.Header(wire.HeaderRequestID, big)},
				{scenario.Body(`{"model":"` + big + `","prompt":"x","max_tokens":1}`)},
				{scenario.Body(`{"model":["m"],"prompt":{"a":1},"max_tokens":"many"}`)},
				{scenario.Body("\x00\x01\x02")},
				{scenario.Body(strings.Repeat("[", 20000))},
			} {
				r := b.Req(fmt.Sprintf("hostile%d", i+1), append(hostile, scenario.PassHold)...)
				b.Send("hostile", r)
				good = append(good, steady(b))
				b.Endings("hostile-ended", r.ID)
			}
			flood := make([]sut.Request, 0, 200)
			for i := range 200 {
				flood = append(flood, b.Req(fmt.Sprintf("flood%d", i+1), scenario.Tenant(fmt.Sprintf("flooder-%d", i+1)), scenario.PassHold))
			}
			b.Step(sut.Step{Op: sut.OpSend, Mark: "flood", Requests: flood, Spacing: time.Millisecond})
			good = append(good, steady(b))
			b.Step(sut.Step{Op: sut.OpEndings, Mark: "flood-ended", IDs: ids(flood), Limit: 30 * time.Second})
			good = append(good, steady(b))
			b.Check("INV-12", "arrives", checks.Spec{IDs: good, Within: 500*time.Millisecond + b.Profile.Tolerances.Slack})
			b.Check("INV-12", "completed", checks.Spec{IDs: good, Engaged: []string{"hostile-ended", "flood-ended"}})
			b.FullCapacity()
		},
	},
	{
		Name: "slow-first-token", Title: "Requests that are silent for more than five minutes stay accounted", Needs: held, Slow: true,
		Write: func(b *scenario.Builder) {
			b.Cap(10, 1)
			b.Config.TTL, b.Config.NoTTL = 0, true
			b.Plug()
			reqs := run(b, "w", 10)
			b.Step(sut.Step{Op: sut.OpSend, Mark: "sent", Requests: reqs, Spacing: 10 * time.Millisecond})
			b.Quiet("five-minutes", 330*time.Second)
			b.Check("INV-13", "in-flight", checks.Spec{Mark: "five-minutes", Count: 10, Waiting: ids(reqs)})
			b.FullCapacity()
		},
	},
	{
		Name: "churn-under-load", Title: "Endpoints that come and go under load lose nothing, and the gate stays true", Needs: []sut.Feature{sut.Hold, sut.ScaleToZero},
		Write: func(b *scenario.Builder) {
			b.Cap(2, 2)
			b.Step(sut.Step{Op: sut.OpRemove, Mark: "one", Endpoint: "b"})
			var sent []string
			for i := range 20 {
				b.Step(sut.Step{Op: sut.OpAdd, Mark: "two", Endpoint: "b"})
				b.Quiet("two-known", 100*time.Millisecond)
				n := fmt.Sprint(i + 1)
				b.Step(sut.Step{Op: sut.OpPlug, Mark: "filled", Requests: []sut.Request{b.Req("x" + n), b.Req("y" + n)}})
				b.Step(sut.Step{Op: sut.OpRemove, Mark: "one", Endpoint: "b"})
				b.Quiet("one-known", 50*time.Millisecond)
				b.Step(sut.Step{Op: sut.OpRelease, Mark: "released", IDs: []string{"x" + n, "y" + n}})
				b.Endings("ended", "x"+n, "y"+n)
				sent = append(sent, "x"+n, "y"+n)
			}
			alone := b.PlugN(2)
			w := b.Queue(b.Req("w1"))
			b.Quiet("one-full", 300*time.Millisecond)
			b.Check("INV-19", "in-flight", checks.Spec{Mark: "one-full", Count: 2, Waiting: w})
			b.Drain()
			b.Step(sut.Step{Op: sut.OpAdd, Mark: "two", Endpoint: "b"})
			b.Quiet("two-known", 200*time.Millisecond)
			both := b.PlugN(4)
			w = b.Queue(b.Req("w2"))
			b.Quiet("two-full", 300*time.Millisecond)
			b.Check("INV-19", "in-flight", checks.Spec{Mark: "two-full", Count: 4, Waiting: w})
			b.Drain()
			b.Completed("INV-19", append(append(sent, alone...), both...)...)
			b.FullCapacity()
		},
	},
	{
		Name: "gc-come-and-go", Title: "Collection loses no request of tenants that come and go around its period", Needs: held, Slow: true, Alone: true,
		Write: func(b *scenario.Builder) {
			b.Cap(2, 1)
			b.Config.Hold = false
			var all []string
			for round := range 3 {
				for i := range 200 {
					r := b.Req(fmt.Sprintf("t%d-%d", round+1, i+1), scenario.Tenant(fmt.Sprintf("tenant-%d", i+1)))
					all = append(all, r.ID)
					b.Step(sut.Step{Op: sut.OpSend, Mark: "sent", Requests: []sut.Request{r}, Spacing: time.Duration(i%7) * 17 * time.Millisecond})
				}
				if round < 2 {
					b.Quiet("idle", 298*time.Second+time.Duration(round)*time.Second)
				}
			}
			b.Step(sut.Step{Op: sut.OpEndings, Mark: "ended", IDs: all, Limit: time.Minute})
			b.Check("FC-GC-06", "completed", checks.Spec{IDs: all, Engaged: []string{"ended"}})
		},
	},
}

// cellIDs are the requests of the three phases.
type cellIDs struct{ queued, dispatched, streaming string }

func (c cellIDs) all() []string { return []string{c.queued, c.dispatched, c.streaming} }

// phases brings one request into each phase on a pool for two.
func phases(b *scenario.Builder) cellIDs {
	b.Step(sut.Step{Op: sut.OpPlug, Mark: "dispatched", Requests: []sut.Request{b.Req("dispatched1")}})
	b.Step(sut.Step{Op: sut.OpPlug, Mark: "streaming", Requests: []sut.Request{b.Req("streaming1", scenario.StreamHeldAfter(2))}})
	b.Queue(b.Req("queued1"))
	b.Complete()
	return cellIDs{"queued1", "dispatched1", "streaming1"}
}

// abnormal ends the requests of all phases in one way, and looks for residue.
func abnormal(name, what string, do func(*scenario.Builder, cellIDs)) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: "No residue: " + what + " in every phase", Needs: append(matrixNeeds, sut.ScaleToZero), Write: func(b *scenario.Builder) {
		b.Cap(2, 1)
		ids := phases(b)
		b.Check("INV-10", "in-flight", checks.Spec{Mark: scenario.Queued, Count: 2, Waiting: []string{ids.queued}})
		do(b, ids)
		residue(b)
	}}
}

// answering lets a model server answer in one abnormal way, to requests that were dispatched at once and to one that waited before.
func answering(name, answer string) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: "No residue: the model server's answer " + answer, Needs: matrixNeeds, Write: func(b *scenario.Builder) {
		b.Cap(1, 1)
		first := b.Send("first", b.Req("first1", scenario.Header(wire.HeaderAnswer, answer)))
		b.Endings("first-ended", first...)
		b.Plug()
		b.Queue(b.Req("second1", scenario.Header(wire.HeaderAnswer, answer)), b.Req("third1"))
		b.Complete()
		b.Steps(1) // the second ends by itself, and the third takes its place
		residue(b)
	}}
}

// residue drains, expects zero gauges behind a gauge that was seen above zero, and ends with a full-capacity probe of its own.
func residue(b *scenario.Builder, completed ...string) {
	b.Drain()
	if len(completed) > 0 {
		b.Completed("INV-10", completed...)
	}
	var reqs []sut.Request
	for i := range b.Capacity() {
		reqs = append(reqs, b.Req(fmt.Sprintf("again%d", i+1), scenario.Tenant("again")))
	}
	b.Step(sut.Step{Op: sut.OpPlug, Mark: "again-filled", Requests: reqs})
	w := b.Queue(b.Req("above1", scenario.Tenant("above")))
	b.Quiet("again-full", 300*time.Millisecond)
	b.Do(sut.OpSample, "above-page")
	b.Check("INV-10", "in-flight", checks.Spec{Mark: "again-full", Count: b.Capacity(), Waiting: w})
	b.Drain()
	b.Quiet("settled", 1200*time.Millisecond)
	b.Do(sut.OpSample, "zero-page")
	b.Check("INV-10", "series", checks.Spec{Mark: "above-page", Zero: "zero-page", Waiting: w, Names: b.Profile.Metrics.QueueSize,
		Series: []checks.Series{{Labels: map[string]string{"fairness_id": "above"}, Value: 1}}})
}

// stalePage is one cell of the staleness matrix: an idle endpoint whose page fails counts as full, and recovers.
func stalePage(name, mode string) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: "A metrics page in fault " + mode + " closes the gate, and its recovery opens it", Write: func(b *scenario.Builder) {
		b.Util(5, 0.8, 1)
		b.Config.Detector.Staleness = b.Profile.Tolerances.Staleness
		setLoad(b, 0, load{})
		probe(b, "before1")
		b.Step(sut.Step{Op: sut.OpFault, Mark: "abnormal", Endpoint: "a", Mode: mode})
		b.Quiet("grown-stale", 1500*time.Millisecond)
		probe(b, "stale1")
		b.Step(sut.Step{Op: sut.OpFault, Mark: "well-again", Endpoint: "a", Mode: "none"})
		setLoad(b, 0, load{})
		probe(b, "after1")
		b.Check("INV-11", "gate", gateSpec(b, []string{"before1", "after1"}, []string{"stale1"}))
	}}
}
