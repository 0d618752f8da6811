package checks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// The checks of this file look at what lies around a request: the exchange between data plane and router, whole metrics pages, odd
// answers of model servers, and the router's own state of health.

// Family is one metric family that a contract names: its type as the exposition format has it, and the labels that every series of it
// carries.
type Family struct {
	Name   string   `json:"name"`
	Type   string   `json:"type"`
	Labels []string `json:"labels,omitempty"`
}

// used says what keeps a check from counting IDs as traffic that the scenario sent: each must have been sent and, unless it was refused,
// have arrived at a model server.
func used(s Spec, r *evidence.Run) *finding {
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never {
			f := notEngaged(id+" was not sent", id)
			return &f
		}
		if _, seen := arrival(r, id); !seen && c.Outcome != evidence.Refused {
			f := notEngaged(id+" arrived at no model server", id)
			return &f
		}
	}
	if len(s.IDs) == 0 {
		f := notEngaged("no request to look at")
		return &f
	}
	return nil
}

// destination: each of IDs was at exactly one model server, and the router named that one in the header and in the load balancer's
// metadata. Engaged if at least Needed were dispatched.
func destination(s Spec, r *evidence.Run) finding {
	n := 0
	for _, id := range s.IDs {
		x, ok := r.ExchangeByID(id)
		if !ok {
			return notEngaged("the data plane recorded nothing of "+id, id)
		}
		if c, ok := r.ClientByID(id); !ok || c.Sent == evidence.Never {
			return notEngaged(id+" was not sent", id)
		}
		var at []string
		for _, b := range r.Backends {
			if b.ID == id && b.Arrival != evidence.Never {
				at = append(at, b.Endpoint)
			}
		}
		switch {
		case len(at) == 0 && x.HeaderDestination == "" && x.MetadataDestination == "":
			return notEngaged(id+" was not dispatched", id)
		case len(at) != 1:
			return fail(fmt.Sprintf("%d arrivals", len(at)), fmt.Sprintf("%s was sent to %q and seen at %d model servers", id, x.HeaderDestination, len(at)), id)
		case x.HeaderDestination != at[0] || x.MetadataDestination != at[0]:
			return fail(id+" named differently", fmt.Sprintf("%s was served by %s; the header named %q, the metadata %q", id, at[0], x.HeaderDestination, x.MetadataDestination), id)
		}
		n++
	}
	if short(n, s.Needed) {
		return notEngaged(fmt.Sprintf("%d dispatched, %d are needed", n, s.Needed))
	}
	return pass(fmt.Sprintf("%d requests, one destination each", n), "header and metadata agree", s.IDs...)
}

// once: each of IDs had been stopped by the router before step Mark, and in all of its time, at least Min, with fewer than Count requests
// at the model servers at its end, it did not come to a model server a second time.
func once(s Spec, r *evidence.Run) finding {
	m, f := watch(r, s.Mark)
	if f != nil {
		return *f
	}
	if s.Min <= 0 || m.End-m.Start < int64(s.Min) {
		return notEngaged(fmt.Sprintf("step %s took %s, at least %s is needed", s.Mark, ms(m.End-m.Start), s.Min))
	}
	if _, total := r.InFlight(m.End); total >= s.Count {
		return notEngaged(fmt.Sprintf("%d in flight, so that nothing was free", total))
	}
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		stopped := c.Outcome == evidence.Refused || c.Outcome == evidence.KilledMidStream
		first, seen := arrival(r, id)
		if !ok || !stopped || !seen || c.End == evidence.Never || c.End > m.Start || first.Ending != evidence.Aborted {
			return notEngaged(id+" was not stopped at a model server before", id)
		}
		n := 0
		for _, b := range r.Backends {
			if b.ID == id {
				n++
			}
		}
		if n > 1 {
			return fail(fmt.Sprintf("%d arrivals", n), fmt.Sprintf("%s came to a model server again although its client sent nothing", id), id)
		}
	}
	if len(s.IDs) == 0 {
		return notEngaged("no request to look at")
	}
	return pass(fmt.Sprintf("%d stopped, none came back", len(s.IDs)), "capacity was free for "+ms(m.End-m.Start), s.IDs...)
}

