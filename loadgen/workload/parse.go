package workload

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/loadgen/arrival"
)

// Parse reads one YAML document; name is the file's name for the messages. The error joins every problem of the file in the order of
// its lines.
func Parse(name string, data []byte) (Spec, error) {
	if len(data) > MaxBytes {
		return Spec{}, fmt.Errorf("%s:1: %d bytes: a workload has at most %d; split it", name, len(data), MaxBytes)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil {
		return Spec{}, syntax(name, err)
	}
	r := reader{lines: map[string]int{"": 1}, bad: map[string]bool{}}
	if err := dec.Decode(&more); err == nil {
		r.fail(more.Line, "", "a second document: a file holds one workload; split it")
	} else if !errors.Is(err, io.EOF) {
		return Spec{}, syntax(name, err)
	}
	spec := r.spec(doc.Content[0])
	for _, p := range spec.problems() {
		if !r.hidden(p.path) {
			r.found = append(r.found, finding{r.line(p.path), p.path, p.text})
		}
	}
	if len(r.found) == 0 {
		return spec, nil
	}
	slices.SortStableFunc(r.found, func(a, b finding) int { return a.line - b.line })
	var errs []error
	for _, f := range r.found {
		where := f.path
		if where != "" {
			where += ": "
		}
		errs = append(errs, fmt.Errorf("%s:%d: %s%s", name, f.line, where, f.text))
	}
	return Spec{}, errors.Join(errs...)
}

var lineOf = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// syntax turns a parser error ("yaml: line 3: ...") into file:line form. The parser stops at the first one.
func syntax(name string, err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s:1: the file is empty: it needs name, duration and tenants", name)
	}
	text, line := err.Error(), "1"
	if m := lineOf.FindStringSubmatch(text); m != nil {
		line, text = m[1], text[len(m[0]):]
	}
	return fmt.Errorf("%s:%s: no valid YAML: %s", name, line, strings.TrimPrefix(text, "yaml: "))
}

type finding struct {
	line       int
	path, text string
}

// reader walks the YAML nodes. It remembers the line of each path for the semantic rules, and the paths that could not be read, so
// that one mistake is not reported twice.
type reader struct {
	found []finding
	lines map[string]int
	bad   map[string]bool
}

func (r *reader) fail(line int, path, format string, args ...any) {
	r.bad[path] = true
	r.found = append(r.found, finding{line, path, fmt.Sprintf(format, args...)})
}

// line is that of the path itself or of the nearest enclosing one that is in the file: a missing field is reported where it
// should have been.
func (r *reader) line(path string) int {
	for {
		if n, ok := r.lines[path]; ok {
			return n
		}
		path = parent(path)
	}
}

func (r *reader) hidden(path string) bool {
	for ; path != ""; path = parent(path) {
		if r.bad[path] {
			return true
		}
	}
	return r.bad[""] && len(r.lines) == 1 // the document itself could not be read
}

func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

func (r *reader) spec(n *yaml.Node) Spec {
	var s Spec
	o, ok := r.object(n, "", "name", "duration", "tenants")
	if !ok {
		return s
	}
	s.Name = text(o, "name")
	s.Duration = duration(o, "duration")
	for i, t := range r.list(o, "tenants") {
		s.Tenants = append(s.Tenants, r.tenant(t, fmt.Sprintf("tenants[%d]", i)))
	}
	return s
}

func (r *reader) tenant(n *yaml.Node, at string) Tenant {
	var t Tenant
	o, ok := r.object(n, at, "name", "fairnessID", "objective", "arrival", "promptTokens", "outputTokens", "maxTokens", "stream", "path",
		"start", "stop", "cancelAfter", "cancelFraction")
	if !ok {
		return t
	}
	t.Name, t.FairnessID, t.Objective = text(o, "name"), text(o, "fairnessID"), text(o, "objective")
	if a, ok := o.object("arrival", "process", "rate", "cv", "workers", "think"); ok {
		t.Arrival = Arrival{
			Process: arrival.Kind(text(a, "process")), Rate: number(a, "rate"), CV: number(a, "cv"),
			Workers: integer(a, "workers"), Think: duration(a, "think"),
		}
	}
	t.Prompt, t.Output = r.lengths(o, "promptTokens"), r.lengths(o, "outputTokens")
	t.MaxTokens = integer(o, "maxTokens")
	if n := o.fields["maxTokens"]; n != nil && t.MaxTokens == 0 && !r.bad[o.at("maxTokens")] {
		r.fail(n.Line, o.at("maxTokens"), "0 is not between 1 and %d: change it, or leave it out for the longest output", MaxTokens)
	}
	t.Stream = boolean(o, "stream")
	t.Path = r.apiPath(o)
	t.Start, t.Stop, t.CancelAfter = duration(o, "start"), duration(o, "stop"), duration(o, "cancelAfter")
	if n := o.fields["stop"]; n != nil && t.Stop == 0 && !r.bad[o.at("stop")] {
		r.fail(n.Line, o.at("stop"), "0s would send nothing: leave it out to stop with the run")
	}
	t.CancelFraction = number(o, "cancelFraction")
	if o.fields["cancelFraction"] == nil && t.CancelAfter > 0 {
		t.CancelFraction = 1
	}
	return t
}

func (r *reader) apiPath(o object) string {
	switch v := text(o, "path"); v {
	case "", "completions":
		return PathCompletions
	case "chat":
		return PathChat
	default:
		r.fail(o.fields["path"].Line, o.at("path"), "unknown path %q: use completions or chat", v)
		return PathCompletions
	}
}

func (r *reader) lengths(o object, key string) Lengths {
	l, ok := o.object(key, string(Fixed), string(Uniform), string(Lognormal))
	if !ok {
		return Lengths{}
	}
	if len(l.fields) > 1 {
		r.fail(r.lines[l.path], l.path, "more than one distribution: keep one of fixed, uniform and lognormal")
		return Lengths{}
	}
	if l.fields[string(Fixed)] != nil {
		return Lengths{Distribution: Fixed, Value: integer(l, string(Fixed))}
	}
	if u, ok := l.object(string(Uniform), "min", "max"); ok {
		return Lengths{Distribution: Uniform, Min: integer(u, "min"), Max: integer(u, "max")}
	}
	if g, ok := l.object(string(Lognormal), "mean", "cv", "min", "max"); ok {
		return Lengths{Distribution: Lognormal, Mean: number(g, "mean"), CV: number(g, "cv"), Min: integer(g, "min"), Max: integer(g, "max")}
	}
	return Lengths{}
}

func quote(s string) string {
	if len(s) > 60 {
		s = s[:60] + "..."
	}
	return strconv.Quote(s)
}
