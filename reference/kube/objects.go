package kube

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// pool is an InferencePool.
type pool struct {
	selector map[string]string
	ports    []int
}

// pod is a pod as an endpoint candidate.
type pod struct {
	ip     string
	ready  bool // ready, not terminating, with an address
	labels map[string]string
	active map[int]bool // ports named by the active-ports annotation; nil: all
}

// objective is an InferenceObjective.
type objective struct {
	pool     ref
	priority int
}

// rewrite is an InferenceModelRewrite.
type rewrite struct {
	pool    ref
	created time.Time
	rules   []Rewrite
}

// ref is a poolRef.
type ref struct{ group, kind, name string }

// get reads a field of type T; false if it is absent or null.
func get[T any](u map[string]any, path ...string) (T, bool, error) {
	var zero T
	raw, ok, err := unstructured.NestedFieldNoCopy(u, path...)
	if err != nil || !ok || raw == nil {
		return zero, false, err
	}
	v, ok := raw.(T)
	if !ok {
		return zero, false, fmt.Errorf("%s: unexpected %T", strings.Join(path, "."), raw)
	}
	return v, true, nil
}

// labelMap reads a mapping of strings.
func labelMap(u map[string]any, path ...string) (map[string]string, bool, error) {
	raw, ok, err := get[map[string]any](u, path...)
	if err != nil || !ok {
		return nil, false, err
	}
	out := make(map[string]string, len(raw))
	for k, v := range raw {
		s, ok := v.(string)
		if !ok {
			return nil, false, fmt.Errorf("%s.%s: unexpected %T", strings.Join(path, "."), k, v)
		}
		out[k] = s
	}
	return out, true, nil
}

// entries calls f with each element of a list of mappings.
func entries(u map[string]any, f func(i int, m map[string]any) error, path ...string) error {
	list, _, err := get[[]any](u, path...)
	if err != nil {
		return err
	}
	for i, raw := range list {
		m, ok := raw.(map[string]any)
		if !ok {
			return fmt.Errorf("%s[%d]: unexpected %T", strings.Join(path, "."), i, raw)
		}
		if err := f(i, m); err != nil {
			return fmt.Errorf("%s[%d].%w", strings.Join(path, "."), i, err)
		}
	}
	return nil
}

// maxPorts is the number of target ports a pool may have.
const maxPorts = 8

func parsePool(u *unstructured.Unstructured) (pool, error) {
	var p pool
	selector, ok, err := labelMap(u.Object, "spec", "selector", "matchLabels")
	if err == nil && !ok {
		err = errors.New("spec.selector.matchLabels: missing")
	}
	if err != nil {
		return pool{}, err
	}
	p.selector = selector
	seen := map[int64]bool{}
	err = entries(u.Object, func(_ int, m map[string]any) error {
		n, _, err := get[int64](m, "number")
		if err != nil {
			return err
		}
		if n < 1 || n > 65535 || seen[n] {
			return fmt.Errorf("number: %d is no port, or there twice", n)
		}
		seen[n] = true
		p.ports = append(p.ports, int(n))
		return nil
	}, "spec", "targetPorts")
	if err == nil && (len(p.ports) < 1 || len(p.ports) > maxPorts) {
		err = fmt.Errorf("spec.targetPorts: expected 1 to %d, got %d", maxPorts, len(p.ports))
	}
	return p, err
}

// activePorts are the annotations that limit a pod's ports; the first one present counts.
var activePorts = []string{"llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports"}

func parsePod(u *unstructured.Unstructured) (pod, error) {
	var p pod
	var err error
	if p.labels, _, err = labelMap(u.Object, "metadata", "labels"); err != nil {
		return pod{}, err
	}
	annotations, _, err := labelMap(u.Object, "metadata", "annotations")
	if err != nil {
		return pod{}, err
	}
	for _, name := range activePorts {
		if text, ok := annotations[name]; ok {
			p.active, err = ports(text)
			if err != nil {
				return pod{}, fmt.Errorf("annotation %s: %w", name, err)
			}
			break
		}
	}
	terminating, _, err := get[string](u.Object, "metadata", "deletionTimestamp")
	if err != nil {
		return pod{}, err
	}
	ready := false
	err = entries(u.Object, func(_ int, m map[string]any) error {
		typ, _, err := get[string](m, "type")
		status, _, err2 := get[string](m, "status")
		ready = ready || (typ == "Ready" && status == "True")
		return errors.Join(err, err2)
	}, "status", "conditions")
	if err != nil {
		return pod{}, err
	}
	if p.ip, _, err = get[string](u.Object, "status", "podIP"); err != nil {
		return pod{}, err
	}
	if _, err := netip.ParseAddr(p.ip); err != nil && p.ip != "" {
		return pod{}, fmt.Errorf("status.podIP: %w", err)
	}
	p.ready = ready && p.ip != "" && terminating == ""
	return p, nil
}

