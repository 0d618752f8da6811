package redisq

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Destructive is the sorted-set transport as the guide's processor has it: what is pulled exists in the process only, so that a kill
// loses it (spec/async-processor.md §1.1).
type Destructive struct {
	Client *redis.Client
	Retry  string
}

// Pull pops up to n messages from the head; offset has no meaning here.
func (d *Destructive) Pull(ctx context.Context, queue string, n, _ int) ([]Delivery, error) {
	popped, err := d.Client.ZPopMin(ctx, queue, int64(n)).Result()
	if err != nil {
		return nil, fmt.Errorf("pull of %q: %w", queue, err)
	}
	out := make([]Delivery, len(popped))
	for i, z := range popped {
		member, _ := z.Member.(string)
		out[i] = Delivery{Queue: queue, Raw: []byte(member), score: strconv.FormatFloat(z.Score, 'g', 17, 64)}
	}
	return out, nil
}

// resultPauses are those between the three attempts to write a result, after which it is lost.
var resultPauses = []time.Duration{100 * time.Millisecond, 200 * time.Millisecond}

// ResultPauses is how long to wait before each further attempt to write a result; after them it is given up.
func (d *Destructive) ResultPauses() []time.Duration { return resultPauses }

// Apply ends deliveries in one round trip.
func (d *Destructive) Apply(ctx context.Context, ops []Op) []Outcome {
	pipe := d.Client.Pipeline()
	cmds := make([]redis.Cmder, len(ops))
	for i := range ops {
		o := &ops[i]
		switch o.Kind {
		case Retry:
			cmds[i] = pipe.Do(ctx, "ZADD", d.Retry, unix(o.Due), o.Member)
		case Finish:
			cmds[i] = pipe.LPush(ctx, o.To, o.Result)
			if o.TTL > 0 {
				pipe.PExpire(ctx, o.To, o.TTL)
			}
			if o.Token != "" {
				pipe.Del(ctx, ActiveKey(o.ID), CancelKey(o.ID))
			}
		case DeadLetter:
			cmds[i] = pipe.LPush(ctx, DeadLetterKey(o.Delivery.Queue), o.Delivery.Raw)
		default:
			cmds[i] = pipe.Do(ctx, "ZADD", o.Delivery.Queue, o.Delivery.score, o.Delivery.Raw)
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out := make([]Outcome, len(ops))
	for i, c := range cmds {
		out[i] = Outcome{Done: c.Err() == nil, Err: c.Err()}
	}
	return out
}

// MoveDue is described at Leased.
func (d *Destructive) MoveDue(ctx context.Context, now float64, home Home) (int, error) {
	return moveDue(ctx, d.Client, d.Retry, now, home)
}
