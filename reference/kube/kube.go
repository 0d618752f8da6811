// Package kube watches the Kubernetes objects a picker needs and emits what they come to, as whole snapshots.
//
//	InferencePool, pods, objectives, rewrites --list/watch--> stores --build--> Snapshot --OnChange--> picker
//	Lease <--get, create, update--> Leading
//
// A Reviewer asks the same API whether the holder of a token may read a page.
//
// An API server that does not answer changes nothing: the stores keep what they last saw. Malformed objects are logged, counted and
// treated as absent. Facts: spec/endpoint-picker.md §2.3, §2.6, §9; requirements FC-CLS-09..12, FC-PRI-08.
package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/llm-weir/weir/harness/clock"
)

// Config says what to watch and how to take part in leader election.
type Config struct {
	Kubeconfig string // file; "": $KUBECONFIG, the home directory's, else the pod's service account
	Namespace  string // of the pool and everything that belongs to it; "": $NAMESPACE, else "default"
	PoolName   string // required
	PoolGroup  string // "": inference.networking.k8s.io, the only one supported

	// LeaderElection makes Leading tell the holder of a Lease from its standbys; without it every replica leads.
	LeaderElection bool
	LeaseName      string        // "": weir-picker-<PoolName>
	Identity       string        // unique among replicas; "": the host name
	LeaseDuration  time.Duration // how long a silent leader keeps the Lease, at least 1 s; 0: 15 s
	RenewDeadline  time.Duration // how long a leader that cannot renew goes on leading; 0: two thirds of LeaseDuration
	RetryPeriod    time.Duration // between two tries; 0: 2 s

	// RediscoverInterval is the time between two looks at which CRDs exist; 0: 30 s.
	RediscoverInterval time.Duration

	// OnChange gets every new snapshot, one at a time. The first comes when all lists are complete. It may keep the snapshot.
	OnChange func(Snapshot)
	// OnLeading is told of changes of Leading, from another goroutine than OnChange; nil: nobody.
	OnLeading func(bool)
	Logger    *slog.Logger // nil: slog.Default
	Clock     clock.Clock  // nil: the machine's
}

// defaultPoolGroup is the API group of InferencePool.
const defaultPoolGroup = "inference.networking.k8s.io"

func (c *Config) fill() error {
	setString := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	setDuration := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	setString(&c.Namespace, os.Getenv("NAMESPACE"))
	setString(&c.Namespace, "default")
	setString(&c.PoolGroup, defaultPoolGroup)
	setString(&c.LeaseName, "weir-picker-"+c.PoolName)
	if host, err := os.Hostname(); err == nil {
		setString(&c.Identity, host)
	}
	setDuration(&c.LeaseDuration, 15*time.Second)
	setDuration(&c.RenewDeadline, c.LeaseDuration*2/3)
	setDuration(&c.RetryPeriod, 2*time.Second)
	setDuration(&c.RediscoverInterval, 30*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Clock == nil {
		c.Clock = clock.NewReal()
	}
	return c.validate()
}

func (c *Config) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.PoolName != "", "PoolName: missing")
	check(c.PoolGroup == defaultPoolGroup, "PoolGroup: %q is not supported, only %s is", c.PoolGroup, defaultPoolGroup)
	check(c.OnChange != nil, "OnChange: missing")
	check(c.RediscoverInterval > 0, "RediscoverInterval: must be positive, got %v", c.RediscoverInterval)
	if c.LeaderElection {
		check(c.Identity != "", "Identity: missing, and this machine has no host name")
		check(c.LeaseDuration >= time.Second, "LeaseDuration: must be at least 1s, got %v", c.LeaseDuration)
		check(c.RenewDeadline > 0 && c.RenewDeadline < c.LeaseDuration, "RenewDeadline: must be positive and below LeaseDuration %v, got %v", c.LeaseDuration, c.RenewDeadline)
		check(c.RetryPeriod > 0 && c.RetryPeriod < c.RenewDeadline, "RetryPeriod: must be positive and below RenewDeadline %v, got %v", c.RenewDeadline, c.RetryPeriod)
	}
	return errors.Join(errs...)
}

