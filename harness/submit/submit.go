// Package submit publishes a judged bundle as a submission, and says whether a published one still holds.
//
//	bundle --refusals--> DIR/<suite version>/<implementation>/   submission.yaml   who, what is claimed, the hash of every file
//	                                                             README.md         result, evidence, Reproduce
//	                                                             badge.svg         suite, contract, figures
//	                                                             report.*, junit.xml, verdicts.json
//	                                                             bundle.tar.gz     the evidence, or only its hash and where to get it
//	submission --Verify--> every hash, the verdicts and every text again from the evidence
//
// Nothing in a submission is taken on trust but who submits it: whatever can be computed from the evidence is computed again, and the
// plan of the run is compared with the one that this suite has for that contract, level and seed. Negative results may be published;
// what was left out, broke or stayed undecided may not be claimed.
package submit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/report"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/verdict"
)

// Suite is what the running program knows of itself.
type Suite struct {
	Version string // its own version, without the program's name
	Commit  string // the revision it was built from, "unknown" where the build does not say
	Rows    []verdict.Requirement
	// Plan is the manifest and the plan file that an unabridged run of m's contract, level, environment and seed has.
	Plan func(m evidence.Manifest) (evidence.Manifest, []byte, error)
	// Command writes an argv for a shell.
	Command func(argv []string) string
}

// Tool is the suite as manifests name it.
func (s Suite) Tool() string { return "weir " + s.Version }

// counted are the levels that a claim is about. Informative rows are reported and claim nothing.
var counted = []string{"core", "extended", "experimental"}

// Options is what somebody submits.
type Options struct {
	Bundle  string // folder
	Results string // folder of all submissions
	Claim   Claim
	// ArchiveLimit is the size in bytes up to which the evidence is part of the submission. Above it only hashes are, and BundleURL must
	// say where the archive can be had. A repository of results stays small, or the evidence stays at hand: both is not to be had.
	ArchiveLimit int64
	BundleURL    string
	Replace      string // why an earlier submission of the same name is replaced; "": it is not
}

// ArchiveLimit is the default of Options.ArchiveLimit.
const ArchiveLimit = 4 << 20

// RefusedError is a submission that may not be made, with everything that stands against it.
type RefusedError struct{ Problems []string }

func (e *RefusedError) Error() string {
	return "not submitted:\n  " + strings.Join(e.Problems, "\n  ")
}

// Written is a submission that was made.
type Written struct {
	Dir     string
	Archive string // file to publish where the evidence is not part of the submission; "" otherwise
	Says    string // verdict and figures
}

// Submit writes a submission, or says everything that stands against it (*RefusedError). Nothing is left behind then.
func (s Suite) Submit(o Options) (Written, error) {
	if o.ArchiveLimit == 0 {
		o.ArchiveLimit = ArchiveLimit
	}
	b, results, problems, err := s.admit(o)
	if err != nil {
		return Written{}, err
	}
	claim, wrong := o.Claim.complete(b.Manifest)
	problems = append(problems, wrong...)
	dir := filepath.Join(o.Results, slug(s.Version), claim.folder(b.Manifest))
	var replaced []Replaced
	if len(wrong) == 0 {
		replaced, wrong = earlier(dir, o)
		problems = append(problems, wrong...)
	}
	tmp, err := os.MkdirTemp("", "weir-submit-*")
	if err != nil {
		return Written{}, err
	}
	defer os.RemoveAll(tmp)
	archive := filepath.Join(tmp, ArchiveFile)
	packed, err := pack(b, archive)
	if err != nil {
		return Written{}, fmt.Errorf("archive: %w", err)
	}
	w := Written{Dir: dir}
	ev := Evidence{Seal: packed.seal, Files: packed.files, Bytes: packed.bytes, ArchiveSHA256: packed.sum, ArchiveBytes: packed.size}
	switch {
	case packed.size <= o.ArchiveLimit:
		ev.Archive = ArchiveFile
	case !webAddress(o.BundleURL):
		problems = append(problems, fmt.Sprintf("the archive of the evidence has %d bytes, above the limit of %d: name the address at which you will publish it with --bundle-url",
			packed.size, o.ArchiveLimit))
	default:
		ev.URL, w.Archive = o.BundleURL, filepath.Clean(o.Bundle)+".tar.gz"
	}
	if len(problems) > 0 {
		return Written{}, &RefusedError{problems}
	}
	if w.Archive != "" {
		if err := keepArchive(archive, w.Archive); err != nil {
			return Written{}, err
		}
	}
	sub := s.submission(b, results, claim, ev, replaced)
	files, err := s.render(b, results, sub)
	if err != nil {
		return Written{}, err
	}
	w.Says = sub.Result.String()
	return w, write(dir, archive, sub, files)
}

