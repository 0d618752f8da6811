package kube

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/picker"
)

// TestMain takes out the library's pause after an error: it compares the bubble's time with the machine's and would sleep for years.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

// both are the CRDs of the current group; legacy is the older objective.
var (
	both   = []string{group + "/inferenceobjectives", group + "/inferencemodelrewrites"}
	legacy = legacyGroup + "/inferenceobjectives"
)

const (
	poolText   = `{"spec":{"selector":{"matchLabels":{"app":"sim"}},"targetPorts":[{"number":8001},{"number":8002}]}}`
	readyPod   = `{"metadata":{"labels":{"app":"sim"}},"status":{"podIP":"10.0.0.1","conditions":[{"type":"Ready","status":"True"}]}}`
	unreadyPod = `{"metadata":{"labels":{"app":"sim"}},"status":{"podIP":"10.0.0.1","conditions":[{"type":"Ready","status":"False"}]}}`
)

func objectiveText(priority string) string {
	return `{"spec":{` + priority + `"poolRef":{"group":"inference.networking.k8s.io","kind":"InferencePool","name":"sims"}}}`
}

// rig is one watcher on an API server, in virtual time.
type rig struct {
	t    *testing.T
	w    *Watcher
	mu   sync.Mutex
	seen []Snapshot
	stop func()
}

