package asyncproc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/redisq"
)

// Clock tells the time of the run and the wall time at which it began; clock.Real is one.
type Clock interface {
	clock.Clock
	Epoch() time.Time
}

// Options assemble a processor.
type Options struct {
	Config asyncconfig.Config
	// Loader reads the queues again; nil: never.
	Loader *asyncconfig.Loader
	Clock  Clock  // nil: the machine's
	Seed   uint64 // of the jitter; 0: any
	Logger *slog.Logger
	// Redis makes a client of the broker, Dial one of the server of a gate; nil: as the configuration says.
	Redis func() *redis.Client
	Dial  func(address string) *redis.Client
	HTTP  *http.Client // towards the gateway; nil: as the configuration says
	// Tracing gets the spans; nil: nobody does. Its owner ends it after Close.
	Tracing trace.TracerProvider
	// Around puts something around the machine's steps, Page around the metrics; nil: nothing.
	Around func(Step) Step
	Page   func(prometheus.Gatherer) prometheus.Gatherer
	// Authorize judges a scrape under --metrics-endpoint-auth: 200, or the status of its refusal and why. nil: all are refused.
	Authorize func(r *http.Request) (status int, why string)
	// Listen opens the ports; nil: TCP.
	Listen func(port int) (net.Listener, error)
}

// Step tells a machine that it is now and what happened, and appends what it decides to out.
type Step func(now time.Duration, ev async.Event, out []async.Out) []async.Out

// Server is a running processor.
type Server struct {
	o       Options
	d       *driver
	redis   *redis.Client // nil for gcp-pubsub
	ping    func(context.Context) error
	hangUp  func() error
	subs    *subscriptions  // of gcp-pubsub
	drain   context.Context // ends when a drain begins
	begin   context.CancelFunc
	health  *http.Server
	metrics *http.Server
	addrs   [2]string
	wakes   *wakes
	lastKey async.QueueKey
	queues  sync.Mutex // over keys
	keys    map[string]servedQueue
	byName  map[string]*served // of channels, which do not change
	once    sync.Once
}

// servedQueue is a queue in its present form.
type servedQueue struct {
	key async.QueueKey
	cfg asyncconfig.Queue
}

