package checks

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/stats"
	"github.com/llm-weir/weir/harness/verdict"
)

// The checks of the files bench*.go judge loads: what was offered over a time, what came of it, and what two configurations make of
// one and the same plan. Everything is read from the records of clients and model servers; the router's page is judged against them.
//
//	window of a load --> waits, first tokens, completions per slot --> figure + block bootstrap interval --> pass | fail | inconclusive

// Bench are the parameters of these checks.
type Bench struct {
	// Runs are the scenarios that a check over the whole run joins, by the part that each plays.
	Runs map[string]string `json:"runs,omitempty"`
	// From and To bound the part of the load that is looked at, as offsets from its start.
	From time.Duration `json:"fromNs,omitempty"`
	To   time.Duration `json:"toNs,omitempty"`
	// Loads are the marks of the load steps of a sweep.
	Loads []string `json:"loads,omitempty"`
	// AtLeast and AtMost bound a ratio; 0: no bound.
	AtLeast float64 `json:"atLeast,omitempty"`
	AtMost  float64 `json:"atMost,omitempty"`
	// High and Low are the objectives of the two bands, Quiet and Noisy the two tenants of one band that are compared.
	High  string `json:"high,omitempty"`
	Low   string `json:"low,omitempty"`
	Quiet string `json:"quiet,omitempty"`
	Noisy string `json:"noisy,omitempty"`
	// Places is the number of requests that a model server runs at once; what is there beyond it waits inside.
	Places int `json:"places,omitempty"`
	// Saturation are the names of the gauge, Boundary what it reads when dispatch pauses.
	Saturation []string `json:"saturation,omitempty"`
	Boundary   float64  `json:"boundary,omitempty"`
}

// resampling is fixed for all benchmarks. Four neighbours stay together: one long request delays the next ones.
var resampling = stats.Resampling{Rounds: 1000, Level: 0.95, Block: 4, Seed: 1}

// slot is the length of the slices of time into which a rate is cut.
const slot = 250 * time.Millisecond

// window is the part of a load that is looked at.
type window struct {
	r *evidence.Run
	span
}

// windowOf finds it in the load step Mark. A load that was not the planned one has none.
func windowOf(s Spec, r *evidence.Run) (window, *finding) {
	b := s.Bench
	if b == nil || b.To <= b.From {
		f := notEngaged("no part of a load to look at")
		return window{}, &f
	}
	m, f := watch(r, s.Mark)
	if f != nil {
		return window{}, f
	}
	w := window{r, span{m.Start + int64(b.From), m.Start + int64(b.To)}}
	if w.to > m.End {
		n := notEngaged(fmt.Sprintf("%s ended after %s, before the part that is looked at was over", s.Mark, ms(m.End-m.Start)))
		f = &n
	}
	return w, f
}

func (w window) has(t int64) bool { return t >= w.from && t < w.to }

// offered lists the requests that were due inside the window and that keep says yes to, in the order in which they were sent.
func (w window) offered(keep func(evidence.Client) bool) []evidence.Client {
	var out []evidence.Client
	for _, c := range w.r.Clients {
		if c.Sent != evidence.Never && w.has(c.Intended) && keep(c) {
			out = append(out, c)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Sent < out[j].Sent })
	return out
}

func tenant(name string) func(evidence.Client) bool {
	return func(c evidence.Client) bool { return c.Tenant == name }
}

func objective(name string) func(evidence.Client) bool {
	return func(c evidence.Client) bool { return c.Objective == name }
}

func anyone(evidence.Client) bool { return true }

// queued are the seconds from the intended instant to the arrival at a model server, or to the refusal. Whoever never got so far, or
// was told to leave, waited at least until its end: a censored value, kept as it is.
func queued(r *evidence.Run, cs []evidence.Client) []float64 {
	var out []float64
	for _, c := range cs {
		t, ok := decided(r, c)
		if !ok {
			t = c.End
		}
		if t != evidence.Never {
			out = append(out, float64(t-c.Intended)/1e9)
		}
	}
	return out
}

// firstTokens are the seconds from the intended instant to the first token at the client, of those that completed.
func firstTokens(cs []evidence.Client) []float64 {
	var out []float64
	for _, c := range cs {
		t := c.FirstToken
		if t == evidence.Never {
			t = c.End
		}
		if c.Outcome == evidence.Completed && t != evidence.Never {
			out = append(out, float64(t-c.Intended)/1e9)
		}
	}
	return out
}

// rates are the tokens per second that the model servers finished, slot by slot.
func (w window) rates() []float64 {
	n := int((w.to - w.from) / int64(slot))
	out := make([]float64, n)
	for _, b := range w.r.Backends {
		if b.Ending != evidence.Finished || !w.has(b.End) {
			continue
		}
		if i := int((b.End - w.from) / int64(slot)); i < n {
			out[i] += float64(b.Tokens) / slot.Seconds()
		}
	}
	return out
}

// pace is the median time between two tokens at the model servers: how fast they really were, whatever was asked of them.
func (w window) pace() float64 {
	var xs []float64
	for _, b := range w.r.Backends {
		if b.Ending == evidence.Finished && b.Tokens > 1 && w.has(b.End) && b.FirstToken != evidence.Never {
			xs = append(xs, float64(b.End-b.FirstToken)/float64(b.Tokens-1)/1e9)
		}
	}
	return stats.NewSample(xs).NearestRank(0.5)
}

