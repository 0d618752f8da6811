package flowcontrol

import (
	"math"
	"time"

	"github.com/llm-weir/weir/harness/wire"
)

// How in-flight eviction is paced (spec/endpoint-picker.md §6).
const (
	maxVictims       = 2                       // per decision
	confirmTimeout   = 10 * time.Second        // after which a victim whose stream did not end is given up (FC-EVI-16)
	graceConcurrency = 10 * time.Millisecond   // accounting sees the freed place at once
	graceUtilization = 2300 * time.Millisecond // the freed place must show in the servers' metrics first
)

// evictor stops negative-priority work in flight for blocked demand of higher priority (FC-EVI-01).
//
//	gate closed --decide--> victims told --all streams ended, or 10 s--> grace --> next decision
//
// Stop and wait: a decision is only taken on a state in which the last one has taken effect, since a freed place that does not show
// yet would be asked for a second time.
//
// Nobody pays twice. A waiting request for which a victim was stopped is paid for (band.paid) and costs no further one, whatever the
// metrics go on saying: k blocked requests cost at most k victims (FC-EVI-09). It becomes unpaid again only if other demand took the
// freed place, or if the victim did not end in time. Where one victim is not enough to open the gate, because the ceiling lies far
// below or the engine's own queue fills the place, paid demand waits like any other.
//
// Nothing is stopped in vain. Sheddable work that would free nothing is set aside (parked): on an endpoint that has left the pool, or
// without tokens where tokens are counted. A pool that is saturated for want of endpoints or metrics only is no reason to stop work.
type evictor struct {
	on          bool
	grace       time.Duration
	victims     heap // stoppable: in flight, requested priority below 0, not yet told to stop
	parked      heap // the same, but stopping them would free nothing
	batch       uint64
	outstanding int   // victims of the batch whose streams have not ended
	demand      *band // for which the batch is stopped
	decided     time.Duration
	coolUntil   time.Duration
	target      float64 // saturation the last decision wanted to free
	credit      float64 // saturation one victim is expected to free
	confirmed   int64
	timedOut    int64
	issued      []PriorityCount
	took        [maxConfirmations]time.Duration // decision to end of stream, not asked for yet
	takes       int
}

// maxConfirmations bounds the confirmation times that wait to be asked for; further ones are lost to the histogram, not to the counts.
const maxConfirmations = 64

// PriorityCount counts evictions by the priority of the demand they were made for.
type PriorityCount struct {
	Priority int
	Count    int64
}

// EvictionState is what a driver shows of in-flight eviction.
type EvictionState struct {
	Confirmed   int64   // victims whose streams ended
	TimedOut    int64   // victims given up; issued = confirmed + timed out + outstanding
	Outstanding int     // victims told to stop
	Target      float64 // saturation the last decision wanted to free
	Pending     float64 // saturation the outstanding victims are expected to free
}

// Evictions appends the evictions issued per demand priority to dst, in order of first use, and tells where eviction stands.
func (c *Controller) Evictions(dst []PriorityCount) ([]PriorityCount, EvictionState) {
	v := &c.evictor
	return append(dst, v.issued...), EvictionState{
		Confirmed: v.confirmed, TimedOut: v.timedOut, Outstanding: v.outstanding,
		Target: v.target, Pending: v.pending(),
	}
}

// Confirmations appends to dst how long each victim's stream took to end after it was told to stop, for victims confirmed since the
// last call and in that order, and forgets them (revocation_confirmation_seconds, FC-MET-09). Victims given up are not among them.
func (c *Controller) Confirmations(dst []time.Duration) []time.Duration {
	v := &c.evictor
	dst = append(dst, v.took[:v.takes]...)
	v.takes = 0
	return dst
}

// pending is the saturation that is already asked for.
func (v *evictor) pending() float64 { return v.credit * float64(v.outstanding) }

// track makes a dispatched entry stoppable if it is sheddable by its requested priority (FC-EVI-02).
func (v *evictor) track(e *Entry, frees bool) {
	if v.on && e.Request.Priority < 0 {
		e.parked = !frees
		v.of(e).push(e, victimSlot)
	}
}

// of is the heap an entry belongs in.
func (v *evictor) of(e *Entry) *heap {
	if e.parked {
		return &v.parked
	}
	return &v.victims
}

// settle notes whether stopping a tracked entry would free something.
func (v *evictor) settle(e *Entry, frees bool) {
	if e.at[victimSlot] == 0 || e.parked == !frees {
		return
	}
	v.of(e).remove(e, victimSlot)
	e.parked = !frees
	v.of(e).push(e, victimSlot)
}

