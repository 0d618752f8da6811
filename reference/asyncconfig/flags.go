package asyncconfig

import (
	"time"
)

// Flags are the processor's flags. The tags are those of the command line parser; defaults are the guide's (AP-CLI).
type Flags struct {
	Concurrency         int           `group:"Core" default:"64" help:"Workers of each pool that does not say otherwise; each holds one request for its whole duration."`
	Transport           string        `group:"Core" help:"Message queue: redis-pubsub (default), redis-sortedset, gcp-pubsub."`
	TransportConfig     string        `group:"Core" placeholder:"JSON" help:"Transport configuration; this or --transport-config-file."`
	TransportConfigFile string        `group:"Core" type:"path" default:"" placeholder:"FILE" help:"File with the transport configuration."`
	WatchInterval       time.Duration `group:"Core" name:"transport-config-watch-interval" default:"0s" help:"Read the queues of the file again this often (redis-sortedset); 0: never."`
	PoolConfigFile      string        `group:"Core" type:"path" default:"" placeholder:"FILE" help:"JSON array of worker pools; default: one pool \"default\"."`
	MergePolicyFile     string        `group:"Core" name:"request-merge-policy-config-file" type:"path" default:"" placeholder:"FILE" help:"JSON with type and parameters of the merge policy; default: random-robin."`
	TransformConfigFile string        `group:"Core" type:"path" default:"" placeholder:"FILE" help:"JSON with requestTransforms; default: none."`

	PrometheusURL      string        `group:"Gating and Prometheus" help:"Prometheus server that the prometheus-* gates ask."`
	PrometheusCacheTTL time.Duration `group:"Gating and Prometheus" default:"5s" help:"How long its answers are used again; 0s: not at all."`

	RequestTimeout  time.Duration `group:"Timeouts and draining" default:"5m" help:"Bound of one HTTP attempt."`
	DrainTimeout    time.Duration `group:"Timeouts and draining" default:"2m" help:"How long requests in flight may finish after SIGTERM."`
	GateWaitTimeout time.Duration `group:"Timeouts and draining" default:"5m" help:"How long a worker is parked at a pool's gate before the message goes back; 0: until its deadline."`

	MetricsPort         int           `group:"Ports and endpoints" default:"9090" help:"Port of /metrics; 0 takes a free one."`
	MetricsEndpointAuth bool          `group:"Ports and endpoints" default:"true" negatable:"" help:"Refuse scrapes without a bearer token whose user, says the Kubernetes API ($KUBECONFIG, else the pod's service account), may get /metrics."`
	HealthPort          int           `group:"Ports and endpoints" default:"8081" help:"Port of /healthz and /readyz; 0 takes a free one."`
	BacklogInterval     time.Duration `group:"Ports and endpoints" name:"metrics-backlog-poll-interval" default:"15s" help:"How often the broker's backlog is read; 0: never."`

	TLSCACert             string `group:"TLS towards the gateway" name:"tls-ca-cert" type:"path" default:"" placeholder:"FILE" help:"Authorities (PEM) that the gateway's certificate may come from, beside the system's."`
	TLSCert               string `group:"TLS towards the gateway" name:"tls-cert" type:"path" default:"" placeholder:"FILE" help:"Client certificate (PEM); with --tls-key."`
	TLSKey                string `group:"TLS towards the gateway" name:"tls-key" type:"path" default:"" placeholder:"FILE" help:"Its key (PEM)."`
	TLSInsecureSkipVerify bool   `group:"TLS towards the gateway" name:"tls-insecure-skip-verify" help:"Do not verify the gateway's certificate; for tests only."`

	V                  int    `group:"Logging" name:"v" short:"v" default:"2" help:"Verbosity; 4 and above log every message."`
	ZapDevel           bool   `group:"Logging" default:"true" negatable:"" help:"Readable log lines unless --zap-encoder says otherwise."`
	ZapEncoder         string `group:"Logging" help:"json or console."`
	ZapLogLevel        string `group:"Logging" help:"debug, info, error, panic, or a number as for -v."`
	ZapStacktraceLevel string `group:"Logging" help:"Accepted; log lines carry no stack traces."`
	ZapTimeEncoding    string `group:"Logging" help:"epoch, millis, nano, iso8601, rfc3339 or rfc3339nano."`

	Durability           string `group:"Beyond the guide" default:"at-least-once" enum:"at-least-once,at-most-once" help:"What a hard kill may cost on redis-sortedset: nothing, or what the guide's processor loses."`
	Eager                bool   `group:"Beyond the guide" help:"Poll again at once after a full batch, so that batch_size per poll_interval_ms is no ceiling."`
	RetryTransportErrors bool   `group:"Beyond the guide" default:"true" negatable:"" help:"Retry attempts that got no HTTP answer, until the deadline."`
	Lenient              bool   `group:"Beyond the guide" help:"Ignore unknown fields and take unknown gate types for open ones, with a warning."`

	Older OlderFlags `embed:"" group:"Older flags (deprecated)"`
}

