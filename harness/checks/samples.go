package checks

import (
	"fmt"
	"math"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
)

// sampleSum adds up the series of a name whose labels contain want, as sampled at a step; found tells whether there was one.
func sampleSum(r *evidence.Run, mark, name string, want map[string]string) (sum float64, found bool) {
	for _, sm := range r.Samples {
		if sm.Mark == mark && sm.Source == "router" && sm.Name == name && subset(want, sm.Labels) {
			sum += sm.Value
			found = true
		}
	}
	return sum, found
}

// page says why the metrics page of a step cannot be judged.
func page(r *evidence.Run, name string) *finding {
	st, ok := r.StepByMark(name)
	switch {
	case !ok:
		f := notEngaged("step " + name + " was not played")
		return &f
	case !st.OK:
		f := notEngaged("the router's metrics page could not be read: " + st.Detail)
		return &f
	}
	return nil
}

// waits: between the sample steps Before and Mark each histogram of Names counted every request of IDs once, and its sum is theirs:
// the time from sending to the arrival at a model server, or to the refusal, within the share Margin. Engaged if each waited Min.
func waits(s Spec, r *evidence.Run) finding {
	for _, mark := range []string{s.Before, s.Mark} {
		if f := page(r, mark); f != nil {
			return *f
		}
	}
	total := 0.0
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never {
			return notEngaged(id+" was not sent", id)
		}
		end := c.End
		if b, ok := arrival(r, id); ok {
			end = b.Arrival
		}
		if end == evidence.Never || end-c.Sent < int64(s.Min) {
			return notEngaged(fmt.Sprintf("%s waited less than %s", id, s.Min), id)
		}
		total += float64(end-c.Sent) / 1e9
	}
	if len(s.IDs) == 0 || len(s.Names) == 0 || total <= 0 {
		return notEngaged("no wait to look at")
	}
	for _, name := range s.Names {
		n0, _ := sampleSum(r, s.Before, name+"_count", nil)
		n1, ok := sampleSum(r, s.Mark, name+"_count", nil)
		if !ok {
			return fail(name+" is missing", "the metrics page shows no histogram of that name")
		}
		if n1-n0 != float64(len(s.IDs)) {
			return fail(fmt.Sprintf("%v observations", n1-n0), fmt.Sprintf("%d requests waited, %s counted %v", len(s.IDs), name, n1-n0))
		}
		s0, _ := sampleSum(r, s.Before, name+"_sum", nil)
		s1, _ := sampleSum(r, s.Mark, name+"_sum", nil)
		if got := s1 - s0; !(math.Abs(got-total) <= s.Margin*total) {
			return fail(fmt.Sprintf("sum %.3f s", got), fmt.Sprintf("the requests waited %.3f s together, %s says %.3f s", total, name, got))
		}
	}
	return pass(fmt.Sprintf("%d waits of %.2f s together", len(s.IDs), total), fmt.Sprintf("each at least %s", s.Min), s.IDs...)
}

// twins: at sample step Mark every flow-control series under one prefix that has a series of the same name and labels under the other
// reads the same. Engaged if at least Needed pairs read something else than 0.
func twins(s Spec, r *evidence.Run) finding {
	if f := page(r, s.Mark); f != nil {
		return *f
	}
	pairs := 0
	for _, sm := range r.Samples {
		base, ok := strings.CutPrefix(sm.Name, wire.PrefixFlowControl)
		if !ok || sm.Mark != s.Mark {
			continue
		}
		old, found := sampleSum(r, s.Mark, wire.PrefixLegacyFC+base, sm.Labels)
		if !found {
			continue
		}
		if old != sm.Value {
			return fail(base+" differs", fmt.Sprintf("%s%s reads %v under its name and %v under its older one", base, labelText(sm.Labels), sm.Value, old))
		}
		if sm.Value != 0 {
			pairs++
		}
	}
	if pairs < s.Needed || s.Needed == 0 {
		return notEngaged(fmt.Sprintf("%d pairs read something, %d are needed", pairs, s.Needed))
	}
	return pass(fmt.Sprintf("%d pairs agree", pairs), "")
}

