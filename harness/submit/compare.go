package submit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/harness/report"
	"github.com/llm-weir/weir/harness/verdict"
)

// verdictsIn reads what a report says of each requirement, of the forms that programs read; nil for the others.
func verdictsIn(name string, content []byte) (map[string]string, error) {
	type row struct {
		ID      string `json:"id" yaml:"id"`
		Verdict string `json:"verdict" yaml:"verdict"`
	}
	var rows []row
	switch name {
	case report.VerdictsFile:
		var v struct {
			Results []row `json:"results"`
		}
		if err := json.Unmarshal(content, &v); err != nil {
			return nil, err
		}
		rows = v.Results
	case report.YAMLFile:
		var v struct {
			Requirements []row `yaml:"requirements"`
		}
		if err := yaml.Unmarshal(content, &v); err != nil {
			return nil, err
		}
		rows = v.Requirements
	default:
		return nil, nil
	}
	out := map[string]string{}
	for _, r := range rows {
		if _, twice := out[r.ID]; twice {
			return nil, fmt.Errorf("%s is there twice", r.ID)
		}
		out[r.ID] = r.Verdict
	}
	return out, nil
}

// misjudged names the requirements of which a report says something else than the evidence.
func misjudged(name string, content []byte, results []verdict.Result) []string {
	said, err := verdictsIn(name, content)
	if err != nil {
		return []string{name + ": " + err.Error()}
	}
	if said == nil {
		return nil
	}
	var bad []string
	for _, r := range results {
		word, ok := said[r.ID]
		delete(said, r.ID)
		switch {
		case !ok:
			bad = append(bad, fmt.Sprintf("%s: %s is missing, the evidence says %s", name, r.ID, r.Kind))
		case word != r.Kind.String():
			bad = append(bad, fmt.Sprintf("%s: %s is %s by the evidence, the file says %s", name, r.ID, r.Kind, report.Line(word)))
		}
	}
	var more []string
	for id := range said {
		more = append(more, fmt.Sprintf("%s: %s was not judged in this run", name, report.Line(id)))
	}
	slices.Sort(more)
	return append(bad, more...)
}

// difference says where a text differs from the one that the evidence gives, and near which requirement; "" if it does not.
func difference(name string, want, got []byte, results []verdict.Result) string {
	if bytes.Equal(want, got) {
		return ""
	}
	n := differs(want, got)
	near := nearest(want, n, results)
	if near != "" {
		near = " (at " + near + ")"
	}
	return fmt.Sprintf("%s: line %d is not what the evidence gives%s: it says %q, not %q", name, n, near, excerpt(got, n, want), excerpt(want, n, got))
}

// differs is the number of the first line that differs.
func differs(want, got []byte) int {
	a, b := bytes.Split(want, []byte("\n")), bytes.Split(got, []byte("\n"))
	for i := range min(len(a), len(b)) {
		if !bytes.Equal(a[i], b[i]) {
			return i + 1
		}
	}
	return min(len(a), len(b)) + 1
}

// nearest is the requirement that line n of a report is about: one that it names, or else the last one named above it.
func nearest(text []byte, n int, results []verdict.Result) string {
	lines := strings.Split(string(text), "\n")
	for i := min(n, len(lines)) - 1; i >= 0; i-- {
		found, at := "", -1
		for _, r := range results {
			if p := strings.LastIndex(lines[i], r.ID); p > at {
				found, at = r.ID, p
			}
		}
		if found != "" {
			return found
		}
	}
	return ""
}

// excerpt is a part of line n around the first character in which it differs from the other text's.
func excerpt(text []byte, n int, other []byte) string {
	const before, shown = 30, 90
	pick := func(t []byte) string {
		lines := strings.Split(string(t), "\n")
		if n > len(lines) {
			return ""
		}
		return lines[n-1]
	}
	s, o := pick(text), pick(other)
	at := 0
	for at < min(len(s), len(o)) && s[at] == o[at] {
		at++
	}
	from := max(0, at-before)
	return report.Line(strings.ToValidUTF8(s[from:min(len(s), from+shown)], "…"))
}
