package epconfig

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/scheduling"
)

// TestDefaults holds what an empty document with the gate on means under each contract: the guide's configuration table, the
// chapter's procedure and spec/endpoint-picker.md §3.2. Columns: 0.9, 2026-09, rhoai.
func TestDefaults(t *testing.T) {
	utilization := func(filter bool) flowcontrol.DetectorConfig {
		return flowcontrol.DetectorConfig{Kind: flowcontrol.Utilization, QueueDepth: 5, KVUtil: 0.8, Staleness: 200 * time.Millisecond, Filter: filter, FilterFailOpen: true}
	}
	rows := []struct {
		ids, setting string
		get          func(Config) any
		want         [3]any
	}{
		{"FC-CFG-02", "gate flowControl, here named by the document", func(c Config) any { return c.FlowControl }, [3]any{true, true, true}},
		{"FC-CFG-10", "priorityBands: none listed", func(c Config) any { return len(c.Picker.Flow.Bands) }, [3]any{0, 0, 0}},
		{"FC-CFG-20 FC-FAIR-07", "fairnessPolicyRef", func(c Config) any { return c.Picker.Flow.DefaultBand.Fairness },
			[3]any{flowcontrol.GlobalStrict, flowcontrol.GlobalStrict, flowcontrol.GlobalStrict}},
		{"FC-CFG-20 FC-ORD-02", "orderingPolicyRef", func(c Config) any { return c.Picker.Flow.DefaultBand.Ordering },
			[3]any{flowcontrol.FCFS, flowcontrol.FCFS, flowcontrol.FCFS}},
		{"FC-CAP-06", "maxBytes of a band", func(c Config) any { return c.Picker.Flow.DefaultBand.MaxBytes }, [3]any{int64(1e9), int64(1e9), int64(1 << 30)}},
		{"FC-CAP-08", "maxRequests of a band; 0: no limit", func(c Config) any { return c.Picker.Flow.DefaultBand.MaxRequests }, [3]any{int64(0), int64(5000), int64(5000)}},
		{"FC-CAP-07", "maxBytes, global", func(c Config) any { return c.Picker.Flow.MaxBytes }, [3]any{int64(0), int64(0), int64(0)}},
		{"FC-CAP-07", "maxRequests, global", func(c Config) any { return c.Picker.Flow.MaxRequests }, [3]any{int64(0), int64(0), int64(0)}},
		{"FC-TTL-02", "defaultRequestTTL", func(c Config) any { return c.Picker.Flow.TTL }, [3]any{time.Duration(0), time.Minute, time.Minute}},
		{"FC-TTL-02", "noEndpointRequestTTL", func(c Config) any { return c.Picker.Flow.NoEndpointTTL }, [3]any{time.Duration(0), time.Minute, time.Minute}},
		{"FC-CFG-13 FC-GC-03", "idle time of a flow, a constant", func(c Config) any { return c.Picker.Flow.FlowIdle }, [3]any{5 * time.Minute, 5 * time.Minute, 5 * time.Minute}},
		{"FC-CFG-13 FC-GC-04", "idle time of a band, a constant", func(c Config) any { return c.Picker.Flow.BandIdle }, [3]any{10 * time.Minute, 10 * time.Minute, 10 * time.Minute}},
		{"FC-CFG-04 FC-CFG-09 FC-HEAD-04", "saturation detector, its thresholds and headroom", func(c Config) any { return c.Picker.Flow.Detector },
			[3]any{utilization(false), utilization(true), utilization(false)}},
		{"FC-CFG-20 FC-CEIL-02", "ceiling policy", func(c Config) any { return c.Picker.Flow.Ceiling.Kind },
			[3]any{flowcontrol.Static, flowcontrol.Static, flowcontrol.Static}},
		{"FC-CFG-20 FC-CEIL-02", "static threshold", func(c Config) any { return c.Picker.Flow.Ceiling.Threshold }, [3]any{1.0, 1.0, 1.0}},
		{"FC-CFG-15", "enableEviction", func(c Config) any { return c.Picker.Flow.Eviction }, [3]any{false, false, false}},
		{"FC-PRI-11", "template below 0 is that of the others", func(c Config) any { return c.Picker.Flow.DefaultNegativeBand == c.Picker.Flow.DefaultBand }, [3]any{true, true, true}},
		{"FC-PD-01", "stages", func(c Config) any { return c.Picker.Flow.Stages }, [3]any{false, true, false}},
		{"FC-REF-03", "status of a wait limit", func(c Config) any { return c.Contract.TTLStatus }, [3]any{503, 429, 503}},
		{"FC-REF-05", "refusals of an empty pool are told apart", func(c Config) any { return c.Picker.Flow.EmptyPoolOutcomes }, [3]any{false, true, false}},
		{"spec 3.5", "program-aware half-life", func(c Config) any { return c.Picker.Flow.ProgramAware.HalfLife }, [3]any{time.Duration(0), time.Minute, time.Duration(0)}},
		{"spec 8.1", "scorers", func(c Config) any { return len(c.Picker.Scheduling.Scorers) }, [3]any{3, 3, 3}},
		{"spec 8.2", "prefix cache", func(c Config) any { return c.Picker.Scheduling.Prefix }, [3]any{defaultPrefix(), defaultPrefix(), defaultPrefix()}},
		{"spec 2.4", "no agent identity", func(c Config) any { return c.SessionHeaders == nil }, [3]any{true, true, true}},
	}
	for i, name := range []string{Router09, Router202609, RHOAI34} {
		cfg := Default(contract(t, name))
		for _, r := range rows {
			if got := r.get(cfg); !reflect.DeepEqual(got, r.want[i]) {
				t.Errorf("%s: %s (%s): %v, want %v", name, r.setting, r.ids, got, r.want[i])
			}
		}
		want := []scheduling.Scorer{{Kind: scheduling.Queue, Weight: 2}, {Kind: scheduling.KVUtilization, Weight: 2}, {Kind: scheduling.PrefixCache, Weight: 3}}
		if !reflect.DeepEqual(cfg.Picker.Scheduling.Scorers, want) {
			t.Errorf("%s: scorers %v", name, cfg.Picker.Scheduling.Scorers)
		}
	}
}

