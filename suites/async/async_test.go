package async_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/suites/catalog"
)

// eachProfile runs f with the scenarios compiled for every contract of processors.
func eachProfile(t *testing.T, f func(t *testing.T, p profile.Profile, cs []scenario.Compiled)) {
	for _, name := range profile.Processors() {
		t.Run(name, func(t *testing.T) {
			p, err := profile.Named(name)
			if err != nil {
				t.Fatal(err)
			}
			f(t, p, catalog.Compile(p, 7))
		})
	}
}

// A scenario is the same whenever it is written down: what was played is compared with it, and nothing in it is drawn.
func TestCompileIsDeterministic(t *testing.T) {
	eachProfile(t, func(t *testing.T, p profile.Profile, cs []scenario.Compiled) {
		for round := range 16 { // the order of a map with two entries is the same every other time
			again := catalog.Compile(p, uint64(round))
			for i, c := range cs {
				if c.Hash() != again[i].Hash() || !slices.EqualFunc(c.PlanLines(), again[i].PlanLines(), func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
					t.Fatalf("%s is written down in two ways", c.Name)
				}
			}
		}
	})
}

func TestScenariosAreConsistent(t *testing.T) {
	eachProfile(t, func(t *testing.T, p profile.Profile, cs []scenario.Compiled) {
		names := map[string]bool{}
		for _, c := range cs {
			if names[c.Name] || !strings.HasPrefix(c.Name, "async-") || c.Title == "" {
				t.Errorf("scenario %q is listed twice, or has no name or title", c.Name)
			}
			names[c.Name] = true
			if len(c.Script.Async) == 0 || len(c.Script.Steps) > 0 {
				t.Errorf("%s does nothing, or something to a router", c.Name)
			}
			if len(c.Checks)+len(c.Excluded) == 0 {
				t.Errorf("%s judges nothing", c.Name)
			}
			marks := stepMarks(t, c)
			for _, ch := range c.Checks {
				consistentCheck(t, p, c, ch, marks)
			}
		}
		if len(catalog.RunChecks(p)) > 0 {
			t.Error("there are checks over the whole run, which nothing here looks at")
		}
	})
}

// stepMarks are the steps of a scenario by their mark. Several may share one: a check that hangs on it hangs on each of them.
func stepMarks(t *testing.T, c scenario.Compiled) map[string][]sut.AsyncStep {
	t.Helper()
	marks, cases := map[string][]sut.AsyncStep{}, map[string]bool{}
	for _, s := range c.Script.Async {
		for _, try := range s.Tries {
			if cases[try.Case] {
				t.Errorf("%s tries %q twice", c.Name, try.Case)
			}
			cases[try.Case] = true
		}
		if s.Mark != "" {
			marks[s.Mark] = append(marks[s.Mark], s)
		}
	}
	return marks
}

func consistentCheck(t *testing.T, p profile.Profile, c scenario.Compiled, ch checks.Spec, marks map[string][]sut.AsyncStep) {
	t.Helper()
	where := c.Name + ": " + ch.Requirement + " " + ch.Check
	if !slices.Contains(checks.Names(), ch.Check) || ch.Async == nil {
		t.Errorf("%s is not in the library, or has no parameters", where)
		return
	}
	if _, ok := catalog.Find(ch.Requirement); !ok || !strings.HasPrefix(ch.Requirement, "AP-") && !strings.HasPrefix(ch.Requirement, "BEN-") || !catalog.Judged(p, ch.Requirement) {
		t.Errorf("%s cites a requirement that is not in the catalogue, or not about processors", where)
	}
	// A mark that no step has leaves the check inconclusive for ever.
	for _, m := range ch.Engaged {
		if len(marks[m]) == 0 {
			t.Errorf("%s hangs on step %q, which the script does not have", where, m)
		}
	}
	// What a check measures from, to or at is one instant.
	only := func(m string, ops ...sut.AsyncOp) sut.AsyncStep {
		if len(marks[m]) != 1 || len(ops) > 0 && !slices.Contains(ops, marks[m][0].Op) {
			t.Errorf("%s looks at step %q, of which the script has %d, or which does not do such a thing", where, m, len(marks[m]))
			return sut.AsyncStep{}
		}
		return marks[m][0]
	}
	a := *ch.Async
	for _, m := range []string{a.From, a.To, a.Anchor} {
		if m != "" && m != "deadline" {
			only(m)
		}
	}
	for m := range a.Details {
		only(m)
	}
	for _, v := range a.Values {
		read := []string{v.Mark}
		if v.Since != "" {
			read = append(read, v.Since)
		}
		for _, m := range read {
			if s := only(m, sut.AsyncScrape); s.Mark != "" && named(s.Who) != named(v.Who) {
				t.Errorf("%s wants values of processor %s at step %s, which reads those of %s", where, named(v.Who), m, named(s.Who))
			}
		}
	}
	for _, k := range a.Keys {
		s := only(k.Mark, sut.AsyncSize, sut.AsyncLook, sut.AsyncAsk)
		for _, key := range k.Keys {
			if s.Op != sut.AsyncAsk && !slices.Contains(s.Names, key) {
				t.Errorf("%s wants key %s of step %s, which does not look at it", where, key, k.Mark)
			}
		}
	}
	starts := slices.Concat(a.Valid, slices.Collect(maps.Keys(a.Cases)))
	switch ch.Check {
	case "async-printed":
		starts = append(starts, slices.Collect(maps.Keys(a.Texts))...)
	case "async-exits":
		starts = append(starts, a.Names...)
	case "async-unready":
		for _, m := range a.Names {
			only(m, sut.AsyncGet)
		}
	}
	for _, name := range starts {
		if !slices.ContainsFunc(c.Script.Async, func(s sut.AsyncStep) bool {
			return s.Op == sut.AsyncEnded && s.Mark == name || slices.ContainsFunc(s.Tries, func(t sut.AsyncTrial) bool { return t.Case == name })
		}) {
			t.Errorf("%s judges the start %q, which the script does not try and whose end it does not wait for", where, name)
		}
	}
}

