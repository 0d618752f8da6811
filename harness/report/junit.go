package report

import (
	"encoding/xml"
	"io"
	"strings"

	"github.com/llm-weir/weir/harness/verdict"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Timestamp  string          `xml:"timestamp,attr,omitempty"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Name       string          `xml:"name,attr"`
	Class      string          `xml:"classname,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Failure    *junitProblem   `xml:"failure"`
	Error      *junitProblem   `xml:"error"`
	Skipped    *junitProblem   `xml:"skipped"`
}

type junitProblem struct {
	Type    string `xml:"type,attr,omitempty"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes junit.xml: a suite per family of requirements, a case per requirement. Inconclusive is an error of type
// "inconclusive", not-applicable is skipped. A run that was interrupted or judged nothing adds an erroneous case of its own,
// because CI takes a file without one for a success.
func JUnit(w io.Writer, in Input) error {
	all := junitSuites{Name: "weir"}
	index := map[string]int{}
	for _, r := range in.Results {
		f := family(r.ID)
		if _, ok := index[f]; !ok {
			index[f] = len(all.Suites)
			all.Suites = append(all.Suites, newSuite(in, f))
		}
		all.Suites[index[f]].add(caseOf(in, r))
	}
	if !in.manifest().Complete || len(in.Results) == 0 {
		s := newSuite(in, "run")
		s.add(junitCase{Name: "the run is complete", Class: "run",
			Error: &junitProblem{Type: verdict.Inconclusive.String(), Message: line(in.headline())}})
		all.Suites = append(all.Suites, s)
	}
	for _, s := range all.Suites {
		all.Tests += s.Tests
		all.Failures += s.Failures
		all.Errors += s.Errors
		all.Skipped += s.Skipped
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func newSuite(in Input, name string) junitSuite {
	m := in.manifest()
	return junitSuite{Name: name, Timestamp: in.Date, Properties: []junitProperty{
		{"implementation", line(in.implementation())}, {"profile", m.Profile}, {"environment", m.Environment}, {"runId", m.RunID}}}
}

func (s *junitSuite) add(c junitCase) {
	s.Tests++
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
	s.Cases = append(s.Cases, c)
}

func caseOf(in Input, r verdict.Result) junitCase {
	c := junitCase{Name: strings.TrimSpace(r.ID + " " + line(r.Title)), Class: family(r.ID),
		Properties: []junitProperty{{"level", r.Level}, {"figure", line(r.Figure)}}}
	message := line(r.Why)
	if message == "" {
		message = line(r.Figure)
	}
	p := &junitProblem{Type: r.Kind.String(), Message: message, Text: problemText(in, r)}
	switch r.Kind {
	case verdict.Fail:
		c.Failure = p
	case verdict.Error, verdict.Inconclusive:
		c.Error = p
	case verdict.NotApplicable:
		c.Skipped = &junitProblem{Message: message}
	}
	return c
}

// problemText is one line for each verdict that is not settled, then the evidence and the command.
func problemText(in Input, r verdict.Result) string {
	var b strings.Builder
	b.WriteByte('\n')
	for _, v := range r.Verdicts {
		if settled(v.Kind) {
			continue
		}
		b.WriteString(line(v.Kind.String()+" in "+v.Scenario+" by "+v.Check+": "+v.Figure+": "+v.Why) + "\n")
		if v.Engaged != "" {
			b.WriteString("  engaged: " + line(v.Engaged) + "\n")
		}
	}
	for _, p := range evidencePaths(in, r) {
		b.WriteString("  evidence: " + line(p) + "\n")
	}
	if in.Command != "" {
		b.WriteString("reproduce: " + line(in.Command) + "\n")
	}
	return b.String()
}
