// Package selfcheck proves that the suite can fail: mutants are transformers around the reference's events, decisions and wire, and
// each must be found by the requirement meant for it.
//
//	mutant --Tamper--> reference in virtual time --> catalogue --> verdicts --> matrix mutant × requirement
//
// A mutant that fails only requirements it was not meant for is not killed: the row meant for it would have let it through.
package selfcheck

import (
	"encoding/json"
	"slices"
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

// Mutant is one faulty variant of the reference.
type Mutant struct {
	Name  string
	Fault string   // what is wrong with it
	Class string   // of spec/known-faults.md
	Meant []string // the requirements meant to find it; one of them must fail
	// Except names the contracts under which the fault is none: what it does is what they ask for, or they do not use what it breaks.
	Except []string
	env.Tamper
	Processor Tampering // of a variant of the processor
}

// Mutants lists the faulty variants.
func Mutants() []Mutant {
	return slices.Concat(orderMutants, gateMutants, limitMutants, wireMutants, endingMutants, evictionMutants, surfaceMutants, outsideMutants, benchMutants, chainMutants)
}

// Noop changes nothing. No check can see it; with it the self-check must not pass.
func Noop() Mutant {
	return Mutant{Name: "noop", Fault: "none at all", Class: "-", Meant: []string{"every requirement"}}
}

func events(in func(now time.Duration, ev *picker.Event) bool) func(*epp.Wiring) {
	return func(w *epp.Wiring) { w.Machine = &wrapper{inner: w.Machine, in: in} }
}

// arrivals changes the requests that arrive.
func arrivals(change func(*picker.Request)) func(*epp.Wiring) {
	return events(func(_ time.Duration, ev *picker.Event) bool {
		if ev.Kind == picker.Arrive {
			change(&ev.Request)
		}
		return true
	})
}

// drop loses every event of a kind.
func drop(kind picker.EventKind) func(*epp.Wiring) {
	return events(func(_ time.Duration, ev *picker.Event) bool { return ev.Kind != kind })
}

func flow(change func(*flowcontrol.Config)) func(*epconfig.Config) {
	return func(c *epconfig.Config) { change(&c.Picker.Flow) }
}

func swap(better func(a, b waiting) bool) func(*epp.Wiring) {
	return func(w *epp.Wiring) { w.Machine = newSwapper(w.Machine, better) }
}

// inline are the contracts that make capacity with the utilization detector: accounting of requests in flight decides nothing there.
var inline = []string{"rhoai-3.4"}

func sameBand(a, b waiting) bool { return a.request.Priority == b.request.Priority }

var orderMutants = []Mutant{
	{Name: "ignore-priority", Fault: "every request counts as priority 0", Class: "ORD", Meant: []string{"FC-PRI-01"},
		Tamper: env.Tamper{Wiring: arrivals(func(r *picker.Request) { r.Priority = 0 })}},
	{Name: "invert-priority", Fault: "the lowest priority goes first", Class: "ORD", Meant: []string{"FC-PRI-01"},
		Tamper: env.Tamper{Wiring: swap(func(a, b waiting) bool { return b.request.Priority < a.request.Priority })}},
	{Name: "priority-at-arrival", Fault: "a late high request waits behind what was queued before it", Class: "ORD", Meant: []string{"FC-PRI-02"},
		Tamper: env.Tamper{Wiring: swap(func(a, b waiting) bool { return b.sequence < a.sequence })}},
	{Name: "ignore-fairness-id", Fault: "all requests are one flow", Class: "ORD", Meant: []string{"FC-FAIR-01"},
		Tamper: env.Tamper{Wiring: arrivals(func(r *picker.Request) { r.FairnessID = wire.DefaultFlow })}},
	{Name: "lifo", Fault: "the newest request of a flow goes first", Class: "ORD", Meant: []string{"FC-ORD-01"},
		Tamper: env.Tamper{Wiring: swap(func(a, b waiting) bool {
			return sameBand(a, b) && a.request.FairnessID == b.request.FairnessID && b.sequence > a.sequence
		})}},
	{Name: "smallest-first", Fault: "the smallest body of a band goes first", Class: "ORD", Meant: []string{"FC-FAIR-05"},
		Tamper: env.Tamper{Wiring: swap(func(a, b waiting) bool { return sameBand(a, b) && b.request.Bytes < a.request.Bytes })}},
	{Name: "round-robin-as-fifo", Fault: "round robin is configured and global strict is run", Class: "CFG", Meant: []string{"FC-FAIR-01", "FC-FAIR-02"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) {
			for i := range c.Bands {
				c.Bands[i].Fairness = flowcontrol.GlobalStrict
			}
		})}},
	{Name: "round-robin-by-default", Fault: "a band that names no policy runs round robin", Class: "CFG", Meant: []string{"FC-FAIR-07"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) {
			c.DefaultBand.Fairness, c.DefaultNegativeBand.Fairness = flowcontrol.RoundRobin, flowcontrol.RoundRobin
		})}},
	{Name: "slo-as-fcfs", Fault: "deadline ordering is accepted and ignored", Class: "CFG", Meant: []string{"FC-ORD-06"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) {
			for i := range c.Bands {
				c.Bands[i].Ordering = flowcontrol.FCFS
			}
		})}},
	{Name: "slo-bare-target", Fault: "the target is compared without the time of receipt", Class: "ORD", Meant: []string{"FC-ORD-07"},
		Tamper: env.Tamper{Wiring: arrivals(func(r *picker.Request) { r.Received = 0 })}},
	{Name: "slo-junk-first", Fault: "a missing target counts as zero", Class: "ORD", Meant: []string{"FC-ORD-08"},
		Tamper: env.Tamper{Wiring: arrivals(func(r *picker.Request) { r.HasTTFT = true })}},
}

