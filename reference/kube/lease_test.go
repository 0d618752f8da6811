package kube

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// replicas starts watchers that compete for one Lease and fails the test if two lead at a time.
func replicas(t *testing.T, apis ...http.Handler) []*rig {
	var leaders atomic.Int32
	var out []*rig
	for i, a := range apis {
		out = append(out, newRig(t, a, func(c *Config) {
			c.LeaderElection, c.Identity = true, string(rune('a'+i))
			c.OnLeading = func(v bool) {
				d := int32(-1)
				if v {
					d = 1
				}
				if n := leaders.Add(d); n < 0 || n > 1 {
					t.Errorf("%d leaders", n)
				}
			}
		}))
		synctest.Wait()
	}
	return out
}

func leading(rs []*rig) string {
	synctest.Wait()
	out := ""
	for _, r := range rs {
		if r.w.Leading() {
			out += r.w.cfg.Identity
		}
	}
	return out
}

func (a *apiServer) lease(t *testing.T) map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	spec, ok := a.objects[leasePath+"/weir-picker-sims"]["spec"].(map[string]any)
	if !ok {
		t.Fatal("no lease")
	}
	return spec
}

func TestLeaseIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(both...)
		rs := replicas(t, a, a, a)
		if got := leading(rs); got != "a" {
			t.Fatalf("leading: %q", got)
		}
		pass(10 * time.Minute)
		if got := leading(rs); got != "a" {
			t.Errorf("ten minutes later: %q", got)
		}
		if spec := a.lease(t); spec["holderIdentity"] != "a" || spec["leaseTransitions"] != 0.0 || spec["leaseDurationSeconds"] != 15.0 {
			t.Errorf("%v", spec)
		}
		rs[0].stop()
		pass(3 * time.Second)
		if got := leading(rs); got != "b" && got != "c" {
			t.Errorf("after a has given the lease back: %q", got)
		}
		if spec := a.lease(t); spec["leaseTransitions"] != 1.0 {
			t.Errorf("%v", spec)
		}
		for _, r := range rs {
			if s := r.w.Stats(); s.Malformed != 0 {
				t.Errorf("%+v", s)
			}
			r.stop()
		}
		checkAccess(t, a)
	})
}

// TestLeaseTakeover: a leader that cannot reach the server stops leading before another may start.
func TestLeaseTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(both...)
		var closed atomic.Bool // between the server and the first replica
		rs := replicas(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if closed.Load() {
				status(w, http.StatusServiceUnavailable, "ServiceUnavailable")
				return
			}
			a.ServeHTTP(w, r)
		}), a)
		if got := leading(rs); got != "a" {
			t.Fatalf("leading: %q", got)
		}
		pass(time.Minute)
		closed.Store(true)
		pass(7 * time.Second)
		if got := leading(rs); got != "a" {
			t.Errorf("a leader keeps leading until its deadline: %q", got)
		}
		pass(4 * time.Second)
		if got := leading(rs); got != "" {
			t.Errorf("past the deadline: %q", got)
		}
		pass(9 * time.Second)
		if got := leading(rs); got != "b" {
			t.Errorf("past the lease: %q", got)
		}
		closed.Store(false)
		pass(time.Minute)
		if got := leading(rs); got != "b" {
			t.Errorf("a comes back as a standby: %q", got)
		}
	})
}

// TestLeaseRubbish: a Lease that cannot be read belongs to nobody here.
func TestLeaseRubbish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(both...)
		a.put(leasePath, "weir-picker-sims", `{"spec":{"holderIdentity":5}}`)
		rs := replicas(t, a)
		pass(time.Minute)
		if got := leading(rs); got != "" || rs[0].w.Stats().CallErrors == 0 {
			t.Errorf("%q, %+v", got, rs[0].w.Stats())
		}
		a.put(leasePath, "weir-picker-sims", `{"spec":null}`)
		pass(3 * time.Second)
		if got := leading(rs); got != "a" {
			t.Errorf("an empty lease is free: %q", got)
		}
	})
}

// FuzzObjects: no object makes the readers panic, and what they accept keeps the snapshot's rules.
func FuzzObjects(f *testing.F) {
	for _, s := range []string{poolText, readyPod, objectiveText(`"priority":1,`), `{"spec":{"poolRef":{"name":"sims"},"rules":[{"matches":[{"model":{"value":"m"}}],"targets":[{"modelRewrite":"x","weight":1}]}]}}`,
		`{"metadata":null,"spec":{"poolRef":{"name":null}},"status":{"conditions":[null]}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		obj := map[string]any{}
		u := &unstructured.Unstructured{}
		if json.Unmarshal([]byte(text), &obj) != nil || obj == nil {
			return
		}
		obj["kind"], obj["apiVersion"] = "X", "v1"
		full, err := json.Marshal(obj)
		if err != nil || u.UnmarshalJSON(full) != nil {
			return
		}
		po, perr := parsePool(u)
		pd, derr := parsePod(u)
		ob, oerr := parseObjective(u)
		rw, rerr := parseRewrite(u)
		var pools []named[pool]
		var pods []named[pod]
		var objectives []named[objective]
		var rewrites []named[rewrite]
		if perr == nil {
			pools = []named[pool]{{"sims", po}}
		}
		if derr == nil {
			pods = []named[pod]{{"p", pd}}
		}
		if oerr == nil {
			objectives = []named[objective]{{"o", ob}}
		}
		if rerr == nil {
			rewrites = []named[rewrite]{{"r", rw}}
		}
		s := build(Config{PoolName: "sims", PoolGroup: defaultPoolGroup}, pools, pods, objectives, rewrites)
		if !s.Synced && len(s.Endpoints)+len(s.Objectives)+len(s.Rewrites) > 0 || len(s.Endpoints) > maxPorts {
			t.Errorf("%+v", s)
		}
		if r, ok := s.Rewrite("m"); ok && r.Target(0.5) == "" {
			t.Errorf("no target: %+v", r)
		}
	})
}
