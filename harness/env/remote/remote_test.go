package remote_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env/remote"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/sim-vllm/presets"
	"github.com/llm-weir/weir/sim-vllm/server"
)

func TestMain(m *testing.M) {
	// A library of the batch processor's starts it when it is loaded.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// world is two simulators behind a router that takes turns and has no queue.
type world struct {
	running sut.Running
	hosts   []*server.Host
}

func build(t *testing.T, clockIDs ...string) world {
	t.Helper()
	ec, err := presets.Get(presets.Instant)
	if err != nil {
		t.Fatal(err)
	}
	w := world{running: sut.Running{Simulators: map[string]string{}}}
	clk := clock.NewReal()
	var doors []*httputil.ReverseProxy
	transport := &http.Transport{}
	for i, id := range clockIDs {
		name := []string{"first", "second"}[i]
		h, err := server.NewHost(server.Config{Name: name, Engine: ec, Clock: clk, ClockID: id}, presets.Get)
		if err != nil {
			t.Fatal(err)
		}
		web := httptest.NewServer(h.Handler())
		t.Cleanup(func() { h.Close(); web.Close() })
		u, err := url.Parse(web.URL)
		if err != nil {
			t.Fatal(err)
		}
		doors = append(doors, &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }})
		w.hosts, w.running.Simulators[name] = append(w.hosts, h), web.URL
	}
	var turn atomic.Int64
	gateway := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		doors[int(turn.Add(1)-1)%len(doors)].ServeHTTP(rw, r)
	}))
	t.Cleanup(func() { gateway.Close(); transport.CloseIdleConnections() })
	w.running.Gateway = gateway.URL
	return w
}

// configuration is one with two held servers.
func configuration() sut.Configuration {
	return sut.Configuration{Endpoints: []sut.Endpoint{{Name: "a"}, {Name: "b"}}, Hold: true, Detector: sut.Detector{Kind: "concurrency", MaxConcurrency: 1}}
}

