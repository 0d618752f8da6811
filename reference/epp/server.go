package epp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/extproc"
	"github.com/llm-weir/weir/reference/loadsync"
	"github.com/llm-weir/weir/reference/picker"
	"github.com/llm-weir/weir/reference/scrape"
)

// Server is a running picker.
type Server struct {
	driver    *Driver
	metrics   *Metrics
	scraper   *scrape.Scraper
	extproc   *extproc.Server
	grpc      *grpc.Server
	health    *healthServer
	healthRPC *grpc.Server
	cert      *certificate // nil: plaintext
	rewriter  *extproc.Rewriter
	http      *http.Server
	listeners [3]net.Listener  // ext_proc, health, metrics
	sync      *loadsync.Syncer // nil: other replicas are not told
	moved     chan struct{}    // what is in flight may have changed
	endpoints sync.Mutex       // held over a change of the pool, so that driver and scraper agree

	cancel context.CancelFunc
	tasks  sync.WaitGroup
	once   sync.Once
}

// Serve starts everything and returns when the listeners are open. Errors name the flag or file to change.
func Serve(o Options) (*Server, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	s := &Server{metrics: NewMetrics(o.PoolName, o.Config), health: &healthServer{ready: o.Readiness}, moved: make(chan struct{}, 1)}
	var err error
	if s.rewriter, err = extproc.NewRewriter(o.Rewrites, o.RewriteSeed); err != nil {
		return nil, err
	}
	s.metrics.Pin(s.rewriter.Models())
	if o.Secure {
		if s.cert, err = newCertificate(o.CertPath); err != nil {
			return nil, err
		}
	}
	if err := s.listen(o); err != nil {
		return nil, err
	}
	s.driver = NewDriver(o.Wiring.Machine, DriverConfig{
		Clock: o.Clock, Metrics: s.metrics, OnDecision: o.OnDecision, Evictions: o.Wiring.Evictions, Refuse: o.Wiring.Refuse,
		Confirmations: o.Wiring.Confirmations, HasFlow: o.Wiring.HasFlow, NeverEvicts: neverEvicts(o.Wiring.Machine), InFlight: o.Wiring.InFlight, OnLoad: s.notify,
	})
	if o.ScrapeInterval > 0 {
		s.scraper = scrape.New(scrape.Config{Interval: o.ScrapeInterval, Timeout: o.ScrapeTimeout, Clock: o.Clock, Logger: o.Logger,
			OnPoll: func(took time.Duration, err error) {
				page := errors.Is(err, scrape.ErrPage)
				s.metrics.Polled(took, err != nil && !page, page)
			}}, s.driver.Sample)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	files, err := s.load(o)
	if err != nil {
		s.Close()
		return nil, err
	}
	s.synchronize(o)
	s.start(ctx, o, files)
	return s, nil
}

// neverEvicts tells whether a machine is the picker itself and does not evict; of another machine nothing is known.
func neverEvicts(m picker.Machine) bool {
	p, ok := m.(*picker.Picker)
	return ok && !p.Evicts()
}

// listen opens the three ports. A port that is taken is named together with the flag that chooses another.
func (s *Server) listen(o Options) error {
	for i, l := range []struct{ what, addr, flag string }{
		{"ext_proc", o.GRPCAddr, "--grpc-addr"}, {"health", o.HealthAddr, "--health-addr"}, {"metrics", o.MetricsAddr, "--metrics-addr"},
	} {
		var lc net.ListenConfig
		ln, err := lc.Listen(context.Background(), "tcp", l.addr)
		if err != nil {
			s.closeListeners()
			return fmt.Errorf("%s listener on %q: %w; choose another address with %s (port 0 takes a free one)", l.what, l.addr, err, l.flag)
		}
		s.listeners[i] = ln
	}
	return nil
}

func (s *Server) closeListeners() {
	for _, ln := range s.listeners {
		if ln != nil {
			ln.Close()
		}
	}
}

// load applies the start state and reads the files for the first time.
func (s *Server) load(o Options) ([]*watched, error) {
	s.SetEndpoints(o.Endpoints)
	s.driver.SetObjectives(o.Objectives)
	var files []*watched
	if o.EndpointsFile != "" {
		files = append(files, &watched{path: o.EndpointsFile, apply: func(name string, doc []byte) error {
			list, err := ParseEndpoints(name, doc)
			if err == nil {
				s.SetEndpoints(list)
			}
			return err
		}})
	}
	if o.ObjectivesFile != "" {
		files = append(files, &watched{path: o.ObjectivesFile, apply: func(name string, doc []byte) error {
			m, err := ParseObjectives(name, doc)
			if err == nil {
				s.driver.SetObjectives(m)
			}
			return err
		}})
	}
	var errs []error
	for _, f := range files {
		_, err := f.load()
		errs = append(errs, err)
	}
	return files, errors.Join(errs...)
}

// exchanges makes the ext_proc service.
func (s *Server) exchanges(o Options) *extproc.Server {
	return extproc.NewServer(s.driver, extproc.Config{
		Clock: o.Clock, Classify: o.Wiring.Classify, Refuse: o.Wiring.Refuse, BodyLimit: o.BodyLimit, HeaderLimit: o.HeaderLimit,
		RejectUnknownPaths: !o.Config.Passthrough, Prefix: Prefix(o.Config.Picker.Scheduling), Rewriter: s.rewriter,
		KeepControlHeaders: o.KeepControlHeaders,
		OnRefusal: func(id extproc.Identity, model string, r wire.Refusal) {
			s.metrics.Refused(Labels{Model: model, Target: model, FairnessID: id.FairnessID, Priority: s.driver.Priority(id.Objective)}, r.Status)
		},
		OnReport: s.metrics.Answered, Gaps: s.metrics.Gaps, OnRewrite: s.metrics.Rewritten,
		OnParse: func(parser string, took time.Duration) {
			if parser != "" {
				s.metrics.PluginTook("Parser", parser, took)
			}
		},
	})
}

// streamWorkers is how many goroutines serve stream after stream, their stacks grown; a goroutine of its own grows its stack for every
// request, which is 8 % of the CPU time. While all of them are busy or waiting, a stream has one of its own.
const streamWorkers = 64

// grpcOptions are those of the ext_proc listener.
func (s *Server) grpcOptions(o Options) []grpc.ServerOption {
	// Without WaitForHandlers a handler could still start its reader while Close waits for the readers.
	opts := []grpc.ServerOption{grpc.MaxConcurrentStreams(o.MaxStreams), grpc.WaitForHandlers(true), grpc.NumStreamWorkers(streamWorkers)}
	if s.cert != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(s.cert.config())))
	}
	if o.MaxRecvBytes > 0 {
		opts = append(opts, grpc.MaxRecvMsgSize(o.MaxRecvBytes))
	}
	if o.MaxSendBytes > 0 {
		opts = append(opts, grpc.MaxSendMsgSize(o.MaxSendBytes))
	}
	if o.StreamMetrics {
		opts = append(opts, grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			began := o.Clock.Now()
			s.metrics.StreamOpened()
			err := h(srv, ss)
			s.metrics.StreamEnded(status.Code(err).String(), o.Clock.Now()-began)
			return err
		}))
	}
	return opts
}

