package submit_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/report"
	"github.com/llm-weir/weir/harness/submit"
)

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// forge edits a file of a submission and sets all its recorded hashes right, as somebody would who knows how.
func forge(t *testing.T, dir, name, old, with string) {
	t.Helper()
	change(t, dir, name, old, with)
	rehash(t, dir)
}

func rehash(t *testing.T, dir string) {
	t.Helper()
	var sub submit.Submission
	if err := yaml.Unmarshal([]byte(read(t, dir, submit.SubmissionFile)), &sub); err != nil {
		t.Fatal(err)
	}
	for i, f := range sub.Files {
		content := read(t, dir, f.Name)
		sub.Files[i].SHA256, sub.Files[i].Bytes = sha(content), int64(len(content))
		if f.Name == submit.ArchiveFile {
			sub.Evidence.ArchiveSHA256, sub.Evidence.ArchiveBytes = sub.Files[i].SHA256, sub.Files[i].Bytes
		}
	}
	sub.Self = ""
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := enc.Encode(sub); err != nil {
		t.Fatal(err)
	}
	write(t, dir, submit.SubmissionFile, buf.String()+"sha256: "+sha(buf.String())+"\n")
}

// entry is one file of an archive.
type entry struct {
	tar.Header
	content string
}

func entries(t *testing.T, dir string) []entry {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(read(t, dir, submit.ArchiveFile)))
	if err != nil {
		t.Fatal(err)
	}
	var out []entry
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if err != nil {
			break
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, entry{*h, string(content)})
	}
	return out
}

