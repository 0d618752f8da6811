package checks_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/llm-weir/weir/harness/checks"
)

func passingAsync() []trial {
	return slices.DeleteFunc(trials(), func(tr trial) bool { return tr.kind != "passing" || !strings.HasPrefix(tr.check, "async-") })
}

// What nobody saw, read or started shows nothing, but for checks that read nothing but what steps noted.
func TestAsyncChecksNeedEvidence(t *testing.T) {
	ofSteps := []string{"async-details", "async-rounds", "async-stays", "async-unready", "async-refused-or-served"}
	for _, tr := range passingAsync() {
		r := tr.hist.r
		r.Observations, r.Samples, r.Processes = nil, nil, nil
		if v := checks.Judge(specOf(tr), r); v.Kind == pass && !slices.Contains(ofSteps, tr.check) && tr.spec.Async.Event != "exit" {
			t.Errorf("%s, %s: it passes without evidence: %s", tr.check, tr.says, v.Figure)
		}
	}
}

// A check without parameters is one that somebody forgot to complete, but for those that say something of all results together.
func TestAsyncChecksNeedParameters(t *testing.T) {
	ofAll := []string{"async-results", "async-conserved", "async-fields"}
	for _, tr := range passingAsync() {
		tr.spec.Async = &checks.Async{}
		if v := checks.Judge(specOf(tr), tr.hist.r); v.Kind == pass && !slices.Contains(ofAll, tr.check) {
			t.Errorf("%s, %s: it passes without parameters: %s", tr.check, tr.says, v.Figure)
		}
	}
}

// A step whose barrier was not reached is not where the scenario wanted to be.
func TestAsyncChecksNeedTheirSteps(t *testing.T) {
	for _, tr := range passingAsync() {
		a, r := tr.spec.Async, tr.hist.r
		hangs := append([]string{a.From, a.To, a.Anchor}, marksOf(*a)...)
		r.Steps = slices.Clone(r.Steps)
		for i, s := range r.Steps {
			if s.Mark == "" || !slices.Contains(hangs, s.Mark) {
				continue
			}
			r.Steps[i].OK = false
			if v := checks.Judge(specOf(tr), r); v.Kind == pass {
				t.Errorf("%s, %s: it passes although step %s missed its barrier: %s", tr.check, tr.says, s.Mark, v.Figure)
			}
			r.Steps[i].OK = s.OK
		}
	}
}

func specOf(tr trial) checks.Spec {
	tr.spec.Check, tr.spec.Requirement = tr.check, "INV-00"
	return tr.spec
}

func marksOf(a checks.Async) []string {
	var out []string
	for _, v := range a.Values {
		out = append(out, v.Mark, v.Since)
	}
	for _, k := range a.Keys {
		out = append(out, k.Mark)
	}
	for mark := range a.Details {
		out = append(out, mark)
	}
	return out
}
