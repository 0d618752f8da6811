package checks_test

import (
	"math"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
)

// one is one place that is handed on at once: the second waits for 900 ms, the third for 1700.
func onePlace() *hist {
	return history().served("a", 0, 1, 900).served("b", 0, 901, 1700).served("c", 0, 1701, 1800)
}

var onePlaceSpec = checks.Spec{Counts: map[string]int{"hand-built": 1}, Within: time.Second, Needed: 2}

func onePlaceWith(f func(*checks.Spec)) checks.Spec { s := onePlaceSpec; f(&s); return s }

// counted is a counter that is read twice, and a histogram that agrees with it.
func countedTwice(first, second float64) *hist {
	h := history().served("a", 0, 1, 100).step("p", 1000, 1010).step("q", 2000, 2010)
	for mark, v := range map[string]float64{"p": first, "q": second} {
		h.sample(mark, "n_total", v, labels{"outcome": "Dispatched"}).sample(mark, "d_count", v, labels{"outcome": "Dispatched"})
	}
	return h.ops("sample", "p", "q")
}

func (h *hist) ops(op string, marks ...string) *hist {
	for i := range h.r.Steps {
		for _, m := range marks {
			if h.r.Steps[i].Mark == m {
				h.r.Steps[i].Op = op
			}
		}
	}
	return h
}

// restarted puts the start of another router between the two pages.
func (h *hist) restarted() *hist {
	return h.without("q").step("again", 1500, 1510).step("q", 2000, 2010).ops("restart", "again").ops("sample", "q")
}

var countersSpec = checks.Spec{Needed: 2, Names: []string{"d_count", "n_total"}}

var wholeMoreTrials = []trial{
	{"work-conserving", "passing", "the place is handed on at once", onePlaceSpec, onePlace(), pass},
	{"work-conserving", "failing", "the last waits beside a free place", onePlaceSpec, onePlace().b("c", arrivesAt(2750)).c("c", func(c *evidence.Client) { c.End = at(2800) }).
		b("c", func(b *evidence.Backend) { b.End = at(2800) }), fail},
	{"work-conserving", "failing", "one is refused beside a free place", onePlaceSpec, onePlace().refused("d", 1900, 3000, 429, "late"), fail},
	{"work-conserving", "degenerate", "a request that no model server finished", onePlaceSpec, onePlace().b("c", func(b *evidence.Backend) { b.End = evidence.Never }), pass},
	{"work-conserving", "degenerate", "too few waited", onePlaceWith(func(s *checks.Spec) { s.Needed = 3 }), onePlace(), inconclusive},
	{"work-conserving", "degenerate", "another scenario's capacity", onePlaceWith(func(s *checks.Spec) { s.Counts = map[string]int{"other": 1} }), onePlace(), inconclusive},
	{"work-conserving", "degenerate", "no time", onePlaceWith(func(s *checks.Spec) { s.Within = 0 }), onePlace(), inconclusive},
	{"counters", "passing", "it rises", countersSpec, countedTwice(1, 2), pass},
	{"counters", "passing", "it stays", countersSpec, countedTwice(1, 1), pass},
	{"counters", "failing", "it falls", countersSpec, countedTwice(2, 1), fail},
	{"counters", "failing", "histogram and counter differ", countersSpec, countedTwice(1, 2).s(func(sm *evidence.Sample) {
		if sm.Name == "d_count" {
			sm.Value++
		}
	}), fail},
	{"counters", "passing", "they differ while something is decided", countersSpec, countedTwice(1, 2).s(func(sm *evidence.Sample) {
		if sm.Name == "d_count" && sm.Mark == "q" {
			sm.Value++
		}
	}).served("b", 1950, 1960, 1990), pass},
	{"counters", "degenerate", "it is no number", countersSpec, countedTwice(1, math.NaN()), fail},
	{"counters", "degenerate", "it starts again with the router", countersSpec, countedTwice(2, 1).restarted(), inconclusive},
	{"counters", "degenerate", "a series is gone and starts again", checks.Spec{Needed: 1}, countedTwice(2, 1).drop(marked("q")).step("r", 3000, 3010).ops("sample", "r").sample("q", "x_total", 1, labels{}).sample("r", "n_total", 1, labels{"outcome": "Dispatched"}).sample("r", "x_total", 1, labels{}), pass},
	{"counters", "degenerate", "too few pages", checks.Spec{Needed: 3}, countedTwice(1, 2), inconclusive},
}
