package checks

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/verdict"
)

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// refused: each of IDs ends with Status (and Reason), no sooner than Min and no later than Max after it was sent (after the start of
// step After, if named), and is never seen at a model server. Mode "any" leaves the status open, "unnamed" forbids a reason. Engaged if Waiting were pending when
// each of IDs was refused, if Count requests were in flight then, and if IDs were still pending at the end of step Mark, if named.
func refused(s Spec, r *evidence.Run) finding {
	if s.Mark != "" {
		m, f := watch(r, s.Mark)
		if f != nil {
			return *f
		}
		if why, id := earlyRefusal(s, r, m.End); why != "" {
			return fail(id+" too early", why, id)
		}
		if why, id := allPending(r, s.IDs, m.End); why != "" {
			return notEngaged(why, id)
		}
	}
	var from int64
	if s.After != "" {
		m, f := mark(r, s.After)
		if f != nil {
			return *f
		}
		if why, id := allPending(r, s.IDs, m.Start); why != "" {
			return notEngaged(why, id)
		}
		from = m.Start
	}
	if s.Status == 0 && s.Mode != "any" {
		return finding{kind: verdict.NotApplicable, figure: "not stated", why: "the profile states no status for this case"}
	}
	latest := int64(0)
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never {
			return notEngaged(id+" was not sent", id)
		}
		if f := refusedEngaged(s, r, c); f != nil {
			return *f
		}
		if f := refusedAnswer(s, r, c); f != nil {
			return *f
		}
		start := c.Sent
		if s.After != "" {
			start = from
		}
		if c.End == evidence.Never || c.End < start {
			return notEngaged(id+" has no instant at which it was refused", id)
		}
		took := c.End - start
		if took < int64(s.Min) {
			return fail("after "+ms(took), fmt.Sprintf("%s was refused after %s, not before %s", id, ms(took), s.Min), id)
		}
		if s.Max > 0 && took > int64(s.Max) {
			return fail("after "+ms(took), fmt.Sprintf("%s was refused after %s, at the latest after %s", id, ms(took), s.Max), id)
		}
		latest = max(latest, took)
	}
	if len(s.IDs) == 0 {
		return notEngaged("no request to look at")
	}
	c, _ := r.ClientByID(s.IDs[0])
	return pass(answer(c)+" after "+ms(latest), fmt.Sprintf("%d pending, %d in flight", len(s.Waiting), s.Count), s.IDs...)
}

// earlyRefusal finds a request that was refused before the instant until which it had to wait.
func earlyRefusal(s Spec, r *evidence.Run, until int64) (why, id string) {
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if ok && c.Outcome == evidence.Refused && c.End <= until && c.End-c.Sent < int64(s.Min) {
			return fmt.Sprintf("%s was refused after %s with %s, not before %s", id, ms(c.End-c.Sent), answer(c), s.Min), id
		}
	}
	return "", ""
}

func refusedEngaged(s Spec, r *evidence.Run, c evidence.Client) *finding {
	// A request that was answered by a model server was not refused by the router; that is the verdict, not a lack of engagement.
	if c.Outcome != evidence.Refused || c.End == evidence.Never {
		return nil
	}
	for _, id := range s.Waiting {
		if why := pendingAt(r, id, c.End-1); why != "" {
			f := notEngaged(why+" when "+c.ID+" was refused", id)
			return &f
		}
	}
	if _, total := r.InFlight(c.End - 1); total < s.Count {
		f := notEngaged(fmt.Sprintf("%d in flight when %s was refused, %d are needed", total, c.ID, s.Count), c.ID)
		return &f
	}
	return nil
}

func refusedAnswer(s Spec, r *evidence.Run, c evidence.Client) *finding {
	want := fmt.Sprint(s.Status)
	if s.Mode == "any" {
		want = "any status"
	}
	if s.Reason != "" {
		want += " " + s.Reason
	}
	var f finding
	switch b, seen := r.BackendByID(c.ID); {
	case seen:
		f = fail(c.ID+" was dispatched", fmt.Sprintf("expected a refusal with %s, but it reached model server %s", want, b.Endpoint), c.ID)
	case c.Outcome != evidence.Refused:
		f = fail(answer(c), fmt.Sprintf("expected a refusal with %s, %s ended as %s %s", want, c.ID, answer(c), c.Error), c.ID)
	case s.Mode != "any" && c.Status != s.Status, s.Reason != "" && c.Reason != s.Reason, s.Mode == "unnamed" && c.Reason != "":
		f = fail(answer(c), fmt.Sprintf("expected %s, %s got %s", want, c.ID, answer(c)), c.ID)
	default:
		return nil
	}
	return &f
}

