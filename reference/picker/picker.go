// Package picker is a whole Endpoint Picker as one machine.
//
//	event ---> time passes ---> event applied ---> pass, pass, ... until one does nothing ---> decisions
//	             |                                   |
//	             expiry, eviction timeouts,          gate ---> flow control picks a request
//	             collection                                      ---> scheduling picks its endpoint
//	                                                               ---> in-flight accounting
//
// A pass moves at most one request and accounts it before the next pass looks at the gate. So the in-flight count is always that
// of the decisions taken, and with the concurrency detector nothing overshoots. There is no polling: only an event or a deadline
// can change what a pass would decide.
package picker

import (
	"errors"
	"time"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/scheduling"
)

// Picker is a Machine. One owner calls it; nothing in it is safe for concurrent use.
type Picker struct {
	flow  *flowcontrol.Controller
	sched *scheduling.Scheduler
	now   time.Duration
}

var _ Machine = (*Picker)(nil)

// New makes a picker with an empty pool and the configured bands.
func New(cfg Config) (*Picker, error) {
	flow, errFlow := flowcontrol.New(cfg.Flow)
	sched, errSched := scheduling.New(cfg.Scheduling, cfg.Flow)
	if err := errors.Join(errFlow, errSched); err != nil {
		return nil, err
	}
	flow.KeepPrefix(sched.PrefixBlocks())
	return &Picker{flow: flow, sched: sched}, nil
}

// Step implements Machine. Events about requests that are not alive are ignored, and so is an Arrive of one that is. A time before
// the last one is read as the last one.
func (p *Picker) Step(now time.Duration, ev Event, out []Out) []Out {
	now = max(now, p.now)
	p.now = now
	out = p.flow.Advance(now, out)
	switch ev.Kind {
	case Arrive:
		out = p.flow.Arrive(now, ev.ID, &ev.Request, out)
	case Cancel:
		out = p.flow.Cancel(now, ev.ID, out)
	case Finish:
		out = p.flow.Finish(now, ev.ID, ev.Usage, out)
	case SetEndpoint:
		p.flow.SetEndpoint(now, ev.Endpoint)
	case RemoveEndpoint:
		p.flow.RemoveEndpoint(now, ev.Endpoint.ID)
		p.sched.Forget(ev.Endpoint.ID)
	case Sample:
		p.flow.Sample(now, ev.Endpoint.ID, ev.Load)
	case Foreign:
		p.flow.Report(now, &ev.Report)
	case SetPriorities:
		p.flow.SetPriorities(now, ev.Priorities)
	case Shutdown:
		out = p.flow.Shutdown(now, out)
	case FirstChunk:
		p.flow.FirstChunk(ev.ID)
	case Tick:
	}
	for {
		var e *flowcontrol.Entry
		if e, out = p.flow.Next(now, out); e == nil {
			return out
		}
		out = p.place(now, e, out)
	}
}

// place sends a dispatched request to an endpoint. Flow control gated on the whole pool; whether the request may run on any
// endpoint of it is only asked now.
func (p *Picker) place(now time.Duration, e *flowcontrol.Entry, out []Out) []Out {
	at, outcome := p.sched.Pick(now, &e.Request, p.flow.Pool())
	if outcome != wire.Dispatched {
		return p.flow.Drop(now, e, outcome, out)
	}
	return p.flow.Start(now, e, at.Member, at.Prefill, at.Fallbacks, out)
}

// Deadline implements Machine.
func (p *Picker) Deadline() (time.Duration, bool) { return p.flow.Deadline(p.now) }

// Pressure implements Machine.
func (p *Picker) Pressure() Pressure { return p.flow.Pool().Pressure(p.now) }

// InFlight is the number of requests accounted on an endpoint, also on one that has left the pool; a split request counts on both of
// its endpoints until its first chunk.
func (p *Picker) InFlight(id EndpointID) int {
	if m := p.flow.Pool().Member(id); m != nil {
		return m.InFlight()
	}
	return 0
}

// InFlightTokens is the accounted work of these requests, in tokens.
func (p *Picker) InFlightTokens(id EndpointID) int64 {
	if m := p.flow.Pool().Member(id); m != nil {
		return m.InFlightTokens()
	}
	return 0
}

// Off tells whether flow control is switched off, so that nothing is ever queued.
func (p *Picker) Off() bool { return p.flow.Off() }

// Evicts tells whether requests may be stopped in flight.
func (p *Picker) Evicts() bool { return p.flow.Evicts() }

// QueueLen is the number of waiting requests.
func (p *Picker) QueueLen() int { return p.flow.Queued() }

// Bands appends the provisioned bands to dst, highest first.
func (p *Picker) Bands(dst []BandState) []BandState { return p.flow.Bands(dst) }

// HasFlow tells whether the band of that priority keeps state of the flow; false once an idle flow was collected.
func (p *Picker) HasFlow(priority int, fairnessID string) bool {
	return p.flow.HasFlow(priority, fairnessID)
}

// Evictions appends the evictions issued per demand priority to dst and tells where in-flight eviction stands.
func (p *Picker) Evictions(dst []PriorityCount) ([]PriorityCount, EvictionState) {
	return p.flow.Evictions(dst)
}

// Confirmations appends to dst how long each evicted request's stream took to end, for those that ended since the last call.
func (p *Picker) Confirmations(dst []time.Duration) []time.Duration { return p.flow.Confirmations(dst) }
