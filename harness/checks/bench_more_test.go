package checks_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
)

// swept plays loads of two seconds at rising rates, one after the other, against a pool that serves a request every gap; each takes 50 ms
// at least. gap may depend on how many wait.
func swept(gap func(waiting int) int, rates ...int) *hist {
	h := history()
	now := 0
	for i, rate := range rates {
		mark := fmt.Sprintf("load%d", i+1)
		start, free, end := now, now, now
		var ends []int
		for k := range 2 * rate {
			sent := start + k*1000/rate
			waiting := 0
			for _, e := range ends {
				if e > sent {
					waiting++
				}
			}
			free = max(free+gap(waiting), sent)
			end = max(free, sent) + 50
			ends = append(ends, end)
			h.served(fmt.Sprintf("%s-%d", mark, k), sent, free, end)
			h.c(fmt.Sprintf("%s-%d", mark, k), func(c *evidence.Client) { c.Intended = at(sent) })
		}
		now = end + 10
		h.step(mark, start, now)
	}
	return h
}

func steadyGap(int) int          { return 12 }
func collapsing(waiting int) int { return 12 + waiting/8 }

var eight = []int{20, 30, 45, 60, 90, 105, 120, 140}

func kneeSpec(change func(*checks.Spec)) checks.Spec {
	s := checks.Spec{Needed: 30, Margin: 0.1, Mode: "toy", Bench: &checks.Bench{}}
	for i := range eight {
		s.Bench.Loads = append(s.Bench.Loads, fmt.Sprintf("load%d", i+1))
	}
	if change != nil {
		change(&s)
	}
	return s
}

func unmovedSpec(n int) checks.Spec {
	return checks.Spec{Count: n, Bench: &checks.Bench{Loads: []string{"low", "high"}}}
}

// kept has one request inside at the low load, and three at the high one.
func unmoved() *hist {
	return history().served("a", 0, 0, 100).step("low", 0, 110).served("b", 200, 200, 400).served("c", 200, 200, 400).served("d", 200, 200, 400).served("e", 201, 401, 500).step("high", 200, 510)
}

// batches is a pool of one place with a batch queue of twenty, interactive requests beside it, and an owner who retries.
func batches(limit int, interactive func(i int) (waits int)) *hist {
	h := history()
	for i := range limit { // they wait one after the other, 100 ms each
		h.served(fmt.Sprintf("job%d", i), i, 500+100*i, 600+100*i)
		h.c(fmt.Sprintf("job%d", i), low)
	}
	for i := range 10 {
		id := fmt.Sprintf("late%d", i)
		h.refused(id, 100+i, 102+i, 429, "full").c(id, low)
		h.served(id+"~2", 4000+100*i, 4001+100*i, 4080+100*i).c(id+"~2", low)
	}
	for i := range 80 {
		id := fmt.Sprintf("fast%d", i)
		h.served(id, 20*i, 20*i+interactive(i), 20*i+interactive(i)+20)
		h.c(id, func(c *evidence.Client) { c.Objective = "p100" })
	}
	return h
}

func low(c *evidence.Client) { c.Objective = "m10" }
func soon(int) int           { return 5 }

var batchSpec = checks.Spec{Count: 20, Needed: 10, Status: 429, Reason: "full", Bench: &checks.Bench{High: "p100", Low: "m10"}}

// prompts are two loads of one rate, with so many tokens inside at a time.
func prompts(short, long int, rate time.Duration) *hist {
	h := history()
	for k, l := range []struct {
		mark   string
		tokens int
		every  time.Duration
	}{{"short", short, 10 * time.Millisecond}, {"long", long, rate}} {
		start := 5000 * k
		for i := range 100 {
			sent := start + i*int(l.every/time.Millisecond)
			id := fmt.Sprintf("%s%d", l.mark, i)
			h.served(id, sent, start+i*30, start+i*30+29)
			h.b(id, func(b *evidence.Backend) { b.PromptTokens, b.FirstToken = l.tokens, b.End })
		}
		h.step(l.mark, start, start+3100)
	}
	return h
}

