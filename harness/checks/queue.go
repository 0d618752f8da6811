package checks

import (
	"fmt"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// order: Groups must arrive at the model servers set after set. Engaged if every request was pending and unseen at the end of step
// Mark, so that the router had the free choice among all of them (Waiting narrows that to the ones that were there then).
func order(s Spec, r *evidence.Run) finding {
	ids := flatten(s.Groups)
	if len(s.Groups) < 2 || len(ids) < len(s.Groups) {
		return notEngaged("no two requests whose order could be seen")
	}
	m, f := watch(r, s.Mark)
	if f != nil {
		return *f
	}
	there := ids
	if len(s.Waiting) > 0 {
		there = s.Waiting
	}
	if why, id := allPending(r, there, m.End); why != "" {
		return notEngaged(why+" when the queue should have been complete", id)
	}
	got := arrivalOrder(r, ids)
	if a, b := tied(s, r, got); a != "" {
		return notEngaged(a+" and "+b+" arrived at the same instant, so that their order was not seen", a, b)
	}
	engaged := fmt.Sprintf("%d requests queued before the first release", len(there))
	at := 0
	for _, g := range s.Groups {
		for range g {
			if at >= len(got) {
				return fail(fmt.Sprintf("%d of %d dispatched", len(got), len(ids)),
					fmt.Sprintf("expected %s, got only %s", groupList(s.Groups), list(got)), missing(ids, got)...)
			}
			if !slices.Contains(g, got[at]) {
				if why := loosed(r, got[at]); why != "" {
					return notEngaged(why, got[at])
				}
				return fail(fmt.Sprintf("place %d: %s", at+1, got[at]),
					fmt.Sprintf("expected %s, got %s", groupList(s.Groups), list(got)), got[at])
			}
			at++
		}
	}
	if id := belated(s, r, got); id != "" {
		return notEngaged(id+" was not sent before those arrived that it competes with", id)
	}
	return pass(fmt.Sprintf("%d in order", len(got)), engaged, got...)
}

// loosed says why an arrival says nothing about order: the router had not answered a release within the step's limit, and then everything
// was let go at once, so that who comes first is the machine's doing. "" if it was released one by one.
func loosed(r *evidence.Run, id string) string {
	b, ok := arrival(r, id)
	if !ok {
		return ""
	}
	for _, s := range r.Steps {
		if s.Op == "step" && !s.OK && s.End <= b.Arrival {
			return "the step that began after " + ms(s.Start) + " had " + s.Detail + ", and everything was let go at once then"
		}
	}
	return ""
}

// belated finds a request that was sent only after one of its own group had arrived: at that one's turn there was no choice, and the
// order after it is the harness's own.
func belated(s Spec, r *evidence.Run, got []string) string {
	for _, g := range s.Groups {
		first := slices.IndexFunc(got, func(id string) bool { return slices.Contains(g, id) })
		if first < 0 {
			continue // an empty group
		}
		b, _ := arrival(r, got[first])
		for _, id := range g {
			if c, ok := r.ClientByID(id); !ok || c.Sent == evidence.Never || c.Sent >= b.Arrival {
				return id
			}
		}
	}
	return ""
}

// tied finds two neighbours of different groups that arrived at one instant: records give no order of their own.
func tied(s Spec, r *evidence.Run, got []string) (string, string) {
	group := func(id string) int {
		return slices.IndexFunc(s.Groups, func(g []string) bool { return slices.Contains(g, id) })
	}
	for i := 1; i < len(got); i++ {
		a, _ := arrival(r, got[i-1])
		b, _ := arrival(r, got[i])
		if a.Arrival == b.Arrival && group(a.ID) != group(b.ID) {
			return a.ID, b.ID
		}
	}
	return "", ""
}

func missing(all, got []string) []string {
	var out []string
	for _, id := range all {
		if !slices.Contains(got, id) {
			out = append(out, id)
		}
	}
	return out
}

// waiting: IDs stay pending and unseen to the end of step Mark, while Count requests (per endpoint: Counts) are in flight at its start.
func waiting(s Spec, r *evidence.Run) finding {
	m, f := watch(r, s.Mark)
	if f != nil {
		return *f
	}
	if len(s.IDs) == 0 {
		return notEngaged("no request to look at")
	}
	if why := lessInFlight(s, r, m.Start); why != "" {
		return notEngaged(why)
	}
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never || c.Sent > m.Start {
			return notEngaged(id+" was not sent before step "+s.Mark, id)
		}
		if why := pendingAt(r, id, m.End); why != "" {
			return fail(id+" did not wait", "expected it pending and unseen until "+s.Mark+" ended, but "+why, id)
		}
	}
	return pass(fmt.Sprintf("%d waited %s", len(s.IDs), ms(m.End-m.Start)), inFlightText(s), s.IDs...)
}

