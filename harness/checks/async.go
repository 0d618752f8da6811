package checks

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// Async are the parameters of the checks about Async Processors. Ids that end with an asterisk are prefixes; no ids means all. A window
// begins at the end of step From ("": with the scenario) and ends at the end of step To ("": with the scenario).
type Async struct {
	IDs      []string `json:"ids,omitempty"`
	Upstream string   `json:"upstream,omitempty"`
	From     string   `json:"from,omitempty"`
	To       string   `json:"to,omitempty"`
	Min      int      `json:"min,omitempty"`
	Max      int      `json:"max,omitempty"` // -1: no bound
	Each     bool     `json:"each,omitempty"`
	First    bool     `json:"first,omitempty"` // only first attempts count
	Skip     int      `json:"skip,omitempty"`  // arrivals that were pulled before there was a choice
	Order    []string `json:"order,omitempty"`
	// Groups are sets of ids.
	Groups    [][]string `json:"groups,omitempty"`
	Alternate bool       `json:"alternate,omitempty"`

	Status int               `json:"status,omitempty"`
	Codes  []string          `json:"codes,omitempty"` // error codes of which each result must have one; "" is none
	List   string            `json:"list,omitempty"`
	Texts  map[string]string `json:"texts,omitempty"`
	Shape  string            `json:"shape,omitempty"` // "http" or "error"

	Attempts []AttemptWant     `json:"attempts,omitempty"`
	Bounds   []time.Duration   `json:"boundsNs,omitempty"` // earliest and latest of the first gap, of the second, ...
	Values   []ValueWant       `json:"values,omitempty"`
	Cases    map[string]string `json:"cases,omitempty"` // start that must be refused -> text that it must print
	Valid    []string          `json:"valid,omitempty"` // starts that must succeed
	Keys     []KeyWant         `json:"keys,omitempty"`

	Event    string        `json:"event,omitempty"`  // "arrival", "attempt-end", "result", "exit"
	Anchor   string        `json:"anchor,omitempty"` // mark, or "deadline"
	Earliest time.Duration `json:"earliestNs,omitempty"`
	Latest   time.Duration `json:"latestNs,omitempty"`

	Gap      time.Duration `json:"gapNs,omitempty"`
	Clusters int           `json:"clusters,omitempty"`
	Low      float64       `json:"low,omitempty"`
	High     float64       `json:"high,omitempty"`

	Contains []string          `json:"contains,omitempty"`
	Equal    string            `json:"equal,omitempty"`
	Details  map[string]string `json:"details,omitempty"` // mark -> beginning of what the step noted
	Spans    []SpanWant        `json:"spans,omitempty"`
	Names    []string          `json:"names,omitempty"`
	Labels   []string          `json:"labels,omitempty"`
}

// AttemptWant is what an attempt must have. Name is a header in lower case, or :path, :method, :upstream, :host, :body (its bytes), :json
// (its value), :form (a field after a dot: :form.url), :peer, or :with (the names of headers that hold the text after the dot: :with.secret).
type AttemptWant struct {
	ID     string   `json:"id"`
	Nth    int      `json:"nth,omitempty"` // 0: every attempt
	Name   string   `json:"name"`
	Or     []string `json:"or,omitempty"` // further names of which exactly one must have it
	Value  string   `json:"value,omitempty"`
	Absent bool     `json:"absent,omitempty"`
	Some   bool     `json:"some,omitempty"` // any value, beginning with Value
}

// ValueWant is what a metric must show at a mark, or by how much it must have grown since another.
type ValueWant struct {
	Mark   string            `json:"mark"`
	Since  string            `json:"since,omitempty"`
	Who    string            `json:"who,omitempty"` // "": p
	Name   string            `json:"name"`          // without prefix
	Labels map[string]string `json:"labels,omitempty"`
	Min    float64           `json:"min"`
	Max    float64           `json:"max"`
	Absent bool              `json:"absent,omitempty"`
}

// KeyWant is what the broker must have under some keys together, at a mark.
type KeyWant struct {
	Mark   string        `json:"mark"`
	Keys   []string      `json:"keys"`
	Min    int64         `json:"min"`
	Max    int64         `json:"max"`
	TTLMin time.Duration `json:"ttlMinNs,omitempty"`
	TTLMax time.Duration `json:"ttlMaxNs,omitempty"`
	NoTTL  bool          `json:"noTtl,omitempty"`
	Value  string        `json:"value,omitempty"`
}

