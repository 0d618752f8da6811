package catalog

import (
	"fmt"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

var gateScenarios = []scenario.Scenario{
	utilCeiling("sat-above-one", "FC-SAT-08", "Endpoint values are not cut at 1: 4.0 and 0 make 2.0", 5, 1.0, false, load{20, 0}, load{0, 0}),
	staleBeside("sat-stale-beside-closed", 0.70, false),
	staleBeside("sat-stale-beside-open", 0.80, true),
	{
		Name: "sat-tokens", Title: "Tokens mode counts the tokens in flight", Needs: held,
		Write: func(b *scenario.Builder) {
			if !tokens(b, "tokens", 1000, 1) {
				return
			}
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: run(b, "t", 3, scenario.Prompt(400))})
			w := b.Queue(b.Req("w1", scenario.Prompt(400)))
			b.Quiet("full", 300*time.Millisecond)
			b.Check("FC-SAT-14", "in-flight", checks.Spec{Mark: "full", Count: 3, Waiting: w})
			b.Drain()
		},
	},
	tokenLevel("cfg-tokens-20k", 20000, 20),
	tokenLevel("cfg-tokens-75k", 75000, 75),
	requestLevel("cfg-requests-48", 48), requestLevel("cfg-requests-160", 160),
	{
		Name: "sat-tokens-only", Title: "Tokens mode reads no engine pressure",
		Write: func(b *scenario.Builder) {
			if !tokens(b, "tokens", 1000, 1) {
				return
			}
			b.Config.Hold = false
			b.Step(sut.Step{Op: sut.OpScript, Mark: "scripted", Endpoint: "a", Values: &sut.LoadValues{Waiting: 100, KV: 0.99}})
			probe(b, "probe1")
			b.Check("FC-SAT-15", "gate", gateSpec(b, []string{"probe1"}, nil))
		},
	},
	hybridLevel("sat-hybrid-closed", 0.45, false), hybridLevel("sat-hybrid-open", 0.55, true),
	{
		Name: "sat-burst", Title: "A burst does not run past the limit", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(10, 1)
			allowance := 0
			if !b.Profile.Config.ConcurrencyDetector {
				allowance = 60 // of what is dispatched between two readings
			}
			b.Step(sut.Step{Op: sut.OpSend, Mark: "burst", Requests: run(b, "a", 200), Spacing: time.Microsecond})
			b.Quiet("settled", time.Second)
			b.Drain()
			b.Check("FC-SAT-22", "peak", checks.Spec{Count: 10 + allowance, Needed: 10})
			b.FullCapacity()
		},
	},
	{
		Name: "sat-shallow-engine", Title: "With a waiting threshold of one the queue stays in the picker",
		Write: func(b *scenario.Builder) {
			b.Util(1, 0.8, 1)
			b.Config.Preset, b.Config.MaxSeqs = "h100-llama3.1-8b", 1
			var reqs []sut.Request
			for i := range 20 {
				reqs = append(reqs, b.Req(fmt.Sprintf("a%d", i+1), func(r *sut.Request) { r.MaxTokens = 80 }))
			}
			sent := b.Send("sent", reqs...)
			b.Step(sut.Step{Op: sut.OpEndings, Mark: "served", IDs: sent, Limit: 30 * time.Second})
			// One running, one waiting, and what was dispatched since the last reading.
			b.Check("FC-SAT-24", "peak", checks.Spec{Count: 4, Needed: 2})
			b.Check("FC-SAT-24", "completed", checks.Spec{IDs: sent})
		},
	},
	{
		Name: "head-strictly-below", Title: "The filter keeps an endpoint only strictly below its threshold", Needs: []sut.Feature{sut.Hold, sut.Subset},
		Write: func(b *scenario.Builder) {
			if !pulledToA(b, 10, 0.1) {
				return
			}
			b.PlugN(10, scenario.To("a"))
			b.Quiet("at-ten", 100*time.Millisecond)
			aimless(b, "FC-HEAD-06", "a", "at-ten", 10, map[string]int{"a": 10, "b": 0})
			b.PlugN(1, scenario.To("a"))
			b.Quiet("at-eleven", 100*time.Millisecond)
			aimlessNamed(b, "FC-HEAD-06", "eleven", "b", "at-eleven", 11, map[string]int{"a": 11, "b": 0})
			b.FullCapacity()
		},
	},
	{
		Name: "head-tokens", Title: "In tokens mode headroom raises the token boundary", Needs: []sut.Feature{sut.Hold, sut.Subset},
		Write: func(b *scenario.Builder) {
			if !tokens(b, "tokens", 1000, 2) {
				return
			}
			b.Config.Detector.Headroom = 0.1
			b.Config.Scorer = "queue-scorer"
			setLoad(b, 1, load{waiting: 50})
			setLoad(b, 0, load{})
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: run(b, "t", 3, scenario.Prompt(350), scenario.To("a"))})
			b.Quiet("at-1050", 100*time.Millisecond)
			aimless(b, "FC-HEAD-12", "a", "at-1050", 3, map[string]int{"a": 3, "b": 0})
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: []sut.Request{b.Req("t4", scenario.Prompt(100), scenario.To("a"))}})
			b.Quiet("at-1150", 100*time.Millisecond)
			aimlessNamed(b, "FC-HEAD-12", "above", "b", "at-1150", 4, map[string]int{"a": 4, "b": 0})
			b.Drain()
		},
	},
	{
		Name: "head-all-excluded", Title: "A request for a full endpoint is served by a fail-open filter, or refused 429", Needs: []sut.Feature{sut.Hold, sut.Subset},
		Write: func(b *scenario.Builder) {
			if !b.Profile.Config.ConcurrencyDetector {
				return
			}
			b.Cap(2, 2)
			b.PlugN(2, scenario.To("a"))
			full := checks.Spec{Mark: "a-full", Count: 2, Counts: map[string]int{"a": 2, "b": 0}}
			b.Quiet("a-full", 100*time.Millisecond)
			r := b.Send("aimed", b.Req("aimed1", scenario.To("a")))
			b.Quiet("settled", 300*time.Millisecond)
			b.Drain()
			for _, id := range []string{"FC-HEAD-08", "FC-REF-13"} {
				if b.Profile.Config.DetectorInProfile {
					full.Endpoint = map[string]string{r[0]: "a"}
					b.Check(id, "served-by", full)
				} else {
					b.Check(id, "refused", checks.Spec{IDs: r, Count: 2, Status: 429})
				}
			}
			b.FullCapacity()
		},
	},
	utilHeadroom("head-waiting", load{5, 0}, load{0, 0.5}, load{6, 0}, "kv-cache-utilization-scorer"),
	utilHeadroom("head-kv", load{0, 0.95}, load{1, 0.2}, load{0, 0.96}, "queue-scorer"),
	{
		Name: "head-stale", Title: "An endpoint with stale readings receives nothing while another is fresh",
		Write: func(b *scenario.Builder) {
			if b.Profile.Config.Detector == "inline" {
				return
			}
			b.Util(5, 0.8, 2)
			b.Config.Scorer = "queue-scorer"
			b.Config.Detector.Staleness = b.Profile.Tolerances.Staleness
			setLoad(b, 0, load{})
			setLoad(b, 1, load{waiting: 1})
			b.Step(sut.Step{Op: sut.OpFault, Mark: "hanging", Endpoint: "a", Mode: "hang"})
			b.Quiet("grown-stale", 1500*time.Millisecond)
			answered(b, "FC-HEAD-13", "stale", "b", 20)
		},
	},
	{
		Name: "head-all-stale", Title: "With every endpoint stale the filter excludes nobody",
		Write: func(b *scenario.Builder) {
			if b.Profile.Config.Detector == "inline" {
				return
			}
			b.Util(5, 0.8, 2)
			b.Config.Ceiling = sut.Ceiling{Kind: "static", Threshold: 2}
			b.Config.Detector.Staleness = b.Profile.Tolerances.Staleness
			for i := range 2 {
				setLoad(b, i, load{})
				b.Step(sut.Step{Op: sut.OpFault, Mark: "hanging", Endpoint: scenario.EndpointName(i), Mode: "hang"})
			}
			b.Quiet("grown-stale", 1500*time.Millisecond)
			probe(b, "probe1")
			b.Check("FC-HEAD-13", "gate", gateSpec(b, []string{"probe1"}, nil))
		},
	},
	twoChecks("head-2x2-open-below", 8, 7, true, "a"),
	twoChecks("head-2x2-open-at", 11, 4, true, "b"),
	twoChecks("head-2x2-closed-below", 10, 7, false, "a"),
	twoChecks("head-2x2-closed-at", 11, 6, false, "b"),
	roles("pd-idle-prefill", "FC-PD-02", "Idle prefill endpoints do not relieve decode", 0.80, false,
		roleLoad{"decode", 18}, roleLoad{"prefill", 0}, roleLoad{"prefill", 0}, roleLoad{"prefill", 0}, roleLoad{"prefill", 0}),
	roles("pd-idle-decode", "FC-PD-02", "An idle decode endpoint does", 0.80, true, roleLoad{"decode", 18}, roleLoad{"decode", 0}, roleLoad{"prefill", 0}),
	roles("pd-mirrored", "FC-PD-03", "The higher stage governs whichever it is", 0.80, false, roleLoad{"prefill", 18}, roleLoad{"decode", 2}),
	roles("pd-both-closed", "FC-PD-04", "A combined endpoint counts in both stages: closed", 1.0, false, roleLoad{"prefill", 4}, roleLoad{"decode", 4}, roleLoad{"prefill-decode", 36}),
	roles("pd-both-open", "FC-PD-04", "A combined endpoint counts in both stages: open", 0.70, true, roleLoad{"prefill", 4}, roleLoad{"decode", 4}, roleLoad{"prefill-decode", 20}),
	roles("pd-values-closed", "FC-PD-05", "Each role value counts in its stages: closed", 0.65, false,
		roleLoad{"encode-prefill", 20}, roleLoad{"", 2}, roleLoad{"both", 10}, roleLoad{"encode-prefill-decode", 10}, roleLoad{"encode", 100}),
	roles("pd-values-open", "FC-PD-05", "Each role value counts in its stages: open", 0.75, true,
		roleLoad{"encode-prefill", 20}, roleLoad{"", 2}, roleLoad{"both", 10}, roleLoad{"encode-prefill-decode", 10}, roleLoad{"encode", 100}),
	roles("pd-decode-only-closed", "FC-PD-06", "A pool of decode endpoints is one fleet: closed", 0.70, false, roleLoad{"decode", 10}, roleLoad{"decode", 20}),
	roles("pd-decode-only-open", "FC-PD-06", "A pool of decode endpoints is one fleet: open", 0.80, true, roleLoad{"decode", 10}, roleLoad{"decode", 20}),
}

