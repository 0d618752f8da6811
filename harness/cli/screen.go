package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/llm-weir/weir/harness/report"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/verdict"
)

// screen shows results as lines and, on a terminal, one bar below them; elsewhere plain lines only.
type screen struct {
	mu     sync.Mutex
	out    io.Writer
	bars   *mpb.Progress
	bar    *mpb.Bar
	now    string
	colour bool
}

func newScreen(out io.Writer, fancy bool) *screen {
	s := &screen{out: out}
	if f, ok := out.(*os.File); ok && fancy && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(f.Fd())) {
		s.colour = true
		s.bars = mpb.New(mpb.WithOutput(f), mpb.WithWidth(40))
	}
	return s
}

// scenario moves the bar.
func (s *screen) scenario(p run.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Error != "" {
		s.write(fmt.Appendf(nil, "scenario %s: %s\n", p.Name, p.Error))
	}
	if s.bars == nil {
		return
	}
	if s.bar == nil {
		s.bar = s.bars.AddBar(int64(p.Total),
			mpb.PrependDecorators(decor.CountersNoUnit("%d/%d scenarios")),
			mpb.AppendDecorators(decor.Any(func(decor.Statistics) string {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.now
			})))
	}
	s.now = p.Name
	if p.Done {
		s.bar.Increment()
	}
}

// result prints one requirement.
func (s *screen) result(r verdict.Result) {
	var b bytes.Buffer
	if err := report.Terminal(&b, r, s.colour); err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(b.Bytes())
}

func (s *screen) write(b []byte) {
	if s.bars != nil {
		_, _ = s.bars.Write(b) // a line that cannot be shown is in the reports
		return
	}
	_, _ = s.out.Write(b)
}

// close takes the bar away.
func (s *screen) close() {
	s.mu.Lock()
	bar, bars := s.bar, s.bars
	s.mu.Unlock()
	if bars == nil {
		return
	}
	if bar != nil {
		bar.Abort(true)
	}
	bars.Wait()
	s.mu.Lock()
	s.bars = nil
	s.mu.Unlock()
}
