package async

import (
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"testing"
)

// sent plays one message and gives what is sent, or the error of its result.
func sent(t *testing.T, payload string, metadata map[string]string, headers map[string]string) (Outgoing, string) {
	t.Helper()
	m, err := New(Config{Pools: []PoolConfig{{Name: "p", Workers: 1}}, Transforms: []Transform{{Name: "w", Providers: []string{"whisper"}}}})
	if err != nil {
		t.Fatal(err)
	}
	m.Step(0, Event{Kind: AddQueue, Queue: 1, QueueConfig: QueueConfig{Name: "q", Pool: "p", BaseURL: "http://gw", Push: true}}, nil)
	e, err := NewEnvelope(Request{ID: "a", Deadline: 1764044000, Payload: []byte(payload), Metadata: metadata, Headers: headers}, Internal{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range m.Step(0, Event{Kind: Pulled, Queue: 1, Messages: []Message{{ID: 1, Envelope: e}}}, nil) {
		switch o.Kind {
		case Send:
			return o.Request, ""
		case Finish:
			return Outgoing{}, string(o.Result.ErrorCode) + " " + o.Result.ErrorMessage
		}
	}
	t.Fatal("nothing came of it")
	return Outgoing{}, ""
}

func contentType(o Outgoing) string {
	for _, h := range o.Headers {
		if h.Name == headerContentType {
			return h.Value
		}
	}
	return ""
}

var whisper = map[string]string{"provider": "whisper"}

// TestTransformForm: provider and URI together make a form; either alone leaves the JSON as it is (AP-XFORM-01, -02, -03, -07).
func TestTransformForm(t *testing.T) {
	payload := `{"model":"w","gcs_uri":"https://s/x?y=1","n":1.50,"none":null,"list":[1, 2],"file_base64":"","text":"a\"b"}`
	for _, c := range []struct {
		payload  string
		metadata map[string]string
	}{{payload, nil}, {payload, map[string]string{"provider": "other"}}, {`{"model":"w"}`, whisper}, {`{"gcs_uri":7}`, whisper}, {`{"gcs_uri":""}`, whisper}} {
		if o, bad := sent(t, c.payload, c.metadata, nil); bad != "" || o.Body != nil || contentType(o) != "application/json" {
			t.Errorf("%s %v: %s %s", c.payload, c.metadata, o.Body, bad)
		}
	}
	o, bad := sent(t, payload, whisper, map[string]string{"Content-TYPE": "text/plain"})
	if bad != "" {
		t.Fatal(bad)
	}
	typ, params, err := mime.ParseMediaType(contentType(o))
	if err != nil || typ != "multipart/form-data" {
		t.Fatal(contentType(o), err)
	}
	var got []string
	for parts := multipart.NewReader(strings.NewReader(string(o.Body)), params["boundary"]); ; {
		p, err := parts.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		v, _ := io.ReadAll(p)
		got = append(got, fmt.Sprintf("%s=%s%s", p.FormName(), v, p.FileName()))
	}
	if want := `[url=https://s/x?y=1 model=w n=1.50 none= list=[1, 2] text=a"b]`; fmt.Sprint(got) != want {
		t.Errorf("%v\nwant %s", got, want)
	}
}

// TestTransformRefuses: inline media, and URLs that end with the deadline or before (AP-XFORM-04, -05).
func TestTransformRefuses(t *testing.T) {
	v4 := func(expires int) string { // the deadline is 2025-11-25 04:13:20
		return fmt.Sprintf(`{"gcs_uri":"https://s/x?X-Goog-Date=20251125T041220Z&X-Goog-Expires=%d"}`, expires)
	}
	v2 := func(expires int) string { return fmt.Sprintf(`{"gcs_uri":"https://s/x?Expires=%d"}`, expires) }
	for payload, says := range map[string]string{
		v4(59): "expires at 1764043999", v4(60): "expires at 1764044000", v4(61): "", v2(1764043999): "expires", v2(1764044000): "expires", v2(1764044001): "",
		`{"gcs_uri":"https://s/x?Expires=soon"}`: "", `{"gcs_uri":"https://s/x?X-Goog-Date=20251125T041220Z"}`: "", `{"gcs_uri":"%zz"}`: "",
		`{"gcs_uri":"https://s/x","file_base64":"AA=="}`: "inline media", `{"file_base64":"AA=="}`: "inline media",
	} {
		_, bad := sent(t, payload, whisper, nil)
		if (says == "") != (bad == "") || bad != "" && (!strings.HasPrefix(bad, "INVALID_REQUEST") || !strings.Contains(bad, says)) {
			t.Errorf("%s: %q, want %q", payload, bad, says)
		}
	}
}
