// Package asyncproc runs an Async Processor on real time: one goroutine owns the machine of package async, others do what it decides.
//
//	broker <--pull, end-- puller, writer --\                       /--> HTTP attempts --> gateway
//	Redis, Prometheus, pages <--- asks -----> events --> machine --+--> answers to gates' questions
//	queues file ---- reload ---------------/   (bounded)    |      \--> Metrics
//	                                            timer at Deadline
//
// driver.go is that goroutine and what it starts; writer.go ends deliveries in the broker, batch by batch; sources.go asks for what
// gates read; attempt.go speaks to the gateway; metrics.go counts; server.go puts ports, reload and shutdown around it.
package asyncproc

import (
	"context"
	"time"

	"github.com/llm-weir/weir/reference/redisq"
)

// broker is the transport as the driver sees it: redisq.Leased, redisq.Destructive, or redisq.Channels.
type broker interface {
	Pull(ctx context.Context, queue string, n, offset int) ([]redisq.Delivery, error)
	Apply(ctx context.Context, ops []redisq.Op) []redisq.Outcome
	MoveDue(ctx context.Context, now float64, home redisq.Home) (int, error)
}

// leaser is a broker whose deliveries are leased.
type leaser interface {
	Renew(ctx context.Context, ds []redisq.Delivery) (lost []int, err error)
	Reclaim(ctx context.Context, queue string) (int, error)
}

// forgetful is a broker that gives a result up after some attempts to write it.
type forgetful interface{ ResultPauses() []time.Duration }