// tokens configures n holding endpoints with the concurrency detector in a mode with a token limit; false if the contract has none.
func tokens(b *scenario.Builder, mode string, limit, n int) bool {
	if !b.Profile.Config.ConcurrencyDetector {
		return false
	}
	b.Cap(10, n)
	b.Config.Detector = sut.Detector{Kind: "concurrency", Mode: mode, MaxTokens: limit}
	return true
}

// tokenLevel fills a token limit with requests of 1000 tokens.
func tokenLevel(name string, limit, level int) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: fmt.Sprintf("A limit of %d tokens holds %d requests of 1000", limit, level), Needs: held,
		Write: func(b *scenario.Builder) {
			if !tokens(b, "tokens", limit, 1) {
				return
			}
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: run(b, "t", level, scenario.Prompt(1000)), Spacing: 5 * time.Millisecond})
			w := b.Queue(b.Req("w1", scenario.Prompt(1000)))
			b.Quiet("full", 300*time.Millisecond)
			b.Check("FC-CFG-08", "in-flight", checks.Spec{Mark: "full", Count: level, Waiting: w})
			b.Drain()
		}}
}

// requestLevel fills a request limit exactly.
func requestLevel(name string, limit int) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: fmt.Sprintf("A limit of %d requests holds exactly so many", limit), Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(limit, 1)
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: run(b, "t", limit), Spacing: 5 * time.Millisecond})
			w := b.Queue(b.Req("w1"))
			b.Quiet("full", 300*time.Millisecond)
			b.Check("FC-CFG-08", "in-flight", checks.Spec{Mark: "full", Count: limit, Waiting: w})
			b.Drain()
		}}
}

