package epp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/extproc"
	"github.com/llm-weir/weir/reference/picker"
	"github.com/llm-weir/weir/reference/scrape"
)

// Wiring are the replaceable parts of the assembly, so that a caller can wrap one of them without a hook in the parts themselves.
type Wiring struct {
	Machine  picker.Machine
	Classify func(extproc.Headers) extproc.Identity
	Refuse   func(wire.Outcome) wire.Refusal
	// Families transforms the metrics page; nil: as it is.
	Families func([]*dto.MetricFamily) []*dto.MetricFamily
	// Evictions reads the machine's totals of in-flight eviction, on the goroutine that owns it; nil: no such series.
	Evictions func() ([]picker.PriorityCount, picker.EvictionState)
}

// DefaultWiring is the reference as it is meant to be.
func DefaultWiring(m picker.Machine, c epconfig.Contract) Wiring {
	w := Wiring{
		Machine:  m,
		Classify: extproc.Classify,
		Refuse:   func(o wire.Outcome) wire.Refusal { return wire.Refuse(o, c.TTLStatus) },
	}
	if p, ok := m.(*picker.Picker); ok {
		var buf []picker.PriorityCount
		w.Evictions = func() (issued []picker.PriorityCount, s picker.EvictionState) {
			buf, s = p.Evictions(buf[:0])
			return buf, s
		}
	}
	return w
}

// Options assemble a picker process. Addresses may end in ":0".
type Options struct {
	Wiring   Wiring
	Config   epconfig.Config
	PoolName string // value of the label inference_pool

	GRPCAddr    string // ext_proc, plaintext
	HealthAddr  string // gRPC health v1
	MetricsAddr string // HTTP /metrics

	// Endpoints and Objectives are the state at start. EndpointsFile (else the document's file-discovery) and ObjectivesFile
	// replace them and are read again after each change.
	Endpoints      []picker.Endpoint
	Objectives     map[string]int
	EndpointsFile  string
	ObjectivesFile string
	ReloadInterval time.Duration // 0: 200 ms

	// ScrapeInterval is the time between two scrapes of an endpoint; 0: 50 ms, negative: no scraping.
	ScrapeInterval time.Duration
	ScrapeTimeout  time.Duration // 0: 1 s
	BodyLimit      int           // bytes of a request body; 0: extproc.DefaultBodyLimit
	MaxStreams     uint32        // concurrent streams of one connection; 0: 65536

	Clock      clock.Clock // nil: the machine's
	OnDecision func(Decision)
	Logger     *slog.Logger // nil: slog.Default
}

// Server is a running picker.
type Server struct {
	driver    *Driver
	metrics   *Metrics
	scraper   *scrape.Scraper
	extproc   *extproc.Server
	grpc      *grpc.Server
	health    *healthServer
	healthRPC *grpc.Server
	http      *http.Server
	listeners [3]net.Listener // ext_proc, health, metrics
	endpoints sync.Mutex      // held over a change of the pool, so that driver and scraper agree

	cancel context.CancelFunc
	tasks  sync.WaitGroup
	once   sync.Once
}

// Serve starts everything and returns when the listeners are open. Errors name the flag or file to change.
func Serve(o Options) (*Server, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	s := &Server{metrics: NewMetrics(o.PoolName, o.Config), health: &healthServer{}}
	if err := s.listen(o); err != nil {
		return nil, err
	}
	s.driver = NewDriver(o.Wiring.Machine, DriverConfig{
		Clock: o.Clock, Metrics: s.metrics, OnDecision: o.OnDecision, Evictions: o.Wiring.Evictions, Refuse: o.Wiring.Refuse,
	})
	if o.ScrapeInterval > 0 {
		s.scraper = scrape.New(scrape.Config{Interval: o.ScrapeInterval, Timeout: o.ScrapeTimeout, Clock: o.Clock, Logger: o.Logger}, s.driver.Sample)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	files, err := s.load(o)
	if err != nil {
		s.Close()
		return nil, err
	}
	s.start(ctx, o, files)
	return s, nil
}

func (o *Options) fill() error {
	var errs []error
	if o.Wiring.Machine == nil || o.Wiring.Classify == nil || o.Wiring.Refuse == nil {
		errs = append(errs, errors.New("wiring: incomplete, start from DefaultWiring"))
	}
	if !o.Config.FlowControl {
		errs = append(errs, errors.New("featureGates: flowControl is off; this build serves with flow control only: add featureGates: [flowControl]"))
	}
	if o.Clock == nil {
		o.Clock = clock.NewReal()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.EndpointsFile == "" {
		o.EndpointsFile = o.Config.EndpointsFile
	}
	if o.ReloadInterval <= 0 {
		o.ReloadInterval = 200 * time.Millisecond
	}
	if o.ScrapeInterval == 0 {
		o.ScrapeInterval = 50 * time.Millisecond
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = 1 << 16
	}
	return errors.Join(errs...)
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

// start puts the servers on the listeners.
func (s *Server) start(ctx context.Context, o Options, files []*watched) {
	s.extproc = extproc.NewServer(s.driver, extproc.Config{
		Clock: o.Clock, Classify: o.Wiring.Classify, Refuse: o.Wiring.Refuse, BodyLimit: o.BodyLimit,
		RejectUnknownPaths: !o.Config.Passthrough,
		OnRefusal: func(id extproc.Identity, model string, r wire.Refusal) {
			s.metrics.Refused(id.FairnessID, s.driver.Priority(id.Objective), model, r.Status)
		},
	})
	s.grpc = grpc.NewServer(grpc.MaxConcurrentStreams(o.MaxStreams))
	extprocv3.RegisterExternalProcessorServer(s.grpc, s.extproc)
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
	if len(files) > 0 {
		s.tasks.Go(func() { watch(ctx, o.ReloadInterval, files, o.Logger) })
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
		if s.grpc != nil {
			s.grpc.Stop()
			s.healthRPC.Stop()
			s.http.Close()
			s.extproc.Wait()
		}
		s.closeListeners()
		if s.scraper != nil {
			s.scraper.Close()
		}
		s.driver.Close()
		s.tasks.Wait()
	})
	return nil
}
