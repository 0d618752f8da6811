// Package kubeapi is the small Kubernetes API that an endpoint picker needs to be certified without a cluster.
//
//	harness --Put, Delete--> store --events--> watches --HTTP--> picker
//	                           ^                  '--delivered--> AwaitWatches, AwaitDelivered --> harness
//	                           '--POST, PUT, PATCH, DELETE-- picker
//
// It speaks plain HTTP on loopback and answers JSON whatever is asked for: discovery, get, list, watch (streaming lists and bookmarks
// included) and writing with optimistic locking, for pods, pools, objectives, rewrites and leases. It has no admission, no
// authorization, no schemas and no controllers. Facts: spec/external-epp.md, "A small Kubernetes API".
package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/clock"
)

// Config is what a server may be told; the zero value serves everything on a port of the system's choice.
type Config struct {
	Addr string // "": a free port on 127.0.0.1
	// Absent are the resources whose definition is not installed ("inferenceobjectives.llm-d.ai").
	Absent []string
	// History is the number of events that a watch can resume from; older ones are answered 410. 0: 1000.
	History int
	// BookmarkPeriod is the time between two bookmarks of a watch that allows them. 0: one minute.
	BookmarkPeriod time.Duration
}

// Server is a running API.
type Server struct {
	cfg   Config
	clock clock.Real
	http  *http.Server
	addr  string
	stop  context.CancelFunc
	tasks sync.WaitGroup
	once  sync.Once

	mu       sync.Mutex
	version  int64 // of the newest event
	objects  map[key]Object
	log      []event
	lost     int64         // events up to this version are forgotten
	bell     chan struct{} // closed and replaced at every event
	cut      chan struct{} // closed and replaced to end all watches
	down     bool
	watches  map[*stream]bool
	progress chan struct{} // closed and replaced whenever a watch opens, ends or has delivered something
	calls    map[string]int
}

// Start serves until Close.
func Start(cfg Config) (*Server, error) {
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	if cfg.History == 0 {
		cfg.History = 1000
	}
	if cfg.BookmarkPeriod == 0 {
		cfg.BookmarkPeriod = time.Minute
	}
	for _, name := range cfg.Absent {
		if resourceNamed(name) == nil {
			return nil, fmt.Errorf("kubernetes API: Absent: there is no resource %q", name)
		}
	}
	ln, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("kubernetes API: %w", err)
	}
	s := &Server{cfg: cfg, clock: clock.NewReal(), addr: ln.Addr().String(), objects: map[key]Object{}, bell: make(chan struct{}), cut: make(chan struct{}),
		watches: map[*stream]bool{}, progress: make(chan struct{}), calls: map[string]int{}}
	base, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	s.tasks.Go(func() { _ = s.http.Serve(ln) })
	return s, nil
}

// URL is where the API is.
func (s *Server) URL() string { return "http://" + s.addr }

// Close ends all watches and waits for every handler; it is safe to call again.
func (s *Server) Close() {
	s.once.Do(func() {
		s.stop()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.http.Shutdown(ctx) // a peer that does not read is cut off below
		s.http.Close()
		s.tasks.Wait()
	})
}

// WriteKubeconfig writes a file that leads a client here, with namespace as its default.
func (s *Server) WriteKubeconfig(path, namespace string) error {
	type named map[string]any
	doc := map[string]any{"apiVersion": "v1", "kind": "Config", "current-context": "weir",
		"clusters": []named{{"name": "weir", "cluster": named{"server": s.URL()}}},
		"users":    []named{{"name": "weir", "user": named{}}},
		"contexts": []named{{"name": "weir", "context": named{"cluster": "weir", "user": "weir", "namespace": namespace}}}}
	text, err := json.MarshalIndent(doc, "", "  ") // JSON is YAML
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}

// Calls counts the requests served so far, by verb and resource ("watch pods"), those for discovery by path ("get /apis").
func (s *Server) Calls() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]int, len(s.calls))
	for k, n := range s.calls {
		out[k] = n
	}
	return out
}

// Watches counts the open watches by resource; one counts as soon as it has delivered what was there when it was opened.
func (s *Server) Watches() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open()
}

// open counts the open watches. The lock is held.
func (s *Server) open() map[string]int {
	out := map[string]int{}
	for w := range s.watches {
		if w.delivered >= 0 {
			out[w.resource.Name()]++
		}
	}
	return out
}

// AwaitOpen waits until cond holds of the number of open watches by resource.
func (s *Server) AwaitOpen(ctx context.Context, cond func(map[string]int) bool) error {
	return s.await(ctx, func() bool { return cond(s.open()) })
}

// AwaitWatches waits until each of the resources is watched; the error names those that are not.
func (s *Server) AwaitWatches(ctx context.Context, resources ...string) error {
	var missing []error
	err := s.AwaitOpen(ctx, func(open map[string]int) bool {
		missing = nil
		for _, r := range resources {
			if open[r] == 0 {
				missing = append(missing, fmt.Errorf("nobody watches %s", r))
			}
		}
		return len(missing) == 0
	})
	if err != nil {
		return errors.Join(append(missing, err)...)
	}
	return nil
}

// AwaitDelivered waits until every open watch has been sent all events so far. What the peer makes of them is not known.
func (s *Server) AwaitDelivered(ctx context.Context) error {
	return s.await(ctx, func() bool {
		for w := range s.watches {
			if w.delivered < s.version {
				return false
			}
		}
		return true
	})
}

// await asks cond, with the lock held, after every progress of a watch.
func (s *Server) await(ctx context.Context, cond func() bool) error {
	for {
		s.mu.Lock()
		done, progress := cond(), s.progress
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// EndWatches ends all watches that are open, as an API server that is replaced does. With forget, the events so far cannot be resumed from.
func (s *Server) EndWatches(forget bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if forget {
		s.log, s.lost = nil, s.version
	}
	ring(&s.cut)
}

// SetDown lets every new request fail with 503; watches that are open go on.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// ring wakes everybody who waits on *c.
func ring(c *chan struct{}) {
	close(*c)
	*c = make(chan struct{})
}
