package catalog

import (
	"fmt"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

var saturationScenarios = []scenario.Scenario{
	{
		Name: "sat-closed", Title: "At the ceiling requests wait in the picker", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(2, 1)
			b.Plug()
			more := b.Send("more", b.Req("a1"), b.Req("b1"), b.Req("c1"))
			b.Quiet("closed", time.Second)
			b.Check("FC-SAT-01", "waiting", checks.Spec{IDs: more, Mark: "closed", Count: 2})
			b.FullCapacity()
		},
	},
	{
		Name: "sat-open", Title: "Below the ceiling a request goes at once, and a waiting one as soon as capacity frees", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(2, 1)
			plug := b.Plug()
			b.Check("FC-SAT-02", "arrives", checks.Spec{IDs: plug, Within: 500*time.Millisecond + b.Profile.Tolerances.Slack})
			w := b.Queue(b.Req("w1"))
			b.Complete()
			b.Step(sut.Step{Op: sut.OpRelease, Mark: "freed", IDs: plug[:1]})
			b.Step(sut.Step{Op: sut.OpArrivals, Mark: "opened", IDs: w})
			b.Check("FC-SAT-02", "arrives", checks.Spec{IDs: w, After: "freed", Within: time.Second})
			b.FullCapacity()
		},
	},
	{
		Name: "sat-every-band", Title: "Saturation at 1 stops every band, the highest included", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, 0, -10)
			b.Plug()
			b.Queue(b.Req("low", scenario.At(-10)), b.Req("mid"), b.Req("high", scenario.At(100)))
			b.Quiet("stopped", time.Second)
			b.Check("FC-SAT-03", "waiting", checks.Spec{IDs: []string{"low", "mid", "high"}, Mark: "stopped", Count: 1})
			b.Steps(1)
			b.Check("FC-SAT-03", "arrives", checks.Spec{IDs: []string{"high"}, After: "step", Within: time.Second, Waiting: []string{"low", "mid"}})
			b.FullCapacity()
		},
	},
	{
		Name: "sat-requests-mode", Title: "In-flight requests count over all endpoints", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(2, 2)
			plug := b.Plug()
			w := b.Queue(b.Req("w1"), b.Req("w2"))
			b.Quiet("full", 300*time.Millisecond)
			b.Check("FC-SAT-12", "in-flight", checks.Spec{Mark: "full", Count: 4, Waiting: w})
			b.Step(sut.Step{Op: sut.OpRelease, Mark: "freed", IDs: plug[2:3]})
			b.Step(sut.Step{Op: sut.OpArrivals, Mark: "opened", IDs: w[:1]})
			b.Quiet("again", 300*time.Millisecond)
			b.Check("FC-SAT-12", "arrives", checks.Spec{IDs: w[:1], After: "freed", Within: time.Second, Waiting: w[1:]})
			b.Check("FC-SAT-12", "in-flight", checks.Spec{Mark: "again", Count: 4, Waiting: w[1:]})
			b.FullCapacity()
		},
	},
	longAndShort("sat-long-and-short", 10, 8000),
	longAndShort("sat-long-and-long", 8000, 8000),
	longAndShort("sat-short-and-short", 10, 10),
	{
		Name: "sat-queued-do-not-count", Title: "Queued requests do not raise saturation", Needs: held,
		Write: func(b *scenario.Builder) {
			if !b.Profile.Config.ConcurrencyDetector {
				b.Cap(2, 1)
			} else {
				b.Cap(4, 1)
				b.Ceiling(0.5)
			}
			plug := b.Plug()
			w := b.Queue(run(b, "a", 20)...)
			b.Quiet("deep", 300*time.Millisecond)
			b.Check("FC-SAT-23", "in-flight", checks.Spec{Mark: "deep", Count: 2, Waiting: w})
			b.Step(sut.Step{Op: sut.OpRelease, Mark: "freed", IDs: plug[:1]})
			b.Step(sut.Step{Op: sut.OpArrivals, Mark: "opened", IDs: w[:1]})
			b.Quiet("again", 300*time.Millisecond)
			b.Check("FC-SAT-23", "in-flight", checks.Spec{Mark: "again", Count: 2, Waiting: w[1:]})
			b.FullCapacity()
		},
	},
	utilCeiling("sat-mean-closed", "FC-SAT-04", "Two endpoints at 0.50 and 1.00 make 0.75: above a threshold of 0.70", 4, 0.70, false, load{2, 0.40}, load{4, 0.20}),
	utilCeiling("sat-mean-open", "FC-SAT-04", "Two endpoints at 0.50 and 1.00 make 0.75: below a threshold of 0.80", 4, 0.80, true, load{2, 0.40}, load{4, 0.20}),
	utilCeiling("sat-mean-full", "FC-SAT-04", "Two endpoints at 0.50 and 1.50 make 1.00: closed", 4, 1.0, false, load{2, 0.40}, load{6, 0.20}),
	utilCeiling("sat-mean-below", "FC-SAT-04", "Two endpoints at 0.50 and 1.25 make 0.875: open", 4, 1.0, true, load{2, 0.40}, load{5, 0.20}),
	utilCeiling("sat-larger-open", "FC-SAT-06", "Per endpoint the larger pressure counts: 0.60 is below 0.65", 5, 0.65, true, load{3, 0.40}),
	utilCeiling("sat-larger-closed", "FC-SAT-06", "Per endpoint the larger pressure counts: 0.60 is above 0.58", 5, 0.58, false, load{3, 0.40}),
	utilCeiling("sat-not-the-sum", "FC-SAT-06", "Per endpoint the larger pressure counts: 0.60 and 0.50 do not add up to 1.10", 5, 1.0, true, load{3, 0.40}),
	utilCeiling("sat-not-the-average", "FC-SAT-06", "Per endpoint the larger pressure counts: 1.00 and 0.50 are not averaged", 5, 1.0, false, load{5, 0.40}),
	utilCeiling("sat-half-open", "FC-SAT-07", "One full and one idle endpoint leave the pool at one half: open at 1.0", 5, 1.0, true, load{5, 0}, load{0, 0}),
	utilCeiling("sat-half-closed", "FC-SAT-07", "One full and one idle endpoint leave the pool at one half: closed at 0.5", 5, 0.5, false, load{5, 0}, load{0, 0}),
	inclusive("sat-inclusive", "FC-SAT-05", "A value equal to its threshold closes the gate, just below it stays open", func(b *scenario.Builder) { b.Util(5, 0.8, 1) }),
	inclusive("sat-default-detector", "FC-CFG-04", "The default detector is utilization with waiting 5 and KV 0.80", func(b *scenario.Builder) {
		b.Util(5, 0.8, 1)
		b.Config.Detector = sut.Detector{}
	}),
	stale("sat-default-staleness", "FC-CFG-04", "By default readings older than 200 ms count as saturated", func(b *scenario.Builder) {
		b.Util(5, 0.8, 1)
		b.Config.Detector = sut.Detector{}
	}),
	inclusive("cfg-inline-detector", "FC-CFG-16", "The older top-level thresholds are accepted and effective", func(b *scenario.Builder) {
		if b.Profile.Config.Detector == "inline" {
			b.Util(5, 0.8, 1)
		}
	}),
	tuned(2, 0.50), tuned(5, 0.80), tuned(8, 0.90),
	stale("sat-stale", "FC-SAT-09", "Readings older than the staleness limit count as saturated", func(b *scenario.Builder) {
		b.Util(5, 0.8, 1)
		b.Config.Detector.Staleness = b.Profile.Tolerances.Staleness
	}),
	utilStages("pd-closed", "Prefill 0.65 and decode 0.90 are governed by 0.90: closed at 0.80", 0.80, false),
	utilStages("pd-open", "Prefill 0.65 and decode 0.90 are governed by 0.90: open at 0.95", 0.95, true),
}