// hybridLevel places 2 requests of 350 tokens on a (requests 0.2, tokens 0.7) and 3 small ones on b (0.3, 0.0): the mean of the larger
// ratios is 0.50, the mean of requests 0.25, that of tokens 0.36.
func hybridLevel(name string, threshold float64, open bool) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: "Hybrid mode averages the larger ratio of each endpoint", Needs: []sut.Feature{sut.Hold, sut.Subset, sut.Holdback},
		Write: func(b *scenario.Builder) {
			if !tokens(b, "hybrid", 1000, 2) {
				return
			}
			b.Config.Detector.MaxConcurrency = 10
			b.Config.Ceiling = sut.Ceiling{Kind: "static", Threshold: threshold}
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: run(b, "s", 3, scenario.To("b"))})
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: run(b, "l", 2, scenario.Prompt(350), scenario.To("a"))})
			b.Quiet("placed", 100*time.Millisecond)
			w := b.Send("asked", b.Req("w1"))
			b.Quiet("asked-after", 500*time.Millisecond)
			at := map[string]int{"a": 2, "b": 3}
			if open {
				b.Check("FC-SAT-16", "served-by", checks.Spec{Endpoint: map[string]string{"l1": "a", "l2": "a", "s1": "b"}, Mark: "placed", Count: 5, Counts: at})
				b.Check("FC-SAT-16", "arrives", checks.Spec{IDs: w, Within: 500*time.Millisecond + b.Profile.Tolerances.Slack})
			} else {
				b.Check("FC-SAT-16", "waiting", checks.Spec{IDs: w, Mark: "asked-after", Count: 5, Counts: at})
			}
			b.Drain()
		}}
}

