package checks

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
)

// engineFamilies say how full a model server is; the first two add up to what is inside it.
var engineFamilies = [4]string{wire.VLLMRunning, wire.VLLMWaiting, wire.VLLMKVUsage, wire.VLLMPreemptions}

// Guards of the saturated interval. A request in passing is no queue: one counts as waiting once it has been sent for queueAfter; and a
// queue that runs empty for less than queueGap, between one burst and the next, does not end the interval.
const (
	queueAfter = int64(50 * time.Millisecond)
	queueGap   = int64(200 * time.Millisecond)
)

// saturatedInterval is the one interval that all three verifications refer to (BEN-05): the longest time in which somebody was waiting
// for a place, by the records of clients and model servers alone. It counts from Min on, and if the model servers held at least nine
// tenths of Count, the configured limit, on average.
func saturatedInterval(s Spec, r *evidence.Run) (span, *finding) {
	none := func(why string) (span, *finding) {
		f := notEngaged(why)
		return span{}, &f
	}
	m, f := watch(r, s.Mark)
	if f != nil {
		return span{}, f
	}
	if s.Min <= 0 || s.Count < 1 || s.Needed < 1 {
		return none("no length, limit or number of pages from which an interval counts")
	}
	var waits []span
	for _, c := range r.Clients {
		until, ok := decided(r, c)
		if c.Sent == evidence.Never || !ok {
			continue
		}
		if from := max(c.Sent, m.Start) + queueAfter; until > from {
			waits = append(waits, span{from, min(until, m.End)})
		}
	}
	sort.Slice(waits, func(i, j int) bool { return waits[i].from < waits[j].from })
	var best, now span
	for i, w := range waits {
		if i == 0 || w.from > now.to+queueGap {
			now = w
		}
		now.to = max(now.to, w.to)
		if now.to-now.from > best.to-best.from {
			best = now
		}
	}
	if best.to-best.from < int64(s.Min) {
		return none(fmt.Sprintf("the longest saturated interval is %s, %s are needed", ms(best.to-best.from), s.Min))
	}
	if held := meanInside(r, best); held < 0.9*float64(s.Count) {
		return none(fmt.Sprintf("the model servers held %.1f requests on average, the limit is %d", held, s.Count))
	}
	return best, nil
}

// meanInside is the mean number of requests inside the model servers.
func meanInside(r *evidence.Run, in span) float64 {
	total := int64(0)
	for _, b := range r.Backends {
		if b.Arrival == evidence.Never {
			continue
		}
		end := b.End
		if end == evidence.Never {
			end = in.to
		}
		total += max(0, min(end, in.to)-max(b.Arrival, in.from))
	}
	return float64(total) / float64(in.to-in.from)
}

// reading is a page as it was read during a load.
type reading struct {
	at      int64
	samples []evidence.Sample
}

// sum adds up the series of a name that have the labels; false if there is none.
func (p reading) sum(name string, labels map[string]string) (float64, bool) {
	total, found := 0.0, false
	for _, sm := range p.samples {
		if sm.Name == name && subset(labels, sm.Labels) {
			total += sm.Value
			found = true
		}
	}
	return total, found
}

// reached tells whether each of the gauges named reads at least v somewhere.
func (p reading) reached(names []string, v float64) bool {
	for _, n := range names {
		if !slices.ContainsFunc(p.samples, func(sm evidence.Sample) bool { return sm.Name == n && sm.Value >= v }) {
			return false
		}
	}
	return len(names) > 0
}

// readings lists the pages of a source that were read under a mark inside an interval.
func readings(r *evidence.Run, mark, source string, in span) []reading {
	at := map[int64]int{}
	var out []reading
	for _, sm := range r.Samples {
		if sm.Mark != mark || sm.Source != source || sm.At < in.from || sm.At > in.to {
			continue
		}
		i, ok := at[sm.At]
		if !ok {
			i = len(out)
			at[sm.At] = i
			out = append(out, reading{at: sm.At})
		}
		out[i].samples = append(out[i].samples, sm)
	}
	return out
}

// saturatedPages finds the interval and the router's pages in it.
func saturatedPages(s Spec, r *evidence.Run) (span, []reading, *finding) {
	in, f := saturatedInterval(s, r)
	if f != nil {
		return in, nil, f
	}
	pages := readings(r, s.Mark, "router", in)
	if short(len(pages), s.Needed) {
		n := notEngaged(fmt.Sprintf("%d pages of the router were read in the saturated interval, %d are needed", len(pages), s.Needed))
		return in, nil, &n
	}
	return in, pages, nil
}

