package engine

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"
)

const ms = float64(time.Millisecond)

// small is a server with round numbers: a decode step of one sequence takes 10 ms.
func small() Config {
	return Config{
		MaxNumSeqs: 64, MaxNumBatchedTokens: 512, BlockSize: 16, NumBlocks: 1025, MaxModelLen: 4096,
		Step: StepTime{Base: 2 * ms, PerSeq: 0.05 * ms, Weights: 8 * ms, PerToken: 0.05 * ms, PerContext: 50, PrefillAttention: 2},
	}
}

func mustNew(t testing.TB, c Config) *Engine {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

type arrival struct {
	at time.Duration
	ev Event
}

// drive feeds arrivals (in order of time) at their instants, ticks at every deadline, and calls seen after each call of Step.
func drive(e *Engine, arrivals []arrival, seen func(now time.Duration, outs []Out)) {
	var outs []Out
	for len(arrivals) > 0 || stepping(e) {
		end, running := e.Deadline()
		if len(arrivals) > 0 && (!running || arrivals[0].at <= end) {
			outs = e.Step(arrivals[0].at, arrivals[0].ev, outs[:0])
			seen(arrivals[0].at, outs)
			arrivals = arrivals[1:]
			continue
		}
		outs = e.Step(end, Event{}, outs[:0])
		seen(end, outs)
	}
}

func stepping(e *Engine) bool { _, ok := e.Deadline(); return ok }

func every(gap time.Duration, n, prompt, output int) []arrival {
	a := make([]arrival, n)
	for i := range a {
		a[i] = arrival{time.Duration(i) * gap, Event{Kind: Admit, ID: uint64(i + 1), PromptTokens: prompt, MaxTokens: output}}
	}
	return a
}

// Acceptance test 1: mean running + waiting = rate x mean time in system, from the engine's own numbers.
func TestLittlesLaw(t *testing.T) {
	e := mustNew(t, small())
	arrivals := every(13*time.Millisecond, 400, 200, 50)
	var area, inSystem float64
	var last, end time.Duration
	level := 0
	drive(e, arrivals, func(now time.Duration, outs []Out) {
		area += float64(level) * float64(now-last)
		s := e.Stats()
		level, last = s.Running+s.Waiting, now
		for _, o := range outs {
			if o.Kind == Finished {
				inSystem += float64(o.At - arrivals[o.ID-1].at)
				end = o.At
			}
		}
	})
	mean := area / float64(end)
	want := float64(len(arrivals)) / float64(end) * (inSystem / float64(len(arrivals)))
	if math.Abs(mean-want) > 0.02*want {
		t.Errorf("mean in system %.3f, rate x time in system %.3f: differ by more than 2%%", mean, want)
	}
	if mean < 5 {
		t.Errorf("mean in system is %.3f: the test put no load on the engine", mean)
	}
}

// Acceptance test 2: beyond capacity throughput is flat and the queue takes the rest, without a refusal.
func TestKnee(t *testing.T) {
	run := func(gap time.Duration) (tokensPerSec float64, early, late time.Duration) {
		e := mustNew(t, small())
		arrivals := every(gap, 600, 200, 50)
		ttft := make([]time.Duration, len(arrivals)+1)
		var end time.Duration
		drive(e, arrivals, func(_ time.Duration, outs []Out) {
			for _, o := range outs {
				switch o.Kind {
				case FirstToken:
					ttft[o.ID] = o.At - arrivals[o.ID-1].at
				case Refused:
					t.Errorf("request %d refused", o.ID)
				}
				end = o.At
			}
		})
		return float64(e.Stats().GenerationTokens) / end.Seconds(), ttft[300], ttft[600]
	}
	below, _, calm := run(100 * time.Millisecond)
	at2, early2, late2 := run(5 * time.Millisecond)
	at4, early4, late4 := run(2500 * time.Microsecond)
	if calm > 100*time.Millisecond {
		t.Errorf("TTFT below capacity is %v", calm)
	}
	if at2 < 2*below || math.Abs(at4-at2) > 0.05*at2 {
		t.Errorf("throughput %.0f below, %.0f and %.0f tokens/s beyond capacity: not flat", below, at2, at4)
	}
	for _, c := range [][2]time.Duration{{early2, late2}, {early4, late4}} {
		if r := float64(c[1]) / float64(c[0]); r < 1.7 || r > 2.3 {
			t.Errorf("TTFT of request 300 is %v, of 600 %v: growth is not linear", c[0], c[1])
		}
	}
}

// Acceptance test 3: one long prompt among 64 decoders; every step that carries a chunk of it lasts what the formula says.
func TestDecodeInterference(t *testing.T) {
	c := small()
	c.MaxNumSeqs, c.NumBlocks, c.MaxModelLen = 128, 4097, 16384
	e := mustNew(t, c)
	for id := uint64(1); id <= 64; id++ {
		e.Step(0, Event{Kind: Admit, ID: id, PromptTokens: 4, MaxTokens: 1000}, nil)
	}
	for range 10 {
		end, _ := e.Deadline()
		e.Step(end, Event{}, nil)
	}
	start, _ := e.Deadline()
	e.Step(start, Event{Kind: Admit, ID: 99, PromptTokens: 8192, MaxTokens: 10}, nil)
	at, computed := start, 0
	for computed < 8192 {
		end, _ := e.Deadline()
		b := e.Stats().LastBatch
		chunk := min(512-64, 8192-computed)
		q := float64(chunk) * (float64(computed) + float64(chunk)/2)
		if b.Tokens != 64+chunk || b.Seqs != 65 || b.Quadratic != q {
			t.Fatalf("batch %+v, want 64 decoders and a chunk of %d after %d", b, chunk, computed)
		}
		want := time.Duration(2*ms + 0.05*ms*65 + max(8*ms, 0.05*ms*float64(b.Tokens)) + 50*float64(b.Context) + 2*q)
		if d := end - at - want; d < -2 || d > 2 {
			t.Fatalf("step took %v, the formula says %v", end-at, want)
		}
		computed += chunk
		at = end
		for _, o := range e.Step(end, Event{}, nil) {
			if o.ID == 99 && computed < 8192 {
				t.Fatalf("token before the prompt was computed: %+v", o)
			}
		}
	}
}

// Acceptance test 4: two growing sequences cannot coexist; the later one is the victim, recomputed, and all tokens still come once.
func TestPreemption(t *testing.T) {
	c := small()
	c.NumBlocks, c.MaxModelLen = 11, 160
	e := mustNew(t, c)
	next := map[uint64]int{}
	var preempted []Out
	var order []uint64
	drive(e, []arrival{
		{0, Event{Kind: Admit, ID: 1, PromptTokens: 60, MaxTokens: 60}},
		{0, Event{Kind: Admit, ID: 2, PromptTokens: 60, MaxTokens: 60}},
	}, func(_ time.Duration, outs []Out) {
		for _, o := range outs {
			switch o.Kind {
			case FirstToken, Token:
				if next[o.ID]++; next[o.ID] != o.Tokens {
					t.Fatalf("token %d of request %d, want %d", o.Tokens, o.ID, next[o.ID])
				}
			case Preempted:
				preempted = append(preempted, o)
				if s := e.Stats(); s.Waiting != 1 || s.Running != 1 {
					t.Errorf("after the preemption: %+v", s)
				}
			case Finished:
				order = append(order, o.ID)
			}
		}
	})
	if len(preempted) != 1 || preempted[0].ID != 2 || e.Stats().Preemptions != 1 {
		t.Errorf("preemptions %+v, counter %d; want request 2 once", preempted, e.Stats().Preemptions)
	}
	if next[1] != 60 || next[2] != 60 || !reflect.DeepEqual(order, []uint64{1, 2}) {
		t.Errorf("tokens %v, finished in order %v", next, order)
	}
	if s := e.Stats(); s.FreeBlocks != 10 || s.KVUsage != 0 || s.PromptTokens != 120 || s.DiscardedTokens == 0 {
		t.Errorf("after the run: %+v", s)
	}
}

// Acceptance test 5: clients that leave mid-stream are gone at the next step boundary and not before.
func TestDisconnect(t *testing.T) {
	c := small()
	c.MaxNumSeqs = 200
	e := mustNew(t, c)
	for id := uint64(1); id <= 150; id++ {
		e.Step(0, Event{Kind: Admit, ID: id, PromptTokens: 32, MaxTokens: 500}, nil)
	}
	for range 20 {
		end, _ := e.Deadline()
		e.Step(end, Event{}, nil)
	}
	before := e.Stats()
	end, _ := e.Deadline()
	for id := uint64(1); id <= 100; id++ {
		e.Step(end-1, Event{Kind: Abort, ID: id}, nil)
	}
	if s := e.Stats(); s.Running != before.Running || s.FinishedAbort != 0 {
		t.Errorf("aborts took effect inside a step: %+v", s)
	}
	e.Step(end, Event{}, nil)
	s := e.Stats()
	if before.Running-s.Running != 100 || s.FinishedAbort != 100 || s.KVUsage >= before.KVUsage {
		t.Errorf("before %+v\nafter %+v", before, s)
	}
}

// Acceptance test 8: the same events give the same log, and extra ticks change nothing.
func TestDeterminism(t *testing.T) {
	c := small()
	c.NumBlocks, c.MaxModelLen, c.MaxNumSeqs = 65, 1024, 16
	run := func(extra bool) string {
		e := mustNew(t, c)
		log := ""
		arrivals := every(7*time.Millisecond, 100, 90, 70)
		drive(e, arrivals, func(now time.Duration, outs []Out) {
			log += fmt.Sprintln(outs)
			if extra {
				if more := e.Step(now, Event{}, nil); len(more) > 0 {
					t.Fatalf("a second tick at %v gave %v", now, more)
				}
			}
		})
		return log + fmt.Sprintf("%+v", e.Stats())
	}
	if a, b := run(false), run(true); a != b {
		t.Error("two runs of the same events differ")
	}
}

// A late caller finds the same history: missed steps run back to back, each at its own instant.
func TestLateCallerSeesTheSameHistory(t *testing.T) {
	var on, late []Out
	e := mustNew(t, small())
	drive(e, every(0, 3, 50, 30), func(_ time.Duration, outs []Out) { on = append(on, outs...) })
	f := mustNew(t, small())
	for _, a := range every(0, 3, 50, 30) {
		late = f.Step(0, a.ev, late)
	}
	late = f.Step(time.Hour, Event{}, late)
	if !reflect.DeepEqual(on, late) {
		t.Errorf("on time %v\nlate %v", on, late)
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	e, out := steady(t)
	allocs := testing.AllocsPerRun(200, func() {
		end, _ := e.Deadline()
		out = e.Step(end, Event{}, out[:0])
	})
	if allocs != 0 {
		t.Errorf("%v allocations per step", allocs)
	}
}

func TestConfigErrorsAllAtOnce(t *testing.T) {
	_, err := New(Config{MaxNumSeqs: 4, MaxNumBatchedTokens: 2, BlockSize: 16, NumBlocks: 3, MaxModelLen: 64, Step: StepTime{Base: -1}})
	want := `engine config: MaxNumBatchedTokens is 2, must be at least 4
MaxModelLen of 64 tokens needs 4 blocks of 16, but NumBlocks 3 leaves 2
Step.Base is -1 ns, must be finite and not negative`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %v", err, want)
	}
}

func steady(t testing.TB) (*Engine, []Out) {
	c := small()
	c.NumBlocks, c.MaxModelLen = 1<<20, 1<<22
	e := mustNew(t, c)
	var out []Out
	for id := uint64(1); id <= 50; id++ {
		out = e.Step(0, Event{Kind: Admit, ID: id, PromptTokens: 100, MaxTokens: 1 << 20}, out[:0])
	}
	for range 30 {
		end, _ := e.Deadline()
		out = e.Step(end, Event{}, out[:0])
	}
	return e, out
}

func BenchmarkStep50Decoders(b *testing.B) {
	e, out := steady(b)
	b.ReportAllocs()
	for b.Loop() {
		end, running := e.Deadline()
		if !running {
			b.StopTimer()
			e, out = steady(b)
			b.StartTimer()
			end, _ = e.Deadline()
		}
		out = e.Step(end, Event{}, out[:0])
	}
}
