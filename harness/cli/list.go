package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/selfcheck"
	"github.com/llm-weir/weir/sim-vllm/presets"
	"github.com/llm-weir/weir/suites/catalog"
)

type listCmd struct {
	What    string `arg:"" enum:"requirements,scenarios,profiles,mutants,presets,configurations" default:"requirements" help:"requirements, scenarios, profiles, mutants, presets or configurations."`
	Of      string `placeholder:"NAME" help:"With configurations: print the document, the objectives and the endpoints of one, by the name of a scenario or by its hash."`
	Profile string `default:"llm-d-router-2026-09" help:"Contract for which scenarios are compiled."`
	// Coverage replaces the list.
	Coverage bool `help:"Every row of the catalogue about pickers: scenarios, checks and the mutants meant for it. Ends with status 1 if a core or extended row has none and no reason is given."`
}

// Help is the long help of the command.
func (listCmd) Help() string {
	return `Examples:
  weir list                                         every requirement, and the scenarios that judge it
  weir list configurations --of fair-round-robin    what a router must be given to be judged by this scenario
  weir list scenarios --profile llm-d-router-0.9    what is played for a contract
  weir list --coverage                              what shows each requirement, and what shows that it can fail`
}

// Run prints a list.
func (c *listCmd) Run(con *console) error {
	t := tabwriter.NewWriter(con.out, 0, 4, 2, ' ', 0)
	p, err := profile.Named(c.Profile)
	if err != nil {
		return err
	}
	if c.Coverage {
		return c.coverage(con, t, p)
	}
	switch c.What {
	case "requirements":
		c.requirements(t, p)
	case "scenarios":
		fmt.Fprintln(t, "SCENARIO\tLEVEL\tREQUIREMENTS\tTITLE")
		for _, s := range catalog.Compile(p, 1) {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", s.Name, s.Level, strings.Join(s.Requirements(), " "), s.Title)
		}
	case "configurations":
		if err := c.configurations(t, con, p); err != nil {
			return err
		}
	case "profiles":
		fmt.Fprintln(t, "PROFILE\tTITLE")
		for _, n := range append(profile.All(), profile.Processors()...) {
			q, err := profile.Named(n)
			if err != nil {
				return err
			}
			fmt.Fprintf(t, "%s\t%s\n", q.Name, q.Title)
		}
	case "mutants":
		fmt.Fprintln(t, "MUTANT\tCLASS\tMEANT FOR\tFAULT")
		for _, m := range append(selfcheck.Mutants(), selfcheck.ProcessorMutants()...) {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", m.Name, m.Class, strings.Join(m.Meant, " "), m.Fault)
		}
	case "presets":
		for _, n := range presets.Names() {
			fmt.Fprintln(t, n)
		}
	}
	return t.Flush()
}

// listed is how many scenarios of a requirement are named.
const listed = 3

func (c *listCmd) requirements(t *tabwriter.Writer, p profile.Profile) {
	by := map[string][]string{}
	for _, s := range catalog.Compile(p, 1) {
		for _, id := range s.Requirements() {
			by[id] = append(by[id], s.Name)
		}
	}
	for _, ch := range catalog.RunChecks(p) {
		by[ch.Requirement] = append(by[ch.Requirement], "(whole run)")
	}
	fmt.Fprintln(t, "REQUIREMENT\tLEVEL\tFIRST RUN\tSCENARIOS\tTEXT")
	for _, r := range catalog.Requirements() {
		first := ""
		if r.First {
			first = "*"
		}
		scenarios := few(by[r.ID])
		if judged, _ := p.Applies(r.ID); !judged {
			scenarios = "n/a"
		} else if scenarios == "" {
			scenarios = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.ID, r.Level, first, scenarios, clip(r.Text, 90))
	}
}

func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
