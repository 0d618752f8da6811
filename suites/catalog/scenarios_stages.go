package catalog

import (
	"fmt"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// joinLimit is how long a request may wait in an idle pool into which endpoints have just come. The catalogue's figure for the wait is a
// percentile of 50 ms; one request among twenty may meet a machine that is busy otherwise, and the fault lasts for seconds.
const joinLimit = time.Second

// stageScenarios are about what is accounted when, and about endpoints that come, change and grow stale.
var stageScenarios = []scenario.Scenario{
	{
		Name: "sat-prompt-released", Title: "Without estimates the tokens of a prompt count until the first chunk", Needs: held,
		Write: func(b *scenario.Builder) {
			if !tokens(b, "tokens", 800, 1) {
				return
			}
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: []sut.Request{b.Req("whole1", scenario.Prompt(900))}})
			w := b.Queue(b.Req("w1", scenario.Prompt(10)))
			b.Quiet("closed", 300*time.Millisecond)
			b.Drain()
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "streaming", Requests: []sut.Request{b.Req("s1", scenario.Prompt(900), scenario.StreamHeldAfter(1))}})
			b.Quiet("one-chunk", 200*time.Millisecond)
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "beside", Requests: []sut.Request{b.Req("n1", scenario.Prompt(10))}})
			b.Quiet("both", 300*time.Millisecond)
			b.Check("FC-SAT-18", "in-flight", checks.Spec{Mark: "closed", Count: 1, Waiting: w})
			b.Check("FC-SAT-18", "together", checks.Spec{Mark: "both", IDs: []string{"s1", "n1"}})
			b.Drain()
		},
	},
	{
		Name: "sat-output-estimate", Title: "An estimated output counts until the end and shortens nothing", Needs: held,
		Write: func(b *scenario.Builder) {
			if !tokens(b, "tokens", 100, 1) {
				return
			}
			b.Config.Detector.MaxOutput = 100
			long := b.Req("s1", scenario.Prompt(400), scenario.StreamHeldAfter(1), func(r *sut.Request) { r.MaxTokens = 500 })
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "streaming", Requests: []sut.Request{long}})
			b.Quiet("one-chunk", 200*time.Millisecond)
			w := b.Queue(b.Req("w1", scenario.Prompt(10)))
			b.Quiet("closed", 300*time.Millisecond)
			b.Drain()
			b.Check("FC-SAT-19", "in-flight", checks.Spec{Mark: "closed", Count: 1, Waiting: w})
			b.Check("FC-SAT-19", "completed", checks.Spec{IDs: []string{"s1"}, Tokens: 500})
		},
	},
	{
		Name: "sat-fresh-endpoints", Title: "Endpoints that have just joined do not make an idle pool look full", Needs: []sut.Feature{sut.ScaleToZero, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Util(5, 0.8, 4)
			for i := range b.Config.Endpoints {
				b.Config.Endpoints[i].Out = true
			}
			n := 0
			join := func(name string) {
				n++
				mark := fmt.Sprintf("joined-%d", n)
				b.Step(sut.Step{Op: sut.OpAdd, Mark: "added", Endpoint: name})
				r := b.Send("sent", b.Req(fmt.Sprintf("r%d", n)))
				b.Endings("served", r...)
				// Until its first scrape an endpoint has no readings, and counts as one without (spec/endpoint-picker.md §4.4).
				b.Step(sut.Step{Op: sut.OpScript, Mark: "scraped", Endpoint: name, Values: &sut.LoadValues{}})
				b.Do(sut.OpSample, mark)
				b.Check("FC-SAT-26", "arrives", checks.Spec{IDs: r, Within: joinLimit + b.Profile.Tolerances.Slack})
				b.Check("FC-SAT-26", "series", checks.Spec{Mark: mark, Mode: "each", Names: b.Profile.Metrics.PoolSaturation, Series: []checks.Series{{Value: 0.2}}, Margin: 0.29, Engaged: []string{"scraped"}})
			}
			for i := range 4 {
				join(scenario.EndpointName(i))
			}
			b.Step(sut.Step{Op: sut.OpRemove, Mark: "removed", Endpoint: "c"})
			b.Step(sut.Step{Op: sut.OpRemove, Mark: "removed", Endpoint: "d"})
			for range 20 {
				b.Step(sut.Step{Op: sut.OpRemove, Mark: "removed", Endpoint: "b"})
				join("b")
			}
		},
	},
	{
		Name: "pd-split-request", Title: "Prefill load is released at the first chunk, decode load at the end", Needs: []sut.Feature{sut.Hold, sut.Metrics, sut.Stages},
		Write: func(b *scenario.Builder) {
			b.Cap(2, 2)
			b.Config.Endpoints[0].Role, b.Config.Endpoints[1].Role = "prefill", "decode"
			before := []string{"whole1"}
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: []sut.Request{b.Req("whole1")}})
			b.Quiet("no-chunk", 200*time.Millisecond)
			b.Do(sut.OpSample, "before-chunk")
			b.Quiet("no-chunk-after", 50*time.Millisecond)
			b.Drain()
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "streaming", Requests: []sut.Request{b.Req("s1", scenario.StreamHeldAfter(1))}})
			b.Quiet("one-chunk", 200*time.Millisecond)
			b.Do(sut.OpSample, "after-chunk")
			b.Quiet("one-chunk-after", 50*time.Millisecond)
			b.Drain()
			b.Quiet("settled", 200*time.Millisecond)
			b.Do(sut.OpSample, "after-end")
			stages := func(mark string, prefill, decode float64) {
				b.Check("FC-PD-07", "series", checks.Spec{Mark: mark, Names: b.Profile.Metrics.PoolSaturation[:1], Mode: "each", Series: []checks.Series{
					{Labels: map[string]string{"stage": "prefill"}, Value: prefill}, {Labels: map[string]string{"stage": "decode"}, Value: decode}}})
			}
			stages("before-chunk", 0.5, 0.5)
			stages("after-chunk", 0, 0.5)
			stages("after-end", 0, 0)
			b.Check("FC-PD-07", "served-by", checks.Spec{Endpoint: map[string]string{before[0]: "b", "s1": "b"}})
		},
	},
	{
		Name: "pd-stale-stage", Title: "A stale endpoint counts for its own stage, and the other does not hide it", Needs: []sut.Feature{sut.Stages, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Util(20, 0.8, 3)
			b.Config.Detector.Staleness = b.Profile.Tolerances.Staleness
			for i, role := range []string{"prefill", "decode", "decode"} {
				b.Config.Endpoints[i].Role = role
				setLoad(b, i, load{})
			}
			probe(b, "fresh1")
			b.Step(sut.Step{Op: sut.OpFault, Mark: "hanging", Endpoint: "a", Mode: "hang"})
			b.Quiet("grown-stale", 1500*time.Millisecond)
			probe(b, "stale1")
			b.Do(sut.OpSample, "page")
			b.Check("FC-PD-08", "gate", gateSpec(b, []string{"fresh1"}, []string{"stale1"}))
			b.Check("FC-PD-08", "series", checks.Spec{Mark: "page", Names: b.Profile.Metrics.StaleEndpoints, Series: []checks.Series{{Value: 1}}})
		},
	},
	{
		Name: "pd-relabelled", Title: "A changed role moves an endpoint's load to the other stage", Needs: []sut.Feature{sut.Stages},
		Write: func(b *scenario.Builder) {
			b.Util(20, 0.8, 3)
			b.Ceiling(0.8)
			for i, l := range []roleLoad{{"decode", 18}, {"decode", 0}, {"prefill", 0}} {
				b.Config.Endpoints[i].Role = l.role
				setLoad(b, i, load{waiting: l.waiting})
			}
			probe(b, "two1")
			b.Step(sut.Step{Op: sut.OpLabel, Mark: "to-prefill", Endpoint: "b", Mode: "prefill"})
			b.Quiet("known", 2*time.Second)
			probe(b, "one1")
			b.Step(sut.Step{Op: sut.OpLabel, Mark: "to-decode", Endpoint: "b", Mode: "decode"})
			b.Quiet("known-again", 2*time.Second)
			probe(b, "two2")
			b.Check("FC-PD-09", "gate", gateSpec(b, []string{"two1", "two2"}, []string{"one1"}))
		},
	},
	{
		Name: "ceil-prefix", Title: "At every level of saturation the bands that are served are the highest ones", Needs: []sut.Feature{sut.Objectives},
		Write: func(b *scenario.Builder) {
			priorities := []int{100, 50, 10, 0, -10}
			b.Util(20, 0.8, 1)
			b.Bands("", "", priorities...)
			s := checks.Spec{Min: 150 * time.Millisecond}
			if b.Has(sut.Holdback) {
				b.Holdback(0.5, 1.0)
				s.Mode = "some"
			}
			for waiting := range 25 { // 0 to 1.2 of saturation
				setLoad(b, 0, load{waiting: float64(waiting)})
				var level []string
				var reqs []sut.Request
				for _, p := range priorities {
					r := b.Req(fmt.Sprintf("%s-%d", scenario.Objective(p), waiting), scenario.At(p), scenario.Tenant("t"))
					level = append(level, r.ID)
					reqs = append([]sut.Request{r}, reqs...) // the lowest is sent first
				}
				b.Step(sut.Step{Op: sut.OpSend, Mark: "level", Requests: reqs, Spacing: 5 * time.Millisecond})
				b.Quiet("watched", 250*time.Millisecond)
				b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: level})
				b.Endings("ended", level...)
				s.Groups = append(s.Groups, level)
			}
			s.Engaged = []string{"scripted"}
			b.Check("FC-CEIL-13", "prefix", s)
		},
	},
}
