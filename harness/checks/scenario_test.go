package checks_test

import (
	"fmt"
	"math"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/verdict"
)

const (
	pass         = verdict.Pass
	fail         = verdict.Fail
	inconclusive = verdict.Inconclusive
	unstated     = verdict.NotApplicable
)

// trial is one history with the verdict that a check must give on it.
type trial struct {
	check string
	kind  string // passing, failing, empty, degenerate
	says  string
	spec  checks.Spec
	hist  *hist
	want  verdict.Kind
}

var (
	orderSpec  = checks.Spec{Mark: "queued", Groups: [][]string{{"a1"}, {"b1"}, {"a2"}}}
	waitSpec   = checks.Spec{Mark: "queued", IDs: []string{"a1", "b1"}, Count: 1, Counts: map[string]int{"a": 1}}
	limitSpec  = checks.Spec{Mark: "queued", Count: 1, Counts: map[string]int{"a": 1}, Waiting: []string{"a1", "b1"}}
	arriveSpec = checks.Spec{IDs: []string{"a1"}, After: "freed", Within: time.Second, Waiting: []string{"b1", "a2"}}
	oneSpec    = checks.Spec{Mark: "one", IDs: []string{"a1", "b1", "a2"}, Needed: 3}
	servedSpec = checks.Spec{Mark: "queued", Count: 1, Endpoint: map[string]string{"a1": "a", "b1": "a"}}
	doneSpec   = checks.Spec{IDs: []string{"plug1"}, Min: 900 * time.Millisecond}
)

// loosed has the second and third in the wrong order, and a release that was not answered until an instant.
func loosed(until int) *hist {
	h := queue().b("a2", arrivesAt(1051))
	h.r.Steps = append(h.r.Steps, evidence.Step{Op: "step", Start: at(900), End: at(until), Detail: "no arrival within 1s"})
	return h
}

