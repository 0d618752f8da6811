package flowcontrol

import (
	"math"
	"strings"
	"testing"
	"time"
)

func valid() Config {
	return Config{
		Detector: DetectorConfig{Kind: Concurrency, MaxConcurrency: 1},
		Ceiling:  CeilingConfig{Threshold: 1},
	}
}

// TestValidate: wrong configurations are refused with the contract's words (spec/endpoint-picker.md §3.3, §3.4).
func TestValidate(t *testing.T) {
	util := DetectorConfig{Kind: Utilization, QueueDepth: 5, KVUtil: 0.8, Staleness: time.Second}
	for _, tc := range []struct {
		why  string
		edit func(*Config)
		want string // "" if valid
	}{
		{"the least that works", func(*Config) {}, ""},
		{"utilization", func(c *Config) { c.Detector = util }, ""},
		{"a static threshold above 1 is not refused by routers", func(c *Config) { c.Ceiling.Threshold = 2 }, ""},
		{"holdback", func(c *Config) { c.Ceiling = CeilingConfig{Kind: Holdback, Min: 0.5, Max: 1} }, ""},
		{"negative global count", func(c *Config) { c.MaxRequests = -1 }, "global MaxRequests must be non-negative, got -1"},
		{"negative global bytes", func(c *Config) { c.MaxBytes = -1 }, "global MaxBytes must be non-negative, got -1"},
		{"negative wait", func(c *Config) { c.TTL = -time.Second }, "TTL cannot be negative, but got -1s"},
		{"negative wait on an empty pool", func(c *Config) { c.NoEndpointTTL = -1 }, "NoEndpointTTL cannot be negative"},
		{"one priority twice", func(c *Config) { c.Bands = []BandConfig{{Priority: 7}, {Priority: 7}} }, "duplicate priority level 7"},
		{"negative band limit", func(c *Config) { c.Bands = []BandConfig{{Priority: 7, MaxBytes: -1}} }, "band 7: MaxBytes must be non-negative, got -1"},
		{"unknown fairness", func(c *Config) { c.DefaultBand.Fairness = 9 }, "default band: unknown fairness policy 9"},
		{"unknown ordering", func(c *Config) { c.DefaultNegativeBand.Ordering = 9 }, "default negative band: unknown ordering policy 9"},
		{"no limit", func(c *Config) { c.Detector.MaxConcurrency = 0 }, "MaxConcurrency must be positive"},
		{"no depth", func(c *Config) { c.Detector = util; c.Detector.QueueDepth = 0 }, "QueueDepth must be positive"},
		{"tokens", func(c *Config) { c.Detector = DetectorConfig{Kind: Concurrency, Mode: Tokens, MaxTokens: 1} }, ""},
		{"hybrid", func(c *Config) {
			c.Detector = DetectorConfig{Kind: Concurrency, Mode: Hybrid, MaxConcurrency: 1, MaxTokens: 1}
		}, ""},
		{"no token limit", func(c *Config) { c.Detector = DetectorConfig{Kind: Concurrency, Mode: Tokens} }, "MaxTokens must be positive, got 0"},
		{"hybrid without requests", func(c *Config) { c.Detector = DetectorConfig{Kind: Concurrency, Mode: Hybrid, MaxTokens: 1} }, "MaxConcurrency must be positive"},
		{"hybrid without tokens", func(c *Config) { c.Detector.Mode = Hybrid }, "MaxTokens must be positive"},
		{"unknown mode", func(c *Config) { c.Detector.Mode = 9; c.Detector.MaxTokens = 1 }, "unknown mode 9"},
		{"negative ratio", func(c *Config) { c.Detector.OutputRatio = -1 }, "OutputRatio must be finite and non-negative, got -1"},
		{"infinite ratio", func(c *Config) { c.Detector.OutputRatio = math.Inf(1) }, "OutputRatio must be finite"},
		{"negative estimate", func(c *Config) { c.Detector.MaxEstimatedOutput = -1 }, "MaxEstimatedOutput must be non-negative, got -1"},
		{"soft-reflective", func(c *Config) { c.Ceiling = CeilingConfig{Kind: SoftReflective} }, ""},
		{"weight not a number", func(c *Config) { c.ProgramAware.WeightService = math.NaN() }, "WeightService must be finite and non-negative, got NaN"},
		{"negative weight", func(c *Config) { c.ProgramAware.WeightHeadWait = -0.2 }, "WeightHeadWait must be finite and non-negative, got -0.2"},
		{"negative half-life", func(c *Config) { c.ProgramAware.HalfLife = -1 }, "HalfLife cannot be negative"},
		{"negative memory", func(c *Config) { c.ProgramAware.IdleTTL = -time.Second }, "IdleTTL cannot be negative, but got -1s"},
		{"KV above 1", func(c *Config) { c.Detector = util; c.Detector.KVUtil = 1.1 }, "KVUtil must be in (0,1], got 1.1"},
		{"no staleness limit", func(c *Config) { c.Detector = util; c.Detector.Staleness = 0 }, "Staleness must be positive"},
		{"unknown detector", func(c *Config) { c.Detector.Kind = 9 }, "unknown detector 9"},
		{"negative headroom", func(c *Config) { c.Detector.Headroom = -0.1 }, "Headroom must be finite and non-negative, got -0.1"},
		{"headroom not a number", func(c *Config) { c.Detector.Headroom = math.NaN() }, "Headroom must be finite"},
		{"threshold not a number", func(c *Config) { c.Ceiling.Threshold = math.NaN() }, "Threshold is not a number"},
		{"unknown ceiling", func(c *Config) { c.Ceiling.Kind = 9 }, "unknown ceiling policy 9"},
		{"min not below max", func(c *Config) { c.Ceiling = CeilingConfig{Kind: Holdback, Min: 0.5, Max: 0.5} }, "Min 0.5 must be below Max 0.5"},
		{"max above 1", func(c *Config) { c.Ceiling = CeilingConfig{Kind: Holdback, Max: 1.5} }, "Max must be in (0,1], got 1.5"},
	} {
		c := valid()
		tc.edit(&c)
		_, err := New(c)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", tc.why, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %q", tc.why, err, tc.want)
		}
	}
	c := valid()
	c.MaxBytes, c.TTL, c.Detector.MaxConcurrency = -1, -1, 0
	if err := c.Validate(); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("not all errors at once: %v", err)
	}
}

// TestPolicyTable: every policy of the closed sets is accepted and one more is not, so that a new one cannot be forgotten here.
func TestPolicyTable(t *testing.T) {
	for f := range ProgramAware + 2 {
		for o := range SLODeadline + 2 {
			c := valid()
			c.Bands = []BandConfig{{Priority: 1, Fairness: f, Ordering: o}}
			if ok := c.Validate() == nil; ok != (f <= ProgramAware && o <= SLODeadline) {
				t.Errorf("fairness %d, ordering %d: valid %v", f, o, ok)
			}
		}
	}
}
