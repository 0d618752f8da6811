package flowcontrol

import (
	"math"
	"testing"
)

// TestWeigh: min(round(prompt x ratio), the client's limit, the estimate cap), and nothing that could overflow a sum (FC-SAT-19).
func TestWeigh(t *testing.T) {
	for _, tc := range []struct {
		why            string
		det            DetectorConfig
		r              Request
		prompt, output int64
	}{
		{"no estimate", DetectorConfig{OutputRatio: 1.5}, Request{Tokens: 10, MaxOutput: 5}, 10, 0},
		{"ratio", DetectorConfig{EstimateOutput: true, OutputRatio: 1.5}, Request{Tokens: 10}, 10, 15},
		{"half is rounded up", DetectorConfig{EstimateOutput: true, OutputRatio: 1.5}, Request{Tokens: 3}, 3, 5},
		{"the client's limit", DetectorConfig{EstimateOutput: true, OutputRatio: 1.5, MaxEstimatedOutput: 9}, Request{Tokens: 10, MaxOutput: 7}, 10, 7},
		{"the cap", DetectorConfig{EstimateOutput: true, OutputRatio: 1.5, MaxEstimatedOutput: 9}, Request{Tokens: 10, MaxOutput: 70}, 10, 9},
		{"a negative prompt", DetectorConfig{EstimateOutput: true, OutputRatio: 1.5}, Request{Tokens: -10}, 0, 0},
		{"absurd numbers", DetectorConfig{EstimateOutput: true, OutputRatio: 1e300}, Request{Tokens: math.MaxInt64}, mostTokens, mostTokens},
	} {
		if p, o := tc.det.weigh(&tc.r); p != tc.prompt || o != tc.output {
			t.Errorf("%s: %d and %d, want %d and %d", tc.why, p, o, tc.prompt, tc.output)
		}
	}
}

// TestTokenHeadroomBoundary: truncated and strict like that of requests; hybrid needs both below (FC-HEAD-11, FC-HEAD-12).
func TestTokenHeadroomBoundary(t *testing.T) {
	for _, tc := range []struct {
		mode     ConcurrencyMode
		requests int
		tokens   int64
		want     bool
	}{
		{Tokens, 99, 114, false}, {Tokens, 99, 113, true}, {Hybrid, 4, 113, true}, {Hybrid, 5, 113, false}, {Hybrid, 4, 114, false},
		{Requests, 4, 999, true}, {Requests, 5, 0, false},
	} {
		p := newPool(DetectorConfig{Kind: Concurrency, Mode: tc.mode, MaxConcurrency: 5, MaxTokens: 100, Headroom: 0.149}, false)
		if got := p.Eligible(0, &Member{inFlight: tc.requests, tokens: tc.tokens}); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
	p := newPool(DetectorConfig{Kind: Concurrency, Mode: Hybrid, MaxConcurrency: math.MaxInt, MaxTokens: math.MaxInt64, Headroom: 9}, false)
	if !p.Eligible(0, &Member{inFlight: 1, tokens: 1}) {
		t.Error("absurd limits overflow")
	}
}
