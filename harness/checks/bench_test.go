package checks_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
)

// A toy router in front of two toy model servers makes the histories of loads: long enough for statistics, and wrong in one way each.
// Two requests run at a time at each server, for 50 ms; a third may be there already.

const (
	toyPlaces  = 2
	toyService = 50 * time.Millisecond
	toySpan    = 7 * time.Second
)

// toy is how the toy router behaves.
type toy struct {
	scenario string
	limit    int                       // per server; 0: no flow control
	pick     func([]*toyRequest) int   // of those that wait, in the order of arrival
	low      int                       // per server: places that the lower band may take; 0: all
	noisy    time.Duration             // between two requests of the noisy tenant; 0: none
	slow     time.Duration             // added to a service time
	handover time.Duration             // until the router takes a place that was left
	late     time.Duration             // by which the client hears of everything
	gauge    func(waiting int) float64 // the queue gauge; nil: the truth
	closed   float64                   // the saturation gauge of a full pool
}

type toyRequest struct {
	id, tenant, objective string
	sent, arrival, end    time.Duration
	server                int
}

// served keeps the order of a turn: realtime first, then whoever's turn it is.
func strictly(waiting []*toyRequest) int {
	for i, r := range waiting {
		if r.objective == "p100" {
			return i
		}
	}
	return 0
}

func turning() func([]*toyRequest) int {
	last := ""
	return func(waiting []*toyRequest) int {
		if i := strictly(waiting); waiting[i].objective == "p100" {
			return i
		}
		for i, r := range waiting {
			if r.tenant != last {
				last = r.tenant
				return i
			}
		}
		return 0
	}
}

func bandsNewestFirst(waiting []*toyRequest) int {
	if i := strictly(waiting); waiting[i].objective == "p100" {
		return i
	}
	return newestFirst(waiting)
}

// drawing keeps the bands apart and draws whose turn it is: the lower band's waits differ widely.
func drawing() func([]*toyRequest) int {
	draw := rand.New(rand.NewPCG(1, 1))
	return func(waiting []*toyRequest) int {
		if i := strictly(waiting); waiting[i].objective == "p100" {
			return i
		}
		return draw.IntN(len(waiting))
	}
}

func newestFirst(waiting []*toyRequest) int { return len(waiting) - 1 }
func oldestFirst([]*toyRequest) int         { return 0 }

// offered is what its clients send.
func (t toy) offered() []*toyRequest {
	var out []*toyRequest
	add := func(tenant, objective string, every, shift time.Duration) {
		for i, at := 0, shift; at < toySpan; i, at = i+1, at+every {
			out = append(out, &toyRequest{id: fmt.Sprintf("%s%d", tenant, i), tenant: tenant, objective: objective, sent: at, end: -1, arrival: -1})
		}
	}
	add("realtime", "p100", 40*time.Millisecond, 3*time.Millisecond)
	add("quiet", "p0", 60*time.Millisecond, 7*time.Millisecond)
	if t.noisy > 0 {
		add("noisy", "p0", t.noisy, 11*time.Millisecond)
	}
	slices.SortStableFunc(out, func(a, b *toyRequest) int { return int(a.sent - b.sent) })
	return out
}

// play runs the load in steps of a millisecond.
func (t toy) play() *hist {
	all := t.offered()
	var waiting []*toyRequest
	inside := [2][]*toyRequest{}
	free := [2]time.Duration{}
	h := &hist{r: evidence.Run{Scenario: t.scenario}}
	next, left := 0, len(all)
	now := time.Duration(0)
	for ; left > 0 && now < time.Minute; now += time.Millisecond {
		for ; next < len(all) && all[next].sent <= now; next++ {
			waiting = append(waiting, all[next])
		}
		for s := range inside {
			for i := 0; i < len(inside[s]) && i < toyPlaces; i++ {
				if r := inside[s][i]; r.end < 0 { // it takes a place now
					r.end = max(now, r.arrival) + toyService + t.slow
				} else if r.end <= now {
					inside[s] = slices.Delete(inside[s], i, i+1)
					free[s] = now + t.handover
					left--
					i--
				}
			}
		}
		for len(waiting) > 0 {
			s := 0
			if len(inside[1]) < len(inside[0]) {
				s = 1
			}
			if t.limit > 0 && (len(inside[s]) >= t.limit || now < free[s]) {
				break
			}
			i := 0
			if t.pick != nil {
				i = t.pick(waiting)
			}
			r := waiting[i]
			if t.low > 0 && len(inside[s]) >= t.low && r.objective == "p0" {
				break
			}
			waiting = slices.Delete(waiting, i, i+1)
			r.arrival, r.server = now, s
			inside[s] = append(inside[s], r)
		}
		if now%(200*time.Millisecond) == 0 {
			t.pages(h, now, waiting, inside)
		}
	}
	for _, r := range all {
		t.record(h, r)
	}
	h.r.Steps = append(h.r.Steps, evidence.Step{Op: "load", Mark: "load", Start: 0, End: int64(now), OK: true})
	h.r.Sort()
	return h
}