var gateMutants = []Mutant{
	{Name: "never-closes", Fault: "saturation is stuck at 0", Class: "SAT", Meant: []string{"INV-01", "FC-SAT-01", "BEN-07"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) {
			c.Detector.MaxConcurrency, c.Detector.QueueDepth, c.Detector.KVUtil = 1<<30, 1<<30, 1
			c.Detector.Staleness = 24 * time.Hour
		})}},
	{Name: "never-opens", Fault: "saturation is stuck at 1", Class: "SAT", Meant: []string{"FC-SAT-02", "FC-SAT-05", "INV-01"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Ceiling = flowcontrol.CeilingConfig{Threshold: 0} })}},
	{Name: "opens-late", Except: inline, Fault: "freed capacity is noticed two seconds later", Class: "SAT", Meant: []string{"FC-SAT-02", "INV-02"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			w.Machine = &wrapper{inner: w.Machine, delay: func(ev picker.Event) time.Duration {
				if ev.Kind == picker.Finish {
					return 2 * time.Second
				}
				return 0
			}}
		}}},
	{Name: "default-limit", Except: inline, Fault: "the configured concurrency limit is ignored, the default runs", Class: "CFG", Meant: []string{"INV-01"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Detector.MaxConcurrency = 100 })}},
	{Name: "one-too-many", Except: inline, Fault: "one request more than the limit is dispatched", Class: "SAT", Meant: []string{"INV-01", "FC-CEIL-02"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Detector.MaxConcurrency++ })}},
	{Name: "exclusive-comparison", Fault: "the gate closes above the ceiling instead of at it", Class: "SAT", Meant: []string{"FC-SAT-05"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) {
			if c.Ceiling.Kind == flowcontrol.Static {
				c.Ceiling.Threshold += 1e-9
			}
		})}},
	{Name: "ignores-kv", Fault: "only the waiting depth is read", Class: "SAT", Meant: []string{"FC-SAT-05"},
		Tamper: env.Tamper{Wiring: samples(func(_ picker.EndpointID, l *picker.Load) { l.KV = 0 })}},
	{Name: "hottest-endpoint", Fault: "the pool value is the maximum over endpoints, not the mean", Class: "SAT", Meant: []string{"FC-SAT-07"},
		Tamper: env.Tamper{Wiring: hottest}},
	{Name: "sum-of-pressures", Fault: "waiting and KV pressure are added up", Class: "SAT", Meant: []string{"FC-SAT-06"},
		Tamper: env.Tamper{Wiring: samples(func(_ picker.EndpointID, l *picker.Load) { l.Waiting += l.KV / 0.8 * 5; l.KV = 0 })}},
	{Name: "stale-metrics-trusted", Fault: "old readings count for ever", Class: "SAT", Meant: []string{"FC-SAT-09"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Detector.Staleness = 24 * time.Hour })}},
	{Name: "ceiling-ignored", Fault: "every ceiling is 1.0", Class: "CEIL", Meant: []string{"FC-CEIL-01"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Ceiling = flowcontrol.CeilingConfig{Threshold: 1} })}},
	{Name: "holdback-flat", Fault: "holdback gives every band the highest ceiling", Class: "CEIL", Meant: []string{"FC-CEIL-04"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Ceiling.Min = c.Ceiling.Max - 1e-6 })}},
	{Name: "gate-always-on", Fault: "flow control runs although its feature gate is off", Class: "CFG", Meant: []string{"FC-CFG-02"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Off = false })}},
	{Name: "gate-off-sheds-nothing", Fault: "without the gate negative priorities pass at saturation", Class: "CFG", Meant: []string{"FC-REF-14"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.ShedAt = 1e9 })}},
	{Name: "gate-off-names-reason", Fault: "without the gate a refusal names a reason", Class: "WIRE", Meant: []string{"FC-REF-14"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			inner := w.Refuse
			w.Refuse = func(o wire.Outcome) wire.Refusal {
				r := inner(o)
				if r.Status == 429 && r.Reason == "" {
					r.Reason = wire.ReasonSaturated
				}
				return r
			}
		}}},
	{Name: "global-limit-by-default", Except: inline, Fault: "a global limit of five requests holds although none is set", Class: "CAP", Meant: []string{"FC-CAP-07"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) {
			if c.MaxRequests == 0 {
				c.MaxRequests = 5
			}
		})}},
	{Name: "service-not-counted", Except: inline, Fault: "what a tenant was served is forgotten", Class: "FAIR", Meant: []string{"FC-FAIR-11"},
		Tamper: env.Tamper{Wiring: events(func(_ time.Duration, ev *picker.Event) bool { ev.Usage = picker.Usage{}; return true })}},
	{Name: "holdback-low", Fault: "holdback gives every band the lowest ceiling", Class: "CEIL", Meant: []string{"FC-CEIL-04", "FC-CEIL-09"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Ceiling.Max = c.Ceiling.Min + 1e-6 })}},
	{Name: "holdback-by-rank", Fault: "holdback spreads by rank where it should by value", Class: "CEIL", Meant: []string{"FC-CEIL-06"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Ceiling.ByValue = false })}},
	{Name: "headroom-adds-capacity", Fault: "headroom raises the pool's denominator", Class: "CEIL", Meant: []string{"FC-HEAD-05"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) {
			c.Detector.MaxConcurrency += int(float64(c.Detector.MaxConcurrency) * c.Detector.Headroom)
		})}},
	{Name: "headroom-no-filter", Fault: "the endpoint filter does not run", Class: "CEIL", Meant: []string{"FC-HEAD-02"},
		Tamper: env.Tamper{Config: func(c *epconfig.Config) {
			c.Picker.Flow.Detector.Filter = false
			c.Picker.Scheduling.Scorers = nil
		}, Wiring: endpointAtArrival}},
	{Name: "filter-off", Fault: "the detector is not added to the profile as a filter", Class: "CEIL", Meant: []string{"FC-HEAD-02", "FC-HEAD-04"},
		Tamper: env.Tamper{Config: func(c *epconfig.Config) { c.Picker.Flow.Detector.Filter = false }}},
	{Name: "filter-fails-closed", Fault: "a request whose candidates are all excluded is refused", Class: "CEIL", Except: []string{"llm-d-router-0.9", "rhoai-3.4"},
		Meant: []string{"FC-HEAD-08", "FC-REF-13"}, Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Detector.FilterFailOpen = false })}},
	{Name: "filter-fails-open", Fault: "a request whose candidates are all excluded is sent there all the same", Class: "CEIL",
		Except: []string{"llm-d-router-2026-09", "rhoai-3.4"}, Meant: []string{"FC-HEAD-08", "FC-REF-13"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Detector.FilterFailOpen = true })}},
	{Name: "fewest-tokens-first", Fault: "the shortest prompt of a band goes first", Class: "ORD", Meant: []string{"FC-FAIR-05"},
		Tamper: env.Tamper{Wiring: swap(func(a, b waiting) bool { return sameBand(a, b) && b.request.Tokens < a.request.Tokens })}},
	{Name: "tokens-count", Fault: "two long prompts fill the pool, short ones do not", Class: "SAT", Meant: []string{"FC-SAT-13"},
		Tamper: env.Tamper{Wiring: tokensCount}},
	{Name: "slo-lifts-band", Except: inline, Fault: "a deadline lifts a request above its band", Class: "ORD", Meant: []string{"FC-PRI-14"},
		Tamper: env.Tamper{Wiring: swap(func(a, b waiting) bool {
			return b.request.HasTTFT && (!a.request.HasTTFT || b.request.TTFT < a.request.TTFT)
		})}},
	{Name: "slo-lifts-tenant", Except: inline, Fault: "a tenant with a tighter deadline goes before tenants of higher bands", Class: "ORD", Meant: []string{"FC-PRI-14"},
		Tamper: env.Tamper{Wiring: swap(func(a, b waiting) bool {
			return a.request.FairnessID != b.request.FairnessID && b.request.HasTTFT && (!a.request.HasTTFT || b.request.TTFT < a.request.TTFT)
		})}},
	{Name: "default-staleness-long", Fault: "the default staleness limit is 10 s", Class: "CFG", Meant: []string{"FC-CFG-04"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) {
			if c.Detector.Staleness == 200*time.Millisecond {
				c.Detector.Staleness = 10 * time.Second
			}
		})}},
	{Name: "stages-averaged", Fault: "prefill and decode endpoints are one fleet", Class: "SAT", Meant: []string{"FC-PD-01"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Stages = false })}},
	{Name: "endpoint-at-arrival", Fault: "the endpoint is chosen when the request arrives", Class: "ORD", Meant: []string{"FC-PROTO-02"},
		Tamper: env.Tamper{Wiring: endpointAtArrival}},
}

