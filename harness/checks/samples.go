package checks

import (
	"fmt"
	"math"
	"slices"
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
// the time from sending to the arrival at a model server, or to the refusal, within the share Margin. Engaged if each waited Min, and
// all of it between the two pages.
func waits(s Spec, r *evidence.Run) finding {
	for _, mark := range []string{s.Before, s.Mark} {
		if f := page(r, mark); f != nil {
			return *f
		}
	}
	if s.Min <= 0 || !(s.Margin > 0 && s.Margin < 1) {
		return notEngaged("no wait that would be long enough, or a margin that excludes nothing")
	}
	total := 0.0
	for _, id := range s.IDs {
		took, f := waitOf(s, r, id)
		if f != nil {
			return *f
		}
		total += float64(took) / 1e9
	}
	if len(s.IDs) == 0 || len(s.Names) == 0 {
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

// waitOf is how long a request waited for its decision.
func waitOf(s Spec, r *evidence.Run, id string) (int64, *finding) {
	before, _ := r.StepByMark(s.Before)
	after, _ := r.StepByMark(s.Mark)
	c, ok := r.ClientByID(id)
	var f finding
	end, known := decided(r, c)
	switch {
	case !ok || c.Sent == evidence.Never:
		f = notEngaged(id+" was not sent", id)
	case !known:
		f = notEngaged(id+" has no instant at which its wait ended", id)
	case end-c.Sent < int64(s.Min):
		f = notEngaged(fmt.Sprintf("%s waited less than %s", id, s.Min), id)
	case c.Sent < before.End || end > after.Start:
		f = notEngaged(fmt.Sprintf("%s did not wait between %s and %s alone", id, s.Before, s.Mark), id)
	default:
		return end - c.Sent, nil
	}
	return 0, &f
}

// decided is the instant of the router's decision about a request, as it shows outside: the arrival at a model server, or else the
// client's end, if that is the router's refusal or the client's own leaving. A request that a model server answered has no other
// instant than its arrival.
func decided(r *evidence.Run, c evidence.Client) (int64, bool) {
	if _, seen := r.BackendByID(c.ID); seen {
		b, ok := arrival(r, c.ID)
		return b.Arrival, ok
	}
	return c.End, c.End != evidence.Never && (c.Outcome == evidence.Refused || c.Outcome == evidence.ClientCancelled)
}

// twins: at sample step Mark every flow-control metric that is published under both prefixes reads the same under both, series by
// series: they are told apart by the labels that both names carry. Engaged if at least Needed pairs read something else than 0.
func twins(s Spec, r *evidence.Run) finding {
	if f := page(r, s.Mark); f != nil {
		return *f
	}
	now, old := family(r, s.Mark, wire.PrefixFlowControl), family(r, s.Mark, wire.PrefixLegacyFC)
	pairs := 0
	for _, base := range sortedKeys(now) {
		if len(old[base]) == 0 {
			continue // a metric with one name has no twin
		}
		common := shared(now[base], old[base])
		a, b := sums(now[base], common), sums(old[base], common)
		for _, k := range sortedKeys(a) {
			// A series that only one of the names has reads 0 under the other. What is no number agrees with nothing.
			if !(a[k] == b[k]) {
				return fail(base+" differs", fmt.Sprintf("%s%s reads %v under its name and %v under its older one", base, k, a[k], b[k]))
			}
			if _, both := b[k]; both && a[k] != 0 {
				pairs++
			}
		}
		for _, k := range sortedKeys(b) {
			if !(a[k] == b[k]) {
				return fail(base+" differs", fmt.Sprintf("%s%s reads %v under its name and %v under its older one", base, k, a[k], b[k]))
			}
		}
	}
	if short(pairs, s.Needed) {
		return notEngaged(fmt.Sprintf("%d pairs read something, %d are needed", pairs, s.Needed))
	}
	return pass(fmt.Sprintf("%d pairs agree", pairs), "")
}

// family lists the router's samples of a step whose name has a prefix, by the name without it.
func family(r *evidence.Run, mark, prefix string) map[string][]evidence.Sample {
	out := map[string][]evidence.Sample{}
	for _, sm := range r.Samples {
		if base, ok := strings.CutPrefix(sm.Name, prefix); ok && sm.Mark == mark && sm.Source == "router" {
			out[base] = append(out[base], sm)
		}
	}
	return out
}

// shared lists the labels that occur on both sides.
func shared(a, b []evidence.Sample) []string {
	names := func(sms []evidence.Sample) map[string]bool {
		out := map[string]bool{}
		for _, sm := range sms {
			for k := range sm.Labels {
				out[k] = true
			}
		}
		return out
	}
	var out []string
	other := names(b)
	for _, k := range sortedKeys(names(a)) {
		if other[k] {
			out = append(out, k)
		}
	}
	return out
}

// sums adds up the samples that agree in the labels named.
func sums(sms []evidence.Sample, labels []string) map[string]float64 {
	out := map[string]float64{}
	for _, sm := range sms {
		key := map[string]string{}
		for _, k := range labels {
			key[k] = sm.Labels[k]
		}
		out[labelText(key)] += sm.Value
	}
	return out
}

// outcomeCounts: at sample step Mark the counters of Names agree, outcome by outcome, with what clients and model servers saw, and
// count nothing that nobody saw. Engaged if at least Kinds outcomes occurred Needed times each, and everything that was sent before
// had been decided.
func outcomeCounts(s Spec, r *evidence.Run) finding {
	if f := page(r, s.Mark); f != nil {
		return *f
	}
	m, _ := r.StepByMark(s.Mark)
	seen := map[string]int{}
	kinds := 0
	for _, c := range r.Clients {
		if c.Sent == evidence.Never || c.Sent >= m.Start {
			continue
		}
		o := outcomeOf(r, c)
		if o == "" {
			return notEngaged(c.ID+" ended in a way that no outcome stands for", c.ID)
		}
		if t, ok := decided(r, c); !ok || t > m.Start {
			return notEngaged(c.ID+" was not decided when the page was read", c.ID)
		}
		seen[o]++
		if seen[o] == s.Needed {
			kinds++
		}
	}
	for _, name := range s.Names {
		counted := map[string]float64{}
		for _, sm := range r.Samples {
			if sm.Mark == s.Mark && sm.Source == "router" && sm.Name == name {
				counted[sm.Labels["outcome"]] += sm.Value
			}
		}
		for _, o := range sortedKeys(seen) {
			if counted[o] != float64(seen[o]) {
				return fail(fmt.Sprintf("%s %v", o, counted[o]), fmt.Sprintf("clients and model servers saw %d, %s counts %v", seen[o], name, counted[o]))
			}
		}
		for _, o := range sortedKeys(counted) {
			if counted[o] != float64(seen[o]) {
				return fail(fmt.Sprintf("%s %v", o, counted[o]), fmt.Sprintf("%s counts %v of outcome %q, clients and model servers saw %d", name, counted[o], o, seen[o]))
			}
		}
	}
	if short(kinds, s.Kinds) || len(s.Names) == 0 {
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

// labelValues: at sample step Mark every series of Names has the label named Mode, with at most Count values in all. Engaged if at
// least Needed different tenants were served, and those are more than Count, so that the bound could have been broken.
func labelValues(s Spec, r *evidence.Run) finding {
	if f := page(r, s.Mark); f != nil {
		return *f
	}
	arrived := map[string]bool{}
	for _, b := range r.Backends {
		arrived[b.ID] = arrived[b.ID] || b.Arrival != evidence.Never
	}
	tenants := map[string]bool{}
	for _, c := range r.Clients {
		if c.Outcome == evidence.Completed && c.Tenant != "" && arrived[c.ID] {
			tenants[c.Tenant] = true
		}
	}
	if short(len(tenants), s.Needed) || len(tenants) <= s.Count || s.Mode == "" || len(s.Names) == 0 {
		return notEngaged(fmt.Sprintf("%d tenants were served, %d and more than %d are needed", len(tenants), s.Needed, s.Count))
	}
	for _, name := range s.Names {
		values := map[string]bool{}
		for _, sm := range r.Samples {
			if sm.Mark != s.Mark || sm.Source != "router" || sm.Name != name {
				continue
			}
			v, ok := sm.Labels[s.Mode]
			if !ok {
				return fail(name+" without "+s.Mode, fmt.Sprintf("%s%s does not have the label whose values are counted", name, labelText(sm.Labels)))
			}
			values[v] = true
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

// laterPage tells whether the page of a step was read after an instant and shows anything: of an empty page everything is gone.
func laterPage(r *evidence.Run, mark string, after int64) bool {
	st, ok := r.StepByMark(mark)
	return ok && st.Start >= after && slices.ContainsFunc(r.Samples, func(sm evidence.Sample) bool { return sm.Mark == mark && sm.Source == "router" })
}

// gone: the series of Names with the labels of Series, present at sample step Before, are absent at Mark, where the page still shows
// others.
func gone(s Spec, r *evidence.Run) finding {
	for _, mark := range []string{s.Before, s.Mark} {
		if f := page(r, mark); f != nil {
			return *f
		}
	}
	if len(s.Series) == 0 || len(s.Names) == 0 {
		return notEngaged("no series to look at")
	}
	if before, _ := r.StepByMark(s.Before); !laterPage(r, s.Mark, before.End) {
		return notEngaged("the page of " + s.Mark + " was not read after that of " + s.Before + ", or shows nothing at all")
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
