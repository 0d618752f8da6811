package run_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/verdict"
)

// system is a system under test whose parts the test chooses; without a choice it serves one request.
type system struct {
	features  []string
	configure func(context.Context) error
	play      func(context.Context, evidence.Sink) error
	closed    chan struct{} // nil, or closed when the system is
}

func (s *system) Describe() sut.Implementation { return sut.Implementation{Features: s.features} }

func (s *system) Configure(ctx context.Context, _ sut.Configuration) error {
	if s.configure == nil {
		return nil
	}
	return s.configure(ctx)
}

func (s *system) Play(ctx context.Context, _ sut.Script, out evidence.Sink) error {
	if s.play != nil {
		return s.play(ctx, out)
	}
	serve(out)
	return nil
}

func (s *system) Close(context.Context) error {
	if s.closed != nil {
		close(s.closed)
	}
	return nil
}

func serve(out evidence.Sink) {
	out.Client(evidence.Client{ID: "a1", Sent: 1, End: 9, Outcome: evidence.Completed, Status: 200})
	out.Backend(evidence.Backend{ID: "a1", Endpoint: "a", Arrival: 2, End: 8, Ending: evidence.Finished})
	out.Step(evidence.Step{Op: "send", Start: 1, End: 9, OK: true})
}

func compiled(name string, needs ...sut.Feature) scenario.Compiled {
	return scenario.Compiled{Name: name, Title: name, Needs: needs, Script: sut.Script{Scenario: name},
		Checks: []checks.Spec{{Check: "completed", Requirement: "FC-" + name, IDs: []string{"a1"}}}}
}

func options(sys func() sut.System, cs ...scenario.Compiled) run.Options {
	o := run.Options{Scenarios: cs, New: sys, Profile: profile.Profile{Name: "p"}}
	for _, c := range cs {
		o.Rows = append(o.Rows, verdict.Requirement{ID: "FC-" + c.Name, Level: "core"})
	}
	return o
}

func sealed(t *testing.T, ctx context.Context, o run.Options) (*evidence.Bundle, map[string]verdict.Result) {
	t.Helper()
	s, err := run.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start(ctx)
	b, rs, err := s.Seal()
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]verdict.Result{}
	for _, r := range rs {
		by[r.ID] = r
	}
	return b, by
}

func TestNewRefuses(t *testing.T) {
	one := func() sut.System { return &system{} }
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	occupied := options(one, compiled("A"))
	occupied.Dir = full
	for _, c := range []struct {
		says string
		o    run.Options
		want string
	}{
		{"an empty selection: no scenario would be no failure", options(one), "no scenario is left"},
		{"two scenarios of one name: their records would mix", options(one, compiled("A"), compiled("B"), compiled("A")), "A is listed twice"},
		{"a folder that is not empty", occupied, "not empty"},
	} {
		if _, err := run.New(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.says, err)
		}
	}
}

func TestASystemsTroubleStaysInItsScenario(t *testing.T) {
	broken := errors.New("port is taken")
	for _, c := range []struct {
		says string
		sys  system
		need []sut.Feature
		want verdict.Kind
		why  string
	}{
		{"it serves", system{}, nil, verdict.Pass, ""},
		{"it panics while playing", system{play: func(context.Context, evidence.Sink) error { panic("nil map") }}, nil, verdict.Error, "panicked: nil map"},
		{"it panics after everything was seen", system{play: func(_ context.Context, out evidence.Sink) error { serve(out); panic("late") }}, nil, verdict.Error, "panicked: late"},
		{"it panics while it is configured", system{configure: func(context.Context) error { panic("early") }}, nil, verdict.Error, "panicked: early"},
		{"it hangs", system{play: func(ctx context.Context, out evidence.Sink) error {
			serve(out)
			<-ctx.Done()
			return context.Cause(ctx)
		}}, nil, verdict.Error, "did not end within 20ms"},
		{"it hangs while it is configured", system{configure: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }}, nil, verdict.Error, "did not end within 20ms"},
		{"it does not come up", system{configure: func(context.Context) error { return broken }}, nil, verdict.Error, "configure: port is taken"},
		{"it cannot express the configuration", system{configure: func(context.Context) error {
			return fmt.Errorf("rendering: %w", &sut.UnsupportedError{Feature: "concurrency-detector"})
		}}, nil, verdict.NotApplicable, "concurrency-detector"},
		{"it breaks while playing, after everything was seen", system{play: func(_ context.Context, out evidence.Sink) error { serve(out); return broken }}, nil, verdict.Error, "port is taken"},
		{"it does not declare what is needed", system{features: []string{"hold"}}, []sut.Feature{sut.Hold, sut.Restart}, verdict.NotApplicable, `does not declare "restart"`},
		{"it declares what the contract does not know", system{features: []string{"eviction"}}, []sut.Feature{sut.Eviction}, verdict.NotApplicable, `profile p does not know "eviction"`},
		{"it declares what is needed", system{features: []string{"hold"}}, []sut.Feature{sut.Hold}, verdict.Pass, ""},
	} {
		t.Run(c.says, func(t *testing.T) {
			var mu sync.Mutex
			n := 0
			o := options(func() sut.System {
				mu.Lock()
				defer mu.Unlock()
				if n++; n == 1 {
					return &c.sys
				}
				return &system{}
			}, compiled("A", c.need...), compiled("B"))
			o.Limit = 20 * time.Millisecond
			b, rs := sealed(t, t.Context(), o)
			if r := rs["FC-A"]; r.Kind != c.want || !strings.Contains(r.Why, c.why) {
				t.Errorf("%v: %s, want %v: %s", r.Kind, r.Why, c.want, c.why)
			}
			if r := rs["FC-B"]; r.Kind != verdict.Pass {
				t.Errorf("the next scenario: %v: %s", r.Kind, r.Why)
			}
			if !b.Manifest.Complete {
				t.Error("a run whose scenarios all had their turn is complete")
			}
		})
	}
}

