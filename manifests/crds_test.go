package manifests_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/kubeapi"
	"github.com/llm-weir/weir/reference/kube"
)

// schemaOf is the schema of a definition.
func schemaOf(crd object) any {
	return field(crd, "spec", "versions", 0, "schema", "openAPIV3Schema")
}

// structural finds what keeps a schema from being structural.
func structural(p *problems, where string, s any) {
	kind := text(s, "type")
	p.check(slices.Contains([]string{"object", "array", "string", "integer", "number", "boolean"}, kind), "%s: type %q", where, kind)
	p.check(field(s, "$ref") == nil, "%s: $ref", where)
	props := mapping(s, "properties")
	p.check(props == nil || kind == "object", "%s: properties of a %s", where, kind)
	p.check(props == nil || field(s, "additionalProperties") == nil, "%s: properties and additionalProperties", where)
	for k, v := range props {
		structural(p, where+"."+k, v)
	}
	for _, r := range list(s, "required") {
		p.check(props[r.(string)] != nil, "%s: required %s is not defined", where, r)
	}
	items := field(s, "items")
	p.check((items != nil) == (kind == "array"), "%s: items of a %s", where, kind)
	if items != nil {
		structural(p, where+"[]", items)
	}
	p.check(kind != "array" || field(s, "maxItems") != nil, "%s: no maxItems", where)
	keys := list(s, "x-kubernetes-list-map-keys")
	p.check((text(s, "x-kubernetes-list-type") == "map") == (len(keys) > 0), "%s: list type and keys do not fit", where)
	for _, k := range keys {
		p.check(slices.Contains(list(items, "required"), k), "%s: list key %s is not required", where, k)
	}
	if extra := field(s, "additionalProperties"); extra != nil {
		structural(p, where+"{}", extra)
	}
	if d := field(s, "default"); d != nil {
		*p = append(*p, invalid(s, d, where+": default")...)
	}
}

// definition finds what is wrong with a definition as a whole.
func definition(crd object) (p problems) {
	group, plural := text(crd, "spec", "group"), text(crd, "spec", "names", "plural")
	p.check(name(crd) == plural+"."+group, "%s: not %s.%s", title(crd), plural, group)
	p.check(text(crd, "spec", "names", "singular") == strings.ToLower(text(crd, "spec", "names", "kind")), "%s: singular", title(crd))
	// The API server refuses such a group without it.
	p.check(!strings.HasSuffix(group, ".k8s.io") || text(crd, "metadata", "annotations", "api-approved.kubernetes.io") != "", "%s: no api-approved annotation", title(crd))
	versions := list(crd, "spec", "versions")
	p.check(len(versions) == 1 && yes(versions[0], "served") && yes(versions[0], "storage"), "%s: not one version that is served and stored", title(crd))
	p.check(field(crd, "spec", "versions", 0, "subresources", "status") != nil, "%s: no status subresource", title(crd))
	structural(&p, title(crd), schemaOf(crd))
	for _, c := range list(crd, "spec", "versions", 0, "additionalPrinterColumns") {
		at := schemaOf(crd)
		for _, part := range strings.Split(strings.TrimPrefix(text(c, "jsonPath"), "."), ".") {
			part, each := strings.CutSuffix(part, "[*]")
			if part == "creationTimestamp" {
				at = object{}
				break
			}
			if at = field(at, "properties", part); each {
				at = field(at, "items")
			}
		}
		p.check(at != nil || strings.HasPrefix(text(c, "jsonPath"), ".metadata."), "%s: column %s shows nothing", title(crd), text(c, "name"))
	}
	return p
}

