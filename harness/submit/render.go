package submit

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/report"
	"github.com/llm-weir/weir/harness/verdict"
)

// reportFiles are the reports and who writes them.
var reportFiles = []struct {
	name  string
	write func(io.Writer, report.Input) error
}{
	{report.VerdictsFile, report.VerdictsJSON}, {report.YAMLFile, report.YAML}, {report.JUnitFile, report.JUnit},
	{report.MarkdownFile, report.Markdown}, {report.HTMLFile, report.HTML},
}

// render makes every file of a submission that follows from evidence and claim: all but the archive and submission.yaml.
func (s Suite) render(b *evidence.Bundle, results []verdict.Result, sub Submission) (map[string][]byte, error) {
	in := s.input(claimed(b, sub.Implementation), results)
	files := map[string][]byte{BadgeFile: badge(sub), ReadmeFile: readme(in, sub)}
	for _, f := range reportFiles {
		var buf bytes.Buffer
		if err := f.write(&buf, in); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		files[f.name] = buf.Bytes()
	}
	return files, nil
}

// claimed is the bundle with the claimant's name in its head; what was declared stays.
func claimed(b *evidence.Bundle, c Claim) *evidence.Bundle {
	named := *b
	i := &named.Manifest.Implementation
	i.Organization, i.Project, i.Version, i.URL, i.Contact = c.Organization, c.Project, c.Version, c.URL, c.Contact
	return &named
}

// readme is README.md of a submission.
func readme(in report.Input, sub Submission) []byte {
	var b strings.Builder
	m, c := in.Bundle.Manifest, sub.Implementation
	lit := report.Literal
	fmt.Fprintf(&b, "# %s %s %s\n\n", lit(c.Organization), lit(c.Project), lit(c.Version))
	fmt.Fprintf(&b, "![weir %s, %s %s: %s](%s)\n\n", lit(sub.Suite.Version), lit(m.Profile), lit(m.Level), sub.Result, BadgeFile)
	fmt.Fprintf(&b, "**%s** against the contract %s at level %s: %s", strings.ToUpper(sub.Result.Verdict), lit(m.Profile), lit(m.Level), sub.Result.Counts())
	if sub.Result.Failed > 0 {
		fmt.Fprintf(&b, ", %d fail", sub.Result.Failed)
	}
	b.WriteString(". This file is written by `weir submit` and compared with the evidence by `weir verify`.\n\n")
	table(&b, [][2]string{
		{"project", c.URL}, {"contact", strings.Join(c.Contact, ", ")}, {"suite", "weir " + sub.Suite.Version + ", " + builtFrom(sub)},
		{"contract, level", m.Profile + ", " + m.Level}, {"the reference is set to", referenceProfile(m)}, {"environment", place(m)}, {"seed", strconv.FormatUint(m.Seed, 10)},
		{"run", m.RunID}, {"date", m.Created}, {"declared features", strings.Join(m.Implementation.Features, ", ")}, {"tolerances of its own", spoken(tolerances(m.Tolerances))},
	})
	b.WriteString("\nReports: [for people](" + report.HTMLFile + "), [as text](" + report.MarkdownFile + "), [short, for programs](" + report.YAMLFile +
		"), [for CI](" + report.JUnitFile + "), [every verdict](" + report.VerdictsFile + ").\n")
	list(&b, in, "## What failed", verdict.Fail)
	list(&b, in, "## Not applicable", verdict.NotApplicable)
	notClaimed(&b, m)
	evidenceSection(&b, sub)
	reproduce(&b, in, sub)
	return []byte(b.String())
}

// table is a table of names and values; a row without a value is left out.
func table(b *strings.Builder, rows [][2]string) {
	b.WriteString("| | |\n|---|---|\n")
	for _, r := range rows {
		if r[1] != "" {
			fmt.Fprintf(b, "| %s | %s |\n", r[0], report.Literal(r[1]))
		}
	}
}

