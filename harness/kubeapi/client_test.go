package kubeapi

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ktypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/llm-weir/weir/reference/kube"
	"github.com/llm-weir/weir/reference/picker"
)

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// client is a client-go client, made from the kubeconfig that a picker would get.
func client(t *testing.T, s *Server) dynamic.Interface {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := s.WriteKubeconfig(file, "ns"); err != nil {
		t.Fatal(err)
	}
	rc, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	rc.QPS = -1 // no pauses of the client's own
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	rc.Transport = tr
	hc, err := rest.HTTPClientFor(rc)
	if err != nil {
		t.Fatal(err)
	}
	c, err := dynamic.NewForConfigAndClient(rc, hc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDynamicClient(t *testing.T) {
	ctx, s := limited(t), started(t, Config{})
	pools := client(t, s).Resource(schema.GroupVersionResource{Group: poolGroup, Version: "v1", Resource: "inferencepools"}).Namespace("ns")
	got, err := pools.Get(ctx, "sims", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stale := got.DeepCopy()
	if err := unstructured.SetNestedStringMap(got.Object, map[string]string{"app": "new"}, "spec", "selector", "matchLabels"); err != nil {
		t.Fatal(err)
	}
	updated, err := pools.Update(ctx, got, metav1.UpdateOptions{})
	if err != nil || updated.GetGeneration() != 2 {
		t.Fatalf("%v, generation %d", err, updated.GetGeneration())
	}
	if _, err := pools.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update on an old base: %v", err)
	}
	if _, err := pools.Create(ctx, stale, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created twice: %v", err)
	}
	patched, err := pools.Patch(ctx, "sims", ktypes.MergePatchType, []byte(`{"status":{"parents":[]}}`), metav1.PatchOptions{}, "status")
	if err != nil || patched.Object["status"] == nil || patched.GetGeneration() != 2 {
		t.Errorf("status patched: %v %v", err, patched)
	}
	if _, err := pools.Patch(ctx, "sims", ktypes.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("a strategic merge patch of a custom resource: %v", err)
	}
	if list, err := pools.List(ctx, metav1.ListOptions{Limit: 500}); err != nil || len(list.Items) != 1 || list.GetResourceVersion() != "5" {
		t.Errorf("list: %v %v", err, list)
	}
	if err := pools.Delete(ctx, "sims", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := pools.Delete(ctx, "sims", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("deleted twice: %v", err)
	}
}

// informed is a client-go informer that tells what it knows whenever that changes.
type informed struct {
	store cache.Store
	mu    sync.Mutex
	bell  chan struct{}
}

func inform(t *testing.T, s *Server, streaming bool) *informed {
	t.Helper()
	pods := client(t, s).Resource(podResource).Namespace("ns")
	i := &informed{bell: make(chan struct{})}
	changed := func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		ring(&i.bell)
	}
	store, ctrl := cache.NewInformerWithOptions(cache.InformerOptions{ObjectType: &unstructured.Unstructured{},
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				if o.SendInitialEvents != nil && !streaming {
					return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil) // makes the informer list
				}
				return pods.Watch(ctx, o)
			},
		},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() }}})
	i.store = store
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	tasks.Go(func() { ctrl.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); tasks.Wait() })
	return i
}

// await waits until the informer knows want, as "name=label".
func (i *informed) await(t *testing.T, want string) {
	t.Helper()
	ctx := limited(t)
	for {
		i.mu.Lock()
		bell := i.bell
		i.mu.Unlock()
		var got []string
		for _, key := range i.store.ListKeys() {
			o, _, _ := i.store.GetByKey(key)
			got = append(got, o.(*unstructured.Unstructured).GetName()+"="+o.(*unstructured.Unstructured).GetLabels()["app"])
		}
		if strings.Join(got, " ") == want {
			return
		}
		select {
		case <-bell:
		case <-ctx.Done():
			t.Fatalf("the informer knows %v, want %s", got, want)
		}
	}
}

func TestInformer(t *testing.T) {
	for _, streaming := range []bool{true, false} {
		t.Run(fmt.Sprintf("streaming lists %v", streaming), func(t *testing.T) {
			s := started(t, Config{})
			i := inform(t, s, streaming)
			i.await(t, "sim-0=sim")
			if calls := s.Calls(); streaming == (calls["list pods"] > 0) {
				t.Errorf("it synchronised by %v", calls)
			}
			changed := sim0
			changed.Labels = map[string]string{"app": "b"}
			if err := s.Put(changed.Object()); err != nil {
				t.Fatal(err)
			}
			i.await(t, "sim-0=b")
			// What happens while nothing is watched is seen afterwards, by resuming or, where events are forgotten, by listing again.
			for n, forget := range []bool{false, true} {
				s.EndWatches(forget)
				changed.Labels = map[string]string{"app": fmt.Sprint(n)}
				if err := s.Put(changed.Object()); err != nil {
					t.Fatal(err)
				}
				i.await(t, fmt.Sprintf("sim-0=%d", n))
			}
			if err := s.Delete(Pods, "ns", "sim-0"); err != nil {
				t.Fatal(err)
			}
			i.await(t, "")
		})
	}
}