// staleBeside leaves one endpoint stale (1.0) beside one at 0.5: 0.75.
func staleBeside(name string, threshold float64, open bool) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: "A stale endpoint counts 1.0 beside one at 0.50", Write: func(b *scenario.Builder) {
		b.Util(4, 0.8, 2)
		if b.Profile.Config.Detector != "inline" {
			b.Config.Ceiling = sut.Ceiling{Kind: "static", Threshold: threshold}
		} else if !open {
			return // the ceiling of this contract is 1.0
		}
		b.Config.Detector.Staleness = b.Profile.Tolerances.Staleness
		setLoad(b, 0, load{})
		setLoad(b, 1, load{waiting: 2})
		probe(b, "fresh1")
		b.Step(sut.Step{Op: sut.OpFault, Mark: "hanging", Endpoint: "a", Mode: "hang"})
		b.Quiet("grown-stale", 1500*time.Millisecond)
		probe(b, "stale1")
		if open {
			setLoad(b, 1, load{waiting: 4})
			probe(b, "full1")
			b.Check("FC-SAT-10", "gate", gateSpec(b, []string{"fresh1", "stale1"}, []string{"full1"}))
		} else {
			b.Check("FC-SAT-10", "gate", gateSpec(b, []string{"fresh1"}, []string{"stale1"}))
		}
	}}
}

// pulledToA configures two endpoints of limit k with headroom and a scorer that always prefers a, so that only the filter sends elsewhere.
func pulledToA(b *scenario.Builder, k int, headroom float64) bool {
	if !b.Profile.Config.ConcurrencyDetector {
		return false
	}
	b.Cap(k, 2)
	b.Config.Detector.Headroom = headroom
	b.Config.Scorer = "queue-scorer"
	setLoad(b, 1, load{waiting: 50})
	setLoad(b, 0, load{})
	return true
}

