package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/picker"
)

// router is the picker that is judged: the reference in this process, or a program.
type router interface {
	GRPCAddr() string
	HealthAddr() string
	MetricsAddr() string // "": it publishes none
	// SetMembers tells it which of the model servers are in the pool, SetObjectives which objectives there are.
	SetMembers(ctx context.Context, members []*sim) error
	SetObjectives(ctx context.Context, objectives map[string]int, objects []sut.Objective) error
	Shutdown(ctx context.Context) error
	// Restart brings it up again at its addresses, after Shutdown.
	Restart(ctx context.Context) error
	// Failed is closed when it ends without having been told to; Failure says how then.
	Failed() <-chan struct{}
	Failure() error
	Close() error
}

// startRouter brings up the router that the options name, as the n-th from 0.
func (st *stage) startRouter(ctx context.Context, n int) (router, error) {
	if st.sys.command() != nil {
		return st.startProgram(ctx, n)
	}
	e, err := st.servePicker(loopback, loopback, st.syncURL(n))
	if err != nil {
		return nil, err
	}
	return &reference{e, st, st.syncURL(n)}, nil
}

// reference is the picker in this process.
type reference struct {
	*epp.Server
	st   *stage
	sync string // where it tells others of its load
}

// SetMembers implements router.
func (r *reference) SetMembers(_ context.Context, members []*sim) error {
	r.SetEndpoints(pool(members))
	return nil
}

// SetObjectives implements router.
func (r *reference) SetObjectives(_ context.Context, objectives map[string]int, _ []sut.Objective) error {
	r.Server.SetObjectives(objectives)
	return nil
}

// Restart implements router.
func (r *reference) Restart(context.Context) (err error) {
	r.Server, err = r.st.servePicker(r.GRPCAddr(), r.MetricsAddr(), r.sync)
	return err
}

// Failed implements router: what fails in this process fails as a whole.
func (*reference) Failed() <-chan struct{} { return nil }

// Failure implements router.
func (*reference) Failure() error { return nil }

func pool(members []*sim) []picker.Endpoint {
	var out []picker.Endpoint
	for _, sm := range members {
		out = append(out, picker.Endpoint{Name: sm.spec.Name, Address: sm.addr, Role: epp.RoleOf(sm.spec.Role)})
	}
	return out
}

