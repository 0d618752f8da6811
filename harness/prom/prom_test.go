package prom

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-weir/weir/harness/clock"
)

// The goroutine left out is started by the import of a library of the Pub/Sub client.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// serve starts a server that ends with the test.
func serve(t *testing.T, c Config) *Server {
	t.Helper()
	c.Addr = "127.0.0.1:0"
	s, err := Serve(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
			t.Errorf("the samples are still there: %v", err)
		}
	})
	return s
}

// hand is a clock that the test moves.
type hand struct {
	clock.Real
	at time.Duration
}

func (h *hand) Now() time.Duration { return h.at }
func (h *hand) Epoch() time.Time   { return recorded }

// page is a metrics page that the test changes.
type page struct {
	mu     sync.Mutex
	status int
	kind   string
	text   string
}

func (p *page) set(status int, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.text = status, text
}

func (p *page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", p.kind)
	w.WriteHeader(p.status)
	io.WriteString(w, p.text)
}

// ask evaluates an instant query and gives its series, a line each.
func ask(t *testing.T, s *Server, query string) string {
	t.Helper()
	_, body := fetch(t, s.URL()+"/api/v1/query?query="+url.QueryEscape(query))
	var a struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var lines []string
	for _, r := range a.Data.Result {
		delete(r.Metric, "instance")
		m, _ := json.Marshal(r.Metric)
		lines = append(lines, fmt.Sprint(string(m), " ", r.Value[1]))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// TestScrape: labels of the target, up, staleness of what vanished, of a page that cannot be read and of a target that is gone.
func TestScrape(t *testing.T) {
	p := &page{status: 200, kind: "text/plain; version=0.0.4"}
	web := httptest.NewServer(p)
	defer web.Close()
	now := &hand{}
	s := serve(t, Config{Clock: now, Targets: []Target{{Job: "j", URL: web.URL, Labels: map[string]string{"pool": "p"}}}})
	const both = "# TYPE a gauge\na{x=\"1\"} 1\na{x=\"2\"} 2\nb{job=\"mine\",pool=\"q\"} 3\n"
	for _, c := range []struct {
		says   string
		status int
		text   string
		fails  string // part of the error
		want   map[string]string
	}{
		{"samples get the target's labels, their own are kept aside", 200, both, "", map[string]string{
			"a":                      "{\"__name__\":\"a\",\"job\":\"j\",\"pool\":\"p\",\"x\":\"1\"} 1\n{\"__name__\":\"a\",\"job\":\"j\",\"pool\":\"p\",\"x\":\"2\"} 2",
			"b":                      `{"__name__":"b","exported_job":"mine","exported_pool":"q","job":"j","pool":"p"} 3`,
			"up":                     `{"__name__":"up","job":"j","pool":"p"} 1`,
			"scrape_samples_scraped": `{"__name__":"scrape_samples_scraped","job":"j","pool":"p"} 3`}},
		{"a series that vanished is gone at once", 200, "a{x=\"2\"} 5\n", "", map[string]string{"sum(a)": "{} 5", "b": "", "sum(up)": "{} 1"}},
		{"it may come again", 200, both, "", map[string]string{"sum(a)": "{} 3", "count(b)": "{} 1"}},
		{"a page that breaks off counts for nothing", 200, "a{x=\"1\"} 7\na{x=", "target j=", map[string]string{"a": "", "b": "", "sum(up)": "{} 0"}},
		{"a target that refuses is down", 503, both, "status 503", map[string]string{"a": "", "sum(up)": "{} 0"}},
		{"and up again", 200, both, "", map[string]string{"sum(a)": "{} 3", "sum(up)": "{} 1"}},
		{"an instant of the page's own is kept, and does not go stale", 200, fmt.Sprintf("c 1 %d\n", recorded.Add(6*time.Second).UnixMilli()), "",
			map[string]string{"c": `{"__name__":"c","job":"j","pool":"p"} 1`, "timestamp(c)": fmt.Sprintf(`{"job":"j","pool":"p"} %d`, recorded.Unix()+6), "a": ""}},
		{"the same instant again is no error", 200, fmt.Sprintf("c 2 %d\n", recorded.Add(6*time.Second).UnixMilli()), "", map[string]string{"sum(c)": "{} 1", "sum(up)": "{} 1"}},
	} {
		now.at += time.Second
		p.set(c.status, c.text)
		if err := s.ScrapeNow(t.Context()); (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %v", c.says, err)
		}
		for query, want := range c.want {
			if got := ask(t, s, query); got != want {
				t.Errorf("%s: %s:\n%s\nwant\n%s", c.says, query, got, want)
			}
		}
	}
	web.Close()
	now.at += time.Second
	if err := s.ScrapeNow(t.Context()); err == nil || ask(t, s, "sum(up)") != "{} 0" {
		t.Errorf("gone: %v", err)
	}
}

// TestScrapeOften: a target is scraped again and again without being asked to, also one that was added later.
func TestScrapeOften(t *testing.T) {
	var mu sync.Mutex
	n := 0
	counted := make(chan int)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n++
		now := n
		mu.Unlock()
		select {
		case counted <- now:
		case <-r.Context().Done():
		}
		fmt.Fprintf(w, "n %d\n", now)
	}))
	defer web.Close()
	s := serve(t, Config{Interval: 5 * time.Millisecond})
	if err := s.Add(Target{Job: "j", URL: web.URL}); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(Target{Job: "j", URL: web.URL + "/other"}); err == nil {
		t.Error("two targets share their labels")
	}
	for range 5 { // the handler waits for us, so the scrapes before are stored
		<-counted
	}
	if got := ask(t, s, "count_over_time(up[1m]) >= 1"); got == "" {
		t.Error("no samples")
	}
	s.Close()
	if err := s.Add(Target{Job: "k", URL: web.URL}); err == nil {
		t.Error("a server that ended took a target")
	}
}

