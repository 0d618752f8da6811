package scheduling

import (
	"slices"
	"strings"

	"github.com/llm-weir/weir/reference/flowcontrol"
)

// labelled keeps the candidates that every label filter keeps.
func labelled(candidates []*flowcontrol.Member, filters []LabelFilter) []*flowcontrol.Member {
	kept := candidates[:0]
	for _, m := range candidates {
		if !slices.ContainsFunc(filters, func(f LabelFilter) bool { return !f.keeps(m.Labels) }) {
			kept = append(kept, m)
		}
	}
	return kept
}

// keeps tells whether an endpoint with these labels ("k=v,k=v") passes.
func (f LabelFilter) keeps(labels string) bool {
	for labels != "" {
		var pair string
		pair, labels, _ = strings.Cut(labels, ",")
		if key, value, _ := strings.Cut(pair, "="); key == f.Key {
			return len(f.Values) == 0 || slices.Contains(f.Values, value)
		}
	}
	return f.Missing
}
