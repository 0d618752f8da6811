package checks

import (
	"fmt"

	"github.com/llm-weir/weir/harness/evidence"
)

// asyncRatio: the second group arrives at least Low times as fast as the first one did: a figure that what else the machine does to both
// leaves alone. Each group has at least Min arrivals, and their rates are those from the first to the last of them.
func asyncRatio(a Async, r *evidence.Run) finding {
	if len(a.Groups) != 2 || a.Low <= 0 || a.Min < 2 {
		return notEngaged("no two rates are compared")
	}
	var rates [2]float64
	for i, g := range a.Groups {
		own := Async{IDs: g, From: a.From, To: a.To}
		from, to, why := asyncSpan(own, r)
		if why == "" {
			why = own.unsent(r, to)
		}
		if why != "" {
			return notEngaged(why)
		}
		found := own.attempts(r, from, to)
		if len(found) < a.Min {
			return notEngaged(fmt.Sprintf("%d of %d arrivals that are needed of group %d", len(found), a.Min, i))
		}
		took := float64(found[len(found)-1].at-found[0].at) / 1e9
		if took <= 0 {
			return notEngaged(fmt.Sprintf("group %d arrived at one instant", i))
		}
		rates[i] = float64(len(found)-1) / took
	}
	figure := fmt.Sprintf("%.1f/s of %.1f/s", rates[1], rates[0])
	if rates[1] < a.Low*rates[0] {
		return fail(figure, fmt.Sprintf("%.1f arrivals a second, expected at least %.2f of %.1f", rates[1], a.Low, rates[0]))
	}
	return pass(figure, fmt.Sprintf("at least %d arrivals each", a.Min))
}
