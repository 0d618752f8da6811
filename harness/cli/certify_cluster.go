package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/env/cluster"
	"github.com/llm-weir/weir/harness/env/remote"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/run"
	"github.com/llm-weir/weir/harness/sut"
)

// laneFlags say where pickers are certified in a cluster.
type laneFlags struct {
	Lanes  int      `default:"0" help:"In a cluster: namespaces to play scenarios in, one scenario in each at a time. The first is --namespace; further ones, NAMESPACE-2 and so on, are made and deleted. Default: 1, in a kind cluster of ours 4."`
	Inside []string `hidden:"" help:"Lanes, where this program runs in a pod of the first one."`
}

// certifyOverlay is what a lane needs, certifyAccount the account of the pod that plays, certifyComponent its label.
const (
	certifyOverlay   = "certify"
	certifyAccount   = "weir-certify"
	certifyComponent = "certify"
)

// inCluster tells whether an environment is in a cluster.
func inCluster(env string) bool { return env == envKind || env == envCluster }

// fromOutside deploys the lanes, sends a pod of this program there, and takes its evidence home.
func (c *certifyCmd) fromOutside(con *console) error {
	if c.given() || c.ReferenceProfile != "" || c.URL != "" || c.EPPAddr != "" {
		return errors.New("--env kind and cluster judge the picker that is deployed there: leave --epp, --sut, --url, --epp-addr and --reference-profile out")
	}
	if c.Keep {
		return errors.New("--keep leaves a stack of this machine up: in a cluster a run that fails leaves objects, events and logs beside its evidence")
	}
	client, err := c.connect(con.ctx, c.Env)
	if err != nil {
		return err
	}
	d := deployment{client: client, flags: c.clusterFlags, env: c.Env}
	names := c.laneNames()
	fmt.Fprintf(con.out, "seed %d\nprofile %s, environment %s (%s), lanes %s, evidence in %s\n", c.Seed, c.Profile, c.Env, client.Host(), strings.Join(names, ", "), c.Out)
	args := []string{"certify", "--env", c.Env, "--profile", c.Profile, "--seed", fmt.Sprint(c.Seed), "--level", c.Level, "--out", "/results", "--no-color",
		"--namespace", c.Namespace, "--inside", strings.Join(names, ",")}
	args = append(args, given("--focus", c.Focus, "--skip", c.Skip)...)
	args = append(args, c.named()...)
	defer d.clear(con)
	if err := d.lanes(con.ctx, names); err != nil {
		return d.failed(con, c.Out, err)
	}
	return d.send(con, cluster.Errand{Name: "weir-certify", Namespace: names[0], Account: certifyAccount, Args: args}, c.Out)
}

// laneNames are the namespaces of the lanes.
func (c *certifyCmd) laneNames() []string {
	n := c.Lanes
	if n <= 0 {
		n = map[string]int{envKind: 4, envCluster: 1}[c.Env]
	}
	first := c.Namespace
	if c.Env == envKind {
		first += "-certify" // the stack itself is in the other one
	}
	names := []string{first}
	for i := 2; i <= n; i++ {
		names = append(names, fmt.Sprintf("%s-%d", first, i))
	}
	return names
}

// fromInside is the system of a pod that plays in lanes.
func (c *certifyCmd) fromInside(ctx context.Context, p profile.Profile, o *run.Options) error {
	client, err := cluster.Connect(ctx, cluster.Options{})
	if err != nil {
		return err
	}
	who := sut.Implementation{Organization: "weir", Project: "reference picker", Version: Version}
	for _, f := range sut.Features() {
		who.Features = append(who.Features, string(f))
	}
	lanes, err := client.NewLanes(ctx, c.Inside, remote.Options{Dialect: p.Config, Names: p.Headers, Implementation: who})
	if err != nil {
		return err
	}
	o.Parallel, o.New = len(c.Inside), lanes.System
	return nil
}

// deployment is what a run has put into a cluster.
type deployment struct {
	client *cluster.Client
	flags  clusterFlags
	env    string
	made   []cluster.Object // what was applied
	own    []cluster.Object // namespaces that are ours to delete
	spaces []string
}

