package arrival

import (
	"sort"
	"time"
)

// Schedule is a sorted list of arrival offsets. It has the method set of vegeta's Pacer, so a schedule of any process, a trace or
// a burst can pace a vegeta-style loop.
type Schedule []time.Duration

// Pace says how long to wait, elapsed into the run and after hits arrivals, until the next one; true when none is left. An arrival
// that is overdue is due at once: the schedule never moves because the sender was late.
func (s Schedule) Pace(elapsed time.Duration, hits uint64) (wait time.Duration, stop bool) {
	if hits >= uint64(len(s)) {
		return 0, true
	}
	return max(0, s[hits]-elapsed), false
}

// Rate is the number of arrivals in the second around elapsed.
func (s Schedule) Rate(elapsed time.Duration) float64 {
	return float64(s.before(elapsed+time.Second/2) - s.before(elapsed-time.Second/2))
}

// before counts the arrivals earlier than at.
func (s Schedule) before(at time.Duration) int {
	return sort.Search(len(s), func(i int) bool { return s[i] >= at })
}
