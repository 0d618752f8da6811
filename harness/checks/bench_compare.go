package checks

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/stats"
	"github.com/llm-weir/weir/harness/verdict"
)

// joinedWindows finds the windows of all scenarios that a check joins, by the part that each plays. A machine that did not keep up in one
// of them would be compared, not the router.
func joinedWindows(s Spec, runs []evidence.Run, parts ...string) (map[string]window, *finding) {
	none := func(why string) (map[string]window, *finding) {
		f := notEngaged(why)
		return nil, &f
	}
	if s.Bench == nil || s.Bench.Places < 1 {
		return none("nothing is joined")
	}
	out := map[string]window{}
	for _, part := range parts {
		name := s.Bench.Runs[part]
		i := slices.IndexFunc(runs, func(r evidence.Run) bool { return r.Scenario == name && name != "" })
		if i < 0 {
			return none(fmt.Sprintf("scenario %q was not part of the run", name))
		}
		own := runs[i] // what it looks up stays its own
		w, f := windowOf(s, &own)
		if f != nil {
			f.why = name + ": " + f.why
			return nil, f
		}
		if why := w.steady(); why != "" {
			return none(why)
		}
		out[part] = w
	}
	return out, nil
}

// samePlan says where two windows were offered different requests; "" if not.
func samePlan(a, b window) string {
	due := func(w window) map[string]int64 {
		out := map[string]int64{}
		for _, c := range w.offered(anyone) {
			out[c.ID] = (c.Intended - w.from) / 1e6
		}
		return out
	}
	x, y := due(a), due(b)
	if len(x) == 0 {
		return "nothing was offered"
	}
	near := func(p, q int64) bool { return max(p-q, q-p) <= 1 }
	if !maps.EqualFunc(x, y, near) {
		return fmt.Sprintf("%s and %s were offered different requests", a.r.Scenario, b.r.Scenario)
	}
	return ""
}

// alike compares the tokens per second of two windows: their ratio must lie within 1 ± margin. The model servers must have run at one
// pace in both; how fast they were is the machine's doing.
func alike(a, b window, margin float64) (figure string, kind verdict.Kind, why string) {
	pa, pb := a.pace(), b.pace()
	if !(math.Abs(pa/pb-1) <= 0.03) {
		return "not engaged", verdict.Inconclusive, fmt.Sprintf("not engaged: the model servers took %.2f and %.2f ms a token: the machine was not the same for both", 1e3*pa, 1e3*pb)
	}
	x, y := mean(a.rates()), mean(b.rates())
	ratio := estimate{x.value / y.value, stats.Interval{Lo: x.Lo / y.Hi, Hi: x.Hi / y.Lo}, min(x.n, y.n)}
	n := ratio.n
	ratio.n = max(n, stats.MinBlocks*resampling.Block) // slots, not requests; what is needed is checked next
	if n < minSlots {
		return "not engaged", verdict.Inconclusive, fmt.Sprintf("not engaged: %d slots of %s, %d are needed", n, slot, minSlots)
	}
	kind, why = ratio.within(1-margin, 1+margin)
	return fmt.Sprintf("%.0f and %.0f tokens/s, ratio %v", x.value, y.value, ratio), kind, why
}

// minSlots is the number of slots below which a rate is not compared.
const minSlots = 20

// sameCapacity (BEN-12): of the same requests, with flow control (on) and without it (off), the model servers finish the same number of
// tokens per second, within the share Margin. Engaged if more requests than places were open throughout, and the model servers of "off"
// were full.
func sameCapacity(s Spec, runs []evidence.Run) finding {
	ws, f := joinedWindows(s, runs, "on", "off")
	if f != nil {
		return *f
	}
	on, off := ws["on"], ws["off"]
	for _, w := range []window{on, off} {
		if why := w.demand(s); why != "" {
			return notEngaged(w.r.Scenario + ": " + why)
		}
	}
	if why := samePlan(on, off); why != "" {
		return notEngaged(why)
	}
	if share := off.full(s.Bench.Places); share < 0.9 || !(s.Margin > 0) {
		return notEngaged(fmt.Sprintf("without flow control the model servers were full for %.1f %% of the time", 100*share))
	}
	figure, kind, why := alike(on, off, s.Margin)
	if kind == verdict.Fail {
		why = fmt.Sprintf("flow control neither creates capacity nor costs more than %.0f %% of it: %s", 100*s.Margin, figure)
	}
	return finding{kind: kind, figure: figure, why: why, engaged: "saturated in both"}
}

