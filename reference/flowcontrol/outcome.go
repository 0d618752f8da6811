package flowcontrol

import (
	"time"

	"github.com/llm-weir/weir/harness/wire"
)

// refusal is the outcome of a request that finds no room (FC-REF-02, FC-REF-05).
func (c *Controller) refusal() wire.Outcome {
	if c.cfg.EmptyPoolOutcomes && len(c.pool.members) == 0 {
		return wire.RejectedNoEndpoints
	}
	return wire.RejectedCapacity
}

// expired is the outcome of a request that has waited too long (FC-REF-03, FC-REF-04).
func (c *Controller) expired() wire.Outcome {
	if c.cfg.EmptyPoolOutcomes && len(c.pool.members) == 0 {
		return wire.EvictedNoEndpoints
	}
	return wire.EvictedTTL
}

// end takes a queued entry out for good and reports why.
func (c *Controller) end(now time.Duration, e *Entry, o wire.Outcome, out []Out) []Out {
	c.dequeue(e, false)
	return c.Drop(now, e, o, out)
}

// Drop ends an entry that Next gave out and that could not be placed.
func (c *Controller) Drop(now time.Duration, e *Entry, o wire.Outcome, out []Out) []Out {
	out = append(out, Out{Kind: Reject, ID: e.ID, Outcome: o, Band: e.Priority(), Waited: e.Waited(now)})
	e.band.unhold(e.flow, now)
	c.release(e)
	return out
}
