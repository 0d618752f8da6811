package extproc

import (
	"math"
	"slices"
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
	// Rewrite is the model that the client wants to be served by instead of the one its body names; "" for none.
	Rewrite string
	// Label is wire.HeaderID, by which the harness joins its records; it decides nothing.
	Label string
}

// ClassifierOptions say where a fairness id may come from beside its own header.
type ClassifierOptions struct {
	// SessionHeaders carry the identity of an agent's session, the first that is set counts; nil: agents are not told apart. The
	// usual ones are x-claude-code-session-id, x-session-affinity, session-id and session_id (spec/endpoint-picker.md §2.4).
	SessionHeaders []string
}

// NewClassifier makes a Classify that also knows agents' sessions: explicit header, then session, then the default flow (FC-CLS-14).
// The function is pure.
func NewClassifier(o ClassifierOptions) func(Headers) Identity {
	if len(o.SessionHeaders) == 0 {
		return Classify
	}
	names := make([]string, len(o.SessionHeaders))
	for i, name := range o.SessionHeaders {
		names[i] = strings.ToLower(name)
	}
	return func(h Headers) Identity {
		id := Classify(h)
		if h.either(wire.HeaderFairnessID, wire.HeaderFairnessIDAlias) != "" {
			return id
		}
		for _, name := range names {
			if session := strings.TrimSpace(h[name]); session != "" {
				id.FairnessID = session
				break
			}
		}
		return id
	}
}

// Classify reads the identity from the request's headers. A canonical header wins over its deprecated alias by presence: an empty
// canonical value suppresses the alias (spec/endpoint-picker.md §2.1).
func Classify(h Headers) Identity {
	id := Identity{
		FairnessID: h.either(wire.HeaderFairnessID, wire.HeaderFairnessIDAlias),
		Objective:  h.either(wire.HeaderObjective, wire.HeaderObjectiveAlias),
		RequestID:  h[wire.HeaderRequestID],
		Rewrite:    h.either(wire.HeaderModelRewrite, wire.HeaderModelRewriteAlias),
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
	return slices.Contains(wire.ControlHeaders, name)
}

// controlHeaders lists the control headers that a request carries, for their removal. The known router never removes any, so that
// fairness ids and objectives of clients reach its model servers although its comments call them stripped (known fault HDR-4); this
// picker takes them out. The destination stays: it is set.
func controlHeaders(m *corev3.HeaderMap) []string {
	var out []string
	for _, kv := range m.GetHeaders() {
		name := strings.ToLower(kv.GetKey())
		if name != wire.HeaderDestination && slices.Contains(wire.ControlHeaders, name) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// size is the number of bytes of all names and values.
func size(m *corev3.HeaderMap) int {
	n := 0
	for _, kv := range m.GetHeaders() {
		n += len(kv.GetKey()) + max(len(kv.GetRawValue()), len(kv.GetValue()))
	}
	return n
}
