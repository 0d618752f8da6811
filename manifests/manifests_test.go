// Package manifests_test builds every overlay and looks at what comes out:
//
//	policy_test.go    rules that every deployment keeps, each with a change that breaks it
//	crds_test.go      the schemas of the definitions, and samples that they take and refuse
//	configs_test.go   the configurations and flags inside, read by what will read them
//	metrics_test.go   alerts and dashboards against the metrics that are published
package manifests_test

import (
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/harness/cli"
	"github.com/llm-weir/weir/harness/env/cluster/render"
	"github.com/llm-weir/weir/manifests"
	"github.com/llm-weir/weir/reference/kube"
)

// TestParts: the base holds one of each part, and every overlay what its README line says.
func TestParts(t *testing.T) {
	for overlay, want := range map[string][]string{
		"base":       {"Deployment weir-gateway", "Deployment weir-picker", "Deployment weir-processor", "Deployment weir-prometheus", "Deployment weir-redis", "Deployment weir-sim-vllm"},
		"kind":       {"Namespace weir", "CustomResourceDefinition inferencepools.inference.networking.k8s.io", "Deployment weir-sim-vllm", "InferenceObjective interactive"},
		"cluster":    {"Deployment weir-sim-vllm", "Role weir-prometheus"},
		"gpu":        {"Deployment weir-vllm", "Deployment weir-gateway", "Deployment weir-picker", "Deployment weir-processor", "Namespace weir-gpu"},
		"certify":    {"Deployment weir-picker", "Deployment weir-sim-vllm", "Role weir-certify", "NetworkPolicy weir-certify-picker"},
		"monitoring": {"PodMonitor weir-model-servers", "ServiceMonitor weir-picker", "PrometheusRule weir", "ConfigMap weir-dashboard-share"},
	} {
		all := build(t, overlay)
		for _, w := range want {
			kind, is, _ := strings.Cut(w, " ")
			if all.named(kind, is) == nil {
				t.Errorf("%s has no %s", overlay, w)
			}
		}
	}
	base := build(t, "base")
	for _, w := range base.workloads() {
		for _, c := range w.containers() {
			if text(c, "image") != "weir" {
				t.Errorf("base: %s is not of the one image but of %s", title(w.object), text(c, "image"))
			}
		}
	}
	if all := build(t, "cluster"); all.named("Namespace", "weir") != nil || len(all.of("CustomResourceDefinition")) > 0 {
		t.Error("the cluster overlay makes what belongs to the cluster")
	}
}

// TestPlaces: the namespace and the image of a run reach everything.
func TestPlaces(t *testing.T) {
	for _, overlay := range []string{"kind", "cluster", "gpu"} {
		image := "ghcr.io/llm-weir/weir"
		if overlay == "kind" {
			image = "weir"
		}
		const digest = "registry:5000/w@sha256:0123456789012345678901234567890123456789012345678901234567890123"
		built, err := render.Build(manifests.Files, overlay, render.Options{Namespace: "elsewhere", Images: map[string]string{image: digest}})
		if err != nil {
			t.Fatal(err)
		}
		all := objects(built)
		for _, r := range policy {
			if found := r.check(all); len(found) > 0 {
				t.Errorf("%s: %s:\n%s", overlay, r.name, found)
			}
		}
		if got := text(all.named("Deployment", "weir-processor"), "spec", "template", "spec", "containers", 0, "image"); got != digest {
			t.Errorf("%s: image %q", overlay, got)
		}
		if got := text(all.named("Deployment", "weir-processor"), "metadata", "namespace"); got != "elsewhere" {
			t.Errorf("%s: namespace %q", overlay, got)
		}
	}
}

// TestVersion: the overlays for clusters take the image of this version.
func TestVersion(t *testing.T) {
	for _, overlay := range []string{"cluster", "gpu"} {
		if got := text(build(t, overlay).named("Deployment", "weir-processor"), "spec", "template", "spec", "containers", 0, "image"); got != "ghcr.io/llm-weir/weir:"+cli.Version {
			t.Errorf("%s: image %q, version %s", overlay, got, cli.Version)
		}
	}
}

// TestRole: the picker's role allows what the watcher does and nothing else.
func TestRole(t *testing.T) {
	allowed := map[string]bool{}
	for _, r := range list(build(t, "base").named("Role", "weir-picker"), "rules") {
		for _, g := range list(r, "apiGroups") {
			for _, res := range list(r, "resources") {
				for _, v := range list(r, "verbs") {
					allowed[g.(string)+"/"+res.(string)+" "+v.(string)] = true
				}
			}
		}
	}
	for _, a := range kube.Accesses() {
		for _, v := range a.Verbs {
			key := a.Group + "/" + a.Resource + " " + v
			if !allowed[key] {
				t.Errorf("the role lacks %s", key)
			}
			delete(allowed, key)
		}
	}
	for key := range allowed {
		t.Errorf("the role allows %s, which nobody needs", key)
	}
}

// TestFiles: every file can be read, is used by the kustomization beside it, and no key is there twice.
func TestFiles(t *testing.T) {
	used := map[string]bool{}
	var names []string
	err := fs.WalkDir(manifests.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		names = append(names, name)
		content, err := manifests.Files.ReadFile(name)
		if err != nil {
			return err
		}
		for dec := yaml.NewDecoder(bytes.NewReader(content)); ; {
			var o object
			if err := dec.Decode(&o); err != nil {
				if err.Error() != "EOF" {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
			if path.Base(name) != "kustomization.yaml" {
				continue
			}
			resources := append(list(o, "resources"), list(o, "components")...)
			for _, p := range list(o, "patches") {
				resources = append(resources, field(p, "path"))
			}
			for _, g := range list(o, "configMapGenerator") {
				resources = append(resources, list(g, "files")...)
			}
			for _, r := range resources {
				used[path.Join(path.Dir(name), r.(string))] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		folder := path.Dir(n)
		switch {
		case path.Base(n) != "kustomization.yaml":
			if !used[n] {
				t.Errorf("%s is used by nobody", n)
			}
		case !used[folder] && !slices.Contains(manifests.Overlays, folder):
			t.Errorf("%s is neither an overlay nor part of one", folder)
		}
	}
}
