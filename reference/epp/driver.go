// Package epp runs a picker on real time: one goroutine owns the machine, callers wait for its decisions.
//
//	ext_proc streams --Submit, Finish--\                      /--> Placement or outcome --> waiting stream
//	scrapers ----------Sample-----------> events --> machine <---> evicted (closed channel)
//	files, watches ----SetEndpoints----/   (bounded)    |     \--> Metrics, OnDecision
//	                                        timer at Deadline
//
// driver.go is that goroutine; metrics.go counts; files.go reads the endpoints and objectives; sync.go shares the load in flight with
// other replicas; server.go puts listeners around it.
package epp

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/extproc"
	"github.com/llm-weir/weir/reference/picker"
)

// Placement is a dispatched request.
type Placement = extproc.Placement

// Decision is one decision of the machine, as white-box evidence.
type Decision struct {
	At         time.Duration
	ID         uint64
	Label      string // wire.HeaderID of the request, "" if it had none
	Kind       picker.OutKind
	Outcome    wire.Outcome
	Flow       string
	Priority   int // as requested
	Band       int // as held
	Endpoint   string
	Waited     time.Duration
	Saturation float64 // at the gate, after the decision
}

// DriverConfig is what a driver needs beside the machine.
type DriverConfig struct {
	Clock   clock.Clock
	Metrics *Metrics // nil: nothing is counted
	// OnDecision hears of every decision on the driver's goroutine; it must not block.
	OnDecision func(Decision)
	// Evictions reads the totals of in-flight eviction, on the driver's goroutine; nil: not counted.
	Evictions func() ([]picker.PriorityCount, picker.EvictionState)
	// Confirmations appends how long evicted requests took to end since the last call, on the driver's goroutine; nil: not counted.
	Confirmations func(dst []time.Duration) []time.Duration
	// HasFlow tells whether the machine still keeps a flow, on the driver's goroutine; nil: the series of idle flows stay.
	HasFlow func(priority int, fairnessID string) bool
	// Refuse is needed to count refusals by status; nil: not counted.
	Refuse func(wire.Outcome) wire.Refusal
	// InFlight reads what is in flight at an endpoint, on the driver's goroutine, and OnLoad hears on it that this may have changed; it
	// must not block. Both or neither.
	InFlight func(picker.EndpointID) (requests int, tokens int64)
	OnLoad   func()
	// NeverEvicts says that the machine stops no request in flight, so that nobody has to watch for it.
	NeverEvicts bool
}

// sweepPeriod is how often the driver looks for series of flows that were collected.
const sweepPeriod = time.Second

// eventBuffer bounds the events that wait for the machine; a full buffer makes the callers wait, each with its own way out.
const eventBuffer = 1024

// Driver owns a machine. All methods may be called concurrently.
type Driver struct {
	cfg     DriverConfig
	machine picker.Machine
	events  chan event
	stop    chan struct{} // closed by Close
	done    chan struct{} // closed when the goroutine has ended
	idle    chan struct{} // closed after Shutdown once nothing is in flight
	once    sync.Once
	nextID  atomic.Uint64
	turn    atomic.Uint64

	pool       poolTable
	objectives atomic.Pointer[map[string]int]

	// Owned by the goroutine.
	live     map[uint64]*ticket
	outs     []picker.Out
	timer    *time.Timer
	armed    time.Duration
	isArmed  bool
	shutdown bool
	idleDone bool
	swept    time.Duration
	waits    []time.Duration
	moved    bool // what is in flight may have changed
}

// event is one thing for the goroutine to do.
type event struct {
	ev     picker.Event
	ticket *ticket       // Arrive
	ack    chan struct{} // closed when done, if not nil
	look   func()        // in place of an event: reads the machine
}

// ticket is one waiting or running request.
type ticket struct {
	extproc.Submission
	decided  chan verdict  // one value
	evicted  chan struct{} // nil: never
	running  bool
	endpoint picker.Endpoint // while running
	tokens   int64           // of the prompt, accounted until the response begins
}

func (t *ticket) labels() Labels {
	r := &t.Request
	return Labels{Model: t.Incoming, Target: r.Model, FairnessID: r.FairnessID, Priority: r.Priority}
}

