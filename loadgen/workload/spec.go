// Package workload says what to send: the tenants of a run, when their requests arrive and how long they are, from strict YAML.
//
//	bytes --Parse--> Spec{Tenants: [Tenant{Arrival, Prompt, Output, ...}]} --plan.Compile(seed)--> plan.Plan
//
// A file is read whole or not at all: every error is reported at once, each as file:line, what is wrong, how to fix it.
//
//	name: two-tenants
//	duration: 30s
//	tenants:
//	- name: gold
//	  fairnessID: gold
//	  objective: interactive
//	  arrival: {process: gamma, rate: 5, cv: 2}
//	  promptTokens: {lognormal: {mean: 500, cv: 1, min: 16, max: 8000}}
//	  outputTokens: {uniform: {min: 20, max: 200}}
//	  stream: true
//	- name: batch
//	  arrival: {process: closed, workers: 8, think: 100ms}
//	  promptTokens: {fixed: 2000}
//	  outputTokens: {fixed: 64}
package workload

import (
	"time"

	"github.com/llm-weir/weir/loadgen/arrival"
)

// Closed is the process of closed-loop workers: each sends its next request Think after the ending of the one before. The
// open-loop processes are package arrival's.
const Closed arrival.Kind = "closed"

// API paths.
const (
	PathCompletions = "/v1/completions"
	PathChat        = "/v1/chat/completions"
)

// Bounds of a workload. They catch a mistyped unit; plan.Compile bounds the number of requests as a whole.
const (
	MaxBytes    = 1 << 20        // of a file
	MaxDuration = 24 * time.Hour // of a run, think time or cancel delay
	MaxTenants  = 1000           // in a run
	MaxTokens   = 1 << 20        // in a prompt or an output
	MaxWorkers  = 10000          // in a tenant
	MaxLengthCV = 10             // of a lognormal length
)

// Spec is a workload.
type Spec struct {
	Name     string
	Duration time.Duration // arrivals stop here
	Tenants  []Tenant
}

// Tenant is one independent source of requests.
type Tenant struct {
	Name           string // [A-Za-z0-9_-]+, unique; names the tenant's random streams and its request ids
	FairnessID     string // "" : no header
	Objective      string // "" : no header
	Arrival        Arrival
	Prompt         Lengths       // tokens
	Output         Lengths       // true output length in tokens, cut at MaxTokens
	MaxTokens      int           // max_tokens of the request; 0: the longest possible output
	Stream         bool          // ask for server-sent events
	Path           string        // PathCompletions or PathChat; "" : PathCompletions
	Start          time.Duration // first possible arrival
	Stop           time.Duration // no arrival at or after it; 0: Spec.Duration
	CancelAfter    time.Duration // the client disconnects this long after sending; 0: never
	CancelFraction float64       // share of the requests that do so, 0..1; a file that leaves it out means 1
}

// Arrival is when a tenant's requests arrive. The open-loop processes read Rate and, for gamma, CV; Closed reads Workers and Think.
type Arrival struct {
	Process arrival.Kind
	Rate    float64 // requests per second
	CV      float64 // coefficient of variation of the gaps
	Workers int
	Think   time.Duration
}

// Distribution names how a length is drawn.
type Distribution string

// The length distributions.
const (
	Fixed     Distribution = "fixed"     // always Value
	Uniform   Distribution = "uniform"   // whole numbers in [Min, Max]
	Lognormal Distribution = "lognormal" // Mean and CV of the undisturbed distribution; a draw outside [Min, Max] is moved to the bound
)

// Lengths is a distribution of token counts.
type Lengths struct {
	Distribution Distribution
	Value        int
	Min, Max     int
	Mean, CV     float64
}

// Longest is the largest length that can be drawn.
func (l Lengths) Longest() int {
	if l.Distribution == Fixed {
		return l.Value
	}
	return l.Max
}

// End is the instant from which the tenant sends nothing new.
func (t Tenant) End(s Spec) time.Duration {
	if t.Stop == 0 {
		return s.Duration
	}
	return t.Stop
}
