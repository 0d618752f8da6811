package checks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// asyncAttempts: the attempts have what Attempts says.
func asyncAttempts(a Async, r *evidence.Run) finding {
	if len(a.Attempts) == 0 {
		return notEngaged("nothing is looked for")
	}
	looked, unseen := 0, ""
	for _, w := range a.Attempts {
		for _, name := range append([]string{w.Name}, w.Or...) {
			if !known(name) {
				return notEngaged(fmt.Sprintf("an attempt has no part %q", name))
			}
		}
		own := Async{IDs: []string{w.ID}}
		n := 0
		for _, x := range own.attempts(r, 0, 1<<62) {
			if w.Nth != 0 && w.Nth != x.Nth {
				continue
			}
			n++
			if w.Absent && len(x.Headers) == 0 { // no request is without any
				unseen = fmt.Sprintf("the headers of attempt %d of %s were not seen", x.Nth, x.ID)
				continue
			}
			if why := w.wrong(x.Attempt); why != "" {
				return fail(w.ID+": "+why, fmt.Sprintf("attempt %d of %s: %s", x.Nth, x.ID, why), x.ID)
			}
		}
		if n == 0 {
			return notEngaged(fmt.Sprintf("%s did not arrive", w.ID))
		}
		looked += n
	}
	if unseen != "" {
		return notEngaged(unseen)
	}
	return pass(fmt.Sprintf("%d values as expected", len(a.Attempts)), fmt.Sprintf("%d attempts", looked))
}

// wrong says how an attempt differs.
func (w AttemptWant) wrong(x *evidence.Attempt) string {
	if w.Name == ":json" {
		var got, want any
		if json.Unmarshal([]byte(x.Body), &got) != nil || json.Unmarshal([]byte(w.Value), &want) != nil || !reflect.DeepEqual(got, want) {
			return fmt.Sprintf("body %.120q, expected the value of %.120q", x.Body, w.Value)
		}
		return ""
	}
	var values []string
	names := append([]string{w.Name}, w.Or...)
	for _, name := range names {
		if strings.HasPrefix(name, ":form.") && form(x) == nil {
			return "the body is no form"
		}
		values = append(values, value(x, name)...)
	}
	label := strings.Join(names, " or ")
	switch {
	case w.Absent && len(values) > 0:
		return fmt.Sprintf("%s is %q, expected none", label, values)
	case w.Absent:
		return ""
	case len(values) == 0:
		return fmt.Sprintf("no %s, expected %q", label, w.Value)
	case len(values) > 1:
		return fmt.Sprintf("%s is %q, expected the one value %q", label, values, w.Value)
	case w.Some && strings.HasPrefix(values[0], w.Value):
		return ""
	case w.Some || values[0] != w.Value:
		return fmt.Sprintf("%s is %.120q, expected %.120q", label, values[0], w.Value)
	}
	return ""
}

// parts are what stands for something else than a header.
var parts = []string{":path", ":method", ":upstream", ":host", ":body", ":peer", ":json"}

func known(name string) bool {
	text, with := strings.CutPrefix(name, ":with.") // an empty text is in every header
	return name != "" && (name[0] != ':' || slices.Contains(parts, name) || strings.HasPrefix(name, ":form.") || with && text != "")
}

// value gives the values of a header, or of what stands for another part of a request.
func value(x *evidence.Attempt, name string) []string {
	switch name {
	case ":path":
		return []string{x.URI}
	case ":method":
		return []string{x.Method}
	case ":upstream":
		return []string{x.Upstream}
	case ":host":
		return []string{x.Host}
	case ":body":
		return []string{x.Body}
	case ":peer":
		if x.PeerCert == "" {
			return nil
		}
		return []string{x.PeerCert}
	}
	if text, ok := strings.CutPrefix(name, ":with."); ok {
		var names []string
		for _, k := range sortedKeys(x.Headers) {
			if slices.ContainsFunc(x.Headers[k], func(v string) bool { return strings.Contains(v, text) }) {
				names = append(names, k)
			}
		}
		return names
	}
	if field, ok := strings.CutPrefix(name, ":form."); ok {
		return form(x)[field]
	}
	return x.Headers[strings.ToLower(name)]
}

