package runner

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/loadgen/openai"
	"github.com/llm-weir/weir/loadgen/plan"
)

// prepare turns a planned request into what is sent; intended is an offset since the start of the load.
func (r *run) prepare(req *plan.Request, intended time.Duration) openai.Request {
	body := openai.Body{
		Path: req.Path, Model: r.cfg.Model, PromptTokens: req.PromptTokens, MaxTokens: req.MaxTokens, Stream: req.Stream, Seed: req.ID,
	}
	out := openai.Request{
		Scenario: r.cfg.Scenario, ID: req.ID, Tenant: req.Tenant, Path: req.Path,
		Body: body.Build(), Stream: req.Stream, Intended: r.start + intended,
		Headers: map[string]string{wire.HeaderOutputTokens: strconv.Itoa(req.OutputTokens)},
	}
	if req.FairnessID != "" {
		out.Headers[r.cfg.FairnessHeader] = req.FairnessID
	}
	if req.Objective != "" {
		out.Headers[r.cfg.ObjectiveHeader] = req.Objective
	}
	return out
}

// send starts the request in a goroutine of its own and, when it has ended, tells its id to ended (nil: nobody).
func (r *run) send(ctx context.Context, req *plan.Request, out openai.Request, ended chan<- string) {
	if r.inFlight.Add(1) > int64(r.cfg.MaxInFlight) {
		r.inFlight.Add(-1)
		r.overLimit(out)
		if ended != nil {
			ended <- req.ID
		}
		return
	}
	r.requests.Go(func() {
		rec := r.exchange(ctx, req.CancelAfter, out)
		r.inFlight.Add(-1)
		r.record(rec)
		if ended != nil {
			ended <- req.ID
		}
	})
}

// exchange sends one request under its time limits.
func (r *run) exchange(ctx context.Context, cancelAfter time.Duration, out openai.Request) evidence.Client {
	reqCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit, cause := r.cfg.Timeout, context.DeadlineExceeded
	if cancelAfter > 0 && cancelAfter < limit {
		limit, cause = cancelAfter, openai.ErrCancelled
	}
	timer := r.cfg.Clock.Timer(limit)
	over := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-timer.C:
			cancel(cause)
		case <-over:
		}
	}()
	rec := r.cfg.Sender.Do(reqCtx, out, r.cfg.OnProgress)
	timer.Stop()
	close(over)
	<-watched
	// A request that the end of the run cut off says nothing about the router.
	if rec.Outcome == evidence.TransportError && ctx.Err() != nil {
		rec.Outcome = evidence.Unfinished
	}
	return rec
}

// overLimit records a request that the client could not send.
func (r *run) overLimit(out openai.Request) {
	now := r.cfg.Clock.Now()
	r.tally.addOverLimit()
	r.record(evidence.Client{
		Scenario: out.Scenario, ID: out.ID, Tenant: out.FairnessID, Objective: out.Objective, Stream: out.Stream,
		Intended: int64(out.Intended), Sent: evidence.Never, Headers: evidence.Never, FirstToken: evidence.Never, LastToken: evidence.Never,
		End: int64(now), Behind: int64(now - out.Intended), Outcome: evidence.TransportError,
		Error: fmt.Sprintf("not sent: %d requests are in flight, the client's limit", r.cfg.MaxInFlight),
	})
}

func (r *run) record(rec evidence.Client) {
	r.tally.add(rec)
	r.cfg.OnDone(rec)
}
