package selfcheck

import (
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/picker"
)

// benchMutants go wrong in ways that single requests hardly show: in what a load gets, and in what is published while it lasts.
var benchMutants = []Mutant{
	{Name: "strict-as-turns", Fault: "global strict is configured and round robin is run", Class: "CFG", Meant: []string{"BEN-17"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) {
			for i := range c.Bands {
				c.Bands[i].Fairness = flowcontrol.RoundRobin
			}
		})}},
	{Name: "hand-over-late", Except: inline, Fault: "a place that was left is taken three tenths of a second later", Class: "SAT", Meant: []string{"BEN-12"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			w.Machine = &wrapper{inner: w.Machine, delay: func(ev picker.Event) time.Duration {
				if ev.Kind == picker.Finish {
					return 300 * time.Millisecond
				}
				return 0
			}}
		}}},
	{Name: "readings-rare", Except: []string{"llm-d-router-2026-09", "llm-d-router-0.9"}, Fault: "of ten readings of a model server's page one counts, and a threshold is one", Class: "SAT",
		Meant: []string{"BEN-12"}, Tamper: env.Tamper{
			Config: flow(func(c *flowcontrol.Config) { c.Detector.QueueDepth = 1 }),
			Wiring: func(w *epp.Wiring) {
				read := map[picker.EndpointID]int{}
				events(func(_ time.Duration, ev *picker.Event) bool {
					if ev.Kind != picker.Sample {
						return true
					}
					read[ev.Endpoint.ID]++
					return read[ev.Endpoint.ID]%10 == 1
				})(w)
			}}},
	{Name: "threshold-of-one", Fault: "every waiting threshold counts as one", Class: "CFG", Meant: []string{"BEN-23", "FC-CFG-05"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Detector.QueueDepth = 1 })}},
	{Name: "saturation-halved", Fault: "saturation is published as a share of twice the limit", Class: "MET", Meant: []string{"BEN-03"},
		Tamper: env.Tamper{Wiring: gauges(wire.MetricPoolSaturation, func(m *dto.Metric) {
			v := m.Gauge.GetValue() / 2
			m.Gauge.Value = &v
		})}},
	{Name: "gauge-capped", Fault: "the queue gauge counts to twenty", Class: "MET", Meant: []string{"BEN-24"},
		Tamper: env.Tamper{Wiring: gauges(wire.MetricQueueSize, func(m *dto.Metric) {
			v := min(20, m.Gauge.GetValue())
			m.Gauge.Value = &v
		})}},
	{Name: "signals-apart", Fault: "saturation and queue are never above zero on one page", Class: "MET", Meant: []string{"BEN-05"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			hidden, other := wire.MetricQueueSize, wire.MetricPoolSaturation
			families(func(fs []*dto.MetricFamily) {
				hidden, other = other, hidden
				for _, f := range fs {
					for _, m := range f.GetMetric() {
						if zero := 0.0; strings.HasSuffix(f.GetName(), hidden) {
							m.Gauge.Value = &zero
						}
					}
				}
			})(w)
		}}},
	{Name: "congestion-collapse", Fault: "every second of backlog costs another second before a request is taken in", Class: "SCALE", Meant: []string{"BEN-06"},
		Tamper: env.Tamper{Wiring: func(w *epp.Wiring) {
			waiting := 0
			m := &wrapper{inner: w.Machine, delay: func(ev picker.Event) time.Duration {
				if ev.Kind != picker.Arrive {
					return 0
				}
				waiting++
				return time.Duration(max(0, waiting-8)) * 25 * time.Millisecond
			}}
			m.out = func(_ time.Duration, outs []picker.Out) []picker.Out {
				for _, o := range outs {
					if o.Kind != picker.Evict {
						waiting--
					}
				}
				return outs
			}
			w.Machine = m
		}}},
	{Name: "token-lost", Fault: "each answer reaches its client with one token less", Class: "BODY", Meant: []string{"BEN-27"},
		Tamper: env.Tamper{Plane: env.DataPlane{LoseToken: true}}},
	{Name: "tokens-mode-ignored", Except: inline, Fault: "a limit in tokens is accepted, and requests are counted", Class: "CFG", Meant: []string{"BEN-18", "FC-SAT-14"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Detector.Mode = flowcontrol.Requests })}},
	{Name: "batch-first", Fault: "priority 0 goes before everything else", Class: "ORD", Meant: []string{"BEN-11", "BEN-19"},
		Tamper: env.Tamper{Wiring: swap(func(a, b waiting) bool { return b.request.Priority == 0 && a.request.Priority != 0 })}},
}