func TestSystemsAreClosed(t *testing.T) {
	for _, c := range []struct {
		says string
		sys  system
		need []sut.Feature
	}{
		{"after a play", system{}, nil},
		{"after a failed configuration", system{configure: func(context.Context) error { return errors.New("x") }}, nil},
		{"where nothing was played", system{}, []sut.Feature{sut.Restart}},
		{"after a scenario that hung", system{play: func(ctx context.Context, _ evidence.Sink) error { <-ctx.Done(); return ctx.Err() }}, nil},
	} {
		c.sys.closed = make(chan struct{})
		o := options(func() sut.System { return &c.sys }, compiled("A", c.need...))
		o.Limit = 20 * time.Millisecond
		sealed(t, t.Context(), o)
		select {
		case <-c.sys.closed:
		default:
			t.Errorf("%s the system was left open", c.says)
		}
	}
}

func TestNothingJudgedIsNotPlayed(t *testing.T) {
	c := compiled("A")
	c.Checks, c.Excluded = nil, []evidence.Exclusion{{Requirement: "FC-A", Why: "recorded only"}}
	played := false
	o := options(func() sut.System {
		return &system{play: func(context.Context, evidence.Sink) error { played = true; return nil }}
	}, c, c)
	o.Scenarios[1].Name = "B"
	b, rs := sealed(t, t.Context(), o)
	if played || b.Manifest.Scenarios[0].NotApplicable == "" {
		t.Error("a scenario of which nothing is judged was played")
	}
	if r := rs["FC-A"]; r.Kind != verdict.NotApplicable || r.Why != "recorded only" || len(r.Verdicts) != 1 {
		t.Errorf("an excluded row is listed once, with its reason: %+v", r)
	}
}

func TestInterruptedRun(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := 0
	o := options(func() sut.System {
		n++
		if n < 2 {
			return &system{}
		}
		return &system{play: func(ctx context.Context, out evidence.Sink) error {
			out.Client(evidence.Client{ID: "half", Outcome: evidence.Unfinished})
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}}
	}, compiled("A"), compiled("B"), compiled("C"))
	o.RunChecks = []checks.Spec{{Check: "one-dispatch", Requirement: "INV-07", Needed: 1}}
	o.Dir = filepath.Join(t.TempDir(), "bundle")
	b, rs := sealed(t, ctx, o)
	if b.Manifest.Complete {
		t.Error("the manifest calls it complete")
	}
	if r := rs["INV-07"]; r.Kind != verdict.Inconclusive {
		t.Errorf("a check over the whole run: %v %s", r.Kind, r.Why)
	}
	if rs["FC-A"].Kind != verdict.Pass || rs["FC-B"].Kind != verdict.Error {
		t.Errorf("what was played keeps its verdict, what was cut off has none: %v %v", rs["FC-A"].Kind, rs["FC-B"].Kind)
	}
	if len(b.Runs[1].Clients) != 1 {
		t.Error("what was seen before the interruption is lost")
	}
}

