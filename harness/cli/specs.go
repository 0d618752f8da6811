package cli

import (
	"context"
	"io"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/extensions/globals"
	"github.com/onsi/ginkgo/v2/formatter"
	"github.com/onsi/gomega"

	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/verdict"
	"github.com/llm-weir/weir/suites/conformance"
)

// failed takes Ginkgo's word that a spec did not pass; the verdicts are what counts here.
type failed struct{}

func (failed) Fail() {}

// specs starts the session and runs the conformance suite on it; onResult hears of each result in catalogue order.
func specs(ctx context.Context, s *run.Session, onResult func(verdict.Result)) {
	globals.Reset()
	formatter.ColorableStdOut = io.Discard // the suite's own reporter would repeat every line
	gomega.RegisterFailHandler(ginkgo.Fail)
	conformance.Register(s, onResult)
	sc, rc := ginkgo.GinkgoConfiguration()
	sc.EmitSpecProgress = false
	rc.Succinct, rc.NoColor = true, true
	s.Start(ctx)
	ginkgo.RunSpecs(failed{}, "weir conformance", sc, rc)
}

// play runs a session as the suite, on the screen, and leaves evidence and reports in out; argv is the command that gives them again.
func play(con *console, o run.Options, scr *screen, out string, argv []string) error {
	s, err := run.New(o)
	if err != nil {
		return err
	}
	specs(con.ctx, s, scr.result)
	b, results, err := s.Seal()
	scr.close()
	if err != nil {
		return err
	}
	return finish(con, scr, b, results, out, argv)
}

// judge runs a session without a suite or a screen: a mutant of the self-check.
func judge(ctx context.Context, o run.Options) ([]verdict.Result, error) {
	s, err := run.New(o)
	if err != nil {
		return nil, err
	}
	s.Start(ctx)
	_, results, err := s.Seal()
	return results, err
}