// showsBands (BEN-02): in the saturated interval the gauges of Names show every series of Series, with at least its value whenever its
// clients say so. Engaged if each tenant that must read above zero was waiting at Needed pages at least.
func showsBands(s Spec, r *evidence.Run) finding {
	in, pages, f := saturatedPages(s, r)
	if f != nil {
		return *f
	}
	if len(s.Names) == 0 || len(s.Series) < 2 {
		return notEngaged("no gauge, or fewer than two bands or tenants to tell apart")
	}
	for _, x := range s.Series {
		due := pages
		if x.Value > 0 {
			due = whileWaiting(r, pages, x.Labels["fairness_id"])
		}
		if short(len(due), s.Needed) {
			return notEngaged(fmt.Sprintf("%s had somebody waiting at %d pages, %d are needed", labelText(x.Labels), len(due), s.Needed))
		}
		for _, name := range s.Names {
			shown := 0
			for _, p := range due {
				if v, ok := p.sum(name, x.Labels); ok && v >= x.Value {
					shown++
				}
			}
			// A series begins with the first request of its flow, and a page may be read in the instant of a change.
			if shown < len(due)*9/10 {
				return fail(fmt.Sprintf("%s on %d of %d pages", labelText(x.Labels), shown, len(due)),
					fmt.Sprintf("%s must show %s with at least %v in the saturated interval, it did on %d of %d pages", name, labelText(x.Labels), x.Value, shown, len(due)))
			}
		}
	}
	return pass(fmt.Sprintf("%d series on %d pages", len(s.Series), len(pages)), "saturated for "+ms(in.to-in.from))
}

// whileWaiting keeps the pages around whose instant a tenant had somebody waiting for a tenth of a second.
func whileWaiting(r *evidence.Run, pages []reading, name string) []reading {
	const around = int64(50 * time.Millisecond)
	var spans []span
	for _, c := range r.Clients {
		if until, ok := decided(r, c); ok && c.Tenant == name && c.Sent != evidence.Never {
			spans = append(spans, span{c.Sent + around, until - around})
		}
	}
	var out []reading
	for _, p := range pages {
		if slices.ContainsFunc(spans, func(w span) bool { return w.from < p.at && w.to > p.at }) {
			out = append(out, p)
		}
	}
	return out
}

// gateEngaged (BEN-03): in the saturated interval the saturation gauge reaches the boundary and the queue gauge is above zero, both on
// Needed pages at least.
func gateEngaged(s Spec, r *evidence.Run) finding {
	in, pages, f := saturatedPages(s, r)
	if f != nil {
		return *f
	}
	b := s.Bench
	if b == nil || b.Boundary <= 0 || len(b.Saturation) == 0 || len(s.Names) == 0 {
		return notEngaged("no gauge or no boundary to look for")
	}
	closed, queue, most := 0, 0, math.Inf(-1)
	for _, p := range pages {
		if p.reached(b.Saturation, b.Boundary) {
			closed++
		}
		if aboveZero(p, s.Names) {
			queue++
		}
		for _, sm := range p.samples {
			if slices.Contains(b.Saturation, sm.Name) {
				most = max(most, sm.Value)
			}
		}
	}
	figure := fmt.Sprintf("saturation ≥ %v on %d, queue above 0 on %d of %d pages", b.Boundary, closed, queue, len(pages))
	if short(closed, s.Needed) || short(queue, s.Needed) {
		return fail(figure, fmt.Sprintf("requests waited for %s behind full model servers; the page must show saturation %v and a queue on %d pages, it showed at most %.3g", ms(in.to-in.from), b.Boundary, s.Needed, most))
	}
	return pass(figure, fmt.Sprintf("%.1f inside on average, limit %d", meanInside(r, in), s.Count))
}

func aboveZero(p reading, names []string) bool {
	for _, n := range names {
		if v, ok := p.sum(n, nil); !ok || !(v > 0) {
			return false
		}
	}
	return len(names) > 0
}

