package async

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// The envelope of the delays (spec/async-processor.md §3.5).
const (
	backoffUnit = 2 * time.Second
	backoffMax  = 60 * time.Second
)

// backoff is the delay before attempt k+1 after k attempts failed, k >= 1: uniform in [t/2, t) with t = min(60 s, left, 2 s * 2^k).
// u is uniform in [0, 1). Half of t is the floor, so that nothing retries at once, and the other half spreads what failed together
// (AP-RETRY-04, AP-RETRY-05).
func backoff(k int, left time.Duration, u float64) time.Duration {
	t := min(backoffMax, left)
	if k < 6 { // 2 s * 2^5 is above the cap
		t = min(t, backoffUnit<<k)
	}
	return t/2 + time.Duration(u*float64(t-t/2))
}

// retryAfter reads the header: a number of seconds or an HTTP date. epoch is the wall time of offset 0 in Unix nanoseconds.
func retryAfter(header string, now time.Duration, epoch int64) (time.Duration, bool) {
	header = strings.TrimSpace(header)
	if header == "" {
		return 0, false
	}
	if s, err := strconv.ParseInt(header, 10, 64); err == nil {
		return time.Duration(min(max(s, 0), math.MaxInt64/int64(time.Second))) * time.Second, s > 0
	}
	for _, layout := range []string{time.RFC1123, "Monday, 02-Jan-06 15:04:05 MST", time.ANSIC} {
		if at, err := time.Parse(layout, header); err == nil {
			d := at.Sub(time.Unix(0, epoch)) - now
			return d, d > 0
		}
	}
	return 0, false
}
