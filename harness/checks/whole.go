package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/verdict"
)

// Whole names the scenario of a verdict over the whole run.
const Whole = "whole run"

// wholeLibrary has every check over all scenarios together by its name.
var wholeLibrary = map[string]func(Spec, []evidence.Run) finding{
	"conservation":       conservation,
	"no-internal-errors": noInternalErrors,
	"one-dispatch":       oneDispatch,
	"declared-reasons":   declaredReasons,
	"clean-refusals":     cleanRefusals,
	"refused-unseen":     refusedUnseen,
	"work-conserving":    workConserving,
	"counters":           counters,
	"isolation":          isolation, "same-capacity": sameCapacity, "baseline": baseline, "inversion": inversion, "loads-vary": loadsVary,
	"threshold-ends": thresholdEnds, "slo-tradeoff": sloTradeoff, "holdback-curve": holdbackCurve,
}

// WholeNames lists the checks over all scenarios together.
func WholeNames() []string { return sortedKeys(wholeLibrary) }

// JudgeWhole runs one check on the evidence of all scenarios together.
func JudgeWhole(s Spec, runs []evidence.Run) verdict.Verdict {
	f := finding{kind: verdict.Error, figure: "unknown check", why: fmt.Sprintf("check %q is not in the library", s.Check)}
	if check, ok := wholeLibrary[s.Check]; ok {
		f = check(s, runs)
	}
	return verdict.Verdict{Requirement: s.Requirement, Scenario: Whole, Check: s.Check, Kind: f.kind, Figure: f.figure, Why: f.why,
		Engaged: f.engaged, Witnesses: f.witnesses}
}

// short tells whether n falls short of a sample size; one that was not fixed before the run is never reached.
func short(n, needed int) bool { return needed < 1 || n < needed }

// joined is one request with everything both sides know of it.
type joined struct {
	run      *evidence.Run
	client   evidence.Client
	backends []evidence.Backend
}

func (j joined) name() string { return j.run.Scenario + "/" + j.client.ID }

// join matches client and backend records by scenario and id. Strangers are backend records that no client sent, doubles are ids
// with more than one client record. Requests of an Async Processor have no client, and may rightly come again; they are not looked at.
func join(runs []evidence.Run) (all []joined, strangers, doubles []string) {
	for i := range runs {
		r := &runs[i]
		at, batched := map[string]int{}, map[string]bool{}
		for _, o := range r.Observations {
			if o.Message != nil {
				batched[o.Message.ID] = true
			}
		}
		for _, c := range r.Clients {
			if _, dup := at[c.ID]; dup {
				doubles = append(doubles, r.Scenario+"/"+c.ID)
				continue
			}
			at[c.ID] = len(all)
			all = append(all, joined{run: r, client: c})
		}
		for _, b := range r.Backends {
			k, ok := at[b.ID]
			if !ok && batched[b.ID] {
				continue
			}
			if !ok {
				strangers = append(strangers, r.Scenario+"/"+b.ID)
				continue
			}
			all[k].backends = append(all[k].backends, b)
		}
	}
	return all, strangers, doubles
}

// conservation (INV-03): every request has exactly one ending, and both sides agree about it. Engaged with at least Needed requests
// and Kinds kinds of ending.
func conservation(s Spec, runs []evidence.Run) finding {
	all, strangers, doubles := join(runs)
	if len(doubles) > 0 {
		return fail(fmt.Sprintf("%d ids twice", len(doubles)), "a request has two client records: "+list(doubles), doubles...)
	}
	if len(strangers) > 0 {
		return fail(fmt.Sprintf("%d strangers", len(strangers)), "a model server saw a request that no client sent: "+list(strangers), strangers...)
	}
	counts := map[string]int{}
	var bad, why []string
	for _, j := range all {
		counts[j.client.Outcome]++
		if w := disagreement(j); w != "" {
			bad = append(bad, j.name())
			why = append(why, j.name()+": "+w)
		}
	}
	if len(bad) > 0 {
		return fail(fmt.Sprintf("%d of %d lost or disagreed", len(bad), len(all)), strings.Join(why[:min(len(why), 5)], "; "), bad...)
	}
	if short(len(all), s.Needed) || short(len(counts), s.Kinds) {
		return notEngaged(fmt.Sprintf("%d requests with %d kinds of ending, %d and %d are needed", len(all), len(counts), s.Needed, s.Kinds))
	}
	var parts []string
	for _, k := range sortedKeys(counts) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[k], k))
	}
	return pass(fmt.Sprintf("%d requests = %s", len(all), strings.Join(parts, " + ")), fmt.Sprintf("%d kinds of ending", len(counts)))
}

