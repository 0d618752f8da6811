package checks

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// ErrorCodes are the documented values of error_code (AP-RES-04); PAYLOAD_UNAVAILABLE came with 0.10.
var ErrorCodes = []string{"DEADLINE_EXCEEDED", "CANCELLED", "GATE_DROPPED", "GATE_ERROR", "INFERENCE_ERROR", "INVALID_REQUEST", "PAYLOAD_UNAVAILABLE"}

// asyncResults: every submitted id ends in exactly one result, with Status, one of Codes, in List, with the text of Texts and in the form
// of Shape, as far as they are given.
func asyncResults(a Async, r *evidence.Run) finding {
	why := a.unsent(r, math.MaxInt64)
	if why == "" {
		why = a.ambiguous(r)
	}
	ids := a.submitted(r)
	switch {
	case why != "":
		return notEngaged(why)
	case !slices.Contains(shapes, a.Shape):
		return notEngaged("unknown shape " + a.Shape)
	}
	for _, id := range sortedKeys(a.Texts) {
		if !slices.Contains(ids, id) {
			return notEngaged(id + " was not submitted")
		}
	}
	got := a.results(r)
	for _, id := range ids {
		switch n := len(got[id]); {
		case n == 0:
			return fail(id+" has no result", fmt.Sprintf("%s was submitted and has no result; %d of %d have", id, len(got), len(ids)), id)
		case n > 1:
			return fail(fmt.Sprintf("%s has %d results", id, n), fmt.Sprintf("%s has %d results, expected one", id, n), id)
		}
		if why := a.wrong(got[id][0].FinalResult); why != "" {
			return fail(id+": "+why, fmt.Sprintf("the result of %s: %s: %s", id, why, got[id][0].Raw), id)
		}
	}
	for _, id := range sortedKeys(got) {
		if !slices.Contains(ids, id) {
			return fail("a result of nobody", fmt.Sprintf("a result has id %q, which nobody submitted", id), id)
		}
	}
	return pass(fmt.Sprintf("%d results", len(ids)), fmt.Sprintf("%d submitted", len(ids)), ids[:min(3, len(ids))]...)
}

// wrong says what is wrong with one result, "" if nothing is. Codes with "" among them allow an answer, with Status where one is given, beside the
// errors, each in its documented form.
func (a Async) wrong(v *evidence.FinalResult) string {
	either := slices.Contains(a.Codes, "") // an answer, with its status, or an error
	switch {
	case a.Status != 0 && v.Status != a.Status && !(either && v.Code != ""):
		return fmt.Sprintf("status %d, expected %d", v.Status, a.Status)
	case len(a.Codes) > 0 && !slices.Contains(a.Codes, v.Code):
		return fmt.Sprintf("error_code %q, expected %s", v.Code, strings.Join(a.Codes, " or "))
	case a.List != "" && v.List != a.List:
		return fmt.Sprintf("it is in %s, expected %s", v.List, a.List)
	}
	for _, part := range a.Contains {
		if !strings.Contains(v.Payload, part) {
			return fmt.Sprintf("payload %.80q has no %q", v.Payload, part)
		}
	}
	if text, ok := a.Texts[v.ID]; ok && v.Payload != text {
		return fmt.Sprintf("payload %.80q, expected %.80q", v.Payload, text)
	}
	if either && a.Shape == "" {
		return shape(map[bool]string{true: "http", false: "error"}[v.Code == ""], v)
	}
	return shape(a.Shape, v)
}

// shapes are the forms that a result can be held against.
var shapes = []string{"", "http", "error", "dropped"}

