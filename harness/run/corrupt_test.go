package run_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/env/virtual"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/verdict"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/suites/catalog"
)

// A good bundle is corrupted, and the checks must notice. The bundle is the whole catalogue, played against the reference in virtual
// time; for every check of it that passes, evidence is taken away or changed in a way that must matter to that check.

// bundles are played once for all tests, which change only clones of what was seen.
var bundles = map[string]*evidence.Bundle{}

// goodBundle plays the catalogue under a profile.
func goodBundle(t *testing.T, name string) *evidence.Bundle {
	t.Helper()
	if b, ok := bundles[name]; ok {
		return b
	}
	p, err := profile.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := epconfig.ContractNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := run.New(run.Options{Profile: p, Scenarios: catalog.Compile(p, 7), RunChecks: catalog.RunChecks(p), Parallel: 2,
		New: func() sut.System {
			return virtual.New(virtual.Options{Dialect: p.Config, Names: p.Headers, Contract: c})
		}})
	if err != nil {
		t.Fatal(err)
	}
	s.Start(context.Background())
	b, _, err := s.Seal()
	if err != nil {
		t.Fatal(err)
	}
	bundles[name] = b
	return b
}

// most is the number of requests above which a scenario is left out of the loops over single records: they judge a scenario once per
// record, and a load of thousands would take minutes to show for each of its requests what smaller scenarios show with the same check.
// The checks over the whole run are tried on everything.
const most = 300

// passing is a check of one scenario that passes on what was seen.
type passing struct {
	spec checks.Spec
	seen evidence.Run
}

func (p passing) String() string {
	return p.seen.Scenario + ": " + p.spec.Requirement + " " + p.spec.Check
}

func passingChecks(t *testing.T, b *evidence.Bundle) []passing {
	t.Helper()
	var out []passing
	for i, s := range b.Manifest.Scenarios {
		if len(b.Runs[i].Clients) > most {
			continue
		}
		for _, e := range s.Checks {
			spec, err := checks.FromEntry(e)
			if err != nil {
				t.Fatal(err)
			}
			if s.Error == "" && s.NotApplicable == "" && checks.Judge(spec, b.Runs[i]).Kind == verdict.Pass {
				out = append(out, passing{spec, b.Runs[i]})
			}
		}
	}
	if len(out) < 100 {
		t.Fatalf("only %d checks pass; the corruption would show nothing", len(out))
	}
	return out
}

func clone(r evidence.Run) evidence.Run {
	r.Clients, r.Backends, r.Steps = slices.Clone(r.Clients), slices.Clone(r.Backends), slices.Clone(r.Steps)
	r.Samples, r.Processes, r.Exchanges = slices.Clone(r.Samples), slices.Clone(r.Processes), slices.Clone(r.Exchanges)
	return r
}

// corruption changes a copy of what was seen; it reports false where it does not concern the check.
type corruption struct {
	says string
	do   func(checks.Spec, *evidence.Run) bool
	// spared says why a check may pass all the same; "" if it may not.
	spared func(checks.Spec) string
}

// onePage is why two checks need no record of a request. They are about what the router publishes of itself, and are engaged by the
// values above 0 that it published; that those are true is what the series check of the same scenario says.
const onePage = "it compares the router's page with itself"

// sampled lists the checks that read the router's page.
var sampled = []string{"series", "waits", "twins", "outcome-counts", "label-values", "gone", "absent", "families", "engine"}

func strict(checks.Spec) string { return "" }

// atServers tells whether a check needs the model servers' records: what is judged of a batch processor is mostly seen on its own side.
func atServers(s checks.Spec) bool { return s.Async == nil || s.Check == "async-served" }

