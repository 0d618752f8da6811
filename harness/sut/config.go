// Package sut says what a suite may ask of a system under test: a declarative configuration, a script of steps with barriers, and
// nothing else. Suites know only System; how the steps reach a router is the environment's business.
package sut

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// System is one system under test, configured and played scenario by scenario.
type System interface {
	// Describe names the implementation and what it declares to support.
	Describe() Implementation
	// Configure brings the system up with c; *UnsupportedError if the implementation cannot express it.
	Configure(ctx context.Context, c Configuration) error
	// Play runs the script and returns when every request is terminal. Everything observed goes to out.
	Play(ctx context.Context, s Script, out evidence.Sink) error
	// Close releases everything the system holds.
	Close(ctx context.Context) error
}

// Implementation is who is judged.
type Implementation = evidence.Implementation

// Supports tells whether the implementation declares f.
func Supports(i Implementation, f Feature) bool { return slices.Contains(i.Features, string(f)) }

// Feature is an ability a scenario may need.
type Feature string

// The features. Hold, Restart, ScaleToZero, Objectives, Metrics are the catalogue's "needs"; the rest are optional abilities of
// the router itself.
const (
	Hold        Feature = "hold"          // responses can be held and released one by one at the model server
	Restart     Feature = "restart"       // the system can be started, stopped and reconfigured
	ScaleToZero Feature = "scale-to-zero" // endpoints can be added and removed
	Objectives  Feature = "kube-objects"  // InferenceObjectives, real or from a file
	Metrics     Feature = "metrics"       // the router's metrics page
	Subset      Feature = "subset"        // the data plane passes subset hints
	Holdback    Feature = "holdback"      // priority-holdback-policy
	Eviction    Feature = "eviction"      // flowControl.enableEviction
	Stages      Feature = "stages"        // prefill/decode saturation
	LargeBodies Feature = "large-bodies"  // the environment can hold a gigabyte of request bodies
	LoadSync    Feature = "load-sync"     // pickers of one pool tell each other what they have in flight
	// BatchProcessor is an Async Processor in front of the router, which the environment brings.
	BatchProcessor Feature = "batch-processor"
	Deployed       Feature = "deployed" // the system is a deployment in a cluster, parts of which can be taken away
	KubeAPI        Feature = "kube-api" // pods, pools and objectives are taken from a Kubernetes API
)

// UnsupportedError is a configuration that the implementation cannot express.
type UnsupportedError struct {
	Feature Feature
	Why     string // "" where nothing is known but that
}

func (e *UnsupportedError) Error() string {
	if e.Why != "" {
		return fmt.Sprintf("feature %q is not supported: %s", e.Feature, e.Why)
	}
	return fmt.Sprintf("feature %q is not supported", e.Feature)
}

// Configuration is what a scenario wants the router and its model servers to be.
type Configuration struct {
	Endpoints  []Endpoint     `json:"endpoints"`
	Objectives map[string]int `json:"objectives,omitempty"` // InferenceObjective name -> spec.priority
	// Objects are further InferenceObjectives, as objects. They and Kube need a router that is fed by a Kubernetes API.
	Objects  []Objective `json:"objects,omitempty"`
	Kube     bool        `json:"kube,omitempty"`
	Detector Detector    `json:"detector"`
	Ceiling  Ceiling     `json:"ceiling"`
	Bands    []Band      `json:"bands,omitempty"`
	// DefaultBand and NegativeBand are the templates of priorities without an entry, the second one of negative ones; nil: unset.
	DefaultBand  *Band `json:"defaultBand,omitempty"`
	NegativeBand *Band `json:"negativeBand,omitempty"`
	// MaxRequests and MaxBytes are the global limits; 0: unset.
	MaxRequests int64 `json:"maxRequests,omitempty"`
	MaxBytes    int64 `json:"maxBytes,omitempty"`
	// TTL is defaultRequestTTL; 0: unset. NoEndpointTTL is noEndpointRequestTTL; 0: unset.
	TTL           time.Duration `json:"ttlNs,omitempty"`
	NoTTL         bool          `json:"noTtl,omitempty"` // an explicit wait limit of 0: none
	NoEndpointTTL time.Duration `json:"noEndpointTtlNs,omitempty"`
	// Pickers is how many pickers serve the pool, each behind a gateway of its own; 0: one.
	Pickers int `json:"pickers,omitempty"`
	// SyncLoad lets them tell each other what they have in flight, through a Redis that the environment brings.
	SyncLoad bool `json:"syncLoad,omitempty"`
	Eviction bool `json:"eviction,omitempty"`
	// GateOff leaves the feature gate of flow control out (FC-CFG-02).
	GateOff bool `json:"gateOff,omitempty"`
	// Scorer is the one scorer of the scheduling profile; "": active-request-scorer.
	Scorer string `json:"scorer,omitempty"`
	// Hold makes every model server hold each response until it is released.
	Hold bool `json:"hold,omitempty"`
	// Preset names the engine model of the model servers where they do not hold ("" : answer at once).
	Preset string `json:"preset,omitempty"`
	// MaxSeqs is the engines' limit of requests that run at once; 0: the preset's.
	MaxSeqs int `json:"maxSeqs,omitempty"`
	// HeldAsWaiting makes the model servers publish the number of held requests as waiting depth ("cap=k under RH").
	HeldAsWaiting bool `json:"heldAsWaiting,omitempty"`
	// AgentIdentity enables the plugin of that name; APIVersion overrides the dialect's.
	AgentIdentity bool   `json:"agentIdentity,omitempty"`
	APIVersion    string `json:"apiVersion,omitempty"`
	// Batch puts an Async Processor in front of the router; nil: none.
	Batch *Batch `json:"batch,omitempty"`
	// Raw replaces the rendered EndpointPickerConfig document; for start-up scenarios.
	Raw string `json:"raw,omitempty"`
}

