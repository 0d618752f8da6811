package plan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/llm-weir/weir/loadgen/arrival"
	"github.com/llm-weir/weir/loadgen/workload"
)

// Bounds of a compiled plan.
const (
	// MaxRequests bounds the memory of a plan: about 300 bytes each in memory and as JSON.
	MaxRequests = 1 << 20
	// maxPerLoop bounds one closed-loop worker.
	maxPerLoop = 10000
	// minCycle is the shortest mean time from one request of a worker to its next that the number of planned requests covers. A
	// worker whose requests end faster runs out early and the cursor says so.
	minCycle = 5 * time.Millisecond
)

// Compile draws every request of the workload. Each tenant draws from streams of its own, named after it, so that adding, removing
// or changing one tenant leaves the requests of the others as they were.
func Compile(spec workload.Spec, seed uint64) (Plan, error) {
	if err := spec.Validate(); err != nil {
		return Plan{}, err
	}
	p := Plan{Name: spec.Name, Seed: seed, Duration: spec.Duration, Requests: []Request{}}
	for _, t := range spec.Tenants {
		var err error
		if t.Arrival.Process == workload.Closed {
			err = p.addLoops(spec, t)
		} else {
			err = p.addArrivals(spec, t)
		}
		if err != nil {
			return Plan{}, fmt.Errorf("workload %q: tenant %q: %w", spec.Name, t.Name, err)
		}
	}
	slices.SortFunc(p.Requests, func(a, b Request) int { return byTime(&a, &b) })
	return p, nil
}

func (p *Plan) addArrivals(spec workload.Spec, t workload.Tenant) error {
	process := arrival.Process{Kind: t.Arrival.Process, Rate: t.Arrival.Rate, CV: t.Arrival.CV}
	r := arrival.Stream(p.Seed, "tenant/"+t.Name+"/arrival")
	schedule, err := process.Schedule(r, t.End(spec)-t.Start, MaxRequests-len(p.Requests))
	if err != nil {
		return fmt.Errorf("%w: a plan holds at most %d; lower the rate or the duration", err, MaxRequests)
	}
	d := newDrawer(p.Seed, "tenant/"+t.Name, t)
	for i, at := range schedule {
		req := d.request(fmt.Sprintf("%s.%06d", t.Name, i+1))
		req.At = t.Start + at
		p.Requests = append(p.Requests, req)
	}
	return nil
}

func (p *Plan) addLoops(spec workload.Spec, t workload.Tenant) error {
	span := t.End(spec) - t.Start
	perLoop := min(maxPerLoop, int(span/max(t.Arrival.Think, minCycle))+2)
	if perLoop*t.Arrival.Workers > MaxRequests-len(p.Requests) {
		return fmt.Errorf("%w: %d workers need up to %d each and a plan holds at most %d; lower workers or duration, or raise think",
			arrival.ErrLimit, t.Arrival.Workers, perLoop, MaxRequests)
	}
	for w := 1; w <= t.Arrival.Workers; w++ {
		p.Loops = append(p.Loops, Loop{Tenant: t.Name, Think: t.Arrival.Think, Start: t.Start, Stop: t.Stop})
		name := fmt.Sprintf("%s.w%d", t.Name, w)
		d := newDrawer(p.Seed, "tenant/"+t.Name+fmt.Sprintf("/worker/%d", w), t)
		for i := range perLoop {
			req := d.request(fmt.Sprintf("%s.%06d", name, i+1))
			req.At = t.Start
			req.Loop = len(p.Loops)
			p.Requests = append(p.Requests, req)
		}
	}
	return nil
}

// drawer draws the requests of one tenant or worker, one stream per property: a change of one distribution moves nothing else.
type drawer struct {
	t                      workload.Tenant
	prompt, output, cancel *rand.Rand
}

func newDrawer(seed uint64, name string, t workload.Tenant) drawer {
	return drawer{t, arrival.Stream(seed, name+"/prompt"), arrival.Stream(seed, name+"/output"), arrival.Stream(seed, name+"/cancel")}
}

func (d drawer) request(id string) Request {
	t := d.t
	req := Request{
		ID: id, Tenant: t.Name, FairnessID: t.FairnessID, Objective: t.Objective, Stream: t.Stream, Path: t.Path,
		PromptTokens: draw(d.prompt, t.Prompt), MaxTokens: t.MaxTokens,
	}
	if req.Path == "" {
		req.Path = workload.PathCompletions
	}
	if req.MaxTokens == 0 {
		req.MaxTokens = t.Output.Longest()
	}
	req.OutputTokens = min(draw(d.output, t.Output), req.MaxTokens)
	// Drawn even for tenants that never cancel, so that turning cancellation on does not move the draws after it.
	if d.cancel.Float64() < t.CancelFraction {
		req.CancelAfter = t.CancelAfter
	}
	return req
}

// draw draws one length of a valid distribution.
func draw(r *rand.Rand, l workload.Lengths) int {
	switch l.Distribution {
	case workload.Uniform:
		return l.Min + r.IntN(l.Max-l.Min+1)
	case workload.Lognormal:
		variance := math.Log1p(l.CV * l.CV)
		x := math.Exp(math.Log(l.Mean) - variance/2 + math.Sqrt(variance)*r.NormFloat64())
		return int(min(max(math.Round(x), float64(l.Min)), float64(l.Max)))
	}
	return l.Value
}
