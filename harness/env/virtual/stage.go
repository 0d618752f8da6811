package virtual

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/loadgen/plan"
)

// Delays of the virtual network. They are of loopback's order; what matters is that causes come before effects.
const (
	hop          = 200 * time.Microsecond // client to picker, picker to model server, and back
	answerTime   = time.Millisecond       // of a model server that answers at once
	scrapePeriod = 50 * time.Millisecond
)

// stage is one configured system in virtual time. It implements sut.Stage.
type stage struct {
	agenda
	scenario string
	sys      *System
	out      evidence.Sink
	router   *router   // the first
	others   []*router // where several pickers serve the pool
	servers  []*server
	clients  map[string]*client
	open     int       // requests without an ending
	order    []*client // in the order they were sent
	arrived  []string
	replicas int // routers so far
	idle     int // streams on which nothing is said
	batch    *batch
}

var (
	_ sut.Stage   = (*stage)(nil)
	_ sut.Watcher = (*stage)(nil)
	_ sut.Refuser = (*stage)(nil)
)

func newStage(scenario string, s *System, out evidence.Sink) (*stage, error) {
	st := &stage{scenario: scenario, sys: s, out: out, clients: map[string]*client{}}
	for i, e := range s.cfg.Endpoints {
		sv, err := newServer(st, i, e, s.cfg)
		if err != nil {
			return nil, err
		}
		st.servers = append(st.servers, sv)
	}
	for i := range max(1, s.cfg.Pickers) {
		w, err := s.wiring()
		if err != nil {
			return nil, err
		}
		if r := newRouter(st, s, w); i == 0 {
			st.router = r
		} else {
			st.others = append(st.others, r)
		}
	}
	for _, sv := range st.servers {
		if !sv.spec.Out {
			st.join(sv)
		}
	}
	return st, st.startBatch()
}

// routers lists all pickers.
func (st *stage) routers() []*router { return append([]*router{st.router}, st.others...) }

// routerOf is the picker that a request is sent to.
func (st *stage) routerOf(picker int) *router {
	all := st.routers()
	return all[min(picker, len(all)-1)]
}

// join puts a server into the pool of every picker.
func (st *stage) join(sv *server) {
	sv.inPool = true
	for _, r := range st.routers() {
		r.join(sv)
	}
}

// Now implements sut.Stage.
func (st *stage) Now() time.Duration { return st.now }

