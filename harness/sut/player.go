package sut

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/loadgen/plan"
)

// Stage is a configured system in front of which a script is played: the clients' side, the model servers' side, and the handles of
// the harness. The virtual environment implements it on an event heap, the local one over sockets.
type Stage interface {
	// Now is the offset since the scenario's epoch.
	Now() time.Duration
	// Await lets time pass until cond holds (true) or the clock reads until (false). cond is asked after every change on the stage.
	Await(ctx context.Context, until time.Duration, cond func() bool) bool

	Send(r Request)
	Cancel(id string)
	Abandon(id string) // as Cancel, but the ending is recorded as unfinished
	Ended(id string) bool
	Unended() []string // ids sent and without an ending, in the order they were sent
	Open() int         // how many they are

	// Release lets a held request go on; false if it is not held.
	Release(id string) bool
	Held() []string // ids held at the model servers, oldest first
	HeldAt(endpoint string) []string
	Arrivals() []string // ids in the order they arrived at the model servers
	SetHold(on bool)
	SetLoad(endpoint string, v LoadValues)
	// SetFault breaks the metrics page of a model server (Step.Mode), SetFailure lets all of them answer with an error status.
	SetFault(endpoint, mode string) error
	SetFailure(status int) error
	Scrapes(endpoint string) int64

	AddEndpoint(name string) error
	RemoveEndpoint(name string) error
	// QueueSize is the router's own count of waiting requests, false if it does not publish one.
	QueueSize() (int, bool)
	// Relabel changes the role of an endpoint in place; SetObjectives replaces the objectives.
	Relabel(name, role string) error
	SetObjectives(m map[string]int, objects []Objective) error
	// Sample reads a metrics page: the router's (all: every family of it), or a model server's.
	Sample(mark, endpoint string, all bool) error
	// Shutdown begins a graceful termination and returns at once.
	Shutdown()
	// Down tells whether a router that was shut down has ended.
	Down() bool
	// Streams opens idle streams to the router; Health is what its health service says, such as SERVING.
	Streams(n int) error
	Health(ctx context.Context) (string, error)
	// CutOff separates a picker from the others (OpCutOff).
	CutOff(picker int) error
	// Restart brings up a new router in the place of one that was shut down.
	Restart(ctx context.Context) error
	// TryStart starts a router with a document; stable leaves out the flag that lets alpha plugins in.
	TryStart(ctx context.Context, name, doc string, stable bool) evidence.Process
	// Load plays an open-loop plan; invalid says why the load that was offered is not the planned one, "" if it is.
	// begun is called at the instant from which the plan counts.
	Load(ctx context.Context, p plan.Plan, begun func()) (invalid string, err error)
}

// Defaults of the player, used where a step names no limit of its own.
const (
	ArrivalLimit  = time.Second            // from a send or a release to the arrival at a model server
	EndLimit      = 10 * time.Second       // from a drain or a shutdown to the last ending
	GaugeLimit    = 300 * time.Millisecond // for the queue gauge to show a request; without a gauge the wait that proves "pending"
	shownLimit    = 2 * time.Second        // for a queue gauge that exists
	ProbeQuiet    = 500 * time.Millisecond // a probe unseen for this long is closed
	ScrapesNeeded = 3                      // scrapes of a scripted value before it counts as known to the router
	ScrapeLimit   = 5 * time.Second
)

// PlayOn plays s on a stage, step by step, and records every step. It returns an error only if the harness itself could not go on;
// a barrier that is not reached is evidence, not an error.
func PlayOn(ctx context.Context, st Stage, s Script, out evidence.Sink) error {
	p := player{st: st, out: out, sent: map[string]Request{}}
	for i, step := range s.Steps {
		if err := ctx.Err(); err != nil {
			p.abandon()
			return fmt.Errorf("step %d (%s %s): %w", i, step.Op, step.Mark, context.Cause(ctx))
		}
		if err := p.play(ctx, step); err != nil {
			p.abandon()
			return fmt.Errorf("step %d (%s %s): %w", i, step.Op, step.Mark, err)
		}
	}
	p.finish(ctx)
	if ctx.Err() != nil {
		return fmt.Errorf("script of %s: %w", s.Scenario, context.Cause(ctx))
	}
	return nil
}