// admit opens and judges the bundle and lists what stands against claiming anything from it.
func (s Suite) admit(o Options) (*evidence.Bundle, []verdict.Result, []string, error) {
	if _, err := os.Stat(filepath.Join(o.Bundle, evidence.ManifestFile)); err != nil {
		return nil, nil, nil, fmt.Errorf("no bundle in %s: %w", o.Bundle, err)
	}
	f := Finding{Path: o.Bundle}
	b, results := s.examine(o.Bundle, &f)
	if b == nil {
		// Without evidence nothing but the claim can be looked at.
		_, wrong := o.Claim.complete(evidence.Manifest{})
		return nil, nil, nil, &RefusedError{append(f.Problems, wrong...)}
	}
	f.compareReports(b, s.input(b, results), s.same(b.Manifest))
	problems := slices.Concat(f.Problems, f.Undecided)
	if b.Manifest.Tool != s.Tool() {
		problems = append(problems, fmt.Sprintf("the bundle was made by %q, this is %q: submit it with the version that made it, or certify again", b.Manifest.Tool, s.Tool()))
	}
	links, err := notRegular(o.Bundle, b.Manifest)
	return b, results, append(problems, links...), err
}

// judge gives the results of a bundle.
func (s Suite) judge(b *evidence.Bundle) []verdict.Result {
	return verdict.Summarize(run.Requirements(b.Manifest, s.Rows), run.Judge(b))
}

// input is what the reports of a bundle are made of.
func (s Suite) input(b *evidence.Bundle, results []verdict.Result) report.Input {
	return report.Input{Bundle: b, Results: results, Overall: verdict.Overall(results, counted...), Command: s.Command(b.Manifest.Argv), Date: b.Manifest.Created}
}

// earlier looks for a submission of the same name.
func earlier(dir string, o Options) ([]Replaced, []string) {
	_, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if o.Replace != "" {
			return nil, []string{"--replace: there is nothing to replace at " + dir + ": leave it out"}
		}
		return nil, nil
	}
	if err != nil {
		return nil, []string{err.Error()}
	}
	if o.Replace == "" {
		return nil, []string{dir + " exists, and nothing is overwritten: submit another version, or say with --replace why this one takes its place"}
	}
	old, err := readSubmission(dir)
	if err != nil {
		return nil, []string{"--replace: what is there is no submission, remove it by hand: " + err.Error()}
	}
	if reason := text("--replace", o.Replace, longText); reason != "" {
		return nil, []string{reason}
	}
	return append(old.Replaced, Replaced{Seal: old.Evidence.Seal, Why: o.Replace}), nil
}

// keepArchive puts the archive where its owner finds it. The same archive may lie there already; another is not overwritten.
func keepArchive(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.WriteFile(to, content, 0o644)
	case err != nil:
		return err
	case digest(old) != digest(content):
		return fmt.Errorf("%s exists and is another archive: move it away", to)
	}
	return nil
}

// write lays the submission down beside its place and moves it there, so that there is never half of one.
func write(dir, archive string, sub Submission, files map[string][]byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("results folder: %w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".submitting-*")
	if err != nil {
		return fmt.Errorf("results folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	next, old := filepath.Join(tmp, "new"), filepath.Join(tmp, "old")
	if err := os.Mkdir(next, 0o755); err != nil {
		return err
	}
	if sub.Evidence.Archive != "" {
		content, err := os.ReadFile(archive)
		if err != nil {
			return err
		}
		files[ArchiveFile] = content
	}
	sub.list(files)
	if files[SubmissionFile], err = sub.encode(); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(next, name), content, 0o644); err != nil {
			return err
		}
	}
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(next, dir); err != nil {
		return errors.Join(err, os.Rename(old, dir))
	}
	return nil
}