// silent: while each of IDs was pending, until the end of step Mark, the router said nothing about it; it did afterwards. Engaged if
// they had been waiting for Min by then.
func silent(s Spec, r *evidence.Run) finding {
	m, f := watch(r, s.Mark)
	if f != nil {
		return *f
	}
	if s.Min <= 0 {
		return notEngaged("no time for which the router must be silent")
	}
	if f := used(s, r); f != nil {
		return *f
	}
	if why, id := allPending(r, s.IDs, m.End); why != "" {
		return notEngaged(why, id)
	}
	for _, id := range s.IDs {
		c, _ := r.ClientByID(id)
		x, ok := r.ExchangeByID(id)
		switch {
		case m.End-c.Sent < int64(s.Min):
			return notEngaged(fmt.Sprintf("%s had waited only %s", id, ms(m.End-c.Sent)), id)
		case !ok:
			return notEngaged("the data plane recorded nothing of "+id, id)
		case x.First == evidence.Never:
			return notEngaged("the router never said anything about "+id, id)
		case x.First < m.End:
			return fail("a message after "+ms(x.First-c.Sent), fmt.Sprintf("the router answered %s while it was still waiting", id), id)
		}
	}
	return pass(fmt.Sprintf("%d waited in silence", len(s.IDs)), "at least "+s.Min.String(), s.IDs...)
}

// requestIDs: each request of RequestIDs arrived at a model server with that x-request-id.
func requestIDs(s Spec, r *evidence.Run) finding {
	for _, id := range sortedKeys(s.RequestIDs) {
		if c, ok := r.ClientByID(id); !ok || c.Sent == evidence.Never {
			return notEngaged(id+" was not sent", id)
		}
		b, ok := arrival(r, id)
		if !ok {
			return notEngaged(id+" was not served", id)
		}
		if want := s.RequestIDs[id]; b.RequestID != want || want == "" {
			return fail(fmt.Sprintf("%q", b.RequestID), fmt.Sprintf("%s was sent with x-request-id %q, model server %s got %q", id, want, b.Endpoint, b.RequestID), id)
		}
	}
	if len(s.RequestIDs) == 0 {
		return notEngaged("no request to look at")
	}
	return pass(fmt.Sprintf("%d ids kept", len(s.RequestIDs)), "all served", sortedKeys(s.RequestIDs)...)
}

// answers: each of IDs got the bytes that its model server sent, and each of Then, sent afterwards, completed.
func answers(s Spec, r *evidence.Run) finding {
	last := int64(0)
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never {
			return notEngaged(id+" was not sent", id)
		}
		b, ok := arrival(r, id)
		if !ok || b.AnswerSHA256 == "" || b.Ending != evidence.Finished {
			return notEngaged("no model server gave "+id+" its answer", id)
		}
		if c.Outcome != evidence.Completed || c.AnswerSHA256 != b.AnswerSHA256 || c.End == evidence.Never {
			return fail(id+" changed", fmt.Sprintf("model server %s finished its answer, the client got %s with %d bytes that are not the same", b.Endpoint, answer(c), c.ResponseBytes), id)
		}
		last = max(last, c.End)
	}
	for _, id := range s.Then {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never || c.Sent < last {
			return notEngaged(id+" was not sent after the odd answers", id)
		}
		if _, seen := arrival(r, id); !seen || c.Outcome != evidence.Completed {
			return fail(answer(c), fmt.Sprintf("after the odd answers %s must be served, it ended as %s", id, answer(c)), id)
		}
	}
	if len(s.IDs) == 0 || len(s.Then) == 0 {
		return notEngaged("no answer to look at, or no request after it")
	}
	return pass(fmt.Sprintf("%d answers, equal bytes", len(s.IDs)), fmt.Sprintf("%d served afterwards", len(s.Then)), s.IDs...)
}

// absent: at sample step Mark the page shows none of Names. Engaged if it shows others and each of IDs had completed before.
func absent(s Spec, r *evidence.Run) finding {
	if f := page(r, s.Mark); f != nil {
		return *f
	}
	m, _ := r.StepByMark(s.Mark)
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if _, seen := arrival(r, id); !ok || !seen || c.Outcome != evidence.Completed || c.End == evidence.Never || c.End > m.Start {
			return notEngaged(id+" was not served before the page was read", id)
		}
	}
	if len(s.IDs) == 0 || len(s.Names) == 0 || !laterPage(r, s.Mark, 0) {
		return notEngaged("no traffic, no name, or a page that shows nothing at all")
	}
	for _, sm := range r.Samples {
		if sm.Mark == s.Mark && sm.Source == "router" && slices.Contains(s.Names, sm.Name) {
			return fail(sm.Name+" is there", fmt.Sprintf("%s%s reads %v and must not be published", sm.Name, labelText(sm.Labels), sm.Value))
		}
	}
	return pass(fmt.Sprintf("%d names absent", len(s.Names)), fmt.Sprintf("%d served", len(s.IDs)), s.IDs...)
}

