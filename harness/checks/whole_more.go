package checks

import (
	"fmt"
	"sort"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
)

// workConserving (INV-08): in the scenarios of Counts, which let that many requests run at once, nobody waits for longer than Within
// while fewer run. Engaged if at least Needed requests waited for a tenth of a second.
func workConserving(s Spec, runs []evidence.Run) finding {
	waits, worst := 0, int64(0)
	if s.Within <= 0 {
		return notEngaged("no time for which a request may wait beside free capacity")
	}
	for i := range runs {
		own := runs[i] // what it looks up stays its own
		r := &own
		capacity := s.Counts[r.Scenario]
		if capacity <= 0 {
			continue
		}
		free := freeTimes(r, capacity)
		for _, c := range r.Clients {
			until, ok := decided(r, c)
			if c.Sent == evidence.Never || !ok {
				continue
			}
			if until-c.Sent >= 100e6 {
				waits++
			}
			for _, f := range free {
				beside := min(f.to, until) - max(f.from, c.Sent)
				worst = max(worst, beside)
				if beside > int64(s.Within) {
					return fail(c.ID+" waited "+ms(beside), fmt.Sprintf("%s/%s waited for %s while fewer than %d were at the model servers", r.Scenario, c.ID, ms(beside), capacity), r.Scenario+"/"+c.ID)
				}
			}
		}
	}
	if short(waits, s.Needed) {
		return notEngaged(fmt.Sprintf("%d requests waited, %d are needed", waits, s.Needed))
	}
	return pass("at most "+ms(worst)+" beside free capacity", fmt.Sprintf("%d waited", waits))
}

// span is a time in which capacity was free.
type span struct{ from, to int64 }

// freeTimes lists the times in which fewer than capacity requests were inside the model servers, to the end of the history.
func freeTimes(r *evidence.Run, capacity int) []span {
	type event struct {
		at int64
		by int
	}
	var events []event
	last := int64(0)
	for _, b := range r.Backends {
		if b.Arrival == evidence.Never {
			continue
		}
		events = append(events, event{b.Arrival, 1})
		if b.End != evidence.Never {
			events = append(events, event{b.End, -1})
		}
		last = max(last, b.Arrival, b.End)
	}
	for _, c := range r.Clients {
		last = max(last, c.Sent, c.End)
	}
	sort.SliceStable(events, func(i, j int) bool { return events[i].at < events[j].at })
	var out []span
	inside, since := 0, int64(0)
	for _, e := range events {
		was := inside
		inside += e.by
		switch {
		case was < capacity && inside >= capacity:
			out = append(out, span{since, e.at})
		case was >= capacity && inside < capacity:
			since = e.at
		}
	}
	if inside < capacity {
		out = append(out, span{since, last})
	}
	return out
}

// collected is the age at which a scenario's first flows may have been collected, and their series with them, between two pages.
const collected = int64(240e9)

// counters (INV-14): no counter and no histogram's count of the router ever falls between two pages of a scenario, unless the router was
// started again in between; a series that was gone in between starts again as well. And on pages read while nothing was decided the
// histogram Names[0] has counted, outcome by outcome, what the counter Names[1] has, unless a series
// of it is gone or may be. Engaged if at least
// Needed series were compared between pages.
func counters(s Spec, runs []evidence.Run) finding {
	compared, matched := 0, 0
	for i := range runs {
		own := runs[i]
		r := &own
		if len(r.Clients) == 0 {
			continue // without traffic nothing was to be counted
		}
		var before map[string]evidence.Sample
		gone := false
		for _, p := range pages(r) {
			now := map[string]evidence.Sample{}
			for _, sm := range p.samples {
				now[sm.Name+labelText(sm.Labels)] = sm
			}
			restarted := restartedBetween(r, p.since, p.step.Start)
			for _, key := range sortedKeys(before) {
				old := before[key]
				sm, there := now[key]
				switch {
				case restarted:
				case !there:
					gone = true
				case !(sm.Value >= old.Value):
					return fail(fmt.Sprintf("%v after %v", sm.Value, old.Value), fmt.Sprintf("%s: %s read %v at %s and %v at %s", r.Scenario, key, old.Value, old.Mark, sm.Value, sm.Mark))
				default:
					compared++
				}
			}
			gone = gone && !restarted
			before = now
			if len(s.Names) < 2 || gone || p.step.Start > collected || decidedWithin(r, p.step.Start-100e6, p.step.End) {
				continue
			}
			histogram, counter := byOutcome(p.samples, s.Names[0]), byOutcome(p.samples, s.Names[1])
			if len(histogram) == 0 {
				continue
			}
			for _, o := range sortedKeys(counter) {
				if histogram[o] != counter[o] {
					return fail(fmt.Sprintf("%s: %v and %v", o, histogram[o], counter[o]), fmt.Sprintf("%s: at %s %s has counted %v of outcome %s, %s %v", r.Scenario, p.step.Mark, s.Names[0], histogram[o], o, s.Names[1], counter[o]))
				}
				matched++
			}
		}
	}
	if short(compared, s.Needed) {
		return notEngaged(fmt.Sprintf("%d series were compared between two pages, %d are needed", compared, s.Needed))
	}
	return pass(fmt.Sprintf("%d comparisons", compared), fmt.Sprintf("%d outcomes counted alike", matched))
}

// counterPage is what a sample step read of the router's counters.
type counterPage struct {
	step    evidence.Step
	since   int64 // the end of the page before
	samples []evidence.Sample
}

// pages lists the pages of a scenario in the order in which they were read. Two of one mark cannot be told apart and are left out.
func pages(r *evidence.Run) []counterPage {
	var out []counterPage
	since := int64(0)
	for _, st := range r.Steps {
		if st.Op != "sample" || !st.OK || len(r.StepsByMark(st.Mark)) > 1 {
			continue
		}
		p := counterPage{step: st, since: since}
		for _, sm := range r.Samples {
			if sm.Mark == st.Mark && sm.Source == "router" && (strings.HasSuffix(sm.Name, "_total") || strings.HasSuffix(sm.Name, "_count")) {
				p.samples = append(p.samples, sm)
			}
		}
		if len(p.samples) > 0 {
			out = append(out, p)
			since = st.End
		}
	}
	return out
}

func restartedBetween(r *evidence.Run, from, to int64) bool {
	for _, st := range r.Steps {
		if st.Op == "restart" && st.End > from && st.Start < to {
			return true
		}
	}
	return false
}

func decidedWithin(r *evidence.Run, from, to int64) bool {
	for _, c := range r.Clients {
		if t, ok := decided(r, c); ok && t >= from && t <= to {
			return true
		}
	}
	return false
}

func byOutcome(samples []evidence.Sample, name string) map[string]float64 {
	out := map[string]float64{}
	for _, sm := range samples {
		if sm.Name == name {
			out[sm.Labels["outcome"]] += sm.Value
		}
	}
	return out
}