// service is the median time of a request at its model server, from the first token's step on: the quantum of one place.
func (w window) service() float64 {
	var xs []float64
	for _, b := range w.r.Backends {
		if b.Ending == evidence.Finished && w.has(b.End) {
			xs = append(xs, float64(b.End-b.Arrival)/1e9)
		}
	}
	return stats.NewSample(xs).NearestRank(0.5)
}

// lag is how late the machine itself was: the 95th percentile of what lies between the end at a model server and the end at the client,
// and of what the client sent late.
func (w window) lag() float64 {
	var xs []float64
	for _, c := range w.offered(anyone) {
		late := float64(c.Sent - c.Intended)
		if b, ok := w.r.BackendByID(c.ID); ok && c.Outcome == evidence.Completed && b.End != evidence.Never {
			late = max(late, float64(c.End-b.End))
		}
		xs = append(xs, late/1e9)
	}
	return stats.NewSample(xs).NearestRank(0.95)
}

// full is the share of the window in which every model server had at least n requests inside.
func (w window) full(n int) float64 {
	type change struct {
		at       int64
		endpoint string
		by       int
	}
	var changes []change
	inside := map[string]int{}
	for _, b := range w.r.Backends {
		if b.Arrival == evidence.Never {
			continue
		}
		inside[b.Endpoint] += 0
		changes = append(changes, change{b.Arrival, b.Endpoint, 1})
		if b.End != evidence.Never {
			changes = append(changes, change{b.End, b.Endpoint, -1})
		}
	}
	if len(inside) == 0 || n < 1 {
		return 0
	}
	sort.SliceStable(changes, func(i, j int) bool { return changes[i].at < changes[j].at })
	lacking, since, total := len(inside), w.from, int64(0)
	for _, c := range changes {
		was := inside[c.endpoint]
		inside[c.endpoint] += c.by
		switch {
		case was < n && was+c.by >= n:
			if lacking--; lacking == 0 {
				since = max(w.from, c.at)
			}
		case was >= n && was+c.by < n:
			if lacking++; lacking == 1 {
				total += max(0, min(w.to, c.at)-max(w.from, since))
			}
		}
	}
	if lacking == 0 {
		total += max(0, w.to-max(w.from, since))
	}
	return float64(total) / float64(w.to-w.from)
}

// backlogged tells whether, at each of ten instants spread over the window, somebody that keep says yes to was waiting for a place.
func (w window) backlogged(keep func(evidence.Client) bool) bool {
	const instants = 10
	var spans []span
	for _, c := range w.r.Clients {
		if c.Sent == evidence.Never || !keep(c) {
			continue
		}
		until, ok := decided(w.r, c)
		if !ok {
			until = c.End
		}
		spans = append(spans, span{c.Sent, until})
	}
	for i := range int64(instants) {
		t := w.from + (w.to-w.from)*(2*i+1)/(2*instants)
		if !slices.ContainsFunc(spans, func(s span) bool { return s.from < t && s.to > t }) {
			return false
		}
	}
	return true
}

// estimate is a figure with its interval.
type estimate struct {
	value float64
	stats.Interval
	n int
}

func (e estimate) String() string {
	return fmt.Sprintf("%.3g [%.3g, %.3g]", e.value, e.Lo, e.Hi)
}

// quantile estimates a quantile of a series in time order. One that the sample cannot carry has no value.
func quantile(xs []float64, p float64) estimate {
	if len(xs) < stats.TailSampleSize(p, 0.95) || len(xs) < stats.MinBlocks*resampling.Block {
		return estimate{math.NaN(), stats.Interval{Lo: math.NaN(), Hi: math.NaN()}, len(xs)}
	}
	rank := func(xs []float64) float64 { return stats.NewSample(xs).NearestRank(p) }
	return estimate{rank(xs), stats.BlockBootstrap(xs, rank, resampling), len(xs)}
}

// mean estimates the mean of a series in time order.
func mean(xs []float64) estimate {
	return estimate{stats.Mean(xs), stats.BlockBootstrapMean(xs, resampling), len(xs)}
}

// above tells whether e is proved to be larger than o: 0 lies below the interval of their difference, which is made of the intervals of both
// (the method of variance estimates recovery). That two intervals do not meet would be more than is asked.
func (e estimate) above(o estimate) bool {
	return e.value-o.value > math.Hypot(e.value-e.Lo, o.Hi-o.value)
}

// within decides whether e lies between lo and hi, with proof either way; more says how many more samples would decide.
func (e estimate) within(lo, hi float64) (kind verdict.Kind, more string) {
	switch {
	case e.n < stats.MinBlocks*resampling.Block || math.IsNaN(e.value) || math.IsNaN(e.Lo) || math.IsNaN(e.Hi):
		return verdict.Inconclusive, fmt.Sprintf("%d samples carry no interval", e.n)
	case e.Lo >= lo && e.Hi <= hi:
		return verdict.Pass, ""
	case e.Lo > hi || e.Hi < lo:
		return verdict.Fail, ""
	}
	room, arm := min(math.Abs(e.value-lo), math.Abs(e.value-hi)), max(e.Hi-e.value, e.value-e.Lo)
	if !(room > 0) {
		return verdict.Inconclusive, "the estimate lies on the edge of what is allowed; no number of requests can be named"
	}
	return verdict.Inconclusive, fmt.Sprintf("about %.0f more requests would decide", math.Max(1, float64(e.n)*(arm*arm/(room*room)-1)))
}
