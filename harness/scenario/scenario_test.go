package scenario_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/suites/catalog"
)

// eachProfile runs f with the catalogue compiled for every profile.
func eachProfile(t *testing.T, f func(t *testing.T, p profile.Profile, cs []scenario.Compiled)) {
	for _, name := range profile.All() {
		t.Run(name, func(t *testing.T) {
			p, err := profile.Named(name)
			if err != nil {
				t.Fatal(err)
			}
			f(t, p, catalog.Compile(p, 7))
		})
	}
}

func loads(c scenario.Compiled) bool {
	return slices.ContainsFunc(c.Script.Steps, func(s sut.Step) bool { return s.Op == sut.OpLoad })
}

func TestCompileIsDeterministic(t *testing.T) {
	eachProfile(t, func(t *testing.T, p profile.Profile, cs []scenario.Compiled) {
		again, other := catalog.Compile(p, 7), catalog.Compile(p, 8)
		for i, c := range cs {
			if c.Hash() != again[i].Hash() {
				t.Errorf("%s: one seed gives two hashes", c.Name)
			}
			if !slices.EqualFunc(c.PlanLines(), again[i].PlanLines(), func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
				t.Errorf("%s: one seed gives two plans", c.Name)
			}
			if changed := c.Hash() != other[i].Hash(); changed != loads(c) {
				t.Errorf("%s: another seed changes it: %v; it has a load: %v", c.Name, changed, loads(c))
			}
		}
	})
}

func TestHashesTellScenariosApart(t *testing.T) {
	c := catalog.Compile(mustProfile(t), 7)[0]
	first := c.Hash()
	for _, change := range []struct {
		says string
		do   func(*scenario.Compiled)
	}{
		{"the configuration", func(c *scenario.Compiled) { c.Config.MaxRequests = 77 }},
		{"the script", func(c *scenario.Compiled) { c.Script.Steps = c.Script.Steps[:1] }},
		{"a check's parameter", func(c *scenario.Compiled) {
			c.Checks = slices.Clone(c.Checks)
			c.Checks[0].Count++
		}},
		{"a check's requirement", func(c *scenario.Compiled) {
			c.Checks = slices.Clone(c.Checks)
			c.Checks[0].Requirement = "INV-99"
		}},
	} {
		d := c
		change.do(&d)
		if d.Hash() == first {
			t.Errorf("the hash does not see %s", change.says)
		}
	}
}

