package kind

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake is a program kind that answers as it is told to.
func fake(t *testing.T, script string) Cluster {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "kind")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	docker := filepath.Join(dir, "docker")
	if err := os.WriteFile(docker, []byte("#!/bin/sh\n[ \"$1\" != image ] || [ \"$3\" = weir:dev ]\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	return Cluster{Name: "w", Program: program, Dir: filepath.Join(dir, "configs")}
}

// TestCreate: kind is told where the kubeconfig goes, and a cluster that is there is left alone.
func TestCreate(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	c := fake(t, `echo "$@" >>`+log+"\n"+`[ "$1" != get ] || echo other`)
	if err := c.Create(t.Context(), "node:1", "k.yaml"); err != nil {
		t.Fatal(err)
	}
	said, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(said), "create cluster --name w --kubeconfig "+c.Kubeconfig()+" --wait 180s --image node:1 --config k.yaml") {
		t.Errorf("%s %v", said, err)
	}
	there := fake(t, "echo w")
	if err := there.Create(t.Context(), "", ""); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a cluster that is there: %v", err)
	}
}

// TestFailures: what goes wrong is named with the next step, and nothing half made is left.
func TestFailures(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for _, c := range []struct{ script, want string }{
		{`[ "$1" != create ] || { echo 'ERROR: failed to pull image "kindest/node:v1"' >&2; exit 1; }`, "KIND_NODE_IMAGE"},
		{`[ "$1" != create ] || { echo 'Bind for 127.0.0.1:30080 failed: port is already allocated' >&2; exit 1; }`, "a port of the node is in use"},
		{`[ "$1" != create ] || { echo 'something else' >&2; exit 1; }`, "something else"},
	} {
		k := fake(t, `echo "$@" >>`+log+"\n"+c.script)
		if err := k.Create(t.Context(), "", ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.script, err)
		}
		if said, _ := os.ReadFile(log); !strings.Contains(string(said), "delete cluster --name w") {
			t.Errorf("%s: what was begun is left: %s", c.script, said)
		}
	}
	k := fake(t, "")
	k.Program = filepath.Join(t.TempDir(), "nothing")
	if err := k.Load(t.Context(), "weir:dev"); err == nil || !strings.Contains(err.Error(), "make bin/kind") {
		t.Errorf("no program: %v", err)
	}
	if err := fake(t, "").Load(t.Context(), "weir:other"); err == nil || !strings.Contains(err.Error(), "make image IMAGE=weir:other") {
		t.Errorf("no image: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if err := Engine(context.Background()); err == nil || !strings.Contains(err.Error(), "no docker") {
		t.Errorf("no engine: %v", err)
	}
}
