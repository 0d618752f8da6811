package sut

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// Batch is an Async Processor in front of the router: what its queues pull goes through the router like any client's request.
type Batch struct {
	Queues  []BatchQueue  `json:"queues"`
	Workers int           `json:"workers"`          // of its one pool
	Size    int           `json:"batchSize"`        // messages a poll takes
	Poll    time.Duration `json:"pollNs,omitempty"` // 0: 50 ms
	Policy  string        `json:"policy,omitempty"` // merge policy document; "": random-robin
	// Prometheus scrapes router and model servers every 100 ms and answers the queues' gates.
	Prometheus bool `json:"prometheus,omitempty"`
}

// BatchQueue is one queue.
type BatchQueue struct {
	Name      string            `json:"name"`
	Objective string            `json:"objective,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Gate      string            `json:"gate,omitempty"`
	Params    map[string]any    `json:"params,omitempty"` // $POOL is the name of the router's pool
}

// Names of the keys of a batch processor.
const (
	BatchRetries = "retry"
	BatchResults = "results"
)

// Document is the transport document of a processor (spec/async-processor.md §8), towards a broker and a gateway.
func (b Batch) Document(redisURL, gateway, pool string) (string, error) {
	poll := b.Poll
	if poll == 0 {
		poll = 50 * time.Millisecond
	}
	doc := map[string]any{"url": redisURL, "retry_queue_name": BatchRetries, "result_queue_name": BatchResults, "poll_interval_ms": poll.Milliseconds(), "batch_size": b.Size}
	var queues []map[string]any
	for _, q := range b.Queues {
		e := map[string]any{"queue_name": q.Name, "igw_base_url": gateway}
		if q.Objective != "" {
			e["inference_objective"] = q.Objective
		}
		if len(q.Labels) > 0 {
			e["labels"] = q.Labels
		}
		if q.Gate != "" {
			params := map[string]any{}
			for k, v := range q.Params {
				if params[k] = v; v == "$POOL" {
					params[k] = pool
				}
			}
			e["gate_type"], e["gate_params"] = q.Gate, params
		}
		queues = append(queues, e)
	}
	doc["queues"] = queues
	raw, err := json.Marshal(doc)
	return string(raw), err
}

// Operations on a batch processor.
const (
	OpEnqueue   Op = "enqueue" // put Messages into the queue Mode
	OpBatch     Op = "batch"   // wait until Count results of IDs are there, at most for Limit; Mode "release": whatever is held is let go meanwhile
	OpWaiting   Op = "waiting" // wait until the router's gauge shows Count waiting requests; without a gauge, for Quiet
	OpHeldThere Op = "held"    // wait until the named requests are held at model servers
	OpTried     Op = "tried"   // wait until Count attempts for IDs have ended; Mode "429", "503", ...: with that status
)

// Batcher is a stage with a batch processor.
type Batcher interface {
	Enqueue(queue string, m AsyncMessage) error
	// Results counts the results of some ids (or prefixes that end with an asterisk).
	Results(ids []string) int
	// Tried counts the attempts for ids that have ended, with a status (0: any).
	Tried(ids []string, status int) int
}

// batch plays what concerns the batch processor.
func (p player) batch(ctx context.Context, s Step, rec *evidence.Step) error {
	rec.IDs = s.IDs
	switch s.Op {
	case OpWaiting:
		p.waiting(ctx, s, rec)
		return nil
	case OpHeldThere:
		p.await(ctx, s.Limit, ArrivalLimit, rec, func() (bool, string) {
			held := p.st.Held()
			for _, id := range s.IDs {
				if !slices.Contains(held, id) {
					return false, id + " is not held"
				}
			}
			return true, ""
		})
		return nil
	}
	b, ok := p.st.(Batcher)
	if !ok {
		return &UnsupportedError{Feature: BatchProcessor, Why: "this environment has none"}
	}
	switch s.Op {
	case OpEnqueue:
		for _, m := range s.Messages {
			rec.IDs = append(rec.IDs, m.ID)
			if err := b.Enqueue(s.Mode, m); err != nil {
				return fmt.Errorf("message %s: %w", m.ID, err)
			}
		}
	case OpTried:
		status := 0
		if _, err := fmt.Sscan(s.Mode, &status); err != nil && s.Mode != "" {
			return fmt.Errorf("mode %q is no status", s.Mode)
		}
		p.await(ctx, s.Limit, EndLimit, rec, func() (bool, string) {
			n := b.Tried(s.IDs, status)
			return n >= s.Count, fmt.Sprintf("%d of %d attempts have ended so", n, s.Count)
		})
	case OpBatch:
		p.await(ctx, s.Limit, EndLimit, rec, func() (bool, string) {
			if s.Mode == "release" {
				for _, id := range p.st.Held() {
					p.st.Release(id)
				}
			}
			n := b.Results(s.IDs)
			return n >= s.Count, fmt.Sprintf("%d of %d results came", n, s.Count)
		})
	}
	return nil
}

func (p player) waiting(ctx context.Context, s Step, rec *evidence.Step) {
	if _, gauge := p.st.QueueSize(); !gauge {
		p.st.Await(ctx, p.st.Now()+orDefault(s.Quiet, ProbeQuiet), never)
		return
	}
	p.await(ctx, s.Limit, EndLimit, rec, func() (bool, string) {
		n, _ := p.st.QueueSize()
		return n == s.Count, fmt.Sprintf("%d wait, not %d", n, s.Count)
	})
}
