package binary

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/kubeapi"
)

const document = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins: [{pluginRef: max-score-picker}]
`

// kept collects the files of a program.
type kept struct {
	mu    sync.Mutex
	files map[string]string
}

func (k *kept) file(name string, content []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.files == nil {
		k.files = map[string]string{}
	}
	k.files[name] = string(content)
}

func TestHabits(t *testing.T) {
	for _, c := range []struct {
		says, mode, document string
		start                string // text of the error of Start; "" for none
		exit                 int    // status it ended with by itself
		close                string // text of the error of Close
		log                  string // text in its log
	}{
		{"a good one", "good", document, "", 0, "", "serving"},
		{"one that ends at once", "exits", document, "ended before it was ready: exit status 7; it printed: no licence found", 7, "", "no licence"},
		{"one that refuses its configuration", "good", "kind: Nonsense\n", "Nonsense", 2, "", "refused"},
		{"one that never listens", "silent", document, "not ready within 30s: nobody listens on its ext_proc port", -1, "", ""},
		{"one that listens late", "late", document, "", 0, "", "serving"},
		{"one whose health service never serves", "unhealthy", document, "says NOT_SERVING", -1, "", "serving"},
		{"one without the health service it was given a port for", "no-health", document, "nobody listens on its health port", -1, "", "serving"},
		{"one whose health service is on the other port", "health-elsewhere", document, "", 0, "", "serving"},
		{"one that speaks TLS and was to speak plaintext", "tls", document, "speaks no gRPC (in plaintext: is TLS on?)", -1, "", "serving"},
		{"one that ignores SIGTERM", "stubborn", document, "", 0, "", "killed: it did not end within 300ms of SIGTERM"},
		{"one that floods its log", "floods", document, "", 0, "", "bytes are not kept"},
		{"one that leaves another with its ports behind", "daemon", document, "", 0, "left processes outside its group behind, which were killed: ", ""},
	} {
		t.Run(c.says, func(t *testing.T) {
			t.Parallel()
			var k kept
			// A busy machine, on which a program needs long to come up, is not what is tested.
			cfg := Config{Command: Fake(c.mode), Document: c.document, ServerPort: 1, StartLimit: 30 * time.Second, Grace: 300 * time.Millisecond, OnFile: k.file}
			p, err := Start(t.Context(), cfg)
			switch {
			case c.start == "" && err != nil:
				t.Fatal(err)
			case c.start == "":
				if err := p.Close(); c.close == "" && err != nil || c.close != "" && (err == nil || !strings.Contains(err.Error(), c.close)) {
					t.Errorf("close: %v, want %q", err, c.close)
				}
				if err := p.Close(); (err == nil) != (c.close == "") {
					t.Errorf("closed again: %v", err)
				}
				for _, port := range []int{p.ports.grpc, p.ports.health, p.ports.metrics} {
					if !free(port) {
						t.Errorf("port %d is still taken", port)
					}
				}
				if left := marked(markVariable, p.process.mark); len(left) > 0 {
					t.Errorf("it left %v behind", left)
				}
			default:
				var refused *StartError
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.start) || refused.ExitCode != c.exit || refused.Ended != (c.exit >= 0) {
					t.Errorf("start: %v (%+v), want %q and status %d", err, refused, c.start, c.exit)
				}
			}
			if !strings.Contains(k.files["picker.log"], c.log) || len(k.files["picker.log"]) > 3*outputEdge {
				t.Errorf("log of %d bytes: %.600s\nwant %q", len(k.files["picker.log"]), k.files["picker.log"], c.log)
			}
		})
	}
}

func TestAProgramThatDoesNotExist(t *testing.T) {
	c, err := Parse("./no-such-program {{.GRPCPort}}")
	if err != nil {
		t.Fatal(err)
	}
	var refused *StartError
	if _, err := Start(t.Context(), Config{Command: c, Document: document}); !errors.As(err, &refused) || !strings.Contains(err.Error(), "no-such-program") {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	p, err := Start(t.Context(), Config{Command: Fake("tls"), Document: document, ServerPort: 1, TLS: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Start(t.Context(), Config{Command: Fake("good"), Document: document, ServerPort: 1, TLS: true, StartLimit: 10 * time.Second}); err == nil || !strings.Contains(err.Error(), "TLS was asked for") {
		t.Errorf("plaintext where TLS was asked for: %v", err)
	}
}

// A program that ends by itself is noticed, one that was told to end is not taken for that.
func TestEndings(t *testing.T) {
	p, err := Start(t.Context(), Config{Command: Fake("good"), Document: document, ServerPort: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.process.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.Failed()
	if err := p.Failure(); !strings.Contains(err.Error(), "signal: killed") || !strings.Contains(err.Error(), "serving") {
		t.Errorf("the failure does not say how: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}

	var k kept
	p, err = Start(t.Context(), Config{Command: Fake("good"), Document: document, ServerPort: 1, OnFile: k.file})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := p.Restart(ctx); err == nil {
		t.Error("one that was not shut down was started again")
	}
	before := p.GRPCAddr()
	for range 2 {
		if err := p.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := p.Restart(ctx); err != nil || p.GRPCAddr() != before {
			t.Fatalf("restart: %v, at %s and %s", err, before, p.GRPCAddr())
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if len(k.files) != 4 || !strings.Contains(k.files["picker-3.log"], "serving") {
		t.Errorf("the logs of three starts and the calls: %v", k.files)
	}
	select {
	case <-p.Failed():
		t.Error("a program that was told to end has not failed")
	default:
	}
}

// The files and the Kubernetes API say the same, and both follow.
func TestWorld(t *testing.T) {
	w, err := newWorld(document, 8000)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	read := func(name string) string {
		text, err := os.ReadFile(w.file(name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	a, b := Endpoint{Name: "a", IP: "127.0.1.1", Role: "prefill"}, Endpoint{Name: "b", IP: "127.0.1.2"}
	set := func(want bool, list ...Endpoint) {
		t.Helper()
		if relabelled, err := w.setEndpoints(list); err != nil || relabelled != want {
			t.Fatalf("relabelled %v, %v", relabelled, err)
		}
	}
	set(false, a, b)
	if err := w.setObjectives(map[string]int{"high": 100, "low": -10}, nil); err != nil {
		t.Fatal(err)
	}
	if text := read("endpoints.yaml"); !strings.Contains(text, "llm-d.ai/role: prefill") || strings.Count(text, `port: "8000"`) != 2 {
		t.Errorf("endpoints.yaml: %s", text)
	}
	if w.api.Get(kubeapi.Pods, namespace, "a") == nil || w.api.Get(kubeapi.Pools, namespace, PoolName) == nil ||
		w.api.Get(kubeapi.Objectives, namespace, "high") == nil || w.api.Get(kubeapi.LegacyObjectives, namespace, "low") == nil {
		t.Error("the Kubernetes API lacks objects")
	}
	b.Role = "decode"
	set(true, b)
	if err := w.setObjectives(map[string]int{"high": 1}, nil); err != nil {
		t.Fatal(err)
	}
	if text := read("endpoints.yaml") + read("objectives.yaml"); strings.Contains(text, "name: a") || strings.Contains(text, "low") || !strings.Contains(text, "high: 1\n") {
		t.Errorf("the files: %s", text)
	}
	if w.api.Get(kubeapi.Pods, namespace, "a") != nil || w.api.Get(kubeapi.LegacyObjectives, namespace, "low") != nil {
		t.Error("the Kubernetes API kept what was taken out")
	}
	set(false)
	if text := read("endpoints.yaml"); strings.TrimSpace(text) != "endpoints: []" {
		t.Errorf("an empty pool: %q", text)
	}
	if left, _ := filepath.Glob(w.file("*.next")); len(left) > 0 {
		t.Errorf("half-written files: %v", left)
	}
}
