package epp

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-weir/weir/reference/extproc"
)

// requestSeries are those of requests and their responses.
type requestSeries struct {
	requests, requestsOld *prometheus.CounterVec
	errors, errorsOld     *prometheus.CounterVec
	running, runningOld   *prometheus.GaugeVec
	measured, measuredOld [measures]*prometheus.HistogramVec // Old: nil without an older name
}

// requestHandles are the resolved series of one combination of labels.
type requestHandles struct {
	counted *countedHandles
	codes   map[string]bool
	// measured by streaming or not; all measures but one have the second place only.
	measured [measures][2]prometheus.Observer
	old      [measures]prometheus.Observer
}

type countedHandles struct {
	requests, requestsOld prometheus.Counter
	running, runningOld   prometheus.Gauge
}

// measure is one histogram of a response.
type measure int

const (
	duration measure = iota
	requestSize
	responseSize
	inputTokens
	cachedTokens
	outputTokens
	ntpot // seconds of the whole request for each output token
	ttft  // from the request's headers to the first byte of the response
	tpot  // seconds between output tokens of an event stream
	itl   // seconds between the chunks of an event stream
	measures
)

var (
	durationBuckets = []float64{.005, .025, .05, .1, .2, .4, .6, .8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60, 120, 180, 240,
		300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	responseBuckets = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32778, 65536} // 32778 is the router's
	inputBuckets    = append(append([]float64(nil), responseBuckets...), 131072, 262144, 524288, 1048576)
)

// measureSpec is a row of spec/endpoint-picker.md §7.1.
type measureSpec struct {
	name, old, help string
	buckets         []float64
}

var measureSpecs = [measures]measureSpec{
	duration:     {"request_duration_seconds", "request_duration_seconds", "Seconds from the request's headers to the response's end.", durationBuckets},
	requestSize:  {"request_size_bytes", "request_sizes", "Bytes of request bodies.", prometheus.ExponentialBuckets(64, 2, 25)},
	responseSize: {"response_size_bytes", "response_sizes", "Bytes of response bodies.", responseBuckets},
	inputTokens:  {"request_input_tokens", "input_tokens", "Prompt tokens as the response reports them.", inputBuckets},
	cachedTokens: {"request_cached_tokens", "prompt_cached_tokens", "Prompt tokens found in a cache, as the response reports them.", inputBuckets},
	outputTokens: {"request_output_tokens", "output_tokens", "Output tokens as the response reports them.", responseBuckets[:12]},
	ntpot: {"request_ntpot_seconds", "normalized_time_per_output_token_seconds", "Seconds of the request for each output token.",
		[]float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}},
	ttft: {"request_ttft_seconds", "", "Seconds from the request's headers to the first byte of the response.", durationBuckets[:24]},
	tpot: {"request_streaming_tpot_seconds", "", "Seconds for each output token after the first of an event stream.",
		[]float64{.0005, .00205, .005, .01, .02, .04, .06, .08, .1, .125, .15, .2, .3, .4, .5, .6, .8, 1, 2}},
	itl: {"request_streaming_itl_seconds", "", "Seconds between the chunks of an event stream.",
		[]float64{.001, .005, .01, .02, .04, .06, .08, .1, .15, .2, .3, .5, .75, 1, 2}},
}

func (m *Metrics) registerRequests() {
	labels := []string{"model_name", "target_model_name", "fairness_id", "priority"}
	with := func(more string) []string { return append(append([]string(nil), labels...), more) }
	m.requests = m.counter(prefixEPP+"request_total", "Scheduled requests.", labels...)
	m.requestsOld = m.counter(prefixObjective+"request_total", "Scheduled requests.", "model_name", "target_model_name", "priority")
	m.errors = m.counter(prefixEPP+"request_error_total", "Requests that were refused, or that a model server answered with an error.", with("error_code")...)
	m.errorsOld = m.counter(prefixObjective+"request_error_total", "Requests that were refused, or that a model server answered with an error.",
		"model_name", "target_model_name", "error_code")
	m.running = m.gauge(prefixEPP+"request_running", "Requests in flight.", labels...)
	m.runningOld = m.gauge(prefixObjective+"running_requests", "Requests in flight.", "model_name")
	for i, s := range measureSpecs {
		names := labels
		if measure(i) == ttft {
			names = with("streaming")
		}
		m.measured[i] = m.histogram(prefixEPP+s.name, s.help, s.buckets, names...)
		if s.old != "" {
			m.measuredOld[i] = m.histogram(prefixObjective+s.old, s.help, s.buckets, "model_name", "target_model_name")
		}
	}
}

// began counts a dispatched request. The caller holds mu.
func (m *Metrics) began(s *series) {
	if s.counted == nil {
		k := s.labels
		s.counted = &countedHandles{
			requests: m.requests.WithLabelValues(k.Model, k.Target, k.FairnessID, s.priority), requestsOld: m.requestsOld.WithLabelValues(k.Model, k.Target, s.priority),
			running: m.running.WithLabelValues(k.Model, k.Target, k.FairnessID, s.priority), runningOld: m.runningOld.WithLabelValues(k.Model),
		}
	}
	s.counted.requests.Inc()
	s.counted.requestsOld.Inc()
	s.counted.running.Inc()
	s.counted.runningOld.Inc()
}

