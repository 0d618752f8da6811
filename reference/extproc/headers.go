package extproc

import (
	"math"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/llm-weir/weir/harness/wire"
)

// Headers are the headers of a message under lower-case names. Of repeated headers the last value counts, of x-request-id the
// first (spec/endpoint-picker.md §1.3).
type Headers map[string]string

// ReadHeaders reads a header map; raw_value is preferred over value.
func ReadHeaders(m *corev3.HeaderMap) Headers {
	h := make(Headers, len(m.GetHeaders()))
	for _, kv := range m.GetHeaders() {
		name := strings.ToLower(kv.GetKey())
		if _, seen := h[name]; seen && name == wire.HeaderRequestID {
			continue
		}
		h[name] = headerText(kv)
	}
	return h
}

func headerText(kv *corev3.HeaderValue) string {
	if raw := kv.GetRawValue(); len(raw) > 0 {
		return string(raw)
	}
	return kv.GetValue()
}

// Identity is who sends a request and what it asks of the queue.
type Identity struct {
	FairnessID string // never empty
	Objective  string // name of an InferenceObjective, "" for none
	TTFT       time.Duration
	HasTTFT    bool // false for a missing, negative, unparsable or overflowing header
	RequestID  string
	// Label is wire.HeaderID, by which the harness joins its records; it decides nothing.
	Label string
}

// Classify reads the identity from the request's headers. A canonical header wins over its deprecated alias by presence: an empty
// canonical value suppresses the alias (spec/endpoint-picker.md §2.1).
func Classify(h Headers) Identity {
	id := Identity{
		FairnessID: h.either(wire.HeaderFairnessID, wire.HeaderFairnessIDAlias),
		Objective:  h.either(wire.HeaderObjective, wire.HeaderObjectiveAlias),
		RequestID:  h[wire.HeaderRequestID],
		Label:      h[wire.HeaderID],
	}
	if id.FairnessID == "" {
		id.FairnessID = wire.DefaultFlow
	}
	id.TTFT, id.HasTTFT = milliseconds(h.either(wire.HeaderTTFT, wire.HeaderTTFTAlias))
	return id
}

func (h Headers) either(canonical, alias string) string {
	if v, ok := h[canonical]; ok {
		return v
	}
	return h[alias]
}

// milliseconds reads a base-10 int64; a value that does not fit into a duration is none rather than a wrapped one.
func milliseconds(s string) (time.Duration, bool) {
	ms, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || ms < 0 || ms > math.MaxInt64/int64(time.Millisecond) {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// Path is the request's path without its query, from the first of :path, x-original-path and x-forwarded-path.
func (h Headers) Path() string {
	for _, name := range []string{":path", "x-original-path", "x-forwarded-path"} {
		if p := h[name]; p != "" {
			p, _, _ = strings.Cut(p, "?")
			return p
		}
	}
	return "/v1/completions"
}

// systemOwned tells whether a header belongs to the picker or the data plane and is never echoed (spec/endpoint-picker.md §2.2).
func systemOwned(name string) bool {
	if strings.HasPrefix(name, ":") || name == "content-length" {
		return true
	}
	for _, c := range wire.ControlHeaders {
		if name == c {
			return true
		}
	}
	return false
}
