package submit_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/report"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/submit"
	"github.com/llm-weir/weir/harness/sut"
)

func TestSubmissionAndItsVerification(t *testing.T) {
	root, dir := submitted(t, scenes)
	if want := filepath.Join(root, "9.1.0", "example-router-v1.2.3-contract-1"); dir != want {
		t.Errorf("it lies in %s, want %s", dir, want)
	}
	want := []string{submit.ReadmeFile, submit.BadgeFile, submit.ArchiveFile, report.JUnitFile, report.HTMLFile, report.MarkdownFile, report.YAMLFile, submit.SubmissionFile, report.VerdictsFile}
	slices.Sort(want)
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("it has %v, want %v", got, want)
	}
	if got := names(t, filepath.Dir(dir)); len(got) != 1 {
		t.Errorf("something was left beside it: %v", got)
	}
	readme := read(t, dir, submit.ReadmeFile)
	for _, says := range []string{"# example router v1.2.3", "2 of 2 pass, 1 not applicable", "## Reproduce", "weir certify --seed 7", "0123abc", "contract-1", "FC-HELD-01", "flow@example.org",
		sha(read(t, dir, submit.ArchiveFile)), "weir verify ."} {
		if !strings.Contains(readme, says) {
			t.Errorf("README.md does not say %q", says)
		}
	}
	for _, name := range []string{report.YAMLFile, report.MarkdownFile, report.HTMLFile} {
		if text := read(t, dir, name); !strings.Contains(text, "v1.2.3") || strings.Contains(text, "unknown") {
			t.Errorf("%s does not name whom the claim names", name)
		}
	}
	if err := submit.WriteTable(root); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{root, filepath.Dir(dir), dir, filepath.Join(dir, submit.ArchiveFile)} {
		if problems, undecided := findings(t, suite(scenes), path, ""); problems+undecided != "" {
			t.Errorf("%s: %s %s", path, problems, undecided)
		}
	}
	if _, err := suite(scenes).Verify(t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "neither a bundle") {
		t.Errorf("an empty folder was verified: %v", err)
	}
}

func TestTheSameEvidenceGivesTheSameBytes(t *testing.T) {
	b := bundle(t, scenes, nil)
	var all []string
	for range 2 {
		w, err := suite(scenes).Submit(submit.Options{Bundle: b, Results: t.TempDir(), Claim: claim()})
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, n := range names(t, w.Dir) {
			text += n + sha(read(t, w.Dir, n))
		}
		all = append(all, text)
	}
	if all[0] != all[1] {
		t.Errorf("two submissions of one bundle differ:\n%s\n%s", all[0], all[1])
	}
}

func TestFailuresMayBePublished(t *testing.T) {
	cs := append(slices.Clone(scenes), scene("bad"))
	_, dir := submitted(t, cs)
	if text := read(t, dir, submit.ReadmeFile); !strings.Contains(text, "**FAIL**") || !strings.Contains(text, "## What failed") || !strings.Contains(text, "FC-BAD-01") {
		t.Error("README.md does not say what failed")
	}
	if text := read(t, dir, submit.BadgeFile); !strings.Contains(text, "fail · contract-1 core: 2 of 3 pass") || strings.Contains(text, "#1a7f37") {
		t.Errorf("the badge reads as a pass: %s", text)
	}
	if problems, undecided := findings(t, suite(cs), dir, ""); problems+undecided != "" {
		t.Errorf("%s %s", problems, undecided)
	}
}

