package epp

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/extproc"
	"github.com/llm-weir/weir/reference/picker"
)

func options(t *testing.T) Options {
	c, _ := epconfig.ContractNamed("")
	cfg := epconfig.Default(c)
	p, err := picker.New(cfg.Picker)
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Wiring: DefaultWiring(p, c), Config: cfg, PoolName: "pool", GRPCAddr: "127.0.0.1:0", HealthAddr: "127.0.0.1:0", MetricsAddr: "127.0.0.1:0",
		ScrapeInterval: -1, Logger: slog.New(slog.DiscardHandler),
	}
}

func TestServe(t *testing.T) {
	s, err := Serve(options(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, err := grpc.NewClient(s.HealthAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, service := range []string{"", "liveness", "envoy.service.ext_proc.v3.ExternalProcessor"} {
		r, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil || r.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Error(service, r, err)
		}
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("http://" + s.MetricsAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	page, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if !strings.Contains(string(page), `llm_d_epp_info{build_ref="llm-d-router-2026-09",commit="weir"} 1`) {
		t.Errorf("%s", page)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRefuseByContract(t *testing.T) {
	for name, want := range map[string]wire.Refusal{
		epconfig.Router202609: wire.Refuse(wire.RejectedNoEndpoints, 429),
		epconfig.Router09:     {Status: 503, Body: "inference error: ServiceUnavailable - failed to find endpoint candidates for serving the request"},
	} {
		c, _ := epconfig.ContractNamed(name)
		if got := DefaultWiring(nil, c).Refuse(wire.RejectedNoEndpoints); got != want {
			t.Errorf("%s: %+v", name, got)
		}
		if got := DefaultWiring(nil, c).Refuse(wire.EvictedTTL).Status; got != c.TTLStatus {
			t.Errorf("%s: %d", name, got)
		}
	}
}

func TestServeErrors(t *testing.T) {
	first, err := Serve(options(t))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	o := options(t)
	o.HealthAddr = first.HealthAddr()
	if _, err := Serve(o); err == nil || !strings.Contains(err.Error(), first.HealthAddr()) || !strings.Contains(err.Error(), "--health-addr") {
		t.Errorf("a taken port names itself and the flag: %v", err)
	}
	o = options(t)
	o.EndpointsFile = filepath.Join(t.TempDir(), "none.yaml")
	if _, err := Serve(o); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Error(err)
	}
}

func TestFiles(t *testing.T) {
	good, err := ParseEndpoints("e", []byte(`endpoints: [{name: a, address: "127.0.0.1", port: "8001", labels: {llm-d.ai/role: prefill}}, {name: b, address: "::1", port: 8002}]`))
	if err != nil || len(good) != 2 || good[0].Address != "127.0.0.1:8001" || good[0].Role != picker.RolePrefill || good[1].Address != "[::1]:8002" {
		t.Error(good, err)
	}
	rows := map[string][]string{
		"endpoints: [{name: a, address: x, port: 99999}, {name: a, address: 1.1.1.1, port: 1, bogus: 1}]": {"bogus", "endpoints[0].port", "endpoints[0].address", `endpoints[1].name: "a" is used twice`},
		"endpoints: [{address: 1.1.1.1, port: 1}, {name: b, address: 1.1.1.1, port: 1}]":                  {"endpoints[0].name: missing", "is used twice"},
		"pods: []": {"e:1: field pods not found"},
	}
	for doc, wants := range rows {
		_, err := ParseEndpoints("e", []byte(doc))
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", doc, err, want)
			}
		}
	}
	m, err := ParseObjectives("o", []byte("objectives: {high: 100, shed: -10}"))
	if err != nil || m["high"] != 100 || m["shed"] != -10 {
		t.Error(m, err)
	}
	if _, err := ParseObjectives("o", []byte("objectives: {high: x}\nother: 1\n")); err == nil || !strings.Contains(err.Error(), "o:1:") || !strings.Contains(err.Error(), "o:2:") {
		t.Error(err)
	}
}

// TestReload changes the files below a running server; a change that is wrong leaves what was there and is logged.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	o := options(t)
	o.EndpointsFile, o.ObjectivesFile = filepath.Join(dir, "e.yaml"), filepath.Join(dir, "o.yaml")
	o.ReloadInterval = time.Millisecond
	logged := make(chan string, 100)
	o.Logger = slog.New(slog.NewTextHandler(lines(logged), nil))
	write := func(path, doc string) {
		if err := os.WriteFile(path+".new", []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(o.EndpointsFile, "endpoints: [{name: a, address: 127.0.0.1, port: 1}]")
	write(o.ObjectivesFile, "objectives: {high: 100}")
	s, err := Serve(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(s.Driver().Endpoints()) != 1 || s.Driver().Priority("high") != 100 {
		t.Error("the files are read at start")
	}
	write(o.EndpointsFile, "endpoints: [{name: a, address: nowhere, port: 1}]")
	await(t, logged, "reload refused")
	if len(s.Driver().Endpoints()) != 1 {
		t.Error("a wrong file replaced the pool")
	}
	write(o.EndpointsFile, "endpoints: []")
	await(t, logged, "msg=reloaded")
	if len(s.Driver().Endpoints()) != 0 {
		t.Error("the pool was not emptied")
	}
	write(o.ObjectivesFile, "objectives: {high: 50}")
	await(t, logged, "msg=reloaded")
	if s.Driver().Priority("high") != 50 {
		t.Error("the objectives were not replaced")
	}
}

type lines chan string

func (l lines) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }

func await(t *testing.T, logged chan string, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		select {
		case line := <-logged:
			if strings.Contains(line, text) {
				return
			}
		case <-ctx.Done():
			t.Fatalf("%q was not logged", text)
		}
	}
}

// TestScrapingOpensTheGate publishes a full and then an empty model server: the request waits for the first and goes with the second.
func TestScrapingOpensTheGate(t *testing.T) {
	var waiting atomic.Int64
	waiting.Store(100)
	scraped := make(chan struct{}, 1)
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting %d\n# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc 0\n", waiting.Load())
		select {
		case scraped <- struct{}{}:
		default:
		}
	}))
	defer model.Close()
	o := options(t)
	o.ScrapeInterval = time.Millisecond
	o.Config.Picker.Flow.Detector.Staleness = time.Hour
	o.Endpoints = []picker.Endpoint{{Name: "a", Address: model.Listener.Addr().String()}}
	p, err := picker.New(o.Config.Picker)
	if err != nil {
		t.Fatal(err)
	}
	o.Wiring.Machine = p
	arrived := make(chan struct{})
	s, err := Serve(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	<-scraped
	<-scraped // the first sample has been delivered before the second scrape begins
	got := make(chan wire.Outcome, 1)
	go func() {
		close(arrived)
		placement, outcome := s.Driver().Submit(t.Context(), extproc.Submission{Request: picker.Request{FairnessID: "f", Bytes: 1}})
		s.Driver().Finish(placement.ID)
		got <- outcome
	}()
	<-arrived
	for range 5 {
		<-scraped
	}
	select {
	case o := <-got:
		t.Errorf("decided as %v before a full server", o)
	default:
	}
	waiting.Store(0)
	if o := <-got; o != wire.Dispatched {
		t.Error(o)
	}
}
