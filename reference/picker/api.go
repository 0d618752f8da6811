package picker

import (
	"time"

	"github.com/llm-weir/weir/harness/wire"
)

// Machine is the shape of the whole picker: time and one event in, decisions out. A caller that owns one goroutine (package epp)
// or one event heap (the virtual environment) drives it; wrappers that transform events or decisions have the same shape.
type Machine interface {
	// Step tells the machine that it is now (an offset since the run's epoch that never goes back) and what happened. Decisions
	// are appended to out. An extra Tick is harmless.
	Step(now time.Duration, ev Event, out []Out) []Out
	// Deadline is the next instant at which the machine wants a Tick; false if none.
	Deadline() (time.Duration, bool)
	// Pressure is the saturation as last evaluated at the gate.
	Pressure() Pressure
}

// EventKind says what happened.
type EventKind uint8

// The events.
const (
	Tick           EventKind = iota // time passed
	Arrive                          // a request is complete: headers, whole body, parsed (Event.ID, Event.Request)
	Cancel                          // the client left; queued: evicted, in flight: nothing until Finish
	FirstChunk                      // first byte of the response body passed (token accounting)
	Finish                          // the request's stream ended in whatever way: its resources are free
	SetEndpoint                     // an endpoint appeared or its labels changed (Event.Endpoint)
	RemoveEndpoint                  // an endpoint left (Event.Endpoint.ID)
	Sample                          // a metrics sample of an endpoint (Event.Endpoint.ID, Event.Load)
	SetPriorities                   // the priorities of all accepted objectives (Event.Priorities); bands are provisioned for them
	Shutdown                        // no request is taken any more, the queued ones are evicted
)

// Event is one input of the machine. Only the fields named beside its kind are read; slices and pointers are not kept.
type Event struct {
	Kind       EventKind
	ID         uint64 // the driver's own handle of a request, never reused in a run
	Request    Request
	Endpoint   Endpoint
	Load       Load
	Priorities []int
}

// Request is what the picker knows of a request. Control headers are resolved before (package extproc).
type Request struct {
	FairnessID  string        // never empty: wire.DefaultFlow where none was given
	Priority    int           // as resolved from the objective; the band may differ (band-0 fallback)
	Bytes       int64         // raw body bytes received
	Tokens      int64         // estimated prompt tokens: ceil(bytes/4) of the prompt text
	Received    time.Duration // when the headers were received (slo-deadline ordering)
	TTFT        time.Duration // SLO target; valid if HasTTFT
	HasTTFT     bool          // false for a missing, negative, unparsable or overflowing header
	Model       string        // model name, for scorers
	Subset      []string      // addresses the request is restricted to; nil and !HasSubset: all
	HasSubset   bool          // a subset hint was present, possibly empty
	PromptHead  []byte        // start of the prompt, for prefix scorers; not kept
	TTL         time.Duration // per-request wait limit; 0: the configured one
	Fingerprint uint64        // reserved for prefix scorers: hash of the prompt head
}

// EndpointID is an endpoint's index in the driver's own table; small, dense, never reused for another address in a run.
type EndpointID int

// Role says in which stage an endpoint counts (spec/endpoint-picker.md §4.3).
type Role uint8

// The roles. An endpoint without a role label counts as decode.
const (
	RoleDecode Role = iota
	RolePrefill
	RoleBoth
	RoleNone
)

// Endpoint is a model server of the pool.
type Endpoint struct {
	ID      EndpointID
	Name    string
	Address string // ip:port
	Role    Role
}

// Load is one metrics sample. Missing families are marked: they are never read as zero.
type Load struct {
	At         time.Duration // when the scrape began: whatever was dispatched later is not in it
	Waiting    float64
	Running    float64
	KV         float64 // 0..1
	HasWaiting bool
	HasKV      bool
	// KeepAlive is false for a failed scrape: the last values stay and grow stale.
	OK bool
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
	Endpoint  EndpointID
	Fallbacks []EndpointID // further endpoints, best first; nil as a rule
	Band      int          // priority of the band that held the request
	Waited    time.Duration
}

// Pressure is the saturation per stage. A stage without endpoints has Has* false.
type Pressure struct {
	Effective  float64 // what the gate compares with the ceiling, without projected load
	Prefill    float64
	Decode     float64
	HasPrefill bool
	HasDecode  bool
	Stale      int // endpoints whose metrics were missing or stale at the last evaluation
}
