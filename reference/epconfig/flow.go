package epconfig

import (
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/reference/flowcontrol"
)

// flowControl fills in cfg.Picker.Flow from the block of that name, the top-level detector and the contract's defaults.
func (l *loader) flowControl(root object) {
	keys := []string{"maxBytes", "maxRequests", "defaultRequestTTL", "defaultPriorityBand", "defaultNegativePriorityBand",
		"priorityBands", "usageLimitPolicyPluginRef", "saturationDetector"}
	if l.c.Eviction {
		keys = append(keys, "enableEviction")
	}
	if l.c.NoEndpointTTL {
		keys = append(keys, "noEndpointRequestTTL")
	}
	o, given := root.child("flowControl", keys...)
	if given && !l.cfg.FlowControl {
		l.warnAt(root.at("flowControl"), "flowControl: ignored but for its saturationDetector, because the feature gate flowControl is off")
	}
	f := &l.cfg.Picker.Flow
	*f = flowcontrol.Config{
		Off: !l.cfg.FlowControl, ShedAt: LegacyCeiling,
		Ceiling:           flowcontrol.CeilingConfig{Kind: flowcontrol.Static, Threshold: 1},
		EmptyPoolOutcomes: l.c.EmptyPoolOutcomes, Stages: l.c.Stages, FlowIdle: flowIdle, BandIdle: bandIdle,
		ProgramAware: l.defaultProgramAware(),
	}
	f.MaxBytes = l.limit(o, "maxBytes", "global MaxBytes")
	f.MaxRequests = l.limit(o, "maxRequests", "global MaxRequests")
	f.TTL = l.ttl(o, "defaultRequestTTL", "DefaultRequestTTL", l.c.DefaultTTL)
	f.NoEndpointTTL = f.TTL
	if l.c.NoEndpointTTL {
		fallback := l.c.DefaultTTL
		if o.has("defaultRequestTTL") {
			fallback = f.TTL
		}
		f.NoEndpointTTL = l.ttl(o, "noEndpointRequestTTL", "NoEndpointRequestTTL", fallback)
	}
	f.Eviction = o.boolean("enableEviction", false)
	l.bands(o)
	if ref := o.str("usageLimitPolicyPluginRef", ""); ref != "" {
		l.ceiling(o.at("usageLimitPolicyPluginRef"), ref)
	}
	l.detector(root, o)
}

func (l *loader) limit(o object, key, name string) int64 {
	v := o.quantity(key, 0)
	if v < 0 {
		l.fail(o.at(key), "%s: %s must be non-negative, got %d", join(o.path, key), name, v)
	}
	return v
}

func (l *loader) ttl(o object, key, name string, absent time.Duration) time.Duration {
	v := o.duration(key, absent)
	if v < 0 {
		l.fail(o.at(key), "%s: %s cannot be negative, but got %v", join(o.path, key), name, v)
	}
	return v
}

func (l *loader) bands(o object) {
	f := &l.cfg.Picker.Flow
	builtin := flowcontrol.BandConfig{MaxRequests: l.c.BandMaxRequests, MaxBytes: l.c.BandMaxBytes}
	f.DefaultBand = builtin
	if v, ok := o.fields["defaultPriorityBand"]; ok {
		f.DefaultBand = l.band(v.value, "flowControl.defaultPriorityBand")
		f.DefaultBand.Priority = 0
	}
	f.DefaultNegativeBand = f.DefaultBand
	if v, ok := o.fields["defaultNegativePriorityBand"]; ok {
		f.DefaultNegativeBand = l.band(v.value, "flowControl.defaultNegativePriorityBand")
		f.DefaultNegativeBand.Priority = 0
	}
	seen := map[int]bool{}
	for i, n := range o.list("priorityBands") {
		b := l.band(n, fmt.Sprintf("flowControl.priorityBands[%d]", i))
		if seen[b.Priority] {
			l.fail(n, "flowControl.priorityBands[%d].priority: duplicate priority level %d", i, b.Priority)
			continue
		}
		seen[b.Priority] = true
		f.Bands = append(f.Bands, b)
	}
}