// Serve starts a processor and returns when its ports are open. The broker need not be there yet (AP-HEALTH-03).
func Serve(o Options) (*Server, error) {
	if o.Clock == nil {
		o.Clock = clock.NewReal()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Listen == nil {
		o.Listen = func(port int) (net.Listener, error) {
			var lc net.ListenConfig
			return lc.Listen(context.Background(), "tcp", ":"+strconv.Itoa(port))
		}
	}
	o.Logger = slog.New(newQuiet(o.Logger.Handler(), o.Clock))
	s := &Server{o: o, keys: map[string]servedQueue{}, byName: map[string]*served{}}
	s.drain, s.begin = context.WithCancel(context.Background())
	d, err := s.assemble()
	if err != nil {
		return nil, err
	}
	s.d = d
	if err := s.listen(); err != nil {
		_ = s.hangUp() // nothing was asked yet
		return nil, err
	}
	d.spawn(func() { d.writer.run(d.ctx) })
	go d.run()
	s.setQueues(o.Config)
	s.background()
	return s, nil
}

// assemble makes the driver and its parts; nothing runs yet.
func (s *Server) assemble() (*driver, error) {
	c, f := s.o.Config, s.o.Config.Flags
	mc := async.Config{EpochUnix: s.o.Clock.Epoch().UnixNano(), Seed: s.o.Seed, Pools: c.Pools, Merge: c.Merge, Transforms: c.Transforms, RequestTimeout: f.RequestTimeout,
		GateWait: f.GateWaitTimeout, RetryTransport: f.RetryTransportErrors}
	if mc.Seed == 0 {
		mc.Seed = uint64(mc.EpochUnix)
	}
	for _, src := range c.Sources {
		mc.Sources = append(mc.Sources, async.Source{TTL: src.TTL})
	}
	m, err := async.New(mc)
	if err != nil {
		return nil, err
	}
	workers := 0
	for _, p := range c.Pools {
		workers += p.Workers
	}
	client := s.o.HTTP
	if client == nil {
		if client, err = newHTTPClient(f, workers); err != nil {
			return nil, err
		}
	}
	src := newSources(f.PrometheusURL, c.Sources)
	if s.o.Dial != nil {
		src.dial = s.o.Dial
	}
	d := &driver{machine: m, step: m.Step, clock: s.o.Clock, epoch: mc.EpochUnix, http: client, sources: src,
		quotas: newQuotas(src, s.o.Logger), leases: &leases{held: map[async.MessageID]*carried{}}, metrics: NewMetrics(), tracer: newTracer(s.o.Tracing), log: s.o.Logger,
		events: make(chan event, eventBuffer), done: make(chan struct{}), idle: make(chan struct{}), served: map[async.QueueKey]*served{},
		carried: map[async.MessageID]*carried{}, slots: make(chan struct{}, pushLimit)}
	if s.o.Around != nil {
		d.step = s.o.Around(m.Step)
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	if err := s.connect(d); err != nil {
		return nil, err
	}
	d.writer = newWriter(d.broker, s.o.Logger, d.ended)
	for _, p := range c.Pools {
		d.pools = append(d.pools, p.Name)
		d.metrics.workers.WithLabelValues(p.Name).Set(float64(p.Workers))
		if p.Gate != nil {
			d.metrics.gates(labels{"", "", p.Name})
		}
	}
	return d, nil
}

// listen opens the two ports. One that is taken is named together with the flag that chooses another.
func (s *Server) listen() error {
	page := s.d.metrics.Gatherer()
	if s.o.Page != nil {
		page = s.o.Page(page)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", s.guard(promhttp.HandlerFor(page, promhttp.HandlerOpts{})))
	probes := http.NewServeMux()
	probes.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok", "") })
	probes.HandleFunc("/readyz", s.ready)
	var open []net.Listener
	for i, l := range []struct {
		what, flag string
		port       int
		handler    http.Handler
		server     **http.Server
	}{
		{"metrics", "--metrics-port", s.o.Config.Flags.MetricsPort, mux, &s.metrics},
		{"health", "--health-port", s.o.Config.Flags.HealthPort, probes, &s.health},
	} {
		ln, err := s.o.Listen(l.port)
		if err != nil {
			for _, ln := range open {
				ln.Close()
			}
			return fmt.Errorf("%s port %d: %w; choose another one with %s (0 takes a free one)", l.what, l.port, err, l.flag)
		}
		open = append(open, ln)
		s.addrs[i] = ln.Addr().String()
		*l.server = &http.Server{Handler: l.handler, ReadHeaderTimeout: 10 * time.Second}
	}
	for i, hs := range []*http.Server{s.metrics, s.health} {
		s.d.spawn(func() {
			if err := hs.Serve(open[i]); err != nil && !errors.Is(err, http.ErrServerClosed) {
				s.o.Logger.Error("server stopped", "address", s.addrs[i], "error", err)
			}
		})
	}
	return nil
}

// guard shows the metrics to those who may see them (AP-HEALTH-02).
func (s *Server) guard(metrics http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, why := http.StatusOK, ""
		switch {
		case !s.o.Config.Flags.MetricsEndpointAuth:
		case s.o.Authorize == nil:
			status, why = http.StatusUnauthorized, "authentication is required, and no Kubernetes API is known that could check it: "+
				"set KUBECONFIG or run in a cluster, or start with --metrics-endpoint-auth=false"
		default:
			status, why = s.o.Authorize(r)
		}
		if status != http.StatusOK {
			if status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			http.Error(w, why, status)
			return
		}
		metrics.ServeHTTP(w, r)
	})
}

// MetricsAddr is the address of /metrics.
func (s *Server) MetricsAddr() string { return s.addrs[0] }

// HealthAddr is the address of the probes.
func (s *Server) HealthAddr() string { return s.addrs[1] }

// Metrics are the server's series.
func (s *Server) Metrics() *Metrics { return s.d.metrics }

const readyTimeout = 3 * time.Second

// ready answers whether work can be done: the broker is there, and no drain is under way (AP-HEALTH-01).
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if s.drain.Err() != nil {
		answer(w, http.StatusServiceUnavailable, "not ready", "draining")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := s.ping(ctx); err != nil {
		answer(w, http.StatusServiceUnavailable, "not ready", err.Error())
		return
	}
	answer(w, http.StatusOK, "ready", "")
}

func answer(w http.ResponseWriter, status int, word, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct { // the peer may be gone
		Status string `json:"status"`
		Error  string `json:"error,omitempty"`
	}{word, why})
}

// The periods of what has none in the configuration.
const (
	markInterval = time.Second
	// flushTimeout bounds the wait for the broker to take the last ends, after the drain.
	flushTimeout = 10 * time.Second
)