var queueTrials = []trial{
	{"order", "passing", "three leave in the order of their groups", orderSpec, queue(), pass},
	{"order", "passing", "inside a group any order will do", checks.Spec{Mark: "queued", Groups: [][]string{{"b1", "a1"}, {"a2"}}}, queue(), pass},
	{"order", "failing", "the second and third change places", orderSpec, queue().b("a2", arrivesAt(1051)), fail},
	{"order", "failing", "one of them is never dispatched", orderSpec, queue().unseen("a2"), fail},
	{"order", "degenerate", "the second and third change places after everything was let go at once", orderSpec, loosed(1040), inconclusive},
	{"order", "failing", "they had changed places before", orderSpec, loosed(1060), fail},
	{"order", "degenerate", "one request has no order", checks.Spec{Mark: "queued", Groups: [][]string{{"a1"}}}, queue(), inconclusive},
	{"order", "degenerate", "one group has no order", checks.Spec{Mark: "queued", Groups: [][]string{{"a1", "b1", "a2"}}}, queue(), inconclusive},
	{"order", "degenerate", "an empty group", checks.Spec{Mark: "queued", Groups: [][]string{{"a1"}, {}}}, queue(), inconclusive},
	{"order", "degenerate", "the queue was never complete", orderSpec, queue().without("queued"), inconclusive},
	{"order", "degenerate", "the step that completes the queue failed", orderSpec, queue().broken("queued"), inconclusive},
	{"order", "degenerate", "the step that completes the queue took no time", orderSpec, queue().without("queued").step("queued", 500, 500), inconclusive},
	{"order", "degenerate", "two of different groups arrive at one instant, and their ids happen to be in order", orderSpec, queue().b("b1", arrivesAt(1001)), inconclusive},
	{"order", "degenerate", "one had already been dispatched when the queue was complete", orderSpec, queue().b("a1", arrivesAt(300)), inconclusive},
	{"order", "degenerate", "one was sent after the queue was complete", orderSpec, queue().c("a2", func(c *evidence.Client) { c.Sent = at(600) }), inconclusive},
	{"order", "degenerate", "one was refused before the queue was complete", orderSpec, queue().c("a2", func(c *evidence.Client) { c.End = at(400) }), inconclusive},
	{"order", "degenerate", "a record without an arrival is no arrival", orderSpec, queue().b("a1", arrivesNever), inconclusive},
	{"order", "degenerate", "a later arrival of the same request changes nothing", orderSpec, queue().backend("a1", "a", 1250, 1300, evidence.Finished), pass},
	{"order", "degenerate", "a request without a client record", orderSpec, queue().unsent("b1"), inconclusive},

	{"waiting", "passing", "two wait behind a full slot", waitSpec, queue(), pass},
	{"waiting", "failing", "one is dispatched while it should wait", waitSpec, queue().b("b1", arrivesAt(300)), fail},
	{"waiting", "failing", "one is refused while it should wait", waitSpec, queue().unseen("b1").c("b1", func(c *evidence.Client) { c.End, c.Outcome, c.Status = at(300), evidence.Refused, 429 }), fail},
	{"waiting", "degenerate", "nothing is in flight", waitSpec, queue().unseen("plug1"), inconclusive},
	{"waiting", "degenerate", "the one in flight is at another endpoint", waitSpec, queue().b("plug1", func(b *evidence.Backend) { b.Endpoint = "z" }), inconclusive},
	{"waiting", "degenerate", "sent only after the watch began", waitSpec, queue().c("b1", func(c *evidence.Client) { c.Sent = at(250) }), inconclusive},
	{"waiting", "degenerate", "never sent", waitSpec, queue().c("b1", sentNever), inconclusive},
	{"waiting", "degenerate", "no ids", checks.Spec{Mark: "queued", Count: 1}, queue(), inconclusive},
	{"waiting", "degenerate", "the watch took no time", waitSpec, queue().without("queued").step("queued", 500, 500), inconclusive},
	{"waiting", "degenerate", "the watch was not kept", waitSpec, queue().without("queued"), inconclusive},

	{"in-flight", "passing", "exactly one runs, two wait", limitSpec, queue(), pass},
	{"in-flight", "failing", "two run although the limit is one", limitSpec, queue().b("a1", arrivesAt(300)), fail},
	{"in-flight", "failing", "none runs although two wait", limitSpec, queue().b("plug1", func(b *evidence.Backend) { b.End = at(400) }), fail},
	{"in-flight", "failing", "one per endpoint is not two at one", checks.Spec{Mark: "queued", Count: 1, Counts: map[string]int{"a": 0, "b": 1}, Waiting: []string{"a1"}}, queue(), fail},
	{"in-flight", "failing", "the demand was refused instead of waiting", limitSpec, queue().unseen("b1").c("b1", func(c *evidence.Client) { c.End, c.Outcome = at(300), evidence.Refused }), fail},
	{"in-flight", "failing", "the same request runs twice", limitSpec, queue().backend("plug1", "a", 2, 1000, evidence.Finished), fail},
	{"in-flight", "degenerate", "no demand above the limit", checks.Spec{Mark: "queued", Count: 1}, queue(), inconclusive},
	{"in-flight", "degenerate", "a limit of nothing", checks.Spec{Mark: "queued", Waiting: []string{"a1"}}, queue().unseen("plug1"), inconclusive},
	{"in-flight", "degenerate", "the demand came late", limitSpec, queue().c("b1", func(c *evidence.Client) { c.Sent = at(250) }), inconclusive},
	{"in-flight", "degenerate", "the one in flight has no arrival", limitSpec, queue().b("plug1", arrivesNever), fail},
	{"in-flight", "degenerate", "the watch took no time", limitSpec, queue().without("queued").step("queued", 500, 500), inconclusive},

	{"arrives", "passing", "one arrives after the release, the others still wait", arriveSpec, queue(), pass},
	{"arrives", "passing", "without a step the sending counts", checks.Spec{IDs: []string{"plug1"}, Within: time.Millisecond}, queue(), pass},
	{"arrives", "failing", "it arrives too late", arriveSpec, queue().b("a1", arrivesAt(2001)), fail},
	{"arrives", "failing", "it never arrives", arriveSpec, queue().unseen("a1"), fail},
	{"arrives", "failing", "another is let in before it", arriveSpec, queue().b("b1", arrivesAt(1000)), fail},
	{"arrives", "failing", "another is let in at the same instant", arriveSpec, queue().b("b1", arrivesAt(1001)), fail},
	{"arrives", "degenerate", "it had arrived before anything was freed", arriveSpec, queue().b("a1", arrivesAt(800)), inconclusive},
	{"arrives", "degenerate", "nothing was freed", arriveSpec, queue().without("freed"), inconclusive},
	{"arrives", "degenerate", "the release failed", arriveSpec, queue().broken("freed"), inconclusive},
	{"arrives", "degenerate", "never sent", arriveSpec, queue().c("a1", sentNever), inconclusive},
	{"arrives", "degenerate", "a record without an arrival", checks.Spec{IDs: []string{"plug1"}, Within: time.Second}, queue().b("plug1", arrivesNever), fail},
	{"arrives", "degenerate", "no ids", checks.Spec{After: "freed", Within: time.Second}, queue(), inconclusive},

	{"one-per-release", "passing", "each release lets one in", oneSpec, queue(), pass},
	{"one-per-release", "failing", "a release lets two in", oneSpec, queue().b("b1", arrivesAt(1002)), fail},
	{"one-per-release", "failing", "two come at one instant", oneSpec, queue().b("b1", arrivesAt(1001)), fail},
	{"one-per-release", "failing", "a release lets none in although some wait", oneSpec, queue().b("a2", arrivesAt(1400)), fail},
	{"one-per-release", "degenerate", "too few releases were made", checks.Spec{Mark: "one", IDs: oneSpec.IDs, Needed: 4}, queue(), inconclusive},
	{"one-per-release", "degenerate", "no number of releases is named", checks.Spec{Mark: "one", IDs: oneSpec.IDs}, queue(), inconclusive},
	{"one-per-release", "degenerate", "nothing waited", checks.Spec{Mark: "one", Needed: 1}, queue(), inconclusive},
	{"one-per-release", "degenerate", "no release of that name", checks.Spec{Mark: "two", IDs: oneSpec.IDs, Needed: 1}, queue(), inconclusive},
	{"one-per-release", "degenerate", "records without arrivals", oneSpec, queue().b("a1", arrivesNever), fail},

	{"served-by", "passing", "each at its endpoint", servedSpec, queue(), pass},
	{"served-by", "failing", "one at the wrong endpoint", servedSpec, queue().b("b1", func(b *evidence.Backend) { b.Endpoint = "b" }), fail},
	{"served-by", "failing", "one not served", servedSpec, queue().unseen("b1"), fail},
	{"served-by", "degenerate", "the pool was not as full as it had to be", servedSpec, queue().unseen("plug1"), inconclusive},
	{"served-by", "degenerate", "no request", checks.Spec{Mark: "queued"}, queue(), inconclusive},
	{"served-by", "degenerate", "a stranger that no client sent", servedSpec, queue().unsent("b1"), inconclusive},
	{"served-by", "degenerate", "a record without an arrival", servedSpec, queue().b("b1", arrivesNever), fail},
	{"served-by", "degenerate", "the step is missing", servedSpec, queue().without("queued"), inconclusive},
	{"served-by", "degenerate", "a barrier was not reached", checks.Spec{Endpoint: servedSpec.Endpoint, Engaged: []string{"freed"}}, queue().broken("freed"), inconclusive},

	{"completed", "passing", "it completes after a long run", doneSpec, queue(), pass},
	{"completed", "failing", "it is refused", doneSpec, history().refused("plug1", 0, 10, 429, "x"), fail},
	{"completed", "failing", "200 without any model server", doneSpec, queue().unseen("plug1"), fail},
	{"completed", "failing", "a status that is not 200", doneSpec, queue().c("plug1", func(c *evidence.Client) { c.Status = 206 }), fail},
	{"completed", "failing", "it never ends", doneSpec, history().client("plug1", 0, 0, evidence.Unfinished, 0, ""), fail},
	{"completed", "degenerate", "it ran too short for the wait limit to strike", checks.Spec{IDs: []string{"plug1"}, Min: 2 * time.Second}, queue(), inconclusive},
	{"completed", "degenerate", "the model server's record names no end", doneSpec, queue().b("plug1", func(b *evidence.Backend) { b.End = evidence.Never }), inconclusive},
	{"completed", "degenerate", "the model server's record names no arrival", doneSpec, queue().b("plug1", arrivesNever), fail},
	{"completed", "degenerate", "never sent", doneSpec, queue().c("plug1", sentNever), inconclusive},
	{"completed", "degenerate", "no ids", checks.Spec{}, queue(), inconclusive},
}

