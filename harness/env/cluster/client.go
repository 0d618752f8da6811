// Package cluster is an existing Kubernetes cluster: deploying into it, running this program inside it, and judging what is deployed there.
//
//	overlay --render--> objects --server-side apply--> API server --> pods
//	Errand  --Job-----> this program in a pod  --pods/proxy--> its results, here
//	Lane    --pods, ConfigMaps, labels-------> the picker of one scenario
//	Dump    <--events, logs, objects---------- whatever is there when something went wrong
//
// Nothing but the API server is spoken to from outside. A context of a kubeconfig is used only if it was named.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options say which cluster.
type Options struct {
	Kubeconfig string // file; "" with a Context: $KUBECONFIG or the home directory's
	Context    string // "": the current one of Kubeconfig, which must be named then
}

// Client speaks to one API server.
type Client struct {
	config  *rest.Config
	dynamic dynamic.Interface
	http    *http.Client
	base    *url.URL

	mu    sync.Mutex
	kinds map[schema.GroupVersion]map[string]kind // what the server has been asked for
}

// kind is how objects of a kind are found.
type kind struct {
	resource   schema.GroupVersionResource
	namespaced bool
}

// Connect makes a client and asks the server for its version. Without a kubeconfig or a context it uses the service account of the pod it is in,
// and nothing else: the current context of whoever is logged in is never taken by itself.
func Connect(ctx context.Context, o Options) (*Client, error) {
	config, err := configuration(o)
	if err != nil {
		return nil, err
	}
	// Many scenarios at once each make a handful of calls; the server has its own limits.
	config.QPS, config.Burst, config.UserAgent = 200, 400, "weir"
	c := &Client{config: config, kinds: map[schema.GroupVersion]map[string]kind{}}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	if c.base, _, err = rest.DefaultServerUrlFor(config); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if _, err := c.get(ctx, "/version"); err != nil {
		return nil, fmt.Errorf("the API server %s does not answer: %w (is the cluster up, and does the kubeconfig lead to it?)", c.base.Host, err)
	}
	return c, nil
}

// configuration reads what was named.
func configuration(o Options) (*rest.Config, error) {
	if o.Kubeconfig == "" && o.Context == "" {
		if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
			return nil, fmt.Errorf("no cluster is named: give --kubeconfig FILE, or --context NAME (there are: %s)", known())
		}
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("service account of this pod: %w", err)
		}
		return config, nil
	}
	if o.Kubeconfig != "" {
		if _, err := os.Stat(o.Kubeconfig); err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w (contexts: %s)", err, known())
	}
	return config, nil
}

