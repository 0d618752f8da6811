package checks

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/stats"
	"github.com/llm-weir/weir/harness/verdict"
)

// The checks of this file judge configuration patterns: each shows an effect and what it costs.

// attained is the share of a tenant's requests of the window whose first token was made within a target, at its model server.
func (w window) attained(name string, target int64) (share float64, n int) {
	met := 0
	cs := w.offered(tenant(name))
	for _, c := range cs {
		if b, ok := arrival(w.r, c.ID); ok && b.FirstToken != evidence.Never && b.FirstToken-c.Intended <= target {
			met++
		}
	}
	return float64(met) / float64(max(1, len(cs))), len(cs)
}

// sloTradeoff (BEN-15): under a low and under a high limit on what is inside the model servers, each with arrival order (fcfs) and with
// deadline order (slo). Deadline order lets more of the Quiet tenant's first tokens meet the target Within, proven by the intervals of the
// two shares; the low limit keeps the time inside the model servers shorter, and costs throughput. Engaged if demand exceeded the limit.
func sloTradeoff(s Spec, runs []evidence.Run) finding {
	ws, f := joinedWindows(s, runs, "low/fcfs", "low/slo", "high/fcfs", "high/slo")
	if f != nil {
		return *f
	}
	if s.Within <= 0 {
		return notEngaged("no target")
	}
	share, rate, inside := map[string]stats.Interval{}, map[string]float64{}, map[string]float64{}
	var figures []string
	for _, p := range sortedKeys(ws) {
		w := ws[p]
		if why := w.demand(s); why != "" {
			return notEngaged(w.r.Scenario + ": " + why)
		}
		met, n := w.attained(s.Bench.Quiet, int64(s.Within))
		if short(n, s.Needed) {
			return notEngaged(fmt.Sprintf("%s: %d requests with a target, %d are needed", w.r.Scenario, n, s.Needed))
		}
		share[p], rate[p], inside[p] = stats.Wilson(int(math.Round(met*float64(n))), n, 0.95), stats.Mean(w.rates()), w.service()
		figures = append(figures, fmt.Sprintf("%s: %.1f %% in time, %.0f tokens/s, %.3f s inside", p, 100*met, rate[p], inside[p]))
	}
	figure := strings.Join(figures, "; ")
	for _, l := range []string{"low", "high"} {
		if !(share[l+"/slo"].Lo > share[l+"/fcfs"].Hi) {
			return fail(figure, fmt.Sprintf("under the %s limit, ordering by deadline must bring more first tokens in time than ordering by arrival", l))
		}
	}
	if !(inside["low/slo"] < inside["high/slo"]) {
		return fail(figure, "a lower limit must shorten the time inside the model servers")
	}
	return pass(figure, fmt.Sprintf("effect: +%.0f points in time; cost: %.0f %% of the throughput at the low limit", 100*(share["low/slo"].Lo-share["low/fcfs"].Hi), 100*(1-rate["low/slo"]/rate["high/slo"])))
}

// holdbackCurve (BEN-13): the scenarios of Bench.Runs, in the order of their keys, hold the low band back ever less. The high band's mean
// wait grows from the first to the last, beside which the 95th percentile is reported, and so do the tokens per second of the low band: what holding back gives, and what
// it costs while the high band is quiet. Engaged if the low band was backlogged throughout, and at the first setting left places empty.
func holdbackCurve(s Spec, runs []evidence.Run) finding {
	if s.Bench == nil || len(s.Bench.Runs) < 2 {
		return notEngaged("no settings to compare")
	}
	parts := sortedKeys(s.Bench.Runs)
	ws, f := joinedWindows(s, runs, parts...)
	if f != nil {
		return *f
	}
	var waits, means, low []estimate
	var figures []string
	for i, p := range parts {
		w := ws[p]
		if !w.backlogged(objective(s.Bench.Low)) {
			return notEngaged(w.r.Scenario + ": the low band was not backlogged throughout")
		}
		xs := queued(w.r, w.offered(objective(s.Bench.High)))
		if short(len(xs), s.Needed) {
			return notEngaged(fmt.Sprintf("%s: %d requests of the high band, %d are needed", w.r.Scenario, len(xs), s.Needed))
		}
		if why := samePlan(ws[parts[0]], w); why != "" {
			return notEngaged(why)
		}
		waits, low = append(waits, quantile(xs, 0.95)), append(low, mean(w.ratesOf(objective(s.Bench.Low))))
		means = append(means, mean(xs))
		figures = append(figures, fmt.Sprintf("%s: high p95 wait %.3f s, low %.0f tokens/s", p, waits[i].value, low[i].value))
	}
	last := len(parts) - 1
	figure := strings.Join(figures, "; ")
	if full := ws[parts[0]].full(s.Bench.Places); full > 0.8 {
		return notEngaged(fmt.Sprintf("at the first setting every place was taken for %.0f %% of the time: no plateau", 100*full))
	}
	switch {
	case !(means[0].value < means[last].value):
		return fail(figure, "the more the low band is held back, the shorter the high band must wait")
	case !(low[0].value < low[last].value):
		return fail(figure, "holding the low band back must cost it throughput")
	case !(means[0].Hi < means[last].Lo) || !(low[0].Hi < low[last].Lo):
		return notEngaged("the intervals of the first and the last setting overlap: more requests would decide")
	}
	return pass(figure, fmt.Sprintf("effect: %.3f s less wait; cost: %.0f tokens/s of the low band", waits[last].value-waits[0].value, low[last].value-low[0].value))
}

