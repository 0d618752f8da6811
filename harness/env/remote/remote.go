// Package remote plays a script against a router that already runs somewhere else.
//
//	clients --HTTP--> the router's URL --------------> simulators (in other processes)
//	hook commands --configuration, objectives, pool--> router
//	mirror <--GET /admin/changes-- simulators          metrics page --> queue gauge, samples
//
// Nothing of the router is in this process. What the simulators see is read through their admin API; their clocks are compared with this
// one by round trips, and how well that can be done is part of the evidence. What cannot be observed or brought about is not claimed: it
// is a feature that the system does not have. With ExtProc in Front a picker takes the place of the router, behind a gateway of ours.
package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/sut"
)

// Options say which router is judged and what stands around it.
type Options struct {
	Dialect        profile.Config // how configuration documents are written
	Names          profile.Names  // request headers, for loads
	Implementation sut.Implementation
	Running        sut.Running
	// Front is the host:port of a picker that is given a gateway of ours in front of it; "": Running.Gateway is the router.
	Front    string
	FrontTLS bool // it speaks TLS, under whatever certificate
	// Driver brings scenarios to a picker behind a gateway of ours; then Front and the addresses of the router in Running are its business. nil: the
	// commands of Running do.
	Driver Driver
	// AsIs judges the router under whatever configuration it has; Deploy does what a script wants done to the deployment (sut.Deployer).
	AsIs   bool
	Deploy func(ctx context.Context, s sut.Step) (string, error)
	// Given are the identities of the configurations that the router has, where nothing configures it (sut.Identity).
	Given []string
}

// System is one router that already runs.
type System struct {
	opts  Options
	hooks map[string]*binary.Hook // by field name; those that are not declared are missing
	cfg   sut.Configuration
	doc   string
	stage *stage
	skew  time.Duration
	blur  string // why instants of different clocks cannot be compared
	keep  func(about []string, played error)

	mu sync.Mutex
	at Reach
}

// New makes a system; nothing is asked of the router before Configure.
func New(o Options) (*System, error) {
	s := &System{opts: o, hooks: map[string]*binary.Hook{}}
	var errs []error
	for field, text := range o.Running.Configure.Commands() {
		if text == "" {
			continue
		}
		h, err := binary.ParseHook(text, sut.HookPlaceholders)
		if err != nil {
			errs = append(errs, fmt.Errorf("running.configure.%s: %w", field, err))
		}
		s.hooks[field] = h
	}
	s.at = Reach{Front: o.Front, Health: o.Running.Health, Metrics: o.Running.Metrics}
	if o.Front == "" && o.Running.Gateway == "" && o.Driver == nil {
		errs = append(errs, errors.New("running.gateway: missing: the URL to which clients send"))
	}
	return s, errors.Join(errs...)
}

// Describe implements sut.System: what is declared, but for what nothing here can bring about or see.
func (s *System) Describe() sut.Implementation {
	i := s.opts.Implementation
	r := s.opts.Running
	i.Features = slices.DeleteFunc(slices.Clone(i.Features), func(f string) bool {
		switch sut.Feature(f) {
		case sut.Hold:
			return len(r.Simulators) == 0
		case sut.Metrics:
			return r.Metrics == "" && s.opts.Driver == nil
		case sut.KubeAPI:
			return s.opts.Driver == nil // whoever brought the router up chose what feeds it
		}
		return false
	})
	return i
}

// ObservesModelServers tells whether anybody records what arrives behind the router.
func (s *System) ObservesModelServers() bool { return len(s.opts.Running.Simulators) > 0 }

// SkewBound is how far instants of the simulators may be off in the last scenario, and why they cannot be compared at all ("": they can).
func (s *System) SkewBound() (time.Duration, string) { return s.skew, s.blur }

// Keep lets f be called after the last step, while everything is still up; about says how to reach it.
func (s *System) Keep(f func(about []string, played error)) { s.keep = f }