// isolation (BEN-09): what a noisy tenant does to the first tokens of a quiet one, against the quiet one alone (solo): without flow control
// (off), under global strict (strict), and when they take turns (turns). With turns the quiet tenant's 95th percentile is at most 0.25 s
// and a service quantum above its own. Engaged if the noisy tenant was backlogged, and cost the quiet one more without turns.
func isolation(s Spec, runs []evidence.Run) finding {
	parts := []string{"solo", "off", "strict", "turns"}
	ws, f := joinedWindows(s, runs, parts...)
	if f != nil {
		return *f
	}
	b := s.Bench
	for _, part := range parts[1:] {
		if why := ws[part].demand(s); why != "" {
			return notEngaged(ws[part].r.Scenario + ": " + why)
		}
	}
	if !ws["strict"].backlogged(tenant(b.Noisy)) || !ws["turns"].backlogged(tenant(b.Noisy)) {
		return notEngaged("the noisy tenant was not backlogged throughout")
	}
	p50, p95 := map[string]estimate{}, map[string]estimate{}
	figure := ""
	for _, part := range parts {
		w := ws[part]
		xs := firstTokens(w.offered(tenant(b.Quiet)))
		if short(len(xs), s.Needed) {
			return notEngaged(fmt.Sprintf("%s: %d requests of %s were served, %d are needed", w.r.Scenario, len(xs), b.Quiet, s.Needed))
		}
		p50[part], p95[part] = quantile(xs, 0.5), quantile(xs, 0.95)
		figure += fmt.Sprintf("%s p50 %.3f p95 %.3f s", part, p50[part].value, p95[part].value)
		if part != "solo" {
			figure += fmt.Sprintf(" Jain %.3f", w.jain(b))
		}
		figure += "; "
	}
	worse := func(part string) bool { return p50[part].Lo > 2*p50["turns"].Hi }
	allowed := promptly + ws["turns"].service() + ws["turns"].lag()
	added := estimate{p95["turns"].value - p95["solo"].value, stats.Interval{Lo: p95["turns"].Lo - p95["solo"].Hi, Hi: p95["turns"].Hi - p95["solo"].Lo}, p95["turns"].n}
	figure += fmt.Sprintf("%.1f kB queued at most with turns; ", ws["turns"].queuedBytes()/1e3)
	figure += fmt.Sprintf("turns add %v s at p95 (≤ %.3f)", added, allowed)
	kind, why := added.within(math.Inf(-1), allowed)
	switch {
	case kind == verdict.Fail:
		why = fmt.Sprintf("with turns a noisy neighbour may add %.3f s to the 95th percentile of %s", allowed, b.Quiet)
	case kind == verdict.Pass && !(worse("off") && worse("strict")):
		return finding{kind: verdict.Inconclusive, figure: figure, why: "not engaged: the noisy tenant did not cost the quiet one more without turns"}
	}
	return finding{kind: kind, figure: figure, why: why, engaged: b.Noisy + " backlogged in all three"}
}

// queuedBytes is the most that the bodies of waiting requests had together in the window: what the queue costs in memory, at least.
func (w window) queuedBytes() float64 {
	most := 0.0
	for i := range int64(100) {
		t, sum := w.from+(w.to-w.from)*i/100, 0.0
		for _, c := range w.r.Clients {
			if until, ok := decided(w.r, c); ok && c.Sent != evidence.Never && c.Sent < t && until > t {
				sum += float64(c.RequestBytes)
			}
		}
		most = max(most, sum)
	}
	return most
}

// jain is Jain's index of what the quiet and the noisy tenant were served of what turns would give them: the quiet one all it asks for,
// the noisy one the rest.
func (w window) jain(b *Bench) float64 {
	served := map[string]float64{}
	for _, x := range w.r.Backends {
		if c, ok := w.r.ClientByID(x.ID); ok && x.Ending == evidence.Finished && w.has(x.End) {
			served[c.Tenant]++
		}
	}
	quiet := float64(len(w.offered(tenant(b.Quiet))))
	rest := served[b.Quiet] + served[b.Noisy] - quiet
	if quiet == 0 || rest <= 0 {
		return math.NaN()
	}
	return stats.Jain([]float64{served[b.Quiet] / quiet, served[b.Noisy] / rest})
}

