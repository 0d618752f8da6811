package env

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/loadgen/openai"
	"github.com/llm-weir/weir/reference/gateway"
)

// Clients are the clients of a scenario that is played over real sockets, and the time of its stage: who was sent, who has ended, and
// whom a change wakes. It is the part of sut.Stage that does not depend on what the router is.
type Clients struct {
	Clock clock.Real

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	byID    map[string]*client
	order   []*client
	open    int // without an ending
	running sync.WaitGroup
}

type client struct {
	id        string
	sent      time.Duration
	cancel    context.CancelCauseFunc
	ended     bool
	refused   bool
	abandoned bool
}

// NewClients starts the time of a stage.
func NewClients() *Clients {
	return &Clients{Clock: clock.NewReal(), changed: make(chan struct{}), byID: map[string]*client{}}
}

// pollPeriod bounds how late Await notices what nobody announces: the router's own gauges.
const pollPeriod = 5 * time.Millisecond

// Now implements sut.Stage.
func (cs *Clients) Now() time.Duration { return cs.Clock.Now() }

// Wake tells every Await that something has changed.
func (cs *Clients) Wake() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	close(cs.changed)
	cs.changed = make(chan struct{})
}

// Await implements sut.Stage.
func (cs *Clients) Await(ctx context.Context, until time.Duration, cond func() bool) bool {
	for {
		cs.mu.Lock()
		changed := cs.changed
		cs.mu.Unlock()
		if cond() {
			return true
		}
		left := until - cs.Clock.Now()
		if left <= 0 || ctx.Err() != nil {
			return false
		}
		t := cs.Clock.Timer(min(left, pollPeriod))
		select {
		case <-changed:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// Start sends a request of a script, for as long as base lasts; addresses maps endpoint names to ip:port, and done gets the record when it
// has ended.
func (cs *Clients) Start(base context.Context, s *openai.Sender, scenario string, r sut.Request, addresses func(string) string, done func(evidence.Client)) {
	ctx, cancel := context.WithCancelCause(base)
	c := &client{id: r.ID, sent: cs.Clock.Now(), cancel: cancel}
	cs.mu.Lock()
	cs.byID[r.ID] = c
	cs.order = append(cs.order, c)
	cs.open++
	cs.mu.Unlock()
	q := openai.Request{Scenario: scenario, ID: r.ID, Path: Path(r), Method: r.Method, Body: Body(r), Stream: r.Stream,
		Headers: Headers(scenario, r, addresses), Intended: cs.Clock.Now(), BodyDelay: r.BodyDelay}
	cs.running.Go(func() {
		rec := s.Do(ctx, q, nil)
		cancel(nil)
		cs.mu.Lock()
		if c.abandoned {
			rec.Outcome = evidence.Unfinished
		}
		c.ended, c.refused = true, rec.Outcome == evidence.Refused
		cs.open--
		cs.mu.Unlock()
		rec.Tenant, rec.Objective = r.Tenant, r.Objective
		done(rec)
		cs.Wake()
	})
}

// Wait waits until every client has ended and its record is handed over.
func (cs *Clients) Wait() { cs.running.Wait() }

// Cancel implements sut.Stage.
func (cs *Clients) Cancel(id string) { cs.leave(id, false) }

// Abandon implements sut.Stage.
func (cs *Clients) Abandon(id string) { cs.leave(id, true) }

func (cs *Clients) leave(id string, abandon bool) {
	cs.mu.Lock()
	c := cs.byID[id]
	if c != nil && !c.ended {
		c.abandoned = abandon
	}
	cs.mu.Unlock()
	switch {
	case c == nil:
	case abandon:
		c.cancel(errors.New("the harness gave it up"))
	default:
		c.cancel(openai.ErrCancelled)
	}
}

// Ended implements sut.Stage.
func (cs *Clients) Ended(id string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byID[id]
	return c != nil && c.ended
}

// Refused implements sut.Refuser.
func (cs *Clients) Refused(id string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byID[id]
	return c != nil && c.ended && c.refused
}

// Unended implements sut.Stage.
func (cs *Clients) Unended() []string {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var out []string
	for _, c := range cs.order {
		if !c.ended {
			out = append(out, c.id)
		}
	}
	return out
}

// Open implements sut.Stage.
func (cs *Clients) Open() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.open
}

// SentAt is the instant at which a request was sent; false if it was not.
func (cs *Clients) SentAt(id string) (time.Duration, bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byID[id]
	if c == nil {
		return 0, false
	}
	return c.sent, true
}

// Exchanged is the record of what our gateway saw of a request; name is what the scenario calls the model server at an address, "" for
// none of its own.
func Exchanged(x gateway.Exchange, name func(address string) string) evidence.Exchange {
	called := func(address string) string {
		if n := name(address); n != "" {
			return n
		}
		return address
	}
	e := evidence.Exchange{ID: x.ID, RequestID: x.RequestID, First: int64(x.First), HeaderDestination: called(x.HeaderDestination),
		MetadataDestination: called(x.MetadataDestination)}
	if x.First < 0 {
		e.First = evidence.Never
	}
	return e
}

// healthLimit is how long a health service may take to answer.
const healthLimit = 5 * time.Second

// Health is what the gRPC health service at an address says of the whole server, such as SERVING.
func Health(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", fmt.Errorf("health service: %w", err)
	}
	defer conn.Close()
	r, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		return "", fmt.Errorf("health service: %w", err)
	}
	return r.GetStatus().String(), nil
}
