package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/llm-weir/weir/harness/verdict"
)

// Widths of the columns of a terminal line; with the title they fit 120 columns.
const (
	verdictColumn  = 14
	idColumn       = 12
	figureColumn   = 34
	titleColumn    = 56
	witnessesShown = 8
)

// Terminal writes one aligned line: verdict, id, figure, title. What is neither a pass nor not-applicable gets an indented
// "why" line and its witnesses. Escape sequences in the texts are made harmless.
func Terminal(w io.Writer, r verdict.Result, colour bool) error {
	var b strings.Builder
	word := pad(r.Kind.String(), verdictColumn)
	if colour {
		word = paint(r.Kind) + word + "\x1b[0m"
	}
	fmt.Fprintf(&b, "%s  %s  %s  %s\n", word, pad(line(r.ID), idColumn), pad(clip(line(r.Figure), figureColumn), figureColumn),
		clip(line(r.Title), titleColumn))
	if !settled(r.Kind) {
		indent := strings.Repeat(" ", verdictColumn+2)
		d := decisive(r)
		for _, l := range []struct{ name, text string }{
			{"why", r.Why}, {"engaged", d.Engaged}, {"witnesses", witnessList(d)}, {"scenario", d.Scenario},
		} {
			if l.text != "" {
				fmt.Fprintf(&b, "%s%s%s\n", indent, pad(l.name, 11), line(l.text))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func witnessList(v verdict.Verdict) string {
	ws := v.Witnesses
	more := ""
	if len(ws) > witnessesShown {
		more = fmt.Sprintf(" and %d more", len(ws)-witnessesShown)
		ws = ws[:witnessesShown]
	}
	return strings.Join(ws, ", ") + more
}

// TerminalSummary closes a run: headline, counts, and last the command that reproduces it.
func TerminalSummary(w io.Writer, in Input, colour bool) error {
	var b strings.Builder
	head := line(in.headline())
	if colour {
		head = paint(in.Verdict()) + head + "\x1b[0m"
	}
	fmt.Fprintf(&b, "\n%s\n", head)
	n := verdict.Counts(in.Results)
	var counts []string
	for _, k := range ranked() {
		counts = append(counts, fmt.Sprintf("%d %s", n[k], k))
	}
	fmt.Fprintf(&b, "%s: %s\n", line(in.implementation()), strings.Join(counts, ", "))
	if n := len(in.manifest().Unjudged); n > 0 {
		fmt.Fprintf(&b, "not judged: %s of the catalogue, named in the report\n", plural(n, "more requirement"))
	}
	if in.Command != "" {
		fmt.Fprintf(&b, "reproduce: %s\n", line(in.Command))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// paint is the escape sequence of a verdict's colour.
func paint(k verdict.Kind) string {
	switch k {
	case verdict.Pass:
		return "\x1b[32m"
	case verdict.Fail:
		return "\x1b[1;31m"
	case verdict.Error:
		return "\x1b[35m"
	case verdict.Inconclusive:
		return "\x1b[33m"
	}
	return "\x1b[2m"
}
