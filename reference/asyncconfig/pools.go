package asyncconfig

import (
	"fmt"

	"golang.org/x/net/http/httpguts"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/async"
)

// load reads a file named by a flag; nil after an error.
func (l *Loader) load(flag, path string) *node {
	text, err := l.read(path)
	if err != nil {
		l.failf("--%s: %w", flag, err)
		return nil
	}
	n, err := parseJSON(text, 0)
	if err != nil {
		l.failf("%s:%w", path, err)
		return nil
	}
	return n
}

// poolFile reads the worker pools (AP-POOL-05, AP-CLI-04).
func (l *Loader) poolFile() []async.PoolConfig {
	path := l.flags.PoolConfigFile
	if path == "" {
		return []async.PoolConfig{{Name: defaultPool, Workers: max(l.flags.Concurrency, 1)}}
	}
	if l.flags.TransportConfig == "" && l.flags.TransportConfigFile == "" {
		l.failf("--pool-config-file: needs --transport-config or --transport-config-file")
	}
	root := l.load("pool-config-file", path)
	if root == nil {
		return nil
	}
	if root.kind != kindArray || len(root.items) == 0 {
		l.failf(`%s:%d: expected an array of pools such as [{"id":"default","workers":4}], got %s`, path, root.line, root.kind)
		return nil
	}
	var pools []async.PoolConfig
	seen := map[string]bool{}
	for i, n := range root.items {
		o := l.object(path, fmt.Sprintf("[%d]", i), n, "id", "workers", "gate_type", "gate_params")
		if n.kind != kindObject {
			continue
		}
		p := async.PoolConfig{Name: o.required("id"), Workers: o.natural("workers", 0, 1), Gate: l.gateOf(o)}
		if !o.has("workers") {
			o.fail("workers", "is required")
		}
		if seen[p.Name] && p.Name != "" {
			o.fail("id", "duplicate pool %q", p.Name)
		}
		seen[p.Name] = true
		pools = append(pools, p)
	}
	return pools
}

// mergeFile reads the merge policy (AP-MERGE).
func (l *Loader) mergeFile() async.MergeConfig {
	m := async.MergeConfig{FairnessHeader: wire.HeaderFairnessID, FairnessAttribute: "userid"}
	path := l.flags.MergePolicyFile
	if older := l.flags.Older.MergePolicyFile; older != "" {
		l.warnf("--request-merge-policy-config: deprecated, use --request-merge-policy-config-file")
		if path == "" {
			path = older
		}
	}
	if path == "" {
		return m
	}
	root := l.load("request-merge-policy-config-file", path)
	if root == nil {
		return m
	}
	var o object
	l.strictly(func() { o = l.object(path, "", root, "type", "parameters") })
	raw, ok := o.want("parameters", kindObject)
	if !ok {
		raw = &node{kind: kindObject, line: root.line}
	}
	fair := []string{"fairness_header", "fairness_attribute"}
	tier := append([]string{"priority_header", "tier_label", "objective_header", "lane_objectives"}, fair...)
	var p object
	switch typ := o.str("type", ""); typ {
	case "random-robin":
		p = l.object(path, "parameters", raw, fair...)
	case "tier-priority":
		p = l.object(path, "parameters", raw, tier...)
		m.Kind = async.TierPriority
		m.TierLabel = p.str("tier_label", "tier")
		m.PriorityHeader = p.header("priority_header", async.HeaderPriority)
		m.ObjectiveHeader = p.header("objective_header", wire.HeaderObjective)
		l.lanes(p, &m)
	default:
		o.fail("type", "expected random-robin or tier-priority, got %q", typ)
		return m
	}
	m.FairnessHeader = p.header("fairness_header", wire.HeaderFairnessID)
	m.FairnessAttribute = p.str("fairness_attribute", "userid")
	return m
}

func (l *Loader) lanes(p object, m *async.MergeConfig) {
	raw, ok := p.want("lane_objectives", kindObject)
	if !ok {
		return
	}
	o := l.object(p.file, join(p.path, "lane_objectives"), raw, async.LaneNames[:]...)
	for i, name := range async.LaneNames {
		m.LaneObjectives[i] = o.str(name, "")
	}
}

// header is a header name; an empty one disables stamping (AP-MERGE-06, AP-MERGE-07).
func (o object) header(key, absent string) string {
	v := o.str(key, absent)
	if v != "" && !httpguts.ValidHeaderFieldName(v) {
		o.fail(key, "%q is no legal HTTP header name", v)
	}
	return v
}

// transformFile reads the body transforms (AP-XFORM-06).
func (l *Loader) transformFile() (out []async.Transform) {
	l.strictly(func() { out = l.readTransforms() })
	return out
}

func (l *Loader) readTransforms() []async.Transform {
	path := l.flags.TransformConfigFile
	if path == "" {
		return nil
	}
	root := l.load("transform-config-file", path)
	if root == nil {
		return nil
	}
	o := l.object(path, "", root, "requestTransforms")
	var out []async.Transform
	seen := map[string]bool{}
	for i, n := range o.list("requestTransforms") {
		e := l.object(path, fmt.Sprintf("requestTransforms[%d]", i), n, "name", "type", "parameters")
		if n.kind != kindObject {
			continue
		}
		t := async.Transform{Name: e.required("name")}
		if seen[t.Name] && t.Name != "" {
			e.fail("name", "duplicate transform %q", t.Name)
		}
		seen[t.Name] = true
		if typ := e.str("type", ""); typ != "gcs_uri_multipart" {
			e.fail("type", "expected gcs_uri_multipart, got %q", typ)
			continue
		}
		t.Providers = l.providers(e)
		out = append(out, t)
	}
	return out
}

func (l *Loader) providers(e object) []string {
	raw, ok := e.want("parameters", kindObject)
	if !ok {
		e.fail("parameters", "is required: {\"providers\": [...]}")
		return nil
	}
	p := l.object(e.file, join(e.path, "parameters"), raw, "providers")
	var out []string
	for _, n := range p.list("providers") {
		if n.kind != kindString || n.text == "" {
			p.fail("providers", "expected strings that are not empty")
			return nil
		}
		out = append(out, n.text)
	}
	if len(out) == 0 {
		p.fail("providers", "at least one is required")
	}
	return out
}
