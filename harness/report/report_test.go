package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/verdict"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

var writers = map[string]func(io.Writer, Input) error{VerdictsFile: VerdictsJSON, YAMLFile: YAML, JUnitFile: JUnit,
	MarkdownFile: Markdown, HTMLFile: HTML}

func render(t *testing.T, file string, in Input) string {
	t.Helper()
	var b bytes.Buffer
	if err := writers[file](&b, in); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	dir := t.TempDir()
	if err := WriteAll(dir, sample()); err != nil {
		t.Fatal(err)
	}
	var terminal bytes.Buffer
	in := sample()
	for _, r := range in.Results {
		_ = Terminal(&terminal, r, false)
	}
	_ = TerminalSummary(&terminal, in, false)
	if err := os.WriteFile(filepath.Join(dir, "terminal.txt"), terminal.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{VerdictsFile, YAMLFile, JUnitFile, MarkdownFile, HTMLFile, "terminal.txt"} {
		got, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", f)
		if *update {
			if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(golden, got, 0o644)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from its golden at %s; look at it, then go test ./harness/report -update", f, firstDifference(got, want))
		}
	}
}

func firstDifference(a, b []byte) string {
	la, lb := strings.Split(string(a), "\n"), strings.Split(string(b), "\n")
	for i := range min(len(la), len(lb)) {
		if la[i] != lb[i] {
			return fmt.Sprintf("line %d:\n  got  %.300s\n  want %.300s", i+1, la[i], lb[i])
		}
	}
	return "the end"
}

func TestSameInputSameBytes(t *testing.T) {
	for f := range writers {
		first := render(t, f, sample())
		for range 5 {
			if render(t, f, sample()) != first {
				t.Errorf("%s differs between two runs", f)
			}
		}
	}
}

func TestEveryRequirementIsInEveryFile(t *testing.T) {
	in := sample()
	for f := range writers {
		text := render(t, f, in)
		for _, r := range in.Results {
			if !strings.Contains(text, r.ID) {
				t.Errorf("%s lacks %s", f, r.ID)
			}
		}
	}
}

// inputs are the sample and its degenerate relatives.
func inputs() map[string]Input {
	interrupted := sample()
	interrupted.Bundle.Manifest.Complete = false
	interrupted.Overall = verdict.Pass
	for i := range interrupted.Results {
		interrupted.Results[i].Kind = verdict.Pass
	}
	empty := sample()
	empty.Results, empty.Overall = nil, verdict.Pass
	broken := sample()
	broken.Overall = verdict.Error
	degenerate := sample()
	for i := range degenerate.Bundle.Runs { // clients that never sent, servers that nobody reached
		r := &degenerate.Bundle.Runs[i]
		for j := range r.Clients {
			r.Clients[j].Sent, r.Clients[j].End = none, none
		}
		for j := range r.Backends {
			r.Backends[j].Arrival, r.Backends[j].End = none, none
		}
	}
	return map[string]Input{"sample": sample(), "interrupted": interrupted, "empty": empty, "error": broken, "degenerate": degenerate,
		"no bundle": {Overall: verdict.Pass}}
}

func TestNothingReadsAsAPassThatIsNone(t *testing.T) {
	for _, name := range []string{"interrupted", "empty", "no bundle"} {
		in := inputs()[name]
		if in.Verdict() == verdict.Pass {
			t.Errorf("%s: claimed to pass", name)
		}
		if html := render(t, HTMLFile, in); !strings.Contains(html, `<header class="v-inconclusive">`) {
			t.Errorf("%s: the page's head is not that of an inconclusive run", name)
		}
		if s := render(t, MarkdownFile, in); !strings.HasPrefix(s, "# ? INCONCLUSIVE") {
			t.Errorf("%s: %.60s", name, s)
		}
		var y map[string]any
		if err := yaml.Unmarshal([]byte(render(t, YAMLFile, in)), &y); err != nil || y["verdict"] != "inconclusive" {
			t.Errorf("%s: report.yaml says %v, %v", name, y["verdict"], err)
		}
		for _, p := range y["profiles"].([]any) {
			if p.(map[string]any)["result"] == "success" {
				t.Errorf("%s: a level is a success", name)
			}
		}
		var j junitSuites
		if err := xml.Unmarshal([]byte(render(t, JUnitFile, in)), &j); err != nil || j.Errors == 0 {
			t.Errorf("%s: CI would be green: %+v, %v", name, j, err)
		}
	}
	interruptedFail := sample()
	interruptedFail.Bundle.Manifest.Complete = false
	if interruptedFail.Verdict() != verdict.Fail {
		t.Error("an interruption must not hide a violation that was seen")
	}
}

var network = regexp.MustCompile(`(?i)(src|href|action|poster|data)\s*=\s*["']?\s*(https?:|//)|@import|url\s*\(`)

func TestPageAsksTheNetworkForNothing(t *testing.T) {
	for name, in := range inputs() {
		html := render(t, HTMLFile, in)
		if m := network.FindString(html); m != "" {
			t.Errorf("%s: found %q", name, m)
		}
		if n := strings.Count(strings.ToLower(html), "<script"); n != 1 {
			t.Errorf("%s: %d scripts", name, n)
		}
	}
	for _, sign := range []string{`<a href="https://x"`, `<img src=//x`, `@import "x"`} {
		if !network.MatchString(sign) {
			t.Errorf("the search is blind to %q", sign)
		}
	}
}

func TestHostileTextsStayTexts(t *testing.T) {
	html := render(t, HTMLFile, sample())
	for _, bad := range []string{"<script>alert", "<img", "onerror=alert(2)>", "\x1b", "\u202e", "\xff", "\x00"} {
		if strings.Contains(html, bad) {
			t.Errorf("report.html contains %q", bad)
		}
	}
	if !strings.Contains(html, "&lt;script&gt;alert(1)") {
		t.Error("the hostile text is not shown at all")
	}
	text := render(t, MarkdownFile, sample())
	outside := regexp.MustCompile("(?ms)^(`{3,})\n.*?\n(`{3,})$").ReplaceAllString(text, "")
	for _, bad := range []string{"<script", "<img", `[^\\]\]\(http`, "\x1b", "\u202e"} {
		if regexp.MustCompile(bad).MatchString(outside) {
			t.Errorf("report.md contains %q outside a literal block", bad)
		}
	}
	var b bytes.Buffer
	for _, r := range sample().Results {
		_ = Terminal(&b, r, false)
	}
	_ = TerminalSummary(&b, sample(), false)
	if strings.ContainsAny(b.String(), "\x1b\u202e\x00") {
		t.Error("a hostile text can steer the terminal")
	}
	for _, l := range strings.Split(text, "\n") { // a text with a bar must not add a column
		if strings.HasPrefix(l, "| ") && !strings.Contains(l, "certify") {
			cells := strings.Count(strings.ReplaceAll(l, `\|`, ""), "|") - 1
			if cells != 2 && cells != 5 && cells != 6 {
				t.Errorf("%d cells in %q", cells, l)
			}
		}
	}
}

var figureElement = regexp.MustCompile(`(?s)<svg .*?</svg>`)

func TestFiguresAreWellFormed(t *testing.T) {
	for name, in := range inputs() {
		for _, f := range figureElement.FindAllString(render(t, HTMLFile, in), -1) {
			if err := wellFormed(f); err != nil {
				t.Errorf("%s: %v in %.120s", name, err, f)
			}
			if strings.Contains(f, "NaN") || strings.Contains(f, "Inf") || strings.Contains(f, `="-`) {
				t.Errorf("%s: a coordinate is no place: %.120s", name, f)
			}
		}
	}
	if n := len(figureElement.FindAllString(render(t, HTMLFile, sample()), -1)); n != 5 {
		t.Errorf("%d figures, want timeline, order, load, share, order", n)
	}
}

func wellFormed(text string) error {
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func TestJUnitCounts(t *testing.T) {
	var j junitSuites
	if err := xml.Unmarshal([]byte(render(t, JUnitFile, sample())), &j); err != nil {
		t.Fatal(err)
	}
	if j.Tests != 7 || j.Failures != 2 || j.Errors != 3 || j.Skipped != 1 {
		t.Errorf("counts: %+v", j)
	}
	if j.Suites[0].Name != "FC-PRI" || j.Suites[0].Cases[0].Failure == nil {
		t.Errorf("first suite: %+v", j.Suites[0])
	}
	for _, s := range j.Suites {
		for _, c := range s.Cases {
			if strings.HasPrefix(c.Name, "FC-FAIR-01") && (c.Error == nil || c.Error.Type != "inconclusive") {
				t.Errorf("inconclusive is %+v", c)
			}
		}
	}
}

func TestVerdictsComeBack(t *testing.T) {
	dir := t.TempDir()
	in := sample()
	if err := WriteAll(dir, in); err != nil {
		t.Fatal(err)
	}
	v, err := ReadVerdicts(dir)
	if err != nil {
		t.Fatal(err)
	}
	if v.Overall != in.Overall || v.RunID != "run-0042" || v.Mutants != 24 || len(v.Results) != len(in.Results) {
		t.Errorf("read %+v", v)
	}
	for i := range v.Results {
		w, g := in.Results[i], v.Results[i]
		if g.ID != w.ID || g.Kind != w.Kind || len(g.Verdicts) != len(w.Verdicts) ||
			len(g.Verdicts) > 1 && !reflect.DeepEqual(g.Verdicts[1], w.Verdicts[1]) {
			t.Errorf("wrote %+v, read %+v", w, g)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, VerdictsFile), []byte(`{"schema":"weir.verdicts/v0"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadVerdicts(dir); err == nil || !strings.Contains(err.Error(), "judge the bundle again") {
		t.Errorf("an old schema gave %v", err)
	}
}

func TestYAMLNamesEvidenceAndCounterexample(t *testing.T) {
	var y struct {
		Requirements []struct {
			ID, Verdict    string
			Evidence       []string
			Counterexample *struct {
				Scenario  string
				Witnesses []string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(render(t, YAMLFile, sample())), &y); err != nil {
		t.Fatal(err)
	}
	first := y.Requirements[0]
	want := []string{"client.ndjson#priority-order/q03", "backend.ndjson#priority-order/q03", "client.ndjson#priority-order/q07",
		"backend.ndjson#priority-order/q07"}
	if !slices.Equal(first.Evidence, want) || first.Counterexample == nil || first.Counterexample.Scenario != "priority-order" {
		t.Errorf("%+v", first)
	}
	if got := y.Requirements[2].Evidence; !slices.Equal(got, []string{"process.ndjson#bad-config/unknown-field"}) {
		t.Errorf("start attempt: %v", got)
	}
	if y.Requirements[1].Counterexample != nil {
		t.Error("a pass has a counterexample")
	}
}

func TestLongTablesKeepWitnesses(t *testing.T) {
	run := shareRun()
	out, left := rows(&run, map[string]bool{"r359": true, "r300": true})
	if len(out) != rowsLimit || left != 160 {
		t.Fatalf("%d rows, %d left out", len(out), left)
	}
	if last := out[len(out)-1]; last.ID != "r359" || !last.Witness || out[197].ID != "r197" {
		t.Errorf("last row %+v", last)
	}
	html := render(t, HTMLFile, sample())
	if !strings.Contains(html, "160 more requests are left out here") {
		t.Error("the page does not say what it leaves out")
	}
}

func TestTerminalAligns(t *testing.T) {
	var b bytes.Buffer
	for _, k := range verdict.Kinds() {
		_ = Terminal(&b, verdict.Result{Requirement: verdict.Requirement{ID: "FC-PRI-01", Title: "title"}, Kind: k, Figure: strings.Repeat("µ", 80)}, false)
	}
	for _, l := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		if i := strings.Index(l, "FC-PRI-01"); i != verdictColumn+2 {
			t.Errorf("id at column %d in %q", i, l)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		n      int
		want   []float64
	}{
		{0, 10, 5, []float64{0, 2, 4, 6, 8, 10}},
		{0, 0, 5, nil},
		{3, 27, 4, []float64{10, 20}},
	} {
		if got := ticks(c.lo, c.hi, c.n); !slices.Equal(got, c.want) {
			t.Errorf("ticks(%v, %v, %d) = %v, want %v", c.lo, c.hi, c.n, got, c.want)
		}
	}
}

func TestManyGroupsShareTheLastColour(t *testing.T) {
	run := evidence.Run{}
	for i := range 12 {
		run.Clients = append(run.Clients, evidence.Client{ID: fmt.Sprint(i), Tenant: fmt.Sprintf("t%02d", i)})
	}
	col := newColouring(&run)
	if e := col.entries(); len(e) != paletteSize || e[paletteSize-1] != "5 others" {
		t.Errorf("entries %v", e)
	}
	if col.class("t11") != "c7" || col.class("t00") != "c0" {
		t.Errorf("classes %s %s", col.class("t11"), col.class("t00"))
	}
}