// band reads one band. A limit of 0 means the contract's default, as in the router; it is neither zero nor unlimited.
func (l *loader) band(n *yaml.Node, path string) flowcontrol.BandConfig {
	o := l.object(n, path, "priority", "maxBytes", "maxRequests", "fairnessPolicyRef", "orderingPolicyRef")
	b := flowcontrol.BandConfig{Priority: o.integer("priority", 0)}
	b.MaxBytes = l.limit(o, "maxBytes", "band MaxBytes")
	b.MaxRequests = l.limit(o, "maxRequests", "band MaxRequests")
	if b.MaxBytes == 0 {
		b.MaxBytes = l.c.BandMaxBytes
	}
	if b.MaxRequests == 0 {
		b.MaxRequests = l.c.BandMaxRequests
	}
	if ref := o.str("fairnessPolicyRef", ""); ref != "" {
		b.Fairness = l.fairness(o.at("fairnessPolicyRef"), join(path, "fairnessPolicyRef"), ref)
	}
	if ref := o.str("orderingPolicyRef", ""); ref != "" {
		b.Ordering = policy[flowcontrol.Ordering](l, o.at("orderingPolicyRef"), join(path, "orderingPolicyRef"), ref, "an ordering policy")
	}
	return b
}

// builtin are the policy types that may be referred to without being declared: they then have their default parameters.
var builtin = []string{"global-strict-fairness-policy", "round-robin-fairness-policy", "fcfs-ordering-policy", "edf-ordering-policy",
	"slo-deadline-ordering-policy", "static-usage-limit-policy", "utilization-detector", "concurrency-detector"}

// lookup finds a plugin by its declared name or, where none has it, by its type.
func (l *loader) lookup(at *yaml.Node, ref string) (plugin, bool) {
	if p, ok := l.declared[ref]; ok {
		return p, true
	}
	if !slices.Contains(builtin, ref) {
		return plugin{}, false
	}
	empty := &yaml.Node{Kind: yaml.MappingNode, Line: at.Line}
	return plugin{typ: ref, value: l.pluginValue(ref, ref, empty, at), node: at}, true
}

// policy resolves a reference to a plugin of kind T; the zero T after an error.
func policy[T any](l *loader, at *yaml.Node, key, ref, kind string) T {
	var zero T
	p, ok := l.lookup(at, ref)
	if !ok {
		l.fail(at, "%s: references undefined plugin '%s'", key, ref)
		return zero
	}
	v, ok := p.value.(T)
	if !ok && p.value != nil {
		l.fail(at, "%s: plugin '%s' of type %s does not implement %s", key, ref, p.typ, kind)
	}
	return v
}

// fairness resolves a fairness policy. The parameters of program-aware-fairness hold for the whole controller.
func (l *loader) fairness(at *yaml.Node, key, ref string) flowcontrol.Fairness {
	if p, ok := l.lookup(at, ref); ok {
		if v, ok := p.value.(flowcontrol.ProgramAwareConfig); ok {
			if l.programAware != "" && v != l.cfg.Picker.Flow.ProgramAware {
				l.fail(at, "%s: '%s' and '%s' differ: more than one set of parameters of %s is not supported by this build", key, l.programAware, ref, p.typ)
			}
			l.programAware, l.cfg.Picker.Flow.ProgramAware = ref, v
			return flowcontrol.ProgramAware
		}
	}
	return policy[flowcontrol.Fairness](l, at, key, ref, "a fairness policy")
}

func (l *loader) ceiling(at *yaml.Node, ref string) {
	const key = "flowControl.usageLimitPolicyPluginRef"
	p, ok := l.lookup(at, ref)
	if !ok {
		l.fail(at, "%s: failed to resolve usage limit policy: plugin %q not found", key, ref)
		return
	}
	v, ok := p.value.(flowcontrol.CeilingConfig)
	if !ok {
		if p.value != nil {
			l.fail(at, "%s: plugin '%s' of type %s does not implement a usage limit policy", key, ref, p.typ)
		}
		return
	}
	l.cfg.Picker.Flow.Ceiling = v
}

// hintsFor explains names that people try because texts mention them.
func hintsFor(c Contract) map[string]string {
	const constant = " is a constant of the router, not a setting: remove it"
	m := map[string]string{
		"flowControl.expiryCleanupInterval":    "the sweep interval of 1s" + constant,
		"flowControl.flowGCTimeout":            "the idle time of a flow, 5m," + constant,
		"flowControl.priorityBandGCTimeout":    "the idle time of a band, 10m," + constant,
		"flowControl.enqueueChannelBufferSize": "the hand-off buffer of 100 requests" + constant,
	}
	if c.Name == Router202609 {
		for _, band := range []string{"defaultPriorityBand", "defaultNegativePriorityBand", "priorityBands[]"} {
			m["flowControl."+band+".defaultRequestTTL"] = "wait limits per band are not supported by this build: use flowControl.defaultRequestTTL"
		}
	}
	if !c.InlineDetector {
		for _, key := range inlineKeys {
			m["saturationDetector."+key] = "declare a plugin of type utilization-detector with that parameter and name it in " +
				"flowControl.saturationDetector.pluginRef"
		}
	}
	return m
}

