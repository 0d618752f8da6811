package report

import (
	"encoding/xml"
	"html/template"
	"math"
	"strings"
)

// svg writes one figure. Colours are classes, so that the page's style sheet gives the light and the dark form; all text and all
// attribute values are escaped here and nowhere else. Figures carry no ids: the page may show one figure twice.
type svg struct{ b strings.Builder }

// figureWidth is the width of all figures in user units; the page scales them to its own.
const figureWidth = 980.0

func newSVG(height float64, label string) *svg {
	s := &svg{}
	s.open("svg", "xmlns", "http://www.w3.org/2000/svg", "viewBox", "0 0 "+num(figureWidth)+" "+num(height),
		"class", "figure", "role", "img", "aria-label", label)
	return s
}

// done closes the figure.
func (s *svg) done() template.HTML {
	s.close("svg")
	return template.HTML(s.b.String())
}

// open starts an element; attributes are name, value pairs.
func (s *svg) open(tag string, attrs ...string) {
	s.start(tag, attrs)
	s.b.WriteByte('>')
}

func (s *svg) close(tag string) { s.b.WriteString("</" + tag + ">") }

func (s *svg) empty(tag string, attrs ...string) {
	s.start(tag, attrs)
	s.b.WriteString("/>")
}

func (s *svg) start(tag string, attrs []string) {
	s.b.WriteString("<" + tag)
	for i := 0; i+1 < len(attrs); i += 2 {
		s.b.WriteString(" " + attrs[i] + `="`)
		s.escape(attrs[i+1])
		s.b.WriteByte('"')
	}
}

func (s *svg) escape(text string) {
	_ = xml.EscapeText(&s.b, []byte(line(text))) // a strings.Builder never fails
}

func (s *svg) rect(x, y, w, h float64, class string, attrs ...string) {
	s.empty("rect", append([]string{"x", num(x), "y", num(y), "width", num(max(0, w)), "height", num(h), "class", class}, attrs...)...)
}

func (s *svg) line(x1, y1, x2, y2 float64, class string, attrs ...string) {
	s.empty("line", append([]string{"x1", num(x1), "y1", num(y1), "x2", num(x2), "y2", num(y2), "class", class}, attrs...)...)
}

func (s *svg) path(d, class string) {
	s.empty("path", "d", d, "class", class)
}

// text writes a label; anchor is start, middle or end.
func (s *svg) text(x, y float64, class, anchor, label string) {
	s.open("text", "x", num(x), "y", num(y), "class", class, "text-anchor", anchor)
	s.escape(label)
	s.close("text")
}

// num prints a coordinate: a tenth of a unit is finer than a pixel.
func num(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		x = 0
	}
	return strings.TrimSuffix(fixed(x, 1), ".0")
}

// textWidth is about the width of a label in the figures' 11-unit font, enough to keep labels apart.
func textWidth(label string) float64 { return 6.3 * float64(len([]rune(label))) }

// axis maps nanoseconds to user units and labels itself in the unit that fits its extent.
type axis struct {
	lo, hi   int64
	from, to float64
	unit     string
	perUnit  float64 // nanoseconds
}

func newAxis(lo, hi int64, from, to float64) axis {
	a := axis{lo: lo, hi: max(hi, lo+1), from: from, to: to}
	switch span := a.hi - a.lo; {
	case span < 2e6:
		a.unit, a.perUnit = "µs", 1e3
	case span < 5e9:
		a.unit, a.perUnit = "ms", 1e6
	default:
		a.unit, a.perUnit = "s", 1e9
	}
	return a
}

func (a axis) at(t int64) float64 {
	f := float64(t-a.lo) / float64(a.hi-a.lo)
	return a.from + (a.to-a.from)*min(max(f, 0), 1)
}

// say is an instant with its unit.
func (a axis) say(t int64) string { return trimZeros(fixed(float64(t)/a.perUnit, 3)) + " " + a.unit }

func trimZeros(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// draw writes grid lines between top and bottom and the labels below.
func (a axis) draw(s *svg, top, bottom float64) {
	for _, v := range ticks(float64(a.lo)/a.perUnit, float64(a.hi)/a.perUnit, 8) {
		x := a.at(int64(math.Round(v * a.perUnit)))
		s.line(x, top, x, bottom, "grid")
		s.text(x, bottom+14, "tick", "middle", trimZeros(fixed(v, 3)))
	}
	s.line(a.from, bottom, a.to, bottom, "axis")
	s.text(a.to, bottom+27, "tick", "end", "time since the scenario's epoch, "+a.unit)
}

// ticks are round numbers from lo to hi, about n of them.
func ticks(lo, hi float64, n int) []float64 {
	if !(hi > lo) || n < 1 {
		return nil
	}
	raw := (hi - lo) / float64(n)
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5, 10} {
		if step*m >= raw*0.999 {
			step *= m
			break
		}
	}
	var out []float64
	for i := math.Ceil(lo/step - 1e-9); i*step <= hi+step*1e-9; i++ {
		out = append(out, i*step+0) // + 0 turns -0 into 0
	}
	return out
}
