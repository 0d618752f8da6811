package checks

import (
	"fmt"
	"slices"

	"github.com/llm-weir/weir/harness/evidence"
)

// peak: at no instant are more than Count requests inside the model servers. Engaged if more than that wanted to be at one instant,
// at least Needed ran at once, and the model servers' records are whole.
func peak(s Spec, r *evidence.Run) finding {
	most := 0
	for _, b := range r.Backends {
		if b.Arrival == evidence.Never {
			continue
		}
		if _, n := r.InFlight(b.Arrival); n > most {
			most = n
		}
	}
	if most > s.Count {
		return fail(fmt.Sprintf("%d at once", most), fmt.Sprintf("at most %d may be in flight, %d were", s.Count, most))
	}
	if why, id := unrecorded(r); why != "" {
		return notEngaged(why, id)
	}
	wanted := demand(r)
	if s.Count <= 0 || wanted <= s.Count || most < s.Needed || s.Needed <= 0 {
		return notEngaged(fmt.Sprintf("%d were open and %d ran at once, more than %d and at least %d are needed", wanted, most, s.Count, s.Needed))
	}
	return pass(fmt.Sprintf("%d at once, %d open", most, wanted), fmt.Sprintf("%d above the limit", wanted-s.Count))
}

// unrecorded finds a request of whose time inside the model servers too little is known to count it: one that was answered by a model
// server without a record of it, or a record without the instants of its stay.
func unrecorded(r *evidence.Run) (why, id string) {
	known := map[string]bool{}
	for _, b := range r.Backends {
		known[b.ID] = true
		if b.Arrival == evidence.Never || b.End != evidence.Never && b.End < b.Arrival || b.End == evidence.Never && b.Ending != evidence.Running {
			return b.ID + " has no instants at model server " + b.Endpoint, b.ID
		}
	}
	for _, c := range r.Clients {
		if (c.Outcome == evidence.Completed || c.Outcome == evidence.KilledMidStream) && !known[c.ID] {
			return c.ID + " was answered, but no model server recorded it", c.ID
		}
	}
	return "", ""
}

// demand is the largest number of requests that were sent and not yet ended at one instant.
func demand(r *evidence.Run) int {
	most := 0
	for _, at := range r.Clients {
		if at.Sent == evidence.Never {
			continue
		}
		open := map[string]bool{}
		for _, c := range r.Clients {
			if c.Sent != evidence.Never && c.Sent <= at.Sent && (c.End == evidence.Never || c.End > at.Sent) {
				open[c.ID] = true
			}
		}
		most = max(most, len(open))
	}
	return most
}

// unseen: each of IDs was sent and left by its client, and no model server ever saw it. Engaged if the model servers saw another
// request arrive after all of them had left: an observer that slept saw nobody.
func unseen(s Spec, r *evidence.Run) finding {
	last := int64(0)
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never || c.Outcome != evidence.ClientCancelled || c.End == evidence.Never {
			return notEngaged(id+" was not left by its client", id)
		}
		if b, ok := r.BackendByID(id); ok {
			return fail(id+" was dispatched", fmt.Sprintf("it was left before it was complete, but model server %s saw it", b.Endpoint), id)
		}
		last = max(last, c.End)
	}
	if len(s.IDs) == 0 {
		return notEngaged("no request to look at")
	}
	if !slices.ContainsFunc(r.Backends, func(b evidence.Backend) bool { return b.Arrival > last }) {
		return notEngaged("no model server recorded an arrival after they had left")
	}
	return pass(fmt.Sprintf("%d never dispatched", len(s.IDs)), "left by their clients", s.IDs...)
}

// spread: the requests of IDs were served by at least Count different endpoints.
func spread(s Spec, r *evidence.Run) finding {
	at := map[string]int{}
	for _, id := range s.IDs {
		if c, ok := r.ClientByID(id); !ok || c.Sent == evidence.Never {
			return notEngaged(id+" was not sent", id)
		}
		b, ok := arrival(r, id)
		if !ok {
			return fail(id+" was not served", "every request must reach a model server", id)
		}
		if b.Endpoint == "" {
			return notEngaged(id+" was served by nobody knows whom", id)
		}
		at[b.Endpoint]++
	}
	if len(s.IDs) == 0 || s.Count < 2 {
		return notEngaged("no request to look at, or one endpoint would do")
	}
	if len(at) < s.Count {
		return fail(fmt.Sprintf("%d endpoints", len(at)), fmt.Sprintf("%d requests went to %v, at least %d endpoints are expected", len(s.IDs), sortedKeys(at), s.Count), s.IDs...)
	}
	return pass(fmt.Sprintf("%d endpoints", len(at)), fmt.Sprintf("%d requests", len(s.IDs)), s.IDs...)
}