// shape says how a result is not of the documented form of an HTTP answer or of an error (AP-RES-02, AP-RES-04).
func shape(want string, v *evidence.FinalResult) string {
	switch want {
	case "http":
		if v.Status <= 0 || v.Code != "" || v.Message != "" {
			return fmt.Sprintf("status %d, error_code %q, error_message %q, expected a status and no error", v.Status, v.Code, v.Message)
		}
	case "error":
		var payload map[string]json.RawMessage
		switch {
		case v.Status != 0:
			return fmt.Sprintf("status %d, expected none", v.Status)
		case !slices.Contains(ErrorCodes, v.Code):
			return fmt.Sprintf("error_code %q is not documented", v.Code)
		case v.Message == "":
			return "no error_message"
		case json.Unmarshal([]byte(v.Payload), &payload) != nil || payload["error"] == nil || string(payload["error"]) == "null":
			return fmt.Sprintf("payload %.80q is no JSON with the field error", v.Payload)
		}
	case "dropped": // by an admission gate, with a payload of its own (K19)
		var payload struct {
			Code int `json:"code"`
		}
		if json.Unmarshal([]byte(v.Payload), &payload) != nil || payload.Code != 429 && v.Status != 429 {
			return fmt.Sprintf("payload %.80q carries no code 429", v.Payload)
		}
	}
	return ""
}

// asyncConserved: each submitted id has exactly one result, or lies in the broker at mark To, and none has two.
func asyncConserved(a Async, r *evidence.Run) finding {
	why := a.unsent(r, math.MaxInt64)
	if why == "" {
		why = a.ambiguous(r)
	}
	if why == "" && !worked(r) {
		why = idle // the broker keeps what nobody takes
	}
	if why != "" {
		return notEngaged(why)
	}
	ids := a.submitted(r)
	members, more, why := a.members(r)
	if why != "" {
		return notEngaged(why)
	}
	got := a.results(r)
	var lost, doubled []string
	waiting := 0
	for _, id := range ids {
		n := len(got[id])
		inside := slices.ContainsFunc(members, func(m string) bool { return strings.Contains(m, `"id":"`+id+`"`) })
		switch {
		case n > 1:
			doubled = append(doubled, id)
		case n == 0 && !inside:
			lost = append(lost, id)
		case n == 0:
			waiting++
		}
	}
	figure := fmt.Sprintf("%d lost, %d doubled of %d", len(lost), len(doubled), len(ids))
	if len(lost) > 0 && len(doubled) == 0 && more {
		return notEngaged("the broker had more than was kept of it")
	}
	if len(lost)+len(doubled) > 0 {
		return fail(figure, fmt.Sprintf("of %d messages %d have neither a result nor a place in the broker, and %d have more than one result", len(ids), len(lost), len(doubled)),
			append(lost, doubled...)[:min(10, len(lost)+len(doubled))]...)
	}
	return pass(figure, fmt.Sprintf("%d submitted, %d with a result, %d in the broker", len(ids), len(ids)-waiting, waiting))
}

// members are those that the broker had at mark To; more tells that it had others too, of which nothing was kept.
func (a Async) members(r *evidence.Run) (out []string, more bool, why string) {
	if a.To == "" {
		return nil, false, ""
	}
	why = "nobody looked into the broker at " + a.To
	for _, o := range r.Observations {
		if k := o.Key; k != nil && o.Mark == a.To {
			if k.Type == "" {
				return nil, false, k.Name + " could not be read at " + a.To
			}
			why = ""
			out = append(out, k.Members...)
			more = more || k.Type != "string" && k.Size > int64(len(k.Members))
		}
	}
	return out, more, why
}

// asyncFields: every result has the documented fields only, of the documented types (AP-RES-09), and at least Min kinds of ending occur.
func asyncFields(a Async, r *evidence.Run) finding {
	kinds := map[string]bool{}
	n := 0
	for _, o := range r.Observations {
		if o.Result == nil || !evidence.Among(a.IDs, o.Result.ID) {
			continue
		}
		n++
		var v map[string]any
		if err := json.Unmarshal([]byte(o.Result.Raw), &v); err != nil || v == nil {
			return fail("no JSON object", fmt.Sprintf("a result is no JSON object: %.120s", o.Result.Raw), o.Result.ID)
		}
		for _, k := range sortedKeys(v) {
			_, text := v[k].(string)
			_, number := v[k].(float64)
			ok := slices.Contains(append([]string{"id", "payload", "error_code", "error_message"}, a.Names...), k) && text || k == "status_code" && number
			if !ok {
				return fail("field "+k, fmt.Sprintf("a result has a field %q that is not documented, or of another type: %.200s", k, o.Result.Raw), o.Result.ID)
			}
		}
		kinds[fmt.Sprint(o.Result.Code, o.Result.Status/100)] = true
	}
	if len(kinds) < a.Min || n == 0 {
		return notEngaged(fmt.Sprintf("%d of %d kinds of results", len(kinds), a.Min))
	}
	return pass(fmt.Sprintf("%d results of %d kinds", n, len(kinds)), fmt.Sprintf("%d kinds", len(kinds)))
}

