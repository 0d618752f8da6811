package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
)

// deployed is the stack of the kind overlay in namespace n, all of it ready, with one pod of each part.
func deployed(t *testing.T) *api {
	t.Helper()
	a := newAPI(t)
	a.react = func(_ *api, _ string, o map[string]any) {
		if o["kind"] == "Deployment" {
			n := o["spec"].(map[string]any)["replicas"]
			o["status"] = map[string]any{"replicas": n, "readyReplicas": n, "updatedReplicas": n}
		}
	}
	if err := a.client.Apply(t.Context(), overlay(t, "kind", "n")); err != nil {
		t.Fatal(err)
	}
	for i, part := range sortedParts() {
		a.put("api/v1/namespaces/n/pods/"+part, map[string]any{"kind": "Pod", "apiVersion": "v1", "metadata": map[string]any{"name": part,
			"labels": map[string]any{"app.kubernetes.io/part-of": "weir", "app.kubernetes.io/component": part}},
			"status": map[string]any{"podIP": fmt.Sprintf("10.0.0.%d", i+1), "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}}, []string{"namespaces", "n", "pods", part})
	}
	return a
}

func sortedParts() []string {
	var out []string
	for part := range parts {
		out = append(out, part)
	}
	slices.Sort(out)
	return out
}

// shape is everything that a fault may change, as text by path.
func (a *api) shape() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]string{}
	for at, o := range a.objects {
		meta := o["metadata"].(map[string]any)
		text, err := json.Marshal([]any{o["spec"], o["data"], o["rules"], meta["labels"]})
		if err != nil {
			a.t.Fatal(err)
		}
		out[at] = string(text)
	}
	return out
}

// TestFaults: each fault changes the deployment as it is shipped, in the way it says, and takes everything back. All rows but two have one.
func TestFaults(t *testing.T) {
	shows := map[string]string{
		"picker-impatient": "defaultRequestTTL: 100ms", "server-cuts": "--drain-timeout=1ms", "picker-cuts": "--drain-timeout=1ms", "gateway-cuts": "--drain-timeout=1ms",
		"gateway-pins-picker": "--ext-proc=10.0.0.3:9002", "service-pins-gateway": `"weir.dev/selected":"yes"`, "prometheus-pins-picker": "--name=picker=10.0.0.3:9090",
		"processor-pins-prometheus": "--prometheus-url=http://10.0.0.5:9090", "band-full": "{priority: -5, maxBytes: 1}", "prometheus-pins-server": "--name=vllm=10.0.0.2:8000,inference_pool=weir", "processor-without-gate": `gate_type\": \"constant`,
		"processor-pins-broker": "redis://10.0.0.6:6379",
	}
	a := deployed(t)
	before := a.shape()
	covered := map[string]bool{}
	for _, f := range Faults {
		restore, err := f.Put(t.Context(), a.client, "n")
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		changed := false
		for at, text := range a.shape() {
			changed = changed || text != before[at] && strings.Contains(text, shows[f.Name]) && shows[f.Name] != ""
		}
		if !changed {
			t.Errorf("%s: %q is nowhere in what was changed", f.Name, shows[f.Name])
		}
		if err := restore(t.Context()); err != nil {
			t.Errorf("%s: taken back: %v", f.Name, err)
		}
		after := a.shape()
		for at := range before {
			if after[at] != before[at] {
				t.Errorf("%s: %s is\n%s\nit was\n%s", f.Name, at, after[at], before[at])
			}
			delete(after, at)
		}
		for at := range after {
			t.Errorf("%s: %s is left", f.Name, at)
		}
		for _, id := range f.Requirements {
			covered[id] = true
		}
	}
	if len(covered) != 12 || covered["K8S-10"] || covered["K8S-13"] {
		t.Errorf("%d rows have a fault: %v", len(covered), covered)
	}
}

// TestFaultWithoutPlace: a deployment that lacks what a fault changes is named, and stays as it is.
func TestFaultWithoutPlace(t *testing.T) {
	for want, put := range map[string]func(*api){
		"no argument that begins with --ext-proc=weir-picker:": func(a *api) {
			for _, o := range a.objects {
				if meta := o["metadata"].(map[string]any); meta["name"] == "weir-gateway" && o["kind"] == "Deployment" {
					c := o["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
					c["args"] = []any{"gateway", "--ext-proc=other:9002"}
				}
			}
		},
		"no pod of picker has an address": func(a *api) { delete(a.objects, "api/v1/namespaces/n/pods/picker") },
		"deployments":                     func(a *api) { delete(a.objects, "apis/apps/v1/namespaces/n/deployments/weir-gateway") },
	} {
		a := deployed(t)
		put(a)
		before := a.shape()
		i := slices.IndexFunc(Faults, func(f Fault) bool { return f.Name == "gateway-pins-picker" })
		restore, err := Faults[i].Put(t.Context(), a.client, "n")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if err := restore(t.Context()); err != nil {
			t.Errorf("%s: taken back: %v", want, err)
		}
		for at, text := range a.shape() {
			if before[at] != text {
				t.Errorf("%s: %s has changed", want, at)
			}
		}
	}
}

// TestNotBack: a part that does not come back is a note for the check, and an API server that does not answer is an error.
func TestNotBack(t *testing.T) {
	a := deployed(t)
	s, err := a.client.OpenStack(t.Context(), "n", 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	settle := sut.Step{Op: sut.OpDeploy, Mode: sut.DeploySettle, Endpoint: "processor"}
	if note, err := s.deploy(t.Context(), settle); err != nil || note != "1 pods" {
		t.Errorf("one that is there: %q %v", note, err)
	}
	if _, err := s.deploy(t.Context(), sut.Step{Op: sut.OpDeploy, Mode: sut.DeployRollout, Endpoint: "processor"}); err != nil {
		t.Fatal(err)
	}
	note, err := s.deploy(t.Context(), settle)
	if err != nil || !strings.HasPrefix(note, evidence.NotBack) || !strings.Contains(note, "pod/processor was to go") {
		t.Errorf("one whose pod stays: %q %v", note, err)
	}
	a.mu.Lock()
	a.refuse = func(string, string) string { return "the server is on fire" }
	a.mu.Unlock()
	if note, err := s.deploy(t.Context(), settle); err == nil || !strings.Contains(err.Error(), "on fire") {
		t.Errorf("an API server that refuses: %q %v", note, err)
	}
}
