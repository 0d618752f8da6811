package report

import (
	"html/template"
	"strconv"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/verdict"
)

// rowsLimit bounds the exchange table of one scenario.
const rowsLimit = 200

// badge is a verdict as the page shows it: word, sign and style class.
type badge struct{ Word, Sign, Class string }

func newBadge(k verdict.Kind) badge { return badge{k.String(), glyph(k), "v-" + k.String()} }

// scenarioView is the evidence of one scenario.
type scenarioView struct {
	Anchor, Name, Title, Level string
	Badge                      badge
	NotPlayed                  string
	Summary                    string
	Figures                    []figureView
	Rows                       []rowView
	LeftOut                    int
	Steps                      []stepView
	Processes                  []evidence.Process
}

type figureView struct {
	Title string
	SVG   template.HTML
}

// rowView is one line of the exchange table.
type rowView struct {
	ID, Tenant, Objective, Intended, Sent, Status, Reason, Outcome, Endpoint, Arrival, End, Waited string
	Witness                                                                                        bool
}

type stepView struct {
	Index                        int
	Op, Mark, Start, End, Detail string
	OK                           bool
}

func newScenarioView(in Input, i int, e evidence.ScenarioEntry) scenarioView {
	v := scenarioView{Anchor: scenarioAnchor(i), Name: e.Name, Title: e.Title, Level: e.Level}
	kinds, witnesses := scenarioVerdicts(in, e.Name)
	k := verdict.Worst(kinds...)
	switch {
	case e.Error != "":
		v.NotPlayed = "The harness or the system broke: " + e.Error
		k = max(k, verdict.Error)
	case e.NotApplicable != "":
		v.NotPlayed = "Not applicable: " + e.NotApplicable
		if len(kinds) == 0 {
			k = verdict.NotApplicable
		}
	}
	v.Badge = newBadge(k)
	run := in.run(e.Name)
	if run == nil || len(run.Clients)+len(run.Backends)+len(run.Steps)+len(run.Processes) == 0 {
		if v.NotPlayed == "" {
			v.NotPlayed = "No record: the scenario was not played, or nothing of it was seen."
		}
		return v
	}
	v.Summary = plural(len(run.Clients), "request") + ", " + plural(len(arrived(run)), "arrival") + " at model servers, " +
		plural(len(run.Steps), "step") + ", " + fixed(float64(e.DurationNs)/1e6, 1) + " ms"
	v.Figures = figures(run, witnesses)
	v.Rows, v.LeftOut = rows(run, witnesses)
	for _, st := range run.Steps {
		v.Steps = append(v.Steps, stepView{st.Index, st.Op, st.Mark, ms(st.Start), ms(st.End), clip(st.Detail, 300), st.OK})
	}
	v.Processes = run.Processes
	return v
}

func scenarioAnchor(i int) string { return "sc-" + strconv.Itoa(i) }

// scenarioVerdicts collects what was judged from a scenario, and the witnesses of whatever did not pass.
func scenarioVerdicts(in Input, name string) (kinds []verdict.Kind, witnesses map[string]bool) {
	witnesses = map[string]bool{}
	for _, r := range in.Results {
		for _, v := range r.Verdicts {
			if v.Scenario != name {
				continue
			}
			kinds = append(kinds, v.Kind)
			if settled(v.Kind) {
				continue
			}
			for _, id := range v.Witnesses {
				witnesses[id] = true
			}
		}
	}
	return kinds, witnesses
}

// figures chooses the figures that fit the size of a run.
func figures(run *evidence.Run, witnesses map[string]bool) []figureView {
	col := newColouring(run)
	var out []figureView
	switch {
	case len(run.Clients) > lanesLimit:
		out = append(out,
			figureView{"Offered, completed and refused per " + col.by, loadPanels(run, col)},
			figureView{"Served share per " + col.by, servedShare(run, col)})
	case len(run.Clients) > 0:
		out = append(out, figureView{"Timeline", timeline(run, col, witnesses)})
	}
	if len(arrived(run)) > 1 {
		out = append(out, figureView{"Dispatch order", dispatchOrder(run, col, witnesses)})
	}
	return out
}

// rows is the exchange table. Beyond the limit witnesses stay, and the earliest of the others fill the rest.
func rows(run *evidence.Run, witnesses map[string]bool) (out []rowView, leftOut int) {
	first := map[string]evidence.Backend{}
	for _, b := range run.Backends {
		if _, ok := first[b.ID]; !ok {
			first[b.ID] = b
		}
	}
	others := rowsLimit
	for _, c := range run.Clients {
		if witnesses[c.ID] {
			others--
		}
	}
	others = max(others, 0)
	for _, c := range run.Clients {
		w := witnesses[c.ID]
		if len(out) == rowsLimit || !w && others == 0 {
			leftOut++
			continue
		}
		if !w {
			others--
		}
		b, ok := first[c.ID]
		out = append(out, newRow(c, b, ok, w))
	}
	return out, leftOut
}

func newRow(c evidence.Client, b evidence.Backend, arrived, witness bool) rowView {
	r := rowView{ID: c.ID, Tenant: c.Tenant, Objective: c.Objective, Intended: ms(c.Intended), Sent: ms(c.Sent), Status: "–",
		Reason: c.Reason, Outcome: c.Outcome, Endpoint: c.Endpoint, Arrival: "–", End: ms(c.End), Waited: "–", Witness: witness}
	if c.Status != 0 {
		r.Status = strconv.Itoa(c.Status)
	}
	until := c.End
	if arrived {
		until = b.Arrival
		r.Arrival = ms(b.Arrival)
		if r.Endpoint == "" {
			r.Endpoint = b.Endpoint
		}
	}
	if c.Sent != evidence.Never && until != evidence.Never {
		r.Waited = ms(until - c.Sent)
	}
	return r
}

// ms is an instant or a span in milliseconds; a dash if it did not come.
func ms(ns int64) string {
	if ns == evidence.Never {
		return "–"
	}
	return fixed(float64(ns)/1e6, 3)
}
