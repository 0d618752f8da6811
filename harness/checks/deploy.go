package checks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// This file judges what is done to a deployment while clients use it. Clients and steps alone tell: the model servers come and go.

// recovers: while something was taken away or replaced, between the start of step After and the end of step Mark, requests ended only in ways that
// are allowed: completed, refused with one of Statuses, or, with Mode "lossy", in any way at all if they were open then. Whoever was sent afterwards
// completed, and so did whoever had ended before. At most Count requests may be lost under "lossy", and none that was sent later than at the end of
// step After; 0: any number. What is not there again at step Mark fails. Engaged with Needed requests open in between, as many sent afterwards, and,
// with Max, one sent no longer than that before the end of step Mark: what happens when nobody looks is not shown.
func recovers(s Spec, r *evidence.Run) finding {
	from, f := mark(r, s.After)
	if f != nil {
		return *f
	}
	if f := back(r, s.Engaged, []string{s.Mark}); f != nil {
		return *f
	}
	to, f := watch(r, s.Mark)
	switch {
	case f != nil:
		return *f
	case !from.OK:
		return notEngaged("step " + s.After + ": " + from.Detail)
	case len(s.IDs) == 0 || s.Needed < 1:
		return notEngaged("no request to look at")
	}
	beside, after, refused, lost, last := 0, 0, 0, 0, from.Start
	var who []string
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never {
			return notEngaged(id+" was not sent", id)
		}
		open := c.Sent <= to.End && (c.End == evidence.Never || c.End >= from.Start)
		if open {
			beside++
			last = max(last, c.Sent)
		}
		if c.Sent > to.End {
			after++
		}
		switch {
		case c.Outcome == evidence.Completed && c.Status == 200:
		case c.Outcome == evidence.Unfinished || c.End == evidence.Never:
			return fail(id+" has no ending", "nobody may be forgotten, and "+id+" has got no ending", id)
		case !open:
			return fail(answer(c), fmt.Sprintf("%s was not open while something was missing, and ended as %s %s%s", id, answer(c), c.Error, c.Text), id)
		case c.Outcome == evidence.Refused && slices.Contains(s.Statuses, c.Status):
			refused++
		case s.Mode == "lossy" && s.Count > 0 && c.Sent > from.End+int64(noticed):
			return fail(answer(c), fmt.Sprintf("%s was sent %s after they were taken away, and ended as %s %s%s", id, ms(c.Sent-from.End), answer(c), c.Error, c.Text), id)
		case s.Mode == "lossy":
			lost++
			who = append(who, id)
		default:
			return fail(answer(c), fmt.Sprintf("%s ended as %s %s%s: expected it to complete, or to be refused with one of %v", id, answer(c), c.Error, c.Text, s.Statuses), id)
		}
	}
	figure := fmt.Sprintf("%d completed, %d refused, %d lost of %d", len(s.IDs)-refused-lost, refused, lost, len(s.IDs))
	switch {
	case beside < s.Needed || after < s.Needed:
		return notEngaged(fmt.Sprintf("%d requests were open in between and %d were sent afterwards, %d of each are needed", beside, after, s.Needed))
	case s.Max > 0 && to.End-last > int64(s.Max):
		return notEngaged(fmt.Sprintf("nobody was sent in the last %s before it had settled", ms(to.End-last)))
	case s.Count > 0 && lost > s.Count:
		return fail(figure, fmt.Sprintf("at most %d may be lost", s.Count), who...)
	}
	return pass(figure, fmt.Sprintf("%d open while it went, %d sent afterwards, %s from one to the other", beside, after, ms(to.End-from.Start)))
}

// noticed is how long those who choose may take to hear that somebody is gone.
const noticed = 250 * time.Millisecond

// noted looks whether each step of States has noted what is said there, and gives what they noted in the order of their names.
func noted(s Spec, r *evidence.Run) (said []string, f *finding) {
	for _, name := range sortedKeys(s.States) {
		m, f := mark(r, name)
		switch {
		case f != nil:
			return nil, f
		case !m.OK || m.Detail == "":
			f := notEngaged("step " + name + ": " + m.Detail)
			return nil, &f
		case m.Detail != s.States[name]:
			f := fail(name+": "+m.Detail, fmt.Sprintf("expected %q at step %s, it was %q", s.States[name], name, m.Detail))
			return nil, &f
		}
		said = append(said, m.Detail)
	}
	return said, nil
}

// back: parts that were not there before anything was done to them show nothing, and those that are not there again afterwards have not recovered.
func back(r *evidence.Run, before, after []string) *finding {
	for i, name := range slices.Concat(before, after) {
		if st, ok := r.StepByMark(name); ok && strings.HasPrefix(st.Detail, evidence.NotBack) {
			f := fail("not there again", "step "+name+": "+st.Detail)
			if i < len(before) {
				f = notEngaged("step " + name + ": " + st.Detail)
			}
			return &f
		}
	}
	return nil
}

// tells: each step of States has noted what is said there, and what the steps Names wait for is there again.
func tells(s Spec, r *evidence.Run) finding {
	if len(s.States) == 0 {
		return notEngaged("nothing was asked")
	}
	if f := back(r, s.Engaged, s.Names); f != nil {
		return *f
	}
	said, f := noted(s, r)
	if f != nil {
		return *f
	}
	for i, name := range sortedKeys(s.States) {
		said[i] = name + ": " + said[i]
	}
	return pass(strings.Join(said, ", "), fmt.Sprintf("%d steps", len(said)))
}

// planned (BEN-27): a plan that several workers shared was played as a whole: each step of States, a worker, played its part of the plan with the hash
// that is said there, and each of the Count planned requests has one record with an ending.
func planned(s Spec, r *evidence.Run) finding {
	if s.Count < 1 || len(s.States) == 0 {
		return notEngaged("nothing was planned")
	}
	if _, f := noted(s, r); f != nil { // a worker that is missing or fell behind, or played a part of another plan
		return *f
	}
	seen := map[string]bool{}
	for _, c := range r.Clients {
		switch {
		case seen[c.ID]:
			return fail(c.ID+" twice", "two workers sent "+c.ID, c.ID)
		case c.Sent == evidence.Never:
			return notEngaged(c.ID+" was not sent", c.ID)
		case c.Outcome == evidence.Unfinished:
			return notEngaged(c.ID+" was broken off", c.ID)
		}
		seen[c.ID] = true
	}
	figure := fmt.Sprintf("%d of %d planned requests", len(seen), s.Count)
	switch {
	case len(seen) < s.Count:
		return notEngaged(figure + " were sent")
	case len(seen) > s.Count:
		return fail(figure, "more were sent than planned")
	}
	return pass(figure, fmt.Sprintf("%d workers", len(s.States)))
}