// start puts the servers on the listeners.
func (s *Server) start(ctx context.Context, o Options, files []*watched) {
	s.extproc = s.exchanges(o)
	s.grpc = grpc.NewServer(s.grpcOptions(o)...)
	extprocv3.RegisterExternalProcessorServer(s.grpc, s.extproc)
	if o.HealthOnGRPC {
		healthv1.RegisterHealthServer(s.grpc, s.health)
	}
	s.healthRPC = grpc.NewServer()
	healthv1.RegisterHealthServer(s.healthRPC, s.health)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(Through(s.metrics.Gatherer(), o.Wiring.Families), promhttp.HandlerOpts{}))
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	serve := func(what string, f func() error) {
		s.tasks.Go(func() {
			if err := f(); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
				o.Logger.Error("server stopped", "server", what, "error", err)
			}
		})
	}
	serve("ext_proc", func() error { return s.grpc.Serve(s.listeners[0]) })
	serve("health", func() error { return s.healthRPC.Serve(s.listeners[1]) })
	serve("metrics", func() error { return s.http.Serve(s.listeners[2]) })
	reloads := make([]reload, 0, len(files)+1)
	for _, f := range files {
		reloads = append(reloads, reload{f.path, f.load})
	}
	if s.cert != nil && s.cert.dir != "" {
		reloads = append(reloads, reload{s.cert.dir, s.cert.load})
	}
	if len(reloads) > 0 {
		s.tasks.Go(func() { watch(ctx, o.ReloadInterval, reloads, o.Logger) })
	}
}