func promptSpec(least, most float64) checks.Spec {
	return checks.Spec{Needed: 50, Bench: &checks.Bench{Loads: []string{"short", "long"}, AtLeast: least, AtMost: most}}
}

// thresholdToy lets n requests into each model server.
func thresholdToy(scenario string, n int, f func(*toy)) *hist {
	t := strict()
	t.scenario, t.limit = scenario, n
	if f != nil {
		f(&t)
	}
	return t.play()
}

func endsSpec(change func(*checks.Spec)) checks.Spec {
	return benchSpec(func(s *checks.Spec) {
		s.Bench.Runs = map[string]string{"01": "few", "09": "many"}
		if change != nil {
			change(s)
		}
	})
}

func figuresSpec(change func(*checks.Spec)) checks.Spec {
	return benchSpec(func(s *checks.Spec) {
		s.Min = 5 * time.Second
		s.Series = []checks.Series{{Labels: labels{"tenant": "quiet", "objective": "p0"}}, {Labels: labels{"tenant": "realtime", "objective": "p100"}}}
		if change != nil {
			change(s)
		}
	})
}

func quietFirst(waiting []*toyRequest) int {
	return max(0, slices.IndexFunc(waiting, func(r *toyRequest) bool { return r.tenant == "quiet" }))
}

// limited is a toy with so many places and one order.
func limited(scenario string, limit int, pick func([]*toyRequest) int) *hist {
	t := strict()
	t.scenario, t.limit, t.pick = scenario, limit, pick
	return t.play()
}

func sloSpec(change func(*checks.Spec)) checks.Spec {
	return benchSpec(func(s *checks.Spec) {
		s.Within = 300 * time.Millisecond
		s.Bench.Runs = map[string]string{"low/fcfs": "lf", "low/slo": "ls", "high/fcfs": "hf", "high/slo": "hs"}
		if change != nil {
			change(s)
		}
	})
}

func slos(lowOrder, highOrder func([]*toyRequest) int) *hist {
	return limited("lf", 2, oldestFirst).and(limited("ls", 2, lowOrder), limited("hf", 6, oldestFirst), limited("hs", 6, highOrder))
}

// heldAt lets the lower band take so many places of three.
func heldAt(scenario string, low int) *hist {
	t := strict()
	t.scenario, t.low, t.slow = scenario, low, 20*time.Millisecond
	return t.play()
}

func heldSpec(change func(*checks.Spec)) checks.Spec {
	return benchSpec(func(s *checks.Spec) {
		s.Needed = 59
		s.Bench.Runs = map[string]string{"1": "one", "3": "three"}
		if change != nil {
			change(s)
		}
	})
}

// displacements are sixty times that demand displaces a job, which is sent again later.
func displacements(wait int) *hist {
	h := history()
	for i := range 60 {
		job, demand := fmt.Sprintf("job%d", i), fmt.Sprintf("demand%d", i)
		at := 200 * i
		h.refused(job, at, at+100, 429, "evicted").backend(job, "a", at+1, at+101, evidence.Aborted)
		h.served(job+"~2", 20000+at, 20001+at, 20100+at)
		h.served(demand, at+98, at+98+wait, at+98+wait+20)
		h.c(job, low).c(job+"~2", low).c(demand, func(c *evidence.Client) { c.Objective = "p100" })
	}
	return h
}

var displaceSpec = checks.Spec{Needed: 50, Max: time.Second, Bench: &checks.Bench{High: "p100", Low: "m10"}}

