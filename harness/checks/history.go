package checks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// ms prints an interval in milliseconds.
func ms(ns int64) string { return time.Duration(ns).Round(100 * time.Microsecond).String() }

// mark finds the step that a check hangs on.
func mark(r *evidence.Run, name string) (evidence.Step, *finding) {
	s, ok := r.StepByMark(name)
	if !ok {
		f := notEngaged("step " + name + " was not played")
		return s, &f
	}
	return s, nil
}

// watch finds the step at whose end something must still hold. A step that failed, or that took no time, watched nothing.
func watch(r *evidence.Run, name string) (evidence.Step, *finding) {
	s, f := mark(r, name)
	switch {
	case f != nil:
		return s, f
	case !s.OK:
		n := notEngaged("step " + name + ": " + s.Detail)
		f = &n
	case s.End <= s.Start:
		n := notEngaged("step " + name + " took no time, so nothing was watched")
		f = &n
	}
	return s, f
}

// arrival finds the first arrival of a request. A record that names no instant shows that a model server knows the request, which is
// enough against the router, but not that it arrived in time, which is what speaks for it.
func arrival(r *evidence.Run, id string) (evidence.Backend, bool) {
	for _, b := range r.Backends {
		if b.ID == id && b.Arrival != evidence.Never {
			return b, true
		}
	}
	return evidence.Backend{}, false
}

// pendingAt says what keeps id from being pending and unseen at instant t; "" if it is. What happens at t itself came after: in
// virtual time the next step starts at the very instant at which the one before ended.
func pendingAt(r *evidence.Run, id string, t int64) string {
	c, ok := r.ClientByID(id)
	switch {
	case !ok || c.Sent == evidence.Never:
		return id + " was not sent"
	case c.Sent > t:
		return id + " was not yet sent"
	}
	if b, ok := r.BackendByID(id); ok && b.Arrival < t {
		return id + " was already at model server " + b.Endpoint
	}
	if c.End != evidence.Never && c.End < t {
		return fmt.Sprintf("%s had already ended (%s)", id, answer(c))
	}
	return ""
}

// allPending says the same of several requests.
func allPending(r *evidence.Run, ids []string, t int64) (string, string) {
	for _, id := range ids {
		if why := pendingAt(r, id, t); why != "" {
			return why, id
		}
	}
	return "", ""
}

// answer words what a client got.
func answer(c evidence.Client) string {
	switch {
	case c.Outcome == evidence.Refused && c.Reason != "":
		return fmt.Sprintf("%d %s", c.Status, c.Reason)
	case c.Outcome == evidence.Refused:
		return fmt.Sprintf("%d without a reason", c.Status)
	case c.Outcome == evidence.Completed:
		return fmt.Sprint(c.Status)
	case c.Status != 0:
		return fmt.Sprintf("%d %s", c.Status, c.Outcome)
	}
	return c.Outcome
}

// arrivalOrder lists those of ids that arrived, in the order of their first arrival.
func arrivalOrder(r *evidence.Run, ids []string) []string {
	var out []string
	for _, b := range r.Backends {
		if b.Arrival != evidence.Never && slices.Contains(ids, b.ID) && !slices.Contains(out, b.ID) {
			out = append(out, b.ID)
		}
	}
	return out
}

func flatten(groups [][]string) []string {
	var out []string
	for _, g := range groups {
		out = append(out, g...)
	}
	return out
}

func list(ids []string) string {
	if len(ids) > 12 {
		return strings.Join(ids[:12], " ") + fmt.Sprintf(" … (%d)", len(ids))
	}
	return strings.Join(ids, " ")
}

func groupList(groups [][]string) string {
	var parts []string
	for _, g := range groups {
		if len(g) == 1 {
			parts = append(parts, g[0])
		} else {
			parts = append(parts, "{"+strings.Join(g, " ")+"}")
		}
	}
	return list(parts)
}
