package epconfig

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/scheduling"
)

// plugin is one declared plugin. Its value's dynamic type is its kind: detector, flowcontrol.CeilingConfig, Fairness,
// ProgramAwareConfig, Ordering, scheduling.ScorerKind, PrefixConfig, []LabelFilter, endpointPicker, estimate, identity, discovery,
// parser, or accepted for a plugin without effect on this build; nil after an error.
type plugin struct {
	typ   string
	value any
	node  *yaml.Node
}

type (
	detector struct {
		flowcontrol.DetectorConfig
		producer *yaml.Node // inFlightLoadProducerName; nil: not given
	}
	estimate struct { // inflight-load-producer
		output bool
		ratio  float64
		max    int64 // 0: no limit
		sync   bool  // replicas are told of
	}
	identity       struct{ headers []string }
	endpointPicker struct{ max int }
	discovery      struct{ path string }
	parser         struct{ passthrough bool }
	handler        struct{}
	accepted       struct{}
)

// unsupported are the router's plugin types that this build knows by name and cannot run.
var unsupported = []string{
	"probabilistic-admitter", "latency-slo-admitter", "max-saturation-detector", "load-aware-scorer", "token-load-scorer",
	"precise-prefix-cache-scorer", "no-hit-lru-scorer", "context-length-aware", "latency-scorer", "mm-embeddings-cache-scorer",
	"session-affinity-scorer", "encode-filter", "prefix-cache-affinity-filter", "slo-headroom-tier-filter", "utilization-filter",
	"random-picker", "weighted-random-picker",
	"disagg-profile-handler", "data-parallel-profile-handler", "pd-profile-handler", "header-profile-handler",
	"sglanghttp-parser", "vllmgrpc-parser", "vertexai-parser", "header-based-testing-filter", "destination-endpoint-served-verifier",
}

// alpha are the plugin types of alpha stability among those that this build runs (spec/endpoint-picker.md §3.4).
var alpha = []string{"priority-holdback-policy", "soft-reflective-ceiling-policy", "sheddable-eviction-filter",
	"priority-then-time-eviction-order-policy", "agent-identity"}

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
		if v, ok := value.(identity); ok {
			l.identified(name, v)
		}
		if slices.Contains(alpha, typ) {
			l.cfg.alpha = append(l.cfg.alpha, fmt.Errorf("%s:%d: plugin '%s' (type: '%s') has Alpha stability level, but command line flag "+
				"--allow-experimental-plugins is not set", l.file, n.Line, name, typ))
		}
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
		return l.utilization(params, path, append(inlineKeys[:3:3], "headroom"))
	case "concurrency-detector":
		return l.concurrency(params, path)
	case "global-strict-fairness-policy":
		return none(flowcontrol.GlobalStrict)
	case "round-robin-fairness-policy":
		return none(flowcontrol.RoundRobin)
	case "program-aware-fairness":
		return l.programAwareFairness(params, path)
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
	case "soft-reflective-ceiling-policy":
		if l.c.Holdback {
			return none(flowcontrol.CeilingConfig{Kind: flowcontrol.SoftReflective})
		}
	case "inflight-load-producer":
		return l.loadProducer(params, path)
	case "agent-identity":
		return l.agentIdentity(params, path)
	case "file-discovery":
		o := l.object(params, path, "path", "watchFile")
		o.boolean("watchFile", false)
		if o.str("path", "") == "" {
			l.fail(o.node, "%s.path: missing", path)
		}
		return discovery{o.str("path", "")}
	default:
		if v, ok := l.schedulingPlugin(typ, path, params, at); ok {
			return v
		}
		return l.passivePlugin(typ, path, params, at)
	}
	return l.noSuchType(typ, at)
}

// schedulingPlugin covers filters, scorers and pickers; false for another type.
func (l *loader) schedulingPlugin(typ, path string, params, at *yaml.Node) (any, bool) {
	none := func(v any) (any, bool) { l.object(params, path); return v, true }
	switch typ {
	case "queue-scorer":
		return none(scheduling.Queue)
	case "kv-cache-utilization-scorer":
		return none(scheduling.KVUtilization)
	case "running-requests-size-scorer":
		return none(scheduling.RunningRequests)
	case "active-request-scorer":
		o := l.object(params, path, "requestTimeout")
		if o.has("requestTimeout") {
			l.warnAt(o.at("requestTimeout"), "%s.requestTimeout: has no effect in this build, a request counts until its stream ends", path)
		}
		return scheduling.ActiveRequests, true
	case "lora-affinity-scorer":
		return none(scheduling.LoRAAffinity)
	case "prefix-cache-scorer":
		return l.prefixScorer(params, path), true
	case "approx-prefix-cache-producer":
		return l.prefixProducer(params, path), true
	case "prefill-filter", "decode-filter":
		return none(roleFilter(typ))
	case "by-label":
		l.warnAt(at, "plugin type by-label is deprecated, use label-selector-filter")
		return l.byLabel(params, path), true
	case "label-selector-filter":
		return l.labelSelector(params, path), true
	case "by-label-selector":
		l.warnAt(at, "plugin type by-label-selector is deprecated, use label-selector-filter")
		return l.labelSelector(params, path), true
	case "max-score-picker":
		o := l.object(params, path, "maxNumOfEndpoints")
		n := o.integer("maxNumOfEndpoints", 1)
		if n < 1 {
			l.fail(o.at("maxNumOfEndpoints"), "%s.maxNumOfEndpoints: must be at least 1, got %d", path, n)
		}
		return endpointPicker{n}, true
	}
	return nil, false
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
	case "token-producer":
		keys = []string{"backend"}
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
