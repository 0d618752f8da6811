package epp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/extproc"
	"github.com/llm-weir/weir/reference/loadsync"
	"github.com/llm-weir/weir/reference/picker"
	"github.com/llm-weir/weir/reference/redisq/redistest"
)

// lag is more than a change takes to reach the others.
const lag = 10 * time.Millisecond

// counting is a document with the concurrency detector.
func counting(t testing.TB, limit int, producer string) epconfig.Config {
	t.Helper()
	contract, err := epconfig.ContractNamed("")
	if err != nil {
		t.Fatal(err)
	}
	doc := fmt.Sprintf(`apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: %d}}
- {type: inflight-load-producer, parameters: {%s}}
flowControl: {saturationDetector: {pluginRef: concurrency-detector}}
`, limit, producer)
	c, err := epconfig.Load("epp.yaml", []byte(doc), contract)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// twin is one of several replicas of a picker, a driver and a syncer, and its clients.
type twin struct {
	*Driver
	machine *picker.Picker
	metrics *Metrics
	sync    *loadsync.Syncer

	mu       sync.Mutex
	waiting  int
	running  []Placement
	refused  int
	requests sync.WaitGroup
}

func newTwin(t testing.TB, m *miniredis.Miniredis, limit int, endpoints ...picker.Endpoint) *twin {
	t.Helper()
	cfg := counting(t, limit, "")
	p, err := picker.New(cfg.Picker)
	if err != nil {
		t.Fatal(err)
	}
	w := &twin{machine: p, metrics: NewMetrics("pool", cfg)}
	o := Options{Config: cfg, PoolName: "pool", Clock: clock.NewReal(), Logger: slog.New(slog.DiscardHandler), Wiring: DefaultWiring(p, cfg.Contract),
		redis: &redis.Options{Addr: "here", Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() }}}
	moved := make(chan struct{}, 1)
	w.Driver = NewDriver(p, DriverConfig{Clock: o.Clock, Metrics: w.metrics, InFlight: o.Wiring.InFlight, OnLoad: func() {
		select {
		case moved <- struct{}{}:
		default:
		}
	}})
	w.SetEndpoints(endpoints)
	w.sync = loadsync.Start(o.syncer(w.metrics, w.Driver, moved))
	return w
}

// send sends a request that runs until finish.
func (w *twin) send() {
	w.mu.Lock()
	w.waiting++
	w.mu.Unlock()
	w.requests.Go(func() {
		p, outcome := w.Submit(context.Background(), extproc.Submission{Request: picker.Request{FairnessID: "f", Tokens: 10}})
		w.mu.Lock()
		defer w.mu.Unlock()
		w.waiting--
		if outcome == wire.Dispatched {
			w.running = append(w.running, p)
		} else {
			w.refused++
		}
	})
}

// finish ends the oldest running request.
func (w *twin) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.running) > 0 {
		w.Finish(w.running[0].ID)
		w.running = w.running[1:]
	}
}

func (w *twin) counts() (waiting, running int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting, len(w.running)
}

func (w *twin) expect(t *testing.T, when string, waiting, running int) {
	t.Helper()
	if a, b := w.counts(); a != waiting || b != running {
		t.Errorf("%s: %d wait and %d run, want %d and %d", when, a, b, waiting, running)
	}
}

func (w *twin) close() {
	w.sync.Close()
	w.Close()
	w.requests.Wait()
}

func pass(d time.Duration) {
	clock.Sleep(context.Background(), d)
	synctest.Wait()
}

func here() *miniredis.Miniredis {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	return m
}

func at(name string, n int) picker.Endpoint {
	return picker.Endpoint{Name: name, Address: fmt.Sprintf("10.0.0.%d:80", n)}
}

// TestTwoReplicasShareTheLimit: two pickers before one endpoint admit one limit between them, and own what they admitted (FC-MULTI-03).
func TestTwoReplicasShareTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := here()
		defer m.Close()
		p, q := newTwin(t, m, 2, at("a", 1)), newTwin(t, m, 2, at("other", 9), at("renamed", 1)) // one more, which has the first id there
		defer q.close()
		q.SetEndpoints([]picker.Endpoint{at("renamed", 1)})
		pass(lag)
		p.send()
		pass(lag)
		q.send()
		pass(lag)
		p.send()
		pass(lag)
		q.send()
		pass(lag)
		p.expect(t, "the pool is full", 1, 1)
		q.expect(t, "the pool is full", 1, 1)
		if n := value(t, q.metrics, "llm_d_epp_inflight_requests", map[string]string{"endpoint_name": "renamed"}); n != 1 {
			t.Errorf("%v requests of its own", n)
		}
		if n := value(t, q.metrics, "weir_picker_sync_replicas", nil); n != 1 {
			t.Errorf("%v other replicas", n)
		}
		q.SetEndpoints([]picker.Endpoint{at("renamed-again", 1)})
		pass(lag)
		q.expect(t, "a new name is no new place", 1, 1)
		q.SetEndpoints([]picker.Endpoint{at("renamed-again", 1), at("b", 2)})
		pass(lag)
		q.expect(t, "a new endpoint is", 0, 2)
		p.finish()
		pass(lag)
		p.expect(t, "its own place is its own again", 0, 1)
		p.finish()
		pass(lag)
		p.close() // it takes back what it has said
		q.send()
		q.send()
		q.send()
		pass(lag)
		q.expect(t, "all places of both", 1, 4)
	})
}

