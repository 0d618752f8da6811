package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/report"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/submit"
	"github.com/llm-weir/weir/harness/sut"
)

type submitCmd struct {
	Bundle       string   `arg:"" type:"path" help:"Folder of the bundle."`
	Results      string   `type:"path" default:"results" help:"Folder of all submissions; this one goes to DIR/SUITE VERSION/IMPLEMENTATION."`
	Organization string   `help:"Who makes it. Default: what the descriptor of the run says; the same holds for the next four."`
	Project      string   `help:"What it is."`
	Version      string   `help:"Release tag or commit of what was certified; no branch, no moving name."`
	URL          string   `name:"url" help:"Where the project is found."`
	Contact      []string `help:"E-mail address, web address or @handle that answers questions; several with commas."`
	ArchiveLimit int64    `name:"archive-limit-kib" default:"4096" help:"Size up to which the evidence becomes part of the submission, as an archive. Above it only its hashes do."`
	BundleURL    string   `name:"bundle-url" placeholder:"URL" help:"Where you will publish the archive of the evidence, if it is above the limit. The archive to publish is written beside the bundle."`
	Replace      string   `placeholder:"WHY" help:"Take the place of an earlier submission of the same name, and say why."`
}

// Help is the long help of the command.
func (submitCmd) Help() string {
	return `Examples:
  weir submit .weir/run-... --organization example --project router --version v1.2.3 \
      --url https://router.example.org --contact flow@example.org
  weir submit .weir/run-... --results results      who it is stands in the descriptor of the run (--sut)
  weir submit .weir/run-... --replace 'certified again, with tolerances declared'
  weir submit .weir/run-... --bundle-url https://example.org/evidence.tar.gz      evidence above 4 MiB

A submission can be checked by anybody with weir verify. What was left out, broke or stayed undecided may not be claimed, and everything
that stands against a submission is named at once (exit status 2). Requirements that failed may be published.`
}

// Run writes a submission.
func (c *submitCmd) Run(con *console) error {
	if c.ArchiveLimit < 1 {
		return errors.New("--archive-limit-kib: must be at least 1")
	}
	o := submit.Options{Bundle: c.Bundle, Results: c.Results, ArchiveLimit: c.ArchiveLimit << 10, BundleURL: c.BundleURL, Replace: c.Replace,
		Claim: submit.Claim{Organization: c.Organization, Project: c.Project, Version: c.Version, URL: c.URL, Contact: c.Contact}}
	w, err := suite().Submit(o)
	if err != nil {
		return err
	}
	if err := submit.WriteTable(c.Results); err != nil {
		return fmt.Errorf("the submission is written to %s, the table is not: %w", w.Dir, err)
	}
	fmt.Fprintf(con.out, "submitted to %s\n%s\n", w.Dir, w.Says)
	if w.Archive != "" {
		fmt.Fprintf(con.out, "publish %s at %s, as it is: the submission has its hash\n", w.Archive, c.BundleURL)
	}
	_, err = fmt.Fprintf(con.out, "verify: weir verify %s\n", shell([]string{w.Dir}))
	return err
}

type verifyCmd struct {
	Paths  []string `arg:"" type:"path" help:"Folders: bundles, submissions, or results folders with submissions; or archives of bundles."`
	Bundle string   `type:"path" help:"Evidence of a submission that does not contain it: its archive or folder."`
}

// Help is the long help of the command.
func (verifyCmd) Help() string {
	return `Examples:
  weir verify .weir/run-...                             a bundle: hashes, plan, verdicts and reports
  weir verify results                                   every submission, and the table of them
  weir verify results/0.1.0/... --bundle e.tar.gz       a submission whose evidence was published elsewhere

Every file is hashed again, the evidence is judged again, and every verdict and text is compared with what that gives.
Exit status: 0 all is as it is said to be; 1 a file was changed, a verdict was edited or something is claimed that may not be; 2 nothing
to verify there; 3 nothing is wrong, but something could not be compared (the evidence is elsewhere, or another version wrote it).`
}

// Run verifies.
func (c *verifyCmd) Run(con *console) error {
	if c.Bundle != "" && len(c.Paths) > 1 {
		return errors.New("--bundle is the evidence of one submission: name that one")
	}
	var all []submit.Finding
	for _, p := range c.Paths {
		found, err := suite().Verify(p, c.Bundle)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	wrong, open := false, false
	for _, f := range all {
		show(con.out, f)
		wrong, open = wrong || len(f.Problems) > 0, open || len(f.Undecided) > 0
	}
	switch {
	case wrong:
		return &exitError{status: ExitFail}
	case open:
		return &exitError{status: ExitInconclusive}
	}
	return nil
}

// show prints what became of one path.
func show(w io.Writer, f submit.Finding) {
	word := "ok"
	switch {
	case len(f.Problems) > 0:
		word = "WRONG"
	case len(f.Undecided) > 0:
		word = "open"
	}
	fmt.Fprintf(w, "%-6s %s", word, report.Line(f.Path))
	if f.Says != "" {
		fmt.Fprintf(w, " (%s)", report.Line(f.Says))
	}
	fmt.Fprintln(w)
	for _, p := range append(append([]string{}, f.Problems...), f.Undecided...) {
		fmt.Fprintf(w, "       %s\n", report.Line(p))
	}
}

type tableCmd struct {
	Results string `arg:"" type:"path" default:"results" help:"Folder of all submissions."`
}

// Help is the long help of the command.
func (tableCmd) Help() string {
	return `Examples:
  weir results-table            write the table in results/README.md again
  weir verify results           say whether it is up to date`
}

// Run writes the table.
func (c *tableCmd) Run(con *console) error {
	if err := submit.WriteTable(c.Results); err != nil {
		return err
	}
	_, err := fmt.Fprintln(con.out, "table written to", filepath.Join(c.Results, submit.ReadmeFile))
	return err
}

// suite is this program as a judge of submissions.
func suite() submit.Suite {
	return submit.Suite{Version: Version, Commit: commit(), Rows: rows(), Plan: unabridged, Command: shell}
}

// unabridged is what a run without --focus and --skip plays and judges, with the tolerances that m's descriptor asked for.
func unabridged(m evidence.Manifest) (evidence.Manifest, []byte, error) { return planned(m, "") }

// planned is the same of a part of the catalogue.
func planned(m evidence.Manifest, focus string) (evidence.Manifest, []byte, error) {
	p, err := profile.Named(m.Profile)
	if err != nil {
		return evidence.Manifest{}, nil, err
	}
	if t := m.Tolerances; t != nil {
		d := sut.Descriptor{Tolerances: profile.Tolerances{TTLLate: time.Duration(t.TTLLateNs), Slack: time.Duration(t.SlackNs), Staleness: time.Duration(t.StalenessNs)}}
		d.Apply(&p)
	}
	if !slices.Contains([]string{scenario.Core, scenario.Extended, "slow"}, m.Level) {
		return evidence.Manifest{}, nil, fmt.Errorf("unknown level %q", m.Level)
	}
	sel, err := newSelection(m.Level, m.Environment, focus, "")
	if err != nil {
		return evidence.Manifest{}, nil, err
	}
	o := sel.options(p, m.Seed)
	var plan bytes.Buffer
	for _, s := range o.Scenarios {
		for _, l := range s.PlanLines() {
			plan.Write(l)
			plan.WriteByte('\n')
		}
	}
	return run.Planned(o), plan.Bytes(), nil
}