// What is reported at the end is what lies on disk.
func TestSealedBundleGivesTheSameVerdicts(t *testing.T) {
	memory := options(func() sut.System { return &system{} }, compiled("A"), compiled("B"))
	_, want := sealed(t, t.Context(), memory)
	disk := memory
	disk.Dir, disk.Parallel = filepath.Join(t.TempDir(), "bundle"), 2
	b, got := sealed(t, t.Context(), disk)
	if b.Dir != disk.Dir {
		t.Errorf("judged from %q", b.Dir)
	}
	for id, r := range want {
		if got[id].Kind != r.Kind || got[id].Figure != r.Figure {
			t.Errorf("%s: %v from disk, %v from memory", id, got[id], r)
		}
	}
}

func TestResult(t *testing.T) {
	block := make(chan struct{})
	o := options(func() sut.System { return &system{} }, compiled("A"), compiled("B"))
	o.RunChecks = []checks.Spec{{Check: "one-dispatch", Requirement: "INV-07", Needed: 2}}
	o.Rows = append(o.Rows, verdict.Requirement{ID: "INV-07", Level: "core"})
	n := 0
	o.New = func() sut.System {
		if n++; n == 1 {
			return &system{}
		}
		return &system{play: func(_ context.Context, out evidence.Sink) error { <-block; serve(out); return nil }}
	}
	s, err := run.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start(t.Context())
	if r, err := s.Result(t.Context(), "FC-A"); err != nil || r.Kind != verdict.Pass {
		t.Errorf("a result is there as soon as its own scenarios are done: %v %v", r.Kind, err)
	}
	gone, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("the reader left"))
	for _, id := range []string{"FC-B", "INV-07"} {
		if _, err := s.Result(gone, id); err == nil || !strings.Contains(err.Error(), "reader left") {
			t.Errorf("%s was judged before its scenarios were done: %v", id, err)
		}
	}
	close(block)
	for _, id := range []string{"FC-B", "INV-07"} {
		if r, err := s.Result(t.Context(), id); err != nil || r.Kind != verdict.Pass {
			t.Errorf("%s: %v %v %s", id, r.Kind, err, r.Why)
		}
	}
	if _, err := s.Result(t.Context(), "FC-NONE"); err == nil {
		t.Error("a requirement that nobody knows has no result")
	}
}

func TestScenariosThatWantToBeAlone(t *testing.T) {
	var mu sync.Mutex
	running, worst := 0, 0
	var order []string
	alone := compiled("A")
	alone.Alone = true
	light := compiled("P")
	light.Paced = true
	o := options(nil, alone, light, compiled("B"), compiled("C"), compiled("D"))
	o.Parallel = 3
	o.New = func() sut.System {
		return &system{play: func(_ context.Context, out evidence.Sink) error {
			mu.Lock()
			running++
			mu.Unlock()
			serve(out)
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		}}
	}
	o.OnScenario = func(p run.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if p.Done {
			order = append(order, p.Name)
		} else if p.Name == "A" {
			worst = running
		}
	}
	sealed(t, t.Context(), o)
	if worst != 0 || len(order) != 5 || order[4] != "A" || order[3] != "P" || !slices.Contains(order[:3], "D") {
		t.Errorf("A was played beside %d others, in the order %v", worst, order)
	}
}

func TestSessionsShareTheMachine(t *testing.T) {
	machine := &sync.RWMutex{}
	began, busy := make(chan struct{}), make(chan struct{})
	var beside atomic.Bool
	other := options(nil, compiled("B"))
	other.Machine = machine
	other.New = func() sut.System {
		return &system{play: func(_ context.Context, out evidence.Sink) error {
			close(busy)
			for machine.TryRLock() { // until somebody waits for the whole machine, or plays without it
				machine.RUnlock()
				select {
				case <-began:
					beside.Store(true)
					serve(out)
					return nil
				default:
					runtime.Gosched()
				}
			}
			serve(out)
			return nil
		}}
	}
	alone := compiled("A")
	alone.Alone = true
	o := options(nil, alone)
	o.Machine = machine
	o.OnScenario = func(p run.Progress) {
		if !p.Done {
			close(began)
		}
	}
	var both sync.WaitGroup
	both.Go(func() { sealed(t, t.Context(), other) })
	<-busy
	both.Go(func() { sealed(t, t.Context(), o) })
	both.Wait()
	if beside.Load() {
		t.Error("a scenario that wants to be alone was played beside one of another session")
	}
}
