package async

import (
	"fmt"
	"maps"
	"slices"

	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// same wants the body that was submitted: its bytes, or its value where the contract says that it is written anew.
func same(a *script, id, body string) attempt {
	name := ":body"
	if a.Profile.Payload == "json" {
		name = ":json"
	}
	return attempt{ID: id, Name: name, Value: body}
}

// plainEnvelope is a member as the guide has it.
const plainEnvelope = `{"request_kind": "plain", "data": { "id": "$ID", "deadline": $DEADLINE, "payload": {"weir_id":"$ID"} }}`

// wireScenarios are those of AP-WIRE.
var wireScenarios = []s.Scenario{
	play("envelope", "envelopes that were made by hand, as documented", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", sut.AsyncMessage{ID: "by-hand", Member: plainEnvelope},
			sut.AsyncMessage{ID: "testmsg", Member: `{"request_kind":"plain","data":{"id":"testmsg","created":1764044000,"deadline":9999999999,"payload":{"model":"unsloth/Meta-Llama-3.1-8B","prompt":"hi"}}}`})
		a.Results("done", 2, 0)
		a.Check("AP-WIRE-01", "async-arrivals", want{IDs: []string{"by-hand"}, Min: 1, Max: 1}, "up", "in", "done")
		// Nothing in the sample's payload says whose it is.
		a.Check("AP-WIRE-01", "async-attempts", want{Attempts: []attempt{{ID: "by-hand", Name: ":json", Value: `{"weir_id":"by-hand"}`}, {ID: "?", Name: ":json", Value: `{"model":"unsloth/Meta-Llama-3.1-8B","prompt":"hi"}`}}}, "up", "in", "done")
		a.Check("AP-WIRE-01", "async-results", want{Status: 200}, "up", "in")
	}),
	play("bare-in-set", "a bare object is no message of a sorted set", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("in", "q", sut.AsyncMessage{ID: "bare", Member: "$DATA"}, sut.AsyncMessage{ID: "twin", Member: plainEnvelope})
		a.Results("served", 1, 0, "twin")
		a.Quiet("watched", 2*sec)
		a.Check("AP-WIRE-02", "async-arrivals", want{IDs: []string{"bare"}, To: "watched"}, "up", "in", "served", "watched")
		a.Check("AP-WIRE-02", "async-results", want{IDs: []string{"twin"}, Status: 200}, "up", "in")
	}),
	play("bare-on-channel", "a bare object is no message of a channel", func(a *script) {
		a.Do(step{Op: sut.AsyncListen, List: "results", Mode: "channel"})
		set := s.Setup(channelDoc(s.Queue("c")))
		set.Transport = "redis-pubsub"
		a.Start("up", set)
		a.Size("subscribed", "least", 2, ":subscribers")
		a.Do(step{Op: sut.AsyncSubmit, Mark: "in", Queue: "c", Mode: "channel", Messages: []sut.AsyncMessage{{ID: "bare", Member: "$DATA"}, {ID: "twin", Member: plainEnvelope}}})
		a.Results("served", 1, 0, "twin")
		a.Quiet("watched", 2*sec)
		a.Check("AP-WIRE-02", "async-arrivals", want{IDs: []string{"bare"}, To: "watched"}, "up", "subscribed", "in", "served", "watched")
		a.Check("AP-WIRE-02", "async-results", want{IDs: []string{"twin"}, Status: 200}, "up", "subscribed", "in")
	}),
	play("bare-on-topic", "a bare object is the format of Pub/Sub", func(a *script) {
		a.Do(step{Op: sut.AsyncTopics, Queue: "requests"})
		a.Do(step{Op: sut.AsyncTopics, Queue: "results"})
		a.Do(step{Op: sut.AsyncListen, List: "results", Mode: "pubsub"})
		a.Start("up", &sut.AsyncSetup{Transport: "gcp-pubsub", Env: map[string]string{"PUBSUB_EMULATOR_HOST": "$PUBSUB"},
			Config: doc{"project_id": "weir", "result_topic_id": "results", "topics": []doc{{"subscriber_id": "requests", "igw_base_url": "$UPSTREAM_a"}}}.JSON()})
		a.Do(step{Op: sut.AsyncSubmit, Mark: "in", Queue: "requests", Mode: "pubsub", Messages: s.Messages("bare", 3)})
		a.Results("done", 3, 0)
		a.Check("AP-WIRE-02", "async-arrivals", want{Min: 1, Max: 1, Each: true}, "up", "in", "done")
		a.Check("AP-WIRE-02", "async-results", want{Status: 200, List: "results"}, "up", "in")
	}),
	play("fields", "the documented example, and fields of other types", wrongFields),
	play("payload", "the payload is the body, as it was submitted", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		body := `{"weir_id":"m", "z":{"b":[1,2.5,{"a":null,"c":[]}],"a":true},  "text":"gr` + "\u00fc\u00dfe \u6f22\u5b57 \U0001F600" + ` <b>&amp;</b> \u00e9\n",` +
			`"big":9007199254740991,"edge":9007199254740992,"minus":-9007199254740991,"a":""}`
		a.Submit("in", "q", s.Message("m", s.Payload(body)))
		a.Results("done", 1, 0)
		a.Check("AP-WIRE-04", "async-attempts", want{Attempts: []attempt{same(a, "m", body), {ID: "m", Name: "content-type", Value: "application/json"}, {ID: "m", Name: ":method", Value: "POST"}}}, "up", "in", "done")
	}),
	play("metadata", "metadata is for gates, and no header by itself", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Gated("q", "redis-quota", doc{"address": "$BROKER", "attribute": "user", "limit": "1", "window": "10m", "gating_mode": "blocking"}))))
		note := s.Meta("note", "nota-bene")
		a.Submit("in", "q", s.Message("first", s.Meta("user", "batch-job-42"), note))
		a.Results("quota-used", 1, 0, "first")
		a.Submit("more-in", "q", s.Message("other", s.Meta("user", "batch-job-43"), note, s.Due(30*sec)), s.Message("second", s.Meta("user", "batch-job-42"), note, s.Due(50*sec)))
		a.Results("done", 1, 0, "other")
		a.Quiet("watched", 2*sec)
		a.Check("AP-WIRE-05", "async-attempts", want{Attempts: []attempt{{ID: "first", Name: ":with.batch-job", Absent: true}, {ID: "first", Name: ":with.nota-bene", Absent: true},
			{ID: "first", Name: "user", Absent: true}, {ID: "first", Name: ":json", Value: `{"model":"m","prompt":"p","weir_id":"first"}`}}}, "up", "quota-used")
		a.Check("AP-WIRE-05", "async-arrivals", want{IDs: []string{"first", "second"}, Min: 1, Max: 1, To: "watched"}, "up", "quota-used", "done", "watched")
		a.Check("AP-WIRE-05", "async-results", want{IDs: []string{"first", "other"}, Status: 200}, "up", "quota-used")
	}),
	play("endpoint", "a message's own path is taken instead of the queue's", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("q").With(doc{"request_path_url": "/v1/completions"}))))
		chat := s.Message("chat")
		chat.Endpoint = "/v1/chat/completions"
		a.Submit("in", "q", chat, s.Message("plain"))
		a.Results("done", 2, 0)
		a.Check("AP-WIRE-07", "async-attempts", want{Attempts: []attempt{{ID: "chat", Name: ":path", Value: "/v1/chat/completions"}, {ID: "plain", Name: ":path", Value: "/v1/completions"}}}, "up", "done")
	}),
	play("header-precedence", "which header wins where several want to say it", headerPrecedence),
	play("bad-members", "members that nobody can read do not stop a queue", func(a *script) {
		bad := []string{"no JSON", "{}", "[]", `"text"`, `{"request_kind":"plain"}`, `{"request_kind":"unheard-of","data":$DATA}`, `{"data":$DATA}`, `{"request_kind":"plain","data":null}`,
			`{"request_kind":"plain","data":[$DATA]}`, `{"request_kind":"plain","data":{"id":"$ID"`}
		for i, text := range bad {
			a.Submit(fmt.Sprint("bad-in", i), "q", sut.AsyncMessage{ID: fmt.Sprint("bad", i), Member: text})
			a.Submit(fmt.Sprint("good-in", i), "q", s.Message(fmt.Sprint("good", i)))
		}
		a.Size("waiting", "", 20, "q")
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Results("done", 10, 0, "good*")
		a.Size("gone", "", 0, s.Places("q")...)
		a.Quiet("watched", sec)
		a.Check("AP-WIRE-09", "async-results", want{IDs: []string{"good*"}, Status: 200}, "waiting", "up", "gone")
		a.Check("AP-WIRE-09", "async-arrivals", want{IDs: []string{"bad*"}, To: "watched"}, "waiting", "up", "done", "gone", "watched")
	}),
	play("hostile-endpoints", "no endpoint leads to another host", func(a *script) {
		// Behind a base without a path an "@" would make a host of what follows.
		a.Serve(s.Setup(s.Transport(s.Queue("q").With(doc{"igw_base_url": "$UPSTREAM_a/base/v1"}), s.Queue("bare").With(doc{"igw_base_url": "$UPSTREAM_a"}))))
		hostile := func(prefix string) (ms []sut.AsyncMessage) {
			for i, where := range []string{"http://$ADDRESS_b/x", "//$ADDRESS_b", "@$ADDRESS_b/x", "../../admin"} {
				ms = append(ms, sut.AsyncMessage{ID: fmt.Sprint(prefix, i), Endpoint: where, Deadline: 5 * sec})
			}
			return append(ms, s.Message(prefix+"-twin"))
		}
		a.Submit("in", "q", hostile("m")...)
		a.Submit("in", "bare", hostile("n")...)
		a.Results("done", 10, 15*sec)
		a.Quiet("watched", 500*msec)
		a.Check("AP-WIRE-11", "async-arrivals", want{Upstream: "b", To: "watched"}, "up", "in", "done", "watched")
		a.Check("AP-WIRE-11", "async-results", want{IDs: []string{"m-twin", "n-twin"}, Status: 200}, "up", "in", "done")
	}),
}

