package submit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/verdict"
)

const (
	dirty   = "+changes" // marks the commit of a program that was built from changed files
	unknown = "unknown"  // the commit, where the build does not say
)

// examine opens the bundle in dir, checks its seal, judges it, and adds to f whatever stands against claiming something from it. No
// bundle comes back where the evidence is not what was sealed.
func (s Suite) examine(dir string, f *Finding) (*evidence.Bundle, []verdict.Result) {
	b, err := evidence.Open(dir, false)
	var seal *evidence.SealError
	switch {
	case errors.As(err, &seal):
		f.Problems = append(f.Problems, seal.Problems...)
		return nil, nil
	case err != nil:
		f.Problems = append(f.Problems, err.Error())
		return nil, nil
	}
	extra, err := unsealed(dir, b.Manifest, f.archive)
	if err != nil {
		extra = append(extra, err.Error())
	}
	f.Problems = append(f.Problems, extra...)
	results := s.judge(b)
	f.Says = figures(s.input(b, results)).String()
	f.Problems = append(f.Problems, refusals(b.Manifest, results)...)
	f.differs(s.planned(b), s.same(b.Manifest), s.origin(b.Manifest))
	return b, results
}

// refusals lists why nothing may be claimed from a run, whatever its verdicts: what was left out, broke or stayed undecided.
func refusals(m evidence.Manifest, results []verdict.Result) []string {
	var bad []string
	if !m.Complete {
		bad = append(bad, "the run was interrupted: certify again, and let it end")
	}
	if m.Mutant != "" {
		bad = append(bad, fmt.Sprintf("the run was of the mutant %q, a fault on purpose: certify the implementation itself", m.Mutant))
	}
	if strings.HasSuffix(m.Commit, dirty) {
		bad = append(bad, fmt.Sprintf("weir was built from changed files (commit %s), which nobody else has: build it from a commit and certify again", m.Commit))
	}
	for _, flag := range []string{"--focus", "--skip"} {
		if slices.ContainsFunc(m.Argv, func(a string) bool { return a == flag || strings.HasPrefix(a, flag+"=") }) {
			bad = append(bad, fmt.Sprintf("the run was made with %s: a claim needs every requirement of its level, certify again without it", flag))
		}
	}
	for _, a := range slices.Concat(m.Argv, []string{m.Command}) {
		if home.MatchString(a) {
			bad = append(bad, fmt.Sprintf("the command names a path of one machine (%q): nobody else can repeat it, certify with a relative path or a program of the PATH", a))
		}
	}
	applicable := 0
	for _, r := range results {
		if !slices.Contains(counted, r.Level) {
			continue
		}
		switch r.Kind {
		case verdict.Error:
			bad = append(bad, fmt.Sprintf("%s is an error (%s): the claim needs a verdict, see the report and certify again", r.ID, r.Figure))
		case verdict.Inconclusive:
			bad = append(bad, fmt.Sprintf("%s is inconclusive (%s): the claim needs a verdict, see the report and certify again", r.ID, r.Figure))
		case verdict.Pass, verdict.Fail:
			applicable++
		}
	}
	if applicable == 0 {
		bad = append(bad, "no requirement was seen to hold or to fail: there is nothing to claim")
	}
	return bad
}

// differencesShown bounds a list of differences.
const differencesShown = 6

// planned lists where a run differs from the unabridged one of its contract, level and seed. Checks have their parameters from there:
// a bundle that was sealed with looser ones would judge itself.
func (s Suite) planned(b *evidence.Bundle) []string {
	m := b.Manifest
	want, file, err := s.Plan(m)
	if err != nil {
		return []string{"the plan cannot be made again: " + err.Error()}
	}
	var bad []string
	played := map[string]evidence.ScenarioEntry{}
	for _, e := range m.Scenarios {
		played[e.Name] = e
	}
	for _, e := range want.Scenarios {
		got, ok := played[e.Name]
		delete(played, e.Name)
		switch {
		case !ok:
			bad = append(bad, "scenario "+e.Name+" was left out")
		case !alike(fixed(e), fixed(got)):
			bad = append(bad, "scenario "+e.Name+" was played or judged with other parameters")
		}
	}
	for _, e := range m.Scenarios {
		if _, ok := played[e.Name]; ok {
			bad = append(bad, "scenario "+e.Name+" is not in the catalogue")
		}
	}
	for _, l := range []struct {
		what      string
		want, got any
	}{
		{"checks over the whole run", list0(want.RunChecks), list0(m.RunChecks)}, {"requirements that the contract does not judge", list0(want.Excluded), list0(m.Excluded)},
		{"known faults of the contract", list0(want.ExpectedFail), list0(m.ExpectedFail)}, {"rows that nothing looks at", list0(want.Unjudged), list0(m.Unjudged)},
		{"what depends on what", list0(want.ShownBy), list0(m.ShownBy)},
	} {
		if !alike(l.want, l.got) {
			bad = append(bad, l.what+": the list is another")
		}
	}
	if len(bad) == 0 && !alike(want, stripped(m, want)) {
		bad = append(bad, evidence.ManifestFile+" says something else about what was to be played or judged")
	}
	if len(bad) == 0 {
		if got, err := os.ReadFile(filepath.Join(b.Dir, evidence.PlanFile)); err != nil || !bytes.Equal(got, file) {
			bad = append(bad, evidence.PlanFile+" is not the plan of these scenarios")
		}
	}
	if n := len(bad); n > differencesShown {
		bad = append(bad[:differencesShown], fmt.Sprintf("and %d more differences", n-differencesShown))
	}
	for i := range bad {
		bad[i] = fmt.Sprintf("the run is not the whole of contract %s, level %s, seed %d: %s", m.Profile, m.Level, m.Seed, bad[i])
	}
	return bad
}

// fixed is what stood fast of a scenario before it was played.
func fixed(e evidence.ScenarioEntry) evidence.ScenarioEntry {
	e.NotApplicable, e.Error, e.DurationNs = "", "", 0
	return e
}

// stripped is m without what is not known before a run: whatever else a manifest has, now or later, must be as planned.
func stripped(m, want evidence.Manifest) evidence.Manifest {
	m.Schema, m.RunID, m.Created, m.Tool, m.Commit, m.Argv, m.Seed = want.Schema, want.RunID, want.Created, want.Tool, want.Commit, want.Argv, want.Seed
	m.ReferenceProfile, m.Mutant, m.Level, m.Implementation, m.Command = want.ReferenceProfile, want.Mutant, want.Level, want.Implementation, want.Command
	m.Tolerances, m.Environment, m.Clock, m.SkewBoundNs, m.Host = want.Tolerances, want.Environment, want.Clock, want.SkewBoundNs, want.Host
	m.Scenarios, m.Complete, m.Files = want.Scenarios, want.Complete, want.Files
	return m
}

// list0 makes no difference between an empty list and none.
func list0[T any](l []T) []T { return append([]T{}, l...) }

// alike compares two values as JSON, in which parameters may stand with other spaces.
func alike(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// same tells whether the running program is the one that made a bundle, as far as both say.
func (s Suite) same(m evidence.Manifest) bool {
	return m.Tool == s.Tool() && (m.Commit == s.Commit || m.Commit == unknown || s.Commit == unknown)
}

// origin says who made a bundle where that is not the running program.
func (s Suite) origin(m evidence.Manifest) string {
	return fmt.Sprintf("made by %s (%s), this is %s (%s): verify it with that one", m.Tool, m.Commit, s.Tool(), s.Commit)
}
