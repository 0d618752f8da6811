package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/loadgen/openai"
	"github.com/llm-weir/weir/loadgen/plan"
	"github.com/llm-weir/weir/loadgen/runner"
	"github.com/llm-weir/weir/reference/gateway"
)

// stage is the surroundings of one router during one scenario. It implements sut.Stage.
type stage struct {
	*env.Clients
	scenario string
	sys      *System
	out      evidence.Sink
	sims     []*sim // in the order of the scenario's endpoints
	before   map[string]reading
	dir      string       // for the files of the hooks
	control  *http.Client // to everything but the gateway
	sender   *openai.Sender
	gateway  *gateway.Gateway // of ours; nil: nobody knows where the picker is
	front    *http.Server     // of that gateway; nil: clients send to the router's own
	handling atomic.Int64     // requests inside that gateway
	printed  printed

	base     context.Context // of everything that the stage does by itself
	cancel   context.CancelCauseFunc
	broken   context.Context // ends, with the cause, when a simulator is lost
	breakOff context.CancelCauseFunc
	tasks    sync.WaitGroup // mirrors, servers and shutdowns
	once     sync.Once
	failure  error         // of close
	down     chan struct{} // closed when the stop command has ended; nil before
	member   []string      // names of the endpoints in the pool
	waiting  bool          // inside Await, where the mirrors are recent enough
	direct   []string      // ids of requests that are sent while the gate is open

	mu sync.Mutex // of the mirrors
}

var (
	_ sut.Stage    = (*stage)(nil)
	_ sut.Refuser  = (*stage)(nil)
	_ sut.Deployer = (*stage)(nil)
	_ sut.Watcher  = (*stage)(nil)
)

// Await implements sut.Stage.
func (st *stage) Await(ctx context.Context, until time.Duration, cond func() bool) bool {
	st.waiting = true
	defer func() { st.waiting = false }()
	return st.Clients.Await(ctx, until, cond)
}

// Send implements sut.Stage.
func (st *stage) Send(r sut.Request) {
	st.Start(st.base, st.sender, st.scenario, r, st.address, st.client)
}

// client hands a client's record over.
func (st *stage) client(c evidence.Client) {
	c.Endpoint = st.called(c.Endpoint)
	st.out.Client(c)
}

// called is what the scenario calls a simulator.
func (st *stage) called(own string) string {
	for _, sm := range st.sims {
		if sm.about.Name == own {
			return sm.spec.Name
		}
	}
	return own
}