// newRig starts a watcher; it must be called in a bubble.
func newRig(t *testing.T, a http.Handler, change func(*Config)) *rig {
	r := &rig{t: t}
	cfg := Config{Namespace: "ns", PoolName: "sims", Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), OnChange: func(s Snapshot) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen = append(r.seen, s)
	}}
	if change != nil {
		change(&cfg)
	}
	if err := cfg.fill(); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.w, err = newWatcher(cfg, &rest.Config{Host: "http://api", Transport: serve(t, a)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	tasks.Go(func() {
		if err := r.w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	r.stop = func() { cancel(); tasks.Wait() }
	t.Cleanup(r.stop)
	return r
}

// last is the newest snapshot once everything has settled.
func (r *rig) last() Snapshot {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) == 0 {
		return Snapshot{}
	}
	return r.seen[len(r.seen)-1]
}

func (r *rig) count() int {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

func pass(d time.Duration) { clock.Sleep(context.Background(), d) }

func names(s Snapshot) string {
	var out []string
	for _, e := range s.Endpoints {
		out = append(out, e.Name)
	}
	return strings.Join(out, " ")
}

// TestSync: one endpoint for each ready pod of the pool and each of its active ports (spec §9, FC-SAT-17).
func TestSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(both...)
		a.put(poolPath, "sims", poolText)
		a.put(poolPath, "other", `{"spec":{"selector":{"matchLabels":{"app":"x"}},"targetPorts":[{"number":1}]}}`)
		a.put(podPath, "b", `{"metadata":{"labels":{"app":"sim","llm-d.ai/role":"prefill","gpu":"h100","gpu.memory":"80"}},"status":{"podIP":"fd00::2","conditions":[{"type":"Other","status":"True"},{"type":"Ready","status":"True"}]}}`)
		a.put(podPath, "a", `{"metadata":{"labels":{"app":"sim"},"annotations":{"llm-d.ai/active-ports":"8002, 9999"}},"status":{"podIP":"10.0.0.1","conditions":[{"type":"Ready","status":"True"}]}}`)
		a.put(podPath, "c", `{"metadata":{"labels":{"app":"sim"},"annotations":{"inference.networking.k8s.io/active-ports":"8001"}},"status":{"podIP":"10.0.0.3","conditions":[{"type":"Ready","status":"True"}]}}`)
		a.put(podPath, "none-active", `{"metadata":{"labels":{"app":"sim"},"annotations":{"llm-d.ai/active-ports":""}},"status":{"podIP":"10.0.0.9","conditions":[{"type":"Ready","status":"True"}]}}`)
		a.put(podPath, "not-ready", unreadyPod)
		a.put(podPath, "no-conditions", `{"metadata":{"labels":{"app":"sim"}},"status":{"podIP":"10.0.0.4"}}`)
		a.put(podPath, "no-address", `{"metadata":{"labels":{"app":"sim"}},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
		a.put(podPath, "terminating", `{"metadata":{"labels":{"app":"sim"},"deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"podIP":"10.0.0.5","conditions":[{"type":"Ready","status":"True"}]}}`)
		a.put(podPath, "foreign", `{"metadata":{"labels":{"app":"x"}},"status":{"podIP":"10.0.0.6","conditions":[{"type":"Ready","status":"True"}]}}`)
		a.put(objectivePath, "high", objectiveText(`"priority":100,`))
		a.put(objectivePath, "shed", objectiveText(`"priority":-10,`))
		a.put(objectivePath, "unset", objectiveText(""))
		r := newRig(t, a, nil)
		want := Snapshot{
			Endpoints: []picker.Endpoint{
				{Name: "a-rank-1", Address: "10.0.0.1:8002", Labels: "app=sim"},
				{Name: "b-rank-0", Address: "[fd00::2]:8001", Role: picker.RolePrefill, Labels: "app=sim,gpu=h100,gpu.memory=80,llm-d.ai/role=prefill"},
				{Name: "b-rank-1", Address: "[fd00::2]:8002", Role: picker.RolePrefill, Labels: "app=sim,gpu=h100,gpu.memory=80,llm-d.ai/role=prefill"},
				{Name: "c-rank-0", Address: "10.0.0.3:8001", Labels: "app=sim"},
			},
			Objectives: map[string]int{"high": 100, "shed": -10, "unset": 0},
			Synced:     true,
		}
		if got := r.last(); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v\nwant %+v", got, want)
		}
		if r.count() != 1 || !r.w.Synced() || !r.w.Leading() {
			t.Errorf("%d snapshots at start, synced %v, leading %v", r.count(), r.w.Synced(), r.w.Leading())
		}
		if s := r.w.Stats(); s != (Stats{}) {
			t.Errorf("%+v", s)
		}
		r.stop()
		checkAccess(t, a)
	})
}

// checkAccess compares what was asked of the server with what the watcher says it needs.
func checkAccess(t *testing.T, a *apiServer) {
	t.Helper()
	allowed := map[string]bool{}
	for _, x := range Accesses() {
		for _, v := range x.Verbs {
			allowed[v+" "+x.Group+"/"+x.Resource] = true
		}
	}
	for _, call := range slices.Sorted(maps.Keys(a.asked)) {
		if !allowed[call] {
			t.Errorf("%s is not among Accesses", call)
		}
	}
}

func TestReadinessAndPoolChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(both...)
		r := newRig(t, a, nil)
		if s := r.last(); s.Synced || r.w.Synced() || r.count() != 1 {
			t.Errorf("synced without a pool: %+v", s)
		}
		a.put(podPath, "a", readyPod)
		a.put(objectivePath, "high", objectiveText(`"priority":100,`))
		if s := r.last(); r.count() != 1 {
			t.Errorf("pods and objectives without a pool change nothing: %+v", s)
		}
		a.put(poolPath, "sims", poolText)
		if s := r.last(); names(s) != "a-rank-0 a-rank-1" || s.Objectives["high"] != 100 || !r.w.Synced() {
			t.Errorf("%+v", s)
		}
		for range 3 {
			a.put(podPath, "a", unreadyPod)
			if s := r.last(); len(s.Endpoints) != 0 || !s.Synced {
				t.Errorf("an unready pod stays: %+v", s)
			}
			a.put(podPath, "a", readyPod)
			if s := r.last(); len(s.Endpoints) != 2 {
				t.Errorf("a ready pod is missing: %+v", s)
			}
		}
		n := r.count()
		a.put(podPath, "a", strings.Replace(readyPod, `"status":{`, `"status":{"hostIP":"1.2.3.4",`, 1))
		if r.count() != n {
			t.Error("a change that matters to nobody was handed over")
		}
		a.put(poolPath, "sims", `{"spec":{"selector":{"matchLabels":{"app":"sim"}},"targetPorts":[{"number":9000}]}}`)
		if s := r.last(); len(s.Endpoints) != 1 || s.Endpoints[0].Address != "10.0.0.1:9000" {
			t.Errorf("new ports: %+v", s)
		}
		a.put(poolPath, "sims", `{"spec":{"selector":{"matchLabels":{"app":"other"}},"targetPorts":[{"number":9000}]}}`)
		if s := r.last(); len(s.Endpoints) != 0 {
			t.Errorf("new selector: %+v", s)
		}
		// Deleting the pool clears everything (spec §2.3).
		a.put(poolPath, "sims", poolText)
		a.remove(poolPath, "sims")
		if s := r.last(); s.Synced || len(s.Endpoints) != 0 || len(s.Objectives) != 0 || r.w.Synced() {
			t.Errorf("pool deleted: %+v", s)
		}
		a.put(poolPath, "sims", poolText)
		if s := r.last(); len(s.Endpoints) != 2 || s.Objectives["high"] != 100 || !r.w.Synced() {
			t.Errorf("pool back: %+v", s)
		}
		a.remove(podPath, "a")
		if s := r.last(); len(s.Endpoints) != 0 {
			t.Errorf("pod deleted: %+v", s)
		}
	})
}

