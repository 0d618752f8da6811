// Package local plays a script against the reference on this machine over real sockets.
//
//	clients --HTTP--> gateway --ext_proc gRPC--> picker --scrapes--> /metrics
//	                     '-------HTTP------------------------------> model servers (sim-vllm)
//
// Every listener is on loopback with a port of the system's choice, so that systems of different scenarios run side by side.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/env/binary"
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

	// Command starts a picker that is judged in place of the reference; nil: the reference. Contract and Tamper do not matter then.
	Command        *binary.Command
	StartLimit     time.Duration // of that picker; 0: 10 s
	TLS            bool          // it serves ext_proc with TLS, under whatever certificate
	Discover       bool          // nobody has declared its features: those that it refuses at start are not judged
	Implementation sut.Implementation
}

// System is one local system under test.
type System struct {
	opts   Options
	cfg    sut.Configuration
	doc    string
	loaded epconfig.Config
	stage  *stage
	own    *binary.Command // that starts the reference as a program; nil: nobody knows one
	keep   func(about []string, played error)
}

// New makes a system; nothing runs before Configure.
func New(o Options) *System { return &System{opts: o} }

// Describe implements sut.System.
func (s *System) Describe() sut.Implementation {
	if s.opts.Command != nil {
		i := s.opts.Implementation
		i.Features = append(slices.Clone(i.Features), string(sut.BatchProcessor)) // this environment brings it
		return i
	}
	features := append(env.Features(s.opts.Contract), string(sut.LargeBodies))
	if len(s.opts.PickerCommand) > 0 {
		features = append(features, string(sut.KubeAPI))
	}
	return sut.Implementation{Organization: "weir", Project: "reference picker", Version: s.opts.Version, Features: features}
}

// Configure implements sut.System.
func (s *System) Configure(ctx context.Context, c sut.Configuration) error {
	doc, err := sut.Render(c, s.opts.Dialect)
	if err != nil {
		return err
	}
	if s.opts.Command != nil {
		if c.SyncLoad && !s.opts.Command.Uses("SyncRedis") {
			return &sut.UnsupportedError{Feature: sut.LoadSync, Why: "its command does not say where {{.SyncRedis}} goes"}
		}
		s.cfg, s.doc = c, doc
		return s.discover(ctx)
	}
	if c.NeedsKube() {
		if err := s.ownCommand(); err != nil {
			return err
		}
	}
	loaded, err := s.opts.Tamper.Load(doc, s.opts.Contract)
	if err != nil {
		return fmt.Errorf("configuration of the reference: %w", err)
	}
	s.cfg, s.doc, s.loaded = c, doc, loaded
	return nil
}

// ownCommand finds out how to start the reference as a program.
func (s *System) ownCommand() error {
	if len(s.opts.PickerCommand) == 0 {
		return &sut.UnsupportedError{Feature: sut.KubeAPI, Why: "the reference in this process has no Kubernetes API"}
	}
	var words []string
	for _, w := range s.opts.PickerCommand {
		words = append(words, strconv.Quote(w))
	}
	c, err := binary.Parse(strings.Join(words, " ") + " --config-file {{.Config}} --grpc-port {{.GRPCPort}} --grpc-health-port {{.HealthPort}} --metrics-port {{.MetricsPort}}" +
		" --contract " + s.opts.Contract.Name + " --allow-experimental-plugins")
	s.own = &c
	return err
}

// Play implements sut.System.
func (s *System) Play(ctx context.Context, script sut.Script, out evidence.Sink) error {
	if s.doc == "" {
		return fmt.Errorf("scenario %s: the system is not configured", script.Scenario)
	}
	out.File("config.yaml", []byte(s.doc))
	st, err := start(ctx, script.Scenario, s, out)
	if err != nil {
		return err
	}
	s.stage = st
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	st.tasks.Go(func() {
		select {
		case <-st.router.Failed():
			cancel(st.router.Failure())
		case <-ctx.Done():
		}
	})
	err = sut.PlayOn(ctx, st, script, out)
	select {
	case <-st.router.Failed(): // also between the last step and here
		err = cmp.Or(err, st.router.Failure())
	default:
	}
	cancel(nil)
	st.flush()
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