type verdict struct {
	placement Placement
	outcome   wire.Outcome
}

var _ extproc.Admission = (*Driver)(nil)

// NewDriver starts a driver; Close ends it.
func NewDriver(m picker.Machine, cfg DriverConfig) *Driver {
	if cfg.Clock == nil {
		cfg.Clock = clock.NewReal()
	}
	d := &Driver{
		cfg: cfg, machine: m, events: make(chan event, eventBuffer), stop: make(chan struct{}), done: make(chan struct{}),
		idle: make(chan struct{}), live: map[uint64]*ticket{},
	}
	d.objectives.Store(&map[string]int{})
	d.pool.init()
	go d.run()
	return d
}

// Submit implements extproc.Admission.
func (d *Driver) Submit(ctx context.Context, s extproc.Submission) (Placement, wire.Outcome) {
	t := &ticket{Submission: s, decided: make(chan verdict, 1)}
	if !d.cfg.NeverEvicts {
		t.evicted = make(chan struct{})
	}
	id := d.nextID.Add(1)
	if isClosed(d.stop) {
		return Placement{}, wire.RejectedOther
	}
	select {
	case d.events <- event{ev: picker.Event{Kind: picker.Arrive, ID: id, Request: s.Request}, ticket: t}:
	case <-ctx.Done():
		return Placement{}, wire.EvictedContextCancelled
	case <-d.stop:
		return Placement{}, wire.RejectedOther
	}
	select {
	case v := <-t.decided:
		return v.placement, v.outcome
	case <-d.done:
		return d.late(t)
	case <-ctx.Done():
		d.post(event{ev: picker.Event{Kind: picker.Cancel, ID: id}})
	}
	select {
	case v := <-t.decided:
		return v.placement, v.outcome
	case <-d.done:
		return d.late(t)
	}
}

// late takes the decision that the goroutine may have left before it ended.
func (d *Driver) late(t *ticket) (Placement, wire.Outcome) {
	select {
	case v := <-t.decided:
		return v.placement, v.outcome
	default:
		return Placement{}, wire.EvictedOther
	}
}

// FirstChunk tells the machine that the first byte of a response passed.
func (d *Driver) FirstChunk(id uint64) {
	d.post(event{ev: picker.Event{Kind: picker.FirstChunk, ID: id}})
}

// Finish is FinishWith for a request of which nothing is known.
func (d *Driver) Finish(id uint64) { d.FinishWith(id, picker.Usage{}) }

// FinishWith tells the machine that a dispatched request's stream ended, and what it used.
func (d *Driver) FinishWith(id uint64, u picker.Usage) {
	d.post(event{ev: picker.Event{Kind: picker.Finish, ID: id, Usage: u}})
}

// Sample tells the machine the load of an endpoint.
func (d *Driver) Sample(id picker.EndpointID, l picker.Load) {
	d.post(event{ev: picker.Event{Kind: picker.Sample, Endpoint: picker.Endpoint{ID: id}, Load: l}})
}

// SetEndpoints makes the pool exactly these; it returns after the machine knows. The ids in the argument are ignored: the result
// carries the driver's own, which stay with an address for the driver's life.
func (d *Driver) SetEndpoints(list []picker.Endpoint) []picker.Endpoint {
	d.pool.change.Lock() // one change at a time, so that the machine sees them in the order of the table
	defer d.pool.change.Unlock()
	set, removed, pool := d.pool.update(list)
	for _, e := range set {
		d.post(event{ev: picker.Event{Kind: picker.SetEndpoint, Endpoint: e}})
	}
	for _, e := range removed {
		d.post(event{ev: picker.Event{Kind: picker.RemoveEndpoint, Endpoint: e}})
	}
	if d.cfg.Metrics != nil {
		d.cfg.Metrics.Endpoints(pool)
	}
	d.await(picker.Event{Kind: picker.Tick})
	return pool
}

// Endpoints is the pool as last set.
func (d *Driver) Endpoints() []picker.Endpoint { return d.pool.list() }

