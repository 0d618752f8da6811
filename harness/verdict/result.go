package verdict

import "sort"

// Requirement is one row of the catalogue as far as a report needs it.
type Requirement struct {
	ID    string `json:"id"`
	Level string `json:"level"` // core, extended, experimental, informative
	Title string `json:"title"` // the requirement in one sentence
}

// Result is what a run says about one requirement: the worst of its verdicts, and all of them.
type Result struct {
	Requirement
	Kind     Kind      `json:"verdict"`
	Figure   string    `json:"figure"`
	Why      string    `json:"why,omitempty"`
	Verdicts []Verdict `json:"verdicts"`
}

// Summarize groups verdicts by requirement, in the order of reqs. A requirement without any verdict is Inconclusive: nothing was
// seen of it.
func Summarize(reqs []Requirement, vs []Verdict) []Result {
	by := map[string][]Verdict{}
	for _, v := range vs {
		by[v.Requirement] = append(by[v.Requirement], v)
	}
	out := make([]Result, 0, len(reqs))
	for _, q := range reqs {
		r := Result{Requirement: q, Verdicts: by[q.ID]}
		kinds := make([]Kind, 0, len(r.Verdicts))
		for _, v := range r.Verdicts {
			kinds = append(kinds, v.Kind)
		}
		r.Kind = Worst(kinds...)
		r.Figure, r.Why = headline(r.Kind, r.Verdicts)
		out = append(out, r)
	}
	return out
}

// headline takes the figure and the reason from the first verdict that has the result's kind.
func headline(k Kind, vs []Verdict) (figure, why string) {
	if len(vs) == 0 {
		return "no evidence", "no scenario produced a verdict for this requirement"
	}
	for _, v := range vs {
		if v.Kind == k {
			return v.Figure, v.Why
		}
	}
	return "", ""
}

// Overall is the verdict of a run: the worst over the requirements of the given levels. Requirements that do not apply do not
// count; a run in which nothing applied is Inconclusive.
func Overall(rs []Result, levels ...string) Kind {
	var kinds []Kind
	for _, r := range rs {
		for _, l := range levels {
			if r.Level == l && r.Kind != NotApplicable {
				kinds = append(kinds, r.Kind)
			}
		}
	}
	return Worst(kinds...)
}

// Counts is the number of results of each kind, in the order of Kinds.
func Counts(rs []Result) map[Kind]int {
	m := map[Kind]int{}
	for _, r := range rs {
		m[r.Kind]++
	}
	return m
}

// IDs lists the ids of the results of kind k, sorted.
func IDs(rs []Result, k Kind) []string {
	var out []string
	for _, r := range rs {
		if r.Kind == k {
			out = append(out, r.ID)
		}
	}
	sort.Strings(out)
	return out
}