func TestWhatMayNotBeClaimed(t *testing.T) {
	fine := func() submit.Options { return submit.Options{Claim: claim()} }
	for _, c := range []struct {
		says   string
		scenes []scenario.Compiled
		run    func(*evidence.Manifest)
		edit   func(dir string)
		o      func(*submit.Options)
		want   []string
	}{
		{says: "everything about the claimant at once", o: func(o *submit.Options) { o.Claim = submit.Claim{Version: "latest"} },
			want: []string{"--organization: missing", "--project: missing", "--version: \"latest\"", "--url: missing", "--contact: missing"}},
		{says: "another organization than the one that was judged", run: func(m *evidence.Manifest) { m.Implementation.Organization, m.Implementation.Project = "other", "thing" },
			want: []string{`--organization: "example", but the run was of "other"`, `--project: "router", but the run was of "thing"`}},
		{says: "another version", run: func(m *evidence.Manifest) { m.Implementation.Version = "v9" }, want: []string{`--version: "v1.2.3", but the run was of "v9"`}},
		{says: "a mutant", run: func(m *evidence.Manifest) { m.Mutant = "lifo" }, want: []string{`mutant "lifo"`}},
		{says: "a build from changed files", run: func(m *evidence.Manifest) { m.Commit = "0123abc+changes" }, want: []string{"built from changed files"}},
		{says: "a run with --focus and --skip", run: func(m *evidence.Manifest) { m.Argv = append(m.Argv, "--focus", "X", "--skip=Y") }, want: []string{"made with --focus", "made with --skip"}},
		{says: "a path of one machine", run: func(m *evidence.Manifest) { m.Argv = append(m.Argv, "--epp", "/"+"home/me/epp --x") }, want: []string{"path of one machine"}},
		{says: "a path of one machine in the descriptor", run: func(m *evidence.Manifest) { m.Command = "/" + "Users/me/epp" }, want: []string{"path of one machine"}},
		{says: "another version of the suite", run: func(m *evidence.Manifest) { m.Tool = "weir 9.0.0" }, want: []string{`made by "weir 9.0.0"`}},
		{says: "an interrupted run", edit: func(dir string) { reseal(t, dir, func(m *evidence.Manifest) { m.Complete = false }) }, want: []string{"interrupted"}},
		{says: "a requirement of which nothing was seen", scenes: append(slices.Clone(scenes), scene("absent")), want: []string{"FC-ABSENT-01 is inconclusive"}},
		{says: "a scenario that broke", edit: func(dir string) { reseal(t, dir, func(m *evidence.Manifest) { m.Scenarios[0].Error = "port taken" }) }, want: []string{"FC-ONE-01 is an error"}},
		{says: "nothing that applies", scenes: scenes[2:], want: []string{"nothing to claim"}},
		{says: "one byte of evidence", edit: func(dir string) { change(t, dir, evidence.ClientFile, "200", "201") }, want: []string{"client.ndjson was changed"}},
		{says: "an edited report", edit: func(dir string) { change(t, dir, report.YAMLFile, "verdict: not-applicable", "verdict: pass") }, want: []string{"FC-HELD-01"}},
		{says: "evidence above the limit without an address", o: func(o *submit.Options) { o.ArchiveLimit = 100 }, want: []string{"--bundle-url"}},
		{says: "an address that nobody reaches", o: func(o *submit.Options) { o.ArchiveLimit, o.BundleURL = 100, "file:///x" }, want: []string{"--bundle-url"}},
		{says: "a replacement of nothing", o: func(o *submit.Options) { o.Replace = "better" }, want: []string{"nothing to replace"}},
		{says: "a link among the evidence", edit: func(dir string) {
			at := filepath.Join(dir, evidence.ClientFile)
			if err := errors.Join(os.Rename(at, filepath.Join(dir, "c")), os.Symlink("c", at)); err != nil {
				t.Fatal(err)
			}
		}, want: []string{"client.ndjson is a link"}},
		{says: "a file among the evidence that nobody sealed", edit: func(dir string) { write(t, dir, "env/one/more.txt", "x") }, want: []string{"env/one/more.txt was never sealed"}},
	} {
		cs := c.scenes
		if cs == nil {
			cs = scenes
		}
		o := fine()
		o.Bundle, o.Results = bundle(t, cs, c.run), filepath.Join(t.TempDir(), "results")
		if c.edit != nil {
			c.edit(o.Bundle)
		}
		if c.o != nil {
			c.o(&o)
		}
		_, err := suite(cs).Submit(o)
		var refused *submit.RefusedError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", c.says, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: want %q in: %v", c.says, w, err)
			}
		}
		if _, err := os.Stat(o.Results); err == nil {
			t.Errorf("%s: something was written", c.says)
		}
	}
}

