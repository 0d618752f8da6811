package kubeapi

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is one kind of object that is served.
type Resource struct {
	Group   string // "" is the core group
	Version string
	Plural  string
	Kind    string
	Short   []string
	Custom  bool     // defined by a CRD: an update must name the version it replaces
	Status  bool     // has the subresource status
	Fields  []string // that can be selected by beside name and namespace
}

// The names of the resources, as Resource.Name gives them.
const (
	Pods             = "pods"
	Leases           = "leases.coordination.k8s.io"
	Pools            = "inferencepools.inference.networking.k8s.io"
	Objectives       = "inferenceobjectives.llm-d.ai"
	Rewrites         = "inferencemodelrewrites.llm-d.ai"
	LegacyObjectives = "inferenceobjectives.inference.networking.x-k8s.io"
	LegacyRewrites   = "inferencemodelrewrites.inference.networking.x-k8s.io"
)

// The groups and versions.
const (
	poolGroup   = "inference.networking.k8s.io"
	modelGroup  = "llm-d.ai"
	legacyGroup = "inference.networking.x-k8s.io"
	leaseGroup  = "coordination.k8s.io"
	stable      = "v1"
	alpha       = "v1alpha2"
)

// resources are all that is served.
var resources = []*Resource{
	{Version: stable, Plural: "pods", Kind: "Pod", Short: []string{"po"}, Status: true, Fields: []string{"spec.nodeName", "status.podIP", "status.phase"}},
	{Group: leaseGroup, Version: stable, Plural: "leases", Kind: "Lease"},
	{Group: poolGroup, Version: stable, Plural: "inferencepools", Kind: "InferencePool", Short: []string{"infpool"}, Custom: true, Status: true},
	{Group: modelGroup, Version: alpha, Plural: "inferenceobjectives", Kind: "InferenceObjective", Custom: true, Status: true},
	{Group: modelGroup, Version: alpha, Plural: "inferencemodelrewrites", Kind: "InferenceModelRewrite", Custom: true, Status: true},
	{Group: legacyGroup, Version: alpha, Plural: "inferenceobjectives", Kind: "InferenceObjective", Custom: true, Status: true},
	{Group: legacyGroup, Version: alpha, Plural: "inferencemodelrewrites", Kind: "InferenceModelRewrite", Custom: true, Status: true},
}

// Name is the resource's full name: "pods", "inferencepools.inference.networking.k8s.io".
func (r *Resource) Name() string { return r.groupResource().String() }

func (r *Resource) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Plural}
}

func (r *Resource) apiVersion() string {
	return schema.GroupVersion{Group: r.Group, Version: r.Version}.String()
}

func resourceNamed(name string) *Resource {
	return find(func(r *Resource) bool { return r.Name() == name })
}

func find(f func(*Resource) bool) *Resource {
	if i := slices.IndexFunc(resources, f); i >= 0 {
		return resources[i]
	}
	return nil
}

// served are the resources whose definition is installed.
func (s *Server) served() []*Resource {
	return slices.DeleteFunc(slices.Clone(resources), func(r *Resource) bool { return slices.Contains(s.cfg.Absent, r.Name()) })
}

// route is what a path below a group's version names.
type route struct {
	resource    *Resource
	namespace   string // "": all
	name        string // "": the collection
	subresource string // "" or "status"
}

// find reads a path into a route; false if it names nothing that is served.
func (s *Server) route(path string) (route, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := ""
	switch {
	case len(parts) > 3 && parts[0] == "apis":
		group, parts = parts[1], parts[2:]
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[1:]
	default:
		return route{}, false
	}
	version, rest := parts[0], parts[1:]
	var rt route
	if rest[0] == "namespaces" && len(rest) > 2 {
		rt.namespace, rest = rest[1], rest[2:]
	}
	rt.resource = find(func(r *Resource) bool { return r.Group == group && r.Version == version && r.Plural == rest[0] })
	if rt.resource == nil || slices.Contains(s.cfg.Absent, rt.resource.Name()) || slices.Contains(parts, "") {
		return route{}, false
	}
	if rest = rest[1:]; len(rest) > 0 {
		rt.name, rest = rest[0], rest[1:]
	}
	if len(rest) > 0 {
		rt.subresource, rest = rest[0], rest[1:]
	}
	// A single object is found in its namespace only.
	ok := len(rest) == 0 && (rt.name == "" || rt.namespace != "") && (rt.subresource == "" || rt.subresource == "status" && rt.resource.Status)
	return rt, ok
}

func (rt route) key() key { return key{rt.resource.Name(), rt.namespace, rt.name} }
