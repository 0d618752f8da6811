package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sort"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/llm-weir/weir/harness/clock"
)

// The API groups of objectives and rewrites; the older one is ignored where the newer one has the CRD.
const (
	group       = "llm-d.ai"
	legacyGroup = "inference.networking.x-k8s.io"
)

// What is watched.
var (
	poolResource            = schema.GroupVersionResource{Group: defaultPoolGroup, Version: "v1", Resource: "inferencepools"}
	podResource             = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	objectiveResource       = schema.GroupVersionResource{Group: group, Version: "v1alpha2", Resource: "inferenceobjectives"}
	legacyObjectiveResource = schema.GroupVersionResource{Group: legacyGroup, Version: "v1alpha2", Resource: "inferenceobjectives"}
	rewriteResource         = schema.GroupVersionResource{Group: group, Version: "v1alpha2", Resource: "inferencemodelrewrites"}
	leaseResource           = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

// Access is one permission the watcher needs in its namespace.
type Access struct {
	Group, Resource string
	Verbs           []string
}

// Accesses are all permissions the watcher needs, those for leader election included. Discovery needs none of its own.
func Accesses() []Access {
	var out []Access
	for _, r := range []schema.GroupVersionResource{podResource, poolResource, objectiveResource, legacyObjectiveResource, rewriteResource} {
		out = append(out, Access{r.Group, r.Resource, []string{"list", "watch"}})
	}
	return append(out, Access{leaseResource.Group, leaseResource.Resource, []string{"get", "create", "update"}})
}

// item is an object reduced to what the picker needs of it. Of ObjectMeta only name, namespace and resource version are filled in:
// the store's key.
type item[T any] struct {
	metav1.ObjectMeta
	value T
	err   error // why the object could not be read
}

// collection is the live content of one resource.
type collection[T any] struct {
	resource schema.GroupVersionResource
	store    cache.Store
	ctrl     cache.Controller
	stop     context.CancelFunc
}

// startCollection lists and watches one resource in the watcher's namespace until ctx ends, reconnecting with backoff.
func startCollection[T any](ctx context.Context, w *Watcher, tasks *sync.WaitGroup, r schema.GroupVersionResource, selector string,
	parse func(*unstructured.Unstructured) (T, error)) *collection[T] {
	api := w.client.Resource(r).Namespace(w.cfg.Namespace)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			list, err := api.List(ctx, o)
			if err != nil && ctx.Err() == nil {
				w.failed("list "+r.Resource, err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			stream, err := api.Watch(ctx, o)
			if err != nil && ctx.Err() == nil {
				w.failed("watch "+r.Resource, err)
			}
			return stream, err
		},
	}
	logger := logr.FromSlogHandler(w.cfg.Logger.Handler()).WithName(r.Resource)
	c := &collection[T]{resource: r}
	// Handlers only ring: the stores are read as a whole, so that a missed deletion (DeletedFinalStateUnknown) needs no case.
	c.store, c.ctrl = cache.NewInformerWithOptions(cache.InformerOptions{
		Logger: &logger, ListerWatcher: lw, ObjectType: &unstructured.Unstructured{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { w.touch() }, UpdateFunc: func(any, any) { w.touch() }, DeleteFunc: func(any) { w.touch() },
		},
		Transform: func(obj any) (any, error) { return reduce(w, r, obj, parse), nil },
	})
	ctx, c.stop = context.WithCancel(klog.NewContext(ctx, logger))
	tasks.Go(func() { c.ctrl.RunWithContext(ctx) })
	tasks.Go(func() {
		select {
		case <-c.ctrl.HasSyncedChecker().Done():
			w.touch() // an empty list rings no handler
		case <-ctx.Done():
		}
	})
	return c
}

// reduce is the informers' transformation. It may meet its own result again.
func reduce[T any](w *Watcher, r schema.GroupVersionResource, obj any, parse func(*unstructured.Unstructured) (T, error)) any {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj
	}
	it := &item[T]{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), Namespace: u.GetNamespace(), ResourceVersion: u.GetResourceVersion()}}
	if it.value, it.err = parse(u); it.err != nil {
		w.malformed.Add(1)
		w.cfg.Logger.Warn("malformed object ignored", "resource", r.Resource, "group", r.Group, "name", it.Name, "error", it.err)
	}
	return it
}

// synced tells whether the first list is complete; a resource that does not exist is complete.
func (c *collection[T]) synced() bool { return c == nil || c.ctrl.HasSynced() }

// values are the readable objects by name.
func (c *collection[T]) values() []named[T] {
	if c == nil {
		return nil
	}
	var out []named[T]
	for _, obj := range c.store.List() {
		if it, ok := obj.(*item[T]); ok && it.err == nil {
			out = append(out, named[T]{it.Name, it.value})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out
}

// named is a value with its object's name.
type named[T any] struct {
	name  string
	value T
}

// discover finds out which CRDs exist and watches accordingly, until ctx ends. It looks again from time to time, since a CRD may be
// installed after the picker.
func (w *Watcher) discover(ctx context.Context) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	const firstPause = 500 * time.Millisecond
	pause := firstPause
	for {
		current, err := w.served(ctx, group)
		var legacy map[string]bool
		if err == nil {
			legacy, err = w.served(ctx, legacyGroup)
		}
		if err == nil {
			w.follow(ctx, &tasks, current, legacy)
			pause = w.cfg.RediscoverInterval
		} else if ctx.Err() == nil {
			w.failed("discovery", err)
			pause = min(2*pause, w.cfg.RediscoverInterval)
		}
		if !clock.Sleep(ctx, pause) {
			return
		}
	}
}

// follow starts and stops watching as the served resources ask for.
func (w *Watcher) follow(ctx context.Context, tasks *sync.WaitGroup, current, legacy map[string]bool) {
	var objectives *schema.GroupVersionResource
	switch {
	case current[objectiveResource.Resource]:
		objectives = &objectiveResource
	case legacy[legacyObjectiveResource.Resource]:
		objectives = &legacyObjectiveResource
	}
	var rewrites *schema.GroupVersionResource
	if current[rewriteResource.Resource] {
		rewrites = &rewriteResource
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.discovered = true
	w.objectives = swap(ctx, w, tasks, w.objectives, objectives, parseObjective)
	w.rewrites = swap(ctx, w, tasks, w.rewrites, rewrites, parseRewrite)
	w.touch()
}

// swap keeps a collection of the wanted resource, or replaces it.
func swap[T any](ctx context.Context, w *Watcher, tasks *sync.WaitGroup, old *collection[T], want *schema.GroupVersionResource,
	parse func(*unstructured.Unstructured) (T, error)) *collection[T] {
	if old != nil && want != nil && old.resource == *want {
		return old
	}
	if old != nil {
		old.stop()
	}
	if want == nil {
		return nil
	}
	return startCollection(ctx, w, tasks, *want, "", parse)
}

// served are the names of the resources of a group in version v1alpha2; none if the group does not exist.
func (w *Watcher) served(ctx context.Context, group string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	at := w.server.JoinPath("apis", group, "v1alpha2").String()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := w.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", at, resp.Status)
	}
	var list metav1.APIResourceList
	const limit = 1 << 20
	if err := json.NewDecoder(io.LimitReader(resp.Body, limit)).Decode(&list); err != nil {
		return nil, fmt.Errorf("GET %s: %w", at, err)
	}
	out := map[string]bool{}
	for _, r := range list.APIResources {
		out[r.Name] = true
	}
	return out, nil
}
