package checks

import (
	"fmt"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/stats"
	"github.com/llm-weir/weir/harness/verdict"
)

// shareSlot is the number of consecutive turns that make one slot of the block bootstrap: a few rounds of the rotation, so that
// neighbouring turns, which depend on each other, stay together.
const shareSlot = 4

// share: while every tenant of Shares had work waiting, the turns (arrivals at the model servers) are split among them as entitled,
// within Margin, proven by a bootstrap interval at 95 %. Engaged if at least Needed such turns were taken.
func share(s Spec, r *evidence.Run) finding {
	tenants := sortedKeys(s.Shares)
	if len(tenants) < 2 {
		return notEngaged("fewer than two tenants among whom anything could be shared")
	}
	turns := backloggedTurns(r, tenants)
	if short(len(turns), s.Needed) {
		return notEngaged(fmt.Sprintf("%d turns were taken while %s were all backlogged, %d are needed", len(turns), list(tenants), s.Needed))
	}
	figure := ""
	jain := make([]float64, 0, len(tenants))
	worst := verdict.Pass
	why := ""
	for _, t := range tenants {
		part, whole := slots(turns, t)
		e := stats.ShareEquivalence(part, whole, s.Shares[t], s.Margin, stats.Resampling{Rounds: 2000, Level: 0.95, Block: 2, Seed: 1})
		figure += fmt.Sprintf("%s %.3f [%.3f, %.3f] ", t, e.Estimate, e.Interval.Lo, e.Interval.Hi)
		jain = append(jain, e.Estimate/s.Shares[t])
		if e.Kind != verdict.Pass {
			why = fmt.Sprintf("%s is entitled to %.3f ± %.3f and got %.3f [%.3f, %.3f] of %d turns; about %d more turns would decide",
				t, s.Shares[t], s.Margin, e.Estimate, e.Interval.Lo, e.Interval.Hi, len(turns), max(0, e.NeedMore)*shareSlot)
		}
		worst = verdict.Worst(worst, e.Kind)
	}
	figure += fmt.Sprintf("Jain %.4f", stats.Jain(jain))
	return finding{kind: worst, figure: figure, why: why, engaged: fmt.Sprintf("%d turns while all were backlogged", len(turns))}
}

// slots counts, per run of shareSlot turns, those of tenant t and all.
func slots(turns []string, t string) (part, whole []float64) {
	for i := 0; i+shareSlot <= len(turns); i += shareSlot {
		n := 0.0
		for _, x := range turns[i : i+shareSlot] {
			if x == t {
				n++
			}
		}
		part = append(part, n)
		whole = append(whole, shareSlot)
	}
	return part, whole
}

// backloggedTurns lists the tenant of every arrival at a model server at whose instant each of tenants had at least one request sent
// and waiting. Work of other tenants does not count: it has its own band.
func backloggedTurns(r *evidence.Run, tenants []string) []string {
	type span struct{ from, to int64 }
	arrival := map[string]int64{}
	for _, b := range r.Backends {
		if _, seen := arrival[b.ID]; !seen {
			arrival[b.ID] = b.Arrival
		}
	}
	counted := map[string]bool{}
	waits := map[string][]span{}
	tenantOf := map[string]string{}
	for _, c := range r.Clients {
		if c.Sent == evidence.Never {
			continue
		}
		tenantOf[c.ID] = c.Tenant
		to, ok := arrival[c.ID]
		if !ok {
			to = c.End
		}
		waits[c.Tenant] = append(waits[c.Tenant], span{c.Sent, to})
	}
	backlogged := func(t string, at int64, but string) bool {
		n := 0
		for _, w := range waits[t] {
			if w.from < at && w.to >= at {
				n++
			}
		}
		// The request that is taken at this instant was waiting too, but it shows no backlog by itself.
		if t == but {
			n--
		}
		return n > 0
	}
	var turns []string
	for _, b := range r.Backends {
		// A request has one turn, however often it arrives.
		if counted[b.ID] {
			continue
		}
		counted[b.ID] = true
		t := tenantOf[b.ID]
		mine, all := false, true
		for _, name := range tenants {
			mine = mine || name == t
			all = all && backlogged(name, b.Arrival, t)
		}
		if mine && all {
			turns = append(turns, t)
		}
	}
	return turns
}
