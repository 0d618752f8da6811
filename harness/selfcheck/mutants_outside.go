package selfcheck

import (
	"bytes"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/picker"
)

// outsideMutants go wrong around a request: on the wire to the data plane, on whole metrics pages, with objectives and endpoints that
// change, at the end and after it.
var outsideMutants = []Mutant{
	{Name: "metadata-elsewhere", Fault: "header and metadata name different destinations", Class: "WIRE", Meant: []string{"FC-PROTO-01"},
		Tamper: env.Tamper{Plane: env.DataPlane{Metadata: func(string) string { return "elsewhere" }}}},
	{Name: "metadata-missing", Fault: "the metadata name no destination", Class: "WIRE", Meant: []string{"FC-PROTO-01"},
		Tamper: env.Tamper{Plane: env.DataPlane{Metadata: func(string) string { return "" }}}},
	{Name: "early-answer", Fault: "the headers are answered before the request is decided", Class: "WIRE", Meant: []string{"FC-PROTO-04"},
		Tamper: env.Tamper{Plane: env.DataPlane{Early: true}}},
	{Name: "raw-values-only", Fault: "header values are read from their raw form alone", Class: "HDR", Meant: []string{"FC-PROTO-09"},
		Tamper: env.Tamper{Plane: env.DataPlane{RawOnly: true}}},
	{Name: "request-id-replaced", Fault: "the client's request id is replaced", Class: "HDR", Meant: []string{"FC-PROTO-09"},
		Tamper: env.Tamper{Plane: env.DataPlane{NewRequestID: true}}},
	{Name: "header-case", Except: inline, Fault: "header names are compared with their case", Class: "HDR", Meant: []string{"FC-CLS-18"},
		Tamper: env.Tamper{Plane: env.DataPlane{CaseSensitive: true}}},
	{Name: "header-first", Except: inline, Fault: "of a repeated header the first value counts", Class: "HDR", Meant: []string{"FC-CLS-18"},
		Tamper: env.Tamper{Plane: env.DataPlane{FirstWins: true}}},
	{Name: "bodyless-queued", Fault: "requests without a body wait like any other", Class: "WIRE", Meant: []string{"FC-PROTO-10"},
		Tamper: env.Tamper{Plane: env.DataPlane{QueueBodyless: true}}},
	{Name: "always-serving", Fault: "the health service says SERVING while the router drains", Class: "DRAIN", Meant: []string{"FC-PROTO-14"},
		Tamper: env.Tamper{Plane: env.DataPlane{AlwaysServing: true}}},
	{Name: "answer-cleaned", Fault: "answers of model servers are brought into a tidy form", Class: "BODY", Meant: []string{"FC-PROTO-16"},
		Tamper: env.Tamper{Plane: env.DataPlane{Answer: bytes.TrimSpace}}},
	{Name: "half-close-cancels", Fault: "a half-closed stream counts as a client that left", Class: "CRASH", Meant: []string{"FC-CAN-09"},
		Tamper: env.Tamper{Plane: env.DataPlane{HalfCloseCancels: true}}},
	{Name: "deadline-ignored", Fault: "a deadline of the stream is not heeded", Class: "TTL", Meant: []string{"FC-TTL-10"},
		Tamper: env.Tamper{Plane: env.DataPlane{IgnoreDeadline: true}}},
	{Name: "idle-stream-holds", Fault: "an idle stream keeps the router from ending", Class: "DRAIN", Meant: []string{"FC-SHUT-05"},
		Tamper: env.Tamper{Plane: env.DataPlane{IdleHolds: true}}},
	{Name: "engine-page-blind", Fault: "the model server's page does not count what waits", Class: "MET", Meant: []string{"FC-MET-15", "BEN-04"},
		Tamper: env.Tamper{Plane: env.DataPlane{BlindEngine: true}}},
	{Name: "neighbours-settings", Fault: "a priority without an entry takes the settings of a band that has one", Class: "CFG", Meant: []string{"FC-PRI-10"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) {
			if len(c.Bands) > 0 {
				p := c.DefaultBand.Priority
				c.DefaultBand = c.Bands[0]
				c.DefaultBand.Priority = p
			}
		})}},
	{Name: "negative-template-ignored", Fault: "negative priorities take the template of the others", Class: "CFG", Meant: []string{"FC-PRI-11"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.DefaultNegativeBand = c.DefaultBand })}},
	{Name: "alpha-without-opt-in", Fault: "alpha plugins start without the flag", Class: "CFG", Meant: []string{"FC-CFG-14"},
		Tamper: env.Tamper{AlphaIsStable: true}},
	{Name: "gibibyte", Except: []string{"llm-d-router-0.9", "rhoai-3.4"}, Fault: "the default byte limit of a band is a gibibyte", Class: "CFG", Meant: []string{"FC-CAP-06"},
		Tamper: env.Tamper{Config: defaultBytes(1 << 30)}},
	{Name: "objectives-frozen", Fault: "the bands of objectives that come later are never made", Class: "GC", Meant: []string{"FC-PRI-08", "FC-CLS-20"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			first := true
			events(func(_ time.Duration, ev *picker.Event) bool {
				keep := ev.Kind != picker.SetPriorities || first
				first = first && ev.Kind != picker.SetPriorities
				return keep
			})(w)
		}}},
	{Name: "idle-band-demoted", Fault: "after ten minutes the requests of an objective go to band 0", Class: "GC", Meant: []string{"FC-GC-04"},
		Tamper: env.Tamper{Wiring: events(func(now time.Duration, ev *picker.Event) bool {
			if ev.Kind == picker.Arrive && now > 10*time.Minute {
				ev.Request.Priority = 0
			}
			return true
		})}},
	{Name: "label-change-ignored", Fault: "a changed role is not noticed", Class: "DISC", Meant: []string{"FC-PD-09"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			known := map[picker.EndpointID]picker.Role{}
			events(func(_ time.Duration, ev *picker.Event) bool {
				switch ev.Kind {
				case picker.SetEndpoint:
					if role, ok := known[ev.Endpoint.ID]; ok {
						ev.Endpoint.Role = role
					}
					known[ev.Endpoint.ID] = ev.Endpoint.Role
				case picker.RemoveEndpoint:
					delete(known, ev.Endpoint.ID)
				}
				return true
			})(w)
		}}},
	{Name: "first-chunk-unnoticed", Fault: "what is accounted for a prompt is released with the end only", Class: "ACCT", Meant: []string{"FC-SAT-18", "FC-PD-07"},
		Tamper: env.Tamper{Wiring: events(func(_ time.Duration, ev *picker.Event) bool { return ev.Kind != picker.FirstChunk })}},
	{Name: "estimate-ignored", Except: []string{"llm-d-router-0.9", "rhoai-3.4"}, Fault: "output estimates are accepted and ignored", Class: "ACCT", Meant: []string{"FC-SAT-19"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Detector.EstimateOutput = false })}},
	{Name: "new-endpoint-stale", Fault: "an endpoint counts as stale for two seconds after it has joined", Class: "SAT", Meant: []string{"FC-SAT-26"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			joined := map[picker.EndpointID]time.Duration{}
			events(func(now time.Duration, ev *picker.Event) bool {
				switch ev.Kind {
				case picker.SetEndpoint:
					joined[ev.Endpoint.ID] = now
				case picker.Sample:
					return now-joined[ev.Endpoint.ID] > 2*time.Second
				}
				return true
			})(w)
		}}},
	{Name: "endpoint-series-stay", Fault: "the series of a removed endpoint stay", Class: "MET", Meant: []string{"FC-MET-12"},
		Tamper: env.Tamper{Wiring: staying("per_endpoint_queue_size", "per_pod_queue_size")}},
	{Name: "ready-count-freezes", Fault: "the count of ready endpoints never falls", Class: "MET", Meant: []string{"FC-MET-12"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			most := map[string]float64{}
			gauges("", func(*dto.Metric) {})(w)
			inner := w.Families
			w.Families = func(fs []*dto.MetricFamily) []*dto.MetricFamily {
				fs = inner(fs)
				for _, f := range fs {
					if n := f.GetName(); strings.HasSuffix(n, "ready_endpoints") || strings.HasSuffix(n, "ready_pods") {
						v := f.GetMetric()[0].GetGauge()
						most[n] = max(most[n], v.GetValue())
						*v.Value = most[n]
					}
				}
				return fs
			}
		}}},
	{Name: "tokens-lost", Fault: "the tokens of a stream are counted short", Class: "MET", Meant: []string{"FC-MET-16"},
		Tamper: env.Tamper{Wiring: families(func(fs []*dto.MetricFamily) {
			for _, f := range fs {
				if strings.HasSuffix(f.GetName(), "output_tokens") {
					for _, m := range f.GetMetric() {
						*m.Histogram.SampleSum--
					}
				}
			}
		})}},
	{Name: "label-missing", Fault: "a family of the contract lacks a label", Class: "MET", Meant: []string{"FC-MET-11"},
		Tamper: env.Tamper{Wiring: families(func(fs []*dto.MetricFamily) {
			for _, f := range fs {
				if strings.HasSuffix(f.GetName(), "request_error_total") {
					for _, m := range f.GetMetric() {
						m.Label = slices.DeleteFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == "model_name" })
					}
				}
			}
		})}},
	{Name: "wrong-type", Fault: "a family of the contract has another type", Class: "MET", Meant: []string{"FC-MET-11"},
		Tamper: env.Tamper{Wiring: families(func(fs []*dto.MetricFamily) {
			for _, f := range fs {
				if strings.HasSuffix(f.GetName(), "running_requests") && f.GetType() == dto.MetricType_GAUGE {
					f.Type = dto.MetricType_UNTYPED.Enum()
				}
			}
		})}},
	{Name: "counter-falls", Fault: "a counter starts again after every fifth reading", Class: "MET", Meant: []string{"INV-14"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			reads := 0
			families(func(fs []*dto.MetricFamily) {
				reads++
				if reads%5 != 0 {
					return
				}
				for _, f := range fs {
					if strings.HasSuffix(f.GetName(), wire.MetricQueueDuration) {
						for _, m := range f.GetMetric() {
							*m.Histogram.SampleCount = 0
						}
					}
				}
			})(w)
		}}},
	{Name: "free-capacity-unnoticed", Except: inline, Fault: "capacity that a request has left is noticed two seconds late", Class: "ORD", Meant: []string{"INV-08"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			w.Machine = &wrapper{inner: w.Machine, delay: func(ev picker.Event) time.Duration {
				if ev.Kind == picker.Finish {
					return 2 * time.Second
				}
				return 0
			}}
		}}},
	{Name: "others-ignored", Fault: "what other pickers have in flight counts for nothing", Class: "ACCT", Meant: []string{"FC-MULTI-03"},
		Tamper: env.Tamper{Wiring: drop(picker.Foreign)}},
	{Name: "others-untold", Fault: "a picker tells the others nothing", Class: "ACCT", Meant: []string{"FC-MULTI-03"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) { w.InFlight = nil }}},
	{Name: "others-for-ever", Fault: "the load of a picker that has died is never forgotten", Class: "ACCT", Meant: []string{"FC-MULTI-03"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) {
			if c.Detector.ForeignLimit > 0 {
				c.Detector.ForeignLimit = 24 * time.Hour
			}
		})}},
	{Name: "series-without-gate", Fault: "flow-control series are published with the gate off", Class: "MET", Meant: []string{"FC-MET-14"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			w.Families = func(fs []*dto.MetricFamily) []*dto.MetricFamily {
				for _, f := range fs {
					if f.GetName() == wire.PrefixLegacyFC+wire.MetricQueueSize {
						return fs
					}
				}
				name, zero := wire.PrefixLegacyFC+wire.MetricQueueSize, 0.0
				return append(fs, &dto.MetricFamily{Name: &name, Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &zero}}}})
			}
		}}},
}

