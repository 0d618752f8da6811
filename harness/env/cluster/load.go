package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
)

// Files of a worker of a load.
const (
	RecordsFile = "records.ndjson"
	ShareFile   = "share.json"
)

// Share is what a worker of a load says of its part.
type Share struct {
	Plan    string `json:"plan"`        // hash of the whole plan
	Sent    int    `json:"sent"`        // records that it wrote
	LateNs  int64  `json:"startLateNs"` // how much later than told it began
	Invalid string `json:"invalid,omitempty"`
}

// Load is a load that several pods send together. It is a system of one scenario, whose script is the plan.
type Load struct {
	Client *Client
	Errand Errand
	Dir    string // where the workers' own files go
	skew   time.Duration
}

// Describe implements sut.System.
func (l *Load) Describe() sut.Implementation { return sut.Implementation{} }

// Configure implements sut.System: the target is as it is.
func (l *Load) Configure(context.Context, sut.Configuration) error { return nil }

// Close implements sut.System: Play leaves nothing behind.
func (l *Load) Close(context.Context) error { return nil }

// SkewBound is how far the workers' clocks may be off each other.
func (l *Load) SkewBound() (time.Duration, string) { return l.skew, "" }

// Mark is the step of a worker.
func Mark(worker int) string { return fmt.Sprintf("worker-%d", worker) }

// Play implements sut.System: instants count from the common start of the workers.
func (l *Load) Play(ctx context.Context, _ sut.Script, out evidence.Sink) error {
	e := l.Errand
	var clocks string
	e.Begin = func(ctx context.Context, workers []*Worker) error {
		var err error
		clocks, err = l.begin(ctx, workers)
		return err
	}
	_, err := l.Client.Run(ctx, e, l.Dir)
	out.File("clocks.txt", []byte(clocks))
	if ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	last, missing := int64(0), false
	for i := range e.Workers {
		dir := l.Dir
		if e.Workers > 1 {
			dir = filepath.Join(l.Dir, fmt.Sprint(i))
		}
		step := evidence.Step{Op: string(sut.OpLoad), Mark: Mark(i), OK: true}
		share, records, rerr := readShare(dir)
		switch {
		case rerr != nil:
			missing = true
			step.OK, step.Detail = false, fmt.Sprintf("its records are not there: %v", errors.Join(rerr, err))
		case share.Sent != len(records):
			step.OK, step.Detail = false, fmt.Sprintf("%d of its %d records are there", len(records), share.Sent)
		case share.Invalid != "":
			step.OK, step.Detail = false, share.Invalid
		default:
			step.Detail = share.Plan
		}
		for _, c := range records {
			last = max(last, c.End)
			out.Client(c)
		}
		step.End = last
		out.Step(step)
	}
	if missing { // the steps say so
		return nil
	}
	return err
}

// readShare reads what a worker has left.
func readShare(dir string) (Share, []evidence.Client, error) {
	var s Share
	text, err := os.ReadFile(filepath.Join(dir, ShareFile))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, nil, err
	}
	f, err := os.Open(filepath.Join(dir, RecordsFile))
	if err != nil {
		return s, nil, err
	}
	defer f.Close()
	var out []evidence.Client
	in := bufio.NewScanner(f)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var c evidence.Client
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			return s, out, fmt.Errorf("record %d: %w", len(out)+1, err)
		}
		out = append(out, c)
	}
	return s, out, in.Err()
}

// roundTrips with each worker's clock, and how long from the last of them to the start.
const (
	roundTrips = 10
	ahead      = 2 * time.Second
)

// begin compares the workers' clocks with this one, and tells all of them the same instant, each by its own clock.
func (l *Load) begin(ctx context.Context, workers []*Worker) (text string, err error) {
	if err := l.Client.until(ctx, time.Minute, func(ctx context.Context) (bool, string) {
		for _, w := range workers {
			if waits, err := w.Waits(ctx); !waits {
				return false, fmt.Sprintf("worker %d is not ready to begin (%v)", w.Index, err)
			}
		}
		return true, ""
	}); err != nil {
		return "", err
	}
	type reading struct{ offset, bound int64 }
	best := make([]reading, len(workers))
	for i, w := range workers {
		best[i].bound = math.MaxInt64
		for range roundTrips {
			before := clock.Wall().UnixNano()
			now, err := w.Clock(ctx)
			after := clock.Wall().UnixNano()
			if err != nil {
				return text, fmt.Errorf("clock of worker %d: %w", w.Index, err)
			}
			if b := (after-before)/2 + 1; b < best[i].bound {
				best[i] = reading{now - (before+after)/2, b}
			}
		}
		l.skew = max(l.skew, 2*time.Duration(best[i].bound))
		text += fmt.Sprintf("worker %d: %d ns ahead, known to within %d ns\n", w.Index, best[i].offset, best[i].bound)
	}
	at := clock.Wall().Add(ahead).UnixNano()
	for i, w := range workers {
		if err := w.Begin(ctx, at+best[i].offset); err != nil {
			return text, fmt.Errorf("worker %d: %w", w.Index, err)
		}
	}
	return text, nil
}
