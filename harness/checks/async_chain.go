package checks

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
)

// asyncAnswers: between Min and Max attempts for the ids were answered with Status (0: any) and, where Codes are given, one of these reasons,
// and, where Shape is given, with this ending. An attempt without an ending may still be answered so. The figure tells how long it took
// from each to the message's result.
func asyncAnswers(a Async, r *evidence.Run) finding {
	why := a.unsent(r, math.MaxInt64)
	switch {
	case why != "":
		return notEngaged(why)
	case a.Status == 0 && len(a.Codes) == 0:
		return notEngaged("nothing is looked for")
	case a.Min <= 0 && a.Max < 0:
		return notEngaged("any number would do")
	case !slices.Contains([]string{"", evidence.Answered, evidence.BrokenOff, evidence.Dropped}, a.Shape):
		return notEngaged("an answer does not end as " + a.Shape)
	}
	results := a.results(r)
	var took []string
	n, open, all := 0, 0, 0
	for _, x := range a.attempts(r, 0, math.MaxInt64) {
		all++
		if a.Status != 0 && x.Status != a.Status || a.Shape != "" && x.Ending != a.Shape || len(a.Codes) > 0 && !slices.Contains(a.Codes, x.Reason) {
			if x.End == evidence.Never {
				open++
			}
			continue
		}
		n++
		if res := results[x.ID]; len(res) > 0 && len(took) < 3 {
			took = append(took, fmt.Sprintf("%s: %s", x.ID, ms(res[0].at-x.End)))
		}
	}
	if all == 0 {
		return notEngaged("no attempt was made")
	}
	what := strings.TrimSpace(strings.TrimPrefix(fmt.Sprint(a.Status), "0") + " " + strings.Join(a.Codes, " or "))
	figure := fmt.Sprintf("%d times %s", n, what)
	switch {
	case !within(n, a.Min, a.Max):
		return fail(figure, fmt.Sprintf("%d of %d attempts were answered with %s, expected %s", n, all, what, bounded(a.Min, a.Max)))
	case !within(n+open, a.Min, a.Max):
		return notEngaged(fmt.Sprintf("%d attempts have no ending, which leaves their answers open", open))
	}
	if len(took) > 0 {
		figure += ", result after " + strings.Join(took, ", ")
	}
	return pass(figure, fmt.Sprintf("%d attempts", all))
}

// asyncServed: how requests came to the model servers in the window. Shape "order": as Order, each id by its first arrival, and all were there
// when the first one came; "first": all of the messages are among the first Max arrivals, and more than Max were there when the window began;
// "never": each of the messages was tried, and none came; "aborted": each came, and its peer went away.
func asyncServed(a Async, r *evidence.Run) finding {
	from, to, why := asyncSpan(a, r)
	switch {
	case why != "":
		return notEngaged(why)
	case len(r.Backends) == 0:
		return notEngaged("the model servers saw nothing")
	}
	came := slices.DeleteFunc(slices.Clone(r.Backends), func(b evidence.Backend) bool {
		return b.Arrival == evidence.Never || b.Arrival < from || b.Arrival > to
	})
	slices.SortStableFunc(came, func(x, y evidence.Backend) int { return cmp.Compare(x.Arrival, y.Arrival) })
	if a.Shape == "order" {
		return servedInOrder(a, r, came)
	}
	if why := a.unsent(r, math.MaxInt64); why != "" {
		return notEngaged(why)
	}
	switch a.Shape {
	case "first":
		return servedFirst(a, r, came, from)
	case "never":
		if len(came) == 0 {
			return notEngaged("no arrival of anybody was recorded")
		}
		return servedNever(a, r, came)
	case "aborted":
		return servedAborted(a, r, came)
	}
	return notEngaged("nothing is looked for")
}

// present tells whether a request was under way to the model servers at an instant: sent by a client or tried by the processor, and not over.
func present(r *evidence.Run, id string, t int64) bool {
	spans := func(from, to int64) bool {
		return from != evidence.Never && from <= t && (to == evidence.Never || to >= t)
	}
	if c, ok := r.ClientByID(id); ok && spans(c.Sent, c.End) {
		return true
	}
	return slices.ContainsFunc(r.Observations, func(o evidence.Observation) bool {
		return o.Attempt != nil && o.Attempt.ID == id && spans(o.At, o.Attempt.End)
	})
}

