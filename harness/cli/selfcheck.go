package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/selfcheck"
	"github.com/llm-weir/weir/harness/verdict"
	"github.com/llm-weir/weir/reference/epconfig"
)

type selfcheckCmd struct {
	Suite       string `enum:"router,async" default:"router" help:"router: mutants of the picker; async: mutants of the Async Processor, each a process of its own over real sockets."`
	Profile     string `help:"Contract of the reference and of the judgement; default: llm-d-router-2026-09, with --suite async llm-d-async-0.10."`
	Seed        uint64 `default:"1" help:"Seed of the first run; each run of the unmutated reference takes the next one."`
	Runs        int    `help:"Runs of the unmutated reference; default: 5, with --suite async 1."`
	Parallel    int    `help:"Mutants at a time; default: 2, with --suite async 4."`
	Level       string `enum:"core,extended,slow" default:"extended" help:"How much of the catalogue each mutant is played against (as in weir certify)."`
	Only        string `help:"Regular expression on mutant names."`
	Pairs       int    `placeholder:"N" help:"Play N random pairs of mutants instead, drawn with --seed (0 draws one): two faults at a time."`
	IncludeNoop bool   `help:"Add a mutant that changes nothing; no check can see it, so the self-check must fail."`
	Out         string `type:"path" default:".weir/selfcheck.json" help:"File of the matrix mutant × requirement."`
	RedisServer string `placeholder:"PROGRAM" help:"With --suite async: program of a real broker; default: an embedded one."`
	Env         string `enum:"virtual,local" default:"virtual" help:"Where mutants are played; local takes half a minute each."`
}

// Help is the long help of the command.
func (selfcheckCmd) Help() string {
	return `Examples:
  weir selfcheck                     every mutant must be killed by a requirement that is meant for it
  weir selfcheck --only 'ttl|leak'   some mutants
  weir selfcheck --pairs 30 --seed 0 random pairs of mutants: one fault must not hide another
  weir selfcheck --suite async       mutants of the Async Processor
  weir selfcheck --include-noop      ends with status 1: nothing can kill a mutant that changes nothing

Exit status: 0 every mutant is killed and every requirement can fail, 1 not so, 2 usage or harness error, 130 interrupted.`
}

const asyncSuite = "async"

// defaults fills in what depends on the suite.
func (c *selfcheckCmd) defaults() {
	router := c.Suite != asyncSuite
	c.Profile = cmp.Or(c.Profile, map[bool]string{true: profile.Default, false: profile.DefaultProcessor}[router])
	c.Runs = cmp.Or(c.Runs, map[bool]int{true: 5, false: 1}[router])
	c.Parallel = cmp.Or(c.Parallel, map[bool]int{true: 2, false: 4}[router])
	if !router {
		c.Env = "local"
	}
}

// Run plays the mutants.
func (c *selfcheckCmd) Run(con *console) error {
	c.defaults()
	if c.Pairs > 0 {
		if c.Suite == asyncSuite {
			return errors.New("--pairs is for the router's mutants")
		}
		if c.Seed == 0 {
			c.Seed = drawSeed()
		}
		fmt.Fprintln(con.out, selfcheck.PairsText(c.Pairs, c.Seed))
	}
	mutants, err := c.mutants()
	if err != nil {
		return err
	}
	fmt.Fprintf(con.out, "seed %d, %d mutants, %d runs of the unmutated reference, profile %s, environment %s\n", c.Seed, len(mutants), c.Runs, c.Profile, c.Env)
	maker := c.judge
	if c.Suite == asyncSuite {
		maker = func() (selfcheck.Judge, error) { return c.asyncJudge(mutants) }
	}
	judge, err := maker()
	if err != nil {
		return err
	}
	m, err := selfcheck.Run(con.ctx, selfcheck.Options{Judge: judge, Contract: c.Profile, Mutants: mutants, Clean: c.Runs, Seed: c.Seed, Parallel: c.Parallel})
	if err != nil {
		return err
	}
	if err := m.WriteText(con.out); err != nil {
		return err
	}
	if err := c.write(m); err != nil {
		return err
	}
	fmt.Fprintf(con.out, "matrix: %s\n", c.Out)
	if !m.OK() || (c.Only == "" && c.Suite != asyncSuite && c.Pairs == 0 && len(m.Unproven) > 0) { // a requirement that no mutant fails is not known to be able to fail
		return &exitError{status: ExitFail}
	}
	return nil
}

func (c *selfcheckCmd) mutants() ([]selfcheck.Mutant, error) {
	only, err := compile("--only", c.Only)
	if err != nil {
		return nil, err
	}
	var out []selfcheck.Mutant
	all := selfcheck.Mutants()
	if c.Pairs > 0 {
		all = selfcheck.Pairs(c.Pairs, c.Seed, c.Profile)
	}
	if c.Suite == asyncSuite {
		all = selfcheck.ProcessorMutants()
	}
	for _, m := range all {
		if only == nil || only.MatchString(m.Name) {
			out = append(out, m)
		}
	}
	if c.IncludeNoop {
		out = append(out, selfcheck.Noop())
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--only %q: no mutant has such a name (weir list mutants)", c.Only)
	}
	return out, nil
}

// judge plays the whole catalogue against a variant.
func (c *selfcheckCmd) judge() (selfcheck.Judge, error) {
	p, err := profile.Named(c.Profile)
	if err != nil {
		return nil, err
	}
	if p.Processor != nil {
		return nil, fmt.Errorf("--profile %s is a contract of Async Processors: add --suite async, or use one of %v", p.Name, profile.All())
	}
	contract, err := epconfig.ContractNamed(c.Profile)
	if err != nil {
		return nil, err
	}
	// What the profile knows of its build as a fault would hide the mutants that have it; the reference has none of them.
	p.ExpectedFail = nil
	sel, err := newSelection(c.Level, c.Env, "", "")
	if err != nil {
		return nil, err
	}
	certify := certifyCmd{Env: c.Env}
	return func(ctx context.Context, m selfcheck.Mutant, seed uint64) ([]verdict.Result, error) {
		o := sel.options(p, seed)
		if len(m.Meant) > 0 && !slices.ContainsFunc(m.Meant, benchmark) {
			// The benchmarks take longer than everything else together, and the mutants that they are to find say so.
			o.Scenarios = slices.DeleteFunc(o.Scenarios, func(c scenario.Compiled) bool {
				return !slices.ContainsFunc(c.Requirements(), func(id string) bool { return !benchmark(id) && id != fullCapacity })
			})
		}
		o.Parallel = 1
		if c.Env == "local" {
			o.Parallel = 6
		}
		o.New = certify.system(p, contract, m.Tamper)
		o.Manifest.Mutant = m.Name
		return judge(ctx, o)
	}, nil
}

func benchmark(requirement string) bool { return strings.HasPrefix(requirement, "BEN-") }

func (c *selfcheckCmd) write(m selfcheck.Matrix) error {
	if err := os.MkdirAll(filepath.Dir(c.Out), 0o755); err != nil {
		return fmt.Errorf("matrix: %w", err)
	}
	f, err := os.Create(c.Out)
	if err != nil {
		return fmt.Errorf("matrix: %w", err)
	}
	if err := m.WriteJSON(f); err != nil {
		f.Close()
		return fmt.Errorf("matrix: %w", err)
	}
	return f.Close()
}
