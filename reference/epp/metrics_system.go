package epp

import (
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/picker"
)

// systemSeries are those of the picker's own parts.
type systemSeries struct {
	inflightRequests, inflightTokens      *prometheus.GaugeVec
	schedule                              [2]prometheus.Histogram
	attempts                              *prometheus.CounterVec
	plugin                                *prometheus.HistogramVec
	requestProcessing, responseProcessing prometheus.Histogram
	rewrites                              *prometheus.CounterVec
	pollErrors, extractErrors             *prometheus.CounterVec
	streams                               *prometheus.GaugeVec
	streamDuration                        *prometheus.HistogramVec
	streamCodes                           *prometheus.CounterVec

	inflight map[inflightKey]*inflightBook
	members  map[picker.EndpointID]bool
	// rewritten are the labels of rewrites; they are few, or a client plays with the header.
	rewritten map[[3]string]bool
}

type inflightKey struct {
	endpoint picker.EndpointID
	flow     string
	priority string
}

type inflightBook struct {
	labels           []string
	requests, tokens prometheus.Gauge
	n                int
}

// producer is the plugin to which the in-flight accounting belongs.
const producer = "inflight-load-producer"

var pluginBuckets = []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1}

func (m *Metrics) registerSystem(cfg epconfig.Config) {
	m.inflight, m.members, m.rewritten = map[inflightKey]*inflightBook{}, map[picker.EndpointID]bool{}, map[[3]string]bool{}
	for _, p := range []string{prefixEPP, prefixExtension} {
		m.gauge(p+"info", "Constant 1; says which build runs.", "commit", "build_ref").WithLabelValues("weir", cfg.Contract.Name).Set(1)
	}
	load := []string{"endpoint_name", "namespace", "producer_name", "fairness_id", "priority"}
	m.inflightRequests = m.gauge(prefixEPP+"inflight_requests", "Requests in flight by endpoint.", load...)
	m.inflightTokens = m.gauge(prefixEPP+"inflight_tokens", "Estimated prompt tokens of the requests in flight whose response has not begun.", load...)
	plain := func(name, help string, buckets []float64) prometheus.Histogram {
		return m.histogram(name, help, buckets).WithLabelValues().(prometheus.Histogram)
	}
	for i, p := range []string{prefixEPP, prefixExtension} {
		m.schedule[i] = plain(p+"scheduler_e2e_duration_seconds", "Seconds spent on an event that dispatched requests, gate and scheduling together.", enqueueBuckets)
	}
	m.attempts = m.counter(prefixEPP+"scheduler_attempts_total", "Attempts to find an endpoint for a request that left the queue.",
		"status", "target_model_name", "endpoint_name", "namespace", "port")
	m.plugin = m.histogram(prefixEPP+"plugin_duration_seconds", "Seconds spent in a plugin.", pluginBuckets, "extension_point", "plugin_type", "plugin_name")
	m.requestProcessing = plain(prefixEPP+"request_processing_duration_seconds", "Seconds from the request's headers to its answer, the queue included.", durationBuckets)
	m.responseProcessing = plain(prefixEPP+"response_processing_duration_seconds", "Seconds spent on the messages of one response.", enqueueBuckets)
	m.rewrites = m.counter(prefixEPP+"model_rewrite_decisions_total", "Requests whose model was rewritten.", "model_rewrite_name", "model_name", "target_model")
	m.pollErrors = m.counter(prefixEPP+"datalayer_poll_errors_total", "Scrapes that gave no page.", "source_type")
	m.extractErrors = m.counter(prefixEPP+"datalayer_extract_errors_total", "Pages that could not be read.", "source_type", "extractor_type")
	m.streams = m.gauge(prefixEPP+"extproc_streams_inflight", "Open ext_proc streams.")
	m.streamDuration = m.histogram(prefixEPP+"extproc_stream_duration_seconds", "Seconds an ext_proc stream was open.", durationBuckets)
	m.streamCodes = m.counter(prefixEPP+"extproc_streams_total", "Ended ext_proc streams by gRPC code.", "code")
}

// place splits an endpoint into the labels that name it; pods are named "namespace/pod".
func place(e picker.Endpoint) (name, namespace, port string) {
	namespace, name = "default", e.Name
	if ns, n, ok := strings.Cut(e.Name, "/"); ok {
		namespace, name = ns, n
	}
	_, port, _ = net.SplitHostPort(e.Address)
	return name, namespace, port
}

