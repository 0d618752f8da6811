// Package run plays scenarios against a system, seals the evidence and judges it.
//
//	configure --> play --> record (all scenarios, side by side) --> seal --> judge
//
// A Session plays in the background; whoever wants the result of a requirement waits for the scenarios it depends on. What is
// finally reported is judged once more from the sealed bundle.
package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/verdict"
)

// Options is everything a session needs.
type Options struct {
	Profile   profile.Profile
	Scenarios []scenario.Compiled
	RunChecks []checks.Spec
	Rows      []verdict.Requirement // all rows of the catalogue
	// New makes a system for one scenario; systems of different scenarios run side by side.
	New func() sut.System
	// Parallel is the number of scenarios at a time; more is faster and noisier. 0 means 1.
	Parallel int
	// Machine is shared by sessions that play at the same time: a scenario that wants to be alone keeps the scenarios of all of them away. nil:
	// no other session plays.
	Machine *sync.RWMutex
	// Limit ends a scenario that hangs; 0: two minutes. It is wall-clock time, also for virtual runs.
	Limit time.Duration
	// Manifest carries what the caller knows: argv, seed, commit, environment.
	Manifest evidence.Manifest
	// Dir is the bundle's folder; "" keeps the evidence in memory only.
	Dir string
	// OnScenario hears of every scenario as it starts and as it ends; it may be called concurrently.
	OnScenario func(Progress)
	// ProbeFirst plays the activation probe before everything else; unless it passes, nothing behind a gate is played. It is for systems whose
	// Configure starts nothing.
	ProbeFirst bool
	// Keep, if set, is called when a scenario has failed and everything is still up; it returns when the stack may be taken down.
	Keep func(ctx context.Context, k Kept)
}

// Progress is the state of one scenario.
type Progress struct {
	Name     string
	Title    string
	Index    int // in catalogue order
	Total    int
	Done     bool
	Error    string
	Duration time.Duration
}

// Session is one run.
type Session struct {
	opts    Options
	writer  *evidence.Writer
	entries []evidence.ScenarioEntry
	runs    []evidence.Run
	done    []chan struct{}
	index   map[string]int
	all     chan struct{}
	mu      sync.Mutex
	stopped bool
	failed  error
}

// New prepares a session and, if a folder is named, its bundle.
func New(o Options) (*Session, error) {
	if len(o.Scenarios) == 0 {
		return nil, errors.New("no scenario is left to play: loosen --focus, --skip or --level (weir list scenarios shows what there is)")
	}
	if o.Parallel < 1 {
		o.Parallel = 1
	}
	if o.Limit == 0 {
		o.Limit = 2 * time.Minute
	}
	s := &Session{opts: o, index: map[string]int{}, all: make(chan struct{})}
	var order []string
	for i, c := range o.Scenarios {
		if _, dup := s.index[c.Name]; dup {
			return nil, fmt.Errorf("scenario %s is listed twice", c.Name)
		}
		s.index[c.Name] = i
		order = append(order, c.Name)
		s.entries = append(s.entries, c.Entry())
		s.runs = append(s.runs, evidence.Run{Scenario: c.Name})
		s.done = append(s.done, make(chan struct{}))
	}
	if o.Dir != "" {
		w, err := evidence.Create(o.Dir, order)
		if err != nil {
			return nil, err
		}
		s.writer = w
	}
	return s, nil
}

// Planned is the manifest of a run of o as far as it is known beforehand: scenarios, checks with their parameters, exclusions.
func Planned(o Options) evidence.Manifest {
	s := Session{opts: o}
	for _, c := range o.Scenarios {
		s.entries = append(s.entries, c.Entry())
	}
	return s.manifest()
}

// Requirements lists what the session judges, in catalogue order.
func (s *Session) Requirements() []verdict.Requirement {
	return Requirements(s.manifest(), s.opts.Rows)
}

// paced is the number of paced loads at a time.
const paced = 4

// Start plays all scenarios in the background until ctx ends; Wait, Result and Seal wait for it. Paced loads come after the others, and
// scenarios that want to be alone are played last, one at a time.
func (s *Session) Start(ctx context.Context) {
	go func() {
		defer close(s.all)
		rest := s.probeFirst(ctx)
		s.playAll(ctx, s.opts.Parallel, func(c scenario.Compiled) bool { return rest(c) && !c.Alone && !c.Paced })
		s.playAll(ctx, min(s.opts.Parallel, paced), func(c scenario.Compiled) bool { return rest(c) && c.Paced && !c.Alone })
		s.playAll(ctx, 1, func(c scenario.Compiled) bool { return rest(c) && c.Alone })
	}()
}

