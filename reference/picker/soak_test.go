package picker

import (
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	soakFor   = flag.Duration("soak", 20*time.Minute, "virtual time of each soak")
	soakSeeds = flag.Int("soak-seeds", 3, "configurations that are soaked")
)

// TestSoak lets pickers of random configurations run for a long virtual time under changing load, with cancellations, endpoints that
// come and go, metrics that fail and streams that end late, and watches the invariants at every event. At the end all load is
// taken away: nothing may be left behind (INV-03, INV-04, INV-05).
func TestSoak(t *testing.T) {
	for seed := range *soakSeeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			s := newSoak(t, seed)
			s.run(*soakFor)
			s.finish()
			t.Logf("%d events, %d requests: %d dispatched, %d refused, %d evicted, most waiting at once %d", s.events, s.arrived, s.dispatched, s.refused,
				len(s.l.evicted), s.deepest)
			if s.dispatched == 0 {
				t.Error("nothing was ever dispatched: this soak shows nothing")
			}
		})
	}
}

// soak is a picker with its clients and model servers on an event heap.
type soak struct {
	t       *testing.T
	cfg     Config
	p       *Picker
	l       ledger
	r       *rand.Rand
	now     time.Duration
	agenda  agenda
	planned uint64
	outs    []Out
	quiet   bool // no new load

	events, dispatched, refused, deepest int
	arrived                              uint64
}

// planned is something that happens later; order breaks ties, so that two runs agree.
type planned struct {
	at    time.Duration
	order uint64
	do    func()
}

type agenda []planned

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].order < a[j].order
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(planned)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	*a = (*a)[:last]
	return x
}

const soakEndpoints = 3

func newSoak(t *testing.T, seed int) *soak {
	cfg := rapid.Custom(drawConfig).Example(seed)
	cfg.Flow.Detector.Staleness = 3 * time.Second // samples come every second here
	cfg.Scheduling.Labels = nil                   // the endpoints have none
	s := &soak{t: t, cfg: cfg, p: mustNew(t, cfg), l: newLedger(), r: rand.New(rand.NewPCG(uint64(seed), 24))}
	for id := range EndpointID(soakEndpoints) {
		s.join(id)
		s.sample(id)
	}
	s.arrive()
	return s
}

func (s *soak) after(d time.Duration, do func()) {
	s.planned++
	heap.Push(&s.agenda, planned{s.now + d, s.planned, do})
}

// within draws a time below d.
func (s *soak) within(d time.Duration) time.Duration { return time.Duration(s.r.Int64N(int64(d))) }

func (s *soak) step(ev Event) {
	s.events++
	s.l.before(ev)
	s.outs = s.p.Step(s.now, ev, s.outs[:0])
	for _, o := range s.outs {
		s.l.decided(s.t, s.cfg, ev, o)
		s.carryOut(o)
	}
	s.l.after(ev)
	// A check looks at everything that runs. Where a backlog of 100,000 was let go at once, not every event can afford that.
	if n := len(s.l.running) / 64; n == 0 || s.events%n == 0 {
		s.l.check(s.t, s.cfg, s.p, timed{s.now, ev})
	}
	s.deepest = max(s.deepest, s.p.QueueLen())
}

func (s *soak) carryOut(o Out) {
	switch o.Kind {
	case Dispatch:
		s.dispatched++
		first := s.within(300 * time.Millisecond)
		s.after(first, func() { s.step(Event{Kind: FirstChunk, ID: o.ID}) })
		s.after(first+s.within(3*time.Second), func() { s.end(o.ID) })
	case Evict:
		late := s.within(200 * time.Millisecond)
		if s.r.IntN(50) == 0 {
			late += 12 * time.Second // longer than a victim is waited for
		}
		s.after(late, func() { s.end(o.ID) })
	default:
		s.refused++
		delete(s.l.ended, o.ID)
	}
}

func (s *soak) end(id uint64) {
	if _, running := s.l.running[id]; running {
		s.step(Event{Kind: Finish, ID: id, Usage: Usage{Prompt: s.r.Int64N(9), Completion: s.r.Int64N(9)}})
		delete(s.l.ended, id)
	}
}