func (w world) system(t *testing.T) *remote.System {
	t.Helper()
	p, err := profile.Named(profile.Default)
	if err != nil {
		t.Fatal(err)
	}
	id, err := sut.Identity(configuration(), p.Config)
	if err != nil {
		t.Fatal(err)
	}
	s, err := remote.New(remote.Options{Dialect: p.Config, Names: p.Headers, Running: w.running, Given: []string{id}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func plug(ids ...string) sut.Step {
	s := sut.Step{Op: sut.OpPlug, Mark: "plugged"}
	for _, id := range ids {
		s.Requests = append(s.Requests, sut.Request{ID: id})
	}
	return s
}

// play configures and plays steps.
func (w world) play(t *testing.T, steps ...sut.Step) (*remote.System, evidence.Run, error) {
	t.Helper()
	s := w.system(t)
	if err := s.Configure(context.Background(), configuration()); err != nil {
		t.Fatal(err)
	}
	rec := evidence.NewRecorder("here")
	err := s.Play(context.Background(), sut.Script{Scenario: "here", Steps: steps}, rec)
	if cerr := s.Close(context.Background()); cerr != nil {
		t.Error(cerr)
	}
	return s, rec.Run(), err
}

func TestPlay(t *testing.T) {
	s, r, err := build(t, "one", "one").play(t, plug("r1", "r2", "r3"), sut.Step{Op: sut.OpRelease, Endpoint: "b"}, sut.Step{Op: sut.OpEndings, IDs: []string{"r2"}},
		sut.Step{Op: sut.OpStep, Mark: "step", Count: 1, Limit: 1}, sut.Step{Op: sut.OpDrain, Mark: "drained"})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, b := range r.Backends {
		c, ok := r.ClientByID(b.ID)
		if !ok || c.Endpoint != b.Endpoint || c.Outcome != evidence.Completed || b.Ending != evidence.Finished {
			t.Errorf("%s: %+v at the client, %+v at the model server", b.ID, c, b)
		}
		if b.Arrival < c.Sent || b.End > c.End || b.Arrival > b.Released || b.Released > b.End {
			t.Errorf("%s was sent at %d, arrived at %d, was released at %d, ended at %d, and at its client at %d", b.ID, c.Sent, b.Arrival, b.Released, b.End, c.End)
		}
		seen = append(seen, b.ID+" "+b.Endpoint)
	}
	if got := strings.Join(seen, ", "); got != "r1 a, r2 b, r3 a" {
		t.Errorf("arrived: %s", got)
	}
	for _, st := range r.Steps {
		if !st.OK && st.Op != "step" { // nothing waits that could arrive
			t.Errorf("%s: %s", st.Op, st.Detail)
		}
	}
	if bound, why := s.SkewBound(); bound <= 0 || bound > remote.SkewLimit || why != "" {
		t.Errorf("clocks: %s %q", bound, why)
	}
}

// On a machine that is busy the bound may be milliseconds, and then two arrivals at servers of different clocks have no order.
func TestArrivalsOfDifferentClocks(t *testing.T) {
	w := build(t, "one", "other")
	both := plug("r1")
	both.Op, both.Requests = sut.OpSend, append(both.Requests, sut.Request{ID: "r2"}, sut.Request{ID: "r3"}, sut.Request{ID: "r4"})
	s, r, err := w.play(t, both, sut.Step{Op: sut.OpArrivals, IDs: []string{"r1", "r2", "r3", "r4"}}, sut.Step{Op: sut.OpDrain})
	if err != nil {
		t.Fatal(err)
	}
	bound, why := s.SkewBound()
	closest := int64(1 << 62)
	for i := 1; i < len(r.Backends); i++ {
		if a, b := r.Backends[i-1], r.Backends[i]; a.Endpoint != b.Endpoint {
			closest = min(closest, b.Arrival-a.Arrival)
		}
	}
	if closest > 2*int64(bound) && why != "" || closest == 0 && why == "" {
		t.Errorf("arrivals %d ns apart, clocks within %s: %q", closest, bound, why)
	}
}

func TestTrafficOfOthers(t *testing.T) {
	w := build(t, "one", "one")
	s := w.system(t)
	if err := s.Configure(context.Background(), configuration()); err != nil {
		t.Fatal(err)
	}
	rec := evidence.NewRecorder("here")
	s.Keep(func([]string, error) {})
	other := sut.Step{Op: sut.OpSend, Mark: "other", Requests: []sut.Request{{ID: "r2", Extra: map[string]string{"x-weir-scenario": "elsewhere"}}}}
	err := s.Play(context.Background(), sut.Script{Scenario: "here", Steps: []sut.Step{plug("r1"), other, {Op: sut.OpArrivals, IDs: []string{"r2"}}, {Op: sut.OpDrain}}}, rec)
	if err == nil || !strings.Contains(err.Error(), `1 requests arrived`) || !strings.Contains(err.Error(), `"r2" at b`) {
		t.Errorf("%v", err)
	}
}

// Somebody who sets a simulator up again takes the log away.
func TestSetUpBySomebodyElse(t *testing.T) {
	w := build(t, "one", "one")
	s := w.system(t)
	if err := s.Configure(context.Background(), configuration()); err != nil {
		t.Fatal(err)
	}
	err := s.Play(context.Background(), sut.Script{Scenario: "here", Steps: []sut.Step{plug("r1"), {Op: sut.OpQuiet, Quiet: 1}, plug("r2"), {Op: sut.OpDrain}}},
		&meddler{evidence.NewRecorder("here"), func() {
			if err := w.hosts[0].Setup(server.Setup{}); err != nil {
				t.Error(err)
			}
		}})
	if err == nil || !strings.Contains(err.Error(), "was set up again or restarted by somebody else") {
		t.Errorf("%v", err)
	}
}

// meddler does something after the quiet step.
type meddler struct {
	*evidence.Recorder
	do func()
}

func (m *meddler) Step(s evidence.Step) {
	m.Recorder.Step(s)
	if s.Op == string(sut.OpQuiet) {
		m.do()
	}
}

func TestWhatCannotBeBroughtAbout(t *testing.T) {
	w := build(t, "one", "one")
	s := w.system(t)
	var unsupported *sut.UnsupportedError
	for says, change := range map[string]func(*sut.Configuration){
		"another configuration":   func(c *sut.Configuration) { c.Detector.MaxConcurrency = 2 },
		"more simulators":         func(c *sut.Configuration) { c.Endpoints = append(c.Endpoints, sut.Endpoint{Name: "c"}) },
		"several pickers":         func(c *sut.Configuration) { c.Pickers = 2 },
		"objects of a Kubernetes": func(c *sut.Configuration) { c.Kube = true },
	} {
		c := configuration()
		change(&c)
		if err := s.Configure(context.Background(), c); !errors.As(err, &unsupported) {
			t.Errorf("%s: %v", says, err)
		}
	}
	for _, op := range []sut.Op{sut.OpAdd, sut.OpObjective, sut.OpShutdown, sut.OpTryStart, sut.OpStreams, sut.OpHealth, sut.OpSample} {
		if _, r, err := w.play(t, plug("r1"), sut.Step{Op: op}); !errors.As(err, &unsupported) || len(r.Steps) > 0 {
			t.Errorf("%s: %v after %d steps", op, err, len(r.Steps))
		}
	}
}

// The commands see what the scenario wants, and nothing of their files is left.
func TestHooks(t *testing.T) {
	w := build(t, "one", "one")
	log := filepath.Join(t.TempDir(), "log")
	copies := `sh -c 'echo "== $0 $1" >>` + log + `; shift; cat "$@" >>` + log + `'`
	w.running.Configure = sut.Hooks{Command: copies + " configure {{.Scenario}} {{.Objectives}} {{.Endpoints}}", Update: copies + " update {{.Scenario}} {{.Objectives}} {{.Endpoints}}",
		Stop: copies + " stop {{.Scenario}}  /dev/null", Start: copies + " start {{.Scenario}} /dev/null"}
	_, _, err := w.play(t, plug("r1"), sut.Step{Op: sut.OpDrain}, sut.Step{Op: sut.OpObjective, Objectives: map[string]int{"p5": 5}}, sut.Step{Op: sut.OpRemove, Endpoint: "a"},
		sut.Step{Op: sut.OpShutdown}, sut.Step{Op: sut.OpDown}, sut.Step{Op: sut.OpRestart})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for line := range strings.Lines(string(text)) {
		for _, word := range []string{"==", "name:", "p5:"} {
			if strings.Contains(line, word) {
				order = append(order, strings.TrimPrefix(strings.TrimSpace(line), "- "))
			}
		}
	}
	if got, want := strings.Join(order, ", "), "== configure here, name: a, name: b, == update here, p5: 5, name: a, name: b, == update here, p5: 5, name: b, == stop here, == start here"; got != want {
		t.Errorf("the commands saw\n%s\nwant\n%s", got, want)
	}
}