// SpanWant is a span that must have been exported.
type SpanWant struct {
	Name    string            `json:"name"`
	Attrs   map[string]string `json:"attrs,omitempty"`
	Parent  string            `json:"parent,omitempty"` // name of the parent span
	Trace   string            `json:"trace,omitempty"`
	Service string            `json:"service,omitempty"`
	Linked  bool              `json:"linked,omitempty"`
	Min     int               `json:"min"`
	Max     int               `json:"max"` // -1: no bound
}

// asyncLibrary has every check about processors by its name.
var asyncLibrary = map[string]func(Async, *evidence.Run) finding{
	"async-arrivals":  asyncArrivals,
	"async-order":     asyncOrder,
	"async-peak":      asyncPeak,
	"async-results":   asyncResults,
	"async-attempts":  asyncAttempts,
	"async-gaps":      asyncGaps,
	"async-values":    asyncValues,
	"async-labels":    asyncLabels,
	"async-starts":    asyncStarts,
	"async-keys":      asyncKeys,
	"async-conserved": asyncConserved,
	"async-timing":    asyncTiming,
	"async-polls":     asyncPolls,
	"async-rate":      asyncRate,
	"async-share":     asyncShare,
	"async-queries":   asyncQueries,
	"async-details":   asyncDetails,
	"async-spans":     asyncSpans,
	"async-fields":    asyncFields,
	"async-spread":    asyncSpread,
	"async-accounts":  asyncAccounts,
	"async-residence": asyncResidence,
	"async-answers":   asyncAnswers,
	"async-served":    asyncServed,
	"async-depth":     asyncDepth,
	"async-exits":     asyncExits,
	"async-rounds":    asyncRounds,
	"async-ratio":     asyncRatio,
	"async-printed":   asyncPrinted,
	"async-growth":    asyncGrowth,
	"async-stays":     asyncStays,
	"async-unready":   asyncUnready,
	"async-window":    asyncWindow,

	"async-refused-or-served": asyncRefusedOrServed,
}

// asyncCheck judges one of them.
func asyncCheck(s Spec, r *evidence.Run, f func(Async, *evidence.Run) finding) finding {
	switch {
	case s.Async == nil:
		return notEngaged("the check has no parameters")
	case len(r.Steps) == 0:
		return notEngaged("nothing was done")
	}
	if why := blurred(r); why != "" {
		return notEngaged(why)
	}
	return unhinged(*s.Async, r, f(*s.Async, r))
}

// asyncSpan is the window of a check; why says what is missing.
func asyncSpan(a Async, r *evidence.Run) (from, to int64, why string) {
	to = math.MaxInt64
	if a.From != "" {
		m, ok := r.StepByMark(a.From)
		if !ok {
			return 0, 0, "step " + a.From + " was not reached"
		}
		from = m.End
	}
	if a.To != "" {
		m, ok := r.StepByMark(a.To)
		if !ok {
			return 0, 0, "step " + a.To + " was not reached"
		}
		to = m.End
	}
	switch {
	case to <= from:
		return 0, 0, fmt.Sprintf("no time passed from %q to %q", a.From, a.To)
	case a.From != "" && r.Steps[len(r.Steps)-1].End <= from:
		return 0, 0, "nothing was done after step " + a.From
	}
	return from, to, ""
}

// attempt is one attempt with its arrival.
type attempt struct {
	at int64
	*evidence.Attempt
}

// attempts lists those of a check's ids and upstream inside a window, by arrival.
func (a Async) attempts(r *evidence.Run, from, to int64) []attempt {
	var out []attempt
	for _, o := range r.Observations {
		if x := o.Attempt; x != nil && o.At >= from && o.At <= to && evidence.Among(a.IDs, x.ID) && (a.Upstream == "" || a.Upstream == x.Upstream) && (!a.First || x.Nth == 1) {
			out = append(out, attempt{o.At, x})
		}
	}
	slices.SortStableFunc(out, func(x, y attempt) int { return cmp.Compare(x.at, y.at) })
	return out
}

// result is one record of a result list with the instant at which it was taken.
type result struct {
	at int64
	*evidence.FinalResult
}

func (a Async) results(r *evidence.Run) map[string][]result {
	out := map[string][]result{}
	for _, o := range r.Observations {
		if x := o.Result; x != nil && evidence.Among(a.IDs, x.ID) {
			out[x.ID] = append(out[x.ID], result{o.At, x})
		}
	}
	return out
}

// bounded words a range.
func bounded(low, high int) string {
	switch {
	case high < 0:
		return fmt.Sprintf("at least %d", low)
	case low == high:
		return fmt.Sprintf("%d", low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}

func within(n, low, high int) bool { return n >= low && (high < 0 || n <= high) }