var corruptions = []corruption{
	{"no model server recorded anything", func(s checks.Spec, r *evidence.Run) bool { r.Backends = nil; return atServers(s) },
		func(s checks.Spec) string {
			switch {
			case s.Check == "startup":
				return "it is about processes that never serve"
			case s.Check == "twins", s.Check == "gone":
				return onePage
			case s.Check == "series":
				return "it reads the router's page, and clients for who waits"
			case s.Check == "refused" && s.Count == 0, s.Check == "reasons":
				return "a refused request is to be seen by no model server; the scenario may have reached none at all"
			}
			return ""
		}},
	{"no client recorded anything", func(_ checks.Spec, r *evidence.Run) bool { r.Clients, r.Observations = nil, nil; return true },
		func(s checks.Spec) string {
			switch {
			case s.Check == "startup":
				return "it is about processes that never serve"
			case s.Check == "twins", s.Check == "gone":
				return onePage
			case s.Check == "series" && len(s.Waiting) == 0:
				return "its engagement is the scripted values, not anybody waiting"
			}
			return ""
		}},
	{"no step was recorded", func(_ checks.Spec, r *evidence.Run) bool { r.Steps = nil; return true },
		func(s checks.Spec) string {
			if s.Mark == "" && s.After == "" && len(s.Engaged) == 0 &&
				slices.Contains([]string{"arrives", "completed", "refused", "reasons", "aborted", "evicted", "served-by", "body", "startup", "upstream-error",
					"either", "stays", "peak", "spread", "prompt-stream", "unseen"}, s.Check) {
				return "all its instants are the requests' own"
			}
			return ""
		}},
	{"no step reached its barrier", func(_ checks.Spec, r *evidence.Run) bool {
		for i := range r.Steps {
			r.Steps[i].OK = false
		}
		return true
	}, func(s checks.Spec) string {
		if s.Mark == "" && s.After == "" && len(s.Engaged) == 0 {
			return "it hangs on no step"
		}
		switch {
		case s.Check == "one-per-release":
			return "it counts the arrivals itself"
		case s.Check == "served-by" || s.Check == "refused" && s.After != "" && s.Mark == "":
			return "the step is an instant for it; what must hold then is counted from the records"
		}
		return ""
	}},
	{"no metric was sampled", func(s checks.Spec, r *evidence.Run) bool { r.Samples = nil; return slices.Contains(sampled, s.Check) }, strict},
	{"the decisive page shows nothing", func(s checks.Spec, r *evidence.Run) bool {
		r.Samples = slices.DeleteFunc(r.Samples, func(sm evidence.Sample) bool { return sm.Mark == s.Mark })
		return slices.Contains(sampled, s.Check)
	}, strict},
	{"the page shows no numbers", func(s checks.Spec, r *evidence.Run) bool {
		for i := range r.Samples {
			r.Samples[i].Value = math.NaN()
		}
		return slices.Contains(sampled, s.Check)
	}, func(s checks.Spec) string {
		if s.Check == "gone" || s.Check == "absent" || s.Check == "families" {
			return "it is about which series there are"
		}
		return ""
	}},
	{"all samples are a model server's", func(s checks.Spec, r *evidence.Run) bool {
		for i := range r.Samples {
			r.Samples[i].Source = "another"
		}
		return slices.Contains(sampled, s.Check)
	}, strict},
	{"nothing is known of the exchanges", func(s checks.Spec, r *evidence.Run) bool {
		r.Exchanges = nil
		return s.Check == "destination" || s.Check == "silent"
	}, strict},
	{"the metadata of one request name another", func(s checks.Spec, r *evidence.Run) bool {
		if s.Check != "destination" {
			return false
		}
		r.Exchanges[len(r.Exchanges)/2].MetadataDestination = "elsewhere"
		return true
	}, strict},
	{"the router spoke as soon as it was asked", func(s checks.Spec, r *evidence.Run) bool {
		for i := range r.Exchanges {
			c, _ := r.ClientByID(r.Exchanges[i].ID)
			r.Exchanges[i].First = c.Sent
		}
		return s.Check == "silent"
	}, strict},
	{"one answer lost a byte", func(s checks.Spec, r *evidence.Run) bool {
		return s.Check == "answers" && edit(r.Clients, s.IDs, func(c *evidence.Client) bool { c.AnswerSHA256 = "shorter"; return true })
	}, strict},
	{"one of the samples has another type", func(s checks.Spec, r *evidence.Run) bool {
		for i := range r.Samples {
			r.Samples[i].Type = "summary"
		}
		return s.Check == "families"
	}, strict},
	{"the lowest request of a level that was not served was", func(s checks.Spec, r *evidence.Run) bool {
		if s.Check != "prefix" {
			return false
		}
		for _, g := range s.Groups {
			served := func(id string) bool {
				return slices.ContainsFunc(r.Backends, func(b evidence.Backend) bool { return b.ID == id })
			}
			if last := g[len(g)-1]; !served(g[0]) {
				i := slices.IndexFunc(r.Clients, func(c evidence.Client) bool { return c.ID == last })
				sent := r.Clients[i].Sent
				r.Backends = append(r.Backends, evidence.Backend{ID: last, Endpoint: "a", Arrival: sent + 1, End: sent + 2, Ending: evidence.Finished})
				return true
			}
		}
		return false
	}, strict},
	{"one of those who waited had left when another was refused", func(s checks.Spec, r *evidence.Run) bool {
		if s.Check != "at-limit" {
			return false
		}
		return edit(r.Clients, []string{"a4"}, func(c *evidence.Client) bool { c.End = c.Sent + 1; return true })
	}, strict},
	{"the health service says the same throughout", func(s checks.Spec, r *evidence.Run) bool {
		for i := range r.Steps {
			if r.Steps[i].Op == "health" {
				r.Steps[i].Detail = "SERVING"
			}
		}
		return s.Check == "state"
	}, strict},
	{"one sample of a counter is one more", func(s checks.Spec, r *evidence.Run) bool {
		i := slices.IndexFunc(r.Samples, func(sm evidence.Sample) bool {
			return sm.Mark == s.Mark && (slices.Contains(s.Names, sm.Name) || slices.Contains(s.Names, strings.TrimSuffix(sm.Name, "_count")))
		})
		if i < 0 || s.Check != "waits" && s.Check != "outcome-counts" {
			return false
		}
		r.Samples[i].Value++
		return true
	}, strict},
	{"tokens reach their client all at once", func(s checks.Spec, r *evidence.Run) bool {
		return s.Check == "prompt-stream" && edit(r.Clients, s.IDs, func(c *evidence.Client) bool {
			c.TokenTimes = slices.Repeat([]int64{c.LastToken}, len(c.TokenTimes))
			return true
		})
	}, strict},
	{"tokens behind the first reach their client all at once", func(s checks.Spec, r *evidence.Run) bool {
		return s.Check == "prompt-stream" && edit(r.Clients, s.IDs, func(c *evidence.Client) bool {
			c.TokenTimes = append(c.TokenTimes[:1:1], slices.Repeat([]int64{c.LastToken}, len(c.TokenTimes)-1)...)
			return true
		})
	}, strict},
	{"one more is in flight at the peak", func(s checks.Spec, r *evidence.Run) bool {
		if s.Check != "peak" {
			return false
		}
		// Everything stays a little longer, so that successors meet.
		for i := range r.Backends {
			r.Backends[i].End += 20e9
		}
		return true
	}, strict},
	{"all were served by one endpoint", func(s checks.Spec, r *evidence.Run) bool {
		for i := range r.Backends {
			r.Backends[i].Endpoint = "a"
		}
		return s.Check == "spread"
	}, strict},
	{"no start was recorded", func(s checks.Spec, r *evidence.Run) bool { r.Processes = nil; return s.Check == "startup" }, strict},
	{"nothing arrived at any instant", func(s checks.Spec, r *evidence.Run) bool {
		for i := range r.Backends {
			r.Backends[i].Arrival = evidence.Never
		}
		return len(r.Backends) > 0 && atServers(s)
	}, func(s checks.Spec) string {
		switch {
		case s.Check == "startup":
			return "it is about processes that never serve"
		case s.Check == "twins", s.Check == "gone":
			return onePage
		case s.Check == "refused" && s.Count == 0, s.Check == "reasons", s.Check == "series" && len(s.Waiting) == 0:
			return "it looks at no arrival"
		case s.Check == "series" && s.Requirement == "FC-CAP-06":
			return "whoever waits leaves before being served"
		}
		return ""
	}},
	{"a refused request has another status", func(s checks.Spec, r *evidence.Run) bool {
		switch {
		case s.Check == "upstream-error", s.Check == "evicted", s.Check == "refused" && s.Mode != "any":
			return edit(r.Clients, s.IDs, func(c *evidence.Client) bool {
				refused := c.Outcome == evidence.Refused
				c.Status = 418
				return refused
			})
		}
		return false
	}, strict},
	{"a refused request has another reason", func(s checks.Spec, r *evidence.Run) bool {
		if s.Check != "reasons" && s.Reason == "" {
			return false
		}
		return edit(r.Clients, slices.Concat(append([][]string{s.IDs}, s.Groups...)...), func(c *evidence.Client) bool {
			refused := c.Outcome == evidence.Refused
			c.Reason = "because"
			return refused
		})
	}, strict},
	{"a refused request reached a model server", func(s checks.Spec, r *evidence.Run) bool {
		if s.Check != "refused" {
			return false
		}
		r.Backends = append(r.Backends, evidence.Backend{ID: s.IDs[len(s.IDs)-1], Endpoint: "a", Arrival: 1, End: 2, Ending: evidence.Aborted})
		return true
	}, strict},
}

