package server

import (
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/llm-weir/weir/sim-vllm/engine"
)

// Setup is what POST /admin/setup makes of a server.
type Setup struct {
	Preset        string `json:"preset,omitempty"`  // of the engine; "": the one that the host was started with
	MaxSeqs       int    `json:"maxSeqs,omitempty"` // the engine's limit of requests that run at once; 0: the preset's
	Hold          bool   `json:"hold,omitempty"`
	HeldAsWaiting bool   `json:"heldAsWaiting,omitempty"`
}

// Host is an address at which one server follows another: each setup puts a new one, with an empty log and counters at zero, in the place
// of the old one.
type Host struct {
	base   Config
	preset func(name string) (engine.Config, error)

	mu      sync.Mutex
	current *Server
	closed  bool
}

// NewHost starts the first server as base says. preset finds an engine by its name.
func NewHost(base Config, preset func(string) (engine.Config, error)) (*Host, error) {
	h := &Host{base: base, preset: preset}
	first, err := New(base)
	if err != nil {
		return nil, err
	}
	first.Start()
	h.current, h.base.Clock, h.base.ClockID = first, first.clk, first.cfg.ClockID
	return h, nil
}

// Server is the server that is in place.
func (h *Host) Server() *Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// Handler serves the paths of the server in place, and /admin/setup.
func (h *Host) Handler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("POST /admin/setup", command(func(s Setup) (any, error) {
		if err := h.Setup(s); err != nil {
			return nil, err
		}
		return h.Server().about(), nil
	}))
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { h.Server().Handler().ServeHTTP(w, r) })
	return m
}

// Setup replaces the server. Requests inside the old one are broken off.
func (h *Host) Setup(s Setup) error {
	c := h.base
	if s.Preset != "" {
		e, err := h.preset(s.Preset)
		if err != nil {
			return fmt.Errorf("preset: %w", err)
		}
		c.Engine = e
	}
	if s.MaxSeqs < 0 {
		return fmt.Errorf("maxSeqs is %d, must not be negative", s.MaxSeqs)
	}
	if s.MaxSeqs > 0 {
		c.Engine.MaxNumSeqs = s.MaxSeqs
	}
	c.Hold, c.HeldAsWaiting = s.Hold, s.HeldAsWaiting
	next, err := New(c)
	if err != nil {
		return err
	}
	next.Start()
	h.mu.Lock()
	old := h.current
	if h.closed {
		old = next
	} else {
		h.current = next
	}
	h.mu.Unlock()
	old.Close()
	if old == next {
		return errors.New("the host is closed")
	}
	return nil
}

// Close ends the server in place; there is no other after it.
func (h *Host) Close() {
	h.mu.Lock()
	h.closed = true
	s := h.current
	h.mu.Unlock()
	s.Close()
}
