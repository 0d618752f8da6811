package evidence_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/evidence"
)

var order = []string{"first", "second", "third"}

// record fills every record type of one scenario.
func record(scenario string) *evidence.Recorder {
	r := evidence.NewRecorder(scenario)
	r.Client(evidence.Client{ID: "b2", Intended: 20, Sent: 20, End: evidence.Never, Outcome: evidence.Unfinished})
	r.Client(evidence.Client{ID: "a1", Intended: 10, Sent: 11, End: 90, Outcome: evidence.Completed, Status: 200, TokenTimes: []int64{30, 40}, Text: "<b>&"})
	r.Backend(evidence.Backend{ID: "a1", Endpoint: "a", Arrival: 20, End: 80, Ending: evidence.Finished, ControlHeaders: []string{"x"}})
	r.Decision(evidence.Decision{At: 15, ID: "a1", Kind: "dispatch", Outcome: "Dispatched", Saturation: 0.5})
	r.Sample(evidence.Sample{At: 50, Mark: "sampled", Source: "router", Name: "queue_size", Labels: map[string]string{"z": "1", "a": "2"}, Value: 3})
	r.Step(evidence.Step{Op: "quiet", Mark: "queued", Start: 1, End: 2, OK: true, IDs: []string{"a1"}})
	r.Step(evidence.Step{Op: "drain", Mark: "drained", Start: 2, End: 3, Detail: "1 requests have not ended"})
	r.Process(evidence.Process{Case: "valid", Started: true, Duration: 5})
	r.File("config.yaml", []byte("kind: EndpointPickerConfig\n"))
	return r
}

func manifest() evidence.Manifest {
	m := evidence.Manifest{RunID: "r", Tool: "weir", Argv: []string{"certify"}, Seed: 7, Profile: "p", Environment: "virtual", Clock: "virtual", Complete: true,
		RunChecks: []evidence.CheckEntry{{Check: "conservation", Requirement: "INV-03", Params: json.RawMessage(`{"needed":200}`)}}}
	for _, name := range order {
		m.Scenarios = append(m.Scenarios, evidence.ScenarioEntry{Name: name, Checks: []evidence.CheckEntry{{Check: "order", Requirement: "FC-ORD-01", Params: json.RawMessage(`{}`)}}})
	}
	return m
}

