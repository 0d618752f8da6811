package scheduling

import (
	"errors"
	"fmt"
	"math"
)

// Config is the one scheduling profile.
type Config struct {
	Scorers      []Scorer
	MaxEndpoints int // length of the fallback list; 0 means 1
	// SubsetFilter honours subset hints (on unless disabled).
	SubsetFilter bool
	Seed         uint64 // for ties between equal totals
}

// Scorer is one weighted scorer.
type Scorer struct {
	Kind   ScorerKind
	Weight float64
}

// ScorerKind is the closed set of scorers.
type ScorerKind uint8

// The scorers; each gives 0..1, higher is better.
const (
	Queue           ScorerKind = iota // min-max inverse of the waiting depth, all equal: 1
	KVUtilization                     // 1 - KV usage
	RunningRequests                   // min-max inverse of running requests
	ActiveRequests                    // min-max inverse of the picker's own in-flight count
	PrefixCache                       // accepted; scores 0 until prefixes are indexed
)

// Validate says everything that is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	for i, s := range c.Scorers {
		if s.Kind > PrefixCache {
			errs = append(errs, fmt.Errorf("scorer %d: unknown kind %d", i, s.Kind))
		}
		// A weight that is not finite would make every total equal or incomparable.
		if !(s.Weight >= 0 && s.Weight <= math.MaxFloat64) {
			errs = append(errs, fmt.Errorf("scorer %d: Weight must be finite and non-negative, got %v", i, s.Weight))
		}
	}
	if c.MaxEndpoints < 0 {
		errs = append(errs, fmt.Errorf("MaxEndpoints must be non-negative, got %d", c.MaxEndpoints))
	}
	return errors.Join(errs...)
}
