package epp

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/picker"
)

// Metrics are the series of spec/endpoint-picker.md §7 under their current and their older names. There is no goroutine and no clock
// in it: whoever owns the machine calls it beside each event, the driver as well as an event loop in virtual time. Methods may be
// called while the registry is read, and from several goroutines.
//
//	metrics_flow.go     §7.3, the queue          metrics_request.go  §7.1, requests and their responses
//	poolview.go         §7.2, the pool           metrics_system.go   §7.4, everything else
//	metrics_labels.go   which values labels may have, and when series end
type Metrics struct {
	pool string
	flow flowcontrol.Config
	reg  *prometheus.Registry

	flowSeries
	requestSeries
	systemSeries
	view *poolView

	mu sync.Mutex // over everything below and over the books inside the groups above
	labelBook
}

// NewMetrics makes the series of one picker. pool is the value of the label inference_pool.
func NewMetrics(pool string, cfg epconfig.Config) *Metrics {
	m := &Metrics{pool: pool, flow: cfg.Picker.Flow, reg: prometheus.NewRegistry(), labelBook: newLabelBook()}
	m.registerFlow(cfg)
	m.registerRequests()
	m.registerSystem(cfg)
	m.view = newPoolView(pool)
	m.reg.MustRegister(m.view)
	return m
}

type (
	twinGauge     [2]*prometheus.GaugeVec
	twinHistogram [2]*prometheus.HistogramVec
	twinObserver  [2]prometheus.Observer
)

func (t twinGauge) with(labels ...string) (out [2]prometheus.Gauge) {
	for i, g := range t {
		out[i] = g.WithLabelValues(labels...)
	}
	return out
}

func (t twinGauge) drop(labels ...string) {
	for _, g := range t {
		g.DeleteLabelValues(labels...)
	}
}

func (t twinHistogram) with(labels ...string) (out twinObserver) {
	for i, h := range t {
		out[i] = h.WithLabelValues(labels...)
	}
	return out
}

func (t twinHistogram) drop(labels ...string) {
	for _, h := range t {
		h.DeleteLabelValues(labels...)
	}
}

func (t twinObserver) observe(d time.Duration) {
	t[0].Observe(d.Seconds())
	t[1].Observe(d.Seconds())
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.reg.MustRegister(g)
	return g
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.reg.MustRegister(c)
	return c
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.reg.MustRegister(h)
	return h
}

// Gatherer is the registry.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.reg }

// Through applies a transformation of the families to everything gathered; nil leaves them alone.
func Through(g prometheus.Gatherer, families func([]*dto.MetricFamily) []*dto.MetricFamily) prometheus.Gatherer {
	if families == nil {
		return g
	}
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		fs, err := g.Gather()
		return families(fs), err
	})
}

// Endpoints publishes the pool; what was known of endpoints that left is forgotten.
func (m *Metrics) Endpoints(pool []picker.Endpoint) {
	former := m.view.set(pool)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.membership(pool, former)
}

// Sample publishes a model server's load. A failed scrape leaves the last values, which then grow stale.
func (m *Metrics) Sample(id picker.EndpointID, l picker.Load) { m.view.sample(id, l) }

func round2(v float64) float64 { return math.Round(v*100) / 100 }

// errorCode is the router's word for a status; those of model servers are not told apart.
func errorCode(status int) string {
	switch status {
	case 400, 431:
		return "BadRequest"
	case 413:
		return "PayloadTooLarge"
	case 429:
		return "ResourceExhausted"
	case 503:
		return "ServiceUnavailable"
	}
	return "Internal"
}

// modelServerError is the error code of an answer of a model server with an error status.
const modelServerError = "ModelServerError"

// Names of this file's neighbours that need no more explanation than their spec row.
const (
	prefixObjective = "inference_objective_"
	prefixExtension = "inference_extension_"
	prefixEPP       = wire.PrefixEPP
)
