package flowcontrol

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Config is everything flow control can be told. Zero values mean what is said beside them; epconfig fills in the defaults of a
// contract, so that no default hides in here.
type Config struct {
	// Off is the feature gate switched off (legacy admission, FC-CFG-02, FC-REF-14): whoever arrives is dispatched in the same step,
	// except negative priorities at a pool of saturation ShedAt or above, which are refused as RejectedCapacity. Of the fields below
	// only Detector, Stages and EmptyPoolOutcomes count then.
	Off    bool
	ShedAt float64
	// MaxRequests and MaxBytes bound the queue over all bands; 0: no limit (FC-CAP-05, FC-CAP-07).
	MaxRequests int64
	MaxBytes    int64
	// TTL bounds the wait while the pool has endpoints, NoEndpointTTL while it has none; 0: no limit. A change between the two
	// regimes restarts the budget (spec/endpoint-picker.md §4.8).
	TTL           time.Duration
	NoEndpointTTL time.Duration
	// Bands are the static bands. A band for priority 0 always exists; bands of accepted objectives are made from DefaultBand, or
	// from DefaultNegativeBand below 0.
	Bands               []BandConfig
	DefaultBand         BandConfig
	DefaultNegativeBand BandConfig
	Detector            DetectorConfig
	Ceiling             CeilingConfig
	// ProgramAware parametrizes the fairness policy of that name.
	ProgramAware ProgramAwareConfig
	// Eviction lets blocked demand stop negative-priority work in flight (FC-EVI).
	Eviction bool
	// EmptyPoolOutcomes distinguishes refusals on an empty pool (RejectedNoEndpoints, EvictedNoEndpoints). Router 0.9 does not.
	EmptyPoolOutcomes bool
	// Stages evaluates prefill and decode endpoints separately, the higher pressure governs (FC-PD). Without it roles are ignored.
	Stages bool
	// FlowIdle is the time after which an idle flow is collected, BandIdle the same for a band that is neither static nor asked for
	// by an objective; 0: never (FC-GC).
	FlowIdle time.Duration
	BandIdle time.Duration
}

// BandConfig is one priority band.
type BandConfig struct {
	Priority    int
	MaxRequests int64 // 0: no limit
	MaxBytes    int64 // 0: no limit
	Fairness    Fairness
	Ordering    Ordering
}

// Fairness is the closed set of fairness policies.
type Fairness uint8

// The fairness policies.
const (
	GlobalStrict Fairness = iota // the best head over all flows by the band's ordering
	RoundRobin                   // one turn per flow with queued work and round
	ProgramAware                 // the flow that has attained least service, and whose head has waited longest
)

// ProgramAwareConfig are the parameters of least attained service (spec/endpoint-picker.md §3.5):
// score = WeightService*(1-norm(service)) + WeightHeadWait*norm(headWait), the highest wins.
type ProgramAwareConfig struct {
	WeightService  float64
	WeightHeadWait float64
	HalfLife       time.Duration // service halves every HalfLife of the machine's time; 0: never
	IdleTTL        time.Duration // service of a flow is forgotten this long after its last request ended; 0: never
}

// Ordering is the closed set of ordering policies inside a flow.
type Ordering uint8

// The ordering policies.
const (
	FCFS        Ordering = iota // by the time of entry into the queue
	EDF                         // by the time of entry plus the wait limit; no limit sorts last
	SLODeadline                 // by the time the headers were received plus the TTFT target; no valid target sorts last
)

// DetectorConfig selects how pool saturation is measured.
type DetectorConfig struct {
	Kind           DetectorKind
	Mode           ConcurrencyMode
	MaxConcurrency int   // requests in flight per endpoint (Concurrency)
	MaxTokens      int64 // tokens in flight per endpoint (Concurrency, modes Tokens and Hybrid)
	// EstimateOutput adds an estimate of the output to a request's tokens: min(round(prompt*OutputRatio), the client's limit,
	// MaxEstimatedOutput). Without it the prompt's tokens are released at the first response chunk (FC-SAT-18, FC-SAT-19).
	EstimateOutput     bool
	OutputRatio        float64
	MaxEstimatedOutput int64         // 0: no limit
	QueueDepth         int           // waiting threshold (Utilization)
	KVUtil             float64       // KV-cache threshold in (0,1] (Utilization)
	Staleness          time.Duration // age from which a sample counts as saturated (Utilization)
	// ForeignLimit is the age from which what another replica reported is forgotten (Concurrency); 0: reports are ignored. A short limit
	// forgets replicas that are only slow, a long one keeps the capacity of those that have died.
	ForeignLimit time.Duration
	Headroom     float64 // raises the per-endpoint filter boundary, never the pool's denominator (FC-HEAD)
	// Filter makes the detector a scheduling filter as well (FC-HEAD-09).
	Filter bool
	// FilterFailOpen returns the original candidates if the filter excludes all (FC-HEAD-08); otherwise the request is dropped.
	FilterFailOpen bool
}

// DetectorKind is the closed set of detectors.
type DetectorKind uint8

// The detectors.
const (
	Utilization DetectorKind = iota // mean of max(waiting/threshold, KV/threshold), stale = 1.0
	Concurrency                     // in flight / (endpoints x limit)
)

// ConcurrencyMode is what the concurrency detector counts.
type ConcurrencyMode uint8

// The concurrency modes.
const (
	Requests ConcurrencyMode = iota // requests in flight
	Tokens                          // estimated tokens in flight
	Hybrid                          // per endpoint the larger of both ratios, averaged over the endpoints
)

