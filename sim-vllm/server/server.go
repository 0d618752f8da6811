package server

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/sim-vllm/engine"
)

// Server is one simulated vLLM server. Its methods are safe for concurrent use.
type Server struct {
	cfg     Config
	clk     clock.Clock
	model   string    // in responses and metric labels
	started time.Time // wall time of the clock's epoch, for `created` fields only
	mux     http.Handler
	run     string        // of all servers, this one
	seq     atomic.Uint64 // engine ids

	mu       sync.Mutex
	log      []*call // in order of arrival
	held     []*call // in order of arrival
	inFlight int
	hold     bool
	load     *Load
	fail     int
	fault    MetricsFault
	frozen   []byte        // the page of FaultFreeze
	unhang   chan struct{} // closed when the fault changes
	scrapes  int64
	version  uint64        // grows with everything that Log, Held, InFlight or Scrapes can show
	changed  chan struct{} // closed and replaced by event

	inbox inbox
	meter meter
	late  atomic.Int64 // steps that began after their time

	startOnce, closeOnce sync.Once
	closing              chan struct{} // closed by Close
	stopped              chan struct{} // closed when the engine goroutine is gone
}

// New makes a server; Start starts it.
func New(c Config) (*Server, error) {
	if c.MaxModelLen > 0 {
		c.Engine.MaxModelLen = c.MaxModelLen
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("model server %q: %w", c.Name, err)
	}
	if err := c.Engine.Validate(); err != nil {
		return nil, fmt.Errorf("model server %q: %w", c.Name, err)
	}
	if c.Clock == nil {
		c.Clock = clock.NewReal()
	}
	c.ClockID = cmp.Or(c.ClockID, rand.Text())
	s := &Server{cfg: c, clk: c.Clock, model: c.Model, hold: c.Hold, fault: FaultNone, unhang: make(chan struct{}),
		changed: make(chan struct{}), run: rand.Text(),
		closing: make(chan struct{}), stopped: make(chan struct{})}
	if s.model == "" {
		s.model = defaultModel
	}
	s.started = clock.Wall().Add(-s.clk.Now())
	s.inbox.notify = make(chan struct{}, 1)
	s.meter.init(c.Engine.MaxModelLen)
	s.mux = s.named(s.routes(), wire.HeaderServedBy)
	return s, nil
}

// Handler serves the OpenAI, metrics and admin paths.
func (s *Server) Handler() http.Handler { return s.mux }

// Start starts the engine goroutine; without it requests enter the queue and stay there. Later calls do nothing.
func (s *Server) Start() {
	s.startOnce.Do(func() {
		e, err := engine.New(s.cfg.Engine)
		if err != nil {
			panic(err) // New validated the same configuration
		}
		go s.drive(e)
	})
}

// Close ends the engine goroutine and waits for it. Requests still inside are broken off: 503 where nothing was sent yet, a reset
// otherwise. The HTTP server around Handler is the caller's to close.
func (s *Server) Close() {
	s.closeOnce.Do(func() {
		close(s.closing)
		s.startOnce.Do(func() { close(s.stopped) }) // never started
		<-s.stopped
	})
}

func (s *Server) event() {
	s.mu.Lock()
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	if s.cfg.OnEvent != nil {
		s.cfg.OnEvent()
	}
}

func (s *Server) routes() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { s.infer(w, r, completions) })
	m.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.infer(w, r, chat) })
	m.HandleFunc("GET /v1/models", s.models)
	m.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	m.HandleFunc("GET /ping", func(http.ResponseWriter, *http.Request) {})
	m.HandleFunc("POST /ping", func(http.ResponseWriter, *http.Request) {})
	m.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": version})
	})
	m.HandleFunc("GET /metrics", s.metrics)
	s.adminRoutes(m)
	return m
}

func (s *Server) models(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(wire.HeaderID) != "" { // a request of the harness: what it was answered must be known on both sides
		c := s.arrive(r, nil, request{}, s.clk.Now(), false)
		s.end(c, evidence.Finished, nil)
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]any{
		"id": s.model, "object": "model", "created": s.started.Unix(), "owned_by": "vllm", "root": s.model, "parent": nil,
		"max_model_len": s.cfg.Engine.MaxModelLen, "permission": []any{},
	}}})
}
