// Package manifests holds the files that deploy weir, or another router and weir's model servers, on Kubernetes.
//
//	crds        what a picker watches: InferencePool, InferenceObjective, InferenceModelRewrite
//	base        every part of the stack, from one image
//	kind        overlay: a kind cluster of our own
//	cluster     overlay: a cluster that is there, with our gateway
//	gpu         overlay: real vLLM on GPUs, Envoy, the llm-d router
//	public      component: Redis and Prometheus from public images
//	monitoring  for clusters with the Prometheus operator: monitors, alerts, dashboards
package manifests

import "embed"

// Files are kustomizations by folder.
//
//go:embed crds base kind cluster gpu public monitoring
var Files embed.FS

// Overlays are the folders that can be deployed as they are.
var Overlays = []string{"kind", "cluster", "gpu", "monitoring"}
