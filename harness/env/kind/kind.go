// Package kind makes, fills and deletes kind clusters of our own (hack/decisions/0011).
//
//	kind create --> a node in a container --> kubeconfig in a file of its own
//	docker image --kind load--> the node
//
// The user's own kubeconfig is never written.
package kind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Cluster is one cluster, by its name.
type Cluster struct {
	Name    string
	Program string    // kind
	Dir     string    // for its kubeconfig
	Out     io.Writer // what kind prints
}

// Kubeconfig is the file that leads to the cluster.
func (c Cluster) Kubeconfig() string { return filepath.Join(c.Dir, c.Name+".kubeconfig") }

// Engine says what is wrong if no container engine answers.
func Engine(ctx context.Context) error {
	if _, err := exec.LookPath("docker"); err != nil {
		return errors.New("there is no docker on the PATH, and kind's nodes are containers: install an engine, or use a cluster that is there (--env cluster --kubeconfig FILE)")
	}
	if text, err := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").CombinedOutput(); err != nil {
		return fmt.Errorf("no container engine answers: %s (start one, such as systemctl start docker)", strings.TrimSpace(string(text)))
	}
	return nil
}

// Create makes the cluster and waits until its node is ready. image is the node's ("": kind's own choice, from a registry), config a file of kind's
// ("": none). A cluster of this name that is there already is an error: nobody knows what is in it.
func (c Cluster) Create(ctx context.Context, image, config string) error {
	if err := Engine(ctx); err != nil {
		return err
	}
	there, err := c.Exists(ctx)
	if err != nil {
		return err
	}
	if there {
		return fmt.Errorf("a kind cluster %q is there already: use it as it is, delete it with weir cluster down --cluster-name %s, or choose another --cluster-name", c.Name, c.Name)
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	args := []string{"create", "cluster", "--name", c.Name, "--kubeconfig", c.Kubeconfig(), "--wait", "180s"}
	if image != "" {
		args = append(args, "--image", image)
	}
	if config != "" {
		args = append(args, "--config", config)
	}
	if err := c.kind(ctx, args...); err != nil {
		// What kind has begun is not left behind; how far it came is in what it printed.
		return errors.Join(err, c.Delete(context.WithoutCancel(ctx)))
	}
	return nil
}

// Exists tells whether there is such a cluster.
func (c Cluster) Exists(ctx context.Context) (bool, error) {
	text, err := c.ask(ctx, "get", "clusters")
	return slices.Contains(strings.Fields(text), c.Name), err
}

// Load brings an image of the engine into the node.
func (c Cluster) Load(ctx context.Context, image string) error {
	if err := Engine(ctx); err != nil {
		return err
	}
	if _, err := exec.CommandContext(ctx, "docker", "image", "inspect", image).Output(); err != nil {
		return fmt.Errorf("the engine has no image %s: build it first (make image IMAGE=%s)", image, image)
	}
	return c.kind(ctx, "load", "docker-image", "--name", c.Name, image)
}

// Export writes the logs of the node and everything in it below dir.
func (c Cluster) Export(ctx context.Context, dir string) error {
	return c.kind(ctx, "export", "logs", "--name", c.Name, dir)
}

// Delete removes the cluster and its kubeconfig; one that is not there is no error.
func (c Cluster) Delete(ctx context.Context) error {
	err := c.kind(ctx, "delete", "cluster", "--name", c.Name, "--kubeconfig", c.Kubeconfig())
	if rerr := os.Remove(c.Kubeconfig()); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// kind runs the program, and passes on what it prints.
func (c Cluster) kind(ctx context.Context, args ...string) error {
	var kept bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Program, args...)
	cmd.Stdout, cmd.Stderr = &kept, &kept
	if c.Out != nil {
		cmd.Stdout = io.MultiWriter(c.Out, &kept)
		cmd.Stderr = cmd.Stdout
	}
	return c.explain(args, cmd.Run(), kept.String())
}

// ask runs the program and gives what it prints.
func (c Cluster) ask(ctx context.Context, args ...string) (string, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Program, args...)
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	return out.String(), c.explain(args, err, said.String())
}

// explain words how a call has failed.
func (c Cluster) explain(args []string, err error, said string) error {
	what := "kind " + strings.Join(args[:2], " ")
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s: there is no program %s: make bin/kind builds it, or name it with --kind-program", what, c.Program)
	case strings.Contains(said, "failed to pull image"), strings.Contains(said, "manifest unknown"), strings.Contains(said, "no such host"):
		return fmt.Errorf("%s: the node image cannot be pulled: name one that is there with KIND_NODE_IMAGE: %w: %s", what, err, last(said))
	case strings.Contains(said, "port is already allocated"), strings.Contains(said, "address already in use"):
		return fmt.Errorf("%s: a port of the node is in use on this machine: end whoever has it, or leave it out of the config: %w: %s", what, err, last(said))
	}
	return fmt.Errorf("%s: %w: %s", what, err, last(said))
}

// last is the end of a text.
func last(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 2000 {
		s = "..." + s[len(s)-2000:]
	}
	return s
}
