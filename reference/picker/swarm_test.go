package picker

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/scheduling"
)

// TestMain makes the swarms larger than rapid's default, which is too small to meet every eviction; -rapid.checks still decides.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("1000"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// timed is one input of a history.
type timed struct {
	at time.Duration
	ev Event
}

var priorities = []int{100, 50, 7, 0, -1, -10}

var adapters = []string{"x", "y", "z"}

// uniform draws 0..n-1 without rapid's preference for small numbers, which would make a swarm of nothing but arrivals: its bits are
// drawn one by one.
func uniform(t *rapid.T, name string, n int) int {
	v := 0
	for _, bit := range bits.Draw(t, name) {
		v *= 2
		if bit {
			v++
		}
	}
	return v % n
}

var bits = rapid.SliceOfN(rapid.Bool(), 10, 10)

// drawConfig draws any configuration; small limits, so that they bind.
func drawConfig(t *rapid.T) Config {
	small := func(name string, max int) int { return uniform(t, name, max+1) }
	dur := func(name string, d ...time.Duration) time.Duration { return d[uniform(t, name, len(d))] }
	yes := func(name string) bool { return rapid.Bool().Draw(t, name) }
	band := func(name string) flowcontrol.BandConfig {
		return flowcontrol.BandConfig{
			MaxRequests: []int64{0, 0, 2, 8}[small(name+" max requests", 3)], MaxBytes: []int64{0, 0, 0, 60}[small(name+" max bytes", 3)],
			Fairness: flowcontrol.Fairness(small(name+" fairness", 2)), Ordering: flowcontrol.Ordering(small(name+" ordering", 2)),
		}
	}
	f := flowcontrol.Config{
		MaxRequests: []int64{0, 0, 6, 12}[small("max requests", 3)], MaxBytes: []int64{0, 0, 0, 150}[small("max bytes", 3)],
		TTL:           dur("ttl", 0, 0, 40*time.Millisecond, 90*time.Millisecond, time.Minute),
		NoEndpointTTL: dur("no-endpoint ttl", 0, 60*time.Millisecond),
		DefaultBand:   band("default"), DefaultNegativeBand: band("negative"),
		Eviction: yes("eviction"), EmptyPoolOutcomes: yes("empty-pool outcomes"), Stages: yes("stages"),
		FlowIdle: dur("flow idle", 0, 100*time.Millisecond), BandIdle: dur("band idle", 0, 150*time.Millisecond),
		Detector: flowcontrol.DetectorConfig{
			Kind: flowcontrol.DetectorKind(small("detector", 1)), MaxConcurrency: 1 + small("limit", 3),
			QueueDepth: 1 + small("depth", 4), KVUtil: 0.8, Staleness: 50 * time.Millisecond,
			Headroom: []float64{0, 0.25}[small("headroom", 1)], Filter: yes("filter"), FilterFailOpen: yes("fail open"),
			Mode: flowcontrol.ConcurrencyMode(small("mode", 2)), MaxTokens: []int64{10, 35}[small("token limit", 1)],
			ForeignLimit:   dur("foreign limit", 0, 40*time.Millisecond, 5*time.Second),
			EstimateOutput: yes("estimate"), OutputRatio: 1.5, MaxEstimatedOutput: []int64{0, 8}[small("estimate limit", 1)],
		},
		ProgramAware: flowcontrol.ProgramAwareConfig{
			WeightService: []float64{0.8, 0, 1}[small("service weight", 2)], WeightHeadWait: []float64{0.2, 0.5}[small("wait weight", 1)],
			HalfLife: dur("half-life", 0, 300*time.Millisecond, 2*time.Second), IdleTTL: dur("service ttl", 0, 120*time.Millisecond, 4*time.Second),
		},
		Ceiling: flowcontrol.CeilingConfig{
			Kind: flowcontrol.CeilingKind(small("ceiling", 2)), Threshold: []float64{1, 0.5, 1.5}[small("threshold", 2)],
			Min: []float64{0, 0.25}[small("min", 1)], Max: 1, ByValue: yes("by value"),
		},
	}
	for _, p := range priorities {
		if small("static band", 2) == 0 {
			b := band("band")
			b.Priority = p
			f.Bands = append(f.Bands, b)
		}
	}
	sc := scheduling.Config{SubsetFilter: yes("subset filter"), MaxEndpoints: small("endpoints per pick", 2), Seed: 7}
	for k := range scheduling.LoRAAffinity + 1 {
		if small("scorer", 3) == 0 {
			sc.Scorers = append(sc.Scorers, scheduling.Scorer{Kind: k, Weight: float64(1 + small("weight", 1))})
		}
	}
	sc.Prefix = scheduling.PrefixConfig{MaxBlocks: small("blocks", 3), LRUCapacity: small("remembered blocks", 5)}
	if !slices.ContainsFunc(sc.Scorers, func(s scheduling.Scorer) bool { return s.Kind == scheduling.PrefixCache }) {
		sc.Prefix.MaxBlocks = 0
	}
	if small("label filter", 4) == 0 {
		sc.Labels = []scheduling.LabelFilter{{Key: "zone", Values: []string{"a", "c"}, Missing: yes("missing label passes")}}
	}
	switch small("theme", 3) { // what needs several things at once is else too seldom met
	case 0: // demand that stays blocked
		f.Eviction, f.TTL, f.MaxRequests, f.Bands = true, 0, 0, nil
		f.Ceiling = flowcontrol.CeilingConfig{Threshold: 1}
		f.DefaultBand.MaxRequests, f.DefaultNegativeBand.MaxRequests = 0, 0
		f.Detector.MaxConcurrency, f.Detector.Staleness = 2, time.Minute
		for _, p := range priorities {
			f.Bands = append(f.Bands, flowcontrol.BandConfig{Priority: p})
		}
	case 1: // several prefill endpoints that remember
		f.Stages, f.Ceiling.Threshold = true, 1.5
		sc.Prefix, sc.Labels = scheduling.PrefixConfig{MaxBlocks: 3, LRUCapacity: 4}, nil
		sc.Scorers = []scheduling.Scorer{{Kind: scheduling.PrefixCache, Weight: 1}}
	}
	return Config{Flow: f, Scheduling: sc}
}

