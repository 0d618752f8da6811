package runner

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/loadgen/openai"
	"github.com/llm-weir/weir/loadgen/plan"
	"github.com/llm-weir/weir/loadgen/workload"
)

const answer = "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: [DONE]\n\n"

// serveAfter answers each request with one token after d.
func serveAfter(d time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if clock.Sleep(r.Context(), d) {
			w.Header().Set("content-type", "text/event-stream")
			io.WriteString(w, answer)
		}
	}
}

// pipes is a listener over net.Pipe: real HTTP without sockets, so that it lives in a synctest bubble on exact fake time.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// inBubble runs f on fake time with a sender for handler and a collector of records.
func inBubble(t *testing.T, handler http.Handler, f func(t *testing.T, cfg Config, got *records)) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		srv := &http.Server{Handler: handler}
		served := make(chan struct{})
		go func() { defer close(served); srv.Serve(l) }()
		client := openai.NewClient(100)
		client.Transport.(*http.Transport).DialContext = l.dial
		got := &records{}
		f(t, Config{
			Sender:   &openai.Sender{Client: client, Clock: clock.NewReal(), BaseURL: "http://model"},
			Scenario: "s", Model: "m", OnDone: got.add,
		}, got)
		client.CloseIdleConnections()
		srv.Close()
		<-served
	})
}

type records struct {
	mu   sync.Mutex
	list []evidence.Client
}

func (r *records) add(c evidence.Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, c)
}

// byIntended returns what was recorded, in the order of the plan.
func (r *records) byIntended() []evidence.Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.list)
	slices.SortFunc(out, func(a, b evidence.Client) int {
		return cmp.Or(cmp.Compare(a.Intended, b.Intended), cmp.Compare(a.ID, b.ID))
	})
	return out
}

