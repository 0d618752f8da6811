package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/reference/gateway"
)

// This file is what a stage asks of the router and tells it: pages, health, pool, end and return.

// QueueSize implements sut.Stage.
func (st *stage) QueueSize() (int, bool) {
	m := st.sys.reach().Metrics
	if m == "" {
		return 0, false
	}
	families, err := page(st.base, st.control, m)
	if err != nil {
		return 0, false
	}
	return env.QueueSize(families)
}

// Sample implements sut.Stage.
func (st *stage) Sample(mark, endpoint string, all bool) error {
	return st.sample(endpoint, env.Page{Mark: mark, Source: "router", All: all})
}

func (st *stage) sample(endpoint string, p env.Page) error {
	p.At = int64(st.Clock.Now())
	address := st.sys.reach().Metrics
	if endpoint != "" {
		sm := st.sim(endpoint)
		if sm == nil {
			return fmt.Errorf("unknown endpoint %q", endpoint)
		}
		p.Source, p.All, address = endpoint, true, sm.base+"/metrics"
	}
	var err error
	if p.Families, err = page(st.base, st.control, address); err != nil {
		return err
	}
	st.rename(p.Families)
	for _, s := range p.Samples() {
		st.out.Sample(s)
	}
	return nil
}

// Watch implements sut.Watcher.
func (st *stage) Watch(mark string, every time.Duration) (stop func()) {
	var names []string
	for _, sm := range st.sims {
		names = append(names, sm.spec.Name)
	}
	// One that cannot be read leaves no sample.
	return env.Watch(st.Clock, every, names, func(endpoint string) {
		_ = st.sample(endpoint, env.Page{Mark: mark, Source: "router", Only: env.Pressure})
	})
}

// update tells the router what has changed in pool and objectives.
func (st *stage) update() error { return st.hook(st.base, "update", st.sys.doc, false) }

// AddEndpoint implements sut.Stage.
func (st *stage) AddEndpoint(name string) error {
	if st.sim(name) == nil {
		return fmt.Errorf("unknown endpoint %q", name)
	}
	if !slices.Contains(st.member, name) {
		st.member = append(st.member, name)
	}
	return st.update()
}

// RemoveEndpoint implements sut.Stage.
func (st *stage) RemoveEndpoint(name string) error {
	i := slices.Index(st.member, name)
	if i < 0 {
		return fmt.Errorf("endpoint %q is not in the pool", name)
	}
	st.member = slices.Delete(st.member, i, i+1)
	return st.update()
}

// Relabel implements sut.Stage.
func (st *stage) Relabel(name, role string) error {
	sm := st.sim(name)
	if sm == nil {
		return fmt.Errorf("unknown endpoint %q", name)
	}
	sm.spec.Role = role
	return st.update()
}

// SetObjectives implements sut.Stage.
func (st *stage) SetObjectives(m map[string]int, objects []sut.Objective) error {
	st.sys.cfg.Objectives, st.sys.cfg.Objects = m, objects
	return st.update()
}

// Shutdown implements sut.Stage.
func (st *stage) Shutdown() {
	down := make(chan struct{})
	st.down = down
	st.tasks.Go(func() {
		defer close(down)
		if err := st.hook(st.base, "stop", st.sys.doc, false); err != nil {
			st.lost(fmt.Errorf("stop command: %w", err))
		}
		st.Wake()
	})
}

// Down implements sut.Stage.
func (st *stage) Down() bool {
	select {
	case <-st.down:
		return st.down != nil
	default:
		return false
	}
}

// CutOff implements sut.Stage.
func (st *stage) CutOff(int) error {
	return errors.New("what passes between the pickers behind a URL cannot be cut off from here")
}

// Restart implements sut.Stage.
func (st *stage) Restart(ctx context.Context) error {
	if st.down == nil {
		return errors.New("the router was not shut down")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*st.limit())
	defer cancel()
	select {
	case <-st.down:
	case <-ctx.Done():
		return fmt.Errorf("the router has not ended: %w", ctx.Err())
	}
	st.down = nil
	if err := st.hook(ctx, "start", st.sys.doc, false); err != nil {
		return fmt.Errorf("start command: %w", err)
	}
	if err := st.ready(ctx); err != nil || !st.sys.fronted() {
		return err
	}
	return st.gateway.Ready(ctx)
}

// Streams implements sut.Stage.
func (st *stage) Streams(n int) error { return st.gateway.Idle(st.base, n) }

// Health implements sut.Stage.
func (st *stage) Health(ctx context.Context) (string, error) {
	return env.Health(ctx, st.sys.reach().Health)
}

// TryStart implements sut.Stage.
func (st *stage) TryStart(ctx context.Context, name, doc string, stable bool) evidence.Process {
	began := st.Clock.Now()
	err := st.hook(ctx, "try", doc, stable)
	p := evidence.Process{Case: name, Started: err == nil, Duration: int64(st.Clock.Now() - began)}
	var refused *binary.StartError
	switch {
	case errors.As(err, &refused):
		p.ExitCode, p.Text = refused.ExitCode, refused.Output
		if refused.ExitCode < 0 {
			p.Text = refused.Error()
		}
	case err != nil:
		p.ExitCode, p.Text = -1, err.Error()
	}
	return p
}

// exchanged records what our gateway saw.
func (st *stage) exchanged(x gateway.Exchange) { st.out.Exchange(env.Exchanged(x, st.endpointAt)) }

// endpointAt is the name of the simulator at an address; "" for none.
func (st *stage) endpointAt(address string) string {
	for _, sm := range st.sims {
		if sm.address == address {
			return sm.spec.Name
		}
	}
	return ""
}

// about says how to reach what is up.
func (st *stage) about() []string {
	out := []string{"gateway   " + st.sender.BaseURL}
	if m := st.sys.reach().Metrics; m != "" {
		out = append(out, "metrics   "+m)
	}
	for _, sm := range st.sims {
		out = append(out, fmt.Sprintf("%-9s %s (%s; admin under /admin/)", sm.spec.Name, sm.base, sm.own))
	}
	out = append(out, "files     "+st.dir, "try: curl -i "+st.sender.BaseURL+`/v1/completions -H 'content-type: application/json' -d '{"model":"`+env.Model+`","prompt":"hello","max_tokens":4}'`)
	for _, sm := range st.sims {
		out = append(out, "     curl "+sm.base+"/admin/state")
	}
	return out
}

// rename gives model servers the names of the scenario in a page of metrics, where the router knows them by others.
func (st *stage) rename(families []*dto.MetricFamily) {
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				for _, sm := range st.sims {
					if l.GetValue() == sm.own {
						l.Value = &sm.spec.Name
					}
				}
			}
		}
	}
}
