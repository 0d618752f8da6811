package selfcheck

import (
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/extproc"
	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/picker"
)

var limitMutants = []Mutant{
	{Name: "capacity-one-more", Fault: "a band of n holds n+1", Class: "CAP", Meant: []string{"FC-CAP-01"},
		Tamper: env.Tamper{Config: limits(func(n *int64) { *n++ }, nil)}},
	{Name: "capacity-one-less", Fault: "a band of n holds n-1", Class: "CAP", Meant: []string{"FC-CAP-01"},
		Tamper: env.Tamper{Config: limits(func(n *int64) { *n-- }, nil)}},
	{Name: "capacity-ignored", Fault: "request limits are accepted and ignored", Class: "CAP", Meant: []string{"FC-CAP-01", "FC-REF-02"},
		Tamper: env.Tamper{Config: limits(func(n *int64) { *n = 0 }, nil)}},
	{Name: "bytes-one-more", Fault: "a byte limit may be exceeded by one", Class: "CAP", Meant: []string{"FC-CAP-10"},
		Tamper: env.Tamper{Config: limits(nil, func(n *int64) { *n++ })}},
	{Name: "bytes-ignored", Fault: "byte limits are accepted and ignored", Class: "CAP", Meant: []string{"FC-CAP-02"},
		Tamper: env.Tamper{Config: limits(nil, func(n *int64) { *n = 0 })}},
	{Name: "global-limit-ignored", Fault: "global limits are accepted and ignored", Class: "CAP", Meant: []string{"FC-CAP-04", "FC-CAP-05"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.MaxRequests, c.MaxBytes = 0, 0 })}},
	{Name: "higher-counts", Fault: "what waits above a band counts against its limit", Class: "CAP", Meant: []string{"FC-CAP-03"},
		Tamper: env.Tamper{Wiring: turnsAway(true, twoAbove)}},
	{Name: "in-flight-counts", Fault: "running requests count against the queue limit", Class: "CAP", Meant: []string{"FC-CAP-09"},
		Tamper: env.Tamper{Wiring: turnsAway(false, func(_ int, inside map[uint64]int) bool { return len(inside) >= 1 })}},
	{Name: "ttl-ignored", Fault: "the wait limit is accepted and ignored", Class: "TTL", Meant: []string{"FC-TTL-01"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.TTL, c.NoEndpointTTL = 0, 0 })}},
	{Name: "ttl-late", Fault: "the wait limit strikes three times too late", Class: "TTL", Meant: []string{"FC-TTL-01"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.TTL *= 3 })}},
	{Name: "ttl-early", Fault: "the wait limit strikes at nine tenths", Class: "TTL", Meant: []string{"FC-TTL-01"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.TTL = c.TTL * 9 / 10 })}},
	{Name: "ttl-while-running", Fault: "the wait limit stops running requests", Class: "TTL", Meant: []string{"FC-TTL-03"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) { w.Machine = &overstayer{Machine: w.Machine, limit: 2 * time.Second} }}},
}

// limits changes the request and byte limits of every band that has one.
func limits(requests, bytes func(*int64)) func(*epconfig.Config) {
	return flow(func(c *flowcontrol.Config) {
		for i := range c.Bands {
			if b := &c.Bands[i]; requests != nil && b.MaxRequests > 0 {
				requests(&b.MaxRequests)
			} else if bytes != nil && b.MaxBytes > 0 {
				bytes(&b.MaxBytes)
			}
		}
		if bytes != nil && c.MaxBytes > 0 {
			bytes(&c.MaxBytes)
		}
	})
}

// turnsAway refuses arrivals as if a limit were reached. inside are the priorities of whoever is in the router, or with waiting of whoever waits there.
func turnsAway(waiting bool, full func(priority int, inside map[uint64]int) bool) func(*epp.Wiring) {
	return func(w *epp.Wiring) {
		inside := map[uint64]int{}
		var refused []uint64
		w.Machine = &wrapper{inner: w.Machine,
			in: func(_ time.Duration, ev *picker.Event) bool {
				switch ev.Kind {
				case picker.Arrive:
					if full(ev.Request.Priority, inside) {
						refused = append(refused, ev.ID)
						return false
					}
					inside[ev.ID] = ev.Request.Priority
				case picker.Finish, picker.Cancel:
					delete(inside, ev.ID)
				}
				return true
			},
			out: func(_ time.Duration, outs []picker.Out) []picker.Out {
				for _, o := range outs {
					if waiting {
						delete(inside, o.ID)
					}
				}
				for _, id := range refused {
					outs = append(outs, picker.Out{Kind: picker.Reject, ID: id, Outcome: wire.RejectedCapacity})
				}
				refused = nil
				return outs
			}}
	}
}

