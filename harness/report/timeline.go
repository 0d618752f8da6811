package report

import (
	"html/template"
	"strconv"

	"github.com/llm-weir/weir/harness/evidence"
)

// lanesLimit is the number of requests up to which each has a lane of its own; above, figures show sums per group.
const lanesLimit = 50

const (
	laneHeight = 19.0
	laneGutter = 190.0 // for the request's id
	laneRight  = figureWidth - 14
	markRows   = 3
)

// timeline draws one lane per request: queued from sending to the arrival at a model server, running from there to the end, and
// a mark where it ended in another way than by completion. Steps of the script are vertical lines.
func timeline(run *evidence.Run, col colouring, witnesses map[string]bool) template.HTML {
	top := 30.0 + 14*markRows
	bottom := top + laneHeight*float64(len(run.Clients)) + 4
	s := newSVG(bottom+34, "timeline of "+plural(len(run.Clients), "request"))
	ax := newAxis(0, extent(run), laneGutter, laneRight)
	x := col.legend(s, 8, 14, figureWidth-330)
	timelineLegend(s, max(x+10, figureWidth-310), 14)
	ax.draw(s, top, bottom)
	drawSteps(s, run, ax, 30, bottom)
	for i, c := range run.Clients {
		drawLane(s, run, c, ax, col, top+laneHeight*float64(i)+2, witnesses[c.ID])
	}
	return s.done()
}

// extent is the last instant of a run.
func extent(run *evidence.Run) int64 {
	var t int64 = 1
	for _, c := range run.Clients {
		t = max(t, c.Sent, c.End, c.LastToken)
	}
	for _, b := range run.Backends {
		t = max(t, b.Arrival, b.End)
	}
	for _, st := range run.Steps {
		t = max(t, st.End)
	}
	return t
}

func timelineLegend(s *svg, x, y float64) {
	s.rect(x, y-8, 22, 8, "queued ink")
	s.text(x+27, y, "label", "start", "queued")
	s.rect(x+76, y-9, 22, 10, "ink")
	s.text(x+103, y, "label", "start", "at the server")
	x += 192
	for _, m := range []struct{ outcome, label string }{
		{evidence.Refused, "refused"}, {evidence.ClientCancelled, "left"},
	} {
		drawEnding(s, m.outcome, x, y-4)
		s.text(x+9, y, "label", "start", m.label)
		x += 24 + textWidth(m.label)
	}
}

// drawSteps writes the marks of the script. A label that would run into its neighbour moves up a row; where no row is free the
// line's tip still names it.
func drawSteps(s *svg, run *evidence.Run, ax axis, labelsTop, bottom float64) {
	var free [markRows]float64
	for _, st := range run.Steps {
		if st.Start == evidence.Never {
			continue
		}
		x, class := ax.at(st.Start), "step"
		if !st.OK {
			class = "step missed"
		}
		tip := "step " + strconv.Itoa(st.Index) + " " + st.Op
		if st.Mark != "" {
			tip += " [" + st.Mark + "]"
		}
		tip += ", from " + ax.say(st.Start) + " to " + ax.say(st.End)
		if !st.OK {
			tip += ", barrier not reached"
		}
		if st.Detail != "" {
			tip += ", " + clip(st.Detail, 160)
		}
		if st.Mark == "" {
			s.line(x, bottom-4, x, bottom+4, class, "data-tip", tip)
			continue
		}
		s.line(x, labelsTop+6, x, bottom, class, "data-tip", tip)
		label := clip(line(st.Mark), 22)
		for row := range free {
			if x >= free[row] && x+4+textWidth(label) <= figureWidth {
				s.text(x+3, labelsTop+8+14*float64(markRows-1-row)-1, "mark", "start", label)
				free[row] = x + textWidth(label) + 10
				break
			}
		}
	}
}

