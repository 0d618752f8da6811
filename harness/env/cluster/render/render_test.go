package render_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/llm-weir/weir/harness/env/cluster/render"
)

// small is a kustomization of one pod with an account.
func small() fstest.MapFS {
	return fstest.MapFS{
		"base/kustomization.yaml": {Data: []byte("resources: [objects.yaml]\n")},
		"base/objects.yaml": {Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {serviceAccountName: a, containers: [{name: c, image: weir}]}\n" +
			"---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n")},
		"over/kustomization.yaml": {Data: []byte("namespace: ns\nresources: [../base]\nimages: [{name: weir, newName: registry/weir, newTag: '1'}]\n")},
	}
}

func at(o render.Object, path ...string) string {
	var v any = o
	for _, p := range path {
		switch m := v.(type) {
		case render.Object:
			v = m[p]
		case []any:
			v = m[0].(render.Object)[p]
		}
	}
	s, _ := v.(string)
	return s
}

func TestBuild(t *testing.T) {
	for _, c := range []struct {
		says             string
		o                render.Options
		namespace, image string
	}{
		{"the overlay's own choice", render.Options{}, "ns", "registry/weir:1"},
		{"another namespace", render.Options{Namespace: "m"}, "m", "registry/weir:1"},
		{"another tag", render.Options{Images: map[string]string{"registry/weir": "registry/weir:2"}}, "ns", "registry/weir:2"},
		{"a registry with a port", render.Options{Images: map[string]string{"registry/weir": "localhost:5000/w:2"}}, "ns", "localhost:5000/w:2"},
		{"a digest", render.Options{Images: map[string]string{"registry/weir": "localhost:5000/w@sha256:0123"}}, "ns", "localhost:5000/w@sha256:0123"},
	} {
		objects, err := render.Build(small(), "over", c.o)
		if err != nil || len(objects) != 2 {
			t.Errorf("%s: %d objects, %v", c.says, len(objects), err)
			continue
		}
		if at(objects[0], "kind") != "ServiceAccount" {
			t.Errorf("%s: %s comes before the account that it needs", c.says, at(objects[0], "kind"))
		}
		for _, o := range objects {
			if got := at(o, "metadata", "namespace"); got != c.namespace {
				t.Errorf("%s: namespace %q, want %q", c.says, got, c.namespace)
			}
		}
		if got := at(objects[1], "spec", "containers", "image"); got != c.image {
			t.Errorf("%s: image %q, want %q", c.says, got, c.image)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	broken := small()
	broken["base/kustomization.yaml"] = &fstest.MapFile{Data: []byte("resources: [nowhere.yaml]\n")}
	for _, c := range []struct {
		says    string
		files   fstest.MapFS
		overlay string
		o       render.Options
		want    string
	}{
		{"an overlay that is not there", small(), "nowhere", render.Options{}, "overlay nowhere"},
		{"a file that is not there", broken, "over", render.Options{}, "nowhere.yaml"},
		{"an image that could be any", small(), "over", render.Options{Images: map[string]string{"registry/weir": "localhost:5000/weir"}}, "a tag or a digest is needed"},
		{"an empty tag", small(), "over", render.Options{Images: map[string]string{"registry/weir": "weir:"}}, "a tag or a digest is needed"},
	} {
		if _, err := render.Build(c.files, c.overlay, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.says, err, c.want)
		}
	}
}