// headerPrecedence has a message that says everything that somebody else says too, a twin that says nothing, one in a lane with an objective,
// and one that is transformed (AP-WIRE-08).
func headerPrecedence(a *script) {
	goal := doc{"inference_objective": "queue-goal"}
	set := s.Setup(s.Transport(s.Queue("plain").With(goal), tier("laned", "interactive").With(goal)))
	set = s.WithPolicy(set, "tier-priority", doc{"priority_header": priority, "lane_objectives": doc{"overflow-interactive": "lane-goal"}})
	a.Serve(transformed(set, sampleTransforms))
	everything := func(id string, more ...s.MessageOption) sut.AsyncMessage {
		m := s.Message(id, s.User("t1"), s.Head("Content-Type", "application/vnd.own+json"), s.Head(fairness, "forged"), s.Head(priority, "9"), s.Head(objective, "own-goal"), s.Head(objectiveOlder, "own-goal"))
		for _, o := range more {
			o(&m)
		}
		return m
	}
	a.Submit("plain-in", "plain", s.Message("nothing"), everything("own"))
	a.Submit("laned-in", "laned", everything("lane"), everything("form", s.Head("x-weir-id", "form"), s.Meta("provider", "whisper"), s.Payload(`{"weir_id":"form","gcs_uri":"https://storage.example/clip"}`)))
	a.Results("done", 4, 0)
	a.Check("AP-WIRE-08", "async-attempts", want{Attempts: []attempt{
		{ID: "nothing", Name: "content-type", Value: "application/json"}, {ID: "nothing", Name: objective, Or: []string{objectiveOlder}, Value: "queue-goal"},
		{ID: "nothing", Name: fairness, Absent: true}, {ID: "nothing", Name: priority, Value: "5"},
		{ID: "own", Name: "content-type", Value: "application/vnd.own+json"}, {ID: "own", Name: objective, Value: "own-goal"}, {ID: "own", Name: objectiveOlder, Value: "own-goal"},
		{ID: "own", Name: fairness, Value: "t1"}, {ID: "own", Name: priority, Value: "5"},
		{ID: "lane", Name: objective, Value: "lane-goal"}, {ID: "lane", Name: "content-type", Value: "application/vnd.own+json"}, {ID: "lane", Name: fairness, Value: "t1"}, {ID: "lane", Name: priority, Value: "3"},
		{ID: "form", Name: "content-type", Some: true, Value: "multipart/form-data; boundary="}, {ID: "form", Name: objective, Value: "lane-goal"}, {ID: "form", Name: priority, Value: "3"}}}, "up", "done")
}

