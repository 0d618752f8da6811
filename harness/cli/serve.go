package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env/local"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/gateway"
	"github.com/llm-weir/weir/reference/picker"
	"github.com/llm-weir/weir/sim-vllm/presets"
	"github.com/llm-weir/weir/sim-vllm/server"
)

type pickerCmd struct {
	ConfigFile     string        `type:"path" help:"EndpointPickerConfig document; default: flow control on, everything else as the contract defaults."`
	Contract       string        `default:"llm-d-router-2026-09" help:"Contract whose defaults and grammar apply."`
	GRPCAddr       string        `name:"grpc-addr" default:"127.0.0.1:9002" help:"ext_proc listener (gRPC)."`
	HealthAddr     string        `help:"gRPC health listener; default: 127.0.0.1:9003, with --grpc-port the ext_proc port."`
	MetricsAddr    string        `default:"127.0.0.1:9090" help:"HTTP listener of /metrics."`
	GRPCPort       int           `name:"grpc-port" placeholder:"PORT" help:"Port of the ext_proc listener, in place of that of --grpc-addr."`
	GRPCHealthPort int           `name:"grpc-health-port" placeholder:"PORT" help:"Port of the health listener, in place of that of --health-addr."`
	MetricsPort    int           `placeholder:"PORT" help:"Port of the metrics listener, in place of that of --metrics-addr."`
	PoolName       string        `default:"weir" help:"InferencePool to watch, and label inference_pool of the metrics."`
	EndpointsFile  string        `type:"path" help:"YAML list of model servers, read again when it changes."`
	ObjectivesFile string        `type:"path" help:"YAML map of objective names to priorities, read again when it changes."`
	DrainTimeout   time.Duration `default:"30s" help:"How long requests in flight may finish after SIGTERM."`

	SecureServing           bool   `help:"Serve ext_proc with TLS."`
	CertPath                string `type:"path" help:"Directory with tls.crt and tls.key, read again when they change; default: a self-signed certificate."`
	GRPCMaxRecvMsgSize      int    `name:"grpc-max-recv-msg-size" placeholder:"BYTES" help:"Largest gRPC message received; default 4 MiB."`
	GRPCMaxSendMsgSize      int    `name:"grpc-max-send-msg-size" placeholder:"BYTES" help:"Largest gRPC message sent; default no limit."`
	HealthChecking          bool   `help:"Serve the health service on the ext_proc port too."`
	EnableGRPCStreamMetrics bool   `name:"enable-grpc-stream-metrics" help:"Publish series of ext_proc streams."`

	SyncRedis string `placeholder:"URL" help:"Redis-compatible server through which the replicas of one --pool-name tell each other what they have in flight, such as redis://host:6379. Counts in the concurrency detector unless the document says syncCrossReplicaState: false."`

	Kube           bool   `help:"Watch the InferencePool named by --pool-name and what belongs to it, in place of the two files. On by itself where no file is named and $KUBECONFIG or a pod's service account leads to a cluster."`
	Kubeconfig     string `type:"path" help:"Default: $KUBECONFIG, else the pod's service account."`
	PoolNamespace  string `help:"Namespace of the pool; default: $NAMESPACE, else default."`
	LeaderElection bool   `help:"Only the holder of a Lease is ready."`

	AllowExperimentalPlugins bool `help:"Accept plugins of alpha stability."`
	PrintConfig              bool `help:"Print the effective configuration and end."`
}

// Help is the long help of the command.
func (pickerCmd) Help() string {
	return `Examples:
  weir picker --config-file epp.yaml --endpoints-file endpoints.yaml --objectives-file objectives.yaml
  weir picker --config-file epp.yaml --print-config
  weir picker --secure-serving --cert-path /etc/weir/tls --health-checking
  weir picker --kube --pool-name llama --pool-namespace serving --leader-election
  weir picker --kube --pool-name llama --sync-redis redis://redis.serving:6379
  KUBECONFIG=kubeconfig weir picker --grpc-port 9002 --metrics-port 9090

endpoints.yaml:   endpoints: [{name: a, address: 127.0.0.1, port: "8001"}]
objectives.yaml:  objectives: {interactive: 100, batch: -10}`
}

