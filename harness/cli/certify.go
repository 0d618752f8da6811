package cli

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/env/local"
	"github.com/llm-weir/weir/harness/env/virtual"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/report"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/verdict"
	"github.com/llm-weir/weir/reference/epconfig"
)

type certifyCmd struct {
	Profile          string `default:"llm-d-router-2026-09" help:"Contract to certify against (weir list profiles)."`
	ReferenceProfile string `help:"Contract the built-in reference is set to; default: the one that is judged."`
	Env              string `enum:"local,virtual,kind,cluster" default:"local" help:"Where the system runs: local (real sockets on this machine), virtual (virtual time), kind (deployed in the kind cluster of weir cluster up) or cluster (deployed in the one that --kubeconfig or --context names)."`
	Seed             uint64 `help:"Seed of the loads; 0 draws one. It is printed first."`
	Out              string `type:"path" help:"Folder of the evidence bundle; default: a new one under .weir/."`
	Level            string `enum:"core,extended,slow" default:"core" help:"core: core rows and the rest of the first certification run; extended: every row that has a scenario, but for those that wait for minutes; slow: these too (in virtual time extended plays them)."`
	Focus            string `help:"Regular expression on requirement ids and scenario names: play only these."`
	Skip             string `help:"Regular expression on requirement ids and scenario names: leave these out."`
	Parallel         int    `default:"8" help:"Scenarios at a time."`
	NoColor          bool   `help:"No colours and no progress bar."`
	externalFlags
	runningFlags
	clusterFlags
	laneFlags
	Keep bool `help:"When a scenario fails, leave its stack up and say how to reach it, until Ctrl-C. Scenarios are played one at a time then."`
}

// Help is the long help of the command.
func (certifyCmd) Help() string {
	return `Examples:
  weir certify                                        certify the built-in reference over real sockets
  weir certify --profile llm-d-router-0.9             against another contract
  weir certify --env virtual --seed 7 --out A         in virtual time; the same seed gives the same bytes
  weir certify --focus 'FC-PRI|FC-FAIR'               only two families
  weir certify --epp './epp --config-file {{.Config}} --grpc-port {{.GRPCPort}} --metrics-port {{.MetricsPort}}'
  weir certify --sut sut.yaml                         a picker of your own, described in a file
  weir certify --url http://gateway --sut sut.yaml    a router that already runs
  weir certify --epp-addr HOST:PORT --sut sut.yaml    a picker that already runs, behind a gateway of ours
  weir certify --env kind                             the reference picker of the image, deployed in the cluster of weir cluster up
  weir certify --env cluster --context prod --namespace weir-certify
  weir certify --focus FC-CAP-01 --keep               leave the stack of a scenario that fails up

Each line is a verdict: pass, fail, error, inconclusive (a mechanism did not engage) or not-applicable.

Exit status: 0 all that was judged passes, 1 a requirement failed, 2 usage or harness error, 3 inconclusive, 130 interrupted.`
}

// Run plays the catalogue.
func (c *certifyCmd) Run(con *console) error {
	if c.Seed == 0 {
		c.Seed = drawSeed()
	}
	p, contract, err := c.contracts()
	if err != nil {
		return err
	}
	if c.Out == "" {
		c.Out = filepath.Join(".weir", fmt.Sprintf("run-%s-%d", clock.Wall().Format("20060102-150405"), c.Seed))
	}
	if inCluster(c.Env) && len(c.Inside) == 0 {
		return c.fromOutside(con)
	}
	system := c.system(p, contract, env.Tamper{})
	var x external
	r, err := c.running(con, p, c.externalFlags)
	if err != nil {
		return err
	}
	defer r.close()
	switch {
	case r != nil:
		if c.Env != "local" || c.ReferenceProfile != "" {
			return errors.New("a router that already runs is judged over real sockets: leave --env and --reference-profile out")
		}
		r.descriptor.Apply(&p)
		system, contract = r.system(), epconfig.Contract{}
	case c.given():
		if c.Env != "local" || c.ReferenceProfile != "" {
			return errors.New("--epp and --sut judge a program over real sockets: leave --env and --reference-profile out")
		}
		if x, err = c.read(); err != nil {
			return err
		}
		x.descriptor.Apply(&p)
		system, contract = x.system(p), epconfig.Contract{}
	}
	sel, err := newSelection(c.Level, c.Env, c.Focus, c.Skip)
	if err != nil {
		return err
	}
	fmt.Fprintf(con.out, "seed %d\nprofile %s, environment %s, evidence in %s\n\n", c.Seed, p.Name, c.Env, c.Out)
	screen := newScreen(con.out, !c.NoColor)
	opts := sel.options(p, c.Seed)
	opts.Parallel, opts.Dir, opts.OnScenario = c.Parallel, c.Out, screen.scenario
	opts.New = system
	if inCluster(c.Env) {
		if err := c.fromInside(con.ctx, p, &opts); err != nil {
			return err
		}
		contract = epconfig.Contract{}
	}
	unjudged, shownBy := opts.Manifest.Unjudged, opts.Manifest.ShownBy
	opts.Manifest = c.manifest(contract)
	opts.Manifest.Unjudged, opts.Manifest.ShownBy = unjudged, shownBy
	opts.Manifest.Implementation = opts.New().Describe()
	opts.Manifest.Command, opts.Manifest.Tolerances = x.descriptor.Command, x.tolerances()
	r.narrow(&opts, p)
	if c.Keep {
		opts.Parallel, opts.Keep = 1, screen.keep
	}
	return play(con, opts, screen, c.Out, c.argv())
}