// twoAbove tells whether two wait at 100 when one below 0 arrives.
func twoAbove(priority int, waits map[uint64]int) bool {
	above := 0
	for _, p := range waits {
		if p == 100 {
			above++
		}
	}
	return priority < 0 && above >= 2
}

var wireMutants = []Mutant{
	{Name: "capacity-503", Fault: "a full queue is answered 503", Class: "WIRE", Meant: []string{"FC-REF-02"},
		Tamper: env.Tamper{Wiring: refuse(func(o wire.Outcome, r *wire.Refusal) {
			if o == wire.RejectedCapacity {
				r.Status = 503
			}
		})}},
	{Name: "ttl-500", Fault: "an expired wait is answered 500", Class: "WIRE", Meant: []string{"FC-REF-03"},
		Tamper: env.Tamper{Wiring: refuse(func(o wire.Outcome, r *wire.Refusal) {
			if o == wire.EvictedTTL {
				r.Status = 500
			}
		})}},
	{Name: "ttl-of-0.9", Except: []string{"llm-d-router-0.9", "rhoai-3.4"}, Fault: "an expired wait is answered as router 0.9 did", Class: "WIRE", Meant: []string{"FC-REF-03"},
		Tamper: env.Tamper{Wiring: refuse(func(o wire.Outcome, r *wire.Refusal) {
			if o == wire.EvictedTTL {
				r.Status = 503
			}
		})}},
	{Name: "shutdown-429", Fault: "a shutdown is answered 429", Class: "WIRE", Meant: []string{"FC-SHUT-01"},
		Tamper: env.Tamper{Wiring: refuse(func(o wire.Outcome, r *wire.Refusal) {
			if o == wire.EvictedOther {
				r.Status = 429
			}
		})}},
	{Name: "empty-pool-429", Except: []string{"llm-d-router-0.9", "rhoai-3.4"}, Fault: "an empty pool is answered as a contended one", Class: "WIRE", Meant: []string{"FC-REF-04", "FC-REF-05"},
		Tamper: env.Tamper{Wiring: refuse(func(o wire.Outcome, r *wire.Refusal) {
			switch o {
			case wire.RejectedNoEndpoints:
				r.Status, r.Reason = 429, wire.ReasonSaturated
			case wire.EvictedNoEndpoints:
				r.Status, r.Reason = 429, wire.ReasonTTLExpired
			}
		})}},
	{Name: "no-reason", Except: inline, Fault: "refusals name no reason", Class: "WIRE", Meant: []string{"FC-REF-01", "FC-REF-02"},
		Tamper: env.Tamper{Wiring: refuse(func(_ wire.Outcome, r *wire.Refusal) { r.Reason = "" })}},
	{Name: "one-reason", Except: inline, Fault: "all refusals name the same reason", Class: "WIRE", Meant: []string{"FC-REF-01"},
		Tamper: env.Tamper{Wiring: refuse(func(_ wire.Outcome, r *wire.Refusal) { r.Reason = wire.ReasonSaturated })}},
	{Name: "own-reason", Except: inline, Fault: "refusals name a reason of the implementation's own", Class: "WIRE", Meant: []string{"FC-REF-08"},
		Tamper: env.Tamper{Wiring: refuse(func(o wire.Outcome, r *wire.Refusal) {
			if o == wire.EvictedTTL {
				r.Reason = "queue-timeout"
			}
		})}},
	{Name: "alias-beats-canonical", Fault: "the deprecated header wins over the canonical one", Class: "HDR", Meant: []string{"FC-CLS-05"},
		Tamper: env.Tamper{Wiring: classify(func(h extproc.Headers, id *extproc.Identity) {
			if v, ok := h[wire.HeaderObjectiveAlias]; ok {
				id.Objective = v
			}
			if v, ok := h[wire.HeaderFairnessIDAlias]; ok {
				id.FairnessID = v
			}
		})}},
	{Name: "headers-joined", Fault: "a canonical header and its deprecated one are joined", Class: "HDR", Meant: []string{"FC-CLS-05"},
		Tamper: env.Tamper{Wiring: classify(func(h extproc.Headers, id *extproc.Identity) {
			if v, ok := h[wire.HeaderObjectiveAlias]; ok && h[wire.HeaderObjective] != "" {
				id.Objective = h[wire.HeaderObjective] + "," + v
			}
		})}},
	{Name: "flows-joined", Fault: "both fairness headers together name the flow", Class: "HDR", Meant: []string{"FC-CLS-05"},
		Tamper: env.Tamper{Wiring: classify(func(h extproc.Headers, id *extproc.Identity) {
			if v, ok := h[wire.HeaderFairnessIDAlias]; ok && h[wire.HeaderFairnessID] != "" {
				id.FairnessID = h[wire.HeaderFairnessID] + "," + v
			}
		})}},
	{Name: "alias-fills-empty", Fault: "an empty canonical header lets the alias through", Class: "HDR", Meant: []string{"FC-CLS-06"},
		Tamper: env.Tamper{Wiring: classify(func(h extproc.Headers, id *extproc.Identity) {
			if id.Objective == "" {
				id.Objective = h[wire.HeaderObjectiveAlias]
			}
		})}},
	{Name: "alias-unknown", Fault: "the deprecated headers are not read", Class: "HDR", Meant: []string{"FC-CLS-03", "FC-CLS-04"},
		Tamper: env.Tamper{Wiring: classify(func(h extproc.Headers, id *extproc.Identity) {
			id.Objective = h[wire.HeaderObjective]
			if id.FairnessID = h[wire.HeaderFairnessID]; id.FairnessID == "" {
				id.FairnessID = wire.DefaultFlow
			}
		})}},
	{Name: "unknown-objective-high", Fault: "an unknown objective gets a high priority", Class: "HDR", Meant: []string{"FC-CLS-08"},
		Tamper: env.Tamper{Wiring: classify(func(_ extproc.Headers, id *extproc.Identity) {
			if strings.HasPrefix(id.Objective, "no-such") {
				id.Objective = "p10"
			}
		})}},
	{Name: "no-objective-low", Fault: "a missing objective gets the lowest priority", Class: "HDR", Meant: []string{"FC-CLS-07"},
		Tamper: env.Tamper{Wiring: classify(func(_ extproc.Headers, id *extproc.Identity) {
			if id.Objective == "" {
				id.Objective = "m10"
			}
		})}},
	{Name: "look-alike-priority", Fault: "x-gateway-priority is believed", Class: "HDR", Meant: []string{"FC-CLS-19"},
		Tamper: env.Tamper{Wiring: classify(func(h extproc.Headers, id *extproc.Identity) {
			if v, ok := h["x-gateway-priority"]; ok {
				id.Objective = "p" + v
			}
		})}},
	{Name: "look-alike-flow", Fault: "x-gateway-fairness-id is believed where there is no other", Class: "HDR", Meant: []string{"FC-CLS-19"},
		Tamper: env.Tamper{Wiring: classify(func(h extproc.Headers, id *extproc.Identity) {
			if v, ok := h["x-gateway-fairness-id"]; ok && id.FairnessID == wire.DefaultFlow {
				id.FairnessID = v
			}
		})}},
	{Name: "flow-per-request", Fault: "a request without a fairness id is a flow of its own", Class: "HDR", Meant: []string{"FC-CLS-13"},
		Tamper: env.Tamper{Wiring: classify(func(_ extproc.Headers, id *extproc.Identity) {
			if id.FairnessID == wire.DefaultFlow {
				// Unlike a counter this needs no state, and the harness's ids are unique.
				id.FairnessID = "anonymous-" + id.Label
			}
		})}},
}

