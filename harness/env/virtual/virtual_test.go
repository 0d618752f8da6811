package virtual_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/env/virtual"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/verdict"
	"github.com/llm-weir/weir/harness/wire"
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

// Router and processor draw and sort on one agenda: nothing of the machine on which they are played may get into the evidence.
func TestAnEvictionOfBatchWorkIsTheSameTwice(t *testing.T) {
	p, err := profile.Named(profile.Default)
	if err != nil {
		t.Fatal(err)
	}
	c, err := epconfig.ContractNamed(profile.Default)
	if err != nil {
		t.Fatal(err)
	}
	play := func() (evidence.Run, []byte) {
		compiled := catalog.Compile(p, 7)
		i := slices.IndexFunc(compiled, func(c scenario.Compiled) bool { return c.Name == "e2e-eviction" })
		if i < 0 || len(compiled[i].Checks) == 0 {
			t.Fatal("the scenario is not in the catalogue, or nothing of it is judged")
		}
		sys, rec := virtual.New(virtual.Options{Dialect: p.Config, Names: p.Headers, Contract: c}), evidence.NewRecorder("e2e-eviction")
		if err := sys.Configure(context.Background(), compiled[i].Config); err != nil {
			t.Fatal(err)
		}
		if err := sys.Play(context.Background(), compiled[i].Script, rec); err != nil {
			t.Fatal(err)
		}
		r := rec.Run()
		for _, s := range compiled[i].Checks {
			if v := checks.Judge(s, r); v.Kind != verdict.Pass {
				t.Errorf("%s of %s: %v %s", s.Check, s.Requirement, v.Kind, v.Why)
			}
		}
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return r, raw
	}
	r, first := play()
	if !slices.ContainsFunc(r.Observations, func(o evidence.Observation) bool { return o.Attempt != nil && o.Attempt.Reason == wire.ReasonEvicted }) {
		t.Error("no attempt was evicted, so that there was little to differ in")
	}
	if _, second := play(); !bytes.Equal(first, second) {
		t.Errorf("played twice, it left\n%s\nand\n%s", first, second)
	}
}
