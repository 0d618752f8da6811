package processor

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
)

func TestUpstreamAnswersAsItIsTold(t *testing.T) {
	u := newUpstreams(clock.NewReal(), func() {})
	url, err := u.url("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ask := func(id string) string {
		a, err := client.Post(url+"/v1/x?y=1", "application/json", strings.NewReader(`{"weir_id":"`+id+`"}`))
		if err != nil {
			return "none"
		}
		defer a.Body.Close()
		body, err := io.ReadAll(a.Body)
		if err != nil {
			return a.Status + " cut"
		}
		return a.Status + " " + string(body)
	}
	u.answer([]sut.AsyncReply{{IDs: []string{"turns"}, Statuses: []int{503, 429}, Body: "b"}, {IDs: []string{"gone"}, Mode: "reset"}, {IDs: []string{"half"}, Mode: "cut"},
		{IDs: []string{"x*"}, Statuses: []int{404}, Body: "p"}, {Upstream: "b", Statuses: []int{500}}})
	for _, c := range []struct{ says, id, want string }{
		{"the first status", "turns", "503 Service Unavailable b"},
		{"the second one", "turns", "429 Too Many Requests b"},
		{"the last one repeats", "turns", "429 Too Many Requests b"},
		{"no answer", "gone", "none"},
		{"half an answer", "half", "200 OK cut"},
		{"a prefix", "x7", "404 Not Found p"},
		{"what matches none", "y", "200 OK " + completion},
	} {
		if got := ask(c.id); got != c.want {
			t.Errorf("%s: %q, want %q", c.says, got, c.want)
		}
	}
	if err := u.toggle("a", false); err != nil {
		t.Fatal(err)
	}
	if got := ask("y"); got != "none" {
		t.Errorf("it is down: %s", got)
	}
	if err := u.toggle("a", true); err != nil {
		t.Fatal(err)
	}
	if got := ask("y"); !strings.HasPrefix(got, "200") {
		t.Errorf("it is back: %s", got)
	}
	if n := u.arrived([]string{"y"}, "a"); n != 2 {
		t.Errorf("%d attempts", n)
	}
	endings := map[string]string{}
	for _, o := range u.close() {
		a := o.Attempt
		endings[a.ID] = a.Ending
		if a.Method != http.MethodPost || a.URI != "/v1/x?y=1" || a.Upstream != "a" || len(a.Headers["content-type"]) != 1 || a.End < o.At {
			t.Errorf("%+v", a)
		}
	}
	if endings["gone"] != evidence.BrokenOff || endings["half"] != evidence.BrokenOff || endings["turns"] != evidence.Answered {
		t.Errorf("endings: %v", endings)
	}
}

