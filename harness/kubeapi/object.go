package kubeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Object is one object as JSON reads it. Objects in the store are never changed, only replaced.
type Object map[string]any

// clone is a copy that shares nothing, with numbers as they are written.
func clone(o Object) (Object, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return decode(text)
}

// decode reads exactly one object; a number keeps its text.
func decode(text []byte) (Object, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var o Object
	if err := d.Decode(&o); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("text after the object")
	}
	if o == nil {
		return nil, errors.New("null is no object")
	}
	return o, nil
}

// text reads a string field, "" where there is none.
func (o Object) text(path ...string) string {
	var at any = map[string]any(o)
	for _, p := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return ""
		}
		at = m[p]
	}
	s, _ := at.(string)
	return s
}

// metadata is the object's own metadata, made where there is none.
func (o Object) metadata() map[string]any {
	m, ok := o["metadata"].(map[string]any)
	if !ok {
		m = map[string]any{}
		o["metadata"] = m
	}
	return m
}

func (o Object) labels() map[string]string {
	raw, _ := o.metadata()["labels"].(map[string]any)
	out := make(map[string]string, len(raw))
	for k, v := range raw {
		out[k], _ = v.(string)
	}
	return out
}

// Pod is one model server as the API shows it.
type Pod struct {
	Namespace, Name string
	Labels          map[string]string
	Annotations     map[string]string
	IP              string
	Node            string // "": "node-0"
	NotReady        bool
}

// Object is the pod as JSON.
func (p Pod) Object() Object {
	ready, node := "True", p.Node
	if p.NotReady {
		ready = "False"
	}
	if node == "" {
		node = "node-0"
	}
	return Object{"apiVersion": "v1", "kind": "Pod", "metadata": meta(p.Namespace, p.Name, p.Labels, p.Annotations),
		"spec": Object{"nodeName": node, "containers": []Object{{"name": "server", "image": "sim-vllm"}}},
		"status": Object{"phase": "Running", "podIP": p.IP, "podIPs": []Object{{"ip": p.IP}},
			"conditions": []Object{{"type": "Ready", "status": ready}, {"type": "ContainersReady", "status": ready}}}}
}

// Pool is an InferencePool.
type Pool struct {
	Namespace, Name string
	Selector        map[string]string
	Ports           []int // of every pod, 1 to 8
	AppProtocol     string
}

// Object is the pool as JSON.
func (p Pool) Object() Object {
	var ports []Object
	for _, n := range p.Ports {
		ports = append(ports, Object{"number": n})
	}
	spec := Object{"selector": Object{"matchLabels": p.Selector}, "targetPorts": ports,
		"endpointPickerRef": Object{"group": "", "kind": "Service", "name": p.Name + "-epp", "port": Object{"number": 9002}, "failureMode": "FailClose"}}
	if p.AppProtocol != "" {
		spec["appProtocol"] = p.AppProtocol
	}
	return Object{"apiVersion": poolGroup + "/" + stable, "kind": "InferencePool", "metadata": meta(p.Namespace, p.Name, nil, nil), "spec": spec}
}

// Objective is an InferenceObjective of a pool in its namespace.
type Objective struct {
	Legacy          bool // of the older group
	Namespace, Name string
	Pool            string
	Priority        int
	Unset           bool // spec.priority is left out
}

// Object is the objective as JSON.
func (o Objective) Object() Object {
	spec := Object{"poolRef": poolRef(o.Pool)}
	if !o.Unset {
		spec["priority"] = o.Priority
	}
	return Object{"apiVersion": objectiveGroup(o.Legacy) + "/" + alpha, "kind": "InferenceObjective", "metadata": meta(o.Namespace, o.Name, nil, nil), "spec": spec}
}

// Rewrite is an InferenceModelRewrite of a pool in its namespace, with one rule.
type Rewrite struct {
	Legacy          bool // of the older group
	Namespace, Name string
	Pool            string
	Model           string         // the incoming name; "": any
	Targets         map[string]int // model -> weight
}

// Object is the rewrite as JSON.
func (r Rewrite) Object() Object {
	rule := Object{}
	if r.Model != "" {
		rule["matches"] = []Object{{"model": Object{"type": "Exact", "value": r.Model}}}
	}
	var targets []Object
	for _, model := range sortedKeys(r.Targets) {
		targets = append(targets, Object{"modelRewrite": model, "weight": r.Targets[model]})
	}
	rule["targets"] = targets
	return Object{"apiVersion": objectiveGroup(r.Legacy) + "/" + alpha, "kind": "InferenceModelRewrite", "metadata": meta(r.Namespace, r.Name, nil, nil),
		"spec": Object{"poolRef": poolRef(r.Pool), "rules": []Object{rule}}}
}

func objectiveGroup(legacy bool) string {
	if legacy {
		return legacyGroup
	}
	return modelGroup
}

func poolRef(name string) Object {
	return Object{"group": poolGroup, "kind": "InferencePool", "name": name}
}

func meta(namespace, name string, labels, annotations map[string]string) Object {
	m := Object{"namespace": namespace, "name": name}
	if len(labels) > 0 {
		m["labels"] = labels
	}
	if len(annotations) > 0 {
		m["annotations"] = annotations
	}
	return m
}

// check says what is wrong with an object that is to be stored as rt; it fills in what the path says and the object leaves out.
func (o Object) check(rt route) error {
	var errs []error
	same := func(m map[string]any, field, want string) {
		switch got, ok := m[field].(string); {
		case m[field] == nil || ok && got == "":
			m[field] = want
		case got != want:
			errs = append(errs, fmt.Errorf("%s: %v does not match %s", field, m[field], want))
		}
	}
	if _, ok := o["metadata"].(map[string]any); !ok && o["metadata"] != nil {
		return errors.New("metadata: not an object")
	}
	same(o, "apiVersion", rt.resource.apiVersion())
	same(o, "kind", rt.resource.Kind)
	same(o.metadata(), "namespace", rt.namespace)
	if rt.name != "" {
		same(o.metadata(), "name", rt.name)
	}
	if name := o.text("metadata", "name"); name == "" || strings.ContainsAny(name, "/%") || name == "." || name == ".." {
		errs = append(errs, fmt.Errorf("metadata.name: %q is no name", name))
	}
	if raw, ok := o.metadata()["labels"]; ok && raw != nil {
		m, ok := raw.(map[string]any)
		for _, v := range m {
			_, text := v.(string)
			ok = ok && text
		}
		if !ok {
			errs = append(errs, errors.New("metadata.labels: not a mapping of strings"))
		}
	}
	return errors.Join(errs...)
}
