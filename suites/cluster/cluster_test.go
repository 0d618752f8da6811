package cluster_test

import (
	"slices"
	"testing"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/suites/cluster"
)

// TestRowsAreJudged: each row has a check that exists, under every contract of routers, and no check belongs to another row.
func TestRowsAreJudged(t *testing.T) {
	for _, name := range []string{"llm-d-router-2026-09", "llm-d-router-0.9", "rhoai-3.4"} {
		p, err := profile.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		judged, names := map[string]bool{}, map[string]bool{}
		for _, s := range cluster.Compile(p, 1) {
			if names[s.Name] {
				t.Errorf("%s: scenario %s is there twice", name, s.Name)
			}
			names[s.Name] = true
			for _, ch := range s.Checks {
				judged[ch.Requirement] = true
				if !slices.Contains(checks.Names(), ch.Check) {
					t.Errorf("%s: %s: there is no check %q", name, s.Name, ch.Check)
				}
				if _, err := checks.FromEntry(ch.Entry()); err != nil {
					t.Errorf("%s: %s: %v", name, s.Name, err)
				}
			}
		}
		for _, r := range cluster.Rows() {
			if !judged[r.ID] {
				t.Errorf("%s: nothing judges %s", name, r.ID)
			}
			delete(judged, r.ID)
		}
		for id := range judged {
			t.Errorf("%s: %s is no row", name, id)
		}
	}
}
