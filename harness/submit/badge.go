package submit

import (
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/llm-weir/weir/harness/report"
)

// Measures of the badge in pixels. Labels are fitted into the width that is reckoned for them, so that no font on the reader's
// machine can make them run over.
const (
	badgeHeight = 20
	glyphWidth  = 6.4
	badgePad    = 8.0
)

// badge draws the result: on the left the suite, on the right contract and figures on the colour of the verdict. It is one SVG
// without scripts, links, or fonts from elsewhere.
func badge(sub Submission) []byte {
	left := "weir " + sub.Suite.Version
	right := sub.Profile + " " + sub.Level + ": " + sub.Result.Counts()
	if sub.Result.Verdict != "pass" {
		right = sub.Result.Verdict + " · " + right
	}
	lw, rw := labelWidth(left)+2*badgePad, labelWidth(right)+2*badgePad
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.1f" height="%d" viewBox="0 0 %.1f %d" role="img" aria-label="%s">`+"\n",
		lw+rw, badgeHeight, lw+rw, badgeHeight, escaped(left+", "+right))
	fmt.Fprintf(&b, "<title>%s</title>\n", escaped(left+", "+right))
	fmt.Fprintf(&b, `<rect width="%.1f" height="%d" rx="3" fill="%s"/>`+"\n", lw+rw, badgeHeight, colour(sub.Result.Verdict))
	fmt.Fprintf(&b, `<path d="M3 0H%.1fV%dH3A3 3 0 0 1 0 %dV3A3 3 0 0 1 3 0Z" fill="#3d444d"/>`+"\n", lw, badgeHeight, badgeHeight-3)
	b.WriteString(`<g fill="#ffffff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">` + "\n")
	for _, t := range []struct {
		x     float64
		label string
	}{{badgePad, left}, {lw + badgePad, right}} {
		fmt.Fprintf(&b, `<text x="%.1f" y="14" textLength="%.1f" lengthAdjust="spacingAndGlyphs">%s</text>`+"\n", t.x, labelWidth(t.label), escaped(t.label))
	}
	b.WriteString("</g>\n</svg>\n")
	return []byte(b.String())
}

func labelWidth(s string) float64 { return glyphWidth * float64(utf8.RuneCountInString(s)) }

// colour is dark enough for white text; the verdict stands there in words as well.
func colour(verdict string) string {
	switch verdict {
	case "pass":
		return "#1a7f37"
	case "fail":
		return "#b3261e"
	case "error":
		return "#7b3fa0"
	}
	return "#8a5a00"
}

func escaped(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(report.Line(s))); err != nil {
		return ""
	}
	return b.String()
}