// Endpoint is one model server. Role is the value of the label llm-d.ai/role, "" for none.
type Endpoint struct {
	Name string `json:"name"`
	Role string `json:"role,omitempty"`
	// Out keeps the server out of the pool until an "endpoint-add" step.
	Out bool `json:"out,omitempty"`
}

// Objective is an InferenceObjective as an object.
type Objective struct {
	Name     string `json:"name"`
	Priority *int   `json:"priority,omitempty"` // nil: the field is left out
	// Pool and Namespace are those of the router's own pool where they are "".
	Pool      string `json:"pool,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// NeedsKube tells whether only a Kubernetes API can say what c wants said.
func (c Configuration) NeedsKube() bool { return c.Kube || len(c.Objects) > 0 }

// Detector selects and parametrizes the saturation detector; Kind "" leaves the router's default.
type Detector struct {
	Kind           string        `json:"kind"`           // "", "utilization", "concurrency"
	Mode           string        `json:"mode,omitempty"` // concurrency: "" (requests), "tokens", "hybrid"
	MaxConcurrency int           `json:"maxConcurrency,omitempty"`
	MaxTokens      int           `json:"maxTokenConcurrency,omitempty"`
	QueueDepth     int           `json:"queueDepthThreshold,omitempty"`
	KVUtil         float64       `json:"kvCacheUtilThreshold,omitempty"`
	Staleness      time.Duration `json:"metricsStalenessThresholdNs,omitempty"`
	Headroom       float64       `json:"headroom,omitempty"`
	// MaxOutput adds the estimated output to the tokens of a request, up to so many; 0: no estimates.
	MaxOutput int `json:"maxEstimatedOutputTokens,omitempty"`
}

// Ceiling selects the usage-limit policy; Kind "" leaves the router's default.
type Ceiling struct {
	Kind      string  `json:"kind"` // "", "static", "holdback"
	Threshold float64 `json:"threshold,omitempty"`
	Min       float64 `json:"minCeiling,omitempty"`
	Max       float64 `json:"maxCeiling,omitempty"`
	Domain    string  `json:"domain,omitempty"` // of holdback; "" is "rank"
}

// Band is one priority band; empty policy names leave the router's default. Limits of 0 are unset.
type Band struct {
	Priority    int   `json:"priority"`
	MaxRequests int64 `json:"maxRequests,omitempty"`
	MaxBytes    int64 `json:"maxBytes,omitempty"`
	// ZeroRequests writes maxRequests: 0, which means the default (FC-CAP-14).
	ZeroRequests bool   `json:"zeroRequests,omitempty"`
	Fairness     string `json:"fairness,omitempty"` // "", "round-robin", "global-strict"
	Ordering     string `json:"ordering,omitempty"` // "", "fcfs", "edf", "slo-deadline"
}