// Await implements sut.Stage: it runs the agenda.
func (st *stage) Await(ctx context.Context, until time.Duration, cond func() bool) bool {
	for {
		if cond() {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if !st.next(until) {
			st.now = max(st.now, until)
			return cond()
		}
	}
}

// Ended implements sut.Stage.
func (st *stage) Ended(id string) bool {
	c := st.clients[id]
	return c != nil && c.ended
}

// Refused implements sut.Refuser.
func (st *stage) Refused(id string) bool {
	c := st.clients[id]
	return c != nil && c.ended && c.rec.Outcome == evidence.Refused
}

// Unended implements sut.Stage.
func (st *stage) Unended() []string {
	var out []string
	for _, c := range st.order {
		if !c.ended {
			out = append(out, c.rec.ID)
		}
	}
	return out
}

// Open implements sut.Stage.
func (st *stage) Open() int { return st.open }

// Arrivals implements sut.Stage.
func (st *stage) Arrivals() []string { return st.arrived }

// Held implements sut.Stage.
func (st *stage) Held() []string { return st.heldAt("") }

// HeldAt implements sut.Stage.
func (st *stage) HeldAt(endpoint string) []string { return st.heldAt(endpoint) }

func (st *stage) heldAt(endpoint string) []string {
	var held []*visit
	for _, sv := range st.servers {
		if endpoint != "" && sv.spec.Name != endpoint {
			continue
		}
		for _, v := range sv.visits {
			if v.held && !v.over {
				held = append(held, v)
			}
		}
	}
	slices.SortStableFunc(held, func(a, b *visit) int { return a.order - b.order })
	var out []string
	for _, v := range held {
		out = append(out, v.rec.ID)
	}
	return out
}

// Release implements sut.Stage.
func (st *stage) Release(id string) bool {
	for _, sv := range st.servers {
		for _, v := range sv.visits {
			if v.rec.ID == id && v.held && !v.over {
				sv.release(v)
				return true
			}
		}
	}
	return false
}

// SetHold implements sut.Stage.
func (st *stage) SetHold(on bool) {
	for _, sv := range st.servers {
		sv.hold = on
	}
}

func (st *stage) server(name string) *server {
	for _, sv := range st.servers {
		if sv.spec.Name == name {
			return sv
		}
	}
	return nil
}

// SetLoad implements sut.Stage.
func (st *stage) SetLoad(endpoint string, v sut.LoadValues) {
	if sv := st.server(endpoint); sv != nil {
		sv.scripted = &v
	}
}

// SetFault implements sut.Stage. Untyped families are read as missing, as the scraper does.
func (st *stage) SetFault(endpoint, mode string) error {
	sv := st.server(endpoint)
	if sv == nil {
		return fmt.Errorf("unknown endpoint %q", endpoint)
	}
	sv.fault = mode
	return nil
}

// SetFailure implements sut.Stage.
func (st *stage) SetFailure(status int) error {
	for _, sv := range st.servers {
		sv.failure = status
	}
	return nil
}

// Scrapes implements sut.Stage.
func (st *stage) Scrapes(endpoint string) int64 {
	if sv := st.server(endpoint); sv != nil {
		return sv.scrapes
	}
	return 0
}

// AddEndpoint implements sut.Stage.
func (st *stage) AddEndpoint(name string) error {
	sv := st.server(name)
	if sv == nil {
		return fmt.Errorf("unknown endpoint %q", name)
	}
	st.join(sv)
	return nil
}

// RemoveEndpoint implements sut.Stage.
func (st *stage) RemoveEndpoint(name string) error {
	sv := st.server(name)
	if sv == nil {
		return fmt.Errorf("unknown endpoint %q", name)
	}
	sv.inPool = false
	for _, r := range st.routers() {
		r.leave(sv)
	}
	return nil
}

// QueueSize implements sut.Stage.
func (st *stage) QueueSize() (int, bool) {
	total := 0
	for _, r := range st.routers() {
		families, err := r.families()
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
	p.At = int64(st.now)
	var err error
	if endpoint != "" {
		sv := st.server(endpoint)
		if sv == nil {
			return fmt.Errorf("unknown endpoint %q", endpoint)
		}
		p.Source, p.All = endpoint, true
		p.Families = sv.page()
	} else if p.Families, err = st.router.families(); err != nil {
		return err
	}
	for _, s := range p.Samples() {
		st.out.Sample(s)
	}
	return nil
}

// Relabel implements sut.Stage.
func (st *stage) Relabel(name, role string) error {
	sv := st.server(name)
	if sv == nil {
		return fmt.Errorf("unknown endpoint %q", name)
	}
	sv.spec.Role = role
	if sv.inPool {
		for _, r := range st.routers() {
			r.relabel(sv)
		}
	}
	return nil
}

// SetObjectives implements sut.Stage.
func (st *stage) SetObjectives(m map[string]int, objects []sut.Objective) error {
	if len(objects) > 0 {
		return errors.New("there is no Kubernetes API in virtual time")
	}
	st.sys.cfg.Objectives = m
	for _, r := range st.routers() {
		r.provision()
	}
	return nil
}

// Down implements sut.Stage.
func (st *stage) Down() bool {
	return st.router.stopping && len(st.router.calls) == 0 && !(st.idle > 0 && st.sys.opts.Tamper.Plane.IdleHolds)
}

// Streams implements sut.Stage.
func (st *stage) Streams(n int) error {
	st.idle += n
	return nil
}

// Health implements sut.Stage.
func (st *stage) Health(context.Context) (string, error) {
	if st.router.stopping && !st.sys.opts.Tamper.Plane.AlwaysServing {
		return "NOT_SERVING", nil
	}
	return "SERVING", nil
}

// Restart implements sut.Stage: a new picker that knows nothing of what the old one had.
func (st *stage) Restart(ctx context.Context) error {
	if !st.router.stopping {
		return errors.New("the router was not shut down")
	}
	old := st.router
	st.Await(ctx, st.now+30*time.Second, func() bool { return len(old.calls) == 0 })
	w, err := st.sys.wiring()
	if err != nil {
		return err
	}
	st.router = newRouter(st, st.sys, w)
	st.router.nextID = old.nextID // what is late for the old one is nobody's
	for _, sv := range st.servers {
		if sv.inPool {
			st.router.join(sv)
		}
	}
	return nil
}

// Shutdown implements sut.Stage.
func (st *stage) Shutdown() { st.after(hop, st.router.shutdown) }

// TryStart implements sut.Stage. In virtual time a start is the loading of the document, and a refusal is exit status 2.
func (st *stage) TryStart(_ context.Context, name, doc string, stable bool) evidence.Process {
	cfg, err := st.sys.opts.Tamper.Load(doc, st.sys.opts.Contract)
	if err == nil && stable && !st.sys.opts.Tamper.AlphaIsStable {
		err = cfg.Stable()
	}
	if err != nil {
		return evidence.Process{Case: name, ExitCode: 2, Text: err.Error()}
	}
	return evidence.Process{Case: name, Started: true}
}

// Load implements sut.Stage.
func (st *stage) Load(ctx context.Context, p plan.Plan, begun func()) (string, error) {
	c, err := plan.NewCursor(p)
	if err != nil {
		return "", err
	}
	l := &loader{st: st, cursor: c, start: st.now}
	begun()
	l.step(plan.Event{Kind: plan.Tick})
	done := func() bool { return c.Done() && st.open == 0 }
	if !st.Await(ctx, st.now+p.Duration+2*time.Minute, done) {
		return fmt.Sprintf("%d requests have not ended", st.open), ctx.Err()
	}
	if n := c.Exhausted(); n > 0 {
		return fmt.Sprintf("%d closed loops ran out of planned requests", n), nil
	}
	return "", nil
}

// loader walks a plan's cursor.
type loader struct {
	st     *stage
	cursor *plan.Cursor
	start  time.Duration
	armed  bool          // a tick is on the agenda
	tickAt time.Duration // when
}

func (l *loader) step(ev plan.Event) {
	for _, o := range l.cursor.Step(l.st.now-l.start, ev, nil) {
		l.send(*o.Request, l.start+o.Intended)
	}
	at, ok := l.cursor.Deadline()
	if !ok || l.armed && l.tickAt <= at {
		return
	}
	l.armed, l.tickAt = true, at
	l.st.at(l.start+at, func() {
		if l.tickAt == at {
			l.armed = false
		}
		l.step(plan.Event{Kind: plan.Tick})
	})
}

func (l *loader) send(r plan.Request, intended time.Duration) {
	names := l.st.sys.opts.Names
	q := sut.Request{ID: r.ID, Tenant: r.FairnessID, Objective: r.Objective, Path: r.Path, Stream: r.Stream, MaxTokens: r.MaxTokens,
		Extra: map[string]string{wire.HeaderOutputTokens: fmt.Sprint(r.OutputTokens)}}
	if r.FairnessID != "" {
		q.Extra[names.Fairness[0]] = r.FairnessID
	}
	if r.Objective != "" {
		q.Extra[names.Objective[0]] = r.Objective
	}
	c := l.st.send(q, loadBody(r))
	c.rec.Intended = int64(intended)
	c.rec.Behind = c.rec.Sent - c.rec.Intended
	c.promptTokens, c.outputTokens = r.PromptTokens, r.OutputTokens
	c.onEnd = func() { l.step(plan.Event{Kind: plan.Completed, ID: r.ID}) }
	if r.CancelAfter > 0 {
		l.st.after(r.CancelAfter, func() { l.st.Cancel(r.ID) })
	}
}