// TestSlowReceiver: what changes during a hand-over is handed over once, and Synced waits for the first hand-over to end.
func TestSlowReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(both...)
		a.put(poolPath, "sims", poolText)
		gate := make(chan struct{})
		var seen []int
		r := newRig(t, a, func(c *Config) {
			c.OnChange = func(s Snapshot) {
				seen = append(seen, len(s.Endpoints))
				<-gate
			}
		})
		synctest.Wait()
		if r.w.Synced() {
			t.Error("synced before the receiver has taken the snapshot")
		}
		for i := range 50 {
			a.put(podPath, fmt.Sprintf("p%d", i), readyPod)
		}
		synctest.Wait()
		close(gate)
		synctest.Wait()
		if !slices.Equal(seen, []int{0, 100}) || !r.w.Synced() {
			t.Errorf("handed over %v, synced %v", seen, r.w.Synced())
		}
	})
}

// TestObjectiveGroups: the older group counts only where the newer has no CRD (spec §9, FC-CFG-18).
func TestObjectiveGroups(t *testing.T) {
	for _, r := range []struct {
		why  string
		crds []string
		want map[string]int
	}{
		{"both: the older one is ignored", append([]string{legacy}, both...), map[string]int{"new": 1}},
		{"only the newer", both, map[string]int{"new": 1}},
		{"only the older", []string{legacy}, map[string]int{"old": 2}},
		{"none", nil, map[string]int{}},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(r.crds...)
			a.put(poolPath, "sims", poolText)
			a.put(objectivePath, "new", objectiveText(`"priority":1,`))
			a.put(legacyPath, "old", objectiveText(`"priority":2,`))
			w := newRig(t, a, nil)
			if s := w.last(); !s.Synced || !maps.Equal(s.Objectives, r.want) {
				t.Errorf("%s: %+v", r.why, s)
			}
			if r.why != "only the older" {
				return
			}
			a.set(func() { a.crds[group+"/inferenceobjectives"] = true })
			pass(31 * time.Second)
			if s := w.last(); !maps.Equal(s.Objectives, map[string]int{"new": 1}) || !w.w.Synced() {
				t.Errorf("newer CRD installed: %+v", s)
			}
		})
	}
}

// TestPoolRef: FC-CLS-09, FC-CLS-10, FC-CLS-12, FC-PRI-08.
func TestPoolRef(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(both...)
		a.put(poolPath, "sims", poolText)
		a.put(objectivePath, "defaults", `{"spec":{"priority":1,"poolRef":{"name":"sims"}}}`)
		a.put(objectivePath, "wrong-name", `{"spec":{"priority":1,"poolRef":{"name":"other"}}}`)
		a.put(objectivePath, "wrong-group", `{"spec":{"priority":1,"poolRef":{"group":"inference.networking.x-k8s.io","name":"sims"}}}`)
		a.put(objectivePath, "wrong-kind", `{"spec":{"priority":1,"poolRef":{"kind":"Service","name":"sims"}}}`)
		a.put(objectivePath, "no-ref", `{"spec":{"priority":1}}`)
		a.put(strings.Replace(objectivePath, "/ns/", "/elsewhere/", 1), "elsewhere", objectiveText(`"priority":9,`))
		r := newRig(t, a, nil)
		if s := r.last(); !maps.Equal(s.Objectives, map[string]int{"defaults": 1}) {
			t.Errorf("%+v", s.Objectives)
		}
		a.put(objectivePath, "new", objectiveText(`"priority":55,`))
		if s := r.last(); s.Objectives["new"] != 55 {
			t.Errorf("a new objective is effective at once: %+v", s.Objectives)
		}
		a.put(objectivePath, "new", objectiveText(`"priority":null,`))
		if p, ok := r.last().Objectives["new"]; p != 0 || !ok {
			t.Error("an unset priority is 0")
		}
		a.put(objectivePath, "new", `{"spec":{"priority":55,"poolRef":{"name":"other"}}}`)
		if _, ok := r.last().Objectives["new"]; ok {
			t.Error("an objective that has moved to another pool still counts")
		}
		a.remove(objectivePath, "defaults")
		if s := r.last(); len(s.Objectives) != 0 {
			t.Errorf("deleted: %+v", s.Objectives)
		}
	})
}