// probes is a gate that lets open1 through and keeps closed1 waiting until the harness takes it back.
func probes() *hist {
	return history().served("open1", 0, 1, 10).left("closed1", 100, 600).step("scripted", 0, 0)
}

var gateSpec = checks.Spec{Open: []string{"open1"}, Closed: []string{"closed1"}, Within: 500 * time.Millisecond, Min: 499 * time.Millisecond, Engaged: []string{"scripted"}}

// leaving is a queue of x and y behind plug1; x leaves before y is let in.
func leaving() *hist {
	return history().served("plug1", 0, 1, 1000).left("x", 50, 700).served("y", 100, 1001, 1100).step("queued", 200, 500)
}

var leftSpec = checks.Spec{IDs: []string{"x"}, Then: []string{"y"}, Mark: "queued"}

// bodies are two requests that arrive as they were sent.
func bodies() *hist { return history().served("a1", 0, 1, 10).served("a2", 20, 21, 30) }

var gateTrials = []trial{
	{"gate", "passing", "one probe passes, one waits", gateSpec, probes(), pass},
	{"gate", "failing", "the open gate is closed", gateSpec, probes().unseen("open1"), fail},
	{"gate", "failing", "the open gate is slow", gateSpec, probes().b("open1", arrivesAt(501)), fail},
	{"gate", "failing", "the closed gate is open", gateSpec, probes().backend("closed1", "a", 150, 160, evidence.Aborted), fail},
	{"gate", "failing", "a record without an arrival still shows that a model server knows the probe", gateSpec,
		probes().backend("closed1", "a", 150, 160, evidence.Aborted).b("closed1", arrivesNever), fail},
	{"gate", "failing", "the closed gate refuses", gateSpec, probes().c("closed1", func(c *evidence.Client) { c.Outcome, c.Status = evidence.Refused, 429 }), fail},
	{"gate", "failing", "the probe was not left waiting for long enough", gateSpec, probes().c("closed1", func(c *evidence.Client) { c.End = at(300) }), fail},
	{"gate", "degenerate", "the values were not scraped", gateSpec, probes().broken("scripted"), inconclusive},
	{"gate", "degenerate", "no values were set", gateSpec, probes().without("scripted"), inconclusive},
	{"gate", "degenerate", "no probes", checks.Spec{Engaged: []string{"scripted"}}, probes(), inconclusive},
	{"gate", "degenerate", "no time for which a closed probe must wait", checks.Spec{Closed: []string{"closed1"}}, probes(), inconclusive},
	{"gate", "degenerate", "the open probe has no arrival", gateSpec, probes().b("open1", arrivesNever), fail},
	{"gate", "degenerate", "the closed probe has no end", gateSpec, probes().c("closed1", endsNever), fail},
	{"gate", "degenerate", "the closed probe was not sent", gateSpec, probes().unsent("closed1"), inconclusive},
	{"gate", "degenerate", "the open probe was not sent", gateSpec, probes().c("open1", sentNever), inconclusive},

	{"never-served", "passing", "who left is not served, who waited behind is", leftSpec, leaving(), pass},
	{"never-served", "failing", "who left is served all the same", leftSpec, leaving().backend("x", "a", 1001, 1002, evidence.Aborted), fail},
	{"never-served", "failing", "who left holds up the one behind", leftSpec, leaving().unseen("y"), fail},
	{"never-served", "degenerate", "nobody left: it was refused", leftSpec, leaving().c("x", func(c *evidence.Client) { c.Outcome, c.Status = evidence.Refused, 429 }), inconclusive},
	{"never-served", "degenerate", "it left after the other was served", leftSpec, leaving().c("x", func(c *evidence.Client) { c.End = at(1050) }), inconclusive},
	{"never-served", "degenerate", "it left before the queue was complete", leftSpec, leaving().c("x", func(c *evidence.Client) { c.End = at(300) }), inconclusive},
	{"never-served", "degenerate", "the one behind has a record without an arrival", leftSpec, leaving().b("y", arrivesNever), inconclusive},
	{"never-served", "degenerate", "nobody waited behind", checks.Spec{IDs: []string{"x"}, Mark: "queued"}, leaving(), inconclusive},
	{"never-served", "degenerate", "nobody left", checks.Spec{Then: []string{"y"}, Mark: "queued"}, leaving(), inconclusive},
	{"never-served", "degenerate", "the queue was never complete", leftSpec, leaving().without("queued"), inconclusive},

	{"body", "passing", "the bytes are the same", checks.Spec{IDs: []string{"a1", "a2"}, Mode: "bytes"}, bodies(), pass},
	{"body", "passing", "the JSON value is the same", checks.Spec{IDs: []string{"a1"}, Mode: "json", Hashes: map[string]string{"a1": "json-a1"}}, bodies(), pass},
	{"body", "failing", "the bytes differ", checks.Spec{IDs: []string{"a1", "a2"}, Mode: "bytes"}, bodies().b("a2", func(b *evidence.Backend) { b.BodySHA256 = "other" }), fail},
	{"body", "failing", "the JSON value differs", checks.Spec{IDs: []string{"a1"}, Mode: "json", Hashes: map[string]string{"a1": "json-other"}}, bodies(), fail},
	{"body", "failing", "what arrived is no JSON", checks.Spec{IDs: []string{"a1"}, Mode: "json", Hashes: map[string]string{"a1": "json-a1"}}, bodies().b("a1", func(b *evidence.Backend) { b.JSONSHA256 = "" }), fail},
	{"body", "degenerate", "neither side kept a hash", checks.Spec{IDs: []string{"a1"}, Mode: "bytes"},
		bodies().c("a1", func(c *evidence.Client) { c.BodySHA256 = "" }).b("a1", func(b *evidence.Backend) { b.BodySHA256 = "" }), inconclusive},
	{"body", "degenerate", "no JSON was sent and none arrived", checks.Spec{IDs: []string{"a1"}, Mode: "json"}, bodies().b("a1", func(b *evidence.Backend) { b.JSONSHA256 = "" }), inconclusive},
	{"body", "degenerate", "one was not served", checks.Spec{IDs: []string{"a1", "a2"}, Mode: "bytes"}, bodies().unseen("a2"), inconclusive},
	{"body", "degenerate", "an unknown comparison", checks.Spec{IDs: []string{"a1"}, Mode: "nearly"}, bodies(), inconclusive},
	{"body", "degenerate", "no ids", checks.Spec{Mode: "bytes"}, bodies(), inconclusive},
	{"body", "degenerate", "a record without an arrival", checks.Spec{IDs: []string{"a1"}, Mode: "bytes"}, bodies().b("a1", arrivesNever), inconclusive},
}

