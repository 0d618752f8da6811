package epconfig

import (
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/scheduling"
)

// plugin is one declared plugin. Its value's dynamic type is its kind: flowcontrol.DetectorConfig, CeilingConfig, Fairness,
// Ordering, scheduling.ScorerKind, endpointPicker, discovery, parser, or accepted for a plugin without effect on this build.
type plugin struct {
	typ   string
	value any
	node  *yaml.Node
}

type (
	endpointPicker struct{ max int }
	discovery      struct{ path string }
	parser         struct{ passthrough bool }
	handler        struct{}
	accepted       struct{}
)

// unsupported are the router's plugin types that this build knows by name and cannot run.
var unsupported = []string{
	"program-aware-fairness", "soft-reflective-ceiling-policy", "probabilistic-admitter", "latency-slo-admitter", "agent-identity",
	"max-saturation-detector", "load-aware-scorer", "token-load-scorer", "precise-prefix-cache-scorer", "lora-affinity-scorer",
	"no-hit-lru-scorer", "context-length-aware", "latency-scorer", "mm-embeddings-cache-scorer", "session-affinity-scorer",
	"label-selector-filter", "by-label", "by-label-selector", "encode-filter", "prefill-filter", "decode-filter",
	"prefix-cache-affinity-filter", "slo-headroom-tier-filter", "utilization-filter", "random-picker", "weighted-random-picker",
	"disagg-profile-handler", "data-parallel-profile-handler", "pd-profile-handler", "header-profile-handler",
	"sglanghttp-parser", "vllmgrpc-parser", "vertexai-parser", "header-based-testing-filter", "destination-endpoint-served-verifier",
}

// plugins reads the list of declared plugins.
func (l *loader) plugins(root object) {
	for i, n := range root.list("plugins") {
		path := fmt.Sprintf("plugins[%d]", i)
		o := l.object(n, path, "name", "type", "parameters")
		typ := o.str("type", "")
		if typ == "" {
			l.fail(n, "%s.type: missing", path)
			continue
		}
		name := o.str("name", typ)
		if _, dup := l.declared[name]; dup {
			l.fail(o.at("name"), "%s.name: duplicate plugin name %q", path, name)
			continue
		}
		params := l.fieldOr(o, "parameters")
		value := l.pluginValue(typ, join(path, "parameters"), params, n)
		l.declared[name] = plugin{typ: typ, value: value, node: n}
		l.order = append(l.order, name)
	}
}

func (l *loader) fieldOr(o object, key string) *yaml.Node {
	if f, ok := o.fields[key]; ok {
		return f.value
	}
	return &yaml.Node{Kind: yaml.MappingNode, Line: o.node.Line}
}

// pluginValue is the one switch over plugin types; nil for a type that cannot be used, after saying so.
func (l *loader) pluginValue(typ, path string, params *yaml.Node, at *yaml.Node) any {
	none := func(v any) any { l.object(params, path); return v }
	switch typ {
	case "utilization-detector":
		return l.utilization(params, path)
	case "concurrency-detector":
		return l.concurrency(params, path)
	case "global-strict-fairness-policy":
		return none(flowcontrol.GlobalStrict)
	case "round-robin-fairness-policy":
		return none(flowcontrol.RoundRobin)
	case "fcfs-ordering-policy":
		return none(flowcontrol.FCFS)
	case "edf-ordering-policy":
		return none(flowcontrol.EDF)
	case "slo-deadline-ordering-policy":
		return none(flowcontrol.SLODeadline)
	case "static-usage-limit-policy":
		return l.static(params, path)
	case "priority-holdback-policy":
		if l.c.Holdback {
			return l.holdback(params, path)
		}
	case "queue-scorer":
		return none(scheduling.Queue)
	case "kv-cache-utilization-scorer":
		return none(scheduling.KVUtilization)
	case "running-requests-size-scorer":
		return none(scheduling.RunningRequests)
	case "active-request-scorer":
		l.object(params, path, "requestTimeout")
		return scheduling.ActiveRequests
	case "prefix-cache-scorer":
		l.object(params, path, "prefixMatchInfoProducerName", "matchLengthWeight", "matchLengthScaleTokens")
		return scheduling.PrefixCache
	case "max-score-picker":
		o := l.object(params, path, "maxNumOfEndpoints")
		max := o.integer("maxNumOfEndpoints", 1)
		if max < 1 {
			l.fail(o.at("maxNumOfEndpoints"), "%s.maxNumOfEndpoints: must be at least 1, got %d", path, max)
		}
		return endpointPicker{max}
	case "file-discovery":
		o := l.object(params, path, "path", "watchFile")
		o.boolean("watchFile", false)
		if o.str("path", "") == "" {
			l.fail(o.node, "%s.path: missing", path)
		}
		return discovery{o.str("path", "")}
	default:
		return l.passivePlugin(typ, path, params, at)
	}
	return l.noSuchType(typ, at)
}

