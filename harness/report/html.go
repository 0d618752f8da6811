package report

import (
	"bytes"
	_ "embed" // the page's template, style sheet and script
	"encoding/json"
	"html/template"
	"io"
	"strings"

	"github.com/llm-weir/weir/harness/verdict"
)

var (
	//go:embed page/page.html
	pageTemplate string
	//go:embed page/page.css
	pageStyle string
	//go:embed page/page.js
	pageScript string
)

type pageView struct {
	Style        template.CSS
	Script       template.JS
	Headline     string
	Badge        badge
	Incomplete   bool
	Facts        []fact
	Counts       []countView
	Levels       []string
	Requirements []requirementView
	Scenarios    []scenarioView
	Command      string
}

type countView struct {
	Badge   badge
	N       int
	Percent string // of all results, for the bar
}

type requirementView struct {
	ID, Level, Figure, Title, Why, Search string
	Badge                                 badge
	Verdicts                              []verdictView
	Paths                                 []string
}

type verdictView struct {
	Badge                                     badge
	Scenario, ScenarioTitle, Check, Params    string
	Figure, Why, Engaged, Anchor, WitnessList string
	Witnesses                                 []string
}

// HTML writes report.html: one page with style, script and figures inside, which asks the network for nothing.
func HTML(w io.Writer, in Input) error {
	t, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	if err := t.Execute(&buf, newPage(in)); err != nil {
		return err
	}
	_, err = io.WriteString(w, clean(buf.String(), true))
	return err
}

func newPage(in Input) pageView {
	p := pageView{Style: template.CSS(pageStyle), Script: template.JS(pageScript), Headline: in.headline(),
		Badge: newBadge(in.Verdict()), Incomplete: !in.manifest().Complete, Facts: facts(in), Command: in.Command}
	n := verdict.Counts(in.Results)
	for _, k := range ranked() {
		c := countView{Badge: newBadge(k), N: n[k], Percent: "0"}
		if len(in.Results) > 0 {
			c.Percent = fixed(100*float64(n[k])/float64(len(in.Results)), 2)
		}
		p.Counts = append(p.Counts, c)
	}
	for _, l := range levels(in) {
		p.Levels = append(p.Levels, l.Name)
	}
	anchors := map[string]string{}
	for i, e := range in.manifest().Scenarios {
		anchors[e.Name] = scenarioAnchor(i)
		p.Scenarios = append(p.Scenarios, newScenarioView(in, i, e))
	}
	for _, r := range in.Results {
		p.Requirements = append(p.Requirements, newRequirementView(in, r, anchors))
	}
	return p
}

func newRequirementView(in Input, r verdict.Result, anchors map[string]string) requirementView {
	v := requirementView{ID: r.ID, Level: r.Level, Figure: r.Figure, Title: r.Title, Badge: newBadge(r.Kind),
		Paths: evidencePaths(in, r)}
	search := []string{r.ID, r.Title, r.Figure, r.Why}
	for _, d := range r.Verdicts {
		search = append(search, d.Scenario, d.Check)
		v.Verdicts = append(v.Verdicts, newVerdictView(in, d, anchors))
	}
	if len(r.Verdicts) == 0 {
		v.Why = r.Why
	}
	v.Search = strings.ToLower(strings.Join(search, " "))
	return v
}

func newVerdictView(in Input, d verdict.Verdict, anchors map[string]string) verdictView {
	v := verdictView{Badge: newBadge(d.Kind), Scenario: d.Scenario, Check: d.Check, Figure: d.Figure, Why: d.Why, Engaged: d.Engaged,
		Anchor: anchors[d.Scenario], Witnesses: d.Witnesses[:min(len(d.Witnesses), rowsLimit)]}
	e, _ := in.scenario(d.Scenario)
	v.ScenarioTitle = e.Title
	for _, c := range append(e.Checks, in.manifest().RunChecks...) {
		if c.Check == d.Check && c.Requirement == d.Requirement {
			v.Params = string(c.Params)
		}
	}
	if v.Params == "null" || v.Params == "{}" {
		v.Params = ""
	}
	// A JSON list in an attribute, because a witness may contain any separator.
	list, err := json.Marshal(append([]string{}, v.Witnesses...))
	if err == nil {
		v.WitnessList = string(list)
	}
	return v
}
