// Package local plays a script against the reference on this machine over real sockets.
//
//	clients --HTTP--> gateway --ext_proc gRPC--> picker --scrapes--> /metrics
//	                     '-------HTTP------------------------------> model servers (sim-vllm)
//
// Every listener is on loopback with a port of the system's choice, so that systems of different scenarios run side by side.
package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/reference/epconfig"
)

// Options choose the reference that is played against.
type Options struct {
	Dialect  profile.Config    // how configuration documents are written (of the judged profile)
	Names    profile.Names     // request headers of the judged profile, for loads
	Contract epconfig.Contract // what the reference is set to
	Tamper   env.Tamper
	Version  string
	// PickerCommand starts a picker process for start-up scenarios: argv up to the flags. Empty: the document is loaded and served in
	// this process, and a refusal counts as exit status 2.
	PickerCommand []string
}

// System is one local system under test.
type System struct {
	opts   Options
	cfg    sut.Configuration
	doc    string
	loaded epconfig.Config
	stage  *stage
}

// New makes a system; nothing runs before Configure.
func New(o Options) *System { return &System{opts: o} }

// Describe implements sut.System.
func (s *System) Describe() sut.Implementation {
	return sut.Implementation{Organization: "weir", Project: "reference picker", Version: s.opts.Version, Features: env.Features(s.opts.Contract)}
}

// Configure implements sut.System.
func (s *System) Configure(_ context.Context, c sut.Configuration) error {
	doc, err := sut.Render(c, s.opts.Dialect)
	if err != nil {
		return err
	}
	loaded, err := s.opts.Tamper.Load(doc, s.opts.Contract)
	if err != nil {
		return fmt.Errorf("configuration of the reference: %w", err)
	}
	s.cfg, s.doc, s.loaded = c, doc, loaded
	return nil
}

// Play implements sut.System.
func (s *System) Play(ctx context.Context, script sut.Script, out evidence.Sink) error {
	if s.doc == "" {
		return fmt.Errorf("scenario %s: the system is not configured", script.Scenario)
	}
	out.File("config.yaml", []byte(s.doc))
	st, err := start(script.Scenario, s, out)
	if err != nil {
		return err
	}
	s.stage = st
	err = sut.PlayOn(ctx, st, script, out)
	st.flush()
	return errors.Join(err, st.close())
}

// Close implements sut.System.
func (s *System) Close(context.Context) error {
	if s.stage == nil {
		return nil
	}
	return s.stage.close()
}