// sameInterval (BEN-05): the three verifications hold together: on Needed pages of the one saturated interval the gate is closed, the
// queue is above zero, and each model server's own page, read within half a period of it, shows requests running. All instants are of
// one clock.
func sameInterval(s Spec, r *evidence.Run) finding {
	in, pages, f := saturatedPages(s, r)
	if f != nil {
		return *f
	}
	b := s.Bench
	if b == nil || b.Boundary <= 0 || len(b.Saturation) == 0 || len(s.Names) == 0 || s.Within <= 0 {
		return notEngaged("no gauge, no boundary, or no time within which pages belong together")
	}
	engines := map[string][]reading{}
	for e := range endpoints(r) {
		engines[e] = readings(r, s.Mark, e, in)
		if short(len(engines[e]), s.Needed) {
			return notEngaged(fmt.Sprintf("%d pages of model server %s were read in the saturated interval, %d are needed", len(engines[e]), e, s.Needed))
		}
	}
	together := 0
	for _, p := range pages {
		if p.reached(b.Saturation, b.Boundary) && aboveZero(p, s.Names) && allRunning(engines, p.at, int64(s.Within)) {
			together++
		}
	}
	figure := fmt.Sprintf("all three on %d of %d pages in %s", together, len(pages), ms(in.to-in.from))
	if short(together, s.Needed) {
		return fail(figure, fmt.Sprintf("the signals of routing, queueing and engine pressure must be seen together on %d pages of the saturated interval", s.Needed))
	}
	return pass(figure, "one clock, one interval")
}

// endpoints are the model servers that saw anything.
func endpoints(r *evidence.Run) map[string]bool {
	out := map[string]bool{}
	for _, b := range r.Backends {
		if b.Arrival != evidence.Never {
			out[b.Endpoint] = true
		}
	}
	return out
}

func allRunning(engines map[string][]reading, at, within int64) bool {
	for _, e := range sortedKeys(engines) {
		if !slices.ContainsFunc(engines[e], func(p reading) bool {
			v, ok := p.sum(engineFamilies[0], nil)
			return ok && v > 0 && max(p.at-at, at-p.at) <= within
		}) {
			return false
		}
	}
	return len(engines) > 0
}

// pressure (BEN-04): in the saturated interval each model server's page shows running, waiting, KV use and preemptions, and running and
// waiting add up to what was inside by its own log, on average within the share Margin. Engaged if each had at least Bench.Places inside
// and Needed pages.
func pressure(s Spec, r *evidence.Run) finding {
	in, _, f := saturatedPages(s, r)
	if f != nil {
		return *f
	}
	if !(s.Margin > 0 && s.Margin < 1) || s.Bench == nil || s.Bench.Places < 1 {
		return notEngaged("a margin that excludes nothing, or no number of places")
	}
	var figures []string
	for _, e := range sortedKeys(endpoints(r)) {
		pages := readings(r, s.Mark, e, in)
		if short(len(pages), s.Needed) {
			return notEngaged(fmt.Sprintf("%d pages of model server %s were read in the saturated interval, %d are needed", len(pages), e, s.Needed))
		}
		var sums [4]float64
		inside, first, last := 0.0, 0.0, 0.0
		for k, p := range pages {
			for i, name := range engineFamilies {
				v, ok := p.sum(name, nil)
				if !ok {
					return fail(name+" is missing", fmt.Sprintf("the page of model server %s does not show %s in the saturated interval", e, name))
				}
				sums[i] += v / float64(len(pages))
				if last = v; k == 0 {
					first = v
				}
			}
			per, _ := r.InFlight(p.at)
			inside += float64(per[e]) / float64(len(pages))
		}
		if inside < float64(s.Bench.Places) {
			return notEngaged(fmt.Sprintf("%.1f inside model server %s on average, it runs %d at once", inside, e, s.Bench.Places))
		}
		if shown := sums[0] + sums[1]; !(math.Abs(shown-inside) <= s.Margin*inside) {
			return fail(fmt.Sprintf("%s: %.2f shown, %.2f inside", e, shown, inside),
				fmt.Sprintf("running and waiting of model server %s must explain the %.2f requests that were inside it on average, they read %.2f", e, inside, shown))
		}
		figures = append(figures, fmt.Sprintf("%s: running %.2f, waiting %.2f, KV %.4f, %v preempted", e, sums[0], sums[1], sums[2], last-first))
	}
	return pass(strings.Join(figures, "; "), "saturated for "+ms(in.to-in.from))
}