// baseline (BEN-17): first come, first served under global strict, beside turns on the same requests. It keeps the order of arrival in the
// low band, up to a twentieth of the requests, and finishes as many tokens per second within the share Margin. Reported beside it: what
// each gives the two tenants.
func baseline(s Spec, runs []evidence.Run) finding {
	ws, f := joinedWindows(s, runs, "strict", "turns")
	if f != nil {
		return *f
	}
	strict, turns := ws["strict"], ws["turns"]
	b := s.Bench
	for _, w := range []window{strict, turns} {
		if why := w.demand(s); why != "" {
			return notEngaged(w.r.Scenario + ": " + why)
		}
		if !w.backlogged(objective(b.Low)) {
			return notEngaged(w.r.Scenario + ": the band was not backlogged throughout")
		}
	}
	if why := samePlan(strict, turns); why != "" {
		return notEngaged(why)
	}
	order, n := strict.overtakes(b.Low)
	other, _ := turns.overtakes(b.Low)
	if short(n, s.Needed) || !(s.Margin > 0) {
		return notEngaged(fmt.Sprintf("%d of the band were dispatched, %d are needed", n, s.Needed))
	}
	figure, kind, why := alike(strict, turns, s.Margin)
	figure += fmt.Sprintf("; overtaking %.1f %% against %.1f %% with turns; first token of %s %.3f s against %.3f s", 100*order, 100*other, b.Quiet,
		quantile(firstTokens(strict.offered(tenant(b.Quiet))), 0.5).value, quantile(firstTokens(turns.offered(tenant(b.Quiet))), 0.5).value)
	switch {
	case order > 0.05:
		return fail(figure, fmt.Sprintf("first come, first served must keep the order of arrival; %.1f %% of the band overtook somebody", 100*order))
	case kind == verdict.Fail:
		why = fmt.Sprintf("the policies must not differ by more than %.0f %% in what the model servers finish", 100*s.Margin)
	}
	return finding{kind: kind, figure: figure, why: why, engaged: fmt.Sprintf("%d dispatched, both saturated", n)}
}

// overtakes is the share of a band's dispatched requests that overtook one that had been sent 50 ms before or earlier.
func (w window) overtakes(band string) (share float64, n int) {
	over, n := w.overtaken(objective(band))
	return float64(over) / float64(max(1, n)), n
}

// overtaken counts, among the requests that keep says yes to and that were dispatched from the window on, those that overtook another by
// more than passing takes. Those that arrive together, as after one reading of the model servers' pages, have no order.
func (w window) overtaken(keep func(evidence.Client) bool) (over, n int) {
	const together = int64(5 * time.Millisecond)
	type turn struct{ sent, arrival int64 }
	var turns []turn
	for _, b := range w.r.Backends {
		// Also those that wait until the load is over.
		if c, ok := w.r.ClientByID(b.ID); ok && keep(c) && b.Arrival >= w.from {
			turns = append(turns, turn{c.Sent, b.Arrival})
		}
	}
	first, later := math.MaxInt64-queueAfter, len(turns)-1 // the earliest sent of all that arrive clearly later
	for i := len(turns) - 1; i >= 0; i-- {
		for ; turns[later].arrival > turns[i].arrival+together; later-- {
			first = min(first, turns[later].sent)
		}
		if turns[i].sent > first+queueAfter {
			over++
		}
	}
	return over, len(turns)
}

// inversion (BEN-19): without flow control (off) realtime waits behind the batch that is inside the model servers already; with it (on) at
// most Count of those are ahead of it, for 95 of 100 requests, and its first token comes sooner: its 95th percentile is below the other's
// median. Engaged if without flow control more than Bench.Places were ahead on average.
func inversion(s Spec, runs []evidence.Run) finding {
	ws, f := joinedWindows(s, runs, "on", "off")
	if f != nil {
		return *f
	}
	on, off := ws["on"], ws["off"]
	b := s.Bench
	before, after := off.ahead(b), on.ahead(b)
	if short(len(before), s.Needed) || short(len(after), s.Needed) || s.Count < 1 {
		return notEngaged(fmt.Sprintf("%d and %d realtime requests were dispatched, %d are needed", len(before), len(after), s.Needed))
	}
	if why := samePlan(on, off); why != "" {
		return notEngaged(why)
	}
	if m := stats.Mean(before); m <= float64(b.Places) {
		return notEngaged(fmt.Sprintf("without flow control %.1f were ahead on average, %d run at once", m, b.Places))
	}
	most := stats.NewSample(after).NearestRank(0.95)
	was, is := quantile(firstTokens(off.offered(objective(b.High))), 0.5), quantile(firstTokens(on.offered(objective(b.High))), 0.95)
	figure := fmt.Sprintf("ahead: %.1f without, at most %v with; first token: median %v s without, p95 %v s with", stats.Mean(before), most, was, is)
	switch {
	case most > float64(s.Count):
		return fail(figure, fmt.Sprintf("with flow control at most %d batch requests may be ahead of a realtime one inside its model server", s.Count))
	case is.Lo > was.Hi:
		return fail(figure, "flow control must bring the first token of realtime forward")
	case !(is.Hi < was.Lo):
		return finding{kind: verdict.Inconclusive, figure: figure, why: "the intervals of the two first-token times overlap; more requests would decide"}
	}
	return pass(figure, fmt.Sprintf("%.1f ahead on average without flow control", stats.Mean(before)))
}

