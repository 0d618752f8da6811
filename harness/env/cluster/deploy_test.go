package cluster

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/env/cluster/errand"
	"github.com/llm-weir/weir/harness/env/cluster/render"
	"github.com/llm-weir/weir/harness/env/remote"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/manifests"
)

func overlay(t *testing.T, name, namespace string) []Object {
	t.Helper()
	all, err := render.Build(manifests.Files, name, render.Options{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestApplyAndRemove: an overlay is there after one and gone after the other, but for what others may use.
func TestApplyAndRemove(t *testing.T) {
	a := newAPI(t)
	all := overlay(t, "kind", "weir")
	if err := a.client.Apply(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if got := a.names("apis/apps/v1/namespaces/weir/deployments"); len(got) != 6 {
		t.Errorf("deployments %v", got)
	}
	if err := a.client.Apply(t.Context(), all); err != nil { // again, onto what is there
		t.Fatal(err)
	}
	before := len(a.objects)
	if err := a.client.DryRun(t.Context(), overlay(t, "certify", "other")); err != nil || len(a.objects) != before {
		t.Errorf("a dry run has made %d objects: %v", len(a.objects)-before, err)
	}
	if err := a.client.Remove(t.Context(), all, false); err != nil {
		t.Fatal(err)
	}
	for at, o := range a.objects {
		if k := o["kind"]; k != "Namespace" && k != "CustomResourceDefinition" {
			t.Errorf("%s is left", at)
		}
	}
	if len(a.names("api/v1/namespaces")) != 1 {
		t.Error("the namespace is gone")
	}
	if err := a.client.Remove(t.Context(), all, true); err != nil || len(a.objects) > 0 {
		t.Errorf("%d objects are left: %v", len(a.objects), err)
	}
}

// TestApplyRefused: every object that was refused is named, with what to do.
func TestApplyRefused(t *testing.T) {
	a := newAPI(t)
	a.refuse = func(method, path string) string {
		if method == http.MethodPatch && strings.Contains(path, "/deployments/") {
			return `deployments.apps is forbidden: User "u" cannot patch`
		}
		return ""
	}
	err := a.client.Apply(t.Context(), overlay(t, "certify", "n"))
	for _, want := range []string{"deployment/weir-picker in n", "deployment/weir-sim-vllm in n", "ask for a Role"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	err = a.client.Apply(t.Context(), []Object{{"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": map[string]any{"name": "m", "namespace": "n"}}})
	if err == nil || !strings.Contains(err.Error(), "no PodMonitor of monitoring.coreos.com/v1") {
		t.Errorf("a kind that is not there: %v", err)
	}
	if err := a.client.NeedNamespace(t.Context(), "n"); err == nil || !strings.Contains(err.Error(), "namespace n") {
		t.Errorf("a namespace that is not there: %v", err)
	}
}

// TestAwaitReady: ready is when everything is rolled out; what never will be is told at once.
func TestAwaitReady(t *testing.T) {
	a := newAPI(t)
	deployed := func(ready int) {
		a.put("apis/apps/v1/namespaces/n/deployments/d", map[string]any{"kind": "Deployment", "apiVersion": "apps/v1", "metadata": map[string]any{"name": "d"}, "spec": map[string]any{"replicas": 1},
			"status": map[string]any{"replicas": 1, "updatedReplicas": 1, "readyReplicas": ready}}, []string{"namespaces", "n", "deployments", "d"})
	}
	deployed(1)
	if err := a.client.AwaitReady(t.Context(), "n", time.Minute); err != nil {
		t.Fatal(err)
	}
	deployed(0)
	a.put("api/v1/namespaces/n/pods/p", map[string]any{"kind": "Pod", "apiVersion": "v1", "metadata": map[string]any{"name": "p"}, "status": map[string]any{"phase": "Pending",
		"containerStatuses": []any{map[string]any{"state": map[string]any{"waiting": map[string]any{"reason": "ErrImageNeverPull", "message": "not present"}}}}}}, []string{"namespaces", "n", "pods", "p"})
	if err := a.client.AwaitReady(t.Context(), "n", time.Hour); err == nil || !strings.Contains(err.Error(), "d in n: not ready: pod/p: ErrImageNeverPull") {
		t.Errorf("an image that is not there: %v", err)
	}
	delete(a.objects, "api/v1/namespaces/n/pods/p")
	a.put("apis/apps/v1/namespaces/n/replicasets/r", map[string]any{"kind": "ReplicaSet", "apiVersion": "apps/v1", "metadata": map[string]any{"name": "r"}, "status": map[string]any{
		"conditions": []any{map[string]any{"type": "ReplicaFailure", "status": "True", "message": "pods is forbidden: exceeded quota: q"}}}}, []string{"namespaces", "n", "replicasets", "r"})
	if err := a.client.AwaitReady(t.Context(), "n", time.Hour); err == nil || !strings.Contains(err.Error(), "ResourceQuota") {
		t.Errorf("a quota: %v", err)
	}
}

// worker is a pod that does an errand.
func worker(t *testing.T, a *api, exit int, files map[string]string) {
	t.Helper()
	s := errand.NewServer()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Done(exit, dir); err != nil {
		t.Fatal(err)
	}
	a.proxy = func(string) http.Handler { return s.Handler() }
	a.react = func(a *api, path string, o map[string]any) {
		if o["kind"] != "Job" {
			return
		}
		for i, name := range []string{"e-0", "e-1"} {
			a.put("api/v1/namespaces/n/pods/"+name, map[string]any{"kind": "Pod", "apiVersion": "v1", "metadata": map[string]any{"name": name, "labels": map[string]any{
				"batch.kubernetes.io/job-name": "e", "batch.kubernetes.io/job-completion-index": []string{"0", "1"}[i]}}, "status": map[string]any{"phase": "Running"}},
				[]string{"namespaces", "n", "pods", name})
			a.logs[name] = "2026-01-02T00:00:00.1Z hello from " + name + "\n"
		}
	}
}

// TestRun: results and output of every pod come home, and the Job goes.
func TestRun(t *testing.T) {
	a := newAPI(t)
	worker(t, a, 3, map[string]string{"r.txt": "result"})
	a.objects["api/v1/namespaces/n/events/old"] = map[string]any{"kind": "Event", "apiVersion": "v1", "metadata": map[string]any{"name": "old"}, "reason": "FailedCreate",
		"message": "exceeded quota: of an earlier Job", "involvedObject": map[string]any{"name": "e", "uid": "another"}}
	dir := t.TempDir()
	var out strings.Builder
	status, err := a.client.Run(t.Context(), Errand{Name: "e", Namespace: "n", Image: "weir:dev", Workers: 2, Out: &out}, dir)
	if err != nil || status != 3 {
		t.Fatalf("status %d: %v", status, err)
	}
	for _, i := range []string{"0", "1"} {
		if got, err := os.ReadFile(filepath.Join(dir, i, "r.txt")); err != nil || string(got) != "result" {
			t.Errorf("worker %s: %q %v", i, got, err)
		}
	}
	if len(a.names("apis/batch/v1/namespaces/n/jobs"))+len(a.names("api/v1/namespaces/n/configmaps")) > 0 {
		t.Error("the Job or its files are left")
	}
	if got := out.String(); strings.Count(got, "[0] hello from e-0\n") > 1 || strings.Count(got, "[1] hello from e-1\n") > 1 {
		t.Errorf("lines were repeated: %q", got)
	}
}

// TestRunRefused: a pod that cannot be made is an error at once, and nothing is left.
func TestRunRefused(t *testing.T) {
	a := newAPI(t)
	a.proxy = func(string) http.Handler { return http.NotFoundHandler() }
	a.react = func(a *api, _ string, o map[string]any) {
		if o["kind"] == "Job" {
			a.objects["api/v1/namespaces/n/events/x"] = map[string]any{"kind": "Event", "apiVersion": "v1", "metadata": map[string]any{"name": "x"}, "reason": "FailedCreate",
				"message": `pods "e" is forbidden: exceeded quota: q`, "involvedObject": map[string]any{"uid": o["metadata"].(map[string]any)["uid"]}}
		}
	}
	_, err := a.client.Run(t.Context(), Errand{Name: "e", Namespace: "n", Image: "weir:dev"}, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "ResourceQuota") {
		t.Errorf("%v", err)
	}
	if len(a.names("apis/batch/v1/namespaces/n/jobs")) > 0 {
		t.Error("the Job is left")
	}
}

// lane is one whose pickers end up as how says.
func lane(t *testing.T, a *api, how map[string]any) *Lane {
	t.Helper()
	if err := a.client.Apply(t.Context(), overlay(t, "certify", "n")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sim-0", "sim-1"} {
		a.put("api/v1/namespaces/n/pods/"+name, map[string]any{"kind": "Pod", "apiVersion": "v1", "metadata": map[string]any{"name": name, "labels": map[string]any{
			"app.kubernetes.io/part-of": "weir", "app.kubernetes.io/component": "model-server", memberLabel: "true"}},
			"status": map[string]any{"podIP": "10.0.0.1", "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}}, []string{"namespaces", "n", "pods", name})
	}
	a.react = func(_ *api, _ string, o map[string]any) {
		if labels, _ := o["metadata"].(map[string]any)["labels"].(map[string]any); o["kind"] == "Pod" && labels[scenarioLabel] != nil {
			o["status"] = how
		}
	}
	l, err := a.client.OpenLane(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var ended = map[string]any{"phase": "Failed", "containerStatuses": []any{map[string]any{"state": map[string]any{"terminated": map[string]any{"exitCode": 2}}}}}

// TestLane: pool, objectives and configuration are those of the scenario when its picker starts, and gone after it.
func TestLane(t *testing.T) {
	a := newAPI(t)
	l := lane(t, a, ended)
	if r := l.Running(); len(r.Simulators) != 2 || r.Simulators["sim-1"] != "http://10.0.0.1:8000" {
		t.Errorf("simulators %v", r.Simulators)
	}
	want := remote.Wanted{Document: "kind: EndpointPickerConfig", Objectives: map[string]int{"p5": 5}, Members: []remote.Member{{Own: "sim-1", Name: "a", Role: "decode"}}}
	_, err := l.Configure(t.Context(), want)
	var refused *binary.StartError
	if !errors.As(err, &refused) || refused.ExitCode != 2 || !refused.Ended {
		t.Fatalf("a picker that ends: %v", err)
	}
	if got := a.names("apis/llm-d.ai/v1alpha2/namespaces/n/inferenceobjectives"); !slices.Equal(got, []string{"p5"}) {
		t.Errorf("objectives %v", got)
	}
	label := func(pod, name string) any {
		v := a.objects["api/v1/namespaces/n/pods/"+pod]["metadata"].(map[string]any)["labels"].(map[string]any)[name]
		return v
	}
	if label("sim-0", memberLabel) != nil || label("sim-1", memberLabel) != "true" || label("sim-1", roleLabel) != "decode" {
		t.Errorf("labels of sim-0 %v, of sim-1 %v %v", label("sim-0", memberLabel), label("sim-1", memberLabel), label("sim-1", roleLabel))
	}
	var pod map[string]any
	for at, o := range a.objects {
		if strings.Contains(at, "/pods/weir-picker-") {
			pod = o
		}
	}
	container := pod["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	if args := container["args"].([]any); args[len(args)-1] != "--allow-experimental-plugins" {
		t.Errorf("args %v", args)
	}
	config := pod["spec"].(map[string]any)["volumes"].([]any)[0].(map[string]any)["configMap"].(map[string]any)["name"].(string)
	if data := a.objects["api/v1/namespaces/n/configmaps/"+config]["data"].(map[string]any); data["epp.yaml"] != want.Document {
		t.Errorf("configuration %v", data)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, at := range append(a.names("api/v1/namespaces/n/pods"), a.names("api/v1/namespaces/n/configmaps")...) {
		if !strings.HasPrefix(at, "sim-") && !strings.HasPrefix(at, "weir-picker-") || strings.Contains(at, "weir-picker-m") {
			t.Errorf("%s is left", at)
		}
	}
	if err := l.Update(t.Context(), remote.Wanted{Objects: []sut.Objective{{Name: "x", Namespace: "elsewhere"}}}); !errors.As(err, new(*sut.UnsupportedError)) {
		t.Errorf("an objective in another namespace: %v", err)
	}
}

// TestTry: a document that a picker refuses, with the flag for alpha plugins left out.
func TestTry(t *testing.T) {
	a := newAPI(t)
	l := lane(t, a, ended)
	var args []any
	react := a.react
	a.react = func(a *api, path string, o map[string]any) {
		if strings.Contains(path, "/pods/") {
			args = o["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["args"].([]any)
			a.logs[path[strings.LastIndexByte(path, '/')+1:]] = "unknown field"
		}
		react(a, path, o)
	}
	err := l.Try(t.Context(), "nonsense", true)
	var refused *binary.StartError
	if !errors.As(err, &refused) || refused.Output != "unknown field" || slices.Contains(args, any("--allow-experimental-plugins")) {
		t.Errorf("%v, args %v", err, args)
	}
	for _, at := range a.names("api/v1/namespaces/n/pods") {
		if !strings.HasPrefix(at, "sim-") {
			t.Errorf("%s is left", at)
		}
	}
}

// TestLaneMissing: what is not there is named.
func TestLaneMissing(t *testing.T) {
	a := newAPI(t)
	if _, err := a.client.OpenLane(t.Context(), "n"); err == nil || !strings.Contains(err.Error(), "deployment/weir-picker in n") {
		t.Errorf("no deployment: %v", err)
	}
	if err := a.client.Apply(t.Context(), overlay(t, "certify", "n")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.client.OpenLane(t.Context(), "n"); err == nil || !strings.Contains(err.Error(), "no model server in n") {
		t.Errorf("no model server: %v", err)
	}
	if _, err := a.client.OpenStack(t.Context(), "n", 0); err == nil || !strings.Contains(err.Error(), "gateway") || strings.Contains(err.Error(), "picker (") {
		t.Errorf("half a stack: %v", err)
	}
}

// TestDump: objects, events and logs, also of containers that have restarted, and no secrets.
func TestDump(t *testing.T) {
	a := newAPI(t)
	if err := a.client.Apply(t.Context(), overlay(t, "certify", "n")); err != nil {
		t.Fatal(err)
	}
	a.put("api/v1/namespaces/n/pods/p", map[string]any{"kind": "Pod", "apiVersion": "v1", "metadata": map[string]any{"name": "p", "managedFields": []any{}}, "status": map[string]any{
		"containerStatuses": []any{map[string]any{"name": "c", "restartCount": 1}}}}, []string{"namespaces", "n", "pods", "p"})
	a.logs["p"] = "said\n"
	dir := t.TempDir()
	if err := a.client.Dump(t.Context(), dir, "n"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"n/pod.yaml": "name: p", "n/deployment.yaml": "weir-picker", "n/logs/p.c.log": "said", "n/logs/p.c.previous.log": "said", "n/inferencepool.yaml": "weir"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(got), want) || strings.Contains(string(got), "managedFields") {
			t.Errorf("%s: %.80q %v", name, got, err)
		}
	}
}

// TestNothingOfOthers: a namespace or an object that no run has made is neither taken over nor deleted.
func TestNothingOfOthers(t *testing.T) {
	a := newAPI(t)
	if _, err := a.client.MakeNamespace(t.Context(), "mine"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.client.MakeNamespace(t.Context(), "mine"); err != nil { // left by a run that was killed
		t.Errorf("one that an earlier run has made: %v", err)
	}
	a.put("api/v1/namespaces/theirs", map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "theirs"}}, []string{"namespaces", "theirs"})
	if _, err := a.client.MakeNamespace(t.Context(), "theirs"); err == nil || !strings.Contains(err.Error(), "namespace theirs is there already") {
		t.Errorf("somebody else's: %v", err)
	}
	if err := a.client.Apply(t.Context(), overlay(t, "certify", "mine")); err != nil {
		t.Fatal(err)
	}
	if err := a.client.NeedUnused(t.Context(), "mine"); err != nil {
		t.Errorf("what a run has made counts as somebody else's: %v", err)
	}
	if err := a.client.Apply(t.Context(), overlay(t, "kind", "theirs")); err != nil {
		t.Fatal(err)
	}
	err := a.client.NeedUnused(t.Context(), "theirs")
	for _, want := range []string{"deployment/weir-picker", "inferencepool/weir", "inferenceobjective/batch"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in %v", want, err)
		}
	}
}