// longAndShort holds two requests of the given prompt lengths at a capacity of two; a third of the other length waits.
func longAndShort(name string, first, second int) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: "In requests mode a long and a short call count the same", Needs: held, Write: func(b *scenario.Builder) {
		b.Cap(2, 1)
		b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: []sut.Request{b.Req("one", scenario.Prompt(first)), b.Req("two", scenario.Prompt(second))}})
		w := b.Queue(b.Req("w1", scenario.Prompt(8010-second)))
		b.Quiet("full", 300*time.Millisecond)
		b.Check("FC-SAT-13", "in-flight", checks.Spec{Mark: "full", Count: 2, Waiting: w})
		b.FullCapacity()
	}}
}

type load struct{ waiting, kv float64 }

// setLoad scripts one endpoint and waits until the router knows it.
func setLoad(b *scenario.Builder, i int, l load) {
	b.Step(sut.Step{Op: sut.OpScript, Mark: "scripted", Endpoint: scenario.EndpointName(i), Values: &sut.LoadValues{Waiting: l.waiting, KV: l.kv}})
}

// probe sends one request and says whether the gate must let it through.
func probe(b *scenario.Builder, id string) {
	b.Step(sut.Step{Op: sut.OpProbe, Mark: id, Requests: []sut.Request{b.Req(id, scenario.Tenant("probe"))}})
}

// gateSpec is the expectation of probes: seen within 500 ms (and the harness's own slack), or unseen until the harness takes them back,
// which it does 500 ms after it asked for them to be sent; a busy machine may send a little later (spec/requirements.md, "open / closed").
func gateSpec(b *scenario.Builder, open, closed []string) checks.Spec {
	return checks.Spec{Open: open, Closed: closed, Within: 500*time.Millisecond + b.Profile.Tolerances.Slack, Min: 400 * time.Millisecond, Engaged: []string{"scripted"}}
}