func (s *Session) playAll(ctx context.Context, parallel int, take func(scenario.Compiled) bool) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for i := range next {
				s.playOne(ctx, i)
			}
		})
	}
	for i, c := range s.opts.Scenarios {
		if take(c) {
			next <- i
		}
	}
	close(next)
	workers.Wait()
}

// playOne plays one scenario and hands its record to the bundle. Whatever goes wrong stays inside this scenario.
func (s *Session) playOne(ctx context.Context, i int) {
	c := s.opts.Scenarios[i]
	defer close(s.done[i])
	defer s.claim(c.Alone)()
	p := Progress{Name: c.Name, Title: c.Title, Index: i, Total: len(s.opts.Scenarios)}
	s.tell(p)
	rec := evidence.NewRecorder(c.Name)
	na, clocks, err := s.play(ctx, i, rec)
	r := rec.Run()
	played := runDuration(r)
	s.mu.Lock()
	s.runs[i] = r
	s.entries[i].NotApplicable = na
	s.entries[i].DurationNs = int64(played)
	s.entries[i].SkewBoundNs, s.entries[i].Blurred = int64(clocks.bound), clocks.blur
	if err != nil {
		s.entries[i].Error = err.Error()
	}
	if ctx.Err() != nil {
		s.stopped = true
	}
	s.mu.Unlock()
	if s.writer != nil {
		if werr := s.writer.Scenario(c.Name, c.PlanLines(), rec); werr != nil {
			s.mu.Lock()
			s.failed = errors.Join(s.failed, werr)
			s.mu.Unlock()
		}
	}
	p.Done, p.Duration = true, played
	if err != nil {
		p.Error = err.Error()
	}
	s.tell(p)
}

// claim takes the machine, or a share of it, and gives what returns it.
func (s *Session) claim(alone bool) func() {
	m := s.opts.Machine
	switch {
	case m == nil:
		return func() {}
	case alone:
		m.Lock()
		return m.Unlock
	default:
		m.RLock()
		return m.RUnlock
	}
}

// runDuration is how long a scenario played, by its own clock.
func runDuration(r evidence.Run) time.Duration {
	last := int64(0)
	for _, st := range r.Steps {
		last = max(last, st.End)
	}
	return time.Duration(last)
}

func (s *Session) play(ctx context.Context, i int, rec *evidence.Recorder) (notApplicable string, clocks clocks, err error) {
	c := s.opts.Scenarios[i]
	var sys sut.System
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("harness panicked: %v", r)
			if sys != nil {
				err = errors.Join(err, sys.Close(context.WithoutCancel(ctx)))
			}
		}
	}()
	sys = s.opts.New()
	if why := s.missing(sys, c); why != "" {
		return why, clocks, sys.Close(ctx)
	}
	if len(c.Checks) == 0 {
		return "the profile judges nothing of it", clocks, sys.Close(ctx)
	}
	s.letKeep(ctx, sys, i, rec)
	limit := s.opts.Limit
	if c.Slow {
		limit += 20 * time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("scenario did not end within %s", limit))
	defer cancel()
	var unsupported *sut.UnsupportedError
	switch err := sys.Configure(ctx, c.Config); {
	case errors.As(err, &unsupported):
		return unsupported.Error(), clocks, sys.Close(ctx)
	case err != nil:
		return "", clocks, errors.Join(fmt.Errorf("configure: %w", err), sys.Close(ctx))
	}
	err = sys.Play(ctx, c.Script, rec)
	clocks = clocksOf(sys)
	if errors.As(err, &unsupported) {
		return unsupported.Error(), clocks, sys.Close(context.WithoutCancel(ctx))
	}
	return "", clocks, errors.Join(err, sys.Close(context.WithoutCancel(ctx)))
}

// missing names the feature that a scenario needs and the system or the profile does not have.
func (s *Session) missing(sys sut.System, c scenario.Compiled) string {
	impl := sys.Describe()
	for _, f := range c.Needs {
		if optional(f) && !slices.Contains(s.opts.Profile.Features, string(f)) {
			return fmt.Sprintf("profile %s does not know %q", s.opts.Profile.Name, f)
		}
		if !sut.Supports(impl, f) {
			return fmt.Sprintf("the system does not declare %q", f)
		}
	}
	return ""
}