// Finished notes that a dispatched request's stream ended.
func (m *Metrics) Finished(l Labels) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(l)
	s.inUse--
	if s.counted != nil {
		s.counted.running.Dec()
		s.counted.runningOld.Dec()
	}
}

// Refused notes a refusal as the client sees it, before or after queueing.
func (m *Metrics) Refused(l Labels, status int) { m.failed(l, errorCode(status)) }

func (m *Metrics) failed(l Labels, code string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(l)
	if s.codes == nil {
		s.codes = map[string]bool{}
	}
	s.codes[code] = true
	k := s.labels
	m.errors.WithLabelValues(k.Model, k.Target, k.FairnessID, s.priority, code).Inc()
	m.errorsOld.WithLabelValues(k.Model, k.Target, code).Inc()
}

func labelsOfReport(r *extproc.Report) Labels {
	return Labels{Model: r.Model, Target: r.Target, FairnessID: r.Identity.FairnessID, Priority: r.Priority}
}

// Answered notes what a dispatched request's response was like. An error status of a model server is counted: the known router looks
// for a header "status", which no proxy sends, and so counts none (spec/endpoint-picker.md §1.5).
func (m *Metrics) Answered(r extproc.Report) {
	l := labelsOfReport(&r)
	if r.Status >= 400 {
		m.failed(l, modelServerError)
	}
	m.requestProcessing.Observe((r.Answered - r.Received).Seconds())
	if r.Status != 0 {
		m.responseProcessing.Observe(r.Processing.Seconds())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(l)
	m.observe(s, requestSize, false, float64(r.RequestBytes))
	if r.ResponseBytes > 0 && r.Status < 400 {
		m.observe(s, ttft, r.Streaming, (r.FirstByte - r.Received).Seconds())
	}
	if !r.Complete {
		return
	}
	took := r.Ended - r.Received
	m.observe(s, duration, false, took.Seconds())
	m.observe(s, responseSize, false, float64(r.ResponseBytes))
	if !r.Usage.Known {
		return
	}
	m.observe(s, inputTokens, false, float64(r.Usage.Prompt))
	m.observe(s, cachedTokens, false, float64(r.Usage.Cached))
	m.observe(s, outputTokens, false, float64(r.Usage.Completion))
	if n := r.Usage.Completion; n > 0 {
		m.observe(s, ntpot, false, took.Seconds()/float64(n))
		if r.Streaming && n > 1 {
			m.observe(s, tpot, false, (r.LastByte-r.FirstByte).Seconds()/float64(n-1))
		}
	}
}

// Gaps resolves once where the gaps between the chunks of one stream are counted.
func (m *Metrics) Gaps(r extproc.Report) func(time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, _ := m.observer(m.of(labelsOfReport(&r)), itl, false)
	return func(d time.Duration) { o.Observe(d.Seconds()) }
}

func (m *Metrics) observe(s *series, x measure, streaming bool, v float64) {
	o, old := m.observer(s, x, streaming)
	o.Observe(v)
	if old != nil {
		old.Observe(v)
	}
}

// observer resolves a measure and its older twin, if it has one. The caller holds mu.
func (m *Metrics) observer(s *series, x measure, streaming bool) (now, old prometheus.Observer) {
	at, text := 0, "false"
	if streaming {
		at, text = 1, "true"
	}
	k := s.histogram
	if s.measured[x][at] == nil {
		labels := []string{k.Model, k.Target, k.FairnessID, s.priority}
		if x == ttft {
			labels = append(labels, text)
		}
		s.measured[x][at] = m.requestSeries.measured[x].WithLabelValues(labels...)
		if m.measuredOld[x] != nil {
			s.old[x] = m.measuredOld[x].WithLabelValues(k.Model, k.Target)
		}
	}
	return s.measured[x][at], s.old[x]
}

// dropRequests ends the series of labels that are gone, and with the last of a model those that name only the model.
func (m *Metrics) dropRequests(s *series, lastOfModel bool) {
	k := s.labels
	if s.counted != nil {
		m.requests.DeleteLabelValues(k.Model, k.Target, k.FairnessID, s.priority)
		m.running.DeleteLabelValues(k.Model, k.Target, k.FairnessID, s.priority)
	}
	for code := range s.codes {
		m.errors.DeleteLabelValues(k.Model, k.Target, k.FairnessID, s.priority, code)
	}
	if s.detailed {
		for x := range s.measured {
			switch {
			case measure(x) == ttft:
				m.requestSeries.measured[x].DeleteLabelValues(k.Model, k.Target, k.FairnessID, s.priority, "false")
				m.requestSeries.measured[x].DeleteLabelValues(k.Model, k.Target, k.FairnessID, s.priority, "true")
			case s.measured[x][0] != nil:
				m.requestSeries.measured[x].DeleteLabelValues(k.Model, k.Target, k.FairnessID, s.priority)
			}
		}
	}
	if !lastOfModel || k.Model == otherValue || k.Target == otherValue {
		return
	}
	gone := byModel(k.Model, k.Target)
	m.requestsOld.DeletePartialMatch(gone)
	m.errorsOld.DeletePartialMatch(gone)
	for _, h := range m.measuredOld {
		if h != nil {
			h.DeletePartialMatch(gone)
		}
	}
	if m.models[k.Model] == 0 {
		m.runningOld.DeleteLabelValues(k.Model)
	}
	if m.models[k.Target] == 0 {
		m.attempts.DeletePartialMatch(prometheus.Labels{"target_model_name": k.Target})
	}
}