// TestRewrites: exact beats generic, then the oldest object; weights as in spec §2.6.
func TestRewrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(both...)
		a.put(poolPath, "sims", poolText)
		put := func(name, created, poolName, rules string) {
			a.put(rewritePath, name, `{"metadata":{"creationTimestamp":"`+created+`"},"spec":{"poolRef":{"name":"`+poolName+`"},"rules":[`+rules+`]}}`)
		}
		match := func(m string) string { return `"matches":[{"model":{"type":"Exact","value":"` + m + `"}}],` }
		put("a-young", "2026-02-01T00:00:00Z", "sims", `{`+match("m")+`"targets":[{"modelRewrite":"young"}]},{"targets":[{"modelRewrite":"any-young"}]}`)
		put("z-old", "2026-01-01T00:00:00Z", "sims", `{"targets":[{"modelRewrite":"any-old"}]},{`+match("m")+`"targets":[{"modelRewrite":"old","weight":3},{"modelRewrite":"none"},{"modelRewrite":"canary","weight":1}]}`)
		put("foreign", "2025-01-01T00:00:00Z", "other", `{"targets":[{"modelRewrite":"foreign"}]}`)
		put("bad", "2025-01-01T00:00:00Z", "sims", `{"targets":[{"modelRewrite":"bad","weight":0}]}`)
		r := newRig(t, a, nil)
		s := r.last()
		var order []string
		for _, rule := range s.Rewrites {
			order = append(order, rule.Object+":"+rule.Model)
		}
		if got := strings.Join(order, " "); got != "z-old:m a-young:m z-old: a-young:" {
			t.Errorf("order %s", got)
		}
		rule, ok := s.Rewrite("m")
		if !ok || rule.Object != "z-old" {
			t.Errorf("m: %+v", rule)
		}
		for u, want := range map[float64]string{0: "old", 0.74: "old", 0.75: "canary", 0.999: "canary"} {
			if got := rule.Target(u); got != want {
				t.Errorf("target at %v: %s, want %s", u, got, want)
			}
		}
		if rule, _ := s.Rewrite("x"); rule.Target(0.5) != "any-old" {
			t.Errorf("x: %+v", rule)
		}
		uniform := Rewrite{Targets: []Target{{Model: "a"}, {Model: "b"}}}
		if uniform.Target(0.49) != "a" || uniform.Target(0.5) != "b" || (Rewrite{}).Target(0.5) != "" {
			t.Error("without weights all targets are equal")
		}
		if _, ok := (Snapshot{}).Rewrite("m"); ok {
			t.Error("a rule out of nothing")
		}
		if r.w.Stats().Malformed != 1 {
			t.Errorf("%+v", r.w.Stats())
		}
	})
}

// TestLostWatches: dropped watches, forgotten events (410) and a server that is away for a while; what was deleted meanwhile is gone.
func TestLostWatches(t *testing.T) {
	for _, streams := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(both...)
			a.noStreams = !streams
			a.put(poolPath, "sims", poolText)
			a.put(podPath, "a", readyPod)
			a.put(podPath, "b", strings.Replace(readyPod, "10.0.0.1", "10.0.0.2", 1))
			a.put(objectivePath, "high", objectiveText(`"priority":100,`))
			r := newRig(t, a, nil)
			pass(time.Minute)
			if s := r.last(); len(s.Endpoints) != 4 {
				t.Fatalf("streams %v: %+v", streams, s)
			}
			a.cut(false)
			a.put(podPath, "a", unreadyPod)
			pass(time.Minute)
			if s := r.last(); names(s) != "b-rank-0 b-rank-1" {
				t.Errorf("after a dropped watch: %s", names(s))
			}
			a.set(func() { a.down = true })
			a.cut(true)
			pass(5 * time.Minute)
			if s := r.last(); names(s) != "b-rank-0 b-rank-1" || s.Objectives["high"] != 100 || !r.w.Synced() {
				t.Errorf("a server that is away changes nothing: %+v", s)
			}
			if r.w.Stats().CallErrors == 0 {
				t.Error("no call error was counted")
			}
			a.remove(podPath, "b")
			a.remove(objectivePath, "high")
			a.put(podPath, "c", strings.Replace(readyPod, "10.0.0.1", "10.0.0.3", 1))
			a.set(func() { a.down, a.log, a.compacted = false, nil, a.rv })
			pass(2 * time.Minute)
			if s := r.last(); names(s) != "c-rank-0 c-rank-1" || len(s.Objectives) != 0 {
				t.Errorf("after 410: %s, %v", names(s), s.Objectives)
			}
			if (a.lists > 0) == streams {
				t.Errorf("streams %v, but %d plain lists", streams, a.lists)
			}
		})
	}
}

