package epp

import (
	"fmt"
	"sync"
	"testing"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/extproc"
	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/picker"
)

// BenchmarkDriverDrain is a backlog of 10,000 callers of 1,000 flows, each a goroutine that waits in Submit on an empty pool, which leaves
// when an endpoint with room for all of them comes: the driver, the machine behind it and all metrics, without ext_proc. The rate counts
// from the change of the pool until the last caller has its placement.
func BenchmarkDriverDrain(b *testing.B) {
	const backlog = 10_000
	o := capacity(b, 10*backlog)
	o.Config.Picker.Flow.DefaultBand = flowcontrol.BandConfig{Fairness: flowcontrol.RoundRobin}
	p, err := picker.New(o.Config.Picker)
	if err != nil {
		b.Fatal(err)
	}
	d := NewDriver(p, DriverConfig{Metrics: NewMetrics("pool", o.Config), NeverEvicts: true})
	defer d.Close()
	ids := make([]uint64, backlog)
	for b.Loop() {
		b.StopTimer()
		d.SetEndpoints(nil)
		var submitted, placed sync.WaitGroup
		submitted.Add(backlog)
		for i := range backlog {
			placed.Go(func() {
				s := extproc.Submission{Incoming: "m", Request: picker.Request{Model: "m", FairnessID: fmt.Sprint("tenant-", i%1000), Bytes: 1000}}
				submitted.Done()
				at, outcome := d.Submit(b.Context(), s)
				if ids[i] = at.ID; outcome != wire.Dispatched {
					b.Error(outcome)
				}
			})
		}
		submitted.Wait()
		for m, waiting := d.cfg.Metrics, int64(0); waiting < backlog; { // one that has said so may not have reached the machine
			d.await(picker.Event{Kind: picker.Tick})
			m.mu.Lock()
			waiting = m.total.requests
			m.mu.Unlock()
		}
		b.StartTimer()
		d.SetEndpoints([]picker.Endpoint{{Name: "a", Address: "10.0.0.1:80"}})
		placed.Wait()
		b.StopTimer()
		for _, id := range ids {
			d.Finish(id)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.N)*backlog/b.Elapsed().Seconds(), "dispatches/s")
}