// A bundle that was sealed again with another plan judges itself by it, and must be found out by the plan of the suite.
func TestThePlanIsTheContracts(t *testing.T) {
	other := scene("one")
	other.Checks[0].IDs = []string{}
	for _, c := range []struct {
		says   string
		scenes []scenario.Compiled
		edit   func(dir string)
		want   string
	}{
		{"a scenario is left out", scenes[1:], nil, "scenario one was left out"},
		{"a check is looser", []scenario.Compiled{other, scenes[1], scenes[2]}, nil, "scenario one was played or judged with other parameters"},
		{"a parameter is loosened afterwards, and its hash kept", scenes, func(dir string) {
			reseal(t, dir, func(m *evidence.Manifest) { m.Scenarios[0].Checks[0].Params = []byte(`{}`) })
		}, "scenario one was played or judged with other parameters"},
		{"a scenario of one's own", append(slices.Clone(scenes), scene("mine")), nil, "scenario mine is not in the catalogue"},
		{"a requirement is excluded", scenes, func(dir string) {
			reseal(t, dir, func(m *evidence.Manifest) {
				m.Excluded = []evidence.Exclusion{{Requirement: "FC-ONE-01", Why: "because"}}
			})
		}, "requirements that the contract does not judge"},
		{"a failure is expected", scenes, func(dir string) {
			reseal(t, dir, func(m *evidence.Manifest) { m.ExpectedFail = []string{"FC-TWO-01"} })
		}, "known faults of the contract"},
		{"a dependency is made up", scenes, func(dir string) {
			reseal(t, dir, func(m *evidence.Manifest) { m.ShownBy = []evidence.Shown{{Requirement: "FC-ONE-01", By: "FC-TWO-01"}} })
		}, "what depends on what"},
		{"another contract's name", scenes, func(dir string) {
			reseal(t, dir, func(m *evidence.Manifest) { m.Profile = "contract-2" })
		}, "manifest.json says something else"},
		{"another plan was played", scenes, func(dir string) {
			change(t, dir, evidence.PlanFile, `"index":-1`, `"index":-2`)
			reseal(t, dir, nil)
		}, "plan.ndjson is not the plan"},
	} {
		b := bundle(t, c.scenes, nil)
		if c.edit != nil {
			c.edit(b)
		}
		if problems, _ := findings(t, suite(scenes), b, ""); !strings.Contains(problems, c.want) {
			t.Errorf("%s: want %q in: %s", c.says, c.want, problems)
		}
	}
}

