package catalog

import (
	"fmt"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
)

var surfaceScenarios = []scenario.Scenario{
	{
		Name: "cfg-mistakes", Title: "Unknown and misspelt fields abort startup and are named", Needs: []sut.Feature{sut.Restart},
		Write: func(b *scenario.Builder) {
			doc := validDocument(b.Profile.Config)
			tryStart(b, "FC-CFG-03", doc, map[string]mistake{
				"misspelt-parameter": {strings.Replace(doc, "maxConcurrency: 3", "maxConcurency: 3", 1), "maxConcurency"},
				"unknown-field":      {doc + "flowControll: {}\n", "flowControll"},
				"unknown-gate":       {strings.Replace(doc, "featureGates: [flowControl]", "featureGates: [flowControl, noSuchGate]", 1), "noSuchGate"},
				"duplicate-key":      {doc + "schedulingProfiles: []\n", "schedulingProfiles"},
			})
		},
	},
	{
		Name: "cfg-policies", Title: "Unknown policy names and priorities listed twice abort startup", Needs: []sut.Feature{sut.Restart},
		Write: func(b *scenario.Builder) {
			doc := validDocument(b.Profile.Config)
			band := func(lines string) string { return doc + "  priorityBands:\n" + lines }
			tryStart(b, "FC-CFG-11", doc, map[string]mistake{
				"unknown-fairness": {band("  - {priority: 0, fairnessPolicyRef: no-such-fairness-policy}\n"), "no-such-fairness-policy"},
				"unknown-ordering": {band("  - {priority: 0, orderingPolicyRef: no-such-ordering-policy}\n"), "no-such-ordering-policy"},
				"unknown-ceiling":  {doc + "  usageLimitPolicyPluginRef: no-such-limit-policy\n", "no-such-limit-policy"},
			})
			tryStart(b, "FC-CFG-10", doc, map[string]mistake{
				"duplicate-priority": {band("  - {priority: 4711}\n  - {priority: 4711}\n"), "4711"},
			})
		},
	},
	{
		Name: "cfg-values", Title: "Invalid values abort startup and name the field", Needs: []sut.Feature{sut.Restart},
		Write: func(b *scenario.Builder) {
			doc := validDocument(b.Profile.Config)
			mistakes := map[string]mistake{
				"negative-limit":     {doc + "  maxRequests: \"-1\"\n", "maxRequests"},
				"negative-bytes":     {doc + "  maxBytes: \"-1\"\n", "maxBytes"},
				"negative-ttl":       {strings.Replace(doc, "defaultRequestTTL: 1m0s", "defaultRequestTTL: -1s", 1), "defaultRequestTTL"},
				"non-positive-limit": {strings.Replace(doc, "maxConcurrency: 3", "maxConcurrency: 0", 1), "maxConcurrency"},
			}
			if b.Has(sut.Holdback) {
				holdback := func(params string) string {
					d := strings.Replace(doc, "schedulingProfiles:", "- type: priority-holdback-policy\n  parameters: "+params+"\nschedulingProfiles:", 1)
					return d + "  usageLimitPolicyPluginRef: priority-holdback-policy\n"
				}
				mistakes["holdback-minimum"] = mistake{holdback("{minCeiling: 0.9, maxCeiling: 0.8}"), "minCeiling"}
				mistakes["holdback-shape"] = mistake{holdback("{minCeiling: 0.5, shape: round}"), "shape"}
				mistakes["holdback-domain"] = mistake{holdback("{minCeiling: 0.5, domain: weight}"), "domain"}
			}
			tryStart(b, "FC-CFG-12", doc, mistakes)
		},
	},
	{
		Name: "cfg-legacy-shape", Title: "The older top-level detector thresholds are refused by name", Needs: []sut.Feature{sut.Restart},
		Write: func(b *scenario.Builder) {
			if b.Profile.Config.Detector == "inline" {
				// Under this contract the shape is the documented one and every scenario uses it.
				return
			}
			doc := document(b.Profile.Config, sut.Configuration{TTL: time.Minute})
			tryStart(b, "FC-CFG-16", doc, map[string]mistake{
				"legacy-thresholds": {doc + "saturationDetector:\n  queueDepthThreshold: 5\n  kvCacheUtilThreshold: 0.8\n", "queueDepthThreshold"},
			})
		},
	},
	{
		Name: "met-queue-size", Title: "The queue-size gauge counts waiting requests per tenant and priority",
		Needs: []sut.Feature{sut.Hold, sut.Objectives, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Bands("", "", 100, 0)
			b.Plug()
			w := b.Queue(append(run(b, "a", 3, scenario.At(100)), run(b, "b", 2)...)...)
			b.Complete()
			b.Do(sut.OpSample, "sampled")
			b.Drain()
			b.Quiet("settled", 250*time.Millisecond)
			b.Do(sut.OpSample, "zero")
			b.Check("FC-MET-02", "series", checks.Spec{Mark: "sampled", Zero: "zero", Waiting: w, Names: b.Profile.Metrics.QueueSize, Series: []checks.Series{
				{Labels: map[string]string{"fairness_id": "a", "priority": "100"}, Value: 3},
				{Labels: map[string]string{"fairness_id": "b", "priority": "0"}, Value: 2},
			}})
			b.FullCapacity()
		},
	},
	{
		Name: "met-zero", Title: "Queue size, queued bytes and saturation return to exactly 0", Needs: []sut.Feature{sut.Hold, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 3}}
			b.Plug()
			w := b.Queue(run(b, "a", 3, scenario.Size(200))...)
			sendOver(b, b.Req("over1")) // refusal, cancellation and completion must all leave nothing behind
			b.Do(sut.OpSample, "loaded")
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: w[1:2]})
			b.Endings("gone", w[1:2]...)
			b.Drain()
			b.Quiet("settled", 1250*time.Millisecond)
			b.Do(sut.OpSample, "zero")
			zero := func(mode string, names []string, labels map[string]string, v float64) {
				if len(names) > 0 {
					b.Check("INV-05", "series", checks.Spec{Mark: "loaded", Zero: "zero", Waiting: w, Mode: mode, Names: names,
						Series: []checks.Series{{Labels: labels, Value: v}}})
				}
			}
			zero("", b.Profile.Metrics.QueueSize, map[string]string{"fairness_id": "a"}, 3)
			zero("", b.Profile.Metrics.QueueBytes, map[string]string{"fairness_id": "a"}, 600)
			zero("each", b.Profile.Metrics.PoolSaturation, effective(b), 1)
			b.FullCapacity()
		},
	},
	{
		Name: "met-zero-expired", Title: "What expires leaves nothing in the gauges", Needs: []sut.Feature{sut.Hold, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.TTL = waitLimit(b)
			b.Plug()
			w := b.Queue(run(b, "a", 3, scenario.Size(200))...)
			b.Do(sut.OpSample, "loaded")
			b.Endings("expired", w...)
			b.Quiet("settled", 1250*time.Millisecond)
			b.Do(sut.OpSample, "zero") // somebody is still in flight: nothing but the expiry has emptied the queue
			b.Drain()
			zero := func(names []string, v float64) {
				if len(names) > 0 {
					b.Check("INV-05", "series", checks.Spec{Mark: "loaded", Zero: "zero", Names: names, Series: []checks.Series{{Labels: map[string]string{"fairness_id": "a"}, Value: v}}})
				}
			}
			zero(b.Profile.Metrics.QueueSize, 3)
			zero(b.Profile.Metrics.QueueBytes, 600)
			b.Check("INV-05", "refused", checks.Spec{IDs: w, Mode: "any", Min: b.Config.TTL - clockGrain})
			b.FullCapacity()
		},
	},
	{
		Name: "sat-published", Title: "The published saturation is at the ceiling while closed, below it when open", Needs: []sut.Feature{sut.Hold, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Cap(2, 1)
			b.Plug()
			w := b.Queue(b.Req("w1"))
			b.Quiet("closed", time.Second)
			b.Do(sut.OpSample, "sampled-closed")
			b.Drain()
			b.Quiet("settled", 500*time.Millisecond)
			b.Do(sut.OpSample, "sampled-open")
			value := func(mark string, v float64) {
				b.Check("FC-SAT-21", "series", checks.Spec{Mark: mark, Mode: "each", Names: b.Profile.Metrics.PoolSaturation, Margin: 0.01,
					Series: []checks.Series{{Labels: effective(b), Value: v}}})
			}
			b.Check("FC-SAT-21", "waiting", checks.Spec{IDs: w, Mark: "closed", Count: 2})
			value("sampled-closed", 1)
			value("sampled-open", 0)
			b.FullCapacity()
		},
	},
	{
		Name: "met-queue-bytes", Title: "The queued-bytes gauge equals the raw body bytes waiting", Needs: []sut.Feature{sut.Hold, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			w := b.Queue(b.Req("a1", scenario.Size(100)), b.Req("a2", scenario.Size(200)), b.Req("a3", scenario.Size(300)))
			b.Complete()
			b.Do(sut.OpSample, "sampled")
			b.Drain()
			b.Quiet("settled", 250*time.Millisecond)
			b.Do(sut.OpSample, "zero")
			b.Check("FC-MET-05", "series", checks.Spec{Mark: "sampled", Zero: "zero", Waiting: w, Names: b.Profile.Metrics.QueueBytes,
				Series: []checks.Series{{Labels: map[string]string{"fairness_id": "a", "priority": "0"}, Value: 600}}})
			b.FullCapacity()
		},
	},
	{
		Name: "met-saturation", Title: "The saturation gauge publishes the detector's value", Needs: []sut.Feature{sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Util(4, 0.8, 1)
			for i, waiting := range []float64{2, 3, 4} {
				setLoad(b, 0, load{waiting: waiting})
				mark := fmt.Sprintf("sampled%d", i+1)
				b.Quiet("published", 100*time.Millisecond)
				b.Do(sut.OpSample, mark)
				probe(b, fmt.Sprintf("probe%d", i+1))
				b.Check("FC-MET-01", "series", checks.Spec{Mark: mark, Mode: "each", Names: b.Profile.Metrics.PoolSaturation, Margin: 0.01,
					Engaged: []string{"scripted"}, Series: []checks.Series{{Labels: effective(b), Value: waiting / 4}}})
			}
			b.Check("FC-MET-01", "gate", gateSpec(b, []string{"probe1", "probe2"}, []string{"probe3"}))
		},
	},
	{
		Name: "proto-late-choice", Title: "The endpoint is chosen at dispatch, from the state then", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 2)
			b.Plug()
			full := map[string]int{"a": 1, "b": 1}
			// Six rounds in an order that is no rotation: a choice at arrival, by turns or at random, misses at least one of them.
			for i, freed := range []string{"b", "a", "a", "b", "b", "a"} {
				id, mark := fmt.Sprintf("w%d", i+1), fmt.Sprintf("full-%d", i+1)
				b.Queue(b.Req(id))
				b.Quiet(mark, 300*time.Millisecond)
				b.Step(sut.Step{Op: sut.OpRelease, Mark: "freed", Endpoint: freed})
				b.Step(sut.Step{Op: sut.OpArrivals, Mark: "opened", IDs: []string{id}})
				b.Check("FC-PROTO-02", "served-by", checks.Spec{Endpoint: map[string]string{id: freed}, Mark: mark, Count: 2, Counts: full})
			}
			b.FullCapacity()
		},
	},
	{
		Name: "proto-stays", Title: "A dispatched request is never moved to another endpoint", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(2, 2)
			id := b.PlugN(1)
			b.Quiet("idle-neighbour", 5*time.Second)
			b.Drain()
			b.Check("FC-PROTO-03", "stays", checks.Spec{IDs: id, Min: 5 * time.Second})
			b.FullCapacity()
		},
	},
	{
		Name: "proto-body", Title: "The body reaches the model server unchanged",
		Write: func(b *scenario.Builder) {
			b.Cap(4, 1)
			b.Config.Hold = false
			hashes := map[string]string{}
			var sent []string
			for i, body := range bodies() {
				id := fmt.Sprintf("body%d", i+1)
				hashes[id] = wire.JSONHash([]byte(body))
				sent = append(sent, b.Send("sent", b.Req(id, scenario.Body(body), scenario.Tenant("t")))...)
				b.Endings("ended", id)
			}
			b.Check("FC-PROTO-05", "body", checks.Spec{IDs: sent, Mode: b.Profile.BodyEquality, Hashes: hashes})
		},
	},
	{
		Name: "proto-malformed", Title: "Malformed requests are answered 400 at once, without queueing", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			chat := func(r *sut.Request) { r.Path = "/v1/chat/completions" }
			bad := b.Send("bad",
				b.Req("no-json", scenario.Body(`{"model": "m", "prompt": `)),
				b.Req("no-prompt", scenario.Body(`{"model": "m", "max_tokens": 1}`)),
				b.Req("no-messages", chat, scenario.Body(`{"model": "m", "max_tokens": 1}`)),
				b.Req("no-model", scenario.Body(`{"prompt": "x", "max_tokens": 1}`)),
				b.Req("no-body", scenario.Empty))
			b.Endings("answered", bad...)
			b.Check("FC-PROTO-11", "refused", checks.Spec{IDs: bad, Status: 400, Count: 1, Max: time.Second})
			b.FullCapacity()
		},
	},
}

