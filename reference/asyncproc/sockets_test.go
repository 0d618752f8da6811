package asyncproc

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
)

// TestSources: a number or nothing from Redis, the first sample of a vector from Prometheus, a metric by its labels from a page; failures
// are no answers (AP-GATE-07, AP-GATE-27, AP-GATE-29, AP-GATE-31).
func TestSources(t *testing.T) {
	m := miniredis.RunT(t)
	m.Set("half", "0.5")
	m.Set("text", "open")
	prom := ""
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/query":
			asked = append(asked, r.FormValue("query"))
			fmt.Fprint(w, prom)
		case "/metrics":
			fmt.Fprint(w, "# TYPE waiting gauge\nwaiting{model=\"a\",x=\"1\"} 3\nwaiting{model=\"b\"} 5\nuntyped 7\n")
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	redisKey := func(address, key string) asyncconfig.Source {
		return asyncconfig.Source{Kind: asyncconfig.RedisKey, Address: address, Key: key}
	}
	page := func(path, metric, labels string) asyncconfig.Source {
		return asyncconfig.Source{Kind: asyncconfig.Page, URL: server.URL + path, Metric: metric, Labels: labels}
	}
	query := asyncconfig.Source{Kind: asyncconfig.PromQL, Query: `1 - (sum(rate(x{job="i"}[5m])) / 100)`}
	vector := func(samples string) string {
		return `{"status":"success","data":{"resultType":"vector","result":[` + samples + `]}}`
	}
	for i, c := range []struct {
		source asyncconfig.Source
		prom   string
		status async.Status
		value  float64
	}{
		{redisKey(m.Addr(), "half"), "", async.Sample, 0.5},
		{redisKey(m.Addr(), "none"), "", async.Empty, 0},
		{redisKey(m.Addr(), "text"), "", async.Empty, 0},
		{redisKey("127.0.0.1:1", "half"), "", async.NoAnswer, 0},
		{query, vector(`{"metric":{},"value":[1,"0.35"]},{"metric":{},"value":[1,"9"]}`), async.Sample, 0.35},
		{query, vector(""), async.Empty, 0},
		{query, `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`, async.NoAnswer, 0},
		{query, `{"status":"error","error":"parse"}`, async.NoAnswer, 0},
		{query, `nonsense`, async.NoAnswer, 0},
		{page("/metrics", "waiting", `{"model":"b"}`), "", async.Sample, 5},
		{page("/metrics", "waiting", `{}`), "", async.Sample, 3},
		{page("/metrics", "waiting", `{"model":"c"}`), "", async.Empty, 0},
		{page("/metrics", "untyped", `{}`), "", async.Sample, 7},
		{page("/metrics", "other", `{}`), "", async.Empty, 0},
		{page("/gone", "waiting", `{}`), "", async.NoAnswer, 0},
	} {
		prom = c.prom
		s := newSources(server.URL+"/", []asyncconfig.Source{c.source})
		status, v, err := s.read(context.Background(), 0)
		if status != c.status || v != c.value || (err == nil) == (c.status == async.NoAnswer) {
			t.Errorf("%d: %v %v %v", i, status, v, err)
		}
		s.close()
	}
	want(t, "the query as given", asked[0], query.Query)
}

// TestAttempt: what comes back is what was answered; redirects are answers, broken bodies are none (AP-RES-03, AP-RETRY-03).
func TestAttempt(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/echo", http.StatusFound)
		case "/cut":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
		case "/busy":
			w.Header().Set("Retry-After", "7")
			http.Error(w, "busy", http.StatusTooManyRequests)
		default:
			fmt.Fprintf(w, "%s %s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("X-A"), body)
		}
	}))
	defer server.Close()
	client, err := newHTTPClient(asyncconfig.Flags{}, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	try := func(path string) async.Answer {
		return attempt(context.Background(), client, async.Outgoing{URL: server.URL + path, Headers: []async.Header{{Name: "x-a", Value: "b"}}}, []byte(`{"n":1}`), nil)
	}
	want(t, "echo", try("/echo?q=1").Body, `POST /echo?q=1 b {"n":1}`)
	want(t, "redirect", try("/moved").Status, 302)
	want(t, "cut", try("/cut").Failure, async.Truncated)
	want(t, "busy", try("/busy"), async.Answer{Status: 429, Body: "busy\n", RetryAfter: "7"})
	a := attempt(context.Background(), client, async.Outgoing{URL: "http://127.0.0.1:1/"}, nil, nil)
	want(t, "refused", a.Failure, async.Transport)
}

