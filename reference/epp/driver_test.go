package epp

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/extproc"
	"github.com/llm-weir/weir/reference/picker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slots is a small machine: one first-in first-out queue before a number of slots on the first endpoint, with a wait limit.
type slots struct {
	free    int
	ttl     time.Duration
	queue   []uint64
	since   map[uint64]time.Duration
	pool    []picker.EndpointID
	events  []picker.EventKind
	evict   uint64 // evict this request at the next event
	down    bool
	removed int
}

func newSlots(n int, ttl time.Duration) *slots {
	return &slots{free: n, ttl: ttl, since: map[uint64]time.Duration{}}
}

func (m *slots) Step(now time.Duration, ev picker.Event, out []picker.Out) []picker.Out {
	m.events = append(m.events, ev.Kind)
	if m.evict != 0 {
		out = append(out, picker.Out{Kind: picker.Evict, ID: m.evict, Outcome: wire.Dispatched}, picker.Out{Kind: picker.Evict, ID: m.evict})
		m.evict = 0
	}
	end := func(id uint64, o wire.Outcome) {
		for i, q := range m.queue {
			if q == id {
				m.queue = append(m.queue[:i:i], m.queue[i+1:]...)
				out = append(out, picker.Out{Kind: picker.Reject, ID: id, Outcome: o, Waited: now - m.since[id]})
				return
			}
		}
	}
	switch ev.Kind {
	case picker.Arrive:
		m.queue, m.since[ev.ID] = append(m.queue, ev.ID), now
		if m.down {
			end(ev.ID, wire.RejectedOther)
		}
	case picker.Cancel:
		end(ev.ID, wire.EvictedContextCancelled)
	case picker.Finish:
		m.free++
	case picker.SetEndpoint:
		m.pool = append(m.pool, ev.Endpoint.ID)
	case picker.RemoveEndpoint:
		m.removed++
		m.pool = m.pool[1:]
	case picker.Shutdown:
		m.down = true
		for len(m.queue) > 0 {
			end(m.queue[0], wire.EvictedOther)
		}
	}
	for len(m.queue) > 0 && m.ttl > 0 && now-m.since[m.queue[0]] >= m.ttl {
		end(m.queue[0], wire.EvictedTTL)
	}
	for len(m.queue) > 0 && m.free > 0 && len(m.pool) > 0 {
		id := m.queue[0]
		m.queue, m.free = m.queue[1:], m.free-1
		out = append(out, picker.Out{Kind: picker.Dispatch, ID: id, Outcome: wire.Dispatched, Endpoint: m.pool[0], Waited: now - m.since[id]})
	}
	return out
}

func (m *slots) Deadline() (time.Duration, bool) {
	if len(m.queue) == 0 || m.ttl == 0 {
		return 0, false
	}
	return m.since[m.queue[0]] + m.ttl, true
}

func (m *slots) Pressure() picker.Pressure { return picker.Pressure{Effective: 0.5} }

var one = []picker.Endpoint{{Name: "a", Address: "10.0.0.1:80"}}

func testMetrics() *Metrics {
	c, _ := epconfig.ContractNamed("")
	return NewMetrics("pool", epconfig.Default(c))
}

// value reads one series from the registry; -1 if it is not there.
func value(t *testing.T, m *Metrics, name string, labels map[string]string) float64 {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, s := range f.GetMetric() {
			have := map[string]string{}
			for _, l := range s.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			for k, v := range labels {
				if have[k] != v {
					continue series
				}
			}
			switch {
			case s.Gauge != nil:
				return s.GetGauge().GetValue()
			case s.Counter != nil:
				return s.GetCounter().GetValue()
			default:
				return float64(s.GetHistogram().GetSampleCount())
			}
		}
	}
	return -1
}

func TestDispatchQueueFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var decisions []Decision
		m := testMetrics()
		d := NewDriver(newSlots(1, 0), DriverConfig{Metrics: m, OnDecision: func(x Decision) { mu.Lock(); decisions = append(decisions, x); mu.Unlock() }})
		defer d.Close()
		d.SetEndpoints(one)
		p, o := d.Submit(t.Context(), extproc.Submission{Label: "first", Incoming: "m", Request: picker.Request{FairnessID: "f", Priority: 3, Model: "m", Bytes: 10}})
		if o != wire.Dispatched || p.Endpoint.Name != "a" {
			t.Fatal(p, o)
		}
		second := make(chan Placement)
		go func() {
			p, _ := d.Submit(t.Context(), extproc.Submission{Label: "second", Incoming: "m", Request: picker.Request{FairnessID: "f", Priority: 3, Model: "m", Bytes: 10}})
			second <- p
		}()
		synctest.Wait()
		labels := map[string]string{"fairness_id": "f", "priority": "3", "model_name": "m", "inference_pool": "pool"}
		for _, prefix := range []string{wire.PrefixFlowControl, wire.PrefixLegacyFC} {
			if q, b := value(t, m, prefix+wire.MetricQueueSize, labels), value(t, m, prefix+wire.MetricQueueBytes, labels); q != 1 || b != 10 {
				t.Errorf("%s: %v queued, %v bytes", prefix, q, b)
			}
		}
		clock.Sleep(t.Context(), 2*time.Second) // fake time: the wait shows in the records
		d.Finish(p.ID)
		q := <-second
		d.Finish(q.ID)
		d.SetEndpoints(one) // a round trip: everything before is done
		if q := value(t, m, wire.PrefixFlowControl+wire.MetricQueueSize, labels); q != 0 {
			t.Errorf("queue_size is %v at the end, the series has to stay at 0", q)
		}
		if r := value(t, m, wire.PrefixEPP+"request_running", nil); r != 0 {
			t.Errorf("request_running %v", r)
		}
		if c := value(t, m, wire.PrefixFlowControl+wire.MetricRequestsTotal, map[string]string{"outcome": "Dispatched", "priority": "3"}); c != 2 {
			t.Errorf("requests_total %v", c)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(decisions) != 2 || decisions[1].Label != "second" || decisions[1].Waited != 2*time.Second || decisions[1].Endpoint != "a" ||
			decisions[1].Flow != "f" || decisions[1].Saturation != 0.5 {
			t.Errorf("%+v", decisions)
		}
	})
}

func TestDeadlineWakesTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.NewReal()
		d := NewDriver(newSlots(0, 5*time.Second), DriverConfig{Clock: c})
		defer d.Close()
		begin := c.Now()
		for i := range 2 {
			if _, o := d.Submit(t.Context(), extproc.Submission{}); o != wire.EvictedTTL {
				t.Errorf("outcome %v", o)
			}
			if waited := c.Now() - begin; waited != time.Duration(i+1)*5*time.Second {
				t.Errorf("decided after %v", waited)
			}
		}
	})
}

func TestCancelWaitsForTheDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDriver(newSlots(0, 0), DriverConfig{})
		defer d.Close()
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan wire.Outcome)
		go func() { _, o := d.Submit(ctx, extproc.Submission{}); got <- o }()
		synctest.Wait()
		cancel()
		if o := <-got; o != wire.EvictedContextCancelled {
			t.Error(o)
		}
	})
}

// TestNeverEvicts: where nobody watches for evictions a machine that errs stops nothing, and only the picker itself is believed.
func TestNeverEvicts(t *testing.T) {
	m := newSlots(1, 0)
	d := NewDriver(m, DriverConfig{NeverEvicts: true})
	defer d.Close()
	d.SetEndpoints(one)
	p, _ := d.Submit(t.Context(), extproc.Submission{})
	d.Shutdown() // a round trip, behind which the machine is ours to change until the next
	m.evict = p.ID
	d.Finish(p.ID)
	<-d.Idle()
	if p.Evicted != nil {
		t.Error("something to watch")
	}
	for evicts, want := range map[bool]bool{true: false, false: true} {
		cfg := capacity(t, 1).Config.Picker
		cfg.Flow.Eviction = evicts
		own, err := picker.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if neverEvicts(own) != want || neverEvicts(m) {
			t.Errorf("eviction %v", evicts)
		}
	}
}

func TestEvictionIsSignalledOnce(t *testing.T) {
	m := newSlots(1, 0)
	d := NewDriver(m, DriverConfig{})
	defer d.Close()
	d.SetEndpoints(one)
	p, _ := d.Submit(t.Context(), extproc.Submission{})
	m.evict = p.ID // the goroutine owns the machine; it waits for an event now and sees this through the channel
	d.FirstChunk(p.ID)
	<-p.Evicted
	d.Finish(p.ID)
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDriver(newSlots(1, 0), DriverConfig{})
		defer d.Close()
		d.SetEndpoints(one)
		p, _ := d.Submit(t.Context(), extproc.Submission{})
		queued := make(chan wire.Outcome)
		go func() { _, o := d.Submit(t.Context(), extproc.Submission{}); queued <- o }()
		synctest.Wait()
		go d.Shutdown()
		if o := <-queued; o != wire.EvictedOther {
			t.Error(o)
		}
		if _, o := d.Submit(t.Context(), extproc.Submission{}); o != wire.RejectedOther {
			t.Error(o)
		}
		select {
		case <-d.Idle():
			t.Error("idle while a request is in flight")
		default:
		}
		d.Finish(p.ID)
		<-d.Idle()
	})
}

