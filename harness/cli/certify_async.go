package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/env/processor"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/sut"
)

type certifyAsyncCmd struct {
	Profile     string `default:"llm-d-async-0.10" help:"Contract to certify against: llm-d-async-0.10 or llm-d-async-0.9."`
	Processor   string `placeholder:"COMMAND" help:"Command that starts the processor to judge, with placeholders: {{.Config}} (file with the transport configuration), {{.MetricsPort}}, {{.HealthPort}}, and {{.Flags}} where further flags are to stand (default: at the end). Default: the built-in reference."`
	SUT         string `name:"sut" placeholder:"FILE" help:"Descriptor of the processor: a YAML file with organization, project, version, url, contact, command."`
	Durability  string `enum:",at-least-once,at-most-once" default:"" help:"Of the built-in reference; default: as the contract has it."`
	RedisServer string `placeholder:"PROGRAM" help:"Program of a real broker, for example redis-server; default: an embedded one."`
	Seed        uint64 `help:"Seed of what is drawn; 0 draws one. It is printed first."`
	Out         string `type:"path" help:"Folder of the evidence bundle; default: a new one under .weir/."`
	Level       string `enum:"core,extended,slow" default:"core" help:"core: core rows and the rest of the first certification run; extended: every row that has a scenario, but for those that wait for minutes; slow: these too."`
	Focus       string `help:"Regular expression on requirement ids and scenario names: play only these."`
	Skip        string `help:"Regular expression on requirement ids and scenario names: leave these out."`
	Parallel    int    `default:"12" help:"Scenarios at a time; most of them wait."`
	NoColor     bool   `help:"No colours and no progress bar."`
	Env         string `enum:"local,kind,cluster" default:"local" help:"Where it runs: local (this machine), or in a pod of the kind cluster of weir cluster up, or of the one that --kubeconfig or --context names."`
	Inside      bool   `hidden:"" help:"This program runs in a pod, for somebody outside of the cluster."`
	clusterFlags
}

// Help is the long help of the command.
func (certifyAsyncCmd) Help() string {
	return `The processor is started for each scenario, as a process of its own, between a broker, upstreams in the place of the gateway, a
Prometheus and a trace collector that the harness has in its hand.

Examples:
  weir certify-async                                       certify the built-in reference
  weir certify-async --level extended --redis-server redis-server
  weir certify-async --profile llm-d-async-0.9             the older contract; the reference loses then on kill -9 what that contract lets it
  weir certify-async --durability at-most-once             shows the same losses as failures of 0.10
  weir certify-async --processor './processor --transport-config-file {{.Config}} --metrics-port {{.MetricsPort}} --health-port {{.HealthPort}} --metrics-endpoint-auth=false'
  weir certify-async --env kind                            the processor of the image, in a pod
  weir certify-async --focus 'AP-RETRY|AP-DL'              only two families

Scenarios add flags of the guide (--transport, --concurrency, --pool-config-file, ...) to the command; a flag whose placeholder a scenario
does not use is left out.

Exit status: 0 all that was judged passes, 1 a requirement failed, 2 usage or harness error, 3 inconclusive, 130 interrupted.`
}

// Run plays the catalogue of processors.
func (c *certifyAsyncCmd) Run(con *console) error {
	if c.Seed == 0 {
		c.Seed = drawSeed()
	}
	if c.Out == "" {
		c.Out = filepath.Join(".weir", fmt.Sprintf("async-%s-%d", clock.Wall().Format("20060102-150405"), c.Seed))
	}
	if inCluster(c.Env) && !c.Inside {
		return c.fromOutside(con)
	}
	p, err := profile.Named(c.Profile)
	if err != nil {
		return err
	}
	if p.Processor == nil {
		return fmt.Errorf("--profile %s is a contract of routers: use weir certify, or one of %v", c.Profile, profile.Processors())
	}
	o, d, err := c.options(p)
	if err != nil {
		return err
	}
	sel, err := newSelection(c.Level, "local", c.Focus, c.Skip)
	if err != nil {
		return err
	}
	fmt.Fprintf(con.out, "seed %d\nprofile %s, evidence in %s\n\n", c.Seed, p.Name, c.Out)
	screen := newScreen(con.out, !c.NoColor)
	opts := sel.options(p, c.Seed)
	opts.Parallel, opts.Dir, opts.OnScenario, opts.Limit = c.Parallel, c.Out, screen.scenario, 4*time.Minute
	opts.New = func() sut.System { return processor.New(o) }
	unjudged := opts.Manifest.Unjudged
	opts.Manifest = c.manifest()
	opts.Manifest.Unjudged, opts.Manifest.Implementation, opts.Manifest.Command = unjudged, o.Implementation, d
	return play(con, opts, screen, c.Out, c.argv())
}

