package picker

import (
	"fmt"
	"testing"
	"time"

	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/scheduling"
)

// standing is the backlog at a closed gate, the same for any number of flows, so that the flows are what is compared.
const standing = 80000

// load is a steady state: every cycle brings one request in, sends one to an endpoint and ends one.
type load struct {
	p     *Picker
	now   time.Duration
	out   []Out
	next  uint64
	flows []string
	bands []int
	of    []int  // flow index of a live request, by id modulo len
	last  uint64 // in flight
}

// policies is everything that may be chosen by name.
type policies struct {
	fair    flowcontrol.Fairness
	order   flowcontrol.Ordering
	mode    flowcontrol.ConcurrencyMode
	ceiling flowcontrol.CeilingKind
	scorer  scheduling.ScorerKind
	limit   int // requests per endpoint
}

// allPolicies varies one policy at a time around round robin, first come first served, requests, a static ceiling.
func allPolicies() (names []string, all []policies) {
	add := func(name string, edit func(*policies)) {
		p := policies{fair: flowcontrol.RoundRobin, limit: 2}
		edit(&p)
		names, all = append(names, name), append(all, p)
	}
	add("round-robin", func(*policies) {})
	add("global-strict", func(p *policies) { p.fair = flowcontrol.GlobalStrict })
	add("program-aware", func(p *policies) { p.fair = flowcontrol.ProgramAware })
	add("edf", func(p *policies) { p.order = flowcontrol.EDF })
	add("slo-deadline", func(p *policies) { p.order = flowcontrol.SLODeadline })
	add("tokens", func(p *policies) { p.mode = flowcontrol.Tokens })
	add("hybrid", func(p *policies) { p.mode = flowcontrol.Hybrid })
	add("holdback", func(p *policies) { p.ceiling = flowcontrol.Holdback })
	add("soft-reflective", func(p *policies) { p.ceiling = flowcontrol.SoftReflective })
	add("prefix-cache", func(p *policies) { p.scorer = scheduling.PrefixCache })
	add("lora-affinity", func(p *policies) { p.scorer = scheduling.LoRAAffinity })
	return names, all
}

func newLoad(t testing.TB, bands, flows int, pol policies, backlog bool) *load {
	fair := pol.fair
	cfg := Config{
		Flow: flowcontrol.Config{
			TTL:         time.Hour,
			FlowIdle:    time.Hour,
			BandIdle:    time.Hour,
			DefaultBand: flowcontrol.BandConfig{Fairness: fair, Ordering: pol.order},
			Detector: flowcontrol.DetectorConfig{Kind: flowcontrol.Concurrency, Mode: pol.mode, MaxConcurrency: pol.limit, MaxTokens: 500 * int64(pol.limit),
				Filter: true, FilterFailOpen: true},
			Ceiling:      flowcontrol.CeilingConfig{Kind: pol.ceiling, Threshold: 1, Min: 0.9, Max: 1},
			ProgramAware: flowcontrol.ProgramAwareConfig{WeightService: 0.8, WeightHeadWait: 0.2, HalfLife: time.Minute, IdleTTL: time.Hour},
		},
		Scheduling: scheduling.Config{Scorers: []scheduling.Scorer{{Kind: scheduling.Queue, Weight: 2}, {Kind: scheduling.KVUtilization, Weight: 2},
			{Kind: pol.scorer, Weight: 3}}, Prefix: scheduling.PrefixConfig{MaxBlocks: 32, LRUCapacity: 31250}},
	}
	l := &load{}
	for i := range bands {
		p := 100 - 10*i
		if i == bands-1 {
			p = 0
		}
		l.bands = append(l.bands, p)
		cfg.Flow.Bands = append(cfg.Flow.Bands, flowcontrol.BandConfig{Priority: p, Fairness: fair, Ordering: pol.order})
	}
	for i := range flows {
		l.flows = append(l.flows, fmt.Sprintf("tenant-%05d", i))
	}
	l.of = make([]int, 4*standing)
	var err error
	if l.p, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	l.step(Event{Kind: SetEndpoint, Endpoint: Endpoint{ID: 0, Address: "127.0.0.1:8000"}})
	if backlog {
		l.arrive(0, 0)
		l.arrive(0, 0)
		for range standing / (flows * bands) {
			for i := range flows {
				for b := range bands {
					l.arrive(i, b)
				}
			}
		}
	} else {
		// Every flow is known before the first measured cycle, as it is in a steady state.
		for i := range flows * bands {
			l.open(i)
		}
	}
	return l
}