// defaultBytes sets the byte limit of the templates, and of bands that have the default one.
func defaultBytes(n int64) func(*epconfig.Config) {
	return flow(func(c *flowcontrol.Config) {
		was := c.DefaultBand.MaxBytes
		c.DefaultBand.MaxBytes, c.DefaultNegativeBand.MaxBytes = n, n
		for i := range c.Bands {
			if c.Bands[i].MaxBytes == was {
				c.Bands[i].MaxBytes = n
			}
		}
	})
}

// staying adds the series of families that were once on the page and are not any more.
func staying(suffixes ...string) func(*epp.Wiring) {
	return func(w *epp.Wiring) {
		seen := map[string]*dto.Metric{}
		w.Families = func(fs []*dto.MetricFamily) []*dto.MetricFamily {
			for _, f := range fs {
				for _, s := range suffixes {
					if !strings.HasSuffix(f.GetName(), s) {
						continue
					}
					now := map[string]bool{}
					for _, m := range f.GetMetric() {
						key := f.GetName() + m.String()
						if i := strings.Index(key, "gauge:"); i > 0 {
							key = key[:i]
						}
						now[key], seen[key] = true, m
					}
					for key, m := range seen {
						if strings.HasPrefix(key, f.GetName()) && !now[key] {
							f.Metric = append(f.Metric, m)
						}
					}
				}
			}
			return fs
		}
	}
}