type player struct {
	st   Stage
	out  evidence.Sink
	sent map[string]Request // of the steps that send, by id
}

// play dispatches on the closed set of operations.
func (p player) play(ctx context.Context, s Step) error {
	rec := evidence.Step{Op: string(s.Op), Mark: s.Mark, Start: int64(p.st.Now()), OK: true}
	var err error
	switch s.Op {
	case OpSend, OpPlug, OpQueue:
		p.send(ctx, s, &rec)
	case OpStep:
		p.step(ctx, s)
		return nil
	case OpRelease:
		p.release(s, &rec)
	case OpDrain:
		p.drain(ctx, s, &rec)
	case OpCancel:
		p.cancel(ctx, s.IDs)
		rec.IDs = s.IDs
	case OpQuiet:
		p.st.Await(ctx, p.st.Now()+s.Quiet, never)
	case OpArrivals:
		rec.IDs = s.IDs
		p.await(ctx, s.Limit, ArrivalLimit, &rec, func() (bool, string) { return p.allArrived(s.IDs) })
	case OpEndings:
		rec.IDs = s.IDs
		p.await(ctx, s.Limit, EndLimit, &rec, func() (bool, string) { return p.allEnded(s.IDs) })
	case OpScript:
		p.script(ctx, s, &rec)
	case OpProbe:
		p.probe(ctx, s, &rec)
	case OpAdd:
		err = p.st.AddEndpoint(s.Endpoint)
	case OpRemove:
		err = p.st.RemoveEndpoint(s.Endpoint)
	case OpLabel:
		err = p.st.Relabel(s.Endpoint, s.Mode)
	case OpObjective:
		err = p.st.SetObjectives(s.Objectives, s.Objects)
	case OpShutdown:
		p.st.Shutdown()
	case OpDown:
		p.await(ctx, s.Limit, EndLimit, &rec, func() (bool, string) { return p.st.Down(), "the router did not end" })
	case OpStreams:
		err = p.st.Streams(s.Count)
	case OpHealth:
		var herr error
		if rec.Detail, herr = p.st.Health(ctx); herr != nil {
			rec.OK, rec.Detail = false, herr.Error()
		}
	case OpCutOff:
		err = p.st.CutOff(s.Count)
	case OpRestart:
		err = p.st.Restart(ctx)
	case OpSample:
		if serr := p.st.Sample(s.Mark, s.Endpoint, s.Mode == "all"); serr != nil {
			rec.OK, rec.Detail = false, serr.Error()
		}
	case OpTryStart:
		pr := p.st.TryStart(ctx, s.Mark, s.Raw, s.Mode == "stable")
		pr.Case = s.Mark
		p.out.Process(pr)
	case OpLoad:
		err = p.load(ctx, s, &rec)
	case OpRetry:
		p.retry(ctx, s, &rec)
	case OpEnqueue, OpBatch, OpWaiting, OpTried, OpHeldThere:
		err = p.batch(ctx, s, &rec)
	case OpDeploy:
		d, ok := p.st.(Deployer)
		if !ok {
			return &UnsupportedError{Feature: Deployed}
		}
		var derr error
		var unsupported *UnsupportedError
		if rec.Detail, derr = d.Deploy(ctx, s); errors.As(derr, &unsupported) {
			return derr
		} else if derr != nil {
			rec.OK, rec.Detail = false, derr.Error()
		}
	case OpHold:
		p.st.SetHold(s.Count == 1)
	case OpFault:
		err = p.st.SetFault(s.Endpoint, s.Mode)
	case OpFail:
		err = p.st.SetFailure(s.Count)
	default:
		err = fmt.Errorf("unknown operation %q", s.Op)
	}
	rec.End = int64(p.st.Now())
	p.out.Step(rec)
	return err
}

func never() bool { return false }