// CeilingConfig selects the usage-limit policy: up to which saturation each band may dispatch.
type CeilingConfig struct {
	Kind      CeilingKind
	Threshold float64 // Static; at 0 nothing is ever dispatched, above 1 the pool is overcommitted
	Min       float64 // Holdback: ceiling of the lowest band
	Max       float64 // Holdback: ceiling of the highest band
	ByValue   bool    // Holdback: spread by priority value instead of by rank
}

// CeilingKind is the closed set of usage-limit policies.
type CeilingKind uint8

// The usage-limit policies.
const (
	Static         CeilingKind = iota // one threshold for every band
	Holdback                          // linear from Max for the highest band to Min for the lowest
	SoftReflective                    // lower bands are opened in a share of the passes that falls with saturation
)

// Validate says everything that is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.MaxRequests >= 0, "global MaxRequests must be non-negative, got %d", c.MaxRequests)
	check(c.MaxBytes >= 0, "global MaxBytes must be non-negative, got %d", c.MaxBytes)
	check(c.TTL >= 0, "TTL cannot be negative, but got %v", c.TTL)
	check(c.NoEndpointTTL >= 0, "NoEndpointTTL cannot be negative, but got %v", c.NoEndpointTTL)
	check(c.FlowIdle >= 0, "FlowIdle cannot be negative, but got %v", c.FlowIdle)
	check(c.BandIdle >= 0, "BandIdle cannot be negative, but got %v", c.BandIdle)
	seen := make(map[int]bool)
	for _, b := range c.Bands {
		check(!seen[b.Priority], "duplicate priority level %d", b.Priority)
		seen[b.Priority] = true
		b.check(fmt.Sprintf("band %d", b.Priority), check)
	}
	c.DefaultBand.check("default band", check)
	c.DefaultNegativeBand.check("default negative band", check)
	c.ProgramAware.check(check)
	c.Detector.check(check)
	c.Ceiling.check(check)
	return errors.Join(errs...)
}

type checker = func(ok bool, format string, args ...any)

func (b BandConfig) check(name string, check checker) {
	check(b.MaxRequests >= 0, "%s: MaxRequests must be non-negative, got %d", name, b.MaxRequests)
	check(b.MaxBytes >= 0, "%s: MaxBytes must be non-negative, got %d", name, b.MaxBytes)
	check(b.Fairness <= ProgramAware, "%s: unknown fairness policy %d", name, b.Fairness)
	check(b.Ordering <= SLODeadline, "%s: unknown ordering policy %d", name, b.Ordering)
}

func (p ProgramAwareConfig) check(check checker) {
	check(natural(p.WeightService), "program-aware fairness: WeightService must be finite and non-negative, got %v", p.WeightService)
	check(natural(p.WeightHeadWait), "program-aware fairness: WeightHeadWait must be finite and non-negative, got %v", p.WeightHeadWait)
	check(p.HalfLife >= 0, "program-aware fairness: HalfLife cannot be negative, but got %v", p.HalfLife)
	check(p.IdleTTL >= 0, "program-aware fairness: IdleTTL cannot be negative, but got %v", p.IdleTTL)
}

// natural is a number one can calculate with: neither negative nor infinite nor NaN.
func natural(v float64) bool { return v >= 0 && !math.IsInf(v, 0) }

func (d DetectorConfig) check(check checker) {
	switch d.Kind {
	case Utilization:
		check(d.QueueDepth > 0, "utilization detector: QueueDepth must be positive, got %d", d.QueueDepth)
		check(d.KVUtil > 0 && d.KVUtil <= 1, "utilization detector: KVUtil must be in (0,1], got %v", d.KVUtil)
		check(d.Staleness > 0, "utilization detector: Staleness must be positive, got %v", d.Staleness)
	case Concurrency:
		check(d.Mode <= Hybrid, "concurrency detector: unknown mode %d", d.Mode)
		check(d.Mode == Tokens || d.MaxConcurrency > 0, "concurrency detector: MaxConcurrency must be positive, got %d", d.MaxConcurrency)
		check(d.Mode == Requests || d.MaxTokens > 0, "concurrency detector: MaxTokens must be positive, got %d", d.MaxTokens)
		check(natural(d.OutputRatio), "concurrency detector: OutputRatio must be finite and non-negative, got %v", d.OutputRatio)
		check(d.MaxEstimatedOutput >= 0, "concurrency detector: MaxEstimatedOutput must be non-negative, got %d", d.MaxEstimatedOutput)
	default:
		check(false, "unknown detector %d", d.Kind)
	}
	check(d.ForeignLimit >= 0, "detector: ForeignLimit must not be negative, got %v", d.ForeignLimit)
	check(natural(d.Headroom), "detector: Headroom must be finite and non-negative, got %v", d.Headroom)
}

func (c CeilingConfig) check(check checker) {
	switch c.Kind {
	case Static:
		// The documented range (0,1] is not enforced by routers: 0 never opens, above 1 overcommits (spec/endpoint-picker.md §3.4).
		check(!math.IsNaN(c.Threshold), "static ceiling: Threshold is not a number")
	case Holdback:
		check(c.Min >= 0 && c.Min < 1, "holdback ceiling: Min must be in [0,1), got %v", c.Min)
		check(c.Max > 0 && c.Max <= 1, "holdback ceiling: Max must be in (0,1], got %v", c.Max)
		check(c.Min < c.Max, "holdback ceiling: Min %v must be below Max %v", c.Min, c.Max)
	case SoftReflective: // takes no parameters
	default:
		check(false, "unknown ceiling policy %d", c.Kind)
	}
}
