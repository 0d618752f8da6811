package report

import (
	"io"
	"math"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/stats"
	"github.com/llm-weir/weir/harness/verdict"
)

// APIVersion and Kind name the schema of report.yaml.
const (
	APIVersion = "flowcontrol.conformance/v1alpha1"
	Kind       = "ConformanceReport"
)

type conformanceReport struct {
	APIVersion     string                  `yaml:"apiVersion"`
	Kind           string                  `yaml:"kind"`
	RunID          string                  `yaml:"runId"`
	Date           string                  `yaml:"date,omitempty"`
	Verdict        string                  `yaml:"verdict"`
	Complete       bool                    `yaml:"complete"`
	Implementation evidence.Implementation `yaml:"implementation"`
	Mutant         string                  `yaml:"mutant,omitempty"`
	Suite          suiteReport             `yaml:"suite"`
	Profile        profileReport           `yaml:"profile"`
	Environment    environmentReport       `yaml:"environment"`
	Clock          clockReport             `yaml:"clock"`
	Seed           uint64                  `yaml:"seed"`
	Claims         claimsReport            `yaml:"claims"`
	Client         *clientReport           `yaml:"client,omitempty"`
	Profiles       []levelReport           `yaml:"profiles"`
	Requirements   []requirementReport     `yaml:"requirements"`
	Reproduce      string                  `yaml:"reproduce"`
}

type suiteReport struct {
	Version string         `yaml:"version"`
	Commit  string         `yaml:"commit"`
	Mutants *mutantsReport `yaml:"mutants,omitempty"`
}

type mutantsReport struct {
	Total  int `yaml:"total"`
	Killed int `yaml:"killed"`
}

type profileReport struct {
	Contract  string `yaml:"contract"`
	Reference string `yaml:"reference,omitempty"`
	Level     string `yaml:"level"`
}

type environmentReport struct {
	Substrate string `yaml:"substrate"`
	OS        string `yaml:"os,omitempty"`
	Arch      string `yaml:"arch,omitempty"`
	CPUs      int    `yaml:"cpus,omitempty"`
	Go        string `yaml:"go,omitempty"`
}

type clockReport struct {
	Kind        string `yaml:"kind"`
	SkewBoundMs millis `yaml:"skewBoundMs"`
}

type claimsReport struct {
	Boundary string   `yaml:"boundary"`
	Excludes []string `yaml:"excludes"`
}

// clientReport says how well the load generator kept to its plan. Whether that is good enough depends on the check, which fixes
// its own bound beforehand; here stand the figures only.
type clientReport struct {
	Requests      int       `yaml:"requests"`
	Unsent        int       `yaml:"unsent"`
	Unfinished    int       `yaml:"unfinished"`
	ScheduleLagMs lagReport `yaml:"scheduleLagMs"`
}

type lagReport struct {
	P50 millis `yaml:"p50"`
	P99 millis `yaml:"p99"`
	Max millis `yaml:"max"`
}

type levelReport struct {
	Name              string           `yaml:"name"`
	Result            string           `yaml:"result"`
	Statistics        statisticsReport `yaml:"statistics"`
	FailedTests       []string         `yaml:"failedTests"`
	InconclusiveTests []string         `yaml:"inconclusiveTests"`
}

type statisticsReport struct {
	Passed        int `yaml:"passed"`
	Failed        int `yaml:"failed"`
	Error         int `yaml:"error"`
	Inconclusive  int `yaml:"inconclusive"`
	NotApplicable int `yaml:"notApplicable"`
}

type requirementReport struct {
	ID             string          `yaml:"id"`
	Level          string          `yaml:"level"`
	Verdict        string          `yaml:"verdict"`
	Figure         string          `yaml:"figure"`
	Why            string          `yaml:"why,omitempty"`
	Engaged        string          `yaml:"engaged,omitempty"`
	Evidence       []string        `yaml:"evidence"`
	Counterexample *counterexample `yaml:"counterexample,omitempty"`
}

type counterexample struct {
	Scenario  string   `yaml:"scenario"`
	Check     string   `yaml:"check"`
	Witnesses []string `yaml:"witnesses"`
}

// millis is a duration in milliseconds with a fixed number of digits.
type millis float64

// MarshalYAML writes three decimals: the same value must give the same bytes. A value that is no number becomes null.
func (m millis) MarshalYAML() (any, error) {
	if math.IsNaN(float64(m)) || math.IsInf(float64(m), 0) {
		return nil, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: fixed(float64(m), 3)}, nil
}

// YAML writes report.yaml.
func YAML(w io.Writer, in Input) error {
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(conformance(in)); err != nil {
		return err
	}
	return enc.Close()
}

