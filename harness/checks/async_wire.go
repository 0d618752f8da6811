package checks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"reflect"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
)

// asyncAttempts: the attempts have what Attempts says.
func asyncAttempts(a Async, r *evidence.Run) finding {
	if len(a.Attempts) == 0 {
		return notEngaged("nothing is looked for")
	}
	looked := 0
	for _, w := range a.Attempts {
		own := Async{IDs: []string{w.ID}}
		n := 0
		for _, x := range own.attempts(r, 0, 1<<62) {
			if w.Nth != 0 && w.Nth != x.Nth {
				continue
			}
			n++
			if why := w.wrong(x.Attempt); why != "" {
				return fail(w.ID+": "+why, fmt.Sprintf("attempt %d of %s: %s", x.Nth, x.ID, why), x.ID)
			}
		}
		if n == 0 {
			return notEngaged(fmt.Sprintf("%s did not arrive", w.ID))
		}
		looked += n
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
	case w.Some && slices.ContainsFunc(values, func(v string) bool { return strings.HasPrefix(v, w.Value) }):
		return ""
	case len(values) > 1:
		return fmt.Sprintf("%s is %q, expected the one value %q", label, values, w.Value)
	case w.Some || values[0] != w.Value:
		return fmt.Sprintf("%s is %.120q, expected %.120q", label, values[0], w.Value)
	}
	return ""
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
	if field, ok := strings.CutPrefix(name, ":form."); ok {
		return form(x)[field]
	}
	return x.Headers[name]
}

// form reads a multipart body; nil if it is none.
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
		if err == io.EOF {
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

// asyncDetails: what steps noted begins as Details says; a text that begins with ! must not occur.
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

// asyncQueries: of the recorded PromQL queries at least one has each text of Contains, one is Equal, and each distinct one comes at most
// High and at least Low times a second in the window.
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
	texts := sortedKeys(at)
	for _, c := range a.Contains {
		if !slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(t, c) }) {
			return fail("no "+c, fmt.Sprintf("no query contains %q: %s", c, strings.Join(texts, " | ")))
		}
	}
	if a.Equal != "" && at[a.Equal] == nil {
		return fail("another query", fmt.Sprintf("no query is %q: %s", a.Equal, strings.Join(texts, " | ")))
	}
	figure := fmt.Sprintf("%d distinct queries", len(texts))
	if a.High > 0 {
		if to > 1<<61 {
			to = r.Steps[len(r.Steps)-1].End
		}
		for _, t := range texts {
			rate := float64(len(at[t])) * 1e9 / float64(max(1, to-from))
			if rate > a.High || rate < a.Low {
				return fail(fmt.Sprintf("%.1f/s", rate), fmt.Sprintf("%q came %.1f times a second, expected %g to %g", t, rate, a.Low, a.High))
			}
			figure = fmt.Sprintf("%.1f queries a second", rate)
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
		if !within(n, w.Min, w.Max) {
			return fail(fmt.Sprintf("%d spans %s", n, w.Name), fmt.Sprintf("%d spans %q with %v, parent %q, trace %q came, expected %s (of %d spans: %s)", n, w.Name, w.Attrs, w.Parent, w.Trace,
				bounded(w.Min, w.Max), len(spans), spanNames(spans)))
		}
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
		if s.Attributes[k] != v {
			return false
		}
	}
	return true
}