// wrongFields has the documented example, whose deadline alone is another one, and messages of which one field has a wrong type (AP-WIRE-03).
// The deadline's types are those of AP-DL-01.
func wrongFields(a *script) {
	wrong := map[string]string{
		"id":       `"id":17,"payload":{"weir_id":"wrong-id"}`,
		"created":  `"id":"$ID","created":"yesterday","payload":{"weir_id":"$ID"}`,
		"payload":  `"id":"$ID","payload":["$ID"],"headers":{"x-weir-id":"$ID"}`,
		"text":     `"id":"$ID","payload":"$ID","headers":{"x-weir-id":"$ID"}`,
		"metadata": `"id":"$ID","payload":{"weir_id":"$ID"},"metadata":{"n":1}`,
		"headers":  `"id":"$ID","payload":{"weir_id":"$ID"},"headers":["x-one"]`,
		"endpoint": `"id":"$ID","payload":{"weir_id":"$ID"},"endpoint":7`,
	}
	var ms []sut.AsyncMessage
	for _, field := range slices.Sorted(maps.Keys(wrong)) {
		ms = append(ms, sut.AsyncMessage{ID: "wrong-" + field, Member: `{"request_kind":"plain","data":{"deadline":$DEADLINE,` + wrong[field] + `}}`})
	}
	example := `{"model": "food-review", "prompt": "hi", "max_tokens": 10, "temperature": 0}`
	ms = append(ms, sut.AsyncMessage{ID: "19933123533434", Member: `{"request_kind":"plain","data":{
    "id": "19933123533434",
    "created": 1764044000,
    "deadline": $DEADLINE,
    "payload": ` + example + `,
    "metadata": {"user": "batch-job-42"}
}}`})
	a.Serve(s.Setup(s.Transport(s.Queue("q"))))
	a.Submit("in", "q", ms...)
	a.Results("served", 1, 0, "19933123533434")
	a.Size("gone", "", 0, "q")
	a.Quiet("watched", 2*sec)
	a.Check("AP-WIRE-03", "async-results", want{IDs: []string{"19933123533434"}, Status: 200}, "up", "in")
	a.Check("AP-WIRE-03", "async-attempts", want{Attempts: []attempt{{ID: "?", Name: ":json", Value: example}}}, "up", "in", "served")
	a.Check("AP-WIRE-03", "async-arrivals", want{IDs: []string{"wrong-*"}, To: "watched"}, "up", "in", "served", "gone", "watched")
}
