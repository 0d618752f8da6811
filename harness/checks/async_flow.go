package checks

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// asyncArrivals: in the window between Min and Max attempts arrive; with Each, of every one of the ids.
func asyncArrivals(a Async, r *evidence.Run) finding {
	from, to, why := asyncSpan(a, r)
	if why == "" {
		why = a.unsent(r, to)
	}
	switch {
	case why != "":
		return notEngaged(why)
	case a.Min <= 0 && a.Max < 0:
		return notEngaged("any number would do")
	}
	found, ids := a.attempts(r, from, to), a.submittedBy(r, to)
	engaged := fmt.Sprintf("%d submitted", len(ids))
	figure := fmt.Sprintf("%d arrivals", len(found))
	if a.Each {
		count := map[string]int{}
		for _, x := range found {
			count[x.ID]++
		}
		for _, id := range ids {
			if n := count[id]; !within(n, a.Min, a.Max) {
				return fail(fmt.Sprintf("%s: %d arrivals", id, n), fmt.Sprintf("%s arrived %d times, expected %s", id, n, bounded(a.Min, a.Max)), id)
			}
		}
		figure = fmt.Sprintf("%d ids, each %s arrivals", len(ids), bounded(a.Min, a.Max))
	} else if n := len(found); !within(n, a.Min, a.Max) {
		return fail(figure, fmt.Sprintf("%d attempts arrived, expected %s", n, bounded(a.Min, a.Max)), firstIDs(found)...)
	}
	if len(found) == 0 && !worked(r) {
		return notEngaged(idle)
	}
	return pass(figure, engaged, firstIDs(found)...)
}

func firstIDs(xs []attempt) []string {
	var out []string
	for _, x := range xs[:min(len(xs), 5)] {
		out = append(out, x.ID)
	}
	return out
}

// asyncOrder: first attempts arrive in the order of Order, or group after group, or group by group in turns; Skip arrivals were pulled
// before there was a choice. What waited and had not arrived when the window ended must not have been overtaken either.
func asyncOrder(a Async, r *evidence.Run) finding {
	from, to, why := asyncSpan(a, r)
	a.First = true
	if len(a.Groups) > 0 {
		a.IDs = flatten(a.Groups)
	} else if len(a.IDs) == 0 {
		a.IDs = a.Order
	}
	if why == "" {
		why = a.unsent(r, to)
	}
	found := a.attempts(r, from, to)
	switch {
	case why != "":
		return notEngaged(why)
	case len(a.Order) < 2 && len(a.Groups) < 2:
		return notEngaged("no order is expected")
	case len(found) < max(a.Skip+2, a.Skip+a.Min):
		return notEngaged(fmt.Sprintf("%d arrivals, of which the first %d say nothing", len(found), a.Skip))
	}
	var seen []string
	for _, x := range found[a.Skip:] {
		seen = append(seen, x.ID)
	}
	if len(a.Order) > 0 {
		return inOrder(seen, a.Order[min(a.Skip, len(a.Order)):])
	}
	if why, ids := a.disorder(seen); why != "" {
		return fail(strings.Join(ids, " "), why, ids...)
	}
	for _, id := range a.waiting(r, found[len(found)-1].at, to) {
		if why, _ := a.disorder(append(slices.Clone(seen), id)); why != "" {
			return notEngaged(id + " waited and had not arrived when the window ended")
		}
	}
	for g := range a.Groups {
		if !hasGroup(a.Groups, seen, g) {
			return notEngaged(fmt.Sprintf("nothing of group %d arrived", g))
		}
	}
	return pass(few(seen), fmt.Sprintf("%d arrivals", len(seen)))
}

func inOrder(seen, want []string) finding {
	switch {
	case slices.Equal(seen, want):
		return pass(few(seen), fmt.Sprintf("%d arrivals", len(seen)))
	case len(seen) < len(want) && slices.Equal(seen, want[:len(seen)]):
		return notEngaged(fmt.Sprintf("%d of %d arrived", len(seen), len(want)))
	}
	return fail(few(seen), fmt.Sprintf("arrived as %s, expected %s", strings.Join(seen, " "), strings.Join(want, " ")), seen...)
}

// waiting lists the ids that were submitted until one instant and had not arrived by another.
func (a Async) waiting(r *evidence.Run, submitted, to int64) []string {
	arrived := map[string]bool{}
	for _, x := range a.attempts(r, 0, to) {
		arrived[x.ID] = true
	}
	return slices.DeleteFunc(a.submittedBy(r, submitted), func(id string) bool { return arrived[id] })
}

func few(ids []string) string {
	if len(ids) > 8 {
		return strings.Join(ids[:8], " ") + " …"
	}
	return strings.Join(ids, " ")
}

