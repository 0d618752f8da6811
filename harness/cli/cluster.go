package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/env/cluster"
	"github.com/llm-weir/weir/harness/env/cluster/render"
	"github.com/llm-weir/weir/harness/env/kind"
	"github.com/llm-weir/weir/manifests"
)

// Environments in a cluster.
const (
	envKind    = "kind"
	envCluster = "cluster"
)

// localImage is what make image makes.
const localImage = "weir:dev"

// clusterFlags say which cluster, and what runs there.
type clusterFlags struct {
	Kubeconfig string `type:"path" help:"Kubeconfig of the cluster; the current context of it is used unless --context names another one."`
	Context    string `help:"Context of the kubeconfig. Only one that you name is used, or the current one of a --kubeconfig that you name."`
	Namespace  string `default:"weir" help:"Namespace; it must be there unless the cluster is a kind one of ours."`
	Image      string `help:"Image of weir with its tag or digest; default: weir:dev in a kind cluster of ours, the published one elsewhere."`
	kindFlags
}

// kindFlags say which cluster of our own.
type kindFlags struct {
	ClusterName string `default:"weir" help:"Name of the kind cluster."`
	KindProgram string `default:"kind" env:"KIND" help:"Program kind."`
}

// kindDir is where the kubeconfigs of our own kind clusters are.
func kindDir() string { return filepath.Join(".weir", "kind") }

func (f kindFlags) kind(out io.Writer) kind.Cluster {
	return kind.Cluster{Name: f.ClusterName, Program: f.KindProgram, Dir: kindDir(), Out: out}
}

// image is what the pods run.
func (f clusterFlags) image(env string) string {
	return cmp.Or(f.Image, map[string]string{envKind: localImage, envCluster: "ghcr.io/llm-weir/weir:" + Version}[env])
}

// connect reaches the cluster that the flags and the environment name.
func (f clusterFlags) connect(ctx context.Context, env string) (*cluster.Client, error) {
	o := cluster.Options{Kubeconfig: f.Kubeconfig, Context: f.Context}
	if env == envKind {
		if f.Kubeconfig != "" || f.Context != "" {
			return nil, errors.New("--env kind is the cluster of weir cluster up: leave --kubeconfig and --context out, or use --env cluster")
		}
		o.Kubeconfig = f.kind(nil).Kubeconfig()
	}
	c, err := cluster.Connect(ctx, o)
	if err != nil && env == envKind {
		return nil, fmt.Errorf("%w (weir cluster up makes the kind cluster %q)", err, f.ClusterName)
	}
	return c, err
}

// argv are the flags as they were given.
func (f clusterFlags) argv() []string { return append(given("--namespace", f.Namespace), f.named()...) }

// overlay builds the objects of an overlay.
func (f clusterFlags) overlay(name, namespace, env string) ([]cluster.Object, error) {
	return render.Build(manifests.Files, name, render.Options{Namespace: namespace, Images: map[string]string{f.overlayImage(name): f.image(env)}})
}

// overlayImage is the name of weir's image after the overlay's own choice.
func (f clusterFlags) overlayImage(overlay string) string {
	if overlay == envCluster || overlay == "gpu" {
		return "ghcr.io/llm-weir/weir"
	}
	return "weir"
}

type clusterCmd struct {
	Up     clusterUpCmd     `cmd:"" help:"Create a kind cluster and load the image into it."`
	Load   clusterLoadCmd   `cmd:"" help:"Load an image of the engine into the kind cluster."`
	Deploy clusterDeployCmd `cmd:"" help:"Deploy the stack, and wait until it is ready."`
	Remove clusterRemoveCmd `cmd:"" help:"Remove what deploy has made."`
	Check  clusterCheckCmd  `cmd:"" help:"Ask the API server whether it would take every overlay (server-side dry run)."`
	Dump   clusterDumpCmd   `cmd:"" help:"Write objects, events and logs of namespaces into a folder."`
	Down   clusterDownCmd   `cmd:"" help:"Delete the kind cluster."`
}

// Help is the long help of the commands.
func (clusterCmd) Help() string {
	return `Examples:
  weir cluster up && weir cluster deploy          a kind cluster of our own, with the whole stack
  weir cluster deploy --env cluster --context prod --namespace weir
  weir cluster dump evidence --env cluster --context prod
  weir cluster down

The kubeconfig of the kind cluster is .weir/kind/NAME.kubeconfig; no other one is written.`
}

type clusterUpCmd struct {
	kindFlags
	Image      string `default:"weir:dev" help:"Image of weir with its tag, as docker images shows it."`
	NodeImage  string `env:"KIND_NODE_IMAGE" help:"Image of the node; default: kind's own, from a registry."`
	KindConfig string `env:"KIND_CONFIG" type:"path" help:"Config file of kind."`
	Bare       bool   `help:"Load no image."`
}

// Run makes the cluster.
func (c *clusterUpCmd) Run(con *console) error {
	k := c.kind(con.out)
	if err := k.Create(con.ctx, c.NodeImage, c.KindConfig); err != nil {
		return err
	}
	if !c.Bare {
		if err := k.Load(con.ctx, c.Image); err != nil {
			return err
		}
	}
	fmt.Fprintf(con.out, "kubeconfig: %s\n", k.Kubeconfig())
	return nil
}

// Help is the long help of the command.
func (clusterUpCmd) Help() string {
	return `Examples:
  make image && weir cluster up                   the cluster "weir", with the image weir:dev in it
  weir cluster up --cluster-name second --bare    another one, without an image
  KIND_NODE_IMAGE=kindest/node:v1.34.0 weir cluster up`
}

type clusterLoadCmd struct {
	kindFlags
	Image string `default:"weir:dev" help:"Image of weir with its tag, as docker images shows it."`
}