// TestPolicies holds what each policy comes to when it is referred to with its default parameters (FC-CFG-07, FC-CFG-08, FC-CFG-11).
func TestPolicies(t *testing.T) {
	doc := func(plugins, flow string) string {
		return head + "plugins: [" + plugins + "]\nflowControl: {" + flow + "}\n"
	}
	detector := func(p string) string {
		return doc(p, "saturationDetector: {pluginRef: concurrency-detector}")
	}
	rows := []struct {
		why, contract, doc string
		get                func(Config) any
		want               any
	}{
		{"FC-CFG-07: concurrency defaults", "", detector("{type: concurrency-detector}"), func(c Config) any { return c.Picker.Flow.Detector },
			flowcontrol.DetectorConfig{Kind: flowcontrol.Concurrency, MaxConcurrency: 100, MaxTokens: 1e6, OutputRatio: 1.5, ForeignLimit: 2 * time.Second, Filter: true, FilterFailOpen: true}},
		{"FC-CFG-08: tokens in 0.9", Router09, detector("{type: concurrency-detector, parameters: {concurrencyMode: tokens, maxTokenConcurrency: 20k}}"),
			func(c Config) any {
				return []any{c.Picker.Flow.Detector.Mode, c.Picker.Flow.Detector.MaxTokens, c.Picker.Flow.Detector.EstimateOutput}
			},
			[]any{flowcontrol.Tokens, int64(20000), false}},
		{"FC-SAT-16: hybrid", "", detector("{type: concurrency-detector, parameters: {concurrencyMode: hybrid}}"),
			func(c Config) any { return c.Picker.Flow.Detector.Mode }, flowcontrol.Hybrid},
		{"FC-SAT-19: estimates", "", detector("{type: concurrency-detector, parameters: {inFlightLoadProducerName: p}}, {name: p, type: inflight-load-producer, parameters: {addEstimatedOutputTokens: true, outputRatio: 2, maxEstimatedOutputTokens: 100}}"),
			func(c Config) any {
				d := c.Picker.Flow.Detector
				return []any{d.EstimateOutput, d.OutputRatio, d.MaxEstimatedOutput}
			}, []any{true, 2.0, int64(100)}},
		{"the only producer needs no reference", "", detector("{type: concurrency-detector}, {name: p, type: inflight-load-producer, parameters: {addEstimatedOutputTokens: true}}"),
			func(c Config) any { return c.Picker.Flow.Detector.EstimateOutput }, true},
		{"replicas are told by default", "", detector("{type: concurrency-detector}, {name: p, type: inflight-load-producer, parameters: {syncCrossReplicaState: true}}"),
			func(c Config) any { return []any{c.Picker.Flow.Detector.ForeignLimit, len(c.Warnings)} }, []any{2 * time.Second, 0}},
		{"and are not where that is switched off", "", detector("{type: concurrency-detector}, {type: inflight-load-producer, parameters: {syncCrossReplicaState: false}}"),
			func(c Config) any {
				return []any{c.Picker.Flow.Detector.ForeignLimit, len(c.Warnings), strings.Contains(string(Effective(c)), "syncCrossReplicaState: false")}
			}, []any{time.Duration(0), 0, true}},
		{"soft-reflective", "", doc("{type: soft-reflective-ceiling-policy}", "usageLimitPolicyPluginRef: soft-reflective-ceiling-policy"),
			func(c Config) any { return c.Picker.Flow.Ceiling }, flowcontrol.CeilingConfig{Kind: flowcontrol.SoftReflective}},
		{"holdback by value", "", doc("{type: priority-holdback-policy, parameters: {minCeiling: 0.5, domain: value}}", "usageLimitPolicyPluginRef: priority-holdback-policy"),
			func(c Config) any { return c.Picker.Flow.Ceiling }, flowcontrol.CeilingConfig{Kind: flowcontrol.Holdback, Min: 0.5, Max: 1, ByValue: true}},
		{"program-aware", "", doc("{type: program-aware-fairness}", "defaultPriorityBand: {fairnessPolicyRef: program-aware-fairness}"),
			func(c Config) any { return []any{c.Picker.Flow.DefaultBand.Fairness, c.Picker.Flow.ProgramAware} },
			[]any{flowcontrol.ProgramAware, flowcontrol.ProgramAwareConfig{WeightService: 0.8, WeightHeadWait: 0.2, HalfLife: time.Minute, IdleTTL: time.Hour}}},
		{"program-aware with parameters, 0.9", Router09, doc(`{name: p, type: program-aware-fairness, parameters: {strategy: "", evictionTtlSeconds: 60, lasWeightService: 1, lasWeightHeadWait: 0, lasDecayFactor: 0.99997}}`, "priorityBands: [{priority: 3, fairnessPolicyRef: p}]"),
			func(c Config) any { return []any{c.Picker.Flow.Bands[0].Fairness, c.Picker.Flow.ProgramAware} },
			[]any{flowcontrol.ProgramAware, flowcontrol.ProgramAwareConfig{WeightService: 1, IdleTTL: time.Minute}}},
		{"agent identity", "", doc("{type: agent-identity, parameters: {additionalSessionHeaders: [X-My-Session]}}", ""),
			func(c Config) any { return c.SessionHeaders },
			[]string{"x-my-session", "x-claude-code-session-id", "x-session-affinity", "session-id", "session_id"}},
		{"prefix blocks are auto-tuned", "", doc("{type: approx-prefix-cache-producer, parameters: {maxPrefixTokensToMatch: 6400}}", ""),
			func(c Config) any { return c.Picker.Scheduling.Prefix }, scheduling.PrefixConfig{BlockTokens: 64, MaxBlocks: 100, LRUCapacity: 31250}},
		{"prefix blocks as written", "", doc("{type: approx-prefix-cache-producer, parameters: {autoTune: false}}", ""),
			func(c Config) any { return c.Picker.Scheduling.Prefix }, scheduling.PrefixConfig{BlockTokens: 16, MaxBlocks: 2048, LRUCapacity: 31250}},
		{"filters of an implied profile", "", doc("{type: decode-filter}, {type: by-label, parameters: {label: gpu, validValues: [a, b]}}, {type: queue-scorer}", ""),
			func(c Config) any { return c.Picker.Scheduling.Labels }, []scheduling.LabelFilter{
				{Key: "llm-d.ai/role", Values: []string{"decode", "prefill-decode", "both", "encode-prefill-decode"}, Missing: true}, {Key: "gpu", Values: []string{"a", "b"}}}},
		{"prefill", "", doc("{type: prefill-filter}", ""), func(c Config) any { return c.Picker.Scheduling.Labels },
			[]scheduling.LabelFilter{{Key: "llm-d.ai/role", Values: []string{"prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"}}}},
		{"gate on by value", "", "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [\"flowControl=true\"]\n", func(c Config) any { return c.FlowControl }, true},
		{"gate off by value", "", "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [\"flowControl=false\"]\n", func(c Config) any { return c.FlowControl }, false},
		{"FC-CFG-02: gate off by default", Router09, "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n", func(c Config) any { return c.FlowControl }, false},
	}
	for _, r := range rows {
		cfg, err := Load("f", []byte(r.doc), contract(t, r.contract))
		if err != nil {
			t.Errorf("%s: %v", r.why, err)
			continue
		}
		if got := r.get(cfg); !reflect.DeepEqual(got, r.want) {
			t.Errorf("%s: %+v, want %+v", r.why, got, r.want)
		}
	}
}