// effective are the labels of the saturation series that the gate follows.
func effective(b *scenario.Builder) map[string]string {
	if b.Has(sut.Stages) {
		return map[string]string{"stage": "effective"}
	}
	return map[string]string{}
}

// bodies are completion requests that a careless re-encoding changes: nesting, unicode, HTML characters, large integers, key order,
// white space, sizes around a chunk.
func bodies() []string {
	return []string{
		`{"zeta":1,"model":"m","alpha":{"n":[1,2,{"k":null,"a":true}]},"prompt":"plain","max_tokens":2}`,
		`{"model":"m","prompt":"grüße 東京 \u2028 🚀 <b>&amp;</b>","max_tokens":2}`,
		`{"model":"m","prompt":"numbers","seed":9007199254740991,"logit_bias":{"50256":-100},"temperature":0.70,"max_tokens":2}`,
		"{ \"model\" : \"m\",\n\t\"prompt\" : \"white space\" , \"max_tokens\":2 }",
		`{"model":"m","max_tokens":2,"prompt":"` + strings.Repeat("x", 61950) + `"}`,
		`{"model":"m","max_tokens":2,"prompt":"` + strings.Repeat("long ", 30000) + `"}`,
	}
}

// validDocument is a configuration that starts, in the dialect of the profile.
func validDocument(d profile.Config) string {
	c := sut.Configuration{TTL: time.Minute, Detector: sut.Detector{Kind: "concurrency", MaxConcurrency: 3}}
	if !d.ConcurrencyDetector {
		c.Detector = sut.Detector{Kind: "utilization", QueueDepth: 3, KVUtil: 0.8}
	}
	return document(d, c)
}

func document(d profile.Config, c sut.Configuration) string {
	doc, err := sut.Render(c, d)
	if err != nil {
		// Every caller names a detector that the dialect knows.
		panic(err)
	}
	return doc
}

type mistake struct{ doc, names string }

// tryStart tries the valid document and each broken one; each broken one must be refused naming its key.
func tryStart(b *scenario.Builder, requirement, valid string, cases map[string]mistake) {
	tryStartAs(b, requirement, "valid", valid, cases)
}

// tryStartAs names the valid document, where a scenario tries several.
func tryStartAs(b *scenario.Builder, requirement, name, valid string, cases map[string]mistake) {
	if len(b.Config.Endpoints) == 0 {
		b.Util(5, 0.8, 1)
	}
	s := checks.Spec{Valid: requirement + "/" + name, Cases: map[string]string{}, Max: 10 * time.Second}
	b.Step(sut.Step{Op: sut.OpTryStart, Mark: s.Valid, Raw: valid})
	for _, broken := range sortedKeys(cases) {
		m := cases[broken]
		b.Step(sut.Step{Op: sut.OpTryStart, Mark: broken, Raw: m.doc})
		s.Cases[broken] = m.names
	}
	b.Check(requirement, "startup", s)
}
