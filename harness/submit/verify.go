package submit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/report"
	"github.com/llm-weir/weir/harness/verdict"
)

// fileLimit bounds a file of a submission beside the archive, in bytes.
const fileLimit = 256 << 20

// Finding is what became of one bundle, submission or table.
type Finding struct {
	Path string
	Says string // verdict and figures as computed here; "" where nothing could be judged
	// Problems are what is not as it is said to be, or may not be claimed. Undecided is what could not be compared here.
	Problems  []string
	Undecided []string
	archive   bool // the evidence comes from an archive
}

func (f *Finding) problem(format string, args ...any) {
	f.Problems = append(f.Problems, fmt.Sprintf(format, args...))
}

// differs takes differences from what this program computes. Another program may have computed something else in good faith.
func (f *Finding) differs(differences []string, same bool, origin string) {
	if same {
		f.Problems = append(f.Problems, differences...)
		return
	}
	for _, d := range differences {
		f.Undecided = append(f.Undecided, d+" ("+origin+")")
	}
}

// Verify looks at a bundle (folder or archive), a submission, or all submissions under a folder and their table. bundle is where the
// evidence of a submission is that does not contain it; "" where that is not needed. An error is a path with none of them.
func (s Suite) Verify(path, bundle string) ([]Finding, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	switch {
	case info.Mode().IsRegular():
		return []Finding{s.verifyArchive(path)}, nil
	case !info.IsDir():
		return nil, fmt.Errorf("%s: no folder and no archive", path)
	case exists(filepath.Join(path, evidence.ManifestFile)):
		return []Finding{s.verifyBundle(path)}, nil
	case exists(filepath.Join(path, SubmissionFile)) || strayed(path):
		return []Finding{s.verifySubmission(path, bundle)}, nil
	}
	return s.verifyAll(path, bundle)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// strayed tells whether a folder looks like a submission whose head is gone.
func strayed(dir string) bool {
	return slices.ContainsFunc([]string{ArchiveFile, BadgeFile, report.YAMLFile, report.VerdictsFile}, func(n string) bool { return exists(filepath.Join(dir, n)) })
}

func (s Suite) verifyBundle(dir string) Finding {
	f := Finding{Path: dir}
	if b, results := s.examine(dir, &f); b != nil {
		f.compareReports(b, s.input(b, results), s.same(b.Manifest))
	}
	return f
}

func (s Suite) verifyArchive(path string) Finding {
	f := Finding{Path: path, archive: true}
	dir, err := unpacked(path, unpackedLimit)
	if err != nil {
		f.problem("%v", err)
		return f
	}
	defer os.RemoveAll(dir)
	s.examine(dir, &f)
	return f
}

// unpacked puts an archive into a new temporary folder, which the caller removes.
func unpacked(path string, limit int64) (string, error) {
	a, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer a.Close()
	dir, err := os.MkdirTemp("", "weir-verify-*")
	if err != nil {
		return "", err
	}
	if err := unpack(a, dir, limit); err != nil {
		return "", errors.Join(fmt.Errorf("%s: %w", filepath.Base(path), err), os.RemoveAll(dir))
	}
	return dir, nil
}

// compareReports compares the reports that lie beside the evidence with the ones it gives. Absent ones are no loss: they can be written
// again.
func (f *Finding) compareReports(b *evidence.Bundle, in report.Input, same bool) {
	for _, r := range reportFiles {
		if !exists(filepath.Join(b.Dir, r.name)) {
			continue
		}
		got, err := readFile(b.Dir, r.name, fileLimit)
		var want bytes.Buffer
		if err = errors.Join(err, r.write(&want, in)); err != nil {
			f.problem("%s: %v", r.name, err)
			continue
		}
		f.compare(r.name, want.Bytes(), got, in.Results, same, "written by "+b.Manifest.Tool+" ("+b.Manifest.Commit+"): weir report writes it again")
	}
}

// compare compares one file with the one that the evidence gives.
func (f *Finding) compare(name string, want, got []byte, results []verdict.Result, same bool, origin string) {
	if bytes.Equal(want, got) {
		return
	}
	f.Problems = append(f.Problems, misjudged(name, got, results)...)
	f.differs([]string{difference(name, want, got, results)}, same, origin)
}

// verifySubmission checks hashes, evidence, verdicts and texts of one submission.
func (s Suite) verifySubmission(dir, bundle string) Finding {
	f := Finding{Path: dir, archive: true}
	sub, err := readSubmission(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New(SubmissionFile + " is missing")
		}
		f.problem("%v", err)
		return f
	}
	files := f.hashes(dir, sub)
	f.Problems = append(f.Problems, sub.Implementation.problems()...)
	evidenceDir, done := f.evidence(dir, bundle, sub.Evidence)
	defer done()
	if evidenceDir == "" {
		f.alone(sub, files)
		return f
	}
	b, results := s.examine(evidenceDir, &f)
	if b == nil {
		return f
	}
	f.sealed(b, sub.Evidence)
	claim, wrong := sub.Implementation.complete(b.Manifest)
	for _, w := range wrong {
		if !slices.Contains(f.Problems, w) {
			f.Problems = append(f.Problems, w)
		}
	}
	want := s.submission(b, results, claim, sub.Evidence, sub.Replaced)
	want.Files = sub.Files
	rendered, err := s.render(b, results, want)
	if err != nil {
		f.problem("%v", err)
		return f
	}
	if rendered[SubmissionFile], err = want.encode(); err != nil {
		f.problem("%v", err)
	}
	if files[SubmissionFile], err = sub.encode(); err != nil {
		f.problem("%v", err)
	}
	for _, name := range ordered(rendered) {
		if got, ok := files[name]; ok {
			f.compare(name, rendered[name], got, results, s.same(b.Manifest), s.origin(b.Manifest))
		}
	}
	return f
}

