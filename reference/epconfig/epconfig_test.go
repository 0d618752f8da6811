package epconfig

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/reference/flowcontrol"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the goldens")

const head = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\n"

func contract(t testing.TB, name string) Contract {
	t.Helper()
	c, err := ContractNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestContracts(t *testing.T) {
	for _, name := range ContractNames() {
		if c := contract(t, name); c.Name != name {
			t.Errorf("contract %s calls itself %s", name, c.Name)
		}
	}
	if contract(t, "").Name != Router202609 {
		t.Error("the default contract is not " + Router202609)
	}
	if _, err := ContractNamed("router-9"); err == nil || !strings.Contains(err.Error(), Router09) {
		t.Errorf("an unknown contract must list the known ones, got %v", err)
	}
}

func TestConcurrencyFilterFailsOpenOnlyInTheNewestContract(t *testing.T) {
	doc := head + "plugins: [{type: concurrency-detector, parameters: {maxConcurrency: 4, headroom: 0.25}}]\nflowControl: {saturationDetector: {pluginRef: concurrency-detector}}\n"
	for _, name := range ContractNames() {
		cfg, err := Load("c", []byte(doc), contract(t, name))
		if err != nil {
			t.Fatal(err)
		}
		want := flowcontrol.DetectorConfig{Kind: flowcontrol.Concurrency, MaxConcurrency: 4, MaxTokens: 1e6, OutputRatio: 1.5, ForeignLimit: 2 * time.Second, Headroom: 0.25,
			Filter: true, FilterFailOpen: name == Router202609}
		if got := cfg.Picker.Flow.Detector; got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// TestGoldens prints what each document comes to under each contract: the effective configuration, or the reasons to refuse it.
func TestGoldens(t *testing.T) {
	files, err := filepath.Glob("testdata/seeds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(files, "testdata/external-epp.yaml", "testdata/everything.yaml") {
		file := strings.TrimPrefix(filepath.ToSlash(path), "testdata/")
		for _, name := range ContractNames() {
			t.Run(file+"@"+name, func(t *testing.T) {
				doc, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				cfg, err := Load(file, doc, contract(t, name))
				text := Effective(cfg)
				if err != nil {
					text = []byte("refused:\n" + err.Error() + "\n")
				} else if err := cfg.Picker.Validate(); err != nil {
					t.Errorf("accepted, but the picker refuses it: %v", err)
				}
				golden(t, strings.TrimSuffix(file, ".yaml")+"."+name+".golden", text)
			})
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s (go test -rewrite rewrites it):\n%s", path, got)
	}
}

// TestErrors holds one mistake a row: where it is reported and by which words.
func TestErrors(t *testing.T) {
	rows := []struct{ why, contract, doc, want string }{
		{"the envelope is checked", "", "apiVersion: v1\nkind: Pod\n", "f:1: apiVersion: expected llm-d.ai/v1alpha1"},
		{"an empty document is no configuration", "", "", "f:1: the document is empty"},
		{"two documents are one too many", "", head + "---\nkind: x\n", "a second document"},
		{"broken YAML names the line", "", "a: [\n", "f: yaml: line"},
		{"unknown top-level key", "", head + "flowcontrol: {}\n", `f:4: strict decoding error: unknown field "flowcontrol"`},
		{"FC-CFG-13: internal constants are no API fields", "", head + "flowControl:\n  expiryCleanupInterval: 1s\n", `f:5: strict decoding error: unknown field "flowControl.expiryCleanupInterval": the sweep interval of 1s is a constant of the router`},
		{"FC-CFG-13: nor in 0.9", Router09, head + "flowControl: {flowGCTimeout: 1m}\n", `unknown field "flowControl.flowGCTimeout": the idle time of a flow, 5m, is a constant`},
		{"FC-CFG-13: nor the band's", "", head + "flowControl: {priorityBandGCTimeout: 1m}\n", `unknown field "flowControl.priorityBandGCTimeout": the idle time of a band, 10m, is a constant`},
		{"FC-CFG-13: nor the buffer", "", head + "flowControl: {enqueueChannelBufferSize: 1}\n", `the hand-off buffer of 100 requests is a constant`},
		{"band TTLs are newer than this build", "", head + "flowControl: {priorityBands: [{priority: 1, defaultRequestTTL: 1s}]}\n", `unknown field "flowControl.priorityBands[0].defaultRequestTTL": wait limits per band are not supported by this build`},
		{"band TTLs do not exist in 0.9", Router09, head + "flowControl: {priorityBands: [{priority: 1, defaultRequestTTL: 1s}]}\n", `unknown field "flowControl.priorityBands[0].defaultRequestTTL"`},
		{"FC-CFG-08: no hybrid in 0.9", Router09, head + "plugins: [{type: concurrency-detector, parameters: {concurrencyMode: hybrid}}]\n", `"hybrid" does not exist in contract llm-d-router-0.9`},
		{"FC-CFG-07: token limit", "", head + "plugins: [{type: concurrency-detector, parameters: {maxTokenConcurrency: 0}}]\n", "maxTokenConcurrency: must be above 0"},
		{"no output ratio in 0.9", Router09, head + "plugins: [{type: inflight-load-producer, parameters: {outputRatio: 2}}]\n", `unknown field "plugins[0].parameters.outputRatio"`},
		{"output ratio", "", head + "plugins: [{type: inflight-load-producer, parameters: {outputRatio: 0}}]\n", "outputRatio: must be above 0"},
		{"output cap", "", head + "plugins: [{type: inflight-load-producer, parameters: {maxEstimatedOutputTokens: -1}}]\n", "maxEstimatedOutputTokens: must not be negative"},
		{"undefined producer", "", head + "plugins: [{type: concurrency-detector, parameters: {inFlightLoadProducerName: x}}]\nflowControl: {saturationDetector: {pluginRef: concurrency-detector}}\n", "f:4: inFlightLoadProducerName: references undefined plugin 'x'"},
		{"producer of the wrong kind", "", head + "plugins: [{type: queue-scorer}, {type: concurrency-detector, parameters: {inFlightLoadProducerName: queue-scorer}}]\nflowControl: {saturationDetector: {pluginRef: concurrency-detector}}\n", "does not implement an in-flight load producer"},
		{"several producers", "", head + "plugins: [{name: a, type: inflight-load-producer}, {name: b, type: inflight-load-producer}, {type: concurrency-detector}]\nflowControl: {saturationDetector: {pluginRef: concurrency-detector}}\n", "name one in the concurrency-detector's inFlightLoadProducerName"},
		{"program-aware strategy", "", head + "plugins: [{type: program-aware-fairness, parameters: {strategy: fifo}}]\n", `strategy: "fifo" is unknown`},
		{"program-aware sweep", "", head + "plugins: [{type: program-aware-fairness, parameters: {evictionSweepSeconds: 0}}]\n", "evictionSweepSeconds: must be above 0"},
		{"program-aware weight", "", head + "plugins: [{type: program-aware-fairness, parameters: {lasWeightService: -1}}]\n", "lasWeightService: must not be negative"},
		{"program-aware ages", "", head + "plugins: [{type: program-aware-fairness, parameters: {evictionTtlSeconds: 1e30}}]\n", "evictionTtlSeconds: must be at most"},
		{"the decay factor is gone", "", head + "plugins: [{type: program-aware-fairness, parameters: {lasDecayFactor: 0.5}}]\n", `unknown field "plugins[0].parameters.lasDecayFactor"`},
		{"decay factor", Router09, head + "plugins: [{type: program-aware-fairness, parameters: {lasDecayFactor: 2}}]\n", "lasDecayFactor: must be in (0,1]"},
		{"one set of program-aware parameters", "", head + "plugins: [{name: a, type: program-aware-fairness}, {name: b, type: program-aware-fairness, parameters: {lasWeightService: 1}}]\nflowControl: {priorityBands: [{priority: 1, fairnessPolicyRef: a}, {priority: 2, fairnessPolicyRef: b}]}\n", "'a' and 'b' differ"},
		{"no soft-reflective in 0.9", Router09, head + "plugins: [{type: soft-reflective-ceiling-policy}]\n", "unknown plugin for contract"},
		{"soft-reflective takes nothing", "", head + "plugins: [{type: soft-reflective-ceiling-policy, parameters: {a: 1}}]\n", `unknown field "plugins[0].parameters.a"`},
		{"holdback domain", "", head + "plugins: [{type: priority-holdback-policy, parameters: {minCeiling: 0, domain: name}}]\n", `domain: "name" is neither "rank" nor "value"`},
		{"one prefix cache", "", head + "plugins: [{name: a, type: approx-prefix-cache-producer}, {name: b, type: approx-prefix-cache-producer, parameters: {lruCapacityPerServer: 1}}]\n", "more than one prefix cache"},
		{"prefix block", "", head + "plugins: [{type: approx-prefix-cache-producer, parameters: {blockSizeTokens: 0}}]\n", "blockSizeTokens: must be above 0"},
		{"prefix match length", "", head + "plugins: [{type: prefix-cache-scorer, parameters: {matchLengthWeight: 0.5}}]\n", "matchLengthWeight: 0.5 is not supported by this build"},
		{"no match length in 0.9", Router09, head + "plugins: [{type: prefix-cache-scorer, parameters: {matchLengthWeight: 0}}]\n", `unknown field "plugins[0].parameters.matchLengthWeight"`},
		{"role filters take nothing", "", head + "plugins: [{type: prefill-filter, parameters: {a: 1}}]\n", `unknown field "plugins[0].parameters.a"`},
		{"a label filter names its label", "", head + "plugins: [{type: by-label, parameters: {validValues: [a]}}]\n", "parameters.label: missing"},
		{"a label filter names values", "", head + "plugins: [{type: by-label, parameters: {label: a}}]\n", "validValues: missing"},
		{"only unlabelled endpoints", "", head + "plugins: [{type: by-label, parameters: {label: a, allowsNoLabel: true}}]\n", "an empty list is not supported"},
		{"a selector selects", "", head + "plugins: [{type: label-selector-filter}]\n", "a selector needs matchLabels or matchExpressions"},
		{"selector operators", "", head + "plugins: [{type: label-selector-filter, parameters: {matchExpressions: [{key: a, operator: NotIn, values: [b]}]}}]\n", `operator: "NotIn" is not supported by this build`},
		{"selector values", "", head + "plugins: [{type: label-selector-filter, parameters: {matchExpressions: [{key: a, operator: In}]}}]\n", "In needs at least one"},
		{"selector labels are strings", "", head + "plugins: [{type: label-selector-filter, parameters: {matchLabels: {a: true}}}]\n", "matchLabels.a: expected a string"},
		{"session headers are a list", "", head + "plugins: [{type: agent-identity, parameters: {additionalSessionHeaders: x}}]\n", "additionalSessionHeaders: expected a list"},
		{"one agent identity", "", head + "plugins: [{type: agent-identity}, {name: b, type: agent-identity, parameters: {additionalSessionHeaders: [x]}}]\n", "a second agent-identity"},
		{"inline thresholds are those three", RHOAI34, head + "saturationDetector: {queueDepthThreshold: 5, headroom: 0.1}\n", `unknown field "saturationDetector.headroom"`},
		{"random picking is known and not ours", "", head + "plugins: [{type: random-picker}]\n", `plugin type "random-picker" is not supported by this build`},
		{"weighted random picking too", Router09, head + "plugins: [{type: weighted-random-picker}]\n", `plugin type "weighted-random-picker" is not supported by this build`},
		{"duplicate key", "", head + "flowControl: {}\nflowControl: {}\n", `f:5: strict decoding error: duplicate field "flowControl"`},
		{"no eviction in 0.9", Router09, head + "flowControl: {enableEviction: true}\n", `unknown field "flowControl.enableEviction"`},
		{"no eviction in rhoai", RHOAI34, head + "flowControl: {enableEviction: true}\n", `unknown field "flowControl.enableEviction"`},
		{"no empty-pool budget in 0.9", Router09, head + "flowControl: {noEndpointRequestTTL: 1s}\n", `unknown field "flowControl.noEndpointRequestTTL"`},
		{"no holdback in 0.9", Router09, head + "plugins: [{type: priority-holdback-policy, parameters: {minCeiling: 0.5}}]\n", "unknown plugin"},
		{"inline thresholds are a thing of the past", "", head + "saturationDetector:\n  queueDepthThreshold: 5\n", `f:5: strict decoding error: unknown field "saturationDetector.queueDepthThreshold": declare a plugin of type utilization-detector`},
		{"unknown gate", "", "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [dataLayer]\n", "feature gate 'dataLayer' is unknown or unregistered"},
		{"0.9 knows only bare gates", Router09, "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl=true]\n", "feature gate 'flowControl=true' is unknown"},
		{"negative count", "", head + "flowControl: {maxRequests: -1}\n", "global MaxRequests must be non-negative, got -1"},
		{"negative bytes", "", head + "flowControl: {maxBytes: -1}\n", "global MaxBytes must be non-negative, got -1"},
		{"negative TTL", "", head + "flowControl: {defaultRequestTTL: -1s}\n", "DefaultRequestTTL cannot be negative, but got -1s"},
		{"negative empty-pool TTL", "", head + "flowControl: {noEndpointRequestTTL: -1s}\n", "NoEndpointRequestTTL cannot be negative"},
		{"no quantity", "", head + "flowControl: {maxBytes: 1Q}\n", "flowControl.maxBytes: expected a whole quantity"},
		{"no duration", "", head + "flowControl: {defaultRequestTTL: 5}\n", "flowControl.defaultRequestTTL: expected a duration"},
		{"one band a priority", "", head + "flowControl:\n  priorityBands:\n  - priority: 1\n  - priority: 1\n", "f:7: flowControl.priorityBands[1].priority: duplicate priority level 1"},
		{"negative band limit", "", head + "flowControl: {priorityBands: [{priority: 1, maxRequests: -3}]}\n", "priorityBands[0].maxRequests: band MaxRequests must be non-negative, got -3"},
		{"undefined detector", "", head + "flowControl: {saturationDetector: {pluginRef: x}}\n", "saturation detector references undefined plugin 'x'"},
		{"undefined ceiling", "", head + "flowControl: {usageLimitPolicyPluginRef: x}\n", `failed to resolve usage limit policy: plugin "x" not found`},
		{"undefined fairness", "", head + "flowControl: {priorityBands: [{priority: 1, fairnessPolicyRef: x}]}\n", "fairnessPolicyRef: references undefined plugin 'x'"},
		{"policy of the wrong kind", "", head + "flowControl: {priorityBands: [{priority: 1, fairnessPolicyRef: fcfs-ordering-policy}]}\n", "does not implement a fairness policy"},
		{"detector of the wrong kind", "", head + "plugins: [{type: queue-scorer}]\nflowControl: {saturationDetector: {pluginRef: queue-scorer}}\n", "does not implement a saturation detector"},
		{"two detectors", "", head + "saturationDetector: {pluginRef: utilization-detector}\nflowControl: {saturationDetector: {pluginRef: utilization-detector}}\n", "given twice"},
		{"unknown parameter", "", head + "plugins:\n- type: utilization-detector\n  parameters: {queueDepth: 3}\n", `f:6: strict decoding error: unknown field "plugins[0].parameters.queueDepth"`},
		{"policies take none", "", head + "plugins: [{type: fcfs-ordering-policy, parameters: {a: 1}}]\n", `unknown field "plugins[0].parameters.a"`},
		{"KV threshold", "", head + "plugins: [{type: utilization-detector, parameters: {kvCacheUtilThreshold: 1.5}}]\n", "kvCacheUtilThreshold: must be in (0,1], got 1.5"},
		{"queue threshold", "", head + "plugins: [{type: utilization-detector, parameters: {queueDepthThreshold: 0}}]\n", "queueDepthThreshold: must be above 0"},
		{"staleness", "", head + "plugins: [{type: utilization-detector, parameters: {metricsStalenessThreshold: 0s}}]\n", "metricsStalenessThreshold: must be above 0"},
		{"headroom", "", head + "plugins: [{type: utilization-detector, parameters: {headroom: -0.1}}]\n", "headroom: must not be negative"},
		{"no such mode", "", head + "plugins: [{type: concurrency-detector, parameters: {concurrencyMode: x}}]\n", `unknown mode "x"`},
		{"concurrency", "", head + "plugins: [{type: concurrency-detector, parameters: {maxConcurrency: 0}}]\n", "maxConcurrency: must be above 0"},
		{"holdback needs a floor", "", head + "plugins: [{type: priority-holdback-policy}]\n", "minCeiling: missing"},
		{"holdback order", "", head + "plugins: [{type: priority-holdback-policy, parameters: {minCeiling: 0.9, maxCeiling: 0.8}}]\n", "must be below maxCeiling"},
		{"holdback shape", "", head + "plugins: [{type: priority-holdback-policy, parameters: {minCeiling: 0, shape: cubic}}]\n", "only \"linear\" is"},
		{"unknown type", "", head + "plugins: [{type: foo}]\n", `plugin type "foo" is not registered`},
		{"one name a plugin", "", head + "plugins: [{type: queue-scorer}, {type: queue-scorer}]\n", `duplicate plugin name "queue-scorer"`},
		{"type is required", "", head + "plugins: [{name: x}]\n", "plugins[0].type: missing"},
		{"profiles refer to what is declared", "", head + "schedulingProfiles: [{name: p, plugins: [{pluginRef: x}]}]\n", "references undefined plugin 'x'"},
		{"policies are no profile plugins", "", head + "plugins: [{type: fcfs-ordering-policy}]\nschedulingProfiles: [{name: p, plugins: [{pluginRef: fcfs-ordering-policy}]}]\n", "does not implement a filter, scorer or picker"},
		{"weights", "", head + "plugins: [{type: queue-scorer}]\nschedulingProfiles: [{name: p, plugins: [{pluginRef: queue-scorer, weight: -1}]}]\n", "weight: must not be negative"},
		{"file discovery needs a file", "", head + "plugins: [{type: file-discovery}]\n", "parameters.path: missing"},
		{"discovery of the wrong kind", "", head + "plugins: [{type: queue-scorer}]\ndataLayer: {discovery: {pluginRef: queue-scorer}}\n", "does not implement discovery"},
		{"a list is a list", "", head + "plugins: {}\n", "plugins: expected a list"},
		{"a mapping is a mapping", "", head + "flowControl: 3\n", "flowControl: expected a mapping"},
	}
	for _, r := range rows {
		if _, err := Load("f", []byte(r.doc), contract(t, r.contract)); err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s: got %v, want %q", r.why, err, r.want)
		}
	}
}

func TestAllErrorsAtOnce(t *testing.T) {
	doc := head + `flowControl:
  maxRequests: -1
  bogus: 1
  priorityBands:
  - {priority: 0, orderingPolicyRef: nope}
  - {priority: 0}
plugins:
- {type: utilization-detector, parameters: {kvCacheUtilThreshold: 9, wrong: 1}}
`
	_, err := Load("f.yaml", []byte(doc), contract(t, ""))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, line := range []string{"f.yaml:5:", "f.yaml:6:", "f.yaml:8:", "f.yaml:9:", "f.yaml:11:"} {
		if !strings.Contains(err.Error(), line) {
			t.Errorf("no error of %s in\n%v", line, err)
		}
	}
	if n := len(strings.Split(err.Error(), "\n")); n != 6 {
		t.Errorf("%d errors instead of 6:\n%v", n, err)
	}
}

func TestTTLRegimes(t *testing.T) {
	rows := []struct {
		why, contract, block string
		ttl, none            time.Duration
	}{
		{"the empty-pool budget follows the TTL", "", "defaultRequestTTL: 5s", 5 * time.Second, 5 * time.Second},
		{"each can be set", "", "defaultRequestTTL: 5s, noEndpointRequestTTL: 2s", 5 * time.Second, 2 * time.Second},
		{"an explicit 0s is no limit", "", "defaultRequestTTL: 0s", 0, 0},
		{"0s for one regime only", "", "noEndpointRequestTTL: 0s", time.Minute, 0},
		{"0.9 has one budget", Router09, "defaultRequestTTL: 2s", 2 * time.Second, 2 * time.Second},
	}
	for _, r := range rows {
		cfg, err := Load("f", []byte(head+"flowControl: {"+r.block+"}\n"), contract(t, r.contract))
		if err != nil {
			t.Fatal(r.why, err)
		}
		if f := cfg.Picker.Flow; f.TTL != r.ttl || f.NoEndpointTTL != r.none {
			t.Errorf("%s: TTL %v, NoEndpointTTL %v", r.why, f.TTL, f.NoEndpointTTL)
		}
	}
}

func TestQuantities(t *testing.T) {
	good := map[string]int64{"2000": 2000, "1k": 1000, "1Gi": 1 << 30, "1e9": 1e9, "1E3": 1000, "1.5Ki": 1536, "2000m": 2, "1E": 1e18, "-3": -3, "0": 0}
	for s, want := range good {
		if got, err := parseQuantity(s); err != nil || got != want {
			t.Errorf("%s: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "k", "1.5", "1e", "1ee3", "1e99", "1e999999999", "1 k", "0x10", "9Ei", "1K", "1_000", strings.Repeat("1", 60)} {
		if got, err := parseQuantity(s); err == nil {
			t.Errorf("%s: accepted as %d", s, got)
		}
	}
}

func TestGateOffIsAWarning(t *testing.T) {
	cfg, err := Load("f", []byte("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nflowControl: {maxRequests: 3}\n"), contract(t, ""))
	if err != nil || cfg.FlowControl || len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0], "f:3: flowControl: ignored") {
		t.Errorf("%+v %v", cfg.Warnings, err)
	}
}

func FuzzLoad(f *testing.F) {
	seeds, _ := filepath.Glob("testdata/seeds/*.yaml")
	for _, file := range append(seeds, "testdata/external-epp.yaml", "testdata/everything.yaml") {
		doc, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(doc)
	}
	f.Add([]byte(head + "plugins: &a [*a]\n"))
	f.Add([]byte("<<: {kind: EndpointPickerConfig}\n"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		for _, name := range ContractNames() {
			c, _ := ContractNamed(name)
			cfg, err := Load("f", doc, c)
			if err != nil {
				continue
			}
			if err := cfg.Picker.Validate(); err != nil {
				t.Errorf("accepted, but the picker refuses it: %v", err)
			}
			fc := cfg.Picker.Flow
			if fc.TTL < 0 || fc.NoEndpointTTL < 0 || fc.MaxBytes < 0 || fc.MaxRequests < 0 || cfg.Picker.Scheduling.MaxEndpoints < 1 {
				t.Errorf("accepted with negative limits: %+v", fc)
			}
			if again := Effective(cfg); len(again) == 0 {
				t.Error("nothing printed")
			}
		}
	})
}
