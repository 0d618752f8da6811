package gateway

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/picker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const completion = `{"model":"m","prompt":"hello"}`

// backend is a model server under the test's control: each request is announced and does what the test tells it.
type backend struct {
	srv  *httptest.Server
	seen chan *call
}

// call is one request at the backend.
type call struct {
	r    *http.Request
	body []byte
	do   chan func(http.ResponseWriter) // closed: the handler returns
	gone <-chan struct{}
	over chan struct{}
}

func newBackend(t *testing.T) *backend {
	b := &backend{seen: make(chan *call, 64)}
	b.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c := &call{r: r, body: body, do: make(chan func(http.ResponseWriter)), gone: r.Context().Done(), over: make(chan struct{})}
		defer close(c.over)
		b.seen <- c
		for {
			select {
			case f, ok := <-c.do:
				if !ok {
					return
				}
				f(w)
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(b.srv.Close)
	return b
}

func (b *backend) addr() string { return b.srv.Listener.Addr().String() }

func (c *call) write(s string) {
	c.do <- func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, s)
		_ = http.NewResponseController(w).Flush()
	}
}

// answer replies with one piece and returns.
func (c *call) answer(s string) {
	c.do <- func(w http.ResponseWriter) { _, _ = io.WriteString(w, s) }
	close(c.do)
}

// rig is gateway, picker and backends on loopback.
type rig struct {
	t        *testing.T
	picker   *epp.Server
	front    *httptest.Server
	client   *http.Client
	backends []*backend

	decisions chan epp.Decision
	observed  chan Exchange
}

// newRig starts everything with slots requests in flight per backend. doc is appended to the flowControl block.
func newRig(t *testing.T, backends int, doc string) *rig {
	t.Helper()
	r := &rig{t: t, decisions: make(chan epp.Decision, 4096), observed: make(chan Exchange, 4096)}
	c, _ := epconfig.ContractNamed("")
	cfg, err := epconfig.Load("rig.yaml", []byte("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\n"+
		"plugins: [{type: concurrency-detector, parameters: {maxConcurrency: 1}}]\n"+
		"flowControl: {saturationDetector: {pluginRef: concurrency-detector}, "+doc+"}\n"), c)
	if err != nil {
		t.Fatal(err)
	}
	machine, err := picker.New(cfg.Picker)
	if err != nil {
		t.Fatal(err)
	}
	o := epp.Options{
		Wiring: epp.DefaultWiring(machine, c), Config: cfg, PoolName: "p", GRPCAddr: "127.0.0.1:0", HealthAddr: "127.0.0.1:0",
		MetricsAddr: "127.0.0.1:0", ScrapeInterval: -1, Logger: slog.New(slog.DiscardHandler),
		Objectives: map[string]int{"high": 100, "shed": -10},
		OnDecision: func(d epp.Decision) { r.decisions <- d },
	}
	for range backends {
		b := newBackend(t)
		r.backends = append(r.backends, b)
		o.Endpoints = append(o.Endpoints, picker.Endpoint{Name: b.addr(), Address: b.addr()})
	}
	if r.picker, err = epp.Serve(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.picker.Close() })
	r.frontend(Config{ExtProcAddr: r.picker.GRPCAddr()})
	return r
}

// frontend puts a gateway and a client before a picker.
func (r *rig) frontend(cfg Config) {
	cfg.Observe = func(x Exchange) { r.observed <- x }
	cfg.Logger = slog.New(slog.DiscardHandler)
	g, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	front := httptest.NewUnstartedServer(g.Handler())
	front.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	front.Start()
	r.front = front
	tr := &http.Transport{DisableCompression: true}
	r.client = &http.Client{Transport: tr}
	r.t.Cleanup(func() {
		tr.CloseIdleConnections()
		front.Close()
		if err := g.Close(); err != nil {
			r.t.Error(err)
		}
	})
}

// result is what a client got.
type result struct {
	resp *http.Response
	err  error
}

func (r *rig) request(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.front.URL+path, rd)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

// send starts a completion; its result comes when the response headers do.
func (r *rig) send(ctx context.Context, id string, headers ...string) chan result {
	return r.start(r.request(ctx, http.MethodPost, "/v1/completions", completion, append(headers, wire.HeaderID, id)...))
}

func (r *rig) start(req *http.Request) chan result {
	out := make(chan result, 1)
	go func() {
		resp, err := r.client.Do(req)
		out <- result{resp, err}
	}()
	return out
}

// full reads a response to its end.
func full(t *testing.T, c chan result) (*http.Response, string, error) {
	t.Helper()
	res := <-c
	if res.err != nil {
		return nil, "", res.err
	}
	defer res.resp.Body.Close()
	b, err := io.ReadAll(res.resp.Body)
	return res.resp, string(b), err
}

// queued waits until the picker's gauge says that n requests wait.
func (r *rig) queued(n float64) {
	r.t.Helper()
	for deadline := 0; ; deadline++ {
		families, err := r.picker.Metrics().Gatherer().Gather()
		if err != nil {
			r.t.Fatal(err)
		}
		var sum float64
		for _, f := range families {
			if f.GetName() == wire.PrefixFlowControl+wire.MetricQueueSize {
				for _, m := range f.GetMetric() {
					sum += m.GetGauge().GetValue()
				}
			}
		}
		if sum == n {
			return
		}
		if deadline > 200000 {
			r.t.Fatalf("%v requests queued, want %v", sum, n)
		}
	}
}

func (r *rig) decision(id string) epp.Decision {
	r.t.Helper()
	for {
		select {
		case d := <-r.decisions:
			if d.Label == id {
				return d
			}
		case <-r.t.Context().Done():
			r.t.Fatal("no decision about " + id)
		}
	}
}

// rawPost speaks HTTP by hand, so that a test sees a broken stream as such.
func rawPost(t *testing.T, addr, body string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, body); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}
