package cli

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/alecthomas/kong"

	"github.com/llm-weir/weir/harness/prom"
	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/asyncproc"
	"github.com/llm-weir/weir/reference/picker"
)

// upAsyncDrain bounds the end of "up".
const upAsyncDrain = 2 * time.Second

// upQueues is the transport document of "up": one queue whose requests are sheddable, polled often because everything is near.
const upQueues = `{"url": "redis://%s", "poll_interval_ms": 50, "batch_size": 32,
 "queues": [{"queue_name": "batch", "igw_base_url": "http://%s", "inference_objective": "batch",
   "gate_type": %q, "gate_params": %s}]}`

// asynchronous adds the asynchronous half to the stack.
func (c *upRunCmd) asynchronous(con *console, s *stack, gateway, pickerMetrics string, endpoints []picker.Endpoint) error {
	p, err := c.prometheus(con, s, pickerMetrics, endpoints)
	if err != nil {
		return err
	}
	metrics, err := c.processor(con, s, gateway, p.URL())
	if err != nil {
		return err
	}
	return p.Add(prom.Target{Job: "processor", URL: metrics})
}

// processor adds a broker that keeps nothing over a restart, and a processor towards the gateway; it gives the address of its metrics.
func (c *upRunCmd) processor(con *console, s *stack, gateway, prometheus string) (string, error) {
	broker, err := startRedis(c.RedisAddr, "--redis-addr")
	if err != nil {
		return "", err
	}
	s.stops = append(s.stops, broker.Close)
	flags, err := defaultFlags()
	if err != nil {
		return "", err
	}
	flags.Transport, flags.TransportConfig = string(asyncconfig.RedisSortedSet), fmt.Sprintf(upQueues, broker.Addr(), gateway, c.GateType, c.GateParams)
	flags.PrometheusURL, flags.PrometheusCacheTTL = prometheus, upInterval
	flags.MetricsEndpointAuth, flags.MetricsPort, flags.HealthPort, flags.V = false, 0, 0, 0
	cfg, err := asyncconfig.NewLoader(flags, func(string) string { return "" }, nil).Load()
	if err != nil {
		return "", err
	}
	p, err := asyncproc.Serve(asyncproc.Options{Config: cfg, Logger: logger(flags, con.err), Listen: func(port int) (net.Listener, error) {
		var lc net.ListenConfig
		return lc.Listen(con.ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	}})
	if err != nil {
		return "", err
	}
	// The drain comes before the gateway and the broker go.
	s.stops = append(s.stops, func() {
		ctx, cancel := context.WithTimeout(context.Background(), upAsyncDrain)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			fmt.Fprintln(con.err, "processor:", err)
		}
	})
	fmt.Fprintf(con.out, "processor metrics http://%s/metrics, health http://%s/readyz\nbroker    redis://%s, queue batch, results in result-list\n",
		p.MetricsAddr(), p.HealthAddr(), broker.Addr())
	return p.MetricsAddr(), nil
}

// defaultFlags are the flags of a processor of which none is given.
func defaultFlags() (asyncconfig.Flags, error) {
	var f asyncconfig.Flags
	parser, err := kong.New(&f)
	if err != nil {
		return f, err
	}
	_, err = parser.Parse(nil)
	return f, err
}