var endingMutants = []Mutant{
	{Name: "cancel-ignored", Fault: "a client that left stays in the queue", Class: "ACCT", Meant: []string{"FC-CAN-01", "FC-CAN-02"},
		Tamper: env.Tamper{Wiring: drop(picker.Cancel)}},
	{Name: "cancelled-behind-others", Fault: "a client that left stays in the queue while one of its flow is in front of it", Class: "ACCT", Meant: []string{"FC-CAN-02"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			inside := map[uint64]string{}
			events(func(_ time.Duration, ev *picker.Event) bool {
				switch ev.Kind {
				case picker.Arrive:
					inside[ev.ID] = ev.Request.FairnessID
				case picker.Finish, picker.Cancel:
					own := inside[ev.ID]
					delete(inside, ev.ID)
					if ev.Kind == picker.Finish {
						return true
					}
					for id, flow := range inside {
						if id < ev.ID && flow == own {
							return false
						}
					}
				}
				return true
			})(w)
		}}},
	{Name: "deadline-keeps-place", Fault: "a stream whose deadline is over keeps its place in the queue", Class: "TTL", Meant: []string{"FC-TTL-10"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			came := map[uint64]time.Duration{}
			events(func(now time.Duration, ev *picker.Event) bool {
				switch ev.Kind {
				case picker.Arrive:
					came[ev.ID] = now
				case picker.Cancel:
					waited := now - came[ev.ID]
					return waited < 495*time.Millisecond || waited > 505*time.Millisecond
				}
				return true
			})(w)
		}}},
	{Name: "leak-on-abort", Except: inline, Fault: "a slot is leaked when a client leaves before the response", Class: "ACCT", Meant: []string{"FC-CAN-04"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			begun := map[uint64]bool{}
			events(func(_ time.Duration, ev *picker.Event) bool {
				if ev.Kind == picker.FirstChunk {
					begun[ev.ID] = true
				}
				return ev.Kind != picker.Finish || begun[ev.ID]
			})(w)
		}}},
	{Name: "leak-on-refusal", Except: inline, Fault: "each refused arrival takes a slot for ever", Class: "ACCT", Meant: []string{"INV-04"},
		Tamper: env.Tamper{Wiring: leakOnRefusal}},
	{Name: "request-lost", Fault: "every seventh request is forgotten", Class: "CRASH", Meant: []string{"INV-03", "INV-06"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			n := 0
			events(func(_ time.Duration, ev *picker.Event) bool {
				if ev.Kind == picker.Arrive {
					n++
				}
				return ev.Kind != picker.Arrive || n%7 != 0
			})(w)
		}}},
	{Name: "shutdown-silent", Fault: "queued requests hang at shutdown", Class: "DRAIN", Meant: []string{"FC-SHUT-01"},
		Tamper: env.Tamper{Wiring: drop(picker.Shutdown)}},
	{Name: "double-free", Except: inline, Fault: "the end of one request frees two slots", Class: "ACCT", Meant: []string{"FC-ORD-11", "INV-04"},
		Tamper: env.Tamper{Wiring: doubleFree}},
	{Name: "disconnect-ignored", Fault: "a client that left goes on running at the model server", Class: "ACCT", Meant: []string{"FC-CAN-03"},
		Tamper: plane(env.DataPlane{IgnoreDisconnect: true})},
	{Name: "sent-twice", Fault: "a request is sent to its model server twice", Class: "BODY", Meant: []string{"INV-07"},
		Tamper: plane(env.DataPlane{Twice: true})},
	{Name: "refused-and-sent", Fault: "a refused request is forwarded all the same", Class: "WIRE", Meant: []string{"FC-REF-11", "BEN-01"},
		Tamper: plane(env.DataPlane{ForwardRefused: true})},
	{Name: "same-id-leaks", Fault: "the end of a request is lost while another has its request id", Class: "ACCT", Except: inline, Meant: []string{"FC-PROTO-15"},
		Tamper: plane(env.DataPlane{LeakSameID: true})},
	{Name: "upstream-masked", Fault: "every error of a model server becomes 502", Class: "WIRE", Meant: []string{"FC-REF-17"},
		Tamper: plane(env.DataPlane{Upstream: func(int) int { return 502 }})},
	{Name: "malformed-queued", Fault: "malformed bodies are queued and forwarded", Class: "BODY", Meant: []string{"FC-PROTO-11"},
		Tamper: plane(env.DataPlane{SkipValidation: true})},
}