// Stats are totals since New.
type Stats struct {
	Malformed  uint64 // objects seen that could not be read
	CallErrors uint64 // list, watch, discovery and Lease calls that failed
}

// Watcher watches one pool.
type Watcher struct {
	cfg    Config
	client dynamic.Interface
	http   *http.Client
	server *url.URL

	malformed  atomic.Uint64
	callErrors atomic.Uint64
	started    atomic.Bool
	synced     atomic.Bool
	leading    atomic.Bool
	dirty      chan struct{} // holds one: something changed since the last look

	mu         sync.Mutex
	discovered bool
	pools      *collection[pool]
	pods       *collection[pod]
	objectives *collection[objective] // nil: no such CRD
	rewrites   *collection[rewrite]   // nil: no such CRD
}

// New connects to nothing yet; it fails for an unusable configuration.
func New(cfg Config) (*Watcher, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	rc, err := restConfig(cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return newWatcher(cfg, rc)
}

// restConfig finds the API: by the file, else by $KUBECONFIG, the home directory, or the pod's service account.
func restConfig(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	rc, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) { // whose own text leads to a variable that is not for this
		return nil, errors.New("neither a kubeconfig nor a pod's service account leads to a Kubernetes API")
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return rc, nil
}

// newWatcher takes a filled configuration.
func newWatcher(cfg Config, rc *rest.Config) (*Watcher, error) {
	rc = rest.CopyConfig(rc)
	rc.UserAgent = "weir-picker"
	server, _, err := rest.DefaultServerUrlFor(rc)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	hc, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	client, err := dynamic.NewForConfigAndClient(rc, hc)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	w := &Watcher{cfg: cfg, client: client, http: hc, server: server, dirty: make(chan struct{}, 1)}
	w.leading.Store(!cfg.LeaderElection)
	return w, nil
}

// Synced tells whether the pool exists and a snapshot with everything in it has been handed over.
func (w *Watcher) Synced() bool { return w.synced.Load() }

// Leading tells whether this replica leads; always, without leader election.
func (w *Watcher) Leading() bool { return w.leading.Load() }

// Stats are the totals so far.
func (w *Watcher) Stats() Stats { return Stats{w.malformed.Load(), w.callErrors.Load()} }

// Run watches until ctx ends and returns when every goroutine has ended and the Lease is given back. It runs once.
func (w *Watcher) Run(ctx context.Context) error {
	if !w.started.CompareAndSwap(false, true) {
		return errors.New("watcher: Run was called before")
	}
	var tasks sync.WaitGroup
	w.mu.Lock()
	w.pools = startCollection(ctx, w, &tasks, poolResource, "metadata.name="+w.cfg.PoolName, parsePool)
	w.pods = startCollection(ctx, w, &tasks, podResource, "", parsePod)
	w.mu.Unlock()
	tasks.Go(func() { w.discover(ctx) })
	if w.cfg.LeaderElection {
		tasks.Go(func() { newElector(w).run(ctx) })
	}
	w.emit(ctx)
	tasks.Wait()
	w.http.CloseIdleConnections()
	return nil
}

// touch asks for another look at the stores.
func (w *Watcher) touch() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// emit hands over each new snapshot. Changes that come during a hand-over are taken together.
func (w *Watcher) emit(ctx context.Context) {
	var last Snapshot
	first := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.dirty:
		}
		s, ok := w.snapshot()
		if !ok || (!first && reflect.DeepEqual(s, last)) {
			continue
		}
		first, last = false, s
		if !s.Synced {
			w.synced.Store(false)
		}
		w.cfg.OnChange(s)
		w.synced.Store(s.Synced)
	}
}

// snapshot reads the stores; false while a list is incomplete.
func (w *Watcher) snapshot() (Snapshot, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.discovered || !w.pools.synced() || !w.pods.synced() || !w.objectives.synced() || !w.rewrites.synced() {
		return Snapshot{}, false
	}
	return build(w.cfg, w.pools.values(), w.pods.values(), w.objectives.values(), w.rewrites.values()), true
}

func (w *Watcher) failed(what string, err error) {
	w.callErrors.Add(1)
	w.cfg.Logger.Warn("Kubernetes call failed", "call", what, "error", err)
}
