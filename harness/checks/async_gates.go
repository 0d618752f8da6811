package checks

import (
	"fmt"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// asyncWindow: in any span of length Gap at most Max attempts arrive (a rate limit). Of those that were submitted Min must have arrived, at
// least one more than Max, or no span was full.
func asyncWindow(a Async, r *evidence.Run) finding {
	from, to, why := asyncSpan(a, r)
	if why == "" {
		why = a.unsent(r, to)
	}
	found := a.attempts(r, from, to)
	switch {
	case why != "":
		return notEngaged(why)
	case a.Gap <= 0 || a.Max <= 0:
		return notEngaged("no limit is given")
	}
	least := time.Duration(-1)
	for i := a.Max; i < len(found); i++ {
		span := time.Duration(found[i].at - found[i-a.Max].at)
		if span < a.Gap {
			return fail(fmt.Sprintf("%d in %s", a.Max+1, ms(int64(span))), fmt.Sprintf("%d attempts arrived within %s, expected at most %d in any %s", a.Max+1, ms(int64(span)), a.Max, a.Gap), found[i-a.Max].ID, found[i].ID)
		}
		if least < 0 || span < least {
			least = span
		}
	}
	if need := max(a.Min, a.Max+1); len(found) < need {
		return notEngaged(fmt.Sprintf("%d of %d arrivals that are needed", len(found), need))
	}
	return pass(fmt.Sprintf("%d in %s at the closest", a.Max+1, ms(int64(least))), fmt.Sprintf("%d arrivals", len(found)))
}
