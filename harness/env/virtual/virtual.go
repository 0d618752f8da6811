// Package virtual plays a script against the reference in virtual time: one event heap, no goroutine, no socket.
//
//	script --> clients --hop--> picker machine --hop--> model servers (hold, or engine machines)
//	                 ^---------------- hop -------------------'
//
// It feeds the same machines, the same classification and the same metrics as the real drivers; only sockets and clocks are missing.
// Two runs with one seed give the same bytes.
package virtual

import (
	"context"
	"fmt"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/picker"
)

// Options choose the reference that is played against.
type Options struct {
	// Dialect is how configuration documents are written (of the judged profile).
	Dialect profile.Config
	// Names are the request headers of the judged profile, for loads.
	Names profile.Names
	// Contract is what the reference is set to.
	Contract epconfig.Contract
	Tamper   env.Tamper
	Version  string
}

// System is one virtual system under test.
type System struct {
	opts   Options
	cfg    sut.Configuration
	doc    string
	loaded epconfig.Config
	ready  bool
}

// New makes a system; nothing runs before Configure.
func New(o Options) *System { return &System{opts: o} }

// Describe implements sut.System.
func (s *System) Describe() sut.Implementation {
	return sut.Implementation{Organization: "weir", Project: "reference picker", Version: s.opts.Version, Features: env.Features(s.opts.Contract)}
}

// Configure implements sut.System.
func (s *System) Configure(_ context.Context, c sut.Configuration) error {
	if c.NeedsKube() {
		return &sut.UnsupportedError{Feature: sut.KubeAPI, Why: "there is none in virtual time"}
	}
	if c.Batch != nil && c.Batch.Prometheus {
		return &sut.UnsupportedError{Feature: sut.BatchProcessor, Why: "gates that ask Prometheus are not played in virtual time"}
	}
	doc, err := sut.Render(c, s.opts.Dialect)
	if err != nil {
		return err
	}
	loaded, err := s.opts.Tamper.Load(doc, s.opts.Contract)
	if err != nil {
		return fmt.Errorf("configuration of the reference: %w", err)
	}
	s.cfg, s.doc, s.loaded, s.ready = c, doc, loaded, true
	return nil
}

// Play implements sut.System.
func (s *System) Play(ctx context.Context, script sut.Script, out evidence.Sink) error {
	if !s.ready {
		return fmt.Errorf("scenario %s: the system is not configured", script.Scenario)
	}
	st, err := newStage(script.Scenario, s, out)
	if err != nil {
		return err
	}
	out.File("config.yaml", []byte(s.doc))
	err = sut.PlayOn(ctx, st, script, out)
	st.flush()
	return err
}

// wiring puts a picker together.
func (s *System) wiring() (epp.Wiring, error) {
	m, err := picker.New(s.loaded.Picker)
	if err != nil {
		return epp.Wiring{}, fmt.Errorf("reference: %w", err)
	}
	w := epp.DefaultWiring(m, s.opts.Contract, s.loaded.SessionHeaders...)
	if s.opts.Tamper.Wiring != nil {
		s.opts.Tamper.Wiring(&w)
	}
	return w, nil
}

// Close implements sut.System.
func (s *System) Close(context.Context) error { return nil }
