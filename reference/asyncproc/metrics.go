package asyncproc

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-weir/weir/reference/async"
)

// prefix is that of every series: the subsystem, and names that begin with "async_" once more (spec/async-processor.md §7).
const prefix = "llm_d_async_async_"

// Buckets in milliseconds.
var (
	inferenceBuckets = []float64{10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000}
	latencyBuckets   = []float64{100, 1000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1e6}
	residenceBuckets = []float64{500, 1000, 2000, 5000, 10000, 30000, 60000, 120000, 300000, 600000, 1.8e6, 3.6e6, 7.2e6, 2.16e7, 4.32e7, 8.64e7}
	// proximityBuckets are the times to the deadline that are told apart.
	proximityBuckets = []time.Duration{0, time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
		10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 24 * time.Hour}
)

// Metrics are the series of the guide's tables (AP-MET), and a few more for what those leave uncounted: cancelled requests, dead letters,
// results that somebody else had published, reloads. Methods may be called from several goroutines.
type Metrics struct {
	reg *prometheus.Registry

	requests, successes, failures, sheds, expired, retries, cancelled, dead, fenced *prometheus.CounterVec
	tokens, decisions                                                               *prometheus.CounterVec
	inference, residence, latency                                                   *prometheus.HistogramVec
	depth, inFlight, backlog, budget, workers, value, threshold, available          *prometheus.GaugeVec
	reloads                                                                         *prometheus.CounterVec
	reloaded                                                                        prometheus.Gauge
	proximity                                                                       *proximity
}

// labels are queue_id, queue_name, pool_name.
type labels [3]string

var queueLabels = []string{"queue_id", "queue_name", "pool_name"}

// NewMetrics makes the series of one processor.
func NewMetrics() *Metrics {
	m := &Metrics{reg: prometheus.NewRegistry()}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, append(queueLabels[:3:3], more...))
		m.reg.MustRegister(c)
		return c
	}
	gauge := func(name, help string, names ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + name, Help: help}, names)
		m.reg.MustRegister(g)
		return g
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, queueLabels)
		m.reg.MustRegister(h)
		return h
	}
	m.requests = counter("request_total", "New requests: counted at the first attempt, or at the end of those that have none.")
	m.successes = counter("successful_requests_total", "Requests with a successful answer whose result was published.")
	m.failures = counter("failed_requests_total", "Requests that ended with a final error whose result was published.")
	m.sheds = counter("shedded_requests_total", "Attempts answered 429.")
	m.expired = counter("exceeded_deadline_requests_total", "Requests that were not completed by their deadline.")
	m.retries = counter("request_retries_total", "Attempts that failed and are made again.")
	m.cancelled = counter("cancelled_requests_total", "Requests withdrawn by their producer.")
	m.dead = counter("dead_letters_total", "Messages that could not be read and were kept aside.")
	m.fenced = counter("fenced_results_total", "Results not published because the message's lease was lost.")
	m.tokens = counter("tokens_total", "Tokens of successful answers, as far as these say.", "direction")
	m.decisions = counter("gate_decisions_total", "Gate decisions that prevented dispatch.", "reason")
	m.inference = histogram("inference_latency_time_millis", "Time of one attempt at the gateway, in ms.", inferenceBuckets)
	m.residence = histogram("queue_residence_time_millis", "Time from the broker to a worker, in ms.", residenceBuckets)
	m.depth = gauge("queue_depth", "Messages pulled and waiting for a worker or a gate.", queueLabels...)
	m.inFlight = gauge("inflight_requests", "Attempts under way.", queueLabels...)
	m.backlog = gauge("broker_backlog", "Messages that the broker holds for the queue.", queueLabels...)
	m.budget = gauge("dispatch_budget", "Dispatch budget of the last poll, from 0 to 1.", queueLabels...)
	m.workers = gauge("pool_worker_limit", "Configured workers of the pool.", "pool_name")
	gateLabels := append(queueLabels[:3:3], "inference_pool")
	m.value = gauge("gate_metric_value", "What a metric gate compared last.", gateLabels...)
	m.threshold = gauge("gate_metric_threshold", "What it was compared with; closed when the value is not above.", gateLabels...)
	m.available = gauge("gate_metric_source_available", "1: the last evaluation had a reading, 0: it used the fallback.", gateLabels...)
	m.reloads = prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "queue_config_reloads_total", Help: "Reloads of the queues."}, []string{"result"})
	m.reloaded = prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "queue_config_last_success_timestamp_seconds", Help: "Unix time of the last good reload."})
	m.proximity = newProximity()
	m.reg.MustRegister(m.reloads, m.reloaded, m.proximity)
	return m
}