// asyncPeak: at most Max attempts are at the upstream at once, and at some time Min. The upstream's own record counts. More than Max must
// have been submitted.
func asyncPeak(a Async, r *evidence.Run) finding {
	from, to, why := asyncSpan(a, r)
	all := a.attempts(r, 0, to)
	wanted := len(a.messages(r, to))
	switch {
	case why != "":
		return notEngaged(why)
	case a.Min <= 0 && a.Max < 0:
		return notEngaged("any number would do")
	case len(all) == 0:
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
	switch {
	case wanted <= a.Max && peak <= a.Max:
		return notEngaged(fmt.Sprintf("%d were submitted, which is no more than may be in", wanted))
	case !within(peak, a.Min, a.Max):
		return fail(fmt.Sprintf("%d at once", peak), fmt.Sprintf("at most %d requests were at the upstream at once, expected %s", peak, bounded(a.Min, a.Max)), at)
	case peak == 0 && a.Max != 0:
		return notEngaged("nothing was inside")
	}
	return pass(fmt.Sprintf("%d at once", peak), fmt.Sprintf("%d arrivals", len(all)))
}

// asyncGaps: the gaps between the attempts of each id lie inside Bounds (pairs of earliest and latest; beyond the last pair it repeats), or,
// with Shape "backoff", inside those of AP-RETRY-04: the k-th in [t/2, t) with t the least of 60 s, the time left and 2·2^k seconds, give
// or take Gap. Each id has Min attempts, and one gap in any case.
func asyncGaps(a Async, r *evidence.Run) finding {
	why := a.unsent(r, math.MaxInt64)
	if why == "" {
		why = a.ambiguous(r)
	}
	switch {
	case why != "":
		return notEngaged(why)
	case a.Shape != "backoff" && (len(a.Bounds) < 2 || len(a.Bounds)%2 == 1):
		return notEngaged("no bounds are given")
	}
	byID, due := map[string][]int64{}, deadlines(r)
	for _, x := range a.attempts(r, 0, math.MaxInt64) {
		byID[x.ID] = append(byID[x.ID], x.at)
	}
	var figure []string
	ids := a.submitted(r)
	for _, id := range ids {
		at := byID[id]
		if a.Max > 0 && len(at) > a.Max {
			return fail(fmt.Sprintf("%d attempts", len(at)), fmt.Sprintf("%s was attempted %d times, at most %d fit into the backoff", id, len(at), a.Max), id)
		}
		if a.Shape == "backoff" && due[id] == evidence.Never {
			return notEngaged(id + " has no deadline that can be read")
		}
		for k := 1; k < len(at); k++ {
			gap := time.Duration(at[k] - at[k-1])
			low, high := a.gapBounds(k, time.Duration(due[id]-at[k-1]))
			if gap < low || gap > high {
				return fail(fmt.Sprintf("gap %d: %s", k, ms(int64(gap))), fmt.Sprintf("the gap before attempt %d of %s is %s, expected %s to %s", k+1, id, ms(int64(gap)), ms(int64(low)), ms(int64(high))), id)
			}
			if len(figure) < 4 {
				figure = append(figure, ms(int64(gap)))
			}
		}
	}
	for _, id := range ids {
		if need := max(a.Min, 2); len(byID[id]) < need {
			return notEngaged(fmt.Sprintf("%s has %d of %d attempts that are needed", id, len(byID[id]), need))
		}
	}
	return pass("gaps "+strings.Join(figure, ", "), fmt.Sprintf("%d ids", len(ids)))
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

// asyncPolls: arrivals come in clusters, one a poll, separated by Gap; at least Clusters of them are seen between the first and the last of
// the window, which may be cut, and have Min each, or twice that where a poll that came late met the next one: one cluster in five may
// differ otherwise. Min 0: nothing arrives.
func asyncPolls(a Async, r *evidence.Run) finding {
	if a.Min == 0 {
		a.Max, a.Each = 0, false
		return asyncArrivals(a, r)
	}
	from, to, why := asyncSpan(a, r)
	if why == "" {
		why = a.unsent(r, to)
	}
	switch {
	case why != "":
		return notEngaged(why)
	case a.Gap <= 0:
		return notEngaged("nothing separates one poll from the next")
	}
	var sizes []int
	var starts, ends []int64
	last := int64(math.MinInt64 / 2)
	for _, x := range a.attempts(r, from, to) {
		if x.at-last > int64(a.Gap) {
			sizes, starts, ends = append(sizes, 0), append(starts, x.at), append(ends, x.at)
		}
		sizes[len(sizes)-1]++
		ends[len(ends)-1] = x.at
		last = x.at
	}
	if len(sizes) == 0 {
		return fail("no arrivals", fmt.Sprintf("nothing arrived, expected %d a poll", a.Min))
	}
	whole := sizes[min(1, len(sizes)-1):max(1, len(sizes)-1)]
	if len(sizes) < 3 || len(whole) < a.Clusters {
		return notEngaged(fmt.Sprintf("too few whole polls, %d are needed: %v", max(1, a.Clusters), sizes))
	}
	off := 0
	for i, n := range whole {
		if n != a.Min && !(n == 2*a.Min && met(starts, ends, i+1)) {
			off++
		}
	}
	figure := fmt.Sprintf("polls of %v", whole[:min(len(whole), 10)])
	switch {
	case off*5 > len(whole):
		return fail(figure, fmt.Sprintf("arrivals per poll %v, expected %d each", whole, a.Min))
	case slices.Max(whole) > 2*a.Min:
		return notEngaged(fmt.Sprintf("more than two polls met, which leaves their sizes open: %v", whole))
	}
	return pass(fmt.Sprintf("%d a poll, %d polls", a.Min, len(whole)), fmt.Sprintf("%d polls", len(whole)))
}

// met tells whether cluster i may be two polls, of which the first was late: it began half of the usual time late, or its arrivals lie as
// far apart as two polls do. What is taken in one poll arrives at once.
func met(starts, ends []int64, i int) bool {
	var gaps []int64
	for k := 1; k < len(starts); k++ {
		gaps = append(gaps, starts[k]-starts[k-1])
	}
	own := gaps[i-1]
	slices.Sort(gaps)
	usual := gaps[len(gaps)/2]
	return own*2 >= usual*3 || (ends[i]-starts[i])*2 >= usual
}

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

// asyncShare: of the first Min arrivals of all groups each group has its equal share, up to Low, while all of them had more waiting: what has
// none left cannot have its share.
func asyncShare(a Async, r *evidence.Run) finding {
	a.IDs = flatten(a.Groups)
	a.First = true
	from, to, why := asyncSpan(a, r)
	if why == "" {
		why = a.unsent(r, to)
	}
	found := a.attempts(r, from, to)
	want := 1 / float64(max(1, len(a.Groups)))
	switch {
	case why != "":
		return notEngaged(why)
	case len(a.Groups) < 2 || a.Low >= want:
		return notEngaged("any share would do")
	case len(found) < a.Min || a.Min <= 0:
		return notEngaged(fmt.Sprintf("%d of %d arrivals that are needed", len(found), a.Min))
	}
	counts := make([]int, len(a.Groups))
	for _, x := range found[:a.Min] {
		counts[groupOf(a.Groups, x.ID)]++
	}
	waiting := a.waiting(r, found[a.Min-1].at, found[a.Min-1].at)
	share := func(g int) float64 { return float64(counts[g]) / float64(a.Min) }
	for g := range counts {
		if !hasGroup(a.Groups, waiting, g) && share(g) <= want+a.Low {
			return notEngaged(fmt.Sprintf("group %d had nothing left after %d arrivals", g, a.Min))
		}
	}
	for g := range counts {
		if s := share(g); s < want-a.Low || s > want+a.Low {
			return fail(fmt.Sprintf("shares %v", counts), fmt.Sprintf("group %d has %.2f of %d arrivals, expected %.2f ± %.2f", g, s, a.Min, want, a.Low))
		}
	}
	return pass(fmt.Sprintf("shares %v", counts), fmt.Sprintf("%d arrivals", a.Min))
}

// asyncSpread: the second attempts of the ids are spread over at least Min bins of width Gap, and so are the times from first to second: first
// attempts that came one after the other spread what follows them, however regular it is. Clusters of both are needed. Nothing spreads the
// first attempts but the time that sending them takes: where the second ones take less than twice as long, that may be all there is.
func asyncSpread(a Async, r *evidence.Run) finding {
	if a.Gap <= 0 || a.Min < 2 || a.Clusters < a.Min {
		return notEngaged("any spread would do")
	}
	first, burst, bins, delays, seconds := map[string]int64{}, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, 0
	for _, x := range a.attempts(r, 0, math.MaxInt64) {
		at, ok := first[x.ID]
		switch {
		case x.Nth == 1:
			first[x.ID] = x.at
			burst[x.at/int64(a.Gap)] = true
		case x.Nth == 2 && ok:
			seconds++
			bins[x.at/int64(a.Gap)] = true
			delays[(x.at-at)/int64(a.Gap)] = true
		}
	}
	if len(first) < a.Clusters || seconds < a.Clusters {
		return notEngaged(fmt.Sprintf("%d first and %d second attempts, %d are needed", len(first), seconds, a.Clusters))
	}
	if n := min(len(bins), len(delays)); n < a.Min {
		return fail(fmt.Sprintf("%d bins", n), fmt.Sprintf("%d second attempts fall into %d bins of %s, and %d after the first, expected at least %d", seconds, len(bins), a.Gap, len(delays), a.Min))
	}
	if len(bins) < 2*len(burst) {
		return notEngaged(fmt.Sprintf("the first attempts, which nothing spreads, take %d bins of %s already, and the second ones %d: sending them may need that long", len(burst), a.Gap, len(bins)))
	}
	return pass(fmt.Sprintf("%d bins", len(bins)), fmt.Sprintf("%d second attempts", seconds))
}