func plane(p env.DataPlane) env.Tamper { return env.Tamper{Plane: p} }

// doubleFree reports, with each request that ends, the next one dispatched as finished too.
func doubleFree(w *epp.Wiring) {
	owed := 0
	wrapped := &wrapper{inner: w.Machine}
	wrapped.in = func(_ time.Duration, ev *picker.Event) bool {
		if ev.Kind == picker.Finish {
			owed++
		}
		return true
	}
	wrapped.out = func(now time.Duration, outs []picker.Out) []picker.Out {
		for _, o := range outs {
			if o.Kind == picker.Dispatch && owed > 0 {
				owed--
				wrapped.late = append(wrapped.late, lateEvent{now, picker.Event{Kind: picker.Finish, ID: o.ID}})
			}
		}
		return outs
	}
	w.Machine = wrapped
}

// leakOnRefusal dispatches a ghost for every capacity refusal: a request that nobody will ever finish.
func leakOnRefusal(w *epp.Wiring) {
	ghosts := uint64(1 << 40)
	inner := w.Machine
	w.Machine = &wrapper{inner: inner, out: func(now time.Duration, outs []picker.Out) []picker.Out {
		for _, o := range outs {
			if o.Kind == picker.Reject && o.Outcome == wire.RejectedCapacity {
				ghosts++
				inner.Step(now, picker.Event{Kind: picker.Arrive, ID: ghosts, Request: picker.Request{FairnessID: "ghost"}}, nil)
			}
		}
		return outs
	}}
}

