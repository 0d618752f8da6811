package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/submit"
)

// A run of a processor becomes a submission that everybody can verify. The whole catalogue takes a minute: a part of it is played, and is
// taken for all there is.
func TestSubmissionOfAProcessor(t *testing.T) {
	if testing.Short() {
		t.Skip("real sockets and real time")
	}
	if _, err := exec.LookPath("weir"); err != nil {
		t.Skip("weir is not on PATH: run by testscript.Main only")
	}
	t.Chdir(t.TempDir())
	const focus = "^(AP-TRN-01|AP-RETRY-02|AP-POOL-01|AP-POOL-05)$"
	var out bytes.Buffer
	c := certifyAsyncCmd{Profile: profile.DefaultProcessor, Seed: 7, Level: scenario.Core, Focus: focus, Parallel: 8, NoColor: true, Out: "run",
		Processor: "weir processor --transport-config-file {{.Config}} --metrics-port {{.MetricsPort}} --health-port {{.HealthPort}} --metrics-endpoint-auth=false"}
	if err := c.Run(&console{out: &out, err: &out, ctx: t.Context()}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	c.Focus = ""
	whole(t, "run", c.argv())
	if got := Run([]string{"report", "run"}, &out, &out); got != ExitPass {
		t.Fatal(out.String())
	}
	s := suite()
	s.Plan = func(m evidence.Manifest) (evidence.Manifest, []byte, error) { return planned(m, focus) }
	claim := submit.Claim{Organization: "example", Project: "processor", Version: "v1.2.3", URL: "https://processor.example.org/", Contact: []string{"@example"}}
	w, err := s.Submit(submit.Options{Bundle: "run", Results: "results", ArchiveLimit: 4 << 20, Claim: claim})
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join("results", Version, "example-processor-v1.2.3-llm-d-async-0.10"); w.Dir != want {
		t.Errorf("it lies in %s, want %s", w.Dir, want)
	}
	if err := submit.WriteTable("results"); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(w.Dir, submit.ReadmeFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"4 of 4 pass", " certify-async --profile llm-d-async-0.10 --seed 7 --level core --processor 'weir processor ", "command: weir processor "} {
		if !strings.Contains(string(readme), says) {
			t.Errorf("README.md does not say %q:\n%s", says, readme)
		}
	}
	verify := func(path string) string {
		found, err := s.Verify(path, "")
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, f := range found {
			text += strings.Join(append(f.Problems, f.Undecided...), "\n")
		}
		return text
	}
	for _, path := range []string{"run", "results", w.Dir, filepath.Join(w.Dir, submit.ArchiveFile)} {
		if text := verify(path); text != "" {
			t.Errorf("%s: %s", path, text)
		}
	}
	// What was seen around the processor is sealed like everything else.
	name := filepath.Join("run", "processor.ndjson")
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, bytes.Replace(raw, []byte(`"status":200`), []byte(`"status":201`), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	if text := verify("run"); !strings.Contains(text, "processor.ndjson was changed") {
		t.Errorf("an edited result: %q", text)
	}
}

// whole gives the bundle in dir the command of a run without --focus, and seals it again.
func whole(t *testing.T, dir string, argv []string) {
	t.Helper()
	name := filepath.Join(dir, evidence.ManifestFile)
	var m evidence.Manifest
	raw, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	m.Argv = argv
	if err == nil {
		raw, err = json.MarshalIndent(m, "", "  ")
	}
	if err != nil {
		t.Fatal(err)
	}
	raw = append(raw, '\n')
	sum := sha256.Sum256(raw)
	seal := hex.EncodeToString(sum[:]) + "  " + evidence.ManifestFile + "\n"
	for file, content := range map[string][]byte{name: raw, filepath.Join(dir, evidence.SealFile): []byte(seal)} {
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