// arrive sends a request and plans the next one. The load changes every ten minutes, from none to more than the pool can take.
func (s *soak) arrive() {
	if s.quiet {
		return
	}
	means := []time.Duration{10 * time.Second, 800 * time.Millisecond, 300 * time.Millisecond, 120 * time.Millisecond, 60 * time.Millisecond}
	mean := means[(int(s.now/(10*time.Minute))*3)%len(means)]
	s.after(time.Duration(s.r.ExpFloat64()*float64(mean)), s.arrive)
	s.arrived++
	id := s.arrived
	s.step(Event{Kind: Arrive, ID: id, Request: Request{
		FairnessID: string(rune('a' + s.r.IntN(20))), Priority: priorities[s.r.IntN(len(priorities))], Bytes: s.r.Int64N(30), Received: s.now,
		Tokens: s.r.Int64N(16), Model: adapters[s.r.IntN(len(adapters))],
	}})
	if s.r.IntN(8) == 0 { // a client without patience
		s.after(s.within(2*time.Second), func() { s.leave(id) })
	}
}

// leave is the disconnect of a client: of a queued request a cancellation, of a running one the end of its stream.
func (s *soak) leave(id uint64) {
	if _, queued := s.l.priority[id]; queued {
		s.step(Event{Kind: Cancel, ID: id})
	} else {
		s.end(id)
	}
}

func (s *soak) join(id EndpointID) {
	s.step(Event{Kind: SetEndpoint, Endpoint: Endpoint{ID: id, Address: fmt.Sprint("127.0.0.1:", 8000+id), Role: Role(s.r.IntN(4))}})
	s.after(5*time.Minute+s.within(time.Hour), func() {
		if s.quiet {
			return
		}
		s.step(Event{Kind: RemoveEndpoint, Endpoint: Endpoint{ID: id}})
		s.after(s.within(time.Minute), func() { s.join(id) })
	})
}

// sample reports what runs on an endpoint; one reading in twenty fails.
func (s *soak) sample(id EndpointID) {
	s.after(time.Second, func() { s.sample(id) })
	if !s.l.pool[id] {
		return
	}
	n := float64(s.p.InFlight(id))
	s.step(Event{Kind: Sample, Endpoint: Endpoint{ID: id}, Load: Load{At: s.now, OK: s.quiet || s.r.IntN(20) > 0, HasWaiting: true, HasKV: true,
		Waiting: max(0, n-2), KV: min(1, n/8), Running: min(n, 2)}})
}

// run lets time pass: what is planned happens, and the machine is woken at its own deadlines.
func (s *soak) run(d time.Duration) {
	until := s.now + d
	for {
		next := s.agenda[0].at
		if at, ok := s.p.Deadline(); ok && at < next {
			if at > until {
				break
			}
			s.now = max(s.now, at)
			s.step(Event{Kind: Tick})
			continue
		}
		if next > until {
			break
		}
		x := heap.Pop(&s.agenda).(planned)
		s.now = x.at
		x.do()
	}
	s.now = until
}

// finish takes the load away, lets everything end, and cancels what no ceiling of this configuration will ever let through.
func (s *soak) finish() {
	s.quiet = true
	s.run(5 * time.Minute)
	for id := range s.arrived + 1 {
		if _, queued := s.l.priority[id]; queued {
			s.step(Event{Kind: Cancel, ID: id})
		}
	}
	s.run(5 * time.Minute)
	if len(s.l.running) > 0 || len(s.l.priority) > 0 || len(s.l.ended) > 0 || s.p.QueueLen() > 0 {
		s.t.Errorf("left behind: %d running, %d queued, %d undecided, the picker says %d", len(s.l.running), len(s.l.priority), len(s.l.ended), s.p.QueueLen())
	}
	for id := range EndpointID(soakEndpoints) {
		if n, k := s.p.InFlight(id), s.p.InFlightTokens(id); n != 0 || k != 0 {
			s.t.Errorf("endpoint %d: %d requests and %d tokens are left", id, n, k)
		}
	}
	for _, b := range s.p.Bands(nil) {
		if b.Requests != 0 || b.Bytes != 0 {
			s.t.Errorf("band %d: %d requests and %d bytes are left", b.Priority, b.Requests, b.Bytes)
		}
	}
}
