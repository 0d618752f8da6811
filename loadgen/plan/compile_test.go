package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llm-weir/weir/loadgen/arrival"
	"github.com/llm-weir/weir/loadgen/workload"
)

func fixed(n int) workload.Lengths {
	return workload.Lengths{Distribution: workload.Fixed, Value: n}
}

func openTenant(name string, kind arrival.Kind, rate float64) workload.Tenant {
	return workload.Tenant{
		Name: name, FairnessID: name, Arrival: workload.Arrival{Process: kind, Rate: rate}, Prompt: fixed(10),
		Output: workload.Lengths{Distribution: workload.Uniform, Min: 1, Max: 100},
	}
}

func closedTenant(name string, workers int, think time.Duration) workload.Tenant {
	return workload.Tenant{
		Name: name, Arrival: workload.Arrival{Process: workload.Closed, Workers: workers, Think: think}, Prompt: fixed(10), Output: fixed(5),
	}
}

func mustCompile(t interface{ Fatal(...any) }, s workload.Spec, seed uint64) Plan {
	p, err := Compile(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// anySpec draws a valid workload.
func anySpec(t *rapid.T) workload.Spec {
	s := workload.Spec{Name: "any", Duration: time.Duration(rapid.IntRange(1, 2000).Draw(t, "durationMs")) * time.Millisecond}
	for i := range rapid.IntRange(1, 5).Draw(t, "tenants") {
		name := string(rune('a' + i))
		var tenant workload.Tenant
		switch rapid.IntRange(0, 3).Draw(t, "process") {
		case 0:
			tenant = closedTenant(name, rapid.IntRange(1, 3).Draw(t, "workers"), time.Duration(rapid.IntRange(0, 300).Draw(t, "think"))*time.Millisecond)
		case 1:
			tenant = openTenant(name, arrival.Gamma, rapid.Float64Range(0.1, 60).Draw(t, "rate"))
			tenant.Arrival.CV = rapid.Float64Range(0.1, 4).Draw(t, "cv")
		case 2:
			tenant = openTenant(name, arrival.Poisson, rapid.Float64Range(0.1, 60).Draw(t, "rate"))
		default:
			tenant = openTenant(name, arrival.Constant, rapid.Float64Range(0.1, 60).Draw(t, "rate"))
		}
		tenant.Start = time.Duration(rapid.Int64Range(0, int64(s.Duration)/2).Draw(t, "start"))
		if rapid.Bool().Draw(t, "stops") {
			tenant.Stop = time.Duration(rapid.Int64Range(int64(tenant.Start)+1, int64(s.Duration)).Draw(t, "stop"))
		}
		s.Tenants = append(s.Tenants, tenant)
	}
	return s
}

func TestOneSeedGivesTheSameBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, seed := anySpec(t), rapid.Uint64().Draw(t, "seed")
		a, b := mustCompile(t, s, seed), mustCompile(t, s, seed)
		ja, _ := json.Marshal(a)
		jb, _ := json.Marshal(b)
		if !bytes.Equal(ja, jb) || a.Hash() != b.Hash() {
			t.Fatal("two plans from one seed")
		}
		var back Plan
		if err := json.Unmarshal(ja, &back); err != nil || back.Hash() != a.Hash() {
			t.Fatalf("the plan changes on its way through JSON (%v)", err)
		}
		if err := a.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, r := range a.Requests {
			if r.At < 0 || r.At >= s.Duration || r.OutputTokens < 1 || r.OutputTokens > r.MaxTokens {
				t.Fatalf("bad request %+v", r)
			}
		}
	})
}

func TestAnotherSeedGivesAnotherPlan(t *testing.T) {
	s := workload.Spec{Name: "n", Duration: 10 * time.Second, Tenants: []workload.Tenant{openTenant("a", arrival.Poisson, 5)}}
	if mustCompile(t, s, 1).Hash() == mustCompile(t, s, 2).Hash() {
		t.Error("the seed has no effect")
	}
}

// TestThePlanOfAKnownSeedStays pins the bytes of a plan: published results name plans by hash.
func TestThePlanOfAKnownSeedStays(t *testing.T) {
	s := workload.Spec{Name: "n", Duration: time.Second, Tenants: []workload.Tenant{openTenant("a", arrival.Constant, 5), closedTenant("b", 2, time.Second)}}
	const want = "e5dccb390e5c82eb2281983943d927bcce1d19ce2b04e52c31a1d04979d965dd"
	if got := mustCompile(t, s, 1).Hash(); got != want {
		t.Errorf("hash %s, want %s", got, want)
	}
}