func servedInOrder(a Async, r *evidence.Run, came []evidence.Backend) finding {
	if len(a.Order) < 2 {
		return notEngaged("no two requests whose order could be seen")
	}
	var seen []string
	var first, last int64
	for _, b := range came {
		if !slices.Contains(a.Order, b.ID) || slices.Contains(seen, b.ID) {
			continue
		}
		if len(seen) == 0 {
			first = b.Arrival
		} else if b.Arrival == last {
			return notEngaged(b.ID + " came at one instant with another, so that their order was not seen")
		}
		seen, last = append(seen, b.ID), b.Arrival
	}
	if len(seen) < len(a.Order) {
		return notEngaged(fmt.Sprintf("%d of %d came to a model server", len(seen), len(a.Order)))
	}
	for _, id := range seen {
		if !present(r, id, first) {
			return notEngaged(id + " was not there when " + seen[0] + " was let in, so that there was no choice")
		}
	}
	if !slices.Equal(seen, a.Order) {
		return fail(strings.Join(seen, " "), fmt.Sprintf("they came as %s, expected %s", strings.Join(seen, " "), strings.Join(a.Order, " ")), seen...)
	}
	return pass(strings.Join(seen, " "), fmt.Sprintf("%d there when the first was let in", len(seen)))
}

func servedFirst(a Async, r *evidence.Run, came []evidence.Backend, from int64) finding {
	wanted := a.submitted(r)
	var order []string
	there := map[string]bool{}
	for _, b := range came {
		order = append(order, b.ID)
		there[b.ID] = there[b.ID] || present(r, b.ID, from)
	}
	waited := 0
	for _, ok := range there {
		if ok {
			waited++
		}
	}
	switch {
	case a.Max < len(wanted) || waited <= a.Max:
		return notEngaged(fmt.Sprintf("%d of those that came waited when the window began, of which %d were to be among the first %d", waited, len(wanted), a.Max))
	case came[a.Max-1].Arrival == came[a.Max].Arrival:
		return notEngaged(fmt.Sprintf("places %d and %d came at one instant", a.Max, a.Max+1))
	}
	for _, id := range wanted {
		if !present(r, id, from) {
			return notEngaged(id + " was not there when the window began")
		}
	}
	for _, id := range wanted {
		if !slices.Contains(order[:a.Max], id) {
			return fail(fmt.Sprintf("%s is not among the first %d", id, a.Max), fmt.Sprintf("%s is not among the first %d: %s", id, a.Max, strings.Join(order, " ")), id)
		}
	}
	return pass(fmt.Sprintf("among the first %d", a.Max), fmt.Sprintf("%d waited when the window began", waited))
}

func servedNever(a Async, r *evidence.Run, came []evidence.Backend) finding {
	wanted := a.submitted(r)
	// A record without an instant shows that a model server knows the request, which is enough against the router.
	for _, b := range append(slices.DeleteFunc(slices.Clone(r.Backends), func(b evidence.Backend) bool { return b.Arrival != evidence.Never }), came...) {
		if slices.Contains(wanted, b.ID) {
			return fail(b.ID+" was served", b.ID+" came to a model server, expected that it never does", b.ID)
		}
	}
	over := map[string]bool{}
	for _, x := range a.attempts(r, 0, math.MaxInt64) {
		over[x.ID] = x.End != evidence.Never
	}
	for _, id := range wanted {
		switch ended, tried := over[id]; {
		case !tried:
			return notEngaged(id + " was not tried")
		case !ended:
			return notEngaged(id + " is still on its way")
		}
	}
	return pass("never served", fmt.Sprintf("%d tried, %d arrivals of others", len(wanted), len(came)))
}

func servedAborted(a Async, r *evidence.Run, came []evidence.Backend) finding {
	wanted := a.submitted(r)
	for _, b := range r.Backends {
		if slices.Contains(wanted, b.ID) && b.Ending != evidence.Aborted {
			return fail(b.ID+" "+b.Ending, fmt.Sprintf("%s ended at its model server as %s, expected that its peer goes away", b.ID, b.Ending), b.ID)
		}
	}
	for _, id := range wanted {
		if !slices.ContainsFunc(came, func(b evidence.Backend) bool { return b.ID == id && b.End != evidence.Never }) {
			return notEngaged(id + " did not come to a model server, or left it at no instant")
		}
	}
	return pass(fmt.Sprintf("%d aborted", len(wanted)), fmt.Sprintf("%d arrivals at model servers", len(came)))
}
