package async

import "time"

// Result is the one final word on a request (spec/async-processor.md §2.3, AP-RES). Either an HTTP answer arrived, then StatusCode is
// above 0 and there is no ErrorCode, or none did, then it is the other way round.
type Result struct {
	ID           string `json:"id"`
	StatusCode   int    `json:"status_code,omitempty"`
	Payload      string `json:"payload"`
	ErrorCode    Code   `json:"error_code,omitempty"`
	ErrorMessage string `json:"error_message,omitempty"`
}

// Code is the closed set of error codes.
type Code string

// The error codes (AP-RES-04).
const (
	CodeDeadlineExceeded Code = "DEADLINE_EXCEEDED"
	CodeCancelled        Code = "CANCELLED"
	CodeGateDropped      Code = "GATE_DROPPED"
	CodeGateError        Code = "GATE_ERROR"
	CodeInferenceError   Code = "INFERENCE_ERROR"
	CodeInvalidRequest   Code = "INVALID_REQUEST"
)

// Encode is the result's text for the broker. Bytes of the payload that are not UTF-8 become U+FFFD, as JSON has no way to hold them.
func (r Result) Encode() []byte {
	b, err := encode(r)
	if err != nil {
		panic(err) // strings and an int
	}
	return b
}

func failure(id string, code Code, message string) Result {
	payload, err := encode(map[string]string{"error": message})
	if err != nil {
		panic(err) // a string
	}
	return Result{ID: id, Payload: string(payload), ErrorCode: code, ErrorMessage: message}
}

// tierDropPayload is the 429 status payload of a dropped interactive overflow request (AP-TIER-07).
const tierDropPayload = `{"error":"Too Many Requests","code":429}`

// Answer is how an attempt ended.
type Answer struct {
	Status     int    // HTTP status; 0 if there is none
	Body       string // of the answer
	RetryAfter string // the header, "" if none
	Failure    Failure
	Error      string // what failed
}

// Failure is the closed set of ways in which an attempt fails without a whole answer.
type Failure uint8

// The failures.
const (
	NoFailure  Failure = iota
	Transport          // no HTTP answer: refused, reset, DNS, TLS
	Truncated          // the answer's body could not be read to its end
	Unsendable         // the request can never be sent as it is
)

// class is what an answer means.
type class uint8

const (
	success class = iota // final
	refusal              // final
	retryable
	shed // retryable
)

// classify follows spec/async-processor.md §3.4. A 3xx is a final answer and no success: redirects are not followed, because a POST
// would arrive as a GET without its body.
func classify(status int) class {
	switch {
	case status == 429:
		return shed
	case status >= 500 && status <= 599:
		return retryable
	case status >= 200 && status <= 299:
		return success
	}
	return refusal
}

// Successful tells whether a final result is a successful inference.
func (r Result) Successful() bool { return r.StatusCode > 0 && classify(r.StatusCode) == success }

// response ends an attempt. One that is not in flight was stopped, and its message has left.
func (m *Machine) response(ev Event) {
	msg := m.live[ev.ID]
	if msg == nil || msg.stage != flying {
		return
	}
	a := &ev.Response
	switch a.Failure {
	case Transport:
		if m.cfg.RetryTransport {
			m.retry(msg, a)
			return
		}
		m.finish(msg, failure(msg.Envelope.Request.ID, CodeInferenceError, a.Error))
		return
	case Truncated:
		m.retry(msg, &Answer{RetryAfter: a.RetryAfter})
		return
	case Unsendable:
		m.finish(msg, failure(msg.Envelope.Request.ID, CodeInvalidRequest, a.Error))
		return
	}
	switch classify(a.Status) {
	case shed:
		m.emit(Out{Kind: Shed, Queue: msg.queue.key, ID: msg.ID})
		m.retry(msg, a)
	case retryable:
		m.retry(msg, a)
	default:
		m.finish(msg, Result{ID: msg.Envelope.Request.ID, StatusCode: a.Status, Payload: a.Body})
	}
}

// retry gives the message back to be tried again, as long as there is time for it (AP-RETRY-07).
func (m *Machine) retry(msg *message, a *Answer) {
	left := msg.deadline - m.now
	if left <= 0 {
		if a.Status > 0 {
			m.finish(msg, Result{ID: msg.Envelope.Request.ID, StatusCode: a.Status, Payload: a.Body})
		} else {
			m.finish(msg, failure(msg.Envelope.Request.ID, CodeDeadlineExceeded, "deadline exceeded"))
		}
		return
	}
	e := msg.Envelope
	e.Internal.RetryCount++
	delay := backoff(e.Internal.RetryCount, left, m.rng.Float64())
	if after, ok := retryAfter(a.RetryAfter, m.now, m.cfg.EpochUnix); ok && after > delay {
		delay = max(delay, time.Duration(float64(min(after, left/2))*(1+m.rng.Float64()/4)))
	}
	q := msg.queue
	e.Internal.QueueID, e.Internal.RequestQueueName, e.Internal.Labels = q.cfg.ID, q.cfg.Name, msg.labels
	m.emit(Out{Kind: Retry, Queue: q.key, ID: msg.ID, Envelope: &e, Due: m.now + delay})
	m.leave(msg)
}