func (p player) send(ctx context.Context, s Step, rec *evidence.Step) {
	for i, r := range s.Requests {
		if i > 0 {
			p.st.Await(ctx, p.st.Now()+s.Spacing, never)
		}
		before, gauge := 0, false
		if s.Op == OpQueue {
			before, gauge = p.st.QueueSize()
		}
		p.st.Send(r)
		p.sent[r.ID] = r
		rec.IDs = append(rec.IDs, r.ID)
		switch s.Op {
		case OpPlug:
			p.await(ctx, s.Limit, ArrivalLimit, rec, func() (bool, string) { return p.allArrived([]string{r.ID}) })
		case OpQueue:
			p.queued(ctx, r.ID, orDefault(s.Limit, GaugeLimit), before, gauge, rec)
		}
	}
	if s.Op == OpQueue || s.Spacing > 0 {
		p.st.Await(ctx, p.st.Now()+s.Spacing, never)
	}
}

// queued is the barrier behind a queued request: the router's gauge has grown by it. Without a gauge, or with one that does not
// move, the request counts as queued if it is neither at a model server nor answered after GaugeLimit.
func (p player) queued(ctx context.Context, id string, limit time.Duration, before int, gauge bool, rec *evidence.Step) {
	if gauge {
		// On a machine without time a request may need longer than that to the router, and what is sent meanwhile would overtake it.
		limit = max(limit, shownLimit)
	}
	p.st.Await(ctx, p.st.Now()+limit, func() bool {
		if p.st.Ended(id) || p.arrived(id) {
			return true
		}
		n, ok := p.st.QueueSize()
		return gauge && ok && n > before
	})
	if p.arrived(id) || p.st.Ended(id) {
		rec.OK, rec.Detail = false, id+" did not stay in the queue"
	}
}

func (p player) step(ctx context.Context, s Step) {
	for range s.Count {
		rec := evidence.Step{Op: string(s.Op), Mark: s.Mark, Start: int64(p.st.Now()), OK: true}
		seen := len(p.st.Arrivals())
		if held := p.st.Held(); len(held) == 0 {
			rec.OK, rec.Detail = false, "nothing is held at a model server"
		} else {
			p.st.Release(held[0])
			rec.IDs = []string{held[0]}
			limit := orDefault(s.Limit, ArrivalLimit)
			if p.st.Await(ctx, p.st.Now()+limit, func() bool { return len(p.st.Arrivals()) > seen }) {
				rec.IDs = append(rec.IDs, p.st.Arrivals()[seen])
			} else {
				rec.OK, rec.Detail = false, "no arrival within "+limit.String()
			}
			if s.Quiet > 0 {
				p.st.Await(ctx, p.st.Now()+s.Quiet, never)
			}
		}
		rec.End = int64(p.st.Now())
		p.out.Step(rec)
		if !rec.OK {
			return
		}
	}
}

func (p player) release(s Step, rec *evidence.Step) {
	rec.IDs = s.IDs
	if s.Endpoint != "" {
		held := p.st.HeldAt(s.Endpoint)
		if len(held) == 0 {
			rec.OK, rec.Detail = false, "nothing is held at "+s.Endpoint
			return
		}
		rec.IDs = held[:1]
	}
	for _, id := range rec.IDs {
		if !p.st.Release(id) {
			rec.OK, rec.Detail = false, id+" is not held"
		}
	}
}

func (p player) drain(ctx context.Context, s Step, rec *evidence.Step) {
	until := p.st.Now() + orDefault(s.Limit, EndLimit)
	released := map[string]bool{} // a stage may be slow to take an id off Held; it is let go once
	fresh := func() bool {
		for _, id := range p.st.Held() {
			if !released[id] {
				return true
			}
		}
		return false
	}
	for {
		for _, id := range p.st.Held() {
			if !released[id] {
				released[id] = true
				p.st.Release(id)
			}
		}
		if p.st.Open() == 0 {
			return
		}
		if !p.st.Await(ctx, until, func() bool { return fresh() || p.st.Open() == 0 }) {
			rec.OK, rec.Detail = false, fmt.Sprintf("%d requests have not ended", p.st.Open())
			return
		}
	}
}

