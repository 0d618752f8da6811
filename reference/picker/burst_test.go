package picker

import (
	"testing"
	"time"

	"github.com/llm-weir/weir/reference/flowcontrol"
)

// TestBurstsNeverOvershoot: 1,000 bursts at a capacity of four never put a fifth request in flight, in any concurrency mode and under any
// ceiling, and lose none (FC-SAT-12, FC-SAT-14, FC-SAT-22; the declared allowance of this implementation is 0).
func TestBurstsNeverOvershoot(t *testing.T) {
	for _, mode := range []flowcontrol.ConcurrencyMode{flowcontrol.Requests, flowcontrol.Tokens, flowcontrol.Hybrid} {
		for _, kind := range []flowcontrol.CeilingKind{flowcontrol.Static, flowcontrol.Holdback, flowcontrol.SoftReflective} {
			p := mustNew(t, Config{Flow: flowcontrol.Config{
				Bands: []flowcontrol.BandConfig{{Priority: 5, Fairness: flowcontrol.ProgramAware}, {Priority: -1}},
				Detector: flowcontrol.DetectorConfig{Kind: flowcontrol.Concurrency, Mode: mode, MaxConcurrency: 2, MaxTokens: 20,
					EstimateOutput: true, Filter: true},
				Ceiling: flowcontrol.CeilingConfig{Kind: kind, Threshold: 1, Min: 0.5, Max: 1},
			}})
			b := bursts{t: t, p: p}
			b.step(Event{Kind: SetEndpoint, Endpoint: Endpoint{ID: 0}})
			b.step(Event{Kind: SetEndpoint, Endpoint: Endpoint{ID: 1}})
			for i := range 1000 {
				for k := range 1 + i%13 {
					b.id++
					b.step(Event{Kind: Arrive, ID: b.id, Request: Request{FairnessID: string(rune('a' + k%5)), Priority: []int{0, 5, -1}[k%3], Tokens: 10}})
				}
				for range i % 5 {
					if len(b.running) > 0 {
						b.step(Event{Kind: Finish, ID: b.running[0]})
					}
				}
			}
			for len(b.running) > 0 || p.QueueLen() > 0 {
				if len(b.running) == 0 { // only the alternation may hold work back on an idle pool, and it must not
					t.Fatalf("mode %d, ceiling %d: %d wait on an idle pool", mode, kind, p.QueueLen())
				}
				b.step(Event{Kind: Finish, ID: b.running[0]})
			}
			if b.done != int(b.id) {
				t.Errorf("mode %d, ceiling %d: %d of %d dispatched", mode, kind, b.done, b.id)
			}
		}
	}
}

type bursts struct {
	t       *testing.T
	p       *Picker
	now     time.Duration
	id      uint64
	running []uint64
	done    int
	out     []Out
}

func (b *bursts) step(ev Event) {
	if ev.Kind == Finish {
		b.running = b.running[1:]
	}
	b.now += time.Microsecond
	b.out = b.p.Step(b.now, ev, b.out[:0])
	for _, o := range b.out {
		if o.Kind != Dispatch {
			b.t.Fatalf("%+v: %+v", ev, o)
		}
		b.running = append(b.running, o.ID)
		b.done++
	}
	for e := range EndpointID(2) {
		if n := b.p.InFlight(e); n > 2 {
			b.t.Fatalf("%+v: %d in flight on %d", ev, n, e)
		}
	}
}

// TestTokensOvershootByOneRequest: in tokens mode at most the request that crosses the limit exceeds it, however large (FC-SAT-14).
func TestTokensOvershootByOneRequest(t *testing.T) {
	p := mustNew(t, Config{Flow: flowcontrol.Config{
		Detector: flowcontrol.DetectorConfig{Kind: flowcontrol.Concurrency, Mode: flowcontrol.Tokens, MaxTokens: 100},
		Ceiling:  flowcontrol.CeilingConfig{Threshold: 1},
	}})
	p.Step(0, Event{Kind: SetEndpoint}, nil)
	largest := int64(0)
	var running []uint64
	for id := uint64(1); id < 3000; id++ {
		tokens := int64(id * id % 331)
		largest = max(largest, tokens)
		out := p.Step(0, Event{Kind: Arrive, ID: id, Request: Request{Tokens: tokens}}, nil)
		if id%3 > 0 && len(running) > 0 {
			kind := []EventKind{FirstChunk, Finish}[id%2]
			out = p.Step(0, Event{Kind: kind, ID: running[0]}, out)
			running = running[1:]
		}
		for _, o := range out {
			running = append(running, o.ID)
		}
		if n := p.InFlightTokens(0); n >= 100+largest {
			t.Fatalf("%d tokens in flight, the largest request has %d", n, largest)
		}
		if p.QueueLen() > 0 && p.InFlightTokens(0) < 100 {
			t.Fatalf("%d wait although only %d tokens are in flight", p.QueueLen(), p.InFlightTokens(0))
		}
	}
}

// TestAlternationIsLive: at any saturation below 1 whatever the soft-reflective ceilings hold back goes within a period of passes a
// millisecond apart that the machine asks for itself, and no sooner than the period says; at 1 nothing goes and nothing is asked for
// (FC-CEIL-11).
func TestAlternationIsLive(t *testing.T) {
	for permille := 0; permille <= 1000; permille += 5 {
		s := float64(permille) / 1000
		p := mustNew(t, Config{Flow: flowcontrol.Config{
			Bands:    []flowcontrol.BandConfig{{Priority: 5}, {Priority: 1}},
			Detector: flowcontrol.DetectorConfig{QueueDepth: 1000000, KVUtil: 1, Staleness: 24 * time.Hour},
			Ceiling:  flowcontrol.CeilingConfig{Kind: flowcontrol.SoftReflective},
		}})
		p.Step(0, Event{Kind: SetEndpoint}, nil)
		p.Step(0, Event{Kind: Sample, Load: Load{KV: s, HasKV: true, HasWaiting: true, OK: true}}, nil)
		out := p.Step(0, Event{Kind: Arrive, ID: 1}, nil)
		now, ticks := time.Duration(0), 0
		for len(out) == 0 {
			at, ok := p.Deadline()
			if s >= 1 {
				if !ok || at < time.Hour {
					t.Fatalf("saturation %v: a tick is asked for at %v", s, at)
				}
				break
			}
			if !ok || at != now+time.Millisecond || ticks > 1000 {
				t.Fatalf("saturation %v: stuck after %d ticks, next at %v (%v)", s, ticks, at, ok)
			}
			now, ticks = at, ticks+1
			out = p.Step(now, Event{Kind: Tick}, nil)
		}
		period := 1
		if s >= 0.5 && s < 1 {
			period = max(1, int(s/(1-s+1e-9)+0.5))
		}
		if s < 1 && ticks != period-1 {
			t.Errorf("saturation %v: dispatched after %d ticks, want %d", s, ticks, period-1)
		}
		if at, ok := p.Deadline(); s < 1 && ok {
			t.Errorf("saturation %v: a tick is asked for at %v with nothing queued", s, at)
		}
	}
}