// Run serves until SIGTERM, then drains.
func (c *pickerCmd) Run(con *console) error {
	contract, err := epconfig.ContractNamed(c.Contract)
	if err != nil {
		return err
	}
	cfg := epconfig.Default(contract)
	if c.ConfigFile != "" {
		doc, err := os.ReadFile(c.ConfigFile)
		if err != nil {
			return fmt.Errorf("--config-file: %w", err)
		}
		if cfg, err = epconfig.Load(c.ConfigFile, doc, contract); err != nil {
			return err
		}
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintln(con.err, "warning:", w)
	}
	if c.PrintConfig {
		_, err := con.out.Write(epconfig.Effective(cfg))
		return err
	}
	if !c.AllowExperimentalPlugins {
		if err := cfg.Stable(); err != nil {
			return err
		}
	}
	if c.SyncRedis != "" && cfg.Picker.Flow.Detector.ForeignLimit == 0 {
		fmt.Fprintln(con.err, "warning: --sync-redis: has no effect: the document says syncCrossReplicaState: false, or it uses no concurrency-detector")
	}
	m, err := picker.New(cfg.Picker)
	if err != nil {
		return err
	}
	c.resolve(cfg.EndpointsFile)
	var pool poolWatch
	ready, err := pool.prepare(c)
	if err != nil {
		return err
	}
	s, err := epp.Serve(epp.Options{Readiness: ready, Wiring: epp.DefaultWiring(m, contract, cfg.SessionHeaders...), Config: cfg, PoolName: c.PoolName,
		GRPCAddr: c.GRPCAddr, HealthAddr: c.HealthAddr, MetricsAddr: c.MetricsAddr, EndpointsFile: c.EndpointsFile, ObjectivesFile: c.ObjectivesFile,
		Secure: c.SecureServing, CertPath: c.CertPath, MaxRecvBytes: c.GRPCMaxRecvMsgSize, MaxSendBytes: c.GRPCMaxSendMsgSize,
		HealthOnGRPC: c.HealthChecking, StreamMetrics: c.EnableGRPCStreamMetrics, SyncRedis: c.SyncRedis})
	if err != nil {
		return err
	}
	// SIGTERM gives the Lease back at once; the endpoints stay as they are for the drain.
	defer pool.follow(con.ctx, s)()
	fmt.Fprintf(con.out, "%s: ext_proc %s, health %s, metrics http://%s/metrics\n", local.Ready, s.GRPCAddr(), s.HealthAddr(), s.MetricsAddr())
	<-con.ctx.Done()
	fmt.Fprintln(con.err, "draining")
	ctx, cancel := context.WithTimeout(context.Background(), c.DrainTimeout)
	defer cancel()
	return s.Shutdown(ctx)
}

// resolve works the port flags into the addresses, and decides whether to watch the Kubernetes API. fileDiscovery is the endpoints file
// that the document names.
func (c *pickerCmd) resolve(fileDiscovery string) {
	switch {
	case c.HealthAddr != "" || c.GRPCHealthPort > 0:
	case c.GRPCPort > 0: // who chooses one port may run several pickers: the health listener takes no fixed one
		c.HealthChecking, c.HealthAddr = true, "127.0.0.1:0"
	}
	c.HealthAddr = cmp.Or(c.HealthAddr, "127.0.0.1:9003")
	for _, p := range []struct {
		port int
		addr *string
	}{{c.GRPCPort, &c.GRPCAddr}, {c.GRPCHealthPort, &c.HealthAddr}, {c.MetricsPort, &c.MetricsAddr}} {
		if host, _, err := net.SplitHostPort(*p.addr); err == nil && p.port > 0 {
			*p.addr = net.JoinHostPort(host, strconv.Itoa(p.port))
		}
	}
	noFile := c.EndpointsFile == "" && c.ObjectivesFile == "" && fileDiscovery == ""
	c.Kube = c.Kube || noFile && (c.Kubeconfig != "" || os.Getenv("KUBECONFIG") != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != "")
}