func compile(t *testing.T, d time.Duration, tenants ...workload.Tenant) plan.Plan {
	t.Helper()
	for i := range tenants {
		tenants[i].Prompt = workload.Lengths{Distribution: workload.Fixed, Value: 20}
		tenants[i].Output = workload.Lengths{Distribution: workload.Fixed, Value: 3}
		tenants[i].Stream = true
	}
	p, err := plan.Compile(workload.Spec{Name: "p", Duration: d, Tenants: tenants}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func poisson(name string, rate float64) workload.Tenant {
	return workload.Tenant{Name: name, FairnessID: name, Arrival: workload.Arrival{Process: "poisson", Rate: rate}}
}

func closed(name string, workers int, think time.Duration) workload.Tenant {
	return workload.Tenant{Name: name, Arrival: workload.Arrival{Process: workload.Closed, Workers: workers, Think: think}}
}

func TestASlowServerDelaysNoArrival(t *testing.T) {
	inBubble(t, serveAfter(time.Minute), func(t *testing.T, cfg Config, got *records) {
		p := compile(t, 2*time.Second, poisson("a", 50), poisson("b", 20))
		if !clock.Sleep(t.Context(), time.Second) { // the load starts later than the epoch
			t.Fatal("no sleep")
		}
		s, err := Run(t.Context(), p, cfg)
		if err != nil || !s.Valid || s.Completed != len(p.Requests) || s.Sent != len(p.Requests) || s.BehindMax != 0 {
			t.Fatalf("%+v, %v", s, err)
		}
		for i, c := range got.byIntended() {
			at := p.Requests[i].At + time.Second
			if c.ID != p.Requests[i].ID || c.Intended != int64(at) || c.Sent != c.Intended || c.Tenant != p.Requests[i].FairnessID {
				t.Fatalf("request %d: %+v, want it sent at %v", i, c, at)
			}
			if c.End-c.Intended != int64(time.Minute) || c.FirstToken != c.End {
				t.Errorf("%s took %v", c.ID, time.Duration(c.End-c.Intended))
			}
		}
	})
}

func TestClosedLoopsThinkAfterEachEnding(t *testing.T) {
	inBubble(t, serveAfter(50*time.Millisecond), func(t *testing.T, cfg Config, got *records) {
		slow := closed("b", 1, 0)
		slow.Start, slow.Stop = 500*time.Millisecond, 601*time.Millisecond
		s, err := Run(t.Context(), compile(t, time.Second, closed("a", 2, 100*time.Millisecond), slow), cfg)
		if err != nil || !s.Valid {
			t.Fatalf("%+v, %v", s, err)
		}
		sent := map[string][]time.Duration{}
		for _, c := range got.byIntended() {
			loop := c.ID[:strings.LastIndex(c.ID, ".")]
			sent[loop] = append(sent[loop], time.Duration(c.Sent))
			if c.Behind != 0 {
				t.Errorf("%s is late by %v", c.ID, time.Duration(c.Behind))
			}
		}
		ms := time.Millisecond
		a := []time.Duration{0, 150 * ms, 300 * ms, 450 * ms, 600 * ms, 750 * ms, 900 * ms}
		for loop, want := range map[string][]time.Duration{"a.w1": a, "a.w2": a, "b.w1": {500 * ms, 550 * ms, 600 * ms}} {
			if !slices.Equal(sent[loop], want) {
				t.Errorf("loop %s sent at %v, want %v", loop, sent[loop], want)
			}
		}
	})
}

func TestAClosedLoopThatRunsOutMakesTheRunInvalid(t *testing.T) {
	inBubble(t, serveAfter(time.Millisecond), func(t *testing.T, cfg Config, _ *records) {
		s, err := Run(t.Context(), compile(t, time.Second, closed("a", 1, 0)), cfg)
		if err != nil || s.Valid || !strings.Contains(s.Invalid, "ran out") {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

func TestPlannedDisconnectsAndTimeouts(t *testing.T) {
	inBubble(t, serveAfter(time.Minute), func(t *testing.T, cfg Config, got *records) {
		leaver := poisson("leaver", 10)
		leaver.CancelAfter, leaver.CancelFraction = 300*time.Millisecond, 1
		p := compile(t, 2*time.Second, leaver, poisson("patient", 10))
		cfg.Timeout = 10 * time.Second
		s, err := Run(t.Context(), p, cfg)
		if err != nil || !s.Valid || s.Cancelled == 0 || s.Errors == 0 || s.Cancelled+s.Errors != len(p.Requests) {
			t.Fatalf("%+v, %v", s, err)
		}
		for _, c := range got.list {
			outcome, took, text := evidence.ClientCancelled, 300*time.Millisecond, ""
			if c.Tenant == "patient" {
				outcome, took, text = evidence.TransportError, 10*time.Second, "timed out"
			}
			if c.Outcome != outcome || c.End-c.Sent != int64(took) || c.Error != text {
				t.Errorf("%+v, want %s after %v", c, outcome, took)
			}
		}
	})
}

func TestStoppingTheRunEndsEverythingWithARecord(t *testing.T) {
	inBubble(t, serveAfter(time.Minute), func(t *testing.T, cfg Config, got *records) {
		p := compile(t, time.Hour, poisson("a", 20), closed("b", 3, time.Second))
		stop := errors.New("operator stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			clock.Sleep(t.Context(), 1500*time.Millisecond)
			cancel(stop)
		}()
		var started sync.Map
		cfg.OnProgress = func(p openai.Progress) { started.Store(p.ID, true) }
		s, err := Run(ctx, p, cfg)
		<-stopped
		if !errors.Is(err, stop) || s.Valid || !strings.Contains(s.Invalid, "operator stop") {
			t.Errorf("%+v, %v", s, err)
		}
		if s.Sent == 0 || s.Unfinished != s.Sent || len(got.list) != s.Sent {
			t.Errorf("%+v with %d records", s, len(got.list))
		}
		for _, c := range got.list {
			if _, ok := started.LoadAndDelete(c.ID); !ok || c.Outcome != evidence.Unfinished || c.End != int64(1500*time.Millisecond) {
				t.Errorf("%+v", c)
			}
		}
		started.Range(func(id, _ any) bool { t.Errorf("%v was started and has no record", id); return true })
	})
}

func TestTheInFlightLimitIsSeenAndNotWaitedFor(t *testing.T) {
	inBubble(t, serveAfter(time.Minute), func(t *testing.T, cfg Config, got *records) {
		p := compile(t, 2*time.Second, workload.Tenant{Name: "a", Arrival: workload.Arrival{Process: "constant", Rate: 10}})
		cfg.MaxInFlight = 4
		s, err := Run(t.Context(), p, cfg)
		if err != nil || s.Valid || s.Sent != 4 || s.Errors != 16 || !strings.Contains(s.Invalid, "16 requests were not sent") {
			t.Errorf("%+v, %v", s, err)
		}
		for i, c := range got.byIntended() {
			if late := i >= 4; late != (c.Sent == evidence.Never) || late != strings.HasPrefix(c.Error, "not sent") {
				t.Errorf("request %d: %+v", i, c)
			}
		}
	})
}

// ahead is a clock that reads later than the one that paces the run: a client that is always late.
type ahead struct {
	clock.Clock
	by time.Duration
}

func (a ahead) Now() time.Duration { return a.Clock.Now() + a.by }

func TestAClientThatFallsBehindMakesTheRunInvalid(t *testing.T) {
	for _, row := range []struct {
		late  time.Duration
		valid bool
	}{{100 * time.Millisecond, true}, {101 * time.Millisecond, false}} {
		inBubble(t, serveAfter(0), func(t *testing.T, cfg Config, got *records) {
			cfg.Clock = cfg.Sender.Clock
			cfg.Sender.Clock = ahead{cfg.Clock, row.late}
			s, err := Run(t.Context(), compile(t, time.Second, poisson("a", 20)), cfg)
			if err != nil || s.Valid != row.valid || s.BehindP50 != row.late || s.BehindP99 != row.late || s.BehindMax != row.late {
				t.Errorf("late by %v: %+v, %v", row.late, s, err)
			}
			if !row.valid && !strings.Contains(s.Invalid, "fell behind") {
				t.Errorf("reason %q", s.Invalid)
			}
			for _, c := range got.list {
				if c.Behind != int64(row.late) {
					t.Errorf("%s is late by %v", c.ID, time.Duration(c.Behind))
				}
			}
		})
	}
}

func TestOverRealSockets(t *testing.T) {
	var mu sync.Mutex
	lengths := map[string]int{}
	bodies := map[string]bool{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		lengths[r.Header.Get(wire.HeaderID)], _ = strconv.Atoi(r.Header.Get(wire.HeaderOutputTokens))
		bodies[string(body)] = true
		mu.Unlock()
		if r.Header.Get(wire.HeaderFairnessID) == "refused" {
			w.WriteHeader(429)
			return
		}
		serveAfter(0)(w, r)
	}))
	defer srv.Close()
	client := openai.NewClient(50)
	defer client.CloseIdleConnections()
	p := compile(t, 300*time.Millisecond, poisson("a", 100), poisson("refused", 100), closed("c", 2, 20*time.Millisecond))
	var got records
	s, err := Run(t.Context(), p, Config{
		Sender: &openai.Sender{Client: client, Clock: clock.NewReal(), BaseURL: srv.URL}, Scenario: "s", Model: "m", OnDone: got.add,
		MaxBehind: time.Minute, // the machine that runs the tests may be busy
	})
	if err != nil || !s.Valid {
		t.Fatalf("%+v, %v", s, err)
	}
	if s.Sent != len(got.list) || s.Completed+s.Refused != s.Sent || s.Completed == 0 || s.Refused == 0 || len(lengths) != s.Sent {
		t.Errorf("%+v, %d records, %d requests at the server", s, len(got.list), len(lengths))
	}
	if len(bodies) != s.Sent {
		t.Errorf("%d different prompts in %d requests", len(bodies), s.Sent)
	}
	planned := map[string]plan.Request{}
	open := 0
	for _, r := range p.Requests {
		planned[r.ID] = r
		if r.Loop == 0 {
			open++
		}
	}
	for _, c := range got.list {
		r := planned[c.ID]
		if c.Sent < c.Intended || c.Behind != c.Sent-c.Intended || c.End < c.Sent || lengths[c.ID] != r.OutputTokens {
			t.Errorf("%+v", c)
		}
		if r.Loop == 0 {
			open--
		}
	}
	if open != 0 {
		t.Errorf("%d open-loop requests have no record", open)
	}
}

func TestRunRefusesWhatItCannotPlay(t *testing.T) {
	if _, err := Run(t.Context(), plan.Plan{}, Config{MaxBehind: -1}); err == nil || !strings.Contains(err.Error(), "BaseURL") || !strings.Contains(err.Error(), "MaxBehind") {
		t.Errorf("got %v", err)
	}
	cfg := Config{Sender: &openai.Sender{Client: openai.NewClient(1), Clock: clock.NewReal(), BaseURL: "http://x"}}
	if _, err := Run(t.Context(), plan.Plan{Requests: []plan.Request{{ID: "a"}, {ID: "a"}}}, cfg); err == nil {
		t.Error("an ambiguous plan is played")
	}
	if s, err := Run(t.Context(), plan.Plan{}, cfg); err != nil || s.Valid || s.Invalid != "no request was sent" {
		t.Errorf("an empty plan: %+v, %v", s, err)
	}
}