// drawEvent draws one event; ids are below the number of requests so far, and sometimes of requests that are over or unknown.
func drawEvent(t *rapid.T, now time.Duration, arrived *uint64) Event {
	pick := func(name string, n int) int { return uniform(t, name, n) }
	ep := Endpoint{ID: EndpointID(pick("endpoint", 3))}
	ep.Address = fmt.Sprint("127.0.0.1:", 8000+ep.ID)
	switch k := pick("event", 22); {
	case k < 8:
		id := *arrived
		if pick("again", 10) > 0 {
			*arrived++
			id = *arrived
		}
		r := Request{
			FairnessID: string(rune('a' + pick("flow", 4))), Priority: priorities[pick("priority", len(priorities))],
			Bytes: int64(pick("bytes", 30)), Received: now - time.Duration(pick("received", 30))*time.Millisecond,
			HasTTFT: pick("target", 2) == 0, TTFT: time.Duration(pick("ttft", 50)-5) * time.Millisecond,
			Tokens: int64(pick("tokens", 16)), MaxOutput: []int64{0, 5}[pick("output limit", 2)], Model: adapters[pick("adapter", 3)],
		}
		for h := uint64(1); len(r.Prefix) < pick("blocks", 5); {
			h = 2*h + uint64(pick("block", 2))
			r.Prefix = append(r.Prefix, h)
		}
		if pick("own limit", 3) == 0 {
			r.TTL = time.Duration(20+pick("limit", 60)) * time.Millisecond
		}
		if pick("restricted", 6) == 0 {
			r.HasSubset = true
			for range pick("subset size", 3) {
				r.Subset = append(r.Subset, fmt.Sprint("127.0.0.1:", 8000+pick("subset", 4)))
			}
		}
		return Event{Kind: Arrive, ID: id, Request: r}
	case k < 13: // mostly of recent requests, which are the live ones
		kind := Finish
		if pick("cancel", 6) == 0 {
			kind = Cancel
		}
		if pick("first chunk", 5) == 0 {
			kind = FirstChunk
		}
		return Event{Kind: kind, ID: *arrived - min(*arrived, uint64(pick("which", 14))),
			Usage: Usage{Prompt: int64(pick("prompt", 9)), Completion: int64(pick("completion", 9))}}
	case k < 16:
		return Event{Kind: Sample, Endpoint: ep, Load: Load{
			At: now - time.Duration(pick("age", 60))*time.Millisecond, OK: pick("failed", 8) > 0,
			Waiting: float64(pick("waiting", 6)), KV: float64(pick("kv", 11)) / 10,
			HasWaiting: pick("no waiting", 10) > 0, HasKV: pick("no kv", 10) > 0, Running: float64(pick("running", 4)),
			Adapters: adapters[:pick("running adapters", 3)], WaitingAdapters: adapters[2-pick("waiting adapters", 2) : 2], MaxAdapters: pick("slots", 4),
		}}
	case k < 18:
		ep.Role, ep.Labels = Role(pick("role", 4)), []string{"", "zone=a", "gpu=x,zone=b", "gpu=x,zone=c"}[pick("labels", 4)]
		return Event{Kind: SetEndpoint, Endpoint: ep}
	case k >= 20:
		r := Report{Replica: pick("replica", 3), At: now - time.Duration(pick("report age", 45)-2)*time.Millisecond}
		for range pick("foreign loads", 4) {
			r.Loads = append(r.Loads, ForeignLoad{Endpoint: EndpointID(pick("foreign endpoint", 4)),
				Requests: pick("foreign requests", 3), Tokens: int64(pick("foreign tokens", 12))})
		}
		return Event{Kind: Foreign, Report: r}
	case k < 19 && pick("remove", 3) == 0:
		return Event{Kind: RemoveEndpoint, Endpoint: ep}
	case pick("shutdown", 150) == 0:
		return Event{Kind: Shutdown}
	case pick("objectives", 2) == 0:
		return Event{Kind: SetPriorities, Priorities: rapid.SliceOfN(rapid.SampledFrom(priorities), 0, 3).Draw(t, "priorities")}
	}
	return Event{Kind: Tick}
}