// reasons: all of Groups were refused, each names a reason from Reasons, and no reason occurs in two groups.
func reasons(s Spec, r *evidence.Run) finding {
	seen := map[string]string{}
	var got []string
	for _, g := range s.Groups {
		if len(g) == 0 {
			return notEngaged("a kind of refusal without a request")
		}
		for _, id := range g {
			c, ok := r.ClientByID(id)
			if !ok || c.Outcome != evidence.Refused {
				return notEngaged(id+" was not refused", id)
			}
			if _, served := r.BackendByID(id); served {
				return notEngaged(id+" was refused by a model server, not by the router", id)
			}
			if c.Reason == "" {
				return fail("no reason", fmt.Sprintf("%s was refused with %d and names no reason", id, c.Status), id)
			}
			if !slices.Contains(s.Reasons, c.Reason) {
				return fail(c.Reason, fmt.Sprintf("reason %q of %s is not in the profile's list", c.Reason, id), id)
			}
			other, dup := seen[c.Reason]
			if dup && !slices.Contains(g, other) {
				return fail(c.Reason, fmt.Sprintf("%s and %s were refused for different causes with the same reason %q", other, id, c.Reason), other, id)
			}
			if !dup {
				seen[c.Reason] = id
				got = append(got, c.Reason)
			}
		}
	}
	if len(s.Groups) < 2 {
		return notEngaged("fewer than two kinds of refusal")
	}
	return pass(strings.Join(got, ", "), fmt.Sprintf("%d causes", len(s.Groups)))
}

// completed: IDs end as completed with 200; with Min each was held at least that long, so that the wait limit would have struck.
func completed(s Spec, r *evidence.Run) finding {
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if !ok || c.Sent == evidence.Never {
			return notEngaged(id+" was not sent", id)
		}
		if c.Outcome != evidence.Completed || c.Status != 200 {
			return fail(answer(c), fmt.Sprintf("expected %s to complete with 200, it ended as %s %s%s", id, answer(c), c.Error, c.Text), id)
		}
		if s.Tokens > 0 && c.Tokens != s.Tokens {
			return fail(fmt.Sprintf("%d tokens", c.Tokens), fmt.Sprintf("%s must get %d tokens, its client saw %d", id, s.Tokens, c.Tokens), id)
		}
		b, seen := arrival(r, id)
		if !seen {
			return fail(id+" has no backend record", "the client got 200, but no model server saw the request", id)
		}
		if s.Min > 0 && b.End-b.Arrival < int64(s.Min) {
			return notEngaged(fmt.Sprintf("%s ran only %s", id, ms(b.End-b.Arrival)), id)
		}
	}
	if len(s.IDs) == 0 {
		return notEngaged("no request to look at")
	}
	return pass(fmt.Sprintf("%d completed", len(s.IDs)), "", s.IDs...)
}

// leaveSlack is how much later than a model server the client's own side may notice that it left.
const leaveSlack = 100 * time.Millisecond

// aborted: the client left while the request was inside a model server, and the server saw it aborted no later than Within after.
func aborted(s Spec, r *evidence.Run) finding {
	worst := int64(0)
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		if !ok || c.Outcome != evidence.ClientCancelled {
			return notEngaged(id+" was not cancelled by its client", id)
		}
		b, ok := arrival(r, id)
		if !ok || b.Arrival > c.End || b.End != evidence.Never && b.End < c.End-int64(leaveSlack) {
			return notEngaged(id+" was not at a model server when its client left", id)
		}
		if slices.Contains(s.Streamed, id) && c.FirstToken == evidence.Never {
			return notEngaged(id+" was no stream yet: its client had seen no token when it left", id)
		}
		if b.Ending != evidence.Aborted {
			return fail(id+" "+b.Ending, fmt.Sprintf("the client left, but the model server recorded %q", b.Ending), id)
		}
		if b.End == evidence.Never {
			return notEngaged(id+" has no instant at which it was aborted", id)
		}
		if d := b.End - c.End; d > int64(s.Within) {
			return fail("after "+ms(d), fmt.Sprintf("%s was aborted %s after its client left, at the latest after %s", id, ms(d), s.Within), id)
		}
		worst = max(worst, b.End-c.End)
	}
	if len(s.IDs) == 0 {
		return notEngaged("no request to look at")
	}
	return pass("aborted after "+ms(max(worst, 0)), fmt.Sprintf("%d in flight when their clients left", len(s.IDs)), s.IDs...)
}