// Placed notes that a request was given to an endpoint, Prefilled that its response has begun, Released that it has ended. tokens is
// the estimate of its prompt; of one that was not prefilled they are still accounted at its end.
func (m *Metrics) Placed(l Labels, e picker.Endpoint, tokens int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(l)
	name, namespace, port := place(e)
	m.attempts.WithLabelValues("success", s.histogram.Target, name, namespace, port).Inc()
	k := inflightKey{e.ID, s.histogram.FairnessID, s.priority}
	b := m.inflight[k]
	if b == nil {
		labels := []string{name, namespace, producer, k.flow, k.priority}
		b = &inflightBook{labels: labels, requests: m.inflightRequests.WithLabelValues(labels...), tokens: m.inflightTokens.WithLabelValues(labels...)}
		m.inflight[k] = b
	}
	b.n++
	b.requests.Inc()
	b.tokens.Add(float64(tokens))
}

// Prefilled is described at Placed.
func (m *Metrics) Prefilled(l Labels, e picker.Endpoint, tokens int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(l)
	if b := m.inflight[inflightKey{e.ID, s.histogram.FairnessID, s.priority}]; b != nil {
		b.tokens.Sub(float64(tokens))
	}
}

// Released is described at Placed.
func (m *Metrics) Released(l Labels, e picker.Endpoint, tokens int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(l)
	k := inflightKey{e.ID, s.histogram.FairnessID, s.priority}
	b := m.inflight[k]
	if b == nil {
		return
	}
	b.n--
	b.requests.Dec()
	b.tokens.Sub(float64(tokens))
	if b.n <= 0 && !m.members[e.ID] {
		m.dropLoad(k)
	}
}

// Unplaced notes a request that left the queue and found no endpoint. A refusal at the door looks alike, except that it did not wait
// and, on a pool that has endpoints, is never for want of one.
func (m *Metrics) Unplaced(l Labels, o wire.Outcome, waited time.Duration, subset bool) {
	failed := (o == wire.RejectedCapacity || o == wire.RejectedNoEndpoints) && waited > 0 || o == wire.RejectedNoEndpoints && subset
	if !failed {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attempts.WithLabelValues("failure", m.of(l).histogram.Target, "", "", "").Inc()
}

func (m *Metrics) dropLoad(k inflightKey) {
	b := m.inflight[k]
	delete(m.inflight, k)
	m.inflightRequests.DeleteLabelValues(b.labels...)
	m.inflightTokens.DeleteLabelValues(b.labels...)
}

// dropInFlight ends the load series of a flow that is gone.
func (m *Metrics) dropInFlight(flow string) {
	if flow == otherValue {
		return
	}
	for k := range m.inflight {
		if k.flow == flow {
			m.dropLoad(k)
		}
	}
}

// membership ends the load series of endpoints that left; those with requests still in flight end with the last of them.
func (m *Metrics) membership(pool, former []picker.Endpoint) {
	m.members = map[picker.EndpointID]bool{}
	for _, e := range pool {
		m.members[e.ID] = true
	}
	for k, b := range m.inflight {
		if !m.members[k.endpoint] && b.n <= 0 {
			m.dropLoad(k)
		}
	}
	for _, e := range former {
		if !m.members[e.ID] {
			name, namespace, port := place(e)
			m.attempts.DeletePartialMatch(prometheus.Labels{"endpoint_name": name, "namespace": namespace, "port": port})
		}
	}
}

// ScheduleTook notes how long the machine was busy with an event that dispatched requests.
func (m *Metrics) ScheduleTook(d time.Duration) {
	m.schedule[0].Observe(d.Seconds())
	m.schedule[1].Observe(d.Seconds())
}

// PluginTook notes how long a part that a router calls a plugin was busy.
func (m *Metrics) PluginTook(point, name string, d time.Duration) {
	m.plugin.WithLabelValues(point, name, name).Observe(d.Seconds())
}

// Rewritten notes a request whose model was changed.
func (m *Metrics) Rewritten(rule, model, target string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := [3]string{rule, model, target}
	if !m.rewritten[k] {
		if len(m.rewritten) >= valueCap || !proper(model) || !proper(target) {
			k = [3]string{rule, otherValue, otherValue}
		}
		m.rewritten[k] = true
	}
	m.rewrites.WithLabelValues(k[:]...).Inc()
}

// Polled notes a scrape: nothing came, or nothing that could be read.
func (m *Metrics) Polled(took time.Duration, pollErr, extractErr bool) {
	const source, extractor = "metrics-data-source", "core-metrics-extractor"
	m.PluginTook("DataSource", source, took)
	switch {
	case pollErr:
		m.pollErrors.WithLabelValues(source).Inc()
	case extractErr:
		m.extractErrors.WithLabelValues(source, extractor).Inc()
	}
}

// StreamOpened and StreamEnded note ext_proc streams.
func (m *Metrics) StreamOpened() { m.streams.WithLabelValues().Inc() }

// StreamEnded is described at StreamOpened.
func (m *Metrics) StreamEnded(code string, took time.Duration) {
	m.streams.WithLabelValues().Dec()
	m.streamDuration.WithLabelValues().Observe(took.Seconds())
	m.streamCodes.WithLabelValues(code).Inc()
}
