package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/sim-vllm/presets"
	"github.com/llm-weir/weir/sim-vllm/server"
)

// sim is one model server on a port of its own.
type sim struct {
	spec   sut.Endpoint
	server *server.Server
	http   *http.Server
	addr   string
}

// start brings model servers, picker and gateway up; what came up is taken down again if the rest does not.
func start(ctx context.Context, scenario string, s *System, out evidence.Sink) (st *stage, err error) {
	st = &stage{scenario: scenario, sys: s, out: out, Clients: env.NewClients()}
	st.base, st.cancel = context.WithCancelCause(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	if st.port, err = s.serverPort(); err != nil {
		return st, err
	}
	for _, e := range s.cfg.Endpoints {
		sm, err := st.startSim(e)
		if err != nil {
			return st, err
		}
		st.sims = append(st.sims, sm)
	}
	if st.router, err = st.startRouters(ctx); err != nil {
		return st, err
	}
	if err := st.openDoors(); err != nil {
		return st, err
	}
	return st, st.startBatch()
}

const loopback = "127.0.0.1:0"

func (st *stage) startSim(spec sut.Endpoint) (*sim, error) {
	name := st.sys.cfg.Preset
	if name == "" {
		name = presets.Instant
	}
	ec, err := presets.Get(name)
	if err != nil {
		return nil, err
	}
	if n := st.sys.cfg.MaxSeqs; n > 0 {
		ec.MaxNumSeqs = n
	}
	sv, err := server.New(server.Config{Name: spec.Name, Engine: ec, Clock: st.Clock, Hold: st.sys.cfg.Hold,
		HeldAsWaiting: st.sys.cfg.HeldAsWaiting, OnEvent: st.Wake})
	if err != nil {
		return nil, fmt.Errorf("model server %s: %w", spec.Name, err)
	}
	ln, err := net.Listen("tcp", st.serverAddr(len(st.sims)+1))
	if err != nil {
		return nil, fmt.Errorf("model server %s: %w", spec.Name, err)
	}
	sv.Start()
	sm := &sim{spec: spec, server: sv, addr: ln.Addr().String(), http: serve(&st.tasks, ln, sv.Handler())}
	if !spec.Out {
		st.member = append(st.member, spec.Name)
	}
	return sm, nil
}

// serve runs an HTTP server on a listener; closing it ends the goroutine.
func serve(tasks *sync.WaitGroup, ln net.Listener, h http.Handler) *http.Server {
	hs := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	tasks.Go(func() { _ = hs.Serve(ln) })
	return hs
}

// counted counts the requests inside h, so that what the gateway saw of them is on record before the scenario is over.
func (st *stage) counted(h http.Handler) http.Handler {
	count := func(by int) {
		st.mu.Lock()
		st.handling += by
		st.mu.Unlock()
		st.Wake()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count(1)
		defer count(-1)
		h.ServeHTTP(w, r)
	})
}

// members are the model servers in the pool.
func (st *stage) members() []*sim {
	var out []*sim
	for _, name := range st.member {
		if sm := st.sim(name); sm != nil {
			out = append(out, sm)
		}
	}
	return out
}

// close takes everything down and waits for every goroutine; it is safe to call again.
func (st *stage) close() error {
	st.once.Do(func() {
		st.stopBatch()
		st.cancel(errors.New("the scenario is over"))
		st.Wait()
		for _, d := range st.doors {
			d.gateway.Close()
			if d.front != nil {
				d.front.Close()
			}
		}
		st.Await(context.Background(), st.Clock.Now()+settleLimit, st.unhandled)
		if st.router != nil {
			st.failure = st.router.Close()
		}
		if st.exchange != nil {
			st.exchange.close()
		}
		for _, sm := range st.sims {
			sm.server.Close()
			sm.http.Close()
		}
		for _, d := range st.doors {
			if d.sender != nil {
				d.sender.Client.CloseIdleConnections()
			}
		}
		st.tasks.Wait()
	})
	return st.failure
}