// TestADeadReplicaLosesItsPlaces: what it had is forgotten after the limit, and not before.
func TestADeadReplicaLosesItsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := here()
		defer m.Close()
		p, q := newTwin(t, m, 2, at("a", 1)), newTwin(t, m, 2, at("a", 1))
		defer q.close()
		p.send()
		p.send()
		pass(lag)
		q.send()
		pass(5 * time.Second)
		q.expect(t, "a heart-beat is enough", 1, 0)
		p.sync.Abandon()
		p.close()
		pass(1500 * time.Millisecond)
		q.expect(t, "it may be slow only", 1, 0)
		pass(510 * time.Millisecond)
		q.expect(t, "it is dead", 0, 1)
	})
}

// TestWithoutTheServer: each goes on alone, and counts what fails.
func TestWithoutTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := here()
		defer m.Close()
		p, q := newTwin(t, m, 2, at("a", 1)), newTwin(t, m, 2, at("a", 1))
		p.send()
		p.send()
		pass(lag)
		m.SetError("LOADING the server is not ready")
		q.send()
		pass(3 * time.Second)
		q.expect(t, "alone", 0, 1)
		if n := value(t, q.metrics, "weir_picker_sync_errors_total", map[string]string{"operation": "publish"}); n < 5 {
			t.Errorf("%v errors", n)
		}
		q.finish()
		m.FlushAll()
		m.SetError("")
		pass(450 * time.Millisecond)
		q.send()
		pass(lag)
		q.expect(t, "together again", 1, 0)
		p.close()
		q.close()
	})
}

// TestRandomHistories: whatever comes, as long as it comes further apart than the lag, there is never more in flight than the limit, and
// nothing waits while there is room.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			m := here()
			defer m.Close()
			n, limit, replicas := 1+r.IntN(3), 1+r.IntN(4), 2+r.IntN(2)
			var all []*twin
			for range replicas {
				var endpoints []picker.Endpoint
				for _, i := range r.Perm(n) { // ids differ
					endpoints = append(endpoints, at(fmt.Sprint("e", i), i))
				}
				all = append(all, newTwin(t, m, limit, endpoints...))
			}
			for step := range 300 {
				w := all[r.IntN(replicas)]
				if r.IntN(2) == 0 {
					w.send()
				} else {
					w.finish()
				}
				pass(time.Duration(1+r.IntN(3)) * lag)
				if r.IntN(30) == 0 {
					pass(3 * time.Second) // only heart-beats
				}
				waiting, running := 0, 0
				for _, w := range all {
					a, b := w.counts()
					waiting, running = waiting+a, running+b
				}
				// A place that one leaves may be seen by all that wait: each may take it.
				if over := running - n*limit; over > replicas-2 || over < 0 && waiting > 0 {
					t.Fatalf("seed %d, step %d: %d run and %d wait at %d places", seed, step, running, waiting, n*limit)
				}
			}
			for _, w := range all {
				if w.refused > 0 {
					t.Errorf("seed %d: %d refused", seed, w.refused)
				}
				w.close()
			}
		})
	}
}

// TestSyncIsDeclined: the document has the last word, and a mistake in the address is named without what is secret in it.
func TestSyncIsDeclined(t *testing.T) {
	for _, c := range []struct {
		says, producer string
		want           bool
	}{{"by default", "", true}, {"switched on", "syncCrossReplicaState: true", true}, {"switched off", "syncCrossReplicaState: false", false}} {
		cfg := counting(t, 2, c.producer)
		p, err := picker.New(cfg.Picker)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Config: cfg, Wiring: DefaultWiring(p, cfg.Contract), SyncRedis: "redis://127.0.0.1:1"}
		if err := o.fill(); err != nil || o.synchronized() != c.want {
			t.Errorf("%s: %v %v", c.says, o.synchronized(), err)
		}
		o.SyncRedis = "http://u:secret@host"
		if err := o.fill(); err == nil || !strings.Contains(err.Error(), "--sync-redis") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	}
}

// TestRedisServer plays the twins over sockets with a real server, its end and its return, where there is one.
func TestRedisServer(t *testing.T) {
	redis := redistest.New(t)
	servers := make([]*Server, 2)
	for i := range servers {
		cfg := counting(t, 2, "")
		p, err := picker.New(cfg.Picker)
		if err != nil {
			t.Fatal(err)
		}
		if servers[i], err = Serve(Options{Wiring: DefaultWiring(p, cfg.Contract), Config: cfg, PoolName: "pool", GRPCAddr: "127.0.0.1:0", HealthAddr: "127.0.0.1:0",
			MetricsAddr: "127.0.0.1:0", Endpoints: []picker.Endpoint{at("a", 1)}, ScrapeInterval: -1, SyncRedis: "redis://" + redis.Addr(),
			Logger: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		defer servers[i].Close()
	}
	p, q := servers[0], servers[1]
	full := func(s *Server, pressure float64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for seen := -1.0; seen != pressure; {
			if seen = value(t, s.Metrics(), "llm_d_epp_flow_control_pool_saturation", nil); ctx.Err() != nil {
				t.Fatalf("pressure %v, want %v", seen, pressure)
			}
			s.Driver().await(picker.Event{Kind: picker.Tick})
			clock.Sleep(ctx, time.Millisecond)
		}
	}
	redis.Start()
	submit := func(s *Server) Placement {
		placed, outcome := s.Driver().Submit(t.Context(), extproc.Submission{Request: picker.Request{FairnessID: "f"}})
		if outcome != wire.Dispatched {
			t.Fatal(errors.New(outcome.String()))
		}
		return placed
	}
	first := submit(p)
	full(q, 0.5)
	submit(q)
	full(p, 1)
	redis.Kill()
	full(p, 0.5) // each counts its own only
	full(q, 0.5)
	redis.Start()
	full(p, 1)
	full(q, 1)
	p.Driver().Finish(first.ID)
	full(q, 0.5)
	q.Close()
	full(p, 0)
}