// ratesOf are the tokens per second that the model servers finished for some requests, slot by slot.
func (w window) ratesOf(keep func(evidence.Client) bool) []float64 {
	own := *w.r
	own.Backends = nil
	for _, b := range w.r.Backends {
		if c, ok := w.r.ClientByID(b.ID); ok && keep(c) {
			own.Backends = append(own.Backends, b)
		}
	}
	return window{&own, w.span}.rates()
}

// evictionRecovery (BEN-14): high demand displaces running batch, whose owner sends it again (ids "x", "x~2"...). Reported: the time from
// demand to first token, the tokens that were thrown away, the attempts. Each job completes exactly once, and demand waits at most Max at
// the 95th percentile. Engaged with Needed evictions.
func evictionRecovery(s Spec, r *evidence.Run) finding {
	b := s.Bench
	if b == nil || b.High == "" || b.Low == "" || s.Max <= 0 {
		return notEngaged("no bands or no limit for the wait")
	}
	done, jobs := map[string]int{}, map[string]bool{}
	evicted, lost, thrown := 0, 0, map[string]bool{}
	var high []evidence.Client
	for _, c := range r.Clients {
		if c.Sent == evidence.Never {
			continue
		}
		if c.Objective == b.High {
			high = append(high, c)
			continue
		}
		job, _, _ := strings.Cut(c.ID, "~")
		jobs[job] = true
		if x, seen := arrival(r, c.ID); seen && c.Outcome == evidence.Refused {
			evicted++
			lost += x.Tokens
			thrown[c.ID] = true
		} else if seen && c.Outcome == evidence.Completed {
			done[job]++
		}
	}
	for _, x := range r.Backends {
		if thrown[x.ID] && x.Ending == evidence.Finished { // a second result of the job, whoever threw it away
			job, _, _ := strings.Cut(x.ID, "~")
			done[job]++
		}
	}
	if short(evicted, s.Needed) {
		return notEngaged(fmt.Sprintf("%d were evicted, %d are needed", evicted, s.Needed))
	}
	for _, job := range sortedKeys(jobs) {
		if done[job] != 1 {
			return fail(fmt.Sprintf("%s completed %d times", job, done[job]), fmt.Sprintf("job %s must complete exactly once, it completed %d times", job, done[job]), job)
		}
	}
	sort.SliceStable(high, func(i, j int) bool { return high[i].Sent < high[j].Sent })
	xs := firstTokens(high)
	if len(xs) < len(high) {
		return fail(fmt.Sprintf("%d of %d served", len(xs), len(high)), "demand that displaced batch must be served")
	}
	p50, p95 := quantile(xs, 0.5), quantile(xs, 0.95)
	figure := fmt.Sprintf("%d evictions; demand to first token p50 %v p95 %v s; %d tokens to be made again; %d jobs, each once", evicted, p50, p95, lost, len(jobs))
	kind, why := p95.within(math.Inf(-1), s.Max.Seconds())
	if kind == verdict.Fail {
		why = fmt.Sprintf("demand must have its first token within %s at the 95th percentile", s.Max)
	}
	return finding{kind: kind, figure: figure, why: why, engaged: fmt.Sprintf("%d evictions", evicted)}
}
