package epconfig

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/reference/scheduling"
)

// profiles fills in scheduling: the one profile written down, or one made of everything declared, or the router's built-in one.
func (l *loader) profiles(root object) {
	s := &l.cfg.Picker.Scheduling
	s.SubsetFilter, s.MaxEndpoints, s.Prefix = true, 1, l.prefixCache()
	list := root.list("schedulingProfiles")
	for i, n := range list {
		path := fmt.Sprintf("schedulingProfiles[%d]", i)
		o := l.object(n, path, "name", "plugins")
		if i > 0 {
			l.fail(n, "%s: more than one scheduling profile is not supported by this build", path)
		}
		if o.str("name", "") == "" {
			l.fail(n, "%s.name: missing", path)
		}
		pickers := 0
		for j, p := range o.list("plugins") {
			pickers += l.profilePlugin(p, fmt.Sprintf("%s.plugins[%d]", path, j))
		}
		if pickers > 1 {
			l.fail(n, "%s.plugins: more than one picker", path)
		}
	}
	if len(list) > 0 {
		if l.c.DetectorFilter {
			l.cfg.Picker.Flow.Detector.Filter = true
		}
		return
	}
	if len(l.order) == 0 {
		s.Scorers = []scheduling.Scorer{{Kind: scheduling.Queue, Weight: 2}, {Kind: scheduling.KVUtilization, Weight: 2}, {Kind: scheduling.PrefixCache, Weight: 3}}
		l.cfg.Picker.Flow.Detector.Filter = l.c.DetectorFilter
		return
	}
	for _, name := range l.order {
		l.use(name, l.declared[name], 1, l.declared[name].node, "plugins")
	}
	l.cfg.Picker.Flow.Detector.Filter = l.cfg.Picker.Flow.Detector.Filter || l.c.DetectorFilter
}

// profilePlugin reads one reference of a profile and says how many pickers it added.
func (l *loader) profilePlugin(n *yaml.Node, path string) int {
	o := l.object(n, path, "pluginRef", "weight")
	ref := o.str("pluginRef", "")
	p, ok := l.declared[ref]
	if !ok {
		l.fail(o.at("pluginRef"), "%s.pluginRef: references undefined plugin '%s'", path, ref)
		return 0
	}
	weight := o.number("weight", 1)
	if weight < 0 {
		l.fail(o.at("weight"), "%s.weight: must not be negative, got %v", path, weight)
	}
	if _, scorer := p.value.(scheduling.ScorerKind); o.has("weight") && !scorer && p.value != nil {
		l.warnAt(o.at("weight"), "%s.weight: only scorers have a weight", path)
	}
	return l.use(ref, p, weight, o.at("pluginRef"), path)
}

// use adds a plugin to the profile and returns 1 for a picker. Plugins of the other kinds are legal only where the profile is made
// of everything declared (path "plugins").
func (l *loader) use(name string, p plugin, weight float64, at *yaml.Node, path string) int {
	s := &l.cfg.Picker.Scheduling
	switch v := p.value.(type) {
	case scheduling.ScorerKind:
		s.Scorers = append(s.Scorers, scheduling.Scorer{Kind: v, Weight: weight})
	case []scheduling.LabelFilter:
		s.Labels = append(s.Labels, v...)
	case endpointPicker:
		s.MaxEndpoints = v.max
		return 1
	case detector:
		if name == l.detectorRef {
			l.cfg.Picker.Flow.Detector.Filter = true
		} else if path != "plugins" {
			l.fail(at, "%s: '%s' as a filter while '%s' is the saturation detector is not supported by this build", path, name, l.detectorRef)
		}
	case nil: // already reported
	default:
		if path != "plugins" {
			l.fail(at, "%s: plugin '%s' of type %s does not implement a filter, scorer or picker", path, name, p.typ)
		}
	}
	return 0
}

// prefixCache is what the declared approx-prefix-cache-producer says, or its defaults; the router creates one by itself.
func (l *loader) prefixCache() scheduling.PrefixConfig {
	found := defaultPrefix()
	var first string
	for _, name := range l.order {
		v, ok := l.declared[name].value.(scheduling.PrefixConfig)
		switch {
		case ok && first == "":
			first, found = name, v
		case ok && v != found:
			l.fail(l.declared[name].node, "plugins: '%s' and '%s' differ: more than one prefix cache is not supported by this build", first, name)
		}
	}
	return found
}

// The prefix cache's bounds (spec/endpoint-picker.md §8.2). An auto-tuned block is the engine's, but at least 64 tokens; engines use
// 16 as a rule, so that 64 it is.
const (
	tunedBlockTokens = 64
	prefixTokens     = 131072
	prefixBlocks     = 2048
	prefixLRU        = 31250
)

func defaultPrefix() scheduling.PrefixConfig {
	return scheduling.PrefixConfig{BlockTokens: tunedBlockTokens, MaxBlocks: prefixTokens / tunedBlockTokens, LRUCapacity: prefixLRU}
}

func (l *loader) prefixProducer(n *yaml.Node, path string) scheduling.PrefixConfig {
	o := l.object(n, path, "autoTune", "blockSizeTokens", "maxPrefixTokensToMatch", "maxPrefixBlocksToMatch", "lruCapacityPerServer")
	positive := func(key string, absent int) int {
		v := o.integer(key, absent)
		if v <= 0 {
			l.fail(o.at(key), "%s.%s: must be above 0, got %d", path, key, v)
			return absent
		}
		return v
	}
	block := positive("blockSizeTokens", 16)
	if o.boolean("autoTune", true) {
		if o.has("blockSizeTokens") && block != tunedBlockTokens {
			l.warnAt(o.at("blockSizeTokens"), "%s.blockSizeTokens: autoTune is on, a block is %d tokens; set autoTune: false", path, tunedBlockTokens)
		}
		block = tunedBlockTokens
	}
	tokens, blocks := positive("maxPrefixTokensToMatch", prefixTokens), positive("maxPrefixBlocksToMatch", prefixBlocks)
	return scheduling.PrefixConfig{BlockTokens: block, MaxBlocks: max(1, min(blocks, tokens/block)), LRUCapacity: positive("lruCapacityPerServer", prefixLRU)}
}

