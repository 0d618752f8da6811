package checks

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// asyncArrivals: in the window between Min and Max attempts arrive; with Each, of every one of the ids.
func asyncArrivals(a Async, r *evidence.Run) finding {
	from, to, why := asyncSpan(a, r)
	if why != "" {
		return notEngaged(why)
	}
	if len(a.submitted(r)) == 0 {
		return notEngaged("nothing was submitted")
	}
	found := a.attempts(r, from, to)
	if !a.Each {
		if n := len(found); !within(n, a.Min, a.Max) {
			return fail(fmt.Sprintf("%d arrivals", n), fmt.Sprintf("%d attempts arrived, expected %s", n, bounded(a.Min, a.Max)), firstIDs(found)...)
		}
		return pass(fmt.Sprintf("%d arrivals", len(found)), fmt.Sprintf("%d submitted", len(a.submitted(r))), firstIDs(found)...)
	}
	count := map[string]int{}
	for _, x := range found {
		count[x.ID]++
	}
	ids := a.submitted(r)
	for _, id := range ids {
		if n := count[id]; !within(n, a.Min, a.Max) {
			return fail(fmt.Sprintf("%s: %d arrivals", id, n), fmt.Sprintf("%s arrived %d times, expected %s", id, n, bounded(a.Min, a.Max)), id)
		}
	}
	return pass(fmt.Sprintf("%d ids, each %s arrivals", len(ids), bounded(a.Min, a.Max)), fmt.Sprintf("%d submitted", len(ids)))
}

func firstIDs(xs []attempt) []string {
	var out []string
	for _, x := range xs[:min(len(xs), 5)] {
		out = append(out, x.ID)
	}
	return out
}

// asyncOrder: first attempts arrive in the order of Order, or group after group, or group by group in turns; Skip arrivals were pulled
// before there was a choice.
func asyncOrder(a Async, r *evidence.Run) finding {
	from, to, why := asyncSpan(a, r)
	if why != "" {
		return notEngaged(why)
	}
	a.First = true
	if len(a.Order) > 0 && len(a.IDs) == 0 {
		a.IDs = a.Order
	}
	for _, g := range a.Groups {
		a.IDs = append(a.IDs, g...)
	}
	found := a.attempts(r, from, to)
	if len(found) <= a.Skip+1 {
		return notEngaged(fmt.Sprintf("%d arrivals, of which the first %d say nothing", len(found), a.Skip))
	}
	found = found[a.Skip:]
	if a.Min > 0 && len(found) < a.Min {
		return notEngaged(fmt.Sprintf("%d of %d arrivals that are needed", len(found), a.Min))
	}
	var seen []string
	for _, x := range found {
		seen = append(seen, x.ID)
	}
	engaged := fmt.Sprintf("%d arrivals", len(seen))
	switch {
	case len(a.Order) > 0:
		if want := a.Order[a.Skip:]; !slices.Equal(seen, want) {
			return fail(few(seen), fmt.Sprintf("arrived as %s, expected %s", strings.Join(seen, " "), strings.Join(want, " ")), seen...)
		}
	case a.Alternate:
		for i := 1; i < len(seen); i++ {
			if g := groupOf(a.Groups, seen[i]); g == groupOf(a.Groups, seen[i-1]) && laterOfOthers(a.Groups, seen[i:], g) {
				return fail(fmt.Sprintf("%s after %s", seen[i], seen[i-1]), "two of one queue in turn although another queue had some: "+strings.Join(seen, " "), seen[i-1], seen[i])
			}
		}
	default:
		last := -1
		for i, id := range seen {
			g := groupOf(a.Groups, id)
			if g < last {
				return fail(fmt.Sprintf("%s after %s", id, seen[i-1]), fmt.Sprintf("a message of group %d arrived after one of group %d: %s", g, last, strings.Join(seen, " ")), seen[i-1], id)
			}
			last = g
		}
		if groups := distinctGroups(a.Groups, seen); groups < 2 {
			return notEngaged("only one group arrived")
		}
	}
	return pass(few(seen), engaged)
}

func few(ids []string) string {
	if len(ids) > 8 {
		return strings.Join(ids[:8], " ") + " …"
	}
	return strings.Join(ids, " ")
}

func groupOf(groups [][]string, id string) int {
	return slices.IndexFunc(groups, func(g []string) bool { return len(g) > 0 && matchesID(g, id) })
}

func laterOfOthers(groups [][]string, ids []string, g int) bool {
	return slices.ContainsFunc(ids, func(id string) bool { return groupOf(groups, id) != g })
}

func distinctGroups(groups [][]string, ids []string) int {
	seen := map[int]bool{}
	for _, id := range ids {
		seen[groupOf(groups, id)] = true
	}
	return len(seen)
}