// gaps between events: mostly close together, sometimes past a wait limit, seldom past every grace and timeout.
var gaps = append(slices.Repeat([]time.Duration{0, time.Millisecond, 0, 7 * time.Millisecond}, 8),
	30*time.Millisecond, 30*time.Millisecond, 60*time.Millisecond, 3*time.Second, 11*time.Second)

// drawHistory begins with endpoints, so that most histories dispatch.
func drawHistory(t *rapid.T) []timed {
	var h []timed
	var arrived uint64
	now := time.Duration(0)
	for i := range rapid.IntRange(0, 3).Draw(t, "endpoints") {
		h = append(h, timed{0, Event{Kind: SetEndpoint, Endpoint: Endpoint{ID: EndpointID(i), Address: fmt.Sprint("127.0.0.1:", 8000+i)}}})
	}
	for range rapid.IntRange(1, 250).Draw(t, "events") {
		// Mostly close together, sometimes past every grace and timeout.
		now += gaps[uniform(t, "gap", len(gaps))]
		h = append(h, timed{now, drawEvent(t, now, &arrived)})
	}
	return h
}

func mustNew(t interface{ Fatal(...any) }, cfg Config) *Picker {
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestAgainstModel: every decision, deadline and figure of the picker is that of the dumb model, for any configuration and history.
// It covers FC-PRI-01..14, FC-FAIR-01..11, FC-ORD-01..12, FC-SAT-01..19, FC-CEIL-01..11, FC-HEAD-04..12, FC-CAP-01..15,
// FC-TTL-01..09, FC-CAN-01..04, FC-SHUT-01..06, FC-EVI-01..17, FC-GC-01..06 and FC-PD-01..09 as far as the model states them.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		p, m := mustNew(t, cfg), newModel(cfg)
		late := rapid.Bool().Draw(t, "late driver")
		step := func(at time.Duration, ev Event) {
			got, want := p.Step(at, ev, nil), m.Step(at, ev)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%v %+v\n got %+v\nwant %+v", at, ev, got, want)
			}
			gotAt, gotOK := p.Deadline()
			if wantAt, wantOK := m.Deadline(); gotOK != wantOK || gotOK && gotAt != wantAt {
				t.Fatalf("%v %+v: deadline %v %v, want %v %v", at, ev, gotAt, gotOK, wantAt, wantOK)
			}
			if gotOK && gotAt <= at {
				t.Fatalf("%v %+v: deadline %v has passed", at, ev, gotAt)
			}
			if got := p.Pressure().Effective; got != first(m.pressure(false)) {
				t.Fatalf("%v %+v: pressure %v, want %v", at, ev, got, first(m.pressure(false)))
			}
			compareBands(t, p, m)
			if _, s := p.Evictions(nil); s.Confirmed != m.confirmed || s.TimedOut != m.timedOut || s.Outstanding != len(m.victims) {
				t.Fatalf("%v %+v: evictions %+v, want %d confirmed, %d timed out, %d outstanding", at, ev, s, m.confirmed, m.timedOut, len(m.victims))
			}
			if took := p.Confirmations(nil); !slices.Equal(took, m.took) {
				t.Fatalf("%v %+v: confirmed after %v, want %v", at, ev, took, m.took)
			}
			m.took = nil
			for _, e := range m.eps {
				if p.InFlight(e.ID) != m.on(e) || p.InFlightTokens(e.ID) != m.tokensOn(e) {
					t.Fatalf("%v %+v: %d requests and %d tokens on %d, want %d and %d", at, ev,
						p.InFlight(e.ID), p.InFlightTokens(e.ID), e.ID, m.on(e), m.tokensOn(e))
				}
			}
		}
		for _, x := range drawHistory(t) {
			for at, ok := p.Deadline(); ok && at <= x.at && !late; at, ok = p.Deadline() {
				step(at, Event{Kind: Tick})
			}
			step(x.at, x.ev)
		}
	})
}

