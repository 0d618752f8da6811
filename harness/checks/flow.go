package checks

import (
	"fmt"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// peak: at no instant are more than Count requests inside the model servers. Engaged if more than that were sent and at least Count
// ran at once.
func peak(s Spec, r *evidence.Run) finding {
	sent, most := 0, 0
	for _, c := range r.Clients {
		if c.Sent != evidence.Never {
			sent++
		}
	}
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
	if s.Count <= 0 || sent <= s.Count || most < s.Needed || s.Needed <= 0 {
		return notEngaged(fmt.Sprintf("%d were sent and %d ran at once, more than %d and at least %d are needed", sent, most, s.Count, s.Needed))
	}
	return pass(fmt.Sprintf("%d at once, %d sent", most, sent), fmt.Sprintf("%d above the limit", sent-s.Count))
}

// unseen: each of IDs was sent and left by its client, and no model server ever saw it.
func unseen(s Spec, r *evidence.Run) finding {
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never || c.Outcome != evidence.ClientCancelled {
			return notEngaged(id+" was not left by its client", id)
		}
		if b, ok := r.BackendByID(id); ok {
			return fail(id+" was dispatched", fmt.Sprintf("it was left before it was complete, but model server %s saw it", b.Endpoint), id)
		}
	}
	if len(s.IDs) == 0 {
		return notEngaged("no request to look at")
	}
	return pass(fmt.Sprintf("%d never dispatched", len(s.IDs)), "left by their clients", s.IDs...)
}

// spread: the requests of IDs were served by at least Count different endpoints.
func spread(s Spec, r *evidence.Run) finding {
	at := map[string]int{}
	for _, id := range s.IDs {
		b, ok := arrival(r, id)
		if !ok {
			return fail(id+" was not served", "every request must reach a model server", id)
		}
		at[b.Endpoint]++
	}
	if len(s.IDs) == 0 || s.Count <= 0 {
		return notEngaged("no request to look at")
	}
	if len(at) < s.Count {
		return fail(fmt.Sprintf("%d endpoints", len(at)), fmt.Sprintf("%d requests went to %v, at least %d endpoints are expected", len(s.IDs), sortedKeys(at), s.Count), s.IDs...)
	}
	return pass(fmt.Sprintf("%d endpoints", len(at)), fmt.Sprintf("%d requests", len(s.IDs)), s.IDs...)
}

// promptStream: each stream of IDs reaches its client token by token: all Needed token events, in rising order, the first no later than
// Within after the model server sent it, spread over time as they were produced and not given out at the end.
func promptStream(s Spec, r *evidence.Run) finding {
	worst := int64(0)
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		b, seen := arrival(r, id)
		if !ok || !seen || b.FirstToken == evidence.Never || b.End == evidence.Never {
			return notEngaged(id+" was not streamed by a model server", id)
		}
		made := b.End - b.FirstToken
		if made < int64(s.Min) || s.Min <= 0 || s.Needed <= 1 {
			return notEngaged(fmt.Sprintf("%s took %s to produce, at least %s is needed", id, ms(made), s.Min), id)
		}
		if c.Outcome != evidence.Completed || len(c.TokenTimes) != s.Needed {
			return fail(fmt.Sprintf("%d tokens", len(c.TokenTimes)), fmt.Sprintf("%s: %d token events were produced, the client saw %d and ended as %s", id, s.Needed, len(c.TokenTimes), answer(c)), id)
		}
		for i := 1; i < len(c.TokenTimes); i++ {
			if c.TokenTimes[i] < c.TokenTimes[i-1] {
				return fail(id+" out of order", fmt.Sprintf("token event %d came before event %d", i+1, i), id)
			}
		}
		if d := c.TokenTimes[0] - b.FirstToken; d > int64(s.Within) {
			return fail("first after "+ms(d), fmt.Sprintf("%s: the first token took %s to its client, at most %s is allowed", id, ms(d), s.Within), id)
		}
		if span := c.TokenTimes[len(c.TokenTimes)-1] - c.TokenTimes[0]; span < made/2 {
			return fail("in "+ms(span), fmt.Sprintf("%s: tokens produced over %s reached the client within %s: they were held back", id, ms(made), ms(span)), id)
		}
		worst = max(worst, c.TokenTimes[0]-b.FirstToken)
	}
	if len(s.IDs) == 0 {
		return notEngaged("no stream to look at")
	}
	return pass("first token after "+ms(worst), fmt.Sprintf("%d streams of %d tokens over at least %s", len(s.IDs), s.Needed, time.Duration(s.Min)), s.IDs...)
}
