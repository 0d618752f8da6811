package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/env/local"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/sut"
)

// externalFlags name a picker to be judged in place of the built-in reference.
type externalFlags struct {
	EPP string `name:"epp" placeholder:"COMMAND" help:"Command that starts the picker to judge, with placeholders: {{.Config}} {{.GRPCPort}} {{.HealthPort}} {{.MetricsPort}} {{.PoolName}} {{.PoolNamespace}} {{.Kubeconfig}} {{.EndpointsFile}} {{.ObjectivesFile}} {{.SyncRedis}}. KUBECONFIG and NAMESPACE are set too. Default: the built-in reference."`
	SUT string `name:"sut" placeholder:"NAME|FILE" help:"Descriptor of the picker to judge: llm-d-router, generic-extproc, or a YAML file with organization, project, version, url, contact, command, features, tls, startLimit, tolerances."`
}

// given tells whether a picker is named.
func (e externalFlags) given() bool { return e.EPP != "" || e.SUT != "" }

// argv are the flags as they were given.
func (e externalFlags) argv() []string {
	var a []string
	if e.SUT != "" {
		a = append(a, "--sut", e.SUT)
	}
	if e.EPP != "" {
		a = append(a, "--epp", e.EPP)
	}
	return a
}

// external is the picker that the flags name.
type external struct {
	descriptor sut.Descriptor
	command    binary.Command
	discover   bool // nobody has declared its features
}

// read reads the descriptor, if any, and the command.
func (e externalFlags) read() (external, error) {
	var x external
	var err error
	if e.SUT != "" {
		if x.descriptor, err = sut.ReadDescriptor(e.SUT); err != nil {
			return x, fmt.Errorf("--sut: %w", err)
		}
	}
	text := cmp.Or(e.EPP, x.descriptor.Command)
	if text == "" {
		return x, errors.New("--sut: the descriptor has no command: add one, or give it with --epp")
	}
	if x.command, err = binary.Parse(text); err != nil {
		if e.EPP != "" {
			return x, fmt.Errorf("--epp: %w", err)
		}
		return x, fmt.Errorf("--sut: %w", err)
	}
	d := &x.descriptor
	d.Command = text
	d.Organization, d.Project, d.Version = cmp.Or(d.Organization, "unknown"), cmp.Or(d.Project, x.command.Program()), cmp.Or(d.Version, "unknown")
	if x.discover = d.Features == nil; x.discover {
		for _, f := range sut.Features() {
			d.Features = append(d.Features, string(f))
		}
	}
	if !x.command.Uses("MetricsPort") { // nobody knows where its metrics are
		d.Features = slices.DeleteFunc(d.Features, func(f string) bool { return f == string(sut.Metrics) })
	}
	return x, nil
}

// tolerances are those that the descriptor sets, for the manifest; nil: none.
func (x external) tolerances() *evidence.Tolerances {
	t := x.descriptor.Tolerances
	if t == (profile.Tolerances{}) {
		return nil
	}
	return &evidence.Tolerances{TTLLateNs: int64(t.TTLLate), SlackNs: int64(t.Slack), StalenessNs: int64(t.Staleness)}
}

// system is the factory of the environment around the picker.
func (x external) system(p profile.Profile) func() sut.System {
	return func() sut.System {
		return local.New(local.Options{Dialect: p.Config, Names: p.Headers, Command: &x.command, StartLimit: x.descriptor.StartLimit, TLS: x.descriptor.TLS, Discover: x.discover,
			Implementation: x.descriptor.Implementation})
	}
}