func first(s float64, _ bool) float64 { return s }

func compareBands(t *rapid.T, p *Picker, m *model) {
	bands := p.Bands(nil)
	if len(bands) != len(m.bands) {
		t.Fatalf("bands %+v, want %d", bands, len(m.bands))
	}
	for i, b := range bands {
		want := BandState{Priority: m.bands[i].Priority, MaxRequests: m.bands[i].MaxRequests, MaxBytes: m.bands[i].MaxBytes,
			Ceiling: m.ceiling(i), Flows: len(m.bands[i].flows)}
		for _, r := range m.where(queuedIn(m.bands[i])) {
			want.Requests++
			want.Bytes += r.Bytes
		}
		if b != want {
			t.Fatalf("band %+v, want %+v", b, want)
		}
	}
}

type fataler interface{ Fatalf(string, ...any) }

// ledger is what an observer who knows only events and decisions may conclude.
type ledger struct {
	filling  map[uint64]EndpointID // running and not begun to answer: where the cache is filled
	blocked  int                   // requests that ever had to wait
	priority map[uint64]int        // queued
	running  map[uint64]EndpointID
	ended    map[uint64]bool // had a terminal decision
	evicted  map[uint64]bool
	pool     map[EndpointID]bool
	foreign  map[int]Report // of each replica the last one
}

func newLedger() ledger {
	return ledger{filling: map[uint64]EndpointID{}, priority: map[uint64]int{}, running: map[uint64]EndpointID{}, ended: map[uint64]bool{},
		evicted: map[uint64]bool{}, pool: map[EndpointID]bool{}, foreign: map[int]Report{}}
}

// TestInvariants: exactly one terminal decision per request, nothing lost, counts exact, no overshoot, strict priority and work
// conservation under a static ceiling (FC-PRI-01, FC-SAT-01, FC-SAT-02, FC-SAT-12, FC-CAP-09, FC-CAN-10, FC-SHUT-06, FC-EVI-02).
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		p := mustNew(t, cfg)
		l := newLedger()
		seen := map[uint64]bool{}
		for _, x := range drawHistory(t) {
			if x.ev.Kind == Arrive && seen[x.ev.ID] {
				continue // a driver never reuses an id
			}
			seen[x.ev.ID] = seen[x.ev.ID] || x.ev.Kind == Arrive
			l.before(x.ev)
			if x.ev.Kind == Foreign {
				l.reported(x.at, x.ev.Report)
			}
			for _, o := range p.Step(x.at, x.ev, nil) {
				l.decided(t, cfg, x.ev, o)
			}
			l.after(x.ev)
			l.check(t, cfg, p, x)
		}
	})
}

