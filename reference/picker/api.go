package picker

import (
	"time"

	"github.com/llm-weir/weir/reference/flowcontrol"
)

// Machine is the shape of the whole picker: time and one event in, decisions out. A caller that owns one goroutine (package epp)
// or one event heap (the virtual environment) drives it; wrappers that transform events or decisions have the same shape.
type Machine interface {
	// Step tells the machine that it is now (an offset since the run's epoch that never goes back) and what happened. Decisions
	// are appended to out. An extra Tick is harmless; under soft-reflective ceilings it is one more dispatch cycle, as in a router.
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
	FirstChunk                      // first byte of the response body passed: prefill is over (Event.ID); once or not at all
	Finish                          // the request's stream ended in whatever way: its resources are free
	SetEndpoint                     // an endpoint appeared or its labels changed (Event.Endpoint)
	RemoveEndpoint                  // an endpoint left (Event.Endpoint.ID)
	Sample                          // a metrics sample of an endpoint (Event.Endpoint.ID, Event.Load)
	SetPriorities                   // the priorities of all accepted objectives (Event.Priorities); bands are provisioned for them
	Foreign                         // another replica said what it has in flight (Event.Report)
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
	Usage      Usage // Finish
	Report     Report
}

// The vocabulary of flow control, which is that of the whole picker.
type (
	Request       = flowcontrol.Request
	Usage         = flowcontrol.Usage
	EndpointID    = flowcontrol.EndpointID
	Role          = flowcontrol.Role
	Endpoint      = flowcontrol.Endpoint
	Load          = flowcontrol.Load
	Report        = flowcontrol.Report
	ForeignLoad   = flowcontrol.ForeignLoad
	OutKind       = flowcontrol.OutKind
	Out           = flowcontrol.Out
	Pressure      = flowcontrol.Pressure
	BandState     = flowcontrol.BandState
	PriorityCount = flowcontrol.PriorityCount
	EvictionState = flowcontrol.EvictionState
)

// The roles. An endpoint without a role label counts as decode.
const (
	RoleDecode  = flowcontrol.RoleDecode
	RolePrefill = flowcontrol.RolePrefill
	RoleBoth    = flowcontrol.RoleBoth
	RoleNone    = flowcontrol.RoleNone
)

// The decisions.
const (
	Dispatch = flowcontrol.Dispatch // Out.Endpoint was chosen and the request is accounted as in flight
	Reject   = flowcontrol.Reject   // the request ends with Out.Outcome and never reaches an endpoint
	Evict    = flowcontrol.Evict    // a dispatched request is to be stopped; its resources stay counted until Finish
)