// TestServerComesLate: the picker starts before its API server does.
func TestServerComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(both...)
		a.down = true
		a.put(poolPath, "sims", poolText)
		a.put(podPath, "a", readyPod)
		r := newRig(t, a, nil)
		pass(time.Minute)
		if r.count() != 0 || r.w.Synced() {
			t.Errorf("%d snapshots out of nothing", r.count())
		}
		a.set(func() { a.down = false })
		pass(2 * time.Minute)
		if s := r.last(); len(s.Endpoints) != 2 || !r.w.Synced() {
			t.Errorf("%+v", s)
		}
	})
}

// TestRubbish: malformed objects are counted and treated as absent, and count again as soon as they are mended.
func TestRubbish(t *testing.T) {
	rows := []struct{ why, path, text string }{
		{"priority of the wrong type", objectivePath, `{"spec":{"priority":"high","poolRef":{"name":"sims"}}}`},
		{"fractional priority", objectivePath, `{"spec":{"priority":1.5,"poolRef":{"name":"sims"}}}`},
		{"priority beyond 32 bits", objectivePath, `{"spec":{"priority":3000000000,"poolRef":{"name":"sims"}}}`},
		{"reference of the wrong type", objectivePath, `{"spec":{"poolRef":"sims"}}`},
		{"spec of the wrong type", objectivePath, `{"spec":[]}`},
		{"name of the wrong type", objectivePath, `{"spec":{"poolRef":{"name":5}}}`},
		{"an address that is none", podPath, strings.Replace(readyPod, "10.0.0.1", "localhost", 1)},
		{"conditions of the wrong type", podPath, `{"metadata":{"labels":{"app":"sim"}},"status":{"podIP":"10.0.0.1","conditions":{"Ready":true}}}`},
		{"a condition of the wrong type", podPath, `{"metadata":{"labels":{"app":"sim"}},"status":{"podIP":"10.0.0.1","conditions":["Ready"]}}`},
		{"labels of the wrong type", podPath, `{"metadata":{"labels":["app"]},"status":{}}`},
		{"a label of the wrong type", podPath, `{"metadata":{"labels":{"app":1}},"status":{}}`},
		{"ports that are none", podPath, strings.Replace(readyPod, `"labels"`, `"annotations":{"llm-d.ai/active-ports":"http"},"labels"`, 1)},
		{"status of the wrong type", podPath, `{"status":"fine"}`},
		{"no targets", rewritePath, `{"spec":{"poolRef":{"name":"sims"},"rules":[{}]}}`},
		{"a match without a model", rewritePath, `{"spec":{"poolRef":{"name":"sims"},"rules":[{"matches":[{}],"targets":[{"modelRewrite":"x"}]}]}}`},
		{"a match of another type", rewritePath, `{"spec":{"poolRef":{"name":"sims"},"rules":[{"matches":[{"model":{"type":"Prefix","value":"x"}}],"targets":[{"modelRewrite":"x"}]}]}}`},
		{"rules of the wrong type", rewritePath, `{"spec":{"poolRef":{"name":"sims"},"rules":{}}}`},
		{"weight out of range", rewritePath, `{"spec":{"poolRef":{"name":"sims"},"rules":[{"targets":[{"modelRewrite":"x","weight":1000001}]}]}}`},
		{"no time", rewritePath, `{"metadata":{"creationTimestamp":"yesterday"},"spec":{"poolRef":{"name":"sims"}}}`},
	}
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(both...)
		a.put(poolPath, "sims", poolText)
		r := newRig(t, a, nil)
		want := r.last()
		for i, row := range rows {
			name := fmt.Sprintf("x%d", i)
			a.put(row.path, name, row.text)
			if s := r.last(); !reflect.DeepEqual(s, want) {
				t.Errorf("%s: %+v", row.why, s)
			}
			if got := r.w.Stats().Malformed; got != uint64(i+1) {
				t.Errorf("%s: %d malformed objects counted, want %d", row.why, got, i+1)
			}
		}
		a.put(objectivePath, "x0", objectiveText(`"priority":7,`))
		a.put(podPath, "x6", readyPod)
		if s := r.last(); s.Objectives["x0"] != 7 || len(s.Endpoints) != 2 {
			t.Errorf("mended: %+v", s)
		}
		for _, text := range []string{`{"spec":{}}`, `{"spec":{"selector":{"matchLabels":{"app":"sim"}}}}`, `{"spec":{"selector":{"matchLabels":{}},"targetPorts":[{"number":0}]}}`,
			`{"spec":{"selector":{"matchLabels":{}},"targetPorts":[{"number":1},{"number":1}]}}`, `{"spec":{"selector":"app=sim","targetPorts":[{"number":1}]}}`} {
			a.put(poolPath, "sims", text)
			if s := r.last(); s.Synced {
				t.Errorf("pool %s: %+v", text, s)
			}
		}
		a.put(poolPath, "sims", poolText)
		if s := r.last(); len(s.Endpoints) != 2 {
			t.Errorf("pool mended: %+v", s)
		}
	})
}

