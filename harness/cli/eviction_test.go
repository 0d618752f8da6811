package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/asyncproc"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/gateway"
	"github.com/llm-weir/weir/reference/picker"
	"github.com/llm-weir/weir/reference/redisq"
	"github.com/llm-weir/weir/sim-vllm/presets"
	"github.com/llm-weir/weir/sim-vllm/server"
)

// evicting lets blocked demand stop sheddable work in flight; two requests fit.
const evicting = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 2}}
flowControl:
  enableEviction: true
  saturationDetector: {pluginRef: concurrency-detector}
`

// TestEvictionAndRetry is the whole chain of E2E-01: two batch requests of the processor run, a realtime request needs the place of one,
// the victim is answered 429, the processor tries it again as a new request, and in the end each has one result.
func TestEvictionAndRetry(t *testing.T) {
	if testing.Short() {
		t.Skip("real sockets and real time")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	changed := make(chan struct{}, 1)
	ec, err := presets.Get("h100-llama3.1-8b")
	if err != nil {
		t.Fatal(err)
	}
	sim, err := server.New(server.Config{Name: "sim", Engine: ec, Clock: clock.NewReal(), Hold: true, OnEvent: func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	sim.Start()
	defer sim.Close()
	model := httptest.NewServer(sim.Handler())
	defer model.Close()
	url := stackOf(t, strings.TrimPrefix(model.URL, "http://"))
	broker := miniredis.RunT(t)
	doc := fmt.Sprintf(`{"url":"redis://%s","poll_interval_ms":50,"queues":[{"queue_name":"batch","igw_base_url":%q,"inference_objective":"batch"}]}`, broker.Addr(), url)
	c, err := asyncconfig.NewLoader(asyncconfig.Flags{Concurrency: 8, Transport: "redis-sortedset", TransportConfig: doc, Durability: "at-least-once",
		DrainTimeout: time.Second}, func(string) string { return "" }, nil).Load()
	if err != nil {
		t.Fatal(err)
	}
	p, err := asyncproc.Serve(asyncproc.Options{Config: c, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Listen: func(int) (net.Listener, error) {
		var lc net.ListenConfig
		return lc.Listen(ctx, "tcp", "127.0.0.1:0")
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	client := redisq.AddressClient(broker.Addr())
	defer client.Close()
	for _, id := range []string{"one", "two"} {
		payload := []byte(`{"model":"m","prompt":"hello","max_tokens":4}`)
		r := async.Request{ID: id, Deadline: clock.Wall().Unix() + 50, Payload: payload, Headers: map[string]string{wire.HeaderID: id}}
		if _, err := redisq.Submit(ctx, client, "batch", "", r, clock.Wall()); err != nil {
			t.Fatal(err)
		}
	}
	await := func(what string, f func() bool) {
		t.Helper()
		for !f() {
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("%s: did not happen; the model server holds %v and saw %d requests", what, sim.Held(), len(sim.Log()))
			}
		}
	}
	await("both batch requests run", func() bool { return len(sim.Held()) == 2 })
	realtime := make(chan string, 1)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", bytes.NewReader([]byte(`{"model":"m","prompt":"now","max_tokens":4}`)))
		req.Header.Set(wire.HeaderObjective, "interactive")
		req.Header.Set(wire.HeaderID, "realtime")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			realtime <- err.Error()
			return
		}
		res.Body.Close()
		realtime <- res.Status
	}()
	await("the realtime request takes the place of one", func() bool {
		held := strings.Join(sim.Held(), " ")
		return strings.Contains(held, "realtime")
	})
	sim.SetHold(false)
	sim.ReleaseAll()
	if status := <-realtime; status != "200 OK" {
		t.Errorf("realtime: %s", status)
	}
	results := map[string]int{}
	for range 2 {
		v, err := redisq.Receive(ctx, client, "result-list", 20*time.Second)
		if err != nil || v == nil {
			t.Fatalf("results so far: %v, %v", results, err)
		}
		var r async.Result
		if err := json.Unmarshal(v, &r); err != nil {
			t.Fatal(err)
		}
		if results[r.ID]++; r.StatusCode != 200 || r.ErrorCode != "" {
			t.Errorf("%+v", r)
		}
	}
	if more, err := redisq.Receive(ctx, client, "result-list", time.Second); more != nil || err != nil {
		t.Errorf("a third result: %s, %v", more, err)
	}
	arrivals := map[string]int{}
	for _, b := range sim.Log() {
		arrivals[b.ID]++
	}
	if results["one"] != 1 || results["two"] != 1 || arrivals["one"]+arrivals["two"] != 3 || arrivals["realtime"] != 1 {
		t.Errorf("results %v, arrivals at the model server %v: want one result each, and three arrivals of the two", results, arrivals)
	}
}

// stackOf starts an evicting picker and its gateway in front of one model server, and gives the gateway's URL.
func stackOf(t *testing.T, model string) string {
	t.Helper()
	contract, err := epconfig.ContractNamed("")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := epconfig.Load("evicting.yaml", []byte(evicting), contract)
	if err != nil {
		t.Fatal(err)
	}
	m, err := picker.New(cfg.Picker)
	if err != nil {
		t.Fatal(err)
	}
	e, err := epp.Serve(epp.Options{Wiring: epp.DefaultWiring(m, contract), Config: cfg, PoolName: "p", GRPCAddr: "127.0.0.1:0", HealthAddr: "127.0.0.1:0",
		MetricsAddr: "127.0.0.1:0", Endpoints: []picker.Endpoint{{Name: "sim", Address: model}}, Objectives: map[string]int{"interactive": 100, "batch": -10}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	g, err := gateway.New(gateway.Config{ExtProcAddr: e.GRPCAddr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	front := httptest.NewServer(g.Handler())
	t.Cleanup(front.Close)
	return front.URL
}
