// Package plan turns a workload and a seed into the ordered list of requests to send; the same seed gives the same bytes.
package plan

import "time"

// Plan is what is intended, before anything is sent.
type Plan struct {
	Name     string        `json:"name"`
	Seed     uint64        `json:"seed"`
	Duration time.Duration `json:"durationNs"` // arrivals stop here
	Requests []Request     `json:"requests"`   // by At, then ID
	Loops    []Loop        `json:"loops,omitempty"`
}

// Request is one planned request.
type Request struct {
	ID           string        `json:"id"`
	Tenant       string        `json:"tenant"`       // name of the arrival process it comes from
	FairnessID   string        `json:"fairnessId"`   // "" : no header
	Objective    string        `json:"objective"`    // "" : no header
	At           time.Duration `json:"atNs"`         // intended send time, offset since the start of the load; ignored in a closed loop
	PromptTokens int           `json:"promptTokens"` // length of the prompt to build
	MaxTokens    int           `json:"maxTokens"`
	OutputTokens int           `json:"outputTokens"` // true output length: told to the simulator, never used by a router
	Stream       bool          `json:"stream"`
	Path         string        `json:"path"`                    // /v1/completions or /v1/chat/completions
	CancelAfter  time.Duration `json:"cancelAfterNs,omitempty"` // client disconnects this long after sending; 0: never
	Loop         int           `json:"loop,omitempty"`          // 1-based index into Loops; 0: open loop
}

// Loop is one closed-loop worker: it sends its requests one after the other, Think after each ending.
type Loop struct {
	Tenant string        `json:"tenant"`
	Think  time.Duration `json:"thinkNs"`
	Start  time.Duration `json:"startNs"`
}