// lessInFlight says what is missing for "Count (Counts) in flight at t"; more than asked for is no lack of engagement.
func lessInFlight(s Spec, r *evidence.Run, t int64) string {
	per, total := r.InFlight(t)
	if total < s.Count {
		return fmt.Sprintf("%d in flight at the model servers, %d are needed", total, s.Count)
	}
	for _, e := range sortedKeys(s.Counts) {
		if per[e] != s.Counts[e] {
			return fmt.Sprintf("%d in flight at %s, %d are needed", per[e], e, s.Counts[e])
		}
	}
	return ""
}

func inFlightText(s Spec) string {
	if s.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%d in flight at the model servers", s.Count)
}

// inFlight: at the end of step Mark exactly Count requests (per endpoint: Counts) are inside the model servers, while Waiting are
// pending and unseen. Engaged if Waiting were sent, so that there was demand above the limit.
func inFlight(s Spec, r *evidence.Run) finding {
	m, f := watch(r, s.Mark)
	if f != nil {
		return *f
	}
	if s.Count <= 0 || len(s.Waiting) == 0 {
		return notEngaged("no limit, or no demand above it")
	}
	for _, id := range s.Waiting {
		if c, ok := r.ClientByID(id); !ok || c.Sent == evidence.Never || c.Sent > m.Start {
			return notEngaged("no demand above the limit: "+id+" was not sent", id)
		}
	}
	per, total := r.InFlight(m.End)
	for _, e := range sortedKeys(s.Counts) {
		if per[e] != s.Counts[e] {
			return fail(fmt.Sprintf("%d at %s", per[e], e), fmt.Sprintf("expected %d in flight at %s, saw %d", s.Counts[e], e, per[e]))
		}
	}
	if total != s.Count {
		return fail(fmt.Sprintf("%d in flight", total), fmt.Sprintf("expected exactly %d in flight at the model servers, saw %d", s.Count, total), s.Waiting...)
	}
	for _, id := range s.Waiting {
		if why := pendingAt(r, id, m.End); why != "" {
			return fail(id+" did not wait", "expected it pending and unseen above the limit, but "+why, id)
		}
	}
	return pass(fmt.Sprintf("%d in flight, %d waiting", total, len(s.Waiting)), fmt.Sprintf("demand of %d above the limit", len(s.Waiting)), s.Waiting...)
}

// together: IDs, of which there are more than one, are all inside the model servers at the end of step Mark. Engaged if all were sent
// before it began.
func together(s Spec, r *evidence.Run) finding {
	m, f := watch(r, s.Mark)
	if f != nil {
		return *f
	}
	if len(s.IDs) < 2 {
		return notEngaged("fewer than two requests")
	}
	for _, id := range s.IDs {
		if c, ok := r.ClientByID(id); !ok || c.Sent == evidence.Never || c.Sent > m.Start {
			return notEngaged(id+" was not sent", id)
		}
	}
	for _, id := range s.IDs {
		b, ok := arrival(r, id)
		if !ok || b.Arrival > m.End || b.End != evidence.Never && b.End <= m.End {
			return fail(id+" is not in flight", fmt.Sprintf("expected all of %s inside the model servers at once, %s is not", list(s.IDs), id), id)
		}
	}
	return pass(fmt.Sprintf("%d in flight at once", len(s.IDs)), fmt.Sprintf("%d sent", len(s.IDs)), s.IDs...)
}

