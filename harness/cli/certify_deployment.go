package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env/cluster"
	"github.com/llm-weir/weir/harness/env/remote"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	deployed "github.com/llm-weir/weir/suites/cluster"
)

// inspectOverlay is what the pod that judges a deployment needs beside it.
const inspectOverlay = "inspect"

type certifyDeploymentCmd struct {
	targetFlags
	Profile string `default:"llm-d-router-2026-09" help:"Contract of the router (weir list profiles)."`
	Seed    uint64 `help:"Seed of the run; 0 draws one."`
	Out     string `type:"path" help:"Folder of the evidence bundle; default: a new one under .weir/."`
	Focus   string `help:"Regular expression on requirement ids and scenario names: play only these."`
	Skip    string `help:"Regular expression on requirement ids and scenario names: leave these out."`
	NoColor bool   `help:"No colours and no progress bar."`
	Faults  bool   `help:"Show that the suite can fail: put faults into the deployment one after the other; each must be found."`
	Only    string `placeholder:"REGEX" help:"With --faults: regular expression on the names of faults."`

	SettleLimit time.Duration `default:"0s" help:"How long a part may take to be there again before that counts as a fail; 0: 2m, and 30s with --faults."`

	Inside bool `hidden:"" help:"This program runs in a pod beside the deployment."`
}

// Help is the long help of the command.
func (certifyDeploymentCmd) Help() string {
	return `What only a deployment can show: pods that come and go, rolling updates, killed pods of every part, Prometheus, NetworkPolicies. The stack of
weir cluster deploy must be there; it is taken apart and put together again, so nobody else should use it meanwhile.

Examples:
  weir cluster up && weir cluster deploy && weir certify-deployment
  weir certify-deployment --env cluster --context prod --namespace weir
  weir certify-deployment --focus kill
  weir certify-deployment --faults                a deployment that is wrong must fail
  weir certify-deployment --faults --only cuts    those with such names

Exit status: 0 all that was judged passes, 1 a requirement failed, 2 usage or harness error, 3 inconclusive, 130 interrupted.
With --faults: 0 every fault was found, 1 one was not.`
}

// Run plays the scenarios.
func (c *certifyDeploymentCmd) Run(con *console) error {
	if c.Seed == 0 {
		c.Seed = drawSeed()
	}
	if c.Out == "" {
		c.Out = filepath.Join(".weir", fmt.Sprintf("deployment-%s-%d", clock.Wall().Format("20060102-150405"), c.Seed))
	}
	switch {
	case c.Inside:
		return c.inside(con)
	case c.Faults:
		return c.canFail(con)
	}
	return c.outside(con)
}

// outside sends a pod of this program beside the deployment, and takes its evidence home.
func (c *certifyDeploymentCmd) outside(con *console) error {
	client, err := c.connect(con.ctx, c.Env)
	if err != nil {
		return err
	}
	if err := client.NeedNamespace(con.ctx, c.Namespace); err != nil {
		return err
	}
	if _, err := client.OpenStack(con.ctx, c.Namespace, 0); err != nil {
		return err
	}
	objects, err := c.overlay(inspectOverlay, c.Namespace, c.Env)
	if err != nil {
		return err
	}
	d := deployment{client: client, flags: c.clusterFlags, env: c.Env, made: objects, spaces: []string{c.Namespace}}
	fmt.Fprintf(con.out, "seed %d\nprofile %s, environment %s (%s), namespace %s, evidence in %s\n", c.Seed, c.Profile, c.Env, client.Host(), c.Namespace, c.Out)
	defer d.clear(con)
	if err := client.Apply(con.ctx, objects); err != nil {
		return d.failed(con, c.Out, err)
	}
	args := []string{"certify-deployment", "--inside", "--env", c.Env, "--namespace", c.Namespace, "--profile", c.Profile, "--seed", fmt.Sprint(c.Seed), "--out", "/results", "--no-color", "--settle-limit", c.SettleLimit.String()}
	args = append(append(args, given("--focus", c.Focus, "--skip", c.Skip)...), c.named()...)
	return d.send(con, cluster.Errand{Name: "weir-certify-deployment", Namespace: c.Namespace, Account: certifyAccount, Args: args}, c.Out)
}

// named is how the cluster and the image were named: a pod is told for what it says of how its run is made again, and reads none of it.
func (f clusterFlags) named() []string {
	return given("--kubeconfig", f.Kubeconfig, "--context", f.Context, "--image", f.Image)
}

// given are flags with their values, those without a value left out.
func given(pairs ...string) []string {
	var out []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, pairs[i], pairs[i+1])
		}
	}
	return out
}

// inside plays against what stands around this pod.
func (c *certifyDeploymentCmd) inside(con *console) error {
	p, err := profile.Named(c.Profile)
	if err != nil {
		return err
	}
	if p.Processor != nil {
		return fmt.Errorf("--profile %s is a contract of Async Processors, and the router is judged", c.Profile)
	}
	client, err := cluster.Connect(con.ctx, cluster.Options{})
	if err != nil {
		return err
	}
	stack, err := client.OpenStack(con.ctx, c.Namespace, c.SettleLimit)
	if err != nil {
		return err
	}
	o, err := c.options(p, func() (sut.System, error) {
		return stack.System(remote.Options{Dialect: p.Config, Names: p.Headers, Implementation: sut.Implementation{Organization: "weir", Project: "reference stack", Version: Version}})
	})
	if err != nil {
		return err
	}
	screen := newScreen(con.out, !c.NoColor)
	o.OnScenario = screen.scenario
	return play(con, o, screen, c.Out, o.Manifest.Argv)
}

// options are those of a session with the chosen scenarios.
func (c *certifyDeploymentCmd) options(p profile.Profile, system func() (sut.System, error)) (run.Options, error) {
	focus, ferr := compile("--focus", c.Focus)
	skip, serr := compile("--skip", c.Skip)
	first, err := system()
	if err = errors.Join(ferr, serr, err); err != nil {
		return run.Options{}, err
	}
	o := run.Options{Profile: p, Rows: deployed.Rows(), Dir: c.Out, Parallel: 1, Limit: 6 * time.Minute}
	sel := selection{focus: focus, skip: skip}
	for _, s := range deployed.Compile(p, c.Seed) {
		kept := s.Checks[:0:0]
		for _, ch := range s.Checks {
			if sel.named(ch.Requirement, s.Name) {
				kept = append(kept, ch)
			}
		}
		if s.Checks = kept; len(kept) > 0 {
			o.Scenarios = append(o.Scenarios, s)
		}
	}
	o.New = func() sut.System {
		s, err := system()
		if err != nil {
			panic(err) // the same options were good before
		}
		return s
	}
	again := given("--focus", c.Focus, "--skip", c.Skip)
	if c.SettleLimit > 0 {
		again = append(again, "--settle-limit", c.SettleLimit.String())
	}
	wall := clock.Wall().UTC()
	o.Manifest = evidence.Manifest{RunID: fmt.Sprintf("deployment-%s-%d-%s", c.Env, c.Seed, wall.Format("20060102T150405Z")), Tool: "weir " + Version, Commit: commit(), Seed: c.Seed,
		Level: scenario.Core, Environment: c.Env, Clock: "real", Created: wall.Format(time.RFC3339), NoBackendLog: true, Implementation: first.Describe(),
		Host: evidence.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()},
		Argv: append(append(program(), "certify-deployment", "--env", c.Env, "--namespace", c.Namespace, "--profile", c.Profile, "--seed", fmt.Sprint(c.Seed)),
			append(again, c.named()...)...)}
	return o, nil
}
