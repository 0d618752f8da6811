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

var contractScenarios = []scenario.Scenario{
	{
		Name: "cfg-everything", Title: "A document with every field of the contract starts and is effective", Needs: banded,
		Write: func(b *scenario.Builder) {
			b.Cap(5, 1)
			b.Bands("round-robin", "fcfs", 100, 0, -10)
			for i := range b.Config.Bands {
				b.Config.Bands[i].MaxBytes = 1 << 20
				if b.Profile.Config.Detector == "plugin" {
					b.Config.Bands[i].MaxRequests = 50
				}
			}
			b.Config.MaxBytes = 10 << 20
			if b.Profile.Config.Detector == "plugin" {
				b.Config.MaxRequests = 100
				b.Config.Detector.Headroom = 0.1
				b.Config.Ceiling = sut.Ceiling{Kind: "static", Threshold: 1}
			}
			if b.Has(sut.Eviction) {
				b.Config.Eviction = true
				b.Config.NoEndpointTTL = 30 * time.Second
			}
			b.Plug()
			w := b.Queue(b.Req("w1"))
			b.Quiet("full", 300*time.Millisecond)
			b.Check("FC-CFG-01", "in-flight", checks.Spec{Mark: "full", Count: 5, Waiting: w})
			b.Check("FC-CFG-21", "in-flight", checks.Spec{Mark: "full", Count: 5, Waiting: w})
			b.FullCapacity()
		},
	},
	{
		Name: "cfg-empty-block", Title: "An empty flowControl block gives global strict, FCFS, a full ceiling and the utilization detector", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Config.Endpoints = []sut.Endpoint{{Name: "a"}}
			b.Config.Hold, b.Config.HeldAsWaiting = true, true
			b.SetCapacity(5)
			var plug []sut.Request
			for i := range 5 {
				plug = append(plug, b.Req(fmt.Sprintf("plug%d", i+1)))
			}
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: plug, Spacing: 300 * time.Millisecond})
			w := b.Queue(b.Req("a1", slo(40000)), b.Req("b1", slo(10000)), b.Req("a2", slo(30000)), b.Req("c1", slo(20000)))
			b.Complete()
			b.Check("FC-CFG-20", "in-flight", checks.Spec{Mark: scenario.Queued, Count: 5, Waiting: w})
			b.Step(sut.Step{Op: sut.OpStep, Mark: "step", Count: 4, Quiet: 300 * time.Millisecond})
			b.Order("FC-CFG-20", scenario.One(w...)...)
			b.Drain()
		},
	},
	{
		Name: "cfg-concurrency-default", Title: "The concurrency detector's default is 100 requests", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(100, 1)
			b.Config.Detector.MaxConcurrency = 0
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "plugged", Requests: run(b, "t", 100), Spacing: 5 * time.Millisecond})
			w := b.Queue(b.Req("w1"))
			b.Quiet("full", 300*time.Millisecond)
			b.Check("FC-CFG-07", "in-flight", checks.Spec{Mark: "full", Count: 100, Waiting: w})
			b.Drain()
		},
	},
	{
		Name: "cfg-headroom", Title: "Headroom is accepted from 0 to 0.25 and refused below 0", Needs: []sut.Feature{sut.Restart},
		Write: func(b *scenario.Builder) {
			if b.Profile.Config.Detector == "inline" {
				return
			}
			with := func(h string) string {
				return strings.Replace(validDocument(b.Profile.Config), "maxConcurrency: 3", "maxConcurrency: 3\n    headroom: "+h, 1)
			}
			for _, h := range []string{"0", "0.1", "0.25"} {
				tryStartAs(b, "FC-CFG-09", "headroom-"+h, with(h), map[string]mistake{"negative-beside-" + h: {with("-0.1"), "headroom"}})
			}
		},
	},
	{
		Name: "cfg-kv-range", Title: "The KV threshold lies above 0 and not above 1", Needs: []sut.Feature{sut.Restart},
		Write: func(b *scenario.Builder) {
			with := func(kv float64) string {
				return document(b.Profile.Config, sut.Configuration{Detector: sut.Detector{Kind: "utilization", QueueDepth: 5, KVUtil: kv}})
			}
			tryStart(b, "FC-CFG-06", with(1.0), map[string]mistake{
				"kv-above-one": {with(1.1), "kvCacheUtilThreshold"}, "kv-negative": {with(-0.1), "kvCacheUtilThreshold"},
			})
		},
	},
	{
		Name: "cfg-constants", Title: "Cleanup and collection intervals are constants, not fields", Needs: []sut.Feature{sut.Restart},
		Write: func(b *scenario.Builder) {
			doc := validDocument(b.Profile.Config)
			tryStart(b, "FC-CFG-13", doc, map[string]mistake{
				"cleanup-interval": {doc + "  expiryCleanupInterval: 1s\n", "expiryCleanupInterval"},
				"flow-collection":  {doc + "  flowGCTimeout: 5m\n", "flowGCTimeout"},
				"band-collection":  {doc + "  priorityBandGCTimeout: 10m\n", "priorityBandGCTimeout"},
			})
		},
	},
	envelope("cfg-group-canonical", "llm-d.ai/v1alpha1"),
	envelope("cfg-group-older", "inference.networking.x-k8s.io/v1alpha1"),
	{
		Name: "met-durations", Title: "The queue-duration histogram records what was waited", Needs: []sut.Feature{sut.Hold, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.TTL = 30 * time.Second
			b.Plug()
			b.Do(sut.OpSample, "before")
			w := b.Queue(run(b, "a", 5)...)
			b.Quiet(scenario.Queued, 500*time.Millisecond)
			b.Step(sut.Step{Op: sut.OpStep, Mark: "step", Count: 5, Quiet: 200 * time.Millisecond})
			b.Do(sut.OpSample, "after")
			b.Check("FC-MET-03", "waits", checks.Spec{Before: "before", Mark: "after", IDs: w, Names: b.Profile.Metrics.QueueDuration, Min: 200 * time.Millisecond, Margin: 0.2})
			b.FullCapacity()
		},
	},
	{
		Name: "met-durations-expired", Title: "The queue-duration histogram records the waits that were for nothing, too", Needs: []sut.Feature{sut.Hold, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.TTL = waitLimit(b)
			b.Plug()
			b.Do(sut.OpSample, "before")
			w := b.Queue(run(b, "a", 5)...)
			b.Quiet(scenario.Queued, 300*time.Millisecond)
			b.Step(sut.Step{Op: sut.OpStep, Mark: "step", Count: 1, Quiet: 100 * time.Millisecond}) // the first is served
			b.Endings("expired", w[1:]...)
			b.Quiet("settled", 500*time.Millisecond)
			b.Do(sut.OpSample, "after")
			b.Check("FC-MET-03", "waits", checks.Spec{Before: "before", Mark: "after", IDs: w, Names: b.Profile.Metrics.QueueDuration, Min: 200 * time.Millisecond, Margin: 0.2})
			b.FullCapacity()
		},
	},
	{
		Name: "met-outcomes", Title: "Outcome counts equal what clients saw", Needs: []sut.Feature{sut.Hold, sut.Metrics},
		Write: func(b *scenario.Builder) {
			names := b.Profile.Metrics.RequestsTotal
			if len(names) == 0 {
				for _, n := range b.Profile.Metrics.QueueDuration {
					names = append(names, n+"_count")
				}
			}
			b.Cap(5, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 10}}
			b.Config.TTL = 3 * waitLimit(b) // so that those who leave have not expired before
			b.Plug()
			w := b.Send("waiters", run(b, "w", 10)...)
			sendOver(b, run(b, "over", 5)...)
			b.Step(sut.Step{Op: sut.OpCancel, Mark: "left", IDs: w[:5]})
			b.Endings("gone", w[:5]...)
			b.Endings("expired", w[5:]...)
			b.Drain()
			b.Quiet("cleanup", 1500*time.Millisecond)
			b.Do(sut.OpSample, "counted")
			b.Check("FC-MET-06", "outcome-counts", checks.Spec{Mark: "counted", Names: names, Needed: 5, Kinds: 4})
			b.FullCapacity()
		},
	},
	{
		Name: "met-twins", Title: "A series reads the same under both of its names", Needs: []sut.Feature{sut.Hold, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			b.Queue(b.Req("a1", scenario.Size(300)), b.Req("b1", scenario.Size(400)))
			b.Complete()
			b.Do(sut.OpSample, "sampled")
			b.Drain()
			b.Check("FC-MET-07", "twins", checks.Spec{Mark: "sampled", Needed: 4})
			b.FullCapacity()
		},
	},
	{
		Name: "met-stages", Title: "Saturation is published per stage and effective", Needs: []sut.Feature{sut.Stages, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Util(20, 0.8, 2)
			b.Config.Endpoints[0].Role, b.Config.Endpoints[1].Role = "prefill", "decode"
			setLoad(b, 0, load{waiting: 13})
			setLoad(b, 1, load{waiting: 18})
			b.Quiet("published", 100*time.Millisecond)
			b.Do(sut.OpSample, "sampled")
			probe(b, "probe1")
			for _, s := range []struct {
				stage string
				value float64
			}{{"prefill", 0.65}, {"decode", 0.90}, {"effective", 0.90}} {
				b.Check("FC-MET-08", "series", checks.Spec{Mark: "sampled", Mode: "each", Names: b.Profile.Metrics.PoolSaturation, Margin: 0.01, Engaged: []string{"scripted"},
					Series: []checks.Series{{Labels: map[string]string{"stage": s.stage}, Value: s.value}}})
			}
		},
	},
	{
		Name: "met-band-use", Title: "Band utilization relates what is queued to the limit", Needs: []sut.Feature{sut.Hold, sut.Metrics},
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Config.Bands = []sut.Band{{Priority: 0, MaxRequests: 4}}
			b.Plug()
			w := b.Queue(b.Req("a1"), b.Req("a2"))
			b.Complete()
			b.Do(sut.OpSample, "sampled")
			b.Check("FC-MET-10", "series", checks.Spec{Mark: "sampled", Mode: "each", Waiting: w, Margin: 0.001,
				Names: []string{wire.PrefixFlowControl + "capacity_utilization_requests"}, Series: []checks.Series{{Labels: map[string]string{"priority": "0"}, Value: 0.5}}})
			b.FullCapacity()
		},
	},
	{
		Name: "proto-sizes", Title: "Bodies of any size pass whole", Needs: nil,
		Write: func(b *scenario.Builder) {
			b.Cap(4, 1)
			b.Config.Hold = false
			hashes := map[string]string{}
			var sent []string
			for _, n := range []int{100, 61999, 62000, 62001, 65536, 124001, 1 << 20} {
				id := fmt.Sprintf("size%d", n)
				body := `{"model":"m","max_tokens":1,"prompt":"` + strings.Repeat("y", n-41) + `"}`
				hashes[id] = wire.JSONHash([]byte(body))
				sent = append(sent, b.Send("sent", b.Req(id, scenario.Body(body), scenario.Tenant("t")))...)
				b.Endings("ended", id)
			}
			b.Check("FC-PROTO-06", "body", checks.Spec{IDs: sent, Mode: b.Profile.BodyEquality, Hashes: hashes})
		},
	},
	{
		Name: "proto-streaming", Title: "Streams pass token by token", Needs: nil,
		Write: func(b *scenario.Builder) {
			b.Cap(4, 1)
			b.Config.Hold = false
			b.Config.Preset = "h100-llama3.1-8b"
			long := func(r *sut.Request) { r.Stream, r.MaxTokens = true, 150 }
			s := b.Send("streams", b.Req("s1", long), b.Req("s2", long))
			b.Endings("ended", s...)
			b.Check("FC-PROTO-07", "prompt-stream", checks.Spec{IDs: s, Needed: 150, Min: 600 * time.Millisecond, Within: 100*time.Millisecond + b.Profile.Tolerances.Slack})
		},
	},
	{
		Name: "proto-query", Title: "A query string does not change the path", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(1, 1)
			b.Plug()
			q := b.Queue(b.Req("query", func(r *sut.Request) { r.Path = "/v1/completions?api-version=1" }),
				b.Req("chat", scenario.Body(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`), func(r *sut.Request) { r.Path = "/v1/chat/completions?x=y" }))
			b.Complete()
			b.Steps(2)
			b.Drain()
			b.Check("FC-PROTO-12", "waiting", checks.Spec{IDs: q, Mark: scenario.Queued, Count: 1})
			b.Completed("FC-PROTO-12", q...)
			b.FullCapacity()
		},
	},
	{
		Name: "proto-subset", Title: "A subset hint restricts, and without one every endpoint is a candidate", Needs: []sut.Feature{sut.Hold, sut.Subset},
		Write: func(b *scenario.Builder) {
			b.Cap(30, 2)
			want := map[string]string{}
			aimed := run(b, "aimed", 20, scenario.To("b"))
			for _, r := range aimed {
				want[r.ID] = "b"
			}
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "aimed", Requests: aimed, Spacing: 5 * time.Millisecond})
			free := run(b, "free", 20)
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "free", Requests: free, Spacing: 5 * time.Millisecond})
			b.Drain()
			again := run(b, "again", 20)
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "again", Requests: again, Spacing: 5 * time.Millisecond})
			b.Drain()
			b.Check("FC-PROTO-13", "served-by", checks.Spec{Endpoint: want, Engaged: []string{"aimed"}})
			b.Check("FC-PROTO-13", "spread", checks.Spec{IDs: ids(again), Count: 2})
		},
	},
	{
		Name: "proto-same-id", Title: "Overlapping requests with one request id do not corrupt the accounting", Needs: held,
		Write: func(b *scenario.Builder) {
			b.Cap(6, 1)
			for i := range 3 {
				same := scenario.Header(wire.HeaderRequestID, fmt.Sprintf("one-id-%d", i+1))
				b.Step(sut.Step{Op: sut.OpPlug, Mark: "overlap", Requests: []sut.Request{b.Req(fmt.Sprintf("x%d", i+1), same), b.Req(fmt.Sprintf("y%d", i+1), same)}})
			}
			b.Drain()
			b.Step(sut.Step{Op: sut.OpPlug, Mark: "refilled", Requests: run(b, "fresh", 6)})
			w := b.Queue(b.Req("over1"))
			b.Quiet("full", 300*time.Millisecond)
			b.Check("FC-PROTO-15", "in-flight", checks.Spec{Mark: "full", Count: 6, Waiting: w, Engaged: []string{"overlap"}})
			b.FullCapacity()
		},
	},
}

// envelope proves a limit through a document of one API group.
func envelope(name, group string) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: "A document of group " + group + " starts and is effective", Needs: held, Write: func(b *scenario.Builder) {
		if b.Profile.Config.Detector == "inline" && group != b.Profile.Config.APIVersion {
			return
		}
		b.Cap(3, 1)
		b.Config.APIVersion = group
		b.Plug()
		w := b.Queue(b.Req("w1"))
		b.Quiet("full", 300*time.Millisecond)
		b.Check("FC-CFG-19", "in-flight", checks.Spec{Mark: "full", Count: 3, Waiting: w})
		b.FullCapacity()
	}}
}
