package cli

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/verdict"
	"github.com/llm-weir/weir/suites/catalog"
	"github.com/llm-weir/weir/suites/cluster"
)

// selection chooses what of the catalogue is played.
type selection struct {
	level       string
	slow        bool // scenarios that wait for minutes are played as well
	focus, skip *regexp.Regexp
	rows        map[string]catalog.Requirement
}

func newSelection(level, env, focus, skip string) (*selection, error) {
	// In virtual time minutes cost nothing.
	s := &selection{level: level, slow: level == "slow" || level == "extended" && env == "virtual", rows: map[string]catalog.Requirement{}}
	for _, r := range catalog.Requirements() {
		s.rows[r.ID] = r
	}
	var err error
	if s.focus, err = compile("--focus", focus); err != nil {
		return nil, err
	}
	s.skip, err = compile("--skip", skip)
	return s, err
}

func compile(flag, expr string) (*regexp.Regexp, error) {
	if expr == "" {
		return nil, nil
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return re, nil
}

// judged tells whether a row counts at this level: core rows and the rest of the first certification run, or everything.
func (s *selection) judged(id string) bool {
	r := s.rows[id]
	return s.level != scenario.Core || r.Level == scenario.Core || r.First
}

// named tells whether a check of a scenario is wanted by name.
func (s *selection) named(requirement, scenario string) bool {
	match := func(re *regexp.Regexp) bool { return re.MatchString(requirement) || re.MatchString(scenario) }
	return (s.focus == nil || match(s.focus)) && (s.skip == nil || !match(s.skip))
}

// fullCapacity is judged after every scenario that is played for something else (INV-04); no scenario is played for it alone.
const fullCapacity = "INV-04"

// options compiles the catalogue for a profile and keeps what is selected.
func (s *selection) options(p profile.Profile, seed uint64) run.Options {
	o := run.Options{Profile: p, Rows: rows()}
	all := catalog.Compile(p, seed)
	later := s.later(p, all)
	for _, c := range all {
		own := slices.ContainsFunc(c.Checks, func(ch checks.Spec) bool { return ch.Requirement != fullCapacity && s.judged(ch.Requirement) })
		c.Checks = slices.DeleteFunc(c.Checks, func(ch checks.Spec) bool {
			return !own || !s.judged(ch.Requirement) || later[ch.Requirement] || !s.named(ch.Requirement, c.Name)
		})
		c.Excluded = slices.DeleteFunc(c.Excluded, func(x evidence.Exclusion) bool {
			return !s.judged(x.Requirement) || !s.named(x.Requirement, c.Name)
		})
		if c.Slow && !s.slow {
			continue
		}
		if len(c.Checks)+len(c.Excluded) > 0 {
			o.Scenarios = append(o.Scenarios, c)
		}
	}
	o.Manifest.ShownBy = shownIn(o)
	for _, x := range o.Manifest.ShownBy {
		s.keep(x.By, &o, p, seed)
	}
	s.keepProbe(&o, p, seed)
	for _, c := range catalog.RunChecks(p) {
		if s.judged(c.Requirement) && !later[c.Requirement] && s.named(c.Requirement, checks.Whole) {
			o.RunChecks = append(o.RunChecks, c)
		}
	}
	o.Manifest.Unjudged = s.unjudged(p, o)
	return o
}

// later lists the requirements that are left to the slow level.
func (s *selection) later(p profile.Profile, all []scenario.Compiled) map[string]bool {
	if s.slow {
		return nil
	}
	return catalog.Later(p, all)
}

// asyncBenchmarks are those of the asynchronous processor that no scenario measures.
var asyncBenchmarks = []string{"BEN-20", "BEN-22"}

// unjudged lists the rows about pickers that the level asks for and nothing selected looks at: a verdict says nothing about them.
func (s *selection) unjudged(p profile.Profile, o run.Options) []string {
	covered := map[string]bool{}
	for _, c := range o.Scenarios {
		for _, id := range c.Requirements() {
			covered[id] = true
		}
	}
	for _, c := range o.RunChecks {
		covered[c.Requirement] = true
	}
	var out []string
	for _, r := range catalog.Requirements() {
		asked := r.Level == scenario.Core || r.Level == scenario.Extended && s.level != scenario.Core
		own := catalog.Judged(p, r.ID) && !slices.Contains(asyncBenchmarks, r.ID)
		if applies, _ := p.Applies(r.ID); asked && own && applies && !covered[r.ID] {
			out = append(out, r.ID)
		}
	}
	return out
}

// keepProbe adds the activation probe where something gated is selected without it: nothing behind a gate that was not shown to close
// may pass (INV-01).
func (s *selection) keepProbe(o *run.Options, p profile.Profile, seed uint64) {
	if slices.ContainsFunc(o.Scenarios, func(c scenario.Compiled) bool { return c.Config.Hold }) {
		s.keep(run.Probe, o, p, seed)
	}
}

// keep adds the scenarios of a requirement without which others show nothing, where they are not selected.
func (s *selection) keep(requirement string, o *run.Options, p profile.Profile, seed uint64) {
	has := func(c scenario.Compiled) bool { return slices.Contains(c.Requirements(), requirement) }
	if slices.ContainsFunc(o.Scenarios, has) {
		return
	}
	for _, c := range catalog.Compile(p, seed) {
		if !has(c) || slices.ContainsFunc(o.Scenarios, func(x scenario.Compiled) bool { return x.Name == c.Name }) {
			continue
		}
		c.Checks = slices.DeleteFunc(c.Checks, func(ch checks.Spec) bool { return ch.Requirement != requirement })
		o.Scenarios = append([]scenario.Compiled{c}, o.Scenarios...)
	}
}

// shownIn lists what depends on what among the requirements that the selected scenarios judge.
func shownIn(o run.Options) []evidence.Shown {
	return slices.DeleteFunc(catalog.ShownBy(), func(x evidence.Shown) bool {
		return !slices.ContainsFunc(o.Scenarios, func(c scenario.Compiled) bool { return slices.Contains(c.Requirements(), x.Requirement) })
	})
}

// rows are the catalogue's rows as reports want them.
func rows() []verdict.Requirement {
	var out []verdict.Requirement
	for _, r := range catalog.Requirements() {
		out = append(out, verdict.Requirement{ID: r.ID, Level: r.Level, Title: r.Text})
	}
	return append(out, cluster.Rows()...)
}
