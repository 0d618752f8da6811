package report

import (
	"encoding/json"
	"fmt"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/verdict"
)

// hostile is what somebody might put on the wire to break a report: markup, a fence, a terminal escape, a reversal, bad UTF-8.
const hostile = `</script></svg><script>alert(1)</script>"'|` + "`` ``` [x](http://evil.example/) ]]>\x1b[31m\u202edne\xff\x00" + `<img src=x onerror=alert(2)>`

const (
	msec = int64(1e6)
	none = evidence.Never
)

// sample is a run with every kind of verdict, scenario and ending.
func sample() Input {
	m := evidence.Manifest{
		Schema: evidence.Schema, RunID: "run-0042", Tool: "v0.1.0", Commit: "0123abc", Argv: []string{"weir", "certify"}, Seed: 42,
		Profile: "epp-0.10", Level: "extended", Environment: "virtual", Clock: "virtual", Complete: true,
		Implementation: evidence.Implementation{Organization: "example", Project: "router", Version: "v1.2.3",
			URL: "https://router.example/", Contact: []string{"@someone"}, Features: []string{"hold", "restart"}},
		Scenarios: []evidence.ScenarioEntry{
			{Name: "priority-order", Title: "A high band overtakes a queued low band", Level: "core", DurationNs: 90 * msec,
				Requirements: []string{"FC-PRI-01", "FC-REF-01"}, Checks: []evidence.CheckEntry{{Check: "dispatch-order",
					Requirement: "FC-PRI-01", Params: json.RawMessage(`{"order":"priority"}`)}}},
			{Name: "shares", Title: "Two tenants with equal backlog get equal shares", Level: "extended", DurationNs: 12000 * msec,
				Requirements: []string{"FC-FAIR-01"}},
			{Name: "bad-config", Title: "An unknown field is refused at start", Level: "core", DurationNs: 5 * msec},
			{Name: "stages", Title: "Prefill saturation gates alone", Level: "experimental", NotApplicable: "feature stages is not declared"},
			{Name: "scale", Title: "Endpoints leave under load", Level: "core", Error: "start: exit status 1: " + hostile},
		},
	}
	runs := []evidence.Run{priorityRun(), shareRun(), {Scenario: "bad-config", Processes: []evidence.Process{
		{Scenario: "bad-config", Case: "unknown-field", Started: true, ExitCode: 0, Text: "ready\n\n" + hostile, Duration: msec}}},
		{Scenario: "stages"}, {Scenario: "scale"}}
	reqs := []verdict.Requirement{
		{ID: "FC-PRI-01", Level: "core", Title: "A queued request of a higher band is dispatched before any of a lower band."},
		{ID: "FC-REF-01", Level: "core", Title: "A refusal names its reason in the response header."},
		{ID: "FC-CFG-04", Level: "core", Title: "An unknown field in the configuration is refused."},
		{ID: "FC-SCALE-02", Level: "core", Title: "No request is lost when an endpoint leaves."},
		{ID: "FC-FAIR-01", Level: "extended", Title: "Backlogged tenants of one band get equal shares."},
		{ID: "FC-PD-01", Level: "experimental", Title: "Stages saturate apart."},
		{ID: "FC-MET-01", Level: "extended", Title: "Nothing looked at this one."},
	}
	rs := verdict.Summarize(reqs, sampleVerdicts())
	return Input{Bundle: evidence.InMemory(m, runs), Results: rs, Overall: verdict.Overall(rs, "core", "extended"),
		Command: "weir certify --env virtual --seed 42 --filter " + hostile, Mutants: 24, MutantsKilled: 24}
}

func sampleVerdicts() []verdict.Verdict {
	return []verdict.Verdict{
		{Requirement: "FC-PRI-01", Scenario: "priority-order", Check: "dispatch-order", Kind: verdict.Fail, Figure: "1 inversion in 8 dispatches",
			Why: "q03 (low) was dispatched while q07 (high) was queued " + hostile, Engaged: "8 requests were queued at once",
			Witnesses: []string{"q03", "q07"}},
		{Requirement: "FC-REF-01", Scenario: "priority-order", Check: "refusal-reason", Kind: verdict.Pass, Figure: "1 of 1 refusals"},
		{Requirement: "FC-CFG-04", Scenario: "bad-config", Check: "start-refused", Kind: verdict.Fail, Figure: "started",
			Why: "expected the start to fail, it became ready", Witnesses: []string{"unknown-field"}},
		{Requirement: "FC-SCALE-02", Scenario: "scale", Check: "conservation", Kind: verdict.Error, Figure: "not played", Why: "the system did not come up"},
		{Requirement: "FC-FAIR-01", Scenario: "shares", Check: "share", Kind: verdict.Inconclusive, Figure: "gold 0.66 [0.58, 0.71]",
			Why: "the interval crosses the margin; 400 more slots would decide", Engaged: "both tenants were backlogged"},
		{Requirement: "FC-FAIR-01", Scenario: "priority-order", Check: "share", Kind: verdict.NotApplicable, Figure: "one tenant"},
		{Requirement: "FC-PD-01", Scenario: "stages", Check: "gate", Kind: verdict.NotApplicable, Figure: "feature stages", Why: "not declared"},
	}
}

