package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/gateway"
	"github.com/llm-weir/weir/reference/picker"
)

// upRouter is the router of "up": a picker at fixed addresses and a gateway in front of it, which can be given another configuration.
type upRouter struct {
	clock     clock.Real
	contract  epconfig.Contract
	profile   profile.Profile
	addresses []picker.Endpoint // of all simulators
	names     []sut.Endpoint    // what the first configuration calls its endpoints; none: as the simulators are called

	busy sync.Mutex // one change at a time

	mu         sync.Mutex
	document   string
	objectives map[string]int
	pool       []picker.Endpoint
	epp        *epp.Server // nil while it is stopped
	gateway    *gateway.Gateway
	ports      [3]string // ext_proc, health, metrics
}

// first reads the configuration with which the stack comes up.
func (r *upRouter) first(c *upRunCmd) (err error) {
	if r.profile, err = profile.Named(c.Profile); err != nil {
		return err
	}
	if r.contract, err = epconfig.ContractNamed(c.Profile); err != nil {
		return err
	}
	r.ports = [3]string{"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"}
	r.document, r.objectives = upConfig, upObjectives
	switch {
	case c.ConfigFile != "" && c.Configuration != "":
		return errors.New("--config-file and --configuration exclude each other")
	case c.ConfigFile != "":
		doc, err := os.ReadFile(c.ConfigFile)
		if err != nil {
			return fmt.Errorf("--config-file: %w", err)
		}
		r.document = string(doc)
	case c.Configuration != "":
		g, err := findConfiguration(r.profile, c.Configuration)
		if err != nil {
			return fmt.Errorf("--configuration: %w", err)
		}
		if r.document, err = sut.Render(g.config, r.profile.Config); err != nil {
			return err
		}
		r.objectives, r.names = g.config.Objectives, g.config.Endpoints
	case c.WriteSUT != "":
		c.Servers = max(c.Servers, mostEndpoints(r.profile))
	}
	return nil
}

// place names the first members of the pool.
func (r *upRouter) place(all []picker.Endpoint) []picker.Endpoint {
	if len(r.names) == 0 {
		return all
	}
	var out []picker.Endpoint
	for i, n := range r.names {
		if !n.Out {
			out = append(out, picker.Endpoint{Name: n.Name, Address: all[i].Address, Role: epp.RoleOf(n.Role)})
		}
	}
	return out
}

// ServeHTTP passes requests to the gateway that is in place.
func (r *upRouter) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	g := r.gateway
	r.mu.Unlock()
	if g == nil {
		http.Error(w, "the stack is being configured", http.StatusServiceUnavailable)
		return
	}
	g.Handler().ServeHTTP(w, q)
}

func (r *upRouter) server() *epp.Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.epp
}

// apply puts a picker with another configuration in the place of the one that runs.
func (r *upRouter) apply(document string, pool []picker.Endpoint, objectives map[string]int) error {
	r.busy.Lock()
	defer r.busy.Unlock()
	if _, err := epconfig.Load("config.yaml", []byte(document), r.contract); err != nil {
		return err // the picker that runs goes on
	}
	r.stop(func(s *epp.Server) error { return s.Close() })
	r.mu.Lock()
	r.document, r.pool, r.objectives = document, pool, objectives
	old := r.gateway
	r.gateway = nil
	r.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return r.serve()
}

