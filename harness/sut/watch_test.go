package sut_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/loadgen/plan"
)

// watching is a stage that can read pages during a load; it records when that begins and ends.
type watching struct {
	*stage
	told []string
}

func (w *watching) Watch(mark string, every time.Duration) func() {
	w.told = append(w.told, "watch "+mark+" "+every.String())
	return func() { w.told = append(w.told, "stop") }
}

func (w *watching) Load(ctx context.Context, p plan.Plan, begun func()) (string, error) {
	w.told = append(w.told, "load")
	return w.stage.Load(ctx, p, begun)
}

func TestPagesAreWatchedDuringALoad(t *testing.T) {
	for _, c := range []struct {
		says  string
		every time.Duration
		err   error
		want  []string
	}{
		{"a period is given", time.Second, nil, []string{"watch x 1s", "load", "stop"}},
		{"no period", 0, nil, []string{"load"}},
		{"it stops with a load that cannot be played", time.Second, context.DeadlineExceeded, []string{"watch x 1s", "load", "stop"}},
	} {
		st := &watching{stage: newStage()}
		st.err = c.err
		err := sut.PlayOn(context.Background(), st, sut.Script{Steps: []sut.Step{{Op: sut.OpLoad, Mark: "x", Plan: &plan.Plan{}, Every: c.every}}}, evidence.NewRecorder("s"))
		if !slices.Equal(st.told, c.want) || (err != nil) != (c.err != nil) {
			t.Errorf("%s: %v, %v", c.says, st.told, err)
		}
	}
	// A stage that cannot watch plays the load all the same; the checks miss the pages.
	if err := sut.PlayOn(context.Background(), newStage(), sut.Script{Steps: []sut.Step{{Op: sut.OpLoad, Mark: "x", Plan: &plan.Plan{}, Every: 1}}}, evidence.NewRecorder("s")); err != nil {
		t.Error(err)
	}
}