var surfaceMutants = []Mutant{
	{Name: "lenient-config", Fault: "unknown fields are skipped silently", Class: "CFG", Meant: []string{"FC-CFG-03"},
		Tamper: env.Tamper{Document: func(doc string) string {
			var keep []string
			for _, l := range strings.Split(doc, "\n") {
				if !strings.Contains(l, "maxConcurency") && !strings.Contains(l, "flowControll") {
					keep = append(keep, l)
				}
			}
			return strings.Join(keep, "\n")
		}}},
	{Name: "negative-as-unlimited", Fault: "a negative limit means none", Class: "CFG", Meant: []string{"FC-CFG-12"},
		Tamper: env.Tamper{Document: func(doc string) string { return strings.ReplaceAll(doc, `"-1"`, `"0"`) }}},
	{Name: "unknown-policy-accepted", Fault: "an unknown policy name means the default", Class: "CFG", Meant: []string{"FC-CFG-11"},
		Tamper: env.Tamper{Document: func(doc string) string {
			return strings.NewReplacer("no-such-fairness-policy", "global-strict-fairness-policy", "no-such-ordering-policy", "fcfs-ordering-policy",
				"  usageLimitPolicyPluginRef: no-such-limit-policy\n", "").Replace(doc)
		}}},
	{Name: "last-band-wins", Fault: "a priority listed twice is taken once", Class: "CFG", Meant: []string{"FC-CFG-10"},
		Tamper: env.Tamper{Document: func(doc string) string { return strings.Replace(doc, "  - {priority: 4711}\n", "", 1) }}},
	{Name: "legacy-detector-skipped", Except: inline, Fault: "the older detector block is skipped silently", Class: "CFG", Meant: []string{"FC-CFG-16"},
		Tamper: env.Tamper{Document: func(doc string) string {
			return strings.Replace(doc, "saturationDetector:\n  queueDepthThreshold: 5\n  kvCacheUtilThreshold: 0.8\n", "", 1)
		}}},
	{Name: "body-reencoded", Except: []string{"llm-d-router-0.9", "rhoai-3.4"}, Fault: "the body is decoded and encoded on the way", Class: "BODY", Meant: []string{"FC-PROTO-05"},
		Tamper: plane(env.DataPlane{Forward: reencode})},
	{Name: "body-truncated", Fault: "long bodies lose their end", Class: "BODY", Meant: []string{"FC-PROTO-05"},
		Tamper: plane(env.DataPlane{Forward: func(b []byte) []byte { return b[:min(len(b), wire.BodyByteLimit)] }})},
	{Name: "kv-range-clamped", Fault: "a KV threshold out of range is moved into it", Class: "CFG", Meant: []string{"FC-CFG-06"},
		Tamper: env.Tamper{Document: func(doc string) string {
			return strings.NewReplacer("kvCacheUtilThreshold: 1.1", "kvCacheUtilThreshold: 1.0", "kvCacheUtilThreshold: -0.1", "kvCacheUtilThreshold: 0.1").Replace(doc)
		}}},
	{Name: "headroom-clamped", Fault: "a negative headroom counts as none", Class: "CFG", Meant: []string{"FC-CFG-09"},
		Tamper: env.Tamper{Document: func(doc string) string { return strings.ReplaceAll(doc, "headroom: -0.1", "headroom: 0") }}},
	{Name: "constants-as-fields", Fault: "cleanup and collection intervals are accepted and ignored", Class: "CFG", Meant: []string{"FC-CFG-13"},
		Tamper: env.Tamper{Document: func(doc string) string {
			return strings.NewReplacer("  expiryCleanupInterval: 1s\n", "", "  flowGCTimeout: 5m\n", "", "  priorityBandGCTimeout: 10m\n", "").Replace(doc)
		}}},
	{Name: "twin-lags", Fault: "a series under its older name is one behind", Class: "MET", Meant: []string{"FC-MET-07"},
		Tamper: env.Tamper{Wiring: families(func(fs []*dto.MetricFamily) {
			for _, f := range fs {
				if f.GetName() == wire.PrefixLegacyFC+wire.MetricQueueBytes {
					for _, m := range f.GetMetric() {
						v := m.Gauge.GetValue() - 1
						m.Gauge.Value = &v
					}
				}
			}
		})}},
	{Name: "waits-in-milliseconds", Fault: "the queue-duration histogram observes milliseconds", Class: "MET", Meant: []string{"FC-MET-03"},
		Tamper: env.Tamper{Wiring: families(func(fs []*dto.MetricFamily) {
			for _, f := range fs {
				if !strings.HasSuffix(f.GetName(), wire.MetricQueueDuration) {
					continue
				}
				for _, m := range f.GetMetric() {
					sum := m.Histogram.GetSampleSum() * 1000
					m.Histogram.SampleSum = &sum
				}
			}
		})}},
	{Name: "wrong-label", Fault: "the queue gauge calls the tenant something else", Class: "MET", Meant: []string{"FC-MET-02"},
		Tamper: env.Tamper{Wiring: families(func(fs []*dto.MetricFamily) {
			for _, f := range fs {
				if strings.HasSuffix(f.GetName(), wire.MetricQueueSize) {
					for _, m := range f.GetMetric() {
						for _, l := range m.GetLabel() {
							if l.GetName() == "fairness_id" {
								name := "tenant"
								l.Name = &name
							}
						}
					}
				}
			}
		})}},
	{Name: "gauge-sticks", Fault: "the queue gauge never returns to zero", Class: "MET", Meant: []string{"FC-MET-02", "INV-05"},
		Tamper: env.Tamper{Wiring: gauges(wire.MetricQueueSize, func(m *dto.Metric) {
			v := max(1, m.Gauge.GetValue())
			m.Gauge.Value = &v
		})}},
	{Name: "vain-waits-unmeasured", Except: inline, Fault: "waits that ended in a refusal are counted as no time", Class: "MET", Meant: []string{"FC-MET-03"},
		Tamper: env.Tamper{Wiring: families(func(fs []*dto.MetricFamily) {
			for _, f := range fs {
				for _, m := range f.GetMetric() {
					for _, l := range m.GetLabel() {
						if m.Histogram != nil && l.GetName() == "outcome" && l.GetValue() != "Dispatched" {
							none := 0.
							m.Histogram.SampleSum = &none
						}
					}
				}
			}
		})}},
	{Name: "expired-stay", Fault: "what has expired stays in the queue gauge", Class: "ACCT", Meant: []string{"INV-05"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			expired := 0.
			refuse(func(o wire.Outcome, _ *wire.Refusal) {
				if o == wire.EvictedTTL {
					expired++
				}
			})(w)
			gauges(wire.MetricQueueSize, func(m *dto.Metric) {
				v := m.Gauge.GetValue() + expired
				m.Gauge.Value = &v
			})(w)
		}}},
	{Name: "old-name-only", Except: inline, Fault: "the queue gauge has only its older name", Class: "MET", Meant: []string{"FC-MET-02"},
		Tamper: env.Tamper{Wiring: families(func(fs []*dto.MetricFamily) {
			for _, f := range fs {
				if f.GetName() == wire.PrefixFlowControl+wire.MetricQueueSize {
					name := wire.PrefixFlowControl + "queue_length"
					f.Name = &name
				}
			}
		})}},
	{Name: "bytes-in-kib", Fault: "queued bytes are published in KiB", Class: "MET", Meant: []string{"FC-MET-05"},
		Tamper: env.Tamper{Wiring: gauges(wire.MetricQueueBytes, func(m *dto.Metric) {
			v := m.Gauge.GetValue() / 1024
			m.Gauge.Value = &v
		})}},
	{Name: "saturation-clamped", Fault: "the saturation gauge is rounded to whole numbers", Class: "MET", Meant: []string{"FC-MET-01"},
		Tamper: env.Tamper{Wiring: gauges(wire.MetricPoolSaturation, func(m *dto.Metric) {
			v := float64(int(m.Gauge.GetValue()))
			m.Gauge.Value = &v
		})}},
}
