package epp

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/picker"
)

var (
	queueBuckets        = []float64{.0001, .0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	enqueueBuckets      = []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1}
	confirmationBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
)

// flowSeries are those of the queue. With the feature gate off none of them is ever observed, and so none appears (FC-MET-14).
type flowSeries struct {
	stages bool
	off    bool // flow control is switched off: none of the series below is ever observed

	queueSize, queueBytes, saturation twinGauge
	queueDuration, enqueueDuration    twinHistogram
	cycle                             twinHistogram
	outcomes, revoked, confirmed      *prometheus.CounterVec
	bandRequests, bandBytes           *prometheus.GaugeVec
	globalRequests, globalBytes       *prometheus.GaugeVec
	stale, reclaimTarget, reclaimOpen *prometheus.GaugeVec
	confirmation                      *prometheus.HistogramVec

	bands   map[int]*bandBook
	total   occupancy
	cycleOf twinObserver
	levels  map[string][2]prometheus.Gauge // saturation by stage
	issued  map[int]int64
	evicted picker.EvictionState
}

// flowHandles are the resolved series of one combination of labels.
type flowHandles struct {
	queue   *queueHandles
	enqueue *twinObserver
	waits   map[wait]twinObserver
}

type queueHandles struct{ size, bytes [2]prometheus.Gauge }

// wait is what tells the queue durations of one combination apart.
type wait struct {
	band    int
	outcome wire.Outcome
}

// occupancy is what is queued somewhere.
type occupancy struct{ requests, bytes int64 }

// bandBook is what is queued under one requested priority.
type bandBook struct {
	occupancy
	label  string
	limits flowcontrol.BandConfig
}

func (m *Metrics) registerFlow(cfg epconfig.Config) {
	m.stages, m.off = cfg.Contract.Stages, cfg.Picker.Flow.Off
	m.bands, m.issued, m.levels = map[int]*bandBook{}, map[int]int64{}, map[string][2]prometheus.Gauge{}
	flow := []string{"fairness_id", "priority", "inference_pool", "model_name", "target_model_name"}
	stage := []string{"inference_pool"}
	if m.stages {
		stage = append(stage, "stage")
	}
	for i, p := range [...]string{wire.PrefixFlowControl, wire.PrefixLegacyFC} {
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
	m.confirmation = m.histogram(fc+"revocation_confirmation_seconds", "Seconds from an eviction to the end of its stream.", confirmationBuckets, "inference_pool")
}

// Enqueued notes that a request waits for a decision.
func (m *Metrics) Enqueued(l Labels, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(l)
	s.inUse++
	m.queued(s, l.Priority, occupancy{1, bytes})
}

func (m *Metrics) queued(s *series, priority int, d occupancy) {
	if m.off {
		return
	}
	if s.queue == nil {
		k := s.labels
		s.queue = &queueHandles{
			size:  m.queueSize.with(k.FairnessID, s.priority, m.pool, k.Model, k.Target),
			bytes: m.queueBytes.with(k.FairnessID, s.priority, m.pool, k.Model, k.Target),
		}
	}
	for i := range s.queue.size {
		s.queue.size[i].Add(float64(d.requests))
		s.queue.bytes[i].Add(float64(d.bytes))
	}
	b := m.bands[priority]
	if b == nil {
		b = &bandBook{label: s.priority, limits: m.limits(priority)}
		m.bands[priority] = b
	}
	b.requests, b.bytes = b.requests+d.requests, b.bytes+d.bytes
	m.total.requests, m.total.bytes = m.total.requests+d.requests, m.total.bytes+d.bytes
	ratio(m.bandRequests, b.requests, b.limits.MaxRequests, b.label, m.pool)
	ratio(m.bandBytes, b.bytes, b.limits.MaxBytes, b.label, m.pool)
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

// Decided notes the one decision about an enqueued request. band is the priority of the band that held it. A dispatched request runs
// until Finished.
func (m *Metrics) Decided(l Labels, band int, bytes int64, o wire.Outcome, waited time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(l)
	m.queued(s, l.Priority, occupancy{-1, -bytes})
	if !m.off {
		m.waited(s, band, o, waited)
	}
	if o == wire.Dispatched {
		m.began(s)
	} else {
		s.inUse--
	}
}

func (m *Metrics) waited(s *series, band int, o wire.Outcome, took time.Duration) {
	w := wait{band, o}
	obs, ok := s.waits[w]
	if !ok {
		k := s.histogram
		obs = m.queueDuration.with(k.FairnessID, strconv.Itoa(band), o.String(), m.pool, k.Model, k.Target)
		if s.waits == nil {
			s.waits = map[wait]twinObserver{}
		}
		s.waits[w] = obs
	}
	obs.observe(took)
	m.outcomes.WithLabelValues(o.String(), s.priority, m.pool).Inc()
}

// EnqueueTook and CycleTook note how long the machine was busy with one arrival and with one event of any kind.
func (m *Metrics) EnqueueTook(l Labels, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.off {
		return
	}
	s := m.of(l)
	if s.enqueue == nil {
		obs := m.enqueueDuration.with(s.histogram.FairnessID, s.priority, wire.NotYetFinalized.String())
		s.enqueue = &obs
	}
	s.enqueue.observe(d)
}

// CycleTook is described at EnqueueTook.
func (m *Metrics) CycleTook(d time.Duration) {
	if m.off {
		return
	}
	if m.cycleOf[0] == nil { // the owner of the machine is the only caller
		m.cycleOf = m.cycle.with()
	}
	m.cycleOf.observe(d)
}

// dropFlow ends the queue's series of labels that are gone.
func (m *Metrics) dropFlow(s *series) {
	k := s.labels
	if s.queue != nil {
		m.queueSize.drop(k.FairnessID, s.priority, m.pool, k.Model, k.Target)
		m.queueBytes.drop(k.FairnessID, s.priority, m.pool, k.Model, k.Target)
	}
	if !s.detailed {
		return
	}
	for w := range s.waits {
		m.queueDuration.drop(k.FairnessID, strconv.Itoa(w.band), w.outcome.String(), m.pool, k.Model, k.Target)
	}
	if s.enqueue != nil {
		m.enqueueDuration.drop(k.FairnessID, s.priority, wire.NotYetFinalized.String())
	}
}

// Pressure publishes the saturation. The series of a stage without endpoints is deleted.
func (m *Metrics) Pressure(p picker.Pressure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.off {
		return
	}
	if !m.stages {
		m.level("", true, p.Effective)
	} else {
		m.level("effective", true, p.Effective)
		m.level("prefill", p.HasPrefill, p.Prefill)
		m.level("decode", p.HasDecode, p.Decode)
	}
	if m.flow.Detector.Kind == flowcontrol.Utilization {
		m.stale.WithLabelValues("utilization-detector").Set(float64(p.Stale))
	}
}

func (m *Metrics) level(stage string, has bool, v float64) {
	labels := []string{m.pool, stage}
	if stage == "" {
		labels = labels[:1]
	}
	g, have := m.levels[stage]
	switch {
	case has && !have:
		g = m.saturation.with(labels...)
		m.levels[stage] = g
	case !has && have:
		m.saturation.drop(labels...)
		delete(m.levels, stage)
	}
	if has {
		g[0].Set(v)
		g[1].Set(v)
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

// Confirmed notes how long the streams of evicted requests took to end.
func (m *Metrics) Confirmed(took []time.Duration) {
	for _, d := range took {
		m.confirmation.WithLabelValues(m.pool).Observe(d.Seconds())
	}
}
