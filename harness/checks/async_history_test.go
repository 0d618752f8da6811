package checks_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
)

// Histories around an Async Processor. Messages are due a minute after they were submitted, attempts are answered with 200.

// asked is a check about processors; askedWith one that differs from another in what f changes.
func asked(a checks.Async) checks.Spec { return checks.Spec{Async: &a} }

func askedWith(a checks.Async, f func(*checks.Async)) checks.Spec { f(&a); return asked(a) }

func (h *hist) observe(ms int, o evidence.Observation) *hist {
	o.Scenario, o.At = h.r.Scenario, at(ms)
	h.r.Observations = append(h.r.Observations, o)
	h.r.Sort()
	return h
}

// submit puts messages into queue q.
func (h *hist) submit(ms int, ids ...string) *hist {
	for _, id := range ids {
		h.observe(ms, evidence.Observation{Message: &evidence.Message{ID: id, Queue: "q", Deadline: at(ms + 60_000)}})
	}
	return h
}

// arrive is the next attempt of a message; one that ends before it begins is inside for ever.
func (h *hist) arrive(id string, from, to int) *hist {
	a := &evidence.Attempt{ID: id, Upstream: "a", Nth: 1, End: at(to), Ending: evidence.Answered, Status: 200, Method: "POST", URI: "/v1/completions", Host: "gateway",
		Headers: map[string][]string{"content-type": {"application/json"}}, Body: fmt.Sprintf(`{"weir_id":%q}`, id)}
	for _, o := range h.r.Observations {
		if o.Attempt != nil && o.Attempt.ID == id {
			a.Nth++
		}
	}
	if to < from {
		a.End, a.Ending, a.Status = evidence.Never, evidence.Inside, 0
	}
	return h.observe(from, evidence.Observation{Attempt: a})
}

// arriveAll lets messages arrive one after the other, each for a part of the interval.
func (h *hist) arriveAll(from, every int, ids ...string) *hist {
	for i, id := range ids {
		h.arrive(id, from+i*every, from+i*every+every/2)
	}
	return h
}

// result is an HTTP answer in the list of results, failure an error.
func (h *hist) result(ms int, id string, status int) *hist {
	return h.final(ms, evidence.FinalResult{ID: id, Status: status, Payload: "fine", Raw: fmt.Sprintf(`{"id":%q,"status_code":%d,"payload":"fine"}`, id, status)})
}

func (h *hist) failure(ms int, id, code string) *hist {
	return h.final(ms, evidence.FinalResult{ID: id, Code: code, Message: "why", Payload: `{"error":"why"}`,
		Raw: fmt.Sprintf(`{"id":%q,"error_code":%q,"error_message":"why","payload":"{\"error\":\"why\"}"}`, id, code)})
}

func (h *hist) final(ms int, v evidence.FinalResult) *hist {
	v.List = "results"
	return h.observe(ms, evidence.Observation{Result: &v})
}

// key is what a look at a mark found under a name; a size of 0 is a key that is not there.
func (h *hist) key(mark, name string, size int64, members ...string) *hist {
	k := &evidence.BrokerKey{Name: name, Type: "zset", Size: size, TTL: evidence.Never, Members: members}
	if size == 0 {
		k.Type = "none"
	}
	return h.observe(0, evidence.Observation{Mark: mark, Key: k})
}

func (h *hist) query(ms int, texts ...string) *hist {
	for _, t := range texts {
		h.observe(ms, evidence.Observation{Query: &evidence.Query{Text: t, Status: 200}})
	}
	return h
}

func (h *hist) span(id, parent, name string, attributes labels) *hist {
	return h.observe(0, evidence.Observation{Span: &evidence.Span{Trace: "trace", ID: id, Parent: parent, Name: name, Service: "llm-d-async", Attributes: attributes}})
}

// metric is a value of p's page.
func (h *hist) metric(mark, name string, value float64, l labels) *hist {
	h.sample(mark, "llm_d_async_"+name, value, l)
	h.r.Samples[len(h.r.Samples)-1].Source = "p"
	return h
}

// each changes every observation.
func (h *hist) each(f func(*evidence.Observation)) *hist {
	for i := range h.r.Observations {
		f(&h.r.Observations[i])
	}
	h.r.Sort()
	return h
}

func attempts(id string, f func(*evidence.Attempt)) func(*evidence.Observation) {
	return func(o *evidence.Observation) {
		if o.Attempt != nil && o.Attempt.ID == id {
			f(o.Attempt)
		}
	}
}

func results(id string, f func(*evidence.FinalResult)) func(*evidence.Observation) {
	return func(o *evidence.Observation) {
		if o.Result != nil && o.Result.ID == id {
			f(o.Result)
		}
	}
}

func messages(id string, f func(*evidence.Message)) func(*evidence.Observation) {
	return func(o *evidence.Observation) {
		if o.Message != nil && o.Message.ID == id {
			f(o.Message)
		}
	}
}

func keyed(name string, f func(*evidence.BrokerKey)) func(*evidence.Observation) {
	return func(o *evidence.Observation) {
		if o.Key != nil && o.Key.Name == name {
			f(o.Key)
		}
	}
}

func unread(k *evidence.BrokerKey) { k.Type, k.Size = "", 0 }

// forget removes observations.
func (h *hist) forget(f func(evidence.Observation) bool) *hist {
	h.r.Observations = slices.DeleteFunc(slices.Clone(h.r.Observations), f)
	return h
}

func isMessage(id string) func(evidence.Observation) bool {
	return func(o evidence.Observation) bool { return o.Message != nil && o.Message.ID == id }
}

func isAttempt(id string) func(evidence.Observation) bool {
	return func(o evidence.Observation) bool { return o.Attempt != nil && o.Attempt.ID == id }
}

func isResult(id string) func(evidence.Observation) bool {
	return func(o evidence.Observation) bool { return o.Result != nil && o.Result.ID == id }
}

func isWork(o evidence.Observation) bool { return o.Attempt != nil || o.Result != nil }

// op says what the steps of a mark did.
func (h *hist) op(mark, op string) *hist {
	for i := range h.r.Steps {
		if h.r.Steps[i].Mark == mark {
			h.r.Steps[i].Op = op
		}
	}
	return h
}

// ids are prefix0, prefix1, ...
func ids(prefix string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprint(prefix, i))
	}
	return out
}

func words(s string) []string { return strings.Fields(s) }
