package processor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
)

// barrierLimit is the limit of a barrier that names none.
const barrierLimit = 10 * time.Second

// play plays a script. A barrier that is not reached is evidence; an error is a harness that could not go on.
func (r *rig) play(ctx context.Context, steps []sut.AsyncStep) error {
	take, stop := context.WithCancel(ctx)
	r.stop = stop
	for i, s := range steps {
		if ctx.Err() != nil {
			return fmt.Errorf("step %d (%s %s): %w", i, s.Op, s.Mark, context.Cause(ctx))
		}
		rec := evidence.Step{Op: string(s.Op), Mark: s.Mark, Start: int64(r.clock.Now()), OK: true, IDs: s.IDs}
		err := r.step(ctx, take, s, &rec)
		rec.End = int64(r.clock.Now())
		r.out.Step(rec)
		if err != nil {
			return fmt.Errorf("step %d (%s %s): %w", i, s.Op, s.Mark, err)
		}
	}
	return nil
}

func limit(s sut.AsyncStep) time.Duration {
	if s.Limit > 0 {
		return s.Limit
	}
	return barrierLimit
}

// barrier waits and notes a barrier that was not reached.
func (r *rig) barrier(ctx context.Context, s sut.AsyncStep, rec *evidence.Step, cond func() bool, missing func() string) {
	if !r.await(ctx, limit(s), cond) {
		rec.OK, rec.Detail = false, missing()
	}
}

// idle is how long work is waited for while no processor runs: what one has sent may be on its way.
const idle = 3 * time.Second

// reach waits for what only the work of a processor can bring about.
func (r *rig) reach(ctx context.Context, limit time.Duration, cond func() bool) bool {
	ran, reached := r.clock.Now(), false
	r.await(ctx, limit, func() bool {
		reached = cond()
		if r.running() {
			ran = r.clock.Now()
		}
		return reached || r.clock.Now()-ran > idle
	})
	return reached
}

// work is a barrier of such work.
func (r *rig) work(ctx context.Context, s sut.AsyncStep, rec *evidence.Step, cond func() bool, missing func() string) {
	if !r.reach(ctx, limit(s), cond) {
		rec.OK, rec.Detail = false, missing()
	}
}

func (r *rig) step(ctx, take context.Context, s sut.AsyncStep, rec *evidence.Step) error {
	switch s.Op {
	case sut.AsyncStart, sut.AsyncSignal, sut.AsyncEnded, sut.AsyncTry, sut.AsyncFile, sut.AsyncOutput, sut.AsyncScrape, sut.AsyncWatch, sut.AsyncAsk, sut.AsyncGet, sut.AsyncLoad:
		return r.processorStep(ctx, take, s, rec)
	case sut.AsyncAnswer:
		r.up.answer(s.Answers)
	case sut.AsyncRelease:
		rec.IDs = r.up.release(s.IDs, s.Upstream, s.Count)
		if s.Count > 0 && len(rec.IDs) < s.Count {
			rec.OK, rec.Detail = false, fmt.Sprintf("%d of %d were held", len(rec.IDs), s.Count)
		}
	case sut.AsyncArrive:
		r.work(ctx, s, rec, func() bool { return r.up.arrived(s.IDs, s.Upstream) >= s.Count }, func() string {
			return fmt.Sprintf("%d of %d attempts arrived", r.up.arrived(s.IDs, s.Upstream), s.Count)
		})
	case sut.AsyncHeld:
		r.work(ctx, s, rec, func() bool { return r.up.heldNow(s.IDs, s.Upstream) >= s.Count }, func() string {
			return fmt.Sprintf("%d of %d are held", r.up.heldNow(s.IDs, s.Upstream), s.Count)
		})
		r.await(ctx, s.Quiet, never)
	case sut.AsyncStep1:
		r.oneByOne(ctx, s, rec)
	case sut.AsyncQuiet:
		r.await(ctx, s.Quiet, never)
	case sut.AsyncUpstream:
		return r.up.toggle(s.Upstream, s.Mode == "up")
	case sut.AsyncSeries, sut.AsyncPage:
		return r.page1(ctx, s)
	default:
		return r.brokerStep(ctx, take, s, rec)
	}
	return nil
}