// TestStaticThresholdIsNotChecked: routers start with a threshold outside its documented range (FC-CFG-12, spec 3.4).
func TestStaticThresholdIsNotChecked(t *testing.T) {
	for value, remark := range map[string]string{"0": "nothing is ever dispatched", "-1": "nothing is ever dispatched", "1.5": "overcommitted", "0.5": "", "1": ""} {
		doc := head + "plugins:\n- type: static-usage-limit-policy\n  parameters: {threshold: " + value + "}\nflowControl: {usageLimitPolicyPluginRef: static-usage-limit-policy}\n"
		for _, name := range ContractNames() {
			cfg, err := Load("f", []byte(doc), contract(t, name))
			if err != nil {
				t.Errorf("%s: %s: %v", name, value, err)
				continue
			}
			all := strings.Join(cfg.Warnings, "\n")
			if (remark == "") != (all == "") || !strings.Contains(all, remark) || (remark != "" && !strings.HasPrefix(all, "f:6: plugins[0].parameters.threshold")) {
				t.Errorf("%s: %s: warnings %q", name, value, all)
			}
		}
	}
}

// TestAlphaPluginsNeedTheirFlag: FC-CFG-14.
func TestAlphaPluginsNeedTheirFlag(t *testing.T) {
	rows := []struct {
		why, contract, doc, want string
	}{
		{"a stable document", "", head, ""},
		{"holdback", "", head + "plugins:\n- {name: hold, type: priority-holdback-policy, parameters: {minCeiling: 0.5}}\n",
			"f:5: plugin 'hold' (type: 'priority-holdback-policy') has Alpha stability level, but command line flag --allow-experimental-plugins is not set"},
		{"eviction by its switch needs none", "", head + "flowControl: {enableEviction: true}\n", ""},
		{"0.9 has no such flag", Router09, head + "plugins: [{type: agent-identity}]\n", ""},
	}
	for _, r := range rows {
		cfg, err := Load("f", []byte(r.doc), contract(t, r.contract))
		if err != nil {
			t.Fatal(r.why, err)
		}
		if got := cfg.Stable(); (got == nil) != (r.want == "") || (got != nil && got.Error() != r.want) {
			t.Errorf("%s: %v, want %q", r.why, got, r.want)
		}
	}
}