// undisturbed: IDs run at their model servers through step Mark and complete, while Waiting are pending all the time.
func undisturbed(s Spec, r *evidence.Run) finding {
	m, f := watch(r, s.Mark)
	if f != nil {
		return *f
	}
	if len(s.IDs) == 0 || len(s.Waiting) == 0 {
		return notEngaged("nothing in flight, or no demand for its place")
	}
	for _, id := range s.IDs {
		b, ok := arrival(r, id)
		if !ok || b.Arrival > m.Start {
			return notEngaged(id+" was not in flight", id)
		}
	}
	for _, id := range s.Waiting {
		if c, ok := r.ClientByID(id); !ok || c.Sent == evidence.Never || c.Sent > m.Start {
			return notEngaged(id+" was not sent", id)
		}
	}
	for _, id := range s.IDs {
		b, _ := r.BackendByID(id)
		if b.End != evidence.Never && b.End <= m.End || b.Ending == evidence.Aborted {
			return fail(id+" "+b.Ending, fmt.Sprintf("%s was stopped (%s) although it must go on", id, b.Ending), id)
		}
		if c, _ := r.ClientByID(id); c.Outcome != evidence.Completed {
			return fail(answer(c), fmt.Sprintf("%s must complete, it ended as %s", id, answer(c)), id)
		}
	}
	if why, id := allPending(r, s.Waiting, m.End); why != "" {
		return fail(id+" did not wait", "expected it pending while the others ran, but "+why, id)
	}
	return pass(fmt.Sprintf("%d ran on for %s", len(s.IDs), ms(m.End-m.Start)), fmt.Sprintf("%d pending above them", len(s.Waiting)), s.IDs...)
}

// evicted: exactly Count of IDs (and up to Slack more) are stopped in flight no later than Max after the first of Then was sent, and
// aborted at the model server, no later than Within after the client's end if that is given; then Then arrive. A victim ends with
// Status and Reason; one of Streamed, which its client has seen begin, ends in the middle of its stream. Engaged if all of IDs were in
// flight when Then was sent, and Streamed had shown a token.
func evicted(s Spec, r *evidence.Run) finding {
	if s.Status == 0 {
		return finding{kind: verdict.NotApplicable, figure: "not stated", why: "the profile states no status for this case"}
	}
	if len(s.Then) == 0 || s.Count <= 0 {
		return notEngaged("no demand, or nothing that it should displace")
	}
	for _, id := range s.Then {
		if c, ok := r.ClientByID(id); !ok || c.Sent == evidence.Never {
			return notEngaged(id+" was not sent", id)
		}
	}
	demand, _ := r.ClientByID(s.Then[0])
	for _, id := range s.IDs {
		if b, ok := arrival(r, id); !ok || b.Arrival > demand.Sent || b.End != evidence.Never && b.End <= demand.Sent {
			return notEngaged(id+" was not in flight when the demand came", id)
		}
		c, _ := r.ClientByID(id)
		if slices.Contains(s.Streamed, id) && (c.FirstToken == evidence.Never || c.FirstToken > demand.Sent || c.Events == 0) {
			return notEngaged(id+" had shown no token when the demand came", id)
		}
	}
	var victims []string
	for _, id := range s.IDs {
		c, _ := r.ClientByID(id)
		if c.Outcome == evidence.Completed {
			continue
		}
		victims = append(victims, id)
		if f := victim(s, r, c, demand); f != nil {
			return *f
		}
	}
	if len(victims) < s.Count || len(victims) > s.Count+s.Slack {
		return fail(fmt.Sprintf("%d victims", len(victims)), fmt.Sprintf("expected %s of %s to be stopped, got %s", upTo(s.Count, s.Slack), list(s.IDs), list(victims)), victims...)
	}
	for _, id := range s.Then {
		b, ok := arrival(r, id)
		if !ok || b.Arrival-demand.Sent > int64(s.Max) {
			return fail(id+" was not served", fmt.Sprintf("the demand must take the freed capacity within %s", s.Max), id)
		}
	}
	figure := fmt.Sprintf("%d evicted with %d %s", len(victims), s.Status, s.Reason)
	if len(s.Streamed) > 0 {
		figure = fmt.Sprintf("%d broken off in the middle", len(victims))
	}
	return pass(figure, fmt.Sprintf("%d in flight, demand blocked", len(s.IDs)), append(victims, s.Then...)...)
}