// disagreement says what is wrong between a client's record and the model servers'; "" if nothing is.
func disagreement(j joined) string {
	finished, running := 0, 0
	for _, b := range j.backends {
		switch b.Ending {
		case evidence.Finished:
			finished++
		case evidence.Running:
			running++
		}
	}
	switch c := j.client; c.Outcome {
	case evidence.Completed:
		if finished != 1 {
			return fmt.Sprintf("the client saw it complete, the model servers finished it %d times", finished)
		}
	case evidence.Refused:
		if finished > 0 {
			return fmt.Sprintf("the client was refused with %s, a model server finished it", answer(c))
		}
	case evidence.Unfinished:
		return "it never ended"
	case evidence.KilledMidStream, evidence.ClientCancelled, evidence.TransportError:
	default:
		return fmt.Sprintf("unknown ending %q", c.Outcome)
	}
	if running > 0 {
		return "the client's side has ended, a model server still runs it"
	}
	return ""
}

// noInternalErrors (INV-06): no 500, no reset, no hang; a refusal has a declared status (Statuses) and, where the profile names reasons
// (Reasons), a reason. Only requests of the scenarios in Malformed may be answered 400, and only streams of those in Cut may break off by
// eviction. Engaged if at least Needed requests waited or
// were refused, so that load above capacity was applied.
func noInternalErrors(s Spec, runs []evidence.Run) finding {
	all, _, _ := join(runs)
	pressed := 0
	for _, j := range all {
		if bad := internalError(s, j); bad != "" {
			return fail(answer(j.client), j.name()+": "+bad, j.name())
		}
		if j.client.Outcome == evidence.Refused || len(j.backends) > 0 && j.backends[0].Arrival-j.client.Sent > int64(300e6) {
			pressed++
		}
	}
	if short(pressed, s.Needed) {
		return notEngaged(fmt.Sprintf("%d requests waited or were refused, %d are needed", pressed, s.Needed))
	}
	return pass(fmt.Sprintf("%d requests without an internal error", len(all)), fmt.Sprintf("%d waited or were refused", pressed))
}

// internalError words what is wrong with the ending of a request; "" if nothing is.
func internalError(s Spec, j joined) string {
	c := j.client
	switch {
	case c.Outcome == evidence.Unfinished:
		return "it hung"
	case c.Outcome == evidence.TransportError && !cutByShutdown(s, j):
		return "transport error: " + c.Error
	case c.Outcome == evidence.KilledMidStream && c.Reason == "" && !failedUpstream(j) && !cutByShutdown(s, j) && !cutByEviction(s, j):
		return "the response broke off, and no model server failed it"
	case c.Outcome != evidence.Refused || failedUpstream(j):
		return ""
	case c.Status == 400 && slices.Contains(s.Malformed, j.run.Scenario), c.Status == 504 && slices.Contains(s.Deadlined, j.run.Scenario):
		return ""
	case !slices.Contains(s.Statuses, c.Status):
		return "undeclared answer " + answer(c) + ": " + c.Text
	case c.Reason == "" && len(s.Reasons) > 0 && !slices.Contains(s.Unnamed, j.run.Scenario):
		return fmt.Sprintf("refused with %d and no reason: %s", c.Status, c.Text)
	}
	return ""
}

// cutByShutdown tells whether a request was running when the router was told to end, under a contract without a drain window
// (Mode "no-drain"): such a request may be cut.
func cutByShutdown(s Spec, j joined) bool {
	st, ok := j.run.StepByMark("shutdown")
	if !ok || s.Mode != "no-drain" || len(j.backends) == 0 {
		return false
	}
	b := j.backends[0]
	return b.Arrival != evidence.Never && b.Arrival < st.Start && (b.End == evidence.Never || b.End >= st.Start)
}

// cutByEviction tells whether a stream ran in a scenario that lets streams be evicted, and was aborted at its model server.
func cutByEviction(s Spec, j joined) bool {
	return slices.Contains(s.Cut, j.run.Scenario) && len(j.backends) > 0 && j.backends[0].Ending == evidence.Aborted
}

