package engine

import (
	"fmt"
	"time"
)

// EventKind is what happens to the engine.
type EventKind uint8

// The events. Tick only lets time pass.
const (
	Tick EventKind = iota
	Admit
	Abort
)

// Event is one input. ID names the request of Admit and Abort; the rest belongs to Admit.
type Event struct {
	Kind EventKind
	ID   uint64
	// PromptTokens is the prompt, 1..MaxModelLen-1.
	PromptTokens int
	// OutputTokens is the true length: where the model itself would stop. 0: it never does.
	OutputTokens int
	// MaxTokens is the client's limit. 0: up to MaxModelLen.
	MaxTokens int
}

// OutKind is what the engine reports.
type OutKind uint8

// The reports. Every admitted request gets exactly one of Finished, Aborted and Refused, as its last.
const (
	FirstToken OutKind = iota // the first output token exists
	Token                     // a further output token exists
	Finished                  // stopped by itself or by a limit, see Reason
	Preempted                 // lost its blocks and waits to be recomputed; its tokens stay delivered
	Aborted                   // gone after an Abort event
	Refused                   // the Admit event was not admissible: prompt out of range or ID in use
)

var outNames = [...]string{"first-token", "token", "finished", "preempted", "aborted", "refused"}

func (k OutKind) String() string {
	if int(k) < len(outNames) {
		return outNames[k]
	}
	return fmt.Sprintf("OutKind(%d)", uint8(k))
}

// Reason is why a request finished, in the words of the finished_reason label.
type Reason uint8

// The reasons. NoReason is the zero value of reports other than Finished.
const (
	NoReason Reason = iota
	Stop
	Length
)

var reasonNames = [...]string{"", "stop", "length"}

func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Out is one report.
type Out struct {
	Kind   OutKind
	Reason Reason // of Finished
	ID     uint64
	Tokens int           // output tokens that exist by now
	At     time.Duration // end of the step that did it; for Preempted the start of the step that could not serve it
	// Scheduled is when the request first took part in a step (FirstToken only): queue time is Scheduled minus arrival.
	Scheduled time.Duration
}

// Stats is a consistent picture of the engine.
type Stats struct {
	Running int     // requests in the running list
	Waiting int     // requests in the queue, preempted ones included
	KVUsage float64 // 0..1: 1 - free/(NumBlocks-1)

	FreeBlocks       int
	Submitted        uint64 // admitted requests, refused ones not included
	Refused          uint64
	Preemptions      uint64
	PromptTokens     uint64 // prompt tokens whose prefill is complete, counted once per request
	GenerationTokens uint64
	DiscardedTokens  uint64 // computed tokens thrown away by preemption
	FinishedStop     uint64
	FinishedLength   uint64
	FinishedAbort    uint64
	Steps            uint64 // completed steps
	LastBatch        Batch  // of the step started last
}
