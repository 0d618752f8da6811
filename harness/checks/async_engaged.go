package checks

import (
	"math"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/verdict"
)

// What must hold before a check about processors may say anything good. A processor that does nothing sends nothing wrong.

// unhinged is a pass of a check that hangs on a step whose barrier was not reached: things then stood otherwise than the scenario says, and
// what looks right shows nothing. What looks wrong stays wrong.
func unhinged(a Async, r *evidence.Run, f finding) finding {
	if f.kind != verdict.Pass {
		return f
	}
	for _, name := range a.marks() {
		if s, ok := r.StepByMark(name); ok && !s.OK {
			return notEngaged("step " + name + ": " + s.Detail)
		}
	}
	return f
}

// marks lists the steps that a check hangs on.
func (a Async) marks() []string {
	out := append([]string{a.From, a.To, a.Anchor}, sortedKeys(a.Details)...)
	for _, v := range a.Values {
		out = append(out, v.Mark, v.Since)
	}
	for _, k := range a.Keys {
		out = append(out, k.Mark)
	}
	return slices.DeleteFunc(out, func(m string) bool { return m == "" || m == "deadline" })
}

// blurred names a record that no check can place in time; "" if there is none.
func blurred(r *evidence.Run) string {
	for _, o := range r.Observations {
		switch {
		case o.At < 0:
			return "something was seen at no instant"
		case o.Attempt != nil && o.Attempt.End != evidence.Never && o.Attempt.End < o.At:
			return "an attempt of " + o.Attempt.ID + " ended before it arrived"
		}
	}
	return ""
}

// worked tells whether a processor did anything that could be seen.
func worked(r *evidence.Run) bool {
	return slices.ContainsFunc(r.Observations, func(o evidence.Observation) bool { return o.Attempt != nil || o.Result != nil })
}

const idle = "no processor did anything that could be seen"

// messages lists the ids of a check that were submitted until an instant, in their order, as often as they were.
func (a Async) messages(r *evidence.Run, until int64) []string {
	var out []string
	for _, o := range r.Observations {
		if m := o.Message; m != nil && o.At <= until && evidence.Among(a.IDs, m.ID) {
			out = append(out, m.ID)
		}
	}
	return out
}

// submittedBy lists them each once.
func (a Async) submittedBy(r *evidence.Run, until int64) []string {
	var out []string
	for _, id := range a.messages(r, until) {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// submitted lists the ids of messages that the harness submitted and a check is about, in their order, each once.
func (a Async) submitted(r *evidence.Run) []string { return a.submittedBy(r, math.MaxInt64) }

// unsent says what of a check's ids nobody submitted until an instant; "" if all was.
func (a Async) unsent(r *evidence.Run, until int64) string {
	sent := a.submittedBy(r, until)
	if len(sent) == 0 {
		return "nothing was submitted"
	}
	for _, p := range a.IDs {
		if !slices.ContainsFunc(sent, func(id string) bool { return evidence.Among([]string{p}, id) }) {
			return p + " was not submitted"
		}
	}
	return ""
}

// ambiguous says which id was submitted more than once: whose its results are cannot be told.
func (a Async) ambiguous(r *evidence.Run) string {
	seen := map[string]bool{}
	for _, id := range a.messages(r, math.MaxInt64) {
		if seen[id] {
			return id + " was submitted more than once"
		}
		seen[id] = true
	}
	return ""
}

// deadlines gives the deadlines of messages by id.
func deadlines(r *evidence.Run) map[string]int64 {
	out := map[string]int64{}
	for _, o := range r.Observations {
		if o.Message != nil {
			out[o.Message.ID] = o.Message.Deadline
		}
	}
	return out
}

// disorder says what contradicts the groups in an order of arrivals; "" if nothing does. Groups come one after the other, or in turns: then
// between two of one group comes one of every other group that has some left.
func (a Async) disorder(seen []string) (why string, witnesses []string) {
	if !a.Alternate {
		for i := 1; i < len(seen); i++ {
			if groupOf(a.Groups, seen[i]) < groupOf(a.Groups, seen[i-1]) {
				return "a message of an earlier group arrived after one of a later group: " + strings.Join(seen, " "), []string{seen[i-1], seen[i]}
			}
		}
		return "", nil
	}
	before := map[int]int{}
	for i, id := range seen {
		g := groupOf(a.Groups, id)
		if j, ok := before[g]; ok {
			for k := range a.Groups {
				if k != g && !hasGroup(a.Groups, seen[j+1:i], k) && hasGroup(a.Groups, seen[i+1:], k) {
					return "two of one queue in turn although another queue had some: " + strings.Join(seen, " "), []string{seen[j], id}
				}
			}
		}
		before[g] = i
	}
	return "", nil
}

func groupOf(groups [][]string, id string) int {
	return slices.IndexFunc(groups, func(g []string) bool { return len(g) > 0 && evidence.Among(g, id) })
}

func hasGroup(groups [][]string, ids []string, g int) bool {
	return slices.ContainsFunc(ids, func(id string) bool { return groupOf(groups, id) == g })
}
