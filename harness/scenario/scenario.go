// Package scenario is the data of a scenario: what the system is configured to be, what is done to it, and which checks judge the
// evidence under which requirement ids.
package scenario

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/sut"
)

// Levels of a requirement and of a scenario (spec/requirements.md, "Levels").
const (
	Core         = "core"
	Extended     = "extended"
	Experimental = "experimental"
	Informative  = "informative"
)

// Scenario is one entry of a catalogue. Write is called once per profile and gives pure data.
type Scenario struct {
	Name  string
	Title string
	// Needs are the features without which the scenario does not apply.
	Needs []sut.Feature
	// Alone keeps everything else away while it plays: its figures depend on the machine's own load.
	Alone bool
	// Paced scenarios play light loads after all others, a few at a time: what they are compared by needs the same machine for all.
	Paced bool
	// Slow scenarios wait for minutes of the system's own clock.
	Slow  bool
	Write func(b *Builder)
}

// Compiled is a scenario under one profile: data that can be written down, hashed and played.
type Compiled struct {
	Name   string
	Title  string
	Level  string // the lowest level among its requirements
	Needs  []sut.Feature
	Config sut.Configuration
	Script sut.Script
	Checks []checks.Spec
	// Capacity is the number of requests the configured limit lets run at once; 0 if the scenario has none.
	Capacity int
	Alone    bool
	Paced    bool
	Slow     bool
	// Excluded are the requirements of checks that the profile does not judge.
	Excluded []evidence.Exclusion
}

// Compile writes s down for a profile; seed draws its loads. Checks whose requirement the profile does not judge are left out.
func Compile(s Scenario, p profile.Profile, seed uint64) Compiled {
	b := newBuilder(s.Name, p, seed)
	s.Write(b)
	c := Compiled{Name: s.Name, Title: s.Title, Needs: s.Needs, Config: b.Config, Capacity: b.capacity, Alone: s.Alone, Paced: s.Paced, Slow: s.Slow,
		Script: sut.Script{Scenario: s.Name, Steps: b.steps, Async: b.async}}
	for _, ch := range b.checks {
		if judged, why := p.Applies(ch.Requirement); judged {
			c.Checks = append(c.Checks, ch)
		} else {
			c.Excluded = append(c.Excluded, evidence.Exclusion{Requirement: ch.Requirement, Why: why})
		}
	}
	if len(c.Excluded) > 0 && onlyProbe(c.Checks) {
		// What the scenario is about is not judged; its capacity probe alone is no reason to play it.
		c.Checks = nil
	}
	return c
}

// onlyProbe tells whether nothing but the capacity probe is left.
func onlyProbe(cs []checks.Spec) bool {
	for _, ch := range cs {
		if ch.Requirement != "INV-04" {
			return false
		}
	}
	return true
}

// Requirements lists the ids that the checks of c judge, in order, each once.
func (c Compiled) Requirements() []string {
	var out []string
	for _, ch := range c.Checks {
		if !slices.Contains(out, ch.Requirement) {
			out = append(out, ch.Requirement)
		}
	}
	return out
}

// Entry is c in the manifest of a bundle.
func (c Compiled) Entry() evidence.ScenarioEntry {
	e := evidence.ScenarioEntry{Name: c.Name, Title: c.Title, Level: c.Level, Requirements: c.Requirements(), Hash: c.Hash(), Gated: c.Config.Hold}
	for _, ch := range c.Checks {
		e.Checks = append(e.Checks, ch.Entry())
	}
	return e
}

// Hash identifies configuration, script and checks.
func (c Compiled) Hash() string {
	type hashed struct {
		Config sut.Configuration
		Script sut.Script
		Checks []evidence.CheckEntry
	}
	h := hashed{Config: c.Config, Script: c.Script}
	for _, ch := range c.Checks {
		h.Checks = append(h.Checks, ch.Entry())
	}
	raw, err := json.Marshal(h)
	if err != nil {
		// Only strings, numbers and maps of them: cannot happen but by a programming error.
		panic(fmt.Sprintf("scenario %s: %v", c.Name, err))
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// PlanLines is what was intended, a line a step, for the bundle's plan file.
func (c Compiled) PlanLines() []json.RawMessage {
	type line struct {
		Scenario string             `json:"scenario"`
		Config   *sut.Configuration `json:"config,omitempty"`
		Index    int                `json:"index"`
		Step     *sut.Step          `json:"step,omitempty"`
		Async    *sut.AsyncStep     `json:"async,omitempty"`
	}
	lines := []line{{Scenario: c.Name, Config: &c.Config, Index: -1}}
	for i := range c.Script.Steps {
		lines = append(lines, line{Scenario: c.Name, Index: i, Step: &c.Script.Steps[i]})
	}
	for i := range c.Script.Async {
		lines = append(lines, line{Scenario: c.Name, Index: i, Async: &c.Script.Async[i]})
	}
	var out []json.RawMessage
	for _, l := range lines {
		raw, err := json.Marshal(l)
		if err != nil {
			panic(fmt.Sprintf("scenario %s: %v", c.Name, err))
		}
		out = append(out, raw)
	}
	return out
}