// families: at sample step Mark the page shows each of Families with its type, and each of its series has the labels named. Engaged if
// each of IDs had ended before the page was read.
func families(s Spec, r *evidence.Run) finding {
	if f := page(r, s.Mark); f != nil {
		return *f
	}
	m, _ := r.StepByMark(s.Mark)
	if f := used(s, r); f != nil {
		return *f
	}
	for _, id := range s.IDs {
		if c, _ := r.ClientByID(id); c.End == evidence.Never || c.End > m.Start {
			return notEngaged(id+" had not ended when the page was read", id)
		}
	}
	if len(s.Families) == 0 || !laterPage(r, s.Mark, 0) {
		return notEngaged("no feature was exercised, no family is named, or the page shows nothing at all")
	}
	for _, want := range s.Families {
		name := want.Name
		if want.Type == "histogram" {
			name += "_count"
		}
		found := false
		for _, sm := range r.Samples {
			if sm.Mark != s.Mark || sm.Source != "router" || sm.Name != name {
				continue
			}
			found = true
			if sm.Type != want.Type {
				return fail(want.Name+" is a "+sm.Type, fmt.Sprintf("%s must be a %s", want.Name, want.Type))
			}
			for _, l := range want.Labels {
				if _, ok := sm.Labels[l]; !ok {
					return fail(want.Name+" without "+l, fmt.Sprintf("%s%s must have the label %s", want.Name, labelText(sm.Labels), l))
				}
			}
		}
		if !found {
			return fail(want.Name+" is missing", fmt.Sprintf("the contract names a %s %s, the page does not show it", want.Type, want.Name))
		}
	}
	return pass(fmt.Sprintf("%d families", len(s.Families)), fmt.Sprintf("%d requests", len(s.IDs)))
}

// engine: at sample step Mark the metrics page of model server Mode shows every family of Names, and the first two of them, running and
// waiting, add up to the requests that were inside it by its own log. Engaged if at least Count were.
func engine(s Spec, r *evidence.Run) finding {
	if f := page(r, s.Mark); f != nil {
		return *f
	}
	if f := used(s, r); f != nil {
		return *f
	}
	m, _ := r.StepByMark(s.Mark)
	per, _ := r.InFlight(m.Start)
	after, _ := r.InFlight(m.End)
	if short(per[s.Mode], s.Count) || after[s.Mode] != per[s.Mode] {
		return notEngaged(fmt.Sprintf("%d inside %s before its page was read and %d after, %d are needed and no change", per[s.Mode], s.Mode, after[s.Mode], s.Count))
	}
	if len(s.Names) < 2 {
		return notEngaged("no names for running and waiting")
	}
	inside := 0.0
	for i, name := range s.Names {
		found := false
		for _, sm := range r.Samples {
			if sm.Mark == s.Mark && sm.Source == s.Mode && sm.Name == name {
				found = true
				if i < 2 {
					inside += sm.Value
				}
			}
		}
		if !found {
			return fail(name+" is missing", fmt.Sprintf("the page of model server %s does not show %s", s.Mode, name))
		}
	}
	if inside != float64(per[s.Mode]) {
		return fail(fmt.Sprintf("running and waiting are %v", inside), fmt.Sprintf("by its log %d requests were inside %s", per[s.Mode], s.Mode))
	}
	return pass(fmt.Sprintf("%v inside by both", inside), fmt.Sprintf("%d families", len(s.Names)))
}