// priorityRun has two plugs that run at once, eight queued requests of two bands with one inversion, and every ending.
func priorityRun() evidence.Run {
	r := evidence.Run{Scenario: "priority-order"}
	send := func(id, objective string, sent, arrival, end int64, outcome string, status int, reason string) {
		c := evidence.Client{Scenario: r.Scenario, ID: id, Tenant: "acme", Objective: objective, Intended: sent, Sent: sent, Headers: end,
			FirstToken: none, LastToken: none, End: end, Outcome: outcome, Status: status, Reason: reason}
		if arrival != none {
			b := evidence.Backend{Scenario: r.Scenario, ID: id, Endpoint: "ep-" + fmt.Sprint(len(r.Backends)%2), Arrival: arrival,
				Released: end, FirstToken: arrival + (end-arrival)/3, End: end, Ending: evidence.Finished, Held: true}
			if end == none {
				b.FirstToken, b.Ending = none, evidence.Running
			}
			c.Endpoint = b.Endpoint
			r.Backends = append(r.Backends, b)
		}
		r.Clients = append(r.Clients, c)
	}
	send("plug-1", "low", 0, 2*msec, 30*msec, evidence.Completed, 200, "")
	send("plug-2", "low", 1*msec, 3*msec, 36*msec, evidence.Completed, 200, "")
	for i := int64(0); i < 4; i++ {
		at := 36*msec + 12*msec*i
		if i == 0 {
			at = 31 * msec // the inversion: dispatched before any high request
		}
		send(fmt.Sprintf("q%02d", i+3), "low", (5+i)*msec, at, at+9*msec, evidence.Completed, 200, "")
	}
	for i := int64(0); i < 4; i++ {
		at := 36*msec + 9*msec*i
		send(fmt.Sprintf("q%02d", i+7), "high", (12+i)*msec, at, at+8*msec, evidence.Completed, 200, "")
	}
	send("refused-1", "low", 18*msec, none, 19*msec, evidence.Refused, 429, "rejected-saturated")
	send("left-1", "high", 20*msec, none, 52*msec, evidence.ClientCancelled, 0, "")
	send("reset-1", "high", 21*msec, 40*msec, 58*msec, evidence.TransportError, 0, "")
	send("hang-1", "low", 22*msec, 60*msec, none, evidence.Unfinished, 0, "")
	send(hostile, hostile, 24*msec, none, 26*msec, evidence.Refused, 503, hostile)
	for i, s := range []evidence.Step{
		{Op: "plug", Mark: "plugs", Start: 0, End: 3 * msec, OK: true},
		{Op: "queue", Mark: "low-queued", Start: 5 * msec, End: 9 * msec, OK: true},
		{Op: "queue", Mark: "high-queued", Start: 12 * msec, End: 16 * msec, OK: true},
		{Op: "step", Start: 30 * msec, End: 31 * msec, OK: true},
		{Op: "drain", Mark: "drain", Start: 36 * msec, End: 90 * msec, OK: false, Detail: "hang-1 did not end " + hostile},
	} {
		s.Index, s.Scenario = i, r.Scenario
		r.Steps = append(r.Steps, s)
	}
	r.Sort()
	return r
}

// shareRun has 360 requests of two tenants, so that sums are drawn instead of lanes.
func shareRun() evidence.Run {
	r := evidence.Run{Scenario: "shares"}
	for i := int64(0); i < 360; i++ {
		tenant, served := "gold", i%3 != 2
		if i%2 == 1 {
			tenant, served = "silver", i%6 == 1
		}
		sent := i * 30 * msec
		c := evidence.Client{Scenario: r.Scenario, ID: fmt.Sprintf("r%03d", i), Tenant: tenant, Intended: sent, Sent: sent + msec/4,
			Behind: msec / 4, Headers: none, FirstToken: none, LastToken: none, End: sent + 2*msec, Outcome: evidence.Refused, Status: 429,
			Reason: "rejected-saturated"}
		if served {
			c.End, c.Outcome, c.Status, c.Reason = sent+(400+i)*msec, evidence.Completed, 200, ""
			r.Backends = append(r.Backends, evidence.Backend{Scenario: r.Scenario, ID: c.ID, Endpoint: "ep-0", Arrival: sent + 100*msec,
				FirstToken: sent + 200*msec, End: c.End, Ending: evidence.Finished})
		}
		r.Clients = append(r.Clients, c)
	}
	r.Sort()
	return r
}