// TestOverSockets starts from a kubeconfig file, restarts the server and looks for goroutines left behind.
func TestOverSockets(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(), goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
	a := newAPI(both...)
	a.put(poolPath, "sims", poolText)
	a.put(podPath, "a", readyPod)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	start := func(ln net.Listener) func() {
		hs := &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}
		var tasks sync.WaitGroup
		tasks.Go(func() { _ = hs.Serve(ln) })
		return func() { hs.Close(); tasks.Wait() }
	}
	stop := start(ln)
	file := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: \"http://" + addr + "\"}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	snapshots := make(chan Snapshot, 100)
	w, err := New(Config{Kubeconfig: file, Namespace: "ns", PoolName: "sims", LeaderElection: true, Identity: "me",
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), OnChange: func(s Snapshot) { snapshots <- s }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	run, end := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		if err := w.Run(run); err != nil {
			t.Error(err)
		}
	})
	await := func(endpoints int) {
		t.Helper()
		for {
			select {
			case s := <-snapshots:
				if len(s.Endpoints) == endpoints {
					return
				}
			case <-ctx.Done():
				t.Fatalf("no snapshot with %d endpoints", endpoints)
			}
		}
	}
	await(2)
	stop()
	a.put(podPath, "b", strings.Replace(readyPod, "10.0.0.1", "10.0.0.2", 1))
	if ln, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	stop = start(ln)
	await(4)
	end()
	tasks.Wait()
	stop()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if err := w.Run(ctx); err == nil {
		t.Error("a second Run")
	}
	checkAccess(t, a)
}

func TestConfig(t *testing.T) {
	t.Setenv("NAMESPACE", "from-env")
	c := Config{PoolName: "p", OnChange: func(Snapshot) {}}
	if err := c.fill(); err != nil || c.Namespace != "from-env" || c.PoolGroup != defaultPoolGroup || c.LeaseName != "weir-picker-p" {
		t.Errorf("%+v %v", c, err)
	}
	c = Config{PoolGroup: "x", LeaderElection: true, LeaseDuration: time.Millisecond, RenewDeadline: time.Hour, RetryPeriod: 2 * time.Hour}
	err := c.fill()
	for _, want := range []string{"PoolName", "PoolGroup", "OnChange", "LeaseDuration", "RenewDeadline", "RetryPeriod"} {
		if err == nil || !strings.Contains(err.Error(), want+":") {
			t.Errorf("%s is not complained about in %v", want, err)
		}
	}
	if _, err := New(Config{Kubeconfig: filepath.Join(t.TempDir(), "missing"), PoolName: "p", OnChange: func(Snapshot) {}}); err == nil || !strings.Contains(err.Error(), "kubeconfig") {
		t.Errorf("a missing kubeconfig: %v", err)
	}
	if _, err := New(Config{}); err == nil {
		t.Error("an empty configuration")
	}
}