// repack writes an archive and sets the recorded hashes right.
func repack(t *testing.T, dir string, es []entry, behind string) {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	for _, e := range es {
		e.Size = int64(len(e.content))
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	buf.WriteString(behind)
	write(t, dir, submit.ArchiveFile, buf.String())
	rehash(t, dir)
}

func TestOneByteOfAnyFile(t *testing.T) {
	_, dir := submitted(t, scenes)
	for _, name := range names(t, dir) {
		content := read(t, dir, name)
		at := []int{0, len(content) / 3, len(content) / 2, len(content) - 1}
		if name == submit.SubmissionFile {
			for i := range content {
				at = append(at, i)
			}
		}
		for _, at := range at {
			b := []byte(content)
			b[at] ^= 1
			write(t, dir, name, string(b))
			if problems, _ := findings(t, suite(scenes), dir, ""); !strings.Contains(problems, name) {
				t.Errorf("byte %d of %s: %q", at, name, problems)
			}
		}
		write(t, dir, name, content+"\n")
		if problems, _ := findings(t, suite(scenes), dir, ""); !strings.Contains(problems, name) {
			t.Errorf("one byte more in %s: %q", name, problems)
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if problems, _ := findings(t, suite(scenes), dir, ""); !strings.Contains(problems, name+" is missing") {
			t.Errorf("%s is gone: %q", name, problems)
		}
		write(t, dir, name, content)
	}
	if problems, undecided := findings(t, suite(scenes), dir, ""); problems+undecided != "" {
		t.Errorf("put right again: %s %s", problems, undecided)
	}
}

func TestOneByteOfAnyEvidence(t *testing.T) {
	_, dir := submitted(t, scenes)
	es := entries(t, dir)
	if len(es) < 10 {
		t.Fatalf("the archive has %d files", len(es))
	}
	for i, e := range es {
		b := []byte(e.content)
		if len(b) == 0 {
			b = []byte{0}
		} else {
			b[len(b)/2] ^= 1
		}
		other := slices.Clone(es)
		other[i].content = string(b)
		repack(t, dir, other, "")
		want := e.Name
		if want == evidence.SealFile {
			want = evidence.ManifestFile // the seal is no evidence; what it guards is the manifest
		}
		if problems, _ := findings(t, suite(scenes), dir, ""); !strings.Contains(problems, want) {
			t.Errorf("one byte of %s: %q", e.Name, problems)
		}
		repack(t, dir, slices.Delete(slices.Clone(es), i, i+1), "")
		if problems, _ := findings(t, suite(scenes), dir, ""); problems == "" {
			t.Errorf("%s is gone, and nothing was said", e.Name)
		}
	}
	// The same holds for a bundle.
	b := bundle(t, scenes, nil)
	for _, e := range es {
		content := read(t, b, e.Name)
		write(t, b, e.Name, content+" ")
		if problems, _ := findings(t, suite(scenes), b, ""); e.Name != evidence.SealFile && !strings.Contains(problems, e.Name) {
			t.Errorf("one byte more in %s of a bundle: %q", e.Name, problems)
		}
		write(t, b, e.Name, content)
	}
}

// Whoever edits a verdict or a figure and sets every hash right is found out by the evidence, and the requirement is named.
func TestEditedVerdictsAndFigures(t *testing.T) {
	for _, c := range []struct{ says, name, old, with, want string }{
		{"a verdict for programs", report.YAMLFile, "verdict: not-applicable", "verdict: pass", "FC-HELD-01 is not-applicable by the evidence, the file says pass"},
		{"a verdict in verdicts.json", report.VerdictsFile, `"verdict": "not-applicable"`, `"verdict": "pass"`, "FC-HELD-01 is not-applicable by the evidence, the file says pass"},
		{"a verdict in Markdown", report.MarkdownFile, "– not-applicable | FC-HELD-01", "✓ pass | FC-HELD-01", "report.md: line"},
		{"a verdict in Markdown names its requirement", report.MarkdownFile, "– not-applicable | FC-HELD-01", "✓ pass | FC-HELD-01", "(at FC-HELD-01)"},
		{"a row in HTML", report.HTMLFile, `id="FC-HELD-01" data-verdict="not-applicable"`, `id="FC-HELD-01" data-verdict="pass"`, "(at FC-HELD-01)"},
		{"a row for CI", report.JUnitFile, "<skipped", "<passed", "(at FC-HELD-01)"},
		{"a figure of one requirement", report.YAMLFile, "figure: not applicable", "figure: 9 of 9", "(at FC-HELD-01)"},
		{"the figures of README.md", submit.ReadmeFile, "2 of 2 pass", "3 of 3 pass", "README.md: line"},
		{"the figures of the badge", submit.BadgeFile, "2 of 2 pass", "3 of 3 pass", "badge.svg: line"},
		{"a script in the badge", submit.BadgeFile, "</svg>", "<script>alert(1)</script></svg>", "badge.svg: line"},
		{"the figures of the head", submit.SubmissionFile, "passed: 2", "passed: 3", "submission.yaml: line"},
		{"the contract", submit.SubmissionFile, "profile: contract-1", "profile: contract-2", "submission.yaml: line"},
		{"the suite", submit.SubmissionFile, "commit: 0123abc", "commit: 0123abd", "submission.yaml: line"},
		{"the number of evidence files", submit.SubmissionFile, "\n  files: ", "\n  files: 1", "submission.yaml: the evidence has"},
		{"the seal", submit.SubmissionFile, "sealSha256: ", "sealSha256: 0", "another one than was submitted"},
		{"whose it is", submit.SubmissionFile, "project: router", "project: better", "README.md: line"},
		{"the version", submit.SubmissionFile, "version: v1.2.3", "version: latest", `"latest" is not one build`},
		{"a field more", submit.SubmissionFile, "seed: 7", "seed: 7\nnote: x", "field note not found"},
		{"a comment", submit.SubmissionFile, "seed: 7", "seed: 7 # lucky", "submission.yaml was changed: line 16"},
		{"a requirement twice", report.VerdictsFile, `"id": "FC-HELD-01"`, `"id": "FC-ONE-01"`, "FC-ONE-01 is there twice"},
		{"a requirement gone", report.YAMLFile, "id: FC-HELD-01", "id: FC-NONE-01", "FC-HELD-01 is missing"},
	} {
		_, dir := submitted(t, scenes)
		change(t, dir, c.name, c.old, c.with)
		if c.says != "a field more" && c.says != "a comment" { // which would be gone
			rehash(t, dir)
		}
		if problems, _ := findings(t, suite(scenes), dir, ""); !strings.Contains(problems, c.want) {
			t.Errorf("%s: want %q in: %s", c.says, c.want, problems)
		}
	}
}

func TestArchivesOfOthers(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	plain := func(name string) entry { return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, "x"} }
	for _, c := range []struct {
		says   string
		more   []entry
		behind string
		want   string
	}{
		{"a name that leads up", []entry{plain("../outside")}, "", "leads out"},
		{"a name that leads up from inside", []entry{plain("env/../../outside")}, "", "leads out"},
		{"an absolute name", []entry{plain(outside)}, "", "leads out"},
		{"a name of another system", []entry{plain(`..\outside`)}, "", "leads out"},
		{"a symbolic link", []entry{{tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, ""}}, "", "is a link"},
		{"a hard link", []entry{{tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "client.ndjson"}, ""}}, "", "is a link"},
		{"a device", []entry{{tar.Header{Name: "d", Typeflag: tar.TypeChar}, ""}}, "", "no regular file"},
		{"a folder", []entry{{tar.Header{Name: "d/", Typeflag: tar.TypeDir}, ""}}, "", "no regular file"},
		{"a file twice", []entry{plain("client.ndjson")}, "", "is there twice"},
		{"a file where a folder is", []entry{plain("env")}, "", "is there twice"},
		{"a file under a file", []entry{plain("client.ndjson/x")}, "", "client.ndjson/x"},
		{"a file that nobody sealed", []entry{plain("notes.txt")}, "", "notes.txt was never sealed"},
		{"records that nobody sealed", []entry{plain("more.ndjson")}, "", "more.ndjson was never sealed"},
		{"more than the submission says", []entry{{tar.Header{Name: "env/big", Typeflag: tar.TypeReg}, strings.Repeat("0", 1<<20)}}, "", "bytes unpacked"},
		{"something behind the archive", nil, "x", "after the last file"},
	} {
		root, dir := submitted(t, scenes)
		repack(t, dir, append(entries(t, dir), c.more...), c.behind)
		if problems, _ := findings(t, suite(scenes), dir, ""); !strings.Contains(problems, c.want) {
			t.Errorf("%s: want %q in: %s", c.says, c.want, problems)
		}
		for _, p := range []string{outside, filepath.Join(root, "outside"), filepath.Join(os.TempDir(), "outside")} {
			if _, err := os.Lstat(p); err == nil {
				t.Errorf("%s: %s was written", c.says, p)
			}
		}
	}
}

