package report

import (
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/verdict"
)

// maxPaths bounds the evidence list of one requirement; the bundle has the rest.
const maxPaths = 12

// evidencePaths names the records on which a result rests, as file#scenario/id: the witnesses of the verdicts that have the
// result's kind, or whole scenarios where a verdict names none.
func evidencePaths(in Input, r verdict.Result) []string {
	out, seen := []string{}, map[string]bool{}
	for _, v := range r.Verdicts {
		if v.Kind != r.Kind {
			continue
		}
		for _, p := range verdictPaths(in.run(v.Scenario), v) {
			if !seen[p] && len(out) < maxPaths {
				seen[p] = true
				out = append(out, p)
			}
		}
	}
	return out
}

func verdictPaths(run *evidence.Run, v verdict.Verdict) []string {
	if run == nil {
		return nil
	}
	var out []string
	for _, id := range v.Witnesses[:min(len(v.Witnesses), maxPaths)] {
		out = append(out, recordPaths(run, id)...)
	}
	if len(out) > 0 {
		return out
	}
	for _, f := range []struct {
		name    string
		records int
	}{
		{evidence.ClientFile, len(run.Clients)}, {evidence.BackendFile, len(run.Backends)}, {evidence.SamplesFile, len(run.Samples)},
		{evidence.ProcessFile, len(run.Processes)},
	} {
		if f.records > 0 {
			out = append(out, f.name+"#"+run.Scenario)
		}
	}
	return out
}

// recordPaths finds the files in which a record of that id lies.
func recordPaths(run *evidence.Run, id string) []string {
	var out []string
	at := "#" + run.Scenario + "/" + id
	if _, ok := run.ClientByID(id); ok {
		out = append(out, evidence.ClientFile+at)
	}
	if _, ok := run.BackendByID(id); ok {
		out = append(out, evidence.BackendFile+at)
	}
	if _, ok := run.StepByMark(id); ok && len(out) == 0 {
		out = append(out, evidence.StepsFile+at)
	}
	for _, p := range run.Processes {
		if p.Case == id {
			out = append(out, evidence.ProcessFile+at)
			break
		}
	}
	return out
}
