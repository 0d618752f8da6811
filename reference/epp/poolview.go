package epp

import (
	"math"
	"sync"
	"time"

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
	latest    time.Duration // when the latest scrape began, failed ones included: the view's notion of now
	last      [6]float64    // averages and deviations as last computed; kept while every endpoint is stale
}

// The pool's series: name under PrefixEPP and the older twin, "" for none. The order is that of poolView.last.
var poolSeries = [][2]string{
	{"average_kv_cache_utilization", "average_kv_cache_utilization"}, {"average_queue_size", "average_queue_size"},
	{"average_running_requests", "average_running_requests"},
	{"std_dev_kv_cache_utilization", ""}, {"std_dev_queue_size", ""}, {"std_dev_running_requests", ""},
	{"ready_endpoints", "ready_pods"},
}

const perEndpoint = "per_endpoint_queue_size"

// freshness is the age up to which a sample counts in the averages, --metrics-staleness-threshold of the router.
const freshness = 2 * time.Second

func newPoolView(pool string) *poolView {
	v := &poolView{pool: pool, desc: map[string]*prometheus.Desc{}, loads: map[picker.EndpointID]picker.Load{}}
	for _, s := range poolSeries {
		names := []string{wire.PrefixEPP + s[0]}
		if s[1] != "" {
			names = append(names, wire.PrefixLegacyPool+s[1])
		}
		for _, name := range names {
			v.desc[name] = prometheus.NewDesc(name, "State of the pool as last scraped.", []string{"name"}, nil)
		}
	}
	for name, label := range map[string]string{wire.PrefixEPP + perEndpoint: "model_server_endpoint", wire.PrefixLegacyPool + "per_pod_queue_size": "model_server_pod"} {
		v.desc[name] = prometheus.NewDesc(name, "Requests waiting at a model server.", []string{"name", label}, nil)
	}
	return v
}

// set replaces the pool and returns the former one.
func (v *poolView) set(pool []picker.Endpoint) []picker.Endpoint {
	v.mu.Lock()
	defer v.mu.Unlock()
	former := v.endpoints
	v.endpoints = append([]picker.Endpoint(nil), pool...)
	keep := map[picker.EndpointID]picker.Load{}
	for _, e := range pool {
		if l, ok := v.loads[e.ID]; ok {
			keep[e.ID] = l
		}
	}
	v.loads = keep
	return former
}

func (v *poolView) sample(id picker.EndpointID, l picker.Load) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.latest = max(v.latest, l.At)
	if l.OK {
		v.loads[id] = l
	}
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
	var kv, queue, running []float64
	named := map[string]bool{} // two servers of one name would be two values of one series
	for _, e := range v.endpoints {
		l, ok := v.loads[e.ID]
		if !ok {
			continue
		}
		if !named[e.Name] {
			named[e.Name] = true
			emit(wire.PrefixEPP+perEndpoint, l.Waiting, v.pool, e.Name)
			emit(wire.PrefixLegacyPool+"per_pod_queue_size", l.Waiting, v.pool, e.Name)
		}
		if v.latest-l.At <= freshness {
			kv, queue, running = append(kv, l.KV), append(queue, l.Waiting), append(running, l.Running)
		}
	}
	switch {
	case len(kv) > 0:
		for i, values := range [][]float64{kv, queue, running} {
			v.last[i], v.last[i+3] = spread(values)
		}
	case len(v.endpoints) == 0:
		v.last = [6]float64{}
	}
	for i, s := range poolSeries {
		value := float64(len(v.endpoints))
		if i < len(v.last) {
			value = round2(v.last[i])
		}
		emit(wire.PrefixEPP+s[0], value, v.pool)
		if s[1] != "" {
			emit(wire.PrefixLegacyPool+s[1], value, v.pool)
		}
	}
}

// spread is the mean and the standard deviation of the whole population.
func spread(values []float64) (mean, deviation float64) {
	for _, x := range values {
		mean += x
	}
	mean /= float64(len(values))
	for _, x := range values {
		deviation += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(deviation / float64(len(values)))
}
