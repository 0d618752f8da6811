package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/report"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/verdict"
)

type judgeCmd struct {
	Bundle   string `arg:"" type:"path" help:"Folder of the bundle."`
	Unsealed bool   `help:"Judge although files differ from what was sealed. Such verdicts certify nothing."`
	JSON     bool   `help:"Print the results as JSON."`
	NoColor  bool   `help:"No colours."`
}

// Help is the long help of the command.
func (judgeCmd) Help() string {
	return `Examples:
  weir judge .weir/run-...              the verdicts again, from the evidence alone
  weir judge --unsealed .weir/run-...   after a change of the evidence

A bundle whose files differ from their recorded hashes is refused with exit status 2.`
}

// Run judges a bundle.
func (c *judgeCmd) Run(con *console) error {
	b, results, err := judged(c.Bundle, c.Unsealed)
	if err != nil {
		return err
	}
	in := input(b, results)
	if c.JSON {
		if err := report.VerdictsJSON(con.out, in); err != nil {
			return err
		}
		return exitFor(in.Verdict())
	}
	if c.Unsealed {
		fmt.Fprintln(con.err, "weir: --unsealed: hashes were not checked, these verdicts certify nothing")
	}
	screen := newScreen(con.out, !c.NoColor)
	for _, r := range results {
		screen.result(r)
	}
	screen.close()
	if err := c.compare(con, results); err != nil {
		return err
	}
	if err := report.TerminalSummary(con.out, in, screen.colour); err != nil {
		return err
	}
	return exitFor(in.Verdict())
}

// compare says where the verdicts stored beside the evidence differ from the ones just given.
func (c *judgeCmd) compare(con *console, results []verdict.Result) error {
	stored, err := report.ReadVerdicts(c.Bundle)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(con.out, "\nno stored verdicts to compare with")
		return nil
	}
	if err != nil {
		return err
	}
	before := map[string]verdict.Result{}
	for _, r := range stored.Results {
		before[r.ID] = r
	}
	same := true
	for _, r := range results {
		if o, ok := before[r.ID]; !ok || o.Kind != r.Kind {
			same = false
			fmt.Fprintf(con.out, "changed: %s was %s, is %s\n", r.ID, o.Kind, r.Kind)
		}
	}
	if same && len(before) == len(results) {
		fmt.Fprintln(con.out, "\nthe same verdicts as stored in the bundle")
	}
	return nil
}

func judged(dir string, unsealed bool) (*evidence.Bundle, []verdict.Result, error) {
	b, err := evidence.Open(dir, unsealed)
	if err != nil {
		return nil, nil, err
	}
	return b, verdict.Summarize(run.Requirements(b.Manifest, rows()), run.Judge(b)), nil
}

func input(b *evidence.Bundle, results []verdict.Result) report.Input {
	return report.Input{Bundle: b, Results: results, Overall: overall(results), Command: shell(b.Manifest.Argv), Date: b.Manifest.Created}
}

type reportCmd struct {
	Bundle   string `arg:"" type:"path" help:"Folder of the bundle."`
	Unsealed bool   `help:"Report although files differ from what was sealed."`
	Format   string `enum:"all,yaml,junit,markdown,html,json" default:"all" help:"all writes every report into the bundle's folder; one format is printed."`
}

// Help is the long help of the command.
func (reportCmd) Help() string {
	return `Examples:
  weir report .weir/run-...                      write report.yaml, junit.xml, report.md, report.html, verdicts.json again
  weir report --format markdown .weir/run-...    print one of them`
}

// Run writes reports.
func (c *reportCmd) Run(con *console) error {
	b, results, err := judged(c.Bundle, c.Unsealed)
	if err != nil {
		return err
	}
	in := input(b, results)
	switch c.Format {
	case "yaml":
		return report.YAML(con.out, in)
	case "junit":
		return report.JUnit(con.out, in)
	case "markdown":
		return report.Markdown(con.out, in)
	case "html":
		return report.HTML(con.out, in)
	case "json":
		return report.VerdictsJSON(con.out, in)
	}
	if err := report.WriteAll(c.Bundle, in); err != nil {
		return err
	}
	_, err = fmt.Fprintln(con.out, "reports written to", c.Bundle)
	return err
}