var benchMoreTrials = []trial{
	{"slo-tradeoff", "passing", "deadlines first", sloSpec(nil), slos(quietFirst, quietFirst), pass},
	{"slo-tradeoff", "failing", "deadlines are accepted and ignored", sloSpec(nil), slos(oldestFirst, oldestFirst), fail},
	{"slo-tradeoff", "failing", "deadlines are ignored under the high limit", sloSpec(nil), slos(quietFirst, oldestFirst), fail},
	{"slo-tradeoff", "failing", "the limit makes no difference", sloSpec(func(s *checks.Spec) { s.Bench.Runs["high/fcfs"], s.Bench.Runs["high/slo"] = "lf", "ls" }), slos(quietFirst, quietFirst), fail},
	{"slo-tradeoff", "degenerate", "no target", sloSpec(func(s *checks.Spec) { s.Within = 0 }), slos(quietFirst, quietFirst), inconclusive},
	{"slo-tradeoff", "degenerate", "too few with a target", sloSpec(func(s *checks.Spec) { s.Needed = 1000 }), slos(quietFirst, quietFirst), inconclusive},
	{"slo-tradeoff", "degenerate", "room to spare", sloSpec(func(s *checks.Spec) { s.Bench.Places = 500 }), slos(quietFirst, quietFirst), inconclusive},

	{"holdback-curve", "passing", "shorter waits for less of the low band", heldSpec(nil), heldAt("one", 1).and(heldAt("three", 3)), pass},
	{"holdback-curve", "failing", "the setting makes no difference", heldSpec(nil), heldAt("one", 1).and(heldAt("three", 1)), fail},
	{"holdback-curve", "degenerate", "nothing is held back", heldSpec(nil), heldAt("one", 3).and(heldAt("three", 3)), inconclusive},
	{"holdback-curve", "degenerate", "too few", heldSpec(func(s *checks.Spec) { s.Needed = 1000 }), heldAt("one", 1).and(heldAt("three", 3)), inconclusive},
	{"holdback-curve", "degenerate", "one setting was not played", heldSpec(nil), heldAt("one", 1), inconclusive},

	{"eviction-recovery", "passing", "each job once, and demand at once", displaceSpec, displacements(5), pass},
	{"eviction-recovery", "failing", "demand waits for two seconds", displaceSpec, displacements(2000), fail},
	{"eviction-recovery", "failing", "a job is never finished", displaceSpec, displacements(5).unseen("job7~2").c("job7~2", func(c *evidence.Client) { c.Outcome, c.Status = evidence.Refused, 429 }), fail},
	{"eviction-recovery", "failing", "a job that was evicted runs on", displaceSpec, displacements(5).b("job7", func(b *evidence.Backend) { b.Ending = evidence.Finished }), fail},
	{"eviction-recovery", "failing", "demand is refused", displaceSpec, displacements(5).unseen("demand7").c("demand7", func(c *evidence.Client) { c.Outcome, c.Status = evidence.Refused, 429 }), fail},
	{"eviction-recovery", "degenerate", "too few evictions", checks.Spec{Needed: 61, Max: time.Second, Bench: displaceSpec.Bench}, displacements(5), inconclusive},
	{"eviction-recovery", "degenerate", "no limit", checks.Spec{Needed: 50, Bench: displaceSpec.Bench}, displacements(5), inconclusive},

	{"four-figures", "passing", "everybody is accounted for", figuresSpec(nil), turned().play(), pass},
	{"four-figures", "passing", "also who is refused", figuresSpec(nil), turned().play().unseen("quiet50").c("quiet50", func(c *evidence.Client) { c.Outcome, c.Status = evidence.Refused, 429 }), pass},
	{"four-figures", "failing", "one is neither dispatched nor refused", figuresSpec(nil), turned().play().unseen("quiet50").c("quiet50", func(c *evidence.Client) { c.Outcome = evidence.Unfinished }), fail},
	{"four-figures", "failing", "one is dispatched and refused", figuresSpec(nil), turned().play().c("quiet50", func(c *evidence.Client) { c.Outcome, c.Status = evidence.Refused, 429 }), fail},
	{"four-figures", "degenerate", "never saturated", figuresSpec(nil), solo().play(), inconclusive},
	{"four-figures", "degenerate", "a tenant that sends nothing", figuresSpec(func(s *checks.Spec) { s.Series[0].Labels["tenant"] = "nobody" }), turned().play(), inconclusive},
	{"four-figures", "degenerate", "one tenant", figuresSpec(func(s *checks.Spec) { s.Series = s.Series[:1] }), turned().play(), inconclusive},

	{"honest-load", "passing", "sent when due beside a slow pool", benchSpec(nil), turned().play(), pass},
	{"honest-load", "failing", "the generator waits for answers", benchSpec(nil), stalled(turned().play()), fail},
	{"honest-load", "failing", "a client counts fewer tokens", benchSpec(nil), turned().play().c("quiet50", func(c *evidence.Client) { c.Tokens-- }), fail},
	{"honest-load", "degenerate", "nobody waits, so nothing could have held it up", benchSpec(nil), solo().play(), inconclusive},
	{"honest-load", "degenerate", "one was served by nobody", benchSpec(nil), turned().play().unseen("quiet50"), inconclusive},
	{"honest-load", "degenerate", "too few", benchSpec(func(s *checks.Spec) { s.Needed = 10000 }), turned().play(), inconclusive},

	{"knee", "passing", "latency rises between 60 and 90", kneeSpec(nil), swept(steadyGap, eight...), pass},
	{"knee", "failing", "throughput collapses beyond it", kneeSpec(nil), swept(collapsing, eight...), fail},
	{"knee", "failing", "latency falls where it should rise", kneeSpec(nil), falling(), fail},
	{"knee", "degenerate", "no load is more than can be served", kneeSpec(nil), swept(steadyGap, 20, 25, 30, 35, 40, 45, 50, 55), inconclusive},
	{"knee", "degenerate", "seven loads", kneeSpec(func(s *checks.Spec) { s.Bench.Loads = s.Bench.Loads[1:] }), swept(steadyGap, eight...), inconclusive},
	{"knee", "degenerate", "nobody knows whose knee", kneeSpec(func(s *checks.Spec) { s.Mode = "" }), swept(steadyGap, eight...), inconclusive},
	{"knee", "degenerate", "the loads do not rise", kneeSpec(nil), swept(steadyGap, 20, 30, 60, 45, 90, 105, 120, 140), inconclusive},
	{"knee", "degenerate", "one request has no end", kneeSpec(nil), swept(steadyGap, eight...).c("load3-5", func(c *evidence.Client) { c.Outcome, c.End = evidence.Unfinished, evidence.Never }), inconclusive},
	{"knee", "degenerate", "too few at the lowest load", kneeSpec(func(s *checks.Spec) { s.Needed = 100 }), swept(steadyGap, eight...), inconclusive},
	{"knee", "degenerate", "the machine is late", kneeSpec(nil), lateAnswers(swept(steadyGap, eight...)), inconclusive},

	{"settings-kept", "passing", "never more than before", unmovedSpec(3), unmoved(), pass},
	{"settings-kept", "failing", "more than the setting allows", unmovedSpec(2), unmoved(), fail},
	{"settings-kept", "degenerate", "the setting was never reached", unmovedSpec(4), unmoved(), inconclusive},
	{"settings-kept", "degenerate", "a load was not played", unmovedSpec(3), unmoved().without("low"), inconclusive},

	{"consolidation", "passing", "refused, retried, completed", batchSpec, batches(20, soon), pass},
	{"consolidation", "failing", "more wait than the limit", batchSpec, batches(24, soon), fail},
	{"consolidation", "failing", "a refusal has another status", batchSpec, batches(20, soon).c("late3", func(c *evidence.Client) { c.Status = 503 }), fail},
	{"consolidation", "failing", "a job is refused to the end", batchSpec, batches(20, soon).unseen("late3~2").c("late3~2", func(c *evidence.Client) { c.Outcome, c.Status, c.Reason = evidence.Refused, 429, "full" }), fail},
	{"consolidation", "failing", "interactive waits for half a second", batchSpec, batches(20, func(int) int { return 500 }), fail},
	{"consolidation", "failing", "an interactive one is refused", batchSpec, batches(20, soon).unseen("fast7").c("fast7", func(c *evidence.Client) { c.Outcome, c.Status = evidence.Refused, 429 }), fail},
	{"consolidation", "degenerate", "nobody is refused", checks.Spec{Count: 20, Needed: 11, Status: 429, Bench: batchSpec.Bench}, batches(20, soon), inconclusive},
	{"consolidation", "degenerate", "the limit is far", checks.Spec{Count: 40, Needed: 10, Status: 429, Bench: batchSpec.Bench}, batches(20, soon), inconclusive},
	{"consolidation", "degenerate", "the machine is late", batchSpec, lateAnswers(batches(20, soon)), inconclusive},

	{"token-pressure", "passing", "eight times as much in requests", promptSpec(4, 0), prompts(100, 800, 10*time.Millisecond), pass},
	{"token-pressure", "passing", "as much in tokens", promptSpec(0, 2), prompts(100, 100, 10*time.Millisecond), pass},
	{"token-pressure", "failing", "the same although requests are counted", promptSpec(4, 0), prompts(100, 100, 10*time.Millisecond), fail},
	{"token-pressure", "failing", "eight times as much although tokens are counted", promptSpec(0, 2), prompts(100, 800, 10*time.Millisecond), fail},
	{"token-pressure", "degenerate", "two rates", promptSpec(4, 0), prompts(100, 800, 20*time.Millisecond), inconclusive},
	{"token-pressure", "degenerate", "nobody waits", promptSpec(4, 0), prompts(100, 800, 40*time.Millisecond), inconclusive},
	{"token-pressure", "degenerate", "no prompt is known", promptSpec(4, 0), prompts(0, 800, 10*time.Millisecond), inconclusive},
	{"token-pressure", "degenerate", "no bound", promptSpec(0, 0), prompts(100, 800, 10*time.Millisecond), inconclusive},

	{"demanded", "passing", "all are served in the end", benchSpec(nil), turned().play(), pass},
	{"demanded", "failing", "one is refused", benchSpec(nil), turned().play().unseen("quiet50").c("quiet50", func(c *evidence.Client) { c.Outcome, c.Status = evidence.Refused, 429 }), fail},
	{"demanded", "degenerate", "room to spare", benchSpec(nil), solo().play(), inconclusive},
	{"demanded", "degenerate", "one was served by nobody", benchSpec(nil), turned().play().unseen("quiet50"), inconclusive},

	{"threshold-ends", "passing", "more control at one end", endsSpec(nil), thresholdToy("few", 2, nil).and(thresholdToy("many", 9, nil)), pass},
	{"threshold-ends", "failing", "the threshold makes no difference", endsSpec(nil), thresholdToy("few", 9, nil).and(thresholdToy("many", 9, nil)), fail},
	{"threshold-ends", "failing", "the highest threshold costs throughput", endsSpec(nil), thresholdToy("few", 3, nil).and(thresholdToy("many", 9, func(t *toy) { t.handover = time.Second })), fail},
	{"threshold-ends", "degenerate", "another plan", endsSpec(nil), thresholdToy("few", 2, nil).and(thresholdToy("many", 9, func(t *toy) { t.noisy = 15 * time.Millisecond })), inconclusive},
	{"threshold-ends", "degenerate", "too few", endsSpec(func(s *checks.Spec) { s.Needed = 1000 }), thresholdToy("few", 2, nil).and(thresholdToy("many", 9, nil)), inconclusive},
	{"threshold-ends", "degenerate", "one setting was not played", endsSpec(nil), thresholdToy("few", 2, nil), inconclusive},
}

// falling is a sweep whose low loads are the slow ones.
func falling() *hist {
	h := swept(steadyGap, eight...)
	for i := range h.r.Clients {
		if slices.Contains([]string{"load1", "load2", "load3", "load4"}, h.r.Clients[i].ID[:5]) {
			h.r.Clients[i].End += 3e9
			h.r.Clients[i].Intended = h.r.Clients[i].Sent
		}
	}
	for i := range h.r.Backends {
		if slices.Contains([]string{"load1", "load2", "load3", "load4"}, h.r.Backends[i].ID[:5]) {
			h.r.Backends[i].End += 3e9
		}
	}
	return h
}

// stalled sends some requests of the noisy tenant only when the load is nearly over.
func stalled(h *hist) *hist {
	for i := range h.r.Clients {
		if c := &h.r.Clients[i]; c.Tenant == "noisy" && i%6 == 0 {
			c.Sent += 7e9
			c.Behind = 7e9
		}
	}
	return h
}

func lateAnswers(h *hist) *hist {
	for i := range h.r.Clients {
		h.r.Clients[i].End += 300e6
	}
	return h
}
