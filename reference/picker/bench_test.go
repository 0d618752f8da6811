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

func newLoad(t testing.TB, bands, flows int, fair flowcontrol.Fairness, backlog bool) *load {
	cfg := Config{
		Flow: flowcontrol.Config{
			TTL:         time.Hour,
			FlowIdle:    time.Hour,
			BandIdle:    time.Hour,
			DefaultBand: flowcontrol.BandConfig{Fairness: fair},
			Detector:    flowcontrol.DetectorConfig{Kind: flowcontrol.Concurrency, MaxConcurrency: 2, Filter: true},
			Ceiling:     flowcontrol.CeilingConfig{Threshold: 1},
		},
		Scheduling: scheduling.Config{Scorers: []scheduling.Scorer{{Kind: scheduling.Queue, Weight: 2}, {Kind: scheduling.KVUtilization, Weight: 2}}},
	}
	l := &load{}
	for i := range bands {
		p := 100 - 10*i
		if i == bands-1 {
			p = 0
		}
		l.bands = append(l.bands, p)
		cfg.Flow.Bands = append(cfg.Flow.Bands, flowcontrol.BandConfig{Priority: p, Fairness: fair})
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
		FairnessID: l.flows[flow], Priority: l.bands[band], Bytes: 2000, Received: l.now,
	}})
}

// open is a cycle at an open gate: the request passes through the queue within its own step.
func (l *load) open(i int) {
	// A stride that visits all flows without being kind to the cache.
	l.arrive(i*7919%len(l.flows), i%len(l.bands))
	l.step(Event{Kind: Finish, ID: l.last})
}

// closed is a cycle at a closed gate: a finish lets one of the backlog go and an arrival of the same flow takes its place.
func (l *load) closed() {
	l.step(Event{Kind: Finish, ID: l.last})
	l.arrive(l.of[int(l.last)%len(l.of)], 0)
}

func BenchmarkArriveDispatchFinish(b *testing.B) {
	for _, fair := range []flowcontrol.Fairness{flowcontrol.RoundRobin, flowcontrol.GlobalStrict} {
		name := map[flowcontrol.Fairness]string{flowcontrol.RoundRobin: "round-robin", flowcontrol.GlobalStrict: "global-strict"}[fair]
		for _, backlog := range []bool{false, true} {
			for _, bands := range []int{1, 8} {
				for _, flows := range []int{10, 1000, 10000} {
					b.Run(fmt.Sprintf("%s/backlog=%v/bands=%d/flows=%d", name, backlog, bands, flows), func(b *testing.B) {
						l := newLoad(b, bands, flows, fair, backlog)
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

// TestSteadyStateAllocatesNothing: queue state is bounded by what is live (FC-GC-07), so a steady state needs no new memory.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, fair := range []flowcontrol.Fairness{flowcontrol.RoundRobin, flowcontrol.GlobalStrict} {
		for _, backlog := range []bool{false, true} {
			l := newLoad(t, 8, 100, fair, backlog)
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
				t.Errorf("fairness %d, backlog %v: %v allocations per request", fair, backlog, n)
			}
		}
	}
}
