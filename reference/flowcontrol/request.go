package flowcontrol

import (
	"time"

	"github.com/llm-weir/weir/harness/wire"
)

// Request is what flow control and scheduling know of a request. Control headers are resolved before (package extproc).
type Request struct {
	FairnessID string        // never empty: wire.DefaultFlow where none was given
	Priority   int           // as resolved from the objective; the band may differ (band-0 fallback)
	Bytes      int64         // raw body bytes received
	Tokens     int64         // estimated prompt tokens: ceil(bytes/4) of the prompt text
	Received   time.Duration // when the headers were received (slo-deadline ordering)
	TTFT       time.Duration // SLO target; valid if HasTTFT
	HasTTFT    bool          // false for a missing, negative, unparsable or overflowing header
	MaxOutput  int64         // the client's own limit of output tokens; 0: none
	Model      string        // model name, for scorers
	Subset     []string      // addresses the request is restricted to; nil and !HasSubset: all
	HasSubset  bool          // a subset hint was present, possibly empty
	Prefix     []uint64      // hash chain over the prompt's blocks, for the prefix scorer; only the start of it is kept (KeepPrefix)
	TTL        time.Duration // per-request wait limit; 0: the configured one
}

// Entry is one live request: queued until it has a Member, in flight from then on. The machine that owns the controller reads it,
// only the controller writes it, and it is reused for another request after the terminal decision or Finish.
type Entry struct {
	// What its neighbours in lists and heaps touch stands together.
	links   [slots]link
	at      [slots]int32  // position in a heap plus one; 0: in none
	key     int64         // rank under the band's ordering, smaller first
	seq     uint64        // order of arrival while queued, order of dispatch in flight: breaks every tie
	expires time.Duration // wait limit; kept only for entries with a limit of their own

	ID      uint64
	band    *band
	flow    *flow
	member  *Member       // endpoint it runs on; nil while queued
	prefill *Member       // endpoint that fills its cache, until the first chunk; nil if it is the same one
	tokens  int64         // accounted on member
	filling int64         // tokens accounted on prefill
	parked  bool          // in the evictor's heap of entries that would free nothing
	entered time.Duration // entry into the queue
	started time.Duration // dispatch
	batch   uint64        // reclamation that stops it; 0: none
	next    *Entry        // next free entry
	Request Request
}

// Waited is the time the entry has spent in the queue so far.
func (e *Entry) Waited(now time.Duration) time.Duration { return now - e.entered }

// Priority is that of the band that holds the entry, which may differ from the requested one.
func (e *Entry) Priority() int { return e.band.cfg.Priority }

// Slots name the structures an entry can be in at one time, each being a list or a heap.
const (
	turnSlot   = iota // queued: in its flow's or band's queue, by ordering
	waitSlot          // queued: in the wait limits, by expiry
	loadSlot          // list: in flight on a member and in none of its samples yet (at is 1 while it is)
	victimSlot        // heap: in flight and sheddable
	slots

	// prefillSlot is like loadSlot, for the prefill endpoint; it takes a place that an entry in flight no longer needs.
	prefillSlot = turnSlot
)

// Usage is what a finished request has consumed, as far as its response said; zero if it did not.
type Usage struct {
	Prompt     int64
	Completion int64
}

// OutKind says what was decided.
type OutKind uint8

// The decisions.
const (
	Dispatch OutKind = iota + 1 // Out.Endpoint was chosen and the request is accounted as in flight
	Reject                      // the request ends with Out.Outcome and never reaches an endpoint
	Evict                       // a dispatched request is to be stopped; its resources stay counted until Finish
)

// Out is one decision.
type Out struct {
	Kind      OutKind
	ID        uint64
	Outcome   wire.Outcome
	Endpoint  EndpointID   // Dispatch and Evict
	Fallbacks []EndpointID // further endpoints, best first; nil as a rule
	Prefill   EndpointID   // Dispatch: the endpoint that fills the cache first; valid if Split
	Split     bool         // prefill and decode run on endpoints of their own
	Band      int          // priority of the band that held the request
	Waited    time.Duration
}

// take gives a cleared entry that holds a copy of r. Of r's slices nothing is kept but the strings of the subset.
func (c *Controller) take(id uint64, r *Request) *Entry {
	e := c.free
	if e == nil {
		// A chunk at a time: entries are reused for ever, so their number is the largest number of live requests.
		chunk := make([]Entry, 64)
		for i := range chunk {
			chunk[i].next = c.free
			c.free = &chunk[i]
		}
		e = c.free
	}
	c.free = e.next
	subset := append(e.Request.Subset[:0], r.Subset...)
	prefix := append(e.Request.Prefix[:0], r.Prefix[:min(len(r.Prefix), c.blocks)]...)
	*e = Entry{ID: id, Request: *r}
	e.Request.Subset, e.Request.Prefix = subset, prefix
	c.live[id] = e
	return e
}

// release ends the life of an entry: whatever held it has let go of it before.
func (c *Controller) release(e *Entry) {
	delete(c.live, e.ID)
	e.flow, e.band, e.member, e.prefill = nil, nil, nil, nil
	e.next = c.free
	c.free = e
}