// form reads a multipart body; nil if it is none, or has no field, as it has none where the boundary is another than the header says.
func form(x *evidence.Attempt) map[string][]string {
	kinds := x.Headers["content-type"]
	if len(kinds) != 1 {
		return nil
	}
	kind, params, err := mime.ParseMediaType(kinds[0])
	if err != nil || kind != "multipart/form-data" {
		return nil
	}
	out := map[string][]string{}
	parts := multipart.NewReader(bytes.NewReader([]byte(x.Body)), params["boundary"])
	for {
		p, err := parts.NextPart()
		if errors.Is(err, io.EOF) && len(out) > 0 {
			return out
		}
		if err != nil {
			return nil
		}
		text, err := io.ReadAll(p)
		if err != nil {
			return nil
		}
		out[p.FormName()] = append(out[p.FormName()], string(text))
	}
}

// asyncStarts: the starts of Cases were refused, each with its text, and those of Valid came up.
func asyncStarts(a Async, r *evidence.Run) finding {
	by := map[string]evidence.Process{}
	for _, p := range r.Processes {
		by[p.Case] = p
	}
	if len(by) == 0 {
		return notEngaged("nothing was started")
	}
	for _, name := range a.Valid {
		switch p, ok := by[name]; {
		case !ok:
			return notEngaged("case " + name + " was not tried")
		case !p.Started:
			return fail(name+": refused", fmt.Sprintf("the valid start %q did not become ready: exit %d: %s", name, p.ExitCode, p.Text), name)
		}
	}
	if len(a.Valid) == 0 {
		return notEngaged("no valid start shows that one can be made")
	}
	for _, name := range sortedKeys(a.Cases) {
		p, ok := by[name]
		text := a.Cases[name]
		switch {
		case !ok:
			return notEngaged("case " + name + " was not tried")
		case p.Started:
			return fail(name+": started", fmt.Sprintf("%q became ready, expected that it ends with an error", name), name)
		case p.ExitCode == 0:
			return fail(name+": exit 0", fmt.Sprintf("%q ended with status 0, expected another: %s", name, p.Text), name)
		case p.ExitCode < 0:
			return fail(name+": still runs", fmt.Sprintf("%q neither became ready nor ended within ten seconds: %s", name, p.Text), name)
		case !strings.Contains(strings.ToLower(p.Text), strings.ToLower(text)):
			return fail(name+": silent", fmt.Sprintf("%q ended without naming %q: %s", name, text, p.Text), name)
		}
	}
	return pass(fmt.Sprintf("%d refused, %d started", len(a.Cases), len(a.Valid)), fmt.Sprintf("%d starts", len(by)))
}

// asyncDetails: what steps noted begins as Details says; a text that begins with ! must not occur. A step that noted nothing says nothing.
func asyncDetails(a Async, r *evidence.Run) finding {
	if len(a.Details) == 0 {
		return notEngaged("nothing is looked for")
	}
	for _, mark := range sortedKeys(a.Details) {
		want := a.Details[mark]
		m, ok := r.StepByMark(mark)
		if !ok {
			return notEngaged("step " + mark + " was not reached")
		}
		if strings.TrimPrefix(want, "!") == "" || m.Detail == "" && m.OK {
			return notEngaged("step " + mark + " noted nothing, or nothing is expected of it")
		}
		if not, negative := strings.CutPrefix(want, "!"); negative {
			if strings.HasPrefix(m.Detail, not) {
				return fail(mark+": "+firstLine(m.Detail), fmt.Sprintf("%s: %s, expected anything but %q", mark, firstLine(m.Detail), not), mark)
			}
			continue
		}
		if !strings.HasPrefix(m.Detail, want) {
			return fail(mark+": "+firstLine(m.Detail), fmt.Sprintf("%s: %q, expected %q", mark, firstLine(m.Detail), want), mark)
		}
	}
	return pass(fmt.Sprintf("%d as expected", len(a.Details)), "all steps were made")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line[:min(len(line), 100)]
}