// edit changes the first record of ids for which change says that it mattered.
func edit(cs []evidence.Client, ids []string, change func(*evidence.Client) bool) bool {
	for i, c := range cs {
		if slices.Contains(ids, c.ID) && change(&c) {
			cs[i] = c
			return true
		}
	}
	return false
}

func TestCorruptedEvidenceDoesNotPass(t *testing.T) {
	used := map[string]bool{}
	for _, name := range profile.All() {
		t.Run(name, func(t *testing.T) {
			good := passingChecks(t, goodBundle(t, name))
			for _, c := range corruptions {
				tried := 0
				for _, p := range good {
					r := clone(p.seen)
					if !c.do(p.spec, &r) {
						continue
					}
					tried++
					v := checks.Judge(p.spec, r)
					why := c.spared(p.spec)
					if v.Kind == verdict.Pass && why == "" {
						t.Errorf("%s, and %v passes: %s", c.says, p, v.Figure)
					}
					// An exception that excuses nothing hides the next mistake.
					used[c.says+": "+why] = used[c.says+": "+why] || v.Kind == verdict.Pass
				}
				if tried == 0 && name == profile.Default {
					t.Errorf("%q concerned no check", c.says)
				}
			}
		})
	}
	for exception, needed := range used {
		if !needed && !strings.HasSuffix(exception, ": ") {
			t.Errorf("the exception %q excuses no check", exception)
		}
	}
}