func TestTenantsAreIndependent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, seed := anySpec(t), rapid.Uint64().Draw(t, "seed")
		gone := rapid.IntRange(0, len(s.Tenants)-1).Draw(t, "gone")
		all := mustCompile(t, s, seed)
		fewer := s
		fewer.Tenants = slices.Delete(slices.Clone(s.Tenants), gone, gone+1)
		if len(fewer.Tenants) == 0 {
			return
		}
		rest := mustCompile(t, fewer, seed)
		var want []Request
		for _, r := range all.Requests {
			if r.Tenant != s.Tenants[gone].Name {
				r.Loop = 0 // an index, it may shift
				want = append(want, r)
			}
		}
		got := slices.Clone(rest.Requests)
		for i := range got {
			got[i].Loop = 0
		}
		if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("without tenant %q the others send other requests", s.Tenants[gone].Name)
		}
	})
}

func TestDistributionsHaveTheirMoments(t *testing.T) {
	for _, row := range []struct {
		why      string
		l        workload.Lengths
		mean, cv float64
		tol      float64
	}{
		{"fixed", fixed(7), 7, 0, 1e-9},
		{"uniform on 1..99", workload.Lengths{Distribution: workload.Uniform, Min: 1, Max: 99}, 50, math.Sqrt((99*99-1)/12.0) / 50, 0.01},
		{"lognormal far from its bounds", workload.Lengths{Distribution: workload.Lognormal, Mean: 1000, CV: 0.8, Min: 1, Max: 1 << 20}, 1000, 0.8, 0.02},
	} {
		t.Run(row.why, func(t *testing.T) {
			r := arrival.Stream(3, row.why)
			const n = 100_000
			sum, sq := 0.0, 0.0
			for range n {
				v := float64(draw(r, row.l))
				sum += v
				sq += v * v
			}
			mean := sum / n
			cv := math.Sqrt(max(0, sq/n-mean*mean)) / mean
			if math.Abs(mean/row.mean-1) > row.tol || math.Abs(cv-row.cv) > row.tol+1e-6 {
				t.Errorf("mean %v cv %v, want %v and %v", mean, cv, row.mean, row.cv)
			}
		})
	}
	l := workload.Lengths{Distribution: workload.Lognormal, Mean: 50, CV: 3, Min: 40, Max: 60}
	r := arrival.Stream(3, "bounds")
	for range 10_000 {
		if v := draw(r, l); v < 40 || v > 60 {
			t.Fatalf("%d is outside the bounds", v)
		}
	}
}

func TestCancelFractionMarksThatShare(t *testing.T) {
	tenant := openTenant("a", arrival.Constant, 1000)
	tenant.CancelAfter, tenant.CancelFraction = time.Second, 0.25
	p := mustCompile(t, workload.Spec{Name: "n", Duration: 10 * time.Second, Tenants: []workload.Tenant{tenant}}, 5)
	n := 0
	for _, r := range p.Requests {
		if r.CancelAfter == time.Second {
			n++
		}
	}
	if share := float64(n) / float64(len(p.Requests)); math.Abs(share-0.25) > 0.02 {
		t.Errorf("%.3f of the requests cancel, want 0.25", share)
	}
}

func TestClosedLoopsHaveEnoughRequests(t *testing.T) {
	p := mustCompile(t, workload.Spec{Name: "n", Duration: 10 * time.Second, Tenants: []workload.Tenant{closedTenant("a", 2, time.Second)}}, 1)
	if len(p.Loops) != 2 || len(p.Requests) != 24 {
		t.Errorf("%d loops, %d requests; want 2 and 24", len(p.Loops), len(p.Requests))
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, row := range []struct {
		why   string
		spec  workload.Spec
		limit bool
		want  string
	}{
		{"an invalid spec", workload.Spec{Name: "n"}, false, "duration"},
		{"too high a rate", workload.Spec{Name: "n", Duration: time.Hour, Tenants: []workload.Tenant{openTenant("a", arrival.Poisson, 1e5)}}, true, "lower the rate"},
		{"too many workers", workload.Spec{Name: "n", Duration: time.Hour, Tenants: []workload.Tenant{closedTenant("a", 1000, 0)}}, true, "lower workers"},
	} {
		_, err := Compile(row.spec, 1)
		if err == nil || !strings.Contains(err.Error(), row.want) || errors.Is(err, arrival.ErrLimit) != row.limit {
			t.Errorf("%s: %v", row.why, err)
		}
	}
}
