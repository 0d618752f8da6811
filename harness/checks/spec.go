// Package checks is the library of checks: pure functions from evidence to verdicts.
//
//	Spec (name, requirement, parameters fixed before the run) + evidence.Run --> verdict.Verdict
//
// Every check first asks whether its mechanism was engaged at all (a queue formed, the gate was closed, values were scraped); if not
// the verdict is inconclusive and names what did not engage. A check never looks at the router's own word where clients and model
// servers can tell.
package checks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/verdict"
)

// Spec is one check with its parameters. One struct serves all checks; each check documents what it reads.
type Spec struct {
	Check       string `json:"-"`
	Requirement string `json:"-"`

	Groups   [][]string        `json:"groups,omitempty"`   // sets of ids that must arrive one set after the other
	IDs      []string          `json:"ids,omitempty"`      // the requests judged
	Waiting  []string          `json:"waiting,omitempty"`  // requests that must be pending and unseen at the decisive instant
	Streamed []string          `json:"streamed,omitempty"` // streams of which the client must have seen a token before it left
	Then     []string          `json:"then,omitempty"`     // requests that must be served afterwards
	Mark     string            `json:"mark,omitempty"`     // step whose end (or span) is the decisive instant
	After    string            `json:"after,omitempty"`    // step at whose start the clock of Within starts
	Count    int               `json:"count,omitempty"`    // requests in flight
	Slack    int               `json:"slack,omitempty"`    // further victims that the profile allows
	Counts   map[string]int    `json:"counts,omitempty"`   // requests in flight per endpoint
	Status   int               `json:"status,omitempty"`   // expected status
	Reason   string            `json:"reason,omitempty"`   // expected dropped reason; "" is not judged
	Reasons  []string          `json:"reasons,omitempty"`  // the profile's list of reasons
	Min      time.Duration     `json:"minNs,omitempty"`    // earliest end after sending
	Max      time.Duration     `json:"maxNs,omitempty"`    // latest end after sending, or after After
	Within   time.Duration     `json:"withinNs,omitempty"` // latest arrival
	Open     []string          `json:"open,omitempty"`     // probes that must pass the gate
	Closed   []string          `json:"closed,omitempty"`   // probes that must not
	Endpoint map[string]string `json:"endpoint,omitempty"` // request id -> endpoint that must serve it
	Hashes   map[string]string `json:"hashes,omitempty"`   // request id -> hash of the JSON value sent
	Mode     string            `json:"mode,omitempty"`
	Names    []string          `json:"names,omitempty"`  // metric names, each of which must show the series
	Series   []Series          `json:"series,omitempty"` // expected series
	Before   string            `json:"before,omitempty"` // earlier sample step, where a difference is judged
	Zero     string            `json:"zero,omitempty"`   // sample mark at which all of it must be 0
	Cases    map[string]string `json:"cases,omitempty"`  // start-up case -> text that its refusal must contain
	Valid    string            `json:"valid,omitempty"`  // start-up case that must come up
	// Engaged lists marks of steps whose barriers must have been reached, or nothing can be said.
	Engaged []string `json:"engaged,omitempty"`
	// Needed sizes a statistical check, fixed beforehand.
	Needed    int                `json:"needed,omitempty"`
	Kinds     int                `json:"kinds,omitempty"`
	Shares    map[string]float64 `json:"shares,omitempty"` // tenant -> entitled share
	Margin    float64            `json:"margin,omitempty"`
	Malformed []string           `json:"malformed,omitempty"` // scenarios that send malformed requests
	Unnamed   []string           `json:"unnamed,omitempty"`   // scenarios whose refusals after dispatch name no reason under this contract
	Cut       []string           `json:"cut,omitempty"`       // scenarios that let running streams be evicted, which another check counts
	Statuses  []int              `json:"statuses,omitempty"`  // declared refusal statuses
	Deadlined []string           `json:"deadlined,omitempty"` // scenarios whose streams have deadlines of their own: the data plane answers 504
	// RequestIDs are request id -> x-request-id as sent; States are step mark -> answer of the health service.
	RequestIDs map[string]string `json:"requestIds,omitempty"`
	States     map[string]string `json:"states,omitempty"`
	Tokens     int               `json:"tokens,omitempty"`   // completion tokens that each must get
	Families   []Family          `json:"families,omitempty"` // metric families of a contract
	Bench      *Bench            `json:"bench,omitempty"`    // what only benchmarks have
	Async      *Async            `json:"async,omitempty"`    // what only checks about processors have
}

// Series is one expected series: a subset of its labels, and its value.
type Series struct {
	Labels map[string]string `json:"labels"`
	Value  float64           `json:"value"`
}