// GRPCAddr is the address of the ext_proc listener.
func (s *Server) GRPCAddr() string { return s.listeners[0].Addr().String() }

// HealthAddr is the address of the health listener.
func (s *Server) HealthAddr() string { return s.listeners[1].Addr().String() }

// MetricsAddr is the address of the metrics listener.
func (s *Server) MetricsAddr() string { return s.listeners[2].Addr().String() }

// Driver is the machine's owner.
func (s *Server) Driver() *Driver { return s.driver }

// Metrics are the server's series.
func (s *Server) Metrics() *Metrics { return s.metrics }

// SetEndpoints makes the pool exactly these endpoints; it returns after the machine knows.
func (s *Server) SetEndpoints(list []picker.Endpoint) {
	s.endpoints.Lock()
	defer s.endpoints.Unlock()
	pool := s.driver.SetEndpoints(list)
	if s.scraper == nil {
		return
	}
	targets := make([]scrape.Target, len(pool))
	for i, e := range pool {
		targets[i] = scrape.Target{ID: e.ID, URL: "http://" + e.Address + "/metrics"}
	}
	s.scraper.Set(targets)
}

// SetObjectives replaces the accepted objectives; it returns after the machine knows.
func (s *Server) SetObjectives(m map[string]int) { s.driver.SetObjectives(m) }

// SetRewrites replaces the rewrite rules; wrong ones leave those that are there.
func (s *Server) SetRewrites(rules []extproc.Rewrite) error {
	err := s.rewriter.Set(rules)
	if err == nil {
		s.metrics.Pin(s.rewriter.Models())
	}
	return err
}

// Shutdown drains: the queue is emptied at once with refusals, new requests are refused, requests in flight go on until they end or
// ctx does. It ends like Close.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.draining.Store(true)
	s.driver.Shutdown()
	var err error
	select {
	case <-s.driver.Idle():
		s.linger(ctx)
	case <-ctx.Done():
		err = fmt.Errorf("drain: requests still in flight: %w", ctx.Err())
	}
	s.Close()
	return err
}

// lingerLimit is how long a drained server waits for peers to close streams on which nothing is left to say.
const lingerLimit = time.Second

// linger lets the last answers reach their peers.
func (s *Server) linger(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lingerLimit)
	defer cancel()
	stop := context.AfterFunc(ctx, s.grpc.Stop)
	defer stop()
	s.grpc.GracefulStop()
}

// Close stops at once: streams end, what is queued ends with them. It returns when every goroutine has ended.
func (s *Server) Close() error {
	s.once.Do(func() {
		s.health.draining.Store(true)
		s.cancel()
		stopped := make(chan struct{})
		go func() { // Stop waits for the handlers, and one may wait for a decision that only the driver's end brings
			defer close(stopped)
			if s.grpc != nil {
				s.grpc.Stop()
				s.healthRPC.Stop()
				s.http.Close()
				s.extproc.Wait()
			}
		}()
		if s.sync != nil {
			_ = s.sync.Close() // what it cannot take back grows old
		}
		s.driver.Close()
		<-stopped
		s.closeListeners()
		if s.scraper != nil {
			s.scraper.Close()
		}
		s.tasks.Wait()
	})
	return nil
}