// An order check must notice every single exchange of two requests that it puts into different groups, and every tie between them.
func TestOrderNoticesEveryExchange(t *testing.T) {
	tried := 0
	for _, p := range passingChecks(t, goodBundle(t, profile.Default)) {
		if p.spec.Check != "order" {
			continue
		}
		for i, g := range p.spec.Groups {
			for _, h := range p.spec.Groups[i+1:] {
				for _, a := range g {
					for _, b := range h {
						tried++
						swapped, tied := clone(p.seen), clone(p.seen)
						at, bt := indexOf(swapped, a), indexOf(swapped, b)
						swapped.Backends[at].Arrival, swapped.Backends[bt].Arrival = swapped.Backends[bt].Arrival, swapped.Backends[at].Arrival
						tied.Backends[at].Arrival = tied.Backends[bt].Arrival
						for what, r := range map[string]evidence.Run{"are exchanged": swapped, "arrive at one instant": tied} {
							r.Sort()
							if v := checks.Judge(p.spec, r); v.Kind == verdict.Pass {
								t.Errorf("%v passes although %s and %s %s", p, a, b, what)
							}
						}
					}
				}
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d exchanges were tried", tried)
	}
}

func indexOf(r evidence.Run, id string) int {
	return slices.IndexFunc(r.Backends, func(b evidence.Backend) bool { return b.ID == id })
}

// Every single request that a check names is needed for its pass: without its client's record, and without its model server's where
// it has one.
func TestEveryNamedRequestIsNeeded(t *testing.T) {
	for _, name := range profile.All() {
		for _, p := range passingChecks(t, goodBundle(t, name)) {
			if p.spec.Check == "one-per-release" {
				continue // it names who may wait, and needs only that somebody does
			}
			s := p.spec
			served := slices.Concat(append(slices.Clone(s.Groups), s.Then, s.Open)...)
			if !slices.Contains([]string{"waiting", "refused", "never-served", "in-flight"}, s.Check) {
				served = append(served, s.IDs...)
			}
			for id := range s.Endpoint {
				served = append(served, id)
			}
			for _, id := range slices.Concat(served, s.IDs, s.Waiting, s.Closed) {
				r := clone(p.seen)
				r.Clients = slices.DeleteFunc(r.Clients, func(c evidence.Client) bool { return c.ID == id })
				if v := checks.Judge(s, r); v.Kind == verdict.Pass {
					t.Errorf("%s: %v passes without the client record of %s", name, p, id)
				}
			}
			for _, id := range served {
				r := clone(p.seen)
				r.Backends = slices.DeleteFunc(r.Backends, func(b evidence.Backend) bool { return b.ID == id })
				if len(r.Backends) == len(p.seen.Backends) {
					continue // whom the router refuses, no model server knows
				}
				if v := checks.Judge(s, r); v.Kind == verdict.Pass {
					t.Errorf("%s: %v passes without the model server's record of %s", name, p, id)
				}
			}
		}
	}
}

// A check of how many ran at once knows nothing if a single request that was answered is missing at the model servers.
func TestPeakNeedsEveryRecord(t *testing.T) {
	tried := 0
	for _, p := range passingChecks(t, goodBundle(t, profile.Default)) {
		if p.spec.Check != "peak" {
			continue
		}
		for i := range p.seen.Backends {
			tried++
			r := clone(p.seen)
			r.Backends = slices.Delete(r.Backends, i, i+1)
			if v := checks.Judge(p.spec, r); v.Kind == verdict.Pass {
				t.Errorf("%v passes without the model server's record of %s", p, p.seen.Backends[i].ID)
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d records were taken away", tried)
	}
}

// The checks over the whole run must notice one changed record among thousands.
func TestWholeRunNoticesOneRecord(t *testing.T) {
	b := goodBundle(t, profile.Default)
	find := func(rs []evidence.Run, f func(evidence.Client) bool) *evidence.Client {
		for i := range rs {
			for j := range rs[i].Clients {
				if f(rs[i].Clients[j]) {
					return &rs[i].Clients[j]
				}
			}
		}
		t.Fatal("the bundle has no such record")
		return nil
	}
	completed := func(c evidence.Client) bool { return c.Outcome == evidence.Completed }
	refused := func(c evidence.Client) bool { return c.Outcome == evidence.Refused && c.Reason != "" }
	for _, c := range []struct {
		says   string
		change func([]evidence.Run)
		notice []string
	}{
		{"one request never ends", func(rs []evidence.Run) { find(rs, completed).Outcome = evidence.Unfinished }, []string{"conservation", "no-internal-errors"}},
		{"one request is refused and served", func(rs []evidence.Run) {
			x := find(rs, completed)
			x.Outcome, x.Status, x.Reason = evidence.Refused, 429, "rejected-saturated"
		}, []string{"conservation", "refused-unseen"}},
		{"one refusal is a 500", func(rs []evidence.Run) { find(rs, refused).Status = 500 }, []string{"no-internal-errors", "clean-refusals"}},
		{"one refusal names an unknown reason", func(rs []evidence.Run) { find(rs, refused).Reason = "because" }, []string{"declared-reasons"}},
		{"one connection breaks", func(rs []evidence.Run) { find(rs, refused).Outcome = evidence.TransportError }, []string{"no-internal-errors", "clean-refusals"}},
		{"one stream breaks off", func(rs []evidence.Run) { find(rs, completed).Outcome = evidence.KilledMidStream }, []string{"no-internal-errors"}},
		{"one request arrives twice", func(rs []evidence.Run) {
			r := &rs[0]
			r.Backends = append(r.Backends, r.Backends[0])
		}, []string{"conservation", "one-dispatch"}},
		{"one request has two client records", func(rs []evidence.Run) { rs[0].Clients = append(rs[0].Clients, rs[0].Clients[0]) }, []string{"conservation"}},
		{"one client record is lost", func(rs []evidence.Run) { rs[0].Clients = rs[0].Clients[1:] }, []string{"conservation"}},
		{"one model server's record is lost", func(rs []evidence.Run) { rs[0].Backends = rs[0].Backends[1:] }, []string{"conservation"}},
		{"no model server recorded anything", func(rs []evidence.Run) {
			for i := range rs {
				rs[i].Backends = nil
			}
		}, []string{"conservation", "one-dispatch", "refused-unseen", "no-internal-errors"}},
		{"no client recorded anything", func(rs []evidence.Run) {
			for i := range rs {
				rs[i].Clients = nil
			}
		}, checks.WholeNames()},
	} {
		runs := make([]evidence.Run, len(b.Runs))
		for i := range b.Runs {
			runs[i] = clone(b.Runs[i])
		}
		before := judgeWhole(t, b, runs)
		c.change(runs)
		after := judgeWhole(t, b, runs)
		for _, name := range c.notice {
			if before[name].Kind != verdict.Pass {
				t.Errorf("%s does not pass on the good bundle: %s", name, before[name].Why)
			}
			if after[name].Kind == verdict.Pass {
				t.Errorf("%s, and %s passes: %s", c.says, name, after[name].Figure)
			}
		}
	}
}

func judgeWhole(t *testing.T, b *evidence.Bundle, runs []evidence.Run) map[string]verdict.Verdict {
	t.Helper()
	out := map[string]verdict.Verdict{}
	for _, e := range b.Manifest.RunChecks {
		spec, err := checks.FromEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		out[e.Check] = checks.JudgeWhole(spec, runs)
	}
	if len(out) != len(checks.WholeNames()) {
		t.Fatal(fmt.Errorf("%d of %d checks over the whole run are part of it", len(out), len(checks.WholeNames())))
	}
	return out
}