// contracts finds the judged profile and the contract of the reference.
func (c *certifyCmd) contracts() (profile.Profile, epconfig.Contract, error) {
	p, perr := profile.Named(c.Profile)
	if p.Processor != nil {
		return p, epconfig.Contract{}, fmt.Errorf("--profile %s is a contract of Async Processors: use weir certify-async --profile %s, or one of %v", p.Name, p.Name, profile.All())
	}
	name := c.ReferenceProfile
	if name == "" {
		name = c.Profile
	}
	contract, cerr := epconfig.ContractNamed(name)
	if cerr != nil && perr == nil {
		cerr = fmt.Errorf("--reference-profile: %w", cerr)
	} else if perr != nil {
		cerr = nil
	}
	return p, contract, errors.Join(perr, cerr)
}

// system gives the factory of the chosen environment.
func (c *certifyCmd) system(p profile.Profile, contract epconfig.Contract, t env.Tamper) func() sut.System {
	if c.Env == "virtual" {
		return func() sut.System {
			return virtual.New(virtual.Options{Dialect: p.Config, Names: p.Headers, Contract: contract, Tamper: t, Version: Version})
		}
	}
	var command []string
	if exe, err := os.Executable(); err == nil {
		command = []string{exe, "picker"}
	}
	return func() sut.System {
		return local.New(local.Options{Dialect: p.Config, Names: p.Headers, Contract: contract, Tamper: t, Version: Version, PickerCommand: command})
	}
}

func (c *certifyCmd) manifest(contract epconfig.Contract) evidence.Manifest {
	m := evidence.Manifest{RunID: fmt.Sprintf("%s-%s-%d", c.Env, c.Profile, c.Seed), Tool: "weir " + Version, Commit: commit(), Argv: c.argv(), Seed: c.Seed,
		ReferenceProfile: contract.Name, Level: c.Level, Environment: c.Env, Clock: "virtual"}
	if c.Env != "virtual" {
		// What depends on the machine and the hour stays out of a virtual run: two of them must be equal to the byte.
		m.Clock = "real"
		m.Created = clock.Wall().UTC().Format(time.RFC3339)
		m.RunID += "-" + clock.Wall().UTC().Format("20060102T150405Z")
		m.Host = evidence.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	}
	return m
}

// argv is the command that reproduces the run, without the output folder.
func (c *certifyCmd) argv() []string {
	a := append(program(), "certify", "--profile", c.Profile)
	if c.ReferenceProfile != "" {
		a = append(a, "--reference-profile", c.ReferenceProfile)
	}
	a = append(a, "--env", c.Env, "--seed", fmt.Sprint(c.Seed), "--level", c.Level)
	if c.Focus != "" {
		a = append(a, "--focus", c.Focus)
	}
	if c.Skip != "" {
		a = append(a, "--skip", c.Skip)
	}
	if inCluster(c.Env) {
		a = append(a, c.clusterFlags.argv()...)
	}
	return append(append(a, c.externalFlags.argv()...), c.runningFlags.argv()...)
}

// program is how this program was started.
func program() []string {
	exe, err := os.Executable()
	if err == nil && strings.Contains(exe, "go-build") {
		return []string{"go", "run", "."}
	}
	return []string{"weir"}
}

// finish writes the reports of a run, sums it up and gives its status.
func finish(con *console, screen *screen, b *evidence.Bundle, results []verdict.Result, out string, argv []string) error {
	in := report.Input{Bundle: b, Results: results, Overall: overall(results), Command: shell(argv), Date: b.Manifest.Created}
	if err := report.WriteAll(out, in); err != nil {
		return fmt.Errorf("reports: %w", err)
	}
	fmt.Fprintf(con.out, "\nevidence and reports: %s (open %s)\n", out, filepath.Join(out, report.HTMLFile))
	if err := report.TerminalSummary(con.out, in, screen.colour); err != nil {
		return err
	}
	if con.ctx.Err() != nil {
		return &exitError{status: ExitInterrupted, text: "interrupted; what was seen is in " + out}
	}
	return exitFor(in.Verdict())
}

// overall is the verdict of the run over all judged levels.
func overall(rs []verdict.Result) verdict.Kind {
	return verdict.Overall(rs, "core", "extended", "experimental")
}

// shell quotes a command for a POSIX shell where that is needed.
func shell(argv []string) string {
	plain := regexp.MustCompile(`^[A-Za-z0-9_./:=@%+,-]+$`)
	out := make([]string, len(argv))
	for i, a := range argv {
		if out[i] = a; !plain.MatchString(a) {
			out[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}

// drawSeed draws a seed that is short enough to type.
func drawSeed() uint64 {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 1
	}
	return uint64(binary.LittleEndian.Uint32(b[:]))%1_000_000 + 1
}
