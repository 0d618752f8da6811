package checks_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
)

// spoken is a message with two attempts that are alike; x-two stands for a header with two values.
func spoken() *hist { return spokenAs(func(*evidence.Attempt) {}) }

func spokenAs(f func(*evidence.Attempt)) *hist {
	h := history().submit(10, "m").step("in", 0, 20).arrive("m", 100, 110).arrive("m", 1100, 1110)
	return h.each(attempts("m", func(a *evidence.Attempt) {
		a.Headers["x-one"], a.Headers["x-two"] = []string{"1"}, []string{"2", "2"}
		a.Headers["traceparent"] = []string{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
		a.Body = `{"weir_id": "m", "n": 9007199254740992}`
		f(a)
	}))
}

// formed lets the attempts be a form with one field.
func formed(field, text string) *hist {
	return spokenAs(func(a *evidence.Attempt) {
		a.Headers["content-type"] = []string{"multipart/form-data; boundary=b"}
		a.Body = fmt.Sprintf("--b\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n--b--\r\n", field, text)
	})
}

func wants(w ...checks.AttemptWant) checks.Spec { return asked(checks.Async{Attempts: w}) }

func wantsHeader(name, value string) checks.Spec {
	return wants(checks.AttemptWant{ID: "m", Name: name, Value: value})
}

var attemptTrials = []trial{
	{"async-attempts", "passing", "a header, in whatever case it is named", wantsHeader("X-One", "1"), spoken(), pass},
	{"async-attempts", "passing", "all parts of a request", wants(checks.AttemptWant{ID: "m", Name: ":path", Value: "/v1/completions"}, checks.AttemptWant{ID: "m", Name: ":method", Value: "POST"},
		checks.AttemptWant{ID: "m", Name: ":upstream", Value: "a"}, checks.AttemptWant{ID: "m", Name: ":host", Value: "gateway"}, checks.AttemptWant{ID: "m", Name: ":peer", Absent: true},
		checks.AttemptWant{ID: "m*", Name: ":body", Value: `{"weir_id": "m", "n": 9007199254740992}`}, checks.AttemptWant{ID: "m", Name: ":json", Value: `{"n":9007199254740992,"weir_id":"m"}`}), spoken(), pass},
	{"async-attempts", "passing", "the certificate of the client", wants(checks.AttemptWant{ID: "m", Name: ":peer", Value: "weir"}), spokenAs(func(a *evidence.Attempt) { a.PeerCert = "weir" }), pass},
	{"async-attempts", "passing", "one of two headers", wants(checks.AttemptWant{ID: "m", Name: "x-one", Or: []string{"x-other"}, Value: "1"}), spoken(), pass},
	{"async-attempts", "passing", "the begin of a header", wants(checks.AttemptWant{ID: "m", Nth: 2, Name: "traceparent", Some: true, Value: "00-4bf92f"}), spoken(), pass},
	{"async-attempts", "passing", "no such header", wants(checks.AttemptWant{ID: "m", Name: "x-other", Absent: true}), spoken(), pass},
	{"async-attempts", "passing", "no header that holds a text", wants(checks.AttemptWant{ID: "m", Name: ":with.secret", Absent: true}), spoken(), pass},
	{"async-attempts", "passing", "the header that holds a text", wantsHeader(":with.4bf92f", "traceparent"), spoken(), pass},
	{"async-attempts", "passing", "the header one of whose values holds a text", wantsHeader(":with.2", "x-two"), spokenAs(func(a *evidence.Attempt) {
		a.Headers = map[string][]string{"x-two": {"1", "12"}, "x-other": {"1"}}
	}), pass},
	{"async-attempts", "passing", "the first attempt alone holds a text", wants(checks.AttemptWant{ID: "m", Nth: 1, Name: ":with.secret", Value: "x-user"}), spokenAs(func(a *evidence.Attempt) {
		if a.Nth == 1 {
			a.Headers["x-user"] = []string{"my secret"}
		}
	}), pass},
	{"async-attempts", "passing", "a field of a form", wantsHeader(":form.url", "gs://b/o"), formed("url", "gs://b/o"), pass},
	{"async-attempts", "passing", "no such field of a form", wants(checks.AttemptWant{ID: "m", Name: ":form.gcs_uri", Absent: true}), formed("url", "gs://b/o"), pass},
	{"async-attempts", "failing", "another value", wantsHeader("x-one", "2"), spoken(), fail},
	{"async-attempts", "failing", "another value of the second attempt", wantsHeader("x-one", "1"), spokenAs(func(a *evidence.Attempt) {
		if a.Nth == 2 {
			a.Headers["x-one"] = []string{"2"}
		}
	}), fail},
	{"async-attempts", "failing", "two values", wantsHeader("x-two", "2"), spoken(), fail},
	{"async-attempts", "failing", "two values that begin so", wants(checks.AttemptWant{ID: "m", Name: "x-two", Some: true, Value: "2"}), spoken(), fail},
	{"async-attempts", "failing", "both of two headers", wants(checks.AttemptWant{ID: "m", Name: "x-one", Or: []string{"x-other"}, Value: "1"}), spokenAs(func(a *evidence.Attempt) { a.Headers["x-other"] = []string{"1"} }), fail},
	{"async-attempts", "failing", "no value", wantsHeader("x-other", "1"), spoken(), fail},
	{"async-attempts", "failing", "an empty value that is not there", wantsHeader("x-other", ""), spoken(), fail},
	{"async-attempts", "failing", "a value that must not be there", wants(checks.AttemptWant{ID: "m", Name: "X-One", Absent: true}), spoken(), fail},
	{"async-attempts", "failing", "a header that holds the text", wants(checks.AttemptWant{ID: "m", Name: ":with.secret", Absent: true}), spokenAs(func(a *evidence.Attempt) { a.Headers["x-user"] = []string{"my secret"} }), fail},
	{"async-attempts", "failing", "two headers hold the text", wantsHeader(":with.secret", "x-one"), spokenAs(func(a *evidence.Attempt) {
		a.Headers["x-one"], a.Headers["x-user"] = []string{"secret"}, []string{"my secret"}
	}), fail},
	{"async-attempts", "failing", "no header holds the text", wantsHeader(":with.secret", "x-one"), spoken(), fail},
	{"async-attempts", "failing", "another header holds the text", wantsHeader(":with.4bf92f", "tracestate"), spoken(), fail},
	{"async-attempts", "failing", "the second of two values holds the text", wants(checks.AttemptWant{ID: "m", Name: ":with.secret", Absent: true}), spokenAs(func(a *evidence.Attempt) { a.Headers["x-two"] = []string{"2", "secret"} }), fail},
	{"async-attempts", "failing", "a header holds the text, though those of another attempt were not seen", wants(checks.AttemptWant{ID: "m", Name: ":with.secret", Absent: true}), spokenAs(func(a *evidence.Attempt) {
		if a.Headers["x-user"] = []string{"secret"}; a.Nth == 1 {
			a.Headers = nil
		}
	}), fail},
	{"async-attempts", "failing", "another begin", wants(checks.AttemptWant{ID: "m", Name: "traceparent", Some: true, Value: "00-0000"}), spoken(), fail},
	{"async-attempts", "failing", "no certificate", wantsHeader(":peer", "weir"), spoken(), fail},
	{"async-attempts", "failing", "another path", wantsHeader(":path", "/"), spoken(), fail},
	{"async-attempts", "failing", "a body with other spaces", wantsHeader(":body", `{"weir_id":"m","n":9007199254740992}`), spoken(), fail},
	{"async-attempts", "failing", "another JSON value", wantsHeader(":json", `{"weir_id":"m","n":"9007199254740992"}`), spoken(), fail},
	{"async-attempts", "failing", "no JSON", wantsHeader(":json", `{"weir_id":"m"}`), formed("weir_id", "m"), fail},
	{"async-attempts", "failing", "a field with another text", wantsHeader(":form.url", "gs://b/o"), formed("url", "gs://b/p"), fail},
	{"async-attempts", "failing", "no such field", wantsHeader(":form.url", "gs://b/o"), formed("uri", "gs://b/o"), fail},
	{"async-attempts", "failing", "a field that must not be there", wants(checks.AttemptWant{ID: "m", Name: ":form.url", Absent: true}), formed("url", "gs://b/o"), fail},
	{"async-attempts", "failing", "no form is no form without a field", wants(checks.AttemptWant{ID: "m", Name: ":form.gcs_uri", Absent: true}), spoken(), fail},
	{"async-attempts", "failing", "a form that breaks off", wants(checks.AttemptWant{ID: "m", Name: ":form.gcs_uri", Absent: true}), formed("url", "gs://b/o").each(attempts("m", func(a *evidence.Attempt) {
		a.Body = strings.TrimSuffix(a.Body, "--b--\r\n")
	})), fail},
	{"async-attempts", "failing", "a form whose type says another boundary", wantsHeader(":form.url", "gs://b/o"), formed("url", "gs://b/o").each(attempts("m", func(a *evidence.Attempt) {
		a.Headers["content-type"] = []string{"multipart/form-data; boundary=c"}
	})), fail},
	{"async-attempts", "failing", "no field is absent where the boundary is another", wants(checks.AttemptWant{ID: "m", Name: ":form.gcs_uri", Absent: true}), formed("url", "gs://b/o").each(attempts("m", func(a *evidence.Attempt) {
		a.Headers["content-type"] = []string{"multipart/form-data; boundary=c"}
	})), fail},
	{"async-attempts", "failing", "a form of two types", wantsHeader(":form.url", "gs://b/o"), formed("url", "gs://b/o").each(attempts("m", func(a *evidence.Attempt) {
		a.Headers["content-type"] = append(a.Headers["content-type"], "application/json")
	})), fail},
	{"async-attempts", "degenerate", "it did not arrive", wantsHeader("x-one", "1"), spoken().forget(isWork), inconclusive},
	{"async-attempts", "degenerate", "there is no third attempt", wants(checks.AttemptWant{ID: "m", Nth: 3, Name: "x-one", Value: "1"}), spoken(), inconclusive},
	{"async-attempts", "degenerate", "a part that no request has is not absent", wants(checks.AttemptWant{ID: "m", Name: ":footer", Absent: true}), spoken(), inconclusive},
	{"async-attempts", "degenerate", "a text that every header holds", wants(checks.AttemptWant{ID: "m", Name: ":with.", Some: true}), spokenAs(func(a *evidence.Attempt) { a.Headers = map[string][]string{"x-one": {"1"}} }), inconclusive},
	{"async-attempts", "degenerate", "no header was seen that could hold a text", wants(checks.AttemptWant{ID: "m", Name: ":with.secret", Absent: true}), spokenAs(func(a *evidence.Attempt) { a.Headers = nil }), inconclusive},
	{"async-attempts", "degenerate", "no header was seen", wants(checks.AttemptWant{ID: "m", Name: "x-other", Absent: true}), spokenAs(func(a *evidence.Attempt) { a.Headers = map[string][]string{} }), inconclusive},
	{"async-attempts", "degenerate", "a header without a name", wants(checks.AttemptWant{ID: "m", Absent: true}), spoken(), inconclusive},
	{"async-attempts", "degenerate", "nothing is looked for", wants(), spoken(), inconclusive},
}

// matrix is a start that came up and two that were refused.
func matrix() *hist {
	return history().step("tried", 0, 100).process("valid", true, 0, "").process("no-id", false, 1, "pool: ID is required").process("zero", false, 2, "workers must be positive")
}

func tried(f func(*evidence.Process)) *hist {
	h := matrix()
	for i := range h.r.Processes {
		if h.r.Processes[i].Case == "no-id" {
			f(&h.r.Processes[i])
		}
	}
	return h
}

var startsAsked = checks.Async{Valid: []string{"valid"}, Cases: map[string]string{"no-id": "id is required", "zero": ""}}

var startTrials = []trial{
	{"async-starts", "passing", "two refused and one started", asked(startsAsked), matrix(), pass},
	{"async-starts", "passing", "one started", asked(checks.Async{Valid: []string{"valid"}}), matrix(), pass},
	{"async-starts", "failing", "the valid one was refused", asked(startsAsked), matrix().process("valid", false, 1, "no"), fail},
	{"async-starts", "failing", "one that must be refused started", asked(startsAsked), tried(func(p *evidence.Process) { p.Started = true }), fail},
	{"async-starts", "failing", "one ended as if all were well", asked(startsAsked), tried(func(p *evidence.Process) { p.ExitCode = 0 }), fail},
	{"async-starts", "failing", "one neither started nor ended", asked(startsAsked), tried(func(p *evidence.Process) { p.ExitCode = -1 }), fail},
	{"async-starts", "failing", "one does not say why", asked(startsAsked), tried(func(p *evidence.Process) { p.Text = "exit" }), fail},
	{"async-starts", "degenerate", "the valid one was not tried", askedWith(startsAsked, func(a *checks.Async) { a.Valid = []string{"other"} }), matrix(), inconclusive},
	{"async-starts", "degenerate", "one case was not tried", askedWith(startsAsked, func(a *checks.Async) { a.Cases = map[string]string{"other": ""} }), matrix(), inconclusive},
	{"async-starts", "degenerate", "nothing shows that one can be started", askedWith(startsAsked, func(a *checks.Async) { a.Valid = nil }), matrix(), inconclusive},
	{"async-starts", "degenerate", "nothing was started", asked(startsAsked), history().step("tried", 0, 100), inconclusive},
}

// probed are two answers of a health port.
func probed() *hist {
	return history().step("up", 0, 5).detail("up", "200 ok").step("down", 5, 20).detail("down", "503 broker\nunreachable")
}

func details(pairs ...string) checks.Spec {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return asked(checks.Async{Details: m})
}

var detailTrials = []trial{
	{"async-details", "passing", "ready, then not", details("up", "200", "down", "503"), probed(), pass},
	{"async-details", "passing", "anything but ready", details("down", "!200"), probed(), pass},
	{"async-details", "failing", "never ready", details("up", "503", "down", "503"), probed(), fail},
	{"async-details", "failing", "ready although it must not be", details("up", "!200"), probed(), fail},
	{"async-details", "failing", "no answer", details("down", "503"), probed().broken("down"), fail},
	{"async-details", "degenerate", "the step was not reached", details("later", "200"), probed(), inconclusive},
	{"async-details", "degenerate", "the step noted nothing", details("up", "!200"), probed().detail("up", ""), inconclusive},
	{"async-details", "degenerate", "the step missed its barrier", details("down", "!200"), probed().broken("down"), inconclusive},
	{"async-details", "degenerate", "nothing is expected", details("up", ""), probed(), inconclusive},
	{"async-details", "degenerate", "anything but nothing", details("up", "!"), probed(), inconclusive},
	{"async-details", "degenerate", "nothing is looked for", asked(checks.Async{}), probed(), inconclusive},
}

const (
	saturation = `saturation{pool="x",namespace="n"}`
	foreign    = `saturation{pool="y",namespace="m"}`
)

// asking are two queries, one once a second and the other once in all.
func asking() *hist {
	h := history().step("up", 0, 1000)
	for i := range 5 {
		h.query(1500+1000*i, saturation)
	}
	return h.step("done", 1000, 6000)
}

func hasty() *hist {
	h := asking()
	for i := range 15 {
		h.query(1501+10*i, saturation)
	}
	return h
}

var onceASecond = checks.Async{From: "up", To: "done", Low: 0.8, High: 1.2}

var queryTrials = []trial{
	{"async-queries", "passing", "once a second", asked(onceASecond), asking(), pass},
	{"async-queries", "passing", "once a second until the end", askedWith(onceASecond, func(a *checks.Async) { a.To = "" }), asking(), pass},
	{"async-queries", "passing", "with all it needs", asked(checks.Async{Contains: []string{`pool="x"`, `namespace="n"`}}), asking().query(1600, foreign), pass},
	{"async-queries", "passing", "word for word", asked(checks.Async{Equal: saturation}), asking(), pass},
	{"async-queries", "passing", "two of one poll", askedWith(onceASecond, func(a *checks.Async) { a.Low = 0 }), history().step("up", 0, 1000).query(1500, saturation).query(1501, saturation).step("done", 1000, 6000), pass},
	{"async-queries", "failing", "four times a second", asked(onceASecond), hasty(), fail},
	{"async-queries", "failing", "a burst at the begin of a long window", askedWith(onceASecond, func(a *checks.Async) { a.Low = 0; a.To = "later" }), history().step("up", 0, 1000).
		query(1500, slices.Repeat([]string{saturation}, 20)...).step("later", 1000, 60_000), fail},
	{"async-queries", "failing", "too seldom", asked(onceASecond), history().step("up", 0, 1000).query(1500, saturation).step("done", 1000, 6000), fail},
	{"async-queries", "failing", "too seldom, and as often as it likes", askedWith(onceASecond, func(a *checks.Async) { a.High = 0; a.Low = 3 }), asking(), fail},
	{"async-queries", "failing", "one of them too seldom", asked(onceASecond), asking().query(1600, foreign), fail},
	{"async-queries", "failing", "without what it needs", asked(checks.Async{Contains: []string{`pool="z"`}}), asking(), fail},
	{"async-queries", "failing", "what it needs is spread over two", asked(checks.Async{Contains: []string{`pool="x"`, `namespace="m"`}}), asking().query(1600, foreign), fail},
	{"async-queries", "failing", "in other words", asked(checks.Async{Equal: saturation + " "}), asking(), fail},
	{"async-queries", "degenerate", "none in the window", asked(checks.Async{From: "done", To: "later", Equal: saturation}), asking().step("later", 6000, 9000), inconclusive},
	{"async-queries", "degenerate", "any would do", asked(checks.Async{}), asking(), inconclusive},
	{"async-queries", "degenerate", "the window was not reached", asked(onceASecond), asking().without("done"), inconclusive},
}

// traced are a request and its two attempts.
func traced() *hist {
	return handled().span("1", "0", "process-request", labels{"request.id": "m0", "queue.id": ""}).span("2", "1", "http-request", labels{"retry.count": "0"}).
		span("3", "1", "http-request", labels{"retry.count": "1"})
}

func spans(w checks.SpanWant) checks.Spec { return asked(checks.Async{Spans: []checks.SpanWant{w}}) }

func linked(o *evidence.Observation) {
	if o.Span != nil && o.Span.ID == "1" {
		o.Span.Links = []string{"producer"}
	}
}

var spanTrials = []trial{
	{"async-spans", "passing", "two children", spans(checks.SpanWant{Name: "http-request", Parent: "process-request", Trace: "trace", Service: "llm-d-async", Min: 2, Max: 2}), traced(), pass},
	{"async-spans", "passing", "an attribute", spans(checks.SpanWant{Name: "http-request", Attrs: labels{"retry.count": "1"}, Min: 1, Max: 1}), traced(), pass},
	{"async-spans", "passing", "an attribute that is empty", spans(checks.SpanWant{Attrs: labels{"queue.id": ""}, Min: 1, Max: 1}), traced(), pass},
	{"async-spans", "passing", "a link", spans(checks.SpanWant{Linked: true, Min: 1, Max: -1}), traced().each(linked), pass},
	{"async-spans", "passing", "none where tracing is off", spans(checks.SpanWant{}), handled(), pass},
	{"async-spans", "failing", "one too few", spans(checks.SpanWant{Name: "http-request", Min: 3, Max: -1}), traced(), fail},
	{"async-spans", "failing", "one too many", spans(checks.SpanWant{Name: "http-request", Min: 1, Max: 1}), traced(), fail},
	{"async-spans", "failing", "some although tracing is off", spans(checks.SpanWant{}), traced(), fail},
	{"async-spans", "failing", "another parent", spans(checks.SpanWant{Name: "http-request", Parent: "http-request", Min: 1, Max: -1}), traced(), fail},
	{"async-spans", "failing", "a parent that nobody exported", spans(checks.SpanWant{Name: "process-request", Parent: "producer", Min: 1, Max: -1}), traced(), fail},
	{"async-spans", "failing", "another trace", spans(checks.SpanWant{Name: "http-request", Trace: "other", Min: 1, Max: -1}), traced(), fail},
	{"async-spans", "failing", "another service", spans(checks.SpanWant{Name: "http-request", Service: "other", Min: 1, Max: -1}), traced(), fail},
	{"async-spans", "failing", "another attribute", spans(checks.SpanWant{Attrs: labels{"retry.count": "2"}, Min: 1, Max: -1}), traced(), fail},
	{"async-spans", "failing", "an empty attribute that is not there", spans(checks.SpanWant{Name: "http-request", Attrs: labels{"error.category": ""}, Min: 1, Max: -1}), traced(), fail},
	{"async-spans", "failing", "no link", spans(checks.SpanWant{Name: "process-request", Linked: true, Min: 1, Max: -1}), traced(), fail},
	{"async-spans", "degenerate", "none, of nothing that could be traced", spans(checks.SpanWant{}), handled().forget(isWork), inconclusive},
	{"async-spans", "degenerate", "any number would do", spans(checks.SpanWant{Max: -1}), traced(), inconclusive},
	{"async-spans", "degenerate", "nothing is looked for", asked(checks.Async{}), traced(), inconclusive},
}

var asyncWireTrials = slices.Concat(attemptTrials, startTrials, detailTrials, queryTrials, spanTrials)
