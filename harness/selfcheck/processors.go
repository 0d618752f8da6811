package selfcheck

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/asyncproc"
)

// Tampering changes a processor before it is served. The reference itself knows nothing of it.
type Tampering = func(*asyncproc.Options)

// ProcessorMutants lists the faulty variants of the processor. Each is played as a process of its own over real sockets.
func ProcessorMutants() []Mutant {
	return slices.Concat(deliveryMutants, retryMutants, gatingMutants, queueMutants, requestMutants, pageMutants)
}

// flags changes the flags of a processor.
func flags(change func(*asyncconfig.Flags)) Tampering {
	return func(o *asyncproc.Options) { change(&o.Config.Flags) }
}

// queues changes every queue, pools every pool.
func queues(change func(*asyncconfig.Queue)) Tampering {
	return func(o *asyncproc.Options) {
		o.Config.Queues = slices.Clone(o.Config.Queues)
		for i := range o.Config.Queues {
			change(&o.Config.Queues[i])
		}
	}
}

func pools(change func(*async.PoolConfig)) Tampering {
	return func(o *asyncproc.Options) {
		for i := range o.Config.Pools {
			change(&o.Config.Pools[i])
		}
	}
}

// gates changes every gate of queues and pools, inner ones included.
func gates(change func(*async.Gate)) Tampering {
	var each func(g *async.Gate)
	each = func(g *async.Gate) {
		if g == nil {
			return
		}
		change(g)
		for _, i := range g.Inner {
			each(i)
		}
	}
	return func(o *asyncproc.Options) {
		for i := range o.Config.Pools {
			each(o.Config.Pools[i].Gate)
		}
		for i := range o.Config.Queues {
			each(o.Config.Queues[i].Gate)
		}
	}
}

// replaced puts other gates in the place of some.
func replaced(by func(*async.Gate) *async.Gate) Tampering {
	return func(o *asyncproc.Options) {
		for i := range o.Config.Pools {
			if g := o.Config.Pools[i].Gate; g != nil {
				o.Config.Pools[i].Gate = by(g)
			}
		}
		for i := range o.Config.Queues {
			if g := o.Config.Queues[i].Gate; g != nil {
				o.Config.Queues[i].Gate = by(g)
			}
		}
	}
}

// around changes what the machine hears and what it decides; nil changes nothing. An event for which in says no becomes a tick.
func around(in func(now time.Duration, ev *async.Event) bool, out func(now time.Duration, outs []async.Out) []async.Out) Tampering {
	return func(o *asyncproc.Options) { o.Around = wrapped(in, out) }
}

func wrapped(in func(now time.Duration, ev *async.Event) bool, out func(now time.Duration, outs []async.Out) []async.Out) func(asyncproc.Step) asyncproc.Step {
	return func(inner asyncproc.Step) asyncproc.Step {
		return func(now time.Duration, ev async.Event, outs []async.Out) []async.Out {
			if in != nil && !in(now, &ev) {
				ev = async.Event{Kind: async.Tick}
			}
			start := len(outs)
			outs = inner(now, ev, outs)
			if out == nil {
				return outs
			}
			return append(outs[:start], out(now, slices.Clone(outs[start:]))...)
		}
	}
}

// hears changes events only, decides each decision only; a decision for which it says no is not carried out.
func hears(in func(ev *async.Event) bool) Tampering {
	return around(func(_ time.Duration, ev *async.Event) bool { return in(ev) }, nil)
}

func decides(change func(now time.Duration, o *async.Out) bool) Tampering {
	return around(nil, func(now time.Duration, outs []async.Out) []async.Out {
		return outs[:keep(now, outs, change)]
	})
}

func keep(now time.Duration, outs []async.Out, change func(time.Duration, *async.Out) bool) int {
	n := 0
	for i := range outs {
		if change(now, &outs[i]) {
			outs[n] = outs[i]
			n++
		}
	}
	return n
}

// pulls changes each message as it is pulled.
func pulls(change func(*async.Message)) Tampering {
	return hears(func(ev *async.Event) bool {
		for i := range ev.Messages {
			change(&ev.Messages[i])
		}
		return true
	})
}

// answers changes each answer of the gateway.
func answers(change func(*async.Answer)) Tampering {
	return hears(func(ev *async.Event) bool {
		if ev.Kind == async.Response {
			change(&ev.Response)
		}
		return true
	})
}

// sends changes each request as it is sent.
func sends(change func(*async.Outgoing)) Tampering {
	return decides(func(_ time.Duration, o *async.Out) bool {
		if o.Kind == async.Send {
			o.Request.Headers = slices.Clone(o.Request.Headers)
			change(&o.Request)
		}
		return true
	})
}

// finishes changes each result.
func finishes(change func(*async.Result)) Tampering {
	return decides(func(_ time.Duration, o *async.Out) bool {
		if o.Kind == async.Finish {
			change(&o.Result)
		}
		return true
	})
}

// merges changes the merge policy.
func merges(change func(*async.MergeConfig)) Tampering {
	return func(o *asyncproc.Options) { change(&o.Config.Merge) }
}

// shows changes what the metrics page shows.
func shows(change func([]*dto.MetricFamily) []*dto.MetricFamily) Tampering {
	return func(o *asyncproc.Options) {
		o.Page = func(g prometheus.Gatherer) prometheus.Gatherer { return gathered{g, change} }
	}
}

type gathered struct {
	inner  prometheus.Gatherer
	change func([]*dto.MetricFamily) []*dto.MetricFamily
}

// Gather implements prometheus.Gatherer.
func (g gathered) Gather() ([]*dto.MetricFamily, error) {
	fs, err := g.inner.Gather()
	return g.change(fs), err
}
