// Package manifests holds the files that deploy weir, or another router and weir's model servers, on Kubernetes.
//
//	crds        what a picker watches: InferencePool, InferenceObjective, InferenceModelRewrite
//	crds-legacy objectives and rewrites in their older group
//	base        every part of the stack, from one image
//	kind        overlay: a kind cluster of our own
//	cluster     overlay: a cluster that is there, with our gateway
//	gpu         overlay: real vLLM on GPUs, Envoy, the llm-d router
//	certify     overlay: a namespace in which a picker is certified, scenario by scenario
//	access      what the pod that judges a picker needs beside it
//	inspect     what the pod that judges the whole deployment needs beside it
//	public      component: Redis and Prometheus from public images
//	monitoring  for clusters with the Prometheus operator: monitors, alerts, dashboards
package manifests

import "embed"

// Files are kustomizations by folder.
//
//go:embed crds crds-legacy base kind cluster gpu certify access inspect public monitoring
var Files embed.FS

// Overlays are the folders that can be deployed as they are.
var Overlays = []string{"crds-legacy", "kind", "cluster", "gpu", "certify", "inspect", "monitoring"}