func TestMessageID(t *testing.T) {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	if err := w.WriteField("weir_id", "f"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	for _, c := range []struct{ says, kind, header, body, want string }{
		{"a field of the body", "application/json", "", `{"weir_id":"m"}`, "m"},
		{"also where the header has another", "application/json", "h", `{"weir_id":"m"}`, "m"},
		{"a field of a form", w.FormDataContentType(), "", form.String(), "f"},
		{"a header", "text/plain", "h", "text", "h"},
		{"nothing", "application/json", "", `{"id":"m"}`, "?"},
		{"a form that is none", "multipart/form-data; boundary=x", "", "text", "?"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
		r.Header.Set("Content-Type", c.kind)
		if c.header != "" {
			r.Header.Set("X-Weir-Id", c.header)
		}
		if got := messageID(r, []byte(c.body)); got != c.want {
			t.Errorf("%s: %q, want %q", c.says, got, c.want)
		}
	}
}

// A payload reaches the processor byte for byte.
func TestCompactKeepsThePayload(t *testing.T) {
	const payload = "{ \"b\":1.0, \"a\" : \"<&>\\u00e9\",\n\"n\":1e2}"
	body, err := compact(request{ID: "m", Deadline: json.RawMessage("7"), Payload: json.RawMessage(payload), Metadata: map[string]string{"k": "v"}})
	if want := `{"id":"m","deadline":7,"metadata":{"k":"v"},"payload":` + payload + "}"; err != nil || string(body) != want {
		t.Errorf("%s %v, want %s", body, err, want)
	}
	if _, err := compact(request{ID: "m", Deadline: json.RawMessage("{")}); err == nil {
		t.Error("a deadline that is no JSON was taken")
	}
}

func TestSamples(t *testing.T) {
	got, err := parse(`# TYPE llm_d_async_async_request_total counter
llm_d_async_async_request_total{queue_name="q"} 3
# TYPE llm_d_async_lat histogram
llm_d_async_lat_bucket{le="5"} 1
llm_d_async_lat_bucket{le="+Inf"} 2
llm_d_async_lat_sum 9
llm_d_async_lat_count 2
# TYPE llm_d_async_odd gauge
llm_d_async_odd NaN
# TYPE go_goroutines gauge
go_goroutines 5
`)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, s := range got {
		values[s.Name+s.Labels["queue_name"]+s.Labels["le"]] = s.Value
	}
	for name, want := range map[string]float64{"llm_d_async_async_request_totalq": 3, "llm_d_async_lat_bucket5": 1, "llm_d_async_lat_bucket+Inf": 2, "llm_d_async_lat_sum": 9,
		"llm_d_async_lat_count": 2, "llm_d_async_odd": math.MaxFloat64} {
		if v, ok := values[name]; !ok || v != want {
			t.Errorf("%s is %g, want %g", name, v, want)
		}
	}
	if len(values) != 6 {
		t.Errorf("what is not of a processor is there: %v", values)
	}
	for _, c := range []struct {
		v    sut.AsyncValue
		want bool
	}{
		{sut.AsyncValue{Name: "async_request_total", Min: 3, Max: 3}, true},
		{sut.AsyncValue{Name: "async_request_total", Min: 4, Max: 5}, false},
		{sut.AsyncValue{Name: "async_request_total", Labels: map[string]string{"queue_name": "r"}, Min: 0, Max: 5}, false},
		{sut.AsyncValue{Name: "async_request_total", Labels: map[string]string{"pool_name": ""}, Min: 0, Max: 5}, true},
	} {
		if shows(got, c.v) != c.want {
			t.Errorf("%+v: %v", c.v, !c.want)
		}
	}
	if _, err := parse("{{{"); err == nil {
		t.Error("a page that is none was read")
	}
}

func TestHeldRequests(t *testing.T) {
	u := newUpstreams(clock.NewReal(), func() {})
	for _, id := range []string{"a1", "b1", "a2"} {
		u.held = append(u.held, &heldRequest{id: id, upstream: "u", release: make(chan struct{})})
	}
	if n := u.heldNow([]string{"a*"}, ""); n != 2 {
		t.Errorf("%d are held", n)
	}
	if ids := u.release([]string{"a*"}, "", 1); len(ids) != 1 || ids[0] != "a1" {
		t.Errorf("the oldest goes first: %v", ids)
	}
	if ids := u.release(nil, "other", 0); len(ids) != 0 {
		t.Errorf("of another upstream: %v", ids)
	}
	if ids := u.release(nil, "u", 0); strings.Join(ids, " ") != "b1 a2" || u.heldNow(nil, "") != 0 {
		t.Errorf("all: %v", ids)
	}
	if u.wait(t.Context(), &heldRequest{release: closed()}, time.Millisecond) != true {
		t.Error("what was let go was not answered")
	}
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestAPortThatIsTakenMeanwhile(t *testing.T) {
	n := 0
	port := func() (int, error) { n++; return n, nil }
	var at string
	if err := settle(port, func(addr string) error {
		if at = addr; n < 3 {
			return errors.New("taken")
		}
		return nil
	}); err != nil || at != "127.0.0.1:3" {
		t.Errorf("%s %v", at, err)
	}
	if err := settle(port, func(string) error { return errors.New("taken") }); err == nil || n > 50 {
		t.Errorf("after %d: %v", n, err)
	}
}
