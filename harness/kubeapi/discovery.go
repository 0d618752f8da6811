package kubeapi

import (
	"net/http"
	"runtime"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// discover answers everything that is no resource: what is served, the version, and whether the server is up. It knows only the
// plain form of discovery; a client that asks for the aggregated one sees that by the media type of the answer.
func (s *Server) discover(w http.ResponseWriter, r *http.Request) {
	path := "/" + strings.Trim(r.URL.Path, "/")
	if r.Method != http.MethodGet {
		if s.document(path) == nil {
			fail(w, unknownPath(r))
		} else {
			e := apierrors.NewMethodNotSupported(schema.GroupResource{}, strings.ToLower(r.Method))
			fail(w, e)
		}
		return
	}
	switch path {
	case "/healthz", "/livez", "/readyz":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok"))
		return
	}
	doc := s.document(path)
	if doc == nil {
		fail(w, unknownPath(r))
		return
	}
	reply(w, http.StatusOK, doc)
}

func unknownPath(r *http.Request) *apierrors.StatusError {
	e := apierrors.NewGenericServerResponse(http.StatusNotFound, strings.ToLower(r.Method), schema.GroupResource{}, "", "", 0, false)
	e.ErrStatus.Message = "the server could not find the requested resource: " + r.URL.Path
	return e
}

// document is the discovery document of a path; nil if there is none.
func (s *Server) document(path string) any {
	switch path {
	case "/version":
		return version.Info{Major: "1", Minor: "34", GitVersion: "v1.34.0+weir", GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH}
	case "/api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{stable},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: s.addr}}}
	case "/apis":
		return metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: s.groups()}
	}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return s.resourceList(schema.GroupVersion{Version: parts[1]})
	case len(parts) == 2 && parts[0] == "apis":
		for _, g := range s.groups() {
			if g.Name == parts[1] {
				g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
				return g
			}
		}
	case len(parts) == 3 && parts[0] == "apis":
		return s.resourceList(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	return nil
}

// groups are the named groups, each with its one version.
func (s *Server) groups() []metav1.APIGroup {
	var out []metav1.APIGroup
	for _, r := range s.served() {
		if r.Group == "" || slices.ContainsFunc(out, func(g metav1.APIGroup) bool { return g.Name == r.Group }) {
			continue
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: r.apiVersion(), Version: r.Version}
		out = append(out, metav1.APIGroup{Name: r.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	return out
}

// resourceList lists what a group serves in a version; nil if that is nothing.
func (s *Server) resourceList(gv schema.GroupVersion) any {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, r := range s.served() {
		if r.Group != gv.Group || r.Version != gv.Version {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: r.Plural, SingularName: strings.ToLower(r.Kind), Namespaced: true, Kind: r.Kind,
			ShortNames: r.Short, Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}})
		if r.Status {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: r.Plural + "/status", Namespaced: true, Kind: r.Kind, Verbs: metav1.Verbs{"get", "patch", "update"}})
		}
	}
	if len(list.APIResources) == 0 {
		return nil
	}
	return list
}