func upTo(n, slack int) string {
	if slack == 0 {
		return fmt.Sprintf("exactly %d", n)
	}
	return fmt.Sprintf("%d to %d", n, n+slack)
}

// victim judges how one victim ended; nil if as it should.
func victim(s Spec, r *evidence.Run, c, demand evidence.Client) *finding {
	b, _ := r.BackendByID(c.ID)
	streamed := slices.Contains(s.Streamed, c.ID)
	var f finding
	switch {
	case streamed && c.Outcome != evidence.KilledMidStream:
		f = fail(answer(c), fmt.Sprintf("expected the stream of the victim %s to break off, got %s", c.ID, answer(c)), c.ID)
	case !streamed && (c.Status != s.Status || c.Reason != s.Reason):
		f = fail(answer(c), fmt.Sprintf("expected the victim %s to end with %d %s, got %s", c.ID, s.Status, s.Reason, answer(c)), c.ID)
	case b.Ending != evidence.Aborted:
		f = fail(c.ID+" "+b.Ending, "the victim was not aborted at its model server", c.ID)
	case c.End < demand.Sent || c.End-demand.Sent > int64(s.Max):
		d := c.End - demand.Sent
		f = fail("after "+ms(d), fmt.Sprintf("the victim was stopped %s after the demand came, at the latest after %s", ms(d), s.Max), c.ID)
	case s.Within > 0 && (b.End == evidence.Never || b.End-c.End > int64(s.Within)):
		f = fail("the model server went on", fmt.Sprintf("%s must be aborted at its model server within %s of its client's end", c.ID, s.Within), c.ID)
	default:
		return nil
	}
	return &f
}

// upstreamError: the error answer of a model server reaches the client with its own Status and without a dropped reason.
func upstreamError(s Spec, r *evidence.Run) finding {
	for _, id := range s.IDs {
		c, ok := r.ClientByID(id)
		b, seen := arrival(r, id)
		if !ok || !seen || b.Ending != evidence.Failed {
			return notEngaged(id+" was not answered with an error by a model server", id)
		}
		if c.Outcome != evidence.Refused || c.Status != s.Status || c.Reason != "" {
			return fail(answer(c), fmt.Sprintf("the model server answered %d, the client got %s", s.Status, answer(c)), id)
		}
		if b.Text != c.Text {
			return fail(id+" changed", fmt.Sprintf("the model server answered %q, the client got %q", b.Text, c.Text), id)
		}
	}
	if len(s.IDs) == 0 {
		return notEngaged("no request to look at")
	}
	return pass(fmt.Sprintf("%d passed on as %d", len(s.IDs), s.Status), "answered by the model server", s.IDs...)
}

// startup: the document Valid comes up, and each of Cases is refused with a non-zero exit within Max, naming its text.
func startup(s Spec, r *evidence.Run) finding {
	by := map[string]evidence.Process{}
	for _, p := range r.Processes {
		if _, dup := by[p.Case]; dup {
			return notEngaged("case "+p.Case+" was tried twice, with two answers", p.Case)
		}
		by[p.Case] = p
	}
	v, ok := by[s.Valid]
	if !ok || !v.Started {
		return notEngaged("the same document without the error does not start: "+v.Text, s.Valid)
	}
	names := sortedKeys(s.Cases)
	if len(names) == 0 {
		return notEngaged("no document to refuse")
	}
	for _, n := range names {
		p, ok := by[n]
		switch {
		case s.Cases[n] == "":
			return notEngaged("nothing is said that the refusal of "+n+" must name", n)
		case !ok:
			return notEngaged("case "+n+" was not tried", n)
		case p.Started:
			return fail(n+" started", fmt.Sprintf("a document with the mistake %q must not start", s.Cases[n]), n)
		case p.ExitCode == 0:
			return fail(n+" exit 0", "a refused document must end the process with a non-zero status", n)
		case p.Duration > int64(s.Max):
			return fail(n+" after "+ms(p.Duration), fmt.Sprintf("the refusal must come within %s", s.Max), n)
		case !strings.Contains(p.Text, s.Cases[n]):
			return fail(n+" unnamed", fmt.Sprintf("the refusal must name %q, it says: %s", s.Cases[n], p.Text), n)
		}
	}
	return pass(fmt.Sprintf("%d documents refused by name", len(names)), "the valid document starts", names...)
}