// withLatency adds the one series that only transports with a time of publication have (AP-MET-09).
func (m *Metrics) withLatency() {
	m.latency = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + "message_latency_time_millis",
		Help: "Time from the publication to the success of a message, in ms.", Buckets: latencyBuckets}, queueLabels)
	m.reg.MustRegister(m.latency)
}

// Gatherer is the registry.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.reg }

// start makes a queue's series, so that a query finds 0 instead of nothing (AP-MET-17).
func (m *Metrics) start(l labels) {
	for _, c := range []*prometheus.CounterVec{m.requests, m.successes, m.failures, m.sheds, m.expired, m.retries, m.cancelled, m.dead, m.fenced} {
		c.WithLabelValues(l[:]...)
	}
	m.inference.WithLabelValues(l[:]...)
	m.residence.WithLabelValues(l[:]...)
	m.gates(l)
}

func (m *Metrics) gates(l labels) {
	for _, r := range async.GateReasons {
		m.decisions.WithLabelValues(append(l[:], r.String())...)
	}
}

// stop ends the series that would go on showing the last state of a queue that is no longer served (spec/async-processor.md §1.3).
func (m *Metrics) stop(l labels) {
	m.backlog.DeleteLabelValues(l[:]...)
	m.budget.DeleteLabelValues(l[:]...)
	m.proximity.drop(l)
	for _, g := range []*prometheus.GaugeVec{m.value, m.threshold, m.available} {
		g.DeletePartialMatch(prometheus.Labels{"queue_id": l[0], "queue_name": l[1], "pool_name": l[2]})
	}
}

func (m *Metrics) state(l labels, s async.QueueState, push bool) {
	m.depth.WithLabelValues(l[:]...).Set(float64(s.Depth))
	m.inFlight.WithLabelValues(l[:]...).Set(float64(s.InFlight))
	if !push && !s.Removed {
		m.budget.WithLabelValues(l[:]...).Set(s.Budget)
	}
}

func (m *Metrics) gate(l labels, s async.GateState) {
	all := append(l[:], s.Inference)
	m.value.WithLabelValues(all...).Set(s.Value)
	m.threshold.WithLabelValues(all...).Set(s.Threshold)
	available := 0.0
	if s.Available {
		available = 1
	}
	m.available.WithLabelValues(all...).Set(available)
}

// finished counts a published result.
func (m *Metrics) finished(l labels, target string, r *async.Result) {
	switch {
	case r.Successful():
		m.successes.WithLabelValues(l[:]...).Inc()
		if in, out, ok := usage(target, r); ok {
			m.tokens.WithLabelValues(append(l[:], "input")...).Add(float64(in))
			m.tokens.WithLabelValues(append(l[:], "output")...).Add(float64(out))
		}
	case r.ErrorCode == async.CodeDeadlineExceeded:
		m.expired.WithLabelValues(l[:]...).Inc()
	case r.ErrorCode == async.CodeCancelled:
		m.cancelled.WithLabelValues(l[:]...).Inc()
	case r.ErrorCode == async.CodeGateDropped: // counted with the gate's decisions
	default:
		m.failures.WithLabelValues(l[:]...).Inc()
	}
}

// proximity shows how near the deadlines of waiting messages are: one snapshot per backlog poll (AP-MET-12).
type proximity struct {
	desc *prometheus.Desc
	mu   sync.Mutex
	of   map[labels][]uint64 // cumulative, by bucket, the last one of all
}

func newProximity() *proximity {
	return &proximity{desc: prometheus.NewDesc(prefix+"deadline_proximity_millis", "Time to the deadline of messages in the broker, in ms.", queueLabels, nil),
		of: map[labels][]uint64{}}
}

func (p *proximity) set(l labels, cumulative []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[l] = cumulative
}

func (p *proximity) drop(l labels) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, l)
}

// Describe implements prometheus.Collector.
func (p *proximity) Describe(c chan<- *prometheus.Desc) { c <- p.desc }

// Collect implements prometheus.Collector. The sum is estimated from the buckets' middles.
func (p *proximity) Collect(c chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l, counts := range p.of {
		buckets := map[float64]uint64{}
		sum, below, last := 0.0, 0.0, uint64(0)
		for i, n := range counts {
			upper := below
			if i < len(proximityBuckets) {
				upper = float64(proximityBuckets[i].Milliseconds())
				buckets[upper] = n
			}
			sum += float64(n-min(last, n)) * (below + upper) / 2
			below, last = upper, n
		}
		c <- prometheus.MustNewConstHistogram(p.desc, counts[len(counts)-1], sum, buckets, l[:]...)
	}
}
