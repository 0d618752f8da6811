package local_test

import (
	"context"
	"testing"

	"github.com/llm-weir/weir/harness/env/local"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/verdict"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/suites/catalog"
)

// The whole catalogue over real sockets: the reference passes what its profile judges.
func TestReferencePassesOverSockets(t *testing.T) {
	p, err := profile.Named(profile.Default)
	if err != nil {
		t.Fatal(err)
	}
	c, err := epconfig.ContractNamed(p.Name)
	if err != nil {
		t.Fatal(err)
	}
	var rows []verdict.Requirement
	for _, r := range catalog.Requirements() {
		rows = append(rows, verdict.Requirement{ID: r.ID, Level: r.Level, Title: r.Text})
	}
	s, err := run.New(run.Options{Profile: p, Scenarios: catalog.Compile(p, 7), RunChecks: catalog.RunChecks(p), Rows: rows, Parallel: 8,
		New: func() sut.System {
			return local.New(local.Options{Dialect: p.Config, Names: p.Headers, Contract: c})
		}})
	if err != nil {
		t.Fatal(err)
	}
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
	t.Logf("%v", verdict.Counts(results))
}
