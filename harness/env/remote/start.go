package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/loadgen/openai"
	"github.com/llm-weir/weir/reference/gateway"
	"github.com/llm-weir/weir/sim-vllm/presets"
)

// simulators are all that the descriptor names, in order.
func (s *System) simulators(client *http.Client) []*sim {
	var out []*sim
	for _, name := range s.opts.Running.Names() {
		out = append(out, &sim{own: name, base: s.opts.Running.Simulators[name], address: s.opts.Running.Address(name), client: client})
	}
	return out
}

// start sets the simulators up, configures the router, and compares the clocks.
func start(ctx context.Context, scenario string, s *System, out evidence.Sink) (st *stage, err error) {
	st = &stage{scenario: scenario, sys: s, out: out, Clients: env.NewClients(), control: openai.NewClient(32)}
	st.base, st.cancel = context.WithCancelCause(context.Background())
	st.broken, st.breakOff = context.WithCancelCause(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	if st.dir, err = os.MkdirTemp("", "weir-remote-"); err != nil {
		return st, err
	}
	all := s.simulators(st.control)
	st.sims = all[:min(len(all), len(s.cfg.Endpoints))]
	preset := s.cfg.Preset
	if preset == "" {
		preset = presets.Instant
	}
	for i, sm := range st.sims {
		sm.spec = s.cfg.Endpoints[i]
		if err := sm.setUp(ctx, s.cfg, preset); err != nil {
			return st, err
		}
		if !sm.spec.Out {
			st.member = append(st.member, sm.spec.Name)
		}
	}
	if err := st.openDoor(); err != nil {
		return st, err
	}
	if err := st.configure(ctx); err != nil {
		return st, err
	}
	if err := st.align(ctx); err != nil {
		return st, err
	}
	for _, sm := range st.sims {
		st.tasks.Go(func() { st.follow(sm) })
	}
	return st, nil
}

// openDoor finds out where clients send: to the router, or to a gateway of ours in front of a picker.
func (st *stage) openDoor() error {
	st.sender = &openai.Sender{Client: openai.NewClient(256), Clock: st.Clock, BaseURL: st.sys.opts.Running.Gateway}
	target, direct := either(st.sys.opts.Front, st.sys.opts.Running.ExtProc), []grpc.DialOption(nil)
	if st.sys.opts.Driver != nil { // it says where only once it has brought one up, and each time anew
		target, direct = "passthrough:///picker", []grpc.DialOption{st.sys.dialer()}
	}
	if target == "" {
		return nil
	}
	toPicker, err := gateway.PickerTLS("", st.sys.opts.FrontTLS)
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	st.gateway, err = gateway.New(gateway.Config{ExtProcAddr: target, DialOptions: direct, TLS: toPicker, Clock: st.Clock, Observe: st.exchanged, Logger: slog.New(slog.DiscardHandler)})
	if err != nil || !st.sys.fronted() {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	st.front = &http.Server{Handler: st.counted(st.gateway.Handler()), ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	st.tasks.Go(func() { _ = st.front.Serve(ln) })
	st.sender.BaseURL = "http://" + ln.Addr().String()
	return nil
}

// counted counts the requests inside h, so that what the gateway saw of them is on record before the scenario is over.
func (st *stage) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		st.handling.Add(1)
		defer func() {
			st.handling.Add(-1)
			st.Wake()
		}()
		h.ServeHTTP(w, r)
	})
}

// configure gives the router what the scenario wants, and waits until it serves.
func (st *stage) configure(ctx context.Context) error {
	s := st.sys
	if s.has("command") {
		if err := st.hook(ctx, "command", st.sys.doc, false); err != nil {
			return fmt.Errorf("configure command: %w", err)
		}
		if err := st.ready(ctx); err != nil {
			return err
		}
	}
	if s.fronted() {
		ctx, cancel := context.WithTimeout(ctx, st.limit())
		defer cancel()
		if err := st.gateway.Ready(ctx); err != nil {
			return err
		}
	}
	return s.metricsAnswer(ctx, st.control)
}

func (st *stage) limit() time.Duration {
	if l := st.sys.opts.Running.Configure.Limit; l > 0 {
		return l
	}
	return sut.DefaultHookLimit
}

// pause is between two looks at something that nobody announces.
const pause = 20 * time.Millisecond

// ready waits until the router says that it serves, or where it has no word for it until its port is open.
func (st *stage) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, st.limit())
	defer cancel()
	look := func() error {
		_, err := get(ctx, st.control, st.sys.opts.Running.Configure.Ready)
		return err
	}
	switch {
	case st.sys.opts.Driver != nil: // it returns when the picker serves
		return nil
	case st.sys.opts.Running.Configure.Ready == "": // a request would be counted by the router
		look = func() error { return dial(ctx, st.sender.BaseURL) }
	}
	var last error
	for {
		if err := look(); err == nil {
			return nil
		} else if ctx.Err() == nil || last == nil {
			last = err
		}
		if !clock.Sleep(ctx, pause) {
			return fmt.Errorf("the router was configured, but is not ready after %s: %w", st.limit(), last)
		}
	}
}

// dial opens a connection to the host of a URL.
func dial(ctx context.Context, base string) error {
	u, err := url.Parse(base)
	if err != nil {
		return err
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return err
	}
	return c.Close()
}

// hook writes the files that a command may read, and runs it. What it prints is kept.
func (st *stage) hook(ctx context.Context, field, document string, stable bool) error {
	if st.sys.opts.Driver != nil {
		return st.drive(ctx, field, document, stable)
	}
	values := map[string]string{"Scenario": st.scenario, "Gateway": st.sys.opts.Running.Gateway, "Stable": fmt.Sprint(stable)}
	objectives := st.sys.cfg.Objectives
	if objectives == nil {
		objectives = map[string]int{}
	}
	for _, f := range []struct {
		name, file string
		doc        any
	}{{"Objectives", "objectives.yaml", map[string]any{"objectives": objectives}}, {"Endpoints", "endpoints.yaml", map[string]any{"endpoints": st.pool()}}, {"Config", "config.yaml", nil}} {
		text := []byte(document)
		if f.doc != nil {
			var err error
			if text, err = yaml.Marshal(f.doc); err != nil {
				return err
			}
		}
		values[f.name] = filepath.Join(st.dir, f.file)
		if err := os.WriteFile(values[f.name], text, 0o600); err != nil {
			return err
		}
	}
	printed, err := st.sys.hooks[field].Run(ctx, values, st.limit())
	st.printed.add(field, printed)
	var failed *binary.StartError
	if errors.As(err, &failed) && failed.ExitCode == binary.HookUnsupported {
		return &sut.UnsupportedError{Feature: sut.Configurable, Why: failed.Error()}
	}
	return err
}

// poolEntry is a member of the pool in the endpoints file.
type poolEntry struct {
	Name    string            `yaml:"name"`
	Address string            `yaml:"address"`
	Port    string            `yaml:"port"`
	Labels  map[string]string `yaml:"labels,omitempty"`
}

func (st *stage) pool() []poolEntry {
	out := []poolEntry{}
	for _, name := range st.member {
		sm := st.sim(name)
		if sm == nil {
			continue
		}
		host, port, err := net.SplitHostPort(sm.address)
		if err != nil {
			host = sm.address
		}
		e := poolEntry{Name: name, Address: host, Port: port}
		if sm.spec.Role != "" {
			e.Labels = map[string]string{"llm-d.ai/role": sm.spec.Role}
		}
		out = append(out, e)
	}
	return out
}

// printed is what the commands of a scenario have printed.
type printed struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *printed) add(field, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(&p.text, "--- %s\n%s", field, text)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}