// utilCeiling scripts the endpoints and probes once against a static threshold. Then it sets everything to idle and probes again: a
// gate that never opens shows nothing about the value.
func utilCeiling(name, id, title string, q int, threshold float64, open bool, loads ...load) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Write: func(b *scenario.Builder) {
		if threshold != 1.0 && b.Profile.Config.Detector == "inline" {
			return // this contract stops at 1 and knows no other ceiling (K30)
		}
		b.Util(q, 0.8, len(loads))
		if threshold != 1.0 {
			b.Ceiling(threshold)
		}
		for i, l := range loads {
			setLoad(b, i, l)
		}
		probe(b, "probe1")
		for i := range loads {
			setLoad(b, i, load{})
		}
		probe(b, "idle1")
		for i := range loads {
			setLoad(b, i, load{waiting: float64(q)})
		}
		probe(b, "full1")
		if open {
			b.Check(id, "gate", gateSpec(b, []string{"probe1", "idle1"}, []string{"full1"}))
		} else {
			b.Check(id, "gate", gateSpec(b, []string{"idle1"}, []string{"probe1", "full1"}))
		}
	}}
}

// inclusive walks one endpoint over both thresholds.
func inclusive(name, id, title string, configure func(*scenario.Builder)) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Write: func(b *scenario.Builder) {
		configure(b)
		if len(b.Config.Endpoints) == 0 {
			return // not of this contract
		}
		steps := []struct {
			load
			open bool
		}{{load{4, 0}, true}, {load{5, 0}, false}, {load{0, 0.79}, true}, {load{0, 0.80}, false}, {load{0, 0}, true}}
		var open, closed []string
		for i, s := range steps {
			setLoad(b, 0, s.load)
			p := fmt.Sprintf("probe%d", i+1)
			probe(b, p)
			if s.open {
				open = append(open, p)
			} else {
				closed = append(closed, p)
			}
		}
		b.Check(id, "gate", gateSpec(b, open, closed))
	}}
}

// stale lets the metrics page hang: an idle endpoint must close the gate once its last reading is too old, and open it again after.
func stale(name, id, title string, configure func(*scenario.Builder)) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Write: func(b *scenario.Builder) {
		configure(b)
		setLoad(b, 0, load{})
		probe(b, "fresh1")
		b.Step(sut.Step{Op: sut.OpFault, Mark: "hanging", Endpoint: "a", Mode: "hang"})
		b.Quiet("grown-stale", 1500*time.Millisecond)
		probe(b, "stale1")
		b.Step(sut.Step{Op: sut.OpFault, Mark: "healed", Endpoint: "a", Mode: "none"})
		setLoad(b, 0, load{})
		probe(b, "healed1")
		b.Check(id, "gate", gateSpec(b, []string{"fresh1", "healed1"}, []string{"stale1"}))
	}}
}

// tuned walks one endpoint over the boundaries of the given thresholds.
func tuned(q int, kv float64) scenario.Scenario {
	name := fmt.Sprintf("cfg-thresholds-%d-%02.0f", q, kv*100)
	return scenario.Scenario{Name: name, Title: fmt.Sprintf("Waiting %d and KV %.2f are effective thresholds", q, kv), Write: func(b *scenario.Builder) {
		b.Util(q, kv, 1)
		var open, closed []string
		at := func(id string, l load, is *[]string) {
			setLoad(b, 0, l)
			probe(b, id)
			*is = append(*is, id)
		}
		at("below-waiting", load{waiting: float64(q - 1)}, &open)
		at("at-waiting", load{waiting: float64(q)}, &closed)
		at("below-kv", load{kv: kv - 0.01}, &open)
		at("at-kv", load{kv: kv}, &closed)
		b.Check("FC-CFG-05", "gate", gateSpec(b, open, closed))
	}}
}

func utilStages(name, title string, threshold float64, open bool) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: title, Needs: []sut.Feature{sut.Stages}, Write: func(b *scenario.Builder) {
		b.Util(20, 0.8, 2)
		b.Config.Endpoints[0].Role, b.Config.Endpoints[1].Role = "prefill", "decode"
		b.Ceiling(threshold)
		setLoad(b, 0, load{waiting: 13})
		setLoad(b, 1, load{waiting: 18})
		probe(b, "probe1")
		setLoad(b, 0, load{})
		setLoad(b, 1, load{})
		probe(b, "idle1")
		if open {
			b.Check("FC-PD-01", "gate", gateSpec(b, []string{"probe1", "idle1"}, nil))
		} else {
			b.Check("FC-PD-01", "gate", gateSpec(b, []string{"idle1"}, []string{"probe1"}))
		}
	}}
}