// outcomeCounts: at sample step Mark the counters of Names agree, outcome by outcome, with what clients and model servers saw. Engaged
// if at least Kinds outcomes occurred Needed times each.
func outcomeCounts(s Spec, r *evidence.Run) finding {
	if f := page(r, s.Mark); f != nil {
		return *f
	}
	m, _ := r.StepByMark(s.Mark)
	seen := map[string]int{}
	for _, c := range r.Clients {
		if c.Sent == evidence.Never || c.Sent >= m.Start {
			continue
		}
		seen[outcomeOf(r, c)]++
	}
	kinds := 0
	for _, o := range sortedKeys(seen) {
		if o == "" {
			return notEngaged("a request ended in a way that no outcome stands for")
		}
		for _, name := range s.Names {
			got, _ := sampleSum(r, s.Mark, name, map[string]string{"outcome": o})
			if got != float64(seen[o]) {
				return fail(fmt.Sprintf("%s %v", o, got), fmt.Sprintf("clients and model servers saw %d, %s counts %v", seen[o], name, got))
			}
		}
		if seen[o] >= s.Needed {
			kinds++
		}
	}
	if kinds < s.Kinds || s.Kinds == 0 || len(s.Names) == 0 {
		return notEngaged(fmt.Sprintf("%d outcomes occurred %d times each, %d are needed", kinds, s.Needed, s.Kinds))
	}
	var parts []string
	for _, o := range sortedKeys(seen) {
		parts = append(parts, fmt.Sprintf("%d %s", seen[o], o))
	}
	return pass(strings.Join(parts, ", "), fmt.Sprintf("%d outcomes", kinds))
}

// outcomeOf is the outcome that the router must have counted for a request; "" if none stands for it.
func outcomeOf(r *evidence.Run, c evidence.Client) string {
	if _, ok := r.BackendByID(c.ID); ok {
		return wire.Dispatched.String()
	}
	switch {
	case c.Outcome == evidence.ClientCancelled:
		return wire.EvictedContextCancelled.String()
	case c.Reason == wire.ReasonSaturated:
		return wire.RejectedCapacity.String()
	case c.Reason == wire.ReasonTTLExpired:
		return wire.EvictedTTL.String()
	case c.Reason == wire.ReasonShuttingDown:
		return wire.EvictedOther.String()
	}
	return ""
}

// labelValues: at sample step Mark the label named Mode has at most Count values over the series of Names. Engaged if at least Needed
// different tenants were served.
func labelValues(s Spec, r *evidence.Run) finding {
	if f := page(r, s.Mark); f != nil {
		return *f
	}
	tenants := map[string]bool{}
	for _, c := range r.Clients {
		if c.Outcome == evidence.Completed {
			tenants[c.Tenant] = true
		}
	}
	if len(tenants) < s.Needed || s.Needed == 0 {
		return notEngaged(fmt.Sprintf("%d tenants were served, %d are needed", len(tenants), s.Needed))
	}
	for _, name := range s.Names {
		values := map[string]bool{}
		for _, sm := range r.Samples {
			if sm.Mark == s.Mark && sm.Name == name {
				values[sm.Labels[s.Mode]] = true
			}
		}
		if len(values) == 0 {
			return fail(name+" is missing", "the metrics page shows no series of that name")
		}
		if len(values) > s.Count {
			return fail(fmt.Sprintf("%d values", len(values)), fmt.Sprintf("label %s of %s has %d values, at most %d are allowed", s.Mode, name, len(values), s.Count))
		}
	}
	return pass(fmt.Sprintf("at most %d values for %d tenants", s.Count, len(tenants)), fmt.Sprintf("%d tenants", len(tenants)))
}

// gone: the series of Names with the labels of Series, present at sample step Before, are absent at Mark.
func gone(s Spec, r *evidence.Run) finding {
	for _, mark := range []string{s.Before, s.Mark} {
		if f := page(r, mark); f != nil {
			return *f
		}
	}
	if len(s.Series) == 0 || len(s.Names) == 0 {
		return notEngaged("no series to look at")
	}
	for _, name := range s.Names {
		for _, x := range s.Series {
			if v, found := sampleSum(r, s.Before, name, x.Labels); !found || v == 0 {
				return notEngaged(name + labelText(x.Labels) + " was not there before")
			}
			if v, found := sampleSum(r, s.Mark, name, x.Labels); found {
				return fail(fmt.Sprintf("still there: %v", v), fmt.Sprintf("%s%s should have been removed, it reads %v", name, labelText(x.Labels), v))
			}
		}
	}
	return pass(fmt.Sprintf("%d series removed", len(s.Names)*len(s.Series)), "present before")
}