// SetObjectives replaces the accepted objectives and provisions their bands; it returns after the machine knows.
func (d *Driver) SetObjectives(m map[string]int) {
	own := make(map[string]int, len(m))
	for name, p := range m {
		own[name] = p
	}
	d.objectives.Store(&own)
	d.await(picker.Event{Kind: picker.SetPriorities, Priorities: distinct(own)})
}

// Priority implements extproc.Admission.
func (d *Driver) Priority(objective string) int { return (*d.objectives.Load())[objective] }

// Any implements extproc.Admission; the endpoints take turns.
func (d *Driver) Any() (picker.Endpoint, bool) {
	list := d.pool.list()
	if len(list) == 0 {
		return picker.Endpoint{}, false
	}
	return list[d.turn.Add(1)%uint64(len(list))], true
}

// Shutdown evicts what is queued and refuses what comes; it returns after the decisions. Requests in flight go on.
func (d *Driver) Shutdown() { d.await(picker.Event{Kind: picker.Shutdown}) }

// Idle is closed once Shutdown was called and nothing is in flight.
func (d *Driver) Idle() <-chan struct{} { return d.idle }

// Close ends the goroutine; what still waits ends with wire.EvictedOther.
func (d *Driver) Close() {
	d.once.Do(func() { close(d.stop) })
	<-d.done
}

func (d *Driver) post(e event) {
	select {
	case d.events <- e:
	case <-d.done:
	}
}

func (d *Driver) await(ev picker.Event) {
	ack := make(chan struct{})
	d.post(event{ev: ev, ack: ack})
	select {
	case <-ack:
	case <-d.done:
	}
}

// run is the goroutine that owns the machine.
func (d *Driver) run() {
	defer close(d.done)
	for {
		var fired <-chan time.Time
		if d.isArmed {
			fired = d.timer.C
		}
		select {
		case e := <-d.events:
			d.handle(e)
			for n := len(d.events); n > 0; n-- { // what has come meanwhile needs no further wake-up
				d.handle(<-d.events)
			}
		case <-fired:
			d.isArmed = false
			d.handle(event{ev: picker.Event{Kind: picker.Tick}})
		case <-d.stop:
			d.disarm()
			return
		}
		d.publish()
		d.arm()
	}
}

// arm keeps the timer at or before the machine's deadline. A timer that is too early stays: an extra tick is harmless.
func (d *Driver) arm() {
	at, ok := d.machine.Deadline()
	if !ok || (d.isArmed && d.armed <= at) {
		return
	}
	d.disarm()
	d.timer, d.armed, d.isArmed = d.cfg.Clock.Timer(max(0, at-d.cfg.Clock.Now())), at, true
}

func (d *Driver) disarm() {
	if d.isArmed {
		d.timer.Stop()
		d.isArmed = false
	}
}

func (d *Driver) publish() {
	if d.shutdown && len(d.live) == 0 && !d.idleDone {
		d.idleDone = true
		close(d.idle)
	}
	if d.moved && d.cfg.OnLoad != nil {
		d.cfg.OnLoad()
	}
	d.moved = false
	if d.cfg.Metrics == nil {
		return
	}
	m := d.cfg.Metrics
	m.Pressure(d.machine.Pressure())
	if d.cfg.Evictions != nil {
		m.Evictions(d.cfg.Evictions())
	}
	if d.cfg.Confirmations != nil {
		d.waits = d.cfg.Confirmations(d.waits[:0])
		m.Confirmed(d.waits)
	}
	if now := d.cfg.Clock.Now(); d.cfg.HasFlow != nil && now-d.swept >= sweepPeriod {
		d.swept = now
		m.Sweep(now, d.cfg.HasFlow)
	}
}