func mustProfile(t *testing.T) profile.Profile {
	t.Helper()
	p, err := profile.Named(profile.Default)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCatalogueIsConsistent(t *testing.T) {
	eachProfile(t, func(t *testing.T, p profile.Profile, cs []scenario.Compiled) {
		names := map[string]bool{}
		for _, c := range cs {
			if names[c.Name] || c.Name == "" || c.Title == "" {
				t.Errorf("scenario %q is listed twice, or has no name or title", c.Name)
			}
			names[c.Name] = true
			marks := map[string]bool{}
			ids := map[string]bool{}
			for _, s := range c.Script.Steps {
				marks[s.Mark] = true
				for _, r := range s.Requests {
					if ids[r.ID] {
						t.Errorf("%s sends two requests named %s", c.Name, r.ID)
					}
					ids[r.ID] = true
				}
			}
			for _, ch := range c.Checks {
				where := c.Name + ": " + ch.Requirement + " " + ch.Check
				if !slices.Contains(checks.Names(), ch.Check) {
					t.Errorf("%s is not in the library", where)
				}
				if _, ok := catalog.Find(ch.Requirement); !ok {
					t.Errorf("%s cites a requirement that is not in the catalogue", where)
				}
				// A mark that no step has leaves the check inconclusive for ever.
				for _, m := range append(slices.Clone(ch.Engaged), ch.Mark, ch.After, ch.Zero) {
					if m != "" && !marks[m] {
						t.Errorf("%s hangs on step %s, which the script does not have", where, m)
					}
				}
				named := slices.Concat(append(slices.Clone(ch.Groups), ch.IDs, ch.Waiting, ch.Then, ch.Open, ch.Closed)...)
				for id := range ch.Endpoint {
					named = append(named, id)
				}
				for _, id := range named {
					if !ids[id] {
						t.Errorf("%s judges request %s, which the script does not send", where, id)
					}
				}
			}
		}
		if cs[0].Name != "activation" {
			t.Error("the activation probe is first")
		}
		for _, ch := range catalog.RunChecks(p) {
			if _, ok := catalog.Find(ch.Requirement); !ok || !slices.Contains(checks.WholeNames(), ch.Check) {
				t.Errorf("check over the whole run: %s %s", ch.Requirement, ch.Check)
			}
		}
	})
}

func TestEntriesRoundTrip(t *testing.T) {
	eachProfile(t, func(t *testing.T, p profile.Profile, cs []scenario.Compiled) {
		specs := catalog.RunChecks(p)
		for _, c := range cs {
			specs = append(specs, c.Checks...)
		}
		for _, s := range specs {
			back, err := checks.FromEntry(s.Entry())
			if err != nil {
				t.Fatalf("%s %s: %v", s.Requirement, s.Check, err)
			}
			// Empty and absent lists are the same to a check and to JSON; what is written again must be the same bytes.
			if again := back.Entry(); !reflect.DeepEqual(again, s.Entry()) {
				t.Errorf("%s %s came back as %s, want %s", s.Requirement, s.Check, again.Params, s.Entry().Params)
			}
		}
	})
}

// What the profile does not judge is named with a reason, and nothing is dropped on the way.
func TestCompileNamesWhatItLeavesOut(t *testing.T) {
	s := scenario.Scenario{Name: "x", Title: "x", Write: func(b *scenario.Builder) {
		b.Cap(2, 3)
		b.Check("FC-SAT-01", "waiting", checks.Spec{})
		b.Check("FC-CLS-02", "order", checks.Spec{})
		b.Check("FC-CLS-05", "order", checks.Spec{})
		b.Check("FC-SAT-01", "completed", checks.Spec{})
	}}
	p, err := profile.Named("rhoai-3.4")
	if err != nil {
		t.Fatal(err)
	}
	c := scenario.Compile(s, p, 1)
	if len(c.Checks) != 2 || !slices.Equal(c.Requirements(), []string{"FC-SAT-01"}) {
		t.Errorf("judged: %v", c.Requirements())
	}
	if len(c.Excluded) != 2 || !strings.Contains(c.Excluded[0].Why, "not applicable") || !strings.Contains(c.Excluded[1].Why, "recorded only") {
		t.Errorf("left out: %+v", c.Excluded)
	}
	if c.Capacity != 6 || len(c.Config.Endpoints) != 3 || !c.Config.HeldAsWaiting || c.Config.Detector.Kind != "utilization" {
		t.Errorf("cap=2×3 without a concurrency detector: %+v", c.Config)
	}
	if e := c.Entry(); !e.Gated || e.Hash != c.Hash() || len(e.Checks) != 2 {
		t.Errorf("entry: %+v", e)
	}
}

// The words of the builder are steps with barriers; how many requests they mean is part of what a verdict rests on.
func TestBuilderWords(t *testing.T) {
	s := scenario.Scenario{Name: "x", Title: "x", Write: func(b *scenario.Builder) {
		b.Cap(10, 1)
		b.Ceiling(0.5)
		b.Plug()
		b.Queue(b.Req("a3"), b.Req("q", scenario.Anonymous()), b.Req("b1", scenario.Header("x-llm-d-inference-fairness-id", "")))
		b.Complete()
		b.FullCapacity()
	}}
	c := scenario.Compile(s, mustProfile(t), 1)
	plug, queue := c.Script.Steps[0], c.Script.Steps[1]
	if plug.Op != sut.OpPlug || len(plug.Requests) != 5 {
		t.Errorf("the plug fills the ceiling of half of ten: %d", len(plug.Requests))
	}
	for i, want := range []struct {
		says   string
		tenant string
		header string
		has    bool
	}{
		{"the letters of an id name its flow", "a", "a", true},
		{"an anonymous request carries no header", "", "", false},
		{"a header of its own is left as it is, also empty", "b", "", true},
	} {
		r := queue.Requests[i]
		if h, has := r.Extra["x-llm-d-inference-fairness-id"]; r.Tenant != want.tenant || h != want.header || has != want.has {
			t.Errorf("%s: %+v", want.says, r)
		}
	}
	last := c.Checks[len(c.Checks)-1]
	if last.Requirement != "INV-04" || last.Count != 5 || !slices.Equal(last.Waiting, []string{"beyond1"}) {
		t.Errorf("every scenario ends with the probe of full capacity: %+v", last)
	}
}
