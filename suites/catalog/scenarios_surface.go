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
				"duplicate-key":      {doc + "kind: EndpointPickerConfig\n", "kind"},
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
				"duplicate-priority": {band("  - {priority: 7}\n  - {priority: 7}\n"), "7"},
			})
		},
	},
	{
		Name: "cfg-values", Title: "Invalid values abort startup and name the field", Needs: []sut.Feature{sut.Restart},
		Write: func(b *scenario.Builder) {
			doc := validDocument(b.Profile.Config)
			tryStart(b, "FC-CFG-12", doc, map[string]mistake{
				"negative-limit":     {doc + "  maxRequests: \"-1\"\n", "axRequests"},
				"negative-bytes":     {doc + "  maxBytes: \"-1\"\n", "axBytes"},
				"negative-ttl":       {strings.Replace(doc, "defaultRequestTTL: 1m0s", "defaultRequestTTL: -1s", 1), "RequestTTL"},
				"non-positive-limit": {strings.Replace(doc, "maxConcurrency: 3", "maxConcurrency: 0", 1), "maxConcurrency"},
			})
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
			b.Check("FC-CLS-15", "series", checks.Spec{Mark: "sampled", Waiting: w, Names: b.Profile.Metrics.QueueSize, Series: []checks.Series{
				{Labels: map[string]string{"fairness_id": "a"}, Value: 3}, {Labels: map[string]string{"fairness_id": "b"}, Value: 2}}})
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
			labels := map[string]string{}
			if b.Has(sut.Stages) {
				labels["stage"] = "effective"
			}
			for i, waiting := range []float64{2, 3, 4} {
				setLoad(b, 0, load{waiting: waiting})
				mark := fmt.Sprintf("sampled%d", i+1)
				b.Quiet("published", 100*time.Millisecond)
				b.Do(sut.OpSample, mark)
				probe(b, fmt.Sprintf("probe%d", i+1))
				b.Check("FC-MET-01", "series", checks.Spec{Mark: mark, Mode: "each", Names: b.Profile.Metrics.PoolSaturation, Margin: 0.01,
					Engaged: []string{"scripted"}, Series: []checks.Series{{Labels: labels, Value: waiting / 4}}})
			}
			b.Check("FC-MET-01", "gate", gateSpec([]string{"probe1", "probe2"}, []string{"probe3"}))
		},
	},
	{
		Name: "proto-late-choice", Title: "The endpoint is chosen at dispatch, from the state then", Needs: []sut.Feature{sut.Hold, sut.Subset},
		Write: func(b *scenario.Builder) {
			b.Cap(1, 2)
			b.PlugN(1, scenario.To("a"))
			b.PlugN(1, scenario.To("b"))
			full := map[string]int{"a": 1, "b": 1}
			b.Queue(b.Req("w1"))
			b.Quiet("full-1", 300*time.Millisecond)
			b.Step(sut.Step{Op: sut.OpRelease, Mark: "freed-b", Endpoint: "b"})
			b.Step(sut.Step{Op: sut.OpArrivals, Mark: "opened", IDs: []string{"w1"}})
			b.Queue(b.Req("w2"))
			b.Quiet("full-2", 300*time.Millisecond)
			b.Step(sut.Step{Op: sut.OpRelease, Mark: "freed-a", Endpoint: "a"})
			b.Step(sut.Step{Op: sut.OpArrivals, Mark: "opened", IDs: []string{"w2"}})
			b.Check("FC-PROTO-02", "served-by", checks.Spec{Endpoint: map[string]string{"w1": "b"}, Mark: "full-1", Count: 2, Counts: full})
			b.Check("FC-PROTO-02", "served-by", checks.Spec{Endpoint: map[string]string{"w2": "a"}, Mark: "full-2", Count: 2, Counts: full})
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
				b.Req("no-model", scenario.Body(`{"prompt": "x", "max_tokens": 1}`)))
			b.Endings("answered", bad...)
			b.Check("FC-PROTO-11", "refused", checks.Spec{IDs: bad, Status: 400, Count: 1, Max: time.Second})
			b.FullCapacity()
		},
	},
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
	if len(b.Config.Endpoints) == 0 {
		b.Util(5, 0.8, 1)
	}
	s := checks.Spec{Valid: requirement + "/valid", Cases: map[string]string{}, Max: 10 * time.Second}
	b.Step(sut.Step{Op: sut.OpTryStart, Mark: s.Valid, Raw: valid})
	for _, name := range sortedKeys(cases) {
		m := cases[name]
		b.Step(sut.Step{Op: sut.OpTryStart, Mark: name, Raw: m.doc})
		s.Cases[name] = m.names
	}
	b.Check(requirement, "startup", s)
}