// write lays a bundle down; scenarios are handed over in the order of names.
func write(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	w, err := evidence.Create(dir, order)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if err := w.Scenario(n, []json.RawMessage{json.RawMessage(`{"scenario":"` + n + `","index":-1}`)}, record(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Seal(manifest()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T, dir string) *evidence.Bundle {
	t.Helper()
	b, err := evidence.Open(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func replace(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// files lists everything in a bundle.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			out = append(out, filepath.ToSlash(rel))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	b := open(t, write(t, order...))
	if len(b.Runs) != len(order) {
		t.Fatalf("%d runs", len(b.Runs))
	}
	for i, name := range order {
		want := record(name).Run()
		if !reflect.DeepEqual(b.Runs[i], want) {
			t.Errorf("%s came back as\n%+v\nwant\n%+v", name, b.Runs[i], want)
		}
		if want.Clients[0].ID != "a1" || want.Steps[1].Index != 1 || want.Clients[0].Scenario != name {
			t.Errorf("%s is not in canonical order, or does not carry its name: %+v", name, want)
		}
	}
	m := b.Manifest
	if m.Schema != evidence.Schema || m.Seed != 7 || !m.Complete || len(m.Scenarios) != 3 || string(m.RunChecks[0].Params) == "" {
		t.Errorf("manifest: %+v", m)
	}
	names := []string{}
	for _, f := range m.Files {
		names = append(names, f.Name)
	}
	if !slices.IsSorted(names) || !slices.Contains(names, "env/second/config.yaml") || !slices.Contains(names, evidence.PlanFile) {
		t.Errorf("sealed files: %v", names)
	}
}

// What is on disk must not tell in which order the scenarios happened to end.
func TestBytesDoNotDependOnTheOrderOfCompletion(t *testing.T) {
	first := write(t, "first", "second", "third")
	for _, completion := range [][]string{{"first", "second", "third"}, {"third", "second", "first"}, {"second", "third", "first"}} {
		dir := write(t, completion...)
		if got, want := files(t, dir), files(t, first); !slices.Equal(got, want) {
			t.Fatalf("completed as %v: files %v, want %v", completion, got, want)
		}
		for _, f := range files(t, first) {
			if read(t, dir, f) != read(t, first, f) {
				t.Errorf("completed as %v: %s differs", completion, f)
			}
		}
	}
	clients := read(t, first, evidence.ClientFile)
	if a, b := strings.Index(clients, `"scenario":"first"`), strings.Index(clients, `"scenario":"third"`); a > b {
		t.Error("records are not in catalogue order")
	}
}

func TestInterruptedRunKeepsWhatItSaw(t *testing.T) {
	for _, c := range []struct {
		says string
		seen []string
	}{
		{"the last scenario never came", []string{"first", "second"}},
		{"what waits behind a scenario that never came is written at the end", []string{"third"}},
		{"nothing came", nil},
	} {
		b := open(t, write(t, c.seen...))
		for i, name := range order {
			if got, want := len(b.Runs[i].Clients), len(record(name).Run().Clients); (got == want) != slices.Contains(c.seen, name) {
				t.Errorf("%s: %s has %d client records", c.says, name, got)
			}
		}
	}
}

func TestScenarioIsWrittenOnce(t *testing.T) {
	w, err := evidence.Create(t.TempDir(), order)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Scenario("first", nil, record("first")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ says, name string }{
		{"a second record of a written scenario would be lost", "first"},
		{"a scenario that was not announced has no place", "fourth"},
	} {
		if err := w.Scenario(c.name, nil, record(c.name)); err == nil || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s: %v", c.says, err)
		}
	}
	if err := w.Scenario("second", nil, nil); err != nil {
		t.Errorf("a scenario that was not played: %v", err)
	}
	if err := w.Seal(manifest()); err != nil {
		t.Fatal(err)
	}
	if err := w.Scenario("third", nil, record("third")); err == nil {
		t.Error("a record was added to a sealed bundle")
	}
}

func TestCreateOverwritesNothing(t *testing.T) {
	dir := t.TempDir()
	replace(t, dir, "notes.txt", "mine")
	if _, err := evidence.Create(dir, order); err == nil || !strings.Contains(err.Error(), "--out") {
		t.Errorf("a folder with something in it: %v", err)
	}
	if got := files(t, dir); !slices.Equal(got, []string{"notes.txt"}) {
		t.Errorf("the refused folder now holds %v", got)
	}
	if _, err := evidence.Create(filepath.Join(dir, "a", "b"), order); err != nil {
		t.Errorf("a folder that does not exist: %v", err)
	}
	if _, err := evidence.Create(filepath.Join(dir, "notes.txt", "b"), order); err == nil {
		t.Error("a folder inside a file")
	}
}

func TestSealNoticesEveryChange(t *testing.T) {
	type damage struct {
		says, names string
		do          func(dir string)
	}
	var all []damage
	for _, f := range files(t, write(t, order...)) {
		edited := f
		if f == evidence.SealFile {
			// The seal is no evidence; what it guards is the manifest.
			edited = evidence.ManifestFile
		}
		all = append(all,
			damage{"one byte more in " + f, edited, func(dir string) { replace(t, dir, f, " "+read(t, dir, f)) }},
			damage{f + " is gone", f, func(dir string) {
				if err := os.Remove(filepath.Join(dir, f)); err != nil {
					t.Fatal(err)
				}
			}})
	}
	all = append(all,
		damage{"one digit of a record is another", evidence.ClientFile, func(dir string) {
			replace(t, dir, evidence.ClientFile, strings.Replace(read(t, dir, evidence.ClientFile), `"status":200`, `"status":429`, 1))
		}},
		damage{"a parameter of a check is loosened afterwards", evidence.ManifestFile, func(dir string) {
			replace(t, dir, evidence.ManifestFile, strings.Replace(read(t, dir, evidence.ManifestFile), `"needed": 200`, `"needed": 2`, 1))
		}},
		damage{"records are added that nobody sealed", "more.ndjson", func(dir string) { replace(t, dir, "more.ndjson", "{}\n") }},
		damage{"the seal is empty", evidence.ManifestFile, func(dir string) { replace(t, dir, evidence.SealFile, "") }})
	for _, d := range all {
		dir := write(t, order...)
		before := read(t, dir, evidence.ManifestFile) + read(t, dir, evidence.ClientFile)
		d.do(dir)
		_, err := evidence.Open(dir, false)
		if d.says == evidence.ManifestFile+" is gone" {
			if err == nil || !strings.Contains(err.Error(), "no bundle") {
				t.Errorf("%s: %v", d.says, err)
			}
			continue
		}
		var seal *evidence.SealError
		if !errors.As(err, &seal) || !strings.Contains(err.Error(), d.names) || !strings.Contains(err.Error(), "--unsealed") {
			t.Errorf("%s: %v", d.says, err)
		}
		if strings.Contains(d.says, "digit") || strings.Contains(d.says, "loosened") {
			if before == read(t, dir, evidence.ManifestFile)+read(t, dir, evidence.ClientFile) {
				t.Errorf("%s: nothing was changed", d.says)
			}
			if _, err := evidence.Open(dir, true); err != nil {
				t.Errorf("%s: unsealed must open all the same: %v", d.says, err)
			}
		}
	}
}

// A file that was taken off the manifest's list is no longer sealed, whatever the seal of the manifest says.
func TestSealNoticesARecordFileOffTheList(t *testing.T) {
	dir := t.TempDir()
	w, err := evidence.Create(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, evidence.ProcessFile)); err != nil {
		t.Fatal(err)
	}
	if err := w.Seal(evidence.Manifest{}); err != nil {
		t.Fatal(err)
	}
	replace(t, dir, evidence.ProcessFile, "")
	var seal *evidence.SealError
	if _, err := evidence.Open(dir, false); !errors.As(err, &seal) || !strings.Contains(err.Error(), evidence.ProcessFile+" was never sealed") {
		t.Errorf("%v", err)
	}
}

// A bundle comes from anywhere. Whatever its manifest calls a file, nothing outside its folder is read.
func TestNothingOutsideTheBundleIsRead(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.ndjson")
	if err := os.WriteFile(outside, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var seal *evidence.SealError
	dir := write(t, order...)
	if err := os.Remove(filepath.Join(dir, evidence.PickerFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, evidence.PickerFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := evidence.Open(dir, false); !errors.As(err, &seal) || !strings.Contains(err.Error(), evidence.PickerFile+" is no file of the bundle") {
		t.Errorf("a link that leads out: %v", err)
	}
	dir = write(t, order...)
	replace(t, dir, evidence.ManifestFile, strings.Replace(read(t, dir, evidence.ManifestFile), "env/first/config.yaml", "../outside.ndjson", 1))
	if _, err := evidence.Open(dir, false); !errors.As(err, &seal) || !strings.Contains(err.Error(), "../outside.ndjson is no file of the bundle") {
		t.Errorf("a name that leads out: %v", err)
	}
}

// Verdicts and reports are written beside sealed evidence; they are recomputable and not sealed.
func TestReportsBesideTheEvidenceAreNoDamage(t *testing.T) {
	dir := write(t, order...)
	replace(t, dir, "verdicts.json", "[]")
	replace(t, dir, "report.html", "<html>")
	open(t, dir)
}

func TestDamagedLinesAreNamed(t *testing.T) {
	for _, c := range []struct {
		says, file string
		edit       func(string) string
		want       string
	}{
		{"the last line was cut off", evidence.ClientFile, func(s string) string { return s[:len(s)-20] }, "client.ndjson:6:"},
		{"an unknown field", evidence.StepsFile, func(s string) string { return strings.Replace(s, `"op"`, `"opp"`, 1) }, "steps.ndjson:1:"},
		{"an unknown scenario", evidence.BackendFile, func(s string) string { return strings.Replace(s, `"second"`, `"fourth"`, 1) }, "backend.ndjson:2:"},
		{"two values on a line", evidence.SamplesFile, func(s string) string { return strings.Replace(s, "}\n", "}{}\n", 1) }, "samples.ndjson:1:"},
		{"an empty line", evidence.ProcessFile, func(s string) string { return "\n" + s }, "process.ndjson:1:"},
		{"a wrong type", evidence.PickerFile, func(s string) string { return strings.Replace(s, `"atNs":15`, `"atNs":"x"`, 1) }, "picker.ndjson:1:"},
	} {
		dir := write(t, order...)
		before := read(t, dir, c.file)
		after := c.edit(before)
		if after == before {
			t.Errorf("%s: nothing was changed", c.says)
		}
		replace(t, dir, c.file, after)
		if _, err := evidence.Open(dir, true); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want an error at %s, got %v", c.says, c.want, err)
		}
	}
}

func TestManifestsOfOtherVersionsAreRefused(t *testing.T) {
	for _, c := range []struct{ says, old, new, want string }{
		{"another schema", `"schema": "` + evidence.Schema + `"`, `"schema": "weir.evidence/v0"`, "weir.evidence/v0"},
		{"a field of another version", `"seed": 7`, `"seed": 7, "sead": 8`, "sead"},
		{"no JSON", `{`, `[`, "manifest.json"},
	} {
		dir := write(t, order...)
		replace(t, dir, evidence.ManifestFile, strings.Replace(read(t, dir, evidence.ManifestFile), c.old, c.new, 1))
		if _, err := evidence.Open(dir, true); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.says, err)
		}
	}
	if _, err := evidence.Open(t.TempDir(), true); err == nil || !strings.Contains(err.Error(), "no bundle") {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestRunLookups(t *testing.T) {
	r := evidence.Run{
		Backends: []evidence.Backend{{ID: "a", Endpoint: "x", Arrival: 10, End: 20}, {ID: "b", Endpoint: "x", Arrival: 15, End: evidence.Never},
			{ID: "c", Endpoint: "y", Arrival: evidence.Never, End: evidence.Never}},
		Steps: []evidence.Step{{Index: 0, Mark: "m", Start: 1}, {Index: 1, Mark: "m", Start: 2}},
	}
	for _, c := range []struct {
		says  string
		at    int64
		total int
	}{
		{"before anybody came", 9, 0}, {"an arrival counts at its own instant", 10, 1}, {"two overlap", 15, 2},
		{"an end no longer counts at its own instant; no arrival never counts", 20, 1},
	} {
		if per, total := r.InFlight(c.at); total != c.total || per["y"] != 0 {
			t.Errorf("%s: %d, %v", c.says, total, per)
		}
	}
	if s, ok := r.StepByMark("m"); !ok || s.Start != 2 {
		t.Error("of several steps with one mark the last is meant")
	}
	if len(r.StepsByMark("m")) != 2 {
		t.Error("all steps of a mark")
	}
	if _, ok := r.ClientByID("a"); ok {
		t.Error("a client record that is not there")
	}
}

// A copy that was handed out must not change under the reader's hands.
func TestRecorderHandsOutCopies(t *testing.T) {
	r := record("first")
	before := r.Run()
	r.Client(evidence.Client{ID: "late", Intended: 1})
	if len(before.Clients) != 2 || len(r.Run().Clients) != 3 {
		t.Error("the copy changed, or the record did not")
	}
}
