package epp

import (
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/picker"
)

// Metrics are the series of spec/endpoint-picker.md §7 under their current and their older prefixes. There is no goroutine in it:
// whoever owns the machine calls it beside each event, the driver as well as an event loop in virtual time. Methods may be called
// while the registry is read.
type Metrics struct {
	pool   string
	flow   flowcontrol.Config
	stages bool
	reg    *prometheus.Registry

	queueSize, queueBytes, saturation  twinGauge
	queueDuration, enqueueDuration     twinHistogram
	cycle                              twinHistogram
	outcomes, revoked, confirmed       *prometheus.CounterVec
	bandRequests, bandBytes            *prometheus.GaugeVec
	globalRequests, globalBytes        *prometheus.GaugeVec
	stale, reclaimTarget, reclaimOpen  *prometheus.GaugeVec
	requests, requestsOld, errors, old *prometheus.CounterVec
	running, runningOld                *prometheus.GaugeVec

	mu      sync.Mutex
	models  map[string]bool
	flows   map[string]bool
	bands   map[int]occupancy
	total   occupancy
	issued  map[int]int64
	evicted picker.EvictionState
	view    *poolView
}

// occupancy is what is queued somewhere.
type occupancy struct{ requests, bytes int64 }

// cardinalityCap bounds the distinct model names and fairness ids among the labels; further ones read "other" (§7.1).
const cardinalityCap = 1000

var (
	queueBuckets   = []float64{.0001, .0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	enqueueBuckets = []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1}
)

// NewMetrics makes the series of one picker. pool is the value of the label inference_pool.
func NewMetrics(pool string, cfg epconfig.Config) *Metrics {
	m := &Metrics{
		pool: pool, flow: cfg.Picker.Flow, stages: cfg.Contract.Stages, reg: prometheus.NewRegistry(),
		models: map[string]bool{}, flows: map[string]bool{}, bands: map[int]occupancy{}, issued: map[int]int64{},
	}
	m.flowSeries()
	m.requestSeries()
	m.view = newPoolView(pool)
	m.reg.MustRegister(m.view)
	for _, name := range []string{"llm_d_epp_info", "inference_extension_info"} {
		m.gauge(name, "Constant 1; says which build runs.", "commit", "build_ref").WithLabelValues("weir", cfg.Contract.Name).Set(1)
	}
	return m
}

func (m *Metrics) flowSeries() {
	twin := [...]string{wire.PrefixFlowControl, wire.PrefixLegacyFC}
	flow := []string{"fairness_id", "priority", "inference_pool", "model_name", "target_model_name"}
	stage := []string{"inference_pool"}
	if m.stages {
		stage = append(stage, "stage")
	}
	for i, p := range twin {
		m.queueSize[i] = m.gauge(p+wire.MetricQueueSize, "Requests waiting for a decision.", flow...)
		m.queueBytes[i] = m.gauge(p+wire.MetricQueueBytes, "Body bytes of the waiting requests.", flow...)
		m.saturation[i] = m.gauge(p+wire.MetricPoolSaturation, "Saturation as the gate last saw it; may exceed 1.", stage...)
		m.queueDuration[i] = m.histogram(p+wire.MetricQueueDuration, "Seconds from entry to the decision.", queueBuckets,
			"fairness_id", "priority", "outcome", "inference_pool", "model_name", "target_model_name")
		m.enqueueDuration[i] = m.histogram(p+"request_enqueue_duration_seconds", "Seconds spent on taking a request in.", enqueueBuckets,
			"fairness_id", "priority", "outcome")
		m.cycle[i] = m.histogram(p+"dispatch_cycle_duration_seconds", "Seconds spent on one event and the decisions it caused.", enqueueBuckets)
	}
	fc := wire.PrefixFlowControl
	m.outcomes = m.counter(fc+wire.MetricRequestsTotal, "Decided requests.", "outcome", "priority", "inference_pool")
	m.bandRequests = m.gauge(fc+"capacity_utilization_requests", "Queued requests of a band over its limit.", "priority", "inference_pool")
	m.bandBytes = m.gauge(fc+"capacity_utilization_bytes", "Queued bytes of a band over its limit.", "priority", "inference_pool")
	m.globalRequests = m.gauge(fc+"global_capacity_utilization_requests", "Queued requests over the global limit.", "inference_pool")
	m.globalBytes = m.gauge(fc+"global_capacity_utilization_bytes", "Queued bytes over the global limit.", "inference_pool")
	m.stale = m.gauge(fc+"stale_endpoints", "Endpoints without fresh metrics at the last evaluation.", "detector")
	m.revoked = m.counter(fc+"revocations_issued_total", "Evictions in flight by the priority of the demand.", "priority", "inference_pool")
	m.confirmed = m.counter(fc+"revocations_total", "Evictions in flight by how they ended.", "outcome", "inference_pool")
	m.reclaimTarget = m.gauge(fc+"reclaim_target", "Saturation the last eviction wanted to free.", "inference_pool")
	m.reclaimOpen = m.gauge(fc+"pending_reclaim", "Saturation that outstanding evictions are expected to free.", "inference_pool")
}