// servePicker brings the reference up.
func (st *stage) servePicker(grpcAddr, metricsAddr, sync string) (*epp.Server, error) {
	s := st.sys
	m, err := picker.New(s.loaded.Picker)
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	w := epp.DefaultWiring(m, s.opts.Contract, s.loaded.SessionHeaders...)
	if s.opts.Tamper.Wiring != nil {
		s.opts.Tamper.Wiring(&w)
	}
	sv, err := epp.Serve(epp.Options{Wiring: w, Config: s.loaded, PoolName: referencePool, GRPCAddr: grpcAddr, HealthAddr: loopback, MetricsAddr: metricsAddr,
		Endpoints: pool(st.members()), Objectives: s.cfg.Objectives, Clock: st.Clock, OnDecision: st.decided, SyncRedis: sync, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("picker: %w", err)
	}
	return sv, nil
}

// program is a picker that is somebody else's.
type program struct {
	*binary.Program
	st *stage
}

func (st *stage) startProgram(ctx context.Context, n int) (router, error) {
	cfg := st.programConfig(st.sys.doc, st.out.File)
	cfg.SyncRedis = st.syncURL(n)
	p, err := binary.Start(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("picker: %w", err)
	}
	r := program{p, st}
	r.awaitScrapes(ctx, st.members(), nil)
	return r, nil
}

func (st *stage) programConfig(doc string, keep func(string, []byte)) binary.Config {
	return binary.Config{Command: *st.sys.command(), Document: doc, Objects: binaryObjects(st.sys.cfg.Objects), ServerPort: st.port, Endpoints: endpoints(st.members()), Objectives: st.sys.cfg.Objectives,
		StartLimit: st.sys.opts.StartLimit, TLS: st.sys.opts.TLS, OnFile: keep}
}

func binaryObjects(list []sut.Objective) []binary.Objective {
	var out []binary.Objective
	for _, o := range list {
		out = append(out, binary.Objective{Name: o.Name, Priority: o.Priority, Pool: o.Pool, Namespace: o.Namespace})
	}
	return out
}

// command is the program that is judged: somebody else's, or the reference's own where it has to be fed by a Kubernetes API; nil for the
// reference in this process.
func (s *System) command() *binary.Command {
	if s.opts.Command != nil || !s.cfg.NeedsKube() {
		return s.opts.Command
	}
	return s.own
}

func endpoints(members []*sim) []binary.Endpoint {
	var out []binary.Endpoint
	for _, sm := range members {
		host, _, _ := net.SplitHostPort(sm.addr)
		out = append(out, binary.Endpoint{Name: sm.spec.Name, IP: host, Role: sm.spec.Role})
	}
	return out
}

// SetMembers implements router. The program is told by its files and by the Kubernetes API and cannot be asked what it made of it; it is
// seen to know by the model servers that it scrapes.
func (p program) SetMembers(ctx context.Context, members []*sim) error {
	var out []*sim
	for _, sm := range p.st.sims {
		if !sm.in(members) {
			out = append(out, sm)
		}
	}
	relabelled, err := p.SetEndpoints(ctx, endpoints(members))
	if err != nil {
		return err
	}
	p.awaitScrapes(ctx, members, out)
	if relabelled {
		p.settle(ctx)
	}
	return nil
}

// SetObjectives implements router.
func (p program) SetObjectives(ctx context.Context, objectives map[string]int, objects []sut.Objective) error {
	if err := p.Program.SetObjectives(ctx, objectives, binaryObjects(objects)); err != nil {
		return err
	}
	p.settle(ctx)
	return nil
}

// Restart implements router.
func (p program) Restart(ctx context.Context) error {
	if err := p.Program.Restart(ctx); err != nil {
		return err
	}
	p.awaitScrapes(ctx, p.st.members(), nil)
	return nil
}

// settle gives the program time to take over what nobody can see it take over: labels and objectives, which it has been sent.
func (p program) settle(ctx context.Context) {
	p.st.Await(ctx, p.st.Clock.Now()+sut.GaugeLimit, func() bool { return false })
}

// Limits of what a program is given time for after a change of its pool, and the time without a scrape after which a model server
// counts as left alone. Pickers scrape every 50 ms (spec/endpoint-picker.md §8.3).
const (
	knownLimit = time.Second
	quietLimit = 250 * time.Millisecond
)

// awaitScrapes waits until the program scrapes every member and none of the others. One that scrapes nobody is not waited for beyond
// knownLimit.
func (p program) awaitScrapes(ctx context.Context, members, others []*sim) {
	type seen struct {
		count int64
		at    time.Duration
	}
	now := p.st.Clock.Now()
	from, last := map[*sim]int64{}, map[*sim]seen{}
	for _, sm := range members {
		from[sm] = sm.server.Scrapes()
	}
	for _, sm := range others {
		last[sm] = seen{sm.server.Scrapes(), now}
	}
	p.st.Await(ctx, now+knownLimit, func() bool {
		done := true
		for sm, n := range from {
			done = done && sm.server.Scrapes() > n
		}
		for sm, was := range last {
			if n := sm.server.Scrapes(); n != was.count {
				last[sm] = seen{n, p.st.Clock.Now()}
				done = false
			} else if was.count > 0 && p.st.Clock.Now()-was.at < quietLimit {
				done = false
			}
		}
		return done
	})
}

// tryProgram starts the program with another document and ends it again.
func (st *stage) tryProgram(ctx context.Context, name, doc string, stable bool) evidence.Process {
	cfg := st.programConfig(doc, func(file string, content []byte) {
		if file == binary.LogFile {
			st.out.File(name+"-"+file, content)
		}
	})
	if stable {
		cfg.Command = cfg.Command.Without(alphaFlag)
	}
	p, err := binary.Start(ctx, cfg)
	var refused *binary.StartError
	switch {
	case errors.As(err, &refused):
		return evidence.Process{ExitCode: refused.ExitCode, Text: cmp.Or(refused.Output, refused.Why)}
	case err != nil:
		return evidence.Process{ExitCode: -1, Text: err.Error()}
	}
	if err := p.Close(); err != nil {
		return evidence.Process{Started: true, ExitCode: -1, Text: err.Error()}
	}
	return evidence.Process{Started: true}
}

// serverPort is the port that all model servers of a program share, each on an address of its own: an InferencePool has one list of
// ports for all its pods. The reference needs none.
func (s *System) serverPort() (int, error) {
	if s.command() == nil {
		return 0, nil
	}
	return binary.FreePort()
}

func (sm *sim) in(list []*sim) bool {
	for _, other := range list {
		if other == sm {
			return true
		}
	}
	return false
}

// serverAddr is where the n-th model server listens: pickers match subset hints by address without the port.
func (st *stage) serverAddr(n int) string {
	return net.JoinHostPort("127.0.1."+strconv.Itoa(n), strconv.Itoa(st.port))
}