// tokensCount lets short requests end for the gate as soon as they are dispatched.
func tokensCount(w *epp.Wiring) {
	short := map[uint64]bool{}
	wrapped := &wrapper{inner: w.Machine}
	wrapped.in = func(_ time.Duration, ev *picker.Event) bool {
		if ev.Kind == picker.Arrive && ev.Request.Tokens < 1000 {
			short[ev.ID] = true
		}
		return true
	}
	wrapped.out = func(now time.Duration, outs []picker.Out) []picker.Out {
		for _, o := range outs {
			if o.Kind == picker.Dispatch && short[o.ID] {
				wrapped.late = append(wrapped.late, lateEvent{now, picker.Event{Kind: picker.Finish, ID: o.ID}})
			}
		}
		return outs
	}
	w.Machine = wrapped
}

func samples(change func(picker.EndpointID, *picker.Load)) func(*epp.Wiring) {
	return events(func(_ time.Duration, ev *picker.Event) bool {
		if ev.Kind == picker.Sample {
			change(ev.Endpoint.ID, &ev.Load)
		}
		return true
	})
}

// hottest gives every endpoint the load of the one with the most waiting requests.
func hottest(w *epp.Wiring) {
	loads := map[picker.EndpointID]picker.Load{}
	samples(func(id picker.EndpointID, l *picker.Load) {
		loads[id] = *l
		for _, o := range loads {
			l.Waiting, l.KV = max(l.Waiting, o.Waiting), max(l.KV, o.KV)
		}
	})(w)
}