// watched runs our own picker's watcher against the server.
func watched(t *testing.T, s *Server) func(want kube.Snapshot) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := s.WriteKubeconfig(file, "ns"); err != nil {
		t.Fatal(err)
	}
	snapshots := make(chan kube.Snapshot, 100)
	w, err := kube.New(kube.Config{Kubeconfig: file, Namespace: "ns", PoolName: "sims", Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		LeaderElection: true, OnChange: func(k kube.Snapshot) { snapshots <- k }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	tasks.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); tasks.Wait() })
	return func(want kube.Snapshot) {
		t.Helper()
		ctx := limited(t)
		var got kube.Snapshot
		for {
			select {
			case got = <-snapshots:
			case <-ctx.Done():
				t.Fatalf("the picker knows %+v, want %+v", got, want)
			}
			if reflect.DeepEqual(got.Objectives, want.Objectives) && len(got.Endpoints) == len(want.Endpoints) && got.Synced == want.Synced {
				for i := range got.Endpoints {
					if got.Endpoints[i].Address != want.Endpoints[i].Address {
						t.Fatalf("endpoint %+v, want %+v", got.Endpoints[i], want.Endpoints[i])
					}
				}
				return
			}
		}
	}
}

func TestOurWatcher(t *testing.T) {
	s := started(t, Config{})
	await := watched(t, s)
	one := kube.Snapshot{Synced: true, Objectives: map[string]int{"high": 100}, Endpoints: endpoints("127.0.1.1:8001")}
	await(one)
	if err := s.AwaitWatches(limited(t), Pods, Pools, Objectives, Rewrites); err != nil {
		t.Fatal(err)
	}
	unready, two := sim0, sim0
	unready.NotReady = true
	two.Name, two.IP = "sim-1", "127.0.1.2"
	for _, c := range []struct {
		says string
		do   func() error
		want kube.Snapshot
	}{
		{"a second pod", func() error { return s.Put(two.Object()) },
			kube.Snapshot{Synced: true, Objectives: map[string]int{"high": 100}, Endpoints: endpoints("127.0.1.1:8001", "127.0.1.2:8001")}},
		{"the first is not ready", func() error { return s.Put(unready.Object()) },
			kube.Snapshot{Synced: true, Objectives: map[string]int{"high": 100}, Endpoints: endpoints("127.0.1.2:8001")}},
		{"the second is gone", func() error { return s.Delete(Pods, "ns", "sim-1") },
			kube.Snapshot{Synced: true, Objectives: map[string]int{"high": 100}}},
		{"a second objective", func() error {
			return s.Put(Objective{Namespace: "ns", Name: "low", Pool: "sims", Priority: -10}.Object())
		},
			kube.Snapshot{Synced: true, Objectives: map[string]int{"high": 100, "low": -10}}},
		{"the pool is gone", func() error { return s.Delete(Pools, "ns", "sims") },
			kube.Snapshot{Objectives: map[string]int{}}},
	} {
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.says, err)
		}
		await(c.want)
	}
	if err := s.await(limited(t), func() bool { return s.objects[key{Leases, "ns", "weir-picker-sims"}] != nil }); err != nil {
		t.Errorf("it took no Lease: %v", err)
	}
}

// Many watches and many writers: every watch sees every event of its resource, in order.
func TestConcurrentWatchers(t *testing.T) {
	const watchers, writers, writes = 8, 4, 50
	s := started(t, Config{History: watchers * writers * writes})
	var tasks sync.WaitGroup
	errs := make(chan error, watchers)
	for range watchers {
		w := watching(t, s, podsPath+"?watch=true&resourceVersion=3")
		tasks.Go(func() {
			last := map[string]int{}
			for range writers * writes {
				var kind, name string
				var version int
				if _, err := fmt.Sscan(w.next(), &kind, &name, &version); err != nil || version <= last[""] {
					errs <- fmt.Errorf("%s %s: version %d after %d: %w", kind, name, version, last[""], err)
					return
				}
				last[""] = version
				if last[name]++; (last[name] == 1) != (kind == "ADDED") {
					errs <- fmt.Errorf("%s was %s as its event %d", name, kind, last[name])
					return
				}
			}
			errs <- nil
		})
	}
	for i := range writers {
		tasks.Go(func() {
			for n := range writes {
				p := Pod{Namespace: "ns", Name: fmt.Sprintf("pod-%d", i), Labels: map[string]string{"n": fmt.Sprint(n)}}
				if err := s.Put(p.Object()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range watchers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	tasks.Wait()
	if err := s.AwaitDelivered(limited(t)); err != nil {
		t.Error(err)
	}
}

func endpoints(addresses ...string) []picker.Endpoint {
	var out []picker.Endpoint
	for _, a := range addresses {
		out = append(out, picker.Endpoint{Address: a})
	}
	return out
}

// Typed clients write Leases in protobuf.
func TestLeasesInProtobuf(t *testing.T) {
	s := started(t, Config{})
	wrap := func(kind string, raw []byte, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: kind}, Raw: raw}
		text, err := u.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return string(magic) + string(text)
	}
	holder := "me"
	l := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l", Namespace: "ns"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	raw, err := l.Marshal()
	body := wrap("Lease", raw, err)
	if code, o := ask(t, s, "POST", leasesPath, protobuf, body); code != 201 || o.text("spec", "holderIdentity") != "me" {
		t.Errorf("created: %d %v", code, o)
	}
	if code, o := ask(t, s, "PUT", leasesPath+"/l", protobuf, body); code != 200 || o.text("metadata", "name") != "l" {
		t.Errorf("updated: %d %v", code, o)
	}
	for says, text := range map[string]string{"without the magic": body[4:], "cut off": body[:len(body)-3], "of another kind": wrap("Pod", raw, nil)} {
		if code, o := ask(t, s, "PUT", leasesPath+"/l", protobuf, text); code != 400 {
			t.Errorf("%s: %d %v", says, code, o)
		}
	}
	uid := ktypes.UID("another")
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	raw, err = options.Marshal()
	if code, _ := ask(t, s, "DELETE", leasesPath+"/l", protobuf, wrap("DeleteOptions", raw, err)); code != 409 {
		t.Errorf("deleted although it is another: %d", code)
	}
}
