package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env/cluster"
	"github.com/llm-weir/weir/harness/env/cluster/errand"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/loadgen/openai"
	"github.com/llm-weir/weir/loadgen/plan"
	"github.com/llm-weir/weir/loadgen/runner"
)

// wholePlan is the requirement under which a shared load is judged: the load generator is honest.
const wholePlan = "BEN-27"

// share sends the load from inside of a cluster, and judges whether it was the planned one.
func (c *loadCmd) share(con *console, p plan.Plan) error {
	if c.Workers < 1 {
		return fmt.Errorf("--workers: must be positive, got %d", c.Workers)
	}
	if c.Vegeta != "" {
		return errors.New("--vegeta: the records of several workers go into a bundle: leave it out")
	}
	client, err := c.connect(con.ctx, c.Env)
	if err != nil {
		return err
	}
	if err := client.NeedNamespace(con.ctx, c.Namespace); err != nil {
		return err
	}
	text, err := os.ReadFile(c.Workload)
	if err != nil {
		return fmt.Errorf("workload: %w", err)
	}
	if c.Out == "" {
		c.Out = filepath.Join(".weir", fmt.Sprintf("load-%s-%d", clock.Wall().Format("20060102-150405"), c.Seed))
	}
	target := c.URL
	if target == "" {
		target = fmt.Sprintf("http://weir-gateway.%s.svc:8080", c.Namespace)
	}
	parts, err := os.MkdirTemp("", "weir-load-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(parts)
	fmt.Fprintf(con.out, "seed %d, plan %s, %d requests in %s to %s, from %d pods in %s of %s, evidence in %s\n", c.Seed, p.Hash()[:12], len(p.Requests), p.Duration, target, c.Workers,
		c.Namespace, client.Host(), c.Out)
	l := &cluster.Load{Client: client, Dir: parts, Errand: cluster.Errand{Name: "weir-load", Namespace: c.Namespace, Image: c.image(c.Env), Component: "load", Workers: c.Workers,
		CPU: "50m", Limit: p.Duration + c.Timeout + 10*time.Minute, Out: con.out, Files: map[string]string{"workload.yaml": string(text)},
		Args: []string{"load", errand.Files + "/workload.yaml", "--url", target, "--model", c.Model, "--seed", fmt.Sprint(c.Seed), "--timeout", c.Timeout.String(), "--shards", fmt.Sprint(c.Workers)}}}
	o := c.session(p, l)
	screen := newScreen(con.out, false)
	o.OnScenario = screen.scenario
	return play(con, o, screen, c.Out, o.Manifest.Argv)
}

// fromHere is a path as somebody in this folder writes it.
func fromHere(path string) string {
	here, err := os.Getwd()
	if err == nil {
		if rel, err := filepath.Rel(here, path); err == nil && filepath.IsLocal(rel) {
			return rel
		}
	}
	return path
}

// session is a run of one scenario: the load.
func (c *loadCmd) session(p plan.Plan, l *cluster.Load) run.Options {
	states := map[string]string{}
	for i := range c.Workers {
		states[cluster.Mark(i)] = p.Hash()
	}
	sc := scenario.Compiled{Name: p.Name, Title: "A load that " + strconv.Itoa(c.Workers) + " workers share", Level: scenario.Core,
		Script: sut.Script{Scenario: p.Name, Steps: []sut.Step{{Op: sut.OpLoad, Mark: "load", Plan: &p}}},
		Checks: []checks.Spec{{Check: "planned", Requirement: wholePlan, Count: len(p.Requests), States: states}}}
	wall := clock.Wall().UTC()
	return run.Options{Profile: profile.Profile{Name: profile.Default}, Rows: rows(), Dir: c.Out, Scenarios: []scenario.Compiled{sc}, New: func() sut.System { return l },
		Limit: l.Errand.Limit, Manifest: evidence.Manifest{RunID: fmt.Sprintf("load-%s-%d-%s", c.Env, c.Seed, wall.Format("20060102T150405Z")), Tool: "weir " + Version, Commit: commit(), Seed: c.Seed,
			Level: scenario.Core, Environment: c.Env, Clock: "real", Created: wall.Format(time.RFC3339), NoBackendLog: true,
			Argv: append(append(program(), "load", fromHere(c.Workload), "--env", c.Env, "--workers", fmt.Sprint(c.Workers), "--seed", fmt.Sprint(c.Seed), "--model", c.Model, "--timeout", c.Timeout.String()),
				append(given("--url", c.URL), c.clusterFlags.argv()...)...),
			Host: evidence.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}}}
}

// work is what a pod of a shared load does: its part of the plan, from the instant that it is told on.
func (c *loadCmd) work(con *console, whole plan.Plan) error {
	from, ok := con.ctx.Value(errandKey{}).(*errand.Server)
	if !ok {
		return errors.New("--shards is for the pods of weir load --workers")
	}
	index := 0
	if text := os.Getenv("JOB_COMPLETION_INDEX"); text != "" {
		var err error
		if index, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("JOB_COMPLETION_INDEX: %w", err)
		}
	}
	p := whole.Shard(index, c.Shards)
	if err := reachable(con.ctx, c.URL); err != nil {
		return err
	}
	fmt.Fprintf(con.out, "worker %d of %d: %d of %d requests\n", index, c.Shards, len(p.Requests), len(whole.Requests))
	at, err := from.AwaitBegin(con.ctx)
	if err != nil {
		return err
	}
	clk := clock.NewReal()
	share := cluster.Share{Plan: whole.Hash()}
	clock.Sleep(con.ctx, time.Duration(at-clock.Wall().UnixNano()))
	share.LateNs = clock.Wall().UnixNano() - at
	var mu sync.Mutex
	var records []evidence.Client
	begun := clk.Now()
	sum, err := runner.Run(con.ctx, p, runner.Config{Sender: &openai.Sender{Client: openai.NewClient(512), Clock: clk, BaseURL: c.URL}, Scenario: p.Name, Model: c.Model,
		Timeout: c.Timeout, OnStart: func() { begun = clk.Now() }, OnDone: func(r evidence.Client) {
			mu.Lock()
			defer mu.Unlock()
			records = append(records, r)
		}})
	share.Sent = len(records)
	switch {
	case err != nil:
		share.Invalid = err.Error()
	case !sum.Valid:
		share.Invalid = sum.Invalid
	case time.Duration(share.LateNs) > runner.DefaultMaxBehind:
		share.Invalid = fmt.Sprintf("it began %s after it was to", time.Duration(share.LateNs))
	}
	for i := range records {
		rebase(&records[i], int64(begun))
	}
	sort.SliceStable(records, func(i, j int) bool { return records[i].Intended < records[j].Intended })
	return errors.Join(c.leave(records, share), err, con.ctx.Err())
}

// rebase makes instants count from the start of the load.
func rebase(c *evidence.Client, begun int64) {
	for _, t := range []*int64{&c.Intended, &c.Sent, &c.Headers, &c.FirstToken, &c.LastToken, &c.End} {
		if *t != evidence.Never {
			*t -= begun
		}
	}
	for i := range c.TokenTimes {
		c.TokenTimes[i] -= begun
	}
}

// leave writes what a worker has to say where it is fetched from.
func (c *loadCmd) leave(records []evidence.Client, s cluster.Share) error {
	own := *c
	own.Out, own.Vegeta = filepath.Join(errand.Results, cluster.RecordsFile), ""
	if err := own.write(clock.NewReal(), records); err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(errand.Results, cluster.ShareFile), text, 0o644)
}