// hashes compares every file of a submission with its recorded hash and gives what they contain, but for the archive.
func (f *Finding) hashes(dir string, sub Submission) map[string][]byte {
	content, listed := map[string][]byte{}, map[string]bool{SubmissionFile: true}
	for _, e := range sub.Files {
		listed[e.Name] = true
		if e.Name != filepath.Base(e.Name) || e.Name == SubmissionFile {
			f.problem("%s: %q is no name of a file beside it", SubmissionFile, e.Name)
			continue
		}
		limit := int64(fileLimit)
		if e.Name == ArchiveFile {
			limit = unpackedLimit
		}
		sum, size, got, err := hashFile(dir, e.Name, limit, e.Name != ArchiveFile)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			f.problem("%s is missing", e.Name)
		case err != nil:
			f.problem("%v", err)
		default:
			if sum != e.SHA256 || size != e.Bytes {
				f.problem("%s was changed: it is not the file of %d bytes that %s lists", e.Name, e.Bytes, SubmissionFile)
			}
			if e.Name != ArchiveFile {
				content[e.Name] = got
			}
		}
	}
	for _, name := range append([]string{ReadmeFile, BadgeFile, sub.Evidence.Archive}, reportNames()...) {
		if name != "" && !listed[name] {
			f.problem("%s does not list %s", SubmissionFile, name)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		f.problem("%v", err)
	}
	for _, e := range entries {
		if !listed[e.Name()] {
			f.problem("%s is no part of the submission: take it away", e.Name())
		}
	}
	return content
}

func reportNames() []string {
	var out []string
	for _, r := range reportFiles {
		out = append(out, r.name)
	}
	return out
}

// hashFile gives the sha256 and the size of a regular file, and its content where that is kept.
func hashFile(dir, name string, limit int64, keep bool) (sum string, size int64, content []byte, err error) {
	if keep {
		content, err = readFile(dir, name, limit)
		return digest(content), int64(len(content)), content, err
	}
	p := filepath.Join(dir, name)
	info, err := os.Lstat(p)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is a link or no regular file", name)
	}
	if err != nil {
		return "", 0, nil, err
	}
	file, err := os.Open(p)
	if err != nil {
		return "", 0, nil, err
	}
	defer file.Close()
	h := sha256.New()
	size, err = io.Copy(h, io.LimitReader(file, limit))
	return hex.EncodeToString(h.Sum(nil)), size, nil, err
}

