package checks

import (
	"fmt"
	"math"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/stats"
	"github.com/llm-weir/weir/harness/verdict"
)

// disturbed is how late the machine may be before its own lateness would be taken for the router's.
const disturbed = 0.1 // seconds

// promptly is the wait that a requirement allows beside the service quantum (BEN-11).
const promptly = 0.25 // seconds

// demand says what keeps the window from having had more open requests than places at any time; "" if it had. Capacity that nobody asked
// for tells nothing.
func (w window) demand(s Spec) string {
	const instants = 20
	places := s.Bench.Places * len(endpoints(w.r))
	if places < 1 {
		return "no places at any model server"
	}
	for i := range int64(instants) {
		t := w.from + (w.to-w.from)*(2*i+1)/(2*instants)
		open := 0
		for _, c := range w.r.Clients {
			if c.Sent != evidence.Never && c.Sent < t && (c.End == evidence.Never || c.End > t) {
				open++
			}
		}
		if open <= places {
			return fmt.Sprintf("%s into the load %d requests were open, %d run at once", ms(t-w.from), open, places)
		}
	}
	return ""
}

// steady says what the machine itself did to the window; "" if it kept up.
func (w window) steady() string {
	if l := w.lag(); !(l <= disturbed) {
		return fmt.Sprintf("%s: the machine was %.0f ms late at the 95th percentile", w.r.Scenario, 1e3*l)
	}
	return ""
}

// busy: throughout the window, in which more requests are open than places, every model server has Bench.Places inside for nine tenths
// of the time: nothing is left unused while somebody waits.
func busy(s Spec, r *evidence.Run) finding {
	w, f := windowOf(s, r)
	if f != nil {
		return *f
	}
	if why := w.demand(s); why != "" {
		return notEngaged(why)
	}
	if why := w.steady(); why != "" {
		return notEngaged(why)
	}
	share := w.full(s.Bench.Places)
	figure := fmt.Sprintf("full for %.1f %%, %.0f tokens/s", 100*share, stats.Mean(w.rates()))
	if share < 0.9 {
		return fail(figure, fmt.Sprintf("more requests were open than the model servers run at once, and they had %d each for only %.1f %% of the time", s.Bench.Places, 100*share))
	}
	return pass(figure, fmt.Sprintf("%d requests offered", len(w.offered(anyone))))
}

// calm: in a window with room to spare every request completes. Engaged with Needed requests, and if the model servers were full for at
// most half of the time.
func calm(s Spec, r *evidence.Run) finding {
	w, f := windowOf(s, r)
	if f != nil {
		return *f
	}
	offered := w.offered(anyone)
	if short(len(offered), s.Needed) || s.Bench.Places < 1 {
		return notEngaged(fmt.Sprintf("%d requests were offered, %d are needed", len(offered), s.Needed))
	}
	if share := w.full(s.Bench.Places); share > 0.5 {
		return notEngaged(fmt.Sprintf("the model servers were full for %.1f %% of the time", 100*share))
	}
	for _, c := range offered {
		if _, ok := arrival(r, c.ID); !ok && c.Outcome == evidence.Completed {
			return notEngaged("no model server knows "+c.ID, c.ID)
		}
		if c.Outcome != evidence.Completed {
			return fail(answer(c), fmt.Sprintf("%s must be served by a pool with room to spare, it ended as %s", c.ID, answer(c)), c.ID)
		}
	}
	return pass(fmt.Sprintf("%d served, first token after %.3f s in the median", len(offered), stats.NewSample(firstTokens(offered)).NearestRank(0.5)), "room to spare")
}

// growth is the share by which a wait must have grown before a lack of requests may be to blame for not having proved it.
const growth = 0.05

// overload (BEN-11): under more than can be served the high band waits at most 0.25 s and a service quantum at the 95th percentile, and
// the low band's wait grows. Engaged if the low band had somebody waiting throughout and demand exceeded what was served by Margin.
func overload(s Spec, r *evidence.Run) finding {
	w, f := windowOf(s, r)
	if f != nil {
		return *f
	}
	b := s.Bench
	high, low := w.offered(objective(b.High)), w.offered(objective(b.Low))
	served := 0
	for _, x := range r.Backends {
		if x.Ending == evidence.Finished && w.has(x.End) {
			served++
		}
	}
	factor := float64(len(high)+len(low)) / float64(served)
	switch {
	case b.High == "" || b.Low == "" || !(s.Margin > 0) || short(len(high), s.Needed) || short(len(low), s.Needed):
		return notEngaged(fmt.Sprintf("%d high and %d low requests, %d of each are needed", len(high), len(low), s.Needed))
	case served == 0 || !(factor >= 1+s.Margin):
		return notEngaged(fmt.Sprintf("%.2f times what was served was offered, %.2f are needed", factor, 1+s.Margin))
	case !w.backlogged(objective(b.Low)):
		return notEngaged("the low band was not backlogged throughout")
	case w.steady() != "":
		return notEngaged(w.steady())
	}
	bound := promptly + w.service() + w.lag()
	p95 := quantile(queued(r, high), 0.95)
	third := len(low) / 3
	early, late := quantile(queued(r, low[:third]), 0.5), quantile(queued(r, low[2*third:]), 0.5)
	figure := fmt.Sprintf("high p95 wait %v s (≤ %.3f), low median %v → %v s", p95, bound, early, late)
	kind, more := p95.within(math.Inf(-1), bound)
	switch {
	case kind == verdict.Inconclusive:
		return finding{kind: kind, figure: figure, why: more, engaged: fmt.Sprintf("%.2f × what was served", factor)}
	case kind == verdict.Fail:
		return fail(figure, fmt.Sprintf("at %.2f times the capacity the high band must wait at most %.3f s at the 95th percentile", factor, bound))
	case math.IsNaN(early.value) || math.IsNaN(late.value): // where the figure is none, nothing was seen to stay as it was
		return notEngaged(fmt.Sprintf("a third of %d low requests carries no interval", len(low)))
	case late.above(early):
	case late.value > (1+growth)*early.value: // it grew, by less than so many requests can prove
		return finding{kind: verdict.Inconclusive, figure: figure, why: "the lower band's wait grew, but between its first and its last third by less than their intervals: more requests would decide",
			engaged: fmt.Sprintf("%.2f × what was served", factor)}
	default:
		return fail(figure, "the lower band must absorb the wait, and its wait does not grow")
	}
	return pass(figure, fmt.Sprintf("%.2f × what was served, %.0f %% of it high", factor, 100*float64(len(high))/float64(len(high)+len(low))))
}
