package report

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/llm-weir/weir/harness/verdict"
)

// Markdown writes report.md.
func Markdown(w io.Writer, in Input) error {
	var b strings.Builder
	m := in.manifest()
	fmt.Fprintf(&b, "# %s %s\n\n%s\n\n", glyph(in.Verdict()), md(in.headline()), md(in.implementation()))
	fmt.Fprintf(&b, "| | |\n|---|---|\n")
	for _, f := range facts(in) {
		fmt.Fprintf(&b, "| %s | %s |\n", md(f.Name), md(f.Value))
	}
	fmt.Fprintf(&b, "\n## Counts\n\n| level | pass | fail | error | inconclusive | not-applicable |\n|---|--:|--:|--:|--:|--:|\n")
	for _, l := range levels(in) {
		s := l.Statistics
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d |\n", md(l.Name), s.Passed, s.Failed, s.Error, s.Inconclusive, s.NotApplicable)
	}
	b.WriteString("\n## Requirements\n\n")
	if len(in.Results) == 0 {
		b.WriteString("Nothing was judged.\n")
	} else {
		b.WriteString("| verdict | id | level | figure | requirement |\n|---|---|---|---|---|\n")
	}
	for _, r := range in.Results {
		fmt.Fprintf(&b, "| %s %s | %s | %s | %s | %s |\n", glyph(r.Kind), r.Kind, md(r.ID), md(r.Level), md(r.Figure), md(r.Title))
	}
	for _, k := range ranked() {
		for _, r := range in.Results {
			if r.Kind == k && !settled(k) {
				mdSection(&b, in, r)
			}
		}
	}
	if m.RunID != "" || in.Command != "" {
		b.WriteString("\n## Reproduce\n\n")
		b.WriteString(mdBlock(in.Command))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// mdSection explains one result that is neither a pass nor not-applicable.
func mdSection(b *strings.Builder, in Input, r verdict.Result) {
	fmt.Fprintf(b, "\n## %s %s: %s\n\n%s\n\n", glyph(r.Kind), md(r.ID), r.Kind, md(r.Title))
	if len(r.Verdicts) == 0 {
		fmt.Fprintf(b, "%s\n", md(r.Why))
	}
	for _, v := range r.Verdicts {
		fmt.Fprintf(b, "- **%s** in %s by %s: %s\n", v.Kind, md(v.Scenario), md(v.Check), md(v.Figure))
		for _, l := range []struct{ name, text string }{
			{"why", v.Why}, {"engaged", v.Engaged}, {"witnesses", strings.Join(v.Witnesses, ", ")},
		} {
			if l.text != "" {
				fmt.Fprintf(b, "  - %s: %s\n", l.name, md(l.text))
			}
		}
	}
	if paths := evidencePaths(in, r); len(paths) > 0 {
		b.WriteString("\nEvidence:\n\n")
		for _, p := range paths {
			fmt.Fprintf(b, "- %s\n", md(p))
		}
	}
	if in.Command != "" {
		b.WriteString("\nReproduce:\n\n" + mdBlock(in.Command))
	}
}

// glyph is the verdict as one character, so that no reader depends on colour.
func glyph(k verdict.Kind) string {
	switch k {
	case verdict.Pass:
		return "✓"
	case verdict.Fail:
		return "✗"
	case verdict.Error:
		return "!"
	case verdict.Inconclusive:
		return "?"
	}
	return "–"
}

// md makes a text literal inside a line or a table cell of Markdown.
func md(s string) string {
	var b strings.Builder
	rs := []rune(line(s))
	for i, r := range rs {
		switch {
		case r == '<':
			b.WriteString("&lt;")
			continue
		case r == '>':
			b.WriteString("&gt;")
			continue
		case r == '&':
			b.WriteString("&amp;")
			continue
		case r == '_' && i > 0 && i < len(rs)-1 && wordRune(rs[i-1]) && wordRune(rs[i+1]):
			// inside a word an underscore means nothing, and snake_case stays legible in the source
		case strings.ContainsRune("\\`*_[]|~", r), i == 0 && strings.ContainsRune("#+-=", r):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func wordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// mdBlock is a literal block whose fence is longer than any run of backticks inside.
func mdBlock(s string) string {
	fence := "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	return fence + "\n" + clean(s, true) + "\n" + fence + "\n"
}
