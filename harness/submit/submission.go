package submit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/report"
	"github.com/llm-weir/weir/harness/verdict"
)

// Names of the files of a submission beside the reports.
const (
	SubmissionFile = "submission.yaml"
	ReadmeFile     = "README.md"
	BadgeFile      = "badge.svg"
	ArchiveFile    = "bundle.tar.gz"
)

// Kind names the schema of submission.yaml; its apiVersion is that of report.yaml.
const Kind = "ConformanceSubmission"

// Submission is submission.yaml: the head of a submission.
type Submission struct {
	APIVersion     string     `yaml:"apiVersion"`
	Kind           string     `yaml:"kind"`
	Implementation Claim      `yaml:"implementation"`
	Suite          SuiteName  `yaml:"suite"`
	Profile        string     `yaml:"profile"`
	Level          string     `yaml:"level"`
	Environment    string     `yaml:"environment"`
	Seed           uint64     `yaml:"seed"`
	RunID          string     `yaml:"runId"`
	Date           string     `yaml:"date,omitempty"` // of the run; none in virtual time
	Result         Figures    `yaml:"result"`
	Evidence       Evidence   `yaml:"evidence"`
	Replaced       []Replaced `yaml:"replaced,omitempty"`
	Files          []File     `yaml:"files"`            // all others, sorted by name
	Self           string     `yaml:"sha256,omitempty"` // of this file without this line
}

// SuiteName is the suite that made and judged the run.
type SuiteName struct {
	Version string `yaml:"version"`
	Commit  string `yaml:"commit"`
}

// Evidence says where the evidence is and by which hashes it is known.
type Evidence struct {
	Seal          string `yaml:"sealSha256"` // of manifest.json, which has the hash of every other file
	Files         int    `yaml:"files"`
	Bytes         int64  `yaml:"bytes"`             // unpacked
	Archive       string `yaml:"archive,omitempty"` // file of the submission; "": it is at URL
	URL           string `yaml:"url,omitempty"`
	ArchiveSHA256 string `yaml:"archiveSha256"`
	ArchiveBytes  int64  `yaml:"archiveBytes"`
}

// Figures are the verdict of a run and its counts over the levels that a claim is about.
type Figures struct {
	Verdict       string `yaml:"verdict"`
	Applicable    int    `yaml:"applicable"`
	Passed        int    `yaml:"passed"`
	Failed        int    `yaml:"failed"`
	NotApplicable int    `yaml:"notApplicable"`
}

func (f Figures) String() string { return f.Verdict + ": " + f.Counts() }

// Counts are the figures without the verdict.
func (f Figures) Counts() string {
	s := fmt.Sprintf("%d of %d pass", f.Passed, f.Applicable)
	if f.NotApplicable > 0 {
		s += fmt.Sprintf(", %d not applicable", f.NotApplicable)
	}
	return s
}

// Replaced is an earlier submission of the same name.
type Replaced struct {
	Seal string `yaml:"sealSha256"`
	Why  string `yaml:"why"`
}

// File is one file of a submission.
type File struct {
	Name   string `yaml:"name"`
	SHA256 string `yaml:"sha256"`
	Bytes  int64  `yaml:"bytes"`
}

// figures counts the results of a run.
func figures(in report.Input) Figures {
	f := Figures{Verdict: in.Verdict().String()}
	for _, r := range in.Results {
		switch {
		case !slices.Contains(counted, r.Level):
			continue
		case r.Kind == verdict.NotApplicable:
			f.NotApplicable++
			continue
		case r.Kind == verdict.Pass:
			f.Passed++
		case r.Kind == verdict.Fail:
			f.Failed++
		}
		f.Applicable++
	}
	return f
}

// submission is the head without the list of files.
func (s Suite) submission(b *evidence.Bundle, results []verdict.Result, c Claim, ev Evidence, replaced []Replaced) Submission {
	m := b.Manifest
	return Submission{APIVersion: report.APIVersion, Kind: Kind, Implementation: c,
		Suite:   SuiteName{Version: strings.TrimPrefix(m.Tool, "weir "), Commit: m.Commit},
		Profile: m.Profile, Level: m.Level, Environment: m.Environment, Seed: m.Seed, RunID: m.RunID, Date: m.Created,
		Result: figures(s.input(b, results)), Evidence: ev, Replaced: replaced}
}

// list writes the names and hashes of files down.
func (sub *Submission) list(files map[string][]byte) {
	sub.Files = nil
	for name, content := range files {
		sub.Files = append(sub.Files, File{Name: name, SHA256: digest(content), Bytes: int64(len(content))})
	}
	slices.SortFunc(sub.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
}

// encode writes submission.yaml, with the hash of its own lines as the last one.
func (sub Submission) encode() ([]byte, error) {
	sub.Self = ""
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := enc.Encode(sub); err != nil {
		return nil, err
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	return append(buf.Bytes(), "sha256: "+digest(buf.Bytes())+"\n"...), nil
}

// readSubmission reads submission.yaml of a folder. It must be written as encode writes it: one form, so that a byte counts.
func readSubmission(dir string) (Submission, error) {
	var sub Submission
	raw, err := readFile(dir, SubmissionFile, 1<<20)
	if err != nil {
		return sub, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&sub); err != nil {
		return sub, fmt.Errorf("%s: %w", SubmissionFile, err)
	}
	if sub.APIVersion != report.APIVersion || sub.Kind != Kind {
		return sub, fmt.Errorf("%s: it is %q %q, not %q %q", SubmissionFile, sub.APIVersion, sub.Kind, report.APIVersion, Kind)
	}
	again, err := sub.encode()
	if err != nil {
		return sub, err
	}
	if !bytes.Equal(raw, again) {
		return sub, fmt.Errorf("%s was changed: line %d is not as weir writes it", SubmissionFile, differs(again, raw))
	}
	return sub, nil
}

// readFile reads a regular file of a folder up to limit bytes.
func readFile(dir, name string, limit int64) ([]byte, error) {
	p := filepath.Join(dir, name)
	info, err := os.Lstat(p)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is a link or no regular file", name)
	}
	f, err := os.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if int64(len(content)) > limit {
		err = errors.Join(err, fmt.Errorf("%s has more than %d bytes", name, limit))
	}
	return content, err
}