func (st *stage) address(name string) string {
	if sm := st.sim(name); sm != nil {
		return sm.address
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

// mirrorWait is how long a mirror's question stays open at a simulator where nothing happens.
const mirrorWait = 5 * time.Second

// follow keeps the mirror of a simulator up to date until the stage is closed.
func (st *stage) follow(sm *sim) {
	for st.base.Err() == nil {
		st.mu.Lock()
		after := sm.version
		st.mu.Unlock()
		c, err := sm.changes(st.base, after, mirrorWait)
		if err != nil {
			st.lost(err)
			return
		}
		st.mu.Lock()
		news := sm.apply(c)
		st.mu.Unlock()
		if news {
			st.Wake()
		}
	}
}

// lost ends the scenario: what happens at the model servers cannot be seen any more.
func (st *stage) lost(err error) {
	if st.base.Err() == nil {
		st.breakOff(err)
	}
}

// refresh brings the mirrors up to this very moment, unless Await has just been told of a change.
func (st *stage) refresh() {
	if st.waiting || st.broken.Err() != nil {
		return
	}
	for _, sm := range st.sims {
		st.mu.Lock()
		after := sm.version
		st.mu.Unlock()
		c, err := sm.changes(st.base, after, 0)
		if err != nil {
			st.lost(err)
			return
		}
		st.mu.Lock()
		sm.apply(c)
		st.mu.Unlock()
	}
}

// log is what all simulators have seen, by arrival on the stage's clock.
func (st *stage) log() []evidence.Backend {
	st.refresh()
	st.mu.Lock()
	defer st.mu.Unlock()
	var all []evidence.Backend
	for _, sm := range st.sims {
		for _, b := range sm.log {
			all = append(all, sm.record(b))
		}
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
	var out []string
	for _, b := range st.log() {
		if held(b) && (endpoint == "" || endpoint == b.Endpoint) && !slices.Contains(out, b.ID) {
			out = append(out, b.ID)
		}
	}
	return out
}

// command tells a simulator something; one that cannot be told is lost.
func (st *stage) command(sm *sim, path string, in, out any) {
	if err := sm.bounded(st.base, http.MethodPost, path, in, out); err != nil {
		st.lost(err)
	}
}

// Release implements sut.Stage.
func (st *stage) Release(id string) bool {
	for _, sm := range st.sims {
		var done struct {
			Released int `json:"released"`
		}
		if st.command(sm, "/admin/release", map[string]string{"id": id}, &done); done.Released > 0 {
			return true
		}
	}
	return false
}

// SetHold implements sut.Stage.
func (st *stage) SetHold(on bool) {
	for _, sm := range st.sims {
		st.command(sm, "/admin/hold", map[string]bool{"hold": on}, nil)
	}
}

// SetLoad implements sut.Stage.
func (st *stage) SetLoad(endpoint string, v sut.LoadValues) {
	if sm := st.sim(endpoint); sm != nil {
		st.command(sm, "/admin/load", v, nil)
	}
}

// SetFault implements sut.Stage.
func (st *stage) SetFault(endpoint, mode string) error {
	sm := st.sim(endpoint)
	if sm == nil {
		return fmt.Errorf("unknown endpoint %q", endpoint)
	}
	return sm.bounded(st.base, http.MethodPost, "/admin/metrics", map[string]string{"fault": mode}, nil)
}

// SetFailure implements sut.Stage.
func (st *stage) SetFailure(status int) error {
	for _, sm := range st.sims {
		if err := sm.bounded(st.base, http.MethodPost, "/admin/fail", map[string]int{"status": status}, nil); err != nil {
			return err
		}
	}
	return nil
}

// Scrapes implements sut.Stage.
func (st *stage) Scrapes(endpoint string) int64 {
	st.refresh()
	st.mu.Lock()
	defer st.mu.Unlock()
	if sm := st.sim(endpoint); sm != nil {
		return sm.scrapes
	}
	return 0
}

// Load implements sut.Stage.
func (st *stage) Load(ctx context.Context, p plan.Plan, begun func()) (string, error) {
	names := st.sys.opts.Names
	s, err := runner.Run(ctx, p, runner.Config{Sender: st.sender, Scenario: st.scenario, Model: env.Model, Timeout: time.Minute,
		FairnessHeader: names.Fairness[0], ObjectiveHeader: names.Objective[0], OnStart: begun, OnDone: st.client})
	return s.Invalid, err
}

// settleLimit is how long simulators and gateway may take to notice that nobody listens any more.
const settleLimit = 3 * time.Second

// flush hands the simulators' records over once nothing runs there any more, and says what makes them worthless.
func (st *stage) flush(ctx context.Context) error {
	st.Await(context.Background(), st.Clock.Now()+settleLimit, func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		for _, sm := range st.sims {
			if sm.inside > 0 {
				return false
			}
		}
		return st.Open() == 0
	})
	log := st.log()
	st.out.File("hooks.log", []byte(st.printed.String()))
	if st.broken.Err() != nil {
		return context.Cause(st.broken)
	}
	var foreign []string
	for _, b := range log {
		if b.Scenario != st.scenario {
			foreign = append(foreign, fmt.Sprintf("%q at %s", b.ID, b.Endpoint))
			continue
		}
		st.out.Backend(b)
	}
	var err error
	if len(st.sims) > 0 {
		st.sys.skew, st.sys.blur, err = st.settleClocks(ctx, log)
	}
	if why := st.far(log); why != "" && st.sys.blur == "" {
		st.sys.blur = why
	}
	if len(foreign) > 0 {
		err = errors.Join(err, fmt.Errorf("%d requests arrived at the simulators without the headers of this scenario (the first: %s): somebody else sends, or the router takes "+
			"headers away; nothing can be counted", len(foreign), foreign[0]))
	}
	return err
}

// close ends what the stage has begun; what it found running goes on.
func (st *stage) close() error {
	st.once.Do(func() {
		st.cancel(errors.New("the scenario is over"))
		st.Wait()
		if st.front != nil {
			st.front.Close()
		}
		if st.gateway != nil {
			st.failure = st.gateway.Close()
		}
		st.Await(context.Background(), st.Clock.Now()+settleLimit, func() bool { return st.handling.Load() == 0 })
		st.tasks.Wait()
		st.control.CloseIdleConnections()
		if st.sender != nil {
			st.sender.Client.CloseIdleConnections()
		}
		st.breakOff(nil)
		if st.dir != "" {
			os.RemoveAll(st.dir)
		}
	})
	return st.failure
}