// passivePlugin covers the plugins that name what this build does anyway.
func (l *loader) passivePlugin(typ, path string, params, at *yaml.Node) any {
	var keys []string
	var v any = accepted{}
	switch typ {
	case "single-profile-handler":
		v = handler{}
	case "openai-parser", "anthropic-parser", "vllmhttp-parser":
		v = parser{}
	case "passthrough-parser":
		v = parser{passthrough: true}
	case "metrics-data-source":
		keys = []string{"scheme", "path", "insecureSkipVerify"}
	case "core-metrics-extractor":
		keys = []string{"engineLabelKey", "defaultEngine", "engineConfigs"}
	case "inflight-load-producer":
		keys = []string{"syncCrossReplicaState", "prefixMatchInfoProducerName", "addEstimatedOutputTokens", "outputRatio", "maxEstimatedOutputTokens"}
	case "token-producer":
		keys = []string{"backend"}
	case "approx-prefix-cache-producer":
		keys = []string{"autoTune", "blockSizeTokens", "maxPrefixTokensToMatch", "maxPrefixBlocksToMatch", "lruCapacityPerServer"}
	case "sheddable-eviction-filter", "priority-then-time-eviction-order-policy":
		if !l.c.Eviction {
			return l.noSuchType(typ, at)
		}
	default:
		return l.noSuchType(typ, at)
	}
	o := l.object(params, path, keys...)
	if len(o.fields) > 0 {
		l.warnAt(o.node, "%s: the parameters of %s have no effect in this build", path, typ)
	}
	return v
}

func (l *loader) noSuchType(typ string, at *yaml.Node) any {
	if slices.Contains(unsupported, typ) {
		l.fail(at, "plugin type %q is not supported by this build", typ)
	} else {
		l.fail(at, "plugin type %q is not registered: unknown plugin for contract %s", typ, l.c.Name)
	}
	return nil
}

// defaultDetector is a utilization-detector without parameters.
func defaultDetector() flowcontrol.DetectorConfig {
	return flowcontrol.DetectorConfig{
		Kind: flowcontrol.Utilization, QueueDepth: 5, KVUtil: 0.8, Staleness: 200 * time.Millisecond, FilterFailOpen: true,
	}
}

func (l *loader) utilization(n *yaml.Node, path string, extra ...string) flowcontrol.DetectorConfig {
	d := defaultDetector()
	o := l.object(n, path, append([]string{"queueDepthThreshold", "kvCacheUtilThreshold", "metricsStalenessThreshold", "headroom"}, extra...)...)
	d.QueueDepth = o.integer("queueDepthThreshold", d.QueueDepth)
	d.KVUtil = o.number("kvCacheUtilThreshold", d.KVUtil)
	d.Staleness = o.duration("metricsStalenessThreshold", d.Staleness)
	d.Headroom = l.headroom(o)
	if d.QueueDepth <= 0 {
		l.fail(o.at("queueDepthThreshold"), "%s.queueDepthThreshold: must be above 0, got %d", path, d.QueueDepth)
	}
	if d.KVUtil <= 0 || d.KVUtil > 1 {
		l.fail(o.at("kvCacheUtilThreshold"), "%s.kvCacheUtilThreshold: must be in (0,1], got %v", path, d.KVUtil)
	}
	if d.Staleness <= 0 {
		l.fail(o.at("metricsStalenessThreshold"), "%s.metricsStalenessThreshold: must be above 0, got %v", path, d.Staleness)
	}
	return d
}

