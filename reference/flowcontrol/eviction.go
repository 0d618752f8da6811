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
type evictor struct {
	on          bool
	grace       time.Duration
	victims     heap // stoppable: in flight, requested priority below 0, not yet told to stop
	batch       uint64
	outstanding int // victims of the batch whose streams have not ended
	decided     time.Duration
	coolUntil   time.Duration
	target      float64 // saturation the last decision wanted to free
	credit      float64 // saturation one victim is expected to free
	confirmed   int64
	timedOut    int64
	issued      []PriorityCount
}

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

// pending is the saturation that is already asked for.
func (v *evictor) pending() float64 { return v.credit * float64(v.outstanding) }

// track makes a dispatched entry stoppable if it is sheddable by its requested priority (FC-EVI-02).
func (v *evictor) track(e *Entry) {
	if v.on && e.Request.Priority < 0 {
		v.victims.push(e, victimSlot)
	}
}

// ended notes that the stream of an entry has ended in whatever way.
func (v *evictor) ended(now time.Duration, e *Entry) {
	if e.at[victimSlot] != 0 {
		v.victims.remove(e, victimSlot)
		return
	}
	if e.batch == 0 || e.batch != v.batch || v.outstanding == 0 {
		return // no victim, or one of a batch that was given up: its stream has ended at last
	}
	v.outstanding--
	v.confirmed++
	if v.outstanding == 0 {
		v.coolUntil = later(now, v.grace)
	}
}

// giveUp treats victims that did not end in time as confirmed.
func (v *evictor) giveUp(now time.Duration) {
	if v.outstanding > 0 && later(v.decided, confirmTimeout) <= now {
		v.timedOut += int64(v.outstanding)
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
	if v.outstanding > 0 || now < v.coolUntil || len(v.victims) == 0 {
		return out
	}
	b := c.demand(gated, saturation, v.victims.head())
	if b == nil {
		return out
	}
	// Each request in flight is taken to cause an equal part of the saturation. At the ceiling exactly, one victim is enough.
	credit := saturation / float64(c.inFlight)
	net := saturation - b.ceiling - v.pending()
	n := 1
	if net > credit {
		n = int(min(math.Ceil(net/credit), maxVictims))
	}
	// One waiting request never costs two running ones in one decision, whatever the saturation asks for (FC-EVI-09).
	n = int(min(int64(n), b.requests))
	v.batch++
	for range n {
		e := v.victims.head()
		if e == nil || e.Request.Priority >= b.cfg.Priority {
			break
		}
		v.victims.remove(e, victimSlot)
		e.batch = v.batch
		v.outstanding++
		v.count(b.cfg.Priority)
		out = append(out, Out{Kind: Evict, ID: e.ID, Outcome: wire.Dispatched, Endpoint: e.member.ID, Band: e.Priority()})
	}
	v.decided, v.credit, v.target = now, credit, max(net, 0)
	return out
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
