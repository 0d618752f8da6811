package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
)

// asyncAnswers: between Min and Max attempts for the ids were answered with Status and, where Codes are given, one of these reasons, and,
// where Shape is given, with this ending. The
// figure tells how long it took from each to the message's result.
func asyncAnswers(a Async, r *evidence.Run) finding {
	if why := a.unsent(r, 1<<62); why != "" {
		return notEngaged(why)
	}
	if a.Status == 0 {
		return notEngaged("nothing is looked for")
	}
	results := a.results(r)
	var took []string
	n, all := 0, 0
	for _, x := range a.attempts(r, 0, 1<<62) {
		all++
		if x.Status != a.Status || a.Shape != "" && x.Ending != a.Shape || len(a.Codes) > 0 && !slices.Contains(a.Codes, x.Reason) {
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
	what := fmt.Sprintf("%d %s", a.Status, strings.Join(a.Codes, " or "))
	if !within(n, a.Min, a.Max) {
		return fail(fmt.Sprintf("%d times %s", n, what), fmt.Sprintf("%d of %d attempts were answered with %s, expected %s", n, all, what, bounded(a.Min, a.Max)))
	}
	figure := fmt.Sprintf("%d times %s", n, what)
	if len(took) > 0 {
		figure += ", result after " + strings.Join(took, ", ")
	}
	return pass(figure, fmt.Sprintf("%d attempts", all))
}

// asyncServed: how requests came to the model servers. Shape "order": as Order, each id by its first arrival; "first": all of the ids are
// among the first Max arrivals after the end of step From; "never": none of the ids came; "aborted": each came, and its peer went away.
func asyncServed(a Async, r *evidence.Run) finding {
	from, to, why := asyncSpan(a, r)
	if why != "" {
		return notEngaged(why)
	}
	backends := slices.Clone(r.Backends)
	slices.SortStableFunc(backends, func(x, y evidence.Backend) int { return cmp.Compare(x.Arrival, y.Arrival) })
	var order []string
	for _, b := range backends {
		if b.Arrival != evidence.Never && b.Arrival >= from && b.Arrival <= to {
			order = append(order, b.ID)
		}
	}
	if len(backends) == 0 {
		return notEngaged("the model servers saw nothing")
	}
	engaged := fmt.Sprintf("%d arrivals at model servers", len(order))
	switch a.Shape {
	case "order":
		return servedInOrder(a, order, engaged)
	case "first":
		return servedFirst(a, r, order, engaged)
	case "never":
		if why := a.unsent(r, 1<<62); why != "" {
			return notEngaged(why)
		}
		for _, id := range order {
			if matchesID(a.IDs, id) {
				return fail(id+" was served", id+" came to a model server, expected that it never does", id)
			}
		}
		return pass("never served", engaged)
	case "aborted":
		if why := a.unsent(r, 1<<62); why != "" {
			return notEngaged(why)
		}
		n := 0
		for _, b := range backends {
			if !matchesID(a.IDs, b.ID) {
				continue
			}
			if n++; b.Ending != evidence.Aborted {
				return fail(b.ID+" "+b.Ending, fmt.Sprintf("%s ended at its model server as %s, expected that its peer goes away", b.ID, b.Ending), b.ID)
			}
		}
		if n == 0 {
			return notEngaged("none of them came to a model server")
		}
		return pass(fmt.Sprintf("%d aborted", n), engaged)
	}
	return notEngaged("nothing is looked for")
}

func servedInOrder(a Async, order []string, engaged string) finding {
	if len(a.Order) < 2 {
		return notEngaged("no two requests whose order could be seen")
	}
	var seen []string
	for _, id := range order {
		if slices.Contains(a.Order, id) && !slices.Contains(seen, id) {
			seen = append(seen, id)
		}
	}
	if len(seen) < len(a.Order) {
		return notEngaged(fmt.Sprintf("%d of %d came to a model server", len(seen), len(a.Order)))
	}
	if !slices.Equal(seen, a.Order) {
		return fail(strings.Join(seen, " "), fmt.Sprintf("they came as %s, expected %s", strings.Join(seen, " "), strings.Join(a.Order, " ")), seen...)
	}
	return pass(strings.Join(seen, " "), engaged)
}

func servedFirst(a Async, r *evidence.Run, order []string, engaged string) finding {
	wanted := a.submitted(r)
	if len(wanted) == 0 || len(order) <= a.Max || a.Max < len(wanted) {
		return notEngaged(fmt.Sprintf("%d arrivals and %d messages, among the first %d", len(order), len(wanted), a.Max))
	}
	for _, id := range wanted {
		if at := slices.Index(order, id); at < 0 || at >= a.Max {
			return fail(fmt.Sprintf("%s at place %d", id, at+1), fmt.Sprintf("%s is not among the first %d: %s", id, a.Max, strings.Join(order, " ")), id)
		}
	}
	return pass(fmt.Sprintf("among the first %d", a.Max), engaged)
}