func (l *ledger) before(ev Event) {
	switch ev.Kind {
	case Arrive:
		l.priority[ev.ID] = ev.Request.Priority
	case Finish:
		delete(l.running, ev.ID)
		delete(l.filling, ev.ID)
	case FirstChunk:
		delete(l.filling, ev.ID)
	case SetEndpoint:
		l.pool[ev.Endpoint.ID] = true
	case RemoveEndpoint:
		delete(l.pool, ev.Endpoint.ID)
	}
}

func (l *ledger) decided(t fataler, cfg Config, ev Event, o Out) {
	if o.Kind == Evict {
		if _, running := l.running[o.ID]; !running || l.evicted[o.ID] || !cfg.Flow.Eviction {
			t.Fatalf("%+v: %+v is not stoppable", ev, o)
		}
		l.evicted[o.ID] = true
		return
	}
	if _, queued := l.priority[o.ID]; !queued || l.ended[o.ID] {
		t.Fatalf("%+v: second or unfounded decision %+v", ev, o)
	}
	l.ended[o.ID] = true
	delete(l.priority, o.ID)
	if (o.Kind == Dispatch) != (o.Outcome == wire.Dispatched) {
		t.Fatalf("kind and outcome disagree: %+v", o)
	}
	if o.Kind == Dispatch {
		if !l.pool[o.Endpoint] {
			t.Fatalf("%+v: to an endpoint outside the pool", o)
		}
		l.running[o.ID] = o.Endpoint
		if o.Split {
			if !l.pool[o.Prefill] || o.Prefill == o.Endpoint || !cfg.Flow.Stages {
				t.Fatalf("%+v: %+v cannot prefill there", ev, o)
			}
			l.filling[o.ID] = o.Prefill
		}
	}
}

// after counts who had to wait.
func (l *ledger) after(ev Event) {
	if _, waits := l.priority[ev.ID]; waits && ev.Kind == Arrive {
		l.blocked++
	}
}

// reported keeps the latest report of a replica.
func (l *ledger) reported(now time.Duration, r Report) {
	r.At = min(r.At, now)
	if old, known := l.foreign[r.Replica]; !known || old.At <= r.At {
		l.foreign[r.Replica] = r
	}
}

// elsewhere is what the other replicas have in flight in the pool, by reports that are young enough.
func (l *ledger) elsewhere(now, limit time.Duration) (n int) {
	for _, r := range l.foreign {
		for _, load := range r.Loads {
			if now-r.At <= limit && limit > 0 && l.pool[load.Endpoint] {
				n += load.Requests
			}
		}
	}
	return n
}

func (l *ledger) check(t fataler, cfg Config, p *Picker, x timed) {
	ev := x.ev
	if p.QueueLen() != len(l.priority) {
		t.Fatalf("%+v: %d queued, want %d", ev, p.QueueLen(), len(l.priority))
	}
	// k blocked requests cost at most k victims, those that did not end aside (FC-EVI-09).
	if _, s := p.Evictions(nil); len(l.evicted) > l.blocked+int(s.TimedOut) {
		t.Fatalf("%+v: %d victims for %d blocked requests, %d timed out", ev, len(l.evicted), l.blocked, s.TimedOut)
	}
	on := map[EndpointID]int{}
	for _, e := range l.filling {
		on[e]++
	}
	inPool := 0
	for _, e := range l.running {
		on[e]++
		if l.pool[e] {
			inPool++
		}
	}
	for e := range EndpointID(3) {
		if p.InFlight(e) != on[e] {
			t.Fatalf("%+v: %d in flight on %d, want %d", ev, p.InFlight(e), e, on[e])
		}
	}
	d, c := cfg.Flow.Detector, cfg.Flow.Ceiling
	static := c.Kind == flowcontrol.Static
	if !static || d.Kind != flowcontrol.Concurrency || d.Mode != flowcontrol.Requests || cfg.Flow.Stages {
		return
	}
	limit := c.Threshold * float64(len(l.pool)*d.MaxConcurrency)
	inPool += l.elsewhere(x.at, d.ForeignLimit)
	if len(l.priority) > 0 && len(l.pool) > 0 && float64(inPool) < limit {
		t.Fatalf("%+v: %d wait although %d of %v are in flight", ev, len(l.priority), inPool, limit)
	}
}