// arrives: IDs arrive at a model server no later than Within after they were sent, or after the start of step After. With After they
// must have been pending then (otherwise nothing waited). Waiting must still be pending at the last of these arrivals.
func arrives(s Spec, r *evidence.Run) finding {
	worst := int64(0)
	last := int64(0)
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never {
			return notEngaged(id+" was not sent", id)
		}
		from := c.Sent
		if s.After != "" {
			m, f := mark(r, s.After)
			if f != nil {
				return *f
			}
			if why := pendingAt(r, id, m.Start); why != "" {
				return notEngaged(why+" before capacity was freed", id)
			}
			from = m.Start
		}
		b, ok := arrival(r, id)
		if !ok {
			return fail(id+" never arrived", fmt.Sprintf("expected at a model server within %s, client saw: %s", s.Within, answer(c)), id)
		}
		if d := b.Arrival - from; d > int64(s.Within) {
			return fail(id+" after "+ms(d), fmt.Sprintf("expected at a model server within %s", s.Within), id)
		} else if d > worst {
			worst = d
		}
		last = max(last, b.Arrival)
	}
	if len(s.IDs) == 0 {
		return notEngaged("no request to look at")
	}
	for _, id := range s.Waiting {
		// One nanosecond later, because what arrives together with the last of them did not wait for it.
		if why := pendingAt(r, id, last+1); why != "" {
			return fail(id+" did not wait", "expected it pending while the others were served, but "+why, id)
		}
	}
	if st, ok := r.StepByMark(s.After); s.After != "" && ok && !st.OK {
		return notEngaged("step " + s.After + ": " + st.Detail)
	}
	return pass("arrived after "+ms(worst), fmt.Sprintf("%d requests", len(s.IDs)), s.IDs...)
}

// neverServed: IDs are never seen at a model server although Then are. Engaged if all of them were pending at the end of step Mark,
// and the clients of IDs left before Then were served.
func neverServed(s Spec, r *evidence.Run) finding {
	m, f := watch(r, s.Mark)
	if f != nil {
		return *f
	}
	if len(s.IDs) == 0 || len(s.Then) == 0 {
		return notEngaged("no request that left, or none behind it")
	}
	if why, id := allPending(r, append(slices.Clone(s.IDs), s.Then...), m.End); why != "" {
		return notEngaged(why, id)
	}
	for _, id := range s.IDs {
		if b, ok := r.BackendByID(id); ok {
			return fail(id+" was dispatched", fmt.Sprintf("it had left the queue, but reached model server %s", b.Endpoint), id)
		}
	}
	for _, id := range s.Then {
		if _, ok := arrival(r, id); !ok {
			return fail(id+" never arrived", "the request behind the one that left must be served", id)
		}
	}
	for _, id := range s.IDs {
		c, _ := r.ClientByID(id)
		if c.Outcome != evidence.ClientCancelled || c.End == evidence.Never {
			return notEngaged(id+" was not cancelled by its client, it ended as "+answer(c), id)
		}
		for _, then := range s.Then {
			if b, _ := arrival(r, then); b.Arrival < c.End {
				return notEngaged(then+" was served before "+id+" left", then, id)
			}
		}
	}
	return pass(fmt.Sprintf("%d never dispatched", len(s.IDs)), "pending before the client left", s.IDs...)
}