func (l *loader) concurrency(n *yaml.Node, path string) flowcontrol.DetectorConfig {
	d := flowcontrol.DetectorConfig{Kind: flowcontrol.Concurrency, FilterFailOpen: l.c.ConcurrencyFailOpen}
	o := l.object(n, path, "concurrencyMode", "maxConcurrency", "maxTokenConcurrency", "headroom", "inFlightLoadProducerName")
	switch mode := o.str("concurrencyMode", "requests"); mode {
	case "requests":
	case "tokens", "hybrid":
		l.fail(o.at("concurrencyMode"), "%s.concurrencyMode: %q is not supported by this build, only \"requests\" is", path, mode)
	default:
		l.fail(o.at("concurrencyMode"), "%s.concurrencyMode: unknown mode %q", path, mode)
	}
	d.MaxConcurrency = o.integer("maxConcurrency", 100)
	if d.MaxConcurrency <= 0 {
		l.fail(o.at("maxConcurrency"), "%s.maxConcurrency: must be above 0, got %d", path, d.MaxConcurrency)
	}
	if tokens := o.quantity("maxTokenConcurrency", 1e6); tokens <= 0 {
		l.fail(o.at("maxTokenConcurrency"), "%s.maxTokenConcurrency: must be above 0, got %d", path, tokens)
	}
	o.str("inFlightLoadProducerName", "")
	d.Headroom = l.headroom(o)
	return d
}

func (l *loader) headroom(o object) float64 {
	h := o.number("headroom", 0)
	if h < 0 {
		l.fail(o.at("headroom"), "%s.headroom: must not be negative, got %v", o.path, h)
	}
	if h > 1 {
		l.warnAt(o.at("headroom"), "%s.headroom: %v more than doubles the filter boundary", o.path, h)
	}
	return h
}

func (l *loader) static(n *yaml.Node, path string) flowcontrol.CeilingConfig {
	o := l.object(n, path, "threshold")
	c := flowcontrol.CeilingConfig{Kind: flowcontrol.Static, Threshold: o.number("threshold", 1)}
	if c.Threshold <= 0 || c.Threshold > 1 {
		l.fail(o.at("threshold"), "%s.threshold: must be in (0,1], got %v", path, c.Threshold)
	}
	return c
}

func (l *loader) holdback(n *yaml.Node, path string) flowcontrol.CeilingConfig {
	o := l.object(n, path, "shape", "domain", "minCeiling", "maxCeiling")
	c := flowcontrol.CeilingConfig{Kind: flowcontrol.Holdback, Min: o.number("minCeiling", 0), Max: o.number("maxCeiling", 1)}
	if s := o.str("shape", "linear"); s != "linear" {
		l.fail(o.at("shape"), "%s.shape: %q is unknown, only \"linear\" is", path, s)
	}
	switch d := o.str("domain", "rank"); d {
	case "rank":
	case "value":
		c.ByValue = true
	default:
		l.fail(o.at("domain"), "%s.domain: %q is neither \"rank\" nor \"value\"", path, d)
	}
	switch {
	case !o.has("minCeiling"):
		l.fail(o.node, "%s.minCeiling: missing", path)
	case c.Min < 0 || c.Min >= 1:
		l.fail(o.at("minCeiling"), "%s.minCeiling: must be in [0,1), got %v", path, c.Min)
	case c.Min >= c.Max:
		l.fail(o.at("minCeiling"), "%s.minCeiling: %v must be below maxCeiling %v", path, c.Min, c.Max)
	}
	if c.Max <= 0 || c.Max > 1 {
		l.fail(o.at("maxCeiling"), "%s.maxCeiling: must be in (0,1], got %v", path, c.Max)
	}
	return c
}