func (m *Metrics) requestSeries() {
	labels := []string{"model_name", "target_model_name", "fairness_id", "priority"}
	m.requests = m.counter(wire.PrefixEPP+"request_total", "Scheduled requests.", labels...)
	m.requestsOld = m.counter("inference_objective_request_total", "Scheduled requests.", "model_name", "target_model_name", "priority")
	m.errors = m.counter(wire.PrefixEPP+"request_error_total", "Refused requests.", append(labels, "error_code")...)
	m.old = m.counter("inference_objective_request_error_total", "Refused requests.", "model_name", "target_model_name", "error_code")
	m.running = m.gauge(wire.PrefixEPP+"request_running", "Requests in flight.", labels...)
	m.runningOld = m.gauge("inference_objective_running_requests", "Requests in flight.", "model_name")
}

type (
	twinGauge     [2]*prometheus.GaugeVec
	twinHistogram [2]*prometheus.HistogramVec
)

func (t twinGauge) add(v float64, labels ...string) {
	for _, g := range t {
		g.WithLabelValues(labels...).Add(v)
	}
}

func (t twinHistogram) observe(d time.Duration, labels ...string) {
	for _, h := range t {
		h.WithLabelValues(labels...).Observe(d.Seconds())
	}
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

// capped returns v or, once the set is full, "other". The caller holds mu.
func capped(set map[string]bool, v string) string {
	if !set[v] {
		if len(set) >= cardinalityCap {
			return "other"
		}
		set[v] = true
	}
	return v
}

func (m *Metrics) names(fairnessID, model string) (string, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return capped(m.flows, fairnessID), capped(m.models, model)
}

// Enqueued notes that a request of the requested priority waits for a decision.
func (m *Metrics) Enqueued(fairnessID string, priority int, model string, bytes int64) {
	m.queued(fairnessID, priority, model, occupancy{1, bytes})
}

func (m *Metrics) queued(fairnessID string, priority int, model string, d occupancy) {
	f, mo := m.names(fairnessID, model)
	p := strconv.Itoa(priority)
	m.queueSize.add(float64(d.requests), f, p, m.pool, mo, mo)
	m.queueBytes.add(float64(d.bytes), f, p, m.pool, mo, mo)
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.bands[priority]
	b.requests, b.bytes = b.requests+d.requests, b.bytes+d.bytes
	m.bands[priority] = b
	m.total.requests, m.total.bytes = m.total.requests+d.requests, m.total.bytes+d.bytes
	limits := m.limits(priority)
	ratio(m.bandRequests, b.requests, limits.MaxRequests, p, m.pool)
	ratio(m.bandBytes, b.bytes, limits.MaxBytes, p, m.pool)
	ratio(m.globalRequests, m.total.requests, m.flow.MaxRequests, m.pool)
	ratio(m.globalBytes, m.total.bytes, m.flow.MaxBytes, m.pool)
}

func ratio(g *prometheus.GaugeVec, have, limit int64, labels ...string) {
	if limit > 0 {
		g.WithLabelValues(labels...).Set(float64(have) / float64(limit))
	}
}

func (m *Metrics) limits(priority int) flowcontrol.BandConfig {
	for _, b := range m.flow.Bands {
		if b.Priority == priority {
			return b
		}
	}
	if priority < 0 {
		return m.flow.DefaultNegativeBand
	}
	return m.flow.DefaultBand
}

// Decided notes the one decision about an enqueued request. priority is the requested one, band the one that held it. A dispatched
// request runs until Finished.
func (m *Metrics) Decided(fairnessID string, priority, band int, model string, bytes int64, o wire.Outcome, waited time.Duration) {
	m.queued(fairnessID, priority, model, occupancy{-1, -bytes})
	f, mo := m.names(fairnessID, model)
	p := strconv.Itoa(priority)
	m.queueDuration.observe(waited, f, strconv.Itoa(band), o.String(), m.pool, mo, mo)
	m.outcomes.WithLabelValues(o.String(), p, m.pool).Inc()
	if o == wire.Dispatched {
		m.requests.WithLabelValues(mo, mo, f, p).Inc()
		m.requestsOld.WithLabelValues(mo, mo, p).Inc()
		m.running.WithLabelValues(mo, mo, f, p).Inc()
		m.runningOld.WithLabelValues(mo).Inc()
	}
}

// Finished notes that a dispatched request's stream ended.
func (m *Metrics) Finished(fairnessID string, priority int, model string) {
	f, mo := m.names(fairnessID, model)
	m.running.WithLabelValues(mo, mo, f, strconv.Itoa(priority)).Dec()
	m.runningOld.WithLabelValues(mo).Dec()
}

// Refused notes a refusal as the client sees it, before or after queueing.
func (m *Metrics) Refused(fairnessID string, priority int, model string, status int) {
	f, mo := m.names(fairnessID, model)
	code := errorCode(status)
	m.errors.WithLabelValues(mo, mo, f, strconv.Itoa(priority), code).Inc()
	m.old.WithLabelValues(mo, mo, code).Inc()
}

func errorCode(status int) string {
	switch status {
	case 400:
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

// EnqueueTook and CycleTook note how long the machine was busy with one arrival and with one event of any kind.
func (m *Metrics) EnqueueTook(fairnessID string, priority int, d time.Duration) {
	f, _ := m.names(fairnessID, "")
	m.enqueueDuration.observe(d, f, strconv.Itoa(priority), wire.NotYetFinalized.String())
}

// CycleTook is described at EnqueueTook.
func (m *Metrics) CycleTook(d time.Duration) { m.cycle.observe(d) }

// Pressure publishes the saturation. The series of a stage without endpoints is deleted.
func (m *Metrics) Pressure(p picker.Pressure) {
	for _, g := range m.saturation {
		if !m.stages {
			g.WithLabelValues(m.pool).Set(p.Effective)
			continue
		}
		g.WithLabelValues(m.pool, "effective").Set(p.Effective)
		stage(g, p.HasPrefill, p.Prefill, m.pool, "prefill")
		stage(g, p.HasDecode, p.Decode, m.pool, "decode")
	}
	if m.flow.Detector.Kind == flowcontrol.Utilization {
		m.stale.WithLabelValues("utilization-detector").Set(float64(p.Stale))
	}
}

func stage(g *prometheus.GaugeVec, has bool, v float64, labels ...string) {
	if has {
		g.WithLabelValues(labels...).Set(v)
	} else {
		g.DeleteLabelValues(labels...)
	}
}

// Evictions publishes the running totals of in-flight eviction; nothing appears before the first one.
func (m *Metrics) Evictions(issued []picker.PriorityCount, s picker.EvictionState) {
	if len(issued) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range issued {
		m.revoked.WithLabelValues(strconv.Itoa(c.Priority), m.pool).Add(float64(c.Count - m.issued[c.Priority]))
		m.issued[c.Priority] = c.Count
	}
	m.confirmed.WithLabelValues("confirmed", m.pool).Add(float64(s.Confirmed - m.evicted.Confirmed))
	m.confirmed.WithLabelValues("timed_out", m.pool).Add(float64(s.TimedOut - m.evicted.TimedOut))
	m.evicted = s
	m.reclaimTarget.WithLabelValues(m.pool).Set(s.Target)
	m.reclaimOpen.WithLabelValues(m.pool).Set(s.Pending)
}

// Endpoints publishes the pool; loads of endpoints that left are forgotten.
func (m *Metrics) Endpoints(pool []picker.Endpoint) { m.view.set(pool) }

// Sample publishes a model server's load. A failed scrape leaves the last values, which then grow stale.
func (m *Metrics) Sample(id picker.EndpointID, l picker.Load) {
	if l.OK {
		m.view.sample(id, l)
	}
}

func round2(v float64) float64 { return math.Round(v*100) / 100 }