// aimlessNamed is aimless with ids of its own, for a second round in one scenario.
func aimlessNamed(b *scenario.Builder, requirement, round, endpoint, mark string, inFlight int, loads map[string]int) {
	want := map[string]string{}
	for i := range 20 {
		r := b.Req(fmt.Sprintf("%s-%s-%d", strings.ToLower(requirement), round, i+1), scenario.Tenant("aimless"))
		want[r.ID] = endpoint
		b.Step(sut.Step{Op: sut.OpPlug, Mark: "aimless", Requests: []sut.Request{r}})
		b.Step(sut.Step{Op: sut.OpRelease, Mark: "released", IDs: []string{r.ID}})
		b.Endings("ended", r.ID)
	}
	b.Check(requirement, "served-by", checks.Spec{Endpoint: want, Mark: mark, Count: inFlight, Counts: loads})
}

// answered sends n requests one after the other to servers that answer at once, and expects all at one endpoint.
func answered(b *scenario.Builder, requirement, round, endpoint string, n int) {
	want := map[string]string{}
	for i := range n {
		id := fmt.Sprintf("%s-%d", round, i+1)
		want[id] = endpoint
		b.Step(sut.Step{Op: sut.OpSend, Mark: "sent", Requests: []sut.Request{b.Req(id, scenario.Tenant("aimless"))}, Spacing: time.Millisecond})
		b.Endings("ended", id)
	}
	b.Check(requirement, "served-by", checks.Spec{Endpoint: want})
}

// utilHeadroom holds b's pressure below a's in the scorer's eyes and walks a over its raised boundary.
func utilHeadroom(name string, below, other, at load, scorer string) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: "Utilization headroom raises the boundary of an endpoint, strictly", Write: func(b *scenario.Builder) {
		if b.Profile.Config.Detector == "inline" {
			return
		}
		b.Util(5, 0.8, 2)
		b.Config.Detector.Headroom = 0.2
		b.Config.Scorer = scorer
		setLoad(b, 1, other)
		setLoad(b, 0, below)
		answered(b, "FC-HEAD-07", "below", "a", 20)
		setLoad(b, 0, at)
		answered(b, "FC-HEAD-07", "at", "b", 20)
	}}
}

// twoChecks is one cell of the 2x2 design: the pool below or above the low ceiling, endpoint a below or at its threshold.
func twoChecks(name string, onA, onB int, open bool, endpoint string) scenario.Scenario {
	return headroomCase(name, onA, onB, func(b *scenario.Builder) {
		at := map[string]int{"a": onA, "b": onB}
		b.Quiet("placed", 100*time.Millisecond)
		if open {
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "asked", Requests: []sut.Request{b.Req("low1")}})
			b.Check("FC-HEAD-10", "served-by", checks.Spec{Endpoint: map[string]string{"low1": endpoint}, Mark: "placed", Count: onA + onB, Counts: at})
			return
		}
		low := b.Queue(b.Req("low1"))
		b.Quiet("low-waits", 500*time.Millisecond)
		b.Check("FC-HEAD-10", "waiting", checks.Spec{IDs: low, Mark: "low-waits", Count: onA + onB, Counts: at})
		aimless(b, "FC-HEAD-10", endpoint, "low-waits", onA+onB, at)
	})
}

type roleLoad struct {
	role    string
	waiting float64
}

// roles scripts endpoints of given roles against util(20, 0.8) and probes once; then everything is idle and the gate must be open.
func roles(name, id, title string, threshold float64, open bool, loads ...roleLoad) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Needs: []sut.Feature{sut.Stages}, Write: func(b *scenario.Builder) {
		b.Util(20, 0.8, len(loads))
		if threshold != 1.0 {
			b.Ceiling(threshold)
		}
		for i, l := range loads {
			b.Config.Endpoints[i].Role = l.role
			setLoad(b, i, load{waiting: l.waiting})
		}
		probe(b, "probe1")
		for i := range loads {
			setLoad(b, i, load{})
		}
		probe(b, "idle1")
		if open {
			b.Check(id, "gate", gateSpec(b, []string{"probe1", "idle1"}, nil))
		} else {
			b.Check(id, "gate", gateSpec(b, []string{"idle1"}, []string{"probe1"}))
		}
	}}
}