func (t toy) record(h *hist, r *toyRequest) {
	b := evidence.Backend{ID: r.id, Endpoint: string(rune('a' + r.server)), Arrival: int64(r.arrival), Released: evidence.Never, FirstToken: int64(r.end - 42*time.Millisecond),
		End: int64(r.end), Ending: evidence.Finished, Tokens: 7}
	if t.slow > 0 {
		b.FirstToken -= int64(t.slow)
	}
	h.r.Backends = append(h.r.Backends, b)
	h.r.Clients = append(h.r.Clients, evidence.Client{ID: r.id, Tenant: r.tenant, Objective: r.objective, Intended: int64(r.sent), Sent: int64(r.sent), Headers: b.FirstToken,
		FirstToken: b.FirstToken + int64(t.late), LastToken: b.End, End: b.End + int64(t.late), Outcome: evidence.Completed, Status: 200, Tokens: 7})
}

func (t toy) pages(h *hist, now time.Duration, waiting []*toyRequest, inside [2][]*toyRequest) {
	add := func(source, name string, v float64, l labels) {
		h.r.Samples = append(h.r.Samples, evidence.Sample{At: int64(now), Mark: "load", Source: source, Name: name, Labels: l, Value: v})
	}
	count := map[string]int{}
	for _, r := range waiting {
		count[r.tenant]++
	}
	for tenant, priority := range map[string]string{"realtime": "100", "quiet": "0", "noisy": "0"} {
		v := float64(count[tenant])
		if t.gauge != nil {
			v = t.gauge(count[tenant])
		}
		add("router", "queue", v, labels{"fairness_id": tenant, "priority": priority})
	}
	saturation := 0.5
	if len(inside[0]) >= t.limit && len(inside[1]) >= t.limit {
		saturation = t.closed
	}
	add("router", "saturation", saturation, nil)
	for s := range inside {
		running := min(toyPlaces, len(inside[s]))
		for name, v := range map[string]float64{wire.VLLMRunning: float64(running), wire.VLLMWaiting: float64(len(inside[s]) - running), wire.VLLMKVUsage: 0.1, wire.VLLMPreemptions: 0} {
			add(string(rune('a'+s)), name, v, nil)
		}
	}
}

func (h *hist) and(others ...*hist) *hist {
	for _, o := range others {
		h.also = append(h.also, o.r)
	}
	return h
}

// The four of one plan. The noisy tenant sends 62 a second beside 42 of the others; 80 can be served.
func solo() toy { return toy{scenario: "solo", limit: 3, pick: turning(), closed: 1} }
func ungated() toy {
	return toy{scenario: "off", noisy: 16 * time.Millisecond, closed: 1}
}
func strict() toy {
	return toy{scenario: "strict", limit: 3, pick: strictly, noisy: 16 * time.Millisecond, closed: 1}
}
func turned() toy {
	return toy{scenario: "turns", limit: 3, pick: turning(), noisy: 16 * time.Millisecond, closed: 1}
}
func flood() toy {
	return toy{scenario: "flood", limit: 3, pick: turning(), noisy: 5 * time.Millisecond, closed: 1}
}

func with(t toy, f func(*toy)) *hist { f(&t); return t.play() }

func benchSpec(change func(*checks.Spec)) checks.Spec {
	s := checks.Spec{Mark: "load", Needed: 20, Margin: 0.05, Count: 4, Names: []string{"queue"}, Bench: &checks.Bench{From: time.Second, To: 6800 * time.Millisecond, Places: toyPlaces,
		High: "p100", Low: "p0", Quiet: "quiet", Noisy: "noisy", Saturation: []string{"saturation"}, Boundary: 1,
		Runs: map[string]string{"solo": "solo", "off": "off", "on": "turns", "strict": "strict", "turns": "turns", "low": "solo", "growing": "turns", "high": "flood"}}}
	if change != nil {
		change(&s)
	}
	return s
}

