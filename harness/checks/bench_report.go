package checks

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/stats"
)

// fourFigures (BEN-01): dispatch order, served share, queue time and refusals of every tenant and band in the saturated interval, from the
// records of clients and model servers. They account for everything: whoever was offered in the interval was dispatched, was refused, or
// was left by its client. Engaged if each of Series, a tenant and the objective of its band, offered at least Needed requests.
func fourFigures(s Spec, r *evidence.Run) finding {
	in, f := saturatedInterval(s, r)
	if f != nil {
		return *f
	}
	if len(s.Series) < 2 {
		return notEngaged("fewer than two tenants or bands to report on")
	}
	w := window{r, in}
	total := 0
	for _, b := range r.Backends {
		if w.has(b.Arrival) {
			total++
		}
	}
	var figures []string
	for _, x := range s.Series {
		name, band := x.Labels["tenant"], x.Labels["objective"]
		flow := func(c evidence.Client) bool { return c.Tenant == name && c.Objective == band }
		cs := w.offered(flow)
		if short(len(cs), s.Needed) {
			return notEngaged(fmt.Sprintf("%s at %s offered %d requests in the saturated interval, %d are needed", name, band, len(cs), s.Needed))
		}
		refused := 0
		for _, c := range cs {
			_, seen := arrival(r, c.ID)
			switch {
			case seen && c.Outcome == evidence.Refused:
				return fail(answer(c), fmt.Sprintf("%s was refused (%s) and dispatched all the same: it is in two of the four figures", c.ID, answer(c)), c.ID)
			case seen || c.Outcome == evidence.ClientCancelled:
			case c.Outcome == evidence.Refused:
				refused++
			default:
				return fail(answer(c), fmt.Sprintf("%s was neither dispatched nor refused (%s): the four figures do not account for it", c.ID, answer(c)), c.ID)
			}
		}
		over, _ := w.overtaken(flow)
		served := 0
		for _, b := range r.Backends {
			if c, ok := r.ClientByID(b.ID); ok && flow(c) && w.has(b.Arrival) {
				served++
			}
		}
		q := stats.NewSample(queued(r, cs))
		figures = append(figures, fmt.Sprintf("%s/%s: share %.3f, wait p50 %.3f p95 %.3f s, %d of %d refused, %d out of order", name, band,
			float64(served)/float64(max(1, total)), q.NearestRank(0.5), q.NearestRank(0.95), refused, len(cs), over))
	}
	return pass(strings.Join(figures, "; "), "saturated for "+ms(in.to-in.from))
}

// honestLoad (BEN-27): the load was offered as planned although answers were slow: what was due in the window was sent in it, at most Margin
// less, while up to a thousand requests were open; each answer has as many tokens at its client as at its model server; each request has
// an ending, or counts as waiting until the end. Engaged with Needed completed requests, half of which were sent while others waited.
func honestLoad(s Spec, r *evidence.Run) finding {
	w, f := windowOf(s, r)
	if f != nil {
		return *f
	}
	due, sent, beside, completed, censored := 0, 0, 0, 0, 0
	var late []float64
	for _, c := range r.Clients {
		if w.has(c.Intended) {
			due++
			late = append(late, float64(c.Behind)/1e6)
		}
		if c.Sent != evidence.Never && w.has(c.Sent) {
			sent++
		}
		if !w.has(c.Intended) {
			continue
		}
		if c.Outcome != evidence.Completed {
			censored++
			continue
		}
		b, ok := arrival(r, c.ID)
		if !ok {
			return notEngaged("no model server knows "+c.ID, c.ID)
		}
		if c.Tokens != b.Tokens {
			return fail(fmt.Sprintf("%s: %d and %d tokens", c.ID, c.Tokens, b.Tokens), fmt.Sprintf("model server %s made %d tokens for %s, its client counts %d", b.Endpoint, b.Tokens, c.ID, c.Tokens), c.ID)
		}
		completed++
		if b.Arrival-c.Sent > queueAfter {
			beside++
		}
	}
	if short(completed, s.Needed) || beside < completed/2 || !(s.Margin > 0) {
		return notEngaged(fmt.Sprintf("%d completed and %d of them waited, %d are needed and half of them", completed, beside, s.Needed))
	}
	sort.Float64s(late)
	figure := fmt.Sprintf("%d of %d sent when due, %.1f ms late at most; %d completed with equal tokens, %d censored", sent, due, late[len(late)-1], completed, censored)
	if off := math.Abs(float64(sent-due)) / float64(due); off > s.Margin {
		return fail(figure, fmt.Sprintf("the generator must offer what was planned within %.0f %%, whatever the answers do", 100*s.Margin))
	}
	return pass(figure, fmt.Sprintf("%d waited", beside))
}