// gauge is a metrics page with two tenants waiting, and with nothing after draining.
func gauge() *hist {
	return history().served("a1", 0, 900, 1000).served("b1", 0, 900, 1000).step("sampled", 500, 500).step("zero", 2000, 2000).
		sample("sampled", "queue_size", 2, map[string]string{"t": "a", "p": "0"}).sample("sampled", "queue_size", 1, map[string]string{"t": "b", "p": "0"}).
		sample("zero", "queue_size", 0, map[string]string{"t": "a", "p": "0"})
}

var gaugeSpec = checks.Spec{Mark: "sampled", Zero: "zero", Waiting: []string{"a1", "b1"}, Names: []string{"queue_size"}, Series: []checks.Series{
	{Labels: map[string]string{"t": "a"}, Value: 2}, {Labels: map[string]string{"t": "b"}, Value: 1}}}

func gaugeWith(f func(*checks.Spec)) checks.Spec { s := gaugeSpec; f(&s); return s }

// turns is a load in which every fourth millisecond takes a turn; owner says whose it is. Both tenants wait all the time.
func turns(n int, owner func(i int) string) *hist {
	h := history().step("load", 0, 4*n+100)
	for i := range n {
		id := fmt.Sprintf("r%03d", i)
		h.client(id, 0, 4*i+11, evidence.Completed, 200, "")
		h.r.Clients[len(h.r.Clients)-1].Tenant = owner(i)
		h.r.Backends = append(h.r.Backends, evidence.Backend{ID: id, Endpoint: "a", Arrival: at(4*i + 10), End: at(4*i + 11), Ending: evidence.Finished})
	}
	for _, t := range []string{"gold", "iron"} {
		h.client(t+"-rest", 0, 0, evidence.Unfinished, 0, "")
		last := &h.r.Clients[len(h.r.Clients)-1]
		last.Tenant, last.End = t, at(4*n+50)
	}
	return h
}

