package async

import (
	"fmt"

	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// sampleTransforms is the guide's file.
const sampleTransforms = `{
  "requestTransforms": [
    {
      "name": "whisper-multipart",
      "type": "gcs_uri_multipart",
      "parameters": { "providers": ["whisper"] }
    }
  ]
}`

// inlineMedia is a payload with media in it, beside a URL.
const inlineMedia = `{"model":"m","gcs_uri":"https://storage.example/clip","file_base64":"UklGRg=="}`

// signed are the beginnings of URLs signed in two ways for the last instants of the year 2099, which end at the second that follows.
const (
	signed2 = "https://storage.example/clip?GoogleAccessId=weir&Signature=ab%2Bcd&Expires="
	signed4 = "https://storage.example/clip?X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Date=20991231T235900Z&X-Goog-SignedHeaders=host&X-Goog-Signature=abcd&X-Goog-Expires="
	// newYear is the deadline of their messages: the begin of the year 2100.
	newYear = 4102444800
)

// transformScenarios are those of AP-XFORM.
var transformScenarios = []s.Scenario{
	play("untransformed", "no transform, or none that is meant, leaves the body alone", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("none"))))
		a.StartOther("up2", "p2", transformed(s.Setup(s.Transport(s.Queue("other"))), sampleTransforms))
		var bodies []attempt
		for _, q := range []string{"none", "other"} {
			body := fmt.Sprintf(`{"weir_id":%q, "z":[1,{"y":null}],"model":"m",  "gcs_uri":"https://storage.example/clip","a":"<&>"}`, q)
			a.Submit(q+"-in", q, known(q, s.Payload(body)))
			bodies = append(bodies, same(a, q, body), attempt{ID: q, Name: "content-type", Value: "application/json"})
		}
		a.Results("done", 2, 0)
		a.Check("AP-XFORM-01", "async-attempts", want{Attempts: bodies}, "up", "up2", "done")
		a.Check("AP-XFORM-01", "async-results", want{Status: 200}, "up", "up2")
	}),
	play("multipart", "the transform acts for its providers and for payloads with a URL", func(a *script) {
		a.Serve(transformed(s.Setup(s.Transport(s.Queue("q"))), sampleTransforms))
		with := func(id string) string {
			return fmt.Sprintf(`{"weir_id":%q,"model":"whisper-1","gcs_uri":"https://storage.example/clip?a=b&c=d","language":"de","temperature":0.5,"stream":false}`, id)
		}
		without := func(id string) string { return fmt.Sprintf(`{"weir_id":%q,"model":"whisper-1","gcs_uri":""}`, id) }
		whisper, other := s.Meta("provider", "whisper"), s.Meta("provider", "ocr")
		a.Submit("in", "q", known("both", whisper, s.Payload(with("both"))), known("no-url", whisper, s.Payload(without("no-url"))),
			known("no-provider", other, s.Payload(with("no-provider"))), known("neither", other, s.Payload(without("neither"))))
		a.Results("done", 4, 0)
		multipart := attempt{ID: "both", Name: "content-type", Some: true, Value: "multipart/form-data; boundary="}
		kinds := []attempt{multipart, same(a, "no-url", without("no-url")), same(a, "no-provider", with("no-provider")), same(a, "neither", without("neither"))}
		a.Check("AP-XFORM-02", "async-attempts", want{Attempts: append(kinds, each([]string{"no-url", "no-provider", "neither"}, "content-type", "application/json")...)}, "up", "done")
		a.Check("AP-XFORM-02", "async-results", want{Status: 200}, "up", "in")
		a.Check("AP-XFORM-03", "async-attempts", want{Attempts: []attempt{multipart, {ID: "both", Name: ":form.url", Value: "https://storage.example/clip?a=b&c=d"},
			{ID: "both", Name: ":form.model", Value: "whisper-1"}, {ID: "both", Name: ":form.language", Value: "de"}, {ID: "both", Name: ":form.temperature", Value: "0.5"},
			{ID: "both", Name: ":form.stream", Value: "false"}, {ID: "both", Name: ":form.gcs_uri", Absent: true}, {ID: "both", Name: ":method", Value: "POST"}}}, "up", "done")
	}),
	play("inline-media", "inline media is refused, once and for all", func(a *script) {
		a.Serve(transformed(s.Setup(s.Transport(s.Queue("q"))), sampleTransforms))
		whisper := s.Meta("provider", "whisper")
		a.Submit("twin", "q", known("twin", whisper, s.Payload(`{"weir_id":"twin","gcs_uri":"https://storage.example/clip"}`)))
		a.Results("served", 1, 0, "twin")
		a.Submit("in", "q", known("inline", whisper, s.Payload(`{"weir_id":"inline","gcs_uri":"https://storage.example/clip","file_base64":"UklGRg=="}`)))
		a.Results("done", 1, 0, "inline")
		a.Quiet("watched", 10*sec)
		for _, id := range []string{"AP-XFORM-04", "AP-RES-08"} {
			a.Check(id, "async-arrivals", want{IDs: []string{"inline"}, To: "watched"}, "up", "served", "in", "watched")
			a.Check(id, "async-results", want{IDs: []string{"inline"}, Codes: []string{"INVALID_REQUEST"}, Shape: "error"}, "up", "served", "in", "watched")
			a.Check(id, "async-attempts", want{Attempts: []attempt{{ID: "twin", Name: ":form.url", Value: "https://storage.example/clip"}}}, "up", "served")
		}
	}),
	play("signed-urls", "a signed URL must outlive the deadline", func(a *script) {
		a.Serve(transformed(s.Setup(s.Transport(s.Queue("q"))), sampleTransforms))
		var urls []attempt
		for _, m := range []struct{ id, url string }{
			{"two-before", signed2 + fmt.Sprint(newYear-1)}, {"two-equal", signed2 + fmt.Sprint(newYear)}, {"two-after", signed2 + fmt.Sprint(newYear+1)},
			{"four-before", signed4 + "59"}, {"four-equal", signed4 + "60"}, {"four-after", signed4 + "61"}} {
			a.Submit("in-"+m.id, "q", known(m.id, s.Meta("provider", "whisper"), s.Payload(fmt.Sprintf(`{"weir_id":%q,"gcs_uri":%q}`, m.id, m.url)),
				func(q *sut.AsyncMessage) { q.Late = fmt.Sprint(newYear) }))
			urls = append(urls, attempt{ID: m.id, Name: ":form.url", Value: m.url})
		}
		a.Results("done", 6, 0)
		a.Quiet("watched", 2*sec)
		ended := []string{"two-before", "two-equal", "four-before", "four-equal"}
		a.Check("AP-XFORM-05", "async-arrivals", want{IDs: ended, To: "watched"}, "up", "done", "watched")
		a.Check("AP-XFORM-05", "async-results", want{IDs: ended, Codes: []string{"INVALID_REQUEST"}, Shape: "error"}, "up", "watched")
		a.Check("AP-XFORM-05", "async-attempts", want{Attempts: []attempt{urls[2], urls[5]}}, "up", "done")
		a.Check("AP-XFORM-05", "async-results", want{IDs: []string{"two-after", "four-after"}, Status: 200}, "up", "watched")
	}),
	play("transform-file", "which transform files start", func(a *script) {
		with := func(text string) *sut.AsyncSetup { return transformed(s.Setup(s.Transport(s.Queue("q"))), text) }
		plugin := `{"name":"n","type":"gcs_uri_multipart","parameters":{"providers":["whisper"]}}`
		a.Try("tried",
			s.Case("sample", with(sampleTransforms)),
			s.Case("two", with(`{"requestTransforms":[`+plugin+`,{"name":"m","type":"gcs_uri_multipart","parameters":{"providers":["ocr"]}}]}`)),
			s.Case("duplicate-name", with(`{"requestTransforms":[`+plugin+`,`+plugin+`]}`)),
			s.Case("unknown-type", with(`{"requestTransforms":[{"name":"n","type":"to_xml","parameters":{"providers":["whisper"]}}]}`)),
			s.Case("unknown-field", with(`{"requestTransforms":[`+plugin+`],"responseTransforms":[]}`)))
		a.Check("AP-XFORM-06", "async-starts", want{Valid: []string{"sample", "two"}, Cases: map[string]string{"duplicate-name": "", "unknown-type": "", "unknown-field": ""}}, "tried")
	}),
	play("own-content-type", "a caller's content type leaves the boundary alone", func(a *script) {
		a.Serve(transformed(s.Setup(s.Transport(s.Queue("q")).With(doc{"batch_size": 50})), sampleTransforms))
		var ms []sut.AsyncMessage
		var forms []attempt
		for i, id := range numbered("m", 50) {
			name := []string{"content-type", "Content-Type", "CONTENT-TYPE"}[i%3]
			ms = append(ms, known(id, s.Meta("provider", "whisper"), s.Head(name, "application/json"), s.Payload(fmt.Sprintf(`{"weir_id":%q,"gcs_uri":"https://storage.example/clip"}`, id))))
			forms = append(forms, attempt{ID: id, Name: "content-type", Some: true, Value: "multipart/form-data; boundary="}, attempt{ID: id, Name: ":form.url", Value: "https://storage.example/clip"})
		}
		a.Submit("in", "q", ms...)
		a.Results("done", 50, 0)
		a.Check("AP-XFORM-07", "async-attempts", want{Attempts: forms}, "up", "in", "done")
		a.Check("AP-XFORM-07", "async-results", want{Status: 200}, "up", "in")
	}),
}

// known is a message whose attempts are known by a header too: of a form without its boundary nobody could tell whose it is.
func known(id string, opts ...s.MessageOption) sut.AsyncMessage {
	return s.Message(id, append(opts, s.Head("x-weir-id", id))...)
}

// transformed gives a processor a file of transforms.
func transformed(set *sut.AsyncSetup, text string) *sut.AsyncSetup {
	set = s.Files(set, "transforms", text)
	set.Flags = append(append([]string(nil), set.Flags...), "--transform-config-file", "$FILE_transforms")
	return set
}
