package manifests_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/env/cluster/render"
	"github.com/llm-weir/weir/manifests"
)

type object = render.Object

// field reads a field, nil where there is none. A list is entered by index.
func field(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, ok := v.(object)
			if !ok {
				return nil
			}
			v = m[p]
		case int:
			l, ok := v.([]any)
			if !ok || p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func text(v any, path ...any) string { s, _ := field(v, path...).(string); return s }

func yes(v any, path ...any) bool { b, _ := field(v, path...).(bool); return b }

func list(v any, path ...any) []any { l, _ := field(v, path...).([]any); return l }

func number(v any, path ...any) int {
	switch n := field(v, path...).(type) {
	case int:
		return n
	case int64:
		return int(n)
	case float64:
		return int(n)
	}
	return 0
}

func name(o object) string { return text(o, "metadata", "name") }

// title is how an object is called in a complaint.
func title(o object) string { return text(o, "kind") + " " + name(o) }

// objects are what a deployment consists of.
type objects []object

func (all objects) of(kinds ...string) objects {
	return slices.DeleteFunc(slices.Clone(all), func(o object) bool { return !slices.Contains(kinds, text(o, "kind")) })
}

// named is an object by its kind and name, nil if it is not there.
func (all objects) named(kind, is string) object {
	for _, o := range all.of(kind) {
		if name(o) == is {
			return o
		}
	}
	return nil
}

// workload is an object that makes pods.
type workload struct {
	object
	template any // of the pod: metadata and spec
}

func (w workload) labels() object { m, _ := field(w.template, "metadata", "labels").(object); return m }

func (w workload) containers() []any {
	return append(slices.Clone(list(w.template, "spec", "containers")), list(w.template, "spec", "initContainers")...)
}

// portNamed tells whether a container has a port of that name or number.
func (w workload) portNamed(p any) bool {
	for _, c := range w.containers() {
		for _, port := range list(c, "ports") {
			if s, ok := p.(string); ok && text(port, "name") == s || !ok && number(port, "containerPort") == number(p) {
				return true
			}
		}
	}
	return false
}

func (all objects) workloads() []workload {
	var out []workload
	for _, o := range all {
		switch text(o, "kind") {
		case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job":
			out = append(out, workload{o, field(o, "spec", "template")})
		case "CronJob":
			out = append(out, workload{o, field(o, "spec", "jobTemplate", "spec", "template")})
		case "Pod":
			out = append(out, workload{o, o})
		}
	}
	return out
}

// selected are the workloads whose pods a label selector finds; nil selects none, an empty one all.
func (all objects) selected(selector any) []workload {
	if selector == nil {
		return nil
	}
	return slices.DeleteFunc(all.workloads(), func(w workload) bool { return !matches(selector, w.labels()) })
}

func matches(selector any, labels object) bool {
	want, _ := field(selector, "matchLabels").(object)
	for k, v := range want {
		if labels[k] != v {
			return false
		}
	}
	for _, e := range list(selector, "matchExpressions") {
		if text(e, "operator") != "In" {
			panic("operator " + text(e, "operator") + " is not known here")
		}
		if !slices.Contains(list(e, "values"), labels[text(e, "key")]) {
			return false
		}
	}
	return true
}

// build gives the objects of overlays together.
func build(t *testing.T, overlays ...string) objects {
	t.Helper()
	var all objects
	for _, o := range overlays {
		built, err := render.Build(manifests.Files, o, render.Options{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, built...)
	}
	return all
}

// clone copies objects deeply.
func (all objects) clone() objects {
	var copied func(any) any
	copied = func(v any) any {
		switch v := v.(type) {
		case object:
			m := maps.Clone(v)
			for k := range m {
				m[k] = copied(m[k])
			}
			return m
		case []any:
			l := slices.Clone(v)
			for i := range l {
				l[i] = copied(l[i])
			}
			return l
		}
		return v
	}
	var out objects
	for _, o := range all {
		out = append(out, copied(o).(object))
	}
	return out
}

// set changes a field, remove takes it away. The path must exist up to its last element.
func set(o any, v any, path ...any) {
	at := field(o, path[:len(path)-1]...)
	switch last := path[len(path)-1].(type) {
	case string:
		at.(object)[last] = v
	case int:
		at.([]any)[last] = v
	}
}

func remove(o any, path ...any) {
	delete(field(o, path[:len(path)-1]...).(object), path[len(path)-1].(string))
}

// problems is a list of complaints.
type problems []string

func (p *problems) check(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

func (p problems) String() string { return strings.Join(p, "\n") }