func never() bool { return false }

// page1 changes what gates read.
func (r *rig) page1(ctx context.Context, s sut.AsyncStep) error {
	token, src := "PROM", &r.prom
	if s.Op == sut.AsyncPage {
		token, src = "PAGE", &r.page
	}
	if _, err := r.token(ctx, nil, token); err != nil {
		return err
	}
	return (*src).set(ctx, s.Text, s.Mode == "error500")
}

// oneByOne releases held requests and waits for the next arrival after each.
func (r *rig) oneByOne(ctx context.Context, s sut.AsyncStep, rec *evidence.Step) {
	for range s.Count {
		before := r.up.arrived(s.IDs, s.Upstream)
		ids := r.up.release(s.IDs, s.Upstream, 1)
		rec.IDs = append(rec.IDs, ids...)
		if len(ids) == 0 || !r.await(ctx, limit(s), func() bool { return r.up.arrived(s.IDs, s.Upstream) > before }) {
			rec.OK, rec.Detail = false, fmt.Sprintf("after %d releases no further request arrived", len(rec.IDs))
			return
		}
	}
}

func (r *rig) processorStep(ctx, take context.Context, s sut.AsyncStep, rec *evidence.Step) error {
	p, err := r.program(s.Who)
	if err != nil {
		return err
	}
	switch s.Op {
	case sut.AsyncStart:
		return r.start(ctx, p, s, rec)
	case sut.AsyncSignal:
		return p.signal(s.Signal)
	case sut.AsyncEnded:
		begin := r.clock.Now()
		r.barrier(ctx, s, rec, p.gone, func() string { return "it has not ended" })
		r.out.Process(p.record(s.Mark, true, r.clock.Now()-begin))
	case sut.AsyncTry:
		return r.tries(ctx, s)
	case sut.AsyncFile:
		err := r.file(ctx, p, s.List, s.Text)
		p.printed = len(p.output())
		return err
	case sut.AsyncOutput:
		r.barrier(ctx, s, rec, func() bool { rec.Detail = p.says(s.Names); return rec.Detail != "" }, func() string { return "it has not printed that" })
	case sut.AsyncScrape:
		return r.scrape(ctx, p, s, rec)
	case sut.AsyncWatch:
		return r.watch(p)
	case sut.AsyncAsk:
		return r.ask(ctx, s, rec)
	case sut.AsyncLoad:
		return r.fault(ctx, take, p, s, rec)
	default: // AsyncGet
		url, err := r.expand(ctx, p, s.Text)
		if err != nil {
			return err
		}
		ask := func() bool {
			code, body, err := get(ctx, url)
			if rec.Detail = fmt.Sprintf("%d %s", code, body); err != nil {
				rec.Detail = "no answer: " + err.Error()
			}
			if len(rec.Detail) > textLimit {
				rec.Detail = rec.Detail[:textLimit]
			}
			return s.Mode == "" || strings.HasPrefix(rec.Detail, s.Mode)
		}
		rec.OK = r.await(ctx, limit(s), ask)
	}
	return nil
}

func (r *rig) start(ctx context.Context, p *program, s sut.AsyncStep, rec *evidence.Step) error {
	setup := p.setup
	if s.Setup != nil {
		setup = *s.Setup
	}
	if err := r.launch(ctx, p, setup); err != nil {
		return err
	}
	want := s.Mode
	if want == "" {
		want = "ready"
	}
	state := ""
	if s.Limit == 0 {
		s.Limit = startLimit
	}
	ok := r.await(ctx, s.Limit, func() bool {
		if p.gone() {
			state = "ended"
			return true
		}
		state = p.state(ctx)
		return state == want
	})
	rec.OK = ok && state == want
	if !rec.OK {
		rec.Detail = fmt.Sprintf("the processor is %q, not %q: %s", state, want, p.record("", false, 0).Text)
	}
	return nil
}

// parallelTries is how many processors a matrix starts at a time.
const parallelTries = 4

