package checks

import (
	"fmt"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/stats"
)

// The checks of this file compare settings: what is counted, and how much may wait inside the model servers.

// tokenPressure (BEN-18): two loads of one rate, of short prompts (Bench.Loads[0]) and of long ones. How many prompt tokens are inside the
// model servers, not yet answered, while requests wait: the ratio of long to short is at least AtLeast where requests are counted, and at
// most AtMost where tokens are. Engaged if at least Needed were sent in each load, and somebody waited throughout.
func tokenPressure(s Spec, r *evidence.Run) finding {
	b := s.Bench
	if b == nil || len(b.Loads) != 2 || b.AtLeast <= 0 && b.AtMost <= 0 {
		return notEngaged("no two loads, or no bound for their ratio")
	}
	var mean, rate [2]float64
	for i, mark := range b.Loads {
		m, f := watch(r, mark)
		if f != nil {
			return *f
		}
		w := window{r, span{m.Start, m.End}}
		cs := w.offered(anyone)
		if short(len(cs), s.Needed) {
			return notEngaged(fmt.Sprintf("%s: %d requests, %d are needed", mark, len(cs), s.Needed))
		}
		if why := w.steady(); why != "" {
			return notEngaged(why)
		}
		last := cs[len(cs)-1].Sent
		rate[i] = float64(len(cs)-1) / (float64(last-cs[0].Sent) / 1e9)
		// In the second half of the sending time somebody must wait throughout; the first requests find an empty pool.
		w.span = span{cs[0].Sent + (last-cs[0].Sent)/2, last}
		if !w.backlogged(anyone) {
			return notEngaged(mark + ": nobody waited, so the gate was not closed throughout")
		}
		if mean[i] = w.promptTokens(); !(mean[i] > 0) {
			return notEngaged(mark + ": no prompt was inside the model servers")
		}
	}
	if d := rate[1] / rate[0]; !(d > 0.95 && d < 1.05) {
		return notEngaged(fmt.Sprintf("the loads were sent at %.1f and %.1f requests/s, not at one rate", rate[0], rate[1]))
	}
	ratio := mean[1] / mean[0]
	figure := fmt.Sprintf("%.0f and %.0f prompt tokens inside at %.0f requests/s, ratio %.2f", mean[0], mean[1], rate[0], ratio)
	switch {
	case b.AtLeast > 0 && ratio < b.AtLeast:
		return fail(figure, fmt.Sprintf("counted in requests, long prompts must press at least %v times as hard as short ones", b.AtLeast))
	case b.AtMost > 0 && ratio > b.AtMost:
		return fail(figure, fmt.Sprintf("counted in tokens, long prompts may press at most %v times as hard as short ones", b.AtMost))
	}
	return pass(figure, "somebody waited throughout both loads")
}

// promptTokens is the mean number of prompt tokens inside the model servers, not yet answered, in the window.
func (w window) promptTokens() float64 {
	total := 0.0
	for _, b := range w.r.Backends {
		if b.Arrival == evidence.Never {
			continue
		}
		until := b.FirstToken
		if until == evidence.Never {
			until = max(b.End, b.Arrival)
		}
		total += float64(b.PromptTokens) * float64(max(0, min(until, w.to)-max(b.Arrival, w.from)))
	}
	return total / float64(w.to-w.from)
}

// demanded: in the window more requests are open than places, and every request is served. Engaged with Needed requests.
func demanded(s Spec, r *evidence.Run) finding {
	w, f := windowOf(s, r)
	if f != nil {
		return *f
	}
	cs := w.offered(anyone)
	if short(len(cs), s.Needed) {
		return notEngaged(fmt.Sprintf("%d requests were offered, %d are needed", len(cs), s.Needed))
	}
	if why := w.demand(s); why != "" {
		return notEngaged(why)
	}
	for _, c := range cs {
		if _, ok := arrival(r, c.ID); !ok && c.Outcome == evidence.Completed {
			return notEngaged("no model server knows "+c.ID, c.ID)
		}
		if c.Outcome != evidence.Completed {
			return fail(answer(c), fmt.Sprintf("%s waits, and must be served in the end; it ended as %s", c.ID, answer(c)), c.ID)
		}
	}
	return pass(fmt.Sprintf("%.0f tokens/s", stats.Mean(w.rates())), fmt.Sprintf("%d requests", len(cs)))
}

// thresholdEnds (BEN-23): the scenarios of Bench.Runs, in the order of their keys, let ever more wait inside the model servers. Control,
// the number of requests of the low band that are ahead of a high one inside its model server, gets worse from the first to the last, and
// throughput gets no worse, within the share Margin. Engaged if more requests than places were open throughout in all of them.
func thresholdEnds(s Spec, runs []evidence.Run) finding {
	if s.Bench == nil || len(s.Bench.Runs) < 2 || !(s.Margin > 0) {
		return notEngaged("no settings to compare")
	}
	parts := sortedKeys(s.Bench.Runs)
	ws, f := joinedWindows(s, runs, parts...)
	if f != nil {
		return *f
	}
	var ahead, rate []estimate
	var figures []string
	for i, p := range parts {
		w := ws[p]
		if why := w.demand(s); why != "" {
			return notEngaged(w.r.Scenario + ": " + why)
		}
		if why := samePlan(ws[parts[0]], w); why != "" {
			return notEngaged(why)
		}
		xs := w.ahead(s.Bench)
		if short(len(xs), s.Needed) {
			return notEngaged(fmt.Sprintf("%s: %d of the high band were dispatched, %d are needed", w.r.Scenario, len(xs), s.Needed))
		}
		ahead, rate = append(ahead, mean(xs)), append(rate, mean(w.rates()))
		figures = append(figures, fmt.Sprintf("%s: %.1f ahead, %.0f tokens/s", p, ahead[i].value, rate[i].value))
	}
	figure, last := strings.Join(figures, "; "), len(parts)-1
	switch {
	case !(ahead[0].Hi < ahead[last].Lo):
		return fail(figure, "the lowest threshold must give the most control: the fewest requests ahead of a high one")
	case rate[last].value < (1-s.Margin)*rate[0].value:
		return fail(figure, "the highest threshold must give the most throughput")
	}
	return pass(figure, "saturated at each setting")
}