// asyncQueries: of the recorded PromQL queries at least one has all texts of Contains, one is Equal, and each distinct one comes at least Low
// times a second in the window and at most High times a second while it comes at all.
func asyncQueries(a Async, r *evidence.Run) finding {
	from, to, why := asyncSpan(a, r)
	if why != "" {
		return notEngaged(why)
	}
	at := map[string][]int64{}
	for _, o := range r.Observations {
		if o.Query != nil && o.At >= from && o.At <= to {
			at[o.Query.Text] = append(at[o.Query.Text], o.At)
		}
	}
	if len(at) == 0 {
		return notEngaged("no query came")
	}
	if len(a.Contains) == 0 && a.Equal == "" && a.High <= 0 && a.Low <= 0 {
		return notEngaged("any query would do")
	}
	texts := sortedKeys(at)
	if !slices.ContainsFunc(texts, func(t string) bool {
		return !slices.ContainsFunc(a.Contains, func(c string) bool { return !strings.Contains(t, c) })
	}) {
		return fail("no "+strings.Join(a.Contains, ", "), fmt.Sprintf("no query contains all of %q: %s", a.Contains, strings.Join(texts, " | ")))
	}
	if a.Equal != "" && at[a.Equal] == nil {
		return fail("another query", fmt.Sprintf("no query is %q: %s", a.Equal, strings.Join(texts, " | ")))
	}
	figure := fmt.Sprintf("%d distinct queries", len(texts))
	if a.High > 0 || a.Low > 0 {
		to = min(to, r.Steps[len(r.Steps)-1].End)
		for _, t := range texts {
			n := len(at[t])
			// From the first to the last, so that a burst is one in a long window too; two at once are none.
			while := float64(n-1) * 1e9 / float64(max(at[t][n-1]-at[t][0], int64(time.Second)))
			all := float64(n) * 1e9 / float64(max(1, to-from))
			if a.High > 0 && while > a.High || all < a.Low {
				return fail(fmt.Sprintf("%.1f/s", while), fmt.Sprintf("%q came %.1f times a second, %.1f over the whole window, expected %g to %g", t, while, all, a.Low, a.High))
			}
			figure = fmt.Sprintf("%.1f queries a second", while)
		}
	}
	return pass(figure, fmt.Sprintf("%d queries", len(texts)))
}

// asyncSpans: the collector got the spans of Spans.
func asyncSpans(a Async, r *evidence.Run) finding {
	var spans []*evidence.Span
	byID := map[string]*evidence.Span{}
	for _, o := range r.Observations {
		if o.Span != nil {
			spans = append(spans, o.Span)
			byID[o.Span.ID] = o.Span
		}
	}
	if len(a.Spans) == 0 {
		return notEngaged("nothing is looked for")
	}
	for _, w := range a.Spans {
		n := 0
		for _, s := range spans {
			if w.fits(s, byID) {
				n++
			}
		}
		if w.Min <= 0 && w.Max < 0 {
			return notEngaged("any number would do")
		}
		if !within(n, w.Min, w.Max) {
			return fail(fmt.Sprintf("%d spans %s", n, w.Name), fmt.Sprintf("%d spans %q with %v, parent %q, trace %q came, expected %s (of %d spans: %s)", n, w.Name, w.Attrs, w.Parent, w.Trace,
				bounded(w.Min, w.Max), len(spans), spanNames(spans)))
		}
	}
	if len(spans) == 0 && !worked(r) {
		return notEngaged(idle) // which leaves nothing to be traced
	}
	return pass(fmt.Sprintf("%d spans", len(spans)), fmt.Sprintf("%d spans", len(spans)))
}

func spanNames(spans []*evidence.Span) string {
	n := map[string]int{}
	for _, s := range spans {
		n[s.Name]++
	}
	var out []string
	for _, k := range sortedKeys(n) {
		out = append(out, fmt.Sprintf("%s × %d", k, n[k]))
	}
	return strings.Join(out, ", ")
}

func (w SpanWant) fits(s *evidence.Span, byID map[string]*evidence.Span) bool {
	if w.Name != "" && s.Name != w.Name || w.Trace != "" && s.Trace != w.Trace || w.Service != "" && s.Service != w.Service || w.Linked && len(s.Links) == 0 {
		return false
	}
	if w.Parent != "" && (byID[s.Parent] == nil || byID[s.Parent].Name != w.Parent) {
		return false
	}
	for k, v := range w.Attrs {
		if own, ok := s.Attributes[k]; !ok || own != v {
			return false
		}
	}
	return true
}
