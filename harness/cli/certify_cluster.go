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
	client, err := c.connect(con.ctx, c.Env)
	if err != nil {
		return err
	}
	d := deployment{client: client, flags: c.clusterFlags, env: c.Env}
	names := c.laneNames()
	fmt.Fprintf(con.out, "seed %d\nprofile %s, environment %s (%s), lanes %s, evidence in %s\n", c.Seed, c.Profile, c.Env, client.Host(), strings.Join(names, ", "), c.Out)
	args := []string{"certify", "--env", c.Env, "--profile", c.Profile, "--seed", fmt.Sprint(c.Seed), "--level", c.Level, "--out", "/results", "--no-color",
		"--namespace", c.Namespace, "--inside", strings.Join(names, ",")}
	args = append(args, given("--focus", c.Focus, "--skip", c.Skip, "--context", c.Context, "--image", c.Image)...) // the last two for what reproduces it
	defer func() {
		if !c.Keep {
			if err := d.clear(context.WithoutCancel(con.ctx)); err != nil {
				fmt.Fprintln(con.err, "weir: not everything could be removed:", err)
			}
		}
	}()
	if err := d.lanes(con.ctx, names); err != nil {
		return d.failed(con, c.Out, err)
	}
	status, err := client.Run(con.ctx, cluster.Errand{Name: "weir-certify", Namespace: names[0], Image: c.image(c.Env), Account: certifyAccount, Component: certifyComponent,
		Args: args, Out: &untilReport{w: con.out}}, c.Out)
	if err != nil {
		return d.failed(con, c.Out, err)
	}
	if status != ExitPass {
		d.dump(con, c.Out)
	}
	return again(con, c.Out, status)
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
			ns := namespaceObject(name)
			if err := d.client.Apply(ctx, []cluster.Object{ns}); err != nil {
				return err
			}
			d.own = append(d.own, ns)
		} else if err := d.client.NeedNamespace(ctx, name); err != nil {
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

func namespaceObject(name string) cluster.Object {
	return cluster.Object{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": map[string]any{
		"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted", "app.kubernetes.io/part-of": "weir"}}}
}

// clear removes what the run has put there, and nothing else.
func (d *deployment) clear(ctx context.Context) error {
	rest := slices.DeleteFunc(slices.Clone(d.made), func(o cluster.Object) bool {
		meta, _ := o["metadata"].(map[string]any)
		return slices.ContainsFunc(d.own, func(ns cluster.Object) bool { return ns["metadata"].(map[string]any)["name"] == meta["namespace"] })
	})
	return errors.Join(d.client.Remove(ctx, rest, false), d.client.Remove(ctx, d.own, true))
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
		d.own = []cluster.Object{namespaceObject(ns)}
		err = client.Apply(con.ctx, d.own)
	} else {
		err = client.NeedNamespace(con.ctx, ns)
	}
	if err != nil {
		return err
	}
	d.spaces = []string{ns}
	defer func() {
		if err := d.clear(context.WithoutCancel(con.ctx)); err != nil {
			fmt.Fprintln(con.err, "weir: not everything could be removed:", err)
		}
	}()
	fmt.Fprintf(con.out, "seed %d\nprofile %s, environment %s (%s), namespace %s, evidence in %s\n", c.Seed, c.Profile, c.Env, client.Host(), ns, c.Out)
	args := []string{"certify-async", "--env", c.Env, "--inside", "--namespace", c.Namespace, "--profile", c.Profile, "--seed", fmt.Sprint(c.Seed), "--level", c.Level, "--out", "/results", "--no-color", "--parallel", fmt.Sprint(c.Parallel)}
	args = append(args, given("--focus", c.Focus, "--skip", c.Skip, "--durability", c.Durability)...)
	status, err := client.Run(con.ctx, cluster.Errand{Name: "weir-certify-async", Namespace: ns, Image: c.image(c.Env), Component: certifyComponent, Args: args, Out: &untilReport{w: con.out}}, c.Out)
	if err != nil {
		return d.failed(con, c.Out, err)
	}
	if status != ExitPass {
		d.dump(con, c.Out)
	}
	return again(con, c.Out, status)
}
