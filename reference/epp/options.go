package epp

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/extproc"
	"github.com/llm-weir/weir/reference/loadsync"
	"github.com/llm-weir/weir/reference/picker"
	"github.com/llm-weir/weir/reference/scheduling"
)

// Wiring are the replaceable parts of the assembly, so that a caller can wrap one of them without a hook in the parts themselves.
type Wiring struct {
	Machine  picker.Machine
	Classify func(extproc.Headers) extproc.Identity
	Refuse   func(wire.Outcome) wire.Refusal
	// Families transforms the metrics page; nil: as it is.
	Families func([]*dto.MetricFamily) []*dto.MetricFamily
	// Evictions reads the machine's totals of in-flight eviction, on the goroutine that owns it; nil: no such series.
	Evictions func() ([]picker.PriorityCount, picker.EvictionState)
	// Confirmations and HasFlow are described at DriverConfig.
	Confirmations func(dst []time.Duration) []time.Duration
	HasFlow       func(priority int, fairnessID string) bool
	// InFlight reads what the machine has in flight at an endpoint, on the goroutine that owns it; nil: other replicas are not told.
	InFlight func(picker.EndpointID) (requests int, tokens int64)
}

// DefaultWiring is the reference as it is meant to be. sessionHeaders are those of epconfig.Config, none without agent-identity.
func DefaultWiring(m picker.Machine, c epconfig.Contract, sessionHeaders ...string) Wiring {
	w := Wiring{
		Machine:  m,
		Classify: extproc.NewClassifier(extproc.ClassifierOptions{SessionHeaders: sessionHeaders}),
		Refuse:   func(o wire.Outcome) wire.Refusal { return refuse(c, o) },
	}
	if p, ok := m.(*picker.Picker); ok && p.Off() {
		w.Refuse = func(o wire.Outcome) wire.Refusal {
			if o == wire.RejectedCapacity { // legacy admission names no reason (spec/endpoint-picker.md §5.4)
				return wire.Refusal{Status: 429, Body: "system saturated, sheddable request dropped"}
			}
			return refuse(c, o)
		}
	} else if ok {
		var buf []picker.PriorityCount
		w.Evictions = func() (issued []picker.PriorityCount, s picker.EvictionState) {
			buf, s = p.Evictions(buf[:0])
			return buf, s
		}
	}
	if p, ok := m.(*picker.Picker); ok {
		w.InFlight = func(id picker.EndpointID) (int, int64) { return p.InFlight(id), p.InFlightTokens(id) }
	}
	if p, ok := m.(interface {
		Confirmations(dst []time.Duration) []time.Duration
	}); ok {
		w.Confirmations = p.Confirmations
	}
	if p, ok := m.(interface {
		HasFlow(priority int, fairnessID string) bool
	}); ok {
		w.HasFlow = p.HasFlow
	}
	return w
}

// refuse is the contract's answer to an outcome. A router that does not tell empty pools apart has no reason for a request without
// candidates either (spec/endpoint-picker.md §5.3).
func refuse(c epconfig.Contract, o wire.Outcome) wire.Refusal {
	r := wire.Refuse(o, c.TTLStatus)
	if o == wire.RejectedNoEndpoints && !c.EmptyPoolOutcomes {
		r.Reason = ""
		r.Body = "inference error: ServiceUnavailable - failed to find endpoint candidates for serving the request"
	}
	return r
}