// endpointAtArrival sends every request to the endpoint that comes next in a fixed rotation, whatever its load.
func endpointAtArrival(w *epp.Wiring) {
	var pool []picker.EndpointID
	var next int
	chosen := map[uint64]picker.EndpointID{}
	w.Machine = &wrapper{inner: w.Machine,
		in: func(_ time.Duration, ev *picker.Event) bool {
			switch ev.Kind {
			case picker.SetEndpoint:
				pool = append(pool, ev.Endpoint.ID)
			case picker.Arrive:
				if len(pool) > 0 && !ev.Request.HasSubset {
					chosen[ev.ID] = pool[next%len(pool)]
					next++
				}
			}
			return true
		},
		out: func(_ time.Duration, outs []picker.Out) []picker.Out {
			for i := range outs {
				if id, ok := chosen[outs[i].ID]; ok && outs[i].Kind == picker.Dispatch {
					outs[i].Endpoint = id
				}
			}
			return outs
		}}
}

// families changes the metrics page.
func families(change func([]*dto.MetricFamily)) func(*epp.Wiring) {
	return func(w *epp.Wiring) {
		w.Families = func(fs []*dto.MetricFamily) []*dto.MetricFamily {
			change(fs)
			return fs
		}
	}
}

func gauges(name string, change func(*dto.Metric)) func(*epp.Wiring) {
	return families(func(fs []*dto.MetricFamily) {
		for _, f := range fs {
			if strings.HasSuffix(f.GetName(), name) {
				for _, m := range f.GetMetric() {
					if m.Gauge != nil {
						change(m)
					}
				}
			}
		}
	})
}

// classify changes the identity that is read from the headers.
func classify(change func(extproc.Headers, *extproc.Identity)) func(*epp.Wiring) {
	return func(w *epp.Wiring) {
		read := w.Classify
		w.Classify = func(h extproc.Headers) extproc.Identity {
			id := read(h)
			change(h, &id)
			return id
		}
	}
}

// refuse changes how an outcome looks on the wire.
func refuse(change func(wire.Outcome, *wire.Refusal)) func(*epp.Wiring) {
	return func(w *epp.Wiring) {
		answer := w.Refuse
		w.Refuse = func(o wire.Outcome) wire.Refusal {
			r := answer(o)
			change(o, &r)
			return r
		}
	}
}

// reencode decodes and encodes a JSON body as a careless data plane does: sorted keys, escaped characters.
func reencode(body []byte) []byte {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return body
	}
	out, err := json.Marshal(v)
	if err != nil {
		return body
	}
	return out
}