// TestNoOvershoot: with the concurrency detector a step never leaves more in flight than the limit allows, unless endpoints left
// while their requests ran; and no dispatch passes over a request of a higher band (FC-SAT-12, FC-SAT-22, FC-PRI-01).
func TestNoOvershoot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		cfg.Flow.Detector.Kind, cfg.Flow.Detector.Mode = flowcontrol.Concurrency, flowcontrol.Requests
		cfg.Flow.Ceiling = flowcontrol.CeilingConfig{Threshold: 1}
		cfg.Flow.Stages, cfg.Flow.Bands = false, nil
		for _, b := range priorities {
			cfg.Flow.Bands = append(cfg.Flow.Bands, flowcontrol.BandConfig{Priority: b, Fairness: flowcontrol.Fairness((b & 3) % 3)})
		}
		p := mustNew(t, cfg)
		queued, seen := map[uint64]int{}, map[uint64]bool{}
		endpoints := map[EndpointID]bool{}
		for _, x := range drawHistory(t) {
			switch x.ev.Kind {
			case RemoveEndpoint:
				continue
			case SetEndpoint:
				endpoints[x.ev.Endpoint.ID] = true
			case Arrive:
				if seen[x.ev.ID] {
					continue
				}
				seen[x.ev.ID], queued[x.ev.ID] = true, x.ev.Request.Priority
			}
			for _, o := range p.Step(x.at, x.ev, nil) {
				if o.Kind == Evict {
					continue
				}
				delete(queued, o.ID)
				for id, higher := range queued {
					if o.Kind == Dispatch && higher > o.Band {
						t.Fatalf("%d of band %d overtook %d of band %d", o.ID, o.Band, id, higher)
					}
				}
			}
			n := 0
			for e := range endpoints {
				n += p.InFlight(e)
			}
			if limit := len(endpoints) * cfg.Flow.Detector.MaxConcurrency; n > limit {
				t.Fatalf("%+v: %d in flight, limit %d", x.ev, n, limit)
			}
		}
	})
}

// replay gives every decision of a history in which the driver ticks at every deadline and, if asked, in between.
func replay(t *rapid.T, cfg Config, h []timed, extra time.Duration) (out []Out, at []time.Duration) {
	p := mustNew(t, cfg)
	step := func(now time.Duration, ev Event) {
		n := len(out)
		out = p.Step(now, ev, out)
		for range len(out) - n {
			at = append(at, now)
		}
	}
	last := time.Duration(0)
	for _, x := range h {
		for {
			next, ok := p.Deadline()
			if extra > 0 && last+extra < x.at && (!ok || last+extra < next) {
				next, ok = last+extra, true
			}
			if !ok || next > x.at {
				break
			}
			step(next, Event{Kind: Tick})
			last = next
		}
		step(x.at, x.ev)
		last = x.at
	}
	return out, at
}

// TestMetamorphic: what must not matter does not. Ticks between deadlines (an extra Tick is harmless), the names of flows
// (FC-FAIR-01, FC-FAIR-06), and idle bands under a static ceiling (FC-PRI-05).
func TestMetamorphic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg, h := drawConfig(t), drawHistory(t)
		want, wantAt := replay(t, cfg, h, 0)
		same := func(what string, cfg Config, h []timed, extra time.Duration) {
			if got, at := replay(t, cfg, h, extra); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(at, wantAt) {
				t.Fatalf("%s\n got %+v\n  at %v\nwant %+v\n  at %v", what, got, at, want, wantAt)
			}
		}
		if cfg.Flow.Ceiling.Kind != flowcontrol.SoftReflective { // there a Tick is one more dispatch cycle
			same("extra ticks", cfg, h, rapid.SampledFrom([]time.Duration{time.Millisecond, 9 * time.Millisecond}).Draw(t, "extra"))
		}
		renamed := append([]timed(nil), h...)
		for i := range renamed {
			if f := &renamed[i].ev.Request.FairnessID; *f != "" {
				*f = fmt.Sprintf("%c-%s", 'z'-(*f)[0]+'a', *f)
			}
		}
		same("renamed flows", cfg, renamed, 0)
		if cfg.Flow.Ceiling.Kind == flowcontrol.Static {
			more := cfg
			more.Flow.Bands = append([]flowcontrol.BandConfig{{Priority: 3}, {Priority: -3}, {Priority: 1000}}, cfg.Flow.Bands...)
			same("idle bands", more, h, 0)
		}
	})
}