// ports reads a list like "8000,8001"; an empty one allows no port.
func ports(text string) (map[int]bool, error) {
	out := map[int]bool{}
	for field := range strings.SplitSeq(text, ",") {
		field = strings.TrimSpace(field)
		if field == "" {
			continue
		}
		n, err := strconv.ParseUint(field, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q is no port", field)
		}
		out[int(n)] = true
	}
	return out, nil
}

// poolRef reads spec.poolRef with the CRD's defaults.
func poolRef(u *unstructured.Unstructured) (ref, error) {
	r := ref{group: defaultPoolGroup, kind: "InferencePool"}
	for _, f := range []struct {
		key string
		to  *string
	}{{"group", &r.group}, {"kind", &r.kind}, {"name", &r.name}} {
		v, ok, err := get[string](u.Object, "spec", "poolRef", f.key)
		if err != nil {
			return ref{}, err
		}
		if ok {
			*f.to = v
		}
	}
	return r, nil
}

// parseObjective reads an objective; an unset priority is 0 (FC-CLS-09).
func parseObjective(u *unstructured.Unstructured) (objective, error) {
	var o objective
	p, _, err := get[int64](u.Object, "spec", "priority")
	if err == nil && (p < math.MinInt32 || p > math.MaxInt32) {
		err = fmt.Errorf("spec.priority: %d does not fit 32 bits", p)
	}
	if err != nil {
		return objective{}, err
	}
	o.priority = int(p)
	o.pool, err = poolRef(u)
	return o, err
}

// maxWeight is the largest weight of a rewrite's target.
const maxWeight = 1_000_000

func parseRewrite(u *unstructured.Unstructured) (rewrite, error) {
	var r rewrite
	var err error
	if r.pool, err = poolRef(u); err != nil {
		return rewrite{}, err
	}
	created, ok, err := get[string](u.Object, "metadata", "creationTimestamp")
	if err != nil {
		return rewrite{}, err
	}
	if ok {
		if r.created, err = time.Parse(time.RFC3339, created); err != nil {
			return rewrite{}, fmt.Errorf("metadata.creationTimestamp: %w", err)
		}
	}
	err = entries(u.Object, func(_ int, rule map[string]any) error {
		rules, err := parseRule(u.GetName(), rule)
		r.rules = append(r.rules, rules...)
		return err
	}, "spec", "rules")
	return r, err
}

// parseRule splits a rule into one Rewrite per match; without any it is generic.
func parseRule(object string, rule map[string]any) ([]Rewrite, error) {
	var targets []Target
	err := entries(rule, func(_ int, m map[string]any) error {
		model, _, err := get[string](m, "modelRewrite")
		if err == nil && model == "" {
			err = errors.New("modelRewrite: missing")
		}
		if err != nil {
			return err
		}
		weight, ok, err := get[int64](m, "weight")
		if err == nil && ok && (weight < 1 || weight > maxWeight) {
			err = fmt.Errorf("weight: %d is not in 1..%d", weight, maxWeight)
		}
		targets = append(targets, Target{model, int(weight)})
		return err
	}, "targets")
	if err == nil && len(targets) == 0 {
		err = errors.New("targets: missing")
	}
	if err != nil {
		return nil, err
	}
	var out []Rewrite
	err = entries(rule, func(_ int, m map[string]any) error {
		typ, ok, err := get[string](m, "model", "type")
		if err == nil && ok && typ != "Exact" {
			err = fmt.Errorf("model.type: %q is not Exact", typ)
		}
		if err != nil {
			return err
		}
		model, _, err := get[string](m, "model", "value")
		if err == nil && model == "" {
			err = errors.New("model.value: missing")
		}
		out = append(out, Rewrite{Object: object, Model: model, Targets: targets})
		return err
	}, "matches")
	if err == nil && len(out) == 0 {
		out = []Rewrite{{Object: object, Targets: targets}}
	}
	return out, err
}