// asyncPeak: at most Max attempts are at the upstream at once, and at some time Min. The upstream's own record counts.
func asyncPeak(a Async, r *evidence.Run) finding {
	from, to, why := asyncSpan(a, r)
	if why != "" {
		return notEngaged(why)
	}
	all := a.attempts(r, 0, to)
	if len(all) == 0 {
		return notEngaged("nothing arrived")
	}
	type edge struct {
		at int64
		d  int
		id string
	}
	var edges []edge
	for _, x := range all {
		edges = append(edges, edge{x.at, 1, x.ID})
		if x.End != evidence.Never {
			edges = append(edges, edge{x.End, -1, x.ID})
		}
	}
	sort.SliceStable(edges, func(i, j int) bool {
		if edges[i].at != edges[j].at {
			return edges[i].at < edges[j].at
		}
		return edges[i].d < edges[j].d // what ends at the instant made the room
	})
	n, peak, at := 0, 0, ""
	for i, e := range edges {
		n += e.d
		// The count holds until the next edge: what is inside when the window begins is inside in the window.
		if until := i+1 == len(edges) || edges[i+1].at > from; e.at <= to && until && n > peak {
			peak, at = n, e.id
		}
	}
	if !within(peak, a.Min, a.Max) {
		return fail(fmt.Sprintf("%d at once", peak), fmt.Sprintf("at most %d requests were at the upstream at once, expected %s", peak, bounded(a.Min, a.Max)), at)
	}
	return pass(fmt.Sprintf("%d at once", peak), fmt.Sprintf("%d arrivals", len(all)))
}

// asyncGaps: the gaps between the attempts of each id lie inside Bounds (pairs of earliest and latest; beyond the last pair it repeats), or,
// with Shape "backoff", inside those of AP-RETRY-04: the k-th in [t/2, t) with t the least of 60 s, the time left and 2·2^k seconds, give
// or take Gap.
func asyncGaps(a Async, r *evidence.Run) finding {
	byID := map[string][]int64{}
	for _, x := range a.attempts(r, 0, 1<<62) {
		byID[x.ID] = append(byID[x.ID], x.at)
	}
	if len(byID) == 0 || len(a.Bounds) < 2 && a.Shape != "backoff" {
		return notEngaged("nothing arrived")
	}
	deadlines := map[string]int64{}
	for _, o := range r.Observations {
		if o.Message != nil {
			deadlines[o.Message.ID] = o.Message.Deadline
		}
	}
	var figure []string
	for _, id := range sortedKeys(byID) {
		at := byID[id]
		if len(at) < a.Min {
			return notEngaged(fmt.Sprintf("%s has %d of %d attempts that are needed", id, len(at), a.Min))
		}
		if a.Max > 0 && len(at) > a.Max {
			return fail(fmt.Sprintf("%d attempts", len(at)), fmt.Sprintf("%s was attempted %d times, at most %d fit into the backoff", id, len(at), a.Max), id)
		}
		for k := 1; k < len(at); k++ {
			gap := time.Duration(at[k] - at[k-1])
			low, high := a.gapBounds(k, time.Duration(deadlines[id]-at[k-1]))
			if gap < low || gap > high {
				return fail(fmt.Sprintf("gap %d: %s", k, ms(int64(gap))), fmt.Sprintf("the gap before attempt %d of %s is %s, expected %s to %s", k+1, id, ms(int64(gap)), ms(int64(low)), ms(int64(high))), id)
			}
			if len(figure) < 4 {
				figure = append(figure, ms(int64(gap)))
			}
		}
	}
	return pass("gaps "+strings.Join(figure, ", "), fmt.Sprintf("%d ids", len(byID)))
}

// gapBounds are the earliest and the latest of the k-th gap, with so much time left at its begin.
func (a Async) gapBounds(k int, left time.Duration) (low, high time.Duration) {
	if a.Shape != "backoff" {
		i := min(2*(k-1), len(a.Bounds)-2)
		return a.Bounds[i], a.Bounds[i+1]
	}
	t := min(time.Minute, left, 2*time.Second<<min(k, 10))
	return t/2 - a.Gap, t + a.Gap
}

