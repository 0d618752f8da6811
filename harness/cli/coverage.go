package cli

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/selfcheck"
	"github.com/llm-weir/weir/suites/catalog"
)

// shown is what the suite has for one requirement.
type shown struct {
	scenarios []string
	checks    []string
	mutants   []string
}

// coverageOf collects, by requirement, what a profile's scenarios and the self-check have.
func coverageOf(p profile.Profile) map[string]*shown {
	by := map[string]*shown{}
	of := func(id string) *shown {
		if by[id] == nil {
			by[id] = &shown{}
		}
		return by[id]
	}
	add := func(list *[]string, what string) {
		if !slices.Contains(*list, what) {
			*list = append(*list, what)
		}
	}
	for _, s := range catalog.Compile(p, 1) {
		for _, ch := range s.Checks {
			add(&of(ch.Requirement).scenarios, s.Name)
			add(&of(ch.Requirement).checks, ch.Check)
		}
	}
	for _, ch := range catalog.RunChecks(p) {
		add(&of(ch.Requirement).scenarios, "(whole run)")
		add(&of(ch.Requirement).checks, ch.Check)
	}
	mutants := selfcheck.Mutants()
	if p.Processor != nil {
		mutants = selfcheck.ProcessorMutants()
	}
	for _, m := range mutants {
		if slices.Contains(m.Except, p.Name) {
			continue
		}
		for _, id := range m.Meant {
			add(&of(id).mutants, m.Name)
		}
	}
	return by
}

// coverage prints what shows each row about pickers. A row of level core or extended that applies, that nothing plays and for which no
// reason is given is a hole.
func (c *listCmd) coverage(con *console, t *tabwriter.Writer, p profile.Profile) error {
	by := coverageOf(p)
	holes, covered := []string{}, 0
	fmt.Fprintln(t, "REQUIREMENT\tLEVEL\tSCENARIOS\tCHECKS\tMUTANTS MEANT FOR IT")
	for _, r := range catalog.Requirements() {
		if !catalog.Judged(p, r.ID) {
			continue
		}
		s := by[r.ID]
		if s == nil {
			s = &shown{}
		}
		judged, why := p.Applies(r.ID)
		elsewhere, excused := catalog.Elsewhere(r.ID)
		switch {
		case len(s.scenarios) > 0:
			covered++
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.ID, r.Level, few(s.scenarios), strings.Join(s.checks, " "), few(s.mutants))
		case !judged:
			fmt.Fprintf(t, "%s\t%s\tn/a: %s\t\t\n", r.ID, r.Level, why)
		case excused:
			fmt.Fprintf(t, "%s\t%s\tnone: %s\t\t\n", r.ID, r.Level, elsewhere)
		default:
			if r.Level == scenario.Core || r.Level == scenario.Extended {
				holes = append(holes, r.ID)
			}
			fmt.Fprintf(t, "%s\t%s\t-\t\t\n", r.ID, r.Level)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(con.out, "%d rows have scenarios under %s; what each mutant really fails is the matrix of weir selfcheck\n", covered, p.Name)
	if len(holes) > 0 {
		fmt.Fprintf(con.out, "holes in core and extended: %s\n", strings.Join(holes, " "))
		return &exitError{status: ExitFail}
	}
	return nil
}

// few names the first of a list.
func few(list []string) string {
	if len(list) > listed {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:listed], " "), len(list)-listed)
	}
	return strings.Join(list, " ")
}
