package checks

import (
	"fmt"

	"github.com/llm-weir/weir/harness/evidence"
)

// either: each of IDs is served, or refused by the router no sooner than Min; never both, and both happen.
func either(s Spec, r *evidence.Run) finding {
	served, refused := 0, 0
	if s.Min <= 0 {
		return notEngaged("no wait before which a refusal would come too soon")
	}
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never {
			return notEngaged(id+" was not sent", id)
		}
		b, seen := r.BackendByID(id)
		switch {
		case c.Outcome == evidence.Completed && seen && b.Arrival != evidence.Never:
			served++
		case c.Outcome == evidence.Refused && !seen && c.End-c.Sent >= int64(s.Min):
			refused++
		case seen:
			return fail(answer(c), fmt.Sprintf("%s was at model server %s, its client saw %s", id, b.Endpoint, answer(c)), id)
		default:
			return fail(answer(c), fmt.Sprintf("%s must be served, or refused after %s; it ended after %s with %s", id, s.Min, ms(c.End-c.Sent), answer(c)), id)
		}
	}
	if served == 0 || refused == 0 {
		return notEngaged(fmt.Sprintf("%d served and %d refused, both must occur", served, refused))
	}
	return pass(fmt.Sprintf("%d served, %d refused, none both", served, refused), "the limit struck while capacity was freed", s.IDs...)
}

// stays: each of IDs is seen at one model server once, for at least Min, and finishes there.
func stays(s Spec, r *evidence.Run) finding {
	if s.Min <= 0 {
		return notEngaged("no time for which a request must stay")
	}
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never {
			return notEngaged(id+" was not sent", id)
		}
		var at []evidence.Backend
		for _, b := range r.Backends {
			if b.ID == id {
				at = append(at, b)
			}
		}
		switch {
		case len(at) == 0 || at[0].Arrival == evidence.Never:
			return notEngaged(id+" was not dispatched", id)
		case len(at) > 1:
			return fail(fmt.Sprintf("%d arrivals", len(at)), fmt.Sprintf("%s was at %s and then at %s", id, at[0].Endpoint, at[1].Endpoint), id)
		case at[0].Ending != evidence.Finished:
			return fail(id+" "+at[0].Ending, id+" must finish where it was dispatched", id)
		case c.Outcome != evidence.Completed:
			return fail(answer(c), fmt.Sprintf("%s finished where it was dispatched, its client saw %s", id, answer(c)), id)
		case at[0].End-at[0].Arrival < int64(s.Min):
			return notEngaged(id+" ran only "+ms(at[0].End-at[0].Arrival), id)
		}
	}
	if len(s.IDs) == 0 {
		return notEngaged("no request to look at")
	}
	return pass(fmt.Sprintf("%d stayed", len(s.IDs)), "a second endpoint was idle", s.IDs...)
}