// known lists the contexts that could be named.
func known() string {
	raw, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	if err != nil || len(raw.Contexts) == 0 {
		return "none, since there is no kubeconfig"
	}
	var names []string
	for name := range raw.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Host is the address of the API server.
func (c *Client) Host() string { return c.base.Host }

// get reads a path of the server.
func (c *Client) get(ctx context.Context, path string) ([]byte, error) {
	body, err := c.open(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// open does one call and gives the body of an answer of 2xx.
func (c *Client) open(ctx context.Context, method, path string) (io.ReadCloser, error) {
	ref, err := url.Parse(path)
	if err != nil {
		return nil, err
	}
	at := *c.base
	at.Path, at.RawQuery = strings.TrimSuffix(at.Path, "/")+ref.Path, ref.RawQuery
	req, err := http.NewRequestWithContext(ctx, method, at.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // what can be read of it is told
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		text = []byte(status.Message)
	}
	return nil, &callError{status: resp.StatusCode, text: fmt.Sprintf("%s %s: %s: %s", method, ref.Path, resp.Status, strings.TrimSpace(string(text)))}
}

// callError is an answer that is none of 2xx.
type callError struct {
	status int
	text   string
}

func (e *callError) Error() string { return e.text }

// kindOf asks the server how objects of a kind are called there.
func (c *Client) kindOf(ctx context.Context, gvk schema.GroupVersionKind) (kind, error) {
	gv := gvk.GroupVersion()
	c.mu.Lock()
	k, ok := c.kinds[gv][gvk.Kind]
	c.mu.Unlock()
	if ok {
		return k, nil
	}
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	text, err := c.get(ctx, path)
	if err != nil {
		var failed *callError
		if errors.As(err, &failed) && failed.status == http.StatusNotFound {
			return kind{}, absent(gvk)
		}
		return kind{}, fmt.Errorf("%s: %w", gvk, err)
	}
	var list struct {
		Resources []struct {
			Name       string `json:"name"`
			Kind       string `json:"kind"`
			Namespaced bool   `json:"namespaced"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return kind{}, fmt.Errorf("%s: %w", path, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]kind{}
	for _, r := range list.Resources {
		if !strings.Contains(r.Name, "/") { // no subresource
			all[r.Kind] = kind{gv.WithResource(r.Name), r.Namespaced}
		}
	}
	if k, ok = all[gvk.Kind]; !ok {
		return k, absent(gvk)
	}
	c.kinds[gv] = all
	return k, nil
}

// absentError is a kind that the server does not have.
type absentError struct{ gvk schema.GroupVersionKind }

func (e *absentError) Error() string {
	return fmt.Sprintf("the cluster has no %s of %s: its administrator applies the definitions first (kubectl apply -k manifests/crds), or they are there in another version", e.gvk.Kind,
		e.gvk.GroupVersion())
}

func absent(gvk schema.GroupVersionKind) error { return &absentError{gvk} }

// on gives the interface to objects of a kind in a namespace.
func (c *Client) on(ctx context.Context, gvk schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	k, err := c.kindOf(ctx, gvk)
	if err != nil {
		return nil, err
	}
	if !k.namespaced {
		return c.dynamic.Resource(k.resource), nil
	}
	return c.dynamic.Resource(k.resource).Namespace(namespace), nil
}

// Kinds that are asked for by name.
var (
	podKind        = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	eventKind      = schema.GroupVersionKind{Version: "v1", Kind: "Event"}
	namespaceKind  = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	configKind     = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	deploymentKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	replicaSetKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}
	serviceKind    = schema.GroupVersionKind{Version: "v1", Kind: "Service"}
	jobKind        = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	policyKind     = schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}
	poolKind       = schema.GroupVersionKind{Group: "inference.networking.k8s.io", Version: "v1", Kind: "InferencePool"}
	objectiveKind  = schema.GroupVersionKind{Group: "llm-d.ai", Version: "v1alpha2", Kind: "InferenceObjective"}
)

// title names an object as kubectl would.
func title(o *unstructured.Unstructured) string {
	name := strings.ToLower(o.GetKind()) + "/" + o.GetName()
	if o.GetNamespace() != "" {
		name += " in " + o.GetNamespace()
	}
	return name
}

// explain adds to an error of the server what to do about it.
func explain(err error) error {
	var text string
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "exceeded quota"):
		text = "the namespace's ResourceQuota leaves no room: raise it, or use another namespace"
	case strings.Contains(err.Error(), "violates PodSecurity"):
		text = "the namespace enforces a Pod Security Standard that this pod does not meet"
	case apierrors.IsForbidden(err):
		text = "whoever the kubeconfig names may not do this: ask for a Role that lets them, or use another context"
	case apierrors.IsUnauthorized(err):
		text = "the credentials of the kubeconfig are not accepted: log in again"
	case apierrors.IsNotFound(err) && strings.Contains(err.Error(), "namespaces "):
		text = "create it first: kubectl create namespace NAME"
	default:
		return err
	}
	return fmt.Errorf("%w; %s", err, text)
}

// Has tells whether the server has a kind.
func (c *Client) Has(ctx context.Context, groupVersion, name string) bool {
	gv, err := schema.ParseGroupVersion(groupVersion)
	if err != nil {
		return false
	}
	_, err = c.kindOf(ctx, gv.WithKind(name))
	return err == nil
}
