package virtual_test

import (
	"context"
	"testing"

	"github.com/llm-weir/weir/harness/env/virtual"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/verdict"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/suites/catalog"
)

func session(t testing.TB, profileName, contract string, seed uint64, dir string) *run.Session {
	t.Helper()
	p, err := profile.Named(profileName)
	if err != nil {
		t.Fatal(err)
	}
	c, err := epconfig.ContractNamed(contract)
	if err != nil {
		t.Fatal(err)
	}
	var rows []verdict.Requirement
	for _, r := range catalog.Requirements() {
		rows = append(rows, verdict.Requirement{ID: r.ID, Level: r.Level, Title: r.Text})
	}
	s, err := run.New(run.Options{Profile: p, Scenarios: catalog.Compile(p, seed), RunChecks: catalog.RunChecks(p), Rows: rows, Parallel: 2, Dir: dir,
		New: func() sut.System {
			return virtual.New(virtual.Options{Dialect: p.Config, Names: p.Headers, Contract: c})
		}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The reference, set to a contract, passes everything that the profile of that contract judges.
func TestReferencePassesItsOwnProfile(t *testing.T) {
	for _, name := range profile.All() {
		t.Run(name, func(t *testing.T) {
			s := session(t, name, name, 7, "")
			s.Start(context.Background())
			_, results, err := s.Seal()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				if r.Kind != verdict.Pass && r.Kind != verdict.NotApplicable {
					t.Errorf("%s: %v (%s) %s", r.ID, r.Kind, r.Figure, r.Why)
				}
			}
			t.Logf("%d results, %v", len(results), verdict.Counts(results))
		})
	}
}
