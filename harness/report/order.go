package report

import (
	"html/template"
	"strconv"

	"github.com/llm-weir/weir/harness/evidence"
)

// orderLimit bounds the cells of the dispatch order strip.
const orderLimit = 320

// dispatchOrder draws the arrivals at the model servers in their order, one cell each, coloured by group: order and share at one
// look. Up to 40 arrivals have their id written in the cell, more have cells without text.
func dispatchOrder(run *evidence.Run, col colouring, witnesses map[string]bool) template.HTML {
	arrivals, clients := arrived(run), clientsByID(run)
	shown := arrivals[:min(len(arrivals), orderLimit)]
	named := len(shown) <= 40
	width, height, gap := 16.0, 16.0, 2.0
	if named {
		width, height, gap = 94, 22, 4
	}
	perRow := int((figureWidth - 16 + gap) / (width + gap))
	rows := (len(shown) + perRow - 1) / perRow
	s := newSVG(28+float64(rows)*(height+gap)+20, "order of "+plural(len(arrivals), "arrival")+" at the model servers")
	col.legend(s, 8, 14, figureWidth)
	for i, b := range shown {
		x := 8 + float64(i%perRow)*(width+gap)
		y := 26 + float64(i/perRow)*(height+gap)
		group, class := "(not sent by this harness)", "lane"
		c, ok := clients[b.ID]
		if ok {
			group = col.group(c)
		}
		if witnesses[b.ID] {
			class = "lane wit"
		}
		colour := "none"
		if ok {
			colour = col.class(group)
		}
		tip := "arrival " + strconv.Itoa(i+1) + ": " + b.ID + " (" + group + ") at " + orNone(b.Endpoint, "unnamed server") +
			", " + fixed(float64(b.Arrival)/1e6, 3) + " ms"
		s.open("g", "class", class, "data-id", b.ID, "data-tip", tip)
		if named {
			s.rect(x, y, width, height, "cell", "rx", "3")
			s.rect(x, y, 7, height, colour, "rx", "2")
			s.text(x+11, y+15, "id", "start", strconv.Itoa(i+1)+" "+clip(line(b.ID), 11))
		} else {
			s.rect(x, y, width, height, colour, "rx", "2")
		}
		s.close("g")
	}
	note := "left to right, row by row, in the order of arrival; coloured by " + col.by
	if left := len(arrivals) - len(shown); left > 0 {
		note += "; " + plural(left, "later arrival") + " left out"
	}
	s.text(8, 26+float64(rows)*(height+gap)+14, "tick", "start", note)
	return s.done()
}

// arrived lists the backend records of requests that arrived, in order.
func arrived(run *evidence.Run) []evidence.Backend {
	var out []evidence.Backend
	for _, b := range run.Backends {
		if b.Arrival != evidence.Never {
			out = append(out, b)
		}
	}
	return out
}

func clientsByID(run *evidence.Run) map[string]evidence.Client {
	m := make(map[string]evidence.Client, len(run.Clients))
	for _, c := range run.Clients {
		m[c.ID] = c
	}
	return m
}