func overloaded(s *checks.Spec) { s.Margin, s.Needed = 0.15, 59 }
func signals(s *checks.Spec) {
	s.Min, s.Within, s.Margin = 5*time.Second, 200*time.Millisecond, 0.2
	for tenant, priority := range map[string]string{"realtime": "100", "quiet": "0", "noisy": "0"} {
		x := checks.Series{Labels: labels{"fairness_id": tenant, "priority": priority}}
		if tenant == "noisy" {
			x.Value = 1
		}
		s.Series = append(s.Series, x)
	}
}
func signalsWith(f func(*checks.Spec)) checks.Spec {
	return benchSpec(func(s *checks.Spec) { signals(s); f(s) })
}
func ahead(s *checks.Spec) { s.Count, s.Needed = 3, 100 }

func drawn(t *toy)       { t.pick = drawing() }
func slowMachine(t *toy) { t.late = 300 * time.Millisecond }

var benchTrials = []trial{
	{"busy", "passing", "the model servers are full", benchSpec(nil), turned().play(), pass},
	{"busy", "failing", "a place that was left is taken 40 ms later", benchSpec(nil), with(turned(), func(t *toy) { t.limit, t.handover = 2, 40*time.Millisecond }), fail},
	{"busy", "degenerate", "nobody waits", benchSpec(nil), solo().play(), inconclusive},
	{"busy", "degenerate", "the machine is late", benchSpec(nil), with(turned(), slowMachine), inconclusive},
	{"busy", "degenerate", "the load failed", benchSpec(nil), turned().play().broken("load"), inconclusive},
	{"busy", "degenerate", "the load was shorter than what is looked at", benchSpec(func(s *checks.Spec) { s.Bench.To = time.Hour }), turned().play(), inconclusive},

	{"calm", "passing", "everybody is served", benchSpec(nil), solo().play(), pass},
	{"calm", "failing", "one is refused beside free places", benchSpec(nil), solo().play().unseen("quiet50").c("quiet50", func(c *evidence.Client) { c.Outcome, c.Status = evidence.Refused, 429 }), fail},
	{"calm", "degenerate", "the pool is full", benchSpec(nil), turned().play(), inconclusive},
	{"calm", "degenerate", "too few", benchSpec(func(s *checks.Spec) { s.Needed = 1000 }), solo().play(), inconclusive},
	{"calm", "degenerate", "one was served by nobody", benchSpec(nil), solo().play().unseen("quiet50"), inconclusive},

	{"overload", "passing", "the lower band absorbs the wait", benchSpec(overloaded), turned().play(), pass},
	{"overload", "failing", "bands do not matter", benchSpec(overloaded), with(turned(), func(t *toy) { t.pick = oldestFirst }), fail},
	{"overload", "failing", "the newest goes first, so that nobody served waits for long", benchSpec(overloaded), with(turned(), func(t *toy) { t.pick = newestFirst }), fail},
	{"overload", "failing", "of the lower band the newest goes first, so that most of it waits no longer than before", benchSpec(overloaded), with(turned(), func(t *toy) { t.pick = bandsNewestFirst }), fail},
	{"overload", "passing", "the lower band absorbs it, whoever's turn is drawn", benchSpec(overloaded), with(turned(), drawn), pass},
	{"overload", "degenerate", "the wait grew, in too few requests to prove it", benchSpec(func(s *checks.Spec) { overloaded(s); s.Bench.From, s.Bench.To = 3*time.Second, 6*time.Second }), with(turned(), drawn), inconclusive},
	{"overload", "degenerate", "a third of the lower band is too few for a median", benchSpec(func(s *checks.Spec) { overloaded(s); s.Bench.To = 3500 * time.Millisecond }), with(turned(), func(t *toy) {
		t.slow, t.noisy = toyService, 60*time.Millisecond
	}), inconclusive},
	{"overload", "degenerate", "no overload", benchSpec(overloaded), solo().play(), inconclusive},
	{"overload", "degenerate", "too few", benchSpec(func(s *checks.Spec) { s.Margin, s.Needed = 0.15, 1000 }), turned().play(), inconclusive},
	{"overload", "degenerate", "the machine is late", benchSpec(overloaded), with(turned(), slowMachine), inconclusive},
	{"overload", "degenerate", "no margin", benchSpec(func(s *checks.Spec) { s.Margin, s.Needed = 0, 59 }), turned().play(), inconclusive},

	{"same-capacity", "passing", "as many tokens with as without", benchSpec(nil), turned().play().and(ungated().play()), pass},
	{"same-capacity", "failing", "a tenth of the capacity is lost", benchSpec(nil), with(turned(), func(t *toy) { t.limit, t.handover = 2, 10*time.Millisecond }).and(ungated().play()), fail},
	{"same-capacity", "degenerate", "the model servers were slower", benchSpec(nil), with(turned(), func(t *toy) { t.slow = 10 * time.Millisecond }).and(ungated().play()), inconclusive},
	{"same-capacity", "degenerate", "another plan", benchSpec(nil), with(turned(), func(t *toy) { t.noisy = 15 * time.Millisecond }).and(ungated().play()), inconclusive},
	{"same-capacity", "degenerate", "the other scenario was not played", benchSpec(nil), turned().play(), inconclusive},
	{"same-capacity", "degenerate", "no saturation", benchSpec(func(s *checks.Spec) { s.Bench.Runs["on"], s.Bench.Runs["off"] = "solo", "solo" }), solo().play(), inconclusive},

	{"isolation", "passing", "turns protect the quiet tenant", benchSpec(nil), solo().play().and(ungated().play(), strict().play(), turned().play()), pass},
	{"isolation", "failing", "turns are not taken", benchSpec(nil), solo().play().and(ungated().play(), strict().play(), with(turned(), func(t *toy) { t.pick = strictly })), fail},
	{"isolation", "degenerate", "nobody is worse off without turns", benchSpec(nil), solo().play().and(ungated().play(), with(strict(), func(t *toy) { t.pick = turning() }), turned().play()), inconclusive},
	{"isolation", "degenerate", "the noisy tenant is not noisy", benchSpec(nil), solo().play().and(with(ungated(), func(t *toy) { t.noisy = time.Second }), strict().play(), turned().play()), inconclusive},
	{"isolation", "degenerate", "one part is missing", benchSpec(nil), solo().play().and(ungated().play(), turned().play()), inconclusive},
	{"isolation", "degenerate", "the quiet tenant is too quiet", benchSpec(func(s *checks.Spec) { s.Needed = 1000 }), solo().play().and(ungated().play(), strict().play(), turned().play()), inconclusive},

	{"baseline", "passing", "first come, first served", benchSpec(nil), strict().play().and(turned().play()), pass},
	{"baseline", "failing", "the newest goes first", benchSpec(nil), with(strict(), func(t *toy) { t.pick = newestFirst }).and(turned().play()), fail},
	{"baseline", "failing", "it takes turns", benchSpec(nil), with(strict(), func(t *toy) { t.pick = turning() }).and(turned().play()), fail},
	{"baseline", "failing", "turns cost capacity", benchSpec(nil), strict().play().and(with(turned(), func(t *toy) { t.limit, t.handover = 2, 10*time.Millisecond })), fail},
	{"baseline", "degenerate", "another plan", benchSpec(nil), strict().play().and(with(turned(), func(t *toy) { t.noisy = 15 * time.Millisecond })), inconclusive},
	{"baseline", "degenerate", "too few", benchSpec(func(s *checks.Spec) { s.Needed = 10000 }), strict().play().and(turned().play()), inconclusive},

	{"inversion", "passing", "realtime no longer waits behind batch", benchSpec(ahead), turned().play().and(ungated().play()), pass},
	{"inversion", "failing", "the limit is not kept", benchSpec(ahead), with(turned(), func(t *toy) { t.limit = 20 }).and(ungated().play()), fail},
	{"inversion", "failing", "realtime waits in the queue instead", benchSpec(ahead), with(turned(), func(t *toy) { t.pick = lowestFirst }).and(ungated().play()), fail},
	{"inversion", "degenerate", "nothing waits in the engine without flow control", benchSpec(func(s *checks.Spec) { ahead(s); s.Bench.Runs["off"] = "turns" }), turned().play(), inconclusive},
	{"inversion", "degenerate", "too few", benchSpec(func(s *checks.Spec) { s.Count, s.Needed = 3, 1000 }), turned().play().and(ungated().play()), inconclusive},

	{"loads-vary", "passing", "the gauge grows with the queue", benchSpec(nil), solo().play().and(turned().play(), flood().play()), pass},
	{"loads-vary", "failing", "the gauge stops at three", benchSpec(nil), solo().play().and(with(turned(), func(t *toy) { t.gauge = func(n int) float64 { return float64(min(n, 3)) } }), flood().play()), fail},
	{"loads-vary", "failing", "the gauge reads nothing", benchSpec(nil), solo().play().and(with(turned(), func(t *toy) { t.gauge = func(int) float64 { return math.NaN() } }), flood().play()), fail},
	{"loads-vary", "degenerate", "two levels are the same", benchSpec(func(s *checks.Spec) { s.Bench.Runs["high"] = "turns" }), solo().play().and(turned().play()), inconclusive},
	{"loads-vary", "degenerate", "too few pages", benchSpec(func(s *checks.Spec) { s.Needed = 1000 }), solo().play().and(turned().play(), flood().play()), inconclusive},

	{"gate-engaged", "passing", "both signals", benchSpec(signals), turned().play(), pass},
	{"gate-engaged", "failing", "saturation stays below", benchSpec(signals), with(turned(), func(t *toy) { t.closed = 0.9 }), fail},
	{"gate-engaged", "failing", "no queue is shown", benchSpec(signals), with(turned(), func(t *toy) { t.gauge = func(int) float64 { return 0 } }), fail},
	{"gate-engaged", "degenerate", "never saturated", benchSpec(signals), solo().play(), inconclusive},
	{"gate-engaged", "degenerate", "not saturated for long enough", signalsWith(func(s *checks.Spec) { s.Min = time.Hour }), turned().play(), inconclusive},
	{"gate-engaged", "degenerate", "the limit was not reached", signalsWith(func(s *checks.Spec) { s.Count = 10 }), turned().play(), inconclusive},
	{"gate-engaged", "degenerate", "no page", benchSpec(signals), turned().play().drop(marked("load")), inconclusive},

	{"shows-bands", "passing", "every band and tenant", benchSpec(signals), turned().play(), pass},
	{"shows-bands", "failing", "a tenant is not shown", benchSpec(signals), turned().play().drop(func(sm evidence.Sample) bool { return sm.Labels["fairness_id"] == "quiet" }), fail},
	{"shows-bands", "failing", "a backlog is not shown", benchSpec(signals), with(turned(), func(t *toy) { t.gauge = func(int) float64 { return 0 } }), fail},
	{"shows-bands", "degenerate", "who must be shown did not wait", signalsWith(func(s *checks.Spec) { s.Series[0].Labels["fairness_id"], s.Series[0].Value = "nobody", 1 }), turned().play(), inconclusive},
	{"shows-bands", "degenerate", "one series has nothing to be told apart from", signalsWith(func(s *checks.Spec) { s.Series = s.Series[:1] }), turned().play(), inconclusive},

	{"pressure", "passing", "the pages explain what was inside", benchSpec(signals), turned().play(), pass},
	{"pressure", "failing", "what waits inside is not counted", benchSpec(signals), turned().play().drop(named(wire.VLLMKVUsage)), fail},
	{"pressure", "failing", "a family reads something else", benchSpec(signals), turned().play().s(func(sm *evidence.Sample) {
		if sm.Name == wire.VLLMWaiting {
			sm.Value = 0
		}
	}), fail},
	{"pressure", "degenerate", "the page shows no numbers", benchSpec(signals), turned().play().s(func(sm *evidence.Sample) { sm.Value = math.NaN() }), fail},
	{"pressure", "degenerate", "the engines were not full", signalsWith(func(s *checks.Spec) { s.Bench.Places = 5 }), turned().play(), inconclusive},
	{"pressure", "degenerate", "no page of a model server", benchSpec(signals), turned().play().drop(func(sm evidence.Sample) bool { return sm.Source == "b" }), inconclusive},

	{"same-interval", "passing", "all on one page", benchSpec(signals), turned().play(), pass},
	{"same-interval", "failing", "the signals come one after the other", benchSpec(signals), turned().play().s(func(sm *evidence.Sample) {
		odd := time.Duration(sm.At)%(400*time.Millisecond) == 0
		if odd && sm.Name == "queue" || !odd && sm.Name == "saturation" {
			sm.Value = 0
		}
	}), fail},
	{"same-interval", "degenerate", "the model servers' pages are from another time", benchSpec(signals), turned().play().drop(func(sm evidence.Sample) bool { return strings.HasPrefix(sm.Name, "vllm:") }), inconclusive},
}

func lowestFirst(waiting []*toyRequest) int {
	for i, r := range waiting {
		if r.objective != "p100" {
			return i
		}
	}
	return 0
}
