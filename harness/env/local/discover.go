package local

import (
	"context"
	"errors"

	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/sut"
)

// beyond is the ability that a configuration asks of a router beyond what every contract has; "" for none.
func beyond(c sut.Configuration) sut.Feature {
	switch {
	case c.NeedsKube():
		return sut.KubeAPI
	case c.Ceiling.Kind == "holdback":
		return sut.Holdback
	case c.Eviction:
		return sut.Eviction
	case c.AgentIdentity:
		return "agent-identity"
	}
	for _, b := range c.Bands {
		if b.Fairness == "program-aware" {
			return "program-aware-fairness"
		}
	}
	return ""
}

// discover finds out by a trial whether a program whose features nobody has declared takes a configuration that asks for more than every
// contract has. One that ends at once with a status of its own does not know the feature; whatever else happens, the scenario shows.
func (s *System) discover(ctx context.Context) error {
	f := beyond(s.cfg)
	if !s.opts.Discover || f == "" {
		return nil
	}
	port, err := binary.FreePort()
	if err != nil {
		return err
	}
	p, err := binary.Start(ctx, binary.Config{Command: *s.opts.Command, Document: s.doc, ServerPort: port, StartLimit: s.opts.StartLimit, TLS: s.opts.TLS})
	var refused *binary.StartError
	switch {
	case err == nil && f == sut.KubeAPI && !p.UsesKube():
		return errors.Join(p.Close(), &sut.UnsupportedError{Feature: f, Why: "it asks nothing of the Kubernetes API that KUBECONFIG names"})
	case err == nil:
		return p.Close()
	case errors.As(err, &refused) && refused.ExitCode > 0:
		return &sut.UnsupportedError{Feature: f, Why: refused.Error()}
	}
	return nil
}
