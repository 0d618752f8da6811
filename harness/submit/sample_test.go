package submit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/report"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/submit"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/verdict"
)

// router serves every request of a scenario; one of the name "bad" is refused, and a scenario called "absent" shows nothing.
type router struct{ features []string }

func (r *router) Describe() sut.Implementation                     { return sut.Implementation{Features: r.features} }
func (*router) Configure(context.Context, sut.Configuration) error { return nil }
func (*router) Close(context.Context) error                        { return nil }
func (*router) Play(_ context.Context, s sut.Script, out evidence.Sink) error {
	out.Step(evidence.Step{Op: "send", Start: 1, End: 9, OK: true})
	out.File("config.yaml", []byte("scenario: "+s.Scenario+"\n"))
	switch s.Scenario {
	case "absent":
	case "bad":
		out.Client(evidence.Client{ID: "a1", Sent: 1, End: 9, Outcome: evidence.Refused, Status: 429})
	default:
		out.Client(evidence.Client{ID: "a1", Sent: 1, End: 9, Outcome: evidence.Completed, Status: 200})
		out.Backend(evidence.Backend{ID: "a1", Endpoint: "a", Arrival: 2, End: 8, Ending: evidence.Finished})
	}
	return nil
}

// scene is a scenario that wants its one request completed.
func scene(name string, needs ...sut.Feature) scenario.Compiled {
	return scenario.Compiled{Name: name, Title: name, Level: "core", Needs: needs, Script: sut.Script{Scenario: name},
		Checks: []checks.Spec{{Check: "completed", Requirement: "FC-" + strings.ToUpper(name) + "-01", IDs: []string{"a1"}}}}
}

var scenes = []scenario.Compiled{scene("one"), scene("two"), scene("held", sut.Hold)}

func options(cs []scenario.Compiled) run.Options {
	o := run.Options{Scenarios: cs, New: func() sut.System { return &router{} }, Profile: profile.Profile{Name: "contract-1"}}
	for _, c := range cs {
		o.Rows = append(o.Rows, verdict.Requirement{ID: c.Checks[0].Requirement, Level: "core", Title: "The request of " + c.Name + " is served."})
	}
	return o
}

// suite is a small suite whose catalogue is cs.
func suite(cs []scenario.Compiled) submit.Suite {
	return submit.Suite{Version: "9.1.0", Commit: "0123abc", Rows: options(cs).Rows, Command: func(argv []string) string { return strings.Join(argv, " ") },
		Plan: func(evidence.Manifest) (evidence.Manifest, []byte, error) {
			var plan bytes.Buffer
			for _, c := range cs {
				for _, l := range c.PlanLines() {
					plan.Write(append(l, '\n'))
				}
			}
			return run.Planned(options(cs)), plan.Bytes(), nil
		}}
}

func manifest() evidence.Manifest {
	return evidence.Manifest{RunID: "run-7", Created: "2026-09-01T12:00:00Z", Tool: "weir 9.1.0", Commit: "0123abc", Argv: []string{"weir", "certify", "--seed", "7"}, Seed: 7,
		Level: "core", Environment: "local", Clock: "real", Host: evidence.Host{OS: "linux", Arch: "amd64", CPUs: 2, Go: "go1.26"},
		Implementation: evidence.Implementation{Organization: "unknown", Project: "epp", Version: "unknown"}}
}

// bundle plays cs and lays down the bundle with its reports.
func bundle(t *testing.T, cs []scenario.Compiled, change func(*evidence.Manifest)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	o := options(cs)
	o.Dir, o.Manifest = dir, manifest()
	if change != nil {
		change(&o.Manifest)
	}
	s, err := run.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start(t.Context())
	b, results, err := s.Seal()
	if err != nil {
		t.Fatal(err)
	}
	in := report.Input{Bundle: b, Results: results, Overall: verdict.Overall(results, "core"), Command: strings.Join(b.Manifest.Argv, " "), Date: b.Manifest.Created}
	if err := report.WriteAll(dir, in); err != nil {
		t.Fatal(err)
	}
	return dir
}

// reseal makes the manifest of a bundle anew, as somebody would who knows how: every hash is right again.
func reseal(t *testing.T, dir string, change func(*evidence.Manifest)) {
	t.Helper()
	var m evidence.Manifest
	if err := json.Unmarshal([]byte(read(t, dir, evidence.ManifestFile)), &m); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&m)
	}
	for i, f := range m.Files {
		content := read(t, dir, f.Name)
		m.Files[i].SHA256, m.Files[i].Bytes = sha(content), int64(len(content))
	}
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, evidence.ManifestFile, string(raw)+"\n")
	write(t, dir, evidence.SealFile, sha(string(raw)+"\n")+"  "+evidence.ManifestFile+"\n")
}

func claim() submit.Claim {
	return submit.Claim{Organization: "example", Project: "router", Version: "v1.2.3", URL: "https://router.example.org/", Contact: []string{"flow@example.org"}}
}

// submitted makes a submission of cs and gives the results folder and the submission's.
func submitted(t *testing.T, cs []scenario.Compiled) (root, dir string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "results")
	w, err := suite(cs).Submit(submit.Options{Bundle: bundle(t, cs, nil), Results: root, Claim: claim()})
	if err != nil {
		t.Fatal(err)
	}
	return root, w.Dir
}

// findings verifies and gives all problems and what stayed undecided, each as one text.
func findings(t *testing.T, s submit.Suite, path, bundle string) (problems, undecided string) {
	t.Helper()
	fs, err := s.Verify(path, bundle)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fs {
		problems += strings.Join(f.Problems, "\n")
		undecided += strings.Join(f.Undecided, "\n")
	}
	return problems, undecided
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func change(t *testing.T, dir, name, old, with string) {
	t.Helper()
	before := read(t, dir, name)
	after := strings.Replace(before, old, with, 1)
	if before == after {
		t.Fatalf("%s does not contain %q", name, old)
	}
	write(t, dir, name, after)
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	slices.Sort(out)
	return out
}