// background starts what happens by itself.
func (s *Server) background() {
	d, c := s.d, s.o.Config
	go1 := func(period time.Duration, atOnce bool, f func(ctx context.Context)) {
		if period > 0 {
			d.spawn(func() { every(d.ctx, period, atOnce, func() { f(d.ctx) }) })
		}
	}
	if s.subs != nil {
		for name := range s.subs.limits {
			d.spawn(func() {
				ctx, stop := context.WithCancel(d.ctx)
				defer stop()
				defer context.AfterFunc(s.drain, stop)()
				s.subs.run(ctx, name, func(err error) { s.o.Logger.Warn("receive", "queue", name, "error", err) })
			})
		}
	} else if ch, ok := d.broker.(*redisq.Channels); ok {
		go1(channelRetryInterval, false, func(ctx context.Context) { s.takeDue(ctx, ch) })
		names := s.names()
		d.spawn(func() { s.listenChannels(names) })
	} else {
		go1(c.Redis.PollInterval, false, s.moveDue)
	}
	go1(holdInterval, false, d.quotas.hold)
	if d.marked != nil {
		go1(markInterval, false, d.watchMarks)
	}
	if l, ok := d.broker.(leaser); ok {
		go1(heartbeat(c.Redis.ClaimLease), false, func(ctx context.Context) { d.renew(ctx, l) })
		go1(c.Redis.ReclaimInterval, true, func(ctx context.Context) { s.reclaim(ctx, l) })
	}
	if c.Transport == asyncconfig.RedisSortedSet {
		go1(c.Flags.BacklogInterval, true, s.backlogs)
		if c.Flags.Eager {
			s.wakes = newWakes(s.redis, func(queue string) { s.wake(queue) })
			s.wakes.set(s.names())
			d.spawn(func() { s.wakes.run(d.ctx) })
		}
	}
	if s.o.Loader != nil {
		go1(c.Flags.WatchInterval, false, s.reload)
	}
}

// moveDue puts the retries that are due back into their queues.
func (s *Server) moveDue(ctx context.Context) {
	first := ""
	if names := s.names(); len(names) > 0 {
		first = names[0]
	}
	for s.drain.Err() == nil {
		n, err := s.d.broker.MoveDue(ctx, float64(s.d.epoch+int64(s.o.Clock.Now()))/1e9, home(first))
		if err != nil {
			s.o.Logger.Warn("retries", "error", err)
			return
		}
		if n == 0 {
			return
		}
	}
}

// reclaim takes up messages whose processor was killed.
func (s *Server) reclaim(ctx context.Context, l leaser) {
	for _, queue := range s.names() {
		for {
			n, err := l.Reclaim(ctx, queue)
			if err != nil {
				s.o.Logger.Warn("reclaim", "queue", queue, "error", err)
			}
			if n > 0 {
				s.o.Logger.Info("reclaimed messages whose lease was over", "queue", queue, "messages", n)
			}
			if n == 0 || err != nil {
				break
			}
		}
	}
}

// Shutdown drains: nothing more is pulled, what waits goes back, what is in flight may finish until --drain-timeout or the end of ctx,
// then it goes back too. It ends like Close.
func (s *Server) Shutdown(ctx context.Context) error {
	s.begin()
	d := s.d
	d.await(event{ev: async.Event{Kind: async.Drain}})
	drain, cancel := context.WithTimeout(ctx, s.o.Config.Flags.DrainTimeout)
	defer cancel()
	select {
	case <-d.idle:
	case <-drain.Done():
		s.o.Logger.Warn("drain timeout: requests in flight go back to the broker")
		d.await(event{ev: async.Event{Kind: async.Abandon}})
	}
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	var err error
	select {
	case <-d.idle:
	case <-flush.Done():
		err = errors.New("drain: questions to the broker are still open")
	}
	if !d.writer.flush(flush) {
		err = errors.New("drain: the broker did not take everything; under leases another processor does it after they end")
	}
	if !d.quotas.flush(flush) {
		err = errors.Join(err, errors.New("drain: quotas were not given back; their leases end them"))
	}
	s.Close()
	return err
}

// Close stops at once. It returns when every goroutine has ended.
func (s *Server) Close() {
	s.once.Do(func() {
		s.begin()
		s.metrics.Close()
		s.health.Close()
		s.d.close()
		s.d.sources.close()
		_ = s.hangUp() // nothing can be done about it
		s.d.http.CloseIdleConnections()
	})
}