// list names the rows of a kind with what was seen of them.
func list(b *strings.Builder, in report.Input, title string, k verdict.Kind) {
	first := true
	for _, r := range in.Results {
		if r.Kind != k {
			continue
		}
		if first {
			fmt.Fprintf(b, "\n%s\n\n| id | level | seen | why |\n|---|---|---|---|\n", title)
			first = false
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", report.Literal(r.ID), report.Literal(r.Level), report.Literal(r.Figure), report.Literal(r.Why))
	}
}

func notClaimed(b *strings.Builder, m evidence.Manifest) {
	b.WriteString("\n## Not claimed\n\nVerdicts rest on " + report.ClaimBoundary + ". Nothing is claimed about requirements outside the report")
	if n := len(m.Unjudged); n > 0 {
		fmt.Fprintf(b, ", among them %d that the level asks for and that no scenario looks at: %s", n, report.Literal(strings.Join(m.Unjudged, ", ")))
	}
	b.WriteString(", about the answers of models, or about other versions and configurations")
	if m.Clock == "virtual" {
		b.WriteString(", nor about latency and throughput: time was virtual")
	}
	b.WriteString(".\n")
}

func evidenceSection(b *strings.Builder, sub Submission) {
	e := sub.Evidence
	b.WriteString("\n## Evidence\n\n")
	where := fmt.Sprintf("[%s](%s)", e.Archive, e.Archive)
	if e.Archive == "" {
		where = "<" + e.URL + ">"
	}
	fmt.Fprintf(b, "%d files of %d bytes, sealed before anybody judged: %s, %d bytes.\n\n", e.Files, e.Bytes, where, e.ArchiveBytes)
	fmt.Fprintf(b, "| sha256 of | |\n|---|---|\n| the seal (`%s`, which has the hash of every file) | `%s` |\n| the archive | `%s` |\n", evidence.ManifestFile, e.Seal, e.ArchiveSHA256)
	for _, r := range sub.Replaced {
		fmt.Fprintf(b, "\nIt takes the place of the evidence sealed as `%s`: %s\n", r.Seal, report.Literal(r.Why))
	}
}

func reproduce(b *strings.Builder, in report.Input, sub Submission) {
	m, c := in.Bundle.Manifest, sub.Implementation
	b.WriteString("\n## Reproduce\n\n")
	fmt.Fprintf(b, "With weir %s, %s", report.Literal(sub.Suite.Version), report.Literal(builtFrom(sub)))
	if m.Host.Go != "" {
		fmt.Fprintf(b, ", built with %s (%s/%s, %d CPUs)", report.Literal(m.Host.Go), report.Literal(m.Host.OS), report.Literal(m.Host.Arch), m.Host.CPUs)
	}
	fmt.Fprintf(b, ", and %s %s from <%s>, seed %d, contract %s:\n\n", report.Literal(c.Project), report.Literal(c.Version), c.URL, m.Seed, report.Literal(m.Profile))
	b.WriteString(report.Block(in.Command))
	if m.Command != "" {
		b.WriteString("\nWhat was started as the run knew it, in the form of a descriptor:\n\n" + report.Block(descriptor(m)))
	}
	if m.Clock == "virtual" {
		b.WriteString("\nTime is virtual: the same commit and seed give a bundle with the same seal.\n")
	}
	verify := "weir verify ."
	if sub.Evidence.Archive == "" {
		verify += " --bundle " + ArchiveFile
	}
	b.WriteString("\nThe same verdicts, figures and texts again from this evidence alone, in this folder:\n\n" + report.Block(verify))
}

// descriptor writes down what a manifest knows of the picker that was judged, as --sut reads it.
func descriptor(m evidence.Manifest) string {
	d := struct {
		evidence.Implementation `yaml:",inline"`
		Command                 string            `yaml:"command"`
		Tolerances              map[string]string `yaml:"tolerances,omitempty"`
	}{m.Implementation, m.Command, map[string]string{}}
	for _, t := range tolerances(m.Tolerances) {
		d.Tolerances[t[0]] = t[1]
	}
	text, err := yaml.Marshal(d)
	if err != nil {
		return m.Command
	}
	return strings.TrimSuffix(string(text), "\n")
}

func referenceProfile(m evidence.Manifest) string {
	if m.ReferenceProfile == m.Profile {
		return ""
	}
	return m.ReferenceProfile
}

// builtFrom names the commit of the suite, as far as its build says.
func builtFrom(sub Submission) string {
	if sub.Suite.Commit == unknown {
		return "of a build that does not say from which commit"
	}
	return "commit " + sub.Suite.Commit
}

// place is where the system ran.
func place(m evidence.Manifest) string {
	if m.Clock == "virtual" {
		return m.Environment + " (virtual time, no sockets)"
	}
	return fmt.Sprintf("%s (%s/%s, %d CPUs)", m.Environment, m.Host.OS, m.Host.Arch, m.Host.CPUs)
}

// tolerances are the names and values of those that are set.
func tolerances(t *evidence.Tolerances) [][2]string {
	if t == nil {
		return nil
	}
	var out [][2]string
	for _, f := range []struct {
		name string
		ns   int64
	}{{"slack", t.SlackNs}, {"staleness", t.StalenessNs}, {"ttlLate", t.TTLLateNs}} {
		if f.ns != 0 {
			out = append(out, [2]string{f.name, time.Duration(f.ns).String()})
		}
	}
	return out
}

// spoken is a list of names and values on one line.
func spoken(pairs [][2]string) string {
	var out []string
	for _, p := range pairs {
		out = append(out, p[0]+" "+p[1])
	}
	return strings.Join(out, ", ")
}
