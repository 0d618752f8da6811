package checks

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/stats"
	"github.com/llm-weir/weir/harness/verdict"
)

// point is one load of a sweep.
type point struct {
	offered float64   // requests per second
	served  float64   // completed per second, from the first sending to the last ending
	waits   []float64 // seconds to the end of each request, in the order of sending
}

func loads(s Spec) []string {
	if s.Bench == nil {
		return nil
	}
	return s.Bench.Loads
}

// sweep reads the load steps of Bench.Loads, in rising order of what they offer. Each is looked at whole.
func sweep(s Spec, r *evidence.Run) ([]point, *finding) {
	var out []point
	for _, mark := range loads(s) {
		m, f := watch(r, mark)
		if f != nil {
			return nil, f
		}
		w := window{r, span{m.Start, m.End}}
		if l := w.lag(); !(l <= disturbed) {
			n := notEngaged(fmt.Sprintf("%s: the machine was %.0f ms late at the 95th percentile", mark, 1e3*l))
			return nil, &n
		}
		cs := w.offered(anyone)
		if short(len(cs), s.Needed) {
			n := notEngaged(fmt.Sprintf("%s: %d requests, %d are needed", mark, len(cs), s.Needed))
			return nil, &n
		}
		first, last, end := cs[0].Intended, cs[0].Intended, int64(0)
		p := point{}
		for _, c := range cs {
			if c.Outcome != evidence.Completed || c.End == evidence.Never {
				n := notEngaged(fmt.Sprintf("%s: %s did not complete (%s): a point with censored values", mark, c.ID, answer(c)), c.ID)
				return nil, &n
			}
			last, end = max(last, c.Intended), max(end, c.End)
			p.waits = append(p.waits, float64(c.End-c.Intended)/1e9)
		}
		p.offered, p.served = float64(len(cs)-1)/(float64(last-first)/1e9), float64(len(cs))/(float64(end-first)/1e9)
		out = append(out, p)
	}
	return out, nil
}

// kneeOf is the index of the first load beyond the knee, by the shift of the mean of the logarithm of the median latencies.
func kneeOf(ps []point, draw func([]float64) []float64) stats.Change {
	var xs []float64
	for _, p := range ps {
		xs = append(xs, math.Log(stats.NewSample(draw(p.waits)).NearestRank(0.5)))
	}
	return stats.ChangePoint(xs, 1, 200)
}

func asIs(xs []float64) []float64 { return xs }

// knee (BEN-06): a sweep of at least eight loads finds where latency rises and throughput flattens: a change point, with the interval in
// which 95 % of the resampled sweeps have it. Up to it what is offered is served; beyond it what is served neither grows with what is
// offered nor collapses, each within the share Margin. Mode says whose knee it is: hardware, model, and that it is simulated, if it is.
// The knee is a candidate for calibration beside the settings in force, and nothing is set by it (BEN-07).
func knee(s Spec, r *evidence.Run) finding {
	ps, f := sweep(s, r)
	switch {
	case f != nil:
		return *f
	case len(ps) < 8 || s.Mode == "" || !(s.Margin > 0):
		return notEngaged(fmt.Sprintf("%d loads, eight are needed; or nothing says whose knee it is", len(ps)))
	case !slices.IsSortedFunc(ps, func(a, b point) int { return int(math.Copysign(1, a.offered-b.offered)) }):
		return notEngaged("the loads do not rise")
	case ps[len(ps)-1].served > 0.9*ps[len(ps)-1].offered:
		return notEngaged(fmt.Sprintf("the highest load is served at %.0f of %.0f requests/s: no point beyond the knee", ps[len(ps)-1].served, ps[len(ps)-1].offered))
	}
	c := kneeOf(ps, asIs)
	if c.Index == 0 || c.Confidence < 0.9 || c.After <= c.Before {
		return fail(fmt.Sprintf("confidence %.2f", c.Confidence), "latency does not rise at any of the loads, although the highest is more than can be served")
	}
	var resweeps []float64
	for k := range 200 {
		resweeps = append(resweeps, float64(kneeOf(ps, func(xs []float64) []float64 { return resampled(xs, k) }).Index))
	}
	at := stats.NewSample(resweeps)
	lo, hi := max(1, int(at.NearestRank(0.025))), max(1, int(at.NearestRank(0.975)))
	below, beyond := ps[c.Index-1], ps[c.Index]
	top := ps[len(ps)-1]
	figure := fmt.Sprintf("knee between %.0f and %.0f requests/s [%.0f, %.0f]; latency %.3f → %.3f s; %s; a candidate, nothing is set by it", below.offered, beyond.offered,
		ps[lo-1].offered, ps[hi].offered, math.Exp(c.Before), math.Exp(c.After), s.Mode)
	most := 0.0
	for _, p := range ps {
		most = max(most, p.served)
	}
	switch {
	case below.served < (1-s.Margin)*below.offered && ps[max(0, c.Index-2)].served < (1-s.Margin)*ps[max(0, c.Index-2)].offered:
		return fail(figure, fmt.Sprintf("below the knee what is offered must be served; %.0f of %.0f requests/s were", below.served, below.offered))
	case top.served < (1-s.Margin)*most:
		return fail(figure, fmt.Sprintf("beyond the knee throughput flattens; it collapses from %.0f to %.0f requests/s", most, top.served))
	}
	return finding{kind: verdict.Pass, figure: figure, engaged: fmt.Sprintf("%d loads on both sides", len(ps))}
}

// resampled draws blocks of a series; k names the draw.
func resampled(xs []float64, k int) []float64 {
	r := resampling
	r.Seed, r.Rounds, r.Block = uint64(k), 1, min(r.Block, len(xs))
	var out []float64
	stats.BlockBootstrap(xs, func(draw []float64) float64 { out = slices.Clone(draw); return 0 }, r)
	return out
}

// settingsKept (BEN-07): at every load of the sweep the model servers held at most Count requests each, and at the highest that many: the
// settings in force are those of before, whatever the sweep found.
func settingsKept(s Spec, r *evidence.Run) finding {
	if s.Count < 1 || len(loads(s)) < 2 {
		return notEngaged("no settings, or no sweep")
	}
	most := map[string]int{}
	for i, mark := range loads(s) {
		m, f := watch(r, mark)
		if f != nil {
			return *f
		}
		for t := m.Start; t < m.End; t += int64(20 * time.Millisecond) {
			per, _ := r.InFlight(t)
			for _, e := range sortedKeys(per) {
				most[e] = max(most[e], per[e])
				if per[e] > s.Count+s.Slack {
					return fail(fmt.Sprintf("%d at %s", per[e], e), fmt.Sprintf("at load %s model server %s held %d, the setting in force is %d", mark, e, per[e], s.Count))
				}
			}
		}
		if i == len(loads(s))-1 {
			for e := range endpoints(r) {
				if most[e] < s.Count {
					return notEngaged(fmt.Sprintf("model server %s never held more than %d, the limit is %d", e, most[e], s.Count))
				}
			}
		}
	}
	return pass(fmt.Sprintf("at most %d each", s.Count+s.Slack), fmt.Sprintf("%d loads, the limit was reached", len(loads(s))))
}
