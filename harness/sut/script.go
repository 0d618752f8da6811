package sut

import (
	"time"

	"github.com/llm-weir/weir/loadgen/plan"
)

// Script is what is done to a configured system, step by step. It is data: it can be written to a file, hashed, and played in
// virtual time and over real sockets alike. No step waits for a fixed time to synchronise; each has a barrier (an arrival, an
// ending, a number of scrapes, the router's queue gauge where there is one) and a limit after which the barrier has failed.
type Script struct {
	Scenario string `json:"scenario"`
	Steps    []Step `json:"steps"`
	// Async is what is done to an Async Processor and to what surrounds it, instead of Steps.
	Async []AsyncStep `json:"async,omitempty"`
}

// Op is what a step does.
type Op string

// The operations.
const (
	OpSend      Op = "send"            // send the requests Spacing apart, without a barrier
	OpPlug      Op = "plug"            // send the requests Spacing apart and wait until each has arrived at a model server
	OpQueue     Op = "queue"           // send the requests Spacing apart; after each, wait until the router shows it as queued, or for Quiet
	OpStep      Op = "step"            // Count times: release the oldest held request, wait up to Limit for the next arrival
	OpRelease   Op = "release"         // release the named requests, or the oldest one held at Endpoint
	OpDrain     Op = "drain"           // release whatever is held or arrives until every request sent so far has ended
	OpCancel    Op = "cancel"          // disconnect the named clients
	OpQuiet     Op = "quiet"           // watch for Quiet; evidence only
	OpArrivals  Op = "arrivals"        // wait until the named requests have arrived at a model server
	OpEndings   Op = "endings"         // wait until the named requests have ended at the client
	OpScript    Op = "script"          // set the metrics of Endpoint to Values and wait until the router has scraped it three times (Count -1: do not wait)
	OpProbe     Op = "probe"           // send one request that a model server does not hold; wait for its arrival or for Quiet; then cancel it if pending
	OpAdd       Op = "endpoint-add"    // put Endpoint into the pool
	OpRemove    Op = "endpoint-remove" // take Endpoint out of the pool
	OpLabel     Op = "endpoint-label"  // give Endpoint the role Mode while it is in the pool
	OpObjective Op = "objectives"      // make Objectives the InferenceObjectives that exist, and wait until the router has accepted them
	OpShutdown  Op = "shutdown"        // terminate the router gracefully
	OpRestart   Op = "restart"         // start the router again after a shutdown, and wait until it serves
	OpSample    Op = "sample"          // read the router's metrics page (Mode "all": every family, not only those of flow control), or that of Endpoint
	OpTryStart  Op = "try-start"       // start a router with the document Raw and record whether it came up (Mode "stable": without its flag for alpha plugins)
	OpLoad      Op = "load"            // play Plan with the open-loop runner until every request has ended
	OpHealth    Op = "health"          // ask the router's health service
	OpStreams   Op = "streams"         // open Count streams to the router on which nothing is said
	OpDown      Op = "down"            // wait until the router has ended after a shutdown
	OpFault     Op = "metrics-fault"   // let the metrics page of Endpoint fail as Mode says: "none", "hang", "error500", "drop", "untyped"
	OpFail      Op = "fail"            // let every model server answer with status Count; 0 ends it
	OpCutOff    Op = "cut-off"         // picker Count tells the others nothing any more of what it has in flight, and hears nothing of them
	OpDeploy    Op = "deploy"          // do to what is deployed what Mode says (Deployer)
	OpHold      Op = "hold"            // turn holding at the model servers on (Count 1) or off (Count 0)
)

// Step is one step. Mark names it for the checks; unset limits take the player's defaults.
type Step struct {
	Op       Op            `json:"op"`
	Mark     string        `json:"mark,omitempty"`
	Requests []Request     `json:"requests,omitempty"`
	IDs      []string      `json:"ids,omitempty"`
	Count    int           `json:"count,omitempty"`
	Spacing  time.Duration `json:"spacingNs,omitempty"`
	Quiet    time.Duration `json:"quietNs,omitempty"`
	Limit    time.Duration `json:"limitNs,omitempty"`
	Endpoint string        `json:"endpoint,omitempty"`
	Values   *LoadValues   `json:"values,omitempty"`
	Raw      string        `json:"raw,omitempty"`
	Mode     string        `json:"mode,omitempty"`
	Plan     *plan.Plan    `json:"plan,omitempty"`
	// Every is how often the router's metrics page and those of all model servers are read while Plan is played; 0: not at all.
	Every time.Duration `json:"everyNs,omitempty"`
	// Objectives are InferenceObjective name -> spec.priority.
	Objectives map[string]int `json:"objectives,omitempty"`
	Objects    []Objective    `json:"objects,omitempty"`
	Messages   []AsyncMessage `json:"messages,omitempty"` // for the batch processor
}

// LoadValues are scripted model-server metrics.
type LoadValues struct {
	Waiting float64 `json:"waiting"`
	Running float64 `json:"running"`
	KV      float64 `json:"kv"`
}

// Request is one request of a script. Empty headers are left out; a header in Extra may be empty and is sent so.
type Request struct {
	ID        string            `json:"id"`
	Objective string            `json:"objective,omitempty"`
	Tenant    string            `json:"tenant,omitempty"`
	Extra     map[string]string `json:"extra,omitempty"`
	Body      string            `json:"body,omitempty"`   // "" : a small completion request
	Size      int               `json:"size,omitempty"`   // pad the default body to this many bytes
	Path      string            `json:"path,omitempty"`   // "" : /v1/completions
	Method    string            `json:"method,omitempty"` // "" : POST; GET sends no body
	Stream    bool              `json:"stream,omitempty"`
	HoldAfter int               `json:"holdAfter,omitempty"`   // tokens to send before the hold
	PassHold  bool              `json:"passHold,omitempty"`    // the model server answers at once although it holds others
	Subset    []string          `json:"subset,omitempty"`      // endpoint names the request is restricted to
	Prompt    int               `json:"prompt,omitempty"`      // tokens of the default body's prompt, at 4 bytes each
	BodyDelay time.Duration     `json:"bodyDelayNs,omitempty"` // the last byte of the body is withheld for so long
	Picker    int               `json:"picker,omitempty"`      // which of several pickers it is sent to, from 0
	NoBody    bool              `json:"noBody,omitempty"`      // an empty body
	MaxTokens int               `json:"maxTokens,omitempty"`
}