func (r *rig) tries(ctx context.Context, s sut.AsyncStep) error {
	var group sync.WaitGroup
	slots := make(chan struct{}, parallelTries)
	errs := make([]error, len(s.Tries))
	records := make([]evidence.Process, len(s.Tries))
	programs := make([]*program, len(s.Tries))
	for i, t := range s.Tries { // all before the first one is started: tokens make what they name, which is not for several at a time
		r.trials++
		var err error
		if programs[i], err = r.program("try-" + strconv.Itoa(r.trials)); err != nil {
			return err
		}
		if err := r.make(ctx, programs[i], t.Setup); err != nil {
			return fmt.Errorf("case %q: %w", t.Case, err)
		}
	}
	for i, t := range s.Tries {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			records[i], errs[i] = r.try(ctx, t, programs[i])
		})
	}
	group.Wait()
	for i := range s.Tries {
		if errs[i] != nil {
			return fmt.Errorf("case %q: %w", s.Tries[i].Case, errs[i])
		}
		r.out.Process(records[i])
	}
	return nil
}

// make makes whatever the tokens of a setup name.
func (r *rig) make(ctx context.Context, p *program, s sut.AsyncSetup) error {
	texts := slices.Concat([]string{s.Config}, s.Flags, slices.Collect(maps.Values(s.Files)), slices.Collect(maps.Values(s.Env)))
	_, err := r.expandAll(ctx, p, texts)
	return err
}

// scrape reads a metrics page into samples.
func (r *rig) scrape(ctx context.Context, p *program, s sut.AsyncStep, rec *evidence.Step) error {
	var samples []evidence.Sample
	var problem string
	read := func() bool {
		code, body, err := get(ctx, fmt.Sprintf("http://127.0.0.1:%d/metrics", p.metrics))
		if err != nil || code != 200 {
			problem = fmt.Sprintf("the metrics page: status %d, %v", code, err)
			return false
		}
		at := int64(r.clock.Now())
		samples, err = parse(body)
		if err != nil {
			problem = err.Error()
			return false
		}
		for i := range samples {
			samples[i].At, samples[i].Mark, samples[i].Source = at, s.Mark, p.name
		}
		if s.Until != nil && !shows(samples, *s.Until) {
			problem = fmt.Sprintf("it does not show %s %v in [%g, %g]", s.Until.Name, s.Until.Labels, s.Until.Min, s.Until.Max)
			return false
		}
		problem = ""
		return true
	}
	if !r.await(ctx, limit(s), func() bool {
		return read() || s.Until == nil && problem != "" && !strings.Contains(problem, "status 0")
	}) || problem != "" {
		rec.OK, rec.Detail = false, problem
	}
	for _, x := range samples {
		r.out.Sample(x)
	}
	return nil
}

// MetricPrefix begins the name of every metric of a processor.
const MetricPrefix = "llm_d_async_"

func shows(samples []evidence.Sample, v sut.AsyncValue) bool {
	for _, x := range samples {
		ok := x.Name == MetricPrefix+v.Name && x.Value >= v.Min && x.Value <= v.Max
		for k, want := range v.Labels {
			ok = ok && x.Labels[k] == want
		}
		if ok {
			return true
		}
	}
	return false
}

func parse(body string) ([]evidence.Sample, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("metrics page: %w", err)
	}
	var out []evidence.Sample
	for name, f := range families {
		if !strings.HasPrefix(name, MetricPrefix) {
			continue
		}
		kind := strings.ToLower(f.GetType().String())
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			add := func(name string, v float64, le string) {
				own := labels
				if le != "" {
					own = map[string]string{"le": le}
					for k, v := range labels {
						own[k] = v
					}
				}
				out = append(out, evidence.Sample{Name: name, Type: kind, Labels: own, Value: v})
			}
			switch {
			case m.Histogram != nil:
				h := m.GetHistogram()
				add(name+"_sum", h.GetSampleSum(), "")
				add(name+"_count", float64(h.GetSampleCount()), "")
				for _, b := range h.GetBucket() {
					add(name+"_bucket", float64(b.GetCumulativeCount()), strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64))
				}
			case m.Counter != nil:
				add(name, m.GetCounter().GetValue(), "")
			case m.Gauge != nil:
				add(name, m.GetGauge().GetValue(), "")
			case m.Untyped != nil:
				add(name, m.GetUntyped().GetValue(), "")
			}
		}
	}
	for i := range out {
		if math.IsNaN(out[i].Value) || math.IsInf(out[i].Value, 0) { // no JSON numbers
			out[i].Value = math.MaxFloat64
		}
	}
	return out, nil
}

