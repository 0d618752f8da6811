package epp

import (
	"fmt"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/picker"
)

func TestPressureLabelsByContract(t *testing.T) {
	p := picker.Pressure{Effective: 0.9, Prefill: 0.65, Decode: 0.9, HasPrefill: true, HasDecode: true, Stale: 2}
	m := testMetrics()
	m.Pressure(p)
	name := wire.PrefixFlowControl + wire.MetricPoolSaturation
	for stage, want := range map[string]float64{"effective": 0.9, "prefill": 0.65, "decode": 0.9} {
		if got := value(t, m, name, map[string]string{"stage": stage, "inference_pool": "pool"}); got != want {
			t.Errorf("%s: %v", stage, got)
		}
	}
	if got := value(t, m, wire.PrefixFlowControl+"stale_endpoints", map[string]string{"detector": "utilization-detector"}); got != 2 {
		t.Errorf("stale_endpoints %v", got)
	}
	p.HasPrefill = false
	m.Pressure(p)
	if got := value(t, m, name, map[string]string{"stage": "prefill"}); got != -1 {
		t.Errorf("the series of an empty stage is deleted, got %v", got)
	}

	c, _ := epconfig.ContractNamed(epconfig.Router09)
	old := NewMetrics("pool", epconfig.Default(c))
	old.Pressure(p)
	families, _ := old.Gatherer().Gather()
	for _, f := range families {
		if f.GetName() == name && len(f.GetMetric()[0].GetLabel()) != 1 {
			t.Errorf("router 0.9 has no stage label: %v", f.GetMetric()[0].GetLabel())
		}
	}
}

func TestCapacityUtilization(t *testing.T) {
	c, _ := epconfig.ContractNamed("")
	cfg := epconfig.Default(c)
	cfg.Picker.Flow.MaxRequests = 10
	cfg.Picker.Flow.Bands = []flowcontrol.BandConfig{{Priority: 5, MaxRequests: 4, MaxBytes: 100}}
	m := NewMetrics("p", cfg)
	m.Enqueued(Labels{"m", "m", "f", 5}, 50)
	for name, want := range map[string]float64{"capacity_utilization_requests": 0.25, "capacity_utilization_bytes": 0.5, "global_capacity_utilization_requests": 0.1, "global_capacity_utilization_bytes": -1} {
		if got := value(t, m, wire.PrefixFlowControl+name, nil); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	m.Decided(Labels{"m", "m", "f", 5}, 5, 50, wire.EvictedTTL, 0)
	if got := value(t, m, wire.PrefixFlowControl+"capacity_utilization_requests", nil); got != 0 {
		t.Errorf("back to exactly 0, got %v", got)
	}
}

func TestCardinality(t *testing.T) {
	m := testMetrics()
	for i := range valueCap + 50 {
		m.Enqueued(Labels{"m", "m", fmt.Sprint("flow", i), 0}, 1)
	}
	if got := value(t, m, wire.PrefixFlowControl+wire.MetricQueueSize, map[string]string{"fairness_id": "other"}); got != 50 {
		t.Errorf("%v requests under \"other\"", got)
	}
	for i := range valueCap + 50 {
		m.Decided(Labels{"m", "m", fmt.Sprint("flow", i), 0}, 0, 1, wire.EvictedOther, 0)
	}
	if got := value(t, m, wire.PrefixFlowControl+wire.MetricQueueSize, map[string]string{"fairness_id": "other"}); got != 0 {
		t.Errorf("%v left", got)
	}
}

func TestPoolSeries(t *testing.T) {
	m := testMetrics()
	m.Endpoints([]picker.Endpoint{{ID: 0, Name: "a"}, {ID: 1, Name: "b"}, {ID: 2, Name: "c"}})
	m.Sample(0, picker.Load{Waiting: 4, Running: 2, KV: 0.5, OK: true})
	m.Sample(1, picker.Load{Waiting: 1, Running: 3, KV: 0.25, OK: true})
	m.Sample(1, picker.Load{}) // a failed scrape changes nothing
	for name, want := range map[string]float64{
		"llm_d_epp_average_queue_size": 2.5, "inference_pool_average_queue_size": 2.5, "llm_d_epp_average_running_requests": 2.5,
		"llm_d_epp_average_kv_cache_utilization": 0.38, "llm_d_epp_ready_endpoints": 3, "inference_pool_ready_pods": 3,
	} {
		if got := value(t, m, name, map[string]string{"name": "pool"}); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if got := value(t, m, "llm_d_epp_per_endpoint_queue_size", map[string]string{"model_server_endpoint": "a"}); got != 4 {
		t.Error(got)
	}
	m.Endpoints(nil)
	if got := value(t, m, "llm_d_epp_ready_endpoints", nil); got != 0 {
		t.Error(got)
	}
}

func TestEvictionSeries(t *testing.T) {
	m := testMetrics()
	m.Evictions(nil, picker.EvictionState{})
	if got := value(t, m, wire.PrefixFlowControl+"revocations_total", nil); got != -1 {
		t.Error("nothing before the first decision")
	}
	for range 2 {
		m.Evictions([]picker.PriorityCount{{Priority: 100, Count: 3}}, picker.EvictionState{Confirmed: 2, TimedOut: 1})
	}
	if got := value(t, m, wire.PrefixFlowControl+"revocations_issued_total", map[string]string{"priority": "100"}); got != 3 {
		t.Error(got)
	}
	if got := value(t, m, wire.PrefixFlowControl+"revocations_total", map[string]string{"outcome": "confirmed"}); got != 2 {
		t.Error(got)
	}
}

func TestThrough(t *testing.T) {
	g := Through(testMetrics().Gatherer(), func([]*dto.MetricFamily) []*dto.MetricFamily { return nil })
	if fs, err := g.Gather(); len(fs) != 0 || err != nil {
		t.Error(fs, err)
	}
}