// TestAPI: both methods, both time formats, what is wrong with a question, and the health page.
func TestAPI(t *testing.T) {
	s := serve(t, Config{Clock: &hand{at: 2 * time.Minute}})
	record(t, s, []byte("a{x=\"1\"} 1 "+fmt.Sprint(recorded.Unix())+"\n# EOF\n"))
	at := fmt.Sprint(recorded.Unix())
	sample := func(t int64) string {
		return fmt.Sprintf(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"a","x":"1"},"value":[%d,"1"]}]}}`, t)
	}
	for _, c := range []struct {
		says, path, form string
		status           int
		body             string // "~" before a part of it
	}{
		{"now, where no time is said", "query", "query=a", 200, sample(recorded.Unix() + 120)},
		{"Unix seconds", "query", "query=a&time=" + at + ".000", 200, sample(recorded.Unix())},
		{"RFC 3339", "query", "query=a&time=2026-11-30T10:00:01Z", 200, sample(recorded.Unix() + 1)},
		{"nothing found is a list", "query", "query=b", 200, `{"status":"success","data":{"resultType":"vector","result":[]}}`},
		{"a scalar", "query", "query=2*3&time=" + at, 200, `{"status":"success","data":{"resultType":"scalar","result":[` + at + `,"6"]}}`},
		{"not a number", "query", "query=vector(0/0)&time=" + at, 200, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[` + at + `,"NaN"]}]}}`},
		{"a range vector", "query", "query=a[1m]&time=" + at, 200, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"a","x":"1"},"values":[[` + at + `,"1"]]}]}}`},
		{"steps", "query_range", "query=a&start=" + at + "&end=2026-11-30T10:01:00Z&step=30s", 200,
			fmt.Sprintf(`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"a","x":"1"},"values":[[%s,"1"],[%d,"1"],[%d,"1"]]}]}}`, at, recorded.Unix()+30, recorded.Unix()+60)},
		{"no steps found", "query_range", "query=b&start=1&end=2&step=1", 200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`},
		{"a warning", "query", "query=quantile(2,a)&time=" + at, 200, `~"warnings":["PromQL warning: quantile value`},
		{"no query", "query", "", 400, `~"errorType":"bad_data"`},
		{"a time that is none", "query", "query=a&time=noon", 400, `~time: \"noon\" is neither`},
		{"a timeout that is none", "query", "query=a&timeout=long", 400, `~timeout: \"long\" is neither`},
		{"everything that is wrong with a range", "query_range", "query=a", 400, `~step: `},
		{"backwards", "query_range", "query=a&start=2&end=1&step=1", 400, `~end: it must not be before start`},
		{"no step", "query_range", "query=a&start=1&end=2&step=0", 400, `~step: it must be positive`},
		{"too many points", "query_range", "query=a&start=0&end=2000000&step=1", 400, `~more than 11000 points`},
		{"more than one on the right", "query", `query=a/on()label_replace(a,"y","1","","")/on()(a or label_replace(a,"y","2","",""))`, 422, `~"errorType":"execution"`},
		{"out of time", "query", "query=a&timeout=0.000000001", 503, `~"errorType":"timeout"`},
	} {
		form, err := url.ParseQuery(c.form)
		if err != nil {
			t.Fatal(err)
		}
		check := func(method string, status int, body string) {
			t.Helper()
			part, partly := strings.CutPrefix(c.body, "~")
			if status != c.status || partly && !strings.Contains(body, part) || !partly && body != c.body {
				t.Errorf("%s: %s: %d %s, want %d %s", c.says, method, status, body, c.status, c.body)
			}
		}
		status, body := fetch(t, s.URL()+"/api/v1/"+c.path+"?"+form.Encode())
		check("GET", status, body)
		res, err := http.PostForm(s.URL()+"/api/v1/"+c.path, form)
		if err != nil {
			t.Fatal(err)
		}
		posted, _ := io.ReadAll(res.Body)
		res.Body.Close()
		check("POST", res.StatusCode, string(posted))
	}
	if status, _ := fetch(t, s.URL()+"/-/ready"); status != 200 {
		t.Errorf("ready: %d", status)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestParseTarget(t *testing.T) {
	for _, c := range []struct{ text, want, err string }{
		{"127.0.0.1:9090", "weir=127.0.0.1:9090", ""},
		{"vllm=127.0.0.1:8001,inference_pool=up,a=", "vllm=127.0.0.1:8001,a=,inference_pool=up", ""},
		{"p=https://host/m?a=b", "p=https://host/m?a=b", ""},
		{"http://host/m?a=b", "weir=http://host/m?a=b", ""},
		{"", "", "an HTTP address"}, {"ftp://host", "", "an HTTP address"}, {"=host:1", "", "the job is empty"}, {"j=host:1,x", "", `"x" is not LABEL=VALUE`},
		{"j=host:1,a-b=c", "", "cannot be a label"}, {"j=host:1,__name__=c", "", "cannot be a label"},
	} {
		got, err := ParseTarget(c.text)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v, want %s", c.text, err, c.err)
			}
		} else if err != nil || got.String() != c.want {
			t.Errorf("%q: %s, %v, want %s", c.text, got, err, c.want)
		}
	}
}

// TestRefusals: what cannot be served is refused, and leaves nothing behind.
func TestRefusals(t *testing.T) {
	s := serve(t, Config{})
	for says, c := range map[string]Config{
		"a port in use": {Addr: s.Addr()}, "a short retention": {Addr: "127.0.0.1:0", Retention: time.Minute}, "a negative interval": {Addr: "127.0.0.1:0", Interval: -1},
		"a bad target": {Addr: "127.0.0.1:0", Targets: []Target{{Job: "j"}}},
	} {
		if s, err := Serve(c); err == nil {
			t.Errorf("%s was served", says)
			s.Close()
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Add(Target{Job: "j", URL: "127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	if err := s.ScrapeNow(ctx); err == nil {
		t.Error("a scrape that was called off succeeded")
	}
}
