// Package plan turns a workload and a seed into the ordered list of requests to send; the same seed gives the same bytes.
//
//	workload.Spec --Compile(seed)--> Plan --NewCursor--> Cursor --Step(now, Tick | Completed)--> send request r, intended at t
//
// Open-loop requests are due at their At, whatever happens to the others. A closed-loop request is due Think after the ending of
// the one before it in its loop. Tenants share nothing: no random stream, no limit, no pace.
package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

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
	Stop   time.Duration `json:"stopNs,omitempty"` // nothing is sent at or after it; 0: Plan.Duration
}

// end is the instant from which l sends nothing new.
func (p *Plan) end(l Loop) time.Duration {
	if l.Stop == 0 {
		return p.Duration
	}
	return l.Stop
}

// Hash names the plan: the hex SHA-256 of its JSON, whose fields have a fixed order.
func (p Plan) Hash() string {
	h := sha256.New()
	// A hash never fails to write and a Plan holds nothing that JSON cannot express, so there is no error to return.
	if err := json.NewEncoder(h).Encode(p); err != nil {
		panic(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Validate reports everything that would make the plan ambiguous to play: repeated or empty ids, a bad loop index, disorder.
func (p Plan) Validate() error {
	var errs []error
	seen := make(map[string]bool, len(p.Requests))
	for i := range p.Requests {
		r := &p.Requests[i]
		switch {
		case r.ID == "":
			errs = append(errs, fmt.Errorf("plan %q: request %d has no id", p.Name, i))
		case seen[r.ID]:
			errs = append(errs, fmt.Errorf("plan %q: id %q is used twice", p.Name, r.ID))
		case r.Loop < 0 || r.Loop > len(p.Loops):
			errs = append(errs, fmt.Errorf("plan %q: request %q is of loop %d, there are %d", p.Name, r.ID, r.Loop, len(p.Loops)))
		case r.At < 0:
			errs = append(errs, fmt.Errorf("plan %q: request %q is due at %v", p.Name, r.ID, r.At))
		case i > 0 && byTime(&p.Requests[i-1], r) > 0:
			errs = append(errs, fmt.Errorf("plan %q: request %q comes after %q but is due before it: sort by at, then id", p.Name, r.ID, p.Requests[i-1].ID))
		}
		seen[r.ID] = true
	}
	return errors.Join(errs...)
}

// byTime is the order of a plan.
func byTime(a, b *Request) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.ID, b.ID))
}