// evidence finds the evidence of a submission and gives its folder, "" where it is not to be had; done removes what was unpacked.
func (f *Finding) evidence(dir, bundle string, e Evidence) (evidenceDir string, done func()) {
	done = func() {}
	path := bundle
	switch {
	case e.Archive == ArchiveFile:
		path = filepath.Join(dir, ArchiveFile)
	case e.Archive != "":
		f.problem("%s: the archive must be called %s", SubmissionFile, ArchiveFile)
		return "", done
	case !webAddress(e.URL):
		f.problem("%s: the evidence is neither here nor at an address", SubmissionFile)
		return "", done
	case bundle == "":
		f.Undecided = append(f.Undecided, fmt.Sprintf("the evidence is not here: get it from %s and name it with --bundle", e.URL))
		return "", done
	}
	info, err := os.Stat(path)
	if err != nil {
		f.problem("evidence: %v", err)
		return "", done
	}
	if info.IsDir() {
		f.archive = false
		return path, done
	}
	sum, size, _, err := hashFile(filepath.Dir(path), filepath.Base(path), unpackedLimit, false)
	if err != nil {
		f.problem("evidence: %v", err)
		return "", done
	}
	if sum != e.ArchiveSHA256 || size != e.ArchiveBytes {
		f.problem("%s is not the archive of %d bytes with sha256 %s that %s names", filepath.Base(path), e.ArchiveBytes, e.ArchiveSHA256, SubmissionFile)
	}
	// A little more than is said, so that what is too much can be named.
	unpackedTo, err := unpacked(path, min(e.Bytes, unpackedLimit)+64<<10)
	if err != nil {
		f.problem("%v", err)
		return "", done
	}
	return unpackedTo, func() { os.RemoveAll(unpackedTo) }
}

// sealed compares the evidence with what the submission says of it.
func (f *Finding) sealed(b *evidence.Bundle, e Evidence) {
	raw, err := os.ReadFile(filepath.Join(b.Dir, evidence.ManifestFile))
	if err != nil {
		f.problem("evidence: %v", err)
		return
	}
	if digest(raw) != e.Seal {
		f.problem("the evidence is another one than was submitted: %s has not the sha256 %s that %s names", evidence.ManifestFile, e.Seal, SubmissionFile)
	}
	n, size := 1, int64(len(raw))
	for _, file := range append([]evidence.FileEntry{{Name: evidence.SealFile}}, b.Manifest.Files...) {
		n++
		info, err := os.Stat(filepath.Join(b.Dir, filepath.FromSlash(file.Name)))
		if err != nil {
			f.problem("evidence: %v", err)
			continue
		}
		size += info.Size()
	}
	if n != e.Files || size != e.Bytes {
		f.problem("%s: the evidence has %d files of %d bytes, not %d of %d", SubmissionFile, n, size, e.Files, e.Bytes)
	}
}

// alone looks at a submission whose evidence is not at hand: its parts must at least say the same.
func (f *Finding) alone(sub Submission, files map[string][]byte) {
	said, err := verdictsIn(report.VerdictsFile, files[report.VerdictsFile])
	short, errShort := verdictsIn(report.YAMLFile, files[report.YAMLFile])
	if err := errors.Join(err, errShort); err != nil {
		f.problem("%v", err)
	}
	for id, word := range said {
		if short[id] != word {
			f.problem("%s is %s in %s and %s in %s", id, report.Line(word), report.VerdictsFile, report.Line(short[id]), report.YAMLFile)
		}
	}
	if got, ok := files[BadgeFile]; ok && !bytes.Equal(got, badge(sub)) {
		f.problem("%s does not show what %s says", BadgeFile, SubmissionFile)
	}
	slices.Sort(f.Problems)
}

func ordered(files map[string][]byte) []string {
	var names []string
	for n := range files {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// verifyAll looks at every submission under a folder, and at the table of the folder where it has one.
func (s Suite) verifyAll(root, bundle string) ([]Finding, error) {
	if bundle != "" {
		return nil, errors.New("--bundle is the evidence of one submission: name that one")
	}
	var out []Finding
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Type()&fs.ModeSymlink != 0:
			out = append(out, Finding{Path: p, Problems: []string{"it is a link: nothing behind it was looked at"}})
			return nil
		case !d.IsDir() || !exists(filepath.Join(p, SubmissionFile)) && !strayed(p):
			return nil
		}
		f := s.verifySubmission(p, "")
		if sub, err := readSubmission(p); err == nil {
			want := filepath.Join(slug(sub.Suite.Version), sub.Implementation.folder(evidence.Manifest{Profile: sub.Profile}))
			if !strings.HasSuffix(filepath.ToSlash(p), "/"+filepath.ToSlash(want)) {
				f.problem("it lies at another place than %s", want)
			}
		}
		out = append(out, f)
		return filepath.SkipDir
	})
	if err != nil {
		return nil, err
	}
	table, ok, err := s.checkTable(root)
	if err != nil {
		return nil, err
	}
	if len(out) == 0 && !ok {
		return nil, fmt.Errorf("%s: neither a bundle (%s), nor a submission (%s), nor a folder with some", root, evidence.ManifestFile, SubmissionFile)
	}
	if ok {
		out = append(out, table)
	}
	return out, nil
}