// onePerRelease: each release of step Mark is followed by exactly one arrival before the step ends, as long as anything waits.
func onePerRelease(s Spec, r *evidence.Run) finding {
	steps := r.StepsByMark(s.Mark)
	for i, st := range steps {
		n := 0
		for _, b := range r.Backends {
			if b.Arrival > st.Start && b.Arrival <= st.End {
				n++
			}
		}
		waitingThen := 0
		for _, id := range s.IDs {
			if pendingAt(r, id, st.Start) == "" {
				waitingThen++
			}
		}
		// Too many arrivals are a fault however the rest went: they empty the queue, and the later releases have nothing to show.
		if n > 1 || n == 0 && waitingThen > 0 {
			return fail(fmt.Sprintf("%d arrivals", n), fmt.Sprintf("release %d of one request was followed by %d arrivals within %s, expected exactly one", i+1, n, time.Duration(st.End-st.Start)), st.IDs...)
		}
		if waitingThen == 0 && i < s.Needed {
			return notEngaged(fmt.Sprintf("nothing waited at release %d", i+1))
		}
	}
	if len(steps) < s.Needed || s.Needed == 0 {
		return notEngaged(fmt.Sprintf("%d of %d releases were made", len(steps), s.Needed))
	}
	return pass(fmt.Sprintf("%d releases, one arrival each", len(steps)), "the queue was never empty")
}

// gate: probes Open pass within Within, probes Closed are unseen for Min and end only because the harness takes them back.
func gate(s Spec, r *evidence.Run) finding {
	for _, id := range s.Open {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never {
			return notEngaged("probe "+id+" was not sent", id)
		}
		b, ok := arrival(r, id)
		if !ok {
			return fail(id+" stayed closed", fmt.Sprintf("the gate should be open, but the probe was not at a model server within %s (client saw: %s)", s.Within, answer(c)), id)
		}
		if d := b.Arrival - c.Sent; d > int64(s.Within) {
			return fail(id+" after "+ms(d), fmt.Sprintf("the gate should be open, but the probe needed longer than %s", s.Within), id)
		}
	}
	for _, id := range s.Closed {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never {
			return notEngaged("probe "+id+" was not sent", id)
		}
		if b, ok := r.BackendByID(id); ok {
			return fail(id+" passed", fmt.Sprintf("the gate should be closed, but the probe was at model server %s after %s", b.Endpoint, ms(b.Arrival-c.Sent)), id)
		}
		if c.Outcome != evidence.ClientCancelled || c.End-c.Sent < int64(s.Min) {
			return fail(id+" ended by itself", fmt.Sprintf("a closed gate makes the probe wait, but it ended after %s with %s", ms(c.End-c.Sent), answer(c)), id)
		}
	}
	if len(s.Open)+len(s.Closed) == 0 || len(s.Closed) > 0 && s.Min <= 0 {
		return notEngaged("no probe, or no time for which a closed one must wait")
	}
	return pass(fmt.Sprintf("%d open, %d closed as expected", len(s.Open), len(s.Closed)), "scripted values were scraped", append(slices.Clone(s.Open), s.Closed...)...)
}

// servedBy: each request is served by the endpoint named for it.
func servedBy(s Spec, r *evidence.Run) finding {
	if s.Mark != "" {
		m, f := mark(r, s.Mark)
		if f != nil {
			return *f
		}
		if why := lessInFlight(s, r, m.End); why != "" {
			return notEngaged(why)
		}
	}
	ids := sortedKeys(s.Endpoint)
	if len(ids) == 0 {
		return notEngaged("no request to look at")
	}
	for _, id := range ids {
		if c, ok := r.ClientByID(id); !ok || c.Sent == evidence.Never {
			return notEngaged(id+" was not sent", id)
		}
		b, ok := arrival(r, id)
		if !ok {
			return fail(id+" was not served", "expected at "+s.Endpoint[id], id)
		}
		if b.Endpoint != s.Endpoint[id] {
			return fail(id+" at "+b.Endpoint, "expected at "+s.Endpoint[id], id)
		}
	}
	return pass(fmt.Sprintf("%d at the expected endpoint", len(ids)), inFlightText(s), ids...)
}