// Whoever wants to repeat a run of a program needs the descriptor, of which the command line has only the name.
func TestReadmeHasTheDescriptor(t *testing.T) {
	b := bundle(t, scenes, func(m *evidence.Manifest) {
		m.Command, m.Tolerances = "epp --port {{.GRPCPort}}", &evidence.Tolerances{SlackNs: 7e8}
		m.Implementation = evidence.Implementation{Organization: "example", Project: "router", Version: "v1.2.3", Features: []string{"metrics"}}
	})
	w, err := suite(scenes).Submit(submit.Options{Bundle: b, Results: t.TempDir(), Claim: claim()})
	if err != nil {
		t.Fatal(err)
	}
	readme := read(t, w.Dir, submit.ReadmeFile)
	_, block, _ := strings.Cut(readme, "in the form of a descriptor:\n\n```\n")
	block, _, _ = strings.Cut(block, "\n```")
	file := filepath.Join(t.TempDir(), "sut.yaml")
	if err := os.WriteFile(file, []byte(block), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := sut.ReadDescriptor(file)
	if err != nil || d.Command != "epp --port {{.GRPCPort}}" || d.Tolerances.Slack != 700*time.Millisecond || d.Project != "router" || !slices.Equal(d.Features, []string{"metrics"}) {
		t.Errorf("%v: %+v from\n%s", err, d, block)
	}
	if !strings.Contains(readme, "| tolerances of its own | slack 700ms |") {
		t.Error("README.md does not name the tolerances")
	}
}

func TestNothingIsOverwritten(t *testing.T) {
	root, dir := submitted(t, scenes)
	before := read(t, dir, submit.SubmissionFile)
	o := submit.Options{Bundle: bundle(t, scenes, func(m *evidence.Manifest) { m.RunID = "run-8" }), Results: root, Claim: claim()}
	if _, err := suite(scenes).Submit(o); err == nil || !strings.Contains(err.Error(), "--replace") {
		t.Errorf("the second submission: %v", err)
	}
	if o.Replace = "todo"; true {
		if _, err := suite(scenes).Submit(o); err == nil || !strings.Contains(err.Error(), "placeholder") {
			t.Errorf("a replacement without a reason: %v", err)
		}
	}
	if read(t, dir, submit.SubmissionFile) != before {
		t.Error("a refused submission changed the one that was there")
	}
	another := o
	another.Claim.Version, another.Replace = "v1.2.4", ""
	if _, err := suite(scenes).Submit(another); err != nil {
		t.Errorf("another version: %v", err)
	}
	o.Replace = "run again on a machine that did nothing else"
	if _, err := suite(scenes).Submit(o); err != nil {
		t.Fatal(err)
	}
	if text := read(t, dir, submit.ReadmeFile); !strings.Contains(text, o.Replace) || !strings.Contains(text, "run-8") {
		t.Error("README.md does not say that and why it was replaced")
	}
	if got := names(t, filepath.Dir(dir)); len(got) != 2 {
		t.Errorf("left behind: %v", got)
	}
	if problems, undecided := findings(t, suite(scenes), root, ""); problems+undecided != "" {
		t.Errorf("%s %s", problems, undecided)
	}
}

func TestEvidenceElsewhere(t *testing.T) {
	b := bundle(t, scenes, nil)
	root := filepath.Join(t.TempDir(), "results")
	w, err := suite(scenes).Submit(submit.Options{Bundle: b, Results: root, Claim: claim(), ArchiveLimit: 100, BundleURL: "https://evidence.example.org/e.tar.gz"})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(names(t, w.Dir), submit.ArchiveFile) || w.Archive == "" {
		t.Fatalf("the archive is in the submission, or not to be found: %+v", w)
	}
	if text := read(t, w.Dir, submit.ReadmeFile); !strings.Contains(text, "https://evidence.example.org/e.tar.gz") || !strings.Contains(text, sha(read(t, filepath.Dir(w.Archive), filepath.Base(w.Archive)))) {
		t.Error("README.md does not say where the evidence is and what hash it has")
	}
	if problems, undecided := findings(t, suite(scenes), w.Dir, ""); problems != "" || !strings.Contains(undecided, "https://evidence.example.org/e.tar.gz") {
		t.Errorf("without the evidence: %q, %q", problems, undecided)
	}
	for _, at := range []string{w.Archive, b} {
		if problems, undecided := findings(t, suite(scenes), w.Dir, at); problems+undecided != "" {
			t.Errorf("with the evidence at %s: %q %q", at, problems, undecided)
		}
	}
	other := bundle(t, scenes, func(m *evidence.Manifest) { m.Seed = 8 })
	if problems, _ := findings(t, suite(scenes), w.Dir, other); !strings.Contains(problems, "another one than was submitted") {
		t.Errorf("with other evidence: %q", problems)
	}
	// Without evidence the parts must at least agree.
	forge(t, w.Dir, report.YAMLFile, "verdict: not-applicable", "verdict: pass")
	if problems, _ := findings(t, suite(scenes), w.Dir, ""); !strings.Contains(problems, "FC-HELD-01") {
		t.Errorf("a verdict edited where no evidence is: %q", problems)
	}
}

// A file that another version wrote may differ in good faith: nothing is wrong then, and nothing is shown.
func TestAnotherVersionOfTheSuite(t *testing.T) {
	_, dir := submitted(t, scenes)
	later := suite(scenes)
	later.Version, later.Rows = "9.2.0", slices.Clone(later.Rows)
	later.Rows[0].Title = "The sentence is another one now."
	problems, undecided := findings(t, later, dir, "")
	if problems != "" || !strings.Contains(undecided, "report.md") || !strings.Contains(undecided, "made by weir 9.1.0 (0123abc)") {
		t.Errorf("problems %q, undecided %q", problems, undecided)
	}
	later.Version, later.Commit = "9.1.0", "unknown"
	if problems, _ := findings(t, later, dir, ""); !strings.Contains(problems, "report.md") {
		t.Errorf("the same version: %q", problems)
	}
}
