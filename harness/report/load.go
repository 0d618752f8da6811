package report

import (
	"html/template"
	"strconv"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
)

// bins is the number of intervals into which a run with many requests is cut.
const bins = 70

// loadCounts are the requests of one palette position per interval.
type loadCounts struct {
	name                         string
	offered, completed, refused  [bins]int
	sumOffered, sumDone, sumFail int
}

// countLoad sums a run up. Offered counts at the instant of sending, completed and refused at the end.
func countLoad(run *evidence.Run, col colouring, end int64) []loadCounts {
	out := make([]loadCounts, len(col.entries()))
	for i, name := range col.entries() {
		out[i].name = name
	}
	bin := func(t int64) int { return int(min(max(float64(t)/float64(end)*bins, 0), bins-1)) }
	for _, c := range run.Clients {
		g := &out[col.slot(col.group(c))]
		if c.Sent == evidence.Never {
			continue
		}
		g.offered[bin(c.Sent)]++
		g.sumOffered++
		switch {
		case c.Outcome == evidence.Completed && c.End != evidence.Never:
			g.completed[bin(c.End)]++
			g.sumDone++
		case c.Outcome == evidence.Refused && c.End != evidence.Never:
			g.refused[bin(c.End)]++
			g.sumFail++
		}
	}
	return out
}

const (
	panelHeight = 62.0
	panelGap    = 26.0
	panelLeft   = 60.0
)

// loadPanels draws one panel per group with the rates of what was offered, completed and refused over time. All panels share one
// scale, so that heights compare.
func loadPanels(run *evidence.Run, col colouring) template.HTML {
	end := extent(run)
	groups := countLoad(run, col, end)
	bottom := 24 + float64(len(groups))*(panelHeight+panelGap)
	s := newSVG(bottom+30, "offered, completed and refused requests over time")
	ax := newAxis(0, end, panelLeft, laneRight)
	s.rect(panelLeft, 5, 22, 9, "offered")
	s.text(panelLeft+27, 14, "label", "start", "offered")
	s.line(panelLeft+84, 10, panelLeft+106, 10, "stroke ink")
	s.text(panelLeft+111, 14, "label", "start", "completed")
	s.line(panelLeft+184, 10, panelLeft+206, 10, "refused")
	s.text(panelLeft+211, 14, "label", "start", "refused, all in requests per second")
	ax.draw(s, 24, bottom)
	perSecond := float64(bins) / (float64(end) / 1e9)
	top := 1
	for _, g := range groups {
		for i := range bins {
			top = max(top, g.offered[i], g.completed[i], g.refused[i])
		}
	}
	for i, g := range groups {
		y := 24 + float64(i)*(panelHeight+panelGap) + panelGap
		drawPanel(s, g, i, ax, y, float64(top), perSecond)
	}
	return s.done()
}

func drawPanel(s *svg, g loadCounts, slot int, ax axis, y, top, perSecond float64) {
	colour := "c" + strconv.Itoa(slot)
	base := y + panelHeight
	height := func(n int) float64 { return base - panelHeight*float64(n)/top }
	s.rect(ax.from, y-18, 10, 10, colour)
	s.text(ax.from+15, y-9, "label", "start", clip(line(g.name), 40)+": "+strconv.Itoa(g.sumOffered)+" offered, "+
		strconv.Itoa(g.sumDone)+" completed, "+strconv.Itoa(g.sumFail)+" refused")
	s.line(ax.from, y, ax.to, y, "grid")
	s.line(ax.from, base, ax.to, base, "axis")
	s.text(ax.from-6, y+4, "tick", "end", trimZeros(fixed(top*perSecond, 1)))
	s.text(ax.from-6, base+3, "tick", "end", "0")
	s.path(stairs(g.offered, ax, height)+"L"+num(ax.to)+" "+num(base)+"L"+num(ax.from)+" "+num(base)+"Z", "offered")
	s.path(stairs(g.completed, ax, height), "stroke s"+strconv.Itoa(slot))
	if g.sumFail > 0 {
		s.path(stairs(g.refused, ax, height), "refused")
	}
	width := (ax.to - ax.from) / bins
	for i := range bins {
		tip := g.name + " around " + ax.say((ax.hi-ax.lo)/bins*int64(i)) + ": offered " + strconv.Itoa(g.offered[i]) +
			", completed " + strconv.Itoa(g.completed[i]) + ", refused " + strconv.Itoa(g.refused[i])
		s.rect(ax.from+width*float64(i), y, width, panelHeight, "hit", "data-tip", tip)
	}
}

// stairs is the path of a step line over the intervals.
func stairs(counts [bins]int, ax axis, height func(int) float64) string {
	var b strings.Builder
	width := (ax.to - ax.from) / bins
	for i, n := range counts {
		cmd := "L"
		if i == 0 {
			cmd = "M"
		}
		b.WriteString(cmd + num(ax.from+width*float64(i)) + " " + num(height(n)) + "H" + num(ax.from+width*float64(i+1)))
	}
	return b.String()
}

// servedShare draws each group's share of the completed requests: one bar for the whole run, and stacked over time below. An
// interval in which nothing completed is a gap, not a share.
func servedShare(run *evidence.Run, col colouring) template.HTML {
	const barTop, barHeight, areaTop, areaHeight = 26.0, 24.0, 74.0, 110.0
	end := extent(run)
	groups := countLoad(run, col, end)
	s := newSVG(areaTop+areaHeight+34, "share of completed requests")
	ax := newAxis(0, end, panelLeft, laneRight)
	col.legend(s, 8, 14, figureWidth)
	total := 0
	for _, g := range groups {
		total += g.sumDone
	}
	x := ax.from
	for i, g := range groups {
		if g.sumDone == 0 {
			continue
		}
		share := float64(g.sumDone) / float64(total)
		w, label := share*(ax.to-ax.from), fixed(100*share, 1)+" %"
		s.rect(x, barTop, w, barHeight, "c"+strconv.Itoa(i)+" seam", "data-tip",
			g.name+": "+strconv.Itoa(g.sumDone)+" of "+strconv.Itoa(total)+" completed, "+label)
		if textWidth(label)+8 < w {
			s.text(x+w/2, barTop+16, "onbar on"+strconv.Itoa(i), "middle", label)
		}
		x += w
	}
	s.text(ax.from-6, barTop+16, "tick", "end", "run")
	ax.draw(s, areaTop, areaTop+areaHeight)
	for _, percent := range []int{0, 50, 100} {
		y := areaTop + areaHeight*(1-float64(percent)/100)
		s.line(ax.from, y, ax.to, y, "grid")
		s.text(ax.from-6, y+4, "tick", "end", strconv.Itoa(percent)+" %")
	}
	stackBins(s, groups, ax, areaTop, areaHeight)
	return s.done()
}

func stackBins(s *svg, groups []loadCounts, ax axis, top, height float64) {
	width := (ax.to - ax.from) / bins
	for b := range bins {
		sum := 0
		for _, g := range groups {
			sum += g.completed[b]
		}
		y := top + height
		for i, g := range groups {
			if g.completed[b] == 0 {
				continue
			}
			h := height * float64(g.completed[b]) / float64(sum)
			y -= h
			s.rect(ax.from+width*float64(b), y, width+0.6, h, "c"+strconv.Itoa(i), "data-tip", g.name+" around "+
				ax.say((ax.hi-ax.lo)/bins*int64(b))+": "+strconv.Itoa(g.completed[b])+" of "+strconv.Itoa(sum)+" completed")
		}
	}
}
