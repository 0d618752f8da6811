package manifests

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/kube"
)

type doc = map[string]any

// load parses every file; duplicate keys are errors of the parser.
func load(t *testing.T) map[string]doc {
	t.Helper()
	out := map[string]doc{}
	err := fs.WalkDir(Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := Files.ReadFile(name)
		if err != nil {
			return err
		}
		dec := yaml.NewDecoder(bytes.NewReader(text))
		var obj, more doc
		if err := dec.Decode(&obj); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
			t.Errorf("%s: more than one document (%v)", name, err)
		}
		if obj["apiVersion"] == nil || obj["kind"] == nil {
			t.Errorf("%s: no apiVersion or kind", name)
		}
		out[name] = obj
		return nil
	})
	if err != nil || len(out) < 10 {
		t.Fatalf("%d files, %v", len(out), err)
	}
	return out
}

// at follows keys (strings) and places (ints).
func at(t *testing.T, v any, keys ...any) any {
	t.Helper()
	for _, k := range keys {
		switch k := k.(type) {
		case string:
			m, _ := v.(doc)
			v = m[k]
		case int:
			l, _ := v.([]any)
			if k >= len(l) {
				t.Fatalf("%v: nothing at %d", keys, k)
			}
			v = l[k]
		}
		if v == nil {
			t.Fatalf("%v: nothing at %v", keys, k)
		}
	}
	return v
}

func texts(v any) []string {
	var out []string
	list, _ := v.([]any)
	for _, s := range list {
		out = append(out, s.(string))
	}
	return out
}

// TestRole: the role allows what the watcher does and nothing else.
func TestRole(t *testing.T) {
	allowed := map[string]bool{}
	for _, r := range at(t, load(t)["base/role.yaml"], "rules").([]any) {
		for _, g := range texts(at(t, r, "apiGroups")) {
			for _, res := range texts(at(t, r, "resources")) {
				for _, v := range texts(at(t, r, "verbs")) {
					allowed[g+"/"+res+" "+v] = true
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

// TestCRDs: each watched custom resource has a definition with a structural schema and a status subresource.
func TestCRDs(t *testing.T) {
	defined := map[string]bool{}
	for name, d := range load(t) {
		if path.Dir(name) != "crds" {
			continue
		}
		group, plural := at(t, d, "spec", "group").(string), at(t, d, "spec", "names", "plural").(string)
		defined[group+"/"+plural] = true
		if got := at(t, d, "metadata", "name"); got != plural+"."+group {
			t.Errorf("%s: name %v", name, got)
		}
		at(t, d, "spec", "versions", 0, "subresources", "status")
		structural(t, name+": schema", at(t, d, "spec", "versions", 0, "schema", "openAPIV3Schema").(doc))
	}
	for _, a := range kube.Accesses() {
		if strings.Contains(a.Group, "llm-d") || strings.HasPrefix(a.Group, "inference.") {
			if !defined[a.Group+"/"+a.Resource] {
				t.Errorf("no definition of %s/%s", a.Group, a.Resource)
			}
		}
	}
}

// structural: every node has a type, and required fields exist.
func structural(t *testing.T, where string, s doc) {
	typ, ok := s["type"].(string)
	if !ok {
		t.Errorf("%s: no type", where)
	}
	props, _ := s["properties"].(doc)
	for k, v := range props {
		structural(t, where+"."+k, v.(doc))
	}
	for _, r := range texts(s["required"]) {
		if props[r] == nil {
			t.Errorf("%s: required %s is not defined", where, r)
		}
	}
	if items, ok := s["items"].(doc); ok {
		structural(t, where+"[]", items)
	} else if typ == "array" {
		t.Errorf("%s: an array without items", where)
	}
	for _, k := range texts(s["x-kubernetes-list-map-keys"]) {
		items, _ := s["items"].(doc)
		if !slices.Contains(texts(items["required"]), k) {
			t.Errorf("%s: list key %s is not required", where, k)
		}
	}
	if extra, ok := s["additionalProperties"].(doc); ok {
		structural(t, where+"{}", extra)
	}
}

// TestBase: the parts of the deployment refer to each other, and its configuration is one that the picker takes.
func TestBase(t *testing.T) {
	all := load(t)
	var files []string
	for name := range all {
		if path.Dir(name) == "base" && path.Base(name) != "kustomization.yaml" {
			files = append(files, path.Base(name))
		}
	}
	slices.Sort(files)
	listed := texts(at(t, all["base/kustomization.yaml"], "resources"))
	slices.Sort(listed)
	if !slices.Equal(files, listed) {
		t.Errorf("kustomization lists %v, the folder holds %v", listed, files)
	}
	pod := at(t, all["base/deployment.yaml"], "spec", "template")
	account := at(t, all["base/serviceaccount.yaml"], "metadata", "name")
	if at(t, pod, "spec", "serviceAccountName") != account || at(t, all["base/rolebinding.yaml"], "subjects", 0, "name") != account {
		t.Error("the service account's name differs")
	}
	if at(t, all["base/rolebinding.yaml"], "roleRef", "name") != at(t, all["base/role.yaml"], "metadata", "name") {
		t.Error("the role's name differs")
	}
	if at(t, all["base/service.yaml"], "spec", "selector", "app") != at(t, pod, "metadata", "labels", "app") {
		t.Error("the service selects other pods")
	}
	if at(t, pod, "spec", "volumes", 0, "configMap", "name") != at(t, all["base/configmap.yaml"], "metadata", "name") {
		t.Error("the configuration's name differs")
	}
	contract, _ := epconfig.ContractNamed("")
	cfg, err := epconfig.Load("epp.yaml", []byte(at(t, all["base/configmap.yaml"], "data", "epp.yaml").(string)), contract)
	if err != nil || !cfg.FlowControl || len(cfg.Warnings) > 0 {
		t.Errorf("the configuration: %v %v", cfg.Warnings, err)
	}
}