// optional features are abilities of the router that a contract must know as well.
func optional(f sut.Feature) bool {
	return f == sut.Holdback || f == sut.Eviction || f == sut.Stages
}

func (s *Session) tell(p Progress) {
	if s.opts.OnScenario != nil {
		s.opts.OnScenario(p)
	}
}

// Result waits for the scenarios that a requirement depends on and judges them.
func (s *Session) Result(ctx context.Context, id string) (verdict.Result, error) {
	needed := s.needed(id)
	for i, c := range s.opts.Scenarios {
		if !slices.ContainsFunc(c.Requirements(), func(r string) bool { return slices.Contains(needed, r) }) {
			continue
		}
		if err := wait(ctx, s.done[i]); err != nil {
			return verdict.Result{}, err
		}
	}
	if slices.ContainsFunc(s.opts.RunChecks, func(c checks.Spec) bool { return c.Requirement == id }) {
		if err := wait(ctx, s.all); err != nil {
			return verdict.Result{}, err
		}
	}
	s.mu.Lock()
	b := evidence.InMemory(s.manifest(), slices.Clone(s.runs))
	b.Manifest.Scenarios = slices.Clone(s.entries)
	s.mu.Unlock()
	var mine []verdict.Verdict
	for _, v := range Judge(only(b, needed)) {
		if v.Requirement == id {
			mine = append(mine, v)
		}
	}
	for _, r := range s.opts.Rows {
		if r.ID == id {
			return verdict.Summarize([]verdict.Requirement{r}, mine)[0], nil
		}
	}
	return verdict.Result{}, fmt.Errorf("unknown requirement %s", id)
}

// needed lists the requirements on which the verdict of one depends: itself, the activation probe, and what shows its mechanism.
func (s *Session) needed(id string) []string {
	out := []string{id, Probe}
	for _, x := range s.opts.Manifest.ShownBy {
		if x.Requirement == id {
			out = append(out, x.By)
		}
	}
	return out
}

// only keeps the checks of some requirements, so that nothing unfinished is judged.
func only(b *evidence.Bundle, needed []string) *evidence.Bundle {
	keep := func(cs []evidence.CheckEntry) []evidence.CheckEntry {
		var out []evidence.CheckEntry
		for _, c := range cs {
			if slices.Contains(needed, c.Requirement) {
				out = append(out, c)
			}
		}
		return out
	}
	for i := range b.Manifest.Scenarios {
		b.Manifest.Scenarios[i].Checks = keep(b.Manifest.Scenarios[i].Checks)
	}
	b.Manifest.RunChecks = keep(b.Manifest.RunChecks)
	return b
}

func wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// manifest is the manifest as far as it is known before the end.
func (s *Session) manifest() evidence.Manifest {
	m := s.opts.Manifest
	m.Profile = s.opts.Profile.Name
	m.Scenarios = s.entries
	m.Complete = true
	for _, c := range s.opts.RunChecks {
		m.RunChecks = append(m.RunChecks, c.Entry())
	}
	m.ExpectedFail = s.opts.Profile.ExpectedFail
	seen := map[string]bool{}
	for _, c := range s.opts.Scenarios {
		for _, x := range c.Excluded {
			if !seen[x.Requirement] {
				seen[x.Requirement] = true
				m.Excluded = append(m.Excluded, x)
			}
		}
	}
	return m
}

// Seal waits for the end of the run, seals the bundle and returns it as judged from what lies on disk (or in memory, without a
// folder). An interrupted run is sealed as incomplete; nothing seen is lost.
func (s *Session) Seal() (*evidence.Bundle, []verdict.Result, error) {
	<-s.all
	s.mu.Lock()
	m := s.manifest()
	m.Scenarios = slices.Clone(s.entries)
	m.Complete = !s.stopped
	for _, e := range m.Scenarios {
		m.SkewBoundNs = max(m.SkewBoundNs, e.SkewBoundNs)
	}
	runs := slices.Clone(s.runs)
	failed := s.failed
	s.mu.Unlock()
	b := evidence.InMemory(m, runs)
	if s.writer != nil {
		if err := errors.Join(failed, s.writer.Seal(m)); err != nil {
			return b, nil, fmt.Errorf("bundle %s: %w", s.opts.Dir, err)
		}
		var err error
		if b, err = evidence.Open(s.opts.Dir, false); err != nil {
			return b, nil, err
		}
	}
	return b, verdict.Summarize(Requirements(b.Manifest, s.opts.Rows), Judge(b)), nil
}
