package runner

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// Summary says what became of the requests of a run and whether the client kept its schedule.
type Summary struct {
	Sent       int // put on the wire
	Completed  int
	Refused    int
	Killed     int // broken off by the server after 2xx headers
	Cancelled  int // disconnected by the client as planned
	Errors     int // transport errors, requests that were not sent included
	Unfinished int // cut off by the end of the run

	// How late requests were sent after their intended instants: nearest-rank quantiles over all requests.
	BehindP50, BehindP99, BehindMax time.Duration

	Valid   bool   // the offered load was the planned one
	Invalid string // why not, reasons separated by "; "
}

func (s *Summary) invalid(format string, args ...any) {
	if s.Invalid != "" {
		s.Invalid += "; "
	}
	s.Invalid += fmt.Sprintf(format, args...)
	s.Valid = false
}

// tally collects a summary from concurrent requests.
type tally struct {
	mu        sync.Mutex
	s         Summary
	behind    []time.Duration
	exhausted int
	overLimit int
}

func (t *tally) add(rec evidence.Client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rec.Sent != evidence.Never {
		t.s.Sent++
	}
	t.behind = append(t.behind, time.Duration(rec.Behind))
	switch rec.Outcome {
	case evidence.Completed:
		t.s.Completed++
	case evidence.Refused:
		t.s.Refused++
	case evidence.KilledMidStream:
		t.s.Killed++
	case evidence.ClientCancelled:
		t.s.Cancelled++
	case evidence.Unfinished:
		t.s.Unfinished++
	default:
		t.s.Errors++
	}
}

func (t *tally) addExhausted(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.exhausted += n
}

func (t *tally) addOverLimit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.overLimit++
}

// summary closes the tally.
func (t *tally) summary(maxBehind time.Duration) Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.s
	s.Valid = true
	slices.Sort(t.behind)
	s.BehindP50, s.BehindP99, s.BehindMax = rank(t.behind, 50), rank(t.behind, 99), rank(t.behind, 100)
	if s.Sent == 0 {
		s.invalid("no request was sent")
	}
	if s.BehindP99 > maxBehind {
		s.invalid("the client fell behind its schedule: %v at the 99th percentile, %v at most, allowed %v; lower the rate or use a faster client machine",
			s.BehindP99, s.BehindMax, maxBehind)
	}
	if t.overLimit > 0 {
		s.invalid("%d requests were not sent because too many were in flight; raise MaxInFlight or lower the rate", t.overLimit)
	}
	if t.exhausted > 0 {
		s.invalid("%d closed loops ran out of planned requests before their end; add think time or use an open loop", t.exhausted)
	}
	return s
}

// rank is the nearest-rank percentile of a sorted list, 0 if it is empty.
func rank(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}
