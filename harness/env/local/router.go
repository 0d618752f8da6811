package local

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sort"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/reference/gateway"
)

// This file is what a stage asks of its router: pages, health, end and return.

// page reads a metrics page.
func (st *stage) page(address string) ([]*dto.MetricFamily, error) {
	if address == "" {
		return nil, errors.New("metrics page: the router has none")
	}
	ctx, cancel := context.WithTimeout(st.base, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := st.sender(0).Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("metrics page: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics page: status %d", resp.StatusCode)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	byName, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("metrics page: %w", err)
	}
	out := make([]*dto.MetricFamily, 0, len(byName))
	for _, f := range byName {
		out = append(out, f)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].GetName() < out[j].GetName() })
	return out, nil
}

// QueueSize implements sut.Stage.
func (st *stage) QueueSize() (int, bool) {
	total := 0
	for _, r := range st.pickers() {
		families, err := st.page(r.MetricsAddr())
		if err != nil {
			return 0, false
		}
		n, ok := env.QueueSize(families)
		if !ok {
			return 0, false
		}
		total += n
	}
	return total, true
}

// Sample implements sut.Stage.
func (st *stage) Sample(mark, endpoint string, all bool) error {
	return st.sample(endpoint, env.Page{Mark: mark, Source: "router", All: all})
}

// sample reads the page of the router, or of endpoint, and keeps of it what p says.
func (st *stage) sample(endpoint string, p env.Page) error {
	p.At = int64(st.Clock.Now())
	address := st.router.MetricsAddr()
	if endpoint != "" {
		sm := st.sim(endpoint)
		if sm == nil {
			return fmt.Errorf("unknown endpoint %q", endpoint)
		}
		p.Source, p.All, address = endpoint, true, sm.addr
	}
	var err error
	if p.Families, err = st.page(address); err != nil {
		return err
	}
	for _, s := range p.Samples() {
		st.out.Sample(s)
	}
	return nil
}

// Shutdown implements sut.Stage.
func (st *stage) Shutdown() {
	down := make(chan struct{})
	st.down = down
	st.tasks.Go(func() {
		defer close(down)
		ctx, cancel := context.WithTimeout(st.base, 30*time.Second)
		defer cancel()
		_ = st.router.Shutdown(ctx) // a drain that is cut short by the end of the scenario is the scenario's own doing
		st.Wake()
	})
}

// Down implements sut.Stage.
func (st *stage) Down() bool {
	if st.down == nil {
		return false
	}
	select {
	case <-st.down:
		return true
	default:
		return false
	}
}

// Streams implements sut.Stage.
func (st *stage) Streams(n int) error { return st.doors[0].gateway.Idle(st.base, n) }

// Health implements sut.Stage.
func (st *stage) Health(ctx context.Context) (string, error) {
	return env.Health(ctx, st.router.HealthAddr())
}

// restartLimit is how long the old router may take to end and the new one to be reached.
const restartLimit = 40 * time.Second

// Restart implements sut.Stage.
func (st *stage) Restart(ctx context.Context) error {
	if st.down == nil {
		return errors.New("the router was not shut down")
	}
	ctx, cancel := context.WithTimeout(ctx, restartLimit)
	defer cancel()
	select {
	case <-st.down:
	case <-ctx.Done():
		return fmt.Errorf("the router has not ended: %w", ctx.Err())
	}
	st.down = nil
	if err := st.router.Restart(ctx); err != nil {
		return err
	}
	var errs []error
	for _, d := range st.doors {
		errs = append(errs, d.gateway.Ready(ctx))
	}
	return errors.Join(errs...)
}

// Relabel implements sut.Stage.
func (st *stage) Relabel(name, role string) error {
	sm := st.sim(name)
	if sm == nil {
		return fmt.Errorf("unknown endpoint %q", name)
	}
	sm.spec.Role = role
	return st.router.SetMembers(st.base, st.members())
}

// SetObjectives implements sut.Stage.
func (st *stage) SetObjectives(m map[string]int, objects []sut.Objective) error {
	st.sys.cfg.Objectives, st.sys.cfg.Objects = m, objects
	return st.router.SetObjectives(st.base, m, objects)
}

// exchanged records what the gateway saw.
func (st *stage) exchanged(x gateway.Exchange) { st.out.Exchange(env.Exchanged(x, st.endpointAt)) }

// endpointAt is the name of the model server at an address; "" for none.
func (st *stage) endpointAt(address string) string {
	for _, sm := range st.sims {
		if sm.addr == address {
			return sm.spec.Name
		}
	}
	return ""
}