// promptStream: each stream of IDs reaches its client token by token: all Needed token events, in rising order, the first and the last
// no later than Within after the model server sent them, and between them no pause of a third of the time over which they were
// produced, so that nothing was collected and given out in lots.
func promptStream(s Spec, r *evidence.Run) finding {
	worst := int64(0)
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		b, seen := arrival(r, id)
		if !ok || !seen || c.Sent == evidence.Never || b.FirstToken == evidence.Never || b.End == evidence.Never {
			return notEngaged(id+" was not streamed by a model server", id)
		}
		made := b.End - b.FirstToken
		if made < int64(s.Min) || s.Min <= 0 || s.Needed <= 1 {
			return notEngaged(fmt.Sprintf("%s took %s to produce, at least %s is needed", id, ms(made), s.Min), id)
		}
		if c.Outcome != evidence.Completed || b.Ending != evidence.Finished || len(c.TokenTimes) != s.Needed {
			return fail(fmt.Sprintf("%d tokens", len(c.TokenTimes)), fmt.Sprintf("%s: %d token events must arrive, the client saw %d and ended as %s, the model server as %s",
				id, s.Needed, len(c.TokenTimes), answer(c), b.Ending), id)
		}
		if b.Writes > 0 && 4*b.Writes < s.Needed {
			return notEngaged(fmt.Sprintf("the model server sent the %d tokens of %s in %d writes: it had no time for each", s.Needed, id, b.Writes), id)
		}
		if f := tokenGaps(id, c.TokenTimes, made, b); f != nil {
			return *f
		}
		first, last := c.TokenTimes[0]-b.FirstToken, c.TokenTimes[len(c.TokenTimes)-1]-b.End
		switch {
		case first > int64(s.Within):
			return fail("first after "+ms(first), fmt.Sprintf("%s: the first token took %s to its client, at most %s is allowed", id, ms(first), s.Within), id)
		case last > int64(s.Within):
			return fail("last after "+ms(last), fmt.Sprintf("%s: the last token came %s after the model server was done, at most %s is allowed", id, ms(last), s.Within), id)
		case -first > int64(s.Within):
			return notEngaged(fmt.Sprintf("the client of %s saw a token %s before the model server sent one: their clocks differ", id, ms(-first)), id)
		}
		worst = max(worst, first)
	}
	if len(s.IDs) == 0 {
		return notEngaged("no stream to look at")
	}
	return pass("first token after "+ms(worst), fmt.Sprintf("%d streams of %d tokens over at least %s", len(s.IDs), s.Needed, s.Min), s.IDs...)
}

// tokenGaps looks at the instants at which tokens that took made to produce reached their client.
// Tokens that the model server itself sent together may arrive together, and so may its own pauses.
func tokenGaps(id string, times []int64, made int64, b evidence.Backend) *finding {
	var f finding
	apart, writes := 1, len(times)
	if b.Writes > 0 {
		writes = min(writes, b.Writes)
	}
	longest := max(made/3, b.Pause+made/5)
	for i := 1; i < len(times); i++ {
		gap := times[i] - times[i-1]
		if gap < 0 {
			f = fail(id+" out of order", fmt.Sprintf("token event %d came before event %d", i+1, i), id)
			return &f
		}
		if gap > longest {
			f = fail("a pause of "+ms(gap), fmt.Sprintf("%s: of tokens produced over %s none reached the client for %s: they were held back", id, ms(made), ms(gap)), id)
			return &f
		}
		if gap > 0 {
			apart++
		}
	}
	span := times[len(times)-1] - times[0]
	if span < made/2 || 2*apart < writes {
		f = fail("in "+ms(span), fmt.Sprintf("%s: tokens produced over %s reached the client within %s, at %d instants: they were held back", id, ms(made), ms(span), apart), id)
		return &f
	}
	return nil
}
