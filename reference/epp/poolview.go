package epp

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/picker"
)

// poolView computes the pool's series (spec/endpoint-picker.md §7.2) from the last samples at the moment they are read, so that
// neither a sample nor a change of the pool costs a pass over all endpoints.
type poolView struct {
	pool string
	desc map[string]*prometheus.Desc

	mu        sync.Mutex
	endpoints []picker.Endpoint
	loads     map[picker.EndpointID]picker.Load
}

// The pool's series: name under PrefixEPP and the older twin.
var poolSeries = [][2]string{
	{"average_kv_cache_utilization", "average_kv_cache_utilization"}, {"average_queue_size", "average_queue_size"},
	{"average_running_requests", "average_running_requests"}, {"ready_endpoints", "ready_pods"},
}

const perEndpoint = "per_endpoint_queue_size"

func newPoolView(pool string) *poolView {
	v := &poolView{pool: pool, desc: map[string]*prometheus.Desc{}, loads: map[picker.EndpointID]picker.Load{}}
	for _, s := range poolSeries {
		for _, name := range []string{wire.PrefixEPP + s[0], wire.PrefixLegacyPool + s[1]} {
			v.desc[name] = prometheus.NewDesc(name, "State of the pool as last scraped.", []string{"name"}, nil)
		}
	}
	for name, label := range map[string]string{wire.PrefixEPP + perEndpoint: "model_server_endpoint", wire.PrefixLegacyPool + "per_pod_queue_size": "model_server_pod"} {
		v.desc[name] = prometheus.NewDesc(name, "Requests waiting at a model server.", []string{"name", label}, nil)
	}
	return v
}

func (v *poolView) set(pool []picker.Endpoint) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.endpoints = append([]picker.Endpoint(nil), pool...)
	keep := map[picker.EndpointID]picker.Load{}
	for _, e := range pool {
		if l, ok := v.loads[e.ID]; ok {
			keep[e.ID] = l
		}
	}
	v.loads = keep
}

func (v *poolView) sample(id picker.EndpointID, l picker.Load) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.loads[id] = l
}

// Describe implements prometheus.Collector.
func (v *poolView) Describe(out chan<- *prometheus.Desc) {
	for _, d := range v.desc {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (v *poolView) Collect(out chan<- prometheus.Metric) {
	v.mu.Lock()
	defer v.mu.Unlock()
	emit := func(name string, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(v.desc[name], prometheus.GaugeValue, value, labels...)
	}
	var kv, queue, running float64
	var sampled int
	for _, e := range v.endpoints {
		l, ok := v.loads[e.ID]
		if !ok {
			continue
		}
		sampled++
		kv, queue, running = kv+l.KV, queue+l.Waiting, running+l.Running
		emit(wire.PrefixEPP+perEndpoint, l.Waiting, v.pool, e.Name)
		emit(wire.PrefixLegacyPool+"per_pod_queue_size", l.Waiting, v.pool, e.Name)
	}
	n := float64(max(sampled, 1))
	values := []float64{round2(kv / n), round2(queue / n), round2(running / n), float64(len(v.endpoints))}
	for i, s := range poolSeries {
		emit(wire.PrefixEPP+s[0], values[i], v.pool)
		emit(wire.PrefixLegacyPool+s[1], values[i], v.pool)
	}
}