func (l *loader) prefixScorer(n *yaml.Node, path string) scheduling.ScorerKind {
	keys := []string{"prefixMatchInfoProducerName"}
	if l.c.Hybrid {
		keys = append(keys, "matchLengthWeight", "matchLengthScaleTokens")
	}
	o := l.object(n, path, keys...)
	o.str("prefixMatchInfoProducerName", "")
	if w := o.number("matchLengthWeight", 0); w != 0 {
		l.fail(o.at("matchLengthWeight"), "%s.matchLengthWeight: %v is not supported by this build, only 0 is", path, w)
	}
	if s := o.integer("matchLengthScaleTokens", 8192); s <= 0 {
		l.fail(o.at("matchLengthScaleTokens"), "%s.matchLengthScaleTokens: must be above 0, got %d", path, s)
	}
	return scheduling.PrefixCache
}

// roleLabel says in which stage an endpoint serves.
const roleLabel = "llm-d.ai/role"

// roleFilter is prefill-filter or decode-filter: endpoints of that stage, those of both stages, and for decode the unlabelled ones.
func roleFilter(typ string) []scheduling.LabelFilter {
	both := []string{"prefill-decode", "both", "encode-prefill-decode"}
	if typ == "prefill-filter" {
		return []scheduling.LabelFilter{{Key: roleLabel, Values: append([]string{"prefill", "encode-prefill"}, both...)}}
	}
	return []scheduling.LabelFilter{{Key: roleLabel, Values: append([]string{"decode"}, both...), Missing: true}}
}

// byLabel is the deprecated filter on one label.
func (l *loader) byLabel(n *yaml.Node, path string) []scheduling.LabelFilter {
	o := l.object(n, path, "label", "validValues", "allowsNoLabel")
	f := scheduling.LabelFilter{Key: o.str("label", ""), Values: o.strings("validValues"), Missing: o.boolean("allowsNoLabel", false)}
	if f.Key == "" {
		l.fail(o.at("label"), "%s.label: missing", path)
	}
	if len(f.Values) == 0 {
		if !f.Missing {
			l.fail(o.at("validValues"), "%s.validValues: missing, or set allowsNoLabel: true", path)
		} else {
			// The router keeps only endpoints without the label then; a filter without values would keep those with it, too.
			l.fail(o.at("validValues"), "%s.validValues: an empty list is not supported by this build", path)
		}
	}
	return []scheduling.LabelFilter{f}
}

// labelSelector reads a Kubernetes label selector. All parts must match.
func (l *loader) labelSelector(n *yaml.Node, path string) []scheduling.LabelFilter {
	o := l.object(n, path, "matchLabels", "matchExpressions")
	var out []scheduling.LabelFilter
	if f, ok := o.fields["matchLabels"]; ok {
		labels := l.mapping(f.value, join(path, "matchLabels"))
		for _, key := range labels.keys() {
			out = append(out, scheduling.LabelFilter{Key: key, Values: []string{labels.str(key, "")}})
		}
	}
	for i, e := range o.list("matchExpressions") {
		at := fmt.Sprintf("%s.matchExpressions[%d]", path, i)
		x := l.object(e, at, "key", "operator", "values")
		f := scheduling.LabelFilter{Key: x.str("key", ""), Values: x.strings("values")}
		if f.Key == "" {
			l.fail(x.at("key"), "%s.key: missing", at)
		}
		switch op := x.str("operator", ""); {
		case op == "In" && len(f.Values) > 0, op == "Exists" && len(f.Values) == 0:
			out = append(out, f)
		case op == "In":
			l.fail(x.at("values"), "%s.values: In needs at least one", at)
		case op == "Exists":
			l.fail(x.at("values"), "%s.values: Exists takes none", at)
		case op == "NotIn" || op == "DoesNotExist":
			l.fail(x.at("operator"), "%s.operator: %q is not supported by this build, only In and Exists are", at, op)
		default:
			l.fail(x.at("operator"), "%s.operator: %q is none of In, NotIn, Exists, DoesNotExist", at, op)
		}
	}
	if len(out) == 0 && len(o.fields) == 0 {
		l.fail(o.node, "%s: a selector needs matchLabels or matchExpressions", path)
	}
	return out
}

// sessionHeaders are the headers that agent-identity looks at by itself (spec/endpoint-picker.md §2.4).
var sessionHeaders = []string{"x-claude-code-session-id", "x-session-affinity", "session-id", "session_id"}

// agentIdentity reads the plugin that finds a fairness ID in session headers; the configured ones precede its own.
func (l *loader) agentIdentity(n *yaml.Node, path string) identity {
	o := l.object(n, path, "additionalSessionHeaders")
	return identity{append(o.lowered("additionalSessionHeaders"), sessionHeaders...)}
}

// identified exposes the first declared agent-identity.
func (l *loader) identified(name string, v identity) {
	if l.cfg.SessionHeaders != nil && !slices.Equal(l.cfg.SessionHeaders, v.headers) {
		l.fail(l.declared[name].node, "plugins: '%s': a second agent-identity with other headers is not supported by this build", name)
		return
	}
	l.cfg.SessionHeaders = v.headers
}
