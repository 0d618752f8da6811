package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// Scripts lie in testdata/scripts, because rapid keeps its failures in testdata too. `new` makes an engine (arguments override
// small()); `admit id=1 prompt=8 max=4 [output=2] [at=5ms]`; `abort id=1`; `step [n=3]` ticks at the next n deadlines. Each
// answers with the reports and the state.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		var e *Engine
		var now time.Duration
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			number := func(key string) int {
				n := 0
				d.MaybeScanArgs(t, key, &n)
				return n
			}
			if d.HasArg("at") {
				text := ""
				d.ScanArgs(t, "at", &text)
				at, err := time.ParseDuration(text)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				now = at
			}
			var b strings.Builder
			switch d.Cmd {
			case "new":
				c := small()
				c.Step = StepTime{Base: 10 * ms}
				for key, field := range map[string]*int{"seqs": &c.MaxNumSeqs, "budget": &c.MaxNumBatchedTokens,
					"blocks": &c.NumBlocks, "len": &c.MaxModelLen, "block": &c.BlockSize} {
					d.MaybeScanArgs(t, key, field)
				}
				c.AdmitByChunk = d.HasArg("by-chunk")
				var err error
				if e, err = New(c); err != nil {
					return err.Error()
				}
				now = 0
			case "admit":
				write(&b, e.Step(now, Event{Kind: Admit, ID: uint64(number("id")), PromptTokens: number("prompt"),
					OutputTokens: number("output"), MaxTokens: number("max")}, nil))
			case "abort":
				write(&b, e.Step(now, Event{Kind: Abort, ID: uint64(number("id"))}, nil))
			case "step":
				for range max(1, number("n")) {
					end, ok := e.Deadline()
					if !ok {
						break
					}
					now = end
					write(&b, e.Step(now, Event{}, nil))
				}
			default:
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			s := e.Stats()
			fmt.Fprintf(&b, "running=%d waiting=%d free=%d batch=%d/%d", s.Running, s.Waiting, s.FreeBlocks, s.LastBatch.Tokens, s.LastBatch.Seqs)
			if end, ok := e.Deadline(); ok {
				fmt.Fprintf(&b, " until=%v", end)
			}
			return b.String() + "\n"
		})
	})
}

func write(b *strings.Builder, outs []Out) {
	for _, o := range outs {
		fmt.Fprintf(b, "%v %v id=%d tokens=%d %v\n", o.At, o.Kind, o.ID, o.Tokens, o.Reason)
	}
}
