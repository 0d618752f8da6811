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
	// Labels filters endpoints by label before scoring: all of them must match; nothing left refuses the request.
	Labels []LabelFilter
	Prefix PrefixConfig
	Seed   uint64 // for ties between equal totals
}

// LabelFilter keeps endpoints whose label Key has one of Values; without Values, endpoints that have the label. With Missing,
// endpoints without the label pass as well.
type LabelFilter struct {
	Key     string
	Values  []string
	Missing bool
}

// PrefixConfig is the approximate prefix cache: which blocks each endpoint has seen lately.
type PrefixConfig struct {
	BlockTokens int // tokens per block, at 4 bytes each
	MaxBlocks   int // blocks of a prompt that are matched at most
	LRUCapacity int // blocks remembered per endpoint
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
	PrefixCache                       // matched share of the prompt's blocks
	LoRAAffinity                      // adapter running 1.0, free slot 0.8, waiting 0.6, else 0
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
