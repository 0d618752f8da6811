package async

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Envelope is a message as it lies on the broker (spec/async-processor.md §2.1, AP-WIRE-01).
type Envelope struct {
	Internal Internal
	Kind     string // plain, redis or pubsub
	Request  Request
	data     json.RawMessage // Request as it came, so that a retry carries every byte of it
}

// Internal is the routing data of an envelope.
type Internal struct {
	RetryCount             int               `json:"retry_count,omitempty"`
	QueueID                string            `json:"queue_id,omitempty"`
	RequestToken           string            `json:"request_token,omitempty"`
	RequestQueueName       string            `json:"request_queue_name,omitempty"`
	ResultQueueName        string            `json:"result_queue_name,omitempty"`
	TransportCorrelationID string            `json:"transport_correlation_id,omitempty"`
	Labels                 map[string]string `json:"labels,omitempty"`
}

// Request is what a producer asks for (AP-WIRE-03). Payload is kept byte for byte: it is the body that is sent (AP-WIRE-04).
type Request struct {
	ID       string            `json:"id"`
	Created  int64             `json:"created,omitempty"` // Unix seconds; nothing depends on it (AP-DL-06)
	Deadline int64             `json:"deadline"`          // Unix seconds
	Payload  json.RawMessage   `json:"payload,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Endpoint string            `json:"endpoint,omitempty"`
}

// ErrUnreadable is wrapped by the error of Parse for a message in which not even an id can be found.
var ErrUnreadable = errors.New("unreadable message")

// Kinds of requests.
const (
	KindPlain  = "plain"
	KindRedis  = "redis"
	KindPubSub = "pubsub"
)

// Parse reads an envelope. If the request cannot be processed but has an id, the envelope is returned with the id beside the error, so
// that the request can be answered; otherwise the error wraps ErrUnreadable.
func Parse(raw []byte) (Envelope, error) {
	var shell struct {
		Internal json.RawMessage `json:"internal"`
		Kind     string          `json:"request_kind"`
		Data     json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(raw, &shell); err != nil {
		return Envelope{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if shell.Kind != KindPlain && shell.Kind != KindRedis && shell.Kind != KindPubSub {
		return Envelope{}, fmt.Errorf("%w: request_kind is %q, expected plain, redis or pubsub", ErrUnreadable, shell.Kind)
	}
	e := Envelope{Kind: shell.Kind}
	var wrong error
	if len(shell.Internal) > 0 {
		if err := json.Unmarshal(shell.Internal, &e.Internal); err != nil {
			wrong = fmt.Errorf("internal: %w", err)
		}
	}
	err := e.SetRequest(shell.Data)
	if errors.Is(err, ErrUnreadable) {
		return Envelope{}, err
	}
	return e, errors.Join(wrong, err)
}

// SetRequest reads the request object, as it stands alone on transports without an envelope. Errors are those of Parse.
func (e *Envelope) SetRequest(data []byte) error {
	err := json.Unmarshal(data, &e.Request)
	if err != nil {
		// A field of the wrong type must not hide the id that the others are answered by.
		var only struct {
			ID string `json:"id"`
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal(data, &fields) != nil || json.Unmarshal(fields["id"], &only.ID) != nil {
			return fmt.Errorf("%w: data: %w", ErrUnreadable, err)
		}
		e.Request = Request{ID: only.ID}
	}
	if e.Request.ID == "" {
		return fmt.Errorf("%w: data.id is missing or empty", ErrUnreadable)
	}
	e.data = bytes.Clone(data)
	switch payload := bytes.TrimSpace(e.Request.Payload); {
	case err != nil:
		return fmt.Errorf("data: %w", err)
	case len(payload) == 0 || payload[0] != '{':
		return errors.New("data.payload must be a JSON object")
	case e.Request.Deadline <= 0:
		return fmt.Errorf("data.deadline must be a positive number of Unix seconds, got %d", e.Request.Deadline)
	}
	return nil
}

// NewEnvelope makes the envelope of a plain request.
func NewEnvelope(r Request, internal Internal) (Envelope, error) {
	payload := r.Payload
	if !json.Valid(payload) {
		return Envelope{}, fmt.Errorf("request %q: its payload is no JSON", r.ID)
	}
	r.Payload = nil
	data, err := encode(r)
	if err != nil {
		return Envelope{}, fmt.Errorf("request %q: %w", r.ID, err)
	}
	data = slices.Concat(data[:len(data)-1], []byte(`,"payload":`), payload, []byte("}"))
	e := Envelope{Internal: internal, Kind: KindPlain}
	return e, e.SetRequest(data)
}

// Encode is the envelope's text for the broker. It is put together by hand, because encoding/json would take the blanks out of the
// request, and a payload is to be sent byte for byte also after a retry (AP-WIRE-04).
func (e *Envelope) Encode() []byte {
	internal, err1 := encode(e.Internal)
	kind, err2 := encode(e.Kind)
	if err := errors.Join(err1, err2); err != nil {
		panic(err) // strings and an int
	}
	return slices.Concat([]byte(`{"internal":`), internal, []byte(`,"request_kind":`), kind, []byte(`,"data":`), e.data, []byte("}"))
}

// encode does not escape <, > and &, which would change the bytes of a payload.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
