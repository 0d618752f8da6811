package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// api is as much of an API server as this package speaks to: discovery, reading and writing objects of any kind, logs, and calls that are passed on
// to pods. What controllers and kubelets do to an object is up to react.
type api struct {
	t       *testing.T
	mu      sync.Mutex
	objects map[string]map[string]any // by path
	deleted []string
	refuse  func(method, path string) string // the message of a refusal; "": none
	react   func(a *api, path string, o map[string]any)
	logs    map[string]string             // by name of the pod
	proxy   func(pod string) http.Handler // where calls are passed on to
	client  *Client
}

var servedKinds = map[string]map[string]string{
	"v1":                             {"Pod": "pods", "Event": "events", "ConfigMap": "configmaps", "Service": "services", "ServiceAccount": "serviceaccounts", "Namespace": "namespaces", "ResourceQuota": "resourcequotas"},
	"apps/v1":                        {"Deployment": "deployments", "ReplicaSet": "replicasets"},
	"batch/v1":                       {"Job": "jobs"},
	"networking.k8s.io/v1":           {"NetworkPolicy": "networkpolicies"},
	"policy/v1":                      {"PodDisruptionBudget": "poddisruptionbudgets"},
	"rbac.authorization.k8s.io/v1":   {"Role": "roles", "RoleBinding": "rolebindings"},
	"apiextensions.k8s.io/v1":        {"CustomResourceDefinition": "customresourcedefinitions"},
	"inference.networking.k8s.io/v1": {"InferencePool": "inferencepools"},
	"llm-d.ai/v1alpha2":              {"InferenceObjective": "inferenceobjectives"},
}

var clusterWide = []string{"Namespace", "CustomResourceDefinition"}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{t: t, objects: map[string]map[string]any{}, logs: map[string]string{}}
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	config := map[string]any{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": s.URL}}}, "users": []any{map[string]any{"name": "u", "user": map[string]any{}}}}
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if a.client, err = Connect(t.Context(), Options{Kubeconfig: file}); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Trim(r.URL.Path, "/")
	if pod, rest, ok := strings.Cut(path, "/proxy/"); ok {
		name := strings.Split(pod[strings.LastIndexByte(pod, '/')+1:], ":")[1]
		r.URL.Path = "/" + rest
		a.proxy(name).ServeHTTP(w, r)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse != nil {
		if why := a.refuse(r.Method, path); why != "" {
			status(w, http.StatusForbidden, "Forbidden", why)
			return
		}
	}
	parts := strings.Split(path, "/")
	switch {
	case path == "version":
		reply(w, map[string]any{"gitVersion": "v1"})
	case parts[0] == "api" && len(parts) == 2, parts[0] == "apis" && len(parts) == 3:
		a.discover(w, strings.Join(parts[1:], "/"))
	case strings.HasSuffix(path, "/log"):
		_, _ = io.WriteString(w, a.logs[parts[len(parts)-2]])
	default:
		a.object(w, r, path, parts)
	}
}

func (a *api) discover(w http.ResponseWriter, gv string) {
	kinds, ok := servedKinds[gv]
	if !ok {
		status(w, http.StatusNotFound, "NotFound", "there is no "+gv)
		return
	}
	var list []any
	for kind, name := range kinds {
		list = append(list, map[string]any{"name": name, "kind": kind, "namespaced": !slices.Contains(clusterWide, kind)}, map[string]any{"name": name + "/status", "kind": kind, "namespaced": true})
	}
	reply(w, map[string]any{"resources": list})
}

// object serves one object or a collection, which differ by the number of segments behind the version.
func (a *api) object(w http.ResponseWriter, r *http.Request, path string, parts []string) {
	rest := parts[2:]
	if parts[0] == "apis" {
		rest = parts[3:]
	}
	single := len(rest) == 4 || len(rest) == 2 && rest[0] != "namespaces" || len(rest) == 2 && rest[0] == "namespaces"
	was, there := a.objects[path]
	var in map[string]any
	if r.Method != http.MethodGet && r.Method != http.MethodDelete {
		body, _ := io.ReadAll(r.Body)
		if err := yaml.Unmarshal(body, &in); err != nil {
			status(w, http.StatusBadRequest, "BadRequest", err.Error())
			return
		}
	}
	switch {
	case r.Method == http.MethodPost:
		name := in["metadata"].(map[string]any)["name"].(string)
		if a.objects[path+"/"+name] != nil {
			status(w, http.StatusConflict, "AlreadyExists", name+" already exists")
			return
		}
		a.put(path+"/"+name, in, append(rest, name))
		reply(w, a.objects[path+"/"+name])
	case r.Method == http.MethodGet && !single:
		selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
		if err != nil {
			status(w, http.StatusBadRequest, "BadRequest", err.Error())
			return
		}
		items := []any{}
		for _, at := range slices.Sorted(maps.Keys(a.objects)) {
			own := map[string]string{}
			if l, ok := a.objects[at]["metadata"].(map[string]any)["labels"].(map[string]any); ok {
				for k, v := range l {
					own[k] = fmt.Sprint(v)
				}
			}
			if name, ok := strings.CutPrefix(at, path+"/"); ok && !strings.Contains(name, "/") && selector.Matches(labels.Set(own)) {
				items = append(items, a.objects[at])
			}
		}
		reply(w, map[string]any{"kind": "List", "apiVersion": "v1", "items": items})
	case r.Method == http.MethodPatch && r.URL.Query().Get("dryRun") != "":
		reply(w, in)
	case r.Method == http.MethodPatch && (there || strings.Contains(r.Header.Get("Content-Type"), "apply")):
		if there {
			in = merged(was, in)
		}
		a.put(path, in, rest)
		reply(w, a.objects[path])
	case !there:
		status(w, http.StatusNotFound, "NotFound", path+" not found")
	case r.Method == http.MethodPut:
		a.put(path, in, rest)
		reply(w, a.objects[path])
	case r.Method == http.MethodDelete:
		delete(a.objects, path)
		a.deleted = append(a.deleted, path)
		reply(w, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	default:
		reply(w, was)
	}
}

// put stores an object, and lets whoever controls it react.
func (a *api) put(path string, o map[string]any, rest []string) {
	meta := o["metadata"].(map[string]any)
	if len(rest) > 2 {
		meta["namespace"] = rest[1]
	}
	meta["uid"] = fmt.Sprint(len(a.objects), path)
	a.objects[path] = o
	if o["kind"] == "CustomResourceDefinition" {
		o["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
	}
	if a.react != nil {
		a.react(a, path, o)
	}
}

// merged is a JSON merge patch.
func merged(old, change map[string]any) map[string]any {
	out := maps.Clone(old)
	for k, v := range change {
		inner, ok := v.(map[string]any)
		was, both := out[k].(map[string]any)
		switch {
		case v == nil:
			delete(out, k)
		case ok && both:
			out[k] = merged(was, inner)
		default:
			out[k] = v
		}
	}
	return out
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func status(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code})
}

// names lists the objects that are there, by the end of their path.
func (a *api) names(under string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, at := range slices.Sorted(maps.Keys(a.objects)) {
		if name, ok := strings.CutPrefix(at, under+"/"); ok {
			out = append(out, name)
		}
	}
	return out
}
