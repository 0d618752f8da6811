// Package manifests holds the YAML files that put the reference into a cluster, so that the one binary carries them along.
package manifests

import "embed"

// Files are the folders crds (CustomResourceDefinitions) and base (the picker; `kubectl apply -k`).
//
//go:embed crds/*.yaml base/*.yaml
var Files embed.FS