// invalid finds where a value does not follow a schema: the part of it that is used here.
func invalid(s, v any, where string) (p problems) {
	switch text(s, "type") {
	case "object":
		m, ok := v.(object)
		if !ok {
			return problems{fmt.Sprintf("%s: %T is no object", where, v)}
		}
		for _, r := range list(s, "required") {
			p.check(m[r.(string)] != nil, "%s.%s: required", where, r)
		}
		for k, e := range m {
			switch one, extra := field(s, "properties", k), field(s, "additionalProperties"); {
			case one != nil:
				p = append(p, invalid(one, e, where+"."+k)...)
			case extra != nil:
				p = append(p, invalid(extra, e, where+"."+k)...)
			default: // metadata is the server's business
				p.check(strings.HasSuffix(where, ".metadata"), "%s.%s: unknown", where, k)
			}
		}
	case "array":
		l, ok := v.([]any)
		if !ok {
			return problems{fmt.Sprintf("%s: %T is no list", where, v)}
		}
		p.check(len(l) >= number(s, "minItems"), "%s: %d items are too few", where, len(l))
		p.check(field(s, "maxItems") == nil || len(l) <= number(s, "maxItems"), "%s: %d items are too many", where, len(l))
		seen := map[string]bool{}
		for i, e := range l {
			p = append(p, invalid(field(s, "items"), e, fmt.Sprintf("%s[%d]", where, i))...)
			if keys := list(s, "x-kubernetes-list-map-keys"); len(keys) > 0 {
				key := fmt.Sprint(field(e, keys[0]))
				p.check(!seen[key], "%s: %s is there twice", where, key)
				seen[key] = true
			}
		}
	case "string":
		t, ok := v.(string)
		p.check(ok, "%s: %T is no string", where, v)
		p.check(len(t) >= number(s, "minLength"), "%s: too short", where)
		p.check(field(s, "enum") == nil || slices.Contains(list(s, "enum"), any(t)), "%s: %q is none of %v", where, t, list(s, "enum"))
	case "integer":
		_, float := v.(float64)
		_, whole := v.(int)
		p.check(whole || float && v == float64(int64(v.(float64))), "%s: %v is no integer", where, v)
		n := number(v)
		p.check(field(s, "minimum") == nil || n >= number(s, "minimum"), "%s: %d is too small", where, n)
		p.check(field(s, "maximum") == nil || n <= number(s, "maximum"), "%s: %d is too big", where, n)
	}
	return p
}

// TestCRDs: each resource that a picker watches, and that the small API serves, has a good definition.
func TestCRDs(t *testing.T) {
	all := build(t, "crds", "crds-legacy")
	for _, crd := range all {
		if found := definition(crd); len(found) > 0 {
			t.Errorf("%s", found)
		}
	}
	for _, want := range []string{kubeapi.Pools, kubeapi.Objectives, kubeapi.Rewrites, kubeapi.LegacyObjectives, kubeapi.LegacyRewrites} {
		if all.named("CustomResourceDefinition", want) == nil {
			t.Errorf("no definition of %s", want)
		}
	}
	for _, a := range kube.Accesses() {
		if strings.Contains(a.Group, "llm-d") || strings.HasPrefix(a.Group, "inference.") {
			if all.named("CustomResourceDefinition", a.Resource+"."+a.Group) == nil {
				t.Errorf("no definition of %s.%s", a.Resource, a.Group)
			}
		}
	}
}

func TestCRDsCanFail(t *testing.T) {
	whole := build(t, "crds", "crds-legacy")
	schema := []any{"spec", "versions", 0, "schema", "openAPIV3Schema"}
	in := func(path ...any) []any { return append(slices.Clone(schema), path...) }
	spec := func(path ...any) []any { return in(append([]any{"properties", "spec", "properties"}, path...)...) }
	for _, c := range []struct {
		says   string
		change func(pools object)
		want   string
	}{
		{"a field without a type", func(o object) { remove(o, spec("appProtocol", "type")...) }, `.appProtocol: type ""`},
		{"a required field that is not there", func(o object) { set(o, []any{"x"}, in("required")...) }, "required x is not defined"},
		{"a list without items", func(o object) { remove(o, spec("targetPorts", "items")...) }, "items of a array"},
		{"a list without an end", func(o object) { remove(o, spec("targetPorts", "maxItems")...) }, "no maxItems"},
		{"a list key that may be absent", func(o object) { remove(o, spec("targetPorts", "items", "required")...) }, "list key number is not required"},
		{"fields beside any fields", func(o object) { set(o, object{"type": "string"}, in("additionalProperties")...) }, "properties and additionalProperties"},
		{"a default that is none of the values", func(o object) { set(o, "https", spec("appProtocol", "default")...) }, `"https" is none of`},
		{"another name", func(o object) { set(o, "pools", "metadata", "name") }, "not inferencepools."},
		{"no annotation", func(o object) { remove(o, "metadata", "annotations") }, "no api-approved annotation"},
		{"no status", func(o object) { remove(o, "spec", "versions", 0, "subresources") }, "no status subresource"},
		{"a column of nothing", func(o object) {
			set(o, ".spec.nothing", "spec", "versions", 0, "additionalPrinterColumns", 0, "jsonPath")
		}, "shows nothing"},
	} {
		crd := whole.clone().named("CustomResourceDefinition", kubeapi.Pools)
		c.change(crd)
		if got := definition(crd); !strings.Contains(got.String(), c.want) {
			t.Errorf("%s: want a complaint with %q, got:\n%s", c.says, c.want, got)
		}
	}
}

