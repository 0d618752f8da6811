package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/asyncproc"
	"github.com/llm-weir/weir/reference/kube"
)

// tracingEnd bounds the wait for the last spans.
const tracingEnd = 5 * time.Second

type processorCmd struct {
	asyncconfig.Flags
	CheckConfig bool `help:"Read the configuration, say what is wrong with it, and end."`
}

// Help is the long help of the command.
func (processorCmd) Help() string {
	return `It pulls requests from queues, sends them to a gateway when the gates allow it, and puts one result for each into a result list.

Examples:
  weir processor --transport redis-sortedset --metrics-endpoint-auth=false \
    --transport-config '{"url":"redis://127.0.0.1:6379","queues":[{"queue_name":"batch","igw_base_url":"http://127.0.0.1:8080"}]}'
  weir processor --transport redis-sortedset --transport-config-file queues.json --transport-config-watch-interval 5s
  weir processor --transport redis-sortedset --transport-config-file queues.json --check-config
  weir processor ... --durability at-most-once          lose on kill -9 what the guide's processor loses

queues.json, each field but the first two optional:
  {"url": "redis://127.0.0.1:6379", "result_queue_name": "result-list", "retry_queue_name": "retry-sortedset",
   "poll_interval_ms": 1000, "batch_size": 10,
   "queues": [{"queue_name": "batch", "igw_base_url": "http://127.0.0.1:8080", "request_path_url": "/v1/completions",
               "inference_objective": "batch", "worker_pool_id": "default", "labels": {"tier": "batch"},
               "gate_type": "local-max-concurrency", "gate_params": {"limit": "8"}}]}

OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317 turns tracing on; the other OTEL_* variables have their usual meaning.

Exit status: 0 after SIGTERM and a drain, 1 for a configuration that cannot be used, 2 for unknown flags.`
}

// Run serves until SIGTERM, then drains.
func (c *processorCmd) Run(con *console) error { return c.run(con, nil) }

// run serves, after tamper has changed what it likes.
func (c *processorCmd) run(con *console, tamper func(*asyncproc.Options)) error {
	loader := asyncconfig.NewLoader(c.Flags, nil, nil)
	cfg, err := loader.Load()
	for _, w := range cfg.Warnings {
		fmt.Fprintln(con.err, "warning:", w)
	}
	if err != nil {
		return &exitError{status: ExitFail, text: err.Error()}
	}
	log := logger(c.Flags, con.err)
	authorize := c.authorizer(log, con.err)
	if c.CheckConfig {
		_, err := fmt.Fprintf(con.out, "the configuration is usable: %s, %d queues, %d pools\n", cfg.Transport, len(cfg.Queues), len(cfg.Pools))
		return err
	}
	for _, line := range cfg.Info {
		log.Info(line)
	}
	o := asyncproc.Options{Config: cfg, Logger: log, Authorize: authorize}
	if c.WatchInterval > 0 {
		o.Loader = loader
	}
	if cfg.Tracing {
		provider, end, err := asyncproc.NewTracing(con.ctx)
		if err != nil {
			return &exitError{status: ExitFail, text: err.Error()}
		}
		o.Tracing = provider
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), tracingEnd)
			defer cancel()
			if err := end(ctx); err != nil {
				log.Warn("tracing: the last spans were not sent", "error", err)
			}
		}()
	}
	if tamper != nil {
		tamper(&o)
	}
	s, err := asyncproc.Serve(o)
	if err != nil {
		return &exitError{status: ExitFail, text: err.Error()}
	}
	fmt.Fprintf(con.out, "processor ready: metrics http://%s/metrics, health http://%s/readyz\n", s.MetricsAddr(), s.HealthAddr())
	<-con.ctx.Done()
	fmt.Fprintln(con.err, "draining")
	return s.Shutdown(context.WithoutCancel(con.ctx))
}

// authorizer judges scrapes by the Kubernetes API; nil if nobody is to be judged, or if there is no API to ask, which is warned of.
func (c *processorCmd) authorizer(log *slog.Logger, warnings io.Writer) func(*http.Request) (int, string) {
	if !c.MetricsEndpointAuth {
		return nil
	}
	r, err := kube.NewReviewer(kube.ReviewConfig{UserAgent: "weir-processor", Logger: log})
	if err != nil {
		fmt.Fprintf(warnings, "warning: --metrics-endpoint-auth: %v: every scrape will be refused; --metrics-endpoint-auth=false opens the endpoint\n", err)
		return nil
	}
	return r.AllowRequest
}

// logger writes as the zap flags say.
func logger(f asyncconfig.Flags, w io.Writer) *slog.Logger {
	level, _ := f.Level()
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 {
			return encodeTime(a, f.ZapTimeEncoding)
		}
		return a
	}}
	if f.ZapEncoder == "json" || f.ZapEncoder == "" && !f.ZapDevel {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

func encodeTime(a slog.Attr, encoding string) slog.Attr {
	t := a.Value.Time()
	switch encoding {
	case "epoch":
		return slog.String(a.Key, strconv.FormatFloat(float64(t.UnixNano())/1e9, 'f', 6, 64))
	case "millis":
		return slog.String(a.Key, strconv.FormatFloat(float64(t.UnixNano())/1e6, 'f', 3, 64))
	case "nano":
		return slog.Int64(a.Key, t.UnixNano())
	case "iso8601":
		return slog.String(a.Key, t.Format("2006-01-02T15:04:05.000Z0700"))
	case "rfc3339":
		return slog.String(a.Key, t.Format(time.RFC3339))
	case "rfc3339nano":
		return slog.String(a.Key, t.Format(time.RFC3339Nano))
	}
	return a
}