// fault is one round: after a number of results, drawn below Count, the processor gets the signal, and is started again once it has ended.
func (r *rig) fault(ctx, _ context.Context, p *program, s sut.AsyncStep, rec *evidence.Step) error {
	before := r.taken(s.IDs)
	rng := rand.New(rand.NewPCG(uint64(s.Count), uint64(before)))
	n := 1 + rng.IntN(max(1, s.Count))
	if !r.reach(ctx, limit(s), func() bool { return r.taken(s.IDs) >= before+n }) {
		rec.OK, rec.Detail = false, fmt.Sprintf("%d results did not come", n)
		return nil
	}
	held := r.up.inside()
	if err := p.signal(s.Signal); err != nil {
		return err
	}
	begin := r.clock.Now()
	ended := r.await(ctx, limit(s), p.gone)
	r.out.Process(p.record(s.Mark, true, r.clock.Now()-begin))
	rec.Detail = fmt.Sprintf("%d in flight", held)
	rec.OK = ended && held > 0
	if !ended {
		rec.Detail += ", and it did not end"
		return nil
	}
	return r.start(ctx, p, sut.AsyncStep{}, &evidence.Step{})
}

// inside counts the requests that upstreams are answering.
func (u *upstreams) inside() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for _, o := range u.attempts {
		if o.Attempt.End == evidence.Never {
			n++
		}
	}
	return n
}

// take records one result.
func (r *rig) take(list string, raw []byte) {
	var v struct {
		ID      string `json:"id"`
		Status  int    `json:"status_code"`
		Code    string `json:"error_code"`
		Message string `json:"error_message"`
		Payload string `json:"payload"`
	}
	_ = json.Unmarshal(raw, &v) // what is no result is seen as one without an id
	text := strings.ToValidUTF8(string(raw), "\ufffd")
	if len(text) > bodyLimit {
		text = text[:bodyLimit]
	}
	if len(v.Payload) > bodyLimit {
		v.Payload = v.Payload[:bodyLimit]
	}
	r.out.Observe(evidence.Observation{At: int64(r.clock.Now()), Result: &evidence.FinalResult{List: list, ID: v.ID, Status: v.Status, Code: v.Code, Message: v.Message,
		Payload: strings.ToValidUTF8(v.Payload, "\ufffd"), Raw: text}})
	r.mu.Lock()
	r.results[v.ID]++
	r.mu.Unlock()
	r.alive()
}

// taken counts the results of some ids.
func (r *rig) taken(ids []string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for id, k := range r.results {
		if evidence.Among(ids, id) {
			n += k
		}
	}
	return n
}

// listen takes results out of a list from now on.
func (r *rig) listen(take context.Context, s sut.AsyncStep) error {
	client := r.brokers[0].direct
	switch s.Mode {
	case "pubsub":
		if _, err := r.pubsub(take); err != nil {
			return err
		}
		r.topics.listen(take, s.List, func(raw []byte) { r.take(s.List, raw) })
	case "channel":
		sub := client.Subscribe(take, s.List)
		if _, err := sub.Receive(take); err != nil { // the confirmation: what is published from now on is heard
			return fmt.Errorf("channel %s: %w", s.List, err)
		}
		r.tasks.Go(func() {
			defer func() { _ = sub.Close() }()
			for {
				m, err := sub.ReceiveMessage(take)
				if err != nil {
					return
				}
				r.take(s.List, []byte(m.Payload))
			}
		})
	default:
		if s.Mode == "second" {
			client = r.brokers[1].direct
		}
		r.tasks.Go(func() {
			for take.Err() == nil {
				v, err := client.RPop(take, s.List).Bytes()
				if err == nil {
					r.take(s.List, v)
					continue
				}
				pause(take)
			}
		})
	}
	return nil
}