// inlineKeys are the thresholds that older documents carry directly under the top-level saturationDetector.
var inlineKeys = []string{"queueDepthThreshold", "kvCacheUtilThreshold", "metricsStalenessThreshold"}

// detector selects the saturation detector: flowControl.saturationDetector, else the deprecated top-level block, else the default.
func (l *loader) detector(root, flow object) {
	f := &l.cfg.Picker.Flow
	l.detectorRef = "utilization-detector"
	sel, given := flow.child("saturationDetector", "pluginRef")
	if !given {
		if sel, given = l.topLevelDetector(root); sel.node == nil {
			return // thresholds inline
		}
	} else if root.has("saturationDetector") {
		l.fail(root.at("saturationDetector"), "saturationDetector: given twice, here and in flowControl.saturationDetector")
	}
	at := sel.at("pluginRef")
	if given {
		l.detectorRef = sel.str("pluginRef", l.detectorRef)
	}
	p, ok := l.lookup(at, l.detectorRef)
	if !ok {
		l.fail(at, "%s: saturation detector references undefined plugin '%s'", join(sel.path, "pluginRef"), l.detectorRef)
		return
	}
	v, ok := p.value.(detector)
	if !ok && p.value != nil {
		l.fail(at, "%s: plugin '%s' of type %s does not implement a saturation detector", join(sel.path, "pluginRef"), l.detectorRef, p.typ)
	}
	f.Detector, l.producerRef = v.DetectorConfig, v.producer
}

// tokenAccounting gives the concurrency detector the estimates, and the word on other replicas, of the inflight-load-producer it counts with: the one it names, else
// the one of the default name, else the only one. Without any the router makes one with default parameters.
func (l *loader) tokenAccounting() {
	d := &l.cfg.Picker.Flow.Detector
	if d.Kind != flowcontrol.Concurrency {
		return
	}
	name := "inflight-load-producer"
	if l.producerRef != nil {
		name = l.producerRef.Value
	} else if _, ok := l.declared[name]; !ok {
		name = l.onlyProducer(name)
	}
	v := defaultEstimate()
	p, ok := l.declared[name]
	switch value, right := p.value.(estimate); {
	case right:
		v = value
	case ok && p.value != nil && l.producerRef != nil:
		l.fail(l.producerRef, "inFlightLoadProducerName: plugin '%s' of type %s does not implement an in-flight load producer", name, p.typ)
	case !ok && l.producerRef != nil:
		l.fail(l.producerRef, "inFlightLoadProducerName: references undefined plugin '%s'", name)
	}
	d.EstimateOutput, d.OutputRatio, d.MaxEstimatedOutput = v.output, v.ratio, v.max
	if v.sync {
		d.ForeignLimit = foreignLimit
	}
}

// onlyProducer is the name of the only declared inflight-load-producer, or the given one.
func (l *loader) onlyProducer(name string) string {
	var all []string
	for _, n := range l.order {
		if _, ok := l.declared[n].value.(estimate); ok {
			all = append(all, n)
		}
	}
	if len(all) > 1 {
		l.fail(l.declared[all[1]].node, "plugins: the inflight-load-producers %q: name one in the concurrency-detector's inFlightLoadProducerName", all)
	}
	if len(all) > 0 {
		return all[0]
	}
	return name
}

// topLevelDetector reads the deprecated block. Inline thresholds set the detector and return an object without a node.
func (l *loader) topLevelDetector(root object) (object, bool) {
	top, ok := root.fields["saturationDetector"]
	if !ok {
		return root.child("saturationDetector")
	}
	if l.c.InlineDetector && inline(top.value) {
		l.detectorRef = "saturationDetector"
		l.cfg.Picker.Flow.Detector = l.utilization(top.value, "saturationDetector", inlineKeys).DetectorConfig
		return object{}, true
	}
	sel := l.object(top.value, "saturationDetector", "pluginRef")
	l.warnAt(top.key, "saturationDetector: deprecated, use flowControl.saturationDetector")
	return sel, sel.has("pluginRef")
}

// inline tells whether a top-level block holds thresholds.
func inline(n *yaml.Node) bool {
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		if slices.Contains(inlineKeys, n.Content[i].Value) {
			return true
		}
	}
	return false
}
