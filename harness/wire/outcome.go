package wire

import "fmt"

// Outcome is the one terminal decision of flow control about a request, in the router's words (spec/endpoint-picker.md §5.2).
// "Reject" is before queueing, "evict" after queueing; a request evicted in flight was Dispatched.
type Outcome uint8

// The outcomes. NotYetFinalized is the zero value: no decision has been taken.
const (
	NotYetFinalized Outcome = iota
	Dispatched
	RejectedCapacity
	RejectedNoEndpoints
	RejectedOther
	EvictedTTL
	EvictedNoEndpoints
	EvictedContextCancelled
	EvictedOther
)

var outcomeNames = [...]string{"NotYetFinalized", "Dispatched", "RejectedCapacity", "RejectedNoEndpoints", "RejectedOther",
	"EvictedTTL", "EvictedNoEndpoints", "EvictedContextCancelled", "EvictedOther"}

// String is the value of the metric label `outcome`.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Outcomes lists every outcome, NotYetFinalized included.
func Outcomes() []Outcome {
	all := make([]Outcome, len(outcomeNames))
	for i := range all {
		all[i] = Outcome(i)
	}
	return all
}

// ParseOutcome is the inverse of String.
func ParseOutcome(s string) (Outcome, error) {
	for i, n := range outcomeNames {
		if n == s {
			return Outcome(i), nil
		}
	}
	return 0, fmt.Errorf("unknown outcome %q", s)
}

// Refusal is how a refused request looks on the wire.
type Refusal struct {
	Status int    // HTTP status
	Reason string // value of HeaderDroppedReason, empty if the header is absent
	Body   string // response text
}

// Refuse maps an outcome to its wire form (spec/endpoint-picker.md §5.1). ttlStatus is the status of a wait-limit refusal on a
// pool that has endpoints: 503 in router 0.9 and the chapter, 429 in later builds (FC-REF-03). Dispatched and NotYetFinalized
// are no refusals and give status 500, so that a caller's mistake is seen by the client instead of passing for a success.
func Refuse(o Outcome, ttlStatus int) Refusal {
	switch o {
	case RejectedCapacity:
		return Refusal{429, ReasonSaturated, "inference error: ResourceExhausted - request rejected pre-queue: queue at capacity"}
	case RejectedNoEndpoints:
		return Refusal{503, ReasonNoEndpoints, "inference error: ServiceUnavailable - no endpoints available: request rejected pre-queue: no endpoints available"}
	case EvictedTTL:
		code := "ResourceExhausted"
		if ttlStatus == 503 {
			code = "ServiceUnavailable"
		}
		return Refusal{ttlStatus, ReasonTTLExpired, "inference error: " + code + " - request timed out in queue: request evicted from queue: request TTL expired"}
	case EvictedNoEndpoints:
		return Refusal{503, ReasonNoEndpoints, "inference error: ServiceUnavailable - request timed out in queue and no endpoints are available: request evicted from queue: request TTL expired: no endpoints available"}
	case EvictedContextCancelled:
		return Refusal{503, ReasonContextCancelled, "inference error: ServiceUnavailable - client disconnected: request evicted from queue: request context cancelled"}
	case RejectedOther:
		return Refusal{503, ReasonShuttingDown, "inference error: ServiceUnavailable - flow controller shutting down: request rejected pre-queue: flow controller is not running"}
	case EvictedOther:
		return Refusal{503, ReasonShuttingDown, "inference error: ServiceUnavailable - flow controller shutting down: request evicted from queue: flow controller is not running"}
	}
	return Refusal{Status: 500, Body: "inference error: Internal - internal flow control error: outcome " + o.String() + " is no refusal"}
}

// Evicted is the immediate response to a request that is stopped in flight (spec/endpoint-picker.md §6, FC-EVI-05).
func Evicted() Refusal {
	return Refusal{429, ReasonEvicted, "request evicted by flow control"}
}