func TestLinksAndStrangersInASubmission(t *testing.T) {
	for _, name := range []string{submit.ReadmeFile, submit.ArchiveFile, report.HTMLFile, submit.SubmissionFile} {
		_, dir := submitted(t, scenes)
		at := filepath.Join(t.TempDir(), "real")
		if err := os.Rename(filepath.Join(dir, name), at); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(at, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if problems, _ := findings(t, suite(scenes), dir, ""); !strings.Contains(problems, name+" is a link") {
			t.Errorf("%s is a link: %q", name, problems)
		}
	}
	root, dir := submitted(t, scenes)
	write(t, dir, "notes.txt", "mine")
	if problems, _ := findings(t, suite(scenes), dir, ""); !strings.Contains(problems, "notes.txt is no part") {
		t.Errorf("a file more: %q", problems)
	}
	if err := os.Remove(filepath.Join(dir, "notes.txt")); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(root, "9.1.0", "somebody-else-v1.2.3-contract-1")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if problems, _ := findings(t, suite(scenes), root, ""); !strings.Contains(problems, "lies at another place") {
		t.Errorf("under another name: %q", problems)
	}
	if err := os.Symlink(moved, dir); err != nil {
		t.Fatal(err)
	}
	if problems, _ := findings(t, suite(scenes), root, ""); !strings.Contains(problems, "it is a link") {
		t.Errorf("a link to a submission: %q", problems)
	}
	if err := os.Remove(filepath.Join(moved, submit.SubmissionFile)); err != nil {
		t.Fatal(err)
	}
	if problems, _ := findings(t, suite(scenes), root, ""); !strings.Contains(problems, "submission.yaml is missing") {
		t.Errorf("without its head: %q", problems)
	}
}
