package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/reference/picker"
	"github.com/llm-weir/weir/sim-vllm/presets"
	"github.com/llm-weir/weir/sim-vllm/server"
)

type upCmd struct {
	Stack     upRunCmd       `cmd:"" name:"run" default:"withargs" help:"Run the stack in the foreground (the default)."`
	Configure upConfigureCmd `cmd:"" help:"Give a stack that is up another configuration."`
}

type upRunCmd struct {
	Servers    int    `default:"2" help:"Number of simulated model servers; with --write-sut or --configuration at least as many as are needed."`
	Preset     string `default:"h100-llama3.1-8b" help:"GPU and model whose timing is simulated (weir list presets)."`
	ConfigFile string `type:"path" help:"EndpointPickerConfig document; default: three bands, round robin, 8 requests per server."`
	Addr       string `default:"127.0.0.1:8080" help:"HTTP listener of the gateway."`
	Async      bool   `help:"Run an Async Processor with an embedded Redis-compatible server too."`
	RedisAddr  string `default:"127.0.0.1:6379" help:"With --async: where that server listens."`

	ControlAddr    string `default:"127.0.0.1:0" help:"HTTP listener of the control API, over which the stack is given another configuration."`
	WriteSUT       string `name:"write-sut" type:"path" placeholder:"FILE" help:"Write the descriptor with which weir certify --url runs against this stack."`
	Configuration  string `placeholder:"NAME" help:"Start with the configuration of a scenario (weir list configurations). The descriptor then names it and nothing that configures."`
	Profile        string `default:"llm-d-router-2026-09" help:"Contract of the picker."`
	PrometheusAddr string `default:"127.0.0.1:9091" help:"With --async: where an embedded Prometheus answers queries about all of it."`
	GateType       string `default:"constant" help:"With --async: the gate of its queue; the prometheus-* gates ask that Prometheus, whose pool is \"up\"."`
	GateParams     string `default:"{}" help:"With --async: that gate's parameters, a JSON object."`
}

// Help is the long help of the command.
func (upRunCmd) Help() string {
	return `Examples:
  weir up --write-sut up.yaml                                     in one terminal
  weir certify --url http://127.0.0.1:8080 --sut up.yaml          in another
  curl -N http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \
    -H 'x-llm-d-inference-objective: interactive' -H 'x-llm-d-inference-fairness-id: me' \
    -d '{"model":"m","stream":true,"max_tokens":20,"messages":[{"role":"user","content":"hello"}]}'

Objectives: interactive = 100, standard = 0, batch = -10.

With the asynchronous half, in a second terminal:
  weir up --async
  weir enqueue --queue batch -n 100
  weir results --follow -n 100

Its queue held back while the pool is busy:
  weir up --async --gate-type prometheus-saturation --gate-params '{"pool":"up","threshold":"0.5"}'
  curl 127.0.0.1:9091/api/v1/query --data-urlencode 'query=llm_d_async_async_dispatch_budget'`
}

// upConfig is the configuration of "up" where none is given.
const upConfig = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- type: concurrency-detector
  parameters: {maxConcurrency: 8}
- type: active-request-scorer
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins: [{pluginRef: active-request-scorer}, {pluginRef: max-score-picker}]
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  priorityBands:
  - {priority: 100, fairnessPolicyRef: round-robin-fairness-policy}
  - {priority: 0, fairnessPolicyRef: round-robin-fairness-policy}
  - {priority: -10, fairnessPolicyRef: round-robin-fairness-policy}
`

// upObjectives are the objectives of "up".
var upObjectives = map[string]int{"interactive": 100, "standard": 0, "batch": -10}

// Run starts everything, prints the addresses and waits.
func (c *upRunCmd) Run(con *console) error {
	var s stack
	defer s.close()
	r := &upRouter{clock: clock.NewReal()}
	defer r.close()
	if err := r.first(c); err != nil {
		return err
	}
	pool, err := s.servers(max(c.Servers, len(r.names)), c.Preset, r.clock)
	if err != nil {
		return err
	}
	r.addresses = pool
	if err := r.apply(r.document, r.place(pool), r.objectives); err != nil {
		return err
	}
	addr, err := s.listen("gateway", c.Addr, "--addr", r)
	if err != nil {
		return err
	}
	control, err := s.listen("control", c.ControlAddr, "--control-addr", r.control())
	if err != nil {
		return err
	}
	if c.WriteSUT != "" {
		if err := c.writeSUT(r, addr, control); err != nil {
			return err
		}
	}
	e := r.server()
	fmt.Fprintf(con.out, "gateway   http://%s\n", addr)
	fmt.Fprintf(con.out, "picker    ext_proc %s, health %s, metrics http://%s/metrics\n", e.GRPCAddr(), e.HealthAddr(), e.MetricsAddr())
	for _, p := range pool {
		fmt.Fprintf(con.out, "%-9s http://%s (admin under /admin/)\n", p.Name, p.Address)
	}
	if c.Async {
		if err := c.asynchronous(con, &s, addr, e.MetricsAddr(), pool); err != nil {
			return err
		}
	}
	fmt.Fprintf(con.out, "control   http://%s (weir up configure --help)\n", control)
	if c.WriteSUT != "" {
		contract := ""
		if c.Profile != profile.Default {
			contract = " --profile " + c.Profile
		}
		fmt.Fprintf(con.out, "certify   weir certify%s --url http://%s --sut %s\n", contract, addr, c.WriteSUT)
	}
	fmt.Fprintf(con.out, "objectives %s\n\ntry: curl -N http://%s/v1/chat/completions -H 'content-type: application/json' "+
		"-H 'x-llm-d-inference-objective: %s' -H 'x-llm-d-inference-fairness-id: me' "+
		"-d '{\"model\":\"m\",\"stream\":true,\"max_tokens\":20,\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}'\nCtrl-C ends it.\n", goals(r.objectives), addr, r.highest())
	<-con.ctx.Done()
	return nil
}

// stack is what "up" has started, taken down in reverse order.
type stack struct {
	tasks sync.WaitGroup
	stops []func()
}

func (s *stack) close() {
	for i := len(s.stops) - 1; i >= 0; i-- {
		s.stops[i]()
	}
	s.tasks.Wait()
}

func (s *stack) servers(n int, preset string, clk clock.Clock) ([]picker.Endpoint, error) {
	if n < 1 {
		return nil, errors.New("--servers: at least one model server is needed")
	}
	ec, err := presets.Get(preset)
	if err != nil {
		return nil, err
	}
	var out []picker.Endpoint
	clockID := rand.Text() // one clock for all, so that their instants can be compared exactly
	for i := range n {
		name := fmt.Sprintf("sim-%d", i)
		sv, err := server.NewHost(server.Config{Name: name, Engine: ec, Clock: clk, ClockID: clockID}, presets.Get)
		if err != nil {
			return nil, err
		}
		s.stops = append(s.stops, sv.Close)
		addr, err := s.listen(name, "127.0.0.1:0", "", sv.Handler())
		if err != nil {
			return nil, err
		}
		out = append(out, picker.Endpoint{Name: name, Address: addr})
	}
	return out, nil
}

func (s *stack) listen(what, addr, flag string, h http.Handler) (string, error) {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("%s: %w; choose another address with %s (port 0 takes a free one)", what, err, flag)
	}
	hs := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	s.tasks.Go(func() { _ = hs.Serve(ln) })
	s.stops = append(s.stops, func() { hs.Close() })
	return ln.Addr().String(), nil
}