// Configure implements sut.System. It gives the router nothing yet: that belongs to the scenario, whose limit then bounds it.
func (s *System) Configure(_ context.Context, c sut.Configuration) error {
	doc, err := sut.Render(c, s.opts.Dialect)
	if err != nil {
		return err
	}
	switch n := len(s.opts.Running.Simulators); {
	case c.Pickers > 1:
		return &sut.UnsupportedError{Feature: "pickers", Why: fmt.Sprintf("it needs %d pickers behind gateways of their own", c.Pickers)}
	case c.NeedsKube() && s.opts.Driver == nil:
		return &sut.UnsupportedError{Feature: sut.KubeAPI, Why: "it needs objects in a Kubernetes API of the harness"}
	case n > 0 && len(c.Endpoints) > n, n == 0 && c.Hold:
		return &sut.UnsupportedError{Feature: sut.Hold, Why: fmt.Sprintf("it needs %d simulators, the descriptor names %d", len(c.Endpoints), n)}
	}
	if !s.has("command") && !s.opts.AsIs {
		id, err := sut.Identity(c, s.opts.Dialect)
		if err != nil {
			return err
		}
		if !slices.Contains(s.opts.Given, id) {
			return &sut.UnsupportedError{Feature: sut.Configurable, Why: fmt.Sprintf("it needs configuration %s, the router has been given %s and the descriptor has no "+
				"configure command", id, either(strings.Join(s.opts.Given, ", "), "none"))}
		}
	}
	s.cfg, s.doc = c, doc
	return nil
}

func either(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// lacks names what a script asks for and nothing here can bring about.
func (s *System) lacks(script sut.Script) error {
	r := s.opts.Running
	simulated := map[sut.Op]bool{sut.OpStep: true, sut.OpRelease: true, sut.OpHold: true, sut.OpScript: true, sut.OpFault: true, sut.OpFail: true, sut.OpPlug: true}
	for _, st := range script.Steps {
		switch {
		case simulated[st.Op] && len(r.Simulators) == 0, st.Op == sut.OpSample && st.Endpoint != "" && len(r.Simulators) == 0:
			return &sut.UnsupportedError{Feature: sut.Hold, Why: fmt.Sprintf("step %q needs simulators behind the router, the descriptor names none", st.Op)}
		case st.Op == sut.OpSample && st.Endpoint == "" && r.Metrics == "" && s.opts.Driver == nil:
			return &sut.UnsupportedError{Feature: sut.Metrics, Why: "the descriptor names no metrics page"}
		case (st.Op == sut.OpAdd || st.Op == sut.OpRemove || st.Op == sut.OpLabel || st.Op == sut.OpObjective) && !s.has("update"):
			return &sut.UnsupportedError{Feature: sut.ScaleToZero, Why: fmt.Sprintf("step %q needs running.configure.update", st.Op)}
		case (st.Op == sut.OpShutdown || st.Op == sut.OpRestart || st.Op == sut.OpDown) && !s.has("stop"):
			return &sut.UnsupportedError{Feature: sut.Restart, Why: fmt.Sprintf("step %q needs running.configure.stop and start", st.Op)}
		case st.Op == sut.OpTryStart && !s.has("try"):
			return &sut.UnsupportedError{Feature: sut.Restart, Why: "it needs running.configure.try"}
		case st.Op == sut.OpStreams && !s.fronted() && s.opts.Running.ExtProc == "":
			return &sut.UnsupportedError{Feature: "ext-proc", Why: "idle streams need running.extProc"}
		case st.Op == sut.OpHealth && r.Health == "" && s.opts.Driver == nil:
			return &sut.UnsupportedError{Feature: "health", Why: "the descriptor names no health service (running.health)"}
		}
	}
	return nil
}

// fronted tells whether a gateway of ours stands in front of the picker.
func (s *System) fronted() bool { return s.opts.Front != "" || s.opts.Driver != nil }

// Play implements sut.System.
func (s *System) Play(ctx context.Context, script sut.Script, out evidence.Sink) error {
	if s.doc == "" {
		return fmt.Errorf("scenario %s: the system is not configured", script.Scenario)
	}
	if err := s.lacks(script); err != nil {
		return err
	}
	out.File("config.yaml", []byte(s.doc))
	st, err := start(ctx, script.Scenario, s, out)
	if err != nil {
		return err
	}
	s.stage = st
	st.direct = direct(script)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(st.broken, func() { cancel(context.Cause(st.broken)) })
	err = sut.PlayOn(ctx, st, script, out)
	stop()
	err = errors.Join(err, st.flush(context.WithoutCancel(ctx)))
	if s.keep != nil {
		s.keep(st.about(), err)
	}
	return errors.Join(err, st.close())
}

// Close implements sut.System.
func (s *System) Close(context.Context) error {
	if s.stage == nil {
		return nil
	}
	return s.stage.close()
}