func alternate(i int) string { return []string{"gold", "iron"}[i%2] }
func mostlyGold(i int) string {
	if i%4 == 0 {
		return "iron"
	}
	return "gold"
}

var shareSpec = checks.Spec{Shares: map[string]float64{"gold": 0.5, "iron": 0.5}, Margin: 0.05, Needed: 100, Engaged: []string{"load"}}

func mistakes() *hist {
	return history().process("valid", true, 0, "").process("typo", false, 2, "config.yaml:3: unknown field maxConcurency")
}

var startSpec = checks.Spec{Valid: "valid", Cases: map[string]string{"typo": "maxConcurency"}, Max: time.Second}

var valueTrials = []trial{
	{"series", "passing", "both tenants are shown, and nothing after draining", gaugeSpec, gauge(), pass},
	{"series", "failing", "a value is wrong", gaugeWith(func(s *checks.Spec) {
		s.Series = []checks.Series{{Labels: map[string]string{"t": "a"}, Value: 3}, {Labels: map[string]string{"t": "b"}, Value: 1}}
	}), gauge(), fail},
	{"series", "failing", "a name is missing", gaugeWith(func(s *checks.Spec) { s.Names = []string{"queue_size", "old_queue_size"} }), gauge(), fail},
	{"series", "failing", "a series is missing", gaugeWith(func(s *checks.Spec) {
		s.Series = append([]checks.Series{{Labels: map[string]string{"t": "c"}, Value: 0}}, s.Series...)
	}), gauge(), fail},
	{"series", "failing", "somebody waits who should not", gaugeSpec, gauge().sample("sampled", "queue_size", 1, map[string]string{"t": "c"}), fail},
	{"series", "failing", "the value stays after draining", gaugeSpec, gauge().sample("zero", "queue_size", 1, map[string]string{"t": "b"}), fail},
	{"series", "failing", "the same sample twice counts twice", gaugeSpec, gauge().sample("sampled", "queue_size", 2, map[string]string{"t": "a"}), fail},
	{"series", "degenerate", "a value that is no number", gaugeSpec, gauge().sample("sampled", "queue_size", math.NaN(), map[string]string{"t": "a"}), fail},
	{"series", "degenerate", "the page was not read", gaugeSpec, gauge().broken("sampled"), inconclusive},
	{"series", "degenerate", "the page was not read after draining", gaugeSpec, gauge().broken("zero"), inconclusive},
	{"series", "degenerate", "nobody sampled after draining", gaugeSpec, gauge().without("zero"), inconclusive},
	{"series", "degenerate", "nobody waited", gaugeSpec, gauge().b("a1", arrivesAt(100)), inconclusive},
	{"series", "degenerate", "no name", gaugeWith(func(s *checks.Spec) { s.Names = nil }), gauge(), inconclusive},
	{"series", "degenerate", "no series", gaugeWith(func(s *checks.Spec) { s.Series, s.Mode = nil, "subset" }), gauge(), inconclusive},
	{"series", "degenerate", "only a model server's page shows it", gaugeSpec, func() *hist {
		h := gauge()
		for i := range h.r.Samples {
			h.r.Samples[i].Source = "a"
		}
		return h
	}(), fail},

	{"share", "passing", "strict alternation is an even share", shareSpec, turns(160, alternate), pass},
	{"share", "failing", "three to one is no even share", shareSpec, turns(160, mostlyGold), fail},
	{"share", "degenerate", "an unpaired remainder of two hundred turns does not decide", checks.Spec{Shares: shareSpec.Shares, Margin: 0.05, Needed: 10}, turns(40, alternate), inconclusive},
	{"share", "degenerate", "too few turns", shareSpec, turns(60, alternate), inconclusive},
	{"share", "degenerate", "one tenant shares with nobody", checks.Spec{Shares: map[string]float64{"gold": 1}, Margin: 0.05, Needed: 10}, turns(160, func(int) string { return "gold" }), inconclusive},
	{"share", "degenerate", "no margin proves nothing", checks.Spec{Shares: shareSpec.Shares, Needed: 100}, turns(160, alternate), inconclusive},
	{"share", "degenerate", "one tenant had nothing waiting", shareSpec, turns(160, func(int) string { return "gold" }).unsent("iron-rest"), inconclusive},
	{"share", "degenerate", "the load was not the planned one", shareSpec, turns(160, alternate).broken("load"), inconclusive},
	{"share", "degenerate", "no load was played", shareSpec, turns(160, alternate).without("load"), inconclusive},
	{"share", "degenerate", "arriving twice gives no second turn", shareSpec, func() *hist {
		h := turns(80, alternate)
		h.r.Backends = append(h.r.Backends, h.r.Backends...)
		return h
	}(), inconclusive},

	{"startup", "passing", "the mistake is refused by name", startSpec, mistakes(), pass},
	{"startup", "failing", "the mistake starts", startSpec, history().process("valid", true, 0, "").process("typo", true, 0, ""), fail},
	{"startup", "failing", "the refusal exits with 0", startSpec, history().process("valid", true, 0, "").process("typo", false, 0, "maxConcurency"), fail},
	{"startup", "failing", "the refusal names something else", startSpec, history().process("valid", true, 0, "").process("typo", false, 2, "bad document"), fail},
	{"startup", "failing", "the refusal takes too long", checks.Spec{Valid: "valid", Cases: startSpec.Cases, Max: 50 * time.Millisecond}, mistakes(), fail},
	{"startup", "degenerate", "the valid document does not start either", startSpec, history().process("valid", false, 2, "").process("typo", false, 2, "maxConcurency"), inconclusive},
	{"startup", "degenerate", "the valid document was not tried", startSpec, history().process("typo", false, 2, "maxConcurency"), inconclusive},
	{"startup", "degenerate", "the mistake was not tried", startSpec, history().process("valid", true, 0, ""), inconclusive},
	{"startup", "degenerate", "the mistake started once and was refused once", startSpec, history().process("valid", true, 0, "").process("typo", true, 0, "").process("typo", false, 2, "maxConcurency"), inconclusive},
	{"startup", "degenerate", "no mistakes", checks.Spec{Valid: "valid", Max: time.Second}, mistakes(), inconclusive},
	{"startup", "degenerate", "nothing to name", checks.Spec{Valid: "valid", Cases: map[string]string{"typo": ""}, Max: time.Second}, mistakes(), inconclusive},
}
