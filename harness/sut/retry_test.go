package sut_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
)

// refusing is a stage that answers at once, and refuses the ids that it is told to.
type refusing struct {
	*stage
	refuse []string
}

func (r *refusing) Refused(id string) bool {
	return slices.ContainsFunc(r.refuse, func(prefix string) bool { return strings.HasPrefix(id, prefix) })
}

func TestOwnersRetryWhatWasRefused(t *testing.T) {
	for _, c := range []struct {
		says   string
		refuse []string
		sent   string
		ok     bool
	}{
		{"nobody was refused", nil, "a b", true},
		{"one once, one twice", []string{"a", "b"}, "a b a~2 b~2", false},
		{"without an end", []string{"b"}, "a b b~2", false},
	} {
		st := &refusing{stage: newStage(), refuse: c.refuse}
		st.refuses, st.limit = true, 0
		rec := evidence.NewRecorder("s")
		err := sut.PlayOn(context.Background(), st, sut.Script{Steps: []sut.Step{
			{Op: sut.OpSend, Requests: []sut.Request{{ID: "a"}, {ID: "b"}}},
			{Op: sut.OpRetry, Mark: "x", IDs: []string{"a", "b"}, Spacing: 400 * time.Millisecond, Limit: 100 * time.Millisecond}}}, rec)
		step := rec.Run().Steps[1]
		if got := strings.Join(st.sent, " "); err != nil || got != c.sent || step.OK != c.ok {
			t.Errorf("%s: sent %q, ok %v (%s), %v", c.says, got, step.OK, step.Detail, err)
		}
	}
	if sut.Attempt("a", 1) != "a" || sut.Attempt("a", 3) != "a~3" {
		t.Error("attempts are named otherwise")
	}
	rec := evidence.NewRecorder("s")
	if err := sut.PlayOn(context.Background(), newStage(), sut.Script{Steps: []sut.Step{{Op: sut.OpRetry, IDs: []string{"a"}}}}, rec); err != nil || rec.Run().Steps[0].OK {
		t.Errorf("a stage that does not know who was refused: %v", err)
	}
}
