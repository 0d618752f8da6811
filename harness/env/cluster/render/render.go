// Package render builds the deployment files into the objects that a cluster gets, with kustomize and in memory.
//
//	files, overlay --\
//	                  kustomize --> objects, in the order in which they are to be applied
//	namespace, images /
package render

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Options are what differs from one deployment to the next.
type Options struct {
	Namespace string            // "": the overlay's
	Images    map[string]string // by the name after the overlay's own choice: NAME[:TAG] or NAME@DIGEST
}

// Object is a Kubernetes object as JSON has it.
type Object = map[string]any

// files is where the files lie for kustomize, entry the kustomization around the overlay.
const (
	filesRoot = "/manifests"
	entry     = "/deployment"
)

// Build gives the objects of an overlay, a folder of files.
func Build(files fs.FS, overlay string, o Options) ([]Object, error) {
	disk := filesys.MakeFsInMemory()
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		return disk.WriteFile(path.Join(filesRoot, name), content)
	})
	if err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	around, err := kustomization(overlay, o)
	if err != nil {
		return nil, err
	}
	if err := disk.WriteFile(path.Join(entry, "kustomization.yaml"), around); err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // namespaces, definitions and accounts before what needs them
	built, err := krusty.MakeKustomizer(options).Run(disk, entry)
	if err != nil {
		return nil, fmt.Errorf("manifests: overlay %s: %w", overlay, err)
	}
	var out []Object
	for _, r := range built.Resources() {
		m, err := r.Map()
		if err != nil {
			return nil, fmt.Errorf("manifests: overlay %s: %s: %w", overlay, r.CurId(), err)
		}
		out = append(out, m)
	}
	return out, nil
}

// kustomization is what a user would write around the overlay.
func kustomization(overlay string, o Options) ([]byte, error) {
	k := types.Kustomization{Resources: []string{"../" + path.Join(path.Base(filesRoot), overlay)}, Namespace: o.Namespace}
	for _, name := range slices.Sorted(maps.Keys(o.Images)) {
		image, err := parseImage(o.Images[name])
		if err != nil {
			return nil, err
		}
		image.Name = name
		k.Images = append(k.Images, image)
	}
	return yaml.Marshal(k)
}

// parseImage reads a reference; one without a tag or digest could be anything.
func parseImage(ref string) (types.Image, error) {
	if name, digest, ok := strings.Cut(ref, "@"); ok {
		return types.Image{NewName: name, Digest: digest}, nil
	}
	// A colon before the last slash belongs to the registry's port.
	at := strings.LastIndexByte(ref, ':')
	if at <= strings.LastIndexByte(ref, '/') || at == len(ref)-1 {
		return types.Image{}, fmt.Errorf("image %q: a tag or a digest is needed, such as %s:1.0", ref, ref)
	}
	return types.Image{NewName: ref[:at], NewTag: ref[at+1:]}, nil
}