type gatewayCmd struct {
	Addr    string        `default:"127.0.0.1:8080" help:"HTTP listener for clients."`
	ExtProc string        `name:"ext-proc" default:"127.0.0.1:9002" help:"Address of the picker."`
	Timeout time.Duration `default:"1000s" help:"How long the picker may take to answer, its queue included."`
	drainFlag

	ExtProcTLSSkipVerify bool   `name:"ext-proc-tls-skip-verify" help:"Speak TLS to the picker without verifying its certificate."`
	ExtProcCAFile        string `name:"ext-proc-ca-file" type:"path" help:"Speak TLS to the picker and verify it with the authorities of this PEM file."`
}

// Help is the long help of the command.
func (gatewayCmd) Help() string {
	return `Example:
  weir gateway --addr 127.0.0.1:8080 --ext-proc 127.0.0.1:9002
  weir gateway --ext-proc epp.default.svc:9002 --ext-proc-tls-skip-verify
  weir gateway --addr :8080 --ext-proc weir-picker:9002 --drain-timeout 60s`
}

// Run serves until SIGTERM.
func (c *gatewayCmd) Run(con *console) error {
	toPicker, err := gateway.PickerTLS(c.ExtProcCAFile, c.ExtProcTLSSkipVerify)
	if err != nil {
		return fmt.Errorf("--ext-proc-ca-file: %w", err)
	}
	g, err := gateway.New(gateway.Config{ExtProcAddr: c.ExtProc, MessageTimeout: c.Timeout, TLS: toPicker})
	if err != nil {
		return err
	}
	defer g.Close()
	return serveHTTP(con, "gateway", c.Addr, "--addr", c.DrainTimeout, g.Handler())
}

type simCmd struct {
	Addr   string `default:"127.0.0.1:8001" help:"HTTP listener."`
	Name   string `default:"sim-0" help:"Endpoint name, answered in x-weir-served-by."`
	Model  string `help:"The only model served; default: any."`
	Preset string `default:"h100-llama3.1-8b" help:"GPU and model whose timing is simulated (weir list presets)."`
	Hold   bool   `help:"Hold every response until POST /admin/release."`
	drainFlag
}

// Help is the long help of the command.
func (simCmd) Help() string {
	return `Examples:
  weir sim-vllm --addr 127.0.0.1:8001 --preset h100-llama3.1-8b
  curl -X POST 127.0.0.1:8001/admin/load -d '{"waiting":10,"running":0,"kv":0}'    script its metrics`
}

// Run serves until SIGTERM.
func (c *simCmd) Run(con *console) error {
	ec, err := presets.Get(c.Preset)
	if err != nil {
		return err
	}
	clk, id := clock.NewShared() // so that instants of servers on one machine can be compared
	s, err := server.NewHost(server.Config{Name: c.Name, Model: c.Model, Engine: ec, Hold: c.Hold, Clock: clk, ClockID: id}, presets.Get)
	if err != nil {
		return err
	}
	defer s.Close()
	return serveHTTP(con, "sim-vllm "+c.Name, c.Addr, "--addr", c.DrainTimeout, s.Handler())
}

// drainFlag is how long a server of HTTP lives on after SIGTERM.
type drainFlag struct {
	DrainTimeout time.Duration `default:"0s" help:"How long requests in flight may finish after SIGTERM; 0: they are broken off at once."`
}

// serveHTTP serves h until the command is told to end, and then what is in flight until drain is over.
func serveHTTP(con *console, what, addr, flag string, drain time.Duration, h http.Handler) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%s: %w; choose another address with %s (port 0 takes a free one)", what, err, flag)
	}
	fmt.Fprintf(con.out, "%s: http://%s\n", what, ln.Addr())
	hs := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	stop := context.AfterFunc(con.ctx, func() {
		defer close(ended)
		if drain > 0 {
			fmt.Fprintln(con.err, "draining")
			ctx, cancel := context.WithTimeout(context.WithoutCancel(con.ctx), drain)
			defer cancel()
			_ = hs.Shutdown(ctx) // what outlasts it is broken off
		}
		hs.Close()
	})
	err = hs.Serve(ln)
	if !stop() { // Serve returns when the drain begins
		<-ended
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
