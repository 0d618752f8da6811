package cli

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/extproc"
	"github.com/llm-weir/weir/reference/kube"
)

// poolWatch feeds a picker from the Kubernetes API; without --kube it does nothing.
type poolWatch struct {
	watcher *kube.Watcher
	server  atomic.Pointer[epp.Server]
	started chan struct{} // closed once server is set
}

// prepare makes the watcher and says when the picker is ready.
func (p *poolWatch) prepare(c *pickerCmd) (epp.Readiness, error) {
	if !c.Kube {
		return epp.Readiness{}, nil
	}
	if c.EndpointsFile != "" || c.ObjectivesFile != "" {
		return epp.Readiness{}, errors.New("--kube takes endpoints and objectives from the API: leave --endpoints-file and --objectives-file out")
	}
	p.started = make(chan struct{})
	w, err := kube.New(kube.Config{Kubeconfig: c.Kubeconfig, Namespace: c.PoolNamespace, PoolName: c.PoolName, LeaderElection: c.LeaderElection,
		OnChange: p.apply})
	if err != nil {
		return epp.Readiness{}, err
	}
	p.watcher = w
	r := epp.Readiness{Synced: w.Synced}
	if c.LeaderElection {
		r.Leading = w.Leading
	}
	return r, nil
}

// apply hands a snapshot over, objectives first: a request must not be placed on a new endpoint at an old priority.
func (p *poolWatch) apply(k kube.Snapshot) {
	<-p.started
	s := p.server.Load()
	s.SetObjectives(k.Objectives)
	s.SetEndpoints(k.Endpoints)
	if err := s.SetRewrites(rewrites(k)); err != nil {
		slog.Warn("rewrite rules are kept as they were", "error", err)
	}
}

// rewrites are the rules that win: of several for one model the first, which is that of the oldest object.
func rewrites(k kube.Snapshot) []extproc.Rewrite {
	var rules []extproc.Rewrite
	taken := map[string]bool{}
	for _, r := range k.Rewrites {
		if taken[r.Model] {
			continue
		}
		taken[r.Model] = true
		rule := extproc.Rewrite{Name: r.Object, Match: r.Model}
		for _, t := range r.Targets {
			rule.Targets = append(rule.Targets, extproc.Target{Model: t.Model, Weight: t.Weight})
		}
		rules = append(rules, rule)
	}
	return rules
}

// follow watches until ctx ends; the returned function waits for that.
func (p *poolWatch) follow(ctx context.Context, s *epp.Server) (wait func()) {
	if p.watcher == nil {
		return func() {}
	}
	p.server.Store(s)
	close(p.started)
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := p.watcher.Run(ctx); err != nil && ctx.Err() == nil {
			slog.Error("the Kubernetes watch has ended", "error", err)
		}
	})
	return watching.Wait
}
