package plan_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llm-weir/weir/loadgen/plan"
)

// TestShards: together they are the plan, each request is in one of them, and no loop is divided.
func TestShards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loops := rapid.IntRange(0, 5).Draw(t, "loops")
		p := plan.Plan{Name: "p", Seed: 1, Duration: time.Second, Loops: make([]plan.Loop, loops)}
		for i := range rapid.IntRange(0, 60).Draw(t, "requests") {
			p.Requests = append(p.Requests, plan.Request{ID: fmt.Sprint("r", i), At: time.Duration(i), Loop: rapid.IntRange(0, loops).Draw(t, "loop")})
		}
		n := rapid.IntRange(1, 7).Draw(t, "workers")
		seen, worker := map[string]int{}, map[int]int{}
		for i := range n {
			s := p.Shard(i, n)
			if err := s.Validate(); err != nil {
				t.Fatal(err)
			}
			if s.Duration != p.Duration || s.Seed != p.Seed || len(s.Loops) != loops {
				t.Fatalf("worker %d plays another plan: %+v", i, s)
			}
			for _, r := range s.Requests {
				seen[r.ID]++
				if w, ok := worker[r.Loop]; ok && r.Loop > 0 && w != i {
					t.Fatalf("loop %d is divided between workers %d and %d", r.Loop, w, i)
				}
				worker[r.Loop] = i
			}
		}
		for _, r := range p.Requests {
			if seen[r.ID] != 1 {
				t.Fatalf("%s is in %d shards", r.ID, seen[r.ID])
			}
		}
		if len(seen) != len(p.Requests) {
			t.Fatalf("%d requests became %d", len(p.Requests), len(seen))
		}
	})
}
