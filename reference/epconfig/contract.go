package epconfig

import (
	"fmt"
	"time"
)

// Contract is one published behaviour of the router, as the defaults and the grammar of its configuration (spec/endpoint-picker.md
// §3 and the version table of §0; the chapter for rhoai-3.4).
type Contract struct {
	Name string
	// TTLStatus is the HTTP status of a wait-limit refusal on a pool that has endpoints.
	TTLStatus int
	// DefaultTTL is defaultRequestTTL where the document has none; 0: no limit.
	DefaultTTL time.Duration
	// BandMaxRequests and BandMaxBytes are the limits of a band that names none; 0: no limit.
	BandMaxRequests int64
	BandMaxBytes    int64
	// EmptyPoolOutcomes distinguishes refusals on an empty pool.
	EmptyPoolOutcomes bool
	// Eviction accepts flowControl.enableEviction, Holdback the ceiling policies that treat priorities differently
	// (priority-holdback-policy, soft-reflective-ceiling-policy), NoEndpointTTL flowControl.noEndpointRequestTTL.
	Eviction      bool
	Holdback      bool
	NoEndpointTTL bool
	// Hybrid accepts concurrencyMode: hybrid and the parameters that came with it (outputRatio, matchLengthWeight).
	Hybrid bool
	// StabilityGate keeps alpha plugins from starting without --allow-experimental-plugins (FC-CFG-14).
	StabilityGate bool
	// ProgramHalfLife is lasHalfLifeSeconds where program-aware-fairness has none; 0: service never halves. DecayFactor accepts
	// the older lasDecayFactor.
	ProgramHalfLife time.Duration
	DecayFactor     bool
	// Stages measures prefill and decode endpoints separately and gives pool_saturation the label stage.
	Stages bool
	// DetectorFilter adds the selected detector to every handwritten profile as a filter.
	DetectorFilter bool
	// ConcurrencyFailOpen returns all candidates when the concurrency filter excludes every one; the utilization filter always does.
	ConcurrencyFailOpen bool
	// InlineDetector accepts thresholds directly under the top-level saturationDetector.
	InlineDetector bool
	// GateValues accepts "name=true" and "name=false" among the feature gates.
	GateValues bool
	// Passthrough dispatches unknown paths as opaque bodies; otherwise they are refused with 400.
	Passthrough bool
	gates       []string
}

// The contract names.
const (
	Router09     = "llm-d-router-0.9"
	Router202609 = "llm-d-router-2026-09"
	RHOAI34      = "rhoai-3.4"
)

// ContractNames lists the contracts; the first is the default.
func ContractNames() []string { return []string{Router202609, Router09, RHOAI34} }

// ContractNamed finds a contract; "" is the default one, llm-d-router-2026-09.
func ContractNamed(name string) (Contract, error) {
	switch name {
	case "", Router202609:
		return Contract{
			Name: Router202609, TTLStatus: 429, DefaultTTL: time.Minute, BandMaxRequests: 5000, BandMaxBytes: 1e9,
			EmptyPoolOutcomes: true, Eviction: true, Holdback: true, NoEndpointTTL: true, Hybrid: true, StabilityGate: true,
			ProgramHalfLife: time.Minute, Stages: true, DetectorFilter: true, ConcurrencyFailOpen: true, GateValues: true,
			Passthrough: true, gates: []string{gateFlowControl, "haPopulateNonLeaderDatastore"},
		}, nil
	case Router09:
		return Contract{Name: Router09, TTLStatus: 503, BandMaxBytes: 1e9, DecayFactor: true, gates: []string{gateFlowControl, "dataLayer"}}, nil
	case RHOAI34:
		return Contract{
			Name: RHOAI34, TTLStatus: 503, DefaultTTL: time.Minute, BandMaxRequests: 5000, BandMaxBytes: 1 << 30,
			InlineDetector: true, DecayFactor: true, gates: []string{gateFlowControl, "dataLayer"},
		}, nil
	}
	return Contract{}, fmt.Errorf("unknown contract %q: choose one of %q", name, ContractNames())
}