// options name the processor; the second value is its command as the manifest has it, "" for the built-in one.
func (c *certifyAsyncCmd) options(p profile.Profile) (processor.Options, string, error) {
	var d sut.Descriptor
	var err error
	if c.SUT != "" {
		if d, err = sut.ReadDescriptor(c.SUT); err != nil {
			return processor.Options{}, "", fmt.Errorf("--sut: %w", err)
		}
	}
	o := processor.Options{RedisServer: c.RedisServer}
	if c.RedisServer != "" {
		if _, err := exec.LookPath(c.RedisServer); err != nil {
			return o, "", fmt.Errorf("--redis-server: %w (Debian's package redis-server has it; without the flag a broker is embedded)", err)
		}
	}
	text := cmp.Or(c.Processor, d.Command)
	if text == "" && c.SUT != "" {
		return o, "", errors.New("--sut: the descriptor has no command: add one, or give it with --processor")
	}
	if text == "" {
		o.Command, err = builtin(p, c.Durability)
		o.Implementation = evidence.Implementation{Organization: "weir", Project: "reference processor", Version: Version}
		return o, "", err
	}
	if c.Durability != "" {
		return o, "", errors.New("--durability is a flag of the built-in reference: leave it out beside --processor and --sut")
	}
	if o.Command, err = processor.Parse(text); err != nil {
		return o, "", fmt.Errorf("%s: %w", map[bool]string{true: "--processor", false: "--sut"}[c.Processor != ""], err)
	}
	o.Implementation = d.Implementation
	o.Implementation.Organization, o.Implementation.Project = cmp.Or(d.Organization, "unknown"), cmp.Or(d.Project, o.Command.Program())
	o.Implementation.Version = cmp.Or(d.Version, "unknown")
	return o, text, nil
}

// builtin is the command of the reference, in the guide's manner: unknown gates are open, unknown fields are passed over (AP-GATE-02,
// AP-CFG-18). Without --lenient both keep it from starting.
func builtin(p profile.Profile, durability string) (binary.Command, error) {
	exe, err := os.Executable()
	if err != nil {
		return binary.Command{}, err
	}
	if durability == "" {
		durability = "at-least-once"
		if !p.Processor.Durable {
			durability = "at-most-once"
		}
	}
	return processor.Parse(fmt.Sprintf("'%s' processor --transport-config-file {{.Config}} --metrics-port {{.MetricsPort}} --health-port {{.HealthPort}} --metrics-endpoint-auth=false --lenient --durability %s",
		exe, durability))
}

func (c *certifyAsyncCmd) manifest() evidence.Manifest {
	return evidence.Manifest{RunID: fmt.Sprintf("async-%s-%d-%s", c.Profile, c.Seed, clock.Wall().UTC().Format("20060102T150405Z")), Tool: "weir " + Version, Commit: commit(), Argv: c.argv(),
		Seed: c.Seed, Level: c.Level, Environment: cmp.Or(c.Env, "local"), Clock: "real", Created: clock.Wall().UTC().Format(time.RFC3339),
		Host: evidence.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}}
}

// argv is the command that reproduces the run, without the output folder.
func (c *certifyAsyncCmd) argv() []string {
	a := append(program(), "certify-async", "--profile", c.Profile, "--seed", fmt.Sprint(c.Seed), "--level", c.Level)
	if inCluster(c.Env) {
		a = append(append(a, "--env", c.Env), c.clusterFlags.argv()...)
	}
	for _, f := range [][2]string{{"--processor", c.Processor}, {"--sut", c.SUT}, {"--durability", c.Durability}, {"--redis-server", c.RedisServer}, {"--focus", c.Focus}, {"--skip", c.Skip}} {
		if f[1] != "" {
			a = append(a, f[0], f[1])
		}
	}
	return a
}
