package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llm-weir/weir/harness/prom"
	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/picker"
)

type prometheusCmd struct {
	Target    []string      `sep:"none" placeholder:"[JOB=]URL[,LABEL=VALUE...]" help:"Page to scrape, again for each; without a path /metrics. The labels are added to its series."`
	Name      []string      `sep:"none" placeholder:"[JOB=]URL[,LABEL=VALUE...]" help:"Like --target for every address that the host of the URL has, such as the pods behind a headless Service; looked up every 5s."`
	Addr      string        `default:"127.0.0.1:9091" help:"HTTP listener of the query API."`
	Interval  time.Duration `default:"1s" help:"Time between two scrapes of a target."`
	Retention time.Duration `default:"24h" help:"How long samples are kept, two hours at least."`
}

// Help is the long help of the command.
func (prometheusCmd) Help() string {
	return `A Prometheus without rules, user interface and discovery but by name: its own database and query engine, answering /api/v1/query and
/api/v1/query_range as a server does. The samples go when it ends.

Examples:
  weir prometheus --target picker=127.0.0.1:9090 --target vllm=127.0.0.1:8001,inference_pool=weir --interval 500ms
  weir prometheus --addr :9091 --target picker=weir-picker:9090 --name vllm=weir-sim-vllm:8000,inference_pool=weir
  weir processor ... --prometheus-url http://127.0.0.1:9091
  curl 127.0.0.1:9091/api/v1/query --data-urlencode 'query=1 - llm_d_epp_flow_control_pool_saturation'
  curl 127.0.0.1:9091/api/v1/query_range -d query=up -d start=2026-11-30T10:00:00Z -d end=2026-11-30T10:10:00Z -d step=15s`
}

// Run scrapes and answers until SIGTERM.
func (c *prometheusCmd) Run(con *console) error {
	cfg := prom.Config{Addr: c.Addr, Interval: c.Interval, Retention: c.Retention, Logger: logger(asyncconfig.Flags{V: 2, ZapEncoder: "console"}, con.err)}
	if c.Interval <= 0 {
		return errors.New("--interval: it must be positive")
	}
	var err1, err2 error
	cfg.Targets, err1 = targets("--target", c.Target)
	cfg.Names, err2 = targets("--name", c.Name)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	s, err := prom.Serve(cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(con.out, "prometheus ready: %s/api/v1/query, %d targets and %d names every %s\n", s.URL(), len(cfg.Targets), len(cfg.Names), c.Interval)
	<-con.ctx.Done()
	return s.Close()
}

func targets(flag string, texts []string) ([]prom.Target, error) {
	var out []prom.Target
	var errs []error
	for _, text := range texts {
		t, err := prom.ParseTarget(text)
		out = append(out, t)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return out, nil
}

// upInterval is the time between two scrapes of "up", and how long its gates use an answer again.
const upInterval = time.Second

// prometheus adds to the stack what the gates of its processor ask.
func (c *upRunCmd) prometheus(con *console, s *stack, pickerAddr string, endpoints []picker.Endpoint) (*prom.Server, error) {
	cfg := prom.Config{Addr: c.PrometheusAddr, Interval: upInterval, Targets: []prom.Target{{Job: "picker", URL: pickerAddr}}}
	for _, e := range endpoints {
		// vLLM does not say which pool it is in; the budget gate's last source asks for it.
		cfg.Targets = append(cfg.Targets, prom.Target{Job: "vllm", URL: e.Address, Labels: map[string]string{"inference_pool": "up"}})
	}
	p, err := prom.Serve(cfg)
	if err != nil {
		return nil, fmt.Errorf("%w; --prometheus-addr says where", err)
	}
	s.stops = append(s.stops, func() {
		if err := p.Close(); err != nil {
			fmt.Fprintln(con.err, err)
		}
	})
	// What the gates ask at first is there when they ask.
	ctx, cancel := context.WithTimeout(con.ctx, upDrain)
	defer cancel()
	if err := p.ScrapeNow(ctx); err != nil {
		fmt.Fprintln(con.err, "prometheus:", err)
	}
	fmt.Fprintf(con.out, "prometheus %s/api/v1/query?query=up\n", p.URL())
	return p, nil
}