func drawLane(s *svg, run *evidence.Run, c evidence.Client, ax axis, col colouring, y float64, witness bool) {
	class := "lane"
	if witness {
		class = "lane wit"
	}
	group := col.group(c)
	s.open("g", "class", class, "data-id", c.ID, "data-tip", laneTip(run, c, ax, group))
	s.rect(0, y-1, figureWidth, laneHeight-1, "hit")
	s.text(laneGutter-8, y+12, "id", "end", clip(line(c.ID), 27))
	if c.Sent != evidence.Never {
		drawSegments(s, run, c, ax, col.class(group), y)
	}
	s.close("g")
}

func drawSegments(s *svg, run *evidence.Run, c evidence.Client, ax axis, colour string, y float64) {
	end := c.End
	if end == evidence.Never {
		end = ax.hi
	}
	queuedUntil, arrived := end, false
	for _, b := range run.Backends {
		if b.ID != c.ID || b.Arrival == evidence.Never {
			continue
		}
		if !arrived {
			queuedUntil, arrived = b.Arrival, true
		}
		left := b.End
		if left == evidence.Never {
			left = end
		}
		x := ax.at(b.Arrival)
		s.rect(x, y+2, max(1.5, ax.at(left)-x), 12, colour)
		if b.FirstToken != evidence.Never && b.FirstToken >= b.Arrival {
			s.line(ax.at(b.FirstToken), y+3, ax.at(b.FirstToken), y+13, "token")
		}
	}
	if x := ax.at(c.Sent); queuedUntil > c.Sent {
		s.rect(x, y+4, max(1, ax.at(queuedUntil)-x), 8, "queued "+colour)
	}
	if c.Outcome == evidence.Completed {
		return
	}
	x := ax.at(end)
	drawEnding(s, c.Outcome, x, y+8)
	label := c.Reason
	if c.Status != 0 {
		label = strconv.Itoa(c.Status) + " " + c.Reason
	}
	if c.Outcome != evidence.Refused {
		label = c.Outcome
	}
	label = clip(line(label), 40)
	if x+10+textWidth(label) < figureWidth {
		s.text(x+8, y+12, "tick", "start", label)
	} else {
		s.text(x-8, y+12, "tick halo", "end", label)
	}
}

// drawEnding is a sign per ending: a cross for a refusal, a diamond for a client that left, a triangle for a broken transport or
// stream, an open arrow for a request that never ended.
func drawEnding(s *svg, outcome string, x, y float64) {
	at := func(dx, dy float64) string { return num(x+dx) + " " + num(y+dy) }
	switch outcome {
	case evidence.Refused:
		s.path("M"+at(-4, -4)+"L"+at(4, 4)+"M"+at(-4, 4)+"L"+at(4, -4), "cross")
	case evidence.ClientCancelled:
		s.path("M"+at(0, -5)+"L"+at(5, 0)+"L"+at(0, 5)+"L"+at(-5, 0)+"Z", "diamond")
	case evidence.TransportError, evidence.KilledMidStream:
		s.path("M"+at(0, -5)+"L"+at(5, 4)+"L"+at(-5, 4)+"Z", "broken")
	case evidence.Unfinished:
		s.path("M"+at(-7, -4)+"L"+at(-1, 0)+"L"+at(-7, 4), "open")
	}
}

func laneTip(run *evidence.Run, c evidence.Client, ax axis, group string) string {
	tip := c.ID + " (" + group + ")"
	if c.Sent == evidence.Never {
		return tip + ": never sent"
	}
	tip += ": sent " + ax.say(c.Sent)
	if b, ok := run.BackendByID(c.ID); ok && b.Arrival != evidence.Never {
		tip += ", at " + orNone(b.Endpoint, "unnamed server") + " " + ax.say(b.Arrival) + " after " + ax.say(b.Arrival-c.Sent)
	} else {
		tip += ", reached no model server"
	}
	tip += ", " + c.Outcome
	if c.Status != 0 {
		tip += " " + strconv.Itoa(c.Status)
	}
	if c.Reason != "" {
		tip += " " + c.Reason
	}
	if c.End != evidence.Never {
		tip += ", ended " + ax.say(c.End)
	}
	return tip
}