// asyncPolls: arrivals come in clusters, one a poll, separated by Gap; at least Clusters of them are seen and all but the first and the last
// of the window have Min. One cluster in five may differ: a poll that came late meets the next one.
func asyncPolls(a Async, r *evidence.Run) finding {
	from, to, why := asyncSpan(a, r)
	if why != "" {
		return notEngaged(why)
	}
	if len(a.submitted(r)) == 0 {
		return notEngaged("nothing was submitted")
	}
	var sizes []int
	last := int64(-1 << 62)
	for _, x := range a.attempts(r, from, to) {
		if x.at-last > int64(a.Gap) {
			sizes = append(sizes, 0)
		}
		sizes[len(sizes)-1]++
		last = x.at
	}
	if a.Min == 0 {
		if len(sizes) > 0 {
			return fail(fmt.Sprint(sizes), fmt.Sprintf("arrivals per poll %v, expected none", sizes))
		}
		return pass("no arrivals", "the window was watched")
	}
	if len(sizes) == 0 {
		return fail("no arrivals", fmt.Sprintf("nothing arrived, expected %d a poll", a.Min))
	}
	whole := sizes
	if len(sizes) > 2 {
		whole = sizes[1 : len(sizes)-1]
	}
	if len(whole) < a.Clusters {
		return notEngaged(fmt.Sprintf("%d of %d whole polls were seen: %v", len(whole), a.Clusters, sizes))
	}
	off := 0
	for _, n := range whole {
		if n != a.Min {
			off++
		}
	}
	if off*5 > len(whole) {
		return fail(fmt.Sprintf("polls of %v", few2(whole)), fmt.Sprintf("arrivals per poll %v, expected %d each", whole, a.Min))
	}
	return pass(fmt.Sprintf("%d a poll, %d polls", a.Min, len(whole)), fmt.Sprintf("%d polls", len(whole)))
}

func few2(n []int) []int { return n[:min(len(n), 10)] }

// asyncRate: arrivals per second in the window, from its first to its last arrival, lie between Low and High.
func asyncRate(a Async, r *evidence.Run) finding {
	from, to, why := asyncSpan(a, r)
	if why != "" {
		return notEngaged(why)
	}
	found := a.attempts(r, from, to)
	if len(found) < max(a.Min, 2) {
		return notEngaged(fmt.Sprintf("%d of %d arrivals that are needed", len(found), max(a.Min, 2)))
	}
	took := float64(found[len(found)-1].at-found[0].at) / 1e9
	if took <= 0 {
		return notEngaged("all arrived at one instant")
	}
	rate := float64(len(found)-1) / took
	if rate < a.Low || rate > a.High {
		return fail(fmt.Sprintf("%.1f/s", rate), fmt.Sprintf("%.1f arrivals a second, expected %g to %g", rate, a.Low, a.High))
	}
	return pass(fmt.Sprintf("%.1f/s", rate), fmt.Sprintf("%d arrivals", len(found)))
}

// asyncShare: of the first Min arrivals of all groups each group has its equal share, up to Low.
func asyncShare(a Async, r *evidence.Run) finding {
	for _, g := range a.Groups {
		a.IDs = append(a.IDs, g...)
	}
	a.First = true
	from, to, why := asyncSpan(a, r)
	if why != "" {
		return notEngaged(why)
	}
	found := a.attempts(r, from, to)
	if len(found) < a.Min || a.Min == 0 || len(a.Groups) < 2 {
		return notEngaged(fmt.Sprintf("%d of %d arrivals that are needed", len(found), a.Min))
	}
	counts := make([]int, len(a.Groups))
	for _, x := range found[:a.Min] {
		if g := groupOf(a.Groups, x.ID); g >= 0 {
			counts[g]++
		}
	}
	for g, n := range counts {
		share, want := float64(n)/float64(a.Min), 1/float64(len(counts))
		if share < want-a.Low || share > want+a.Low {
			return fail(fmt.Sprintf("shares %v", counts), fmt.Sprintf("group %d has %.2f of %d arrivals, expected %.2f ± %.2f", g, share, a.Min, want, a.Low))
		}
	}
	return pass(fmt.Sprintf("shares %v", counts), fmt.Sprintf("%d arrivals", a.Min))
}

// asyncSpread: the second attempts of the ids are spread over at least Min bins of width Gap.
func asyncSpread(a Async, r *evidence.Run) finding {
	bins, seconds := map[int64]bool{}, 0
	first := 0
	for _, x := range a.attempts(r, 0, 1<<62) {
		switch x.Nth {
		case 1:
			first++
		case 2:
			seconds++
			bins[x.at/max(1, int64(a.Gap))] = true
		}
	}
	if first < a.Clusters || seconds < a.Clusters {
		return notEngaged(fmt.Sprintf("%d first and %d second attempts, %d are needed", first, seconds, a.Clusters))
	}
	if len(bins) < a.Min {
		return fail(fmt.Sprintf("%d bins", len(bins)), fmt.Sprintf("%d second attempts fall into %d bins of %s, expected at least %d", seconds, len(bins), a.Gap, a.Min))
	}
	return pass(fmt.Sprintf("%d bins", len(bins)), fmt.Sprintf("%d second attempts", seconds))
}
