package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	// Numbers as a server's answer has them.
	var whole func(v any) any
	whole = func(v any) any {
		switch x := v.(type) {
		case float64:
			return int64(x)
		case map[string]any:
			for k := range x {
				x[k] = whole(x[k])
			}
		case []any:
			for i := range x {
				x[i] = whole(x[i])
			}
		}
		return v
	}
	return &unstructured.Unstructured{Object: whole(o).(map[string]any)}
}

// TestPodTrouble: what keeps a pod from being ready is named, and whether waiting helps.
func TestPodTrouble(t *testing.T) {
	for _, c := range []struct {
		name, status string
		want         string
		fatal        bool
	}{
		{"no room", `{phase: Pending, conditions: [{type: PodScheduled, status: "False", message: "0/1 nodes are available: 1 Insufficient cpu."}]}`, "cannot be scheduled: 0/1 nodes", false},
		{"image not loaded", `{phase: Pending, containerStatuses: [{state: {waiting: {reason: ErrImageNeverPull, message: "Container image weir:dev is not present"}}}]}`, "weir cluster load", true},
		{"image not pulled", `{phase: Pending, containerStatuses: [{state: {waiting: {reason: ImagePullBackOff, message: "Back-off pulling image"}}}]}`, "--image", false},
		{"image without a name", `{phase: Pending, containerStatuses: [{state: {waiting: {reason: InvalidImageName}}}]}`, "correct --image", true},
		{"crashing", `{phase: Running, containerStatuses: [{state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 2}}}]}`, "ended with 2", false},
		{"starting", `{phase: Pending, containerStatuses: [{state: {waiting: {reason: ContainerCreating}}}]}`, "ContainerCreating", false},
		{"not ready", `{phase: Running, containerStatuses: [{state: {running: {}}}]}`, "Running, not ready", false},
		{"nothing known", `{}`, "not ready", false},
	} {
		p := object(t, "kind: Pod\nmetadata: {name: p}\nstatus: "+c.status)
		if got, fatal := podTrouble(p); !strings.Contains(got, c.want) || fatal != c.fatal || !strings.Contains(got, "pod/p") {
			t.Errorf("%s: %q, fatal %v", c.name, got, fatal)
		}
	}
}

// TestRolledOut: only a Deployment of which everything new is ready and nothing old is left.
func TestRolledOut(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{`{metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 2}}`, true},
		{`{metadata: {generation: 2}, spec: {replicas: 0}, status: {observedGeneration: 2}}`, true},
		{`{metadata: {generation: 3}, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 2}}`, false},
		{`{metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 3, updatedReplicas: 2, readyReplicas: 2}}`, false},
		{`{metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 2, updatedReplicas: 1, readyReplicas: 2}}`, false},
		{`{metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 1}}`, false},
		{`{spec: {replicas: 1}}`, false},
	} {
		if got := rolledOut(object(t, c.text)); got != c.want {
			t.Errorf("%s: %v", c.text, got)
		}
	}
}

// TestNoContextIsTaken: a kubeconfig that nobody named is not used, and the error says what could be.
func TestNoContextIsTaken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: prod\ncontexts:\n- {name: prod, context: {cluster: c, user: u}}\nclusters:\n- {name: c, cluster: {server: 'https://127.0.0.1:1'}}\nusers:\n- {name: u, user: {}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := configuration(Options{}); err == nil || !strings.Contains(err.Error(), "prod") || !strings.Contains(err.Error(), "--context") {
		t.Errorf("without a name: %v", err)
	}
	if _, err := configuration(Options{Context: "staging"}); err == nil || !strings.Contains(err.Error(), "prod") {
		t.Errorf("a context that is not there: %v", err)
	}
	if _, err := configuration(Options{Kubeconfig: file + "x"}); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, o := range []Options{{Context: "prod"}, {Kubeconfig: file}} {
		c, err := configuration(o)
		if err != nil || c.Host != "https://127.0.0.1:1" {
			t.Errorf("%+v: %v", o, err)
		}
		if _, err := Connect(t.Context(), o); err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("%+v: a server that does not listen: %v", o, err)
		}
	}
}

// TestExplain: errors that a user can do something about say what.
func TestExplain(t *testing.T) {
	for text, want := range map[string]string{
		`pods "a" is forbidden: exceeded quota: compute`:              "ResourceQuota",
		`pods "a" is forbidden: violates PodSecurity "restricted:v1"`: "Pod Security Standard",
		"something else": "something else",
	} {
		err := errors.New(text)
		got := explain(fmt.Errorf("pod: %w", err))
		if !strings.Contains(got.Error(), want) || !errors.Is(got, err) {
			t.Errorf("%s: %v", text, got)
		}
	}
	if explain(nil) != nil {
		t.Error("nothing is explained")
	}
}

// TestEventLines: events stand in the order in which they were seen.
func TestEventLines(t *testing.T) {
	later := object(t, `{type: Warning, reason: BackOff, message: again, lastTimestamp: "2026-01-02T00:00:02Z", involvedObject: {kind: Pod, name: p}}`)
	first := object(t, `{type: Normal, reason: Started, message: up, eventTime: "2026-01-02T00:00:01Z", involvedObject: {kind: Pod, name: p}}`)
	got := strings.Split(eventLines([]unstructured.Unstructured{*later, *first}), "\n")
	if len(got) != 3 || !strings.Contains(got[0], "pod/p: up") || !strings.Contains(got[1], "BackOff") {
		t.Errorf("%q", got)
	}
}

// TestErrandObjects: the pods of an errand keep the restricted standard, and ask for what they are told to.
func TestErrandObjects(t *testing.T) {
	all := Errand{Name: "e", Namespace: "n", Image: "weir:dev", Account: "a", Component: "load", Workers: 3, Args: []string{"version"}, Files: map[string]string{"w.yaml": "x"}}.objects()
	if len(all) != 3 {
		t.Fatalf("%d objects", len(all))
	}
	job := &unstructured.Unstructured{Object: all[2]}
	for path, want := range map[string]any{"completions": int64(3), "parallelism": int64(3), "completionMode": "Indexed", "backoffLimit": int64(0)} {
		if got, _, _ := unstructured.NestedFieldNoCopy(job.Object, "spec", path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	pod, _, _ := unstructured.NestedMap(job.Object, "spec", "template", "spec")
	if pod["automountServiceAccountToken"] != true || pod["serviceAccountName"] != "a" || pod["restartPolicy"] != "Never" {
		t.Errorf("%v", pod)
	}
	if v, _, _ := unstructured.NestedBool(pod, "securityContext", "runAsNonRoot"); !v {
		t.Error("it may run as root")
	}
	c := pod["containers"].([]any)[0].(map[string]any)
	if fmt.Sprint(c["args"]) != "[errand --results /results --addr :8099 -- version]" {
		t.Errorf("%v", c["args"])
	}
	for _, of := range []string{"requests", "limits"} {
		for _, r := range []string{"cpu", "memory"} {
			if text(c, "resources", of, r) == "" {
				t.Errorf("%s of %s are missing", of, r)
			}
		}
	}
	if got := text(all[0], "data", "w.yaml"); got != "x" {
		t.Errorf("file %q", got)
	}
}