// failedUpstream tells whether the answer is the model server's own.
func failedUpstream(j joined) bool {
	for _, b := range j.backends {
		if b.Ending == evidence.Failed {
			return true
		}
	}
	return false
}

// oneDispatch (INV-07): no id is seen twice at the model servers.
func oneDispatch(s Spec, runs []evidence.Run) finding {
	all, _, _ := join(runs)
	seen := 0
	for _, j := range all {
		if len(j.backends) > 1 {
			return fail(fmt.Sprintf("%d arrivals", len(j.backends)), j.name()+" was sent once and arrived more than once", j.name())
		}
		seen += len(j.backends)
	}
	if short(seen, s.Needed) {
		return notEngaged(fmt.Sprintf("%d requests reached a model server, %d are needed", seen, s.Needed))
	}
	return pass(fmt.Sprintf("%d arrivals, each id once", seen), "")
}

// refusals lists what the router, not a model server, refused; 400 is an answer to a malformed request and no flow-control refusal.
func refusals(runs []evidence.Run) []joined {
	all, _, _ := join(runs)
	var out []joined
	for _, j := range all {
		if j.client.Outcome == evidence.Refused && j.client.Status != 400 && !failedUpstream(j) {
			out = append(out, j)
		}
	}
	return out
}

// declaredReasons (FC-REF-08): only reasons of the profile's list occur.
func declaredReasons(s Spec, runs []evidence.Run) finding {
	seen := map[string]int{}
	rs := refusals(runs)
	for _, j := range rs {
		if r := j.client.Reason; r != "" {
			seen[r]++
			if !slices.Contains(s.Reasons, r) {
				return fail(r, fmt.Sprintf("%s was refused with the undocumented reason %q", j.name(), r), j.name())
			}
		}
	}
	if short(len(rs), s.Needed) || len(seen) == 0 {
		return notEngaged(fmt.Sprintf("%d refusals with %d reasons, %d refusals are needed", len(rs), len(seen), s.Needed))
	}
	return pass(strings.Join(sortedKeys(seen), ", "), fmt.Sprintf("%d refusals", len(rs)))
}

// cleanRefusals (FC-REF-10): no refusal is a 500 and none is an abrupt connection error.
func cleanRefusals(s Spec, runs []evidence.Run) finding {
	all, _, _ := join(runs)
	n := 0
	for _, j := range all {
		if c := j.client; c.Outcome == evidence.TransportError && len(j.backends) == 0 {
			return fail("connection error", fmt.Sprintf("%s never reached a model server and ended as %s", j.name(), c.Error), j.name())
		}
	}
	for _, j := range refusals(runs) {
		if j.client.Status == 504 && slices.Contains(s.Deadlined, j.run.Scenario) {
			continue // the data plane's word for a deadline of the client's own, not the router's refusal
		}
		n++
		if j.client.Status >= 500 && j.client.Status != 503 {
			return fail(answer(j.client), j.name()+" was refused with "+answer(j.client), j.name())
		}
	}
	if short(n, s.Needed) {
		return notEngaged(fmt.Sprintf("%d refusals, %d are needed", n, s.Needed))
	}
	return pass(fmt.Sprintf("%d refusals", n), "")
}

// refusedUnseen (FC-REF-11): refused requests never reach a model server; those evicted in flight did, and say so. Engaged if the
// model servers recorded anything at all: an observer that slept saw nobody.
func refusedUnseen(s Spec, runs []evidence.Run) finding {
	n := 0
	awake := slices.ContainsFunc(runs, func(r evidence.Run) bool { return len(r.Backends) > 0 })
	for _, j := range refusals(runs) {
		if j.client.Reason == s.Reason && s.Reason != "" {
			continue
		}
		n++
		if len(j.backends) > 0 {
			return fail("dispatched", fmt.Sprintf("%s was refused with %s and seen by model server %s", j.name(), answer(j.client), j.backends[0].Endpoint), j.name())
		}
	}
	if !awake {
		return notEngaged("no model server recorded anything")
	}
	if short(n, s.Needed) {
		return notEngaged(fmt.Sprintf("%d refusals, %d are needed", n, s.Needed))
	}
	return pass(fmt.Sprintf("%d refusals, none seen by a model server", n), "")
}