func (d *Driver) handle(e event) {
	if e.look != nil {
		e.look()
		close(e.ack)
		return
	}
	d.before(e)
	start := d.cfg.Clock.Now()
	d.outs = d.machine.Step(start, e.ev, d.outs[:0])
	d.moved = d.moved || len(d.outs) > 0 || e.ev.Kind == picker.Finish || e.ev.Kind == picker.FirstChunk
	if m := d.cfg.Metrics; m != nil {
		took := d.cfg.Clock.Now() - start
		m.CycleTook(took)
		if e.ticket != nil {
			m.EnqueueTook(e.ticket.labels(), took)
		}
		if len(d.outs) > 0 && d.outs[0].Kind == picker.Dispatch {
			m.ScheduleTook(took)
		}
	}
	for i := range d.outs {
		d.decide(start, &d.outs[i])
	}
	if e.ack != nil {
		close(e.ack)
	}
}

// before keeps the driver's own books of an event that the machine is about to see.
func (d *Driver) before(e event) {
	m := d.cfg.Metrics
	switch e.ev.Kind {
	case picker.Arrive:
		d.live[e.ev.ID] = e.ticket
		if m != nil {
			m.Enqueued(e.ticket.labels(), e.ticket.Request.Bytes)
		}
	case picker.FirstChunk:
		if t := d.live[e.ev.ID]; m != nil && t != nil && t.running {
			m.Prefilled(t.labels(), t.endpoint, t.tokens)
			t.tokens = 0
		}
	case picker.Finish:
		if t := d.live[e.ev.ID]; t != nil && t.running {
			delete(d.live, e.ev.ID)
			if m != nil {
				m.Released(t.labels(), t.endpoint, t.tokens)
				m.Finished(t.labels())
			}
		}
	case picker.Sample:
		if m != nil {
			m.Sample(e.ev.Endpoint.ID, e.ev.Load)
		}
	case picker.Shutdown:
		d.shutdown = true
	}
}

// decide wakes whoever waits for a decision. Decisions about unknown requests, and second ones, are dropped: a machine that errs
// must not be able to end a request twice.
func (d *Driver) decide(now time.Duration, o *picker.Out) {
	t := d.live[o.ID]
	if t == nil {
		return
	}
	endpoint, known := d.pool.get(o.Endpoint)
	switch o.Kind {
	case picker.Dispatch:
		if t.running {
			return
		}
		if !known { // no machine knows an endpoint that the table lacks; a caller must not wait for ever for one that errs
			delete(d.live, o.ID)
			t.decided <- verdict{outcome: wire.EvictedOther}
			return
		}
		t.running, t.endpoint, t.tokens = true, endpoint, t.Request.Tokens
		p := Placement{ID: o.ID, Endpoint: endpoint, Evicted: t.evicted}
		for _, id := range o.Fallbacks {
			if f, ok := d.pool.get(id); ok {
				p.Fallbacks = append(p.Fallbacks, f)
			}
		}
		t.decided <- verdict{p, wire.Dispatched}
	case picker.Reject:
		if t.running {
			return
		}
		endpoint = picker.Endpoint{}
		delete(d.live, o.ID)
		t.decided <- verdict{outcome: o.Outcome}
	case picker.Evict:
		if !t.running || t.evicted == nil || isClosed(t.evicted) {
			return
		}
		close(t.evicted)
	}
	d.record(now, t, o, endpoint)
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (d *Driver) record(now time.Duration, t *ticket, o *picker.Out, endpoint picker.Endpoint) {
	r := &t.Request
	if m := d.cfg.Metrics; m != nil && o.Kind != picker.Evict {
		l, outcome := t.labels(), o.Outcome
		if o.Kind == picker.Dispatch {
			outcome = wire.Dispatched
			m.Placed(l, endpoint, r.Tokens)
		}
		m.Decided(l, o.Band, r.Bytes, outcome, o.Waited)
		if o.Kind == picker.Reject {
			m.Unplaced(l, outcome, o.Waited, r.HasSubset)
			if d.cfg.Refuse != nil {
				m.Refused(l, d.cfg.Refuse(o.Outcome).Status)
			}
		}
	}
	if d.cfg.OnDecision != nil {
		d.cfg.OnDecision(Decision{
			At: now, ID: o.ID, Label: t.Label, Kind: o.Kind, Outcome: o.Outcome, Flow: r.FairnessID, Priority: r.Priority, Band: o.Band,
			Endpoint: endpoint.Name, Waited: o.Waited, Saturation: d.machine.Pressure().Effective,
		})
	}
}