// OlderFlags are the per-backend flags that --transport and --transport-config replace (AP-CLI-14).
type OlderFlags struct {
	MessageQueueImpl   string `help:"Deprecated: --transport."`
	RedisTracing       bool   `help:"Deprecated: enable_tracing."`
	MergePolicyFile    string `name:"request-merge-policy-config" type:"path" default:"" placeholder:"FILE" help:"Deprecated: --request-merge-policy-config-file."`
	RedisURL           string `name:"redis.url" help:"Deprecated: url."`
	IGWBaseURL         string `name:"redis.igw-base-url" help:"Deprecated: queues."`
	RequestPath        string `name:"redis.request-path-url" help:"Deprecated: queues."`
	Objective          string `name:"redis.inference-objective" help:"Deprecated: queues."`
	RequestQueue       string `name:"redis.request-queue-name" help:"Deprecated: queues."`
	RetryQueue         string `name:"redis.retry-queue-name" help:"Deprecated: retry_queue_name."`
	ResultQueue        string `name:"redis.result-queue-name" help:"Deprecated: result_queue_name."`
	QueuesConfig       string `name:"redis.queues-config" help:"Deprecated: queues."`
	QueuesConfigFile   string `name:"redis.queues-config-file" type:"path" default:"" placeholder:"FILE" help:"Deprecated: queues."`
	SSBaseURL          string `name:"redis.ss.igw-base-url" help:"Deprecated: queues."`
	SSRequestPath      string `name:"redis.ss.request-path-url" help:"Deprecated: queues."`
	SSObjective        string `name:"redis.ss.inference-objective" help:"Deprecated: queues."`
	SSRequestQueue     string `name:"redis.ss.request-queue-name" help:"Deprecated: queues."`
	SSResultQueue      string `name:"redis.ss.result-queue-name" help:"Deprecated: result_queue_name."`
	SSQueuesConfig     string `name:"redis.ss.queues-config" help:"Deprecated: queues."`
	SSQueuesConfigFile string `name:"redis.ss.queues-config-file" type:"path" default:"" placeholder:"FILE" help:"Deprecated: queues."`
	SSPollInterval     *int   `name:"redis.ss.poll-interval-ms" help:"Deprecated: poll_interval_ms."`
	SSBatch            *int   `name:"redis.ss.batch-size" help:"Deprecated: batch_size."`
	SSGateType         string `name:"redis.ss.gate-type" help:"Deprecated: queues."`
	SSGateParams       string `name:"redis.ss.gate-params" help:"Deprecated: queues."`
	PSProject          string `name:"pubsub.project-id" help:"Deprecated: project_id."`
	PSBaseURL          string `name:"pubsub.igw-base-url" help:"Deprecated: topics."`
	PSRequestPath      string `name:"pubsub.request-path-url" help:"Deprecated: topics."`
	PSObjective        string `name:"pubsub.inference-objective" help:"Deprecated: topics."`
	PSSubscriber       string `name:"pubsub.request-subscriber-id" help:"Deprecated: topics."`
	PSResultTopic      string `name:"pubsub.result-topic-id" help:"Deprecated: result_topic_id."`
	PSTopicsFile       string `name:"pubsub.topics-config-file" type:"path" default:"" placeholder:"FILE" help:"Deprecated: topics."`
	PSBatch            *int   `name:"pubsub.batch-size" help:"Deprecated: batch_size."`
}

// checkFlags looks at what needs no file.
func (l *Loader) checkFlags() {
	f := &l.flags
	if f.Concurrency <= 0 {
		l.failf("--concurrency: must be positive, got %d", f.Concurrency)
	}
	for _, d := range []struct {
		flag string
		v    time.Duration
	}{
		{"--request-timeout", f.RequestTimeout}, {"--drain-timeout", f.DrainTimeout}, {"--gate-wait-timeout", f.GateWaitTimeout},
		{"--prometheus-cache-ttl", f.PrometheusCacheTTL}, {"--metrics-backlog-poll-interval", f.BacklogInterval},
		{"--transport-config-watch-interval", f.WatchInterval},
	} {
		if d.v < 0 {
			l.failf("%s: must not be negative, got %v", d.flag, d.v)
		}
	}
	for _, p := range []struct {
		flag string
		v    int
	}{{"--metrics-port", f.MetricsPort}, {"--health-port", f.HealthPort}} {
		if p.v < 0 || p.v > 65535 {
			l.failf("%s: %d is no port", p.flag, p.v)
		}
	}
	if (f.TLSCert == "") != (f.TLSKey == "") {
		l.failf("--tls-cert and --tls-key: must be given together")
	}
	if f.ZapStacktraceLevel != "" {
		l.warnf("--zap-stacktrace-level: has no effect, log lines carry no stack traces")
	}
	l.logFlags()
	if f.WatchInterval > 0 && (f.Transport != string(RedisSortedSet) || f.TransportConfigFile == "") {
		l.failf("--transport-config-watch-interval: needs --transport redis-sortedset and --transport-config-file")
	}
}

func (l *Loader) logFlags() {
	switch l.flags.ZapEncoder {
	case "", "json", "console":
	default:
		l.failf("--zap-encoder: expected json or console, got %q", l.flags.ZapEncoder)
	}
	if _, ok := l.flags.Level(); !ok {
		l.failf("--zap-log-level: expected debug, info, error, panic or a positive number, got %q", l.flags.ZapLogLevel)
	}
	switch l.flags.ZapTimeEncoding {
	case "", "epoch", "millis", "nano", "iso8601", "rfc3339", "rfc3339nano":
	default:
		l.failf("--zap-time-encoding: expected epoch, millis, nano, iso8601, rfc3339 or rfc3339nano, got %q", l.flags.ZapTimeEncoding)
	}
}
