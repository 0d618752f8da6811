package binary_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/env/local"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/verdict"
	"github.com/llm-weir/weir/suites/catalog"
)

// named are scenarios of the catalogue, in the given order.
func named(t *testing.T, p profile.Profile, names ...string) []scenario.Compiled {
	t.Helper()
	var out []scenario.Compiled
	for _, name := range names {
		for _, c := range catalog.Compile(p, 7) {
			if c.Name == name {
				out = append(out, c)
			}
		}
	}
	if len(out) != len(names) {
		t.Fatalf("the catalogue does not have all of %v", names)
	}
	return out
}

// play plays scenarios, each against the program of its own command; the last command serves all that follow.
func play(t *testing.T, parallel int, scenarios []string, commands ...binary.Command) (*evidence.Bundle, []verdict.Verdict) {
	t.Helper()
	p, err := profile.Named(profile.Default)
	if err != nil {
		t.Fatal(err)
	}
	var features []string
	for _, f := range sut.Features() {
		features = append(features, string(f))
	}
	var n atomic.Int64
	s, err := run.New(run.Options{Profile: p, Scenarios: named(t, p, scenarios...), Dir: filepath.Join(t.TempDir(), "bundle"), Parallel: parallel, New: func() sut.System {
		command := commands[min(int(n.Add(1)), len(commands))-1]
		return local.New(local.Options{Dialect: p.Config, Names: p.Headers, Command: &command, StartLimit: 5 * time.Second,
			Implementation: sut.Implementation{Project: "fake", Features: features}})
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.Start(context.Background())
	b, _, err := s.Seal()
	if err != nil {
		t.Fatal(err)
	}
	return b, run.Judge(b)
}

// Whatever a program does, its scenario ends with an explanation, the next one is played, and no process is left.
func TestABadProgramStaysInItsScenario(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute of real time")
	}
	for _, c := range []struct {
		says, mode string
		scenario   string
		want       verdict.Kind // the worst of the scenario
		why        string
		log        string
	}{
		{"it ends at once", "exits", "pri-late-high", verdict.Error, "exit status 7; it printed: no licence found", "no licence found"},
		{"it never listens", "silent", "pri-late-high", verdict.Error, "not ready within 5s", ""},
		{"it crashes while it works", "crashes", "pri-late-high", verdict.Error, "the picker ended by itself: exit status 3; it printed: serving\nsegmentation fault", "segmentation fault"},
		{"it leaves another behind that keeps its ports", "daemon", "pri-late-high", verdict.Error, "left processes outside its group behind", ""},
		{"it listens late", "late", "pri-late-high", verdict.Pass, "", "serving"},
		{"it floods its log", "floods", "pri-late-high", verdict.Pass, "", "bytes are not kept"},
		{"it ignores SIGTERM where nobody waits for it", "stubborn", "pri-late-high", verdict.Pass, "", "did not end within"},
		{"it ignores SIGTERM where that is judged", "stubborn", "shut-queued", verdict.Fail, "a", "did not end within"},
		{"a good one", "good", "shut-queued", verdict.Pass, "", "serving"},
	} {
		t.Run(c.says, func(t *testing.T) {
			const token = "WEIR_TEST_TOKEN"
			mark := rand.Text()
			t.Setenv(token, mark)
			b, verdicts := play(t, 1, []string{c.scenario, "activation"}, binary.Fake(c.mode), binary.Fake("good"))
			worst, why := verdict.Pass, ""
			for _, v := range verdicts {
				switch {
				case v.Scenario == c.scenario && v.Kind != verdict.Pass && (worst == verdict.Pass || v.Kind == c.want || v.Kind == verdict.Error):
					worst, why = v.Kind, v.Why
				case v.Scenario == "activation" && v.Kind == verdict.Error:
					t.Errorf("the next scenario: %s is %v: %s", v.Requirement, v.Kind, v.Why)
				}
			}
			if c.want == verdict.Pass && worst != verdict.Error {
				worst, why = verdict.Pass, "" // a busy machine may be too slow for a check; what is tested is that the scenario was played
			}
			if worst != c.want || !strings.Contains(why, c.why) {
				t.Errorf("%v: %s\nwant %v: %s", worst, why, c.want, c.why)
			}
			log, err := os.ReadFile(filepath.Join(b.Dir, "env", c.scenario, "picker.log"))
			if err != nil || !strings.Contains(string(log), c.log) {
				t.Errorf("the log in the bundle: %v %.500s", err, log)
			}
			if left := binary.Marked(token, mark); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// A picker that is quite different is failed for what it lacks, passed for what it has, and never an error.
func TestTinyEPP(t *testing.T) {
	if testing.Short() {
		t.Skip("ten seconds of real time")
	}
	exe := filepath.Join(t.TempDir(), "tinyepp")
	if out, err := exec.Command("go", "build", "-o", exe, "../../testdata/tinyepp").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	command, err := binary.Parse("'" + exe + "' --config {{.Config}} --port {{.GRPCPort}} --endpoints {{.EndpointsFile}}")
	if err != nil {
		t.Fatal(err)
	}
	_, verdicts := play(t, 8, []string{"activation", "pri-strict", "fair-round-robin", "fair-global-strict", "can-queued", "proto-late-choice", "cfg-mistakes", "shut-queued", "sat-stale"}, command)
	got := map[string]verdict.Kind{}
	for _, v := range verdicts {
		if worst, ok := got[v.Requirement]; !ok || v.Kind != verdict.Pass && worst == verdict.Pass {
			got[v.Requirement] = v.Kind
		}
		if v.Kind == verdict.Error {
			t.Errorf("%s in %s: error: %s", v.Requirement, v.Scenario, v.Why)
		}
	}
	for id, want := range map[string]verdict.Kind{
		"INV-01": verdict.Pass, "FC-FAIR-06": verdict.Pass, "FC-CAN-01": verdict.Pass, "FC-PROTO-02": verdict.Pass, // a gate, one order for all, a queue that clients can leave, a late choice
		"FC-PRI-01": verdict.Fail, "FC-FAIR-01": verdict.Fail, "FC-CFG-03": verdict.Fail, "FC-SHUT-01": verdict.Fail, // no priorities, no tenants, no opinion, no farewell
		"FC-SAT-09": verdict.Inconclusive, // it scrapes nobody
	} {
		if kind, ok := got[id]; !ok || kind != want {
			t.Errorf("%s: %v, want %v", id, kind, want)
		}
	}
}

// What nobody has declared is tried: a program that refuses a configuration at its start does not know the feature.
func TestDiscovery(t *testing.T) {
	p, err := profile.Named(profile.Default)
	if err != nil {
		t.Fatal(err)
	}
	holdback := sut.Configuration{Ceiling: sut.Ceiling{Kind: "holdback", Min: 0.5, Max: 1}, Bands: []sut.Band{{Priority: 0}, {Priority: -10}}}
	for _, c := range []struct {
		says, mode string
		discover   bool
		config     sut.Configuration
		want       string // of the unsupported feature; "" for none
	}{
		{"refused", "modest", true, holdback, "holdback is beyond me"},
		{"refused although it was declared: the scenario will show", "modest", false, holdback, ""},
		{"taken", "good", true, holdback, ""},
		{"not asked for", "modest", true, sut.Configuration{}, ""},
		{"it does not even start: the scenario will show", "silent", true, holdback, ""},
	} {
		command := binary.Fake(c.mode)
		s := local.New(local.Options{Dialect: p.Config, Command: &command, Discover: c.discover, StartLimit: 5 * time.Second})
		err := s.Configure(t.Context(), c.config)
		var unsupported *sut.UnsupportedError
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.says, err)
		case c.want != "" && (!errors.As(err, &unsupported) || unsupported.Feature != sut.Holdback || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.says, err, c.want)
		}
	}
}