// lanes deploys everything that scenarios need, into each namespace.
func (d *deployment) lanes(ctx context.Context, names []string) error {
	for i, name := range names {
		if i > 0 || d.env == envKind {
			if err := d.makeNamespace(ctx, name); err != nil {
				return err
			}
		} else if err := d.client.NeedNamespace(ctx, name); err != nil {
			return err
		}
		if err := d.client.NeedUnused(ctx, name); err != nil {
			return err
		}
		d.spaces = append(d.spaces, name)
		objects, err := d.flags.overlay(certifyOverlay, name, d.env)
		if err != nil {
			return err
		}
		if d.env == envKind && i == 0 {
			crds, err := d.flags.overlay("crds", name, d.env)
			if err != nil {
				return err
			}
			objects = slices.Concat(crds, objects)
		}
		// Whoever plays is in the first one.
		for _, o := range objects {
			if meta, _ := o["metadata"].(map[string]any); o["kind"] == "RoleBinding" && meta["name"] == certifyAccount {
				o["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "name": certifyAccount, "namespace": names[0]}}
			}
		}
		d.made = append(d.made, objects...)
		if err := d.client.Apply(ctx, objects); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := d.client.AwaitReady(ctx, name, deployLimit); err != nil {
			return err
		}
	}
	return nil
}

// makeNamespace makes a namespace that is deleted with everything in it.
func (d *deployment) makeNamespace(ctx context.Context, name string) error {
	ns, err := d.client.MakeNamespace(ctx, name)
	if err == nil {
		d.own = append(d.own, ns)
	}
	return err
}

// clear removes what the run has put there, and nothing else.
func (d *deployment) clear(con *console) {
	ctx := context.WithoutCancel(con.ctx)
	rest := slices.DeleteFunc(slices.Clone(d.made), func(o cluster.Object) bool {
		meta, _ := o["metadata"].(map[string]any)
		return slices.ContainsFunc(d.own, func(ns cluster.Object) bool { return ns["metadata"].(map[string]any)["name"] == meta["namespace"] })
	})
	if err := errors.Join(d.client.Remove(ctx, rest, false), d.client.Remove(ctx, d.own, true)); err != nil {
		fmt.Fprintln(con.err, "weir: not everything could be removed:", err)
	}
}

// send has a pod of this program do something there, and takes the evidence home; what there is in the cluster is written down where it did not pass.
func (d *deployment) send(con *console, e cluster.Errand, out string) error {
	e.Image, e.Component, e.Out = d.flags.image(d.env), certifyComponent, &untilReport{w: con.out}
	status, err := d.client.Run(con.ctx, e, out)
	if err != nil {
		return d.failed(con, out, err)
	}
	if status != ExitPass {
		d.dump(con, out)
	}
	return again(con, out, status)
}

// dump writes what there is in the cluster beside the evidence.
func (d *deployment) dump(con *console, out string) {
	dir := filepath.Join(filepath.Dir(filepath.Clean(out)), filepath.Base(out)+"-cluster")
	if err := d.client.Dump(context.WithoutCancel(con.ctx), dir, d.spaces...); err != nil {
		fmt.Fprintln(con.err, "weir: objects, events and logs of the cluster:", err)
	}
	fmt.Fprintf(con.err, "objects, events and logs of the cluster: %s\n", dir)
}

// failed is a run that could not be made; what there is is written down before it is removed.
func (d *deployment) failed(con *console, out string, err error) error {
	if len(d.spaces) > 0 {
		d.dump(con, out)
	}
	return err
}

// untilReport passes on what a pod prints, but for its words about a report that is then made again here.
type untilReport struct {
	w    io.Writer
	over bool
}

// Write implements io.Writer; a line at a time comes.
func (u *untilReport) Write(p []byte) (int, error) {
	if u.over = u.over || bytes.HasPrefix(p, []byte("evidence and reports: ")); !u.over {
		return u.w.Write(p)
	}
	return len(p), nil
}

// again judges the evidence that came out of a cluster here, and writes the reports.
func again(con *console, dir string, status int) error {
	b, results, err := judged(dir, false)
	if err != nil {
		if status != ExitPass {
			return &exitError{status: status, text: "it ended there with status " + fmt.Sprint(status) + "; no evidence that could be judged came back: " + err.Error()}
		}
		return err
	}
	screen := newScreen(con.out, false)
	return finish(con, screen, b, results, dir, b.Manifest.Argv)
}

// fromOutside certifies the processor of the image in a pod of a cluster: there it runs under the limits of a pod and in its network, and what surrounds
// it is in the same pod.
func (c *certifyAsyncCmd) fromOutside(con *console) error {
	if c.Processor != "" || c.SUT != "" || c.RedisServer != "" {
		return errors.New("--env kind and cluster judge the processor of the image: leave --processor, --sut and --redis-server out")
	}
	client, err := c.connect(con.ctx, c.Env)
	if err != nil {
		return err
	}
	d := deployment{client: client, flags: c.clusterFlags, env: c.Env}
	ns := c.Namespace
	if c.Env == envKind {
		ns += "-async"
		err = d.makeNamespace(con.ctx, ns)
	} else {
		err = client.NeedNamespace(con.ctx, ns)
	}
	if err != nil {
		return err
	}
	d.spaces = []string{ns}
	defer d.clear(con)
	fmt.Fprintf(con.out, "seed %d\nprofile %s, environment %s (%s), namespace %s, evidence in %s\n", c.Seed, c.Profile, c.Env, client.Host(), ns, c.Out)
	args := []string{"certify-async", "--env", c.Env, "--inside", "--namespace", c.Namespace, "--profile", c.Profile, "--seed", fmt.Sprint(c.Seed), "--level", c.Level, "--out", "/results", "--no-color", "--parallel", fmt.Sprint(c.Parallel)}
	args = append(args, given("--focus", c.Focus, "--skip", c.Skip, "--durability", c.Durability)...)
	args = append(args, c.named()...)
	return d.send(con, cluster.Errand{Name: "weir-certify-async", Namespace: ns, Args: args}, c.Out)
}
