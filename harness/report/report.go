// Package report turns a sealed bundle and its verdicts into files for people and for machines.
//
//	Bundle + []verdict.Result --> verdicts.json   every verdict, read back by ReadVerdicts
//	                          --> report.yaml     short, for publishing and for other tools
//	                          --> junit.xml       for CI
//	                          --> report.md       for a pull request
//	                          --> report.html     one page without network: requirement -> scenario -> exchange, timelines
//	one verdict.Result        --> Terminal        a line while the run goes on
//
// The same input gives the same bytes: lists keep their order, maps are sorted, floats have fixed precision, and no clock is read.
// Request texts come from whoever was on the wire; every writer takes them for hostile. A run that was interrupted, or in which
// nothing was judged, never reads as a pass.
package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/verdict"
)

// Names of the files that WriteAll lays beside the evidence.
const (
	VerdictsFile = "verdicts.json"
	YAMLFile     = "report.yaml"
	JUnitFile    = "junit.xml"
	MarkdownFile = "report.md"
	HTMLFile     = "report.html"
)

// ClaimBoundary says what kind of evidence every verdict rests on, of a picker or of a processor.
const ClaimBoundary = "black-box evidence: what clients, model servers and brokers saw, and what the system published"

// Input is everything a report is made of.
type Input struct {
	Bundle  *evidence.Bundle
	Results []verdict.Result // in catalogue order
	Overall verdict.Kind     // as judged over the levels the run was asked for
	Command string           // reproduces the run
	Date    string           // RFC 3339; "" in virtual time, where two runs give the same bytes
	// Mutants and MutantsKilled are the suite's own proof that it can fail; 0 of 0 is left out.
	Mutants, MutantsKilled int
}

// WriteAll writes all five files into dir, which must exist. Every file is tried; the errors are joined.
func WriteAll(dir string, in Input) error {
	var errs []error
	for _, f := range []struct {
		name  string
		write func(io.Writer, Input) error
	}{
		{VerdictsFile, VerdictsJSON}, {YAMLFile, YAML}, {JUnitFile, JUnit}, {MarkdownFile, Markdown}, {HTMLFile, HTML},
	} {
		var buf bytes.Buffer
		err := f.write(&buf, in)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f.name), buf.Bytes(), 0o644)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.name, err))
		}
	}
	return errors.Join(errs...)
}

func (in Input) manifest() evidence.Manifest {
	if in.Bundle == nil {
		return evidence.Manifest{}
	}
	return in.Bundle.Manifest
}

// run finds the evidence of a scenario.
func (in Input) run(scenario string) *evidence.Run {
	if in.Bundle == nil {
		return nil
	}
	for i := range in.Bundle.Runs {
		if in.Bundle.Runs[i].Scenario == scenario {
			return &in.Bundle.Runs[i]
		}
	}
	return nil
}

// scenario finds the manifest's entry of a scenario.
func (in Input) scenario(name string) (evidence.ScenarioEntry, bool) {
	for _, s := range in.manifest().Scenarios {
		if s.Name == name {
			return s, true
		}
	}
	return evidence.ScenarioEntry{}, false
}

// Verdict is what may be claimed for the run as a whole. A run that was interrupted or judged nothing cannot pass: what was not
// seen might have failed.
func (in Input) Verdict() verdict.Kind {
	if (!in.manifest().Complete || len(in.Results) == 0) && in.Overall < verdict.Inconclusive {
		return verdict.Inconclusive
	}
	return in.Overall
}

// headline is the verdict in a few words, for the top of every form of the report.
func (in Input) headline() string {
	word := strings.ToUpper(in.Verdict().String())
	switch {
	case len(in.Results) == 0 && !in.manifest().Complete:
		return word + ": the run was interrupted before anything was judged"
	case len(in.Results) == 0:
		return word + ": nothing was judged"
	case !in.manifest().Complete:
		return word + ": the run was interrupted, only a part was seen"
	}
	switch in.Verdict() {
	case verdict.Fail:
		return word + ": a requirement is violated"
	case verdict.Error:
		return word + ": the harness or the system broke, so that not everything could be judged"
	case verdict.Inconclusive:
		return word + ": the evidence does not decide"
	case verdict.Pass:
		return word + ": every requirement that was judged and applies was seen to hold"
	}
	return word + ": no requirement applies"
}

// implementation is "organization/project version", as far as it is known.
func (in Input) implementation() string {
	i := in.manifest().Implementation
	name := strings.Trim(i.Organization+"/"+i.Project, "/")
	s := strings.TrimSpace(name + " " + i.Version)
	if s == "" {
		s = "unknown implementation"
	}
	if m := in.manifest().Mutant; m != "" {
		s += " (mutant " + m + ")"
	}
	return s
}

// family is the id without its number: FC-PRI-01 is of FC-PRI.
func family(id string) string {
	if i := strings.LastIndexByte(id, '-'); i > 0 {
		return id[:i]
	}
	return id
}

// decisive is the verdict from which a result takes its figure: the first of the result's kind.
func decisive(r verdict.Result) verdict.Verdict {
	for _, v := range r.Verdicts {
		if v.Kind == r.Kind {
			return v
		}
	}
	return verdict.Verdict{}
}

// settled tells whether a result needs no explanation.
func settled(k verdict.Kind) bool { return k == verdict.Pass || k == verdict.NotApplicable }

// ranked lists the verdicts with the most pressing first.
func ranked() []verdict.Kind {
	return []verdict.Kind{verdict.Fail, verdict.Error, verdict.Inconclusive, verdict.Pass, verdict.NotApplicable}
}
