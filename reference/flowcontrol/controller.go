// Package flowcontrol decides if and when a request is dispatched.
//
//	              Arrive                                   Next                        Start            Finish
//	request ---> capacity ---> band ---> flow ---> queue ---------> entry ---> (endpoint) ---> in flight -------> gone
//	                | full      by        by         |      one gate check                        |
//	                v           priority  tenant     | TTL, cancel, shutdown                      | reclaim: blocked demand stops
//	             Reject                              v                                            v sheddable work
//	                                               Reject                                       Evict
//
// The gate compares the pool's saturation with the ceiling of each band from the highest down; the first band at or over its
// ceiling ends the pass. The band's fairness policy then chooses the flow and its ordering policy the entry. The package is a
// machine without clock: time comes in with every call and never goes back.
package flowcontrol

import (
	"cmp"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/wire"
)

// Controller is the state of flow control. One owner calls it; nothing in it is safe for concurrent use.
type Controller struct {
	cfg         Config
	pool        Pool
	bands       []*band // highest priority first
	zero        *band
	live        map[uint64]*Entry
	free        *Entry
	arrived     uint64 // sequence number of the last arrival
	started     uint64 // sequence number of the last dispatch
	requests    int64  // queued
	bytes       int64  // queued
	inFlight    int
	waits       waits
	evictor     evictor
	blocks      int // of a request's prefix that are kept
	alternation alternation
	down        bool
}

// New makes a controller with an empty pool.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Controller{cfg: cfg, pool: newPool(cfg.Detector, cfg.Stages), live: make(map[uint64]*Entry)}
	c.waits.budget = cfg.NoEndpointTTL
	c.evictor.on, c.evictor.grace = cfg.Eviction, graceUtilization
	if cfg.Detector.Kind == Concurrency {
		c.evictor.grace = graceConcurrency
	}
	for _, b := range cfg.Bands {
		c.provision(b, true)
	}
	if c.zero = c.find(0); c.zero == nil {
		b := cfg.DefaultBand
		b.Priority = 0
		c.zero = c.provision(b, true)
	}
	return c, nil
}

// Pool is what the controller knows of the endpoints; read only.
func (c *Controller) Pool() *Pool { return &c.pool }

// KeepPrefix says how many blocks of a request's prefix are kept while it waits, for the prefix scorer; none unless said.
func (c *Controller) KeepPrefix(blocks int) { c.blocks = blocks }

// Off tells whether flow control is switched off (Config.Off).
func (c *Controller) Off() bool { return c.cfg.Off }

// Evicts tells whether requests may be stopped in flight (Config.Eviction).
func (c *Controller) Evicts() bool { return c.evictor.on }

// Queued is the number of waiting requests.
func (c *Controller) Queued() int { return int(c.requests) }

// Advance does what the passing of time alone demands: waits that are over end, in the order in which they ended, victims that do
// not stop are given up, idle state is collected. It comes first in every step, so that a request is never dispatched in the
// instant in which it expires (FC-TTL-05).
func (c *Controller) Advance(now time.Duration, out []Out) []Out {
	for {
		e, at := c.waits.next()
		if e == nil || at > now {
			break
		}
		out = c.end(now, e, c.expired(), out)
	}
	c.pool.forget(now)
	c.evictor.giveUp(now)
	if at, ok := c.nextCollection(); ok && at <= now {
		c.collect(now)
	}
	return out
}

// Arrive queues a request or refuses it. An id that is alive is ignored.
func (c *Controller) Arrive(now time.Duration, id uint64, r *Request, out []Out) []Out {
	if c.live[id] != nil {
		return out
	}
	b := c.route(r.Priority)
	bytes := max(r.Bytes, 0)
	switch {
	case c.down:
		return append(out, Out{Kind: Reject, ID: id, Outcome: wire.RejectedOther, Band: b.cfg.Priority})
	case c.cfg.Off:
		if r.Priority < 0 && c.pool.saturation(now) >= c.cfg.ShedAt {
			return append(out, Out{Kind: Reject, ID: id, Outcome: wire.RejectedCapacity, Band: b.cfg.Priority})
		}
	case !c.fits(b, bytes):
		return append(out, Out{Kind: Reject, ID: id, Outcome: c.refusal(), Band: b.cfg.Priority})
	}
	e := c.take(id, r)
	e.Request.Bytes = bytes
	if e.Request.FairnessID == "" {
		e.Request.FairnessID = wire.DefaultFlow
	}
	c.arrived++
	e.seq, e.entered, e.band = c.arrived, now, b
	e.flow = b.hold(e.Request.FairnessID, now)
	e.key = rank(b.cfg.Ordering, e, c.cfg.TTL)
	c.count(e, +1)
	b.add(e)
	c.waits.push(e)
	return out
}

// dequeue takes a queued entry out of everything a queued entry is in, except the lease.
func (c *Controller) dequeue(e *Entry, turn bool) {
	e.band.drop(e, turn)
	c.waits.remove(e)
	c.count(e, -1)
}