func (l *load) step(ev Event) {
	l.now += time.Microsecond
	l.out = l.p.Step(l.now, ev, l.out[:0])
	for i := range l.out {
		if l.out[i].Kind == Dispatch {
			l.last = l.out[i].ID
		}
	}
}

func (l *load) arrive(flow, band int) {
	l.next++
	l.of[int(l.next)%len(l.of)] = flow
	l.step(Event{Kind: Arrive, ID: l.next, Request: Request{
		FairnessID: l.flows[flow], Priority: l.bands[band], Bytes: 2000, Received: l.now, Tokens: 500, Model: "adapter",
		TTFT: time.Duration(l.next%977) * time.Millisecond, HasTTFT: true, Prefix: prompt[:],
	}})
}

// prompt is 500 tokens in blocks of 16, the first half of which every request has in common.
var prompt = func() (p [31]uint64) {
	for i := range p {
		p[i] = uint64(i + 1)
	}
	return p
}()

func (l *load) finish() {
	l.step(Event{Kind: Finish, ID: l.last, Usage: Usage{Prompt: 500, Completion: int64(l.last % 400)}})
}

// open is a cycle at an open gate: the request passes through the queue within its own step.
func (l *load) open(i int) {
	// A stride that visits all flows without being kind to the cache.
	l.arrive(i*7919%len(l.flows), i%len(l.bands))
	l.finish()
}

// closed is a cycle at a closed gate: a finish lets one of the backlog go and an arrival of the same flow takes its place.
func (l *load) closed() {
	l.finish()
	l.arrive(l.of[int(l.last)%len(l.of)], 0)
}

func BenchmarkArriveDispatchFinish(b *testing.B) {
	names, all := allPolicies()
	for k, pol := range all {
		for _, backlog := range []bool{false, true} {
			for _, flows := range []int{10, 1000, 10000} {
				for _, bands := range []int{1, 8} {
					if bands > 1 && k > 2 {
						continue // what bands cost is seen with the fairness policies
					}
					b.Run(fmt.Sprintf("%s/backlog=%v/bands=%d/flows=%d", names[k], backlog, bands, flows), func(b *testing.B) {
						l := newLoad(b, bands, flows, pol, backlog)
						b.ReportAllocs()
						i := 0
						for b.Loop() {
							if backlog {
								l.closed()
							} else {
								l.open(i)
								i++
							}
						}
					})
				}
			}
		}
	}
}

// BenchmarkDrain is a backlog of 10,000 requests on an empty pool that leaves when capacity appears: 16 endpoints, one after the other,
// with just enough room for all of it.
func BenchmarkDrain(b *testing.B) {
	const backlog, endpoints = 10000, 16
	names, all := allPolicies()
	for k, pol := range all {
		for _, flows := range []int{1, 1000, 10000} {
			b.Run(fmt.Sprintf("%s/flows=%d", names[k], flows), func(b *testing.B) {
				pol.limit = backlog / endpoints
				l := newLoad(b, 1, flows, pol, false)
				dispatched, drains := 0, 0
				for b.Loop() {
					b.StopTimer()
					for e := range EndpointID(endpoints) {
						l.step(Event{Kind: RemoveEndpoint, Endpoint: Endpoint{ID: e}})
					}
					first := l.next + 1
					for i := range backlog {
						l.arrive(i%flows, 0)
					}
					b.StartTimer()
					for e := range EndpointID(endpoints) {
						l.step(Event{Kind: SetEndpoint, Endpoint: Endpoint{ID: e}})
						dispatched += len(l.out)
					}
					b.StopTimer()
					for id := first; id <= l.next; id++ {
						l.step(Event{Kind: Finish, ID: id})
					}
					drains++
					b.StartTimer()
				}
				if dispatched != drains*backlog {
					b.Fatalf("%d dispatched in %d drains", dispatched, drains)
				}
				b.ReportMetric(float64(dispatched)/b.Elapsed().Seconds(), "dispatches/s")
			})
		}
	}
}