// Options assemble a picker process. Addresses may end in ":0".
type Options struct {
	Wiring   Wiring
	Config   epconfig.Config
	PoolName string // value of the label inference_pool

	GRPCAddr    string // ext_proc
	HealthAddr  string // gRPC health v1, always plaintext
	MetricsAddr string // HTTP /metrics

	// Secure serves ext_proc with TLS: with tls.crt and tls.key of the directory CertPath, read again when they change, or with a
	// self-signed certificate of its own.
	Secure   bool
	CertPath string
	// MaxRecvBytes and MaxSendBytes bound a gRPC message; 0: 4 MiB to receive, no limit to send.
	MaxRecvBytes, MaxSendBytes int
	// HealthOnGRPC serves the health service on the ext_proc port too.
	HealthOnGRPC bool
	// StreamMetrics publishes the series of ext_proc streams.
	StreamMetrics bool

	// Rewrites change the models of requests; RewriteSeed drives the draws between several targets.
	Rewrites    []extproc.Rewrite
	RewriteSeed uint64
	// KeepControlHeaders is described at extproc.Config.
	KeepControlHeaders bool

	// Endpoints and Objectives are the state at start. EndpointsFile (else the document's file-discovery) and ObjectivesFile
	// replace them and are read again after each change.
	Endpoints      []picker.Endpoint
	Objectives     map[string]int
	EndpointsFile  string
	ObjectivesFile string
	ReloadInterval time.Duration // 0: 200 ms

	// ScrapeInterval is the time between two scrapes of an endpoint; 0: 50 ms, negative: no scraping.
	ScrapeInterval time.Duration
	ScrapeTimeout  time.Duration // 0: 1 s
	BodyLimit      int           // bytes of a request body; 0: extproc.DefaultBodyLimit
	HeaderLimit    int           // bytes of a request's headers; 0: extproc.DefaultHeaderLimit
	MaxStreams     uint32        // concurrent streams of one connection; 0: 65536

	// SyncRedis is the address of the Redis-compatible server through which replicas of one PoolName tell each other what they have in
	// flight; "": they do not. The document's syncCrossReplicaState has the last word.
	SyncRedis string

	Readiness  Readiness   // zero: ready as soon as it listens
	Clock      clock.Clock // nil: the machine's
	OnDecision func(Decision)
	Logger     *slog.Logger // nil: slog.Default

	redis *redis.Options // of SyncRedis
}

func (o *Options) fill() error {
	var errs []error
	if o.Wiring.Machine == nil || o.Wiring.Classify == nil || o.Wiring.Refuse == nil {
		errs = append(errs, errors.New("wiring: incomplete, start from DefaultWiring"))
	}
	if o.CertPath != "" && !o.Secure {
		errs = append(errs, fmt.Errorf("--cert-path %s: has no effect without --secure-serving", o.CertPath))
	}
	if o.MaxRecvBytes < 0 || o.MaxSendBytes < 0 {
		errs = append(errs, fmt.Errorf("--grpc-max-recv-msg-size, --grpc-max-send-msg-size: must not be negative, got %d, %d", o.MaxRecvBytes, o.MaxSendBytes))
	}
	if o.SyncRedis != "" {
		var err error
		if o.redis, err = loadsync.Parse(o.SyncRedis); err != nil {
			errs = append(errs, fmt.Errorf("--sync-redis: %w", err))
		}
	}
	if o.Clock == nil {
		o.Clock = clock.NewReal()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.EndpointsFile == "" {
		o.EndpointsFile = o.Config.EndpointsFile
	}
	if o.ReloadInterval <= 0 {
		o.ReloadInterval = 200 * time.Millisecond
	}
	if o.ScrapeInterval == 0 {
		o.ScrapeInterval = 50 * time.Millisecond
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = 1 << 16
	}
	return errors.Join(errs...)
}

// Prefix is how prompts are hashed for a scheduling profile: not at all where no scorer looks at the hashes.
func Prefix(c scheduling.Config) extproc.PrefixConfig {
	for _, s := range c.Scorers {
		if s.Kind == scheduling.PrefixCache && s.Weight > 0 {
			p := extproc.DefaultPrefix
			if c.Prefix.BlockTokens > 0 {
				p.BlockBytes = 4 * c.Prefix.BlockTokens
			}
			if c.Prefix.MaxBlocks > 0 {
				p.MaxBlocks = c.Prefix.MaxBlocks
			}
			return p
		}
	}
	return extproc.PrefixConfig{}
}
