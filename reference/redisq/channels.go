package redisq

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/reference/async"
)

// Channels is the ephemeral transport (spec/async-processor.md §1.4): requests come and results go on channels, retries wait in a sorted
// set. What is published while nobody listens is lost, and what a killed process has is lost.
type Channels struct {
	Client *redis.Client
	Retry  string
}

// Pull has no meaning here: messages come by themselves.
func (c *Channels) Pull(context.Context, string, int, int) ([]Delivery, error) { return nil, nil }

// Apply ends deliveries in one round trip. A released message waits in the retry set like a retry that is due; its Member must name its
// queue.
func (c *Channels) Apply(ctx context.Context, ops []Op) []Outcome {
	pipe := c.Client.Pipeline()
	cmds := make([]redis.Cmder, len(ops))
	for i := range ops {
		o := &ops[i]
		switch o.Kind {
		case Finish:
			cmds[i] = pipe.Publish(ctx, o.To, o.Result)
		case DeadLetter:
			cmds[i] = pipe.LPush(ctx, DeadLetterKey(o.Delivery.Queue), o.Delivery.Raw)
		default:
			cmds[i] = pipe.Do(ctx, "ZADD", c.Retry, unix(o.Due), o.Member)
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out := make([]Outcome, len(ops))
	for i, cmd := range cmds {
		out[i] = Outcome{Done: cmd.Err() == nil, Err: cmd.Err()}
	}
	return out
}

// TakeDue takes the retries that are due at now (Unix seconds) and belong to a served queue. Those of other queues stay for whoever
// serves them; unreadable ones go to the dead letters of the retry set.
func (c *Channels) TakeDue(ctx context.Context, now float64, served func(queue string) bool) ([]Delivery, error) {
	due, err := c.Client.ZRangeArgs(ctx, redis.ZRangeArgs{Key: c.Retry, Start: "-inf", Stop: unix(now), ByScore: true, Count: moveLimit}).Result()
	if err != nil {
		return nil, fmt.Errorf("retries in %q: %w", c.Retry, err)
	}
	var out []Delivery
	for _, member := range due {
		e, err := async.Parse([]byte(member))
		readable := err == nil || e.Request.ID != ""
		if readable && !served(e.Internal.RequestQueueName) {
			continue
		}
		n, err := c.Client.ZRem(ctx, c.Retry, member).Result()
		switch {
		case err != nil:
			return out, fmt.Errorf("retries in %q: %w", c.Retry, err)
		case n == 0: // another replica has it
		case readable:
			out = append(out, Delivery{Queue: e.Internal.RequestQueueName, Raw: []byte(member)})
		default:
			if err := c.Client.LPush(ctx, DeadLetterKey(c.Retry), member).Err(); err != nil {
				return out, fmt.Errorf("dead letters of %q: %w", c.Retry, err)
			}
		}
	}
	return out, nil
}

// MoveDue has no meaning here: TakeDue gives the retries to the process.
func (c *Channels) MoveDue(context.Context, float64, Home) (int, error) { return 0, nil }

// Publish sends a request to a channel; heard tells how many processors listen.
func Publish(ctx context.Context, c *redis.Client, channel string, r async.Request) (heard int64, err error) {
	e, err := async.NewEnvelope(r, async.Internal{})
	if err != nil {
		return 0, fmt.Errorf("request %q: %w", r.ID, err)
	}
	if heard, err = c.Publish(ctx, channel, e.Encode()).Result(); err != nil {
		return 0, fmt.Errorf("publish to %q: %w", channel, err)
	}
	return heard, nil
}