func (p player) script(ctx context.Context, s Step, rec *evidence.Step) {
	p.st.SetLoad(s.Endpoint, *s.Values)
	if s.Count < 0 {
		return // a server outside the pool is not scraped
	}
	from := p.st.Scrapes(s.Endpoint)
	limit := ScrapeLimit
	if from == 0 && p.st.Now() > ScrapeLimit {
		limit = time.Second // who has not scraped by now is not going to
	}
	p.await(ctx, s.Limit, limit, rec, func() (bool, string) {
		n := p.st.Scrapes(s.Endpoint) - from
		return n >= ScrapesNeeded, fmt.Sprintf("%s was scraped %d times, %d are needed", s.Endpoint, n, ScrapesNeeded)
	})
}

func (p player) probe(ctx context.Context, s Step, rec *evidence.Step) {
	r := s.Requests[0]
	p.st.Send(r)
	rec.IDs = []string{r.ID}
	p.st.Await(ctx, p.st.Now()+orDefault(s.Quiet, ProbeQuiet), func() bool { return p.arrived(r.ID) || p.st.Ended(r.ID) })
	if !p.arrived(r.ID) && !p.st.Ended(r.ID) {
		rec.Detail = "closed"
		rec.End = int64(p.st.Now())
		// What opens the gate next must not find it still waiting.
		p.cancel(ctx, []string{r.ID})
	}
	p.st.Await(ctx, p.st.Now()+orDefault(s.Limit, EndLimit), func() bool { return p.st.Ended(r.ID) })
}

// finish ends whatever a script left open, so that every request has an ending; the conservation check sees them as unfinished.
func (p player) finish(ctx context.Context) {
	for _, id := range p.st.Held() {
		p.st.Release(id)
	}
	p.st.Await(ctx, p.st.Now()+ArrivalLimit, func() bool { return p.st.Open() == 0 })
	p.abandon()
}

func (p player) abandon() {
	ids := p.st.Unended()
	for _, id := range ids {
		p.st.Abandon(id)
	}
	if len(ids) > 0 {
		p.st.Await(context.Background(), p.st.Now()+EndLimit, func() bool { return p.st.Open() == 0 })
	}
}

func (p player) await(ctx context.Context, limit, std time.Duration, rec *evidence.Step, cond func() (bool, string)) {
	limit = orDefault(limit, std)
	if p.st.Await(ctx, p.st.Now()+limit, func() bool { ok, _ := cond(); return ok }) {
		return
	}
	if ok, why := cond(); !ok {
		rec.OK, rec.Detail = false, why+" within "+limit.String()
	}
}

// cancel disconnects clients and waits until the router shows that those who waited have left: a disconnect takes its way through
// proxy and router, and what is released before it has arrived would rightly be theirs. A router that never shows it is not waited for
// beyond GaugeLimit; the checks see what it does.
func (p player) cancel(ctx context.Context, ids []string) {
	waiting := 0
	for _, id := range ids {
		if !p.arrived(id) && !p.st.Ended(id) {
			waiting++
		}
	}
	before, _ := p.st.QueueSize()
	for _, id := range ids {
		p.st.Cancel(id)
	}
	if waiting == 0 {
		return
	}
	p.st.Await(ctx, p.st.Now()+GaugeLimit, func() bool {
		n, shown := p.st.QueueSize()
		return shown && n <= before-waiting
	})
}

func (p player) arrived(id string) bool {
	for _, a := range p.st.Arrivals() {
		if a == id {
			return true
		}
	}
	return false
}

func (p player) allArrived(ids []string) (bool, string) {
	for _, id := range ids {
		if !p.arrived(id) {
			return false, id + " did not arrive at a model server"
		}
	}
	return true, ""
}

func (p player) allEnded(ids []string) (bool, string) {
	for _, id := range ids {
		if !p.st.Ended(id) {
			return false, id + " did not end"
		}
	}
	return true, ""
}

func orDefault(d, std time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return std
}
