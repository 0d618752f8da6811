// Package runner executes a plan in real time and records what became of every request.
//
//	open-loop tenant:   Schedule.Pace --> wait --> goroutine per request --> openai.Sender --> evidence.Client
//	closed-loop tenant: plan.Cursor --> wait --> goroutine per request --> ... --> Completed --> plan.Cursor
//
// Every tenant has a goroutine and a pace of its own, and no response is waited for before the next open-loop request is sent: a
// slow server, or another tenant's, moves nothing. Latency counts from the intended instant. What the client itself is late is in
// each record (Behind), and a run whose client fell behind says that it is invalid instead of blaming the router.
package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/loadgen/arrival"
	"github.com/llm-weir/weir/loadgen/openai"
	"github.com/llm-weir/weir/loadgen/plan"
)

// Config is how a plan is executed.
type Config struct {
	Sender   *openai.Sender
	Clock    clock.Clock // nil: the sender's; they must share an epoch
	Scenario string
	Model    string // "model" of the bodies

	// MaxBehind is how late the client may be at the 99th percentile before the run is invalid. Smaller is stricter about the
	// client's machine; 0: 100 ms.
	MaxBehind time.Duration
	// MaxInFlight bounds the requests in flight and with them sockets and memory. A request beyond it is not sent, gets a record
	// with a transport error, and makes the run invalid: waiting for a free place would hide the overload. 0: 20000.
	MaxInFlight int
	// Timeout ends a request that has not ended by then, as a transport error "timed out". 0: 10 minutes.
	Timeout time.Duration

	// FairnessHeader and ObjectiveHeader are the names under which a contract documents them; "": the canonical ones.
	FairnessHeader, ObjectiveHeader string

	// OnStart is called at the instant from which the plan counts.
	OnStart func()
	// OnDone gets the record of each request as it ends, OnProgress what happens before. Both are called concurrently; they may
	// be nil, and delay the request they are called for.
	OnDone     func(evidence.Client)
	OnProgress func(openai.Progress)
}

// Defaults of Config.
const (
	DefaultMaxBehind   = 100 * time.Millisecond
	DefaultMaxInFlight = 20000
	DefaultTimeout     = 10 * time.Minute
)

// Validate reports everything wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	if c.Sender == nil || c.Sender.Client == nil || c.Sender.Clock == nil || c.Sender.BaseURL == "" {
		errs = append(errs, errors.New("runner: Sender needs Client, Clock and BaseURL"))
	}
	if c.MaxBehind < 0 || c.MaxInFlight < 0 || c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("runner: MaxBehind %v, MaxInFlight %d and Timeout %v must not be negative", c.MaxBehind, c.MaxInFlight, c.Timeout))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = c.Sender.Clock
	}
	if c.MaxBehind == 0 {
		c.MaxBehind = DefaultMaxBehind
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = DefaultMaxInFlight
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.FairnessHeader == "" {
		c.FairnessHeader = wire.HeaderFairnessID
	}
	if c.ObjectiveHeader == "" {
		c.ObjectiveHeader = wire.HeaderObjective
	}
	if c.OnDone == nil {
		c.OnDone = func(evidence.Client) {}
	}
	return c
}

// Run plays p from now on and returns when every request that was started has ended and its record was given to OnDone. When ctx
// ends, nothing more is sent, what is in flight is cut off and recorded as unfinished, and the error is the context's cause. A run
// that is played but worth nothing is no error: Summary.Valid tells.
func Run(ctx context.Context, p plan.Plan, cfg Config) (Summary, error) {
	if err := cfg.Validate(); err != nil {
		return Summary{}, err
	}
	if err := p.Validate(); err != nil {
		return Summary{}, err
	}
	r := &run{cfg: cfg.withDefaults()}
	r.start = r.cfg.Clock.Now()
	if cfg.OnStart != nil {
		cfg.OnStart()
	}
	var pacers sync.WaitGroup
	for _, t := range split(p) {
		if len(t.open) > 0 {
			pacers.Go(func() { r.playOpen(ctx, t.open) })
		}
		if len(t.closed.Requests) > 0 {
			pacers.Go(func() { r.playClosed(ctx, t.closed) })
		}
	}
	pacers.Wait()
	r.requests.Wait()
	s := r.tally.summary(r.cfg.MaxBehind)
	if ctx.Err() != nil {
		err := fmt.Errorf("plan %q: %w", p.Name, context.Cause(ctx))
		s.invalid("stopped before its end: %v", context.Cause(ctx))
		return s, err
	}
	return s, nil
}

// tenant is one arrival process of a plan.
type tenant struct {
	open   []*plan.Request
	closed plan.Plan
}

// split gives each tenant its part of the plan, in the order in which the tenants first appear.
func split(p plan.Plan) []*tenant {
	byName := map[string]*tenant{}
	var all []*tenant
	for i := range p.Requests {
		req := &p.Requests[i]
		t := byName[req.Tenant]
		if t == nil {
			t = &tenant{closed: plan.Plan{Name: p.Name, Duration: p.Duration, Loops: p.Loops}}
			byName[req.Tenant] = t
			all = append(all, t)
		}
		if req.Loop == 0 {
			t.open = append(t.open, req)
		} else {
			t.closed.Requests = append(t.closed.Requests, *req)
		}
	}
	return all
}

// run is one execution of a plan.
type run struct {
	cfg      Config
	start    time.Duration // of the load, on the clock
	requests sync.WaitGroup
	inFlight atomic.Int64
	tally    tally
}

// playOpen sends the requests at their instants, whatever becomes of those before.
func (r *run) playOpen(ctx context.Context, requests []*plan.Request) {
	var schedule arrival.Schedule
	for _, req := range requests {
		schedule = append(schedule, req.At)
	}
	var pacer vegeta.Pacer = schedule
	for hits, req := range requests {
		// Built before the wait, so that a long prompt does not make its own request late.
		out := r.prepare(req, req.At)
		wait, _ := pacer.Pace(r.cfg.Clock.Now()-r.start, uint64(hits))
		if !r.sleep(ctx, wait) {
			return
		}
		r.send(ctx, req, out, nil)
	}
}

// playClosed drives the cursor of the tenant's loops.
func (r *run) playClosed(ctx context.Context, p plan.Plan) {
	cursor, err := plan.NewCursor(p)
	if err != nil {
		panic(err) // Run has validated the plan, and a part of a valid plan is valid
	}
	// Each loop has at most one request in flight, so an ending never waits for this goroutine, even after it has left.
	ended := make(chan string, len(p.Loops))
	ev := plan.Event{}
	var outs []plan.Out
	for {
		outs = cursor.Step(r.cfg.Clock.Now()-r.start, ev, outs[:0])
		for _, o := range outs {
			r.send(ctx, o.Request, r.prepare(o.Request, o.Intended), ended)
		}
		at, wants := cursor.Deadline()
		if !wants {
			break
		}
		timer := r.cfg.Clock.Timer(at - (r.cfg.Clock.Now() - r.start))
		select {
		case <-timer.C:
			ev = plan.Event{}
		case id := <-ended:
			ev = plan.Event{Kind: plan.Completed, ID: id}
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
	r.tally.addExhausted(cursor.Exhausted())
}

// sleep waits for d on the run's clock; false if the run was stopped meanwhile.
func (r *run) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := r.cfg.Clock.Timer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