func conformance(in Input) conformanceReport {
	m := in.manifest()
	r := conformanceReport{
		APIVersion: APIVersion, Kind: Kind, RunID: m.RunID, Date: in.Date, Verdict: in.Verdict().String(), Complete: m.Complete,
		Implementation: m.Implementation, Mutant: m.Mutant,
		Suite:       suiteReport{Version: m.Tool, Commit: m.Commit},
		Profile:     profileReport{Contract: m.Profile, Reference: m.ReferenceProfile, Level: m.Level},
		Environment: environmentReport{Substrate: m.Environment, OS: m.Host.OS, Arch: m.Host.Arch, CPUs: m.Host.CPUs, Go: m.Host.Go},
		Clock:       clockReport{Kind: m.Clock, SkewBoundMs: millis(float64(m.SkewBoundNs) / 1e6)},
		Seed:        m.Seed,
		Claims:      claimsReport{Boundary: ClaimBoundary, Excludes: exclusions(m)},
		Client:      clientFigures(in.Bundle),
		Profiles:    levels(in),
		Reproduce:   line(in.Command),
	}
	if in.Mutants > 0 {
		r.Suite.Mutants = &mutantsReport{Total: in.Mutants, Killed: in.MutantsKilled}
	}
	r.Requirements = []requirementReport{}
	for _, q := range in.Results {
		r.Requirements = append(r.Requirements, requirement(in, q))
	}
	return r
}

// exclusions lists what the run says nothing about, whatever its verdicts.
func exclusions(m evidence.Manifest) []string {
	out := []string{"requirements outside the listed ones"}
	if len(m.Unjudged) > 0 {
		out = append(out, "rows of the catalogue that nothing in this run looks at: "+strings.Join(m.Unjudged, ", "))
	}
	if m.Clock == "virtual" {
		out = append(out, "latency and throughput: time was virtual")
	}
	if !m.Complete {
		out = append(out, "whatever the interrupted run did not reach")
	}
	return out
}

func clientFigures(b *evidence.Bundle) *clientReport {
	if b == nil {
		return nil
	}
	var c clientReport
	var lag []float64
	for i := range b.Runs {
		for _, q := range b.Runs[i].Clients {
			c.Requests++
			if q.Outcome == evidence.Unfinished {
				c.Unfinished++
			}
			if q.Sent == evidence.Never {
				c.Unsent++
				continue
			}
			lag = append(lag, float64(q.Behind)/1e6)
		}
	}
	if c.Requests == 0 {
		return nil
	}
	s := stats.NewSample(lag)
	c.ScheduleLagMs = lagReport{millis(s.NearestRank(0.5)), millis(s.NearestRank(0.99)), millis(s.Max())}
	return &c
}

// levels is one entry per conformance level that has requirements, in rising order of freedom.
func levels(in Input) []levelReport {
	out := []levelReport{}
	for _, name := range []string{"core", "extended", "experimental", "informative"} {
		var rs []verdict.Result
		for _, r := range in.Results {
			if r.Level == name {
				rs = append(rs, r)
			}
		}
		if len(rs) == 0 {
			continue
		}
		n := verdict.Counts(rs)
		out = append(out, levelReport{Name: name, Result: levelResult(in, rs, name),
			Statistics: statisticsReport{Passed: n[verdict.Pass], Failed: n[verdict.Fail], Error: n[verdict.Error],
				Inconclusive: n[verdict.Inconclusive], NotApplicable: n[verdict.NotApplicable]},
			FailedTests:       append([]string{}, verdict.IDs(rs, verdict.Fail)...),
			InconclusiveTests: append([]string{}, verdict.IDs(rs, verdict.Inconclusive)...)})
	}
	return out
}

func levelResult(in Input, rs []verdict.Result, level string) string {
	if verdict.Counts(rs)[verdict.NotApplicable] == len(rs) {
		return "notApplicable"
	}
	k := verdict.Overall(rs, level)
	if !in.manifest().Complete && k < verdict.Inconclusive {
		k = verdict.Inconclusive
	}
	switch k {
	case verdict.Pass:
		return "success"
	case verdict.Fail:
		return "failure"
	}
	return k.String()
}

func requirement(in Input, r verdict.Result) requirementReport {
	d := decisive(r)
	q := requirementReport{ID: r.ID, Level: r.Level, Verdict: r.Kind.String(), Figure: line(r.Figure), Why: line(r.Why),
		Engaged: line(d.Engaged), Evidence: lines(evidencePaths(in, r))}
	if r.Kind == verdict.Fail {
		q.Counterexample = &counterexample{Scenario: d.Scenario, Check: d.Check, Witnesses: lines(d.Witnesses)}
	}
	return q
}

// lines cleans each text; never nil, so that an empty list is written as one.
func lines(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = line(t)
	}
	return out
}