// Entry writes the check down for the manifest.
func (s Spec) Entry() evidence.CheckEntry {
	b, err := json.Marshal(s)
	if err != nil {
		// Spec holds only strings, numbers and maps of them: a failure here is a programming error.
		panic(fmt.Sprintf("check %s of %s: %v", s.Check, s.Requirement, err))
	}
	return evidence.CheckEntry{Check: s.Check, Requirement: s.Requirement, Params: b}
}

// FromEntry reads a check back.
func FromEntry(e evidence.CheckEntry) (Spec, error) {
	s := Spec{Check: e.Check, Requirement: e.Requirement}
	// A parameter that this version does not know would be a condition that it does not check.
	dec := json.NewDecoder(bytes.NewReader(e.Params))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return s, fmt.Errorf("check %s of %s: %w", e.Check, e.Requirement, err)
	}
	return s, nil
}

// finding is what a check function returns; Judge dresses it as a Verdict.
type finding struct {
	kind      verdict.Kind
	figure    string
	why       string
	engaged   string
	witnesses []string
}

func pass(figure, engaged string, witnesses ...string) finding {
	return finding{kind: verdict.Pass, figure: figure, engaged: engaged, witnesses: witnesses}
}

func fail(figure, why string, witnesses ...string) finding {
	return finding{kind: verdict.Fail, figure: figure, why: why, witnesses: witnesses}
}

// notEngaged is the gate of every check: the mechanism did not come into play, so nothing was shown.
func notEngaged(what string, witnesses ...string) finding {
	return finding{kind: verdict.Inconclusive, figure: "not engaged", why: "not engaged: " + what, engaged: what, witnesses: witnesses}
}

// Judge runs one check on the evidence of one scenario.
func Judge(s Spec, r evidence.Run) verdict.Verdict {
	f := judge(s, &r)
	return verdict.Verdict{Requirement: s.Requirement, Scenario: r.Scenario, Check: s.Check, Kind: f.kind, Figure: f.figure,
		Why: f.why, Engaged: f.engaged, Witnesses: f.witnesses}
}

// Names lists the checks of one scenario.
func Names() []string { return append(sortedKeys(asyncLibrary), sortedKeys(library)...) }

// library has every check of one scenario by its name.
var library = map[string]func(Spec, *evidence.Run) finding{
	"order":           order,
	"waiting":         waiting,
	"in-flight":       inFlight,
	"arrives":         arrives,
	"refused":         refused,
	"reasons":         reasons,
	"completed":       completed,
	"aborted":         aborted,
	"together":        together,
	"undisturbed":     undisturbed,
	"evicted":         evicted,
	"never-served":    neverServed,
	"one-per-release": onePerRelease,
	"gate":            gate,
	"startup":         startup,
	"series":          series,
	"body":            body,
	"served-by":       servedBy,
	"share":           share,
	"peak":            peak,
	"waits":           waits,
	"twins":           twins,
	"outcome-counts":  outcomeCounts,
	"label-values":    labelValues,
	"gone":            gone,
	"unseen":          unseen,
	"spread":          spread,
	"prompt-stream":   promptStream,
	"either":          either,
	"stays":           stays,
	"upstream-error":  upstreamError,
	"once":            once, "destination": destination, "silent": silent, "request-ids": requestIDs, "answers": answers, "absent": absent, "families": families,
	"engine": engine, "prefix": prefix, "at-limit": atLimit, "state": state, "ends": ends,
	"same-interval": sameInterval, "shows-bands": showsBands, "gate-engaged": gateEngaged, "pressure": pressure,
	"busy": busy, "calm": calm, "overload": overload, "knee": knee, "settings-kept": settingsKept,
	"consolidation": consolidation, "token-pressure": tokenPressure, "demanded": demanded,
	"recovers": recovers, "tells": tells, "planned": planned,
	"four-figures": fourFigures, "honest-load": honestLoad, "eviction-recovery": evictionRecovery,
}

func judge(s Spec, r *evidence.Run) finding {
	for _, mark := range s.Engaged {
		steps := r.StepsByMark(mark)
		if len(steps) == 0 {
			return notEngaged("step " + mark + " was not played")
		}
		for _, st := range steps {
			if !st.OK {
				return notEngaged("step " + mark + ": " + st.Detail)
			}
		}
	}
	if f, ok := asyncLibrary[s.Check]; ok {
		return asyncCheck(s, r, f)
	}
	if f, ok := library[s.Check]; ok {
		return f(s, r)
	}
	return finding{kind: verdict.Error, figure: "unknown check", why: fmt.Sprintf("check %q is not in the library", s.Check)}
}
