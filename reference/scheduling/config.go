package scheduling

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Config is the one scheduling profile.
type Config struct {
	Scorers      []Scorer
	MaxEndpoints int // length of the fallback list; 0 means 1
	// SubsetFilter honours subset hints (on unless disabled).
	SubsetFilter bool
	// Labels filters endpoints by label before scoring: all of them must match; nothing left refuses the request.
	Labels []LabelFilter
	Prefix PrefixConfig // for the PrefixCache scorer
	Seed   uint64       // for ties between equal totals
}

// LabelFilter keeps endpoints whose label Key has one of Values; without Values, endpoints that have the label. With Missing,
// endpoints without the label pass as well.
type LabelFilter struct {
	Key     string
	Values  []string
	Missing bool
}

// PrefixConfig is the approximate prefix cache: which blocks each endpoint has seen lately. With MaxBlocks or LRUCapacity 0 nothing is
// ever matched.
type PrefixConfig struct {
	BlockTokens int // tokens per block, at 4 bytes each; for whoever hashes the prompt
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
		if s.Kind > LoRAAffinity {
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
	for i, f := range c.Labels {
		if f.Key == "" || strings.ContainsAny(f.Key, "=,") {
			errs = append(errs, fmt.Errorf("label filter %d: Key must be a label name, got %q", i, f.Key))
		}
		for _, v := range f.Values {
			if strings.Contains(v, ",") {
				errs = append(errs, fmt.Errorf("label filter %d: %q is no label value", i, v))
			}
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"BlockTokens", c.Prefix.BlockTokens}, {"MaxBlocks", c.Prefix.MaxBlocks}, {"LRUCapacity", c.Prefix.LRUCapacity}} {
		if n.value < 0 || n.value > math.MaxInt32-1 {
			errs = append(errs, fmt.Errorf("prefix cache: %s must be in [0,2^31-2], got %d", n.name, n.value))
		}
	}
	return errors.Join(errs...)
}