// named is the name of a processor.
func named(who string) string { return cmp.Or(who, "p") }

// Every message that a check names is sent.
func TestChecksNameMessagesThatAreSent(t *testing.T) {
	eachProfile(t, func(t *testing.T, _ profile.Profile, cs []scenario.Compiled) {
		for _, c := range cs {
			sent := map[string]bool{}
			for _, s := range c.Script.Async {
				for _, m := range s.Messages {
					sent[m.ID] = true
				}
			}
			for _, ch := range c.Checks {
				a := *ch.Async
				named := slices.Concat(append(slices.Clone(a.Groups), a.IDs, a.Order)...)
				if ch.Check != "async-printed" { // whose texts are of processes
					named = append(named, slices.Collect(maps.Keys(a.Texts))...)
				}
				for _, w := range a.Attempts {
					named = append(named, w.ID)
				}
				for _, id := range named {
					// "?" is an attempt that names no message.
					prefix, open := strings.CutSuffix(id, "*")
					if id == "?" || sent[id] || open && slices.ContainsFunc(slices.Collect(maps.Keys(sent)), func(s string) bool { return strings.HasPrefix(s, prefix) }) {
						continue
					}
					t.Errorf("%s: %s %s judges message %s, which the script does not send", c.Name, ch.Requirement, ch.Check, id)
				}
			}
		}
	})
}

// Every core and extended row about processors has a scenario, or a reason why it has none.
func TestEveryRowIsJudgedOrExcused(t *testing.T) {
	eachProfile(t, func(t *testing.T, p profile.Profile, cs []scenario.Compiled) {
		has := map[string]bool{}
		for _, r := range catalog.Covered(cs, p) {
			has[r.ID] = true
		}
		for _, r := range catalog.Requirements() {
			applies, _ := p.Applies(r.ID)
			_, excused := catalog.Elsewhere(r.ID)
			if !catalog.Judged(p, r.ID) {
				continue
			}
			if asked := r.Level == scenario.Core || r.Level == scenario.Extended; asked && applies && !has[r.ID] && !excused {
				t.Errorf("%s (%s) has neither a scenario nor a reason: %s", r.ID, r.Level, r.Text)
			}
			if has[r.ID] && excused {
				t.Errorf("%s has a scenario, and a reason why it has none", r.ID)
			}
		}
		if !has["BEN-21"] {
			t.Error("the benchmark of pools and lanes is not judged")
		}
	})
}

// What is about processors is no business of a router's contract, and the reverse.
func TestContractsJudgeTheirOwn(t *testing.T) {
	router, err := profile.Named(profile.Default)
	if err != nil {
		t.Fatal(err)
	}
	processor, err := profile.Named(profile.DefaultProcessor)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range catalog.Requirements() {
		if catalog.Judged(router, r.ID) && catalog.Judged(processor, r.ID) {
			t.Errorf("%s is judged under both", r.ID)
		}
	}
	for id, want := range map[string][2]bool{"AP-TRN-01": {false, true}, "BEN-21": {false, true}, "BEN-01": {true, false}, "FC-SAT-01": {true, false}, "E2E-01": {true, false}, "INV-01": {true, false}} {
		if got := [2]bool{catalog.Judged(router, id), catalog.Judged(processor, id)}; got != want {
			t.Errorf("%s is judged of router and processor: %v, want %v", id, got, want)
		}
	}
	for _, c := range catalog.Compile(router, 1) {
		if len(c.Script.Async) > 0 || slices.Contains(c.Requirements(), "BEN-21") {
			t.Errorf("%s does something to a processor under a contract of routers", c.Name)
		}
	}
}
