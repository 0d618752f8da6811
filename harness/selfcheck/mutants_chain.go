package selfcheck

import (
	"time"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncproc"
)

// chainMutants are faults of the processor in front of the router: what holds for each of them alone is in the processor's own self-check.
var chainMutants = []Mutant{
	{Name: "chain-evicted-final", Fault: "an eviction ends a batch request", Class: "ARETRY", Meant: []string{"E2E-01", "E2E-02"}, Tamper: chain(answer(func(a *async.Answer) {
		if a.Status == 429 {
			a.Status = 409
		}
	}), nil)},
	{Name: "chain-truncated-success", Fault: "an answer that broke off is a result", Class: "ARETRY", Meant: []string{"E2E-03"}, Tamper: chain(answer(func(a *async.Answer) { a.Failure = async.NoFailure }), nil)},
	{Name: "chain-objective-lost", Fault: "the objective of a queue is not sent", Class: "AROUTE", Meant: []string{"E2E-04"}, Tamper: chain(nil, header("x-gateway-inference-objective", "x-llm-d-inference-objective"))},
	{Name: "chain-stamp-lost", Fault: "the tenant is not stamped", Class: "AROUTE", Meant: []string{"E2E-05"}, Tamper: chain(nil, header("x-llm-d-inference-fairness-id"))},
	{Name: "chain-shed-final", Fault: "a refusal for capacity ends a batch request", Class: "ARETRY", Meant: []string{"E2E-06", "E2E-07"}, Tamper: chain(answer(func(a *async.Answer) {
		if a.Status == 429 || a.Status == 503 {
			a.Status = 400
		}
	}), nil)},
	{Name: "chain-unavailable-final", Fault: "503 ends a batch request", Class: "ARETRY", Meant: []string{"E2E-08", "E2E-09", "E2E-15"}, Tamper: chain(answer(func(a *async.Answer) {
		if a.Status == 503 {
			a.Status = 400
		}
	}), nil)},
	{Name: "chain-deadline-ignored", Fault: "a deadline does not end a call", Class: "ARETRY", Meant: []string{"E2E-12"}, Tamper: chain(nil, func(o *async.Out) bool { return o.Kind != async.Abort })},
	{Name: "chain-lane-objective-lost", Fault: "lanes have no objectives", Class: "AROUTE", Meant: []string{"E2E-14"}, Tamper: chain(nil, header("x-llm-d-inference-objective"))},
	{Name: "chain-result-lost", Fault: "every hundredth result is lost", Class: "ALOSS", Meant: []string{"E2E-15"}, Tamper: chain(nil, everyHundredth())},
}

func chain(in func(ev *async.Event), out func(*async.Out) bool) env.Tamper {
	var hear func(time.Duration, *async.Event) bool
	if in != nil {
		hear = func(_ time.Duration, ev *async.Event) bool { in(ev); return true }
	}
	var decide func(time.Duration, []async.Out) []async.Out
	if out != nil {
		decide = func(_ time.Duration, outs []async.Out) []async.Out {
			return outs[:keep(0, outs, func(_ time.Duration, o *async.Out) bool { return out(o) })]
		}
	}
	return env.Tamper{Batch: func(inner asyncproc.Step) asyncproc.Step { return wrapped(hear, decide)(inner) }}
}

func answer(change func(*async.Answer)) func(*async.Event) {
	return func(ev *async.Event) {
		if ev.Kind == async.Response {
			change(&ev.Response)
		}
	}
}

func header(names ...string) func(*async.Out) bool {
	return func(o *async.Out) bool {
		if o.Kind == async.Send {
			o.Request.Headers = append([]async.Header(nil), o.Request.Headers...)
			for _, n := range names {
				without(n)(&o.Request)
			}
		}
		return true
	}
}

// everyHundredth counts over all scenarios that are played with it.
func everyHundredth() func(*async.Out) bool {
	n := 0
	return func(o *async.Out) bool {
		if o.Kind == async.Finish {
			if n++; n%100 == 0 {
				o.Kind = async.DeadLetter
			}
		}
		return true
	}
}