// TestTLS: the gateway's certificate is verified, with an authority of one's own if told so (AP-TLS-01, AP-TLS-03).
func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	server.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelInfo)
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags asyncconfig.Flags
		ok    bool
	}{{asyncconfig.Flags{}, false}, {asyncconfig.Flags{TLSCACert: ca}, true}, {asyncconfig.Flags{TLSInsecureSkipVerify: true}, true}} {
		client, err := newHTTPClient(c.flags, 1)
		if err != nil {
			t.Fatal(err)
		}
		if a := attempt(context.Background(), client, async.Outgoing{URL: server.URL}, nil, nil); (a.Status == 200) != c.ok {
			t.Errorf("%+v: %+v", c.flags, a)
		}
		client.CloseIdleConnections()
	}
	_, err := newHTTPClient(asyncconfig.Flags{TLSCACert: "gone.pem", TLSCert: "gone.pem", TLSKey: "gone.pem"}, 1)
	if err == nil || !strings.Contains(err.Error(), "--tls-ca-cert") || !strings.Contains(err.Error(), "--tls-cert, --tls-key") {
		t.Error(err)
	}
}

// TestProbes: alive at once, ready when the broker is there, also if it comes later, not while draining; metrics want to be opened
// (AP-HEALTH-01, -02, -03, AP-CLI-11). Nothing is left behind.
func TestProbes(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent()) // libraries of other tests end theirs when they like
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	addr := m.Addr()
	m.Close()
	arrived := make(chan struct{}, 9)
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "ok")
		arrived <- struct{}{}
	}))
	defer gateway.Close()
	load := func(open bool) *Server {
		f := asyncconfig.Flags{Concurrency: 2, Transport: "redis-sortedset", Durability: "at-least-once", DrainTimeout: time.Second, MetricsEndpointAuth: !open,
			TransportConfig: fmt.Sprintf(`{"url":"redis://%s","poll_interval_ms":10,"queues":[{"queue_name":"q","igw_base_url":%q}]}`, addr, gateway.URL)}
		c, err := asyncconfig.NewLoader(f, nil, nil).Load()
		if err != nil {
			t.Fatal(err)
		}
		s, err := Serve(Options{Config: c, Logger: slog.New(slog.NewTextHandler(logs(t), nil))})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	get := func(addr, path string) (int, string) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		res, err := client.Get("http://" + addr + path)
		if err != nil {
			return 0, err.Error()
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	s := load(true)
	if status, body := get(s.HealthAddr(), "/healthz"); status != 200 || !strings.Contains(body, `{"status":"ok"}`) {
		t.Error(status, body)
	}
	if status, body := get(s.HealthAddr(), "/readyz"); status != 503 || !strings.Contains(body, `"status":"not ready","error":"`) {
		t.Error(status, body)
	}
	if err := m.StartAddr(addr); err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if status, body := get(s.HealthAddr(), "/readyz"); status != 200 {
		t.Error(status, body)
	}
	if status, body := get(s.MetricsAddr(), "/metrics"); status != 200 || !strings.Contains(body, `llm_d_async_async_pool_worker_limit{pool_name="default"} 2`) {
		t.Error(status, body)
	}
	member := `{"request_kind":"plain","data":{"id":"a","deadline":9999999999,"payload":{}}}`
	m.ZAdd("q", 9999999999, member)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	<-arrived
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if v, err := m.List("result-list"); err != nil || len(v) != 1 || !strings.Contains(v[0], `"status_code":200`) {
		t.Error(v, err)
	}
	closed := load(false)
	if status, body := get(closed.MetricsAddr(), "/metrics"); status != 401 || !strings.Contains(body, "start with --metrics-endpoint-auth=false") {
		t.Error(status, body)
	}
	closed.Close()
}

// TestGuard: whoever judges scrapes decides who sees the page, and is not asked while it is open to all (AP-HEALTH-02).
func TestGuard(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the page") })
	for _, c := range []struct {
		status    int
		open      bool
		want      int
		body      string
		challenge string
	}{
		{200, false, 200, "the page", ""},
		{401, false, 401, "because\n", "Bearer"},
		{403, false, 403, "because\n", ""},
		{503, false, 503, "because\n", ""},
		{401, true, 200, "the page", ""},
	} {
		o := Options{Authorize: func(r *http.Request) (int, string) {
			if c.open || r.Header.Get("Authorization") != "Bearer x" {
				t.Errorf("asked about %v", r.Header)
			}
			return c.status, "because"
		}}
		o.Config.Flags.MetricsEndpointAuth = !c.open
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
		q.Header.Set("Authorization", "Bearer x")
		w := httptest.NewRecorder()
		(&Server{o: o}).guard(page).ServeHTTP(w, q)
		if w.Code != c.want || w.Body.String() != c.body || w.Header().Get("WWW-Authenticate") != c.challenge {
			t.Errorf("%+v: %d %q %v", c, w.Code, w.Body.String(), w.Header())
		}
	}
}