// BenchmarkUtilization is a cycle under the detector that looks at every endpoint, with the driver's question for the deadline.
func BenchmarkUtilization(b *testing.B) {
	for _, endpoints := range []int{2, 16, 128} {
		b.Run(fmt.Sprintf("endpoints=%d", endpoints), func(b *testing.B) {
			cfg := Config{
				Flow: flowcontrol.Config{
					TTL: time.Hour, Ceiling: flowcontrol.CeilingConfig{Threshold: 1},
					Detector: flowcontrol.DetectorConfig{QueueDepth: 5, KVUtil: 0.8, Staleness: time.Hour, Filter: true},
				},
				Scheduling: scheduling.Config{Scorers: []scheduling.Scorer{{Kind: scheduling.Queue, Weight: 2}, {Kind: scheduling.KVUtilization, Weight: 2}}},
			}
			p := mustNew(b, cfg)
			for i := range endpoints {
				ep := Endpoint{ID: EndpointID(i), Address: fmt.Sprint("127.0.0.1:", 8000+i)}
				p.Step(0, Event{Kind: SetEndpoint, Endpoint: ep}, nil)
				p.Step(0, Event{Kind: Sample, Endpoint: ep, Load: Load{Waiting: float64(i % 3), KV: 0.3, HasWaiting: true, HasKV: true, OK: true}}, nil)
			}
			var out []Out
			id := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				id++
				out = p.Step(0, Event{Kind: Arrive, ID: id, Request: Request{FairnessID: "a", Bytes: 2000}}, out[:0])
				p.Deadline()
				out = p.Step(0, Event{Kind: Finish, ID: id}, out[:0])
				p.Deadline()
			}
		})
	}
}

// TestSteadyStateAllocatesNothing: queue state is bounded by what is live (FC-GC-07), so a steady state needs no new memory, whatever
// the policies.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	names, all := allPolicies()
	for k, pol := range all {
		for _, backlog := range []bool{false, true} {
			l := newLoad(t, 8, 100, pol, backlog)
			i := 0
			cycle := func() {
				if backlog {
					l.closed()
				} else {
					l.open(i)
					i++
				}
			}
			for range 1000 {
				cycle()
			}
			if n := testing.AllocsPerRun(2000, cycle); n != 0 {
				t.Errorf("%s, backlog %v: %v allocations per request", names[k], backlog, n)
			}
		}
	}
}

// TestEvictionAllocatesNothing: neither do evictions and their confirmation times, asked for or not.
func TestEvictionAllocatesNothing(t *testing.T) {
	p := mustNew(t, Config{Flow: flowcontrol.Config{
		Eviction: true, Bands: []flowcontrol.BandConfig{{Priority: -1}},
		Detector: flowcontrol.DetectorConfig{Kind: flowcontrol.Concurrency, MaxConcurrency: 1},
		Ceiling:  flowcontrol.CeilingConfig{Threshold: 1},
	}})
	p.Step(0, Event{Kind: SetEndpoint}, nil)
	var out []Out
	var took []time.Duration
	now, id := time.Duration(0), uint64(0)
	cycle := func() {
		now += time.Second
		id += 2
		out = p.Step(now, Event{Kind: Arrive, ID: id, Request: Request{Priority: -1}}, out[:0])
		out = p.Step(now, Event{Kind: Arrive, ID: id + 1}, out)
		out = p.Step(now+time.Millisecond, Event{Kind: Finish, ID: id}, out)
		out = p.Step(now+time.Millisecond, Event{Kind: Finish, ID: id + 1}, out)
		if len(out) != 3 {
			t.Fatal(out)
		}
		if id%4 == 0 && id > 2000 {
			took = p.Confirmations(took[:0])
		}
	}
	for range 200 {
		cycle()
	}
	if n := testing.AllocsPerRun(2000, cycle); n != 0 {
		t.Errorf("%v allocations per eviction", n)
	}
	if len(took) == 0 || took[0] != time.Millisecond {
		t.Errorf("confirmed after %v", took)
	}
}
