package local

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/loadgen/plan"
	"github.com/llm-weir/weir/loadgen/runner"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/picker"
	"github.com/llm-weir/weir/sim-vllm/server"
)

// stage is one running system. It implements sut.Stage.
type stage struct {
	*env.Clients
	scenario string
	sys      *System
	out      evidence.Sink
	sims     []*sim
	router   router
	down     chan struct{} // closed when the router has ended after Shutdown; nil before
	port     int           // of every model server; 0: each has one of its own
	doors    []*door
	batch    *batch    // nil: there is none
	exchange *exchange // where pickers tell each other of their load; nil: they do not

	base    context.Context
	cancel  context.CancelCauseFunc
	tasks   sync.WaitGroup // servers and shutdowns
	once    sync.Once
	failure error // of close

	mu       sync.Mutex
	handling int      // requests inside the gateway
	member   []string // names of the endpoints in the pool
}

var (
	_ sut.Stage   = (*stage)(nil)
	_ sut.Watcher = (*stage)(nil)
	_ sut.Refuser = (*stage)(nil)
)

// Send implements sut.Stage.
func (st *stage) Send(r sut.Request) {
	st.Start(st.base, st.sender(r.Picker), st.scenario, r, st.address, st.out.Client)
}

func (st *stage) address(name string) string {
	if sm := st.sim(name); sm != nil {
		return sm.addr
	}
	return ""
}

func (st *stage) sim(name string) *sim {
	for _, sm := range st.sims {
		if sm.spec.Name == name {
			return sm
		}
	}
	return nil
}

// log is what all model servers have seen, by arrival.
func (st *stage) log() []evidence.Backend {
	var all []evidence.Backend
	for _, sm := range st.sims {
		all = append(all, sm.server.Log()...)
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Arrival < all[j].Arrival })
	return all
}

// Arrivals implements sut.Stage.
func (st *stage) Arrivals() []string {
	var out []string
	for _, b := range st.log() {
		out = append(out, b.ID)
	}
	return out
}

// Held implements sut.Stage.
func (st *stage) Held() []string { return st.heldAt("") }

// HeldAt implements sut.Stage.
func (st *stage) HeldAt(endpoint string) []string { return st.heldAt(endpoint) }

func (st *stage) heldAt(endpoint string) []string {
	held := map[string]bool{}
	for _, sm := range st.sims {
		if endpoint == "" || endpoint == sm.spec.Name {
			for _, id := range sm.server.Held() {
				held[id] = true
			}
		}
	}
	var out []string
	for _, id := range st.Arrivals() {
		if held[id] {
			out = append(out, id)
			delete(held, id)
		}
	}
	return out
}

// Release implements sut.Stage.
func (st *stage) Release(id string) bool {
	for _, sm := range st.sims {
		if sm.server.Release(id) {
			return true
		}
	}
	return false
}

// SetHold implements sut.Stage.
func (st *stage) SetHold(on bool) {
	for _, sm := range st.sims {
		sm.server.SetHold(on)
	}
}

// SetLoad implements sut.Stage.
func (st *stage) SetLoad(endpoint string, v sut.LoadValues) {
	if sm := st.sim(endpoint); sm != nil {
		sm.server.SetLoad(&server.Load{Waiting: v.Waiting, Running: v.Running, KV: v.KV})
	}
}

// SetFault implements sut.Stage.
func (st *stage) SetFault(endpoint, mode string) error {
	sm := st.sim(endpoint)
	if sm == nil {
		return fmt.Errorf("unknown endpoint %q", endpoint)
	}
	return sm.server.SetMetricsFault(server.MetricsFault(mode))
}

// SetFailure implements sut.Stage.
func (st *stage) SetFailure(status int) error {
	for _, sm := range st.sims {
		if err := sm.server.Fail(status); err != nil {
			return err
		}
	}
	return nil
}

// Scrapes implements sut.Stage.
func (st *stage) Scrapes(endpoint string) int64 {
	if sm := st.sim(endpoint); sm != nil {
		return sm.server.Scrapes()
	}
	return 0
}

// AddEndpoint implements sut.Stage.
func (st *stage) AddEndpoint(name string) error {
	if st.sim(name) == nil {
		return fmt.Errorf("unknown endpoint %q", name)
	}
	if !slices.Contains(st.member, name) {
		st.member = append(st.member, name)
	}
	return st.router.SetMembers(st.base, st.members())
}

// RemoveEndpoint implements sut.Stage.
func (st *stage) RemoveEndpoint(name string) error {
	i := slices.Index(st.member, name)
	if i < 0 {
		return fmt.Errorf("endpoint %q is not in the pool", name)
	}
	st.member = slices.Delete(st.member, i, i+1)
	return st.router.SetMembers(st.base, st.members())
}

// Load implements sut.Stage.
func (st *stage) Load(ctx context.Context, p plan.Plan, begun func()) (string, error) {
	names := st.sys.opts.Names
	s, err := runner.Run(ctx, p, runner.Config{Sender: st.sender(0), Scenario: st.scenario, Model: env.Model, Timeout: time.Minute,
		FairnessHeader: names.Fairness[0], ObjectiveHeader: names.Objective[0], OnStart: begun, OnDone: st.out.Client})
	if err != nil {
		return s.Invalid, err
	}
	return s.Invalid, nil
}

// decided records a white-box decision.
func (st *stage) decided(d epp.Decision) {
	kind := "evict"
	switch d.Kind {
	case picker.Dispatch:
		kind = "dispatch"
	case picker.Reject:
		kind = "reject"
	}
	outcome := d.Outcome.String()
	if d.Kind == picker.Dispatch {
		outcome = "Dispatched"
	}
	st.out.Decision(evidence.Decision{At: int64(d.At), ID: d.Label, Kind: kind, Outcome: outcome, Flow: d.Flow, Priority: d.Priority,
		Endpoint: d.Endpoint, Waited: int64(d.Waited), Saturation: d.Saturation})
}

func (st *stage) unhandled() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.handling == 0
}

// settleLimit is how long the model servers may take to notice that nobody listens any more.
const settleLimit = 3 * time.Second

// flush hands the model servers' records over, once nothing runs there any more.
func (st *stage) flush() {
	st.stopBatch() // what it had in flight is over then
	st.Await(context.Background(), st.Clock.Now()+settleLimit, func() bool {
		for _, sm := range st.sims {
			if sm.server.InFlight() > 0 {
				return false
			}
		}
		return st.Open() == 0
	})
	for _, b := range st.log() {
		st.out.Backend(b)
	}
}