// ahead counts, for each realtime request of the window, the batch requests that were inside its model server then.
func (w window) ahead(b *Bench) []float64 {
	type stay struct {
		from, to int64
	}
	batch := map[string][]stay{}
	var high []evidence.Backend
	for _, x := range w.r.Backends {
		c, ok := w.r.ClientByID(x.ID)
		switch {
		case !ok || x.Arrival == evidence.Never:
		case c.Objective == b.Low:
			to := x.End
			if to == evidence.Never {
				to = math.MaxInt64
			}
			batch[x.Endpoint] = append(batch[x.Endpoint], stay{x.Arrival, to})
		case c.Objective == b.High && w.has(c.Intended):
			high = append(high, x)
		}
	}
	var out []float64
	for _, h := range high {
		n := 0
		for _, s := range batch[h.Endpoint] {
			if s.from < h.Arrival && s.to > h.Arrival {
				n++
			}
		}
		out = append(out, float64(n))
	}
	return out
}

// loadsVary (BEN-24): the loads of the run have two priorities, two tenants and three levels of concurrency, each half as much again as the
// one before; and in the run "growing", while ever more requests wait, the queue gauges of Names grow with them: the demand signal.
func loadsVary(s Spec, runs []evidence.Run) finding {
	levels := []string{"low", "growing", "high"}
	ws, f := joinedWindows(s, runs, levels...)
	if f != nil {
		return *f
	}
	var open []float64
	objectives, tenants := map[string]bool{}, map[string]bool{}
	for _, part := range levels {
		open = append(open, ws[part].open())
		for _, c := range ws[part].offered(anyone) {
			objectives[c.Objective], tenants[c.Tenant] = true, true
		}
	}
	sort.Float64s(open)
	for i := 1; i < len(open); i++ {
		if !(open[i] >= 1.5*open[i-1]) || !(open[0] > 0) {
			return notEngaged(fmt.Sprintf("%.1f requests were open on average: no three levels of concurrency", open))
		}
	}
	if len(objectives) < 2 || len(tenants) < 2 {
		return notEngaged(fmt.Sprintf("%d priorities and %d tenants, two of each are needed", len(objectives), len(tenants)))
	}
	w := ws["growing"]
	pages := readings(w.r, s.Mark, "router", w.span)
	if short(len(pages), s.Needed) || len(s.Names) == 0 {
		return notEngaged(fmt.Sprintf("%d pages were read while the queue grew, %d are needed", len(pages), s.Needed))
	}
	third := len(pages) / 3
	waiting := func(p reading) float64 { return float64(waitingAt(w.r, p.at)) }
	early, late := average(pages[:third], waiting), average(pages[2*third:], waiting)
	if !(late >= 1.5*early && late >= 2) {
		return notEngaged(fmt.Sprintf("%.1f requests waited at first and %.1f at last: no sustained growth", early, late))
	}
	for _, name := range s.Names {
		gauge := func(p reading) float64 { v, _ := p.sum(name, nil); return v }
		a, z := average(pages[:third], gauge), average(pages[2*third:], gauge)
		if !(z >= 1.5*a && math.Abs(z-late) <= 0.25*late) {
			return fail(fmt.Sprintf("%.1f → %.1f shown", a, z), fmt.Sprintf("%.1f → %.1f requests waited, %s shows %.1f → %.1f", early, late, name, a, z))
		}
	}
	return pass(fmt.Sprintf("%.1f → %.1f waiting, shown", early, late), fmt.Sprintf("%d priorities, %d tenants, %.1f open", len(objectives), len(tenants), open))
}

func average(pages []reading, figure func(reading) float64) float64 {
	var xs []float64
	for _, p := range pages {
		xs = append(xs, figure(p))
	}
	return stats.Mean(xs)
}

// open is the mean number of requests that clients had open in the window.
func (w window) open() float64 {
	total := int64(0)
	for _, c := range w.r.Clients {
		if c.Sent != evidence.Never && c.End != evidence.Never {
			total += max(0, min(c.End, w.to)-max(c.Sent, w.from))
		}
	}
	return float64(total) / float64(w.to-w.from)
}

// waitingAt counts the requests that were sent and not yet decided at an instant.
func waitingAt(r *evidence.Run, t int64) int {
	n := 0
	for _, c := range r.Clients {
		if until, ok := decided(r, c); ok && c.Sent != evidence.Never && c.Sent < t && until > t {
			n++
		}
	}
	return n
}
