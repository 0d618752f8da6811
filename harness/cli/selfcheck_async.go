package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/env/processor"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/selfcheck"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/verdict"
)

// mutantProcessorCmd runs a faulty variant of the reference processor, for the self-check.
type mutantProcessorCmd struct {
	Mutant string `required:"" help:"Name of the mutant (weir list mutants)."`
	processorCmd
}

// Run serves until SIGTERM.
func (c *mutantProcessorCmd) Run(con *console) error {
	for _, m := range selfcheck.ProcessorMutants() {
		if m.Name == c.Mutant {
			return c.run(con, m.Processor)
		}
	}
	return fmt.Errorf("--mutant %q: no mutant of a processor has such a name (weir list mutants)", c.Mutant)
}

// parallelScenarios of one mutant; several mutants are played at a time, and most scenarios wait.
const parallelScenarios = 4

// asyncJudge plays what a mutant of the processor is meant for; the unmutated reference plays all of it.
func (c *selfcheckCmd) asyncJudge(mutants []selfcheck.Mutant) (selfcheck.Judge, error) {
	p, err := profile.Named(c.Profile)
	if err != nil {
		return nil, err
	}
	if p.Processor == nil {
		return nil, fmt.Errorf("--profile %s is a contract of routers: with --suite async use one of %v", c.Profile, profile.Processors())
	}
	p.ExpectedFail = nil
	sel, err := newSelection(c.Level, "local", "", "")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, m := range mutants {
		all = append(all, m.Meant...)
	}
	machine := &sync.RWMutex{}
	return func(ctx context.Context, m selfcheck.Mutant, seed uint64) ([]verdict.Result, error) {
		command, err := asyncCommand(m)
		if err != nil {
			return nil, err
		}
		ids, parallel := m.Meant, parallelScenarios
		if m.Processor == nil {
			ids, parallel = all, parallelScenarios*c.Parallel
		}
		o := sel.options(p, seed)
		for i := range o.Scenarios {
			o.Scenarios[i].Checks = slices.DeleteFunc(o.Scenarios[i].Checks, func(ch checks.Spec) bool { return !slices.Contains(ids, ch.Requirement) })
		}
		o.Scenarios = slices.DeleteFunc(o.Scenarios, func(s scenario.Compiled) bool { return len(s.Checks) == 0 })
		if len(o.Scenarios) == 0 {
			return nil, nil
		}
		o.Parallel, o.Limit, o.Machine = parallel, 4*time.Minute, machine
		o.New = func() sut.System {
			return processor.New(processor.Options{Command: command, RedisServer: c.RedisServer})
		}
		o.Manifest.Mutant = m.Name
		return judge(ctx, o)
	}, nil
}

// asyncCommand starts a variant of the processor.
func asyncCommand(m selfcheck.Mutant) (binary.Command, error) {
	exe, err := os.Executable()
	if err != nil {
		return binary.Command{}, err
	}
	if strings.HasSuffix(exe, ".test") {
		return binary.Command{}, errors.New("a test binary cannot serve as a processor")
	}
	name := "processor"
	if m.Processor != nil {
		name = "mutant-processor --mutant " + m.Name
	}
	return processor.Parse(fmt.Sprintf("'%s' %s --transport-config-file {{.Config}} --metrics-port {{.MetricsPort}} --health-port {{.HealthPort}} --metrics-endpoint-auth=false --lenient", exe, name))
}