// sort settles all tracked entries after an endpoint came or left.
func (v *evictor) sort(p *Pool) {
	all := append(v.victims, v.parked...)
	v.victims, v.parked = nil, nil
	for _, e := range all {
		e.parked = !p.frees(e)
		*v.of(e) = append(*v.of(e), e)
	}
	v.victims.init(victimSlot)
	v.parked.init(victimSlot)
}

// ended notes that the stream of an entry has ended in whatever way.
func (v *evictor) ended(now time.Duration, e *Entry) {
	if e.at[victimSlot] != 0 {
		v.of(e).remove(e, victimSlot)
		return
	}
	if e.batch == 0 || e.batch != v.batch || v.outstanding == 0 {
		return // no victim, or one of a batch that was given up: its stream has ended at last
	}
	v.outstanding--
	v.confirmed++
	if v.takes < maxConfirmations {
		v.took[v.takes] = now - v.decided
		v.takes++
	}
	if v.outstanding == 0 {
		v.coolUntil = later(now, v.grace)
	}
}

// giveUp stops waiting for victims that did not end in time (FC-EVI-16). They have freed nothing, so what they were to make room for
// may ask again.
func (v *evictor) giveUp(now time.Duration) {
	if v.outstanding > 0 && later(v.decided, confirmTimeout) <= now {
		v.timedOut += int64(v.outstanding)
		v.demand.paid = max(v.demand.paid-int64(v.outstanding), 0)
		v.outstanding = 0
		v.coolUntil = later(now, v.grace)
	}
}

// next is when the evictor has something to do by the mere passing of time.
func (v *evictor) next(now time.Duration, queued bool) (time.Duration, bool) {
	switch {
	case v.outstanding > 0:
		return later(v.decided, confirmTimeout), true
	case queued && len(v.victims) > 0 && v.coolUntil > now:
		return v.coolUntil, true
	}
	return 0, false
}

// demand is the band for which work may be stopped when a pass ended at bands[gated]: the first from there down that has queued
// work and is blocked itself, as long as it is above the victim (FC-EVI-03). A ceiling of 0 is a closed band, not blocked demand.
func (c *Controller) demand(gated int, saturation float64, victim *Entry) *band {
	for _, b := range c.bands[gated:] {
		switch {
		case b.cfg.Priority <= victim.Request.Priority:
			return nil
		case b.ceiling <= 0 || saturation < b.ceiling:
			continue
		case b.requests > 0:
			return b
		}
	}
	return nil
}

// reclaim takes one eviction decision after a pass that ended at bands[gated].
func (c *Controller) reclaim(now time.Duration, gated int, saturation float64, out []Out) []Out {
	v := &c.evictor
	if v.outstanding > 0 || now < v.coolUntil || len(v.victims) == 0 || !c.pool.gate.informed {
		return out
	}
	b := c.demand(gated, saturation, v.victims.head())
	if b == nil || b.paid >= b.requests {
		return out
	}
	// Each request in flight, whoever dispatched it, is taken to cause an equal part of the saturation. At the ceiling exactly, one victim is enough.
	credit := saturation / float64(c.inFlight+c.pool.foreign.requests)
	net := saturation - b.ceiling - v.pending()
	n := 1
	if net > credit {
		n = int(min(math.Ceil(net/credit), maxVictims))
	}
	n = int(min(int64(n), b.requests-b.paid))
	v.batch++
	for range n {
		e := v.victims.head()
		if e == nil || e.Request.Priority >= b.cfg.Priority {
			break
		}
		v.victims.remove(e, victimSlot)
		e.batch = v.batch
		v.outstanding++
		b.paid++
		v.count(b.cfg.Priority)
		out = append(out, Out{Kind: Evict, ID: e.ID, Outcome: wire.Dispatched, Endpoint: e.member.ID, Band: e.Priority()})
	}
	v.demand, v.decided, v.credit, v.target = b, now, credit, max(net, 0)
	return out
}

// spend books the place that a request of bands[i] takes: if work was stopped for its band, that is the place it was stopped for; if
// for a lower one, that band's request has lost it and may ask again.
func (c *Controller) spend(i int) {
	for _, b := range c.bands[i:] {
		if b.paid > 0 {
			b.paid--
			return
		}
	}
}

func (v *evictor) count(priority int) {
	for i := range v.issued {
		if v.issued[i].Priority == priority {
			v.issued[i].Count++
			return
		}
	}
	v.issued = append(v.issued, PriorityCount{priority, 1})
}