// prefix: in each of Groups, requests of one level from the highest band to the lowest, those that were served come first: nobody is
// served below one who waits. Who is not served must have been pending for at least Min. Engaged if there are levels at which all, none
// and, with Mode "some", some were served.
func prefix(s Spec, r *evidence.Run) finding {
	all, none, some := 0, 0, 0
	if s.Min <= 0 {
		return notEngaged("no time after which a request counts as waiting")
	}
	for _, g := range s.Groups {
		served := 0
		for i, id := range g {
			c, ok := r.ClientByID(id)
			if !ok || c.Sent == evidence.Never || c.End == evidence.Never {
				return notEngaged(id+" was not sent, or never ended", id)
			}
			if _, seen := r.BackendByID(id); seen {
				if b, arrived := arrival(r, id); !arrived || b.Arrival < c.Sent {
					return notEngaged(id+" arrived at no known instant", id)
				}
				if served < i {
					return fail(id+" overtook "+g[served], fmt.Sprintf("%s was served while %s of a higher band waited", id, g[served]), id, g[served])
				}
				served++
			} else if c.End-c.Sent < int64(s.Min) {
				return notEngaged(fmt.Sprintf("%s waited only %s", id, ms(c.End-c.Sent)), id)
			}
		}
		switch {
		case len(g) < 2:
			return notEngaged("a level with fewer than two bands")
		case served == len(g):
			all++
		case served == 0:
			none++
		default:
			some++
		}
	}
	if all == 0 || none == 0 || s.Mode == "some" && some == 0 {
		return notEngaged(fmt.Sprintf("%d levels served all bands, %d some, %d none", all, some, none))
	}
	return pass(fmt.Sprintf("%d levels", len(s.Groups)), fmt.Sprintf("%d served all bands, %d some, %d none", all, some, none))
}

// atLimit: every request of the history that was refused with Status and Reason met at least Count pending ones, and at least Needed
// were; none that met fewer than Count was. Engaged if both happened.
func atLimit(s Spec, r *evidence.Run) finding {
	refused, let := 0, 0
	for _, c := range r.Clients {
		if c.Sent == evidence.Never {
			continue
		}
		rejected := c.Outcome == evidence.Refused && c.Status == s.Status && (s.Reason == "" || c.Reason == s.Reason)
		if !rejected {
			if _, seen := arrival(r, c.ID); seen {
				let++
			} else if c.Outcome == evidence.Completed {
				return notEngaged(c.ID+" completed, and no model server knows when it arrived", c.ID)
			}
			continue
		}
		if c.End == evidence.Never || c.End < c.Sent {
			return notEngaged(c.ID+" has no instant at which it was refused", c.ID)
		}
		// The refusal fell somewhere between sending and answer; whoever was pending in all of that time counts, and whoever may have been.
		n := 0
		for _, o := range r.Clients {
			if o.ID != c.ID && o.Sent != evidence.Never && o.Sent <= c.End && pendingAt(r, o.ID, max(c.Sent, o.Sent)) == "" {
				n++
			}
		}
		if n < s.Count {
			return fail(fmt.Sprintf("%d waited", n), fmt.Sprintf("%s was refused with %s although only %d of %d places were taken", c.ID, answer(c), n, s.Count), c.ID)
		}
		refused++
	}
	if short(refused, s.Needed) || let == 0 || s.Count < 1 || s.Status == 0 {
		return notEngaged(fmt.Sprintf("%d refused and %d let in, %d refusals are needed", refused, let, s.Needed))
	}
	return pass(fmt.Sprintf("%d refusals, each with %d waiting", refused, s.Count), fmt.Sprintf("%d were let in", let))
}

// state: at each step named in States the router's health service gave that answer. Engaged by IDs, the traffic of the scenario.
func state(s Spec, r *evidence.Run) finding {
	if f := used(s, r); f != nil {
		return *f
	}
	said, f := noted(s, r)
	if f != nil {
		return *f
	}
	slices.Sort(said)
	said = slices.Compact(said)
	if len(said) < 2 {
		return notEngaged("fewer than two states, so that one answer for everything would do")
	}
	return pass(strings.Join(said, " and "), fmt.Sprintf("%d times asked", len(s.States)))
}

// ends: the router had ended at step Mark, at the latest Max after the start of step After. Engaged by IDs, whom it had served.
func ends(s Spec, r *evidence.Run) finding {
	if f := used(s, r); f != nil {
		return *f
	}
	m, f := mark(r, s.Mark)
	if f != nil {
		return *f
	}
	from, f := mark(r, s.After)
	switch {
	case f != nil:
		return *f
	case s.Max <= 0 || m.End < from.Start:
		return notEngaged("no limit, or the steps are in another order")
	case !m.OK:
		return fail("still running", fmt.Sprintf("the router must end within %s after %s: %s", s.Max, s.After, m.Detail))
	case m.End-from.Start > int64(s.Max):
		return fail("after "+ms(m.End-from.Start), fmt.Sprintf("the router must end within %s after %s", s.Max, s.After))
	}
	return pass("after "+ms(m.End-from.Start), "within "+s.Max.Round(time.Second).String())
}
