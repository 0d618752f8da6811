package flowcontrol

import (
	"math"
	"time"
)

// last is the rank of an entry without a deadline: behind all others, in order of arrival (FC-ORD-08).
const last = math.MaxInt64

// rank is the entry's key under a ordering policy; equal keys leave in order of arrival.
//
//	fcfs          order of entry into the queue (FC-ORD-01)
//	edf           entry + wait limit (FC-ORD-04, FC-ORD-05)
//	slo-deadline  headers received + TTFT target (FC-ORD-06, FC-ORD-07)
func rank(o Ordering, e *Entry, ttl time.Duration) int64 {
	switch o {
	case EDF:
		// The limit of a pool that has endpoints, whatever the pool is now: a rank must not move while the entry waits.
		if limit := shorter(ttl, e.Request.TTL); limit > 0 {
			return int64(later(e.entered, limit))
		}
		return last
	case SLODeadline:
		if e.Request.HasTTFT && e.Request.TTFT >= 0 {
			return int64(later(e.Request.Received, e.Request.TTFT))
		}
		return last
	default:
		return 0
	}
}

// later is t+d, or the end of time where the sum overflows; d is not negative.
func later(t, d time.Duration) time.Duration {
	if t > 0 && d > math.MaxInt64-t {
		return math.MaxInt64
	}
	return t + d
}

// shorter is the smaller of two limits of which 0 or less means none.
func shorter(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}
