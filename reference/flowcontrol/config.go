package flowcontrol

import "time"

// Config is everything flow control can be told. Zero values mean what is said beside them; epconfig fills in the defaults of a
// contract, so that no default hides in here.
type Config struct {
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
)

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
	MaxConcurrency int           // requests in flight per endpoint (Concurrency)
	QueueDepth     int           // waiting threshold (Utilization)
	KVUtil         float64       // KV-cache threshold in (0,1] (Utilization)
	Staleness      time.Duration // age from which a sample counts as saturated (Utilization)
	Headroom       float64       // raises the per-endpoint filter boundary, never the pool's denominator (FC-HEAD)
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

// CeilingConfig selects the usage-limit policy: up to which saturation each band may dispatch.
type CeilingConfig struct {
	Kind      CeilingKind
	Threshold float64 // Static
	Min       float64 // Holdback: ceiling of the lowest band
	Max       float64 // Holdback: ceiling of the highest band
	ByValue   bool    // Holdback: spread by priority value instead of by rank
}

// CeilingKind is the closed set of usage-limit policies.
type CeilingKind uint8

// The usage-limit policies.
const (
	Static   CeilingKind = iota // one threshold for every band
	Holdback                    // linear from Max for the highest band to Min for the lowest
)