// Next is one pass: one gate check that gives out at most one entry, to be passed to Start or Drop before the next pass. The gate
// is tested before looking whether a band has work, so an idle band with a low ceiling holds back everything beneath it. A pass
// that ends at the gate may evict.
func (c *Controller) Next(now time.Duration, out []Out) (*Entry, []Out) {
	c.alternation.held = false
	if c.requests == 0 {
		return nil, out
	}
	saturation := c.pool.saturation(now)
	if c.cfg.Ceiling.Kind == SoftReflective {
		c.reflect(saturation)
	}
	for i, b := range c.bands {
		if saturation >= b.ceiling && !c.cfg.Off {
			c.holdBack(now, saturation)
			if c.evictor.on {
				out = c.reclaim(now, i, saturation, out)
			}
			return nil, out
		}
		if b.requests == 0 {
			continue
		}
		e := b.head()
		if c.evictor.on {
			c.spend(i)
		}
		c.dequeue(e, true)
		return e, out
	}
	return nil, out
}

// Start accounts an entry that Next gave out as in flight on an endpoint, and on another one until its first chunk if that one fills
// the cache; prefill is nil otherwise.
func (c *Controller) Start(now time.Duration, e *Entry, m, prefill *Member, fallbacks []EndpointID, out []Out) []Out {
	c.started++
	e.seq, e.started = c.started, now
	c.inFlight++
	c.pool.start(e, m, prefill)
	c.evictor.track(e, c.pool.frees(e))
	o := Out{
		Kind: Dispatch, ID: e.ID, Outcome: wire.Dispatched, Endpoint: m.ID, Fallbacks: fallbacks,
		Band: e.Priority(), Waited: e.Waited(now),
	}
	if prefill != nil {
		o.Prefill, o.Split = prefill.ID, true
	}
	return append(out, o)
}

// FirstChunk frees what a request in flight no longer needs once its response has begun (FC-SAT-18, FC-PD-07).
func (c *Controller) FirstChunk(id uint64) {
	if e := c.live[id]; e != nil && e.member != nil {
		c.pool.firstChunk(e)
		c.evictor.settle(e, c.pool.frees(e))
	}
}

// Cancel ends a queued request whose client has left; its place is free at once. In flight it means nothing: resources are
// freed by Finish.
func (c *Controller) Cancel(now time.Duration, id uint64, out []Out) []Out {
	if e := c.live[id]; e != nil && e.member == nil {
		return c.end(now, e, wire.EvictedContextCancelled, out)
	}
	return out
}

// Finish frees what a dispatched request holds and books what it has consumed. A request whose stream ends while it is queued has
// lost its client.
func (c *Controller) Finish(now time.Duration, id uint64, u Usage, out []Out) []Out {
	e := c.live[id]
	if e == nil || e.member == nil {
		return c.Cancel(now, id, out)
	}
	c.inFlight--
	c.pool.stop(e)
	c.evictor.ended(now, e)
	if e.band.cfg.Fairness == ProgramAware {
		e.band.serve(now, e.flow, u)
	}
	e.band.unhold(e.flow, now)
	c.release(e)
	return out
}

// SetEndpoint adds an endpoint to the pool or changes what is known of it.
func (c *Controller) SetEndpoint(now time.Duration, ep Endpoint) {
	empty := len(c.pool.members) == 0
	if c.pool.set(ep) {
		c.evictor.sort(&c.pool)
	}
	if empty && len(c.pool.members) > 0 {
		c.waits.enter(now, c.cfg.TTL)
	}
}

// RemoveEndpoint takes an endpoint out of the pool. Its requests stay in flight until Finish.
func (c *Controller) RemoveEndpoint(now time.Duration, id EndpointID) {
	empty := len(c.pool.members) == 0
	if c.pool.remove(id) {
		c.evictor.sort(&c.pool)
	}
	if !empty && len(c.pool.members) == 0 {
		c.waits.enter(now, c.cfg.NoEndpointTTL)
	}
}

// Sample takes a metrics sample of an endpoint.
func (c *Controller) Sample(now time.Duration, id EndpointID, l Load) { c.pool.sample(now, id, l) }

// Report takes what another replica of the picker has in flight.
func (c *Controller) Report(now time.Duration, r *Report) { c.pool.report(now, r) }

// Shutdown evicts everything queued, in order of arrival, and refuses whatever arrives from then on; work in flight goes on
// (FC-SHUT-01, FC-SHUT-03).
func (c *Controller) Shutdown(now time.Duration, out []Out) []Out {
	c.down = true
	waiting := slices.Clone(c.waits.own)
	for e := c.waits.common.head; e != nil; e = e.links[waitSlot].next {
		waiting = append(waiting, e)
	}
	slices.SortFunc(waiting, func(a, b *Entry) int { return cmp.Compare(a.seq, b.seq) })
	for _, e := range waiting {
		out = c.end(now, e, wire.EvictedOther, out)
	}
	return out
}

// Deadline is the next instant at which something happens without an event: a wait or an eviction runs out, a sample on which
// queued work depends turns stale, work is held back by an alternating ceiling only, a report of another replica is forgotten, idle state
// is due for collection.
func (c *Controller) Deadline(now time.Duration) (at time.Duration, ok bool) {
	sooner := func(t time.Duration, due bool) {
		if due && (!ok || t < at) {
			at, ok = t, true
		}
	}
	e, t := c.waits.next()
	sooner(t, e != nil)
	if c.requests > 0 {
		c.pool.saturation(now)
		sooner(c.pool.gate.until, c.pool.gate.timed)
		sooner(c.alternation.again, c.alternation.held)
	}
	sooner(c.evictor.next(now, c.requests > 0))
	sooner(c.pool.nextForgotten())
	sooner(c.nextCollection())
	return at, ok
}
