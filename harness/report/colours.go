package report

import (
	"slices"
	"strconv"

	"github.com/llm-weir/weir/harness/evidence"
)

// paletteSize is the number of colours c0..c7 of the style sheet; the last one stands for all further keys.
const paletteSize = 8

// colouring says by what the requests of a scenario are told apart, and gives each group its colour.
type colouring struct {
	by    string         // what the groups are: "tenant", "objective" or "tenant · objective"
	index map[string]int // group -> position in names
	names []string
	both  bool
}

// newColouring groups by what differs: tenants, objectives, or both. Groups are in alphabetical order, so that a colour does not
// depend on who came first.
func newColouring(run *evidence.Run) colouring {
	var tenants, objectives []string
	for _, c := range run.Clients {
		tenants, objectives = append(tenants, c.Tenant), append(objectives, c.Objective)
	}
	tenants, objectives = distinct(tenants), distinct(objectives)
	col := colouring{by: "tenant", index: map[string]int{}}
	switch {
	case len(objectives) > 1 && len(tenants) > 1:
		col.by, col.both = "tenant · objective", true
	case len(objectives) > 1:
		col.by = "objective"
	}
	var groups []string
	for _, c := range run.Clients {
		groups = append(groups, col.group(c))
	}
	col.names = distinct(groups)
	for i, g := range col.names {
		col.index[g] = i
	}
	return col
}

func distinct(xs []string) []string {
	xs = slices.Clone(xs)
	slices.Sort(xs)
	return slices.Compact(xs)
}

// group is the name of a request's group.
func (col colouring) group(c evidence.Client) string {
	tenant, objective := orNone(c.Tenant, "no tenant"), orNone(c.Objective, "no objective")
	switch {
	case col.both:
		return tenant + " · " + objective
	case col.by == "objective":
		return objective
	}
	return tenant
}

func orNone(s, none string) string {
	if s == "" {
		return "(" + none + ")"
	}
	return s
}

// slot is the palette position of a group.
func (col colouring) slot(group string) int { return min(col.index[group], paletteSize-1) }

// class is the style class of a group's colour.
func (col colouring) class(group string) string { return "c" + strconv.Itoa(col.slot(group)) }

// entries are the names for a legend, one per palette position.
func (col colouring) entries() []string {
	if len(col.names) <= paletteSize {
		return col.names
	}
	out := slices.Clone(col.names[:paletteSize-1])
	return append(out, strconv.Itoa(len(col.names)-paletteSize+1)+" others")
}

// legend writes the groups on one line at y and returns where it ended. Entries that do not fit are left out; the tips name them.
func (col colouring) legend(s *svg, x, y, limit float64) float64 {
	for i, name := range col.entries() {
		label := clip(line(name), 26)
		if x+18+textWidth(label) > limit {
			s.text(x, y, "tick", "start", "…")
			return x + 14
		}
		s.rect(x, y-9, 11, 10, "c"+strconv.Itoa(i))
		s.text(x+15, y, "label", "start", label)
		x += 15 + textWidth(label) + 14
	}
	return x
}
