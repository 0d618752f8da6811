package async

import "time"

// QueueKey is the driver's own handle of a queue; it is never reused, a changed queue is a new one. 0 is no queue.
type QueueKey int

// MessageID is the driver's own handle of one delivery of a message; it is never reused. It is not the id that the producer chose,
// which may repeat.
type MessageID uint64

// SourceID is an index into Config.Sources.
type SourceID int

// HoldID names one acquisition of one quota; it is never reused.
type HoldID uint64

// EventKind says what happened.
type EventKind uint8

// The events.
const (
	Tick        EventKind = iota // time passed
	AddSource                    // gates of queues to come read one more source (TTL); it gets the next index
	AddQueue                     // a queue is to be served (Queue, QueueConfig)
	RemoveQueue                  // a queue is no longer to be served (Queue); its messages in flight go on
	Wake                         // a queue probably has new messages, poll it now (Queue)
	Pulled                       // answer to Pull, or a delivery of a pushing queue (Queue, Messages, Failed)
	Backlog                      // answer to Probe (Queue, Count)
	Reading                      // answer to Read (Source, Status, Value)
	Acquired                     // answer to Acquire (ID, Hold, Quota)
	Response                     // an attempt ended (ID, Response)
	Cancel                       // a message's producer withdrew it (ID)
	Drain                        // pull nothing more, give back what is not in flight
	Abandon                      // the drain is over: give back what is in flight
)

// Event is one input of the machine. Only the fields named beside its kind are read.
type Event struct {
	Kind        EventKind
	Queue       QueueKey
	QueueConfig QueueConfig
	Messages    []Message // in the broker's order
	Failed      bool      // the broker could not be asked; nothing was pulled
	Count       int       // messages the broker holds for the queue
	Source      SourceID
	TTL         time.Duration
	Status      Status
	Value       float64
	ID          MessageID
	Hold        HoldID
	Quota       QuotaAnswer
	Response    Answer
}

// Status is how a gate's source answered.
type Status uint8

// The answers of a source.
const (
	NoAnswer Status = iota // it failed
	Empty                  // it answered that it has no value
	Sample                 // it gave a value, which may be NaN
)

// QuotaAnswer is how a quota answered.
type QuotaAnswer uint8

// The answers of a quota.
const (
	QuotaFailed QuotaAnswer = iota // it could not be asked
	Within                         // one was taken
	Over                           // nothing was taken
)

// OutKind says what is to be done.
type OutKind uint8

// The decisions, then the facts.
const (
	Pull       OutKind = iota // take up to Count messages of Queue from the broker, passing over the first Offset
	Flow                      // a pushing queue may have Count messages inside the process from now on
	Probe                     // how many messages the broker holds for Queue
	Read                      // ask Source
	Acquire                   // take one of Quota for Value; remember it as Hold (ID, Hold)
	Free                      // give Hold back; with Refund a token of a rate limit too
	Send                      // send Request (ID)
	Abort                     // stop the attempt; its Response is not wanted any more (ID)
	Release                   // give the message back to the broker as it came (ID, Reason)
	Retry                     // give it back to be tried again at Due, as Envelope (ID)
	Finish                    // publish Result, the message's only one, and forget the message (ID)
	DeadLetter                // keep the unreadable message aside and forget it (ID)

	Take  // fact: a worker took the message after Waited in the process (ID)
	First // fact: the message is counted as a new request (Queue, ID)
	Deny  // fact: a gate prevented dispatch (Queue or Pool, Reason); ID is 0 if it concerns a poll and no message
	Shed  // fact: the gateway answered 429 (ID)
	Gone  // fact: the last message of a removed queue has left (Queue)
)

// Reason says why a message was given back, or what denied it.
type Reason uint8

// The reasons. The first four are the values of the label reason of gate_decisions_total (AP-MET-17).
const (
	GateClosed     Reason = iota // no dispatch budget
	QuotaExhausted               // an attribute is over its quota
	Dropped                      // a gate rejected the message for good
	GateFailed                   // a gate could not be evaluated
	Drained                      // shutdown, or the queue was removed
	WaitedTooLong                // parked at a pool's gate for Config.GateWait
)

var reasonNames = [...]string{"gate_closed", "quota_exhausted", "dropped", "error", "drained", "gate_wait_timeout"}

// String is the reason's word.
func (r Reason) String() string { return reasonNames[r] }

// GateReasons are those that a gate can have.
var GateReasons = []Reason{GateClosed, QuotaExhausted, Dropped, GateFailed}

// Out is one decision or fact. Only the fields named beside its kind are set; Queue is set wherever a message is concerned.
type Out struct {
	Kind     OutKind
	Queue    QueueKey
	Pool     int  // index in Config.Pools
	AtPool   bool // Deny: by the gate of the pool
	ID       MessageID
	Count    int
	Offset   int
	Source   SourceID
	Hold     HoldID
	Quota    *Quota
	Value    string
	Refund   bool
	Request  Outgoing
	Envelope *Envelope
	Due      time.Duration
	Result   Result
	Reason   Reason
	Waited   time.Duration
}