func TestCloseReleasesEveryone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDriver(newSlots(0, time.Hour), DriverConfig{})
		got := make(chan wire.Outcome, 5)
		for range cap(got) {
			go func() { _, o := d.Submit(context.Background(), extproc.Submission{}); got <- o }()
		}
		synctest.Wait()
		d.Close()
		for range cap(got) {
			if o := <-got; o != wire.EvictedOther {
				t.Error(o)
			}
		}
		if _, o := d.Submit(context.Background(), extproc.Submission{}); o != wire.RejectedOther {
			t.Error(o)
		}
		d.Finish(1) // neither blocks nor panics
		d.Close()
	})
}

func TestEndpointIDs(t *testing.T) {
	m := newSlots(1, 0)
	d := NewDriver(m, DriverConfig{})
	a, b := picker.Endpoint{Name: "a", Address: "1.1.1.1:1"}, picker.Endpoint{Name: "b", Address: "1.1.1.1:2"}
	ids := func(list []picker.Endpoint) (out []int) {
		for _, e := range list {
			out = append(out, int(e.ID))
		}
		return out
	}
	if got := ids(d.SetEndpoints([]picker.Endpoint{a, b, a})); !reflect.DeepEqual(got, []int{0, 1}) {
		t.Error("one id an address:", got)
	}
	d.SetEndpoints([]picker.Endpoint{a, b})
	d.SetEndpoints(nil)
	if _, ok := d.Any(); ok {
		t.Error("an empty pool has no endpoint")
	}
	if got := ids(d.SetEndpoints([]picker.Endpoint{{Name: "c", Address: "1.1.1.1:3"}, b})); !reflect.DeepEqual(got, []int{2, 1}) {
		t.Error("an id stays with its address:", got)
	}
	d.Close()
	var sets int
	for _, k := range m.events {
		if k == picker.SetEndpoint {
			sets++
		}
	}
	if sets != 4 || m.removed != 2 {
		t.Errorf("%d set, %d removed events; unchanged endpoints cause none", sets, m.removed)
	}
}

func TestObjectives(t *testing.T) {
	d := NewDriver(newSlots(1, 0), DriverConfig{})
	defer d.Close()
	d.SetObjectives(map[string]int{"high": 100, "shed": -10, "also": 100})
	for name, want := range map[string]int{"high": 100, "shed": -10, "": 0, "unknown": 0} {
		if got := d.Priority(name); got != want {
			t.Errorf("%q: %d", name, got)
		}
	}
	if got := distinct(map[string]int{"a": 1, "b": -1, "c": 1}); !reflect.DeepEqual(got, []int{1, -1}) {
		t.Error(got)
	}
}

// TestManyRequests lets many callers arrive, give up and finish at once: every one gets one outcome and the books are empty after.
func TestManyRequests(t *testing.T) {
	m := testMetrics()
	d := NewDriver(newSlots(3, 0), DriverConfig{Metrics: m})
	d.SetEndpoints(one)
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if i%5 == 0 {
				cancel()
			}
			p, o := d.Submit(ctx, extproc.Submission{Label: fmt.Sprint(i), Request: picker.Request{FairnessID: fmt.Sprint(i % 7), Bytes: int64(i)}})
			switch o {
			case wire.Dispatched:
				d.FirstChunk(p.ID)
				d.Finish(p.ID)
			case wire.EvictedContextCancelled:
			default:
				t.Errorf("outcome %v", o)
			}
		})
	}
	wg.Wait()
	d.Shutdown()
	<-d.Idle()
	d.Close()
	for i := range 7 {
		labels := map[string]string{"fairness_id": fmt.Sprint(i)}
		if q, b := value(t, m, wire.PrefixFlowControl+wire.MetricQueueSize, labels), value(t, m, wire.PrefixFlowControl+wire.MetricQueueBytes, labels); q != 0 || b != 0 {
			t.Errorf("flow %d: %v requests, %v bytes left", i, q, b)
		}
	}
}