// plain is an object as JSON has it.
func plain(t *testing.T, o any) object {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var out object
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSamples: the definitions take what is deployed and what the small API shows, and refuse what a picker would.
func TestSamples(t *testing.T) {
	crds := build(t, "crds", "crds-legacy")
	check := func(o object) problems {
		group, _, _ := strings.Cut(text(o, "apiVersion"), "/")
		crd := crds.named("CustomResourceDefinition", strings.ToLower(text(o, "kind"))+"s."+group)
		if crd == nil {
			return problems{"no definition of " + title(o)}
		}
		return invalid(schemaOf(crd), o, title(o))
	}
	good := build(t, "kind").of("InferencePool", "InferenceObjective", "InferenceModelRewrite")
	pool := func() object {
		return plain(t, kubeapi.Pool{Namespace: "n", Name: "p", Selector: map[string]string{"app": "a"}, Ports: []int{8000, 8001}, AppProtocol: "kubernetes.io/h2c"}.Object())
	}
	rewrite := func() object {
		return plain(t, kubeapi.Rewrite{Namespace: "n", Name: "r", Pool: "p", Model: "m", Targets: map[string]int{"a": 1, "b": 1000000}}.Object())
	}
	for _, legacy := range []bool{false, true} {
		good = append(good, plain(t, kubeapi.Objective{Legacy: legacy, Namespace: "n", Name: "o", Pool: "p", Priority: -5}.Object()),
			plain(t, kubeapi.Objective{Legacy: legacy, Namespace: "n", Name: "o", Pool: "p", Unset: true}.Object()),
			plain(t, kubeapi.Rewrite{Legacy: legacy, Namespace: "n", Name: "r", Pool: "p", Targets: map[string]int{"a": 1}}.Object()))
	}
	for _, o := range append(good, pool(), rewrite()) {
		if found := check(o); len(found) > 0 {
			t.Errorf("%s", found)
		}
	}
	for _, c := range []struct {
		says string
		of   func() object
		path []any
		to   any
		want string
	}{
		{"a pool of everything", pool, []any{"spec", "selector"}, object{}, "matchLabels: required"},
		{"no ports", pool, []any{"spec", "targetPorts"}, []any{}, "too few"},
		{"a port that is none", pool, []any{"spec", "targetPorts", 0, "number"}, float64(65536), "too big"},
		{"a port twice", pool, []any{"spec", "targetPorts", 0, "number"}, float64(8001), "twice"},
		{"a port as text", pool, []any{"spec", "targetPorts", 0, "number"}, "8000", "no integer"},
		{"an unknown failure mode", pool, []any{"spec", "endpointPickerRef", "failureMode"}, "FailSafe", "none of"},
		{"an unknown field", pool, []any{"spec", "endpointPicker"}, "x", "unknown"},
		{"a match that is not exact", rewrite, []any{"spec", "rules", 0, "matches", 0, "model", "type"}, "Prefix", "none of"},
		{"no weight", rewrite, []any{"spec", "rules", 0, "targets", 0, "weight"}, float64(0), "too small"},
		{"half a weight", rewrite, []any{"spec", "rules", 0, "targets", 0, "weight"}, 0.5, "no integer"},
		{"no target", rewrite, []any{"spec", "rules", 0, "targets"}, []any{}, "too few"},
	} {
		o := c.of()
		set(o, c.to, c.path...)
		if found := check(o); !strings.Contains(found.String(), c.want) {
			t.Errorf("%s: want a complaint with %q, got %q", c.says, c.want, found)
		}
	}
}
