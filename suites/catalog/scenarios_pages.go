package catalog

import (
	"fmt"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
)

// samplePage reads every family of the router's metrics page.
func samplePage(b *scenario.Builder, mark string) {
	b.Step(sut.Step{Op: sut.OpSample, Mark: mark, Mode: "all"})
}

// refreshed is longer than two periods in which a router brings the gauges of its pool up to date (FC-MET-12).
const refreshed = 10500 * time.Millisecond

// pageScenarios are about whole metrics pages.
var pageScenarios = []scenario.Scenario{
	{
		Name: "met-backlog", Title: "The queue gauge follows the backlog up and back to zero", Needs: []sut.Feature{sut.Hold, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Cap(2, 1)
			b.Plug()
			var waiting []string
			for i := range 3 {
				reqs := run(b, string(rune('p'+i)), 10)
				b.Step(sut.Step{Op: sut.OpQueue, Mark: "sent", Requests: reqs, Spacing: 10 * time.Millisecond})
				waiting = append(waiting, ids(reqs)...)
				mark := fmt.Sprintf("backlog-%d", len(waiting))
				b.Quiet("settled", 300*time.Millisecond)
				b.Do(sut.OpSample, mark)
				s := checks.Spec{Mark: mark, Waiting: slices.Clone(waiting), Names: b.Profile.Metrics.QueueSize,
					Series: []checks.Series{{Labels: map[string]string{"priority": "0"}, Value: float64(len(waiting))}}}
				if i == 2 {
					s.Zero = "empty"
				}
				b.Check("FC-MET-04", "series", s)
			}
			b.Drain()
			b.Quiet("drained-known", 300*time.Millisecond)
			b.Do(sut.OpSample, "empty")
			b.FullCapacity()
		},
	},
	{
		Name: "met-gate-off", Title: "Without flow control no series of it is published", Needs: []sut.Feature{sut.Restart, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Util(5, 0.8, 1)
			b.Config.GateOff = true
			r := b.Send("sent", run(b, "r", 3)...)
			b.Endings("served", r...)
			b.Quiet("settled", 300*time.Millisecond)
			samplePage(b, "page")
			b.Check("FC-MET-14", "absent", checks.Spec{Mark: "page", IDs: r, Names: slices.Concat(b.Profile.Metrics.QueueSize, b.Profile.Metrics.QueueBytes, b.Profile.Metrics.PoolSaturation)})
		},
	},
	{
		Name: "met-engine", Title: "The model server's own page says what is inside it", Needs: []sut.Feature{sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Util(5, 0.8, 1)
			b.Config.Preset, b.Config.MaxSeqs = "h100-llama3.1-8b", 1
			reqs := run(b, "r", 3, func(r *sut.Request) { r.MaxTokens = 400 })
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "sent", Requests: reqs})
			b.Quiet("inside", 300*time.Millisecond)
			b.Step(sut.Step{Op: sut.OpSample, Mark: "engine", Endpoint: "a"})
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: ids(reqs)})
			b.Endings("ended", ids(reqs)...)
			b.Quiet("aborted", 200*time.Millisecond)
			b.Check("FC-MET-15", "engine", checks.Spec{Mark: "engine", Mode: "a", Count: 3, IDs: ids(reqs),
				Names: []string{wire.VLLMRunning, wire.VLLMWaiting, wire.VLLMKVUsage, wire.VLLMPreemptions}})
		},
	},
	{
		Name: "met-tokens", Title: "The tokens of a stream are counted, however it is cut", Needs: []sut.Feature{sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Util(5, 0.8, 1)
			r := b.Send("sent", b.Req("r1", scenario.Header(wire.HeaderAnswer, "sse-split")))
			b.Endings("served", r...)
			b.Quiet("settled", 300*time.Millisecond)
			samplePage(b, "page")
			b.Check("FC-MET-16", "answers", checks.Spec{IDs: r, Then: b.Send("next", b.Req("next1")), Engaged: []string{"served"}})
			b.Endings("next-ended", "next1")
			b.Check("FC-MET-16", "series", checks.Spec{Mark: "page", Names: suffixed(b.Profile.Metrics.OutputTokens, "_sum"), Series: []checks.Series{{Value: 7}}})
			if len(b.Profile.Metrics.FirstToken) == 0 {
				return
			}
			b.Check("FC-MET-16", "series", checks.Spec{Mark: "page", Names: suffixed(b.Profile.Metrics.FirstToken, "_count"), Series: []checks.Series{{Value: 1}}})
		},
	},
	{
		Name: "met-endpoints-go", Title: "The series of an endpoint go with it, and the count of ready ones follows to zero", Needs: []sut.Feature{sut.ScaleToZero, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Util(50, 0.8, 2)
			setLoad(b, 0, load{waiting: 1})
			setLoad(b, 1, load{waiting: 3})
			b.Quiet("both", refreshed)
			samplePage(b, "both-page")
			b.Step(sut.Step{Op: sut.OpRemove, Mark: "one-left", Endpoint: "b"})
			b.Quiet("one", refreshed)
			samplePage(b, "one-page")
			b.Step(sut.Step{Op: sut.OpRemove, Mark: "none-left", Endpoint: "a"})
			b.Quiet("none", refreshed)
			samplePage(b, "none-page")
			for i, mark := range []string{"none-page", "one-page", "both-page"} {
				b.Check("FC-MET-12", "series", checks.Spec{Mark: mark, Names: b.Profile.Metrics.ReadyEndpoints, Series: []checks.Series{{Value: float64(i)}}})
			}
			b.Check("FC-MET-12", "gone", checks.Spec{Before: "both-page", Mark: "one-page", Names: b.Profile.Metrics.PerEndpoint,
				Series: []checks.Series{{Labels: map[string]string{b.Profile.Metrics.EndpointLabel: "b"}}}})
		},
	},
	{
		Name: "met-contract", Title: "The page shows every family of the contract, with its type and labels", Needs: []sut.Feature{sut.Hold, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.MaxRequests = 10
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 2}}
			b.Plug()
			w := b.Queue(b.Req("w1"), b.Req("w2", func(r *sut.Request) { r.Stream = true }))
			over := sendOver(b, b.Req("over1"))
			b.Complete()
			b.Drain()
			odd := b.Send("counted", b.Req("counted1", scenario.PassHold, scenario.Header(wire.HeaderAnswer, "sse-split")))
			b.Endings("counted-ended", odd...)
			b.Quiet("settled", 6*time.Second) // the gauges of the pool are brought up to date every five seconds
			samplePage(b, "page")
			b.Check("FC-MET-11", "families", checks.Spec{Mark: "page", IDs: slices.Concat(w, over, odd), Families: contractFamilies(b.Profile.Name)})
			b.FullCapacity()
		},
	},
	{
		Name: "cap-default-bytes", Title: "The default byte limit of a band", Needs: []sut.Feature{sut.Hold, sut.Metrics}, Alone: true,
		Write: func(b *scenario.Builder) {
			if b.Profile.Metrics.BandBytes == "" {
				return // no gauge relates bytes and limit: cap-default-bytes-filled fills it
			}
			b.Cap(1, 1)
			b.Plug()
			const bodies, size = 25, 4 << 20
			reqs := run(b, "a", bodies, scenario.Size(size))
			b.Step(sut.Step{Op: sut.OpQueue, Mark: "filled", Requests: reqs, Spacing: 10 * time.Millisecond, Limit: 5 * time.Second})
			b.Do(sut.OpSample, "page")
			b.Check("FC-CAP-06", "series", checks.Spec{Mark: "page", Waiting: ids(reqs), Names: []string{b.Profile.Metrics.BandBytes}, Margin: 1e-6,
				Series: []checks.Series{{Labels: map[string]string{"priority": "0"}, Value: bodies * size / 1e9}}})
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: ids(reqs)})
			b.FullCapacity()
		},
	},
	{
		Name: "cap-default-bytes-filled", Title: "The default byte limit of a band, filled", Needs: []sut.Feature{sut.Hold, sut.LargeBodies}, Alone: true, Slow: true,
		Write: func(b *scenario.Builder) {
			if b.Profile.Metrics.BandBytes != "" {
				return // the gauge says the same without a gigabyte
			}
			b.Cap(1, 1)
			b.Plug()
			const size = 60_000_000
			fit := 16 // of 1 000 000 000
			if b.Profile.Name == "rhoai-3.4" {
				fit = 17 // of 1 073 741 824
			}
			reqs := run(b, "a", fit, scenario.Size(size))
			b.Step(sut.Step{Op: sut.OpQueue, Mark: "filled", Requests: reqs, Spacing: 10 * time.Millisecond, Limit: 10 * time.Second})
			over := b.Send("over", b.Req("over1", scenario.Size(size)))
			b.Endings("over-ended", over...)
			b.Quiet("full", 100*time.Millisecond)
			a := b.Profile.Refusals.Capacity
			b.Check("FC-CAP-06", "waiting", checks.Spec{IDs: ids(reqs), Mark: "full", Count: 1})
			b.Check("FC-CAP-06", "refused", checks.Spec{IDs: over, Waiting: ids(reqs), Count: 1, Status: a.Status, Reason: a.Reason, Engaged: []string{"filled"}})
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: ids(reqs)})
			b.Endings("gone", ids(reqs)...)
			b.FullCapacity()
		},
	},
	{
		Name: "ref-only-at-limit", Title: "A capacity refusal is only given when the limit is reached", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 5}}
			b.Plug()
			b.Queue(run(b, "a", 4)...)
			for i := range 3 {
				n := fmt.Sprint(i + 1)
				last := b.Queue(b.Req("fifth" + n))
				sendOver(b, b.Req("over"+n))
				if i == 1 { // a place that is left by its client is free as well
					b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: last})
					b.Endings("gone", last...)
					b.Quiet("cleaned", 1500*time.Millisecond)
				} else {
					b.Steps(1)
				}
			}
			b.Drain()
			a := b.Profile.Refusals.Capacity
			b.Check("FC-REF-16", "at-limit", checks.Spec{Count: 5, Needed: 3, Status: a.Status, Reason: a.Reason, Engaged: []string{"over-ended"}})
			b.FullCapacity()
		},
	},
}

func suffixed(names []string, suffix string) []string {
	var out []string
	for _, n := range names {
		out = append(out, n+suffix)
	}
	return out
}