// serve starts the picker, and a gateway if there is none.
func (r *upRouter) serve() error {
	cfg, err := epconfig.Load("config.yaml", []byte(r.document), r.contract)
	if err != nil {
		return err
	}
	m, err := picker.New(cfg.Picker)
	if err != nil {
		return err
	}
	s, err := epp.Serve(epp.Options{Wiring: epp.DefaultWiring(m, r.contract, cfg.SessionHeaders...), Config: cfg, PoolName: "up", GRPCAddr: r.ports[0], HealthAddr: r.ports[1],
		MetricsAddr: r.ports[2], Endpoints: r.pool, Objectives: r.objectives, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	g := r.gateway
	if g == nil {
		if g, err = gateway.New(gateway.Config{ExtProcAddr: s.GRPCAddr(), Logger: slog.New(slog.DiscardHandler)}); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := g.Ready(ctx); err != nil {
		return errors.Join(err, g.Close(), s.Close())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epp, r.gateway, r.ports = s, g, [3]string{s.GRPCAddr(), s.HealthAddr(), s.MetricsAddr()}
	return nil
}

// stop ends the picker, if it runs.
func (r *upRouter) stop(how func(*epp.Server) error) {
	r.mu.Lock()
	s := r.epp
	r.mu.Unlock()
	if s != nil {
		_ = how(s) // it ends in any case; what it cut short its clients see
	}
	r.mu.Lock()
	r.epp = nil
	r.mu.Unlock()
}

func (r *upRouter) close() {
	r.busy.Lock()
	defer r.busy.Unlock()
	r.mu.Lock()
	g := r.gateway
	r.mu.Unlock()
	if g != nil {
		g.Close()
	}
	r.stop(func(s *epp.Server) error { return s.Close() })
}

// upDrain is how long requests in flight may finish after a stop.
const upDrain = 25 * time.Second

// order is what "up configure" sends to the control address.
type order struct {
	Document   string         `json:"document"`
	Stable     bool           `json:"stable"`
	Endpoints  []orderedPod   `json:"endpoints"`
	Objectives map[string]int `json:"objectives"`
}

// orderedPod is a member of the pool.
type orderedPod struct {
	Name    string            `json:"name" yaml:"name"`
	Address string            `json:"address" yaml:"address"`
	Port    string            `json:"port" yaml:"port"`
	Labels  map[string]string `json:"labels" yaml:"labels"`
}

func (o order) members() []picker.Endpoint {
	var out []picker.Endpoint
	for _, e := range o.Endpoints {
		out = append(out, picker.Endpoint{Name: e.Name, Address: net.JoinHostPort(e.Address, e.Port), Role: epp.RoleOf(e.Labels["llm-d.ai/role"])})
	}
	return out
}

// control serves the control API: one path for each thing that can be done.
func (r *upRouter) control() http.Handler {
	m := http.NewServeMux()
	post := func(path string, do func(o order) error) {
		m.HandleFunc("POST "+path, func(w http.ResponseWriter, q *http.Request) {
			var o order
			dec := json.NewDecoder(http.MaxBytesReader(w, q.Body, 8<<20))
			dec.DisallowUnknownFields()
			err := dec.Decode(&o)
			if err == nil {
				err = do(o)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			}
		})
	}
	post("/configure", func(o order) error { return r.apply(o.Document, o.members(), o.Objectives) })
	post("/update", r.update)
	post("/try", r.try)
	post("/stop", func(order) error {
		r.busy.Lock()
		defer r.busy.Unlock()
		r.stop(func(s *epp.Server) error {
			ctx, cancel := context.WithTimeout(context.Background(), upDrain)
			defer cancel()
			return s.Shutdown(ctx)
		})
		return nil
	})
	post("/start", func(order) error {
		r.busy.Lock()
		defer r.busy.Unlock()
		if r.server() != nil {
			return errors.New("the picker runs")
		}
		return r.serve()
	})
	m.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if r.server() == nil {
			http.Error(w, "the picker does not run", http.StatusServiceUnavailable)
		}
	})
	return m
}

// update changes pool and objectives of the picker that runs.
func (r *upRouter) update(o order) error {
	r.busy.Lock()
	defer r.busy.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pool, r.objectives = o.members(), o.Objectives
	if r.epp == nil {
		return errors.New("the picker does not run")
	}
	r.epp.SetEndpoints(r.pool)
	r.epp.SetObjectives(r.objectives)
	return nil
}

// try starts a second picker with a document and ends it at once.
func (r *upRouter) try(o order) error {
	cfg, err := epconfig.Load("config.yaml", []byte(o.Document), r.contract)
	if err == nil && o.Stable {
		err = cfg.Stable()
	}
	if err != nil {
		return err
	}
	m, err := picker.New(cfg.Picker)
	if err != nil {
		return err
	}
	s, err := epp.Serve(epp.Options{Wiring: epp.DefaultWiring(m, r.contract, cfg.SessionHeaders...), Config: cfg, PoolName: "try", GRPCAddr: "127.0.0.1:0", HealthAddr: "127.0.0.1:0",
		MetricsAddr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return s.Close()
}

// goals lists objectives, the highest first.
func goals(m map[string]int) string {
	var out []string
	for _, name := range byPriority(m) {
		out = append(out, fmt.Sprintf("%s=%d", name, m[name]))
	}
	return strings.Join(out, " ")
}

func byPriority(m map[string]int) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		if m[a] != m[b] {
			return m[b] - m[a]
		}
		return strings.Compare(a, b)
	})
}

// highest is the objective that goes first.
func (r *upRouter) highest() string {
	if names := byPriority(r.objectives); len(names) > 0 {
		return names[0]
	}
	return ""
}
