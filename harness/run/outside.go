package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/verdict"
)

// This file is what a session does for systems that it did not bring up by itself: the activation probe goes first, the clocks are other
// ones, and a stack that failed can be kept.

// clocks are how well the instants of a scenario can be compared.
type clocks struct {
	bound time.Duration
	blur  string
}

// clocksOf asks a system whose model servers have clocks of their own.
func clocksOf(sys sut.System) (c clocks) {
	if x, ok := sys.(interface {
		SkewBound() (time.Duration, string)
	}); ok {
		c.bound, c.blur = x.SkewBound()
	}
	return c
}

// probeFirst plays the activation probe, if that is asked for, and tells which scenarios are left. Those behind a gate that was not shown
// to close at the configured limit are not played.
func (s *Session) probeFirst(ctx context.Context) (rest func(scenario.Compiled) bool) {
	if !s.opts.ProbeFirst {
		return func(scenario.Compiled) bool { return true }
	}
	probe := func(c scenario.Compiled) bool { return slices.Contains(c.Requirements(), Probe) }
	s.playAll(ctx, 1, probe)
	why := s.unproven()
	if why == "" {
		return func(c scenario.Compiled) bool { return !probe(c) }
	}
	left := func(c scenario.Compiled) bool { return !probe(c) && !c.Config.Hold }
	for i, c := range s.opts.Scenarios {
		if !probe(c) && !left(c) {
			na := s.rulesOut(ctx, c)
			s.mu.Lock()
			if s.entries[i].NotApplicable = na; na == "" {
				s.entries[i].NotPlayed = "the activation probe " + why
			}
			s.mu.Unlock()
			close(s.done[i])
		}
	}
	return left
}

// rulesOut says why a scenario that is not played would not apply; "" if it would.
func (s *Session) rulesOut(ctx context.Context, c scenario.Compiled) string {
	sys := s.opts.New()
	why := s.missing(sys, c)
	var unsupported *sut.UnsupportedError
	if why == "" && errors.As(sys.Configure(ctx, c.Config), &unsupported) {
		why = unsupported.Error()
	}
	_ = sys.Close(ctx) // nothing was started
	return why
}

// unproven says why the activation probe carries nothing; "" if it does.
func (s *Session) unproven() string {
	s.mu.Lock()
	b := evidence.InMemory(s.manifest(), slices.Clone(s.runs))
	b.Manifest.Scenarios = slices.Clone(s.entries)
	s.mu.Unlock()
	why := "(" + Probe + ") was not part of this run"
	for _, v := range Judge(only(b, []string{Probe})) {
		if v.Requirement != Probe {
			continue
		}
		if v.Kind != verdict.Pass {
			return fmt.Sprintf("(%s) ended as %s: %s: %s", Probe, v.Kind, v.Figure, v.Why)
		}
		why = ""
	}
	return why
}

// Kept is a stack that is left up.
type Kept struct {
	Scenario string
	Failed   []verdict.Verdict
	Err      error    // of the scenario itself; nil if it came to its end
	About    []string // how to reach it, a line each
}

// letKeep makes a system that can wait with its end ask Options.Keep when something of a scenario has failed.
func (s *Session) letKeep(ctx context.Context, sys sut.System, i int, rec *evidence.Recorder) {
	x, ok := sys.(interface {
		Keep(func(about []string, played error))
	})
	if !ok || s.opts.Keep == nil {
		return
	}
	x.Keep(func(about []string, played error) {
		k := Kept{Scenario: s.opts.Scenarios[i].Name, About: about, Err: played}
		for _, v := range judgeScenario(s.opts.Scenarios[i].Entry(), rec.Run()) {
			if v.Kind == verdict.Fail || v.Kind == verdict.Error {
				k.Failed = append(k.Failed, v)
			}
		}
		if (len(k.Failed) > 0 || played != nil) && ctx.Err() == nil {
			s.opts.Keep(ctx, k)
		}
	})
}

// observed takes back what cannot have been seen: without a log of the model servers nothing is known of them, and where clocks cannot be
// compared nothing is known of what came first.
func observed(m evidence.Manifest, s evidence.ScenarioEntry, vs []verdict.Verdict) []verdict.Verdict {
	for i, v := range vs {
		spec, err := checks.FromEntry(s.Checks[i]) // one verdict a check
		if err != nil || v.Kind != verdict.Pass && v.Kind != verdict.Fail || checks.OutsideOnly(spec) {
			continue
		}
		switch {
		case m.NoBackendLog:
			vs[i].Kind, vs[i].Why = verdict.Inconclusive, "nobody recorded what arrived at the model servers"
		case s.Blurred != "":
			vs[i].Kind, vs[i].Why = verdict.Inconclusive, s.Blurred
		}
	}
	return vs
}

// observedWhole does so for a check over the whole run.
func observedWhole(m evidence.Manifest, spec checks.Spec, v verdict.Verdict) verdict.Verdict {
	if v.Kind != verdict.Pass && v.Kind != verdict.Fail || checks.OutsideOnly(spec) {
		return v
	}
	blurred := slices.IndexFunc(m.Scenarios, func(s evidence.ScenarioEntry) bool { return s.Blurred != "" })
	switch {
	case m.NoBackendLog:
		v.Kind, v.Why = verdict.Inconclusive, "nobody recorded what arrived at the model servers"
	case blurred >= 0 && checks.Compares(v.Check):
		v.Kind, v.Why = verdict.Inconclusive, m.Scenarios[blurred].Name+": "+m.Scenarios[blurred].Blurred
	}
	return v
}
