package picker

import (
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/flowcontrol"
)

// TestFactsForDrivers: what drivers show agrees with what was decided (FC-GC-03, FC-GC-05, FC-CAP-09).
func TestFactsForDrivers(t *testing.T) {
	p := mustNew(t, Config{Flow: flowcontrol.Config{
		FlowIdle: time.Minute, MaxBytes: 10,
		Bands:    []flowcontrol.BandConfig{{Priority: 5, MaxRequests: 3, MaxBytes: 4}},
		Detector: flowcontrol.DetectorConfig{Kind: flowcontrol.Concurrency, MaxConcurrency: 1},
		Ceiling:  flowcontrol.CeilingConfig{Threshold: 1},
	}})
	p.Step(0, Event{Kind: SetEndpoint, Endpoint: Endpoint{ID: 3}}, nil)
	p.Step(0, Event{Kind: Arrive, ID: 1, Request: Request{Priority: 5, Bytes: 1}}, nil)
	p.Step(0, Event{Kind: Arrive, ID: 2, Request: Request{Priority: 5, Bytes: 2, FairnessID: "a"}}, nil)
	if p.InFlight(3) != 1 || p.InFlight(0) != 0 || p.InFlight(-1) != 0 || p.InFlight(99) != 0 || p.QueueLen() != 1 {
		t.Errorf("in flight %d, queued %d", p.InFlight(3), p.QueueLen())
	}
	want := BandState{Priority: 5, Requests: 1, Bytes: 2, MaxRequests: 3, MaxBytes: 4, Ceiling: 1, Flows: 2}
	if b := p.Bands(nil); len(b) != 2 || b[0] != want {
		t.Errorf("bands %+v, want first %+v", b, want)
	}
	if !p.HasFlow(5, wire.DefaultFlow) || !p.HasFlow(5, "a") || p.HasFlow(0, "a") || p.HasFlow(77, "a") {
		t.Error("flows are not where they were queued")
	}
	p.Step(time.Second, Event{Kind: Finish, ID: 1}, nil)
	p.Step(time.Hour, Event{Kind: Tick}, nil)
	if p.HasFlow(5, wire.DefaultFlow) || !p.HasFlow(5, "a") {
		t.Error("the idle flow stays or the running one was collected")
	}
}

// TestGateOff: with flow control off nobody waits, whatever the limits say, and only negative priorities are refused, at saturation
// (FC-CFG-02, FC-REF-14).
func TestGateOff(t *testing.T) {
	p := mustNew(t, Config{Flow: flowcontrol.Config{
		Off: true, ShedAt: 1, MaxRequests: 1, TTL: time.Second, Eviction: true, EmptyPoolOutcomes: true,
		Detector: flowcontrol.DetectorConfig{Kind: flowcontrol.Concurrency, MaxConcurrency: 2},
		Ceiling:  flowcontrol.CeilingConfig{Threshold: 0.5},
	}})
	if !p.Off() {
		t.Error("it does not say that it is off")
	}
	arrive := func(id uint64, priority int) Out {
		out := p.Step(0, Event{Kind: Arrive, ID: id, Request: Request{Priority: priority}}, nil)
		if len(out) != 1 || out[0].ID != id || p.QueueLen() != 0 {
			t.Fatalf("request %d: %+v, %d queued", id, out, p.QueueLen())
		}
		return out[0]
	}
	if o := arrive(1, 0); o.Kind != Reject || o.Outcome != wire.RejectedNoEndpoints {
		t.Errorf("on an empty pool: %+v", o)
	}
	p.Step(0, Event{Kind: SetEndpoint, Endpoint: Endpoint{ID: 3}}, nil)
	for _, c := range []struct {
		id       uint64
		priority int
		kind     OutKind
	}{{2, -1, Dispatch}, {3, 0, Dispatch}, {4, 0, Dispatch}, {5, -1, Reject}, {6, 100, Dispatch}} {
		if o := arrive(c.id, c.priority); o.Kind != c.kind {
			t.Errorf("request %d of priority %d: %+v", c.id, c.priority, o)
		}
	}
	if p.InFlight(3) != 4 {
		t.Errorf("%d in flight, 4 were dispatched", p.InFlight(3))
	}
	p.Step(0, Event{Kind: Finish, ID: 2}, nil)
	p.Step(0, Event{Kind: Finish, ID: 3}, nil)
	p.Step(0, Event{Kind: Finish, ID: 4}, nil)
	if o := arrive(7, -1); o.Kind != Dispatch {
		t.Errorf("below saturation: %+v", o)
	}
}