// Help is the long help of the command.
func (clusterLoadCmd) Help() string {
	return `Example:
  make image && weir cluster load                 after a change; weir cluster remove && weir cluster deploy starts pods of it`
}

// Run loads the image.
func (c *clusterLoadCmd) Run(con *console) error {
	return c.kind(con.out).Load(con.ctx, c.Image)
}

type clusterDownCmd struct{ kindFlags }

// Help is the long help of the command.
func (clusterDownCmd) Help() string {
	return `Example:
  weir cluster down --cluster-name second`
}

// Run deletes the cluster.
func (c *clusterDownCmd) Run(con *console) error { return c.kind(con.out).Delete(con.ctx) }

// targetFlags are those of the commands that work in either kind of cluster.
type targetFlags struct {
	clusterFlags
	Env string `enum:"kind,cluster" default:"kind" help:"kind: the cluster of weir cluster up; cluster: the one that --kubeconfig or --context names."`
}

// deployLimit is how long pods may take to be ready; images may have to be pulled.
const deployLimit = 5 * time.Minute

type clusterDeployCmd struct {
	targetFlags
	Overlay string `help:"Folder of manifests; default: that of --env."`
}

// Help is the long help of the command.
func (clusterDeployCmd) Help() string {
	return `Examples:
  weir cluster deploy                             into the kind cluster of weir cluster up
  weir cluster deploy --env cluster --context prod --namespace weir --image REGISTRY/weir:TAG
  weir cluster deploy --env cluster --context prod --overlay gpu`
}

// Run deploys.
func (c *clusterDeployCmd) Run(con *console) error {
	client, objects, err := c.target(con.ctx, c.Overlay)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(objects, func(o cluster.Object) bool { return o["kind"] == "Namespace" }) {
		if err := client.NeedNamespace(con.ctx, c.Namespace); err != nil {
			return err
		}
	}
	fmt.Fprintf(con.out, "%d objects to %s, namespace %s\n", len(objects), client.Host(), c.Namespace)
	if err := client.Apply(con.ctx, objects); err != nil {
		return err
	}
	if err := client.AwaitReady(con.ctx, c.Namespace, deployLimit); err != nil {
		return err
	}
	fmt.Fprintln(con.out, "ready")
	return nil
}

// target reaches the cluster and builds what belongs there.
func (f targetFlags) target(ctx context.Context, overlay string) (*cluster.Client, []cluster.Object, error) {
	client, err := f.connect(ctx, f.Env)
	if err != nil {
		return nil, nil, err
	}
	objects, err := f.overlay(cmp.Or(overlay, f.Env), f.Namespace, f.Env)
	return client, objects, err
}

type clusterRemoveCmd struct {
	targetFlags
	Overlay string `help:"Folder of manifests; default: that of --env."`
}

// Run removes what was deployed. A namespace and definitions stay: others may use them.
func (c *clusterRemoveCmd) Run(con *console) error {
	client, objects, err := c.target(con.ctx, c.Overlay)
	if err != nil {
		return err
	}
	return client.Remove(con.ctx, objects, false)
}

type clusterCheckCmd struct{ targetFlags }

// Run asks for a dry run of each overlay. What a dry run needs to be there first, namespaces and definitions, is applied where the cluster is ours.
func (c *clusterCheckCmd) Run(con *console) error {
	client, err := c.connect(con.ctx, c.Env)
	if err != nil {
		return err
	}
	var errs []error
	if c.Env == envKind {
		first, err := c.overlay(envKind, c.Namespace, c.Env)
		if err != nil {
			return err
		}
		first = slices.DeleteFunc(first, func(o cluster.Object) bool {
			return !slices.Contains([]any{"Namespace", "CustomResourceDefinition"}, o["kind"])
		})
		if err := client.Apply(con.ctx, first); err != nil {
			return err
		}
	}
	for _, name := range manifests.Overlays {
		objects, err := c.overlay(name, c.Namespace, c.Env)
		if err != nil {
			return err
		}
		skipped := 0
		if !client.Has(con.ctx, "monitoring.coreos.com/v1", "ServiceMonitor") {
			n := len(objects)
			objects = slices.DeleteFunc(objects, func(o cluster.Object) bool {
				v, _ := o["apiVersion"].(string)
				return strings.HasPrefix(v, "monitoring.coreos.com/")
			})
			skipped = n - len(objects)
		}
		if err := client.DryRun(con.ctx, objects); err != nil {
			errs = append(errs, fmt.Errorf("overlay %s: %w", name, err))
			continue
		}
		fmt.Fprintf(con.out, "overlay %-11s %d objects accepted", name, len(objects))
		if skipped > 0 {
			fmt.Fprintf(con.out, ", %d of kinds that the Prometheus operator defines and this cluster does not have left out", skipped)
		}
		fmt.Fprintln(con.out)
	}
	return errors.Join(errs...)
}

type clusterDumpCmd struct {
	targetFlags
	Dir        string   `arg:"" type:"path" help:"Folder to write to."`
	Namespaces []string `help:"Namespaces; default: --namespace."`
	Node       bool     `help:"Also what kind can export of the node."`
}

// Run writes everything down.
func (c *clusterDumpCmd) Run(con *console) error {
	client, err := c.connect(con.ctx, c.Env)
	if err != nil {
		return err
	}
	names := c.Namespaces
	if len(names) == 0 {
		names = []string{c.Namespace}
	}
	err = client.Dump(con.ctx, c.Dir, names...)
	if c.Node && c.Env == envKind {
		err = errors.Join(err, c.kind(con.out).Export(con.ctx, filepath.Join(c.Dir, "node")))
	}
	fmt.Fprintf(con.out, "objects, events and logs: %s\n", c.Dir)
	return err
}