// asyncTiming: an event of each of the ids comes between Earliest and Latest after the anchor: the end of a step, or the message's deadline.
func asyncTiming(a Async, r *evidence.Run) finding {
	due, anchor := deadlines(r), int64(0)
	if a.Anchor != "deadline" {
		m, ok := r.StepByMark(a.Anchor)
		if !ok || a.Anchor == "" {
			return notEngaged("step " + a.Anchor + " was not reached")
		}
		anchor = m.End
	}
	ids := a.submitted(r)
	if a.Event == "exit" {
		ids = []string{"the process"}
	}
	if why := a.untimed(r, due, anchor); why != "" {
		return notEngaged(why)
	}
	var figures []string
	for _, id := range ids {
		at, ok := a.instant(r, id, anchor)
		from := anchor
		if a.Anchor == "deadline" {
			from = due[id]
		}
		if !ok {
			return fail("no "+a.Event, fmt.Sprintf("%s: no %s was seen", id, a.Event), id)
		}
		after := time.Duration(at - from)
		if after < a.Earliest || after > a.Latest {
			return fail(ms(int64(after)), fmt.Sprintf("%s of %s came %s after %s, expected %s to %s", a.Event, id, ms(int64(after)), a.Anchor, ms(int64(a.Earliest)), ms(int64(a.Latest))), id)
		}
		if len(figures) < 3 {
			figures = append(figures, ms(int64(after)))
		}
	}
	return pass(strings.Join(figures, ", "), fmt.Sprintf("%d ids", len(ids)))
}

// untimed says why nothing can be said about when something happened; "" if something can.
func (a Async) untimed(r *evidence.Run, due map[string]int64, anchor int64) string {
	switch {
	case !slices.Contains([]string{"arrival", "attempt-end", "result", "exit"}, a.Event):
		return "unknown event " + a.Event
	case a.Event == "exit" && a.Anchor == "deadline":
		return "a process has no deadline"
	case a.Event == "exit":
		// Nobody saw the process alive after the step before: it may have ended at once.
		if s, ok := ended(r, anchor); ok && a.Earliest > 0 && s.Start-anchor >= int64(a.Earliest) {
			return fmt.Sprintf("nobody looked at the process before %s", ms(s.Start-anchor))
		}
		return ""
	}
	if why := a.unsent(r, math.MaxInt64); why != "" {
		return why
	}
	if why := a.ambiguous(r); why != "" {
		return why
	}
	for _, id := range a.submitted(r) {
		if a.Anchor == "deadline" && due[id] == evidence.Never {
			return id + " has no deadline that can be read"
		}
	}
	return ""
}

// ended finds the step that saw the process end, at or after an instant.
func ended(r *evidence.Run, anchor int64) (evidence.Step, bool) {
	i := slices.IndexFunc(r.Steps, func(s evidence.Step) bool { return s.Op == "ended" && s.OK && s.End >= anchor })
	if i < 0 {
		return evidence.Step{}, false
	}
	return r.Steps[i], true
}

// instant finds the event of one id, at or after the anchor.
func (a Async) instant(r *evidence.Run, id string, anchor int64) (int64, bool) {
	if a.Event == "exit" {
		s, ok := ended(r, anchor)
		return s.End, ok
	}
	for _, o := range r.Observations {
		switch {
		case a.Event == "arrival" && o.Attempt != nil && o.Attempt.ID == id && o.At >= anchor && (a.Min == 0 || o.Attempt.Nth == a.Min):
			return o.At, true
		case a.Event == "attempt-end" && o.Attempt != nil && o.Attempt.ID == id && o.Attempt.End >= anchor && o.Attempt.End != evidence.Never:
			if a.Shape != "" && o.Attempt.Ending != a.Shape {
				continue
			}
			return o.Attempt.End, true
		case a.Event == "result" && o.Result != nil && o.Result.ID == id:
			return o.At, true
		}
	}
	return 0, false
}
